//! The resources that the suite and the rig use.

use gc_client::ApiResource;

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
