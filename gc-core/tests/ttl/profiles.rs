//! Profiles: what they read, and one clear line for what is wrong with them.

use crate::world::check;
use expect_test::{Expect, expect};
use gc_core::ttl::{
    DefaultSpec, Field, Finished, Meta, Profile, ProfileSpec, SecondsSpec, TtlSpec, parse_path,
};
use serde_json::json;

#[test]
fn t1_what_the_built_in_profiles_read() {
    let shown = |profile: &Profile| {
        let paths: Vec<String> = profile.paths().iter().map(|path| path.join(".")).collect();
        format!("{} {} {}\n", profile.name(), profile.version(), paths.join(" "))
    };
    let text = shown(&Profile::batch_job()) + &shown(&Profile::volcano_job());
    expect![[r#"
        jobs.batch v1 status.conditions spec.ttlSecondsAfterFinished
        jobs.batch.volcano.sh v1alpha1 status.state.phase status.state.lastTransitionTime spec.ttlSecondsAfterFinished
    "#]].assert_eq(&text);
    assert_eq!(Profile::new(&ProfileSpec::batch_job()), Ok(Profile::batch_job()));
    assert_eq!(Profile::new(&ProfileSpec::volcano_job()), Ok(Profile::volcano_job()));
}

#[test]
fn t1_kube_cleanup_operator_48_only_a_true_condition_of_the_right_type_finishes_a_job() {
    check(
        "
        both job/a @ns uid=a Failed=12:00:00 ttl=10
        both job/b @ns uid=b !Complete=12:00:00 ttl=10
        both job/c @ns uid=c ?Failed=12:00:00 ttl=10
        both job/d @ns uid=d Suspended=12:00:00 ttl=10
        both job/e @ns uid=e !Failed=12:00:00 SuccessCriteriaMet=12:00:01 Complete=12:00:02 ttl=10
        both job/f @ns uid=f FailureTarget=12:00:00 ttl=10
        show",
        expect![[r#"
            12:00:00 ! FinishedInFuture ns/e: it finished in the future, at 2026-01-01T12:00:02Z (it is 2026-01-01T12:00:00Z): clocks in the cluster differ; its TTL waits
            12:00:00 ns/a Waiting, due 12:00:10
            ns/e Waiting, due 12:00:12
        "#]],
    );
}

#[test]
fn t1_a_status_of_any_shape_finishes_nothing() {
    let profile = Profile::batch_job();
    let odd = [
        json!({}),
        json!("Complete"),
        json!([1, null, "Complete", []]),
        json!([{"type": "Complete"}]),
        json!([{"type": "Complete", "status": true}]),
        json!([{"type": ["Complete"], "status": "True"}]),
        json!([{"status": "True"}]),
    ];
    for conditions in odd {
        let facts = profile.facts(&Meta::default(), &[Field::Value(&conditions), Field::Absent]);
        assert_eq!(facts.finished, Finished::No, "{conditions}");
    }
    for fields in [&[Field::TooLarge, Field::Absent] as &[_], &[], &[Field::Absent; 5]] {
        let facts = profile.facts(&Meta::default(), fields);
        assert!(matches!(facts.finished, Finished::Unknown(_)), "{fields:?}");
    }
}

#[test]
fn t1_only_annotations_and_labels_give_a_ttl_as_text() {
    let mut shown = String::new();
    for parents in
        ["metadata.annotations", "metadata.labels", "metadata.ttls", "spec.annotations", "spec.labels"]
    {
        let mut spec = ProfileSpec::batch_job();
        spec.ttl.path = Some(format!("{parents}.ttl"));
        let profile = Profile::new(&spec).unwrap();
        let (conditions, ttl) = (json!([]), json!("60"));
        let facts = profile.facts(&Meta::default(), &[Field::Value(&conditions), Field::Value(&ttl)]);
        shown += &format!("{:?}\n", facts.ttl);
    }
    expect![[r#"
        Seconds(60)
        Seconds(60)
        Invalid("metadata.ttls.ttl is \"60\", which is not a whole number of seconds")
        Invalid("spec.annotations.ttl is \"60\", which is not a whole number of seconds")
        Invalid("spec.labels.ttl is \"60\", which is not a whole number of seconds")
    "#]]
    .assert_eq(&shown);
}

#[test]
fn t1_a_backslash_is_one_unless_a_dot_follows() {
    let shown = |text: &str| parse_path(text).join(" | ");
    assert_eq!(shown(r"metadata.labels.example\.com/ttl"), "metadata | labels | example.com/ttl");
    assert_eq!(shown(r"spec.a\b.c\"), r"spec | a\b | c\");
}

#[track_caller]
fn check_accepted(change: impl FnOnce(&mut ProfileSpec)) {
    let mut spec = ProfileSpec::batch_job();
    change(&mut spec);
    assert_eq!(Profile::new(&spec).err(), None);
}

#[track_caller]
fn check_error(change: impl FnOnce(&mut ProfileSpec), expected: Expect) {
    let mut spec = ProfileSpec::batch_job();
    change(&mut spec);
    expected.assert_eq(&Profile::new(&spec).unwrap_err().to_string());
}

/// So many bytes are accepted there, and one more is not.
#[track_caller]
fn check_longest(key: &str, bytes: usize, set: impl Fn(&mut ProfileSpec, String)) {
    check_accepted(|spec| set(spec, "a".repeat(bytes)));
    let mut spec = ProfileSpec::batch_job();
    set(&mut spec, "a".repeat(bytes + 1));
    let error = Profile::new(&spec).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{key}: ")), "{error}");
}

#[test]
fn t1_names_that_are_none() {
    check_error(|spec| spec.version = String::new(), expect!["version: is missing, for example v1"]);
    check_error(
        |spec| spec.resource = "Jobs".into(),
        expect![[r#"resource: "Jobs" is not a name such as jobs"#]],
    );
    check_error(
        |spec| spec.resource = "jobs/status".into(),
        expect![[r#"resource: "jobs/status" is not a name such as jobs"#]],
    );
    check_error(
        |spec| spec.group = "batch/v1".into(),
        expect![[r#"group: "batch/v1" is not a name such as batch.volcano.sh"#]],
    );
    check_error(
        |spec| spec.protect_annotation = Some(String::new()),
        expect![[r#"protectAnnotation: "" is not a name such as example.com/protect"#]],
    );
}

#[test]
fn t1_names_as_long_as_kubernetes_has_them_and_no_longer() {
    check_longest("resource", 253, |spec, name| spec.resource = name);
    check_longest("finished.failure", 253, |spec, name| spec.finished.failure = vec![name]);
    // The key of an annotation: a domain, a slash, and 63 bytes.
    check_longest("protectAnnotation", 317, |spec, key| spec.protect_annotation = Some(key));
    check_longest("ttl.path", 317, |spec, key| spec.ttl.path = Some(format!("metadata.annotations.{key}")));
}

#[test]
fn t1_an_end_that_is_none() {
    check_error(
        |spec| spec.finished.conditions = None,
        expect!["finished: needs either conditions or phase"],
    );
    check_error(
        |spec| spec.finished.phase = Some("status.phase".into()),
        expect!["finished: needs either conditions or phase"],
    );
    let phase_without_time = |spec: &mut ProfileSpec| {
        spec.finished.conditions = None;
        spec.finished.phase = Some("status.phase".into());
    };
    check_error(phase_without_time, expect!["finished.time: is missing, for example status.finishedAt"]);
    let nothing = |spec: &mut ProfileSpec| {
        spec.finished.success.clear();
        spec.finished.failure.clear();
    };
    check_error(nothing, expect!["finished.success: is missing, for example [Complete]"]);
    check_error(
        |spec| spec.finished.failure.push("Complete".into()),
        expect!["finished.failure: Complete stands there twice"],
    );
    check_error(
        |spec| spec.finished.success.push("Complete".into()),
        expect!["finished.success: Complete stands there twice"],
    );
    check_error(
        |spec| spec.finished.success.push(String::new()),
        expect![[r#"finished.success: "" is not a name such as Complete"#]],
    );
    check_accepted(|spec| spec.finished.success.clear());
    check_accepted(|spec| spec.finished.failure.clear());
    let phases = |count| (0..count).map(|n| format!("C{n}")).collect();
    check_accepted(|spec| spec.finished.success = phases(64));
    check_error(
        |spec| spec.finished.success = phases(65),
        expect!["finished.success: has more than 64 entries"],
    );
}

#[test]
fn t1_paths_that_are_none() {
    check_error(
        |spec| spec.finished.conditions = Some("status".into()),
        expect![[r#"finished.conditions: "status" is not a path of 2 to 16 keys such as status.phase"#]],
    );
    check_error(
        |spec| spec.finished.conditions = Some(".status.conditions".into()),
        expect![[
            r#"finished.conditions: ".status.conditions" is not a path of 2 to 16 keys such as status.phase"#
        ]],
    );
    check_error(
        |spec| spec.finished.conditions = Some("status.conditions[0]".into()),
        expect![[
            r#"finished.conditions: "status.conditions[0]" is not a path of 2 to 16 keys such as status.phase"#
        ]],
    );
    check_error(
        |spec| spec.finished.time = Some("status..finishedAt".into()),
        expect![[
            r#"finished.time: "status..finishedAt" is not a path of 2 to 16 keys such as status.phase"#
        ]],
    );
    check_accepted(|spec| spec.ttl.path = Some(["a"; 16].join(".")));
    check_error(
        |spec| spec.ttl.path = Some(["a"; 17].join(".")),
        expect![[
            r#"ttl.path: "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a" is not a path of 2 to 16 keys such as status.phase"#
        ]],
    );
    check_error(
        |spec| spec.ttl.path = Some("status.conditions".into()),
        expect!["ttl.path: is a part of finished.conditions, or the same"],
    );
    check_error(
        |spec| spec.ttl.path = Some("status.conditions.ttl".into()),
        expect!["ttl.path: is a part of finished.conditions, or the same"],
    );
    let inside = |spec: &mut ProfileSpec| {
        spec.ttl.path = Some("metadata.annotations".into());
        spec.protect_annotation = Some("example.com/protect".into());
    };
    check_error(inside, expect!["protectAnnotation: is a part of ttl.path, or the same"]);
}

#[test]
fn t1_seconds_that_are_none() {
    check_error(|spec| spec.ttl.path = None, expect!["ttl: needs either path or seconds"]);
    check_error(
        |spec| spec.ttl.seconds = Some(SecondsSpec::both(1)),
        expect!["ttl: needs either path or seconds"],
    );
    let nothing = |spec: &mut ProfileSpec| {
        spec.ttl = TtlSpec { path: None, seconds: Some(SecondsSpec::default()) };
    };
    check_error(nothing, expect!["ttl.seconds: is missing, for example 3600"]);
    check_error(
        |spec| spec.min = SecondsSpec::both(-1),
        expect!["min: -1 is not a number of seconds from 0 to 2147483647"],
    );
    check_error(
        |spec| spec.min.failure = Some(2_147_483_648),
        expect!["min: 2147483648 is not a number of seconds from 0 to 2147483647"],
    );
    check_error(
        |spec| spec.propagation = Some("foreground".into()),
        expect![[r#"propagation: "foreground" is none of Foreground, Background, Orphan"#]],
    );
}

#[test]
fn t1_defaults_that_are_none() {
    let default = |namespace: Option<&str>, seconds| DefaultSpec {
        namespace: namespace.map(Into::into),
        seconds: SecondsSpec::both(seconds),
        ..DefaultSpec::default()
    };
    check_error(
        |spec| spec.defaults = vec![default(None, 1), default(None, 2)],
        expect!["defaults.namespace: all namespaces stands there twice"],
    );
    check_error(
        |spec| spec.defaults = vec![default(Some("a"), 1), default(Some("a"), 2)],
        expect!["defaults.namespace: a stands there twice"],
    );
    check_error(
        |spec| spec.defaults = vec![default(Some("A"), 1)],
        expect![[r#"defaults.namespace: "A" is not a name such as team-a"#]],
    );
    check_error(
        |spec| spec.defaults = vec![default(None, -1)],
        expect!["defaults.seconds: -1 is not a number of seconds from 0 to 2147483647"],
    );
    let of_namespaces = |count| (0..count).map(|n| default(Some(&format!("team-{n}")), 1)).collect();
    check_accepted(|spec| spec.defaults = of_namespaces(10_000));
    check_error(
        |spec| spec.defaults = of_namespaces(10_001),
        expect!["defaults: has more than 10000 entries"],
    );
}
