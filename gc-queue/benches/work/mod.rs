//! The work that is measured, by divan and against client-go's work queue (`xtask/rig/queue` does the same there).
//!
//! Items have 16 bytes, as a UID has.

#![allow(dead_code, reason = "each program that includes this uses its part")]

use std::time::Duration;

use gc_queue::{Config, Limit, Queue, RateLimiter, WorkQueue};

pub const MILLION: u64 = 1_000_000;
/// Items that wait for a moment.
pub const DELAYED: u64 = 200_000;

/// Does it, with or without measuring for metrics, and gives the number of items.
pub type Work = fn(timing: bool) -> u64;

/// All work by its name.
pub const ALL: [(&str, Work); 6] = [
    ("alone", alone),
    ("duplicates", duplicates),
    ("million", fill_and_drain),
    ("contended", contended),
    ("rate-limited", rate_limited),
    ("after", after),
];

/// Items as they are: random, so that nothing profits from their order.
pub fn item(number: u64) -> u128 {
    (u128::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

fn queue(timing: bool) -> Queue<u128> {
    let exponential = Limit::Exponential { base: Duration::from_millis(1), max: Duration::from_secs(1) };
    Queue::new(Config { rate_limiter: RateLimiter::new(exponential), timing, ..Config::default() })
}

/// One thread; a hundred items come again and again.
pub fn alone(timing: bool) -> u64 {
    let queue = queue(timing);
    for number in 0..MILLION {
        queue.add(item(number % 100));
        drop(queue.get());
    }
    MILLION
}

/// Each item is added ten times before it is handed out, and once more while it is.
pub fn duplicates(timing: bool) -> u64 {
    let queue = queue(timing);
    for _ in 0..MILLION / 1_000 {
        (0..1_000).for_each(|number| queue.add(item(number % 100)));
        while !queue.is_empty() {
            if let Some(guard) = queue.get() {
                queue.add(*guard);
                guard.finish_ok();
            }
            drop(queue.get());
        }
    }
    MILLION
}

/// A million items are in it at once.
pub fn fill_and_drain(timing: bool) -> u64 {
    let queue = queue(timing);
    (0..MILLION).for_each(|number| queue.add(item(number)));
    while let Some(guard) = queue.try_get() {
        guard.finish_ok();
    }
    MILLION
}

/// Twenty workers, each of which adds an item, gets one, and is done with it.
pub fn contended(timing: bool) -> u64 {
    const EACH: u64 = MILLION / 20;
    let queue = queue(timing);
    std::thread::scope(|scope| {
        for worker in 0..20 {
            let queue = &queue;
            scope.spawn(move || {
                for number in 0..EACH {
                    queue.add(item(worker * EACH + number));
                    drop(queue.get());
                }
            });
        }
    });
    MILLION
}

/// Each item has failed once and waits for a millisecond.
pub fn rate_limited(timing: bool) -> u64 {
    let queue = queue(timing);
    (0..DELAYED).for_each(|number| queue.add_rate_limited(item(number)));
    for _ in 0..DELAYED {
        if let Some(guard) = queue.get() {
            guard.finish_ok();
        }
    }
    DELAYED
}

/// Each item waits for one to five milliseconds.
pub fn after(timing: bool) -> u64 {
    let queue = queue(timing);
    for number in 0..DELAYED {
        let item = item(number);
        #[expect(clippy::cast_possible_truncation, reason = "the low half is meant, as there")]
        let nanos = 1_000_000 + item as u64 % 4_000_000;
        queue.add_after(item, Duration::from_nanos(nanos));
    }
    for _ in 0..DELAYED {
        drop(queue.get());
    }
    DELAYED
}

/// The core without lock and clock, one thread.
pub fn core_alone() -> u64 {
    let mut queue = WorkQueue::default();
    for number in 0..MILLION {
        let now = Duration::from_nanos(number);
        queue.add(now, item(number % 100));
        if let Some(item) = queue.get(now) {
            queue.done(now, &item);
        }
    }
    MILLION
}

/// A million at once in the core.
pub fn core_fill_and_drain() -> u64 {
    let mut queue = WorkQueue::default();
    (0..MILLION).for_each(|number| _ = queue.add(Duration::ZERO, item(number)));
    while let Some(item) = queue.get(Duration::ZERO) {
        queue.done(Duration::ZERO, &item);
    }
    MILLION
}
