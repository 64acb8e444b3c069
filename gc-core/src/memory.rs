//! Bounded memory of coordinates: absent owners (G10), orphaned owners, and doubts (D16).

use std::collections::VecDeque;
use std::time::Duration;

use gc_graph::{Coordinate, Uid};
use hashbrown::HashMap;

/// A bounded set of coordinates, each as of something that grows: a time, or a version; when it is full the one least
/// recently used goes.
///
/// Keyed by the whole coordinate, never by the UID alone: one dependent with a wrong namespace must not condemn the
/// others (kubernetes/kubernetes#65200).
#[derive(Clone, Debug)]
pub struct Coordinates<A = Duration> {
    /// By UID first, so that a look-up needs no owned coordinate; a UID has more than one coordinate only when
    /// somebody wrote a wrong one.
    by_uid: HashMap<Uid, Vec<Entry<A>>>,
    /// In order of use, with stale entries that are skipped; never longer than twice the capacity. No two uses have the
    /// same number.
    order: VecDeque<(Uid, u64)>,
    len: usize,
    capacity: usize,
    clock: u64,
}

#[derive(Clone, Debug)]
struct Entry<A> {
    coordinate: Coordinate,
    used: u64,
    /// The latest that it was inserted as of.
    since: A,
}

/// A coordinate with more text than this is not remembered: kind, name and UID of a reference may be anything of up to
/// an object's size, and thousands of those are not to be paid for. What is not remembered is read again.
const COORDINATE_BYTES_MAX: usize = 4 << 10;

impl<A: Copy + Ord + Default> Coordinates<A> {
    /// An empty set that holds at most `capacity` coordinates.
    pub fn new(capacity: usize) -> Coordinates<A> {
        Coordinates { by_uid: HashMap::new(), order: VecDeque::new(), len: 0, capacity, clock: 0 }
    }

    /// How many coordinates it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Remembers a coordinate as of `since`, unless it is as of later already, and marks it as just used.
    pub fn insert(&mut self, coordinate: Coordinate, since: A) {
        if COORDINATE_BYTES_MAX < text_bytes(&coordinate) {
            return;
        }
        if let Some(entry) = self.touch(&coordinate) {
            entry.since = entry.since.max(since);
            return;
        }
        if self.len == self.capacity {
            self.evict();
        }
        self.note_use(&coordinate.uid);
        let entries = self.by_uid.entry(coordinate.uid.clone()).or_default();
        entries.push(Entry { coordinate, used: self.clock, since });
        self.len += 1;
    }

    /// Whether exactly this coordinate is remembered; marks it as just used.
    pub fn contains(&mut self, coordinate: &Coordinate) -> bool {
        self.touch(coordinate).is_some()
    }

    /// Whether this object is remembered, under whichever version of its kind; marks it as just used.
    pub fn contains_object(&mut self, coordinate: &Coordinate) -> bool {
        let Some(entries) = self.by_uid.get(&coordinate.uid) else { return false };
        let known = entries.iter().map(|entry| &entry.coordinate).find(|known| {
            known.kind == coordinate.kind
                && group_of(&known.api_version) == group_of(&coordinate.api_version)
                && known.namespace == coordinate.namespace
                && known.name == coordinate.name
        });
        match known.cloned() {
            Some(known) => self.contains(&known),
            None => false,
        }
    }

    /// Since when exactly this coordinate is remembered; marks it as just used.
    pub fn since(&mut self, coordinate: &Coordinate) -> Option<A> {
        self.touch(coordinate).map(|entry| entry.since)
    }

    /// Whether exactly this coordinate is remembered; that somebody asks does not count as a use.
    pub fn remembers(&self, coordinate: &Coordinate) -> bool {
        let entries = self.by_uid.get(&coordinate.uid);
        entries.is_some_and(|entries| entries.iter().any(|known| known.coordinate == *coordinate))
    }

    /// Whether any coordinate with this UID is remembered.
    pub fn knows_uid(&self, uid: &Uid) -> bool {
        self.by_uid.contains_key(uid)
    }

    /// Forgets every coordinate with this UID.
    pub fn remove_uid(&mut self, uid: &Uid) {
        if let Some(gone) = self.by_uid.remove(uid) {
            self.len -= gone.len();
        }
    }

    /// Moves every coordinate with this UID that is as of no later than this into another set.
    pub fn move_uid_until(&mut self, uid: &Uid, until: A, to: &mut Coordinates<A>) {
        let Some(entries) = self.by_uid.get_mut(uid) else { return };
        let (moved, stay) = std::mem::take(entries).into_iter().partition(|entry| entry.since <= until);
        *entries = stay;
        if entries.is_empty() {
            self.by_uid.remove(uid);
        }
        let moved: Vec<Entry<A>> = moved;
        self.len -= moved.len();
        for entry in moved {
            to.insert(entry.coordinate, entry.since);
        }
    }

    /// Takes in all of another set, and keeps everything, but as of the beginning.
    pub fn take_in(&mut self, other: &mut Coordinates<A>) {
        for entry in self.by_uid.values_mut().flatten() {
            entry.since = A::default();
        }
        let mut others: Vec<Entry<A>> = other.by_uid.drain().flat_map(|(_, entries)| entries).collect();
        other.clear();
        // The ones used last stay where there is not room for all.
        others.sort_unstable_by_key(|entry| entry.used);
        for entry in others {
            self.insert(entry.coordinate, A::default());
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Coordinates::new(self.capacity);
    }

    /// All of them, in their order.
    pub(crate) fn sorted(&self) -> Vec<&Coordinate> {
        let mut all: Vec<&Coordinate> =
            self.by_uid.values().flatten().map(|entry| &entry.coordinate).collect();
        all.sort();
        all
    }

    fn touch(&mut self, coordinate: &Coordinate) -> Option<&mut Entry<A>> {
        let entries = self.by_uid.get(&coordinate.uid)?;
        let place = entries.iter().position(|known| known.coordinate == *coordinate)?;
        self.note_use(&coordinate.uid);
        let entry = self.by_uid.get_mut(&coordinate.uid)?.get_mut(place)?;
        entry.used = self.clock;
        Some(entry)
    }

    fn note_use(&mut self, uid: &Uid) {
        if self.capacity.saturating_mul(2) <= self.order.len() {
            self.drop_stale();
        }
        self.clock += 1;
        self.order.push_back((uid.clone(), self.clock));
    }

    fn evict(&mut self) {
        while let Some((uid, used)) = self.order.pop_front() {
            let Some(entries) = self.by_uid.get_mut(&uid) else { continue };
            let Some(i) = entries.iter().position(|entry| entry.used == used) else { continue };
            entries.swap_remove(i);
            if entries.is_empty() {
                self.by_uid.remove(&uid);
            }
            self.len -= 1;
            return;
        }
    }

    fn drop_stale(&mut self) {
        let by_uid = &self.by_uid;
        self.order.retain(|(uid, used)| {
            by_uid.get(uid).is_some_and(|entries| entries.iter().any(|entry| entry.used == *used))
        });
    }
}

pub(crate) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn text_bytes(coordinate: &Coordinate) -> usize {
    let Coordinate { kind, api_version, namespace, name, uid } = coordinate;
    kind.len() + api_version.len() + namespace.len() + name.len() + uid.to_string().len()
}

/// Absences that were read but are not believed yet (D16): how often each was read, and when last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doubts {
    reads: HashMap<Coordinate, (u32, Duration)>,
}

/// A doubt is looked at again within seconds; what is older belongs to an item that has been decided otherwise.
const DOUBT_AGE_MAX: Duration = Duration::from_secs(600);
/// More doubts at once than workers could ever hold means that the oldest are abandoned ones.
const DOUBTS_MAX: usize = 10_000;

impl Doubts {
    /// Notes a read that found `coordinate` absent, and says how many such reads, each at least `spacing` after the
    /// one before, there have been.
    pub(crate) fn note(&mut self, coordinate: &Coordinate, now: Duration, spacing: Duration) -> u32 {
        if let Some((count, last)) = self.reads.get_mut(coordinate) {
            if spacing <= now.saturating_sub(*last) {
                *count = count.saturating_add(1);
                *last = now;
            }
            return *count;
        }
        if DOUBTS_MAX <= self.reads.len() {
            self.reads.retain(|_, (_, last)| now.saturating_sub(*last) < DOUBT_AGE_MAX);
            if DOUBTS_MAX <= self.reads.len() {
                // Forgetting doubts only delays: each absence is then read once more.
                self.reads.clear();
            }
        }
        self.reads.insert(coordinate.clone(), (1, now));
        1
    }

    /// All of them, in the order of the coordinates, each with how often it was read.
    pub(crate) fn sorted(&self) -> Vec<(&Coordinate, u32)> {
        let mut all: Vec<_> =
            self.reads.iter().map(|(coordinate, (count, _))| (coordinate, *count)).collect();
        all.sort();
        all
    }

    pub(crate) fn settle(&mut self, coordinate: &Coordinate) {
        if !self.reads.is_empty() {
            self.reads.remove(coordinate);
        }
    }

    /// The object with this UID has shown itself: whoever doubts it next begins anew.
    pub(crate) fn settle_uid(&mut self, uid: &Uid) {
        if self.reads.is_empty() {
            return;
        }
        self.reads.retain(|coordinate, _| coordinate.uid != *uid);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.reads.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(namespace: &str, uid: &str) -> Coordinate {
        Coordinate {
            kind: "ConfigMap".into(),
            api_version: "v1".into(),
            namespace: namespace.into(),
            name: "owner".into(),
            uid: Uid::new(uid),
        }
    }

    #[test]
    fn g10_the_key_is_the_whole_coordinate() {
        let mut absent = Coordinates::new(10);
        absent.insert(at("b", "u"), Duration::ZERO);
        assert!(absent.contains(&at("b", "u")));
        assert!(!absent.contains(&at("a", "u")), "kubernetes/kubernetes#65200");
        assert!(!absent.contains(&at("", "u")));
    }

    #[test]
    fn g10_the_least_recently_used_goes_first() {
        let mut absent = Coordinates::new(2);
        absent.insert(at("a", "1"), Duration::ZERO);
        absent.insert(at("a", "2"), Duration::ZERO);
        assert!(absent.contains(&at("a", "1")));
        absent.insert(at("a", "3"), Duration::ZERO);
        assert_eq!(absent.len(), 2);
        assert!(absent.contains(&at("a", "1")) && !absent.contains(&at("a", "2")));
    }

    #[test]
    fn g10_memory_stays_bounded_under_use() {
        let mut absent = Coordinates::new(100);
        for i in 0..10_000 {
            absent.insert(at("a", &i.to_string()), Duration::ZERO);
            absent.contains(&at("a", &(i / 2).to_string()));
        }
        assert_eq!(absent.len(), 100);
        assert!(absent.order.len() <= 200 && absent.by_uid.len() == 100);
        absent.remove_uid(&Uid::new("9999"));
        assert_eq!(absent.len(), 99);
    }

    #[test]
    fn g10_what_is_remembered_and_forgotten_in_turn_leaves_nothing_behind() {
        let mut absent = Coordinates::new(100);
        for _ in 0..10_000 {
            absent.insert(at("a", "u"), Duration::ZERO);
            absent.remove_uid(&Uid::new("u"));
        }
        assert!(absent.is_empty() && absent.order.len() <= 200);
    }

    #[test]
    fn g10_huge_coordinates_are_not_remembered() {
        let mut absent = Coordinates::new(100);
        absent.insert(at("a", &"u".repeat(COORDINATE_BYTES_MAX)), Duration::ZERO);
        absent.insert(Coordinate { name: "n".repeat(COORDINATE_BYTES_MAX), ..at("a", "u") }, Duration::ZERO);
        assert!(absent.is_empty());
    }

    #[test]
    fn g10_four_kibibytes_of_text_are_remembered_and_no_more() {
        let of_bytes = |field: usize, bytes: usize| {
            let mut texts = ["v1", "ConfigMap", "ns", "name", "uid"].map(str::to_owned);
            let others: usize = texts.iter().map(String::len).sum::<usize>() - texts[field].len();
            texts[field] = "x".repeat(bytes - others);
            let [api_version, kind, namespace, name, uid] = texts;
            Coordinate { api_version, kind, namespace, name, uid: Uid::new(&uid) }
        };
        for field in 0..5 {
            let mut absent = Coordinates::new(100);
            absent.insert(of_bytes(field, COORDINATE_BYTES_MAX + 1), Duration::ZERO);
            assert_eq!(absent.len(), 0, "field {field}");
            absent.insert(of_bytes(field, COORDINATE_BYTES_MAX), Duration::ZERO);
            assert_eq!(absent.len(), 1, "field {field}");
        }
    }

    #[test]
    fn g10_what_is_used_again_and_again_does_not_push_out_what_was_used_before_it() {
        let mut absent = Coordinates::new(3);
        for name in ["1", "2", "3"] {
            absent.insert(at("a", name), Duration::ZERO);
        }
        for _ in 0..100 {
            assert!(absent.contains(&at("a", "2")));
        }
        absent.insert(at("a", "4"), Duration::ZERO);
        let left = ["1", "2", "3", "4"].map(|name| absent.contains(&at("a", name)));
        assert_eq!(left, [false, true, true, true]);
    }

    #[test]
    fn g10_an_object_is_known_under_any_version_and_under_no_other_group_kind_namespace_or_name() {
        let mut orphaned: Coordinates = Coordinates::new(100);
        let known = Coordinate { api_version: "apps/v1".into(), ..at("a", "1") };
        orphaned.insert(known.clone(), Duration::ZERO);
        assert!(orphaned.contains_object(&Coordinate { api_version: "apps/v2".into(), ..known.clone() }));
        for other in [
            Coordinate { api_version: "v1".into(), ..known.clone() },
            Coordinate { api_version: "example.com/v1".into(), ..known.clone() },
            Coordinate { kind: "Other".into(), ..known.clone() },
            Coordinate { namespace: "b".into(), ..known.clone() },
            Coordinate { name: "other".into(), ..known.clone() },
        ] {
            assert!(!orphaned.contains_object(&other), "{other}");
        }
        assert!(orphaned.knows_uid(&known.uid) && !orphaned.knows_uid(&Uid::new("2")));
    }

    /// Ten thousand doubts at once: those that nobody has come back to for ten minutes go; where that does not help, all.
    #[test]
    fn d16_doubts_are_bounded() {
        let doubts_at = |old: Duration| {
            let mut doubts = Doubts::default();
            for i in 0..DOUBTS_MAX {
                let read = if i < 4_000 { old } else { Duration::from_secs(1) };
                doubts.note(&at("a", &i.to_string()), read, Duration::from_secs(2));
            }
            assert_eq!(doubts.reads.len(), 10_000);
            doubts.note(&at("a", "one more"), DOUBT_AGE_MAX, Duration::from_secs(2));
            doubts.reads.len()
        };
        assert_eq!(doubts_at(Duration::ZERO), 6_001);
        assert_eq!(doubts_at(Duration::from_secs(1)), 1);
    }

    #[test]
    fn d16_reads_close_together_count_once() {
        let mut doubts = Doubts::default();
        let spacing = Duration::from_secs(2);
        let at = at("a", "1");
        assert_eq!(doubts.note(&at, Duration::from_secs(10), spacing), 1);
        assert_eq!(doubts.note(&at, Duration::from_secs(11), spacing), 1);
        assert_eq!(doubts.note(&at, Duration::from_secs(12), spacing), 2);
        doubts.settle(&at);
        assert_eq!(doubts.note(&at, Duration::from_secs(13), spacing), 1);
    }
}
