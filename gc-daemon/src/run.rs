//! The daemon: its threads, and the one loop that changes the graph.
//!
//! ```text
//! watches ──Seen──▶ ┐
//! workers ─found──▶ ├─ event loop ─▶ State (graph) ─effects─▶ queues ─▶ workers ─▶ API server
//! discovery ──────▶ ┘
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, after, bounded, never, select, tick};
use gc_client::{ApiResource, Client, Discovery, Error, ObjectMeta};
use gc_core::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER};
use gc_graph::{Effect, Observation, OwnerReferenceRef, SourceId};
use hashbrown::HashSet;
use log::{debug, error, info, warn};

use crate::discovery::{self, Poke};
use crate::health::Health;
use crate::metrics::Metrics;
use crate::monitors::{Change, Listed, Monitor, MonitorId, Monitors, Seen, display};
use crate::workers::{Fact, Finding, Shared, delete_worker, orphan_worker};

/// Changes under way from watches to the graph. It holds the readers back when the graph is slower (S5); more would
/// only be memory.
const CHANGES_MAX: usize = 1_024;
/// Pokes under way to discovery: one of each kind would do, and a few more keep one from hiding the other.
const POKES_MAX: usize = 8;
/// Findings under way from workers to the graph.
const FINDINGS_MAX: usize = 1_024;
/// Changes applied under one taking of the lock, so that workers get their turn between.
const CHANGES_AT_ONCE: usize = 128;
/// Collection starts with what is listed by then (S4).
const FIRST_LISTS_WITHIN: Duration = Duration::from_secs(30);
/// R6 gives 5 s in all: workers finish the request in hand within the first part, then connections are cut.
const WORKERS_STOP_WITHIN: Duration = Duration::from_secs(3);
/// Everything else has until then; the rest of the 5 s is for the process to end.
const STOP_WITHIN: Duration = Duration::from_millis(4_500);
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
    Seen(Seen),
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

/// Runs until `stop` gets a message or is disconnected.
pub fn run(settings: &Settings, shared: &Arc<Shared>, health: &Health, inputs: Inputs, stop: &Receiver<()>) {
    let Inputs { changes_in, changes, findings, applied } = inputs;
    let (answers_in, answers) = bounded(1);
    let (pokes, poked) = bounded(POKES_MAX);
    let discovery = spawn_discovery(&shared.client, poked, answers_in);
    let monitors = Monitors::new(shared.client.clone(), changes_in, settings.ignored.clone());
    let mut daemon = Loop {
        shared,
        health,
        monitors,
        pokes,
        workers: Vec::new(),
        concurrent_gc_syncs: settings.concurrent_gc_syncs,
        is_discovered: false,
        is_discovery_failing: false,
        is_restored: false,
        first_lists_due: never(),
        complained_of: HashSet::new(),
        applied,
        effects: Vec::new(),
    };
    health.set_not_ready("waiting for discovery");
    let ticks = tick(TICK);
    loop {
        let event = select! {
            recv(stop) -> _ => Event::Stop,
            recv(ticks) -> _ => Event::Tick,
            recv(daemon.first_lists_due) -> _ => Event::FirstListsDue,
            recv(answers) -> answer => answer.map_or(Event::Stop, Event::Discovered),
            recv(findings) -> finding => finding.map_or(Event::Stop, Event::Found),
            recv(changes) -> seen => seen.map_or(Event::Stop, Event::Seen),
        };
        health.beat(Instant::now());
        match event {
            Event::Seen(seen) => daemon.seen(seen, &changes),
            Event::Found(finding) => daemon.found(&finding),
            Event::Discovered(answer) => daemon.discovered(answer),
            Event::FirstListsDue => daemon.first_lists_due(),
            Event::Tick => daemon.tick(),
            Event::Stop => break,
        }
    }
    // Channels first: a thread that waits for the loop to take something sees that nobody does any more.
    drop((changes, answers, findings));
    daemon.stop(discovery);
}

/// The loop's ends of the channels, made before it so that metrics can show how full they are.
pub struct Inputs {
    changes_in: Sender<Seen>,
    /// From the watches.
    pub changes: Receiver<Seen>,
    findings: Receiver<Finding>,
    /// How many changes have been applied to the graph.
    pub applied: Arc<AtomicU64>,
}

/// The channels into the loop; the second is the workers' end for what they find.
pub fn inputs() -> (Inputs, Sender<Finding>) {
    let (changes_in, changes) = bounded(CHANGES_MAX);
    let (findings_in, findings) = bounded(FINDINGS_MAX);
    (Inputs { changes_in, changes, findings, applied: Arc::default() }, findings_in)
}

/// The state of the loop.
struct Loop<'a> {
    shared: &'a Arc<Shared>,
    health: &'a Health,
    monitors: Monitors,
    pokes: Sender<Poke>,
    workers: Vec<JoinHandle<()>>,
    concurrent_gc_syncs: usize,
    is_discovered: bool,
    /// The last look failed, and a warning said so.
    is_discovery_failing: bool,
    /// The server's data was restored and not everything has been listed anew.
    is_restored: bool,
    first_lists_due: Receiver<Instant>,
    /// Kinds that a warning has named and that have not been listed since. The end of a trouble is told like its
    /// beginning.
    complained_of: HashSet<String>,
    applied: Arc<AtomicU64>,
    /// Reused from event to event.
    effects: Vec<Effect>,
}

impl Loop<'_> {
    /// Takes one change, and as many more as are ready, under one lock.
    fn seen(&mut self, first: Seen, changes: &Receiver<Seen>) {
        let were_all_lost = self.monitors.are_all_lost();
        let mut listed = Vec::new();
        let mut state = self.shared.state();
        let more = changes.try_iter().take(CHANGES_AT_ONCE - 1);
        for Seen { monitor, change } in std::iter::once(first).chain(more) {
            self.applied.fetch_add(1, Ordering::Relaxed);
            if let Some(version) = change.version() {
                self.monitors.saw(monitor, version);
            }
            // What an ended watch still had under way is void: its objects may be unserved by now.
            let Some(watched) = self.monitors.get(monitor) else { continue };
            if watched.defines_resources() && matches!(change, Change::Seen(_) | Change::Deleted(_)) {
                // A full channel holds pokes enough.
                let _ = self.pokes.try_send(Poke::Changed);
            }
            let kind = Kind {
                source: monitor.source,
                api_version: &watched.api_version,
                kind: &watched.resource.kind,
            };
            match change {
                Change::ListStarted => state.begin_list(monitor.source),
                Change::Seen(meta) => kind.observe(&meta, |seen| state.observe(seen, &mut self.effects)),
                Change::Deleted(meta) => kind.observe(&meta, |seen| state.delete(seen, &mut self.effects)),
                Change::ListDone(version) => {
                    state.end_list(monitor.source, &mut self.effects);
                    let how = self.monitors.listed(monitor, &version);
                    if how == Listed::WentBack {
                        // Before the lock is let go, so that no worker decides on what is void now (S7).
                        self.shared.pause();
                        state.forget_proofs(&mut self.effects);
                    }
                    listed.push((monitor, version, how));
                }
                Change::Bookmark(_) => {}
                Change::Resumed => self.monitors.resumed(monitor),
                Change::Died => self.monitors.died(monitor),
                Change::Failed(error) => {
                    let told = watch_failed(&mut self.monitors, &self.shared.metrics, monitor, &error);
                    self.complained_of.extend(told);
                }
            }
        }
        drop(state);
        self.shared.apply(&mut self.effects);
        for (monitor, version, how) in listed {
            self.listed(monitor, &version, how);
        }
        self.hold_while_lost(were_all_lost);
    }

    /// S7: a server that was away may come back in an older state, and workers would find it before the watches do.
    /// Until the watches have looked, or time is up, nothing is begun.
    fn hold_while_lost(&mut self, were_all_lost: bool) {
        let is_newly_lost = self.monitors.take_newly_lost();
        if self.shared.is_paused() {
            if were_all_lost && !self.monitors.are_all_lost() {
                // It is back. The other watches find it within the longest back-off, which is as long as this.
                self.first_lists_due = after(FIRST_LISTS_WITHIN);
            }
            self.start_workers_if_all_listed();
        } else if is_newly_lost && !self.workers.is_empty() {
            warn!("no API server answers: nothing is begun until the watches go on");
            self.shared.pause();
            self.health.set_not_ready("no API server answers");
            self.first_lists_due = after(FIRST_LISTS_WITHIN);
        }
    }

    fn listed(&mut self, id: MonitorId, version: &str, how: Listed) {
        let Some(monitor) = self.monitors.get(id) else { return };
        let name = display(&monitor.resource);
        match how {
            Listed::First => {
                match self.complained_of.take(&name) {
                    Some(_) => info!("{name} is listed now"),
                    None => debug!("{name} is listed"),
                }
                self.health.set_kind_listed(&name, true);
                self.shared.metrics.kind_synced(&monitor.resource, true);
                self.start_workers_if_all_listed();
            }
            Listed::Again => {
                debug!("{name} is listed again");
                self.shared.metrics.watch_restarted();
            }
            Listed::WentBack => {
                warn!(
                    "{name} was listed at version {version}, older than before: the server's data was restored"
                );
                self.start_again();
            }
        }
    }

    /// S7: nothing that was seen absent is believed any more and attempts under way are void ([`Loop::seen`] has seen to
    /// that); nothing is begun until everything has been listed anew.
    fn start_again(&mut self) {
        self.is_restored = true;
        self.monitors.restart_all();
        self.health.set_not_ready("the server's data was restored: listing everything anew");
        self.first_lists_due = after(FIRST_LISTS_WITHIN);
    }

    fn found(&mut self, finding: &Finding) {
        debug!("{finding:?}");
        let mut state = self.shared.state();
        match &finding.fact {
            Fact::Absent(coordinate) | Fact::Impossible(coordinate) if finding.era != state.era() => {
                self.effects.push(Effect::AttemptToDelete(coordinate.uid.clone()));
            }
            Fact::Absent(coordinate) => state.virtual_delete(coordinate, &mut self.effects),
            Fact::Impossible(coordinate) => state.reconsider(coordinate, &mut self.effects),
        }
        drop(state);
        self.shared.apply(&mut self.effects);
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
        if discovery.resources.is_empty() {
            warn!("discovery names no resource at all, everything stays as it is");
            self.shared.metrics.resources_sync_error();
            return;
        }
        let before: Vec<ApiResource> = self.monitors.iter().map(|m| m.resource.clone()).collect();
        let updated = self.monitors.update(&discovery, Instant::now());
        self.show_kinds(&before);
        let mut state = self.shared.state();
        for source in updated.unserved {
            state.unserve(source, &mut self.effects);
        }
        state.set_kinds(updated.kinds, &mut self.effects);
        drop(state);
        self.shared.apply(&mut self.effects);
        if updated.look_again {
            let _ = self.pokes.try_send(Poke::Missing);
        }
        if !self.is_discovered {
            self.is_discovered = true;
            info!("{} resources are watched", self.monitors.iter().count());
            self.health.set_not_ready("waiting for the first lists");
            self.first_lists_due = after(FIRST_LISTS_WITHIN);
        }
        self.start_workers_if_all_listed();
    }

    /// Brings health, metrics and log up to the watches that there are.
    fn show_kinds(&mut self, before: &[ApiResource]) {
        for monitor in self.monitors.iter() {
            let name = display(&monitor.resource);
            if !before.contains(&monitor.resource) {
                debug!("{name} is watched, as {}", monitor.api_version);
            }
            self.health.set_kind_listed(&name, monitor.is_synced());
            self.shared.metrics.kind_synced(&monitor.resource, monitor.is_synced());
        }
        for name in before.iter().map(display) {
            if self.monitors.iter().all(|monitor| display(&monitor.resource) != name) {
                self.health.forget_kind(&name);
                self.shared.metrics.forget_kind(&name);
                self.complained_of.remove(&name);
            }
        }
    }

    fn first_lists_due(&mut self) {
        if self.monitors.are_all_lost() {
            // Workers would find no server either.
            self.first_lists_due = after(FIRST_LISTS_WITHIN);
        } else if self.monitors.iter().all(|monitor| !monitor.is_synced()) {
            // There is nothing to collect. Who waits for readiness would believe otherwise.
            let errors = self.monitors.iter().filter_map(Monitor::last_error);
            let error = errors.min().unwrap_or("no list has ended").to_owned();
            warn!("nothing is collected, since no kind could be listed; trying on: {error}");
            self.health.set_not_ready(&format!("no kind could be listed: {error}"));
            self.first_lists_due = after(FIRST_LISTS_WITHIN);
        } else {
            self.start_workers("not everything is listed, but 30 s have passed");
        }
    }

    fn start_workers_if_all_listed(&mut self) {
        let needs_all = self.workers.is_empty() || self.is_restored;
        let is_listed = |monitor: &Monitor| (monitor.is_synced() || !needs_all) && !monitor.is_lost();
        let is_waiting = needs_all || self.shared.is_paused();
        if is_waiting && self.is_discovered && self.monitors.iter().all(is_listed) {
            self.start_workers(if needs_all { "everything is listed" } else { "the watches go on" });
        }
    }

    /// S4.
    fn start_workers(&mut self, why: &str) {
        self.first_lists_due = never();
        self.is_restored = false;
        self.complain_of_missing();
        let missing = if self.workers.is_empty() { self.concurrent_gc_syncs } else { 0 };
        for i in 0..missing {
            self.spawn(format!("delete-{i}"), delete_worker);
            self.spawn(format!("orphan-{i}"), orphan_worker);
        }
        if self.workers.is_empty() {
            error!("no worker could be started; trying again");
            self.first_lists_due = after(TICK);
            return;
        }
        let nodes = self.shared.state().graph().len();
        info!("collecting: {why}; {nodes} objects in {} resources", self.monitors.iter().count());
        self.shared.resume();
        self.health.set_ready();
    }

    /// One line: each kind that fails has had its own, with the reason.
    fn complain_of_missing(&mut self) {
        let missing = self.monitors.iter().filter(|monitor| !monitor.is_synced() || monitor.is_lost());
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
        let is_unlisted =
            |name: &String| self.monitors.iter().any(|m| !m.is_synced() && display(&m.resource) == *name);
        let unlisted: Vec<String> = names.into_iter().filter(is_unlisted).collect();
        self.complained_of.extend(unlisted);
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
        let unsynced = self.monitors.iter().filter(|monitor| !monitor.is_synced()).count();
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
        wait_for(&self.workers, start + WORKERS_STOP_WITHIN);
        drop(self.pokes);
        self.shared.client.shut_down();
        let mut threads = self.workers;
        threads.extend(discovery);
        threads.extend(self.monitors.stop());
        wait_for(&threads, start + STOP_WITHIN);
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
}

fn wait_for(threads: &[JoinHandle<()>], deadline: Instant) {
    while threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < deadline {
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Notes it, counts it, and gives the kind's name if it said so in a warning.
fn watch_failed(monitors: &mut Monitors, metrics: &Metrics, id: MonitorId, error: &Error) -> Option<String> {
    let is_news = monitors.failed(id, error);
    let monitor = monitors.get(id)?;
    metrics.watch_failed();
    let name = display(&monitor.resource);
    if is_news && !monitor.is_synced() {
        warn!("{name} cannot be listed, the others go on: {error}");
        return Some(name);
    }
    debug!("the watch of {name} failed and will be tried again: {error}");
    None
}

fn spawn_discovery(
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

/// What the items of one watch have in common.
struct Kind<'a> {
    source: SourceId,
    api_version: &'a str,
    kind: &'a str,
}

impl Kind<'_> {
    fn observe(&self, meta: &ObjectMeta, apply: impl FnOnce(&Observation<'_>)) {
        let has = |finalizer: &str| meta.finalizers.iter().any(|f| f == finalizer);
        // Objects without owners, most of all, allocate nothing here.
        let owners: Vec<OwnerReferenceRef<'_>> = meta
            .owner_references
            .iter()
            .map(|reference| OwnerReferenceRef {
                api_version: &reference.api_version,
                kind: &reference.kind,
                name: &reference.name,
                uid: &reference.uid,
                controller: reference.controller == Some(true),
                block_owner_deletion: reference.block_owner_deletion == Some(true),
            })
            .collect();
        apply(&Observation {
            source: self.source,
            api_version: self.api_version,
            kind: self.kind,
            namespace: &meta.namespace,
            name: &meta.name,
            uid: &meta.uid,
            resource_version: &meta.resource_version,
            being_deleted: meta.being_deleted,
            has_foreground_finalizer: has(FOREGROUND_FINALIZER),
            has_orphan_finalizer: has(ORPHAN_FINALIZER),
            owner_references: &owners,
        });
    }
}
