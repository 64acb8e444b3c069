//! Jobs, in one world of ten: users create them, finish them, and change their minds about the TTL; clocks are wrong. And
//! what is true of them, from the server's history of writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kinds::JOB;
use super::link::Link;
use super::random::Random;
use super::truth::{Check, Violation};
use super::users::{HOLDS, NAMESPACES, USER};
use super::world::World;
use crate::sim::{Request, Write};

/// Of a thousand worlds, so many have jobs. Those that have none are what they were before there were any.
const WORLDS_PERMILLE: u32 = 100;
/// Of a thousand steps of the storm in such a world, so many are of this page.
pub(super) const STEPS_PERMILLE: u32 = 200;
/// Few names, so that they are taken again.
const NAMES: [&str; 3] = ["j0", "j1", "j2"];
/// Seconds: a storm takes a minute or two.
const TTLS: [i64; 8] = [0, 0, 1, 2, 5, 10, 30, 300];
/// By how much the collector's clock is ahead, in milliseconds.
const SKEWS_MS: [i64; 7] = [0, 0, 700, 20_000, 3_600_000, -700, -20_000];

/// Whether a seed's world has jobs, from a stream of its own.
pub(super) fn has_jobs(seed: u64) -> bool {
    Random::apart(seed, 4).permille(WORLDS_PERMILLE)
}

/// Every version of every job that the server has had: by UID and resourceVersion.
#[derive(Clone, Debug, Default)]
pub(super) struct Jobs {
    versions: BTreeMap<String, BTreeMap<String, Arc<Value>>>,
    /// How many the TTL controller has deleted.
    pub expired: u64,
}

impl Jobs {
    pub(super) fn take(&mut self, write: &Write) {
        let Some(after) = &write.after else { return };
        let text =
            |pointer: &str| after.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let versions = self.versions.entry(text("/metadata/uid")).or_default();
        versions.insert(text("/metadata/resourceVersion"), after.clone());
    }

    pub(super) fn version(&self, uid: &str, resource_version: &str) -> Option<&Value> {
        self.versions.get(uid)?.get(resource_version).map(|job| &**job)
    }

    /// The server is set back; what watches had shown before is still on its way.
    pub(super) fn go_back_from(&mut self, now: Jobs) {
        self.expired = now.expired;
        for (uid, versions) in now.versions {
            let known = self.versions.entry(uid).or_default();
            for (version, job) in versions {
                known.entry(version).or_insert(job);
            }
        }
    }
}

/// When a job is due: in Unix milliseconds; never if it has not finished, does not say when, or has no TTL. Worked out
/// from what it says, not by what is tried here.
pub(super) fn due_ms(job: &Value) -> Option<i64> {
    let ttl = job.pointer("/spec/ttlSecondsAfterFinished")?.as_i64().filter(|ttl| 0 <= *ttl)?;
    let conditions = job.pointer("/status/conditions")?.as_array()?;
    let ended = conditions.iter().find(|condition| {
        condition["status"] == "True" && (condition["type"] == "Complete" || condition["type"] == "Failed")
    })?;
    let finished: Timestamp = ended["lastTransitionTime"].as_str()?.parse().ok()?;
    Some(finished.as_millisecond() + ttl * 1_000)
}

/// The TTL controller has written: it may do nothing but begin the deletion of a job whose time has come, by the server's
/// clock, at the version that it has.
pub(super) fn judge(write: &Write, now_ms: i64) -> Result<(), Violation> {
    let what = format!("{} of {}", write.resource, write.key);
    let is_deleting = |job: &Option<Arc<Value>>| {
        job.as_ref().is_some_and(|job| job.pointer("/metadata/deletionTimestamp").is_some())
    };
    let Some(before) = &write.before else { return Err(Violation::new(Check::OtherWrite, what)) };
    let begins = !is_deleting(&write.before) && (write.after.is_none() || is_deleting(&write.after));
    if write.resource != JOB.store() || !begins {
        return Err(Violation::new(Check::OtherWrite, what));
    }
    match due_ms(before) {
        Some(due_ms) if due_ms <= now_ms => Ok(()),
        Some(due_ms) => {
            let early = due_ms - now_ms;
            Err(Violation::new(Check::ExpiredTooEarly, format!("{what}: it is due {early} ms later")))
        }
        None => Err(Violation::new(Check::ExpiredTooEarly, format!("{what}: it is never due"))),
    }
}

/// One thing that somebody does to a job, or to a clock; says what.
pub(super) fn act(world: &mut World<'_>, chance: &mut Random) -> Result<String, Violation> {
    let link = &mut world.link;
    match chance.below(20) {
        0..=4 => create(link, chance),
        5..=10 => finish(link, chance),
        11..=15 => change_ttl(link, chance),
        16 => create_again(link, chance),
        17 => label(link, chance),
        _ => {
            link.clock_ahead_ms = chance.pick(&SKEWS_MS).copied().unwrap_or_default();
            Ok(format!("the collector's clock is {} ms ahead", link.clock_ahead_ms))
        }
    }
}

pub(super) fn create(link: &mut Link, chance: &mut Random) -> Result<String, Violation> {
    let namespace = chance.pick(&NAMESPACES).copied().unwrap_or_default();
    let name = chance.pick(&NAMES).copied().unwrap_or_default();
    create_named(link, chance, namespace, name)
}

fn create_named(
    link: &mut Link,
    chance: &mut Random,
    namespace: &str,
    name: &str,
) -> Result<String, Violation> {
    let finalizers: Vec<&str> = if chance.permille(150) { vec![HOLDS[0]] } else { Vec::new() };
    let spec = if chance.permille(800) { json!({"ttlSecondsAfterFinished": ttl(chance)}) } else { json!({}) };
    let body = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "finalizers": finalizers}, "spec": spec,
    });
    let code = link.ask(&Request::post(&JOB.path(namespace, ""), &body).from_agent(USER))?.code;
    Ok(format!("creates job/{name} @{namespace} {spec} {finalizers:?}: {code}"))
}

fn ttl(chance: &mut Random) -> i64 {
    chance.pick(&TTLS).copied().unwrap_or_default()
}

/// Whoever runs jobs writes that one has ended; sometimes by a clock that is ahead, sometimes without a time, sometimes it
/// has not ended after all.
fn finish(link: &mut Link, chance: &mut Random) -> Result<String, Violation> {
    let Some((path, shown)) = any(link, chance) else { return Ok("finds no job to finish".into()) };
    let ahead = match chance.below(12) {
        0 => Duration::from_secs(20),
        _ => Duration::ZERO,
    };
    let at = Timestamp::from_second((link.server_ms() / 1_000) + i64::try_from(ahead.as_secs()).unwrap_or(0));
    let kind = if chance.permille(700) { "Complete" } else { "Failed" };
    let status = if chance.permille(900) { "True" } else { "False" };
    let mut condition = json!({"type": kind, "status": status});
    if chance.permille(950) {
        condition["lastTransitionTime"] = at.unwrap_or_default().to_string().into();
    }
    let status = json!({"status": {"conditions": [condition]}});
    let code = link.ask(&Request::merge_patch(&format!("{path}/status"), &status).from_agent(USER))?.code;
    Ok(format!("finishes {shown} {condition}: {code}"))
}

/// Set, raised, lowered, taken away, and what no TTL can be.
fn change_ttl(link: &mut Link, chance: &mut Random) -> Result<String, Violation> {
    let Some((path, shown)) = any(link, chance) else { return Ok("finds no job with a TTL".into()) };
    let ttl = match chance.below(8) {
        0 | 1 => Value::Null,
        2 => json!(-1),
        _ => json!(ttl(chance)),
    };
    let body = json!({"spec": {"ttlSecondsAfterFinished": ttl}});
    let code = link.ask(&Request::merge_patch(&path, &body).from_agent(USER))?.code;
    Ok(format!("sets the TTL of {shown} to {ttl}: {code}"))
}

/// Somebody else writes to it all the time.
fn label(link: &mut Link, chance: &mut Random) -> Result<String, Violation> {
    let Some((path, shown)) = any(link, chance) else { return Ok("finds no job to label".into()) };
    let body = json!({"metadata": {"labels": {"stamp": chance.next().to_string()}}});
    let code = link.ask(&Request::merge_patch(&path, &body).from_agent(USER))?.code;
    Ok(format!("labels {shown}: {code}"))
}

/// A job goes, and another one takes its name at once.
fn create_again(link: &mut Link, chance: &mut Random) -> Result<String, Violation> {
    let Some((path, shown)) = any(link, chance) else { return Ok("finds no job to run again".into()) };
    let path = format!("{path}?propagationPolicy=Background");
    let code = link.ask(&Request::delete(&path).from_agent(USER))?.code;
    let (namespace, name) = shown.split_once('/').unwrap_or_default();
    let said = create_named(link, chance, namespace, name)?;
    Ok(format!("deletes {shown}: {code}, and {said}"))
}

/// The path and the name of one of the jobs.
fn any(link: &Link, chance: &mut Random) -> Option<(String, String)> {
    let is_job = |object: &&super::truth::Object| object.kind == &JOB;
    let count = link.truth.objects.values().filter(is_job).count();
    let job = link.truth.objects.values().filter(is_job).nth(chance.below(count))?;
    let (namespace, name) = (&job.meta.namespace, &job.meta.name);
    Some((JOB.path(namespace, name), format!("{namespace}/{name}")))
}
