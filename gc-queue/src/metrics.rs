//! What the queue counts, as plain data.
//!
//! There is no registry here and no provider that is set once for the whole process: a caller reads a
//! [`Snapshot`] and writes it out in whatever form it likes, with whatever labels it likes. So two queues
//! cannot take each other's metrics away, and no item can become a label.

use std::time::Duration;

use crate::time::{Nanos, to_nanos, to_seconds};

/// One reading of a queue. The fields carry the names that client-go's work queue metrics have behind
/// their `workqueue_` prefix, so that dashboards made for those can be served from here.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Items that a worker would be handed now: never negative, never an item that waits for a moment.
    ///
    /// client-go's gauge also counts items that were added again while being processed; that is
    /// `depth + pending_again` here.
    pub depth: usize,
    /// Items that were added again while being processed and become ready when they are done.
    pub pending_again: usize,
    /// Items that wait for a moment (`add_after`, `add_rate_limited`, `reschedule_after`).
    pub waiting: usize,
    /// Items that are with a worker.
    pub processing: usize,
    /// Items outside the queue whose number of requeues is still kept; see
    /// [`MAX_REMEMBERED_ITEMS`](crate::MAX_REMEMBERED_ITEMS).
    pub remembered: usize,
    /// How often an item became ready, or pending while being processed. An add that finds its item
    /// already there is not counted; a delayed item is counted when its moment has come.
    pub adds_total: u64,
    /// How often a delay was asked for (`add_after`, `add_rate_limited`, `reschedule_after`).
    pub retries_total: u64,
    /// Seconds from an item's add, or from the moment it waited for, until a worker was handed it.
    pub queue_duration_seconds: Histogram,
    /// Seconds from handing an item out until it was done.
    pub work_duration_seconds: Histogram,
    /// Seconds that the items now with workers have been there, summed up. It grows without end when
    /// workers are stuck.
    pub unfinished_work_seconds: f64,
    /// Seconds that the longest of them has been there.
    pub longest_running_processor_seconds: f64,
}

/// How many observations fell where. The buckets are client-go's: 10 ns, 100 ns, … 10 s, and beyond.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; Self::BOUNDS_SECONDS.len() + 1],
    sum_ns: u128,
}

impl Histogram {
    /// The upper bounds of the buckets in seconds, each inclusive. A last bucket without a bound follows.
    pub const BOUNDS_SECONDS: [f64; 10] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0];

    /// The observations in each bucket, not cumulated; the last one is for more than 10 seconds.
    pub fn counts(&self) -> [u64; Self::BOUNDS_SECONDS.len() + 1] {
        self.counts
    }

    /// All observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all observations, in seconds.
    pub fn sum_seconds(&self) -> f64 {
        to_seconds(self.sum_ns)
    }

    /// Counts so many more observations of the same, for what is measured like a queue without being one.
    pub fn observe(&mut self, duration: Duration, count: u64) {
        self.add(to_nanos(duration), count);
    }

    pub(crate) fn observe_nanos(&mut self, nanos: Nanos) {
        self.add(nanos, 1);
    }

    fn add(&mut self, nanos: Nanos, count: u64) {
        // The bounds are 10^(bucket + 1) nanoseconds, inclusive: 10 belongs to bucket 0, 11 to bucket 1.
        let digits = nanos.saturating_sub(1).checked_ilog10().unwrap_or(0) as usize;
        self.counts[digits.min(Self::BOUNDS_SECONDS.len())] += count;
        self.sum_ns += u128::from(nanos) * u128::from(count);
    }
}

/// The counters that the queue keeps between readings.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) adds: u64,
    pub(crate) retries: u64,
    pub(crate) queue_duration: Histogram,
    pub(crate) work_duration: Histogram,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q3_the_bounds_are_inclusive_and_decimal() {
        let bucket = |nanos| {
            let mut histogram = Histogram::default();
            histogram.observe_nanos(nanos);
            histogram.counts().iter().position(|&count| count == 1)
        };
        assert_eq!([0, 1, 10].map(bucket), [Some(0); 3]);
        assert_eq!([11, 100].map(bucket), [Some(1); 2]);
        assert_eq!([1_000_000_001, 10_000_000_000].map(bucket), [Some(9); 2]);
        assert_eq!([10_000_000_001, u64::MAX].map(bucket), [Some(10); 2]);
    }

    #[test]
    fn q3_the_sum_is_in_seconds() {
        let mut histogram = Histogram::default();
        histogram.observe_nanos(1_500_000_000);
        histogram.observe(Duration::from_millis(500), 3);
        assert_eq!((histogram.count(), histogram.sum_seconds()), (4, 3.0));
    }
}
