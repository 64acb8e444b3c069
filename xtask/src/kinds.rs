//! The resources that the suite and the rig use.

use gc_client::ApiResource;
use serde_json::{Value, json};

/// `v1` Namespace.
pub fn namespace() -> ApiResource {
    cluster_scoped("", "v1", "namespaces", "Namespace")
}

/// `v1` ConfigMap, the object of choice: nothing else in a cluster acts on it.
pub fn config_map() -> ApiResource {
    namespaced("", "v1", "configmaps", "ConfigMap")
}

/// `v1` Event.
pub fn event() -> ApiResource {
    namespaced("", "v1", "events", "Event")
}

/// `v1` Pod.
pub fn pod() -> ApiResource {
    namespaced("", "v1", "pods", "Pod")
}

/// `batch/v1` Job.
pub fn job() -> ApiResource {
    namespaced("batch", "v1", "jobs", "Job")
}

/// `v1` Service.
pub fn service() -> ApiResource {
    namespaced("", "v1", "services", "Service")
}

/// `v1` ServiceAccount.
pub fn service_account() -> ApiResource {
    namespaced("", "v1", "serviceaccounts", "ServiceAccount")
}

/// `apps/v1` Deployment.
pub fn deployment() -> ApiResource {
    namespaced("apps", "v1", "deployments", "Deployment")
}

/// `apps/v1` ReplicaSet.
pub fn replica_set() -> ApiResource {
    namespaced("apps", "v1", "replicasets", "ReplicaSet")
}

/// `rbac.authorization.k8s.io/v1` ClusterRole: cluster-scoped, and harmless without a binding.
pub fn cluster_role() -> ApiResource {
    cluster_scoped("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole")
}

/// `rbac.authorization.k8s.io/v1` ClusterRoleBinding.
pub fn cluster_role_binding() -> ApiResource {
    cluster_scoped("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding")
}

/// `apiextensions.k8s.io/v1` CustomResourceDefinition.
pub fn custom_resource_definition() -> ApiResource {
    cluster_scoped("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
}

/// `apiregistration.k8s.io/v1` APIService.
pub fn api_service() -> ApiResource {
    cluster_scoped("apiregistration.k8s.io", "v1", "apiservices", "APIService")
}

/// A namespaced resource; its version is taken to be the preferred one.
pub fn namespaced(group: &str, version: &str, resource: &str, kind: &str) -> ApiResource {
    ApiResource {
        group: group.into(),
        version: version.into(),
        resource: resource.into(),
        kind: kind.into(),
        namespaced: true,
        preferred: true,
        can_delete: true,
        can_list: true,
        can_watch: true,
    }
}

fn cluster_scoped(group: &str, version: &str, resource: &str, kind: &str) -> ApiResource {
    ApiResource { namespaced: false, ..namespaced(group, version, resource, kind) }
}

/// The resource of a manifest in `deploy/`.
pub fn of_manifest(api_version: &str, kind: &str) -> Option<ApiResource> {
    let all = [namespace(), service_account(), cluster_role(), cluster_role_binding()];
    all.into_iter().find(|resource| resource.api_version() == api_version && resource.kind == kind)
}

/// A definition of a custom resource without any rule for the contents.
pub fn definition(resource: &ApiResource, versions: &[Value]) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{}.{}", resource.resource, resource.group) },
        "spec": {
            "group": resource.group,
            "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
            "names": {
                "plural": resource.resource,
                "singular": resource.kind.to_lowercase(),
                "kind": resource.kind,
                "listKind": format!("{}List", resource.kind),
            },
            "versions": versions,
        },
    })
}

/// A served version of a definition; exactly one must be the storage version.
pub fn version(name: &str, storage: bool) -> Value {
    json!({
        "name": name,
        "served": true,
        "storage": storage,
        "schema": {
            "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        },
    })
}
