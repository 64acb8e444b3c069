//! The ownership graph: changes in, effects out.
#![forbid(unsafe_code)]

mod change;
mod cycles;
mod dot;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
mod graph;
mod intern;
#[cfg(any(test, feature = "fixture"))]
mod invariants;
mod node;
mod query;
mod store;
#[cfg(test)]
mod tests;
mod texts;
mod uid;

pub use change::{
    Coordinate, Effect, InvalidOwnerReference, Observation, OwnerReference, OwnerReferenceRef, SourceId,
};
pub use graph::Graph;
pub use node::{Node, OwnerState};
pub use query::{BLOCKING_CHAIN_LIMIT, BlockingChain, BlockingStep};
pub use uid::Uid;
