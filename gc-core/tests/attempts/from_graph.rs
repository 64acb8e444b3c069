//! What the graph proves is not asked again (D15): one request instead of three, and the same end.

use std::time::Duration;

use expect_test::{Expect, expect};
use gc_graph::{Observation, OwnerReferenceRef, SourceId};

use crate::world::World;

/// Runs one attempt at `c` and compares the transcript.
#[track_caller]
fn check(text: &str, expected: Expect) {
    let mut world = World::deciding_from_graph(text);
    world.attempt("c");
    expected.assert_eq(&world.transcript());
}

#[test]
fn d15_an_owner_whose_deletion_was_seen_costs_one_request() {
    check(
        "
        graph cm/owner @ns uid=o
        both cm/child @ns uid=c rv=7 owners=[cm/owner#o!]
        gone cm/owner @ns uid=o",
        expect![[r#"
            delete configmaps ns/child uid=c rv=7 Background -> ok
            = deleted (Background)
        "#]],
    );
}

#[test]
fn d15_the_proof_is_of_every_owner_or_of_none() {
    check(
        "
        graph cm/owner @ns uid=o
        both cm/other @ns uid=p
        both cm/child @ns uid=c rv=7 owners=[cm/owner#o! cm/other#p]
        gone cm/owner @ns uid=o",
        expect![[r#"
            read configmaps ns/child -> uid=c rv=7
            patch configmaps ns/child StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"resourceVersion":"7","uid":"c"}} -> uid=c rv=7'
            = lives; 1 owner references removed
        "#]],
    );
}

#[test]
fn d15_an_owner_of_which_nothing_is_proved_is_read_and_its_item_is_not() {
    check(
        "
        both cm/child @ns uid=c rv=7 owners=[cm/owner#o cm/other#p]",
        expect![[r#"
            read configmaps ns/owner -> 404
            read configmaps ns/other -> 404
            delete configmaps ns/child uid=c rv=7 Background -> ok
            = deleted (Background)
        "#]],
    );
    check(
        "
        live cm/owner @ns uid=o
        both cm/child @ns uid=c rv=7 owners=[cm/owner#o]",
        expect![[r#"
            read configmaps ns/owner -> uid=o rv=1
            = has an owner that lives
        "#]],
    );
}

#[test]
fn d15_an_item_that_has_changed_is_decided_as_if_the_graph_knew_nothing() {
    check(
        "
        graph cm/owner @ns uid=o
        graph cm/child @ns uid=c rv=7 owners=[cm/owner#o!]
        live cm/child @ns uid=c rv=8 owners=[cm/new#n]
        both cm/new @ns uid=n
        gone cm/owner @ns uid=o",
        expect![[r#"
            delete configmaps ns/child uid=c rv=7 Background -> 409
            read configmaps ns/child -> uid=c rv=8
            = has an owner that lives
        "#]],
    );
    check(
        "
        graph cm/owner @ns uid=o
        graph cm/child @ns uid=c rv=7 owners=[cm/owner#o!]
        live cm/child @ns uid=c rv=8 owners=[cm/owner#o!]
        gone cm/owner @ns uid=o",
        expect![[r#"
            delete configmaps ns/child uid=c rv=7 Background -> 409
            read configmaps ns/child -> uid=c rv=8
            delete configmaps ns/child uid=c rv=8 Background -> ok
            = deleted (Background)
        "#]],
    );
}

#[test]
fn d15_an_item_that_went_or_was_recreated_is_left_to_its_watch() {
    check(
        "
        graph cm/owner @ns uid=o
        graph cm/child @ns uid=c rv=7 owners=[cm/owner#o!]
        gone cm/owner @ns uid=o",
        expect![[r#"
            delete configmaps ns/child uid=c rv=7 Background -> 404
            = will be tried again in 2000 ms: configmaps ns/child is gone for a read, but not for the watch
        "#]],
    );
    check(
        "
        graph cm/owner @ns uid=o
        graph cm/child @ns uid=c rv=7 owners=[cm/owner#o!]
        live cm/child @ns uid=c2 rv=9
        gone cm/owner @ns uid=o",
        expect![[r#"
            delete configmaps ns/child uid=c rv=7 Background -> 409
            read configmaps ns/child -> uid=c2 rv=9
            = will be tried again in 2000 ms: configmaps ns/child is gone for a read, but not for the watch
        "#]],
    );
}

#[test]
fn d10_d15_an_item_that_names_a_policy_is_read() {
    check(
        "
        graph cm/owner @ns uid=o
        both cm/child @ns uid=c rv=7 owners=[cm/owner#o!] finalizers=[orphan]
        gone cm/owner @ns uid=o",
        expect![[r#"
            read configmaps ns/child -> uid=c rv=7
            delete configmaps ns/child uid=c rv=7 Orphan -> ok
            = deleted (Orphan)
        "#]],
    );
}

#[test]
fn d9_d15_a_waiting_owner_is_read_once_for_its_dependents() {
    let mut world = World::deciding_from_graph(
        "
        both cm/owner @ns uid=o finalizers=[foregroundDeletion] deleting
        both cm/child @ns uid=c rv=7 owners=[cm/owner#o!]
        both cm/parent @ns uid=d rv=8 owners=[cm/owner#o!]
        both cm/leaf @ns uid=e rv=9 owners=[cm/parent#d!]
        both cm/late @ns uid=f rv=10 owners=[cm/owner#o!]",
    );
    world.attempt("c");
    world.attempt("d");
    world.now += Duration::from_millis(51);
    world.attempt("f");
    expect![[r#"
        read configmaps ns/owner -> uid=o rv=1
        delete configmaps ns/child uid=c rv=7 Background -> ok
        = deleted (Background)
        delete configmaps ns/parent uid=d rv=8 Foreground -> ok
        = deleted (Foreground)
        read configmaps ns/owner -> uid=o rv=1
        delete configmaps ns/late uid=f rv=10 Background -> ok
        = deleted (Background)
    "#]]
    .assert_eq(&world.transcript());
}

#[test]
fn d15_attempts_at_the_same_time_share_the_read_of_their_owner() {
    let mut world = World::deciding_from_graph(
        "
        both cm/owner @ns uid=o finalizers=[foregroundDeletion] deleting
        both cm/child @ns uid=c rv=7 owners=[cm/owner#o!]
        both cm/other @ns uid=d rv=8 owners=[cm/owner#o!]
        both cm/stray @ns uid=e rv=9 owners=[cm/never#n]
        both cm/lost @ns uid=f rv=10 owners=[cm/never#n]",
    );
    world.attempts_that_share_the_read_of("owner", &["c", "d"]);
    world.attempts_that_share_the_read_of("never", &["e", "f"]);
    expect![[r#"
        read configmaps ns/owner -> uid=o rv=1
        delete configmaps ns/child uid=c rv=7 Background -> ok
        = deleted (Background)
        delete configmaps ns/other uid=d rv=8 Background -> ok
        = deleted (Background)
        read configmaps ns/never -> 404
        delete configmaps ns/stray uid=e rv=9 Background -> ok
        = deleted (Background)
        delete configmaps ns/lost uid=f rv=10 Background -> ok
        = deleted (Background)
    "#]]
    .assert_eq(&world.transcript());
}

/// Nobody else has a use for the reply to any other request.
#[test]
fn d15_an_attempt_says_of_the_reads_of_owners_alone_that_they_may_be_shared() {
    let mut world = World::new(
        "both cm/child @ns uid=c rv=7 owners=[cm/gone#g cm/solid#s]
         live cm/solid @ns uid=s",
    );
    world.attempt("c");
    expect![[r#"
        read configmaps ns/child -> uid=c rv=7
        read configmaps ns/gone -> 404
        read configmaps ns/solid -> uid=s rv=1
        patch configmaps ns/child StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"g"}],"resourceVersion":"7","uid":"c"}} -> uid=c rv=7'
        = lives; 1 owner references removed
    "#]]
    .assert_eq(&world.transcript());
    assert_eq!(world.reads_of_owners, [2, 3]);
}

#[test]
fn d15_an_attempt_that_shares_a_read_keeps_what_it_has_read_before() {
    let mut world = World::deciding_from_graph(
        "live cm/solid @ns uid=s
         both cm/other @ns uid=d rv=8 owners=[cm/never#n]
         both cm/child @ns uid=c rv=7 owners=[cm/solid#s cm/never#n]",
    );
    world.attempts_that_share_the_read_of("never", &["d", "c"]);
    expect![[r#"
        read configmaps ns/solid -> uid=s rv=1
        read configmaps ns/never -> 404
        delete configmaps ns/other uid=d rv=8 Background -> ok
        = deleted (Background)
        read configmaps ns/child -> uid=c rv=7
        read configmaps ns/solid -> uid=s rv=1
        patch configmaps ns/child StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"n"}],"resourceVersion":"7","uid":"c"}} -> uid=c rv=7'
        = lives; 1 owner references removed
    "#]]
    .assert_eq(&world.transcript());
}

/// One waits for the reply to a read that another has sent, and that takes longer than a proof lasts. Meanwhile the server
/// was away and is one that holds the first owner again.
#[test]
fn d15_s7_proofs_age_while_an_attempt_waits_for_the_read_of_another() {
    let mut world = World::deciding_from_graph(
        "graph cm/first @ns uid=f
         both cm/other @ns uid=d rv=8 owners=[cm/never#n]
         both cm/child @ns uid=c rv=7 owners=[cm/first#f cm/never#n]
         gone cm/first @ns uid=f
         after #1 later 6
         after #1 live cm/first @ns uid=f",
    );
    world.attempts_that_share_the_read_of("never", &["d", "c"]);
    expect![[r#"
        read configmaps ns/never -> 404
        delete configmaps ns/other uid=d rv=8 Background -> ok
        = deleted (Background)
        read configmaps ns/never -> 404
        read configmaps ns/first -> uid=f rv=1
        read configmaps ns/child -> uid=c rv=7
        read configmaps ns/first -> uid=f rv=1
        patch configmaps ns/child StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"n"}],"resourceVersion":"7","uid":"c"}} -> uid=c rv=7'
        = lives; 1 owner references removed
    "#]]
    .assert_eq(&world.transcript());
}

/// The first owner was seen to go three seconds before. The read of another attempt, which settles the second one, takes
/// three more: by then the proof of the first is too old, and that of the second is not.
#[test]
fn d15_s7_a_proof_ages_while_another_reads_what_settles_the_rest() {
    let mut world = World::deciding_from_graph(
        "graph cm/first @ns uid=f
         both cm/other @ns uid=d rv=8 owners=[cm/never#n]
         both cm/child @ns uid=c rv=7 owners=[cm/first#f cm/never#n]
         gone cm/first @ns uid=f
         after #1 later 3
         after #1 live cm/first @ns uid=f",
    );
    world.now += Duration::from_secs(3);
    world.attempts_that_share_the_read_of("never", &["d", "c"]);
    expect![[r#"
        read configmaps ns/never -> 404
        delete configmaps ns/other uid=d rv=8 Background -> ok
        = deleted (Background)
        read configmaps ns/first -> uid=f rv=1
        read configmaps ns/child -> uid=c rv=7
        read configmaps ns/first -> uid=f rv=1
        patch configmaps ns/child StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"n"}],"resourceVersion":"7","uid":"c"}} -> uid=c rv=7'
        = lives; 1 owner references removed
    "#]].assert_eq(&world.transcript());
}

#[test]
fn d15_a_read_that_settles_nothing_for_others_is_repeated_by_them() {
    let mut world = World::deciding_from_graph(
        "
        graph cm/owner @ns uid=o finalizers=[foregroundDeletion] deleting
        live cm/owner @ns uid=o finalizers=[orphan] deleting
        both cm/child @ns uid=c rv=7 owners=[cm/owner#o!]
        both cm/other @ns uid=d rv=8 owners=[cm/owner#o!]",
    );
    world.attempts_that_share_the_read_of("owner", &["c", "d"]);
    expect![[r#"
        read configmaps ns/owner -> uid=o rv=1
        = has an owner that lives
        read configmaps ns/owner -> uid=o rv=1
        = has an owner that lives
    "#]]
    .assert_eq(&world.transcript());
}

#[test]
fn d15_an_owner_that_waits_no_longer_condemns_nobody() {
    let mut world = World::deciding_from_graph(
        "
        both cm/owner @ns uid=o finalizers=[foregroundDeletion] deleting
        both cm/first @ns uid=c rv=7 owners=[cm/owner#o!]
        both cm/child @ns uid=d rv=8 owners=[cm/owner#o!]",
    );
    world.attempt("c");
    world.line(
        &["graph", "cm/owner", "@ns", "uid=o", "rv=2", "finalizers=[orphan]", "deleting"].map(String::from),
    );
    world.attempt("d");
    expect![[r#"
        read configmaps ns/owner -> uid=o rv=1
        delete configmaps ns/first uid=c rv=7 Background -> ok
        = deleted (Background)
        read configmaps ns/child -> uid=d rv=8
        patch configmaps ns/child StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"resourceVersion":"8","uid":"d"}} -> uid=d rv=8'
        = lives; 1 owner references removed
    "#]].assert_eq(&world.transcript());
}

/// Found in a small world: the graph and the memory say that it waits, and a later read says that it does not.
#[test]
fn d15_a_read_that_finds_an_owner_waiting_no_longer_counts_from_then_on() {
    let mut world = World::deciding_from_graph(
        "
        both cm/owner @ns uid=o finalizers=[foregroundDeletion] deleting
        both cm/first @ns uid=c rv=7 owners=[cm/owner#o!]
        graph cm/child @ns uid=d rv=8 owners=[cm/owner#o!]
        live cm/child @ns uid=d rv=9 owners=[cm/owner#o!]",
    );
    world.attempt("c");
    world.line(
        &["live", "cm/owner", "@ns", "uid=o", "rv=2", "finalizers=[orphan]", "deleting"].map(String::from),
    );
    world.attempt("d");
    world.line(&["graph", "cm/child", "@ns", "uid=d", "rv=9", "owners=[cm/owner#o!]"].map(String::from));
    world.attempt("d");
    expect![[r#"
        read configmaps ns/owner -> uid=o rv=1
        delete configmaps ns/first uid=c rv=7 Background -> ok
        = deleted (Background)
        delete configmaps ns/child uid=d rv=8 Background -> 409
        read configmaps ns/child -> uid=d rv=9
        read configmaps ns/owner -> uid=o rv=2
        = has an owner that lives
        read configmaps ns/owner -> uid=o rv=2
        = has an owner that lives
    "#]]
    .assert_eq(&world.transcript());
}

#[test]
fn d9_d15_what_is_written_back_is_read_first() {
    check(
        "
        both cm/owner @ns uid=o owners=[cm/child#c!] finalizers=[foregroundDeletion] deleting
        both cm/child @ns uid=c rv=7 owners=[cm/owner#o!]",
        expect![[r#"
            read configmaps ns/owner -> uid=o rv=1
            read configmaps ns/child -> uid=c rv=7
            read configmaps ns/owner -> uid=o rv=1
            patch configmaps ns/child StrategicMerge {"metadata":{"ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":false,"kind":"ConfigMap","name":"owner","uid":"o"}],"resourceVersion":"7","uid":"c"}} -> uid=c rv=7'
            delete configmaps ns/child uid=c rv=7' Foreground -> ok
            = deleted (Foreground)
        "#]],
    );
}

#[test]
fn s7_d15_a_proof_on_the_graph_ages_as_every_proof_does() {
    let text = "
        graph cm/owner @ns uid=o
        both cm/child @ns uid=c rv=7 owners=[cm/owner#o!]
        gone cm/owner @ns uid=o";
    let mut world = World::deciding_from_graph(text);
    world.now += Duration::from_millis(5_200);
    world.attempt("c");
    expect![[r#"
        read configmaps ns/owner -> 404
        delete configmaps ns/child uid=c rv=7 Background -> ok
        = deleted (Background)
    "#]]
    .assert_eq(&world.transcript());
}

/// Found by simulation: the process was stopped between what a watch heard and the graph, and the server restored
/// meanwhile.
#[test]
fn s7_d15_what_a_watch_shows_is_as_old_as_when_it_was_heard() {
    let mut world = World::deciding_from_graph(
        "
        graph cm/owner @ns uid=o
        graph cm/other @ns uid=p
        both cm/child @ns uid=c rv=7 owners=[cm/owner#o!]
        both cm/second @ns uid=d rv=8 owners=[cm/other#p!]",
    );
    world.now += Duration::from_secs(60);
    world.line(&["gone", "cm/other", "@ns", "uid=p"].map(String::from));
    world.heard_before = Duration::from_secs(46);
    world.line(&["gone", "cm/owner", "@ns", "uid=o"].map(String::from));
    world.line(&["live", "cm/owner", "@ns", "uid=o", "rv=2"].map(String::from));
    world.attempt("c");
    world.attempt("d");
    expect![[r#"
        read configmaps ns/owner -> uid=o rv=2
        = has an owner that lives
        delete configmaps ns/second uid=d rv=8 Background -> ok
        = deleted (Background)
    "#]]
    .assert_eq(&world.transcript());
}

#[test]
fn d15_more_owners_at_once_than_are_remembered_leave_their_proofs_on_the_graph() {
    use std::fmt::Write as _;
    let mut text = String::new();
    for i in 0..6_000 {
        writeln!(
            text,
            "graph cm/owner-{i} @ns uid=o{i}\nboth cm/child-{i} @ns uid=c{i} rv=7 owners=[cm/owner-{i}#o{i}!]"
        )
        .unwrap();
    }
    for i in 0..6_000 {
        writeln!(text, "gone cm/owner-{i} @ns uid=o{i}").unwrap();
    }
    let mut world = World::deciding_from_graph(&text);
    assert_eq!(world.state.absent_len(), 5_000);
    world.attempt("c0");
    expect![[r#"
        delete configmaps ns/child-0 uid=c0 rv=7 Background -> ok
        = deleted (Background)
    "#]]
    .assert_eq(&world.transcript());
}

/// Two watches may show one object under two kinds, and not say the same of it. What the graph has is what the last one
/// said; the version is the same in both, so that the server would not refuse.
#[test]
fn d15_an_object_that_is_shown_under_two_kinds_is_read() {
    let mut world = World::deciding_from_graph(
        "
        graph cm/owner @ns uid=o
        graph cm/gone @ns uid=g
        graph cm/child @ns uid=c rv=7 owners=[cm/owner#o]
        live cm/child @ns uid=c rv=7 owners=[cm/owner#o]
        gone cm/gone @ns uid=g",
    );
    let owner = OwnerReferenceRef {
        api_version: "v1",
        kind: "ConfigMap",
        name: "gone",
        uid: "g",
        controller: false,
        block_owner_deletion: false,
    };
    let seen = Observation {
        source: SourceId(1),
        api_version: "example.com/v1",
        kind: "Widget",
        namespace: "ns",
        name: "child",
        uid: "c",
        resource_version: "7",
        being_deleted: false,
        has_foreground_finalizer: false,
        has_orphan_finalizer: false,
        owner_references: &[owner],
    };
    world.state.observe(&seen, &mut Vec::new());
    world.attempt("c");
    expect![[r#"
        read configmaps ns/child -> uid=c rv=7
        = has an owner that lives
    "#]]
    .assert_eq(&world.transcript());
}

/// Found by simulation (seed 13,835): the answer said that the owner waits for its dependents. By the time it came, the
/// owner was one whose dependents are to be orphaned, and a second dependent was deleted all the same.
#[test]
fn d15_s7_what_a_slow_answer_says_of_an_owner_is_as_old_as_its_request() {
    let mut world = World::deciding_from_graph(
        "
        both cm/owner @ns uid=o finalizers=[foregroundDeletion] deleting
        both cm/first @ns uid=c rv=7 owners=[cm/owner#o]
        both cm/second @ns uid=d rv=8 owners=[cm/owner#o]
        after #1 live cm/owner @ns uid=o rv=2 finalizers=[orphan] deleting",
    );
    world.slow_by = Duration::from_millis(60);
    world.attempt("c");
    world.attempt("d");
    expect![[r#"
        read configmaps ns/owner -> uid=o rv=1
        delete configmaps ns/first uid=c rv=7 Background -> ok
        = deleted (Background)
        read configmaps ns/owner -> uid=o rv=2
        = has an owner that lives
    "#]]
    .assert_eq(&world.transcript());
}

/// The same of an owner that a slow answer says is absent.
#[test]
fn d15_s7_an_absence_that_a_slow_answer_tells_is_as_old_as_its_request() {
    let mut world = World::deciding_from_graph(
        "
        both cm/first @ns uid=c rv=7 owners=[cm/never#n]
        both cm/second @ns uid=d rv=8 owners=[cm/never#n]",
    );
    world.slow_by = Duration::from_secs(6);
    world.attempt("c");
    world.attempt("d");
    expect![[r#"
        read configmaps ns/never -> 404
        delete configmaps ns/first uid=c rv=7 Background -> ok
        = deleted (Background)
        read configmaps ns/never -> 404
        delete configmaps ns/second uid=d rv=8 Background -> ok
        = deleted (Background)
    "#]]
    .assert_eq(&world.transcript());
}
