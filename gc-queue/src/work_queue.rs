//! The queue itself: plain data, told the time, driven by its caller.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use hashbrown::{DefaultHashBuilder, HashTable, hash_table};

use crate::metrics::{Counters, Snapshot};
use crate::rate_limiter::RateLimiter;
use crate::remembered::Remembered;
use crate::time::{Nanos, to_duration, to_nanos, to_seconds};
use crate::timers::Timers;

/// The work queue as a pure state machine: no lock, no thread, no clock.
///
/// Every method that needs the time takes `now`, the time since an arbitrary start that is the same for all
/// calls. Time never goes backwards here: a `now` before the latest one seen counts as the latest one.
///
/// An item is in one of these states. The queue holds one entry for it, whatever happens to it.
///
/// | state | entered by | left by |
/// |---|---|---|
/// | absent | `done` without anything pending | any add |
/// | waiting | a delay | its moment, an immediate add: ready |
/// | ready | `add`, its moment | `get`: processing |
/// | processing | `get` | `done` |
/// | processing, and waiting | a delay while processing | `done`: waiting; its moment: pending again |
/// | processing, and pending again | `add` while processing | `done`: ready, behind all others |
///
/// So an item has at most one hand-out ahead of it, at the earliest moment that anybody asked for. Whoever
/// is handed an item decides anew when it wants to see it next.
///
/// ```
/// use gc_queue::WorkQueue;
/// use std::time::Duration;
///
/// let second = Duration::from_secs(1);
/// let mut queue = WorkQueue::default();
/// queue.add_after(Duration::ZERO, "later", 10 * second);
/// queue.add(second, "now");
/// assert_eq!(queue.get(second), Some("now"));
/// assert_eq!(queue.get(second), None);
/// assert_eq!(queue.next_ready(second), Some(10 * second));
/// assert_eq!(queue.get(10 * second), Some("later"));
/// ```
///
/// # Limits
///
/// A work queue that refused an item would lose it, so the number of items has no limit but that of the
/// distinct items that exist (and of 2³² − 1 entries, beyond which an add is ignored). What does not
/// correspond to an item in the queue is limited: see [`MAX_REMEMBERED_ITEMS`](crate::MAX_REMEMBERED_ITEMS).
/// The memory of a burst is given back when the queue is empty.
#[derive(Debug)]
pub struct WorkQueue<T> {
    /// From an item's hash to its entry. One table for all states: an operation hashes its item once.
    table: HashTable<Place>,
    hasher: DefaultHashBuilder,
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    /// First in, first out.
    ready: VecDeque<u32>,
    waiting: Timers,
    /// In no order; each entry knows its place.
    processing: Vec<u32>,
    pending_again: usize,
    remembered: Remembered<T>,
    rate_limiter: RateLimiter,
    counters: Counters,
    timing: bool,
    shutting_down: bool,
    now: Nanos,
}

/// Where an item's entry is. The hash stands beside it, so that the table can grow, and most other items can
/// be told apart, without a look at the entries, which are somewhere else in memory.
#[derive(Clone, Copy, Debug)]
struct Place {
    hash: Hash32,
    slot: u32,
}

/// Half of an item's hash: enough for the table's index and tag, half the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash32(u32);

#[derive(Debug)]
struct Entry<T> {
    /// None: the entry is free.
    item: Option<T>,
    hash: Hash32,
    /// When the item became pending.
    added_at: Nanos,
    /// When the item was handed out.
    started_at: Nanos,
    /// The place in `processing`, or [`NOT_PROCESSING`].
    processing_at: u32,
    requeues: u32,
    /// Ready; or, while processing, to become ready when done.
    pending: bool,
    /// The moment that the item waits for was given by the rate limiter, which spent a token on it.
    reserved: bool,
}

const NOT_PROCESSING: u32 = u32::MAX;

/// An empty queue gives its memory back when it had room for more entries than this. Below, keeping it is
/// cheaper: a queue that works well is empty most of the time.
const ENTRIES_KEPT: usize = 1024;

impl<T: Eq + Hash + Clone> Default for WorkQueue<T> {
    fn default() -> Self {
        Self::new(RateLimiter::default())
    }
}

impl<T: Eq + Hash + Clone> WorkQueue<T> {
    /// An empty queue with this rate limiter.
    pub fn new(rate_limiter: RateLimiter) -> Self {
        Self {
            table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            entries: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            waiting: Timers::default(),
            processing: Vec::new(),
            pending_again: 0,
            remembered: Remembered::default(),
            rate_limiter,
            counters: Counters::default(),
            timing: true,
            shutting_down: false,
            now: 0,
        }
    }

    /// Does not measure how long items wait and work takes: the histograms and the two gauges in seconds
    /// stay zero. The counters count all the same. Without delays such a queue needs no `now` at all.
    #[must_use]
    pub fn without_timing(mut self) -> Self {
        self.timing = false;
        self
    }

    /// Marks the item as needing to be processed, now: it is handed out once, however often it was added.
    ///
    /// A moment that the item waits for is dropped, and the token that a rate limit spent on it is given
    /// back. An item that is being processed becomes ready when it is done. Ignored when shutting down.
    ///
    /// Returns whether the item has become ready by this call.
    pub fn add(&mut self, now: Duration, item: T) -> bool {
        let hash = Hash32::of(&self.hasher, &item);
        self.add_hashed(now, item, hash)
    }

    /// Adds the item after a delay. Of two moments for one item the earlier wins; an item that is already
    /// ready or pending again stays so. A delay of zero is an immediate add. Ignored when shutting down.
    ///
    /// Returns whether the item has become ready by this call.
    pub fn add_after(&mut self, now: Duration, item: T, delay: Duration) -> bool {
        let hash = Hash32::of(&self.hasher, &item);
        match self.admit(now, item, hash) {
            Some(slot) => self.delay_slot(slot, delay),
            None => false,
        }
    }

    /// Adds the item after the delay that the rate limiter gives it: for another attempt at an item that
    /// failed, not for news about an item (kubernetes#75577; use [`add`](Self::add) for those).
    ///
    /// Every call counts as a requeue of the item, as in client-go, until it is forgotten. Unlike in
    /// client-go, a token is taken only for a moment that will be waited for: not for an item that is ready
    /// or pending again, nor for one that already waits for an earlier moment (controller-runtime#1594).
    ///
    /// Returns whether the item has become ready by this call.
    pub fn add_rate_limited(&mut self, now: Duration, item: T) -> bool {
        self.add_rate_limited_after(now, item, Duration::ZERO)
    }

    /// The same, but not before a delay of `at_least`: for an item that was refused with a time to wait, where every
    /// further refusal makes the time longer.
    ///
    /// Returns whether the item has become ready by this call.
    pub fn add_rate_limited_after(&mut self, now: Duration, item: T, at_least: Duration) -> bool {
        let hash = Hash32::of(&self.hasher, &item);
        match self.admit(now, item, hash) {
            Some(slot) => self.rate_limit_slot(slot, at_least),
            None => false,
        }
    }

    /// Replaces the moment that the item waits for, also by a later one (client-go#1104); adds the item
    /// after the delay if it waits for none. An item that is already ready or pending again stays so: a
    /// hand-out that is due is never taken back. Ignored when shutting down.
    ///
    /// Returns whether the item has become ready by this call.
    pub fn reschedule_after(&mut self, now: Duration, item: T, delay: Duration) -> bool {
        let hash = Hash32::of(&self.hasher, &item);
        match self.admit(now, item, hash) {
            Some(slot) => self.reschedule_slot(slot, delay),
            None => false,
        }
    }

    /// Hands out the item that has been ready for longest. Until [`done`](Self::done) nobody else is handed
    /// it. None when nothing is ready; the end of work when also [`is_shutting_down`](Self::is_shutting_down).
    pub fn get(&mut self, now: Duration) -> Option<T> {
        self.get_slot(now).map(|(_, item)| item)
    }

    /// Ends the processing of an item. If it was added meanwhile it is ready again, behind all others.
    ///
    /// Returns false, and does nothing, when the item was not being processed.
    pub fn done(&mut self, now: Duration, item: &T) -> bool {
        let Some(slot) = self.find(item).filter(|&slot| self.is_processing(slot)) else { return false };
        self.advance(now);
        self.done_slot(slot);
        true
    }

    /// Sets the item's number of requeues back to zero, whether it succeeded or was given up.
    pub fn forget(&mut self, item: &T) {
        if let Some(slot) = self.find(item) {
            self.forget_slot(slot);
        } else {
            self.remembered.take(item);
        }
    }

    /// How often the item was added with a rate limit since it was last forgotten.
    pub fn num_requeues(&self, item: &T) -> u32 {
        match self.find(item) {
            Some(slot) => self.entries[slot as usize].requeues,
            None => self.remembered.get(item).unwrap_or(0),
        }
    }

    /// How many items are ready, as of the latest time told (see [`advance`](Self::advance)).
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// Whether no item is ready.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// How many items wait for a moment.
    pub fn waiting_len(&self) -> usize {
        self.waiting.len()
    }

    /// How many items are being processed.
    pub fn processing_len(&self) -> usize {
        self.processing.len()
    }

    /// The latest time told.
    pub fn now(&self) -> Duration {
        to_duration(self.now)
    }

    /// Tells the time: items whose moment has come are ready. Every method that takes `now` does this first.
    pub fn advance(&mut self, now: Duration) {
        self.now = self.now.max(to_nanos(now));
        while let Some((slot, at)) = self.waiting.pop_due(self.now) {
            self.entries[slot as usize].reserved = false;
            self.make_pending(slot, at);
        }
    }

    /// When [`get`](Self::get) will next have an item if nothing is added: now, at the earliest moment that
    /// an item waits for, or never. However many items wait, their driver needs one timer, for this time.
    pub fn next_ready(&mut self, now: Duration) -> Option<Duration> {
        self.advance(now);
        if !self.ready.is_empty() {
            return Some(self.now());
        }
        self.next_waiting()
    }

    /// Stops the queue: from now on adds are ignored. What is ready or pending again is still handed out;
    /// what waits for a moment is dropped.
    ///
    /// Draining is a wait, and this type does not wait: its driver goes on with `get` and `done` until
    /// [`is_drained`](Self::is_drained).
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
        for slot in self.waiting.drain() {
            let entry = &mut self.entries[slot as usize];
            entry.reserved = false;
            if !entry.pending && entry.processing_at == NOT_PROCESSING {
                // Nobody will try this item again, so its requeues are of no use to anybody.
                entry.requeues = 0;
                self.release(slot);
            }
        }
    }

    /// Whether [`shut_down`](Self::shut_down) was called.
    pub fn is_shutting_down(&self) -> bool {
        self.shutting_down
    }

    /// Whether the queue was shut down and nothing is ready or being processed any more.
    pub fn is_drained(&self) -> bool {
        self.shutting_down && self.ready.is_empty() && self.processing.is_empty()
    }

    /// Reads the metrics as of `now`.
    pub fn metrics(&mut self, now: Duration) -> Snapshot {
        self.advance(now);
        self.remembered.expire(self.now);
        let (mut unfinished_ns, mut longest_ns) = (0, 0);
        if self.timing {
            for &slot in &self.processing {
                let age_ns = self.now - self.entries[slot as usize].started_at;
                unfinished_ns += u128::from(age_ns);
                longest_ns = age_ns.max(longest_ns);
            }
        }
        Snapshot {
            depth: self.ready.len(),
            pending_again: self.pending_again,
            waiting: self.waiting.len(),
            processing: self.processing.len(),
            remembered: self.remembered.len(),
            adds_total: self.counters.adds,
            retries_total: self.counters.retries,
            queue_duration_seconds: self.counters.queue_duration.clone(),
            work_duration_seconds: self.counters.work_duration.clone(),
            unfinished_work_seconds: to_seconds(unfinished_ns),
            longest_running_processor_seconds: to_seconds(u128::from(longest_ns)),
        }
    }
}

/// The same operations by slot, for a caller that holds an item which is being processed and so knows that
/// its entry stands still, and the steps that they are made of.
impl<T: Eq + Hash + Clone> WorkQueue<T> {
    pub(crate) fn hasher(&self) -> DefaultHashBuilder {
        self.hasher.clone()
    }

    pub(crate) fn add_hashed(&mut self, now: Duration, item: T, hash: Hash32) -> bool {
        match self.admit(now, item, hash) {
            Some(slot) => self.make_pending(slot, self.now),
            None => false,
        }
    }

    /// Whether the item is ready, or pending again: whether another add would change nothing.
    pub(crate) fn is_pending(&self, item: &T, hash: Hash32) -> bool {
        let is_item = |place: &Place| {
            place.hash == hash && self.entries[place.slot as usize].item.as_ref() == Some(item)
        };
        let place = self.table.find(hash.spread(), is_item);
        place.is_some_and(|place| self.entries[place.slot as usize].pending)
    }

    /// The earliest moment that an item waits for.
    pub(crate) fn next_waiting(&self) -> Option<Duration> {
        self.waiting.first().map(to_duration)
    }

    pub(crate) fn add_slot(&mut self, slot: u32) -> bool {
        !self.shutting_down && self.make_pending(slot, self.now)
    }

    pub(crate) fn add_slot_after(&mut self, slot: u32, delay: Duration) -> bool {
        !self.shutting_down && self.delay_slot(slot, delay)
    }

    pub(crate) fn add_slot_rate_limited(&mut self, slot: u32, at_least: Duration) -> bool {
        !self.shutting_down && self.rate_limit_slot(slot, at_least)
    }

    pub(crate) fn get_slot(&mut self, now: Duration) -> Option<(u32, T)> {
        self.advance(now);
        let slot = *self.ready.front()?;
        let entry = &mut self.entries[slot as usize];
        // Cloned before anything changes, so that a panic in `clone` leaves the item where it was.
        // A ready entry is never free, so this is never None.
        let item = entry.item.clone()?;
        self.ready.pop_front();
        entry.pending = false;
        entry.processing_at = index(self.processing.len());
        if self.timing {
            entry.started_at = self.now;
            self.counters.queue_duration.observe_nanos(self.now - entry.added_at);
        }
        self.processing.push(slot);
        Some((slot, item))
    }

    /// Ends the processing of an entry that is being processed.
    pub(crate) fn done_slot(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        let place = std::mem::replace(&mut entry.processing_at, NOT_PROCESSING);
        let (pending, started_at) = (entry.pending, entry.started_at);
        self.processing.swap_remove(place as usize);
        if let Some(&moved) = self.processing.get(place as usize) {
            self.entries[moved as usize].processing_at = place;
        }
        if self.timing {
            self.counters.work_duration.observe_nanos(self.now - started_at);
        }
        if pending {
            self.pending_again -= 1;
            self.ready.push_back(slot);
        } else if self.waiting.deadline(slot).is_none() {
            self.release(slot);
        }
    }

    pub(crate) fn forget_slot(&mut self, slot: u32) {
        self.entries[slot as usize].requeues = 0;
    }

    fn rate_limit_slot(&mut self, slot: u32, at_least: Duration) -> bool {
        self.counters.retries += 1;
        let entry = &mut self.entries[slot as usize];
        let requeues = entry.requeues;
        entry.requeues = requeues.saturating_add(1);
        if entry.pending {
            return false;
        }
        // A token that the item holds is exchanged, or it would stand in its own way.
        let held_token = self.release_token(slot);
        let delay = self.rate_limiter.when(to_duration(self.now), requeues).max(at_least);
        if delay.is_zero() {
            return self.make_pending(slot, self.now);
        }
        let at = self.now.saturating_add(to_nanos(delay));
        let earlier = self.waiting.deadline(slot).is_some_and(|deadline| deadline <= at);
        if earlier && !held_token {
            self.rate_limiter.give_back();
            return false;
        }
        if !earlier {
            self.waiting.set(slot, at);
        }
        self.entries[slot as usize].reserved = true;
        false
    }

    fn delay_slot(&mut self, slot: u32, delay: Duration) -> bool {
        let at = self.now.saturating_add(to_nanos(delay));
        if self.waiting.deadline(slot).is_some_and(|deadline| deadline <= at) {
            self.counters.retries += 1;
            return false;
        }
        self.reschedule_slot(slot, delay)
    }

    fn reschedule_slot(&mut self, slot: u32, delay: Duration) -> bool {
        self.counters.retries += 1;
        if self.entries[slot as usize].pending {
            return false;
        }
        if delay.is_zero() {
            return self.make_pending(slot, self.now);
        }
        self.release_token(slot);
        self.waiting.set(slot, self.now.saturating_add(to_nanos(delay)));
        false
    }

    /// Tells the time and finds or makes the item's entry; the caller then makes it pending or waiting.
    /// None when the add is to be ignored.
    fn admit(&mut self, now: Duration, item: T, hash: Hash32) -> Option<u32> {
        if self.shutting_down {
            return None;
        }
        self.advance(now);
        let entries = &self.entries;
        let place = self.table.entry(
            hash.spread(),
            |place| place.hash == hash && entries[place.slot as usize].item.as_ref() == Some(&item),
            |place| place.hash.spread(),
        );
        let vacant = match place {
            hash_table::Entry::Occupied(occupied) => return Some(occupied.get().slot),
            hash_table::Entry::Vacant(vacant) => vacant,
        };
        let slot = match self.free.pop() {
            Some(slot) => slot,
            // The last number is left out because it stands for "nowhere".
            None => u32::try_from(self.entries.len()).ok().filter(|&slot| slot != u32::MAX)?,
        };
        vacant.insert(Place { hash, slot });
        let entry = Entry {
            requeues: self.remembered.take(&item).unwrap_or(0),
            item: Some(item),
            hash,
            added_at: 0,
            started_at: 0,
            processing_at: NOT_PROCESSING,
            pending: false,
            reserved: false,
        };
        match self.entries.get_mut(slot as usize) {
            Some(free) => *free = entry,
            None => self.entries.push(entry),
        }
        Some(slot)
    }

    /// Makes the entry ready, or pending again while it is being processed. Returns whether it became ready.
    fn make_pending(&mut self, slot: u32, at: Nanos) -> bool {
        self.release_token(slot);
        self.waiting.remove(slot);
        let entry = &mut self.entries[slot as usize];
        if entry.pending {
            return false;
        }
        entry.pending = true;
        entry.added_at = at;
        self.counters.adds += 1;
        if entry.processing_at != NOT_PROCESSING {
            self.pending_again += 1;
            return false;
        }
        self.ready.push_back(slot);
        true
    }

    /// Gives the item's token back, if it holds one, because it will not wait for the moment of that.
    fn release_token(&mut self, slot: u32) -> bool {
        let held = std::mem::take(&mut self.entries[slot as usize].reserved);
        if held {
            self.rate_limiter.give_back();
        }
        held
    }

    /// Frees an entry that is neither pending, nor waiting, nor being processed.
    fn release(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        let (hash, requeues, item) = (entry.hash, entry.requeues, entry.item.take());
        if let Ok(occupied) = self.table.find_entry(hash.spread(), |place| place.slot == slot) {
            occupied.remove();
        }
        self.free.push(slot);
        if self.table.is_empty() && self.entries.capacity() > ENTRIES_KEPT {
            self.give_memory_back();
        }
        if let Some(item) = item.filter(|_| requeues > 0) {
            self.remembered.put(self.now, item, requeues);
        }
    }

    fn give_memory_back(&mut self) {
        self.table = HashTable::new();
        self.entries = Vec::new();
        self.free = Vec::new();
        self.ready = VecDeque::new();
        self.waiting = Timers::default();
        self.processing = Vec::new();
    }

    fn find(&self, item: &T) -> Option<u32> {
        let hash = Hash32::of(&self.hasher, item);
        let is_item = |place: &Place| {
            place.hash == hash && self.entries[place.slot as usize].item.as_ref() == Some(item)
        };
        self.table.find(hash.spread(), is_item).map(|place| place.slot)
    }

    fn is_processing(&self, slot: u32) -> bool {
        self.entries[slot as usize].processing_at != NOT_PROCESSING
    }
}

impl Hash32 {
    #[expect(clippy::cast_possible_truncation, reason = "half of a good hash is a good hash")]
    pub(crate) fn of<T: Hash>(hasher: &DefaultHashBuilder, item: &T) -> Self {
        Self(hasher.hash_one(item) as u32)
    }

    /// To 64 bits: the table takes its index from the lower bits and its tag from the upper ones.
    fn spread(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(self.0)
    }
}

/// An index into `processing`, which never has more elements than there are slots.
#[expect(clippy::cast_possible_truncation, reason = "see above")]
fn index(len: usize) -> u32 {
    len as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::ZERO;

    fn work_off<T: Eq + Hash + Clone>(queue: &mut WorkQueue<T>, items: usize) {
        for _ in 0..items {
            let item = queue.get(START).unwrap();
            queue.done(START, &item);
        }
    }

    /// An add that changes nothing is known by the item itself: another with the same hash would be lost.
    #[test]
    fn an_item_is_pending_by_itself_and_not_by_its_hash() {
        let hash = Hash32(7);
        let mut queue = WorkQueue::default();
        assert!(!queue.is_pending(&"a", hash), "nothing is");
        queue.add_hashed(START, "a", hash);
        assert!(queue.is_pending(&"a", hash));
        assert!(!queue.is_pending(&"b", hash), "the hash alone says nothing");
        queue.add_hashed(START, "b", hash);
        assert_eq!((queue.get(START), queue.is_pending(&"a", hash)), (Some("a"), false), "it is handed out");
        queue.add_hashed(START, "a", hash);
        assert!(queue.is_pending(&"a", hash), "and again when it is done");
    }

    #[test]
    fn kubernetes_138743_items_that_come_and_go_leave_nothing_behind() {
        let mut queue = WorkQueue::default();
        for item in 0..10_000 {
            queue.add(START, item);
            work_off(&mut queue, 1);
        }
        assert_eq!((queue.table.len(), queue.entries.len(), queue.free.len()), (0, 1, 1));
    }

    #[test]
    fn q4_memory_is_given_back_when_all_of_many_items_have_gone_and_not_before() {
        let mut queue = WorkQueue::default();
        (0..5_000).for_each(|item| _ = queue.add(START, item));
        work_off(&mut queue, 4_999);
        assert!(queue.entries.capacity() >= 5_000 && queue.len() == 1);
        work_off(&mut queue, 1);
        let held = (queue.table.capacity(), queue.entries.capacity(), queue.ready.capacity());
        assert_eq!(held, (0, 0, 0));
        // A queue that works well is empty most of the time, and keeps what a little work takes.
        (0..ENTRIES_KEPT).for_each(|item| _ = queue.add(START, item));
        queue.entries.shrink_to_fit();
        assert_eq!(queue.entries.capacity(), ENTRIES_KEPT);
        work_off(&mut queue, ENTRIES_KEPT);
        assert_eq!(queue.entries.capacity(), ENTRIES_KEPT);
    }

    /// All of them have the same hash.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Alike(u32);

    impl Hash for Alike {
        fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
    }

    #[test]
    fn q1_items_are_told_apart_by_what_they_are_and_not_by_their_hash() {
        let mut queue = WorkQueue::default();
        (0..100).for_each(|item| _ = queue.add(START, Alike(item)));
        let handed_out: Vec<u32> = std::iter::from_fn(|| queue.get(START)).map(|item| item.0).collect();
        assert_eq!(handed_out, (0..100).collect::<Vec<u32>>());
        assert!(queue.done(START, &Alike(50)) && !queue.done(START, &Alike(50)));
    }
}
