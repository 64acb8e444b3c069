//! Attempts against a world that is written as text.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod delete;
mod orphan;
mod world;
