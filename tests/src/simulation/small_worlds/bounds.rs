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
    (held(bound(1, 2, 1)), counts(18, 9_959, 21_877, 211)),
    (reading(held(bound(1, 2, 1))), counts(18, 10_075, 22_137, 211)),
    (otherwise(held(bound(1, 2, 1))), counts(18, 36_461, 89_562, 275)),
    (reading(otherwise(held(bound(1, 2, 1)))), counts(18, 29_603, 72_484, 247)),
    (relisted(held(bound(1, 2, 2))), counts(18, 155_362, 485_645, 715)),
    (reading(relisted(held(bound(1, 2, 2)))), counts(18, 155_694, 486_977, 715)),
    (bound(2, 1, 2), counts(7, 34_130, 82_546, 548)),
    (reading(bound(2, 1, 2)), counts(7, 35_808, 87_383, 503)),
    (bound(2, 2, 1), counts(40, 55_090, 125_722, 900)),
    (reading(bound(2, 2, 1)), counts(40, 59_740, 137_609, 851)),
    (otherwise(bound(2, 1, 2)), counts(7, 49_950, 120_602, 625)),
    (reading(otherwise(bound(2, 1, 2))), counts(7, 49_648, 120_946, 562)),
    (relisted(bound(2, 2, 1)), counts(40, 55_251, 161_207, 900)),
    (reading(relisted(bound(2, 2, 1))), counts(40, 59_861, 175_012, 851)),
    (relisted(otherwise(bound(2, 1, 2))), counts(7, 50_919, 158_409, 647)),
    (reading(relisted(otherwise(bound(2, 1, 2)))), counts(7, 50_683, 158_764, 584)),
    (bound(3, 1, 1), counts(7, 4_520, 10_873, 109)),
    (reading(bound(3, 1, 1)), counts(7, 4_852, 11_723, 107)),
    (bound(3, 2, 1), counts(58, 198_414, 537_358, 1_685)),
    (reading(bound(3, 2, 1)), counts(58, 219_493, 596_976, 1_578)),
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
