//! What must be true once faults have ended and the collector has come to rest.

use std::collections::BTreeSet;

use gc_core::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER};
use gc_graph::Uid;
use hashbrown::HashSet;

use super::collector::Collector;
use super::jobs;
use super::kinds::{JOB, KINDS, all_kinds};
use super::link::Link;
use super::truth::{Check, Object, Owner, Truth, Violation, show_reference};
use crate::sim::{Resource, built_in};

/// Everything at rest is as it should be.
pub(super) fn check(collector: &Collector, link: &Link) -> Result<(), Violation> {
    let held = held(&link.truth);
    for object in link.truth.objects.values() {
        check_object(&link.truth, object, &held)?;
        check_expired(&link.truth, object)?;
    }
    check_graph(collector, &link.truth)?;
    check_virtual(collector, &link.truth)
}

/// What stays has an owner that lives, or is held by something that has a name:
///
/// - a finalizer that is not ours (what carries it is being deleted, and waits for its holder);
/// - a reference that can never be resolved (spec D6), or whose kind nothing serves (spec D7): the object is left
///   alone as it is;
/// - blocking dependents that are themselves held: a foreground deletion waits for them, and for nothing else. Objects
///   that wait for each other in a circle are held by nobody.
fn check_object(truth: &Truth, object: &Object, held: &BTreeSet<&str>) -> Result<(), Violation> {
    if object.meta.being_deleted {
        return check_deleting(object, held);
    }
    let owners: Vec<(Owner, String)> = (object.meta.owner_references.iter())
        .map(|r| (truth.owner(&object.meta.namespace, r), show_reference(r)))
        .collect();
    if owners.is_empty() || owners.iter().any(|&(owner, _)| is_unknown(owner)) {
        return Ok(());
    }
    if owners.iter().all(|(owner, _)| *owner != Owner::Solid) {
        let orphaned = object.meta.owner_references.iter().any(|r| truth.was_orphaned(&r.uid));
        let check = if orphaned { Check::ReferenceLeft } else { Check::NotCollected };
        return Err(Violation::new(check, format!("{} is left; its owners: {owners:?}", object.show())));
    }
    if owners.iter().any(|(owner, _)| *owner != Owner::Solid) {
        return Err(Violation::new(Check::ReferenceLeft, format!("{} has {owners:?}", object.show())));
    }
    Ok(())
}

/// Nothing is at rest before every TTL has expired.
fn check_expired(truth: &Truth, object: &Object) -> Result<(), Violation> {
    if object.kind != &JOB || object.meta.being_deleted {
        return Ok(());
    }
    let job = truth.jobs.version(&object.meta.uid, &object.meta.resource_version);
    match job.and_then(jobs::due_ms) {
        Some(_) => Err(Violation::new(Check::ExpiredLeft, object.show())),
        None => Ok(()),
    }
}

/// Whether an owner is one of which nobody can say whether it exists.
fn is_unknown(owner: Owner) -> bool {
    matches!(owner, Owner::NotServed | Owner::AbsentUnserved | Owner::Unresolvable)
}

/// The objects that may stay although they are being deleted, or keep their owners: those that carry somebody else's
/// finalizer, those that are left alone because of a reference that nobody can resolve, and all that wait in the
/// foreground for one of these.
fn held(truth: &Truth) -> BTreeSet<&str> {
    let is_left_alone = |o: &Object| {
        let mut references = o.meta.owner_references.iter();
        !o.meta.being_deleted && references.any(|r| is_unknown(truth.owner(&o.meta.namespace, r)))
    };
    let is_ours = |finalizer: &String| finalizer == FOREGROUND_FINALIZER || finalizer == ORPHAN_FINALIZER;
    let is_foreign = |o: &Object| o.meta.being_deleted && !o.meta.finalizers.iter().all(is_ours);
    let objects = || truth.objects.values();
    let mut to_do: Vec<&Object> = objects().filter(|o| is_left_alone(o) || is_foreign(o)).collect();
    let mut held = BTreeSet::new();
    while let Some(next) = to_do.pop() {
        if held.insert(next.meta.uid.as_str()) {
            to_do.extend(objects().filter(|o| o.is_waiting() && next.blocks(&o.meta.uid)));
        }
    }
    held
}

fn check_deleting(object: &Object, held: &BTreeSet<&str>) -> Result<(), Violation> {
    if object.has(ORPHAN_FINALIZER) {
        return Err(Violation::new(Check::FinalizerLeft, format!("{} still has orphan", object.show())));
    }
    if object.has(FOREGROUND_FINALIZER) && !held.contains(object.meta.uid.as_str()) {
        let what =
            format!("{} still has foregroundDeletion, and nothing that is held blocks it", object.show());
        return Err(Violation::new(Check::FinalizerLeft, what));
    }
    Ok(())
}

fn check_graph(collector: &Collector, truth: &Truth) -> Result<(), Violation> {
    let graph = collector.state.graph();
    graph.check_invariants().map_err(|problem| Violation::new(Check::Graph, problem))?;
    for object in truth.objects.values() {
        let problem = differs(collector, object);
        if let Some(problem) = problem {
            return Err(Violation::new(Check::Graph, format!("{}: {problem}", object.show())));
        }
    }
    let observed: BTreeSet<String> =
        graph.nodes().filter(|node| !node.is_virtual()).map(|node| node.uid().to_string()).collect();
    match observed.iter().find(|uid| !truth.objects.contains_key(*uid) && is_ours(collector, uid)) {
        Some(uid) => Err(Violation::new(Check::Graph, format!("{uid} is not on the server"))),
        None => Ok(()),
    }
}

/// Whether a node is of one of the kinds of the simulation; definitions are watched as well.
fn is_ours(collector: &Collector, uid: &str) -> bool {
    let node = collector.state.graph().get(&Uid::new(uid));
    node.is_some_and(|node| all_kinds().any(|kind| kind.kind == node.kind()))
}

fn differs(collector: &Collector, object: &Object) -> Option<String> {
    let Some(node) = collector.state.graph().get(&Uid::new(&object.meta.uid)) else {
        return Some("not in the graph".into());
    };
    let meta = &object.meta;
    let same_place = node.kind() == object.kind.kind
        && node.api_version() == object.kind.preferred()
        && node.namespace() == meta.namespace
        && node.name() == meta.name;
    let same_flags = node.is_being_deleted() == meta.being_deleted
        && node.is_deleting_dependents() == object.is_waiting()
        && node.is_orphaning() == object.is_orphaning();
    let references: Vec<String> = node.owner_references().map(|r| format!("{r:?}")).collect();
    let expected: Vec<String> = (meta.owner_references.iter())
        .map(|r| gc_graph::OwnerReference {
            api_version: r.api_version.clone(),
            kind: r.kind.clone(),
            name: r.name.clone(),
            uid: Uid::new(&r.uid),
            controller: r.controller == Some(true),
            block_owner_deletion: r.block_owner_deletion == Some(true),
        })
        .map(|r| format!("{r:?}"))
        .collect();
    if node.is_virtual() {
        return Some("virtual in the graph".into());
    }
    if node.resource_version() != meta.resource_version {
        return Some(format!(
            "v{} in the graph, v{} on the server",
            node.resource_version(),
            meta.resource_version
        ));
    }
    (!same_place || !same_flags || references != expected)
        .then(|| format!("the graph has {} {references:?}", node.coordinate()))
}

/// A virtual node is left only where something that names it is left alone because of a reference that nobody can resolve
/// (of a kind that is not served, with a name that no object can have, to a namespaced kind from a cluster-scoped
/// dependent), or where all that name it are being deleted and held by others: it goes with them.
fn check_virtual(collector: &Collector, truth: &Truth) -> Result<(), Violation> {
    for node in collector.state.graph().nodes().filter(|node| node.is_virtual()) {
        let uid = node.uid().to_string();
        let is_unresolvable = |o: &Object| {
            let mut references = o.meta.owner_references.iter();
            references.any(|r| is_unknown(truth.owner(&o.meta.namespace, r)))
        };
        let mut namers = truth.objects.values().filter(|o| o.names(&uid));
        if !namers.clone().any(is_unresolvable) && !namers.all(|o| o.meta.being_deleted) {
            return Err(Violation::new(Check::VirtualLeft, node.coordinate().to_string()));
        }
    }
    Ok(())
}

/// The resources that are not watched: none of the kinds of the simulation, and not the definitions.
pub(super) fn ignored(has_jobs: bool) -> HashSet<(String, String)> {
    let is_ours = |r: &Resource| {
        KINDS
            .iter()
            .chain(has_jobs.then_some(&JOB))
            .any(|kind| kind.group == r.group && kind.plural == r.plural)
            || r.plural == "customresourcedefinitions"
    };
    let others = built_in().into_iter().filter(|r| !is_ours(r));
    others.map(|r| (r.group.clone(), r.plural.clone())).collect()
}
