//! A simulated Kubernetes API server, the scenario suites, and the tests that hold the house rules.
#![forbid(unsafe_code)]

pub mod experiment;
pub mod http;
pub mod sim;
