//! `cargo xtask simulate`: many seeds of the simulation, or one of them step by step.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use gc_tests::simulation::{Options, Report, run_traced, shrink};

use crate::dirs;
use crate::failure::{Doing, Failure};
use crate::flags::Simulate;

/// How often the progress is told.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);
/// So many seeds are run as they are built; for more another build pays.
const FEW: u64 = 500;

/// Runs the seeds; the first one that fails ends it, with the command that repeats it.
///
/// # Errors
///
/// When the faster build cannot be started.
pub fn run(flags: &Simulate) -> Result<ExitCode, Failure> {
    if cfg!(debug_assertions) && FEW < flags.seeds {
        return run_faster();
    }
    let options = options(flags);
    let start = Instant::now();
    let deadline = flags.minutes.map(|minutes| start + Duration::from_secs(minutes * 60));
    let mut progress = Progress::new(start);
    for seed in flags.from..flags.from.saturating_add(flags.seeds) {
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            break;
        }
        let mut print = |line: &str| {
            // A reader that has seen enough closes the pipe; the run goes on.
            let _ = writeln!(io::stdout(), "{line}");
        };
        let result = run_traced(seed, &options, if flags.trace { Some(&mut print) } else { None });
        match result {
            Ok(report) => progress.add(&report),
            Err(found) => {
                progress.tell();
                println!("{found}");
                println!("step by step: {}", command(seed, &options));
                if !flags.trace && !flags.keep_going {
                    let (smaller, found) = shrink(seed, &options, &found);
                    println!("the smallest world found that fails at the same check: {found}");
                    println!("step by step: {}", command(seed, &smaller));
                }
                if !flags.keep_going {
                    return Ok(ExitCode::FAILURE);
                }
            }
        }
    }
    progress.tell();
    Ok(ExitCode::SUCCESS)
}

/// Runs the same command once more, built with the profile `simulation`: ten times as many seeds in the same time.
fn run_faster() -> Result<ExitCode, Failure> {
    eprintln!("building with the profile simulation");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--profile", "simulation", "--package", "xtask", "--"]);
    command.args(std::env::args_os().skip(1)).current_dir(dirs::workspace());
    let status = command.status().doing(|| "cannot start cargo".into())?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn options(flags: &Simulate) -> Options {
    let defaults = Options::default();
    Options {
        steps_max: flags.steps.unwrap_or(defaults.steps_max),
        objects_max: flags.objects.unwrap_or(defaults.objects_max),
        skip: flags.skip.iter().copied().collect(),
        has_faults: !flags.calm,
        mistake: None,
        ignored: BTreeSet::new(),
        idle: flags.idle_minutes.map_or(defaults.idle, |minutes| Duration::from_secs(minutes * 60)),
    }
}

/// What repeats a run.
fn command(seed: u64, options: &Options) -> String {
    let defaults = Options::default();
    let mut command = format!("cargo xtask simulate --from {seed} --seeds 1 --trace");
    if options.steps_max != defaults.steps_max {
        command += &format!(" --steps {}", options.steps_max);
    }
    if options.objects_max != defaults.objects_max {
        command += &format!(" --objects {}", options.objects_max);
    }
    if !options.has_faults {
        command += " --calm";
    }
    if !options.skip.is_empty() {
        let numbers: Vec<String> = options.skip.iter().map(u32::to_string).collect();
        command += &format!(" --skip {}", numbers.join(","));
    }
    command
}

/// How far it has come.
struct Progress {
    start: Instant,
    told: Instant,
    seeds: u64,
    steps: u64,
    requests: u64,
    deleted: u64,
}

impl Progress {
    fn new(start: Instant) -> Progress {
        Progress { start, told: start, seeds: 0, steps: 0, requests: 0, deleted: 0 }
    }

    fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.steps += report.steps;
        self.requests += report.requests;
        self.deleted += report.deleted;
        if PROGRESS_EVERY <= self.told.elapsed() {
            self.told = Instant::now();
            self.tell();
        }
    }

    fn tell(&self) {
        let seconds = self.start.elapsed().as_secs_f64().max(0.001);
        let rate = self.seeds as f64 / seconds;
        eprintln!(
            "{} seeds, {rate:.0} a second; {} steps, {} requests, {} objects deleted",
            self.seeds, self.steps, self.requests, self.deleted
        );
    }
}
