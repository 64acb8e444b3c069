//! TTL after finished: jobs of three kinds, real time in seconds, conditions waited for with a bound.

use std::time::Duration;

use expect_test::expect;
use gc_tests::sim::{ApiServer, Effect, FaultRule, Method, Request, Timestamp};
use serde_json::{Value, json};

use crate::process::{Daemon, command, eventually, kubeconfig, write_kubeconfig};
use crate::world::{World, write};

const JOBS: &str = "/apis/batch/v1/namespaces/ns/jobs";
const VOLCANO: &str = "/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs";
const REPORTS: &str = "/apis/jobs.example.org/v1/namespaces/ns/reports";

/// Both TTL controllers, with the collector.
const ALL: &[&str] = &["--controllers=*", "-v", "4"];
/// Without it.
const ALONE: &[&str] = &["--controllers=*,-garbage-collector-controller", "-v", "4"];

fn ago(seconds: i64) -> String {
    let time = Timestamp::now() - jiff::SignedDuration::from_secs(seconds);
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A definition as short as it may be, with a status sub-resource.
fn define(server: &mut ApiServer, group: &str, version: &str, plural: &str, kind: &str) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": version, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    write(server, &Request::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition));
    server.settle(Timestamp::now());
}

fn define_volcano(server: &mut ApiServer) {
    define(server, "batch.volcano.sh", "v1alpha1", "jobs", "Job");
}

/// Creates an object and writes its status, as its own controller would.
fn job(server: &mut ApiServer, root: &str, name: &str, ttl: &Value, status: &Value) {
    let (api_version, kind) = match root {
        JOBS => ("batch/v1", "Job"),
        VOLCANO => ("batch.volcano.sh/v1alpha1", "Job"),
        _ => ("jobs.example.org/v1", "Report"),
    };
    let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name},
        "spec": {"ttlSecondsAfterFinished": ttl, "template": {"spec": {"containers": []}}}});
    write(server, &Request::post(root, &object));
    write(server, &Request::merge_patch(&format!("{root}/{name}/status"), &json!({"status": status})));
}

/// Finished so many seconds ago.
fn complete(seconds: i64) -> Value {
    json!({"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": ago(seconds)}]})
}

fn phase(phase: &str, seconds: i64) -> Value {
    json!({"state": {"phase": phase, "lastTransitionTime": ago(seconds)}})
}

fn spec(server: &mut ApiServer, root: &str, name: &str, ttl: &Value) {
    let patch = json!({"spec": {"ttlSecondsAfterFinished": ttl}});
    write(server, &Request::merge_patch(&format!("{root}/{name}"), &patch));
}

/// Neither gone nor being deleted: without the collector a foreground deletion is never finished.
fn exists(world: &World, path: &str) -> bool {
    let answer = world.server(|server| server.handle(Timestamp::now(), &Request::get(path)));
    answer.code == 200 && answer.value()["metadata"]["deletionTimestamp"].is_null()
}

fn goes(world: &World, root: &str, name: &str) {
    world.until(&format!("{name} goes"), |world| !exists(world, &format!("{root}/{name}")));
}

/// A job that comes later and goes at once: what was due before it has been dealt with.
fn fence(world: &World, root: &str, status: &Value) {
    world.server(|server| job(server, root, "fence", &json!(0), status));
    goes(world, root, "fence");
}

#[test]
fn t1_t2_both_kinds_go_when_they_are_due_and_their_dependents_with_them() {
    let world = World::with("ns/ns", ALL, |server| {
        define_volcano(server);
        for (root, done) in [(JOBS, complete(100)), (VOLCANO, phase("Completed", 100))] {
            job(server, root, "due", &json!(60), &done);
            job(server, root, "later", &json!(3_600), &done);
            job(server, root, "no-ttl", &Value::Null, &done);
        }
        job(server, JOBS, "running", &json!(0), &json!({"active": 1}));
        job(server, VOLCANO, "aborted", &json!(0), &phase("Aborted", 100));
    });
    goes(&world, JOBS, "due");
    goes(&world, VOLCANO, "due");
    fence(&world, JOBS, &complete(1));
    fence(&world, VOLCANO, &phase("Terminated", 1));
    for (root, name) in
        [(JOBS, "later"), (JOBS, "no-ttl"), (JOBS, "running"), (VOLCANO, "later"), (VOLCANO, "aborted")]
    {
        assert!(exists(&world, &format!("{root}/{name}")), "{root}/{name}");
    }
    // A job is gone before its deletion is answered, and counted after that.
    for (name, count) in [
        ("gc_ttl_attempts_total{profile=\"jobs.batch\",outcome=\"deleted\"}", 2.0),
        ("gc_ttl_attempts_total{profile=\"jobs.batch.volcano.sh\",outcome=\"deleted\"}", 2.0),
        ("ttl_after_finished_controller_job_deletion_duration_seconds_count", 2.0),
        ("gc_ttl_jobs{profile=\"jobs.batch\",state=\"waiting\"}", 1.0),
    ] {
        world.until(name, |world| world.daemon.metric(name) == Some(count));
    }
}

#[test]
fn t2_every_delete_names_uid_and_version_and_is_foreground() {
    let world = World::with("ns/ns", ALONE, |server| job(server, JOBS, "due", &json!(0), &complete(5)));
    goes(&world, JOBS, "due");
    assert_eq!(world.count(Method::Get, &format!("{JOBS}/due")), 1, "read once, before it is deleted");
    assert_eq!(world.count(Method::Delete, &format!("{JOBS}/due")), 1);
    let left = world.server(|server| server.objects("jobs.batch").first().cloned()).unwrap();
    assert_eq!(left["metadata"]["finalizers"], json!(["foregroundDeletion"]));
}

#[test]
fn t2_a_ttl_takes_effect_as_soon_as_it_is_set_lowered_or_raised() {
    let world = World::with("ns/ns", ALONE, |server| {
        for name in ["lowered", "set", "raised"] {
            let ttl = if name == "set" { Value::Null } else { json!(3_600) };
            job(server, JOBS, name, &ttl, &complete(100));
        }
    });
    world.server(|server| spec(server, JOBS, "raised", &json!(7_200)));
    world.server(|server| spec(server, JOBS, "lowered", &json!(1)));
    goes(&world, JOBS, "lowered");
    world.server(|server| spec(server, JOBS, "set", &json!(0)));
    goes(&world, JOBS, "set");
    assert!(exists(&world, &format!("{JOBS}/raised")));
}

#[test]
fn t2_a_job_goes_seconds_after_its_end_and_not_before() {
    let world = World::with("ns/ns", ALONE, |_| {});
    world.server(|server| job(server, JOBS, "soon", &json!(2), &complete(0)));
    goes(&world, JOBS, "soon");
    let deletes: Vec<Timestamp> = world
        .requests()
        .iter()
        .filter(|entry| entry.method == Method::Delete)
        .map(|entry| entry.time)
        .collect();
    let created = world.server(|server| server.writes().find(|w| w.resource == "jobs.batch").map(|w| w.time));
    assert_eq!(deletes.len(), 1);
    // The finish time is a whole second that had begun when the job was made.
    let stayed = created.map(|made| deletes[0].duration_since(made));
    assert!(stayed.is_some_and(|stayed| 1_000 <= stayed.as_millis()), "{stayed:?}");
}

#[test]
fn t2_what_changes_between_the_read_and_the_delete_is_read_again() {
    let world = World::with("ns/ns", ALONE, |server| {
        server.faults.push(crate::world::for_daemon(FaultRule {
            method: Some(Method::Delete),
            count: Some(1),
            ..FaultRule::new(
                "*/jobs/due",
                Effect::Status {
                    code: 409,
                    reason: "Conflict".into(),
                    message: "changed".into(),
                    retry_after_s: None,
                },
            )
        }));
        job(server, JOBS, "due", &json!(0), &complete(5));
    });
    goes(&world, JOBS, "due");
    assert_eq!(world.count(Method::Get, &format!("{JOBS}/due")), 2);
}

#[test]
fn t3_a_wrong_ttl_a_lost_time_and_the_future_each_give_an_event_and_no_delete() {
    let world = World::with("ns/ns", ALONE, |server| {
        define_volcano(server);
        job(server, VOLCANO, "negative", &json!(-1), &phase("Completed", 100));
        job(server, VOLCANO, "timeless", &json!(0), &json!({"state": {"phase": "Completed"}}));
        job(server, VOLCANO, "future", &json!(0), &phase("Completed", -3_600));
        job(server, VOLCANO, "largest", &json!(i32::MAX), &phase("Completed", 100));
    });
    world.until("three events", |world| world.events().len() == 3);
    let mut events = world.events();
    events.sort();
    expect![[r#"
        Warning FinishedInFuture on Job future
        Warning InvalidTTL on Job negative
        Warning NoFinishTime on Job timeless"#]]
    .assert_eq(&events.join("\n"));
    fence(&world, VOLCANO, &phase("Failed", 1));
    for name in ["negative", "timeless", "future", "largest"] {
        assert!(exists(&world, &format!("{VOLCANO}/{name}")), "{name}");
    }
    // With a time it goes, as soon as it has one.
    let status = json!({"status": phase("Completed", 1)});
    let path = format!("{VOLCANO}/timeless/status");
    world.server(|server| write(server, &Request::merge_patch(&path, &status)));
    goes(&world, VOLCANO, "timeless");
}

/// Discovery is looked at every 30 s without the collector, and at once when a definition changes with it.
#[test]
fn t4_a_kind_that_is_absent_appears_disappears_and_appears_again() {
    let world = World::with("ns/ns", ALL, |_| {});
    for round in 1..=2 {
        world.server(define_volcano);
        world.server(|server| job(server, VOLCANO, "due", &json!(0), &phase("Completed", 5)));
        goes(&world, VOLCANO, "due");
        let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/jobs.batch.volcano.sh";
        world.server(|server| {
            write(server, &Request::delete(definition));
            server.settle(Timestamp::now());
        });
        world.until("it is told", |world| {
            world.daemon.said("jobs.batch.volcano.sh is no longer served as it was") == round
        });
    }
}

/// Nothing tells of a new definition then but discovery, which looks every 30 s.
#[test]
fn t4_a_kind_that_appears_is_noticed_without_the_collector_too() {
    let world = World::with("ns/ns", ALONE, |_| {});
    world.until("it is told", |world| world.daemon.said("jobs.batch.volcano.sh is not served yet") == 1);
    world.server(define_volcano);
    world.server(|server| job(server, VOLCANO, "due", &json!(0), &phase("Completed", 5)));
    let path = format!("{VOLCANO}/due");
    eventually("the job goes", Duration::from_secs(60), || (!exists(&world, &path)).then_some(()));
}

#[test]
fn t2_a_server_that_is_busy_or_refuses_is_asked_again_later() {
    let refusal = |code: u16, reason: &str, count| FaultRule {
        method: Some(Method::Delete),
        count: Some(count),
        ..FaultRule::new(
            "*/jobs/*",
            Effect::Status {
                code,
                reason: reason.into(),
                message: "no".into(),
                retry_after_s: (code == 429).then_some(1),
            },
        )
    };
    let world = World::with("ns/ns", ALONE, |server| {
        server.faults.push(crate::world::for_daemon(refusal(429, "TooManyRequests", 1)));
        job(server, JOBS, "due", &json!(0), &complete(5));
    });
    goes(&world, JOBS, "due");
    world.fault(refusal(403, "Forbidden", 1));
    world.server(|server| job(server, JOBS, "forbidden", &json!(0), &complete(5)));
    world.until("an event", |world| world.events() == ["Warning TTLDeleteRefused on Job forbidden"]);
    goes(&world, JOBS, "forbidden");
    let refused = world.daemon.metric("gc_ttl_attempts_total{profile=\"jobs.batch\",outcome=\"refused\"}");
    assert_eq!(refused, Some(1.0));
}

#[test]
fn t2_a_restart_in_the_middle_of_a_ttl_keeps_the_deadline() {
    let mut world = World::with("ns/ns", ALONE, |server| {
        job(server, JOBS, "due", &json!(103), &complete(100));
        job(server, JOBS, "later", &json!(3_600), &complete(100));
    });
    world.restart();
    goes(&world, JOBS, "due");
    let deleted = world.requests().into_iter().find(|entry| entry.method == Method::Delete);
    let made = world.server(|server| server.writes().find(|w| w.resource == "jobs.batch").map(|w| w.time));
    let stayed = deleted.zip(made).map(|(deleted, made)| deleted.time.duration_since(made).as_millis());
    // Three seconds after it was made, but for the fraction of a second that its finish time leaves out.
    assert!(stayed.is_some_and(|ms| (2_000..10_000).contains(&ms)), "{stayed:?}");
    assert!(exists(&world, &format!("{JOBS}/later")));
}

#[test]
fn r6_a_signal_ends_it_in_time_while_jobs_go() {
    let mut world = World::with("ns/ns", ALL, |server| {
        server.faults.push(crate::world::for_daemon(FaultRule {
            method: Some(Method::Delete),
            ..FaultRule::new("*/jobs/*", Effect::Delay(Duration::from_millis(300)))
        }));
        for i in 0..100 {
            job(server, JOBS, &format!("job-{i}"), &json!(0), &complete(5));
        }
    });
    world.until("some went", |world| world.count(Method::Delete, &format!("{JOBS}/job-0")) == 1);
    world.daemon.terminate();
    assert!(world.daemon.wait(Duration::from_secs(5)).success());
}

#[test]
fn t1_a_custom_profile_from_a_file() {
    let file = write_kubeconfig(
        "profiles:\n- {group: jobs.example.org, version: v1, resource: reports,\n   finished: {conditions: \
         status.conditions, success: [Complete]},\n   ttl: {path: spec.ttlSecondsAfterFinished},\n   \
         protectAnnotation: example.com/keep}\n",
    );
    let flags =
        ["--controllers=ttl-after-finished-controller", "--ttl-config", file.to_str().unwrap(), "-v", "4"];
    let world = World::with("ns/ns", &flags, |server| {
        define(server, "jobs.example.org", "v1", "reports", "Report");
        job(server, REPORTS, "due", &json!(1), &complete(5));
        let keep = json!({"apiVersion": "jobs.example.org/v1", "kind": "Report",
            "metadata": {"name": "kept", "annotations": {"example.com/keep": "true"}},
            "spec": {"ttlSecondsAfterFinished": 0}});
        write(server, &Request::post(REPORTS, &keep));
        let status = json!({"status": complete(100)});
        write(server, &Request::merge_patch(&format!("{REPORTS}/kept/status"), &status));
        job(server, JOBS, "due", &json!(0), &complete(5));
    });
    goes(&world, REPORTS, "due");
    goes(&world, JOBS, "due");
    assert!(exists(&world, &format!("{REPORTS}/kept")));
    let _ = std::fs::remove_file(file);
}

/// As many as finish in one second, and one worker in the way of none of them.
#[test]
fn t2_two_thousand_jobs_that_finish_in_the_same_second() {
    let world = World::with("ns/ns", ALONE, |server| {
        for i in 0..2_000 {
            job(server, JOBS, &format!("job-{i}"), &json!(0), &complete(5));
        }
    });
    eventually("all have gone", Duration::from_secs(120), || {
        let jobs = world.server(|server| server.objects("jobs.batch"));
        jobs.iter().all(|job| !job["metadata"]["deletionTimestamp"].is_null()).then_some(())
    });
    let reads =
        world.requests().iter().filter(|e| e.method == Method::Get && e.target.contains("/job-")).count();
    assert_eq!(reads, 2_000, "one read each");
}

#[test]
fn r7_a_bad_file_gets_one_line() {
    let file = write_kubeconfig("profiles:\n- {group: batch, version: v1, resource: jobs, mim: 5}\n");
    let unused = write_kubeconfig(&kubeconfig("http://127.0.0.1:9"));
    let mut command = command();
    command.arg("--kubeconfig").arg(&unused).arg("--controllers=*").arg("--ttl-config").arg(&file);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with(&format!("gc-daemon: --ttl-config {}: ", file.display())), "{said}");
    assert!(said.contains("mim") && said.lines().count() == 1, "{said}");
    let _ = (std::fs::remove_file(file), std::fs::remove_file(unused));
}

#[test]
fn t1_the_list_shows_each_job_and_changes_nothing() {
    let world = World::starting("ns/ns", &["--controllers=garbage-collector-controller"], |server| {
        job(server, JOBS, "later", &json!(3_600), &complete(0));
        job(server, JOBS, "running", &json!(5), &json!({"active": 1}));
    });
    let file = write_kubeconfig(&kubeconfig(&world.front.url()));
    let output = command().arg("--kubeconfig").arg(&file).arg("--ttl-list").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let words: Vec<Vec<&str>> = said.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(words[0], ["PROFILE", "NAMESPACE", "NAME", "PHASE", "FINISHED", "TTL", "DUE"]);
    assert_eq!(words[1][..4], ["jobs.batch", "ns", "later", "Complete"]);
    assert_eq!((words[1][5], words[1][6].contains("(in 59m")), ("3600s", true), "{said}");
    assert_eq!(words[2], ["jobs.batch", "ns", "running", "-", "-", "5s", "not finished"]);
    let _ = std::fs::remove_file(file);
    let _: &Daemon = &world.daemon;
}
