//! Every way through one world, with what must hold at each step and wherever it comes to rest.

use hashbrown::HashMap;

use gc_core::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER, Options, PatchedField, Request};

use super::super::kinds::Kind;
use super::super::truth::{Check, Violation};
use super::graphs::{OBJECTS_MAX, World};
use super::machine::{Change, Due, Machine, Next, Worked};
use super::server::{Act, Content, Contents, GONE, HOLD, Server};
use super::{Bound, Counts, Found};

const WORKERS: usize = 2;
const POLICIES: [&str; 3] = ["Background", "Foreground", "Orphan"];
/// More events of one object than can wait: each changes its content, and it has few of these.
const EVENTS_MAX: usize = 10;

/// Where everything stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Node {
    /// What the server has.
    contents: Contents,
    /// The collector's graph and memory.
    state: u32,
    /// What the watches have not delivered yet, each object's own, the oldest first.
    events: [Events; OBJECTS_MAX],
    /// The two queues, and what was found absent and waits for the graph; an item a bit.
    delete: u8,
    orphan: u8,
    found: u8,
    /// How often users have deleted something.
    deletions: u8,
    /// The objects that were waiting at any time.
    was_waiting: u8,
    /// The objects that were orphaning at any time, and those that the collector has taken `orphan` from.
    was_orphaning: u8,
    orphaned: u8,
    /// Both workers, in the order of their jobs: which of them does which makes no difference.
    workers: [Option<Job>; WORKERS],
}

/// The numbers of contents, the oldest first, [`GONE`] after the last: the object was observed with these. Where the
/// object has been removed, the last one is what it was then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Events {
    contents: [u8; EVENTS_MAX],
    len: u8,
    ends: bool,
}

/// An attempt under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Job {
    item: u8,
    is_orphan: bool,
    attempt: u32,
    /// The objects that were waiting at some moment since the attempt began, or found so just before.
    waited: u8,
}

/// What can happen next.
#[derive(Clone, Copy, Debug)]
enum Move {
    User(Act),
    Deliver(usize),
    /// The watch of an object was lost, and a list takes the place of the events that it has not delivered.
    Relist(usize),
    Find(usize),
    Start {
        item: usize,
        is_orphan: bool,
    },
    Send {
        worker: usize,
        which: usize,
    },
}

impl Move {
    fn is_users(self) -> bool {
        matches!(self, Move::User(_))
    }
}

/// See the [module](self).
pub(super) struct Search<'w> {
    world: &'w World,
    bound: &'w Bound,
    machine: Machine,
    numbers: HashMap<Node, u32>,
    nodes: Vec<Node>,
    /// From where each was reached first, and how.
    reached: Vec<(u32, Option<Move>)>,
    /// The steps that do not need a user, backwards: to, from.
    steps_back: Vec<(u32, u32)>,
    at_rest: Vec<u32>,
    steps: u64,
}

impl<'w> Search<'w> {
    /// Tries everything.
    pub(super) fn run(
        world: &'w World,
        bound: &'w Bound,
        kind: &'static Kind,
        options: Options,
    ) -> Result<Counts, Box<Found>> {
        let found =
            |violation: Violation| Box::new(Found { world: world.show(), violation, way: Vec::new() });
        let (server, contents) = Server::new(world, kind).map_err(found)?;
        let mut search = Search {
            world,
            bound,
            machine: Machine::new(server, options, bound.time),
            numbers: HashMap::new(),
            nodes: Vec::new(),
            reached: Vec::new(),
            steps_back: Vec::new(),
            at_rest: Vec::new(),
            steps: 0,
        };
        search.reach(first(contents), (0, None));
        search.explore()?;
        search.check_rest()?;
        Ok(Counts {
            worlds: 1,
            states: search.nodes.len() as u64,
            steps: search.steps,
            at_rest: search.at_rest.len() as u64,
        })
    }

    fn reach(&mut self, node: Node, how: (u32, Option<Move>)) -> u32 {
        let new = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(node).or_insert(new);
        if number == new {
            self.nodes.push(node);
            self.reached.push(how);
        }
        number
    }

    fn explore(&mut self) -> Result<(), Box<Found>> {
        let mut at = 0;
        while let Some(&node) = self.nodes.get(at as usize) {
            let moves = self.moves(&node);
            for &chosen in &moves {
                self.steps += 1;
                let next =
                    self.make(&node, chosen).map_err(|violation| self.found(at, Some(chosen), violation))?;
                let number = self.reach(next, (at, Some(chosen)));
                if !chosen.is_users() {
                    self.steps_back.push((number, at));
                }
            }
            if moves.iter().all(|chosen| chosen.is_users()) {
                self.check_end(&node).map_err(|violation| self.found(at, None, violation))?;
                self.at_rest.push(at);
            }
            at += 1;
        }
        Ok(())
    }

    fn moves(&self, node: &Node) -> Vec<Move> {
        let mut moves = Vec::new();
        for (object, content) in self.machine.server.present(node.contents) {
            if node.deletions < self.bound.deletions_max {
                moves.extend(POLICIES.map(|policy| Move::User(Act::Delete(object, policy))));
            }
            if content.meta.being_deleted && content.has(HOLD) {
                moves.push(Move::User(Act::LetGo(object)));
            }
        }
        let waits = |object: &usize| node.events.get(*object).is_some_and(|events| events.len > 0);
        moves.extend((0..self.world.objects).filter(waits).map(Move::Deliver));
        if self.bound.relists {
            moves.extend((0..self.world.objects).filter(waits).map(Move::Relist));
        }
        moves.extend(bits(node.found).map(Move::Find));
        for (worker, job) in node.workers.iter().enumerate() {
            let Some(job) = job else { continue };
            moves.extend((0..self.machine.requests(job.attempt)).map(|which| Move::Send { worker, which }));
        }
        if node.workers.iter().any(Option::is_none) {
            for is_orphan in [false, true] {
                let queue = if is_orphan { node.orphan } else { node.delete };
                let busy = |item: usize| {
                    let mut jobs = node.workers.iter().flatten();
                    jobs.any(|job| job.is_orphan == is_orphan && usize::from(job.item) == item)
                };
                let free = bits(queue).filter(|&item| !busy(item));
                moves.extend(free.map(|item| Move::Start { item, is_orphan }));
            }
        }
        moves
    }

    fn make(&mut self, node: &Node, chosen: Move) -> Result<Node, Violation> {
        let mut next = *node;
        match chosen {
            Move::User(act) => {
                next.deletions += u8::from(matches!(act, Act::Delete(..)));
                let contents = self.machine.server.act(node.contents, act);
                self.write(&mut next, contents)?;
            }
            Move::Deliver(object) => {
                let Some(events) = next.events.get_mut(object) else { return Ok(next) };
                let change = events.pop(object);
                self.change(&mut next, change)?;
            }
            Move::Relist(object) => {
                let Some(events) = next.events.get_mut(object) else { return Ok(next) };
                let change = events.list(object);
                self.change(&mut next, change)?;
            }
            Move::Find(owner) => {
                next.found &= !bit(owner);
                self.change(&mut next, Change::Found(owner))?;
            }
            Move::Start { item, is_orphan } => {
                if is_orphan {
                    next.orphan &= !bit(item);
                } else {
                    next.delete &= !bit(item);
                }
                let worker = next.workers.iter().position(Option::is_none).unwrap_or_default();
                let worked = self.machine.start(node.state, item, is_orphan, node.contents)?;
                let item = u8::try_from(item).unwrap_or(u8::MAX);
                let waited = self.waiting(node.contents) | self.machine.found_waiting(node.state)?;
                let job = Job { item, is_orphan, attempt: 0, waited };
                self.worked(&mut next, worker, job, &worked)?;
            }
            Move::Send { worker, which } => {
                let Some(job) = node.workers.get(worker).copied().flatten() else { return Ok(next) };
                let worked = self.machine.work(node.state, job.attempt, which, node.contents)?;
                if worked.contents != node.contents {
                    self.judge(node, &job, which, worked.contents)?;
                    self.note_orphaned(&mut next, worked.contents);
                }
                self.write(&mut next, worked.contents)?;
                let waited = next.workers.get(worker).copied().flatten().map_or(job.waited, |job| job.waited);
                self.worked(&mut next, worker, Job { waited, ..job }, &worked)?;
            }
        }
        next.workers.sort_unstable();
        Ok(next)
    }

    fn change(&mut self, next: &mut Node, change: Change) -> Result<(), Violation> {
        let (state, due) = self.machine.change(next.state, change)?;
        next.state = state;
        next.add(due);
        Ok(())
    }

    fn worked(&self, next: &mut Node, worker: usize, job: Job, worked: &Worked) -> Result<(), Violation> {
        next.state = worked.state;
        next.add(worked.due);
        let job = match worked.next {
            Next::Attempt(attempt) => Some(Job { attempt, ..job }),
            Next::Done => None,
        };
        if let Some(place) = next.workers.get_mut(worker) {
            *place = job;
        }
        job.map_or(Ok(()), |job| self.judge_finalizer(next, &job))
    }

    /// The server has new contents: the watches will say so, and what was true for a moment is noted.
    fn write(&self, next: &mut Node, contents: Contents) -> Result<(), Violation> {
        let before = std::mem::replace(&mut next.contents, contents);
        for (object, events) in next.events.iter_mut().enumerate() {
            let (Some(&was), Some(&is)) = (before.get(object), contents.get(object)) else { continue };
            if was != is && !events.push(was, is) {
                return Err(Violation::new(Check::NoRest, format!("{object} is written to again and again")));
            }
        }
        let waiting = self.waiting(contents);
        next.workers.iter_mut().flatten().for_each(|job| job.waited |= waiting);
        // Its user has thought better of it.
        next.orphaned &= !waiting;
        next.was_waiting |= waiting;
        let present = self.machine.server.present(contents);
        next.was_orphaning |= present
            .filter(|(_, content)| content.is_orphaning())
            .fold(0, |bits, (object, _)| bits | bit(object));
        Ok(())
    }

    fn waiting(&self, contents: Contents) -> u8 {
        let present = self.machine.server.present(contents);
        present.filter(|(_, content)| content.is_waiting()).fold(0, |bits, (object, _)| bits | bit(object))
    }

    /// Owners that were orphaning and that a write of the collector has taken out of it.
    fn note_orphaned(&self, next: &mut Node, after: Contents) {
        for (object, content) in self.machine.server.present(next.contents) {
            let stays = after.get(object).and_then(|&number| self.machine.server.content(object, number));
            if content.is_orphaning() && !stays.is_some_and(Content::is_orphaning) {
                next.orphaned |= bit(object);
            }
        }
    }
}

/// Before any watch has delivered anything.
fn first(contents: Contents) -> Node {
    let events = contents.map(|number| {
        let mut events = Events::default();
        if number != GONE {
            events.push(GONE, number);
        }
        events
    });
    Node {
        contents,
        state: 0,
        events,
        delete: 0,
        orphan: 0,
        found: 0,
        deletions: 0,
        was_waiting: 0,
        was_orphaning: 0,
        orphaned: 0,
        workers: [None; WORKERS],
    }
}

impl Node {
    fn add(&mut self, due: Due) {
        self.delete |= due.delete;
        self.orphan |= due.orphan;
        self.found |= due.found;
    }
}

impl Events {
    /// False: there is no room.
    fn push(&mut self, was: u8, is: u8) -> bool {
        let Some(place) = self.contents.get_mut(usize::from(self.len)) else { return false };
        *place = if is == GONE { was } else { is };
        self.ends = is == GONE;
        self.len += 1;
        true
    }

    /// A list shows what is there, and nothing of what is not.
    fn list(&mut self, object: usize) -> Change {
        let Events { contents, len, ends } = std::mem::take(self);
        let last = usize::from(len).checked_sub(1).and_then(|last| contents.get(last)).copied();
        Change::Listed(object, last.filter(|_| !ends).unwrap_or(GONE))
    }

    fn pop(&mut self, object: usize) -> Change {
        let [first, ..] = self.contents;
        self.contents.copy_within(1.., 0);
        if let Some(last) = self.contents.last_mut() {
            *last = 0;
        }
        self.len -= 1;
        if self.len == 0 && std::mem::take(&mut self.ends) {
            Change::Gone(object, first)
        } else {
            Change::Seen(object, first)
        }
    }
}

fn bit(object: usize) -> u8 {
    1 << object
}

fn bits(set: u8) -> impl Iterator<Item = usize> {
    (0..8).filter(move |&item| set & bit(item) != 0)
}

/// Safety: what the collector may write, from what the server has and had.
impl Search<'_> {
    fn judge(&self, node: &Node, job: &Job, which: usize, after: Contents) -> Result<(), Violation> {
        let Some(request) = self.machine.request(job.attempt, which) else { return Ok(()) };
        let object = self.machine.server.object_of(request).unwrap_or_default();
        let content = |contents: Contents, at: usize| {
            contents.get(at).and_then(|&number| self.machine.server.content(at, number))
        };
        let changed =
            (0..OBJECTS_MAX).filter(|&at| node.contents.get(at) != after.get(at)).collect::<Vec<_>>();
        let Some(before) = content(node.contents, object).filter(|_| changed == [object]) else {
            return Err(Violation::new(Check::OtherWrite, format!("{request:?} changed {changed:?}")));
        };
        let after = content(after, object);
        check_finalizers(object, before, after, matches!(request, Request::Delete { .. }))?;
        match request {
            Request::Read(_) => Err(Violation::new(Check::OtherWrite, "a read wrote")),
            Request::Delete { .. } => self.judge_deletion(node, job, object, before),
            Request::Patch { change: PatchedField::Finalizers, .. } => {
                let same =
                    after.is_none_or(|after| after.meta.owner_references == before.meta.owner_references);
                if same {
                    Ok(())
                } else {
                    Err(Violation::new(Check::ReferenceRemoved, format!("of {object}")))
                }
            }
            Request::Patch { change: PatchedField::OwnerReferences, .. } => {
                let (names, blocks) = after.map_or((0, 0), |after| (after.names, after.blocks));
                if before.blocks & !blocks & names != 0 && before.names & node.was_waiting == 0 {
                    return Err(Violation::new(
                        Check::OtherWrite,
                        format!("{object} does not block any more"),
                    ));
                }
                self.judge_removal(node, job, object, before.names & !names)
            }
        }
    }

    /// Every owner is absent, or was waiting at some moment since the attempt began; none was orphaned.
    fn judge_deletion(
        &self,
        node: &Node,
        job: &Job,
        object: usize,
        before: &Content,
    ) -> Result<(), Violation> {
        let live = |owner: usize| self.is_there(node, owner) && job.waited & bit(owner) == 0;
        if before.names == 0 || bits(before.names).any(live) {
            return Err(Violation::new(Check::LiveOwner, format!("{object} was deleted")));
        }
        if before.names & node.orphaned != 0 {
            return Err(Violation::new(Check::OrphanDeleted, format!("{object} was deleted")));
        }
        Ok(())
    }

    /// These owners are absent, or were waiting since the attempt began, or orphaning.
    fn judge_removal(&self, node: &Node, job: &Job, object: usize, gone: u8) -> Result<(), Violation> {
        let live =
            |owner: usize| self.is_there(node, owner) && (job.waited | node.was_orphaning) & bit(owner) == 0;
        match bits(gone).find(|&owner| live(owner)) {
            Some(owner) => Err(Violation::new(
                Check::ReferenceRemoved,
                format!("{object} lost its reference to {owner}"),
            )),
            None => Ok(()),
        }
    }

    fn is_there(&self, node: &Node, owner: usize) -> bool {
        node.contents.get(owner).is_some_and(|&number| number != GONE)
    }

    /// A finalizer is about to go: no dependent of which the graph has been shown the latest may forbid it.
    fn judge_finalizer(&self, node: &Node, job: &Job) -> Result<(), Violation> {
        let Some(finalizer) = self.machine.takes_finalizer(job.attempt) else { return Ok(()) };
        let owner = 1_u8.checked_shl(job.item.into()).unwrap_or_default();
        for (object, content) in self.machine.server.present(node.contents) {
            let is_shown = node.events.get(object).is_some_and(|events| events.len == 0);
            let what = || format!("{} loses {finalizer} in spite of {object}", job.item);
            if is_shown && finalizer == FOREGROUND_FINALIZER && content.blocks & owner != 0 {
                return Err(Violation::new(Check::ForegroundTooEarly, what()));
            }
            if is_shown && finalizer == ORPHAN_FINALIZER && content.names & owner != 0 {
                return Err(Violation::new(Check::OrphanedTooEarly, what()));
            }
        }
        Ok(())
    }
}

/// Only the two finalizers of garbage collection come and go, and only from what is being deleted do they go.
fn check_finalizers(
    object: usize,
    before: &Content,
    after: Option<&Content>,
    is_delete: bool,
) -> Result<(), Violation> {
    let held = after.is_some_and(|after| after.has(HOLD));
    if before.has(HOLD) != held || !is_delete && after.is_none() && !before.meta.being_deleted {
        return Err(Violation::new(Check::Finalizers, format!("of {object}")));
    }
    Ok(())
}

/// Liveness: what must be true where nothing is left to do.
impl Search<'_> {
    fn check_end(&self, node: &Node) -> Result<(), Violation> {
        self.machine.check_graph(node.state, node.contents)?;
        for (object, content) in self.machine.server.present(node.contents) {
            if content.meta.being_deleted {
                self.check_deleting(node, object, content)?;
                continue;
            }
            let is_solid = |owner: usize| {
                let number = node.contents.get(owner).copied().unwrap_or(GONE);
                self.machine
                    .server
                    .content(owner, number)
                    .is_some_and(|o| !o.is_waiting() && !o.is_orphaning())
            };
            let solid = bits(content.names).filter(|&owner| is_solid(owner)).count();
            if content.names != 0 && solid == 0 {
                return Err(Violation::new(Check::NotCollected, format!("{object} is left")));
            }
            if solid < content.names.count_ones() as usize {
                return Err(Violation::new(
                    Check::ReferenceLeft,
                    format!("{object} has one that it should not"),
                ));
            }
        }
        Ok(())
    }

    fn check_deleting(&self, node: &Node, object: usize, content: &Content) -> Result<(), Violation> {
        if content.is_orphaning() {
            return Err(Violation::new(Check::FinalizerLeft, format!("{object} still has orphan")));
        }
        if !content.is_waiting() {
            let what = format!("{object} is being deleted and held by nobody");
            return if content.has(HOLD) { Ok(()) } else { Err(Violation::new(Check::FinalizerLeft, what)) };
        }
        let held = self.held(node, object);
        let what = format!("{object} waits, and nobody but those that wait for each other holds it");
        if held { Ok(()) } else { Err(Violation::new(Check::FinalizerLeft, what)) }
    }

    /// Whether a waiting object is held by somebody else in the end: through a dependent that blocks it and is held, or
    /// one that blocks that.
    fn held(&self, node: &Node, object: usize) -> bool {
        let mut below = 0;
        loop {
            let before = below;
            for (dependent, content) in self.machine.server.present(node.contents) {
                let blocks = content.blocks & (below | bit(object)) != 0;
                below |= if blocks && content.meta.being_deleted { bit(dependent) } else { 0 };
            }
            if below == before {
                break;
            }
        }
        let mut present = self.machine.server.present(node.contents);
        present.any(|(dependent, content)| content.has(HOLD) && below & bit(dependent) != 0)
    }

    /// From every state the collector comes to rest by itself.
    fn check_rest(&self) -> Result<(), Box<Found>> {
        let mut rests = vec![false; self.nodes.len()];
        let mut back: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        for &(to, from) in &self.steps_back {
            if let Some(back) = back.get_mut(to as usize) {
                back.push(from);
            }
        }
        let mut waiting = self.at_rest.clone();
        while let Some(at) = waiting.pop() {
            let Some(rests) = rests.get_mut(at as usize) else { continue };
            if !std::mem::replace(rests, true) {
                waiting.extend(back.get(at as usize).into_iter().flatten());
            }
        }
        match (0..).zip(&rests).find(|(_, rests)| !**rests) {
            Some((at, _)) => {
                Err(self.found(at, None, Violation::new(Check::NoRest, "it never comes to rest")))
            }
            None => Ok(()),
        }
    }
}

/// The way to what was found.
impl Search<'_> {
    fn found(&self, at: u32, last: Option<Move>, violation: Violation) -> Box<Found> {
        let mut way: Vec<(u32, Move)> = last.map(|last| (at, last)).into_iter().collect();
        let mut here = at;
        while let Some(&(from, Some(how))) = self.reached.get(here as usize) {
            way.push((from, how));
            here = from;
        }
        way.reverse();
        let way = way.into_iter().map(|(from, how)| self.show(from, how)).collect();
        Box::new(Found { world: self.world.show(), violation, way })
    }

    fn show(&self, from: u32, how: Move) -> String {
        let Some(node) = self.nodes.get(from as usize) else { return String::new() };
        match how {
            Move::User(Act::Delete(object, policy)) => format!("a user deletes {object} ({policy})"),
            Move::User(Act::LetGo(object)) => format!("a user lets {object} go"),
            Move::Deliver(object) => {
                let Some(mut events) = node.events.get(object).copied() else { return String::new() };
                let (said, number) = match events.pop(object) {
                    Change::Seen(_, number) => ("is", number),
                    Change::Gone(_, number) => ("is gone, having been", number),
                    Change::Listed(..) | Change::Found(_) => return String::new(),
                };
                let shown = self.machine.server.content(object, number).map(show).unwrap_or_default();
                format!("graph <- {object} {said} {shown}")
            }
            Move::Relist(object) => {
                let number = node.contents.get(object).copied().unwrap_or(GONE);
                let shown = self.machine.server.content(object, number).map(show);
                let shown = shown.unwrap_or_else(|| "without it".into());
                format!("graph <- after a lost watch, a list with {object} {shown}")
            }
            Move::Find(owner) => format!("graph <- {owner} was found absent"),
            Move::Start { item, is_orphan } => {
                format!("a worker takes {item} to {}", if is_orphan { "orphan" } else { "delete" })
            }
            Move::Send { worker, which } => {
                let job = node.workers.get(worker).copied().flatten();
                let item = job.map(|job| job.item).unwrap_or_default();
                let said =
                    job.and_then(|job| self.machine.said(node.state, job.attempt, which, node.contents));
                format!("the worker at {item}: {}", said.unwrap_or_default())
            }
        }
    }
}

fn show(content: &Content) -> String {
    let deleting = if content.meta.being_deleted { " deleting" } else { "" };
    let owners: Vec<String> = bits(content.names)
        .map(|owner| format!("{owner}{}", if content.blocks & bit(owner) != 0 { "!" } else { "" }))
        .collect();
    let finalizers = content.meta.finalizers.join(" ");
    format!(
        "v{}{deleting} owners=[{}] finalizers=[{finalizers}]",
        content.meta.resource_version,
        owners.join(" ")
    )
}
