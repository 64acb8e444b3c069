//! The program among others: pages, signals, exit codes, and servers that are none.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use expect_test::{Expect, expect};
use gc_tests::http::Front;
use gc_tests::sim::{ApiServer, Effect, FaultRule, Method};

use crate::process::{DEADLINE, Daemon, command, eventually, kubeconfig, write_kubeconfig};
use crate::world::{World, for_daemon, uid};

/// R6.
const STOPS_WITHIN: Duration = Duration::from_secs(5);

#[test]
fn r2_metrics_have_the_references_names() {
    let world = World::new("cm/owner @ns\nsecret/child @ns owners=[cm/owner]");
    world.delete("cm/owner @ns", "Background");
    world.becomes(&expect![[""]]);
    world.settle();
    let (code, page) = world.daemon.page("/metrics");
    assert_eq!(code, 200);
    let mut names: Vec<&str> = Vec::new();
    for line in page.lines().filter(|line| !line.is_empty()) {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            names.push(rest);
        } else if !line.starts_with('#') {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(!name.contains("child") && !name.contains("owner\""), "no object is a label: {line}");
        }
    }
    names.sort_unstable();
    expect![[r#"
        garbagecollector_controller_resources_sync_error_total counter
        gc_absence_unconfirmed_total counter
        gc_absent_owner_cache_entries gauge
        gc_deletes_total counter
        gc_events_dropped_total counter
        gc_graph_bytes gauge
        gc_graph_nodes gauge
        gc_kind_synced gauge
        gc_requests_total counter
        gc_watch_failures_total counter
        gc_watch_lag_seconds histogram
        gc_watch_restarts_total counter
        process_cpu_seconds_total counter
        process_resident_memory_bytes gauge
        process_start_time_seconds gauge
        rest_client_request_duration_seconds histogram
        workqueue_adds_total counter
        workqueue_depth gauge
        workqueue_longest_running_processor_seconds gauge
        workqueue_queue_duration_seconds histogram
        workqueue_retries_total counter
        workqueue_unfinished_work_seconds gauge
        workqueue_work_duration_seconds histogram"#]]
    .assert_eq(&names.join("\n"));
    assert_eq!(world.daemon.metric("gc_deletes_total{policy=\"Background\"}"), Some(1.0));
    let name = "workqueue_adds_total{name=\"garbage_collector_attempt_to_delete\"}";
    assert!(world.daemon.metric(name).unwrap() >= 1.0);
    for name in [
        "gc_watch_lag_seconds_count",
        "rest_client_request_duration_seconds_count{verb=\"DELETE\"}",
        "workqueue_queue_duration_seconds_count{name=\"garbage_collector_attempt_to_delete\"}",
        "workqueue_queue_duration_seconds_count{name=\"garbage_collector_graph_changes\"}",
        "workqueue_work_duration_seconds_count{name=\"garbage_collector_graph_changes\"}",
    ] {
        // What was written last is not in every figure yet when the last object is gone.
        world.until(name, |world| world.daemon.metric(name).is_some_and(|count| count >= 1.0));
    }
}

#[test]
fn r2_the_debug_graph_shows_the_part_around_an_object() {
    let world = World::new(
        "cm/owner @ns\nsecret/child @ns owners=[cm/owner!]\ncm/apart @ns\nsecret/other @ns owners=[cm/apart]",
    );
    let owner = world.server(|server| uid(server, "cm/owner @ns"));
    for name in ["garbage-collector-controller", "garbagecollector"] {
        let (code, part) = world.daemon.page(&format!("/debug/controllers/{name}/graph?uid={owner}"));
        assert_eq!(code, 200);
        assert!(part.starts_with("strict digraph full {"), "{part}");
        assert!(part.contains("owner") && part.contains("child") && !part.contains("apart"), "{part}");
        let (_, whole) = world.daemon.page(&format!("/debug/controllers/{name}/graph"));
        assert!(whole.contains("apart") && whole.contains("other"), "{whole}");
    }
    assert_eq!(world.daemon.page("/livez").0, 200);
    assert_eq!(world.daemon.page("/healthz").0, 200);
    assert_eq!(world.daemon.page("/nothing").0, 404);
}

#[test]
fn r6_sigterm_ends_an_idle_daemon_with_0() {
    let mut world = World::new("cm/a @ns");
    let start = Instant::now();
    world.daemon.terminate();
    let status = world.daemon.wait(STOPS_WITHIN);
    assert_eq!(status.code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(2), "{:?} to stop doing nothing", start.elapsed());
}

#[test]
fn r6_sigterm_in_the_middle_of_a_cascade_finishes_the_requests_in_hand() {
    let children: String = (0..2_000).map(|i| format!("secret/child-{i} @ns owners=[cm/owner]\n")).collect();
    let mut world = World::new(&format!("cm/owner @ns\n{children}"));
    world.fault(FaultRule::new("*/secrets/*", Effect::Delay(Duration::from_millis(50))));
    world.delete("cm/owner @ns", "Background");
    world.until("it has begun", |world| world.server(|server| server.objects("secrets").len()) < 1_950);
    world.daemon.terminate();
    assert_eq!(world.daemon.wait(STOPS_WITHIN).code(), Some(0));
    let left = world.server(|server| server.objects("secrets").len());
    assert!(0 < left, "it stopped in the middle");
    world.no_more_faults();
    world.restart();
    world.becomes(&expect![[""]]);
}

#[test]
fn r6_sigterm_while_the_server_does_not_answer() {
    let mut world = World::new("cm/owner @ns\nsecret/child @ns owners=[cm/owner]");
    world.fault(FaultRule::new("*/secrets/*", Effect::Delay(Duration::from_secs(30))));
    world.delete("cm/owner @ns", "Background");
    world.until("it waits for an answer", |world| {
        world.count(Method::Delete, "/api/v1/namespaces/ns/secrets/child") > 0
    });
    world.daemon.terminate();
    assert_eq!(world.daemon.wait(STOPS_WITHIN).code(), Some(0));
}

/// Runs the program to its end and gives its exit code and what it said last.
fn ends_with(args: &[&str], expected: &Expect) {
    let mut child = command().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > DEADLINE {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&stderr).replace(env!("CARGO_TARGET_TMPDIR"), "TMP");
    let said = said.lines().filter(|line| line.starts_with("gc-daemon:") || line.contains("panicked"));
    expected.assert_eq(&format!("{:?} {}\n", status.code(), said.collect::<Vec<_>>().join(" / ")));
    assert!(stdout.is_empty());
}

/// The same with a kubeconfig of this text.
fn ends_with_kubeconfig(text: &str, expected: &Expect) {
    let path = write_kubeconfig(text);
    let named = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bad-{}", text.len()));
    std::fs::rename(&path, &named).unwrap();
    ends_with(&["--kubeconfig", named.to_str().unwrap(), "--metrics-bind-address", "0"], expected);
    std::fs::remove_file(&named).unwrap();
}

#[test]
fn r7_a_bad_configuration_is_one_line_with_the_mend() {
    ends_with(
        &["--kubeconfig", "/nowhere/at/all", "--metrics-bind-address", "0"],
        &expect![[r#"
        Some(1) gc-daemon: /nowhere/at/all: No such file or directory (os error 2); give a kubeconfig that this process may read
    "#]],
    );
    ends_with(
        &["--metrics-bind-address", "0"],
        &expect![[r#"
        Some(1) gc-daemon: no configuration: $KUBECONFIG is not set, this is no pod with a service account, and there is no ~/.kube/config; give --kubeconfig FILE
    "#]],
    );
    ends_with(
        &["--concurrent-gc-syncs", "many"],
        &expect![[r#"
        Some(2) gc-daemon: --concurrent-gc-syncs many: must be a whole number from 1 to 1000; 20 is the default
    "#]],
    );
    ends_with(
        &["--no-such-flag"],
        &expect![[r#"
        Some(2) gc-daemon: --no-such-flag: no such flag; gc-daemon --help lists them
    "#]],
    );
    ends_with(
        &["--leader-elect=true"],
        &expect![[r#"
        Some(2) gc-daemon: --leader-elect true: leader election is not built yet; run one instance, without this flag
    "#]],
    );
    ends_with_kubeconfig(
        "",
        &expect![[r#"
        Some(1) gc-daemon: TMP/bad-0: it defines no context, no cluster and no user; give a kubeconfig
    "#]],
    );
    ends_with_kubeconfig(
        "{",
        &expect![[r#"
        Some(1) gc-daemon: TMP/bad-1: line 1, column 1: unclosed bracket; mend the YAML there
    "#]],
    );
    ends_with_kubeconfig(
        "\u{0}\u{1}binary",
        &expect![[r#"
        Some(1) gc-daemon: TMP/bad-8: line 1, column 1: unexpected character; mend the YAML there
    "#]],
    );
    ends_with_kubeconfig(
        &kubeconfig("ftp://example.com"),
        &expect![[r#"
        Some(1) gc-daemon: TMP/bad-226: clusters[it].cluster.server: the URL has neither https:// nor http://; write https://HOST:PORT
    "#]],
    );
    ends_with_kubeconfig(
        &kubeconfig("http://127.0.0.1:1")
            .replace("\"user\":{}", "\"user\":{\"tokenFile\":\"/nowhere/token\"}"),
        &expect![[r#"
            Some(1) gc-daemon: TMP/bad-255: users[it].user.tokenFile: /nowhere/token: No such file or directory (os error 2); mount or write a token there, and let this process read it
        "#]],
    );
    ends_with_kubeconfig(
        &kubeconfig("https://127.0.0.1:1")
            .replace("\"server\"", "\"certificate-authority-data\":\"bm90IGEgY2VydA==\",\"server\""),
        &expect![[r#"
            Some(1) gc-daemon: TMP/bad-276: clusters[it].cluster.certificate-authority-data: there is no certificate in it; give certificates in PEM, from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----
        "#]],
    );
}

#[test]
fn r7_an_address_in_use_is_one_line() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let path = write_kubeconfig(&kubeconfig("http://127.0.0.1:1"));
    let run =
        command().arg("--kubeconfig").arg(&path).args(["--metrics-bind-address", &address]).output().unwrap();
    std::fs::remove_file(&path).unwrap();
    let said = String::from_utf8(run.stderr).unwrap().replace(&address, "ADDRESS");
    let said = said.split(" (os error").next().unwrap();
    expect!["Some(1) gc-daemon: --metrics-bind-address ADDRESS: Address already in use"]
        .assert_eq(&format!("{:?} {said}", run.status.code()));
}

/// Something that listens and is no API server: every connection gets these bytes after its request, and is closed.
struct Impostor {
    url: String,
    connections: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Impostor {
    fn start(scheme: &str, answer: &'static [u8]) -> Impostor {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, stopped) = (connections.clone(), stop.clone());
        let serve = move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(mut stream) = stream else { continue };
                count.fetch_add(1, Ordering::SeqCst);
                // A client that has gone already asked for nothing.
                let _ = stream.read(&mut [0; 4_096]);
                let _ = stream.write_all(answer);
            }
        };
        let thread = Some(std::thread::Builder::new().name("impostor".into()).spawn(serve).unwrap());
        Impostor { url: format!("{scheme}://{address}"), connections, stop, thread }
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.url.split("//").nth(1).unwrap());
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// The daemon keeps trying, says so, does not press, and stops when it is told to.
fn keeps_trying(url: &str, connections: &AtomicUsize, expected: &Expect) {
    let mut daemon = Daemon::start(url, &[]);
    eventually("it says so", DEADLINE, || (daemon.said("discovery failed") > 0).then_some(()));
    let cpu = || daemon.metric("process_cpu_seconds_total").unwrap();
    let (before, start) = (cpu(), Instant::now());
    std::thread::sleep(Duration::from_millis(1_000));
    let used_ms = (cpu() - before) * 1e3;
    assert!(used_ms < 300.0, "{used_ms} ms of processor time in {:?}", start.elapsed());
    let tried = connections.load(Ordering::SeqCst);
    assert!(tried <= 12, "{tried} connections in a second");
    assert_eq!(daemon.page("/livez").0, 200);
    assert_eq!(daemon.page("/readyz").0, 503);
    let said = daemon.first_line_with("discovery failed");
    let address = url.split("//").nth(1).unwrap();
    expected.assert_eq(&said.replace(address, "ADDRESS"));
    daemon.terminate();
    assert_eq!(daemon.wait(STOPS_WITHIN).code(), Some(0));
}

#[test]
fn r7_a_server_that_is_not_there() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    keeps_trying(
        &format!("http://{free}"),
        &AtomicUsize::new(0),
        &expect!["discovery failed, everything stays as it is: GET /api at ADDRESS: connection refused"],
    );
}

#[test]
fn r7_a_tls_port_spoken_to_in_plain() {
    let answer = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    let server = Impostor::start("http", answer);
    keeps_trying(
        &server.url,
        &server.connections,
        &expect![
            "discovery failed, everything stays as it is: the server answered 400: Client sent an HTTP request to an HTTPS server."
        ],
    );
}

#[test]
fn r7_a_plain_port_spoken_to_in_tls() {
    let front = Front::start(ApiServer::new(7)).unwrap();
    keeps_trying(
        &front.url().replace("http:", "https:"),
        &AtomicUsize::new(0),
        &expect![
            "discovery failed, everything stays as it is: GET /api at ADDRESS: the server closed the connection before the answer was complete"
        ],
    );
    front.with(|server| assert_eq!(server.requests().count(), 0));
}

#[test]
fn r7_a_login_page_in_place_of_a_server() {
    let answer =
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 19\r\n\r\n<html>Log in</html>";
    let server = Impostor::start("http", answer);
    keeps_trying(
        &server.url,
        &server.connections,
        &expect![
            "discovery failed, everything stays as it is: GET /api: cannot read the answer: expected value at line 1 column 1"
        ],
    );
}

#[test]
fn r7_garbage_in_place_of_a_server() {
    let server = Impostor::start("http", b"\x00\xff\x16\x03garbage\r\n\r\n{{{{");
    keeps_trying(
        &server.url,
        &server.connections,
        &expect![
            "discovery failed, everything stays as it is: GET /api at ADDRESS: what answers does not speak HTTP/1.1 (http parse fail: invalid HTTP version); check the scheme and the port of the server"
        ],
    );
    let server = Impostor::start("http", b"");
    keeps_trying(
        &server.url,
        &server.connections,
        &expect![
            "discovery failed, everything stays as it is: GET /api at ADDRESS: the server closed the connection before the answer was complete"
        ],
    );
}

#[test]
fn s4_it_is_not_ready_before_anything_could_be_listed() {
    let failing = || Effect::Status {
        code: 500,
        reason: "InternalError".into(),
        message: "etcd is down".into(),
        retry_after_s: None,
    };
    let mut world = World::starting("cm/a @ns\ncm/child @ns owners=[cm/nobody#u]", &[], |server| {
        // Lists and watches of objects, not discovery.
        for path in ["/api/v1/*", "/apis/*/*/*"] {
            server.faults.push(for_daemon(FaultRule::new(path, failing()).for_method(Method::Get)));
        }
    });
    let lists = |world: &World| world.requests().iter().filter(|entry| entry.code == 500).count();
    world.until("lists have failed", |world| lists(world) > 20);
    assert_eq!(world.daemon.page("/readyz").0, 503);
    assert_eq!(world.daemon.page("/livez").0, 200);
    assert_eq!(world.written(), [""; 0], "nothing is begun");
    world.no_more_faults();
    world.daemon.wait_until_ready();
    world.becomes(&expect![[r#"
        cm/a @ns
    "#]]);
}

#[test]
fn r7_a_server_that_comes_late_is_found() {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let mut daemon = Daemon::start(&format!("http://127.0.0.1:{port}"), &[]);
    eventually("it has tried", DEADLINE, || (daemon.said("discovery failed") > 0).then_some(()));
    let mut server = ApiServer::new(7);
    server.load(gc_tests::sim::Timestamp::now(), "cm/a @ns\ncm/child @ns owners=[cm/nobody#u]").unwrap();
    let front = Front::start_on(server, port).unwrap();
    daemon.wait_until_ready();
    eventually("it collects", DEADLINE, || {
        (front.with(|server| server.show()) == "cm/a @ns\n").then_some(())
    });
}

/// As part of another program: stops when told to, with nothing left behind.
#[test]
fn r6_the_daemon_inside_another_process_ends_when_its_channel_does() {
    let mut server = ApiServer::new(7);
    server.load(gc_tests::sim::Timestamp::now(), "cm/a @ns\ncm/child @ns owners=[cm/nobody#u]").unwrap();
    let front = Front::start(server).unwrap();
    let path = write_kubeconfig(&kubeconfig(&front.url()));
    let args = ["gc-daemon", "--kubeconfig", path.to_str().unwrap(), "--metrics-bind-address", "0"];
    let flags = gc_daemon::flags::Flags::from_args(args).unwrap();
    let (stop, stopped) = crossbeam_channel::bounded::<()>(0);
    let run = move || gc_daemon::daemon::daemon(&flags, &stopped);
    let thread = std::thread::Builder::new().name("daemon".into()).spawn(run).unwrap();
    eventually("it collects", DEADLINE, || {
        (front.with(|server| server.show()) == "cm/a @ns\n").then_some(())
    });
    drop(stop);
    let start = Instant::now();
    assert_eq!(thread.join().unwrap(), Ok(()));
    assert!(start.elapsed() < STOPS_WITHIN);
    std::fs::remove_file(&path).unwrap();
    eventually("every watch is closed", DEADLINE, || {
        front.with(|server| server.load(gc_tests::sim::Timestamp::now(), "cm/b @ns").ok());
        (front.with(|server| server.open_watches()) == 0).then_some(())
    });
}
