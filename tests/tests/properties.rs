//! Properties of the simulator under requests that nobody would write by hand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test may stop where it stands.

use std::collections::BTreeMap;

use gc_tests::sim::{ApiServer, Body, Method, Request, Timestamp, WatchId};
use proptest::prelude::*;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A request of a small world: few names, so that requests meet.
fn request() -> impl Strategy<Value = Request> {
    let name = prop::sample::select(vec!["a", "b", "c"]);
    let finalizers = prop::sample::subsequence(vec!["x.y/z", "orphan", "foregroundDeletion", "p.q/r"], 0..3);
    let policy = prop::sample::select(vec!["", "Foreground", "Background", "Orphan"]);
    (0..7_u8, name, finalizers, policy).prop_map(|(verb, name, finalizers, policy)| {
        let path = format!("{MAPS}/{name}");
        let metadata = json!({"metadata": {"name": name, "finalizers": finalizers, "labels": {"p": policy}}});
        match verb {
            0 | 1 => Request::post(MAPS, &metadata),
            2 => Request::put(&path, &metadata),
            3 => Request::merge_patch(&path, &json!({"metadata": {"finalizers": finalizers}})),
            4 => Request::strategic_patch(&path, &metadata),
            5 => Request::delete(&format!("{path}?propagationPolicy={policy}")),
            _ => Request::delete(&path).json(&json!({"orphanDependents": policy == "Orphan"})),
        }
    })
}

/// What a client knows that began with a list and follows a watch: name to resourceVersion.
fn follow(known: &mut BTreeMap<String, Value>, server: &mut ApiServer, now: Timestamp, watch: WatchId) {
    for event in server.poll_watch(now, watch).events {
        let name = event.object["metadata"]["name"].as_str().unwrap_or_default().to_string();
        match event.kind {
            "ADDED" => assert_eq!(known.insert(name, Value::clone(&event.object)), None, "added twice"),
            "MODIFIED" => {
                assert!(known.insert(name, Value::clone(&event.object)).is_some(), "modified before added");
            }
            "DELETED" => assert!(known.remove(&name).is_some(), "deleted before added"),
            other => panic!("{other}"),
        }
    }
}

fn present(server: &ApiServer) -> BTreeMap<String, Value> {
    let objects = server.objects("configmaps");
    objects.iter().map(|o| (o["metadata"]["name"].as_str().unwrap().into(), Value::clone(o))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_watch_tells_what_a_list_shows(requests in prop::collection::vec(request(), 1..60), polled in any::<u64>()) {
        let mut server = ApiServer::new(1);
        let now = Timestamp::UNIX_EPOCH;
        let watch = server.handle(now, &Request::get(&format!("{MAPS}?watch=1"))).watch().unwrap();
        let mut known = BTreeMap::new();
        let mut version = server.resource_version();
        for (i, request) in requests.iter().enumerate() {
            let before = present(&server);
            let response = server.handle(now, request);
            prop_assert!(response.code < 500, "{} {}", response.code, response.value());
            let after = server.resource_version();
            prop_assert!(after >= version && after <= version + 2);
            prop_assert_eq!(after == version, before == present(&server), "a write makes a version, nothing else does");
            prop_assert!(response.code < 400 || after == version, "a refusal writes nothing");
            version = after;
            if polled >> (i % 64) & 1 == 1 {
                follow(&mut known, &mut server, now, watch);
            }
        }
        follow(&mut known, &mut server, now, watch);
        prop_assert_eq!(known, present(&server));
    }

    #[test]
    fn deletion_is_one_way(requests in prop::collection::vec(request(), 1..60)) {
        let mut server = ApiServer::new(1);
        for request in &requests {
            server.handle(Timestamp::UNIX_EPOCH, request);
        }
        for write in server.writes().filter(|w| w.resource == "configmaps") {
            let (Some(before), Some(after)) = (&write.before, &write.after) else { continue };
            let field = |o: &Value, key: &str| o["metadata"][key].clone();
            prop_assert_eq!(field(before, "uid"), field(after, "uid"));
            prop_assert_ne!(field(before, "resourceVersion"), field(after, "resourceVersion"));
            let deletion = field(before, "deletionTimestamp");
            prop_assert!(deletion.is_null() || deletion == field(after, "deletionTimestamp"));
            let held = field(after, "finalizers").as_array().is_some_and(|f| !f.is_empty());
            prop_assert!(field(after, "deletionTimestamp").is_null() || held, "nothing holds it, yet it is there");
        }
    }

    #[test]
    fn nothing_makes_it_panic(
        method in prop::sample::select(vec![Method::Get, Method::Post, Method::Put, Method::Patch, Method::Delete]),
        path in "(/(api|apis|v1|namespaces|default|configmaps|a|apps|%2e%2e|%zz|\\PC{0,3})){0,7}",
        query in "(\\?((watch|limit|continue|labelSelector|fieldSelector|resourceVersion|dryRun)=(1|All|x=y|!|a in \\(b|%00|\\PC{0,4})&){0,3})?",
        kind in prop::sample::select(vec![
            "application/json", "application/merge-patch+json", "application/strategic-merge-patch+json",
            "application/json-patch+json", "application/vnd.kubernetes.protobuf", "",
        ]),
        accept in "(application/json|application/vnd.kubernetes.protobuf|\\*/\\*)?(;as=(Table|PartialObjectMetadata|PartialObjectMetadataList))?",
        body in prop_oneof![
            Just(b"{\"metadata\":7,\"spec\":[]}".to_vec()),
            Just(b"{\"metadata\":{\"name\":\"a\",\"finalizers\":{},\"ownerReferences\":[1,null,{}],\"labels\":[]}}".to_vec()),
            Just(b"[{\"op\":\"move\",\"from\":\"/metadata\",\"path\":\"/metadata/x\"},{\"op\":\"add\",\"path\":\"\",\"value\":1}]".to_vec()),
            prop::collection::vec(any::<u8>(), 0..60),
        ],
    ) {
        let mut server = ApiServer::new(1);
        let now = Timestamp::MAX;
        server.load(now, "cm/a @default finalizers=[x.y/z] deleting").unwrap();
        let mut request = Request::new(method, &format!("{path}{query}")).accepting(&accept);
        request.content_type = kind.into();
        request.body = body;
        let response = server.handle(now, &request);
        if let Body::Watch(id) = response.body {
            server.poll_watch(now, id);
        }
        prop_assert!((200..600).contains(&response.code));
    }
}
