//! Lists, watches and objects, in JSON and in protobuf.

use std::io::{self, Read};
use std::ops::ControlFlow;
use std::time::Duration;

use gc_client::encode::{self, EncodeMeta};
use gc_client::wire::{self, Format, ListEnd, WatchReader, WireError, WireEvent};
use gc_client::{ObjectMeta, OwnerReference, OwnerReferenceRef, Status};
use serde_json::{Value, json};

use super::{Dice, Memory, Target, ensure, outline};
use crate::conversation::{self, RECORDED};

/// What the decoders hold beside the objects that the check itself keeps: buffers, and one object.
const MEMORY: Memory = Memory { fixed_bytes: 256 << 10, per_input_byte: 600 };

pub(super) const WORDS: &[&[u8]] = &[
    b"\"metadata\":{",
    b"\"items\":[",
    b"\"items\":null,",
    b"\"kind\":\"Status\",\"apiVersion\":\"v1\",",
    b"\"resourceVersion\":\"7\",",
    b"\"kind\":\"PodList\",",
    b"\"continue\":\"t\",",
    b"\"uid\":\"u\",",
    b"\"name\":\"a\",",
    b"\"ownerReferences\":[{\"uid\":\"o\"}],",
    b"\"finalizers\":[\"f\"],",
    b"\"deletionTimestamp\":\"\",",
    b"\"annotations\":{\"k8s.io/initial-events-end\":\"true\"},",
    b"{\"type\":\"ADDED\",\"object\":",
    b"{\"type\":\"BOOKMARK\",\"object\":",
    b"\"details\":{\"name\":\"a\",\"retryAfterSeconds\":1},",
    b"null",
    b"true",
    b"\\u0000",
    b"\\ud800",
    b"\\\"",
    b"}",
    b"]}",
    b",",
    b"\n",
    b"k8s\0",
    b"k8s\0\x0a\x04\x0a\x00\x12\x00\x12",
    b"\x0a\x00",
    b"\x12\x00",
    b"\x1a\x00",
    b"\x22\x00",
    b"\x6a\x02\x22\x00",
    b"\x72\x00",
    b"\x0b",
    b"\x0d\0\0\0\0",
    b"\x09\0\0\0\0\0\0\0\0",
];

/// The first byte says which format the rest is read as.
pub(super) fn split(input: &[u8]) -> (Format, &[u8]) {
    match input.split_first() {
        Some((first, body)) if first & 1 == 1 => (Format::Protobuf, body),
        Some((_, body)) => (Format::Json, body),
        None => (Format::Json, input),
    }
}

fn joined(format: Format, body: &[u8]) -> Vec<u8> {
    let first = if format == Format::Protobuf { b"1" } else { b"0" };
    [first, body].concat()
}

/// Gives the bytes in pieces: as large as it is told, or one byte after the first piece.
pub(super) struct Pieces<'b> {
    bytes: &'b [u8],
    first: usize,
    then: usize,
}

impl<'b> Pieces<'b> {
    fn of(bytes: &'b [u8], size: usize) -> Pieces<'b> {
        Pieces { bytes, first: size, then: size }
    }

    /// Two pieces, with the boundary there.
    fn cut_at(bytes: &'b [u8], at: usize) -> Pieces<'b> {
        Pieces { bytes, first: at, then: usize::MAX }
    }
}

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let size = std::mem::replace(&mut self.first, self.then).max(1);
        let (now, later) = self.bytes.split_at(size.min(into.len()).min(self.bytes.len()));
        if let Some(room) = into.get_mut(..now.len()) {
            room.copy_from_slice(now);
        }
        self.bytes = later;
        Ok(now.len())
    }
}

/// Ways to cut the same bytes; the places follow from the bytes, so that each input tries others.
pub(super) fn ways(bytes: &[u8]) -> Vec<Pieces<'_>> {
    let mut ways = vec![Pieces::of(bytes, 1), Pieces::of(bytes, 7)];
    ways.extend(places(bytes).into_iter().take(6).map(|at| Pieces::cut_at(bytes, at)));
    ways
}

/// Some places in the bytes, the last few among them.
pub(super) fn places(bytes: &[u8]) -> Vec<usize> {
    let sum = bytes.iter().fold(bytes.len(), |sum, b| sum.wrapping_mul(31).wrapping_add(usize::from(*b)));
    let spread = (0..12).map(|n: usize| sum.wrapping_mul(2 * n + 1) >> 7);
    let mut places: Vec<usize> = spread.filter_map(|at| at.checked_rem(bytes.len())).collect();
    places.extend((1..=10).filter_map(|back| bytes.len().checked_sub(back)));
    places
}

/// All that a list gave: the objects that its sink saw, and its end.
pub(super) type Listed = (Vec<ObjectMeta>, Result<ListEnd, String>);

pub(super) fn list(format: Format, reader: impl Read) -> Listed {
    let mut objects = Vec::new();
    let end = wire::read_list(format, reader, &mut |meta| {
        objects.push(meta.to_owned());
        ControlFlow::Continue(())
    });
    (objects, end.map_err(|error| error.to_string()))
}

/// A list or a page of one.
pub(super) const LIST: Target = Target {
    name: "list",
    promise: "a list is read the same however its bytes arrive, and one that is cut or goes on is no other list",
    corpus: list_corpus,
    words: WORDS,
    memory: MEMORY,
    check: check_list,
};

fn check_list(input: &[u8]) -> Result<String, String> {
    let (format, body) = split(input);
    let whole = list(format, body);
    for pieces in ways(body) {
        let in_pieces = list(format, pieces);
        ensure(in_pieces == whole, || format!("in pieces {in_pieces:?}, as a whole {whole:?}"))?;
    }
    let (objects, end) = &whole;
    ensure(objects.len() <= body.len(), || "more objects than bytes".into())?;
    match end {
        Err(error) => Ok(outline(error)),
        Ok(ListEnd { resource_version, continue_token }) => {
            ensure(!resource_version.is_empty(), || "a list without a version".into())?;
            never_another_list(format, body, &whole)?;
            Ok(format!("{format:?} of {}, next page {}", objects.len(), !continue_token.is_empty()))
        }
    }
}

/// A list of which something is missing at the end, or behind which something follows, is an error. What stands
/// behind the list proper (white space, empty fields of the envelope) may be missing.
pub(super) fn never_another_list(format: Format, body: &[u8], whole: &Listed) -> Result<(), String> {
    for at in places(body) {
        let cut = list(format, body.get(..at).unwrap_or_default());
        ensure(cut.1.is_err() || cut == *whole, || {
            format!("cut after {at} bytes: {cut:?} and not {whole:?}")
        })?;
    }
    for garbage in [&b"x"[..], b"{}", b"k8s\0", body, b"\0"] {
        let longer = list(format, &[body, garbage].concat()[..]);
        ensure(longer.1.is_err() || longer == *whole, || {
            format!("with more behind it: {longer:?} and not {whole:?}")
        })?;
    }
    Ok(())
}

fn list_corpus() -> Vec<Vec<u8>> {
    let mut corpus: Vec<Vec<u8>> = recorded(|value| value.get("items").is_some())
        .into_iter()
        .map(|body| joined(Format::Json, body.as_bytes()))
        .collect();
    for seed in 0..6_u8 {
        let made = Made::from(&mut Dice::new(&[seed; 200].map(|b| b.wrapping_mul(37) ^ 0x5b)));
        corpus.push(joined(Format::Protobuf, &made.protobuf_list()));
        corpus.push(joined(Format::Json, made.json_list().to_string().as_bytes()));
    }
    corpus
}

/// The recorded answers for which this holds, one document each.
pub(super) fn recorded(wanted: impl Fn(&Value) -> bool) -> Vec<String> {
    let answers =
        RECORDED.iter().flat_map(|(_, text)| text.lines()).filter_map(|line| line.strip_prefix("< {"));
    answers
        .map(|rest| format!("{{{rest}"))
        .filter(|body| serde_json::from_str::<Value>(body).is_ok_and(|value| wanted(&value)))
        .collect()
}

/// An event, or how the watch ended.
type Watched = (Vec<String>, Result<(), String>);

fn watch(format: Format, reader: impl Read) -> Watched {
    let mut watch = WatchReader::new(format, reader);
    let mut events = Vec::new();
    loop {
        let event = watch.next(|event| match event {
            WireEvent::Added(meta) => format!("added {:?}", meta.to_owned()),
            WireEvent::Modified(meta) => format!("modified {:?}", meta.to_owned()),
            WireEvent::Deleted(meta) => format!("deleted {:?}", meta.to_owned()),
            other @ (WireEvent::Bookmark { .. } | WireEvent::Error(_)) => format!("{other:?}"),
        });
        match event {
            Ok(Some(event)) => events.push(event),
            Ok(None) => return (events, Ok(())),
            Err(error) => return (events, Err(error.to_string())),
        }
    }
}

/// A watch's events.
pub(super) const WATCH: Target = Target {
    name: "watch",
    promise: "events are read the same however their bytes arrive, and a watch that is cut tells a part of them, in order",
    corpus: watch_corpus,
    words: WORDS,
    memory: MEMORY,
    check: check_watch,
};

fn check_watch(input: &[u8]) -> Result<String, String> {
    let (format, body) = split(input);
    let whole = watch(format, body);
    for pieces in ways(body) {
        let in_pieces = watch(format, pieces);
        ensure(in_pieces == whole, || format!("in pieces {in_pieces:?}, as a whole {whole:?}"))?;
    }
    for at in places(body) {
        let cut = watch(format, body.get(..at).unwrap_or_default());
        ensure(whole.0.starts_with(&cut.0), || format!("cut after {at} bytes: {cut:?} and not {whole:?}"))?;
    }
    let (events, end) = &whole;
    if end.is_ok() {
        let twice = watch(format, &[body, body].concat()[..]);
        let both = ([events.as_slice(), events.as_slice()].concat(), Ok(()));
        ensure(twice == both, || format!("twice the same events: {twice:?} and not {both:?}"))?;
    }
    let kinds = events.iter().map(|event| event.split(' ').next().unwrap_or_default()).collect::<Vec<_>>();
    Ok(format!("{kinds:.60?} {}", end.as_ref().err().map(|e| outline(e)).unwrap_or_default()))
}

fn watch_corpus() -> Vec<Vec<u8>> {
    let mut corpus: Vec<Vec<u8>> =
        recorded(|value| value.get("type").is_some() && value.get("object").is_some())
            .into_iter()
            .map(|body| joined(Format::Json, (body + "\n").as_bytes()))
            .collect();
    for seed in 0..6_u8 {
        let made = Made::from(&mut Dice::new(&[seed; 200].map(|b| b.wrapping_mul(53) ^ 0xa7)));
        corpus.push(joined(Format::Protobuf, &made.protobuf_watch()));
        corpus.push(joined(Format::Json, made.json_watch().as_bytes()));
    }
    corpus
}

/// One object, or a Status in its place.
pub(super) const OBJECT: Target = Target {
    name: "object",
    promise: "an object or a Status is read the same however its bytes arrive, and never from a part of them",
    corpus: object_corpus,
    words: WORDS,
    memory: MEMORY,
    check: check_object,
};

fn object(format: Format, reader: impl Read) -> Result<ObjectMeta, String> {
    wire::read_object(format, reader).map_err(|error| match error {
        WireError::Status(status) => format!("{status:?}"),
        other => other.to_string(),
    })
}

fn check_object(input: &[u8]) -> Result<String, String> {
    let (format, body) = split(input);
    let whole = object(format, body);
    for pieces in ways(body) {
        let in_pieces = object(format, pieces);
        ensure(in_pieces == whole, || format!("in pieces {in_pieces:?}, as a whole {whole:?}"))?;
    }
    if whole.is_ok() {
        for at in places(body) {
            let cut = object(format, body.get(..at).unwrap_or_default());
            ensure(cut.is_err() || cut == whole, || {
                format!("cut after {at} bytes: {cut:?} and not {whole:?}")
            })?;
        }
    }
    Ok(whole
        .map_or_else(|error| outline(&error), |meta| format!("{format:?} {}", meta.owner_references.len())))
}

fn object_corpus() -> Vec<Vec<u8>> {
    let mut corpus: Vec<Vec<u8>> = recorded(|value| value.get("metadata").is_some())
        .into_iter()
        .map(|body| joined(Format::Json, body.as_bytes()))
        .collect();
    for seed in 0..6_u8 {
        let made = Made::from(&mut Dice::new(&[seed; 200].map(|b| b.wrapping_mul(91) ^ 0x33)));
        corpus.extend(
            made.objects
                .iter()
                .map(|o| joined(Format::Protobuf, &with_encodable(o, encode::partial_object_metadata))),
        );
        corpus.push(joined(Format::Protobuf, &encode::status(&made.status)));
    }
    corpus
}

/// What is written is read, in both formats.
pub(super) const SAME_IN_BOTH: Target = Target {
    name: "same-in-both",
    promise: "what is written is read again, and is the same in JSON and in protobuf",
    corpus: || {
        (0..8_u8).map(|seed| (0..220_u8).map(|n| n.wrapping_mul(seed) ^ seed << 5).collect()).collect()
    },
    words: &[b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x03\x03\x03"],
    memory: Memory { fixed_bytes: 1 << 20, per_input_byte: 2_000 },
    check: check_same_in_both,
};

fn check_same_in_both(input: &[u8]) -> Result<String, String> {
    let made = Made::from(&mut Dice::new(input));
    let same = |what: &str, written: &dyn std::fmt::Debug, read: &dyn std::fmt::Debug| {
        let (written, read) = (format!("{written:?}"), format!("{read:?}"));
        ensure(written == read, || format!("{what}: written {written}, read {read}"))
    };
    for written in &made.objects {
        let body = with_encodable(written, encode::partial_object_metadata);
        same("an object in protobuf", &Ok::<_, String>(written), &object(Format::Protobuf, &body[..]))?;
        let body = json_object(written).to_string();
        same("an object in JSON", &Ok::<_, String>(written), &object(Format::Json, body.as_bytes()))?;
    }
    let end = ListEnd { resource_version: "9".into(), continue_token: made.status.reason.clone() };
    let written = (&made.objects, Ok::<_, String>(end));
    same("a list in protobuf", &written, &list(Format::Protobuf, &made.protobuf_list()[..]))?;
    same("a list in JSON", &written, &list(Format::Json, made.json_list().to_string().as_bytes()))?;
    same(
        "a watch",
        &watch(Format::Json, made.json_watch().as_bytes()),
        &watch(Format::Protobuf, &made.protobuf_watch()[..]),
    )?;
    let body = made.json_status().to_string();
    same(
        "a Status",
        &object(Format::Json, body.as_bytes()),
        &object(Format::Protobuf, &encode::status(&made.status)[..]),
    )?;
    let answered = Status::from_body(0, None, body.as_bytes());
    same(
        "a Status as an answer",
        &object(Format::Json, body.as_bytes()),
        &Err::<(), _>(format!("{answered:?}")),
    )?;
    Ok(format!("{} objects", made.objects.len()))
}

/// Objects and a Status that are made up.
pub(super) struct Made {
    pub objects: Vec<ObjectMeta>,
    pub status: Status,
}

impl Made {
    pub(super) fn from(dice: &mut Dice<'_>) -> Made {
        let count = dice.below(5);
        let status = Status {
            code: u16::try_from(dice.below(600)).unwrap_or_default(),
            reason: dice.text(),
            message: dice.text(),
            name: dice.text(),
            kind: dice.text(),
            group: dice.text(),
            uid: dice.text(),
            is_status: true,
            retry_after: dice.flag().then(|| Duration::from_secs(1 + u64::from(dice.byte()))),
        };
        let objects = (0..count).map(|_| made_object(dice)).collect();
        Made { objects, status }
    }

    pub(super) fn protobuf_list(&self) -> Vec<u8> {
        let mut owners: Vec<Vec<OwnerReferenceRef<'_>>> = Vec::new();
        let mut finalizers: Vec<Vec<&str>> = Vec::new();
        for object in &self.objects {
            owners.push(borrowed_owners(object));
            finalizers.push(object.finalizers.iter().map(String::as_str).collect());
        }
        let parts = self.objects.iter().zip(&owners).zip(&finalizers);
        let items: Vec<EncodeMeta<'_>> = parts.map(|((o, owners), f)| encodable(o, owners, f)).collect();
        encode::partial_object_metadata_list(&items, "9", &self.status.reason, Some(3))
    }

    pub(super) fn json_list(&self) -> Value {
        let items: Vec<Value> = self.objects.iter().map(json_object).collect();
        json!({"kind": "PartialObjectMetadataList", "items": items,
            "metadata": {"resourceVersion": "9", "continue": self.status.reason}})
    }

    fn protobuf_watch(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (object, kind) in self.objects.iter().zip(["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]) {
            bytes.extend(encode::watch_frame(kind, &with_encodable(object, encode::partial_object_metadata)));
        }
        bytes.extend(encode::watch_frame("ERROR", &encode::status(&self.status)));
        bytes
    }

    fn json_watch(&self) -> String {
        let kinds = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"];
        let events =
            self.objects.iter().zip(kinds).map(|(o, kind)| json!({"type": kind, "object": json_object(o)}));
        let error = json!({"type": "ERROR", "object": self.json_status()});
        events.chain([error]).map(|event| event.to_string() + "\n").collect()
    }

    fn json_status(&self) -> Value {
        let Status { code, reason, message, name, kind, group, uid, retry_after, .. } = &self.status;
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
            "reason": reason, "message": message, "details": {"name": name, "kind": kind, "group": group, "uid": uid,
            "retryAfterSeconds": retry_after.map(|d| d.as_secs())}})
    }
}

fn made_object(dice: &mut Dice<'_>) -> ObjectMeta {
    let maybe = |dice: &mut Dice<'_>| match dice.below(3) {
        0 => None,
        number => Some(number == 1),
    };
    let owners = dice.below(7);
    let finalizers = dice.below(7);
    ObjectMeta {
        name: dice.text(),
        namespace: dice.text(),
        // Without one it would have to be without one in every object of a list.
        uid: format!("u{}", dice.text()),
        resource_version: dice.text(),
        being_deleted: dice.flag(),
        finalizers: (0..finalizers).map(|_| dice.text()).collect(),
        owner_references: (0..owners)
            .map(|_| OwnerReference {
                api_version: dice.text(),
                kind: dice.text(),
                name: dice.text(),
                uid: dice.text(),
                controller: maybe(dice),
                block_owner_deletion: maybe(dice),
            })
            .collect(),
    }
}

fn borrowed_owners(object: &ObjectMeta) -> Vec<OwnerReferenceRef<'_>> {
    let borrowed = |owner| {
        let OwnerReference { api_version, kind, name, uid, controller, block_owner_deletion }: &OwnerReference = owner;
        OwnerReferenceRef {
            api_version,
            kind,
            name,
            uid,
            controller: *controller,
            block_owner_deletion: *block_owner_deletion,
        }
    };
    object.owner_references.iter().map(borrowed).collect()
}

fn encodable<'a>(
    object: &'a ObjectMeta,
    owners: &'a [OwnerReferenceRef<'a>],
    finalizers: &'a [&'a str],
) -> EncodeMeta<'a> {
    EncodeMeta {
        name: &object.name,
        namespace: &object.namespace,
        uid: &object.uid,
        resource_version: &object.resource_version,
        generation: -1,
        creation_unix_s: 1,
        deletion_unix_s: object.being_deleted.then_some(2),
        labels: &[("a", "b")],
        annotations: &[("c", "d")],
        owner_references: owners,
        finalizers,
        ..EncodeMeta::default()
    }
}

fn with_encodable(object: &ObjectMeta, write: impl FnOnce(&EncodeMeta<'_>) -> Vec<u8>) -> Vec<u8> {
    let finalizers: Vec<&str> = object.finalizers.iter().map(String::as_str).collect();
    write(&encodable(object, &borrowed_owners(object), &finalizers))
}

fn json_object(object: &ObjectMeta) -> Value {
    let ObjectMeta { name, namespace, uid, resource_version, being_deleted, finalizers, owner_references } =
        object;
    let owners = conversation::written(owner_references);
    json!({"kind": "PartialObjectMetadata", "metadata": {"name": name, "namespace": namespace, "uid": uid,
        "resourceVersion": resource_version, "ownerReferences": owners, "finalizers": finalizers, "labels": {"a": "b"},
        "deletionTimestamp": being_deleted.then_some("2020-01-01T00:00:00Z")}})
}
