//! One owner, many dependents, a server of a few lines and one worker: everything that a cascade does in this program,
//! and as little else as possible, so that what is counted is its work.

use std::collections::VecDeque;
use std::time::Duration;

use gc_core::{
    DeleteAttempt, FOREGROUND_FINALIZER, Kinds, LiveObject, ORPHAN_FINALIZER, Options, OrphanAttempt,
    OrphanStep, Outcome, OwnerReference, PatchedField, Propagation, Reply, Request, Resource, State, Step,
    Target,
};
use gc_graph::{Effect, Observation, OwnerReferenceRef, SourceId, Uid};
use gc_queue::{RateLimiter, WorkQueue};
use serde_json::Value;

/// All objects are of one kind in one namespace, and known by their number.
#[derive(Clone, Default)]
pub struct Object {
    /// Numbers of owners, and whether they are blocked.
    pub owners: Vec<(usize, bool)>,
    pub finalizers: Vec<&'static str>,
    pub being_deleted: bool,
    /// As a pod: what is deleted goes only when [`World::settle`] has nothing else to do.
    pub terminates: bool,
    /// Deleting it is refused for ever.
    pub is_denied: bool,
    pub is_gone: bool,
    pub version: u64,
}

pub struct World {
    pub objects: Vec<Object>,
    pub requests: u64,
    state: State,
    to_delete: WorkQueue<Uid>,
    to_orphan: WorkQueue<Uid>,
    terminating: VecDeque<usize>,
    effects: Vec<Effect>,
    version: u64,
    now: Duration,
}

/// What something took.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Owner references that the graph has looked at.
    pub edges_read: u64,
    pub allocations: u64,
    /// The most memory above that of the beginning.
    pub bytes_max: u64,
    pub requests: u64,
}

impl World {
    /// Everything is listed, and the first looks are over.
    pub fn new(objects: Vec<Object>) -> World {
        let config_map = Resource {
            group: String::new(),
            version: "v1".into(),
            resource: "configmaps".into(),
            kind: "ConfigMap".into(),
            namespaced: true,
        };
        let mut world = World {
            objects,
            requests: 0,
            state: State::new(Options::default()),
            to_delete: WorkQueue::new(RateLimiter::default()),
            to_orphan: WorkQueue::new(RateLimiter::default()),
            terminating: VecDeque::new(),
            effects: Vec::new(),
            version: 1,
            now: Duration::ZERO,
        };
        world.state.set_kinds(Kinds::new([config_map]), &mut world.effects);
        for number in 0..world.objects.len() {
            world.objects[number].version = 1;
            world.show(number);
        }
        world.settle();
        world
    }

    /// Counts what this takes.
    pub fn count(&mut self, work: impl FnOnce(&mut World)) -> Work {
        let (edges, requests) = (gc_graph::edges_read(), self.requests);
        let memory = allocation_counter::measure(|| work(self));
        Work {
            edges_read: gc_graph::edges_read() - edges,
            allocations: memory.count_total,
            bytes_max: memory.bytes_max,
            requests: self.requests - requests,
        }
    }

    /// A user deletes an object.
    pub fn delete(&mut self, number: usize, policy: Propagation) {
        let finalizer = match policy {
            Propagation::Background => None,
            Propagation::Foreground => Some(FOREGROUND_FINALIZER),
            Propagation::Orphan => Some(ORPHAN_FINALIZER),
        };
        self.objects[number].finalizers.extend(finalizer);
        self.objects[number].being_deleted = true;
        self.wrote(number);
    }

    /// A new list shows everything but what matches.
    pub fn list_without(&mut self, is_gone: impl Fn(usize) -> bool) {
        self.state.begin_list(SourceId(0));
        for number in 0..self.objects.len() {
            self.objects[number].is_gone |= is_gone(number);
            if !self.objects[number].is_gone {
                self.show(number);
            }
        }
        self.state.end_list(SourceId(0), &mut self.effects);
        self.apply();
    }

    /// Works until nothing is ready and nothing terminates. What waits for another attempt is left alone.
    pub fn settle(&mut self) {
        loop {
            if let Some(uid) = self.to_orphan.get(self.now) {
                let outcome = self.attempt_to_orphan(&uid);
                assert!(matches!(outcome, Outcome::Forget(_)), "{outcome:?}");
                self.to_orphan.done(self.now, &uid);
            } else if let Some(uid) = self.to_delete.get(self.now) {
                let outcome = self.attempt_to_delete(&uid);
                self.end(&uid, outcome);
            } else if let Some(number) = self.terminating.pop_front() {
                self.objects[number].finalizers.clear();
                self.wrote(number);
            } else {
                return;
            }
        }
    }

    fn attempt_to_delete(&mut self, uid: &Uid) -> Outcome {
        let mut attempt = DeleteAttempt::new(uid.clone());
        let mut reply = None;
        loop {
            match attempt.step(&mut self.state, self.now, reply.take()) {
                Step::Call(request) => reply = Some(self.serve(&request)),
                Step::Done(outcome) => return outcome,
            }
        }
    }

    fn attempt_to_orphan(&mut self, uid: &Uid) -> Outcome {
        let mut attempt = OrphanAttempt::new(uid.clone());
        let mut reply = None;
        loop {
            match attempt.step(&mut self.state, self.now, reply.take()) {
                OrphanStep::Call(request) => reply = Some(self.serve(&request)),
                OrphanStep::Done(outcome) => return outcome,
                OrphanStep::Release(releases) => {
                    for mut release in releases {
                        let mut reply = None;
                        let outcome = loop {
                            match release.step(&mut self.state, self.now, reply.take()) {
                                Step::Call(request) => reply = Some(self.serve(&request)),
                                Step::Done(outcome) => break outcome,
                            }
                        };
                        attempt.released(release.uid(), outcome);
                    }
                }
            }
        }
    }

    fn end(&mut self, uid: &Uid, outcome: Outcome) {
        match outcome {
            Outcome::Retry(_) => _ = self.to_delete.add_rate_limited(self.now, uid.clone()),
            Outcome::RetryAfter(delay, _) => _ = self.to_delete.add_after(self.now, uid.clone(), delay),
            Outcome::Forget(_) => self.to_delete.forget(uid),
            Outcome::Enqueue(uids) => uids.into_iter().for_each(|uid| _ = self.to_delete.add(self.now, uid)),
            Outcome::VirtuallyDeleted(coordinate, since) => {
                self.state.virtual_delete(&coordinate, since, &mut self.effects);
                self.apply();
            }
            Outcome::Busy(..) | Outcome::Impossible(_) | Outcome::WaitForKind { .. } => panic!("{outcome:?}"),
        }
        self.to_delete.done(self.now, uid);
    }

    /// What the server does and answers; its watch shows each change at once.
    fn serve(&mut self, request: &Request) -> Reply {
        self.requests += 1;
        self.now += Duration::from_millis(1);
        let (Request::Read(target) | Request::Delete { target, .. } | Request::Patch { target, .. }) =
            request;
        let number = number_of(target);
        if self.objects[number].is_gone {
            return Reply::NotFound { proof: true };
        }
        match request {
            Request::Read(_) => return Reply::Object(self.live(number)),
            Request::Delete { resource_version, .. } => {
                let object = &self.objects[number];
                if object.is_denied {
                    return Reply::Failed("admission webhook denied the request".into());
                }
                assert_eq!(*resource_version, object.version.to_string());
                self.objects[number].being_deleted = true;
                if self.objects[number].terminates {
                    self.objects[number].finalizers.push("example.com/kubelet");
                    self.terminating.push_back(number);
                }
                self.wrote(number);
                return Reply::Deleted;
            }
            Request::Patch { change, body, .. } => {
                let body: Value = serde_json::from_str(body).unwrap();
                let object = &mut self.objects[number];
                match change {
                    PatchedField::Finalizers => {
                        let stay = body["metadata"]["finalizers"].as_array().unwrap();
                        object.finalizers.retain(|finalizer| stay.contains(&(*finalizer).into()));
                    }
                    PatchedField::OwnerReferences => {
                        let gone = body["metadata"]["ownerReferences"].as_array().unwrap();
                        assert!(gone.iter().all(|reference| reference["$patch"] == "delete"), "{body}");
                        let gone: Vec<&str> = gone.iter().filter_map(|r| r["uid"].as_str()).collect();
                        object.owners.retain(|(owner, _)| !gone.contains(&uid(*owner).as_str()));
                    }
                }
            }
        }
        let live = self.live(number);
        self.wrote(number);
        Reply::Object(live)
    }

    /// After a write: the object has another version, or is gone, and the watch shows it.
    fn wrote(&mut self, number: usize) {
        self.version += 1;
        let object = &mut self.objects[number];
        object.version = self.version;
        object.is_gone = object.being_deleted && object.finalizers.is_empty();
        self.show(number);
    }

    fn show(&mut self, number: usize) {
        let object = &self.objects[number];
        let owners: Vec<(String, String, bool)> =
            object.owners.iter().map(|&(owner, blocks)| (uid(owner), name(owner), blocks)).collect();
        let references: Vec<OwnerReferenceRef<'_>> = owners
            .iter()
            .map(|(uid, name, blocks)| OwnerReferenceRef {
                api_version: "v1",
                kind: "ConfigMap",
                name,
                uid,
                controller: false,
                block_owner_deletion: *blocks,
            })
            .collect();
        let seen = Observation {
            source: SourceId(0),
            api_version: "v1",
            kind: "ConfigMap",
            namespace: "ns",
            name: &name(number),
            uid: &uid(number),
            resource_version: &object.version.to_string(),
            being_deleted: object.being_deleted,
            has_foreground_finalizer: object.finalizers.contains(&FOREGROUND_FINALIZER),
            has_orphan_finalizer: object.finalizers.contains(&ORPHAN_FINALIZER),
            owner_references: &references,
        };
        if object.is_gone {
            self.state.delete(&seen, &mut self.effects);
        } else {
            self.state.observe(&seen, &mut self.effects);
        }
        self.apply();
    }

    fn apply(&mut self) {
        for effect in self.effects.drain(..) {
            match effect {
                Effect::AttemptToDelete(uid) => _ = self.to_delete.add(self.now, uid),
                Effect::AttemptToDeleteRateLimited(uid) => {
                    _ = self.to_delete.add_rate_limited(self.now, uid);
                }
                Effect::AttemptToOrphan(uid) => _ = self.to_orphan.add(self.now, uid),
                Effect::InvalidOwnerReference(_) | Effect::Absent(_) => panic!("{effect}"),
            }
        }
        if self.effects.capacity() > 4_096 {
            self.effects = Vec::new();
        }
    }

    fn live(&self, number: usize) -> LiveObject {
        let object = &self.objects[number];
        let reference = |&(owner, blocks): &(usize, bool)| OwnerReference {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name: name(owner),
            uid: uid(owner),
            controller: None,
            block_owner_deletion: Some(blocks),
        };
        LiveObject {
            uid: uid(number),
            resource_version: object.version.to_string(),
            being_deleted: object.being_deleted,
            finalizers: object.finalizers.iter().map(|&finalizer| finalizer.to_owned()).collect(),
            owner_references: object.owners.iter().map(reference).collect(),
        }
    }
}

fn uid(number: usize) -> String {
    format!("0a1b2c3d-0000-4000-8000-{number:012x}")
}

fn name(number: usize) -> String {
    format!("object-{number}")
}

fn number_of(target: &Target) -> usize {
    target.name.strip_prefix("object-").and_then(|number| number.parse().ok()).unwrap()
}
