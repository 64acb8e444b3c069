//! The daemon: its threads, and the one loop that changes the graph.
//!
//! ```text
//! watches ──Seen──▶ ┐
//! workers ─found──▶ ├─ event loop ─▶ State (graph) ─effects─▶ queues ─▶ workers ─▶ API server
//! discovery ──────▶ ┘
//! ```

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, at, bounded, never, select, tick};
use gc_builder::{Change, Finding, GraphBuilder, MonitorId, News, Options, Out, Poke, Seen};
use gc_client::{ApiResource, Client, Discovery, Error};
use gc_queue::Histogram;
use hashbrown::HashSet;
use log::{debug, error, info, warn};

use crate::discovery;
use crate::health::Health;
use crate::lag::WatchLag;
use crate::readers::{Changes, Readers, Received, display};
use crate::ttl::Controllers;
use crate::workers::{Shared, delete_worker, orphan_worker};

/// What watches have handed in and the graph has not taken yet, each a change or some objects of a list. It holds the
/// readers back when the graph is slower (S5); more would only be memory.
const CHANGES_MAX: usize = 128;
/// Pokes under way to discovery: one of each kind would do, and a few more keep one from hiding the other.
const POKES_MAX: usize = 8;
/// Findings under way from workers to the graph.
const FINDINGS_MAX: usize = 1_024;
/// Changes applied under one taking of the lock, so that workers get their turn between; what was handed in together is
/// not torn apart for it.
const CHANGES_AT_ONCE: usize = 128;
/// R6 gives 5 s in all: workers finish the request in hand within the first part, then connections are cut.
pub(crate) const WORKERS_STOP_WITHIN: Duration = Duration::from_secs(3);
/// Everything else has until then; the rest of the 5 s is for the process to end.
pub(crate) const STOP_WITHIN: Duration = Duration::from_millis(4_500);
/// The loop wakes at least this often, for its heartbeat and for what is due.
const TICK: Duration = Duration::from_secs(1);
/// An attempt needs little stack; 2,000 workers are allowed.
const WORKER_STACK_BYTES: usize = 512 << 10;

/// So many kinds are named in a line of the log; `/metrics` has all of them.
const NAMED_KINDS_MAX: usize = 20;

/// What the loop needs to know of the command line.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Workers for each of the two queues.
    pub concurrent_gc_syncs: usize,
    /// Resources that are left alone, as (group, resource).
    pub ignored: HashSet<(String, String)>,
}

/// Every reason why the loop ever does anything.
#[derive(Debug)]
enum Event {
    /// A watch saw something.
    Seen(Received),
    /// A worker found that nothing exists at a coordinate, or that nothing can.
    Found(Finding),
    /// Discovery has an answer.
    Discovered(Result<Discovery, Error>),
    /// Collection starts, whatever has been listed (S4).
    FirstListsDue,
    /// The heartbeat.
    Tick,
    /// A signal, or a test that has seen enough.
    Stop,
}

/// Runs until `stop` gets a message or is disconnected. The TTL controllers learn from this loop what is served.
pub fn run(
    settings: &Settings,
    shared: &Arc<Shared>,
    health: &Health,
    inputs: Inputs,
    ttl: Controllers,
    stop: &Receiver<()>,
) {
    let Inputs { changes_in, changes, findings, applied } = inputs;
    let (answers_in, answers) = bounded(1);
    let (pokes, poked) = bounded(POKES_MAX);
    let discovery = spawn_discovery(&shared.client, poked, answers_in);
    let options = Options { ignored: settings.ignored.clone(), ..Options::default() };
    let mut daemon = Loop {
        shared,
        health,
        builder: GraphBuilder::new(options),
        readers: Readers::new(shared.client.clone(), changes_in),
        pokes,
        workers: Vec::new(),
        concurrent_gc_syncs: settings.concurrent_gc_syncs,
        is_discovery_failing: false,
        due: (None, never()),
        complained_of: HashSet::new(),
        applied,
        ttl,
        out: Out::default(),
    };
    health.set_not_ready("waiting for discovery");
    let ticks = tick(TICK);
    loop {
        let event = select! {
            recv(stop) -> _ => Event::Stop,
            recv(ticks) -> _ => Event::Tick,
            recv(daemon.due.1) -> _ => Event::FirstListsDue,
            recv(answers) -> answer => answer.map_or(Event::Stop, Event::Discovered),
            recv(findings) -> finding => finding.map_or(Event::Stop, Event::Found),
            recv(changes) -> seen => seen.map_or(Event::Stop, Event::Seen),
        };
        // A controller whose loop is no more beats no more either: /livez fails, and whoever looks at it starts this
        // program anew.
        if daemon.ttl.are_alive() {
            health.beat(Instant::now());
        }
        match event {
            Event::Seen(seen) => daemon.seen(seen, &changes),
            Event::Found(finding) => daemon.found(&finding),
            Event::Discovered(answer) => daemon.discovered(answer),
            Event::FirstListsDue => daemon.first_lists_due(),
            Event::Tick => daemon.tick(),
            Event::Stop => break,
        }
        daemon.wait_for_what_is_due();
    }
    // Channels first: a thread that waits for the loop to take something sees that nobody does any more.
    drop((changes, answers, findings));
    daemon.stop(discovery);
}

/// The loop's ends of the channels, made before it so that metrics can show how full they are.
pub struct Inputs {
    /// To the loop.
    pub changes_in: Changes,
    /// From the watches.
    changes: Receiver<Received>,
    findings: Receiver<Finding>,
    /// The changes that have been applied to the graph.
    pub applied: Arc<Mutex<Applied>>,
}

/// The changes that have been applied to the graph, as a queue's metrics put it.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    /// How many.
    pub total: u64,
    /// How long each was on its way, from a reader that has decoded it to the graph.
    pub queue_duration: Histogram,
    /// How long the graph took for each.
    pub work_duration: Histogram,
}

impl Applied {
    /// So many changes that came together.
    fn note(&mut self, count: usize, waited: Duration, worked: Duration) {
        let each = worked / u32::try_from(count).unwrap_or(u32::MAX).max(1);
        let count = count as u64;
        self.queue_duration.observe(waited, count);
        self.work_duration.observe(each, count);
        self.total += count;
    }
}

/// The channels into the loop; the second is the workers' end for what they find.
pub fn inputs() -> (Inputs, Sender<Finding>) {
    let (sender, changes) = bounded(CHANGES_MAX);
    let changes_in = Changes { sender, total: Arc::default() };
    let (findings_in, findings) = bounded(FINDINGS_MAX);
    (Inputs { changes_in, changes, findings, applied: Arc::default() }, findings_in)
}

/// The state of the loop.
struct Loop<'a> {
    shared: &'a Arc<Shared>,
    health: &'a Health,
    builder: GraphBuilder,
    readers: Readers,
    pokes: Sender<Poke>,
    workers: Vec<JoinHandle<()>>,
    concurrent_gc_syncs: usize,
    /// The last look failed, and a warning said so.
    is_discovery_failing: bool,
    /// When the builder wants to be woken, and what wakes it.
    due: (Option<Duration>, Receiver<Instant>),
    /// Kinds that a warning has named and that have not been listed since. The end of a trouble is told like its
    /// beginning.
    complained_of: HashSet<String>,
    applied: Arc<Mutex<Applied>>,
    ttl: Controllers,
    /// Reused from event to event.
    out: Out,
}

impl Loop<'_> {
    /// Takes one change, and as many more as are ready, under one lock.
    fn seen(&mut self, first: Received, changes: &Receiver<Received>) {
        let now = self.shared.now();
        let mut state = self.shared.state();
        // A scrape waits for no more than these changes.
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        let mut last = Instant::now();
        let (mut next, mut taken) = (Some(first), 0);
        while let Some(received) = next {
            let count = received.count();
            let Received { at, monitor, change } = received;
            let waited = last.saturating_duration_since(at);
            note_deletion(&self.shared.metrics.watch_lag, &change, last);
            let seen = Seen { monitor, change };
            self.builder.seen(&mut state, now, self.shared.time(at), &seen, &mut self.out);
            let begun = std::mem::replace(&mut last, Instant::now());
            applied.note(count, waited, last.saturating_duration_since(begun));
            if let Change::Seen(objects) = seen.change {
                self.readers.take_back(objects);
            }
            taken += count;
            next = if taken < CHANGES_AT_ONCE { changes.try_recv().ok() } else { None };
        }
        drop(applied);
        if !self.builder.is_collecting() {
            // Before the lock is let go, so that no worker decides on what is void now (S7).
            self.shared.pause();
        }
        drop(state);
        self.carry_out();
    }

    fn found(&mut self, finding: &Finding) {
        debug!("{finding:?}");
        self.builder.found(&mut self.shared.state(), finding, &mut self.out);
        self.carry_out();
    }

    fn discovered(&mut self, answer: Result<Discovery, Error>) {
        let discovery = match answer {
            Ok(discovery) => discovery,
            Err(error) => {
                warn!("discovery failed, everything stays as it is: {error}{}", discovery::mend(&error));
                self.shared.metrics.resources_sync_error();
                self.is_discovery_failing = true;
                return;
            }
        };
        if std::mem::take(&mut self.is_discovery_failing) {
            info!("discovery works again");
        }
        for (group_version, why) in &discovery.failed {
            debug!("discovery of {group_version} failed, its watches stay as they are: {why}");
        }
        self.ttl.discovered(&discovery);
        let now = self.shared.now();
        self.builder.discovered(&mut self.shared.state(), now, &discovery, &mut self.out);
        self.carry_out();
    }

    fn first_lists_due(&mut self) {
        self.builder.first_lists_due(self.shared.now(), &mut self.out);
        self.carry_out();
    }

    /// What the builder wants done, and what it has to tell.
    fn carry_out(&mut self) {
        self.shared.apply(&mut self.out.effects);
        for news in std::mem::take(&mut self.out.news) {
            match news {
                News::Start(id, resource) => self.start(id, &resource),
                News::End(id, resource) => self.end(id, &resource),
                News::TooMany(resource) => {
                    warn!("{} is not watched: 65,536 resources are the limit", display(&resource));
                }
                // A full channel holds pokes enough.
                News::Poke(poke) => _ = self.pokes.try_send(poke),
                News::Listed(id, is_first) => self.listed(id, is_first),
                News::Failed(id, error, is_other) => self.failed(id, &error, is_other),
                News::VersionsGoBack(id) => self.versions_go_back(id),
                News::NothingServed => {
                    warn!("discovery names no resource at all, everything stays as it is");
                    self.shared.metrics.resources_sync_error();
                }
                News::Discovered => {
                    info!("{} resources are watched", self.builder.monitors().iter().count());
                    self.health.set_not_ready("waiting for the first lists");
                }
                News::HeldWhileLost => {
                    warn!("no API server answers: nothing is begun until the watches go on");
                    self.shared.pause();
                    self.health.set_not_ready("no API server answers");
                }
                News::HeldAfterRestore(resource, version) => {
                    let name = display(&resource);
                    warn!(
                        "{name} is at version {version}, older than before: the server's data was restored"
                    );
                    self.shared.pause();
                    self.health.set_not_ready("the server's data was restored: listing everything anew");
                }
                News::NothingListed(error) => {
                    warn!("nothing is collected, since no kind could be listed; trying on: {error}");
                    self.health.set_not_ready(&format!("no kind could be listed: {error}"));
                }
                News::Collecting(why) => self.start_workers(why),
            }
        }
    }

    /// Starts a watch, the first of its resource or another in its place; until it has listed, its kind counts as not
    /// listed. (Of thousands of kinds most stay as they are when discovery answers: nothing is done for each of them.)
    fn start(&mut self, id: MonitorId, resource: &ApiResource) {
        let name = display(resource);
        debug!("{name} is watched, as {}", resource.api_version());
        self.health.set_kind_listed(&name, false);
        self.shared.metrics.kind_synced(resource, false);
        if !self.readers.start(id, resource) {
            self.builder.could_not_start(id);
        }
    }

    fn end(&mut self, id: MonitorId, resource: &ApiResource) {
        let name = display(resource);
        info!("{name} is no longer served");
        self.readers.end(id);
        self.health.forget_kind(&name);
        self.shared.metrics.forget_kind(&name);
        self.complained_of.remove(&name);
    }

    fn wait_for_what_is_due(&mut self) {
        let due = self.builder.due();
        if self.due.0 != due {
            self.due = (due, due.map_or_else(never, |due| at(self.shared.instant(due))));
        }
    }

    /// Notes it, counts it, and says so in a warning where it is news.
    fn failed(&mut self, id: MonitorId, error: &Error, is_other: bool) {
        let Some(monitor) = self.builder.monitors().get(id) else { return };
        self.shared.metrics.watch_failed();
        let name = display(&monitor.resource);
        if is_other && !monitor.is_synced() {
            warn!("{name} cannot be listed, the others go on: {error}");
            self.complained_of.insert(name);
        } else {
            debug!("the watch of {name} failed and will be tried again: {error}");
        }
    }

    fn versions_go_back(&self, id: MonitorId) {
        let Some(monitor) = self.builder.monitors().get(id) else { return };
        let name = display(&monitor.resource);
        warn!("the versions of {name} keep going back: they are no longer taken for signs of a restore");
    }

    fn listed(&mut self, id: MonitorId, is_first: bool) {
        let Some(monitor) = self.builder.monitors().get(id) else { return };
        let name = display(&monitor.resource);
        if !is_first {
            debug!("{name} is listed again");
            return self.shared.metrics.watch_restarted();
        }
        match self.complained_of.take(&name) {
            Some(_) => info!("{name} is listed now"),
            None => debug!("{name} is listed"),
        }
        self.health.set_kind_listed(&name, true);
        self.shared.metrics.kind_synced(&monitor.resource, true);
    }

    /// S4.
    fn start_workers(&mut self, why: &str) {
        self.complain_of_missing();
        let missing = if self.workers.is_empty() { self.concurrent_gc_syncs } else { 0 };
        for i in 0..missing {
            self.spawn(format!("delete-{i}"), delete_worker);
            self.spawn(format!("orphan-{i}"), orphan_worker);
        }
        if self.workers.is_empty() {
            error!("no worker could be started; trying again");
            return self.builder.could_not_collect(self.shared.now());
        }
        let nodes = self.shared.state().graph().len();
        let resources = self.builder.monitors().iter().count();
        info!("collecting: {why}; {nodes} objects in {resources} resources");
        if self.builder.is_collecting() {
            self.shared.resume();
            self.health.set_ready();
        }
    }

    /// One line: each kind that fails has had its own, with the reason.
    fn complain_of_missing(&mut self) {
        let missing =
            self.builder.monitors().iter().filter(|monitor| !monitor.is_synced() || monitor.is_lost());
        let mut names: Vec<String> = missing.map(|monitor| display(&monitor.resource)).collect();
        if names.is_empty() {
            return;
        }
        names.iter().for_each(|_| self.shared.metrics.resources_sync_error());
        names.sort_unstable();
        let more = names.len().saturating_sub(NAMED_KINDS_MAX);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let named: Vec<&str> = names.iter().take(NAMED_KINDS_MAX).map(String::as_str).collect();
        warn!("collecting without {}{more}", named.join(", "));
        let unlisted = self.builder.monitors().iter().filter(|monitor| !monitor.is_synced());
        self.complained_of.extend(unlisted.map(|monitor| display(&monitor.resource)));
    }

    fn spawn(&mut self, name: String, body: fn(&Shared)) {
        let shared = Arc::clone(self.shared);
        let thread = std::thread::Builder::new().name(name).stack_size(WORKER_STACK_BYTES);
        match thread.spawn(move || body(&shared)) {
            Ok(thread) => self.workers.push(thread),
            Err(error) => warn!("one worker fewer: {error}"),
        }
    }

    fn tick(&mut self) {
        self.shared.metrics.watch_lag.tick(Instant::now());
        let unsynced = self.builder.monitors().iter().filter(|monitor| !monitor.is_synced()).count();
        if 0 < unsynced {
            debug!("{unsynced} resources are not listed yet");
        }
    }

    /// R6: workers finish the request in hand, readers are cut off, every thread is joined that ends in time.
    fn stop(self, discovery: Option<JoinHandle<()>>) {
        info!("stopping");
        self.health.set_not_ready("stopping");
        let start = Instant::now();
        self.shared.stop();
        let ttl = self.ttl.stop();
        let mut threads = self.workers;
        threads.extend(ttl.workers);
        wait_for(&threads, start + WORKERS_STOP_WITHIN);
        drop(self.pokes);
        self.shared.client.shut_down();
        threads.extend(discovery);
        threads.extend(self.readers.stop());
        threads.extend(ttl.others);
        join_within(threads, start + STOP_WITHIN);
    }
}

/// Joins those that have ended by the deadline.
pub(crate) fn join_within(threads: Vec<JoinHandle<()>>, deadline: Instant) {
    wait_for(&threads, deadline);
    let (ended, hanging): (Vec<_>, Vec<_>) = threads.into_iter().partition(JoinHandle::is_finished);
    for thread in ended {
        // A thread that panicked has said so.
        let _ = thread.join();
    }
    if !hanging.is_empty() {
        // A look-up of the server's name, say, cannot be interrupted. Nothing more is written by any of them.
        warn!("{} threads did not end in time and end with the process", hanging.len());
    }
}

/// What it shows of a delete of ours.
fn note_deletion(lag: &WatchLag, change: &Change, now: Instant) {
    match change {
        Change::Deleted(objects) => objects.for_each(|meta| lag.shown(meta.uid, now)),
        Change::Seen(objects) if objects.any_being_deleted() => objects.for_each(|meta| {
            if meta.being_deleted {
                lag.shown(meta.uid, now);
            }
        }),
        _ => {}
    }
}

pub(crate) fn wait_for(threads: &[JoinHandle<()>], deadline: Instant) {
    while threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < deadline {
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

pub(crate) fn spawn_discovery(
    client: &Client,
    pokes: Receiver<Poke>,
    answers: Sender<Result<Discovery, Error>>,
) -> Option<JoinHandle<()>> {
    let client = client.clone();
    let body = move || discovery::run(&client, &pokes, &answers);
    match std::thread::Builder::new().name("discovery".into()).spawn(body) {
        Ok(thread) => Some(thread),
        Err(error) => {
            error!("no discovery: cannot start a thread: {error}");
            None
        }
    }
}
