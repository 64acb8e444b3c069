//! What is watched, and what becomes of watches when the server misbehaves.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use expect_test::expect;
use gc_tests::sim::{ApiServer, Effect, FaultRule, Method, Timestamp};
use serde_json::json;

use crate::process::eventually;
use crate::world::{World, blocking_reference, define_things, delete, for_daemon, patch, path, path_of};

const THINGS: &str = "/apis/example.com/v1/things";
const CONFIG_MAPS: &str = "/api/v1/configmaps";

/// The paths that are watched or were.
fn watched(world: &World) -> BTreeSet<String> {
    let requests = world.requests();
    let watches = requests.iter().filter(|entry| entry.target.contains("watch=") && entry.code == 200);
    watches.map(|entry| path_of(entry).to_owned()).collect()
}

/// How often a resource was listed, looks at its version apart.
fn lists(world: &World, resource: &str) -> usize {
    let is_list = |target: &str| !target.contains("watch=") && !target.ends_with("?limit=1");
    world.requests().iter().filter(|e| path_of(e) == resource && is_list(&e.target)).count()
}

fn status(code: u16, retry_after_s: Option<u32>) -> Effect {
    Effect::Status { code, reason: String::new(), message: "on purpose".into(), retry_after_s }
}

fn serve_things(server: &mut ApiServer, served: bool) {
    let version = json!([{"name": "v1", "served": served, "storage": true, "schema": {"openAPIV3Schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
    }}}]);
    patch(server, "crd/things.example.com", &json!({"spec": {"versions": version}}));
}

#[test]
fn s1_everything_deletable_is_watched_but_events_and_what_is_named() {
    let flags = ["--gc-ignored-resources", "leases.coordination.k8s.io,secrets"];
    let world = World::with("cm/a @ns", &flags, define_things);
    expect![[r#"
        {
            "/api/v1/configmaps",
            "/api/v1/namespaces",
            "/api/v1/nodes",
            "/api/v1/persistentvolumeclaims",
            "/api/v1/persistentvolumes",
            "/api/v1/pods",
            "/api/v1/serviceaccounts",
            "/api/v1/services",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            "/apis/apiregistration.k8s.io/v1/apiservices",
            "/apis/apps/v1/controllerrevisions",
            "/apis/apps/v1/daemonsets",
            "/apis/apps/v1/deployments",
            "/apis/apps/v1/replicasets",
            "/apis/apps/v1/statefulsets",
            "/apis/batch/v1/cronjobs",
            "/apis/batch/v1/jobs",
            "/apis/example.com/v1/things",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        }
    "#]]
    .assert_debug_eq(&eventually("all are watched", Duration::from_secs(20), || {
        Some(watched(&world)).filter(|paths| paths.len() == 20)
    }));
}

#[test]
fn s1_what_is_ignored_is_neither_listed_nor_deleted_but_owns() {
    let flags = ["--gc-ignored-resources", "secrets"];
    let world = World::with(
        "
        secret/owner @ns
        secret/child @ns owners=[cm/nobody#u]
        cm/child @ns owners=[secret/owner]
        cm/orphan @ns owners=[secret/nobody#u]
        ",
        &flags,
        |_| {},
    );
    world.becomes(&expect![[r#"
        cm/child @ns owners=[secret/owner]
        secret/child @ns owners=[cm/nobody~]
        secret/owner @ns
    "#]]);
    world.fence("cm");
    assert_eq!(lists(&world, "/api/v1/secrets"), 0);
}

#[test]
fn s2_a_definition_that_comes_goes_and_comes_again() {
    let world = World::new("cm/owner @ns");
    world.server(define_things);
    world.load(
        "
        thing/child @ns owners=[cm/owner]
        thing/stays @ns
        cm/child @ns owners=[thing/stays]
        ",
    );
    world.delete("cm/owner @ns", "Background");
    world.becomes(&expect![[r#"
        cm/child @ns owners=[thing/stays]
        crd/things.example.com
        thing/stays @ns
    "#]]);
    // What the list has shown is collected before the watch is open; without that nobody hears what is deleted next.
    world.fence("thing");
    // The server deletes the objects first, and their watch says so: that is proof.
    world.delete("crd/things.example.com", "Background");
    world.becomes(&expect![[""]]);

    // Quickly: in one moment, with an object of the same name.
    world.server(define_things);
    world.load("thing/owner @ns\ncm/old @ns owners=[thing/owner]");
    world.until("the things are watched", |world| {
        world.daemon.page("/debug/controllers/garbage-collector-controller/graph").1.contains("Thing")
    });
    world.server(|server| {
        delete(server, "crd/things.example.com", "Background");
        define_things(server);
        server.load(Timestamp::now(), "thing/owner @ns\ncm/new @ns owners=[thing/owner]").unwrap();
    });
    world.becomes(&expect![[r#"
        cm/new @ns owners=[thing/owner]
        crd/things.example.com
        thing/owner @ns
    "#]]);
    world.fence("thing");

    // Slowly: the daemon has given the watch up.
    world.delete("crd/things.example.com", "Background");
    world.until("the watch is given up", |world| world.daemon.said("is no longer served") > 0);
    world.server(define_things);
    world.load("thing/owner @ns owners=[cm/nobody#u]\ncm/new @ns owners=[thing/owner]");
    world.becomes(&expect![[r#"
        crd/things.example.com
    "#]]);
}

#[test]
fn s2_that_a_kind_is_not_served_proves_nothing() {
    let world = World::with("cm/seen @ns", &[], |server| {
        define_things(server);
        let world = "thing/owner @ns\ncm/child @ns owners=[thing/owner!]";
        server.load(Timestamp::now(), world).unwrap();
    });
    let owner = world.server(|server| blocking_reference(server, "thing/owner @ns"));
    world.server(|server| serve_things(server, false));
    world.until("the watch is given up", |world| world.daemon.said("is no longer served") > 0);
    // One that has only ever seen its owner's kind missing.
    world.patch("cm/seen @ns", &json!({"metadata": {"ownerReferences": [owner]}}));
    world.fence("cm");
    let before = world.requests().len();
    world.fence("cm");
    let asked = world.requests().len() - before;
    assert!(asked <= 12, "{asked} requests while a kind is not served");
    let alive = |name: &str| world.server(|server| server.object("configmaps", "ns", name).is_some());
    assert!(alive("child") && alive("seen"));

    world.server(|server| serve_things(server, true));
    world.until("it is watched again", |world| world.daemon.page("/readyz").1 == "ok");
    world.fence("thing");
    assert!(alive("child") && alive("seen"));
    world.delete("thing/owner @ns", "Background");
    world.becomes(&expect![[r#"
        crd/things.example.com
    "#]]);
}

#[test]
fn s3_a_resource_that_cannot_be_listed_stops_nothing_and_is_taken_up_when_it_can() {
    let world = World::new("cm/owner @ns\nsecret/child @ns owners=[cm/owner]");
    world.server(|server| {
        define_things(server);
        let things =
            "thing/owner @ns\ncm/child @ns owners=[thing/owner]\ncm/dangling @ns owners=[thing/nobody#u]";
        server.load(Timestamp::now(), things).unwrap();
        server.switches.broken_resources.insert("things.example.com".into());
    });
    let degraded = (200, "ok, degraded: 1 kind not listed: things.example.com".into());
    world.until("it is degraded", |world| world.daemon.page("/readyz") == degraded);
    world.delete("cm/owner @ns", "Background");
    // Every read of an owner answers 500, which proves nothing.
    world.becomes(&expect![[r#"
        cm/child @ns owners=[thing/owner]
        cm/dangling @ns owners=[thing/nobody~]
        crd/things.example.com
        thing/owner @ns
    "#]]);
    world.fence("cm");
    world.server(|server| server.switches.broken_resources.clear());
    world.until("the things are listed", |world| world.daemon.page("/readyz").1 == "ok");
    world.becomes(&expect![[r#"
        cm/child @ns owners=[thing/owner]
        crd/things.example.com
        thing/owner @ns
    "#]]);
    world.delete("thing/owner @ns", "Background");
    world.becomes(&expect![[r#"
        crd/things.example.com
    "#]]);
}

fn a_group_that_is_down(aggregated_discovery: bool) {
    let world = World::with("cm/other @ns\nsecret/child @ns owners=[cm/other]", &[], |server| {
        server.switches.aggregated_discovery = aggregated_discovery;
        define_things(server);
        let world = "thing/owner @ns\ncm/child @ns owners=[thing/owner]\ncm/two @ns owners=[thing/owner, cm/nobody#u]";
        server.load(Timestamp::now(), world).unwrap();
    });
    world.server(|server| server.switches.groups_down.insert("example.com/v1".into()));
    world.front.cut_connections();
    // A definition that changes makes it look at once.
    world.patch("crd/things.example.com", &json!({"metadata": {"labels": {"a": "b"}}}));
    // Longer than a resource may be missing from what discovery says.
    let (discovery, start) = (world.count(Method::Get, "/apis"), Instant::now());
    world.until("it has looked", |world| {
        world.count(Method::Get, "/apis") >= discovery + 3 && start.elapsed() > Duration::from_secs(4)
    });
    world.delete("cm/other @ns", "Background");
    world.becomes(&expect![[r#"
        cm/child @ns owners=[thing/owner]
        cm/two @ns owners=[thing/owner]
        crd/things.example.com
        thing/owner @ns
    "#]]);
    assert_eq!(world.daemon.said("is no longer served"), 0);
    world.server(|server| server.switches.groups_down.clear());
    world.fence("thing");
    world.delete("thing/owner @ns", "Background");
    world.becomes(&expect![[r#"
        crd/things.example.com
    "#]]);
}

#[test]
fn s3_a_group_that_is_down_keeps_its_watches_and_proves_nothing() {
    a_group_that_is_down(true);
}

#[test]
fn s3_a_group_whose_older_discovery_fails_keeps_its_watches_and_proves_nothing() {
    a_group_that_is_down(false);
}

#[test]
fn s3_discovery_that_is_empty_or_fails_changes_nothing() {
    let world = World::with("cm/owner @ns\nsecret/child @ns owners=[cm/owner]", &[], define_things);
    world.server(|server| server.switches.empty_discovery = true);
    world.patch("crd/things.example.com", &json!({"metadata": {"labels": {"a": "b"}}}));
    world.until("it has looked", |world| world.daemon.said("discovery names no resource") > 0);
    world.fence("thing");
    world.server(|server| server.switches.empty_discovery = false);
    world.fault(FaultRule::new("/api", status(500, None)));
    world.fault(FaultRule::new("/apis", Effect::CutBefore));
    world.patch("crd/things.example.com", &json!({"metadata": {"labels": {"a": "c"}}}));
    world.until("it has failed", |world| world.daemon.said("discovery failed") > 0);
    world.fence("thing");
    world.delete("cm/owner @ns", "Background");
    world.becomes(&expect![[r#"
        crd/things.example.com
    "#]]);
    assert_eq!(world.daemon.said("is no longer served"), 0);
}

#[test]
fn s3_a_server_with_the_older_discovery_only() {
    let world = World::with("cm/owner @ns", &[], |server| {
        server.switches.aggregated_discovery = false;
        define_things(server);
        server.load(Timestamp::now(), "thing/child @ns owners=[cm/owner]").unwrap();
    });
    world.delete("cm/owner @ns", "Foreground");
    world.becomes(&expect![[r#"
        crd/things.example.com
    "#]]);
}

/// Deletes the owner while no watch is open, and forgets the history.
fn miss_the_deletion(world: &World) {
    world.server(|server| {
        server.close_all_watches();
        delete(server, "cm/owner @ns", "Background");
        server.compact(server.resource_version());
    });
}

#[test]
fn s5_a_watch_that_has_expired_lists_anew_and_finds_what_went() {
    for as_status in [false, true] {
        let world =
            World::with("cm/owner @ns\nsecret/child @ns owners=[cm/owner]\ncm/other @ns", &[], |server| {
                server.switches.expired_watch_as_status = as_status;
            });
        world.fence("cm");
        miss_the_deletion(&world);
        world.becomes(&expect![[r#"
            cm/other @ns
        "#]]);
        assert_eq!(lists(&world, CONFIG_MAPS), 2, "once at the start, once after the 410");
    }
}

#[test]
fn s5_lists_that_are_cut_short_prove_nothing() {
    let objects: String =
        (0..50).map(|i| format!("cm/owner-{i} @ns\nsecret/child-{i} @ns owners=[cm/owner-{i}]\n")).collect();
    let world = World::new(&format!("cm/owner @ns\nsecret/child @ns owners=[cm/owner]\n{objects}"));
    for after_bytes in [3, 100, 700, 2_000] {
        world.fault(FaultRule::new(CONFIG_MAPS, Effect::Truncate(after_bytes)).times(1));
    }
    miss_the_deletion(&world);
    world.until("the child has gone", |world| {
        world.server(|server| server.object("secrets", "ns", "child").is_none())
    });
    world.fence("secret");
    assert!(world.server(|server| server.faults.iter().all(|rule| rule.count == Some(0))), "all were used");
    assert_eq!(world.server(|server| server.objects("secrets").len()), 50);
}

#[test]
fn s5_watches_that_are_cut_again_and_again_miss_nothing() {
    let children: String = (0..200).map(|i| format!("secret/child-{i} @ns owners=[cm/owner]\n")).collect();
    let world = World::new(&format!("cm/owner @ns\n{children}"));
    // Inside an event, and between two.
    world.fault(FaultRule::new("/api/v1/secrets?*watch=*", Effect::Truncate(1_500)).times(3));
    world.delete("cm/owner @ns", "Background");
    for _ in 0..4 {
        let left = world.server(|server| server.objects("secrets").len());
        world.front.cut_connections();
        world.until("it goes on", |world| {
            let now = world.server(|server| server.objects("secrets").len());
            now < left || now == 0
        });
    }
    world.becomes(&expect![[""]]);
    world.load("cm/owner @ns\nsecret/child @ns owners=[cm/owner]\npo/child @ns owners=[secret/child]");
    world.fence("secret");
    world.delete("cm/owner @ns", "Background");
    world.becomes(&expect![[""]]);
}

#[test]
fn s5_a_server_that_speaks_json_only() {
    let world = World::with("cm/owner @ns\nsecret/child @ns owners=[cm/owner!]", &[], |server| {
        server.switches.protobuf = false;
        define_things(server);
        server.load(Timestamp::now(), "thing/child @ns owners=[cm/owner]").unwrap();
    });
    world.delete("cm/owner @ns", "Foreground");
    world.becomes(&expect![[r#"
        crd/things.example.com
    "#]]);
}

#[test]
fn s5_a_server_that_asks_for_patience_gets_it() {
    let world = World::starting("cm/owner @ns\nsecret/child @ns owners=[cm/owner]", &[], |server| {
        server.faults.push(for_daemon(FaultRule::new(CONFIG_MAPS, status(429, Some(1))).times(1)));
        server.faults.push(for_daemon(FaultRule::new("/api/v1/secrets", status(503, Some(1))).times(1)));
    });
    world.until("the lists have passed", |world| world.daemon.page("/readyz").0 == 200);
    assert_eq!((lists(&world, CONFIG_MAPS), lists(&world, "/api/v1/secrets")), (2, 2));
    let child = path("secret/child @ns");
    world.fault(FaultRule::new(&child, status(429, Some(1))).for_method(Method::Delete).times(1));
    world.delete("cm/owner @ns", "Background");
    world.becomes(&expect![[""]]);
    let deletes: Vec<_> =
        world.requests().into_iter().filter(|entry| entry.method == Method::Delete).collect();
    let codes: Vec<u16> = deletes.iter().map(|entry| entry.code).collect();
    assert_eq!(codes, [429, 200]);
    let waited = deletes[1].time.duration_since(deletes[0].time).as_millis();
    assert!(waited >= 1_000, "{waited} ms");
}

/// Twenty objects are to go and two workers are there for it: each leaves the server alone for as long as it was asked to,
/// and does not turn to the next object meanwhile.
#[test]
fn d14_workers_do_not_hammer_a_server_that_is_busy() {
    use std::fmt::Write;
    let text = (0..20).fold("cm/owner @ns".to_owned(), |mut text, i| {
        let _ = write!(text, "\nsecret/{i} @ns owners=[cm/owner]");
        text
    });
    let world = World::with(&text, &["--concurrent-gc-syncs", "2"], |_| {});
    let secrets = "/api/v1/namespaces/ns/secrets/*";
    world.fault(FaultRule::new(secrets, status(429, Some(1))).for_method(Method::Delete).times(4));
    world.delete("cm/owner @ns", "Background");
    world.becomes(&expect![[""]]);
    let deletes: Vec<_> =
        world.requests().into_iter().filter(|entry| entry.method == Method::Delete).collect();
    let codes: Vec<u16> = deletes.iter().map(|entry| entry.code).collect();
    assert_eq!(codes, [[429; 4].as_slice(), &[200; 20]].concat());
    for [before, after] in [[0, 2], [2, 4]] {
        let waited = deletes[after].time.duration_since(deletes[before].time).as_millis();
        assert!(waited >= 1_000, "{waited} ms between {before} and {after}");
    }
}

#[test]
fn s5_a_quiet_watch_lives_on_by_bookmarks() {
    let world = World::with("cm/quiet @ns", &[], |server| {
        server.switches.bookmark_every = Duration::from_millis(200);
    });
    world.until("it is watched", |world| watched(world).contains(CONFIG_MAPS));
    let version = world.server(|server| {
        server.load(Timestamp::now(), "secret/a @ns\nsecret/b @ns").unwrap();
        server.resource_version()
    });
    world.until("a bookmark has told the version", |world| {
        world.server(|server| server.version_of_last_bookmark("configmaps") >= version)
    });
    world.server(|server| {
        server.close_all_watches();
        server.compact(version);
    });
    world.fence("cm");
    let resumed =
        world.requests().into_iter().rev().find(|e| path_of(e) == CONFIG_MAPS && e.target.contains("watch="));
    let resumed = resumed.unwrap().target;
    assert!(resumed.contains(&format!("resourceVersion={version}")), "{resumed}, not from {version}");
    assert_eq!(lists(&world, CONFIG_MAPS), 1);
}

#[test]
fn s5_a_list_of_many_pages() {
    let objects: String = (0..5_200).map(|i| format!("cm/c-{i} @ns\n")).collect();
    let world = World::new(&format!(
        "{objects}cm/child @ns owners=[cm/c-5199]\ncm/dangling @ns owners=[secret/no#u]"
    ));
    world.until("the one without an owner has gone", |world| {
        world.server(|server| server.object("configmaps", "ns", "dangling").is_none())
    });
    world.settle();
    assert!(world.server(|server| server.object("configmaps", "ns", "child").is_some()));
    assert_eq!(lists(&world, CONFIG_MAPS), 2, "two pages");
}

#[test]
fn s5_a_resource_that_is_gone_from_discovery_for_a_moment_keeps_its_watch() {
    let world = World::with("cm/a @ns", &[], |server| {
        define_things(server);
        server.load(Timestamp::now(), "thing/owner @ns\ncm/child @ns owners=[thing/owner]").unwrap();
    });
    world.server(|server| serve_things(server, false));
    world.until("it is missed", |world| {
        world.count(Method::Get, THINGS) > 0 && world.count(Method::Get, "/apis") > 2
    });
    world.server(|server| serve_things(server, true));
    world.fence("thing");
    world.fence("cm");
    assert_eq!(world.daemon.said("is no longer served"), 0);
    world.delete("thing/owner @ns", "Background");
    world.becomes(&expect![[r#"
        cm/a @ns
        crd/things.example.com
    "#]]);
}
