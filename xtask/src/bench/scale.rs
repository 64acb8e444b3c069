//! More than any API server here could hold: millions of objects from a server that makes them up, and thousands of kinds
//! on a real one.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::bench::crowd::{Crowd, Format};
use crate::bench::ground::{Contender, Daemons, Ground, WORKERS};
use crate::bench::{Plan, Results};
use crate::collector::{Launcher, Program};
use crate::failure::{Doing, Failure};
use crate::kubeconfig;
use crate::poll::{Look, eventually};
use crate::vitals;

/// Rows, objects, format.
const CROWDS: [([&str; 3], u64, Format); 4] = [
    (["1m-time", "1m-cpu", "1m-bytes"], 1_000_000, Format::Protobuf),
    (["1m-json-time", "1m-json-cpu", "1m-json-bytes"], 1_000_000, Format::Json),
    (["5m-time", "5m-cpu", "5m-bytes"], 5_000_000, Format::Protobuf),
    (["5m-json-time", "5m-json-cpu", "5m-json-bytes"], 5_000_000, Format::Json),
];
const KINDS_ROWS: [&str; 3] = ["kinds-bytes", "kinds-threads", "kinds-time"];
/// Five million take a minute on a slow machine.
const LISTED_WITHIN: Duration = Duration::from_secs(600);
/// After a list was read: until what it left behind has been given back.
const REST: Duration = Duration::from_secs(3);
/// How many definitions; in so many groups.
const KINDS: usize = 2_000;
const GROUPS: usize = 100;
/// Until a server serves that many.
const SERVED_WITHIN: Duration = Duration::from_secs(300);
/// A watch is opened for each kind once it is listed, and that goes on after the start.
const WATCHING_FOR: Duration = Duration::from_secs(20);

/// Measures what was asked for of these rows.
///
/// # Errors
///
/// When a server or a collector fails.
pub fn measure(plan: &Plan, daemons: &Daemons, dir: &Path, results: &mut Results) -> Result<(), Failure> {
    for (rows, objects, format) in CROWDS {
        if plan.wants(&rows) {
            for who in plan.contenders().filter(|who| who.daemon(daemons).is_some()) {
                plan.say(&format!("{who}: {objects} objects in {format:?}"));
                crowd(who, daemons, dir, (rows, objects, format), results)?;
            }
        }
    }
    Ok(())
}

/// Whether these rows need no server of their own.
pub fn is_crowd(row: &str) -> bool {
    CROWDS.iter().any(|(rows, ..)| rows.contains(&row))
}

/// Whether it is one of the rows of [`kinds`].
pub fn is_of_kinds(row: &str) -> bool {
    KINDS_ROWS.contains(&row)
}

fn crowd(
    who: Contender,
    daemons: &Daemons,
    dir: &Path,
    (rows, objects, format): ([&'static str; 3], u64, Format),
    results: &mut Results,
) -> Result<(), Failure> {
    let server = Crowd::start(objects, format)?;
    let dir = dir.join(format!("crowd-{who}-{objects}-{format:?}"));
    std::fs::create_dir(&dir).doing(|| format!("cannot create {}", dir.display()))?;
    let config = dir.join("kubeconfig");
    kubeconfig::write(&config, &format!("http://{}", server.address()), None, None)?;
    let missing = || Failure::new("there is no static binary");
    let program = Program::Daemon(who.daemon(daemons).ok_or_else(missing)?.clone());
    let mut launcher = Launcher::new(program, config, &dir).logging_like_the_reference();
    let started = Instant::now();
    let mut collector = launcher.spawn(WORKERS)?;
    let pid = collector.process().id();
    eventually("all objects are listed", LISTED_WITHIN, || {
        collector.check_alive()?;
        let sent = server.sent_bytes();
        Ok(if server.is_watched() { Look::Done(()) } else { Look::NotYet(format!("{sent} bytes sent")) })
    })?;
    let [time, cpu, bytes] = rows;
    results.add(time, who, started.elapsed().as_secs_f64());
    results.add(cpu, who, vitals::cpu(pid)?.as_secs_f64());
    std::thread::sleep(REST);
    collector.check_alive()?;
    let (resident, peak) = (vitals::resident_bytes(pid)?, vitals::peak_bytes(pid)?);
    results.add(bytes, who, resident as f64 / objects as f64);
    results.note(&format!(
        "{who}, {objects} objects in {format:?}: {} MB sent, {} MB resident, {} MB at most",
        server.sent_bytes() / 1_000_000,
        resident / 1_000_000,
        peak / 1_000_000
    ));
    Ok(())
}

/// Thousands of kinds, each with a thread and a connection of its own.
///
/// # Errors
///
/// When a server or a collector fails.
pub fn kinds(ground: &mut Ground<'_>, plan: &Plan, results: &mut Results) -> Result<(), Failure> {
    let mut empty = Vec::new();
    for who in plan.contenders() {
        let mut running = ground.start(who)?;
        running.rest(WATCHING_FOR)?;
        empty.push((who, running.resident()?));
    }
    plan.say(&format!("defining {KINDS} kinds"));
    ground.loader.define(KINDS, definition)?;
    let last = format!("/apis/{}/v1/{}", group(KINDS - 1), plural(KINDS - 1));
    let api = &ground.api;
    eventually("the last kind is served", SERVED_WITHIN, || {
        Ok(match api.get(&last) {
            Ok(Some(_)) => Look::Done(()),
            Ok(None) => Look::NotYet("it is not".into()),
            Err(failure) => Look::NotYet(failure.to_string()),
        })
    })?;
    // What a server makes for each definition when it is first asked for its objects, half a minute of work, is made only
    // once: it must not be on the account of whoever comes first.
    if let Some(who) = plan.contenders().next() {
        plan.say(&format!("{who}: warm-up"));
        ground.start(who)?.rest(WATCHING_FOR)?;
    }
    for (who, empty) in empty {
        plan.say(&format!("{who}: {KINDS} kinds"));
        let mut running = ground.start(who)?;
        results.add("kinds-time", who, running.synced.as_secs_f64());
        running.rest(WATCHING_FOR)?;
        let each = (running.resident()? - empty).max(0.0) / KINDS as f64;
        results.add("kinds-bytes", who, each);
        results.add("kinds-threads", who, running.threads()?);
    }
    Ok(())
}

fn group(number: usize) -> String {
    format!("group-{}.example.com", number % GROUPS)
}

fn plural(number: usize) -> String {
    format!("widgets{number}")
}

fn definition(number: usize) -> String {
    let (plural, group) = (plural(number), group(number));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "plural": plural, "singular": format!("widget{number}"),
                "kind": format!("Widget{number}"), "listKind": format!("Widget{number}List"),
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
    .to_string()
}
