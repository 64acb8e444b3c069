//! TTL after finished. A finish time is what the test writes, so that a deadline is a second or two away whatever the
//! TTL is; all deadlines of a scenario run at the same time.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::Policy;
use crate::e2e::object::{Object, State};
use crate::e2e::scenarios::custom::{create_definition, undefine};
use crate::e2e::world::{DEFAULT_CONCURRENT_GC_SYNCS, HOLD, World};
use crate::failure::Failure;
use crate::finish::{End, Finishing, PROTECT, volcano_definition};
use crate::kinds;
use crate::poll::Look;
use crate::rig;

/// The longest TTL that a Job can have.
const LARGEST_S: i64 = i32::MAX as i64;
const HOUR_S: i64 = 3_600;
/// Long enough for the two or three requests that must come before a deadline.
const MARGIN_S: i64 = 3;

/// An object with a deadline.
struct Job {
    object: Object,
    due_s: i64,
}

/// Every edge of a kind that is always there.
pub fn batch(world: &mut World<'_>) -> Result<(), Failure> {
    edges(world, &Finishing::batch(), Vec::new())
}

/// What a person must hear about, and what nothing follows from.
pub fn warnings(world: &mut World<'_>) -> Result<(), Failure> {
    told(world, &Finishing::batch(), None)
}

/// Spec T4: a kind that comes, goes, and comes again, while the collector runs.
pub fn volcano(world: &mut World<'_>) -> Result<(), Failure> {
    let volcano = Finishing::volcano();
    let ours = volcano_definition()?;
    create_definition(world, &ours, &volcano.resource)?;
    expires(world, &volcano, "first")?;
    undefine(world, &volcano.resource)?;
    create_definition(world, &ours, &volcano.resource)?;
    edges(world, &volcano, Vec::new())?;
    told(world, &volcano, Some(-1))?;
    undefine(world, &volcano.resource)?;
    let Some(theirs) = world.volcano_definition() else { return Ok(()) };
    create_definition(world, theirs, &volcano.resource)?;
    edges(world, &volcano, Vec::new())?;
    // A negative TTL it refuses.
    told(world, &volcano, None)?;
    undefine(world, &volcano.resource)
}

/// A profile from a file, with everything that is off by default.
pub fn invented(world: &mut World<'_>) -> Result<(), Failure> {
    let tasks = Finishing::invented();
    create_definition(world, &tasks.definition(), &tasks.resource)?;
    let now_s = now_s();
    let in_an_hour = (Some(HOUR_S), End::Success, Some(now_s));
    let protected = finished(world, &tasks, "protected", in_an_hour)?.object;
    patch(world, &protected, &json!({ "metadata": { "annotations": { PROTECT: "yes" } } }))?;
    patch(world, &protected, &tasks.ttl(Some(0)))?;
    let owner = finished(world, &tasks, "owner", in_an_hour)?.object;
    let child = world.config_map("child").blocking_owner(&owner).held().create()?;
    patch(world, &owner, &tasks.ttl(Some(0)))?;
    // Without a TTL of its own, and broken: the default of its profile.
    let broken = finished(world, &tasks, "broken", (None, End::Failure, Some(now_s)))?;
    // In the background, the owner goes before what blocks it.
    edges(world, &tasks, vec![Job { object: owner, due_s: now_s + 1 }, Job { due_s: now_s + 2, ..broken }])?;
    world.release(&child)?;
    world.all_gone(&[&child])?;
    world.all_stay(&[&protected])?;
    patch(world, &protected, &json!({ "metadata": { "annotations": { PROTECT: null } } }))?;
    world.all_gone(&[&protected])?;
    told(world, &tasks, Some(-1))?;
    undefine(world, &tasks.resource)
}

/// A Job goes in the foreground, by the TTL's part of the collector, and takes its Pods with it, by the other part.
pub fn cascade(world: &mut World<'_>) -> Result<(), Failure> {
    let batch = Finishing::batch();
    let job = world.object(&batch.resource, "job").body(batch.body(Some(1))).create()?;
    let spec = json!({ "spec": {
        "nodeSelector": { "article.example/no-such-node": "x" },
        "containers": [{ "name": "c", "image": "example.invalid/none" }],
    } });
    let pod = world.object(&kinds::pod(), "pod").body(spec.clone()).controller(&job).create()?;
    let held = world.object(&kinds::pod(), "held-pod").body(spec).controller(&job).held().create()?;
    let result = world.config_map("result").owner(&job).create()?;
    let unrelated = world.config_map("unrelated").create()?;
    world.all_stay(&[&job, &pod, &held, &result])?;
    let end = batch.status(End::Success, Some(now_s()))?;
    patch_status(world, &job, &end)?;
    world.all_gone(&[&pod, &result])?;
    world.becomes(&held, "is being deleted", |state| state.being_deleted && state.has(HOLD))?;
    world
        .becomes(&job, "waits for its Pod", |state| state.being_deleted && state.has("foregroundDeletion"))?;
    world.release(&held)?;
    world.all_gone(&[&held, &job])?;
    world.all_stay(&[&unrelated])
}

/// What a person gets who asks which jobs wait for what.
pub fn list(world: &mut World<'_>) -> Result<(), Failure> {
    let batch = Finishing::batch();
    let now_s = now_s();
    world.object(&batch.resource, "runs").body(batch.body(Some(60))).create()?;
    finished(world, &batch, "stays", (None, End::Failure, Some(now_s)))?;
    finished(world, &batch, "waits", (Some(HOUR_S), End::Success, Some(now_s)))?;
    let said = world.ask_daemon(&["--ttl-list"])?;
    let of_these = |line: &&str| line.split('\t').nth(1) == Some(world.namespace());
    // How long it is until then depends on when one asks.
    let rows: Vec<String> = said
        .lines()
        .filter(of_these)
        .map(|line| line.split(" (in ").next().unwrap_or_default().replace('\t', " "))
        .collect();
    let [finished, due] = [now_s, now_s + HOUR_S].map(|s| Timestamp::from_second(s).unwrap_or_default());
    let of = |rest: String| format!("jobs.batch {} {rest}", world.namespace());
    let expected = [
        of("runs - - 60s not finished".into()),
        of(format!("stays Failed {finished} - never: no TTL")),
        of(format!("waits Complete {finished} {HOUR_S}s {due}")),
    ];
    if rows == expected {
        return Ok(());
    }
    Err(Failure::new(format!("expected {expected:#?}, was told\n{said}")))
}

/// Deadlines come from the objects: a collector that starts has those that another one had, and what happened while
/// none ran.
pub fn restart(world: &mut World<'_>) -> Result<(), Failure> {
    const DEADLINE_S: i64 = 5;
    let batch = Finishing::batch();
    world.start_collector(DEFAULT_CONCURRENT_GC_SYNCS)?;
    let now_s = now_s();
    let done = |ttl_s| (Some(ttl_s), End::Success, Some(now_s));
    let kept = finished(world, &batch, "kept", done(DEADLINE_S))?;
    let lowered = finished(world, &batch, "lowered", done(HOUR_S))?;
    let raised = finished(world, &batch, "raised", done(DEADLINE_S))?;
    // On the same watch as the others, and after them.
    expires(world, &batch, "seen")?;
    world.kill_collector();
    for job in [&kept, &lowered, &raised] {
        if world.state(&job.object)?.is_none() {
            return Err(Failure::new(format!("{} is gone while no collector runs", job.object)));
        }
    }
    patch(world, &lowered.object, &batch.ttl(Some(0)))?;
    patch(world, &raised.object, &batch.ttl(Some(HOUR_S)))?;
    world.start_collector(DEFAULT_CONCURRENT_GC_SYNCS)?;
    let last = finished(world, &batch, "last", done(DEADLINE_S + 1))?;
    go_at_their_time(world, &batch, &[Job { due_s: now_s, ..lowered }, kept, last])?;
    world.all_stay(&[&raised.object])
}

/// What every kind has in common: whatever is to go goes, these others as well, not before its time; and whatever is to
/// stay is there after the last of them, which is due a second after the last deadline that no longer counts.
fn edges(world: &mut World<'_>, kind: &Finishing, others: Vec<Job>) -> Result<(), Failure> {
    let began_s = now_s();
    let well = |ttl_s| (Some(ttl_s), End::Success, Some(began_s));
    let changed = changed(world, kind)?;
    let held = held(world, kind, began_s)?;
    let runs = world.object(&kind.resource, "runs").body(kind.body(Some(0))).create()?;
    let stay = [
        runs,
        finished(world, kind, "without-a-ttl", (None, End::Success, Some(began_s)))?.object,
        finished(world, kind, "largest-ttl", well(LARGEST_S))?.object,
    ];
    let mut go = vec![
        finished(world, kind, "ttl-0", well(0))?,
        finished(world, kind, "ttl-1", well(1))?,
        finished(world, kind, "failed", (Some(2), End::Failure, Some(began_s)))?,
        finished(world, kind, "long-ago", (Some(HOUR_S), End::Success, Some(began_s - 2 * HOUR_S)))?,
        finished(world, kind, "an-hour", (Some(HOUR_S), End::Success, Some(began_s + 2 - HOUR_S)))?,
        finished(world, kind, "last", (Some(MARGIN_S + 1), End::Success, Some(now_s())))?,
    ];
    go.extend(changed.go.into_iter().chain(others));
    go_at_their_time(world, kind, &go)?;
    let stay: Vec<&Object> = stay.iter().chain(&changed.stay).collect();
    world.all_stay(&stay)?;
    asked_once(world, &held)?;
    world.release(&held)?;
    world.all_gone(&[&held])
}

struct Changed {
    go: Vec<Job>,
    stay: Vec<Object>,
}

/// Jobs whose deadlines are changed before they are reached.
fn changed(world: &mut World<'_>, kind: &Finishing) -> Result<Changed, Failure> {
    let soon = || (Some(MARGIN_S), End::Success, Some(now_s()));
    let raised = finished(world, kind, "raised", soon())?.object;
    patch(world, &raised, &kind.ttl(Some(HOUR_S)))?;
    let unset = finished(world, kind, "unset", soon())?.object;
    patch(world, &unset, &kind.ttl(None))?;
    // Another object, which has nothing of the old one but its name.
    let old = finished(world, kind, "again", soon())?.object;
    world.delete(&old, Policy::Background)?;
    let again = finished(world, kind, "again", (Some(HOUR_S), End::Success, Some(now_s())))?.object;

    let now_s = now_s();
    let lowered = finished(world, kind, "lowered", (Some(HOUR_S), End::Success, Some(now_s)))?;
    patch(world, &lowered.object, &kind.ttl(Some(1)))?;
    let set = finished(world, kind, "set", (None, End::Success, Some(now_s)))?;
    patch(world, &set.object, &kind.ttl(Some(2)))?;
    let go = vec![Job { due_s: now_s + 1, ..lowered }, Job { due_s: now_s + 2, ..set }];
    Ok(Changed { go, stay: vec![raised, unset, again] })
}

/// A job whose time has come and that somebody holds.
fn held(world: &mut World<'_>, kind: &Finishing, now_s: i64) -> Result<Object, Failure> {
    let draft = world.object(&kind.resource, "held").body(kind.body(Some(0)));
    let held = draft.held().create()?;
    patch_status(world, &held, &kind.status(End::Success, Some(now_s))?)?;
    Ok(held)
}

/// One delete is enough for an object that is being deleted, however long that takes.
fn asked_once(world: &mut World<'_>, held: &Object) -> Result<(), Failure> {
    world.becomes(held, "is being deleted", |state| state.being_deleted && state.has(HOLD))?;
    let Some(log) = world.audit_log() else { return Ok(()) };
    let deletes = rig::deletes_of(&log, &held.uid)?;
    match &deletes[..] {
        [_] => Ok(()),
        _ => Err(Failure::new(format!("{} deletes of {held}: {deletes:?}", deletes.len()))),
    }
}

/// Jobs that nobody can say a deadline of, and what is said of them. A custom resource's definition may allow a TTL that
/// is none.
fn told(world: &mut World<'_>, kind: &Finishing, invalid_ttl_s: Option<i64>) -> Result<(), Failure> {
    let now_s = now_s();
    let timeless = finished(world, kind, "timeless", (Some(0), End::Success, None))?.object;
    let future = finished(world, kind, "future", (Some(0), End::Success, Some(now_s + HOUR_S)))?.object;
    let mut stay = vec![(timeless, "NoFinishTime"), (future, "FinishedInFuture")];
    if let Some(ttl_s) = invalid_ttl_s {
        let done = (Some(ttl_s), End::Success, Some(now_s - HOUR_S));
        stay.push((finished(world, kind, "invalid", done)?.object, "InvalidTTL"));
    }
    for (job, reason) in &stay {
        world.event(job, reason)?;
    }
    expires(world, kind, "after-those")?;
    let stay: Vec<&Object> = stay.iter().map(|(job, _)| job).collect();
    world.all_stay(&stay)?;
    // Once it says when it finished, it goes; so does one that did not finish in the future after all.
    for job in &stay[..2] {
        patch_status(world, job, &kind.status(End::Success, Some(now_s))?)?;
    }
    world.all_gone(&stay[..2])
}

/// One job with the shortest TTL, which shows that the collector has seen whatever was done to this kind before.
pub fn expires(world: &mut World<'_>, kind: &Finishing, name: &str) -> Result<(), Failure> {
    let job = finished(world, kind, name, (Some(0), End::Success, Some(now_s())))?;
    go_at_their_time(world, kind, &[job])
}

/// Creates an object and has it finish.
fn finished(
    world: &mut World<'_>,
    kind: &Finishing,
    name: &str,
    (ttl_s, end, at_s): (Option<i64>, End, Option<i64>),
) -> Result<Job, Failure> {
    let object = world.object(&kind.resource, name).body(kind.body(ttl_s)).create()?;
    patch_status(world, &object, &kind.status(end, at_s)?)?;
    let due_s = match (ttl_s, at_s) {
        (Some(ttl_s), Some(at_s)) => at_s + ttl_s.max(kind.min_s),
        _ => i64::MAX,
    };
    Ok(Job { object, due_s })
}

/// Waits until all are gone, and fails when one goes before its time.
fn go_at_their_time(world: &mut World<'_>, kind: &Finishing, jobs: &[Job]) -> Result<(), Failure> {
    let path = kind.resource.path(world.namespace(), "");
    world.eventually("every job whose time has come is gone", |api| {
        let list = api.get(&path)?.unwrap_or_default();
        // By now, whatever the list does not show any more has gone.
        let now_s = now_s();
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let states: Vec<State> = items.iter().map(State::of).collect();
        let mut left = Vec::new();
        for Job { object, due_s } in jobs {
            let state = states.iter().find(|state| state.uid == object.uid);
            if state.is_none_or(|state| state.being_deleted) && now_s < *due_s {
                let early_s = due_s - now_s;
                return Err(Failure::new(format!("WRONG DELETE: {object} goes {early_s} s before its time")));
            }
            left.extend(state.map(|state| format!("{object}: {state}")));
        }
        Ok(if left.is_empty() { Look::Done(()) } else { Look::NotYet(left.join("; ")) })
    })
}

fn patch_status(world: &World<'_>, object: &Object, status: &Value) -> Result<(), Failure> {
    patch_at(world, &format!("{}/status", object.path), status)
}

fn patch(world: &World<'_>, object: &Object, change: &Value) -> Result<(), Failure> {
    patch_at(world, &object.path, change)
}

fn patch_at(world: &World<'_>, path: &str, change: &Value) -> Result<(), Failure> {
    match world.api().merge_patch(path, change)? {
        Some(_) => Ok(()),
        None => Err(Failure::new(format!("{path} was gone before it was changed"))),
    }
}

/// The wall clock, in whole seconds, as finish times are.
fn now_s() -> i64 {
    Timestamp::now().as_second()
}
