//! One buffer for the names of all objects.

/// Where a text lies in [`Texts`]: `at` counts units of [`UNIT`] bytes, `len` counts bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextRef {
    pub(crate) at: u32,
    pub(crate) len: u32,
}

/// Texts take whole units, so that a freed one fits the next of about its length and 32 bits reach 32 GiB.
const UNIT: usize = 8;
/// Up to this many units there is one class of free places for each length; above, lengths double.
const EXACT_CLASSES: usize = 32;
const CLASSES: usize = EXACT_CLASSES + 32;
const NONE: u32 = u32::MAX;

/// A buffer of texts, with a list of free places for each class of lengths, linked through the places
/// themselves. In a steady churn of objects it neither grows nor needs compaction.
#[derive(Clone, Debug)]
pub(crate) struct Texts {
    bytes: Vec<u8>,
    free: [u32; CLASSES],
    used_units: usize,
}

impl Texts {
    pub(crate) fn new() -> Texts {
        Texts { bytes: Vec::new(), free: [NONE; CLASSES], used_units: 0 }
    }

    pub(crate) fn get(&self, text: TextRef) -> &[u8] {
        let start = text.at as usize * UNIT;
        &self.bytes[start..start + text.len as usize]
    }

    pub(crate) fn get_str(&self, text: TextRef) -> &str {
        // Only whole texts go in, so they come out whole.
        std::str::from_utf8(self.get(text)).unwrap_or_default()
    }

    /// The caller has made sure, with [`Texts::units`] and [`Texts::units_bound`], that there is room.
    pub(crate) fn insert(&mut self, text: &[u8]) -> TextRef {
        let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
        if len == 0 {
            return TextRef { at: 0, len };
        }
        let (class, units) = class_and_units(text.len());
        self.used_units += units;
        let head = self.free[class];
        let at = if head == NONE {
            let at = self.units();
            crate::store::reserve_one_eighth(&mut self.bytes, units * UNIT);
            self.bytes.resize(self.bytes.len() + units * UNIT, 0);
            u32::try_from(at).unwrap_or(u32::MAX)
        } else {
            let start = head as usize * UNIT;
            let mut next = [0; 4];
            next.copy_from_slice(&self.bytes[start..start + 4]);
            self.free[class] = u32::from_ne_bytes(next);
            head
        };
        let start = at as usize * UNIT;
        self.bytes[start..start + text.len()].copy_from_slice(text);
        TextRef { at, len }
    }

    pub(crate) fn remove(&mut self, text: TextRef) {
        if text.len == 0 {
            return;
        }
        let (class, units) = class_and_units(text.len as usize);
        self.used_units -= units;
        let start = text.at as usize * UNIT;
        self.bytes[start..start + 4].copy_from_slice(&self.free[class].to_ne_bytes());
        self.free[class] = text.at;
    }

    /// How many units the buffer has, used or not.
    pub(crate) fn units(&self) -> usize {
        self.bytes.len() / UNIT
    }

    /// At most this many units are taken by texts of so many bytes in all.
    pub(crate) fn units_bound(texts: usize, bytes: usize) -> usize {
        texts + 2 * (bytes / UNIT)
    }

    #[cfg(any(test, feature = "fixture"))]
    pub(crate) fn taken_bytes(text: TextRef) -> usize {
        if text.len == 0 { 0 } else { class_and_units(text.len as usize).1 * UNIT }
    }

    pub(crate) fn used_bytes(&self) -> usize {
        self.used_units * UNIT
    }

    pub(crate) fn capacity_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    pub(crate) fn with_capacity_bytes(capacity: usize) -> Texts {
        Texts { bytes: Vec::with_capacity(capacity), ..Texts::new() }
    }
}

fn class_and_units(len: usize) -> (usize, usize) {
    let units = len.div_ceil(UNIT);
    if units <= EXACT_CLASSES {
        return (units - 1, units);
    }
    let units = units.next_power_of_two();
    // 64 units are the first class above the exact ones; a length has at most 32 bits, so 29 classes follow.
    (EXACT_CLASSES + units.trailing_zeros() as usize - 6, units)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn churn_reuses_places() {
        let mut texts = Texts::new();
        let mut place = texts.insert(b"pod-0000000000");
        let units = texts.units();
        for i in 0..1_000 {
            texts.remove(place);
            place = texts.insert(format!("pod-{i:010}").as_bytes());
        }
        assert_eq!(texts.units(), units);
        texts.remove(place);
        assert_eq!(texts.used_bytes(), 0);
    }

    /// A place that is free is given to no text that does not fit it, whatever the two lengths.
    #[test]
    fn a_text_never_reaches_into_its_neighbour() {
        let lengths: Vec<usize> = (1..=40).chain([64, 65, 128, 129]).map(|units| units * UNIT).collect();
        for &first in &lengths {
            for &second in &lengths {
                let mut texts = Texts::new();
                let place = texts.insert("a".repeat(first).as_bytes());
                let neighbour = texts.insert(b"neighbour");
                texts.remove(place);
                let place = texts.insert("b".repeat(second).as_bytes());
                assert_eq!(texts.get(neighbour), b"neighbour", "{first} bytes, then {second}");
                assert_eq!(texts.get(place), "b".repeat(second).as_bytes());
            }
        }
    }

    proptest! {
        #[test]
        fn texts_keep_their_content(steps in prop::collection::vec((any::<bool>(), ".{0,20}|.{250,600}"), 0..60)) {
            let mut texts = Texts::new();
            let mut held: Vec<(TextRef, String)> = Vec::new();
            for (remove, text) in steps {
                if remove && !held.is_empty() {
                    let (place, _) = held.swap_remove(text.len() % held.len());
                    texts.remove(place);
                } else {
                    let before = texts.units();
                    held.push((texts.insert(text.as_bytes()), text.clone()));
                    prop_assert!(texts.units() - before <= Texts::units_bound(1, text.len()));
                }
                for (place, text) in &held {
                    prop_assert_eq!(texts.get_str(*place), text);
                }
            }
        }
    }
}
