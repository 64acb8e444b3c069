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
