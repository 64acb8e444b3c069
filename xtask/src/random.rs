//! Random numbers that a seed gives again: xorshift64* (Marsaglia, Vigna).

use std::time::{SystemTime, UNIX_EPOCH};

/// A generator; two with the same seed give the same numbers.
pub struct Random(u64);

impl Random {
    /// A generator for a seed.
    pub fn new(seed: u64) -> Random {
        // The state must not be zero; the constant spreads small seeds over all bits.
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A seed that differs from run to run, short enough to be typed.
    pub fn fresh_seed() -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::from(since.subsec_nanos()) ^ u64::from(std::process::id())
    }

    /// A number from 0 up to and without `limit`; 0 for a limit of 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D);
        // The bias of the remainder does not matter here.
        number.checked_rem(limit).unwrap_or_default()
    }
}
