//! The simulator in virtual time: watches, pages, faults, histories, discovery, other shapes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test may stop where it stands.

use std::fmt::Write as _;
use std::time::Duration;

use expect_test::{Expect, expect};
use gc_tests::sim::{ApiServer, Body, Effect, FaultRule, Method, Request, Response, Timestamp, WatchId};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";

/// A server, a clock and short ways to use them.
struct World {
    server: ApiServer,
    now: Timestamp,
}

impl World {
    fn new(text: &str) -> World {
        let mut world = World { server: ApiServer::new(7), now: "2026-01-02T03:04:05Z".parse().unwrap() };
        world.server.load(world.now, text).unwrap();
        world
    }

    fn ask(&mut self, request: &Request) -> Response {
        self.server.handle(self.now, request)
    }

    fn get(&mut self, target: &str) -> Value {
        self.ask(&Request::get(target)).value()
    }

    fn watch(&mut self, target: &str) -> WatchId {
        let response = self.ask(&Request::get(target));
        response.watch().unwrap_or_else(|| panic!("no watch: {}", response.value()))
    }

    /// What a watch says now, an event a line.
    fn poll(&mut self, watch: WatchId) -> String {
        let poll = self.server.poll_watch(self.now, watch);
        let mut out = String::new();
        for event in &poll.events {
            let metadata = &event.object["metadata"];
            let what = metadata["name"].as_str().or_else(|| event.object["message"].as_str()).unwrap_or("-");
            let version = metadata["resourceVersion"].as_str().unwrap_or("-");
            let _ = writeln!(out, "{} {what} {version}", event.kind);
        }
        if poll.ended {
            out.push_str("END\n");
        }
        out
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}

fn names(list: &Value) -> String {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|i| i["metadata"]["name"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

fn check(actual: &str, expected: &Expect) {
    expected.assert_eq(actual);
}

#[test]
fn a_watch_follows_and_bookmarks_move_on() {
    let mut world = World::new("cm/a @ns");
    let watch =
        world.watch(&format!("{MAPS}?watch=1&resourceVersion=0&allowWatchBookmarks=true&timeoutSeconds=130"));
    let mut seen = world.poll(watch);
    world.server.load(world.now, "cm/b @ns finalizers=[x.y/z]\nsecret/s @ns\ncm/c @other").unwrap();
    world.ask(&Request::delete(&format!("{MAPS}/a")));
    world.ask(&Request::delete(&format!("{MAPS}/b")));
    seen += &world.poll(watch);
    for seconds in [59, 1, 60, 7, 1, 1, 1] {
        world.pass(seconds);
        let _ = writeln!(seen, "+{seconds} s");
        seen += &world.poll(watch);
    }
    check(
        &seen,
        &expect![[r#"
            ADDED a 1006
            ADDED b 1007
            DELETED a 1011
            MODIFIED b 1012
            +59 s
            +1 s
            BOOKMARK - 1012
            +60 s
            BOOKMARK - 1012
            +7 s
            +1 s
            BOOKMARK - 1012
            +1 s
            +1 s
            END
        "#]],
    );
}

#[test]
fn an_old_watch_ends_with_410_in_the_stream_or_as_the_status() {
    let mut world = World::new("cm/a @ns\ncm/b @ns");
    let old = world.watch(&format!("{MAPS}?watch=1&resourceVersion=1005"));
    world.server.compact(1006);
    let mut seen = world.poll(old);
    let late = world.watch(&format!("{MAPS}?watch=1&resourceVersion=1001"));
    seen += &world.poll(late);
    seen += &world.poll(late);
    world.server.switches.expired_watch_as_status = true;
    let refused = world.ask(&Request::get(&format!("{MAPS}?watch=1&resourceVersion=1001")));
    let _ = writeln!(seen, "{} {}", refused.code, refused.value()["reason"]);
    let fresh = world.watch(&format!("{MAPS}?watch=1&resourceVersion=1006"));
    seen += &world.poll(fresh);
    check(
        &seen,
        &expect![[r#"
            ERROR too old resource version: 1005 (1006) -
            END
            ERROR too old resource version: 1001 (1006) -
            END
            END
            410 "Expired"
            ADDED b 1007
        "#]],
    );
}

#[test]
fn pages_show_one_state_and_expire() {
    let mut world = World::new("cm/a @ns\ncm/b @ns\ncm/c @ns\ncm/d @ns");
    let first = world.get(&format!("{MAPS}?limit=2"));
    world.ask(&Request::delete(&format!("{MAPS}/c")));
    world.server.load(world.now, "cm/bb @ns").unwrap();
    let token = first["metadata"]["continue"].as_str().unwrap().to_string();
    let second = world.get(&format!("{MAPS}?limit=2&continue={token}"));
    assert_eq!(
        (names(&first).as_str(), names(&second).as_str()),
        ("a b", "c d"),
        "the state of the first page"
    );
    assert_eq!(first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]);
    assert_eq!(second["metadata"].get("continue"), None);

    let now = world.server.resource_version();
    world.server.compact(now);
    let gone = world.get(&format!("{MAPS}?limit=2&continue={token}"));
    assert_eq!((&gone["code"], &gone["reason"]), (&json!(410), &json!("Expired")));
    let token = gone["metadata"]["continue"].as_str().unwrap();
    let rest = world.get(&format!("{MAPS}?limit=9&continue={token}"));
    assert_eq!(names(&rest), "bb d", "the present state, no longer consistent with the first page");
    let bad = world.get(&format!("{MAPS}?continue=zz"));
    assert_eq!((&bad["code"], &bad["reason"]), (&json!(400), &json!("BadRequest")));
    let future = world.get(&format!("{MAPS}?resourceVersion=99999"));
    assert_eq!((&future["code"], &future["reason"]), (&json!(504), &json!("Timeout")));
}

#[test]
fn a_world_goes_in_and_comes_out() {
    let text = "\
cm/a @ns owners=[cm/b*!, cm/gone~] finalizers=[x.y/z, foreground] deleting
cm/b @ns
deploy/d @ns finalizers=[orphan] deleting
pv/v finalizers=[kubernetes.io/pv-protection]
rs/r @ns owners=[deploy/d!]
";
    let mut world = World::new(
        "cm/b @ns\ncm/a @ns owners=[cm/b*!, cm/gone] finalizers=[x.y/z, foreground] deleting\npv/v\n\
         deploy/d @ns finalizers=[orphan] deleting\nrs/r @ns owners=[deploy/d!]",
    );
    let mut lines: Vec<String> = world.server.show().lines().map(|l| format!("{l}\n")).collect();
    lines.sort();
    assert_eq!(lines.concat(), text);
    for (line, cause) in [
        ("cm/x", "cm needs a namespace"),
        ("node/x @ns", "node has no namespace"),
        ("what/x", "unknown kind what"),
        ("cm", "a line begins with KIND/NAME"),
        ("cm/x @ns odd", "unknown attribute odd"),
        ("cm/b @ns", "configmaps \"b\" already exists"),
    ] {
        assert_eq!(world.server.load(world.now, line).unwrap_err().cause, cause);
    }
}

#[test]
fn a_definition_serves_its_kind_and_its_end_removes_the_instances() {
    let mut world = World::new("cm/a @ns");
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let things = "/apis/example.com/v1/namespaces/ns/things";
    let definition = json!({"metadata": {"name": "things.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": true, "storage": true}, {"name": "v2", "served": false, "storage": false}],
    }});
    world.server.switches.establish_delay = Duration::from_secs(3);
    assert_eq!(world.ask(&Request::post(definitions, &definition)).code, 201);
    let early = world.ask(&Request::get(things));
    assert_eq!((early.code, early.body_bytes()), (404, b"404 page not found\n".as_slice()));
    world.pass(3);
    world.server.load(world.now, "thing/x @ns finalizers=[x.y/z]\nthing/y @ns").unwrap_err();
    assert_eq!(world.ask(&Request::get(things)).code, 200);
    world.server.load(world.now, "thing/x @ns finalizers=[x.y/z]\nthing/y @ns").unwrap();
    assert_eq!(world.ask(&Request::get("/apis/example.com/v2/things")).code, 404);

    let watch = world.watch(&format!("{things}?watch=1&resourceVersion=0"));
    let watched = world.watch(&format!("{definitions}?watch=1&resourceVersion=0"));
    let mut seen = world.poll(watch) + &world.poll(watched);
    world.ask(&Request::delete(&format!("{definitions}/things.example.com")));
    seen += &(world.poll(watch) + &world.poll(watched) + "release\n");
    world.ask(&Request::merge_patch(&format!("{things}/x"), &json!({"metadata": {"finalizers": null}})));
    seen += &(world.poll(watch) + &world.poll(watched));
    check(
        &seen,
        &expect![[r#"
            ADDED x 1009
            ADDED y 1010
            ADDED things.example.com 1008
            MODIFIED x 1012
            DELETED y 1013
            MODIFIED things.example.com 1011
            release
            DELETED x 1014
            END
            DELETED things.example.com 1015
        "#]],
    );
    assert_eq!(world.ask(&Request::get(things)).body_bytes(), b"404 page not found\n");
}

#[test]
fn a_namespace_empties_itself_and_waits_for_finalizers() {
    let mut world = World::new("cm/a @ns\ncm/b @ns finalizers=[x.y/z]");
    let deleted = world.ask(&Request::delete("/api/v1/namespaces/ns")).value();
    assert_eq!(deleted["status"]["phase"], "Terminating");
    world.server.settle(world.now);
    assert_eq!(world.server.show(), "cm/b @ns finalizers=[x.y/z] deleting\nns/ns deleting\n");
    world.ask(&Request::merge_patch(&format!("{MAPS}/b"), &json!({"metadata": {"finalizers": []}})));
    world.server.settle(world.now);
    assert_eq!(world.server.show(), "");
    assert_eq!(world.ask(&Request::get("/api/v1/namespaces/ns")).code, 404);
    let writers: Vec<&str> = world.server.writes().rev().take(3).map(|w| w.user_agent.as_str()).collect();
    assert_eq!(writers, ["namespace-controller", "gc-tests", "namespace-controller"]);
}

#[test]
fn faults_answer_cut_delay_and_truncate() {
    let mut world = World::new("cm/a @ns");
    let status = |code, reason: &str, retry_after_s| Effect::Status {
        code,
        reason: reason.into(),
        message: "on purpose".into(),
        retry_after_s,
    };
    let mut late = FaultRule::new("*/configmaps/a", Effect::CutAfter).for_method(Method::Delete);
    late.user_agent = "daemon".into();
    world.server.faults = vec![
        FaultRule::new("*/secrets", status(429, "TooManyRequests", Some(2))).times(1),
        FaultRule::new("*/secrets", Effect::PlainNotFound).times(1),
        FaultRule::new("*/secrets", Effect::CutBefore).times(1),
        FaultRule::new("*/secrets", Effect::Truncate(5)).times(1),
        FaultRule::new("*/secrets?limit=*", Effect::Delay(Duration::from_secs(9))),
        late,
    ];
    let mut seen = String::new();
    for target in ["", "", "", "", "?limit=3", "?x"] {
        let r = world.ask(&Request::get(&format!("/api/v1/secrets{target}")));
        let _ = writeln!(seen, "{} {:?} {:?} {:?}", r.code, r.retry_after_s, r.truncate_after_bytes, r.delay);
    }
    check(
        &seen,
        &expect![[r#"
            429 Some(2) None 0ns
            404 None None 0ns
            0 None None 0ns
            200 None Some(5) 0ns
            200 None None 9s
            200 None None 0ns
        "#]],
    );
    let cut = world.ask(&Request::delete(&format!("{MAPS}/a")).from_agent("gc-daemon/1"));
    assert_eq!(cut.body, Body::Cut, "no answer");
    assert_eq!(world.server.object("configmaps", "ns", "a"), None, "but it was carried out");
    let codes: Vec<u16> = world.server.requests().map(|r| r.code).collect();
    assert_eq!(codes.iter().rev().take(7).copied().collect::<Vec<_>>(), [0, 200, 200, 200, 0, 404, 429]);
}

#[test]
fn a_cut_answer_leaves_no_watch_behind() {
    let mut world = World::new("cm/a @ns");
    world.server.faults = vec![FaultRule::new("", Effect::CutAfter)];
    assert_eq!(world.ask(&Request::get(&format!("{MAPS}?watch=1"))).body, Body::Cut);
    assert_eq!(world.server.open_watches(), 0);
}

#[test]
fn kubernetes_111354_a_broken_conversion_spoils_one_resource_only() {
    let mut world = World::new("cm/a @ns");
    world.server.switches.broken_resources.insert("configmaps".into());
    let code = |world: &mut World, target: &str| world.ask(&Request::get(target)).code;
    assert_eq!(code(&mut world, MAPS), 500);
    assert_eq!(code(&mut world, &format!("{MAPS}/a")), 500);
    assert_eq!(code(&mut world, &format!("{MAPS}?watch=1")), 429);
    assert_eq!(code(&mut world, "/api/v1/secrets"), 200);
    let deleted = world.ask(&Request::delete(&format!("{MAPS}/a")));
    assert_eq!(deleted.code, 200, "writes do not read the others");
}

#[test]
fn s7_a_restored_server_goes_back_in_time() {
    let mut world = World::new("cm/a @ns");
    let (snapshot, then) = (world.server.snapshot(), world.server.resource_version());
    let watch = world.watch(&format!("{MAPS}?watch=1"));
    let first = world.server.object("configmaps", "ns", "a").unwrap()["metadata"]["uid"].clone();
    world.ask(&Request::delete(&format!("{MAPS}/a")));
    world.server.load(world.now, "cm/a @ns\ncm/b @ns").unwrap();
    let uids = |server: &ApiServer| -> Vec<Value> {
        server.objects("configmaps").iter().map(|o| o["metadata"]["uid"].clone()).collect()
    };
    let between = uids(&world.server);
    world.server.restore(&snapshot);
    assert_eq!(world.server.resource_version(), then);
    assert_eq!(uids(&world.server), [first]);
    assert_eq!(world.poll(watch), "END\n");
    world.server.load(world.now, "cm/b @ns").unwrap();
    assert!(uids(&world.server).iter().all(|uid| !between.contains(uid)), "no UID is given twice");
    let refused = world.get(&format!("{MAPS}?resourceVersion={}", then + 9));
    assert_eq!(refused["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
}

#[test]
fn the_same_seed_and_requests_give_the_same_bytes() {
    let run = |seed| {
        let mut server = ApiServer::new(seed);
        let now = Timestamp::UNIX_EPOCH;
        server.load(now, "cm/a @ns\ncm/b @ns owners=[cm/a!]").unwrap();
        server.handle(now, &Request::post(MAPS, &json!({"metadata": {"generateName": "x-"}})));
        server.handle(now, &Request::get(MAPS)).body_bytes().to_vec()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn both_forms_of_discovery_tell_the_same() {
    let mut world = World::new("cm/a @ns");
    let mut aggregated = Vec::new();
    for root in ["/api", "/apis"] {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        let list = world.ask(&Request::get(root).accepting(accept)).value();
        assert_eq!(list["kind"], "APIGroupDiscoveryList");
        for group in list["items"].as_array().unwrap() {
            for version in group["versions"].as_array().unwrap() {
                for resource in version["resources"].as_array().unwrap() {
                    let group = group["metadata"]["name"].as_str().unwrap_or_default();
                    let (version, kind) = (&version["version"], &resource["responseKind"]["kind"]);
                    aggregated.push(format!(
                        "{group}/{} {} {kind} {}",
                        version.as_str().unwrap(),
                        resource["resource"],
                        resource["scope"] == "Namespaced"
                    ));
                }
            }
        }
    }
    world.server.switches.aggregated_discovery = false;
    let mut paths = vec![("/v1".to_string(), "/api/v1".to_string())];
    for group in world.get("/apis")["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            let name = version["groupVersion"].as_str().unwrap();
            paths.push((name.into(), format!("/apis/{name}")));
        }
    }
    let mut legacy = Vec::new();
    for (name, path) in paths {
        for resource in world.get(&path)["resources"].as_array().unwrap() {
            if !resource["name"].as_str().unwrap().contains('/') {
                legacy.push(format!(
                    "{name} {} {} {}",
                    resource["name"], resource["kind"], resource["namespaced"]
                ));
            }
        }
    }
    assert_eq!(aggregated, legacy);
    assert_eq!(legacy.len(), 24);
}

#[test]
fn kubernetes_60037_discovery_can_be_empty_and_s3_a_group_can_be_down() {
    let mut world = World::new("cm/a @ns");
    world.server.switches.empty_discovery = true;
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    assert_eq!(world.ask(&Request::get("/apis").accepting(accept)).value()["items"], json!([]));
    assert_eq!(world.get("/apis")["groups"], json!([]));
    world.server.switches.empty_discovery = false;
    world.server.switches.groups_down.insert("metrics.k8s.io/v1beta1".into());
    let list = world.ask(&Request::get("/apis").accepting(accept)).value();
    let metrics =
        list["items"].as_array().unwrap().iter().find(|g| g["metadata"]["name"] == "metrics.k8s.io");
    assert_eq!(metrics.unwrap()["versions"], json!([{"version": "v1beta1", "freshness": "Stale"}]));
    let down = world.ask(&Request::get("/apis/metrics.k8s.io/v1beta1/nodes"));
    assert_eq!((down.code, down.body_bytes()), (503, b"service unavailable\n".as_slice()));
    assert_eq!(world.ask(&Request::get("/apis/metrics.k8s.io/v1beta1")).code, 503);
}

#[test]
fn tables_hold_what_kubectl_prints() {
    let mut world = World::new("cm/a @ns");
    world.pass(61);
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let table = world.ask(&Request::get(MAPS).accepting(accept)).value();
    assert_eq!((&table["kind"], &table["rows"][0]["cells"]), (&json!("Table"), &json!(["a", "61s"])));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

#[test]
fn misshapen_objects_are_refused() {
    let mut world = World::new("cm/a @ns");
    let odd = [json!(7), json!("x"), json!([1]), json!({"x": 1}), json!([[]]), json!(true)];
    for path in ["/api/v1/namespaces", MAPS, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"] {
        for value in &odd {
            for key in
                ["labels", "annotations", "finalizers", "ownerReferences", "generation", "deletionTimestamp"]
            {
                let fits =
                    (key, value) == ("generation", &json!(7)) || (key == "deletionTimestamp" && value == "x");
                let body = json!({"metadata": {"name": "odd", key: value}});
                let code = world.ask(&Request::post(path, &body).json(&body)).code;
                assert!(code == 400 || fits, "{path} {body} {code}");
            }
            for body in [
                json!({"metadata": value}),
                json!({"metadata": {"name": "odd"}, "spec": value}),
                value.clone(),
            ] {
                let code = world.ask(&Request::post(path, &body)).code;
                assert!([400, 422, 201, 409].contains(&code), "{path} {body} {code}");
            }
            let body = json!({"metadata": {"name": "ns"}, "status": value});
            assert!(world.ask(&Request::put("/api/v1/namespaces/ns/status", &body)).code < 500);
        }
    }
    assert_eq!(world.ask(&Request::delete("/api/v1/namespaces/ns")).code, 200);
}
