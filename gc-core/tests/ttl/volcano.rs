//! Volcano's jobs.

use crate::world::check;
use expect_test::expect;
use gc_core::ttl::{Field, Finished, Meta, Profile, ProfileSpec, Verdict};
use serde_json::json;

#[test]
fn t1_volcanos_own_phases() {
    // As Volcano's collector has it; the others may still change.
    let profile = Profile::volcano_job();
    let phases = [
        "Pending",
        "Aborting",
        "Aborted",
        "Running",
        "Restarting",
        "Completing",
        "Completed",
        "Terminating",
        "Terminated",
        "Failed",
        "completed",
        "",
    ];
    let mut text = String::new();
    for phase in phases {
        let (phase, time) = (json!(phase), json!("2026-01-01T12:00:00Z"));
        let fields = [Field::Value(&phase), Field::Value(&time), Field::Value(&json!(10))];
        let facts = profile.facts(&Meta::default(), &fields);
        if let Finished::Yes { end, because, .. } = &facts.finished {
            assert!(matches!(profile.verdict(&facts), Verdict::DueAt { .. }));
            text += &format!("{because}: {end:?}\n");
        } else {
            assert_eq!(profile.verdict(&facts), Verdict::NotFinished);
        }
    }
    expect![[r#"
        Completed: Success
        Terminated: Failure
        Failed: Failure
    "#]]
    .assert_eq(&text);
}

#[test]
fn volcano_149_a_job_goes_in_the_foreground_by_its_ttl() {
    check(
        "
        both vcjob/train @ns uid=u rv=3 phase=Terminated since=12:00:00 ttl=10
        both vcjob/no-ttl @ns uid=v phase=Completed since=12:00:00
        until 1d 00:00:00",
        expect![[r#"
            12:00:10 read jobs.batch.volcano.sh ns/train -> uid=u rv=3
            12:00:10 delete jobs.batch.volcano.sh ns/train uid=u rv=3 Foreground -> Deleted
            12:00:10 ns/train = Deleted { due_ms: 12:00:10, lateness_ms: 0 }
            12:01:10 read jobs.batch.volcano.sh ns/train -> NotFound
            12:01:10 ns/train = Gone(NotFound)
            12:03:10 read jobs.batch.volcano.sh ns/train -> NotFound
            12:03:10 ns/train = Gone(NotFound)
        "#]],
    );
}

#[test]
fn volcano_3604_aborted_jobs_stay_unless_asked_for_and_one_that_is_resumed_is_spared() {
    let text = "
        both job/a @ns uid=u rv=1 phase=Aborted since=12:00:00 ttl=60
        both job/b @ns uid=v rv=1 phase=Aborted since=12:00:00 ttl=60
        12:00:30
        both job/b @ns uid=v rv=2 phase=Restarting since=12:00:30 ttl=60
        until 12:10:00
        show";
    let as_volcano = |spec: &mut ProfileSpec| *spec = ProfileSpec::volcano_job();
    crate::world::check_with(
        as_volcano,
        text,
        expect![[r#"
        12:10:00 nothing waits
    "#]],
    );
    let with_aborted = |spec: &mut ProfileSpec| {
        *spec = ProfileSpec::volcano_job();
        spec.finished.failure.push("Aborted".into());
    };
    crate::world::check_with(
        with_aborted,
        text,
        expect![[r#"
        12:01:00 read jobs.batch.volcano.sh ns/a -> uid=u rv=1
        12:01:00 delete jobs.batch.volcano.sh ns/a uid=u rv=1 Foreground -> Deleted
        12:01:00 ns/a = Deleted { due_ms: 12:01:00, lateness_ms: 0 }
        12:02:00 read jobs.batch.volcano.sh ns/a -> NotFound
        12:02:00 ns/a = Gone(NotFound)
        12:04:00 read jobs.batch.volcano.sh ns/a -> NotFound
        12:04:00 ns/a = Gone(NotFound)
        12:10:00 nothing waits
    "#]],
    );
}

#[test]
fn volcano_743_the_propagation_is_configurable() {
    let background = |spec: &mut ProfileSpec| spec.propagation = Some("Background".into());
    let text = "
        both job/pi @ns uid=u Complete=12:00:00 ttl=10
        until 12:01:00";
    crate::world::check_with(
        background,
        text,
        expect![[r#"
        12:00:10 read jobs.batch ns/pi -> uid=u rv=1
        12:00:10 delete jobs.batch ns/pi uid=u rv=1 Background -> Deleted
        12:00:10 ns/pi = Deleted { due_ms: 12:00:10, lateness_ms: 0 }
    "#]],
    );
}
