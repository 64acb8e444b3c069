//! The JSON of objects, lists and watch events. Keys may come in any order; unknown ones are passed over; `null` is
//! the same as absent, as in Go.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};
use std::ops::ControlFlow;

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};

use super::kept::{DetailSpans, Kept, OwnerSpans, Span};
use super::project::{Place, Projected};
use super::source::Source;
use super::{NO_METADATA, OVER_LIMIT, WireError};
use crate::meta::MetaRef;

/// The most bytes of one object, whether kept or passed over. The parser holds a whole key or string before anybody
/// can look at it, so that this bounds what it can be made to hold. etcd stores nothing above 1.5 MiB; the rest is
/// room for aggregated servers that answer with full objects.
const OBJECT_BYTES_LIMIT: u64 = 16 << 20;

/// Reads an object, or a Status, up to the end of the stream.
pub(super) fn read_object<R: Read>(
    source: &mut Source<R>,
    kept: &mut Kept,
    projected: Option<&mut Projected>,
) -> Result<(), WireError> {
    let fuel = Cell::new(OBJECT_BYTES_LIMIT);
    document(source, &fuel, Document { kept, items: None, place: projected.map(Projected::top) })?;
    only_space_follows(source)
}

/// Reads a list, or a Status, up to the end of the stream.
pub(super) fn read_list<R: Read>(
    source: &mut Source<R>,
    list: &mut Kept,
    projected: Option<&mut Projected>,
    sink: &mut dyn FnMut(MetaRef<'_>) -> ControlFlow<()>,
) -> Result<(), WireError> {
    let fuel = Cell::new(OBJECT_BYTES_LIMIT);
    let mut items =
        Items { item: Kept::default(), projected, sink, fuel: &fuel, found: false, stopped: false };
    let result = document(source, &fuel, Document { kept: list, items: Some(&mut items), place: None });
    if items.stopped {
        return Err(WireError::Stopped);
    }
    result?;
    if !items.found && !list.is_status() {
        return Err(source.malformed("a list without items"));
    }
    only_space_follows(source)
}

/// Reads `{"type": …, "object": …}`. False at the end of the stream.
pub(super) fn read_event<R: Read>(
    source: &mut Source<R>,
    kept: &mut Kept,
    projected: Option<&mut Projected>,
) -> Result<bool, WireError> {
    if !skip_space(source)? {
        return Ok(false);
    }
    let fuel = Cell::new(OBJECT_BYTES_LIMIT);
    let mut has_object = false;
    document(source, &fuel, Event { kept, has_object: &mut has_object, projected })?;
    if has_object { Ok(true) } else { Err(source.malformed("a watch event without an object")) }
}

/// Reads one JSON value with the seed.
fn document<'de, R: Read, S: DeserializeSeed<'de, Value = ()>>(
    source: &mut Source<R>,
    fuel: &Cell<u64>,
    seed: S,
) -> Result<(), WireError> {
    let mut deserializer = serde_json::Deserializer::from_reader(Fueled { source: &mut *source, fuel });
    seed.deserialize(&mut deserializer).map_err(|error| {
        if error.is_io() && fuel.get() > 0 {
            WireError::Io(error.into())
        } else if error.is_io() {
            source.malformed("an object of more bytes than any server sends")
        } else {
            source.malformed(format!("JSON: {error}"))
        }
    })
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

/// A reader that fails once the fuel is used up.
struct Fueled<'s, R> {
    source: &'s mut Source<R>,
    fuel: &'s Cell<u64>,
}

impl<R: Read> Read for Fueled<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(into)?;
        let left = self.fuel.get().saturating_sub(count as u64);
        self.fuel.set(left);
        if left == 0 { Err(io::ErrorKind::InvalidData.into()) } else { Ok(count) }
    }
}

/// The keys that mean something, at whatever level.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Key {
    Annotations,
    ApiVersion,
    BlockOwnerDeletion,
    Code,
    Continue,
    Controller,
    DeletionTimestamp,
    Details,
    Finalizers,
    Group,
    Items,
    Kind,
    Message,
    Metadata,
    Name,
    Namespace,
    Object,
    OwnerReferences,
    Reason,
    ResourceVersion,
    RetryAfterSeconds,
    Type,
    Uid,
    #[serde(rename = "k8s.io/initial-events-end")]
    InitialEventsEnd,
    #[serde(other)]
    Other,
}

/// A key, and where it leads on the way to the fields that are wanted.
struct KeyAt<'a, 'p>(Option<&'a Place<'p>>);

impl<'de> Visitor<'de> for KeyAt<'_, '_> {
    type Value = (Key, Option<usize>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<(Key, Option<usize>), E> {
        let child = self.0.and_then(|place| place.child(key));
        Key::deserialize(key.into_deserializer()).map(|key| (key, child))
    }
}

/// `{"type": …, "object": …}`.
struct Event<'k> {
    kept: &'k mut Kept,
    has_object: &'k mut bool,
    projected: Option<&'k mut Projected>,
}

impl<'de> Visitor<'de> for Event<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a watch event")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key()? {
            match key {
                Key::Type => self.kept.event_type = map.next_value_seed(Text(self.kept))?,
                Key::Object => {
                    *self.has_object = true;
                    let place = self.projected.as_deref_mut().map(Projected::top);
                    map.next_value_seed(Document { kept: self.kept, items: None, place })?;
                }
                _ => pass(&mut map)?,
            }
        }
        Ok(())
    }
}

/// An object, a Status or, with `items`, a list. Which of them is only known at the end.
struct Document<'k, 'i> {
    kept: &'k mut Kept,
    items: Option<&'k mut Items<'i>>,
    place: Option<Place<'k>>,
}

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.items.is_some() { "a list" } else { "an object" })
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let kept = self.kept;
        while let Some((key, child)) = map.next_key_seed(KeyAt(self.place.as_ref()))? {
            let place = child_of(&mut self.place, child);
            match (key, &mut self.items) {
                (Key::Metadata, _) => map.next_value_seed(Metadata { kept, place })?,
                (Key::Items, Some(items)) => map.next_value_seed(&mut **items)?,
                (Key::ApiVersion, _) => kept.api_version = map.next_value_seed(Loose(kept))?.text,
                (Key::Kind, _) => kept.kind = map.next_value_seed(Loose(kept))?.text,
                (Key::Reason, _) => kept.reason = map.next_value_seed(Loose(kept))?.text,
                (Key::Message, _) => kept.message = map.next_value_seed(Loose(kept))?.text,
                (Key::Code, _) => {
                    kept.code = map.next_value_seed(Loose(kept))?.number.try_into().unwrap_or(0);
                }
                (Key::Details, _) => kept.details = map.next_value_seed(Loose(kept))?.details,
                _ => take_or_pass(&mut map, place)?,
            }
        }
        Ok(())
    }
}

/// The objects of a list, handed on one by one.
struct Items<'i> {
    item: Kept,
    projected: Option<&'i mut Projected>,
    sink: &'i mut dyn FnMut(MetaRef<'_>) -> ControlFlow<()>,
    fuel: &'i Cell<u64>,
    found: bool,
    stopped: bool,
}

impl<'de> Visitor<'de> for &mut Items<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.found = true;
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        self.found = true;
        loop {
            self.item.clear();
            self.fuel.set(OBJECT_BYTES_LIMIT);
            let place = self.projected.as_deref_mut().map(|projected| {
                projected.clear();
                projected.top()
            });
            if sequence.next_element_seed(Document { kept: &mut self.item, items: None, place })?.is_none() {
                return Ok(());
            }
            if !self.item.has_metadata {
                return Err(A::Error::custom(NO_METADATA));
            }
            let fields = self.projected.as_deref().map(Projected::values).unwrap_or_default();
            let flow = self.item.lend(0, fields, &mut *self.sink).map_err(A::Error::custom)?;
            if flow.is_break() {
                self.stopped = true;
                return Err(A::Error::custom("stopped"));
            }
        }
    }
}

/// Metadata of an object or of a list: their keys do not collide.
struct Metadata<'k> {
    kept: &'k mut Kept,
    place: Option<Place<'k>>,
}

impl<'de> Visitor<'de> for Metadata<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let kept = self.kept;
        kept.has_metadata = true;
        while let Some((key, child)) = map.next_key_seed(KeyAt(self.place.as_ref()))? {
            let place = child_of(&mut self.place, child);
            match key {
                Key::Name => kept.name = map.next_value_seed(Text(kept))?,
                Key::Namespace => kept.namespace = map.next_value_seed(Text(kept))?,
                Key::Uid => kept.uid = map.next_value_seed(Text(kept))?,
                Key::ResourceVersion => kept.resource_version = map.next_value_seed(Text(kept))?,
                Key::Continue => kept.continue_token = map.next_value_seed(Text(kept))?,
                Key::DeletionTimestamp => {
                    kept.being_deleted = map.next_value::<Option<IgnoredAny>>()?.is_some();
                }
                Key::Annotations => map.next_value_seed(Annotations { kept, place })?,
                Key::Finalizers => map.next_value_seed(Finalizers(kept))?,
                Key::OwnerReferences => map.next_value_seed(OwnerReferences(kept))?,
                _ => take_or_pass(&mut map, place)?,
            }
        }
        Ok(())
    }
}

/// Looks for the one annotation that matters, and for those that are wanted.
struct Annotations<'k> {
    kept: &'k mut Kept,
    place: Option<Place<'k>>,
}

impl<'de> Visitor<'de> for Annotations<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("annotations")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let kept = self.kept;
        while let Some((key, child)) = map.next_key_seed(KeyAt(self.place.as_ref()))? {
            match key {
                Key::InitialEventsEnd => {
                    let value = map.next_value_seed(Text(kept))?;
                    kept.initial_events_end = kept.text(value, 0).is_ok_and(|text| text == "true");
                }
                _ => take_or_pass(&mut map, child_of(&mut self.place, child))?,
            }
        }
        Ok(())
    }
}

/// Strings.
struct Finalizers<'k>(&'k mut Kept);

impl<'de> Visitor<'de> for Finalizers<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of finalizers")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        while let Some(span) = sequence.next_element_seed(Text(self.0))? {
            self.0.push_finalizer(span).map_err(|_| A::Error::custom(OVER_LIMIT))?;
        }
        Ok(())
    }
}

/// Owner references.
struct OwnerReferences<'k>(&'k mut Kept);

impl<'de> Visitor<'de> for OwnerReferences<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of owner references")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        while let Some(owner) = sequence.next_element_seed(Owner(self.0))? {
            self.0.push_owner(owner).map_err(|_| A::Error::custom(OVER_LIMIT))?;
        }
        Ok(())
    }
}

/// One owner reference.
struct Owner<'k>(&'k mut Kept);

impl<'de> Visitor<'de> for Owner<'_> {
    type Value = OwnerSpans;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an owner reference")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OwnerSpans, A::Error> {
        let mut owner = OwnerSpans::default();
        while let Some(key) = map.next_key()? {
            match key {
                Key::ApiVersion => owner.api_version = map.next_value_seed(Text(self.0))?,
                Key::Kind => owner.kind = map.next_value_seed(Text(self.0))?,
                Key::Name => owner.name = map.next_value_seed(Text(self.0))?,
                Key::Uid => owner.uid = map.next_value_seed(Text(self.0))?,
                Key::Controller => owner.controller = map.next_value()?,
                Key::BlockOwnerDeletion => owner.block_owner_deletion = map.next_value()?,
                _ => pass(&mut map)?,
            }
        }
        Ok(owner)
    }
}

/// A string that is kept.
struct Text<'k>(&'k mut Kept);

impl<'de> Visitor<'de> for Text<'_> {
    type Value = Span;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_unit<E>(self) -> Result<Span, E> {
        Ok(Span::default())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Span, E> {
        self.0.push_text(text.as_bytes()).map_err(|_| E::custom(OVER_LIMIT))
    }
}

/// A field of a Status. Objects of custom kinds may have fields of the same names and of any shape, so nothing is
/// an error here.
struct Loose<'k>(&'k mut Kept);

/// What a [`Loose`] value was; the other two are empty.
#[derive(Default)]
struct Found {
    text: Span,
    number: u64,
    details: DetailSpans,
}

impl<'de> Visitor<'de> for Loose<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_unit<E>(self) -> Result<Found, E> {
        Ok(Found::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Found, E> {
        Ok(Found::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Found, E> {
        Ok(Found::default())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Found, E> {
        Ok(Found { number, ..Found::default() })
    }

    fn visit_f64<E>(self, _: f64) -> Result<Found, E> {
        Ok(Found::default())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Found, E> {
        Ok(Found { text: Text(self.0).visit_str(text)?, ..Found::default() })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Found, A::Error> {
        while sequence.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Found::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found, A::Error> {
        let mut details = DetailSpans::default();
        while let Some(key) = map.next_key()? {
            match key {
                Key::Name => details.name = map.next_value_seed(Loose(self.0))?.text,
                Key::Kind => details.kind = map.next_value_seed(Loose(self.0))?.text,
                Key::Group => details.group = map.next_value_seed(Loose(self.0))?.text,
                Key::Uid => details.uid = map.next_value_seed(Loose(self.0))?.text,
                Key::RetryAfterSeconds => {
                    let seconds = map.next_value_seed(Loose(self.0))?.number;
                    details.retry_after_s = seconds.try_into().unwrap_or(0);
                }
                _ => pass(&mut map)?,
            }
        }
        Ok(Found { details, ..Found::default() })
    }
}

fn child_of<'p>(place: &'p mut Option<Place<'_>>, child: Option<usize>) -> Option<Place<'p>> {
    place.as_mut().zip(child).map(|(place, node)| place.at(node))
}

/// Passes over a value, but for what is wanted of it.
fn take_or_pass<'de, A: MapAccess<'de>>(map: &mut A, place: Option<Place<'_>>) -> Result<(), A::Error> {
    match place {
        Some(place) => map.next_value_seed(place),
        None => pass(map),
    }
}

fn pass<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(|_| ())
}

/// The visitors above are their own seeds: each says by its methods what it accepts.
macro_rules! seeds {
    ($($visitor:ty => $value:ty),* $(,)?) => { $(
        impl<'de> DeserializeSeed<'de> for $visitor {
            type Value = $value;

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<$value, D::Error> {
                deserializer.deserialize_any(self)
            }
        }
    )* };
}

seeds! {
    KeyAt<'_, '_> => (Key, Option<usize>),
    Event<'_> => (),
    Document<'_, '_> => (),
    &mut Items<'_> => (),
    Metadata<'_> => (),
    Annotations<'_> => (),
    Finalizers<'_> => (),
    OwnerReferences<'_> => (),
    Owner<'_> => OwnerSpans,
    Text<'_> => Span,
    Loose<'_> => Found,
}
