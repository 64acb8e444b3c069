//! The kinds of the simulated worlds: built-in and custom, namespaced and cluster-scoped, one in two versions.

use serde_json::{Value, json};

/// One kind.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub group: &'static str,
    /// The preferred one first.
    pub versions: &'static [&'static str],
    pub kind: &'static str,
    pub plural: &'static str,
    /// As it is shown in a trace.
    pub short: &'static str,
    pub namespaced: bool,
    pub custom: bool,
}

pub(super) const KINDS: [Kind; 6] = [
    Kind::built_in("", "ConfigMap", "configmaps", "cm", true),
    Kind::built_in("", "Secret", "secrets", "secret", true),
    Kind::built_in("apps", "ReplicaSet", "replicasets", "rs", true),
    Kind::built_in("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", "cr", false),
    Kind::custom(&["v1", "v1beta1"], "Widget", "widgets", "widget", true),
    Kind::custom(&["v1"], "Gadget", "gadgets", "gadget", false),
];

/// A kind of those worlds that have jobs.
pub(super) static JOB: Kind = Kind::built_in("batch", "Job", "jobs", "job", true);

/// The kinds of all worlds, and of those that have jobs.
pub(super) fn all_kinds() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().chain([&JOB])
}

/// The store of the definitions of custom resources.
pub(super) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
pub(super) const DEFINITIONS_PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

impl Kind {
    const fn built_in(
        group: &'static str,
        kind: &'static str,
        plural: &'static str,
        short: &'static str,
        namespaced: bool,
    ) -> Kind {
        Kind { group, versions: &["v1"], kind, plural, short, namespaced, custom: false }
    }

    const fn custom(
        versions: &'static [&'static str],
        kind: &'static str,
        plural: &'static str,
        short: &'static str,
        namespaced: bool,
    ) -> Kind {
        Kind { group: "example.com", versions, kind, plural, short, namespaced, custom: true }
    }

    /// What a reference means by these two words, whether it is served or not.
    pub(super) fn named(api_version: &str, kind: &str) -> Option<&'static Kind> {
        all_kinds().find(|k| k.kind == kind && k.versions.iter().any(|v| k.api_version(v) == api_version))
    }

    /// By the name of its store in the simulator, which is also that of its definition.
    pub(super) fn stored_in(store: &str) -> Option<&'static Kind> {
        all_kinds().find(|k| k.is_stored_in(store))
    }

    fn is_stored_in(&self, store: &str) -> bool {
        match store.split_once('.') {
            Some((plural, group)) => plural == self.plural && group == self.group,
            None => store == self.plural && self.group.is_empty(),
        }
    }

    pub(super) fn store(&self) -> String {
        if self.group.is_empty() { self.plural.into() } else { format!("{}.{}", self.plural, self.group) }
    }

    pub(super) fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.into() } else { format!("{}/{version}", self.group) }
    }

    pub(super) fn preferred(&self) -> String {
        self.api_version(self.versions.first().copied().unwrap_or_default())
    }

    /// Of an object, or of all in a namespace when the name is empty.
    pub(super) fn path(&self, namespace: &str, name: &str) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let mut path = format!("{root}/{}", self.preferred());
        if self.namespaced {
            path = format!("{path}/namespaces/{namespace}");
        }
        path = format!("{path}/{}", self.plural);
        if name.is_empty() { path } else { format!("{path}/{name}") }
    }

    pub(super) fn definition(&self) -> Value {
        let versions: Vec<Value> = (self.versions.iter().enumerate())
            .map(|(i, version)| json!({"name": version, "served": true, "storage": i == 0}))
            .collect();
        let scope = if self.namespaced { "Namespaced" } else { "Cluster" };
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": self.store()},
            "spec": {
                "group": self.group, "scope": scope, "versions": versions,
                "names": {"plural": self.plural, "singular": self.short, "kind": self.kind, "listKind": format!("{}List", self.kind)},
            },
        })
    }
}
