//! Every small world of the decisions; `gc_tests::simulation::small_worlds` says what that is.
//!
//! The numbers are those of the documentation. When a change to the decisions changes them, look at why, and write them
//! down anew: the test says them.

use gc_core::{Mistake, Options};
use gc_tests::simulation::Check;
use gc_tests::simulation::small_worlds::{Bound, Counts, Time, explore, explore_with};

const fn bound(objects: usize, references_max: usize, deletions_max: u8) -> Bound {
    Bound { objects, references_max, deletions_max, holds: false, custom: false, time: Time::StandsStill }
}

const fn held(bound: Bound) -> Bound {
    Bound { holds: true, ..bound }
}

/// A kind that takes no strategic merge patch, and proofs that are always too old.
const fn otherwise(bound: Bound) -> Bound {
    Bound { custom: true, time: Time::Passes, ..bound }
}

const fn counts(worlds: u64, states: u64, steps: u64, at_rest: u64) -> Counts {
    Counts { worlds, states, steps, at_rest }
}

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
    check(&[
        (held(bound(1, 2, 1)), counts(18, 7_708, 16_815, 175)),
        (otherwise(held(bound(1, 2, 1))), counts(18, 9_871, 21_569, 201)),
        (bound(2, 1, 2), counts(7, 29_923, 73_710, 398)),
        (bound(2, 2, 1), counts(40, 53_906, 124_406, 758)),
        (otherwise(bound(2, 1, 2)), counts(7, 34_851, 85_472, 430)),
        (bound(3, 1, 1), counts(7, 4_696, 11_349, 101)),
        (bound(3, 2, 1), counts(58, 203_256, 553_734, 1_422)),
    ]);
}

/// `SMALL_WORLDS=all cargo test --release -p gc-tests --test small_worlds` tries these, too; some five minutes.
#[test]
fn every_larger_small_world_ends_well() {
    if std::env::var_os("SMALL_WORLDS").is_none() {
        return;
    }
    check(&[
        (held(bound(2, 2, 2)), counts(113, 9_458_298, 29_784_446, 16_011)),
        (otherwise(held(bound(2, 2, 2))), counts(113, 13_486_829, 42_707_612, 19_211)),
        (held(bound(3, 2, 1)), counts(212, 1_387_674, 4_145_024, 6_549)),
        (otherwise(held(bound(3, 2, 1))), counts(212, 1_815_445, 5_523_818, 6_067)),
        (bound(3, 2, 2), counts(58, 5_982_345, 19_089_697, 12_432)),
        (bound(3, 3, 1), counts(374, 6_710_023, 20_224_601, 14_838)),
    ]);
}

/// Tries that find nothing may be blind. Each of these mistakes is found in a handful of worlds.
#[test]
fn small_worlds_find_historical_mistakes() {
    for (mistake, bound, check) in [
        (Mistake::OrphanedForgotten, bound(2, 1, 1), Check::OrphanDeleted),
        (Mistake::DependentsNotAskedAgain, bound(2, 1, 1), Check::OrphanedTooEarly),
        (Mistake::ConflictRepeatsDelete, bound(2, 1, 2), Check::LiveOwner),
    ] {
        let options = Options { mistake: Some(mistake), ..Options::default() };
        let found = explore_with(&bound, &options).expect_err("a mistake that goes unnoticed");
        assert_eq!(found.violation.check, check, "{mistake:?}: {found}");
    }
}
