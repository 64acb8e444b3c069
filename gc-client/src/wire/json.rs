//! The JSON of objects, lists and watch events. Keys may come in any order; unknown ones are passed over; `null` is
//! the same as absent, as in Go.

mod parser;

use std::io::Read;
use std::ops::ControlFlow;

use super::kept::{DetailSpans, Kept, OwnerSpans, Span};
use super::project::{Place, Projected};
use super::source::Source;
use super::{NO_METADATA, OVER_LIMIT, WireError};
use crate::meta::MetaRef;
pub(super) use parser::Parser;

/// Reads an object, or a Status, up to the end of the stream.
pub(super) fn read_object<R: Read>(
    source: &mut Source<R>,
    kept: &mut Kept,
    projected: Option<&mut Projected>,
) -> Result<(), WireError> {
    read_document(&mut Parser::new(source), kept, None, projected.map(Projected::top))?;
    only_space_follows(source)
}

/// Reads a list, or a Status, up to the end of the stream.
pub(super) fn read_list<R: Read>(
    source: &mut Source<R>,
    list: &mut Kept,
    projected: Option<&mut Projected>,
    sink: &mut dyn FnMut(MetaRef<'_>) -> ControlFlow<()>,
) -> Result<(), WireError> {
    let mut items = Items { item: Kept::default(), projected, sink, found: false };
    read_document(&mut Parser::new(source), list, Some(&mut items), None)?;
    if !items.found && !list.is_status() {
        return Err(source.malformed("a list without items"));
    }
    only_space_follows(source)
}

/// Reads `{"type": …, "object": …}`. False at the end of the stream.
pub(super) fn read_event<R: Read>(
    source: &mut Source<R>,
    kept: &mut Kept,
    mut projected: Option<&mut Projected>,
) -> Result<bool, WireError> {
    if !skip_space(source)? {
        return Ok(false);
    }
    let mut has_object = false;
    let json = &mut Parser::new(source);
    let mut event = json.object("a watch event")?;
    while json.member(&mut event)? {
        match json.key() {
            "type" => kept.event_type = read_text(json, kept)?,
            "object" => {
                has_object = true;
                read_document(json, kept, None, projected.as_deref_mut().map(Projected::top))?;
            }
            _ => json.pass()?,
        }
    }
    if has_object { Ok(true) } else { Err(source.malformed("a watch event without an object")) }
}

/// Whether anything but white space follows.
fn skip_space<R: Read>(source: &mut Source<R>) -> Result<bool, WireError> {
    while let Some(byte) = source.peek()? {
        if !byte.is_ascii_whitespace() {
            return Ok(true);
        }
        source.skip(1)?;
    }
    Ok(false)
}

fn only_space_follows<R: Read>(source: &mut Source<R>) -> Result<(), WireError> {
    if skip_space(source)? {
        Err(source.malformed("something follows the end of the document"))
    } else {
        Ok(())
    }
}

/// The objects of a list, handed on one by one.
struct Items<'i> {
    item: Kept,
    projected: Option<&'i mut Projected>,
    sink: &'i mut dyn FnMut(MetaRef<'_>) -> ControlFlow<()>,
    found: bool,
}

/// An object, a Status or, with `items`, a list. Which of them is only known at the end.
fn read_document<R: Read>(
    json: &mut Parser<'_, R>,
    kept: &mut Kept,
    mut items: Option<&mut Items<'_>>,
    mut place: Option<Place<'_>>,
) -> Result<(), WireError> {
    let mut inside = json.object(if items.is_some() { "a list" } else { "an object" })?;
    while json.member(&mut inside)? {
        let place = place.as_mut().and_then(|place| place.child(json.key()));
        match (json.key(), &mut items) {
            ("metadata", _) => read_metadata(json, kept, place)?,
            ("items", Some(items)) => read_items(json, items)?,
            ("apiVersion", _) => kept.api_version = read_text_if_any(json, kept)?,
            ("kind", _) => kept.kind = read_text_if_any(json, kept)?,
            ("reason", _) => kept.reason = read_text_if_any(json, kept)?,
            ("message", _) => kept.message = read_text_if_any(json, kept)?,
            ("code", _) => kept.code = read_number_if_any(json)?.try_into().unwrap_or(0),
            ("details", _) => kept.details = read_details_if_any(json, kept)?,
            _ => take_or_pass(json, place)?,
        }
    }
    Ok(())
}

fn read_items<R: Read>(json: &mut Parser<'_, R>, items: &mut Items<'_>) -> Result<(), WireError> {
    items.found = true;
    json.each("a list of objects", |json| {
        json.begin_object();
        items.item.clear();
        let place = items.projected.as_deref_mut().map(|projected| {
            projected.clear();
            projected.top()
        });
        read_document(json, &mut items.item, None, place)?;
        if !items.item.has_metadata {
            return Err(json.malformed(NO_METADATA));
        }
        let fields = items.projected.as_deref().map(Projected::values).unwrap_or_default();
        match items.item.lend(json.offset(), fields, &mut *items.sink)? {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(WireError::Stopped),
        }
    })
}

/// Metadata of an object or of a list: their keys do not collide.
fn read_metadata<R: Read>(
    json: &mut Parser<'_, R>,
    kept: &mut Kept,
    mut place: Option<Place<'_>>,
) -> Result<(), WireError> {
    if json.null()? {
        return Ok(());
    }
    kept.has_metadata = true;
    let mut inside = json.object("metadata")?;
    while json.member(&mut inside)? {
        let place = place.as_mut().and_then(|place| place.child(json.key()));
        match json.key() {
            "name" => kept.name = read_text(json, kept)?,
            "namespace" => kept.namespace = read_text(json, kept)?,
            "uid" => kept.uid = read_text(json, kept)?,
            "resourceVersion" => kept.resource_version = read_text(json, kept)?,
            "continue" => kept.continue_token = read_text(json, kept)?,
            "deletionTimestamp" => {
                kept.being_deleted = !json.null()?;
                if kept.being_deleted {
                    json.pass()?;
                }
            }
            "annotations" => read_annotations(json, kept, place)?,
            "finalizers" => read_finalizers(json, kept)?,
            "ownerReferences" => read_owner_references(json, kept)?,
            _ => take_or_pass(json, place)?,
        }
    }
    Ok(())
}

/// Looks for the one annotation that matters, and for those that are wanted.
fn read_annotations<R: Read>(
    json: &mut Parser<'_, R>,
    kept: &mut Kept,
    mut place: Option<Place<'_>>,
) -> Result<(), WireError> {
    if json.null()? {
        return Ok(());
    }
    let mut inside = json.object("annotations")?;
    while json.member(&mut inside)? {
        if json.key() == "k8s.io/initial-events-end" {
            let value = read_text(json, kept)?;
            kept.initial_events_end = kept.text(value, json.offset()).is_ok_and(|text| text == "true");
        } else {
            let place = place.as_mut().and_then(|place| place.child(json.key()));
            take_or_pass(json, place)?;
        }
    }
    Ok(())
}

fn read_finalizers<R: Read>(json: &mut Parser<'_, R>, kept: &mut Kept) -> Result<(), WireError> {
    json.each("a list of finalizers", |json| {
        let finalizer = read_text(json, kept)?;
        kept.push_finalizer(finalizer).map_err(|_| json.malformed(OVER_LIMIT))
    })
}

fn read_owner_references<R: Read>(json: &mut Parser<'_, R>, kept: &mut Kept) -> Result<(), WireError> {
    json.each("a list of owner references", |json| {
        let owner = read_owner_reference(json, kept)?;
        kept.push_owner(owner).map_err(|_| json.malformed(OVER_LIMIT))
    })
}

fn read_owner_reference<R: Read>(json: &mut Parser<'_, R>, kept: &mut Kept) -> Result<OwnerSpans, WireError> {
    let mut owner = OwnerSpans::default();
    let mut inside = json.object("an owner reference")?;
    while json.member(&mut inside)? {
        match json.key() {
            "apiVersion" => owner.api_version = read_text(json, kept)?,
            "kind" => owner.kind = read_text(json, kept)?,
            "name" => owner.name = read_text(json, kept)?,
            "uid" => owner.uid = read_text(json, kept)?,
            "controller" => owner.controller = json.boolean("true or false for controller")?,
            "blockOwnerDeletion" => {
                owner.block_owner_deletion = json.boolean("true or false for blockOwnerDeletion")?;
            }
            _ => json.pass()?,
        }
    }
    Ok(owner)
}

/// A string that is kept; null is an empty one.
fn read_text<R: Read>(json: &mut Parser<'_, R>, kept: &mut Kept) -> Result<Span, WireError> {
    match json.next()? {
        b'"' => {}
        b'n' => return json.null().map(|_| Span::default()),
        found => return Err(json.unexpected("a string", found)),
    }
    let start = kept.begin_text();
    let offset = json.offset();
    json.string(|bytes| {
        kept.add_text(bytes).map_err(|_| WireError::malformed(offset, format!("JSON: {OVER_LIMIT}")))
    })?;
    Ok(kept.end_text(start))
}

// Fields of a Status. Objects of custom kinds may have fields of the same names and of any shape, so that nothing is
// an error in them.

fn read_text_if_any<R: Read>(json: &mut Parser<'_, R>, kept: &mut Kept) -> Result<Span, WireError> {
    if json.next()? == b'"' { read_text(json, kept) } else { json.pass().map(|()| Span::default()) }
}

/// Zero for what is no whole number.
fn read_number_if_any<R: Read>(json: &mut Parser<'_, R>) -> Result<u64, WireError> {
    match json.next()? {
        b'-' | b'0'..=b'9' => json.number().map(Option::unwrap_or_default),
        _ => json.pass().map(|()| 0),
    }
}

fn read_details_if_any<R: Read>(json: &mut Parser<'_, R>, kept: &mut Kept) -> Result<DetailSpans, WireError> {
    let mut details = DetailSpans::default();
    if json.next()? != b'{' {
        return json.pass().map(|()| details);
    }
    let mut inside = json.object("details")?;
    while json.member(&mut inside)? {
        match json.key() {
            "name" => details.name = read_text_if_any(json, kept)?,
            "kind" => details.kind = read_text_if_any(json, kept)?,
            "group" => details.group = read_text_if_any(json, kept)?,
            "uid" => details.uid = read_text_if_any(json, kept)?,
            "retryAfterSeconds" => {
                details.retry_after_s = read_number_if_any(json)?.try_into().unwrap_or(0);
            }
            _ => json.pass()?,
        }
    }
    Ok(details)
}

/// Passes over a value, but for what is wanted of it.
fn take_or_pass<R: Read>(json: &mut Parser<'_, R>, place: Option<Place<'_>>) -> Result<(), WireError> {
    match place {
        Some(place) => place.take(json),
        None => json.pass(),
    }
}
