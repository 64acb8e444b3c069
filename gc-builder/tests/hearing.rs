//! When an owner that was deleted with Orphan may go (spec O2): what the watches say, one a line, and whether it may.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::fmt::Write as _;
use std::time::Duration;

use expect_test::expect;
use gc_builder::{Change, GraphBuilder, MonitorId, News, Options, Out, Seen};
use gc_client::{Discovery, Error, MetaBatch, MetaRef};
use gc_core::{LiveObject, OrphanAttempt, OrphanStep, Outcome, Reply, State};
use gc_graph::Uid;
use support::resource;

const OWNER: &str = "o";

struct World {
    state: State,
    builder: GraphBuilder,
    watches: Vec<(String, MonitorId)>,
    now: Duration,
    log: String,
}

impl World {
    /// One watch, which has begun to list and has shown the owner.
    fn new() -> World {
        let mut world = World {
            state: State::new(gc_core::Options::default()),
            builder: GraphBuilder::new(Options::default()),
            watches: Vec::new(),
            now: Duration::from_secs(100),
            log: String::new(),
        };
        world.discover(&["ConfigMap"]);
        world.says("ConfigMap", Change::ListStarted, 0);
        world.says("ConfigMap", show_owner(), 0);
        world
    }

    fn discover(&mut self, kinds: &[&str]) {
        let (mut out, resources) = (Out::default(), kinds.iter().map(|kind| resource(kind, kind)).collect());
        let discovery = Discovery { resources, ..Discovery::default() };
        self.builder.discovered(&mut self.state, self.now, &discovery, &mut out);
        for news in out.news {
            if let News::Start(id, resource) = news {
                self.watches.retain(|(name, _)| *name != resource.kind);
                self.watches.push((resource.kind, id));
            }
        }
    }

    /// A watch says something, and so much time passes.
    fn says(&mut self, kind: &str, change: Change, seconds: u64) {
        let monitor = self.watches.iter().find(|(name, _)| name == kind).unwrap().1;
        let seen = Seen { monitor, change };
        self.builder.seen(&mut self.state, self.now, self.now, &seen, &mut Out::default());
        self.now += Duration::from_secs(seconds);
    }

    fn note(&mut self, line: &str) {
        let may_go = self.try_to_orphan();
        writeln!(self.log, "{line}: {}", if may_go { "goes" } else { "stays" }).unwrap();
    }

    /// Whether an attempt at the owner comes as far as the patch of its finalizers.
    fn try_to_orphan(&mut self) -> bool {
        let mut attempt = OrphanAttempt::new(Uid::new(OWNER));
        self.state.tell_time(self.now);
        let live = LiveObject {
            uid: OWNER.into(),
            resource_version: "7".into(),
            being_deleted: true,
            finalizers: vec!["orphan".into()],
            ..LiveObject::default()
        };
        match attempt.step(&mut self.state, self.now, None) {
            OrphanStep::Call(_) => {}
            OrphanStep::Done(Outcome::RetryAfter(..)) => return false,
            other => panic!("{other:?}"),
        }
        match attempt.step(&mut self.state, self.now, Some(Reply::Object(live))) {
            OrphanStep::Call(_) => true,
            OrphanStep::Done(Outcome::RetryAfter(..)) => false,
            other => panic!("{other:?}"),
        }
    }
}

fn show_owner() -> Change {
    let owner =
        MetaRef { name: "o", namespace: "ns", uid: OWNER, resource_version: "7", ..MetaRef::default() };
    Change::Seen(MetaBatch::from(&MetaRef { being_deleted: true, finalizers: &["orphan"], ..owner }))
}

#[test]
fn o2_an_owner_stays_while_a_watch_lists_or_is_not_open() {
    let mut world = World::new();
    world.note("nothing is listed");
    let failed = Change::Failed(Error::Transport { request: "GET".into(), cause: "refused".into() });
    let deaf = [
        ("it has ended", Change::Ended),
        ("it has ended early", Change::Probing),
        ("it has failed", failed),
        ("its reader has died", Change::Died),
        ("a list has begun", Change::ListStarted),
    ];
    for (line, change) in deaf {
        world.says("ConfigMap", Change::Watching, 0);
        world.note("the watch is open");
        world.says("ConfigMap", Change::Watching, 61);
        world.note("for a minute");
        world.says("ConfigMap", change, 1);
        world.note(line);
    }
    world.says("ConfigMap", show_owner(), 0);
    world.says("ConfigMap", Change::ListDone("8".into()), 5);
    world.note("it is listed");
    expect![[r#"
        nothing is listed: stays
        the watch is open: stays
        for a minute: goes
        it has ended: stays
        the watch is open: stays
        for a minute: goes
        it has ended early: stays
        the watch is open: stays
        for a minute: goes
        it has failed: stays
        the watch is open: stays
        for a minute: goes
        its reader has died: stays
        the watch is open: stays
        for a minute: goes
        a list has begun: stays
        it is listed: stays
    "#]]
    .assert_eq(&world.log);
}

#[test]
fn o2_s3_an_owner_stays_while_a_new_kind_is_listed_for_the_first_time() {
    let mut world = World::new();
    world.says("ConfigMap", Change::ListDone("8".into()), 0);
    world.says("ConfigMap", Change::Watching, 1);
    world.note("all is watched");
    world.discover(&["ConfigMap", "Widget"]);
    world.note("a kind is defined");
    world.says("Widget", Change::ListStarted, 0);
    for _ in 0..44 {
        world.now += Duration::from_secs(1);
        assert!(!world.try_to_orphan(), "at {:?}", world.now);
    }
    world.now += Duration::from_secs(1);
    world.note("its list takes long");
    world.discover(&["ConfigMap"]);
    world.now += Duration::from_secs(3);
    world.discover(&["ConfigMap"]);
    world.discover(&["ConfigMap", "Widget"]);
    world.note("it was undefined, and is defined anew");
    expect![[r#"
        all is watched: goes
        a kind is defined: stays
        its list takes long: goes
        it was undefined, and is defined anew: stays
    "#]]
    .assert_eq(&world.log);
}
