//! Which watches hear what happens. An owner that was deleted with Orphan keeps its finalizer while one does not (O2): it may
//! have dependents that only that watch can show, and once it is gone, nothing on the server says any more that they are
//! to live.

use std::time::Duration;

use gc_graph::SourceId;
use hashbrown::HashMap;

/// One watch that hears nothing holds up orphaning for so long, counted from the first owner that it held up although the
/// server answers. It is the longest wait of a watch between two tries; one that needs longer has troubles of its own,
/// such as a broken conversion webhook, and must not stop every orphaning in the cluster (S3).
const HOLDS_MAX: Duration = Duration::from_secs(30);
/// What happened while nobody heard comes first on the watch that is open again, and is given so long to come through.
const CATCHES_UP_WITHIN: Duration = Duration::from_secs(1);
/// A watch that breaks off again sooner than this is still in the troubles of before: it gets no more of [`HOLDS_MAX`].
const STEADY_AFTER: Duration = Duration::from_secs(60);
/// An owner that is held up is looked at again after this.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The watches that heard nothing for a while, until they have been steady again. The graph bounds how many there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hearing {
    gaps: HashMap<SourceId, Gap>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Gap {
    /// Since when the watch hears again.
    hears_since: Option<Duration>,
    /// When it first held up an owner.
    holds_since: Option<Duration>,
}

impl Hearing {
    /// From now on a watch hears nothing.
    pub(crate) fn is_deaf(&mut self, source: SourceId, now: Duration) {
        let gap = self.gaps.entry(source).or_default();
        if gap.is_steady(now) {
            *gap = Gap::default();
        }
        gap.hears_since = None;
    }

    /// A watch hears what happens, beginning with what happened before.
    pub(crate) fn hears(&mut self, source: SourceId, now: Duration) {
        if let Some(gap) = self.gaps.get_mut(&source) {
            gap.hears_since.get_or_insert(now);
        }
    }

    /// A watch has ended for good.
    pub(crate) fn forget(&mut self, source: SourceId) {
        self.gaps.remove(&source);
    }

    /// How long an owner has to wait for what it held up others for already. Nothing was asked of the server for it.
    pub(crate) fn still_holds(&self, now: Duration) -> Option<Duration> {
        self.gaps.values().filter(|gap| gap.holds_since.is_some()).filter_map(|gap| gap.holds(now)).max()
    }

    /// How long an owner has to wait that the server has just shown.
    pub(crate) fn holds(&mut self, now: Duration) -> Option<Duration> {
        self.gaps.retain(|_, gap| !gap.is_steady(now));
        let waits = self.gaps.values_mut().filter_map(|gap| {
            let wait = gap.holds(now)?;
            gap.holds_since.get_or_insert(now);
            Some(wait)
        });
        waits.max()
    }
}

impl Gap {
    fn is_steady(&self, now: Duration) -> bool {
        self.hears_since.is_some_and(|since| since + STEADY_AFTER <= now)
    }

    fn holds(&self, now: Duration) -> Option<Duration> {
        if self.holds_since.is_some_and(|since| since + HOLDS_MAX <= now) {
            return None;
        }
        let wait = match self.hears_since {
            None => LOOK_AGAIN_AFTER,
            Some(since) => (since + CATCHES_UP_WITHIN).saturating_sub(now),
        };
        (!wait.is_zero()).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: SourceId = SourceId(1);
    const WIDGETS: SourceId = SourceId(2);

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn o2_an_owner_waits_until_each_watch_hears_and_has_caught_up() {
        let mut hearing = Hearing::default();
        assert_eq!(hearing.holds(s(0)), None, "nothing was ever amiss");
        hearing.is_deaf(PODS, s(1));
        hearing.is_deaf(WIDGETS, s(1));
        assert_eq!(hearing.holds(s(2)), Some(s(1)));
        hearing.hears(PODS, s(3));
        assert_eq!(hearing.holds(s(5)), Some(s(1)), "the other one is deaf still");
        hearing.hears(WIDGETS, s(6));
        hearing.hears(WIDGETS, s(7));
        assert_eq!(hearing.holds(ms(6_400)), Some(ms(600)));
        assert_eq!(hearing.holds(s(7)), None);
    }

    #[test]
    fn o2_s3_one_watch_holds_up_owners_for_half_a_minute_while_the_server_answers() {
        let mut hearing = Hearing::default();
        hearing.is_deaf(WIDGETS, s(0));
        assert_eq!(hearing.still_holds(s(500)), None, "it has held up nobody: the server may have been away");
        assert_eq!(hearing.holds(s(500)), Some(s(1)));
        assert_eq!(hearing.still_holds(s(529)), Some(s(1)));
        assert_eq!(hearing.still_holds(s(530)), None);
        assert_eq!(hearing.holds(s(530)), None);
        hearing.is_deaf(PODS, s(600));
        assert_eq!(hearing.holds(s(600)), Some(s(1)), "another one has its own time");
    }

    #[test]
    fn o2_s3_a_watch_that_breaks_off_again_and_again_holds_up_owners_once() {
        let mut hearing = Hearing::default();
        hearing.is_deaf(WIDGETS, s(0));
        assert_eq!(hearing.holds(s(0)), Some(s(1)));
        for at in [20, 40, 99] {
            hearing.hears(WIDGETS, s(at - 10));
            hearing.is_deaf(WIDGETS, s(at));
        }
        assert_eq!(hearing.holds(s(100)), None);
        hearing.hears(WIDGETS, s(110));
        hearing.is_deaf(WIDGETS, s(170));
        assert_eq!(hearing.holds(s(170)), Some(s(1)), "it was steady for a minute");
        hearing.forget(WIDGETS);
        assert_eq!(hearing.holds(s(170)), None);
    }
}
