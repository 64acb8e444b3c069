//! A simulated Kubernetes API server: plain data behind `handle`.
//!
//! The contract: [`ApiServer::handle`] takes a request and the time and gives a response; [`ApiServer::poll_watch`]
//! gives what an open watch has to say. There are no threads, no sockets and no clock inside; the same requests at
//! the same times with the same seed give the same answers, byte for byte, so that a simulation can interleave
//! everything in one thread.
//!
//! What it answers is what kube-apiserver 1.36 answers: the tests of this package replay recorded conversations with
//! the real one. What it leaves out, on purpose: schemas (specs are stored as they are sent, without defaults and
//! validation), `managedFields`, server-side apply, YAML bodies, authentication and authorization.
//!
//! ```
//! use gc_tests::sim::{ApiServer, Request, Timestamp};
//! use serde_json::json;
//!
//! let mut server = ApiServer::new(7);
//! let now: Timestamp = "2026-01-02T03:04:05Z".parse()?;
//! let path = "/api/v1/namespaces/default/configmaps";
//!
//! let created = server.handle(now, &Request::post(path, &json!({"metadata": {"name": "a"}})));
//! assert_eq!(created.code, 201);
//!
//! let watch = server.handle(now, &Request::get(&format!("{path}?watch=1&resourceVersion=0"))).watch();
//! let events = server.poll_watch(now, watch.ok_or("no watch")?).events;
//! assert_eq!((events[0].kind, &events[0].object["metadata"]["name"]), ("ADDED", &json!("a")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value, json};

mod controllers;
mod deletion;
mod discovery;
mod faults;
mod list;
mod object;
mod patch;
mod protobuf;
mod registry;
mod render;
mod request;
mod resources;
mod route;
mod select;
mod status;
mod store;
mod watch;
mod world;

pub use faults::{Effect, FaultRule};
pub use jiff::Timestamp;
pub(crate) use render::lend_meta;
pub use render::object_meta;
pub use request::{Body, Method, Request, Response, WatchId};
pub use store::Write;
pub use watch::{WatchEvent, WatchPoll};
pub use world::WorldError;

pub(crate) use resources::{Resource, built_in};

use registry::{Actor, Registry};
use route::Route;
use status::ApiError;
use store::State;
use watch::Watch;

/// How many watches may be open at once. A daemon opens one for each resource, a test a few more.
const MAX_WATCHES: usize = 4_096;
/// How many requests are remembered for tests; the oldest go first.
const REQUESTS_KEPT: usize = 100_000;

/// What the server can be told to do otherwise. The defaults are a healthy kube-apiserver beside a
/// kube-controller-manager without garbage collection.
#[derive(Clone, Debug)]
pub struct Switches {
    /// Answer aggregated discovery; off as in servers before 1.26.
    pub aggregated_discovery: bool,
    /// Answer discovery with nothing in it (kubernetes/kubernetes#60037).
    pub empty_discovery: bool,
    /// Groups, as `group/version`, whose API service is down: stale in discovery, 503 for every request. They need
    /// not exist otherwise.
    pub groups_down: BTreeSet<String>,
    /// Resources, as `things.example.com`, that cannot be converted: lists and reads answer 500, watches 429.
    pub broken_resources: BTreeSet<String>,
    /// Answer lists in protobuf; off to see clients fall back to JSON.
    pub protobuf: bool,
    /// Stream the first list on a watch (`sendInitialEvents`); off as in servers that refuse it.
    pub streaming_lists: bool,
    /// Answer an expired watch with HTTP 410 instead of an `ERROR` event inside a 200. The real server does the
    /// latter; proxies and older servers do the former.
    pub expired_watch_as_status: bool,
    /// Between two bookmarks of a watch that asks for them.
    pub bookmark_every: Duration,
    /// Empty namespaces that are being deleted, as the namespace controller does.
    pub namespace_controller: bool,
    /// How long a new definition of a custom resource waits until its resources are served.
    pub establish_delay: Duration,
    /// At which version the watch cache is; none for one that has caught up. A server that was just started, one of
    /// several, answers from it whoever takes what there is (`resourceVersion=0`; kubernetes/kubernetes#59848).
    pub cache_at: Option<u64>,
}

impl Default for Switches {
    fn default() -> Switches {
        Switches {
            aggregated_discovery: true,
            empty_discovery: false,
            groups_down: BTreeSet::new(),
            broken_resources: BTreeSet::new(),
            protobuf: true,
            streaming_lists: true,
            expired_watch_as_status: false,
            bookmark_every: Duration::from_secs(60),
            namespace_controller: true,
            establish_delay: Duration::ZERO,
            cache_at: None,
        }
    }
}

/// One request that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// When.
    pub time: Timestamp,
    /// The verb.
    pub method: Method,
    /// Path and query as sent.
    pub target: String,
    /// Who asked.
    pub user_agent: String,
    /// The code that was answered; 0 for a connection that was cut.
    pub code: u16,
}

/// A state of the server, to be set back to: what a backup of etcd holds.
#[derive(Clone)]
pub struct Snapshot(State);

/// The simulated API server. See the [module](self) for the contract.
pub struct ApiServer {
    /// Ways to make it misbehave or look older.
    pub switches: Switches,
    /// Faults on purpose; the first rule that matches a request is used.
    pub faults: Vec<FaultRule>,
    registry: Registry,
    watches: BTreeMap<WatchId, Watch>,
    next_watch: u64,
    /// By qualified resource.
    bookmarks: BTreeMap<String, u64>,
    log: VecDeque<LogEntry>,
}

impl ApiServer {
    /// A server with the usual four namespaces, created in 1970. The seed decides all UIDs and generated names.
    pub fn new(seed: u64) -> ApiServer {
        ApiServer::started_at(seed, Timestamp::UNIX_EPOCH)
    }

    /// The same, with namespaces of another age.
    pub fn started_at(seed: u64, now: Timestamp) -> ApiServer {
        let mut server = ApiServer {
            switches: Switches::default(),
            faults: Vec::new(),
            registry: Registry::new(seed),
            watches: BTreeMap::new(),
            next_watch: 1,
            bookmarks: BTreeMap::new(),
            log: VecDeque::new(),
        };
        for namespace in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let body = json!({"metadata": {"name": namespace}});
            let request = Request::post("/api/v1/namespaces", &body).from_agent("kube-apiserver");
            server.handle(now, &request);
        }
        server.log.clear();
        server
    }

    /// Answers one request.
    pub fn handle(&mut self, now: Timestamp, request: &Request) -> Response {
        self.settle(now);
        let effect = self.faults.iter_mut().find_map(|rule| rule.takes(request).then(|| rule.effect.clone()));
        let instead = effect.as_ref().and_then(|effect| effect.instead(request));
        let mut response = match instead {
            Some(response) => response,
            None => self.answer(now, request).unwrap_or_else(ApiError::into_response),
        };
        if let Some(effect) = &effect {
            let opened = response.watch();
            response = effect.afterwards(response);
            if let (Some(id), Body::Cut) = (opened, &response.body) {
                self.close_watch(id);
            }
        }
        self.remember(now, request, response.code);
        response
    }

    /// What an open watch has to say. A watch that is not open has ended.
    pub fn poll_watch(&mut self, now: Timestamp, id: WatchId) -> WatchPoll {
        self.poll(now, id, true)
    }

    /// The same without the bytes, which most of the time goes into.
    pub(crate) fn poll_watch_decoded(&mut self, now: Timestamp, id: WatchId) -> WatchPoll {
        self.poll(now, id, false)
    }

    fn poll(&mut self, now: Timestamp, id: WatchId, with_bytes: bool) -> WatchPoll {
        self.settle(now);
        let Some(watch) = self.watches.get_mut(&id) else {
            return WatchPoll { ended: true, ..WatchPoll::default() };
        };
        let poll = watch.poll(&self.registry.state, now, with_bytes);
        let bookmark = poll.events.iter().rev().find(|event| event.kind == "BOOKMARK");
        if let Some(event) = bookmark {
            let version = object::resource_version(&event.object).parse().unwrap_or(0);
            self.bookmarks.insert(watch.resource(), version);
        }
        if poll.ended {
            self.watches.remove(&id);
        }
        poll
    }

    /// The version that the last bookmark of a resource told, on whichever watch; 0 before the first. `resource` is
    /// qualified.
    pub fn version_of_last_bookmark(&self, resource: &str) -> u64 {
        self.bookmarks.get(resource).copied().unwrap_or(0)
    }

    /// When this watch next has something to say without any further write; none when it is not open.
    pub fn watch_wakes_at(&self, id: WatchId) -> Option<Timestamp> {
        self.watches.get(&id).map(Watch::next_wake)
    }

    /// The client went away, or a fault takes the connection.
    pub fn close_watch(&mut self, id: WatchId) {
        self.watches.remove(&id);
    }

    /// Ends all watches, as a restart of the server does.
    pub fn close_all_watches(&mut self) {
        self.watches.clear();
    }

    /// How many watches are open.
    pub fn open_watches(&self) -> usize {
        self.watches.len()
    }

    /// The resourceVersion of the last write.
    pub fn resource_version(&self) -> u64 {
        self.registry.state.resource_version
    }

    /// Forgets the history up to a resourceVersion: watches and pages from before it answer 410.
    pub fn compact(&mut self, resource_version: u64) {
        self.registry.state.compact(resource_version);
    }

    /// The present state, to be set back to later.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.registry.state.clone())
    }

    /// Sets the server back to an earlier state, resourceVersions included, as a restored backup of etcd does. All
    /// watches end. UIDs are never given twice, and the histories of requests and writes go on.
    pub fn restore(&mut self, snapshot: &Snapshot) {
        self.registry.state = snapshot.0.clone();
        self.registry.settled_at = None;
        self.close_all_watches();
    }

    /// Moves the resourceVersion forward and forgets what was before, as `etcdutl snapshot restore --bump-revision
    /// --mark-compacted` does.
    pub fn move_forward(&mut self, resource_version: u64) {
        self.registry.state.resource_version = resource_version;
        self.compact(resource_version);
    }

    /// The custom resources that are served, qualified.
    pub(crate) fn custom_resources(&self) -> Vec<String> {
        let resources = self.registry.state.resources.iter();
        resources.filter(|r| r.custom && !r.versions.is_empty()).map(|r| r.qualified()).collect()
    }

    /// An object as it is stored; `resource` is qualified (`configmaps`, `things.example.com`), the namespace empty
    /// for cluster-scoped resources.
    pub fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let resource = self.registry.state.find_qualified(resource)?;
        self.registry.state.get(resource, &store::key(resource, namespace, name)).cloned()
    }

    /// All objects of a resource, in the order of their keys.
    pub fn objects(&self, resource: &str) -> Vec<Arc<Value>> {
        let state = &self.registry.state;
        state.find_qualified(resource).map(|r| state.list(r, "")).unwrap_or_default()
    }

    /// Every write that was carried out, the oldest first; the last 200,000 are kept.
    pub fn writes(&self) -> impl DoubleEndedIterator<Item = &Write> {
        self.registry.writes.iter()
    }

    /// Every request that was answered, the oldest first; the last 100,000 are kept.
    pub fn requests(&self) -> impl DoubleEndedIterator<Item = &LogEntry> {
        self.log.iter()
    }

    /// Forgets the requests so far, so that a test sees its own.
    pub fn forget_requests(&mut self) {
        self.log.clear();
    }

    /// Lets the controllers do what is due; [`handle`](Self::handle) and [`poll_watch`](Self::poll_watch) do it too.
    pub fn settle(&mut self, now: Timestamp) {
        self.registry.establish_delay =
            SignedDuration::try_from(self.switches.establish_delay).unwrap_or_default();
        self.registry.settle(now, self.switches.namespace_controller);
    }

    fn answer(&mut self, now: Timestamp, request: &Request) -> Result<Response, ApiError> {
        let state = &self.registry.state;
        match Route::parse(request.path()) {
            Route::Health => Ok(Response::bytes(200, "text/plain; charset=utf-8", b"ok".to_vec())),
            Route::Version => Ok(discovery::version()),
            Route::Root { core } => Ok(discovery::root(state, &self.switches, core, &request.accept)),
            Route::Group { group } => discovery::group(state, &self.switches, &group),
            Route::Resources { group, version } => {
                self.check_group(&group, &version)?;
                discovery::resources(state, &group, &version)
            }
            Route::Objects(target) => {
                self.check_group(&target.group, &target.version)?;
                self.serve(Actor { now, user_agent: &request.user_agent }, request, &target)
            }
            Route::Unknown => Err(ApiError::page_not_found()),
        }
    }

    fn check_group(&self, group: &str, version: &str) -> Result<(), ApiError> {
        if self.switches.groups_down.contains(&format!("{group}/{version}")) {
            return Err(ApiError::service_down());
        }
        Ok(())
    }

    fn open_watch(&mut self, watch: Watch) -> Result<Response, ApiError> {
        if self.switches.expired_watch_as_status
            && let Some(error) = watch.initial_error()
        {
            return Err(error);
        }
        if self.watches.len() >= MAX_WATCHES {
            let message = "Too many requests: too many watches are open";
            return Err(ApiError::status(429, "TooManyRequests", message, Value::Null));
        }
        let id = WatchId(self.next_watch);
        self.next_watch += 1;
        let mut response = Response::bytes(200, watch.content_type(), Vec::new());
        response.body = Body::Watch(id);
        self.watches.insert(id, watch);
        Ok(response)
    }

    fn remember(&mut self, now: Timestamp, request: &Request, code: u16) {
        if self.log.len() == REQUESTS_KEPT {
            self.log.pop_front();
        }
        self.log.push_back(LogEntry {
            time: now,
            method: request.method,
            target: request.target.clone(),
            user_agent: request.user_agent.clone(),
            code,
        });
    }
}
