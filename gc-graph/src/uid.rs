//! UIDs, lossless and small.

use std::cmp::Ordering;
use std::fmt;

/// The UID of an object.
///
/// The canonical form (36 characters, lower-case, hyphenated) is held as 16 bytes. Any other spelling is
/// another UID to Kubernetes, which compares UIDs as text, and is kept as text. A UID in an owner reference is
/// written by a user, so any text may turn up.
///
/// The order is that of the text.
///
/// ```
/// use gc_graph::Uid;
/// let lower = Uid::new("a3f8c1d2-0000-4000-8000-00000000000b");
/// let upper = Uid::new("A3F8C1D2-0000-4000-8000-00000000000B");
/// assert_ne!(lower, upper);
/// assert_eq!(upper.to_string(), "A3F8C1D2-0000-4000-8000-00000000000B");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Uid(Repr);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Canonical([u8; 16]),
    Text(Box<str>),
}

impl Uid {
    /// The UID that is spelled like this; every text is one.
    pub fn new(text: &str) -> Uid {
        UidRef::new(text).to_uid()
    }

    /// Whether the UID has no character at all. The API server gives no object such a UID.
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, Repr::Text(text) if text.is_empty())
    }

    pub(crate) fn as_ref(&self) -> UidRef<'_> {
        match &self.0 {
            Repr::Canonical(bytes) => UidRef::Canonical(*bytes),
            Repr::Text(text) => UidRef::Text(text.as_bytes()),
        }
    }
}

impl Default for Uid {
    fn default() -> Uid {
        Uid(Repr::Text("".into()))
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Uid {
        Uid::new(text)
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Canonical(bytes) => f.pad(std::str::from_utf8(&spell(bytes)).unwrap_or_default()),
            Repr::Text(text) => f.pad(text),
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uid({:?})", self.to_string())
    }
}

impl Ord for Uid {
    fn cmp(&self, other: &Uid) -> Ordering {
        match (&self.0, &other.0) {
            // Lower-case digits and hyphens at fixed places sort as the bytes they stand for.
            (Repr::Canonical(a), Repr::Canonical(b)) => a.cmp(b),
            (Repr::Text(a), Repr::Text(b)) => a.cmp(b),
            (Repr::Canonical(a), Repr::Text(b)) => spell(a)[..].cmp(b.as_bytes()),
            (Repr::Text(a), Repr::Canonical(b)) => a.as_bytes().cmp(&spell(b)),
        }
    }
}

impl PartialOrd for Uid {
    fn partial_cmp(&self, other: &Uid) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A borrowed UID, parsed once on the way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UidRef<'a> {
    Canonical([u8; 16]),
    Text(&'a [u8]),
}

impl<'a> UidRef<'a> {
    pub(crate) fn new(text: &'a str) -> UidRef<'a> {
        match parse(text.as_bytes()) {
            Some(bytes) => UidRef::Canonical(bytes),
            None => UidRef::Text(text.as_bytes()),
        }
    }

    pub(crate) fn to_uid(self) -> Uid {
        match self {
            UidRef::Canonical(bytes) => Uid(Repr::Canonical(bytes)),
            UidRef::Text(text) => Uid(Repr::Text(String::from_utf8_lossy(text).into())),
        }
    }
}

const HYPHENS: [usize; 4] = [8, 13, 18, 23];
/// Where the two digits of each byte begin.
const DIGITS: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];
const NOT_A_DIGIT: u8 = 0xff;
/// The value of each lower-case hexadecimal digit.
const VALUES: [u8; 256] = {
    let mut values = [NOT_A_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value as usize] as usize] = value;
        value += 1;
    }
    values
};

/// The bytes of a canonical UID. Nothing else is accepted: a general UUID parser takes upper case, braces and
/// URNs too, and would make different UIDs equal.
fn parse(text: &[u8]) -> Option<[u8; 16]> {
    let text: &[u8; 36] = text.try_into().ok()?;
    if HYPHENS.iter().any(|&at| text[at] != b'-') {
        return None;
    }
    let mut bytes = [0; 16];
    let mut invalid = 0;
    for (byte, at) in bytes.iter_mut().zip(DIGITS) {
        let (high, low) = (VALUES[usize::from(text[at])], VALUES[usize::from(text[at + 1])]);
        // A digit has no bit above the fourth, the mark of a non-digit has.
        invalid |= (high | low) & 0xf0;
        *byte = high << 4 | (low & 0x0f);
    }
    (invalid == 0).then_some(bytes)
}

fn spell(bytes: &[u8; 16]) -> [u8; 36] {
    let mut text = [b'-'; 36];
    for (byte, at) in bytes.iter().zip(DIGITS) {
        text[at] = b"0123456789abcdef"[usize::from(byte >> 4)];
        text[at + 1] = b"0123456789abcdef"[usize::from(byte & 0x0f)];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_canonical_spelling_is_held_as_bytes() {
        let canonical = "0123abcd-4567-89ab-cdef-0123456789ab";
        assert!(matches!(UidRef::new(canonical), UidRef::Canonical(_)));
        for other in [
            "",
            "0123ABCD-4567-89ab-cdef-0123456789ab",
            "0123abcd456789abcdef0123456789ab",
            "{0123abcd-4567-89ab-cdef-0123456789a}",
            "0123abcd-4567-89ab-cdef-0123456789a",
            "0123abcd-4567-89ab-cdef-0123456789ag",
            "0123abcd-4567-89ab-cdef-0123456789a\u{e9}",
            "0123abcd_4567-89ab-cdef-0123456789ab",
        ] {
            assert!(matches!(UidRef::new(other), UidRef::Text(_)), "{other}");
            assert_eq!(Uid::new(other).to_string(), other);
        }
    }

    proptest! {
        #[test]
        fn every_text_comes_back_and_sorts_as_itself(
            a in "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\\PC{0,40}",
            b in "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\\PC{0,40}",
        ) {
            prop_assert_eq!(Uid::new(&a).to_string(), a.clone());
            prop_assert_eq!(Uid::new(&a).cmp(&Uid::new(&b)), a.cmp(&b));
            prop_assert_eq!(Uid::new(&a) == Uid::new(&b), a == b);
        }
    }
}
