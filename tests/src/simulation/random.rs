//! Chance from a seed: splitmix64, the same on every machine.

use std::time::Duration;

/// A generator; two with the same seed give the same numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A generator that has nothing in common with the others of the same seed.
    pub(crate) fn apart(seed: u64, purpose: u64) -> Random {
        let mut random = Random(seed ^ purpose.wrapping_mul(0xd134_2543_de82_ef95));
        Random(random.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to and without the limit; 0 for a limit of 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        // The bias of the remainder does not matter here.
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        usize::try_from(self.next().checked_rem(limit).unwrap_or_default()).unwrap_or_default()
    }

    /// From one number up to and with another.
    pub(crate) fn within(&mut self, from: u32, to: u32) -> u32 {
        let span = to.saturating_sub(from).saturating_add(1);
        from + u32::try_from(self.next() % u64::from(span)).unwrap_or_default()
    }

    /// True as often as that in a thousand.
    pub(crate) fn permille(&mut self, share: u32) -> bool {
        self.within(1, 1000) <= share
    }

    pub(crate) fn pick<'t, T>(&mut self, of: &'t [T]) -> Option<&'t T> {
        of.get(self.below(of.len()))
    }

    pub(crate) fn millis(&mut self, from: u32, to: u32) -> Duration {
        Duration::from_millis(u64::from(self.within(from, to)))
    }
}
