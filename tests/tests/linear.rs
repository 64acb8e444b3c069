//! The work of a cascade is linear in the dependents: counted at 10,000 and at 100,000 of them, not timed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "linear/world.rs"]
mod world;

use gc_core::Propagation;
use world::{Object, Work, World};

const FEW: usize = 10_000;
const MANY: usize = 100_000;

/// Counts the work at both sizes; the numbers for one dependent must not grow with them, nor be beyond these.
#[track_caller]
fn is_linear(run: impl Fn(usize) -> Work, edges_max: u64, bytes_max: u64, requests_max: f64) {
    let (few, many) = (run(FEW), run(MANY));
    println!("{FEW}: {few:?}\n{MANY}: {many:?}");
    let times = |few: u64, many: u64| many as f64 / few.max(1) as f64;
    // Tables that double are not filled to the same degree at both sizes.
    assert!(times(few.edges_read, many.edges_read) < 12.0, "{few:?}\n{many:?}");
    assert!(times(few.allocations, many.allocations) < 12.0, "{few:?}\n{many:?}");
    assert!(many.edges_read <= edges_max * MANY as u64, "{many:?}");
    assert!(many.bytes_max <= bytes_max * MANY as u64, "{many:?}");
    assert!(many.requests as f64 <= requests_max * MANY as f64, "{many:?}");
}

/// The owner is the first.
fn owner_and(n: usize, dependent: &Object) -> World {
    let mut objects: Vec<Object> = vec![dependent.clone(); n + 1];
    objects[0] = Object::default();
    World::new(objects)
}

fn deleted(mut world: World, policy: Propagation) -> (World, Work) {
    let work = world.count(|world| {
        world.delete(0, policy);
        world.settle();
    });
    (world, work)
}

/// Pods: all are told to go, and then go one after the other, when there is nothing else to do.
#[test]
fn d3_an_owner_waits_for_dependents_that_take_their_time() {
    let dependent = Object { owners: vec![(0, true)], terminates: true, ..Object::default() };
    let run = |n: usize| {
        let (world, work) = deleted(owner_and(n, &dependent), Propagation::Foreground);
        assert!(world.objects.iter().all(|object| object.is_gone));
        work
    };
    is_linear(run, 60, 200, 1.1);
}

/// One can never be deleted, and holds the owner; the others go one after the other.
#[test]
fn d3_an_owner_waits_for_one_that_cannot_be_deleted() {
    let dependent = Object { owners: vec![(0, true)], terminates: true, ..Object::default() };
    let run = |n: usize| {
        let mut world = owner_and(n, &dependent);
        world.objects[n / 2].is_denied = true;
        let (mut world, work) = deleted(world, Propagation::Foreground);
        let left: Vec<usize> = (0..=n).filter(|&number| !world.objects[number].is_gone).collect();
        assert_eq!(left, [0, n / 2]);
        world.objects[n / 2].is_gone = true;
        world.list_without(|_| false);
        world.settle();
        assert!(world.objects[0].is_gone, "what held it is gone");
        work
    };
    is_linear(run, 100, 250, 1.1);
}

#[test]
fn d3_one_of_many_blocks() {
    let dependent = Object { owners: vec![(0, false)], terminates: true, ..Object::default() };
    let run = |n: usize| {
        let mut objects: Vec<Object> = vec![dependent.clone(); n + 1];
        objects[0] = Object::default();
        objects[n].owners = vec![(0, true)];
        let (world, work) = deleted(World::new(objects), Propagation::Foreground);
        assert!(world.objects.iter().all(|object| object.is_gone));
        work
    };
    is_linear(run, 60, 200, 1.1);
}

/// Each has another owner that lives: it loses the reference, and the owner is free. A patch needs reads of the object and
/// of the owner.
#[test]
fn d8_dependents_lose_the_reference_to_an_owner_that_waits() {
    let dependent = Object { owners: vec![(0, true), (1, true)], ..Object::default() };
    let run = |n: usize| {
        let mut objects: Vec<Object> = vec![dependent.clone(); n + 2];
        objects[0] = Object::default();
        objects[1] = Object::default();
        let (world, work) = deleted(World::new(objects), Propagation::Foreground);
        assert!(world.objects[0].is_gone && world.objects[2..].iter().all(|o| o.owners == [(1, true)]));
        work
    };
    is_linear(run, 100, 200, 3.1);
}

#[test]
fn o1_an_owner_is_orphaned() {
    let dependent = Object { owners: vec![(0, true)], ..Object::default() };
    let run = |n: usize| {
        let (world, work) = deleted(owner_and(n, &dependent), Propagation::Orphan);
        assert!(world.objects[0].is_gone && world.objects[1..].iter().all(|o| o.owners.is_empty()));
        work
    };
    is_linear(run, 60, 200, 1.1);
}

#[test]
fn g8_an_owner_is_gone() {
    let dependent = Object { owners: vec![(0, true)], ..Object::default() };
    let run = |n: usize| {
        let (world, work) = deleted(owner_and(n, &dependent), Propagation::Background);
        assert!(world.objects.iter().all(|object| object.is_gone));
        work
    };
    is_linear(run, 60, 200, 1.1);
}

/// A list that came late: every second object is gone, and each was the owner of the next one. A proof of absence is
/// believed for five seconds, so that most of so many are read once more.
#[test]
fn s5_a_list_shows_that_as_many_owners_are_gone() {
    let run = |n: usize| {
        let dependent = |owner| Object { owners: vec![(owner, true)], ..Object::default() };
        let objects: Vec<Object> = (0..n).flat_map(|i| [Object::default(), dependent(2 * i)]).collect();
        let mut world = World::new(objects);
        let work = world.count(|world| {
            world.list_without(|number| number % 2 == 0);
            world.settle();
        });
        assert!(world.objects.iter().all(|object| object.is_gone));
        work
    };
    is_linear(run, 60, 400, 2.0);
}
