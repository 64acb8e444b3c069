//! `cargo xtask differential`: the same random histories against two real API servers, one with the reference's
//! collector (kube-controller-manager with the garbage-collector-controller and no other), one with the daemon.
//!
//! A history (see [`generate`]) is 10 to 30 steps of users and other controllers: objects of five kinds, namespaced and
//! cluster-scoped, built-in and custom, are created with right and wrong owners, deleted with every policy and without
//! one, deleted again, re-parented (also when they, or their owners, are being deleted already), held by finalizers of
//! others for a while or to the end, re-created under names that were used before; namespaces are deleted with what is in
//! them. Owners are named from the wrong namespace, under the wrong name or kind, and by another version than the one that
//! is watched. In three histories of ten the collector is killed in the middle of every second burst and started after it;
//! in one of ten a definition is removed with all its objects, objects get owners of the kind that nobody serves, and the
//! definition comes back. From [`MANY`] histories on, a run in which one of these was missing has failed. Steps
//! come in bursts. After each burst one waits until both servers have the same objects, nothing has changed for
//! [`PATIENCE`]'s `quiet`, and both collectors' queues are empty; then the next burst is made from what is there. Objects,
//! their references (by order of creation, since UIDs differ), finalizers and deletion must be equal after *every* burst;
//! where they are not within its `deadline`, the history has failed. Many histories run at once on the same two servers,
//! each in two namespaces of its own.
//!
//! # What is left out
//!
//! Some outcomes depend on timing, with either collector. Histories are made so that none of these happens; each rule
//! stands where it is applied, in [`burst`]:
//!
//! - *A user against the collector*: within a burst, an object that the collector may be deleting is not re-parented,
//!   held, released, or deleted with Orphan.
//! - *Orphaning what has just been created*: an owner is deleted with Orphan only when its dependents were there before
//!   the burst (kubernetes/kubernetes#131307).
//! - *Half-way states*: where an object stays in the middle of a cascade, held by a finalizer or impossible to decide,
//!   only one thing happens around it in a burst, and not what leads to one of the four races that
//!   `Burst::is_confluent` lists.
//! - *A start of the collector* adds one more race to these, see `Burst::has_loose_edges`.
//! - *A definition that goes*: what other controllers hold is released before, since it would hold the definition;
//!   references that cannot be decided come only afterwards.
//!
//! And some outcomes differ on purpose. They are not part of random histories, but shown by scripts, with both outcomes
//! asserted: see [`on_purpose`] and [`evidence`]. A second DELETE in the foreground while another finalizer holds the
//! object, and an owner with a name that no object can have, are no such differences: both collectors end alike, and
//! histories have both.

mod burst;
mod evidence;
mod generate;
mod model;
mod on_purpose;
mod pair;
mod parse;
mod side;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::cargo::build_daemon;
use crate::collector::Program;
use crate::differential::generate::{Class, Feature, Generator};
use crate::differential::model::{Snapshot, Step, text};
use crate::differential::pair::{Pair, Patience, Settled};
use crate::differential::side::Side;
use crate::dirs::RunDir;
use crate::failure::Failure;
use crate::flags::{self, CollectorKind};
use crate::interrupt;
use crate::rig::{Rig, binaries};

/// Histories at once: enough to share the waits, few enough for the two servers to answer at once.
const AT_ONCE: usize = 30;
/// From so many histories on, everything that can be in one must have been in one.
const MANY: u64 = 60;
/// Back-off included, a collector is done within seconds; an item that is retried is retried several times.
const PATIENCE: Patience = Patience {
    quiet: Duration::from_secs(1),
    stale: Duration::from_secs(15),
    deadline: Duration::from_secs(45),
};
/// The reference looks for a kind that has come back every 30 s, and has backed off from what waits for it.
const PATIENCE_WITH_DEFINITIONS: Patience =
    Patience { stale: Duration::from_secs(100), deadline: Duration::from_secs(150), ..PATIENCE };

/// Runs the scripts and the histories; the exit code says whether all passed.
///
/// # Errors
///
/// When a server or a collector cannot be had, or a signal comes.
pub fn run(flags: &flags::Differential) -> Result<ExitCode, Failure> {
    let mut run_dir = RunDir::new("gc-differential")?;
    let mut pair = start(flags, &run_dir)?;
    let outcome = compare(flags, &mut pair);
    let failed = outcome.as_ref().map_or(1, |tally| tally.failed);
    if failed > 0 {
        run_dir.keep();
        pair.keep_files();
        println!("{}", pair.logs());
    }
    let tally = outcome?;
    println!("{} passed, {} failed; {}", tally.passed, tally.failed, tally.had());
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Processes are started on this thread, see [`crate::process`].
fn start(flags: &flags::Differential, run_dir: &RunDir) -> Result<Pair, Failure> {
    let mut sides = Vec::new();
    for (name, collector) in [("reference", CollectorKind::Reference), ("ours", flags.collector)] {
        let rig = Rig::start(binaries()?)?;
        let program = match collector {
            CollectorKind::Reference => Program::Reference(rig.reference()),
            CollectorKind::Daemon => Program::Daemon(flags.daemon.clone().map_or_else(build_daemon, Ok)?),
        };
        let logs = run_dir.file(name);
        std::fs::create_dir(&logs).map_err(|e| Failure::new(format!("{}: {e}", logs.display())))?;
        sides.push(Side::start(name, rig, program, &logs)?);
    }
    Pair::new(sides).ok_or_else(|| Failure::new("there are two sides"))
}

#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    /// How many histories had what.
    had: BTreeMap<Feature, u64>,
}

impl Tally {
    fn had(&self) -> String {
        let each = |feature| format!("{feature:?} {}", self.had.get(&feature).copied().unwrap_or_default());
        Feature::ALL.map(each).join(", ")
    }
}

fn compare(flags: &flags::Differential, pair: &mut Pair) -> Result<Tally, Failure> {
    let start = Instant::now();
    let mut tally = Tally::default();
    if flags.collector == CollectorKind::Daemon {
        tally.failed += on_purpose::run(pair)?;
    }
    let mut classes: BTreeMap<Class, Vec<u64>> = BTreeMap::new();
    for seed in flags.from..flags.from.saturating_add(flags.histories) {
        classes.entry(Class::of(seed)).or_default().push(seed);
    }
    for (class, seeds) in classes {
        for seeds in seeds.chunks(AT_ONCE) {
            run_batch(pair, (class, seeds), flags.print, &mut tally)?;
            let (done, of, took_s) =
                (tally.passed + tally.failed, flags.histories, start.elapsed().as_secs());
            eprintln!("differential: {done} of {of} histories, {} failed, {took_s} s", tally.failed);
        }
    }
    let missing = Feature::ALL.into_iter().find(|feature| !tally.had.contains_key(feature));
    if let Some(missing) = missing.filter(|_| flags.histories >= MANY) {
        println!("FAILED: no history had {missing:?}, so that nothing is known of it");
        tally.failed += 1;
    }
    Ok(tally)
}

/// A history under way.
struct History {
    seed: u64,
    name: String,
    generator: Generator,
    /// One inner list a burst.
    bursts: Vec<Vec<Step>>,
    /// What there was after the last one.
    end: Snapshot,
    /// Why it failed.
    failure: Option<String>,
    is_over: bool,
}

/// Runs histories of one class side by side.
fn run_batch(
    pair: &mut Pair,
    (class, seeds): (Class, &[u64]),
    print: bool,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let patience = if class == Class::Definitions { PATIENCE_WITH_DEFINITIONS } else { PATIENCE };
    let mut histories: Vec<History> = (seeds.iter())
        .map(|&seed| History {
            seed,
            name: format!("h{seed}"),
            generator: Generator::new(seed),
            bursts: Vec::new(),
            end: Snapshot::new(),
            failure: None,
            is_over: false,
        })
        .collect();
    let names: Vec<String> = histories.iter().map(|history| history.name.clone()).collect();
    pair.begin(&names)?;
    let mut settled = Settled::default();
    loop {
        interrupt::check()?;
        let mut active = Vec::new();
        for history in &mut histories {
            if let Some(steps) = history.next(settled.left(&history.name)) {
                active.push((history.name.clone(), steps));
            }
        }
        if active.is_empty() {
            break;
        }
        let refused = pair.execute(&active)?;
        let names: Vec<String> = active.into_iter().map(|(name, _)| name).collect();
        settled = pair.settle(&names, patience)?;
        for history in histories.iter_mut().filter(|history| names.contains(&history.name)) {
            history.judge(&settled, refused.get(&history.name));
        }
    }
    pair.end(&names)?;
    for history in &histories {
        let count = if history.failure.is_some() { &mut tally.failed } else { &mut tally.passed };
        *count += 1;
        for feature in history.generator.features() {
            *tally.had.entry(*feature).or_default() += 1;
        }
        if print || history.failure.is_some() {
            history.print();
        }
    }
    Ok(())
}

impl History {
    /// The next burst, unless it is over.
    fn next(&mut self, now: &Snapshot) -> Option<Vec<Step>> {
        if self.is_over {
            return None;
        }
        let steps = self.generator.burst(now);
        self.is_over = steps.is_none();
        self.bursts.extend(steps.clone());
        steps
    }

    fn judge(&mut self, settled: &Settled, refused: Option<&String>) {
        let (left, right) = (settled.left(&self.name), settled.right(&self.name));
        if let Some(refused) = refused {
            self.failure = Some(refused.clone());
        } else if left != right {
            let (left, right) = (text(left), text(right));
            self.failure =
                Some(format!("reference:\n{left}ours:\n{right}difference:\n{}", diff(&left, &right)));
        }
        self.is_over |= self.failure.is_some();
        self.end.clone_from(left);
    }

    fn print(&self) {
        let verdict = if self.failure.is_some() { "FAILED" } else { "ok" };
        println!("{verdict} seed {}\nsteps:", self.seed);
        for burst in &self.bursts {
            for step in burst {
                println!("  {step}");
            }
            println!("  (wait)");
        }
        match &self.failure {
            None => println!("both:\n{}", text(&self.end)),
            Some(failure) => {
                println!("{failure}again: cargo xtask differential --from {} --histories 1\n", self.seed);
            }
        }
    }
}

/// The lines that only one side has.
fn diff(left: &str, right: &str) -> String {
    let only = |these: &str, those: &str, sign: char| -> String {
        let those: Vec<&str> = those.lines().collect();
        let lines = these.lines().filter(|line| !those.contains(line));
        lines.map(|line| format!("{sign} {line}\n")).collect()
    };
    only(left, right, '-') + &only(right, left, '+')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a server: every step takes effect and no collector runs. It is about the generator only.
    #[test]
    fn a_history_is_a_function_of_its_seed() {
        let made = |seed: u64| {
            let mut generator = Generator::new(seed);
            let steps = generator.burst(&Snapshot::new()).unwrap();
            steps.iter().map(|step| format!("{step}\n")).collect::<String>()
        };
        assert_eq!(made(7), made(7));
        assert_ne!(made(7), made(8));
        assert!(made(7).contains("create"), "{}", made(7));
    }

    #[test]
    fn a_difference_is_shown_by_its_lines() {
        assert_eq!(diff("a\nb\n", "b\nc\n"), "- a\n+ c\n");
    }
}
