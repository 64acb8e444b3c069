//! Objects of a scenario: as they are made, and as they stand.

use std::fmt;

use gc_client::ApiResource;
use serde_json::{Value, json};

use crate::api::Api;
use crate::e2e::world::HOLD;
use crate::failure::Failure;

/// An object that exists, or did.
#[derive(Clone, Debug)]
pub struct Object {
    /// For example `v1`.
    pub api_version: String,
    /// For example `ConfigMap`.
    pub kind: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The object's UID.
    pub uid: String,
    /// Where it is on the server.
    pub path: String,
}

impl Object {
    /// The coordinates of an object that never existed.
    pub fn that_never_was(resource: &ApiResource, namespace: &str) -> Object {
        let namespace = if resource.namespaced { namespace } else { "" };
        Object {
            api_version: resource.api_version(),
            kind: resource.kind.clone(),
            namespace: namespace.into(),
            name: "nobody".into(),
            uid: "00000000-dead-4bad-8bad-000000000000".into(),
            path: resource.path(namespace, "nobody"),
        }
    }

    /// An owner reference to this object.
    pub fn reference(&self, block_owner_deletion: bool) -> Value {
        json!({
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
            "blockOwnerDeletion": block_owner_deletion,
        })
    }

    /// The reference that a built-in controller writes: the owner manages the dependent, and waits for it.
    pub fn controller_reference(&self) -> Value {
        let mut reference = self.reference(true);
        reference["controller"] = json!(true);
        reference
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// How an object stands on the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The object's UID.
    pub uid: String,
    /// The version that was read.
    pub resource_version: String,
    /// Whether it has a deletion timestamp.
    pub being_deleted: bool,
    /// In the object's order.
    pub finalizers: Vec<String>,
    /// The UIDs of its owners, in the object's order.
    pub owners: Vec<String>,
}

impl State {
    /// Reads an object's metadata.
    pub fn of(object: &Value) -> State {
        let metadata = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let each = |value: &Value| value.as_array().cloned().unwrap_or_default();
        State {
            uid: text(&metadata["uid"]),
            resource_version: text(&metadata["resourceVersion"]),
            being_deleted: metadata["deletionTimestamp"].is_string(),
            finalizers: each(&metadata["finalizers"]).iter().map(text).collect(),
            owners: each(&metadata["ownerReferences"]).iter().map(|owner| text(&owner["uid"])).collect(),
        }
    }

    /// Whether it carries the finalizer.
    pub fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|name| name == finalizer)
    }

    /// Whether exactly these objects own it.
    pub fn is_owned_by(&self, owners: &[&Object]) -> bool {
        self.owners.iter().eq(owners.iter().map(|owner| &owner.uid))
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let deleted = if self.being_deleted { "being deleted" } else { "there" };
        write!(f, "{deleted}, finalizers {:?}, owners {:?}", self.finalizers, self.owners)
    }
}

/// An object about to be created.
#[must_use = "an object exists once it has been created"]
pub struct Draft<'w> {
    api: &'w Api,
    leftovers: &'w mut Vec<String>,
    resource: ApiResource,
    namespace: String,
    name: String,
    owners: Vec<Value>,
    finalizers: Vec<&'static str>,
    labels: Value,
    body: Value,
}

impl<'w> Draft<'w> {
    /// An object without owners, finalizers or contents.
    pub fn new(
        api: &'w Api,
        leftovers: &'w mut Vec<String>,
        resource: &ApiResource,
        namespace: String,
        name: String,
    ) -> Draft<'w> {
        let resource = resource.clone();
        let (owners, finalizers) = (Vec::new(), Vec::new());
        let (labels, body) = (json!({}), json!({}));
        Draft { api, leftovers, resource, namespace, name, owners, finalizers, labels, body }
    }

    /// An owner that does not wait for it.
    pub fn owner(mut self, owner: &Object) -> Self {
        self.owners.push(owner.reference(false));
        self
    }

    /// An owner that, deleted in the foreground, waits for it.
    pub fn blocking_owner(mut self, owner: &Object) -> Self {
        self.owners.push(owner.reference(true));
        self
    }

    /// The owner that manages it, see [`Object::controller_reference`].
    pub fn controller(mut self, owner: &Object) -> Self {
        self.owners.push(owner.controller_reference());
        self
    }

    /// Carries [`HOLD`], so that it does not go before it is released.
    pub fn held(mut self) -> Self {
        self.finalizers.push(HOLD);
        self
    }

    /// Lives in another namespace than the scenario's.
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// What selectors look at.
    pub fn labels(mut self, labels: Value) -> Self {
        self.labels = labels;
        self
    }

    /// Everything but apiVersion, kind and metadata.
    pub fn body(mut self, body: Value) -> Self {
        self.body = body;
        self
    }

    /// Creates it.
    ///
    /// # Errors
    ///
    /// When the server refuses.
    pub fn create(self) -> Result<Object, Failure> {
        let path = self.resource.path(&self.namespace, &self.name);
        let mut object = self.body;
        object["apiVersion"] = json!(self.resource.api_version());
        object["kind"] = json!(self.resource.kind);
        object["metadata"] = json!({
            "name": self.name,
            "labels": self.labels,
            "ownerReferences": self.owners,
            "finalizers": self.finalizers,
        });
        if !self.resource.namespaced || !self.finalizers.is_empty() {
            self.leftovers.push(path.clone());
        }
        let created = self.api.create(&self.resource.path(&self.namespace, ""), &object)?;
        Ok(Object {
            api_version: self.resource.api_version(),
            kind: self.resource.kind,
            namespace: self.namespace,
            name: self.name,
            uid: State::of(&created).uid,
            path,
        })
    }
}
