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
    (held(bound(1, 2, 1)), counts(18, 8_334, 18_235, 211)),
    (reading(held(bound(1, 2, 1))), counts(18, 8_448, 18_491, 211)),
    (otherwise(held(bound(1, 2, 1))), counts(18, 37_054, 92_076, 275)),
    (reading(otherwise(held(bound(1, 2, 1)))), counts(18, 30_651, 75_827, 247)),
    (relisted(held(bound(1, 2, 2))), counts(18, 109_656, 353_515, 715)),
    (reading(relisted(held(bound(1, 2, 2)))), counts(18, 110_304, 355_659, 715)),
    (bound(2, 1, 2), counts(7, 31_825, 77_014, 548)),
    (reading(bound(2, 1, 2)), counts(7, 33_555, 81_970, 503)),
    (bound(2, 2, 1), counts(40, 52_695, 120_154, 900)),
    (reading(bound(2, 2, 1)), counts(40, 57_341, 132_129, 851)),
    (otherwise(bound(2, 1, 2)), counts(7, 70_427, 169_568, 625)),
    (reading(otherwise(bound(2, 1, 2))), counts(7, 70_066, 169_961, 562)),
    (relisted(bound(2, 2, 1)), counts(40, 52_848, 154_494, 900)),
    (reading(relisted(bound(2, 2, 1))), counts(40, 57_414, 168_383, 851)),
    (relisted(otherwise(bound(2, 1, 2))), counts(7, 64_012, 195_486, 647)),
    (reading(relisted(otherwise(bound(2, 1, 2)))), counts(7, 63_231, 194_401, 584)),
    (bound(3, 1, 1), counts(7, 4_472, 10_745, 109)),
    (reading(bound(3, 1, 1)), counts(7, 4_804, 11_595, 107)),
    (bound(3, 2, 1), counts(58, 192_964, 522_264, 1_685)),
    (reading(bound(3, 2, 1)), counts(58, 214_136, 582_268, 1_578)),
];

/// Which `cargo xtask simulate --small-worlds` tries besides.
pub const LARGE_BOUNDS: [(Bound, Counts); 11] = [
    (held(bound(2, 2, 2)), counts(113, 10_978_045, 34_212_009, 23_059)),
    (reading(held(bound(2, 2, 2))), counts(113, 11_000_314, 34_519_170, 19_747)),
    (otherwise(held(bound(2, 2, 2))), counts(113, 89_010_672, 284_949_658, 31_254)),
    (reading(otherwise(held(bound(2, 2, 2)))), counts(113, 57_490_928, 185_340_184, 24_970)),
    (reading(held(bound(3, 2, 1))), counts(212, 1_522_539, 4_538_632, 7_413)),
    (reading(otherwise(held(bound(3, 2, 1)))), counts(212, 7_865_172, 23_921_089, 7_512)),
    (reading(bound(3, 2, 2)), counts(58, 6_775_765, 21_537_884, 15_211)),
    (reading(bound(3, 3, 1)), counts(374, 7_359_464, 22_115_373, 17_168)),
    (reading(relisted(held(bound(2, 2, 1)))), counts(113, 351_748, 1_183_706, 3_069)),
    (reading(relisted(bound(2, 2, 2))), counts(40, 1_285_919, 4_477_369, 5_524)),
    (reading(relisted(bound(3, 2, 1))), counts(58, 214_282, 799_818, 1_578)),
];
