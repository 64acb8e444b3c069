//! Work ends: what is decided costs nothing.

use std::time::Duration;

use gc_tests::sim::Method;

use crate::world::{World, define_things, path_of};

/// Healthy objects in chains, of which none is ever to be looked at.
fn healthy(count: usize) -> String {
    let chain = |i: usize| {
        format!(
            "deploy/d-{i} @ns\nrs/r-{i} @ns owners=[deploy/d-{i}*!]\npo/p-{i} @ns owners=[rs/r-{i}*!]\n\
             thing/t-{i} @ns owners=[po/p-{i}]\n"
        )
    };
    (0..count).map(chain).collect()
}

#[test]
fn d17_thousands_of_healthy_objects_cost_their_lists_and_nothing_more() {
    let world = World::with("cm/owner @ns", &[], |server| {
        define_things(server);
        server.load(gc_tests::sim::Timestamp::now(), &healthy(1_000)).unwrap();
        // Of every kind that is waited for without end, so that a loop over them would show.
        let waiting = "clusterrole/c owners=[cm/owner]\ncm/held @ns owners=[cm/nobody#u] finalizers=[example.com/hold]\n";
        server.load(gc_tests::sim::Timestamp::now(), waiting).unwrap();
    });
    world.until("the held one is being deleted", |world| {
        world.show().contains("finalizers=[example.com/hold] deleting")
    });
    world.fence("cm");
    let reads = world
        .requests()
        .iter()
        .filter(|e| e.method == Method::Get && !is_list_watch_or_discovery(&e.target))
        .count();
    assert!(reads < 12, "{reads} objects were read, of which a few had to be");

    world.server(|server| server.forget_requests());
    let cpu = || world.daemon.metric("process_cpu_seconds_total").unwrap();
    let before = cpu();
    std::thread::sleep(Duration::from_secs(5));
    let used_ms = (cpu() - before) * 1e3;
    let asked = world.requests();
    assert!(asked.iter().all(|entry| matches!(path_of(entry), "/api" | "/apis")), "{asked:#?}");
    // The definition that was just created is looked after five times, each time at two paths.
    assert!(asked.len() <= 10, "{asked:#?}");
    assert!(used_ms < 300.0, "{used_ms} ms of processor time in 5 idle seconds");
}

fn is_list_watch_or_discovery(target: &str) -> bool {
    matches!(target, "/api" | "/apis") || target.contains("limit=") || target.contains("watch=")
}
