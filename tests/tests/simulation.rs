//! The deterministic simulation: a few hundred seeds, and proof that it finds mistakes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use gc_builder::Mistake as Builder;
use gc_core::Mistake as Core;
use gc_tests::simulation::{Check, Mistake, Options, run, run_traced, shrink};

#[test]
fn a_few_hundred_seeds_hold_every_check() {
    for seed in 0..300 {
        if let Err(failure) = run(seed, &Options::default()) {
            panic!("{failure}\nstep by step: cargo xtask simulate --from {seed} --seeds 1 --trace");
        }
    }
}

/// Seeds that have found a fault, each in what only many worlds have: a reference that was removed by a read alone, before
/// a restore that undid it unseen; a list of two halves, before and after a restore; a slow answer that said of an owner
/// what was no longer so when it came; a restore that only a probe saw (gc-builder/tests/restore.rs tells that one).
#[test]
fn seeds_that_have_found_faults() {
    for seed in [5_562, 11_165, 13_835, 78_796] {
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

/// Runs so many seeds until one fails at one of these checks; gives the others that failed where none does.
fn found(
    mistake: Mistake,
    ignored: &[Check],
    seeds: std::ops::Range<u64>,
    checks: &[Check],
) -> Result<(), Vec<Check>> {
    let ignored: BTreeSet<Check> = ignored.iter().copied().collect();
    let options = Options { mistake: Some(mistake), ignored, ..Options::default() };
    let mut others = Vec::new();
    for failure in seeds.filter_map(|seed| run(seed, &options).err()) {
        if checks.contains(&failure.violation.check) {
            return Ok(());
        }
        others.push(failure.violation.check);
    }
    Err(others)
}

/// A simulation that finds nothing may be blind. Each of these mistakes was made by somebody, and each is found within
/// that many seeds, by a check for what it does harm to. The checks of requests as they leave do not count where they
/// would see the mistake itself.
#[test]
fn every_historical_mistake_is_found() {
    let mistakes = [
        (Mistake::Core(Core::AbsenceByUid), &[][..], 0, 50, &[Check::LiveOwner][..]),
        (Mistake::Core(Core::EdgeNotLevel), &[], 0, 100, &[Check::ReferenceLeft][..]),
        (
            Mistake::Core(Core::ImpossibleIsAbsent),
            &[],
            2_900,
            150,
            &[Check::LiveOwner, Check::ReferenceRemoved],
        ),
        (Mistake::Core(Core::OrphanedForgotten), &[], 0, 300, &[Check::OrphanDeleted][..]),
        (Mistake::Core(Core::ConflictRepeatsDelete), &[], 0, 200, &[Check::LiveOwner][..]),
        (Mistake::Core(Core::DependentsNotAskedAgain), &[], 0, 200, &[Check::ForegroundTooEarly][..]),
        (Mistake::Core(Core::StrategicTakesAll), &[], 0, 50, &[Check::ReferenceRemoved][..]),
        (Mistake::DeleteWithoutVersion, &[Check::Precondition], 0, 200, &[Check::LiveOwner][..]),
        (Mistake::Any404IsProof, &[], 0, 500, &[Check::ReferenceLeft, Check::FinalizerLeft]),
        (Mistake::Builder(Builder::EmptyDiscoveryIsTruth), &[], 0, 100, &[Check::LiveOwner]),
        (Mistake::Builder(Builder::RestoreUnnoticed), &[], 700, 100, &[Check::FinalizerLeft]),
        (Mistake::Builder(Builder::OnlyListsCount), &[], 700, 100, &[Check::FinalizerLeft]),
        (Mistake::Builder(Builder::ProbeUntold), &[], 78_700, 100, &[Check::FinalizerLeft]),
        (Mistake::Builder(Builder::ListsSweepNothing), &[], 0, 50, &[Check::Graph, Check::NotCollected]),
        (Mistake::HalfListIsWhole, &[], 0, 200, &[Check::FinalizerLeft, Check::NoRest, Check::NotCollected]),
    ];
    for (mistake, ignored, from, seeds, checks) in mistakes {
        let found = found(mistake, ignored, from..from + seeds, checks);
        assert_eq!(found, Ok(()), "{mistake:?} in {seeds} seeds from {from}");
    }
}

/// A world that fails shrinks to one that fails at the same check.
#[test]
fn failing_worlds_shrink() {
    let mistake = Some(Mistake::Core(Core::StrategicTakesAll));
    let options = Options { mistake, ..Options::default() };
    let (seed, failure) =
        (0..50).find_map(|seed| run(seed, &options).err().map(|failure| (seed, failure))).unwrap();
    let (smaller, found) = shrink(seed, &options, &failure);
    assert_eq!(found.violation.check, failure.violation.check);
    assert!(found.step < failure.step || smaller.skip.len() as u32 * 2 > failure.disturbances, "{smaller:?}");
    assert!(run(seed, &smaller).is_err());
}
