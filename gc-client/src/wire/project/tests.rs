//! Fields are read from the stream: what is wanted comes whole or not at all, and nothing else costs anything.

use std::fmt::Write as _;
use std::io::{self, Read};
use std::ops::ControlFlow;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::arbitrary;
use crate::fields::{FIELD_BYTES_MAX, FIELD_DEPTH_MAX, Field, Fields};
use crate::wire::{
    Format, WatchReader, WireError, WireEvent, read_list, read_list_fields, read_object, read_object_fields,
};

fn fields(paths: &[&str]) -> Fields {
    Fields::new(paths.iter().map(|path| path.split('.'))).unwrap()
}

fn one(path: &str, body: &str) -> Field {
    read_object_fields(Format::Json, body.as_bytes(), &fields(&[path])).unwrap().1.remove(0)
}

/// One line for each path.
fn lines(fields: &Fields, values: &[Field]) -> String {
    let mut text = String::new();
    for (path, value) in fields.paths().iter().zip(values) {
        let value = match value {
            Field::Value(value) => value.to_string(),
            other => format!("{other:?}"),
        };
        writeln!(text, "{} = {value}", path.join(".")).unwrap();
    }
    text
}

fn check(paths: &[&str], body: &str, expected: &Expect) {
    let fields = fields(paths);
    match read_object_fields(Format::Json, body.as_bytes(), &fields) {
        Ok((meta, values)) => {
            expected.assert_eq(&format!("{} uid={}\n{}", meta.name, meta.uid, lines(&fields, &values)));
        }
        Err(error) => expected.assert_eq(&format!("{error}\n")),
    }
}

const JOB: &str = r#"{"kind":"Job","apiVersion":"batch/v1",
    "metadata":{"name":"backup","namespace":"ns","uid":"u","resourceVersion":"7","creationTimestamp":"2026-01-01T00:00:00Z",
        "labels":{"app":"x"},"annotations":{"example.com/protect":"true","note":"n"},"finalizers":["f"]},
    "spec":{"template":{"spec":{"containers":[{"status":{"conditions":["not these"]}}]}},"ttlSecondsAfterFinished":60},
    "status":{"conditions":[{"type":"Complete","status":"True","lastTransitionTime":"2026-01-01T00:01:00Z"}],"succeeded":1}}"#;

#[test]
fn t1_the_fields_of_a_job() {
    check(
        &[
            "status.conditions",
            "spec.ttlSecondsAfterFinished",
            "metadata.annotations.example_com",
            "metadata.creationTimestamp",
            "metadata.labels",
            "spec.suspend",
        ],
        JOB,
        &expect![[r#"
            backup uid=u
            status.conditions = [{"lastTransitionTime":"2026-01-01T00:01:00Z","status":"True","type":"Complete"}]
            spec.ttlSecondsAfterFinished = 60
            metadata.annotations.example_com = Absent
            metadata.creationTimestamp = "2026-01-01T00:00:00Z"
            metadata.labels = {"app":"x"}
            spec.suspend = Absent
        "#]],
    );
    let protect = Fields::new([["metadata", "annotations", "example.com/protect"]]).unwrap();
    let (meta, values) = read_object_fields(Format::Json, JOB.as_bytes(), &protect).unwrap();
    assert_eq!(values, [Field::Value("true".into())]);
    assert_eq!(meta.finalizers, ["f"]);
}

#[test]
fn a_path_that_meets_no_object_on_its_way_is_absent() {
    for there in ["[{\"b\":1}]", "\"b\"", "1", "-1", "1.5", "true", "null", "{}", "{\"c\":1}", "{\"b\":null}"]
    {
        let body = format!(r#"{{"metadata":{{}},"a":{there}}}"#);
        assert_eq!(one("a.b", &body), Field::Absent, "{there}");
        assert_eq!(one("a.b.c", &body), Field::Absent, "{there}");
    }
    assert_eq!(one("a.b", r#"{"metadata":{}}"#), Field::Absent);
}

#[test]
fn a_path_may_lead_on_from_the_end_of_another() {
    let paths =
        ["status.state", "status.state.phase", "status.state.phase.x", "status.state.phase", "status"];
    check(
        &paths,
        r#"{"metadata":{"name":"a"},"status":{"state":{"phase":"Completed","none":null},"n":1}}"#,
        &expect![[r#"
            a uid=
            status.state = {"none":null,"phase":"Completed"}
            status.state.phase = "Completed"
            status.state.phase.x = Absent
            status.state.phase = "Completed"
            status = {"n":1,"state":{"none":null,"phase":"Completed"}}
        "#]],
    );
    let huge =
        json!({"metadata": {}, "status": {"state": {"phase": "x".repeat(FIELD_BYTES_MAX)}}}).to_string();
    let (_, values) = read_object_fields(Format::Json, huge.as_bytes(), &fields(&paths)).unwrap();
    assert_eq!(values, vec![Field::TooLarge; paths.len()]);
}

#[test]
fn of_a_key_that_comes_twice_the_last_value_counts() {
    assert_eq!(one("a.b", r#"{"metadata":{},"a":{"b":1,"b":2}}"#), Field::Value(2.into()));
    assert_eq!(one("a.b", r#"{"metadata":{},"a":{"b":1,"b":null}}"#), Field::Absent);
    assert_eq!(one("a.b", r#"{"metadata":{},"a":{"b":1},"a":{"c":2}}"#), Field::Absent);
    assert_eq!(one("a.b", r#"{"metadata":{},"a":{"b":1},"a":[]}"#), Field::Absent);
    let twice = format!(r#"{{"metadata":{{}},"a":{{"b":"{}","b":2}}}}"#, "x".repeat(FIELD_BYTES_MAX));
    assert_eq!(one("a.b", &twice), Field::Value(2.into()));
}

#[test]
fn keys_are_compared_as_they_are_meant() {
    assert_eq!(one("a.b", r#"{"metadata":{},"\u0061":{"\u0062":1}}"#), Field::Value(1.into()));
    assert_eq!(one("a.b", r#"{"metadata":{},"a":{"B":1,"b\u0000":2,"b ":3,"\\u0062":4}}"#), Field::Absent);
    assert_eq!(one("é.\"", r#"{"metadata":{},"\u00e9":{"\"":"\ud83d\ude00"}}"#), Field::Value("😀".into()));
}

#[test]
fn a_field_over_its_bounds_shows_as_such_and_harms_no_other() {
    let too_large = [
        json!("x".repeat(FIELD_BYTES_MAX)),
        json!({"x".repeat(FIELD_BYTES_MAX): 1}),
        json!(vec![0; 2_000]),
        json!(vec![json!({}); 200]),
        json!(vec!["x".repeat(1_000); 100]),
    ];
    for value in too_large {
        let body = json!({"metadata": {"name": "a"}, "a": {"a": 1, "b": value, "c": 3}}).to_string();
        let fields = fields(&["a.a", "a.b", "a.c"]);
        let (meta, values) = read_object_fields(Format::Json, body.as_bytes(), &fields).unwrap();
        assert_eq!(values, [Field::Value(1.into()), Field::TooLarge, Field::Value(3.into())]);
        assert_eq!(meta.name, "a");
    }
    let nested = |depth: usize| {
        format!(r#"{{"metadata":{{}},"a":{{"b":{}1{}}}}}"#, "[".repeat(depth), "]".repeat(depth))
    };
    assert!(matches!(one("a.b", &nested(FIELD_DEPTH_MAX)), Field::Value(_)));
    assert_eq!(one("a.b", &nested(FIELD_DEPTH_MAX + 1)), Field::TooLarge);
    assert_eq!(one("a.b", &nested(9_000)), Field::TooLarge);
    // Go writes these with six bytes each.
    let angles = format!("{{\"metadata\":{{}},\"a\":{{\"b\":\"{}\"}}}}", "\\u003c".repeat(60_000));
    assert_eq!(one("a.b", &angles), Field::Value("<".repeat(60_000).into()));
    // The twenty conditions of a Job that somebody has made the most of.
    let condition = json!({"type": "t".repeat(300), "status": "True", "reason": "r".repeat(200),
        "message": "m".repeat(1_000), "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let body = json!({"metadata": {}, "status": {"conditions": vec![condition; 20]}}).to_string();
    assert!(matches!(one("status.conditions", &body), Field::Value(_)));
}

/// Gives a body that is written as it is read, and notes how much was.
struct Template {
    head: &'static [u8],
    middle: usize,
    tail: &'static [u8],
}

impl Read for Template {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if !self.head.is_empty() {
            return self.head.read(into);
        }
        let count = self.middle.min(into.len());
        into[..count].fill(b'x');
        self.middle -= count;
        if count == 0 { self.tail.read(into) } else { Ok(count) }
    }
}

fn with_template(bytes: usize) -> Template {
    Template {
        head: br#"{"metadata":{"name":"a"},"spec":{"template":""#,
        middle: bytes,
        tail: br#"","ttlSecondsAfterFinished":5},"status":{}}"#,
    }
}

#[test]
fn a_pod_template_is_passed_over_and_one_that_no_server_stores_is_refused() {
    let ttl = fields(&["spec.ttlSecondsAfterFinished"]);
    let (_, values) = read_object_fields(Format::Json, with_template(60 << 20), &ttl).unwrap();
    assert_eq!(values, [Field::Value(5.into())]);
    let error = read_object_fields(Format::Json, with_template(300 << 20), &ttl).unwrap_err().to_string();
    assert!(error.starts_with("an object of more bytes than any server sends (after 67108"), "{error}");
}

#[test]
fn s3_a_list_of_full_objects_is_as_strict_as_any_list() {
    let list = |body: &str| {
        let mut text = String::new();
        let fields = fields(&["status.phase"]);
        let end = read_list_fields(Format::Json, body.as_bytes(), &fields, &mut |meta| {
            write!(text, "{} {}", meta.name, lines(&fields, meta.fields)).unwrap();
            ControlFlow::Continue(())
        });
        match end {
            Ok(end) => writeln!(text, "end rv={}", end.resource_version).unwrap(),
            Err(error) => writeln!(text, "error: {error}").unwrap(),
        }
        text
    };
    let said = [
        // What one object has the next does not inherit.
        r#"{"kind":"JobList","metadata":{"resourceVersion":"9"},"items":[
            {"metadata":{"name":"a","uid":"u"},"status":{"phase":"Completed"}},{"status":{},"metadata":{"name":"b","uid":"v"}},
            {"metadata":{"name":"c","uid":"w"}}]}"#,
        r#"{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a","uid":"u"}},{"metadata":{"name":"b"}}]}"#,
        r#"{"metadata":{"resourceVersion":"9"},"items":[{"status":{"phase":"Completed"}}]}"#,
        r#"{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a","uid":"u"},"status":{"phase":"Comp"#,
        r#"{"metadata":{"resourceVersion":"9"}}"#,
        r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"},"items":[]}"#,
        r#"{"kind":"Status","apiVersion":"v1","code":404,"reason":"NotFound","message":"gone"}"#,
    ]
    .map(list)
    .concat();
    expect![[r#"
        a status.phase = "Completed"
        b status.phase = Absent
        c status.phase = Absent
        end rv=9
        a status.phase = Absent
        b status.phase = Absent
        error: an object without a UID among others that have one (after 108 bytes)
        error: JSON: an object without metadata (after 77 bytes)
        error: the body ends in the middle of something (after 103 bytes)
        error: a list without items (after 36 bytes)
        error: metadata only, where fields of the objects were asked for (after 112 bytes)
        error: the server answered 404 NotFound: gone
    "#]]
    .assert_eq(&said);
}

#[test]
fn s5_a_watch_gives_the_fields_of_each_event_and_of_no_other() {
    let body = concat!(
        r#"{"type":"ADDED","object":{"metadata":{"name":"a","uid":"u"},"status":{"phase":"Running"}}}"#,
        r#"{"object":{"status":{"phase":"Completed"},"metadata":{"uid":"u","name":"a"}},"type":"MODIFIED"}"#,
        r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","uid":"u"}}}"#,
        r#"{"type":"DELETED","object":{"metadata":{"name":"a","uid":"u"},"status":{"phase":"Failed"}}}"#,
        r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}},"status":{"phase":"x"}}}"#,
        r#"{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"b","uid":"v"}}}"#,
    );
    let fields = fields(&["status.phase"]);
    let mut watch = WatchReader::with_fields(Format::Json, body.as_bytes(), &fields);
    let mut said = String::new();
    loop {
        let event = watch.next(|event| match event {
            WireEvent::Added(meta) | WireEvent::Modified(meta) | WireEvent::Deleted(meta) => {
                format!("{} {}", meta.name, lines(&fields, meta.fields))
            }
            other => format!("{other:?}\n"),
        });
        match event {
            Ok(Some(event)) => said += &event,
            Ok(None) => break,
            Err(error) => {
                writeln!(said, "error: {error}").unwrap();
                break;
            }
        }
    }
    expect![[r#"
        a status.phase = "Running"
        a status.phase = "Completed"
        a status.phase = Absent
        a status.phase = "Failed"
        Bookmark { resource_version: "9", initial_events_end: true }
        error: metadata only, where fields of the objects were asked for (after 601 bytes)
    "#]]
    .assert_eq(&said);
}

#[test]
fn protobuf_has_no_names_of_fields() {
    let fields = fields(&["status.phase"]);
    let refused = "protobuf, where fields of the objects were asked for in JSON (after 0 bytes)";
    let body = b"k8s\0\x0a\x00\x12\x00\x1a\x00\x22\x00";
    let error = read_object_fields(Format::Protobuf, &body[..], &fields).unwrap_err();
    assert_eq!(error.to_string(), refused);
    let list =
        read_list_fields(Format::Protobuf, &body[..], &fields, &mut |_| panic!("an object")).unwrap_err();
    assert_eq!(list.to_string(), refused);
    let event = WatchReader::with_fields(Format::Protobuf, &body[..], &fields).next(|_| ()).unwrap_err();
    assert_eq!(event.to_string(), refused);
}

#[test]
fn r7_paths_that_cannot_be_asked_for() {
    let refused = |path: &str| {
        let path: Vec<&str> = if path.is_empty() { Vec::new() } else { path.split('.').collect() };
        format!("{}\n", Fields::new([path]).unwrap_err())
    };
    let long = vec!["a"; 17].join(".");
    let said =
        ["", "a..b", &long, "metadata", "metadata.name", "metadata.ownerReferences.0", "kind", "items.0"]
            .map(refused)
            .concat()
            + &Fields::new(vec![["a"]; 17]).unwrap_err().to_string()
            + "\n"
            + &Fields::new(Vec::<[&str; 1]>::new()).unwrap_err().to_string();
    expect![[r#"
        the path [] must have 1 to 16 keys, none of them empty
        the path ["a", "", "b"] must have 1 to 16 keys, none of them empty
        the path ["a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a"] must have 1 to 16 keys, none of them empty
        metadata is read with every object and is no field of its own
        metadata.name is read with every object and is no field of its own
        metadata.ownerReferences.0 is read with every object and is no field of its own
        kind is read with every object and is no field of its own
        items.0 is read with every object and is no field of its own
        17 fields are asked for; it has to be 1 to 16
        0 fields are asked for; it has to be 1 to 16"#]]
    .assert_eq(&said);
}

proptest! {
    #[test]
    fn a_field_is_what_a_lookup_in_the_whole_document_finds(
        top in prop::collection::btree_map("[abc]", arbitrary::json("[abc]"), 0..4),
        paths in prop::collection::vec(prop::collection::vec("[abc]", 1..5), 1..6),
    ) {
        let mut document = Value::Object(top.into_iter().collect());
        document["metadata"] = json!({"name": "n", "labels": {"a": 1}});
        let fields = Fields::new(paths.clone()).unwrap();
        let body = document.to_string();
        let (meta, values) = read_object_fields(Format::Json, body.as_bytes(), &fields).unwrap();
        prop_assert_eq!(&meta, &read_object(Format::Json, body.as_bytes()).unwrap());
        for (path, found) in paths.iter().zip(values) {
            let expected = path.iter().try_fold(&document, |value, key| value.as_object()?.get(key));
            let expected = expected.filter(|value| !value.is_null());
            prop_assert_eq!(found.value(), expected, "{:?}", path);
        }
    }

    #[test]
    fn any_bytes_give_the_same_metadata_with_fields_as_without(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let fields = fields(&["a.b", "metadata.labels.a", "status"]);
        let plain = read_list(Format::Json, &bytes[..], &mut |_| ControlFlow::Continue(()));
        let with = read_list_fields(Format::Json, &bytes[..], &fields, &mut |_| ControlFlow::Continue(()));
        prop_assert_eq!(plain.is_ok(), with.is_ok());
        prop_assert!(!matches!(with, Err(WireError::Stopped)));
    }
}
