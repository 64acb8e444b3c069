//! Whatever reads bytes from outside: a few hundred cases of each target here; `cargo xtask fuzz` runs this with
//! `GC_TESTS_FUZZ` set, for longer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use gc_tests::fuzz::{self, Plan, TARGETS};

fn measure(work: &mut dyn FnMut()) -> u64 {
    allocation_counter::measure(work).bytes_max
}

#[test]
fn r7_no_bytes_from_outside_do_harm() {
    fuzz::check(TARGETS, &Plan { cases: 300, threads: 2, ..Plan::default() }, &measure);
}
