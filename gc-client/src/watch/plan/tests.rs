//! Each line of a script is what came of the last step; the trace shows what the plan makes of it, in virtual time.

use std::fmt::Write as _;

use expect_test::{Expect, expect};

use super::*;
use crate::Status;

fn error(words: &[&str]) -> Error {
    let status = |code: u16, reason: &str, seconds: u64| {
        let retry_after = Some(Duration::from_secs(seconds)).filter(|wait| !wait.is_zero());
        Error::Status(Box::new(Status {
            code,
            reason: reason.into(),
            retry_after,
            is_status: true,
            ..Status::default()
        }))
    };
    match words {
        ["transport"] => Error::Transport { request: String::new(), cause: String::new() },
        ["decode"] => Error::Decode { request: String::new(), cause: String::new() },
        [reason @ ("Expired" | "Gone")] => status(0, reason, 0),
        [code] => status(code.parse().unwrap(), "", 0),
        [code, retry_after_s] => status(code.parse().unwrap(), "", retry_after_s.parse().unwrap()),
        other => panic!("no such error: {other:?}"),
    }
}

/// Carries out one line of the script.
fn apply(plan: &mut Plan, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let seconds = |text: &str| Duration::from_secs_f64(text.parse().unwrap());
    match &words[..] {
        ["page", version] => {
            plan.on(Outcome::Page(ListEnd {
                resource_version: (*version).into(),
                continue_token: String::new(),
            }));
        }
        ["page", version, token] => {
            plan.on(Outcome::Page(ListEnd {
                resource_version: (*version).into(),
                continue_token: (*token).into(),
            }));
        }
        ["listed", version] => plan.listed(version),
        ["saw", version] => plan.saw(version),
        ["probed", version] if plan.is_behind(version) => plan.on(Outcome::WentBack((*version).into())),
        ["probed", _] => plan.on(Outcome::Probed),
        ["ended", lasted_s, "silent"] => {
            plan.on(Outcome::Ended { saw_something: false, lasted: seconds(lasted_s) });
        }
        ["ended", lasted_s] => plan.on(Outcome::Ended { saw_something: true, lasted: seconds(lasted_s) }),
        ["back", version] => plan.on(Outcome::WentBack((*version).into())),
        ["failed", "late", rest @ ..] => {
            plan.on(Outcome::Failed { error: &error(rest), lasted: Duration::from_secs(60) });
        }
        ["failed", rest @ ..] => plan.on(Outcome::Failed { error: &error(rest), lasted: Duration::ZERO }),
        other => panic!("no such outcome: {other:?}"),
    }
}

/// Runs the script and shows every step; a wait is printed and over at once.
fn trace(options: &ReflectorOptions, script: &str) -> String {
    let mut plan = Plan::new(options, Random::new(1, "/api/v1/pods"));
    let mut trace = String::new();
    for line in std::iter::once("start").chain(script.lines().map(str::trim).filter(|line| !line.is_empty()))
    {
        if line != "start" {
            apply(&mut plan, line);
        }
        write!(trace, "{line}:").unwrap();
        // Seeing an event ends no step.
        if line.starts_with("saw") || line.starts_with("listed") {
            trace.push('\n');
            continue;
        }
        loop {
            let step = plan.next_step();
            match &step {
                Step::Wait(wait) => write!(trace, " wait {} ms,", wait.as_millis()).unwrap(),
                Step::ListPage { continue_token } => writeln!(trace, " list {continue_token:?}").unwrap(),
                Step::StreamList { .. } => trace.push_str(" stream list\n"),
                Step::Watch { resource_version, timeout_s } => {
                    assert!((120..=200).contains(timeout_s));
                    writeln!(trace, " watch {resource_version}").unwrap();
                }
                Step::Probe => trace.push_str(" probe\n"),
            }
            if !matches!(step, Step::Wait(_)) {
                break;
            }
        }
    }
    trace
}

fn check(script: &str, expected: &Expect) {
    expected.assert_eq(&trace(&ReflectorOptions::default(), script));
}

#[test]
fn s5_lists_in_pages_and_watches_from_there() {
    check(
        "page 5 a
         page 5 b
         page 5
         saw 6
         saw 9
         ended 200
         ended 130
         probed 9
         ended 200 silent
         probed 12",
        &expect![[r#"
            start: list ""
            page 5 a: list "a"
            page 5 b: list "b"
            page 5: watch 5
            saw 6:
            saw 9:
            ended 200: probe
            ended 130: probe
            probed 9: watch 9
            ended 200 silent: probe
            probed 12: watch 9
        "#]],
    );
}

#[test]
fn kubernetes_83520_both_reasons_and_the_code_start_a_new_list_at_once() {
    check(
        "page 5
         failed Expired
         page 7
         saw 8
         failed Gone
         page 9
         saw 10
         failed 410
         page 11",
        &expect![[r#"
            start: list ""
            page 5: watch 5
            failed Expired: list ""
            page 7: watch 7
            saw 8:
            failed Gone: list ""
            page 9: watch 9
            saw 10:
            failed 410: list ""
            page 11: watch 11
        "#]],
    );
}

#[test]
fn s5_a_version_that_expires_again_and_again_is_backed_off() {
    check(
        "page 5
         failed 410
         page 6
         failed 410
         page 7
         failed 410
         page 8
         failed 410",
        &expect![[r#"
            start: list ""
            page 5: watch 5
            failed 410: list ""
            page 6: watch 6
            failed 410: wait 391 ms, list ""
            page 7: watch 7
            failed 410: wait 773 ms, list ""
            page 8: watch 8
            failed 410: wait 1097 ms, list ""
        "#]],
    );
}

#[test]
fn s5_a_server_that_was_started_anew_is_listed_as_soon_as_it_answers() {
    check(
        "page 5
         failed transport
         failed transport
         probed 9
         failed 410
         page 9
         failed 410",
        &expect![[r#"
            start: list ""
            page 5: watch 5
            failed transport: wait 282 ms, probe
            failed transport: wait 837 ms, probe
            probed 9: watch 5
            failed 410: list ""
            page 9: watch 9
            failed 410: wait 1999 ms, list ""
        "#]],
    );
}

#[test]
fn calico_9593_ordinary_failures_keep_the_version() {
    check(
        "page 5
         failed transport
         failed transport
         probed 5
         failed 503
         failed 429 7
         saw 6
         failed 500
         saw 7
         failed decode
         saw 8
         failed 401",
        &expect![[r#"
            start: list ""
            page 5: watch 5
            failed transport: wait 282 ms, probe
            failed transport: wait 837 ms, probe
            probed 5: watch 5
            failed 503: wait 1138 ms, probe
            failed 429 7: wait 7873 ms, probe
            saw 6:
            failed 500: wait 388 ms, probe
            saw 7:
            failed decode: wait 450 ms, probe
            saw 8:
            failed 401: wait 411 ms, probe
        "#]],
    );
}

#[test]
fn s5_what_the_server_cannot_serve_from_this_version_is_listed_anew() {
    check(
        "page 5
         failed 500
         failed 500
         failed 500
         page 6
         saw 7
         failed decode
         failed decode
         failed decode
         page 8
         failed 404
         failed 404
         failed 404",
        &expect![[r#"
            start: list ""
            page 5: watch 5
            failed 500: wait 282 ms, probe
            failed 500: wait 837 ms, probe
            failed 500: wait 1546 ms, list ""
            page 6: watch 6
            saw 7:
            failed decode: wait 274 ms, probe
            failed decode: wait 777 ms, probe
            failed decode: wait 1803 ms, list ""
            page 8: watch 8
            failed 404: wait 2743 ms, list ""
            failed 404: wait 6969 ms, list ""
            failed 404: wait 12479 ms, list ""
        "#]],
    );
}

#[test]
fn kube_rs_577_the_back_off_grows_and_is_bounded() {
    check(
        &"failed transport\n".repeat(12),
        &expect![[r#"
        start: list ""
        failed transport: wait 394 ms, list ""
        failed transport: wait 782 ms, list ""
        failed transport: wait 1307 ms, list ""
        failed transport: wait 2355 ms, list ""
        failed transport: wait 5996 ms, list ""
        failed transport: wait 15058 ms, list ""
        failed transport: wait 18389 ms, list ""
        failed transport: wait 20576 ms, list ""
        failed transport: wait 26135 ms, list ""
        failed transport: wait 23398 ms, list ""
        failed transport: wait 24835 ms, list ""
        failed transport: wait 16130 ms, list ""
    "#]],
    );
    check(
        "failed 429 20\nfailed 503 86400",
        &expect![[r#"
        start: list ""
        failed 429 20: wait 20656 ms, list ""
        failed 503 86400: wait 70129 ms, list ""
    "#]],
    );
}

/// Found by simulation: the server was restored between two pages, and half of one state and half of another counted as
/// a list.
#[test]
fn s7_a_list_whose_server_went_back_between_two_pages_begins_anew() {
    check(
        "page 5 a
         failed transport
         probed 4
         page 4 a
         failed transport
         probed 4
         page 4 b
         failed 504
         probed 3",
        &expect![[r#"
            start: list ""
            page 5 a: list "a"
            failed transport: wait 282 ms, probe
            probed 4: list ""
            page 4 a: list "a"
            failed transport: wait 653 ms, probe
            probed 4: list "a"
            page 4 b: list "b"
            failed 504: wait 1097 ms, probe
            probed 3: list ""
        "#]],
    );
}

#[test]
fn s5_a_page_is_asked_for_again_but_a_bad_token_restarts_the_list() {
    check(
        "page 5 a
         failed transport
         failed 429
         probed 7
         page 5 b
         failed 410
         page 6 c
         failed 400
         page 6 d
         failed decode",
        &expect![[r#"
            start: list ""
            page 5 a: list "a"
            failed transport: wait 282 ms, probe
            failed 429: wait 837 ms, probe
            probed 7: list "a"
            page 5 b: list "b"
            failed 410: wait 1177 ms, list ""
            page 6 c: list "c"
            failed 400: wait 2670 ms, list ""
            page 6 d: list "d"
            failed decode: wait 7214 ms, list ""
        "#]],
    );
}

#[test]
fn s5_a_list_that_never_ends_is_given_up() {
    let mut script = "page 5 same\n".repeat(PAGES_MAX as usize - 1);
    script.push_str("page 5 last\n");
    let trace = trace(&ReflectorOptions::default(), &script);
    expect![[r#"page 5 last: wait 488 ms, list """#]].assert_eq(trace.lines().last().unwrap());
}

/// Whoever hears of an end so late was stopped, or could not hear: the server may have been restored meanwhile.
#[test]
fn s7_a_watch_that_ends_long_after_its_time_is_followed_by_a_probe() {
    check(
        "page 50
         saw 60
         ended 1000
         probed 60",
        &expect![[r#"
            start: list ""
            page 50: watch 50
            saw 60:
            ended 1000: probe
            probed 60: watch 60
        "#]],
    );
}

#[test]
fn s7_no_watch_goes_on_before_a_probe_was_answered() {
    check(
        "page 50
         failed transport
         failed 500
         failed 500",
        &expect![[r#"
            start: list ""
            page 50: watch 50
            failed transport: wait 282 ms, probe
            failed 500: wait 837 ms, probe
            failed 500: wait 1546 ms, list ""
        "#]],
    );
}

/// While a watch waits to be let in again the server may be restored, and be back before the wait is over: a watch from a
/// version that it has not reached again would hear nothing.
#[test]
fn s7_whatever_a_watch_failed_of_the_server_is_looked_at_first() {
    check(
        "page 50
         failed 403
         probed 50
         failed 429 7
         probed 50
         failed 500
         back 40",
        &expect![[r#"
            start: list ""
            page 50: watch 50
            failed 403: wait 282 ms, probe
            probed 50: watch 50
            failed 429 7: wait 7537 ms, probe
            probed 50: watch 50
            failed 500: wait 1177 ms, list ""
            back 40: list ""
        "#]],
    );
}

#[test]
fn s7_a_server_that_went_back_is_listed_anew() {
    check(
        "page 50
         saw 60
         saw 55
         failed transport
         probed 40
         page 40
         saw 41
         back 30
         page 30
         failed transport
         probed 30
         saw 45
         ended 7
         probed 31",
        &expect![[r#"
            start: list ""
            page 50: watch 50
            saw 60:
            saw 55:
            failed transport: wait 282 ms, probe
            probed 40: list ""
            page 40: watch 40
            saw 41:
            back 30: list ""
            page 30: watch 30
            failed transport: wait 284 ms, probe
            probed 30: watch 30
            saw 45:
            ended 7: probe
            probed 31: list ""
        "#]],
    );
    // Versions that are no numbers cannot be compared.
    check(
        "page x/2\nfailed transport\nprobed x/1\nsaw x/0\nended 200",
        &expect![[r#"
            start: list ""
            page x/2: watch x/2
            failed transport: wait 282 ms, probe
            probed x/1: watch x/2
            saw x/0:
            ended 200: probe
        "#]],
    );
}

#[test]
fn s5_a_watch_that_ends_at_once_is_a_failure_and_one_that_held_is_none() {
    check(
        "page 5
         ended 0.2 silent
         probed 5
         ended 0.2 silent
         probed 5
         ended 0.2
         probed 5
         failed late transport
         probed 5
         failed late transport",
        &expect![[r#"
            start: list ""
            page 5: watch 5
            ended 0.2 silent: wait 282 ms, probe
            probed 5: watch 5
            ended 0.2 silent: wait 659 ms, probe
            probed 5: watch 5
            ended 0.2: probe
            probed 5: watch 5
            failed late transport: wait 274 ms, probe
            probed 5: watch 5
            failed late transport: wait 470 ms, probe
        "#]],
    );
}

#[test]
fn s5_a_server_that_refuses_the_metadata_forms_is_asked_for_plain_json() {
    let mut plan = Plan::new(&ReflectorOptions::default(), Random::new(1, ""));
    apply(&mut plan, "failed 406");
    assert!(plan.plain_accept());
    assert_eq!(plan.next_step(), Step::ListPage { continue_token: String::new() });
    apply(&mut plan, "failed 406");
    assert!(matches!(plan.next_step(), Step::Wait(_)));
}

#[test]
fn s5_streamed_lists_fall_back_where_they_are_refused_or_never_complete() {
    let options = ReflectorOptions { stream_lists: true, ..ReflectorOptions::default() };
    expect![[r#"
        start: stream list
        listed 5:
        saw 6:
        ended 200: probe
        failed 410: wait 282 ms, probe
        listed 9:
        ended 200: probe
    "#]]
    .assert_eq(&trace(&options, "listed 5\nsaw 6\nended 200\nfailed 410\nlisted 9\nended 200"));
    expect![[r#"
        start: stream list
        failed 422: list ""
        page 5: watch 5
    "#]]
    .assert_eq(&trace(&options, "failed 422\npage 5"));
    expect![[r#"
        start: stream list
        ended 120: wait 394 ms, stream list
        failed transport: wait 782 ms, stream list
        ended 5: wait 1307 ms, list ""
        page 5: watch 5
    "#]]
    .assert_eq(&trace(&options, "ended 120\nfailed transport\nended 5\npage 5"));
}

#[test]
fn two_resources_do_not_come_back_together() {
    let wait = |resource: &str| {
        let mut plan = Plan::new(&ReflectorOptions::default(), Random::new(1, resource));
        apply(&mut plan, "failed transport");
        plan.next_step()
    };
    assert_ne!(wait("/api/v1/pods"), wait("/api/v1/nodes"));
    assert_eq!(wait("/api/v1/pods"), wait("/api/v1/pods"));
}
