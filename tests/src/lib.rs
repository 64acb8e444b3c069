#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod experiment;
pub mod http;
pub mod sim;
pub mod simulation;
