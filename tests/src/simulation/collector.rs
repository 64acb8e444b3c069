//! The collector in one thread: what gc-daemon's threads do, step by step.
//!
//! The decisions (gc-core), the graph, the builder (gc-builder), the queues, the schedule of discovery and the plan of each
//! watch are the real ones. What is written here once more is what carries out their wishes, in place of threads.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use gc_builder::{Change, Fact, Finding, GraphBuilder, Look, MonitorId, News, Out, Schedule};
use gc_client::{ApiResource, Discovery, Error, MetaBatch, MetaRef};
use gc_core::{Outcome, State};
use gc_graph::{Coordinate, Effect, Uid};
use gc_queue::WorkQueue;
use hashbrown::HashSet;

use super::kinds::{JOB, Kind};
use super::link::{Link, said};
use super::reader::Reader;
use super::truth::{Violation, short_uid};
use super::ttl::Expirer;
use super::worker::Worker;

/// Group and resource.
pub(super) type Name = (String, String);

/// How the collector of one run is set up.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub seed: u64,
    pub delete_workers: u32,
    pub orphan_workers: u32,
    pub stream_lists: bool,
    /// Resources that are not watched, to keep runs short.
    pub ignored: HashSet<Name>,
    pub core: gc_core::Options,
    pub builder: Option<gc_builder::Mistake>,
    pub has_jobs: bool,
}

pub(super) struct Collector {
    pub state: State,
    pub builder: GraphBuilder,
    pub to_delete: WorkQueue<Uid>,
    pub to_orphan: WorkQueue<Uid>,
    /// In the order in which their watches were begun.
    pub readers: Vec<Reader>,
    pub findings: VecDeque<Finding>,
    pub workers: Vec<Worker>,
    /// The version of each object that the graph has taken in, from this life of the collector.
    pub shown: BTreeMap<String, String>,
    /// Where there are jobs.
    pub expirer: Option<Expirer>,
    pub next_look: Duration,
    /// When discovery last answered.
    pub last_look: Duration,
    schedule: Schedule,
    answer: Option<Result<Rc<Discovery>, Error>>,
    runs: u64,
    setup: Setup,
    out: Out,
}

impl Collector {
    pub(super) fn start(setup: &Setup, now: Duration) -> Collector {
        let deleters = (0..setup.delete_workers).map(|_| Worker::for_deletion());
        let orphaners = (0..setup.orphan_workers).map(|_| Worker::for_orphaning());
        Collector {
            state: State::new(setup.core.clone()),
            builder: GraphBuilder::new(gc_builder::Options {
                ignored: setup.ignored.clone(),
                mistake: setup.builder,
            }),
            to_delete: WorkQueue::default(),
            to_orphan: WorkQueue::default(),
            readers: Vec::new(),
            findings: VecDeque::new(),
            workers: deleters.chain(orphaners).collect(),
            shown: BTreeMap::new(),
            expirer: if setup.has_jobs { Expirer::new(now) } else { None },
            next_look: now,
            last_look: now,
            schedule: Schedule::default(),
            answer: None,
            runs: 0,
            setup: setup.clone(),
            out: Out::default(),
        }
    }

    /// Carries out what the builder wants; gives back what came of it, for a trace.
    fn carry_out(&mut self, link: &mut Link) -> String {
        let mut said = String::new();
        for effect in std::mem::take(&mut self.out.effects) {
            said += &said!(link, "; {effect}");
            match effect {
                Effect::AttemptToDelete(uid) => _ = self.to_delete.add(link.now, uid),
                Effect::AttemptToOrphan(uid) => _ = self.to_orphan.add(link.now, uid),
                Effect::AttemptToDeleteRateLimited(uid) => _ = self.to_delete.add_rate_limited(link.now, uid),
                Effect::InvalidOwnerReference(_) | Effect::Absent(_) => {}
            }
        }
        for news in std::mem::take(&mut self.out.news) {
            match news {
                News::Start(id, resource) => {
                    said += &said!(link, "; watches {}", resource.resource);
                    self.read(id, resource, link);
                }
                News::End(id, resource) => {
                    said += &said!(link, "; {} is no longer watched", resource.resource);
                    if let Some(expirer) = self.expirer.as_mut().filter(|_| is_jobs(&resource)) {
                        expirer.stop();
                    }
                    let Some(at) = self.position(id) else { continue };
                    self.readers.remove(at).hang_up(link);
                }
                News::Poke(poke) => {
                    self.next_look = self.next_look.min(link.now + self.schedule.poked(poke));
                }
                News::Failed(..) => {}
                other => said += &said!(link, "; {other:?}"),
            }
        }
        said
    }

    fn position(&self, id: MonitorId) -> Option<usize> {
        self.readers.iter().position(|reader| reader.id.source == id.source)
    }

    /// A reader begins, in place of the one of the same source: what that one has still under way comes first.
    fn read(&mut self, id: MonitorId, resource: ApiResource, link: &mut Link) {
        self.runs += 1;
        let mut reader =
            Reader::new(resource, id, (self.setup.seed ^ self.runs, self.setup.stream_lists), link.now);
        match self.position(id) {
            Some(at) => {
                let old = &mut self.readers[at];
                old.hang_up(link);
                reader.take_over(old, link.now);
                *old = reader;
            }
            None => self.readers.push(reader),
        }
    }

    /// Whether the restored server has come to a version that a watch had seen before, and that watch has not looked.
    pub(super) fn is_overtaken(&self, link: &Link) -> bool {
        let version = link.server.resource_version();
        self.readers.iter().any(|reader| {
            !reader.has_looked(link) && reader.is_ahead_of(link.restored_to) && !reader.is_ahead_of(version)
        })
    }

    /// Whether the watch of this kind hears nothing, and owners have to wait for it.
    pub(super) fn keeps_owners(&self, kind: &Kind, now: Duration) -> bool {
        let is_of = |r: &ApiResource| r.group == kind.group && r.resource == kind.plural;
        self.readers.iter().any(|reader| is_of(&reader.resource) && reader.keeps_owners(now))
    }

    /// The server was set back to an older state: what was shown before is shown no more.
    pub(super) fn server_was_restored(&mut self) {
        self.shown.clear();
        self.readers.iter_mut().for_each(Reader::server_was_restored);
    }

    /// Whom a step is of, for a trace.
    pub(super) fn who(&self, reader: usize, what: &str, link: &Link) -> String {
        let resource = self.readers.get(reader).map(|reader| reader.resource.resource.as_str());
        said!(link, "{what} {}", resource.unwrap_or_default())
    }

    /// The graph takes the next change of a watch.
    pub(super) fn deliver(&mut self, at: usize, link: &mut Link) -> String {
        let Some((seen, heard_at, is_of_now)) = self.readers.get_mut(at).and_then(Reader::next_change) else {
            return String::new();
        };
        self.state.tell_time(link.now);
        if is_of_now && self.builder.monitors().get(seen.monitor).is_some() {
            match &seen.change {
                Change::Seen(objects) => objects.for_each(|meta| {
                    self.shown.insert(meta.uid.to_owned(), meta.resource_version.to_owned());
                }),
                Change::Deleted(objects) => objects.for_each(|meta| _ = self.shown.remove(meta.uid)),
                _ => {}
            }
        }
        if let Some(expirer) = &mut self.expirer
            && self.readers.get(at).is_some_and(|reader| is_jobs(&reader.resource))
            && self.builder.monitors().get(seen.monitor).is_some()
        {
            expirer.hear(link, &seen.change);
        }
        let said = said!(link, "{}", describe(&seen.change));
        self.builder.seen(&mut self.state, link.now, heard_at, &seen, &mut self.out);
        said + &self.carry_out(link)
    }

    /// The graph hears what a worker found.
    pub(super) fn take_finding(&mut self, link: &mut Link) -> String {
        let Some(finding) = self.findings.pop_front() else { return String::new() };
        self.state.tell_time(link.now);
        let said = match &finding.fact {
            Fact::Absent(coordinate, _) => said!(link, "absent {}", show_coordinate(coordinate)),
            Fact::Impossible(coordinate) => said!(link, "impossible {}", show_coordinate(coordinate)),
        };
        self.builder.found(&mut self.state, &finding, &mut self.out);
        said + &self.carry_out(link)
    }

    /// The discovery thread asks the server.
    pub(super) fn look(&mut self, link: &mut Link) -> Result<String, Violation> {
        let answer = link.discover()?;
        self.next_look = link.now + self.schedule.next(Look::of(answer.as_deref()));
        self.last_look = link.now;
        let said = match &answer {
            Ok(discovery) => {
                said!(link, "{} resources, {} failed", discovery.resources.len(), discovery.failed.len())
            }
            Err(error) => error.to_string(),
        };
        self.answer = Some(answer);
        Ok(said)
    }

    pub(super) fn has_answer(&self) -> bool {
        self.answer.is_some()
    }

    /// Whether discovery only looks at its interval.
    pub(super) fn is_discovery_quiet(&self) -> bool {
        let is_missing = self.builder.monitors().iter().any(|monitor| monitor.is_missing());
        self.answer.is_none() && self.schedule.is_quiet() && !is_missing
    }

    /// The builder takes discovery's answer (S1 to S3).
    pub(super) fn take_answer(&mut self, link: &mut Link) -> String {
        let Some(Ok(discovery)) = self.answer.take() else {
            return "failed: nothing changes".into();
        };
        self.state.tell_time(link.now);
        self.builder.discovered(&mut self.state, link.now, &discovery, &mut self.out);
        let said = self.carry_out(link);
        said!(link, "{} watches{said}", self.readers.len())
    }

    /// Whether the graph holds the object with this UID as one that lives.
    pub(super) fn holds(&self, uid: &str) -> bool {
        self.state.graph().get(&Uid::new(uid)).is_some_and(|node| !node.is_virtual())
    }

    /// What is due by time.
    pub(super) fn wake(&mut self, link: &mut Link) -> String {
        self.builder.first_lists_due(link.now, &mut self.out);
        self.carry_out(link)
    }

    /// What a worker does with the outcome of its attempt, which began in this era.
    pub(super) fn settle(
        &mut self,
        now: Duration,
        uid: &Uid,
        is_orphan: bool,
        (era, outcome): (u64, Outcome),
    ) {
        let queue = if is_orphan { &mut self.to_orphan } else { &mut self.to_delete };
        match &outcome {
            Outcome::Retry(_) => _ = queue.add_rate_limited(now, uid.clone()),
            Outcome::RetryAfter(delay, _) => _ = queue.add_after(now, uid.clone(), *delay),
            Outcome::Busy(delay, _) => _ = queue.add_rate_limited_after(now, uid.clone(), *delay),
            Outcome::Forget(_)
            | Outcome::Enqueue(_)
            | Outcome::VirtuallyDeleted(..)
            | Outcome::Impossible(_)
            | Outcome::WaitForKind { .. } => queue.forget(uid),
        }
        queue.done(now, uid);
        self.findings.extend(Finding::of(era, &outcome));
        if let Outcome::Enqueue(uids) = outcome {
            uids.into_iter().for_each(|uid| _ = self.to_delete.add(now, uid));
        }
    }
}

fn is_jobs(resource: &ApiResource) -> bool {
    resource.group == JOB.group && resource.resource == JOB.plural
}

fn describe(change: &Change) -> String {
    match change {
        Change::ListStarted => "a list begins".into(),
        Change::Seen(objects) => each(objects, |meta| {
            let deleting = if meta.being_deleted { " deleting" } else { "" };
            format!("{} {} v{}{deleting}", meta.name, short_uid(meta.uid), meta.resource_version)
        }),
        Change::Deleted(objects) => {
            each(objects, |meta| format!("{} {} is gone", meta.name, short_uid(meta.uid)))
        }
        Change::ListDone(version) => format!("the list is complete at v{version}"),
        Change::Bookmark(version) => format!("nothing else up to v{version}"),
        Change::WentBack(version) => format!("the server went back to v{version}"),
        Change::Ended => "the watch has ended".into(),
        Change::Probing => "the watch is not open".into(),
        Change::Watching => "the watch is open".into(),
        Change::Resumed => "goes on".into(),
        Change::Failed(error) => format!("failed: {error}"),
        Change::Died => "the reader died".into(),
    }
}

fn each(objects: &MetaBatch, describe: impl Fn(&MetaRef<'_>) -> String) -> String {
    let mut said = Vec::new();
    objects.for_each(|meta| said.push(describe(&meta)));
    said.join(", ")
}

pub(super) fn show_coordinate(coordinate: &Coordinate) -> String {
    let Coordinate { kind, api_version, namespace, name, uid } = coordinate;
    format!("{api_version} {kind} {namespace}/{name} {}", short_uid(&uid.to_string()))
}
