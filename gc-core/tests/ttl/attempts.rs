//! The three stages, and whatever a server may answer in them.

use std::sync::Arc;
use std::time::Duration;

use crate::world::check;
use expect_test::expect;
use gc_core::ttl::{Gone, Outcome, Reply, Verdict};
use gc_core::{RETRY_AFTER_MAX, Refusal, Resource, Target};

#[test]
fn t2_three_stages_and_a_delete_of_exactly_what_was_read() {
    check(
        "
        both job/pi @ns uid=u rv=7 Complete=12:00:00 ttl=10
        until 12:01:00
        watch
        show",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> uid=u rv=7
            12:00:10 delete jobs.batch ns/pi uid=u rv=7 Foreground -> Deleted
            12:00:10 ns/pi = Deleted { due_ms: 12:00:10, lateness_ms: 0 }
            12:01:00 nothing waits
        "#]],
    );
}

#[test]
fn t2_kubernetes_66840_a_ttl_that_was_raised_since_the_watch_spoke_wins() {
    check(
        "
        seen job/pi @ns uid=u rv=1 Complete=12:00:00 ttl=10
        live job/pi @ns uid=u rv=2 Complete=12:00:00 ttl=3600
        until 12:01:00
        show",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> uid=u rv=2
            12:00:10 ns/pi = NotDue { due_ms: 13:00:00, again_ms: 13:00:00, ahead_ms: None }
            12:01:00 ns/pi Waiting, due 13:00:00
        "#]],
    );
}

#[test]
fn t2_a_ttl_that_is_raised_between_the_read_and_the_delete_wins() {
    // The reference's delete names the UID only, and takes the job.
    check(
        "
        both job/pi @ns uid=u rv=1 Complete=12:00:00 ttl=10
        after #1 live job/pi @ns uid=u rv=2 Complete=12:00:00 ttl=3600
        until 12:01:00
        show",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> uid=u rv=1
            12:00:10 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Conflict
            12:00:10 read jobs.batch ns/pi -> uid=u rv=2
            12:00:10 ns/pi = NotDue { due_ms: 13:00:00, again_ms: 13:00:00, ahead_ms: None }
            12:01:00 ns/pi Waiting, due 13:00:00
        "#]],
    );
}

#[test]
fn t2_kubernetes_66840_a_job_made_again_under_the_name_is_not_hit() {
    // Before the read, and between the read and the delete.
    check(
        "
        seen job/pi @ns uid=old rv=1 Complete=12:00:00 ttl=10
        live job/pi @ns uid=new rv=5 ttl=10
        both job/e @ns uid=old-e rv=1 Complete=12:00:30 ttl=10
        after #2 live job/e @ns uid=new-e rv=5 Complete=12:00:35 ttl=0
        until 12:01:00
        show",
        expect![[r#"
            12:00:00 ! FinishedInFuture ns/e: it finished in the future, at 2026-01-01T12:00:30Z (it is 2026-01-01T12:00:00Z): clocks in the cluster differ; its TTL waits
            12:00:10 read jobs.batch ns/pi -> uid=new rv=5
            12:00:10 ns/pi = Gone(Replaced)
            12:00:40 read jobs.batch ns/e -> uid=old-e rv=1
            12:00:40 delete jobs.batch ns/e uid=old-e rv=1 Foreground -> Conflict
            12:00:40 read jobs.batch ns/e -> uid=new-e rv=5
            12:00:40 ns/e = Gone(Replaced)
            12:01:00 nothing waits
        "#]],
    );
}

#[test]
fn t2_whatever_takes_a_job_out_of_its_way_between_observation_and_read() {
    check(
        "
        seen job/unset @ns uid=a Complete=12:00:00 ttl=1
        live job/unset @ns uid=a rv=2 Complete=12:00:00
        seen job/rerun @ns uid=b Complete=12:00:00 ttl=2
        live job/rerun @ns uid=b rv=2 ttl=2
        seen job/deleted @ns uid=c Complete=12:00:00 ttl=3
        live job/deleted @ns uid=c rv=2 Complete=12:00:00 ttl=3 deleting held
        seen job/negative @ns uid=d Complete=12:00:00 ttl=4
        live job/negative @ns uid=d rv=2 Complete=12:00:00 ttl=-4
        until 12:01:00
        show",
        expect![[r#"
            12:00:01 read jobs.batch ns/unset -> uid=a rv=2
            12:00:01 ns/unset = NotWaiting(NoTtl)
            12:00:02 read jobs.batch ns/rerun -> uid=b rv=2
            12:00:02 ns/rerun = NotWaiting(NotFinished)
            12:00:03 read jobs.batch ns/deleted -> uid=c rv=2
            12:00:03 ns/deleted = BeingDeleted
            12:00:04 read jobs.batch ns/negative -> uid=d rv=2
            12:00:04 ns/negative = NotWaiting(Invalid("spec.ttlSecondsAfterFinished is -4, and a TTL cannot be negative"))
            12:00:04 ! InvalidTTL ns/negative: spec.ttlSecondsAfterFinished is -4, and a TTL cannot be negative: it is ignored, and the object stays
            12:01:00 nothing waits
        "#]],
    );
}

#[test]
fn t3_volcano_2417_not_found_at_any_stage_is_success() {
    check(
        "
        seen job/before-read @ns uid=a Complete=12:00:00 ttl=10
        both job/before-delete @ns uid=b Complete=12:00:20 ttl=10
        after #2 dead job/before-delete @ns
        until 12:01:00
        gone job/before-read @ns uid=a
        gone job/before-delete @ns uid=b
        show",
        expect![[r#"
            12:00:00 ! FinishedInFuture ns/before-delete: it finished in the future, at 2026-01-01T12:00:20Z (it is 2026-01-01T12:00:00Z): clocks in the cluster differ; its TTL waits
            12:00:10 read jobs.batch ns/before-read -> NotFound
            12:00:10 ns/before-read = Gone(NotFound)
            12:00:30 read jobs.batch ns/before-delete -> uid=b rv=1
            12:00:30 delete jobs.batch ns/before-delete uid=b rv=1 Foreground -> NotFound
            12:00:30 ns/before-delete = Gone(NotFound)
            12:01:00 nothing waits
        "#]],
    );
}

#[test]
fn kubernetes_98471_one_404_for_a_job_that_its_watch_still_shows_is_not_the_end_of_it() {
    check(
        "
        both job/pi @ns uid=u Complete=12:00:00 ttl=10
        #1 404 not found
        until 12:00:30
        show
        until 12:02:00",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> NotFound
            12:00:10 ns/pi = Gone(NotFound)
            12:00:30 ns/pi Confirming, due 12:00:10, looked at 12:01:10
            12:01:10 read jobs.batch ns/pi -> uid=u rv=1
            12:01:10 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Deleted
            12:01:10 ns/pi = Deleted { due_ms: 12:00:10, lateness_ms: 60000 }
        "#]],
    );
    // Two of them are.
    check(
        "
        seen job/pi @ns uid=u Complete=12:00:00 ttl=10
        until 12:02:00
        show",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> NotFound
            12:00:10 ns/pi = Gone(NotFound)
            12:01:10 read jobs.batch ns/pi -> NotFound
            12:01:10 ns/pi = Gone(NotFound)
            12:02:00 nothing waits
        "#]],
    );
}

#[test]
fn t4_a_404_of_a_path_that_is_not_served_proves_nothing() {
    check(
        "
        both job/pi @ns uid=u Complete=12:00:00 ttl=10
        #1 unserved
        until 12:01:00",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> Failed("404 without naming the object: the path is not served, which proves nothing")
            12:00:10 ns/pi = Failed("404 without naming the object: the path is not served, which proves nothing")
            12:00:10.200 read jobs.batch ns/pi -> uid=u rv=1
            12:00:10.200 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Deleted
            12:00:10.200 ns/pi = Deleted { due_ms: 12:00:10, lateness_ms: 200 }
        "#]],
    );
}

#[test]
fn t2_a_conflict_is_read_and_decided_again() {
    // A label was added; the TTL is what it was.
    check(
        "
        both job/pi @ns uid=u rv=1 Complete=12:00:00 ttl=10
        after #1 live job/pi @ns uid=u rv=2 Complete=12:00:00 ttl=10
        until 12:01:00",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> uid=u rv=1
            12:00:10 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Conflict
            12:00:10 read jobs.batch ns/pi -> uid=u rv=2
            12:00:10 delete jobs.batch ns/pi uid=u rv=2 Foreground -> Deleted
            12:00:10 ns/pi = Deleted { due_ms: 12:00:10, lateness_ms: 0 }
        "#]],
    );
}

#[test]
fn t2_who_keeps_writing_to_a_job_is_not_raced_for_ever() {
    check(
        "
        both job/pi @ns uid=u Complete=12:00:00 ttl=10
        #2 conflict
        #4 conflict
        #6 conflict
        #8 conflict
        until 12:01:00",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> uid=u rv=1
            12:00:10 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Conflict
            12:00:10 read jobs.batch ns/pi -> uid=u rv=1
            12:00:10 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Conflict
            12:00:10 read jobs.batch ns/pi -> uid=u rv=1
            12:00:10 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Conflict
            12:00:10 read jobs.batch ns/pi -> uid=u rv=1
            12:00:10 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Conflict
            12:00:10 ns/pi = Failed("somebody else keeps writing to it, or answers take too long")
            12:00:10.200 read jobs.batch ns/pi -> uid=u rv=1
            12:00:10.200 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Deleted
            12:00:10.200 ns/pi = Deleted { due_ms: 12:00:10, lateness_ms: 200 }
        "#]],
    );
}

#[test]
fn t3_errors_of_the_server_are_tried_again_ever_more_rarely() {
    check(
        "
        both job/pi @ns uid=u Complete=12:00:00 ttl=10
        #1 timeout
        #2 500 etcdserver: request timed out
        #3 503 the server is starting
        #5 timeout
        until 12:01:00",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> Failed("timed out")
            12:00:10 ns/pi = Failed("timed out")
            12:00:10.200 read jobs.batch ns/pi -> Failed("etcdserver: request timed out")
            12:00:10.200 ns/pi = Failed("etcdserver: request timed out")
            12:00:10.600 read jobs.batch ns/pi -> Failed("the server is starting")
            12:00:10.600 ns/pi = Failed("the server is starting")
            12:00:11.400 read jobs.batch ns/pi -> uid=u rv=1
            12:00:11.400 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Failed("timed out")
            12:00:11.400 ns/pi = Failed("timed out")
            12:00:13 read jobs.batch ns/pi -> uid=u rv=1
            12:00:13 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Deleted
            12:00:13 ns/pi = Deleted { due_ms: 12:00:10, lateness_ms: 3000 }
        "#]],
    );
}

#[test]
fn t3_a_deletion_whose_answer_was_lost_is_not_asked_for_again() {
    check(
        "
        both job/pi @ns uid=u Complete=12:00:00 ttl=10 held
        #2 lost
        until 12:01:00
        show",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> uid=u rv=1
            12:00:10 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Failed("connection reset")
            12:00:10 ns/pi = Failed("connection reset")
            12:00:10.200 read jobs.batch ns/pi -> uid=u rv=1d
            12:00:10.200 ns/pi = BeingDeleted
            12:01:00 nothing waits
        "#]],
    );
}

#[test]
fn t3_a_refused_delete_is_told_once_and_asked_for_ever_more_rarely() {
    let refusals: String =
        (1..40).map(|n| format!("#{} 403 jobs.batch \"pi\" is forbidden\n", 2 * n)).collect();
    check(
        &format!(
            "{refusals}
        both job/pi @ns uid=u Complete=12:00:00 ttl=10
        until 12:10:00
        show"
        ),
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> uid=u rv=1
            12:00:10 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Refused { code: 403, message: "jobs.batch \"pi\" is forbidden" }
            12:00:10 ns/pi = Refused { code: 403, message: "jobs.batch \"pi\" is forbidden" }
            12:00:10 ! TTLDeleteRefused ns/pi: its TTL has expired, but it cannot be deleted: jobs.batch "pi" is forbidden
            12:00:15 read jobs.batch ns/pi -> uid=u rv=1
            12:00:15 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Refused { code: 403, message: "jobs.batch \"pi\" is forbidden" }
            12:00:15 ns/pi = Refused { code: 403, message: "jobs.batch \"pi\" is forbidden" }
            12:00:25 read jobs.batch ns/pi -> uid=u rv=1
            12:00:25 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Refused { code: 403, message: "jobs.batch \"pi\" is forbidden" }
            12:00:25 ns/pi = Refused { code: 403, message: "jobs.batch \"pi\" is forbidden" }
            12:00:45 read jobs.batch ns/pi -> uid=u rv=1
            12:00:45 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Refused { code: 403, message: "jobs.batch \"pi\" is forbidden" }
            12:00:45 ns/pi = Refused { code: 403, message: "jobs.batch \"pi\" is forbidden" }
            12:01:25 read jobs.batch ns/pi -> uid=u rv=1
            12:01:25 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Refused { code: 403, message: "jobs.batch \"pi\" is forbidden" }
            12:01:25 ns/pi = Refused { code: 403, message: "jobs.batch \"pi\" is forbidden" }
            12:02:45 read jobs.batch ns/pi -> uid=u rv=1
            12:02:45 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Refused { code: 403, message: "jobs.batch \"pi\" is forbidden" }
            12:02:45 ns/pi = Refused { code: 403, message: "jobs.batch \"pi\" is forbidden" }
            12:05:25 read jobs.batch ns/pi -> uid=u rv=1
            12:05:25 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Refused { code: 403, message: "jobs.batch \"pi\" is forbidden" }
            12:05:25 ns/pi = Refused { code: 403, message: "jobs.batch \"pi\" is forbidden" }
            12:10:00 ns/pi Retrying, due 12:00:10, looked at 12:10:45
        "#]],
    );
}

#[test]
fn t3_waits_double_up_to_a_quarter_of_an_hour_for_refusals_and_a_minute_for_failures() {
    let answers = |answer: &str| (1..200).map(|n| format!("#{n} {answer}\n")).collect::<String>();
    let times = |transcript: String| {
        let times = transcript
            .lines()
            .filter(|line| line.contains(" read "))
            .filter_map(|line| line.split(' ').next());
        times.collect::<Vec<_>>().join(" ")
    };
    let text = "
        both job/pi @ns uid=u Complete=12:00:00 ttl=0";
    let world = || crate::world::World::new(crate::world::profiles(), gc_core::ttl::Limits::default());
    let refused = world().run(&format!("{}{text}\nuntil 13:20:00", answers("403 forbidden")));
    expect!["12:00:00 12:00:05 12:00:15 12:00:35 12:01:15 12:02:35 12:05:15 12:10:35 12:21:15 12:37:55 12:54:35 13:11:15"].assert_eq(&times(refused));
    let failed = world().run(&format!("{}{text}\nuntil 12:05:00", answers("timeout")));
    expect!["12:00:00 12:00:00.200 12:00:00.600 12:00:01.400 12:00:03 12:00:06.200 12:00:12.600 12:00:25.400 12:00:51 12:01:42.200 12:02:42.200 12:03:42.200 12:04:42.200"].assert_eq(&times(failed));
}

#[test]
fn t3_a_refused_job_whose_ttl_is_changed_is_looked_at_at_once() {
    check(
        "
        both job/pi @ns uid=u rv=1 Complete=12:00:00 ttl=10
        #2 422 a webhook said no
        until 12:00:11
        both job/pi @ns uid=u rv=2 Complete=12:00:00 ttl=11
        until 12:00:12",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> uid=u rv=1
            12:00:10 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Refused { code: 422, message: "a webhook said no" }
            12:00:10 ns/pi = Refused { code: 422, message: "a webhook said no" }
            12:00:10 ! TTLDeleteRefused ns/pi: its TTL has expired, but it cannot be deleted: a webhook said no
            12:00:11 read jobs.batch ns/pi -> uid=u rv=2
            12:00:11 delete jobs.batch ns/pi uid=u rv=2 Foreground -> Deleted
            12:00:11 ns/pi = Deleted { due_ms: 12:00:11, lateness_ms: 0 }
        "#]],
    );
}

#[test]
fn t3_a_job_that_is_shown_again_unchanged_keeps_its_back_off() {
    // By a new list, or because something else of it has changed.
    check(
        "
        both job/refused @ns uid=u rv=1 Complete=12:00:00 ttl=0
        both job/untimed @ns uid=v rv=1 Complete= ttl=0
        #2 403 forbidden
        #4 403 forbidden
        until 12:00:06
        show
        both job/refused @ns uid=u rv=2 Complete=12:00:00 ttl=0
        both job/untimed @ns uid=v rv=2 Complete= ttl=0
        show
        until 12:00:14
        show",
        expect![[r#"
            12:00:00 ! NoFinishTime ns/untimed: it has finished, but does not say when: lastTransitionTime of the condition Complete is missing; its TTL cannot expire
            12:00:00 read jobs.batch ns/refused -> uid=u rv=1
            12:00:00 delete jobs.batch ns/refused uid=u rv=1 Foreground -> Refused { code: 403, message: "forbidden" }
            12:00:00 ns/refused = Refused { code: 403, message: "forbidden" }
            12:00:00 ! TTLDeleteRefused ns/refused: its TTL has expired, but it cannot be deleted: forbidden
            12:00:05 read jobs.batch ns/refused -> uid=u rv=1
            12:00:05 delete jobs.batch ns/refused uid=u rv=1 Foreground -> Refused { code: 403, message: "forbidden" }
            12:00:05 ns/refused = Refused { code: 403, message: "forbidden" }
            12:00:05 read jobs.batch ns/untimed -> uid=v rv=1
            12:00:05 ns/untimed = NoFinishTime("lastTransitionTime of the condition Complete is missing")
            12:00:06 ns/refused Retrying, due 12:00:00, looked at 12:00:15
            ns/untimed Retrying, due at an unknown time, looked at 12:00:10
            12:00:06 ns/refused Retrying, due 12:00:00, looked at 12:00:15
            ns/untimed Retrying, due at an unknown time, looked at 12:00:10
            12:00:10 read jobs.batch ns/untimed -> uid=v rv=2
            12:00:10 ns/untimed = NoFinishTime("lastTransitionTime of the condition Complete is missing")
            12:00:14 ns/refused Retrying, due 12:00:00, looked at 12:00:15
            ns/untimed Retrying, due at an unknown time, looked at 12:00:20
        "#]],
    );
}

#[test]
fn t3_a_busy_server_is_asked_for_nothing_for_as_long_as_it_says() {
    check(
        "
        both job/a @ns uid=a Complete=12:00:00 ttl=10
        both job/b @ns uid=b Complete=12:00:00 ttl=11
        #1 429 7
        until 12:00:16
        show
        until 12:01:00",
        expect![[r#"
            12:00:10 read jobs.batch ns/a -> TooManyRequests { retry_after: 7s, message: "too many requests" }
            12:00:10 ns/a = Busy { retry_after: 7s, message: "too many requests" }
            12:00:16 ns/a Retrying, due 12:00:10, looked at 12:00:10.200
            ns/b Waiting, due 12:00:11
            12:00:17 read jobs.batch ns/a -> uid=a rv=1
            12:00:17 delete jobs.batch ns/a uid=a rv=1 Foreground -> Deleted
            12:00:17 ns/a = Deleted { due_ms: 12:00:10, lateness_ms: 7000 }
            12:00:17 read jobs.batch ns/b -> uid=b rv=1
            12:00:17 delete jobs.batch ns/b uid=b rv=1 Foreground -> Deleted
            12:00:17 ns/b = Deleted { due_ms: 12:00:11, lateness_ms: 6000 }
        "#]],
    );
}

#[test]
fn t2_an_answer_that_is_not_the_object_deletes_nothing() {
    check(
        "
        both job/pi @ns uid=u Complete=12:00:00 ttl=10
        #1 shows job/pi @ns rv=9 Complete=12:00:00 ttl=0
        #2 shows job/other @ns uid=u rv=9 Complete=12:00:00 ttl=0
        #3 shows job/pi @ns uid=u rv= Complete=12:00:00 ttl=0
        until 12:00:10.700",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> uid= rv=9
            12:00:10 ns/pi = Failed("the answer is not the object that was asked for")
            12:00:10.200 read jobs.batch ns/pi -> uid=u rv=9
            12:00:10.200 ns/pi = Failed("the answer is not the object that was asked for")
            12:00:10.600 read jobs.batch ns/pi -> uid=u rv=
            12:00:10.600 ns/pi = Failed("it was read without a version: never deleted so")
        "#]],
    );
}

#[test]
fn t2_s7_a_read_that_took_as_long_as_a_restore_is_made_again() {
    // The restored server has given the same version to another state.
    check(
        "
        both job/pi @ns uid=u rv=1 Complete=12:00:00 ttl=10
        after #1 12:00:15.001
        after #1 live job/pi @ns uid=u rv=1 Complete=12:00:00 ttl=3600
        until 12:01:00
        show",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> uid=u rv=1
            12:00:15.001 read jobs.batch ns/pi -> uid=u rv=1
            12:00:15.001 ns/pi = NotDue { due_ms: 13:00:00, again_ms: 13:00:00, ahead_ms: None }
            12:01:00 ns/pi Waiting, due 13:00:00
        "#]],
    );
    // A server that is always as slow is left alone after a while.
    check(
        "
        both job/pi @ns uid=u rv=1 Complete=12:00:00 ttl=10
        after #1 12:00:20
        after #2 12:00:30
        after #3 12:00:40
        after #4 12:00:50
        until 12:00:50.100
        show",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> uid=u rv=1
            12:00:20 read jobs.batch ns/pi -> uid=u rv=1
            12:00:30 read jobs.batch ns/pi -> uid=u rv=1
            12:00:40 read jobs.batch ns/pi -> uid=u rv=1
            12:00:50 ns/pi = Failed("somebody else keeps writing to it, or answers take too long")
            12:00:50.100 ns/pi Retrying, due 12:00:10, looked at 12:00:50.200
        "#]],
    );
}

#[test]
fn t3_what_each_answer_that_is_an_error_means() {
    let jobs = Resource {
        group: "batch".into(),
        version: "v1".into(),
        resource: "jobs".into(),
        kind: "Job".into(),
        namespaced: true,
    };
    let target = Target { resource: Arc::new(jobs), namespace: "ns".into(), name: "pi".into() };
    let named =
        Refusal { is_status: true, reason: "NotFound", name: "pi", kind: "jobs", ..Refusal::default() };
    let mut text = String::new();
    for code in [307, 400, 401, 403, 404, 405, 408, 409, 410, 422, 429, 500, 503, 504] {
        let reply = Reply::refused(&target, &Refusal { code, message: "no", ..named });
        text += &format!("{code} {reply:?}\n");
    }
    expect![[r#"
        307 Failed("no")
        400 Refused { code: 400, message: "no" }
        401 Failed("no")
        403 Refused { code: 403, message: "no" }
        404 NotFound
        405 Refused { code: 405, message: "no" }
        408 Failed("no")
        409 Conflict
        410 Refused { code: 410, message: "no" }
        422 Refused { code: 422, message: "no" }
        429 TooManyRequests { retry_after: 1s, message: "no" }
        500 Failed("no")
        503 Failed("no")
        504 Failed("no")
    "#]]
    .assert_eq(&text);
    // It says nothing, or nothing of this object.
    let silent = Reply::refused(&target, &Refusal { code: 502, ..Refusal::default() });
    assert_eq!(silent, Reply::Failed("the server answered 502".into()));
    let of_another = Reply::refused(&target, &Refusal { code: 404, name: "e", ..named });
    assert!(matches!(of_another, Reply::Failed(_)));
    // It says for how long it is to be left alone, or asks for too much.
    for (asked, waits) in [(Some(7), Duration::from_secs(7)), (Some(3_600), RETRY_AFTER_MAX)] {
        let busy = Refusal { code: 429, retry_after: asked.map(Duration::from_secs), ..named };
        let Reply::TooManyRequests { retry_after, .. } = Reply::refused(&target, &busy) else {
            panic!("not busy")
        };
        assert_eq!(retry_after, waits);
    }
}

#[test]
fn t2_outcomes_have_the_names_that_metrics_count_them_by() {
    let outcomes = [
        Outcome::Deleted { due_ms: 0, lateness_ms: 0 },
        Outcome::NotDue { due_ms: 0, again_ms: 0, ahead_ms: None },
        Outcome::NotWaiting(Verdict::NoTtl),
        Outcome::BeingDeleted,
        Outcome::Gone(Gone::NotFound),
        Outcome::NoFinishTime(String::new()),
        Outcome::Refused { code: 403, message: String::new() },
        Outcome::Failed(String::new()),
        Outcome::Busy { retry_after: Duration::ZERO, message: String::new() },
    ];
    let names: Vec<&str> = outcomes.iter().map(Outcome::as_str).collect();
    expect!["deleted not_due not_waiting being_deleted gone no_finish_time refused failed busy"]
        .assert_eq(&names.join(" "));
}
