//! The discovery thread: a look every 30 seconds, and at once when a definition changed (S2).

use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use gc_builder::{Look, Poke, Schedule};
use gc_client::{Client, Discovery, Error, discover};

/// A look costs the server as much as it takes: while definitions come by the hundred it gets this many times as long
/// to itself.
const REST_PER_LOOK: u32 = 4;

/// Runs until `pokes` is disconnected or nobody takes the answers any more.
pub fn run(client: &Client, pokes: &Receiver<Poke>, answers: &Sender<Result<Discovery, Error>>) {
    let mut schedule = Schedule::default();
    loop {
        let began = Instant::now();
        let answer = discover(client);
        let rested = Instant::now() + began.elapsed().saturating_mul(REST_PER_LOOK);
        let outcome = Look::of(answer.as_ref());
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
}
