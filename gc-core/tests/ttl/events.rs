//! What people hear about, and how often.

use crate::world::{World, check, profiles};
use expect_test::expect;
use gc_core::ttl::Limits;

#[test]
fn t3_a_finished_job_without_a_time_is_an_error_with_back_off() {
    check(
        "
        both job/pi @ns uid=u rv=1 Complete= ttl=10
        show
        until 12:05:00
        show
        both job/pi @ns uid=u rv=2 Complete=12:00:00 ttl=10
        until 12:06:00",
        expect![[r#"
            12:00:00 ! NoFinishTime ns/pi: it has finished, but does not say when: lastTransitionTime of the condition Complete is missing; its TTL cannot expire
            12:00:00 ns/pi Retrying, due at an unknown time, looked at 12:00:05
            12:00:05 read jobs.batch ns/pi -> uid=u rv=1
            12:00:05 ns/pi = NoFinishTime("lastTransitionTime of the condition Complete is missing")
            12:00:10 read jobs.batch ns/pi -> uid=u rv=1
            12:00:10 ns/pi = NoFinishTime("lastTransitionTime of the condition Complete is missing")
            12:00:20 read jobs.batch ns/pi -> uid=u rv=1
            12:00:20 ns/pi = NoFinishTime("lastTransitionTime of the condition Complete is missing")
            12:00:40 read jobs.batch ns/pi -> uid=u rv=1
            12:00:40 ns/pi = NoFinishTime("lastTransitionTime of the condition Complete is missing")
            12:01:20 read jobs.batch ns/pi -> uid=u rv=1
            12:01:20 ns/pi = NoFinishTime("lastTransitionTime of the condition Complete is missing")
            12:02:40 read jobs.batch ns/pi -> uid=u rv=1
            12:02:40 ns/pi = NoFinishTime("lastTransitionTime of the condition Complete is missing")
            12:05:00 ns/pi Retrying, due at an unknown time, looked at 12:05:20
            12:05:00 read jobs.batch ns/pi -> uid=u rv=2
            12:05:00 delete jobs.batch ns/pi uid=u rv=2 Foreground -> Deleted
            12:05:00 ns/pi = Deleted { due_ms: 12:00:10, lateness_ms: 290000 }
            12:06:00 read jobs.batch ns/pi -> NotFound
            12:06:00 ns/pi = Gone(NotFound)
        "#]],
    );
}

#[test]
fn t3_a_finish_time_that_is_gone_and_comes_back_counts_at_once() {
    check(
        "
        seen job/pi @ns uid=u rv=1 Complete=12:00:00 ttl=10
        live job/pi @ns uid=u rv=2 Complete= ttl=10
        until 12:00:16
        show
        both job/pi @ns uid=u rv=3 Complete=12:00:00 ttl=10
        until 12:00:17",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> uid=u rv=2
            12:00:10 ns/pi = NoFinishTime("lastTransitionTime of the condition Complete is missing")
            12:00:10 ! NoFinishTime ns/pi: it has finished, but does not say when: lastTransitionTime of the condition Complete is missing; its TTL cannot expire
            12:00:15 read jobs.batch ns/pi -> uid=u rv=2
            12:00:15 ns/pi = NoFinishTime("lastTransitionTime of the condition Complete is missing")
            12:00:16 ns/pi Retrying, due at an unknown time, looked at 12:00:25
            12:00:16 read jobs.batch ns/pi -> uid=u rv=3
            12:00:16 delete jobs.batch ns/pi uid=u rv=3 Foreground -> Deleted
            12:00:16 ns/pi = Deleted { due_ms: 12:00:10, lateness_ms: 6000 }
        "#]],
    );
}

#[test]
fn t3_times_that_are_none() {
    check(
        "
        both job/a @ns uid=a Complete=yesterday ttl=10
        both job/b @ns uid=b Complete=0001-01-01T00:00:00Z ttl=10
        both job/c @ns uid=c Complete=1970-01-01T00:00:00Z ttl=10
        both job/d @ns uid=d Complete=2026-01-01T12:00:00 ttl=10
        both vcjob/e @ns uid=e phase=Completed ttl=10",
        expect![[r#"
            12:00:00 ! NoFinishTime ns/a: it has finished, but does not say when: lastTransitionTime of the condition Complete is "yesterday", which is not a time; its TTL cannot expire
            12:00:00 ! NoFinishTime ns/b: it has finished, but does not say when: lastTransitionTime of the condition Complete was never set; its TTL cannot expire
            12:00:00 ! NoFinishTime ns/c: it has finished, but does not say when: lastTransitionTime of the condition Complete was never set; its TTL cannot expire
            12:00:00 ! NoFinishTime ns/d: it has finished, but does not say when: lastTransitionTime of the condition Complete is "2026-01-01T12:00:00", which is not a time; its TTL cannot expire
            12:00:00 ! NoFinishTime ns/e: it has finished, but does not say when: status.state.lastTransitionTime is missing; its TTL cannot expire
        "#]],
    );
}

#[test]
fn t3_ttls_that_are_none_are_ignored_and_told_once_each() {
    check(
        r#"
        both job/negative @ns uid=a rv=1 Complete=12:00:00 ttl=-1
        both job/negative @ns uid=a rv=2 Complete=12:00:00 ttl=-1
        both job/negative @ns uid=a rv=3 Complete=12:00:00 ttl=-2
        both job/half @ns uid=b Complete=12:00:00 ttl=1.5
        both job/text @ns uid=c Complete=12:00:00 ttl="10"
        both job/list @ns uid=d Complete=12:00:00 ttl=[10]
        both job/null @ns uid=e Complete=12:00:00 ttl=null
        both job/runs @ns uid=f ttl=-1
        until 1d 00:00:00
        show"#,
        expect![[r#"
            12:00:00 ! InvalidTTL ns/negative: spec.ttlSecondsAfterFinished is -1, and a TTL cannot be negative: it is ignored, and the object stays
            12:00:00 ! InvalidTTL ns/negative: spec.ttlSecondsAfterFinished is -2, and a TTL cannot be negative: it is ignored, and the object stays
            12:00:00 ! InvalidTTL ns/half: spec.ttlSecondsAfterFinished is 1.5, which is not a whole number of seconds: it is ignored, and the object stays
            12:00:00 ! InvalidTTL ns/text: spec.ttlSecondsAfterFinished is "10", which is not a whole number of seconds: it is ignored, and the object stays
            12:00:00 ! InvalidTTL ns/list: spec.ttlSecondsAfterFinished is [10], which is not a whole number of seconds: it is ignored, and the object stays
            1d 00:00:00 nothing waits
        "#]],
    );
}

#[test]
fn t3_large_ttls_never_overflow() {
    check(
        "
        both job/int32 @ns uid=a Complete=12:00:00 ttl=2147483647
        both job/int64 @ns uid=b Complete=12:00:00 ttl=9223372036854775807
        both job/uint64 @ns uid=c Complete=12:00:00 ttl=18446744073709551615
        both job/end-of-time @ns uid=d Complete=9999-12-30T00:00:00Z ttl=2147483647
        until 1d 00:00:00
        show",
        expect![[r#"
            12:00:00 ! FinishedInFuture ns/end-of-time: it finished in the future, at 9999-12-30T00:00:00Z (it is 2026-01-01T12:00:00Z): clocks in the cluster differ; its TTL waits
            1d 00:00:00 ns/end-of-time Waiting, due 2937296d 03:14:07
            ns/int32 Waiting, due 24855d 15:14:07
            ns/int64 Waiting, due 106751970713d 07:12:55.807
            ns/uint64 Waiting, due 106751970713d 07:12:55.807
        "#]],
    );
}

#[test]
fn volcano_3715_a_finish_time_that_moves_takes_the_deadline_with_it_and_is_told_once() {
    check(
        "
        both vcjob/pi @ns uid=u rv=1 phase=Completed since=12:00:00 ttl=60
        12:00:30
        both vcjob/pi @ns uid=u rv=2 phase=Completed since=12:00:30 ttl=60
        both vcjob/pi @ns uid=u rv=3 phase=Completed since=12:00:40 ttl=60
        show",
        expect![[r#"
            12:00:30 ! FinishTimeMoved ns/pi: the time at which it finished has moved from 2026-01-01T12:00:00Z to 2026-01-01T12:00:30Z, and its deadline with it
            12:00:30 ! FinishedInFuture ns/pi: it finished in the future, at 2026-01-01T12:00:40Z (it is 2026-01-01T12:00:30Z): clocks in the cluster differ; its TTL waits
            12:00:30 ns/pi Waiting, due 12:01:40
        "#]],
    );
}

#[test]
fn t3_reports_of_ten_thousand_objects_are_remembered_and_no_more() {
    let mut world = World::new(profiles(), Limits::default());
    let lines = |n: u32| format!("seen job/j{n} @ns uid=u{n} Complete=12:00:00 ttl=-1");
    let told = |transcript: String| transcript.lines().count();
    for n in 0..=10_000 {
        assert_eq!(told(world.run(&lines(n))), 1);
    }
    assert_eq!(told(world.run(&lines(10_000))), 0);
    // The first of 10,001 is not remembered any more, but the second is.
    assert_eq!(told(world.run(&lines(1))), 0);
    assert_eq!(told(world.run(&lines(0))), 1);
}
