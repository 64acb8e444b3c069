//! Mistakes that garbage collectors have made, as switches for tests: a simulation that cannot find them proves nothing.
//!
//! Without the feature `mistakes`, which no binary turns on, no switch exists and each question here is a constant no.

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// An empty discovery answer is believed, and what is no longer served is gone (kubernetes/kubernetes#60037).
    EmptyDiscoveryIsTruth,
    /// An older version than before is like any other: the restore of a server goes unnoticed (spec S7).
    RestoreUnnoticed,
    /// Bookmarks, events and probes say nothing of the server's version: a list that is newer than the list before
    /// passes, however old it is (spec S7).
    OnlyListsCount,
    /// What a new list does not show is left in the graph.
    ListsSweepNothing,
}
