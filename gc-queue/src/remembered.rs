//! The failures of items that have left the queue without being forgotten.

use hashbrown::HashMap;
use std::hash::Hash;
use std::time::Duration;

use crate::time::{Nanos, to_nanos};

/// How many items outside the queue keep their number of requeues.
///
/// Items inside the queue (ready, waiting, or being processed) carry their own number, so nothing that is
/// still to be retried can lose it. This limit is for callers that stop retrying and never say so: 131,072
/// numbers of 16-byte items are about 4 MB, the most that such a mistake can cost.
pub const MAX_REMEMBERED_ITEMS: usize = 131_072;

/// How long, at least, an item outside the queue keeps its number of requeues: an hour, more than three
/// times the longest delay of the default rate limiter. After twice that it is gone at the next failure or
/// the next reading of the metrics.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(3600);

/// Two generations of a map. New numbers go into the young one; when it is full or old enough it becomes
/// the old one, and the old one is dropped. That is a bound and an age in O(1), without a clock per item.
#[derive(Debug)]
pub(crate) struct Remembered<T> {
    young: HashMap<T, u32>,
    old: HashMap<T, u32>,
    young_since: Nanos,
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), young_since: 0 }
    }
}

impl<T: Eq + Hash> Remembered<T> {
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    pub(crate) fn get(&self, item: &T) -> Option<u32> {
        self.young.get(item).or_else(|| self.old.get(item)).copied()
    }

    /// Takes the number out, because its item is in the queue again or is forgotten.
    pub(crate) fn take(&mut self, item: &T) -> Option<u32> {
        if self.len() == 0 {
            return None;
        }
        self.young.remove(item).or_else(|| self.old.remove(item))
    }

    /// Keeps the number of an item that leaves the queue. The item must not be remembered yet.
    pub(crate) fn put(&mut self, now: Nanos, item: T, requeues: u32) {
        self.expire(now);
        if self.young.len() >= MAX_REMEMBERED_ITEMS / 2 {
            self.turn(now);
        }
        self.young.insert(item, requeues);
    }

    /// Drops what is too old.
    pub(crate) fn expire(&mut self, now: Nanos) {
        let age = now.saturating_sub(self.young_since);
        let limit = to_nanos(REMEMBERED_FOR);
        if age < limit {
            return;
        }
        if age >= 2 * limit {
            self.turn(now);
        }
        self.turn(now);
    }

    fn turn(&mut self, now: Nanos) {
        self.old = std::mem::take(&mut self.young);
        self.young_since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Nanos = 3_600_000_000_000;

    #[test]
    fn a_number_lives_for_an_hour_and_dies_within_two() {
        let mut remembered = Remembered::default();
        remembered.put(HOUR / 2, "a", 3);
        remembered.expire(HOUR);
        assert_eq!(remembered.get(&"a"), Some(3), "half an hour after it was kept");
        remembered.expire(2 * HOUR - 1);
        assert_eq!(remembered.get(&"a"), Some(3), "an hour and a half after it was kept");
        remembered.expire(2 * HOUR);
        assert_eq!(remembered.len(), 0);
    }

    #[test]
    fn a_silence_of_less_than_two_hours_drops_no_young_number() {
        let mut remembered = Remembered::default();
        remembered.put(HOUR - 1, "a", 3);
        remembered.expire(HOUR + HOUR / 2);
        assert_eq!(remembered.get(&"a"), Some(3), "half an hour after it was kept");
    }

    #[test]
    fn a_long_silence_drops_both_generations_at_once() {
        let mut remembered = Remembered::default();
        remembered.put(0, "a", 1);
        remembered.expire(HOUR);
        remembered.put(HOUR, "b", 1);
        remembered.expire(3 * HOUR);
        assert_eq!(remembered.len(), 0);
    }

    #[test]
    fn the_latest_survive_when_the_limit_is_reached() {
        let mut remembered = Remembered::default();
        for item in 0..=MAX_REMEMBERED_ITEMS {
            remembered.put(0, item, 1);
            assert!(remembered.len() <= MAX_REMEMBERED_ITEMS);
        }
        assert_eq!(remembered.get(&0), None);
        assert_eq!(remembered.get(&MAX_REMEMBERED_ITEMS), Some(1));
        assert_eq!(remembered.take(&MAX_REMEMBERED_ITEMS), Some(1));
        assert_eq!(remembered.take(&MAX_REMEMBERED_ITEMS), None);
    }
}
