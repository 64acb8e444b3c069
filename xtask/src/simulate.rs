//! `cargo xtask simulate`: many seeds of the simulation, or one of them step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::num::NonZero;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use gc_tests::simulation::{Failure as Failed, KNOWN, Options, Report, run_traced, shrink};

use crate::dirs;
use crate::failure::{Doing, Failure};
use crate::flags::Simulate;
use crate::{interrupt, small_worlds};

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
    if cfg!(debug_assertions) && (flags.small_worlds || flags.mistakes || FEW < flags.seeds) {
        return run_faster();
    }
    if flags.small_worlds {
        return small_worlds::run();
    }
    if flags.mistakes {
        return look_for_mistakes();
    }
    let options = options(flags);
    let runs = Runs::new(flags, &options);
    // A trace of two seeds at once could not be read.
    let threads = if flags.trace { 1 } else { available_parallelism().map_or(1, NonZero::get) };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| runs.work());
        }
        runs.work();
    });
    runs.report()
}

/// Each thread looks for one mistake at a time.
fn look_for_mistakes() -> Result<ExitCode, Failure> {
    let (next, missed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let look = || {
        while let Some(known) = KNOWN.get(next.fetch_add(1, Ordering::Relaxed))
            && !interrupt::is_set()
        {
            match known.find() {
                Ok(seed) => println!("found {:?} at seed {seed}", known.mistake),
                Err(others) => {
                    println!("MISSED {:?} in {} seeds; others: {others:?}", known.mistake, known.seeds);
                    missed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(look);
        }
        look();
    });
    interrupt::check()?;
    Ok(if missed.load(Ordering::Relaxed) == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the threads share. Each takes the next seed in order, so that every seed below one that fails is run to its end,
/// and the lowest that fails is the same in every run.
struct Runs<'a> {
    flags: &'a Simulate,
    options: &'a Options,
    deadline: Option<Instant>,
    next: AtomicU64,
    /// Seeds above it need not run.
    last: AtomicU64,
    progress: Mutex<Progress>,
    failures: Mutex<BTreeMap<u64, Failed>>,
}

impl<'a> Runs<'a> {
    fn new(flags: &'a Simulate, options: &'a Options) -> Runs<'a> {
        let start = Instant::now();
        Runs {
            flags,
            options,
            deadline: flags.minutes.map(|minutes| start + Duration::from_secs(minutes * 60)),
            next: AtomicU64::new(flags.from),
            last: AtomicU64::new(flags.from.saturating_add(flags.seeds).saturating_sub(1)),
            progress: Mutex::new(Progress::new(start)),
            failures: Mutex::default(),
        }
    }

    fn work(&self) {
        while self.deadline.is_none_or(|deadline| Instant::now() < deadline) && !interrupt::is_set() {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if self.flags.seeds == 0 || self.last.load(Ordering::SeqCst) < seed {
                return;
            }
            match self.run(seed) {
                Ok(report) => lock(&self.progress).add(&report),
                Err(failed) => {
                    eprintln!("{failed}");
                    if !self.flags.keep_going {
                        self.last.fetch_min(seed, Ordering::SeqCst);
                    }
                    lock(&self.failures).insert(seed, *failed);
                }
            }
        }
    }

    fn run(&self, seed: u64) -> Result<Report, Box<Failed>> {
        let mut print = |line: &str| {
            // A reader that has seen enough closes the pipe; the run goes on.
            let _ = writeln!(io::stdout(), "{line}");
        };
        run_traced(seed, self.options, if self.flags.trace { Some(&mut print) } else { None })
    }

    /// The failures, the lowest seed first, and how to see each of them.
    fn report(&self) -> Result<ExitCode, Failure> {
        lock(&self.progress).tell();
        let failures = lock(&self.failures);
        let shown = if self.flags.keep_going { failures.len() } else { 1 };
        for (seed, found) in failures.iter().take(shown) {
            println!("{found}");
            println!("step by step: {}", command(*seed, self.options));
            if !self.flags.trace && !self.flags.keep_going {
                let (smaller, found) = shrink(*seed, self.options, found);
                println!("the smallest world found that fails at the same check: {found}");
                println!("step by step: {}", command(*seed, &smaller));
            }
        }
        if failures.is_empty() {
            interrupt::check()?;
        }
        Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// A thread that panicked leaves whole seeds behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        idle: flags.idle_minutes.map(|minutes| Duration::from_secs(minutes * 60)),
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
    overtaken: u64,
}

impl Progress {
    fn new(start: Instant) -> Progress {
        Progress { start, told: start, seeds: 0, steps: 0, requests: 0, deleted: 0, overtaken: 0 }
    }

    fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.steps += report.steps;
        self.requests += report.requests;
        self.deleted += report.deleted;
        self.overtaken += u64::from(report.is_overtaken);
        if PROGRESS_EVERY <= self.told.elapsed() {
            self.told = Instant::now();
            self.tell();
        }
    }

    fn tell(&self) {
        let seconds = self.start.elapsed().as_secs_f64().max(0.001);
        let rate = self.seeds as f64 / seconds;
        eprintln!(
            "{} seeds, {rate:.0} a second; {} steps, {} requests, {} objects deleted; {} ended early, overtaken after a restore",
            self.seeds, self.steps, self.requests, self.deleted, self.overtaken
        );
    }
}
