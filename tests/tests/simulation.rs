//! The deterministic simulation: a few hundred seeds, and proof that it finds mistakes.
//!
//! No seed that has found a fault is kept here: it means another history after each change of the program or of the
//! simulation. Each fault has a readable test where it was:
//!
//! - `gc-graph/src/tests/changes.rs`: `s7_what_was_decided_by_a_read_is_looked_at_again_after_a_restore`,
//!   `s7_what_was_being_deleted_and_lives_again_is_looked_at_again`,
//!   `g7_a_dependent_that_is_shown_after_its_owner_began_to_delete_them_is_queued`,
//!   `g6_when_a_reference_goes_what_was_questionable_is_looked_at_again`.
//! - `gc-client/src/watch/plan/tests.rs`: `s7_a_list_whose_server_went_back_between_two_pages_begins_anew`,
//!   `s7_no_watch_goes_on_before_a_probe_was_answered`,
//!   `s7_whatever_a_watch_failed_of_the_server_is_looked_at_first`,
//!   `s7_a_watch_that_ends_long_after_its_time_is_followed_by_a_probe`.
//! - `gc-builder/tests/restore.rs`, reader and builder together: `s7_a_restore_that_a_probe_sees_is_told_before_the_list`,
//!   `s7_a_list_is_never_of_two_halves_before_and_after_a_restore`,
//!   `s7_what_a_worker_removed_on_a_read_alone_is_looked_at_again_after_a_restore`.
//! - `gc-builder/tests/lost.rs`: `s4_s7_a_server_that_is_back_is_looked_at_by_all_watches_before_collection_begins`.
//! - `gc-core/tests/attempts/from_graph.rs`: `d15_s7_what_a_slow_answer_says_of_an_owner_is_as_old_as_its_request`,
//!   `d15_s7_an_absence_that_a_slow_answer_tells_is_as_old_as_its_request`.
//! - `gc-core/tests/attempts/orphan.rs`: `o2_a_dependent_that_names_the_owner_again_is_released_again`,
//!   `o2_an_owner_waits_for_no_kind_of_which_no_dependent_is_left`.
//! - `gc-core/tests/attempts/delete.rs`:
//!   `kubernetes_131307_a_late_dependent_may_name_another_version_of_the_owners_kind`,
//!   `g9_d17_a_virtual_node_all_of_whose_coordinates_are_absent_comes_to_rest`,
//!   `d6_d17_a_virtual_node_all_of_whose_coordinates_are_impossible_comes_to_rest`,
//!   `d6_d17_impossible_coordinates_are_passed_over_for_one_that_can_be_asked_for`.
//! - `gc-core/tests/attempts/doubts.rs`: all of them, servers that deny what exists.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use gc_core::Mistake as Core;
use gc_tests::simulation::{KNOWN, Mistake, Options, run, run_traced, shrink};

#[test]
fn a_few_hundred_seeds_hold_every_check() {
    for seed in 0..300 {
        if let Err(failure) = run(seed, &Options::default()) {
            panic!("{failure}\nstep by step: cargo xtask simulate --from {seed} --seeds 1 --trace");
        }
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in [3, 77] {
        let trace = || {
            let mut lines = Vec::new();
            let report =
                run_traced(seed, &Options::default(), Some(&mut |line| lines.push(line.to_owned()))).unwrap();
            (lines, report)
        };
        let (first, second) = (trace(), trace());
        assert!(first.0.len() > 100);
        assert_eq!(first, second);
    }
}

/// Those that thousands of seeds are needed for are looked for by `cargo xtask simulate --mistakes`.
#[test]
fn historical_mistakes_are_found() {
    let soon = KNOWN.iter().filter(|known| known.seeds <= 1_000);
    let missed: Vec<_> = soon.filter_map(|known| Some((known.mistake, known.find().err()?))).collect();
    assert_eq!(missed, []);
}

/// A world that fails shrinks to one that fails at the same check.
#[test]
fn failing_worlds_shrink() {
    let mistake = Some(Mistake::Core(Core::StrategicTakesAll));
    let options = Options { mistake, ..Options::default() };
    let (seed, failure) =
        (0..200).find_map(|seed| run(seed, &options).err().map(|failure| (seed, failure))).unwrap();
    let (smaller, found) = shrink(seed, &options, &failure);
    assert_eq!(found.violation.check, failure.violation.check);
    assert!(found.step < failure.step || smaller.skip.len() as u32 * 2 > failure.disturbances, "{smaller:?}");
    assert!(run(seed, &smaller).is_err());
}
