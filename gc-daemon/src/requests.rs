//! From an attempt's request to the server's answer, reduced to what decisions depend on.

use std::sync::Arc;

use gc_client::{ApiResource, Client, DeleteOptions, Error, ObjectMeta, PatchType, Status};
use gc_core::{
    LiveObject, OwnerReference, PatchKind, Propagation, Refusal, Reply, Request, Resource, Target,
};

use crate::metrics::Metrics;

/// Sends one request and waits for its answer.
pub fn send(client: &Client, metrics: &Metrics, request: &Request) -> Reply {
    let target = match request {
        Request::Read(target) | Request::Delete { target, .. } | Request::Patch { target, .. } => target,
    };
    let resource = api_resource(&target.resource);
    let answer = match request {
        Request::Read(_) => client.read(&resource, &target.namespace, &target.name).map(live),
        Request::Delete { uid, resource_version, policy, .. } => {
            let uid = uid.to_string();
            let options = DeleteOptions {
                uid: &uid,
                resource_version,
                propagation_policy: match policy {
                    Propagation::Background => gc_client::Propagation::Background,
                    Propagation::Foreground => gc_client::Propagation::Foreground,
                    Propagation::Orphan => gc_client::Propagation::Orphan,
                },
            };
            client.delete(&resource, &target.namespace, &target.name, &options).map(|()| Reply::Deleted)
        }
        Request::Patch { kind, body, .. } => {
            let kind = match kind {
                PatchKind::StrategicMerge => PatchType::StrategicMerge,
                PatchKind::JsonMerge => PatchType::JsonMerge,
            };
            client.patch(&resource, &target.namespace, &target.name, kind, body.as_bytes()).map(live)
        }
    };
    count(metrics, request, &answer);
    answer.unwrap_or_else(|error| refused(target, error))
}

/// The answer that a decision sees in place of an error.
fn refused(target: &Target, error: Error) -> Reply {
    let Error::Status(status) = error else { return Reply::Failed(error.to_string()) };
    let Status { code, is_status, reason, name, kind, .. } = &*status;
    let message = status.to_string();
    let (code, is_status) = (*code, *is_status);
    Reply::refused(target, &Refusal { code, is_status, reason, name, kind, message: &message })
}

fn live(meta: ObjectMeta) -> Reply {
    Reply::Object(LiveObject {
        uid: meta.uid,
        resource_version: meta.resource_version,
        being_deleted: meta.being_deleted,
        finalizers: meta.finalizers,
        owner_references: meta.owner_references.into_iter().map(owner_reference).collect(),
    })
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

fn count(metrics: &Metrics, request: &Request, answer: &Result<Reply, Error>) {
    let code = match answer {
        Ok(_) => 200,
        Err(Error::Status(status)) => status.code,
        Err(_) => 0,
    };
    match request {
        Request::Read(_) => metrics.request("GET", code),
        Request::Delete { policy, .. } => {
            metrics.request("DELETE", code);
            if code == 200 {
                metrics.deleted(policy.as_str());
            }
        }
        Request::Patch { change, .. } => {
            metrics.request("PATCH", code);
            match code {
                200 => metrics.patched(change.as_str()),
                409 => metrics.patch_conflict(change.as_str()),
                _ => {}
            }
        }
    }
}

fn api_resource(resource: &Arc<Resource>) -> ApiResource {
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

/// What discovery says of a kind, as the decisions want it.
pub fn core_resource(resource: &ApiResource) -> Resource {
    Resource {
        group: resource.group.clone(),
        version: resource.version.clone(),
        resource: resource.resource.clone(),
        kind: resource.kind.clone(),
        namespaced: resource.namespaced,
    }
}
