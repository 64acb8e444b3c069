//! The reflector against a scripted server on loopback: what it asks, and what it tells its sink.

// A test that cannot set itself up fails, which is what unwrapping does.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use expect_test::{Expect, expect};
use gc_client::encode::{self, EncodeMeta};
use gc_client::list_watch::{Call, ListWatch};
use gc_client::wire::ListEnd;
use gc_client::{ApiResource, Client, Config, Options, Reflector, ReflectorOptions, Status, WatchEvent};
use gc_client::{Error, Field, Fields, ObjectFields};
use support::{Reply, Server, json};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PROTOBUF_WATCH: &str = "application/vnd.kubernetes.protobuf;stream=watch";

fn pods() -> ApiResource {
    ApiResource {
        group: String::new(),
        version: "v1".into(),
        resource: "pods".into(),
        kind: "Pod".into(),
        namespaced: true,
        preferred: true,
        can_delete: true,
        can_list: true,
        can_watch: true,
    }
}

/// Quick retries, short waits, and the same time for every watch.
fn quick() -> ReflectorOptions {
    ReflectorOptions {
        page_size: 2,
        watch_timeout_s: 1..=1,
        watch_within: Duration::from_millis(50),
        backoff_base: Duration::from_millis(2),
        ..ReflectorOptions::default()
    }
}

fn client(server: &Server) -> Client {
    Client::new(&Config::plain(&server.url()), &Options::default()).unwrap()
}

fn head(content_type: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n")
        .into_bytes()
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// A whole answer, ended as HTTP has it.
fn whole(content_type: &str, body: &[u8]) -> Reply {
    Reply::Keep([head(content_type), chunk(body), b"0\r\n\r\n".to_vec()].concat())
}

/// An answer that is cut off.
fn cut(content_type: &str, body: &[u8]) -> Reply {
    Reply::Close([head(content_type), chunk(body)].concat())
}

/// An answer that goes on for ever, with nothing more in it.
fn hang(content_type: &str, body: &[u8]) -> Reply {
    Reply::Hang([head(content_type), chunk(body)].concat())
}

fn status(code: u16, reason: &str) -> Reply {
    let body =
        format!(r#"{{"kind":"Status","apiVersion":"v1","code":{code},"reason":"{reason}","message":"m"}}"#);
    json(code, "", &body)
}

fn meta<'a>(name: &'a str, resource_version: &'a str) -> EncodeMeta<'a> {
    EncodeMeta { name, resource_version, ..EncodeMeta::default() }
}

fn list(names: &[&str], resource_version: &str, continue_token: &str) -> Reply {
    let items: Vec<EncodeMeta<'_>> = names.iter().map(|name| meta(name, "1")).collect();
    whole(PROTOBUF, &encode::partial_object_metadata_list(&items, resource_version, continue_token, None))
}

fn event(event_type: &str, name: &str, resource_version: &str) -> Vec<u8> {
    encode::watch_frame(event_type, &encode::partial_object_metadata(&meta(name, resource_version)))
}

fn initial_events_end(resource_version: &str) -> Vec<u8> {
    let annotations = [("k8s.io/initial-events-end", "true")];
    let bookmark = EncodeMeta { resource_version, annotations: &annotations, ..EncodeMeta::default() };
    encode::watch_frame("BOOKMARK", &encode::partial_object_metadata(&bookmark))
}

fn expired_event() -> Vec<u8> {
    let status =
        Status { code: 410, reason: "Expired".into(), message: "too old".into(), ..Status::default() };
    encode::watch_frame("ERROR", &encode::status(&status))
}

fn text(event: &WatchEvent<'_>) -> String {
    match event {
        WatchEvent::ListStarted => "list started".into(),
        WatchEvent::Listed(meta) => format!("listed {}", meta.name),
        WatchEvent::ListDone { resource_version } => format!("list done at {resource_version}"),
        WatchEvent::Applied(meta) => format!("applied {} at {}", meta.name, meta.resource_version),
        WatchEvent::Deleted(meta) => format!("deleted {} at {}", meta.name, meta.resource_version),
        WatchEvent::Bookmark { resource_version } => format!("bookmark {resource_version}"),
        WatchEvent::WentBack { resource_version } => format!("went back to {resource_version}"),
        WatchEvent::Ended => "ended".into(),
        WatchEvent::Probing => "probing".into(),
        WatchEvent::Watching => "watching".into(),
        WatchEvent::Resumed => "resumed".into(),
        WatchEvent::Failed(error) => format!("failed: {}", without_server(&error.to_string())),
    }
}

/// Which port a test's server got is chance.
fn without_server(text: &str) -> String {
    match text.split_once(" at 127.0.0.1:") {
        Some((before, after)) => {
            format!("{before}{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        None => text.to_owned(),
    }
}

/// Lets a reflector meet these answers, one after the other, and writes down requests (`>`) and events as they come.
/// It is over when the last answer has been asked for and has led to something.
fn check_with(options: ReflectorOptions, script: Vec<Reply>, expected: &Expect) {
    let script = Mutex::new(VecDeque::from(script));
    let log = Arc::new(Mutex::new(String::new()));
    let seen = log.clone();
    let server = Server::plain(move |request| {
        let reply = script.lock().unwrap().pop_front();
        if reply.is_some() {
            let line = request.line.replace("GET /api/v1/pods", ">");
            writeln!(
                seen.lock().unwrap(),
                "{}",
                line.replace("watch=true&allowWatchBookmarks=true&", "watch ")
            )
            .unwrap();
        }
        reply.unwrap_or_else(|| status(500, "ScriptIsOver"))
    });
    let (_stop, stopped) = crossbeam_channel::bounded(0);
    Reflector::new(client(&server), pods(), options).run(&stopped, &mut |event| {
        let line = text(&event);
        if line.contains("ScriptIsOver") {
            return ControlFlow::Break(());
        }
        writeln!(log.lock().unwrap(), "  {line}").unwrap();
        ControlFlow::Continue(())
    });
    expected.assert_eq(&log.lock().unwrap());
}

fn check(script: Vec<Reply>, expected: &Expect) {
    check_with(quick(), script, expected);
}

#[test]
fn s5_pages_then_events_then_a_watch_from_the_last_version() {
    let events = [event("ADDED", "d", "7"), event("MODIFIED", "a", "8"), event("DELETED", "b", "9")].concat();
    check(
        vec![
            list(&["a", "b"], "5", "to/ken="),
            list(&["c"], "5", ""),
            whole(PROTOBUF_WATCH, &events),
            whole(PROTOBUF_WATCH, &event("BOOKMARK", "", "20")),
            whole(PROTOBUF_WATCH, &event("ADDED", "e", "21")),
        ],
        &expect![[r#"
              list started
            >?limit=2
              listed a
              listed b
            >?limit=2&continue=to%2Fken%3D
              listed c
              list done at 5
            >?watch timeoutSeconds=1&resourceVersion=5
              watching
              applied d at 7
              applied a at 8
              deleted b at 9
              ended
            >?watch timeoutSeconds=1&resourceVersion=9
              watching
              bookmark 20
              ended
            >?watch timeoutSeconds=1&resourceVersion=20
              watching
              applied e at 21
              ended
        "#]],
    );
}

#[test]
fn kubernetes_83520_expiry_comes_as_a_status_and_as_an_event() {
    check(
        vec![
            list(&["a"], "5", ""),
            status(410, "Expired"),
            list(&["a"], "7", ""),
            whole(PROTOBUF_WATCH, &[event("ADDED", "b", "8"), expired_event()].concat()),
            list(&["a", "b"], "9", ""),
            status(410, "Gone"),
            list(&[], "10", ""),
        ],
        &expect![[r#"
              list started
            >?limit=2
              listed a
              list done at 5
            >?watch timeoutSeconds=1&resourceVersion=5
              failed: the server answered 410 Expired: m
              list started
            >?limit=2
              listed a
              list done at 7
            >?watch timeoutSeconds=1&resourceVersion=7
              watching
              applied b at 8
              failed: the server answered 410 Expired: too old
              list started
            >?limit=2
              listed a
              listed b
              list done at 9
            >?watch timeoutSeconds=1&resourceVersion=9
              failed: the server answered 410 Gone: m
              list started
            >?limit=2
              list done at 10
        "#]],
    );
}

#[test]
fn s5_a_bad_continue_token_restarts_the_list() {
    check(
        vec![
            list(&["a"], "5", "old"),
            status(410, "Expired"),
            list(&["a"], "6", "odd"),
            status(400, "BadRequest"),
            list(&["a"], "7", ""),
        ],
        &expect![[r#"
              list started
            >?limit=2
              listed a
            >?limit=2&continue=old
              failed: the server answered 410 Expired: m
              list started
            >?limit=2
              listed a
            >?limit=2&continue=odd
              failed: the server answered 400 BadRequest: m
              list started
            >?limit=2
              listed a
              list done at 7
        "#]],
    );
}

#[test]
fn s5_half_a_frame_loses_nothing() {
    let frame = event("ADDED", "b", "6");
    let half = &frame[..frame.len() / 2];
    check(
        vec![
            list(&["a"], "5", ""),
            // The connection is cut.
            cut(PROTOBUF_WATCH, half),
            list(&["a"], "5", ""),
            // The body ends as if it were complete.
            whole(PROTOBUF_WATCH, &[event("ADDED", "x", "5"), half.to_vec()].concat()),
            list(&["a"], "5", ""),
            whole(PROTOBUF_WATCH, &frame),
        ],
        &expect![[r#"
              list started
            >?limit=2
              listed a
              list done at 5
            >?watch timeoutSeconds=1&resourceVersion=5
              watching
              failed: GET /api/v1/pods: Peer disconnected
              probing
            >?limit=1
              resumed
            >?watch timeoutSeconds=1&resourceVersion=5
              watching
              applied x at 5
              failed: GET /api/v1/pods: cannot read the answer: the body ends in the middle of something (after 129 bytes)
              probing
            >?limit=1
              resumed
            >?watch timeoutSeconds=1&resourceVersion=5
              watching
              applied b at 6
              ended
        "#]],
    );
}

#[test]
fn s5_a_list_that_is_cut_is_no_list() {
    let body = encode::partial_object_metadata_list(&[meta("a", "1"), meta("b", "2")], "5", "", None);
    check(
        vec![
            cut(PROTOBUF, &body[..body.len() - 20]),
            whole(PROTOBUF, &body[..body.len() - 20]),
            list(&["a", "b"], "5", ""),
        ],
        &expect![[r#"
              list started
            >?limit=2
              listed a
              failed: GET /api/v1/pods: Peer disconnected
              list started
            >?limit=2
              listed a
              failed: GET /api/v1/pods: cannot read the answer: the body ends in the middle of something (after 88 bytes)
              list started
            >?limit=2
              listed a
              listed b
              list done at 5
        "#]],
    );
}

#[test]
fn s5_json_is_understood_where_the_server_writes_json() {
    let list = r#"{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"a"}}]}"#;
    let events = concat!(
        r#"{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"b","resourceVersion":"6"},"spec":{}}}"#,
        "\n",
        r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"9"}}}"#,
        "\n",
        r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410,"reason":"Gone","message":"m"}}"#,
    );
    check(
        vec![
            status(406, "NotAcceptable"),
            whole("application/json", list.as_bytes()),
            whole("application/json", events.as_bytes()),
            whole("application/json", list.as_bytes()),
        ],
        &expect![[r#"
              list started
            >?limit=2
              failed: the server answered 406 NotAcceptable: m
              list started
            >?limit=2
              listed a
              list done at 5
            >?watch timeoutSeconds=1&resourceVersion=5
              watching
              applied b at 6
              bookmark 9
              failed: the server answered 410 Gone: m
              list started
            >?limit=2
              listed a
              list done at 5
        "#]],
    );
}

#[test]
fn s5_what_is_neither_protobuf_nor_json_is_named() {
    check(
        vec![
            whole("text/html", b"<html>please log in</html>"),
            whole(PROTOBUF, b"<html>please log in</html>"),
            whole("application/json", b"{}"),
            whole("application/json", br#"{"kind":"Status","apiVersion":"v1","code":500,"message":"odd"}"#),
            list(&[], "5", ""),
            whole(PROTOBUF_WATCH, b"\0\0\0\x03abc"),
            whole(PROTOBUF_WATCH, &event("VANISHED", "a", "6")),
            whole("application/json", br#"{"type":"ADDED"}"#),
            list(&[], "6", ""),
        ],
        &expect![[r#"
              list started
            >?limit=2
              failed: GET /api/v1/pods: cannot read the answer: expected protobuf or JSON, found "text/html"
              list started
            >?limit=2
              failed: GET /api/v1/pods: cannot read the answer: expected protobuf, which starts with "k8s\0" (after 1 bytes)
              list started
            >?limit=2
              failed: GET /api/v1/pods: cannot read the answer: a list without items (after 2 bytes)
              list started
            >?limit=2
              failed: the server answered 500: odd
              list started
            >?limit=2
              list done at 5
            >?watch timeoutSeconds=1&resourceVersion=5
              watching
              failed: GET /api/v1/pods: cannot read the answer: a field that is longer than the message around it (after 5 bytes)
              list started
            >?limit=2
              failed: GET /api/v1/pods: cannot read the answer: expected protobuf, which starts with "k8s\0" (after 1 bytes)
              list started
            >?limit=2
              failed: GET /api/v1/pods: cannot read the answer: a list without items (after 16 bytes)
              list started
            >?limit=2
              list done at 6
        "#]],
    );
}

#[test]
fn s3_a_resource_that_is_not_served_is_visible_and_asked_for_again() {
    let not_served = || {
        let head = "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 19\r\n\r\n";
        Reply::Keep(format!("{head}404 page not found\n").into_bytes())
    };
    check(
        vec![not_served(), not_served(), list(&[], "5", ""), not_served(), list(&[], "6", "")],
        &expect![[r#"
              list started
            >?limit=2
              failed: the server answered 404: 404 page not found
              list started
            >?limit=2
              failed: the server answered 404: 404 page not found
              list started
            >?limit=2
              list done at 5
            >?watch timeoutSeconds=1&resourceVersion=5
              failed: the server answered 404: 404 page not found
              list started
            >?limit=2
              list done at 6
        "#]],
    );
}

#[test]
fn s7_a_server_restored_from_a_backup_is_noticed_after_the_connection_was_lost() {
    check(
        vec![
            list(&["a"], "50", ""),
            cut(PROTOBUF_WATCH, &event("ADDED", "b", "60")),
            // The question for the version, with limit=1.
            list(&["a"], "40", ""),
            list(&["a"], "40", ""),
            whole(PROTOBUF_WATCH, &event("BOOKMARK", "", "30")),
            list(&["a"], "31", ""),
        ],
        &expect![[r#"
              list started
            >?limit=2
              listed a
              list done at 50
            >?watch timeoutSeconds=1&resourceVersion=50
              watching
              applied b at 60
              failed: GET /api/v1/pods: Peer disconnected
              probing
            >?limit=1
              went back to 40
              list started
            >?limit=2
              listed a
              list done at 40
            >?watch timeoutSeconds=1&resourceVersion=40
              watching
              went back to 30
              list started
            >?limit=2
              listed a
              list done at 31
        "#]],
    );
}

/// Found by simulation: only the list said it, and by then the caller's own writes had overtaken the version.
#[test]
fn s7_a_probe_that_finds_an_older_version_tells_before_the_list_is_made() {
    check(
        vec![
            list(&["a"], "50", ""),
            cut(PROTOBUF_WATCH, &event("ADDED", "b", "60")),
            list(&["a"], "55", ""),
            list(&["a"], "61", ""),
            whole(PROTOBUF_WATCH, &event("DELETED", "a", "62")),
        ],
        &expect![[r#"
              list started
            >?limit=2
              listed a
              list done at 50
            >?watch timeoutSeconds=1&resourceVersion=50
              watching
              applied b at 60
              failed: GET /api/v1/pods: Peer disconnected
              probing
            >?limit=1
              went back to 55
              list started
            >?limit=2
              listed a
              list done at 61
            >?watch timeoutSeconds=1&resourceVersion=61
              watching
              deleted a at 62
              ended
        "#]],
    );
}

/// The same where the first page says it, or a probe between two pages. Each is told once.
#[test]
fn s7_the_pages_of_a_list_tell_as_well() {
    check(
        vec![
            list(&["a"], "50", ""),
            status(410, "Expired"),
            list(&["a"], "40", "one"),
            list(&["b"], "40", "two"),
            status(500, "InternalError"),
            list(&["a"], "70", "three"),
            cut(PROTOBUF, b"k8s"),
            list(&["a"], "65", ""),
            list(&["a"], "71", ""),
            whole(PROTOBUF_WATCH, &event("DELETED", "a", "72")),
        ],
        &expect![[r#"
              list started
            >?limit=2
              listed a
              list done at 50
            >?watch timeoutSeconds=1&resourceVersion=50
              failed: the server answered 410 Expired: m
              list started
            >?limit=2
              listed a
              went back to 40
            >?limit=2&continue=one
              listed b
            >?limit=2&continue=two
              failed: the server answered 500 InternalError: m
              list started
            >?limit=2
              listed a
            >?limit=2&continue=three
              failed: GET /api/v1/pods: Peer disconnected
            >?limit=1
              went back to 65
              list started
            >?limit=2
              listed a
              list done at 71
            >?watch timeoutSeconds=1&resourceVersion=71
              watching
              deleted a at 72
              ended
        "#]],
    );
}

#[test]
fn s5_the_first_list_can_be_streamed() {
    let options = ReflectorOptions { stream_lists: true, ..quick() };
    let first = [
        event("ADDED", "a", "3"),
        event("ADDED", "b", "2"),
        event("DELETED", "a", "6"),
        initial_events_end("6"),
    ];
    let then = [event("ADDED", "c", "7"), expired_event()];
    check_with(
        options.clone(),
        vec![
            whole(PROTOBUF_WATCH, &[first.concat(), then.concat()].concat()),
            whole(PROTOBUF_WATCH, &[initial_events_end("8"), event("MODIFIED", "c", "9")].concat()),
            whole(PROTOBUF_WATCH, &event("MODIFIED", "c", "10")),
        ],
        &expect![[r#"
            >?watch timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan
              list started
              listed a
              listed b
              deleted a at 6
              list done at 6
              watching
              applied c at 7
              failed: the server answered 410 Expired: too old
            >?watch timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan
              list started
              list done at 8
              watching
              applied c at 9
              ended
            >?watch timeoutSeconds=1&resourceVersion=9
              watching
              applied c at 10
              ended
        "#]],
    );
    check_with(
        options,
        vec![status(422, "Invalid"), list(&["a"], "5", "")],
        &expect![[r#"
        >?watch timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan
          failed: the server answered 422 Invalid: m
          list started
        >?limit=2
          listed a
          list done at 5
    "#]],
    );
}

#[test]
fn s7_a_watch_that_ends_early_is_followed_by_a_look_at_the_version() {
    let events = [event("ADDED", "a", "7"), event("ADDED", "b", "8")].concat();
    check_with(
        ReflectorOptions { watch_timeout_s: 100..=100, ..quick() },
        vec![
            list(&[], "5", ""),
            whole(PROTOBUF_WATCH, &events),
            list(&[], "8", ""),
            whole(PROTOBUF_WATCH, &event("DELETED", "b", "9")),
            list(&["a"], "8", ""),
            list(&["a", "b"], "8", ""),
        ],
        &expect![[r#"
              list started
            >?limit=2
              list done at 5
            >?watch timeoutSeconds=100&resourceVersion=5
              watching
              applied a at 7
              applied b at 8
              ended
              probing
            >?limit=1
              resumed
            >?watch timeoutSeconds=100&resourceVersion=8
              watching
              deleted b at 9
              ended
              probing
            >?limit=1
              went back to 8
              list started
            >?limit=2
              listed a
              listed b
              list done at 8
        "#]],
    );
}

#[test]
fn s5_a_stop_ends_a_watch_on_which_nothing_happens() {
    let server = Server::plain(|request| match request.line.contains("watch=true") {
        false => list(&[], "5", ""),
        true => hang(PROTOBUF_WATCH, &event("BOOKMARK", "", "6")),
    });
    let (stop, stopped) = crossbeam_channel::bounded(0);
    let mut stop = Some(stop);
    // The sink lets go of the sender once the watch hangs; the next tick notices.
    Reflector::new(client(&server), pods(), quick()).run(&stopped, &mut |event| {
        if matches!(event, WatchEvent::Bookmark { .. }) {
            stop.take();
        }
        ControlFlow::Continue(())
    });
    assert!(stop.is_none());
}

/// Each watch is asked for an hour. The first two end when their bookmark is overdue; after these the server counts as one
/// that sends none, and only the bookmark that the third one does bring lets silence end it again.
#[test]
fn kubernetes_48638_a_watch_whose_bookmarks_stop_is_given_up() {
    let options = ReflectorOptions {
        watch_timeout_s: 3600..=3600,
        bookmark_within: Duration::from_millis(100),
        ..quick()
    };
    check_with(
        options,
        vec![
            list(&[], "5", ""),
            hang(PROTOBUF_WATCH, &event("ADDED", "a", "6")),
            list(&[], "6", ""),
            hang(PROTOBUF_WATCH, &event("ADDED", "b", "7")),
            list(&[], "7", ""),
            hang(PROTOBUF_WATCH, &event("BOOKMARK", "", "8")),
            list(&[], "8", ""),
        ],
        &expect![[r#"
              list started
            >?limit=2
              list done at 5
            >?watch timeoutSeconds=3600&resourceVersion=5
              watching
              applied a at 6
              failed: GET /api/v1/pods: nothing came for 0 s
              probing
            >?limit=1
              resumed
            >?watch timeoutSeconds=3600&resourceVersion=6
              watching
              applied b at 7
              failed: GET /api/v1/pods: nothing came for 0 s
              probing
            >?limit=1
              resumed
            >?watch timeoutSeconds=3600&resourceVersion=7
              watching
              bookmark 8
              failed: GET /api/v1/pods: nothing came for 0 s
              probing
            >?limit=1
              resumed
        "#]],
    );
}

#[test]
fn r6_shutting_the_client_down_wakes_a_watch_at_once() {
    let server = Server::plain(|request| match request.line.contains("watch=true") {
        false => list(&[], "5", ""),
        true => hang(PROTOBUF_WATCH, &event("BOOKMARK", "", "6")),
    });
    let client = client(&server);
    let (hangs, hanging) = crossbeam_channel::bounded::<()>(1);
    let (_stop, stopped) = crossbeam_channel::bounded(0);
    let closer = client.clone();
    let thread = thread::Builder::new().name("closer".into()).spawn(move || {
        hanging.recv().unwrap();
        closer.shut_down();
    });
    // A tick of an hour: only the shutdown can end this.
    let options = ReflectorOptions { watch_within: Duration::from_secs(3600), ..quick() };
    let mut failures = Vec::new();
    Reflector::new(client, pods(), options).run(&stopped, &mut |event| {
        match event {
            WatchEvent::Bookmark { .. } => hangs.send(()).unwrap(),
            WatchEvent::Failed(error) => failures.push(error.to_string()),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    assert_eq!(failures, Vec::<String>::new());
    thread.unwrap().join().unwrap();
}

#[test]
fn s5_a_dead_server_is_not_given_up() {
    let address = Server::plain(|_| status(500, "Never")).url();
    let client = Client::new(&Config::plain(&address), &Options::default()).unwrap();
    let (_stop, stopped) = crossbeam_channel::bounded(0);
    let mut failures = 0;
    Reflector::new(client, pods(), quick()).run(&stopped, &mut |event| {
        failures += i32::from(matches!(event, WatchEvent::Failed(_)));
        if failures == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(failures, 4);
}

/// A Job whose phase is this.
fn job(name: &str, resource_version: &str, phase: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"ns","uid":"u-{name}","resourceVersion":"{resource_version}"}},"spec":{{"template":{{}}}},"status":{{"phase":"{phase}"}}}}"#
    )
}

fn phase() -> Fields {
    Fields::new([["status", "phase"]]).unwrap()
}

/// The list, the watch, a probe after a lost connection and the watch that goes on ask for full objects; a server that
/// does not give any (406, or metadata all the same) is asked again, and nothing follows for any object.
#[test]
fn t1_fields_are_asked_for_in_json_and_come_with_each_object() {
    let json = "application/json";
    let items = [job("a", "3", "Running"), job("b", "4", "Completed")].join(",");
    let list = |resource_version| {
        format!(
            r#"{{"kind":"JobList","metadata":{{"resourceVersion":"{resource_version}"}},"items":[{items}]}}"#
        )
    };
    let change = format!(r#"{{"type":"MODIFIED","object":{}}}"#, job("a", "6", "Failed"));
    let gone = format!(r#"{{"type":"DELETED","object":{}}}"#, job("b", "7", "Completed"));
    let metadata_only = r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},"items":[]}"#;
    let script = Mutex::new(VecDeque::from([
        status(406, "NotAcceptable"),
        whole(json, metadata_only.as_bytes()),
        whole(json, list(5).as_bytes()),
        cut(json, change.as_bytes()),
        whole(json, list(6).as_bytes()),
        whole(json, gone.as_bytes()),
    ]));
    let server = Server::plain(move |_| {
        script.lock().unwrap().pop_front().unwrap_or_else(|| status(500, "ScriptIsOver"))
    });
    let (_stop, stopped) = crossbeam_channel::bounded(0);
    let mut said = String::new();
    let options = ReflectorOptions { fields: Some(phase()), ..quick() };
    Reflector::new(client(&server), pods(), options).run(&stopped, &mut |event| {
        let line = text(&event);
        if line.contains("ScriptIsOver") {
            return ControlFlow::Break(());
        }
        let fields = match event {
            WatchEvent::Listed(meta) | WatchEvent::Applied(meta) | WatchEvent::Deleted(meta) => meta.fields,
            _ => &[],
        };
        writeln!(said, "{line} {fields:?}").unwrap();
        ControlFlow::Continue(())
    });
    expect![[r#"
        list started []
        failed: the server answered 406 NotAcceptable: m []
        list started []
        failed: GET /api/v1/pods: cannot read the answer: metadata only, where fields of the objects were asked for (after 112 bytes) []
        list started []
        listed a [Value(String("Running"))]
        listed b [Value(String("Completed"))]
        list done at 5 []
        watching []
        applied a at 6 [Value(String("Failed"))]
        failed: GET /api/v1/pods: Peer disconnected []
        probing []
        resumed []
        watching []
        deleted b at 7 [Value(String("Completed"))]
        ended []
    "#]]
    .assert_eq(&said);
    let asked: Vec<String> =
        server.seen().iter().map(|seen| seen.header("accept")).filter(|accept| accept != json).collect();
    assert_eq!(asked, Vec::<String>::new(), "only full objects have fields");
}

#[test]
fn t2_a_read_gives_the_fields_and_only_of_the_object_that_was_asked_for() {
    let json = "application/json";
    let answers = [
        whole(
            "application/json\r\nDate: Mon, 30 Nov 2026 13:00:00 GMT",
            job("a", "9", "Completed").as_bytes(),
        ),
        whole(json, job("b", "9", "Completed").as_bytes()),
        whole(PROTOBUF, &encode::partial_object_metadata(&meta("a", "9"))),
        status(404, "NotFound"),
    ];
    let script = Mutex::new(VecDeque::from(answers));
    let server = Server::plain(move |_| script.lock().unwrap().pop_front().unwrap());
    let client = client(&server);
    let mut said = String::new();
    for _ in 0..4 {
        match client.read_fields(&pods(), "ns", "a", &phase()) {
            Ok(ObjectFields { meta, values, server_time_ms }) => {
                writeln!(
                    said,
                    "{} at {} {values:?}, server's time {server_time_ms:?}",
                    meta.name, meta.resource_version
                )
            }
            Err(error) => writeln!(said, "{}", without_server(&error.to_string())),
        }
        .unwrap();
    }
    expect![[r#"
        a at 9 [Value(String("Completed"))], server's time Some(1796043600000)
        GET /api/v1/namespaces/ns/pods/a: cannot read the answer: the answer is not the object that was asked for, but one with name "b", namespace "ns" and UID "u-b"
        GET /api/v1/namespaces/ns/pods/a: cannot read the answer: protobuf, where fields of the objects were asked for in JSON (after 0 bytes)
        the server answered 404 NotFound: m
    "#]]
    .assert_eq(&said);
    assert!(matches!(client.read_fields(&pods(), "ns", "..", &phase()), Err(Error::Invalid { .. })));
    assert_eq!(Field::default().value(), None);
}

#[test]
fn s5_a_list_that_never_ends_is_told_and_begun_anew() {
    let mut list_watch = ListWatch::new(&pods(), &ReflectorOptions::default());
    let mut told = Vec::new();
    let mut tell = |event: WatchEvent<'_>| {
        told.push(match event {
            WatchEvent::Failed(error) => error.to_string(),
            other => format!("{other:?}"),
        });
        ControlFlow::Continue(())
    };
    for _ in 0..10_000 {
        let call = list_watch.next_call(&mut tell);
        assert!(matches!(call, ControlFlow::Continue(Call::List { .. })), "{call:?}");
        let end = ListEnd { resource_version: "5".into(), continue_token: "again".into() };
        assert!(list_watch.page(end, &mut tell).is_continue());
    }
    let waits = list_watch.next_call(&mut tell);
    assert!(matches!(waits, ControlFlow::Continue(Call::Wait(_))), "{waits:?}");
    expect![[r#"
        ListStarted
        GET /api/v1/pods: cannot read the answer: a list that has no end, or goes in circles: it is begun anew"#]].assert_eq(&told.join("\n"));
}

/// A server asked for thousands of lists in one moment refuses most of them; and one whose lists hang, as those of kinds
/// do whose conversion webhook is down, must not keep the other kinds from being listed.
#[test]
fn s3_few_lists_are_begun_at_once_and_those_that_hang_hold_up_the_others_for_a_moment() {
    const AT_ONCE: usize = 16;
    let asked: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let asking = asked.clone();
    let server = Server::plain(move |seen| {
        if seen.line.contains("/stuck") {
            asking.lock().unwrap().push(Instant::now());
            return Reply::Hang(head(PROTOBUF));
        }
        if seen.line.contains("watch=true") { hang(PROTOBUF_WATCH, b"") } else { list(&["a"], "10", "") }
    });
    let client = client(&server);
    let (told, listed) = crossbeam_channel::unbounded();
    let began = Instant::now();
    thread::scope(|scope| {
        let (stop, stopped) = crossbeam_channel::bounded::<()>(0);
        let read = |resource: String| {
            let reflector = Reflector::new(client.clone(), ApiResource { resource, ..pods() }, quick());
            let (stopped, told) = (stopped.clone(), told.clone());
            scope.spawn(move || {
                reflector.run(&stopped, &mut |event| {
                    if let WatchEvent::ListDone { .. } = event {
                        told.send(()).unwrap();
                    }
                    ControlFlow::Continue(())
                });
            });
        };
        (0..=AT_ONCE).for_each(|n| read(format!("stuck{n}")));
        let deadline = Instant::now() + Duration::from_secs(30);
        while asked.lock().unwrap().len() < AT_ONCE {
            assert!(Instant::now() < deadline, "so many are asked for at once");
            thread::yield_now();
        }
        read("pods".to_owned());
        listed.recv_timeout(Duration::from_secs(30)).expect("the others are listed all the same");
        while asked.lock().unwrap().len() <= AT_ONCE {
            assert!(Instant::now() < deadline, "and then another");
            thread::yield_now();
        }
        drop(stop);
        client.shut_down();
    });
    let waited = asked.lock().unwrap()[AT_ONCE].duration_since(began);
    assert!(Duration::from_millis(100) <= waited, "one more after {waited:?}");
}
