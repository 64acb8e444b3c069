//! Random histories whose outcome does not depend on timing.
//!
//! A history is made of bursts. Within a burst the steps follow each other as fast as the server answers, in a race with
//! the collector; after it, one waits until nothing changes any more. The next burst is made from what is there then,
//! so that a history is a function of its seed as long as both collectors agree. What a burst may hold is limited by
//! [`Burst::allows`], so that every order in which the collector may see its steps ends in the same state.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::Policy;
use crate::differential::burst::{Burst, Circumstances};
use crate::differential::model::{
    HOLDS, IMPOSSIBLE_NAME, Identity, Kind, Object, Place, Reference, Snapshot, Step, Uid,
};
use crate::differential::parse;
use crate::random::Random;

/// Steps of a history.
const STEPS: std::ops::RangeInclusive<u64> = 10..=30;
/// A history that cannot reach its number of steps in so many bursts ends earlier.
const BURSTS_MAX: u32 = 14;
/// More would be mostly objects that never meet.
const OBJECTS_MAX: usize = 14;
/// How many proposals a burst may reject before it ends.
const REJECTED_MAX: u32 = 30;
/// Few, so that names are used again.
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// What befalls all histories of a class at the same moments, so that they run side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Nothing.
    Plain,
    /// In every second burst, the collector is killed in the middle of it and started again after it.
    Restarts,
    /// A definition is removed with all its objects, and installed again.
    Definitions,
}

impl Class {
    /// The class of a seed.
    pub fn of(seed: u64) -> Class {
        match seed % 10 {
            0 => Class::Definitions,
            3 | 6 | 9 => Class::Restarts,
            _ => Class::Plain,
        }
    }
}

/// When the definition goes. In the burst before, what is held is released, since it would hold the definition, too; in
/// the burst after, objects are given owners of the kind that is not there; in the one after that, it comes back.
const UNDEFINED_IN_BURST: u32 = 4;

/// Makes one history.
pub struct Generator {
    class: Class,
    random: Random,
    steps_left: usize,
    bursts: u32,
    ending: Ending,
    is_over: bool,
    /// Bursts that come before random ones, the last one first.
    opening: Vec<Vec<Step>>,
    /// Everything that ever existed.
    identities: BTreeMap<u32, Identity>,
    next_nobody: u32,
    /// Objects that were ever deleted with Orphan: what becomes of a dependent that names one afterwards differs.
    orphaned: BTreeSet<u32>,
    ended: BTreeSet<Place>,
    features: BTreeSet<Feature>,
}

/// What becomes of held objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// They are compared as they stand.
    Held,
    /// All are released at once when the history is over.
    AtOnce,
    /// Nothing is released until the history is over, then one after the other, with a wait between.
    OneByOne,
}

/// What a history has in it, so that one can say whether everything was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// The collector was killed while there was something to do.
    Kill,
    /// An object named an owner whose kind nobody served.
    UnservedOwner,
    /// A definition went with objects of its kind, some of them owners or dependents.
    UndefinedWithObjects,
    /// A namespace was deleted with objects in it.
    EndOfNamespace,
    /// A finalizer of another controller was taken away at the end only.
    HeldForLong,
    /// References of an object changed after its deletion, or that of an owner, had begun.
    OwnedWhileDeleting,
    /// An object named an owner of another namespace.
    WrongNamespace,
    /// An object named its owner by a version that collectors do not watch.
    OtherVersion,
}

impl Feature {
    /// Every feature.
    pub const ALL: [Feature; 8] = [
        Feature::Kill,
        Feature::UnservedOwner,
        Feature::UndefinedWithObjects,
        Feature::EndOfNamespace,
        Feature::HeldForLong,
        Feature::OwnedWhileDeleting,
        Feature::WrongNamespace,
        Feature::OtherVersion,
    ];
}

impl Generator {
    /// The history of a seed.
    pub fn new(seed: u64) -> Generator {
        let mut random = Random::new(seed);
        let span = STEPS.end() - STEPS.start() + 1;
        let steps_left = usize::try_from(STEPS.start() + random.below(span)).unwrap_or_default();
        let ending = match random.below(4) {
            0 => Ending::Held,
            1 | 2 => Ending::AtOnce,
            _ => Ending::OneByOne,
        };
        let class = Class::of(seed);
        let opening =
            if class == Class::Definitions { of_text(CUSTOM_RESOURCES) } else { opening(&mut random) };
        Generator {
            class,
            random,
            steps_left,
            bursts: 0,
            ending,
            is_over: false,
            opening,
            identities: BTreeMap::new(),
            next_nobody: 1,
            orphaned: BTreeSet::new(),
            ended: BTreeSet::new(),
            features: BTreeSet::new(),
        }
    }

    /// What there was in it so far.
    pub fn features(&self) -> &BTreeSet<Feature> {
        &self.features
    }

    /// The next steps, made for what is there now; nothing when the history is over. A burst without a step is a wait.
    pub fn burst(&mut self, now: &Snapshot) -> Option<Vec<Step>> {
        if self.is_over {
            return None;
        }
        self.bursts += 1;
        if let Some(steps) = self.of_definition(now) {
            return Some(steps);
        }
        if let Some(steps) = self.opening.pop() {
            steps.iter().for_each(|step| self.note(step, now));
            return Some(self.with_kill(steps));
        }
        let steps = self.random_steps(now);
        if !steps.is_empty() && self.bursts < BURSTS_MAX {
            return Some(self.with_kill(steps));
        }
        self.last_steps(now)
    }

    /// What is held goes at last, or stays.
    fn last_steps(&mut self, now: &Snapshot) -> Option<Vec<Step>> {
        let releases = releases(now);
        let one = match self.ending {
            Ending::OneByOne if self.bursts < BURSTS_MAX => {
                let burst = Burst::new(now, self.circumstances());
                let allowed: Vec<Step> = releases.iter().filter(|step| burst.allows(step)).cloned().collect();
                self.pick(&allowed).cloned()
            }
            Ending::Held | Ending::AtOnce | Ending::OneByOne => None,
        };
        if one.is_some() {
            self.features.insert(Feature::HeldForLong);
            return one.map(|step| vec![step]);
        }
        self.is_over = true;
        (self.ending != Ending::Held && !releases.is_empty()).then_some(releases)
    }

    /// In the middle, and after the last step that matters where there is one only.
    fn with_kill(&mut self, mut steps: Vec<Step>) -> Vec<Step> {
        if self.class == Class::Restarts && self.bursts.is_multiple_of(2) && !steps.is_empty() {
            self.features.insert(Feature::Kill);
            steps.insert(steps.len().div_ceil(2), Step::Kill);
        }
        steps
    }

    /// In histories of that class, the bursts around a definition that goes and comes.
    fn of_definition(&mut self, now: &Snapshot) -> Option<Vec<Step>> {
        if self.class != Class::Definitions {
            return None;
        }
        const BEFORE: u32 = UNDEFINED_IN_BURST - 1;
        const AFTER: u32 = UNDEFINED_IN_BURST + 2;
        match self.bursts {
            BEFORE => Some(releases(now)),
            UNDEFINED_IN_BURST => {
                if now.values().any(|object| object.identity.kind == Kind::Widget) {
                    self.features.insert(Feature::UndefinedWithObjects);
                }
                Some(vec![Step::Undefine])
            }
            AFTER => Some(vec![Step::Define]),
            _ => None,
        }
    }

    /// Whether nobody serves widgets now.
    fn is_undefined(&self) -> bool {
        self.class == Class::Definitions && self.bursts == UNDEFINED_IN_BURST + 1
    }

    fn circumstances(&self) -> Circumstances {
        let is_before = self.class == Class::Definitions && self.bursts < UNDEFINED_IN_BURST;
        Circumstances {
            has_kill: self.class == Class::Restarts,
            unserved: self.is_undefined().then_some(Kind::Widget),
            is_decidable: is_before,
            ended: self.ended.clone(),
        }
    }

    fn random_steps(&mut self, now: &Snapshot) -> Vec<Step> {
        let mut burst = Burst::new(now, self.circumstances());
        if self.is_undefined()
            && let Some(step) = self.child_of_gone_widget(&burst)
            && burst.allows(&step)
        {
            self.note(&step, burst.objects());
            burst.push(step);
        }
        let size = self.burst_size(now);
        let mut rejected = 0;
        while burst.steps().len() < size && rejected < REJECTED_MAX {
            let Some(step) = self.propose(&burst) else {
                rejected += 1;
                continue;
            };
            if burst.allows(&step) {
                self.note(&step, burst.objects());
                burst.push(step);
            } else {
                rejected += 1;
            }
        }
        let steps = burst.into_steps();
        self.steps_left = self.steps_left.saturating_sub(steps.len());
        steps
    }

    fn burst_size(&mut self, now: &Snapshot) -> usize {
        if self.is_undefined() {
            return 5;
        }
        let usual = if now.is_empty() { 8 } else { 1 + self.random.below(6) };
        usize::try_from(usual).unwrap_or(1).min(self.steps_left)
    }

    /// `now` is what is there before it.
    fn note(&mut self, step: &Step, now: &Snapshot) {
        match step {
            Step::Create { number, identity, owners, .. } => {
                self.identities.insert(*number, identity.clone());
                self.note_owners(identity.place, owners);
            }
            Step::Own { number, owners } => {
                let Some(object) = now.get(number) else { return };
                self.note_owners(object.identity.place, owners);
                if is_deleting_around(object, now) {
                    self.features.insert(Feature::OwnedWhileDeleting);
                }
            }
            Step::Delete { number, policy: Some(Policy::Orphan) } => {
                self.orphaned.insert(*number);
            }
            Step::EndNamespace { place } => {
                self.ended.insert(*place);
                if now.values().any(|object| object.identity.place == *place) {
                    self.features.insert(Feature::EndOfNamespace);
                }
            }
            _ => {}
        }
    }

    fn note_owners(&mut self, place: Place, owners: &[Reference]) {
        for reference in owners {
            if reference.is_by_other_version() {
                self.features.insert(Feature::OtherVersion);
            }
            if self.is_undefined() && reference.named_kind() == Some(Kind::Widget) {
                self.features.insert(Feature::UnservedOwner);
            }
            let Uid::Object(number) = reference.uid else { continue };
            let owner = self.identities.get(&number).map(|identity| identity.place);
            if place != Place::Cluster && owner.is_some_and(|owner| ![place, Place::Cluster].contains(&owner))
            {
                self.features.insert(Feature::WrongNamespace);
            }
        }
    }

    fn propose(&mut self, burst: &Burst) -> Option<Step> {
        let dice = self.random.below(100);
        if self.is_undefined() {
            // Owners come, and nothing else happens until all of them can be looked at.
            let (number, object) = self.any(burst.objects(), |_| true)?;
            return if dice < 60 { self.create(burst) } else { self.own(burst, number, &object) };
        }
        if burst.objects().len() < 4 || (dice < 20 && burst.objects().len() < OBJECTS_MAX) {
            return self.create(burst);
        }
        let (number, object) = self.any(burst.objects(), |_| true)?;
        match dice {
            0..57 if self.random.below(2) == 0 => {
                // What has dependents is more interesting.
                let owner = *self.pick(&burst.owners())?;
                Some(self.delete(burst, owner))
            }
            0..57 => Some(self.delete(burst, number)),
            57..60 => {
                let place = if self.random.below(4) == 0 { Place::One } else { Place::Two };
                Some(Step::EndNamespace { place })
            }
            60..68 => {
                let objects = burst.objects();
                let (number, object) = self.any(objects, |object| is_deleting_around(object, objects))?;
                self.own(burst, number, &object)
            }
            68..78 => self.own(burst, number, &object),
            78..84 => Some(self.toggle(number, &object)),
            84..90 => Some(self.hold(number)),
            90..97 if self.ending != Ending::OneByOne => self.release(burst),
            _ => Some(Step::Touch { number }),
        }
    }

    /// What waits for the definition to come back; one such step is in every history of that class whose namespaces live.
    fn child_of_gone_widget(&mut self, burst: &Burst) -> Option<Step> {
        let place = Place::One;
        let owner = self.gone_widget(place)?;
        let free = self.free_names(burst, Kind::ConfigMap, place);
        let identity = Identity { kind: Kind::ConfigMap, place, name: (*self.pick(&free)?).to_owned() };
        let (number, finalizers) = (self.next_number(), Vec::new());
        Some(Step::Create { number, identity, owners: vec![owner], finalizers })
    }

    fn next_number(&self) -> u32 {
        u32::try_from(self.identities.len()).unwrap_or_default() + 1
    }

    fn free_names(&self, burst: &Burst, kind: Kind, place: Place) -> Vec<&'static str> {
        let taken = |name: &str| {
            let mut objects = burst.objects().values().map(|object| &object.identity);
            objects.any(|other| other.kind == kind && other.place == place && other.name == name)
        };
        NAMES.into_iter().filter(|name| !taken(name)).collect()
    }

    fn create(&mut self, burst: &Burst) -> Option<Step> {
        let unserved = self.is_undefined().then_some(Kind::Widget);
        let kind = Some(*self.pick(&Kind::ALL)?).filter(|kind| unserved != Some(*kind))?;
        let place = match kind.is_namespaced() {
            true if self.random.below(4) == 0 => Place::Two,
            true => Place::One,
            false => Place::Cluster,
        };
        let free = self.free_names(burst, kind, place);
        let name = (*self.pick(&free)?).to_owned();
        let number = self.next_number();
        let owners = self.references(burst, number, place, &[]);
        let finalizers = if self.random.below(4) == 0 { vec![self.finalizer()] } else { Vec::new() };
        Some(Step::Create { number, identity: Identity { kind, place, name }, owners, finalizers })
    }

    /// With a bias to what is being deleted already.
    fn delete(&mut self, burst: &Burst, number: u32) -> Step {
        let again = if self.random.below(4) == 0 {
            self.any(burst.objects(), |object| object.deleting).map(|(number, _)| number)
        } else {
            None
        };
        let policy = match self.random.below(10) {
            0..3 => Some(Policy::Background),
            3..7 => Some(Policy::Foreground),
            7..9 => Some(Policy::Orphan),
            _ => None,
        };
        Step::Delete { number: again.unwrap_or(number), policy }
    }

    fn own(&mut self, burst: &Burst, number: u32, object: &Object) -> Option<Step> {
        let owners = if self.random.below(5) == 0 {
            Vec::new()
        } else {
            self.references(burst, number, object.identity.place, &object.owners)
        };
        (owners != object.owners).then_some(Step::Own { number, owners })
    }

    fn toggle(&mut self, number: u32, object: &Object) -> Step {
        let mut owners = object.owners.clone();
        for owner in &mut owners {
            owner.block = self.random.below(2) == 0;
        }
        Step::Own { number, owners }
    }

    fn hold(&mut self, number: u32) -> Step {
        Step::Hold { number, finalizer: self.finalizer() }
    }

    fn release(&mut self, burst: &Burst) -> Option<Step> {
        let (number, object) = self.any(burst.objects(), Object::is_held)?;
        let held: Vec<&String> =
            object.finalizers.iter().filter(|name| HOLDS.contains(&name.as_str())).collect();
        Some(Step::Release { number, finalizer: (*self.pick(&held)?).clone() })
    }

    fn finalizer(&mut self) -> String {
        let which = usize::from(self.random.below(2) == 0);
        HOLDS.get(which).copied().unwrap_or_default().into()
    }

    /// Up to three owners, never the same UID twice, and what an object says of an owner it keeps saying.
    fn references(
        &mut self,
        burst: &Burst,
        dependent: u32,
        place: Place,
        present: &[Reference],
    ) -> Vec<Reference> {
        let count = [0, 1, 1, 1, 1, 2, 2, 2, 3, 3].get(usize::try_from(self.random.below(10)).unwrap_or(0));
        let mut references: Vec<Reference> = Vec::new();
        for _ in 0..count.copied().unwrap_or(1) {
            let Some(mut reference) = self.reference(burst, dependent, place) else { continue };
            if self.may_name_other_version(&reference) && self.random.below(4) == 0 {
                reference = reference.by_other_version();
            }
            if let Some(same) = present.iter().find(|present| present.uid == reference.uid) {
                reference = same.clone();
            }
            reference.block = self.random.below(2) == 0;
            reference.controller = references.is_empty() && self.random.below(4) == 0;
            if references.iter().all(|other| other.uid != reference.uid) {
                references.push(reference);
            }
        }
        references
    }

    /// Before its definition goes, no widget is named by the other version: that it is gone is then known of the version
    /// that is watched only, and of the other one a server that does not serve it says 404, which proves nothing to us.
    /// See [`evidence`](super::evidence).
    fn may_name_other_version(&self, reference: &Reference) -> bool {
        let is_before = self.class == Class::Definitions && self.bursts < UNDEFINED_IN_BURST;
        !is_before || reference.named_kind() != Some(Kind::Widget)
    }

    fn reference(&mut self, burst: &Burst, dependent: u32, place: Place) -> Option<Reference> {
        if self.is_undefined() && self.random.below(3) > 0 {
            return self.gone_widget(place);
        }
        match self.random.below(100) {
            0..70 => self.right(burst, dependent, place),
            70..78 => self.gone_owner(burst, place),
            78..84 => Some(self.nobody(place)),
            84..98 => self.wrong(burst, dependent, place),
            98 => {
                let right = self.right(burst, dependent, place)?;
                Some(Reference { api_version: "v1".into(), kind: "Nonsense".into(), ..right })
            }
            _ => Some(Reference { name: IMPOSSIBLE_NAME.into(), ..self.right(burst, dependent, place)? }),
        }
    }

    fn right(&mut self, burst: &Burst, dependent: u32, place: Place) -> Option<Reference> {
        let orphaned = self.orphaned.clone();
        let fits = |number: u32, object: &Object| {
            let owner = object.identity.place;
            number != dependent && !orphaned.contains(&number) && (owner == place || owner == Place::Cluster)
        };
        let fitting: Vec<u32> = burst
            .objects()
            .iter()
            .filter(|(number, object)| fits(**number, object))
            .map(|(number, _)| *number)
            .collect();
        let number = *self.pick(&fitting)?;
        Some(Reference::to(number, &burst.objects().get(&number)?.identity))
    }

    fn gone_owner(&mut self, burst: &Burst, place: Place) -> Option<Reference> {
        let gone = |number: &u32| !burst.objects().contains_key(number) && !self.orphaned.contains(number);
        let gone: Vec<u32> = self
            .identities
            .iter()
            .filter(|(number, identity)| {
                gone(number) && (identity.place != Place::Two || place == Place::Two)
            })
            .filter(|(_, identity)| place != Place::Cluster || identity.place == Place::Cluster)
            .map(|(number, _)| *number)
            .collect();
        let number = *self.pick(&gone)?;
        Some(Reference::to(number, self.identities.get(&number)?))
    }

    fn gone_widget(&mut self, place: Place) -> Option<Reference> {
        let is_gone = |(number, identity): &(&u32, &Identity)| {
            identity.kind == Kind::Widget && identity.place == place && !self.orphaned.contains(number)
        };
        let gone: Vec<u32> = self.identities.iter().filter(is_gone).map(|(number, _)| *number).collect();
        let number = *self.pick(&gone)?;
        Some(Reference::to(number, self.identities.get(&number)?))
    }

    fn nobody(&mut self, place: Place) -> Reference {
        self.next_nobody += 1;
        let kind = if place == Place::Cluster { Kind::Gadget } else { Kind::ConfigMap };
        let identity = Identity { kind, place, name: "nobody".into() };
        Reference { uid: Uid::Nobody(self.next_nobody), ..Reference::to(0, &identity) }
    }

    /// A UID that exists, and something else wrong.
    fn wrong(&mut self, burst: &Burst, dependent: u32, place: Place) -> Option<Reference> {
        let orphaned = self.orphaned.clone();
        let (number, object) = self
            .any_numbered(burst.objects(), |number, _| number != dependent && !orphaned.contains(&number))?;
        let right = Reference::to(number, &object.identity);
        match self.random.below(4) {
            0 => Some(Reference { name: (*self.pick(&NAMES)?).into(), ..right }),
            1 => {
                let kinds: Vec<Kind> =
                    Kind::ALL.into_iter().filter(|kind| *kind != object.identity.kind).collect();
                let kind = *self.pick(&kinds)?;
                let resource = kind.resource();
                Some(Reference { api_version: resource.api_version(), kind: resource.kind, ..right })
            }
            // In another namespace, or namespaced with a dependent that is not, or just right.
            _ => (object.identity.place != place).then_some(right),
        }
    }

    fn any(&mut self, objects: &Snapshot, fits: impl Fn(&Object) -> bool) -> Option<(u32, Object)> {
        self.any_numbered(objects, |_, object| fits(object))
    }

    fn any_numbered(
        &mut self,
        objects: &Snapshot,
        fits: impl Fn(u32, &Object) -> bool,
    ) -> Option<(u32, Object)> {
        let fitting: Vec<u32> = objects
            .iter()
            .filter(|(number, object)| fits(**number, object))
            .map(|(number, _)| *number)
            .collect();
        let number = *self.pick(&fitting)?;
        Some((number, objects.get(&number)?.clone()))
    }

    fn pick<'t, T>(&mut self, from: &'t [T]) -> Option<&'t T> {
        pick(&mut self.random, from)
    }
}

/// An owner with dependents of its own, and others that name it from another namespace (kubernetes/kubernetes#65200).
const WRONG_NAMESPACE: &str = "
    create cm/a#1 @two
    create cm/b#2 @one owners=[cm/a#1]
    create secret/a#3 @two owners=[cm/a#1!]
    create cm/c#4 @one
    create cm/d#5 @one owners=[cm/a#1!, cm/c#4]
    create secret/b#6 @two owners=[cm/a#1, secret/a#3!]
    (wait)
    delete #1 Foreground";

/// Dependents that name their owner by the version that is not watched.
const OTHER_VERSION_OWNER: &str = "
    create widget/a#1 @one
    create cm/b#2 @one owners=[widget@v1beta1/a#1!]
    create widget/c#3 @one owners=[widget@v1beta1/a#1, cm/b#2]
    create widget/d#4 @one owners=[widget/a#1!]
    (wait)
    delete #1 Foreground";

/// Custom resources as owners and as dependents, before their definition goes.
const CUSTOM_RESOURCES: &str = "
    create widget/a#1 @one
    create cm/b#2 @one owners=[widget/a#1!]
    create widget/c#3 @one owners=[cm/b#2]
    create cm/d#4 @one
    create widget/d#5 @one owners=[cm/d#4!]
    create secret/e#6 @one owners=[widget/d#5, cm/d#4]";

/// Bursts from text, the last one first. That they are right is a test.
fn of_text(text: &str) -> Vec<Vec<Step>> {
    let mut bursts = parse::bursts(text).unwrap_or_default();
    bursts.reverse();
    bursts
}

/// Whether the object is being deleted, or one of its owners is.
fn is_deleting_around(object: &Object, now: &Snapshot) -> bool {
    let is_deleting = |reference: &Reference| match reference.uid {
        Uid::Object(number) => now.get(&number).is_some_and(|owner| owner.deleting),
        Uid::Nobody(_) => false,
    };
    object.deleting || object.owners.iter().any(is_deleting)
}

/// In more than every second history, what chance would rarely make: a chain of blocking references, often with its end held, or
/// closed to a cycle, and its top deleted in the foreground.
fn opening(random: &mut Random) -> Vec<Vec<Step>> {
    let shape = random.below(16);
    if let 10..12 = shape {
        return of_text(WRONG_NAMESPACE);
    } else if let 12 | 13 = shape {
        return of_text(OTHER_VERSION_OWNER);
    } else if !(5..10).contains(&shape) {
        return Vec::new();
    }
    let (kinds, place) =
        if random.below(3) == 0 { (&Kind::ALL[3..], Place::Cluster) } else { (&Kind::ALL[..3], Place::One) };
    let mut chain: Vec<Identity> = Vec::new();
    let mut creates = Vec::new();
    for (name, number) in NAMES.into_iter().zip(1..=3 + u32::from(random.below(2) == 0)) {
        let blocking = |(above, number)| Reference { block: true, ..Reference::to(number, above) };
        let owners = chain.last().zip(number.checked_sub(1)).map(blocking).into_iter().collect();
        let kind = pick(random, kinds).copied().unwrap_or(Kind::ConfigMap);
        let identity = Identity { kind, place, name: name.into() };
        chain.push(identity.clone());
        creates.push(Step::Create { number, identity, owners, finalizers: Vec::new() });
    }
    let number = u32::try_from(chain.len()).unwrap_or_default();
    let deletion = vec![Step::Delete { number: 1, policy: Some(Policy::Foreground) }];
    match (shape, chain.last()) {
        (5..8, _) => vec![deletion, vec![Step::Hold { number, finalizer: HOLDS[0].into() }], creates],
        (8, Some(bottom)) => {
            let owner = Reference { block: true, ..Reference::to(number, bottom) };
            vec![deletion, vec![Step::Own { number: 1, owners: vec![owner] }], creates]
        }
        _ => vec![[creates, deletion].concat()],
    }
}

fn pick<'t, T>(random: &mut Random, from: &'t [T]) -> Option<&'t T> {
    let index = random.below(u64::try_from(from.len()).unwrap_or_default());
    from.get(usize::try_from(index).unwrap_or_default())
}

/// All at once: of what is being deleted nothing stays but what cannot be decided.
fn releases(now: &Snapshot) -> Vec<Step> {
    let each = now.iter().flat_map(|(number, object)| {
        let held = object.finalizers.iter().filter(|name| HOLDS.contains(&name.as_str()));
        held.map(|finalizer| Step::Release { number: *number, finalizer: finalizer.clone() })
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openings_are_steps() {
        for text in [WRONG_NAMESPACE, OTHER_VERSION_OWNER, CUSTOM_RESOURCES] {
            let bursts = of_text(text);
            assert!(!bursts.is_empty(), "{text}");
            // Numbers are those that the steps of a history would have.
            let numbers: Vec<u32> = (bursts.iter().rev().flatten())
                .filter_map(|step| if let Step::Create { number, .. } = step { Some(*number) } else { None })
                .collect();
            let len = u32::try_from(numbers.len()).unwrap();
            assert_eq!(numbers, (1..=len).collect::<Vec<_>>());
        }
    }

    /// Without a server: after the definition has gone, nothing is there.
    #[test]
    fn something_names_an_owner_that_nobody_serves() {
        let seeds = (0..60).filter(|seed| Class::of(*seed) == Class::Definitions);
        let has_one = |seed: u64| {
            let mut generator = Generator::new(seed);
            for _ in 0..=UNDEFINED_IN_BURST {
                generator.burst(&Snapshot::new());
            }
            generator.features().contains(&Feature::UnservedOwner)
        };
        assert!(seeds.filter(|seed| has_one(*seed)).count() >= 4);
    }
}
