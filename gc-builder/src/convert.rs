//! Between what the client reads and what decisions are made from.

use std::sync::Arc;

use gc_client::{ApiResource, Error, MetaRef, ObjectMeta, Status};
use gc_core::{
    FOREGROUND_FINALIZER, LiveObject, ORPHAN_FINALIZER, OwnerReference, Refusal, Reply, Resource, Target, ttl,
};
use gc_graph::{Observation, OwnerReferenceRef};

use crate::Monitor;

/// What an attempt sees of an object that was read.
pub fn live_object(meta: ObjectMeta) -> LiveObject {
    LiveObject {
        uid: meta.uid,
        resource_version: meta.resource_version,
        being_deleted: meta.being_deleted,
        finalizers: meta.finalizers,
        owner_references: meta.owner_references.into_iter().map(owner_reference).collect(),
    }
}

fn owner_reference(reference: gc_client::OwnerReference) -> OwnerReference {
    OwnerReference {
        api_version: reference.api_version,
        kind: reference.kind,
        name: reference.name,
        uid: reference.uid,
        controller: reference.controller,
        block_owner_deletion: reference.block_owner_deletion,
    }
}

/// What an attempt sees in place of an error.
pub fn refused(target: &Target, error: &Error) -> Reply {
    let Error::Status(status) = error else { return Reply::Failed(error.to_string()) };
    Reply::refused(target, &refusal(status, &status.to_string()))
}

/// The same for an attempt at something whose TTL has expired.
pub fn ttl_refused(target: &Target, error: &Error) -> ttl::Reply {
    let Error::Status(status) = error else { return ttl::Reply::Failed(error.to_string()) };
    ttl::Reply::refused(target, &refusal(status, &status.to_string()))
}

fn refusal<'a>(status: &'a Status, message: &'a str) -> Refusal<'a> {
    let Status { code, is_status, reason, name, kind, retry_after, .. } = status;
    let (code, is_status, retry_after) = (*code, *is_status, *retry_after);
    Refusal { code, is_status, reason, name, kind, message, retry_after }
}

/// The resource of an attempt's request, as the client wants it.
pub fn api_resource(resource: &Arc<Resource>) -> ApiResource {
    ApiResource {
        group: resource.group.clone(),
        version: resource.version.clone(),
        resource: resource.resource.clone(),
        kind: resource.kind.clone(),
        namespaced: resource.namespaced,
        preferred: true,
        can_delete: true,
        can_list: true,
        can_watch: true,
    }
}

/// What discovery says of a kind, as decisions want it.
pub fn core_resource(resource: &ApiResource) -> Resource {
    Resource {
        group: resource.group.clone(),
        version: resource.version.clone(),
        resource: resource.resource.clone(),
        kind: resource.kind.clone(),
        namespaced: resource.namespaced,
    }
}

/// What a watch shows, as the graph wants it.
pub(crate) fn observe(monitor: &Monitor, meta: &MetaRef<'_>, apply: impl FnOnce(&Observation<'_>)) {
    let has = |finalizer: &str| meta.finalizers.contains(&finalizer);
    let one: [OwnerReferenceRef<'_>; 1];
    let many: Vec<OwnerReferenceRef<'_>>;
    // Nearly every object has one owner or none, and allocates nothing here.
    let owner_references = match meta.owner_references {
        [] => &[][..],
        [reference] => {
            one = [owner_reference_of(reference)];
            &one
        }
        references => {
            many = references.iter().map(owner_reference_of).collect();
            &many
        }
    };
    apply(&Observation {
        source: monitor.id.source,
        api_version: &monitor.api_version,
        kind: &monitor.resource.kind,
        namespace: meta.namespace,
        name: meta.name,
        uid: meta.uid,
        resource_version: meta.resource_version,
        being_deleted: meta.being_deleted,
        has_foreground_finalizer: has(FOREGROUND_FINALIZER),
        has_orphan_finalizer: has(ORPHAN_FINALIZER),
        owner_references,
    });
}

fn owner_reference_of<'a>(reference: &gc_client::OwnerReferenceRef<'a>) -> OwnerReferenceRef<'a> {
    OwnerReferenceRef {
        api_version: reference.api_version,
        kind: reference.kind,
        name: reference.name,
        uid: reference.uid,
        controller: reference.controller == Some(true),
        block_owner_deletion: reference.block_owner_deletion == Some(true),
    }
}
