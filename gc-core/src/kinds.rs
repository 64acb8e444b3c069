//! From a kind to the resource that serves it (client-go's RESTMapper).

use std::sync::Arc;

use hashbrown::HashMap;

use crate::Resource;

/// What discovery last said.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    /// By apiVersion, then by kind: two look-ups with borrowed keys instead of one with an owned pair.
    by_api_version: HashMap<String, HashMap<String, Arc<Resource>>>,
}

impl Kinds {
    /// Takes every served version of every resource, sub-resources left out. Where one version serves a kind under
    /// two names, the first one counts.
    pub fn new(resources: impl IntoIterator<Item = Resource>) -> Kinds {
        let mut kinds = Kinds::default();
        for resource in resources {
            let kind = resource.kind.clone();
            kinds
                .by_api_version
                .entry(resource.api_version())
                .or_default()
                .entry(kind)
                .or_insert_with(|| Arc::new(resource));
        }
        kinds
    }

    /// The resource of a kind, or none when nothing serves it (yet).
    pub fn resolve(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.by_api_version.get(api_version)?.get(kind)
    }
}
