//! Objects that are being deleted in the foreground and wait for each other in a circle (D3).
//!
//! Nothing in such a circle would ever go: each blocks the deletion of the next one's owner. D9 makes the references of an
//! item non-blocking before it deletes it, where it sees a circle coming. It cannot see all of them: users delete in the
//! foreground what is already in a circle, an object may name itself, two workers may close a circle from both its
//! ends, and a watch may lag behind the read that showed an owner waiting. A circle that is closed shows in the graph,
//! though, and whoever is looked at last opens it: its references into the circle become non-blocking.

use std::time::Duration;

use gc_graph::{Coordinate, Graph, Node, Uid};
use hashbrown::HashSet;

use crate::finalizer::{describe, plausible};
use crate::{
    FOREGROUND_FINALIZER, LiveObject, ORPHAN_FINALIZER, Outcome, OwnerReference, PatchKind, PatchedField,
    Reply, Request, State, Step, Target, Why, patch,
};

/// How many owners one search looks at: more than anybody nests, and less than a millisecond.
const OWNERS_MAX: usize = 10_000;
/// After this many conflicts in a row the item goes back to the queue: somebody writes faster than we read.
const CONFLICTS_MAX: u32 = 10;

/// The owners that a waiting node blocks and that wait, directly or not, for the node itself.
pub(crate) fn owners_in_a_circle(graph: &Graph, node: Node<'_>) -> Vec<Uid> {
    let mut looked_at = 0;
    let mut owners: Vec<Uid> = blocked_and_waiting(node).map(|owner| owner.uid()).collect();
    owners.retain(|owner| graph.get(owner).is_some_and(|owner| waits_for(owner, node, &mut looked_at)));
    owners.sort_unstable();
    owners.dedup();
    owners
}

fn blocked_and_waiting<'g>(node: Node<'g>) -> impl Iterator<Item = Node<'g>> {
    let owners = node.owners().filter(|(_, reference)| reference.block_owner_deletion);
    owners.map(|(owner, _)| owner).filter(|owner| owner.is_deleting_dependents())
}

/// Whether this owner blocks an owner that blocks an owner... that is the node. Upwards, since an object has few owners
/// and may have many dependents.
fn waits_for(owner: Node<'_>, node: Node<'_>, looked_at: &mut usize) -> bool {
    let mut seen: HashSet<Uid> = HashSet::from([owner.uid()]);
    let mut to_do = vec![owner];
    while let Some(next) = to_do.pop() {
        if next == node {
            return true;
        }
        *looked_at += 1;
        if OWNERS_MAX < *looked_at {
            return false;
        }
        to_do.extend(blocked_and_waiting(next).filter(|above| seen.insert(above.uid())));
    }
    false
}

/// Reads the item, and makes its references to these owners non-blocking in the version just read.
#[derive(Clone, Debug)]
pub(crate) struct OpenCircle {
    item: Coordinate,
    target: Target,
    owners: Vec<Uid>,
    conflicts: u32,
    asked: Asked,
}

#[derive(Clone, Debug)]
enum Asked {
    Nothing,
    Read,
    Strategic(LiveObject),
    Merge,
}

impl OpenCircle {
    pub(crate) fn new(item: Coordinate, target: Target, owners: Vec<Uid>) -> OpenCircle {
        OpenCircle { item, target, owners, conflicts: 0, asked: Asked::Nothing }
    }

    /// The first step has no reply.
    pub(crate) fn step(
        &mut self,
        state: &mut State,
        (now, asked_at): (Duration, Duration),
        reply: Option<Reply>,
    ) -> Step {
        match (std::mem::replace(&mut self.asked, Asked::Nothing), plausible(reply)) {
            (_, Some(Reply::NotFound { proof: true })) => {
                Step::Done(state.gone(&self.item, &self.target, now, asked_at))
            }
            (Asked::Nothing, None) => self.read(),
            (Asked::Read, Some(Reply::Object(live))) if Uid::new(&live.uid) != self.item.uid => {
                Step::Done(Outcome::Forget(Why::Gone))
            }
            (Asked::Read, Some(Reply::Object(live))) => self.patch(state, live),
            (Asked::Strategic(_) | Asked::Merge, Some(Reply::Object(_))) => {
                Step::Done(Outcome::Forget(Why::ReferencesUnblocked(self.owners.len())))
            }
            (Asked::Strategic(live), Some(Reply::UnsupportedMediaType)) => {
                state.note_json_merge_only(&self.target.resource);
                self.patch(state, live)
            }
            (Asked::Strategic(_) | Asked::Merge, Some(Reply::Conflict | Reply::Invalid(_)))
                if self.conflicts < CONFLICTS_MAX =>
            {
                self.conflicts += 1;
                self.read()
            }
            (_, reply) => self.retry(&describe(reply)),
        }
    }

    fn read(&mut self) -> Step {
        self.asked = Asked::Read;
        Step::Call(Request::Read(self.target.clone()))
    }

    fn patch(&mut self, state: &State, live: LiveObject) -> Step {
        let opens = |r: &OwnerReference| r.blocks() && self.owners.contains(&Uid::new(&r.uid));
        let waits = live.has_finalizer(FOREGROUND_FINALIZER) && !live.has_finalizer(ORPHAN_FINALIZER);
        if !live.being_deleted || !waits || !live.owner_references.iter().any(opens) {
            // Somebody has opened the circle, or wants it orphaned after all; the watch will show it.
            return Step::Done(Outcome::Forget(Why::WaitsForDependents));
        }
        if live.resource_version.is_empty() {
            return self.retry("it was read without a version");
        }
        let after: Vec<OwnerReference> = live
            .owner_references
            .iter()
            .map(|r| if opens(r) { patch::unblocked(r) } else { r.clone() })
            .collect();
        let is_strategic =
            state.takes_strategic_merge(&self.target.resource) && !patch::has_duplicate_uids(&live);
        let (kind, body) = if is_strategic {
            (PatchKind::StrategicMerge, patch::strategic_unblock(&live, opens))
        } else {
            (PatchKind::JsonMerge, patch::merge_references(&live, &after))
        };
        self.asked = if is_strategic { Asked::Strategic(live) } else { Asked::Merge };
        Step::Call(Request::Patch {
            target: self.target.clone(),
            change: PatchedField::OwnerReferences,
            kind,
            body,
        })
    }

    fn retry(&self, reason: &str) -> Step {
        Step::Done(Outcome::Retry(format!(
            "{} waits for itself, and its references still block: {reason}",
            self.target
        )))
    }
}
