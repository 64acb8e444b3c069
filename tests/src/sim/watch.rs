//! Watches: a place in the history of changes, and what is due from there on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::list::parse_version;
use super::object;
use super::registry::Scope;
use super::render::Form;
use super::request::Request;
use super::select::Selector;
use super::status::{ApiError, FieldError};
use super::store::{Change, State, in_namespace};

/// How long a watch lives that names no time: the least that a real server gives.
const DEFAULT_LIFE_S: i64 = 1800;
/// The last bookmark comes this long before a watch ends.
const BOOKMARK_BEFORE_END: SignedDuration = SignedDuration::from_secs(2);
/// At most so many events leave in one poll, so that a reader that was away for long does not get one huge answer.
const EVENTS_PER_POLL: usize = 1_000;

/// One event of a watch.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchEvent {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub kind: &'static str,
    /// The whole object, in the version in which it is stored; for `ERROR` the `Status`.
    pub object: Arc<Value>,
}

/// What a watch has to say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchPoll {
    /// What is new, decoded.
    pub events: Vec<WatchEvent>,
    /// The same as bytes, in the form that the client asked for.
    pub bytes: Vec<u8>,
    /// Nothing will follow; the watch is closed.
    pub ended: bool,
}

/// An open watch.
pub(crate) struct Watch {
    scope: Scope,
    selector: Selector,
    form: Form,
    /// The objects that come first.
    initial: VecDeque<Arc<Value>>,
    /// The bookmark after them, when the client asked for the end to be marked.
    marks_end: bool,
    /// Changes above this one are still to be sent.
    seen: u64,
    bookmarks: bool,
    bookmark_every: SignedDuration,
    next_bookmark: Timestamp,
    deadline: Timestamp,
    columns: bool,
    failed: Option<ApiError>,
    with_bytes: bool,
}

impl Watch {
    /// Opens a watch, with bookmarks at least so often. Errors that the real server puts into the stream are put there.
    pub fn open(
        state: &State,
        scope: &Scope,
        request: &Request,
        form: Form,
        bookmark_every: Duration,
        now: Timestamp,
    ) -> Result<Watch, ApiError> {
        let selector = Selector::parse(&scope.resource, request)?;
        let send_initial = request.query("sendInitialEvents").map(|v| v != "false" && v != "0");
        check_options(request, send_initial)?;
        let version = parse_version(&request.query("resourceVersion").unwrap_or_default())
            .map_err(|why| ApiError::status(500, "", &why, Value::Null))?;
        let bookmarks = request.query_flag("allowWatchBookmarks");
        let life_s: i64 = request.query("timeoutSeconds").and_then(|v| v.parse().ok()).unwrap_or(0);
        let life_s = if life_s <= 0 { DEFAULT_LIFE_S } else { life_s.min(86_400) };
        let deadline = now.saturating_add(SignedDuration::from_secs(life_s)).unwrap_or(now);
        let with_initial = send_initial.unwrap_or(version == 0);
        let mut watch = Watch {
            scope: scope.clone(),
            selector,
            form,
            initial: VecDeque::new(),
            marks_end: send_initial == Some(true) && bookmarks,
            seen: if version == 0 || with_initial { state.resource_version } else { version },
            bookmarks,
            bookmark_every: SignedDuration::try_from(bookmark_every).unwrap_or(SignedDuration::MAX),
            next_bookmark: now,
            deadline,
            columns: true,
            failed: None,
            with_bytes: true,
        };
        watch.schedule_bookmark(now);
        if with_initial {
            if version > state.resource_version {
                return Err(ApiError::too_large_resource_version(version, state.resource_version));
            }
            let objects = state.list(&scope.resource, &scope.namespace);
            watch.initial = objects.into_iter().filter(|o| watch.selector.matches(o)).collect();
        }
        watch.failed = watch.expired(state);
        Ok(watch)
    }

    /// The 410 of a watch whose place in the history is forgotten.
    fn expired(&self, state: &State) -> Option<ApiError> {
        let forgotten = state.stores.get(&self.scope.resource.store)?.forgotten;
        (self.seen < forgotten)
            .then(|| ApiError::expired(&format!("too old resource version: {} ({forgotten})", self.seen)))
    }

    /// The error that the watch begins with, for servers that answer it as the HTTP status.
    pub fn initial_error(&self) -> Option<ApiError> {
        self.failed.clone()
    }

    pub fn content_type(&self) -> &'static str {
        self.form.watch_content_type()
    }

    /// When this watch next has something to do without any write: a bookmark, or its end.
    pub fn next_wake(&self) -> Timestamp {
        if self.bookmarks { self.next_bookmark.min(self.deadline) } else { self.deadline }
    }

    /// The qualified resource.
    pub fn resource(&self) -> String {
        self.scope.resource.qualified()
    }

    /// What is new since the last poll.
    pub fn poll(&mut self, state: &State, now: Timestamp, with_bytes: bool) -> WatchPoll {
        self.with_bytes = with_bytes;
        let mut poll = WatchPoll::default();
        if let Some(error) = self.failed.take().or_else(|| self.expired(state)) {
            poll.bytes = self.form.watch_error(&error);
            poll.events.push(WatchEvent { kind: "ERROR", object: Arc::new(error.status_object()) });
            poll.ended = true;
            return poll;
        }
        while let Some(object) = self.initial.pop_front() {
            self.emit(&mut poll, "ADDED", object, now);
        }
        if self.marks_end {
            self.marks_end = false;
            self.bookmark(&mut poll, json!({"k8s.io/initial-events-end": "true"}), now);
        }
        self.send_changes(state, &mut poll, now);
        if self.bookmarks && now >= self.next_bookmark && now < self.deadline {
            // All changes up to here were sent, or concern other resources. A watch from a version that the server has not
            // reached hears nothing until it has, not even this.
            if poll.events.len() < EVENTS_PER_POLL && self.seen <= state.resource_version {
                self.seen = state.resource_version;
                self.bookmark(&mut poll, Value::Null, now);
            }
            self.schedule_bookmark(now);
        }
        let served = state
            .find_qualified(&self.scope.resource.qualified())
            .is_some_and(|resource| resource.serves(&self.scope.version));
        poll.ended = now >= self.deadline || !served;
        poll
    }

    fn send_changes(&mut self, state: &State, poll: &mut WatchPoll, now: Timestamp) {
        let Some(store) = state.stores.get(&self.scope.resource.store) else { return };
        let start = store.events.partition_point(|c| c.resource_version <= self.seen);
        for change in store.events.range(start..) {
            if poll.events.len() >= EVENTS_PER_POLL {
                return;
            }
            self.seen = change.resource_version;
            if let Some((kind, object)) = self.event_for(change) {
                self.emit(poll, kind, object, now);
            }
        }
    }

    /// How a change looks from here: an object that leaves the selection is deleted as far as this watch goes.
    fn event_for(&self, change: &Change) -> Option<(&'static str, Arc<Value>)> {
        if !in_namespace(&change.key, &self.scope.namespace) {
            return None;
        }
        let before = change.before.as_ref().filter(|b| self.selector.matches(b));
        let after = !change.deleted && self.selector.matches(&change.object);
        match (before, after) {
            (None, true) => Some(("ADDED", change.object.clone())),
            (Some(_), true) => Some(("MODIFIED", change.object.clone())),
            (Some(_), false) if change.deleted => Some(("DELETED", change.object.clone())),
            (Some(before), false) => {
                let mut last = Value::clone(before);
                object::set_meta(&mut last, "resourceVersion", change.resource_version.to_string().into());
                Some(("DELETED", Arc::new(last)))
            }
            (None, false) => None,
        }
    }

    fn bookmark(&mut self, poll: &mut WatchPoll, annotations: Value, now: Timestamp) {
        let resource = &self.scope.resource;
        let mut object = json!({
            "apiVersion": resource.stored_api_version(), "kind": resource.kind,
            "metadata": {"resourceVersion": self.seen.to_string()},
        });
        object::set_meta(&mut object, "annotations", annotations);
        self.emit(poll, "BOOKMARK", Arc::new(object), now);
    }

    fn emit(&mut self, poll: &mut WatchPoll, kind: &'static str, object: Arc<Value>, now: Timestamp) {
        if self.with_bytes {
            let bytes = self.form.watch_event(
                kind,
                &self.scope.resource,
                &self.scope.version,
                &object,
                now,
                std::mem::take(&mut self.columns),
            );
            poll.bytes.extend(bytes);
        }
        poll.events.push(WatchEvent { kind, object });
    }

    fn schedule_bookmark(&mut self, now: Timestamp) {
        let regular = now.saturating_add(self.bookmark_every).unwrap_or(now);
        let last = self.deadline.saturating_sub(BOOKMARK_BEFORE_END).unwrap_or(self.deadline);
        self.next_bookmark = if last > now { regular.min(last) } else { regular };
    }
}

/// `validateWatchOptions` of apimachinery.
fn check_options(request: &Request, send_initial: Option<bool>) -> Result<(), ApiError> {
    let field = "resourceVersionMatch";
    let version_match = request.query(field).unwrap_or_default();
    let mut errors = Vec::new();
    if send_initial.is_some() && version_match != "NotOlderThan" {
        let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.push(FieldError::forbidden(field, detail));
    }
    if !version_match.is_empty() {
        if send_initial.is_none() {
            let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden(field, detail));
        }
        if version_match != "NotOlderThan" {
            errors.push(FieldError::not_supported(field, &version_match, &["NotOlderThan"]));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors))
}
