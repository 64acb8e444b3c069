//! The workers: take a UID, run its attempt, send what it asks for, settle the item.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use gc_builder::Finding;
use gc_client::Client;
use gc_core::{
    DeleteAttempt, OrphanAttempt, OrphanStep, Outcome, OwnerReference, ReleaseAttempt, Reply, Request, State,
    Step,
};
use gc_graph::{Effect, Uid};
use gc_queue::Queue;
use log::{Level, debug, error, log_enabled, trace, warn};

use crate::events::Recorder;
use crate::metrics::Metrics;
use crate::reads::Reads;
use crate::requests;

/// How many dependents of one owner are orphaned at the same time. The client bounds the requests of all together;
/// the reference starts a thread of control per dependent, which costs it a gigabyte for 5,000.
const RELEASES_IN_PARALLEL: usize = 16;

/// Room for so many effects is kept from one change to the next.
const EFFECTS_KEPT: usize = 4_096;

/// What all threads share.
#[derive(Debug)]
pub struct Shared {
    /// Behind the one lock; metrics and the debug graph read it as well.
    state: Arc<Mutex<State>>,
    /// Nodes to attempt to delete.
    pub to_delete: Queue<Uid>,
    /// Owners to attempt to orphan.
    pub to_orphan: Queue<Uid>,
    /// The API server.
    pub client: Client,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Events on objects.
    pub recorder: Arc<Recorder>,
    /// What workers found, on its way to the graph.
    findings: Sender<Finding>,
    reads: Reads,
    stopping: AtomicBool,
    /// While true no worker begins an attempt.
    paused: Mutex<bool>,
    resumed: Condvar,
    start: Instant,
}

impl Shared {
    /// Queues are made by the caller, who also shows their metrics.
    pub fn new(
        state: Arc<Mutex<State>>,
        queues: (Queue<Uid>, Queue<Uid>),
        client: Client,
        metrics: Arc<Metrics>,
        recorder: Arc<Recorder>,
        findings: Sender<Finding>,
    ) -> Shared {
        let (to_delete, to_orphan) = queues;
        let stopping = AtomicBool::new(false);
        Shared {
            state,
            to_delete,
            to_orphan,
            client,
            metrics,
            recorder,
            findings,
            reads: Reads::default(),
            stopping,
            paused: Mutex::new(false),
            resumed: Condvar::new(),
            start: Instant::now(),
        }
    }

    /// The one lock. It is held for microseconds and never across a request. Whoever takes it tells the time, which is
    /// when what follows is seen.
    pub fn state(&self) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        state.tell_time(self.now());
        state
    }

    /// Puts effects where they belong.
    pub fn apply(&self, effects: &mut Vec<Effect>) {
        for effect in effects.drain(..) {
            match effect {
                Effect::AttemptToDelete(uid) => self.to_delete.add(uid),
                Effect::AttemptToDeleteRateLimited(uid) => self.to_delete.add_rate_limited(uid),
                Effect::AttemptToOrphan(uid) => self.to_orphan.add(uid),
                Effect::InvalidOwnerReference(invalid) => {
                    warn!(
                        "{} names {} {}, which lives in namespace {:?}: such a reference never reaches its owner",
                        invalid.dependent,
                        invalid.reference.kind,
                        invalid.reference.name,
                        invalid.owner_namespace
                    );
                    self.recorder.invalid_owner_reference(&invalid);
                }
                // The state keeps these to itself.
                Effect::Absent(_) => {}
            }
        }
        if effects.capacity() > EFFECTS_KEPT {
            // An owner of a hundred thousand is not paid for in memory ever after.
            *effects = Vec::new();
        }
    }

    /// From now on nothing new is begun; requests in hand are finished.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.resume();
        self.to_delete.shut_down();
        self.to_orphan.shut_down();
    }

    /// Until [`Shared::resume`], no attempt begins.
    pub fn pause(&self) {
        *self.paused.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Workers go on.
    pub fn resume(&self) {
        *self.paused.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.resumed.notify_all();
    }

    /// Whether workers are held.
    pub fn is_paused(&self) -> bool {
        *self.paused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while_paused(&self) {
        let paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.resumed.wait_while(paused, |paused| *paused));
    }

    /// Waits, unless the program stops first.
    fn rest(&self, duration: Duration) {
        let paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.resumed.wait_timeout_while(paused, duration, |_| !self.is_stopping()));
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// The time as decisions are told it.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// This moment as decisions are told it.
    pub fn time(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.start)
    }

    /// The moment that this time means.
    pub fn instant(&self, time: Duration) -> Instant {
        self.start + time
    }

    fn send(&self, request: &Request) -> Reply {
        if self.is_paused() && !matches!(request, Request::Read(_)) {
            // It was decided before, and the server that comes back may be one in which it is wrong (S7).
            return Reply::Failed("nothing is written while no attempt may begin".into());
        }
        let reply = requests::send(&self.client, &self.metrics, request);
        match (request, &reply) {
            // With its reason, by whoever knows it.
            (Request::Delete { .. }, Reply::Deleted) => {}
            (Request::Patch { target, body, .. }, Reply::Object(_)) => debug!("patched {target}: {body}"),
            _ => trace!("{request:?} -> {reply:?}"),
        }
        reply
    }
}

/// Takes the lock. The state is changed by methods that keep it whole even if a caller panics between two of them; to
/// refuse all work after one panic would lose objects.
pub fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The body of an attempt-to-delete worker.
pub fn delete_worker(shared: &Shared) {
    work(shared, &shared.to_delete, attempt_to_delete);
}

/// The body of an attempt-to-orphan worker.
pub fn orphan_worker(shared: &Shared) {
    work(shared, &shared.to_orphan, attempt_to_orphan);
}

/// Takes items until the queue is shut down. An attempt gives `None` when it was given up because the program stops.
fn work(shared: &Shared, queue: &Queue<Uid>, attempt: fn(&Shared, &Uid) -> Option<Outcome>) {
    while let Some(item) = queue.get() {
        shared.wait_while_paused();
        if shared.is_stopping() {
            return;
        }
        let uid = (*item).clone();
        // An attempt that outlives its era ends with a retry, so that this is the era of its outcome.
        let era = shared.state().era();
        // A panic fails the attempt, not the worker: the item is tried again later, and the others go on.
        let outcome = catch_unwind(AssertUnwindSafe(|| attempt(shared, &uid))).unwrap_or_else(|_| {
            error!("a fault in this program: the attempt at {uid} panicked");
            Some(Outcome::Retry("the attempt panicked".into()))
        });
        let Some(outcome) = outcome else { return };
        say(&uid, &outcome, item.num_requeues());
        match outcome {
            Outcome::Retry(_) => item.retry(),
            Outcome::RetryAfter(delay, _) => item.requeue_after(delay),
            Outcome::Busy(delay, _) => {
                item.retry_after(delay);
                // Or the server would be asked about every other object of the queue meanwhile.
                shared.rest(delay);
            }
            outcome => {
                item.finish_ok();
                settle(shared, era, outcome);
            }
        }
    }
}

/// After this many failures in a row, and each time as many again, a failing item is worth a warning.
const FAILURES_WORTH_A_WARNING: u32 = 8;

fn say(uid: &Uid, outcome: &Outcome, failures: u32) {
    match outcome {
        Outcome::Retry(reason) | Outcome::Busy(_, reason)
            if 0 < failures && failures.is_multiple_of(FAILURES_WORTH_A_WARNING) =>
        {
            warn!("{uid} has failed {failures} times and will be tried again: {reason}");
        }
        Outcome::Retry(_) | Outcome::RetryAfter(..) | Outcome::Busy(..) => debug!("{uid}: {outcome}"),
        _ => trace!("{uid}: {outcome}"),
    }
}

fn settle(shared: &Shared, era: u64, outcome: Outcome) {
    if let Some(finding) = Finding::of(era, &outcome) {
        // The loop ends before the workers do only when the program stops.
        let _ = shared.findings.send(finding);
    }
    if let Outcome::Enqueue(uids) = outcome {
        uids.into_iter().for_each(|uid| shared.to_delete.add(uid));
    }
}

fn attempt_to_delete(shared: &Shared, uid: &Uid) -> Option<Outcome> {
    let mut attempt = DeleteAttempt::new(uid.clone());
    let (mut reply, mut reading, mut has_waited) = (None, None, false);
    loop {
        let now = shared.now();
        let step = attempt.step(&mut shared.state(), now, reply.take());
        // What it found is in the state now, where those who wait for it look.
        drop(reading.take());
        let request = match step {
            Step::Done(outcome) => return Some(outcome),
            Step::Call(_) if shared.is_stopping() => return None,
            Step::Call(request) => request,
        };
        // One that has waited once asks for itself: what the other found did not settle it.
        if let Request::Read(owner) = &request
            && attempt.reads_owner()
            && !std::mem::take(&mut has_waited)
        {
            reading = shared.reads.begin(owner);
            has_waited = reading.is_none();
            if has_waited {
                continue;
            }
        }
        let answer = shared.send(&request);
        if let (Request::Delete { .. }, Reply::Deleted) = (&request, &answer) {
            say_deleted(&request, attempt.decided_by());
        }
        reply = Some(answer);
    }
}

/// So many owners of a deleted object are named in the log.
const NAMED_OWNERS_MAX: usize = 5;

/// What was deleted and why: an object is only deleted when none of its owners is left that keeps it.
fn say_deleted(request: &Request, owners: &[OwnerReference]) {
    let Request::Delete { target, uid, resource_version, policy } = request else { return };
    if !log_enabled!(Level::Debug) {
        return;
    }
    debug!(
        "deleted {target} ({policy}), uid {uid} at version {resource_version}: every owner is absent or waits for it \
         to go: {}",
        named(owners)
    );
}

fn named(owners: &[OwnerReference]) -> String {
    let first = owners.iter().take(NAMED_OWNERS_MAX);
    let names: Vec<String> =
        first.map(|owner| format!("{} {} (uid {})", owner.kind, owner.name, owner.uid)).collect();
    let more = owners.len().saturating_sub(NAMED_OWNERS_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    names.join(", ") + &more
}

fn attempt_to_orphan(shared: &Shared, uid: &Uid) -> Option<Outcome> {
    let mut attempt = OrphanAttempt::new(uid.clone());
    let mut reply = None;
    loop {
        let now = shared.now();
        let step = attempt.step(&mut shared.state(), now, reply.take());
        match step {
            OrphanStep::Done(outcome) => return Some(outcome),
            _ if shared.is_stopping() => return None,
            OrphanStep::Call(request) => reply = Some(shared.send(&request)),
            OrphanStep::Release(releases) => {
                for (uid, outcome) in release_all(shared, &releases) {
                    attempt.released(&uid, outcome);
                }
            }
        }
    }
}

/// O1: in parallel, with a bound. Whoever meets a busy server rests before the next. What is left when the program stops
/// comes back as a retry.
fn release_all(shared: &Shared, releases: &[ReleaseAttempt]) -> Vec<(Uid, Outcome)> {
    let width = releases.len().min(RELEASES_IN_PARALLEL);
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::with_capacity(releases.len()));
    let worker = || {
        while let Some(release) = releases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let uid = release.uid().clone();
            let outcome = run_release(shared, release.clone());
            if let Outcome::Busy(delay, _) = outcome {
                shared.rest(delay);
            }
            outcomes.lock().unwrap_or_else(PoisonError::into_inner).push((uid, outcome));
        }
    };
    std::thread::scope(|scope| {
        for i in 1..width {
            // A thread that cannot be started leaves its share to the others.
            let _ = std::thread::Builder::new().name(format!("orphan-{i}")).spawn_scoped(scope, worker);
        }
        worker();
    });
    outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn run_release(shared: &Shared, mut release: ReleaseAttempt) -> Outcome {
    let mut reply = None;
    loop {
        let now = shared.now();
        let step = release.step(&mut shared.state(), now, reply.take());
        match step {
            Step::Done(outcome) => return outcome,
            Step::Call(_) if shared.is_stopping() => return Outcome::Retry("the program stops".into()),
            Step::Call(request) => reply = Some(shared.send(&request)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r2_a_delete_names_the_owners_that_it_was_decided_by() {
        let owner = |n: usize| OwnerReference {
            kind: "ReplicaSet".into(),
            name: format!("web-{n}"),
            uid: format!("u{n}"),
            ..OwnerReference::default()
        };
        let owners: Vec<OwnerReference> = (0..7).map(owner).collect();
        assert_eq!(named(&owners[..2]), "ReplicaSet web-0 (uid u0), ReplicaSet web-1 (uid u1)");
        assert!(named(&owners).ends_with("ReplicaSet web-4 (uid u4) and 2 more"));
    }
}
