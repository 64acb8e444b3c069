//! Kinds whose objects finish, and have a TTL: `batch/v1` Jobs, Volcano's, and one that the end-to-end suite has invented.

use gc_client::ApiResource;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::failure::{Doing, Failure};
use crate::kinds;

/// Volcano's Job, as far as it matters.
const VOLCANO: &str = include_str!("e2e/volcano-job.yaml");

/// The profile of the invented kind, which is not defined when the collector starts. Everything that is off by default
/// is on: a floor, a default for those that failed, another propagation, an annotation that protects.
pub const TTL_CONFIG: &str = include_str!("e2e/ttl-config.yaml");

/// The annotation that [`TTL_CONFIG`] names.
pub const PROTECT: &str = "gc-e2e-ttl.example/keep";

/// How an object ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Well.
    Success,
    /// Not well.
    Failure,
}

/// A kind whose objects finish.
pub struct Finishing {
    /// Where its objects are.
    pub resource: ApiResource,
    /// Its own floor, in seconds.
    pub min_s: i64,
    /// The field of the spec that holds the TTL.
    ttl: &'static str,
    /// What else the server wants in a spec.
    rest: fn() -> Value,
    status: fn(End, Option<&str>) -> Value,
}

impl Finishing {
    /// `batch/v1` Job. No controller of Jobs runs on the rig, so that a Job has the status that the suite writes.
    pub fn batch() -> Finishing {
        let resource = kinds::job();
        let rest =
            || json!({ "template": { "spec": { "restartPolicy": "Never", "containers": [container()] } } });
        Finishing { resource, min_s: 0, ttl: "ttlSecondsAfterFinished", rest, status: batch_status }
    }

    /// Volcano's Job.
    pub fn volcano() -> Finishing {
        let resource = kinds::namespaced("batch.volcano.sh", "v1alpha1", "jobs", "Job");
        let status = |end: End, at: Option<&str>| {
            let phase = if end == End::Success { "Completed" } else { "Terminated" };
            json!({ "state": { "phase": phase, "lastTransitionTime": at } })
        };
        Finishing { resource, min_s: 0, ttl: "ttlSecondsAfterFinished", rest: || json!({}), status }
    }

    /// A kind that nobody has, see [`TTL_CONFIG`].
    pub fn invented() -> Finishing {
        let resource = kinds::namespaced("gc-e2e-ttl.example", "v1", "rendertasks", "RenderTask");
        let status = |end: End, at: Option<&str>| {
            let outcome = if end == End::Success { "Rendered" } else { "Broken" };
            json!({ "outcome": outcome, "endedAt": at })
        };
        Finishing { resource, min_s: 1, ttl: "keepSeconds", rest: || json!({}), status }
    }

    /// The part of an object that sets its TTL; a patch with `None` takes it away.
    pub fn ttl(&self, ttl_s: Option<i64>) -> Value {
        json!({ "spec": { self.ttl: ttl_s } })
    }

    /// An object that has not finished, without its metadata.
    pub fn body(&self, ttl_s: Option<i64>) -> Value {
        let mut spec = (self.rest)();
        if let Some(ttl_s) = ttl_s {
            spec[self.ttl] = json!(ttl_s);
        }
        json!({ "spec": spec })
    }

    /// The patch, for the subresource `status`, of an object that has finished; without a time it does not say when.
    pub fn status(&self, end: End, at_s: Option<i64>) -> Result<Value, Failure> {
        let at = at_s.map(Timestamp::from_second).transpose().doing(|| "no such time".into())?;
        let at = at.map(|at| at.to_string());
        Ok(json!({ "status": (self.status)(end, at.as_deref()) }))
    }

    /// The definition of the invented kind.
    pub fn definition(&self) -> Value {
        let text = json!({ "type": "string" });
        let mut version = kinds::version(&self.resource.version, true);
        version["subresources"] = json!({ "status": {} });
        version["schema"]["openAPIV3Schema"] = json!({ "type": "object", "properties": {
            "spec": { "type": "object", "properties": { self.ttl: { "type": "integer", "format": "int64" } } },
            "status": { "type": "object", "properties": { "outcome": text, "endedAt": text } },
        } });
        kinds::definition(&self.resource, &[version])
    }
}

/// The definition of Volcano's Job that the repository has.
pub fn volcano_definition() -> Result<Value, Failure> {
    serde_saphyr::from_str(VOLCANO).doing(|| "cannot read the definition of Volcano's Job".into())
}

fn container() -> Value {
    json!({ "name": "c", "image": "example.invalid/none" })
}

/// What API servers since 1.32 insist on: a start, an end where it ended well, and the condition that announced it.
fn batch_status(end: End, at: Option<&str>) -> Value {
    const START: &str = "2026-01-01T00:00:00Z";
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "lastTransitionTime": at });
    match end {
        End::Success => json!({
            "startTime": START,
            "completionTime": START,
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
        }),
        End::Failure => json!({
            "startTime": START,
            "conditions": [condition("FailureTarget"), condition("Failed")],
        }),
    }
}
