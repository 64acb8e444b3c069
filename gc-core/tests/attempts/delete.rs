//! Attempts to delete, as transcripts: what is asked of the server, what it answers, how the attempt ends.

use std::time::Duration;

use crate::world::World;
use expect_test::{Expect, expect};
use gc_core::{Options, Outcome, Refusal, Reply, Resource, Target, Why};
use gc_graph::{Coordinate, Uid};

/// Runs one attempt at `uid` in the world and compares the transcript.
#[track_caller]
fn check(uid: &str, text: &str, expected: Expect) {
    let mut world = World::new(text);
    world.attempt(uid);
    expected.assert_eq(&world.transcript());
}

#[test]
fn d1_what_left_the_graph_or_is_being_deleted_costs_nothing() {
    check(
        "x",
        "",
        expect![[r#"
        = has left the graph
    "#]],
    );
    check(
        "c",
        "graph cm/child @ns uid=c owners=[cm/owner#o] deleting",
        expect![[r#"
        = is already being deleted
    "#]],
    );
}

#[test]
fn d4_no_owners_no_request() {
    check(
        "c",
        "both cm/child @ns uid=c",
        expect![[r#"
        = has no owners
    "#]],
    );
}

#[test]
fn d17_owners_that_the_graph_knows_to_be_alive_cost_no_request() {
    let world = "
        both cm/owner @ns uid=o
        both node/n uid=n
        both cm/child @ns uid=c owners=[cm/owner#o! node/n#n]";
    check(
        "c",
        world,
        expect![[r#"
        = has an owner that lives
    "#]],
    );
}

#[test]
fn d2_the_live_object_decides_not_the_graph() {
    // The reference was removed since the watch last spoke.
    let world = "
        graph cm/child @ns uid=c owners=[cm/owner#o]
        live  cm/child @ns uid=c rv=2";
    check(
        "c",
        world,
        expect![[r#"
        read configmaps ns/child -> uid=c rv=2
        = has no owners
    "#]],
    );
}

#[test]
fn d2_kubernetes_114603_a_reference_to_a_new_owner_saves_the_object() {
    let world = "
        graph cm/child @ns uid=c rv=10 owners=[cm/gone#g]
        live  cm/child @ns uid=c rv=10 owners=[cm/gone#g]
        live  cm/new   @ns uid=n
        after #2 live cm/child @ns uid=c rv=11 owners=[cm/new#n]";
    check(
        "c",
        world,
        expect![[r#"
        read configmaps ns/child -> uid=c rv=10
        read configmaps ns/gone -> 404
        delete configmaps ns/child uid=c rv=10 Background -> 409
        read configmaps ns/child -> uid=c rv=11
        read configmaps ns/new -> uid=n rv=1
        = has an owner that lives
    "#]],
    );
}

#[test]
fn d5_d10_an_absent_owner_condemns_its_dependent() {
    check(
        "c",
        "both cm/child @ns uid=c rv=7 owners=[cm/owner#o!]",
        expect![[r#"
        read configmaps ns/child -> uid=c rv=7
        read configmaps ns/owner -> 404
        delete configmaps ns/child uid=c rv=7 Background -> ok
        = deleted (Background)
    "#]],
    );
}

#[test]
fn d5_an_owner_that_was_recreated_is_another_object() {
    let world = "
        both cm/child @ns uid=c owners=[cm/owner#o]
        live cm/owner @ns uid=o2";
    check(
        "c",
        world,
        expect![[r#"
        read configmaps ns/child -> uid=c rv=1
        read configmaps ns/owner -> uid=o2 rv=1
        delete configmaps ns/child uid=c rv=1 Background -> ok
        = deleted (Background)
    "#]],
    );
}

#[test]
fn d5_an_absent_owner_is_read_once() {
    let mut world = World::new(
        "both cm/a @ns uid=a owners=[cm/owner#o]
         both cm/b @ns uid=b owners=[cm/owner#o]",
    );
    world.attempt("a");
    world.transcript();
    world.attempt("b");
    expect![[r#"
        read configmaps ns/b -> uid=b rv=1
        delete configmaps ns/b uid=b rv=1 Background -> ok
        = deleted (Background)
    "#]]
    .assert_eq(&world.transcript());
}

#[test]
fn d5_kubernetes_65200_absence_in_one_namespace_says_nothing_of_another() {
    for order in [["bad", "good"], ["good", "bad"]] {
        let mut world = World::new(
            "live cm/owner @a uid=o
             both cm/good @a uid=good owners=[cm/owner#o]
             both cm/bad  @b uid=bad  owners=[cm/owner#o]",
        );
        let ends: Vec<String> = order.iter().map(|uid| format!("{uid}: {}", world.attempt(uid))).collect();
        assert!(ends.contains(&"good: has an owner that lives".to_owned()), "{ends:?}");
        assert!(ends.contains(&"bad: deleted (Background)".to_owned()), "{ends:?}");
    }
}

#[test]
fn d5_kubernetes_54940_a_cluster_scoped_owner_is_read_without_a_namespace() {
    check(
        "c",
        "live node/n uid=n\nboth cm/child @ns uid=c owners=[node/n#n]",
        expect![[r#"
        read configmaps ns/child -> uid=c rv=1
        read nodes n -> uid=n rv=1
        = has an owner that lives
    "#]],
    );
}

#[test]
fn d6_a_cluster_scoped_item_with_a_namespaced_owner_is_left_alone() {
    check(
        "n",
        "both node/n uid=n owners=[cm/owner#o]",
        expect![[r#"
            read nodes n -> uid=n rv=1
            = names an owner that can never be resolved (a namespaced kind without a namespace, or an impossible name)
        "#]],
    );
    // Nor is the virtual owner that such an item made up asked for under a path that means something else.
    check(
        "o",
        "graph node/n uid=n owners=[cm/owner#o]",
        expect![[r#"
            = ConfigMap.v1 owner (o) cannot be asked for
        "#]],
    );
}

#[test]
fn d6_a_name_that_no_object_can_have_is_left_alone() {
    for name in ["..", "a%2Fb"] {
        let mut world = World::new(&format!("both cm/child @ns uid=c owners=[cm/{name}#o]"));
        assert_eq!(world.attempt("c"), Outcome::Forget(Why::UnresolvableOwner));
        assert!(matches!(world.attempt("o"), Outcome::Impossible(_)));
        let read = format!("read configmaps ns/{name} ");
        assert!(!world.transcript().contains(&read), "{name} must not become part of a path");
    }
}

#[test]
fn d6_such_an_item_does_not_condemn_those_who_mean_the_owner_rightly() {
    // kubernetes/kubernetes#98040: the virtual owner has no namespace, and its absence there is no absence.
    let mut world = World::new(
        "graph node/n uid=n owners=[cm/owner#o]
         both  cm/good @a uid=good owners=[cm/owner#o]
         live  cm/owner @a uid=o",
    );
    world.attempt("o");
    let end = world.attempt("good");
    assert_eq!(end.to_string(), "has an owner that lives");
}

#[test]
fn d7_d17_an_unknown_kind_is_waited_for_and_its_items_are_woken() {
    let mut world = World::new("both cm/child @ns uid=c owners=[late/owner#o]");
    world.effects();
    world.attempt("c");
    world.attempt("o");
    expect![[r#"
        read configmaps ns/child -> uid=c rv=1
        = waits until the kind Late of late.example.com/v1 is served
        = waits until the kind Late of late.example.com/v1 is served
    "#]]
    .assert_eq(&world.transcript());
    assert_eq!(world.state.waiting_for_kind_len(), (2, 1));
    world.serve_everything();
    expect![[r#"
        AttemptToDelete(Uid("c"))
        AttemptToDelete(Uid("o"))"#]]
    .assert_eq(&world.effects());
    assert_eq!(world.state.waiting_for_kind_len(), (0, 0));
}

#[test]
fn d8_dangling_and_waiting_references_go_in_one_patch() {
    let world = "
        live cm/solid @ns uid=s
        live cm/waits @ns uid=w finalizers=[foregroundDeletion] deleting
        both cm/child @ns uid=c rv=3 owners=[cm/solid#s cm/gone#g cm/waits#w!]";
    check(
        "c",
        world,
        expect![[r#"
            read configmaps ns/child -> uid=c rv=3
            read configmaps ns/solid -> uid=s rv=1
            read configmaps ns/gone -> 404
            read configmaps ns/waits -> uid=w rv=1
            patch configmaps ns/child StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"g"},{"$patch":"delete","uid":"w"}],"resourceVersion":"3","uid":"c"}} -> uid=c rv=3'
            = lives; 2 owner references removed
        "#]],
    );
}

#[test]
fn d8_d12_a_custom_resource_gets_a_json_merge_patch_and_is_remembered() {
    let mut world = World::new(
        "both cm/solid @ns uid=s
         both w/one @ns uid=1 rv=3 owners=[cm/solid#s* cm/gone#g!]
         both w/two @ns uid=2 rv=4 owners=[cm/gone#g cm/solid#s!]",
    );
    world.attempt("1");
    world.attempt("2");
    expect![[r#"
        read widgets.example.com ns/one -> uid=1 rv=3
        read configmaps ns/gone -> 404
        patch widgets.example.com ns/one StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"g"}],"resourceVersion":"3","uid":"1"}} -> 415
        patch widgets.example.com ns/one JsonMerge {"metadata":{"ownerReferences":[{"apiVersion":"v1","controller":true,"kind":"ConfigMap","name":"solid","uid":"s"}],"resourceVersion":"3","uid":"1"}} -> uid=1 rv=3'
        = lives; 1 owner references removed
        read widgets.example.com ns/two -> uid=2 rv=4
        patch widgets.example.com ns/two JsonMerge {"metadata":{"ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":true,"kind":"ConfigMap","name":"solid","uid":"s"}],"resourceVersion":"4","uid":"2"}} -> uid=2 rv=4'
        = lives; 1 owner references removed
    "#]].assert_eq(&world.transcript());
}

#[test]
fn d8_a_reference_with_the_uid_of_one_that_stays_does_not_take_it_along() {
    let world = "
        both cm/solid @ns uid=s
        both cm/child @ns uid=c rv=3 owners=[cm/solid#s cm/wrong#s]";
    check(
        "c",
        world,
        expect![[r#"
            read configmaps ns/child -> uid=c rv=3
            read configmaps ns/wrong -> 404
            patch configmaps ns/child JsonMerge {"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"solid","uid":"s"}],"resourceVersion":"3","uid":"c"}} -> uid=c rv=3'
            = lives; 1 owner references removed
        "#]],
    );
}

#[test]
fn d8_a_reference_that_was_mended_meanwhile_stays() {
    let world = "
        both cm/solid @ns uid=s
        both cm/other @ns uid=o
        both cm/child @ns uid=c rv=3 owners=[cm/solid#s cm/gone#g]
        after #2 live cm/child @ns uid=c rv=4 owners=[cm/solid#s cm/other#o]";
    check(
        "c",
        world,
        expect![[r#"
        read configmaps ns/child -> uid=c rv=3
        read configmaps ns/gone -> 404
        patch configmaps ns/child StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"g"}],"resourceVersion":"3","uid":"c"}} -> 409
        read configmaps ns/child -> uid=c rv=4
        = has an owner that lives
    "#]],
    );
}

#[test]
fn d9_an_item_with_dependents_of_its_own_goes_in_the_foreground() {
    let world = "
        live cm/owner @ns uid=o finalizers=[foregroundDeletion] deleting
        both cm/child @ns uid=c rv=3 owners=[cm/owner#o!]
        both cm/grandchild @ns uid=g owners=[cm/child#c!]";
    check(
        "c",
        world,
        expect![[r#"
        read configmaps ns/child -> uid=c rv=3
        read configmaps ns/owner -> uid=o rv=1
        delete configmaps ns/child uid=c rv=3 Foreground -> ok
        = deleted (Foreground)
    "#]],
    );
}

#[test]
fn d9_kubernetes_50047_a_cycle_is_unblocked_first() {
    let world = "
        live  cm/a @ns uid=a finalizers=[foregroundDeletion] deleting owners=[cm/c#c!]
        graph cm/a @ns uid=a finalizers=[foregroundDeletion] deleting owners=[cm/c#c!]
        both  cm/b @ns uid=b owners=[cm/a#a!]
        both  cm/c @ns uid=c rv=3 owners=[cm/a#a! cm/b#b]
        gone  cm/b @ns uid=b";
    check(
        "c",
        world,
        expect![[r#"
        read configmaps ns/c -> uid=c rv=3
        read configmaps ns/a -> uid=a rv=1
        patch configmaps ns/c StrategicMerge {"metadata":{"ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":false,"kind":"ConfigMap","name":"a","uid":"a"}],"resourceVersion":"3","uid":"c"}} -> uid=c rv=3'
        delete configmaps ns/c uid=c rv=3' Foreground -> ok
        = deleted (Foreground)
    "#]],
    );
    let custom = "
        live  w/a @ns uid=a finalizers=[foregroundDeletion] deleting owners=[w/c#c!]
        graph w/a @ns uid=a finalizers=[foregroundDeletion] deleting owners=[w/c#c!]
        both  w/c @ns uid=c rv=3 owners=[w/a#a!*]";
    check(
        "c",
        custom,
        expect![[r#"
        read widgets.example.com ns/c -> uid=c rv=3
        read widgets.example.com ns/a -> uid=a rv=1
        patch widgets.example.com ns/c StrategicMerge {"metadata":{"ownerReferences":[{"apiVersion":"example.com/v1","blockOwnerDeletion":false,"controller":true,"kind":"Widget","name":"a","uid":"a"}],"resourceVersion":"3","uid":"c"}} -> 415
        patch widgets.example.com ns/c JsonMerge {"metadata":{"ownerReferences":[{"apiVersion":"example.com/v1","blockOwnerDeletion":false,"controller":true,"kind":"Widget","name":"a","uid":"a"}],"resourceVersion":"3","uid":"c"}} -> uid=c rv=3'
        delete widgets.example.com ns/c uid=c rv=3' Foreground -> ok
        = deleted (Foreground)
    "#]],
    );
}

#[test]
fn d10_the_policy_is_explicit_and_follows_the_finalizers() {
    for (finalizers, policy) in [
        ("", "Background"),
        ("orphan", "Orphan"),
        ("foregroundDeletion", "Foreground"),
        ("foregroundDeletion,orphan", "Orphan"),
        ("other", "Background"),
    ] {
        let mut world = World::new(&format!("both cm/c @ns uid=c owners=[cm/o#o] finalizers=[{finalizers}]"));
        assert_eq!(world.attempt("c").to_string(), format!("deleted ({policy})"), "{finalizers}");
    }
}

#[test]
fn d11_a_busy_object_is_deleted_on_the_version_just_read() {
    let world = "
        both cm/c @ns uid=c rv=1 owners=[cm/o#o]
        after #2 live cm/c @ns uid=c rv=2 owners=[cm/o#o]
        after #4 live cm/c @ns uid=c rv=3 owners=[cm/o#o] finalizers=[orphan]";
    check(
        "c",
        world,
        expect![[r#"
        read configmaps ns/c -> uid=c rv=1
        read configmaps ns/o -> 404
        delete configmaps ns/c uid=c rv=1 Background -> 409
        read configmaps ns/c -> uid=c rv=2
        delete configmaps ns/c uid=c rv=2 Background -> 409
        read configmaps ns/c -> uid=c rv=3
        delete configmaps ns/c uid=c rv=3 Orphan -> ok
        = deleted (Orphan)
    "#]],
    );
}

#[test]
fn d11_ten_deletes_at_once_and_then_the_queue_spaces_them() {
    let mut script = "both cm/c @ns uid=c rv=0 owners=[cm/o#o]\n".to_owned();
    for i in 1..30 {
        script.push_str(&format!("after #{} live cm/c @ns uid=c rv={i} owners=[cm/o#o]\n", i * 2));
    }
    let mut world = World::new(&script);
    let end = world.attempt("c");
    assert_eq!(world.transcript().matches("delete ").count(), 10);
    expect!["will be tried again: configmaps ns/c not deleted: somebody else keeps writing to it"]
        .assert_eq(&end.to_string());
}

#[test]
fn d11_what_went_or_was_recreated_after_the_conflict_is_left_to_the_watch() {
    let world = "
        both cm/c @ns uid=c rv=1 owners=[cm/o#o]
        after #2 live cm/c @ns uid=c2 rv=2";
    check(
        "c",
        world,
        expect![[r#"
        read configmaps ns/c -> uid=c rv=1
        read configmaps ns/o -> 404
        delete configmaps ns/c uid=c rv=1 Background -> 409
        read configmaps ns/c -> uid=c2 rv=2
        = will be tried again in 2000 ms: configmaps ns/c is gone for a read, but not for the watch
    "#]],
    );
}

#[test]
fn d11_no_delete_without_a_version() {
    let world = "
        both cm/child @ns uid=c owners=[cm/gone#g]
        after #2 live cm/child @ns uid=c rv= owners=[cm/gone#g]";
    check(
        "c",
        world,
        expect![[r#"
        read configmaps ns/child -> uid=c rv=1
        read configmaps ns/gone -> 404
        delete configmaps ns/child uid=c rv=1 Background -> 409
        read configmaps ns/child -> uid=c rv=
        = will be tried again: configmaps ns/child was read without a UID or a version: never deleted so
    "#]],
    );
}

#[test]
fn d14_a_virtual_item_that_exists_is_looked_at_again() {
    check(
        "o",
        "graph cm/c @ns uid=c owners=[cm/o#o]\nlive cm/o @ns uid=o",
        expect![[r#"
        read configmaps ns/o -> uid=o rv=1
        = will be tried again: it exists, but no watch has shown it yet
    "#]],
    );
}

#[test]
fn g9_kubernetes_56121_a_virtual_item_that_does_not_exist_is_virtually_deleted() {
    let mut world = World::new("graph cm/c @ns uid=c owners=[cm/o#o]");
    let end = world.attempt("o");
    expect![[r#"
        read configmaps ns/o -> 404
        = ConfigMap.v1 ns/o (o) does not exist
    "#]]
    .assert_eq(&world.transcript());
    let Outcome::VirtuallyDeleted(coordinate, asked_at) = end else { panic!("{end}") };
    world.effects();
    world.state.virtual_delete(&coordinate, asked_at, &mut world.effects);
    expect![[r#"AttemptToDelete(Uid("c"))"#]].assert_eq(&world.effects());
    assert_eq!(world.state.graph().virtual_len(), 0);
    assert_eq!(world.state.absent_len(), 1);
}

#[test]
fn d16_nothing_but_a_404_that_names_the_object_proves_absence() {
    for (reply, kubernetes) in [
        ("plain 404", "openshift#14646, kubernetes#104342"),
        ("503", "kubernetes#58577"),
        ("403", "stashed#343"),
        ("422", "an answer that does not fit"),
    ] {
        let mut world = World::new(&format!("both cm/c @ns uid=c owners=[cm/o#o]\n#2 {reply}"));
        let end = world.attempt("c");
        assert!(matches!(end, Outcome::Retry(_)), "{kubernetes}: {end}");
        assert!(!world.transcript().contains("delete "), "{kubernetes}");
        assert_eq!(world.state.absent_len(), 0, "{kubernetes}");
    }
}

#[test]
fn d16_kubernetes_98471_the_graph_holds_the_owner_and_the_read_says_404() {
    // The owner is observed and waiting, so that the server is asked.
    let mut world = World::new(
        "graph cm/o @ns uid=o finalizers=[foregroundDeletion] deleting
         both  cm/c @ns uid=c owners=[cm/o#o]",
    );
    world.attempt("c");
    world.now += Duration::from_millis(500);
    world.attempt("c");
    expect![[r#"
        read configmaps ns/c -> uid=c rv=1
        read configmaps ns/o -> 404
        = will be tried again in 2000 ms: owner ConfigMap.v1 ns/o (o) is absent for a read; that is to be confirmed
        read configmaps ns/c -> uid=c rv=1
        read configmaps ns/o -> 404
        = will be tried again in 2000 ms: owner ConfigMap.v1 ns/o (o) is absent for a read; that is to be confirmed
    "#]].assert_eq(&world.transcript());
    // A second read after a delay agrees with the first one: the watch is behind.
    world.now += Duration::from_secs(2);
    world.attempt("c");
    expect![[r#"
        read configmaps ns/c -> uid=c rv=1
        read configmaps ns/o -> 404
        delete configmaps ns/c uid=c rv=1 Background -> ok
        = deleted (Background)
    "#]]
    .assert_eq(&world.transcript());
    assert_eq!(world.state.absence_unconfirmed_total(), 2);
}

#[test]
fn d16_kubernetes_104342_as_many_confirmations_as_asked_for() {
    let options = Options { absence_confirmations: 2, ..Options::default() };
    let mut world = World::with_options("both cm/c @ns uid=c owners=[cm/o#o]", options);
    assert!(matches!(world.attempt("c"), Outcome::RetryAfter(..)));
    assert_eq!(world.state.absence_unconfirmed_total(), 1);
    // The owner was there all along.
    world.now += Duration::from_secs(2);
    world.line(&["live".into(), "cm/o".into(), "@ns".into(), "uid=o".into()]);
    assert_eq!(world.attempt("c").to_string(), "has an owner that lives");
}

#[test]
fn d16_the_item_itself_is_gone_for_a_read_but_not_for_the_watch() {
    let mut world = World::new("graph cm/c @ns uid=c owners=[cm/o#o]\nlive cm/o @ns uid=o");
    world.attempt("c");
    world.now += Duration::from_secs(3);
    world.attempt("c");
    expect![[r#"
        read configmaps ns/c -> 404
        = will be tried again in 2000 ms: configmaps ns/c is gone for a read, but not for the watch
        read configmaps ns/c -> 404
        = ConfigMap.v1 ns/c (c) does not exist
    "#]]
    .assert_eq(&world.transcript());
}

#[test]
fn d3_blocking_dependents_are_sent_on_their_way_without_a_request() {
    let world = "
        both cm/o @ns uid=o finalizers=[foregroundDeletion] deleting
        both cm/1 @ns uid=1 owners=[cm/o#o!]
        both cm/2 @ns uid=2 owners=[cm/o#o!] deleting
        both cm/3 @ns uid=3 owners=[cm/o#o]";
    let mut it = World::new(world);
    let end = it.attempt("o");
    expect![[r#"Enqueue([Uid("1")])"#]].assert_eq(&format!("{end:?}"));
    let waits = format!("{world}\ngone cm/1 @ns uid=1");
    check(
        "o",
        &waits,
        expect![[r#"
        = waits for blocking dependents that are being deleted
    "#]],
    );
}

/// Found by the small worlds: without this, objects that users delete in the foreground, and that block each other, stay
/// for ever.
#[test]
fn d3_objects_that_wait_for_each_other_in_a_circle_are_let_go() {
    let circle = "
        both cm/a @ns uid=a finalizers=[foregroundDeletion] deleting owners=[cm/c#c!]
        both cm/b @ns uid=b finalizers=[foregroundDeletion] deleting owners=[cm/a#a!]
        both cm/c @ns uid=c rv=3 finalizers=[foregroundDeletion] deleting owners=[cm/x#x! cm/b#b!]
        both cm/x @ns uid=x finalizers=[foregroundDeletion] deleting";
    check(
        "c",
        circle,
        expect![[r#"
        read configmaps ns/c -> uid=c rv=3
        patch configmaps ns/c StrategicMerge {"metadata":{"ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":false,"kind":"ConfigMap","name":"b","uid":"b"}],"resourceVersion":"3","uid":"c"}} -> uid=c rv=3'
        = waited for itself; 1 owner references do not block any more
    "#]],
    );
    // Whoever is read has been opened meanwhile.
    check(
        "c",
        &format!(
            "{circle}\nlive cm/c @ns uid=c rv=4 finalizers=[foregroundDeletion] deleting owners=[cm/x#x! cm/b#b]"
        ),
        expect![[r#"
            read configmaps ns/c -> uid=c rv=4
            = waits for blocking dependents that are being deleted
        "#]],
    );
    // A second DELETE wants its dependents orphaned.
    check(
        "c",
        &format!("{circle}\nlive cm/c @ns uid=c rv=4 finalizers=[orphan] deleting owners=[cm/x#x! cm/b#b!]"),
        expect![[r#"
            read configmaps ns/c -> uid=c rv=4
            = waits for blocking dependents that are being deleted
        "#]],
    );
    // x is above the circle, and waits for what is in it.
    check(
        "x",
        circle,
        expect![[r#"
        = waits for blocking dependents that are being deleted
    "#]],
    );
    let custom = "
        both w/a @ns uid=a rv=3 finalizers=[foregroundDeletion] deleting owners=[w/a#a!*]
        #3 conflict";
    check(
        "a",
        custom,
        expect![[r#"
        read widgets.example.com ns/a -> uid=a rv=3
        patch widgets.example.com ns/a StrategicMerge {"metadata":{"ownerReferences":[{"apiVersion":"example.com/v1","blockOwnerDeletion":false,"controller":true,"kind":"Widget","name":"a","uid":"a"}],"resourceVersion":"3","uid":"a"}} -> 415
        patch widgets.example.com ns/a JsonMerge {"metadata":{"ownerReferences":[{"apiVersion":"example.com/v1","blockOwnerDeletion":false,"controller":true,"kind":"Widget","name":"a","uid":"a"}],"resourceVersion":"3","uid":"a"}} -> 409
        read widgets.example.com ns/a -> uid=a rv=3
        patch widgets.example.com ns/a JsonMerge {"metadata":{"ownerReferences":[{"apiVersion":"example.com/v1","blockOwnerDeletion":false,"controller":true,"kind":"Widget","name":"a","uid":"a"}],"resourceVersion":"3","uid":"a"}} -> uid=a rv=3'
        = waited for itself; 1 owner references do not block any more
    "#]],
    );
}

#[test]
fn d3_what_waits_for_itself_through_a_reference_that_does_not_block_is_no_circle() {
    let chain = "
        both cm/a @ns uid=a finalizers=[foregroundDeletion] deleting owners=[cm/b#b]
        both cm/b @ns uid=b finalizers=[foregroundDeletion] deleting owners=[cm/a#a!]
        both cm/c @ns uid=c finalizers=[hold] deleting owners=[cm/b#b!]";
    check(
        "a",
        chain,
        expect![[r#"
        = waits for blocking dependents that are being deleted
    "#]],
    );
    check(
        "b",
        chain,
        expect![[r#"
        = waits for blocking dependents that are being deleted
    "#]],
    );
}

#[test]
fn d3_d13_the_finalizer_goes_when_nothing_blocks_and_the_others_keep_their_order() {
    let world = "
        both cm/o @ns uid=o rv=5 finalizers=[b,foregroundDeletion,a] deleting
        both cm/3 @ns uid=3 owners=[cm/o#o]";
    check(
        "o",
        world,
        expect![[r#"
        read configmaps ns/o -> uid=o rv=5
        patch configmaps ns/o JsonMerge {"metadata":{"finalizers":["b","a"],"resourceVersion":"5","uid":"o"}} -> uid=o rv=5'
        = finalizer foregroundDeletion removed
    "#]],
    );
}

#[test]
fn d13_conflicts_are_read_again_and_not_found_is_success() {
    let world = "
        both cm/o @ns uid=o rv=5 finalizers=[foregroundDeletion] deleting
        #2 conflict
        after #3 dead cm/o @ns";
    check(
        "o",
        world,
        expect![[r#"
            read configmaps ns/o -> uid=o rv=5
            patch configmaps ns/o JsonMerge {"metadata":{"finalizers":[],"resourceVersion":"5","uid":"o"}} -> 409
            read configmaps ns/o -> uid=o rv=5
            patch configmaps ns/o JsonMerge {"metadata":{"finalizers":[],"resourceVersion":"5","uid":"o"}} -> 404
            = will be tried again in 2000 ms: configmaps ns/o is gone for a read, but not for the watch
        "#]],
    );
}

#[test]
fn d13_another_object_under_that_name_keeps_its_finalizers() {
    let world = "
        graph cm/o @ns uid=o finalizers=[foregroundDeletion] deleting
        live  cm/o @ns uid=o2 finalizers=[foregroundDeletion] deleting";
    check(
        "o",
        world,
        expect![[r#"
        read configmaps ns/o -> uid=o2 rv=1
        = is gone
    "#]],
    );
}

#[test]
fn d13_a_finalizer_is_taken_only_from_what_is_being_deleted() {
    let world = "
        graph cm/o @ns uid=o finalizers=[foregroundDeletion] deleting
        live  cm/o @ns uid=o finalizers=[foregroundDeletion]";
    check(
        "o",
        world,
        expect![[r#"
        read configmaps ns/o -> uid=o rv=1
        = finalizer foregroundDeletion removed
    "#]],
    );
}

#[test]
fn d3_a_blocking_dependent_that_appears_meanwhile_keeps_the_finalizer() {
    let world = "
        both cm/o @ns uid=o finalizers=[foregroundDeletion] deleting
        after #1 graph cm/1 @ns uid=1 owners=[cm/o#o!]";
    check(
        "o",
        world,
        expect![[r#"
        read configmaps ns/o -> uid=o rv=1
        = will be tried again: finalizer foregroundDeletion of configmaps ns/o not removed: a new dependent appeared
    "#]],
    );
}

#[test]
fn kubernetes_131307_a_dependent_that_the_orphaning_did_not_see_lives() {
    // The owner was orphaned and is gone; its dependent's creation comes late.
    let world = "
        graph cm/o @ns uid=o finalizers=[orphan] deleting
        gone  cm/o @ns uid=o
        both  cm/late @ns uid=l rv=9 owners=[cm/o#o! cm/gone#g]";
    check(
        "l",
        world,
        expect![[r#"
            read configmaps ns/late -> uid=l rv=9
            read configmaps ns/gone -> 404
            patch configmaps ns/late StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"},{"$patch":"delete","uid":"g"}],"resourceVersion":"9","uid":"l"}} -> uid=l rv=9'
            = lives; 2 owner references removed
        "#]],
    );
}

/// The same of an owner that is in no namespace.
#[test]
fn kubernetes_131307_a_dependent_that_the_orphaning_of_a_cluster_scoped_owner_did_not_see_lives() {
    let world = "
        graph node/o uid=o finalizers=[orphan] deleting
        gone  node/o uid=o
        both  cm/late @ns uid=l rv=9 owners=[node/o#o]";
    check(
        "l",
        world,
        expect![[r#"
        read configmaps ns/late -> uid=l rv=9
        patch configmaps ns/late StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"resourceVersion":"9","uid":"l"}} -> uid=l rv=9'
        = lives; 1 owner references removed
    "#]],
    );
}

/// Found by simulation: the late dependent names the owner under another version of its kind.
#[test]
fn kubernetes_131307_a_late_dependent_may_name_another_version_of_the_owners_kind() {
    let world = "
        graph w/o @ns uid=o finalizers=[orphan] deleting
        gone  w/o @ns uid=o
        both  cm/late @ns uid=l rv=9 owners=[old/o#o]";
    check(
        "l",
        world,
        expect![[r#"
        read configmaps ns/late -> uid=l rv=9
        patch configmaps ns/late StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"resourceVersion":"9","uid":"l"}} -> uid=l rv=9'
        = lives; 1 owner references removed
    "#]],
    );
}

/// Found by simulation: while an owner is asked for, the watch shows that it was orphaned before it went.
#[test]
fn kubernetes_131307_an_orphaning_that_is_shown_while_the_owner_is_read_counts() {
    let world = "
        both  cm/c @ns uid=c rv=9 owners=[cm/o#o]
        after #2 graph cm/o @ns uid=o finalizers=[orphan] deleting
        after #2 gone cm/o @ns uid=o";
    check(
        "c",
        world,
        expect![[r#"
        read configmaps ns/c -> uid=c rv=9
        read configmaps ns/o -> 404
        patch configmaps ns/c StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"resourceVersion":"9","uid":"c"}} -> uid=c rv=9'
        = lives; 1 owner references removed
    "#]],
    );
}

/// The same while the object is read again after a conflict, and while its references are made non-blocking.
#[test]
fn kubernetes_131307_an_orphaning_that_is_shown_after_the_decision_counts() {
    let world = "
        both  cm/c @ns uid=c rv=9 owners=[cm/o#o]
        #3 conflict
        after #3 live cm/c @ns uid=c rv=10 owners=[cm/o#o]
        after #4 graph cm/o @ns uid=o finalizers=[orphan] deleting
        after #4 gone cm/o @ns uid=o";
    check(
        "c",
        world,
        expect![[r#"
        read configmaps ns/c -> uid=c rv=9
        read configmaps ns/o -> 404
        delete configmaps ns/c uid=c rv=9 Background -> 409
        read configmaps ns/c -> uid=c rv=10
        patch configmaps ns/c StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"resourceVersion":"10","uid":"c"}} -> uid=c rv=10'
        = lives; 1 owner references removed
    "#]],
    );
    let world = "
        both  cm/c @ns uid=c rv=9 owners=[cm/o#o! cm/w#w!]
        both  cm/w @ns uid=w finalizers=[foregroundDeletion] deleting
        both  cm/d @ns uid=d owners=[cm/c#c] finalizers=[foregroundDeletion] deleting
        after #4 graph cm/o @ns uid=o finalizers=[orphan] deleting
        after #4 gone cm/o @ns uid=o";
    check(
        "c",
        world,
        expect![[r#"
        read configmaps ns/c -> uid=c rv=9
        read configmaps ns/o -> 404
        read configmaps ns/w -> uid=w rv=1
        patch configmaps ns/c StrategicMerge {"metadata":{"ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":false,"kind":"ConfigMap","name":"o","uid":"o"},{"apiVersion":"v1","blockOwnerDeletion":false,"kind":"ConfigMap","name":"w","uid":"w"}],"resourceVersion":"9","uid":"c"}} -> uid=c rv=9'
        read configmaps ns/c -> uid=c rv=9'
        read configmaps ns/w -> uid=w rv=1
        patch configmaps ns/c StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"},{"$patch":"delete","uid":"w"}],"resourceVersion":"9'","uid":"c"}} -> uid=c rv=9''
        = lives; 2 owner references removed
    "#]],
    );
}

/// Found by simulation: the user wanted Orphan, Foreground and Orphan again. Our worker let the owner go in the last of these
/// states; the watch is behind, and shows the one before.
#[test]
fn kubernetes_131307_what_a_late_watch_shows_does_not_undo_an_orphaning() {
    let mut world = World::new(
        "graph cm/o @ns uid=o rv=10 finalizers=[orphan] deleting
         live  cm/o @ns uid=o rv=30 finalizers=[orphan] deleting",
    );
    world.orphan("o");
    for line in [
        "graph cm/o @ns uid=o rv=20 finalizers=[foregroundDeletion] deleting",
        "gone cm/o @ns uid=o rv=31 finalizers=[foregroundDeletion] deleting",
        "both cm/late @ns uid=l rv=9 owners=[cm/o#o!]",
    ] {
        world.line(&line.split_whitespace().map(String::from).collect::<Vec<_>>());
    }
    world.attempt("l");
    expect![[r#"
        read configmaps ns/o -> uid=o rv=30
        patch configmaps ns/o JsonMerge {"metadata":{"finalizers":[],"resourceVersion":"30","uid":"o"}} -> uid=o rv=30'
        = finalizer orphan removed
        read configmaps ns/late -> uid=l rv=9
        patch configmaps ns/late StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"resourceVersion":"9","uid":"l"}} -> uid=l rv=9'
        = lives; 1 owner references removed
    "#]].assert_eq(&world.transcript());
}

/// Found by simulation: an orphaned owner was held, its user wanted Foreground after all, and a restore undid that.
#[test]
fn kubernetes_131307_s7_an_orphaning_that_was_replaced_counts_again_after_a_restore() {
    let mut world = World::new(
        "both cm/o @ns uid=o rv=10 finalizers=[orphan,x] deleting
         graph cm/c @ns uid=c rv=9 owners=[cm/o#o!]",
    );
    world.orphan("o");
    world.transcript();
    for line in [
        "graph cm/o @ns uid=o rv=20 finalizers=[foregroundDeletion,x] deleting",
        "restored",
        "graph cm/o @ns uid=o rv=11 finalizers=[x] deleting",
        "both cm/c @ns uid=c rv=9 owners=[cm/o#o!]",
        "gone cm/o @ns uid=o rv=12 finalizers=[x] deleting",
    ] {
        world.line(&line.split_whitespace().map(String::from).collect::<Vec<_>>());
    }
    world.attempt("c");
    expect![[r#"
        read configmaps ns/c -> uid=c rv=9
        patch configmaps ns/c StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"resourceVersion":"9","uid":"c"}} -> uid=c rv=9'
        = lives; 1 owner references removed
    "#]].assert_eq(&world.transcript());
}

#[test]
fn an_orphaning_that_was_replaced_by_a_foreground_deletion_counts_no_more() {
    let world = "
        graph cm/o @ns uid=o finalizers=[orphan] deleting
        both  cm/o @ns uid=o finalizers=[foregroundDeletion] deleting
        both  cm/c @ns uid=c owners=[cm/o#o!]";
    check(
        "c",
        world,
        expect![[r#"
        read configmaps ns/c -> uid=c rv=1
        read configmaps ns/o -> uid=o rv=1
        delete configmaps ns/c uid=c rv=1 Background -> ok
        = deleted (Background)
    "#]],
    );
}

#[test]
fn s7_an_attempt_under_way_is_void_when_the_server_was_restored() {
    let mut world = World::new("both cm/c @ns uid=c owners=[cm/o#o]\nafter #2 restored");
    let end = world.attempt("c");
    expect![[r#"
        read configmaps ns/c -> uid=c rv=1
        read configmaps ns/o -> 404
        = will be tried again: the server's data was restored: what was read before is void
    "#]]
    .assert_eq(&world.transcript());
    assert!(matches!(end, Outcome::Retry(_)));
    assert_eq!(world.state.absent_len(), 0);
}

#[test]
fn s7_what_is_observed_again_is_no_longer_absent() {
    let mut world = World::new(
        "both cm/c @ns uid=c owners=[cm/o#o]
         live cm/o @ns uid=o",
    );
    world.line(&["graph".into(), "cm/o".into(), "@ns".into(), "uid=o".into()]);
    world.line(&["gone".into(), "cm/o".into(), "@ns".into(), "uid=o".into()]);
    assert_eq!(world.state.absent_len(), 1);
    world.line(&["graph".into(), "cm/o".into(), "@ns".into(), "uid=o".into()]);
    assert_eq!(world.state.absent_len(), 0);
    assert_eq!(world.attempt("c").to_string(), "has an owner that lives");
}

#[test]
fn d16_an_answer_without_a_uid_is_no_other_object() {
    // A proxy's login page as JSON, or an aggregated server that gives its objects no UIDs.
    for (what, uid, said) in [
        (
            "live cm/owner @ns",
            "c",
            "read configmaps ns/child -> uid=c rv=1\nread configmaps ns/owner -> uid= rv=1\n",
        ),
        ("live cm/owner @ns", "o", "read configmaps ns/owner -> uid= rv=1\n"),
    ] {
        let world = format!("both cm/child @ns uid=c owners=[cm/owner#o]\n{what}");
        let mut world = World::new(&world);
        let outcome = world.attempt(uid);
        assert!(matches!(outcome, Outcome::Retry(_)), "{outcome}");
        assert!(world.transcript().starts_with(said));
    }
}

#[test]
fn d12_no_patch_without_a_version() {
    let world = "
        both cm/child @ns uid=c owners=[cm/solid#s cm/gone#g]
        live cm/child @ns uid=c rv= owners=[cm/solid#s cm/gone#g]
        live cm/solid @ns uid=s";
    check(
        "c",
        world,
        expect![[r#"
            read configmaps ns/child -> uid=c rv=
            = will be tried again: configmaps ns/child was read without a version: never changed so
        "#]],
    );
}

#[test]
fn d13_no_finalizer_goes_without_a_version() {
    let world = "both cm/o @ns uid=o rv= finalizers=[foregroundDeletion] deleting";
    check(
        "o",
        world,
        expect![[r#"
            read configmaps ns/o -> uid=o rv=
            = will be tried again: finalizer foregroundDeletion of configmaps ns/o not removed: it was read without a version
        "#]],
    );
}

#[test]
fn g5b_d17_an_item_that_waited_under_its_old_version_is_woken_under_the_new_one() {
    let mut world = World::new("graph old/item @ns uid=i owners=[cm/gone#g]");
    world.attempt("i");
    world.effects();
    world.line(&["graph", "w/item", "@ns", "uid=i", "rv=1", "owners=[cm/gone#g]"].map(str::to_owned));
    world.look_again();
    expect![[r#"AttemptToDelete(Uid("i"))"#]].assert_eq(&world.effects());
    world.look_again();
    assert_eq!((world.effects(), world.state.waiting_for_kind_len()), (String::new(), (0, 0)));
}

#[test]
fn d17_an_item_goes_on_waiting_while_a_reference_of_it_names_the_kind() {
    let mut world = World::new("both cm/child @ns uid=c owners=[old/owner#o]");
    world.attempt("c");
    world.attempt("o");
    world.effects();
    world.look_again();
    assert_eq!((world.effects(), world.state.waiting_for_kind_len()), (String::new(), (2, 1)));
}

#[test]
fn s7_an_owner_that_a_read_shows_alive_is_no_longer_absent() {
    // The server was restored in a way that its versions do not betray (etcd's --bump-revision).
    let world = "
        graph cm/owner @ns uid=o
        graph cm/first @ns uid=f owners=[cm/owner#o]
        gone  cm/owner @ns uid=o
        both  cm/child @ns uid=c owners=[cm/owner#o]
        live  cm/owner @ns uid=o";
    let mut world = World::new(world);
    world.attempt("o");
    world.attempt("c");
    expect![[r#"
        read configmaps ns/owner -> uid=o rv=1
        = will be tried again: it exists, but no watch has shown it yet
        read configmaps ns/child -> uid=c rv=1
        read configmaps ns/owner -> uid=o rv=1
        = has an owner that lives
    "#]]
    .assert_eq(&world.transcript());
}

#[test]
fn s7_a_proof_that_has_aged_is_read_again() {
    // The server was restored, and nothing has shown that yet.
    let world = "
        both cm/owner @ns uid=o
        both cm/first @ns uid=f owners=[cm/owner#o]
        both cm/child @ns uid=c owners=[cm/owner#o]
        gone cm/owner @ns uid=o";
    let mut world = World::new(world);
    world.attempt("f");
    world.now += Options::default().proof_age_max + Duration::from_millis(1);
    world.attempt("c");
    expect![[r#"
        read configmaps ns/first -> uid=f rv=1
        delete configmaps ns/first uid=f rv=1 Background -> ok
        = deleted (Background)
        read configmaps ns/child -> uid=c rv=1
        read configmaps ns/owner -> uid=o rv=1
        = has an owner that lives
    "#]]
    .assert_eq(&world.transcript());
}

#[test]
fn s7_a_proof_that_is_read_again_is_young_again() {
    let mut world = World::new(
        "both cm/child @ns uid=c owners=[cm/owner#o]
         both cm/other @ns uid=d owners=[cm/owner#o]",
    );
    world.attempt("c");
    world.now += Options::default().proof_age_max;
    world.attempt("d");
    assert_eq!(world.transcript().matches("read configmaps ns/owner").count(), 1);
}

#[test]
fn d6_a_coordinate_that_a_cluster_scoped_item_made_up_is_never_remembered_as_absent() {
    for (namespace, remembered) in [("", 0), ("ns", 1)] {
        let mut world = World::new("both cm/child @ns uid=c owners=[cm/owner#o]");
        let absent = Coordinate {
            kind: "ConfigMap".into(),
            api_version: "v1".into(),
            namespace: namespace.into(),
            name: "owner".into(),
            uid: Uid::new("o"),
        };
        world.state.virtual_delete(&absent, world.now, &mut world.effects);
        assert_eq!(world.state.absent_len(), remembered);
    }
}

#[test]
fn d5_kubernetes_54940_a_virtual_cluster_scoped_owner_is_read_without_a_namespace() {
    let world = "
        both cm/child @ns uid=c owners=[node/n#n]
        live node/n uid=n";
    check(
        "n",
        world,
        expect![[r#"
        read nodes n -> uid=n rv=1
        = will be tried again: it exists, but no watch has shown it yet
    "#]],
    );
}

#[test]
fn d5_an_absent_cluster_scoped_owner_is_read_once_for_all_namespaces() {
    let mut world = World::new(
        "both cm/child @a uid=c owners=[node/gone#g]
         both cm/child @b uid=d owners=[node/gone#g]",
    );
    world.attempt("c");
    world.attempt("d");
    assert_eq!(world.transcript().matches("read nodes gone").count(), 1);
}

#[test]
fn d16_nothing_but_a_404_that_names_it_proves_the_item_itself_absent() {
    for answer in ["plain 404", "503", "403", "conflict", "422"] {
        for item in ["o", "c"] {
            let mut world = World::new(&format!(
                "graph cm/child @ns uid=c owners=[cm/owner#o]\n#1 {answer}\n#2 {answer}"
            ));
            for _ in 0..2 {
                let outcome = world.attempt(item);
                assert!(matches!(outcome, Outcome::Retry(_)), "{answer}: {outcome}");
                world.now += Duration::from_secs(10);
            }
        }
    }
}

#[test]
fn d9_references_that_share_a_uid_are_written_out_to_be_unblocked() {
    let world = "
        both cm/w @ns uid=w finalizers=[foregroundDeletion] deleting
        both cm/child @ns uid=c owners=[cm/w#w! cm/other#w!]
        both cm/below @ns uid=b owners=[cm/child#c!] finalizers=[foregroundDeletion] deleting";
    check(
        "c",
        world,
        expect![[r#"
        read configmaps ns/child -> uid=c rv=1
        read configmaps ns/w -> uid=w rv=1
        read configmaps ns/other -> 404
        patch configmaps ns/child JsonMerge {"metadata":{"ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":false,"kind":"ConfigMap","name":"w","uid":"w"},{"apiVersion":"v1","blockOwnerDeletion":false,"kind":"ConfigMap","name":"other","uid":"w"}],"resourceVersion":"1","uid":"c"}} -> uid=c rv=1'
        delete configmaps ns/child uid=c rv=1' Foreground -> ok
        = deleted (Foreground)
    "#]],
    );
}

#[test]
fn s7_a_restored_server_voids_what_is_remembered_and_what_the_graph_knows() {
    let world = "
        both cm/owner @ns uid=o
        both cm/child @ns uid=c owners=[cm/owner#o]
        gone cm/owner @ns uid=o";
    let mut world = World::new(world);
    assert_eq!(world.state.absent_len(), 1);
    world.effects();
    world.line(&["restored".to_owned()]);
    expect![[r#"AttemptToDelete(Uid("o"))"#]].assert_eq(&world.effects());
    assert_eq!(world.state.absent_len(), 0);
    assert_eq!(world.attempt("c"), Outcome::Forget(Why::OwnerAlive));
}

#[test]
fn d1_what_turns_out_to_be_in_deletion_is_left_alone() {
    let world = "
        graph cm/child @ns uid=c owners=[cm/gone#g]
        live  cm/child @ns uid=c rv=2 owners=[cm/gone#g] deleting";
    check(
        "c",
        world,
        expect![[r#"
        read configmaps ns/child -> uid=c rv=2
        = is already being deleted
    "#]],
    );
    let world = "
        both cm/child @ns uid=c owners=[cm/gone#g]
        after #2 live cm/child @ns uid=c rv=2 owners=[cm/gone#g] deleting";
    check(
        "c",
        world,
        expect![[r#"
        read configmaps ns/child -> uid=c rv=1
        read configmaps ns/gone -> 404
        delete configmaps ns/child uid=c rv=1 Background -> 409
        read configmaps ns/child -> uid=c rv=2
        = is already being deleted
    "#]],
    );
}

#[test]
fn d16_kubernetes_104342_a_404_is_a_proof_only_when_all_of_it_fits() {
    let deployments = Resource {
        group: "apps".into(),
        version: "v1".into(),
        resource: "deployments".into(),
        kind: "Deployment".into(),
        namespaced: true,
    };
    let target = Target { resource: deployments.into(), namespace: "ns".into(), name: "web".into() };
    let fits = Refusal {
        code: 404,
        is_status: true,
        reason: "NotFound",
        name: "web",
        kind: "deployments",
        message: "",
        ..Refusal::default()
    };
    let proves = |refusal: Refusal<'_>| Reply::refused(&target, &refusal) == Reply::NotFound { proof: true };
    assert!(proves(fits));
    assert!(proves(Refusal { kind: "Deployment", ..fits }), "some servers name the kind");
    assert!(!proves(Refusal { is_status: false, ..fits }));
    assert!(!proves(Refusal { reason: "Gone", ..fits }));
    assert!(!proves(Refusal { name: "other", ..fits }));
    // A webhook or a store behind an aggregated server misses something of its own under the same name.
    assert!(!proves(Refusal { kind: "secrets", ..fits }));
    assert!(!proves(Refusal { kind: "", ..fits }));
    assert!(!proves(Refusal { code: 410, ..fits }) && !proves(Refusal { code: 403, ..fits }));
}

#[test]
fn d11_an_owner_that_waited_may_have_turned_to_orphaning_by_the_time_of_the_next_delete() {
    let world = "
        both cm/w @ns uid=w finalizers=[foregroundDeletion] deleting
        both cm/child @ns uid=c owners=[cm/w#w!]
        after #2 live cm/child @ns uid=c rv=2 owners=[cm/w#w!]
        after #3 live cm/w @ns uid=w finalizers=[orphan] deleting";
    check(
        "c",
        world,
        expect![[r#"
        read configmaps ns/child -> uid=c rv=1
        read configmaps ns/w -> uid=w rv=1
        delete configmaps ns/child uid=c rv=1 Background -> 409
        read configmaps ns/child -> uid=c rv=2
        read configmaps ns/w -> uid=w rv=1
        = has an owner that lives
    "#]],
    );
}

/// Found by simulation: two held dependents name an owner that is gone by different coordinates. Each was asked for in
/// turn, a hundred times a second, for as long as they were held.
#[test]
fn g9_d17_a_virtual_node_all_of_whose_coordinates_are_absent_comes_to_rest() {
    let mut world = World::new(
        "graph cm/a @ns uid=a owners=[cm/o#o] finalizers=[x] deleting
         graph cm/b @ns uid=b owners=[cm/p#o] finalizers=[x] deleting",
    );
    for (end, asks_on) in
        [("ConfigMap.v1 ns/o (o) does not exist", true), ("ConfigMap.v1 ns/p (o) does not exist", false)]
    {
        world.effects();
        let outcome = world.attempt("o");
        assert_eq!(outcome.to_string(), end);
        let Outcome::VirtuallyDeleted(coordinate, asked_at) = outcome else { panic!("{outcome}") };
        world.state.virtual_delete(&coordinate, asked_at, &mut world.effects);
        let shown = world.effects();
        assert_eq!(shown.contains("RateLimited"), asks_on, "{shown}");
    }
    assert_eq!(world.state.graph().virtual_len(), 0);
}

/// Found by simulation: cluster-scoped dependents name an owner of a namespaced kind by several names, none of which can
/// be asked for. The node came back every 5 ms for ever.
#[test]
fn d6_d17_a_virtual_node_all_of_whose_coordinates_are_impossible_comes_to_rest() {
    let mut world = World::new(
        "graph node/a uid=a owners=[cm/o#o]
         graph node/b uid=b owners=[cm/p#o]",
    );
    world.effects();
    let outcome = world.attempt("o");
    let Outcome::Impossible(coordinate) = outcome else { panic!("{outcome}") };
    world.state.reconsider(&coordinate, &mut world.effects);
    assert_eq!(world.effects(), "");
    assert_eq!(world.state.graph().virtual_len(), 1, "nobody can say whether it exists");
}

#[test]
fn d6_d17_a_virtual_node_whose_only_coordinate_is_impossible_comes_to_rest() {
    let mut world = World::new("graph node/a uid=a owners=[cm/o#o]");
    let Outcome::Impossible(coordinate) = world.attempt("o") else { panic!("it has no namespace") };
    world.effects();
    world.state.reconsider(&coordinate, &mut world.effects);
    assert_eq!(world.effects(), "");
}

/// The same with one that can be asked for: it is asked for once.
#[test]
fn d6_d17_impossible_coordinates_are_passed_over_for_one_that_can_be_asked_for() {
    let mut world = World::new(
        "graph node/a uid=a owners=[cm/o#o]
         graph node/b uid=b owners=[cm/p#o]
         graph cm/c @ns uid=c owners=[cm/q#o] finalizers=[x] deleting",
    );
    let Outcome::Impossible(coordinate) = world.attempt("o") else { panic!("it has no namespace") };
    world.effects();
    world.state.reconsider(&coordinate, &mut world.effects);
    assert_eq!(world.effects(), r#"AttemptToDeleteRateLimited(Uid("o"))"#);
    let Outcome::VirtuallyDeleted(coordinate, asked_at) = world.attempt("o") else { panic!("it is absent") };
    assert_eq!(coordinate.to_string(), "ConfigMap.v1 ns/q (o)");
    world.state.virtual_delete(&coordinate, asked_at, &mut world.effects);
    assert_eq!(world.effects(), r#"AttemptToDelete(Uid("c"))"#);
    assert_eq!(world.state.graph().virtual_len(), 1);
}

/// Found by simulation: the owner lived, but its kind could not be listed. Its virtual node waited for a kind of another
/// dependent's making, so that nobody looked at the owner any more, and nobody saw it go.
#[test]
fn d7_g9_a_kind_that_nothing_serves_is_passed_over_for_a_coordinate_that_can_be_asked_for() {
    let mut world = World::new(
        "graph cm/a @ns uid=a owners=[late/o#o]
         both cm/b @ns uid=b owners=[w/o#o]
         live w/o @ns uid=o",
    );
    let Outcome::Impossible(coordinate) = world.attempt("o") else { panic!("another can be asked for") };
    assert_eq!(coordinate.to_string(), "Late.late.example.com/v1 ns/o (o)");
    world.effects();
    world.state.reconsider(&coordinate, &mut world.effects);
    assert_eq!(world.effects(), r#"AttemptToDeleteRateLimited(Uid("o"))"#);
    let Outcome::Retry(why) = world.attempt("o") else { panic!("it exists") };
    assert_eq!(why, "it exists, but no watch has shown it yet");
}

/// Nobody has seen the owner; the finding that it cannot be asked for by the first of its coordinates is on its way.
fn named_by_a_kind_that_is_not_served_and_one_that_is() -> (World, Coordinate) {
    let mut world = World::new(
        "graph cm/a @ns uid=a owners=[late/o#o]
         graph cm/b @ns uid=b owners=[w/o#o]",
    );
    let Outcome::Impossible(late) = world.attempt("o") else { panic!("another can be asked for") };
    (world, late)
}

/// Found by simulation: the dependent that named the owner by the other coordinate is gone when the finding comes.
#[test]
fn d7_g9_where_the_other_coordinate_is_gone_by_then_the_kind_is_waited_for() {
    let (mut world, late) = named_by_a_kind_that_is_not_served_and_one_that_is();
    world.line(&["gone", "cm/b", "@ns", "uid=b"].map(String::from));
    world.effects();
    world.state.reconsider(&late, &mut world.effects);
    assert_eq!(world.effects(), r#"AttemptToDelete(Uid("o"))"#);
    let Outcome::WaitForKind { kind, .. } = world.attempt("o") else { panic!("nothing else is left") };
    assert_eq!(kind, "Late");
    world.effects();
    world.serve_everything();
    assert_eq!(world.effects(), r#"AttemptToDelete(Uid("o"))"#);
}

/// The other way round there is nothing to ask for until the kind is served, and nothing goes round in circles.
#[test]
fn d7_g9_where_the_other_coordinates_are_absent_the_kind_is_waited_for() {
    let (mut world, late) = named_by_a_kind_that_is_not_served_and_one_that_is();
    world.state.reconsider(&late, &mut world.effects);
    let Outcome::VirtuallyDeleted(absent, asked_at) = world.attempt("o") else { panic!("it is absent") };
    world.effects();
    world.state.virtual_delete(&absent, asked_at, &mut world.effects);
    assert_eq!(
        world.effects(),
        "AttemptToDelete(Uid(\"b\"))\n\
         AttemptToDeleteRateLimited(Uid(\"o\"))"
    );
    let Outcome::WaitForKind { kind, .. } = world.attempt("o") else { panic!("nothing else is left") };
    assert_eq!(kind, "Late");
}

/// A watch has shown the owner by the time that the finding comes.
#[test]
fn d7_g9_an_owner_that_has_been_observed_since_is_not_looked_at_for_its_coordinate() {
    let (mut world, late) = named_by_a_kind_that_is_not_served_and_one_that_is();
    world.line(&["graph", "late/o", "@ns", "uid=o"].map(String::from));
    world.effects();
    world.state.reconsider(&late, &mut world.effects);
    assert_eq!(world.effects(), "");
}

/// The other coordinate is that of a cluster-scoped owner, whose absence is remembered without the namespace of the
/// dependents that name it.
#[test]
fn d7_g9_a_kind_is_passed_over_for_a_cluster_scoped_owner_until_that_is_known_to_be_absent() {
    let mut world = World::new(
        "graph cm/a @ns uid=a owners=[late/o#o]
         both cm/b @ns uid=b owners=[node/o#o]",
    );
    let Outcome::Impossible(late) = world.attempt("o") else { panic!("the node can be asked for") };
    assert_eq!(late.to_string(), "Late.late.example.com/v1 ns/o (o)");
    world.transcript();
    world.attempt("b");
    world.attempt("o");
    expect![[r#"
        read configmaps ns/b -> uid=b rv=1
        read nodes o -> 404
        delete configmaps ns/b uid=b rv=1 Background -> ok
        = deleted (Background)
        = waits until the kind Late of late.example.com/v1 is served
    "#]]
    .assert_eq(&world.transcript());
}
