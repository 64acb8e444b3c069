//! The loop.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Target;
use super::mutate::{mutate, shrink};
use crate::simulation::random::Random;

/// So many inputs that led to something new are kept for each target and thread, beside the corpus.
const KEPT_MAX: usize = 2_000;
/// One case takes milliseconds at the most; one that takes this long is as good as stuck.
const CASE_WITHIN: Duration = Duration::from_secs(20);

/// What is run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where chance starts.
    pub seed: u64,
    /// So many cases of each target, whatever time that takes…
    pub cases: u64,
    /// …or as many as fit, when this is given: for all targets together.
    pub time: Option<Duration>,
    /// Threads; each target's cases are shared among them.
    pub threads: u64,
    /// Only this target.
    pub target: Option<String>,
    /// Only this input, and not the corpus either.
    pub input: Option<Vec<u8>>,
    /// Told now and then how far it has come.
    pub progress: Option<fn(&Report, Duration)>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { seed: 1, cases: 300, time: None, threads: 1, target: None, input: None, progress: None }
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// All cases that ran.
    pub cases: u64,
    /// For each target how many cases ran, and how many different things came of them.
    pub targets: BTreeMap<&'static str, (u64, usize)>,
    /// At most one for each target and thread.
    pub failures: Vec<Failure>,
}

/// A promise that was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Whose.
    pub target: &'static str,
    /// Which.
    pub promise: &'static str,
    /// What was wrong with the smallest input.
    pub what: String,
    /// The smallest input found.
    pub input: Vec<u8>,
}

impl Failure {
    /// The input in hexadecimal.
    pub fn hex(&self) -> String {
        self.input.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Failure { target, promise, what, input } = self;
        writeln!(f, "{target}: {promise}: broken")?;
        writeln!(f, "  {what}")?;
        writeln!(f, "  input: {}", input.escape_ascii())?;
        write!(f, "  again: cargo xtask fuzz --target {target} --input {}", self.hex())
    }
}

/// Runs work and says how many bytes it held at once at the most; 0 where nothing measures that. This package may
/// not contain an allocator that counts, so whoever runs the targets brings it.
pub type Measure<'m> = &'m (dyn Fn(&mut dyn FnMut()) -> u64 + Sync);

/// Feeds the targets: the corpus first, then damaged inputs.
pub fn run(targets: &[Target], plan: &Plan, measure: Measure<'_>) -> Report {
    let chosen: Vec<Target> = targets
        .iter()
        .filter(|t| plan.target.as_deref().is_none_or(|name| name == t.name))
        .copied()
        .collect();
    let shared = Shared {
        plan,
        measure,
        start: Instant::now(),
        report: Mutex::new(Report::default()),
        cases: AtomicU64::new(0),
    };
    if let Some(input) = &plan.input {
        for target in &chosen {
            let mut lane = Lane::new(target, 0);
            lane.try_one(&shared, input);
            lane.report(&shared);
        }
        return shared.into_report();
    }
    std::thread::scope(|scope| {
        for thread in 0..plan.threads.max(1) {
            let (shared, chosen) = (&shared, &chosen);
            scope.spawn(move || shared.work(thread, chosen));
        }
    });
    shared.into_report()
}

/// For a test: runs the plan, or what the variable `GC_TESTS_FUZZ` says instead (`seconds=60` or `cases=9000`, `seed=7
/// target=list input=00ff`), and fails with what was found.
///
/// # Panics
///
/// When a promise is broken, or the variable is not understood.
#[expect(clippy::panic, reason = "a test fails by panicking")]
pub fn check(targets: &[Target], plan: &Plan, measure: Measure<'_>) {
    let asked = std::env::var("GC_TESTS_FUZZ").unwrap_or_default();
    let plan = match plan.clone().changed_by(&asked) {
        Ok(plan) => plan,
        Err(word) => panic!("GC_TESTS_FUZZ: {word} is not understood"),
    };
    let start = Instant::now();
    if !asked.is_empty() {
        // Each try to make a failing input smaller would print its panic.
        std::panic::set_hook(Box::new(|_| {}));
    }
    let report = run(targets, &plan, measure);
    if !asked.is_empty() {
        drop(std::panic::take_hook());
    }
    assert!(report.cases > 0, "no target is called {:?}; there are {:?}", plan.target, names(targets));
    if !asked.is_empty() {
        let rate = report.cases as f64 / start.elapsed().as_secs_f64().max(0.001);
        println!("{} cases, {rate:.0} a second", report.cases);
        for (target, (cases, outcomes)) in &report.targets {
            println!("  {target:<16} {cases:>9} cases, {outcomes:>5} different outcomes");
        }
    }
    let failures: Vec<String> = report.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn names(targets: &[Target]) -> Vec<&'static str> {
    targets.iter().map(|target| target.name).collect()
}

impl Plan {
    fn changed_by(mut self, words: &str) -> Result<Plan, String> {
        for word in words.split_whitespace() {
            let not_understood = || word.to_owned();
            let (key, value) = word.split_once('=').ok_or_else(not_understood)?;
            let number = || value.parse::<u64>().map_err(|_| not_understood());
            match key {
                "seconds" => self.time = Some(Duration::from_secs(number()?)),
                "cases" => self.cases = number()?,
                "seed" => self.seed = number()?,
                "threads" => self.threads = number()?,
                "target" => self.target = Some(value.into()),
                "input" => self.input = Some(from_hex(value).ok_or_else(not_understood)?),
                _ => return Err(not_understood()),
            }
        }
        if !words.is_empty() {
            self.progress = Some(|report, took| {
                let rate = report.cases as f64 / took.as_secs_f64().max(0.001);
                eprintln!("{} cases, {rate:.0} a second", report.cases);
            });
        }
        Ok(self)
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
    let pairs = digits?;
    let bytes = pairs.chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(high << 4 | low).ok(),
        _ => None,
    });
    bytes.collect()
}

struct Shared<'p> {
    plan: &'p Plan,
    measure: Measure<'p>,
    start: Instant,
    report: Mutex<Report>,
    cases: AtomicU64,
}

impl Shared<'_> {
    fn work(&self, thread: u64, targets: &[Target]) {
        let mut lanes: Vec<Lane> =
            targets.iter().map(|target| Lane::new(target, self.plan.seed ^ thread << 56)).collect();
        for lane in &mut lanes {
            for input in lane.corpus.clone() {
                lane.try_one(self, &input);
            }
            // The corpus itself is not counted: a plan's cases are damaged ones.
            lane.cases = 0;
        }
        let share = self.plan.cases.div_ceil(self.plan.threads.max(1));
        let (mut told, mut round) = (Instant::now(), 0);
        while !self.is_over(round, share) {
            for lane in &mut lanes {
                if !lane.has_failed {
                    lane.step(self);
                }
            }
            round += 1;
            if thread == 0
                && let Some(progress) = self.plan.progress
                && Duration::from_secs(5) <= told.elapsed()
            {
                told = Instant::now();
                progress(
                    &Report { cases: self.cases.load(Ordering::Relaxed), ..Report::default() },
                    self.start.elapsed(),
                );
            }
        }
        for lane in lanes {
            lane.report(self);
        }
    }

    fn is_over(&self, round: u64, share: u64) -> bool {
        match self.plan.time {
            Some(time) => time <= self.start.elapsed(),
            None => share <= round,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn into_report(self) -> Report {
        self.report.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One target in one thread.
struct Lane {
    target: Target,
    random: Random,
    corpus: Vec<Vec<u8>>,
    outcomes: BTreeSet<String>,
    kept: usize,
    cases: u64,
    has_failed: bool,
}

impl Lane {
    fn new(target: &Target, seed: u64) -> Lane {
        let purpose =
            target.name.bytes().fold(7, |sum: u64, b| sum.wrapping_mul(31).wrapping_add(u64::from(b)));
        Lane {
            target: *target,
            random: Random::apart(seed, purpose),
            corpus: (target.corpus)(),
            outcomes: BTreeSet::new(),
            kept: 0,
            cases: 0,
            has_failed: false,
        }
    }

    fn step(&mut self, shared: &Shared<'_>) {
        let base = self.random.pick(&self.corpus).cloned().unwrap_or_default();
        let input = mutate(&mut self.random, &base, &self.corpus, self.target.words);
        self.try_one(shared, &input);
    }

    fn try_one(&mut self, shared: &Shared<'_>, input: &[u8]) {
        self.cases += 1;
        shared.cases.fetch_add(1, Ordering::Relaxed);
        match attempt(&self.target, input, shared.measure) {
            Ok(outcome) => {
                if self.kept < KEPT_MAX && self.outcomes.insert(outcome) {
                    self.kept += 1;
                    self.corpus.push(input.to_vec());
                }
            }
            Err(_) => {
                self.has_failed = true;
                let smallest = shrink(input, |input| attempt(&self.target, input, shared.measure).is_err());
                let what = attempt(&self.target, &smallest, shared.measure)
                    .err()
                    .unwrap_or_else(|| "it does not fail every time".into());
                let Target { name: target, promise, .. } = self.target;
                shared.lock().failures.push(Failure { target, promise, what, input: smallest });
            }
        }
    }

    fn report(self, shared: &Shared<'_>) {
        let mut report = shared.lock();
        report.cases += self.cases;
        let (cases, outcomes) = report.targets.entry(self.target.name).or_default();
        *cases += self.cases;
        *outcomes = (*outcomes).max(self.outcomes.len());
    }
}

/// One case: the check itself, no panic, its memory, its time.
fn attempt(target: &Target, input: &[u8], measure: Measure<'_>) -> Result<String, String> {
    let start = Instant::now();
    let mut outcome = Err("the check did not run".to_owned());
    let peak_bytes = measure(&mut || {
        outcome = catch_unwind(AssertUnwindSafe(|| (target.check)(input)))
            .unwrap_or_else(|panic| Err(format!("panic: {}", panic_words(&*panic))));
    });
    let allowed = target.memory.for_input(input);
    if outcome.is_ok() && allowed < peak_bytes {
        return Err(format!(
            "{peak_bytes} bytes of memory for an input of {}, {allowed} allowed",
            input.len()
        ));
    }
    if outcome.is_ok() && CASE_WITHIN < start.elapsed() {
        return Err(format!("it took {} s", start.elapsed().as_secs()));
    }
    outcome
}

fn panic_words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without words")
}
