use std::fmt::Write as _;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// What a server answers: path, content type, code, body. Everything else is 404 as the real server writes it.
struct Server(Vec<(&'static str, &'static str, u16, String)>);

impl Server {
    fn answers(mut self, path: &'static str, content_type: &'static str, body: &Value) -> Server {
        self.0.push((path, content_type, 200, body.to_string()));
        self
    }

    fn fails(mut self, path: &'static str, code: u16, body: &str) -> Server {
        self.0.push((path, "text/plain", code, body.into()));
        self
    }

    fn discover(&self) -> Result<Discovery, Error> {
        discover_with(&|path, _| {
            let found = self.0.iter().find(|answer| answer.0 == path);
            let (content_type, code, body) =
                found.map_or(("text/plain", 404, "404 page not found\n"), |a| (a.1, a.2, a.3.as_str()));
            Ok(Response {
                code,
                content_type: content_type.into(),
                retry_after: None,
                body: body.into(),
                ..Response::default()
            })
        })
    }

    fn check(&self, expected: &Expect) {
        expected.assert_eq(&text(&self.discover()));
    }
}

/// One line a resource: `*` marks the preferred version, the verbs are those that matter.
fn text(result: &Result<Discovery, Error>) -> String {
    let mut text = String::new();
    match result {
        Ok(Discovery { resources, failed }) => {
            for r in resources {
                let verbs = [(r.can_delete, "delete"), (r.can_list, "list"), (r.can_watch, "watch")];
                let verbs: Vec<&str> = verbs.iter().filter(|v| v.0).map(|v| v.1).collect();
                let (mark, scope) = (
                    if r.preferred { "*" } else { " " },
                    if r.namespaced { "namespaced" } else { "cluster" },
                );
                writeln!(
                    text,
                    "{mark} {} {} {} {scope} {}",
                    r.api_version(),
                    r.resource,
                    r.kind,
                    verbs.join(",")
                )
                .unwrap();
            }
            for (group_version, why) in failed {
                writeln!(text, "failed {group_version}: {why}").unwrap();
            }
        }
        Err(error) => writeln!(text, "error: {error}").unwrap(),
    }
    text
}

fn aggregated(items: &Value) -> Value {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn found(resource: &str, kind: &str, scope: &str) -> Value {
    json!({"resource": resource, "responseKind": {"group": "", "version": "", "kind": kind}, "scope": scope,
        "singularResource": "", "verbs": ["create", "delete", "get", "list", "watch"],
        "subresources": [{"subresource": "status", "responseKind": {"kind": kind}, "verbs": ["get"]}]})
}

fn core() -> Value {
    aggregated(
        &json!([{"metadata": {"creationTimestamp": null}, "versions": [{"version": "v1", "freshness": "Current",
        "resources": [found("pods", "Pod", "Namespaced"), found("nodes", "Node", "Cluster"),
            {"resource": "bindings", "responseKind": {"kind": "Binding"}, "scope": "Namespaced", "verbs": ["create"]}]}]}]),
    )
}

#[test]
fn s1_aggregated_discovery_gives_everything_in_two_answers() {
    let named = aggregated(&json!([{"metadata": {"name": "apps"}, "versions": [
        {"version": "v1", "freshness": "Current", "resources": [found("deployments", "Deployment", "Namespaced")]},
        {"version": "v1beta1", "freshness": "Current", "resources": [
            found("deployments", "Deployment", "Namespaced"), found("relics", "Relic", "Namespaced"),
            // The parent of sub-resources only.
            {"resource": "ghosts", "scope": "Namespaced", "verbs": ["delete"], "responseKind": null,
                "subresources": [{"subresource": "eviction", "responseKind": {"kind": "Eviction"}}]}]}]}]));
    Server(vec![]).answers("/api", AGGREGATED, &core()).answers("/apis", AGGREGATED, &named).check(&expect![
        [r#"
        * v1 pods Pod namespaced delete,list,watch
        * v1 nodes Node cluster delete,list,watch
        * v1 bindings Binding namespaced 
        * apps/v1 deployments Deployment namespaced delete,list,watch
          apps/v1beta1 deployments Deployment namespaced delete,list,watch
        * apps/v1beta1 relics Relic namespaced delete,list,watch
    "#]
    ]);
}

#[test]
fn s3_a_stale_version_is_failed_and_the_next_is_preferred() {
    let named = aggregated(&json!([{"metadata": {"name": "metrics.example"}, "versions": [
        {"version": "v2", "freshness": "Stale", "resources": [found("things", "Thing", "Cluster")]},
        {"version": "v1", "freshness": "Current", "resources": [found("things", "Thing", "Cluster")]}]},
        {"metadata": {"name": "down.example"}, "versions": [{"version": "v1", "freshness": "Stale", "resources": null}]}]));
    let other_order =
        "application/json; charset=utf-8; as=APIGroupDiscoveryList; v=v2beta1; g=apidiscovery.k8s.io";
    let empty = aggregated(&json!([]));
    Server(vec![]).answers("/api", AGGREGATED, &empty).answers("/apis", other_order, &named).check(&expect![
        [r#"
        * metrics.example/v1 things Thing cluster delete,list,watch
        failed metrics.example/v2: the server knows only a stale state of it
        failed down.example/v1: the server knows only a stale state of it
    "#]
    ]);
}

fn legacy() -> Server {
    let list = |entries: Value| json!({"kind": "APIResourceList", "groupVersion": "", "resources": entries});
    let thing = |kind: &str| {
        json!({"name": "things", "kind": kind, "namespaced": false, "singularName": "",
        "verbs": ["delete", "list", "watch"]})
    };
    let status = json!({"name": "things/status", "kind": "Thing", "namespaced": false, "verbs": ["get"]});
    Server(vec![])
        .answers("/api", "application/json", &json!({"kind": "APIVersions", "versions": ["v1"]}))
        .answers("/apis", "application/json", &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [
            {"name": "g.example", "preferredVersion": {"groupVersion": "g.example/v1", "version": "v1"},
                "versions": [{"version": "v2alpha1"}, {"version": "v1"}]},
            {"name": "down.example", "preferredVersion": {"version": "v1"}, "versions": [{"version": "v1"}]}]}))
        .answers("/api/v1", "application/json", &list(json!([
            {"name": "pods", "kind": "Pod", "namespaced": true, "verbs": ["delete", "list", "watch"]}])))
        .answers("/apis/g.example/v1", "application/json", &list(json!([thing("Thing"), status])))
        .answers("/apis/g.example/v2alpha1", "application/json", &list(json!([thing("NewThing"),
            {"name": "extras", "kind": "Extra", "namespaced": true, "verbs": null}])))
}

#[test]
fn s1_the_older_form_is_understood_too() {
    legacy().fails("/apis/down.example/v1", 503, "service unavailable").check(&expect![[r#"
        * v1 pods Pod namespaced delete,list,watch
          g.example/v2alpha1 things NewThing cluster delete,list,watch
        * g.example/v2alpha1 extras Extra namespaced 
        * g.example/v1 things Thing cluster delete,list,watch
        failed down.example/v1: the server answered 503: service unavailable
    "#]]);
}

#[test]
fn kubernetes_60037_an_answer_that_is_no_discovery_is_never_an_empty_one() {
    let html = "application/json";
    Server(vec![]).answers("/api", html, &json!({"error": "maintenance"})).check(&expect![[r#"
        error: GET /api: cannot read the answer: expected APIVersions, found a document without a kind
    "#]]);
    Server(vec![]).answers("/api", AGGREGATED, &core()).check(&expect![[r#"
        error: the server answered 404: 404 page not found
    "#]]);
    Server(vec![]).answers("/api", AGGREGATED, &core()).fails("/apis", 503, "etcd is down").check(&expect![
        [r#"
            error: the server answered 503: etcd is down
        "#]
    ]);
    Server(vec![])
        .answers("/api", AGGREGATED, &core())
        .answers("/apis", AGGREGATED, &json!({"kind": "APIGroupList", "groups": []}))
        .check(&expect![[r#"
            error: GET /apis: cannot read the answer: expected APIGroupDiscoveryList, found a APIGroupList
        "#]]);
}

#[test]
fn kubernetes_104342_a_missing_core_group_is_failed_rather_than_gone() {
    Server(vec![]).answers("/apis", AGGREGATED, &aggregated(&json!([]))).check(&expect![[r#"
        failed v1: the server answered 404: 404 page not found
    "#]]);
}

#[test]
fn a_refused_accept_header_is_repeated_without_parameters() {
    let result = discover_with(&|path, accept| {
        let (code, body) = match (path, accept) {
            (_, ACCEPT) => (406, Value::Null),
            ("/api", ACCEPT_PLAIN) => (200, json!({"kind": "APIVersions", "versions": null})),
            _ => (200, json!({"kind": "APIGroupList", "groups": null})),
        };
        Ok(Response {
            code,
            content_type: "application/json".into(),
            body: body.to_string().into(),
            ..Response::default()
        })
    });
    assert_eq!(result, Ok(Discovery::default()));
}

#[test]
fn the_older_form_is_bounded() {
    let versions: Vec<String> = (0..GROUP_VERSIONS_MAX + 1).map(|n| format!("v{n}")).collect();
    let requests = Mutex::new(0);
    let result = discover_with(&|path, _| {
        *requests.lock().unwrap() += 1;
        let body = match path {
            "/api" => json!({"kind": "APIVersions", "versions": versions}),
            "/apis" => json!({"kind": "APIGroupList"}),
            _ => json!({"kind": "APIResourceList"}),
        };
        Ok(Response {
            code: 200,
            content_type: "application/json".into(),
            body: body.to_string().into(),
            ..Response::default()
        })
    });
    assert_eq!(*requests.lock().unwrap(), GROUP_VERSIONS_MAX + 2);
    assert_eq!(
        result.unwrap().failed,
        [(format!("v{GROUP_VERSIONS_MAX}"), "the server has too many versions".into())]
    );
}

#[test]
fn r7_a_name_that_is_no_part_of_a_path_is_asked_for_nowhere() {
    let discovery = discover_with(&|path, _| {
        let body = match path {
            "/api" => json!({"kind": "APIVersions", "versions": ["v1", "..", "v1?x", "a\nb"]}),
            "/apis" => json!({"kind": "APIGroupList", "groups": [{"name": "../api", "versions": [{"version": "v1"}]}]}),
            "/api/v1" => json!({"kind": "APIResourceList", "resources": [{"name": "", "kind": "Empty"}]}),
            other => panic!("{other} was asked for"),
        };
        let body = body.to_string().into();
        Ok(Response { code: 200, content_type: "application/json".into(), retry_after: None, body, ..Response::default() })
    })
    .unwrap();
    assert_eq!(discovery.resources, []);
    let failed: Vec<&str> = discovery.failed.iter().map(|(version, _)| version.as_str()).collect();
    assert_eq!(failed, ["v1", "..", "v1?x", "a b", "../api/v1"]);
}
