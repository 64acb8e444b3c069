//! The gate that every request passes: how many at once, how many a second, and whether any at all.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Error;

/// Bounds the requests in flight and their rate, and lets `close` wake everybody who waits.
pub(crate) struct Gate {
    state: Mutex<State>,
    /// A permit was given back, or the gate closed.
    freed: Condvar,
    /// The gate closed. Apart from `freed`, so that a sleeper never swallows the wake-up meant for a sender.
    closed: Condvar,
    max_in_flight: usize,
}

struct State {
    is_closed: bool,
    in_flight: usize,
    bucket: Option<TokenBucket>,
}

/// The right to have one request in flight; given back on drop.
pub(crate) struct Permit<'a>(&'a Gate);

impl Gate {
    /// `qps` of zero (or no number) means no limit of the rate; `max_in_flight` and `burst` are at least one.
    pub(crate) fn new(max_in_flight: usize, qps: f32, burst: u32) -> Gate {
        let bucket = (qps > 0.0 && qps.is_finite()).then(|| TokenBucket::new(qps, burst, Instant::now()));
        Gate {
            state: Mutex::new(State { is_closed: false, in_flight: 0, bucket }),
            freed: Condvar::new(),
            closed: Condvar::new(),
            max_in_flight: max_in_flight.max(1),
        }
    }

    /// Waits until a request may go out.
    pub(crate) fn acquire(&self) -> Result<Permit<'_>, Error> {
        let mut state = self.lock();
        while !state.is_closed && state.in_flight >= self.max_in_flight {
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_closed {
            return Err(Error::ShutDown);
        }
        state.in_flight += 1;
        let wait = state.bucket.as_mut().map_or(Duration::ZERO, |bucket| bucket.reserve(Instant::now()));
        drop(state);
        let permit = Permit(self);
        self.pause(wait)?;
        Ok(permit)
    }

    /// Sleeps, unless the gate closes first.
    pub(crate) fn pause(&self, duration: Duration) -> Result<(), Error> {
        let state = self.lock();
        let (state, _) = self
            .closed
            .wait_timeout_while(state, duration, |state| !state.is_closed)
            .unwrap_or_else(PoisonError::into_inner);
        if state.is_closed { Err(Error::ShutDown) } else { Ok(()) }
    }

    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.freed.notify_all();
        self.closed.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// A poisoned lock is taken as it is: every change of the state is a single assignment.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.in_flight = state.in_flight.saturating_sub(1);
        drop(state);
        self.0.freed.notify_one();
    }
}

/// client-go's token bucket: `burst` at once, then `qps` a second. Takers queue by reserving ahead, so nobody starves.
struct TokenBucket {
    qps: f64,
    burst: f64,
    /// Negative when takers wait.
    tokens: f64,
    updated: Instant,
}

impl TokenBucket {
    fn new(qps: f32, burst: u32, now: Instant) -> TokenBucket {
        let burst = f64::from(burst.max(1));
        TokenBucket { qps: f64::from(qps), burst, tokens: burst, updated: now }
    }

    /// Takes one token and tells how long to wait until it is there.
    fn reserve(&mut self, now: Instant) -> Duration {
        let elapsed_s = now.saturating_duration_since(self.updated).as_secs_f64();
        self.updated = self.updated.max(now);
        self.tokens = (self.tokens + elapsed_s * self.qps).min(self.burst) - 1.0;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.tokens / self.qps).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn r1_token_bucket_gives_the_burst_at_once_and_then_its_rate() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(10.0, 3, start);
        let waits_ms: Vec<u128> = (0..5).map(|_| bucket.reserve(start).as_millis()).collect();
        assert_eq!(waits_ms, [0, 0, 0, 100, 200]);
        // After a long rest the bucket holds the burst again, and no more.
        let later = start + Duration::from_secs(60);
        let waits_ms: Vec<u128> = (0..4).map(|_| bucket.reserve(later).as_millis()).collect();
        assert_eq!(waits_ms, [0, 0, 0, 100]);
    }

    #[test]
    fn r1_token_bucket_survives_a_clock_that_stands_and_a_tiny_rate() {
        let start = Instant::now() + Duration::from_secs(1);
        let mut bucket = TokenBucket::new(f32::MIN_POSITIVE, 0, start);
        assert_eq!(bucket.reserve(start), Duration::ZERO);
        assert_eq!(bucket.reserve(start - Duration::from_secs(1)), Duration::MAX);
    }

    #[test]
    fn never_more_in_flight_than_allowed() {
        let gate = Gate::new(2, 0.0, 0);
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let _permit = gate.acquire().unwrap();
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!((1..=2).contains(&most.load(Ordering::SeqCst)));
        assert_eq!(gate.lock().in_flight, 0);
    }

    #[test]
    fn r6_closing_wakes_senders_and_sleepers() {
        let gate = Arc::new(Gate::new(1, 0.0, 0));
        let held = gate.acquire().unwrap();
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| gate.acquire().map(drop));
            let sleeper = scope.spawn(|| gate.pause(Duration::from_secs(3600)));
            gate.close();
            assert_eq!(sender.join().unwrap(), Err(Error::ShutDown));
            assert_eq!(sleeper.join().unwrap(), Err(Error::ShutDown));
        });
        drop(held);
        assert_eq!(gate.acquire().map(drop), Err(Error::ShutDown));
    }
}
