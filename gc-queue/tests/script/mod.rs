//! A small language for tests: a script of queue operations in, a trace out.
//!
//! One operation a line: `add ITEM`, `after ITEM TIME`, `limited ITEM`, `reschedule ITEM TIME`, `get`,
//! `done ITEM`, `forget ITEM`, `requeues ITEM`, `shut down`, and `+TIME`, which lets time pass. A TIME is a
//! number and `us`, `ms`, `s`, `m` or `h`.
//!
//! The trace repeats each operation with the time, its answer, and the queue afterwards: `r` items ready,
//! `w` waiting, `p` being processed, and `next`, when the queue next has something to hand out.
#![expect(clippy::panic, clippy::unwrap_used, reason = "a script that is wrong fails its test")]

use std::fmt::Write;
use std::time::Duration;

use expect_test::Expect;
use gc_queue::{Limit, RateLimiter, WorkQueue};

/// Runs the script on a queue with an exponential limit of 1 ms up to 1 s, and compares the trace.
pub fn check(script: &str, expected: &Expect) {
    let limit = Limit::Exponential { base: Duration::from_millis(1), max: Duration::from_secs(1) };
    check_with(RateLimiter::new(limit), script, expected);
}

/// Runs the script on a queue with this rate limiter, and compares the trace.
pub fn check_with(rate_limiter: RateLimiter, script: &str, expected: &Expect) {
    let mut queue = WorkQueue::new(rate_limiter);
    let mut now = Duration::ZERO;
    let mut trace = String::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let answer = run(&mut queue, &mut now, line);
        queue.advance(now);
        let counts = [queue.len(), queue.waiting_len(), queue.processing_len()];
        let next = queue.next_ready(now).map_or("never".to_owned(), |next| format!("{next:?}"));
        let [ready, waiting, processing] = counts;
        let state = format!("r{ready} w{waiting} p{processing} next {next}");
        writeln!(trace, "{:<8} {line:<20} {answer:<16} {state}", format!("{now:?}")).unwrap();
    }
    expected.assert_eq(&trace);
}

fn run(queue: &mut WorkQueue<String>, now: &mut Duration, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let own = |item: &str| item.to_owned();
    match words[..] {
        ["add", item] => _ = queue.add(*now, own(item)),
        ["after", item, delay] => _ = queue.add_after(*now, own(item), time(delay)),
        ["limited", item] => _ = queue.add_rate_limited(*now, own(item)),
        ["reschedule", item, delay] => _ = queue.reschedule_after(*now, own(item), time(delay)),
        ["get"] => {
            let nothing = if queue.is_shutting_down() { "shut down" } else { "nothing" };
            return queue.get(*now).unwrap_or(own(nothing));
        }
        ["done", item] if queue.done(*now, &own(item)) => {}
        ["done", _] => return own("not processing"),
        ["forget", item] => queue.forget(&own(item)),
        ["requeues", item] => return queue.num_requeues(&own(item)).to_string(),
        ["shut", "down"] => queue.shut_down(),
        [passing] if passing.starts_with('+') => *now += time(&passing[1..]),
        _ => panic!("not an operation: {line}"),
    }
    String::new()
}

fn time(text: &str) -> Duration {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().unwrap_or_else(|_| panic!("not a time: {text}"));
    match &text[digits..] {
        "us" => Duration::from_micros(number),
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(60 * number),
        "h" => Duration::from_secs(3600 * number),
        _ => panic!("not a time: {text}"),
    }
}
