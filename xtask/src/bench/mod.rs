//! `cargo xtask bench`: the daemon and the reference's collector, measured on the same real API server.
//!
//! Both do the same work, with the same objects, on the same servers, in turns: in every other round the other one comes
//! first. Before that the server, and both collectors, have been at work once without being measured. Both have 20
//! workers and log at `-v 2`. A figure is the median of the rounds; a goal is a ratio of two figures of one run wherever
//! the machine has a say in them. A cascade ends when the API server has nothing left, whatever a collector says. Each
//! row (see [`rows`], or `--list`) says what it measures and how.
//!
//! The loader, the servers and the collector share the machine, so the server's own limit is measured too: no collector
//! can be faster than plain DELETEs over as many connections.

mod binary;
mod cascade;
mod chart;
mod crowd;
mod ground;
mod load;
mod queue;
mod report;
mod rows;
mod scale;
mod server;
mod standing;
mod ttl;

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use crate::bench::ground::{Contender, Daemons, Ground};
use crate::bench::rows::ROWS;
use crate::cargo::{build_release_daemon, build_static_daemon, static_target};
use crate::collector::Duty;
use crate::dirs::RunDir;
use crate::failure::{Doing, Failure};
use crate::flags;
use crate::rig::{self, Binaries};

/// The `dev` profile is the one with these assertions.
const IS_OPTIMIZED: bool = !cfg!(debug_assertions);
const OBJECTS: usize = 105_000;
const QUICK_OBJECTS: usize = 5_250;

/// What is to be measured.
pub struct Plan {
    rows: Vec<&'static str>,
    contenders: Vec<Contender>,
    began: Instant,
    /// How often.
    pub rounds: u32,
    /// In the filled cluster.
    pub objects: usize,
    /// Few objects.
    pub is_quick: bool,
    /// After the start, until a collector counts as settled.
    pub minute: Duration,
    /// How long it is watched when idle.
    pub idle: Duration,
}

impl Plan {
    fn new(flags: &flags::Bench) -> Result<Plan, Failure> {
        if let Some(name) = flags.rows.iter().find(|name| rows::named(name).is_empty()) {
            return Err(Failure::new(format!("no row is named {name}; see --list")));
        }
        let has_floor = |row: &&rows::Row| !flags.quick || row.floor.is_some();
        let all = || ROWS.iter().filter(has_floor).map(|row| row.name).collect();
        let named: Vec<&'static str> = flags.rows.iter().flat_map(|name| rows::named(name)).collect();
        let mut contenders = vec![Contender::Ours, Contender::Reference];
        if flags.with_static {
            contenders.insert(1, Contender::Static);
        }
        Ok(Plan {
            rows: if named.is_empty() { all() } else { named },
            contenders,
            began: Instant::now(),
            rounds: if flags.quick { 1 } else { flags.rounds },
            objects: flags.objects.unwrap_or(if flags.quick { QUICK_OBJECTS } else { OBJECTS }),
            is_quick: flags.quick,
            minute: Duration::from_secs(60),
            idle: Duration::from_secs(20),
        })
    }

    /// Whether one of these rows is to be measured.
    pub fn wants(&self, rows: &[&str]) -> bool {
        rows.iter().any(|row| self.rows.contains(row))
    }

    /// Who takes part.
    pub fn contenders(&self) -> impl Iterator<Item = Contender> {
        self.contenders.iter().copied()
    }

    /// Who is measured when: each in each round, in the opposite order in every other.
    pub fn turns(&self) -> Vec<(u32, Contender)> {
        let turns = (1..=self.rounds).flat_map(|round| {
            let mut order = self.contenders.clone();
            if round % 2 == 0 {
                order.reverse();
            }
            order.into_iter().map(move |who| (round, who))
        });
        turns.collect()
    }

    /// Progress.
    pub fn say(&self, what: &str) {
        eprintln!("{:>5.0} s  {what}", self.began.elapsed().as_secs_f64());
    }
}

/// What was measured.
#[derive(Debug, Default)]
pub struct Results {
    samples: BTreeMap<(&'static str, Contender), Vec<f64>>,
    /// Plain deletions a second.
    pub limits: Vec<f64>,
    /// The same while a collector watches.
    pub watched_limits: Vec<f64>,
    notes: Vec<String>,
}

impl Results {
    /// One more figure.
    pub fn add(&mut self, row: &'static str, who: Contender, figure: f64) {
        self.samples.entry((row, who)).or_default().push(figure);
    }

    /// Something that stands below the table.
    pub fn note(&mut self, note: &str) {
        self.notes.push(note.to_owned());
    }

    /// All figures of one contender in a row.
    pub fn samples(&self, row: &'static str, who: Contender) -> &[f64] {
        self.samples.get(&(row, who)).map_or(&[], Vec::as_slice)
    }

    /// The one that counts.
    pub fn median(&self, row: &'static str, who: Contender) -> Option<f64> {
        median(self.samples(row, who))
    }

    /// What the daemon is compared with in a row.
    pub fn reference(&self, row: &'static str) -> Option<f64> {
        self.median(row, Contender::Reference).or_else(|| self.median(row, Contender::Limited))
    }

    /// The server's own, in objects a second.
    pub fn limit(&self) -> Option<f64> {
        median(&self.limits)
    }

    /// What it reaches while it shows each deletion to a collector.
    pub fn watched_limit(&self) -> Option<f64> {
        median(&self.watched_limits)
    }
}

fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get(sorted.len().saturating_sub(1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// Measures, prints the table, and writes the files that were asked for; fails where a short run is below a floor.
///
/// # Errors
///
/// When something cannot be built or started, a collector ends or does not finish its work, or a signal comes.
pub fn run(flags: &flags::Bench) -> Result<ExitCode, Failure> {
    if flags.list {
        ROWS.iter().for_each(|row| println!("{:<24} {}", row.name, row.what));
        return Ok(ExitCode::SUCCESS);
    }
    let plan = Plan::new(flags)?;
    if !IS_OPTIMIZED {
        return Err(again_optimized());
    }
    let mut dir = RunDir::new("gc-bench")?;
    let mut results = Results::default();
    let needs_servers = plan.rows.iter().any(|row| !queue::is_queue(row));
    let binaries = needs_servers.then(rig::binaries).transpose()?;
    let mut outcome = queue::measure(&plan, &mut results);
    if let (Ok(()), Some(binaries)) = (&outcome, &binaries) {
        outcome = measure(flags, &plan, binaries, &dir, &mut results);
    }
    if flags.keep || outcome.is_err() {
        dir.keep();
        eprintln!("bench: logs are kept in {}", dir.path().display());
    }
    let about = report::About::this_run(&rig::version()?, &plan)?;
    // What was measured before a failure is worth having: it took its time.
    if outcome.is_ok() || report::chosen(&plan, &results).next().is_some() {
        print!("{}", report::table(&plan, &results, &about));
    }
    outcome?;
    if let Some(path) = &flags.json {
        let json = format!("{:#}\n", report::json(&plan, &results, &about));
        std::fs::write(path, json).doing(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = &flags.svg {
        let svg = chart::draw(&plan, &results, &about);
        std::fs::write(path, svg).doing(|| format!("cannot write {}", path.display()))?;
    }
    let below = if plan.is_quick { report::below_floor(&plan, &results) } else { Vec::new() };
    below.iter().for_each(|line| println!("FAILED {line}"));
    Ok(if below.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Replaces this process by the same one in a profile that optimizes (`simulation`, which builds faster than `release`):
/// a loader that is not optimized would take the processor from those who are measured, and could not show the server's
/// limit. Comes back only with the reason why not.
fn again_optimized() -> Failure {
    eprintln!("building xtask (optimized)");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["run", "--quiet", "--profile", "simulation", "--package", "xtask", "--"]);
    cargo.args(std::env::args_os().skip(1));
    #[cfg(unix)]
    let error = std::os::unix::process::CommandExt::exec(&mut cargo);
    #[cfg(not(unix))]
    let error = "this needs Linux";
    Failure::new(format!("cannot start cargo: {error}"))
}

fn measure(
    flags: &flags::Bench,
    plan: &Plan,
    binaries: &Binaries,
    dir: &RunDir,
    results: &mut Results,
) -> Result<(), Failure> {
    let default = flags.daemon.clone().map_or_else(build_release_daemon, Ok)?;
    let wants_static = flags.with_static || plan.wants(&["binary"]);
    let with_static = if wants_static { build_static_daemon()? } else { None };
    if wants_static && with_static.is_none() {
        let target = static_target();
        eprintln!("no static binary: `rustup target add {target}` installs what is missing");
        if flags.with_static {
            return Err(Failure::new(format!("Rust's target {target} is not installed")));
        }
    }
    let daemons = Daemons { default, with_static };
    let is_alone = |row: &str| {
        row == "binary"
            || queue::is_queue(row)
            || scale::is_crowd(row)
            || scale::is_of_kinds(row)
            || ttl::is_ttl(row)
    };
    let standing = |row: &str| !is_cascade(row) && !is_alone(row);
    // Servers of their own for each part, so that the one does not carry the other's history.
    if plan.rows.iter().any(|row| standing(row)) {
        let mut ground = Ground::new(binaries.clone(), &daemons, dir.path())?;
        standing::measure(&mut ground, plan, results)?;
    }
    if plan.rows.iter().any(|row| is_cascade(row)) {
        let mut ground = Ground::new(binaries.clone(), &daemons, dir.path())?;
        cascade::measure(&mut ground, plan, results)?;
    }
    scale::measure(plan, &daemons, dir.path(), results)?;
    if plan.rows.iter().any(|row| scale::is_of_kinds(row)) {
        let mut ground = Ground::new(binaries.clone(), &daemons, dir.path())?;
        scale::kinds(&mut ground, plan, results)?;
    }
    if plan.rows.iter().any(|row| ttl::is_ttl(row)) {
        let mut ground = Ground::with(binaries.clone(), &daemons, dir.path(), ttl::AUDIT_POLICY, Duty::Ttl)?;
        ttl::measure(&mut ground, plan, results)?;
    }
    if plan.wants(&["binary"]) {
        sizes(&daemons, binaries, results)?;
    }
    Ok(())
}

fn is_cascade(row: &str) -> bool {
    const OTHERS: [&str; 4] = ["requests-per-dependent", "plain-delete", "watched-delete", "definition"];
    OTHERS.contains(&row) || ["background", "foreground", "orphan"].iter().any(|part| row.starts_with(part))
}

fn sizes(daemons: &Daemons, binaries: &Binaries, results: &mut Results) -> Result<(), Failure> {
    let ours = daemons.with_static.as_ref().unwrap_or(&daemons.default);
    for (who, path) in [(Contender::Ours, ours), (Contender::Reference, &binaries.kube_controller_manager())]
    {
        let (bytes, is_static) = binary::inspect(path)?;
        results.add("binary", who, bytes);
        let linked = if is_static { "static" } else { "needs the system's C library" };
        results.note(&format!("{who}, binary: {linked}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn plan(arguments: &[&str]) -> Result<Plan, Failure> {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            flags: flags::Bench,
        }
        Plan::new(&Line::try_parse_from([&["bench"], arguments].concat()).unwrap().flags)
    }

    #[test]
    fn rounds_alternate() {
        let turns: Vec<String> =
            plan(&["--rounds", "2"]).unwrap().turns().iter().map(|(n, who)| format!("{n} {who}")).collect();
        assert_eq!(turns, ["1 ours", "1 reference", "2 reference", "2 ours"]);
    }

    #[test]
    fn a_short_run_has_what_has_a_floor_and_unknown_rows_are_refused() {
        let quick = plan(&["--quick"]).unwrap();
        assert!(quick.wants(&["background"]) && !quick.wants(&["definition"]));
        let chosen = plan(&["--quick", "--rows", "idle,definition"]).unwrap();
        assert!(chosen.wants(&["definition"]) && !chosen.wants(&["background"]));
        assert!(plan(&["--rows", "nonsense"]).is_err());
        let queue = plan(&["--rows", "queue"]).unwrap();
        assert!(queue.rows.len() == 9 && queue.rows.iter().all(|row| queue::is_queue(row)));
        assert_eq!(plan(&["--rows", "background"]).unwrap().rows, ["background"]);
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
    }
}
