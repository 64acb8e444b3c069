//! Three stages (T2): the TTL as last observed, the TTL as read afresh, and a delete of exactly what was read.

use std::sync::Arc;
use std::time::Duration;

use gc_graph::Uid;

use crate::ttl::{Due, Facts, Profile, Verdict};
use crate::{Propagation, RETRY_AFTER_MAX, Refusal, Resource, Target};

/// How often one attempt decides afresh because the object changed under it, before it backs off: somebody writes faster
/// than we read.
const DECISIONS_MAX: u32 = 4;
/// A read that took longer than this is made again: a server that is restored from a backup is away for longer, and may
/// give the version that was read to another state of the object (S7; the same as a proof of absence lasts).
const READ_AGE_MAX_MS: i64 = 5_000;
/// What a 429 without the header `Retry-After` asks for: the least that API servers do.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

/// One attempt at one job. Step it with `None` first, then with the reply to each request, until it is done.
///
/// The example in the [module](crate::ttl) shows one from end to end.
#[derive(Clone, Debug)]
pub struct Attempt {
    profile: Arc<Profile>,
    target: Target,
    due: Due,
    stage: Stage,
    decisions: u32,
    /// When the request under way was given out.
    asked_ms: i64,
}

#[derive(Clone, Debug)]
enum Stage {
    Start,
    Read,
    /// By this due time, in Unix milliseconds.
    Delete(i64),
    Done(Outcome),
}

/// What an attempt wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this request, once, and step again with its reply.
    Call(Request),
    /// The attempt is over; stepping it again gives the same outcome.
    Done(Outcome),
}

/// One request to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read the object, with a quorum (no `resourceVersion` parameter): its metadata and [`Profile::paths`].
    Read(Target),
    /// Delete the object if it still has this UID and this resourceVersion. Both are always sent.
    Delete {
        /// What to delete.
        target: Target,
        /// Precondition.
        uid: Uid,
        /// Precondition: the version on which the decision was made.
        resource_version: String,
        /// Always explicit.
        policy: Propagation,
    },
}

/// The API server's answer, reduced to what decisions depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The object as read.
    Object {
        /// What it says.
        facts: Box<Facts>,
        /// The server's own time, in Unix milliseconds, as its answer has it (the header `Date`), where it has: if our
        /// clock is ahead of it, nothing goes before its time by the server's.
        server_ms: Option<i64>,
    },
    /// The deletion was accepted; the object is gone or is being deleted.
    Deleted,
    /// 404 by a Status that names the object. A 404 of a path that is not served is a [`Reply::Failed`].
    NotFound,
    /// 409: the object is not the one, or not at the version, that was to be deleted.
    Conflict,
    /// 429: the server has too much to do and has not acted.
    TooManyRequests {
        /// For how long it is not to be asked again.
        retry_after: Duration,
        /// The server's words.
        message: String,
    },
    /// 403, 422 and any other 4xx: trying again soon would not help.
    Refused {
        /// The HTTP status code.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// A 5xx, a time-out, a broken connection, an answer that makes no sense. Proves nothing.
    Failed(String),
}

impl Reply {
    /// The reply that an error answer to a request about `target` is.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use gc_core::{Refusal, Resource, Target};
    /// use gc_core::ttl::Reply;
    ///
    /// let jobs = Resource {
    ///     group: "batch".into(), version: "v1".into(), resource: "jobs".into(), kind: "Job".into(), namespaced: true,
    /// };
    /// let target = Target { resource: Arc::new(jobs), namespace: "ns".into(), name: "pi".into() };
    /// let forbidden = Refusal { code: 403, message: "no right to delete jobs", ..Refusal::default() };
    /// let message = "no right to delete jobs".into();
    /// assert_eq!(Reply::refused(&target, &forbidden), Reply::Refused { code: 403, message });
    /// ```
    pub fn refused(target: &Target, refusal: &Refusal<'_>) -> Reply {
        let message = || match refusal.message {
            "" => format!("the server answered {}", refusal.code),
            message => message.to_owned(),
        };
        match refusal.code {
            404 if refusal.names(target) => Reply::NotFound,
            404 => Reply::Failed(
                "404 without naming the object: the path is not served, which proves nothing".into(),
            ),
            409 => Reply::Conflict,
            429 => Reply::TooManyRequests {
                retry_after: refusal.retry_after.unwrap_or(RETRY_AFTER_DEFAULT).min(RETRY_AFTER_MAX),
                message: message(),
            },
            // 401 is a credential that is about to be renewed, 408 a time-out.
            code if (400..500).contains(&code) && code != 401 && code != 408 => {
                Reply::Refused { code, message: message() }
            }
            _ => Reply::Failed(message()),
        }
    }
}

/// How an attempt ended; [`Engine::finish`](crate::ttl::Engine::finish) knows what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server took the deletion.
    Deleted {
        /// When the job was due by what was read last, in Unix milliseconds.
        due_ms: i64,
        /// How much later that was: what the reference's metric observes
        /// (kubernetes/enhancements#2246).
        lateness_ms: i64,
    },
    /// It is not due, or not any more: its TTL was raised, or a clock was set back.
    NotDue {
        /// When it is due, in Unix milliseconds.
        due_ms: i64,
        /// When to look at it again: later than `due_ms` by as much as our clock is ahead of the server's.
        again_ms: i64,
        /// By how much our clock is ahead of the server's, if that is why.
        ahead_ms: Option<i64>,
    },
    /// It waits for nothing any more: its TTL was taken away or is wrong, it runs again, or it is protected.
    NotWaiting(Verdict),
    /// Somebody deletes it already.
    BeingDeleted,
    /// It is gone, which is what was wanted (T3).
    Gone(Gone),
    /// It has finished, but does not say when: why (T3).
    NoFinishTime(String),
    /// The server does not let us.
    Refused {
        /// The HTTP status code.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// It did not work this time: why.
    Failed(String),
    /// The server has too much to do.
    Busy {
        /// For how long it is to be asked for nothing.
        retry_after: Duration,
        /// The server's words.
        message: String,
    },
}

/// In which way an object is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// The server says that it does not exist.
    NotFound,
    /// Another object has taken over its name; that one is on its own watch.
    Replaced,
}

impl Outcome {
    /// In the form of a metric's label.
    pub fn as_str(&self) -> &'static str {
        match self {
            Outcome::Deleted { .. } => "deleted",
            Outcome::NotDue { .. } => "not_due",
            Outcome::NotWaiting(_) => "not_waiting",
            Outcome::BeingDeleted => "being_deleted",
            Outcome::Gone(_) => "gone",
            Outcome::NoFinishTime(_) => "no_finish_time",
            Outcome::Refused { .. } => "refused",
            Outcome::Failed(_) => "failed",
            Outcome::Busy { .. } => "busy",
        }
    }
}

impl Attempt {
    /// An attempt at a job that is due. `resource` is what serves the profile's kind.
    pub fn new(profile: Arc<Profile>, resource: Arc<Resource>, due: Due) -> Attempt {
        let target = Target { resource, namespace: due.namespace.clone(), name: due.name.clone() };
        Attempt { profile, target, due, stage: Stage::Start, decisions: 0, asked_ms: 0 }
    }

    /// What it is an attempt at.
    pub fn due(&self) -> &Due {
        &self.due
    }

    /// Takes the reply to the last request and gives the next one, or the outcome. `now_ms` is the wall clock, in Unix
    /// milliseconds.
    pub fn step(&mut self, now_ms: i64, reply: Option<Reply>) -> Step {
        let stage = std::mem::replace(&mut self.stage, Stage::Start);
        let step = match (stage, reply) {
            (Stage::Done(outcome), _) => Step::Done(outcome),
            (Stage::Start, _) => self.start(now_ms),
            (Stage::Read, Some(Reply::Object { facts, server_ms })) => self.read(now_ms, *facts, server_ms),
            (Stage::Delete(due_ms), Some(Reply::Deleted)) => {
                let lateness_ms = now_ms.saturating_sub(due_ms).max(0);
                Step::Done(Outcome::Deleted { due_ms, lateness_ms })
            }
            (Stage::Delete(_), Some(Reply::Conflict)) => self.ask(),
            (Stage::Read | Stage::Delete(_), reply) => Step::Done(failure(reply)),
        };
        match &step {
            Step::Done(outcome) => self.stage = Stage::Done(outcome.clone()),
            Step::Call(_) => self.asked_ms = now_ms,
        }
        step
    }

    /// First stage: as last observed. The clock may have been set back since it was given out.
    fn start(&mut self, now_ms: i64) -> Step {
        match self.due.due_ms {
            Some(due_ms) if now_ms < due_ms => {
                Step::Done(Outcome::NotDue { due_ms, again_ms: due_ms, ahead_ms: None })
            }
            _ => self.ask(),
        }
    }

    fn ask(&mut self) -> Step {
        self.decisions += 1;
        if DECISIONS_MAX < self.decisions {
            let why = "somebody else keeps writing to it, or answers take too long";
            return Step::Done(Outcome::Failed(why.into()));
        }
        self.stage = Stage::Read;
        Step::Call(Request::Read(self.target.clone()))
    }

    /// Second stage: as read afresh.
    fn read(&mut self, now_ms: i64, facts: Facts, server_ms: Option<i64>) -> Step {
        if facts.uid.is_empty() || facts.name != self.due.name || facts.namespace != self.due.namespace {
            // A proxy answered in JSON of its own.
            return Step::Done(Outcome::Failed("the answer is not the object that was asked for".into()));
        }
        if facts.uid != self.due.uid {
            return Step::Done(Outcome::Gone(Gone::Replaced));
        }
        let due_ms = match self.profile.verdict(&facts) {
            Verdict::DueAt { due_ms, .. } => due_ms,
            Verdict::BeingDeleted => return Step::Done(Outcome::BeingDeleted),
            Verdict::NoFinishTime(why) => return Step::Done(Outcome::NoFinishTime(why)),
            other @ (Verdict::NotFinished | Verdict::Protected | Verdict::NoTtl | Verdict::Invalid(_)) => {
                return Step::Done(Outcome::NotWaiting(other));
            }
        };
        // Whichever clock is behind.
        let by_ms = server_ms.map_or(now_ms, |server_ms| server_ms.min(now_ms));
        if by_ms < due_ms {
            let ahead_ms = now_ms.saturating_sub(by_ms);
            let again_ms = due_ms.saturating_add(ahead_ms);
            let ahead_ms = (0 < ahead_ms).then_some(ahead_ms);
            return Step::Done(Outcome::NotDue { due_ms, again_ms, ahead_ms });
        }
        // Also after a clock has jumped, which costs a read.
        if !(0..=READ_AGE_MAX_MS).contains(&now_ms.saturating_sub(self.asked_ms)) {
            return self.ask();
        }
        self.delete(due_ms, facts)
    }

    /// Third stage: exactly what was read. The only place that makes deletes for TTLs.
    fn delete(&mut self, due_ms: i64, facts: Facts) -> Step {
        if facts.resource_version.is_empty() {
            return Step::Done(Outcome::Failed("it was read without a version: never deleted so".into()));
        }
        self.stage = Stage::Delete(due_ms);
        Step::Call(Request::Delete {
            target: self.target.clone(),
            uid: facts.uid,
            resource_version: facts.resource_version,
            policy: self.profile.propagation(),
        })
    }
}

/// What an answer means that is not the one that was hoped for, at whichever stage.
fn failure(reply: Option<Reply>) -> Outcome {
    match reply {
        Some(Reply::NotFound) => Outcome::Gone(Gone::NotFound),
        Some(Reply::TooManyRequests { retry_after, message }) => Outcome::Busy { retry_after, message },
        Some(Reply::Refused { code, message }) => Outcome::Refused { code, message },
        Some(Reply::Failed(why)) => Outcome::Failed(why),
        Some(Reply::Object { .. } | Reply::Deleted | Reply::Conflict) => {
            Outcome::Failed("an answer that does not fit the request".into())
        }
        None => Outcome::Failed("no answer".into()),
    }
}
