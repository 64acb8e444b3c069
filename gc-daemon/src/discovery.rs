//! The discovery thread: a look every 30 seconds, and at once when a definition changed (S2).

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use gc_client::{Client, Discovery, Error, discover};

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
/// A look costs the server as much as it takes: while definitions come by the hundred it gets this many times as long
/// to itself.
const REST_PER_LOOK: u32 = 4;

/// Why to look before it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poke {
    /// A definition, or an API service, changed.
    Changed,
    /// A resource was not in the last answer and is not given up yet.
    Missing,
}

/// Runs until `pokes` is disconnected or nobody takes the answers any more.
pub fn run(client: &Client, pokes: &Receiver<Poke>, answers: &Sender<Result<Discovery, Error>>) {
    let mut schedule = Schedule::default();
    loop {
        let began = Instant::now();
        let answer = discover(client);
        let rested = Instant::now() + began.elapsed().saturating_mul(REST_PER_LOOK);
        let outcome = Look::of(&answer);
        if answers.send(answer).is_err() {
            return;
        }
        let mut next = Instant::now() + schedule.next(outcome);
        loop {
            match pokes.recv_deadline(next) {
                Ok(poke) => next = next.min((Instant::now() + schedule.poked(poke)).max(rested)),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

/// What to do about a discovery that fails in this way, behind a semicolon; empty when the error says it all, or when
/// time may mend it.
pub fn mend(error: &Error) -> &'static str {
    match error {
        Error::Status(status) => match status.code {
            401 => "; this server does not know these credentials: renew them in the kubeconfig",
            403 => "; give this user the rights that deploy/rbac.yaml lists",
            404 => "; check the server's URL in the kubeconfig, its path above all",
            _ => "",
        },
        _ => "",
    }
}

/// How a look went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Complete,
    /// Some groups are not known: an aggregated API is down, or the server is starting.
    Partial,
    Failed,
}

impl Look {
    fn of(answer: &Result<Discovery, Error>) -> Look {
        match answer {
            Ok(discovery) if discovery.failed.is_empty() => Look::Complete,
            Ok(_) => Look::Partial,
            Err(_) => Look::Failed,
        }
    }
}

/// When to look next.
#[derive(Debug)]
struct Schedule {
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
    fn poked(&mut self, poke: Poke) -> Duration {
        match poke {
            Poke::Changed => {
                self.looked = 1;
                AFTER_CHANGE[0]
            }
            Poke::Missing => WHILE_MISSING,
        }
    }

    /// A look is done: the delay until the next.
    fn next(&mut self, look: Look) -> Duration {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use gc_client::Status;

    #[test]
    fn r7_credentials_rights_and_paths_get_their_mend() {
        let mend = |code| mend(&Error::Status(Box::new(Status { code, ..Status::default() })));
        assert!(mend(401).contains("renew them"));
        assert!(mend(403).contains("deploy/rbac.yaml"));
        assert!(mend(404).contains("URL"));
        assert_eq!(mend(503), "");
    }

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
