//! Changes a second and bytes a node, at a million nodes: `cargo bench -p gc-graph`.
//!
//! A number as the argument sets the count of objects. Input is made before the clock starts; the memory is that of
//! the graph's own estimate, beside what the system says the process grew by.

use std::time::Instant;

use gc_graph::{Graph, Observation, OwnerReferenceRef, SourceId};

/// Objects a list holds for each owner, as a ReplicaSet and its pods.
const DEPENDENTS: usize = 19;

fn main() {
    // `cargo bench` passes `--bench`; `cargo test --benches` does not and wants only to see that it runs.
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let asked = std::env::args().find_map(|argument| argument.parse().ok());
    let count = asked.unwrap_or(if measuring { 1_000_000 } else { 1_000 });
    let objects = objects(count);
    let shuffled = shuffle(&objects);
    println!("{count} objects, {DEPENDENTS} dependents for each owner, names of 24 characters");
    let resident = resident_bytes();
    let mut graph = Graph::new();
    let mut effects = Vec::new();

    measure("first list, dependents of an owner together", count, || {
        objects.iter().for_each(|object| object.observe(&mut graph, "1000", &mut effects));
    });
    println!("{:>9} bytes a node by the graph's estimate", graph.memory_bytes() / count);
    println!("{:>9} bytes a node by the system", resident_bytes().saturating_sub(resident) / count);
    measure("updates in the order of the list", count, || {
        objects.iter().for_each(|object| object.observe(&mut graph, "1001", &mut effects));
    });
    measure("updates of random objects", count, || {
        shuffled.iter().for_each(|object| object.observe(&mut graph, "1002", &mut effects));
    });
    measure("random objects deleted and made anew", 2 * count, || {
        for object in &shuffled {
            object.delete(&mut graph, &mut effects);
            object.observe(&mut graph, "1003", &mut effects);
            effects.clear();
        }
    });
    println!("{:>9} bytes a node after that", graph.memory_bytes() / count);
    measure("random objects deleted, all of them", count, || {
        for object in &shuffled {
            object.delete(&mut graph, &mut effects);
            effects.clear();
        }
    });
    println!("{:>9} bytes in all after that", graph.memory_bytes());
    measure("first list in random order", count, || {
        for object in &shuffled {
            object.observe(&mut graph, "1004", &mut effects);
            effects.clear();
        }
    });
    let mut under_one = shuffled;
    under_one
        .iter_mut()
        .for_each(|object| object.owner = Some((objects[0].uid.clone(), objects[0].name.clone())));
    measure("objects moved under one owner", count, || {
        for object in &under_one {
            object.observe(&mut graph, "1005", &mut effects);
            effects.clear();
        }
    });
    measure("dependents of the one owner deleted", count, || {
        for object in &under_one {
            object.delete(&mut graph, &mut effects);
            effects.clear();
        }
    });
}

fn measure(what: &str, changes: usize, work: impl FnOnce()) {
    let (start, start_cpu) = (Instant::now(), cpu_seconds());
    work();
    let seconds = start.elapsed().as_secs_f64();
    // On a machine with other work, the time that this thread had is what tells.
    let seconds = cpu_seconds().zip(start_cpu).map_or(seconds, |(end, start)| end - start);
    println!("{:>9.0} changes a second: {what}", changes as f64 / seconds);
}

/// How long this thread has run, where the system tells.
fn cpu_seconds() -> Option<f64> {
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: f64 = schedule.split(' ').next()?.parse().ok()?;
    Some(nanoseconds / 1e9)
}

/// An object, made beforehand.
struct Object {
    uid: String,
    name: String,
    namespace: String,
    /// UID and name.
    owner: Option<(String, String)>,
    is_owner: bool,
}

fn objects(count: usize) -> Vec<Object> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut owner = None;
    let mut object = |number: usize| {
        let (high, low) = (random.next(), random.next());
        let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xffff);
        let uid = format!("{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}", low >> 48, low & 0xffff_ffff_ffff);
        let name = format!("web-7f9c6d8b54-{number:09}");
        let is_owner = number.is_multiple_of(DEPENDENTS + 1);
        if is_owner {
            owner = Some((uid.clone(), name.clone()));
        }
        let owner = if is_owner { None } else { owner.clone() };
        Object { uid, name, namespace: format!("namespace-{}", number / 100), owner, is_owner }
    };
    (0..count).map(&mut object).collect()
}

/// The same objects in another order, and in memory in that order: a decoder's output is at hand, too.
fn shuffle(objects: &[Object]) -> Vec<Object> {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut order: Vec<usize> = (0..objects.len()).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, usize::try_from(random.next()).unwrap_or(0) % (at + 1));
    }
    let copy = |number: usize| {
        let Object { uid, name, namespace, owner, is_owner } = &objects[number];
        let (uid, name, namespace) = (uid.clone(), name.clone(), namespace.clone());
        Object { uid, name, namespace, owner: owner.clone(), is_owner: *is_owner }
    };
    order.into_iter().map(copy).collect()
}

impl Object {
    fn observe(&self, graph: &mut Graph, version: &str, effects: &mut Vec<gc_graph::Effect>) {
        let reference = self.owner.as_ref().map(|(uid, name)| OwnerReferenceRef {
            api_version: "apps/v1",
            kind: "ReplicaSet",
            name,
            uid,
            controller: true,
            block_owner_deletion: true,
        });
        graph.observe(&self.seen(version, reference.as_slice()), effects);
    }

    fn delete(&self, graph: &mut Graph, effects: &mut Vec<gc_graph::Effect>) {
        graph.delete(&self.seen("1", &[]), effects);
    }

    fn seen<'a>(
        &'a self,
        version: &'a str,
        owner_references: &'a [OwnerReferenceRef<'a>],
    ) -> Observation<'a> {
        Observation {
            source: SourceId(u16::from(self.is_owner)),
            api_version: if self.is_owner { "apps/v1" } else { "v1" },
            kind: if self.is_owner { "ReplicaSet" } else { "Pod" },
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
            resource_version: version,
            being_deleted: false,
            has_foreground_finalizer: false,
            has_orphan_finalizer: false,
            owner_references,
        }
    }
}

/// Xorshift: the same numbers each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// What the process holds, where the system tells; pages are taken to have 4 KiB.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).map_or(0, |pages: usize| pages * 4096)
}
