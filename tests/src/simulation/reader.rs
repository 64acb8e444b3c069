//! One watched resource: gc-client's plan of a reflector, driven in virtual time, and the changes that are under way
//! from it to the graph.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::Duration;

use gc_builder::{Change, MonitorId, Seen};
use gc_client::plan::{Outcome, Plan, Step};
use gc_client::wire::{Format, ListEnd, read_list};
use gc_client::{ApiResource, Error, ObjectMeta, ReflectorOptions, Status};

use super::Mistake;
use super::link::{Link, said, to_error};
use super::truth::Violation;
use crate::sim::{WatchEvent, WatchId, object_meta};

/// Small pages, so that lists have several; a small channel, so that it fills.
const PAGE_SIZE: u32 = 3;
const CHANGES_MAX: usize = 16;

/// What the reader waits for.
#[derive(Debug)]
enum Activity {
    Nothing,
    Until(Duration),
    Watching { id: WatchId, began: Duration, listing: bool, saw_something: bool, polled: u64 },
}

/// gc-client's `Reflector` for one watched resource.
#[derive(Debug)]
pub(super) struct Reader {
    pub resource: ApiResource,
    pub id: MonitorId,
    /// Its changes are held up until then: a slow connection.
    pub stalled_until: Duration,
    changes: VecDeque<Seen>,
    /// So many of them were seen before the server was last restored.
    of_before: usize,
    /// Which restore of the server it has looked after.
    looked: u32,
    root: String,
    plan: Plan,
    activity: Activity,
}

impl Reader {
    pub(super) fn new(resource: ApiResource, id: MonitorId, seed: u64, stream_lists: bool) -> Reader {
        let options =
            ReflectorOptions { seed, stream_lists, page_size: PAGE_SIZE, ..ReflectorOptions::default() };
        let root = resource.path("", "");
        Reader {
            resource,
            id,
            stalled_until: Duration::ZERO,
            changes: VecDeque::new(),
            of_before: 0,
            looked: 0,
            plan: Plan::of(&options, &root),
            root,
            activity: Activity::Nothing,
        }
    }

    /// What another reader has still under way comes first.
    pub(super) fn take_over(&mut self, other: &mut Reader) {
        self.changes = std::mem::take(&mut other.changes);
        self.of_before = other.of_before;
        self.stalled_until = other.stalled_until;
    }

    pub(super) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    pub(super) fn can_deliver(&self, now: Duration) -> bool {
        self.has_changes() && self.stalled_until <= now
    }

    /// The next change, and whether it was seen since the server was last restored.
    pub(super) fn next_change(&mut self) -> Option<(Seen, bool)> {
        let seen = self.changes.pop_front()?;
        let is_of_now = self.of_before == 0;
        self.of_before = self.of_before.saturating_sub(1);
        Some((seen, is_of_now))
    }

    /// The server was set back to an older state.
    pub(super) fn server_was_restored(&mut self) {
        self.of_before = self.changes.len();
    }

    /// Whether it would notice that the server is at this version.
    pub(super) fn is_ahead_of(&self, version: u64) -> bool {
        self.plan.is_behind(&version.to_string())
    }

    /// Whether it has asked the server something since that was last restored.
    pub(super) fn has_looked(&self, link: &Link) -> bool {
        self.looked == link.restores
    }

    fn push(&mut self, change: Change) {
        self.changes.push_back(Seen { monitor: self.id, change });
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
        let is_watching = matches!(&self.activity, Activity::Watching { listing: false, polled, .. } if *polled == link.server.resource_version());
        is_watching && self.changes.is_empty() && self.has_looked(link)
    }

    /// The connection breaks, or the reader ends.
    pub(super) fn hang_up(&mut self, link: &mut Link) {
        if let Activity::Watching { id, .. } = &self.activity {
            link.server.close_watch(*id);
        }
    }

    /// One thing: a wait that is over, a request, or what a watch has to say.
    pub(super) fn act(&mut self, link: &mut Link) -> Result<String, Violation> {
        if let Activity::Watching { .. } = self.activity {
            return self.listen(link);
        }
        self.activity = Activity::Nothing;
        match self.plan.next_step() {
            Step::Wait(wait) => {
                self.activity = Activity::Until(link.now + wait);
                Ok(said!(link, "waits {} ms", wait.as_millis()))
            }
            Step::ListPage { continue_token } => {
                let mut path = format!("{}?limit={PAGE_SIZE}", self.root);
                if continue_token.is_empty() {
                    self.push(Change::ListStarted);
                } else {
                    path = format!("{path}&continue={continue_token}");
                }
                self.list_page(link, &path)
            }
            Step::StreamList { timeout_s } => {
                let query = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
                self.watch(link, query, timeout_s, true)
            }
            Step::Watch { resource_version, timeout_s } => {
                self.watch(link, &format!("&resourceVersion={resource_version}"), timeout_s, false)
            }
            Step::Probe => self.probe(link),
        }
    }

    fn probe(&mut self, link: &mut Link) -> Result<String, Violation> {
        let path = format!("{}?limit=1", self.root);
        let end = match read_page(link, &path, &mut Vec::new())? {
            Ok(end) => end,
            Err(error) => return Ok(self.failed(error, Duration::ZERO)),
        };
        self.looked = link.restores;
        let said = said!(link, "probes: version {}", end.resource_version);
        if self.plan.resumes_watch(&end.resource_version) {
            self.push(Change::Resumed);
        }
        self.plan.on(Outcome::Probed(end.resource_version));
        Ok(said)
    }

    fn list_page(&mut self, link: &mut Link, path: &str) -> Result<String, Violation> {
        let mut listed = Vec::new();
        let end = read_page(link, path, &mut listed)?;
        let count = listed.len();
        listed.into_iter().for_each(|meta| self.push(Change::Seen(meta)));
        let end = match end {
            Ok(end) => end,
            Err(Error::Decode { .. }) if link.mistake == Some(Mistake::HalfListIsWhole) && 0 < count => {
                let resource_version = link.server.resource_version().to_string();
                ListEnd { resource_version, ..ListEnd::default() }
            }
            Err(error) => return Ok(self.failed(error, Duration::ZERO)),
        };
        self.looked = link.restores;
        let said = said!(link, "lists {count}, version {}", end.resource_version);
        if end.continue_token.is_empty() {
            self.push(Change::ListDone(end.resource_version.clone()));
        }
        self.plan.on(Outcome::Page(end));
        Ok(said)
    }

    fn failed(&mut self, error: Error, lasted: Duration) -> String {
        self.plan.on(Outcome::Failed { error: &error, lasted });
        let said = format!("fails: {error}");
        self.push(Change::Failed(error));
        said
    }

    fn watch(
        &mut self,
        link: &mut Link,
        query: &str,
        timeout_s: u64,
        listing: bool,
    ) -> Result<String, Violation> {
        let root = &self.root;
        let path = format!("{root}?watch=true&allowWatchBookmarks=true&timeoutSeconds={timeout_s}{query}");
        let response = link.watch(&path)?;
        if let Some(error) = to_error(&response, &self.root) {
            return Ok(self.failed(error, Duration::ZERO));
        }
        let Some(id) = response.watch() else {
            let cause = "not a watch".to_owned();
            return Ok(self.failed(Error::Decode { request: path, cause }, Duration::ZERO));
        };
        if listing {
            self.looked = link.restores;
            self.push(Change::ListStarted);
        }
        self.activity =
            Activity::Watching { id, began: link.now, listing, saw_something: false, polled: u64::MAX };
        Ok(said!(link, "watches{query}"))
    }

    fn listen(&mut self, link: &mut Link) -> Result<String, Violation> {
        let Activity::Watching { id, began, .. } = self.activity else { return Ok(String::new()) };
        let poll = link.poll(id)?;
        let count = poll.events.len();
        let lasted = link.now.saturating_sub(began);
        for event in poll.events {
            match self.hear(&event) {
                Heard::On => {}
                Heard::WentBack => {
                    link.server.close_watch(id);
                    self.activity = Activity::Nothing;
                    self.plan.on(Outcome::WentBack);
                    return Ok("hears that the server went back".into());
                }
                Heard::Failed(error) => {
                    self.activity = Activity::Nothing;
                    return Ok(self.failed(error, lasted));
                }
            }
        }
        let Activity::Watching { saw_something, polled, .. } = &mut self.activity else {
            return Ok(String::new());
        };
        *polled = link.server.resource_version();
        *saw_something |= count > 0;
        if !poll.ended {
            return Ok(said!(link, "hears {count} events"));
        }
        let saw_something = *saw_something;
        self.activity = Activity::Nothing;
        self.plan.on(Outcome::Ended { saw_something, lasted });
        Ok(said!(link, "hears {count} events and the end of the watch"))
    }

    fn hear(&mut self, event: &WatchEvent) -> Heard {
        let Activity::Watching { listing, .. } = &mut self.activity else { return Heard::On };
        let object = &event.object;
        match event.kind {
            "ERROR" => {
                let status = Status::from_body(0, None, object.to_string().as_bytes());
                return Heard::Failed(Error::Status(Box::new(status)));
            }
            "BOOKMARK" => {
                let meta = object_meta(object);
                let ends_list = object.pointer("/metadata/annotations/k8s.io~1initial-events-end").is_some();
                if *listing && ends_list {
                    *listing = false;
                    self.plan.listed(&meta.resource_version);
                    self.push(Change::ListDone(meta.resource_version));
                } else if !*listing {
                    if self.plan.is_behind(&meta.resource_version) {
                        return Heard::WentBack;
                    }
                    self.plan.saw(&meta.resource_version);
                    self.push(Change::Bookmark(meta.resource_version));
                }
            }
            kind => {
                let meta = object_meta(object);
                if !*listing {
                    self.plan.saw(&meta.resource_version);
                }
                let change = if kind == "DELETED" { Change::Deleted(meta) } else { Change::Seen(meta) };
                self.push(change);
            }
        }
        Heard::On
    }
}

enum Heard {
    On,
    WentBack,
    Failed(Error),
}

fn read_page(
    link: &mut Link,
    path: &str,
    listed: &mut Vec<ObjectMeta>,
) -> Result<Result<ListEnd, Error>, Violation> {
    let response = link.list(path)?;
    if let Some(error) = to_error(&response, path) {
        return Ok(Err(error));
    }
    let format = Format::from_content_type(&response.content_type).unwrap_or(Format::Json);
    let mut sink = |meta: gc_client::MetaRef<'_>| {
        listed.push(meta.to_owned());
        ControlFlow::Continue(())
    };
    Ok(read_list(format, response.body_bytes(), &mut sink)
        .map_err(|error| Error::Decode { request: path.into(), cause: error.to_string() }))
}
