//! Create, update and delete, as `k8s.io/apiserver/pkg/registry` does them.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::object::{self, NameRule};
use super::resources::Resource;
use super::status::{ApiError, FieldError, Named, OPTIMISTIC_LOCK};
use super::store::{State, WRITES_KEPT, Write, key};

/// Who writes, and when.
#[derive(Clone, Copy)]
pub(crate) struct Actor<'a> {
    pub now: Timestamp,
    pub user_agent: &'a str,
}

/// Which resource in which version and namespace a request speaks of.
#[derive(Clone)]
pub(crate) struct Scope {
    pub resource: Arc<Resource>,
    pub version: String,
    pub namespace: String,
}

impl Scope {
    pub fn key(&self, name: &str) -> String {
        key(&self.resource, &self.namespace, name)
    }
}

/// Which part of an object an update may write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Main,
    Status,
    /// `namespaces/NAME/finalize`.
    Finalize,
}

/// The objects and everything that writes them.
pub(crate) struct Registry {
    pub state: State,
    pub writes: std::collections::VecDeque<Write>,
    /// How long a new definition of a custom resource waits until its resources are served.
    pub establish_delay: jiff::SignedDuration,
    /// The resourceVersion at which controllers found nothing to do, where time alone changes nothing.
    pub settled_at: Option<(u64, bool)>,
    random: u64,
}

impl Registry {
    pub fn new(seed: u64) -> Registry {
        Registry {
            state: State::new(),
            writes: std::collections::VecDeque::new(),
            establish_delay: jiff::SignedDuration::ZERO,
            settled_at: None,
            random: seed,
        }
    }

    pub fn create(
        &mut self,
        actor: Actor<'_>,
        scope: &Scope,
        mut object: Value,
    ) -> Result<Arc<Value>, ApiError> {
        let resource = &*scope.resource;
        check_shape(resource, &object)?;
        if !["", "0"].contains(&object::resource_version(&object)) {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(ApiError::status(500, "", message, Value::Null));
        }
        check_namespace(scope, &mut object)?;
        let generate_name = object::meta_text(&object, "generateName").to_string();
        if object::name(&object).is_empty() && !generate_name.is_empty() {
            let name = format!("{generate_name}{}", self.random_suffix());
            object::set_meta(&mut object, "name", name.into());
        }
        self.check_namespace_is_open(scope, &object)?;
        self.check_definition_is_open(scope, &object)?;
        object::set_meta(&mut object, "uid", self.new_uid().into());
        object::set_meta(&mut object, "creationTimestamp", object::rfc3339(actor.now).into());
        for key in ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"] {
            object::set_meta(&mut object, key, Value::Null);
        }
        prepare_for_create(resource, &mut object);
        let errors = object::validate(&object, name_rule(resource));
        if !errors.is_empty() {
            return Err(ApiError::invalid(&resource.group, &resource.kind, object::name(&object), &errors));
        }
        let name = object::name(&object).to_string();
        let key = scope.key(&name);
        if self.state.get(resource, &key).is_some() {
            return Err(ApiError::already_exists(resource, &name));
        }
        Ok(self.put(actor, resource, &key, object))
    }

    /// Changes an object by `change`, which is given the present one in the version of the scope. `uid` is what the
    /// caller expects, if it said so in a PUT.
    pub fn update(
        &mut self,
        actor: Actor<'_>,
        scope: &Scope,
        name: &str,
        part: Part,
        uid: &str,
        change: &dyn Fn(&Value) -> Result<Value, ApiError>,
    ) -> Result<Arc<Value>, ApiError> {
        let resource = &*scope.resource;
        let key = scope.key(name);
        let Some(old) = self.state.get(resource, &key).cloned() else {
            return Err(ApiError::not_found(resource, name));
        };
        if !uid.is_empty() && uid != object::uid(&old) {
            let failed = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                object::uid(&old)
            );
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: {failed}",
                etcd_key(resource, &key)
            );
            return Err(ApiError::conflict(resource, Named::Resource, name, &why));
        }
        let mut new = change(&old)?;
        check_shape(resource, &new)?;
        if object::name(&new) != name {
            let given = object::name(&new);
            let message =
                format!("the name of the object ({given}) does not match the name on the URL ({name})");
            return Err(ApiError::bad_request(&message));
        }
        check_namespace(scope, &mut new)?;
        check_version(resource, name, &new, &old)?;
        prepare_for_update(resource, part, &mut new, &old);
        let mut errors = object::validate(&new, name_rule(resource));
        errors.extend(object::validate_update(&new, &old));
        if !errors.is_empty() {
            return Err(ApiError::invalid(&resource.group, &resource.kind, name, &errors));
        }
        if is_finished(resource, &new, &old) {
            self.remove(actor, resource, &key);
            object::copy_meta(&mut new, &old, "resourceVersion");
            return Ok(Arc::new(new));
        }
        if object::same_content(&new, &old) {
            return Ok(old);
        }
        Ok(self.put(actor, resource, &key, new))
    }

    /// Stores, and remembers who did it.
    pub fn put(&mut self, actor: Actor<'_>, resource: &Resource, key: &str, object: Value) -> Arc<Value> {
        let (before, after) = self.state.put(resource, key, object);
        self.note(actor, resource, key, before, Some(after.clone()));
        self.definitions_changed(resource);
        after
    }

    /// Removes, and remembers who did it.
    pub fn remove(&mut self, actor: Actor<'_>, resource: &Resource, key: &str) -> Option<Arc<Value>> {
        let (before, last) = self.state.remove(resource, key)?;
        self.note(actor, resource, key, Some(before), None);
        self.definitions_changed(resource);
        Some(last)
    }

    fn note(
        &mut self,
        actor: Actor<'_>,
        resource: &Resource,
        key: &str,
        before: Option<Arc<Value>>,
        after: Option<Arc<Value>>,
    ) {
        if self.writes.len() == WRITES_KEPT {
            self.writes.pop_front();
        }
        self.writes.push_back(Write {
            time: actor.now,
            user_agent: actor.user_agent.into(),
            resource_version: self.state.resource_version,
            resource: resource.store.clone(),
            key: key.into(),
            before,
            after,
        });
    }

    /// A random UID in canonical form (version 4), from the seed.
    fn new_uid(&mut self) -> String {
        let high = (self.next_random() & 0xffff_ffff_ffff_0fff) | 0x4000;
        let low = (self.next_random() & 0x3fff_ffff_ffff_ffff) | 0x8000_0000_0000_0000;
        let digits = format!("{high:016x}{low:016x}");
        let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
        format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
    }

    /// Five letters that cannot spell a word, as the real server appends to `generateName`.
    fn random_suffix(&mut self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5)
            .map(|_| {
                let index = usize::try_from(self.next_random() % 27).unwrap_or_default();
                char::from(ALPHABET.get(index).copied().unwrap_or(b'x'))
            })
            .collect()
    }

    /// splitmix64: small, well spread, and the same on every machine.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The admission plug-in NamespaceLifecycle: nothing new in a namespace that is absent or going.
    fn check_namespace_is_open(&self, scope: &Scope, object: &Value) -> Result<(), ApiError> {
        if !scope.resource.namespaced {
            return Ok(());
        }
        let Some(namespaces) = self.state.find("", "v1", "namespaces") else { return Ok(()) };
        let namespace = scope.namespace.as_str();
        let Some(found) = self.state.get(namespaces, namespace) else {
            return Err(ApiError::not_found(namespaces, namespace));
        };
        if found.pointer("/status/phase").and_then(Value::as_str) == Some("Terminating") {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            let message = format!("namespace {namespace} is being terminated");
            let causes = json!([{"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}]);
            return Err(ApiError::forbidden(&scope.resource, object::name(object), &why, &causes));
        }
        Ok(())
    }

    /// Nothing new of a kind whose definition is going.
    fn check_definition_is_open(&self, scope: &Scope, object: &Value) -> Result<(), ApiError> {
        if !scope.resource.custom {
            return Ok(());
        }
        let definition = self.definition_of(&scope.resource);
        if definition.is_some_and(|d| object::being_deleted(&d)) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(ApiError::forbidden(&scope.resource, object::name(object), why, &Value::Null));
        }
        Ok(())
    }
}

/// The object has the types that its schema says, as far as this server looks at them.
fn check_shape(resource: &Resource, object: &Value) -> Result<(), ApiError> {
    let Some(field) = object::misshapen(object, resource.custom) else { return Ok(()) };
    let message = format!(
        "{} in version {:?} cannot be handled as a {}: json: cannot unmarshal {field}",
        resource.kind,
        resource.stored_api_version(),
        resource.kind
    );
    Err(ApiError::bad_request(&message))
}

/// The namespace of the object is that of the path: filled in when empty, an error when another.
fn check_namespace(scope: &Scope, object: &mut Value) -> Result<(), ApiError> {
    let given = object::meta_text(object, "namespace").to_string();
    let wanted = if scope.resource.namespaced { scope.namespace.as_str() } else { "" };
    if given.is_empty() {
        object::set_meta(object, "namespace", wanted.into());
        return Ok(());
    }
    if given != wanted {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(message));
    }
    Ok(())
}

/// Optimistic concurrency: a resourceVersion that is given must be the present one.
fn check_version(resource: &Resource, name: &str, new: &Value, old: &Value) -> Result<(), ApiError> {
    let given = object::resource_version(new);
    if given.is_empty() || given == "0" {
        if resource.traits.needs_resource_version {
            let error =
                FieldError::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
            return Err(ApiError::invalid(&resource.group, &resource.plural, name, &[error]));
        }
        return Ok(());
    }
    if given != object::resource_version(old) {
        return Err(ApiError::conflict(resource, Named::Resource, name, OPTIMISTIC_LOCK));
    }
    Ok(())
}

fn prepare_for_create(resource: &Resource, object: &mut Value) {
    object::set_top(object, "apiVersion", resource.stored_api_version().into());
    object::set_top(object, "kind", resource.kind.as_str().into());
    if resource.traits.generation {
        object::set_meta(object, "generation", 1.into());
    }
    if resource.traits.status {
        object::set_top(object, "status", Value::Null);
    }
    if !resource.namespaced {
        object::set_meta(object, "namespace", Value::Null);
    }
    object::tidy(object);
    object::drop_repeated_references(object);
    match resource.plural.as_str() {
        "namespaces" if !resource.custom => {
            let mut labels = object::meta(object, "labels").cloned().unwrap_or_else(|| json!({}));
            labels["kubernetes.io/metadata.name"] = object::name(object).into();
            object::set_meta(object, "labels", labels);
            object::set_top(object, "spec", json!({"finalizers": ["kubernetes"]}));
            object::set_top(object, "status", json!({"phase": "Active"}));
        }
        "pods" if !resource.custom => object::set_top(object, "status", json!({"phase": "Pending"})),
        "persistentvolumes" | "persistentvolumeclaims" if !resource.custom => {
            // The admission plug-in StorageObjectInUseProtection.
            let short = if resource.plural == "persistentvolumes" { "pv" } else { "pvc" };
            let mut finalizers = object::finalizers(object);
            finalizers.push(format!("kubernetes.io/{short}-protection"));
            object::set_meta(object, "finalizers", finalizers.into());
        }
        _ => {}
    }
}

fn prepare_for_update(resource: &Resource, part: Part, new: &mut Value, old: &Value) {
    object::set_top(new, "apiVersion", resource.stored_api_version().into());
    object::set_top(new, "kind", resource.kind.as_str().into());
    object::set_meta(new, "managedFields", Value::Null);
    object::tidy(new);
    object::drop_repeated_references(new);
    match part {
        Part::Main if resource.traits.status => {
            object::set_top(new, "status", old.get("status").cloned().unwrap_or_default());
        }
        Part::Main => {}
        Part::Status => {
            let status = new.get("status").cloned().unwrap_or_default();
            let metadata = new.get("metadata").cloned().unwrap_or_default();
            *new = old.clone();
            object::set_top(new, "status", status);
            if !resource.custom {
                // Built-in strategies keep the metadata of a status update; custom resources reset it.
                object::set_top(new, "metadata", metadata);
            }
        }
        Part::Finalize => {
            let finalizers = new.pointer("/spec/finalizers").cloned().unwrap_or_default();
            *new = old.clone();
            let empty = finalizers.as_array().is_none_or(Vec::is_empty);
            object::set_top(new, "spec", if empty { json!({}) } else { json!({"finalizers": finalizers}) });
        }
    }
    if resource.plural == "namespaces" && part == Part::Main {
        object::set_top(new, "spec", old.get("spec").cloned().unwrap_or_default());
    }
    object::copy_meta(new, old, "generation");
    let bump = resource.traits.generation && !object::same_desired_state(new, old, resource.traits.status);
    if let (true, Some(generation)) = (bump, object::meta_number(old, "generation")) {
        object::set_meta(new, "generation", (generation + 1).into());
    }
    if object::uid(new).is_empty() {
        object::copy_meta(new, old, "uid");
    }
    object::copy_meta(new, old, "creationTimestamp");
    object::copy_meta(new, old, "resourceVersion");
    if object::being_deleted(old) {
        object::copy_meta(new, old, "deletionTimestamp");
    }
    let grace = "deletionGracePeriodSeconds";
    if object::meta(old, grace).is_some() && object::meta(new, grace).is_none() {
        object::copy_meta(new, old, grace);
    }
}

/// Whether this update takes the last thing away that held an object which is being deleted.
fn is_finished(resource: &Resource, new: &Value, old: &Value) -> bool {
    let held_by_namespace = !resource.custom
        && resource.plural == "namespaces"
        && new.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty());
    object::being_deleted(old)
        && object::finalizers(new).is_empty()
        && object::meta_number(old, "deletionGracePeriodSeconds").unwrap_or(0) == 0
        && !held_by_namespace
}

fn name_rule(resource: &Resource) -> NameRule {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("rbac.authorization.k8s.io", _) => NameRule::PathSegment,
        ("", "namespaces" | "services") => NameRule::Label,
        _ => NameRule::Subdomain,
    }
}

/// How an object is named in messages about etcd.
fn etcd_key(resource: &Resource, key: &str) -> String {
    if resource.custom {
        format!("/registry/{}/{}/{key}", resource.group, resource.plural)
    } else {
        format!("/registry/{}/{key}", resource.plural)
    }
}
