//! Random histories whose outcome does not depend on timing.
//!
//! A history is made of bursts. Within a burst the steps follow each other as fast as the server answers, in a race with
//! the collector; after it, one waits until nothing changes any more. The next burst is made from what is there then,
//! so that a history is a function of its seed as long as both collectors agree. What a burst may hold is limited by
//! [`Burst::allows`], so that every order in which the collector may see its steps ends in the same state.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::Policy;
use crate::differential::burst::Burst;
use crate::differential::model::{
    HOLDS, IMPOSSIBLE_NAME, Identity, Kind, Object, Place, Reference, Snapshot, Step, Uid,
};
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

/// Makes one history.
pub struct Generator {
    random: Random,
    steps_left: usize,
    bursts: u32,
    releases_at_the_end: bool,
    is_over: bool,
    /// Bursts that come before random ones, the last one first.
    opening: Vec<Vec<Step>>,
    /// Everything that ever existed.
    identities: BTreeMap<u32, Identity>,
    next_nobody: u32,
    /// Objects that were ever deleted with Orphan: what becomes of a dependent that names one afterwards differs.
    orphaned: BTreeSet<u32>,
}

impl Generator {
    /// The history of a seed.
    pub fn new(seed: u64) -> Generator {
        let mut random = Random::new(seed);
        let span = STEPS.end() - STEPS.start() + 1;
        let steps_left = usize::try_from(STEPS.start() + random.below(span)).unwrap_or_default();
        let releases_at_the_end = random.below(2) == 0;
        let opening = opening(&mut random);
        Generator {
            random,
            steps_left,
            bursts: 0,
            releases_at_the_end,
            is_over: false,
            opening,
            identities: BTreeMap::new(),
            next_nobody: 1,
            orphaned: BTreeSet::new(),
        }
    }

    /// The next steps, made for what is there now; none when the history is over.
    pub fn burst(&mut self, now: &Snapshot) -> Vec<Step> {
        if self.is_over {
            return Vec::new();
        }
        self.bursts += 1;
        if let Some(steps) = self.opening.pop() {
            steps.iter().for_each(|step| self.note(step));
            return steps;
        }
        let mut burst = Burst::new(now);
        let size = self.burst_size(now);
        let mut rejected = 0;
        while burst.steps().len() < size && rejected < REJECTED_MAX {
            let Some(step) = self.propose(&burst) else {
                rejected += 1;
                continue;
            };
            if burst.allows(&step) {
                self.note(&step);
                burst.push(step);
            } else {
                rejected += 1;
            }
        }
        let steps = burst.into_steps();
        self.steps_left = self.steps_left.saturating_sub(steps.len());
        if !steps.is_empty() && self.bursts < BURSTS_MAX {
            return steps;
        }
        self.is_over = true;
        // What is held goes at last, in every second history; in the others it is compared as it stands.
        if self.releases_at_the_end { releases(now) } else { Vec::new() }
    }

    fn burst_size(&mut self, now: &Snapshot) -> usize {
        let usual = if now.is_empty() { 8 } else { 1 + self.random.below(6) };
        usize::try_from(usual).unwrap_or(1).min(self.steps_left)
    }

    fn note(&mut self, step: &Step) {
        if let Step::Create { number, identity, .. } = step {
            self.identities.insert(*number, identity.clone());
        }
        if let Step::Delete { number, policy: Some(Policy::Orphan) } = step {
            self.orphaned.insert(*number);
        }
    }

    fn propose(&mut self, burst: &Burst) -> Option<Step> {
        let dice = self.random.below(100);
        if burst.objects().len() < 4 || (dice < 20 && burst.objects().len() < OBJECTS_MAX) {
            return self.create(burst);
        }
        let (number, object) = self.any(burst.objects(), |_| true)?;
        match dice {
            0..60 if self.random.below(2) == 0 => {
                // What has dependents is more interesting.
                let owner = *self.pick(&burst.owners())?;
                Some(self.delete(burst, owner))
            }
            0..60 => Some(self.delete(burst, number)),
            60..78 => self.own(burst, number, &object),
            78..84 => Some(self.toggle(number, &object)),
            84..90 => Some(self.hold(number)),
            90..97 => self.release(burst),
            _ => Some(Step::Touch { number }),
        }
    }

    fn create(&mut self, burst: &Burst) -> Option<Step> {
        let kind = *self.pick(&Kind::ALL)?;
        let place = match kind.is_namespaced() {
            true if self.random.below(4) == 0 => Place::Two,
            true => Place::One,
            false => Place::Cluster,
        };
        let taken = |name: &str| {
            let mut objects = burst.objects().values().map(|object| &object.identity);
            objects.any(|other| other.kind == kind && other.place == place && other.name == name)
        };
        let free: Vec<&str> = NAMES.into_iter().filter(|name| !taken(name)).collect();
        let name = (*self.pick(&free)?).to_owned();
        let number = u32::try_from(self.identities.len()).unwrap_or_default() + 1;
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

    fn reference(&mut self, burst: &Burst, dependent: u32, place: Place) -> Option<Reference> {
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

/// In every second history, what chance would rarely make: a chain of blocking references, often with its end held, or
/// closed to a cycle, and its top deleted in the foreground.
fn opening(random: &mut Random) -> Vec<Vec<Step>> {
    let shape = random.below(10);
    if shape < 5 {
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
