//! Attempt to delete: from a node of the graph to a verdict and its execution, one request at a time (D1 to D17).

use std::time::Duration;

use gc_graph::{Coordinate, Node, Uid};

use crate::circle::{OpenCircle, owners_in_a_circle};
use crate::finalizer::{MayGo, RemoveFinalizer, busy, describe, plausible};
use crate::mistakes::Mistake;
use crate::patch;
use crate::state::{Absence, Known, State, coordinate_of};
use crate::{
    Class, FOREGROUND_FINALIZER, Facts, LiveObject, ORPHAN_FINALIZER, Outcome, OwnerReference, PatchKind,
    PatchedField, Propagation, Reply, Request, Step, Target, Verdict, Why, verdict,
};

/// A delete that meets a busy object is repeated at once this often, each time on the version just read (D11).
const DELETES_MAX: u32 = 10;
/// How often one attempt decides afresh because the object changed under it, before the queue spaces it out.
const DECISIONS_MAX: u32 = 4;

/// One attempt at one node. Step it with `None` first, then with the reply to each request, until it is done.
///
/// The dependents of one owner come one after the other, so that several attempts want to read it at the same time. One
/// that finds another at it ([`DeleteAttempt::reads_owner`]) may wait for that one's reply instead of sending its own
/// request, and is then stepped with `None`: it looks at what the other left in the state, and asks again where that
/// does not settle it.
///
/// ```
/// use gc_core::{DeleteAttempt, Options, Outcome, State, Step, Why};
/// use std::time::Duration;
///
/// let mut state = State::new(Options::default());
/// let mut attempt = DeleteAttempt::new(gc_graph::Uid::new("a-uid-that-the-graph-does-not-hold"));
/// let step = attempt.step(&mut state, Duration::ZERO, None);
/// assert_eq!(step, Step::Done(Outcome::Forget(Why::LeftGraph)));
/// ```
#[derive(Clone, Debug)]
pub struct DeleteAttempt {
    uid: Uid,
    stage: Stage,
    decisions: u32,
    /// In which era of the state the attempt began.
    era: Option<u64>,
    /// When the request under way was given out: a reply says what was true some time after that, not what is.
    asked_at: Duration,
    /// Since when nothing has come that a server which was restored meanwhile could not say as well: when the last request
    /// that was answered was given out, or when the oldest proof was made that was believed after it.
    heard_since: Duration,
    /// Whether that once was too long ago when the next answer came, so that what was known of the owners before it is
    /// asked again (S7): a server that is restored from a backup is away for longer than a proof lasts, so that answers
    /// and proofs which follow on one another faster than that all come from the same one.
    is_aged: bool,
}

/// The node as it was when the attempt began.
#[derive(Clone, Debug)]
struct Item {
    coordinate: Coordinate,
    target: Target,
    is_virtual: bool,
}

/// Where the attempt stands; each stage but the first and the last waits for one reply.
#[derive(Clone, Debug)]
enum Stage {
    Start,
    ReadItem(Item),
    ReadOwner(Item, Classified),
    /// The patch of D8.
    RemoveReferences(Item, Removal),
    /// The patch of D9, before the deletion.
    Unblock(Item, Decided, PatchKind),
    Delete(Item, Decided),
    /// The object is read again after a delete met a conflict.
    Reread(Item, Decided),
    RemoveFinalizer(RemoveFinalizer),
    OpenCircle(OpenCircle),
    Done(Outcome),
}

/// The object and the classes of its first references.
#[derive(Clone, Debug)]
struct Classified {
    live: LiveObject,
    source: Source,
    classes: Vec<Class>,
}

/// Who says what an object is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The graph, at the version that a watch has shown: good for a delete, which the server refuses when that version
    /// is not the object's any more (D15), and for no other write.
    Graph,
    /// The server, just now.
    Read,
}

/// The live object, and the places of the references that go.
#[derive(Clone, Debug)]
struct Removal {
    live: LiveObject,
    places: Vec<usize>,
    kind: PatchKind,
}

/// The object that is to be deleted, why, and how.
#[derive(Clone, Debug)]
struct Decided {
    live: LiveObject,
    source: Source,
    classes: Vec<Class>,
    policy: Propagation,
    deletes: u32,
}

impl DeleteAttempt {
    /// An attempt at the node with this UID.
    pub fn new(uid: Uid) -> DeleteAttempt {
        DeleteAttempt {
            uid,
            stage: Stage::Start,
            decisions: 0,
            era: None,
            asked_at: Duration::ZERO,
            heard_since: Duration::ZERO,
            is_aged: false,
        }
    }

    /// The node's UID.
    pub fn uid(&self) -> &Uid {
        &self.uid
    }

    /// The owner references that the request under way was decided by, for whoever says why something was deleted.
    pub fn decided_by(&self) -> &[OwnerReference] {
        match &self.stage {
            Stage::Delete(_, decided) => &decided.live.owner_references,
            _ => &[],
        }
    }

    /// Whether the request under way reads an owner, which is the same for all its dependents.
    pub fn reads_owner(&self) -> bool {
        matches!(self.stage, Stage::ReadOwner(..))
    }

    /// Takes the reply to the last request and gives the next one, or the outcome. `now` is the time since any fixed
    /// moment, the same for all attempts on this state.
    pub fn step(&mut self, state: &mut State, now: Duration, reply: Option<Reply>) -> Step {
        state.tell_time(now);
        state.note_reply(reply.as_ref());
        if let Some(outcome) = busy(reply.as_ref()) {
            self.stage = Stage::Done(outcome.clone());
            return Step::Done(outcome);
        }
        let stage = std::mem::replace(&mut self.stage, Stage::Start);
        if matches!(stage, Stage::Start) {
            (self.asked_at, self.heard_since) = (now, now);
        }
        self.is_aged |= state.proof_age_max() < now.saturating_sub(self.heard_since);
        if reply.is_some() {
            self.heard_since = self.asked_at;
        }
        let is_void = *self.era.get_or_insert(state.era()) != state.era();
        let step = match (stage, plausible(reply)) {
            (Stage::Done(outcome), _) => Step::Done(outcome),
            _ if is_void => retry("the server's data was restored: what was read before is void".into()),
            (Stage::Start, _) => self.start(state),
            (Stage::RemoveFinalizer(mut removal), reply) => {
                let may_go = |state: &mut State| self.may_lose_finalizer(state);
                let step = removal.step(state, (now, self.asked_at), may_go, reply);
                self.stage = Stage::RemoveFinalizer(removal);
                step
            }
            (Stage::OpenCircle(mut opening), reply) => {
                let step = opening.step(state, (now, self.asked_at), reply);
                self.stage = Stage::OpenCircle(opening);
                step
            }
            // Not sent: somebody else's reply may have told enough.
            (Stage::ReadOwner(item, classified), None) => {
                self.is_aged &= !classified.classes.is_empty();
                self.classify(state, item, classified)
            }
            (Stage::ReadItem(item), Some(reply)) => self.item_read(state, now, item, reply),
            (Stage::ReadOwner(item, classified), Some(reply)) => {
                self.owner_read(state, now, item, classified, reply)
            }
            (Stage::RemoveReferences(item, removal), Some(reply)) => {
                self.references_removed(state, now, item, removal, reply)
            }
            (Stage::Unblock(item, decided, kind), Some(reply)) => {
                self.unblocked(state, now, (item, decided, kind), reply)
            }
            (Stage::Delete(item, decided), Some(reply)) => self.deleted(state, now, item, decided, reply),
            (Stage::Reread(item, decided), Some(reply)) => self.reread(state, now, item, decided, reply),
            (_, None) => retry(describe(None)),
        };
        match &step {
            Step::Done(outcome) => self.stage = Stage::Done(outcome.clone()),
            Step::Call(_) => self.asked_at = now,
        }
        step
    }

    /// D1, D3, D4, D17: what the graph alone can settle costs no request.
    fn start(&mut self, state: &mut State) -> Step {
        let Some(node) = state.graph().get(&self.uid) else { return forget(Why::LeftGraph) };
        if node.is_deleting_dependents() {
            return self.deleting_dependents(state);
        }
        if node.is_being_deleted() {
            return forget(Why::BeingDeleted);
        }
        if !node.is_virtual() {
            if node.owner_references().next().is_none() {
                return forget(Why::NoOwners);
            }
            if state.all_owners_alive(&node) {
                return forget(Why::OwnerAlive);
            }
        }
        let (coordinate, is_virtual) = (node.coordinate(), node.is_virtual());
        let seen = seen_by_the_graph(state, &node);
        let Some(target) = state.target(&coordinate) else {
            return self.item_unresolved(state, &coordinate);
        };
        let item = Item { coordinate, target, is_virtual };
        match seen {
            Some(live) => self.classify(state, item, Classified::new(live, Source::Graph)),
            None => self.read_item(item),
        }
    }

    fn read_item(&mut self, item: Item) -> Step {
        let request = Request::Read(item.target.clone());
        self.stage = Stage::ReadItem(item);
        Step::Call(request)
    }

    fn item_unresolved(&self, state: &mut State, coordinate: &Coordinate) -> Step {
        if state.kinds().resolve(&coordinate.api_version, &coordinate.kind).is_some() {
            // Namespaced without a namespace, or with a name that no object has: a dependent made it up (D6).
            if state.makes(Mistake::ImpossibleIsAbsent) {
                return Step::Done(Outcome::VirtuallyDeleted(coordinate.clone(), state.now()));
            }
            return Step::Done(Outcome::Impossible(coordinate.clone()));
        }
        if state.has_another_to_ask_for(&self.uid) {
            // To wait for this kind could be to wait for ever, and dependents that name the owner rightly rely on somebody
            // who looks at it until its watch shows it.
            return Step::Done(Outcome::Impossible(coordinate.clone()));
        }
        self.wait_for_kind(state, &coordinate.api_version, &coordinate.kind)
    }

    fn wait_for_kind(&self, state: &mut State, api_version: &str, kind: &str) -> Step {
        state.park(&self.uid, api_version, kind);
        Step::Done(Outcome::WaitForKind { api_version: api_version.into(), kind: kind.into() })
    }

    /// D3.
    fn deleting_dependents(&mut self, state: &mut State) -> Step {
        let Some(node) = state.graph().get(&self.uid) else { return forget(Why::LeftGraph) };
        if node.has_idle_blocking_dependents() {
            let idle = node.blocking_dependents().filter(|d| !d.is_being_deleted());
            return Step::Done(Outcome::Enqueue(idle.map(Node::uid).collect()));
        }
        if node.is_blocked() {
            // One that is being deleted is on its way; the observation of its end brings this item back.
            return self.open_circle(state);
        }
        let coordinate = node.coordinate();
        match RemoveFinalizer::new(state, &coordinate, FOREGROUND_FINALIZER) {
            Some(mut removal) => {
                let step = removal.step(state, (self.asked_at, self.asked_at), |_| MayGo::Yes, None);
                self.stage = Stage::RemoveFinalizer(removal);
                step
            }
            None => self.wait_for_kind(state, &coordinate.api_version, &coordinate.kind),
        }
    }

    /// D3: all that block it are being deleted. If it is itself what they wait for, nobody would ever go.
    fn open_circle(&mut self, state: &mut State) -> Step {
        let Some(node) = state.graph().get(&self.uid) else { return forget(Why::LeftGraph) };
        let owners = owners_in_a_circle(state.graph(), node);
        if owners.is_empty() {
            return forget(Why::WaitsForDependents);
        }
        let coordinate = node.coordinate();
        let Some(target) = state.target(&coordinate) else {
            return self.wait_for_kind(state, &coordinate.api_version, &coordinate.kind);
        };
        let mut opening = OpenCircle::new(coordinate, target, owners);
        let step = opening.step(state, (self.asked_at, self.asked_at), None);
        self.stage = Stage::OpenCircle(opening);
        step
    }

    fn may_lose_finalizer(&self, state: &State) -> MayGo {
        let is_free = |node: Node<'_>| !node.is_blocked();
        if state.makes(Mistake::DependentsNotAskedAgain) || state.graph().get(&self.uid).is_none_or(is_free) {
            MayGo::Yes
        } else {
            MayGo::No("a new dependent appeared")
        }
    }

    /// D2.
    fn item_read(&mut self, state: &mut State, now: Duration, item: Item, reply: Reply) -> Step {
        match reply {
            Reply::Object(live) if Uid::new(&live.uid) == self.uid => {
                state.is_alive(&self.uid);
                if item.is_virtual {
                    // It exists and its watch will show it. If that watch missed it, being born and gone during an
                    // outage, nothing but another read would ever tell (kubernetes/kubernetes#56121).
                    return retry("it exists, but no watch has shown it yet".into());
                }
                self.decide(state, item, live)
            }
            Reply::Object(_) | Reply::NotFound { proof: true } => {
                Step::Done(state.gone(&item.coordinate, &item.target, now, self.asked_at))
            }
            other => retry(describe(Some(other))),
        }
    }

    fn decide(&mut self, state: &mut State, item: Item, live: LiveObject) -> Step {
        if live.being_deleted {
            return forget(Why::BeingDeleted);
        }
        if live.owner_references.is_empty() {
            return forget(Why::NoOwners);
        }
        if live.resource_version.is_empty() {
            return retry(format!("{} was read without a version: never changed so", item.target));
        }
        self.decide_on(state, item, live, Source::Read)
    }

    fn decide_on(&mut self, state: &mut State, item: Item, live: LiveObject, source: Source) -> Step {
        self.decisions += 1;
        if DECISIONS_MAX < self.decisions {
            let why = if self.is_aged {
                "the server answers slower than proofs last"
            } else {
                "it changes faster than it can be decided"
            };
            return retry(why.into());
        }
        self.is_aged = false;
        self.classify(state, item, Classified::new(live, source))
    }

    /// D5: asks the state about each reference, and the server where the state cannot know.
    fn classify(&mut self, state: &mut State, item: Item, mut so_far: Classified) -> Step {
        while let Some(reference) = so_far.live.owner_references.get(so_far.classes.len()) {
            match state.classify(reference, &item.target.namespace, so_far.source == Source::Graph) {
                Known::Class(class) => so_far.classes.push(class),
                Known::Absent(proved_at) => {
                    self.heard_since = self.heard_since.min(proved_at);
                    so_far.classes.push(Class::Dangling);
                }
                Known::Ask(target) => {
                    self.stage = Stage::ReadOwner(item, so_far);
                    return Step::Call(Request::Read(target));
                }
                Known::KindNotServed => {
                    return self.wait_for_kind(state, &reference.api_version, &reference.kind);
                }
                Known::Unresolvable => return forget(Why::UnresolvableOwner),
            }
        }
        self.execute(state, item, so_far)
    }

    /// D5, D16.
    fn owner_read(
        &mut self,
        state: &mut State,
        now: Duration,
        item: Item,
        mut classified: Classified,
        reply: Reply,
    ) -> Step {
        let Some(reference) = classified.live.owner_references.get(classified.classes.len()) else {
            return retry(describe(Some(reply)));
        };
        // However long this answer took, it is the first that the verdict rests on.
        self.is_aged &= !classified.classes.is_empty();
        match reply {
            Reply::Object(owner) if owner.uid == reference.uid => {
                let class = State::class_of_live_owner(&owner);
                if let Some(owner) = owner_coordinate(state, reference, &item) {
                    state.owner_was_read(owner, class, self.asked_at);
                }
                classified.classes.push(class);
            }
            Reply::Object(_) | Reply::NotFound { proof: true } => {
                let Some(owner) = owner_coordinate(state, reference, &item) else {
                    return retry("the owner's kind has just stopped being served".into());
                };
                match state.weigh_absence(&owner, now) {
                    Absence::Proved => {
                        state.owner_is_absent(owner, self.asked_at);
                        classified.classes.push(Class::Dangling);
                    }
                    Absence::Unconfirmed(delay) => {
                        let reason = format!("owner {owner} is absent for a read; that is to be confirmed");
                        return Step::Done(Outcome::RetryAfter(delay, reason));
                    }
                }
            }
            other => {
                let (kind, name) = (&reference.kind, &reference.name);
                return retry(format!("owner {kind} {name}: {}", describe(Some(other))));
            }
        }
        self.classify(state, item, classified)
    }

    /// D8 to D10. What the graph has seen is good enough to keep an object, since whatever changes brings it back here,
    /// and to delete it (D15); what is written back has to be read first.
    fn execute(&mut self, state: &mut State, item: Item, classified: Classified) -> Step {
        let Classified { live, source, mut classes } = classified;
        spare_the_orphaned(state, &item, &live, &mut classes);
        let verdict = self.verdict(state, &live, &classes);
        let blocks = live.owner_references.iter().any(OwnerReference::blocks);
        match verdict {
            Verdict::Keep => forget(Why::OwnerAlive),
            _ if self.is_aged => self.decide_on(state, item, live, source),
            Verdict::Delete { policy, unblock } if !(unblock && blocks) => {
                self.delete(item, Decided { live, source, classes, policy, deletes: 0 })
            }
            _ if source == Source::Graph => self.read_item(item),
            Verdict::RemoveReferences(places) => self.remove_references(state, item, live, places),
            Verdict::Delete { policy, .. } => {
                self.unblock(state, item, Decided { live, source, classes, policy, deletes: 0 })
            }
        }
    }

    fn verdict(&self, state: &State, live: &LiveObject, classes: &[Class]) -> Verdict {
        let node = state.graph().get(&self.uid);
        verdict(&Facts {
            classes,
            has_dependents: node.is_some_and(|node| node.has_dependents()),
            has_dependent_deleting_dependents: node
                .is_some_and(|node| node.dependents().any(|dependent| dependent.is_deleting_dependents())),
            has_orphan_finalizer: live.has_finalizer(ORPHAN_FINALIZER),
            has_foreground_finalizer: live.has_finalizer(FOREGROUND_FINALIZER),
        })
    }

    /// D8, D12: on the version that the decision was made on, so that a reference that was mended meanwhile stays.
    fn remove_references(&mut self, state: &State, item: Item, live: LiveObject, places: Vec<usize>) -> Step {
        let gone: Vec<&str> = places.iter().map(|&i| live.owner_references[i].uid.as_str()).collect();
        let stays = |i: usize| !places.contains(&i);
        // A strategic merge patch removes by UID alone: where a reference that stays has the UID of one that goes
        // (somebody wrote a second one with wrong coordinates), it would take both.
        let shares_uid = (0..live.owner_references.len())
            .any(|i| stays(i) && gone.contains(&live.owner_references[i].uid.as_str()));
        let shares_uid = shares_uid && !state.makes(Mistake::StrategicTakesAll);
        let strategic = !shares_uid && state.takes_strategic_merge(&item.target.resource);
        let (kind, body) = if strategic {
            let body = patch::strategic_remove(&live.uid, Some(&live.resource_version), &gone);
            (PatchKind::StrategicMerge, body)
        } else {
            let remain: Vec<OwnerReference> = (0..live.owner_references.len())
                .filter(|&i| stays(i))
                .map(|i| live.owner_references[i].clone())
                .collect();
            (PatchKind::JsonMerge, patch::merge_references(&live, &remain))
        };
        let request =
            Request::Patch { target: item.target.clone(), change: PatchedField::OwnerReferences, kind, body };
        self.stage = Stage::RemoveReferences(item, Removal { live, places, kind });
        Step::Call(request)
    }

    fn references_removed(
        &mut self,
        state: &mut State,
        now: Duration,
        item: Item,
        removal: Removal,
        reply: Reply,
    ) -> Step {
        match reply {
            Reply::Object(_) => forget(Why::ReferencesRemoved(removal.places.len())),
            Reply::UnsupportedMediaType if removal.kind == PatchKind::StrategicMerge => {
                state.note_json_merge_only(&item.target.resource);
                self.remove_references(state, item, removal.live, removal.places)
            }
            Reply::NotFound { proof: true } => {
                Step::Done(state.gone(&item.coordinate, &item.target, now, self.asked_at))
            }
            Reply::Conflict => self.read_item(item),
            other => retry(format!("owner references of {} stay: {}", item.target, describe(Some(other)))),
        }
    }

    /// D9, D12.
    fn unblock(&mut self, state: &State, item: Item, decided: Decided) -> Step {
        let live = &decided.live;
        let (kind, body) =
            if state.takes_strategic_merge(&item.target.resource) && !patch::has_duplicate_uids(live) {
                (PatchKind::StrategicMerge, patch::strategic_unblock(live, OwnerReference::blocks))
            } else {
                let unblocked: Vec<_> = live.owner_references.iter().map(patch::unblocked).collect();
                (PatchKind::JsonMerge, patch::merge_references(live, &unblocked))
            };
        let request =
            Request::Patch { target: item.target.clone(), change: PatchedField::OwnerReferences, kind, body };
        self.stage = Stage::Unblock(item, decided, kind);
        Step::Call(request)
    }

    fn unblocked(
        &mut self,
        state: &mut State,
        now: Duration,
        was: (Item, Decided, PatchKind),
        reply: Reply,
    ) -> Step {
        let (item, decided, kind) = was;
        match reply {
            // The patch moved the version; the owners that the verdict rests on are the same ones.
            Reply::Object(live)
                if same_owners(&live, &decided.live)
                    && !live.being_deleted
                    && !self.is_aged
                    && !has_orphaned(state, &item, &live) =>
            {
                self.delete(item, Decided { live, ..decided })
            }
            Reply::UnsupportedMediaType if kind == PatchKind::StrategicMerge => {
                state.note_json_merge_only(&item.target.resource);
                self.unblock(state, item, decided)
            }
            Reply::NotFound { proof: true } => {
                Step::Done(state.gone(&item.coordinate, &item.target, now, self.asked_at))
            }
            Reply::Object(_) | Reply::Conflict => self.read_item(item),
            other => retry(format!("{} not made non-blocking: {}", item.target, describe(Some(other)))),
        }
    }

    /// D11, D15: the only place that deletes, always with the UID and the version on which the decision was made.
    fn delete(&mut self, item: Item, decided: Decided) -> Step {
        if decided.live.resource_version.is_empty() || decided.live.uid.is_empty() {
            return retry(format!("{} was read without a UID or a version: never deleted so", item.target));
        }
        let request = Request::Delete {
            target: item.target.clone(),
            uid: self.uid.clone(),
            resource_version: decided.live.resource_version.clone(),
            policy: decided.policy,
        };
        self.stage = Stage::Delete(item, decided);
        Step::Call(request)
    }

    fn deleted(
        &mut self,
        state: &mut State,
        now: Duration,
        item: Item,
        decided: Decided,
        reply: Reply,
    ) -> Step {
        match reply {
            Reply::Deleted | Reply::Object(_) => forget(Why::Deleted(decided.policy)),
            Reply::NotFound { proof: true } => {
                Step::Done(state.gone(&item.coordinate, &item.target, now, self.asked_at))
            }
            // D15: what the graph has seen is not what it is like now. It is decided as if the graph knew nothing.
            Reply::Conflict if decided.source == Source::Graph => self.read_item(item),
            Reply::Conflict => {
                let request = Request::Read(item.target.clone());
                self.stage = Stage::Reread(item, decided);
                Step::Call(request)
            }
            other => retry(format!("{} not deleted: {}", item.target, describe(Some(other)))),
        }
    }

    /// D11: the same references at another version are deleted again at once; anything else is decided afresh. So is
    /// what rests on proofs that have aged meanwhile, and what rests on an owner that was waiting: a second DELETE can turn its foreground deletion into an orphaning.
    fn reread(&mut self, state: &mut State, now: Duration, item: Item, was: Decided, reply: Reply) -> Step {
        let live = match reply {
            Reply::Object(live) if Uid::new(&live.uid) == self.uid => live,
            Reply::Object(_) | Reply::NotFound { proof: true } => {
                return Step::Done(state.gone(&item.coordinate, &item.target, now, self.asked_at));
            }
            other => return retry(describe(Some(other))),
        };
        if live.being_deleted {
            return forget(Why::BeingDeleted);
        }
        let differ = live.owner_references != was.live.owner_references
            || was.classes.contains(&Class::Waiting)
            || has_orphaned(state, &item, &live);
        if (differ || self.is_aged) && !state.makes(Mistake::ConflictRepeatsDelete) {
            return self.decide(state, item, live);
        }
        let deletes = was.deletes + 1;
        if DELETES_MAX <= deletes || live.resource_version == was.live.resource_version {
            return retry(format!("{} not deleted: somebody else keeps writing to it", item.target));
        }
        match self.verdict(state, &live, &was.classes) {
            // Its finalizers may name another policy now. Nothing that was dangling comes back to life.
            Verdict::Delete { policy, unblock: false } => {
                self.delete(item, Decided { live, policy, deletes, ..was })
            }
            _ => self.decide(state, item, live),
        }
    }
}

/// While one owner was asked for, a watch may have shown that another, or the same, was orphaned before it went: absent it
/// is all the same, but its dependents are to live (kubernetes/kubernetes#131307).
fn spare_the_orphaned(state: &mut State, item: &Item, live: &LiveObject, classes: &mut [Class]) {
    for (class, reference) in classes.iter_mut().zip(&live.owner_references) {
        if matches!(class, Class::Dangling | Class::Waiting)
            && state.is_orphaned(reference, &item.target.namespace)
        {
            *class = Class::Orphaned;
        }
    }
}

fn has_orphaned(state: &mut State, item: &Item, live: &LiveObject) -> bool {
    live.owner_references.iter().any(|reference| state.is_orphaned(reference, &item.target.namespace))
}

impl Classified {
    fn new(live: LiveObject, source: Source) -> Classified {
        Classified { live, source, classes: Vec::new() }
    }
}

/// D15: the object as a watch has shown it, where that says enough of it: it has a version, no finalizer that names a
/// policy, which would have to be weighed with what else is there, and no second kind under which it may look otherwise.
fn seen_by_the_graph(state: &State, node: &Node<'_>) -> Option<LiveObject> {
    let resource_version = node.resource_version();
    if !state.decides_from_graph()
        || node.is_virtual()
        || node.names_policy()
        || node.has_two_kinds()
        || resource_version.is_empty()
    {
        return None;
    }
    let owner_references = node.owner_references().map(|reference| OwnerReference {
        api_version: reference.api_version,
        kind: reference.kind,
        name: reference.name,
        uid: reference.uid.to_string(),
        controller: Some(reference.controller),
        block_owner_deletion: Some(reference.block_owner_deletion),
    });
    Some(LiveObject {
        uid: node.uid().to_string(),
        resource_version,
        owner_references: owner_references.collect(),
        ..LiveObject::default()
    })
}

/// The coordinate that a reference means, seen from the item (D5): in the item's namespace when its kind is
/// namespaced, in none otherwise.
fn owner_coordinate(state: &State, reference: &OwnerReference, item: &Item) -> Option<Coordinate> {
    let resource = state.kinds().resolve(&reference.api_version, &reference.kind)?;
    Some(coordinate_of(reference, if resource.namespaced { &item.target.namespace } else { "" }))
}

/// Whether two versions name the same owners in the same order; what they say of blocking does not matter.
fn same_owners(a: &LiveObject, b: &LiveObject) -> bool {
    let owners = |live: &LiveObject| -> Vec<_> {
        let refs = live.owner_references.iter();
        refs.map(|r| (r.api_version.clone(), r.kind.clone(), r.name.clone(), r.uid.clone())).collect()
    };
    owners(a) == owners(b)
}

fn forget(why: Why) -> Step {
    Step::Done(Outcome::Forget(why))
}

fn retry(reason: String) -> Step {
    Step::Done(Outcome::Retry(reason))
}
