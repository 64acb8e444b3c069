//! Events on objects: what a person sees at the end of `kubectl describe`.
//!
//! `OwnerRefInvalidNamespace` (spec G4), in the reference's words, and what the TTL controllers report. Events are a courtesy: nobody
//! waits for one, and none is worth a retry storm. So the caller never blocks, whatever the API server does; what does
//! not fit is dropped and counted.
//!
//! Where client-go's recorder counts the repeats of an event by patching it, this one posts an event once in ten
//! minutes and leaves the repeats out. Its count therefore stays 1: it says that this happened, not how often.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, select};
use gc_client::{Client, Error};
use gc_graph::{Coordinate, InvalidOwnerReference, Uid};
use hashbrown::HashMap;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::metrics::Metrics;
use crate::requests::status_code;

/// The name under which the reference reports, so that `kubectl get events --field-selector source=…` finds both.
const COMPONENT: &str = "garbage-collector-controller";
/// Events that wait to be posted: as many as client-go holds. An API server that takes none for a minute has worse
/// troubles than these being dropped.
const QUEUE_MAX: usize = 1_000;
/// An event of the same words on the same object is not posted again within this time: client-go's interval.
const WINDOW: Duration = Duration::from_secs(600);
/// Different events on one object within the window: client-go's burst.
const PER_OBJECT_MAX: usize = 25;
/// Objects with events within the window, as many as client-go remembers. Further ones get none until the window of
/// others has passed: this bounds both memory and what a flood costs the API server.
const OBJECTS_MAX: usize = 4_096;
/// Before the first and the second retry; there is no third.
const RETRY_AFTER: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];
/// What newer event types allow. A reference's UID may be as long as its writer likes.
const MESSAGE_BYTES_MAX: usize = 1_024;

/// Posts events from a thread of its own, named `events`. Dropping it stops the thread; what waits is not posted.
#[derive(Debug)]
pub struct Recorder {
    queue: Sender<Note>,
    metrics: Arc<Metrics>,
    /// Dropped to stop the thread.
    stop: Option<Sender<()>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// An event before it has a time.
#[derive(Debug)]
struct Note {
    /// Who says it.
    component: &'static str,
    object: Coordinate,
    reason: &'static str,
    message: String,
}

impl Recorder {
    /// Starts the thread.
    ///
    /// A request that is under way when the recorder is dropped is waited for; [`Client::shut_down`] ends it at once.
    ///
    /// # Errors
    ///
    /// The system could not start a thread.
    pub fn start(client: &Client, metrics: &Arc<Metrics>) -> io::Result<Recorder> {
        let client = client.clone();
        let counted = Arc::clone(metrics);
        Recorder::start_with(metrics, move |namespace, event| {
            let begun = Instant::now();
            let answer = client.create_event(namespace, event);
            counted.request("POST", status_code(&answer), begun.elapsed());
            answer
        })
    }

    fn start_with(
        metrics: &Arc<Metrics>,
        post: impl Fn(&str, &Value) -> Result<(), Error> + Send + 'static,
    ) -> io::Result<Recorder> {
        let (queue, notes) = bounded(QUEUE_MAX);
        let (stop, stopped) = bounded(0);
        let poster = Poster { post, metrics: Arc::clone(metrics), stopped };
        let thread =
            std::thread::Builder::new().name("events".to_owned()).spawn(move || poster.run(&notes))?;
        Ok(Recorder {
            queue,
            metrics: Arc::clone(metrics),
            stop: Some(stop),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// A dependent names an owner that lives in another namespace: warning `OwnerRefInvalidNamespace` on the dependent
    /// (spec G4).
    pub fn invalid_owner_reference(&self, invalid: &InvalidOwnerReference) {
        let object = &invalid.dependent;
        // The reference has no namespace of its own: it means the dependent's.
        let owner = invalid.reference.coordinate_in(&object.namespace);
        let message = format!(
            "ownerRef [{}/{}, namespace: {}, name: {}, uid: {}] does not exist in namespace {:?}",
            owner.api_version, owner.kind, owner.namespace, owner.name, owner.uid, object.namespace
        );
        let reason = "OwnerRefInvalidNamespace";
        self.record(Note { component: COMPONENT, object: object.clone(), reason, message });
    }

    /// A warning of a controller about an object.
    pub fn warning(
        &self,
        component: &'static str,
        object: Coordinate,
        reason: &'static str,
        message: String,
    ) {
        self.record(Note { component, object, reason, message });
    }

    fn record(&self, note: Note) {
        // Full, or the thread is gone because the daemon stops: either way there is no event.
        if self.queue.try_send(note).is_err() {
            self.metrics.event_dropped();
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        drop(self.stop.take());
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A thread that panicked has said so; no event is worth more.
            let _ = thread.join();
        }
    }
}

/// The thread's own side.
struct Poster<P> {
    post: P,
    metrics: Arc<Metrics>,
    /// Disconnected when it is time to stop.
    stopped: Receiver<()>,
}

impl<P: Fn(&str, &Value) -> Result<(), Error>> Poster<P> {
    fn run(&self, notes: &Receiver<Note>) {
        let mut recent = Recent::default();
        let mut last_ns = 0;
        loop {
            // Asked first, since a select with both ready takes either.
            if self.is_stopped_within(Duration::ZERO) {
                return;
            }
            let note = select! {
                recv(self.stopped) -> _ => return,
                recv(notes) -> note => note,
            };
            let Ok(note) = note else { return };
            match recent.admit(&note, Instant::now()) {
                Admission::Post => {
                    let event = event(&note, Timestamp::now(), &mut last_ns);
                    self.post(&note, &event);
                }
                Admission::Repeat => {}
                Admission::TooMany => self.metrics.event_dropped(),
            }
        }
    }

    fn post(&self, note: &Note, event: &Value) {
        let namespace = event_namespace(&note.object);
        let post = || (self.post)(namespace, event);
        match with_retries(post, |delay| self.is_stopped_within(delay)) {
            Ok(()) => {}
            // The name is ours alone, so an earlier try got through and only its answer did not.
            Err(Error::Status(status)) if status.reason == "AlreadyExists" => {}
            Err(error) => {
                self.metrics.event_dropped();
                log::warn!("no event {} on {}: {error}", note.reason, note.object);
            }
        }
    }

    fn is_stopped_within(&self, delay: Duration) -> bool {
        let timed_out = crossbeam_channel::RecvTimeoutError::Timeout;
        self.stopped.recv_timeout(delay) != Err(timed_out)
    }
}

/// Tries once, and twice more where that may help. `is_stopped_within` waits, and says whether it was cut short.
fn with_retries(
    post: impl Fn() -> Result<(), Error>,
    is_stopped_within: impl Fn(Duration) -> bool,
) -> Result<(), Error> {
    for delay in RETRY_AFTER {
        match post() {
            Err(error) if may_pass(&error) && !is_stopped_within(delay) => {}
            result => return result,
        }
    }
    post()
}

/// Whether the same request may succeed later. A namespace that is being deleted, a missing permission or an object
/// that is refused stay what they are.
fn may_pass(error: &Error) -> bool {
    match error {
        // After a 401 the client has looked for fresh credentials.
        Error::Status(status) => matches!(status.code, 401 | 429) || status.code >= 500,
        Error::Transport { .. } | Error::Credentials { .. } => true,
        // It was posted and its answer is lost, it can never be posted, or the daemon stops.
        Error::Decode { .. } | Error::Invalid { .. } | Error::ShutDown => false,
    }
}

/// What was said within the window, per object. Told the time.
#[derive(Default)]
struct Recent {
    objects: HashMap<Uid, Said>,
}

struct Said {
    since: Instant,
    /// Hashes of the messages. Two that collide cost one event.
    messages: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Post,
    Repeat,
    TooMany,
}

impl Recent {
    fn admit(&mut self, note: &Note, now: Instant) -> Admission {
        let is_over = |said: &Said| now.saturating_duration_since(said.since) >= WINDOW;
        if self.objects.get(&note.object.uid).is_some_and(is_over) {
            self.objects.remove(&note.object.uid);
        }
        if self.objects.len() >= OBJECTS_MAX && !self.objects.contains_key(&note.object.uid) {
            self.objects.retain(|_, said| !is_over(said));
            if self.objects.len() >= OBJECTS_MAX {
                return Admission::TooMany;
            }
        }
        let mut hasher = DefaultHasher::new();
        (note.reason, &note.message).hash(&mut hasher);
        let message = hasher.finish();
        let said = self.objects.entry(note.object.uid.clone());
        let said = said.or_insert_with(|| Said { since: now, messages: Vec::new() });
        if said.messages.contains(&message) {
            return Admission::Repeat;
        }
        if said.messages.len() >= PER_OBJECT_MAX {
            return Admission::TooMany;
        }
        said.messages.push(message);
        Admission::Post
    }
}

/// Events on cluster-scoped objects live in `default`, as client-go has it.
fn event_namespace(object: &Coordinate) -> &str {
    if object.namespace.is_empty() { "default" } else { &object.namespace }
}

/// The core/v1 Event. `last_ns` keeps names apart when two are made in the same nanosecond.
fn event(note: &Note, now: Timestamp, last_ns: &mut i128) -> Value {
    *last_ns = now.as_nanosecond().max(*last_ns + 1);
    let Note { component, object, reason, message } = note;
    let time = format!("{now:.0}");
    let mut involved = json!({
        "apiVersion": object.api_version,
        "kind": object.kind,
        "name": object.name,
        "uid": object.uid.to_string(),
    });
    if !object.namespace.is_empty() {
        involved["namespace"] = Value::from(object.namespace.as_str());
    }
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": event_name(component, &object.name, *last_ns), "namespace": event_namespace(object) },
        "involvedObject": involved,
        "type": "Warning",
        "reason": reason,
        "message": shortened(message),
        "source": { "component": component },
        "reportingComponent": component,
        "reportingInstance": "",
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    })
}

/// `<object>.<hex>`, or the component's name where the object's would make no valid name of an event
/// (kubernetes/kubernetes#127594: cluster roles with colons, names of full length).
fn event_name(component: &str, object: &str, nanoseconds: i128) -> String {
    let name = format!("{object}.{nanoseconds:x}");
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let is_subdomain = name.len() <= 253
        && name.bytes().all(is_allowed)
        && name.split('.').all(|label| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-'));
    if is_subdomain { name } else { format!("{component}.{nanoseconds:x}") }
}

fn shortened(message: &str) -> String {
    if message.len() <= MESSAGE_BYTES_MAX {
        return message.to_owned();
    }
    let mut end = MESSAGE_BYTES_MAX - "…".len();
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", message.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests;
