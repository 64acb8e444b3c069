//! The users of a scenario: threads that carry its plan out while everything around them fails.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::Api;
use crate::chaos::plan::{Family, Member, Owner};
use crate::failure::{Doing, Failure};
use crate::interrupt;

/// Users at once. More would only be load; the faults are what this is about.
const USERS: usize = 4;
/// A user who gets no answer asks again, for as long as any fault lasts and the servers need to come back.
const PATIENCE: Duration = Duration::from_secs(180);
/// Between two tries of one request.
const PAUSE: Duration = Duration::from_millis(100);
/// A family's deletions come so many families after its creation: the collector has usually seen it by then, and is at
/// work on several at once.
const LATER: usize = 2 * USERS;

/// The UID of an owner that never was.
const NOBODY: &str = "00000000-dead-4bad-8bad-000000000000";

/// What is being carried out, and how far.
pub struct Users<'p> {
    api: Api,
    namespace: String,
    families: &'p [Family],
    /// By family and place; empty until it has been created.
    uids: Vec<Mutex<Vec<String>>>,
    next: AtomicUsize,
    /// The time over which creation is spread.
    over: Duration,
}

impl<'p> Users<'p> {
    /// Users who carry out `families` in a namespace.
    pub fn new(api: &Api, namespace: &str, families: &'p [Family], over: Duration) -> Users<'p> {
        let uids = families.iter().map(|_| Mutex::default()).collect();
        Users {
            api: api.clone(),
            namespace: namespace.into(),
            families,
            uids,
            next: AtomicUsize::new(0),
            over,
        }
    }

    /// Creates and deletes everything that is planned.
    ///
    /// # Errors
    ///
    /// When a request still fails when patience ends.
    pub fn run(&self) -> Result<(), Failure> {
        let began = Instant::now();
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for number in 0..USERS {
                let user = thread::Builder::new().name(format!("user-{number}"));
                let thread = user.spawn_scoped(scope, || self.work(began));
                threads.push(thread.doing(|| "cannot start a thread".into())?);
            }
            let ended = threads.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|_| Err(Failure::new("a user's thread has panicked")))
            });
            ended.collect()
        })
    }

    /// The UID of a member, once it has been created.
    pub fn uid(&self, family: usize, index: usize) -> Option<String> {
        let uids = self.uids[family].lock().unwrap_or_else(PoisonError::into_inner);
        uids.get(index).cloned()
    }

    fn work(&self, began: Instant) -> Result<(), Failure> {
        loop {
            let turn = self.next.fetch_add(1, Ordering::Relaxed);
            if turn >= self.families.len() + LATER {
                return Ok(());
            }
            if turn < self.families.len() {
                let share = self.over.mul_f64(turn as f64 / self.families.len() as f64);
                thread::sleep((began + share).saturating_duration_since(Instant::now()));
                self.create(turn)?;
            }
            if let Some(family) = turn.checked_sub(LATER) {
                self.delete(family)?;
            }
        }
    }

    fn create(&self, family: usize) -> Result<(), Failure> {
        for member in &self.families[family] {
            let resource = member.kind.resource();
            let body = self.body(family, member);
            let collection = resource.path(&self.namespace, "");
            let path = resource.path(&self.namespace, &member.name);
            let created = patiently(|| match self.api.create(&collection, &body) {
                // An earlier try had succeeded, and only its answer was lost.
                Err(failure) if failure.to_string().contains(": 409: ") => self.api.get(&path),
                other => other.map(Some),
            })?;
            // Nothing: it was created, and collected before anybody could look.
            let uid = created.and_then(|created| created["metadata"]["uid"].as_str().map(str::to_owned));
            self.uids[family].lock().unwrap_or_else(PoisonError::into_inner).push(uid.unwrap_or_default());
        }
        Ok(())
    }

    fn delete(&self, family: usize) -> Result<(), Failure> {
        // Its creation may still be under way in another thread's hands.
        let members = &self.families[family];
        let start = Instant::now();
        while self.uid(family, members.len() - 1).is_none() {
            interrupt::check()?;
            if start.elapsed() > PATIENCE {
                return Err(Failure::new("a family has not been created in time"));
            }
            thread::sleep(PAUSE);
        }
        for member in members {
            if let Some(policy) = member.deleted {
                let path = member.kind.resource().path(&self.namespace, &member.name);
                patiently(|| self.api.delete(&path, policy))?;
            }
        }
        Ok(())
    }

    fn body(&self, family: usize, member: &Member) -> Value {
        let resource = member.kind.resource();
        let owners: Vec<Value> = member.owners.iter().map(|owner| self.reference(family, owner)).collect();
        json!({
            "apiVersion": resource.api_version(),
            "kind": resource.kind,
            "metadata": { "name": member.name, "ownerReferences": owners },
        })
    }

    /// An owner reference.
    pub fn reference(&self, family: usize, owner: &Owner) -> Value {
        match owner {
            Owner::Member { index, blocks } => {
                let member = &self.families[family][*index];
                let resource = member.kind.resource();
                json!({
                    "apiVersion": resource.api_version(),
                    "kind": resource.kind,
                    "name": member.name,
                    // One that was collected before anybody could look is gone like one that never was.
                    "uid": self.uid(family, *index).filter(|uid| !uid.is_empty()).unwrap_or_else(|| NOBODY.into()),
                    "blockOwnerDeletion": blocks,
                })
            }
            Owner::Nobody => json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": "nobody",
                "uid": NOBODY,
            }),
            Owner::OfUnknownKind => json!({
                "apiVersion": "gc-chaos-unknown.example/v1",
                "kind": "Unknown",
                "name": "somebody",
                "uid": "00000000-dead-4bad-8bad-000000000001",
            }),
        }
    }
}

/// Tries until it succeeds.
fn patiently<T>(mut request: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    let start = Instant::now();
    loop {
        interrupt::check()?;
        match request() {
            Ok(value) => return Ok(value),
            Err(failure) if start.elapsed() > PATIENCE => return Err(failure),
            Err(_) => thread::sleep(PAUSE),
        }
    }
}
