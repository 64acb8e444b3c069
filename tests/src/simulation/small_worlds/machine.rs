//! The collector as a table: what each state of it makes of each event and each reply, asked once.
//!
//! Decisions, graph and memory are the real ones (`gc_core::State` and its attempts). States are told apart by what the
//! graph prints and what the memory prints; attempts by their debug output, which shows every field.

use std::collections::BTreeSet;
use std::time::Duration;

use gc_client::ObjectMeta;
use gc_core::{
    DeleteAttempt, FOREGROUND_FINALIZER, Kinds, ORPHAN_FINALIZER, Options, OrphanAttempt, OrphanStep,
    Outcome, PatchedField, ReleaseAttempt, Reply, Request, Resource, State, Step,
};
use gc_graph::{Coordinate, Effect, Observation, OwnerReferenceRef, SourceId, Uid, fixture};
use hashbrown::HashMap;

use super::super::truth::{Check, Violation};
use super::super::worker::{check_preconditions, show_reply, show_request};
use super::Time;
use super::server::{Contents, GONE, NAMESPACE, Server, bit_of, name};

/// How much passes with each step where time passes: more than any proof lives and any doubt waits.
const TICK: Duration = Duration::from_secs(10);

/// What became due, an item a bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    pub delete: u8,
    pub orphan: u8,
    /// Found absent.
    pub found: u8,
}

/// A step that only the graph takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Change {
    /// An object with this content was observed.
    Seen(usize, u8),
    /// An object that last had this content is gone.
    Gone(usize, u8),
    /// A list shows an object with this content, or, with [`GONE`], does not show it.
    Listed(usize, u8),
    Found(usize),
}

/// Where a worker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Attempt(u32),
    Done,
}

/// What a step of a worker came to.
#[derive(Clone, Debug)]
pub(super) struct Worked {
    pub state: u32,
    pub next: Next,
    pub due: Due,
    pub contents: Contents,
    pub said: String,
}

#[derive(Clone, Debug)]
enum Doing {
    Delete(DeleteAttempt, Request),
    Orphan(OrphanAttempt, Request),
    Release(OrphanAttempt, Vec<(ReleaseAttempt, Request)>),
}

/// See the [module](self).
pub(super) struct Machine {
    pub server: Server,
    time: Time,
    states: Vec<(State, u32)>,
    state_numbers: HashMap<String, u32>,
    attempts: Vec<Doing>,
    attempt_numbers: HashMap<String, u32>,
    changes: HashMap<(u32, Change), (u32, Due)>,
    starts: HashMap<(u32, usize, bool), Worked>,
    works: HashMap<(u32, u32, usize, Contents), Worked>,
}

impl Machine {
    pub(super) fn new(server: Server, options: Options, time: Time) -> Machine {
        let mut state = State::new(options);
        let kind = server.kind;
        let (group, version) =
            (kind.group.to_owned(), kind.versions.first().copied().unwrap_or_default().to_owned());
        let resource = Resource {
            group,
            version,
            resource: kind.plural.into(),
            kind: kind.kind.into(),
            namespaced: kind.namespaced,
        };
        state.set_kinds(Kinds::new([resource]), &mut Vec::new());
        let mut machine = Machine {
            server,
            time,
            states: Vec::new(),
            state_numbers: HashMap::new(),
            attempts: Vec::new(),
            attempt_numbers: HashMap::new(),
            changes: HashMap::new(),
            starts: HashMap::new(),
            works: HashMap::new(),
        };
        machine.state_number(state, 0);
        machine
    }

    fn state_number(&mut self, state: State, steps: u32) -> u32 {
        let printed = fixture::print(state.graph()) + &state.print_memory();
        let new = u32::try_from(self.states.len()).unwrap_or(u32::MAX);
        let number = *self.state_numbers.entry(printed).or_insert(new);
        if number == new {
            self.states.push((state, steps));
        }
        number
    }

    fn attempt_number(&mut self, doing: Doing) -> u32 {
        let printed = print(&doing);
        let new = u32::try_from(self.attempts.len()).unwrap_or(u32::MAX);
        let number = *self.attempt_numbers.entry(printed).or_insert(new);
        if number == new {
            self.attempts.push(doing);
        }
        number
    }

    /// The owners that reads have found waiting, where no time has passed since: that is good for other attempts (D15).
    pub(super) fn found_waiting(&self, number: u32) -> Result<u8, Violation> {
        let state = self.state(number)?;
        let found = |(_, uid): &(usize, &String)| {
            self.time == Time::StandsStill && state.has_found_waiting(&Uid::new(uid))
        };
        Ok(self.server.uids.iter().enumerate().filter(found).fold(0, |bits, (object, _)| bits | 1 << object))
    }

    pub(super) fn state(&self, number: u32) -> Result<&State, Violation> {
        let state = self.states.get(number as usize).map(|(state, _)| state);
        state.ok_or_else(|| Violation::new(Check::Panic, "no such state"))
    }

    /// A state to go on from, how many steps it is old, and the time.
    fn take(&self, number: u32) -> Result<(State, u32, Duration), Violation> {
        let state = self.state(number)?.clone();
        let steps = self.states.get(number as usize).map_or(0, |(_, steps)| steps + 1);
        let now = match self.time {
            Time::StandsStill => Duration::ZERO,
            Time::Passes => TICK * steps,
        };
        Ok((state, steps, now))
    }

    pub(super) fn change(&mut self, from: u32, change: Change) -> Result<(u32, Due), Violation> {
        if let Some(&known) = self.changes.get(&(from, change)) {
            return Ok(known);
        }
        let (mut state, steps, now) = self.take(from)?;
        state.tell_time(now);
        let mut effects = Vec::new();
        match change {
            Change::Seen(object, content) => {
                self.observed(object, content, |seen| state.observe(seen, &mut effects));
            }
            Change::Gone(object, content) => {
                self.observed(object, content, |seen| state.delete(seen, &mut effects));
            }
            Change::Listed(object, content) => {
                let source = source_of(object);
                state.begin_list(source);
                self.observed(object, content, |seen| state.observe(seen, &mut effects));
                state.end_list(source, &mut effects);
            }
            Change::Found(owner) => {
                let now = state.now();
                state.virtual_delete(&self.coordinate(owner), now, &mut effects);
            }
        }
        state.graph().check_invariants().map_err(|problem| Violation::new(Check::Graph, problem))?;
        let due = self.due(&effects)?;
        let number = self.state_number(state, steps);
        self.changes.insert((from, change), (number, due));
        Ok((number, due))
    }

    fn coordinate(&self, owner: usize) -> Coordinate {
        Coordinate {
            kind: self.server.kind.kind.into(),
            api_version: self.server.kind.preferred(),
            namespace: NAMESPACE.into(),
            name: name(owner),
            uid: Uid::new(self.server.uids.get(owner).map_or("", String::as_str)),
        }
    }

    fn observed(&self, object: usize, content: u8, use_it: impl FnOnce(&Observation<'_>)) {
        let Some(content) = self.server.content(object, content) else { return };
        let ObjectMeta { name, namespace, uid, resource_version, being_deleted, owner_references, .. } =
            &content.meta;
        let owners: Vec<OwnerReferenceRef<'_>> = (owner_references.iter())
            .map(|r| OwnerReferenceRef {
                api_version: &r.api_version,
                kind: &r.kind,
                name: &r.name,
                uid: &r.uid,
                controller: r.controller == Some(true),
                block_owner_deletion: r.block_owner_deletion == Some(true),
            })
            .collect();
        use_it(&Observation {
            source: source_of(object),
            api_version: &self.server.kind.preferred(),
            kind: self.server.kind.kind,
            namespace,
            name,
            uid,
            resource_version,
            being_deleted: *being_deleted,
            has_foreground_finalizer: content.has(FOREGROUND_FINALIZER),
            has_orphan_finalizer: content.has(ORPHAN_FINALIZER),
            owner_references: &owners,
        });
    }

    fn bit(&self, uid: &Uid) -> u8 {
        bit_of(&self.server.uids, &uid.to_string())
    }

    fn due(&self, effects: &[Effect]) -> Result<Due, Violation> {
        let mut due = Due::default();
        for effect in effects {
            match effect {
                Effect::AttemptToDelete(uid) | Effect::AttemptToDeleteRateLimited(uid) => {
                    due.delete |= self.bit(uid);
                }
                Effect::AttemptToOrphan(uid) => due.orphan |= self.bit(uid),
                Effect::Absent(_) | Effect::InvalidOwnerReference(_) => {
                    return Err(Violation::new(Check::Graph, effect.to_string()));
                }
            }
        }
        Ok(due)
    }

    /// A worker takes an item.
    pub(super) fn start(
        &mut self,
        from: u32,
        item: usize,
        is_orphan: bool,
        contents: Contents,
    ) -> Result<Worked, Violation> {
        if let Some(known) = self.starts.get(&(from, item, is_orphan)) {
            return Ok(Worked { contents, ..known.clone() });
        }
        let (mut state, steps, now) = self.take(from)?;
        let uid = Uid::new(self.server.uids.get(item).map_or("", String::as_str));
        let ended = if is_orphan {
            orphan(OrphanAttempt::new(uid.clone()), &mut state, now, None)
        } else {
            delete(DeleteAttempt::new(uid.clone()), &mut state, now, None)
        };
        let worked = self.ended((state, steps), (&uid, is_orphan), ended, (contents, String::new()))?;
        self.starts.insert((from, item, is_orphan), worked.clone());
        Ok(worked)
    }

    /// A worker sends one of its requests, and takes the reply.
    pub(super) fn work(
        &mut self,
        from: u32,
        attempt: u32,
        which: usize,
        contents: Contents,
    ) -> Result<Worked, Violation> {
        if let Some(known) = self.works.get(&(from, attempt, which, contents)) {
            return Ok(known.clone());
        }
        let (mut state, steps, now) = self.take(from)?;
        let doing = self.attempts.get(attempt as usize).cloned();
        let doing = doing.ok_or_else(|| Violation::new(Check::Panic, "no such attempt"))?;
        let request = doing.request(which).cloned();
        let request = request.ok_or_else(|| Violation::new(Check::Panic, "no such request"))?;
        check_preconditions(&request, !matches!(doing, Doing::Delete(..)))?;
        let (reply, contents_then) = self.server.answer(contents, &request);
        let said = format!("{} -> {}", show_request(&request), show_reply(&reply));
        let uid = match &doing {
            Doing::Delete(attempt, _) => attempt.uid().clone(),
            Doing::Orphan(attempt, _) | Doing::Release(attempt, _) => attempt.uid().clone(),
        };
        let is_orphan = !matches!(doing, Doing::Delete(..));
        let ended = match doing {
            Doing::Delete(attempt, _) => delete(attempt, &mut state, now, Some(reply)),
            Doing::Orphan(attempt, _) => orphan(attempt, &mut state, now, Some(reply)),
            Doing::Release(attempt, releases) => release(attempt, releases, which, (&mut state, now, reply)),
        };
        let worked = self.ended((state, steps), (&uid, is_orphan), ended, (contents_then, said))?;
        self.works.insert((from, attempt, which, contents), worked.clone());
        Ok(worked)
    }

    /// What was said when this was asked.
    pub(super) fn said(&self, from: u32, attempt: u32, which: usize, contents: Contents) -> Option<String> {
        let request = self.request(attempt, which).map(show_request);
        self.works.get(&(from, attempt, which, contents)).map(|worked| worked.said.clone()).or(request)
    }

    /// What a worker does with the outcome of its attempt.
    fn ended(
        &mut self,
        (state, steps): (State, u32),
        (uid, is_orphan): (&Uid, bool),
        ended: Ended,
        (contents, mut said): (Contents, String),
    ) -> Result<Worked, Violation> {
        let mut due = Due::default();
        let next = match ended {
            Ended::Goes(doing) => Next::Attempt(self.attempt_number(*doing)),
            Ended::Done(outcome) => {
                said = format!("{said}; {outcome}");
                match &outcome {
                    Outcome::Forget(_) => {}
                    Outcome::Retry(_) | Outcome::RetryAfter(..) | Outcome::Busy(..) if is_orphan => {
                        due.orphan |= self.bit(uid);
                    }
                    Outcome::Retry(_) | Outcome::RetryAfter(..) | Outcome::Busy(..) => {
                        due.delete |= self.bit(uid);
                    }
                    Outcome::Enqueue(uids) => {
                        due.delete |= uids.iter().fold(0, |bits, uid| bits | self.bit(uid));
                    }
                    Outcome::VirtuallyDeleted(owner, _) => due.found |= self.bit(&owner.uid),
                    Outcome::Impossible(_) | Outcome::WaitForKind { .. } => {
                        return Err(Violation::new(Check::NoRest, outcome.to_string()));
                    }
                }
                Next::Done
            }
        };
        Ok(Worked { state: self.state_number(state, steps), next, due, contents, said })
    }

    /// The requests of an attempt, any of which may be sent next.
    pub(super) fn requests(&self, attempt: u32) -> usize {
        self.attempts.get(attempt as usize).map_or(0, Doing::requests)
    }

    pub(super) fn request(&self, attempt: u32, which: usize) -> Option<&Request> {
        self.attempts.get(attempt as usize)?.request(which)
    }

    /// The finalizer that an attempt is about to take away.
    pub(super) fn takes_finalizer(&self, attempt: u32) -> Option<&'static str> {
        let is_patch =
            |request: &Request| matches!(request, Request::Patch { change: PatchedField::Finalizers, .. });
        match self.attempts.get(attempt as usize)? {
            Doing::Delete(_, request) if is_patch(request) => Some(FOREGROUND_FINALIZER),
            Doing::Orphan(_, request) if is_patch(request) => Some(ORPHAN_FINALIZER),
            Doing::Delete(..) | Doing::Orphan(..) | Doing::Release(..) => None,
        }
    }

    /// Whether the graph shows exactly these objects, and virtual nodes only for what held objects name.
    pub(super) fn check_graph(&self, number: u32, contents: Contents) -> Result<(), Violation> {
        let graph = self.state(number)?.graph();
        let complain = |what: String| Err(Violation::new(Check::Graph, what));
        let mut observed = BTreeSet::new();
        for node in graph.nodes() {
            let at = self.server.uids.iter().position(|uid| Uid::new(uid) == node.uid());
            if node.is_virtual() {
                let bit = self.bit(&node.uid());
                let is_held =
                    |content: &super::server::Content| content.names & bit == 0 || content.meta.being_deleted;
                if !self.server.present(contents).all(|(_, content)| is_held(content)) {
                    return Err(Violation::new(Check::VirtualLeft, node.coordinate().to_string()));
                }
                continue;
            }
            let number = at.and_then(|at| contents.get(at)).copied().unwrap_or(GONE);
            let Some(content) = at.and_then(|at| self.server.content(at, number)) else {
                return complain(format!("{} is not on the server", node.coordinate()));
            };
            let owners: Vec<(String, bool)> =
                node.owner_references().map(|r| (r.uid.to_string(), r.block_owner_deletion)).collect();
            let expected: Vec<(String, bool)> = (content.meta.owner_references.iter())
                .map(|r| (r.uid.clone(), r.block_owner_deletion == Some(true)))
                .collect();
            let same_flags = node.is_being_deleted() == content.meta.being_deleted
                && node.is_orphaning() == content.is_orphaning()
                && node.is_deleting_dependents() == content.is_waiting();
            if owners != expected || !same_flags || node.resource_version() != content.meta.resource_version {
                return complain(format!("{} is otherwise on the server", node.coordinate()));
            }
            observed.extend(at);
        }
        match self.server.present(contents).find(|(object, _)| !observed.contains(object)) {
            Some((object, _)) => complain(format!("{object} is not in the graph")),
            None => Ok(()),
        }
    }
}

impl Doing {
    fn requests(&self) -> usize {
        match self {
            Doing::Delete(..) | Doing::Orphan(..) => 1,
            Doing::Release(_, releases) => releases.len(),
        }
    }

    fn request(&self, which: usize) -> Option<&Request> {
        match self {
            Doing::Delete(_, request) | Doing::Orphan(_, request) => Some(request),
            Doing::Release(_, releases) => releases.get(which).map(|(_, request)| request),
        }
    }
}

/// Each object has a watch of its own.
fn source_of(object: usize) -> SourceId {
    SourceId(u16::try_from(object).unwrap_or(u16::MAX))
}

/// What an attempt came to.
enum Ended {
    Goes(Box<Doing>),
    Done(Outcome),
}

fn delete(mut attempt: DeleteAttempt, state: &mut State, now: Duration, reply: Option<Reply>) -> Ended {
    match attempt.step(state, now, reply) {
        Step::Call(request) => Ended::Goes(Box::new(Doing::Delete(attempt, request))),
        Step::Done(outcome) => Ended::Done(outcome),
    }
}

fn orphan(mut attempt: OrphanAttempt, state: &mut State, now: Duration, reply: Option<Reply>) -> Ended {
    match attempt.step(state, now, reply) {
        OrphanStep::Call(request) => Ended::Goes(Box::new(Doing::Orphan(attempt, request))),
        OrphanStep::Done(outcome) => Ended::Done(outcome),
        OrphanStep::Release(all) => {
            let mut releases = Vec::new();
            for mut release in all {
                match release.step(state, now, None) {
                    Step::Call(request) => releases.push((release, request)),
                    Step::Done(outcome) => attempt.released(release.uid(), outcome),
                }
            }
            releasing(attempt, releases, state, now)
        }
    }
}

/// One of the releases has its reply.
fn release(
    mut attempt: OrphanAttempt,
    mut releases: Vec<(ReleaseAttempt, Request)>,
    which: usize,
    (state, now, reply): (&mut State, Duration, Reply),
) -> Ended {
    let (mut release, _) = releases.remove(which);
    match release.step(state, now, Some(reply)) {
        Step::Call(request) => releases.insert(which, (release, request)),
        Step::Done(outcome) => attempt.released(release.uid(), outcome),
    }
    releasing(attempt, releases, state, now)
}

fn releasing(
    attempt: OrphanAttempt,
    mut releases: Vec<(ReleaseAttempt, Request)>,
    state: &mut State,
    now: Duration,
) -> Ended {
    if releases.is_empty() {
        return orphan(attempt, state, now, None);
    }
    // In an order of their own: that of the graph depends on which watch was first.
    releases.sort_by_cached_key(|(release, _)| release.uid().clone());
    Ended::Goes(Box::new(Doing::Release(attempt, releases)))
}

/// Shows every field, those in order that have none of their own.
fn print(doing: &Doing) -> String {
    let printed = without_time(&format!("{doing:?}"));
    in_order(&in_order(&printed, "released: {"), "asked: {")
}

/// The same text without the time of the request, by which alone no two states differ.
fn without_time(printed: &str) -> String {
    let Some((before, rest)) = printed.split_once("asked_at: ") else { return printed.to_owned() };
    let after = rest.find([',', ' ', '}']).map_or("", |end| &rest[end..]);
    format!("{before}{after}")
}

/// The same text with the entries of one set or map in the order of their texts.
fn in_order(printed: &str, opening: &str) -> String {
    let Some((before, rest)) = printed.split_once(opening) else { return printed.to_owned() };
    let Some((entries, after)) = rest.split_once('}') else { return printed.to_owned() };
    let mut entries: Vec<&str> = entries.split(", ").collect();
    entries.sort_unstable();
    format!("{before}{opening}{}}}{after}", entries.join(", "))
}
