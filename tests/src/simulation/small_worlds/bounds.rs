//! The bounds that are tried, with their numbers.

use super::{Bound, Counts, Time};

const fn bound(objects: usize, references_max: usize, deletions_max: u8) -> Bound {
    Bound {
        objects,
        references_max,
        deletions_max,
        holds: false,
        custom: false,
        time: Time::StandsStill,
        relists: false,
        reads: false,
    }
}

/// Everything is read before it is deleted.
const fn reading(bound: Bound) -> Bound {
    Bound { reads: true, ..bound }
}

const fn held(bound: Bound) -> Bound {
    Bound { holds: true, ..bound }
}

/// A kind that takes no strategic merge patch, and proofs that are always too old.
const fn otherwise(bound: Bound) -> Bound {
    Bound { custom: true, time: Time::Passes, ..bound }
}

/// Watches are lost.
const fn relisted(bound: Bound) -> Bound {
    Bound { relists: true, ..bound }
}

const fn counts(worlds: u64, states: u64, steps: u64, at_rest: u64) -> Counts {
    Counts { worlds, states, steps, at_rest }
}

/// Which `cargo test` tries.
pub const BOUNDS: [(Bound, Counts); 20] = [
    (held(bound(1, 2, 1)), counts(18, 7_604, 16_581, 175)),
    (reading(held(bound(1, 2, 1))), counts(18, 7_708, 16_815, 175)),
    (otherwise(held(bound(1, 2, 1))), counts(18, 19_047, 43_461, 232)),
    (reading(otherwise(held(bound(1, 2, 1)))), counts(18, 15_750, 35_982, 209)),
    (relisted(held(bound(1, 2, 2))), counts(18, 97_406, 315_286, 580)),
    (reading(relisted(held(bound(1, 2, 2)))), counts(18, 98_004, 317_282, 580)),
    (bound(2, 1, 2), counts(7, 28_212, 68_909, 428)),
    (reading(bound(2, 1, 2)), counts(7, 29_923, 73_710, 398)),
    (bound(2, 2, 1), counts(40, 49_487, 112_950, 803)),
    (reading(bound(2, 2, 1)), counts(40, 53_906, 124_406, 758)),
    (otherwise(bound(2, 1, 2)), counts(7, 37_619, 91_351, 486)),
    (reading(otherwise(bound(2, 1, 2))), counts(7, 37_523, 92_025, 430)),
    (relisted(bound(2, 2, 1)), counts(40, 49_644, 145_436, 803)),
    (reading(relisted(bound(2, 2, 1))), counts(40, 53_983, 158_728, 758)),
    (relisted(otherwise(bound(2, 1, 2))), counts(7, 37_949, 118_719, 508)),
    (reading(relisted(otherwise(bound(2, 1, 2)))), counts(7, 37_815, 119_235, 452)),
    (bound(3, 1, 1), counts(7, 4_364, 10_499, 103)),
    (reading(bound(3, 1, 1)), counts(7, 4_696, 11_349, 101)),
    (bound(3, 2, 1), counts(58, 182_956, 496_024, 1_513)),
    (reading(bound(3, 2, 1)), counts(58, 203_256, 553_734, 1_422)),
];

/// Which `cargo xtask simulate --small-worlds` tries besides.
pub const LARGE_BOUNDS: [(Bound, Counts); 11] = [
    (held(bound(2, 2, 2)), counts(113, 9_399_624, 29_374_905, 18_340)),
    (reading(held(bound(2, 2, 2))), counts(113, 9_458_298, 29_784_446, 16_011)),
    (otherwise(held(bound(2, 2, 2))), counts(113, 16_227_031, 51_053_161, 24_042)),
    (reading(otherwise(held(bound(2, 2, 2)))), counts(113, 13_486_829, 42_707_612, 19_211)),
    (reading(held(bound(3, 2, 1))), counts(212, 1_387_674, 4_145_024, 6_549)),
    (reading(otherwise(held(bound(3, 2, 1)))), counts(212, 1_815_445, 5_523_818, 6_067)),
    (reading(bound(3, 2, 2)), counts(58, 5_982_345, 19_089_697, 12_432)),
    (reading(bound(3, 3, 1)), counts(374, 6_710_023, 20_224_601, 14_838)),
    (reading(relisted(held(bound(2, 2, 1)))), counts(113, 318_917, 1_078_563, 2_707)),
    (reading(relisted(bound(2, 2, 2))), counts(40, 1_115_732, 3_918_935, 4_514)),
    (reading(relisted(bound(3, 2, 1))), counts(58, 203_410, 761_551, 1_422)),
];
