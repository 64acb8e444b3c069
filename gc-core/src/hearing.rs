//! Which watches hear what happens. An owner that was deleted with Orphan keeps its finalizer until each of them has heard all
//! that happened before (O2): it may have dependents that only that watch can show, and once it is gone, nothing on the
//! server says any more that they are to live.

use std::time::Duration;

use gc_graph::{SourceId, Uid};
use hashbrown::HashMap;

/// An owner that is held up is looked at again after this, and of all that are, one asks the server meanwhile.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// What happened while nobody heard comes first on the watch that is open again, and is given so long to come through.
const CATCHES_UP_WITHIN: Duration = Duration::from_secs(1);
/// One watch holds up owners for so many looks at which the server answered: while it was away, nothing counts. That is
/// the longest back-off of a watch, half a minute, and what it takes to open it. One that needs longer has troubles of
/// its own, such as a broken conversion webhook, and must not stop every orphaning in the cluster (S3).
const LOOKS_MAX: u32 = 45;
/// So many looks are left to one whose resource is not served any more: a server that was just started serves custom
/// resources a moment later than it serves others.
const LOOKS_UNSERVED: u32 = 10;
/// After this, what is not served any more holds up nobody.
const UNSERVED_FOR: Duration = Duration::from_secs(60);
/// One owner is held up for so many looks, whatever the watches do.
const LOOKS_OF_OWNER_MAX: u32 = 60;
/// So many owners are known by when they were held up first. What is beyond waits until all watches hear at once.
const OWNERS_MAX: usize = 10_000;

/// What is known of the watches. The graph bounds how many there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hearing {
    watches: HashMap<SourceId, Watch>,
    /// Those that are held up.
    owners: HashMap<Uid, Held>,
    /// At how many moments some owner was held up although the server answered, a second apart.
    looks: u32,
    looked_at: Option<Duration>,
    /// The look at which owners were last cleared out: once is enough for each.
    cleared_at: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    /// Since when it hears, if it does.
    hears_since: Option<Duration>,
    /// All that happened before this has been heard.
    caught_up_at: Option<Duration>,
    /// When it ended in good order, and since when it had heard.
    paused: Option<(Duration, Duration)>,
    /// The last pause after which it went on soon: from when to when nobody heard.
    went_on: Option<(Duration, Duration)>,
    /// Its share of [`Hearing::looks`], less one for each second that it has heard since: one that is in trouble for good
    /// uses them up, and one that breaks off now and then does not.
    looks: u32,
    /// When its resource ceased to be served.
    unserved_at: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    since: Duration,
    /// [`Hearing::looks`] at that time.
    looks: u32,
}

impl Hearing {
    /// A watch begins, or begins anew: it has nothing to tell until it hears.
    pub(crate) fn begins(&mut self, source: SourceId, now: Duration) {
        let watch = self.watches.entry(source).or_default();
        if watch.unserved_at.is_some() {
            // It may be another resource's that has got the number.
            *watch = Watch::default();
        }
        watch.breaks_off(now);
    }

    /// It has failed, or lists. Its connection may have been dead for a while.
    pub(crate) fn breaks_off(&mut self, source: SourceId, now: Duration) {
        self.watches.entry(source).or_default().breaks_off(now);
    }

    /// It has ended as it should, and is about to be opened again.
    pub(crate) fn pauses(&mut self, source: SourceId, now: Duration) {
        if let Some(watch) = self.watches.get_mut(&source) {
            watch.pauses(now);
        }
    }

    /// It hears what happens, beginning with what happened before.
    pub(crate) fn hears(&mut self, source: SourceId, now: Duration) {
        if let Some(watch) = self.watches.get_mut(&source) {
            watch.hears(now);
        }
    }

    /// Its resource is not served any more.
    pub(crate) fn is_unserved(&mut self, source: SourceId, now: Duration) {
        if let Some(watch) = self.watches.get_mut(&source) {
            watch.breaks_off(now);
            watch.looks = watch.looks.max(LOOKS_MAX - LOOKS_UNSERVED);
            watch.unserved_at = Some(now);
        }
    }

    /// The server's data was restored: what was heard before is not what is (S7).
    pub(crate) fn start_again(&mut self) {
        self.owners.clear();
        self.watches.values_mut().for_each(|watch| watch.caught_up_at = None);
    }

    /// An owner is not being orphaned any more.
    pub(crate) fn forget(&mut self, owner: &Uid) {
        self.owners.remove(owner);
    }

    /// How long an owner has to wait, by a look at the server that has just been taken for another one. Nothing is asked
    /// for it.
    pub(crate) fn still_holds(&mut self, owner: &Uid, now: Duration) -> Option<Duration> {
        self.looked_at.filter(|at| now < *at + LOOK_AGAIN_AFTER)?;
        self.hold(owner, now, false)
    }

    /// How long an owner has to wait that the server has just shown.
    pub(crate) fn holds(&mut self, owner: &Uid, now: Duration) -> Option<Duration> {
        let counts = self.looked_at.is_none_or(|at| at + LOOK_AGAIN_AFTER <= now);
        let wait = self.hold(owner, now, counts);
        if wait.is_none() {
            // Not before it has been read: it would be held up anew then.
            self.owners.remove(owner);
        } else if counts {
            self.looks = self.looks.saturating_add(1);
            self.looked_at = Some(now);
        }
        wait
    }

    fn hold(&mut self, owner: &Uid, now: Duration, counts: bool) -> Option<Duration> {
        let held = self.owners.get(owner).copied().unwrap_or(Held { since: now, looks: self.looks });
        let mut longest = None;
        for watch in self.watches.values_mut().filter(|_| !held.is_over(self.looks)) {
            if let Some(wait) = watch.holds(held.since, now) {
                watch.looks += u32::from(counts);
                longest = longest.max(Some(wait));
            }
        }
        if longest.is_some() {
            self.remember(owner, held);
        }
        longest
    }

    fn remember(&mut self, owner: &Uid, held: Held) {
        if OWNERS_MAX <= self.owners.len() && self.looks != self.cleared_at {
            // Some may have gone by another's hand, and nobody asks for them any more.
            self.owners.retain(|_, held| !held.is_over(self.looks));
            self.cleared_at = self.looks;
        }
        if self.owners.len() < OWNERS_MAX {
            self.owners.insert(owner.clone(), held);
        }
    }
}

impl Held {
    fn is_over(&self, looks: u32) -> bool {
        LOOKS_OF_OWNER_MAX <= looks.saturating_sub(self.looks)
    }
}

impl Watch {
    fn breaks_off(&mut self, now: Duration) {
        // What it was to hear of the last while may not have come: what is sure is that it had caught up.
        if let Some(since) = self.stops_hearing(now) {
            self.caught_up_at = self.caught_up_at.max(Some(since + CATCHES_UP_WITHIN));
        }
        self.paused = None;
    }

    fn pauses(&mut self, now: Duration) {
        let since = self.hears_since;
        if self.stops_hearing(now).is_some() {
            self.caught_up_at = Some(now);
        }
        self.paused = since.map(|since| (now, since));
    }

    fn hears(&mut self, now: Duration) {
        if self.hears_since.is_none() {
            let went_on = self.paused.take().filter(|(at, _)| now < *at + CATCHES_UP_WITHIN);
            self.hears_since = Some(went_on.map_or(now, |(_, since)| since));
            self.went_on = went_on.map(|(at, _)| (at, now));
        }
    }

    /// Since when it had heard, if it had caught up.
    fn stops_hearing(&mut self, now: Duration) -> Option<Duration> {
        let since = self.hears_since.take()?;
        let heard_s = u32::try_from(now.saturating_sub(since).as_secs()).unwrap_or(u32::MAX);
        self.looks = self.looks.saturating_sub(heard_s);
        Some(since).filter(|since| *since + CATCHES_UP_WITHIN <= now)
    }

    fn holds(&self, since: Duration, now: Duration) -> Option<Duration> {
        let is_past = self.unserved_at.is_some_and(|at| at + UNSERVED_FOR <= now);
        if LOOKS_MAX <= self.looks || is_past || self.caught_up_at.is_some_and(|at| since <= at) {
            return None;
        }
        let wait = match (self.hears_since, self.went_on) {
            (None, _) => LOOK_AGAIN_AFTER,
            // The owner was deleted while nobody heard.
            (Some(_), Some((from, to))) if (from..=to).contains(&since) => {
                (to + CATCHES_UP_WITHIN).saturating_sub(now)
            }
            (Some(hears_since), _) => (hears_since + CATCHES_UP_WITHIN).saturating_sub(now),
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

    /// Both watches are open, and have been for long at 100 s.
    fn open() -> Hearing {
        let mut hearing = Hearing::default();
        for source in [PODS, WIDGETS] {
            hearing.begins(source, s(0));
            hearing.hears(source, s(1));
        }
        hearing
    }

    /// Looks at the server once a second from then on, and says after how many seconds the owner may go.
    fn goes_after(hearing: &mut Hearing, owner: &str, from_s: u64) -> u64 {
        let owner = Uid::new(owner);
        (0..1_000).find(|n| hearing.holds(&owner, s(from_s + n)).is_none()).expect("it goes some time")
    }

    #[test]
    fn o2_an_owner_waits_until_each_watch_hears_and_has_caught_up() {
        let (mut hearing, owner) = (open(), Uid::new("o"));
        assert_eq!(hearing.holds(&owner, s(100)), None, "nothing is amiss");
        hearing.breaks_off(PODS, s(101));
        hearing.breaks_off(WIDGETS, s(101));
        assert_eq!(hearing.holds(&owner, s(102)), Some(s(1)));
        hearing.hears(PODS, s(103));
        assert_eq!(hearing.holds(&owner, s(105)), Some(s(1)), "the other one is deaf still");
        hearing.hears(WIDGETS, s(106));
        hearing.hears(WIDGETS, s(107));
        assert_eq!(hearing.holds(&owner, ms(106_400)), Some(ms(600)));
        assert_eq!(hearing.holds(&owner, s(107)), None);
        assert!(hearing.owners.is_empty(), "what may go is not remembered");
    }

    #[test]
    fn o2_what_a_watch_has_caught_up_with_it_need_not_hear_again() {
        let (mut hearing, owner) = (open(), Uid::new("o"));
        hearing.breaks_off(PODS, s(100));
        assert_eq!(hearing.holds(&owner, s(100)), Some(s(1)));
        hearing.hears(PODS, s(102));
        // It breaks off when it has caught up, and another one before the owner is looked at.
        hearing.breaks_off(PODS, s(103));
        assert_eq!(hearing.holds(&owner, s(104)), None);
        assert_eq!(hearing.holds(&Uid::new("later"), s(104)), Some(s(1)), "this one was deleted afterwards");
        hearing.hears(PODS, s(110));
        hearing.breaks_off(PODS, ms(110_900));
        assert_eq!(hearing.holds(&Uid::new("later"), s(111)), Some(s(1)), "it had not caught up");
    }

    #[test]
    fn o2_a_connection_that_has_broken_may_have_been_dead_for_a_while() {
        let mut hearing = open();
        hearing.breaks_off(PODS, s(50));
        hearing.hears(PODS, s(51));
        assert_eq!(hearing.holds(&Uid::new("o"), ms(51_500)), Some(ms(500)));
        hearing.breaks_off(PODS, s(500));
        assert_eq!(hearing.holds(&Uid::new("o"), s(501)), None, "it was open, and caught up, after that");
        hearing.hears(PODS, s(502));
        hearing.breaks_off(WIDGETS, s(600));
        assert_eq!(hearing.holds(&Uid::new("p"), s(600)), Some(s(1)));
        hearing.breaks_off(PODS, s(601));
        hearing.hears(WIDGETS, s(602));
        assert_eq!(hearing.holds(&Uid::new("p"), s(604)), Some(s(1)), "nothing says that it heard at 600 s");
    }

    #[test]
    fn o2_a_watch_that_ends_as_it_should_and_goes_on_has_missed_nothing() {
        let (mut hearing, owner) = (open(), Uid::new("o"));
        hearing.pauses(PODS, s(100));
        assert_eq!(hearing.holds(&owner, ms(100_500)), Some(s(1)), "it is not open");
        hearing.hears(PODS, ms(100_900));
        assert_eq!(hearing.holds(&owner, ms(100_900)), Some(s(1)), "what happened meanwhile comes first");
        assert_eq!(hearing.holds(&Uid::new("n"), ms(100_901)), None, "who is deleted now need not wait");
        assert_eq!(hearing.holds(&owner, ms(101_900)), None);
        hearing.breaks_off(WIDGETS, s(102));
        assert_eq!(hearing.holds(&Uid::new("p"), s(102)), Some(s(1)));
        hearing.pauses(PODS, s(103));
        hearing.hears(WIDGETS, s(103));
        assert_eq!(hearing.holds(&Uid::new("p"), s(104)), None, "it heard until it ended");
        hearing.hears(PODS, s(104));
        assert_eq!(hearing.holds(&Uid::new("q"), s(104)), Some(s(1)), "it was away for a second");
        assert_eq!(hearing.holds(&Uid::new("q"), s(105)), None);
    }

    #[test]
    fn o2_s3_a_watch_holds_up_owners_for_so_many_looks_at_a_server_that_answers() {
        let mut hearing = open();
        hearing.breaks_off(WIDGETS, s(100));
        let owner = Uid::new("o");
        assert_eq!(hearing.holds(&owner, s(100)), Some(s(1)));
        assert_eq!(hearing.holds(&owner, ms(100_999)), Some(s(1)), "the same look");
        // Then the server is away for a while: one that is back is no worse than one that was.
        assert_eq!(hearing.still_holds(&owner, s(500)), None);
        assert_eq!(goes_after(&mut hearing, "o", 500), 44);
        assert_eq!(goes_after(&mut hearing, "p", 600), 0, "it has held up others for long enough");
        hearing.breaks_off(PODS, s(700));
        assert_eq!(goes_after(&mut hearing, "q", 700), 45, "another one has its own time");
    }

    #[test]
    fn o2_a_server_that_restarts_every_45_s_is_waited_for_each_time() {
        let mut hearing = open();
        for restart in 1..=5 {
            let at = 100 * restart;
            hearing.breaks_off(PODS, s(at));
            hearing.hears(PODS, s(at + 8));
            hearing.breaks_off(PODS, s(at + 45));
            for second in 0..4 {
                assert_eq!(
                    hearing.holds(&Uid::new("o"), s(at + 48 + second)),
                    Some(s(1)),
                    "restart {restart}"
                );
            }
            hearing.hears(PODS, s(at + 53));
            assert_eq!(hearing.holds(&Uid::new("o"), s(at + 54)), None);
        }
    }

    #[test]
    fn o2_s3_a_watch_in_trouble_holds_up_owners_once_and_one_that_is_cut_now_and_then_each_time() {
        let mut hearing = open();
        hearing.breaks_off(WIDGETS, s(100));
        assert_eq!(goes_after(&mut hearing, "o", 100), 45);
        for at in (200..300).step_by(10) {
            hearing.hears(WIDGETS, s(at));
            hearing.breaks_off(WIDGETS, s(at));
            assert_eq!(goes_after(&mut hearing, "p", at), 0, "it has heard nothing since");
        }
        hearing.hears(WIDGETS, s(300));
        hearing.breaks_off(WIDGETS, s(345));
        assert_eq!(
            goes_after(&mut hearing, "q", 346),
            45,
            "it has heard for as long as it had held up owners"
        );
        for at in (1_000..9_000).step_by(37) {
            hearing.breaks_off(PODS, s(at));
            assert_eq!(hearing.holds(&Uid::new(&format!("o-{at}")), s(at)), Some(s(1)), "at {at}");
            hearing.hears(PODS, s(at + 2));
        }
    }

    #[test]
    fn o2_s3_one_owner_is_held_up_for_a_minute_whatever_happens() {
        let mut hearing = Hearing::default();
        let owner = Uid::new("o");
        // A thousand watches, of which always another one breaks off.
        let goes = (0..1_000).find(|n| {
            hearing.breaks_off(SourceId(*n), s(u64::from(*n)));
            hearing.holds(&owner, s(u64::from(*n))).is_none()
        });
        assert_eq!(goes, Some(60));
    }

    #[test]
    fn o2_one_owner_asks_the_server_and_the_others_believe_it() {
        let mut hearing = open();
        hearing.breaks_off(PODS, s(100));
        let (one, other) = (Uid::new("1"), Uid::new("2"));
        assert_eq!(hearing.still_holds(&one, s(100)), None, "nobody has looked");
        assert_eq!(hearing.holds(&one, s(100)), Some(s(1)));
        assert_eq!(hearing.still_holds(&other, ms(100_900)), Some(s(1)));
        assert_eq!(hearing.still_holds(&other, s(101)), None, "somebody has to look");
        assert_eq!(hearing.holds(&one, s(101)), Some(s(1)));
        hearing.hears(PODS, s(101));
        assert_eq!(hearing.still_holds(&other, ms(101_900)), Some(ms(100)));
        hearing.breaks_off(PODS, s(102));
        assert_eq!(hearing.holds(&other, s(102)), None, "it waited from the beginning");
        assert_eq!(hearing.holds(&Uid::new("3"), s(103)), Some(s(1)));
        assert_eq!(hearing.still_holds(&one, s(103)), None, "and this one, which may ask the server");
        assert_eq!(hearing.holds(&one, s(103)), None, "and is not held up anew when that has answered");
        assert_eq!(hearing.holds(&one, s(104)), Some(s(1)), "it was forgotten with that");
        hearing.forget(&one);
        assert!(!hearing.owners.contains_key(&one));
    }

    #[test]
    fn o2_s3_an_owner_that_has_waited_for_long_enough_is_not_held_up_anew_by_its_own_look() {
        let mut hearing = Hearing::default();
        let owner = Uid::new("o");
        // Always another watch breaks off, and always another owner looks just before.
        let goes = (0..300u16).find(|n| {
            let at = s(u64::from(*n));
            hearing.breaks_off(SourceId(*n), at);
            hearing.holds(&Uid::new(&format!("other-{n}")), at);
            let at = at + ms(500);
            hearing.still_holds(&owner, at).is_none() && hearing.holds(&owner, at + ms(20)).is_none()
        });
        assert_eq!(goes, Some(60));
    }

    #[test]
    fn o2_so_many_owners_are_remembered_and_those_of_whom_nobody_hears_make_room() {
        let mut hearing = open();
        hearing.breaks_off(PODS, s(100));
        for n in 0..=OWNERS_MAX {
            assert_eq!(hearing.holds(&Uid::new(&format!("u{n}")), s(100)), Some(s(1)));
        }
        assert_eq!(hearing.owners.len(), OWNERS_MAX);
        let late = Uid::new(&format!("u{OWNERS_MAX}"));
        assert!(!hearing.owners.contains_key(&late));
        for second in 101..=161 {
            // Always another watch, so that none has held up owners for too long.
            hearing.breaks_off(SourceId(second), s(second.into()));
            assert_eq!(hearing.holds(&late, s(second.into())), Some(s(1)));
        }
        assert_eq!(hearing.owners.len(), 1, "the others have gone by another's hand");
    }

    #[test]
    fn s2_o2_what_is_not_served_any_more_holds_up_owners_for_a_moment() {
        let mut hearing = open();
        hearing.is_unserved(SourceId(9), s(100));
        assert_eq!(goes_after(&mut hearing, "o", 100), 0, "nobody was told of such a watch");
        hearing.breaks_off(WIDGETS, s(100));
        hearing.is_unserved(WIDGETS, s(103));
        assert_eq!(goes_after(&mut hearing, "o", 103), 10);
        hearing.begins(WIDGETS, s(120));
        assert_eq!(goes_after(&mut hearing, "p", 120), 45, "whatever it is of, it begins");
        hearing.is_unserved(PODS, s(200));
        assert_eq!(goes_after(&mut hearing, "q", 260), 0, "nothing has come of it for a minute");
    }

    #[test]
    fn s7_what_was_heard_before_a_restore_says_nothing_after_it() {
        let (mut hearing, owner) = (open(), Uid::new("o"));
        hearing.breaks_off(PODS, s(100));
        assert_eq!(hearing.holds(&owner, s(100)), Some(s(1)));
        hearing.hears(PODS, s(101));
        hearing.breaks_off(PODS, s(103));
        hearing.start_again();
        assert_eq!(hearing.holds(&owner, s(104)), Some(s(1)));
    }
}
