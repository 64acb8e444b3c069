//! Lists a resource and watches it, for ever.

#[doc(hidden)]
pub mod list_watch;
mod patience;
mod plan;
mod random;

use std::cell::Cell;
use std::ops::{ControlFlow, RangeInclusive};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use crate::http::Stream;
use crate::turn::Turn;
use crate::wire::{Format, WatchReader, WireError, read_list, read_list_fields};
use crate::{ApiResource, Client, Error, Fields, MetaRef};
use list_watch::{Call, Close, ListWatch, Sink};
use patience::{Patience, is_stopped};

/// How much longer than it was asked for a watch may last before the peer counts as dead.
const WATCH_GRACE: Duration = Duration::from_secs(30);

/// The longest that one page of a list may take altogether. A server gives up after one minute (its
/// `--request-timeout`); a slow line may need longer for what was sent by then.
const LIST_MAX: Duration = Duration::from_secs(600);

/// What a reflector tells its sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent<'a> {
    /// A list begins. What is not listed from here to [`ListDone`](WatchEvent::ListDone) was gone when the list was
    /// made. When a list fails, another `ListStarted` follows, and what was listed before it does not count.
    ListStarted,
    /// Exists. May come more than once for an object when a page had to be read again.
    Listed(MetaRef<'a>),
    /// The list is complete as of this version. It can be older than one seen before: then the server's state has
    /// gone back, and what is known of deletions is void (spec S7).
    ListDone {
        /// Never empty.
        resource_version: &'a str,
    },
    /// New or changed (`ADDED` or `MODIFIED`).
    Applied(MetaRef<'a>),
    /// Gone. The metadata is the last that was stored, with the version of the deletion: an object whose last
    /// finalizer was taken away still carries that finalizer here. Can also come in the middle of a list that is streamed, for something just listed.
    Deleted(MetaRef<'a>),
    /// Nothing else happened up to this version.
    Bookmark {
        /// Never empty.
        resource_version: &'a str,
    },
    /// The server is at this version, which is older than one that it had shown before: its state has gone back, and
    /// what is known of deletions is void (spec S7). A list follows; it may be newer than anything before.
    WentBack {
        /// Never empty.
        resource_version: &'a str,
    },
    /// A watch has ended in good order, and all that happened before has been told. Until
    /// [`Watching`](WatchEvent::Watching) nobody hears what happens.
    Ended,
    /// A watch has failed, or has ended before its time or without a word: the server is asked for its version first.
    Probing,
    /// The watch is open. What has happened since the list, or since the watch before, comes first.
    Watching,
    /// The server was asked for its version after a watch had ended, and is not behind what it had shown before: the
    /// watch goes on from where it was.
    Resumed,
    /// A list or a watch has failed and will be tried again. Nothing follows from it for any object; a resource that
    /// is no longer served shows itself as a 404 here.
    Failed(&'a Error),
}

/// How a [`Reflector`] behaves.
#[derive(Clone, Debug)]
pub struct ReflectorOptions {
    /// Objects for each page of a list. The pages are read from the stream, so that this costs memory on the server
    /// only.
    pub page_size: u32,
    /// Lists by `sendInitialEvents` on the watch where the server can.
    pub stream_lists: bool,
    /// How long the server is asked to keep a watch open, in seconds; a random number of this range each time. The
    /// end stays below the time after which load balancers forget idle connections (four minutes, Azure/kars#456).
    pub watch_timeout_s: RangeInclusive<u64>,
    /// How long a watch waits for the head of the answer; also how long it takes a watch to notice that it is to
    /// stop, unless the whole client is shut down.
    pub watch_within: Duration,
    /// How long a watch may be silent where the server sends bookmarks. It does so about once a minute, whatever else
    /// happens; without this a connection that has died without a sign would be believed until the watch's time is over.
    /// After two silent watches in a row the server is taken not to send any, until one comes.
    pub bookmark_within: Duration,
    /// How long a list waits for the head of the answer, and then for each next piece.
    pub list_within: Duration,
    /// The first wait after a failure; doubled with each further one, up to 30 s.
    pub backoff_base: Duration,
    /// Where the jitter comes from. Reflectors of different resources may share it.
    pub seed: u64,
    /// What to read of each object besides its metadata ([`MetaRef::fields`]). The server then sends full objects, in
    /// JSON, which costs it and the line many times as much.
    pub fields: Option<Fields>,
}

impl Default for ReflectorOptions {
    /// Pages of 5,000, watches of 120 to 200 s, 15 s (watch) and 60 s (list) to wait for an answer, 75 s for the next
    /// bookmark, half a second after a first failure, seed 0, metadata only.
    fn default() -> ReflectorOptions {
        ReflectorOptions {
            page_size: 5_000,
            stream_lists: false,
            watch_timeout_s: 120..=200,
            watch_within: Duration::from_secs(15),
            bookmark_within: Duration::from_secs(75),
            list_within: Duration::from_secs(60),
            backoff_base: Duration::from_millis(500),
            seed: 0,
            fields: None,
        }
    }
}

/// Lists one resource in all namespaces, then watches it from there on, and starts again where that is needed
/// (client-go's Reflector; spec S5).
///
/// Lists are consistent reads, never older than anything that any client has been shown, so that a list that is
/// older than one before it means one thing only: the server's state has gone back. Failures are tried again with
/// jittered exponential back-off of at most 30 s, a `Retry-After` of at most 60 s is honoured, and the version
/// reached is kept unless the server says that it has expired. A peer that has died is noticed when its next bookmark
/// is overdue, or, where it sends none, 30 s after the end of the watch's time.
///
/// Any number of reflectors may share a client. Sixteen of them at a time list and open their watch, and the others wait
/// for their turn: a server refuses with a 429 what it cannot queue. A turn that lasts longer than a tenth of a second makes
/// room for the next, so that a resource whose lists hang holds up no other (spec S3).
///
/// # Example
///
/// ```no_run
/// use std::ops::ControlFlow;
/// use gc_client::{ApiResource, Client, Config, Options, Reflector, ReflectorOptions, WatchEvent};
///
/// # fn example(pods: ApiResource) -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::new(&Config::plain("http://127.0.0.1:8080"), &Options::default())?;
/// let (stop, stopped) = crossbeam_channel::bounded(0);
/// Reflector::new(client, pods, ReflectorOptions::default()).run(&stopped, &mut |event| {
///     if let WatchEvent::Deleted(meta) = event {
///         println!("{} is gone", meta.name);
///     }
///     ControlFlow::Continue(())
/// });
/// drop(stop);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Reflector {
    client: Client,
    resource: ApiResource,
    options: ReflectorOptions,
    list_watch: ListWatch,
}

/// Why a step came to no good end.
enum Cut {
    /// The caller or the sink wants no more.
    Stop,
    Failed(Error),
}

impl Reflector {
    /// A reflector at its beginning; it does nothing until it is [run](Reflector::run).
    pub fn new(client: Client, resource: ApiResource, options: ReflectorOptions) -> Reflector {
        let list_watch = ListWatch::new(&resource, &options);
        Reflector { client, resource, options, list_watch }
    }

    /// Blocks until `stop` receives or disconnects, the sink breaks off, or the client is shut down.
    ///
    /// The sink is called on this thread. While it does not return, nothing is read: that is how a full channel holds
    /// the server back.
    pub fn run(mut self, stop: &Receiver<()>, sink: &mut dyn FnMut(WatchEvent<'_>) -> ControlFlow<()>) {
        let client = self.client.clone();
        // From a list or a probe until the watch that follows it is open: between the two nobody hears what happens.
        let mut turn = None;
        while !is_stopped(stop) {
            let ControlFlow::Continue(call) = self.list_watch.next_call(sink) else { return };
            if matches!(call, Call::Wait(_)) {
                turn = None;
            } else if turn.is_none() && takes_turn(&call, self.list_watch.streams_list()) {
                match client.turn() {
                    Ok(taken) if !is_stopped(stop) => turn = Some(taken),
                    Ok(_) | Err(_) => return,
                }
            }
            let began = Instant::now();
            let carried_out = match &call {
                Call::Wait(duration) => self.wait(*duration, stop),
                Call::List { path, accept } => self.list(path, accept, stop, sink),
                Call::Watch { path, accept, timeout } => {
                    self.watch(path, accept, *timeout, turn.take(), stop, sink)
                }
            };
            match carried_out {
                Ok(()) => {}
                Err(Cut::Stop | Cut::Failed(Error::ShutDown)) => return,
                Err(Cut::Failed(_)) if self.client.is_shut_down() => return,
                Err(Cut::Failed(error)) => {
                    log::debug!("{error}");
                    if self.list_watch.failed(&error, began.elapsed(), sink).is_break() {
                        return;
                    }
                }
            }
        }
    }

    /// Looks up every half second, because shutting the client down does not wake a wait on `stop`.
    fn wait(&self, mut left: Duration, stop: &Receiver<()>) -> Result<(), Cut> {
        while !left.is_zero() && !self.client.is_shut_down() {
            let slice = left.min(Duration::from_millis(500));
            match stop.recv_timeout(slice) {
                Err(RecvTimeoutError::Timeout) => left -= slice,
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return Err(Cut::Stop),
            }
        }
        Ok(())
    }

    fn list(&mut self, path: &str, accept: &str, stop: &Receiver<()>, sink: Sink<'_>) -> Result<(), Cut> {
        let stream = self.client.open(path, accept, self.options.list_within).map_err(Cut::Failed)?;
        let format = self.format(&stream)?;
        let silence_max = Cell::new(self.options.list_within);
        let patience = Patience::new(stream, stop, LIST_MAX, &silence_max);
        let item = &mut |meta: MetaRef<'_>| self.list_watch.item(meta, sink);
        let end = match &self.options.fields {
            None => read_list(format, patience, item),
            Some(fields) => read_list_fields(format, patience, fields, item),
        };
        let end = end.map_err(|error| self.cut(error, stop))?;
        or_stop(self.list_watch.page(end, sink))
    }

    /// Watches until the stream ends.
    fn watch(
        &mut self,
        path: &str,
        accept: &str,
        timeout: Duration,
        mut turn: Option<Turn<'_>>,
        stop: &Receiver<()>,
        sink: Sink<'_>,
    ) -> Result<(), Cut> {
        let began = Instant::now();
        let stream = self.client.open_watch(path, accept, self.options.watch_within).map_err(Cut::Failed)?;
        let format = self.format(&stream)?;
        or_stop(self.list_watch.opened(sink))?;
        let reading_max = timeout + WATCH_GRACE;
        let silence_max = Cell::new(Duration::ZERO);
        let patience = Patience::new(stream, stop, reading_max, &silence_max);
        let mut reader = match &self.options.fields {
            None => WatchReader::new(format, patience),
            Some(fields) => WatchReader::with_fields(format, patience, fields),
        };
        loop {
            turn = turn.filter(|_| self.list_watch.is_listing());
            let expects_bookmarks = self.list_watch.expects_bookmarks();
            silence_max.set(if expects_bookmarks { self.options.bookmark_within } else { reading_max });
            match reader.next(|event| self.list_watch.event(event, sink)) {
                Ok(Some(ControlFlow::Continue(()))) => {}
                Ok(Some(ControlFlow::Break(Close::WentBack))) => return Ok(()),
                Ok(Some(ControlFlow::Break(Close::Stopped))) => return Err(Cut::Stop),
                Ok(Some(ControlFlow::Break(Close::Failed(error)))) => return Err(Cut::Failed(error)),
                Ok(None) => {
                    self.list_watch.ended(began.elapsed());
                    return Ok(());
                }
                Err(error) => return Err(self.cut(error, stop)),
            }
        }
    }

    fn format(&self, stream: &Stream) -> Result<Format, Cut> {
        Format::from_content_type(stream.content_type()).ok_or_else(|| {
            let cause = format!("expected protobuf or JSON, found {:.100?}", stream.content_type());
            Cut::Failed(Error::Decode { request: self.label(), cause })
        })
    }

    fn cut(&self, error: WireError, stop: &Receiver<()>) -> Cut {
        match error {
            WireError::Stopped => Cut::Stop,
            _ if is_stopped(stop) => Cut::Stop,
            WireError::Status(status) => Cut::Failed(Error::Status(status)),
            WireError::Io(error) => {
                let request = format!("{} at {}", self.label(), self.client.host_and_port());
                Cut::Failed(Error::Transport { request, cause: error.to_string() })
            }
            WireError::Malformed { .. } => {
                Cut::Failed(Error::Decode { request: self.label(), cause: error.to_string() })
            }
        }
    }

    fn label(&self) -> String {
        format!("GET {}", self.resource.path("", ""))
    }
}

/// Whether it is begun only when it is its turn. A watch that follows another does not wait: meanwhile nobody would hear what
/// happens.
fn takes_turn(call: &Call, streams_list: bool) -> bool {
    match call {
        Call::List { .. } => true,
        Call::Watch { .. } => streams_list,
        Call::Wait(_) => false,
    }
}

fn or_stop(told: ControlFlow<()>) -> Result<(), Cut> {
    if told.is_break() { Err(Cut::Stop) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s7_lists_and_probes_wait_for_their_turn_and_watches_that_go_on_do_not() {
        let (path, accept) = (String::new(), "");
        let list = Call::List { path: path.clone(), accept };
        let watch = Call::Watch { path, accept, timeout: Duration::ZERO };
        let wait = Call::Wait(Duration::ZERO);
        assert_eq!([&list, &watch, &wait].map(|call| takes_turn(call, false)), [true, false, false]);
        assert_eq!([&list, &watch, &wait].map(|call| takes_turn(call, true)), [true, true, false]);
    }
}
