//! The queue for threads: one lock around a [`WorkQueue`], and who sleeps until when.
//!
//! # How getters sleep
//!
//! There is no timer thread. Among the getters that find nothing to do, one is the *timekeeper*: it sleeps
//! until the earliest moment that an item waits for. All others, the followers, sleep without a time. So a
//! million waiting items cost one timed sleep, a moment that comes wakes one thread, and a queue without
//! idle getters needs no waking at all: a getter looks at the clock when it comes.
//!
//! Whoever changes the queue asks [`State::wake`] once, before unlocking, which sleeper the change concerns:
//! an item is ready, the earliest moment has moved forward, or the timekeeper has left to work and another
//! must keep the time. A getter that leaves with an item asks the same question, so wakes travel on by
//! themselves and each change wakes one thread at most.

use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use hashbrown::DefaultHashBuilder;

use crate::metrics::Snapshot;
use crate::rate_limiter::RateLimiter;
use crate::work_queue::{Hash32, WorkQueue};

/// The longest sleep of the timekeeper. A backstop, as in client-go, should the system's idea of a time-out
/// ever differ from its clock: an item is then late by this much and not for ever.
const LONGEST_SLEEP: Duration = Duration::from_secs(10);

/// Where a [`Queue`] has the time from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The system's monotonic clock.
    #[default]
    System,
    /// The time stands still until [`Queue::advance`] moves it: for tests and simulations.
    Manual,
}

/// How a [`Queue`] is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// Turns failures into delays.
    pub rate_limiter: RateLimiter,
    /// Where the time comes from.
    pub clock: Clock,
    /// Whether to measure how long items wait and work takes. Without it the queue does not read the clock
    /// as long as nothing is delayed, which makes it about twice as fast.
    pub timing: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { rate_limiter: RateLimiter::default(), clock: Clock::System, timing: true }
    }
}

/// A [`WorkQueue`] that threads share. A clone is another handle to the same queue.
///
/// The crate's front page shows it at work.
pub struct Queue<T> {
    shared: Arc<Shared<T>>,
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Drain {
    /// Nothing is ready and nothing is being processed any more.
    Complete,
    /// [`Queue::shut_down`] was called meanwhile and ended the wait.
    Interrupted,
    /// The deadline passed. What was left then:
    TimedOut {
        /// Items that no worker had taken.
        ready: usize,
        /// Items that were with workers.
        processing: usize,
    },
}

/// An item that is being processed. Nobody else is handed the item until the guard goes.
///
/// However it goes, the item is done. Dropped while its thread panics, it is also added again with a rate
/// limit: a panic is a failed attempt, and an item that nobody looks at again would be lost.
#[must_use = "dropping the guard ends the processing of its item"]
pub struct Guard<'queue, T: Eq + Hash + Clone> {
    queue: &'queue Queue<T>,
    slot: u32,
    item: T,
    /// What to do besides `done` when the guard is dropped.
    last_step: LastStep,
}

#[derive(Clone, Copy)]
enum LastStep {
    Nothing,
    Forget,
    Add,
    AddAfter(Duration),
    /// After at least so long.
    AddRateLimited(Duration),
}

/// How often a thread that has found the lock taken tries again before it goes to sleep for it. Before each try it lets
/// others run twice as often as before the last, so that the threads that wait do not take turns with the one that works:
/// each turn moves what the lock guards from one processor to another, which costs more than all the rest. With 20 threads
/// on two processors an item costs half of what it costs when each wait is as short as the first, and a quarter more than
/// in a single thread; a sleep, with the wake-up that somebody else has to pay for, costs more than either.
const TRIES: u32 = 4;

/// The longest time of these waits together. Whoever holds the lock needs some 50 nanoseconds more, so it is reached only
/// where a thread that was let run had other work to do: then the lock has long been free.
const LONGEST_WAIT: Duration = Duration::from_millis(1);

struct Shared<T> {
    state: Mutex<State<T>>,
    /// Followers sleep here.
    followers: Condvar,
    /// The timekeeper sleeps here, alone.
    timekeeper: Condvar,
    /// Threads that wait for the end of a drain sleep here.
    drainers: Condvar,
    /// The same hasher as the queue's, to hash outside the lock.
    hasher: DefaultHashBuilder,
    clock: Clock,
    timing: bool,
    start: Instant,
}

struct State<T> {
    queue: WorkQueue<T>,
    /// Followers that sleep and that nobody has woken yet.
    sleeping_followers: usize,
    /// Followers that were woken and do not run yet.
    waking_followers: usize,
    timekeeper: Option<Timekeeper>,
    drainers: usize,
    /// Counted, so that a drainer notices a `shut_down` even if a new drain begins before it wakes.
    shut_downs: u64,
}

struct Timekeeper {
    until: Duration,
    woken: bool,
}

/// Which sleeper a change concerns.
#[derive(Clone, Copy)]
enum Wake {
    Nobody,
    Follower,
    Timekeeper,
}

impl<T: Eq + Hash + Clone> Default for Queue<T> {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

impl<T: Eq + Hash + Clone> Queue<T> {
    /// An empty queue.
    pub fn new(config: Config) -> Self {
        let queue = WorkQueue::new(config.rate_limiter);
        let queue = if config.timing { queue } else { queue.without_timing() };
        let hasher = queue.hasher();
        let state = State {
            queue,
            sleeping_followers: 0,
            waking_followers: 0,
            timekeeper: None,
            drainers: 0,
            shut_downs: 0,
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                followers: Condvar::new(),
                timekeeper: Condvar::new(),
                drainers: Condvar::new(),
                hasher,
                clock: config.clock,
                timing: config.timing,
                start: Instant::now(),
            }),
        }
    }

    /// Marks the item as needing to be processed, now. See [`WorkQueue::add`].
    pub fn add(&self, item: T) {
        let hash = Hash32::of(&self.shared.hasher, &item);
        let mut state = self.lock();
        // Where news come in bursts most adds are of this kind, and the clock costs as much as all the rest of them.
        if state.queue.is_pending(&item, hash) {
            return;
        }
        let now = self.now(&state, self.shared.timing);
        state.queue.add_hashed(now, item, hash);
        let wake = state.wake();
        drop(state);
        self.shared.notify(wake);
    }

    /// Adds the item after a delay; of two moments the earlier wins. See [`WorkQueue::add_after`].
    pub fn add_after(&self, item: T, delay: Duration) {
        self.change(true, |queue, now| queue.add_after(now, item, delay));
    }

    /// Adds the item after the delay that the rate limiter gives it. See [`WorkQueue::add_rate_limited`];
    /// a worker says [`Guard::retry`].
    pub fn add_rate_limited(&self, item: T) {
        self.change(true, |queue, now| queue.add_rate_limited(now, item));
    }

    /// Replaces the moment that the item waits for. See [`WorkQueue::reschedule_after`].
    pub fn reschedule_after(&self, item: T, delay: Duration) {
        self.change(true, |queue, now| queue.reschedule_after(now, item, delay));
    }

    /// Sets the item's number of requeues back to zero. A worker says [`Guard::finish_ok`].
    pub fn forget(&self, item: &T) {
        self.lock().queue.forget(item);
    }

    /// How often the item was added with a rate limit since it was last forgotten.
    pub fn num_requeues(&self, item: &T) -> u32 {
        self.lock().queue.num_requeues(item)
    }

    /// Waits for an item and hands it out. None when the queue is shutting down and nothing is ready: the
    /// worker's thread should end.
    ///
    /// ```
    /// let queue = gc_queue::Queue::default();
    /// queue.add("item");
    /// queue.shut_down();
    /// while let Some(guard) = queue.get() {
    ///     assert_eq!(*guard, "item");
    ///     guard.finish_ok();
    /// }
    /// ```
    pub fn get(&self) -> Option<Guard<'_, T>> {
        let (mut state, mut now) = self.lock_at(false);
        loop {
            if let Some((slot, item)) = state.queue.get_slot(now) {
                let wake = state.wake();
                drop(state);
                self.shared.notify(wake);
                return Some(Guard { queue: self, slot, item, last_step: LastStep::Nothing });
            }
            if state.queue.is_shutting_down() {
                return None;
            }
            state = self.sleep(state, now);
            now = self.now(&state, self.shared.timing);
        }
    }

    /// Hands out an item if one is ready, without waiting.
    pub fn try_get(&self) -> Option<Guard<'_, T>> {
        let (mut state, now) = self.lock_at(false);
        let (slot, item) = state.queue.get_slot(now)?;
        let wake = state.wake();
        drop(state);
        self.shared.notify(wake);
        Some(Guard { queue: self, slot, item, last_step: LastStep::Nothing })
    }

    /// How many items are ready. Good for a look, not for a decision: it may have changed meanwhile.
    pub fn len(&self) -> usize {
        let (mut state, now) = self.lock_at(false);
        state.queue.advance(now);
        state.queue.len()
    }

    /// Whether no item is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the metrics.
    pub fn metrics(&self) -> Snapshot {
        let (mut state, now) = self.lock_at(true);
        state.queue.metrics(now)
    }

    /// Moves a [`Clock::Manual`] forward and wakes whom the new time concerns. Without effect on a queue
    /// with the system's clock, and false then.
    pub fn advance(&self, by: Duration) -> bool {
        if self.shared.clock != Clock::Manual {
            return false;
        }
        self.change(false, |queue, now| queue.advance(now.saturating_add(by)));
        true
    }

    /// Stops the queue: adds are ignored, what is ready is still handed out, what waits for a moment is
    /// dropped, getters that wait are woken, and drains that wait end.
    pub fn shut_down(&self) {
        let mut state = self.lock();
        state.shut_downs += 1;
        self.stop(state);
        self.shared.drainers.notify_all();
    }

    /// Whether the queue was shut down, with or without a drain.
    pub fn is_shutting_down(&self) -> bool {
        self.lock().queue.is_shutting_down()
    }

    /// Shuts down and waits until what is ready and what is being processed is done. Workers must go on
    /// getting until they are handed None, or this waits for ever; so prefer
    /// [`shut_down_with_drain_timeout`](Self::shut_down_with_drain_timeout).
    ///
    /// A [`shut_down`](Self::shut_down) during the wait ends it. Several threads may drain at a time; each
    /// is told.
    pub fn shut_down_with_drain(&self) -> Drain {
        self.drain(None)
    }

    /// The same, but waits for no longer than `timeout`, in the system's time.
    pub fn shut_down_with_drain_timeout(&self, timeout: Duration) -> Drain {
        // A deadline too far away to be expressed is none.
        self.drain(Instant::now().checked_add(timeout))
    }

    fn drain(&self, deadline: Option<Instant>) -> Drain {
        let state = self.lock();
        let shut_downs = state.shut_downs;
        self.stop(state);
        let mut state = self.lock();
        loop {
            if state.queue.is_drained() {
                return Drain::Complete;
            }
            if state.shut_downs != shut_downs {
                return Drain::Interrupted;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Drain::TimedOut {
                    ready: state.queue.len(),
                    processing: state.queue.processing_len(),
                };
            }
            state.drainers += 1;
            state = self.shared.sleep(&self.shared.drainers, state, left);
            state.drainers -= 1;
        }
    }

    /// Shuts the queue down and wakes every getter.
    fn stop(&self, mut state: MutexGuard<'_, State<T>>) {
        state.queue.shut_down();
        state.waking_followers += std::mem::take(&mut state.sleeping_followers);
        if let Some(timekeeper) = &mut state.timekeeper {
            timekeeper.woken = true;
        }
        drop(state);
        self.shared.followers.notify_all();
        self.shared.timekeeper.notify_all();
    }

    /// Makes one change to the queue and wakes the sleeper whom it concerns. The queue's state tells who that is, not
    /// what the change returns.
    fn change<R>(&self, needs_time: bool, change: impl FnOnce(&mut WorkQueue<T>, Duration) -> R) {
        let (mut state, now) = self.lock_at(needs_time);
        change(&mut state.queue, now);
        let wake = state.wake();
        drop(state);
        self.shared.notify(wake);
    }

    /// Ends the processing of a guard's item.
    fn finish(&self, slot: u32, last_step: LastStep) {
        let needs_time = matches!(last_step, LastStep::AddAfter(_) | LastStep::AddRateLimited(_));
        let (mut state, now) = self.lock_at(needs_time);
        let queue = &mut state.queue;
        queue.advance(now);
        match last_step {
            LastStep::Nothing => {}
            LastStep::Forget => queue.forget_slot(slot),
            LastStep::Add => _ = queue.add_slot(slot),
            LastStep::AddAfter(delay) => _ = queue.add_slot_after(slot, delay),
            LastStep::AddRateLimited(at_least) => _ = queue.add_slot_rate_limited(slot, at_least),
        }
        queue.done_slot(slot);
        let wake = state.wake();
        let drained = state.drainers > 0 && state.queue.is_drained();
        drop(state);
        self.shared.notify(wake);
        if drained {
            self.shared.drainers.notify_all();
        }
    }

    /// Sleeps as the timekeeper or as a follower until something may have changed.
    fn sleep<'state>(
        &self,
        mut state: MutexGuard<'state, State<T>>,
        now: Duration,
    ) -> MutexGuard<'state, State<T>> {
        let next_ready = state.queue.next_ready(now);
        if let (None, Some(until)) = (&state.timekeeper, next_ready) {
            state.timekeeper = Some(Timekeeper { until, woken: false });
            let timeout = match self.shared.clock {
                Clock::System => Some(until.saturating_sub(now).min(LONGEST_SLEEP)),
                Clock::Manual => None,
            };
            state = self.shared.sleep(&self.shared.timekeeper, state, timeout);
            state.timekeeper = None;
            return state;
        }
        state.sleeping_followers += 1;
        state = self.shared.sleep(&self.shared.followers, state, None);
        // A thread that wakes without having been woken takes the place of one that was, who will then
        // find nothing in `waking_followers` and take the place of the sleeper. The numbers stay right.
        if state.waking_followers > 0 {
            state.waking_followers -= 1;
        } else {
            state.sleeping_followers -= 1;
        }
        state
    }

    /// Locks, and reads the clock first if the time is needed, so as not to hold the lock meanwhile.
    fn lock_at(&self, needs_time: bool) -> (MutexGuard<'_, State<T>>, Duration) {
        if self.shared.clock == Clock::System && (needs_time || self.shared.timing) {
            let now = self.shared.start.elapsed();
            return (self.lock(), now);
        }
        let state = self.lock();
        let now = self.now(&state, false);
        (state, now)
    }

    /// The time, or any time in the past when nothing depends on it.
    fn now(&self, state: &State<T>, needs_time: bool) -> Duration {
        if self.shared.clock == Clock::System && (needs_time || state.queue.waiting_len() > 0) {
            self.shared.start.elapsed()
        } else {
            state.queue.now()
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Workers run, and panic, outside the lock. Inside it the only foreign code is the item's own `Eq`,
        // `Clone` and `Drop`, called while the queue is consistent. So a poisoned lock is sound.
        self.try_lock().unwrap_or_else(|| self.lock_taken())
    }

    /// Waits for the lock that another thread has.
    #[cold]
    fn lock_taken(&self) -> MutexGuard<'_, State<T>> {
        let begun = Instant::now();
        'tries: for turns in (1..=TRIES).map(|again| 1 << again) {
            for _ in 0..turns {
                std::thread::yield_now();
                if begun.elapsed() >= LONGEST_WAIT {
                    break 'tries;
                }
            }
            if let Some(state) = self.try_lock() {
                return state;
            }
        }
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, State<T>>> {
        match self.shared.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<T: Eq + Hash + Clone> State<T> {
    /// Chooses the sleeper whom the queue's state concerns, and counts it as woken.
    fn wake(&mut self) -> Wake {
        let keeper_until = self.timekeeper.as_ref().filter(|keeper| !keeper.woken).map(|keeper| keeper.until);
        let next = self.queue.next_waiting();
        let wake = if !self.queue.is_empty() {
            // A follower rather than the timekeeper, who would have to find a successor.
            match keeper_until {
                _ if self.sleeping_followers > 0 => Wake::Follower,
                Some(_) => Wake::Timekeeper,
                None => Wake::Nobody,
            }
        } else {
            match (next, keeper_until) {
                (Some(next), Some(until)) if next < until => Wake::Timekeeper,
                (Some(_), None) if self.timekeeper.is_none() && self.sleeping_followers > 0 => Wake::Follower,
                _ => Wake::Nobody,
            }
        };
        match wake {
            Wake::Nobody => {}
            Wake::Follower => {
                self.sleeping_followers -= 1;
                self.waking_followers += 1;
            }
            Wake::Timekeeper => {
                if let Some(keeper) = &mut self.timekeeper {
                    keeper.woken = true;
                }
            }
        }
        wake
    }
}

impl<T> Shared<T> {
    fn notify(&self, wake: Wake) {
        match wake {
            Wake::Nobody => {}
            Wake::Follower => self.followers.notify_one(),
            Wake::Timekeeper => self.timekeeper.notify_one(),
        }
    }

    fn sleep<'state>(
        &self,
        condvar: &Condvar,
        state: MutexGuard<'state, State<T>>,
        timeout: Option<Duration>,
    ) -> MutexGuard<'state, State<T>> {
        // For poison see `Queue::lock`.
        match timeout {
            None => condvar.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => condvar.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner).0,
        }
    }
}

impl<T: Eq + Hash + Clone> Guard<'_, T> {
    /// The item succeeded: it is forgotten and done.
    pub fn finish_ok(mut self) {
        self.last_step = LastStep::Forget;
    }

    /// The item failed: it is added again with a rate limit, and done.
    pub fn retry(self) {
        self.retry_after(Duration::ZERO);
    }

    /// The item failed, and whoever refused it said for how long it is not to be tried again: it is added again with a
    /// rate limit, but not before that, and done.
    pub fn retry_after(mut self, at_least: Duration) {
        self.last_step = LastStep::AddRateLimited(at_least);
    }

    /// The item is to be seen again after a delay, without counting as a failure; it is done.
    pub fn requeue_after(mut self, delay: Duration) {
        self.last_step = LastStep::AddAfter(delay);
    }

    /// The item is to be seen again now, behind all others, without counting as a failure; it is done.
    pub fn requeue(mut self) {
        self.last_step = LastStep::Add;
    }

    /// How often the item was added with a rate limit since it was last forgotten.
    pub fn num_requeues(&self) -> u32 {
        self.queue.num_requeues(&self.item)
    }
}

impl<T: Eq + Hash + Clone> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.item
    }
}

impl<T: Eq + Hash + Clone> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        if matches!(self.last_step, LastStep::Nothing) && std::thread::panicking() {
            self.last_step = LastStep::AddRateLimited(Duration::ZERO);
        }
        self.queue.finish(self.slot, self.last_step);
    }
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("clock", &self.shared.clock).finish_non_exhaustive()
    }
}

impl<T: Eq + Hash + Clone + fmt::Debug> fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.item).finish()
    }
}

#[cfg(test)]
mod tests;
