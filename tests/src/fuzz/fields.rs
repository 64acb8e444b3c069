//! Fields that are taken out of JSON as it arrives.

use std::io::Read;
use std::ops::ControlFlow;

use gc_client::wire::{self, Format, WatchReader, WireError, WireEvent};
use gc_client::{Field, Fields, FieldsError, ObjectMeta};
use serde_json::Value;

use super::wire::{WORDS, places, recorded, ways};
use super::{Memory, Target, ensure, outline};

const PATHS: &[&[&str]] = &[
    &["status", "conditions"],
    &["status", "state", "phase"],
    &["spec", "ttlSecondsAfterFinished"],
    &["spec"],
    &["a"],
    &["a", "a", "a"],
    &["data", "a"],
    &["metadata", "annotations", "a"],
    &["metadata", "labels"],
];

const JOBS: &[&str] = &[
    r#"{"metadata":{"name":"a","uid":"u","labels":{"a":"b"}},"spec":{"ttlSecondsAfterFinished":5,"template":{}},"status":{"conditions":[{"type":"Complete","status":"True"}]}}"#,
    r#"{"status":{"state":{"phase":"Completed"}},"a":{"a":{"a":[1,-2,3.5,null,true]}},"metadata":{"annotations":{"a":"\u00e9"}}}"#,
    r#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"uid":"u"},"status":{"state":{"phase":"x"}}},{"metadata":{"uid":"v"},"spec":1}]}"#,
    r#"{"type":"MODIFIED","object":{"metadata":{"uid":"u"},"status":{"state":{"phase":"x"}}}}{"type":"DELETED","object":{"metadata":{"uid":"u"},"a":{"a":1}}}"#,
];

/// Objects, lists and watches.
pub(super) const FIELDS: Target = Target {
    name: "fields",
    promise: "fields are those of the document however its bytes arrive, and asking for them changes nothing else",
    corpus: || {
        let answers = recorded(|value| value.get("items").is_some() || value.get("metadata").is_some());
        answers
            .into_iter()
            .map(String::into_bytes)
            .chain(JOBS.iter().map(|job| job.as_bytes().to_vec()))
            .collect()
    },
    words: WORDS,
    memory: Memory { fixed_bytes: 512 << 10, per_input_byte: 2_000 },
    check: |input| check(input).map_err(|error| error.to_string()),
};

/// What came of one document, as it can be compared.
type Outcome<T> = Result<T, String>;

/// Objects with their fields, and how it ended.
type Sequence = (Vec<(ObjectMeta, Vec<Field>)>, Outcome<()>);

fn object(fields: &Fields, reader: impl Read) -> Outcome<(ObjectMeta, Vec<Field>)> {
    wire::read_object_fields(Format::Json, reader, fields).map_err(|error| match error {
        WireError::Status(status) => format!("{status:?}"),
        other => other.to_string(),
    })
}

fn list(fields: &Fields, reader: impl Read) -> Sequence {
    let mut objects = Vec::new();
    let end = wire::read_list_fields(Format::Json, reader, fields, &mut |meta| {
        objects.push((meta.to_owned(), meta.fields.to_vec()));
        ControlFlow::Continue(())
    });
    (objects, end.map(|_| ()).map_err(|error| error.to_string()))
}

fn watch(fields: &Fields, reader: impl Read) -> Sequence {
    let mut watch = WatchReader::with_fields(Format::Json, reader, fields);
    let mut objects = Vec::new();
    loop {
        let event = watch.next(|event| match event {
            WireEvent::Added(meta) | WireEvent::Modified(meta) | WireEvent::Deleted(meta) => {
                objects.push((meta.to_owned(), meta.fields.to_vec()));
            }
            WireEvent::Bookmark { .. } | WireEvent::Error(_) => {}
        });
        match event {
            Ok(Some(())) => {}
            Ok(None) => return (objects, Ok(())),
            Err(error) => return (objects, Err(error.to_string())),
        }
    }
}

fn check(input: &[u8]) -> Result<String, String> {
    let fields = Fields::new(PATHS.iter().map(|path| path.iter().copied()))
        .map_err(|error: FieldsError| error.to_string())?;
    let whole = (object(&fields, input), list(&fields, input), watch(&fields, input));
    for ((a, b), c) in ways(input).into_iter().zip(ways(input)).zip(ways(input)) {
        let in_pieces = (object(&fields, a), list(&fields, b), watch(&fields, c));
        ensure(in_pieces == whole, || format!("in pieces {in_pieces:?}, as a whole {whole:?}"))?;
    }
    let (object, list, watch) = &whole;
    for at in places(input) {
        let cut = self::list(&fields, input.get(..at).unwrap_or_default());
        ensure(cut.1.is_err() || cut == *list, || format!("cut after {at} bytes: {cut:?} and not {list:?}"))?;
    }
    if let Ok((meta, values)) = object {
        let plain = wire::read_object(Format::Json, input).map_err(|error| error.to_string());
        ensure(plain.as_ref() == Ok(meta), || format!("without fields {plain:?}, with them {meta:?}"))?;
        as_in_the_document(input, values)?;
    }
    let plain = super::wire::list(Format::Json, input);
    let metas: Vec<&ObjectMeta> = list.0.iter().map(|(meta, _)| meta).collect();
    // Both stop at the same place, unless only one of them has looked at what is wrong (a number without end, say).
    let shorter = metas.len().min(plain.0.len());
    ensure(plain.0.iter().take(shorter).eq(metas.into_iter().take(shorter)), || {
        format!("without fields {plain:?}, with them {list:?}")
    })?;
    let found =
        object.as_ref().map_or(0, |(_, values)| values.iter().filter(|f| **f != Field::Absent).count());
    let said = |end: &Outcome<()>| end.as_ref().err().map(|error| outline(error)).unwrap_or_default();
    Ok(format!("{found} {} {} {} {}", list.0.len(), said(&list.1), watch.0.len(), said(&watch.1)))
}

/// As the same parser finds it when it reads the whole document into memory. In the metadata a key that comes twice is
/// read twice, which is left out here.
fn as_in_the_document(input: &[u8], values: &[Field]) -> Result<(), String> {
    let Ok(document) = serde_json::from_slice::<Value>(input) else { return Ok(()) };
    for (path, found) in PATHS.iter().zip(values) {
        if path.first() == Some(&"metadata") || *found == Field::TooLarge {
            continue;
        }
        let there = path.iter().try_fold(&document, |value, key| value.as_object()?.get(*key));
        let there = there.filter(|value| !value.is_null());
        ensure(found.value() == there, || format!("{path:?} is {there:?}, and {found:?} was read"))?;
    }
    Ok(())
}
