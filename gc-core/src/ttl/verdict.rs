//! What follows from an object's facts: a pure function (T2, T3).

use crate::ttl::profile::Profile;
use crate::ttl::{Facts, FinishTime, Finished, Ttl};

/// What is to become of an object. Only [`Verdict::DueAt`] ever leads to a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is being deleted already; whatever holds it, another request would not help.
    BeingDeleted,
    /// It runs, or waits to.
    NotFinished,
    /// It has the annotation that protects it.
    Protected,
    /// Nobody has set a TTL for it: it stays (T3).
    NoTtl,
    /// Its TTL, or what says whether it has finished, is not what it should be: it stays, and somebody is to hear why.
    Invalid(String),
    /// It has finished, but nobody knows when, and why: an error (T3).
    NoFinishTime(String),
    /// It goes at this time.
    DueAt {
        /// Unix milliseconds.
        due_ms: i64,
        /// When it finished, in Unix milliseconds.
        finished_ms: i64,
    },
}

impl Profile {
    /// What is to become of an object with these facts. It does not depend on the time: a due time is one whether it has
    /// come or not, and whatever the clock did in between.
    ///
    /// ```
    /// use gc_core::ttl::{End, Facts, FinishTime, Finished, Profile, Ttl, Verdict};
    ///
    /// let profile = Profile::batch_job();
    /// let mut facts = Facts {
    ///     namespace: "ns".into(), name: "pi".into(), uid: "u".into(), resource_version: "1".into(),
    ///     being_deleted: false, is_controlled: false, is_protected: false,
    ///     finished: Finished::Yes { end: End::Success, at: FinishTime::AtMs(1_000), because: "Complete".into() },
    ///     ttl: Ttl::Seconds(i64::MAX),
    /// };
    /// assert_eq!(profile.verdict(&facts), Verdict::DueAt { due_ms: i64::MAX, finished_ms: 1_000 });
    /// facts.ttl = Ttl::Absent;
    /// assert_eq!(profile.verdict(&facts), Verdict::NoTtl);
    /// ```
    pub fn verdict(&self, facts: &Facts) -> Verdict {
        if facts.being_deleted {
            return Verdict::BeingDeleted;
        }
        let (end, at) = match &facts.finished {
            Finished::No => return Verdict::NotFinished,
            Finished::Unknown(why) => return Verdict::Invalid(why.clone()),
            Finished::Yes { end, at, .. } => (*end, at),
        };
        if facts.is_protected {
            return Verdict::Protected;
        }
        let seconds = match &facts.ttl {
            Ttl::Invalid(why) => return Verdict::Invalid(why.clone()),
            Ttl::Seconds(seconds) => *seconds,
            Ttl::Absent => match self.default_seconds(facts, end) {
                Some(seconds) => seconds,
                None => return Verdict::NoTtl,
            },
        };
        match at {
            FinishTime::Unknown(why) => Verdict::NoFinishTime(why.clone()),
            FinishTime::AtMs(finished_ms) => {
                let stay_ms = seconds.max(self.min_seconds(end)).saturating_mul(1_000);
                Verdict::DueAt { due_ms: finished_ms.saturating_add(stay_ms), finished_ms: *finished_ms }
            }
        }
    }
}
