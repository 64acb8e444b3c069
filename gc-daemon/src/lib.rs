#![forbid(unsafe_code)]
//! The garbage collector as one binary: flags, threads, the event loop, health and metrics.
pub mod flags;
pub mod health;
pub mod logging;
pub mod metrics;
