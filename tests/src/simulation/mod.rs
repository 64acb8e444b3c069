//! Deterministic simulation: the collector, users, other controllers and the API server in one thread, under a virtual
//! clock, with everything that could happen next chosen by a seed.
//!
//! A run has four parts:
//!
//! 1. *Storm*: users act, workers step, watch events arrive in any order between resources, requests fail in every way
//!    that a network and a server have, the collector is killed and started. Safety is checked at every write.
//! 2. *Rest*: faults and users stop. Within a bounded virtual time everything that should go is gone, and the graph is
//!    what the server has.
//! 3. *Release*: those who hold objects let them go; the same again.
//! 4. *Idle*: nothing happens, and the collector sends nothing but watches and discovery.
//!
//! # What is true
//!
//! Truth comes from the server's history of writes, never from the collector's graph:
//!
//! - A reference is *solid* when, at that moment, the server has the object of that UID and name, of a kind that the
//!   apiVersion and kind of the reference resolve to, in the dependent's namespace where the kind is namespaced, and it
//!   is not *waiting* (being deleted with `foregroundDeletion` and without `orphan`) and not *orphaning* (being deleted
//!   with `orphan`).
//! - A deletion by the collector is right when the object had owner references at that version, and every one of them was
//!   absent at the moment of the write, or waiting at some moment since a moment before the attempt began: a read of
//!   an owner that waits is good for others of its dependents for 50 ms, and the version that the DELETE
//!   names holds the references still, but a waiting owner can be put into another state (a second DELETE with another
//!   policy, a user who takes the finalizer away) between the proof and the write. Absence lasts, since no UID is given
//!   twice.
//! - It is wrong in every case when an owner is orphaning, or was orphaned by this life of the collector; and when a
//!   reference cannot be resolved.
//! - A finalizer of ours may go from an owner when no dependent that the graph was shown, in the version that the server
//!   has, blocks it (`foregroundDeletion`) or names it (`orphan`). A reference that is written after the owner's deletion
//!   began is in a race that nobody can win, and does not count for `orphan`. Nor may `orphan` go while a dependent names
//!   the owner that the watch of its kind is to show, as long as that watch is known to hear nothing, for half a minute
//!   from when it was last open for long.
//!
//! # Jobs
//!
//! One world in ten has jobs, drawn from a stream of its own, so that the others are what they would be without. Users
//! create jobs, finish them (sometimes in the future, sometimes without a time), set, raise, lower and take away TTLs,
//! and create jobs again under their names; the clock of the collector's machine is wrong by up to an hour, either way,
//! and jumps. gc-core's engine hears what the graph's watch of jobs shows, and its attempts have the same faults as the
//! others. They are signed apart:
//!
//! - Such an attempt writes nothing but the beginning of a deletion. It is right when the version that the server has at
//!   that moment has finished, and its finish time and its TTL, as they stand there, have passed by the server's clock.
//! - At rest no job is left that has finished with a TTL and is not being deleted.
//!
//! For the graph and its collector a job is an object like any other: it has owners and dependents, and its deletion for
//! its TTL is one by somebody else, in the foreground.
//!
//! # What the world does not do
//!
//! Nothing helps against a server that lies again and again. It denies objects that exist (a 404 that names them), but none
//! twice, and none that no watch has shown. A server that was just started answers from a watch cache that is behind
//! whoever takes what there is (`resourceVersion=0`); other reads are never older than writes, as those of a real server,
//! which are quorum reads. The collector's process may be stopped at any moment (SIGSTOP), also while the
//! server is restored, but then not between a list and the watch that is to follow it, nor while a request is under way.
//!
//! # When the server is restored
//!
//! What is true goes back with the server's data (spec S7). Connections end, and the server is away for longer than a proof
//! of absence is believed; requests that are under way are lost, or, sometimes, reads wait and are answered by the server
//! that comes back. Then no exception holds for deletions: one that was
//! decided by what was read before is wrong if its owner lives again. Three things are let pass:
//!
//! - An orphaning that the restore undoes may go on: it spares objects.
//! - What no watch had shown may be undone unnoticed: the last writes of the collector itself, say. Such restores do not
//!   happen here; what they undo is done again at the next change of the object or its owner, or after a restart.
//! - Versions that have passed what was seen betray nothing: nobody writes until every watch has looked. The collector
//!   itself waits for half a minute only, and a world in which it then writes that much ends there, counted. Where versions
//!   go forward and history is forgotten, as etcd's manual advises, every watch lists anew by itself.
//!
//! ```
//! use gc_tests::simulation::{Options, run};
//! let report = run(1, &Options::default()).map_err(|failure| failure.to_string())?;
//! assert!(report.requests > 0);
//! # Ok::<(), String>(())
//! ```

mod collector;
mod jobs;
mod kinds;
mod known;
mod link;
mod liveness;
pub(crate) mod random;
mod reader;
mod shrink;
pub mod small_worlds;
mod truth;
mod ttl;
mod users;
mod weather;
mod worker;
mod world;

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

pub use known::{KNOWN, Known};
pub use shrink::shrink;
pub use truth::{Check, Violation};
use world::World;

/// What a run may be limited to. The defaults are what a seed draws.
#[derive(Clone, Debug)]
pub struct Options {
    /// At most so many steps of the storm.
    pub steps_max: u32,
    /// At most so many objects at the start.
    pub objects_max: u32,
    /// Disturbances (what users and the weather do, numbered from 0) that do not happen.
    pub skip: BTreeSet<u32>,
    /// Whether requests can fail on their way.
    pub has_faults: bool,
    /// A mistake that the collector makes, to see that it is found.
    pub mistake: Option<Mistake>,
    /// Checks that count for nothing, to see that others find what they would.
    pub ignored: BTreeSet<Check>,
    /// How long the collector is watched doing nothing. A seed draws an hour, or, nine times out of ten, three minutes:
    /// each watch is opened anew once or twice in these.
    pub idle: Option<Duration>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            steps_max: u32::MAX,
            objects_max: u32::MAX,
            skip: BTreeSet::new(),
            has_faults: true,
            mistake: None,
            ignored: BTreeSet::new(),
            idle: None,
        }
    }
}

/// A mistake that garbage collectors have made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// One in the decisions.
    Core(gc_core::Mistake),
    /// One in the graph builder.
    Builder(gc_builder::Mistake),
    /// A DELETE goes out with the UID alone.
    DeleteWithoutVersion,
    /// Any 404 proves an object absent, also that of a path that is not served (kubernetes/kubernetes#104342).
    Any404IsProof,
    /// A list that breaks off counts as complete.
    HalfListIsWhole,
    /// A job whose TTL has expired is deleted by its UID alone (the reference and Volcano do).
    ExpireByUid,
    /// The same by its name alone.
    ExpireByName,
    /// A job is deleted for the TTL that a watch has shown, without a read.
    ExpireAsObserved,
    /// A TTL expires by the collector's own clock, whatever the server's says.
    ExpireByOwnClock,
    /// A job that a server denies once is forgotten (kubernetes/kubernetes#98471).
    ExpireDeniedOnce,
    /// Reads take what the server's watch cache has (`resourceVersion=0`), which may be behind (kubernetes/kubernetes#59848).
    ReadsFromCache,
}

/// A run in which every check held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Steps taken.
    pub steps: u64,
    /// Disturbances.
    pub disturbances: u32,
    /// The collector's requests.
    pub requests: u64,
    /// Objects that existed.
    pub objects: usize,
    /// Objects that the collector deleted.
    pub deleted: u64,
    /// Jobs that it deleted because their TTL had expired.
    pub expired: u64,
    /// Whether it ended because a restored server had passed what a watch had seen.
    pub is_overtaken: bool,
}

/// A run in which a check failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// Which check, and what happened.
    pub violation: Violation,
    /// In which step.
    pub step: u64,
    /// How many disturbances there were.
    pub disturbances: u32,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { check, what } = &self.violation;
        write!(f, "seed {}, step {}: {check:?}: {what}", self.seed, self.step)
    }
}

impl std::error::Error for Failure {}

/// Takes a line for each step.
pub type Trace<'t> = &'t mut dyn FnMut(&str);

/// Runs one seed. A panic in the collector is a check that failed, too.
///
/// # Errors
///
/// The first check that failed.
pub fn run(seed: u64, options: &Options) -> Result<Report, Box<Failure>> {
    run_traced(seed, options, None)
}

/// The same, step by step.
///
/// # Errors
///
/// As [`run`].
pub fn run_traced(seed: u64, options: &Options, trace: Option<Trace<'_>>) -> Result<Report, Box<Failure>> {
    let world = AssertUnwindSafe(|| World::new(seed, options, trace).run());
    catch_unwind(world).unwrap_or_else(|cause| {
        let cause = cause.downcast_ref::<String>().cloned();
        let what = cause.unwrap_or_else(|| "see standard error".into());
        let violation = Violation::new(Check::Panic, what);
        Err(Box::new(Failure { seed, violation, step: 0, disturbances: 0 }))
    })
}
