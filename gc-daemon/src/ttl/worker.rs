//! The workers: take a job that is due, run its attempt, send what it asks for, hand the outcome back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};
use gc_builder::ttl_refused;
use gc_client::{ApiResource, Client, DeleteOptions, Fields, MetaRef, ObjectFields};
use gc_core::Resource;
use gc_core::ttl::{Attempt, Due, Facts, Field, Meta, Outcome, Profile, Reply, Request, Step};
use log::{debug, error, trace};

use crate::metrics::Metrics;
use crate::requests::{propagation, status_code};

/// What an attempt is made with.
#[derive(Clone, Debug)]
pub(super) struct Hands {
    pub client: Client,
    pub metrics: Arc<Metrics>,
    /// Nothing more is begun.
    pub stopping: Arc<AtomicBool>,
}

/// A kind that is served.
#[derive(Debug)]
pub(super) struct Served {
    pub profile: Arc<Profile>,
    pub fields: Fields,
    pub resource: ApiResource,
    pub core: Arc<Resource>,
}

/// A job that is due.
#[derive(Debug)]
pub(super) struct Work {
    pub due: Due,
    pub served: Arc<Served>,
}

/// What became of it.
#[derive(Debug)]
pub(super) struct Done {
    pub due: Due,
    pub outcome: Outcome,
}

/// The body of a worker: until there is no more work, or the program stops.
pub(super) fn run(hands: &Hands, work: &Receiver<Work>, done: &Sender<Done>) {
    while let Ok(Work { due, served }) = work.recv() {
        // A panic fails the attempt, not the worker: the job is tried again later, and the others go on.
        let attempted = catch_unwind(AssertUnwindSafe(|| attempt(hands, &served, due.clone())));
        let outcome = attempted.unwrap_or_else(|_| {
            error!("a fault in this program: the attempt at {} panicked", due.name);
            Some(Outcome::Failed("the attempt panicked".into()))
        });
        let Some(outcome) = outcome else { return };
        if done.send(Done { due, outcome }).is_err() {
            return;
        }
    }
}

/// `None` when it was given up because the program stops.
fn attempt(hands: &Hands, served: &Served, due: Due) -> Option<Outcome> {
    let mut attempt = Attempt::new(served.profile.clone(), served.core.clone(), due);
    let mut reply = None;
    loop {
        let request = match attempt.step(super::now_ms(), reply.take()) {
            Step::Done(outcome) => return Some(outcome),
            Step::Call(_) if hands.stopping.load(Ordering::SeqCst) => return None,
            Step::Call(request) => request,
        };
        let answer = send(hands, served, &request);
        match (&request, &answer) {
            (Request::Delete { target, uid, resource_version, policy }, Reply::Deleted) => {
                debug!(
                    "deleted {target} ({policy}), uid {uid} at version {resource_version}: its TTL has expired"
                );
            }
            _ => trace!("{request:?} -> {answer:?}"),
        }
        reply = Some(answer);
    }
}

/// Sends one request, once, and waits for its answer.
fn send(hands: &Hands, served: &Served, request: &Request) -> Reply {
    let begun = Instant::now();
    let Hands { client, metrics, .. } = hands;
    match request {
        Request::Read(target) => {
            let read = client.read_fields(&served.resource, &target.namespace, &target.name, &served.fields);
            metrics.request("GET", status_code(&read), begun.elapsed());
            read.map_or_else(|error| ttl_refused(target, &error), |read| object(served, &read))
        }
        Request::Delete { target, uid, resource_version, policy } => {
            let uid = uid.to_string();
            let options =
                DeleteOptions { uid: &uid, resource_version, propagation_policy: propagation(*policy) };
            let answer = client.delete(&served.resource, &target.namespace, &target.name, &options);
            metrics.request("DELETE", status_code(&answer), begun.elapsed());
            match answer {
                Ok(()) => {
                    metrics.deleted(policy.as_str());
                    Reply::Deleted
                }
                Err(error) => ttl_refused(target, &error),
            }
        }
    }
}

fn object(served: &Served, read: &ObjectFields) -> Reply {
    let ObjectFields { meta, values, server_time_ms } = read;
    let meta = Meta {
        namespace: &meta.namespace,
        name: &meta.name,
        uid: &meta.uid,
        resource_version: &meta.resource_version,
        being_deleted: meta.being_deleted,
        is_controlled: meta.owner_references.iter().any(|owner| owner.controller == Some(true)),
    };
    let facts = facts(&served.profile, &meta, values);
    Reply::Object { facts: Box::new(facts), server_ms: *server_time_ms }
}

/// What a watch or a list has shown.
pub(super) fn seen(profile: &Profile, meta: &MetaRef<'_>) -> Facts {
    let fields = meta.fields;
    let meta = Meta {
        namespace: meta.namespace,
        name: meta.name,
        uid: meta.uid,
        resource_version: meta.resource_version,
        being_deleted: meta.being_deleted,
        is_controlled: meta.owner_references.iter().any(|owner| owner.controller == Some(true)),
    };
    facts(profile, &meta, fields)
}

fn facts(profile: &Profile, meta: &Meta<'_>, values: &[gc_client::Field]) -> Facts {
    let fields: Vec<Field<'_>> = values
        .iter()
        .map(|value| match value {
            gc_client::Field::Absent => Field::Absent,
            gc_client::Field::Value(value) => Field::Value(value),
            gc_client::Field::TooLarge => Field::TooLarge,
        })
        .collect();
    profile.facts(meta, &fields)
}
