//! Health: whether the event loop lives, whether the daemon collects, and which kinds it collects without.
//!
//! The event loop calls [`Health::beat`]; the HTTP server asks [`Health::livez`] and [`Health::readyz`]. Neither waits
//! for the other: the state is a number and a small table behind a lock that is held for microseconds.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A loop that made no progress for this long is taken for dead, and a restart is the cure: restarting loses nothing
/// (spec S6). The loop beats at least every few seconds, even when nothing happens, so a minute is no accident.
pub const BEAT_LIMIT: Duration = Duration::from_secs(60);

/// So many kinds are named in an answer; of the others it gives the number. A cluster whose every aggregated API is
/// down has hundreds, and a probe's log has room for a line.
const NAMED_KINDS_MAX: usize = 20;

/// The health of one daemon, shared between its threads.
///
/// ```
/// use std::time::{Duration, Instant};
/// use gc_daemon::health::Health;
///
/// let start = Instant::now();
/// let health = Health::new(start);
/// assert_eq!(health.readyz(start).code(), 503);
///
/// health.set_ready();
/// health.set_kind_listed("widgets.example.com", false);
/// assert_eq!(health.readyz(start).body("readyz", false), "ok, degraded: 1 kind not listed: widgets.example.com");
///
/// // No beat for a minute: the loop hangs.
/// assert_eq!(health.livez(start + Duration::from_secs(60)).code(), 500);
/// ```
#[derive(Debug)]
pub struct Health {
    start: Instant,
    /// Milliseconds between `start` and the last beat.
    beat_ms: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Why it does not collect; `None` once it does.
    not_ready: Option<String>,
    /// Kinds that are watched and have not been listed, as `resource.group`.
    not_listed: BTreeSet<String>,
}

impl Health {
    /// A daemon that starts now: alive, not ready.
    pub fn new(now: Instant) -> Health {
        let state = State { not_ready: Some("starting".to_owned()), not_listed: BTreeSet::new() };
        Health { start: now, beat_ms: AtomicU64::new(0), state: Mutex::new(state) }
    }

    /// The event loop made progress. Called at least every few seconds, also when there is nothing to do.
    pub fn beat(&self, now: Instant) {
        let ms = now.saturating_duration_since(self.start).as_millis();
        // Relaxed: the number stands for itself, nothing else is read in its light.
        self.beat_ms.fetch_max(u64::try_from(ms).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// It collects (spec S4).
    pub fn set_ready(&self) {
        self.state().not_ready = None;
    }

    /// It does not collect, and why: `waiting for the first lists`, `stopping`.
    pub fn set_not_ready(&self, reason: &str) {
        self.state().not_ready = Some(reason.to_owned());
    }

    /// Says of a watched kind, as `resource.group`, whether its objects have been listed. A kind that is not makes the
    /// daemon degraded: it collects, but knows nothing of that kind (spec S3).
    pub fn set_kind_listed(&self, kind: &str, listed: bool) {
        let mut state = self.state();
        if listed {
            state.not_listed.remove(kind);
        } else {
            state.not_listed.insert(kind.to_owned());
        }
    }

    /// Forgets a kind that is no longer watched.
    pub fn forget_kind(&self, kind: &str) {
        self.state().not_listed.remove(kind);
    }

    /// Whether the process should live on: `/livez`, and `/healthz` of old. Failing costs a restart.
    pub fn livez(&self, now: Instant) -> Report {
        Report { checks: vec![ping(), self.event_loop(now)], failed_code: 500 }
    }

    /// Whether it collects: `/readyz`. Degraded is ready: the other kinds are collected.
    pub fn readyz(&self, now: Instant) -> Report {
        let state = self.state();
        let collecting = match &state.not_ready {
            Some(reason) => Check { name: "collecting", result: Err(reason.clone()) },
            None => Check { name: "collecting", result: Ok(degraded(&state.not_listed)) },
        };
        drop(state);
        Report { checks: vec![ping(), self.event_loop(now), collecting], failed_code: 503 }
    }

    fn event_loop(&self, now: Instant) -> Check {
        let beat = Duration::from_millis(self.beat_ms.load(Ordering::Relaxed));
        let silence = now.saturating_duration_since(self.start).saturating_sub(beat);
        let result = if silence < BEAT_LIMIT {
            Ok(String::new())
        } else {
            Err(format!("no progress for {} s", silence.as_secs()))
        };
        Check { name: "event-loop", result }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock, and each change is a single step: the state is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// That an answer comes at all; the reference lists it too.
fn ping() -> Check {
    Check { name: "ping", result: Ok(String::new()) }
}

fn degraded(not_listed: &BTreeSet<String>) -> String {
    let count = not_listed.len();
    if count == 0 {
        return String::new();
    }
    let mut text = format!("degraded: {count} kind{} not listed: ", if count == 1 { "" } else { "s" });
    for (i, kind) in not_listed.iter().take(NAMED_KINDS_MAX).enumerate() {
        let comma = if i == 0 { "" } else { ", " };
        // Writing to a String cannot fail.
        let _ = write!(text, "{comma}{kind}");
    }
    if count > NAMED_KINDS_MAX {
        let _ = write!(text, " and {} more", count - NAMED_KINDS_MAX);
    }
    text
}

/// The answer to one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    checks: Vec<Check>,
    failed_code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Check {
    name: &'static str,
    /// A remark, often empty, or the reason of the failure.
    result: Result<String, String>,
}

impl Report {
    /// The HTTP status: 200, or 500 for a process that should be restarted and 503 for one that needs time.
    pub fn code(&self) -> u16 {
        if self.checks.iter().all(|check| check.result.is_ok()) { 200 } else { self.failed_code }
    }

    /// The body: `ok` with the remarks, or each check on its line when asked for (`?verbose`) or when one fails, in
    /// the reference's form. Reasons are not withheld: who reaches this address may see the whole graph.
    pub fn body(&self, endpoint: &str, verbose: bool) -> String {
        let passed = self.code() == 200;
        if passed && !verbose {
            let remarks = self.checks.iter().filter_map(|check| check.result.as_ref().ok());
            let remarks = remarks.filter(|remark| !remark.is_empty());
            return std::iter::once("ok").chain(remarks.map(String::as_str)).collect::<Vec<_>>().join(", ");
        }
        let mut body = String::new();
        for Check { name, result } in &self.checks {
            let _ = match result {
                Ok(remark) if remark.is_empty() => writeln!(body, "[+]{name} ok"),
                Ok(remark) => writeln!(body, "[+]{name} ok, {remark}"),
                Err(reason) => writeln!(body, "[-]{name} failed: {reason}"),
            };
        }
        body + endpoint + " check " + if passed { "passed\n" } else { "failed\n" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    /// A health that was told some things, and the answers to its probes so many seconds after the start.
    fn check(after_s: u64, tell: impl Fn(&Health, Instant), expected: &Expect) {
        let start = Instant::now();
        let health = Health::new(start);
        tell(&health, start);
        let now = start + Duration::from_secs(after_s);
        let mut actual = String::new();
        for (endpoint, report) in [("livez", health.livez(now)), ("readyz", health.readyz(now))] {
            let body = report.body(endpoint, false);
            actual += &format!("/{endpoint} {}\n{}\n\n", report.code(), body.trim_end());
            actual += &format!("/{endpoint}?verbose\n{}\n", report.body(endpoint, true));
        }
        expected.assert_eq(&actual);
    }

    #[test]
    fn r2_alive_but_not_ready_while_it_starts() {
        check(
            59,
            |health, _| health.set_not_ready("waiting for the first lists of 3 kinds"),
            &expect![[r#"
            /livez 200
            ok

            /livez?verbose
            [+]ping ok
            [+]event-loop ok
            livez check passed

            /readyz 503
            [+]ping ok
            [+]event-loop ok
            [-]collecting failed: waiting for the first lists of 3 kinds
            readyz check failed

            /readyz?verbose
            [+]ping ok
            [+]event-loop ok
            [-]collecting failed: waiting for the first lists of 3 kinds
            readyz check failed

        "#]],
        );
    }

    #[test]
    fn s4_ready_once_it_collects() {
        check(
            0,
            |health, _| health.set_ready(),
            &expect![[r#"
            /livez 200
            ok

            /livez?verbose
            [+]ping ok
            [+]event-loop ok
            livez check passed

            /readyz 200
            ok

            /readyz?verbose
            [+]ping ok
            [+]event-loop ok
            [+]collecting ok
            readyz check passed

        "#]],
        );
    }

    #[test]
    fn s3_ready_and_degraded_names_the_kinds() {
        let tell = |health: &Health, _| {
            health.set_ready();
            for (kind, listed) in
                [("widgets.example.com", false), ("pods", false), ("jobs.batch", false), ("pods", true)]
            {
                health.set_kind_listed(kind, listed);
            }
            health.forget_kind("jobs.batch");
        };
        check(
            0,
            tell,
            &expect![[r#"
            /livez 200
            ok

            /livez?verbose
            [+]ping ok
            [+]event-loop ok
            livez check passed

            /readyz 200
            ok, degraded: 1 kind not listed: widgets.example.com

            /readyz?verbose
            [+]ping ok
            [+]event-loop ok
            [+]collecting ok, degraded: 1 kind not listed: widgets.example.com
            readyz check passed

        "#]],
        );
    }

    #[test]
    fn s3_many_degraded_kinds_are_counted() {
        let health = Health::new(Instant::now());
        health.set_ready();
        (10..40).for_each(|n| health.set_kind_listed(&format!("kind{n}.x"), false));
        expect!["ok, degraded: 30 kinds not listed: kind10.x, kind11.x, kind12.x, kind13.x, kind14.x, kind15.x, kind16.x, kind17.x, kind18.x, kind19.x, kind20.x, kind21.x, kind22.x, kind23.x, kind24.x, kind25.x, kind26.x, kind27.x, kind28.x, kind29.x and 10 more"].assert_eq(&health.readyz(Instant::now()).body("readyz", false));
    }

    #[test]
    fn r2_a_loop_without_progress_for_a_minute_is_dead() {
        check(
            70,
            |health, start| {
                health.set_ready();
                health.beat(start + Duration::from_secs(10));
                health.beat(start);
            },
            &expect![[r#"
                /livez 500
                [+]ping ok
                [-]event-loop failed: no progress for 60 s
                livez check failed

                /livez?verbose
                [+]ping ok
                [-]event-loop failed: no progress for 60 s
                livez check failed

                /readyz 503
                [+]ping ok
                [-]event-loop failed: no progress for 60 s
                [+]collecting ok
                readyz check failed

                /readyz?verbose
                [+]ping ok
                [-]event-loop failed: no progress for 60 s
                [+]collecting ok
                readyz check failed

            "#]],
        );
    }

    #[test]
    fn r2_a_beat_within_the_minute_keeps_it_alive() {
        let start = Instant::now();
        let health = Health::new(start);
        health.beat(start + Duration::from_secs(3_600));
        assert_eq!(health.livez(start + Duration::from_secs(3_659)).code(), 200);
        assert_eq!(health.livez(start + Duration::from_secs(3_660)).code(), 500);
        // A clock read before the beat, by another thread.
        assert_eq!(health.livez(start).code(), 200);
    }
}
