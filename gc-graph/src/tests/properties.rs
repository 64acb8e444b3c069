//! Random scripts: against the model, in other orders, and for the memory.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::model::Model;
use crate::fixture::{Change, Fixture, Object, print};
use crate::{Coordinate, Effect, Graph, Node, OwnerReference, SourceId, Uid};

const CANONICAL: &str = "00000000-0000-4000-8000-00000000000";

/// Few values of everything, so that they meet.
fn uid() -> impl Strategy<Value = Uid> {
    select(vec!["a", "b", "c", "", "0", "1", "2"]).prop_map(|text| match text {
        "0" | "1" | "2" => Uid::new(&format!("{CANONICAL}{text}")),
        text => Uid::new(text),
    })
}

fn kind() -> impl Strategy<Value = (String, String, u16)> {
    let kinds = [("v1", "ConfigMap"), ("apps/v1", "Deployment"), ("apps/v2", "Deployment"), ("v1", "Node")];
    select((0..4u16).zip(kinds).collect::<Vec<_>>())
        .prop_map(|(source, (api_version, kind))| (api_version.to_owned(), kind.to_owned(), source))
}

prop_compose! {
    fn reference()(
        uid in uid(), (api_version, kind, _) in kind(), name in "[xy]",
        controller: bool, block_owner_deletion: bool,
    ) -> OwnerReference {
        OwnerReference { api_version, kind, name, uid, controller, block_owner_deletion }
    }
}

prop_compose! {
    fn object()(
        uid in uid(), (api_version, kind, source) in kind(), name in "[xy]", namespace in "|n|m",
        resource_version in "[12]|[01]{2}", being_deleted: bool,
        finalizers in subsequence(vec!["foregroundDeletion", "orphan", "other"], 0..3),
        owner_references in prop_oneof![
            3 => prop::collection::vec(reference(), 0..4),
            1 => prop::collection::vec(reference(), 8..14),
        ],
    ) -> Object {
        Object {
            coordinate: Coordinate { kind, api_version, namespace, name, uid },
            source: SourceId(source),
            resource_version,
            being_deleted,
            finalizers: finalizers.into_iter().map(str::to_owned).collect(),
            owner_references,
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    let source = || (0..4u16).prop_map(SourceId);
    prop_oneof![
        10 => object().prop_map(Change::Observe),
        3 => object().prop_map(Change::Delete),
        4 => object().prop_map(|object| Change::VirtualDelete(object.coordinate)),
        2 => object().prop_map(|object| Change::Reconsider(object.coordinate)),
        1 => source().prop_map(Change::BeginList),
        1 => source().prop_map(Change::EndList),
        1 => source().prop_map(Change::Unserve),
        1 => Just(Change::ForgetAbsent),
    ]
}

/// A worker sends the coordinate that a virtual node holds; random coordinates seldom hit one.
fn aim(change: &Change, graph: &Graph) -> Change {
    let (Change::VirtualDelete(at) | Change::Reconsider(at)) = change else {
        return change.clone();
    };
    match (graph.get(&at.uid), change) {
        (Some(node), Change::VirtualDelete(_)) if at.name == "x" => Change::VirtualDelete(node.coordinate()),
        (Some(node), Change::Reconsider(_)) if at.name == "x" => Change::Reconsider(node.coordinate()),
        _ => change.clone(),
    }
}

/// The model does not know who came first to an owner, so the order within an effect of many is left out.
fn sorted(effects: &[Effect]) -> Vec<String> {
    let mut printed: Vec<String> = effects.iter().map(Effect::to_string).collect();
    printed.sort();
    printed
}

fn answers(graph: &Graph) -> String {
    let mut answers = print(graph);
    for uid in graph.cycles().concat() {
        answers += &format!("cycle {uid}\n");
    }
    let mut uids: Vec<Uid> = graph.nodes().map(Node::uid).collect();
    uids.sort();
    for node in uids.iter().filter_map(|uid| graph.get(uid)) {
        let list = |nodes: Vec<Node<'_>>| {
            let mut uids: Vec<String> = nodes.into_iter().map(|node| node.uid().to_string()).collect();
            uids.sort();
            uids.join(" ")
        };
        let (all, blocking) = (list(node.dependents().collect()), list(node.blocking_dependents().collect()));
        answers += &format!("{} <- {all} / {blocking}\n", node.uid());
    }
    answers + &graph.dot(&[])
}

proptest! {
    /// After any changes at all, hostile ones included, the graph is the model, and so were the effects. Closing the
    /// gaps in the arena is never noticed.
    #[test]
    fn the_graph_is_the_model(script in prop::collection::vec((change(), any::<bool>()), 0..40)) {
        let (mut graph, mut model) = (Graph::new(), Model::default());
        for (change, rebuild) in script {
            let change = aim(&change, &graph);
            let mut effects = Vec::new();
            change.apply(&mut graph, &mut effects);
            let mut expected = model.apply(&change);
            let put_off: Vec<Effect> = model.put_off().filter(|look| !effects.contains(look)).collect();
            expected.retain(|effect| !put_off.contains(effect));
            prop_assert_eq!(sorted(&effects), sorted(&expected), "{:?}", change);
            prop_assert_eq!(print(&graph), model.print(), "{:?}", change);
            prop_assert_eq!(graph.check_invariants(), Ok(()), "{:?}", change);
            if rebuild {
                let before = answers(&graph);
                graph.store.rebuild();
                prop_assert_eq!(graph.check_invariants(), Ok(()), "rebuilt");
                prop_assert_eq!(answers(&graph), before);
            }
        }
    }

    /// The same changes give the same effects in the same order (spec G2), whatever seed the tables have.
    #[test]
    fn g2_the_graph_is_deterministic(script in prop::collection::vec(change(), 0..40)) {
        let (mut one, mut other) = (Graph::new(), Graph::new());
        for change in script {
            let (mut effects, mut other_effects) = (Vec::new(), Vec::new());
            change.apply(&mut one, &mut effects);
            change.apply(&mut other, &mut other_effects);
            prop_assert_eq!(effects, other_effects);
        }
        let uids = |graph: &Graph| graph.nodes().map(Node::uid).collect::<Vec<_>>();
        prop_assert_eq!(uids(&one), uids(&other));
    }

    /// When everything is deleted nothing is left.
    #[test]
    fn nothing_is_left_when_all_is_deleted(script in prop::collection::vec(change(), 0..40)) {
        let mut graph = Graph::new();
        let mut effects = Vec::new();
        for change in &script {
            change.apply(&mut graph, &mut effects);
        }
        for object in script.iter().filter_map(|change| match change { Change::Observe(it) => Some(it), _ => None }) {
            Change::Delete(object.clone()).apply(&mut graph, &mut effects);
        }
        prop_assert_eq!((graph.len(), graph.virtual_len()), (0, 0));
        prop_assert_eq!((graph.store.nodes.len(), graph.store.edges.len()), (0, 0));
        prop_assert_eq!(graph.store.texts.used_bytes(), 0);
        prop_assert_eq!((graph.store.kinds.len(), graph.store.namespaces.len()), (0, 1));
        prop_assert_eq!(graph.store.written.len(), 0);
    }

    /// The changes of each object keep their own order; how those of different objects mix makes no difference, once
    /// every virtual node is settled.
    #[test]
    fn the_order_between_objects_makes_no_difference(
        world in world(),
        one_order in prop::collection::vec(any::<prop::sample::Index>(), 24),
        other_order in prop::collection::vec(any::<prop::sample::Index>(), 24),
    ) {
        prop_assert_eq!(settled(&world, &one_order), settled(&world, &other_order));
    }
}

/// For each of eight objects the changes that it goes through. References name objects 0 to 7, which exist at some
/// time, some by wrong coordinates, or 8 and 9, which never do.
fn world() -> impl Strategy<Value = Vec<Vec<Change>>> {
    let owner = (0..10usize, any::<bool>(), prop::bool::weighted(0.1));
    let version = (prop::collection::vec(owner, 0..3), any::<bool>());
    let changes = (prop::collection::vec(version, 1..4), any::<bool>());
    prop::collection::vec(changes, 8).prop_map(|objects| {
        let objects = objects.into_iter().enumerate();
        objects.map(|(number, (versions, deleted))| life(number, &versions, deleted)).collect()
    })
}

/// For each version of an object, its references (owner, blocking, wrong) and whether it is being deleted.
type Versions = [(Vec<(usize, bool, bool)>, bool)];

fn life(number: usize, versions: &Versions, deleted: bool) -> Vec<Change> {
    let at = |number: usize| Coordinate {
        kind: "ConfigMap".to_owned(),
        api_version: "v1".to_owned(),
        namespace: "ns".to_owned(),
        name: format!("o{number}"),
        uid: Uid::new(&number.to_string()),
    };
    let mut changes: Vec<Change> = Vec::new();
    for (version, (owners, deleting)) in versions.iter().enumerate() {
        let reference = |&(owner, blocks, wrong): &(usize, bool, bool)| {
            let Coordinate { kind, api_version, name, uid, .. } = at(owner);
            let kind = if wrong && owner < 8 { "Secret".to_owned() } else { kind };
            OwnerReference { kind, api_version, name, uid, controller: false, block_owner_deletion: blocks }
        };
        changes.push(Change::Observe(Object {
            coordinate: at(number),
            source: SourceId(0),
            resource_version: version.to_string(),
            being_deleted: *deleting,
            finalizers: vec!["foregroundDeletion".to_owned()],
            owner_references: owners.iter().map(reference).collect(),
        }));
    }
    if let (true, Some(Change::Observe(object))) = (deleted, changes.last().cloned()) {
        changes.push(Change::Delete(object));
    }
    changes
}

/// The graph after one mixture of the changes, when a worker has found every virtual node absent.
fn settled(world: &[Vec<Change>], order: &[prop::sample::Index]) -> String {
    let mut graph = Graph::new();
    let mut effects = Vec::new();
    let mut waiting: Vec<&[Change]> = world.iter().map(Vec::as_slice).collect();
    let mut choices = order.iter().cycle();
    while !waiting.is_empty() {
        let chosen = choices.next().map_or(0, |choice| choice.index(waiting.len()));
        match waiting[chosen] {
            [change, rest @ ..] => {
                change.apply(&mut graph, &mut effects);
                waiting[chosen] = rest;
            }
            [] => {
                waiting.swap_remove(chosen);
            }
        }
    }
    // Where dependents disagree on an owner that is gone, its virtual node goes round until they are gone; which of
    // its names it has is a matter of order.
    for _ in 0..40 {
        let virtual_nodes: Vec<Coordinate> =
            graph.nodes().filter(|node| node.is_virtual()).map(Node::coordinate).collect();
        virtual_nodes.iter().for_each(|coordinate| graph.virtual_delete(coordinate, &mut effects));
    }
    graph.check_invariants().unwrap();
    // What is left of owners that are not there, a virtual node or a proof, is for workers; here it is all the same.
    let mut lines: Vec<String> = graph
        .nodes()
        .filter(|node| !node.is_virtual())
        .map(|node| {
            let owners: Vec<Uid> = node
                .owners()
                .filter(|(owner, _)| !owner.is_virtual())
                .map(|(owner, _)| owner.uid())
                .collect();
            let mut dependents: Vec<Uid> = node.dependents().map(Node::uid).collect();
            dependents.sort();
            let references: Vec<OwnerReference> = node.owner_references().collect();
            let flags = (node.is_being_deleted(), node.is_deleting_dependents());
            format!(
                "{} {} {flags:?} {owners:?} {dependents:?} {references:?}",
                node.coordinate(),
                node.resource_version()
            )
        })
        .collect();
    lines.sort();
    lines.join("\n")
}

#[test]
fn g12_memory_comes_back_after_a_mass_deletion() {
    let mut fixture = Fixture::new();
    let mut effects = Vec::new();
    let [owner, child] = &fixture.objects("cm/owner @ns\ncm/child @ns owners=[cm/owner!]").unwrap()[..]
    else {
        panic!("two objects");
    };
    let mut graph = Graph::new();
    let nth = |number: usize| {
        let mut object = child.clone();
        object.coordinate.uid = Uid::new(&format!("{number:08x}-0000-4000-8000-000000000000"));
        object.coordinate.name = format!("a-name-of-usual-length-{number}");
        object.coordinate.namespace = format!("namespace-{}", number / 10);
        object
    };
    Change::Observe(owner.clone()).apply(&mut graph, &mut effects);
    let empty = graph.memory_bytes();
    for number in 0..50_000 {
        Change::Observe(nth(number)).apply(&mut graph, &mut effects);
        effects.clear();
    }
    let full = graph.memory_bytes();
    for number in 0..49_000 {
        Change::Delete(nth(number)).apply(&mut graph, &mut effects);
    }
    let few = graph.memory_bytes();
    for number in 49_000..50_000 {
        Change::Delete(nth(number)).apply(&mut graph, &mut effects);
    }
    graph.check_invariants().unwrap();
    assert!(full > 6_000_000 && few < full / 12, "{full} bytes for 50,000 objects, {few} for 1,000");
    assert!(
        graph.memory_bytes() < empty + (512 << 10),
        "{empty} bytes at first, {} at last",
        graph.memory_bytes()
    );
}

#[test]
fn g12_a_node_and_its_edge_are_small() {
    assert_eq!((size_of::<crate::store::NodeSlot>(), size_of::<crate::store::Edge>()), (52, 24));
}
