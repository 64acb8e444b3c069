//! Two thousand Jobs, of which most go when their TTL says: how late, with how many requests, in how much memory.
//!
//! Nothing collects garbage here: a Job that is deleted in the foreground stays, marked, until it is swept.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::Policy;
use crate::bench::ground::{Contender, Ground, Running};
use crate::bench::load;
use crate::bench::server::Requests;
use crate::bench::{Plan, Results};
use crate::failure::{Doing, Failure};
use crate::finish::{End, Finishing};
use crate::kinds;
use crate::poll::{Look, eventually};
use crate::rig;

/// All rows of this kind.
const ROWS: [&str; 6] = ["ttl-late", "ttl-late-p99", "ttl-late-max", "ttl-requests", "ttl-memory", "ttl-cpu"];
const JOBS: usize = 2_000;
const QUICK_JOBS: usize = 400;
/// From the first Job's end until the first deadline, at least.
const LEAD: Duration = Duration::from_secs(5);
/// Deadlines are on so many whole seconds, one after the other: a Job's end and its TTL have no fractions.
const WINDOW_S: i64 = 10;
const DAY_S: i64 = 86_400;
/// Half a minute on an idle machine.
const DEADLINE: Duration = Duration::from_secs(300);

/// Only deletions, and nothing of what is in them, which costs the server next to nothing.
pub const AUDIT_POLICY: &str = r#"{
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{ "level": "Metadata", "verbs": ["delete"] }, { "level": "None" }]
}"#;

/// What becomes of a Job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It goes at its time.
    Goes,
    /// It has a TTL and does not finish.
    Runs,
    /// It finishes and has no TTL.
    HasNone,
    /// Its TTL is raised to a day, between its end and its deadline.
    Raised,
}

/// Whether it is one of these rows.
pub fn is_ttl(row: &str) -> bool {
    ROWS.contains(&row)
}

/// Measures all of these rows.
///
/// # Errors
///
/// When a server or a controller fails; when a Job goes that must stay, stays that must go, or goes before its time.
pub fn measure(ground: &mut Ground<'_>, plan: &Plan, results: &mut Results) -> Result<(), Failure> {
    for (round, who) in plan.turns() {
        plan.say(&format!("{who}: TTLs, round {round}"));
        let count = if plan.is_quick { QUICK_JOBS } else { JOBS };
        turn(ground, who, count, results)?;
    }
    Ok(())
}

fn turn(ground: &mut Ground<'_>, who: Contender, count: usize, results: &mut Results) -> Result<(), Failure> {
    let namespace = ground.fresh_name();
    let began = Instant::now();
    create(ground, &namespace, count)?;
    // As many requests come before the first deadline.
    let lead = LEAD + 2 * began.elapsed();
    let mut running = ground.start_quiet(who)?;
    let (requests, cpu) = (Requests::now(&ground.api)?, running.cpu()?);
    let base_s = Timestamp::now().as_second() + i64::try_from(lead.as_secs()).unwrap_or_default();
    let own = finish(ground, &namespace, count, base_s)?;
    if base_s < Timestamp::now().as_second() {
        return Err(Failure::new("the first deadline came before the last Job had finished"));
    }
    let late = lateness(ground, &namespace, count, base_s, &mut running)?;
    running.rest(Duration::from_secs(1))?;
    let requests = Requests::now(&ground.api)?.since(&requests);
    let rows = [
        ("ttl-late", quantile(&late, 0.5)),
        ("ttl-late-p99", quantile(&late, 0.99)),
        ("ttl-late-max", quantile(&late, 1.0)),
        ("ttl-requests", (requests.for_single("jobs") - own as f64) / late.len() as f64),
        ("ttl-memory", running.resident()?),
        ("ttl-cpu", running.cpu()?.saturating_sub(cpu).as_secs_f64()),
    ];
    rows.into_iter().for_each(|(row, figure)| results.add(row, who, figure));
    let verbs = requests.by_verb("jobs");
    let (gone, peak) = (late.len(), running.peak()? / 1e6);
    results.note(&format!(
        "{who}, ttl: {gone} of {count} Jobs gone; {verbs} ({own} our own); {peak:.1} MB at most"
    ));
    drop(running);
    sweep(ground, &namespace, count)
}

/// Jobs that run.
fn create(ground: &Ground<'_>, namespace: &str, count: usize) -> Result<(), Failure> {
    let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    ground.api.create(&kinds::namespace().path("", ""), &body)?;
    let collection = kinds::job().path(namespace, "");
    load::in_parallel(load::CONNECTIONS, count, |n| {
        ground.loader.create(&collection, &job(n).to_string()).map(drop)
    })?;
    Ok(())
}

/// Has them finish, each as long ago as makes its TTL end in the window, and raises what is to be raised; with how many
/// requests.
fn finish(ground: &Ground<'_>, namespace: &str, count: usize, base_s: i64) -> Result<usize, Failure> {
    let jobs = Finishing::batch();
    let finishing: Vec<usize> = (0..count).filter(|n| fate(*n) != Fate::Runs).collect();
    load::in_parallel(load::CONNECTIONS, finishing.len(), |i| {
        let n = finishing[i];
        let finished_s = due_s(n, base_s) - ttl_s(n);
        let path = format!("{}/status", kinds::job().path(namespace, &name(n)));
        ground.loader.patch(&path, &jobs.status(End::Success, Some(finished_s))?.to_string())
    })?;
    let raised: Vec<usize> = (0..count).filter(|n| fate(*n) == Fate::Raised).collect();
    load::in_parallel(load::CONNECTIONS, raised.len(), |i| {
        let ttl = json!({ "spec": { "ttlSecondsAfterFinished": ttl_s(raised[i]) + DAY_S } });
        ground.loader.patch(&kinds::job().path(namespace, &name(raised[i])), &ttl.to_string())
    })?;
    Ok(finishing.len() + raised.len())
}

/// By how many seconds each Job that went did so after its time, by the API server's own clock, sorted.
fn lateness(
    ground: &Ground<'_>,
    namespace: &str,
    count: usize,
    base_s: i64,
    running: &mut Running,
) -> Result<Vec<f64>, Failure> {
    let expected: BTreeMap<String, i64> =
        (0..count).filter(|n| fate(*n) == Fate::Goes).map(|n| (name(n), due_s(n, base_s))).collect();
    let log = ground.rig.audit_log();
    let deleted = eventually("all Jobs whose time has come are gone", DEADLINE, || {
        running.rest(Duration::from_millis(200))?;
        let deleted = rig::accepted_deletes(&log, namespace)?;
        Ok(match deleted.len() < expected.len() {
            true => Look::NotYet(format!("{} of {}", deleted.len(), expected.len())),
            false => Look::Done(deleted),
        })
    })?;
    let mut late = Vec::with_capacity(deleted.len());
    for (name, delete) in &deleted {
        let Some(due_s) = expected.get(name) else {
            return Err(Failure::new(format!("WRONG DELETE: {name} is to stay")));
        };
        let due = Timestamp::from_second(*due_s).doing(|| "no such time".into())?;
        if delete.received < due {
            return Err(Failure::new(format!("WRONG DELETE: {name} before {due}, at {}", delete.received)));
        }
        late.push(delete.done.duration_since(due).as_secs_f64());
    }
    late.sort_by(f64::total_cmp);
    Ok(late)
}

/// Removes all of them, after a last look at who is there.
fn sweep(ground: &Ground<'_>, namespace: &str, count: usize) -> Result<(), Failure> {
    let (mut going, mut staying) = (Vec::new(), BTreeSet::new());
    load::each_page(&ground.api, &kinds::job(), namespace, |item| {
        let name = item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match item["metadata"]["deletionTimestamp"].is_string() {
            true => going.push(name),
            false => drop(staying.insert(name)),
        }
    })?;
    let expected: BTreeSet<String> = (0..count).filter(|n| fate(*n) != Fate::Goes).map(name).collect();
    if let Some(name) = expected.symmetric_difference(&staying).next() {
        return Err(Failure::new(format!("{name} is not as it should be after all deadlines")));
    }
    load::in_parallel(load::CONNECTIONS, going.len(), |i| {
        let path = kinds::job().path(namespace, &going[i]);
        ground.loader.patch(&path, r#"{"metadata":{"finalizers":null}}"#)
    })?;
    let staying: Vec<String> = staying.into_iter().collect();
    ground.loader.delete_at(staying.len(), Policy::Background, |i| kinds::job().path(namespace, &staying[i]))
}

fn fate(n: usize) -> Fate {
    match n % 20 {
        0 => Fate::Runs,
        1 => Fate::HasNone,
        2 => Fate::Raised,
        _ => Fate::Goes,
    }
}

fn name(n: usize) -> String {
    format!("job-{n}")
}

/// From a minute to an hour.
fn ttl_s(n: usize) -> i64 {
    60 + i64::try_from(n * 7_919 % 3_541).unwrap_or_default()
}

fn due_s(n: usize, base_s: i64) -> i64 {
    base_s + i64::try_from(n / 20).unwrap_or_default() % WINDOW_S
}

/// With a template such as real ones have, of 3 KB as the server stores it.
fn job(n: usize) -> Value {
    let variables: Vec<Value> = (0..16)
        .map(|i| json!({ "name": format!("PIPELINE_SETTING_{i}"), "value": "s3://artifacts.example/checkout/2.14.3" }))
        .collect();
    let container = json!({
        "name": "main",
        "image": "registry.example/team/pipeline:2.14.3",
        "command": ["/bin/sh", "-c", "exec /opt/pipeline/run --stage=evaluate --retries=3 --report=/tmp/report.json"],
        "env": variables,
        "resources": { "requests": { "cpu": "500m", "memory": "1Gi" }, "limits": { "memory": "2Gi" } },
    });
    let mut job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": name(n) },
        "spec": {
            "ttlSecondsAfterFinished": ttl_s(n),
            "template": { "spec": { "restartPolicy": "Never", "containers": [container] } },
        },
    });
    if fate(n) == Fate::HasNone {
        job["spec"]["ttlSecondsAfterFinished"] = Value::Null;
    }
    job
}

/// Of sorted figures, the one that so large a part of them does not exceed.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([0.5, 0.99, 1.0].map(|part| quantile(&hundred, part)), [50.0, 99.0, 100.0]);
        assert_eq!([0.5, 1.0].map(|part| quantile(&[3.0], part)), [3.0, 3.0]);
    }

    #[test]
    fn deadlines_are_spread_and_ttls_are_not_short() {
        let going: Vec<usize> = (0..JOBS).filter(|n| fate(*n) == Fate::Goes).collect();
        assert_eq!(going.len(), 1_700);
        for second in 0..WINDOW_S {
            assert_eq!(going.iter().filter(|n| due_s(**n, 0) == second).count(), 170);
        }
        assert!((0..JOBS).all(|n| (60..=3_600).contains(&ttl_s(n))));
    }
}
