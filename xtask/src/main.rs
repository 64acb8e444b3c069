//! What the repository does with itself: `cargo xtask demo`, `cargo xtask rig`, `cargo xtask e2e`,
//! `cargo xtask differential`, `cargo xtask simulate`, `cargo xtask fuzz`, `cargo xtask conformance`, `cargo xtask chaos`,
//! `cargo xtask bench`, `cargo xtask mutants`.

#![forbid(unsafe_code)]

mod api;
mod bench;
mod cargo;
mod chaos;
mod collector;
mod conformance;
mod demo;
mod differential;
mod dirs;
mod e2e;
mod failure;
mod finish;
mod flags;
mod fuzz;
mod interrupt;
mod kinds;
mod kubeconfig;
mod made_up;
mod mutants;
mod poll;
mod process;
mod random;
mod rig;
mod rig_command;
mod simulate;
mod small_worlds;
mod vitals;

use std::process::ExitCode;

use clap::Parser;

use crate::failure::Failure;
use crate::flags::{Command, Xtask};

fn main() -> ExitCode {
    match run(&Xtask::parse().command) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<ExitCode, Failure> {
    interrupt::install()?;
    match command {
        Command::Demo => demo::run(),
        Command::Rig(flags) => rig_command::run(flags),
        Command::E2e(flags) => e2e::run(flags),
        Command::Differential(flags) => differential::run(flags),
        Command::Conformance(flags) => conformance::run(flags),
        Command::Simulate(flags) => simulate::run(flags),
        Command::Chaos(flags) => chaos::run(flags),
        Command::Bench(flags) => bench::run(flags),
        Command::Fuzz(flags) => fuzz::run(flags),
        Command::Mutants(flags) => mutants::run(flags),
    }
}
