//! From an attempt's request to the server's answer, reduced to what decisions depend on.

use std::time::Instant;

use gc_builder::{api_resource, live_object, refused};
use gc_client::{Client, DeleteOptions, Error, PatchType};
use gc_core::{PatchKind, Propagation, Reply, Request};

use crate::metrics::Metrics;

/// Sends one request and waits for its answer.
pub fn send(client: &Client, metrics: &Metrics, request: &Request) -> Reply {
    let target = match request {
        Request::Read(target) | Request::Delete { target, .. } | Request::Patch { target, .. } => target,
    };
    let resource = api_resource(&target.resource);
    let begun = Instant::now();
    if let Request::Delete { uid, .. } = request {
        metrics.watch_lag.asked(uid, begun);
    }
    let answer = match request {
        Request::Read(_) => client
            .read(&resource, &target.namespace, &target.name)
            .map(|meta| Reply::Object(live_object(meta))),
        Request::Delete { uid, resource_version, policy, .. } => {
            let uid = uid.to_string();
            let options =
                DeleteOptions { uid: &uid, resource_version, propagation_policy: propagation(*policy) };
            client.delete(&resource, &target.namespace, &target.name, &options).map(|()| Reply::Deleted)
        }
        Request::Patch { kind, body, .. } => {
            let kind = match kind {
                PatchKind::StrategicMerge => PatchType::StrategicMerge,
                PatchKind::JsonMerge => PatchType::JsonMerge,
            };
            client
                .patch(&resource, &target.namespace, &target.name, kind, body.as_bytes())
                .map(|meta| Reply::Object(live_object(meta)))
        }
    };
    count(metrics, request, &answer, begun);
    answer.unwrap_or_else(|error| refused(target, &error))
}

/// The same in the client's words.
pub fn propagation(policy: Propagation) -> gc_client::Propagation {
    match policy {
        Propagation::Background => gc_client::Propagation::Background,
        Propagation::Foreground => gc_client::Propagation::Foreground,
        Propagation::Orphan => gc_client::Propagation::Orphan,
    }
}

fn count(metrics: &Metrics, request: &Request, answer: &Result<Reply, Error>, begun: Instant) {
    let code = status_code(answer);
    let now = Instant::now();
    let duration = now.saturating_duration_since(begun);
    match request {
        Request::Read(_) => metrics.request("GET", code, duration),
        Request::Delete { uid, policy, .. } => {
            metrics.request("DELETE", code, duration);
            metrics.watch_lag.answered(uid, code == 200, now);
            if code == 200 {
                metrics.deleted(policy.as_str());
            }
        }
        Request::Patch { change, .. } => {
            metrics.request("PATCH", code, duration);
            match code {
                200 => metrics.patched(change.as_str()),
                409 => metrics.patch_conflict(change.as_str()),
                _ => {}
            }
        }
    }
}

/// The HTTP status that an answer had; 0 when none came.
pub fn status_code<T>(answer: &Result<T, Error>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(Error::Status(status)) => status.code,
        Err(_) => 0,
    }
}
