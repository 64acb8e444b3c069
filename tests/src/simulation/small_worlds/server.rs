//! The simulated API server as a table: what each request does in each state, asked once.
//!
//! A state is which *content* each object has: its metadata without its version, and how often a user has changed it. No
//! object returns to an earlier content (references and finalizers go for good and a deletion is never taken back, but
//! for what users do), so the number of a content serves as its version.

use hashbrown::HashMap;
use std::sync::Arc;

use gc_client::{ObjectMeta, OwnerReference};
use gc_core::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER, Reply, Request};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::kinds::{DEFINITIONS_PATH, Kind};
use super::super::link::{reply, to_wire};
use super::super::truth::{Check, Violation};
use super::graphs::{OBJECTS_MAX, World};
use crate::sim::{self, ApiServer, Snapshot, object_meta};

pub(super) const NAMESPACE: &str = "default";
pub(super) const HOLD: &str = "example.com/hold";
/// The number of the content of an object that is gone.
pub(super) const GONE: u8 = u8::MAX;
/// A version that no object has.
const STALE: &str = "1";

/// The number of the content of each object.
pub(super) type Contents = [u8; OBJECTS_MAX];

/// What is in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    /// Its version is its number.
    pub meta: ObjectMeta,
    /// How often a user has changed it.
    user_changes: u8,
    /// The owners, a bit each.
    pub names: u8,
    pub blocks: u8,
}

impl Content {
    pub(super) fn has(&self, finalizer: &str) -> bool {
        self.meta.finalizers.iter().any(|f| f == finalizer)
    }

    pub(super) fn is_orphaning(&self) -> bool {
        self.meta.being_deleted && self.has(ORPHAN_FINALIZER)
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.meta.being_deleted && self.has(FOREGROUND_FINALIZER) && !self.has(ORPHAN_FINALIZER)
    }
}

/// What a user does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Act {
    Delete(usize, &'static str),
    /// Takes the foreign finalizer away.
    LetGo(usize),
}

/// See the [module](self).
pub(super) struct Server {
    pub kind: &'static Kind,
    /// The objects', then that of the owner that never exists.
    pub uids: Vec<String>,
    api: ApiServer,
    contents: Vec<Vec<Content>>,
    snapshots: HashMap<Contents, Snapshot>,
    acts: HashMap<(Contents, Act), Contents>,
}

impl Server {
    /// A server with the objects of a world, and which contents they have.
    pub(super) fn new(world: &World, kind: &'static Kind) -> Result<(Server, Contents), Violation> {
        let mut server = Server {
            kind,
            uids: Vec::new(),
            api: ApiServer::new(1),
            contents: vec![Vec::new(); OBJECTS_MAX],
            snapshots: HashMap::new(),
            acts: HashMap::new(),
        };
        if kind.custom {
            server.must(&sim::Request::post(DEFINITIONS_PATH, &kind.definition()))?;
        }
        for object in 0..world.objects {
            let body = json!({
                "apiVersion": kind.preferred(), "kind": kind.kind, "metadata": {"name": name(object)},
            });
            server.must(&sim::Request::post(&kind.path(NAMESPACE, ""), &body))?;
            let uid = server.object(object).map(|o| object_meta(&o).uid).unwrap_or_default();
            server.uids.push(uid);
        }
        server.uids.push("00000000-0000-4000-8000-000000000000".into());
        for object in 0..world.objects {
            let owners: Vec<Value> =
                world.owners(object).map(|(owner, blocks)| server.reference(owner, blocks)).collect();
            let finalizers: &[&str] = if world.held == Some(object) { &[HOLD] } else { &[] };
            let body = json!({"metadata": {"ownerReferences": owners, "finalizers": finalizers}});
            server.must(&sim::Request::merge_patch(&kind.path(NAMESPACE, &name(object)), &body))?;
        }
        let contents = server.look([GONE; OBJECTS_MAX], None);
        Ok((server, contents))
    }

    fn reference(&self, owner: usize, blocks: bool) -> Value {
        let kind = self.kind;
        json!({
            "apiVersion": kind.preferred(), "kind": kind.kind, "name": name(owner),
            "uid": self.uids.get(owner), "blockOwnerDeletion": blocks,
        })
    }

    fn must(&mut self, request: &sim::Request) -> Result<(), Violation> {
        let code = self.api.handle(Timestamp::UNIX_EPOCH, request).code;
        if code < 300 {
            Ok(())
        } else {
            Err(Violation::new(Check::OtherWrite, format!("{code} for {request:?}")))
        }
    }

    fn object(&self, number: usize) -> Option<Arc<Value>> {
        self.api.object(&self.kind.store(), NAMESPACE, &name(number))
    }

    /// Which contents the objects have now; before, they had others, and a user may have changed one of them.
    fn look(&mut self, before: Contents, by_user: Option<usize>) -> Contents {
        let mut contents = [GONE; OBJECTS_MAX];
        for (object, place) in contents.iter_mut().enumerate() {
            let Some(value) = self.object(object) else { continue };
            let mut meta = object_meta(&value);
            meta.resource_version.clear();
            let known = before.get(object).and_then(|&number| self.content(object, number));
            let is_changed =
                by_user == Some(object) && known.is_some_and(|known| !is_same(&known.meta, &meta));
            let user_changes = known.map_or(0, |known| known.user_changes) + u8::from(is_changed);
            *place = self.number_of(object, meta, user_changes);
        }
        if !self.snapshots.contains_key(&contents) {
            self.snapshots.insert(contents, self.api.snapshot());
        }
        contents
    }

    fn number_of(&mut self, object: usize, mut meta: ObjectMeta, user_changes: u8) -> u8 {
        let Some(known) = self.contents.get_mut(object) else { return GONE };
        let same = |content: &Content| content.user_changes == user_changes && is_same(&content.meta, &meta);
        if let Some(at) = known.iter().position(same) {
            return u8::try_from(at).unwrap_or(GONE);
        }
        let bits = |blocking: bool| {
            let counts = |r: &&OwnerReference| !blocking || r.block_owner_deletion == Some(true);
            let references = meta.owner_references.iter().filter(counts);
            references.fold(0, |bits, r| bits | bit_of(&self.uids, &r.uid))
        };
        let (names, blocks) = (bits(false), bits(true));
        meta.resource_version = version(known.len());
        known.push(Content { meta, user_changes, names, blocks });
        u8::try_from(known.len() - 1).unwrap_or(GONE)
    }

    pub(super) fn content(&self, object: usize, number: u8) -> Option<&Content> {
        self.contents.get(object)?.get(usize::from(number))
    }

    /// The objects that are there.
    pub(super) fn present(&self, contents: Contents) -> impl Iterator<Item = (usize, &Content)> {
        contents
            .into_iter()
            .enumerate()
            .filter_map(|(object, number)| Some((object, self.content(object, number)?)))
    }

    /// A user does something. The contents stay as they are where nothing came of it.
    pub(super) fn act(&mut self, from: Contents, act: Act) -> Contents {
        if let Some(&to) = self.acts.get(&(from, act)) {
            return to;
        }
        let request = match act {
            Act::Delete(object, policy) => {
                let path = self.kind.path(NAMESPACE, &name(object));
                sim::Request::delete(&format!("{path}?propagationPolicy={policy}"))
            }
            Act::LetGo(object) => {
                let content = from.get(object).and_then(|&number| self.content(object, number));
                let rest: Vec<String> = content
                    .map(|content| content.meta.finalizers.iter().filter(|f| *f != HOLD).cloned().collect())
                    .unwrap_or_default();
                let path = self.kind.path(NAMESPACE, &name(object));
                sim::Request::merge_patch(&path, &json!({"metadata": {"finalizers": rest}}))
            }
        };
        let (Act::Delete(object, _) | Act::LetGo(object)) = act;
        let to = self.handle(from, &request, Some(object)).1;
        self.acts.insert((from, act), to);
        to
    }

    /// The collector asks for something.
    pub(super) fn answer(&mut self, from: Contents, request: &Request) -> (Reply, Contents) {
        self.set_back(from);
        let object = self.object_of(request);
        let real = object.and_then(|object| self.object(object)).map(|o| object_meta(&o).resource_version);
        let number = object.and_then(|object| from.get(object).copied()).unwrap_or(GONE);
        let request = with_version(request, |said| match &real {
            Some(real) if said == version(usize::from(number)) => real.clone(),
            _ => STALE.into(),
        });
        let (wire, target) = to_wire(&request, None);
        let (response, to) = self.handle(from, &wire, None);
        let mut reply = reply(&request, target, &response);
        if let (Reply::Object(live), Some(object)) = (&mut reply, object) {
            live.resource_version =
                to.get(object).map(|&number| version(usize::from(number))).unwrap_or_default();
        }
        (reply, to)
    }

    /// Which object a request is about.
    pub(super) fn object_of(&self, request: &Request) -> Option<usize> {
        let (Request::Read(target) | Request::Delete { target, .. } | Request::Patch { target, .. }) =
            request;
        (0..OBJECTS_MAX).find(|&object| name(object) == target.name)
    }

    fn set_back(&mut self, to: Contents) {
        if let Some(snapshot) = self.snapshots.get(&to) {
            self.api.restore(snapshot);
        }
    }

    fn handle(
        &mut self,
        from: Contents,
        request: &sim::Request,
        by_user: Option<usize>,
    ) -> (sim::Response, Contents) {
        self.set_back(from);
        let response = self.api.handle(Timestamp::UNIX_EPOCH, request);
        (response, self.look(from, by_user))
    }
}

/// Whether two objects are the same but for the version.
fn is_same(a: &ObjectMeta, b: &ObjectMeta) -> bool {
    a.being_deleted == b.being_deleted
        && a.finalizers == b.finalizers
        && a.owner_references == b.owner_references
}

pub(super) fn name(object: usize) -> String {
    format!("o{object}")
}

pub(super) fn bit_of(uids: &[String], uid: &str) -> u8 {
    uids.iter().position(|held| held == uid).map_or(0, |at| 1 << at)
}

/// The version of the content with this number. It is no number itself: a content that comes back has the version that it
/// had, so that versions do not count upwards here.
fn version(number: usize) -> String {
    format!("content-{number}")
}

/// The same request, about another version where it is about one.
fn with_version(request: &Request, change: impl Fn(&str) -> String) -> Request {
    let mut request = request.clone();
    match &mut request {
        Request::Read(_) => {}
        Request::Delete { resource_version, .. } => *resource_version = change(resource_version),
        Request::Patch { body, .. } => {
            let mut json: Value = serde_json::from_str(body).unwrap_or_default();
            let said = json.pointer("/metadata/resourceVersion").and_then(Value::as_str).map(&change);
            if let (Some(version), Some(place)) = (said, json.pointer_mut("/metadata/resourceVersion")) {
                *place = version.into();
                *body = json.to_string();
            }
        }
    }
    request
}
