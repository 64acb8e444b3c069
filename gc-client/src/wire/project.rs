//! The values of a few fields, taken out of JSON as it arrives.

use std::cell::Cell;
use std::fmt;
use std::io::Read;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::WireError;
use super::json::Parser;
use crate::fields::{FIELD_BYTES_MAX, FIELD_DEPTH_MAX, Field, Fields};

/// The most bytes of JSON that are copied for one field: a byte of text takes six of them at most, as `\u003c`.
const JSON_BYTES_MAX: usize = 6 * FIELD_BYTES_MAX;
/// What each value counts for besides its text.
const VALUE_BYTES: usize = 64;
/// What each object counts for: serde_json makes room for eleven entries with the first one.
const MAP_BYTES: usize = 640;

/// The fields of the one object at hand.
#[derive(Debug)]
pub(super) struct Projected {
    fields: Fields,
    values: Vec<Field>,
}

impl Projected {
    pub(super) fn new(fields: Fields) -> Projected {
        let values = vec![Field::Absent; fields.len()];
        Projected { fields, values }
    }

    /// Makes room for the next object.
    pub(super) fn clear(&mut self) {
        self.values.fill(Field::Absent);
    }

    /// In the order of the paths.
    pub(super) fn values(&self) -> &[Field] {
        &self.values
    }

    pub(super) fn into_values(self) -> Vec<Field> {
        self.values
    }

    /// The object itself.
    pub(super) fn top(&mut self) -> Place<'_> {
        Place { projected: self, node: Fields::TOP }
    }
}

/// A place in the object: wanted, or on the way to something wanted.
#[derive(Debug)]
pub(super) struct Place<'p> {
    projected: &'p mut Projected,
    node: usize,
}

impl Place<'_> {
    /// Where this key leads, if towards anything that is wanted.
    pub(super) fn child(&mut self, key: &str) -> Option<Place<'_>> {
        let node = self.projected.fields.child(self.node, key)?;
        Some(Place { projected: self.projected, node })
    }

    /// Reads the value that is here, whatever it is: nothing is an error that is JSON.
    pub(super) fn take<R: Read>(mut self, json: &mut Parser<'_, R>) -> Result<(), WireError> {
        self.forget();
        if self.projected.fields.is_wanted(self.node) {
            let found = json.copy(JSON_BYTES_MAX)?.map_or(Ok(Field::TooLarge), |copy| value(&copy));
            self.set(&found.map_err(|error| json.malformed(error.to_string()))?);
            return Ok(());
        }
        // On the way: what is no object leads nowhere.
        if json.next()? != b'{' {
            return json.pass();
        }
        let mut inside = json.object("an object")?;
        while json.member(&mut inside)? {
            match self.child(json.key()) {
                Some(place) => place.take(json)?,
                None => json.pass()?,
            }
        }
        Ok(())
    }

    /// Of a key that comes twice the last value counts, whole.
    fn forget(&mut self) {
        self.set(&Field::Absent);
    }

    /// This is what is here; of paths that lead on, what is there in it.
    fn set(&mut self, found: &Field) {
        let Projected { fields, values } = &mut *self.projected;
        for (index, rest) in fields.paths_through(self.node) {
            if let Some(value) = values.get_mut(index) {
                *value = descend(found, rest);
            }
        }
    }
}

fn descend(found: &Field, rest: &[String]) -> Field {
    let Field::Value(value) = found else { return found.clone() };
    match rest.iter().try_fold(value, |value, key| value.as_object()?.get(key)) {
        None | Some(Value::Null) => Field::Absent,
        Some(value) => Field::Value(value.clone()),
    }
}

/// The value of a field, as it came.
fn value(json: &[u8]) -> serde_json::Result<Field> {
    let left = Cell::new(FIELD_BYTES_MAX);
    let capture = Capture { left: &left, depth: FIELD_DEPTH_MAX };
    let found = capture.deserialize(&mut serde_json::Deserializer::from_slice(json))?;
    Ok(found.map_or(Field::TooLarge, Field::Value))
}

/// A whole value; `None` for one that is over a limit, of which nothing is kept.
#[derive(Clone, Copy)]
struct Capture<'c> {
    /// Bytes that the field may still be.
    left: &'c Cell<usize>,
    /// How much deeper it may be nested.
    depth: usize,
}

impl Capture<'_> {
    /// Whether so much more fits. Once something has not, nothing does.
    fn fits(self, bytes: usize) -> bool {
        let left = self.left.get().checked_sub(bytes);
        self.left.set(left.unwrap_or(0));
        left.is_some()
    }

    fn scalar(self, value: impl Into<Value>) -> Option<Value> {
        self.fits(VALUE_BYTES).then(|| value.into())
    }

    /// For what is inside; `None` where nothing may be.
    fn inside(self) -> Option<Self> {
        Some(Capture { depth: self.depth.checked_sub(1)?, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Capture<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Value>, D::Error> {
        if self.left.get() == 0 {
            return IgnoredAny::deserialize(deserializer).map(|_| None);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Capture<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_unit<E>(self) -> Result<Option<Value>, E> {
        Ok(self.scalar(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Option<Value>, E> {
        Ok(self.scalar(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Option<Value>, E> {
        Ok(self.scalar(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Option<Value>, E> {
        Ok(self.scalar(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Option<Value>, E> {
        Ok(self.scalar(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Option<Value>, E> {
        Ok(self.fits(text.len()).then_some(()).and_then(|()| self.scalar(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Option<Value>, A::Error> {
        let mut values = self.inside().filter(|_| self.fits(VALUE_BYTES)).map(|inside| (inside, Vec::new()));
        while let Some((inside, list)) = &mut values {
            match sequence.next_element_seed(*inside)? {
                Some(Some(value)) => list.push(value),
                Some(None) => values = None,
                None => return Ok(values.map(|(_, list)| Value::Array(list))),
            }
        }
        while sequence.next_element::<IgnoredAny>()?.is_some() {}
        self.left.set(0);
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<Value>, A::Error> {
        let mut values = self.inside().filter(|_| self.fits(MAP_BYTES)).map(|inside| (inside, Map::new()));
        while let Some((inside, object)) = &mut values {
            let Some(key) = map.next_key_seed(KeyText(*inside))? else {
                return Ok(values.map(|(_, object)| Value::Object(object)));
            };
            match (key, map.next_value_seed(*inside)?) {
                (Some(key), Some(value)) => {
                    object.insert(key, value);
                }
                _ => values = None,
            }
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        self.left.set(0);
        Ok(None)
    }
}

/// A key that is kept; `None` where it does not fit.
struct KeyText<'c>(Capture<'c>);

impl<'de> DeserializeSeed<'de> for KeyText<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<String>, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<'de> Visitor<'de> for KeyText<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Option<String>, E> {
        Ok(self.0.fits(key.len()).then(|| key.to_owned()))
    }
}

#[cfg(test)]
mod tests;
