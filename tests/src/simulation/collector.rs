//! The collector in one thread: what gc-daemon's event loop, discovery thread and monitors do, step by step.
//!
//! The decisions (gc-core), the graph, the queues and the plan of each watch are the real ones. What is written here
//! once more is the shell around them, as thin as it can be.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use gc_client::{ApiResource, Discovery, Error, ObjectMeta};
use gc_core::{FOREGROUND_FINALIZER, Kinds, ORPHAN_FINALIZER, Options, Outcome, Resource, State};
use gc_graph::{Coordinate, Effect, Observation, OwnerReferenceRef, SourceId, Uid};
use gc_queue::WorkQueue;

use super::Mistake;
use super::link::Link;
use super::reader::{Change, Reader};
use super::truth::{Violation, short_uid};
use super::worker::Worker;

/// gc-daemon's constants.
const MISSING_FOR: Duration = Duration::from_secs(3);
const FIRST_LISTS_WITHIN: Duration = Duration::from_secs(30);
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(30);
const LOOK_AFTER_CHANGE_MS: [u64; 5] = [50, 250, 1_000, 2_000, 4_000];
const LOOK_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Group and resource.
pub(super) type Name = (String, String);

/// What a worker found that only the event loop may tell the graph.
#[derive(Debug)]
pub(super) enum Finding {
    Absent(Coordinate),
    Impossible(Coordinate),
}

/// How the collector of one run is set up.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub seed: u64,
    pub delete_workers: u32,
    pub orphan_workers: u32,
    pub stream_lists: bool,
    /// Resources that are watched; the others are ignored, to keep runs short.
    pub watched: BTreeSet<Name>,
    pub options: Options,
}

pub(super) struct Collector {
    pub state: State,
    pub to_delete: WorkQueue<Uid>,
    pub to_orphan: WorkQueue<Uid>,
    pub readers: BTreeMap<Name, Reader>,
    pub findings: VecDeque<Finding>,
    pub workers: Vec<Worker>,
    /// The version of each object that the graph has taken in, from this life of the collector.
    pub shown: BTreeMap<String, String>,
    pub is_collecting: bool,
    /// Collection starts then, whatever is listed.
    pub first_lists_due: Option<Duration>,
    pub next_look: Duration,
    /// When discovery last answered.
    pub last_look: Duration,
    answer: Option<Result<Rc<Discovery>, Error>>,
    looked: usize,
    failures: u32,
    is_discovered: bool,
    /// What discovery last said of each group and version.
    kinds: BTreeMap<String, Vec<ApiResource>>,
    free_sources: Vec<u16>,
    next_source: u16,
    runs: u64,
    setup: Setup,
    effects: Vec<Effect>,
}

impl Collector {
    pub(super) fn start(setup: &Setup, now: Duration) -> Collector {
        let deleters = (0..setup.delete_workers).map(|_| Worker::for_deletion());
        let orphaners = (0..setup.orphan_workers).map(|_| Worker::for_orphaning());
        Collector {
            state: State::new(setup.options.clone()),
            to_delete: WorkQueue::default(),
            to_orphan: WorkQueue::default(),
            readers: BTreeMap::new(),
            findings: VecDeque::new(),
            workers: deleters.chain(orphaners).collect(),
            shown: BTreeMap::new(),
            is_collecting: false,
            first_lists_due: None,
            next_look: now,
            last_look: now,
            answer: None,
            looked: LOOK_AFTER_CHANGE_MS.len(),
            failures: 0,
            is_discovered: false,
            kinds: BTreeMap::new(),
            free_sources: Vec::new(),
            next_source: 0,
            runs: 0,
            setup: setup.clone(),
            effects: Vec::new(),
        }
    }

    /// Puts effects where they belong; gives them back for a trace.
    fn apply_effects(&mut self, now: Duration) -> Vec<Effect> {
        let effects = std::mem::take(&mut self.effects);
        for effect in &effects {
            let (uid, queue) = match effect {
                Effect::AttemptToDelete(uid) => (uid, &mut self.to_delete),
                Effect::AttemptToOrphan(uid) => (uid, &mut self.to_orphan),
                Effect::AttemptToDeleteRateLimited(uid) => {
                    self.to_delete.add_rate_limited(now, uid.clone());
                    continue;
                }
                Effect::InvalidOwnerReference(_) | Effect::Absent(_) => continue,
            };
            queue.add(now, uid.clone());
        }
        effects
    }

    /// The graph takes the next change of a watch.
    pub(super) fn deliver(&mut self, name: &Name, link: &mut Link) -> String {
        let Some(reader) = self.readers.get_mut(name) else { return String::new() };
        let Some(change) = reader.changes.pop_front() else { return String::new() };
        self.state.tell_time(link.now);
        if reader.defines_resources() && matches!(change, Change::Seen(_) | Change::Deleted(_)) {
            self.looked = 1;
            self.next_look = self.next_look.min(link.now + after_change(0));
        }
        let kind =
            Shown { source: reader.source, api_version: &reader.api_version, kind: &reader.resource.kind };
        let said = describe(&change);
        let mut listed = None;
        match change {
            Change::ListStarted => self.state.begin_list(reader.source),
            Change::Seen(meta) => {
                kind.observe(&meta, |seen| self.state.observe(seen, &mut self.effects));
                self.shown.insert(meta.uid, meta.resource_version);
            }
            Change::Deleted(meta) => {
                kind.observe(&meta, |seen| self.state.delete(seen, &mut self.effects));
                self.shown.remove(&meta.uid);
            }
            Change::ListDone(version) => {
                self.state.end_list(reader.source, &mut self.effects);
                listed = Some(version);
            }
            Change::Failed(error) => {
                reader.is_unserved =
                    matches!(&error, Error::Status(status) if status.code == 404 && !status.is_status);
            }
        }
        let effects = show_effects(&self.apply_effects(link.now));
        let more = listed.map(|version| self.listed(name, &version, link)).unwrap_or_default();
        format!("{said}{effects}{more}")
    }

    fn listed(&mut self, name: &Name, version: &str, link: &mut Link) -> String {
        let Some(reader) = self.readers.get_mut(name) else { return String::new() };
        reader.is_unserved = false;
        let version = version.parse().unwrap_or(reader.version);
        let went_back = version < std::mem::replace(&mut reader.version, version);
        reader.is_synced = true;
        if went_back {
            self.start_again(link);
            return " (the server went back)".into();
        }
        self.collect_if_all_listed();
        String::new()
    }

    /// S7.
    fn start_again(&mut self, link: &mut Link) {
        self.is_collecting = false;
        self.state.forget_proofs(&mut self.effects);
        self.apply_effects(link.now);
        let resources: Vec<ApiResource> = self.readers.values().map(|r| r.resource.clone()).collect();
        for resource in resources {
            self.watch(resource, true, link);
        }
        self.first_lists_due = Some(link.now + FIRST_LISTS_WITHIN);
    }

    /// The graph hears what a worker found.
    pub(super) fn take_finding(&mut self, now: Duration) -> String {
        let Some(finding) = self.findings.pop_front() else { return String::new() };
        self.state.tell_time(now);
        let said = match &finding {
            Finding::Absent(coordinate) => {
                self.state.virtual_delete(coordinate, &mut self.effects);
                format!("absent {}", show_coordinate(coordinate))
            }
            Finding::Impossible(coordinate) => {
                self.state.reconsider(coordinate, &mut self.effects);
                format!("impossible {}", show_coordinate(coordinate))
            }
        };
        format!("{said}{}", show_effects(&self.apply_effects(now)))
    }

    /// The discovery thread asks the server.
    pub(super) fn look(&mut self, link: &mut Link) -> Result<String, Violation> {
        let answer = link.discover()?;
        let delay = self.delay_until_next_look(answer.is_err());
        self.next_look = link.now + delay;
        self.last_look = link.now;
        let said = match &answer {
            Ok(discovery) => {
                format!("{} resources, {} failed", discovery.resources.len(), discovery.failed.len())
            }
            Err(error) => error.to_string(),
        };
        self.answer = Some(answer);
        Ok(said)
    }

    fn delay_until_next_look(&mut self, failed: bool) -> Duration {
        if failed {
            self.failures += 1;
            return LOOK_AFTER_FAILURE * (1 << (self.failures - 1).min(3));
        }
        self.failures = 0;
        let delay = LOOK_AFTER_CHANGE_MS.get(self.looked).map_or(LOOK_EVERY, |_| after_change(self.looked));
        self.looked = (self.looked + 1).min(LOOK_AFTER_CHANGE_MS.len());
        delay
    }

    pub(super) fn has_answer(&self) -> bool {
        self.answer.is_some()
    }

    /// Whether discovery only looks at its interval.
    pub(super) fn is_discovery_quiet(&self) -> bool {
        let missing = self.readers.values().any(|reader| reader.missing_since.is_some());
        self.answer.is_none() && self.failures == 0 && self.looked == LOOK_AFTER_CHANGE_MS.len() && !missing
    }

    /// The event loop takes discovery's answer (S1 to S3).
    pub(super) fn take_answer(&mut self, link: &mut Link) -> String {
        let believes_it = link.mistake == Some(Mistake::EmptyDiscoveryIsTruth);
        let discovery = match self.answer.take() {
            Some(Ok(discovery)) if !discovery.resources.is_empty() || believes_it => discovery,
            Some(Ok(_)) => return "names no resource at all: nothing changes".into(),
            Some(Err(_)) | None => return "failed: nothing changes".into(),
        };
        let failed: BTreeSet<String> = discovery.failed.iter().map(|(version, _)| version.clone()).collect();
        self.kinds.retain(|group_version, _| is_failed(&failed, group_version));
        for resource in &discovery.resources {
            let served = self.kinds.entry(resource.api_version()).or_default();
            served.retain(|r| r.resource != resource.resource);
            served.push(resource.clone());
        }
        let wanted: Vec<ApiResource> =
            discovery.resources.iter().filter(|r| self.is_wanted(r)).cloned().collect();
        let unserved = self.end_missing(&wanted, &failed, link);
        for resource in wanted {
            let stays =
                self.readers.get(&name_of(&resource)).is_some_and(|r| is_failed(&failed, &r.api_version));
            if !stays {
                self.watch(resource, false, link);
            }
        }
        self.state.tell_time(link.now);
        for source in &unserved {
            if believes_it {
                self.state.begin_list(*source);
                self.state.end_list(*source, &mut self.effects);
            }
            self.state.unserve(*source, &mut self.effects);
        }
        let kinds = Kinds::new(self.kinds.values().flatten().map(core_resource));
        self.state.set_kinds(kinds, &mut self.effects);
        let effects = show_effects(&self.apply_effects(link.now));
        if !self.is_discovered {
            self.is_discovered = true;
            self.first_lists_due = Some(link.now + FIRST_LISTS_WITHIN);
        }
        self.collect_if_all_listed();
        format!("{} watches, {} ended{effects}", self.readers.len(), unserved.len())
    }

    fn is_wanted(&self, resource: &ApiResource) -> bool {
        let can = resource.can_delete && resource.can_list && resource.can_watch;
        resource.preferred && can && self.setup.watched.contains(&name_of(resource))
    }

    fn end_missing(
        &mut self,
        wanted: &[ApiResource],
        failed: &BTreeSet<String>,
        link: &mut Link,
    ) -> Vec<SourceId> {
        let names: BTreeSet<Name> = wanted.iter().map(name_of).collect();
        let (mut gone, mut look_again) = (Vec::new(), false);
        for (name, reader) in &mut self.readers {
            if names.contains(name) || is_failed(failed, &reader.api_version) {
                reader.is_unserved |= reader.missing_since.take().is_some();
                continue;
            }
            match reader.missing_since {
                Some(since) if MISSING_FOR <= link.now.saturating_sub(since) => gone.push(name.clone()),
                Some(_) => look_again = true,
                None => {
                    reader.missing_since = Some(link.now);
                    look_again = true;
                }
            }
        }
        if look_again {
            self.looked = 1;
            self.next_look = self.next_look.min(link.now + after_change(0));
        }
        let mut unserved = Vec::new();
        for name in gone {
            if let Some(mut reader) = self.readers.remove(&name) {
                reader.hang_up(link);
                self.free_sources.push(reader.source.0);
                unserved.push(reader.source);
            }
        }
        unserved
    }

    /// Starts a watch, or replaces its reader where there is a reason to.
    fn watch(&mut self, resource: ApiResource, anew: bool, link: &mut Link) {
        let name = name_of(&resource);
        let (source, version) = match self.readers.get_mut(&name) {
            Some(reader) if reader.resource == resource && !reader.is_unserved && !anew => return,
            Some(reader) => {
                reader.hang_up(link);
                (reader.source, if anew { 0 } else { reader.version })
            }
            None => (self.free_source(), 0),
        };
        self.runs += 1;
        let seed = self.setup.seed ^ self.runs;
        let mut reader = Reader::new(resource, source, seed, self.setup.stream_lists);
        reader.version = version;
        self.readers.insert(name, reader);
    }

    fn free_source(&mut self) -> SourceId {
        if let Some(source) = self.free_sources.pop() {
            return SourceId(source);
        }
        self.next_source += 1;
        SourceId(self.next_source - 1)
    }

    fn collect_if_all_listed(&mut self) {
        if !self.is_collecting && self.is_discovered && self.readers.values().all(|r| r.is_synced) {
            self.collect();
        }
    }

    /// S4.
    pub(super) fn collect(&mut self) {
        self.first_lists_due = None;
        self.is_collecting = true;
    }

    /// What a worker does with the outcome of its attempt.
    pub(super) fn settle(&mut self, now: Duration, uid: &Uid, is_orphan: bool, outcome: Outcome) {
        let queue = if is_orphan { &mut self.to_orphan } else { &mut self.to_delete };
        match &outcome {
            Outcome::Retry(_) => _ = queue.add_rate_limited(now, uid.clone()),
            Outcome::RetryAfter(delay, _) => _ = queue.add_after(now, uid.clone(), *delay),
            Outcome::Forget(_)
            | Outcome::Enqueue(_)
            | Outcome::VirtuallyDeleted(_)
            | Outcome::Impossible(_)
            | Outcome::WaitForKind { .. } => queue.forget(uid),
        }
        queue.done(now, uid);
        match outcome {
            Outcome::Enqueue(uids) => uids.into_iter().for_each(|uid| _ = self.to_delete.add(now, uid)),
            Outcome::VirtuallyDeleted(coordinate) => self.findings.push_back(Finding::Absent(coordinate)),
            Outcome::Impossible(coordinate) => self.findings.push_back(Finding::Impossible(coordinate)),
            Outcome::Forget(_)
            | Outcome::WaitForKind { .. }
            | Outcome::Retry(_)
            | Outcome::RetryAfter(..) => {}
        }
    }
}

impl Reader {
    fn defines_resources(&self) -> bool {
        self.resource.resource == "customresourcedefinitions"
    }
}

fn after_change(look: usize) -> Duration {
    Duration::from_millis(LOOK_AFTER_CHANGE_MS.get(look).copied().unwrap_or_default())
}

pub(super) fn name_of(resource: &ApiResource) -> Name {
    (resource.group.clone(), resource.resource.clone())
}

fn is_failed(failed: &BTreeSet<String>, api_version: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    failed.iter().any(|f| f == api_version || f.split_once('/').is_some_and(|(g, _)| g == group))
}

fn core_resource(resource: &ApiResource) -> Resource {
    Resource {
        group: resource.group.clone(),
        version: resource.version.clone(),
        resource: resource.resource.clone(),
        kind: resource.kind.clone(),
        namespaced: resource.namespaced,
    }
}

/// What the objects of one watch have in common.
struct Shown<'a> {
    source: SourceId,
    api_version: &'a str,
    kind: &'a str,
}

impl Shown<'_> {
    fn observe(&self, meta: &ObjectMeta, apply: impl FnOnce(&Observation<'_>)) {
        let has = |finalizer: &str| meta.finalizers.iter().any(|f| f == finalizer);
        let owners: Vec<OwnerReferenceRef<'_>> = (meta.owner_references.iter())
            .map(|r| OwnerReferenceRef {
                api_version: &r.api_version,
                kind: &r.kind,
                name: &r.name,
                uid: &r.uid,
                controller: r.controller == Some(true),
                block_owner_deletion: r.block_owner_deletion == Some(true),
            })
            .collect();
        apply(&Observation {
            source: self.source,
            api_version: self.api_version,
            kind: self.kind,
            namespace: &meta.namespace,
            name: &meta.name,
            uid: &meta.uid,
            resource_version: &meta.resource_version,
            being_deleted: meta.being_deleted,
            has_foreground_finalizer: has(FOREGROUND_FINALIZER),
            has_orphan_finalizer: has(ORPHAN_FINALIZER),
            owner_references: &owners,
        });
    }
}

fn describe(change: &Change) -> String {
    match change {
        Change::ListStarted => "a list begins".into(),
        Change::Seen(meta) => {
            let deleting = if meta.being_deleted { " deleting" } else { "" };
            format!("{} {} v{}{deleting}", meta.name, short_uid(&meta.uid), meta.resource_version)
        }
        Change::Deleted(meta) => format!("{} {} is gone", meta.name, short_uid(&meta.uid)),
        Change::ListDone(version) => format!("the list is complete at v{version}"),
        Change::Failed(error) => format!("failed: {error}"),
    }
}

fn show_effects(effects: &[Effect]) -> String {
    effects.iter().map(|effect| format!("; {effect}")).collect()
}

pub(super) fn show_coordinate(coordinate: &Coordinate) -> String {
    let Coordinate { kind, api_version, namespace, name, uid } = coordinate;
    format!("{api_version} {kind} {namespace}/{name} {}", short_uid(&uid.to_string()))
}
