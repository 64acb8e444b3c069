//! A work queue with client-go's contract: deduplication, delays, rate limits, drain.
//!
//! It holds *items that need to be looked at*, not events about them. An item is a small key; however often
//! it is added, it is handed out once, and whoever is handed it looks at the world as it is then.
//!
//! # Hello, world
//!
//! ```
//! let queue = gc_queue::Queue::default();
//! queue.add("world");
//! queue.add("world"); // Already there: nothing changes.
//! assert_eq!(queue.len(), 1);
//!
//! let guard = queue.get().expect("the queue is not shutting down");
//! assert_eq!(*guard, "world");
//! guard.finish_ok();
//! assert!(queue.is_empty());
//! ```
//!
//! # The contract
//!
//! - First in, first out, each item once.
//! - An item is never with two workers at once. Added again while being processed, it is handed out again
//!   after it is done.
//! - An item has at most one hand-out ahead of it, at the earliest moment that anybody asked for: an
//!   immediate add removes a later moment, and of two moments the earlier wins. Only
//!   [`reschedule_after`](Queue::reschedule_after) moves a moment back.
//! - After [`shut_down`](Queue::shut_down) adds are ignored, what is ready is still handed out, and what
//!   waits for a moment is dropped.
//!
//! An add after the latest hand-out of an item is always followed by another hand-out, unless the queue is
//! shut down. Nothing is promised about the number of hand-outs but that.
//!
//! # Delays
//!
//! ```
//! use std::time::Duration;
//!
//! let queue = gc_queue::Queue::default();
//! queue.add_after("certificate", Duration::from_millis(20));
//! assert!(queue.try_get().is_none(), "not yet");
//! let guard = queue.get().expect("waits for 20 milliseconds");
//! guard.requeue_after(Duration::from_secs(24 * 3600)); // Look again tomorrow.
//! assert_eq!(queue.metrics().waiting, 1);
//! ```
//!
//! # Failures and rate limits
//!
//! A guard that says [`retry`](Guard::retry) puts its item back with a delay that grows with each failure,
//! until [`finish_ok`](Guard::finish_ok) forgets them. The first retry is delayed too, by the base delay
//! (kubernetes#108343); a plain add never is.
//!
//! ```
//! use gc_queue::{Config, Limit, Queue, RateLimiter, TokenBucket};
//! use std::time::Duration;
//!
//! // What RateLimiter::default() is, spelled out, and 10 percent of jitter from a seed.
//! let rate_limiter = RateLimiter::new(Limit::MaxOf(vec![
//!     Limit::Exponential { base: Duration::from_millis(5), max: Duration::from_secs(1000) },
//!     Limit::TokenBucket(TokenBucket::per_second(10, 100)),
//! ]))
//! .with_jitter(10, 42);
//! let queue = Queue::new(Config { rate_limiter, ..Config::default() });
//!
//! queue.add("flaky");
//! while let Some(guard) = queue.get() {
//!     if guard.num_requeues() < 3 {
//!         guard.retry();
//!     } else {
//!         guard.finish_ok();
//!         queue.shut_down();
//!     }
//! }
//! assert_eq!(queue.num_requeues(&"flaky"), 0);
//! ```
//!
//! The numbers of requeues cannot grow for ever. Items in the queue carry their own; those of items that
//! left without being forgotten are kept for an hour and up to [`MAX_REMEMBERED_ITEMS`].
//!
//! # Threads
//!
//! A [`Queue`] is a handle that is cloned, or borrowed by scoped threads. A [`Guard`] ends the processing of
//! its item however it goes; if its thread panics, the item is retried.
//!
//! ```
//! use gc_queue::{Drain, Queue};
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use std::time::Duration;
//!
//! let queue = Queue::default();
//! let sum = AtomicU64::new(0);
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| {
//!             while let Some(guard) = queue.get() {
//!                 sum.fetch_add(*guard, Ordering::Relaxed);
//!                 guard.finish_ok();
//!             }
//!         });
//!     }
//!     (1..=100).for_each(|number| queue.add(number));
//!     let drain = queue.shut_down_with_drain_timeout(Duration::from_secs(10));
//!     assert_eq!(drain, Drain::Complete);
//! });
//! assert_eq!(sum.into_inner(), 5050);
//! ```
//!
//! # Virtual time
//!
//! With [`Clock::Manual`] the time stands still until it is moved, also for threads that wait.
//!
//! ```
//! use gc_queue::{Clock, Config, Queue};
//! use std::time::Duration;
//!
//! let queue = Queue::new(Config { clock: Clock::Manual, ..Config::default() });
//! queue.add_after("next week", Duration::from_secs(7 * 24 * 3600));
//! queue.advance(Duration::from_secs(7 * 24 * 3600));
//! assert_eq!(queue.try_get().as_deref(), Some(&"next week"));
//! ```
//!
//! A simulation in a single thread drives the [`WorkQueue`] inside instead. It is plain data that is told
//! the time and says when it next has something to do: no lock, no thread, no clock, the same run every time.
//!
//! ```
//! use gc_queue::WorkQueue;
//! use std::time::Duration;
//!
//! let mut queue = WorkQueue::default();
//! let mut now = Duration::ZERO;
//! let mut attempts = Vec::new();
//! queue.add(now, "flaky");
//! while attempts.len() < 4 {
//!     now = queue.next_ready(now).expect("something is ready or waits");
//!     let item = queue.get(now).expect("it is ready now");
//!     attempts.push(now.as_millis());
//!     queue.add_rate_limited(now, item);
//!     queue.done(now, &item);
//! }
//! assert_eq!(attempts, [0, 5, 5 + 10, 5 + 10 + 20]);
//! ```
//!
//! # Metrics
//!
//! [`Queue::metrics`] reads a [`Snapshot`] of plain numbers and histograms under the names that client-go
//! gives them. There is no registry: what reads them decides where they go.
//!
//! ```
//! use gc_queue::{Clock, Config, Queue};
//! use std::time::Duration;
//!
//! let queue = Queue::new(Config { clock: Clock::Manual, ..Config::default() });
//! queue.add("slow");
//! queue.advance(Duration::from_secs(2));
//! let guard = queue.get();
//! queue.advance(Duration::from_secs(30));
//!
//! let metrics = queue.metrics();
//! assert_eq!((metrics.depth, metrics.processing, metrics.adds_total), (0, 1, 1));
//! assert_eq!(metrics.queue_duration_seconds.sum_seconds(), 2.0);
//! assert_eq!(metrics.longest_running_processor_seconds, 30.0);
//! # drop(guard);
//! ```
//!
//! # How fast it is
//!
//! `cargo bench -p gc-queue` measures, and `cargo xtask bench --rows queue` compares it with client-go's queue, which does
//! the same work on the same machine, in turns. It takes from a third to half of the time there, with the metrics as
//! both are used in their collectors and without; up to a sixth of it for items that wait for a moment. Closest are
//! items that are added again and again before they are handed out: each add looks whether its item is there already, and
//! reads the clock only if not. With metrics half of an item's time is the clock, which is read three times: when it is
//! added, handed out, and done. Threads that find the lock taken wait for longer each time, so that many of them together
//! take a quarter more time for an item than one alone.
//!
//! # Where this is not client-go
//!
//! - An immediate add removes the later moment of the same item; there, both hand it out.
//! - A token of a bucket is taken only for a moment that will be waited for, and given back if an add or a
//!   rescheduling removes the moment. There, each call takes one, so a key that is added faster than the
//!   rate piles up hours of delay (controller-runtime#1594). Requeues are counted by each call, as there.
//! - Draining waits for what is ready, too, not only for what is being processed; it wakes every thread that
//!   drains; and it has a version with a deadline.
//! - The depth counts ready items only (see [`Snapshot::depth`]).
//! - A worker that panics has its item retried. There the item is done, if the worker defers that.
//! - There is no map of failures that grows until somebody remembers to forget.
#![forbid(unsafe_code)]

mod metrics;
mod queue;
mod rate_limiter;
mod remembered;
mod time;
mod timers;
mod work_queue;

pub use metrics::{Histogram, Snapshot};
pub use queue::{Clock, Config, Drain, Guard, Queue};
pub use rate_limiter::{Limit, RateLimiter, TokenBucket};
pub use remembered::{MAX_REMEMBERED_ITEMS, REMEMBERED_FOR};
pub use work_queue::WorkQueue;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
