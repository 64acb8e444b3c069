//! The simulator behind HTTP: by hand, byte for byte, and with our own client.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test may stop where it stands.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use gc_client::wire::{Format, WatchReader, read_list};
use gc_client::{
    ApiResource, Client, Config, DeleteOptions, Error, Options, PatchType, Propagation, Reflector,
    ReflectorOptions, WatchEvent, discover,
};
use gc_tests::experiment::{self, ExperimentError};
use gc_tests::http::Front;
use gc_tests::sim::{ApiServer, Effect, FaultRule, Request, Timestamp};
use serde_json::{Value, json};

/// Longer than anything here takes; a test that waits so long has failed.
const LONG: Duration = Duration::from_secs(20);
const MAPS: &str = "/api/v1/namespaces/ns/configmaps";

fn front(world: &str) -> Front {
    let mut server = ApiServer::new(7);
    server.load(Timestamp::now(), world).unwrap();
    Front::start(server).unwrap()
}

/// One connection, by hand.
struct Wire(BufReader<TcpStream>);

impl Wire {
    fn open(front: &Front) -> Wire {
        let stream = TcpStream::connect(front.address()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        Wire(BufReader::new(stream))
    }

    fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    /// The status line, and the headers in lower case.
    fn head(&mut self) -> (String, String) {
        let status = self.line();
        let mut headers = String::new();
        loop {
            let line = self.line();
            if line.is_empty() {
                return (status, headers);
            }
            headers += &format!("{}\n", line.to_lowercase());
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().into()
    }

    fn body(&mut self, length: usize) -> String {
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    }

    fn chunk(&mut self) -> String {
        let size = usize::from_str_radix(&self.line(), 16).unwrap();
        let chunk = self.body(size);
        assert_eq!(self.line(), "");
        chunk
    }

    /// How much more there is until the server closes.
    fn rest(&mut self) -> usize {
        self.0.read_to_end(&mut Vec::new()).unwrap_or(0)
    }
}

#[test]
fn a_connection_serves_many_requests_with_bodies_of_both_kinds() {
    let front = front("cm/a @ns");
    let mut wire = Wire::open(&front);
    // Two requests at once, then a chunked body after `100 Continue`.
    wire.send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\nGET /readyz HTTP/1.1\r\nHost: x\r\n\r\n");
    for _ in 0..2 {
        assert_eq!(
            wire.head(),
            ("HTTP/1.1 200 OK".into(), "content-type: text/plain; charset=utf-8\ncontent-length: 2\n".into())
        );
        assert_eq!(wire.body(2), "ok");
    }
    wire.send(&format!("POST {MAPS} HTTP/1.1\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"));
    assert_eq!(wire.head().0, "HTTP/1.1 100 Continue");
    wire.send("13;x=y\r\n{\"metadata\":{\"name\"\r\n6\r\n:\"b\"}}\r\n0\r\n\r\n");
    assert_eq!(wire.head().0, "HTTP/1.1 201 Created");
    assert!(front.with(|server| server.object("configmaps", "ns", "b")).is_some());
}

#[test]
fn strange_requests_are_refused_or_cut() {
    let front = front("cm/a @ns");
    for (request, answer) in [
        ("BREW /pot HTTP/1.1\r\n\r\n".to_string(), "HTTP/1.1 405 Method Not Allowed"),
        (
            format!("POST {MAPS} HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n"),
            "HTTP/1.1 413 Request Entity Too Large",
        ),
        (format!("POST {MAPS} HTTP/1.1\r\nContent-Length: x\r\n\r\n"), ""),
        (format!("POST {MAPS} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), ""),
        (format!("POST {MAPS} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n"), ""),
        ("what is this\r\n\r\n".into(), ""),
        (format!("GET /{} HTTP/1.1", "x".repeat(100_000)), ""),
    ] {
        let mut wire = Wire::open(&front);
        wire.send(&request);
        let mut line = String::new();
        // A connection that is cut with bytes unread is reset on some systems, closed on others.
        let _ = wire.0.read_line(&mut line);
        assert_eq!(line.trim_end(), answer, "{request:.60}");
    }
}

#[test]
fn a_watch_is_chunked_follows_and_ends() {
    let front = front("cm/a @ns");
    let mut wire = Wire::open(&front);
    wire.send(&format!("GET {MAPS}?watch=1&resourceVersion=0&timeoutSeconds=1 HTTP/1.1\r\nHost: x\r\n\r\n"));
    assert!(wire.head().1.contains("transfer-encoding: chunked"));
    assert!(wire.chunk().starts_with(r#"{"object":{"apiVersion":"v1","kind":"ConfigMap","#));
    front.with(|server| server.load(Timestamp::now(), "cm/b @ns")).unwrap();
    assert!(wire.chunk().contains(r#""type":"ADDED""#));
    // After its time the watch ends, and the connection goes on.
    assert_eq!(wire.chunk(), "");
    wire.send("GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(wire.head().0, "HTTP/1.1 200 OK");
}

#[test]
fn a_watch_whose_client_went_away_is_closed() {
    let front = front("cm/a @ns");
    let mut wire = Wire::open(&front);
    wire.send(&format!("GET {MAPS}?watch=1&resourceVersion=0 HTTP/1.1\r\nHost: x\r\n\r\n"));
    wire.head();
    wire.chunk();
    assert_eq!(front.with(|server| server.open_watches()), 1);
    drop(wire);
    let until = Instant::now() + LONG;
    while front.with(|server| server.open_watches()) > 0 {
        assert!(Instant::now() < until, "the watch is still open");
        thread::yield_now();
    }
}

#[test]
fn faults_reach_the_wire() {
    let front = front("cm/a @ns");
    let list = format!("GET {MAPS} HTTP/1.1\r\nHost: x\r\n\r\n");
    let with =
        |effect: Effect| front.with(|server| server.faults = vec![FaultRule::new("", effect).times(1)]);
    with(Effect::CutBefore);
    let mut wire = Wire::open(&front);
    wire.send(&list);
    assert_eq!(wire.rest(), 0);

    with(Effect::Truncate(10));
    let mut wire = Wire::open(&front);
    wire.send(&list);
    let headers = wire.head().1;
    assert!(!headers.contains("content-length: 10\n") && headers.contains("content-length: "), "{headers}");
    assert_eq!(wire.rest(), 10);

    with(Effect::Truncate(10));
    let mut wire = Wire::open(&front);
    wire.send(&format!("GET {MAPS}?watch=1&resourceVersion=0 HTTP/1.1\r\nHost: x\r\n\r\n"));
    wire.head();
    assert!(wire.line().len() > 1, "the chunk promises more than comes");
    assert_eq!(wire.rest(), 10);

    let delay = Duration::from_millis(120);
    with(Effect::Delay(delay));
    let mut wire = Wire::open(&front);
    let asked = Instant::now();
    wire.send(&list);
    assert_eq!(wire.head().0, "HTTP/1.1 200 OK");
    assert!(asked.elapsed() >= delay);

    with(Effect::Status {
        code: 429,
        reason: "TooManyRequests".into(),
        message: "m".into(),
        retry_after_s: Some(3),
    });
    wire = Wire::open(&front);
    wire.send(&list);
    assert!(wire.head().1.contains("retry-after: 3\n"));
}

#[test]
fn kubernetes_101740_connections_can_be_cut_and_dropping_the_front_ends_all() {
    let front = front("cm/a @ns");
    let mut quiet = Wire::open(&front);
    let mut watching = Wire::open(&front);
    watching.send(&format!("GET {MAPS}?watch=1&resourceVersion=0 HTTP/1.1\r\nHost: x\r\n\r\n"));
    watching.head();
    watching.chunk();
    front.cut_connections();
    watching.rest();
    quiet.rest();
    let mut again = Wire::open(&front);
    again.send(&format!("GET {MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n"));
    again.head();
    let address = front.address();
    front.with(|server| server.faults = vec![FaultRule::new("", Effect::Delay(Duration::from_secs(3600)))]);
    let mut held = Wire::open(&front);
    held.send("GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n");
    drop(front);
    again.rest();
    assert!(TcpStream::connect(address).is_err());
}

fn client(front: &Front) -> Client {
    Client::new(&Config::plain(&front.url()), &Options::default()).unwrap()
}

fn resource(client: &Client, kind: &str) -> ApiResource {
    discover(client).unwrap().resources.into_iter().find(|r| r.kind == kind).unwrap()
}

#[test]
fn our_client_discovers_the_same_in_both_forms() {
    let front = front("cm/a @ns");
    let aggregated = discover(&client(&front)).unwrap();
    front.with(|server| server.switches.aggregated_discovery = false);
    let legacy = discover(&client(&front)).unwrap();
    let sorted = |resources: &[ApiResource]| {
        let mut names: Vec<String> =
            resources.iter().map(|r| format!("{} {} {}", r.api_version(), r.resource, r.preferred)).collect();
        names.sort();
        names
    };
    assert_eq!(sorted(&aggregated.resources), sorted(&legacy.resources));
    assert_eq!(aggregated.resources.len(), 24);
    assert_eq!((aggregated.failed, legacy.failed), (Vec::new(), Vec::new()));
}

#[test]
fn our_client_reads_patches_and_deletes() {
    let front = front("cm/a @ns\ncm/b @ns owners=[cm/a!] finalizers=[x.y/z]");
    let client = client(&front);
    let maps = resource(&client, "ConfigMap");
    let b = client.read(&maps, "ns", "b").unwrap();
    assert_eq!(
        (b.owner_references[0].name.as_str(), b.finalizers.as_slice()),
        ("a", ["x.y/z".to_string()].as_slice())
    );
    let stale =
        DeleteOptions { uid: &b.uid, resource_version: "1", propagation_policy: Propagation::Foreground };
    let Err(Error::Status(status)) = client.delete(&maps, "ns", "b", &stale) else { panic!("not refused") };
    assert_eq!((status.code, status.name.as_str()), (409, "b"));
    let fresh = DeleteOptions { resource_version: &b.resource_version, ..stale };
    client.delete(&maps, "ns", "b", &fresh).unwrap();
    let body =
        json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": b.owner_references[0].uid}]}});
    let patched =
        client.patch(&maps, "ns", "b", PatchType::StrategicMerge, body.to_string().as_bytes()).unwrap();
    assert!(patched.owner_references.is_empty() && patched.being_deleted);
    assert_eq!(front.with(|s| s.show()), "cm/a @ns\ncm/b @ns finalizers=[x.y/z, foreground] deleting\n");
    let Err(Error::Status(absent)) = client.read(&maps, "ns", "c") else { panic!("found") };
    assert!(absent.proves_absent("c"));
}

/// What a reflector knows: UID to resourceVersion, as the daemon's graph would have it.
#[derive(Default)]
struct Known {
    listed: Option<BTreeMap<String, String>>,
    objects: BTreeMap<String, String>,
    lists: usize,
}

impl Known {
    fn take(&mut self, event: &WatchEvent<'_>) {
        match event {
            WatchEvent::ListStarted => self.listed = Some(BTreeMap::new()),
            WatchEvent::Listed(meta) => {
                let listed = self.listed.as_mut().expect("an object that is listed outside a list");
                listed.insert(meta.uid.into(), meta.resource_version.into());
            }
            WatchEvent::ListDone { .. } => {
                self.objects = self.listed.take().expect("the end of no list");
                self.lists += 1;
            }
            WatchEvent::Applied(meta) => {
                self.objects.insert(meta.uid.into(), meta.resource_version.into());
            }
            WatchEvent::Deleted(meta) => {
                self.objects.remove(meta.uid);
                self.listed.iter_mut().for_each(|l| drop(l.remove(meta.uid)));
            }
            WatchEvent::Bookmark { .. }
            | WatchEvent::WentBack { .. }
            | WatchEvent::Ended
            | WatchEvent::Probing
            | WatchEvent::Watching
            | WatchEvent::Resumed
            | WatchEvent::Failed(_) => {}
        }
    }
}

fn truth(front: &Front) -> BTreeMap<String, String> {
    let text = |object: &Value, key: &str| object["metadata"][key].as_str().unwrap().to_string();
    let objects = front.with(|server| server.objects("configmaps"));
    objects.iter().map(|o| (text(o, "uid"), text(o, "resourceVersion"))).collect()
}

#[test]
fn s5_our_reflector_ends_where_the_server_is_through_cuts_410_and_half_answers() {
    for stream_lists in [false, true] {
        let front = front("cm/a @ns");
        let client = client(&front);
        let maps = resource(&client, "ConfigMap");
        let options = ReflectorOptions {
            stream_lists,
            page_size: 3,
            backoff_base: Duration::from_millis(5),
            ..ReflectorOptions::default()
        };
        let known = Mutex::new(Known::default());
        let (stop, stopped) = crossbeam_channel::bounded(0);
        thread::scope(|scope| {
            let stop = stop;
            let (reflector, sink) = (Reflector::new(client.clone(), maps, options), &known);
            scope.spawn(move || {
                reflector.run(&stopped, &mut |event| {
                    sink.lock().unwrap().take(&event);
                    ControlFlow::Continue(())
                });
            });
            let catches_up = |what: &str| {
                let until = Instant::now() + LONG;
                while known.lock().unwrap().objects != truth(&front) {
                    assert!(Instant::now() < until, "stream_lists={stream_lists}, {what}: not caught up");
                    thread::yield_now();
                }
            };
            catches_up("the first list");
            for round in 0..6 {
                let lists = known.lock().unwrap().lists;
                front.with(|server| {
                    let now = Timestamp::now();
                    server
                        .load(now, &format!("cm/x{round} @ns\ncm/y{round} @ns owners=[cm/x{round}!]"))
                        .unwrap();
                    server.handle(now, &Request::delete(&format!("{MAPS}/x{round}")));
                    let half = FaultRule::new("*/configmaps", Effect::Truncate(300)).times(2);
                    server.faults = if round % 2 == 0 { Vec::new() } else { vec![half] };
                    if round >= 2 {
                        server.compact(server.resource_version());
                    }
                });
                front.cut_connections();
                catches_up(&format!("round {round}"));
                let relisted = known.lock().unwrap().lists > lists;
                assert!(relisted || round < 2, "a watch that has expired begins with a list");
            }
            drop(stop);
            client.shut_down();
        });
        assert!(known.lock().unwrap().objects.len() == 7);
    }
}

/// What a stream holds, an object or event a line.
fn listed(format: Format, bytes: &[u8]) -> String {
    let mut out = String::new();
    let end = read_list(format, bytes, &mut |meta| {
        out += &format!("{meta:?}\n");
        ControlFlow::Continue(())
    });
    out + &format!("{:?}", end.unwrap().resource_version)
}

fn watched(format: Format, bytes: &[u8]) -> String {
    let mut reader = WatchReader::new(format, bytes);
    let mut out = String::new();
    while let Some(line) = reader.next(|event| format!("{event:?}\n")).unwrap() {
        out += &line;
    }
    out
}

#[test]
fn json_and_protobuf_say_the_same_to_our_decoders() {
    let mut server = ApiServer::new(7);
    let now = Timestamp::now();
    server
        .load(now, "cm/a @ns labels=[x=y]\ncm/b @ns owners=[cm/a!, cm/a*#u] finalizers=[x.y/z] deleting")
        .unwrap();
    let accept = |format: Format, kind: &str| match format {
        Format::Json => format!("application/json;as={kind};g=meta.k8s.io;v=v1"),
        Format::Protobuf => format!("application/vnd.kubernetes.protobuf;as={kind};g=meta.k8s.io;v=v1"),
    };
    let lists = [Format::Json, Format::Protobuf].map(|format| {
        let request = Request::get(MAPS).accepting(&accept(format, "PartialObjectMetadataList"));
        let response = server.handle(now, &request);
        assert_eq!(Format::from_content_type(&response.content_type), Some(format));
        listed(format, response.body_bytes())
    });
    assert_eq!(lists[0], lists[1]);
    assert!(lists[0].contains("block_owner_deletion: Some(true)"), "{}", lists[0]);

    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let opened = [Format::Json, Format::Protobuf].map(|format| {
        let request =
            Request::get(&format!("{MAPS}?{query}")).accepting(&accept(format, "PartialObjectMetadata"));
        let response = server.handle(now, &request);
        assert_eq!(Format::from_content_type(&response.content_type), Some(format));
        (format, response.watch().unwrap())
    });
    server.handle(now, &Request::delete(&format!("{MAPS}/a")));
    let first = opened.map(|(format, id)| watched(format, &server.poll_watch(now, id).bytes));
    assert_eq!(first[0], first[1]);
    assert!(first[0].contains("initial_events_end: true") && first[0].contains("Deleted"), "{}", first[0]);
    server.load(now, "cm/c @ns").unwrap();
    let version = server.resource_version();
    server.compact(version);
    let errors = opened.map(|(format, id)| watched(format, &server.poll_watch(now, id).bytes));
    assert_eq!(errors[0], errors[1]);
    assert!(errors[0].contains("Expired"), "{}", errors[0]);
}

#[test]
fn without_a_collector_the_experiment_says_what_is_missing() {
    let front = front("cm/a @ns");
    let mut out = Vec::new();
    let result = experiment::run(&client(&front), "experiment", Duration::from_millis(200), &mut out);
    let Err(ExperimentError::NotInTime { expected, found }) = result else { panic!("{result:?}") };
    assert_eq!(expected, "foreground-child: it is terminating, with its finalizer");
    assert!(
        found.starts_with("alive, finalizers [article.example/hold], owners [ConfigMap/foreground-owner]"),
        "{found}"
    );
    assert_eq!(out, b"");
}
