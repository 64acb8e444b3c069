//! Both formats must say the same, and no bytes may make them panic or lie.

use std::fmt::Write as _;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::time::Duration;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::arbitrary;
use crate::encode::{self, EncodeManagedFields, EncodeMeta};
use crate::meta::OwnerReferenceRef;

/// Gives a few bytes at a time, so that every boundary falls into every buffer position.
struct Trickle<'b>(&'b [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = into.len().min(3).min(self.0.len());
        into[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

/// One line for an object, as the test worlds write them.
fn line(meta: &MetaRef<'_>) -> String {
    let mut text = format!("{} @{} uid={} rv={}", meta.name, meta.namespace, meta.uid, meta.resource_version);
    for owner in meta.owner_references {
        let OwnerReferenceRef { api_version, kind, name, uid, controller, block_owner_deletion } = owner;
        write!(text, " owner={api_version}/{kind}/{name}={uid}").unwrap();
        write!(text, "(controller {controller:?}, block {block_owner_deletion:?})").unwrap();
    }
    for finalizer in meta.finalizers {
        write!(text, " finalizer={finalizer}").unwrap();
    }
    text + if meta.being_deleted { " deleting" } else { "" }
}

/// Reads the list and writes down what came of it.
fn list_text(format: Format, body: &[u8]) -> String {
    let mut text = String::new();
    let result = read_list(format, Trickle(body), &mut |meta| {
        writeln!(text, "{}", line(&meta)).unwrap();
        ControlFlow::Continue(())
    });
    match result {
        Ok(ListEnd { resource_version, continue_token }) => {
            writeln!(text, "end rv={resource_version} continue={continue_token}").unwrap();
        }
        Err(error) => writeln!(text, "error: {error}").unwrap(),
    }
    text
}

fn watch_text(format: Format, body: &[u8]) -> String {
    let mut watch = WatchReader::new(format, Trickle(body));
    let mut text = String::new();
    loop {
        let event = watch.next(|event| match event {
            WireEvent::Added(meta) => format!("added {}", line(&meta)),
            WireEvent::Modified(meta) => format!("modified {}", line(&meta)),
            WireEvent::Deleted(meta) => format!("deleted {}", line(&meta)),
            WireEvent::Bookmark { resource_version, initial_events_end } => {
                format!("bookmark {resource_version} initial_events_end={initial_events_end}")
            }
            WireEvent::Error(status) => format!("error event: {status} retry_after={:?}", status.retry_after),
        });
        match event {
            Ok(Some(event)) => writeln!(text, "{event}").unwrap(),
            Ok(None) => return text + "end\n",
            Err(error) => return format!("{text}error: {error}\n"),
        }
    }
}

fn check_list(format: Format, body: impl AsRef<[u8]>, expected: &Expect) {
    expected.assert_eq(&list_text(format, body.as_ref()));
}

fn check_watch(format: Format, body: impl AsRef<[u8]>, expected: &Expect) {
    expected.assert_eq(&watch_text(format, body.as_ref()));
}

/// `{"type": …, "object": …}` for each, as a server writes them, a line each.
fn json_watch(events: &[Value]) -> Vec<u8> {
    events.iter().flat_map(|event| (event.to_string() + "\n").into_bytes()).collect()
}

#[test]
fn a_protobuf_list_is_read_object_by_object() {
    let owners = [OwnerReferenceRef {
        api_version: "v1",
        kind: "ConfigMap",
        name: "owner",
        uid: "o",
        controller: None,
        block_owner_deletion: Some(true),
    }];
    let items = [
        EncodeMeta {
            name: "child",
            namespace: "ns",
            uid: "c",
            resource_version: "42",
            deletion_unix_s: Some(1_700_000_000),
            labels: &[("app", "x")],
            owner_references: &owners,
            finalizers: &["article.example/hold", "foregroundDeletion"],
            ..EncodeMeta::default()
        },
        EncodeMeta { name: "node", uid: "n", resource_version: "7", ..EncodeMeta::default() },
    ];
    check_list(
        Format::Protobuf,
        encode::partial_object_metadata_list(&items, "99", "token", Some(3)),
        &expect![[r#"
            child @ns uid=c rv=42 owner=v1/ConfigMap/owner=o(controller None, block Some(true)) finalizer=article.example/hold finalizer=foregroundDeletion deleting
            node @ uid=n rv=7
            end rv=99 continue=token
        "#]],
    );
}

#[test]
fn a_json_list_may_have_its_keys_in_any_order_and_full_objects_with_any_content() {
    let body = r#" {"items": [
        {"spec": {"deep": [{"metadata": {"name": "not this"}}]}, "reason": {"odd": 1}, "details": [1], "code": "x",
         "message": 1.5, "metadata": {"annotations": {"a": "b"}, "uid": "u\u00e9", "name": "a", "resourceVersion": "1",
         "finalizers": null, "deletionTimestamp": null, "managedFields": [{}],
         "ownerReferences": [{"uid": "o", "controller": null, "blockOwnerDeletion": false, "extra": 1}]}},
        {"metadata": {"name": "b", "namespace": "ns", "uid": "v", "deletionTimestamp": "2020-01-01T00:00:00Z"}, "status": "odd"}],
      "kind": "ConfigMapList", "metadata": {"continue": "t", "resourceVersion": "9", "remainingItemCount": 3}}  "#;
    check_list(
        Format::Json,
        body,
        &expect![[r#"
            a @ uid=ué rv=1 owner=//=o(controller None, block Some(false))
            b @ns uid=v rv= deleting
            end rv=9 continue=t
        "#]],
    );
}

#[test]
fn s3_an_answer_that_is_no_complete_list_is_never_an_empty_list() {
    let check = |body: &str, expected: Expect| check_list(Format::Json, body, &expected);
    check(
        "{}",
        expect![[r#"
        error: a list without items (after 2 bytes)
    "#]],
    );
    check(
        r#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"9"}}"#,
        expect![[r#"
        error: a list without items (after 59 bytes)
    "#]],
    );
    check(
        r#"{"items":[],"metadata":{}}"#,
        expect![[r#"
        error: a list without metadata.resourceVersion (after 26 bytes)
    "#]],
    );
    check(
        r#"{"kind":"Table","metadata":{"resourceVersion":"9"},"rows":[],"items":[]}"#,
        expect![[r#"
        error: expected a list, found a Table (after 72 bytes)
    "#]],
    );
    check(
        r#"{"kind":"Status","apiVersion":"v1","code":500,"reason":"InternalError","message":"etcd"}"#,
        expect![[r#"
        error: the server answered 500 InternalError: etcd
    "#]],
    );
    check(
        r#"{"items":[{"metadata":{"name":"a"}}"#,
        expect![[r#"
            a @ uid= rv=
            error: the body ends in the middle of something (after 35 bytes)
        "#]],
    );
    check(
        r#"{"items":[],"metadata":{"resourceVersion":"9"}} {}"#,
        expect![[r#"
        error: something follows the end of the document (after 48 bytes)
    "#]],
    );
    check(
        "<html>down for maintenance</html>",
        expect![[r#"
            error: JSON: expected a list, found '<' (after 0 bytes)
        "#]],
    );
    check(
        "",
        expect![[r#"
            error: the body ends in the middle of something (after 0 bytes)
        "#]],
    );
    check(
        r#"{"kind":"PodList","items":null,"metadata":{"resourceVersion":"9"}}"#,
        expect![[r#"
        end rv=9 continue=
    "#]],
    );
}

#[test]
fn s3_a_protobuf_answer_that_is_no_complete_list_is_never_an_empty_list() {
    let check = |body: &[u8], expected: Expect| check_list(Format::Protobuf, body, &expected);
    check(
        b"",
        expect![[r#"
        error: the body ends in the middle of something (after 0 bytes)
    "#]],
    );
    check(
        b"k8s\0",
        expect![[r#"
        error: an envelope without content (after 4 bytes)
    "#]],
    );
    check(
        b"<html>",
        expect![[r#"
        error: expected protobuf, which starts with "k8s\0" (after 1 bytes)
    "#]],
    );
    check(
        &encode::partial_object_metadata_list(&[], "", "", None),
        expect![[r#"
            error: a list without metadata.resourceVersion (after 63 bytes)
        "#]],
    );
    check(
        &encode::partial_object_metadata(&EncodeMeta::default()),
        expect![[r#"
            error: expected a list, found a PartialObjectMetadata (after 69 bytes)
        "#]],
    );
    let status = Status { code: 500, reason: "InternalError".into(), ..Status::default() };
    check(
        &encode::status(&status),
        expect![[r#"
        error: the server answered 500 InternalError
    "#]],
    );
}

/// Damage that would otherwise make an object disappear from a list without a word, which looks like its deletion.
#[test]
fn s3_d16_a_list_in_which_an_object_may_be_hidden_is_refused() {
    let items = ["a", "b"].map(|name| EncodeMeta { name, uid: name, ..EncodeMeta::default() });
    let list = encode::partial_object_metadata_list(&items, "9", "", None);
    let at = |what: &[u8]| list.windows(what.len()).position(|window| window == what).unwrap();
    // Tag, length, and the metadata's tag and length stand before the name of each.
    let (first, second) = (at(b"\x0a\x01a") - 4, at(b"\x0a\x01b") - 4);
    assert_eq!((list[first], list[second]), (0x12, 0x12), "items");
    let damaged = |places: &[(usize, u8)]| {
        let mut damaged = list.clone();
        for &(at, byte) in places {
            damaged[at] = byte;
        }
        list_text(Format::Protobuf, &damaged)
    };
    // The second item becomes another field; metadata once more; a part of the first; or loses its metadata.
    let both = u8::try_from(usize::from(list[first + 1]) + 2 + usize::from(list[second + 1])).unwrap();
    expect![[r#"
        a @ uid=a rv=
        error: a list with a field 3 (after 84 bytes)

        a @ uid=a rv=
        error: a list with its metadata twice (after 84 bytes)

        error: an object with a field 2 in a list of metadata (after 84 bytes)

        a @ uid=a rv=
        error: an object with a field 3 in a list of metadata (after 86 bytes)
    "#]]
    .assert_eq(
        &[
            damaged(&[(second, 0x1a)]),
            damaged(&[(second, 0x0a)]),
            damaged(&[(first + 1, both)]),
            damaged(&[(second + 2, 0x1a)]),
        ]
        .join("\n"),
    );
}

#[test]
fn s3_d16_an_object_that_has_lost_its_metadata_or_its_uid_is_refused() {
    let json = r#"{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"uid":"a"}},{"metadatA":{"uid":"b"}}]}"#;
    check_list(
        Format::Json,
        json,
        &expect![[r#"
             @ uid=a rv=
            error: JSON: an object without metadata (after 111 bytes)
        "#]],
    );
    let some = r#"{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"uid":"a"}},{"metadata":{"uiD":"b"}}]}"#;
    check_list(
        Format::Json,
        some,
        &expect![[r#"
             @ uid=a rv=
             @ uid= rv=
            error: an object without a UID among others that have one (after 113 bytes)
        "#]],
    );
    let event = |uid: &str| json!({"type": "ADDED", "object": {"kind": "Pod", "metadata": {uid: "a"}}});
    let events = [event("uid"), event("uiD"), event("uid")];
    check_watch(
        Format::Json,
        json_watch(&events),
        &expect![[r#"
            added  @ uid=a rv=
            error: an object without a UID among others that have one (after 127 bytes)
        "#]],
    );
    let none = json!({"type": "ADDED", "object": {"kind": "Pod", "metadatA": {"uid": "a"}}});
    check_watch(
        Format::Json,
        json_watch(&[none]),
        &expect![[r#"
            error: an object without metadata (after 63 bytes)
        "#]],
    );
    // An aggregated server that gives no UIDs at all means it.
    check_list(
        Format::Json,
        some.replace("uid", "uiD"),
        &expect![[r#"
             @ uid= rv=
             @ uid= rv=
            end rv=9 continue=
        "#]],
    );
}

#[test]
fn s5_bookmarks_and_errors_come_out_of_both_formats_alike() {
    let expired = Status {
        code: 410,
        reason: "Expired".into(),
        message: "too old resource version: 1 (5)".into(),
        retry_after: Some(Duration::from_secs(2)),
        ..Status::default()
    };
    let meta = |resource_version, annotations| {
        let meta = EncodeMeta { resource_version, annotations, ..EncodeMeta::default() };
        encode::partial_object_metadata(&meta)
    };
    // The second has another annotation of exactly the same size.
    let frames = [
        encode::watch_frame("BOOKMARK", &meta("5", &[("k8s.io/initial-events-end", "true")])),
        encode::watch_frame("BOOKMARK", &meta("6", &[("k8s.io/initial-events-ENd", "true")])),
        encode::watch_frame("BOOKMARK", &meta("7", &[])),
        encode::watch_frame("ERROR", &encode::status(&expired)),
    ];
    let expected = expect![[r#"
        bookmark 5 initial_events_end=true
        bookmark 6 initial_events_end=false
        bookmark 7 initial_events_end=false
        error event: the server answered 410 Expired: too old resource version: 1 (5) retry_after=Some(2s)
        end
    "#]];
    check_watch(Format::Protobuf, frames.concat(), &expected);
    let bookmark = |version: &str, annotations: Value| {
        json!({"type": "BOOKMARK", "object": {"kind": "Pod", "metadata":
        {"resourceVersion": version, "creationTimestamp": null, "annotations": annotations}}})
    };
    let events = [
        bookmark("5", json!({"k8s.io/initial-events-end": "true"})),
        bookmark("6", json!({"k8s.io/initial-events-ENd": "true"})),
        bookmark("7", Value::Null),
        json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired",
            "message": "too old resource version: 1 (5)", "details": {"retryAfterSeconds": 2}}}),
    ];
    check_watch(Format::Json, json_watch(&events), &expected);
}

#[test]
fn a_watch_that_is_cut_is_an_error_and_one_that_ends_between_events_is_not() {
    let object = encode::partial_object_metadata(&EncodeMeta { name: "a", ..EncodeMeta::default() });
    let frame = encode::watch_frame("ADDED", &object);
    for length in 1..frame.len() {
        let text = watch_text(Format::Protobuf, &frame[..length]);
        assert!(text.starts_with("error: "), "cut after {length} bytes: {text}");
    }
    let event = json_watch(&[json!({"type": "ADDED", "object": {"metadata": {"name": "a"}}})]);
    for length in 1..event.len() - 1 {
        let text = watch_text(Format::Json, &event[..length]);
        assert!(text.starts_with("error: "), "cut after {length} bytes: {text}");
    }
    assert_eq!(watch_text(Format::Protobuf, &frame), watch_text(Format::Json, &event));
}

#[test]
fn what_kubernetes_does_not_define_is_an_error() {
    let check = |event: Value, expected: Expect| check_watch(Format::Json, json_watch(&[event]), &expected);
    check(
        json!({"type": "VANISHED", "object": {}}),
        expect![[r#"
            error: unknown event type "VANISHED" (after 31 bytes)
        "#]],
    );
    check(
        json!({"type": "ADDED"}),
        expect![[r#"
        error: a watch event without an object (after 16 bytes)
    "#]],
    );
    check(
        json!({"type": "DELETED", "object": {"kind": "Status", "apiVersion": "v1"}}),
        expect![[r#"
            error: a Status in an event that is no ERROR (after 63 bytes)
        "#]],
    );
    check(
        json!({"type": "ADDED", "object": {"metadata": {"finalizers": "x"}}}),
        expect![[r#"
            error: JSON: expected a list of finalizers, found a string (after 36 bytes)
        "#]],
    );
}

/// The same bytes for ever.
struct Endless<'b> {
    head: &'b [u8],
    then: u8,
}

impl Read for Endless<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.head.is_empty() {
            into.fill(self.then);
            return Ok(into.len());
        }
        let count = into.len().min(self.head.len());
        into[..count].copy_from_slice(&self.head[..count]);
        self.head = &self.head[count..];
        Ok(count)
    }
}

#[test]
fn an_endless_line_ends_with_an_error() {
    let check = |format, head: &[u8], then, expected: Expect| {
        let error = WatchReader::new(format, Endless { head, then }).next(|_| ()).unwrap_err();
        expected.assert_eq(&error.to_string());
    };
    check(
        Format::Json,
        br#"{"type":"ADDED","object":{"metadata":{"name":""#,
        b'x',
        expect!["JSON: an object with more metadata than any server stores (after 45 bytes)"],
    );
    check(
        Format::Json,
        br#"{"type":"ADDED","object":{"spec":""#,
        b'x',
        expect!["an object of more bytes than any server sends (after 67108864 bytes)"],
    );
    check(
        Format::Json,
        br#"{"type":"ADDED","object":{""#,
        b'x',
        expect!["an object of more bytes than any server sends (after 67108864 bytes)"],
    );
    check(
        Format::Json,
        br#"{"type":"ADDED","object":{"#,
        b'[',
        expect!["JSON: a key that is no string (after 26 bytes)"],
    );
    check(
        Format::Json,
        br#"{"type":"ADDED","object":{"spec":"#,
        b'[',
        expect!["JSON: a value that is nested deeper than Kubernetes decodes (after 10033 bytes)"],
    );
    check(
        Format::Protobuf,
        b"\x7f\xff\xff\xff\x0a\xff\xff\xff\x0f",
        b'x',
        expect!["an object with more metadata than any server stores (after 9 bytes)"],
    );
}

#[test]
fn an_object_with_a_million_empty_finalizers_is_refused() {
    let finalizers = vec![""; 1_000_000];
    let object =
        encode::partial_object_metadata(&EncodeMeta { finalizers: &finalizers, ..EncodeMeta::default() });
    let error = read_object(Format::Protobuf, &object[..]).unwrap_err().to_string();
    assert!(error.starts_with("an object with more metadata than any server stores"), "{error}");
    let object = json!({"metadata": {"finalizers": finalizers}}).to_string();
    let error = read_object(Format::Json, object.as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("JSON: an object with more metadata than any server stores"), "{error}");
}

#[test]
fn content_that_is_not_wanted_costs_no_memory() {
    let huge = "x".repeat(3 * KEPT_LIMIT);
    let annotations = [("note", huge.as_str())];
    let meta = EncodeMeta { name: "a", annotations: &annotations, ..EncodeMeta::default() };
    // A full object of some kind, with a huge field 2.
    let mut rest = vec![0x12];
    let mut length = huge.len();
    while length >= 0x80 {
        rest.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    rest.push(length as u8);
    rest.extend_from_slice(huge.as_bytes());
    let object = encode::full_object(&EncodeMeta { kind: "ConfigMap", ..meta }, &rest);
    assert_eq!(read_object(Format::Protobuf, &object[..]).unwrap().name, "a");
    let object = json!({"metadata": {"name": "a", "annotations": {"note": huge}}}).to_string();
    assert_eq!(read_object(Format::Json, object.as_bytes()).unwrap().name, "a");
}

#[test]
fn a_sink_that_breaks_off_stops_the_reading() {
    let items = [EncodeMeta { name: "a", ..EncodeMeta::default() }; 3];
    let protobuf = encode::partial_object_metadata_list(&items, "1", "", None);
    let json = json!({"items": [{"metadata": {}}, {"metadata": {}}], "metadata": {"resourceVersion": "1"}});
    for (format, body) in [(Format::Protobuf, protobuf), (Format::Json, json.to_string().into_bytes())] {
        let mut calls = 0;
        let result = read_list(format, &body[..], &mut |_| {
            calls += 1;
            ControlFlow::Break(())
        });
        assert!(matches!(result, Err(WireError::Stopped)), "{result:?}");
        assert_eq!(calls, 1);
    }
}

#[test]
fn the_format_follows_the_content_type() {
    let format = Format::from_content_type;
    assert_eq!(format("application/vnd.kubernetes.protobuf;stream=watch"), Some(Format::Protobuf));
    assert_eq!(format("application/JSON; charset=utf-8"), Some(Format::Json));
    assert_eq!(format("text/html"), None);
    assert_eq!(format(""), None);
}

fn object() -> impl Strategy<Value = ObjectMeta> {
    let odd = Just("\0\"\\\n".to_string());
    arbitrary::object(&prop_oneof![3 => "[a-z]{0,12}", 1 => "\\PC{0,6}", 1 => odd].boxed())
}

/// Calls with the object as the encoder takes it, with some content around it that is to be passed over.
fn with_encodable<T>(object: &ObjectMeta, call: impl FnOnce(&EncodeMeta<'_>) -> T) -> T {
    let finalizers: Vec<&str> = object.finalizers.iter().map(String::as_str).collect();
    let owner_references: Vec<OwnerReferenceRef<'_>> =
        object.owner_references.iter().map(arbitrary::lend).collect();
    let managed_fields =
        [EncodeManagedFields { manager: "m", fields_v1: b"{}", ..EncodeManagedFields::default() }];
    call(&EncodeMeta {
        name: &object.name,
        namespace: &object.namespace,
        uid: &object.uid,
        resource_version: &object.resource_version,
        generation: -1,
        creation_unix_s: 1,
        deletion_unix_s: object.being_deleted.then_some(2),
        deletion_grace_period_s: Some(0),
        labels: &[("a", "b")],
        annotations: &[("c", "d")],
        owner_references: &owner_references,
        finalizers: &finalizers,
        managed_fields: &managed_fields,
        ..EncodeMeta::default()
    })
}

fn json_object(object: &ObjectMeta) -> Value {
    let owners: Vec<Value> = object
        .owner_references
        .iter()
        .map(|owner| {
            json!({"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid,
                "controller": owner.controller, "blockOwnerDeletion": owner.block_owner_deletion})
        })
        .collect();
    json!({"kind": "PartialObjectMetadata", "metadata": {"name": object.name, "namespace": object.namespace,
        "uid": object.uid, "resourceVersion": object.resource_version, "ownerReferences": owners,
        "deletionTimestamp": object.being_deleted.then_some("2020-01-01T00:00:00Z"),
        "finalizers": object.finalizers, "labels": {"a": "b"}}})
}

fn list_objects(format: Format, body: &[u8]) -> Result<(Vec<ObjectMeta>, ListEnd), WireError> {
    let mut objects = Vec::new();
    let end = read_list(format, body, &mut |meta| {
        objects.push(meta.to_owned());
        ControlFlow::Continue(())
    })?;
    Ok((objects, end))
}

proptest! {
    #[test]
    fn both_formats_give_back_what_was_written(objects in prop::collection::vec(object(), 0..4)) {
        for object in &objects {
            let body = with_encodable(object, encode::partial_object_metadata);
            prop_assert_eq!(&read_object(Format::Protobuf, Trickle(&body)).unwrap(), object);
            let body = json_object(object).to_string();
            prop_assert_eq!(&read_object(Format::Json, Trickle(body.as_bytes())).unwrap(), object);
        }
        let items: Vec<Value> = objects.iter().map(json_object).collect();
        let body = json!({"metadata": {"resourceVersion": "9", "continue": "t"}, "items": items}).to_string();
        let expected = ListEnd { resource_version: "9".into(), continue_token: "t".into() };
        prop_assert_eq!(list_objects(Format::Json, body.as_bytes()).unwrap(), (objects.clone(), expected));
    }

    #[test]
    fn a_list_that_is_cut_anywhere_is_an_error(object in object(), at in any::<prop::sample::Index>()) {
        let body = with_encodable(&object, |meta| encode::partial_object_metadata_list(&[*meta], "9", "", None));
        // The last four bytes are two empty fields of the envelope, behind the list.
        let cut = &body[..at.index(body.len() - 4)];
        prop_assert!(list_objects(Format::Protobuf, cut).is_err());
        let body = json!({"metadata": {"resourceVersion": "9"}, "items": [json_object(&object)]}).to_string();
        prop_assert!(list_objects(Format::Json, &body.as_bytes()[..at.index(body.len())]).is_err());
    }

    #[test]
    fn any_bytes_give_an_end_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), magic in any::<bool>()) {
        let bytes = if magic { [&b"k8s\0\x0a\x00\x12"[..], &bytes].concat() } else { bytes };
        for format in [Format::Json, Format::Protobuf] {
            let text = list_text(format, &bytes);
            prop_assert!(text.contains("end rv=") || text.contains("error: "));
            let text = watch_text(format, &bytes);
            prop_assert!(text.ends_with("end\n") || text.contains("error: "), "{}", text);
        }
    }

    #[test]
    fn a_changed_byte_gives_an_end_or_an_error(
        object in object(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let object_body = with_encodable(&object, encode::partial_object_metadata);
        let mut frame = encode::watch_frame("ADDED", &object_body);
        let at_frame = at.index(frame.len());
        frame[at_frame] = byte;
        let text = watch_text(Format::Protobuf, &frame);
        prop_assert!(text.ends_with("end\n") || text.contains("error: "), "{}", text);
        let mut list = with_encodable(&object, |meta| encode::partial_object_metadata_list(&[*meta], "9", "", None));
        let at_list = at.index(list.len());
        list[at_list] = byte;
        let text = list_text(Format::Protobuf, &list);
        prop_assert!(text.contains("end rv=") || text.contains("error: "));
    }
}
