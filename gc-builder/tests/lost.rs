//! Servers that are away (spec S4, S7): when the graph builder lets collection begin. Each line of a script is what a watch
//! says, or a time in seconds; what comes of it is the snapshot.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::fmt::Write as _;
use std::time::Duration;

use expect_test::{Expect, expect};
use gc_builder::{Change, GraphBuilder, MonitorId, News, Options, Out, Seen};
use gc_client::{Discovery, Error, Status};
use gc_core::State;
use support::resource;

const RESOURCES: [&str; 3] = ["configmaps", "secrets", "widgets"];

/// The builder, the watches of its three resources, and the time.
struct World {
    state: State,
    builder: GraphBuilder,
    watches: Vec<(String, MonitorId)>,
    now: Duration,
    log: String,
}

impl World {
    fn new() -> World {
        let mut world = World {
            state: State::new(gc_core::Options::default()),
            builder: GraphBuilder::new(Options::default()),
            watches: Vec::new(),
            now: Duration::ZERO,
            log: String::new(),
        };
        let (mut out, discovery) = (
            Out::default(),
            Discovery {
                resources: RESOURCES.map(|name| resource(name, name)).into(),
                ..Discovery::default()
            },
        );
        world.builder.discovered(&mut world.state, world.now, &discovery, &mut out);
        world.carry_out(out);
        world
    }

    fn carry_out(&mut self, out: Out) {
        for news in out.news {
            match news {
                News::Start(id, resource) => {
                    self.watches.retain(|(name, _)| *name != resource.resource);
                    self.watches.push((resource.resource, id));
                }
                News::HeldWhileLost => self.log.push_str("  held: no server\n"),
                News::HeldAfterRestore(_, version) => {
                    writeln!(self.log, "  held: restored to {version}").unwrap();
                }
                News::Collecting(why) => writeln!(self.log, "  collecting: {why}").unwrap(),
                _ => {}
            }
        }
    }

    fn line(&mut self, line: &str) {
        writeln!(self.log, "{line}").unwrap();
        let (subject, rest) = line.split_once(' ').unwrap();
        let mut out = Out::default();
        if subject == "at" {
            self.now = Duration::from_secs(rest.parse().unwrap());
            self.builder.first_lists_due(self.now, &mut out);
            return self.carry_out(out);
        }
        let change = match rest.split_once(' ').unwrap() {
            ("has", "listed") => Change::ListDone("50".into()),
            ("hears", "that nothing happened") => Change::Bookmark("51".into()),
            ("is", "refused") => {
                let body = br#"{"kind":"Status","apiVersion":"v1","code":403,"reason":"Forbidden"}"#;
                Change::Failed(Error::Status(Box::new(Status::from_body(403, None, body))))
            }
            ("finds", "the server as it was") => Change::Resumed,
            ("finds", "the server restored") => Change::WentBack("45".into()),
            ("finds", "no server") => {
                Change::Failed(Error::Transport { request: "GET".into(), cause: "refused".into() })
            }
            _ => panic!("what is {line}?"),
        };
        let monitor = self.watches.iter().find(|(name, _)| name == subject).unwrap().1;
        self.builder.seen(&mut self.state, self.now, self.now, &Seen { monitor, change }, &mut out);
        self.carry_out(out);
    }
}

fn check(script: &str, expected: &Expect) {
    let mut world = World::new();
    script.lines().map(str::trim).for_each(|line| world.line(line));
    expected.assert_eq(&world.log);
}

/// Found by simulation: collection had not begun when all watches lost their server. It began when the time for the first
/// lists was up, although only one watch had found the server again, and it was another watch that saw the restore.
#[test]
fn s4_s7_a_server_that_is_back_is_looked_at_by_all_watches_before_collection_begins() {
    check(
        "configmaps has listed
         secrets has listed
         at 20
         configmaps finds no server
         configmaps finds no server
         secrets finds no server
         secrets finds no server
         at 29
         configmaps finds the server as it was
         at 30
         at 31
         secrets finds the server restored",
        &expect![[r#"
            configmaps has listed
            secrets has listed
            at 20
            configmaps finds no server
            configmaps finds no server
            secrets finds no server
            secrets finds no server
            at 29
            configmaps finds the server as it was
            at 30
            at 31
            secrets finds the server restored
              held: restored to 45
        "#]],
    );
}

/// The same where it had begun: nothing begins until both have looked.
#[test]
fn s7_a_server_that_is_back_is_looked_at_by_all_watches_before_collection_goes_on() {
    check(
        "configmaps has listed
         secrets has listed
         widgets has listed
         at 100
         configmaps finds no server
         configmaps finds no server
         secrets finds no server
         secrets finds no server
         widgets finds no server
         widgets finds no server
         at 120
         configmaps finds the server as it was
         at 130
         at 140
         secrets finds the server as it was
         at 149
         at 150",
        &expect![[r#"
            configmaps has listed
            secrets has listed
            widgets has listed
              collecting: everything is listed
            at 100
            configmaps finds no server
            configmaps finds no server
              held: no server
            secrets finds no server
            secrets finds no server
            widgets finds no server
            widgets finds no server
            at 120
            configmaps finds the server as it was
            at 130
            at 140
            secrets finds the server as it was
            at 149
            at 150
              collecting: not everything is listed, but 30 s have passed
        "#]],
    );
}

/// Found by simulation: the connection of one watch was dead and did not know, so that not all had lost their server, and
/// collection went on after half a minute, before anybody had looked at the server that came back: it had been restored.
/// What was heard in the moment when the others lost it, or earlier, says nothing.
#[test]
fn s7_a_watch_that_says_nothing_is_no_sign_of_a_server() {
    check(
        "configmaps has listed
         secrets has listed
         widgets has listed
         at 100
         configmaps finds no server
         configmaps finds no server
         secrets finds no server
         secrets finds no server
         widgets hears that nothing happened
         at 130
         at 160
         at 170
         secrets finds the server as it was
         at 190
         at 195
         configmaps finds the server restored",
        &expect![[r#"
            configmaps has listed
            secrets has listed
            widgets has listed
              collecting: everything is listed
            at 100
            configmaps finds no server
            configmaps finds no server
              held: no server
            secrets finds no server
            secrets finds no server
            widgets hears that nothing happened
            at 130
            at 160
            at 170
            secrets finds the server as it was
            at 190
            at 195
            configmaps finds the server restored
              held: restored to 45
        "#]],
    );
}

/// A watch may lose its server for good (S3): the others go on, as soon as any of them has had word of theirs.
#[test]
fn s3_s7_one_watch_without_a_server_holds_up_the_others_for_half_a_minute() {
    check(
        "configmaps has listed
         secrets has listed
         widgets has listed
         at 100
         configmaps finds no server
         configmaps finds no server
         at 110
         secrets hears that nothing happened
         at 139
         configmaps finds no server
         at 140
         at 200
         configmaps finds no server",
        &expect![[r#"
            configmaps has listed
            secrets has listed
            widgets has listed
              collecting: everything is listed
            at 100
            configmaps finds no server
            configmaps finds no server
              held: no server
            at 110
            secrets hears that nothing happened
            at 139
            configmaps finds no server
            at 140
              collecting: not everything is listed, but 30 s have passed
            at 200
            configmaps finds no server
        "#]],
    );
}

/// A server that refuses answers; where nothing else is ever heard, that has to be enough.
#[test]
fn s3_s7_a_refusal_is_a_word_of_the_server() {
    check(
        "configmaps has listed
         secrets has listed
         widgets has listed
         at 100
         configmaps finds no server
         configmaps finds no server
         at 130
         secrets is refused
         at 159
         at 160",
        &expect![[r#"
            configmaps has listed
            secrets has listed
            widgets has listed
              collecting: everything is listed
            at 100
            configmaps finds no server
            configmaps finds no server
              held: no server
            at 130
            secrets is refused
            at 159
            at 160
              collecting: not everything is listed, but 30 s have passed
        "#]],
    );
}
