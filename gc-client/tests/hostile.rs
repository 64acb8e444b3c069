//! Servers that are none, or mean harm: what they send costs a bounded time and a bounded memory, and proves nothing.

// A test that cannot set itself up fails, which is what unwrapping does.
#![allow(clippy::unwrap_used)]

mod support;

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

use expect_test::{Expect, expect};
use gc_client::{Client, Config, Error, Options, Reflector, ReflectorOptions, Request, WatchEvent};
use support::{Reply, Server, config_maps};

fn client(url: &str) -> Client {
    Client::new(&Config::plain(url).with_token("t0k3n"), &Options::default()).unwrap()
}

/// Which port a test's server got is chance.
fn without_server(text: &str, server: &Server) -> String {
    text.replace(&format!(" at {}", server.url().trim_start_matches("http://")), "")
}

/// A whole answer, as written.
fn raw(head: &str, body: &[u8]) -> Reply {
    Reply::Close([head.replace('\n', "\r\n").as_bytes(), b"\r\n\r\n", body].concat())
}

const JSON: &str = "HTTP/1.1 200 OK\nContent-Type: application/json";
const PROTOBUF: &str = "HTTP/1.1 200 OK\nContent-Type: application/vnd.kubernetes.protobuf";
const PROTOBUF_WATCH: &str =
    "HTTP/1.1 200 OK\nContent-Type: application/vnd.kubernetes.protobuf;stream=watch";

/// What a list, and a watch after a good list, make of this answer. Only a failure may come of either, and no object.
fn check(answer: impl Fn() -> Reply + Send + Sync + Clone + 'static, expected: &Expect) {
    let mut said = String::new();
    for is_watch in [false, true] {
        let answer = answer.clone();
        let server = Server::plain(move |seen| match seen.line.contains("watch=true") == is_watch {
            true => answer(),
            false => raw(JSON, br#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"5"},"items":[]}"#),
        });
        let (_stop, stopped) = crossbeam_channel::bounded(0);
        let reflector = Reflector::new(client(&server.url()), config_maps(), ReflectorOptions::default());
        reflector.run(&stopped, &mut |event| match event {
            WatchEvent::ListStarted | WatchEvent::ListDone { .. } | WatchEvent::Watching => {
                ControlFlow::Continue(())
            }
            WatchEvent::Failed(error) => {
                let what = if is_watch { "watch" } else { "list" };
                let error = without_server(&error.to_string(), &server);
                let error = error.replace("GET /api/v1/configmaps: ", "");
                writeln!(said, "{what}: {error}").unwrap();
                ControlFlow::Break(())
            }
            other => {
                writeln!(said, "{other:?}").unwrap();
                ControlFlow::Break(())
            }
        });
    }
    expected.assert_eq(&said);
}

#[test]
fn r7_garbage_is_no_answer() {
    check(
        || Reply::Close(b"\x00\xff\x16\x03garbage\r\n\r\n{{{{".to_vec()),
        &expect![[r#"
        list: what answers does not speak HTTP/1.1 (http parse fail: invalid HTTP version); check the scheme and the port of the server
        watch: what answers does not speak HTTP/1.1 (http parse fail: invalid HTTP version); check the scheme and the port of the server
    "#]],
    );
}

#[test]
fn r7_garbage_in_a_body_that_says_what_it_is() {
    check(
        || raw(JSON, b"\x00\xff\x16\x03garbage"),
        &expect![[r#"
            list: cannot read the answer: JSON: expected a list, found the byte 0x00 (after 0 bytes)
            watch: cannot read the answer: JSON: expected a watch event, found the byte 0x00 (after 0 bytes)
        "#]],
    );
    check(
        || raw(PROTOBUF, &[0xff; 4096]),
        &expect![[r#"
        list: cannot read the answer: expected protobuf, which starts with "k8s\0" (after 1 bytes)
        watch: cannot read the answer: a number of more than ten bytes (after 14 bytes)
    "#]],
    );
}

#[test]
fn r7_a_frame_that_claims_four_gigabytes() {
    check(
        || raw(PROTOBUF_WATCH, &[0xff, 0xff, 0xff, 0xff, b'k', b'8', b's', 0]),
        &expect![[r#"
        list: cannot read the answer: expected protobuf, which starts with "k8s\0" (after 1 bytes)
        watch: cannot read the answer: wire type 3, which Kubernetes does not write (after 5 bytes)
    "#]],
    );
}

#[test]
fn r7_a_line_without_end() {
    let endless = || {
        let mut line = br#"{"type":"ADDED","object":{"metadata":{"name":""#.to_vec();
        line.resize(65 << 20, b'x');
        raw(JSON, &line)
    };
    check(
        endless,
        &expect![[r#"
            list: cannot read the answer: an object of more bytes than any server sends (after 67108864 bytes)
            watch: cannot read the answer: JSON: an object with more metadata than any server stores (after 45 bytes)
        "#]],
    );
}

#[test]
fn r7_brackets_without_end() {
    check(
        || raw(JSON, &vec![b'['; 1 << 20]),
        &expect![[r#"
            list: cannot read the answer: JSON: expected a list, found an array (after 0 bytes)
            watch: cannot read the answer: JSON: expected a watch event, found an array (after 0 bytes)
        "#]],
    );
}

#[test]
fn r7_a_header_without_end() {
    check(
        || raw(&format!("{JSON}\nX: {}", "x".repeat(1 << 20)), b"{}"),
        &expect![[r#"
        list: cannot read the answer: the head of the answer is larger than 8 KiB
        watch: cannot read the answer: the head of the answer is larger than 8 KiB
    "#]],
    );
    check(
        || raw(&format!("{JSON}{}", "\nX: x".repeat(10_000)), b"{}"),
        &expect![[r#"
        list: cannot read the answer: the answer has more than 128 headers
        watch: cannot read the answer: the answer has more than 128 headers
    "#]],
    );
}

#[test]
fn r7_a_compressed_body_that_nobody_asked_for() {
    // `{}` in gzip.
    let gzip = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\xae\x05\x00\x43\xbf\xa6\xa3\x02\x00\x00\x00";
    check(
        || raw(&format!("{JSON}\nContent-Encoding: gzip"), gzip),
        &expect![[r#"
            list: cannot read the answer: JSON: expected a list, found the byte 0x1f (after 0 bytes)
            watch: cannot read the answer: JSON: expected a watch event, found the byte 0x1f (after 0 bytes)
        "#]],
    );
}

#[test]
fn r7_a_content_type_that_is_not_understood() {
    check(
        || raw("HTTP/1.1 200 OK\nContent-Type: text/html", b"<html>Log in</html>"),
        &expect![[r#"
        list: cannot read the answer: expected protobuf or JSON, found "text/html"
        watch: cannot read the answer: expected protobuf or JSON, found "text/html"
    "#]],
    );
    check(
        || raw("HTTP/1.1 200 OK", b"{}"),
        &expect![[r#"
        list: cannot read the answer: expected protobuf or JSON, found ""
        watch: cannot read the answer: expected protobuf or JSON, found ""
    "#]],
    );
}

/// The token would go along.
#[test]
fn r7_redirects_are_not_followed() {
    let elsewhere = Server::plain(|_| raw(JSON, b"{}"));
    let to = elsewhere.url();
    check(
        move || raw(&format!("HTTP/1.1 302 Found\nLocation: {to}/api/v1/configmaps"), b""),
        &expect![[r#"
        list: the server answered 302
        watch: the server answered 302
    "#]],
    );
    let to = elsewhere.url();
    let server = Server::plain(move |_| raw(&format!("HTTP/1.1 307 X\nLocation: {to}/version"), b""));
    let client = client(&server.url());
    assert_eq!(client.send(&Request::get("/version", "")).unwrap().code, 307);
    assert!(matches!(client.server_version(), Err(Error::Status(_))));
    assert_eq!(elsewhere.seen().len(), 0);
}

/// A server that sends the text, and then one letter now and then for ever.
fn drip(text: &'static str, letter: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serve = move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let drip = move || -> std::io::Result<()> {
                let _request = stream.read(&mut [0; 4096])?;
                stream.write_all(text.replace('\n', "\r\n").as_bytes())?;
                loop {
                    thread::sleep(Duration::from_millis(20));
                    stream.write_all(letter)?;
                }
            };
            thread::Builder::new().name("drip".into()).spawn(drip).unwrap();
        }
    };
    thread::Builder::new().name("drips".into()).spawn(serve).unwrap();
    url
}

#[test]
fn r7_a_head_that_drips_is_given_up() {
    let client = client(&drip("HTTP/1.1 200 OK\nX: ", b"x"));
    let start = Instant::now();
    let error = client.open("/api/v1/configmaps", "", Duration::from_millis(300)).unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

/// The body of a list has longer, since a list may be long; it blocks nothing but its own resource, and a stop ends it.
#[test]
fn r6_a_list_that_drips_ends_with_the_client() {
    let client = client(&drip("HTTP/1.1 200 OK\nContent-Type: application/json\n\n", b" "));
    let closer = client.clone();
    let close = move || {
        thread::sleep(Duration::from_millis(200));
        closer.shut_down();
    };
    let thread = thread::Builder::new().name("closer".into()).spawn(close).unwrap();
    let (_stop, stopped) = crossbeam_channel::bounded(0);
    let start = Instant::now();
    let mut events = 0;
    Reflector::new(client, config_maps(), ReflectorOptions::default()).run(&stopped, &mut |_| {
        events += 1;
        ControlFlow::Continue(())
    });
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(events, 1, "the list had begun");
    thread.join().unwrap();
}
