//! Every small world of the graph alone: every ownership graph within a bound, every order of the events.
//!
//! # What a world is
//!
//! Up to four objects in one namespace, and one owner that never exists. Between any two of them, an object and itself
//! included, and from each object to the owner that never exists, there is a reference, blocking or not, or none; so
//! cycles are among the worlds. In worlds *with updates* an object has two versions, and a reference stands in the
//! first, in the second, or in both, where it may begin or cease to block.
//!
//! # What happens in it
//!
//! Each object is created, updated where its versions differ, and deleted; it may stop at any of these, so that every
//! state on the way is an end, too. The events of each object keep their order and those of different objects mix in
//! every way. At any moment a worker may find absent what is virtual at that moment.
//!
//! In worlds *with lists* the watch may be lost at any time: objects then live on unseen, until a list shows those that
//! are there, one after the other, and by its end those that are not. It may break off after any of them, after which
//! objects live on unseen again, and the next one begins. Workers find absent what is virtual between any two of these.
//! (What happens while a list is under way is what happens after it, since a list shows one moment.)
//!
//! # What is checked
//!
//! After each step: the effects and the graph are those of the naive model, and the invariants hold. In each state:
//! once every virtual node is settled, the graph is what the objects alone make of it that it was shown alive last,
//! whatever the order was.
//!
//! # What is left out, and why that is sound
//!
//! - Of the worlds that differ by the numbering of the objects only one is tried: a number is a name and a UID, which
//!   the graph compares for equality only, and no order of effects is looked at.
//! - Two orders that lead to the same arena (the same nodes, edges and free places at the same indexes) go on together:
//!   what a graph does next depends on nothing else. Only where the texts of names lie is not compared.
//! - The references of one object stand in the order of their owners.
//!
//! The numbers of worlds, states and steps stand with the bounds below, and are asserted.
//!
//! - `cargo test` tries: 668 worlds with 182663 states
//! - `cargo xtask simulate --small-worlds` tries so many more: 7870 worlds with 4803708 states

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::model::Model;
use crate::fixture::{Change, Object, permutations, print};
use crate::store::{BLOCKS, NONE};
use crate::uid::UidRef;
use crate::{Coordinate, Effect, Graph, OwnerReference, SourceId, Uid};

/// Which worlds there are, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    objects: usize,
    references_max: usize,
    updates: bool,
    lists: bool,
    worlds: u64,
    states: u64,
    steps: u64,
}

const fn bound(objects: usize, references_max: usize, updates: bool, counted: [u64; 3]) -> Bound {
    let [worlds, states, steps] = counted;
    Bound { objects, references_max, updates, lists: false, worlds, states, steps }
}

const fn listed(bound: Bound) -> Bound {
    Bound { lists: true, ..bound }
}

/// Which `cargo test` tries.
const BOUNDS: [Bound; 5] = [
    bound(2, 2, true, [517, 27_273, 45_266]),
    bound(3, 1, true, [25, 5_370, 10_374]),
    bound(4, 2, false, [61, 100_970, 225_412]),
    listed(bound(2, 1, true, [25, 22_205, 51_446])),
    listed(bound(2, 2, false, [40, 26_845, 63_110])),
];

/// Which are tried besides when the environment has `SMALL_WORLDS`.
const LARGE_BOUNDS: [Bound; 5] = [
    bound(3, 2, true, [781, 358_794, 748_592]),
    bound(3, 5, false, [6_038, 2_101_989, 4_075_895]),
    bound(4, 3, false, [527, 1_194_466, 2_645_126]),
    listed(bound(2, 2, true, [517, 1_102_902, 2_773_886])),
    listed(bound(3, 1, false, [7, 45_557, 108_461])),
];

#[test]
fn g2_every_order_of_events_of_every_small_world() {
    check(&BOUNDS);
}

/// Tried when the environment has `SMALL_WORLDS`, or by `cargo xtask simulate --small-worlds`.
#[test]
fn g2_every_order_of_events_of_every_larger_small_world() {
    if std::env::var_os("SMALL_WORLDS").is_some() {
        check(&LARGE_BOUNDS);
    }
}

/// Tries every world of each bound; their numbers are those that are written down.
fn check(bounds: &[Bound]) {
    let found: Vec<Bound> = bounds.iter().map(|bound| explore_all(*bound)).collect();
    assert_eq!(found, bounds, "the numbers in the documentation");
}

fn explore_all(bound: Bound) -> Bound {
    let mut found = Bound { worlds: 0, states: 0, steps: 0, ..bound };
    for_each_world(&bound, &mut |world| {
        let (states, steps) = Search::of(world, bound.lists).explore();
        found.worlds += 1;
        found.states += states;
        found.steps += steps;
    });
    println!("{found:?}");
    found
}

/// The documentation says how many there are.
#[test]
fn the_numbers_in_the_documentation_are_the_sums() {
    for (bounds, what) in [(&BOUNDS[..], "tries"), (&LARGE_BOUNDS[..], "more")] {
        let worlds: u64 = bounds.iter().map(|bound| bound.worlds).sum();
        let states: u64 = bounds.iter().map(|bound| bound.states).sum();
        let written = format!("{what}: {worlds} worlds with {states} states");
        assert!(include_str!("small_worlds.rs").contains(&written), "{written}");
    }
}

/// For each object and each owner (the last one never exists), how the first and the second version of the object refer
/// to it: 0 not at all, 1 without blocking, 2 blocking; the first version's number counts threefold.
#[derive(Clone, Debug)]
struct World {
    objects: usize,
    references: Vec<u8>,
}

/// A reference that is the same in both versions.
const SAME: [u8; 2] = [4, 8];
const ANY: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

fn for_each_world(bound: &Bound, use_it: &mut impl FnMut(&World)) {
    let mut world =
        World { objects: bound.objects, references: vec![0; bound.objects * (bound.objects + 1)] };
    let kinds: &[u8] = if bound.updates { &ANY } else { &SAME };
    let orders = permutations(bound.objects);
    add_references(&mut world, 0, bound.references_max, kinds, &mut |world| {
        if orders.iter().all(|order| world.references <= world.renumbered(order)) {
            use_it(world);
        }
    });
}

fn add_references(
    world: &mut World,
    from: usize,
    left: usize,
    kinds: &[u8],
    use_it: &mut impl FnMut(&World),
) {
    use_it(world);
    if left == 0 {
        return;
    }
    for at in from..world.references.len() {
        for &kind in kinds {
            world.references[at] = kind;
            add_references(world, at + 1, left - 1, kinds, use_it);
        }
        world.references[at] = 0;
    }
}

impl World {
    fn renumbered(&self, order: &[usize]) -> Vec<u8> {
        let owners = self.objects + 1;
        let mut references = vec![0; self.references.len()];
        for (at, &reference) in self.references.iter().enumerate() {
            let (dependent, owner) = (at / owners, at % owners);
            let owner = order.get(owner).copied().unwrap_or(owner);
            references[order[dependent] * owners + owner] = reference;
        }
        references
    }

    /// An object in its first or second version.
    fn object(&self, number: usize, version: u8) -> Object {
        let owners = self.objects + 1;
        let references = &self.references[number * owners..][..owners];
        let of_version = |reference: u8| if version == 1 { reference / 3 } else { reference % 3 };
        let owner_references = references.iter().enumerate().filter(|(_, r)| of_version(**r) > 0);
        Object {
            coordinate: coordinate(number),
            source: SourceId(0),
            resource_version: version.to_string(),
            being_deleted: false,
            finalizers: Vec::new(),
            owner_references: owner_references
                .map(|(owner, reference)| self.reference(owner, of_version(*reference) == 2))
                .collect(),
        }
    }

    fn reference(&self, owner: usize, block_owner_deletion: bool) -> OwnerReference {
        let Coordinate { kind, api_version, name, uid, .. } = coordinate(owner);
        OwnerReference { kind, api_version, name, uid, controller: false, block_owner_deletion }
    }

    fn has_update(&self, number: usize) -> bool {
        let owners = self.objects + 1;
        self.references[number * owners..][..owners].iter().any(|r| r / 3 != r % 3)
    }
}

fn coordinate(number: usize) -> Coordinate {
    Coordinate {
        kind: "ConfigMap".to_owned(),
        api_version: "v1".to_owned(),
        namespace: "ns".to_owned(),
        name: format!("o{number}"),
        uid: uid(number),
    }
}

fn uid(number: usize) -> Uid {
    Uid::new(&format!("00000000-0000-4000-8000-00000000000{number}"))
}

/// How far an object has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Life {
    Unborn,
    /// In its first or second version.
    Alive(u8),
    Gone,
}

#[derive(Clone)]
struct State {
    graph: Graph,
    model: Model,
    lives: Vec<Life>,
    /// What the graph was shown last; where the watch is never lost, the same.
    shown: Vec<Life>,
    watch: Watch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    /// Whatever happens is shown.
    Shows,
    /// Nothing is.
    Lost,
    /// A list has come to the object of that number.
    Lists(usize),
}

/// What can happen next.
#[derive(Clone, Copy, Debug)]
enum Move {
    /// A worker has found that there is no such object.
    Find(usize),
    /// An object comes to this.
    Live(usize, Life),
    /// The same, unseen.
    LiveUnseen(usize, Life),
    BeginList,
    /// The list shows the next object, if it is there.
    List(usize),
    /// It ends before it is complete.
    BreakOff,
    EndList,
}

struct Search<'w> {
    world: &'w World,
    /// By number and version.
    objects: Vec<[Object; 2]>,
    /// The states, and what they print as.
    seen: HashMap<Vec<u8>, String>,
    waiting: Vec<State>,
    steps: u64,
    lists: bool,
}

impl Search<'_> {
    fn of(world: &World, lists: bool) -> Search<'_> {
        let objects = (0..world.objects).map(|number| [1, 2].map(|version| world.object(number, version)));
        let objects = objects.collect();
        Search { world, objects, seen: HashMap::new(), waiting: Vec::new(), steps: 0, lists }
    }

    /// Goes every way; gives the numbers of states and of steps.
    fn explore(mut self) -> (u64, u64) {
        let lives = vec![Life::Unborn; self.world.objects];
        let (graph, model, shown) = (Graph::new(), Model::default(), lives.clone());
        self.reach(State { graph, model, lives, shown, watch: Watch::Shows });
        while let Some(state) = self.waiting.pop() {
            for chosen in self.moves(&state) {
                self.steps += 1;
                let next = self.step(&state, chosen);
                self.reach(next);
            }
        }
        (self.seen.len() as u64, self.steps)
    }

    fn moves(&self, state: &State) -> Vec<Move> {
        let is_virtual =
            |number: &usize| state.graph.get(&uid(*number)).is_some_and(|node| node.is_virtual());
        let mut moves: Vec<Move> = (0..=self.world.objects).filter(is_virtual).map(Move::Find).collect();
        match state.watch {
            Watch::Shows => {
                moves.extend(self.lives(state).map(|(number, life)| Move::Live(number, life)));
                if self.lists {
                    moves.extend(self.lives(state).map(|(number, life)| Move::LiveUnseen(number, life)));
                    moves.push(Move::BeginList);
                }
            }
            Watch::Lost => {
                moves.extend(self.lives(state).map(|(number, life)| Move::LiveUnseen(number, life)));
                moves.push(Move::BeginList);
            }
            Watch::Lists(number) if number < self.world.objects => {
                moves.extend([Move::List(number), Move::BreakOff]);
            }
            Watch::Lists(_) => moves.extend([Move::EndList, Move::BreakOff]),
        }
        moves
    }

    /// What can become of each object next.
    fn lives(&self, state: &State) -> impl Iterator<Item = (usize, Life)> {
        state.lives.iter().enumerate().flat_map(|(number, life)| {
            let next = match life {
                Life::Unborn => vec![Life::Alive(1)],
                Life::Alive(1) if self.world.has_update(number) => vec![Life::Gone, Life::Alive(2)],
                Life::Alive(_) => vec![Life::Gone],
                Life::Gone => Vec::new(),
            };
            next.into_iter().map(move |life| (number, life))
        })
    }

    fn object(&self, number: usize, version: u8) -> Object {
        self.objects[number][usize::from(version) - 1].clone()
    }

    fn step(&self, state: &State, chosen: Move) -> State {
        let mut next = state.clone();
        let change = match chosen {
            Move::Find(number) => Some(Change::VirtualDelete(coordinate(number))),
            Move::Live(number, life) => {
                let change = match (life, state.lives[number]) {
                    (Life::Alive(version), _) => Change::Observe(self.object(number, version)),
                    (_, Life::Alive(version)) => Change::Delete(self.object(number, version)),
                    (_, life) => panic!("from {life:?} to death"),
                };
                (next.lives[number], next.shown[number]) = (life, life);
                Some(change)
            }
            Move::LiveUnseen(number, life) => {
                next.lives[number] = life;
                next.watch = Watch::Lost;
                None
            }
            Move::BeginList => {
                next.watch = Watch::Lists(0);
                Some(Change::BeginList(SourceId(0)))
            }
            Move::List(number) => {
                next.watch = Watch::Lists(number + 1);
                let Life::Alive(version) = state.lives[number] else { return next };
                next.shown[number] = state.lives[number];
                Some(Change::Observe(self.object(number, version)))
            }
            Move::BreakOff => {
                next.watch = Watch::Lost;
                None
            }
            Move::EndList => {
                next.watch = Watch::Shows;
                next.shown.clone_from(&state.lives);
                Some(Change::EndList(SourceId(0)))
            }
        };
        let Some(change) = change else { return next };
        let mut effects = Vec::new();
        change.apply(&mut next.graph, &mut effects);
        let expected = next.model.apply(&change);
        let same = effects == expected || sorted(&effects) == sorted(&expected);
        assert!(same, "{:?}, in {:?}, {change:?}: {effects:?}, not {expected:?}", self.world, state.lives);
        next
    }

    fn reach(&mut self, state: State) {
        let context = || format!("{:?}, in {:?}", self.world, state.lives);
        match self.seen.entry(key(&state)) {
            Entry::Occupied(printed) => {
                assert_eq!(*printed.get(), state.model.print(), "{}", context());
            }
            Entry::Vacant(new) => {
                let printed = new.insert(print(&state.graph));
                assert_eq!(*printed, state.model.print(), "{}", context());
                assert_eq!(state.graph.check_invariants(), Ok(()), "{}", context());
                self.check_settled(&state);
                self.waiting.push(state);
            }
        }
    }

    /// Once every virtual node is found absent, the order makes no difference.
    fn check_settled(&self, state: &State) {
        let mut graph = state.graph.clone();
        for number in 0..=self.world.objects {
            if graph.get(&uid(number)).is_some_and(|node| node.is_virtual()) {
                graph.virtual_delete(&coordinate(number), &mut Vec::new());
            }
        }
        assert_eq!(print(&graph), self.settled(&state.shown), "{:?}, in {:?}", self.world, state.lives);
    }

    /// The graph of the objects that live, written down from their references.
    fn settled(&self, lives: &[Life]) -> String {
        let mut printed = String::new();
        for (number, life) in lives.iter().enumerate() {
            let Life::Alive(version) = life else { continue };
            let owner = |reference: &OwnerReference| {
                let lives =
                    (0..).zip(lives).any(|(n, l)| uid(n) == reference.uid && matches!(l, Life::Alive(_)));
                let block = if reference.block_owner_deletion { "!" } else { "" };
                format!("{}{block}{}", reference.uid, if lives { "" } else { " absent" })
            };
            let references = &self.objects[number][usize::from(*version) - 1].owner_references;
            let owners: Vec<String> = references.iter().map(owner).collect();
            printed += &format!("{} rv={version}", coordinate(number));
            if !owners.is_empty() {
                printed += &format!(" owners=[{}]", owners.join(", "));
            }
            printed += "\n";
        }
        printed
    }
}

fn sorted(effects: &[Effect]) -> Vec<String> {
    let mut printed: Vec<String> = effects.iter().map(Effect::to_string).collect();
    printed.sort();
    printed
}

/// All that the future of a state depends on: the arena, index by index, and how far the objects have come.
fn key(state: &State) -> Vec<u8> {
    let store = &state.graph.store;
    let lives = state.lives.iter().chain(&state.shown).map(|life| match life {
        Life::Unborn => 0,
        Life::Alive(version) => *version,
        Life::Gone => 3,
    });
    let mut key: Vec<u8> = lives.collect();
    key.push(match state.watch {
        Watch::Shows => 0,
        Watch::Lost => 1,
        Watch::Lists(number) => u8::try_from(number + 2).unwrap_or(u8::MAX),
    });
    let source = state.graph.sources.first().copied().unwrap_or_default();
    key.extend([u8::from(source.listing), small(source.seen)]);
    // Which of the two parities is the present one makes no difference.
    let parity = if source.parity { crate::store::PARITY } else { 0 };
    for (index, node) in (0..).zip(&store.nodes.slots) {
        if node.kind == NONE {
            key.push(small(NONE));
            continue;
        }
        if let UidRef::Canonical(uid) = store.uid(index) {
            key.push(uid[15]);
        }
        let doubted =
            node.flags & (crate::store::VIRTUAL | crate::store::ABSENT) != 0 && store.is_doubted(index);
        key.extend((node.flags ^ parity).to_ne_bytes());
        key.extend([u8::from(doubted), small(node.first_reference), small(node.first_dependent)]);
    }
    for edge in store.edges.slots.iter().filter(|edge| edge.dependent != NONE) {
        let indexes =
            [edge.dependent, edge.owner, edge.next_reference, edge.next_dependent, edge.previous_dependent];
        key.extend(indexes.map(small));
        key.extend([edge.has(BLOCKS), edge.is_as_owner()].map(u8::from));
    }
    key.extend(store.nodes.free.iter().chain(&store.edges.free).copied().map(small));
    key
}

fn small(index: u32) -> u8 {
    u8::try_from(index).unwrap_or(u8::MAX)
}
