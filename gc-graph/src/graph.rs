//! The changes: what is observed, deleted or found absent, and what follows from it.

use hashbrown::{HashMap, HashSet};

use crate::change::{
    Coordinate, Effect, InvalidOwnerReference, Observation, OwnerReference, OwnerReferenceRef, SourceId,
};
use crate::node::Node;
use crate::store::{
    ABSENT, BEING_DELETED, BLOCKS, CLUSTER_SCOPED, DELETING_DEPENDENTS, Edge, IS_REPEATED, NAMES_POLICY,
    NONE, NodeSlot, ORPHANING, PARITY, REPEATS, Store, TWO_KINDS, VIRTUAL,
};
use crate::uid::{Uid, UidRef};

/// The ownership graph. The crate's documentation says what it is and how it behaves.
///
/// A clone takes as much memory as the graph; it is for tests, which go on from one state in several ways.
#[derive(Clone, Debug)]
pub struct Graph {
    pub(crate) store: Store,
    pub(crate) sources: Vec<Source>,
    pub(crate) len: usize,
    pub(crate) virtual_len: usize,
    refused: u64,
    stamp: u32,
    /// What the present change has put on attempt-to-delete, so that it does so once.
    queued: HashSet<u32>,
    /// Room for the owners of what goes, kept so that a deletion need not ask for any.
    cut: Vec<u32>,
}

/// Room for so many nodes is kept from one change to the next.
const KEPT: usize = 4_096;

/// What is known of a watch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Source {
    /// Its nodes.
    pub(crate) nodes: u32,
    /// Those of them that the list under way, or the last one, has shown.
    pub(crate) seen: u32,
    pub(crate) parity: bool,
    pub(crate) listing: bool,
}

impl Default for Graph {
    fn default() -> Graph {
        Graph::new()
    }
}

/// Changes.
impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        Graph {
            store: Store::new(),
            sources: Vec::new(),
            len: 0,
            virtual_len: 0,
            refused: 0,
            stamp: 0,
            queued: HashSet::new(),
            cut: Vec::new(),
        }
    }

    /// An object was added or updated (spec G3 to G7).
    ///
    /// The effects come in this order: the dependents whose references do not match what was observed, each after
    /// its report if there is one; the owners that are new to the graph and the report on the object's own
    /// references, in their order; the owners that were freed of a blocking reference; the dependents of an object
    /// that starts *deleting dependents*; the object itself.
    ///
    /// An object without a UID, and one that the graph has no room for, is refused whole: the graph stays as it
    /// was, and [`Graph::refused`] counts it. Half an object would be worse than none, since decisions are made
    /// from its references.
    pub fn observe(&mut self, seen: &Observation<'_>, effects: &mut Vec<Effect>) {
        let uid = UidRef::new(seen.uid);
        let found = self.store.find(uid);
        if let Some(index) = found {
            // Also when the rest is refused: it must not count as gone when its list ends.
            self.mark_seen(index, seen.source);
        }
        if seen.uid.is_empty() || !self.store.fits(seen) {
            self.refused += 1;
            return;
        }
        let mut moved = false;
        let index = match found {
            Some(index) => {
                let NodeSlot { namespace, .. } = *self.store.node(index);
                self.meet_again(index, seen, effects);
                moved = namespace != self.store.node(index).namespace;
                index
            }
            None => self.meet(uid, seen),
        };
        self.store.set_version(index, seen.resource_version);
        let mut check = false;
        if moved || !self.has_references(index, seen.owner_references) {
            check = self.replace_references(index, seen.owner_references, moved, effects);
        }
        self.set_deletion(index, seen, check, effects);
        self.end_change();
    }

    /// A watch saw an object deleted (spec G8). Its dependents go to attempt-to-delete, then those of its owners
    /// that are *deleting dependents*. A UID that is not in the graph changes nothing.
    pub fn delete(&mut self, seen: &Observation<'_>, effects: &mut Vec<Effect>) {
        let Some(index) = self.find_present(UidRef::new(seen.uid)) else {
            return;
        };
        // Without room for other coordinates the object goes under those that it has.
        if self.store.fits(seen) {
            self.meet_again(index, seen, effects);
            self.move_to(index, seen);
        }
        self.depart(&[index], effects);
        self.end_change();
    }

    /// A worker found that no object has this coordinate (spec G9).
    ///
    /// The namespace of an alternative is cleared when the absent coordinate has none and the kinds are the same:
    /// that kind is then known to be cluster-scoped.
    pub fn virtual_delete(&mut self, absent: &Coordinate, effects: &mut Vec<Effect>) {
        let Some(index) = self.find_present(absent.uid.as_ref()) else {
            return;
        };
        let node = Node::new(self, index);
        let is_node = self.store.is_named(index, &absent.api_version, &absent.kind, &absent.name)
            && node.namespace() == absent.namespace;
        let target = self.target(index, absent);
        if node.is_virtual() {
            if self.store.dependents(index).any(|first| self.matching(first, target).1) {
                self.absent_for_matching(index, absent, target, effects);
                if is_node {
                    let cluster_scoped = absent.namespace.is_empty();
                    self.take_alternative(index, absent, cluster_scoped, effects);
                }
            } else {
                let namespace = self.store.hold_namespace(&absent.namespace);
                let Coordinate { api_version, kind, name, .. } = absent;
                self.store.take_coordinate(index, api_version, kind, namespace, name);
                self.store.namespaces.release(namespace);
                self.depart(&[index], effects);
            }
        } else if is_node {
            self.depart(&[index], effects);
        } else {
            self.absent_for_matching(index, absent, target, effects);
        }
        self.end_change();
    }

    /// A worker found that a virtual node's coordinate is one that no object can have: a namespaced kind without a
    /// namespace, say, which a cluster-scoped dependent made up. That proves nothing absent: others may mean the same
    /// owner rightly. The node takes the next coordinate that its dependents use, as in spec G9, and is put back,
    /// rate-limited; without another one it stays as it is until its dependents are gone. Any other coordinate than
    /// the node's own changes nothing.
    pub fn reconsider(&mut self, impossible: &Coordinate, effects: &mut Vec<Effect>) {
        let Some(index) = self.find_present(impossible.uid.as_ref()) else {
            return;
        };
        let node = Node::new(self, index);
        if node.is_virtual() && node.coordinate() == *impossible {
            self.take_alternative(index, impossible, false, effects);
        }
        self.end_change();
    }

    /// Every coordinate under which dependents name this virtual node has been found absent, one after the other: it is
    /// removed as in spec G8. Until one of them is written anew there is nothing to ask for.
    pub fn virtual_delete_all(&mut self, uid: &Uid, effects: &mut Vec<Effect>) {
        let Some(index) = self.find_present(uid.as_ref()) else {
            return;
        };
        if self.store.is(index, VIRTUAL) {
            self.depart(&[index], effects);
        }
        self.end_change();
    }

    /// From here on, what is proved absent carries this number: the caller's time, in whichever unit it counts. The
    /// graph makes nothing of it; [`Graph::absent_since`] gives it back.
    pub fn set_stamp(&mut self, stamp: u32) {
        self.stamp = stamp;
    }

    /// Forgets every absence that the graph knows of (spec S7: the server's versions went back, so what was seen
    /// deleted may live again). Owners that were absent are virtual again and go to attempt-to-delete.
    ///
    /// So does whatever else was decided by a read alone: other virtual nodes, objects whose references say something
    /// else than the graph, and dependents of owners that wait for them to go. What was done about them may be undone
    /// without a trace, where no watch had shown it yet: the object is then listed as it was before, which is no change.
    pub fn forget_absent(&mut self, effects: &mut Vec<Effect>) {
        let indexes: Vec<u32> = self.store.indexes().collect();
        for &index in &indexes {
            if self.store.is(index, ABSENT) {
                self.revive(index);
            }
        }
        for index in indexes {
            let is_read = |edge| {
                let owner = self.store.edge(edge).owner;
                owner != NONE && (self.is_mismatched(edge) || self.store.is(owner, DELETING_DEPENDENTS))
            };
            let is_by_reads = self.store.is(index, VIRTUAL) || self.store.references(index).any(is_read);
            if is_by_reads {
                self.queue(index, effects);
            }
        }
        self.end_change();
    }

    /// How many observations were refused so far; see [`Graph::observe`].
    pub fn refused(&self) -> u64 {
        self.refused
    }

    pub(crate) fn end_change(&mut self) {
        self.queued.clear();
        if self.queued.capacity() > KEPT {
            // A burst must not be paid for in memory ever after.
            self.queued = HashSet::new();
        }
        self.store.shrink_if_sparse();
    }
}

/// Meeting an object.
impl Graph {
    fn meet(&mut self, uid: UidRef<'_>, seen: &Observation<'_>) -> u32 {
        let namespace = self.store.hold_namespace(seen.namespace);
        let index = self.store.insert_node(uid, seen.api_version, seen.kind, namespace, seen.name);
        self.store.namespaces.release(namespace);
        self.len += 1;
        self.join(index, seen.source);
        index
    }

    /// Brings the coordinate of a known node up to date: spec G5 for the first real observation, G5b for another
    /// version of its kind.
    ///
    /// Some servers show one object under two kinds (a namespace that is a project, too). There the kind that was
    /// seen first stays, or the two watches would take the node from each other with each event.
    fn meet_again(&mut self, index: u32, seen: &Observation<'_>, effects: &mut Vec<Effect>) {
        if self.store.is(index, VIRTUAL | ABSENT) {
            let differs = !self.is_at(index, seen);
            let check = differs || self.store.is_doubted(index);
            self.first_observation(index, seen);
            if check {
                self.check_dependents(index, effects);
            }
            return;
        }
        let another_watch = self.store.node(index).source != seen.source.0;
        if !another_watch && self.is_at(index, seen) {
            return;
        }
        let kind = self.store.kind(index);
        let another_kind = *kind.kind != *seen.kind || group(&kind.api_version) != group(seen.api_version);
        if another_watch && another_kind {
            self.store.node_mut(index).flags |= TWO_KINDS;
            return;
        }
        let node = Node::new(self, index);
        let another_object = another_kind || node.name() != seen.name || node.namespace() != seen.namespace;
        self.move_to(index, seen);
        if another_object {
            self.check_dependents(index, effects);
        }
    }

    fn is_at(&self, index: u32, seen: &Observation<'_>) -> bool {
        self.store.is_named(index, seen.api_version, seen.kind, seen.name)
            && self.store.namespace(index) == seen.namespace
    }

    fn first_observation(&mut self, index: u32, seen: &Observation<'_>) {
        if self.store.is(index, ABSENT) {
            self.len += 1;
        } else {
            self.virtual_len -= 1;
        }
        self.store.node_mut(index).flags &= !(VIRTUAL | ABSENT);
        self.store.clear_version(index);
        self.join(index, seen.source);
        self.move_to(index, seen);
    }

    /// An observed node takes the coordinate and the watch of an observation.
    fn move_to(&mut self, index: u32, seen: &Observation<'_>) {
        self.leave_source(index);
        self.join(index, seen.source);
        if !self.is_at(index, seen) {
            let namespace = self.store.hold_namespace(seen.namespace);
            self.store.take_coordinate(index, seen.api_version, seen.kind, namespace, seen.name);
            self.store.namespaces.release(namespace);
        }
    }

    /// Puts the dependents whose references do not match their observed owner on attempt-to-delete.
    fn check_dependents(&mut self, index: u32, effects: &mut Vec<Effect>) {
        let mut first = self.store.node(index).first_dependent;
        while first != NONE {
            let Edge { dependent, next_dependent, .. } = *self.store.edge(first);
            if self.is_in_wrong_namespace(index, dependent) {
                self.report(first, effects);
                self.queue(dependent, effects);
            } else if self.store.group(first).any(|edge| !self.store.edge(edge).is_as_owner()) {
                self.queue(dependent, effects);
            }
            first = next_dependent;
        }
    }

    fn is_in_wrong_namespace(&self, owner: u32, dependent: u32) -> bool {
        let namespace = self.store.node(owner).namespace;
        namespace != CLUSTER_SCOPED && namespace != self.store.node(dependent).namespace
    }

    fn report(&self, edge: u32, effects: &mut Vec<Effect>) {
        let Edge { owner, dependent, .. } = *self.store.edge(edge);
        effects.push(Effect::InvalidOwnerReference(Box::new(InvalidOwnerReference {
            dependent: Node::new(self, dependent).coordinate(),
            reference: self.owner_reference(edge),
            owner_namespace: self.store.namespace(owner).to_owned(),
        })));
    }

    pub(crate) fn owner_reference(&self, edge: u32) -> OwnerReference {
        let (kind, name) = self.store.written(edge);
        let edge = self.store.edge(edge);
        OwnerReference {
            api_version: kind.api_version.to_string(),
            kind: kind.kind.to_string(),
            name: name.to_owned(),
            uid: if edge.owner == NONE { Uid::default() } else { self.store.to_uid(edge.owner) },
            controller: edge.has(crate::store::CONTROLLER),
            block_owner_deletion: edge.has(BLOCKS),
        }
    }

    /// The flags are levels: they say what the last observation said (spec G7).
    fn set_deletion(&mut self, index: u32, seen: &Observation<'_>, check: bool, effects: &mut Vec<Effect>) {
        let before = self.store.node(index).flags;
        let mut flags = before & !(BEING_DELETED | DELETING_DEPENDENTS | ORPHANING | NAMES_POLICY);
        if seen.being_deleted {
            flags |= BEING_DELETED;
            if seen.has_orphan_finalizer {
                flags |= ORPHANING;
            } else if seen.has_foreground_finalizer {
                flags |= DELETING_DEPENDENTS;
            }
        } else if seen.has_orphan_finalizer || seen.has_foreground_finalizer {
            flags |= NAMES_POLICY;
        }
        if (flags ^ before) & BEING_DELETED != 0 {
            self.store.turn(index, seen.being_deleted);
        }
        if flags & DELETING_DEPENDENTS == 0 {
            self.store.end_waiting(index);
        }
        self.store.node_mut(index).flags = flags;
        if flags & !before & DELETING_DEPENDENTS != 0 {
            self.store.begin_waiting(index);
            self.queue_dependents(index, effects);
        }
        // A server that was restored from a backup knows nothing of the deletion: who began it is to begin it again
        // (spec S7).
        let lives_again =
            before & !flags & BEING_DELETED != 0 && self.store.node(index).first_reference != NONE;
        if check || lives_again || flags & DELETING_DEPENDENTS != 0 {
            self.queue(index, effects);
        }
        if flags & ORPHANING != 0 {
            effects.push(Effect::AttemptToOrphan(self.store.to_uid(index)));
        }
    }

    fn queue(&mut self, index: u32, effects: &mut Vec<Effect>) {
        if self.queued.insert(index) {
            effects.push(Effect::AttemptToDelete(self.store.to_uid(index)));
        }
    }

    fn queue_dependents(&mut self, index: u32, effects: &mut Vec<Effect>) {
        let mut first = self.store.node(index).first_dependent;
        while first != NONE {
            let Edge { dependent, next_dependent, .. } = *self.store.edge(first);
            self.queue(dependent, effects);
            first = next_dependent;
        }
    }

    pub(crate) fn find_present(&self, uid: UidRef<'_>) -> Option<u32> {
        self.store.find(uid).filter(|&index| !self.store.is(index, ABSENT))
    }
}

/// References.
impl Graph {
    fn has_references(&self, index: u32, references: &[OwnerReferenceRef<'_>]) -> bool {
        let mut edges = self.store.references(index);
        for reference in references {
            let Some(edge) = edges.next() else {
                return false;
            };
            let (kind, name) = self.store.written(edge);
            let edge = self.store.edge(edge);
            let same_owner = if edge.owner == NONE {
                reference.uid.is_empty()
            } else {
                self.store.has_uid(edge.owner, UidRef::new(reference.uid))
            };
            let same = same_owner
                && name == reference.name
                && kind.is(reference.api_version, reference.kind)
                && edge.has(BLOCKS) == reference.block_owner_deletion
                && edge.has(crate::store::CONTROLLER) == reference.controller;
            if !same {
                return false;
            }
        }
        edges.next().is_none()
    }

    /// Spec G3, G4 and G6. Gives back whether the object must go to attempt-to-delete for a check. In an object that
    /// moved to another namespace (none does that, but a graph must not come to rest on a fault) no reference
    /// counts as checked before.
    fn replace_references(
        &mut self,
        index: u32,
        references: &[OwnerReferenceRef<'_>],
        moved: bool,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let old: Vec<u32> = self.store.references(index).collect();
        let mut known = Known::default();
        for &edge in &old {
            let Edge { owner, .. } = *self.store.edge(edge);
            known.owners.insert(owner);
            if !moved {
                known.references.insert((owner, self.store.edge(edge).written()));
            }
            if owner != NONE && !self.store.edge(edge).has(REPEATS) {
                self.store.unlink(edge);
            }
        }
        self.store.node_mut(index).first_reference = NONE;
        let check = self.add_references(index, references, &known, effects);
        if !old.is_empty() {
            self.let_go(index, &old, effects);
        }
        check
    }

    /// The old references of a node go; owners that they blocked and that no new one blocks may be free.
    fn let_go(&mut self, index: u32, old: &[u32], effects: &mut Vec<Effect>) {
        let blocking =
            self.store.references(index).map(|edge| self.store.edge(edge)).filter(|edge| edge.has(BLOCKS));
        let blocked: HashSet<u32> = blocking.map(|edge| edge.owner).collect();
        let mut touched = Vec::new();
        for &edge in old {
            let Edge { owner, .. } = *self.store.edge(edge);
            let freed = self.store.edge(edge).has(BLOCKS) && !blocked.contains(&owner);
            self.store.remove_edge(edge);
            if owner == NONE {
                continue;
            }
            touched.push(owner);
            let is_there = !self.store.is(owner, ABSENT) && !self.is_needless(owner);
            if freed && is_there && self.store.is_worth_a_look(owner) {
                self.queue(owner, effects);
            }
        }
        self.drop_needless(&touched);
    }

    /// Adds references in their order, and checks those that the node did not have before.
    fn add_references(
        &mut self,
        index: u32,
        references: &[OwnerReferenceRef<'_>],
        known: &Known,
        effects: &mut Vec<Effect>,
    ) -> bool {
        // The first edge to each owner, where there are too many to look through.
        let mut firsts = (references.len() > 8).then(HashMap::<u32, u32>::new);
        let (mut check, mut reported, mut previous) = (false, false, NONE);
        for reference in references {
            let (owner, is_new) = self.owner_of(index, reference, known);
            let edge = self.store.insert_edge(index, previous, owner, reference);
            previous = edge;
            if owner == NONE {
                continue;
            }
            let first = match &mut firsts {
                Some(firsts) => *firsts.entry(owner).or_insert(edge),
                None => {
                    let to_owner = |edge: &u32| self.store.edge(*edge).owner == owner;
                    self.store.references(index).find(to_owner).unwrap_or(edge)
                }
            };
            if first == edge {
                self.store.link(edge);
            } else {
                self.store.edge_mut(first).set(IS_REPEATED);
                self.store.edge_mut(edge).set(REPEATS);
            }
            if is_new {
                self.queue(owner, effects);
            } else if self.store.is(owner, ABSENT) {
                // The references that kept the object alive may be those that went.
                check = true;
            } else {
                // Whoever was there when the owner began to delete its dependents was queued then. Level, not edge:
                // which of the two a watch shows first must not matter.
                check |= owner != index && self.store.is(owner, DELETING_DEPENDENTS);
                check |= if known.references.contains(&(owner, self.store.edge(edge).written())) {
                    // The look that it had may have ended at a reference that is gone now.
                    self.is_mismatched(edge)
                } else {
                    self.is_questionable(edge, &mut reported, effects)
                };
            }
        }
        check
    }

    /// The owner that a reference names, and whether it is new to the graph: then it is a virtual node (spec G3).
    /// An absent owner that the node named before stays absent.
    ///
    /// A reference without a UID names nobody: no object has an empty UID, and a node for it would be shared by
    /// everything with that fault.
    fn owner_of(&mut self, index: u32, reference: &OwnerReferenceRef<'_>, known: &Known) -> (u32, bool) {
        if reference.uid.is_empty() {
            return (NONE, false);
        }
        let OwnerReferenceRef { api_version, kind, name, .. } = *reference;
        let uid = UidRef::new(reference.uid);
        let namespace = self.store.node(index).namespace;
        match self.store.find(uid) {
            Some(owner) if self.store.is(owner, ABSENT) && !known.owners.contains(&owner) => {
                self.store.take_coordinate(owner, api_version, kind, namespace, name);
                self.revive(owner);
                (owner, true)
            }
            Some(owner) => (owner, false),
            None => {
                let owner = self.store.insert_node(uid, api_version, kind, namespace, name);
                self.store.node_mut(owner).flags |= VIRTUAL;
                self.len += 1;
                self.virtual_len += 1;
                (owner, true)
            }
        }
    }

    fn revive(&mut self, index: u32) {
        self.store.stamp(index, 0);
        let node = self.store.node_mut(index);
        node.flags = node.flags & !ABSENT | VIRTUAL;
        self.len += 1;
        self.virtual_len += 1;
    }

    /// Spec G4: whether a reference to an owner that is in the graph needs a look at the server. Only the first
    /// reference into a wrong namespace is reported.
    fn is_questionable(&mut self, edge: u32, reported: &mut bool, effects: &mut Vec<Effect>) -> bool {
        if !self.is_mismatched(edge) {
            return false;
        }
        let Edge { owner, dependent, .. } = *self.store.edge(edge);
        if self.store.is(owner, VIRTUAL) {
            self.store.doubt(owner);
        } else if self.is_in_wrong_namespace(owner, dependent) && !*reported {
            self.report(edge, effects);
            *reported = true;
        }
        true
    }

    /// Whether a reference says something else of its owner than the graph does.
    pub(crate) fn is_mismatched(&self, edge: u32) -> bool {
        let Edge { owner, dependent, .. } = *self.store.edge(edge);
        let same_namespace = self.store.node(owner).namespace == self.store.node(dependent).namespace;
        self.is_in_wrong_namespace(owner, dependent)
            || !self.store.edge(edge).is_as_owner()
            || !same_namespace && self.store.is(owner, VIRTUAL)
    }

    /// A node that is not observed stands for the references to it; without any it stands for nothing.
    fn is_needless(&self, index: u32) -> bool {
        self.store.is(index, VIRTUAL | ABSENT) && self.store.node(index).first_dependent == NONE
    }

    fn drop_needless(&mut self, indexes: &[u32]) {
        for &index in indexes {
            // One that went already, because it is here twice, has no flags and is needless no more.
            if !self.is_needless(index) {
                continue;
            }
            if !self.store.is(index, ABSENT) {
                self.len -= 1;
                self.virtual_len -= 1;
            }
            self.store.remove_node(index);
        }
    }
}

/// Absence.
impl Graph {
    /// Spec G8 for objects that go together: dependents that go, too, do not count.
    pub(crate) fn depart(&mut self, indexes: &[u32], effects: &mut Vec<Effect>) {
        let mut owners = std::mem::take(&mut self.cut);
        self.cut_references(indexes, &mut owners);
        for &index in indexes {
            self.leave_source(index);
            self.len -= 1;
            if self.store.is(index, VIRTUAL) {
                self.virtual_len -= 1;
            }
            if self.store.node(index).first_dependent == NONE {
                self.store.remove_node(index);
                continue;
            }
            effects.push(Effect::Absent(Box::new(Node::new(self, index).coordinate())));
            self.queue_dependents(index, effects);
            self.store.clear_version(index);
            self.store.doubt(index);
            self.store.stamp(index, self.stamp);
            self.store.end_waiting(index);
            let node = self.store.node_mut(index);
            node.flags &= !(VIRTUAL
                | BEING_DELETED
                | DELETING_DEPENDENTS
                | ORPHANING
                | NAMES_POLICY
                | TWO_KINDS
                | PARITY);
            node.flags |= ABSENT;
        }
        self.queue_waiting(&owners, effects);
        self.drop_needless(&owners);
        owners.clear();
        if owners.capacity() <= KEPT {
            self.cut = owners;
        }
    }

    /// Spec S2 for nodes that merely stop being served.
    fn turn_virtual(&mut self, indexes: &[u32], effects: &mut Vec<Effect>) {
        let mut owners = Vec::new();
        self.cut_references(indexes, &mut owners);
        for &index in indexes {
            self.leave_source(index);
            if self.store.node(index).first_dependent == NONE {
                self.len -= 1;
                self.store.remove_node(index);
                continue;
            }
            self.virtual_len += 1;
            self.store.clear_version(index);
            self.store.doubt(index);
            self.store.end_waiting(index);
            let node = self.store.node_mut(index);
            node.flags &=
                !(BEING_DELETED | DELETING_DEPENDENTS | ORPHANING | NAMES_POLICY | TWO_KINDS | PARITY);
            node.flags |= VIRTUAL;
            self.queue(index, effects);
        }
        self.queue_waiting(&owners, effects);
        self.drop_needless(&owners);
    }

    /// Removes the references of these nodes; adds their owners in order.
    fn cut_references(&mut self, indexes: &[u32], owners: &mut Vec<u32>) {
        for &index in indexes {
            let mut edge = std::mem::replace(&mut self.store.node_mut(index).first_reference, NONE);
            while edge != NONE {
                let Edge { owner, next_reference, .. } = *self.store.edge(edge);
                if owner != NONE && !self.store.edge(edge).has(REPEATS) {
                    self.store.unlink(edge);
                    owners.push(owner);
                }
                self.store.remove_edge(edge);
                edge = next_reference;
            }
        }
    }

    /// Owners that are *deleting dependents* may have waited for the last of them.
    fn queue_waiting(&mut self, owners: &[u32], effects: &mut Vec<Effect>) {
        for &owner in owners {
            let is_waiting = self.store.node(owner).kind != NONE && self.store.is(owner, DELETING_DEPENDENTS);
            if is_waiting && self.store.is_worth_a_look(owner) {
                self.queue(owner, effects);
            }
        }
    }

    /// How to recognise the references that name `absent`.
    fn target(&self, index: u32, absent: &Coordinate) -> Target {
        let Coordinate { kind, api_version, namespace, name, .. } = absent;
        Target {
            namespaced: !namespace.is_empty(),
            namespace: self.store.find_namespace(namespace),
            as_owner: self.store.is_named(index, api_version, kind, name),
            written: self.store.find_written(api_version, kind, name),
        }
    }

    /// Whether a dependent, given its first edge, has references that match and that do not; both may be.
    fn matching(&self, first: u32, target: Target) -> (bool, bool) {
        let Edge { dependent, .. } = *self.store.edge(first);
        if target.namespaced && target.namespace != Some(self.store.node(dependent).namespace) {
            return (false, true);
        }
        let (mut matches, mut mismatches) = (false, false);
        for edge in self.store.group(first) {
            let edge = self.store.edge(edge);
            let names_target =
                if edge.is_as_owner() { target.as_owner } else { target.written == Some(edge.written()) };
            matches |= names_target;
            mismatches |= !names_target;
        }
        (matches, mismatches)
    }

    /// The node stays, but what some of its dependents name does not exist.
    fn absent_for_matching(
        &mut self,
        index: u32,
        absent: &Coordinate,
        target: Target,
        effects: &mut Vec<Effect>,
    ) {
        let mut remembered = false;
        let mut first = self.store.node(index).first_dependent;
        while first != NONE {
            let Edge { dependent, next_dependent, .. } = *self.store.edge(first);
            if self.matching(first, target).0 {
                if !remembered {
                    effects.push(Effect::Absent(Box::new(absent.clone())));
                    remembered = true;
                }
                self.queue(dependent, effects);
            }
            first = next_dependent;
        }
    }

    /// A virtual node whose coordinate was found absent takes the next one that its dependents use: the first
    /// after the absent one, else the first of all. `cluster_scoped` says that the absent one's kind is.
    fn take_alternative(
        &mut self,
        index: u32,
        absent: &Coordinate,
        cluster_scoped: bool,
        effects: &mut Vec<Effect>,
    ) {
        let absent_key = (&*absent.kind, &*absent.api_version, &*absent.namespace, &*absent.name);
        let key_of = |edge: u32| {
            let (kind, name) = self.store.written(edge);
            let is_cluster_scoped = cluster_scoped && kind.is(&absent.api_version, &absent.kind);
            let namespace = self.store.namespace(self.store.edge(edge).dependent);
            (&*kind.kind, &*kind.api_version, if is_cluster_scoped { "" } else { namespace }, name)
        };
        let keys = || self.store.dependents(index).flat_map(|first| self.store.group(first)).map(key_of);
        let following = keys().filter(|key| absent_key < *key).min();
        let next = following.or_else(|| keys().filter(|key| *key < absent_key).min());
        let Some((kind, api_version, namespace, name)) = next else {
            return;
        };
        let (kind, api_version, name) = (kind.to_owned(), api_version.to_owned(), name.to_owned());
        let namespace = namespace.to_owned();
        let namespace = self.store.hold_namespace(&namespace);
        self.store.take_coordinate(index, &api_version, &kind, namespace, &name);
        self.store.namespaces.release(namespace);
        self.store.doubt(index);
        effects.push(Effect::AttemptToDeleteRateLimited(self.store.to_uid(index)));
    }
}

/// What a node's references were before a change.
#[derive(Default)]
struct Known {
    owners: HashSet<u32>,
    /// Owners with the number of the coordinates as written.
    references: HashSet<(u32, u32)>,
}

/// What a reference must say to name an absent coordinate.
#[derive(Clone, Copy)]
struct Target {
    namespaced: bool,
    namespace: Option<u32>,
    as_owner: bool,
    written: Option<u32>,
}

/// The group of an apiVersion; the core group is empty.
fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Lists and watches as a whole.
impl Graph {
    /// A new list of a source begins (spec S5). What it does not show until [`Graph::end_list`] is gone. A list
    /// that begins before the last one ended takes its place.
    pub fn begin_list(&mut self, source: SourceId) {
        let state = self.source_mut(source);
        if std::mem::replace(&mut state.listing, true) {
            self.unsee_all(source);
        } else {
            state.parity = !state.parity;
            state.seen = 0;
        }
    }

    /// The list of a source is complete: every node of the source that was not observed since
    /// [`Graph::begin_list`] is deleted as in spec G8, all at once, in the order of the arena. Without a list
    /// under way nothing happens.
    pub fn end_list(&mut self, source: SourceId, effects: &mut Vec<Effect>) {
        let state = self.source_mut(source);
        if !std::mem::replace(&mut state.listing, false) || state.seen == state.nodes {
            return;
        }
        let parity = if state.parity { PARITY } else { 0 };
        let mut gone = self.nodes_of(source);
        gone.retain(|&index| self.store.node(index).flags & PARITY != parity);
        self.depart(&gone, effects);
        self.end_change();
    }

    /// A resource is no longer served (spec S2). That proves no deletion: nodes of the source that have
    /// dependents elsewhere turn virtual, without references of their own, as after a restart, and go to
    /// attempt-to-delete; the others just go. Their owners that are *deleting dependents* go to
    /// attempt-to-delete. Nothing becomes absent.
    pub fn unserve(&mut self, source: SourceId, effects: &mut Vec<Effect>) {
        let nodes = self.nodes_of(source);
        self.turn_virtual(&nodes, effects);
        self.source_mut(source).listing = false;
        self.end_change();
    }

    /// Makes the old parity that of every node of the source, at the price of a pass over the arena: only a list
    /// that was broken off costs it.
    fn unsee_all(&mut self, source: SourceId) {
        let state = self.source_mut(source);
        state.seen = 0;
        let unseen = if state.parity { 0 } else { PARITY };
        for index in self.nodes_of(source) {
            let node = self.store.node_mut(index);
            node.flags = node.flags & !PARITY | unseen;
        }
    }

    fn nodes_of(&self, source: SourceId) -> Vec<u32> {
        let is_of = |index: &u32| self.is_of(*index, source);
        self.store.indexes().filter(is_of).collect()
    }

    fn is_of(&self, index: u32, source: SourceId) -> bool {
        !self.store.is(index, VIRTUAL | ABSENT) && self.store.node(index).source == source.0
    }

    fn source_mut(&mut self, source: SourceId) -> &mut Source {
        let at = usize::from(source.0);
        if self.sources.len() <= at {
            self.sources.resize(at + 1, Source::default());
        }
        &mut self.sources[at]
    }

    /// An observed node becomes one of a source's, seen by the list under way.
    fn join(&mut self, index: u32, source: SourceId) {
        let state = self.source_mut(source);
        state.nodes += 1;
        state.seen += 1;
        let parity = if state.parity { PARITY } else { 0 };
        let node = self.store.node_mut(index);
        node.source = source.0;
        node.flags = node.flags & !PARITY | parity;
    }

    fn leave_source(&mut self, index: u32) {
        if self.store.is(index, VIRTUAL | ABSENT) {
            return;
        }
        let was_seen = self.store.is(index, PARITY);
        let state = self.source_mut(SourceId(self.store.node(index).source));
        state.nodes -= 1;
        if was_seen == state.parity {
            state.seen -= 1;
        }
    }

    fn mark_seen(&mut self, index: u32, source: SourceId) {
        if self.is_of(index, source) {
            let state = &mut self.sources[usize::from(source.0)];
            let node = self.store.node_mut(index);
            if (node.flags & PARITY != 0) != state.parity {
                state.seen += 1;
                node.flags ^= PARITY;
            }
        }
    }
}
