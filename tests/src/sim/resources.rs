//! The resources that are served: the built-in table, and those that definitions of custom resources add.

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::Value;

/// What a deletion without any stated policy does to the dependents (the strategies of `pkg/registry`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefaultPolicy {
    Delete,
    Orphan,
    /// Events: the finalizers of garbage collection are never set.
    Unsupported,
}

/// One resource, in all its served versions.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub group: String,
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    /// Served versions, the preferred one first.
    pub versions: Vec<String>,
    /// The version that objects are stored in.
    pub storage_version: String,
    /// Where the objects live: events are one store under two groups.
    pub store: String,
    pub custom: bool,
    pub default_policy: DefaultPolicy,
    pub traits: Traits,
}

/// Small differences between kinds that matter on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traits {
    /// `metadata.generation` starts at 1 and counts changes of the desired state.
    pub generation: bool,
    /// A `status` sub-resource, whose writes are apart from the others.
    pub status: bool,
    /// A finished DELETE answers with the object, not with a `Status`.
    pub returns_deleted: bool,
    /// A PUT of an object that does not exist creates it.
    pub create_on_update: bool,
    /// A PUT without a resourceVersion is refused.
    pub needs_resource_version: bool,
    /// Can be read and listed, nothing else.
    pub read_only: bool,
}

impl Resource {
    /// `configmaps`, or `things.example.com` outside the core group.
    pub fn qualified(&self) -> String {
        join(&self.plural, &self.group)
    }

    /// `ConfigMap`, or `Thing.example.com` outside the core group.
    pub fn qualified_kind(&self) -> String {
        join(&self.kind, &self.group)
    }

    /// `v1`, or `apps/v1`.
    pub fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.into() } else { format!("{}/{version}", self.group) }
    }

    pub fn stored_api_version(&self) -> String {
        self.api_version(&self.storage_version)
    }

    pub fn serves(&self, version: &str) -> bool {
        self.versions.iter().any(|v| v == version)
    }

    /// The verbs as discovery lists them.
    pub fn verbs(&self) -> &'static [&'static str] {
        match (self.custom, self.plural.as_str()) {
            _ if self.traits.read_only => &["get", "list"],
            (true, _) => &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
            (false, "namespaces") => &["create", "delete", "get", "list", "patch", "update", "watch"],
            (false, _) => {
                &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
            }
        }
    }
}

fn join(name: &str, group: &str) -> String {
    if group.is_empty() { name.into() } else { format!("{name}.{group}") }
}

/// group, version, plural, kind, short names, namespaced, flags: g(eneration), s(tatus), r(eturns the deleted
/// object), c(reate on update), v(ersion needed for updates), o(rphans by default), e(vents: no collection),
/// a(ll: the category), l(ist and get only).
const BUILT_IN: &[(&str, &str, &str, &str, &str, bool, &str)] = &[
    ("", "v1", "componentstatuses", "ComponentStatus", "cs", false, "l"),
    ("", "v1", "configmaps", "ConfigMap", "cm", true, ""),
    ("", "v1", "events", "Event", "ev", true, "ce"),
    ("", "v1", "namespaces", "Namespace", "ns", false, "sr"),
    ("", "v1", "nodes", "Node", "no", false, "s"),
    ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", "pvc", true, "sr"),
    ("", "v1", "persistentvolumes", "PersistentVolume", "pv", false, "sr"),
    ("", "v1", "pods", "Pod", "po", true, "gsra"),
    ("", "v1", "secrets", "Secret", "", true, ""),
    ("", "v1", "serviceaccounts", "ServiceAccount", "sa", true, "r"),
    ("", "v1", "services", "Service", "svc", true, "srca"),
    (
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        "crd,crds",
        false,
        "gsv",
    ),
    ("apiregistration.k8s.io", "v1", "apiservices", "APIService", "", false, "sv"),
    ("apps", "v1", "controllerrevisions", "ControllerRevision", "", true, ""),
    ("apps", "v1", "daemonsets", "DaemonSet", "ds", true, "gsa"),
    ("apps", "v1", "deployments", "Deployment", "deploy", true, "gsa"),
    ("apps", "v1", "replicasets", "ReplicaSet", "rs", true, "gsa"),
    ("apps", "v1", "statefulsets", "StatefulSet", "sts", true, "gsa"),
    ("batch", "v1", "cronjobs", "CronJob", "cj", true, "gsa"),
    ("batch", "v1", "jobs", "Job", "", true, "gsoa"),
    ("coordination.k8s.io", "v1", "leases", "Lease", "", true, "cv"),
    ("events.k8s.io", "v1", "events", "Event", "ev", true, "ce"),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", "", false, "c"),
    ("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", "", false, "c"),
];

/// The table of built-in resources.
pub(crate) fn built_in() -> Vec<Arc<Resource>> {
    BUILT_IN
        .iter()
        .map(|&(group, version, plural, kind, short_names, namespaced, flags)| {
            let default_policy = match flags {
                f if f.contains('o') => DefaultPolicy::Orphan,
                f if f.contains('e') => DefaultPolicy::Unsupported,
                _ => DefaultPolicy::Delete,
            };
            Arc::new(Resource {
                group: group.into(),
                plural: plural.into(),
                singular: kind.to_lowercase(),
                kind: kind.into(),
                list_kind: format!("{kind}List"),
                short_names: short_names.split(',').filter(|s| !s.is_empty()).map(Into::into).collect(),
                categories: if flags.contains('a') { vec!["all".into()] } else { Vec::new() },
                namespaced,
                versions: vec![version.into()],
                storage_version: version.into(),
                store: if plural == "events" { "events".into() } else { join(plural, group) },
                custom: false,
                default_policy,
                traits: Traits {
                    generation: flags.contains('g'),
                    status: flags.contains('s'),
                    returns_deleted: flags.contains('r'),
                    create_on_update: flags.contains('c'),
                    needs_resource_version: flags.contains('v'),
                    read_only: flags.contains('l'),
                },
            })
        })
        .collect()
}

/// The resource that a definition of a custom resource describes; none when the definition is incomplete.
pub(crate) fn from_definition(definition: &Value) -> Option<Resource> {
    let spec = definition.get("spec")?;
    let names = spec.get("names")?;
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_string);
    let list = |key: &str| -> Vec<String> {
        let items = names.get(key).and_then(Value::as_array);
        items.into_iter().flatten().filter_map(|v| v.as_str().map(Into::into)).collect()
    };
    let group = text(spec, "group")?;
    let plural = text(names, "plural")?;
    let kind = text(names, "kind")?;
    let versions = spec.get("versions").and_then(Value::as_array)?;
    let flag = |version: &Value, key: &str| version.get(key).and_then(Value::as_bool).unwrap_or(false);
    let storage_version = versions.iter().find(|v| flag(v, "storage")).and_then(|v| text(v, "name"))?;
    let has_status = versions.iter().any(|v| v.pointer("/subresources/status").is_some());
    let mut served: Vec<String> =
        versions.iter().filter(|v| flag(v, "served")).filter_map(|v| text(v, "name")).collect();
    served.sort_by(|a, b| compare_versions(a, b));
    Some(Resource {
        store: join(&plural, &group),
        singular: text(names, "singular").unwrap_or_else(|| kind.to_lowercase()),
        list_kind: text(names, "listKind").unwrap_or_else(|| format!("{kind}List")),
        short_names: list("shortNames"),
        categories: list("categories"),
        namespaced: text(spec, "scope")? == "Namespaced",
        versions: served,
        storage_version,
        group,
        plural,
        kind,
        custom: true,
        default_policy: DefaultPolicy::Delete,
        traits: Traits {
            generation: true,
            status: has_status,
            needs_resource_version: true,
            ..Traits::default()
        },
    })
}

/// The order in which versions are preferred: released before beta before alpha, the higher number first, and
/// whatever looks like no version at the end, by name.
pub(crate) fn compare_versions(a: &str, b: &str) -> Ordering {
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// `v2beta1` as (stability, major, minor).
fn rank(version: &str) -> Option<(u8, u32, u32)> {
    let rest = version.strip_prefix('v')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, tail) = rest.split_at(end);
    let major = major.parse().ok()?;
    let (stability, minor) = match tail {
        "" => return Some((2, major, 0)),
        t if t.starts_with("beta") => (1, &t[4..]),
        t if t.starts_with("alpha") => (0, &t[5..]),
        _ => return None,
    };
    Some((stability, major, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_as_kubernetes_prefers_them() {
        let mut versions = ["v1alpha1", "foo10", "v2", "v1beta2", "v10", "v1", "v11beta1", "foo1"];
        versions.sort_by(|a, b| compare_versions(a, b));
        assert_eq!(versions, ["v10", "v2", "v1", "v11beta1", "v1beta2", "v1alpha1", "foo1", "foo10"]);
    }

    #[test]
    fn every_built_in_has_a_store_and_events_share_one() {
        let all = built_in();
        assert_eq!(all.iter().filter(|r| r.store == "events").count(), 2);
        assert!(all.iter().all(|r| r.versions == [r.storage_version.clone()]));
    }
}
