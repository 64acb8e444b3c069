//! How fast a deletion spreads, and what it costs.

use std::thread;
use std::time::{Duration, Instant};

use gc_client::ApiResource;
use serde_json::json;

use crate::api::{Api, Policy};
use crate::bench::ground::{Contender, Ground, Running, WORKERS};
use crate::bench::load::{self, Made, Shape};
use crate::bench::server::Requests;
use crate::bench::{Plan, Results};
use crate::failure::Failure;
use crate::interrupt;
use crate::kinds;

/// Between two looks at what is left: a fraction of the shortest cascade, and little work for the server.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The reference needs 20 s for its slowest; a limited one a minute; machines are busy.
const DEADLINE: Duration = Duration::from_secs(300);
/// A new definition is served within a second or two.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

/// Objects that are made and deleted before anything is measured.
const WARM_UP: usize = 2_000;

/// A cascade that is measured as a rate or a time.
#[derive(Clone, Copy)]
struct Cascade {
    row: &'static str,
    shape: Shape,
    policy: Policy,
}

/// Measures what was asked for of these rows.
///
/// # Errors
///
/// When a server or a collector fails, or something is left that must go.
pub fn measure(ground: &mut Ground<'_>, plan: &Plan, results: &mut Results) -> Result<(), Failure> {
    plan.say("warm-up: plain DELETEs");
    plain(ground, WARM_UP, false)?;
    let [one, many] = if plan.is_quick { [(1, 1_000), (100, 10)] } else { [(1, 5_000), (500, 10)] };
    let shape = |(owners, each), blocking| Shape { owners, each, blocking };
    let cascades = [
        Cascade { row: "background", shape: background(plan), policy: Policy::Background },
        Cascade { row: "foreground-one", shape: shape(one, true), policy: Policy::Foreground },
        Cascade { row: "foreground-many", shape: shape(many, true), policy: Policy::Foreground },
        Cascade { row: "orphan-one", shape: shape(one, false), policy: Policy::Orphan },
    ];
    for (round, who) in plan.turns() {
        if who == Contender::Ours && plan.wants(rows_of("background")) {
            limits(ground, plan, round, results)?;
        }
        for cascade in cascades.iter().filter(|cascade| plan.wants(rows_of(cascade.row))) {
            plan.say(&format!("{who}: {}, round {round}", cascade.row));
            cascade.run(ground, plan, who, results)?;
        }
        if plan.wants(&["definition"]) {
            plan.say(&format!("{who}: definition, round {round}"));
            results.add("definition", who, definition(ground, who)?);
        }
    }
    for who in plan.contenders() {
        let rate = results.median("background", who);
        for (row, limit) in [("plain-delete", results.limit()), ("watched-delete", results.watched_limit())] {
            if let (Some(rate), Some(limit)) = (rate, limit) {
                results.add(row, who, 100.0 * rate / limit);
            }
        }
    }
    if plan.wants(&["background-limited"]) {
        let shape = shape((30, 20), false);
        let cascade = Cascade { row: "background-limited", shape, policy: Policy::Background };
        for who in [Contender::Ours, Contender::Limited] {
            plan.say(&format!("{who}: background-limited"));
            cascade.run(ground, plan, who, results)?;
        }
    }
    Ok(())
}

/// The rows that come from running the cascade of a row.
fn rows_of(row: &'static str) -> &'static [&'static str] {
    match row {
        "background" => &["background", "requests-per-dependent", "plain-delete", "watched-delete"],
        "foreground-one" => &["foreground-one"],
        "foreground-many" => &["foreground-many"],
        _ => &["orphan-one", "orphan-memory", "orphan-cpu"],
    }
}

fn background(plan: &Plan) -> Shape {
    Shape { owners: if plan.is_quick { 200 } else { 1_000 }, each: 20, blocking: false }
}

impl Cascade {
    fn run(
        self,
        ground: &mut Ground<'_>,
        plan: &Plan,
        who: Contender,
        results: &mut Results,
    ) -> Result<(), Failure> {
        let namespace = ground.fresh_name();
        let owners = ground.loader.fill(&namespace, self.shape)?;
        let mut running = ground.start_quiet(who)?;
        let requests = Requests::now(&ground.api)?;
        let (cpu, resident) = (running.cpu()?, running.resident()?);
        let (took, peak) = self.time(ground, &namespace, &owners, &mut running)?;
        let dependents = self.shape.dependents() as f64;
        let cpu = running.cpu()?.saturating_sub(cpu).as_secs_f64();
        if self.policy == Policy::Orphan {
            results.add("orphan-one", who, took.as_secs_f64());
            results.add("orphan-memory", who, (peak - resident).max(0.0));
            results.add("orphan-cpu", who, cpu);
            check_orphans(&ground.api, &namespace, self.shape.dependents())?;
            drop(running);
            ground.loader.sweep(&ground.api, &namespace)?;
        } else {
            results.add(self.row, who, dependents / took.as_secs_f64());
        }
        let requests = Requests::now(&ground.api)?.since(&requests);
        if self.row == "background" {
            let own = requests.for_single("configmaps") - owners.len() as f64;
            results.add("requests-per-dependent", who, own / dependents);
        }
        if self.policy != Policy::Orphan {
            let verbs = requests.by_verb("configmaps");
            let note = format!("{who}, {}: {:.2} s, {cpu:.2} CPU-s, {verbs}", self.row, took.as_secs_f64());
            results.note(&note);
        }
        plan.say(&format!("{who}: {} in {:.2} s", self.row, took.as_secs_f64()));
        Ok(())
    }

    /// Deletes the owners and waits until the API server has nothing left, or, for orphans, no owner; how long that
    /// took, and the most that was resident meanwhile.
    fn time(
        self,
        ground: &Ground<'_>,
        namespace: &str,
        owners: &[Made],
        running: &mut Running,
    ) -> Result<(Duration, f64), Failure> {
        let began = Instant::now();
        ground.loader.delete(namespace, owners, self.policy)?;
        let mut peak = 0_f64;
        loop {
            interrupt::check()?;
            peak = peak.max(running.resident()?);
            let left = if self.policy == Policy::Orphan {
                let owner = kinds::config_map().path(namespace, &owners[0].name);
                usize::from(ground.api.get(&owner)?.is_some())
            } else {
                load::remaining(&ground.api, namespace)?
            };
            let took = began.elapsed();
            if left == 0 {
                return Ok((took, peak));
            }
            if took > DEADLINE {
                let tail = running.log_tail();
                return Err(Failure::new(format!(
                    "{}: {left} objects left after {took:?}\n{tail}",
                    self.row
                )));
            }
            running.rest(LOOK_EVERY)?;
        }
    }
}

/// Fails when an orphan is gone, or still has a reference.
fn check_orphans(api: &Api, namespace: &str, expected: usize) -> Result<(), Failure> {
    let (mut count, mut bound) = (0, 0);
    load::each_page(api, &kinds::config_map(), namespace, |item| {
        count += 1;
        bound += usize::from(item["metadata"]["ownerReferences"].is_array());
    })?;
    if (count, bound) == (expected, 0) {
        return Ok(());
    }
    Err(Failure::new(format!("{count} of {expected} orphans are there, {bound} of them with a reference")))
}

/// The server's own limits, measured right before the cascade that is held against them.
fn limits(ground: &mut Ground<'_>, plan: &Plan, round: u32, results: &mut Results) -> Result<(), Failure> {
    let count = background(plan).dependents();
    plan.say(&format!("the server alone: plain DELETEs, round {round}"));
    results.limits.push(plain(ground, count, false)?);
    plan.say(&format!("the same, watched: round {round}"));
    results.watched_limits.push(plain(ground, count, true)?);
    Ok(())
}

/// Objects a second that the server deletes when nobody has to decide anything, for the user that the collectors are.
/// Where it is watched the daemon runs, and has nothing to do.
fn plain(ground: &mut Ground<'_>, count: usize, is_watched: bool) -> Result<f64, Failure> {
    let namespace = ground.fresh_name();
    let objects = ground.loader.fill(&namespace, Shape { owners: count, each: 0, blocking: false })?;
    let running = is_watched.then(|| ground.start_quiet(Contender::Ours)).transpose()?;
    let began = Instant::now();
    ground.peer.delete_plainly(&namespace, &objects, WORKERS as usize)?;
    let took = began.elapsed();
    drop(running);
    match load::remaining(&ground.api, &namespace)? {
        0 => Ok(count as f64 / took.as_secs_f64()),
        left => Err(Failure::new(format!("{left} objects are left after each was deleted"))),
    }
}

/// Seconds from the deletion of an owner of a new kind until its dependent is gone.
fn definition(ground: &mut Ground<'_>, who: Contender) -> Result<f64, Failure> {
    let running = ground.start_quiet(who)?;
    let namespace = ground.fresh_name();
    ground.loader.fill(&namespace, Shape { owners: 0, each: 0, blocking: false })?;
    let group = format!("{namespace}.example.com");
    let resource = kinds::namespaced(&group, "v1", "widgets", "Widget");
    let body = kinds::definition(&resource, &[kinds::version("v1", true)]);
    let definitions = kinds::custom_resource_definition();
    let definition = ground.api.create(&definitions.path("", ""), &body)?;
    let owner = first_object(&ground.api, &resource, &namespace)?;
    let dependent = json!({
        "apiVersion": resource.api_version(), "kind": resource.kind,
        "metadata": { "name": "dependent", "ownerReferences": [{
            "apiVersion": resource.api_version(), "kind": resource.kind, "name": "owner", "uid": owner,
        }] },
    });
    ground.api.create(&resource.path(&namespace, ""), &dependent)?;
    let began = Instant::now();
    ground.api.delete(&resource.path(&namespace, "owner"), Policy::Background)?;
    while ground.api.get(&resource.path(&namespace, "dependent"))?.is_some() {
        interrupt::check()?;
        if began.elapsed() > DEADLINE {
            return Err(Failure::new(format!("definition: nothing happens\n{}", running.log_tail())));
        }
        thread::sleep(LOOK_EVERY);
    }
    let took = began.elapsed();
    drop(running);
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    ground.api.delete(&definitions.path("", name), Policy::Background)?;
    Ok(took.as_secs_f64())
}

/// Makes the owner as soon as the server takes it; gives its UID.
fn first_object(api: &Api, resource: &ApiResource, namespace: &str) -> Result<String, Failure> {
    let body = json!({
        "apiVersion": resource.api_version(), "kind": resource.kind, "metadata": { "name": "owner" },
    });
    let began = Instant::now();
    loop {
        interrupt::check()?;
        match api.create(&resource.path(namespace, ""), &body) {
            Ok(created) => return Ok(created["metadata"]["uid"].as_str().unwrap_or_default().to_owned()),
            Err(failure) if began.elapsed() > SERVED_WITHIN => return Err(failure),
            Err(_) => thread::sleep(LOOK_EVERY),
        }
    }
}
