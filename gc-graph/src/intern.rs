//! Values that many objects share, held once and counted, so that they go when unused.

use hashbrown::HashTable;

/// Interned values under small numbers.
#[derive(Clone, Debug)]
pub(crate) struct Interner<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    table: HashTable<u32>,
    /// The number given out last: neighbours in a list share kind and namespace.
    last: u32,
}

#[derive(Clone, Debug, Default)]
struct Entry<T> {
    hash: u64,
    /// 64 bits, since nodes and references together may outnumber 32.
    count: u64,
    value: T,
}

impl<T: Default> Interner<T> {
    pub(crate) fn new() -> Interner<T> {
        Interner { entries: Vec::new(), free: Vec::new(), table: HashTable::new(), last: 0 }
    }

    pub(crate) fn get(&self, id: u32) -> &T {
        &self.entries[id as usize].value
    }

    /// The number of a value that is held.
    pub(crate) fn find(&self, hash: impl FnOnce() -> u64, is: impl Fn(&T) -> bool) -> Option<u32> {
        if let Some(entry) = self.entries.get(self.last as usize)
            && entry.count > 0
            && is(&entry.value)
        {
            return Some(self.last);
        }
        let entries = &self.entries;
        self.table.find(hash(), |&id| is(&entries[id as usize].value)).copied()
    }

    /// The number of a value, made when not held yet; one more holds it.
    pub(crate) fn hold(
        &mut self,
        hash: impl Fn() -> u64,
        is: impl Fn(&T) -> bool,
        make: impl FnOnce() -> T,
    ) -> u32 {
        if let Some(id) = self.find(&hash, is) {
            self.hold_again(id);
            self.last = id;
            return id;
        }
        let entry = Entry { hash: hash(), count: 1, value: make() };
        let hash = entry.hash;
        let id = match self.free.pop() {
            Some(id) => {
                self.entries[id as usize] = entry;
                id
            }
            None => {
                self.entries.push(entry);
                u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
            }
        };
        let entries = &self.entries;
        self.table.insert_unique(hash, id, |&id| entries[id as usize].hash);
        self.last = id;
        id
    }

    pub(crate) fn hold_again(&mut self, id: u32) {
        self.entries[id as usize].count += 1;
    }

    /// One fewer holds the value; the last to let go gets it.
    pub(crate) fn release(&mut self, id: u32) -> Option<T> {
        let entry = &mut self.entries[id as usize];
        entry.count -= 1;
        if entry.count > 0 {
            return None;
        }
        let hash = entry.hash;
        if let Ok(found) = self.table.find_entry(hash, |&other| other == id) {
            found.remove();
        }
        self.free.push(id);
        Some(std::mem::take(&mut self.entries[id as usize]).value)
    }

    /// How many numbers are in use.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn count(&self, id: u32) -> u64 {
        self.entries[id as usize].count
    }

    /// How many numbers there are, in use or free, for the check of invariants.
    #[cfg(any(test, feature = "fixture"))]
    pub(crate) fn slots(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry<T>>()
            + self.free.capacity() * size_of::<u32>()
            + self.table.allocation_size()
    }

    /// Closes the gaps, in order; gives the new number of each old one.
    pub(crate) fn compact(&mut self) -> Vec<u32> {
        let mut moved = vec![u32::MAX; self.entries.len()];
        let old = std::mem::take(&mut self.entries);
        self.entries = Vec::with_capacity(self.table.len());
        for (id, entry) in old.into_iter().enumerate().filter(|(_, entry)| entry.count > 0) {
            moved[id] = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
            self.entries.push(entry);
        }
        self.free = Vec::new();
        self.last = 0;
        self.fill_table();
        moved
    }

    /// After [`Interner::compact`], for values that contain numbers which have changed too.
    pub(crate) fn update(&mut self, mut change: impl FnMut(&mut T), hash: impl Fn(&T) -> u64) {
        for entry in &mut self.entries {
            change(&mut entry.value);
            entry.hash = hash(&entry.value);
        }
        self.fill_table();
    }

    fn fill_table(&mut self) {
        self.table = HashTable::with_capacity(self.entries.len());
        let entries = &self.entries;
        for (id, entry) in entries.iter().enumerate() {
            let id = u32::try_from(id).unwrap_or(u32::MAX);
            self.table.insert_unique(entry.hash, id, |&id| entries[id as usize].hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(interner: &mut Interner<String>, text: &str) -> u32 {
        interner.hold(|| text.len() as u64, |held| held == text, || text.to_owned())
    }

    /// All have the same hash, so that only what they are tells them apart.
    #[test]
    fn what_is_let_go_of_leaves_the_table() {
        let mut interner = Interner::new();
        let ids: Vec<u32> = ["aa", "bb", "cc"].map(|text| hold(&mut interner, text)).into();
        assert_eq!(hold(&mut interner, "bb"), ids[1]);
        assert_eq!(interner.release(ids[1]), None, "it is held twice");
        assert_eq!(interner.release(ids[1]).as_deref(), Some("bb"));
        assert_eq!((interner.len(), interner.table.len(), interner.slots()), (2, 2, 3));
        let find = |interner: &Interner<String>, text: &str| interner.find(|| 2, |held| held == text);
        assert_eq!(["aa", "bb", "cc"].map(|text| find(&interner, text)), [Some(ids[0]), None, Some(ids[2])]);
        let moved = interner.compact();
        assert_eq!((moved, interner.slots()), (vec![0, u32::MAX, 1], 2));
        assert_eq!(["aa", "bb", "cc"].map(|text| find(&interner, text)), [Some(0), None, Some(1)]);
    }
}
