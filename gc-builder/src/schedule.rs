//! When discovery looks: every 30 seconds, and at once when a definition changed (S2).

use std::time::Duration;

use gc_client::{Discovery, Error};

/// The reference's own interval.
const INTERVAL: Duration = Duration::from_secs(30);
/// A definition that was just created is served a moment later, and one that was deleted stops being served when its
/// objects are gone: after a change it is looked at again after each of these. The last one is beyond the time after
/// which a missing resource is given up.
const AFTER_CHANGE: [Duration; 5] = [
    Duration::from_millis(50),
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];
/// The first look after a failure, doubled with each further one: a server that is starting is seen soon, one that is
/// down is not pressed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// More would only make collection start late.
const AFTER_FAILURES_MAX: Duration = Duration::from_secs(8);
/// A resource that is missing is looked for again after this, whatever else is due.
const WHILE_MISSING: Duration = Duration::from_secs(1);
/// Why to look before it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poke {
    /// A definition, or an API service, changed.
    Changed,
    /// A resource was not in the last answer and is not given up yet.
    Missing,
}

/// How a look went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Everything is known.
    Complete,
    /// Some groups are not known: an aggregated API is down, or the server is starting.
    Partial,
    /// Nothing is known.
    Failed,
}

impl Look {
    /// How the look that was answered so went.
    pub fn of(answer: Result<&Discovery, &Error>) -> Look {
        match answer {
            Ok(discovery) if discovery.failed.is_empty() => Look::Complete,
            Ok(_) => Look::Partial,
            Err(_) => Look::Failed,
        }
    }
}

/// When to look next.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// How many of the looks after a change are done.
    looked: usize,
    /// How many looks have failed in a row.
    failures: u32,
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule { looked: AFTER_CHANGE.len(), failures: 0 }
    }
}

impl Schedule {
    /// The delay until the look that a poke asks for.
    pub fn poked(&mut self, poke: Poke) -> Duration {
        match poke {
            Poke::Changed => {
                self.looked = 1;
                AFTER_CHANGE[0]
            }
            Poke::Missing => WHILE_MISSING,
        }
    }

    /// A look is done: the delay until the next.
    pub fn next(&mut self, look: Look) -> Duration {
        self.failures = if look == Look::Complete { 0 } else { self.failures.saturating_add(1) };
        let after_failure = AFTER_FAILURE.saturating_mul(1 << self.failures.saturating_sub(1).min(8));
        let after_change = AFTER_CHANGE.get(self.looked).copied().unwrap_or(INTERVAL);
        if look == Look::Failed {
            return after_failure.min(AFTER_FAILURES_MAX);
        }
        self.looked = (self.looked + 1).min(AFTER_CHANGE.len());
        // What has been down for long is looked at with the rest.
        if look == Look::Partial { after_change.min(after_failure) } else { after_change }
    }

    /// Whether nothing but the interval makes it look.
    pub fn is_quiet(&self) -> bool {
        self.failures == 0 && self.looked == AFTER_CHANGE.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s2_a_change_is_looked_at_again_and_again_then_every_30_seconds() {
        let mut schedule = Schedule::default();
        assert_eq!(schedule.next(Look::Complete), INTERVAL);
        assert_eq!(schedule.poked(Poke::Changed), AFTER_CHANGE[0]);
        let delays: Vec<u128> = (0..6).map(|_| schedule.next(Look::Complete).as_millis()).collect();
        assert_eq!(delays, [250, 1000, 2000, 4000, 30_000, 30_000]);
        assert_eq!(schedule.poked(Poke::Missing), WHILE_MISSING);
        let failing: Vec<u64> = (0..5).map(|_| schedule.next(Look::Failed).as_secs()).collect();
        assert_eq!(failing, [1, 2, 4, 8, 8]);
        assert_eq!(schedule.next(Look::Complete), INTERVAL);
        let partial: Vec<u64> = (0..7).map(|_| schedule.next(Look::Partial).as_secs()).collect();
        assert_eq!(partial, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(schedule.next(Look::Complete), INTERVAL);
        assert_eq!(schedule.next(Look::Failed), AFTER_FAILURE);
    }
}
