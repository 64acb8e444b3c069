#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod circle;
mod delete;
mod finalizer;
mod hearing;
mod kinds;
mod memory;
mod mistakes;
mod orphan;
pub mod owner;
mod patch;
mod request;
mod state;
pub mod ttl;
mod verdict;

pub use delete::DeleteAttempt;
pub use kinds::Kinds;
pub use memory::Coordinates;
#[cfg(feature = "mistakes")]
pub use mistakes::Mistake;
pub use orphan::{OrphanAttempt, OrphanStep, ReleaseAttempt};
pub use request::{
    LiveObject, OwnerReference, PatchKind, PatchedField, Propagation, RETRY_AFTER_MAX, Refusal, Reply,
    Request, Resource, Target,
};
pub use state::{Options, State};
pub use verdict::{Class, Facts, Verdict, verdict};

use std::fmt;
use std::time::Duration;

use gc_graph::{Coordinate, Uid};

/// The finalizer that the API server adds for a foreground deletion.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";
/// The finalizer that the API server adds for an orphaning deletion.
pub const ORPHAN_FINALIZER: &str = "orphan";

/// What an attempt wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this request and step again with its reply.
    Call(Request),
    /// The attempt is over; stepping it again gives the same outcome.
    Done(Outcome),
}

/// How an attempt ended, and with that what the caller does with the queue item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing more to do until something changes (D17): forget the item's failures.
    Forget(Why),
    /// These nodes go to attempt-to-delete; the item itself is forgotten (D3).
    Enqueue(Vec<Uid>),
    /// The item's coordinate does not exist, as a read says that was asked for at this time: hand both to
    /// [`State::virtual_delete`], in the order of the other changes (G9). The item is forgotten.
    VirtuallyDeleted(Coordinate, Duration),
    /// The item is virtual and its coordinate is one that no object can have, or of a kind that nothing serves while
    /// dependents name it by others that can be asked for: hand it to [`State::reconsider`]. The item is forgotten.
    Impossible(Coordinate),
    /// Put the item back with exponential back-off (D14).
    Retry(String),
    /// Put the item back after this delay; evidence is to be confirmed then (D16).
    RetryAfter(Duration, String),
    /// The server has too much to do and asked not to be bothered for this long: put the item back with exponential
    /// back-off, but not before that, and ask for nothing else meanwhile. The next attempt decides afresh: what this one
    /// would have written may be wrong by then.
    Busy(Duration, String),
    /// No resource serves this kind (yet): the item has been parked in the [`State`] and
    /// [`State::set_kinds`] wakes it (D7, D17). The item is forgotten.
    WaitForKind {
        /// For example `example.com/v1`.
        api_version: String,
        /// For example `Widget`.
        kind: String,
    },
}

/// Why an item needs nothing more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// D1: it has left the graph, or was virtual and has since been observed.
    LeftGraph,
    /// D1: it is being deleted and waits for nothing of ours.
    BeingDeleted,
    /// D4: it has no owners.
    NoOwners,
    /// D8, D17: an owner lives, and no reference needs to go.
    OwnerAlive,
    /// D8, O1: it lives; this many references were removed.
    ReferencesRemoved(usize),
    /// D3: it waited for itself in a circle; this many references do not block any more.
    ReferencesUnblocked(usize),
    /// D9, D10: the API server accepted the deletion.
    Deleted(Propagation),
    /// D13: the finalizer is removed, or was already.
    FinalizerRemoved(&'static str),
    /// D3: blocking dependents are all on their way.
    WaitsForDependents,
    /// D6: a cluster-scoped item names an owner of a namespaced kind, or a reference has a name that no object can
    /// have; neither can ever be resolved.
    UnresolvableOwner,
    /// The object is gone.
    Gone,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Forget(why) => why.fmt(f),
            Outcome::Enqueue(uids) => write!(f, "waits for {} blocking dependents", uids.len()),
            Outcome::VirtuallyDeleted(coordinate, _) => write!(f, "{coordinate} does not exist"),
            Outcome::Impossible(coordinate) => write!(f, "{coordinate} cannot be asked for"),
            Outcome::Retry(reason) => write!(f, "will be tried again: {reason}"),
            Outcome::RetryAfter(delay, reason) => {
                write!(f, "will be tried again in {} ms: {reason}", delay.as_millis())
            }
            Outcome::Busy(delay, reason) => {
                write!(f, "will be tried again in {} ms or later: {reason}", delay.as_millis())
            }
            Outcome::WaitForKind { api_version, kind } => {
                write!(f, "waits until the kind {kind} of {api_version} is served")
            }
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::LeftGraph => f.write_str("has left the graph"),
            Why::BeingDeleted => f.write_str("is already being deleted"),
            Why::NoOwners => f.write_str("has no owners"),
            Why::OwnerAlive => f.write_str("has an owner that lives"),
            Why::ReferencesRemoved(n) => write!(f, "lives; {n} owner references removed"),
            Why::ReferencesUnblocked(n) => {
                write!(f, "waited for itself; {n} owner references do not block any more")
            }
            Why::Deleted(policy) => write!(f, "deleted ({policy})"),
            Why::FinalizerRemoved(finalizer) => write!(f, "finalizer {finalizer} removed"),
            Why::WaitsForDependents => f.write_str("waits for blocking dependents that are being deleted"),
            Why::UnresolvableOwner => {
                f.write_str("names an owner that can never be resolved (a namespaced kind without a namespace, or an impossible name)")
            }
            Why::Gone => f.write_str("is gone"),
        }
    }
}
