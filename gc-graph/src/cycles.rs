//! Strongly connected components, without recursion: how deep ownership goes is in the hands of users.

use hashbrown::HashSet;

use crate::store::{ABSENT, NONE, Store};
use crate::uid::Uid;

/// The components of more than one node, and the nodes that own themselves.
///
/// Tarjan's algorithm with its stack of calls as a vector: each entry is a node and its next reference.
pub(crate) fn strong_components(store: &Store) -> Vec<Vec<u32>> {
    let mut search = Search {
        order: vec![NONE; store.nodes.slots.len()],
        low: vec![NONE; store.nodes.slots.len()],
        open: Vec::new(),
        next: 0,
    };
    let mut components = Vec::new();
    let mut calls: Vec<(u32, u32)> = Vec::new();
    for root in store.indexes().filter(|&index| !store.is(index, ABSENT)) {
        if search.order[root as usize] != NONE {
            continue;
        }
        search.enter(root);
        calls.push((root, store.node(root).first_reference));
        while let Some((index, edge)) = calls.last_mut() {
            let index = *index;
            if *edge == NONE {
                calls.pop();
                if let Some(&(caller, _)) = calls.last() {
                    search.lower(caller, search.low[index as usize]);
                }
                if let Some(component) = search.leave(index)
                    && (component.len() > 1
                        || store.references(index).any(|edge| store.edge(edge).owner == index))
                {
                    components.push(component);
                }
                continue;
            }
            let owner = store.edge(*edge).owner;
            *edge = store.edge(*edge).next_reference;
            if owner == NONE || store.is(owner, ABSENT) {
                continue;
            }
            if search.order[owner as usize] == NONE {
                search.enter(owner);
                calls.push((owner, store.node(owner).first_reference));
            } else if search.low[owner as usize] != CLOSED {
                search.lower(index, search.order[owner as usize]);
            }
        }
    }
    components
}

/// The component of this node is complete. No node has this number: there are fewer nodes.
const CLOSED: u32 = NONE;

struct Search {
    /// When each node was entered.
    order: Vec<u32>,
    /// The earliest node that is reached from each node whose component is not complete.
    low: Vec<u32>,
    open: Vec<u32>,
    next: u32,
}

impl Search {
    fn enter(&mut self, index: u32) {
        self.order[index as usize] = self.next;
        self.low[index as usize] = self.next;
        self.next += 1;
        self.open.push(index);
    }

    fn lower(&mut self, index: u32, to: u32) {
        let low = &mut self.low[index as usize];
        *low = to.min(*low);
    }

    /// The component that is complete with this node, if one is.
    fn leave(&mut self, index: u32) -> Option<Vec<u32>> {
        if self.low[index as usize] != self.order[index as usize] {
            return None;
        }
        let start = self.open.iter().rposition(|&open| open == index)?;
        let component = self.open.split_off(start);
        for &index in &component {
            self.low[index as usize] = CLOSED;
        }
        Some(component)
    }
}

/// The UIDs of a component: along the owners from the least UID on, when that passes through all and returns; else
/// sorted.
pub(crate) fn in_order(store: &Store, component: &[u32]) -> Vec<Uid> {
    let members: HashSet<u32> = component.iter().copied().collect();
    let Some(&start) = component.iter().min_by_key(|&&index| store.to_uid(index)) else {
        return Vec::new();
    };
    let mut ring = Vec::with_capacity(component.len());
    let mut passed = HashSet::new();
    let mut at = start;
    while passed.insert(at) {
        ring.push(store.to_uid(at));
        let owners = store.references(at).map(|edge| store.edge(edge).owner);
        let Some(next) = owners.into_iter().find(|owner| members.contains(owner)) else {
            break;
        };
        at = next;
    }
    if at == start && ring.len() == component.len() {
        return ring;
    }
    let mut sorted: Vec<Uid> = component.iter().map(|&index| store.to_uid(index)).collect();
    sorted.sort();
    sorted
}
