#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod builder;
mod convert;
mod mistakes;
mod monitors;
mod schedule;

pub use builder::{GraphBuilder, Options};
pub use convert::{api_resource, core_resource, live_object, refused, ttl_refused};
#[cfg(feature = "mistakes")]
pub use mistakes::Mistake;
pub use monitors::{Monitor, MonitorId, Monitors};
pub use schedule::{Look, Poke, Schedule};

use std::time::Duration;

use gc_client::{ApiResource, Error, MetaBatch, WatchEvent};
use gc_core::Outcome;
use gc_graph::{Coordinate, Effect};

/// What a watch saw.
#[derive(Clone, Debug)]
pub enum Change {
    /// A complete list begins; what it does not show until [`Change::ListDone`] is gone.
    ListStarted,
    /// Objects of a list, or one as added or modified.
    Seen(MetaBatch),
    /// Objects are gone.
    Deleted(MetaBatch),
    /// The list is complete, at this version of the server's data.
    ListDone(String),
    /// Nothing else happened up to this version of the server's data.
    Bookmark(String),
    /// The server is at this version of its data, which is older than what it had shown before. The list that follows
    /// may be newer than anything before.
    WentBack(String),
    /// The watch has ended in good order, and is about to be opened again.
    Ended,
    /// The watch has failed or ended early, and the server is looked at before it is opened again.
    Probing,
    /// The watch is open; what happened while it was not comes first.
    Watching,
    /// After an end or a failure the watch goes on: the server answers, and is not behind what it had shown.
    Resumed,
    /// List or watch failed and will be tried again.
    Failed(Error),
    /// The reader has ended by a fault of its own; nothing more comes from it.
    Died,
}

impl From<&WatchEvent<'_>> for Change {
    fn from(event: &WatchEvent<'_>) -> Change {
        match event {
            WatchEvent::ListStarted => Change::ListStarted,
            WatchEvent::Listed(meta) | WatchEvent::Applied(meta) => Change::Seen(MetaBatch::from(meta)),
            WatchEvent::Deleted(meta) => Change::Deleted(MetaBatch::from(meta)),
            WatchEvent::ListDone { resource_version } => Change::ListDone((*resource_version).to_owned()),
            WatchEvent::Bookmark { resource_version } => Change::Bookmark((*resource_version).to_owned()),
            WatchEvent::WentBack { resource_version } => Change::WentBack((*resource_version).to_owned()),
            WatchEvent::Ended => Change::Ended,
            WatchEvent::Probing => Change::Probing,
            WatchEvent::Watching => Change::Watching,
            WatchEvent::Resumed => Change::Resumed,
            WatchEvent::Failed(error) => Change::Failed((*error).clone()),
        }
    }
}

/// A change and the watch that saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Which run of which watch.
    pub monitor: MonitorId,
    /// What it saw.
    pub change: Change,
}

/// What a worker found that only the builder may tell the graph (spec G2).
#[derive(Clone, Debug)]
pub struct Finding {
    /// The [`State::era`](gc_core::State::era) in which it was found; in another one it proves nothing (spec S7).
    pub era: u64,
    /// What was found.
    pub fact: Fact,
}

/// See [`Finding`].
#[derive(Clone, Debug)]
pub enum Fact {
    /// Nothing exists at this coordinate, as a read says that was asked for at this time (spec G9).
    Absent(Coordinate, Duration),
    /// This coordinate of a virtual node cannot be asked for (spec D6).
    Impossible(Coordinate),
}

impl Finding {
    /// What is to be told of an attempt's outcome; `era` is the one in which the attempt began.
    pub fn of(era: u64, outcome: &Outcome) -> Option<Finding> {
        let fact = match outcome {
            Outcome::VirtuallyDeleted(coordinate, asked_at) => Fact::Absent(coordinate.clone(), *asked_at),
            Outcome::Impossible(coordinate) => Fact::Impossible(coordinate.clone()),
            Outcome::Enqueue(_)
            | Outcome::Forget(_)
            | Outcome::WaitForKind { .. }
            | Outcome::Retry(_)
            | Outcome::RetryAfter(..)
            | Outcome::Busy(..) => return None,
        };
        Some(Finding { era, fact })
    }
}

/// What comes of an event: the caller carries it out.
#[derive(Debug, Default)]
pub struct Out {
    /// What goes to the queues.
    pub effects: Vec<Effect>,
    /// What else is to be done, or is worth a line, in order.
    pub news: Vec<News>,
}

/// Something to do besides filling queues, or to tell.
#[derive(Clone, Debug)]
pub enum News {
    /// Start a reader that lists and watches this resource, and hands in what it sees under this id. A reader of the
    /// same source ends.
    Start(MonitorId, ApiResource),
    /// The resource is no longer served: its reader ends.
    End(MonitorId, ApiResource),
    /// The resource is not watched: there are as many watches as can be.
    TooMany(ApiResource),
    /// Discovery is to look sooner than it would.
    Poke(Poke),
    /// A list is complete; whether it is the first of its watch.
    Listed(MonitorId, bool),
    /// A list or watch failed. The flag says whether this is another error than the last.
    Failed(MonitorId, Error, bool),
    /// The versions of this watch keep going back: they are no longer taken for signs of a restore.
    VersionsGoBack(MonitorId),
    /// Discovery names no resource at all: nothing changes.
    NothingServed,
    /// Discovery has answered for the first time; the first lists are awaited.
    Discovered,
    /// No attempt is to begin until [`News::Collecting`]: no server answers.
    HeldWhileLost,
    /// No attempt is to begin until [`News::Collecting`]: the server's data was restored, since the watch of this
    /// resource found it at this version, which is older than before. Everything is listed anew.
    HeldAfterRestore(ApiResource, String),
    /// Time is up and nothing could be listed: there is nothing to collect. With what went wrong.
    NothingListed(String),
    /// Attempts may begin, for this reason.
    Collecting(&'static str),
}
