//! The ownership graphs of up to three objects.

use gc_graph::fixture::permutations;

/// More objects than any bound has.
pub(super) const OBJECTS_MAX: usize = 3;

/// Who names whom, and what is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct World {
    pub objects: usize,
    /// For each object and each owner (the last one never exists): 0 no reference, 1 one that does not block, 2 one that
    /// blocks.
    references: Vec<u8>,
    /// The object that carries a finalizer of somebody else.
    pub held: Option<usize>,
}

impl World {
    /// The owners of an object, the number of objects being the one that never exists, each with whether it is blocked.
    pub(super) fn owners(&self, object: usize) -> impl Iterator<Item = (usize, bool)> + '_ {
        let owners = self.objects + 1;
        let row = self.references.iter().skip(object * owners).take(owners);
        row.enumerate()
            .filter(|(_, reference)| **reference > 0)
            .map(|(owner, reference)| (owner, *reference == 2))
    }

    /// For people: `0 -> 1!, 2 -> 0, 2 is held`.
    pub(super) fn show(&self) -> String {
        let mut parts = Vec::new();
        for object in 0..self.objects {
            for (owner, blocks) in self.owners(object) {
                let owner = if owner == self.objects { "nobody".to_owned() } else { owner.to_string() };
                parts.push(format!("{object} -> {owner}{}", if blocks { "!" } else { "" }));
            }
        }
        parts.extend(self.held.map(|held| format!("{held} is held")));
        format!("{} objects: {}", self.objects, parts.join(", "))
    }

    fn renumbered(&self, order: &[usize]) -> (Vec<u8>, Option<usize>) {
        let owners = self.objects + 1;
        let number = |at: usize| order.get(at).copied().unwrap_or(at);
        let mut references = vec![0; self.references.len()];
        for (at, &reference) in self.references.iter().enumerate() {
            let to = number(at / owners) * owners + number(at % owners);
            if let Some(place) = references.get_mut(to) {
                *place = reference;
            }
        }
        (references, self.held.map(number))
    }
}

/// Every world of so many objects with at most so many references, one of those that differ by their numbering only; none
/// held, or one.
pub(super) fn worlds(objects: usize, references_max: usize, holds: bool) -> Vec<World> {
    let mut found = Vec::new();
    let orders = permutations(objects);
    let mut references = vec![0; objects * (objects + 1)];
    let holds_max = if holds { objects } else { 0 };
    add_references(&mut references, 0, references_max, &mut |references| {
        for held in std::iter::once(None).chain((0..holds_max).map(Some)) {
            let world = World { objects, references: references.to_vec(), held };
            let least =
                orders.iter().all(|order| (world.references.clone(), world.held) <= world.renumbered(order));
            if least {
                found.push(world);
            }
        }
    });
    found
}

fn add_references(references: &mut Vec<u8>, from: usize, left: usize, found: &mut impl FnMut(&[u8])) {
    found(references);
    if left == 0 {
        return;
    }
    for at in from..references.len() {
        for kind in [1, 2] {
            set(references, at, kind);
            add_references(references, at + 1, left - 1, found);
        }
        set(references, at, 0);
    }
}

fn set(references: &mut [u8], at: usize, kind: u8) {
    if let Some(place) = references.get_mut(at) {
        *place = kind;
    }
}
