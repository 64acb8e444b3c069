//! DELETE: options, preconditions, the three propagation policies, graceful deletion of pods, and the deletion of
//! namespaces and definitions, which wait for their content.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::object::{self, FOREGROUND, ORPHAN};
use super::protobuf;
use super::registry::{Actor, Registry, Scope};
use super::request::{Method, Request};
use super::resources::{DefaultPolicy, Resource};
use super::route::check_dry_run;
use super::status::{ApiError, FieldError, Named};

/// The finalizer that holds a definition until its instances are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// `DeleteOptions` of meta.k8s.io/v1.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub grace_period_s: Option<i64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub orphan_dependents: Option<bool>,
    pub propagation: Option<String>,
    pub dry_run: bool,
}

/// What became of the object.
pub(crate) enum Deleted {
    /// Removed; this is its last state.
    Gone(Arc<Value>),
    /// Still there, being deleted.
    Waiting(Arc<Value>),
}

impl DeleteOptions {
    /// From the body when there is one, else from the query.
    pub fn parse(request: &Request) -> Result<DeleteOptions, ApiError> {
        let options = if request.body.is_empty() { from_query(request) } else { from_body(request)? };
        let mut errors = Vec::new();
        if let Some(policy) = &options.propagation {
            if options.orphan_dependents.is_some() {
                let detail = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid("propagationPolicy", &policy.as_str().into(), detail));
            }
            if !["Foreground", "Background", "Orphan"].contains(&policy.as_str()) {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported("propagationPolicy", policy, &supported));
            }
        }
        if errors.is_empty() {
            return Ok(options);
        }
        Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &errors))
    }
}

fn from_query(request: &Request) -> DeleteOptions {
    DeleteOptions {
        grace_period_s: request.query("gracePeriodSeconds").and_then(|v| v.parse().ok()),
        orphan_dependents: request.query("orphanDependents").map(|v| v != "false" && v != "0"),
        propagation: request.query("propagationPolicy").filter(|v| !v.is_empty()),
        dry_run: request.query("dryRun").is_some_and(|v| v == "All"),
        ..DeleteOptions::default()
    }
}

fn from_body(request: &Request) -> Result<DeleteOptions, ApiError> {
    let value: Value = if request.content_type == "application/vnd.kubernetes.protobuf" {
        protobuf::decode_delete_options(&request.body)
            .ok_or_else(|| ApiError::bad_request("provided data does not appear to be a protobuf message"))?
    } else {
        let complaint =
            |e| ApiError::bad_request(&format!("couldn't get version/kind; json parse error: {e}"));
        serde_json::from_slice(&request.body).map_err(complaint)?
    };
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or("DeleteOptions");
    if kind != "DeleteOptions" {
        let version = value.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let message = format!(
            "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
        );
        return Err(ApiError::bad_request(&message));
    }
    let dry_run = value.pointer("/dryRun/0").and_then(Value::as_str);
    check_dry_run(Method::Delete, dry_run)?;
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_string);
    Ok(DeleteOptions {
        grace_period_s: value.get("gracePeriodSeconds").and_then(Value::as_i64),
        uid: text("/preconditions/uid"),
        resource_version: text("/preconditions/resourceVersion"),
        orphan_dependents: value.get("orphanDependents").and_then(Value::as_bool),
        propagation: text("/propagationPolicy"),
        dry_run: dry_run.is_some(),
    })
}

impl Registry {
    /// One DELETE of one object (`Store.Delete`).
    pub fn delete(
        &mut self,
        actor: Actor<'_>,
        scope: &Scope,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        let resource = &*scope.resource;
        let key = scope.key(name);
        let Some(old) = self.state.get(resource, &key).cloned() else {
            return Err(ApiError::not_found(resource, name));
        };
        check_preconditions(resource, name, &old, options)?;
        match (resource.custom, resource.plural.as_str()) {
            (false, "namespaces") if !object::being_deleted(&old) => {
                return Ok(Deleted::Waiting(
                    self.start_namespace_deletion(actor, resource, &key, &old, options),
                ));
            }
            (false, "namespaces") if old.pointer("/spec/finalizers/0").is_some() => {
                return Ok(Deleted::Waiting(old));
            }
            (false, "customresourcedefinitions") if !object::being_deleted(&old) => {
                return Ok(Deleted::Waiting(self.start_definition_deletion(actor, resource, &key, &old)));
            }
            _ => {}
        }
        let grace = graceful(resource, &old, options, actor.now);
        if matches!(grace, Grace::Pending) {
            return Ok(Deleted::Waiting(old));
        }
        let finalizers = finalizers_for_deletion(resource, &old, options);
        let mut new = Value::clone(&old);
        object::set_meta(&mut new, "finalizers", finalizers.clone().into());
        if let Grace::Start { deletion, period_s } = grace {
            begin_graceful(&mut new, &old, deletion, period_s);
            if period_s > 0 || !finalizers.is_empty() {
                return Ok(Deleted::Waiting(self.put_if_changed(actor, resource, &key, &old, new)));
            }
            self.put_if_changed(actor, resource, &key, &old, new);
        } else if !finalizers.is_empty() {
            mark_as_deleting(&mut new, actor.now);
            return Ok(Deleted::Waiting(self.put_if_changed(actor, resource, &key, &old, new)));
        }
        match self.remove(actor, resource, &key) {
            Some(last) => Ok(Deleted::Gone(last)),
            None => Err(ApiError::not_found(resource, name)),
        }
    }

    fn put_if_changed(
        &mut self,
        actor: Actor<'_>,
        resource: &Resource,
        key: &str,
        old: &Arc<Value>,
        new: Value,
    ) -> Arc<Value> {
        if object::same_content(&new, old) { old.clone() } else { self.put(actor, resource, key, new) }
    }

    /// The first DELETE of a namespace changes its phase; its content goes first.
    fn start_namespace_deletion(
        &mut self,
        actor: Actor<'_>,
        resource: &Resource,
        key: &str,
        old: &Value,
        options: &DeleteOptions,
    ) -> Arc<Value> {
        let mut new = old.clone();
        object::set_meta(&mut new, "deletionTimestamp", object::rfc3339(actor.now).into());
        let mut status = new.get("status").cloned().unwrap_or_else(|| json!({}));
        status["phase"] = "Terminating".into();
        object::set_top(&mut new, "status", status);
        object::set_meta(&mut new, "finalizers", finalizers_for_deletion(resource, old, options).into());
        self.put(actor, resource, key, new)
    }

    /// The first DELETE of a definition adds the finalizer that waits for the instances.
    fn start_definition_deletion(
        &mut self,
        actor: Actor<'_>,
        resource: &Resource,
        key: &str,
        old: &Value,
    ) -> Arc<Value> {
        let mut new = old.clone();
        object::set_meta(&mut new, "deletionTimestamp", object::rfc3339(actor.now).into());
        let mut finalizers = object::finalizers(&new);
        if !finalizers.iter().any(|f| f == CLEANUP) {
            finalizers.push(CLEANUP.into());
        }
        object::set_meta(&mut new, "finalizers", finalizers.into());
        let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
        super::controllers::set_condition(
            &mut new,
            "Terminating",
            "InstanceDeletionPending",
            message,
            actor.now,
        );
        self.put(actor, resource, key, new)
    }
}

fn check_preconditions(
    resource: &Resource,
    name: &str,
    old: &Value,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    // Namespaces and definitions check on their own, in other words.
    let own_words =
        !resource.custom && ["namespaces", "customresourcedefinitions"].contains(&resource.plural.as_str());
    for (what, short, given, present) in [
        ("UID", "UID", options.uid.as_deref(), object::uid(old)),
        (
            "ResourceVersion",
            "ResourceVersion",
            options.resource_version.as_deref(),
            object::resource_version(old),
        ),
    ] {
        let Some(given) = given else { continue };
        if given == present {
            continue;
        }
        if own_words {
            let why = format!(
                "Precondition failed: {what} in precondition: {given}, {what} in object meta: {present}"
            );
            return Err(ApiError::conflict(resource, Named::Resource, name, &why));
        }
        let guess = match short {
            "UID" => "The object might have been deleted and then recreated",
            _ => "The object might have been modified",
        };
        let why = format!(
            "the {what} in the precondition ({given}) does not match the {what} in record ({present}). {guess}"
        );
        return Err(ApiError::conflict(resource, Named::Kind, name, &why));
    }
    Ok(())
}

/// Which finalizers the object has once this DELETE is accepted: both of garbage collection are taken away, and the
/// one that the policy asks for is added at the end (`deletionFinalizersForGarbageCollection`).
fn finalizers_for_deletion(resource: &Resource, old: &Value, options: &DeleteOptions) -> Vec<String> {
    let before = object::finalizers(old);
    let mut after: Vec<String> =
        before.iter().filter(|f| *f != ORPHAN && *f != FOREGROUND).cloned().collect();
    if orphans(resource, &before, options) {
        after.push(ORPHAN.into());
    }
    if deletes_in_foreground(resource, &before, options) {
        after.push(FOREGROUND.into());
    }
    let same = before.len() == after.len() && before.iter().all(|f| after.contains(f));
    if same { before } else { after }
}

fn orphans(resource: &Resource, finalizers: &[String], options: &DeleteOptions) -> bool {
    if resource.default_policy == DefaultPolicy::Unsupported {
        return false;
    }
    if let Some(orphan) = options.orphan_dependents {
        return orphan;
    }
    match options.propagation.as_deref() {
        Some("Orphan") => return true,
        Some(_) => return false,
        None => {}
    }
    match finalizers.iter().find(|f| *f == ORPHAN || *f == FOREGROUND) {
        Some(first) => first == ORPHAN,
        None => resource.default_policy == DefaultPolicy::Orphan,
    }
}

fn deletes_in_foreground(resource: &Resource, finalizers: &[String], options: &DeleteOptions) -> bool {
    if resource.default_policy == DefaultPolicy::Unsupported || options.orphan_dependents.is_some() {
        return false;
    }
    match options.propagation.as_deref() {
        Some(policy) => policy == "Foreground",
        None => finalizers.iter().find(|f| *f == ORPHAN || *f == FOREGROUND).is_some_and(|f| f == FOREGROUND),
    }
}

/// The deletion time is set once; the grace period of anything but a pod is 0.
fn mark_as_deleting(object: &mut Value, now: Timestamp) {
    if !object::being_deleted(object) {
        bump_generation(object);
        object::set_meta(object, "deletionTimestamp", object::rfc3339(now).into());
    }
    object::set_meta(object, "deletionGracePeriodSeconds", 0.into());
}

fn bump_generation(object: &mut Value) {
    if let Some(generation) = object::meta_number(object, "generation").filter(|g| *g > 0) {
        object::set_meta(object, "generation", (generation + 1).into());
    }
}

enum Grace {
    /// Not a graceful deletion.
    None,
    /// Already on its way, and this request does not shorten it.
    Pending,
    /// Set this time and period.
    Start { deletion: Timestamp, period_s: i64 },
}

/// Pods that run on a node are given time (`rest.BeforeDelete` and the strategy of pods).
fn graceful(resource: &Resource, old: &Value, options: &DeleteOptions, now: Timestamp) -> Grace {
    if resource.custom || resource.plural != "pods" {
        return Grace::None;
    }
    let asked = options.grace_period_s.map(|s| if s < 0 { 1 } else { s });
    if object::being_deleted(old) {
        let present = object::meta_number(old, "deletionGracePeriodSeconds").unwrap_or(0);
        return match asked {
            _ if present == 0 => Grace::None,
            Some(period_s) if period_s < present => {
                Grace::Start { deletion: now.saturating_add(seconds(period_s)).unwrap_or(now), period_s }
            }
            _ => Grace::Pending,
        };
    }
    let phase = old.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    let scheduled = old.pointer("/spec/nodeName").and_then(Value::as_str).is_some_and(|n| !n.is_empty());
    let wanted = old.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30);
    let done = !scheduled || phase == "Succeeded" || phase == "Failed";
    let period_s = if done { 0 } else { asked.unwrap_or(wanted) };
    Grace::Start { deletion: now.saturating_add(seconds(period_s)).unwrap_or(now), period_s }
}

/// A grace period of more than a day is of no use to any test.
fn seconds(s: i64) -> SignedDuration {
    SignedDuration::from_secs(s.clamp(0, 86_400))
}

fn begin_graceful(new: &mut Value, old: &Value, deletion: Timestamp, period_s: i64) {
    if !object::being_deleted(old) {
        bump_generation(new);
    }
    object::set_meta(new, "deletionTimestamp", object::rfc3339(deletion).into());
    object::set_meta(new, "deletionGracePeriodSeconds", period_s.into());
}
