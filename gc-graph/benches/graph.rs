//! Changes a second, and what is allocated for them, at a hundred thousand and a million nodes: `cargo bench -p gc-graph`.
//!
//! The input is made before the clock starts. "max alloc" of `first_list` is the graph; its bytes over the nodes are what
//! a node takes. `tests/resident.rs` asks the system for the same.

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use gc_graph::{Effect, Graph};
use objects::{Object, objects, shuffled, under_one_owner};

mod objects;

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

const SIZES: [usize; 2] = [100_000, 1_000_000];

fn main() {
    divan::main();
}

/// A graph of these.
fn filled(objects: &[Object]) -> Graph {
    let mut graph = Graph::new();
    objects.iter().for_each(|object| object.observe("1000", &mut graph, &mut Vec::new()));
    graph
}

/// Measures a change for each of these objects, from a copy of this graph on.
fn each(
    bencher: Bencher<'_, '_>,
    graph: &Graph,
    objects: &[Object],
    change: impl Fn(&Object, &mut Graph, &mut Vec<Effect>),
) {
    let counted = bencher.counter(ItemsCount::new(objects.len())).with_inputs(|| graph.clone());
    counted.bench_local_values(|mut graph| {
        let mut effects = Vec::new();
        for object in objects {
            change(object, &mut graph, &mut effects);
            effects.clear();
        }
        graph
    });
}

#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn first_list(bencher: Bencher<'_, '_>, count: usize) {
    each(bencher, &Graph::new(), &objects(count), |object, graph, effects| {
        object.observe("1000", graph, effects);
    });
}

#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn first_list_in_random_order(bencher: Bencher<'_, '_>, count: usize) {
    each(bencher, &Graph::new(), &shuffled(&objects(count)), |object, graph, effects| {
        object.observe("1000", graph, effects);
    });
}

#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn updates(bencher: Bencher<'_, '_>, count: usize) {
    let objects = objects(count);
    each(bencher, &filled(&objects), &objects, |object, graph, effects| {
        object.observe("1001", graph, effects);
    });
}

#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn updates_in_random_order(bencher: Bencher<'_, '_>, count: usize) {
    let objects = objects(count);
    each(bencher, &filled(&objects), &shuffled(&objects), |object, graph, effects| {
        object.observe("1001", graph, effects);
    });
}

/// Two changes each, counted as one.
#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn deleted_and_made_anew_in_random_order(bencher: Bencher<'_, '_>, count: usize) {
    let objects = objects(count);
    each(bencher, &filled(&objects), &shuffled(&objects), |object, graph, effects| {
        object.delete(graph, effects);
        object.observe("1002", graph, effects);
    });
}

#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn all_deleted_in_random_order(bencher: Bencher<'_, '_>, count: usize) {
    let objects = objects(count);
    each(bencher, &filled(&objects), &shuffled(&objects), Object::delete);
}

/// What one owner of all costs; to be compared with `first_list_in_random_order`.
#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn first_list_under_one_owner(bencher: Bencher<'_, '_>, count: usize) {
    let objects = under_one_owner(&shuffled(&objects(count)));
    each(bencher, &Graph::new(), &objects, |object, graph, effects| object.observe("1000", graph, effects));
}

/// Likewise; to be compared with `all_deleted_in_random_order`.
#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn dependents_of_one_owner_deleted(bencher: Bencher<'_, '_>, count: usize) {
    let objects = under_one_owner(&objects(count));
    each(bencher, &filled(&objects), &shuffled(&objects), Object::delete);
}
