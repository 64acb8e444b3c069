//! Reading and writing the metadata of an object that is kept as JSON, and the checks that every object passes.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::status::FieldError;

/// The finalizer of foreground deletion.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of orphaning deletion.
pub(crate) const ORPHAN: &str = "orphan";

/// A text of `metadata`; empty when absent.
pub(crate) fn meta_text<'a>(object: &'a Value, key: &str) -> &'a str {
    meta(object, key).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn meta<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    object.get("metadata")?.get(key)
}

pub(crate) fn meta_number(object: &Value, key: &str) -> Option<i64> {
    meta(object, key).and_then(Value::as_i64)
}

pub(crate) fn name(object: &Value) -> &str {
    meta_text(object, "name")
}

pub(crate) fn uid(object: &Value) -> &str {
    meta_text(object, "uid")
}

pub(crate) fn resource_version(object: &Value) -> &str {
    meta_text(object, "resourceVersion")
}

pub(crate) fn being_deleted(object: &Value) -> bool {
    meta(object, "deletionTimestamp").is_some_and(|v| !v.is_null())
}

pub(crate) fn finalizers(object: &Value) -> Vec<String> {
    let items = meta(object, "finalizers").and_then(Value::as_array);
    items.into_iter().flatten().filter_map(|v| v.as_str().map(Into::into)).collect()
}

/// Sets a field of `metadata`; null, an empty text, list or map takes it away, as `omitempty` does.
pub(crate) fn set_meta(object: &mut Value, key: &str, value: Value) {
    let Some(map) = object.as_object_mut() else { return };
    let metadata = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let Some(metadata) = metadata.as_object_mut() else { return };
    let empty = match &value {
        Value::Null => true,
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    if empty {
        metadata.remove(key);
    } else {
        metadata.insert(key.into(), value);
    }
}

/// Copies a field of `metadata` from another object, its absence included.
pub(crate) fn copy_meta(object: &mut Value, from: &Value, key: &str) {
    set_meta(object, key, meta(from, key).cloned().unwrap_or_default());
}

pub(crate) fn set_top(object: &mut Value, key: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        if value.is_null() {
            map.remove(key);
        } else {
            map.insert(key.into(), value);
        }
    }
}

/// Takes away what typed objects do not write: nulls, and empty lists and maps in `metadata`.
pub(crate) fn tidy(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, v| match v {
            Value::Null => false,
            Value::String(s) => !s.is_empty(),
            Value::Array(a) => !a.is_empty(),
            Value::Object(o) => !o.is_empty(),
            Value::Bool(_) | Value::Number(_) => true,
        });
        metadata.remove("selfLink");
    }
}

/// An owner reference that is given twice, alike in everything, is kept once (`dedupOwnerReferences`).
pub(crate) fn drop_repeated_references(object: &mut Value) {
    let Some(references) = meta(object, "ownerReferences").and_then(Value::as_array) else { return };
    let mut unique: Vec<Value> = Vec::new();
    for reference in references {
        if !unique.contains(reference) {
            unique.push(reference.clone());
        }
    }
    set_meta(object, "ownerReferences", unique.into());
}

/// Whole seconds and `Z`, as Kubernetes writes times.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Whether two objects differ in anything but their resourceVersion: a write that changes nothing is no write.
pub(crate) fn same_content(a: &Value, b: &Value) -> bool {
    let (mut a, mut b) = (a.clone(), b.clone());
    for object in [&mut a, &mut b] {
        set_meta(object, "resourceVersion", Value::Null);
    }
    a == b
}

/// Whether anything outside `metadata` (and outside `status`, where a status is written apart) differs.
pub(crate) fn same_desired_state(a: &Value, b: &Value, status_apart: bool) -> bool {
    let strip = |object: &Value| {
        let mut map = object.as_object().cloned().unwrap_or_default();
        for key in ["metadata", "apiVersion", "kind"] {
            map.remove(key);
        }
        if status_apart {
            map.remove("status");
        }
        map
    };
    strip(a) == strip(b)
}

/// What of an object has another type than its schema says; custom resources may have any `spec` and `status`.
pub(crate) fn misshapen(object: &Value, custom: bool) -> Option<&'static str> {
    if !custom {
        for key in ["spec", "status"] {
            if object.get(key).is_some_and(|v| !v.is_object() && !v.is_null()) {
                return Some(key);
            }
        }
    }
    let metadata = object.get("metadata").filter(|m| !m.is_null())?;
    let Some(metadata) = metadata.as_object() else { return Some("metadata") };
    let fits = |value: &Value, key: &str| match key {
        "labels" | "annotations" => value.as_object().is_some_and(|m| m.values().all(Value::is_string)),
        "finalizers" => value.as_array().is_some_and(|l| l.iter().all(Value::is_string)),
        "ownerReferences" => value.as_array().is_some_and(|l| l.iter().all(is_reference)),
        "generation" | "deletionGracePeriodSeconds" => value.is_i64(),
        _ => value.is_string(),
    };
    let known = [
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
    ];
    known.into_iter().find(|key| metadata.get(*key).is_some_and(|v| !v.is_null() && !fits(v, key)))
}

fn is_reference(value: &Value) -> bool {
    let fits = |(key, value): (&String, &Value)| match key.as_str() {
        "controller" | "blockOwnerDeletion" => value.is_boolean() || value.is_null(),
        "apiVersion" | "kind" | "name" | "uid" => value.is_string() || value.is_null(),
        _ => true,
    };
    value.as_object().is_some_and(|m| m.iter().all(fits))
}

/// How strict the names of a kind are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRule {
    Subdomain,
    Label,
    PathSegment,
}

/// What every object must satisfy (apimachinery `pkg/api/validation`).
pub(crate) fn validate(object: &Value, rule: NameRule) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = name(object);
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else if let Some(complaint) = name_complaint(name, rule) {
        errors.push(FieldError::invalid("metadata.name", &name.into(), &complaint));
    }
    validate_owner_references(object, &mut errors);
    validate_finalizers(object, &mut errors);
    errors
}

fn name_complaint(name: &str, rule: NameRule) -> Option<String> {
    let label_ok = |label: &str| {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        edge(label.chars().next()) && edge(label.chars().last()) && label.chars().all(inner)
    };
    match rule {
        NameRule::PathSegment => {
            if name == "." || name == ".." {
                Some(format!("may not be '{name}'"))
            } else {
                ["/", "%"].iter().find(|c| name.contains(**c)).map(|c| format!("may not contain '{c}'"))
            }
        }
        NameRule::Label => {
            if name.len() > 63 {
                return Some("must be no more than 63 characters".into());
            }
            (!label_ok(name)).then(|| {
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
                    .into()
            })
        }
        NameRule::Subdomain => {
            if name.len() > 253 {
                return Some("must be no more than 253 characters".into());
            }
            (!name.split('.').all(label_ok)).then(|| {
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                 must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                    .into()
            })
        }
    }
}

fn validate_owner_references(object: &Value, errors: &mut Vec<FieldError>) {
    let mut controller: Option<String> = None;
    let references = meta(object, "ownerReferences").and_then(Value::as_array);
    for reference in references.into_iter().flatten() {
        let text = |key: &str| reference.get(key).and_then(Value::as_str).unwrap_or_default();
        for (key, detail) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            // A version is empty when there is nothing behind the only slash, or more than one slash.
            let (slashes, last) =
                (text(key).matches('/').count(), text(key).rsplit('/').next().unwrap_or_default());
            if text(key).is_empty() || key == "apiVersion" && (slashes > 1 || last.is_empty()) {
                let field = format!("metadata.ownerReferences.{key}");
                errors.push(FieldError::invalid(&field, &text(key).into(), detail));
            }
        }
        if text("kind") == "Event" && ["v1", "events.k8s.io/v1"].contains(&text("apiVersion")) {
            let slash = if text("apiVersion").contains('/') { "" } else { "/" };
            let detail =
                format!("{slash}{}, Kind=Event is disallowed from being an owner", text("apiVersion"));
            errors.push(FieldError::invalid_text(
                "metadata.ownerReferences",
                &show_reference(reference),
                &detail,
            ));
        }
        if reference.get("controller") == Some(&Value::Bool(true)) {
            let this = format!("{}/{}", text("kind"), text("name"));
            if let Some(first) = &controller {
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                );
                let all = meta(object, "ownerReferences").and_then(Value::as_array).into_iter().flatten();
                let all: Vec<String> = all.map(show_reference).collect();
                let all = format!("[{}]", all.join(","));
                errors.push(FieldError::invalid_text("metadata.ownerReferences", &all, &detail));
            }
            controller.get_or_insert(this);
        }
    }
}

/// A reference as messages show it: in the order in which the type declares its fields.
fn show_reference(reference: &Value) -> String {
    let mut out = String::from("{");
    for key in ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"] {
        if let Some(value) = reference.get(key) {
            // Writing to a String cannot fail.
            let _ = write!(out, "{}{key:?}:{value}", if out.len() > 1 { "," } else { "" });
        }
    }
    out.push('}');
    out
}

fn validate_finalizers(object: &Value, errors: &mut Vec<FieldError>) {
    const STANDARD: [&str; 3] = ["kubernetes", ORPHAN, FOREGROUND];
    let finalizers = finalizers(object);
    for (i, finalizer) in finalizers.iter().enumerate() {
        if !finalizer.contains('/') && !STANDARD.contains(&finalizer.as_str()) && !finalizer.contains('.') {
            let field = format!("metadata.finalizers[{i}]");
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(&field, &finalizer.as_str().into(), detail));
        }
    }
    if finalizers.iter().any(|f| f == ORPHAN) && finalizers.iter().any(|f| f == FOREGROUND) {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid("metadata.finalizers", &finalizers.into(), detail));
    }
}

/// What an update may not do.
pub(crate) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if being_deleted(old) {
        let before = finalizers(old);
        let mut added: Vec<String> = finalizers(new).into_iter().filter(|f| !before.contains(f)).collect();
        added.sort();
        if !added.is_empty() {
            let mut list = String::new();
            for (i, finalizer) in added.iter().enumerate() {
                // Writing to a String cannot fail.
                let _ = write!(list, "{}{finalizer:?}", if i == 0 { "" } else { ", " });
            }
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{list}}}"
            );
            errors.push(FieldError::forbidden("metadata.finalizers", &detail));
        }
    }
    for key in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        let (new, old) = (meta(new, key), meta(old, key));
        if new != old {
            let field = format!("metadata.{key}");
            errors.push(FieldError::invalid(&field, new.unwrap_or(&Value::Null), "field is immutable"));
        }
    }
    errors
}
