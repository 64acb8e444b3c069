//! Attempt to orphan: the dependents lose their references first, the owner its finalizer last (O1, O2).

use std::time::Duration;

use gc_graph::{Coordinate, Node, ResourceVersion, Uid};
use hashbrown::HashMap;

use crate::finalizer::{MayGo, RemoveFinalizer, busy, describe, plausible};
use crate::mistakes::Mistake;
use crate::{
    LiveObject, ORPHAN_FINALIZER, Outcome, OwnerReference, PatchKind, PatchedField, Reply, Request, State,
    Step, Target, Why, patch,
};

/// So many dependents are given out to be released at once. Each takes some hundred bytes while it is, those that have
/// to wait for their turn take a few: an owner may have a hundred thousand.
const RELEASES_MAX: usize = 1_000;
/// How often one attempt looks for dependents that appeared while it released others, before the queue spaces it out.
const ROUNDS_MAX: u32 = 10;
/// Why an owner waits to which there is nothing to be done.
const UNHEARD: &str = "a watch is not open, and may have more dependents to show";
/// A dependent that meets this many conflicts in a row fails this attempt at its owner.
const CONFLICTS_MAX: u32 = 10;

/// What an orphan attempt wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrphanStep {
    /// Run each of these (a thousand at most, more may follow) to its end, in any order and in parallel with a bound of
    /// the caller's, and give each outcome to [`OrphanAttempt::released`]; then step again without a reply.
    Release(Vec<ReleaseAttempt>),
    /// Send this request and step again with its reply.
    Call(Request),
    /// The attempt is over.
    Done(Outcome),
}

/// One attempt at one owner that is being deleted with the finalizer `orphan`.
#[derive(Clone, Debug)]
pub struct OrphanAttempt {
    uid: Uid,
    rounds: u32,
    /// Dependents that were released, with the version that the graph held when they were asked to.
    released: HashMap<Uid, ResourceVersion>,
    /// The same for those that are being released.
    asked: HashMap<Uid, ResourceVersion>,
    /// Those of this round whose turn is to come.
    to_come: std::vec::IntoIter<Uid>,
    failures: u32,
    first_failure: Option<Outcome>,
    /// The longest wait that the server asked for.
    busy_for: Option<Duration>,
    removal: Option<RemoveFinalizer>,
    /// When the request for it that is under way was given out.
    asked_at: Duration,
}

impl OrphanAttempt {
    /// An attempt at the owner with this UID.
    pub fn new(uid: Uid) -> OrphanAttempt {
        OrphanAttempt {
            uid,
            rounds: 0,
            released: HashMap::new(),
            asked: HashMap::new(),
            to_come: Vec::new().into_iter(),
            failures: 0,
            first_failure: None,
            busy_for: None,
            removal: None,
            asked_at: Duration::ZERO,
        }
    }

    /// The owner's UID.
    pub fn uid(&self) -> &Uid {
        &self.uid
    }

    /// Notes how the release of one dependent ended.
    pub fn released(&mut self, dependent: &Uid, outcome: Outcome) {
        let asked = self.asked.remove_entry(dependent);
        match outcome {
            Outcome::Forget(_) => self.released.extend(asked),
            failure => {
                self.failures += 1;
                if let Outcome::Busy(delay, _) = failure {
                    self.busy_for = self.busy_for.max(Some(delay));
                }
                // One whose kind is not served must not keep the others, which may succeed the next time, waiting for it.
                if self.first_failure.is_none()
                    || matches!(self.first_failure, Some(Outcome::WaitForKind { .. }))
                {
                    self.first_failure = Some(failure);
                }
            }
        }
    }

    /// Step with `None` first and after each release, and with the reply after each call.
    pub fn step(&mut self, state: &mut State, now: Duration, reply: Option<Reply>) -> OrphanStep {
        state.note_reply(reply.as_ref());
        let releases = self.next_releases(state);
        if !releases.is_empty() {
            return OrphanStep::Release(releases);
        }
        if let Some(failure) = self.first_failure.take() {
            // O2: the finalizer stays until every dependent has been released.
            return OrphanStep::Done(match failure {
                Outcome::WaitForKind { api_version, kind } if self.waits_for(state, &api_version, &kind) => {
                    Outcome::WaitForKind { api_version, kind }
                }
                wait @ Outcome::RetryAfter(..) => wait,
                other => {
                    let n = self.failures;
                    let reason = format!("{n} dependents not orphaned; the first {other}");
                    match self.busy_for {
                        Some(delay) => Outcome::Busy(delay, reason),
                        None => Outcome::Retry(reason),
                    }
                }
            });
        }
        if let Some(outcome) = busy(reply.as_ref()) {
            return OrphanStep::Done(outcome);
        }
        if let Some(mut removal) = self.removal.take() {
            let asked_at = std::mem::replace(&mut self.asked_at, now);
            let may_go = |state: &mut State| self.may_lose_finalizer(state, now);
            let step = removal.step(state, (now, asked_at), may_go, reply);
            self.removal = Some(removal);
            return wrap(step);
        }
        let owner = match state.graph().get(&self.uid) {
            None => Err(Why::LeftGraph),
            Some(owner) if owner.is_orphaning() => Ok(owner.coordinate()),
            Some(_) => Err(Why::BeingDeleted),
        };
        let owner = match owner {
            Ok(owner) => owner,
            Err(why) => {
                state.is_not_orphaning(&self.uid);
                return done(why);
            }
        };
        if self.has_late_dependents(state) {
            return self.release(state, &owner);
        }
        if let Some(delay) = state.orphaning_still_waits(&self.uid, now) {
            return OrphanStep::Done(Outcome::RetryAfter(delay, format!("{owner} stays: {UNHEARD}")));
        }
        let Some(mut removal) = RemoveFinalizer::new(state, &owner, ORPHAN_FINALIZER) else {
            state.park(&self.uid, &owner.api_version, &owner.kind);
            let Coordinate { api_version, kind, .. } = owner;
            return OrphanStep::Done(Outcome::WaitForKind { api_version, kind });
        };
        self.asked_at = now;
        let step = removal.step(state, (now, now), |_| MayGo::Yes, None);
        self.removal = Some(removal);
        wrap(step)
    }

    /// Another round: what is late is given out, a part at a time.
    fn release(&mut self, state: &State, owner: &Coordinate) -> OrphanStep {
        self.rounds += 1;
        if ROUNDS_MAX < self.rounds {
            let reason = format!("new dependents of {owner} keep appearing while they are orphaned");
            return OrphanStep::Done(Outcome::Retry(reason));
        }
        let late: Vec<Uid> = self.dependents_to_release(state).map(Node::uid).collect();
        self.to_come = late.into_iter();
        OrphanStep::Release(self.next_releases(state))
    }

    /// The next of this round; one that has left the graph meanwhile needs nothing.
    fn next_releases(&mut self, state: &State) -> Vec<ReleaseAttempt> {
        let mut releases = Vec::new();
        while releases.len() < RELEASES_MAX
            && let Some(uid) = self.to_come.next()
        {
            let Some(dependent) = state.graph().get(&uid) else { continue };
            self.asked.insert(uid, dependent.version());
            releases.push(ReleaseAttempt::new(state, dependent.coordinate(), self.uid.clone()));
        }
        releases
    }

    /// O2. The owner has just been read, and the patch carries its UID and that version; these do not speak of dependents,
    /// so that all of them must have been released, those included that a watch has still to show.
    fn may_lose_finalizer(&self, state: &mut State, now: Duration) -> MayGo {
        if self.has_late_dependents(state) && !state.makes(Mistake::DependentsNotAskedAgain) {
            return MayGo::No("a new dependent appeared");
        }
        state.orphaning_waits(&self.uid, now).map_or(MayGo::Yes, |delay| MayGo::NotYet(delay, UNHEARD))
    }

    fn has_late_dependents(&self, state: &State) -> bool {
        self.dependents_to_release(state).next().is_some()
    }

    /// Whether a dependent of a kind that is not served keeps it waiting. While others were released, the kind may have
    /// come, and its objects may have gone; then nothing would wake it.
    fn waits_for(&self, state: &State, api_version: &str, kind: &str) -> bool {
        let is_of_it = |d: Node<'_>| d.api_version() == api_version && d.kind() == kind;
        state.kinds().resolve(api_version, kind).is_none() && self.dependents_to_release(state).any(is_of_it)
    }

    /// The dependents that the graph knows and that this attempt has not released: the graph may not have seen yet
    /// what we wrote. One that it has seen anew since, and that names the owner still, was given the reference again.
    fn dependents_to_release<'s>(&self, state: &'s State) -> impl Iterator<Item = Node<'s>> {
        let is_released = |d: &Node<'_>| self.released.get(&d.uid()).is_some_and(|at| *at == d.version());
        let owner = state.graph().get(&self.uid);
        owner.into_iter().flat_map(Node::dependents).filter(move |d| !is_released(d))
    }
}

fn done(why: Why) -> OrphanStep {
    OrphanStep::Done(Outcome::Forget(why))
}

fn wrap(step: Step) -> OrphanStep {
    match step {
        Step::Call(request) => OrphanStep::Call(request),
        Step::Done(outcome) => OrphanStep::Done(outcome),
    }
}

/// Takes the references to one owner from one dependent (O1, D12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseAttempt {
    dependent: Coordinate,
    owner: Uid,
    target: Option<Target>,
    conflicts: u32,
    asked: Asked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    Strategic,
    Read,
    Merge,
}

impl ReleaseAttempt {
    fn new(state: &State, dependent: Coordinate, owner: Uid) -> ReleaseAttempt {
        let target = state.target(&dependent);
        ReleaseAttempt { dependent, owner, target, conflicts: 0, asked: Asked::Nothing }
    }

    /// The dependent's UID.
    pub fn uid(&self) -> &Uid {
        &self.dependent.uid
    }

    /// Steps as [`crate::DeleteAttempt::step`] does. Any [`Outcome::Forget`] is a success.
    pub fn step(&mut self, state: &mut State, now: Duration, reply: Option<Reply>) -> Step {
        state.note_reply(reply.as_ref());
        let Some(target) = self.target.clone() else {
            let Coordinate { api_version, kind, .. } = self.dependent.clone();
            // It is the owner that waits: the dependent needs nothing once it is served again.
            state.park(&self.owner, &api_version, &kind);
            return Step::Done(Outcome::WaitForKind { api_version, kind });
        };
        if let Some(outcome) = busy(reply.as_ref()) {
            return Step::Done(outcome);
        }
        match (self.asked, plausible(reply)) {
            (_, Some(Reply::NotFound { proof: true })) => self.gone(state, &target, now),
            (Asked::Nothing, _) if state.takes_strategic_merge(&target.resource) => self.strategic(target),
            (Asked::Nothing, _) => self.read(target),
            (Asked::Strategic | Asked::Merge, Some(Reply::Object(_))) => {
                Step::Done(Outcome::Forget(Why::ReferencesRemoved(1)))
            }
            (Asked::Strategic, Some(Reply::UnsupportedMediaType)) => {
                state.note_json_merge_only(&target.resource);
                self.read(target)
            }
            // The UID guard refuses with 409 or 422 when the name belongs to another object; the read tells.
            (Asked::Strategic | Asked::Merge, Some(Reply::Conflict | Reply::Invalid(_)))
                if self.conflicts < CONFLICTS_MAX =>
            {
                self.conflicts += 1;
                self.read(target)
            }
            (Asked::Read, Some(Reply::Object(live))) => self.merge(target, &live),
            (_, reply) => Step::Done(Outcome::Retry(format!("{target}: {}", describe(reply)))),
        }
    }

    /// The one write without a version, since nothing was read: taking references to this owner's UID from the object
    /// with this UID is right at every version of it, and the server merges it with what others write at the same time.
    fn strategic(&mut self, target: Target) -> Step {
        self.asked = Asked::Strategic;
        let (dependent, owner) = (self.dependent.uid.to_string(), self.owner.to_string());
        let body = patch::strategic_remove(&dependent, None, &[&owner]);
        Step::Call(Request::Patch {
            target,
            change: PatchedField::OwnerReferences,
            kind: PatchKind::StrategicMerge,
            body,
        })
    }

    /// Not found is success (O1), but for a dependent that the graph holds: then the watch or another read has to agree
    /// before its owner may go, or it would name an owner that is gone, and be deleted (D16).
    fn gone(&self, state: &mut State, target: &Target, now: Duration) -> Step {
        match state.gone(&self.dependent, target, now, now) {
            wait @ Outcome::RetryAfter(..) => Step::Done(wait),
            _ => Step::Done(Outcome::Forget(Why::Gone)),
        }
    }

    fn read(&mut self, target: Target) -> Step {
        self.asked = Asked::Read;
        Step::Call(Request::Read(target))
    }

    fn merge(&mut self, target: Target, live: &LiveObject) -> Step {
        if Uid::new(&live.uid) != self.dependent.uid {
            return Step::Done(Outcome::Forget(Why::Gone));
        }
        let remain: Vec<OwnerReference> =
            live.owner_references.iter().filter(|r| Uid::new(&r.uid) != self.owner).cloned().collect();
        if remain.len() == live.owner_references.len() {
            return Step::Done(Outcome::Forget(Why::ReferencesRemoved(0)));
        }
        if live.resource_version.is_empty() {
            return Step::Done(Outcome::Retry(format!(
                "{target} was read without a version: never changed so"
            )));
        }
        self.asked = Asked::Merge;
        let body = patch::merge_references(live, &remain);
        Step::Call(Request::Patch {
            target,
            change: PatchedField::OwnerReferences,
            kind: PatchKind::JsonMerge,
            body,
        })
    }
}
