//! The client against a plain server on loopback.

// A test that cannot set itself up fails, which is what unwrapping does.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use expect_test::expect;
use gc_client::{Client, Config, DeleteOptions, Error, Method, Options, PatchType, Propagation, Request};
use support::{Reply, Server, config_maps, json};

const OBJECT: &str = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a",
    "namespace":"ns","uid":"u1","resourceVersion":"7","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u2"}]}}"#;

fn client(server: &Server) -> Client {
    Client::new(&Config::plain(&server.url()).with_token("t0k3n"), &Options::default()).unwrap()
}

fn options<'a>(uid: &'a str, resource_version: &'a str) -> DeleteOptions<'a> {
    DeleteOptions { uid, resource_version, propagation_policy: Propagation::Background }
}

#[test]
fn kubernetes_59848_a_read_asks_for_metadata_and_takes_nothing_from_a_cache() {
    // Without `resourceVersion` a read is a quorum read; with 0 it would be whatever the server's cache holds.
    let server = Server::plain(|_| json(200, "", OBJECT));
    let object = client(&server).read(&config_maps(), "ns", "a").unwrap();
    assert_eq!(
        (object.name.as_str(), object.uid.as_str(), object.resource_version.as_str()),
        ("a", "u1", "7")
    );
    assert_eq!(object.owner_references[0].uid, "u2");
    expect![[r#"
        GET /api/v1/namespaces/ns/configmaps/a
        accept: application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json
        authorization: Bearer t0k3n
        accept-encoding: 
    "#]]
    .assert_eq(&server.seen()[0].text(&["accept", "authorization", "accept-encoding"]));
}

#[test]
fn d16_a_success_that_is_not_the_object_asked_for_is_an_error() {
    for (other, what) in [
        (r#"{"error":"please log in"}"#, "name \"\", namespace \"\" and UID \"\""),
        (r#"{"kind":"ConfigMap","metadata":{"name":"a"}}"#, "UID \"\""),
        (r#"{"kind":"ConfigMap","metadata":{"name":"b","uid":"u2"}}"#, "name \"b\""),
        (r#"{"kind":"ConfigMap","metadata":{"name":"a","namespace":"b","uid":"u2"}}"#, "namespace \"b\""),
        (r#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"7"},"items":[]}"#, "name \"\""),
    ] {
        let server = Server::plain(move |_| json(200, "", other));
        let error = client(&server).read(&config_maps(), "ns", "a").unwrap_err();
        assert!(matches!(error, Error::Decode { .. }) && error.to_string().contains(what), "{error}");
    }
}

#[test]
fn d11_a_delete_always_carries_uid_and_version() {
    let server =
        Server::plain(|_| json(200, "", r#"{"kind":"Status","apiVersion":"v1","status":"Success"}"#));
    client(&server).delete(&config_maps(), "ns", "a", &options("u1", "7")).unwrap();
    expect![[r#"
        DELETE /api/v1/namespaces/ns/configmaps/a
        content-type: application/json

        {"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"7","uid":"u1"},"propagationPolicy":"Background"}
    "#]]
    .assert_eq(&server.seen()[0].text(&["content-type"]));
    for incomplete in [options("", "7"), options("u1", "")] {
        let refused = client(&server).delete(&config_maps(), "ns", "a", &incomplete).unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{refused}");
    }
    assert_eq!(server.lines().len(), 1);
}

#[test]
fn d11_no_name_can_turn_a_delete_into_that_of_a_collection_or_of_another_object() {
    let server = Server::plain(|_| json(200, "", "{}"));
    for (namespace, name) in
        [("ns", ""), ("ns", "."), ("ns", ".."), ("ns", "a/b"), ("ns", "a%2fb"), ("", "a"), ("x/y", "a")]
    {
        let refused =
            client(&server).delete(&config_maps(), namespace, name, &options("u1", "7")).unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{namespace:?} {name:?}: {refused}");
    }
    assert_eq!(server.lines(), Vec::<String>::new());
}

#[test]
fn d12_patches_name_their_type_and_their_manager() {
    let server = Server::plain(|_| json(200, "", OBJECT));
    let options = Options { field_manager: "gc/test".into(), ..Options::default() };
    let client = Client::new(&Config::plain(&server.url()), &options).unwrap();
    client.patch(&config_maps(), "ns", "a", PatchType::StrategicMerge, b"{}").unwrap();
    client.patch(&config_maps(), "ns", "a", PatchType::JsonMerge, b"{}").unwrap();
    expect![[r#"
        PATCH /api/v1/namespaces/ns/configmaps/a?fieldManager=gc%2Ftest
        content-type: application/strategic-merge-patch+json

        {}
        PATCH /api/v1/namespaces/ns/configmaps/a?fieldManager=gc%2Ftest
        content-type: application/merge-patch+json

        {}
    "#]]
    .assert_eq(&server.seen().iter().map(|seen| seen.text(&["content-type"])).collect::<String>());
}

#[test]
fn r2_events_go_to_the_group_that_they_are_written_in() {
    let server = Server::plain(|_| json(201, "", "{}"));
    let client = client(&server);
    client.create_event("ns", &serde_json::json!({"apiVersion": "v1", "kind": "Event"})).unwrap();
    client
        .create_event("ns", &serde_json::json!({"apiVersion": "events.k8s.io/v1", "kind": "Event"}))
        .unwrap();
    assert_eq!(
        server.lines(),
        ["POST /api/v1/namespaces/ns/events", "POST /apis/events.k8s.io/v1/namespaces/ns/events"]
    );
}

#[test]
fn d16_an_error_answer_keeps_its_evidence() {
    let server = Server::plain(|seen| match seen.line.as_str() {
        "GET /api/v1/namespaces/ns/configmaps/a" => json(
            404,
            "",
            r#"{"kind":"Status","apiVersion":"v1","reason":"NotFound","code":404,"details":{"name":"a","kind":"configmaps"}}"#,
        ),
        _ => Reply::Keep(
            b"HTTP/1.1 404 X\r\nContent-Type: text/plain\r\nContent-Length: 18\r\n\r\n404 page not found"
                .to_vec(),
        ),
    });
    let client = client(&server);
    let proves = |name: &str| match client.read(&config_maps(), "ns", name) {
        Err(Error::Status(status)) => status.proves_absent(name),
        other => panic!("{other:?}"),
    };
    assert!(proves("a"));
    assert!(!proves("b"));
}

#[test]
fn answers_that_are_no_objects_are_errors_that_name_the_request() {
    let server = Server::plain(|seen| match seen.line.as_str() {
        "GET /version" => json(200, "", "[]"),
        line if line.ends_with("/redirect") => {
            Reply::Keep(b"HTTP/1.1 302 X\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n".to_vec())
        }
        _ => Reply::Keep(
            b"HTTP/1.1 200 X\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>".to_vec(),
        ),
    });
    let client = client(&server);
    expect![[r#"GET /api/v1/namespaces/ns/configmaps/a: cannot read the answer: expected an object in protobuf or JSON, got the content type "text/html""#]]
        .assert_eq(&client.read(&config_maps(), "ns", "a").unwrap_err().to_string());
    expect![[r#"GET /version: cannot read the answer: expected JSON with gitVersion, got 2 bytes of "application/json""#]]
        .assert_eq(&client.server_version().unwrap_err().to_string());
    expect!["the server answered 302"]
        .assert_eq(&client.read(&config_maps(), "ns", "redirect").unwrap_err().to_string());
    assert!(!server.lines().contains(&"GET /other".to_owned()));
}

#[test]
fn a_429_to_a_read_is_waited_for() {
    let calls = AtomicUsize::new(0);
    let server = Server::plain(move |_| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => json(429, "Retry-After: 0\r\n", "{}"),
        1 => json(429, "Retry-After: 1\r\n", "{}"),
        _ => json(200, "", OBJECT),
    });
    let started = Instant::now();
    client(&server).read(&config_maps(), "ns", "a").unwrap();
    assert_eq!(server.lines().len(), 3);
    assert!(started.elapsed() >= Duration::from_secs(1));
}

/// What a delete was decided by is five seconds old at most when it goes out, and would not be after a wait.
#[test]
fn d11_s7_whatever_changes_something_is_sent_once() {
    let server = Server::plain(|seen| match seen.line.rsplit('/').next() {
        Some("busy") => json(429, "Retry-After: 1\r\n", "{}"),
        Some("starting") => json(503, "Retry-After: 0\r\n", "{}"),
        Some("unknown") => json(401, "", "{}"),
        Some("away") => json(502, "", "{}"),
        _ => Reply::Close(Vec::new()),
    });
    let client = client(&server);
    let mut said = String::new();
    let retry_after = |error: &Error| match error {
        Error::Status(status) => status.retry_after,
        _ => None,
    };
    for name in ["busy", "starting", "unknown", "away", "cut"] {
        let maps = config_maps();
        let deleted = client.delete(&maps, "ns", name, &options("u1", "7")).unwrap_err();
        let patched = client.patch(&maps, "ns", name, PatchType::JsonMerge, b"{}").unwrap_err();
        assert_eq!(retry_after(&deleted), retry_after(&patched));
        said += &format!("{name}: {deleted}, {:?}\n", retry_after(&deleted));
    }
    said += &server.lines().join("\n");
    expect![[r#"
        busy: the server answered 429: {}, Some(1s)
        starting: the server answered 503: {}, Some(0ns)
        unknown: the server answered 401: {}, None
        away: the server answered 502: {}, None
        cut: DELETE /api/v1/namespaces/ns/configmaps/cut at SERVER: the server closed the connection before the answer was complete, None
        DELETE /api/v1/namespaces/ns/configmaps/busy
        PATCH /api/v1/namespaces/ns/configmaps/busy
        DELETE /api/v1/namespaces/ns/configmaps/starting
        PATCH /api/v1/namespaces/ns/configmaps/starting
        DELETE /api/v1/namespaces/ns/configmaps/unknown
        PATCH /api/v1/namespaces/ns/configmaps/unknown
        DELETE /api/v1/namespaces/ns/configmaps/away
        PATCH /api/v1/namespaces/ns/configmaps/away
        DELETE /api/v1/namespaces/ns/configmaps/cut
        PATCH /api/v1/namespaces/ns/configmaps/cut"#]]
    .assert_eq(&said.replace(server.url().trim_start_matches("http://"), "SERVER"));
}

#[test]
fn retries_are_bounded() {
    let server = Server::plain(|seen| match seen.line.as_str() {
        "GET /busy" => json(429, "Retry-After: 0\r\n", "{}"),
        "GET /silent" => json(429, "", "{}"),
        "GET /later" => json(503, "Retry-After: 3600\r\n", "{}"),
        _ => json(503, "Retry-After: 0\r\n", "{}"),
    });
    let client = client(&server);
    let mut counted = Vec::new();
    for path in ["/busy", "/silent", "/later", "/starting"] {
        let before = server.lines().len();
        client.send(&Request::get(path, "")).unwrap();
        counted.push((path, server.lines().len() - before));
    }
    assert_eq!(counted, [("/busy", 6), ("/silent", 1), ("/later", 1), ("/starting", 6)]);
}

#[test]
fn a_connection_that_the_server_dropped_costs_a_get_nothing_and_a_delete_an_error() {
    // The server reads the request on a connection that it then drops, as one that gave up an idle connection does.
    let calls = AtomicUsize::new(0);
    let server = Server::plain(move |_| match calls.fetch_add(1, Ordering::SeqCst) {
        0 | 2 => Reply::Close(Vec::new()),
        _ => json(200, "", OBJECT),
    });
    let client = client(&server);
    client.read(&config_maps(), "ns", "a").unwrap();
    let error = client.delete(&config_maps(), "ns", "a", &options("u1", "7")).unwrap_err();
    expect!["DELETE /api/v1/namespaces/ns/configmaps/a at SERVER: the server closed the connection before the answer was complete"]
        .assert_eq(&error.to_string().replace(server.url().trim_start_matches("http://"), "SERVER"));
    assert_eq!(server.lines().len(), 3);
}

#[test]
fn connections_are_reused() {
    let server = Server::plain(|_| json(404, "", "{}"));
    let client = client(&server);
    for _ in 0..5 {
        client.send(&Request::get("/x", "")).unwrap();
    }
    let connections: Vec<usize> = server.seen().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [0, 0, 0, 0, 0]);
}

#[test]
fn a_refused_connection_says_so() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = Client::new(&Config::plain(&url), &Options::default()).unwrap();
    let error = client.server_version().unwrap_err().to_string();
    expect!["GET /version at SERVER: connection refused"]
        .assert_eq(&error.replace(url.trim_start_matches("http://"), "SERVER"));
}

#[test]
fn a_path_cannot_choose_another_host() {
    let server = Server::plain(|_| json(200, "", "{}"));
    for path in ["@evil.example/", "", "evil", ":1@evil.example/"] {
        let refused = client(&server).send(&Request::get(path, "")).unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{path:?}: {refused}");
    }
}

#[test]
fn r7_a_body_without_end_is_cut_off() {
    let server = Server::plain(|_| {
        let mut reply = b"HTTP/1.1 200 X\r\nContent-Length: 20000000\r\n\r\n".to_vec();
        reply.resize(reply.len() + 20_000_000, b'x');
        Reply::Close(reply)
    });
    let error = client(&server).send(&Request::get("/big", "")).unwrap_err();
    expect!["GET /big: cannot read the answer: the answer is larger than 16 MiB"]
        .assert_eq(&error.to_string());
}

/// Neither is a connection that the server closed, which would be tried again, nor a server that does not speak HTTP.
#[test]
fn r7_an_answer_with_a_head_beyond_all_measure_says_so() {
    let server = Server::plain(|seen| {
        let mut reply = b"HTTP/1.1 200 X\r\n".to_vec();
        match seen.line.as_str() {
            "GET /long" => reply.extend(format!("X-Long: {}\r\n", "x".repeat(9_000)).bytes()),
            "GET /many" => reply.extend("a: b\r\n".repeat(200).bytes()),
            _ => reply.extend(format!("X-Long: {}\r\n", "x".repeat(8_000)).bytes()),
        }
        reply.extend(b"Content-Length: 0\r\n\r\n");
        Reply::Close(reply)
    });
    let client = client(&server);
    let error = |path: &str| client.send(&Request::get(path, "")).unwrap_err().to_string();
    assert_eq!(client.send(&Request::get("/fits", "")).unwrap().code, 200);
    expect!["GET /long: cannot read the answer: the head of the answer is larger than 8 KiB"]
        .assert_eq(&error("/long"));
    expect!["GET /many: cannot read the answer: the answer has more than 128 headers"]
        .assert_eq(&error("/many"));
    let maps = config_maps();
    assert!(client.delete(&maps, "ns", "a", &options("u1", "7")).is_ok());
    assert_eq!(server.lines().len(), 4);
    let opened = client.open("/long", "", Duration::from_secs(5)).unwrap_err();
    assert!(opened.to_string().ends_with("larger than 8 KiB"), "{opened}");
}

const CHUNKED: &str =
    "HTTP/1.1 200 X\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn s5_a_stream_goes_on_after_a_time_out_and_tells_a_cut_from_an_end() {
    let server = Server::plain(|seen| match seen.line.as_str() {
        "GET /watch" => Reply::Hang(format!("{CHUNKED}5\r\nhello\r\n5\r\nwo").into_bytes()),
        "GET /cut" => Reply::Close(format!("{CHUNKED}5\r\nhello\r\n5\r\nwo").into_bytes()),
        "GET /whole" => Reply::Close(format!("{CHUNKED}5\r\nhello\r\n0\r\n\r\n").into_bytes()),
        _ => json(410, "", r#"{"kind":"Status","apiVersion":"v1","reason":"Expired","code":410}"#),
    });
    let client = client(&server);
    let read_all = |path: &str| {
        let mut stream = client.open(path, "application/json", Duration::from_millis(200)).unwrap();
        assert_eq!(stream.content_type(), "application/json");
        let mut text = String::new();
        let end = stream.read_to_string(&mut text).map_err(|error| error.kind());
        (text, end)
    };
    assert_eq!(read_all("/whole"), ("hello".into(), Ok(5)));
    assert_eq!(read_all("/cut").1, Err(io::ErrorKind::UnexpectedEof));

    let mut stream = client.open("/watch", "", Duration::from_millis(200)).unwrap();
    let mut bytes = [0; 7];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hellowo");
    for _ in 0..2 {
        assert_eq!(stream.read(&mut bytes).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    match client.open("/gone", "", Duration::from_secs(5)) {
        Err(Error::Status(status)) => assert!(status.is_expired()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn r6_shut_down_wakes_readers_and_senders_at_once() {
    let server = Server::plain(|seen| match seen.line.as_str() {
        "GET /watch" => Reply::Hang(format!("{CHUNKED}5\r\nhello\r\n").into_bytes()),
        "GET /waiting" => json(429, "Retry-After: 20\r\n", "{}"),
        _ => Reply::Hang(Vec::new()),
    });
    let client = client(&server);
    let mut stream = client.open("/watch", "", Duration::from_secs(60)).unwrap();
    let started = Instant::now();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut bytes = [0; 5];
            stream.read_exact(&mut bytes).unwrap();
            stream.read(&mut bytes).map_err(|error| error.kind())
        });
        let hanging = scope.spawn(|| client.send(&Request::get("/hang", "")));
        let waiting = scope.spawn(|| client.send(&Request::get("/waiting", "")));
        while server.lines().len() < 3 {
            std::thread::yield_now();
        }
        client.shut_down();
        assert_eq!(reader.join().unwrap(), Err(io::ErrorKind::ConnectionAborted));
        assert_eq!(hanging.join().unwrap(), Err(Error::ShutDown));
        assert_eq!(waiting.join().unwrap(), Err(Error::ShutDown));
    });
    assert!(started.elapsed() < Duration::from_secs(10));
    let request = Request { method: Method::Post, path: "/x", accept: "", content_type: "", body: &[] };
    assert_eq!(client.send(&request), Err(Error::ShutDown));
    assert!(matches!(client.open("/watch", "", Duration::from_secs(1)), Err(Error::ShutDown)));
}

/// Answers on a connection until the world has moved on; then only on the connections that come after that.
fn forgetful(has_moved_on: &Arc<AtomicBool>, answers_anew: bool) -> Server {
    let has_moved_on = has_moved_on.clone();
    let after = AtomicUsize::new(usize::MAX);
    Server::plain(move |seen| {
        let moved_on = has_moved_on.load(Ordering::SeqCst);
        if moved_on {
            // The first that is seen afterwards is an old connection.
            after.fetch_min(seen.connection, Ordering::SeqCst);
        }
        let is_new =
            seen.connection > after.load(Ordering::SeqCst) && after.load(Ordering::SeqCst) < usize::MAX;
        match seen.line.as_str() {
            "GET /watch" => {
                Reply::Hang(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n".to_vec())
            }
            _ if moved_on && !(is_new && answers_anew) => Reply::Hang(Vec::new()),
            _ => json(200, "", "{}"),
        }
    })
}

#[test]
fn kubernetes_48638_connections_that_died_without_a_sign_are_found_and_begun_anew() {
    let has_moved_on = Arc::new(AtomicBool::new(false));
    let server = forgetful(&has_moved_on, true);
    let client = Client::new(&Config::plain(&server.url()), &Options::default()).unwrap();
    let (probe, within) = (Request::get("/api", ""), Duration::from_millis(300));
    assert_eq!(client.probe(&probe, within).unwrap().code, 200);
    let mut stream = client.open("/watch", "", Duration::from_secs(60)).unwrap();
    assert_eq!(stream.read(&mut [0; 2]).unwrap(), 2);

    has_moved_on.store(true, Ordering::SeqCst);
    let start = Instant::now();
    assert_eq!(client.probe(&probe, within).unwrap().code, 200);
    assert!(stream.read(&mut [0; 2]).is_err());
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    assert_eq!(client.send(&Request::get("/version", "")).unwrap().code, 200);
    let connections: Vec<usize> = server.seen().iter().map(|seen| seen.connection).collect();
    assert_eq!(server.lines(), ["GET /api", "GET /watch", "GET /api", "GET /api", "GET /version"]);
    assert_eq!(connections, [0, 1, 0, 2, 3]);
}

#[test]
fn kubernetes_48638_a_server_that_is_only_slow_keeps_its_connections() {
    let has_moved_on = Arc::new(AtomicBool::new(false));
    let server = forgetful(&has_moved_on, false);
    let client = Client::new(&Config::plain(&server.url()), &Options::default()).unwrap();
    let (probe, within) = (Request::get("/api", ""), Duration::from_millis(100));
    client.probe(&probe, within).unwrap();
    let mut stream = client.open("/watch", "", Duration::from_millis(50)).unwrap();
    assert_eq!(stream.read(&mut [0; 2]).unwrap(), 2);
    has_moved_on.store(true, Ordering::SeqCst);
    assert!(matches!(client.probe(&probe, within).unwrap_err(), Error::Transport { .. }));
    // Still open: nothing comes, but it has not ended.
    assert_eq!(stream.read(&mut [0; 2]).unwrap_err().kind(), io::ErrorKind::TimedOut);
}
