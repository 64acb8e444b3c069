//! Time inside the crate: whole nanoseconds since the caller's arbitrary start.
//!
//! A `u64` is half the size of a [`Duration`], compares in one instruction and lasts for 584 years;
//! everything beyond that saturates, which makes "never" out of a delay of centuries.

use std::time::Duration;

/// Nanoseconds since the caller's start, or a length of time in nanoseconds.
pub(crate) type Nanos = u64;

const NANOS_PER_SECOND: Nanos = 1_000_000_000;

/// Converts, saturating at `u64::MAX` nanoseconds.
pub(crate) fn to_nanos(duration: Duration) -> Nanos {
    duration.as_secs().saturating_mul(NANOS_PER_SECOND).saturating_add(Nanos::from(duration.subsec_nanos()))
}

/// Converts; never loses anything.
pub(crate) fn to_duration(nanos: Nanos) -> Duration {
    Duration::from_nanos(nanos)
}

/// Converts for people and for Prometheus, whose unit is the second.
#[expect(clippy::cast_precision_loss, reason = "a metric of more than 104 days may be off by a nanosecond")]
pub(crate) fn to_seconds(nanos: u128) -> f64 {
    nanos as f64 / 1e9
}
