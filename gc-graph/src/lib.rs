#![doc = include_str!("../README.md")]
//!
//! # How it behaves
//!
//! There is one node for each UID. A node is *observed* when a watch has shown its object, and *virtual* when only
//! references of others name it. A change is one of these, and the graph changes by nothing else:
//!
//! - [`Graph::observe`]: an object was added or updated.
//! - [`Graph::delete`]: a watch saw it deleted.
//! - [`Graph::virtual_delete`]: a worker found that no such object exists.
//! - [`Graph::reconsider`]: a worker found that no object can have such a coordinate.
//! - [`Graph::begin_list`] and [`Graph::end_list`]: what a new list does not show is gone. There is no second cache to
//!   compare with.
//! - [`Graph::unserve`]: a resource is no longer served, which proves nothing about its objects.
//! - [`Graph::forget_absent`]: the server went back in time.
//!
//! The same changes give the same effects in the same order, always. Within one change an object is put on a queue at
//! most once. The words and the rules are those of the garbage collector in kube-controller-manager ("the reference");
//! where this graph goes further, the reason stands at the place:
//!
//! - The flags of a node (being deleted, deleting dependents, orphaning) are levels, not edges: they are what the last
//!   observation said (kubernetes#77081, #89503). A dependent that is new to an owner that is *deleting dependents* is put
//!   on the queue as those that were there before, so that the order in which watches show them does not matter.
//! - An owner that is *deleting dependents* goes to attempt-to-delete when a dependent is gone, or no longer blocks it.
//!   While some of those that block it are not being deleted themselves, a look at it goes through all of them: then it
//!   goes there when an eighth of its dependents has gone since the last time (with fewer than eight, each time), so that
//!   all looks together are linear in the dependents. [`Node::is_blocked`] needs no look at them at all.
//! - A virtual node goes with the last reference to it. It stands for its references, and for nothing else.
//! - A node that is proved absent stays as a mark while references name it: [`Node::owner_states`] tells. The proof is
//!   not lost to a bounded cache when thousands of owners go at once, and when the object turns up again after all its
//!   dependents are still its own. Such nodes are not counted, not listed and not found.
//! - Owners and dependents are exactly inverse: a node's dependents are the nodes whose references have its UID.
//! - A reference whose coordinates change under the same UID is checked as a new one is.
//! - A report of a reference into a wrong namespace does not depend on who was seen first (kubernetes#92743).
//! - An object that is shown under two kinds by two watches keeps the one that was seen first.
//! - A reference with an empty UID names nobody, and an object with one is refused.
//!
//! # How it is small
//!
//! A node takes 52 bytes:
//!
//! | bytes | for |
//! |---|---|
//! | 16 | the UID, or where its text is when it is not canonical |
//! | 8 | the resourceVersion, or where its text is when it is not a number |
//! | 8 | where its name is |
//! | 4 + 4 | the numbers of its namespace and its kind with apiVersion, both held once and counted |
//! | 4 | its first owner reference |
//! | 4 | the first reference to it: its dependents |
//! | 2 | the watch that showed it |
//! | 2 | flags |
//!
//! An owner reference takes 24 bytes: its dependent, its owner, the next reference of the dependent, the next and the
//! previous one in the owner's list, and the flags together with the number of the coordinates as written, where those
//! are not simply the owner's own. A name takes its length in eights, an entry in the table of UIDs 6 to 12 bytes.
//! That is about 116 bytes for an object with one owner and a name of 24 characters; a process with a million of them
//! grows by 110 bytes for each, since what is reserved for growth is not resident yet (`tests/resident.rs`). A node that
//! is *deleting dependents* has its references counted, in 24 bytes more.
//!
//! A dependent is added to its owner and removed from it in a constant time, however many there are. What is freed is
//! used again; when less than half of the memory is in use, the arena is rebuilt without its gaps, which costs each
//! change a constant share. Vectors grow by an eighth. After all but a hundredth of a million objects are deleted, 2.5 MB
//! of 110 are left: so with musl, and with glibc where `MALLOC_TRIM_THRESHOLD_=131072` is set. Otherwise glibc keeps up to
//! 64 MB of what is freed for later, and uses it then.
//!
//! # How it is fast
//!
//! `cargo bench -p gc-graph` measures. A change allocates nothing, but for what is new (a namespace, now and then room for
//! more) and for what leaves the graph as an effect: the coordinate of an owner that is gone.
//!
//! | changes a second, one thread, a shared 2-core virtual machine | 100,000 objects | 1,000,000 objects |
//! |---|---|---|
//! | first list | 7.3 million | 2.8 to 3.2 million |
//! | updates in the order of the list | 11 million | 3.4 to 4.6 million |
//! | first list in random order | 5 million | 1.1 million |
//! | the same, all under one owner | 6 million | 2.4 million |
//! | updates in random order | 4 million | 0.95 million |
//! | deletions in random order | 2.7 million | 1.1 million |
//! | deletions in random order, all under one owner | 4 million | 1.4 million |
//!
//! In random order the memory sets the limit at a million objects: an update looks at an entry of the table, a node, its
//! name, its reference, the owner's node and the owner's name, and none of these is in a cache when 116 MB are gone
//! through at random (the profile shows six loads that take nine tenths of the time). All of it has to be compared, since
//! what is not looked at cannot be seen to have changed. Of the first list, a seventh of the time is the kernel's, which
//! hands out the pages. A watch sends some thousand changes a second. That a node has a million dependents costs its
//! changes nothing.
//!
//! # Limits
//!
//! Indexes have 32 bits: about 4 billion nodes, 4 billion references, 32 GiB of names, and 268 million different
//! coordinates that references give otherwise than their owners do. What does not fit is refused whole, the graph
//! stays as it was, and [`Graph::refused`] counts it. An object that is not in the graph is never deleted because of
//! it. Nothing recurses, and nothing takes more than linear time in the size of what it is given or looks through.
//!
//! # Features
//!
//! `fixture` adds the text language of the tests, for the tests of other crates.
#![forbid(unsafe_code)]

mod change;
mod cycles;
mod dot;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
mod graph;
mod intern;
#[cfg(any(test, feature = "fixture"))]
mod invariants;
mod node;
mod query;
mod store;
#[cfg(test)]
mod tests;
mod texts;
mod uid;

pub use change::{
    Coordinate, Effect, InvalidOwnerReference, Observation, OwnerReference, OwnerReferenceRef, SourceId,
};
pub use graph::Graph;
pub use node::{Node, OwnerState, ResourceVersion};
pub use query::{BLOCKING_CHAIN_LIMIT, BlockingChain, BlockingStep};
#[cfg(any(test, feature = "fixture"))]
#[doc(hidden)]
pub use store::edges_read;
pub use uid::Uid;
