//! What a million nodes take of a real process, by the system's own account. The only test of its program, so that
//! nothing else is in the figure.
//!
//! glibc gives what is freed at the end of its heap back to the system only when that is more than twice the largest
//! block that it has ever mapped and freed, up to 64 MB: it would blur the last figure. `MALLOC_TRIM_THRESHOLD_` sets
//! another limit. musl, with which the static binary is linked, has no such habit.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use gc_graph::Graph;
use objects::{objects, shuffled};

#[path = "../benches/objects/mod.rs"]
mod objects;

const COUNT: usize = 1_000_000;

/// The goal of the project, names included; objects have one owner, or are one.
const BYTES_EACH_MAX: usize = 128;

#[test]
fn g12_a_million_nodes_take_little_and_give_it_back() {
    const LIMIT: &str = "MALLOC_TRIM_THRESHOLD_";
    if cfg!(target_env = "gnu") && std::env::var_os(LIMIT).is_none() {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        assert!(again.arg("--nocapture").env(LIMIT, "131072").status().unwrap().success());
        return;
    }
    let in_order = objects(COUNT);
    let shuffled = shuffled(&in_order);
    let mut effects = Vec::new();
    let before = resident_bytes();
    let mut graph = Graph::new();
    for object in &in_order {
        object.observe("123456789", &mut graph, &mut effects);
        effects.clear();
    }
    let filled = resident_bytes() - before;
    println!("{} bytes a node, {} by the graph's estimate", filled / COUNT, graph.memory_bytes() / COUNT);
    assert!(filled <= BYTES_EACH_MAX * COUNT, "{} bytes a node", filled / COUNT);
    // The estimate is what an operator sees in /metrics.
    assert!(filled.abs_diff(graph.memory_bytes()) < filled / 10, "an estimate of {}", graph.memory_bytes());

    // A quarter of them go and come again, in any order: nothing piles up.
    for object in &shuffled[..COUNT / 4] {
        object.delete(&mut graph, &mut effects);
        object.observe("123456790", &mut graph, &mut effects);
        effects.clear();
    }
    let churned = resident_bytes() - before;
    println!("{} bytes a node after a quarter was deleted and made anew", churned / COUNT);
    assert!(churned <= filled + filled / 4, "{} bytes a node", churned / COUNT);

    // All but a hundredth go.
    for object in &shuffled[COUNT / 100..] {
        object.delete(&mut graph, &mut effects);
        effects.clear();
    }
    let left = resident_bytes().saturating_sub(before);
    println!("{left} bytes when {} nodes are left, {} by the estimate", graph.len(), graph.memory_bytes());
    assert!(left < filled / 20, "{left} of {filled} bytes are still held");
}

/// VmRSS.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}
