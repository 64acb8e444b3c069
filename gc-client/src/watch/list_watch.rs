//! What a reflector asks and what it tells, without I/O and without a clock: [`Call`]s come out, answers go in. The
//! [`Reflector`](crate::Reflector) carries it out on a thread; hidden from the documentation, a simulation drives it in
//! virtual time.

use std::ops::ControlFlow;
use std::time::Duration;

use super::plan::{Outcome, Plan, Step};
use super::{ReflectorOptions, WatchEvent};
use crate::meta::escape_into;
use crate::wire::{ListEnd, WireEvent};
use crate::{ApiResource, Error, MetaRef};

/// Metadata in protobuf, else metadata in JSON, else full objects in JSON.
const ACCEPT_LIST: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                           application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// The same for a watch, whose events are single objects.
const ACCEPT_WATCH: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                            application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// For servers that answer 406 to these.
const ACCEPT_PLAIN: &str = "application/json";

/// After so many watches that failed without a bookmark a server counts as one that sends none.
const SILENT_WATCHES_MAX: u32 = 2;

/// Where events go. `Break` ends the reflector.
pub type Sink<'s> = &'s mut dyn FnMut(WatchEvent<'_>) -> ControlFlow<()>;

/// What to do next. Whatever fails goes to [`ListWatch::failed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Nothing, for that long.
    Wait(Duration),
    /// Read a list: its objects go to [`ListWatch::item`], its end to [`ListWatch::page`].
    List { path: String, accept: &'static str },
    /// Open a watch: its head goes to [`ListWatch::opened`], its events to [`ListWatch::event`], and its end, after
    /// about this time, to [`ListWatch::ended`].
    Watch { path: String, accept: &'static str, timeout: Duration },
}

/// Why a watch is to be closed before its end.
#[derive(Clone, Debug)]
pub enum Close {
    /// The sink wants no more.
    Stopped,
    /// The server has gone back, as the sink has been told. [`ListWatch::next_call`] goes on from there.
    WentBack,
    /// The server says so. It is to be handed to [`ListWatch::failed`].
    Failed(Error),
}

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnderWay {
    /// Nothing, or a watch that is not open yet.
    Nothing,
    /// A page of a list.
    Page,
    /// A list of one object, for its version only.
    Probe,
    Watch {
        /// The present state comes first, and is not complete yet.
        is_listing: bool,
        saw_something: bool,
        /// One has come, the one that ends a list left out.
        heard_bookmark: bool,
    },
}

/// The state of one reflector.
#[derive(Debug)]
pub struct ListWatch {
    plan: Plan,
    /// The path of all objects.
    root: String,
    page_size: u32,
    under_way: UnderWay,
    /// A watch has ended in good order, and that has not been told yet.
    has_ended: bool,
    /// How many watches in a row have failed without having brought a bookmark.
    silent_watches: u32,
}

impl ListWatch {
    /// At its beginning.
    pub fn new(resource: &ApiResource, options: &ReflectorOptions) -> ListWatch {
        let root = resource.path("", "");
        ListWatch {
            plan: Plan::of(options, &root),
            root,
            page_size: options.page_size,
            under_way: UnderWay::Nothing,
            has_ended: false,
            silent_watches: 0,
        }
    }

    /// What to do now that what came before is over.
    pub fn next_call(&mut self, sink: Sink<'_>) -> ControlFlow<(), Call> {
        self.under_way = UnderWay::Nothing;
        if std::mem::take(&mut self.has_ended) {
            sink(WatchEvent::Ended)?;
        }
        ControlFlow::Continue(match self.plan.next_step() {
            Step::Wait(duration) => Call::Wait(duration),
            Step::ListPage { continue_token } => {
                self.under_way = UnderWay::Page;
                let mut query = format!("?limit={}", self.page_size);
                if continue_token.is_empty() {
                    sink(WatchEvent::ListStarted)?;
                } else {
                    query.push_str("&continue=");
                    escape_into(&mut query, &continue_token);
                }
                self.list(&query)
            }
            Step::Probe => {
                self.under_way = UnderWay::Probe;
                if self.plan.is_watch_probed() {
                    sink(WatchEvent::Probing)?;
                }
                self.list("?limit=1")
            }
            Step::StreamList { timeout_s } => {
                self.watch(timeout_s, "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
            }
            Step::Watch { resource_version, timeout_s } => {
                let mut query = "&resourceVersion=".to_owned();
                escape_into(&mut query, &resource_version);
                self.watch(timeout_s, &query)
            }
        })
    }

    fn list(&self, query: &str) -> Call {
        let accept = if self.plan.plain_accept() { ACCEPT_PLAIN } else { ACCEPT_LIST };
        Call::List { path: format!("{}{query}", self.root), accept }
    }

    fn watch(&self, timeout_s: u64, query: &str) -> Call {
        let accept = if self.plan.plain_accept() { ACCEPT_PLAIN } else { ACCEPT_WATCH };
        let root = &self.root;
        let path = format!("{root}?watch=true&allowWatchBookmarks=true&timeoutSeconds={timeout_s}{query}");
        Call::Watch { path, accept, timeout: Duration::from_secs(timeout_s) }
    }

    /// An object of a list.
    pub fn item(&self, meta: MetaRef<'_>, sink: Sink<'_>) -> ControlFlow<()> {
        if self.under_way == UnderWay::Page {
            sink(WatchEvent::Listed(meta))
        } else {
            ControlFlow::Continue(())
        }
    }

    /// A list was read to its end.
    pub fn page(&mut self, end: ListEnd, sink: Sink<'_>) -> ControlFlow<()> {
        let resource_version = end.resource_version.as_str();
        if self.under_way == UnderWay::Probe {
            if self.plan.is_behind(resource_version) {
                return self.went_back(resource_version, sink);
            }
            if self.plan.is_watch_probed() {
                sink(WatchEvent::Resumed)?;
            }
            self.plan.on(Outcome::Probed);
            return ControlFlow::Continue(());
        }
        if end.continue_token.is_empty() {
            sink(WatchEvent::ListDone { resource_version })?;
        } else if self.plan.is_older_than_seen(resource_version) {
            // The next page may fail, and the list that is begun anew may find versions that have passed ours.
            sink(WatchEvent::WentBack { resource_version })?;
        }
        if self.plan.goes_in_circles(&end) {
            let request = format!("GET {}", self.root);
            let cause = "a list that has no end, or goes in circles: it is begun anew".to_owned();
            sink(WatchEvent::Failed(&Error::Decode { request, cause }))?;
        }
        self.plan.on(Outcome::Page(end));
        ControlFlow::Continue(())
    }

    /// Whether the next watch gives the present state first.
    pub fn streams_list(&self) -> bool {
        self.plan.streams_list()
    }

    /// The head of a watch's answer is here.
    pub fn opened(&mut self, sink: Sink<'_>) -> ControlFlow<()> {
        let is_listing = self.plan.streams_list();
        self.under_way = UnderWay::Watch { is_listing, saw_something: false, heard_bookmark: false };
        sink(if is_listing { WatchEvent::ListStarted } else { WatchEvent::Watching })
    }

    /// An event of the watch.
    pub fn event(&mut self, event: WireEvent<'_>, sink: Sink<'_>) -> ControlFlow<Close> {
        let UnderWay::Watch { is_listing, saw_something, .. } = &mut self.under_way else {
            return ControlFlow::Continue(());
        };
        let is_listing = *is_listing;
        *saw_something = true;
        let told = match event {
            WireEvent::Added(meta) | WireEvent::Modified(meta) if is_listing => {
                sink(WatchEvent::Listed(meta))
            }
            WireEvent::Added(meta) | WireEvent::Modified(meta) => {
                self.plan.saw(meta.resource_version);
                sink(WatchEvent::Applied(meta))
            }
            WireEvent::Deleted(meta) => {
                if !is_listing {
                    self.plan.saw(meta.resource_version);
                }
                sink(WatchEvent::Deleted(meta))
            }
            // A bookmark without a version says nothing.
            WireEvent::Bookmark { resource_version: "", .. } => ControlFlow::Continue(()),
            WireEvent::Bookmark { resource_version, initial_events_end } if is_listing => {
                self.list_end(resource_version, initial_events_end, sink)
            }
            WireEvent::Bookmark { resource_version, .. } => return self.bookmark(resource_version, sink),
            WireEvent::Error(status) => {
                return ControlFlow::Break(Close::Failed(Error::Status(Box::new(status))));
            }
        };
        told.map_break(|()| Close::Stopped)
    }

    /// A bookmark in a list that is streamed: only one of them ends it.
    fn list_end(&mut self, resource_version: &str, is_end: bool, sink: Sink<'_>) -> ControlFlow<()> {
        if !is_end {
            return ControlFlow::Continue(());
        }
        if let UnderWay::Watch { is_listing, .. } = &mut self.under_way {
            *is_listing = false;
        }
        self.plan.listed(resource_version);
        sink(WatchEvent::ListDone { resource_version })?;
        sink(WatchEvent::Watching)
    }

    fn bookmark(&mut self, resource_version: &str, sink: Sink<'_>) -> ControlFlow<Close> {
        if let UnderWay::Watch { heard_bookmark, .. } = &mut self.under_way {
            *heard_bookmark = true;
        }
        self.silent_watches = 0;
        if self.plan.is_behind(resource_version) {
            let told = self.went_back(resource_version, sink);
            return ControlFlow::Break(if told.is_break() { Close::Stopped } else { Close::WentBack });
        }
        self.plan.saw(resource_version);
        sink(WatchEvent::Bookmark { resource_version }).map_break(|()| Close::Stopped)
    }

    /// The caller is told at once: until the list that follows is complete, the versions may have passed ours, by the
    /// caller's own writes most of all, and the list would show nothing any more (spec S7).
    fn went_back(&mut self, resource_version: &str, sink: Sink<'_>) -> ControlFlow<()> {
        sink(WatchEvent::WentBack { resource_version })?;
        self.plan.on(Outcome::WentBack(resource_version.to_owned()));
        ControlFlow::Continue(())
    }

    /// The watch has ended as a stream should.
    pub fn ended(&mut self, lasted: Duration) {
        let saw_something = matches!(self.under_way, UnderWay::Watch { saw_something: true, .. });
        self.has_ended = !self.is_listing();
        self.plan.on(Outcome::Ended { saw_something, lasted });
    }

    /// What was under way has failed.
    pub fn failed(&mut self, error: &Error, lasted: Duration, sink: Sink<'_>) -> ControlFlow<()> {
        let is_answer = matches!(error, Error::Status(_));
        if !is_answer && matches!(self.under_way, UnderWay::Watch { heard_bookmark: false, .. }) {
            self.silent_watches = self.silent_watches.saturating_add(1);
        }
        sink(WatchEvent::Failed(error))?;
        self.plan.on(Outcome::Failed { error, lasted });
        ControlFlow::Continue(())
    }

    /// Whether the server is taken to send bookmarks, so that a watch without one is dead.
    pub fn expects_bookmarks(&self) -> bool {
        self.silent_watches < SILENT_WATCHES_MAX
    }

    /// Whether the present state is under way on a watch.
    pub fn is_listing(&self) -> bool {
        matches!(self.under_way, UnderWay::Watch { is_listing: true, .. })
    }

    /// Whether a version says that the server has gone back behind what it had shown before.
    pub fn is_behind(&self, resource_version: &str) -> bool {
        self.plan.is_behind(resource_version)
    }
}
