//! Servers that deny what exists (D16).

use std::time::Duration;

use expect_test::expect;

use crate::world::World;

/// The server says 404 once for an object that the graph holds.
#[test]
fn d16_kubernetes_98471_one_404_does_not_make_a_finalizer_forgotten() {
    let mut world = World::new(
        "both cm/o @ns uid=o rv=5 finalizers=[foregroundDeletion] deleting
         #1 404",
    );
    world.attempt("o");
    world.now += Duration::from_secs(2);
    world.attempt("o");
    expect![[r#"
        read configmaps ns/o -> 404
        = will be tried again in 2000 ms: configmaps ns/o is gone for a read, but not for the watch
        read configmaps ns/o -> uid=o rv=5
        patch configmaps ns/o JsonMerge {"metadata":{"finalizers":[],"resourceVersion":"5","uid":"o"}} -> uid=o rv=5'
        = finalizer foregroundDeletion removed
    "#]].assert_eq(&world.transcript());
}

#[test]
fn d16_kubernetes_98471_one_404_does_not_leave_a_circle_closed() {
    let mut world = World::new(
        "both cm/o @ns uid=o rv=5 finalizers=[foregroundDeletion] owners=[cm/o#o!] deleting
         #1 404",
    );
    world.attempt("o");
    world.now += Duration::from_secs(2);
    world.attempt("o");
    expect![[r#"
        read configmaps ns/o -> 404
        = will be tried again in 2000 ms: configmaps ns/o is gone for a read, but not for the watch
        read configmaps ns/o -> uid=o rv=5
        patch configmaps ns/o StrategicMerge {"metadata":{"ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":false,"kind":"ConfigMap","name":"o","uid":"o"}],"resourceVersion":"5","uid":"o"}} -> uid=o rv=5'
        = waited for itself; 1 owner references do not block any more
    "#]].assert_eq(&world.transcript());
}

/// An owner that went while a dependent names it still would condemn that dependent.
#[test]
fn d16_o2_kubernetes_98471_one_404_for_a_dependent_keeps_its_owner() {
    let mut world = World::new(
        "both cm/o @ns uid=o finalizers=[orphan] deleting
         both cm/1 @ns uid=1 owners=[cm/o#o]
         #1 404",
    );
    world.orphan("o");
    world.now += Duration::from_secs(2);
    world.orphan("o");
    expect![[r#"
        patch configmaps ns/1 StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"uid":"1"}} -> 404
        - 1: will be tried again in 2000 ms: configmaps ns/1 is gone for a read, but not for the watch
        = will be tried again in 2000 ms: configmaps ns/1 is gone for a read, but not for the watch
        patch configmaps ns/1 StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"o"}],"uid":"1"}} -> uid=1 rv=1'
        - 1: lives; 1 owner references removed
        read configmaps ns/o -> uid=o rv=1
        patch configmaps ns/o JsonMerge {"metadata":{"finalizers":[],"resourceVersion":"1","uid":"o"}} -> uid=o rv=1'
        = finalizer orphan removed
    "#]].assert_eq(&world.transcript());
}

/// It is one object, whichever version of its kind the reference names.
#[test]
fn d16_kubernetes_98471_a_reference_in_another_version_is_no_less_doubted() {
    let mut world = World::new("both cm/c @ns uid=c owners=[old/o#o]\nboth w/o @ns uid=o\n#2 404");
    world.serve_everything();
    world.attempt("c");
    world.now += Duration::from_secs(2);
    world.attempt("c");
    expect![[r#"
        read configmaps ns/c -> uid=c rv=1
        read widgets.example.com ns/o -> 404
        = will be tried again in 2000 ms: owner Widget.example.com/v0 ns/o (o) is absent for a read; that is to be confirmed
        read configmaps ns/c -> uid=c rv=1
        read widgets.example.com ns/o -> uid=o rv=1
        = has an owner that lives
    "#]].assert_eq(&world.transcript());
}

/// Two denials count together only where nothing has shown the object in between: a read, or its watch.
#[test]
fn d16_a_doubt_ends_when_the_object_shows_itself() {
    for shown_by in ["read", "watch"] {
        let mut world = World::new(
            "both  cm/c @ns uid=c rv=3 owners=[cm/o#o]
             graph cm/o @ns uid=o finalizers=[foregroundDeletion] deleting
             live  cm/o @ns uid=o
             #1 404",
        );
        world.attempt("c");
        world.now += Duration::from_secs(60);
        match shown_by {
            "read" => _ = world.attempt("c"),
            _ => world.line(&["graph", "cm/c", "@ns", "uid=c", "rv=4", "owners=[cm/o#o]"].map(str::to_owned)),
        }
        world.line(&["dead", "cm/c", "@ns"].map(str::to_owned));
        let last = world.attempt("c").to_string();
        assert!(
            last.ends_with("configmaps ns/c is gone for a read, but not for the watch"),
            "{shown_by}: {last}"
        );
    }
}
