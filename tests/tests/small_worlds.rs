//! Every small world of the decisions; `gc_tests::simulation::small_worlds` says what that is.
//!
//! The numbers are those of the documentation. When a change to the decisions changes them, look at why, and write them
//! down anew: the test says them.

use gc_core::{Mistake, Options};
use gc_tests::simulation::Check;
use gc_tests::simulation::small_worlds::{BOUNDS, Bound, Counts, LARGE_BOUNDS, Time, explore, explore_with};

/// Checks every world of each bound, and their numbers.
#[track_caller]
fn check(bounds: &[(Bound, Counts)]) {
    let mut wrong = String::new();
    for (bound, expected) in bounds {
        let found = explore(bound);
        println!("{bound:?}: {found:?}");
        match found {
            Ok(found) if found == *expected => {}
            Ok(found) => wrong += &format!("{bound:?} ends well, but with other numbers: {found:?}\n"),
            Err(found) => wrong += &found.to_string(),
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_small_world_ends_well() {
    check(&BOUNDS);
}

/// `SMALL_WORLDS=all cargo test --release -p gc-tests --test small_worlds` tries these, too, and so does
/// `cargo xtask simulate --small-worlds`; some ten minutes.
#[test]
fn every_larger_small_world_ends_well() {
    if std::env::var_os("SMALL_WORLDS").is_some() {
        check(&LARGE_BOUNDS);
    }
}

/// The page that says what a small world is says how many states there are.
#[test]
fn the_numbers_in_the_documentation_are_the_sums() {
    let docs = include_str!("../src/simulation/small_worlds/mod.rs");
    for bounds in [&BOUNDS[..], &LARGE_BOUNDS[..]] {
        let states: u64 = bounds.iter().map(|(_, counts)| counts.states).sum();
        let written = format!("{} states", with_commas(states));
        let more = format!("{} more", with_commas(states));
        assert!(docs.contains(&written) || docs.contains(&more), "no {written} there");
    }
}

fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let parts: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|p| str::from_utf8(p).ok()).collect();
    parts.join(",")
}

/// Watches are as they should be, and nothing is held.
const fn bound(objects: usize, references_max: usize, deletions_max: u8) -> Bound {
    let (time, relists, reads) = (Time::StandsStill, false, false);
    Bound { objects, references_max, deletions_max, holds: false, custom: false, time, relists, reads }
}

/// Tries that find nothing may be blind. Each of these mistakes is found in a handful of worlds.
#[test]
fn small_worlds_find_historical_mistakes() {
    for (mistake, bound, check) in [
        (Mistake::OrphanedForgotten, bound(2, 1, 1), Check::OrphanDeleted),
        (Mistake::DependentsNotAskedAgain, bound(2, 1, 1), Check::OrphanedTooEarly),
        (Mistake::ConflictRepeatsDelete, Bound { reads: true, ..bound(2, 1, 2) }, Check::LiveOwner),
    ] {
        let options = Options { mistake: Some(mistake), ..Options::default() };
        let found = explore_with(&bound, &options).expect_err("a mistake that goes unnoticed");
        assert_eq!(found.violation.check, check, "{mistake:?}: {found}");
    }
}
