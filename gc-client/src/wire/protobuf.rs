//! The protobuf that Kubernetes writes (apimachinery `pkg/runtime/generated.proto`, `pkg/apis/meta/v1/generated.proto`).
//!
//! Every level of nesting is a function here, so that no input decides how deep the stack grows.

use std::io::Read;
use std::ops::ControlFlow;

use super::WireError;
use super::kept::{Kept, OverLimit, OwnerSpans, Span};
use super::source::Source;
use crate::encode::MAGIC;
use crate::meta::MetaRef;

/// The end of a message that goes on until the stream ends.
const OPEN_END: u64 = u64::MAX;

/// No body is longer than 1 TiB, so a length beyond that is corruption, and offsets cannot overflow.
const LENGTH_LIMIT: u64 = 1 << 40;

/// The annotation that ends the initial state of a watch, and its value (client-go `metav1.InitialEventsAnnotationKey`).
const INITIAL_EVENTS_END: (&[u8], &[u8]) = (b"k8s.io/initial-events-end", b"true");

/// Reads an enveloped object, or a Status, up to the end of the stream.
pub(super) fn read_object<R: Read>(source: &mut Source<R>, kept: &mut Kept) -> Result<(), WireError> {
    let mut decoder = Decoder { source, kept };
    decoder.enveloped(OPEN_END)
}

/// Reads an enveloped list, or a Status, up to the end of the stream.
pub(super) fn read_list<R: Read>(
    source: &mut Source<R>,
    list: &mut Kept,
    sink: &mut dyn FnMut(MetaRef<'_>) -> ControlFlow<()>,
) -> Result<(), WireError> {
    let mut item = Kept::default();
    let mut decoder = Decoder { source, kept: list };
    decoder.envelope(OPEN_END, &mut |decoder, end| {
        if decoder.kept.is_status() {
            return decoder.status(end);
        }
        let kind = decoder.kept.text(decoder.kept.kind, decoder.source.offset())?;
        let is_partial = kind == "PartialObjectMetadataList";
        let mut has_metadata = false;
        while let Some((field, value)) = decoder.field(end)? {
            match field {
                1 if !std::mem::replace(&mut has_metadata, true) => {
                    let end = decoder.end(value)?;
                    decoder.list_meta(end)?;
                }
                2 => {
                    item.clear();
                    let mut decoder = Decoder { source: &mut *decoder.source, kept: &mut item };
                    let end = decoder.end(value)?;
                    decoder.item(end, is_partial)?;
                    if decoder.kept.lend(decoder.source.offset(), &[], &mut *sink)?.is_break() {
                        return Err(WireError::Stopped);
                    }
                }
                1 => return Err(decoder.source.malformed("a list with its metadata twice")),
                other => return Err(decoder.source.malformed(format!("a list with a field {other}"))),
            }
        }
        Ok(())
    })
}

/// Reads one frame: a 4-byte length, then `WatchEvent{type, object{raw}}`, `raw` being enveloped. False at the end
/// of the stream.
pub(super) fn read_event<R: Read>(source: &mut Source<R>, kept: &mut Kept) -> Result<bool, WireError> {
    if source.at_end()? {
        return Ok(false);
    }
    let mut length = 0;
    for _ in 0..4 {
        length = length << 8 | u64::from(source.byte()?);
    }
    let end = source.offset() + length;
    let mut decoder = Decoder { source, kept };
    let mut has_object = false;
    while let Some((field, value)) = decoder.field(end)? {
        match field {
            1 => decoder.kept.event_type = decoder.text(value)?,
            2 => {
                let end = decoder.end(value)?;
                while let Some((field, value)) = decoder.field(end)? {
                    if field == 1 {
                        has_object = true;
                        let end = decoder.end(value)?;
                        decoder.enveloped(end)?;
                    } else {
                        decoder.pass(value)?;
                    }
                }
            }
            _ => decoder.pass(value)?,
        }
    }
    if has_object { Ok(true) } else { Err(decoder.source.malformed("a watch event without an object")) }
}

/// What stands behind a field's tag.
#[derive(Clone, Copy)]
enum Value {
    Varint(u64),
    /// Not yet read: that many bytes follow.
    Bytes(u64),
    /// Not yet read: four or eight bytes follow, of no field that is wanted here.
    Fixed(u64),
}

/// A source, and where its metadata goes.
struct Decoder<'d, R> {
    source: &'d mut Source<R>,
    kept: &'d mut Kept,
}

impl<R: Read> Decoder<'_, R> {
    /// An envelope with an object or a Status in it.
    fn enveloped(&mut self, end: u64) -> Result<(), WireError> {
        self.envelope(end, &mut |decoder, end| {
            if decoder.kept.is_status() { decoder.status(end) } else { decoder.object(end) }
        })
    }

    /// Magic, then `Unknown{typeMeta 1, raw 2, contentEncoding 3, contentType 4}`. The content is read by `raw`,
    /// which needs to know the kind: servers write it first.
    fn envelope(
        &mut self,
        end: u64,
        raw: &mut dyn FnMut(&mut Self, u64) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        for expected in MAGIC {
            if self.source.offset() >= end || self.source.byte()? != expected {
                return Err(self.source.malformed("expected protobuf, which starts with \"k8s\\0\""));
            }
        }
        let (mut has_type, mut has_raw) = (false, false);
        while let Some((field, value)) = self.field(end)? {
            match field {
                1 => {
                    has_type = true;
                    let end = self.end(value)?;
                    self.type_meta(end)?;
                }
                2 if has_raw || !has_type => {
                    return Err(self.source.malformed("an envelope whose content does not follow its type"));
                }
                2 => {
                    has_raw = true;
                    let end = self.end(value)?;
                    raw(self, end)?;
                }
                3 => {
                    let encoding = self.text(value)?;
                    if !self.kept.text(encoding, self.source.offset())?.is_empty() {
                        return Err(self.source.malformed("an envelope with a content encoding"));
                    }
                }
                _ => self.pass(value)?,
            }
        }
        if has_raw { Ok(()) } else { Err(self.source.malformed("an envelope without content")) }
    }

    /// `TypeMeta{apiVersion 1, kind 2}`.
    fn type_meta(&mut self, end: u64) -> Result<(), WireError> {
        while let Some((field, value)) = self.field(end)? {
            match field {
                1 => self.kept.api_version = self.text(value)?,
                2 => self.kept.kind = self.text(value)?,
                _ => self.pass(value)?,
            }
        }
        Ok(())
    }

    /// An object in a list. Whatever does not fit may be an object that is missing from it, or may hide one.
    fn item(&mut self, end: u64, is_partial: bool) -> Result<(), WireError> {
        while let Some((field, value)) = self.field(end)? {
            match field {
                1 if !self.kept.has_metadata => {
                    self.kept.has_metadata = true;
                    let end = self.end(value)?;
                    self.object_meta(end)?;
                }
                1 => return Err(self.source.malformed("an object with its metadata twice in a list")),
                other if is_partial => {
                    let what = format!("an object with a field {other} in a list of metadata");
                    return Err(self.source.malformed(what));
                }
                _ => self.pass(value)?,
            }
        }
        if self.kept.has_metadata { Ok(()) } else { Err(self.source.malformed(super::NO_METADATA)) }
    }

    /// Any kind: its metadata is field 1.
    fn object(&mut self, end: u64) -> Result<(), WireError> {
        while let Some((field, value)) = self.field(end)? {
            match field {
                1 => {
                    self.kept.has_metadata = true;
                    let end = self.end(value)?;
                    self.object_meta(end)?;
                }
                _ => self.pass(value)?,
            }
        }
        Ok(())
    }

    /// `ListMeta{selfLink 1, resourceVersion 2, continue 3, remainingItemCount 4}`.
    fn list_meta(&mut self, end: u64) -> Result<(), WireError> {
        while let Some((field, value)) = self.field(end)? {
            match field {
                2 => self.kept.resource_version = self.text(value)?,
                3 => self.kept.continue_token = self.text(value)?,
                _ => self.pass(value)?,
            }
        }
        Ok(())
    }

    /// `ObjectMeta{name 1, namespace 3, uid 5, resourceVersion 6, deletionTimestamp 9, annotations 12,
    /// ownerReferences 13, finalizers 14}`.
    fn object_meta(&mut self, end: u64) -> Result<(), WireError> {
        while let Some((field, value)) = self.field(end)? {
            match field {
                1 => self.kept.name = self.text(value)?,
                3 => self.kept.namespace = self.text(value)?,
                5 => self.kept.uid = self.text(value)?,
                6 => self.kept.resource_version = self.text(value)?,
                9 => {
                    self.kept.being_deleted = true;
                    let end = self.end(value)?;
                    self.pass_until(end)?;
                }
                12 => {
                    let end = self.end(value)?;
                    self.annotation(end)?;
                }
                13 => {
                    let end = self.end(value)?;
                    let owner = self.owner_reference(end)?;
                    self.kept.push_owner(owner).map_err(|limit| self.over(&limit))?;
                }
                14 => {
                    let finalizer = self.text(value)?;
                    self.kept.push_finalizer(finalizer).map_err(|limit| self.over(&limit))?;
                }
                _ => self.pass(value)?,
            }
        }
        Ok(())
    }

    /// Looks for the one annotation that matters, by its size first, so that all others are passed over unread.
    fn annotation(&mut self, end: u64) -> Result<(), WireError> {
        let (key, value) = INITIAL_EVENTS_END;
        // A tag and a length of one byte each stand before key and value.
        let size = (2 + key.len() + 2 + value.len()) as u64;
        if end - self.source.offset() != size {
            return self.pass_until(end);
        }
        let mut entry = Vec::with_capacity(64);
        self.source.take(2 + key.len() + 2 + value.len(), &mut entry)?;
        self.kept.initial_events_end |= entry.get(2..2 + key.len()) == Some(key) && entry.ends_with(value);
        Ok(())
    }

    /// `OwnerReference{kind 1, name 3, uid 4, apiVersion 5, controller 6, blockOwnerDeletion 7}`.
    fn owner_reference(&mut self, end: u64) -> Result<OwnerSpans, WireError> {
        let mut owner = OwnerSpans::default();
        while let Some((field, value)) = self.field(end)? {
            match field {
                1 => owner.kind = self.text(value)?,
                3 => owner.name = self.text(value)?,
                4 => owner.uid = self.text(value)?,
                5 => owner.api_version = self.text(value)?,
                6 => owner.controller = Some(self.number(value)? != 0),
                7 => owner.block_owner_deletion = Some(self.number(value)? != 0),
                _ => self.pass(value)?,
            }
        }
        Ok(owner)
    }

    /// `Status{message 3, reason 4, details 5, code 6}`, `StatusDetails{name 1, group 2, kind 3, retryAfterSeconds 5,
    /// uid 6}`.
    fn status(&mut self, end: u64) -> Result<(), WireError> {
        while let Some((field, value)) = self.field(end)? {
            match field {
                3 => self.kept.message = self.text(value)?,
                4 => self.kept.reason = self.text(value)?,
                5 => {
                    let end = self.end(value)?;
                    while let Some((field, value)) = self.field(end)? {
                        match field {
                            1 => self.kept.details.name = self.text(value)?,
                            2 => self.kept.details.group = self.text(value)?,
                            3 => self.kept.details.kind = self.text(value)?,
                            5 => {
                                self.kept.details.retry_after_s =
                                    u32::try_from(self.number(value)?).unwrap_or(0);
                            }
                            6 => self.kept.details.uid = self.text(value)?,
                            _ => self.pass(value)?,
                        }
                    }
                }
                6 => self.kept.code = u16::try_from(self.number(value)?).unwrap_or(0),
                _ => self.pass(value)?,
            }
        }
        Ok(())
    }

    /// The next field of a message that ends there; `None` at its end.
    #[inline]
    fn field(&mut self, end: u64) -> Result<Option<(u64, Value)>, WireError> {
        const SHORT: u8 = 0x80;
        // Nearly every field is a short text or message, whose tag and length have one byte each and have come.
        if let [tag, length, ..] = *self.source.buffered()
            && tag & 7 == 2
            && tag < SHORT
            && length < SHORT
            && 2 + u64::from(length) <= end - self.source.offset()
        {
            self.source.consume(2);
            return Ok(Some((u64::from(tag >> 3), Value::Bytes(u64::from(length)))));
        }
        self.any_field(end)
    }

    fn any_field(&mut self, end: u64) -> Result<Option<(u64, Value)>, WireError> {
        if self.source.offset() == end || (end == OPEN_END && self.source.at_end()?) {
            return Ok(None);
        }
        let tag = self.varint(end)?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint(end)?),
            1 => Value::Fixed(8),
            2 => Value::Bytes(self.varint(end)?),
            5 => Value::Fixed(4),
            other => {
                return Err(self
                    .source
                    .malformed(format!("wire type {other}, which Kubernetes does not write")));
            }
        };
        if let Value::Bytes(length) | Value::Fixed(length) = value
            && length > LENGTH_LIMIT.min(end - self.source.offset())
        {
            return Err(self.source.malformed("a field that is longer than the message around it"));
        }
        Ok(Some((tag >> 3, value)))
    }

    #[inline]
    fn varint(&mut self, end: u64) -> Result<u64, WireError> {
        // Nearly every number has one byte or two, and nearly always they have come.
        let left = end - self.source.offset();
        match *self.source.buffered() {
            [byte, ..] if byte < 0x80 && 1 <= left => {
                self.source.consume(1);
                Ok(u64::from(byte))
            }
            [low, high, ..] if 0x80 <= low && high < 0x80 && 2 <= left => {
                self.source.consume(2);
                Ok(u64::from(low & 0x7f) | u64::from(high) << 7)
            }
            _ => self.long_varint(end),
        }
    }

    fn long_varint(&mut self, end: u64) -> Result<u64, WireError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            if self.source.offset() == end {
                return Err(self.source.malformed("a number that ends behind the message around it"));
            }
            let byte = self.source.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.source.malformed("a number of more than ten bytes"))
    }

    /// Keeps a string.
    fn text(&mut self, value: Value) -> Result<Span, WireError> {
        let length = self.length(value)?;
        let source = &mut *self.source;
        let appended = match usize::try_from(length) {
            Ok(length) => self.kept.append(length, |text| source.take(length, text)),
            Err(_) => Err(OverLimit),
        };
        match appended {
            Ok(span) => span,
            Err(limit) => Err(self.over(&limit)),
        }
    }

    /// Where an embedded message ends.
    fn end(&mut self, value: Value) -> Result<u64, WireError> {
        Ok(self.source.offset() + self.length(value)?)
    }

    fn length(&self, value: Value) -> Result<u64, WireError> {
        match value {
            Value::Bytes(length) => Ok(length),
            Value::Varint(_) | Value::Fixed(_) => {
                Err(self.source.malformed("a number where text or a message belongs"))
            }
        }
    }

    fn number(&self, value: Value) -> Result<u64, WireError> {
        match value {
            Value::Varint(number) => Ok(number),
            Value::Bytes(_) | Value::Fixed(_) => Err(self.source.malformed("text where a number belongs")),
        }
    }

    fn pass(&mut self, value: Value) -> Result<(), WireError> {
        match value {
            Value::Varint(_) => Ok(()),
            Value::Bytes(length) | Value::Fixed(length) => self.source.skip(length),
        }
    }

    fn pass_until(&mut self, end: u64) -> Result<(), WireError> {
        self.source.skip(end - self.source.offset())
    }

    fn over(&self, _: &OverLimit) -> WireError {
        self.source.malformed(super::OVER_LIMIT)
    }
}
