//! What waits, and for how long.

use crate::world::{World, check, profiles};
use expect_test::expect;
use gc_core::ttl::{Engine, Limits, Outcome, Profile};

#[test]
fn t2_only_what_has_finished_and_has_a_ttl_waits() {
    check(
        "
        both job/done @ns uid=a Complete=12:00:00 ttl=10
        both job/failed @ns uid=b Failed=12:00:00 ttl=10
        both job/runs @ns uid=c ttl=10
        both job/no-ttl @ns uid=d Complete=12:00:00
        both job/deleted @ns uid=e Complete=12:00:00 ttl=10 deleting
        show",
        expect![[r#"
            12:00:00 ns/done Waiting, due 12:00:10
            ns/failed Waiting, due 12:00:10
        "#]],
    );
}

#[test]
fn t3_no_ttl_never_and_ttl_0_at_once() {
    check(
        "
        both job/never @ns uid=a Complete=12:00:00
        both job/now @ns uid=b Complete=12:00:00 ttl=0
        until 31d 00:00:00",
        expect![[r#"
            12:00:00 read jobs.batch ns/now -> uid=b rv=1
            12:00:00 delete jobs.batch ns/now uid=b rv=1 Foreground -> Deleted
            12:00:00 ns/now = Deleted { due_ms: 12:00:00, lateness_ms: 0 }
            12:01:00 read jobs.batch ns/now -> NotFound
            12:01:00 ns/now = Gone(NotFound)
            12:03:00 read jobs.batch ns/now -> NotFound
            12:03:00 ns/now = Gone(NotFound)
        "#]],
    );
}

#[test]
fn t2_a_ttl_that_is_raised_lowered_set_or_unset_counts_at_once() {
    check(
        "
        both job/pi @ns uid=u rv=1 Complete=12:00:00 ttl=10
        12:00:05
        both job/pi @ns uid=u rv=2 Complete=12:00:00 ttl=3600
        show
        both job/pi @ns uid=u rv=3 Complete=12:00:00 ttl=60
        show
        both job/pi @ns uid=u rv=4 Complete=12:00:00
        show
        until 12:10:00
        both job/pi @ns uid=u rv=5 Complete=12:00:00 ttl=60
        until 12:20:00",
        expect![[r#"
            12:00:05 ns/pi Waiting, due 13:00:00
            12:00:05 ns/pi Waiting, due 12:01:00
            12:00:05 nothing waits
            12:10:00 read jobs.batch ns/pi -> uid=u rv=5
            12:10:00 delete jobs.batch ns/pi uid=u rv=5 Foreground -> Deleted
            12:10:00 ns/pi = Deleted { due_ms: 12:01:00, lateness_ms: 540000 }
            12:11:00 read jobs.batch ns/pi -> NotFound
            12:11:00 ns/pi = Gone(NotFound)
            12:13:00 read jobs.batch ns/pi -> NotFound
            12:13:00 ns/pi = Gone(NotFound)
        "#]],
    );
}

#[test]
fn t2_a_ttl_that_changes_while_its_job_is_read_counts() {
    // The read shows the job as it was before the change that the watch has shown by the time the answer is here, and
    // the other way round: the watch lags behind the read.
    check(
        "
        seen job/a @ns uid=a rv=1 Complete=12:00:00 ttl=10
        live job/a @ns uid=a rv=2 Complete=12:00:00 ttl=3600
        after #1 both job/a @ns uid=a rv=3 Complete=12:00:00 ttl=30
        until 12:00:20
        show
        until 12:01:00",
        expect![[r#"
            12:00:10 read jobs.batch ns/a -> uid=a rv=2
            12:00:10 ns/a = NotDue { due_ms: 13:00:00, again_ms: 13:00:00, ahead_ms: None }
            12:00:20 ns/a Waiting, due 12:00:30
            12:00:30 read jobs.batch ns/a -> uid=a rv=3
            12:00:30 delete jobs.batch ns/a uid=a rv=3 Foreground -> Deleted
            12:00:30 ns/a = Deleted { due_ms: 12:00:30, lateness_ms: 0 }
        "#]],
    );
    check(
        "
        seen job/a @ns uid=a rv=1 Complete=12:00:00 ttl=10
        live job/a @ns uid=a rv=3 Complete=12:00:00 ttl=30
        after #1 seen job/a @ns uid=a rv=2 Complete=12:00:00 ttl=3600
        until 12:00:20
        show
        until 12:01:00",
        expect![[r#"
            12:00:10 read jobs.batch ns/a -> uid=a rv=3
            12:00:10 ns/a = NotDue { due_ms: 12:00:30, again_ms: 12:00:30, ahead_ms: None }
            12:00:20 ns/a Waiting, due 12:00:30
            12:00:30 read jobs.batch ns/a -> uid=a rv=3
            12:00:30 delete jobs.batch ns/a uid=a rv=3 Foreground -> Deleted
            12:00:30 ns/a = Deleted { due_ms: 12:00:30, lateness_ms: 0 }
        "#]],
    );
    check(
        "
        seen job/a @ns uid=a rv=1 Complete=12:00:00 ttl=10
        live job/a @ns uid=a rv=2 Complete=12:00:00
        after #1 both job/a @ns uid=a rv=3 Complete=12:00:00 ttl=30
        until 12:01:00",
        expect![[r#"
            12:00:10 read jobs.batch ns/a -> uid=a rv=2
            12:00:10 ns/a = NotWaiting(NoTtl)
            12:00:30 read jobs.batch ns/a -> uid=a rv=3
            12:00:30 delete jobs.batch ns/a uid=a rv=3 Foreground -> Deleted
            12:00:30 ns/a = Deleted { due_ms: 12:00:30, lateness_ms: 0 }
        "#]],
    );
    check(
        "
        both job/a @ns uid=a rv=1 Complete=12:00:00 ttl=10
        #1 timeout
        after #1 both job/a @ns uid=a rv=2 Complete=12:00:00
        until 12:01:00
        show",
        expect![[r#"
            12:00:10 read jobs.batch ns/a -> Failed("timed out")
            12:00:10 ns/a = Failed("timed out")
            12:01:00 nothing waits
        "#]],
    );
}

#[test]
fn t2_a_job_that_goes_while_it_is_read_is_forgotten_and_its_heir_is_not() {
    check(
        "
        both job/a @ns uid=a rv=1 Complete=12:00:00 ttl=10
        #1 timeout
        after #1 gone job/a @ns uid=a
        after #1 both job/a @ns uid=b rv=9 Complete=12:00:05 ttl=10
        until 12:00:14
        show
        until 12:01:00",
        expect![[r#"
            12:00:10 read jobs.batch ns/a -> Failed("timed out")
            12:00:10 ns/a = Failed("timed out")
            12:00:14 ns/a Waiting, due 12:00:15
            12:00:15 read jobs.batch ns/a -> uid=b rv=9
            12:00:15 delete jobs.batch ns/a uid=b rv=9 Foreground -> Deleted
            12:00:15 ns/a = Deleted { due_ms: 12:00:15, lateness_ms: 0 }
        "#]],
    );
}

#[test]
fn t2_the_heir_of_a_name_has_nothing_of_the_old_ones_time() {
    check(
        "
        both job/pi @ns uid=old rv=1 Complete=12:00:00 ttl=10
        12:00:05
        both job/pi @ns uid=new rv=2 Complete=12:00:05 ttl=3600
        gone job/pi @ns uid=old
        until 12:30:00
        show",
        expect![[r#"
            12:30:00 ns/pi Waiting, due 13:00:05
        "#]],
    );
}

#[test]
fn t2_a_job_held_by_a_finalizer_is_asked_for_once() {
    check(
        "
        both job/pi @ns uid=u rv=1 Complete=12:00:00 ttl=10 held
        until 12:00:11
        watch
        show
        until 5d 00:00:00",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> uid=u rv=1
            12:00:10 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Deleted
            12:00:10 ns/pi = Deleted { due_ms: 12:00:10, lateness_ms: 0 }
            12:00:11 nothing waits
        "#]],
    );
}

#[test]
fn t2_a_deletion_that_no_watch_shows_is_looked_at_again() {
    // The server was restored from a backup, and the job lives again; or its watch is dead.
    check(
        "
        both job/pi @ns uid=u rv=1 Complete=12:00:00 ttl=10
        until 12:00:11
        live job/pi @ns uid=u rv=1 Complete=12:00:00 ttl=10
        show
        until 12:02:00",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> uid=u rv=1
            12:00:10 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Deleted
            12:00:10 ns/pi = Deleted { due_ms: 12:00:10, lateness_ms: 0 }
            12:00:11 ns/pi Confirming, due 12:00:10, looked at 12:01:10
            12:01:10 read jobs.batch ns/pi -> uid=u rv=1
            12:01:10 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Deleted
            12:01:10 ns/pi = Deleted { due_ms: 12:00:10, lateness_ms: 60000 }
        "#]],
    );
}

#[test]
fn t2_what_a_list_does_not_show_is_gone() {
    check(
        "
        both job/stays @ns uid=a Complete=12:00:00 ttl=10
        both job/goes @ns uid=b Complete=12:00:00 ttl=10
        both vcjob/other-kind @ns uid=c phase=Completed since=12:00:00 ttl=10
        list
        seen job/stays @ns uid=a Complete=12:00:00 ttl=10
        seen job/new @ns uid=d Complete=12:00:00 ttl=10
        end
        show",
        expect![[r#"
            12:00:00 ns/new Waiting, due 12:00:10
            ns/other-kind Waiting, due 12:00:10
            ns/stays Waiting, due 12:00:10
        "#]],
    );
    // A list that is cut off says nothing of what it did not show.
    check(
        "
        both job/a @ns uid=a Complete=12:00:00 ttl=10
        both job/b @ns uid=b Complete=12:00:00 ttl=10
        list
        seen job/a @ns uid=a Complete=12:00:00 ttl=10
        list
        seen job/a @ns uid=a Complete=12:00:00 ttl=10
        seen job/b @ns uid=b Complete=12:00:00 ttl=10
        end
        show",
        expect![[r#"
            12:00:00 ns/a Waiting, due 12:00:10
            ns/b Waiting, due 12:00:10
        "#]],
    );
}

#[test]
fn t2_what_a_list_does_not_show_while_it_is_read_is_gone_whatever_the_read_says() {
    check(
        "
        both job/a @ns uid=a Complete=12:00:00 ttl=10
        #1 timeout
        after #1 list
        after #1 end
        until 12:01:00
        show",
        expect![[r#"
            12:00:10 read jobs.batch ns/a -> Failed("timed out")
            12:00:10 ns/a = Failed("timed out")
            12:01:00 nothing waits
        "#]],
    );
    // Shown again in the same moment, it waits again.
    check(
        "
        both job/a @ns uid=a Complete=12:00:00 ttl=10
        #1 timeout
        after #1 list
        after #1 end
        after #1 seen job/a @ns uid=a Complete=12:00:00 ttl=10
        until 12:00:11
        show",
        expect![[r#"
            12:00:10 read jobs.batch ns/a -> Failed("timed out")
            12:00:10 ns/a = Failed("timed out")
            12:00:10.200 read jobs.batch ns/a -> uid=a rv=1
            12:00:10.200 delete jobs.batch ns/a uid=a rv=1 Foreground -> Deleted
            12:00:10.200 ns/a = Deleted { due_ms: 12:00:10, lateness_ms: 200 }
            12:00:11 ns/a Confirming, due 12:00:10, looked at 12:01:10.200
        "#]],
    );
}

#[test]
fn t2_the_heir_of_a_name_is_not_settled_by_the_old_ones_outcome() {
    // Both are under way: the old one's ends while the new one's is.
    let mut world = World::new(profiles(), Limits::default());
    world.run("both job/a @ns uid=old Complete=12:00:00 ttl=0");
    let (mut old, mut new) = (Vec::new(), Vec::new());
    let noon_ms = crate::world::time_ms("12:00:00").unwrap();
    world.engine.take_due(noon_ms, 1, &mut old);
    world.run("both job/a @ns uid=new rv=2 Complete=12:00:00 ttl=0");
    world.engine.take_due(noon_ms, 1, &mut new);
    assert_eq!((old[0].uid.to_string(), new[0].uid.to_string()), ("old".into(), "new".into()));
    world.engine.finish(noon_ms, &old[0], &Outcome::BeingDeleted, &mut Vec::new());
    let shown = world.run("show");
    expect![[r#"
        12:00:00 ns/a InFlight, due 12:00:00
    "#]]
    .assert_eq(&shown);
    world.engine.finish(noon_ms, &new[0], &Outcome::BeingDeleted, &mut Vec::new());
    assert!(world.engine.is_empty());
}

#[test]
fn t2_volcano_3715_a_restart_keeps_the_deadline() {
    // It comes from the object, not from when it was seen.
    check(
        "
        12:30:00
        both vcjob/pi @ns uid=u phase=Completed since=12:00:00 ttl=3600
        both vcjob/late @ns uid=v phase=Completed since=11:00:00 ttl=60
        show
        until 13:00:00",
        expect![[r#"
            12:30:00 ns/late Waiting, due 11:01:00
            ns/pi Waiting, due 13:00:00
            12:30:00 read jobs.batch.volcano.sh ns/late -> uid=v rv=1
            12:30:00 delete jobs.batch.volcano.sh ns/late uid=v rv=1 Foreground -> Deleted
            12:30:00 ns/late = Deleted { due_ms: 11:01:00, lateness_ms: 5340000 }
            12:31:00 read jobs.batch.volcano.sh ns/late -> NotFound
            12:31:00 ns/late = Gone(NotFound)
            12:33:00 read jobs.batch.volcano.sh ns/late -> NotFound
            12:33:00 ns/late = Gone(NotFound)
            13:00:00 read jobs.batch.volcano.sh ns/pi -> uid=u rv=1
            13:00:00 delete jobs.batch.volcano.sh ns/pi uid=u rv=1 Foreground -> Deleted
            13:00:00 ns/pi = Deleted { due_ms: 13:00:00, lateness_ms: 0 }
        "#]],
    );
}

#[test]
fn t4_a_kind_that_disappears_and_appears_again() {
    check(
        "
        both job/pi @ns uid=u Complete=12:00:00 ttl=10
        stop
        show
        until 12:05:00
        list
        seen job/pi @ns uid=u Complete=12:00:00 ttl=10
        end
        until 12:06:00",
        expect![[r#"
            12:00:00 nothing waits
            12:05:00 read jobs.batch ns/pi -> uid=u rv=1
            12:05:00 delete jobs.batch ns/pi uid=u rv=1 Foreground -> Deleted
            12:05:00 ns/pi = Deleted { due_ms: 12:00:10, lateness_ms: 290000 }
            12:06:00 read jobs.batch ns/pi -> NotFound
            12:06:00 ns/pi = Gone(NotFound)
        "#]],
    );
    // While one of it is being read.
    check(
        "
        both job/pi @ns uid=u Complete=12:00:00 ttl=10
        #1 unserved
        after #1 stop
        until 12:01:00
        show",
        expect![[r#"
            12:00:10 read jobs.batch ns/pi -> Failed("404 without naming the object: the path is not served, which proves nothing")
            12:00:10 ns/pi = Failed("404 without naming the object: the path is not served, which proves nothing")
            12:01:00 nothing waits
        "#]],
    );
}

#[test]
fn t2_no_more_are_under_way_at_once_than_may_be() {
    let limits = Limits { in_flight_max: 2, ..Limits::default() };
    let mut world = World::new(profiles(), limits);
    world.run(
        "
        both job/a @ns uid=a Complete=12:00:00 ttl=0
        both job/b @ns uid=b Complete=12:00:00 ttl=0
        both job/c @ns uid=c Complete=12:00:00 ttl=0",
    );
    let noon_ms = crate::world::time_ms("12:00:00").unwrap();
    let mut due = Vec::new();
    world.engine.take_due(noon_ms, 1, &mut due);
    assert_eq!((due.len(), world.engine.next_due_ms()), (1, Some(noon_ms)));
    world.engine.take_due(noon_ms, usize::MAX, &mut due);
    assert_eq!((due.len(), world.engine.next_due_ms()), (2, None));
    world.engine.take_due(noon_ms, usize::MAX, &mut due);
    assert_eq!(due.len(), 2);
    // One that comes back makes room for another.
    world.attempt(due.remove(0));
    assert_eq!(world.engine.next_due_ms(), Some(noon_ms));
    world.engine.take_due(noon_ms, usize::MAX, &mut due);
    assert_eq!((due.len(), world.engine.next_due_ms()), (2, None));
}

#[test]
fn t2_no_job_is_taken_for_another() {
    // Each has its name in another namespace and in another profile. There are so many that some look alike at first
    // sight, by a few bits of their hashes.
    let mut world = World::new(profiles(), Limits::default());
    for n in 0..200 {
        for namespace in ["a", "b"] {
            world.run(&format!(
                "
                both job/j{n} @{namespace} uid=job-{namespace}-{n} Complete=12:00:00 ttl=3600
                both vcjob/j{n} @{namespace} uid=vcjob-{namespace}-{n} phase=Completed since=12:00:00 ttl=3600"
            ));
        }
    }
    assert_eq!(world.engine.len(), 800);
    world.run("gone job/j7 @a uid=job-a-7");
    let seventh: Vec<_> = world.engine.jobs().filter(|job| job.name == "j7").map(|job| job.uid).collect();
    expect![[r#"[Uid("vcjob-a-7"), Uid("job-b-7"), Uid("vcjob-b-7")]"#]].assert_eq(&format!("{seventh:?}"));
}

#[test]
fn t2_ten_thousand_jobs_of_the_same_second_come_in_bounded_batches() {
    let limits = Limits { in_flight_max: 100, ..Limits::default() };
    let mut world = World::new(profiles(), limits);
    for n in 0..10_000 {
        world.run(&format!("both job/j{n} @ns uid=u{n} Complete=12:00:00 ttl=10"));
    }
    let noon_ms = crate::world::time_ms("12:00:00").unwrap();
    assert_eq!(world.engine.next_due_ms(), Some(noon_ms + 10_000));
    world.run("12:00:10");
    let (mut taken, mut batches) = (0, 0);
    while let Some(due_ms) = world.engine.next_due_ms() {
        assert!(due_ms <= noon_ms + 10_000);
        let mut due = Vec::new();
        world.engine.take_due(noon_ms + 10_000, usize::MAX, &mut due);
        assert!(due.len() == 100, "one batch has {}", due.len());
        // No more while these are under way, and none of them twice.
        assert_eq!(world.engine.next_due_ms(), None);
        world.engine.take_due(noon_ms + 10_000, usize::MAX, &mut due);
        assert_eq!(due.len(), 100);
        taken += due.len();
        batches += 1;
        due.into_iter().for_each(|due| world.attempt(due));
        if taken == 10_000 {
            break;
        }
    }
    assert_eq!((taken, batches), (10_000, 100));
    world.run("watch");
    let left: Vec<_> = world.engine.jobs().take(3).collect();
    assert!(left.is_empty(), "{left:?} of {}", world.engine.len());
}

#[test]
fn t2_more_jobs_than_there_is_room_for_are_told_once_and_taken_up_by_the_next_list() {
    let limits = Limits { jobs_max: 2, ..Limits::default() };
    let transcript = World::new(profiles(), limits).run(
        "
        both job/a @ns uid=a Complete=12:00:00 ttl=10
        both job/b @ns uid=b Complete=12:00:00 ttl=20
        both job/c @ns uid=c Complete=12:00:00 ttl=5
        both job/d @ns uid=d Complete=12:00:00 ttl=5
        show
        until 12:01:00
        list
        watch
        end
        until 12:02:00",
    );
    expect![[r#"
        12:00:00 ! TooManyJobs ns/c: more than 2 objects wait for their TTL: this one is left for the next list
        12:00:00 ns/a Waiting, due 12:00:10
        ns/b Waiting, due 12:00:20
        12:00:10 read jobs.batch ns/a -> uid=a rv=1
        12:00:10 delete jobs.batch ns/a uid=a rv=1 Foreground -> Deleted
        12:00:10 ns/a = Deleted { due_ms: 12:00:10, lateness_ms: 0 }
        12:00:20 read jobs.batch ns/b -> uid=b rv=1
        12:00:20 delete jobs.batch ns/b uid=b rv=1 Foreground -> Deleted
        12:00:20 ns/b = Deleted { due_ms: 12:00:20, lateness_ms: 0 }
        12:01:00 read jobs.batch ns/d -> uid=d rv=1
        12:01:00 delete jobs.batch ns/d uid=d rv=1 Foreground -> Deleted
        12:01:00 ns/d = Deleted { due_ms: 12:00:05, lateness_ms: 55000 }
        12:01:00 read jobs.batch ns/c -> uid=c rv=1
        12:01:00 delete jobs.batch ns/c uid=c rv=1 Foreground -> Deleted
        12:01:00 ns/c = Deleted { due_ms: 12:00:05, lateness_ms: 55000 }
        12:02:00 read jobs.batch ns/d -> NotFound
        12:02:00 ns/d = Gone(NotFound)
        12:02:00 read jobs.batch ns/c -> NotFound
        12:02:00 ns/c = Gone(NotFound)
    "#]].assert_eq(&transcript);
}

#[test]
fn t2_jobs_are_counted_by_what_they_wait_for() {
    let mut world = World::new(profiles(), Limits::default());
    world.run(
        "
        both job/waits @ns uid=a Complete=12:00:00 ttl=3600
        both job/due @ns uid=b Complete=12:00:00 ttl=20
        both job/refused @ns uid=c Complete=12:00:00 ttl=5
        both job/deleted @ns uid=d Complete=12:00:00 ttl=10
        both job/untimed @ns uid=e Complete= ttl=10
        both vcjob/other @ns uid=f phase=Completed since=12:00:00 ttl=3600
        #2 403 forbidden
        until 12:00:09
        until 12:00:10",
    );
    let now_ms = crate::world::time_ms("12:00:20").unwrap();
    let job = world.engine.jobs().find(|job| job.name == "waits").unwrap().profile;
    let other = world.engine.jobs().find(|job| job.name == "other").unwrap().profile;
    expect!["Counts { waiting: 1, due: 1, in_flight: 0, retrying: 1, confirming: 2 }"]
        .assert_eq(&format!("{:?}", world.engine.counts(job, now_ms)));
    let mut due = Vec::new();
    world.engine.take_due(now_ms, usize::MAX, &mut due);
    expect!["Counts { waiting: 1, due: 0, in_flight: 2, retrying: 0, confirming: 2 }"]
        .assert_eq(&format!("{:?}", world.engine.counts(job, now_ms)));
    expect!["Counts { waiting: 1, due: 0, in_flight: 0, retrying: 0, confirming: 0 }"]
        .assert_eq(&format!("{:?}", world.engine.counts(other, now_ms)));
    assert_eq!((world.engine.len(), world.engine.is_empty()), (6, false));
}

#[test]
fn t2_a_thousand_profiles_and_no_more() {
    let mut engine = Engine::new(Limits::default());
    let profile = std::sync::Arc::new(Profile::batch_job());
    for n in 0..1_000 {
        let id = engine.add_profile(profile.clone()).unwrap();
        assert_eq!((id.index(), engine.profile(id)), (n, Some(&profile)));
    }
    assert_eq!(engine.add_profile(profile).unwrap_err().to_string(), "more than 1000 profiles");
    assert_eq!((engine.len(), engine.is_empty(), engine.next_due_ms()), (0, true, None));
}
