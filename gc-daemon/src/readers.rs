//! The threads behind the watches: each lists and watches one resource and hands in what it sees.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use crossbeam_channel::{Receiver, Sender, bounded};
use gc_builder::{Change, MonitorId, Seen};
use gc_client::{ApiResource, Client, Reflector, ReflectorOptions, WatchEvent};
use hashbrown::HashMap;
use log::{error, warn};

/// A reader needs its decoder and a channel, no recursion: a small stack keeps hundreds of them cheap.
const STACK_BYTES: usize = 512 << 10;

/// What a watch saw, and when this program had it.
#[derive(Debug)]
pub struct Received {
    /// When it was decoded. What it then waits for is the graph.
    pub at: Instant,
    /// What was seen.
    pub seen: Seen,
}

/// All of them. The event loop owns this; no lock.
#[derive(Debug)]
pub struct Readers {
    client: Client,
    changes: Sender<Received>,
    /// By the number of the source. Never sent on: dropping it is what ends the reader.
    stops: HashMap<u16, Sender<()>>,
    seed: u64,
    started: u64,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    /// None yet.
    pub fn new(client: Client, changes: Sender<Received>) -> Readers {
        Readers { client, changes, stops: HashMap::new(), seed: seed(), started: 0, threads: Vec::new() }
    }

    /// Starts a reader in place of the one of the same source; says whether that worked. Where it did not, the old one
    /// is ended all the same: what it says no longer counts.
    pub fn start(&mut self, id: MonitorId, resource: &ApiResource) -> bool {
        self.threads.retain(|thread| !thread.is_finished());
        self.started += 1;
        let (stop, stopped) = bounded(0);
        self.stops.insert(id.source.0, stop);
        match self.spawn(resource, id, stopped) {
            Some(thread) => self.threads.push(thread),
            None => return false,
        }
        true
    }

    /// Ends a reader.
    pub fn end(&mut self, id: MonitorId) {
        self.stops.remove(&id.source.0);
    }

    /// Ends all of them. The threads end once the client is shut down; without that, as late as a read's time-out.
    pub fn stop(self) -> Vec<JoinHandle<()>> {
        self.threads
    }

    fn spawn(&self, resource: &ApiResource, id: MonitorId, stopped: Receiver<()>) -> Option<JoinHandle<()>> {
        // Two replicas, or one that restarts, must not fall into step with each other.
        let seed = self.seed ^ self.started;
        let options = ReflectorOptions { seed, ..ReflectorOptions::default() };
        let reflector = Reflector::new(self.client.clone(), resource.clone(), options);
        let changes = self.changes.clone();
        let reader = move || {
            let run = || reflector.run(&stopped, &mut |event| forward(&changes, id, &event));
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                // Unsaid, the resource would count as watched for ever.
                error!("a fault in this program: a watch panicked");
                let seen = Seen { monitor: id, change: Change::Died };
                let _ = changes.send(Received { at: Instant::now(), seen });
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

/// `resource.group`, as `--gc-ignored-resources` takes it.
pub fn display(resource: &ApiResource) -> String {
    if resource.group.is_empty() {
        resource.resource.clone()
    } else {
        format!("{}.{}", resource.resource, resource.group)
    }
}

/// Differs from process to process and from start to start.
fn seed() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (u64::from(std::process::id()) << 32) ^ since_epoch.as_micros() as u64
}

/// Blocks while the channel is full: that is what holds a fast server back (S5).
fn forward(changes: &Sender<Received>, monitor: MonitorId, event: &WatchEvent<'_>) -> ControlFlow<()> {
    let seen = Seen { monitor, change: Change::from(event) };
    match changes.send(Received { at: Instant::now(), seen }) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    }
}
