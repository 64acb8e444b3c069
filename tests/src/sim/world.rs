//! A world as text, one object a line, for tests: into the server, and out of it.
//!
//! ```text
//! cm/owner @ns
//! cm/child @ns owners=[cm/owner!] finalizers=[example.com/hold] deleting
//! ```
//!
//! The language is that of gc-graph's fixtures as far as an API server can follow: it gives UIDs and versions itself,
//! so there is no `uid=` and no `rv=`. After an owner, `!` is blockOwnerDeletion, `*` is controller, `#` gives the UID
//! (last); without `#` it is that of the object of that kind and name that exists, one in the same namespace before
//! others, else the name itself, which dangles. `foreground` stands for `foregroundDeletion`.

use std::fmt::Write as _;
use std::sync::Arc;

use hashbrown::HashSet;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::deletion::DeleteOptions;
use super::object::{self, FOREGROUND, ORPHAN};
use super::registry::{Actor, Scope};
use super::resources::Resource;
use super::status::ApiError;
use super::{ApiServer, Request};

/// Who writes what [`ApiServer::load`] reads.
const WRITER: &str = "world";

/// A line that could not be read, or that the server refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldError {
    /// The line.
    pub line: String,
    /// What is wrong with it.
    pub cause: String,
}

impl std::fmt::Display for WorldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.line, self.cause)
    }
}

impl std::error::Error for WorldError {}

/// One line, read.
#[derive(Default)]
struct Line {
    kind: String,
    name: String,
    namespace: String,
    owners: Vec<String>,
    finalizers: Vec<String>,
    labels: Map<String, Value>,
    deleting: bool,
}

impl ApiServer {
    /// Creates the objects of a text, line by line, and starts the deletion of those that are `deleting`. Namespaces
    /// are created where they are missing.
    ///
    /// ```
    /// use gc_tests::sim::{ApiServer, Timestamp};
    ///
    /// let mut server = ApiServer::new(1);
    /// server.load(Timestamp::UNIX_EPOCH, "cm/owner @ns\ncm/child @ns owners=[cm/owner!, cm/gone#u]")?;
    /// assert_eq!(server.show(), "cm/child @ns owners=[cm/owner!, cm/gone~]\ncm/owner @ns\n");
    /// # Ok::<(), gc_tests::sim::WorldError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first line that cannot be read or is refused; those before it were carried out.
    pub fn load(&mut self, now: Timestamp, text: &str) -> Result<(), WorldError> {
        for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
            let failed = |cause: String| WorldError { line: line.into(), cause };
            let parsed = Line::parse(line).map_err(failed)?;
            self.load_line(now, &parsed).map_err(failed)?;
        }
        Ok(())
    }

    /// All objects, one a line, but for namespaces that are not being deleted. An owner of whose UID there is no
    /// object is marked with `~`.
    pub fn show(&self) -> String {
        let state = &self.registry.state;
        let known: HashSet<&str> =
            state.stores.values().flat_map(|s| s.objects.values()).map(|o| object::uid(o)).collect();
        let mut out = String::new();
        for resource in state.resources.iter().filter(|r| r.group != "events.k8s.io") {
            for object in state.list(resource, "") {
                if resource.plural != "namespaces" || object::being_deleted(&object) {
                    out.push_str(&self.show_object(resource, &object, &known));
                }
            }
        }
        out
    }

    fn show_object(&self, resource: &Resource, object: &Value, known: &HashSet<&str>) -> String {
        let mut line = format!("{}/{}", short(resource), object::name(object));
        let mut add = |text: &str| {
            // Writing to a String cannot fail.
            let _ = write!(line, " {text}");
        };
        let namespace = object::meta_text(object, "namespace");
        if !namespace.is_empty() {
            add(&format!("@{namespace}"));
        }
        let owners = object::meta(object, "ownerReferences").and_then(Value::as_array);
        let owners: Vec<String> = owners.into_iter().flatten().map(|o| self.show_owner(o, known)).collect();
        if !owners.is_empty() {
            add(&format!("owners=[{}]", owners.join(", ")));
        }
        let finalizers = object::finalizers(object);
        if !finalizers.is_empty() {
            add(&format!("finalizers=[{}]", finalizers.join(", ").replace(FOREGROUND, "foreground")));
        }
        if object::being_deleted(object) {
            add("deleting");
        }
        line.push('\n');
        line
    }

    fn show_owner(&self, owner: &Value, known: &HashSet<&str>) -> String {
        let text = |key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default();
        let flag = |key: &str, mark: &'static str| {
            if owner.get(key) == Some(&Value::Bool(true)) { mark } else { "" }
        };
        let resource = self.registry.state.resources.iter().find(|r| r.kind == text("kind"));
        let kind = resource.map_or_else(|| text("kind").to_lowercase(), |r| short(r).to_string());
        let dangling = if known.contains(text("uid")) { "" } else { "~" };
        let marks = [flag("controller", "*"), flag("blockOwnerDeletion", "!"), dangling].concat();
        format!("{kind}/{}{marks}", text("name"))
    }

    fn load_line(&mut self, now: Timestamp, line: &Line) -> Result<(), String> {
        let resource =
            self.resource_named(&line.kind).ok_or_else(|| format!("unknown kind {}", line.kind))?;
        if resource.namespaced == line.namespace.is_empty() {
            let should = if resource.namespaced { "needs a namespace" } else { "has no namespace" };
            return Err(format!("{} {should}", line.kind));
        }
        if resource.namespaced && self.object("namespaces", "", &line.namespace).is_none() {
            let body = json!({"metadata": {"name": line.namespace}});
            self.handle(now, &Request::post("/api/v1/namespaces", &body).from_agent(WRITER));
        }
        let owners: Vec<Value> =
            line.owners.iter().map(|o| self.owner(&line.namespace, o)).collect::<Result<_, _>>()?;
        let of_collection = |f: &String| f == FOREGROUND || f == ORPHAN;
        let held: Vec<&String> =
            line.finalizers.iter().filter(|f| !line.deleting || !of_collection(f)).collect();
        let object = json!({
            "apiVersion": resource.stored_api_version(), "kind": resource.kind,
            "metadata": {
                "name": line.name, "ownerReferences": owners, "finalizers": held, "labels": line.labels,
            },
        });
        let version = resource.storage_version.clone();
        let scope = Scope { resource, version, namespace: line.namespace.clone() };
        let actor = Actor { now, user_agent: WRITER };
        let refused =
            |error: ApiError| error.status_object()["message"].as_str().unwrap_or("refused").to_string();
        self.registry.create(actor, &scope, object).map_err(refused)?;
        if line.deleting {
            let policy = match line.finalizers.iter().find(|f| of_collection(f)).map(String::as_str) {
                Some(FOREGROUND) => "Foreground",
                Some(_) => "Orphan",
                None => "Background",
            };
            let options = DeleteOptions { propagation: Some(policy.into()), ..DeleteOptions::default() };
            self.registry.delete(actor, &scope, &line.name, &options).map_err(refused)?;
        }
        Ok(())
    }

    fn owner(&self, namespace: &str, text: &str) -> Result<Value, String> {
        let (rest, uid) = match text.split_once('#') {
            Some((rest, uid)) => (rest, Some(uid)),
            None => (text, None),
        };
        let plain = rest.trim_end_matches(['!', '*']);
        let marks = rest.get(plain.len()..).unwrap_or_default();
        let (kind, name) =
            plain.split_once('/').ok_or_else(|| format!("an owner is KIND/NAME, not {text}"))?;
        let resource = self.resource_named(kind).ok_or_else(|| format!("unknown kind {kind}"))?;
        let uid = uid.map_or_else(|| self.uid_of(&resource, namespace, name), Into::into);
        let mut owner = json!({"apiVersion": resource.stored_api_version(), "kind": resource.kind, "name": name, "uid": uid});
        for (mark, key) in [('*', "controller"), ('!', "blockOwnerDeletion")] {
            if marks.contains(mark) {
                owner[key] = true.into();
            }
        }
        Ok(owner)
    }

    fn uid_of(&self, resource: &Resource, namespace: &str, name: &str) -> String {
        let mut found: Vec<Arc<Value>> = self.registry.state.list(resource, "");
        found.retain(|o| object::name(o) == name);
        found.sort_by_key(|o| object::meta_text(o, "namespace") != namespace);
        found.first().map_or(name, |o| object::uid(o)).to_string()
    }

    /// By short name, singular, plural or kind.
    fn resource_named(&self, word: &str) -> Option<Arc<Resource>> {
        let is_named = |r: &&Arc<Resource>| {
            r.short_names.iter().any(|s| s == word)
                || r.singular == word
                || r.plural == word
                || r.kind == word
        };
        self.registry.state.resources.iter().find(is_named).cloned()
    }
}

fn short(resource: &Resource) -> &str {
    resource.short_names.first().unwrap_or(&resource.singular)
}

impl Line {
    fn parse(text: &str) -> Result<Line, String> {
        let mut words = words(text).into_iter();
        let (kind, name) = words
            .next()
            .and_then(|head| head.split_once('/'))
            .ok_or_else(|| "a line begins with KIND/NAME".to_string())?;
        let mut line = Line { kind: kind.into(), name: name.into(), ..Line::default() };
        for word in words {
            let list = |text: &str| -> Vec<String> {
                let inner = text.trim_start_matches('[').trim_end_matches(']');
                inner.split(',').map(|w| w.trim().to_string()).filter(|w| !w.is_empty()).collect()
            };
            if let Some(namespace) = word.strip_prefix('@') {
                line.namespace = namespace.into();
            } else if let Some(owners) = word.strip_prefix("owners=") {
                line.owners = list(owners);
            } else if let Some(finalizers) = word.strip_prefix("finalizers=") {
                line.finalizers = list(finalizers);
                line.finalizers
                    .iter_mut()
                    .filter(|f| *f == "foreground")
                    .for_each(|f| *f = FOREGROUND.into());
            } else if let Some(labels) = word.strip_prefix("labels=") {
                let pairs = list(labels);
                let pairs = pairs.iter().filter_map(|p| p.split_once('='));
                line.labels = pairs.map(|(k, v)| (k.to_string(), v.into())).collect();
            } else if word == "deleting" {
                line.deleting = true;
            } else {
                return Err(format!("unknown attribute {word}"));
            }
        }
        Ok(line)
    }
}

/// Words between spaces, a list in brackets being one.
fn words(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let split = text.split(|c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        c == ' ' && depth <= 0
    });
    split.filter(|w| !w.is_empty()).collect()
}
