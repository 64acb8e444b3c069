//! The threads behind the watches: each lists and watches one resource and hands in what it sees.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use crossbeam_channel::{Receiver, Sender, bounded};
use gc_builder::{Change, MonitorId};
use gc_client::{ApiResource, Client, MetaBatch, Reflector, ReflectorOptions, WatchEvent};
use hashbrown::HashMap;
use log::{error, warn};

/// A reader needs its decoder and a channel, no recursion: a small stack keeps hundreds of them cheap.
const STACK_BYTES: usize = 512 << 10;

/// So many objects of a list are handed in together: to wake the event loop for each would cost more than to decode it.
/// More would be memory, and no faster.
const LISTED_AT_ONCE: usize = 128;
/// And no more when they are as large as this together: an object may have megabytes of owner references.
const LISTED_BYTES: usize = 64 << 10;

/// So many batches whose objects the graph has taken are kept for the next lists. While a list is read, two or three are
/// on their way; to ask the system for their memory anew each time costs more than to fill it.
const SPARES_MAX: usize = 4;

/// What a watch saw, and when this program had it.
#[derive(Debug)]
pub struct Received {
    /// When the first of it was decoded. What it then waits for is the rest, and the graph. For the rest this is earlier
    /// than true, which is the safe side: what it proves counts as older (S7).
    pub at: Instant,
    /// Which watch.
    pub monitor: MonitorId,
    /// What was seen.
    pub change: Change,
}

impl Received {
    /// How many objects it is about; what is about none counts as one.
    pub fn count(&self) -> usize {
        match &self.change {
            Change::Seen(objects) | Change::Deleted(objects) => objects.len(),
            _ => 1,
        }
    }
}

/// All of them. The event loop owns this; no lock.
#[derive(Debug)]
pub struct Readers {
    client: Client,
    changes: Changes,
    /// By the number of the source. Never sent on: dropping it is what ends the reader.
    stops: HashMap<u16, Sender<()>>,
    seed: u64,
    started: u64,
    threads: Vec<JoinHandle<()>>,
    /// Both ends of where batches lie that are empty.
    spares: (Sender<MetaBatch>, Receiver<MetaBatch>),
}

impl Readers {
    /// None yet.
    pub fn new(client: Client, changes: Changes) -> Readers {
        let (stops, threads, spares) = (HashMap::new(), Vec::new(), bounded(SPARES_MAX));
        Readers { client, changes, stops, seed: seed(), started: 0, threads, spares }
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

    /// What was seen is in the graph: its memory is good for the next objects of a list.
    pub fn take_back(&self, mut objects: MetaBatch) {
        // One change of a watch is no batch, and one large object needs no room for others.
        if 1 < objects.len() && objects.bytes() < 2 * LISTED_BYTES {
            objects.clear();
            _ = self.spares.0.try_send(objects);
        }
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
        let (changes, spares) = (self.changes.clone(), self.spares.1.clone());
        let reader = move || {
            let held = MetaBatch::default();
            let mut hand = Hand { changes: changes.clone(), spares, monitor: id, at: Instant::now(), held };
            let run = || reflector.run(&stopped, &mut |event| hand.take(&event));
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                // Unsaid, the resource would count as watched for ever.
                error!("a fault in this program: a watch panicked");
                let died = Received { at: Instant::now(), monitor: id, change: Change::Died };
                let _ = changes.send(died);
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

/// The way into the event loop, and how much has gone it.
#[derive(Clone, Debug)]
pub struct Changes {
    /// Full when the graph is slower than the watches.
    pub sender: Sender<Received>,
    /// The changes that were handed in, or are about to be.
    pub total: Arc<AtomicU64>,
}

impl Changes {
    /// Blocks while the channel is full: that is what holds a fast server back (S5).
    fn send(&self, received: Received) -> ControlFlow<()> {
        self.total.fetch_add(received.count() as u64, Ordering::Relaxed);
        match self.sender.send(received) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

/// Holds what one watch sees until it is handed in.
#[derive(Debug)]
struct Hand {
    changes: Changes,
    spares: Receiver<MetaBatch>,
    monitor: MonitorId,
    /// When the first of what is held was decoded.
    at: Instant,
    /// Objects of a list only. Nothing is waited for by them: a list counts when it is done, and that is handed in at
    /// once, like everything that a watch shows.
    held: MetaBatch,
}

impl Hand {
    fn take(&mut self, event: &WatchEvent<'_>) -> ControlFlow<()> {
        let WatchEvent::Listed(meta) = event else {
            // Now, not when what is held has been handed in, which may take long: what this proves was so by now.
            let at = Instant::now();
            let held = std::mem::take(&mut self.held);
            self.hand_in(held)?;
            return self.send(at, Change::from(event));
        };
        if self.held.is_empty() {
            self.at = Instant::now();
        }
        self.held.push(meta);
        if self.held.len() < LISTED_AT_ONCE && self.held.bytes() < LISTED_BYTES {
            return ControlFlow::Continue(());
        }
        let spare = self.spares.try_recv().unwrap_or_default();
        let held = std::mem::replace(&mut self.held, spare);
        self.hand_in(held)
    }

    fn hand_in(&self, held: MetaBatch) -> ControlFlow<()> {
        if held.is_empty() { ControlFlow::Continue(()) } else { self.send(self.at, Change::Seen(held)) }
    }

    fn send(&self, at: Instant, change: Change) -> ControlFlow<()> {
        self.changes.send(Received { at, monitor: self.monitor, change })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gc_builder::{GraphBuilder, News, Options, Out};
    use gc_client::{Discovery, MetaRef};
    use gc_core::State;
    use gc_tests::experiment::config_maps;

    use super::*;

    fn monitor() -> MonitorId {
        let (mut state, mut out) = (State::new(gc_core::Options::default()), Out::default());
        let answer = Discovery { resources: vec![config_maps()], ..Discovery::default() };
        GraphBuilder::new(Options::default()).discovered(&mut state, Duration::ZERO, &answer, &mut out);
        out.news.iter().find_map(|news| if let News::Start(id, _) = news { Some(*id) } else { None }).unwrap()
    }

    /// The graph may be busy, and this process stopped, while a reader waits to hand in what it holds.
    #[test]
    fn s7_what_waits_for_what_came_before_it_is_as_old_as_when_it_was_heard() {
        let (sender, receiver) = bounded(0);
        let total = Arc::new(AtomicU64::new(0));
        let changes = Changes { sender, total: total.clone() };
        let (_, spares) = bounded(0);
        let mut hand =
            Hand { changes, spares, monitor: monitor(), at: Instant::now(), held: MetaBatch::default() };
        let meta = MetaRef { name: "held", ..MetaRef::default() };
        assert!(hand.take(&WatchEvent::Listed(meta)).is_continue());
        let listed = std::thread::Builder::new().name("reader".into()).spawn(move || {
            assert!(hand.take(&WatchEvent::ListDone { resource_version: "7" }).is_continue());
        });
        // It is counted right before it waits for the graph.
        let deadline = Instant::now() + Duration::from_secs(30);
        while total.load(Ordering::Relaxed) == 0 {
            assert!(Instant::now() < deadline, "what is held is handed in first");
            std::thread::yield_now();
        }
        let goes_on = Instant::now();
        let received = [(); 2].map(|()| receiver.recv().unwrap());
        assert!(
            matches!(received[0].change, Change::Seen(_))
                && matches!(received[1].change, Change::ListDone(_))
        );
        assert!(received.iter().all(|received| received.at <= goes_on));
        listed.unwrap().join().unwrap();
    }
}
