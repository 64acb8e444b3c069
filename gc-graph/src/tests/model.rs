//! The graph as plain maps, with every answer found by looking at everything. Slow and obvious.

use std::collections::{BTreeMap, BTreeSet};

use crate::fixture::{Change, Object};
use crate::{Coordinate, Effect, InvalidOwnerReference, OwnerReference, SourceId, Uid};

#[derive(Clone, Default)]
pub(super) struct Model {
    nodes: BTreeMap<Uid, ModelNode>,
    /// What is known to be absent, while a reference names it.
    absent: BTreeMap<Uid, Coordinate>,
    listing: BTreeSet<SourceId>,
    /// Before the last change: who was *deleting dependents*, with the number of references to it.
    waited: BTreeMap<Uid, usize>,
    /// Looks that the last change asks for, and that the graph may put off until more dependents have gone.
    put_off: BTreeSet<Uid>,
}

/// With fewer references to it, an owner that waits is worth a look each time that one goes.
const REFERENCES_MIN: usize = 8;

#[derive(Clone)]
struct ModelNode {
    coordinate: Coordinate,
    /// None for a virtual node.
    observed: Option<Observed>,
}

#[derive(Clone)]
struct Observed {
    object: Object,
    seen: bool,
}

impl ModelNode {
    fn references(&self) -> &[OwnerReference] {
        self.observed.as_ref().map_or(&[], |observed| &observed.object.owner_references)
    }

    fn is_deleting_dependents(&self) -> bool {
        self.observed.as_ref().is_some_and(|observed| is_deleting_dependents(&observed.object))
    }
}

fn has(object: &Object, finalizer: &str) -> bool {
    object.being_deleted && object.finalizers.iter().any(|held| held == finalizer)
}

fn is_deleting_dependents(object: &Object) -> bool {
    has(object, "foregroundDeletion") && !has(object, "orphan")
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Whether a reference names this coordinate, seen from this namespace.
fn names(reference: &OwnerReference, namespace: &str, coordinate: &Coordinate) -> bool {
    let seen_from = if coordinate.namespace.is_empty() { "" } else { namespace };
    reference.coordinate_in(seen_from) == *coordinate
}

/// Effects with attempts to delete counted once; looks that may be put off stand apart.
#[derive(Default)]
struct Effects(Vec<Effect>, BTreeSet<Uid>);

impl Effects {
    fn queue(&mut self, uid: &Uid) {
        let effect = Effect::AttemptToDelete(uid.clone());
        if !self.0.contains(&effect) {
            self.0.push(effect);
        }
    }
}

impl Model {
    pub(super) fn apply(&mut self, change: &Change) -> Vec<Effect> {
        let waiting = self.nodes.iter().filter(|(_, node)| node.is_deleting_dependents());
        self.waited = waiting.map(|(uid, _)| (uid.clone(), self.references_to(uid))).collect();
        let mut effects = Effects::default();
        match change {
            Change::Observe(object) if object.coordinate.uid.is_empty() => {}
            Change::Observe(object) => self.observe(object, &mut effects),
            Change::Delete(object) => self.delete(object, &mut effects),
            Change::VirtualDelete(absent) => self.virtual_delete(absent, &mut effects),
            Change::Reconsider(impossible) => self.reconsider(impossible, &mut effects),
            Change::BeginList(source) => {
                self.listing.insert(*source);
                for observed in self.observed_of(*source) {
                    observed.seen = false;
                }
            }
            Change::EndList(source) => self.end_list(*source, &mut effects),
            Change::Unserve(source) => self.unserve(*source, &mut effects),
            Change::ForgetAbsent => {
                for (uid, coordinate) in std::mem::take(&mut self.absent) {
                    self.nodes.insert(uid, ModelNode { coordinate, observed: None });
                }
                for node in self.nodes.values() {
                    let is_undecided =
                        node.observed.is_none() || self.names_otherwise(node) || self.is_waited_for(node);
                    if is_undecided {
                        effects.queue(&node.coordinate.uid);
                    }
                }
            }
        }
        self.drop_needless();
        let Effects(mut effects, mut put_off) = effects;
        put_off.retain(|uid| !effects.contains(&Effect::AttemptToDelete(uid.clone())));
        effects.extend(put_off.iter().cloned().map(Effect::AttemptToDelete));
        self.put_off = put_off;
        effects
    }

    /// The looks among the effects of the last change that the graph may put off.
    pub(super) fn put_off(&self) -> impl Iterator<Item = Effect> + '_ {
        self.put_off.iter().cloned().map(Effect::AttemptToDelete)
    }

    fn references_to(&self, owner: &Uid) -> usize {
        self.nodes
            .values()
            .flat_map(ModelNode::references)
            .filter(|reference| reference.uid == *owner)
            .count()
    }

    /// An owner may be free since a dependent has gone or does not block it any more. One to which many refer, and that
    /// waits for some that nobody has begun to delete, may get its look later.
    fn look(&self, owner: &Uid, effects: &mut Effects) {
        let is_idle = |node: &ModelNode| !node.observed.as_ref().is_some_and(|it| it.object.being_deleted);
        let blocks = |reference: &OwnerReference| reference.uid == *owner && reference.block_owner_deletion;
        let waits = self.nodes.values().any(|node| is_idle(node) && node.references().iter().any(blocks));
        let references = self.waited.get(owner).map(|before| before + self.references_to(owner));
        if waits && references.is_some_and(|references| REFERENCES_MIN <= references) {
            effects.1.insert(owner.clone());
        } else {
            effects.queue(owner);
        }
    }

    fn is_waited_for(&self, node: &ModelNode) -> bool {
        let owners = || node.references().iter().filter_map(|r| self.nodes.get(&r.uid));
        owners().any(ModelNode::is_deleting_dependents)
    }

    fn names_otherwise(&self, node: &ModelNode) -> bool {
        let namespace = &node.coordinate.namespace;
        node.references().iter().filter_map(|r| Some((r, self.nodes.get(&r.uid)?))).any(
            |(reference, owner)| {
                let at = &owner.coordinate;
                let elsewhere = at.namespace != *namespace;
                let may_be_elsewhere = at.namespace.is_empty() && owner.observed.is_some();
                elsewhere && !may_be_elsewhere
                    || reference.coordinate_in("") != Coordinate { namespace: String::new(), ..at.clone() }
            },
        )
    }

    fn observed_of(&mut self, source: SourceId) -> impl Iterator<Item = &mut Observed> {
        self.nodes
            .values_mut()
            .filter_map(|node| node.observed.as_mut())
            .filter(move |it| it.object.source == source)
    }

    /// The dependents of a UID, whatever is known of it.
    fn dependents(&self, uid: &Uid) -> Vec<ModelNode> {
        let names = |node: &&ModelNode| node.references().iter().any(|reference| reference.uid == *uid);
        self.nodes.values().filter(names).cloned().collect()
    }

    fn is_needless(&self, uid: &Uid) -> bool {
        self.nodes.get(uid).is_some_and(|node| node.observed.is_none()) && self.dependents(uid).is_empty()
    }

    fn drop_needless(&mut self) {
        let uids: Vec<Uid> = self.nodes.keys().filter(|uid| self.is_needless(uid)).cloned().collect();
        self.nodes.retain(|uid, _| !uids.contains(uid));
        let unnamed: Vec<Uid> =
            self.absent.keys().filter(|uid| self.dependents(uid).is_empty()).cloned().collect();
        self.absent.retain(|uid, _| !unnamed.contains(uid));
    }

    fn observe(&mut self, object: &Object, effects: &mut Effects) {
        let uid = &object.coordinate.uid;
        let before = self.nodes.get(uid).cloned();
        let mut object = object.clone();
        let known = before.as_ref().and_then(|node| node.observed.as_ref()).map(|observed| &observed.object);
        let was_absent = self.absent.remove(uid).is_some();
        let mut seen = true;
        if let Some(known) = known {
            let (old, new) = (&known.coordinate, &object.coordinate);
            let another_kind = old.kind != new.kind || group(&old.api_version) != group(&new.api_version);
            if known.source != object.source && another_kind {
                // The watch that showed it first keeps it.
                seen = before.as_ref().and_then(|node| node.observed.as_ref()).is_some_and(|it| it.seen);
                (object.coordinate, object.source) = (known.coordinate.clone(), known.source);
            } else if another_kind || old.name != new.name || old.namespace != new.namespace {
                self.check_dependents(&object.coordinate, effects);
            }
        } else if before.is_some() || was_absent {
            self.check_dependents(&object.coordinate, effects);
        }
        let moved = known.is_some_and(|known| known.coordinate.namespace != object.coordinate.namespace);
        let old_references = known.map_or(Vec::new(), |known| known.owner_references.clone());
        let started = is_deleting_dependents(&object) && !known.is_some_and(is_deleting_dependents);
        let lives_again = known.is_some_and(|known| known.being_deleted) && !object.being_deleted;
        let lives_again = lives_again && !object.owner_references.is_empty();
        let observed = Some(Observed { object: object.clone(), seen });
        self.nodes.insert(uid.clone(), ModelNode { coordinate: object.coordinate.clone(), observed });
        let mut check = false;
        if moved || old_references != object.owner_references {
            check = self.change_references(&object, &old_references, moved, effects);
        }
        if started {
            self.dependents(uid).iter().for_each(|dependent| effects.queue(&dependent.coordinate.uid));
        }
        if check || lives_again || is_deleting_dependents(&object) {
            effects.queue(uid);
        }
        if has(&object, "orphan") {
            effects.0.push(Effect::AttemptToOrphan(uid.clone()));
        }
    }

    fn change_references(
        &mut self,
        object: &Object,
        old: &[OwnerReference],
        moved: bool,
        effects: &mut Effects,
    ) -> bool {
        let namespace = &object.coordinate.namespace;
        let (mut check, mut reported) = (false, false);
        for reference in object.owner_references.iter().filter(|reference| !reference.uid.is_empty()) {
            let same = |other: &&OwnerReference| other.coordinate_in("") == reference.coordinate_in("");
            let Some(owner) = self.nodes.get(&reference.uid) else {
                if old.iter().any(|other| other.uid == reference.uid) {
                    check = true;
                } else {
                    self.absent.remove(&reference.uid);
                    let node = ModelNode { coordinate: reference.coordinate_in(namespace), observed: None };
                    self.nodes.insert(reference.uid.clone(), node);
                    effects.queue(&reference.uid);
                }
                continue;
            };
            check |= owner.is_deleting_dependents() && owner.coordinate.uid != object.coordinate.uid;
            let is_new = moved || !old.iter().any(|other| same(&other));
            let at = &owner.coordinate;
            if !at.namespace.is_empty() && at.namespace != *namespace {
                if owner.observed.is_some() && is_new && !reported {
                    effects.0.push(invalid(object, reference, &at.namespace));
                    reported = true;
                }
                check = true;
            } else {
                let elsewhere = owner.observed.is_none() && at.namespace != *namespace;
                check |= elsewhere || !names(reference, namespace, at);
            }
        }
        self.drop_needless();
        for freed in old.iter().filter(|reference| reference.block_owner_deletion) {
            let blocks = |new: &OwnerReference| new.uid == freed.uid && new.block_owner_deletion;
            if self.nodes.contains_key(&freed.uid) && !object.owner_references.iter().any(blocks) {
                self.look(&freed.uid, effects);
            }
        }
        check
    }

    fn check_dependents(&self, owner: &Coordinate, effects: &mut Effects) {
        for dependent in self.dependents(&owner.uid) {
            // An object that names itself moves as its owner does.
            let is_owner = dependent.coordinate.uid == owner.uid;
            let namespace = if is_owner { &owner.namespace } else { &dependent.coordinate.namespace };
            let Some(observed) = &dependent.observed else {
                continue;
            };
            let mut references = dependent.references().iter().filter(|reference| reference.uid == owner.uid);
            if !owner.namespace.is_empty() && owner.namespace != *namespace {
                effects.0.extend(
                    references.next().map(|first| invalid(&observed.object, first, &owner.namespace)),
                );
                effects.queue(&dependent.coordinate.uid);
            } else if references.any(|reference| !names(reference, namespace, owner)) {
                effects.queue(&dependent.coordinate.uid);
            }
        }
    }

    fn delete(&mut self, object: &Object, effects: &mut Effects) {
        let uid = &object.coordinate.uid;
        let Some(node) = self.nodes.get(uid) else {
            return;
        };
        let old = node.coordinate.clone();
        let new = &object.coordinate;
        let another_kind = old.kind != new.kind || group(&old.api_version) != group(&new.api_version);
        match &node.observed {
            None => self.check_dependents(new, effects),
            Some(known) if known.object.source != object.source && another_kind => {}
            Some(_) if another_kind || old.name != new.name || old.namespace != new.namespace => {
                self.check_dependents(new, effects);
            }
            Some(_) => {}
        }
        self.depart(&[(uid.clone(), new.clone())], effects);
    }

    fn depart(&mut self, going: &[(Uid, Coordinate)], effects: &mut Effects) {
        let mut owners = Vec::new();
        for (uid, _) in going {
            let node = self.nodes.remove(uid);
            owners.extend(
                node.iter().flat_map(|node| node.references()).map(|reference| reference.uid.clone()),
            );
        }
        for (uid, coordinate) in going {
            let dependents = self.dependents(uid);
            if !dependents.is_empty() {
                effects.0.push(Effect::Absent(Box::new(coordinate.clone())));
                self.absent.insert(uid.clone(), coordinate.clone());
            }
            dependents.iter().for_each(|dependent| effects.queue(&dependent.coordinate.uid));
        }
        self.queue_waiting(&owners, effects);
    }

    fn queue_waiting(&self, owners: &[Uid], effects: &mut Effects) {
        for owner in owners {
            if self.nodes.get(owner).is_some_and(ModelNode::is_deleting_dependents) {
                self.look(owner, effects);
            }
        }
    }

    fn end_list(&mut self, source: SourceId, effects: &mut Effects) {
        if !self.listing.remove(&source) {
            return;
        }
        let is_gone = |node: &&ModelNode| {
            node.observed.as_ref().is_some_and(|observed| observed.object.source == source && !observed.seen)
        };
        let going: Vec<_> = self.nodes.values().filter(is_gone).map(|node| node.coordinate.clone()).collect();
        let going: Vec<_> =
            going.into_iter().map(|coordinate| (coordinate.uid.clone(), coordinate)).collect();
        self.depart(&going, effects);
        for observed in self.observed_of(source) {
            observed.seen = true;
        }
    }

    fn unserve(&mut self, source: SourceId, effects: &mut Effects) {
        self.listing.remove(&source);
        let is_of = |node: &&ModelNode| node.observed.as_ref().is_some_and(|it| it.object.source == source);
        let going: Vec<ModelNode> = self.nodes.values().filter(is_of).cloned().collect();
        let mut owners = Vec::new();
        for node in &going {
            owners.extend(node.references().iter().map(|reference| reference.uid.clone()));
            let node = ModelNode { observed: None, ..node.clone() };
            self.nodes.insert(node.coordinate.uid.clone(), node);
        }
        for ModelNode { coordinate, .. } in &going {
            if !self.dependents(&coordinate.uid).is_empty() {
                effects.queue(&coordinate.uid);
            }
        }
        self.queue_waiting(&owners, effects);
    }

    fn virtual_delete(&mut self, absent: &Coordinate, effects: &mut Effects) {
        let Some(node) = self.nodes.get(&absent.uid).cloned() else {
            return;
        };
        let dependents = self.dependents(&absent.uid);
        let mut matching = Vec::new();
        let mut others = Vec::new();
        for dependent in &dependents {
            let namespace = &dependent.coordinate.namespace;
            for reference in dependent.references().iter().filter(|reference| reference.uid == absent.uid) {
                let matches = names(reference, namespace, absent);
                if matches {
                    matching.push(dependent);
                } else {
                    others.push((reference, namespace));
                }
            }
        }
        let is_node = node.coordinate == *absent;
        if node.observed.is_some() && is_node || node.observed.is_none() && others.is_empty() {
            self.depart(&[(absent.uid.clone(), absent.clone())], effects);
            return;
        }
        if !matching.is_empty() {
            effects.0.push(Effect::Absent(Box::new(absent.clone())));
        }
        matching.iter().for_each(|dependent| effects.queue(&dependent.coordinate.uid));
        if node.observed.is_some() || !is_node {
            return;
        }
        let alternatives = others.iter().map(|(reference, namespace)| {
            let same_kind = reference.kind == absent.kind && reference.api_version == absent.api_version;
            let cluster_scoped = absent.namespace.is_empty() && same_kind;
            reference.coordinate_in(if cluster_scoped { "" } else { namespace })
        });
        let alternatives: BTreeSet<Coordinate> = alternatives.collect();
        let next = alternatives.iter().find(|it| *it > absent).or_else(|| alternatives.first());
        let coordinate = next.expect("a reference that does not match names another coordinate").clone();
        self.nodes.insert(absent.uid.clone(), ModelNode { coordinate, observed: None });
        effects.0.push(Effect::AttemptToDeleteRateLimited(absent.uid.clone()));
    }

    fn reconsider(&mut self, impossible: &Coordinate, effects: &mut Effects) {
        let is_virtual = self
            .nodes
            .get(&impossible.uid)
            .is_some_and(|it| it.observed.is_none() && it.coordinate == *impossible);
        if !is_virtual {
            return;
        }
        let mut used = BTreeSet::new();
        for dependent in self.dependents(&impossible.uid) {
            let references =
                dependent.references().iter().filter(|reference| reference.uid == impossible.uid);
            used.extend(references.map(|reference| reference.coordinate_in(&dependent.coordinate.namespace)));
        }
        used.remove(impossible);
        let Some(coordinate) = used.iter().find(|it| *it > impossible).or_else(|| used.first()).cloned()
        else {
            return;
        };
        self.nodes.insert(impossible.uid.clone(), ModelNode { coordinate, observed: None });
        effects.0.push(Effect::AttemptToDeleteRateLimited(impossible.uid.clone()));
    }

    /// As `fixture::print`.
    pub(super) fn print(&self) -> String {
        self.nodes.values().map(|node| self.print_node(node) + "\n").collect()
    }

    fn print_node(&self, node: &ModelNode) -> String {
        let mut line = node.coordinate.to_string();
        let Some(Observed { object, .. }) = &node.observed else {
            return line + " virtual";
        };
        line += &format!(" rv={}", object.resource_version);
        line += if object.being_deleted { " being-deleted" } else { "" };
        line += if is_deleting_dependents(object) { " deleting-dependents" } else { "" };
        line += if has(object, "orphan") { " orphaning" } else { "" };
        let is_ours = |finalizer: &str| ["orphan", "foregroundDeletion"].contains(&finalizer);
        let names_policy = !object.being_deleted && object.finalizers.iter().any(|held| is_ours(held));
        line += if names_policy { " names-policy" } else { "" };
        let namespace = &node.coordinate.namespace;
        let print = |reference: &OwnerReference| {
            let mut text = reference.uid.to_string();
            text += if reference.controller { "*" } else { "" };
            text += if reference.block_owner_deletion { "!" } else { "" };
            if let Some(owner) = self.nodes.get(&reference.uid) {
                if reference.coordinate_in(&owner.coordinate.namespace) != owner.coordinate {
                    text += &format!(" as {}.{} {}", reference.kind, reference.api_version, reference.name);
                }
                return text;
            }
            let absent = self.absent.get(&reference.uid).is_some_and(|at| names(reference, namespace, at));
            text + if absent { " absent" } else { " unknown" }
        };
        let owners: Vec<String> = object.owner_references.iter().map(print).collect();
        if owners.is_empty() { line } else { format!("{line} owners=[{}]", owners.join(", ")) }
    }
}

fn invalid(object: &Object, reference: &OwnerReference, owner_namespace: &str) -> Effect {
    Effect::InvalidOwnerReference(Box::new(InvalidOwnerReference {
        dependent: object.coordinate.clone(),
        reference: reference.clone(),
        owner_namespace: owner_namespace.to_owned(),
    }))
}
