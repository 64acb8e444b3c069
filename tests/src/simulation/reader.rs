//! One watched resource: gc-client's reflector without its thread, driven in virtual time, and the changes that are under
//! way from it to the graph.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::Duration;

use gc_builder::{Change, MonitorId, Seen};
use gc_client::list_watch::{Call, Close, ListWatch};
use gc_client::wire::{Format, ListEnd, WireEvent, read_list};
use gc_client::{ApiResource, Error, ReflectorOptions, Status, WatchEvent};

use super::Mistake;
use super::link::{Link, said, to_error};
use super::truth::Violation;
use crate::sim::{self, WatchId, lend_meta};

/// Small pages, so that lists have several; a small channel, so that it fills.
const PAGE_SIZE: u32 = 3;
const CHANGES_MAX: usize = 16;

/// For so long a watch that is not open keeps the finalizers of orphaning owners where they are, when it was open for
/// [`STEADY`] before: half a minute from when that mattered first.
const KEEPS_OWNERS: Duration = Duration::from_secs(30);
/// Longer than it takes gc-core to forget how long a watch held up owners, since what a reader tells may be held up for a
/// minute.
const STEADY: Duration = Duration::from_secs(150);

/// What the reader waits for.
#[derive(Debug)]
enum Activity {
    Nothing,
    Until(Duration),
    Watching { id: WatchId, began: Duration, polled: u64 },
}

/// gc-client's `Reflector` for one watched resource.
#[derive(Debug)]
pub(super) struct Reader {
    pub resource: ApiResource,
    pub id: MonitorId,
    /// Its changes are held up until then: a slow connection.
    pub stalled_until: Duration,
    changes: VecDeque<Heard>,
    /// So many of them were seen before the server was last restored.
    of_before: usize,
    /// Which restore of the server it has looked after.
    looked: u32,
    /// Since when it hears, unless it has failed or is at a list or a probe.
    open_since: Option<Duration>,
    /// When it began to hear nothing, having been open for long.
    gap_since: Duration,
    list_watch: ListWatch,
    activity: Activity,
}

impl Reader {
    pub(super) fn new(
        resource: ApiResource,
        id: MonitorId,
        (seed, stream_lists): (u64, bool),
        now: Duration,
    ) -> Reader {
        let options =
            ReflectorOptions { seed, stream_lists, page_size: PAGE_SIZE, ..ReflectorOptions::default() };
        Reader {
            list_watch: ListWatch::new(&resource, &options),
            resource,
            id,
            stalled_until: Duration::ZERO,
            changes: VecDeque::new(),
            of_before: 0,
            looked: 0,
            open_since: None,
            gap_since: now,
            activity: Activity::Nothing,
        }
    }

    /// What another reader has still under way comes first.
    pub(super) fn take_over(&mut self, other: &mut Reader, now: Duration) {
        self.changes = std::mem::take(&mut other.changes);
        self.of_before = other.of_before;
        self.stalled_until = other.stalled_until;
        other.hears_nothing(now);
        self.gap_since = other.gap_since;
    }

    /// Whether owners have to wait for what it may show, as far as it has told.
    pub(super) fn keeps_owners(&self, now: Duration) -> bool {
        self.open_since.is_none() && !self.has_changes() && now < self.gap_since + KEEPS_OWNERS
    }

    fn hears_nothing(&mut self, now: Duration) {
        if self.open_since.take().is_some_and(|since| since + STEADY <= now) {
            self.gap_since = now;
        }
    }

    pub(super) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    pub(super) fn can_deliver(&self, now: Duration) -> bool {
        self.has_changes() && self.stalled_until <= now
    }

    /// The next change, when it was heard, and whether that was since the server was last restored.
    pub(super) fn next_change(&mut self) -> Option<(Seen, Duration, bool)> {
        let Heard { seen, at } = self.changes.pop_front()?;
        let is_of_now = self.of_before == 0;
        self.of_before = self.of_before.saturating_sub(1);
        Some((seen, at, is_of_now))
    }

    /// The server was set back to an older state.
    pub(super) fn server_was_restored(&mut self) {
        self.of_before = self.changes.len();
    }

    /// Whether it would notice that the server is at this version.
    pub(super) fn is_ahead_of(&self, version: u64) -> bool {
        self.list_watch.is_behind(&version.to_string())
    }

    /// Whether it has asked the server something since that was last restored.
    pub(super) fn has_looked(&self, link: &Link) -> bool {
        self.looked == link.restores
    }

    /// When there is something to do at the server: now, later, or when the server has something new.
    pub(super) fn acts_at(&self, link: &Link) -> Option<Duration> {
        if self.changes.len() >= CHANGES_MAX {
            return None;
        }
        match &self.activity {
            Activity::Nothing => Some(link.now),
            Activity::Until(until) => Some((*until).max(link.now)),
            Activity::Watching { polled, .. } if *polled != link.server.resource_version() => Some(link.now),
            Activity::Watching { id, .. } => match link.server.watch_wakes_at(*id) {
                None => Some(link.now),
                Some(at) => {
                    let wait = at.duration_since(link.timestamp());
                    Some(link.now + Duration::try_from(wait).unwrap_or_default())
                }
            },
        }
    }

    /// Whether it is watching, with nothing under way.
    pub(super) fn is_quiet(&self, link: &Link) -> bool {
        let is_watching = matches!(&self.activity, Activity::Watching { polled, .. } if *polled == link.server.resource_version());
        is_watching && !self.list_watch.is_listing() && self.changes.is_empty() && self.has_looked(link)
    }

    /// Whether a restart of the server cannot escape it: its watch is open. One that waits may have looked before.
    pub(super) fn is_watching(&self) -> bool {
        matches!(self.activity, Activity::Watching { .. })
    }

    /// The connection breaks, or the reader ends.
    pub(super) fn hang_up(&mut self, link: &mut Link) {
        if let Activity::Watching { id, .. } = &self.activity {
            link.server.close_watch(*id);
        }
    }

    /// One thing: a wait that is over, a request, or what a watch has to say.
    pub(super) fn act(&mut self, link: &mut Link) -> Result<String, Violation> {
        if let Activity::Watching { id, began, .. } = self.activity {
            return self.listen(link, id, began);
        }
        self.activity = Activity::Nothing;
        let call = match self.list_watch.next_call(&mut into(&mut self.changes, self.id, link.now)) {
            ControlFlow::Continue(call) => call,
            ControlFlow::Break(()) => return Ok(String::new()),
        };
        match call {
            Call::Wait(wait) => {
                self.activity = Activity::Until(link.now + wait);
                Ok(said!(link, "waits {} ms", wait.as_millis()))
            }
            Call::List { path, accept } => {
                self.hears_nothing(link.now);
                self.list(link, &path, accept)
            }
            Call::Watch { path, accept, .. } => {
                self.hears_nothing(link.now);
                self.watch(link, &path, accept)
            }
        }
    }

    fn list(&mut self, link: &mut Link, path: &str, accept: &str) -> Result<String, Violation> {
        let response = link.list(path, accept)?;
        if let Some(error) = to_error(&response, path) {
            return Ok(self.failed(link, &error, Duration::ZERO));
        }
        let format = Format::from_content_type(&response.content_type).unwrap_or(Format::Json);
        let mut count = 0;
        let read = {
            let mut sink = into(&mut self.changes, self.id, link.now);
            read_list(format, response.body_bytes(), &mut |meta| {
                count += 1;
                self.list_watch.item(meta, &mut sink)
            })
        };
        let end = match read {
            Ok(end) => end,
            Err(_) if link.mistake == Some(Mistake::HalfListIsWhole) && 0 < count => {
                let resource_version = link.server.resource_version().to_string();
                ListEnd { resource_version, ..ListEnd::default() }
            }
            Err(error) => {
                let error = Error::Decode { request: path.into(), cause: error.to_string() };
                return Ok(self.failed(link, &error, Duration::ZERO));
            }
        };
        self.looked = link.restores;
        let said = said!(link, "{} -> {count} objects, v{}", query(path), end.resource_version);
        let _ = self.list_watch.page(end, &mut into(&mut self.changes, self.id, link.now));
        Ok(said)
    }

    fn failed(&mut self, link: &Link, error: &Error, lasted: Duration) -> String {
        self.hears_nothing(link.now);
        let _ = self.list_watch.failed(error, lasted, &mut into(&mut self.changes, self.id, link.now));
        format!("fails: {error}")
    }

    fn watch(&mut self, link: &mut Link, path: &str, accept: &str) -> Result<String, Violation> {
        let response = link.get(path, accept)?;
        if let Some(error) = to_error(&response, path) {
            return Ok(self.failed(link, &error, Duration::ZERO));
        }
        let Some(id) = response.watch() else {
            let error = Error::Decode { request: path.into(), cause: "not a watch".into() };
            return Ok(self.failed(link, &error, Duration::ZERO));
        };
        let _ = self.list_watch.opened(&mut into(&mut self.changes, self.id, link.now));
        if self.list_watch.is_listing() {
            self.looked = link.restores;
            self.hears_nothing(link.now);
        } else {
            self.open_since.get_or_insert(link.now);
        }
        self.activity = Activity::Watching { id, began: link.now, polled: u64::MAX };
        Ok(said!(link, "{}", query(path)))
    }

    fn listen(&mut self, link: &mut Link, id: WatchId, began: Duration) -> Result<String, Violation> {
        let poll = link.poll(id)?;
        let count = poll.events.len();
        let lasted = link.now.saturating_sub(began);
        let heard = {
            let mut sink = into(&mut self.changes, self.id, link.now);
            let mut hear = |event: &_| wire_event(event, |event| self.list_watch.event(event, &mut sink));
            poll.events.iter().try_for_each(&mut hear)
        };
        if !self.list_watch.is_listing() {
            self.open_since.get_or_insert(link.now);
        }
        self.activity = Activity::Nothing;
        match heard {
            ControlFlow::Continue(()) if poll.ended => {
                self.list_watch.ended(lasted);
                Ok(said!(link, "hears {count} events and the end of the watch"))
            }
            ControlFlow::Continue(()) => {
                let polled = link.server.resource_version();
                self.activity = Activity::Watching { id, began, polled };
                Ok(said!(link, "hears {count} events"))
            }
            ControlFlow::Break(Close::Failed(error)) => Ok(self.failed(link, &error, lasted)),
            ControlFlow::Break(Close::WentBack | Close::Stopped) => {
                link.server.close_watch(id);
                Ok("hears that the server went back".into())
            }
        }
    }
}

/// A change on its way to the graph.
#[derive(Debug)]
struct Heard {
    seen: Seen,
    at: Duration,
}

/// The end of the channel that a reader's thread has.
fn into(
    changes: &mut VecDeque<Heard>,
    monitor: MonitorId,
    at: Duration,
) -> impl FnMut(WatchEvent<'_>) -> ControlFlow<()> {
    move |event| {
        changes.push_back(Heard { seen: Seen { monitor, change: Change::from(&event) }, at });
        ControlFlow::Continue(())
    }
}

/// An event of the server as gc-client would have decoded it.
fn wire_event<T>(event: &sim::WatchEvent, call: impl FnOnce(WireEvent<'_>) -> T) -> T {
    let object = &event.object;
    if event.kind == "ERROR" {
        return call(WireEvent::Error(Status::from_body(0, None, object.to_string().as_bytes())));
    }
    lend_meta(object, |meta| {
        call(match event.kind {
            "ADDED" => WireEvent::Added(meta),
            "MODIFIED" => WireEvent::Modified(meta),
            "DELETED" => WireEvent::Deleted(meta),
            _ => WireEvent::Bookmark {
                resource_version: meta.resource_version,
                initial_events_end: object
                    .pointer("/metadata/annotations/k8s.io~1initial-events-end")
                    .is_some(),
            },
        })
    })
}

/// What a request asks, for a trace.
fn query(path: &str) -> &str {
    path.split_once('?').map_or(path, |(_, query)| query)
}
