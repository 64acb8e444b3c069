#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod conversation;
pub mod experiment;
pub mod fuzz;
pub mod http;
pub mod sim;
pub mod simulation;
