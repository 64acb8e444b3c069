use super::*;
use crate::metrics::{GraphNumbers, Sources};
use expect_test::{Expect, expect};

fn pages() -> Pages {
    let sources = Sources { queues: Box::new(Vec::new), graph: Box::new(GraphNumbers::default) };
    Pages {
        health: Arc::new(Health::new(Instant::now())),
        metrics: Arc::new(Metrics::new(sources)),
        graph_dot: Arc::new(|uids| format!("strict digraph full {{ // {uids:?}\n}}\n")),
    }
}

fn start(pages: Pages) -> Server {
    Server::start(SocketAddr::from(([127, 0, 0, 1], 0)), pages).expect("loopback has a free port")
}

/// Sends these bytes, says that no more come, and reads the answer to its end.
fn ask(server: &Server, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.local_addr()).expect("connect");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set a time-out");
    stream.write_all(request).expect("send");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the answer ends");
    String::from_utf8(answer).expect("UTF-8")
}

fn get(server: &Server, target: &str) -> String {
    ask(server, format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())
}

/// The status line, and the body.
fn outline(answer: &str) -> String {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    format!("{} | {}", head.lines().next().unwrap_or_default(), body.trim_end().replace('\n', " | "))
}

/// Each request line of the list with the outline of its answer.
fn check(targets: &str, expected: &Expect) {
    let server = start(pages());
    let mut actual = String::new();
    for line in targets.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let answer = ask(&server, format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
        actual += &format!("{line}\n    {}\n", outline(&answer));
    }
    expected.assert_eq(&actual);
}

#[test]
fn r2_probes_and_pages() {
    check(
        "
        GET /healthz
        GET /livez?verbose
        GET /readyz
        GET /readyz?verbose=1
        HEAD /livez
        GET /debug/controllers/garbage-collector-controller/graph
        GET /debug/controllers/garbagecollector/graph?uid=a&uid=b%20%C3%A9+c&other=x&uid
        ",
        &expect![[r#"
            GET /healthz
                HTTP/1.1 200 OK | ok
            GET /livez?verbose
                HTTP/1.1 200 OK | [+]ping ok | [+]event-loop ok | livez check passed
            GET /readyz
                HTTP/1.1 503 Service Unavailable | [+]ping ok | [+]event-loop ok | [-]collecting failed: starting | readyz check failed
            GET /readyz?verbose=1
                HTTP/1.1 503 Service Unavailable | [+]ping ok | [+]event-loop ok | [-]collecting failed: starting | readyz check failed
            HEAD /livez
                HTTP/1.1 200 OK | 
            GET /debug/controllers/garbage-collector-controller/graph
                HTTP/1.1 200 OK | strict digraph full { // [] | }
            GET /debug/controllers/garbagecollector/graph?uid=a&uid=b%20%C3%A9+c&other=x&uid
                HTTP/1.1 200 OK | strict digraph full { // ["a", "b é c", ""] | }
        "#]],
    );
}

#[test]
fn r7_bad_requests_get_a_code_and_a_reason() {
    check(
        "
        GET /nothing
        GET /readyz/ping
        GET /livez/
        POST /metrics
        DELETE /
        GET /debug/controllers/garbagecollector/graph?uid=%
        GET /debug/controllers/garbagecollector/graph?uid=%4
        GET /debug/controllers/garbagecollector/graph?uid=%zz
        GET /debug/controllers/garbagecollector/graph?uid=%ff
        GET
        ",
        &expect![[r#"
            GET /nothing
                HTTP/1.1 404 Not Found | no such page; / lists them
            GET /readyz/ping
                HTTP/1.1 404 Not Found | no such page; / lists them
            GET /livez/
                HTTP/1.1 404 Not Found | no such page; / lists them
            POST /metrics
                HTTP/1.1 405 Method Not Allowed | only GET and HEAD are answered
            DELETE /
                HTTP/1.1 405 Method Not Allowed | only GET and HEAD are answered
            GET /debug/controllers/garbagecollector/graph?uid=%
                HTTP/1.1 400 Bad Request | the query has a broken %-escape in "%"
            GET /debug/controllers/garbagecollector/graph?uid=%4
                HTTP/1.1 400 Bad Request | the query has a broken %-escape in "%4"
            GET /debug/controllers/garbagecollector/graph?uid=%zz
                HTTP/1.1 400 Bad Request | the query has a broken %-escape in "%zz"
            GET /debug/controllers/garbagecollector/graph?uid=%ff
                HTTP/1.1 400 Bad Request | the query has a broken %-escape in "%ff"
            GET
                HTTP/1.1 400 Bad Request | not an HTTP/1.1 request: invalid token
        "#]],
    );
}

#[test]
fn r2_the_whole_answer_and_the_index() {
    expect![[r#"
        HTTP/1.1 200 OK
        Content-Type: text/plain; charset=utf-8
        Content-Length: 569
        X-Content-Type-Options: nosniff
        Cache-Control: no-cache, private
        Connection: close

        gc-daemon, the Kubernetes garbage collector

        /healthz    whether the process lives (as /livez)
        /livez      whether the process lives; ?verbose lists the checks
        /readyz     whether it collects; ?verbose lists the checks
        /metrics    OpenMetrics where the scraper asks for it, else Prometheus text
        /debug/controllers/garbage-collector-controller/graph
                    the ownership graph in DOT; ?uid=UID (up to 100 of them) for the part around these objects
        /debug/controllers/garbagecollector/graph
                    the same, under the name that older versions of Kubernetes use
    "#]]
    .assert_eq(&get(&start(pages()), "/").replace('\r', ""));
}

#[test]
fn r7_a_method_that_is_not_allowed_says_which_are_and_its_body_is_dropped() {
    let body = "x".repeat(30_000);
    let request = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let answer = ask(&start(pages()), request.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("\r\nAllow: GET, HEAD\r\n"), "{answer}");
}

#[test]
fn r2_metrics_in_the_format_that_is_asked_for() {
    let server = start(pages());
    let prometheus =
        "Accept: application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    for (accept, content_type, is_open_metrics) in [
        (prometheus, metrics::OPEN_METRICS_CONTENT_TYPE, true),
        ("Accept: */*", metrics::PROMETHEUS_TEXT_CONTENT_TYPE, false),
        ("accept: text/plain", metrics::PROMETHEUS_TEXT_CONTENT_TYPE, false),
        ("X: application/openmetrics-text", metrics::PROMETHEUS_TEXT_CONTENT_TYPE, false),
    ] {
        let answer = ask(&server, format!("GET /metrics HTTP/1.1\r\n{accept}\r\n\r\n").as_bytes());
        assert!(answer.contains(&format!("\r\nContent-Type: {content_type}\r\n")), "{accept}\n{answer}");
        assert_eq!(answer.ends_with("# EOF\n"), is_open_metrics, "{accept}\n{answer}");
    }
}

#[test]
fn r7_heads_that_are_no_http() {
    let server = start(pages());
    let long = [b"GET /".as_slice(), &[b'a'; 9_000]].concat();
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65));
    let mut actual = String::new();
    for (what, request) in [
        ("a TLS handshake", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".as_slice()),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        ("blank lines", b"\r\n\r\n\r\n\r\n"),
        ("a long line", &long),
        ("many headers", many.as_bytes()),
    ] {
        actual += &format!("{what}: {}\n", outline(&ask(&server, request)));
    }
    expect![[r#"
        a TLS handshake: HTTP/1.1 400 Bad Request | not an HTTP/1.1 request: invalid token
        HTTP/2: HTTP/1.1 400 Bad Request | not an HTTP/1.1 request: invalid HTTP version
        blank lines: HTTP/1.1 400 Bad Request | the request ends in its head
        a long line: HTTP/1.1 431 Request Header Fields Too Large | the head of the request is larger than 8 KiB
        many headers: HTTP/1.1 431 Request Header Fields Too Large | the request has more than 64 headers
    "#]].assert_eq(&actual);
}

#[test]
fn r7_more_than_a_hundred_uids_are_refused() {
    let server = start(pages());
    let target = |count| format!("/debug/controllers/garbagecollector/graph?{}", "uid=a&".repeat(count));
    assert!(get(&server, &target(100)).starts_with("HTTP/1.1 200 "));
    assert!(get(&server, &target(101)).starts_with("HTTP/1.1 400 "));
}

#[test]
fn r7_a_request_that_is_cut_off_is_refused() {
    let server = start(pages());
    let mut stream = TcpStream::connect(server.local_addr()).unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(outline(&answer), "HTTP/1.1 400 Bad Request | the request ends in its head");
}

#[test]
fn r7_a_request_in_single_bytes_is_read_whatever_the_cuts() {
    let server = start(pages());
    let mut stream = TcpStream::connect(server.local_addr()).unwrap();
    stream.set_nodelay(true).unwrap();
    for byte in b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" {
        stream.write_all(&[*byte]).unwrap();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(outline(&answer), "HTTP/1.1 200 OK | ok");
}

#[test]
fn r7_a_client_that_says_nothing_is_told_that_its_time_is_over() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    // As if it had been accepted five seconds ago.
    let start = Instant::now().checked_sub(HEAD_TIMEOUT).expect("the machine is up for five seconds");
    converse(&accepted, &pages(), start).unwrap();
    drop(accepted);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(outline(&answer), "HTTP/1.1 408 Request Timeout | no complete request came within 5 seconds");
}

#[test]
fn r2_more_clients_than_threads_are_all_answered() {
    let server = start(pages());
    std::thread::scope(|scope| {
        for _ in 0..10 * CONNECTIONS_MAX {
            scope.spawn(|| assert_eq!(outline(&get(&server, "/livez")), "HTTP/1.1 200 OK | ok"));
        }
    });
}

#[test]
fn r7_clients_that_leave_do_not_stop_the_server() {
    let graph_dot = Arc::new(|_: &[String]| "x".repeat(32 << 20));
    let server = start(Pages { graph_dot, ..pages() });
    for request in ["", "GET", "GET /debug/controllers/garbagecollector/graph HTTP/1.1\r\n\r\n"] {
        for _ in 0..2 * CONNECTIONS_MAX {
            let mut stream = TcpStream::connect(server.local_addr()).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
        }
    }
    assert_eq!(outline(&get(&server, "/livez")), "HTTP/1.1 200 OK | ok");
    let graph = get(&server, "/debug/controllers/garbagecollector/graph");
    assert!(graph.contains("\r\nContent-Type: text/vnd.graphviz\r\n"));
    assert!(graph.ends_with(&"x".repeat(32 << 20)));
}

#[test]
fn r7_a_panic_in_a_page_is_answered_and_survived() {
    let graph_dot = Arc::new(|_: &[String]| panic!("this panic belongs to the test"));
    let server = start(Pages { graph_dot, ..pages() });
    for _ in 0..2 * CONNECTIONS_MAX {
        let answer = get(&server, "/debug/controllers/garbagecollector/graph");
        assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    }
    assert_eq!(outline(&get(&server, "/livez")), "HTTP/1.1 200 OK | ok");
}

#[test]
fn r6_stopping_ends_idle_connections() {
    let server = start(pages());
    let address = server.local_addr();
    let idle: Vec<_> = (0..2 * CONNECTIONS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
    let begin = Instant::now();
    server.stop();
    // Sooner than the connections would have ended by themselves.
    assert!(begin.elapsed() < HEAD_TIMEOUT);
    for mut stream in idle {
        let ended = stream.read(&mut [0]);
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    }
}

#[test]
fn r7_an_address_that_is_taken_is_an_error() {
    let first = start(pages());
    let error = Server::start(first.local_addr(), pages()).err().map(|error| error.kind());
    assert_eq!(error, Some(io::ErrorKind::AddrInUse));
}

#[test]
fn r7_no_head_makes_a_panic() {
    let pages = pages();
    let good =
        b"GET /debug/controllers/garbagecollector/graph?uid=%41&verbose HTTP/1.1\r\nAccept: a,b;q\r\n\r\n";
    for at in 0..good.len() {
        answer(&good[..at], &pages);
        for byte in 0..=u8::MAX {
            let mut bad = good.to_vec();
            bad[at] = byte;
            let code = answer(&bad, &pages).code;
            assert!(matches!(code, 200 | 400 | 404 | 405), "{code} for {}", String::from_utf8_lossy(&bad));
        }
    }
}
