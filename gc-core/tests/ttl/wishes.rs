//! What users keep asking for, all of it off by default.

use crate::world::{check, check_with};
use expect_test::expect;
use gc_core::ttl::{DefaultSpec, ProfileSpec, SecondsSpec, TtlSpec};

fn default_in(namespace: Option<&str>, seconds: SecondsSpec) -> DefaultSpec {
    DefaultSpec { namespace: namespace.map(Into::into), seconds, also_controlled: false }
}

#[test]
fn nextflow_4434_a_default_for_jobs_that_set_none_by_namespace() {
    let defaults = |spec: &mut ProfileSpec| {
        spec.defaults = vec![
            default_in(None, SecondsSpec::both(3600)),
            default_in(Some("ci"), SecondsSpec::both(60)),
            default_in(Some("kept"), SecondsSpec::default()),
        ];
    };
    check_with(
        defaults,
        "
        both job/own @ns uid=a Complete=12:00:00 ttl=7200
        both job/none @ns uid=b Complete=12:00:00
        both job/none @ci uid=c Complete=12:00:00
        both job/none @kept uid=d Complete=12:00:00
        both job/cron @ns uid=e Complete=12:00:00 controlled
        both job/cron-own @ns uid=f Complete=12:00:00 ttl=7200 controlled
        both job/wrong @ns uid=g Complete=12:00:00 ttl=-1
        both job/runs @ns uid=h
        show
        until 13:00:00",
        expect![[r#"
            12:00:00 ! InvalidTTL ns/wrong: spec.ttlSecondsAfterFinished is -1, and a TTL cannot be negative: it is ignored, and the object stays
            12:00:00 ci/none Waiting, due 12:01:00
            ns/cron-own Waiting, due 14:00:00
            ns/none Waiting, due 13:00:00
            ns/own Waiting, due 14:00:00
            12:01:00 read jobs.batch ci/none -> uid=c rv=1
            12:01:00 delete jobs.batch ci/none uid=c rv=1 Foreground -> Deleted
            12:01:00 ci/none = Deleted { due_ms: 12:01:00, lateness_ms: 0 }
            12:02:00 read jobs.batch ci/none -> NotFound
            12:02:00 ci/none = Gone(NotFound)
            12:04:00 read jobs.batch ci/none -> NotFound
            12:04:00 ci/none = Gone(NotFound)
            13:00:00 read jobs.batch ns/none -> uid=b rv=1
            13:00:00 delete jobs.batch ns/none uid=b rv=1 Foreground -> Deleted
            13:00:00 ns/none = Deleted { due_ms: 13:00:00, lateness_ms: 0 }
        "#]],
    );
    let also_controlled = |spec: &mut ProfileSpec| {
        let default = default_in(None, SecondsSpec::both(3600));
        spec.defaults = vec![DefaultSpec { also_controlled: true, ..default }];
    };
    check_with(
        also_controlled,
        "
        both job/cron @ns uid=e Complete=12:00:00 controlled
        show",
        expect![[r#"
            12:00:00 ns/cron Waiting, due 13:00:00
        "#]],
    );
}

#[test]
fn nodewright_307_success_and_failure_have_ttls_of_their_own() {
    let defaults = |spec: &mut ProfileSpec| {
        spec.defaults = vec![default_in(None, SecondsSpec { success: Some(3_600), failure: Some(86_400) })];
        spec.min = SecondsSpec { success: None, failure: Some(600) };
    };
    check_with(
        defaults,
        "
        both job/done @ns uid=a Complete=12:00:00
        both job/failed @ns uid=b Failed=12:00:00
        both job/done-own @ns uid=c Complete=12:00:00 ttl=10
        both job/failed-own @ns uid=d Failed=12:00:00 ttl=10
        show",
        expect![[r#"
            12:00:00 ns/done Waiting, due 13:00:00
            ns/done-own Waiting, due 12:00:10
            ns/failed Waiting, due 1d 12:00:00
            ns/failed-own Waiting, due 12:10:00
        "#]],
    );
    // Only one of them.
    let only_success = |spec: &mut ProfileSpec| {
        spec.ttl = TtlSpec { path: None, seconds: Some(SecondsSpec { success: Some(60), failure: None }) };
    };
    check_with(
        only_success,
        "
        both job/done @ns uid=a Complete=12:00:00
        both job/failed @ns uid=b Failed=12:00:00
        show",
        expect![[r#"
            12:00:00 ns/done Waiting, due 12:01:00
        "#]],
    );
}

#[test]
fn kube_job_201_a_floor_leaves_time_to_read_the_result() {
    let floor = |spec: &mut ProfileSpec| spec.min = SecondsSpec::both(30);
    let text = "
        both job/at-once @ns uid=a Complete=12:00:00 ttl=0
        both job/later @ns uid=b Complete=12:00:00 ttl=60
        show";
    check_with(
        floor,
        text,
        expect![[r#"
        12:00:00 ns/at-once Waiting, due 12:00:30
        ns/later Waiting, due 12:01:00
    "#]],
    );
    check(
        text,
        expect![[r#"
        12:00:00 ns/at-once Waiting, due 12:00:00
        ns/later Waiting, due 12:01:00
    "#]],
    );
}

#[test]
fn kube_janitor_19_an_annotation_protects() {
    let protect = |spec: &mut ProfileSpec| spec.protect_annotation = Some("example.com/protect".into());
    check_with(
        protect,
        "
        both job/yes @ns uid=a Complete=12:00:00 ttl=10 example.com/protect=true
        both job/empty @ns uid=b Complete=12:00:00 ttl=10 example.com/protect=
        both job/typo @ns uid=c Complete=12:00:00 ttl=10 example.com/protect=treu
        both job/no @ns uid=d Complete=12:00:00 ttl=10 example.com/protect=false
        both job/other @ns uid=e Complete=12:00:00 ttl=10 example.com/other=true
        show",
        expect![[r#"
            12:00:00 ns/no Waiting, due 12:00:10
            ns/other Waiting, due 12:00:10
        "#]],
    );
    // Between the observation and the read, and between the read and the delete.
    check_with(
        protect,
        "
        seen job/a @ns uid=a rv=1 Complete=12:00:00 ttl=10
        live job/a @ns uid=a rv=2 Complete=12:00:00 ttl=10 example.com/protect=true
        both job/b @ns uid=b rv=1 Complete=12:00:00 ttl=20
        after #2 live job/b @ns uid=b rv=2 Complete=12:00:00 ttl=20 example.com/protect=true
        until 12:01:00
        show",
        expect![[r#"
            12:00:10 read jobs.batch ns/a -> uid=a rv=2
            12:00:10 ns/a = NotWaiting(Protected)
            12:00:20 read jobs.batch ns/b -> uid=b rv=1
            12:00:20 delete jobs.batch ns/b uid=b rv=1 Foreground -> Conflict
            12:00:20 read jobs.batch ns/b -> uid=b rv=2
            12:00:20 ns/b = NotWaiting(Protected)
            12:01:00 nothing waits
        "#]],
    );
}

#[test]
fn trainer_3125_any_kind_by_paths_alone() {
    check(
        "
        both build/a @ns uid=a phase=Done since=12:00:00
        both build/b @ns uid=b phase=Broken since=12:00:00
        both build/c @ns uid=c phase=Building since=12:00:00
        show
        until 2d 00:00:00",
        expect![[r#"
            12:00:00 ns/a Waiting, due 13:00:00
            ns/b Waiting, due 1d 12:00:00
            13:00:00 read builds.example.com ns/a -> uid=a rv=1
            13:00:00 delete builds.example.com ns/a uid=a rv=1 Background -> Deleted
            13:00:00 ns/a = Deleted { due_ms: 13:00:00, lateness_ms: 0 }
            13:01:00 read builds.example.com ns/a -> NotFound
            13:01:00 ns/a = Gone(NotFound)
            13:03:00 read builds.example.com ns/a -> NotFound
            13:03:00 ns/a = Gone(NotFound)
            1d 12:00:00 read builds.example.com ns/b -> uid=b rv=1
            1d 12:00:00 delete builds.example.com ns/b uid=b rv=1 Background -> Deleted
            1d 12:00:00 ns/b = Deleted { due_ms: 1d 12:00:00, lateness_ms: 0 }
            1d 12:01:00 read builds.example.com ns/b -> NotFound
            1d 12:01:00 ns/b = Gone(NotFound)
            1d 12:03:00 read builds.example.com ns/b -> NotFound
            1d 12:03:00 ns/b = Gone(NotFound)
        "#]],
    );
}

#[test]
fn kube_janitor_68_a_ttl_in_an_annotation() {
    let annotation = |spec: &mut ProfileSpec| {
        spec.ttl.path = Some(r"metadata.annotations.example\.com/ttl".into());
    };
    check_with(
        annotation,
        "
        both job/a @ns uid=a Complete=12:00:00 example.com/ttl=60
        both job/b @ns uid=b Complete=12:00:00 example.com/ttl=soon
        both job/c @ns uid=c Complete=12:00:00
        show",
        expect![[r#"
            12:00:00 ! InvalidTTL ns/b: metadata.annotations.example.com/ttl is "soon", which is not a whole number of seconds: it is ignored, and the object stays
            12:00:00 ns/a Waiting, due 12:01:00
        "#]],
    );
}
