//! The deterministic simulation: a few hundred seeds, and proof that it finds mistakes.
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
        (0..50).find_map(|seed| run(seed, &options).err().map(|failure| (seed, failure))).unwrap();
    let (smaller, found) = shrink(seed, &options, &failure);
    assert_eq!(found.violation.check, failure.violation.check);
    assert!(found.step < failure.step || smaller.skip.len() as u32 * 2 > failure.disturbances, "{smaller:?}");
    assert!(run(seed, &smaller).is_err());
}
