//! The three ways of deleting, and references that lead nowhere.

use expect_test::expect;
use gc_tests::sim::{Method, Request, Timestamp};
use serde_json::json;

use crate::world::{World, blocking_reference, define_things, delete, path};

/// A thousand dependents, every fourth a custom resource.
fn thousand_dependents() -> String {
    let line = |i: usize| {
        let kind = if i.is_multiple_of(4) { "thing" } else { "cm" };
        format!("{kind}/child-{i} @ns owners=[cm/owner!]\n")
    };
    (0..1_000).map(line).collect()
}

/// How many objects besides the owner still have a reference to it, of how many.
fn with_owner_of_all(world: &World) -> (usize, usize) {
    let shown = world.show();
    let children: Vec<&str> = shown.lines().filter(|line| line.contains("/child-")).collect();
    (children.iter().filter(|line| line.contains("owners=")).count(), children.len())
}

#[test]
fn d10_background_goes_down_a_chain() {
    let world = World::new(
        "
        deploy/web @shop
        rs/web-1 @shop owners=[deploy/web*!]
        po/web-1-a @shop owners=[rs/web-1*!]
        po/web-1-b @shop owners=[rs/web-1*!]
        cm/other @shop
        ",
    );
    world.delete("deploy/web @shop", "Background");
    world.becomes(&expect![[r#"
        cm/other @shop
    "#]]);
}

#[test]
fn d3_foreground_waits_for_blocking_dependents_from_the_leaves_up() {
    let world = World::new(
        "
        deploy/web @shop
        rs/web-1 @shop owners=[deploy/web*!]
        po/web-1-a @shop owners=[rs/web-1*!] finalizers=[example.com/hold]
        ",
    );
    world.delete("deploy/web @shop", "Foreground");
    world.becomes(&expect![[r#"
        po/web-1-a @shop owners=[rs/web-1*!] finalizers=[example.com/hold] deleting
        deploy/web @shop finalizers=[foreground] deleting
        rs/web-1 @shop owners=[deploy/web*!] finalizers=[foreground] deleting
    "#]]);
    world.settle();
    world.release("po/web-1-a @shop");
    world.becomes(&expect![[""]]);
}

#[test]
fn kubernetes_121114_a_dependent_that_does_not_block_holds_no_owner() {
    let world = World::new(
        "
        cm/owner @ns
        cm/child @ns owners=[cm/owner] finalizers=[example.com/hold]
        ",
    );
    world.delete("cm/owner @ns", "Foreground");
    world.becomes(&expect![[r#"
        cm/child @ns owners=[cm/owner~] finalizers=[example.com/hold] deleting
    "#]]);
    world.release("cm/child @ns");
    world.becomes(&expect![[""]]);
}

#[test]
fn kubernetes_77081_a_second_foreground_delete_while_another_finalizer_holds() {
    let world = World::new(
        "
        cm/owner @ns finalizers=[example.com/hold]
        cm/child @ns owners=[cm/owner!]
        ",
    );
    for _ in 0..2 {
        world.delete("cm/owner @ns", "Foreground");
        world.becomes(&expect![[r#"
            cm/owner @ns finalizers=[example.com/hold] deleting
        "#]]);
    }
    assert_eq!(world.count(Method::Patch, &path("cm/owner @ns")), 2, "each time the finalizer was there");
    world.release("cm/owner @ns");
    world.becomes(&expect![[""]]);
}

#[test]
fn kubernetes_89503_orphaning_twice() {
    let world = World::new(
        "
        cm/owner @ns finalizers=[example.com/hold]
        cm/child @ns owners=[cm/owner!]
        ",
    );
    for _ in 0..2 {
        world.delete("cm/owner @ns", "Orphan");
        world.becomes(&expect![[r#"
            cm/child @ns
            cm/owner @ns finalizers=[example.com/hold] deleting
        "#]]);
    }
    assert_eq!(world.count(Method::Patch, &path("cm/owner @ns")), 2, "each time the finalizer was there");
    world.release("cm/owner @ns");
    world.becomes(&expect![[r#"
        cm/child @ns
    "#]]);
}

#[test]
fn d9_a_cycle_of_three_cannot_hold_itself() {
    let world = World::new(
        "
        cm/a @ns
        cm/b @ns owners=[cm/a!]
        cm/c @ns owners=[cm/b!]
        ",
    );
    let c = world.server(|server| blocking_reference(server, "cm/c @ns"));
    world.patch("cm/a @ns", &json!({"metadata": {"ownerReferences": [c]}}));
    world.settle();
    world.delete("cm/a @ns", "Foreground");
    world.becomes(&expect![[""]]);
}

#[test]
fn d8_of_two_owners_one_goes() {
    let world = World::with(
        "
        cm/goes @ns
        cm/stays @ns
        secret/child @ns owners=[cm/goes!, cm/stays]
        ",
        &[],
        |server| {
            define_things(server);
            server.load(Timestamp::now(), "thing/child @ns owners=[cm/goes!, cm/stays]").unwrap();
        },
    );
    world.delete("cm/goes @ns", "Background");
    world.becomes(&expect![[r#"
        cm/stays @ns
        secret/child @ns owners=[cm/stays]
        crd/things.example.com
        thing/child @ns owners=[cm/stays]
    "#]]);
}

#[test]
fn d8_a_waiting_owner_is_dropped_while_another_lives() {
    let world = World::new(
        "
        cm/goes @ns
        cm/stays @ns
        secret/child @ns owners=[cm/goes!, cm/stays]
        ",
    );
    world.delete("cm/goes @ns", "Foreground");
    world.becomes(&expect![[r#"
        cm/stays @ns
        secret/child @ns owners=[cm/stays]
    "#]]);
}

#[test]
fn g3_an_owner_that_never_existed() {
    let world = World::new("cm/before @ns owners=[rs/nobody#u-1]\ncm/other @ns");
    world.load("cm/after @ns owners=[rs/nobody#u-2]");
    world.becomes(&expect![[r#"
        cm/other @ns
    "#]]);
}

#[test]
fn g4_an_owner_in_another_namespace_is_reported_once_and_does_not_count() {
    let world = World::new("cm/owner @home");
    world.load("cm/child @away owners=[cm/owner]");
    world.becomes(&expect![[r#"
        cm/owner @home
    "#]]);
    world.until("the event is there", |world| !world.events().is_empty());
    world.fence("cm");
    expect![[r#"
        [
            "Warning OwnerRefInvalidNamespace on ConfigMap child",
        ]
    "#]]
    .assert_debug_eq(&world.events());
}

#[test]
fn d6_a_cluster_scoped_dependent_with_a_namespaced_owner_stays_without_a_loop() {
    let world = World::new(
        "
        cm/owner @ns
        clusterrole/reader owners=[cm/owner]
        cm/child @ns owners=[cm/owner]
        ",
    );
    world.until("the event is there", |world| !world.events().is_empty());
    world.fence("cm");
    world.delete("cm/owner @ns", "Background");
    world.becomes(&expect![[r#"
        clusterrole/reader owners=[cm/owner~]
    "#]]);
    world.load("clusterrole/late owners=[cm/owner#u-1]");
    // Nobody else is asked for a cluster role: once this one has gone, the others have been seen.
    world.load("clusterrole/fence owners=[clusterrole/nobody#u-2]");
    world.until("the fence has gone", |world| {
        world.server(|server| server.object("clusterroles.rbac.authorization.k8s.io", "", "fence").is_none())
    });
    world.settle();
    world.becomes(&expect![[r#"
        clusterrole/late owners=[cm/owner~]
        clusterrole/reader owners=[cm/owner~]
    "#]]);
    expect![[r#"
        [
            "Warning OwnerRefInvalidNamespace on ClusterRole reader",
        ]
    "#]]
    .assert_debug_eq(&world.events());
    let reads = world.count(Method::Get, &path("clusterrole/reader"))
        + world.count(Method::Get, &path("clusterrole/late"));
    assert!(reads <= 6, "{reads} reads of objects that can never be decided");
    assert_eq!(world.count(Method::Get, "/api/v1/configmaps/owner"), 0, "there is no such path");
    let retries =
        world.daemon.metric("workqueue_retries_total{name=\"garbage_collector_attempt_to_delete\"}");
    assert_eq!(retries, Some(0.0));
}

#[test]
fn d5_a_namespaced_dependent_of_a_cluster_scoped_owner() {
    let world = World::new(
        "
        clusterrole/goes
        clusterrole/stays
        cm/one @ns owners=[clusterrole/goes]
        cm/two @ns owners=[clusterrole/stays]
        ",
    );
    world.delete("clusterrole/goes", "Background");
    world.becomes(&expect![[r#"
        cm/two @ns owners=[clusterrole/stays]
        clusterrole/stays
    "#]]);
}

#[test]
fn d2_a_name_that_was_taken_over_is_another_object() {
    let world = World::new(
        "
        cm/owner @ns
        cm/child @ns owners=[cm/owner]
        ",
    );
    // In one moment, so that no watch lies between.
    world.server(|server| {
        delete(server, "cm/owner @ns", "Background");
        let now = Timestamp::now();
        server.load(now, "cm/owner @ns\nsecret/new @ns owners=[cm/owner]").unwrap();
    });
    world.fence("secret");
    world.becomes(&expect![[r#"
        cm/owner @ns
        secret/new @ns owners=[cm/owner]
    "#]]);
}

#[test]
fn o2_a_thousand_dependents_are_orphaned_though_it_is_killed_half_way() {
    let mut world = World::with("cm/owner @ns", &[], |server| {
        define_things(server);
        server.load(Timestamp::now(), &thousand_dependents()).unwrap();
    });
    world.delete("cm/owner @ns", "Orphan");
    world.until("a third is released", |world| with_owner_of_all(world).0 < 667);
    world.daemon.kill();
    let (left, all) = with_owner_of_all(&world);
    assert!(0 < left && all == 1_000, "{left} of {all} at the kill");
    world.restart();
    world.until("the owner has gone", |world| {
        world.server(|server| server.object("configmaps", "ns", "owner").is_none())
    });
    world.settle();
    assert_eq!(with_owner_of_all(&world), (0, 1_000));
    let deletes = world.requests().iter().filter(|entry| entry.method == Method::Delete).count();
    assert_eq!(deletes, 0, "nothing is ever deleted by an orphaning");
}

#[test]
fn kubernetes_131307_a_dependent_that_shows_up_while_its_owner_is_orphaned_lives() {
    let world = World::new("cm/owner @ns\ncm/child @ns owners=[cm/owner!]");
    let owner = world.server(|server| {
        let owner = blocking_reference(server, "cm/owner @ns");
        delete(server, "cm/owner @ns", "Orphan");
        owner
    });
    world.until("the owner has gone", |world| {
        world.server(|server| server.object("configmaps", "ns", "owner").is_none())
    });
    let late = json!({"metadata": {"name": "late", "ownerReferences": [owner]}});
    let created = world.server(|server| {
        let request = Request::post("/api/v1/namespaces/ns/configmaps", &late);
        server.handle(Timestamp::now(), &request).code
    });
    assert_eq!(created, 201);
    world.becomes(&expect![[r#"
        cm/child @ns
        cm/late @ns
    "#]]);
    world.fence("cm");
}

#[test]
fn d17_dependents_of_every_policy_at_once() {
    let world = World::new(&["background", "foreground", "orphan"].map(|policy| format!(
        "cm/{policy} @ns\nsecret/{policy} @ns owners=[cm/{policy}!]\npo/{policy} @ns owners=[secret/{policy}!]\n"
    )).concat());
    world.server(|server| {
        delete(server, "cm/background @ns", "Background");
        delete(server, "cm/foreground @ns", "Foreground");
        delete(server, "cm/orphan @ns", "Orphan");
    });
    world.becomes(&expect![[r#"
        po/orphan @ns owners=[secret/orphan!]
        secret/orphan @ns
    "#]]);
}
