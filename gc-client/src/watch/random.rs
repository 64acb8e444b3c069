//! Enough chance for jitter: xorshift64* (Vigna 2016). Nothing secret depends on it.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A sequence that follows from its seed.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The text sets apart those that share a seed (FNV-1a).
    pub fn new(seed: u64, text: &str) -> Random {
        let hash = text.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        // Zero would stay zero.
        Random(hash.max(1))
    }

    /// Uniform, from zero up to but not including the bound.
    pub fn below(&mut self, bound: Duration) -> Duration {
        // 32 bits are chance enough, and no product overflows.
        let share = self.next() >> 32;
        let nanos = bound.as_nanos().saturating_mul(u128::from(share)) >> 32;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Uniform enough; the start of an empty range.
    pub fn within(&mut self, range: &RangeInclusive<u64>) -> u64 {
        let span = range.end().saturating_sub(*range.start()).saturating_add(1);
        range.start() + self.next() % span
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}
