//! `cargo xtask simulate --small-worlds`: every small world within every bound, of the decisions and of the graph alone.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use gc_tests::simulation::small_worlds::{BOUNDS, Bound, Counts, LARGE_BOUNDS, Options, Time, explore_told};

use crate::dirs;
use crate::failure::{Doing, Failure};
use crate::interrupt;

/// How often the progress is told.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// Tries them all; the exit code says whether every one ended well, and whether there were as many as is written down.
///
/// # Errors
///
/// When the graph's own cannot be started, or a signal comes.
pub fn run() -> Result<ExitCode, Failure> {
    let start = Instant::now();
    let mut failed = 0;
    let mut total = Counts::default();
    for (bound, expected) in BOUNDS.iter().chain(&LARGE_BOUNDS) {
        interrupt::check()?;
        let mut told = Instant::now();
        let mut tell = |so_far: &Counts| {
            if PROGRESS_EVERY <= told.elapsed() {
                told = Instant::now();
                let of = expected.worlds;
                eprintln!("{} of {of} worlds, {} states of this bound", so_far.worlds, so_far.states);
            }
        };
        match explore_told(bound, &Options::default(), &mut tell) {
            Ok(found) => {
                println!("{}: {}", show(bound), show_counts(&found));
                if found != *expected {
                    println!("FAILED: it was written down as {}", show_counts(expected));
                    failed += 1;
                }
                total.worlds += found.worlds;
                total.states += found.states;
                total.steps += found.steps;
                total.at_rest += found.at_rest;
            }
            Err(found) => {
                println!("{}: FAILED: {found}", show(bound));
                failed += 1;
            }
        }
    }
    println!("all bounds of the decisions: {}, {} s", show_counts(&total), start.elapsed().as_secs());
    let graph_passed = run_of_graph()?;
    println!("small worlds: {} s", start.elapsed().as_secs());
    Ok(if failed == 0 && graph_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Those of the graph look into its arena, and so they are tests of that crate.
fn run_of_graph() -> Result<bool, Failure> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--quiet", "--profile", "simulation", "--package", "gc-graph", "--lib"]);
    command.args(["small_worlds", "--", "--nocapture"]).env("SMALL_WORLDS", "all");
    let status = command.current_dir(dirs::workspace()).status().doing(|| "cannot start cargo".into())?;
    Ok(status.success())
}

fn show(bound: &Bound) -> String {
    let Bound { objects, references_max, deletions_max, holds, custom, time, relists, reads } = bound;
    let mut text = format!("{objects} objects, {references_max} references, {deletions_max} deletions");
    let extras = [
        (*holds, "held"),
        (*custom, "custom"),
        (*time == Time::Passes, "time passes"),
        (*relists, "watches are lost"),
        (*reads, "everything is read"),
    ];
    for (_, extra) in extras.into_iter().filter(|(has, _)| *has) {
        text += ", ";
        text += extra;
    }
    text
}

fn show_counts(Counts { worlds, states, steps, at_rest }: &Counts) -> String {
    format!("{worlds} worlds, {states} states, {steps} steps, {at_rest} at rest")
}
