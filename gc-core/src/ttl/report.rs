//! What a person should hear about, as plain data: the caller makes events and log lines of it.

use std::collections::VecDeque;
use std::hash::BuildHasher as _;

use gc_graph::Uid;
use hashbrown::{DefaultHashBuilder, HashSet};

use crate::ttl::ProfileId;

/// So many reports are remembered, at 20 bytes each, so that none is made twice. When more objects are at fault, the
/// oldest may be told again.
const REMEMBERED_MAX: usize = 10_000;

/// Something about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which profile the object belongs to.
    pub profile: ProfileId,
    /// Empty for a cluster-scoped object.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: Uid,
    /// What it is, in one word, as an event has it.
    pub reason: Reason,
    /// One line for a person.
    pub message: String,
}

/// The reasons of events; all are warnings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The TTL is not a whole number of seconds from 0, or a field is unreadable: it is ignored, and the object stays.
    InvalidTtl,
    /// It has finished, but does not say when (T3).
    NoFinishTime,
    /// It finished in the future: clocks differ (T3). It waits.
    FinishedInFuture,
    /// The time at which it finished has moved, and its deadline with it (volcano-sh/volcano#3715).
    FinishTimeMoved,
    /// The server does not let us delete it.
    DeleteRefused,
    /// Our clock is ahead of the server's: nothing goes before its time by the server's.
    ClockSkew,
    /// More jobs wait than there is room for; this one is looked at again with the next list.
    TooManyJobs,
}

impl Reason {
    /// As an event has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::InvalidTtl => "InvalidTTL",
            Reason::NoFinishTime => "NoFinishTime",
            Reason::FinishedInFuture => "FinishedInFuture",
            Reason::FinishTimeMoved => "FinishTimeMoved",
            Reason::DeleteRefused => "TTLDeleteRefused",
            Reason::ClockSkew => "ClockSkew",
            Reason::TooManyJobs => "TooManyJobs",
        }
    }

    /// Whether it is a matter of the whole cluster, so that one object is enough to say it.
    fn is_general(self) -> bool {
        matches!(self, Reason::ClockSkew | Reason::TooManyJobs)
    }
}

/// Which reports were made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    known: HashSet<u64>,
    order: VecDeque<u64>,
    hasher: DefaultHashBuilder,
}

impl Told {
    /// Whether this is told for the first time, as far as is remembered. A TTL that is wrong in another way is another
    /// matter; what a server says in refusing may differ each time, and is not.
    pub(crate) fn is_news(&mut self, report: &Report) -> bool {
        let Report { profile, uid, reason, .. } = report;
        let detail = (*reason == Reason::InvalidTtl).then_some(&report.message);
        let of = (!reason.is_general()).then_some(uid);
        let key = self.hasher.hash_one((profile, of, reason, detail));
        if !self.known.insert(key) {
            return false;
        }
        self.order.push_back(key);
        if REMEMBERED_MAX < self.order.len()
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}
