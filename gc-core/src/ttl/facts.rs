//! What one object says of itself: from its fields, as they were read, to facts.

use gc_graph::Uid;
use serde_json::Value;

use crate::ttl::Profile;
use crate::ttl::profile::{Signal, by_end};
use crate::ttl::spec::shown;

/// An object's metadata, as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta<'a> {
    /// Empty for a cluster-scoped object.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// Its version, opaque.
    pub resource_version: &'a str,
    /// Whether `metadata.deletionTimestamp` is set.
    pub being_deleted: bool,
    /// Whether one of its owner references has `controller: true`.
    pub is_controlled: bool,
}

/// The value of one of a profile's paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// There is none, or it is null.
    Absent,
    /// As it was read.
    Value(&'a Value),
    /// It is larger than whoever read it keeps.
    TooLarge,
}

/// What an object says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Empty for a cluster-scoped object.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: Uid,
    /// Its version, opaque.
    pub resource_version: String,
    /// Whether `metadata.deletionTimestamp` is set.
    pub being_deleted: bool,
    /// Whether it has a controller.
    pub is_controlled: bool,
    /// Whether it has the profile's annotation that protects it.
    pub is_protected: bool,
    /// Whether it has finished, and when.
    pub finished: Finished,
    /// How long it is to stay after that.
    pub ttl: Ttl,
}

/// Whether an object has finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finished {
    /// It has not.
    No,
    /// It has.
    Yes {
        /// How.
        end: End,
        /// When.
        at: FinishTime,
        /// The condition's type or the phase that says so, for people.
        because: String,
    },
    /// Nobody can tell: why.
    Unknown(String),
}

/// How an object ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Well.
    Success,
    /// Not well.
    Failure,
}

/// When an object finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishTime {
    /// In Unix milliseconds; after 1970.
    AtMs(i64),
    /// It does not say, or what it says is not a time: why.
    Unknown(String),
}

/// The TTL that an object, or a profile for all of its objects, sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// None is set.
    Absent,
    /// In seconds; not negative.
    Seconds(i64),
    /// Something else than a whole number of seconds from 0: what is wrong with it.
    Invalid(String),
}

impl Profile {
    /// What the object says: `fields` are the values at [`Profile::paths`], in that order.
    ///
    /// ```
    /// use gc_core::ttl::{End, Field, Finished, FinishTime, Meta, Profile, Ttl};
    /// use serde_json::json;
    ///
    /// let profile = Profile::volcano_job();
    /// let (phase, time) = (json!("Terminated"), json!("2026-01-01T12:00:00Z"));
    /// let fields = [Field::Value(&phase), Field::Value(&time), Field::Absent];
    /// let facts = profile.facts(&Meta { name: "train", ..Meta::default() }, &fields);
    /// let at = FinishTime::AtMs(1_767_268_800_000);
    /// assert_eq!(facts.finished, Finished::Yes { end: End::Failure, at, because: "Terminated".into() });
    /// assert_eq!(facts.ttl, Ttl::Absent);
    /// ```
    pub fn facts(&self, meta: &Meta<'_>, fields: &[Field<'_>]) -> Facts {
        let field = |place: usize| fields.get(place).copied().unwrap_or(Field::Absent);
        let finished = if fields.len() == self.paths().len() {
            self.finished(field)
        } else {
            Finished::Unknown(format!(
                "{} fields were asked for, {} were read",
                self.paths().len(),
                fields.len()
            ))
        };
        let ttl = match (&finished, self.fields.ttl, self.fixed_ttl()) {
            (Finished::Yes { end, .. }, _, Some(seconds)) => {
                by_end(seconds, *end).map_or(Ttl::Absent, Ttl::Seconds)
            }
            (_, Some(place), _) => self.ttl(place, field(place)),
            _ => Ttl::Absent,
        };
        Facts {
            namespace: meta.namespace.into(),
            name: meta.name.into(),
            uid: Uid::new(meta.uid),
            resource_version: meta.resource_version.into(),
            being_deleted: meta.being_deleted,
            is_controlled: meta.is_controlled,
            is_protected: self.fields.protection.is_some_and(|place| is_protection(field(place))),
            finished,
            ttl,
        }
    }

    fn finished<'a>(&self, field: impl Fn(usize) -> Field<'a>) -> Finished {
        let signal = match field(0) {
            Field::Absent => return Finished::No,
            Field::TooLarge => return Finished::Unknown(format!("{} is too large", self.path_text(0))),
            Field::Value(value) => value,
        };
        let condition_time;
        let (end, because, time) = match self.signal {
            Signal::Phase => {
                let Some(phase) = signal.as_str() else { return Finished::No };
                let Some(end) = self.end(phase) else { return Finished::No };
                (end, phase, Field::Absent)
            }
            Signal::Conditions => {
                let Some((end, kind, time)) = self.finished_condition(signal) else { return Finished::No };
                condition_time = time;
                (end, kind, condition_time.map_or(Field::Absent, Field::Value))
            }
        };
        let (time, place) = match self.fields.time {
            Some(place) => (field(place), self.path_text(place)),
            None => (time, format!("lastTransitionTime of the condition {because}")),
        };
        Finished::Yes { end, at: finish_time(time, &place), because: because.into() }
    }

    /// The first condition that says so, as the reference has it; `False` and `Unknown` do not.
    fn finished_condition<'a>(&self, conditions: &'a Value) -> Option<(End, &'a str, Option<&'a Value>)> {
        conditions.as_array()?.iter().find_map(|condition| {
            let kind = condition.get("type")?.as_str()?;
            let end = self.end(kind)?;
            let is_true = condition.get("status")?.as_str()? == "True";
            is_true.then(|| (end, kind, condition.get("lastTransitionTime")))
        })
    }

    fn end(&self, text: &str) -> Option<End> {
        let is_one_of = |ends: &[String]| ends.iter().any(|end| end == text);
        if is_one_of(&self.success) {
            Some(End::Success)
        } else {
            is_one_of(&self.failure).then_some(End::Failure)
        }
    }

    fn ttl(&self, place: usize, field: Field<'_>) -> Ttl {
        let path = self.path_text(place);
        let value = match field {
            Field::Absent | Field::Value(Value::Null) => return Ttl::Absent,
            Field::TooLarge => return Ttl::Invalid(format!("{path} is too large")),
            Field::Value(value) => value,
        };
        let seconds = match value {
            Value::String(text) if self.ttl_is_text() => text.trim().parse().ok(),
            // No number is too large: 292 years are as good as for ever.
            Value::Number(number) => number.as_i64().or(number.as_u64().map(|_| i64::MAX)),
            _ => None,
        };
        match seconds {
            Some(seconds) if 0 <= seconds => Ttl::Seconds(seconds),
            Some(seconds) => Ttl::Invalid(format!("{path} is {seconds}, and a TTL cannot be negative")),
            None => {
                let value = shown(&value.to_string());
                Ttl::Invalid(format!("{path} is {value}, which is not a whole number of seconds"))
            }
        }
    }
}

/// Whoever sets the annotation means it, in whichever words; only `false` takes it back.
fn is_protection(field: Field<'_>) -> bool {
    match field {
        Field::Absent | Field::Value(Value::Null) => false,
        Field::Value(value) => value.as_str() != Some("false"),
        Field::TooLarge => true,
    }
}

/// A time of 1970 or before is no time: it is what some languages write for one that was never set.
fn finish_time(field: Field<'_>, place: &str) -> FinishTime {
    let text = match field {
        Field::Absent | Field::Value(Value::Null) => {
            return FinishTime::Unknown(format!("{place} is missing"));
        }
        Field::TooLarge => return FinishTime::Unknown(format!("{place} is too large")),
        Field::Value(value) => value.as_str(),
    };
    let Some(text) = text else { return FinishTime::Unknown(format!("{place} is not a text")) };
    match text.parse::<jiff::Timestamp>().map(jiff::Timestamp::as_millisecond) {
        Ok(ms) if 0 < ms => FinishTime::AtMs(ms),
        Ok(_) => FinishTime::Unknown(format!("{place} was never set")),
        Err(_) => FinishTime::Unknown(format!("{place} is {:?}, which is not a time", shown(text))),
    }
}
