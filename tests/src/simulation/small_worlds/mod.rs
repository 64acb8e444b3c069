//! Every small world: each ownership graph within a bound, each thing that users may do, each order in which watches
//! deliver, each interleaving of two workers, until nothing is left to try.
//!
//! # What a world is
//!
//! Up to three objects. Between any two of them, an object and itself included, and from each to an owner that never
//! exists, there is a reference, blocking or not, or none. One object may carry a finalizer of somebody else.
//!
//! # What can happen next, in every order
//!
//! - A user deletes an object with any of the three policies, at any moment, and may delete it again with another one;
//!   lets go what is held and being deleted.
//! - A watch delivers the next event of an object. The events of one object keep their order; those of different
//!   objects do not, as if each object were of another kind. At first nothing has been delivered.
//! - In some bounds: a watch is lost, and a list takes the place of the events that it has not delivered. Of an object
//!   that was changed several times it shows the last state only, of one that is gone nothing, and of one that has come
//!   and gone meanwhile nothing was ever known.
//! - One of two workers takes any item of either queue. (Queues are sets here: what is tried is every order, and any
//!   back-off may take any time.)
//! - A worker sends the request that it holds and takes the reply, in one step; of the releases of an orphaning any one.
//! - The graph hears what a worker has found absent.
//!
//! Time either stands still, so that no proof ages and no doubt is ever settled by time; or ten seconds pass with each
//! step, so that each proof is too old when it is used and each doubt settled by the next read.
//!
//! # What is checked
//!
//! After each step the rules of safety, from the server's history; they are those of the [simulation](super), except
//! that references are never written anew. Wherever nothing is left to do: the graph is what the server has; what is not
//! being deleted has references to owners that live, and to no others; what is being deleted is held by somebody else, or
//! waits for a blocking dependent that is, so that objects that block each other in a circle go, too; no `orphan` is
//! left. And from every state the collector
//! can come to rest without a user.
//!
//! # What is left out, and why that is sound
//!
//! - Of the worlds that differ by the numbering of the objects only one is tried: a number is a name and a UID, which are
//!   compared for equality only. The workers have no numbers at all.
//! - States are merged when they agree in everything that the future depends on: the contents of the server; what the
//!   graph and the memory print; the events that wait; the queues; each field of the attempts under way; and of the
//!   past, what the rules of safety ask for. The order of dependents in the graph is left out: it decides the order of
//!   effects, and queues are sets.
//! - Versions are the numbers of contents (see `server.rs`).
//!
//! [`BOUNDS`] and [`LARGE_BOUNDS`] say how many worlds, states and steps there are: 1,274,237 states in `cargo test`,
//! 193,854,848 more with `cargo xtask simulate --small-worlds`, which takes a quarter of an hour. The numbers are asserted.
//!
//! What a component does in a given state is computed once and remembered, with the real graph, the real attempts and
//! the simulated API server; the search itself only combines.

mod bounds;
mod graphs;
mod machine;
mod search;
mod server;

use std::fmt;

pub use gc_core::Options;

use super::kinds::KINDS;
use super::truth::{Check, Violation};
pub use bounds::{BOUNDS, LARGE_BOUNDS};
use search::Search;

/// Whether time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// All that happens happens at once.
    StandsStill,
    /// Ten seconds with each step.
    Passes,
}

/// Which worlds are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// So many objects; three at most.
    pub objects: usize,
    /// At most so many references in all.
    pub references_max: usize,
    /// At most so many deletions by users.
    pub deletions_max: u8,
    /// Whether there are worlds with a finalizer of somebody else, too.
    pub holds: bool,
    /// Whether the objects are of a kind that takes no strategic merge patch.
    pub custom: bool,
    /// Whether time passes.
    pub time: Time,
    /// Whether watches are lost.
    pub relists: bool,
    /// Whether everything is read before it is deleted, as if there were no D15.
    pub reads: bool,
}

/// How many there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ownership graphs, with what is held.
    pub worlds: u64,
    /// States of these worlds.
    pub states: u64,
    /// Steps between them.
    pub steps: u64,
    /// States in which the collector has nothing left to do.
    pub at_rest: u64,
}

/// A check that failed in a world.
#[derive(Clone, Debug)]
pub struct Found {
    /// The world, for people.
    pub world: String,
    /// What failed.
    pub violation: Violation,
    /// The steps that led there: the fewest.
    pub way: Vec<String>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { check, what } = &self.violation;
        writeln!(f, "{check:?}: {what}, in the world of {}", self.world)?;
        self.way.iter().try_for_each(|step| writeln!(f, "    {step}"))
    }
}

impl std::error::Error for Found {}

/// Tries every world of a bound.
///
/// # Errors
///
/// The first check that failed, with the shortest way to it.
pub fn explore(bound: &Bound) -> Result<Counts, Box<Found>> {
    explore_with(bound, &Options::default())
}

/// The same, with other options for the decisions.
///
/// # Errors
///
/// As [`explore`].
pub fn explore_with(bound: &Bound, options: &Options) -> Result<Counts, Box<Found>> {
    explore_told(bound, options, &mut |_| {})
}

/// The same; after each world is told how many there were so far.
///
/// # Errors
///
/// As [`explore`].
pub fn explore_told(
    bound: &Bound,
    options: &Options,
    tell: &mut dyn FnMut(&Counts),
) -> Result<Counts, Box<Found>> {
    let kind = KINDS.iter().find(|kind| kind.custom == bound.custom && kind.namespaced);
    let kind = kind.ok_or_else(|| Found {
        world: String::new(),
        violation: Violation::new(Check::Panic, "no such kind"),
        way: Vec::new(),
    })?;
    let options = Options { decides_from_graph: !bound.reads, ..options.clone() };
    let mut counts = Counts::default();
    for world in graphs::worlds(bound.objects.min(graphs::OBJECTS_MAX), bound.references_max, bound.holds) {
        let found = Search::run(&world, bound, kind, options.clone())?;
        counts.worlds += found.worlds;
        counts.states += found.states;
        counts.steps += found.steps;
        counts.at_rest += found.at_rest;
        tell(&counts);
    }
    Ok(counts)
}
