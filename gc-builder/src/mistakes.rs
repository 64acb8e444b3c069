//! Mistakes that garbage collectors have made, as switches for tests: a simulation that cannot find them proves nothing.
//!
//! Without the feature `mistakes`, which no binary turns on, no switch exists and each question here is a constant no.

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// An empty discovery answer is believed, and what is no longer served is gone (kubernetes/kubernetes#60037).
    EmptyDiscoveryIsTruth,
    /// What is missing from one discovery answer loses its watch at once, and its objects count as deleted.
    UnservedIsGone,
    /// A list at an older version than before is like any other: the restore of a server goes unnoticed (spec S7).
    RestoreUnnoticed,
    /// A restore is noticed, and proofs of before are believed on (spec S7).
    ProofsSurviveRestore,
    /// What a worker found before a restore is believed after it (spec S7).
    FindingsSurviveRestore,
    /// Bookmarks and events say nothing of the server's version: a list that is newer than the list before passes,
    /// however old it is (spec S7).
    OnlyListsCount,
    /// What a watch that was ended has still under way counts.
    EndedWatchesSpeak,
    /// What a new list does not show is left in the graph.
    ListsSweepNothing,
}
