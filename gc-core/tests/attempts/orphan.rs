//! Attempts to orphan, as transcripts.

use std::time::Duration;

use crate::world::World;
use expect_test::{Expect, expect};
use gc_core::Outcome;

#[track_caller]
fn check(uid: &str, text: &str, expected: Expect) {
    let mut world = World::new(text);
    world.orphan(uid);
    expected.assert_eq(&world.transcript());
}

#[test]
fn o1_o2_the_dependents_first_and_the_finalizer_last() {
    let world = "
        both cm/o @ns uid=o rv=5 finalizers=[x,orphan] deleting
        both cm/1 @ns uid=1 owners=[cm/o#o!]
        both cm/2 @ns uid=2 owners=[cm/other#p cm/o#o]";
    check(
        "o",
        world,
        expect![[r#"
            patch configmaps ns/1 StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"uid":"1"}} -> uid=1 rv=1'
            - 1: lives; 1 owner references removed
            patch configmaps ns/2 StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"uid":"2"}} -> uid=2 rv=1'
            - 2: lives; 1 owner references removed
            read configmaps ns/o -> uid=o rv=5
            patch configmaps ns/o JsonMerge {"metadata":{"finalizers":["x"],"resourceVersion":"5","uid":"o"}} -> uid=o rv=5'
            = finalizer orphan removed
        "#]],
    );
}

#[test]
fn kubernetes_56348_custom_resources_are_released_by_json_merge_patch() {
    let world = "
        both cm/o @ns uid=o rv=5 finalizers=[orphan] deleting
        both w/1 @ns uid=1 rv=3 owners=[cm/o#o! cm/other#p*]
        both w/2 @ns uid=2 rv=4 owners=[cm/o#o]";
    check(
        "o",
        world,
        expect![[r#"
            patch widgets.example.com ns/1 StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"uid":"1"}} -> 415
            read widgets.example.com ns/1 -> uid=1 rv=3
            patch widgets.example.com ns/1 JsonMerge {"metadata":{"ownerReferences":[{"apiVersion":"v1","controller":true,"kind":"ConfigMap","name":"other","uid":"p"}],"resourceVersion":"3","uid":"1"}} -> uid=1 rv=3'
            - 1: lives; 1 owner references removed
            read widgets.example.com ns/2 -> uid=2 rv=4
            patch widgets.example.com ns/2 JsonMerge {"metadata":{"ownerReferences":[],"resourceVersion":"4","uid":"2"}} -> uid=2 rv=4'
            - 2: lives; 1 owner references removed
            read configmaps ns/o -> uid=o rv=5
            patch configmaps ns/o JsonMerge {"metadata":{"finalizers":[],"resourceVersion":"5","uid":"o"}} -> uid=o rv=5'
            = finalizer orphan removed
        "#]],
    );
}

#[test]
fn o1_not_found_and_another_object_under_the_name_are_success() {
    let world = "
        both  cm/o @ns uid=o finalizers=[orphan] deleting
        graph cm/1 @ns uid=1 owners=[cm/o#o]
        graph cm/2 @ns uid=2 owners=[cm/o#o]
        live  cm/2 @ns uid=other";
    check(
        "o",
        world,
        expect![[r#"
            patch configmaps ns/1 StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"uid":"1"}} -> 404
            - 1: will be tried again in 2000 ms: configmaps ns/1 is gone for a read, but not for the watch
            patch configmaps ns/2 StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"uid":"2"}} -> 422
            read configmaps ns/2 -> uid=other rv=1
            - 2: is gone
            = will be tried again in 2000 ms: configmaps ns/1 is gone for a read, but not for the watch
        "#]],
    );
}

#[test]
fn o2_one_failure_keeps_the_finalizer() {
    let world = "
        both cm/o @ns uid=o finalizers=[orphan] deleting
        both cm/1 @ns uid=1 owners=[cm/o#o]
        both cm/2 @ns uid=2 owners=[cm/o#o]
        #1 503";
    let mut it = World::new(world);
    let end = it.orphan("o");
    assert!(matches!(end, Outcome::Retry(_)));
    expect![[r#"
        patch configmaps ns/1 StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"uid":"1"}} -> the server answered 503
        - 1: will be tried again: configmaps ns/1: the server answered 503
        patch configmaps ns/2 StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"uid":"2"}} -> uid=2 rv=1'
        - 2: lives; 1 owner references removed
        = will be tried again: 1 dependents not orphaned; the first will be tried again: configmaps ns/1: the server answered 503
    "#]].assert_eq(&it.transcript());
}

#[test]
fn o2_a_busy_server_is_left_alone_for_as_long_as_it_asks() {
    for n in 1..=4 {
        let mut world = World::new(&format!(
            "both cm/o @ns uid=o finalizers=[orphan] deleting
             both cm/1 @ns uid=1 owners=[cm/o#o]
             both cm/2 @ns uid=2 owners=[cm/o#o]
             #{n} 429"
        ));
        let end = world.orphan("o");
        assert!(matches!(end, Outcome::Busy(delay, _) if delay.as_secs() == 7), "{end}");
        // The others of its dependents have had their turn.
        assert_eq!(world.transcript().matches(" -> ").count(), n.max(2));
    }
}

/// The kind may never be served again. What failed for a moment is not to wait for that.
#[test]
fn o2_a_dependent_that_failed_does_not_wait_for_the_kind_of_another() {
    let mut world = World::new(
        "both cm/o @ns uid=o finalizers=[orphan] deleting
         graph late/1 @ns uid=1 owners=[cm/o#o]
         both cm/2 @ns uid=2 owners=[cm/o#o]
         #1 503",
    );
    let ends = [world.orphan("o"), world.orphan("o")];
    assert!(matches!(ends, [Outcome::Retry(_), Outcome::WaitForKind { .. }]), "{ends:?}");
}

#[test]
fn o1_a_dependent_that_appears_while_others_are_released_is_released_too() {
    let world = "
        both cm/o @ns uid=o rv=5 finalizers=[orphan] deleting
        both cm/1 @ns uid=1 owners=[cm/o#o]
        after #1 both cm/2 @ns uid=2 owners=[cm/o#o]
        after #3 both cm/3 @ns uid=3 owners=[cm/o#o]";
    check(
        "o",
        world,
        expect![[r#"
            patch configmaps ns/1 StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"uid":"1"}} -> uid=1 rv=1'
            - 1: lives; 1 owner references removed
            patch configmaps ns/2 StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"uid":"2"}} -> uid=2 rv=1'
            - 2: lives; 1 owner references removed
            read configmaps ns/o -> uid=o rv=5
            = will be tried again: finalizer orphan of configmaps ns/o not removed: a new dependent appeared
        "#]],
    );
}

#[test]
fn o1_conflicts_are_read_again() {
    let world = "
        both cm/o @ns uid=o finalizers=[orphan] deleting
        both cm/1 @ns uid=1 rv=2 owners=[cm/o#o]
        #1 conflict
        #3 conflict";
    check(
        "o",
        world,
        expect![[r#"
            patch configmaps ns/1 StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"uid":"1"}} -> 409
            read configmaps ns/1 -> uid=1 rv=2
            patch configmaps ns/1 JsonMerge {"metadata":{"ownerReferences":[],"resourceVersion":"2","uid":"1"}} -> 409
            read configmaps ns/1 -> uid=1 rv=2
            patch configmaps ns/1 JsonMerge {"metadata":{"ownerReferences":[],"resourceVersion":"2","uid":"1"}} -> uid=1 rv=2'
            - 1: lives; 1 owner references removed
            read configmaps ns/o -> uid=o rv=1
            patch configmaps ns/o JsonMerge {"metadata":{"finalizers":[],"resourceVersion":"1","uid":"o"}} -> uid=o rv=1'
            = finalizer orphan removed
        "#]],
    );
}

#[test]
fn an_owner_that_is_not_orphaning_is_left_alone() {
    check(
        "o",
        "both cm/o @ns uid=o deleting",
        expect![[r#"
        = is already being deleted
    "#]],
    );
    check(
        "o",
        "",
        expect![[r#"
        = has left the graph
    "#]],
    );
    check(
        "o",
        "both cm/o @ns uid=o finalizers=[orphan]",
        expect![[r#"
        = is already being deleted
    "#]],
    );
}

#[test]
fn o2_an_owner_that_waited_for_the_kind_of_a_dependent_is_woken_when_that_is_gone() {
    let mut world = World::new(
        "both  cm/o @ns uid=o finalizers=[orphan] deleting
         graph late/1 @ns uid=1 owners=[cm/o#o]",
    );
    assert!(matches!(world.orphan("o"), Outcome::WaitForKind { .. }));
    // The definition is deleted for good; its objects leave the graph.
    world.line(&["gone", "late/1", "@ns", "uid=1"].map(str::to_owned));
    world.effects();
    world.look_again();
    expect![[r#"AttemptToOrphan(Uid("o"))"#]].assert_eq(&world.effects());
}

#[test]
fn d12_no_release_without_a_uid_or_a_version() {
    let world = "
        both cm/o @ns uid=o finalizers=[orphan] deleting
        both w/1 @ns uid=1 owners=[cm/o#o]
        both w/2 @ns uid=2 owners=[cm/o#o]
        live w/1 @ns uid=1 rv= owners=[cm/o#o]
        live w/2 @ns owners=[cm/o#o]";
    let mut world = World::new(world);
    assert!(matches!(world.orphan("o"), Outcome::Retry(_)));
    assert!(!world.transcript().contains("JsonMerge"));
}

/// Found by simulation: a dependent that was released and then given the reference again, while its owner's orphaning is
/// still under way, is released again.
#[test]
fn o2_a_dependent_that_names_the_owner_again_is_released_again() {
    check(
        "o",
        "
        both cm/o @ns uid=o finalizers=[orphan] deleting
        both cm/1 @ns uid=1 owners=[cm/o#o!]
        after #1 both cm/1 @ns uid=1 rv=5 owners=[cm/o#o!]",
        expect![[r#"
            patch configmaps ns/1 StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"uid":"1"}} -> uid=1 rv=1'
            - 1: lives; 1 owner references removed
            patch configmaps ns/1 StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"uid":"1"}} -> uid=1 rv=5'
            - 1: lives; 1 owner references removed
            read configmaps ns/o -> uid=o rv=1
            patch configmaps ns/o JsonMerge {"metadata":{"finalizers":[],"resourceVersion":"1","uid":"o"}} -> uid=o rv=1'
            = finalizer orphan removed
        "#]],
    );
}

/// Found by simulation: the definition was deleted, and its objects with it, while others were being released; the owner
/// waited for the kind all the same, until discovery looked again.
#[test]
fn o2_an_owner_waits_for_no_kind_of_which_no_dependent_is_left() {
    let world = "
        both  cm/o @ns uid=o rv=5 finalizers=[orphan] deleting
        both  cm/1 @ns uid=1 owners=[cm/o#o]
        graph late/2 @ns uid=2 owners=[cm/o#o]
        after #1 gone late/2 @ns uid=2";
    let mut world = World::new(world);
    assert!(matches!(world.orphan("o"), Outcome::Retry(_)));
    world.orphan("o");
    expect![[r#"
        patch configmaps ns/1 StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"uid":"1"}} -> uid=1 rv=1'
        - 1: lives; 1 owner references removed
        - 2: waits until the kind Late of late.example.com/v1 is served
        = will be tried again: 1 dependents not orphaned; the first waits until the kind Late of late.example.com/v1 is served
        patch configmaps ns/1 StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"uid":"1"}} -> uid=1 rv=1''
        - 1: lives; 1 owner references removed
        read configmaps ns/o -> uid=o rv=5
        patch configmaps ns/o JsonMerge {"metadata":{"finalizers":[],"resourceVersion":"5","uid":"o"}} -> uid=o rv=5'
        = finalizer orphan removed
    "#]].assert_eq(&world.transcript());
}

/// The dependent of the kind that nothing serves went, and one came meanwhile of the version that is served.
#[test]
fn o2_an_owner_does_not_wait_for_one_version_of_a_kind_where_it_has_dependents_of_another() {
    let mut world = World::new(
        "both  cm/o @ns uid=o rv=5 finalizers=[orphan] deleting
         both  cm/1 @ns uid=1 owners=[cm/o#o]
         graph old/2 @ns uid=2 owners=[cm/o#o]
         after #1 gone old/2 @ns uid=2
         after #1 both w/3 @ns uid=3 owners=[cm/o#o]",
    );
    let end = world.orphan("o");
    assert!(matches!(end, Outcome::Retry(_)), "{end}");
}

/// What that watch has to show may name the owner, and when the owner is gone nothing but this process knows that it was
/// orphaned: a restart, and the dependent would be deleted.
#[test]
fn o2_an_owner_keeps_its_finalizer_while_a_watch_hears_nothing() {
    let mut world = World::new(
        "both cm/o @ns uid=o rv=5 finalizers=[orphan] deleting
         both cm/1 @ns uid=1 owners=[cm/o#o]
         deaf #2",
    );
    world.orphan("o");
    world.line(&["graph", "cm/1", "@ns", "uid=1", "rv=2"].map(str::to_owned));
    world.now += Duration::from_secs(1);
    world.orphan("o");
    world.line(&["graph", "w/late", "@ns", "uid=l", "rv=7", "owners=[cm/o#o]"].map(str::to_owned));
    world.line(&["live", "w/late", "@ns", "uid=l", "rv=7", "owners=[cm/o#o]"].map(str::to_owned));
    world.line(&["hears", "#2"].map(str::to_owned));
    world.orphan("o");
    world.line(&["graph", "w/late", "@ns", "uid=l", "rv=8"].map(str::to_owned));
    world.now += Duration::from_secs(1);
    world.orphan("o");
    expect![[r#"
        patch configmaps ns/1 StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"uid":"1"}} -> uid=1 rv=1'
        - 1: lives; 1 owner references removed
        read configmaps ns/o -> uid=o rv=5
        = will be tried again in 1000 ms: finalizer orphan of configmaps ns/o not removed: a watch is not open, and may have more dependents to show
        read configmaps ns/o -> uid=o rv=5
        = will be tried again in 1000 ms: finalizer orphan of configmaps ns/o not removed: a watch is not open, and may have more dependents to show
        patch widgets.example.com ns/late StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"uid":"l"}} -> 415
        read widgets.example.com ns/late -> uid=l rv=7
        patch widgets.example.com ns/late JsonMerge {"metadata":{"ownerReferences":[],"resourceVersion":"7","uid":"l"}} -> uid=l rv=7'
        - l: lives; 1 owner references removed
        = will be tried again in 1000 ms: ConfigMap.v1 ns/o (o) stays: a watch is not open, and may have more dependents to show
        read configmaps ns/o -> uid=o rv=5
        patch configmaps ns/o JsonMerge {"metadata":{"finalizers":[],"resourceVersion":"5","uid":"o"}} -> uid=o rv=5'
        = finalizer orphan removed
    "#]].assert_eq(&world.transcript());
}

/// A kind whose watch is broken must not stop every orphaning for ever.
#[test]
fn s3_o2_a_watch_that_stays_deaf_holds_owners_up_for_45_seconds() {
    let mut world = World::new(
        "both cm/o @ns uid=o rv=5 finalizers=[orphan] deleting
         both cm/p @ns uid=p rv=6 finalizers=[orphan] deleting
         deaf #2",
    );
    for _ in 0..45 {
        assert!(matches!(world.orphan("o"), Outcome::RetryAfter(..)));
        world.now += Duration::from_secs(1);
    }
    world.transcript();
    world.orphan("o");
    world.orphan("p");
    expect![[r#"
        read configmaps ns/o -> uid=o rv=5
        patch configmaps ns/o JsonMerge {"metadata":{"finalizers":[],"resourceVersion":"5","uid":"o"}} -> uid=o rv=5'
        = finalizer orphan removed
        read configmaps ns/p -> uid=p rv=6
        patch configmaps ns/p JsonMerge {"metadata":{"finalizers":[],"resourceVersion":"6","uid":"p"}} -> uid=p rv=6'
        = finalizer orphan removed
    "#]].assert_eq(&world.transcript());
}
