//! Removing one of our two finalizers from an owner (D13).

use std::time::Duration;

use gc_graph::{Coordinate, Uid};

use crate::{
    ORPHAN_FINALIZER, Outcome, PatchKind, PatchedField, Reply, Request, State, Step, Target, Why, patch,
};

/// After this many conflicts in a row the item goes back to the queue: somebody writes faster than we read.
const CONFLICTS_MAX: u32 = 10;

/// Reads the owner, and patches the finalizers that remain onto the version just read.
#[derive(Clone, Debug)]
pub(crate) struct RemoveFinalizer {
    owner: Coordinate,
    target: Target,
    finalizer: &'static str,
    conflicts: u32,
    asked: Asked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    Read,
    Patch,
}

/// Whether a finalizer may go, by what is known just before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayGo {
    Yes,
    /// Not in this attempt, for this reason.
    No(&'static str),
    /// Not before this delay.
    NotYet(Duration, &'static str),
}

impl RemoveFinalizer {
    /// `None` when the kind does not resolve.
    pub(crate) fn new(state: &State, owner: &Coordinate, finalizer: &'static str) -> Option<RemoveFinalizer> {
        let target = state.target(owner)?;
        Some(RemoveFinalizer { owner: owner.clone(), target, finalizer, conflicts: 0, asked: Asked::Nothing })
    }

    /// The first step has no reply. `may_go` is asked before each patch, once the owner has been read, whether the
    /// finalizer may still go, by what is known now.
    pub(crate) fn step(
        &mut self,
        state: &mut State,
        (now, asked_at): (Duration, Duration),
        may_go: impl FnOnce(&mut State) -> MayGo,
        reply: Option<Reply>,
    ) -> Step {
        match (self.asked, plausible(reply)) {
            (_, Some(Reply::NotFound { proof: true })) => {
                Step::Done(state.gone(&self.owner, &self.target, now, asked_at))
            }
            (_, Some(Reply::NotFound { proof: false })) => self.retry("the path is not served"),
            (Asked::Nothing, _) => self.read(),
            (Asked::Read, Some(Reply::Object(live))) => {
                if Uid::new(&live.uid) != self.owner.uid {
                    return Step::Done(Outcome::Forget(Why::Gone));
                }
                // A finalizer is ours to take only from an object that is being deleted.
                if !live.has_finalizer(self.finalizer) || !live.being_deleted {
                    return Step::Done(Outcome::Forget(Why::FinalizerRemoved(self.finalizer)));
                }
                if live.resource_version.is_empty() {
                    return self.retry("it was read without a version");
                }
                match may_go(state) {
                    MayGo::Yes => {}
                    MayGo::No(reason) => return self.retry(reason),
                    MayGo::NotYet(delay, reason) => {
                        return Step::Done(Outcome::RetryAfter(delay, self.not_removed(reason)));
                    }
                }
                if self.finalizer == ORPHAN_FINALIZER {
                    state.owner_is_let_go(&self.owner, &live.resource_version);
                }
                self.asked = Asked::Patch;
                Step::Call(Request::Patch {
                    target: self.target.clone(),
                    change: PatchedField::Finalizers,
                    kind: PatchKind::JsonMerge,
                    body: patch::merge_finalizers(&live, self.finalizer),
                })
            }
            (Asked::Patch, Some(Reply::Object(_) | Reply::Deleted)) => {
                Step::Done(Outcome::Forget(Why::FinalizerRemoved(self.finalizer)))
            }
            (Asked::Patch, Some(Reply::Conflict | Reply::Invalid(_))) if self.conflicts < CONFLICTS_MAX => {
                self.conflicts += 1;
                self.read()
            }
            (_, reply) => self.retry(&describe(reply)),
        }
    }

    fn read(&mut self) -> Step {
        self.asked = Asked::Read;
        Step::Call(Request::Read(self.target.clone()))
    }

    fn retry(&self, reason: &str) -> Step {
        Step::Done(Outcome::Retry(self.not_removed(reason)))
    }

    fn not_removed(&self, reason: &str) -> String {
        format!("finalizer {} of {} not removed: {reason}", self.finalizer, self.target)
    }
}

/// An object without a UID is none: a proxy answered in JSON of its own, or an aggregated server gives no UIDs. It must
/// not be taken for another object under that name, which would be a proof of absence (D16).
pub(crate) fn plausible(reply: Option<Reply>) -> Option<Reply> {
    match reply {
        Some(Reply::Object(live)) if live.uid.is_empty() => {
            Some(Reply::Failed("the answer is an object without a UID, which proves nothing".into()))
        }
        reply => reply,
    }
}

/// The outcome of any attempt that a busy server has answered: it does not matter what had been asked.
pub(crate) fn busy(reply: Option<&Reply>) -> Option<Outcome> {
    match reply {
        Some(Reply::TooManyRequests { retry_after, message }) => {
            Some(Outcome::Busy(*retry_after, message.clone()))
        }
        _ => None,
    }
}

/// What an unexpected reply says, for a retry's reason.
pub(crate) fn describe(reply: Option<Reply>) -> String {
    match reply {
        Some(Reply::Failed(reason) | Reply::TooManyRequests { message: reason, .. }) => reason,
        Some(Reply::Invalid(reason)) => format!("the server refused the change: {reason}"),
        Some(Reply::Conflict) => "somebody else keeps writing to it".into(),
        Some(Reply::UnsupportedMediaType) => "the server does not take this patch format".into(),
        Some(Reply::NotFound { proof: true }) => "not found".into(),
        Some(Reply::NotFound { proof: false }) => {
            "404 without naming the object: the path is not served, which proves nothing".into()
        }
        Some(Reply::Object(_) | Reply::Deleted) => "an answer that does not fit the request".into(),
        None => "no answer".into(),
    }
}
