//! Mistakes that garbage collectors have made, as switches for tests: a simulation that cannot find them proves nothing.
//!
//! Without the feature `mistakes`, which no binary turns on, no switch exists and each question here is a constant no.

use gc_graph::{Effect, Graph, Observation, Uid};

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// What is remembered absent is looked up by UID alone: one dependent with a wrong namespace condemns the owner's
    /// others (kubernetes/kubernetes#65200).
    AbsenceByUid,
    /// A finalizer that is observed again is no work again (kubernetes/kubernetes#77081, #89503).
    EdgeNotLevel,
    /// A namespaced owner that a cluster-scoped dependent makes up is absent, for dependents in a namespace as well
    /// (kubernetes/kubernetes#98040).
    ImpossibleIsAbsent,
    /// Orphaned owners are not remembered (kubernetes/kubernetes#131307).
    OrphanedForgotten,
    /// The finalizer `orphan` goes although a watch hears nothing that may have more dependents to show.
    OrphanedUnheard,
    /// After a conflict the delete is repeated on the version just read, whatever the references are by then
    /// (kubernetes/kubernetes#114603).
    ConflictRepeatsDelete,
    /// A finalizer goes although a dependent has appeared since the attempt began.
    DependentsNotAskedAgain,
    /// One 404 for an object that the graph holds is believed (kubernetes/kubernetes#98471).
    DeniedOnce,
    /// A strategic merge patch removes by UID even where a reference that stays has the same one.
    StrategicTakesAll,
}

/// What the last observation of an object said of its deletion: whether it is deleting its dependents, and orphaning.
pub(crate) fn level(graph: &Graph, seen: &Observation<'_>) -> Option<(bool, bool)> {
    let node = graph.get(&Uid::new(seen.uid))?;
    Some((node.is_deleting_dependents(), node.is_orphaning()))
}

/// [`Mistake::EdgeNotLevel`]: an observation that says the same as the last one is no work for the object itself.
pub(crate) fn forget_level(
    graph: &Graph,
    seen: &Observation<'_>,
    had: Option<(bool, bool)>,
    effects: &mut Vec<Effect>,
) {
    let uid = Uid::new(seen.uid);
    let is_attempt = |effect: &Effect| match effect {
        Effect::AttemptToDelete(at) | Effect::AttemptToOrphan(at) => *at == uid,
        Effect::AttemptToDeleteRateLimited(_) | Effect::Absent(_) | Effect::InvalidOwnerReference(_) => false,
    };
    if had.is_some() && level(graph, seen) == had {
        effects.retain(|effect| !is_attempt(effect));
    }
}
