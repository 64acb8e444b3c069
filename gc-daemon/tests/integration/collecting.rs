//! When collection starts. The module's name lets these tests start first: one of them takes 30 s of waiting.

use std::time::{Duration, Instant};

use expect_test::expect;
use gc_tests::sim::Timestamp;

use crate::world::{World, define_things};

#[test]
fn s3_s4_one_broken_resource_delays_the_start_by_30_s_and_stops_nothing() {
    let start = Instant::now();
    let mut world = World::starting("cm/a @ns", &[], |server| {
        define_things(server);
        let world = "thing/owner @ns\ncm/child @ns owners=[thing/owner]\ncm/orphan @ns owners=[cm/nobody#u]";
        server.load(Timestamp::now(), world).unwrap();
        server.switches.broken_resources.insert("things.example.com".into());
    });
    world.until("it waits", |world| world.daemon.page("/readyz").1.contains("waiting for the first lists"));
    assert_eq!(world.daemon.page("/readyz").0, 503);
    world.daemon.wait_until_ready();
    assert!(start.elapsed() >= Duration::from_secs(30), "{:?}", start.elapsed());
    assert_eq!(
        world.daemon.page("/readyz"),
        (200, "ok, degraded: 1 kind not listed: things.example.com".into())
    );
    world.becomes(&expect![[r#"
        cm/a @ns
        cm/child @ns owners=[thing/owner]
        crd/things.example.com
        thing/owner @ns
    "#]]);
    let writes = world.written();
    expect![[r#"
        [
            "configmaps/ns/orphan",
        ]
    "#]]
    .assert_debug_eq(&writes);
}
