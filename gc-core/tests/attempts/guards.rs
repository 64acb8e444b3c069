//! What an attempt checks again before it writes, and what it makes of answers that nobody expects.

use std::time::Duration;

use crate::world::World;
use expect_test::{Expect, expect};
use gc_core::{Kinds, Options, Outcome, PatchedField, Refusal, Reply, Resource, Target, Why};
use gc_graph::{SourceId, Uid};

#[track_caller]
fn check(uid: &str, text: &str, expected: Expect) {
    let mut world = World::new(text);
    world.attempt(uid);
    expected.assert_eq(&world.transcript());
}

#[test]
fn d2_another_object_under_the_items_name_is_not_the_item() {
    // Its owner is gone as well; but nobody has asked about this one, and the item itself is gone.
    let mut world = World::new(
        "graph cm/child @ns uid=c owners=[cm/gone#g]
         live  cm/child @ns uid=c2 owners=[cm/gone#g]",
    );
    let end = world.attempt("c");
    assert!(!world.transcript().contains("delete "));
    assert!(matches!(end, Outcome::RetryAfter(..)), "{end}");
}

#[test]
fn d3_d13_a_circle_is_opened_only_where_the_live_object_waits_for_its_dependents() {
    // Its finalizer has been taken meanwhile, and it is held by somebody else's; or it is to be orphaned after all.
    for finalizers in ["hold", "foregroundDeletion,orphan", "orphan"] {
        let mut world = World::new(&format!(
            "graph cm/a @ns uid=a finalizers=[foregroundDeletion] deleting owners=[cm/a#a!]
             live  cm/a @ns uid=a finalizers=[{finalizers}] deleting owners=[cm/a#a!]"
        ));
        world.attempt("a");
        assert!(!world.transcript().contains("patch "), "{finalizers}");
    }
}

/// The patch carries the UID of what was read: it would change the references of an object that nobody has asked about.
#[test]
fn d3_d12_another_object_under_the_name_of_one_in_a_circle_keeps_its_references() {
    check(
        "a",
        "
        graph cm/a @ns uid=a finalizers=[foregroundDeletion] deleting owners=[cm/a#a!]
        live  cm/a @ns uid=a2 finalizers=[foregroundDeletion] deleting owners=[cm/a#a!]",
        expect![[r#"
        read configmaps ns/a -> uid=a2 rv=1
        = is gone
    "#]],
    );
}

/// Kinds take at least JSON merge patches. One that says it takes none must not keep a worker busy for ever.
#[test]
fn d12_a_kind_that_takes_no_patch_is_left_to_the_queue() {
    let remove = "
        both w/child @ns uid=c owners=[cm/solid#s cm/gone#g]
        live cm/solid @ns uid=s
        #4 415
        #5 415";
    let unblock = "
        both w/a @ns uid=a finalizers=[foregroundDeletion] deleting owners=[w/c#c!]
        both w/c @ns uid=c owners=[w/a#a!]
        #3 415
        #4 415";
    for (uid, world) in [("c", remove), ("c", unblock)] {
        let mut world = World::new(world);
        let end = world.attempt(uid);
        assert!(matches!(end, Outcome::Retry(_)), "{end}");
        assert_eq!(world.transcript().matches("-> 415").count(), 2);
    }
}

/// The server's admission webhooks see each patch and may change what it does not.
#[test]
fn d9_d11_the_delete_after_unblocking_rests_on_the_owners_that_were_decided_on() {
    let world = "
        both cm/a @ns uid=a finalizers=[foregroundDeletion] deleting owners=[cm/c#c!]
        both cm/c @ns uid=c rv=3 owners=[cm/a#a!]
        live cm/new @ns uid=n";
    check(
        "c",
        &format!("{world}\n#3 shows cm/c @ns uid=c rv=4 owners=[cm/a#a cm/new#n]"),
        expect![[r#"
        read configmaps ns/c -> uid=c rv=3
        read configmaps ns/a -> uid=a rv=1
        patch configmaps ns/c StrategicMerge {"metadata":{"ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":false,"kind":"ConfigMap","name":"a","uid":"a"}],"resourceVersion":"3","uid":"c"}} -> uid=c rv=4
        read configmaps ns/c -> uid=c rv=4
        read configmaps ns/a -> uid=a rv=1
        read configmaps ns/new -> uid=n rv=1
        patch configmaps ns/c StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"a"}],"resourceVersion":"4","uid":"c"}} -> uid=c rv=4'
        = lives; 1 owner references removed
    "#]],
    );
    check(
        "c",
        &format!("{world}\n#3 shows cm/c @ns uid=c rv=4 owners=[cm/a#a] deleting"),
        expect![[r#"
        read configmaps ns/c -> uid=c rv=3
        read configmaps ns/a -> uid=a rv=1
        patch configmaps ns/c StrategicMerge {"metadata":{"ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":false,"kind":"ConfigMap","name":"a","uid":"a"}],"resourceVersion":"3","uid":"c"}} -> uid=c rv=4
        read configmaps ns/c -> uid=c rv=4
        = is already being deleted
    "#]],
    );
}

/// Held by somebody's finalizer it still exists, whatever policy it was deleted with (spec D5).
#[test]
fn d5_an_owner_that_is_being_deleted_and_does_not_wait_lives() {
    for owner in ["finalizers=[hold] deleting", "finalizers=[foregroundDeletion]"] {
        let mut world = World::new(&format!(
            "live cm/owner @ns uid=o {owner}
             both cm/child @ns uid=c owners=[cm/owner#o!]"
        ));
        assert_eq!(world.attempt("c"), Outcome::Forget(Why::OwnerAlive), "{owner}");
    }
}

/// That the graph holds an object with the reference's UID alive says nothing, unless all of the reference fits.
#[test]
fn d5_kubernetes_65200_an_owner_that_is_observed_elsewhere_is_asked_for_where_the_reference_says() {
    for (observed, reference) in [
        ("cm/owner @a uid=o", "cm/owner#o"),
        ("cm/other @b uid=o", "cm/owner#o"),
        ("cm/n uid=o", "node/n#o"),
        ("w/owner @b uid=o", "cm/owner#o"),
    ] {
        let mut world = World::new(&format!(
            "both {observed}
             both cm/child @b uid=c owners=[{reference}]"
        ));
        let end = world.attempt("c");
        assert_eq!(end.to_string(), "deleted (Background)", "{observed} {reference}");
    }
}

#[test]
fn d5_what_is_known_of_a_wrong_namespace_is_not_forgotten_when_the_owner_changes() {
    let mut world = World::new(
        "both cm/owner @a uid=o
         both cm/child @b uid=c owners=[cm/owner#o]",
    );
    world.attempt("c");
    assert_eq!(world.state.absent_len(), 1);
    world.line(&["graph", "cm/owner", "@a", "uid=o", "rv=2"].map(str::to_owned));
    assert_eq!(world.state.absent_len(), 1);
}

/// The orphaning is over, and the owner is held by a finalizer of somebody else's: a dependent that comes to be known
/// only now was to live.
#[test]
fn kubernetes_131307_an_orphaned_owner_that_is_held_stays_orphaned() {
    let world = "
        graph cm/o @ns uid=o finalizers=[orphan,hold] deleting
        both  cm/o @ns uid=o finalizers=[hold] deleting
        gone  cm/o @ns uid=o
        both  cm/late @ns uid=l rv=9 owners=[cm/o#o]";
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

/// The same where the owner is shown alive again, by a server that was restored: that it was orphaned can only spare.
#[test]
fn s7_an_orphaned_owner_that_is_back_is_still_one_that_was_orphaned() {
    let world = "
        graph cm/o @ns uid=o finalizers=[orphan] deleting
        graph cm/o @ns uid=o finalizers=[foregroundDeletion]
        gone  cm/o @ns uid=o
        both  cm/late @ns uid=l rv=9 owners=[cm/o#o]";
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

#[test]
fn s7_a_read_from_before_a_restore_confirms_nothing_after_it() {
    let options = Options { absence_confirmations: 2, ..Options::default() };
    let mut world = World::with_options("both cm/c @ns uid=c owners=[cm/o#o]", options);
    assert!(matches!(world.attempt("c"), Outcome::RetryAfter(..)));
    world.line(&["restored".into()]);
    world.now += Duration::from_secs(2);
    assert!(matches!(world.attempt("c"), Outcome::RetryAfter(..)), "the first read of this server");
    world.now += Duration::from_secs(2);
    assert_eq!(world.attempt("c").to_string(), "deleted (Background)");
}

/// The item waited for `example.com/v0`; its reference has been rewritten to the version that is served.
#[test]
fn d17_an_item_whose_reference_moves_to_a_served_version_is_woken() {
    let mut world = World::new("both cm/child @ns uid=c owners=[old/owner#o]");
    world.attempt("c");
    world.line(&["graph", "cm/child", "@ns", "uid=c", "owners=[w/owner#o]"].map(str::to_owned));
    world.effects();
    world.look_again();
    assert_eq!(world.effects(), r#"AttemptToDelete(Uid("c"))"#);
}

#[test]
fn d12_what_patches_a_kind_takes_is_forgotten_with_the_kind_and_only_then() {
    let mut world = World::new(
        "both cm/solid @ns uid=s
         both w/one @ns uid=1 owners=[cm/solid#s cm/gone#g]
         both w/two @ns uid=2 owners=[cm/solid#s cm/gone#g]
         both w/three @ns uid=3 owners=[cm/solid#s cm/gone#g]",
    );
    let strategic = |world: &mut World, uid: &str| {
        world.attempt(uid);
        world.transcript().contains("StrategicMerge")
    };
    assert!(strategic(&mut world, "1"));
    world.look_again();
    assert!(!strategic(&mut world, "2"), "the same kind is served as before");
    world.state.set_kinds(Kinds::default(), &mut world.effects);
    world.look_again();
    assert!(strategic(&mut world, "3"), "a definition that was installed anew may be another");
}

/// Lists go through the state to the graph, and what they prove is remembered (spec S5, S2).
#[test]
fn s5_s2_a_complete_list_proves_absence_and_a_kind_that_is_no_longer_served_does_not() {
    let world = || {
        let mut world = World::new("graph cm/owner @ns uid=o\ngraph cm/child @ns uid=c owners=[cm/owner#o]");
        world.effects();
        world
    };
    let mut listed = world();
    listed.state.begin_list(SourceId(0));
    listed.line(&["graph", "cm/child", "@ns", "uid=c", "owners=[cm/owner#o]"].map(str::to_owned));
    listed.state.end_list(SourceId(0), &mut listed.effects);
    assert_eq!((listed.effects(), listed.state.absent_len()), (r#"AttemptToDelete(Uid("c"))"#.into(), 1));

    let mut unserved = world();
    unserved.state.unserve(SourceId(0), &mut unserved.effects);
    assert_eq!((unserved.effects(), unserved.state.absent_len()), (String::new(), 0));
    assert!(unserved.state.graph().get(&Uid::new("c")).is_none());
}

/// The owner is cluster-scoped: it was read absent for one dependent, and is absent for those of any namespace.
#[test]
fn g9_d17_a_cluster_scoped_owner_that_was_read_absent_is_not_asked_for_again() {
    let mut world = World::new(
        "graph cm/d @a uid=d owners=[node/q#o] finalizers=[x] deleting
         graph cm/e @a uid=e owners=[node/p#o] finalizers=[x] deleting
         both  cm/c @b uid=c owners=[node/p#o]",
    );
    let Outcome::VirtuallyDeleted(q, asked_at) = world.attempt("o") else { panic!("q is absent") };
    world.effects();
    let mut before = world.state.clone();
    before.virtual_delete(&q, asked_at, &mut world.effects);
    assert!(world.effects().contains("RateLimited"), "of p nothing is known");
    assert_eq!(world.attempt("c").to_string(), "deleted (Background)");
    world.state.virtual_delete(&q, asked_at, &mut world.effects);
    let effects = world.effects();
    assert!(!effects.contains("RateLimited"), "p has been read, from another namespace: {effects}");
}

#[test]
fn d16_an_answer_that_is_an_error_is_what_its_code_says() {
    let pods = Resource {
        group: String::new(),
        version: "v1".into(),
        resource: "pods".into(),
        kind: "Pod".into(),
        namespaced: true,
    };
    let target = Target { resource: pods.into(), namespace: "ns".into(), name: "a".into() };
    let refused = |code| Reply::refused(&target, &Refusal { code, message: "why", ..Refusal::default() });
    assert_eq!(refused(409), Reply::Conflict);
    assert_eq!(refused(415), Reply::UnsupportedMediaType);
    assert_eq!(refused(422), Reply::Invalid("why".into()));
    assert_eq!(refused(503), Reply::Failed("why".into()));
    let busy = |asked: Option<u64>| {
        let retry_after = asked.map(Duration::from_secs);
        Reply::refused(&target, &Refusal { code: 429, message: "why", retry_after, ..Refusal::default() })
    };
    for (asked, believed) in [(None, 1), (Some(0), 0), (Some(32), 32), (Some(33), 32)] {
        let retry_after = Duration::from_secs(believed);
        assert_eq!(busy(asked), Reply::TooManyRequests { retry_after, message: "why".into() });
    }
}

/// Whatever it was asked for, it has not acted, and by the time that it may be asked again everything may be otherwise.
#[test]
fn d14_an_attempt_that_meets_a_busy_server_ends_there() {
    let worlds = [
        ("c", 4, "both cm/c @ns uid=c owners=[cm/o#o]\n#3 conflict"),
        ("c", 3, "both cm/c @ns uid=c owners=[cm/gone#g cm/o#o]\nlive cm/o @ns uid=o"),
        ("o", 2, "both cm/o @ns uid=o finalizers=[foregroundDeletion] deleting"),
        ("a", 2, "both cm/a @ns uid=a finalizers=[foregroundDeletion] deleting owners=[cm/a#a!]"),
        (
            "c",
            3,
            "both cm/a @ns uid=a finalizers=[foregroundDeletion] deleting owners=[cm/c#c!]
             both cm/c @ns uid=c owners=[cm/a#a!]",
        ),
    ];
    for (uid, requests, text) in worlds {
        for n in 1..=requests {
            let mut world = World::new(&format!("{text}\n#{n} 429"));
            let end = world.attempt(uid);
            let busy = Outcome::Busy(Duration::from_secs(7), "the server answered 429".into());
            assert_eq!(end, busy, "{}", world.transcript());
            assert_eq!(world.transcript().matches(" -> ").count(), n);
        }
    }
}

#[test]
fn d14_s7_what_a_busy_server_refused_to_delete_is_decided_afresh() {
    let mut world = World::deciding_from_graph(
        "both cm/o @ns uid=o
         both cm/c @ns uid=c rv=7 owners=[cm/o#o]
         gone cm/o @ns uid=o
         #1 429",
    );
    world.attempt("c");
    // The server asked for seven seconds; until then, it has been restored from a backup.
    world.now += Duration::from_secs(7);
    world.attempt("c");
    expect![[r#"
        delete configmaps ns/c uid=c rv=7 Background -> 429
        = will be tried again in 7000 ms or later: the server answered 429
        read configmaps ns/o -> uid=o rv=1
        = has an owner that lives
    "#]]
    .assert_eq(&world.transcript());
}

/// A proof lasts for five seconds, from its request on. Where the answer after it comes later than that, what the answers
/// before it said of other owners has to be said again; not so what this one says.
#[test]
fn s7_proofs_age_while_an_attempt_waits_for_answers() {
    let transcript_at = |slow_by_ms: u64, more: &str| {
        let mut world =
            World::deciding_from_graph(&format!("both cm/c @ns uid=c rv=7 owners=[cm/g#g cm/h#h]\n{more}"));
        world.slow_by = Duration::from_millis(slow_by_ms);
        world.attempt("c");
        world.transcript()
    };
    expect![[r#"
        read configmaps ns/g -> 404
        read configmaps ns/h -> 404
        delete configmaps ns/c uid=c rv=7 Background -> ok
        = deleted (Background)
    "#]]
    .assert_eq(&transcript_at(2_500, ""));
    // Meanwhile the server was away and is one that still holds the first.
    expect![[r#"
        read configmaps ns/g -> 404
        read configmaps ns/h -> 404
        read configmaps ns/g -> uid=g rv=1
        read configmaps ns/h -> 404
        read configmaps ns/g -> uid=g rv=1
        read configmaps ns/h -> 404
        read configmaps ns/g -> uid=g rv=1
        read configmaps ns/h -> 404
        read configmaps ns/g -> uid=g rv=1
        read configmaps ns/h -> 404
        = will be tried again: the server answers slower than proofs last
    "#]]
    .assert_eq(&transcript_at(2_501, "after #2 live cm/g @ns uid=g"));
}

/// The first owner was seen to go three seconds ago, the second one has to be read. Meanwhile the server was away, from
/// before that read on, and is one that still holds the first.
#[test]
fn s7_a_proof_that_was_believed_ages_with_the_answer_after_it() {
    let transcript_at = |slow_by_ms: u64| {
        let mut world = World::deciding_from_graph(
            "graph cm/g @ns uid=g
             both cm/c @ns uid=c rv=7 owners=[cm/g#g cm/h#h]
             gone cm/g @ns uid=g
             after #1 live cm/g @ns uid=g",
        );
        world.now += Duration::from_secs(3);
        world.slow_by = Duration::from_millis(slow_by_ms);
        world.attempt("c");
        world.transcript()
    };
    expect![[r#"
        read configmaps ns/h -> 404
        delete configmaps ns/c uid=c rv=7 Background -> ok
        = deleted (Background)
    "#]]
    .assert_eq(&transcript_at(2_000));
    expect![[r#"
        read configmaps ns/h -> 404
        read configmaps ns/g -> uid=g rv=1
        read configmaps ns/c -> uid=c rv=7
        read configmaps ns/g -> uid=g rv=1
        read configmaps ns/h -> 404
        patch configmaps ns/c StrategicMerge {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"h"}],"resourceVersion":"7","uid":"c"}} -> uid=c rv=7'
        = lives; 1 owner references removed
    "#]].assert_eq(&transcript_at(2_001));
}

#[test]
fn s7_a_delete_that_met_a_conflict_is_not_repeated_on_proofs_that_have_aged() {
    for (slow_by, reads) in [(5, 3), (6, 4)] {
        let mut world = World::new(
            "both cm/c @ns uid=c rv=7 owners=[cm/o#o]\n#3 conflict\nafter #3 live cm/c @ns uid=c rv=8 owners=[cm/o#o]",
        );
        world.slow_by = Duration::from_secs(slow_by);
        world.attempt("c");
        let transcript = world.transcript();
        assert_eq!(transcript.matches("read ").count(), reads, "{transcript}");
        assert!(transcript.ends_with("= deleted (Background)\n"), "{transcript}");
    }
}

/// The news of it waits for the event loop, which may be busy.
#[test]
fn s7_a_virtual_deletion_is_as_old_as_the_request_that_found_it() {
    for (waited, reads) in [(4, 0), (6, 1)] {
        let mut world = World::deciding_from_graph("both cm/c @ns uid=c rv=7 owners=[cm/o#o]");
        let Outcome::VirtuallyDeleted(o, asked_at) = world.attempt("o") else { panic!("it is absent") };
        assert_eq!(asked_at, world.now);
        world.now += Duration::from_secs(waited);
        world.state.tell_time(world.now);
        world.state.virtual_delete(&o, asked_at, &mut world.effects);
        world.transcript();
        world.attempt("c");
        let transcript = world.transcript();
        assert_eq!(transcript.matches("read ").count(), reads, "{transcript}");
        assert!(transcript.ends_with("= deleted (Background)\n"), "{transcript}");
    }
}

/// An owner that comes to rest as absent under all of its coordinates is so as of the oldest of the proofs.
#[test]
fn s7_an_owner_with_several_coordinates_is_not_proved_absent_anew_by_coming_to_rest() {
    let mut world = World::deciding_from_graph(
        "both cm/d @ns uid=d rv=7 owners=[cm/p#o]
         both cm/e @ns uid=e rv=8 owners=[cm/q#o]",
    );
    for name in ["p", "q"] {
        let Outcome::VirtuallyDeleted(absent, asked_at) = world.attempt("o") else { panic!("it is absent") };
        assert_eq!(absent.name, name);
        world.state.virtual_delete(&absent, asked_at, &mut world.effects);
        world.now += Duration::from_secs(3);
        world.state.tell_time(world.now);
    }
    assert_eq!(world.state.graph().virtual_len(), 0);
    world.transcript();
    world.attempt("d");
    world.attempt("e");
    expect![[r#"
        read configmaps ns/p -> 404
        delete configmaps ns/d uid=d rv=7 Background -> ok
        = deleted (Background)
        delete configmaps ns/e uid=e rv=8 Background -> ok
        = deleted (Background)
    "#]]
    .assert_eq(&world.transcript());
}

#[test]
fn what_a_patch_changes_is_a_label_of_a_metric() {
    let labels = [PatchedField::OwnerReferences, PatchedField::Finalizers].map(PatchedField::as_str);
    assert_eq!(labels, ["owner_references", "finalizers"]);
}

/// Nothing served the kind when a coordinate that a cluster-scoped dependent had made up was found absent.
#[test]
fn d6_an_absence_that_was_made_up_before_the_kind_was_served_condemns_nobody() {
    let mut world = World::new(
        "graph node/n uid=n owners=[late/owner#o]
         both cm/child @ns uid=c owners=[late/owner#o]
         live late/owner @ns uid=o",
    );
    let made_up = world.state.graph().get(&Uid::new("o")).unwrap().coordinate();
    assert_eq!(made_up.namespace, "");
    world.state.virtual_delete(&made_up, world.now, &mut world.effects);
    world.serve_everything();
    assert_eq!(world.attempt("c"), Outcome::Forget(Why::OwnerAlive));
}

/// The same absence is no absence of the owner in a namespace where its node comes by that coordinate later.
#[test]
fn d6_g9_an_absence_that_was_made_up_before_the_kind_was_served_is_passed_over_for_nobody() {
    let mut world = World::new("graph node/n uid=n owners=[late/owner#o]");
    let made_up = world.state.graph().get(&Uid::new("o")).unwrap().coordinate();
    world.state.virtual_delete(&made_up, world.now, &mut world.effects);
    assert_eq!(world.state.absent_len(), 1);
    world.serve_everything();
    for line in [
        "both cm/a @ns uid=a owners=[cm/wrong#o]",
        "both cm/child @ns uid=c owners=[late/owner#o]",
        "live late/owner @ns uid=o",
    ] {
        world.line(&line.split_whitespace().map(String::from).collect::<Vec<_>>());
    }
    let Outcome::VirtuallyDeleted(wrong, asked_at) = world.attempt("o") else { panic!("it is absent") };
    assert_eq!(wrong.to_string(), "ConfigMap.v1 ns/wrong (o)");
    world.effects();
    world.state.virtual_delete(&wrong, asked_at, &mut world.effects);
    assert_eq!(world.effects(), "AttemptToDelete(Uid(\"a\"))\nAttemptToDeleteRateLimited(Uid(\"o\"))");
    assert_eq!(world.attempt("c"), Outcome::Forget(Why::OwnerAlive));
}

/// The delete rested on what the graph knew, which is not what it is like now: the owner is back. The reference has the
/// two flags that controllers set.
#[test]
fn d15_after_a_conflict_nothing_counts_that_the_graph_had_proved() {
    let mut world = World::deciding_from_graph(
        "graph cm/owner @ns uid=o
         graph cm/child @ns uid=c rv=7 owners=[cm/owner#o!*]
         live  cm/child @ns uid=c rv=8 owners=[cm/owner#o!*]
         gone  cm/owner @ns uid=o
         after #1 both cm/owner @ns uid=o",
    );
    assert_eq!(world.attempt("c"), Outcome::Forget(Why::OwnerAlive));
    assert_eq!(world.transcript().matches("delete ").count(), 1, "the one that met the conflict");
}

/// Found by simulation: whether a kind has a namespace is not known either when it is not served, and the owner was looked
/// for in vain in the dependent's.
#[test]
fn kubernetes_131307_an_orphaned_owner_of_a_kind_that_is_no_longer_served_outweighs_an_absence() {
    let mut world = World::new(
        "graph old/o uid=o finalizers=[orphan] deleting
         gone  old/o uid=o
         both  cm/late @ns uid=l rv=9 owners=[old/o#o]
         graph old/o @ns uid=o
         gone  old/o @ns uid=o",
    );
    assert_eq!(world.state.absent_len(), 1);
    assert_eq!(world.attempt("l").to_string(), "lives; 1 owner references removed");
}

/// Nothing can be read again of a kind that is not served; but the watch saw the owner go while it was.
#[test]
fn d7_an_owner_of_a_kind_that_is_no_longer_served_is_absent_when_the_graph_has_seen_it_go() {
    let options = Options { absent_owners_max: 1, ..Options::default() };
    let mut world = World::with_options(
        "graph old/owner @ns uid=o
         graph old/other @ns uid=p
         both  cm/child @ns uid=c owners=[old/owner#o]
         both  cm/second @ns uid=d owners=[old/other#p]
         gone  old/owner @ns uid=o
         gone  old/other @ns uid=p",
        options,
    );
    assert_eq!(world.state.absent_len(), 1, "the bounded memory holds the last one only");
    for child in ["c", "d"] {
        assert_eq!(world.attempt(child).to_string(), "deleted (Background)", "{child}");
    }
}

/// What was told last may have been read off the clock before what was told first: two threads told it.
#[test]
fn s7_time_is_the_latest_that_was_told() {
    let mut world = World::new("");
    for (told, now) in [(200, 200), (150, 200), (201, 201)] {
        world.state.tell_time(Duration::from_secs(told));
        assert_eq!(world.state.now(), Duration::from_secs(now));
    }
}
