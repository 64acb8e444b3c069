//! TTL after finished, in virtual time, as text.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::needless_pass_by_value, reason = "an `Expect` is written in place, by value")]

mod attempts;
mod clocks;
mod engine;
mod events;
mod profiles;
mod size;
mod volcano;
mod wishes;
mod world;
