//! Whose turn it is to begin a stream: of thousands of readers only a few at once.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Error;

/// So many lists are read and watches opened at once. A server that gets thousands in one moment puts some hundreds of
/// them into its queues and refuses the others with a 429, and asks those to stay away for longer each time.
const TURNS_MAX: usize = 16;

/// After so long somebody else's turn begins as well: what is slow, or never ends, must hold up nobody (spec S3). A server
/// that is asked for a resource the first time since it was started may take seconds, most of which it waits; of such
/// lists 160 a second are begun, and those under way stay fewer than it queues.
const TURN_LASTS: Duration = Duration::from_millis(100);

/// The turns under way.
pub(crate) struct Turns {
    /// Held by the one who waits for the next turn; the others wait for him. So it is one thread that wakes when a turn
    /// is over, and not all of them.
    entrance: Mutex<()>,
    state: Mutex<State>,
    /// A turn is over, or there will be none any more.
    over: Condvar,
    max: usize,
    lasts: Duration,
}

#[derive(Default)]
struct State {
    is_closed: bool,
    /// By number, when each began; those that have lasted too long are taken out.
    begun: Vec<(u64, Instant)>,
    number: u64,
}

/// The right to begin a stream; over when it is dropped, and for others soon in any case.
#[derive(Debug)]
pub(crate) struct Turn<'t> {
    turns: &'t Turns,
    number: u64,
}

impl Turns {
    pub(crate) fn new() -> Turns {
        Turns::with(TURNS_MAX, TURN_LASTS)
    }

    fn with(max: usize, lasts: Duration) -> Turns {
        let (entrance, state, over) = (Mutex::default(), Mutex::default(), Condvar::new());
        Turns { entrance, state, over, max, lasts }
    }

    /// Waits for a turn.
    pub(crate) fn take(&self) -> Result<Turn<'_>, Error> {
        let _entrance = self.entrance.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return Err(Error::ShutDown);
            }
            let now = Instant::now();
            state.begun.retain(|(_, begun)| now.saturating_duration_since(*begun) < self.lasts);
            if state.begun.len() < self.max {
                state.number += 1;
                let number = state.number;
                state.begun.push((number, now));
                return Ok(Turn { turns: self, number });
            }
            // They are in the order in which they began.
            let oldest = state.begun.first().map_or(now, |(_, begun)| *begun);
            let left = self.lasts.saturating_sub(now.saturating_duration_since(oldest));
            state = self.over.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// There are no more turns.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.over.notify_all();
    }

    /// A poisoned lock is taken as it is: nothing panics between two changes that belong together.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Turns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turns").finish_non_exhaustive()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        state.begun.retain(|(number, _)| *number != self.number);
        drop(state);
        self.turns.over.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(3_600);

    #[test]
    fn never_more_at_once_than_there_are_turns() {
        let turns = Turns::with(2, LONG);
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let _turn = turns.take().unwrap();
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!((1..=2).contains(&most.load(Ordering::SeqCst)));
        assert!(turns.lock().begun.is_empty());
    }

    #[test]
    fn s3_turns_that_never_end_hold_up_nobody() {
        let turns = Turns::with(2, Duration::from_millis(5));
        let all: Vec<Turn<'_>> = (0..7).map(|_| turns.take().unwrap()).collect();
        assert!(turns.lock().begun.len() <= 2);
        drop(all);
        assert!(turns.lock().begun.is_empty());
    }

    #[test]
    fn r6_closing_wakes_all_who_wait() {
        let turns = Turns::with(1, LONG);
        let held = turns.take().unwrap();
        thread::scope(|scope| {
            let waiting: Vec<_> = (0..3).map(|_| scope.spawn(|| turns.take().map(drop))).collect();
            let deadline = Instant::now() + Duration::from_secs(30);
            while turns.entrance.try_lock().is_ok() {
                assert!(Instant::now() < deadline, "one of them waits for the turn");
                thread::yield_now();
            }
            turns.close();
            for waiting in waiting {
                assert_eq!(waiting.join().unwrap(), Err(Error::ShutDown));
            }
        });
        drop(held);
        assert_eq!(turns.take().map(drop), Err(Error::ShutDown));
    }
}
