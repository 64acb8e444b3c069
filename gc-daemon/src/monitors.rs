//! One watch for each deletable resource (S1 to S5): which there are, which are synced, and their threads.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, Sender, bounded};
use gc_client::{ApiResource, Client, Discovery, Error, ObjectMeta, Reflector, ReflectorOptions, WatchEvent};
use gc_core::Kinds;
use gc_graph::SourceId;
use hashbrown::{HashMap, HashSet};
use log::{error, info, warn};

use crate::requests::core_resource;

/// A resource is given up only after it has been missing from discovery for this long and in more than one answer:
/// an API server that is starting serves custom resources a moment later than it serves discovery.
const MISSING_FOR: Duration = Duration::from_secs(3);
/// How often one resource's versions may go back before they are taken for versions that do not count upwards (those of
/// an aggregated server with a counter for each replica, say). Without this one such resource would hold up collection
/// and have everything listed anew again and again. The restore of a server shows on all of its resources.
const RESTORES_MAX: u32 = 3;
/// A watch that has lost its connection and then found none so often in a row has no server. Once is what a proxy does
/// to an idle connection, or a server to its clients when another takes over.
const LOST_MIN: u32 = 2;
/// A reader needs its decoder and a channel, no recursion: a small stack keeps hundreds of them cheap.
const STACK_BYTES: usize = 512 << 10;

/// What a watch saw.
#[derive(Debug)]
pub enum Change {
    /// A complete list begins; what it does not show until [`Change::ListDone`] is gone.
    ListStarted,
    /// An object, from a list or as added or modified.
    Seen(ObjectMeta),
    /// An object is gone.
    Deleted(ObjectMeta),
    /// The list is complete, at this version of the server's data.
    ListDone(String),
    /// Nothing else happened up to this version of the server's data.
    Bookmark(String),
    /// After an end or a failure the watch goes on: the server answers, and is not behind what it had shown.
    Resumed,
    /// List or watch failed and will be tried again.
    Failed(Error),
    /// The reader has ended by a fault of its own; nothing more comes from it.
    Died,
}

impl Change {
    /// At which version of the server's data an event or a bookmark was.
    pub fn version(&self) -> Option<&str> {
        match self {
            Change::Seen(meta) | Change::Deleted(meta) => Some(&meta.resource_version),
            Change::Bookmark(version) => Some(version),
            Change::ListStarted
            | Change::ListDone(_)
            | Change::Resumed
            | Change::Failed(_)
            | Change::Died => None,
        }
    }
}

/// A change and the watch that saw it.
#[derive(Debug)]
pub struct Seen {
    /// Which run of which watch: what a watch that was ended has still under way no longer counts.
    pub monitor: MonitorId,
    /// What it saw.
    pub change: Change,
}

/// One run of one watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorId {
    /// How the graph knows the watch.
    pub source: SourceId,
    run: u64,
}

/// One watched resource.
#[derive(Debug)]
pub struct Monitor {
    /// What is watched.
    pub resource: ApiResource,
    /// How the resource writes itself in references.
    pub api_version: String,
    id: MonitorId,
    is_synced: bool,
    last_error: Option<String>,
    /// The newest version of the server's data that a list, an event or a bookmark has shown.
    version: u64,
    /// How often a list was older than that.
    restores: u32,
    /// How often in a row no server answered.
    lost: u32,
    missing_since: Option<Instant>,
    /// The server answered that the path is not served. When discovery says that it is, a fresh reader starts at once
    /// instead of waiting out the old one's back-off.
    is_unserved: bool,
    /// Never sent on: dropping it is what ends the reader.
    _stop: Sender<()>,
}

/// All of them. The event loop owns this; no lock.
#[derive(Debug)]
pub struct Monitors {
    client: Client,
    changes: Sender<Seen>,
    ignored: HashSet<(String, String)>,
    by_name: HashMap<(String, String), Monitor>,
    by_source: HashMap<u16, (String, String)>,
    /// What discovery last said of each group and version, kept where it fails.
    kinds: HashMap<String, Vec<ApiResource>>,
    free_sources: Vec<u16>,
    next_source: u16,
    runs: u64,
    seed: u64,
    is_newly_lost: bool,
    threads: Vec<JoinHandle<()>>,
}

/// What a complete list says besides its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// The first list of this watch.
    First,
    /// A later one, after a 410 or a lost connection.
    Again,
    /// The server's data is older than what it showed before: it was restored from a backup (S7).
    WentBack,
}

/// What a discovery answer changed.
#[derive(Debug, Default)]
pub struct Updated {
    /// The kinds as they are now.
    pub kinds: Kinds,
    /// Watches that are no more; their objects are not proved to be gone (S2).
    pub unserved: Vec<SourceId>,
    /// Whether a resource is missing and not given up yet: look again soon.
    pub look_again: bool,
}

impl Monitors {
    /// No watch yet. `ignored` holds (group, resource) pairs.
    pub fn new(client: Client, changes: Sender<Seen>, ignored: HashSet<(String, String)>) -> Monitors {
        Monitors {
            client,
            changes,
            ignored,
            by_name: HashMap::new(),
            by_source: HashMap::new(),
            kinds: HashMap::new(),
            free_sources: Vec::new(),
            next_source: 0,
            runs: 0,
            seed: seed(),
            is_newly_lost: false,
            threads: Vec::new(),
        }
    }

    /// The watch with this id, unless it has been ended.
    pub fn get(&self, id: MonitorId) -> Option<&Monitor> {
        self.by_name.get(self.by_source.get(&id.source.0)?).filter(|monitor| monitor.id == id)
    }

    /// All watched resources, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Monitor> {
        self.by_name.values()
    }

    /// Notes that a list is complete at a version of the server's data.
    pub fn listed(&mut self, id: MonitorId, version: &str) -> Listed {
        let Some(monitor) = self.get_mut(id) else { return Listed::Again };
        monitor.last_error = None;
        monitor.lost = 0;
        monitor.is_unserved = false;
        let version = parse_version(version).unwrap_or(monitor.version);
        let mut went_back = version < std::mem::replace(&mut monitor.version, version);
        if went_back {
            monitor.restores += 1;
            went_back = monitor.restores <= RESTORES_MAX;
            if monitor.restores == RESTORES_MAX + 1 {
                let name = display(&monitor.resource);
                warn!(
                    "the versions of {name} keep going back: they are no longer taken for signs of a restore"
                );
            }
        }
        let is_first = !std::mem::replace(&mut monitor.is_synced, true);
        match (went_back, is_first) {
            (true, _) => Listed::WentBack,
            (false, true) => Listed::First,
            (false, false) => Listed::Again,
        }
    }

    /// Notes at which version of the server's data an event or a bookmark was. The list after it may be newer than the
    /// list before and still older than this: then the server has gone back.
    pub fn saw(&mut self, id: MonitorId, version: &str) {
        if let (Some(monitor), Some(version)) = (self.get_mut(id), parse_version(version)) {
            monitor.version = monitor.version.max(version);
        }
    }

    /// Notes that a watch goes on after it had failed.
    pub fn resumed(&mut self, id: MonitorId) {
        if let Some(monitor) = self.get_mut(id) {
            monitor.lost = 0;
        }
    }

    /// Whether a watch has lost its server since this was last asked. One that never finds it again is told once only,
    /// so that it does not hold the others up again and again (S3).
    pub fn take_newly_lost(&mut self) -> bool {
        std::mem::take(&mut self.is_newly_lost)
    }

    /// Whether no watch that ever had a server has one now.
    pub fn are_all_lost(&self) -> bool {
        let mut synced = self.iter().filter(|monitor| monitor.is_synced).peekable();
        synced.peek().is_some() && synced.all(Monitor::is_lost)
    }

    /// Begins every watch anew (S7): what they have seen may not be true of the server any more.
    pub fn restart_all(&mut self) {
        let resources: Vec<ApiResource> =
            self.by_name.values().map(|monitor| monitor.resource.clone()).collect();
        for resource in resources {
            self.start(resource, true);
        }
    }

    /// Notes that a list or watch failed; says whether this is news worth a line in the log.
    pub fn failed(&mut self, id: MonitorId, error: &Error) -> bool {
        let mut is_newly_lost = false;
        let Some(monitor) = self.get_mut(id) else { return false };
        if matches!(error, Error::Transport { .. }) {
            monitor.lost = monitor.lost.saturating_add(1);
            is_newly_lost = monitor.is_synced && monitor.lost == LOST_MIN;
        }
        let is_unserved = matches!(error, Error::Status(status) if status.code == 404 && !status.is_status);
        let error = error.to_string();
        let is_news = monitor.last_error.as_ref() != Some(&error);
        monitor.last_error = Some(error);
        monitor.is_unserved = is_unserved;
        self.is_newly_lost |= is_newly_lost;
        is_news
    }

    /// Notes that a reader has ended by a fault: the next discovery answer starts another one, not sooner, so that a
    /// fault that repeats itself does no harm.
    pub fn died(&mut self, id: MonitorId) {
        if let Some(monitor) = self.get_mut(id) {
            monitor.is_unserved = true;
        }
    }

    /// Takes a discovery answer (S1 to S3): starts, restarts and ends watches.
    pub fn update(&mut self, discovery: &Discovery, now: Instant) -> Updated {
        let failed: HashSet<&str> =
            discovery.failed.iter().map(|(group_version, _)| group_version.as_str()).collect();
        let mut updated = Updated::default();
        if discovery.resources.is_empty() {
            // An empty answer changes nothing (kubernetes/kubernetes#60037).
            updated.kinds = self.all_kinds();
            return updated;
        }
        self.take_kinds(discovery, &failed);
        updated.kinds = self.all_kinds();
        let wanted: Vec<ApiResource> =
            discovery.resources.iter().filter(|r| self.is_wanted(r)).cloned().collect();
        let names: HashSet<(String, String)> =
            wanted.iter().map(|r| (r.group.clone(), r.resource.clone())).collect();
        self.end_missing(&names, &failed, now, &mut updated);
        for resource in wanted {
            // While the better version's discovery fails, another one stands in for it; the watch stays as it is.
            let name = (resource.group.clone(), resource.resource.clone());
            if !self.by_name.get(&name).is_some_and(|monitor| is_failed(&failed, &monitor.api_version)) {
                self.start(resource, false);
            }
        }
        self.threads.retain(|thread| !thread.is_finished());
        updated
    }

    /// Ends every watch. Its threads end once the client is shut down; without that, as late as a read's time-out.
    pub fn stop(self) -> Vec<JoinHandle<()>> {
        self.threads
    }

    fn get_mut(&mut self, id: MonitorId) -> Option<&mut Monitor> {
        self.by_name.get_mut(self.by_source.get(&id.source.0)?).filter(|monitor| monitor.id == id)
    }

    fn is_wanted(&self, resource: &ApiResource) -> bool {
        resource.preferred
            && resource.can_delete
            && resource.can_list
            && resource.can_watch
            && !self.ignored.contains(&(resource.group.clone(), resource.resource.clone()))
    }

    /// A group whose discovery fails keeps the kinds that it had (S3).
    fn take_kinds(&mut self, discovery: &Discovery, failed: &HashSet<&str>) {
        self.kinds.retain(|group_version, _| is_failed(failed, group_version));
        for resource in &discovery.resources {
            self.kinds.entry(resource.api_version()).or_default().retain(|r| r.resource != resource.resource);
            self.kinds.entry(resource.api_version()).or_default().push(resource.clone());
        }
    }

    fn all_kinds(&self) -> Kinds {
        Kinds::new(self.kinds.values().flatten().map(core_resource))
    }

    fn end_missing(
        &mut self,
        names: &HashSet<(String, String)>,
        failed: &HashSet<&str>,
        now: Instant,
        updated: &mut Updated,
    ) {
        let mut gone = Vec::new();
        for (name, monitor) in &mut self.by_name {
            if names.contains(name) || is_failed(failed, &monitor.api_version) {
                // Back after it was missing: its reader has been told that the path is not served.
                monitor.is_unserved |= monitor.missing_since.take().is_some();
                continue;
            }
            match monitor.missing_since {
                Some(since) if MISSING_FOR <= now.saturating_duration_since(since) => gone.push(name.clone()),
                Some(_) => updated.look_again = true,
                None => {
                    monitor.missing_since = Some(now);
                    updated.look_again = true;
                }
            }
        }
        for name in gone {
            if let Some(monitor) = self.by_name.remove(&name) {
                info!("{} is no longer served", display(&monitor.resource));
                self.by_source.remove(&monitor.id.source.0);
                self.free_sources.push(monitor.id.source.0);
                updated.unserved.push(monitor.id.source);
            }
        }
    }

    /// Starts a watch, or replaces its reader where there is a reason to.
    fn start(&mut self, resource: ApiResource, anew: bool) {
        let name = (resource.group.clone(), resource.resource.clone());
        let (mut version, mut restores) = (0, 0);
        let source = match self.by_name.get(&name) {
            Some(monitor) if monitor.resource == resource && !monitor.is_unserved && !anew => return,
            // Also when the preferred version moved (G5b). The new reader's first list sweeps what the old one had.
            Some(monitor) => {
                version = if anew { 0 } else { monitor.version };
                restores = monitor.restores;
                monitor.id.source
            }
            None => match self.free_source() {
                Some(source) => source,
                None => {
                    warn!("{} is not watched: 65,536 resources are the limit", display(&resource));
                    return;
                }
            },
        };
        self.runs += 1;
        let id = MonitorId { source, run: self.runs };
        let (stop, stopped) = bounded(0);
        let Some(thread) = self.spawn_reader(&resource, id, stopped) else {
            match self.by_name.get_mut(&name) {
                // The source is not free: the graph still holds what it showed. Discovery's next answer tries again.
                Some(monitor) => monitor.is_unserved = true,
                None => self.free_sources.push(source.0),
            }
            return;
        };
        self.threads.push(thread);
        self.by_source.insert(source.0, name.clone());
        let api_version = resource.api_version();
        let monitor = Monitor {
            resource,
            api_version,
            id,
            is_synced: false,
            last_error: None,
            lost: 0,
            version,
            restores,
            missing_since: None,
            is_unserved: false,
            _stop: stop,
        };
        self.by_name.insert(name, monitor);
    }

    fn free_source(&mut self) -> Option<SourceId> {
        if let Some(source) = self.free_sources.pop() {
            return Some(SourceId(source));
        }
        let source = self.next_source;
        self.next_source = source.checked_add(1)?;
        Some(SourceId(source))
    }

    fn spawn_reader(
        &self,
        resource: &ApiResource,
        id: MonitorId,
        stopped: Receiver<()>,
    ) -> Option<JoinHandle<()>> {
        // Two replicas, or one that restarts, must not fall into step with each other.
        let seed = self.seed ^ self.runs;
        let options = ReflectorOptions { seed, ..ReflectorOptions::default() };
        let reflector = Reflector::new(self.client.clone(), resource.clone(), options);
        let changes = self.changes.clone();
        let reader = move || {
            let run = || reflector.run(&stopped, &mut |event| forward(&changes, id, &event));
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                // Unsaid, the resource would count as watched for ever.
                error!("a fault in this program: a watch panicked");
                let _ = changes.send(Seen { monitor: id, change: Change::Died });
            }
        };
        let name = format!("watch-{}", resource.resource);
        match std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(reader) {
            Ok(thread) => Some(thread),
            Err(error) => {
                // Discovery is looked at again within 30 s, and then this is tried again.
                warn!("{} is not watched: cannot start a thread: {error}", display(resource));
                None
            }
        }
    }
}

impl Monitor {
    /// Whether its first list is complete.
    pub fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// Whether it was listed once and finds no server now. Its state is what it was, unless the server comes back with
    /// another one (S7).
    pub fn is_lost(&self) -> bool {
        self.is_synced && LOST_MIN <= self.lost
    }

    /// What went wrong last, if nothing has gone well since.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Whether its changes are news about which resources are served (S2).
    pub fn defines_resources(&self) -> bool {
        let ApiResource { group, resource, .. } = &self.resource;
        matches!(
            (group.as_str(), resource.as_str()),
            ("apiextensions.k8s.io", "customresourcedefinitions") | ("apiregistration.k8s.io", "apiservices")
        )
    }
}

/// `resource.group`, as `--gc-ignored-resources` takes it.
pub fn display(resource: &ApiResource) -> String {
    if resource.group.is_empty() {
        resource.resource.clone()
    } else {
        format!("{}.{}", resource.resource, resource.group)
    }
}

/// Versions are opaque to clients but for one purpose, to see which is older: kube-apiserver's count upwards (KEP-5504).
fn parse_version(version: &str) -> Option<u64> {
    version.parse().ok()
}

/// Differs from process to process and from start to start.
fn seed() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (u64::from(std::process::id()) << 32) ^ since_epoch.as_micros() as u64
}

/// `failed` holds groups with a version, or a group alone when not even its versions are known.
fn is_failed(failed: &HashSet<&str>, api_version: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    failed.contains(api_version)
        || failed.iter().any(|failed| {
            // A failed group keeps all its watches, whichever of its versions failed.
            match failed.split_once('/') {
                Some((failed_group, _)) => failed_group == group,
                None => !group.is_empty() && *failed == group,
            }
        })
}

/// Blocks while the channel is full: that is what holds a fast server back (S5).
fn forward(changes: &Sender<Seen>, monitor: MonitorId, event: &WatchEvent<'_>) -> ControlFlow<()> {
    let change = match event {
        WatchEvent::ListStarted => Change::ListStarted,
        WatchEvent::Listed(meta) | WatchEvent::Applied(meta) => Change::Seen(meta.to_owned()),
        WatchEvent::Deleted(meta) => Change::Deleted(meta.to_owned()),
        WatchEvent::ListDone { resource_version } => Change::ListDone((*resource_version).to_owned()),
        WatchEvent::Bookmark { resource_version } => Change::Bookmark((*resource_version).to_owned()),
        WatchEvent::Resumed => Change::Resumed,
        WatchEvent::Failed(error) => Change::Failed((*error).clone()),
    };
    match changes.send(Seen { monitor, change }) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gc_client::{Config, Options};

    /// One watched resource of a server that nobody serves, and the discovery answer that names it.
    fn one_watch() -> (Monitors, Discovery, Receiver<Seen>) {
        // Port 9 of the loopback refuses; what its reader says of that is in nobody's way.
        let client = Client::new(&Config::plain("http://127.0.0.1:9"), &Options::default()).unwrap();
        let (changes_in, changes) = bounded(64);
        let mut monitors = Monitors::new(client, changes_in, HashSet::new());
        let widgets = ApiResource {
            group: "example.com".into(),
            version: "v1".into(),
            resource: "widgets".into(),
            kind: "Widget".into(),
            namespaced: true,
            preferred: true,
            can_delete: true,
            can_list: true,
            can_watch: true,
        };
        let discovery = Discovery { resources: vec![widgets], ..Discovery::default() };
        monitors.update(&discovery, Instant::now());
        (monitors, discovery, changes)
    }

    fn id(monitors: &Monitors) -> MonitorId {
        monitors.iter().next().map(|monitor| monitor.id).unwrap()
    }

    #[test]
    fn s3_s7_versions_that_keep_going_back_are_no_sign_of_a_restore() {
        let (mut monitors, _, _changes) = one_watch();
        let mut restores = 0;
        for _ in 0..10 {
            monitors.listed(id(&monitors), "20");
            if monitors.listed(id(&monitors), "10") == Listed::WentBack {
                restores += 1;
                monitors.restart_all();
            }
        }
        assert_eq!(restores, RESTORES_MAX);
    }

    #[test]
    fn s7_a_list_that_is_older_than_an_event_before_it_is_a_restore() {
        let (mut monitors, _, _changes) = one_watch();
        let id = id(&monitors);
        assert_eq!(monitors.listed(id, "10"), Listed::First);
        monitors.saw(id, "20");
        monitors.saw(id, "19");
        monitors.saw(id, "not a number");
        assert_eq!(monitors.listed(id, "20"), Listed::Again);
        monitors.saw(id, "30");
        assert_eq!(monitors.listed(id, "25"), Listed::WentBack);
        assert_eq!(monitors.listed(id, "25"), Listed::Again);
    }

    #[test]
    fn s7_a_watch_is_lost_when_it_was_listed_and_finds_no_server_twice() {
        let (mut monitors, _, _changes) = one_watch();
        let id = id(&monitors);
        let refused = Error::Transport { request: "GET /".into(), cause: "refused".into() };
        monitors.failed(id, &refused);
        monitors.failed(id, &refused);
        assert!(!monitors.are_all_lost(), "it has never been listed");
        monitors.listed(id, "5");
        for is_lost in [false, true, true] {
            monitors.failed(id, &refused);
            assert_eq!(monitors.are_all_lost(), is_lost);
        }
        assert!(monitors.take_newly_lost());
        monitors.failed(id, &refused);
        assert!(!monitors.take_newly_lost(), "told once");
        monitors.resumed(id);
        assert!(!monitors.are_all_lost());
    }

    #[test]
    fn s3_a_reader_that_died_is_replaced_at_the_next_look() {
        let (mut monitors, discovery, _changes) = one_watch();
        let first = id(&monitors);
        monitors.update(&discovery, Instant::now());
        assert_eq!(id(&monitors), first, "a reader that lives is left alone");
        monitors.died(first);
        monitors.update(&discovery, Instant::now());
        assert_ne!(id(&monitors), first);
        assert!(monitors.get(first).is_none());
    }
}
