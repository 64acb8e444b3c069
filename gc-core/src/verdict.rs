//! The decision itself: a pure function from facts to a verdict.

use crate::Propagation;

/// What one owner reference of an item turned out to be (D5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The owner lives.
    Solid,
    /// The owner is proved absent.
    Dangling,
    /// The owner is being deleted in the foreground and waits for its dependents.
    Waiting,
    /// The owner is being, or has been, deleted with Orphan: the item is to lose the reference and to live. This
    /// catches dependents that the orphaning itself did not see (kubernetes/kubernetes#131307).
    Orphaned,
}

/// Everything that the verdict depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts<'a> {
    /// One class for each owner reference of the live object, in order.
    pub classes: &'a [Class],
    /// Whether the graph knows dependents of the item.
    pub has_dependents: bool,
    /// Whether one of these is itself deleting its dependents.
    pub has_dependent_deleting_dependents: bool,
    /// Whether the live object carries the finalizer `orphan`.
    pub has_orphan_finalizer: bool,
    /// Whether the live object carries the finalizer `foregroundDeletion`.
    pub has_foreground_finalizer: bool,
}

/// What is to be done with an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stays as it is.
    Keep,
    /// It stays; the references at these places go (D8).
    RemoveReferences(Vec<usize>),
    /// It is deleted with this policy, once its blocking references are non-blocking if `unblock` says so (D9, D10).
    Delete {
        /// How its own dependents are treated.
        policy: Propagation,
        /// Whether its references are first made non-blocking, so that a cycle cannot hold itself.
        unblock: bool,
    },
}

/// Decides.
///
/// ```
/// use gc_core::{Class, Facts, Propagation, Verdict, verdict};
/// let facts = Facts {
///     classes: &[Class::Dangling, Class::Solid],
///     has_dependents: false,
///     has_dependent_deleting_dependents: false,
///     has_orphan_finalizer: false,
///     has_foreground_finalizer: false,
/// };
/// assert_eq!(verdict(&facts), Verdict::RemoveReferences(vec![0]));
/// assert_eq!(
///     verdict(&Facts { classes: &[Class::Dangling], ..facts }),
///     Verdict::Delete { policy: Propagation::Background, unblock: false },
/// );
/// ```
pub fn verdict(facts: &Facts<'_>) -> Verdict {
    let any = |class| facts.classes.contains(&class);
    if facts.classes.is_empty() {
        return Verdict::Keep;
    }
    if any(Class::Solid) || any(Class::Orphaned) {
        let gone: Vec<usize> =
            (0..facts.classes.len()).filter(|&i| facts.classes[i] != Class::Solid).collect();
        return if gone.is_empty() { Verdict::Keep } else { Verdict::RemoveReferences(gone) };
    }
    if any(Class::Waiting) && facts.has_dependents {
        return Verdict::Delete {
            policy: Propagation::Foreground,
            unblock: facts.has_dependent_deleting_dependents,
        };
    }
    let policy = match (facts.has_orphan_finalizer, facts.has_foreground_finalizer) {
        (true, _) => Propagation::Orphan,
        (false, true) => Propagation::Foreground,
        (false, false) => Propagation::Background,
    };
    Verdict::Delete { policy, unblock: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every combination of up to three references and of the four flags: 85 × 16 worlds.
    #[test]
    fn d8_d9_d10_every_small_world() {
        let classes = [Class::Solid, Class::Dangling, Class::Waiting, Class::Orphaned];
        let mut lists: Vec<Vec<Class>> = vec![vec![]];
        for len in 1..=3 {
            let shorter: Vec<_> = lists.iter().filter(|l| l.len() == len - 1).cloned().collect();
            for list in shorter {
                lists.extend(classes.iter().map(|&c| [list.clone(), vec![c]].concat()));
            }
        }
        assert_eq!(lists.len(), 85);
        for list in &lists {
            for flags in 0..16 {
                let flag = |bit: u32| flags & (1 << bit) != 0;
                let facts = Facts {
                    classes: list,
                    has_dependents: flag(0),
                    has_dependent_deleting_dependents: flag(1),
                    has_orphan_finalizer: flag(2),
                    has_foreground_finalizer: flag(3),
                };
                check(&facts, &verdict(&facts));
            }
        }
    }

    fn check(facts: &Facts<'_>, verdict: &Verdict) {
        let kept_by = |c: &Class| matches!(c, Class::Solid | Class::Orphaned);
        match verdict {
            Verdict::Keep => {
                assert!(facts.classes.iter().all(|c| *c == Class::Solid), "{facts:?}: a reference must go");
            }
            Verdict::RemoveReferences(places) => {
                assert!(facts.classes.iter().any(kept_by) && !places.is_empty(), "{facts:?}");
                for (i, class) in facts.classes.iter().enumerate() {
                    assert_eq!(places.contains(&i), *class != Class::Solid, "{facts:?} at {i}");
                }
            }
            Verdict::Delete { policy, unblock } => {
                assert!(!facts.classes.is_empty() && !facts.classes.iter().any(kept_by), "{facts:?}");
                let waiting = facts.classes.contains(&Class::Waiting);
                if waiting && facts.has_dependents {
                    assert_eq!(*policy, Propagation::Foreground, "{facts:?}");
                    assert_eq!(*unblock, facts.has_dependent_deleting_dependents, "{facts:?}");
                } else {
                    assert!(!unblock, "{facts:?}");
                    assert_eq!(*policy == Propagation::Orphan, facts.has_orphan_finalizer, "{facts:?}");
                }
            }
        }
    }
}
