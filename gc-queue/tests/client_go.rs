//! What client-go's own tests of its work queue check, said again for this one. Each test names its original;
//! those that need threads are in `threads.rs`, those of the rate limiters with the limiters.

mod script;

use expect_test::expect;
use script::check;

/// `TestLen`, `TestCollapse`.
#[test]
fn q1_an_item_added_twice_is_there_once() {
    check(
        "
        add foo
        add bar
        add foo
        get
        done foo
        get
        done bar
        get
        ",
        &expect![[r#"
            0ns      add foo                               r1 w0 p0 next 0ns
            0ns      add bar                               r2 w0 p0 next 0ns
            0ns      add foo                               r2 w0 p0 next 0ns
            0ns      get                  foo              r1 w0 p1 next 0ns
            0ns      done foo                              r1 w0 p0 next 0ns
            0ns      get                  bar              r0 w0 p1 next never
            0ns      done bar                              r0 w0 p0 next never
            0ns      get                  nothing          r0 w0 p0 next never
        "#]],
    );
}

/// `TestReinsert`, `TestCollapseWhileProcessing`.
#[test]
fn q1_an_item_added_while_processing_comes_back_once_after_done() {
    check(
        "
        add foo
        get
        add foo
        add foo
        add bar
        get
        get
        done foo
        get
        done foo
        done bar
        get
        ",
        &expect![[r#"
            0ns      add foo                               r1 w0 p0 next 0ns
            0ns      get                  foo              r0 w0 p1 next never
            0ns      add foo                               r0 w0 p1 next never
            0ns      add foo                               r0 w0 p1 next never
            0ns      add bar                               r1 w0 p1 next 0ns
            0ns      get                  bar              r0 w0 p2 next never
            0ns      get                  nothing          r0 w0 p2 next never
            0ns      done foo                              r1 w0 p1 next 0ns
            0ns      get                  foo              r0 w0 p2 next never
            0ns      done foo                              r0 w0 p1 next never
            0ns      done bar                              r0 w0 p0 next never
            0ns      get                  nothing          r0 w0 p0 next never
        "#]],
    );
}

/// `TestQueueDrainageUsingShutDownWithDrainWithDirtyItem`.
#[test]
fn q1_shut_down_still_hands_out_what_was_added_before() {
    check(
        "
        add foo
        add bar
        get
        add foo
        after later 1s
        shut down
        add late
        after late 1s
        limited late
        reschedule late 1s
        get
        get
        done foo
        get
        done foo
        done bar
        get
        +1h
        get
        ",
        &expect![[r#"
            0ns      add foo                               r1 w0 p0 next 0ns
            0ns      add bar                               r2 w0 p0 next 0ns
            0ns      get                  foo              r1 w0 p1 next 0ns
            0ns      add foo                               r1 w0 p1 next 0ns
            0ns      after later 1s                        r1 w1 p1 next 0ns
            0ns      shut down                             r1 w0 p1 next 0ns
            0ns      add late                              r1 w0 p1 next 0ns
            0ns      after late 1s                         r1 w0 p1 next 0ns
            0ns      limited late                          r1 w0 p1 next 0ns
            0ns      reschedule late 1s                    r1 w0 p1 next 0ns
            0ns      get                  bar              r0 w0 p2 next never
            0ns      get                  shut down        r0 w0 p2 next never
            0ns      done foo                              r1 w0 p1 next 0ns
            0ns      get                  foo              r0 w0 p2 next never
            0ns      done foo                              r0 w0 p1 next never
            0ns      done bar                              r0 w0 p0 next never
            0ns      get                  shut down        r0 w0 p0 next never
            3600s    +1h                                   r0 w0 p0 next never
            3600s    get                  shut down        r0 w0 p0 next never
        "#]],
    );
}

/// `TestSimpleQueue`.
#[test]
fn q1_a_delayed_item_comes_once_and_not_before_its_moment() {
    check(
        "
        after foo 50ms
        get
        +49ms
        get
        +1ms
        get
        done foo
        +10s
        get
        ",
        &expect![[r#"
            0ns      after foo 50ms                        r0 w1 p0 next 50ms
            0ns      get                  nothing          r0 w1 p0 next 50ms
            49ms     +49ms                                 r0 w1 p0 next 50ms
            49ms     get                  nothing          r0 w1 p0 next 50ms
            50ms     +1ms                                  r1 w0 p0 next 50ms
            50ms     get                  foo              r0 w0 p1 next never
            50ms     done foo                              r0 w0 p0 next never
            10.05s   +10s                                  r0 w0 p0 next never
            10.05s   get                  nothing          r0 w0 p0 next never
        "#]],
    );
}

/// `TestDeduping`.
#[test]
fn q1_the_earlier_of_two_moments_wins() {
    check(
        "
        after foo 50ms
        after foo 70ms
        +60ms
        get
        done foo
        +20ms
        after foo 50ms
        after foo 30ms
        +40ms
        get
        done foo
        +1h
        ",
        &expect![[r#"
            0ns      after foo 50ms                        r0 w1 p0 next 50ms
            0ns      after foo 70ms                        r0 w1 p0 next 50ms
            60ms     +60ms                                 r1 w0 p0 next 60ms
            60ms     get                  foo              r0 w0 p1 next never
            60ms     done foo                              r0 w0 p0 next never
            80ms     +20ms                                 r0 w0 p0 next never
            80ms     after foo 50ms                        r0 w1 p0 next 130ms
            80ms     after foo 30ms                        r0 w1 p0 next 110ms
            120ms    +40ms                                 r1 w0 p0 next 120ms
            120ms    get                  foo              r0 w0 p1 next never
            120ms    done foo                              r0 w0 p0 next never
            3600.12s +1h                                   r0 w0 p0 next never
        "#]],
    );
}

/// `TestAddTwoFireEarly`, `TestCopyShifting`.
#[test]
fn q1_delayed_items_come_in_the_order_of_their_moments() {
    check(
        "
        after first 1s
        after second 500ms
        after third 250ms
        after fourth 250ms
        +2s
        get
        get
        get
        get
        ",
        &expect![[r#"
            0ns      after first 1s                        r0 w1 p0 next 1s
            0ns      after second 500ms                    r0 w2 p0 next 500ms
            0ns      after third 250ms                     r0 w3 p0 next 250ms
            0ns      after fourth 250ms                    r0 w4 p0 next 250ms
            2s       +2s                                   r4 w0 p0 next 2s
            2s       get                  third            r3 w0 p1 next 2s
            2s       get                  fourth           r2 w0 p2 next 2s
            2s       get                  second           r1 w0 p3 next 2s
            2s       get                  first            r0 w0 p4 next never
        "#]],
    );
}

/// `TestRateLimitingQueue`. There each of several calls moves the moment; here the first moment stays, since
/// of two moments the earlier wins, and the calls are counted alike.
#[test]
fn q1_rate_limited_adds_are_counted_until_forgotten() {
    check(
        "
        limited one
        limited one
        requeues one
        +1ms
        get
        limited one
        done one
        requeues one
        limited two
        +4ms
        get
        get
        forget one
        requeues one
        limited one
        requeues two
        ",
        &expect![[r#"
            0ns      limited one                           r0 w1 p0 next 1ms
            0ns      limited one                           r0 w1 p0 next 1ms
            0ns      requeues one         2                r0 w1 p0 next 1ms
            1ms      +1ms                                  r1 w0 p0 next 1ms
            1ms      get                  one              r0 w0 p1 next never
            1ms      limited one                           r0 w1 p1 next 5ms
            1ms      done one                              r0 w1 p0 next 5ms
            1ms      requeues one         3                r0 w1 p0 next 5ms
            1ms      limited two                           r0 w2 p0 next 2ms
            5ms      +4ms                                  r2 w0 p0 next 5ms
            5ms      get                  two              r1 w0 p1 next 5ms
            5ms      get                  one              r0 w0 p2 next never
            5ms      forget one                            r0 w0 p2 next never
            5ms      requeues one         0                r0 w0 p2 next never
            5ms      limited one                           r0 w1 p2 next 6ms
            5ms      requeues two         1                r0 w1 p2 next 6ms
        "#]],
    );
}

/// `TestGarbageCollection`: the queue does not hold on to an item that is done, or dropped by the shutdown.
#[test]
fn q1_an_item_that_left_is_dropped() {
    use std::rc::Rc;
    use std::time::Duration;

    let item = Rc::new("hello");
    let mut queue = gc_queue::WorkQueue::default();
    queue.add(Duration::ZERO, Rc::clone(&item));
    let gotten = queue.get(Duration::ZERO).unwrap();
    queue.done(Duration::ZERO, &gotten);
    drop(gotten);
    assert_eq!(Rc::strong_count(&item), 1);

    queue.add_after(Duration::ZERO, Rc::clone(&item), Duration::MAX);
    queue.shut_down();
    assert_eq!(Rc::strong_count(&item), 1);
}

/// `TestMetrics`. The depth here leaves out what was added again while being processed; see its docs.
#[test]
fn q3_metrics_follow_an_item() {
    use std::time::Duration;

    let mut queue = gc_queue::WorkQueue::default();
    let us = Duration::from_micros;
    queue.add(us(0), "foo");
    let metrics = queue.metrics(us(0));
    assert_eq!((metrics.adds_total, metrics.depth), (1, 1));

    assert_eq!(queue.get(us(50)), Some("foo"));
    let latency = queue.metrics(us(50)).queue_duration_seconds;
    assert_eq!((latency.count(), latency.sum_seconds()), (1, 50e-6));
    assert_eq!(latency.counts()[4], 1, "between 10 and 100 microseconds");

    for _ in 0..5 {
        queue.add(us(50), "foo");
    }
    let metrics = queue.metrics(us(50));
    assert_eq!((metrics.adds_total, metrics.depth, metrics.pending_again), (2, 0, 1));

    queue.done(us(75), &"foo");
    let metrics = queue.metrics(us(75));
    let work = &metrics.work_duration_seconds;
    assert_eq!((work.count(), work.sum_seconds()), (1, 25e-6));
    assert_eq!((metrics.depth, metrics.pending_again), (1, 0));

    assert_eq!(queue.get(us(75)), Some("foo"));
    let latency = queue.metrics(us(75)).queue_duration_seconds;
    assert_eq!((latency.count(), latency.sum_seconds()), (2, 75e-6), "counted from the second add");

    let metrics = queue.metrics(us(1075));
    assert_eq!(metrics.unfinished_work_seconds, 1e-3);
    assert_eq!(metrics.longest_running_processor_seconds, 1e-3);
    queue.done(us(1075), &"foo");
    let metrics = queue.metrics(us(1075));
    assert_eq!(metrics.work_duration_seconds.sum_seconds(), 1025e-6);
    assert_eq!((metrics.unfinished_work_seconds, metrics.processing), (0.0, 0));
}
