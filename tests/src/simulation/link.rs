//! The collector's way to the server: what gc-client does, without sockets, and with everything that can go wrong
//! between the two.

use std::collections::BTreeSet;
use std::time::Duration;

use gc_client::wire::{self, Format};
use gc_client::{ApiResource, Discovery, Error, ObjectMeta, Status};
use gc_core::{LiveObject, OwnerReference, PatchKind, Refusal, Reply, Request, Resource, Target};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::Mistake;
use super::random::Random;
use super::truth::{COLLECTOR, Cause, Truth, Violation};
use crate::sim::{self, ApiServer, Effect, FaultRule, Method, Response, WatchId, WatchPoll};

const ACCEPT_OBJECT: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                             application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const ACCEPT_LIST: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                           application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// The server, what is true of it, and the weather on the way there.
pub(super) struct Link {
    pub server: ApiServer,
    pub truth: Truth,
    /// Virtual time since the start.
    pub now: Duration,
    /// How many of the collector's requests in a thousand meet a fault.
    pub fault_permille: u32,
    pub faults: Random,
    /// A mistake that the collector's client makes.
    pub mistake: Option<Mistake>,
    /// Faults so far.
    pub faults_met: u64,
    /// What the collector has sent so far.
    pub requests: u64,
    /// Requests whose sender has given up on them, or is no more, and that may arrive all the same.
    pub late: Vec<(Request, Cause)>,
    /// What discovery answered when the server served what it serves now; to ask anew is what costs a run most.
    pub discovery: Option<(Serving, Discovery)>,
    /// What workers have in hand: users meddle with it more often than chance would have it.
    pub in_hand: Vec<String>,
}

/// What discovery depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Serving {
    definition_writes: u64,
    empty: bool,
    down: BTreeSet<String>,
}

/// What the weather does to a request.
enum Fault {
    Server(Effect),
    /// The client gives up; the request arrives later, or never.
    Late,
}

impl Link {
    pub(super) fn timestamp(&self) -> Timestamp {
        // 2026-01-01; no run lasts long enough to leave what a time can hold.
        let start = Timestamp::constant(1_767_225_600, 0);
        start.saturating_add(SignedDuration::try_from(self.now).unwrap_or_default()).unwrap_or(start)
    }

    /// A request of somebody else than the collector; nothing happens to it on the way.
    pub(super) fn ask(&mut self, request: &sim::Request) -> Result<Response, Violation> {
        let now = self.timestamp();
        let response = self.server.handle(now, request);
        self.truth.catch_up(&self.server, None)?;
        Ok(response)
    }

    /// A request of an attempt.
    pub(super) fn send(&mut self, request: &Request, cause: &Cause) -> Result<Reply, Violation> {
        self.requests += 1;
        let fault = self.draw(matches!(request, Request::Delete { .. } | Request::Patch { .. }));
        let effect = match fault {
            Some(Fault::Late) => {
                self.late.push((request.clone(), cause.clone()));
                return Ok(Reply::Failed("no answer in time".into()));
            }
            Some(Fault::Server(effect)) => Some(effect),
            None => None,
        };
        self.carry_out(request, cause, effect)
    }

    /// A request that arrives when nobody waits for the answer any more.
    pub(super) fn arrive_late(&mut self, request: &Request, cause: &Cause) -> Result<Reply, Violation> {
        self.carry_out(request, cause, None)
    }

    fn carry_out(
        &mut self,
        request: &Request,
        cause: &Cause,
        effect: Option<Effect>,
    ) -> Result<Reply, Violation> {
        let (wire, target) = to_wire(request, self.mistake == Some(Mistake::DeleteWithoutVersion));
        let response = self.handle(&wire, Some(cause), effect)?;
        match reply(request, target, &response) {
            Reply::NotFound { .. } if self.mistake == Some(Mistake::Any404IsProof) => {
                Ok(Reply::NotFound { proof: true })
            }
            reply => Ok(reply),
        }
    }

    pub(super) fn serving(&self) -> Serving {
        let switches = &self.server.switches;
        let definition_writes = self.truth.definition_writes;
        Serving { definition_writes, empty: switches.empty_discovery, down: switches.groups_down.clone() }
    }

    /// The two requests of discovery, when they would be answered as before and meet no fault.
    pub(super) fn known_discovery(&mut self) -> Option<Discovery> {
        let known = self.discovery.as_ref().filter(|(serving, _)| *serving == self.serving())?.1.clone();
        if self.draw(false).or_else(|| self.draw(false)).is_some() {
            return None;
        }
        self.requests += 2;
        Some(known)
    }

    /// A request of a reader or of discovery.
    pub(super) fn get(&mut self, path: &str, accept: &str) -> Result<Response, Violation> {
        self.requests += 1;
        let effect = match self.draw(false) {
            Some(Fault::Server(effect)) => Some(effect),
            Some(Fault::Late) => Some(Effect::CutBefore),
            None => None,
        };
        let request = sim::Request::get(path).accepting(accept).from_agent(COLLECTOR);
        self.handle(&request, None, effect)
    }

    pub(super) fn list(&mut self, path: &str) -> Result<Response, Violation> {
        let mut response = self.get(path, ACCEPT_LIST)?;
        if let (sim::Body::Bytes(bytes), true) = (&mut response.body, self.fault_permille > 0) {
            // The connection breaks in the middle of the list.
            if self.faults.permille(self.fault_permille / 2) {
                bytes.truncate(self.faults.below(bytes.len().max(1)));
            }
        }
        Ok(response)
    }

    pub(super) fn watch(&mut self, path: &str) -> Result<Response, Violation> {
        self.get(path, ACCEPT_OBJECT)
    }

    pub(super) fn poll(&mut self, id: WatchId) -> Result<WatchPoll, Violation> {
        let now = self.timestamp();
        let poll = self.server.poll_watch(now, id);
        self.truth.catch_up(&self.server, None)?;
        Ok(poll)
    }

    fn handle(
        &mut self,
        request: &sim::Request,
        cause: Option<&Cause>,
        effect: Option<Effect>,
    ) -> Result<Response, Violation> {
        self.server.faults.extend(effect.map(|effect| FaultRule::new("", effect).times(1)));
        let now = self.timestamp();
        let response = self.server.handle(now, request);
        self.server.faults.clear();
        self.truth.catch_up(&self.server, cause)?;
        Ok(response)
    }

    fn draw(&mut self, is_write: bool) -> Option<Fault> {
        if self.fault_permille == 0 || !self.faults.permille(self.fault_permille) {
            return None;
        }
        self.faults_met += 1;
        let status = |code: u16, reason: &str, retry_after_s: Option<u32>| {
            let message = format!("a fault of the simulation: {reason}");
            Fault::Server(Effect::Status { code, reason: reason.into(), message, retry_after_s })
        };
        Some(match self.faults.below(9) {
            0 if is_write => status(409, "Conflict", None),
            0 | 1 => status(429, "TooManyRequests", Some(1)),
            2 => status(500, "InternalError", None),
            3 => status(503, "ServiceUnavailable", None),
            4 => status(403, "Forbidden", None),
            5 => Fault::Server(Effect::PlainNotFound),
            6 => Fault::Server(Effect::CutBefore),
            7 => Fault::Server(Effect::CutAfter),
            _ => Fault::Late,
        })
    }
}

pub(super) fn to_wire(request: &Request, drops_version: bool) -> (sim::Request, &Target) {
    let (target, wire) = match request {
        Request::Read(target) => (target, sim::Request::get(&path(target))),
        Request::Delete { target, uid, resource_version, policy } => {
            let mut preconditions = json!({"uid": uid.to_string()});
            if !drops_version {
                preconditions["resourceVersion"] = resource_version.as_str().into();
            }
            let options = json!({
                "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy.as_str(),
                "preconditions": preconditions,
            });
            (target, sim::Request::delete(&path(target)).json(&options))
        }
        Request::Patch { target, kind, body, .. } => {
            let mut wire = sim::Request::new(Method::Patch, &path(target));
            wire.body = body.clone().into_bytes();
            wire.content_type = match kind {
                PatchKind::StrategicMerge => "application/strategic-merge-patch+json".into(),
                PatchKind::JsonMerge => "application/merge-patch+json".into(),
            };
            (target, wire)
        }
    };
    (wire.accepting(ACCEPT_OBJECT).from_agent(COLLECTOR), target)
}

fn path(target: &Target) -> String {
    let Resource { group, version, resource, kind, namespaced } = &*target.resource;
    let (group, version, resource, kind) = (group.clone(), version.clone(), resource.clone(), kind.clone());
    let (preferred, can) = (true, true);
    let resource = ApiResource {
        group,
        version,
        resource,
        kind,
        namespaced: *namespaced,
        preferred,
        can_delete: can,
        can_list: can,
        can_watch: can,
    };
    resource.path(&target.namespace, &target.name)
}

pub(super) fn reply(request: &Request, target: &Target, response: &Response) -> Reply {
    if response.code == 0 {
        return Reply::Failed("the connection was cut".into());
    }
    if response.code >= 300 {
        let status = to_status(response);
        let Status { code, is_status, reason, name, kind, message, .. } = &status;
        let (code, is_status) = (*code, *is_status);
        return Reply::refused(target, &Refusal { code, is_status, reason, name, kind, message });
    }
    if matches!(request, Request::Delete { .. }) {
        return Reply::Deleted;
    }
    let format = Format::from_content_type(&response.content_type).unwrap_or(Format::Json);
    match wire::read_object(format, response.body_bytes()) {
        Ok(meta) => Reply::Object(live(meta)),
        Err(error) => Reply::Failed(error.to_string()),
    }
}

pub(super) fn to_status(response: &Response) -> Status {
    let retry_after = response.retry_after_s.map(|s| Duration::from_secs(u64::from(s)));
    Status::from_body(response.code, retry_after, response.body_bytes())
}

/// The error that gc-client would give for an answer, if it is one.
pub(super) fn to_error(response: &Response, path: &str) -> Option<Error> {
    match response.code {
        0 => {
            Some(Error::Transport { request: format!("GET {path}"), cause: "the connection was cut".into() })
        }
        300.. => Some(Error::Status(Box::new(to_status(response)))),
        _ => None,
    }
}

fn live(meta: ObjectMeta) -> LiveObject {
    LiveObject {
        uid: meta.uid,
        resource_version: meta.resource_version,
        being_deleted: meta.being_deleted,
        finalizers: meta.finalizers,
        owner_references: meta.owner_references.into_iter().map(owner_reference).collect(),
    }
}

fn owner_reference(reference: gc_client::OwnerReference) -> OwnerReference {
    let gc_client::OwnerReference { api_version, kind, name, uid, controller, block_owner_deletion } =
        reference;
    OwnerReference { api_version, kind, name, uid, controller, block_owner_deletion }
}
