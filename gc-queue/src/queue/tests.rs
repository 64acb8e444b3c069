//! The blocking queue with threads. Who sleeps is looked up in the queue's state, so nothing here sleeps and
//! hopes; a wake-up that is lost makes a test hang or its drain run into the deadline.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;

use super::*;
use crate::rate_limiter::Limit;

const HOUR: Duration = Duration::from_secs(3600);

/// Far more than anything here takes; a drain that needs it has lost a wake-up.
const DEADLINE: Duration = Duration::from_secs(60);

fn manual<T: Eq + Hash + Clone>() -> Queue<T> {
    Queue::new(Config { clock: Clock::Manual, ..Config::default() })
}

fn without_delay<T: Eq + Hash + Clone>() -> Queue<T> {
    Queue::new(Config { rate_limiter: RateLimiter::new(Limit::MaxOf(vec![])), ..Config::default() })
}

/// Lets other threads run until the queue's state is as described.
fn wait_until<T: Eq + Hash + Clone>(queue: &Queue<T>, condition: impl Fn(&State<T>) -> bool) {
    while !condition(&queue.lock()) {
        thread::yield_now();
    }
}

/// How many getters sleep, as followers and as timekeeper.
fn sleepers<T>(state: &State<T>) -> (usize, usize) {
    let keeps_time = state.timekeeper.as_ref().is_some_and(|keeper| !keeper.woken);
    (state.sleeping_followers, usize::from(keeps_time))
}

/// client-go: `TestBasic`, `TestAddWhileProcessing`. Many threads add, many work, nobody loses anything.
///
/// Each add makes a new version of an item first. A worker notes the version that it finds. In the end every
/// item's last version must have been found, and no item may ever be with two workers.
fn stress(queue: &Queue<usize>, retry_one_in: usize) {
    const ITEMS: usize = 50;
    let versions: Vec<AtomicU64> = (0..ITEMS).map(|_| AtomicU64::new(0)).collect();
    let found: Vec<AtomicU64> = (0..ITEMS).map(|_| AtomicU64::new(0)).collect();
    let busy: Vec<AtomicBool> = (0..ITEMS).map(|_| AtomicBool::new(false)).collect();
    let handed_out = AtomicUsize::new(0);
    let retried = AtomicUsize::new(0);
    let work = || {
        while let Some(guard) = queue.get() {
            let item = *guard;
            assert!(!busy[item].swap(true, Ordering::SeqCst), "item {item} is with two workers");
            let version = versions[item].load(Ordering::SeqCst);
            let turn = handed_out.fetch_add(1, Ordering::SeqCst);
            thread::yield_now();
            found[item].store(version, Ordering::SeqCst);
            busy[item].store(false, Ordering::SeqCst);
            if turn % retry_one_in == retry_one_in - 1 {
                retried.fetch_add(1, Ordering::SeqCst);
                guard.retry();
                continue;
            }
            guard.finish_ok();
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..10).map(|_| scope.spawn(work)).collect();
        let producers: Vec<_> = (0..8)
            .map(|producer| {
                let versions = &versions;
                scope.spawn(move || {
                    for turn in 0..2000 {
                        let item = (producer * 7 + turn * 13) % ITEMS;
                        versions[item].fetch_add(1, Ordering::SeqCst);
                        match turn % 5 {
                            0 => queue.add_after(item, Duration::from_micros(turn as u64 % 300)),
                            _ => queue.add(item),
                        }
                    }
                })
            })
            .collect();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        // Delayed items would be dropped by the shutdown, so the moment of the last must have come.
        while queue.metrics().waiting > 0 {
            thread::yield_now();
        }
        assert_eq!(queue.shut_down_with_drain_timeout(DEADLINE), Drain::Complete);
        queue.add(usize::MAX); // Ignored; a worker would index out of bounds.
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    for item in 0..ITEMS {
        let (last, found) = (versions[item].load(Ordering::SeqCst), found[item].load(Ordering::SeqCst));
        assert_eq!(found, last, "the last add of item {item} was not followed by a hand-out");
    }
    assert_eq!((queue.len(), queue.metrics().processing), (0, 0));
    assert_eq!(queue.metrics().work_duration_seconds.count(), handed_out.into_inner() as u64);
    assert_eq!(retried.into_inner() > 0, retry_one_in < usize::MAX);
}

#[test]
fn q1_many_threads_lose_nothing_and_share_nothing() {
    stress(&Queue::default(), usize::MAX);
}

#[test]
fn q1_many_threads_lose_nothing_when_every_fifth_attempt_fails() {
    stress(&without_delay(), 5);
}

/// client-go: `TestCollapseWhileProcessing`.
#[test]
fn q1_an_item_added_while_processing_waits_for_done() {
    let queue = manual();
    queue.add("foo");
    let guard = queue.get().unwrap();
    queue.add("foo");
    queue.add("foo");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let guard = queue.get().unwrap();
            assert!(done.load(Ordering::SeqCst), "handed out before it was done");
            assert_eq!(*guard, "foo");
        });
        wait_until(&queue, |state| sleepers(state) == (1, 0));
        done.store(true, Ordering::SeqCst);
        drop(guard);
    });
    assert!(queue.is_empty());
}

/// The timer of a million waiting items is one sleeper.
#[test]
fn kubernetes_83895_one_getter_keeps_the_time() {
    let queue = manual();
    for item in 0..1_000 {
        queue.add_after(item, HOUR);
    }
    let handed_out = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                while let Some(guard) = queue.get() {
                    handed_out.fetch_add(1, Ordering::SeqCst);
                    guard.finish_ok();
                }
            });
        }
        wait_until(&queue, |state| sleepers(state) == (19, 1));
        queue.advance(HOUR / 2);
        wait_until(&queue, |state| sleepers(state) == (19, 1));
        assert_eq!(handed_out.load(Ordering::SeqCst), 0);
        queue.advance(HOUR / 2);
        wait_until(&queue, |state| sleepers(state) == (20, 0));
        assert_eq!(handed_out.load(Ordering::SeqCst), 1_000);
        queue.shut_down();
    });
}

#[test]
fn q1_when_the_timekeeper_leaves_a_follower_keeps_the_time() {
    let queue = manual();
    queue.add_after("first", HOUR);
    queue.add_after("second", 2 * HOUR);
    let (sender, receiver) = mpsc::channel();
    let both_handed_out = Barrier::new(3);
    thread::scope(|scope| {
        for _ in 0..2 {
            let sender = sender.clone();
            let (queue, both_handed_out) = (&queue, &both_handed_out);
            scope.spawn(move || {
                let guard = queue.get().unwrap();
                sender.send(*guard).unwrap();
                // Nobody calls get again or is done, so the second item needs the other getter to keep the
                // time.
                both_handed_out.wait();
            });
        }
        wait_until(&queue, |state| sleepers(state) == (1, 1));
        queue.advance(HOUR);
        assert_eq!(receiver.recv(), Ok("first"));
        wait_until(&queue, |state| sleepers(state) == (0, 1));
        queue.advance(HOUR);
        assert_eq!(receiver.recv(), Ok("second"));
        both_handed_out.wait();
    });
}

/// With the system's clock, and earlier than the backstop would help.
#[test]
fn q1_an_earlier_moment_wakes_the_timekeeper() {
    let queue = Queue::default();
    queue.add_after("late", HOUR);
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(*queue.get().unwrap(), "early"));
        wait_until(&queue, |state| sleepers(state) == (0, 1));
        queue.add_after("early", Duration::from_millis(1));
    });
    assert!((Duration::from_millis(1)..LONGEST_SLEEP).contains(&start.elapsed()));
}

/// The timekeeper wakes by itself and goes away with its item; a follower must keep the time from then on.
#[test]
fn q1_when_the_timekeeper_leaves_by_itself_a_follower_keeps_the_time() {
    let queue = Queue::default();
    queue.add_after(1, Duration::from_millis(20));
    queue.add_after(2, Duration::from_millis(21));
    let inside = Barrier::new(2);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let _guard = queue.get().unwrap();
                inside.wait(); // Neither is done before both are handed out.
            });
        }
    });
    assert_eq!(queue.metrics().work_duration_seconds.count(), 2);
}

/// Five getters sleep. After `change` each must have an item at the same time, or this hangs.
fn five_sleepers_are_woken(change: impl FnOnce(&Queue<u32>)) {
    let queue = manual();
    (0..5).for_each(|item| queue.add_after(item, HOUR));
    let inside = Barrier::new(5);
    thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| {
                let _guard = queue.get().unwrap();
                inside.wait();
            });
        }
        wait_until(&queue, |state| sleepers(state) == (4, 1));
        change(&queue);
    });
    assert_eq!(queue.metrics().work_duration_seconds.count(), 5);
}

#[test]
fn q1_each_add_wakes_a_getter_the_timekeeper_included() {
    five_sleepers_are_woken(|queue| (0..5).for_each(|item| queue.add(item)));
}

/// One change, one wake; the others are woken by those that leave with an item.
#[test]
fn q1_a_moment_of_many_items_wakes_as_many_getters() {
    five_sleepers_are_woken(|queue| assert!(queue.advance(HOUR)));
}

/// client-go: `TestNoQueueDrainageUsingShutDown`; getters that wait are told.
#[test]
fn q1_shut_down_wakes_every_getter() {
    let queue: Queue<&str> = manual();
    queue.add("in flight");
    let _guard = queue.get().unwrap();
    queue.add_after("waiting", HOUR);
    thread::scope(|scope| {
        let getters: Vec<_> = (0..5).map(|_| scope.spawn(|| queue.get().is_none())).collect();
        wait_until(&queue, |state| sleepers(state) == (4, 1));
        queue.shut_down();
        assert!(getters.into_iter().all(|getter| getter.join().unwrap()));
    });
}

/// client-go: `TestQueueDrainageUsingShutDownWithDrain`. There the drain returned with items still queued.
#[test]
fn kubernetes_101928_a_drain_waits_for_what_is_queued_and_what_is_in_flight() {
    let queue = manual();
    queue.add(0);
    let in_flight = queue.get().unwrap();
    (1..=3).for_each(|item| queue.add(item));
    let finished = AtomicUsize::new(0);
    thread::scope(|scope| {
        let drain = scope.spawn(|| {
            let drain = queue.shut_down_with_drain();
            (drain, finished.load(Ordering::SeqCst))
        });
        wait_until(&queue, |state| state.drainers == 1);
        while let Some(guard) = queue.get() {
            finished.fetch_add(1, Ordering::SeqCst);
            guard.finish_ok();
        }
        wait_until(&queue, |state| state.drainers == 1);
        finished.fetch_add(1, Ordering::SeqCst);
        in_flight.finish_ok();
        assert_eq!(drain.join().unwrap(), (Drain::Complete, 4));
    });
}

/// client-go: `TestForceQueueShutdownUsingShutDown`.
#[test]
fn kubernetes_101928_shut_down_during_a_drain_wins() {
    let queue = manual();
    queue.add("stuck");
    let _stuck = queue.get().unwrap();
    thread::scope(|scope| {
        let drain = scope.spawn(|| queue.shut_down_with_drain());
        wait_until(&queue, |state| state.drainers == 1);
        queue.shut_down();
        assert_eq!(drain.join().unwrap(), Drain::Interrupted);
    });
    assert_eq!(queue.lock().drainers, 0);
    // A drain that begins later waits again, since its caller asks for that.
    let again = queue.shut_down_with_drain_timeout(Duration::ZERO);
    assert_eq!(again, Drain::TimedOut { ready: 0, processing: 1 });
}

#[test]
fn kubernetes_119554_every_drainer_wakes() {
    let queue = manual();
    queue.add("item");
    let guard = queue.get().unwrap();
    thread::scope(|scope| {
        let drains: Vec<_> = (0..3).map(|_| scope.spawn(|| queue.shut_down_with_drain())).collect();
        wait_until(&queue, |state| state.drainers == 3);
        guard.finish_ok();
        assert!(drains.into_iter().all(|drain| drain.join().unwrap() == Drain::Complete));
    });
    assert_eq!(queue.shut_down_with_drain(), Drain::Complete, "and one that comes late does not wait");
}

#[test]
fn kubernetes_101928_a_drain_has_a_deadline() {
    let queue = manual();
    (0..3).for_each(|item| queue.add(item));
    let _stuck = queue.get();
    let drain = queue.shut_down_with_drain_timeout(Duration::from_millis(1));
    assert_eq!(drain, Drain::TimedOut { ready: 2, processing: 1 });
}

/// client-go: `TestQueueDrainageUsingShutDownWithDrainWithDirtyItem`.
#[test]
fn q1_a_drain_waits_for_an_item_that_was_added_while_processing() {
    let queue = manual();
    queue.add("foo");
    let guard = queue.get().unwrap();
    queue.add("foo");
    thread::scope(|scope| {
        let drain = scope.spawn(|| queue.shut_down_with_drain());
        wait_until(&queue, |state| state.drainers == 1);
        assert!(queue.get().is_none(), "nothing is ready at the moment");
        drop(guard);
        let again = queue.get().unwrap();
        assert_eq!(queue.lock().drainers, 1);
        again.finish_ok();
        assert!(queue.get().is_none());
        assert_eq!(drain.join().unwrap(), Drain::Complete);
    });
}

/// A worker that panicked never called `done`, so its item was never handed out again.
#[test]
fn kubernetes_52657_kube_batch_809_a_panic_ends_the_processing_and_retries() {
    let queue = manual();
    queue.add("poison");
    let worker = AssertUnwindSafe(|| {
        let guard = queue.get().unwrap();
        std::panic::resume_unwind(Box::new(*guard)); // A panic without a message on the terminal.
    });
    assert_eq!(catch_unwind(worker).unwrap_err().downcast_ref(), Some(&"poison"));
    let metrics = queue.metrics();
    assert_eq!((metrics.processing, metrics.waiting, metrics.work_duration_seconds.count()), (0, 1, 1));
    assert_eq!(queue.num_requeues(&"poison"), 1);
    queue.advance(Duration::from_millis(5));
    assert_eq!(queue.try_get().as_deref(), Some(&"poison"));
}

/// What each way to end a guard leaves behind: ready, waiting, requeues.
#[test]
fn q1_a_guard_ends_in_the_way_it_is_told() {
    let after = |end: fn(Guard<'_, &'static str>)| {
        let queue = manual();
        queue.add_rate_limited("item");
        queue.advance(Duration::from_millis(5));
        end(queue.get().unwrap());
        let metrics = queue.metrics();
        assert_eq!(metrics.processing, 0);
        (metrics.depth, metrics.waiting, queue.num_requeues(&"item"))
    };
    assert_eq!(after(|guard| guard.finish_ok()), (0, 0, 0));
    assert_eq!(after(|guard| drop(guard)), (0, 0, 1), "done, and the failure stays known");
    assert_eq!(after(|guard| guard.retry()), (0, 1, 2));
    assert_eq!(after(|guard| guard.requeue()), (1, 0, 1));
    assert_eq!(after(|guard| guard.requeue_after(HOUR)), (0, 1, 1));
    assert_eq!(after(|guard| guard.retry_after(HOUR)), (0, 1, 2));
}

/// The longer of what was asked for and what the failures so far call for.
#[test]
fn q1_a_retry_after_is_not_before_its_time_and_not_before_the_rate_limiters() {
    let queue = manual();
    queue.add("item");
    let ready_after = |at_least: Duration| {
        queue.get().unwrap().retry_after(at_least);
        let waited = (1..).find(|_| {
            queue.advance(Duration::from_millis(5));
            queue.metrics().depth == 1
        });
        waited.unwrap() * 5
    };
    assert_eq!(ready_after(Duration::from_secs(1)), 1_000);
    assert_eq!(ready_after(Duration::ZERO), 10, "the second failure of this item");
    assert_eq!(ready_after(Duration::from_millis(15)), 20);
}

#[test]
fn q1_a_retry_during_shutdown_is_only_done() {
    let queue = manual();
    queue.add("item");
    let guard = queue.get().unwrap();
    queue.shut_down();
    guard.retry();
    assert_eq!(queue.shut_down_with_drain(), Drain::Complete);
}

/// An item whose `clone` panics, inside the lock.
#[derive(PartialEq, Eq, Hash)]
struct Fragile;

static FRAGILE_BREAKS: AtomicBool = AtomicBool::new(false);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        if FRAGILE_BREAKS.load(Ordering::SeqCst) {
            std::panic::resume_unwind(Box::new("clone"));
        }
        Self
    }
}

#[test]
fn q1_a_poisoned_lock_does_not_lose_the_queue() {
    let queue = manual();
    queue.add(Fragile);
    FRAGILE_BREAKS.store(true, Ordering::SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| queue.get().is_some())).is_err());
    assert!(queue.shared.state.is_poisoned());
    FRAGILE_BREAKS.store(false, Ordering::SeqCst);
    queue.get().unwrap().finish_ok();
    assert_eq!(queue.shut_down_with_drain(), Drain::Complete);
}

#[test]
fn q4_a_queue_without_timing_still_keeps_moments() {
    let queue = Queue::new(Config { timing: false, ..Config::default() });
    let start = Instant::now();
    queue.add_after("item", Duration::from_millis(2));
    assert_eq!(*queue.get().unwrap(), "item");
    assert!(start.elapsed() >= Duration::from_millis(2));
    let metrics = queue.metrics();
    assert_eq!((metrics.adds_total, metrics.queue_duration_seconds.count()), (1, 0));
}

#[test]
fn q4_the_systems_clock_cannot_be_moved() {
    let queue = Queue::<&str>::default();
    assert!(!queue.advance(HOUR));
    assert!(queue.lock().queue.now() < HOUR);
}

/// The first delayed item of an idle queue: nobody keeps the time yet.
#[test]
fn q1_a_moment_wakes_one_of_those_who_wait_for_anything_at_all() {
    let queue = Queue::default();
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(*queue.get().unwrap(), "item"));
        wait_until(&queue, |state| sleepers(state) == (1, 0));
        queue.add_after("item", Duration::from_millis(1));
    });
}

/// The operating system may wake a thread for no reason. It sleeps on, and the numbers of sleepers stay right.
#[test]
fn q1_a_getter_that_wakes_for_no_reason_sleeps_on() {
    let queue = manual::<u32>();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| queue.get().unwrap().finish_ok());
        }
        wait_until(&queue, |state| sleepers(state) == (2, 0));
        for _ in 0..1_000 {
            queue.shared.followers.notify_all();
            thread::yield_now();
        }
        queue.add(1);
        queue.add(2);
    });
    let state = queue.lock();
    assert_eq!((state.sleeping_followers, state.waking_followers), (0, 0));
}

#[test]
fn q3_waiting_and_work_are_measured_by_the_systems_clock() {
    let queue = Queue::default();
    let pause = Duration::from_millis(2);
    queue.add("item");
    thread::sleep(pause);
    let guard = queue.get().unwrap();
    thread::sleep(pause);
    drop(guard);
    let metrics = queue.metrics();
    for histogram in [metrics.queue_duration_seconds, metrics.work_duration_seconds] {
        assert!(histogram.sum_seconds() >= pause.as_secs_f64(), "{histogram:?}");
    }
}

#[test]
fn q1_what_the_queue_says_of_itself() {
    let queue = manual();
    assert!(queue.is_empty() && !queue.is_shutting_down());
    queue.add_rate_limited("item");
    queue.reschedule_after("item", HOUR);
    queue.advance(HOUR / 2);
    assert_eq!((queue.len(), queue.metrics().waiting), (0, 1), "the later moment counts");
    queue.add("item");
    queue.add("other");
    assert_eq!((queue.len(), queue.is_empty()), (2, false));
    let guard = queue.get().unwrap();
    assert_eq!((guard.num_requeues(), queue.num_requeues(&"item")), (1, 1));
    queue.add_rate_limited("item");
    assert_eq!(guard.num_requeues(), 2);
    queue.forget(&"item");
    assert_eq!(guard.num_requeues(), 0);
    let said = (format!("{queue:?}"), format!("{guard:?}"));
    assert_eq!(said, ("Queue { clock: Manual, .. }".into(), "Guard(\"item\")".into()));
    queue.shut_down();
    assert!(queue.is_shutting_down());
}
