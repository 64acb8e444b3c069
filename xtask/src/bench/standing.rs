//! What it costs to stand by: memory, start, first sync, requests while nothing changes.

use std::time::Duration;

use crate::bench::ground::{Contender, Ground};
use crate::bench::load::Shape;
use crate::bench::server::Requests;
use crate::bench::{Plan, Results};
use crate::failure::Failure;
use crate::kinds;

/// Dependents of each owner in the filled cluster.
const EACH: usize = 20;
/// Until an empty cluster's collector is looked at.
const EMPTY: Duration = Duration::from_secs(10);

const FILLED: [&str; 8] = [
    "memory-filled",
    "memory-peak",
    "bytes-per-object",
    "cpu-sync",
    "cpu-settled",
    "time-sync",
    "idle-requests",
    "idle",
];

/// Measures what was asked for of these rows.
///
/// # Errors
///
/// When a server or a collector fails.
pub fn measure(ground: &mut Ground<'_>, plan: &Plan, results: &mut Results) -> Result<(), Failure> {
    let (wants_empty, wants_filled) = (plan.wants(&["memory-empty"]), plan.wants(&FILLED));
    if wants_empty || plan.wants(&["bytes-per-object"]) {
        for (round, who) in plan.turns() {
            plan.say(&format!("{who}: an empty cluster, round {round}"));
            let mut running = ground.start(who)?;
            running.rest(EMPTY)?;
            results.add("memory-empty", who, running.resident()?);
        }
    }
    if wants_filled {
        let shape = Shape { owners: plan.objects.div_ceil(EACH + 1), each: EACH, blocking: false };
        let objects = shape.owners + shape.dependents();
        let namespace = ground.fresh_name();
        plan.say(&format!("filling a cluster with {objects} objects"));
        let began = std::time::Instant::now();
        ground.loader.fill(&namespace, shape)?;
        plan.say(&format!("{:.0} objects a second", objects as f64 / began.elapsed().as_secs_f64()));
        for who in plan.contenders() {
            plan.say(&format!("{who}: warm-up"));
            ground.start_quiet(who)?;
        }
        for (round, who) in plan.turns() {
            if who == Contender::Ours && plan.wants(&["time-sync"]) {
                let took = ground.peer.list(kinds::config_map())?.as_secs_f64();
                results.note(&format!("the list of the filled cluster, read and thrown away: {took:.2} s"));
            }
            plan.say(&format!("{who}: {objects} objects, round {round}"));
            filled(ground, plan, who, results)?;
        }
        bytes_per_object(plan, objects, results);
    }
    Ok(())
}

fn filled(
    ground: &mut Ground<'_>,
    plan: &Plan,
    who: Contender,
    results: &mut Results,
) -> Result<(), Failure> {
    let before = Requests::now(&ground.api)?;
    let mut running = ground.start(who)?;
    results.add("time-sync", who, running.synced.as_secs_f64());
    results.add("cpu-sync", who, running.cpu_at_sync.as_secs_f64());
    if plan.is_quick {
        running.wait_until_quiet()?;
    } else {
        running.rest(plan.minute.saturating_sub(running.started.elapsed()))?;
    }
    results.add("cpu-settled", who, running.cpu()?.as_secs_f64());
    results.add("memory-filled", who, running.resident()?);
    results.add("memory-peak", who, running.peak()?);
    if plan.wants(&["idle"]) {
        let cpu = running.cpu()?;
        running.rest(plan.idle)?;
        let used = running.cpu()?.saturating_sub(cpu).as_secs_f64();
        results.add("idle", who, 100.0 * used / plan.idle.as_secs_f64());
    }
    let requests = Requests::now(&ground.api)?.since(&before);
    results.add("idle-requests", who, requests.for_single("configmaps"));
    results
        .note(&format!("{who}, filled cluster: requests for configmaps: {}", requests.by_verb("configmaps")));
    Ok(())
}

fn bytes_per_object(plan: &Plan, objects: usize, results: &mut Results) {
    for who in plan.contenders() {
        let [empty, filled] = ["memory-empty", "memory-filled"].map(|row| results.median(row, who));
        if let (Some(empty), Some(filled)) = (empty, filled) {
            results.add("bytes-per-object", who, (filled - empty).max(0.0) / objects as f64);
        }
    }
}
