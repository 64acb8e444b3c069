//! The questions that the graph answers, none of which changes it (spec G11).

use hashbrown::HashSet;

use crate::change::Coordinate;
use crate::graph::Graph;
use crate::node::Node;
use crate::store::{ABSENT, NONE};
use crate::uid::Uid;

/// At most this many steps are in one [`BlockingChain`]: more than a person reads, and a bound on the work.
pub const BLOCKING_CHAIN_LIMIT: usize = 10_000;

/// From a stuck node down to what really holds it; see [`Graph::blocking_chain`].
#[derive(Clone, Debug, Default)]
pub struct BlockingChain<'g> {
    /// The stuck node, then those that hold it directly, and so on down.
    pub steps: Vec<BlockingStep<'g>>,
    /// Whether there was more than [`BLOCKING_CHAIN_LIMIT`].
    pub truncated: bool,
}

/// One node of a [`BlockingChain`].
#[derive(Clone, Copy, Debug)]
pub struct BlockingStep<'g> {
    /// The node.
    pub node: Node<'g>,
    /// The step of the owner that it holds; the stuck node has none.
    pub holds: Option<usize>,
    /// How many steps below the stuck node it is.
    pub depth: usize,
    /// Whether the chain ends here: it is not waiting for dependents of its own, so what keeps it, keeps all above.
    pub is_end: bool,
    /// Whether it is in the chain before: a cycle, or a second way to the same node. It is not followed again.
    pub is_repeated: bool,
}

impl Graph {
    /// How many nodes there are, virtual ones included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many nodes are virtual.
    pub fn virtual_len(&self) -> usize {
        self.virtual_len
    }

    /// The node of a UID.
    pub fn get(&self, uid: &Uid) -> Option<Node<'_>> {
        self.find_present(uid.as_ref()).map(|index| Node::new(self, index))
    }

    /// Since when exactly this coordinate is proved absent, by the number of [`Graph::set_stamp`]; `None` where it is
    /// not, or where no reference names it any more (spec D15: the proof stays as long as one does).
    pub fn absent_since(&self, coordinate: &Coordinate) -> Option<u32> {
        let Coordinate { kind, api_version, namespace, name, uid } = coordinate;
        let index = self.store.find(uid.as_ref()).filter(|&index| self.store.is(index, ABSENT))?;
        let is_it = self.store.is_named(index, api_version, kind, name)
            && self.store.namespace(index) == namespace.as_str();
        is_it.then(|| self.store.stamp_of(index))
    }

    /// All nodes, in the order of the arena.
    pub fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        let present = |index: &u32| !self.store.is(*index, ABSENT);
        self.store.indexes().filter(present).map(|index| Node::new(self, index))
    }

    /// All nodes of one kind, virtual ones included, in the order of the arena.
    pub fn nodes_of_kind(&self, api_version: &str, kind: &str) -> impl Iterator<Item = Node<'_>> {
        let kind = self.store.find_kind(api_version, kind).unwrap_or(NONE);
        self.nodes().filter(move |node| self.store.node(node.index()).kind == kind)
    }

    /// The nodes from which the trees hang: those that name no other node of the graph as an owner.
    pub fn roots(&self) -> impl Iterator<Item = Node<'_>> {
        self.nodes().filter(|node| node.owners().all(|(owner, _)| owner == *node))
    }

    /// From a node that is *deleting dependents* down its blocking dependents to those that really hold it: the
    /// ones that do not wait for dependents of their own. Breadth first, each node followed once. Empty when the
    /// UID is not in the graph; only the node itself when nothing blocks it.
    pub fn blocking_chain(&self, uid: &Uid) -> BlockingChain<'_> {
        let mut chain = BlockingChain::default();
        let Some(stuck) = self.get(uid) else {
            return chain;
        };
        let mut visited: HashSet<u32> = [stuck.index()].into_iter().collect();
        let step = BlockingStep { node: stuck, holds: None, depth: 0, is_end: true, is_repeated: false };
        chain.steps.push(step);
        let mut at = 0;
        while let Some(&BlockingStep { node, depth, is_repeated, .. }) = chain.steps.get(at) {
            let waits = node.is_deleting_dependents() && !is_repeated;
            for dependent in node.blocking_dependents().filter(|_| waits) {
                if chain.steps.len() == BLOCKING_CHAIN_LIMIT {
                    chain.truncated = true;
                    return chain;
                }
                chain.steps[at].is_end = false;
                let is_repeated = !visited.insert(dependent.index());
                let (holds, depth) = (Some(at), depth + 1);
                let is_end = !is_repeated;
                chain.steps.push(BlockingStep { node: dependent, holds, depth, is_end, is_repeated });
            }
            at += 1;
        }
        chain
    }

    /// The cycles of ownership: groups of nodes each of which owns all the others, directly or not, and nodes
    /// that own themselves. Each group once. Where the group is one simple ring it is given in the order of
    /// ownership (each followed by an owner of it), from its least UID on; else in the order of the UIDs.
    pub fn cycles(&self) -> Vec<Vec<Uid>> {
        let mut cycles: Vec<Vec<Uid>> = crate::cycles::strong_components(&self.store)
            .iter()
            .map(|component| crate::cycles::in_order(&self.store, component))
            .collect();
        cycles.sort();
        cycles
    }

    /// An estimate of the memory that the graph holds, in bytes: all that grows with the objects in it.
    pub fn memory_bytes(&self) -> usize {
        self.store.memory_bytes()
    }
}
