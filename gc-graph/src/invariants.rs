//! What always holds. For tests.

use hashbrown::{HashMap, HashSet};

use crate::graph::Graph;
use crate::store::{
    ABSENT, BEING_DELETED, DELETING_DEPENDENTS, IS_REPEATED, NAMES_POLICY, NONE, ORPHANING, PARITY, REPEATS,
    TWO_KINDS, VIRTUAL,
};

impl Graph {
    /// Looks for anything that must never be, in time linear in the graph; says what it found.
    #[doc(hidden)]
    pub fn check_invariants(&self) -> Result<(), String> {
        self.check_references()?;
        self.check_dependents_lists()?;
        self.check_nodes()?;
        self.check_counts()?;
        self.check_waits()?;
        self.check_sources()
    }

    fn check_references(&self) -> Result<(), String> {
        let store = &self.store;
        let mut edges = 0;
        for index in store.indexes() {
            let mut firsts: HashMap<u32, u32> = HashMap::new();
            for edge in store.references(index) {
                edges += 1;
                let slot = store.edge(edge);
                ensure(slot.dependent == index, || format!("edge {edge} is not its dependent's"))?;
                if slot.owner == NONE {
                    ensure(!slot.is_as_owner() && !slot.has(REPEATS), || {
                        format!("edge {edge} has no owner")
                    })?;
                    continue;
                }
                ensure(store.node(slot.owner).kind != NONE, || format!("edge {edge} has a freed owner"))?;
                if !slot.is_as_owner() {
                    let (kind, name) = store.written(edge);
                    let same = store.is_named(slot.owner, &kind.api_version, &kind.kind, name);
                    ensure(!same, || format!("edge {edge} writes out what its owner says"))?;
                }
                let first = *firsts.entry(slot.owner).or_insert(edge);
                ensure(slot.has(REPEATS) == (first != edge), || format!("edge {edge} is wrongly first"))?;
                ensure(first == edge || store.edge(first).has(IS_REPEATED), || {
                    format!("edge {first} repeats")
                })?;
            }
        }
        ensure(edges == store.edges.len(), || "an edge is in no list".to_owned())
    }

    /// Owners and dependents are always inverse.
    fn check_dependents_lists(&self) -> Result<(), String> {
        let store = &self.store;
        let mut listed = HashSet::new();
        for index in store.indexes() {
            let mut dependents = HashSet::new();
            let mut last = NONE;
            for edge in store.dependents(index) {
                let slot = store.edge(edge);
                ensure(slot.owner == index, || format!("edge {edge} is in the wrong list"))?;
                ensure(dependents.insert(slot.dependent), || format!("{} is listed twice", slot.dependent))?;
                let backwards = last == NONE || slot.previous_dependent == last;
                ensure(backwards, || format!("edge {edge} has a wrong link backwards"))?;
                listed.insert(edge);
                last = edge;
            }
            let first = store.node(index).first_dependent;
            ensure(first == NONE || store.edge(first).previous_dependent == last, || {
                "the last edge is lost".into()
            })?;
        }
        for index in store.indexes() {
            for edge in store.references(index) {
                let slot = store.edge(edge);
                let expected = slot.owner != NONE && !slot.has(REPEATS);
                ensure(listed.contains(&edge) == expected, || format!("edge {edge} is wrongly listed"))?;
            }
        }
        Ok(())
    }

    fn check_nodes(&self) -> Result<(), String> {
        let store = &self.store;
        let (mut len, mut virtual_len) = (0, 0);
        for index in store.indexes() {
            let node = store.node(index);
            let name = || format!("{:?}", store.to_uid(index));
            ensure(store.find(store.uid(index)) == Some(index), || format!("{} is not found", name()))?;
            len += usize::from(node.flags & ABSENT == 0);
            virtual_len += usize::from(node.flags & VIRTUAL != 0);
            if node.flags & (VIRTUAL | ABSENT) == 0 {
                continue;
            }
            let observed =
                BEING_DELETED | DELETING_DEPENDENTS | ORPHANING | NAMES_POLICY | TWO_KINDS | PARITY;
            ensure(node.flags & observed == 0, || format!("{} is not observed but has flags", name()))?;
            ensure(node.flags & (VIRTUAL | ABSENT) != VIRTUAL | ABSENT, || format!("{} is both", name()))?;
            ensure(node.first_reference == NONE, || {
                format!("{} is not observed but has references", name())
            })?;
            ensure(node.first_dependent != NONE, || format!("{} stands for nothing", name()))?;
        }
        ensure(len == self.len, || format!("len is {}, not {len}", self.len))?;
        ensure(virtual_len == self.virtual_len, || format!("virtual_len is {}", self.virtual_len))?;
        ensure(store.table.len() == store.nodes.len(), || "the table has other nodes".to_owned())
    }

    /// Everything shared is held as often as it is used.
    fn check_counts(&self) -> Result<(), String> {
        let store = &self.store;
        let mut kinds = vec![0; store.kinds.slots()];
        let mut namespaces = vec![0; store.namespaces.slots()];
        let mut written = vec![0; store.written.slots()];
        namespaces[0] += 1;
        let mut text_bytes = 0;
        for index in store.indexes() {
            kinds[store.node(index).kind as usize] += 1;
            namespaces[store.node(index).namespace as usize] += 1;
            text_bytes += store.text_bytes(index);
            for edge in store.references(index).filter(|&edge| !store.edge(edge).is_as_owner()) {
                written[store.edge(edge).written() as usize] += 1;
            }
        }
        for (id, &count) in (0..).zip(&written) {
            ensure(store.written.count(id) == count, || format!("written {id} is used {count} times"))?;
            if count > 0 {
                kinds[store.written.get(id).kind as usize] += 1;
            }
        }
        for (id, &count) in (0..).zip(&kinds) {
            ensure(store.kinds.count(id) == count, || format!("kind {id} is used {count} times"))?;
        }
        for (id, &count) in (0..).zip(&namespaces) {
            ensure(store.namespaces.count(id) == count, || format!("namespace {id} is used {count} times"))?;
        }
        ensure(text_bytes == store.texts.used_bytes(), || "a text is lost".to_owned())
    }

    /// What nodes wait for is counted right, and only where they wait.
    fn check_waits(&self) -> Result<(), String> {
        let mut waiting = 0;
        for index in self.store.indexes() {
            let (held, again) = self.store.count_again(index);
            waiting += usize::from(held.is_some());
            ensure(held == again, || format!("{index} waits for {again:?}, not {held:?}"))?;
        }
        ensure(waiting == self.store.waits_len(), || "a node that is gone waits".to_owned())
    }

    fn check_sources(&self) -> Result<(), String> {
        let mut counted = vec![(0, 0); self.sources.len()];
        for index in self.store.indexes().filter(|&index| !self.store.is(index, VIRTUAL | ABSENT)) {
            let node = self.store.node(index);
            let source = usize::from(node.source);
            counted[source].0 += 1;
            if self.store.is(index, PARITY) == self.sources[source].parity {
                counted[source].1 += 1;
            }
        }
        for (number, (source, counted)) in self.sources.iter().zip(counted).enumerate() {
            ensure((source.nodes, source.seen) == counted, || {
                format!("source {number}: {source:?}, {counted:?}")
            })?;
            ensure(source.listing || source.nodes == source.seen, || {
                format!("source {number} is half seen")
            })?;
        }
        Ok(())
    }
}

fn ensure(holds: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(problem()) }
}
