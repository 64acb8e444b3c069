//! `cargo xtask fuzz`: the fuzzing that `cargo test` does in a second, for as long as one likes.
//!
//! The readers are in several crates, and their memory is counted by an allocator that nothing else here should have;
//! so this runs their tests, as they are built for `cargo test`.

use std::process::{Command, ExitCode};

use gc_tests::fuzz::TARGETS;

use crate::dirs;
use crate::failure::{Doing, Failure};
use crate::flags::Fuzz;
use crate::interrupt;
use crate::random::Random;

/// Whose test it is: the package, and how cargo names the test.
struct Place {
    package: &'static str,
    test: &'static [&'static str],
    /// Its share of the time, in percent: it grows with what there is to read.
    share: u64,
}

/// The client's readers and the simulator.
const LIBRARY: Place = Place { package: "gc-tests", test: &["--test", "fuzz"], share: 80 };
/// The command line and the daemon's small HTTP server.
const DAEMON: Place = Place { package: "gc-daemon", test: &["--lib", "fuzz::"], share: 20 };

/// Where the number of cases is given, so that the machine does not decide it.
const THREADS_OF_CASES: u64 = 2;

/// Runs them.
///
/// # Errors
///
/// When cargo cannot be started.
pub fn run(flags: &Fuzz) -> Result<ExitCode, Failure> {
    let seed = flags.seed.unwrap_or_else(Random::fresh_seed);
    eprintln!("fuzz: --seed {seed}");
    let mut code = ExitCode::SUCCESS;
    for place in places(flags.target.as_deref()) {
        let share = if flags.target.is_some() { 100 } else { place.share };
        if !run_one(&place, &words(flags, seed, flags.minutes * 60 * share / 100))? {
            code = ExitCode::FAILURE;
        }
        interrupt::check()?;
    }
    Ok(code)
}

fn places(target: Option<&str>) -> Vec<Place> {
    match target {
        None => vec![LIBRARY, DAEMON],
        Some(name) if TARGETS.iter().any(|target| target.name == name) => vec![LIBRARY],
        Some(_) => vec![DAEMON],
    }
}

/// The plan, as the tests read it from the environment.
fn words(flags: &Fuzz, seed: u64, seconds: u64) -> String {
    let mut words = match flags.cases {
        // Each thread has its own chance, so their number is a part of what makes two runs the same.
        Some(cases) => format!("cases={cases} seed={seed} threads={THREADS_OF_CASES}"),
        None => {
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            format!("seconds={seconds} seed={seed} threads={threads}")
        }
    };
    for (key, value) in [("target", &flags.target), ("input", &flags.input)] {
        if let Some(value) = value {
            words += &format!(" {key}={value}");
        }
    }
    words
}

fn run_one(place: &Place, words: &str) -> Result<bool, Failure> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--quiet", "--package", place.package]);
    command.args(place.test).args(["--", "--nocapture"]);
    command.env("GC_TESTS_FUZZ", words).current_dir(dirs::workspace());
    let status = command.status().doing(|| "cannot start cargo".into())?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_looked_for_where_it_is() {
        let packages = |target| places(target).iter().map(|place| place.package).collect::<Vec<_>>();
        assert_eq!(packages(None), ["gc-tests", "gc-daemon"]);
        assert_eq!(packages(Some("list")), ["gc-tests"]);
        assert_eq!(packages(Some("flags")), ["gc-daemon"]);
    }
}
