//! Users and other controllers: they create, re-parent, delete, hold and let go, with good references and bad ones.

use serde_json::{Value, json};

use super::kinds::{DEFINITIONS_PATH, KINDS, Kind};
use super::link::Link;
use super::random::Random;
use super::truth::{Object, Violation};
use crate::sim::{Request, Response};

pub(super) const USER: &str = "user";
pub(super) const NAMESPACES: [&str; 2] = ["a", "b"];
/// Few names, so that they are taken again.
const NAMES: [&str; 5] = ["n0", "n1", "n2", "n3", "n4"];
/// What other controllers hold objects with.
pub(super) const HOLDS: [&str; 2] = ["example.com/hold", "example.com/keep"];

/// The namespaces and the definitions that every world begins with.
pub(super) fn prepare(link: &mut Link) -> Result<(), Violation> {
    for namespace in NAMESPACES {
        ask(link, Request::post("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})))?;
    }
    for kind in KINDS.iter().filter(|kind| kind.custom) {
        install(link, kind)?;
    }
    Ok(())
}

pub(super) fn install(link: &mut Link, kind: &Kind) -> Result<Response, Violation> {
    ask(link, Request::post(DEFINITIONS_PATH, &kind.definition()))
}

pub(super) fn uninstall(link: &mut Link, kind: &Kind) -> Result<Response, Violation> {
    ask(link, Request::delete(&format!("{DEFINITIONS_PATH}/{}", kind.store())))
}

/// One thing that somebody does; says what.
pub(super) fn act(link: &mut Link, chance: &mut Random) -> Result<String, Violation> {
    match chance.below(20) {
        0..=6 => create(link, chance),
        7..=9 => re_parent(link, chance),
        10..=14 => delete(link, chance),
        15..=17 => change_finalizers(link, chance),
        _ => touch(link, chance),
    }
}

pub(super) fn create(link: &mut Link, chance: &mut Random) -> Result<String, Violation> {
    let kinds: Vec<&Kind> = link.truth.kinds_served().collect();
    let Some(kind) = chance.pick(&kinds) else { return Ok(String::new()) };
    let namespace = if kind.namespaced { chance.pick(&NAMESPACES).copied().unwrap_or_default() } else { "" };
    let name = chance.pick(&NAMES).copied().unwrap_or_default();
    let owners = references(link, chance, namespace);
    let mut finalizers: Vec<&str> = Vec::new();
    if chance.permille(200) {
        finalizers.extend(chance.pick(&HOLDS));
    }
    if chance.permille(30) {
        finalizers.push(if chance.permille(500) { "orphan" } else { "foregroundDeletion" });
    }
    let body = json!({
        "apiVersion": kind.preferred(), "kind": kind.kind,
        "metadata": {"name": name, "ownerReferences": owners, "finalizers": finalizers},
    });
    let response = ask(link, Request::post(&kind.path(namespace, ""), &body))?;
    let owners = show_owners(&owners);
    Ok(format!(
        "creates {}/{name} {namespace} owners=[{owners}] {finalizers:?}: {}",
        kind.short, response.code
    ))
}

fn re_parent(link: &mut Link, chance: &mut Random) -> Result<String, Violation> {
    let Some(object) = any(link, chance) else { return Ok("finds nothing to re-parent".into()) };
    let owners = references(link, chance, &object.meta.namespace);
    let shown = show_owners(&owners);
    let code = patch(link, &object, &json!({"metadata": {"ownerReferences": owners}}))?;
    Ok(format!("gives {} the owners [{shown}]: {code}", object.show()))
}

fn delete(link: &mut Link, chance: &mut Random) -> Result<String, Violation> {
    let Some(object) = any(link, chance) else { return Ok("finds nothing to delete".into()) };
    let policy =
        chance.pick(&["", "Background", "Foreground", "Foreground", "Orphan"]).copied().unwrap_or_default();
    let path = object.kind.path(&object.meta.namespace, &object.meta.name);
    let path = if policy.is_empty() { path } else { format!("{path}?propagationPolicy={policy}") };
    let code = ask(link, Request::delete(&path))?.code;
    Ok(format!("deletes {} ({policy}): {code}", object.show()))
}

/// Adds a hold, drops one, or takes away what is not theirs to take.
fn change_finalizers(link: &mut Link, chance: &mut Random) -> Result<String, Violation> {
    let Some(object) = any(link, chance) else { return Ok("finds nothing to hold".into()) };
    let mut finalizers = object.meta.finalizers.clone();
    match chance.below(4) {
        0 => {
            let hold = chance.pick(&HOLDS).copied().unwrap_or_default();
            if !object.has(hold) {
                finalizers.insert(chance.below(finalizers.len() + 1), hold.into());
            }
        }
        1 | 2 => finalizers.retain(|f| !HOLDS.contains(&f.as_str())),
        _ => {
            let at = chance.below(finalizers.len());
            if at < finalizers.len() {
                finalizers.remove(at);
            }
        }
    }
    let code = patch(link, &object, &json!({"metadata": {"finalizers": finalizers}}))?;
    Ok(format!("sets the finalizers of {} to {finalizers:?}: {code}", object.show()))
}

/// Other controllers that write all the time.
fn touch(link: &mut Link, chance: &mut Random) -> Result<String, Violation> {
    let Some(object) = any(link, chance) else { return Ok("finds nothing to write to".into()) };
    let stamp = chance.next().to_string();
    let code = patch(link, &object, &json!({"metadata": {"annotations": {"stamp": stamp}}}))?;
    Ok(format!("writes to {}: {code}", object.show()))
}

/// Those who hold objects that are being deleted let them go.
pub(super) fn let_go(link: &mut Link) -> Result<usize, Violation> {
    let held: Vec<Object> =
        link.truth.objects.values().filter(|o| HOLDS.iter().any(|hold| o.has(hold))).cloned().collect();
    for object in &held {
        let rest: Vec<&String> =
            object.meta.finalizers.iter().filter(|f| !HOLDS.contains(&f.as_str())).collect();
        patch(link, object, &json!({"metadata": {"finalizers": rest}}))?;
    }
    Ok(held.len())
}

fn any(link: &Link, chance: &mut Random) -> Option<Object> {
    if chance.permille(300)
        && let Some(object) = chance.pick(&link.in_hand).and_then(|uid| link.truth.objects.get(uid))
    {
        return Some(object.clone());
    }
    let count = link.truth.objects.len();
    link.truth.objects.values().nth(chance.below(count)).cloned()
}

fn references(link: &Link, chance: &mut Random, namespace: &str) -> Vec<Value> {
    let count = chance.pick(&[0, 0, 1, 1, 1, 1, 2, 2, 3]).copied().unwrap_or_default();
    (0..count).map(|_| reference(link, chance, namespace)).collect()
}

fn reference(link: &Link, chance: &mut Random, namespace: &str) -> Value {
    let target = match chance.below(20) {
        0..=14 => near(link, chance, namespace),
        15..=17 => chance.pick(&link.truth.past).cloned(),
        _ => None,
    };
    let (kind, name, uid) = match &target {
        Some(target) => (target.kind, target.meta.name.clone(), target.meta.uid.clone()),
        None => {
            let kind = KINDS.get(chance.below(KINDS.len())).unwrap_or(&KINDS[0]);
            let name = chance.pick(&NAMES).copied().unwrap_or_default();
            // Few, so that several dependents name the same one, perhaps differently.
            (kind, name.into(), format!("00000000-0000-4000-8000-00000000000{}", chance.below(3)))
        }
    };
    let mut reference = json!({"apiVersion": kind.preferred(), "kind": kind.kind, "name": name, "uid": uid});
    spoil(&mut reference, chance, kind);
    match chance.below(10) {
        0..=5 => reference["blockOwnerDeletion"] = true.into(),
        6 => reference["blockOwnerDeletion"] = false.into(),
        _ => {}
    }
    reference
}

/// Other spellings, and mistakes that people make.
fn spoil(reference: &mut Value, chance: &mut Random, kind: &Kind) {
    if kind.versions.len() > 1 && chance.permille(150) {
        reference["apiVersion"] = kind.api_version(kind.versions.last().copied().unwrap_or_default()).into();
    }
    if !chance.permille(100) {
        return;
    }
    match chance.below(6) {
        0 | 1 => reference["name"] = chance.pick(&NAMES).copied().unwrap_or_default().into(),
        2 => {
            let other = KINDS.get(chance.below(KINDS.len())).unwrap_or(&KINDS[0]);
            reference["kind"] = other.kind.into();
            reference["apiVersion"] = other.preferred().into();
        }
        3 => reference["kind"] = "Nothing".into(),
        4 => reference["apiVersion"] = "v9".into(),
        _ => reference["name"] = chance.pick(&["..", "a/b", "x%2Fy"]).copied().unwrap_or_default().into(),
    }
}

/// A living object that the dependent could really belong to, more often than not.
fn near(link: &Link, chance: &mut Random, namespace: &str) -> Option<Object> {
    let mut found = None;
    for _ in 0..3 {
        found = any(link, chance);
        if found.as_ref().is_some_and(|o| o.meta.namespace == namespace || o.meta.namespace.is_empty()) {
            break;
        }
    }
    found
}

fn show_owners(owners: &[Value]) -> String {
    let show = |o: &Value| {
        let text = |key: &str| o[key].as_str().unwrap_or_default().to_owned();
        let block = if o["blockOwnerDeletion"] == true { "!" } else { "" };
        let uid = text("uid");
        let uid = if uid.starts_with("00000000") { uid.as_str() } else { super::truth::short_uid(&uid) };
        format!("{} {}/{}#{uid}{block}", text("apiVersion"), text("kind"), text("name"))
    };
    owners.iter().map(show).collect::<Vec<_>>().join(", ")
}

fn patch(link: &mut Link, object: &Object, body: &Value) -> Result<u16, Violation> {
    let path = object.kind.path(&object.meta.namespace, &object.meta.name);
    Ok(ask(link, Request::merge_patch(&path, body))?.code)
}

fn ask(link: &mut Link, request: Request) -> Result<Response, Violation> {
    link.ask(&request.from_agent(USER))
}
