//! How fast the queue is: `cargo run --release -p gc-queue --example speed`.
//!
//! Prints nanoseconds per item (add, get, done), the best of several rounds, for 16-byte items.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::time::{Duration, Instant};

use gc_queue::{Config, Queue, WorkQueue};

const ROUNDS: usize = 5;
const MILLION: u128 = 1_000_000;

fn main() {
    println!("core, alone                 {:6.0} ns", best(MILLION, core_alone));
    println!("core, fill and drain        {:6.0} ns", best(MILLION, core_fill_and_drain));
    println!("core, a million delayed     {:6.0} ns", best(MILLION, core_delayed));
    for timing in [false, true] {
        let name = if timing { "queue, timing, " } else { "queue, " };
        println!("{:<27} {:6.0} ns", format!("{name}alone"), best(MILLION, || alone(timing)));
        println!(
            "{:<27} {:6.0} ns",
            format!("{name}fill and drain"),
            best(MILLION, || fill_and_drain(timing))
        );
        println!("{:<27} {:6.0} ns", format!("{name}20 workers"), best(20 * 50_000, || contended(timing)));
    }
}

fn best(items: u128, round: impl Fn() -> Duration) -> f64 {
    let best = (0..ROUNDS).map(|_| round()).min().unwrap_or_default();
    best.as_nanos() as f64 / items as f64
}

/// Items as they are: random, so that nothing profits from their order.
fn item(number: u128) -> u128 {
    (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

fn core_alone() -> Duration {
    let mut queue = WorkQueue::default();
    let start = Instant::now();
    for number in 0..MILLION {
        let now = Duration::from_nanos(number as u64);
        queue.add(now, item(number % 100));
        if let Some(item) = queue.get(now) {
            queue.done(now, &item);
        }
    }
    start.elapsed()
}

fn core_fill_and_drain() -> Duration {
    let mut queue = WorkQueue::default();
    let start = Instant::now();
    for number in 0..MILLION {
        queue.add(Duration::ZERO, item(number));
    }
    while let Some(item) = queue.get(Duration::ZERO) {
        queue.done(Duration::ZERO, &item);
    }
    start.elapsed()
}

fn core_delayed() -> Duration {
    let mut queue = WorkQueue::default();
    let start = Instant::now();
    for number in 0..MILLION {
        queue.add_after(Duration::ZERO, item(number), Duration::from_nanos(item(number) as u64 >> 20));
    }
    let end = Duration::from_secs(1 << 20);
    while let Some(item) = queue.get(end) {
        queue.done(end, &item);
    }
    start.elapsed()
}

fn queue(timing: bool) -> Queue<u128> {
    Queue::new(Config { timing, ..Config::default() })
}

fn alone(timing: bool) -> Duration {
    let queue = queue(timing);
    let start = Instant::now();
    for number in 0..MILLION {
        queue.add(item(number % 100));
        drop(queue.get());
    }
    start.elapsed()
}

fn fill_and_drain(timing: bool) -> Duration {
    let queue = queue(timing);
    let start = Instant::now();
    (0..MILLION).for_each(|number| queue.add(item(number)));
    while let Some(guard) = queue.try_get() {
        guard.finish_ok();
    }
    start.elapsed()
}

/// Twenty workers, each of which adds an item, gets one, and is done with it.
fn contended(timing: bool) -> Duration {
    let queue = queue(timing);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for worker in 0..20 {
            let queue = &queue;
            scope.spawn(move || {
                for number in 0..50_000 {
                    queue.add(item(worker * 50_000 + number));
                    drop(queue.get());
                }
            });
        }
    });
    start.elapsed()
}
