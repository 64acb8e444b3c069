//! The arena: nodes, edges, names and the table of UIDs. It knows how they hang together and nothing of garbage
//! collection.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use crate::change::{Observation, OwnerReferenceRef};
use crate::intern::Interner;
use crate::node::Version;
use crate::texts::{TextRef, Texts};
use crate::uid::{Uid, UidRef};

/// No node, no edge, no number.
pub(crate) const NONE: u32 = u32::MAX;
/// The number of the empty namespace; it is never let go.
pub(crate) const CLUSTER_SCOPED: u32 = 0;

/// Never observed.
pub(crate) const VIRTUAL: u16 = 1;
/// Proved absent, and kept only because references name it. Not part of the graph that callers see.
pub(crate) const ABSENT: u16 = 1 << 1;
pub(crate) const BEING_DELETED: u16 = 1 << 2;
pub(crate) const DELETING_DEPENDENTS: u16 = 1 << 3;
pub(crate) const ORPHANING: u16 = 1 << 4;
/// Which of the last two lists of its source saw the node.
pub(crate) const PARITY: u16 = 1 << 5;
/// The UID is not canonical: its first eight bytes are a [`TextRef`].
const UID_IS_TEXT: u16 = 1 << 6;
/// The resourceVersion is not a canonical number: `version` is a [`TextRef`].
const VERSION_IS_TEXT: u16 = 1 << 7;
/// Not being deleted, and yet with the finalizer `orphan` or `foregroundDeletion`.
pub(crate) const NAMES_POLICY: u16 = 1 << 8;
/// Another watch shows it under another kind, and may say something else of it. For as long as the node stays.
pub(crate) const TWO_KINDS: u16 = 1 << 9;

/// A node: 52 bytes. The crate's documentation says what each is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeSlot {
    uid: [u8; 16],
    /// A number in two halves, or a place in the texts. In a node that is virtual or absent, the first half says
    /// whether a dependent named it by other coordinates; in one that is absent, the second half is the time stamp.
    version: [u32; 2],
    pub(crate) name: TextRef,
    pub(crate) namespace: u32,
    /// [`NONE`] marks a free slot.
    pub(crate) kind: u32,
    pub(crate) first_reference: u32,
    pub(crate) first_dependent: u32,
    pub(crate) source: u16,
    pub(crate) flags: u16,
}

/// The owner reference is the managing controller's.
pub(crate) const CONTROLLER: u32 = 1;
pub(crate) const BLOCKS: u32 = 1 << 1;
/// An earlier reference of this dependent has the same UID; only the earliest is in the owner's list.
pub(crate) const REPEATS: u32 = 1 << 2;
pub(crate) const IS_REPEATED: u32 = 1 << 3;
const FLAG_BITS: u32 = 4;
/// Written as the owner's own kind, apiVersion and name.
pub(crate) const AS_OWNER: u32 = NONE >> FLAG_BITS;

/// An owner reference: 24 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    /// [`NONE`] marks a free slot.
    pub(crate) dependent: u32,
    /// [`NONE`] when the reference has no UID.
    pub(crate) owner: u32,
    pub(crate) next_reference: u32,
    pub(crate) next_dependent: u32,
    /// The first edge of a list has the last one here.
    pub(crate) previous_dependent: u32,
    /// The flags in the low bits; above, the number of the coordinates as written, or [`AS_OWNER`].
    written_and_flags: u32,
}

impl Edge {
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.written_and_flags & flag != 0
    }

    pub(crate) fn written(&self) -> u32 {
        self.written_and_flags >> FLAG_BITS
    }

    /// Whether the reference names its owner by the coordinates that the owner's node has, namespace aside.
    pub(crate) fn is_as_owner(&self) -> bool {
        self.written() == AS_OWNER
    }

    pub(crate) fn set(&mut self, flag: u32) {
        self.written_and_flags |= flag;
    }

    pub(crate) fn set_written(&mut self, written: u32) {
        let flags = self.written_and_flags & ((1 << FLAG_BITS) - 1);
        self.written_and_flags = written << FLAG_BITS | flags;
    }
}

/// A kind with its apiVersion.
#[derive(Clone, Debug, Default)]
pub(crate) struct KindName {
    pub(crate) api_version: Box<str>,
    pub(crate) kind: Box<str>,
}

impl KindName {
    pub(crate) fn is(&self, api_version: &str, kind: &str) -> bool {
        *self.kind == *kind && *self.api_version == *api_version
    }
}

/// What a reference says of its owner, where that is not what the owner's node says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    pub(crate) kind: u32,
    pub(crate) name: Box<str>,
}

/// The references to a node that is *deleting dependents*, counted: so a look at what it still waits for costs the same
/// however many dependents it has. There are few such nodes; the others pay nothing for this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    /// All of them.
    pub(crate) references: u32,
    /// Those that block.
    pub(crate) blocking: u32,
    /// Those that block and whose dependents are not being deleted.
    pub(crate) idle: u32,
    /// How many have gone, or do not block any more, since the node was last worth a look.
    pub(crate) gone: u32,
}

impl Waits {
    fn of(&mut self, edge: &Edge, is_idle: bool) -> [(&mut u32, bool); 3] {
        let blocks = edge.has(BLOCKS);
        [(&mut self.references, true), (&mut self.blocking, blocks), (&mut self.idle, blocks && is_idle)]
    }

    fn add(&mut self, edge: &Edge, is_idle: bool) {
        self.of(edge, is_idle).into_iter().for_each(|(count, counts)| *count += u32::from(counts));
    }

    fn take(&mut self, edge: &Edge, is_idle: bool) {
        self.of(edge, is_idle).into_iter().for_each(|(count, counts)| *count -= u32::from(counts));
    }
}

/// Slots of one type under small numbers, with their free list.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    pub(crate) slots: Vec<T>,
    pub(crate) free: Vec<u32>,
}

impl<T> Slab<T> {
    fn new() -> Slab<T> {
        Slab { slots: Vec::new(), free: Vec::new() }
    }

    fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = value;
            return index;
        }
        let index = u32::try_from(self.slots.len()).unwrap_or(NONE);
        reserve_one_eighth(&mut self.slots, 1);
        self.slots.push(value);
        index
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<T>() + self.free.capacity() * size_of::<u32>()
    }
}

/// Room for `more`, growing by an eighth: doubling would leave up to half of the largest buffers unused.
pub(crate) fn reserve_one_eighth<T>(vec: &mut Vec<T>, more: usize) {
    if vec.capacity() - vec.len() < more {
        vec.reserve_exact(more.max(vec.len() / 8).max(64));
    }
}

/// How much a graph may hold. The numbers are indexes of 32 (for written coordinates, 28) bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) nodes: usize,
    pub(crate) edges: usize,
    pub(crate) written: usize,
    pub(crate) text_units: usize,
}

impl Limits {
    pub(crate) const MAX: Limits = Limits {
        nodes: NONE as usize - 1,
        edges: NONE as usize - 1,
        written: AS_OWNER as usize - 1,
        text_units: NONE as usize - 1,
    };
}

#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) nodes: Slab<NodeSlot>,
    pub(crate) edges: Slab<Edge>,
    pub(crate) texts: Texts,
    pub(crate) kinds: Interner<KindName>,
    pub(crate) namespaces: Interner<Box<str>>,
    pub(crate) written: Interner<Written>,
    /// From UID to node. It is never iterated over: its order is not deterministic.
    pub(crate) table: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// For each node that is *deleting dependents*. Never iterated over either, but to renumber it.
    waits: HashMap<u32, Waits>,
    pub(crate) limits: Limits,
}

#[cfg(any(test, feature = "fixture"))]
thread_local! {
    static EDGES_READ: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// How many owner references this thread has looked at, in any graph: what tests of the amount of work count.
#[cfg(any(test, feature = "fixture"))]
#[doc(hidden)]
pub fn edges_read() -> u64 {
    EDGES_READ.get()
}

/// Reading.
impl Store {
    pub(crate) fn new() -> Store {
        let mut store = Store {
            nodes: Slab::new(),
            edges: Slab::new(),
            texts: Texts::new(),
            kinds: Interner::new(),
            namespaces: Interner::new(),
            written: Interner::new(),
            table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            waits: HashMap::new(),
            limits: Limits::MAX,
        };
        // The first number is CLUSTER_SCOPED.
        store.hold_namespace("");
        store
    }

    pub(crate) fn node(&self, index: u32) -> &NodeSlot {
        &self.nodes.slots[index as usize]
    }

    pub(crate) fn node_mut(&mut self, index: u32) -> &mut NodeSlot {
        &mut self.nodes.slots[index as usize]
    }

    pub(crate) fn edge(&self, edge: u32) -> &Edge {
        #[cfg(any(test, feature = "fixture"))]
        EDGES_READ.set(EDGES_READ.get() + 1);
        &self.edges.slots[edge as usize]
    }

    pub(crate) fn edge_mut(&mut self, edge: u32) -> &mut Edge {
        &mut self.edges.slots[edge as usize]
    }

    pub(crate) fn is(&self, index: u32, flag: u16) -> bool {
        self.node(index).flags & flag != 0
    }

    /// All nodes, those that are absent included.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.nodes.slots).filter(|(_, node)| node.kind != NONE).map(|(index, _)| index)
    }

    /// The references of a node, in their order.
    pub(crate) fn references(&self, index: u32) -> impl Iterator<Item = u32> + '_ {
        chain(self.node(index).first_reference, |edge| self.edge(edge).next_reference)
    }

    /// One edge for each dependent of a node, in the order of their arrival.
    pub(crate) fn dependents(&self, index: u32) -> impl Iterator<Item = u32> + '_ {
        chain(self.node(index).first_dependent, |edge| self.edge(edge).next_dependent)
    }

    /// All references of one dependent to one owner, given the first of them.
    pub(crate) fn group(&self, first: u32) -> impl Iterator<Item = u32> + '_ {
        let Edge { owner, .. } = *self.edge(first);
        let repeated = self.edge(first).has(IS_REPEATED);
        chain(first, move |edge| if repeated { self.edge(edge).next_reference } else { NONE })
            .filter(move |&edge| edge == first || self.edge(edge).owner == owner)
    }

    pub(crate) fn uid(&self, index: u32) -> UidRef<'_> {
        let node = self.node(index);
        if node.flags & UID_IS_TEXT == 0 {
            return UidRef::Canonical(node.uid);
        }
        UidRef::Text(self.texts.get(text_of_uid(&node.uid)))
    }

    pub(crate) fn to_uid(&self, index: u32) -> Uid {
        self.uid(index).to_uid()
    }

    pub(crate) fn find(&self, uid: UidRef<'_>) -> Option<u32> {
        self.table.find(self.hash_uid(uid), |&index| self.has_uid(index, uid)).copied()
    }

    pub(crate) fn has_uid(&self, index: u32, uid: UidRef<'_>) -> bool {
        match uid {
            UidRef::Canonical(bytes) => self.node(index).uid == bytes && !self.is(index, UID_IS_TEXT),
            UidRef::Text(_) => self.uid(index) == uid,
        }
    }

    fn hash_uid(&self, uid: UidRef<'_>) -> u64 {
        match uid {
            UidRef::Canonical(bytes) => self.hasher.hash_one(u128::from_ne_bytes(bytes)),
            UidRef::Text(text) => self.hasher.hash_one(text),
        }
    }

    pub(crate) fn version(&self, index: u32) -> String {
        match self.to_version(index) {
            Version::Number(number) => number.to_string(),
            Version::Text(text) => text.into(),
        }
    }

    pub(crate) fn to_version(&self, index: u32) -> Version {
        let node = self.node(index);
        let [low, high] = node.version;
        if node.flags & (VIRTUAL | ABSENT) != 0 {
            Version::Text("".into())
        } else if node.flags & VERSION_IS_TEXT != 0 {
            Version::Text(self.texts.get_str(TextRef { at: low, len: high }).into())
        } else {
            Version::Number(u64::from(low) | u64::from(high) << 32)
        }
    }

    pub(crate) fn kind(&self, index: u32) -> &KindName {
        self.kinds.get(self.node(index).kind)
    }

    pub(crate) fn namespace(&self, index: u32) -> &str {
        self.namespaces.get(self.node(index).namespace)
    }

    pub(crate) fn name(&self, index: u32) -> &str {
        self.texts.get_str(self.node(index).name)
    }

    pub(crate) fn is_named(&self, index: u32, api_version: &str, kind: &str, name: &str) -> bool {
        self.texts.get(self.node(index).name) == name.as_bytes() && self.kind(index).is(api_version, kind)
    }

    /// The kind and the name by which a reference calls its owner.
    pub(crate) fn written(&self, edge: u32) -> (&KindName, &str) {
        let edge = self.edge(edge);
        if edge.is_as_owner() {
            return (self.kind(edge.owner), self.name(edge.owner));
        }
        let written = self.written.get(edge.written());
        (self.kinds.get(written.kind), &written.name)
    }

    pub(crate) fn find_namespace(&self, namespace: &str) -> Option<u32> {
        self.namespaces.find(|| self.hasher.hash_one(namespace), |held| **held == *namespace)
    }

    pub(crate) fn find_kind(&self, api_version: &str, kind: &str) -> Option<u32> {
        self.kinds.find(|| self.hasher.hash_one((api_version, kind)), |held| held.is(api_version, kind))
    }

    pub(crate) fn find_written(&self, api_version: &str, kind: &str, name: &str) -> Option<u32> {
        let kind = self.find_kind(api_version, kind)?;
        let hash = || self.hasher.hash_one((kind, name));
        self.written.find(hash, |held| held.kind == kind && *held.name == *name)
    }

    /// Whether everything that an observation can add has its place below the limits.
    pub(crate) fn fits(&self, seen: &Observation<'_>) -> bool {
        let references = seen.owner_references.len();
        let mut bytes = seen.uid.len() + seen.name.len() + seen.resource_version.len();
        bytes += seen
            .owner_references
            .iter()
            .map(|reference| reference.uid.len() + reference.name.len())
            .sum::<usize>();
        let units = self.texts.units() + Texts::units_bound(3 + 2 * references, bytes);
        // Each change of coordinates can make one more written coordinate, besides those of the references.
        self.nodes.len() + 1 + references <= self.limits.nodes
            && self.edges.len() + references <= self.limits.edges
            && self.written.len() + 2 * references < self.limits.written
            && units <= self.limits.text_units
    }
}

/// Follows links of indexes until [`NONE`].
fn chain(first: u32, next: impl Fn(u32) -> u32) -> impl Iterator<Item = u32> {
    let mut at = first;
    std::iter::from_fn(move || {
        let here = at;
        if here == NONE {
            return None;
        }
        at = next(here);
        Some(here)
    })
}

/// Nodes.
impl Store {
    /// A new node without flags, references and dependents. The UID is not in the graph.
    pub(crate) fn insert_node(
        &mut self,
        uid: UidRef<'_>,
        api_version: &str,
        kind: &str,
        namespace: u32,
        name: &str,
    ) -> u32 {
        let hash = self.hash_uid(uid);
        let (uid, flags) = match uid {
            UidRef::Canonical(bytes) => (bytes, 0),
            UidRef::Text(text) => (uid_of_text(self.texts.insert(text)), UID_IS_TEXT),
        };
        self.namespaces.hold_again(namespace);
        let node = NodeSlot {
            uid,
            version: [0; 2],
            name: self.texts.insert(name.as_bytes()),
            namespace,
            kind: self.hold_kind(api_version, kind),
            first_reference: NONE,
            first_dependent: NONE,
            source: 0,
            flags,
        };
        let index = self.nodes.insert(node);
        self.insert_into_table(hash, index);
        index
    }

    fn insert_into_table(&mut self, hash: u64, index: u32) {
        let mut table = std::mem::take(&mut self.table);
        table.insert_unique(hash, index, |&other| self.hash_uid(self.uid(other)));
        self.table = table;
    }

    /// Frees a node that has neither references nor dependents left.
    pub(crate) fn remove_node(&mut self, index: u32) {
        let hash = self.hash_uid(self.uid(index));
        if let Ok(entry) = self.table.find_entry(hash, |&other| other == index) {
            entry.remove();
        }
        self.clear_version(index);
        self.end_waiting(index);
        let node = *self.node(index);
        if node.flags & UID_IS_TEXT != 0 {
            self.texts.remove(text_of_uid(&node.uid));
        }
        self.texts.remove(node.name);
        self.namespaces.release(node.namespace);
        self.kinds.release(node.kind);
        *self.node_mut(index) = NodeSlot { kind: NONE, flags: 0, ..node };
        self.nodes.free.push(index);
    }

    pub(crate) fn set_version(&mut self, index: u32, version: &str) {
        if let Some(number) = canonical_number(version) {
            if self.is(index, VERSION_IS_TEXT) {
                self.clear_version(index);
            }
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the halves of the number are what is wanted"
            )]
            let halves = [number as u32, (number >> 32) as u32];
            self.node_mut(index).version = halves;
            return;
        }
        self.clear_version(index);
        let TextRef { at, len } = self.texts.insert(version.as_bytes());
        self.node_mut(index).version = [at, len];
        self.node_mut(index).flags |= VERSION_IS_TEXT;
    }

    /// Forgets the version; in its place is now the mark of [`Store::doubt`], unset.
    pub(crate) fn clear_version(&mut self, index: u32) {
        let [at, len] = std::mem::take(&mut self.node_mut(index).version);
        if self.is(index, VERSION_IS_TEXT) {
            self.texts.remove(TextRef { at, len });
            self.node_mut(index).flags &= !VERSION_IS_TEXT;
        }
    }

    /// Marks a virtual or absent node: a dependent may name it by other coordinates.
    pub(crate) fn doubt(&mut self, index: u32) {
        self.node_mut(index).version[0] = 1;
    }

    pub(crate) fn is_doubted(&self, index: u32) -> bool {
        self.node(index).version[0] != 0
    }

    /// Marks an absent node with the time at which that was proved.
    pub(crate) fn stamp(&mut self, index: u32, stamp: u32) {
        self.node_mut(index).version[1] = stamp;
    }

    pub(crate) fn stamp_of(&self, index: u32) -> u32 {
        self.node(index).version[1]
    }

    /// Gives a node other coordinates. What its dependents wrote stays what they wrote.
    pub(crate) fn take_coordinate(
        &mut self,
        index: u32,
        api_version: &str,
        kind: &str,
        namespace: u32,
        name: &str,
    ) {
        self.namespaces.hold_again(namespace);
        self.namespaces.release(self.node(index).namespace);
        self.node_mut(index).namespace = namespace;
        if self.is_named(index, api_version, kind, name) {
            return;
        }
        let new_written = self.find_written(api_version, kind, name);
        let mut old_written = None;
        let mut first = self.node(index).first_dependent;
        while first != NONE {
            let Edge { next_dependent, .. } = *self.edge(first);
            self.rewrite_group(index, first, new_written, &mut old_written);
            first = next_dependent;
        }
        let kind = self.hold_kind(api_version, kind);
        let new_name = self.texts.insert(name.as_bytes());
        let NodeSlot { kind: old_kind, name: old_name, .. } = *self.node(index);
        self.texts.remove(old_name);
        self.kinds.release(old_kind);
        let node = self.node_mut(index);
        (node.kind, node.name) = (kind, new_name);
    }

    /// Before the owner of these references changes its coordinates: those that were as the owner's get the old
    /// ones written out, those that will be as the owner's no longer need theirs.
    fn rewrite_group(&mut self, owner: u32, first: u32, new: Option<u32>, old: &mut Option<u32>) {
        let repeated = self.edge(first).has(IS_REPEATED);
        let mut at = first;
        while at != NONE {
            let edge = *self.edge(at);
            if edge.owner == owner && edge.is_as_owner() {
                let id = match *old {
                    Some(id) => {
                        self.written.hold_again(id);
                        id
                    }
                    None => self.hold_written_as_node(owner),
                };
                *old = Some(id);
                self.edge_mut(at).set_written(id);
            } else if edge.owner == owner && Some(edge.written()) == new {
                self.release_written(edge.written());
                self.edge_mut(at).set_written(AS_OWNER);
            }
            at = if repeated { edge.next_reference } else { NONE };
        }
    }

    pub(crate) fn hold_namespace(&mut self, namespace: &str) -> u32 {
        let hash = || self.hasher.hash_one(namespace);
        self.namespaces.hold(hash, |held| **held == *namespace, || namespace.into())
    }

    fn hold_kind(&mut self, api_version: &str, kind: &str) -> u32 {
        let hash = || self.hasher.hash_one((api_version, kind));
        let make = || KindName { api_version: api_version.into(), kind: kind.into() };
        self.kinds.hold(hash, |held| held.is(api_version, kind), make)
    }

    fn hold_written(&mut self, api_version: &str, kind: &str, name: &str) -> u32 {
        let kind = self.hold_kind(api_version, kind);
        self.hold_written_of_kind(kind, name)
    }

    fn hold_written_as_node(&mut self, index: u32) -> u32 {
        let kind = self.node(index).kind;
        self.kinds.hold_again(kind);
        let name = self.name(index).to_owned();
        self.hold_written_of_kind(kind, &name)
    }

    /// Takes over one hold of the kind, which every written coordinate has once.
    fn hold_written_of_kind(&mut self, kind: u32, name: &str) -> u32 {
        let hash = || self.hasher.hash_one((kind, name));
        let is = |held: &Written| held.kind == kind && *held.name == *name;
        let id = self.written.hold(hash, is, || Written { kind, name: name.into() });
        if self.written.count(id) > 1 {
            self.kinds.release(kind);
        }
        id
    }

    fn release_written(&mut self, id: u32) {
        if let Some(gone) = self.written.release(id) {
            self.kinds.release(gone.kind);
        }
    }
}

/// Edges.
impl Store {
    /// A new edge after `previous` in the dependent's references (first when [`NONE`]), not yet in the owner's
    /// list. The owner is [`NONE`] when the reference has no UID.
    pub(crate) fn insert_edge(
        &mut self,
        dependent: u32,
        previous: u32,
        owner: u32,
        reference: &OwnerReferenceRef<'_>,
    ) -> u32 {
        let OwnerReferenceRef { api_version, kind, name, controller, block_owner_deletion, .. } = *reference;
        let written = if owner != NONE && self.is_named(owner, api_version, kind, name) {
            AS_OWNER
        } else {
            self.hold_written(api_version, kind, name)
        };
        let flags = if controller { CONTROLLER } else { 0 } | if block_owner_deletion { BLOCKS } else { 0 };
        let edge = self.edges.insert(Edge {
            dependent,
            owner,
            next_reference: NONE,
            next_dependent: NONE,
            previous_dependent: NONE,
            written_and_flags: written << FLAG_BITS | flags,
        });
        if previous == NONE {
            self.node_mut(dependent).first_reference = edge;
        } else {
            self.edge_mut(previous).next_reference = edge;
        }
        if owner != NONE {
            self.count(edge, Waits::add);
        }
        edge
    }

    /// Appends an edge to its owner's list of dependents.
    pub(crate) fn link(&mut self, edge: u32) {
        let Edge { owner, .. } = *self.edge(edge);
        let first = self.node(owner).first_dependent;
        if first == NONE {
            self.node_mut(owner).first_dependent = edge;
            self.edge_mut(edge).previous_dependent = edge;
            return;
        }
        let last = self.edge(first).previous_dependent;
        self.edge_mut(last).next_dependent = edge;
        self.edge_mut(edge).previous_dependent = last;
        self.edge_mut(first).previous_dependent = edge;
    }

    pub(crate) fn unlink(&mut self, edge: u32) {
        let Edge { owner, next_dependent: next, previous_dependent: previous, .. } = *self.edge(edge);
        let first = self.node(owner).first_dependent;
        if edge == first {
            self.node_mut(owner).first_dependent = next;
        } else {
            self.edge_mut(previous).next_dependent = next;
        }
        // The neighbour that follows, or the first edge when the last one goes, takes over the link backwards.
        let follower = if next != NONE { next } else { self.node(owner).first_dependent };
        if follower != NONE {
            self.edge_mut(follower).previous_dependent = previous;
        }
        let edge = self.edge_mut(edge);
        (edge.next_dependent, edge.previous_dependent) = (NONE, NONE);
    }

    /// Frees an edge that is in no owner's list any more.
    pub(crate) fn remove_edge(&mut self, edge: u32) {
        let gone = *self.edge(edge);
        if gone.owner != NONE {
            self.count(edge, Waits::take);
        }
        if !gone.is_as_owner() {
            self.release_written(gone.written());
        }
        self.edge_mut(edge).dependent = NONE;
        self.edges.free.push(edge);
    }
}

/// What nodes that are *deleting dependents* wait for.
impl Store {
    /// A node begins to be *deleting dependents*: its references are counted once.
    pub(crate) fn begin_waiting(&mut self, index: u32) {
        let mut waits = Waits::default();
        for first in self.dependents(index) {
            let is_idle = !self.is(self.edge(first).dependent, BEING_DELETED);
            self.group(first).for_each(|edge| waits.add(self.edge(edge), is_idle));
        }
        self.waits.insert(index, waits);
    }

    /// A node goes, or is no longer *deleting dependents*.
    pub(crate) fn end_waiting(&mut self, index: u32) {
        if self.is(index, DELETING_DEPENDENTS) {
            self.waits.remove(&index);
        }
    }

    pub(crate) fn waits(&self, index: u32) -> Option<&Waits> {
        if self.is(index, DELETING_DEPENDENTS) { self.waits.get(&index) } else { None }
    }

    /// Before a node begins to be deleted, or lives again: owners that wait for it are told.
    pub(crate) fn turn(&mut self, index: u32, is_being_deleted: bool) {
        let mut at = self.node(index).first_reference;
        while at != NONE {
            let Edge { owner, next_reference, .. } = *self.edge(at);
            if owner != NONE
                && self.edge(at).has(BLOCKS)
                && self.is(owner, DELETING_DEPENDENTS)
                && let Some(waits) = self.waits.get_mut(&owner)
            {
                waits.idle = if is_being_deleted { waits.idle - 1 } else { waits.idle + 1 };
            }
            at = next_reference;
        }
    }

    fn count(&mut self, edge: u32, count: fn(&mut Waits, &Edge, bool)) {
        let edge = *self.edge(edge);
        if self.is(edge.owner, DELETING_DEPENDENTS) {
            let is_idle = !self.is(edge.dependent, BEING_DELETED);
            if let Some(waits) = self.waits.get_mut(&edge.owner) {
                count(waits, &edge, is_idle);
            }
        }
    }

    /// Whether an owner is worth a look since a dependent has gone or does not block it any more. One that waits for
    /// some that nobody has begun to delete goes through all of them at each look, and they have been put on the queue
    /// before: it gets its look when an eighth has gone, so that all of its looks together take a time that is linear
    /// in its dependents. With fewer than eight that is each time.
    pub(crate) fn is_worth_a_look(&mut self, owner: u32) -> bool {
        if !self.is(owner, DELETING_DEPENDENTS) {
            return true;
        }
        let Some(waits) = self.waits.get_mut(&owner) else { return true };
        waits.gone += 1;
        let is_worth_it = waits.idle == 0 || waits.references / 8 < waits.gone;
        if is_worth_it {
            waits.gone = 0;
        }
        is_worth_it
    }

    /// The count, and what it would be if it were made anew. For the check of invariants.
    #[cfg(any(test, feature = "fixture"))]
    pub(crate) fn count_again(&self, index: u32) -> (Option<Waits>, Option<Waits>) {
        let held = self.waits.get(&index).copied();
        let is_waiting = self.is(index, DELETING_DEPENDENTS);
        let mut waits = Waits { gone: held.unwrap_or_default().gone, ..Waits::default() };
        for first in self.dependents(index) {
            let is_idle = !self.is(self.edge(first).dependent, BEING_DELETED);
            self.group(first).for_each(|edge| waits.add(self.edge(edge), is_idle));
        }
        (held, is_waiting.then_some(waits))
    }

    /// How many nodes wait. For the check of invariants.
    #[cfg(any(test, feature = "fixture"))]
    pub(crate) fn waits_len(&self) -> usize {
        self.waits.len()
    }
}

fn uid_of_text(text: TextRef) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&text.at.to_ne_bytes());
    bytes[4..8].copy_from_slice(&text.len.to_ne_bytes());
    bytes
}

fn text_of_uid(bytes: &[u8; 16]) -> TextRef {
    let [a, b, c, d, e, f, g, h, ..] = *bytes;
    TextRef { at: u32::from_ne_bytes([a, b, c, d]), len: u32::from_ne_bytes([e, f, g, h]) }
}

/// A resourceVersion that is a number and is spelled as numbers are printed.
fn canonical_number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = digits && (text == "0" || !text.starts_with('0'));
    if canonical { text.parse().ok() } else { None }
}

/// Memory.
impl Store {
    pub(crate) fn memory_bytes(&self) -> usize {
        self.nodes.memory_bytes()
            + self.edges.memory_bytes()
            + self.texts.capacity_bytes()
            + self.kinds.memory_bytes()
            + self.namespaces.memory_bytes()
            + self.written.memory_bytes()
            + self.table.allocation_size()
            + self.waits.allocation_size()
    }

    /// Gives memory back when less than half of what is held is in use. Below 256 KiB there is nothing to win.
    /// A rebuild costs as much as what lives, and as many changes must have passed since the last one, so each
    /// change pays a constant share. Kinds, namespaces and written coordinates need not be asked: there are never more
    /// of them than nodes and references, which take more.
    pub(crate) fn shrink_if_sparse(&mut self) {
        const SMALL_BYTES: usize = 256 << 10;
        let (node, edge) = (size_of::<NodeSlot>(), size_of::<Edge>());
        let held = self.nodes.slots.capacity() * node
            + self.edges.slots.capacity() * edge
            + self.texts.capacity_bytes();
        if held < SMALL_BYTES {
            return;
        }
        let used = self.nodes.len() * node + self.edges.len() * edge + self.texts.used_bytes();
        if used < held / 2 {
            self.rebuild();
        }
    }

    /// Closes all gaps. The order of nodes, references and dependents stays.
    pub(crate) fn rebuild(&mut self) {
        let kinds = self.kinds.compact();
        let namespaces = self.namespaces.compact();
        let written = self.written.compact();
        let hasher = &self.hasher;
        self.written.update(
            |written| written.kind = kinds[written.kind as usize],
            |written| hasher.hash_one((written.kind, &*written.name)),
        );
        let new_nodes = renumber(&self.nodes.slots, |node| node.kind != NONE);
        let new_edges = renumber(&self.edges.slots, |edge| edge.dependent != NONE);
        let moved = |index: u32, numbers: &[u32]| numbers.get(index as usize).copied().unwrap_or(NONE);

        let mut edges = Vec::with_capacity(self.edges.len());
        for edge in self.edges.slots.iter().filter(|edge| edge.dependent != NONE) {
            let mut edge = Edge {
                dependent: moved(edge.dependent, &new_nodes),
                owner: moved(edge.owner, &new_nodes),
                next_reference: moved(edge.next_reference, &new_edges),
                next_dependent: moved(edge.next_dependent, &new_edges),
                previous_dependent: moved(edge.previous_dependent, &new_edges),
                ..*edge
            };
            if !edge.is_as_owner() {
                edge.set_written(moved(edge.written(), &written));
            }
            edges.push(edge);
        }
        self.edges = Slab { slots: edges, free: Vec::new() };
        let waits = std::mem::take(&mut self.waits).into_iter();
        self.waits = waits.map(|(index, waits)| (moved(index, &new_nodes), waits)).collect();

        let mut nodes = Vec::with_capacity(self.nodes.len());
        let mut texts = Texts::with_capacity_bytes(self.texts.used_bytes());
        for node in self.nodes.slots.iter().filter(|node| node.kind != NONE) {
            let mut node = NodeSlot {
                name: texts.insert(self.texts.get(node.name)),
                namespace: moved(node.namespace, &namespaces),
                kind: moved(node.kind, &kinds),
                first_reference: moved(node.first_reference, &new_edges),
                first_dependent: moved(node.first_dependent, &new_edges),
                ..*node
            };
            self.move_texts(&mut node, &mut texts);
            nodes.push(node);
        }
        (self.nodes, self.texts) = (Slab { slots: nodes, free: Vec::new() }, texts);
        self.rebuild_table();
    }

    /// What the texts of a node take, for the check of invariants.
    #[cfg(any(test, feature = "fixture"))]
    pub(crate) fn text_bytes(&self, index: u32) -> usize {
        let node = self.node(index);
        let mut bytes = Texts::taken_bytes(node.name);
        if node.flags & UID_IS_TEXT != 0 {
            bytes += Texts::taken_bytes(text_of_uid(&node.uid));
        }
        if node.flags & VERSION_IS_TEXT != 0 {
            bytes += Texts::taken_bytes(TextRef { at: node.version[0], len: node.version[1] });
        }
        bytes
    }

    fn move_texts(&self, node: &mut NodeSlot, texts: &mut Texts) {
        if node.flags & UID_IS_TEXT != 0 {
            node.uid = uid_of_text(texts.insert(self.texts.get(text_of_uid(&node.uid))));
        }
        if node.flags & VERSION_IS_TEXT != 0 {
            let [at, len] = node.version;
            let place = texts.insert(self.texts.get(TextRef { at, len }));
            node.version = [place.at, place.len];
        }
    }

    fn rebuild_table(&mut self) {
        let mut table = HashTable::with_capacity(self.nodes.len());
        for index in self.indexes() {
            let hash = self.hash_uid(self.uid(index));
            table.insert_unique(hash, index, |&other| self.hash_uid(self.uid(other)));
        }
        self.table = table;
    }
}

/// The new numbers of the slots that are in use, in order.
fn renumber<T>(slots: &[T], in_use: impl Fn(&T) -> bool) -> Vec<u32> {
    let mut next = 0;
    let number = |slot: &T| {
        if !in_use(slot) {
            return NONE;
        }
        next += 1;
        next - 1
    };
    slots.iter().map(number).collect()
}
