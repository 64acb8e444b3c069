//! The whole daemon as a process, against the simulated API server: each test has its own pair of them.
//!
//! Worlds are text, and so is what becomes of them. A test waits for conditions with a deadline. That nothing happens is
//! checked behind a fence: something else whose end shows that the daemon has passed that point.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test may stop where it stands.

mod process;
mod watching;
mod world;

mod collecting;
mod deletion;
mod evidence;
mod idle;
mod running;
mod survival;
mod ttl;
