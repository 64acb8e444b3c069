#![forbid(unsafe_code)]
//! The garbage collector as one binary: flags, threads, the event loop, health and metrics.
//!
//! No decision is made here: `gc-core` decides, `gc-client` talks to the server, and this crate gives them threads.
//! [`daemon::daemon`] is the whole program behind its flags, for whoever wants it inside another process.

mod backlog;
pub mod daemon;
pub mod discovery;
pub mod events;
pub mod flags;
#[cfg(test)]
mod fuzz;
pub mod health;
pub mod lag;
pub mod logging;
pub mod metrics;
pub mod readers;
mod reads;
pub mod requests;
pub mod run;
pub mod serve;
pub mod ttl;
pub mod workers;

// The example in the README runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
