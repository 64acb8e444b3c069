//! What the tests of this crate share.

use gc_client::ApiResource;

/// A namespaced resource of the core group, as discovery gives it.
pub fn resource(resource: &str, kind: &str) -> ApiResource {
    ApiResource {
        group: String::new(),
        version: "v1".into(),
        resource: resource.into(),
        kind: kind.into(),
        namespaced: true,
        preferred: true,
        can_delete: true,
        can_list: true,
        can_watch: true,
    }
}
