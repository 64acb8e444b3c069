//! Clocks that differ, and clocks that jump.

use crate::world::check;
use expect_test::expect;

#[test]
fn t3_kubernetes_66840_a_finish_time_in_the_future_is_told_once_and_waited_for() {
    check(
        "
        both job/pi @ns uid=u rv=1 Complete=12:00:30 ttl=10
        both job/pi @ns uid=u rv=2 Complete=12:00:30 ttl=10
        both job/drift @ns uid=v Complete=12:00:00.900 ttl=10
        until 12:01:00",
        expect![[r#"
            12:00:00 ! FinishedInFuture ns/pi: it finished in the future, at 2026-01-01T12:00:30Z (it is 2026-01-01T12:00:00Z): clocks in the cluster differ; its TTL waits
            12:00:10.900 read jobs.batch ns/drift -> uid=v rv=1
            12:00:10.900 delete jobs.batch ns/drift uid=v rv=1 Foreground -> Deleted
            12:00:10.900 ns/drift = Deleted { due_ms: 12:00:10.900, lateness_ms: 0 }
            12:00:40 read jobs.batch ns/pi -> uid=u rv=2
            12:00:40 delete jobs.batch ns/pi uid=u rv=2 Foreground -> Deleted
            12:00:40 ns/pi = Deleted { due_ms: 12:00:40, lateness_ms: 0 }
        "#]],
    );
}

#[test]
fn t3_a_finish_time_within_what_clocks_differ_by_is_not_told() {
    check(
        "
        both job/second @ns uid=u Complete=12:00:01 ttl=10
        both job/more @ns uid=v Complete=12:00:01.001 ttl=10",
        expect![[r#"
            12:00:00 ! FinishedInFuture ns/more: it finished in the future, at 2026-01-01T12:00:01.001Z (it is 2026-01-01T12:00:00Z): clocks in the cluster differ; its TTL waits
        "#]],
    );
}

#[test]
fn t3_a_clock_that_is_set_forth_makes_due_what_is_due_by_it() {
    check(
        "
        both job/pi @ns uid=u Complete=12:00:00 ttl=3600
        13:00:01
        until 13:00:01",
        expect![[r#"
            13:00:01 read jobs.batch ns/pi -> uid=u rv=1
            13:00:01 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Deleted
            13:00:01 ns/pi = Deleted { due_ms: 13:00:00, lateness_ms: 1000 }
        "#]],
    );
}

#[test]
fn t3_a_clock_that_is_set_back_delays_what_is_not_due_by_it() {
    check(
        "
        both job/pi @ns uid=u Complete=12:00:00 ttl=60
        12:00:59
        11:00:00
        until 11:59:00
        show
        until 12:02:00",
        expect![[r#"
            11:59:00 ns/pi Waiting, due 12:01:00
            12:01:00 read jobs.batch ns/pi -> uid=u rv=1
            12:01:00 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Deleted
            12:01:00 ns/pi = Deleted { due_ms: 12:01:00, lateness_ms: 0 }
            12:02:00 read jobs.batch ns/pi -> NotFound
            12:02:00 ns/pi = Gone(NotFound)
        "#]],
    );
}

#[test]
fn t3_a_clock_that_is_set_back_before_an_attempt_begins_costs_no_request() {
    check(
        "
        both job/a @ns uid=a Complete=12:00:00 ttl=60
        both job/b @ns uid=b Complete=12:00:00 ttl=60
        #1 timeout
        after #1 11:59:00
        until 12:00:30
        show
        until 12:02:00",
        expect![[r#"
            12:00:30 ns/a Waiting, due 12:01:00
            ns/b Waiting, due 12:01:00
            12:01:00 read jobs.batch ns/a -> Failed("timed out")
            11:59:00 ns/a = Failed("timed out")
            11:59:00 ns/b = NotDue { due_ms: 12:01:00, again_ms: 12:01:00, ahead_ms: None }
            12:01:00 read jobs.batch ns/a -> uid=a rv=1
            12:01:00 delete jobs.batch ns/a uid=a rv=1 Foreground -> Deleted
            12:01:00 ns/a = Deleted { due_ms: 12:01:00, lateness_ms: 0 }
            12:01:00 read jobs.batch ns/b -> uid=b rv=1
            12:01:00 delete jobs.batch ns/b uid=b rv=1 Foreground -> Deleted
            12:01:00 ns/b = Deleted { due_ms: 12:01:00, lateness_ms: 0 }
            12:02:00 read jobs.batch ns/a -> NotFound
            12:02:00 ns/a = Gone(NotFound)
            12:02:00 read jobs.batch ns/b -> NotFound
            12:02:00 ns/b = Gone(NotFound)
        "#]],
    );
}

#[test]
fn t3_a_clock_that_is_set_back_does_not_make_back_offs_longer() {
    check(
        "
        both job/refused @ns uid=u Complete=10:00:00 ttl=0
        both job/busy @ns uid=v Complete=10:00:00 ttl=1
        #2 403 forbidden
        #3 429 9
        until 12:00:01
        show
        11:00:00
        both job/wakes @ns uid=w Complete=10:00:00 ttl=0
        show
        until 11:00:20",
        expect![[r#"
            12:00:00 read jobs.batch ns/refused -> uid=u rv=1
            12:00:00 delete jobs.batch ns/refused uid=u rv=1 Foreground -> Refused { code: 403, message: "forbidden" }
            12:00:00 ns/refused = Refused { code: 403, message: "forbidden" }
            12:00:00 ! TTLDeleteRefused ns/refused: its TTL has expired, but it cannot be deleted: forbidden
            12:00:00 read jobs.batch ns/busy -> TooManyRequests { retry_after: 9s, message: "too many requests" }
            12:00:00 ns/busy = Busy { retry_after: 9s, message: "too many requests" }
            12:00:01 ns/busy Retrying, due 10:00:01, looked at 12:00:00.200
            ns/refused Retrying, due 10:00:00, looked at 12:00:05
            11:00:00 ns/busy Retrying, due 10:00:01, looked at 11:00:00.200
            ns/refused Retrying, due 10:00:00, looked at 11:00:05
            ns/wakes Waiting, due 10:00:00
            11:00:09 read jobs.batch ns/wakes -> uid=w rv=1
            11:00:09 delete jobs.batch ns/wakes uid=w rv=1 Foreground -> Deleted
            11:00:09 ns/wakes = Deleted { due_ms: 10:00:00, lateness_ms: 3609000 }
            11:00:09 read jobs.batch ns/busy -> uid=v rv=1
            11:00:09 delete jobs.batch ns/busy uid=v rv=1 Foreground -> Deleted
            11:00:09 ns/busy = Deleted { due_ms: 10:00:01, lateness_ms: 3608000 }
            11:00:09 read jobs.batch ns/refused -> uid=u rv=1
            11:00:09 delete jobs.batch ns/refused uid=u rv=1 Foreground -> Deleted
            11:00:09 ns/refused = Deleted { due_ms: 10:00:00, lateness_ms: 3609000 }
        "#]],
    );
}

#[test]
fn t3_a_clock_ahead_of_the_servers_deletes_nothing_before_its_time() {
    // Ours says 12:00:10 when the server's says 11:59:40.
    check(
        "
        server -30
        both job/pi @ns uid=u Complete=12:00:00 ttl=10
        both job/e @ns uid=v Complete=12:00:00 ttl=11
        until 12:01:00",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> uid=u rv=1
            12:00:10 ns/pi = NotDue { due_ms: 12:00:10, again_ms: 12:00:40, ahead_ms: Some(30000) }
            12:00:10 ! ClockSkew ns/pi: this clock is 30 s ahead of the API server's, whose time counts
            12:00:11 read jobs.batch ns/e -> uid=v rv=1
            12:00:11 ns/e = NotDue { due_ms: 12:00:11, again_ms: 12:00:41, ahead_ms: Some(30000) }
            12:00:40 read jobs.batch ns/pi -> uid=u rv=1
            12:00:40 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Deleted
            12:00:40 ns/pi = Deleted { due_ms: 12:00:10, lateness_ms: 30000 }
            12:00:41 read jobs.batch ns/e -> uid=v rv=1
            12:00:41 delete jobs.batch ns/e uid=v rv=1 Foreground -> Deleted
            12:00:41 ns/e = Deleted { due_ms: 12:00:11, lateness_ms: 30000 }
        "#]],
    );
    // One that is behind is late: no server knows our time.
    check(
        "
        server 30
        both job/pi @ns uid=u Complete=12:00:00 ttl=10
        until 12:01:00",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> uid=u rv=1
            12:00:10 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Deleted
            12:00:10 ns/pi = Deleted { due_ms: 12:00:10, lateness_ms: 0 }
        "#]],
    );
    // The same time, of which the server gives whole seconds.
    check(
        "
        server -0.02
        both job/pi @ns uid=u Complete=12:00:00 ttl=10
        until 12:01:00",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> uid=u rv=1
            12:00:10 ns/pi = NotDue { due_ms: 12:00:10, again_ms: 12:00:11, ahead_ms: Some(1000) }
            12:00:11 read jobs.batch ns/pi -> uid=u rv=1
            12:00:11 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Deleted
            12:00:11 ns/pi = Deleted { due_ms: 12:00:10, lateness_ms: 1000 }
        "#]],
    );
}

#[test]
fn t3_a_clock_that_is_ahead_is_told_of_from_more_than_two_seconds_on() {
    // Clocks may differ by one, and the server leaves out fractions of one.
    check(
        "
        server -2
        both job/pi @ns uid=u Complete=12:00:00 ttl=10
        until 12:00:11",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> uid=u rv=1
            12:00:10 ns/pi = NotDue { due_ms: 12:00:10, again_ms: 12:00:12, ahead_ms: Some(2000) }
        "#]],
    );
    check(
        "
        server -2.001
        both job/pi @ns uid=u Complete=12:00:00 ttl=10
        until 12:00:11",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> uid=u rv=1
            12:00:10 ns/pi = NotDue { due_ms: 12:00:10, again_ms: 12:00:13, ahead_ms: Some(3000) }
            12:00:10 ! ClockSkew ns/pi: this clock is 3 s ahead of the API server's, whose time counts
        "#]],
    );
}
