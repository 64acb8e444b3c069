//! Reads metadata from the wire: objects, lists and watches, in protobuf and in JSON, straight from the stream.
//!
//! Nothing is held but the metadata of the one object at hand: labels, annotations, managed fields, `spec` and
//! `status` are passed over while they arrive, so that an object of 300 MB costs no more memory than one of 300
//! bytes. Metadata-only answers and full objects are read alike.
//!
//! No input makes these functions panic, and none makes them hold more than twice [`KEPT_LIMIT`], for
//! a list and for one of its objects, and the fields that are wanted. A document that ends early, that holds something
//! after its end, or that is no list where a list was asked for, is an error: a list that is believed although half of
//! it is missing would look like a thousand deletions.
//!
//! For the same reason a list is read more strictly than an object. Fields and keys that are not known are passed over
//! in the metadata, since newer servers add some. But every list of the API has metadata and items and nothing else,
//! and an item has metadata (and, where metadata was asked for, nothing else), with a UID where the others have one: a
//! list in which that is otherwise is taken for damaged, and so is a watch, whose initial state is a list. An item
//! whose tag has lost a bit, or whose length has gained some and takes in the next, would otherwise be missing without
//! a word, and what a complete list does not show counts as deleted. A server that adds a field to its lists one day
//! will be refused, with a line that names the field, and nothing of that kind is collected; the other mistake could
//! not be taken back.
//!
//! Where a few fields are wanted besides the metadata ([`Fields`]), the objects have to be full ones in JSON. What is
//! wanted is read within its own bounds, and the rest is passed over as ever.
//!
//! # Example
//!
//! ```
//! use std::ops::ControlFlow;
//! use gc_client::wire::{self, Format};
//!
//! let body = br#"{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"web-0"}}]}"#;
//! let mut names = Vec::new();
//! let end = wire::read_list(Format::Json, &body[..], &mut |meta| {
//!     names.push(meta.name.to_string());
//!     ControlFlow::Continue(())
//! })?;
//! assert_eq!((names, end.resource_version), (vec!["web-0".to_string()], "7".to_string()));
//! # Ok::<(), wire::WireError>(())
//! ```

mod json;
mod kept;
mod project;
mod protobuf;
mod source;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Read};
use std::ops::ControlFlow;

use crate::error::{Status, shorten};
use crate::fields::{Field, Fields};
use crate::meta::{MetaRef, ObjectMeta};
pub use kept::KEPT_LIMIT;
use kept::Kept;
use project::Projected;
use source::Source;

/// What an error says about an object over [`KEPT_LIMIT`].
const OVER_LIMIT: &str = "an object with more metadata than any server stores";

/// What an error says about an object that is none.
const NO_METADATA: &str = "an object without metadata";
/// What an error says where some objects cannot be told from others.
const NO_UID: &str = "an object without a UID among others that have one";

/// What an error says where fields are wanted of an answer that has none.
const NO_FIELDS: &str = "metadata only, where fields of the objects were asked for";
/// What an error says where fields are wanted of protobuf, whose fields have numbers and no names.
const NOT_JSON: &str = "protobuf, where fields of the objects were asked for in JSON";

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `application/json`.
    Json,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

impl Format {
    /// From the header `Content-Type`, parameters ignored; `None` for anything that an API server does not write
    /// about objects.
    pub fn from_content_type(content_type: &str) -> Option<Format> {
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        if media_type.eq_ignore_ascii_case("application/json") {
            Some(Format::Json)
        } else if media_type.eq_ignore_ascii_case("application/vnd.kubernetes.protobuf") {
            Some(Format::Protobuf)
        } else {
            None
        }
    }
}

/// Why a body could not be read.
#[derive(Debug)]
pub enum WireError {
    /// The connection failed, or timed out.
    Io(io::Error),
    /// The bytes are not what they should be.
    Malformed {
        /// How many bytes of the body (of the stream, for a watch) had been read.
        offset: u64,
        /// What was expected and what came.
        what: String,
    },
    /// The server answered a Status where an object or a list was asked for.
    Status(Box<Status>),
    /// The sink asked to stop.
    Stopped,
}

/// What a list says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListEnd {
    /// The version as of which the list is true; never empty.
    pub resource_version: String,
    /// Asks for the next page; empty on the last one.
    pub continue_token: String,
}

/// One event of a watch as it comes over the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireEvent<'a> {
    /// The object is new, or is part of the initial state.
    Added(MetaRef<'a>),
    /// The object has changed.
    Modified(MetaRef<'a>),
    /// The object is gone; the metadata is its last state, at the version of the deletion.
    Deleted(MetaRef<'a>),
    /// Everything up to this version has been sent.
    Bookmark {
        /// The version.
        resource_version: &'a str,
        /// Whether the initial state is complete with this (annotation `k8s.io/initial-events-end`).
        initial_events_end: bool,
    },
    /// The watch has failed; it ends after this.
    Error(Status),
}

/// Reads one object, as a GET answers it.
///
/// # Errors
///
/// [`WireError::Status`] when the body is a Status, and everything else that [`WireError`] lists.
pub fn read_object<R: Read>(format: Format, reader: R) -> Result<ObjectMeta, WireError> {
    read_object_with(format, reader, None)
}

/// Reads one object, as a GET answers it, and the fields that are wanted of it.
///
/// # Errors
///
/// As [`read_object`]; an answer in protobuf, and one that is metadata only, is [`WireError::Malformed`].
///
/// # Example
///
/// ```
/// use gc_client::wire::{self, Format};
/// use gc_client::{Field, Fields};
///
/// let body = br#"{"metadata":{"name":"backup"},"spec":{"ttlSecondsAfterFinished":60,"template":{}}}"#;
/// let fields = Fields::new([["spec", "ttlSecondsAfterFinished"], ["status", "conditions"]])?;
/// let (meta, values) = wire::read_object_fields(Format::Json, &body[..], &fields)?;
/// assert_eq!((meta.name.as_str(), values), ("backup", vec![Field::Value(60.into()), Field::Absent]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_object_fields<R: Read>(
    format: Format,
    reader: R,
    fields: &Fields,
) -> Result<(ObjectMeta, Vec<Field>), WireError> {
    let mut projected = Projected::new(fields.clone());
    let meta = read_object_with(format, reader, Some(&mut projected))?;
    Ok((meta, projected.into_values()))
}

fn read_object_with<R: Read>(
    format: Format,
    reader: R,
    mut projected: Option<&mut Projected>,
) -> Result<ObjectMeta, WireError> {
    let mut source = Source::of_list(reader);
    let mut kept = Kept::default();
    match format {
        Format::Json => json::read_object(&mut source, &mut kept, projected.as_deref_mut())?,
        Format::Protobuf if projected.is_some() => return Err(source.malformed(NOT_JSON)),
        Format::Protobuf => protobuf::read_object(&mut source, &mut kept)?,
    }
    let offset = source.offset();
    if kept.is_status() {
        return Err(WireError::Status(Box::new(kept.status(offset)?)));
    }
    if projected.is_some() && kept.is_metadata_only() {
        return Err(WireError::malformed(offset, NO_FIELDS));
    }
    kept.lend(offset, &[], |meta| meta.to_owned())
}

/// Reads one list or one page of it and hands each object to the sink as soon as it is complete.
///
/// The sink has seen some of the objects when this fails; what it was told is true of those objects, but the list
/// is not complete.
///
/// # Errors
///
/// Besides those of [`read_object`]: a body without a `resourceVersion` or without `items`, or of a kind that is no
/// list, is [`WireError::Malformed`]; [`WireError::Stopped`] when the sink breaks off.
pub fn read_list<R: Read>(
    format: Format,
    reader: R,
    sink: &mut dyn FnMut(MetaRef<'_>) -> ControlFlow<()>,
) -> Result<ListEnd, WireError> {
    read_list_with(format, reader, None, sink)
}

/// Reads one list or one page of it as [`read_list`] does, with the fields that are wanted of each object in
/// [`MetaRef::fields`].
///
/// # Errors
///
/// As [`read_list`]; an answer in protobuf, and one that is metadata only, is [`WireError::Malformed`]. Of the latter
/// the sink may have seen objects, all without their fields; as with every error, the list does not count.
pub fn read_list_fields<R: Read>(
    format: Format,
    reader: R,
    fields: &Fields,
    sink: &mut dyn FnMut(MetaRef<'_>) -> ControlFlow<()>,
) -> Result<ListEnd, WireError> {
    read_list_with(format, reader, Some(&mut Projected::new(fields.clone())), sink)
}

fn read_list_with<R: Read>(
    format: Format,
    reader: R,
    projected: Option<&mut Projected>,
    sink: &mut dyn FnMut(MetaRef<'_>) -> ControlFlow<()>,
) -> Result<ListEnd, WireError> {
    let wants_fields = projected.is_some();
    let mut source = Source::of_list(reader);
    let mut list = Kept::default();
    let mut uids = Uids::default();
    let sink: &mut dyn FnMut(MetaRef<'_>) -> ControlFlow<()> = &mut |meta| {
        uids.note(meta.uid);
        sink(meta)
    };
    match format {
        Format::Json => json::read_list(&mut source, &mut list, projected, sink)?,
        Format::Protobuf if wants_fields => return Err(source.malformed(NOT_JSON)),
        Format::Protobuf => protobuf::read_list(&mut source, &mut list, sink)?,
    }
    let offset = source.offset();
    if uids.are_mixed() {
        return Err(WireError::malformed(offset, NO_UID));
    }
    if list.is_status() {
        return Err(WireError::Status(Box::new(list.status(offset)?)));
    }
    let end = ListEnd {
        resource_version: list.text(list.resource_version, offset)?.into(),
        continue_token: list.text(list.continue_token, offset)?.into(),
    };
    let kind = list.text(list.kind, offset)?;
    if !kind.is_empty() && !kind.ends_with("List") {
        return Err(WireError::malformed(offset, format!("expected a list, found a {kind:.100}")));
    }
    if wants_fields && list.is_metadata_only() {
        return Err(WireError::malformed(offset, NO_FIELDS));
    }
    if end.resource_version.is_empty() {
        return Err(WireError::malformed(offset, "a list without metadata.resourceVersion"));
    }
    Ok(end)
}

/// Reads a watch, event by event.
#[derive(Debug)]
pub struct WatchReader<R> {
    format: Format,
    source: Source<R>,
    kept: Kept,
    uids: Uids,
    projected: Option<Projected>,
}

/// Whether the objects have UIDs: an aggregated server may give none, but then to none of them.
#[derive(Clone, Copy, Debug, Default)]
struct Uids {
    some_have: bool,
    some_lack: bool,
}

impl Uids {
    fn note(&mut self, uid: &str) {
        self.some_have |= !uid.is_empty();
        self.some_lack |= uid.is_empty();
    }

    fn are_mixed(self) -> bool {
        self.some_have && self.some_lack
    }
}

impl<R: Read> WatchReader<R> {
    /// A watch whose body starts with the next byte of the reader.
    pub fn new(format: Format, reader: R) -> WatchReader<R> {
        let (source, kept, uids) = (Source::of_watch(reader), Kept::default(), Uids::default());
        WatchReader { format, source, kept, uids, projected: None }
    }

    /// The same, with the fields that are wanted of each object in [`MetaRef::fields`].
    pub fn with_fields(format: Format, reader: R, fields: &Fields) -> WatchReader<R> {
        WatchReader { projected: Some(Projected::new(fields.clone())), ..WatchReader::new(format, reader) }
    }

    /// Waits for the next event and hands it to the sink. `None` when the stream ends between two events.
    ///
    /// # Errors
    ///
    /// Everything that [`WireError`] lists; there is no reading on after one. An event of a type that Kubernetes
    /// does not define is malformed: what it would mean to ignore it is not known. Where fields are wanted, so is protobuf, and
    /// an object that is metadata only.
    pub fn next<T>(&mut self, sink: impl FnOnce(WireEvent<'_>) -> T) -> Result<Option<T>, WireError> {
        self.kept.clear();
        if let Some(projected) = &mut self.projected {
            projected.clear();
        }
        let found = match self.format {
            Format::Json => json::read_event(&mut self.source, &mut self.kept, self.projected.as_mut())?,
            Format::Protobuf if self.projected.is_some() => return Err(self.source.malformed(NOT_JSON)),
            Format::Protobuf => protobuf::read_event(&mut self.source, &mut self.kept)?,
        };
        if !found {
            return Ok(None);
        }
        let (kept, offset) = (&self.kept, self.source.offset());
        let fields = self.projected.as_ref().map(Projected::values).unwrap_or_default();
        let event_type = kept.text(kept.event_type, offset)?;
        // The initial state of a watch is a list, too.
        if matches!(event_type, "ADDED" | "MODIFIED" | "DELETED") && !kept.is_status() {
            self.uids.note(kept.text(kept.uid, offset)?);
            if !kept.has_metadata {
                return Err(WireError::malformed(offset, NO_METADATA));
            }
            if self.uids.are_mixed() {
                return Err(WireError::malformed(offset, NO_UID));
            }
            if self.projected.is_some() && kept.is_metadata_only() {
                return Err(WireError::malformed(offset, NO_FIELDS));
            }
        }
        match event_type {
            "ERROR" => return Ok(Some(sink(WireEvent::Error(kept.status(offset)?)))),
            "BOOKMARK" => {
                let resource_version = kept.text(kept.resource_version, offset)?;
                let initial_events_end = kept.initial_events_end;
                return Ok(Some(sink(WireEvent::Bookmark { resource_version, initial_events_end })));
            }
            _ if kept.is_status() => {
                Err(WireError::malformed(offset, "a Status in an event that is no ERROR"))
            }
            "ADDED" => kept.lend(offset, fields, |meta| sink(WireEvent::Added(meta))),
            "MODIFIED" => kept.lend(offset, fields, |meta| sink(WireEvent::Modified(meta))),
            "DELETED" => kept.lend(offset, fields, |meta| sink(WireEvent::Deleted(meta))),
            other => Err(WireError::malformed(offset, format!("unknown event type {other:.100?}"))),
        }
        .map(Some)
    }
}

impl WireError {
    fn malformed(offset: u64, what: impl Into<String>) -> WireError {
        // Some of the words are the server's.
        WireError::Malformed { offset, what: shorten(&what.into()) }
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Io(error) => error.fmt(f),
            WireError::Malformed { offset, what } => write!(f, "{what} (after {offset} bytes)"),
            WireError::Status(status) => status.fmt(f),
            WireError::Stopped => f.write_str("stopped"),
        }
    }
}

impl std::error::Error for WireError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            WireError::Io(error) => Some(error),
            WireError::Malformed { .. } | WireError::Status(_) | WireError::Stopped => None,
        }
    }
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> WireError {
        WireError::Io(error)
    }
}
