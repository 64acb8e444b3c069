//! What a signal does where the orderly way is blocked.
#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn r6_a_kubeconfig_that_never_comes_does_not_hold_up_a_signal() {
    // Whoever opens this waits for us to write, and nothing is ever written.
    let mut command = Command::new(env!("CARGO_BIN_EXE_gc-daemon"));
    command.args(["--kubeconfig", "/dev/stdin", "--metrics-bind-address", "0"]);
    let mut daemon = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    eventually("it catches signals and waits for its kubeconfig", || has_thread(daemon.id(), "event-loop"));

    assert!(Command::new("kill").args(["-TERM", &daemon.id().to_string()]).status().unwrap().success());
    let mut status = None;
    eventually("SIGTERM is obeyed", || {
        status = daemon.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(0));
}

/// Looks until it is true, and fails with `what` when it takes too long.
fn eventually(what: &str, mut look: impl FnMut() -> bool) {
    let start = Instant::now();
    while !look() {
        assert!(start.elapsed() < Duration::from_secs(20), "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn has_thread(pid: u32, name: &str) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.into_iter().any(|comm| comm.trim() == name)
}
