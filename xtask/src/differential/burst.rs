//! Steps that may follow each other without a wait, because no race among them, or with a collector, shows at the end.
//!
//! Where all goes well, deletion does not depend on order: an object goes exactly when it is deleted or all its owners
//! go, and one that stays loses its references to those that went. What makes the order matter, and is therefore kept
//! out of bursts, or out of histories, is stated at each rule below.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::Policy;
use crate::differential::model::{
    IMPOSSIBLE_NAME, Identity, Kind, Object, Place, Reference, Snapshot, Step, Uid,
};

/// A burst as far as it has been made.
pub struct Burst {
    /// What may be there by now.
    objects: Snapshot,
    /// Every reference that was there at the start or was made since: dependent, owner, whether it blocks.
    edges: BTreeSet<(u32, u32, bool)>,
    done: BTreeMap<u32, Done>,
    steps: Vec<Step>,
    circumstances: Circumstances,
}

/// What bursts depend on besides the objects.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// Whether the collector may be killed in the middle.
    pub has_kill: bool,
    /// A kind that nobody serves now, but later.
    pub unserved: Option<Kind>,
    /// Whether nothing may be made that cannot be decided.
    pub is_decidable: bool,
    /// Namespaces that are being deleted.
    pub ended: BTreeSet<Place>,
}

/// What has been done to an object in this burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    /// Created, maybe without any owner that lives.
    Created,
    /// Given an owner that certainly lives.
    Reparented,
    /// Deleted, or left without an owner that certainly lives: the collector may be at work around it.
    Doomed,
    /// Something after which nothing else may happen around it.
    Alone,
}

impl Burst {
    /// An empty burst on what is there.
    pub fn new(now: &Snapshot, circumstances: Circumstances) -> Burst {
        let mut burst = Burst {
            objects: now.clone(),
            edges: BTreeSet::new(),
            done: BTreeMap::new(),
            steps: Vec::new(),
            circumstances,
        };
        for (number, object) in now {
            burst.add_edges(*number, &object.owners);
        }
        burst
    }

    /// What may be there by now.
    pub fn objects(&self) -> &Snapshot {
        &self.objects
    }

    /// What other objects name as their owner.
    pub fn owners(&self) -> Vec<u32> {
        let owners: BTreeSet<u32> = self.edges.iter().map(|edge| edge.1).collect();
        owners.into_iter().filter(|owner| self.objects.contains_key(owner)).collect()
    }

    /// The steps so far.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// All steps.
    pub fn into_steps(self) -> Vec<Step> {
        self.steps
    }

    /// Whether the step can follow without making the outcome a matter of timing.
    pub fn allows(&self, step: &Step) -> bool {
        // A difference: see `on_purpose`, "level".
        if let Step::Create { owners, .. } | Step::Own { owners, .. } = step
            && owners.iter().filter_map(|reference| self.owner(reference)).any(Object::is_waiting)
        {
            return false;
        }
        match step {
            Step::Create { identity, owners, finalizers, .. } => {
                let undecidable = self.cannot_be_decided(identity.place, owners);
                let Circumstances { ended, is_decidable, .. } = &self.circumstances;
                if ended.contains(&identity.place) || (undecidable && *is_decidable) {
                    return false;
                }
                self.allows_create(owners, undecidable || !finalizers.is_empty())
            }
            Step::Delete { number, policy: Some(Policy::Orphan) } => {
                // What the collector has not seen when it orphans is lost to it (kubernetes/kubernetes#131307). And what
                // could not be decided loses a reference, see `on_purpose`, "undecidable".
                self.is_untouched(&self.around([*number]))
                    && self.is_confluent(*number, false)
                    && !self.dependents(*number).any(|(dependent, _)| self.is_undecidable(dependent))
            }
            Step::Delete { number, policy } => {
                let around = self.around([*number]);
                if self.is_delicate(&around) {
                    let foreground = *policy == Some(Policy::Foreground);
                    return self.is_untouched(&around)
                        && self.is_confluent(*number, foreground)
                        && !(self.circumstances.has_kill && foreground && self.has_loose_edges(&around));
                }
                !self.has(&around, Done::Alone)
            }
            Step::EndNamespace { place } => self.allows_end_of_namespace(*place),
            Step::Own { number, owners } => self.allows_own(*number, owners),
            Step::Hold { number, finalizer } => self.objects.get(number).is_some_and(|object| {
                let is_new = !object.deleting && !object.finalizers.contains(finalizer);
                is_new && self.is_untouched(&self.around([*number]))
            }),
            Step::Release { number, .. } => {
                self.is_untouched(&self.around([*number])) && self.is_confluent(*number, false)
            }
            // A new version alone changes no decision.
            Step::Touch { .. } => true,
            // These are no one's choice: histories have them at fixed places.
            Step::Kill | Step::Undefine | Step::Define => false,
        }
    }

    /// Several deletions at once: where something may stay half-deleted there must be one only.
    fn allows_end_of_namespace(&self, place: Place) -> bool {
        let inside = |number: &u32| self.objects.get(number).is_some_and(|o| o.identity.place == place);
        let mut numbers = self.objects.keys().copied().filter(inside);
        !self.circumstances.ended.contains(&place)
            && numbers.all(|number| {
                let around = self.around([number]);
                if !self.is_delicate(&around) {
                    return !self.has(&around, Done::Alone);
                }
                let alone = around.iter().filter(|other| inside(other)).count() == 1;
                alone && self.is_untouched(&around) && self.is_confluent(number, false)
            })
    }

    fn allows_create(&self, owners: &[Reference], stuck: bool) -> bool {
        let around = self.around(numbers(owners));
        if stuck {
            return self.is_untouched(&around);
        }
        if self.is_delicate(&around) {
            return around.iter().all(|number| matches!(self.done.get(number), None | Some(Done::Created)));
        }
        !self.has(&around, Done::Alone)
    }

    fn allows_own(&self, number: u32, owners: &[Reference]) -> bool {
        let Some(object) = self.objects.get(&number).filter(|_| !self.done.contains_key(&number)) else {
            return false;
        };
        let place = object.identity.place;
        // A difference: see `on_purpose`, "undecidable".
        if self.cannot_be_decided(place, &object.owners) && !owners.is_empty() {
            return false;
        }
        let undecidable = self.cannot_be_decided(place, owners);
        if undecidable && self.circumstances.is_decidable {
            return false;
        }
        let around = self.around(numbers(owners).chain([number]));
        if self.is_delicate(&around) || undecidable {
            return self.is_untouched(&around) && self.is_confluent(number, false);
        }
        !self.has(&around, Done::Alone) && !self.has(&around, Done::Doomed)
    }

    /// Adds a step that [`Burst::allows`].
    pub fn push(&mut self, step: Step) {
        match &step {
            Step::Create { number, identity, owners, finalizers } => {
                let stuck = !finalizers.is_empty() || self.cannot_be_decided(identity.place, owners);
                self.add_edges(*number, owners);
                self.done.insert(*number, if stuck { Done::Alone } else { Done::Created });
                let (owners, finalizers) = (owners.clone(), finalizers.clone());
                let object = Object { identity: identity.clone(), owners, finalizers, deleting: false };
                self.objects.insert(*number, object);
            }
            Step::Delete { number, policy } => self.push_delete(*number, *policy),
            Step::EndNamespace { place } => {
                let inside = |(_, object): &(&u32, &Object)| object.identity.place == *place;
                let numbers: Vec<u32> = self.objects.iter().filter(inside).map(|(n, _)| *n).collect();
                numbers.into_iter().for_each(|number| self.push_delete(number, Some(Policy::Background)));
                self.circumstances.ended.insert(*place);
            }
            Step::Own { number, owners } => {
                self.add_edges(*number, owners);
                let around = self.around([*number]);
                let place = self.objects.get(number).map_or(Place::Cluster, |object| object.identity.place);
                let done = if self.cannot_be_decided(place, owners) || self.is_delicate(&around) {
                    Done::Alone
                } else if owners.is_empty() || owners.iter().any(|owner| self.is_surely_solid(place, owner)) {
                    Done::Reparented
                } else {
                    Done::Doomed
                };
                self.done.insert(*number, done);
                if let Some(object) = self.objects.get_mut(number) {
                    object.owners.clone_from(owners);
                }
            }
            Step::Hold { number, .. } | Step::Release { number, .. } => {
                self.done.insert(*number, Done::Alone);
            }
            Step::Touch { .. } | Step::Kill | Step::Undefine | Step::Define => {}
        }
        self.steps.push(step);
    }

    fn push_delete(&mut self, number: u32, policy: Option<Policy>) {
        let alone = policy == Some(Policy::Orphan) || self.is_delicate(&self.around([number]));
        self.done.insert(number, if alone { Done::Alone } else { Done::Doomed });
        let goes_at_once = policy == Some(Policy::Background)
            && self.objects.get(&number).is_some_and(|object| !object.is_held());
        if goes_at_once {
            self.objects.remove(&number);
        }
    }

    fn add_edges(&mut self, dependent: u32, owners: &[Reference]) {
        for reference in owners {
            if let Uid::Object(owner) = reference.uid {
                self.edges.insert((dependent, owner, reference.block));
            }
        }
    }
}

/// Questions.
impl Burst {
    fn owner(&self, reference: &Reference) -> Option<&Object> {
        match reference.uid {
            Uid::Object(number) => self.objects.get(&number),
            Uid::Nobody(_) => None,
        }
    }

    fn is_surely_solid(&self, dependent: Place, reference: &Reference) -> bool {
        let Uid::Object(number) = reference.uid else { return false };
        let Some(owner) = self.objects.get(&number) else { return false };
        let Identity { kind, place, name } = &owner.identity;
        let names_it = reference.named_kind() == Some(*kind) && reference.name == *name;
        let is_near = *place == dependent || *place == Place::Cluster;
        names_it && is_near && !owner.deleting && !self.done.contains_key(&number)
    }

    /// Everything that is connected with these, by references in any direction.
    fn around(&self, from: impl IntoIterator<Item = u32>) -> BTreeSet<u32> {
        self.closure(from, |number| {
            let touching = self.edges.iter().filter(move |edge| edge.0 == number || edge.1 == number);
            touching.flat_map(|edge| [edge.0, edge.1]).collect()
        })
    }

    fn closure(&self, from: impl IntoIterator<Item = u32>, next: impl Fn(u32) -> Vec<u32>) -> BTreeSet<u32> {
        let mut found: BTreeSet<u32> = BTreeSet::new();
        let mut open: Vec<u32> = from.into_iter().collect();
        while let Some(number) = open.pop() {
            if found.insert(number) {
                open.extend(next(number));
            }
        }
        found
    }

    fn is_untouched(&self, around: &BTreeSet<u32>) -> bool {
        around.iter().all(|number| !self.done.contains_key(number))
    }

    fn has(&self, around: &BTreeSet<u32>, done: Done) -> bool {
        around.iter().any(|number| self.done.get(number) == Some(&done))
    }

    /// Whether something may stay there in the middle of a deletion, so that one sees how far it came.
    fn is_delicate(&self, around: &BTreeSet<u32>) -> bool {
        around.iter().filter_map(|number| self.objects.get(number)).any(|object| self.is_stuck(object))
    }

    /// A race that a start of the collector adds: it may see a waiting owner before its dependents, and then looks at
    /// those only that block it, as long as one of these stays.
    fn has_loose_edges(&self, around: &BTreeSet<u32>) -> bool {
        self.edges.iter().any(|(dependent, _, blocks)| !blocks && around.contains(dependent))
    }

    /// Whether an object can stay there in the middle of a deletion by itself.
    fn is_stuck(&self, object: &Object) -> bool {
        object.deleting || object.is_held() || self.cannot_be_decided(object.identity.place, &object.owners)
    }

    fn is_undecidable(&self, number: u32) -> bool {
        self.objects
            .get(&number)
            .is_some_and(|object| self.cannot_be_decided(object.identity.place, &object.owners))
    }

    /// Whether one of the owners cannot be resolved: an impossible name, a kind that nobody serves, or a namespaced one of
    /// a cluster-scoped dependent. Such an object is left alone whatever becomes of its other owners.
    fn cannot_be_decided(&self, place: Place, owners: &[Reference]) -> bool {
        owners.iter().any(|reference| match reference.named_kind() {
            _ if reference.name.contains(IMPOSSIBLE_NAME) => true,
            None => true,
            Some(kind) => {
                self.circumstances.unserved == Some(kind)
                    || (place == Place::Cluster && Kind::is_namespaced(kind))
            }
        })
    }

    fn dependents(&self, owner: u32) -> impl Iterator<Item = (u32, bool)> + '_ {
        self.edges.iter().filter(move |edge| edge.1 == owner).map(|edge| (edge.0, edge.2))
    }

    fn below(&self, number: u32) -> BTreeSet<u32> {
        self.closure([number], |number| self.dependents(number).map(|(dependent, _)| dependent).collect())
    }

    /// What a deletion at `root` may change: its dependents, those above it that wait for it, and theirs.
    fn affected(&self, root: u32) -> BTreeSet<u32> {
        self.closure([root], |number| {
            let waiting = |owner: &u32| self.objects.get(owner).is_some_and(Object::is_waiting);
            let owners = self.edges.iter().filter(|edge| edge.0 == number).map(|edge| edge.1).filter(waiting);
            owners.chain(self.dependents(number).map(|(dependent, _)| dependent)).collect()
        })
    }

    /// Whether a single deletion, release or change of owners at `root` ends in one state only, although some objects
    /// stay there half-deleted. `foreground`: whether it goes on in the foreground. An object *stays* here when itself
    /// or one below it is held or cannot be decided. The races, each of them in the reference too:
    ///
    /// - *Two ways down*: an object that stays has two owners that go. Whether it loses the reference to the first one
    ///   before it is deleted depends on whether the second one is going already.
    /// - *A held object in foreground deletion with dependents that do not block it*: its finalizer comes and goes
    ///   within milliseconds. A dependent that is looked at meanwhile goes; one that is looked at afterwards stays.
    /// - *A dependent that does not block its owner, has dependents itself, and stays*: while the owner is there, it is
    ///   deleted in the foreground; afterwards, in the background.
    /// - *A cycle through an object that stays*: whose references are made non-blocking depends on who comes first.
    fn is_confluent(&self, root: u32, foreground: bool) -> bool {
        let affected = self.affected(root);
        let stays = |number: u32| self.is_delicate(&self.below(number));
        affected.iter().filter(|number| self.objects.contains_key(number)).all(|number| {
            let owners: Vec<&(u32, u32, bool)> =
                self.edges.iter().filter(|edge| edge.0 == *number && affected.contains(&edge.1)).collect();
            if owners.len() >= 2 && stays(*number) {
                return false;
            }
            !foreground || self.is_confluent_in_the_foreground(root, *number, &owners)
        })
    }

    fn is_confluent_in_the_foreground(&self, root: u32, number: u32, owners: &[&(u32, u32, bool)]) -> bool {
        let Some(object) = self.objects.get(&number) else { return true };
        let has_loose_dependents = self.dependents(number).any(|(_, blocks)| !blocks);
        if object.is_held() && has_loose_dependents && (number == root || !object.deleting) {
            return false;
        }
        let below = self.below(number);
        let stays = self.is_delicate(&below);
        if stays && below.len() > 1 && owners.iter().any(|edge| !edge.2) {
            return false;
        }
        if stays && self.dependents(number).any(|(dependent, _)| self.below(dependent).contains(&number)) {
            return false;
        }
        // Both a race and a difference: see `on_purpose`, "flag".
        !(object.deleting && owners.iter().any(|edge| edge.1 != root))
    }
}

fn numbers(owners: &[Reference]) -> impl Iterator<Item = u32> + '_ {
    owners.iter().filter_map(|reference| match reference.uid {
        Uid::Object(number) => Some(number),
        Uid::Nobody(_) => None,
    })
}
