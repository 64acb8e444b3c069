//! The collector's other controller in worlds that have jobs: gc-core's TTL engine and attempts, driven like the others, one
//! step at a time. What the graph's watch of jobs shows is what the engine hears.

use std::sync::Arc;
use std::time::Duration;

use gc_builder::{Change, ttl_refused};
use gc_client::wire::{Format, read_object_fields};
use gc_client::{Error, Fields};
use gc_core::Resource;
use gc_core::ttl::{
    Attempt, Due, Engine, Facts, Field, Gone, Limits, Meta, Outcome, Profile, ProfileId, Reply, Request, Step,
};
use gc_graph::Uid;
use serde_json::Value;

use super::Mistake;
use super::kinds::JOB;
use super::link::{Link, said, to_status};
use super::truth::{Check, Violation, short_uid};
use crate::sim::Response;

/// How the controller signs its requests.
pub(super) const EXPIRER: &str = "gc-ttl";
const WORKERS: usize = 2;
/// The daemon looks at the clock so often, whatever the timer says: it may have jumped.
const TICK: Duration = Duration::from_secs(5);

/// The TTL controller of one life of the collector.
pub(super) struct Expirer {
    engine: Engine,
    id: ProfileId,
    profile: Arc<Profile>,
    /// What is read of a job.
    fields: Fields,
    resource: Arc<Resource>,
    workers: Vec<Option<Job>>,
    /// When it last looked at its clock, and by how much that was ahead then.
    looked: (Duration, i64),
}

/// An attempt under way.
struct Job {
    attempt: Attempt,
    traffic: Traffic,
}

/// Where its request is.
enum Traffic {
    None,
    Sent(Request),
    Back(Reply),
}

impl Expirer {
    pub(super) fn new(now: Duration) -> Option<Expirer> {
        let profile = Arc::new(Profile::batch_job());
        let mut engine = Engine::new(Limits { in_flight_max: WORKERS, ..Limits::default() });
        let id = engine.add_profile(profile.clone()).ok()?;
        let fields = Fields::new(profile.paths().iter().cloned()).ok()?;
        let resource = Arc::new(Resource {
            group: profile.group().into(),
            version: profile.version().into(),
            resource: profile.resource().into(),
            kind: JOB.kind.into(),
            namespaced: true,
        });
        let workers = (0..WORKERS).map(|_| None).collect();
        Some(Expirer { engine, id, profile, fields, resource, workers, looked: (now, 0) })
    }

    /// What the watch of jobs has to say.
    pub(super) fn hear(&mut self, link: &Link, change: &Change) {
        let now_ms = link.clock_ms();
        match change {
            Change::ListStarted => self.engine.begin_list(self.id),
            Change::ListDone(_) => self.engine.end_list(self.id),
            Change::Seen(jobs) => jobs.for_each(|meta| {
                if let Some(job) = link.truth.jobs.version(meta.uid, meta.resource_version) {
                    let facts = facts(&self.profile, job);
                    self.engine.observe(now_ms, self.id, &facts, &mut Vec::new());
                }
            }),
            Change::Deleted(jobs) => jobs.for_each(|meta| {
                self.engine.delete(now_ms, self.id, meta.namespace, meta.name, &Uid::new(meta.uid));
            }),
            Change::Bookmark(_)
            | Change::WentBack(_)
            | Change::Ended
            | Change::Probing
            | Change::Watching
            | Change::Resumed
            | Change::Failed(_)
            | Change::Died => {}
        }
    }

    /// Jobs are not served any more.
    pub(super) fn stop(&mut self) {
        self.engine.stop(self.id);
    }

    /// Which workers can do something now, and when the others can.
    pub(super) fn moves(&self, link: &Link) -> (Vec<usize>, Duration) {
        let due = self.engine.next_due_ms().map_or(Duration::MAX, |due_ms| link.at_clock(due_ms));
        // Where it has not jumped, a look changes nothing.
        let has_jumped = self.looked.1 != link.clock_ahead_ms;
        let tick = if has_jumped { self.looked.0 + TICK } else { Duration::MAX };
        let wake = due.min(tick.max(link.now));
        let is_free = |worker: &&(usize, &Option<Job>)| worker.1.is_none();
        let mut workers: Vec<usize> = self.under_way().collect();
        let first_free = self.workers.iter().enumerate().find(|worker| is_free(&worker));
        let has_work = wake <= link.now;
        workers.extend(first_free.filter(|_| has_work).map(|(number, _)| number));
        (workers, wake)
    }

    fn under_way(&self) -> impl Iterator<Item = usize> {
        self.workers.iter().enumerate().filter(|(_, job)| job.is_some()).map(|(number, _)| number)
    }

    /// Workers whose request can arrive while their process is stopped.
    pub(super) fn sent(&self) -> impl Iterator<Item = usize> {
        let has_sent =
            |job: &Option<Job>| job.as_ref().is_some_and(|job| matches!(job.traffic, Traffic::Sent(_)));
        self.workers.iter().enumerate().filter(move |(_, job)| has_sent(job)).map(|(number, _)| number)
    }

    /// Whether nothing is under way and nothing waits for a time that anybody knows.
    pub(super) fn is_at_rest(&self) -> bool {
        self.under_way().next().is_none() && self.engine.jobs().all(|job| job.due_ms.is_none())
    }

    /// The jobs that wait, for whoever asks why there is no rest.
    pub(super) fn unrest(&self) -> String {
        let shown = self.engine.jobs().map(|job| format!("{} {:?} at {}", job.name, job.stage, job.at_ms));
        shown.collect::<Vec<_>>().join(", ")
    }

    /// The server is gone, and with it every request that is on its way.
    pub(super) fn lose_requests(&mut self) {
        for job in self.workers.iter_mut().flatten() {
            if matches!(job.traffic, Traffic::Sent(_)) {
                job.traffic = Traffic::Back(Reply::Failed("the connection was cut".into()));
            }
        }
    }

    /// Requests that may arrive although their sender is no more.
    pub(super) fn into_under_way(self) -> impl Iterator<Item = Request> {
        self.workers.into_iter().flatten().filter_map(|job| match job.traffic {
            Traffic::Sent(request) => Some(request),
            Traffic::None | Traffic::Back(_) => None,
        })
    }

    /// One step of the worker with this number.
    pub(super) fn step(&mut self, number: usize, link: &mut Link) -> Result<String, Violation> {
        self.looked = (link.now, link.clock_ahead_ms);
        let Some(mut job) = self.workers.get_mut(number).and_then(Option::take) else {
            return self.begin(number, link);
        };
        let reply = match std::mem::replace(&mut job.traffic, Traffic::None) {
            Traffic::Sent(request) => {
                let response = link.send_expiry(&request)?;
                let reply = self.reply(&request, response, link);
                let said = said!(link, "{} -> {}", show(&request), show_reply(&reply));
                job.traffic = Traffic::Back(reply);
                self.keep(number, job);
                return Ok(said);
            }
            Traffic::Back(reply) => Some(reply),
            Traffic::None => None,
        };
        self.advance(number, job, reply, link)
    }

    fn begin(&mut self, number: usize, link: &mut Link) -> Result<String, Violation> {
        let mut due = Vec::new();
        self.engine.take_due(link.clock_ms(), 1, &mut due);
        let Some(due) = due.pop() else { return Ok("looks at the clock".into()) };
        if link.mistake == Some(Mistake::ExpireAsObserved) {
            return self.expire_as_observed(&due, link);
        }
        let attempt = Attempt::new(self.profile.clone(), self.resource.clone(), due);
        self.advance(number, Job { attempt, traffic: Traffic::None }, None, link)
    }

    fn advance(
        &mut self,
        number: usize,
        mut job: Job,
        reply: Option<Reply>,
        link: &mut Link,
    ) -> Result<String, Violation> {
        match job.attempt.step(link.clock_ms(), reply) {
            Step::Call(request) => {
                link.truth.unless_ignored(check_preconditions(&request))?;
                let said = said!(link, "sends {}", show(&request));
                job.traffic = if link.is_away() {
                    link.requests += 1;
                    Traffic::Back(Reply::Failed("the connection was cut".into()))
                } else {
                    Traffic::Sent(request)
                };
                self.keep(number, job);
                Ok(said)
            }
            Step::Done(outcome) => {
                let due = job.attempt.due();
                let said = said!(link, "{} {outcome:?}", short_uid(&due.uid.to_string()));
                self.engine.finish(link.clock_ms(), due, &outcome, &mut Vec::new());
                let is_denied = matches!(outcome, Outcome::Gone(Gone::NotFound));
                if is_denied && link.mistake == Some(Mistake::ExpireDeniedOnce) {
                    self.engine.delete(link.clock_ms(), self.id, &due.namespace, &due.name, &due.uid);
                }
                Ok(said)
            }
        }
    }

    /// What gc-client makes of an answer.
    fn reply(&self, request: &Request, response: Option<Response>, link: &Link) -> Reply {
        let Some(response) = response else { return Reply::Failed("no answer in time".into()) };
        let (Request::Read(target) | Request::Delete { target, .. }) = request;
        match (request, response.code) {
            (_, 0) => Reply::Failed("the connection was cut".into()),
            (_, 300..) => ttl_refused(target, &Error::Status(Box::new(to_status(&response)))),
            (Request::Delete { .. }, _) => Reply::Deleted,
            (Request::Read(_), _) => self.object(&response, link),
        }
    }

    fn object(&self, response: &Response, link: &Link) -> Reply {
        let (meta, values) = match read_object_fields(Format::Json, response.body_bytes(), &self.fields) {
            Ok(read) => read,
            Err(error) => return Reply::Failed(error.to_string()),
        };
        let meta = Meta {
            namespace: &meta.namespace,
            name: &meta.name,
            uid: &meta.uid,
            resource_version: &meta.resource_version,
            being_deleted: meta.being_deleted,
            is_controlled: meta.owner_references.iter().any(|owner| owner.controller == Some(true)),
        };
        let field = |field| match field {
            &gc_client::Field::Absent => Field::Absent,
            gc_client::Field::Value(value) => Field::Value(value),
            gc_client::Field::TooLarge => Field::TooLarge,
        };
        let fields: Vec<Field<'_>> = values.iter().map(field).collect();
        let facts = Box::new(self.profile.facts(&meta, &fields));
        // The header `Date` has whole seconds.
        let server_ms = Some(link.server_ms() / 1_000 * 1_000);
        let server_ms = server_ms.filter(|_| link.mistake != Some(Mistake::ExpireByOwnClock));
        Reply::Object { facts, server_ms }
    }

    fn keep(&mut self, number: usize, job: Job) {
        if let Some(worker) = self.workers.get_mut(number) {
            *worker = Some(job);
        }
    }

    /// [`Mistake::ExpireAsObserved`]: what the watch has shown is enough.
    fn expire_as_observed(&mut self, due: &Due, link: &mut Link) -> Result<String, Violation> {
        let target = gc_core::Target {
            resource: self.resource.clone(),
            namespace: due.namespace.clone(),
            name: due.name.clone(),
        };
        let (uid, policy) = (due.uid.clone(), self.profile.propagation());
        let request = Request::Delete { target, uid, resource_version: String::new(), policy };
        let response = link.send_expiry(&request)?;
        let reply = self.reply(&request, response, link);
        let outcome = match reply {
            Reply::Deleted => Outcome::Deleted { due_ms: due.due_ms.unwrap_or_default(), lateness_ms: 0 },
            other => Outcome::Failed(format!("{other:?}")),
        };
        self.engine.finish(link.clock_ms(), due, &outcome, &mut Vec::new());
        Ok(said!(link, "{} -> {outcome:?}", show(&request)))
    }
}

fn check_preconditions(request: &Request) -> Result<(), Violation> {
    match request {
        Request::Delete { uid, resource_version, .. } if uid.is_empty() || resource_version.is_empty() => {
            let what = format!("a DELETE without UID or version: {request:?}");
            Err(Violation::new(Check::Precondition, what))
        }
        Request::Read(_) | Request::Delete { .. } => Ok(()),
    }
}

pub(super) fn show(request: &Request) -> String {
    match request {
        Request::Read(target) => format!("GET {target}"),
        Request::Delete { target, resource_version, policy, .. } => {
            format!("DELETE {target} v{resource_version} {policy}")
        }
    }
}

pub(super) fn show_reply(reply: &Reply) -> String {
    match reply {
        Reply::Object { facts, .. } => {
            let Facts { uid, resource_version, finished, ttl, .. } = &**facts;
            let deleting = if facts.being_deleted { " deleting" } else { "" };
            format!("{} v{resource_version}{deleting} {finished:?} {ttl:?}", short_uid(&uid.to_string()))
        }
        other => format!("{other:?}"),
    }
}

/// What a client that asks for the profile's fields would be told.
pub(super) fn facts(profile: &Profile, job: &Value) -> Facts {
    let text = |pointer: &str| job.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let owners = job.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let meta = Meta {
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
        uid: text("/metadata/uid"),
        resource_version: text("/metadata/resourceVersion"),
        being_deleted: job.pointer("/metadata/deletionTimestamp").is_some(),
        is_controlled: owners.into_iter().flatten().any(|owner| owner["controller"] == true),
    };
    let field = |path: &Vec<String>| {
        let value = path.iter().try_fold(job, |value, key| value.get(key));
        value.filter(|value| !value.is_null()).map_or(Field::Absent, Field::Value)
    };
    let fields: Vec<Field<'_>> = profile.paths().iter().map(field).collect();
    profile.facts(&meta, &fields)
}
