//! The items that wait for a moment: a heap that knows where each item stands in it.
//!
//! Because every slot's place is known, a deadline is moved or removed where it stands.
//! Nothing dead stays in the heap, so a million re-schedulings of one item take one node.

use crate::time::Nanos;

/// Slots by deadline; equal deadlines in the order in which they were set.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: Vec<Node>,
    /// Where each slot stands in `heap`; [`ABSENT`] or beyond the end when it has no deadline.
    positions: Vec<u32>,
    next_sequence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Node {
    at: Nanos,
    sequence: u64,
    slot: u32,
}

const ABSENT: u32 = u32::MAX;

/// Children per node. Four halve the height of a binary heap, and the children share a cache line or two.
const ARITY: usize = 4;

impl Timers {
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// The earliest deadline.
    pub(crate) fn first(&self) -> Option<Nanos> {
        self.heap.first().map(|node| node.at)
    }

    /// The slot's deadline.
    pub(crate) fn deadline(&self, slot: u32) -> Option<Nanos> {
        let position = self.position(slot)?;
        self.heap.get(position).map(|node| node.at)
    }

    /// Sets the slot's deadline and replaces the one it had.
    pub(crate) fn set(&mut self, slot: u32, at: Nanos) {
        let node = Node { at, sequence: self.next_sequence, slot };
        self.next_sequence += 1;
        if let Some(position) = self.position(slot) {
            self.heap[position] = node;
            self.restore(position);
            return;
        }
        if self.positions.len() <= slot as usize {
            self.positions.resize(slot as usize + 1, ABSENT);
        }
        self.heap.push(node);
        self.sift_up(self.heap.len() - 1);
    }

    /// Removes the slot's deadline; false when it had none.
    pub(crate) fn remove(&mut self, slot: u32) -> bool {
        let Some(position) = self.position(slot) else { return false };
        self.positions[slot as usize] = ABSENT;
        self.heap.swap_remove(position);
        if position < self.heap.len() {
            self.restore(position);
        }
        true
    }

    /// Removes and returns the slot with the earliest deadline that is not after `now`.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<(u32, Nanos)> {
        let first = *self.heap.first()?;
        if first.at > now {
            return None;
        }
        self.remove(first.slot);
        Some((first.slot, first.at))
    }

    /// Removes all deadlines and returns their slots, in no particular order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = u32> + use<> {
        self.positions = Vec::new();
        std::mem::take(&mut self.heap).into_iter().map(|node| node.slot)
    }

    fn position(&self, slot: u32) -> Option<usize> {
        let position = *self.positions.get(slot as usize)?;
        (position != ABSENT).then_some(position as usize)
    }

    /// Moves the node to where it belongs after it was replaced; one of the two is a no-op.
    fn restore(&mut self, position: usize) {
        let position = self.sift_up(position);
        self.sift_down(position);
    }

    fn sift_up(&mut self, mut position: usize) -> usize {
        let node = self.heap[position];
        while position > 0 {
            let parent = (position - 1) / ARITY;
            if self.heap[parent] <= node {
                break;
            }
            self.place(position, self.heap[parent]);
            position = parent;
        }
        self.place(position, node);
        position
    }

    fn sift_down(&mut self, mut position: usize) {
        let node = self.heap[position];
        loop {
            let first_child = position * ARITY + 1;
            let children = first_child..(first_child + ARITY).min(self.heap.len());
            let Some(least) = children.min_by_key(|&child| self.heap[child]) else { break };
            if node <= self.heap[least] {
                break;
            }
            self.place(position, self.heap[least]);
            position = least;
        }
        self.place(position, node);
    }

    #[expect(clippy::cast_possible_truncation, reason = "the heap holds each u32 slot at most once")]
    fn place(&mut self, position: usize, node: Node) {
        self.heap[position] = node;
        self.positions[node.slot as usize] = position as u32;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The heap against the plainest thing that can do the same: a list that is searched.
        #[test]
        fn timers_agree_with_a_searched_list(
            steps in prop::collection::vec((0u8..4, 0u32..20, 0u64..50), 0..200)
        ) {
            let mut timers = Timers::default();
            let mut list: Vec<(u64, u64, u32)> = Vec::new();
            for (sequence, (step, slot, at)) in (0u64..).zip(steps) {
                match step {
                    0 | 1 => {
                        timers.set(slot, at);
                        list.retain(|entry| entry.2 != slot);
                        list.push((at, sequence, slot));
                    }
                    2 => {
                        let had = list.iter().any(|entry| entry.2 == slot);
                        list.retain(|entry| entry.2 != slot);
                        prop_assert_eq!(timers.remove(slot), had);
                    }
                    _ => {
                        list.sort_unstable();
                        let due = list.first().copied().filter(|entry| entry.0 <= at);
                        list.retain(|entry| Some(entry.2) != due.map(|entry| entry.2));
                        prop_assert_eq!(timers.pop_due(at), due.map(|entry| (entry.2, entry.0)));
                    }
                }
                prop_assert_eq!(timers.len(), list.len());
                prop_assert_eq!(timers.first(), list.iter().map(|entry| entry.0).min());
                let expected = list.iter().find(|entry| entry.2 == slot).map(|entry| entry.0);
                prop_assert_eq!(timers.deadline(slot), expected);
            }
        }
    }

    /// Deadlines are set, moved and removed at random; what is due comes in the order of its deadlines, whole and once.
    #[test]
    fn q2_many_deadlines_come_in_their_order() {
        let mut timers = Timers::default();
        let mut deadlines = std::collections::BTreeMap::new();
        let mut random = 1_u64;
        let mut below = |limit: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % limit
        };
        for _ in 0..20_000 {
            let slot = u32::try_from(below(300)).unwrap();
            if below(4) == 0 {
                assert_eq!(timers.remove(slot), deadlines.remove(&slot).is_some());
            } else {
                let at = below(1_000_000);
                timers.set(slot, at);
                deadlines.insert(slot, at);
            }
            assert_eq!(timers.first(), deadlines.values().min().copied());
        }
        let mut expected: Vec<Nanos> = deadlines.into_values().collect();
        expected.sort_unstable();
        let popped: Vec<Nanos> =
            std::iter::from_fn(|| timers.pop_due(Nanos::MAX)).map(|(_, at)| at).collect();
        assert_eq!(popped, expected);
    }

    #[test]
    fn moving_one_deadline_a_million_times_keeps_one_node() {
        let mut timers = Timers::default();
        for at in 0..1_000_000 {
            timers.set(7, at);
        }
        assert_eq!((timers.len(), timers.heap.len(), timers.positions.len()), (1, 1, 8));
    }
}
