//! Everything has a limit: what an attempt repeats at once it repeats so often, and then the queue spaces it out.

use std::fmt::Write as _;

use crate::world::World;
use gc_core::{Coordinates, OrphanAttempt, OrphanStep, Outcome, Why};
use gc_graph::{Coordinate, Uid};

/// The world, and each of these requests answered with `reply`.
fn answering(world: &str, reply: &str, requests: impl Iterator<Item = usize>) -> World {
    let mut script = world.to_owned();
    for request in requests {
        write!(script, "\n#{request} {reply}").unwrap();
    }
    World::new(&script)
}

/// How often an attempt sent a patch before it left the rest to the queue.
fn patches(mut world: World, end: &Outcome) -> usize {
    assert!(matches!(end, Outcome::Retry(_)), "{end}");
    world.transcript().lines().filter(|line| line.starts_with("patch ")).count()
}

#[test]
fn d13_a_finalizer_is_tried_again_after_ten_conflicts_and_then_by_the_queue() {
    for conflict in ["conflict", "422"] {
        let owner = "both cm/o @ns uid=o finalizers=[foregroundDeletion] deleting";
        let mut world = answering(owner, conflict, (2..100).step_by(2));
        let end = world.attempt("o");
        assert_eq!(patches(world, &end), 11);
    }
}

#[test]
fn d3_a_circle_is_tried_again_after_ten_conflicts_and_then_by_the_queue() {
    for conflict in ["conflict", "422"] {
        let circle = "both cm/a @ns uid=a finalizers=[foregroundDeletion] deleting owners=[cm/a#a!]";
        let mut world = answering(circle, conflict, (2..100).step_by(2));
        let end = world.attempt("a");
        assert_eq!(patches(world, &end), 11);
    }
}

#[test]
fn o1_a_dependent_is_tried_again_after_ten_conflicts_and_then_by_the_queue() {
    let world = "both cm/o @ns uid=o finalizers=[orphan] deleting\nboth cm/1 @ns uid=1 owners=[cm/o#o]";
    for conflict in ["conflict", "422"] {
        let mut world = answering(world, conflict, (1..100).step_by(2));
        let end = world.orphan("o");
        assert_eq!(patches(world, &end), 11);
    }
}

#[test]
fn o1_dependents_that_keep_appearing_are_released_ten_times_over_and_then_by_the_queue() {
    let mut script =
        "both cm/o @ns uid=o finalizers=[orphan] deleting\nboth cm/0 @ns uid=0 owners=[cm/o#o]".to_owned();
    for i in 1..100 {
        write!(script, "\nafter #{i} both cm/{i} @ns uid={i} owners=[cm/o#o]").unwrap();
    }
    let mut world = World::new(&script);
    let end = world.orphan("o");
    assert_eq!(patches(world, &end), 10);
}

#[test]
fn d11_an_object_whose_owners_change_all_the_time_is_decided_on_four_times_and_then_by_the_queue() {
    // Before each delete arrives, the object is given another owner, who is gone as well.
    let mut script = "both cm/c @ns uid=c rv=1 owners=[cm/o1#o1]".to_owned();
    for i in 1..30 {
        write!(script, "\nafter #{} live cm/c @ns uid=c rv={i}0 owners=[cm/o{i}0#o{i}0]", 3 * i - 1).unwrap();
    }
    let mut world = World::new(&script);
    let end = world.attempt("c");
    assert_eq!(end.to_string(), "will be tried again: it changes faster than it can be decided");
    assert_eq!(world.transcript().matches("delete ").count(), 4);
}

/// Users may nest what they like. What is looked at under the lock is bounded, whatever they do.
#[test]
fn d3_the_search_for_a_circle_looks_at_ten_thousand_owners() {
    // Each waits for the next one, and the last for the first.
    let circle_of = |length: usize| {
        let mut script = String::new();
        for i in 0..length {
            let owner = (i + 1) % length;
            writeln!(
                script,
                "both cm/{i} @ns uid={i} finalizers=[foregroundDeletion] deleting owners=[cm/{owner}#{owner}!]"
            )
            .unwrap();
        }
        World::new(&script).attempt("0")
    };
    assert_eq!(circle_of(10_001), Outcome::Forget(Why::ReferencesUnblocked(1)));
    assert_eq!(circle_of(10_002), Outcome::Forget(Why::WaitsForDependents));
}

/// Cluster-scoped dependents name an owner of a namespaced kind by ever so many names: each that is passed over costs a
/// look at all of them, under the lock.
#[test]
fn d6_d17_sixty_four_impossible_coordinates_are_passed_over_in_one_go() {
    for (names, asks_on) in [(64, false), (65, true)] {
        let mut script = String::new();
        for i in 0..names {
            writeln!(script, "graph node/{i} uid={i} owners=[cm/o{i}#o]").unwrap();
        }
        let mut world = World::new(&script);
        world.effects();
        let Outcome::Impossible(coordinate) = world.attempt("o") else { panic!("it has no namespace") };
        world.state.reconsider(&coordinate, &mut world.effects);
        assert_eq!(world.effects().contains("RateLimited"), asks_on, "{names}");
    }
}

/// Those that wait for their turn take a few bytes each, where those that are given out take some hundred.
#[test]
fn o1_a_thousand_dependents_are_given_out_at_once_to_be_released() {
    let mut script = "both cm/o @ns uid=o finalizers=[orphan] deleting".to_owned();
    for i in 0..1_001 {
        write!(script, "\nboth cm/{i} @ns uid={i} owners=[cm/o#o]").unwrap();
    }
    let mut world = World::new(&script);
    let mut attempt = OrphanAttempt::new(Uid::new("o"));
    for at_once in [1_000, 1] {
        let step = attempt.step(&mut world.state, world.now, None);
        let OrphanStep::Release(releases) = step else { panic!("there are more to release: {step:?}") };
        assert_eq!(releases.len(), at_once);
        for release in releases {
            attempt.released(release.uid(), Outcome::Forget(Why::ReferencesRemoved(1)));
        }
    }
}

/// What counts them decides when the oldest has to go. An orphaning that is replaced is moved to where only a restore
/// looks for it (kubernetes/kubernetes#131307).
#[test]
fn g10_coordinates_that_are_moved_to_another_memory_leave_their_room_to_others() {
    let at = |uid: &str| Coordinate { name: uid.into(), uid: Uid::new(uid), ..Coordinate::default() };
    let (mut orphaned, mut replaced) = (Coordinates::new(2), Coordinates::new(2));
    orphaned.insert(at("o"), 10);
    orphaned.insert(at("p"), 20);
    orphaned.move_uid_until(&Uid::new("o"), 10, &mut replaced);
    assert_eq!((orphaned.len(), replaced.len()), (1, 1));
    orphaned.insert(at("q"), 30);
    assert!(orphaned.remembers(&at("p")) && orphaned.remembers(&at("q")));
    orphaned.insert(at("r"), 40);
    assert!(!orphaned.remembers(&at("p")), "two is the most that it holds");
}
