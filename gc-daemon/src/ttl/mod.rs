//! TTL after finished (spec T): the threads of one controller, and the loop that owns its engine.
//!
//! ```text
//! watches ──Seen──▶ ┐                 ┌─Work─▶ workers ─▶ API server
//! discovery ──────▶ ├─ loop (engine) ─┤
//! workers ──Done──▶ ┘                 └─ events, metrics
//! ```
//!
//! What goes when is decided in `gc_core::ttl`. Every delete is decided on a read that was just made and names its
//! version, so that nothing here needs to be held back while the graph lists anew or after a restore.

pub mod alone;
pub mod config;
pub mod list;
pub mod metrics;
mod worker;

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, Sender, bounded, select};
use gc_builder::core_resource;
use gc_client::{ApiResource, Client, Discovery, Fields, Reflector, ReflectorOptions, WatchEvent};
use gc_core::ttl::{Counts, Engine, Facts, Limits, Outcome, Profile, ProfileId, Reason, Report};
use gc_graph::{Coordinate, Uid};
use log::{debug, error, info, warn};

use crate::events::Recorder;
use crate::metrics::Metrics;
use crate::readers::display;
use worker::{Done, Hands, Served, Work};

/// Changes under way from the watches to the engine: this holds the readers back (S5). Each may be half a kilobyte.
const SEEN_MAX: usize = 256;
/// Changes taken before the timer is looked at again.
const SEEN_AT_ONCE: usize = 64;
/// Jobs that are with the workers, for each of them: one in work, and the next.
const IN_FLIGHT_PER_WORKER: usize = 2;
/// Full objects for each page of a list: a job has some kilobytes, and a server makes a page in memory.
const PAGE_SIZE: u32 = 500;
/// The loop looks at the clock at least this often, so that one that jumps is noticed.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Numbers for metrics are brought up to date this long after a change: counting takes as long as there are jobs.
const COUNT_AFTER: Duration = Duration::from_secs(1);
/// Readers and workers need little stack.
const STACK_BYTES: usize = 512 << 10;

/// A controller before it runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name that the reference gives it; events come from it.
    pub name: &'static str,
    /// How many jobs are worked on at the same time.
    pub workers: usize,
    /// The kinds.
    pub profiles: Vec<Profile>,
}

/// What controllers work with.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The API server.
    pub client: Client,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Events on objects.
    pub recorder: Arc<Recorder>,
}

/// The controllers that run. Dropping it lets their threads end by themselves.
#[derive(Debug, Default)]
pub struct Controllers {
    running: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    served: Sender<Vec<Option<ApiResource>>>,
    wanted: Vec<Profile>,
    stopping: Arc<AtomicBool>,
    is_listed: Arc<AtomicBool>,
    /// Which of them were served when discovery last had an answer.
    last: Vec<Option<ApiResource>>,
    workers: Vec<JoinHandle<()>>,
    thread: JoinHandle<()>,
}

/// The threads of controllers that have been told to stop.
#[derive(Debug, Default)]
pub struct Stopping {
    /// They finish the request in hand.
    pub workers: Vec<JoinHandle<()>>,
    /// They end once the client is shut down.
    pub others: Vec<JoinHandle<()>>,
}

impl Controllers {
    /// Starts them. They wait for [`Controllers::discovered`].
    ///
    /// # Errors
    ///
    /// One line: a path that cannot be read, or a thread that could not be started.
    pub fn start(settings: Vec<Settings>, tools: &Tools) -> Result<Controllers, String> {
        let mut controllers = Controllers::default();
        for settings in settings {
            controllers.running.push(Running::start(settings, tools)?);
        }
        Ok(controllers)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// What the server serves now (T4).
    pub fn discovered(&mut self, discovery: &Discovery) {
        self.running.iter_mut().for_each(|running| running.discovered(discovery));
    }

    /// Whether the kinds that are served have been listed.
    pub fn are_listed(&self) -> bool {
        self.running.iter().all(|running| running.is_listed.load(Ordering::SeqCst))
    }

    /// Whether the loop of each still runs. One that has panicked decides on no job any more.
    pub fn are_alive(&self) -> bool {
        self.running.iter().all(|running| !running.thread.is_finished())
    }

    /// From now on nothing new is begun.
    pub fn stop(self) -> Stopping {
        let mut stopping = Stopping::default();
        for running in self.running {
            running.stopping.store(true, Ordering::SeqCst);
            stopping.workers.extend(running.workers);
            stopping.others.push(running.thread);
        }
        stopping
    }
}

impl Running {
    fn start(settings: Settings, tools: &Tools) -> Result<Running, String> {
        let Settings { name, workers, profiles } = settings;
        let in_flight = workers * IN_FLIGHT_PER_WORKER;
        let (served, notices) = bounded(1);
        let (work, due) = bounded(in_flight);
        let (done_in, done) = bounded(in_flight);
        let (seen_in, seen) = bounded(SEEN_MAX);
        let stopping = Arc::new(AtomicBool::new(false));
        let is_listed = Arc::new(AtomicBool::new(false));
        let hands = Hands {
            client: tools.client.clone(),
            metrics: tools.metrics.clone(),
            stopping: stopping.clone(),
        };
        let limits = Limits { in_flight_max: in_flight, ..Limits::default() };
        let mut engine = Engine::new(limits);
        let kinds = kinds(&profiles, &mut engine, &tools.metrics)?;
        let (tools, listed) = (tools.clone(), is_listed.clone());
        let body = move || {
            let channels = Channels { seen_in, work };
            Loop { name, tools, engine, kinds, channels, is_listed: listed, reports: Vec::new() }
                .run(&notices, &seen, &done);
        };
        let cannot = |error| format!("cannot start a thread: {error}");
        let thread =
            spawn(format!("ttl-{}", name.split('-').next().unwrap_or_default()), body).map_err(cannot)?;
        let mut threads = Vec::new();
        for i in 0..workers {
            let (hands, due, done) = (hands.clone(), due.clone(), done_in.clone());
            let worker = spawn(format!("expire-{i}"), move || worker::run(&hands, &due, &done));
            threads.push(worker.map_err(cannot)?);
        }
        let last = vec![None; profiles.len()];
        Ok(Running { served, wanted: profiles, stopping, is_listed, last, workers: threads, thread })
    }

    /// A group whose discovery failed proves nothing: its kinds stay as they are.
    fn discovered(&mut self, discovery: &Discovery) {
        let found = self.wanted.iter().zip(&self.last).map(|(profile, last)| {
            let group_version = match profile.group() {
                "" => profile.version().to_owned(),
                group => format!("{group}/{}", profile.version()),
            };
            if discovery.failed.iter().any(|(failed, _)| *failed == group_version) {
                return last.clone();
            }
            let is_it = |it: &&ApiResource| {
                (it.group.as_str(), it.version.as_str(), it.resource.as_str())
                    == (profile.group(), profile.version(), profile.resource())
            };
            discovery.resources.iter().find(is_it).cloned()
        });
        self.last = found.collect();
        // While one answer waits to be taken, the next one that is taken tells the same or more.
        let _ = self.served.try_send(self.last.clone());
    }
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(body)
}

fn kinds(profiles: &[Profile], engine: &mut Engine, metrics: &Metrics) -> Result<Vec<Kind>, String> {
    let mut kinds = Vec::new();
    for profile in profiles {
        let profile = Arc::new(profile.clone());
        let fields = Fields::new(profile.paths()).map_err(|e| format!("{}: {e}", profile.name()))?;
        let id = engine.add_profile(profile.clone()).map_err(|e| e.to_string())?;
        metrics.ttl.begin(profile.name());
        kinds.push(Kind { id, profile, fields, watch: None, runs: 0, state: KindState::Unknown });
    }
    Ok(kinds)
}

/// Every reason why the loop ever does anything.
#[derive(Debug)]
enum Event {
    /// A watch saw something.
    Seen(Seen),
    /// An attempt has ended.
    Done(Done),
    /// Discovery has an answer: what is served, in the order of the profiles.
    Served(Vec<Option<ApiResource>>),
    /// A job is due, or it is time to look at the clock.
    Tick,
    /// The program stops.
    Stop,
}

/// What a watch saw.
#[derive(Debug)]
struct Seen {
    /// The place of its kind.
    kind: usize,
    /// The watch: what one says that has been replaced no longer counts.
    run: u64,
    change: Change,
}

#[derive(Debug)]
enum Change {
    ListStarted,
    /// In a list, or by a change.
    Object(Box<Facts>),
    ListDone,
    Deleted {
        namespace: String,
        name: String,
        uid: Uid,
    },
    Failed(String),
    /// Its thread has panicked.
    Died,
}

/// One profile, and the watch of its kind.
#[derive(Debug)]
struct Kind {
    id: ProfileId,
    profile: Arc<Profile>,
    fields: Fields,
    watch: Option<Watch>,
    /// Watches so far.
    runs: u64,
    state: KindState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KindState {
    /// Discovery has not said.
    Unknown,
    NotServed,
    /// Served, and not listed since.
    Listing,
    Listed,
}

#[derive(Debug)]
struct Watch {
    served: Arc<Served>,
    /// Never sent on: dropping it is what ends the reader.
    _stop: Sender<()>,
    thread: JoinHandle<()>,
}

struct Channels {
    seen_in: Sender<Seen>,
    work: Sender<Work>,
}

struct Loop {
    name: &'static str,
    tools: Tools,
    engine: Engine,
    kinds: Vec<Kind>,
    channels: Channels,
    is_listed: Arc<AtomicBool>,
    /// Reused from event to event.
    reports: Vec<Report>,
}

impl Loop {
    fn run(
        mut self,
        notices: &Receiver<Vec<Option<ApiResource>>>,
        seen: &Receiver<Seen>,
        done: &Receiver<Done>,
    ) {
        let mut count_at: Option<std::time::Instant> = None;
        loop {
            let wait = self.wait(count_at);
            let event = select! {
                recv(notices) -> served => served.map_or(Event::Stop, Event::Served),
                recv(done) -> done => done.map_or(Event::Stop, Event::Done),
                recv(seen) -> seen => seen.map_or(Event::Stop, Event::Seen),
                default(wait) => Event::Tick,
            };
            let changes = !matches!(event, Event::Tick);
            match event {
                Event::Seen(first) => {
                    self.seen(first);
                    seen.try_iter().take(SEEN_AT_ONCE - 1).for_each(|seen| self.seen(seen));
                }
                Event::Done(done) => self.done(done),
                Event::Served(served) => self.served(served),
                Event::Tick => {}
                Event::Stop => break,
            }
            let gave_out = self.hand_out();
            self.report();
            let now = std::time::Instant::now();
            if changes || gave_out {
                count_at = count_at.or(Some(now + COUNT_AFTER));
            }
            if count_at.is_some_and(|at| at <= now) {
                count_at = None;
                self.count();
            }
        }
        self.stop();
    }

    /// Until the next job is due, but not too long.
    fn wait(&self, count_at: Option<std::time::Instant>) -> Duration {
        let due = self.engine.next_due_ms().map(|due_ms| due_ms.saturating_sub(now_ms()));
        let due = due.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
        let count = count_at.map(|at| at.saturating_duration_since(std::time::Instant::now()));
        due.into_iter().chain(count).fold(LOOK_EVERY, Duration::min)
    }

    fn seen(&mut self, Seen { kind, run, change }: Seen) {
        let now_ms = now_ms();
        let Some(kind) = self.kinds.get_mut(kind).filter(|kind| kind.runs == run && kind.watch.is_some())
        else {
            return;
        };
        match change {
            Change::ListStarted => self.engine.begin_list(kind.id),
            Change::Object(facts) => self.engine.observe(now_ms, kind.id, &facts, &mut self.reports),
            Change::Deleted { namespace, name, uid } => {
                self.engine.delete(now_ms, kind.id, &namespace, &name, &uid);
            }
            Change::ListDone => {
                self.engine.end_list(kind.id);
                if kind.state == KindState::Listing {
                    info!("{}: {} are listed and watched", self.name, kind.profile.name());
                    kind.state = KindState::Listed;
                }
            }
            Change::Failed(why) if kind.state == KindState::Listing => {
                warn!("{}: {} cannot be listed, trying on: {why}", self.name, kind.profile.name());
            }
            Change::Failed(why) => {
                debug!(
                    "{}: the watch of {} failed and will be tried again: {why}",
                    self.name,
                    kind.profile.name()
                );
            }
            Change::Died => {
                // The next answer of discovery starts it again.
                kind.watch = None;
                kind.state = KindState::Unknown;
            }
        }
        self.show_listed();
    }

    fn done(&mut self, Done { due, outcome }: Done) {
        let Some(kind) = self.kinds.get(due.profile.index()) else { return };
        let name = kind.profile.name();
        self.tools.metrics.ttl.outcome(name, outcome.as_str());
        match &outcome {
            Outcome::Deleted { lateness_ms, .. } => self.tools.metrics.ttl.late(name, *lateness_ms),
            other => debug!("{}: {name} {}/{}: {other:?}", self.name, due.namespace, due.name),
        }
        self.engine.finish(now_ms(), &due, &outcome, &mut self.reports);
    }

    /// Kinds appear and disappear (T4).
    fn served(&mut self, served: Vec<Option<ApiResource>>) {
        for (index, found) in served.into_iter().enumerate() {
            let Some(kind) = self.kinds.get_mut(index) else { continue };
            let watched = kind.watch.as_ref().map(|watch| &watch.served.resource);
            if watched == found.as_ref() && kind.state != KindState::Unknown {
                continue;
            }
            if kind.watch.take().is_some() {
                info!("{}: {} is no longer served as it was", self.name, kind.profile.name());
            }
            self.engine.stop(kind.id);
            kind.runs += 1;
            match found {
                None => {
                    info!("{}: {} is not served yet", self.name, kind.profile.name());
                    kind.state = KindState::NotServed;
                }
                Some(resource) => match kind.start(index, resource, &self.tools.client, &self.channels) {
                    Ok(watch) => {
                        kind.watch = Some(watch);
                        kind.state = KindState::Listing;
                    }
                    Err(error) => {
                        // The next answer of discovery tries again.
                        warn!("{}: {} is not watched: {error}", self.name, kind.profile.name());
                        kind.state = KindState::Unknown;
                    }
                },
            }
        }
        self.show_listed();
    }

    fn show_listed(&self) {
        let is_settled = |kind: &Kind| matches!(kind.state, KindState::Listed | KindState::NotServed);
        self.is_listed.store(self.kinds.iter().all(is_settled), Ordering::SeqCst);
    }

    /// Gives those that are due to the workers; says whether there were any.
    fn hand_out(&mut self) -> bool {
        let now_ms = now_ms();
        let mut due = Vec::new();
        self.engine.take_due(now_ms, usize::MAX, &mut due);
        let gave_out = !due.is_empty();
        for due in due {
            let watch = self.kinds.get(due.profile.index()).and_then(|kind| kind.watch.as_ref());
            let work = watch.map(|watch| Work { due: due.clone(), served: watch.served.clone() });
            // There is room for as many as the engine gives out.
            let is_sent = work.is_some_and(|work| self.channels.work.try_send(work).is_ok());
            if !is_sent {
                let outcome = Outcome::Failed("no worker could take it".into());
                self.engine.finish(now_ms, &due, &outcome, &mut self.reports);
            }
        }
        gave_out
    }

    /// Tells people: an event on the object, and a line in the log.
    fn report(&mut self) {
        for Report { profile, namespace, name, uid, reason, message } in self.reports.drain(..) {
            let Some(kind) = self.kinds.get(profile.index()) else { continue };
            warn!(
                "{}: {} {namespace}/{name}: {}: {message}",
                self.name,
                kind.profile.name(),
                reason.as_str()
            );
            let Some(watch) = &kind.watch else { continue };
            if reason == Reason::TooManyJobs {
                // Of the whole cluster, not of this object.
                continue;
            }
            let resource = &watch.served.resource;
            let (api_version, kind) = (resource.api_version(), resource.kind.clone());
            let object = Coordinate { api_version, kind, namespace, name, uid };
            self.tools.recorder.warning(self.name, object, reason.as_str(), message);
        }
    }

    fn count(&self) {
        for kind in &self.kinds {
            let Counts { waiting, due, in_flight, retrying, confirming } =
                self.engine.counts(kind.id, now_ms());
            let counts = [
                ("waiting", waiting),
                ("due", due),
                ("in_flight", in_flight),
                ("retrying", retrying),
                ("confirming", confirming),
            ];
            self.tools.metrics.ttl.jobs(kind.profile.name(), counts);
        }
    }

    /// Everything is let go of; the readers end once the client is shut down.
    fn stop(self) {
        let Loop { kinds, channels, .. } = self;
        drop(channels);
        for watch in kinds.into_iter().filter_map(|kind| kind.watch) {
            let Watch { _stop, thread, .. } = watch;
            drop(_stop);
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Kind {
    fn start(
        &self,
        index: usize,
        resource: ApiResource,
        client: &Client,
        channels: &Channels,
    ) -> std::io::Result<Watch> {
        let (profile, fields, run) = (self.profile.clone(), self.fields.clone(), self.runs);
        let options = ReflectorOptions {
            fields: Some(fields.clone()),
            page_size: PAGE_SIZE,
            seed: u64::from(std::process::id()) ^ now_ms().unsigned_abs(),
            ..ReflectorOptions::default()
        };
        let reflector = Reflector::new(client.clone(), resource.clone(), options);
        let (_stop, stopped) = bounded(0);
        let seen = channels.seen_in.clone();
        let name = format!("ttl-watch-{}", display(&resource));
        let told = profile.clone();
        let thread = spawn(name, move || {
            let forward = |change| match seen.send(Seen { kind: index, run, change }) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            };
            let mut sink = |event: WatchEvent<'_>| match change(&told, &event) {
                Some(change) => forward(change),
                None => ControlFlow::Continue(()),
            };
            if catch_unwind(AssertUnwindSafe(|| reflector.run(&stopped, &mut sink))).is_err() {
                error!("a fault in this program: a watch panicked");
                let _ = forward(Change::Died);
            }
        })?;
        let core = Arc::new(core_resource(&resource));
        let served = Arc::new(Served { profile, fields, resource, core });
        Ok(Watch { served, _stop, thread })
    }
}

/// What it means for the engine; a bookmark means nothing, and after versions that go back a list follows.
fn change(profile: &Profile, event: &WatchEvent<'_>) -> Option<Change> {
    Some(match event {
        WatchEvent::ListStarted => Change::ListStarted,
        WatchEvent::Listed(meta) | WatchEvent::Applied(meta) => {
            Change::Object(Box::new(worker::seen(profile, meta)))
        }
        WatchEvent::ListDone { .. } => Change::ListDone,
        WatchEvent::Deleted(meta) => Change::Deleted {
            namespace: meta.namespace.into(),
            name: meta.name.into(),
            uid: Uid::new(meta.uid),
        },
        WatchEvent::Failed(error) => Change::Failed(error.to_string()),
        WatchEvent::Bookmark { .. }
        | WatchEvent::WentBack { .. }
        | WatchEvent::Ended
        | WatchEvent::Probing
        | WatchEvent::Watching
        | WatchEvent::Resumed => return None,
    })
}

/// The wall clock, in Unix milliseconds.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t5_a_controller_whose_loop_has_ended_is_not_alive() {
        let (go_on, waits) = bounded::<()>(0);
        let running = Running {
            served: bounded(1).0,
            wanted: Vec::new(),
            stopping: Arc::default(),
            is_listed: Arc::default(),
            last: Vec::new(),
            workers: Vec::new(),
            thread: spawn("ttl-test".into(), move || assert!(waits.recv().is_ok(), "it ends in a panic"))
                .unwrap(),
        };
        let controllers = Controllers { running: vec![running] };
        assert!(controllers.are_alive());
        drop(go_on);
        while controllers.are_alive() {
            std::thread::yield_now();
        }
    }
}
