//! What decisions are made from: the graph, the kinds, the absent owners, and what waits for a kind.

use std::sync::Arc;
use std::time::Duration;

use gc_graph::{Coordinate, Effect, Graph, Node, Observation, SourceId, Uid};
use hashbrown::{HashMap, HashSet};

use crate::hearing::Hearing;
use crate::memory::{Coordinates, Doubts, group_of};
use crate::mistakes::{self, Mistake};
use crate::{
    Class, FOREGROUND_FINALIZER, Kinds, LiveObject, ORPHAN_FINALIZER, Outcome, OwnerReference, Reply,
    Resource, Target, Why,
};

/// Tunables of the decisions.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many absent owners are remembered (G10). The reference remembers 500; a coordinate is some 200 bytes, so
    /// that ten times as many cost 1 MB at most and spare a read for each dependent of as many owners.
    pub absent_owners_max: usize,
    /// How many orphaned owners are remembered, for dependents that are seen only after the orphaning.
    pub orphaned_owners_max: usize,
    /// How many reads that prove an owner absent are asked for where the graph does not hold it as alive (D16).
    pub absence_confirmations: u32,
    /// The least time between two such reads, and the time given to a watch that lags behind them.
    pub confirm_delay: Duration,
    /// For how long a proof of absence is believed without being read again. A server that is restored from a backup is
    /// away for longer than this, so that no proof of before condemns what lives again, noticed or not (S7). An owner
    /// whose dependents take longer to go costs one more read each time.
    pub proof_age_max: Duration,
    /// For how long an owner that was read and found waiting for its dependents counts as waiting for others of them,
    /// as long as neither the graph nor a later read says otherwise. A second DELETE can turn its foreground deletion
    /// into an orphaning, and what is deleted in between is lost: this bounds that time even where the watch lags. It is
    /// about as long as a read and a delete take over a network, which nothing can shorten, and long enough that the
    /// dependents of one owner, which are looked at one after the other, share a read.
    pub waiting_age_max: Duration,
    /// Whether an object is deleted on the version that the graph has seen, where nothing but its owners' state is in
    /// question (D15). The server refuses if that version is not the object's any more, and then the object is read as it
    /// is without this.
    pub decides_from_graph: bool,
    /// A mistake to make, for tests.
    #[cfg(feature = "mistakes")]
    pub mistake: Option<Mistake>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            absent_owners_max: 5_000,
            orphaned_owners_max: 5_000,
            absence_confirmations: 1,
            confirm_delay: Duration::from_secs(2),
            proof_age_max: Duration::from_secs(5),
            waiting_age_max: Duration::from_millis(50),
            decides_from_graph: true,
            #[cfg(feature = "mistakes")]
            mistake: None,
        }
    }
}

/// How many coordinates of one virtual node are passed over in one go; each costs a look at all of its dependents. What
/// is left is asked for.
const ALTERNATIVES_MAX: usize = 64;
/// How many owners are remembered as read and waiting. Their dependents are looked at one owner after the other, so that
/// few are in use at a time.
const WAITING_OWNERS_MAX: usize = 1_000;
/// The graph keeps the time of a proof as a number of these. It is rounded down, so that a proof is taken for older than
/// it is; 32 bits last for 13 years.
const STAMP: Duration = Duration::from_millis(100);

/// The collector's whole memory. The caller holds it behind one lock, for microseconds, and never across a request.
#[derive(Clone, Debug)]
pub struct State {
    graph: Graph,
    kinds: Kinds,
    absent: Coordinates,
    /// As of the version in which an owner was seen being orphaned; 0 where that is not known to be newer than others.
    orphaned: Coordinates<u64>,
    /// Those whose orphaning was replaced by a foreground deletion. A restore may undo that.
    replaced: Coordinates<u64>,
    /// Owners that were read and found waiting for their dependents.
    waiting: Coordinates,
    doubts: Doubts,
    hearing: Hearing,
    /// The items that wait for a kind to be served, and for which (D17): each for one, the last that it asked for, so
    /// that an object whose references are rewritten again and again takes one place.
    waiting_for_kind: HashMap<Uid, Arc<KindKey>>,
    /// The kinds that are waited for, each held once.
    awaited_kinds: HashSet<Arc<KindKey>>,
    /// Resources that answered a strategic merge patch with 415: the next patch goes out as JSON merge at once.
    json_merge_only: HashSet<Arc<Resource>>,
    absence_unconfirmed_total: u64,
    era: u64,
    /// The latest time that anybody told.
    now: Duration,
    /// When what is being observed was heard: now, or earlier.
    heard_at: Duration,
    options: Options,
}

/// An apiVersion and a kind.
type KindKey = (String, String);

/// What the state alone can say of one reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Class(Class),
    /// Dangling, by what was proved at this time.
    Absent(Duration),
    /// Only the server knows: read this.
    Ask(Target),
    /// No resource serves the owner's kind (D7).
    KindNotServed,
    /// A cluster-scoped item names an owner of a namespaced kind, or a name that no object can have (D6).
    Unresolvable,
}

/// What a read that found nothing is worth (D16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    Proved,
    /// Read again after this delay.
    Unconfirmed(Duration),
}

impl State {
    /// An empty memory.
    pub fn new(options: Options) -> State {
        State {
            graph: Graph::new(),
            kinds: Kinds::default(),
            absent: Coordinates::new(options.absent_owners_max),
            orphaned: Coordinates::new(options.orphaned_owners_max),
            replaced: Coordinates::new(options.orphaned_owners_max),
            waiting: Coordinates::new(WAITING_OWNERS_MAX),
            doubts: Doubts::default(),
            hearing: Hearing::default(),
            waiting_for_kind: HashMap::new(),
            awaited_kinds: HashSet::new(),
            json_merge_only: HashSet::new(),
            absence_unconfirmed_total: 0,
            era: 0,
            now: Duration::ZERO,
            heard_at: Duration::ZERO,
            options,
        }
    }

    /// Tells the time: since any fixed moment, the same one for all attempts. What is proved absent from here on is
    /// proved at this time; a proof that is taken for older than it is costs a read.
    pub fn tell_time(&mut self, now: Duration) {
        self.now = self.now.max(now);
        self.heard_at = self.now;
        self.stamp(self.now);
    }

    /// What watches and lists show until the time is told again was heard then: it waited, the process was stopped, say,
    /// and proves an absence as of then.
    pub fn tell_heard(&mut self, heard_at: Duration) {
        self.heard_at = self.now.min(heard_at);
        self.stamp(self.heard_at);
    }

    fn stamp(&mut self, time: Duration) {
        let stamp = u32::try_from(time.as_millis() / STAMP.as_millis()).unwrap_or(u32::MAX);
        self.graph.set_stamp(stamp);
    }

    #[cfg(feature = "mistakes")]
    pub(crate) fn makes(&self, mistake: Mistake) -> bool {
        self.options.mistake == Some(mistake)
    }

    #[cfg(not(feature = "mistakes"))]
    #[expect(clippy::unused_self, reason = "with the feature it is used")]
    pub(crate) fn makes(&self, _: Mistake) -> bool {
        false
    }

    /// The latest time that anybody told.
    pub fn now(&self) -> Duration {
        self.now
    }

    pub(crate) fn proof_age_max(&self) -> Duration {
        self.options.proof_age_max
    }

    /// The ownership graph, to be asked.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The kinds that are served.
    pub fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// How many absent owners are remembered.
    pub fn absent_len(&self) -> usize {
        self.absent.len()
    }

    /// How often an absence was read and not yet believed (D16).
    pub fn absence_unconfirmed_total(&self) -> u64 {
        self.absence_unconfirmed_total
    }

    /// How many items wait for a kind to be served, and for how many kinds.
    pub fn waiting_for_kind_len(&self) -> (usize, usize) {
        (self.waiting_for_kind.len(), self.awaited_kinds.len())
    }

    /// All that is remembered besides the graph, times left out, and what only a restore brings back, as text that is the same for the same memory. For
    /// tests, which tell states apart by it.
    #[doc(hidden)]
    pub fn print_memory(&self) -> String {
        let mut waiting: Vec<_> = self.waiting_for_kind.iter().collect();
        waiting.sort();
        let mut merge_only: Vec<String> = self.json_merge_only.iter().map(|r| format!("{r:?}")).collect();
        merge_only.sort();
        format!(
            "absent {:?}\norphaned {:?}\nfound waiting {:?}\ndoubts {:?}\nwaiting {waiting:?}\nmerge only {merge_only:?}\nera {}\n",
            self.absent.sorted(),
            self.orphaned.sorted(),
            self.waiting.sorted(),
            self.doubts.sorted(),
            self.era
        )
    }

    /// A watch or list shows an object (G3 to G7).
    pub fn observe(&mut self, seen: &Observation<'_>, effects: &mut Vec<Effect>) {
        let first = effects.len();
        self.lives(seen);
        let had = self.makes(Mistake::EdgeNotLevel).then(|| mistakes::level(&self.graph, seen));
        self.graph.observe(seen, effects);
        self.absorb(effects, first, self.heard_at);
        if let Some(had) = had {
            mistakes::forget_level(&self.graph, seen, had, effects);
        }
    }

    /// A watch shows that an object is gone (G8).
    pub fn delete(&mut self, seen: &Observation<'_>, effects: &mut Vec<Effect>) {
        let first = effects.len();
        self.graph.delete(seen, effects);
        self.absorb(effects, first, self.heard_at);
    }

    /// A worker found that nothing exists at a coordinate (G9): by a read that was asked for at this time. The proof is
    /// as old as that, however long the answer, and the news of it, took.
    pub fn virtual_delete(&mut self, absent: &Coordinate, asked_at: Duration, effects: &mut Vec<Effect>) {
        let first = effects.len();
        self.stamp(asked_at);
        self.graph.virtual_delete(absent, effects);
        self.absorb(effects, first, asked_at);
        self.pass_over(&absent.uid, effects, first);
        self.stamp(self.now);
    }

    /// A worker found that a virtual node's coordinate cannot be asked for (G9, D6).
    pub fn reconsider(&mut self, impossible: &Coordinate, effects: &mut Vec<Effect>) {
        let first = effects.len();
        self.graph.reconsider(impossible, effects);
        self.pass_over(&impossible.uid, effects, first);
        // The others by which it could have been asked for may be gone since. Then this one's kind is waited for after all.
        let is_left = |node: Node<'_>| node.is_virtual() && node.coordinate() == *impossible;
        if effects.len() == first
            && !self.is_impossible(impossible)
            && self.graph.get(&impossible.uid).is_some_and(is_left)
        {
            effects.push(Effect::AttemptToDelete(impossible.uid.clone()));
        }
    }

    /// A virtual node that dependents name by several coordinates takes the next one (G9). One that no object can have,
    /// or that is known to be absent, is not asked for again: dependents that are held, or that can never be resolved,
    /// would keep a worker busy for as long as they stay (D17). Where none is left to ask for, the node comes to rest:
    /// at one that no object can have, else as absent.
    fn pass_over(&mut self, uid: &Uid, effects: &mut Vec<Effect>, first: usize) {
        let mut passed: Vec<Coordinate> = Vec::new();
        // The oldest of the proofs by which coordinates are passed over.
        let mut since = self.now;
        while let Some(at) = position_of_retry(effects, first, uid) {
            let Some(coordinate) = self.graph.get(uid).map(|node| node.coordinate()) else { return };
            let is_impossible = self.is_impossible(&coordinate);
            let absent_since = self.known_absent_since(&coordinate);
            if ALTERNATIVES_MAX < passed.len() || !(is_impossible || absent_since.is_some()) {
                return;
            }
            since = since.min(absent_since.unwrap_or(since));
            effects.remove(at);
            let rests = is_impossible || !passed.iter().any(|passed| self.is_impossible(passed));
            if passed.contains(&coordinate) && rests {
                break;
            }
            self.graph.reconsider(&coordinate, effects);
            passed.push(coordinate);
        }
        let Some(coordinate) = self.graph.get(uid).map(|node| node.coordinate()) else { return };
        if passed.contains(&coordinate) && !self.is_impossible(&coordinate) {
            self.stamp(since);
            self.graph.virtual_delete_all(uid, effects);
            self.absorb(effects, first, since);
            self.stamp(self.now);
        }
    }

    /// Whether a virtual node has a coordinate, beside its own, that the server can be asked for and is not known to be
    /// absent.
    pub(crate) fn has_another_to_ask_for(&self, uid: &Uid) -> bool {
        let is_absent = |other: &Coordinate| {
            let anywhere = || Coordinate { namespace: String::new(), ..other.clone() };
            self.absent.remembers(other)
                || self.is_cluster_scoped(other) && self.absent.remembers(&anywhere())
        };
        let mut others = self.graph.get(uid).into_iter().flat_map(Node::other_coordinates);
        others.any(|other| self.target(&other).is_some() && !is_absent(&other))
    }

    fn is_impossible(&self, coordinate: &Coordinate) -> bool {
        self.kinds.resolve(&coordinate.api_version, &coordinate.kind).is_some()
            && self.target(coordinate).is_none()
    }

    fn known_absent_since(&mut self, coordinate: &Coordinate) -> Option<Duration> {
        let is_cluster_scoped = self.is_cluster_scoped(coordinate);
        self.absent.since(coordinate).or_else(|| {
            let anywhere = Coordinate { namespace: String::new(), ..coordinate.clone() };
            if is_cluster_scoped { self.absent.since(&anywhere) } else { None }
        })
    }

    /// A worker has read an owner that is being orphaned, and is about to let it go. The watch may be far behind, and show
    /// on its way what the user had wanted in between.
    pub(crate) fn owner_is_let_go(&mut self, owner: &Coordinate, resource_version: &str) {
        if !self.makes(Mistake::OrphanedForgotten) {
            self.orphaned.insert(owner.clone(), number_of(resource_version).unwrap_or(0));
        }
    }

    /// Whether the owner that a reference names was orphaned, as far as this process knows by now.
    pub(crate) fn is_orphaned(&mut self, reference: &OwnerReference, item_namespace: &str) -> bool {
        if self.orphaned.is_empty() {
            return false;
        }
        let owner = |namespace: &str| coordinate_of(reference, namespace);
        match self.kinds.resolve(&reference.api_version, &reference.kind) {
            Some(resource) if resource.namespaced => self.orphaned.contains_object(&owner(item_namespace)),
            Some(_) => self.orphaned.contains_object(&owner("")),
            // Its scope is not known: an orphaning in one of the two outweighs an absence in the other.
            None => {
                [item_namespace, ""].into_iter().any(|scope| self.orphaned.contains_object(&owner(scope)))
            }
        }
    }

    fn is_cluster_scoped(&self, coordinate: &Coordinate) -> bool {
        let resource = self.kinds.resolve(&coordinate.api_version, &coordinate.kind);
        resource.is_some_and(|resource| !resource.namespaced)
    }

    /// A complete list of this source begins (S5).
    pub fn begin_list(&mut self, source: SourceId) {
        self.graph.begin_list(source);
    }

    /// The list is complete: what it did not show is gone.
    pub fn end_list(&mut self, source: SourceId, effects: &mut Vec<Effect>) {
        let first = effects.len();
        self.graph.end_list(source, effects);
        self.absorb(effects, first, self.heard_at);
    }

    /// A watch begins, or another one in its place, and hears nothing yet. An owner that was deleted with Orphan keeps its
    /// finalizer until every watch has heard what happened before, for 60 looks a second apart at most (O2, S3). Where none is ever
    /// told to begin, no owner waits. This and the following are of the time that was told last.
    pub fn watch_begins(&mut self, source: SourceId) {
        self.hearing.begins(source, self.now);
    }

    /// A watch hears nothing from now on, and may not have heard what came last: it has failed, or has to list.
    pub fn watch_breaks_off(&mut self, source: SourceId) {
        self.hearing.breaks_off(source, self.now);
    }

    /// A watch has ended in good order and is about to be opened again.
    pub fn watch_pauses(&mut self, source: SourceId) {
        self.hearing.pauses(source, self.now);
    }

    /// From now on a watch hears what happens, beginning with what happened before.
    pub fn watch_hears(&mut self, source: SourceId) {
        self.hearing.hears(source, self.now);
    }

    /// How long the orphaning of this owner has to wait for watches, by what another one has just been told.
    pub(crate) fn orphaning_still_waits(&mut self, owner: &Uid, now: Duration) -> Option<Duration> {
        if self.makes(Mistake::OrphanedUnheard) { None } else { self.hearing.still_holds(owner, now) }
    }

    /// The same where it has just been read.
    pub(crate) fn orphaning_waits(&mut self, owner: &Uid, now: Duration) -> Option<Duration> {
        if self.makes(Mistake::OrphanedUnheard) { None } else { self.hearing.holds(owner, now) }
    }

    /// This owner is not being orphaned, or not any more.
    pub(crate) fn is_not_orphaning(&mut self, owner: &Uid) {
        self.hearing.forget(owner);
    }

    /// The resource is no longer served; nothing is proved by that (S2).
    pub fn unserve(&mut self, source: SourceId, effects: &mut Vec<Effect>) {
        self.hearing.is_unserved(source, self.now);
        let first = effects.len();
        self.graph.unserve(source, effects);
        self.absorb(effects, first, self.now);
    }

    /// Discovery has a new answer: items that waited for a kind that is served now, or that they no longer need, are
    /// woken (D17).
    pub fn set_kinds(&mut self, kinds: Kinds, effects: &mut Vec<Effect>) {
        self.kinds = kinds;
        self.wake_waiting(effects);
        let kinds = &self.kinds;
        self.json_merge_only.retain(|resource| {
            kinds.resolve(&resource.api_version(), &resource.kind).is_some_and(|now| now == resource)
        });
    }

    /// The same after an answer that changes no kind: items that no longer need theirs are woken.
    pub fn wake_waiting(&mut self, effects: &mut Vec<Effect>) {
        let (kinds, graph) = (&self.kinds, &self.graph);
        let mut woken = Vec::new();
        self.waiting_for_kind.retain(|uid, awaited| {
            // An item that has left the graph waits for nothing; without this the map would grow for ever.
            let Some(node) = graph.get(uid) else { return false };
            let (api_version, kind) = &**awaited;
            let waits = kinds.resolve(api_version, kind).is_none()
                && needs_kind(&node, api_version, kind)
                && !node.other_coordinates().any(|it| kinds.resolve(&it.api_version, &it.kind).is_some());
            if !waits {
                woken.push(uid.clone());
            }
            waits
        });
        self.awaited_kinds.retain(|kind| Arc::strong_count(kind) > 1);
        // In the order of their UIDs, so that a run can be repeated.
        woken.sort_unstable();
        effects.extend(woken.into_iter().map(|uid| {
            let orphaning = graph.get(&uid).is_some_and(|node| node.is_orphaning());
            if orphaning { Effect::AttemptToOrphan(uid) } else { Effect::AttemptToDelete(uid) }
        }));
    }

    /// Forgets every proof of absence (S7): a server that was restored from a backup may hold deleted objects again.
    /// Attempts that are under way end with a retry, since what they have read may be void. The caller then lists
    /// everything anew before it steps another attempt.
    pub fn forget_proofs(&mut self, effects: &mut Vec<Effect>) {
        self.era += 1;
        self.absent.clear();
        self.waiting.clear();
        self.doubts.clear();
        self.hearing.start_again();
        // What was orphaned stays remembered, also where that was replaced, which may be undone: it can only spare an
        // object. Versions count from another beginning now.
        self.orphaned.take_in(&mut self.replaced);
        self.graph.forget_absent(effects);
    }

    /// Counts the calls of [`State::forget_proofs`]: what was found in one era is no evidence in another.
    pub fn era(&self) -> u64 {
        self.era
    }

    /// What is observed lives: a remembered absence of it is void. So is an orphaning that its user has replaced by a
    /// foreground deletion.
    fn lives(&mut self, seen: &Observation<'_>) {
        if !self.doubts.is_empty() {
            self.doubts.settle_uid(&Uid::new(seen.uid));
        }
        if self.absent.is_empty() && self.orphaned.is_empty() {
            return;
        }
        let uid = Uid::new(seen.uid);
        if seen.being_deleted && seen.has_foreground_finalizer && !seen.has_orphan_finalizer {
            // A watch may show it late: what a worker has read meanwhile may be newer.
            let version = number_of(seen.resource_version).unwrap_or(u64::MAX);
            self.orphaned.move_uid_until(&uid, version, &mut self.replaced);
        }
        if self.absent.knows_uid(&uid) && self.graph.get(&uid).is_none_or(|node| node.is_virtual()) {
            self.absent.remove_uid(&uid);
        }
    }

    /// Takes out of the new effects what concerns the memory of coordinates, and leaves the rest to the caller, in its
    /// order. In one pass: a list may show that a hundred thousand owners are gone. What is absent has been so since
    /// then.
    fn absorb(&mut self, effects: &mut Vec<Effect>, first: usize, since: Duration) {
        let mut kept = first;
        for at in first..effects.len() {
            match &mut effects[at] {
                Effect::Absent(coordinate) => {
                    self.remember_absent(std::mem::take(&mut **coordinate), since);
                    continue;
                }
                Effect::AttemptToOrphan(uid) => {
                    if let Some(node) =
                        self.graph.get(uid).filter(|_| !self.makes(Mistake::OrphanedForgotten))
                    {
                        let version = number_of(&node.resource_version()).unwrap_or(0);
                        self.orphaned.insert(node.coordinate(), version);
                    }
                }
                Effect::AttemptToDelete(_)
                | Effect::AttemptToDeleteRateLimited(_)
                | Effect::InvalidOwnerReference(_) => {}
            }
            effects.swap(kept, at);
            kept += 1;
        }
        effects.truncate(kept);
    }

    fn remember_absent(&mut self, coordinate: Coordinate, since: Duration) {
        let namespaced =
            self.kinds.resolve(&coordinate.api_version, &coordinate.kind).map(|resource| resource.namespaced);
        // A namespaced kind without a namespace is a coordinate that a cluster-scoped dependent made up. Its absence
        // says nothing of the owner that dependents in a namespace mean by the same reference.
        let is_made_up = namespaced == Some(true) && coordinate.namespace.is_empty();
        if is_made_up && !self.makes(Mistake::ImpossibleIsAbsent) {
            return;
        }
        self.absent.insert(coordinate, since);
    }

    /// Whether objects are deleted on the version that the graph has seen (D15).
    pub(crate) fn decides_from_graph(&self) -> bool {
        self.options.decides_from_graph
    }

    /// Where the object with this coordinate is served; `None` when its kind is not, when it is namespaced and the
    /// coordinate has no namespace, or when no object can have that name.
    pub(crate) fn target(&self, coordinate: &Coordinate) -> Option<Target> {
        let resource = self.kinds.resolve(&coordinate.api_version, &coordinate.kind)?;
        if (resource.namespaced && coordinate.namespace.is_empty()) || !is_possible_name(&coordinate.name) {
            return None;
        }
        let namespace = if resource.namespaced { coordinate.namespace.clone() } else { String::new() };
        Some(Target { resource: Arc::clone(resource), namespace, name: coordinate.name.clone() })
    }

    /// Classifies a reference as far as no request is needed (D5). An owner that waits is read again, unless
    /// `trusts_waiting` says that a read of a moment ago will do.
    pub(crate) fn classify(
        &mut self,
        reference: &OwnerReference,
        item_namespace: &str,
        trusts_waiting: bool,
    ) -> Known {
        if self.is_orphaned(reference, item_namespace) {
            return Known::Class(Class::Orphaned);
        }
        let coordinate = |namespace: &str| coordinate_of(reference, namespace);
        let Some(resource) = self.kinds.resolve(&reference.api_version, &reference.kind).cloned() else {
            // The kind is not served any more, but a watch may have seen the owner go while it was. Nothing can be read
            // again, and no restore can have brought back the object of a kind that is not served.
            let owners = [item_namespace, ""].map(coordinate);
            let is_absent =
                |owner: &Coordinate| self.absent.contains(owner) || self.graph.absent_since(owner).is_some();
            return if owners.iter().any(is_absent) {
                Known::Class(Class::Dangling)
            } else {
                Known::KindNotServed
            };
        };
        if (resource.namespaced && item_namespace.is_empty()) || !is_possible_name(&reference.name) {
            return Known::Unresolvable;
        }
        let owner = coordinate(if resource.namespaced { item_namespace } else { "" });
        if self.makes(Mistake::AbsenceByUid) && self.absent.knows_uid(&owner.uid) {
            return Known::Class(Class::Dangling);
        }
        if self.makes(Mistake::ImpossibleIsAbsent) && self.absent.contains(&coordinate("")) {
            return Known::Class(Class::Dangling);
        }
        if self.graph_holds_alive(&owner) {
            let waits = self.graph.get(&owner.uid).is_some_and(|node| node.is_deleting_dependents());
            // That an owner waits can cost the item its life, so the server is asked; that it lives can not.
            if !waits {
                return Known::Class(Class::Solid);
            }
            let read_at = self.waiting.since(&owner).filter(|_| trusts_waiting);
            if read_at.is_some_and(|at| self.is_younger(at, self.options.waiting_age_max)) {
                return Known::Class(Class::Waiting);
            }
        } else {
            let proved_at = self.proved_absent_at(&owner);
            if let Some(proved_at) = proved_at.filter(|at| self.is_younger(*at, self.options.proof_age_max)) {
                return Known::Absent(proved_at);
            }
        }
        Known::Ask(Target { resource, namespace: owner.namespace, name: owner.name })
    }

    /// When this owner was last proved absent: by a read of a worker, or by what the graph was told, which is not lost
    /// however many owners go at once (D15).
    fn proved_absent_at(&mut self, owner: &Coordinate) -> Option<Duration> {
        let seen = self.graph.absent_since(owner).map(|stamp| STAMP * stamp);
        seen.max(self.absent.since(owner))
    }

    fn is_younger(&self, at: Duration, age_max: Duration) -> bool {
        self.now.saturating_sub(at) <= age_max
    }

    /// Remembers what a read found of an owner that has the UID of the reference, for what is decided from the graph. It
    /// is as old as its request, however long the answer took.
    pub(crate) fn owner_was_read(&mut self, owner: Coordinate, class: Class, asked_at: Duration) {
        if !self.options.decides_from_graph {
            return;
        }
        if class == Class::Waiting {
            self.waiting.insert(owner, asked_at);
        } else {
            self.waiting.remove_uid(&owner.uid);
        }
    }

    /// Whether an owner was read and found waiting, however long ago. For tests.
    #[doc(hidden)]
    pub fn has_found_waiting(&self, uid: &Uid) -> bool {
        self.waiting.knows_uid(uid)
    }

    /// The class of an owner that was read and found with the UID of the reference.
    pub(crate) fn class_of_live_owner(owner: &LiveObject) -> Class {
        let orphaning = owner.being_deleted && owner.has_finalizer(ORPHAN_FINALIZER);
        if owner.being_deleted && owner.has_finalizer(FOREGROUND_FINALIZER) && !orphaning {
            Class::Waiting
        } else {
            // An owner that is orphaning still exists; its own attempt removes the reference.
            Class::Solid
        }
    }

    /// Weighs a read that proved nothing to exist at `coordinate` (D16). Where the graph holds that very object as
    /// observed and alive, the two disagree and one more read after a delay is asked for.
    pub(crate) fn weigh_absence(&mut self, coordinate: &Coordinate, now: Duration) -> Absence {
        let base = self.options.absence_confirmations.max(1);
        let is_held = self.graph_holds_in_any_version(coordinate) && !self.makes(Mistake::DeniedOnce);
        let needed = if is_held { base.max(2) } else { base };
        let reads =
            if needed == 1 { 1 } else { self.doubts.note(coordinate, now, self.options.confirm_delay) };
        if needed <= reads {
            self.doubts.settle(coordinate);
            return Absence::Proved;
        }
        self.absence_unconfirmed_total += 1;
        Absence::Unconfirmed(self.options.confirm_delay)
    }

    /// What an attempt comes to whose object is gone for the server, of which it asked then. The watch of an object that
    /// the graph holds will say so too: it is given time to, since a server that denies what exists would otherwise have
    /// a finalizer forgotten, or the object's dependents sent on their way (D16).
    pub(crate) fn gone(
        &mut self,
        coordinate: &Coordinate,
        target: &Target,
        now: Duration,
        asked_at: Duration,
    ) -> Outcome {
        if self.graph.get(&coordinate.uid).is_none() {
            return Outcome::Forget(Why::Gone);
        }
        match self.weigh_absence(coordinate, now) {
            Absence::Proved => Outcome::VirtuallyDeleted(coordinate.clone(), asked_at),
            Absence::Unconfirmed(delay) => {
                Outcome::RetryAfter(delay, format!("{target} is gone for a read, but not for the watch"))
            }
        }
    }

    /// Remembers that a read proved an owner absent: as of its request, however long the answer took.
    pub(crate) fn owner_is_absent(&mut self, coordinate: Coordinate, asked_at: Duration) {
        self.absent.insert(coordinate, asked_at);
    }

    /// A read showed an object with this UID alive, whatever was believed of it: a watch that has not shown it yet can
    /// be wrong about it, and a server that was restored in a way that its versions do not betray too.
    pub(crate) fn is_alive(&mut self, uid: &Uid) {
        self.absent.remove_uid(uid);
    }

    /// Takes note of a reply before an attempt does: what it shows is not doubted any more.
    pub(crate) fn note_reply(&mut self, reply: Option<&Reply>) {
        if let (Some(Reply::Object(live)), false) = (reply, self.doubts.is_empty()) {
            self.doubts.settle_uid(&Uid::new(&live.uid));
        }
    }

    /// Puts an item aside until [`State::set_kinds`] wakes it.
    pub(crate) fn park(&mut self, uid: &Uid, api_version: &str, kind: &str) {
        let key = (api_version.to_owned(), kind.to_owned());
        let awaited = Arc::clone(self.awaited_kinds.get_or_insert_with(&key, |key| Arc::new(key.clone())));
        let before = self.waiting_for_kind.insert(uid.clone(), awaited);
        // The set and this hold it, and nobody else does.
        if let Some(before) = before.filter(|before| Arc::strong_count(before) == 2) {
            self.awaited_kinds.remove(&before);
        }
    }

    pub(crate) fn takes_strategic_merge(&self, resource: &Arc<Resource>) -> bool {
        !self.json_merge_only.contains(resource)
    }

    pub(crate) fn note_json_merge_only(&mut self, resource: &Arc<Resource>) {
        self.json_merge_only.insert(Arc::clone(resource));
    }

    /// Whether the graph has observed an object at exactly this coordinate and has not seen it go.
    fn graph_holds_alive(&self, coordinate: &Coordinate) -> bool {
        self.graph.get(&coordinate.uid).is_some_and(|node| !node.is_virtual() && is_at(&node, coordinate))
    }

    /// The same where a reference names another version of the kind: it is one object all the same.
    fn graph_holds_in_any_version(&self, coordinate: &Coordinate) -> bool {
        let Some(node) = self.graph.get(&coordinate.uid).filter(|node| !node.is_virtual()) else {
            return false;
        };
        let api_version = node.api_version();
        group_of(api_version) == group_of(&coordinate.api_version)
            && is_at(&node, &Coordinate { api_version: api_version.into(), ..coordinate.clone() })
    }

    /// D17: whether the graph alone shows that nothing needs doing for a node: every one of its references points at
    /// an observed owner that is not waiting for its dependents and that is just where the reference says.
    pub(crate) fn all_owners_alive(&self, node: &Node<'_>) -> bool {
        node.owner_references().all(|reference| {
            self.graph.get(&reference.uid).is_some_and(|owner| {
                !owner.is_virtual()
                    && !owner.is_deleting_dependents()
                    && !owner.is_orphaning()
                    && owner.api_version() == reference.api_version
                    && owner.kind() == reference.kind
                    && owner.name() == reference.name
                    && (owner.namespace().is_empty() || owner.namespace() == node.namespace())
            })
        })
    }
}

/// Whether a parked item still depends on a kind that is not served: it is seen under it, or a reference names it. The
/// preferred version may have moved since, and references may have been rewritten. An owner that is orphaning waits for
/// the kinds of its dependents, of which there may be many and which come and go: it is always asked anew.
fn needs_kind(node: &Node<'_>, api_version: &str, kind: &str) -> bool {
    let is_own = node.api_version() == api_version && node.kind() == kind;
    let mut references = node.owner_references();
    is_own || (!node.is_orphaning() && references.any(|r| r.api_version == api_version && r.kind == kind))
}

/// Where a reference of an object in this namespace says that its owner is.
pub(crate) fn coordinate_of(reference: &OwnerReference, namespace: &str) -> Coordinate {
    Coordinate {
        kind: reference.kind.clone(),
        api_version: reference.api_version.clone(),
        namespace: namespace.into(),
        name: reference.name.clone(),
        uid: Uid::new(&reference.uid),
    }
}

/// A version as a number. Servers that count otherwise have versions that cannot be compared.
fn number_of(resource_version: &str) -> Option<u64> {
    resource_version.parse().ok()
}

/// Where a virtual node's next attempt stands among the effects.
fn position_of_retry(effects: &[Effect], first: usize, uid: &Uid) -> Option<usize> {
    let is_retry =
        |effect: &Effect| matches!(effect, Effect::AttemptToDeleteRateLimited(retried) if retried == uid);
    (first..effects.len()).rev().find(|&at| effects.get(at).is_some_and(is_retry))
}

/// Whether an object of any kind can have this name: it has to be one segment of a path (apimachinery's
/// `IsValidPathSegmentName`). Owner references may hold anything, and what cannot be asked for cannot be proved absent.
fn is_possible_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '%'])
}

fn is_at(node: &Node<'_>, coordinate: &Coordinate) -> bool {
    node.api_version() == coordinate.api_version
        && node.kind() == coordinate.kind
        && node.namespace() == coordinate.namespace
        && node.name() == coordinate.name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d17_an_object_takes_one_place_however_often_its_references_are_rewritten() {
        let mut state = State::new(Options::default());
        for i in 0..1_000 {
            state.park(&Uid::new("restless"), "example.com/v1", &format!("Kind{i}"));
            state.park(&Uid::new("other"), "example.com/v1", "Kind0");
        }
        assert_eq!(state.waiting_for_kind_len(), (2, 2));
        state.park(&Uid::new("restless"), "example.com/v1", "Kind0");
        assert_eq!(state.waiting_for_kind_len(), (2, 1));
    }
}
