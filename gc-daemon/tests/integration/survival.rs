//! Restarts of the daemon, and a server that goes back in time.

use std::time::Duration;

use expect_test::expect;
use gc_tests::sim::{Effect, FaultRule, Method, Timestamp};

use crate::world::{World, define_things, delete, uid};

/// One owner over a hundred sets of three, every tenth a custom resource.
fn three_deep() -> String {
    let set = |i: usize| {
        let kind = if i.is_multiple_of(10) { "thing" } else { "rs" };
        let pods: String = (0..3).map(|n| format!("po/p-{i}-{n} @ns owners=[{kind}/s-{i}*!]\n")).collect();
        format!("{kind}/s-{i} @ns owners=[deploy/web*!]\n{pods}")
    };
    (0..100).map(set).collect()
}

fn killed_half_way(policy: &str) {
    let mut world = World::with("deploy/web @ns\ncm/other @ns", &["--concurrent-gc-syncs", "4"], |server| {
        define_things(server);
        server.load(Timestamp::now(), &three_deep()).unwrap();
    });
    world.delete("deploy/web @ns", policy);
    for left in [350, 250, 150, 50] {
        world.until("some more have gone", |world| world.show().lines().count() < left);
        world.daemon.kill();
        assert!(world.show().lines().count() > 2, "it was killed too late to say anything");
        world.restart();
    }
    world.becomes(&expect![[r#"
        cm/other @ns
        crd/things.example.com
    "#]]);
}

#[test]
fn s6_killed_four_times_in_a_background_cascade() {
    killed_half_way("Background");
}

#[test]
fn s6_killed_four_times_in_a_foreground_cascade() {
    killed_half_way("Foreground");
}

#[test]
fn s6_what_was_deleted_while_no_daemon_ran() {
    let mut world = World::new(
        "cm/owner @ns\nsecret/child @ns owners=[cm/owner!]\ncm/orphaned @ns\npo/leaf @ns owners=[cm/orphaned!]",
    );
    world.daemon.kill();
    world.delete("cm/owner @ns", "Background");
    world.delete("cm/orphaned @ns", "Orphan");
    world
        .load("cm/waiting @ns\nsecret/held @ns owners=[cm/waiting!]\ncm/new @ns\npo/new @ns owners=[cm/new]");
    world.delete("cm/waiting @ns", "Foreground");
    world.restart();
    world.becomes(&expect![[r#"
        cm/new @ns
        po/leaf @ns
        po/new @ns owners=[cm/new]
    "#]]);
}

#[test]
fn s7_a_server_restored_from_a_backup_voids_every_proof() {
    for is_restarted in [false, true] {
        let world = World::new(
            "cm/owner @ns\ncm/late @ns\nsecret/one @ns owners=[cm/owner]\npo/leaf @ns owners=[secret/one]",
        );
        let backup = world.server(|server| server.snapshot());
        let owner = world.server(|server| uid(server, "cm/owner @ns"));
        world.delete("cm/owner @ns", "Background");
        world.becomes(&expect![[r#"
            cm/late @ns
        "#]]);
        // Everything that was proved absent lives again, and one more dependent of it appears.
        world.server(|server| {
            server.restore(&backup);
            server.load(Timestamp::now(), "secret/two @ns owners=[cm/owner]").unwrap();
        });
        if is_restarted {
            world.front.cut_connections();
        }
        world.until("it has noticed", |world| world.daemon.said("the server's data was restored") > 0);
        world.until("it collects again", |world| world.daemon.page("/readyz").0 == 200);
        for kind in ["cm", "secret", "po"] {
            world.fence(kind);
        }
        world.becomes(&expect![[r#"
            cm/late @ns
            cm/owner @ns
            po/leaf @ns owners=[secret/one]
            secret/one @ns owners=[cm/owner]
            secret/two @ns owners=[cm/owner]
        "#]]);
        assert_eq!(world.server(|server| uid(server, "cm/owner @ns")), owner);
        world.delete("cm/owner @ns", "Background");
        world.becomes(&expect![[r#"
            cm/late @ns
        "#]]);
    }
}

#[test]
fn s7_restored_in_the_middle_of_a_cascade() {
    let world = World::with("deploy/web @ns", &["--concurrent-gc-syncs", "2"], |server| {
        define_things(server);
        server.load(Timestamp::now(), &three_deep()).unwrap();
    });
    let (backup, before) = world.server(|server| (server.snapshot(), server.show()));
    world.delete("deploy/web @ns", "Background");
    world.until("some have gone", |world| world.show().lines().count() < 380);
    // The server is stopped, restored, and started again: what waits for a retry then was decided in another world.
    world.fault(FaultRule::new("", Effect::CutBefore));
    world.front.cut_connections();
    world.until("it has noticed", |world| world.daemon.said("no API server answers") > 0);
    assert_eq!(world.daemon.page("/readyz").0, 503);
    world.server(|server| server.restore(&backup));
    world.no_more_faults();
    world.until("it has noticed", |world| world.daemon.said("the server's data was restored") > 0);
    world.until("it collects again", |world| world.daemon.page("/readyz").0 == 200);
    for kind in ["deploy", "rs", "po"] {
        world.fence(kind);
    }
    assert_eq!(world.show(), before);
}

#[test]
fn s5_a_server_that_was_away_for_seconds_is_found_again() {
    let world =
        World::new("cm/owner @ns\nsecret/child @ns owners=[cm/owner]\npo/leaf @ns owners=[secret/child]");
    world.fault(FaultRule::new("", Effect::CutBefore));
    world.front.cut_connections();
    world.until("it has noticed", |world| world.daemon.said("no API server answers") > 0);
    world.delete("cm/owner @ns", "Background");
    world.no_more_faults();
    world.becomes(&expect![[""]]);
    assert_eq!(world.daemon.page("/readyz"), (200, "ok".into()));
    assert_eq!(
        world.daemon.said("collecting: the watches go on"),
        1,
        "what was held goes on, and the log says so"
    );
}

#[test]
fn s6_two_daemons_at_once_do_no_harm() {
    let world = World::with(
        "deploy/web @ns\ncm/orphaned @ns\nsecret/stays @ns owners=[cm/orphaned!]",
        &[],
        |server| {
            define_things(server);
            server.load(Timestamp::now(), &three_deep()).unwrap();
        },
    );
    let mut second = crate::process::Daemon::start(&world.front.url(), &[]);
    second.wait_until_ready();
    world.server(|server| {
        delete(server, "deploy/web @ns", "Foreground");
        delete(server, "cm/orphaned @ns", "Orphan");
    });
    world.becomes(&expect![[r#"
        secret/stays @ns
        crd/things.example.com
    "#]]);
    let refused =
        world.requests().into_iter().filter(|e| e.method == Method::Delete && e.code >= 500).count();
    assert_eq!(refused, 0);
    second.terminate();
    assert!(second.wait(Duration::from_secs(5)).success());
}

/// The API server was killed and came back; it refused one watch for some seconds, since that kind's cache was not ready, and
/// an owner was deleted with Orphan meanwhile. Its dependents of that kind were not known yet when it went, and the daemon
/// was killed before they were released: the next one deleted them. (Seen in `cargo xtask chaos --only mixed`.)
#[test]
fn o2_s6_an_owner_that_is_orphaned_waits_for_a_watch_that_is_refused() {
    let mut world =
        World::with("cm/owner @ns\nsecret/seen @ns owners=[cm/owner]", &["-v", "4"], define_things);
    let things = "/apis/example.com/v1/things";
    world.until("the things are watched", |world| world.count(Method::Get, things) >= 2);
    world.fence("thing");
    let busy = Effect::Status {
        code: 429,
        reason: "TooManyRequests".into(),
        message: "storage is (re)initializing".into(),
        retry_after_s: Some(1),
    };
    world.fault(FaultRule::new(things, busy));
    world.server(|server| server.close_all_watches());
    world.until("it is refused", |world| world.daemon.said("the watch of things.example.com failed") > 0);
    world.server(|server| {
        server.load(Timestamp::now(), "thing/unseen @ns owners=[cm/owner]").unwrap();
        delete(server, "cm/owner @ns", "Orphan");
    });
    world.until("it waits", |world| world.daemon.said("not removed: a watch is not open") > 0);
    world.daemon.kill();
    world.becomes(&expect![[r#"
        cm/owner @ns finalizers=[orphan] deleting
        secret/seen @ns
        crd/things.example.com
        thing/unseen @ns owners=[cm/owner]
    "#]]);
    world.no_more_faults();
    world.restart();
    world.becomes(&expect![[r#"
        secret/seen @ns
        crd/things.example.com
        thing/unseen @ns
    "#]]);
}
