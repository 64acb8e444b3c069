//! What proves an owner absent, and objects that change while they are decided.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use expect_test::expect;
use gc_tests::sim::{Effect, FaultRule, Method, Request, Timestamp};
use serde_json::json;

use crate::world::{World, blocking_reference, define_things, delete, for_daemon, patch, path, path_of};

fn status(code: u16, reason: &str) -> Effect {
    Effect::Status { code, reason: reason.into(), message: "on purpose".into(), retry_after_s: None }
}

/// The daemon is asked to believe an answer about an owner whose kind it does not watch, and must not.
fn an_answer_that_proves_nothing(effect: &Effect) {
    let child = "cm/child @ns owners=[thing/owner]\ncm/dangling @ns owners=[thing/nobody#u]";
    let world = World::with("", &["--gc-ignored-resources", "things.example.com"], |server| {
        define_things(server);
        server.load(Timestamp::now(), &format!("thing/owner @ns\n{child}")).unwrap();
        server.faults.push(for_daemon(FaultRule::new("*/things/*", effect.clone())));
    });
    let (owner, nobody) = (path("thing/owner @ns"), path("thing/nobody @ns"));
    world.until("both were asked for, again and again", |world| {
        world.count(Method::Get, &owner) >= 6 && world.count(Method::Get, &nobody) >= 6
    });
    let deletes = world.requests().iter().filter(|entry| entry.method == Method::Delete).count();
    assert_eq!(deletes, 0, "{effect:?}");
    world.no_more_faults();
    world.becomes(&expect![[r#"
        cm/child @ns owners=[thing/owner]
        crd/things.example.com
        thing/owner @ns
    "#]]);
    world.fence("cm");
    // Back-off, and no more than a few askers: the dependent and the owner's own node.
    let asked = world.count(Method::Get, &owner);
    assert!(asked < 60, "{asked} reads");
}

#[test]
fn d16_kubernetes_104342_the_404_of_a_path_that_is_not_served_proves_nothing() {
    an_answer_that_proves_nothing(&Effect::PlainNotFound);
}

#[test]
fn d16_a_404_that_names_nothing_proves_nothing() {
    an_answer_that_proves_nothing(&status(404, "NotFound"));
}

#[test]
fn d16_a_server_that_is_down_proves_nothing() {
    an_answer_that_proves_nothing(&status(503, "ServiceUnavailable"));
}

#[test]
fn d16_a_missing_permission_proves_nothing() {
    an_answer_that_proves_nothing(&status(403, "Forbidden"));
}

#[test]
fn d16_a_cut_connection_proves_nothing() {
    an_answer_that_proves_nothing(&Effect::CutBefore);
}

#[test]
fn d16_half_an_answer_proves_nothing() {
    an_answer_that_proves_nothing(&Effect::Truncate(40));
}

#[test]
fn d16_kubernetes_98471_one_404_for_what_the_graph_holds_is_asked_again() {
    let world = World::new(
        "
        cm/goes @ns
        cm/stays @ns
        secret/middle @ns owners=[cm/goes, cm/stays]
        po/leaf @ns owners=[secret/middle]
        ",
    );
    let middle = path("secret/middle @ns");
    world.fault(FaultRule::new(&middle, Effect::NotFound).for_method(Method::Get).times(1));
    world.delete("cm/goes @ns", "Background");
    world.becomes(&expect![[r#"
        cm/stays @ns
        po/leaf @ns owners=[secret/middle]
        secret/middle @ns owners=[cm/stays]
    "#]]);
    world.fence("po");
    assert_eq!(world.count(Method::Delete, &path("po/leaf @ns")), 0);
    assert!(world.daemon.metric("gc_absence_unconfirmed_total").unwrap() >= 1.0);
}

#[test]
fn d16_while_the_server_starts_every_custom_path_is_missing() {
    let world = World::starting("cm/other @ns owners=[cm/nobody#u]", &[], |server| {
        define_things(server);
        server.load(Timestamp::now(), "thing/owner @ns\ncm/child @ns owners=[thing/owner]").unwrap();
        for path in ["/apis/example.com/*", "/apis/example.com"] {
            server.faults.push(for_daemon(FaultRule::new(path, Effect::PlainNotFound)));
        }
    });
    let things = "/apis/example.com/v1/things";
    world.until("it has been refused", |world| world.count(Method::Get, things) >= 2);
    world.no_more_faults();
    world.until("it collects", |world| world.daemon.page("/readyz") == (200, "ok".into()));
    world.becomes(&expect![[r#"
        cm/child @ns owners=[thing/owner]
        crd/things.example.com
        thing/owner @ns
    "#]]);
    world.fence("cm");
    world.delete("thing/owner @ns", "Background");
    world.becomes(&expect![[r#"
        crd/things.example.com
    "#]]);
}

#[test]
fn d11_an_object_that_is_written_all_the_time_goes_within_seconds() {
    let world = World::new("cm/owner @ns\nsecret/busy @ns owners=[cm/owner]");
    let stop = AtomicBool::new(false);
    let writes = std::thread::scope(|scope| {
        let write = || {
            let mut writes = 0;
            while !stop.load(Ordering::Relaxed) {
                let label = json!({"metadata": {"labels": {"n": writes.to_string()}}});
                let request = Request::merge_patch(&path("secret/busy @ns"), &label);
                if world.server(|server| server.handle(Timestamp::now(), &request).code) == 404 {
                    break;
                }
                writes += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            writes
        };
        let writer = std::thread::Builder::new().name("writer".into()).spawn_scoped(scope, write).unwrap();
        world.delete("cm/owner @ns", "Background");
        let start = Instant::now();
        let is_there = || world.server(|server| server.object("secrets", "ns", "busy").is_some());
        while is_there() && start.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    assert_eq!(world.show(), "", "still there after 10 s and {writes} writes");
}

/// Makes the daemon read an object before it deletes it, by refusing the delete on the version that it has seen (D15);
/// holds back the answer to the read, and does something once the server has given it.
fn between_read_and_delete(world: &World, object: &str, begin: impl Fn(), act: impl Fn()) {
    let path = path(object);
    let reads = world.count(Method::Get, &path);
    let slow = Effect::Delay(Duration::from_millis(300));
    world.fault(FaultRule::new(&path, slow).for_method(Method::Get).times(1));
    let conflict = Effect::Status {
        code: 409,
        reason: "Conflict".into(),
        message: "it has changed".into(),
        retry_after_s: None,
    };
    world.fault(FaultRule::new(&path, conflict).for_method(Method::Delete).times(1));
    begin();
    world.until("it has been read", |world| world.count(Method::Get, &path) > reads);
    act();
}

#[test]
fn d11_kubernetes_114603_re_parented_between_the_read_and_the_delete_it_lives() {
    for object in ["cm/child @ns", "thing/child @ns"] {
        let world = World::with("rs/goes @ns\nrs/stays @ns", &[], |server| {
            define_things(server);
            server.load(Timestamp::now(), &format!("{object} owners=[rs/goes]")).unwrap();
        });
        let stays = world.server(|server| blocking_reference(server, "rs/stays @ns"));
        between_read_and_delete(
            &world,
            object,
            || world.delete("rs/goes @ns", "Background"),
            || world.patch(object, &json!({"metadata": {"ownerReferences": [stays]}})),
        );
        let deletes = || world.requests().into_iter().filter(|entry| entry.method == Method::Delete);
        world.until("the delete was tried again", |_| deletes().nth(1).is_some());
        world.fence("cm");
        let codes: Vec<u16> =
            deletes().filter(|entry| !entry.target.contains("fence")).map(|e| e.code).collect();
        assert_eq!(codes, [409, 409], "on the version that was read, and not again");
        assert!(world.show().contains(&format!("{object} owners=[rs/stays!]")), "{}", world.show());
    }
}

#[test]
fn d15_kubernetes_114603_re_parented_while_its_watch_is_behind_it_lives() {
    for object in ["cm/child @ns", "thing/child @ns"] {
        let world = World::with("rs/goes @ns\nrs/stays @ns", &[], |server| {
            define_things(server);
            server.load(Timestamp::now(), &format!("{object} owners=[rs/goes]")).unwrap();
        });
        let stays = world.server(|server| blocking_reference(server, "rs/stays @ns"));
        let reference = json!({"metadata": {"ownerReferences": [stays]}});
        // In one go, so that the watches of two kinds race for the daemon: whichever is first, it must not matter.
        world.server(|server| {
            patch(server, object, &reference);
            delete(server, "rs/goes @ns", "Background");
        });
        world.fence("cm");
        world.fence("rs");
        assert!(world.show().contains(&format!("{object} owners=[rs/stays!]")), "{}", world.show());
    }
}

#[test]
fn d11_recreated_between_the_read_and_the_delete_it_lives() {
    let world = World::new("rs/goes @ns\ncm/child @ns owners=[rs/goes]");
    between_read_and_delete(
        &world,
        "cm/child @ns",
        || world.delete("rs/goes @ns", "Background"),
        || {
            world.server(|server| {
                delete(server, "cm/child @ns", "Background");
                server.load(Timestamp::now(), "cm/child @ns").unwrap();
            });
        },
    );
    world.until("the delete was tried again", |world| world.count(Method::Delete, &path("cm/child @ns")) > 1);
    world.fence("cm");
    world.becomes(&expect![[r#"
        cm/child @ns
    "#]]);
}

#[test]
fn d13_a_finalizer_that_goes_between_the_read_and_the_patch_does_not_come_back() {
    let world = World::new(
        "
        cm/owner @ns finalizers=[example.com/first, example.com/last]
        secret/child @ns owners=[cm/owner!] finalizers=[example.com/hold]
        ",
    );
    world.delete("cm/owner @ns", "Foreground");
    world.until("the child is being deleted", |world| {
        world.show().contains("finalizers=[example.com/hold] deleting")
    });
    world.settle();
    between_read_and_delete(
        &world,
        "cm/owner @ns",
        || world.release("secret/child @ns"),
        || {
            let left = json!({"metadata": {"finalizers": ["example.com/last", "foregroundDeletion"]}});
            world.patch("cm/owner @ns", &left);
        },
    );
    world.becomes(&expect![[r#"
        cm/owner @ns finalizers=[example.com/last] deleting
    "#]]);
    let owner = path("cm/owner @ns");
    let patches = world.requests().into_iter().filter(|e| e.method == Method::Patch && path_of(e) == owner);
    assert_eq!(patches.map(|entry| entry.code).collect::<Vec<_>>(), [409, 200]);
}

#[test]
fn d11_a_delete_whose_answer_is_lost_is_found_done() {
    let world =
        World::new("cm/owner @ns\nsecret/child @ns owners=[cm/owner]\npo/leaf @ns owners=[secret/child]");
    world.fault(
        FaultRule::new(&path("secret/child @ns"), Effect::CutAfter).for_method(Method::Delete).times(1),
    );
    world.fault(FaultRule::new(&path("po/leaf @ns"), Effect::CutBefore).for_method(Method::Delete).times(1));
    world.delete("cm/owner @ns", "Background");
    world.becomes(&expect![[""]]);
    world.settle();
}
