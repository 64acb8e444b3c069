//! Everything that is kept: objects, their recent changes for watches and old lists, and who wrote what.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::object;
use super::resources::{Resource, built_in};

/// How many changes of one resource are kept for watches and lists of the past. Older ones answer 410, as in a real
/// server whose watch cache has moved on.
pub(crate) const EVENTS_PER_RESOURCE: usize = 20_000;
/// How many writes are remembered for tests; the oldest go first. A simulation run writes a few thousand.
pub(crate) const WRITES_KEPT: usize = 200_000;

/// What can be set back: see [`ApiServer::snapshot`](super::ApiServer::snapshot).
#[derive(Clone)]
pub(crate) struct State {
    pub resource_version: u64,
    pub stores: BTreeMap<String, Store>,
    pub resources: Vec<Arc<Resource>>,
}

/// One resource's objects, by `namespace/name` (or `name`), in the order of etcd's keys.
#[derive(Clone, Default)]
pub(crate) struct Store {
    pub objects: BTreeMap<String, Arc<Value>>,
    pub events: VecDeque<Change>,
    /// Changes up to this resourceVersion are forgotten.
    pub forgotten: u64,
}

/// One change of one object.
#[derive(Clone)]
pub(crate) struct Change {
    pub resource_version: u64,
    pub key: String,
    pub before: Option<Arc<Value>>,
    /// The object afterwards; for a deletion its last state, at the resourceVersion of the deletion.
    pub object: Arc<Value>,
    pub deleted: bool,
}

/// One write that was carried out: who did what to which object.
#[derive(Clone, Debug)]
pub struct Write {
    /// When.
    pub time: Timestamp,
    /// Who: the request's `User-Agent`, or the name of a controller that the simulator stands in for.
    pub user_agent: String,
    /// The resourceVersion that the write made.
    pub resource_version: u64,
    /// For example `configmaps` or `things.example.com`.
    pub resource: String,
    /// `namespace/name`, or `name`.
    pub key: String,
    /// The object before; none for a creation.
    pub before: Option<Arc<Value>>,
    /// The object after; none for a deletion.
    pub after: Option<Arc<Value>>,
}

impl State {
    /// Starts at a resourceVersion that cannot be mistaken for one of the small numbers in a test.
    pub fn new() -> State {
        State { resource_version: 1_000, stores: BTreeMap::new(), resources: built_in() }
    }

    pub fn get(&self, resource: &Resource, key: &str) -> Option<&Arc<Value>> {
        self.stores.get(&resource.store)?.objects.get(key)
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.iter().find(|r| r.group == group && r.plural == plural && r.serves(version))
    }

    /// The resource by its qualified name, whether any version is served or not.
    pub fn find_qualified(&self, qualified: &str) -> Option<&Arc<Resource>> {
        self.resources.iter().find(|r| r.qualified() == qualified)
    }

    /// The objects of a resource, of one namespace or of all when it is empty.
    pub fn list(&self, resource: &Resource, namespace: &str) -> Vec<Arc<Value>> {
        let Some(store) = self.stores.get(&resource.store) else { return Vec::new() };
        store.objects.iter().filter(|(key, _)| in_namespace(key, namespace)).map(|(_, o)| o.clone()).collect()
    }

    /// Stores an object under a new resourceVersion and remembers the change.
    pub fn put(
        &mut self,
        resource: &Resource,
        key: &str,
        mut object: Value,
    ) -> (Option<Arc<Value>>, Arc<Value>) {
        self.resource_version += 1;
        let version = self.resource_version;
        object::set_meta(&mut object, "resourceVersion", version.to_string().into());
        let object = Arc::new(object);
        let store = self.stores.entry(resource.store.clone()).or_default();
        let before = store.objects.insert(key.into(), object.clone());
        store.remember(Change {
            resource_version: version,
            key: key.into(),
            before: before.clone(),
            object: object.clone(),
            deleted: false,
        });
        (before, object)
    }

    /// Removes an object; gives its last state at the resourceVersion of the deletion.
    pub fn remove(&mut self, resource: &Resource, key: &str) -> Option<(Arc<Value>, Arc<Value>)> {
        let store = self.stores.get_mut(&resource.store)?;
        let before = store.objects.remove(key)?;
        self.resource_version += 1;
        let version = self.resource_version;
        let mut last = Value::clone(&before);
        object::set_meta(&mut last, "resourceVersion", version.to_string().into());
        let last = Arc::new(last);
        store.remember(Change {
            resource_version: version,
            key: key.into(),
            before: Some(before.clone()),
            object: last.clone(),
            deleted: true,
        });
        Some((before, last))
    }

    /// The objects as they were at an earlier resourceVersion; none when that is forgotten.
    pub fn at_version(&self, resource: &Resource, version: u64) -> Option<BTreeMap<String, Arc<Value>>> {
        let Some(store) = self.stores.get(&resource.store) else { return Some(BTreeMap::new()) };
        if version < store.forgotten {
            return None;
        }
        let mut objects = store.objects.clone();
        for change in store.events.iter().rev().take_while(|c| c.resource_version > version) {
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), before.clone()),
                None => objects.remove(&change.key),
            };
        }
        Some(objects)
    }

    /// Forgets all changes up to a resourceVersion.
    pub fn compact(&mut self, version: u64) {
        for resource in self.resources.clone() {
            let store = self.stores.entry(resource.store.clone()).or_default();
            store.forgotten = store.forgotten.max(version);
            store.events.retain(|c| c.resource_version > version);
        }
    }
}

impl Store {
    fn remember(&mut self, change: Change) {
        self.events.push_back(change);
        while self.events.len() > EVENTS_PER_RESOURCE {
            if let Some(oldest) = self.events.pop_front() {
                self.forgotten = oldest.resource_version;
            }
        }
    }
}

/// Whether a key lies in a namespace; an empty namespace holds everything.
pub(crate) fn in_namespace(key: &str, namespace: &str) -> bool {
    namespace.is_empty() || key.strip_prefix(namespace).is_some_and(|rest| rest.starts_with('/'))
}

/// The key of an object.
pub(crate) fn key(resource: &Resource, namespace: &str, name: &str) -> String {
    if resource.namespaced { format!("{namespace}/{name}") } else { name.into() }
}
