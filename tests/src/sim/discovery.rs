//! Which resources there are: the aggregated form (`apidiscovery.k8s.io`), the older form, and the version.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::Switches;
use super::render::clauses;
use super::request::Response;
use super::resources::{Resource, compare_versions};
use super::status::ApiError;
use super::store::State;

/// The versions of one group, the preferred one first.
type Groups = BTreeMap<String, Vec<String>>;

/// `/version`.
pub(crate) fn version() -> Response {
    Response::json(
        200,
        &json!({
            "major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "0", "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "none", "platform": "simulator",
        }),
    )
}

/// `/api` (core) or `/apis` (the named groups).
pub(crate) fn root(state: &State, switches: &Switches, core: bool, accept: &str) -> Response {
    let groups = if switches.empty_discovery { Groups::new() } else { groups(state, switches) };
    if let Some(version) = aggregated_version(accept).filter(|_| switches.aggregated_discovery) {
        let items: Vec<Value> = groups
            .iter()
            .filter(|(group, _)| group.is_empty() == core)
            .map(|(group, versions)| aggregated_group(state, switches, group, versions))
            .collect();
        let api_version = format!("apidiscovery.k8s.io/{version}");
        let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": api_version, "metadata": {}, "items": items});
        let mut response = Response::json(200, &list);
        response.content_type =
            format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
        return response;
    }
    if core {
        let versions = groups.get("").cloned().unwrap_or_default();
        return Response::json(
            200,
            &json!({"kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": []}),
        );
    }
    let groups: Vec<Value> = groups
        .iter()
        .filter(|(group, _)| !group.is_empty())
        .map(|(group, versions)| legacy_group(group, versions))
        .collect();
    Response::json(200, &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
}

/// `/apis/GROUP`.
pub(crate) fn group(state: &State, switches: &Switches, group: &str) -> Result<Response, ApiError> {
    let groups = groups(state, switches);
    let versions = groups.get(group).ok_or_else(ApiError::page_not_found)?;
    let mut value = legacy_group(group, versions);
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    Ok(Response::json(200, &value))
}

/// `/api/v1` or `/apis/GROUP/VERSION`.
pub(crate) fn resources(state: &State, group: &str, version: &str) -> Result<Response, ApiError> {
    let found: Vec<&Arc<Resource>> =
        state.resources.iter().filter(|r| r.group == group && r.serves(version)).collect();
    let Some(first) = found.first() else {
        // The real server says this of another version of a built-in group.
        let built_in = state.resources.iter().any(|r| !r.custom && r.group == group);
        return Err(if built_in { ApiError::resource_not_served() } else { ApiError::page_not_found() });
    };
    let mut list = Vec::new();
    for resource in &found {
        list.push(legacy_resource(resource));
        if resource.traits.status {
            list.push(json!({
                "name": format!("{}/status", resource.plural), "singularName": "", "namespaced": resource.namespaced,
                "kind": resource.kind, "verbs": ["get", "patch", "update"],
            }));
        }
    }
    let group_version = first.api_version(version);
    Ok(Response::json(
        200,
        &json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list}),
    ))
}

/// All groups with their versions, those of groups that are down included.
fn groups(state: &State, switches: &Switches) -> Groups {
    let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for resource in state.resources.iter().filter(|r| !r.versions.is_empty()) {
        groups.entry(resource.group.clone()).or_default().extend(resource.versions.iter().cloned());
    }
    for down in &switches.groups_down {
        if let Some((group, version)) = down.split_once('/') {
            groups.entry(group.into()).or_default().insert(version.into());
        }
    }
    let sorted = |versions: BTreeSet<String>| {
        let mut versions: Vec<String> = versions.into_iter().collect();
        versions.sort_by(|a, b| compare_versions(a, b));
        versions
    };
    groups.into_iter().map(|(group, versions)| (group, sorted(versions))).collect()
}

/// The version of the aggregated form that the client accepts, if any.
fn aggregated_version(accept: &str) -> Option<&'static str> {
    clauses(accept).into_iter().find_map(|clause| {
        let fits = clause.convert.as_deref() == Some("APIGroupDiscoveryList")
            && clause.group == "apidiscovery.k8s.io";
        match clause.version.as_str() {
            "v2" if fits => Some("v2"),
            "v2beta1" if fits => Some("v2beta1"),
            _ => None,
        }
    })
}

fn aggregated_group(state: &State, switches: &Switches, group: &str, versions: &[String]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| {
            let served = state.resources.iter().filter(|r| r.group == group && r.serves(version));
            let resources: Vec<Value> = served.map(|r| aggregated_resource(r, version)).collect();
            let down = switches.groups_down.contains(&format!("{group}/{version}"));
            let mut value = json!({"version": version, "freshness": if down { "Stale" } else { "Current" }});
            if !resources.is_empty() {
                value["resources"] = resources.into();
            }
            value
        })
        .collect();
    let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(resource: &Resource, version: &str) -> Value {
    // Built-in kinds leave group and version of the response to the list; custom ones name them.
    let (group, shown_version) = if resource.custom { (resource.group.as_str(), version) } else { ("", "") };
    let response_kind = json!({"group": group, "version": shown_version, "kind": resource.kind});
    let mut value = json!({
        "resource": resource.plural, "responseKind": response_kind,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": resource.verbs(),
    });
    add_names(&mut value, resource);
    if resource.traits.status {
        value["subresources"] = json!([{"subresource": "status", "responseKind": response_kind, "verbs": ["get", "patch", "update"]}]);
    }
    value
}

fn legacy_resource(resource: &Resource) -> Value {
    let mut value = json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": resource.verbs(),
    });
    add_names(&mut value, resource);
    value
}

fn add_names(value: &mut Value, resource: &Resource) {
    if !resource.short_names.is_empty() {
        value["shortNames"] = resource.short_names.clone().into();
    }
    if !resource.categories.is_empty() {
        value["categories"] = resource.categories.clone().into();
    }
}

fn legacy_group(group: &str, versions: &[String]) -> Value {
    let list: Vec<Value> =
        versions.iter().map(|v| json!({"groupVersion": format!("{group}/{v}"), "version": v})).collect();
    json!({"name": group, "versions": list, "preferredVersion": list.first().cloned().unwrap_or_default()})
}
