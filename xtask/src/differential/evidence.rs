//! The difference that needs a definition to change: what counts as proof that an owner is gone.
//!
//! A custom resource has two versions; a dependent names its owner by the one that the collector does not watch. That
//! version is no longer served, which makes its paths answer 404, but not a 404 about the owner: the owner lives. The
//! reference takes any 404 for absence, as long as it has not looked at discovery again (every 30 s), and deletes the
//! dependent. The daemon does not.

use std::time::Duration;

use gc_client::ApiResource;
use serde_json::{Value, json};

use crate::api::Api;
use crate::differential::model::GROUP;
use crate::differential::pair::Pair;
use crate::differential::side::Side;
use crate::failure::Failure;
use crate::kinds;
use crate::poll::{Look, eventually};

/// In the moment between the change and the dependent's creation, the reference may happen to look at discovery: once in
/// some thirty tries. All three tries fail once in some 27,000 runs.
const TRIES: u32 = 3;
/// The API server takes a changed definition over within seconds.
const SERVED_DEADLINE: Duration = Duration::from_secs(30);
/// The reference deletes within milliseconds; a look at discovery later it no longer does.
const DECIDED_DEADLINE: Duration = Duration::from_secs(3);

/// The definitions, which collectors have to know from their start: a fresh one for each try.
pub fn definitions() -> Vec<(ApiResource, Value)> {
    let define = |number| {
        let resource = resource(number, "v2");
        let definition = kinds::definition(&resource, &[version("v1", true), version("v2", true)]);
        (resource, definition)
    };
    (0..TRIES).map(define).collect()
}

/// Runs it; nothing when both did what is written above.
///
/// # Errors
///
/// When a server does not answer, or a signal comes.
pub fn run(pair: &mut Pair) -> Result<Option<String>, Failure> {
    let mut reference_deleted = false;
    let mut failure = None;
    let [reference, ours] = pair.sides();
    for number in 0..TRIES {
        if !reference_deleted {
            reference_deleted = !dependent_survives(reference, number)?;
        }
        if !dependent_survives(ours, number)? {
            failure = Some(String::from("ours deleted a dependent whose owner lives\n"));
        }
        if reference_deleted {
            break;
        }
    }
    if !reference_deleted {
        failure.get_or_insert(String::from("the reference no longer takes any 404 for absence\n"));
    }
    Ok(failure)
}

/// Whether a dependent that names its owner by a version that is no longer served lives for a while.
fn dependent_survives(side: &Side, number: u32) -> Result<bool, Failure> {
    let api = side.api();
    let [v1, v2] = [resource(number, "v1"), resource(number, "v2")];
    let owner = json!({ "apiVersion": v2.api_version(), "kind": v2.kind, "metadata": { "name": "owner" } });
    let owner = api.create(&v2.path("default", ""), &owner)?;
    serve_v1(api, &v1, false)?;
    let name = format!("child-of-{}", v1.resource);
    let child = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "ownerReferences": [{
            "apiVersion": v1.api_version(),
            "kind": v1.kind,
            "name": "owner",
            "uid": owner["metadata"]["uid"],
        }]},
    });
    let configs = kinds::config_map();
    api.create(&configs.path("default", ""), &child)?;
    let path = configs.path("default", &name);
    let gone = eventually("the dependent goes", DECIDED_DEADLINE, || {
        Ok(api.get(&path)?.map_or(Look::Done(()), |_| Look::NotYet("there".into())))
    });
    let is_there = gone.is_err();
    if is_there && api.get(&v2.path("default", "owner"))?.is_none() {
        return Err(Failure::new("the owner is gone, which nobody deleted"));
    }
    serve_v1(api, &v1, true)?;
    Ok(is_there)
}

/// Changes the definition and waits until the server has taken it over.
fn serve_v1(api: &Api, v1: &ApiResource, served: bool) -> Result<(), Failure> {
    let path = kinds::custom_resource_definition().path("", &format!("{}.{GROUP}", v1.resource));
    let versions = [version("v1", served), version("v2", true)];
    api.merge_patch(&path, &json!({ "spec": { "versions": versions } }))?;
    let list = v1.path("default", "");
    eventually(&format!("{list} is served: {served}"), SERVED_DEADLINE, || {
        let is_served = api.get(&list).is_ok_and(|list| list.is_some());
        Ok(if is_served == served { Look::Done(()) } else { Look::NotYet(format!("{is_served}")) })
    })
}

/// `v2` is preferred, by Kubernetes' order of versions, and so it is what collectors watch; `v1` is what is stored.
fn version(name: &str, served: bool) -> Value {
    let mut version = kinds::version(name, name == "v1");
    version["served"] = json!(served);
    version
}

fn resource(number: u32, version: &str) -> ApiResource {
    kinds::namespaced(GROUP, version, &format!("relics{number}"), &format!("Relic{number}"))
}
