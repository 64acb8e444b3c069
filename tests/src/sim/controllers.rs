//! What other controllers do that no API server is complete without: establishing definitions of custom resources
//! and finishing their deletion (inside the real API server), and emptying namespaces (kube-controller-manager).

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::deletion::{CLEANUP, DeleteOptions};
use super::object;
use super::registry::{Actor, Part, Registry, Scope};
use super::resources::{Resource, from_definition};

/// How often one settling may go round: each round removes something, and a namespace inside a definition's
/// clean-up is the deepest that can happen.
const ROUNDS: usize = 4;

impl Registry {
    /// Does everything that is due. Called before every request and every poll, so that time need not be told
    /// apart from traffic.
    pub fn settle(&mut self, now: Timestamp, namespaces_too: bool) {
        if self.settled_at == Some((self.state.resource_version, namespaces_too)) {
            return;
        }
        for _ in 0..ROUNDS {
            let before = self.state.resource_version;
            self.settle_definitions(Actor { now, user_agent: "kube-apiserver" });
            if namespaces_too {
                self.settle_namespaces(Actor { now, user_agent: "namespace-controller" });
            }
            if self.state.resource_version == before {
                self.settled_at = self.establish_delay.is_zero().then_some((before, namespaces_too));
                return;
            }
        }
    }

    fn settle_definitions(&mut self, actor: Actor<'_>) {
        let Some(definitions) = self.definitions() else { return };
        for definition in self.state.list(&definitions, "") {
            if object::being_deleted(&definition) {
                self.finish_definition(actor, &definitions, &definition);
            } else if !is_established(&definition) && self.is_due(&definition, actor.now) {
                self.establish(actor, &definitions, &definition);
            }
        }
    }

    fn is_due(&self, definition: &Value, now: Timestamp) -> bool {
        let created: Option<Timestamp> = object::meta_text(definition, "creationTimestamp").parse().ok();
        created.is_none_or(|created| now.duration_since(created) >= self.establish_delay)
    }

    fn establish(&mut self, actor: Actor<'_>, definitions: &Resource, definition: &Value) {
        let mut new = definition.clone();
        let Some(resource) = from_definition(definition) else { return };
        set_condition(&mut new, "NamesAccepted", "NoConflicts", "no conflicts found", actor.now);
        set_condition(
            &mut new,
            "Established",
            "InitialNamesAccepted",
            "the initial names have been accepted",
            actor.now,
        );
        let names = new.pointer("/spec/names").cloned().unwrap_or_default();
        if let Some(status) = new.get_mut("status") {
            status["acceptedNames"] = names;
            status["storedVersions"] = json!([resource.storage_version]);
        }
        let key = object::name(definition).to_string();
        self.put(actor, definitions, &key, new);
    }

    /// Deletes the instances; when none is left, the definition goes.
    fn finish_definition(&mut self, actor: Actor<'_>, definitions: &Resource, definition: &Arc<Value>) {
        let name = object::name(definition);
        let finalizers = object::finalizers(definition);
        if !finalizers.iter().any(|f| f == CLEANUP) {
            return;
        }
        if let Some(resource) = self.state.find_qualified(name).cloned() {
            for instance in self.state.list(&resource, "") {
                if !object::being_deleted(&instance) {
                    self.delete_any(actor, &resource, &instance);
                }
            }
            if !self.state.list(&resource, "").is_empty() {
                return;
            }
        }
        let rest: Vec<String> = finalizers.into_iter().filter(|f| f != CLEANUP).collect();
        if rest.is_empty() {
            self.remove(actor, definitions, name);
            return;
        }
        let mut new = Value::clone(definition);
        object::set_meta(&mut new, "finalizers", rest.into());
        self.put(actor, definitions, name, new);
    }

    fn settle_namespaces(&mut self, actor: Actor<'_>) {
        let Some(namespaces) = self.state.find("", "v1", "namespaces").cloned() else { return };
        for namespace in self.state.list(&namespaces, "") {
            if object::being_deleted(&namespace) && namespace.pointer("/spec/finalizers/0").is_some() {
                self.empty_namespace(actor, &namespaces, object::name(&namespace));
            }
        }
    }

    fn empty_namespace(&mut self, actor: Actor<'_>, namespaces: &Arc<Resource>, namespace: &str) {
        let mut left = false;
        for resource in self.state.resources.clone() {
            if !resource.namespaced || resource.versions.is_empty() {
                continue;
            }
            for object in self.state.list(&resource, namespace) {
                if !object::being_deleted(&object) {
                    self.delete_any(actor, &resource, &object);
                }
            }
            left |= !self.state.list(&resource, namespace).is_empty();
        }
        if left {
            return;
        }
        let scope = Scope { resource: namespaces.clone(), version: "v1".into(), namespace: String::new() };
        // It was there a moment ago, in the same call; an error means that it is gone, which is what is wanted.
        let _ = self.update(actor, &scope, namespace, Part::Finalize, "", &|old| {
            let mut new = old.clone();
            object::set_top(&mut new, "spec", json!({}));
            Ok(new)
        });
    }

    /// A DELETE without options, of an object that was just listed.
    fn delete_any(&mut self, actor: Actor<'_>, resource: &Arc<Resource>, object: &Value) {
        let scope = Scope {
            resource: resource.clone(),
            version: resource.storage_version.clone(),
            namespace: object::meta_text(object, "namespace").into(),
        };
        // Not found is what is wanted; no precondition can fail, since none is given.
        let _ = self.delete(actor, &scope, object::name(object), &DeleteOptions::default());
    }

    fn definitions(&self) -> Option<Arc<Resource>> {
        self.state.find("apiextensions.k8s.io", "v1", "customresourcedefinitions").cloned()
    }

    /// The definition behind a custom resource.
    pub fn definition_of(&self, resource: &Resource) -> Option<Arc<Value>> {
        self.state.get(&*self.definitions()?, &resource.qualified()).cloned()
    }

    /// Reads the table of custom resources anew after a definition was written.
    pub fn definitions_changed(&mut self, resource: &Resource) {
        if resource.custom || resource.plural != "customresourcedefinitions" {
            return;
        }
        let established = self.state.list(resource, "").into_iter().filter(|d| is_established(d));
        let custom: Vec<Arc<Resource>> =
            established.filter_map(|d| from_definition(&d)).map(Arc::new).collect();
        self.state.resources.retain(|r| !r.custom);
        self.state.resources.extend(custom);
    }
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True")
}

/// Sets a condition of `status.conditions` to `True`.
pub(crate) fn set_condition(object: &mut Value, kind: &str, reason: &str, message: &str, now: Timestamp) {
    let condition = json!({
        "type": kind, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": object::rfc3339(now),
    });
    let mut status = object.get("status").filter(|s| s.is_object()).cloned().unwrap_or_else(|| json!({}));
    let mut conditions = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    conditions.retain(|c| c["type"] != kind);
    conditions.push(condition);
    status["conditions"] = conditions.into();
    object::set_top(object, "status", status);
}
