//! One node, seen from outside.

use crate::change::{Coordinate, OwnerReference};
use crate::graph::Graph;
use crate::store::{
    ABSENT, BEING_DELETED, BLOCKS, DELETING_DEPENDENTS, NAMES_POLICY, NONE, ORPHANING, TWO_KINDS, VIRTUAL,
};
use crate::uid::Uid;

/// A view of one node, borrowed from the graph.
#[derive(Clone, Copy, Debug)]
pub struct Node<'g> {
    graph: &'g Graph,
    index: u32,
}

impl PartialEq for Node<'_> {
    /// Whether both are the same node of the same graph.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.graph, other.graph) && self.index == other.index
    }
}

impl Eq for Node<'_> {}

/// A resourceVersion, opaque, for whoever has to remember many: a number takes 16 bytes and no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceVersion(pub(crate) Version);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Number(u64),
    /// Also none at all, as an empty text.
    Text(Box<str>),
}

/// What the graph knows of the owner that a reference names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerState<'g> {
    /// A watch has shown an object of that UID. Whether it is the one that the reference names, its coordinate
    /// tells.
    Observed(Node<'g>),
    /// Nothing has shown it yet.
    Virtual(Node<'g>),
    /// Proved absent under this very coordinate: its deletion was observed, or a worker found it absent. This
    /// is the proof that spec D15 speaks of; it stays as long as the reference does.
    Absent,
    /// Nothing is known: the reference has no UID, or an object of that UID went under another coordinate.
    Unknown,
}

impl<'g> Node<'g> {
    pub(crate) fn new(graph: &'g Graph, index: u32) -> Node<'g> {
        Node { graph, index }
    }

    pub(crate) fn index(self) -> u32 {
        self.index
    }

    /// The UID.
    pub fn uid(self) -> Uid {
        self.graph.store.to_uid(self.index)
    }

    /// The group and version, as in `apps/v1`.
    pub fn api_version(self) -> &'g str {
        &self.graph.store.kind(self.index).api_version
    }

    /// The kind.
    pub fn kind(self) -> &'g str {
        &self.graph.store.kind(self.index).kind
    }

    /// The namespace; empty for a cluster-scoped object. A virtual node has that of a dependent.
    pub fn namespace(self) -> &'g str {
        self.graph.store.namespace(self.index)
    }

    /// The name.
    pub fn name(self) -> &'g str {
        self.graph.store.name(self.index)
    }

    /// The whole coordinate; a virtual node's is the one under which it is looked for.
    pub fn coordinate(self) -> Coordinate {
        Coordinate {
            kind: self.kind().to_owned(),
            api_version: self.api_version().to_owned(),
            namespace: self.namespace().to_owned(),
            name: self.name().to_owned(),
            uid: self.uid(),
        }
    }

    /// The resourceVersion last observed, to be compared with that of another moment.
    pub fn version(self) -> ResourceVersion {
        ResourceVersion(self.graph.store.to_version(self.index))
    }

    /// The resourceVersion last observed, to the letter; empty for a virtual node.
    pub fn resource_version(self) -> String {
        self.graph.store.version(self.index)
    }

    /// Whether only references have named it so far.
    pub fn is_virtual(self) -> bool {
        self.graph.store.is(self.index, VIRTUAL)
    }

    /// Whether it was last observed with a deletion timestamp.
    pub fn is_being_deleted(self) -> bool {
        self.graph.store.is(self.index, BEING_DELETED)
    }

    /// Whether it is being deleted with the finalizer `foregroundDeletion` and without `orphan`.
    pub fn is_deleting_dependents(self) -> bool {
        self.graph.store.is(self.index, DELETING_DEPENDENTS)
    }

    /// Whether it is being deleted with the finalizer `orphan`.
    pub fn is_orphaning(self) -> bool {
        self.graph.store.is(self.index, ORPHANING)
    }

    /// Whether it was last observed with the finalizer `orphan` or `foregroundDeletion` although it is not being
    /// deleted: somebody has said in advance how its dependents are to be treated (spec D10).
    pub fn names_policy(self) -> bool {
        self.graph.store.is(self.index, NAMES_POLICY)
    }

    /// Whether two watches show it under two kinds (a namespace that is a project, too). What is known of it is what the
    /// last event of either said.
    pub fn has_two_kinds(self) -> bool {
        self.graph.store.is(self.index, TWO_KINDS)
    }

    /// Its references exactly as observed: in their order, with repeated UIDs.
    pub fn owner_references(self) -> impl Iterator<Item = OwnerReference> + 'g {
        let graph = self.graph;
        graph.store.references(self.index).map(move |edge| graph.owner_reference(edge))
    }

    /// Its references, each with what the graph knows of the owner.
    pub fn owner_states(self) -> impl Iterator<Item = (OwnerReference, OwnerState<'g>)> + 'g {
        let graph = self.graph;
        let edges = graph.store.references(self.index);
        edges.map(move |edge| (graph.owner_reference(edge), self.owner_state(edge)))
    }

    fn owner_state(self, edge: u32) -> OwnerState<'g> {
        let store = &self.graph.store;
        let edge = store.edge(edge);
        if edge.owner == NONE {
            return OwnerState::Unknown;
        }
        let owner = Node::new(self.graph, edge.owner);
        if store.is(edge.owner, ABSENT) {
            let there = owner.namespace().is_empty() || owner.namespace() == self.namespace();
            return if there && edge.is_as_owner() { OwnerState::Absent } else { OwnerState::Unknown };
        }
        if owner.is_virtual() { OwnerState::Virtual(owner) } else { OwnerState::Observed(owner) }
    }

    /// The references whose owners are in the graph, virtual ones included.
    pub fn owners(self) -> impl Iterator<Item = (Node<'g>, OwnerReference)> + 'g {
        self.owner_states().filter_map(|(reference, state)| match state {
            OwnerState::Observed(owner) | OwnerState::Virtual(owner) => Some((owner, reference)),
            OwnerState::Absent | OwnerState::Unknown => None,
        })
    }

    /// Whether any node names it as an owner.
    pub fn has_dependents(self) -> bool {
        self.graph.store.node(self.index).first_dependent != NONE
    }

    /// The nodes that name it as an owner, each once, itself included if it does.
    pub fn dependents(self) -> impl Iterator<Item = Node<'g>> + 'g {
        let graph = self.graph;
        graph.store.dependents(self.index).map(move |edge| Node::new(graph, graph.store.edge(edge).dependent))
    }

    /// The other coordinates by which dependents name a node that was never observed, some perhaps more than once (G9).
    /// Where all name it by its own this is known without looking through them.
    pub fn other_coordinates(self) -> impl Iterator<Item = Coordinate> + 'g {
        let (graph, index) = (self.graph, self.index);
        let is_doubted = self.is_virtual() && graph.store.is_doubted(index);
        let first = if is_doubted { Some(graph.store.dependents(index)) } else { None };
        let edges = first.into_iter().flatten().flat_map(|first| graph.store.group(first));
        edges.filter(move |edge| graph.is_mismatched(*edge)).map(move |edge| {
            let (kind, name) = graph.store.written(edge);
            let namespace = graph.store.namespace(graph.store.edge(edge).dependent);
            Coordinate {
                api_version: kind.api_version.to_string(),
                kind: kind.kind.to_string(),
                namespace: namespace.into(),
                name: name.into(),
                uid: self.uid(),
            }
        })
    }

    /// Whether any dependent blocks its deletion. Of a node that is *deleting dependents* this is known, however many
    /// it has.
    pub fn is_blocked(self) -> bool {
        match self.graph.store.waits(self.index) {
            Some(waits) => waits.blocking > 0,
            None => self.blocking_dependents().next().is_some(),
        }
    }

    /// Whether one of those that block it is not being deleted itself; known in the same way.
    pub fn has_idle_blocking_dependents(self) -> bool {
        match self.graph.store.waits(self.index) {
            Some(waits) => waits.idle > 0,
            None => self.blocking_dependents().any(|dependent| !dependent.is_being_deleted()),
        }
    }

    /// The dependents that have at least one reference to it with `blockOwnerDeletion: true`, each once.
    pub fn blocking_dependents(self) -> impl Iterator<Item = Node<'g>> + 'g {
        let store = &self.graph.store;
        let blocks = move |first: &u32| store.group(*first).any(|edge| store.edge(edge).has(BLOCKS));
        let to_node = move |edge| Node::new(self.graph, store.edge(edge).dependent);
        store.dependents(self.index).filter(blocks).map(to_node)
    }
}
