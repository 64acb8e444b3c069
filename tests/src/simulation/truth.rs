//! What is true, from the server's own history of writes, and whether a write of the collector was right.
//!
//! Nothing here is taken from the collector's graph.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gc_client::{ObjectMeta, OwnerReference};
use gc_core::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER, Resource};

use super::jobs::{self, Jobs};
use super::kinds::{DEFINITIONS, JOB, KINDS, Kind, all_kinds};
use super::ttl::EXPIRER;
use crate::sim::{ApiServer, Write, object_meta};

/// How the collector signs its requests.
pub(super) const COLLECTOR: &str = "gc";

/// What must hold; a failure names one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// An object was deleted although it had an owner that lives, or whose absence nobody can have proved.
    LiveOwner,
    /// A dependent of an owner that was deleted with Orphan was deleted.
    OrphanDeleted,
    /// An owner lost `orphan` although dependents that it had been shown still name it.
    OrphanedTooEarly,
    /// An owner lost `orphan` although dependents still name it, and the watch that was to show them was not open.
    OrphanedUnheard,
    /// An owner lost `foregroundDeletion` although it had been shown blocking dependents.
    ForegroundTooEarly,
    /// A finalizer that is not the collector's own was removed or moved.
    Finalizers,
    /// A reference to an owner that lives was removed.
    ReferenceRemoved,
    /// A request without the precondition that it should have.
    Precondition,
    /// The collector wrote what it has no business to write.
    OtherWrite,
    /// Something should be gone, and is not.
    NotCollected,
    /// A finalizer of the collector's is left on something that nothing holds.
    FinalizerLeft,
    /// A reference that should have been removed is left.
    ReferenceLeft,
    /// A job was deleted for its TTL before that had expired, or one that has none.
    ExpiredTooEarly,
    /// A job whose TTL has expired is left.
    ExpiredLeft,
    /// Work does not end.
    NoRest,
    /// The graph is not what the server has.
    Graph,
    /// A virtual node is left without a reason.
    VirtualLeft,
    /// An idle collector sends requests.
    Idle,
    /// The program panicked.
    Panic,
}

/// A check that failed.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub check: Check,
    /// What happened, for a person.
    pub what: String,
}

impl Violation {
    pub(super) fn new(check: Check, what: impl Into<String>) -> Violation {
        Violation { check, what: what.into() }
    }
}

/// An object as the server has it now.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub kind: &'static Kind,
    pub meta: ObjectMeta,
}

impl Object {
    pub(super) fn is_waiting(&self) -> bool {
        self.meta.being_deleted && self.has(FOREGROUND_FINALIZER) && !self.has(ORPHAN_FINALIZER)
    }

    pub(super) fn is_orphaning(&self) -> bool {
        self.meta.being_deleted && self.has(ORPHAN_FINALIZER)
    }

    pub(super) fn has(&self, finalizer: &str) -> bool {
        self.meta.finalizers.iter().any(|f| f == finalizer)
    }

    pub(super) fn blocks(&self, owner_uid: &str) -> bool {
        self.meta.owner_references.iter().any(|r| r.uid == owner_uid && r.block_owner_deletion == Some(true))
    }

    pub(super) fn names(&self, owner_uid: &str) -> bool {
        self.meta.owner_references.iter().any(|r| r.uid == owner_uid)
    }

    /// For people.
    pub(super) fn show(&self) -> String {
        show(self.kind, &self.meta)
    }
}

fn show(kind: &Kind, meta: &ObjectMeta) -> String {
    let at = if meta.namespace.is_empty() { String::new() } else { format!(" @{}", meta.namespace) };
    format!("{}/{}{at} {}", kind.short, meta.name, short_uid(&meta.uid))
}

/// Enough of a UID to tell objects apart in a trace.
pub(super) fn short_uid(uid: &str) -> &str {
    uid.get(..8).unwrap_or(uid)
}

/// What one reference of a dependent means at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// It exists where the reference says: the object of that UID and name, of a kind of that group in a served
    /// version, in the dependent's namespace if the kind is namespaced and in none otherwise.
    Solid,
    /// The same, and it is being deleted with `foregroundDeletion` and without `orphan`.
    Waiting,
    /// The same, and it is being deleted with `orphan`.
    Orphaning,
    /// The server serves the kind, and what is there has another UID or is not there.
    Absent,
    /// Nothing serves the kind now, but it was served before, and no object of that kind has the UID.
    AbsentUnserved,
    /// Nothing serves the kind.
    NotServed,
    /// A cluster-scoped dependent names an owner of a namespaced kind, or the name is one that no object can have.
    Unresolvable,
}

/// The request behind a write of the collector.
#[derive(Clone, Debug)]
pub(super) struct Cause {
    /// The step in which the attempt began: its proofs are not older, but for those of absence, which last.
    pub since: u64,
    /// Which life of the collector it is of.
    pub life: u32,
    pub is_delete: bool,
}

/// An owner from which the collector took `orphan`.
#[derive(Clone, Debug)]
struct Orphaned {
    life: u32,
    /// When its deletion with Orphan began.
    since: u64,
    kind: &'static Kind,
    namespace: String,
    name: String,
}

/// Everything that is true, kept up to date write by write.
#[derive(Clone, Debug, Default)]
pub(super) struct Truth {
    /// By UID.
    pub objects: BTreeMap<String, Object>,
    /// Whatever existed once, in the order of creation.
    pub past: Vec<Object>,
    places: BTreeMap<(String, String, String), String>,
    definitions: BTreeSet<String>,
    served_once: BTreeSet<String>,
    pub jobs: Jobs,
    writes_seen: usize,
    pub step: u64,
    /// When each step began, in virtual time.
    began: Vec<Duration>,
    /// Objects whose deletion the collector began.
    pub deleted: u64,
    /// How often the collector was started.
    pub life: u32,
    /// Checks that count for nothing.
    ignored: BTreeSet<Check>,
    /// In which step the server was last set back to an older state.
    restored_at: u64,
    waiting_until: BTreeMap<String, u64>,
    orphaning_until: BTreeMap<String, u64>,
    orphaning_since: BTreeMap<String, u64>,
    orphaned: BTreeMap<String, Orphaned>,
    /// (dependent, owner) to the step in which the reference was written.
    reference_since: BTreeMap<(String, String), u64>,
}

impl Truth {
    /// Nothing yet. What the ignored checks find counts for nothing.
    pub(super) fn new(ignored: BTreeSet<Check>) -> Truth {
        Truth { ignored, ..Truth::default() }
    }

    /// The server is set back to what was true when it was backed up.
    pub(super) fn go_back_to(&mut self, backup: &Truth) {
        let now = std::mem::replace(self, backup.clone());
        self.past = now.past;
        self.served_once.extend(now.served_once);
        (self.writes_seen, self.step, self.deleted, self.life) =
            (now.writes_seen, now.step, now.deleted, now.life);
        self.ignored = now.ignored;
        self.jobs.go_back_from(now.jobs);
        self.restored_at = now.step;
        // Orphaning that is undone by the restore may be under way; it spares objects, so it is let pass.
        let orphaning = now.orphaning_since.into_keys().chain(now.orphaning_until.into_keys());
        self.orphaning_until.extend(orphaning.map(|uid| (uid, now.step)));
    }

    /// Takes over what the server has written since the last call. `cause` is the collector's request behind the
    /// writes that are signed by it.
    pub(super) fn catch_up(&mut self, server: &ApiServer, cause: Option<&Cause>) -> Result<(), Violation> {
        for write in server.writes().skip(self.writes_seen) {
            self.writes_seen += 1;
            self.take(write, cause)?;
        }
        Ok(())
    }

    fn take(&mut self, write: &Write, cause: Option<&Cause>) -> Result<(), Violation> {
        if write.resource == DEFINITIONS {
            if write.user_agent == COLLECTOR {
                return Err(Violation::new(
                    Check::OtherWrite,
                    format!("{} of {}", write.resource, write.key),
                ));
            }
            self.take_definition(write);
            return Ok(());
        }
        if write.user_agent == EXPIRER {
            self.unless_ignored(jobs::judge(write, server_ms(self.began(self.step))))?;
            self.jobs.expired += 1;
        }
        let Some(kind) = Kind::stored_in(&write.resource) else { return Ok(()) };
        if kind == &JOB {
            self.jobs.take(write);
        }
        let meta = |value: &Option<std::sync::Arc<serde_json::Value>>| {
            value.as_ref().map(|v| Object { kind, meta: object_meta(v) })
        };
        let (before, after) = (meta(&write.before), meta(&write.after));
        if write.user_agent == COLLECTOR {
            self.unless_ignored(self.judge(before.as_ref(), after.as_ref(), cause))?;
            self.deleted += u64::from(cause.is_some_and(|cause| cause.is_delete));
        }
        self.apply(before.as_ref(), after, cause.filter(|_| write.user_agent == COLLECTOR));
        Ok(())
    }

    pub(super) fn unless_ignored(&self, judged: Result<(), Violation>) -> Result<(), Violation> {
        judged.or_else(|found| if self.ignored.contains(&found.check) { Ok(()) } else { Err(found) })
    }

    fn take_definition(&mut self, write: &Write) {
        if write.after.is_some() {
            self.definitions.insert(write.key.clone());
            self.served_once.insert(write.key.clone());
        } else {
            self.definitions.remove(&write.key);
        }
    }

    pub(super) fn is_served(&self, kind: &Kind) -> bool {
        !kind.custom || self.definitions.contains(&kind.store())
    }

    pub(super) fn owner(&self, namespace: &str, reference: &OwnerReference) -> Owner {
        let Some(kind) = Kind::named(&reference.api_version, &reference.kind) else {
            return Owner::NotServed;
        };
        if !self.is_served(kind) {
            let was_served = self.served_once.contains(&kind.store());
            let exists = self.objects.get(&reference.uid).is_some_and(|owner| owner.kind == kind);
            return if was_served && !exists { Owner::AbsentUnserved } else { Owner::NotServed };
        }
        let impossible =
            matches!(reference.name.as_str(), "" | "." | "..") || reference.name.contains(['/', '%']);
        if (kind.namespaced && namespace.is_empty()) || impossible {
            return Owner::Unresolvable;
        }
        let namespace = if kind.namespaced { namespace } else { "" };
        match self.at(kind, namespace, &reference.name).filter(|owner| owner.meta.uid == reference.uid) {
            None => Owner::Absent,
            Some(owner) if owner.is_waiting() => Owner::Waiting,
            Some(owner) if owner.is_orphaning() => Owner::Orphaning,
            Some(_) => Owner::Solid,
        }
    }

    /// The UID of what is there.
    pub(super) fn uid_at(&self, resource: &Resource, namespace: &str, name: &str) -> Option<&str> {
        let kind = all_kinds().find(|k| k.group == resource.group && k.plural == resource.resource)?;
        self.at(kind, namespace, name).map(|object| object.meta.uid.as_str())
    }

    fn at(&self, kind: &Kind, namespace: &str, name: &str) -> Option<&Object> {
        self.objects.get(self.places.get(&(kind.store(), namespace.to_owned(), name.to_owned()))?)
    }

    fn judge(
        &self,
        before: Option<&Object>,
        after: Option<&Object>,
        cause: Option<&Cause>,
    ) -> Result<(), Violation> {
        let (Some(before), Some(cause)) = (before, cause) else {
            let what = after.or(before).map(Object::show).unwrap_or_default();
            return Err(Violation::new(Check::OtherWrite, format!("{what}: a write that nobody asked for")));
        };
        self.judge_finalizers(before, after, cause)?;
        if cause.is_delete {
            return self.judge_deletion(before, cause);
        }
        let Some(after) = after else { return Ok(()) };
        for reference in &before.meta.owner_references {
            let stays = after.meta.owner_references.iter().any(|r| is_same(r, reference));
            if !stays {
                self.judge_removal(before, reference, cause)?;
            }
        }
        Ok(())
    }

    /// Only the two finalizers of garbage collection ever go or come; the others keep their order.
    fn judge_finalizers(
        &self,
        before: &Object,
        after: Option<&Object>,
        cause: &Cause,
    ) -> Result<(), Violation> {
        let foreign = |o: &Object| -> Vec<String> {
            o.meta
                .finalizers
                .iter()
                .filter(|f| *f != FOREGROUND_FINALIZER && *f != ORPHAN_FINALIZER)
                .cloned()
                .collect()
        };
        let (was, is) = (foreign(before), after.map(foreign).unwrap_or_default());
        if was != is {
            return Err(Violation::new(
                Check::Finalizers,
                format!("{}: {was:?} became {is:?}", before.show()),
            ));
        }
        let ours_went = [FOREGROUND_FINALIZER, ORPHAN_FINALIZER]
            .iter()
            .any(|f| before.has(f) && !after.is_some_and(|after| after.has(f)));
        if ours_went && !cause.is_delete && !before.meta.being_deleted {
            let what = format!("{} is not being deleted and lost a finalizer", before.show());
            return Err(Violation::new(Check::Finalizers, what));
        }
        Ok(())
    }

    /// The rule of the house: an object with owner references, every one of which was absent or waiting.
    fn judge_deletion(&self, before: &Object, cause: &Cause) -> Result<(), Violation> {
        let object = before.show();
        if before.meta.owner_references.is_empty() {
            return Err(Violation::new(
                Check::LiveOwner,
                format!("{object} was deleted without having an owner"),
            ));
        }
        for reference in &before.meta.owner_references {
            if let Some(orphaned) = self.orphaned_by(before, reference) {
                let what = format!("{object} was deleted; its owner {orphaned} was deleted with Orphan");
                return Err(Violation::new(Check::OrphanDeleted, what));
            }
            let owner = self.owner(&before.meta.namespace, reference);
            let is_right = match owner {
                Owner::Absent | Owner::AbsentUnserved | Owner::Waiting => true,
                // It waited when it was read, and was put into another state since.
                Owner::Solid | Owner::Orphaning => self.waited(&reference.uid, cause),
                Owner::NotServed | Owner::Unresolvable => false,
            };
            if !is_right {
                let what =
                    format!("{object} was deleted; its owner {} is {owner:?}", show_reference(reference));
                return Err(Violation::new(Check::LiveOwner, what));
            }
        }
        Ok(())
    }

    /// References to owners that are absent, waiting, or orphaning may go.
    fn judge_removal(
        &self,
        before: &Object,
        reference: &OwnerReference,
        cause: &Cause,
    ) -> Result<(), Violation> {
        let owner = self.owner(&before.meta.namespace, reference);
        let is_right = match owner {
            Owner::Absent | Owner::AbsentUnserved | Owner::Waiting | Owner::Orphaning => true,
            Owner::Solid => {
                // Orphaning goes by the watch's word, as in the reference: a user who changes the policy while the
                // watch is behind is heard too late. It spares an object, so it is let pass.
                self.waited(&reference.uid, cause) || self.orphaning_until.contains_key(&reference.uid)
            }
            // Releasing goes by UID, whatever else the reference says.
            Owner::NotServed | Owner::Unresolvable => {
                self.objects.get(&reference.uid).is_some_and(Object::is_orphaning)
                    || self.orphaning_until.contains_key(&reference.uid)
            }
        };
        if is_right {
            return Ok(());
        }
        let what = format!(
            "{} lost its reference to {}, which is {owner:?}",
            before.show(),
            show_reference(reference)
        );
        Err(Violation::new(Check::ReferenceRemoved, what))
    }

    /// A step begins.
    pub(super) fn begin_step(&mut self, step: u64, now: Duration) {
        self.step = step;
        self.began.resize(usize::try_from(step).unwrap_or(usize::MAX), now);
        self.began.push(now);
    }

    fn began(&self, step: u64) -> Duration {
        let step = usize::try_from(step).unwrap_or(usize::MAX);
        self.began.get(step).copied().unwrap_or_default()
    }

    /// Whether an owner waited at some moment since the attempt began, or so shortly before that a read of then counts.
    /// Nothing that was read before a restore is evidence for an attempt that was under way then.
    fn waited(&self, uid: &str, cause: &Cause) -> bool {
        let age_max = gc_core::Options::default().waiting_age_max;
        self.restored_at <= cause.since
            && self
                .waiting_until
                .get(uid)
                .is_some_and(|&until| self.began(cause.since) <= self.began(until) + age_max)
    }

    /// Whether a reference names an owner that this life of the collector has orphaned. After a restart nothing is left
    /// on the server that says so.
    fn orphaned_by(&self, dependent: &Object, reference: &OwnerReference) -> Option<String> {
        let orphaned = self.orphaned.get(&reference.uid).filter(|o| o.life == self.life)?;
        let kind = Kind::named(&reference.api_version, &reference.kind)?;
        let at_home = orphaned.namespace.is_empty() || orphaned.namespace == dependent.meta.namespace;
        (kind == orphaned.kind && reference.name == orphaned.name && at_home)
            .then(|| show_reference(reference))
    }

    fn apply(&mut self, before: Option<&Object>, after: Option<Object>, cause: Option<&Cause>) {
        if let Some(before) = before {
            self.note_end_of_states(before, after.as_ref(), cause);
            self.objects.remove(&before.meta.uid);
            self.places.remove(&place(before));
            for reference in &before.meta.owner_references {
                if !after.as_ref().is_some_and(|after| after.names(&reference.uid)) {
                    self.reference_since.remove(&(before.meta.uid.clone(), reference.uid.clone()));
                }
            }
        }
        let Some(after) = after else { return };
        if before.is_none() {
            self.past.push(after.clone());
        }
        if after.is_waiting() {
            // Its user has thought better of it.
            self.orphaned.remove(&after.meta.uid);
        }
        if after.is_orphaning() {
            self.orphaning_since.entry(after.meta.uid.clone()).or_insert(self.step);
        }
        for reference in &after.meta.owner_references {
            let key = (after.meta.uid.clone(), reference.uid.clone());
            self.reference_since.entry(key).or_insert(self.step);
        }
        self.places.insert(place(&after), after.meta.uid.clone());
        self.objects.insert(after.meta.uid.clone(), after);
    }

    fn note_end_of_states(&mut self, before: &Object, after: Option<&Object>, cause: Option<&Cause>) {
        let uid = &before.meta.uid;
        if before.is_waiting() {
            self.waiting_until.insert(uid.clone(), self.step);
        }
        if !before.is_orphaning() {
            return;
        }
        self.orphaning_until.insert(uid.clone(), self.step);
        if after.is_some_and(Object::is_orphaning) {
            return;
        }
        let since = self.orphaning_since.remove(uid).unwrap_or(self.step);
        if let Some(cause) = cause {
            let (life, kind) = (cause.life, before.kind);
            let (namespace, name) = (before.meta.namespace.clone(), before.meta.name.clone());
            self.orphaned.insert(uid.clone(), Orphaned { life, since, kind, namespace, name });
        }
    }

    /// A finalizer of ours is about to be taken from an owner: what the collector has been shown must allow it.
    /// `shown` says which version of an object its graph has taken in, `is_kept_by` whether the watch of a kind hears
    /// nothing.
    pub(super) fn judge_release(
        &self,
        owner_uid: &str,
        finalizer: &str,
        shown: &BTreeMap<String, String>,
        is_kept_by: &dyn Fn(&Kind) -> bool,
    ) -> Result<(), Violation> {
        let Some(owner) = self.objects.get(owner_uid) else { return Ok(()) };
        for dependent in self.objects.values() {
            let is_shown = shown.get(&dependent.meta.uid) == Some(&dependent.meta.resource_version);
            if finalizer == FOREGROUND_FINALIZER && is_shown && dependent.blocks(owner_uid) {
                let what = format!("{} loses it while {} blocks it", owner.show(), dependent.show());
                return Err(Violation::new(Check::ForegroundTooEarly, what));
            }
            let since = self.reference_since.get(&(dependent.meta.uid.clone(), owner_uid.to_owned()));
            // A reference that is written while its owner is being orphaned is in a race that nobody can win.
            let is_old =
                since.is_some_and(|since| self.orphaning_since.get(owner_uid).is_some_and(|o| since < o));
            if finalizer == ORPHAN_FINALIZER && dependent.names(owner_uid) && is_old {
                let check = match is_shown {
                    true => Check::OrphanedTooEarly,
                    false if is_kept_by(dependent.kind) => Check::OrphanedUnheard,
                    false => continue,
                };
                let what = format!("{} loses it while {} names it", owner.show(), dependent.show());
                return Err(Violation::new(check, what));
            }
        }
        Ok(())
    }

    /// Whether an object may stay although its owner, which was orphaned, is gone.
    pub(super) fn was_orphaned(&self, uid: &str) -> bool {
        self.orphaned.get(uid).is_some_and(|o| o.since <= self.step)
    }

    pub(super) fn kinds_served(&self) -> impl Iterator<Item = &'static Kind> {
        KINDS.iter().filter(|kind| self.is_served(kind))
    }
}

/// The server's clock, in Unix milliseconds, so long after the start of the world: 1 January 2026.
pub(super) fn server_ms(now: Duration) -> i64 {
    1_767_225_600_000 + i64::try_from(now.as_millis()).unwrap_or(i64::MAX / 2)
}

fn place(object: &Object) -> (String, String, String) {
    (object.kind.store(), object.meta.namespace.clone(), object.meta.name.clone())
}

/// The same reference, but for the flags.
fn is_same(a: &OwnerReference, b: &OwnerReference) -> bool {
    a.uid == b.uid && a.name == b.name && a.kind == b.kind && a.api_version == b.api_version
}

pub(super) fn show_reference(reference: &OwnerReference) -> String {
    let OwnerReference { api_version, kind, name, uid, .. } = reference;
    format!("{api_version} {kind} {name} {}", short_uid(uid))
}
