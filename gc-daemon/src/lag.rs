//! How far the watches are behind the server, measured on what this program itself deletes.
//!
//! Nothing in an event says when it happened, to less than a second and by a clock of ours. But when the server has
//! accepted a delete the watch has yet to show it, and the time between the two is the lag, whatever causes it: the
//! server, the network, a reader that is held back, or a graph that is slower than the changes come.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gc_graph::Uid;
use hashbrown::HashMap;
use prometheus_client::metrics::histogram::Histogram;

/// So many deletes are followed at the same time; more of them would say the same.
const FOLLOWED_MAX: usize = 1_024;
/// What no watch has shown for so long is counted as that late and not waited for any longer.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(60);
/// The bounds of the buckets in seconds: a watch on a good day takes a few milliseconds, and what is given up falls
/// beyond the last one.
const BUCKETS_SECONDS: [f64; 13] =
    [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Follows deletes from the server's answer to the graph.
#[derive(Debug)]
pub struct WatchLag {
    seconds: Histogram,
    followed: Mutex<Followed>,
    /// How many are followed, for a look without the lock: the loop asks at every change.
    len: AtomicUsize,
}

type Followed = HashMap<Uid, Delete>;

/// A delete that has been asked for.
#[derive(Clone, Copy, Debug)]
struct Delete {
    asked_at: Instant,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Neither answered nor shown.
    Asked,
    /// Shown before its answer came: no lag at all.
    Shown,
    /// The server accepted it at this moment.
    Answered(Instant),
}

impl Default for WatchLag {
    fn default() -> WatchLag {
        WatchLag {
            seconds: Histogram::new(BUCKETS_SECONDS),
            followed: Mutex::default(),
            len: AtomicUsize::new(0),
        }
    }
}

impl WatchLag {
    /// What is shown in `/metrics`.
    pub fn histogram(&self) -> Histogram {
        self.seconds.clone()
    }

    /// A delete is about to be sent.
    pub fn asked(&self, uid: &Uid, now: Instant) {
        let mut followed = self.lock();
        if followed.len() < FOLLOWED_MAX {
            followed.insert(uid.clone(), Delete { asked_at: now, stage: Stage::Asked });
            self.len.store(followed.len(), Ordering::Relaxed);
        }
    }

    /// The server has answered it: the object is gone or on its way, or nothing has changed and nothing will be shown.
    pub fn answered(&self, uid: &Uid, is_accepted: bool, now: Instant) {
        let mut followed = self.lock();
        let Some(delete) = followed.get_mut(uid) else { return };
        match delete.stage {
            Stage::Asked if is_accepted => delete.stage = Stage::Answered(now),
            // An earlier one that is still followed; there was no room for this one.
            Stage::Answered(_) if is_accepted => {}
            Stage::Shown if is_accepted => {
                self.seconds.observe(0.0);
                self.end(&mut followed, uid);
            }
            Stage::Asked | Stage::Answered(_) | Stage::Shown => self.end(&mut followed, uid),
        }
    }

    /// The graph knows that this object is deleted, or is being deleted.
    pub fn shown(&self, uid: &str, now: Instant) {
        // A delete that is asked for in this very moment cannot have been shown yet.
        if self.len.load(Ordering::Relaxed) == 0 {
            return;
        }
        let uid = Uid::new(uid);
        let mut followed = self.lock();
        let Some(delete) = followed.get_mut(&uid) else { return };
        match delete.stage {
            Stage::Asked | Stage::Shown => delete.stage = Stage::Shown,
            Stage::Answered(at) => {
                self.seconds.observe(now.saturating_duration_since(at).as_secs_f64());
                self.end(&mut followed, &uid);
            }
        }
    }

    /// Gives up what has become too old. To be called every second or so.
    pub fn tick(&self, now: Instant) {
        let mut followed = self.lock();
        followed.retain(|_, delete| {
            let is_late = GIVEN_UP_AFTER <= now.saturating_duration_since(delete.asked_at);
            if is_late && let Stage::Answered(at) = delete.stage {
                self.seconds.observe(now.saturating_duration_since(at).as_secs_f64());
            }
            !is_late
        });
        self.len.store(followed.len(), Ordering::Relaxed);
    }

    fn end(&self, followed: &mut Followed, uid: &Uid) {
        followed.remove(uid);
        self.len.store(followed.len(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Followed> {
        // Whatever panicked, the table is whole: each change of it is a single step.
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

    /// The buckets that are not empty, not cumulated, and the sum.
    fn counted(lag: &WatchLag) -> String {
        let mut registry = Registry::default();
        registry.register("lag", "lag", lag.histogram());
        let mut page = String::new();
        text::encode(&mut page, &registry).unwrap();
        let mut before = 0;
        let mut counted = Vec::new();
        for line in page.lines() {
            if let Some((bound, count)) = line.strip_prefix("lag_bucket{le=").and_then(|l| l.split_once("} "))
            {
                let count: u64 = count.parse().unwrap();
                if before < count {
                    counted.push(format!("{bound}: {}", count - before));
                }
                before = count;
            } else if let Some(sum) = line.strip_prefix("lag_sum ") {
                counted.push(format!("sum {sum}"));
            }
        }
        counted.join(", ")
    }

    #[test]
    fn r2_the_lag_is_from_the_answer_to_the_graph() {
        let (lag, start) = (WatchLag::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let [late, early, refused, unseen] = ["late", "early", "refused", "unseen"].map(Uid::new);
        for uid in [&late, &early, &refused, &unseen] {
            lag.asked(uid, at(0));
        }
        lag.answered(&late, true, at(10));
        lag.shown("early", at(15));
        lag.answered(&early, true, at(20));
        lag.answered(&refused, false, at(20));
        lag.answered(&unseen, true, at(1_000));
        lag.shown("late", at(30));
        lag.shown("late", at(500));
        lag.shown("refused", at(500));
        lag.shown("somebody else's", at(500));
        expect![[r#"sum 0.02, "0.001": 1, "0.025": 1"#]].assert_eq(&counted(&lag));
        lag.tick(at(59_999));
        assert_eq!(lag.len.load(Ordering::Relaxed), 1);
        lag.tick(at(60_000));
        assert_eq!(lag.len.load(Ordering::Relaxed), 0);
        expect![[r#"sum 59.02, "0.001": 1, "0.025": 1, "+Inf": 1"#]].assert_eq(&counted(&lag));
    }

    #[test]
    fn r2_no_burst_of_deletes_makes_the_table_grow() {
        let (lag, now) = (WatchLag::default(), Instant::now());
        let uids: Vec<Uid> = (0..10 * FOLLOWED_MAX).map(|i| Uid::new(&i.to_string())).collect();
        for uid in &uids {
            lag.asked(uid, now);
            lag.answered(uid, true, now);
        }
        assert_eq!(lag.lock().len(), FOLLOWED_MAX);
        // An object deleted once more is followed from the first time.
        lag.asked(&uids[0], now);
        lag.answered(&uids[0], true, now + Duration::from_secs(1));
        lag.shown("0", now + Duration::from_secs(2));
        expect![[r#"sum 2.0, "2.5": 1"#]].assert_eq(&counted(&lag));
        assert_eq!(lag.lock().len(), FOLLOWED_MAX - 1);
    }
}
