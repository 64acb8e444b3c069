//! What people reported about work queues of this kind, each test named by the report.

mod script;

use std::time::Duration;

use expect_test::expect;
use gc_queue::{Limit, MAX_REMEMBERED_ITEMS, RateLimiter, TokenBucket, WorkQueue};
use script::{check, check_with};

const START: Duration = Duration::ZERO;

fn bucket(tokens_per_second: u32, burst: u32) -> RateLimiter {
    RateLimiter::new(Limit::TokenBucket(TokenBucket::per_second(tokens_per_second, burst)))
}

/// An item far away made a new timer at each wake-up.
#[test]
fn kubernetes_83895_a_far_item_costs_the_same_after_ten_thousand_wake_ups() {
    let mut queue = WorkQueue::default();
    let far = Duration::from_secs(10 * 3600);
    queue.add_after(START, "far", far);
    for second in 0..10_000 {
        let now = Duration::from_secs(second);
        assert_eq!(queue.next_ready(now), Some(far));
        queue.add_after(now, "far", far);
        assert_eq!(queue.waiting_len(), 1);
    }
    assert_eq!(queue.get(far), Some("far"));
}

#[test]
fn kubernetes_83895_a_million_far_items_are_one_time_to_wait_for() {
    let mut queue = WorkQueue::default();
    for item in 0..1_000_000_u64 {
        queue.add_after(START, item, Duration::from_secs(36_000 + item % 7));
    }
    assert_eq!(queue.next_ready(START), Some(Duration::from_secs(36_000)));
    let end = Duration::from_secs(36_006);
    assert_eq!(queue.next_ready(end), Some(end));
    let order: Vec<u64> = std::iter::from_fn(|| queue.get(end)).collect();
    assert_eq!(order.len(), 1_000_000);
    assert!(order.is_sorted_by_key(|item| (item % 7, *item)), "by moment, then in the order of the adds");
}

/// An immediate add left the later firing in place, so the item came twice.
#[test]
fn an_immediate_add_removes_the_later_firing() {
    check(
        "
        after foo 10s
        add foo
        get
        done foo
        +10s
        get
        after foo 10s
        limited foo
        +1ms
        get
        after foo 10s
        add foo
        done foo
        get
        done foo
        ",
        &expect![[r#"
            0ns      after foo 10s                         r0 w1 p0 next 10s
            0ns      add foo                               r1 w0 p0 next 0ns
            0ns      get                  foo              r0 w0 p1 next never
            0ns      done foo                              r0 w0 p0 next never
            10s      +10s                                  r0 w0 p0 next never
            10s      get                  nothing          r0 w0 p0 next never
            10s      after foo 10s                         r0 w1 p0 next 20s
            10s      limited foo                           r0 w1 p0 next 10.001s
            10.001s  +1ms                                  r1 w0 p0 next 10.001s
            10.001s  get                  foo              r0 w0 p1 next never
            10.001s  after foo 10s                         r0 w1 p1 next 20.001s
            10.001s  add foo                               r0 w0 p1 next never
            10.001s  done foo                              r1 w0 p0 next 10.001s
            10.001s  get                  foo              r0 w0 p1 next never
            10.001s  done foo                              r0 w0 p0 next never
        "#]],
    );
}

/// A delayed add moves an item only forward; a TTL that is raised needs the other way, too.
#[test]
fn client_go_1104_kubernetes_112328_reschedule_replaces_the_moment() {
    check(
        "
        after foo 10s
        after foo 20s
        reschedule foo 30s
        reschedule foo 5s
        reschedule foo 15s
        +10s
        get
        +5s
        get
        reschedule foo 1s
        done foo
        reschedule new 2s
        +1s
        reschedule foo 1h
        +1s
        get
        get
        ",
        &expect![[r#"
            0ns      after foo 10s                         r0 w1 p0 next 10s
            0ns      after foo 20s                         r0 w1 p0 next 10s
            0ns      reschedule foo 30s                    r0 w1 p0 next 30s
            0ns      reschedule foo 5s                     r0 w1 p0 next 5s
            0ns      reschedule foo 15s                    r0 w1 p0 next 15s
            10s      +10s                                  r0 w1 p0 next 15s
            10s      get                  nothing          r0 w1 p0 next 15s
            15s      +5s                                   r1 w0 p0 next 15s
            15s      get                  foo              r0 w0 p1 next never
            15s      reschedule foo 1s                     r0 w1 p1 next 16s
            15s      done foo                              r0 w1 p0 next 16s
            15s      reschedule new 2s                     r0 w2 p0 next 16s
            16s      +1s                                   r1 w1 p0 next 16s
            16s      reschedule foo 1h                     r1 w1 p0 next 16s
            17s      +1s                                   r2 w0 p0 next 17s
            17s      get                  foo              r1 w0 p1 next 17s
            17s      get                  new              r0 w0 p2 next never
        "#]],
    );
}

/// Tokens taken by adds that changed nothing piled up hours of delay for the one key.
#[test]
fn controller_runtime_1594_a_key_added_faster_than_the_rate_comes_at_the_rate() {
    let mut queue = WorkQueue::new(bucket(1, 1));
    let mut handed_out_ms = Vec::new();
    for now_ms in (0..60_000).step_by(10) {
        let now = Duration::from_millis(now_ms);
        if now_ms % 250 == 0 {
            queue.add_rate_limited(now, "key");
        }
        if let Some(item) = queue.get(now) {
            handed_out_ms.push(now_ms);
            queue.done(now, &item);
        }
    }
    let gaps: Vec<u64> = handed_out_ms.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|&gap_ms| gap_ms == 1000), "{gaps:?}");
    assert_eq!(handed_out_ms.len(), 60);
}

/// A failing item that events keep adding took a token at each failure and used none (see also
/// kubernetes#112325).
#[test]
fn controller_runtime_1594_a_moment_that_an_add_removes_gives_its_token_back() {
    check_with(
        bucket(1, 1),
        "
        limited other
        add foo
        get
        done other
        get
        limited foo
        done foo
        add foo
        get
        limited foo
        done foo
        add foo
        get
        limited foo
        done foo
        limited new
        +1s
        ",
        &expect![[r#"
            0ns      limited other                         r1 w0 p0 next 0ns
            0ns      add foo                               r2 w0 p0 next 0ns
            0ns      get                  other            r1 w0 p1 next 0ns
            0ns      done other                            r1 w0 p0 next 0ns
            0ns      get                  foo              r0 w0 p1 next never
            0ns      limited foo                           r0 w1 p1 next 1s
            0ns      done foo                              r0 w1 p0 next 1s
            0ns      add foo                               r1 w0 p0 next 0ns
            0ns      get                  foo              r0 w0 p1 next never
            0ns      limited foo                           r0 w1 p1 next 1s
            0ns      done foo                              r0 w1 p0 next 1s
            0ns      add foo                               r1 w0 p0 next 0ns
            0ns      get                  foo              r0 w0 p1 next never
            0ns      limited foo                           r0 w1 p1 next 1s
            0ns      done foo                              r0 w1 p0 next 1s
            0ns      limited new                           r0 w2 p0 next 1s
            1s       +1s                                   r1 w1 p0 next 1s
        "#]],
    );
}

/// Once forgotten, an item may be tried sooner than it was to be; it holds one token then, not two.
#[test]
fn a_failure_after_forget_brings_the_moment_forward() {
    let limiter = RateLimiter::new(Limit::MaxOf(vec![
        Limit::Exponential { base: Duration::from_millis(100), max: Duration::from_secs(1000) },
        Limit::TokenBucket(TokenBucket::per_second(1, 2)),
    ]));
    check_with(
        limiter,
        "
        limited foo
        +100ms
        get
        limited foo
        done foo
        forget foo
        limited foo
        limited bar
        +100ms
        get
        ",
        &expect![[r#"
            0ns      limited foo                           r0 w1 p0 next 100ms
            100ms    +100ms                                r1 w0 p0 next 100ms
            100ms    get                  foo              r0 w0 p1 next never
            100ms    limited foo                           r0 w1 p1 next 300ms
            100ms    done foo                              r0 w1 p0 next 300ms
            100ms    forget foo                            r0 w1 p0 next 300ms
            100ms    limited foo                           r0 w1 p0 next 200ms
            100ms    limited bar                           r0 w2 p0 next 200ms
            200ms    +100ms                                r1 w1 p0 next 200ms
            200ms    get                  foo              r0 w1 p1 next 1s
        "#]],
    );
}

/// The first rate-limited add is delayed, by the base delay; a plain add is not.
#[test]
fn kubernetes_108343_the_first_rate_limited_add_waits_for_the_base_delay() {
    check_with(
        RateLimiter::default(),
        "
        limited foo
        add bar
        ",
        &expect![[r#"
            0ns      limited foo                           r0 w1 p0 next 5ms
            0ns      add bar                               r1 w1 p0 next 0ns
        "#]],
    );
}

/// Queues that shared a limiter shared their counts.
#[test]
fn virtual_kubelet_953_two_queues_count_apart() {
    let limiter = RateLimiter::default();
    let (mut one, mut two) = (WorkQueue::new(limiter.clone()), WorkQueue::new(limiter));
    one.add_rate_limited(START, "item");
    one.add_rate_limited(START, "item");
    two.add_rate_limited(START, "item");
    two.forget(&"item");
    assert_eq!((one.num_requeues(&"item"), two.num_requeues(&"item")), (2, 0));
}

/// The map of failures grew with every item that failed and was never forgotten.
#[test]
fn kubernetes_138743_49764_failures_of_items_that_left_are_bounded() {
    let mut queue = WorkQueue::new(bucket(0, 1));
    for item in 0..400_000_u32 {
        queue.add_rate_limited(START, item);
        assert_eq!(queue.get(START), Some(item));
        queue.done(START, &item);
    }
    let remembered = queue.metrics(START).remembered;
    assert!((MAX_REMEMBERED_ITEMS / 2..=MAX_REMEMBERED_ITEMS).contains(&remembered), "{remembered}");
    assert_eq!(queue.num_requeues(&399_999), 1, "the latest are kept");
    assert_eq!(queue.num_requeues(&0), 0);
    assert_eq!(queue.metrics(Duration::from_secs(7200)).remembered, 0, "and not for ever");
}

#[test]
fn kubernetes_138743_an_item_that_is_still_to_be_retried_keeps_its_failures() {
    let items = 0..2 * u32::try_from(MAX_REMEMBERED_ITEMS).unwrap();
    let mut queue = WorkQueue::default();
    for item in items.clone() {
        queue.add_rate_limited(START, item);
    }
    let month = Duration::from_secs(30 * 24 * 3600);
    while let Some(item) = queue.get(month) {
        queue.add_rate_limited(month, item);
        queue.done(month, &item);
    }
    assert!(items.into_iter().all(|item| queue.num_requeues(&item) == 2));
    assert_eq!(queue.metrics(month).remembered, 0);
}

/// Failures outlive the hand-out after which nobody retried or forgot, and go on from there.
#[test]
fn kubernetes_138743_failures_are_found_again_when_the_item_returns() {
    check(
        "
        limited foo
        +1ms
        get
        done foo
        requeues foo
        limited foo
        requeues foo
        +2ms
        get
        done foo
        forget foo
        requeues foo
        limited foo
        ",
        &expect![[r#"
            0ns      limited foo                           r0 w1 p0 next 1ms
            1ms      +1ms                                  r1 w0 p0 next 1ms
            1ms      get                  foo              r0 w0 p1 next never
            1ms      done foo                              r0 w0 p0 next never
            1ms      requeues foo         1                r0 w0 p0 next never
            1ms      limited foo                           r0 w1 p0 next 3ms
            1ms      requeues foo         2                r0 w1 p0 next 3ms
            3ms      +2ms                                  r1 w0 p0 next 3ms
            3ms      get                  foo              r0 w0 p1 next never
            3ms      done foo                              r0 w0 p0 next never
            3ms      forget foo                            r0 w0 p0 next never
            3ms      requeues foo         0                r0 w0 p0 next never
            3ms      limited foo                           r0 w1 p0 next 4ms
        "#]],
    );
}

/// `done` of an item that is not being processed made it ready twice, or corrupted the counts.
#[test]
fn kubernetes_141079_done_of_an_item_not_in_processing_does_nothing() {
    check(
        "
        done foo
        add foo
        done foo
        get
        add foo
        done foo
        done foo
        get
        after bar 1s
        done bar
        ",
        &expect![[r#"
            0ns      done foo             not processing   r0 w0 p0 next never
            0ns      add foo                               r1 w0 p0 next 0ns
            0ns      done foo             not processing   r1 w0 p0 next 0ns
            0ns      get                  foo              r0 w0 p1 next never
            0ns      add foo                               r0 w0 p1 next never
            0ns      done foo                              r1 w0 p0 next 0ns
            0ns      done foo             not processing   r1 w0 p0 next 0ns
            0ns      get                  foo              r0 w0 p1 next never
            0ns      after bar 1s                          r0 w1 p1 next 1s
            0ns      done bar             not processing   r0 w1 p1 next 1s
        "#]],
    );
}

/// Stuck workers could not be seen in any metric.
#[test]
fn kubernetes_70884_a_stuck_worker_shows() {
    let mut queue = WorkQueue::default();
    let s = Duration::from_secs;
    queue.add(START, "stuck");
    queue.add(START, "later");
    queue.get(START);
    queue.get(s(10));
    let metrics = queue.metrics(s(30));
    assert_eq!(metrics.unfinished_work_seconds, 50.0);
    assert_eq!(metrics.longest_running_processor_seconds, 30.0);
    queue.done(s(30), &"stuck");
    let metrics = queue.metrics(s(40));
    assert_eq!(metrics.unfinished_work_seconds, 30.0);
    assert_eq!(metrics.longest_running_processor_seconds, 30.0);
    assert_eq!(metrics.work_duration_seconds.counts()[10], 1, "the bucket beyond ten seconds");
}

/// The depth counted items that were not ready, and went below zero. (The property is in `model.rs`.)
#[test]
fn controller_runtime_3066_delayed_items_are_a_gauge_of_their_own() {
    let mut queue = WorkQueue::default();
    queue.add_after(START, "later", Duration::from_secs(5));
    queue.add(START, "now");
    let metrics = queue.metrics(START);
    assert_eq!((metrics.depth, metrics.waiting, metrics.adds_total, metrics.retries_total), (1, 1, 1, 1));
    let metrics = queue.metrics(Duration::from_secs(5));
    assert_eq!((metrics.depth, metrics.waiting, metrics.adds_total, metrics.retries_total), (2, 0, 2, 1));
}

/// A provider of metrics that is set once for the process gave the second queue none.
#[test]
fn datadog_operator_2772_every_queue_has_its_metrics() {
    let (mut one, mut two) = (WorkQueue::default(), WorkQueue::default());
    one.add(START, "item");
    two.add(START, "item");
    two.add(START, "other");
    assert_eq!((one.metrics(START).adds_total, two.metrics(START).adds_total), (1, 2));
}

/// A moment beyond what can be expressed is never, not now.
#[test]
fn a_delay_without_end_does_not_wrap_around() {
    let mut queue = WorkQueue::default();
    queue.add_after(Duration::from_secs(1), "never", Duration::MAX);
    assert_eq!(queue.get(Duration::from_secs(1 << 33)), None);
    assert_eq!(queue.waiting_len(), 1);
}

/// Time that seems to go backwards, as when two threads read the clock in another order than they lock.
#[test]
fn a_time_before_the_latest_counts_as_the_latest() {
    let mut queue = WorkQueue::default();
    let s = Duration::from_secs;
    queue.add(s(10), "item");
    assert_eq!(queue.get(s(9)), Some("item"));
    queue.add_after(s(8), "later", s(1));
    assert_eq!(queue.next_ready(s(7)), Some(s(11)));
    assert_eq!(queue.metrics(s(6)).queue_duration_seconds.sum_seconds(), 0.0);
}

/// An item that waits for an earlier moment anyway, without a token, leaves the token to others.
#[test]
fn controller_runtime_1594_an_item_that_comes_earlier_anyway_takes_no_token() {
    let ms = Duration::from_millis;
    let limiter = RateLimiter::new(Limit::MaxOf(vec![
        Limit::Exponential { base: ms(20), max: ms(20) },
        Limit::TokenBucket(TokenBucket::per_second(1, 1)),
    ]));
    let mut queue = WorkQueue::new(limiter);
    queue.add_after(ms(0), "early", ms(10));
    queue.add_rate_limited(ms(0), "early");
    queue.add_rate_limited(ms(0), "other");
    queue.advance(ms(20));
    assert_eq!(queue.len(), 2, "the one token was there for the other");
}

#[test]
fn q3_every_delay_that_is_asked_for_counts() {
    let second = Duration::from_secs(1);
    let mut queue = WorkQueue::default();
    queue.add_rate_limited(Duration::ZERO, "a");
    queue.add_after(Duration::ZERO, "b", second);
    queue.add_after(Duration::ZERO, "b", 2 * second);
    queue.reschedule_after(Duration::ZERO, "b", 3 * second);
    queue.add(Duration::ZERO, "a");
    queue.add_rate_limited(Duration::ZERO, "a");
    let metrics = queue.metrics(Duration::ZERO);
    assert_eq!((metrics.adds_total, metrics.retries_total), (1, 5));
}
