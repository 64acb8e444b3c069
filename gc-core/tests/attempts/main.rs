//! Attempts against a world that is written as text.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::needless_pass_by_value, reason = "an `Expect` is written in place, by value")]

mod delete;
mod doubts;
mod from_graph;
mod guards;
mod limits;
mod orphan;
mod world;
