//! The collector's way to the server: what gc-client does, without sockets, and with everything that can go wrong
//! between the two.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gc_builder::{api_resource, live_object, refused};
use gc_client::wire::{self, Format};
use gc_client::{Discovery, Error, Status, discover_with};
use gc_core::{PatchKind, Reply, Request, Target, ttl};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::Mistake;
use super::random::Random;
use super::truth::{COLLECTOR, Cause, Truth, Violation, server_ms};
use super::ttl::EXPIRER;
use crate::sim::{self, ApiServer, Effect, FaultRule, Method, Response, WatchId, WatchPoll};

const ACCEPT_OBJECT: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                             application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// A line for the trace; nothing when nobody reads it.
macro_rules! said {
    ($link:expr, $($what:tt)*) => {
        if $link.is_traced { format!($($what)*) } else { String::new() }
    };
}
pub(super) use said;

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
    /// What the collector has sent so far.
    pub requests: u64,
    /// Requests whose sender has given up on them, or is no more, and that may arrive all the same.
    pub late: Vec<(Request, Cause)>,
    /// Whether anybody reads what happens.
    pub is_traced: bool,
    /// How often the server was set back to an older state.
    pub restores: u32,
    /// At which version it was after the last one.
    pub restored_to: u64,
    /// Until then no server answers anybody.
    pub away_until: Duration,
    /// Meanwhile reads wait instead of failing, as behind a load balancer, and whoever comes back answers them.
    pub keeps_reads: bool,
    /// Until then the watch cache of the server, which was just started, is behind.
    pub cache_is_behind_until: Duration,
    /// UIDs of objects of which the collector was told that they do not exist, although they do.
    pub denied: BTreeSet<String>,
    /// The same for jobs whose TTL has expired.
    pub late_expiries: Vec<ttl::Request>,
    /// By how much the clock of the collector's machine is ahead of the server's.
    pub clock_ahead_ms: i64,
    /// What workers have in hand: users meddle with it more often than chance would have it.
    pub in_hand: Vec<String>,
}

/// What discovery depends on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Serving {
    custom: Vec<String>,
    empty: bool,
    down: BTreeSet<String>,
}

thread_local! {
    /// What discovery answers for it; the same in every run.
    static KNOWN: RefCell<BTreeMap<Serving, Rc<Discovery>>> = const { RefCell::new(BTreeMap::new()) };
}

/// What the weather does to a request.
enum Fault {
    Server(Effect),
    /// The client gives up; the request arrives later, or never.
    Late,
    /// A 404 that names the object, although it exists (kubernetes/kubernetes#98471).
    Denied,
}

impl Link {
    pub(super) fn timestamp(&self) -> Timestamp {
        // 2026-01-01; no run lasts long enough to leave what a time can hold.
        let start = Timestamp::constant(1_767_225_600, 0);
        start.saturating_add(SignedDuration::try_from(self.now).unwrap_or_default()).unwrap_or(start)
    }

    /// Whether no server answers.
    pub(super) fn is_away(&self) -> bool {
        self.now < self.away_until
    }

    /// The server's clock, in Unix milliseconds.
    pub(super) fn server_ms(&self) -> i64 {
        server_ms(self.now)
    }

    /// What the clock of the collector's machine says.
    pub(super) fn clock_ms(&self) -> i64 {
        self.server_ms() + self.clock_ahead_ms
    }

    /// When that clock will say this, unless it jumps.
    pub(super) fn at_clock(&self, ms: i64) -> Duration {
        let wait_ms = u64::try_from(ms.saturating_sub(self.clock_ms())).unwrap_or(0);
        self.now + Duration::from_millis(wait_ms)
    }

    /// A request of somebody else than the collector; nothing happens to it on the way.
    pub(super) fn ask(&mut self, request: &sim::Request) -> Result<Response, Violation> {
        self.handle(request, None, None)
    }

    /// A request of an attempt. `holds` says which objects the collector's graph has seen and not seen go.
    pub(super) fn send(
        &mut self,
        request: &Request,
        cause: &Cause,
        holds: &dyn Fn(&str) -> bool,
    ) -> Result<Reply, Violation> {
        self.requests += 1;
        let fault = self.draw(matches!(request, Request::Delete { .. } | Request::Patch { .. }));
        let effect = match fault {
            Some(Fault::Late) => {
                self.late.push((request.clone(), cause.clone()));
                return Ok(Reply::Failed("no answer in time".into()));
            }
            Some(Fault::Denied) => self.deny(request, holds).then_some(Effect::NotFound),
            Some(Fault::Server(effect)) => Some(effect),
            None => None,
        };
        self.carry_out(request, cause, effect)
    }

    /// A request for a job whose TTL has expired; no answer if it does not come in time.
    pub(super) fn send_expiry(&mut self, request: &ttl::Request) -> Result<Option<Response>, Violation> {
        self.requests += 1;
        let (ttl::Request::Read(target) | ttl::Request::Delete { target, .. }) = request;
        let fault = self.draw(matches!(request, ttl::Request::Delete { .. }));
        // There are few of these requests: they are denied more often than others.
        let fault = fault.map(|fault| if self.faults.permille(300) { Fault::Denied } else { fault });
        let effect = match fault {
            Some(Fault::Late) => {
                self.late_expiries.push(request.clone());
                return Ok(None);
            }
            Some(Fault::Denied) => {
                self.deny(&Request::Read(target.clone()), &|_| true).then_some(Effect::NotFound)
            }
            Some(Fault::Server(effect)) => Some(effect),
            None => None,
        };
        self.handle(&expiry_to_wire(request, self.mistake), None, effect).map(Some)
    }

    /// The same, when nobody waits for the answer any more.
    pub(super) fn expiry_arrives_late(&mut self, request: &ttl::Request) -> Result<(), Violation> {
        self.handle(&expiry_to_wire(request, self.mistake), None, None).map(drop)
    }

    /// Whether the server denies what this request names. A server that does so again and again, or of an object that no
    /// watch has shown, is one against which nothing helps: it never denies one object twice (a denial that is
    /// taken late would count with the next), and none that the collector's graph does not hold.
    fn deny(&mut self, request: &Request, holds: &dyn Fn(&str) -> bool) -> bool {
        let (Request::Read(target) | Request::Delete { target, .. } | Request::Patch { target, .. }) =
            request;
        let Some(uid) = self.truth.uid_at(&target.resource, &target.namespace, &target.name) else {
            return false;
        };
        let uid = uid.to_owned();
        holds(&uid) && self.denied.insert(uid)
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
        let (wire, target) = to_wire(request, self.mistake);
        let response = self.handle(&wire, Some(cause), effect)?;
        match reply(request, target, &response) {
            Reply::NotFound { .. } if self.mistake == Some(Mistake::Any404IsProof) => {
                Ok(Reply::NotFound { proof: true })
            }
            reply => Ok(reply),
        }
    }

    /// What discovery depends on.
    fn serving(&self) -> Serving {
        let switches = &self.server.switches;
        Serving {
            custom: self.server.custom_resources(),
            empty: switches.empty_discovery,
            down: switches.groups_down.clone(),
        }
    }

    /// Discovery, two requests. What meets no fault is computed once for each of the few things that a server serves: it
    /// is what costs a run most.
    pub(super) fn discover(&mut self) -> Result<Result<Rc<Discovery>, Error>, Violation> {
        let faults = [self.draw(false), self.draw(false)];
        if faults.iter().any(Option::is_some) || self.is_away() {
            return Ok(self.ask_discovery(faults.into_iter().collect())?.map(Rc::new));
        }
        let now = self.timestamp();
        self.server.settle(now);
        self.truth.catch_up(&self.server, None)?;
        let serving = self.serving();
        if let Some(known) = KNOWN.with_borrow(|known| known.get(&serving).cloned()) {
            self.requests += 2;
            return Ok(Ok(known));
        }
        let answer = self.ask_discovery(VecDeque::from([None, None]))?.map(Rc::new);
        if let Ok(discovery) = &answer {
            KNOWN.with_borrow_mut(|known| known.insert(serving, Rc::clone(discovery)));
        }
        Ok(answer)
    }

    /// gc-client's discovery; each request meets the next of these faults, and none when they are used up.
    fn ask_discovery(
        &mut self,
        faults: VecDeque<Option<Fault>>,
    ) -> Result<Result<Discovery, Error>, Violation> {
        let (asked, violation) = (Mutex::new((&mut *self, faults)), Mutex::new(None));
        let get = |path: &str, accept: &str| {
            let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
            let (link, faults) = &mut *asked;
            let fault = faults.pop_front().flatten();
            let cut = || Error::Transport {
                request: format!("GET {path}"),
                cause: "the connection was cut".into(),
            };
            match link.get_through(path, accept, fault) {
                Ok(response) if response.code == 0 => Err(cut()),
                Ok(response) => Ok(gc_client::Response {
                    code: response.code,
                    content_type: response.content_type.clone(),
                    retry_after: response.retry_after_s.map(|s| Duration::from_secs(u64::from(s))),
                    body: response.body_bytes().to_vec(),
                    ..gc_client::Response::default()
                }),
                Err(found) => {
                    *violation.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
                    Err(cut())
                }
            }
        };
        let answer = discover_with(&get);
        match violation.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(found) => Err(found),
            None => Ok(answer),
        }
    }

    /// A request of a reader.
    pub(super) fn get(&mut self, path: &str, accept: &str) -> Result<Response, Violation> {
        let fault = self.draw(false);
        self.get_through(path, accept, fault)
    }

    fn get_through(&mut self, path: &str, accept: &str, fault: Option<Fault>) -> Result<Response, Violation> {
        self.requests += 1;
        let effect = match fault {
            Some(Fault::Server(effect)) => Some(effect),
            Some(Fault::Late | Fault::Denied) => Some(Effect::CutBefore),
            None => None,
        };
        let request = sim::Request::get(path).accepting(accept).from_agent(COLLECTOR);
        self.handle(&request, None, effect)
    }

    pub(super) fn list(&mut self, path: &str, accept: &str) -> Result<Response, Violation> {
        let mut response = self.get(path, accept)?;
        if let (sim::Body::Bytes(bytes), true) = (&mut response.body, self.fault_permille > 0) {
            // The connection breaks in the middle of the list.
            if self.faults.permille(self.fault_permille / 2) {
                bytes.truncate(self.faults.below(bytes.len().max(1)));
            }
        }
        Ok(response)
    }

    pub(super) fn poll(&mut self, id: WatchId) -> Result<WatchPoll, Violation> {
        let now = self.timestamp();
        let poll = self.server.poll_watch_decoded(now, id);
        self.truth.catch_up(&self.server, None)?;
        Ok(poll)
    }

    fn handle(
        &mut self,
        request: &sim::Request,
        cause: Option<&Cause>,
        effect: Option<Effect>,
    ) -> Result<Response, Violation> {
        if self.is_away() {
            return Ok(Response::cut());
        }
        if self.cache_is_behind_until <= self.now {
            self.server.switches.cache_at = None;
        }
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
        let status = |code: u16, reason: &str, retry_after_s: Option<u32>| {
            let message = format!("a fault of the simulation: {reason}");
            Fault::Server(Effect::Status { code, reason: reason.into(), message, retry_after_s })
        };
        Some(match self.faults.below(10) {
            0 if is_write => status(409, "Conflict", None),
            0 | 1 => status(429, "TooManyRequests", Some(1)),
            2 => status(500, "InternalError", None),
            3 => status(503, "ServiceUnavailable", None),
            4 => status(403, "Forbidden", None),
            5 => Fault::Server(Effect::PlainNotFound),
            6 => Fault::Server(Effect::CutBefore),
            7 => Fault::Server(Effect::CutAfter),
            8 => Fault::Denied,
            _ => Fault::Late,
        })
    }
}

pub(super) fn to_wire(request: &Request, mistake: Option<Mistake>) -> (sim::Request, &Target) {
    let (target, wire) = match request {
        Request::Read(target) if mistake == Some(Mistake::ReadsFromCache) => {
            (target, sim::Request::get(&format!("{}?resourceVersion=0", path(target))))
        }
        Request::Read(target) => (target, sim::Request::get(&path(target))),
        Request::Delete { target, uid, resource_version, policy } => {
            let mut preconditions = json!({"uid": uid.to_string()});
            if mistake != Some(Mistake::DeleteWithoutVersion) {
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

fn expiry_to_wire(request: &ttl::Request, mistake: Option<Mistake>) -> sim::Request {
    let wire = match request {
        ttl::Request::Read(target) => sim::Request::get(&path(target)),
        ttl::Request::Delete { target, uid, resource_version, policy } => {
            let mut preconditions = json!({});
            if mistake != Some(Mistake::ExpireByName) {
                preconditions["uid"] = uid.to_string().into();
                if mistake != Some(Mistake::ExpireByUid) && !resource_version.is_empty() {
                    preconditions["resourceVersion"] = resource_version.as_str().into();
                }
            }
            let options = json!({
                "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy.as_str(),
                "preconditions": preconditions,
            });
            sim::Request::delete(&path(target)).json(&options)
        }
    };
    wire.accepting("application/json").from_agent(EXPIRER)
}

fn path(target: &Target) -> String {
    api_resource(&target.resource).path(&target.namespace, &target.name)
}

pub(super) fn reply(request: &Request, target: &Target, response: &Response) -> Reply {
    if response.code == 0 {
        return Reply::Failed("the connection was cut".into());
    }
    if response.code >= 300 {
        return refused(target, &Error::Status(Box::new(to_status(response))));
    }
    if matches!(request, Request::Delete { .. }) {
        return Reply::Deleted;
    }
    let format = Format::from_content_type(&response.content_type).unwrap_or(Format::Json);
    match wire::read_object(format, response.body_bytes()) {
        Ok(meta) => Reply::Object(live_object(meta)),
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
