//! Objects as a large cluster has them, made beforehand: twenty to an owner and its dependents, as a ReplicaSet and its
//! pods, with random UIDs and names of 24 characters.

#![allow(dead_code, reason = "each program that includes this uses its part")]
#![allow(clippy::unwrap_used, reason = "the input of benchmarks and tests")]

use gc_graph::{Effect, Graph, Observation, OwnerReferenceRef, SourceId};

/// An owner and its dependents.
pub const GROUP: usize = 20;
/// Objects in a namespace.
const NAMESPACE: usize = 100;

/// An object as a decoder hands it in: everything that belongs to it is at hand.
#[derive(Clone)]
pub struct Object {
    uid: [u8; 36],
    name: [u8; 24],
    namespace: [u8; 16],
    /// UID and name.
    owner: Option<([u8; 36], [u8; 24])>,
}

/// So many, an owner before its dependents.
pub fn objects(count: usize) -> Vec<Object> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut owner = None;
    let object = |number: usize| {
        let (high, low) = (random.next(), random.next());
        let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xffff);
        let uid = format!("{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}", low >> 48, low & 0xffff_ffff_ffff);
        let (uid, name) = (bytes(&uid), bytes(&format!("web-7f9c6d8b54-{number:09}")));
        let namespace = bytes(&format!("namespace-{:06}", number / NAMESPACE));
        let is_owner = number.is_multiple_of(GROUP);
        if is_owner {
            owner = Some((uid, name));
        }
        Object { uid, name, namespace, owner: owner.filter(|_| !is_owner) }
    };
    (0..count).map(object).collect()
}

/// The same in another order, the same each time; in memory, too.
pub fn shuffled(objects: &[Object]) -> Vec<Object> {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut shuffled = objects.to_vec();
    for at in (1..shuffled.len()).rev() {
        shuffled.swap(at, usize::try_from(random.next()).unwrap() % (at + 1));
    }
    shuffled
}

/// The same, all dependents of the first one.
pub fn under_one_owner(objects: &[Object]) -> Vec<Object> {
    let owner = (objects[0].uid, objects[0].name);
    objects[1..].iter().map(|object| Object { owner: Some(owner), ..object.clone() }).collect()
}

impl Object {
    pub fn observe(&self, version: &str, graph: &mut Graph, effects: &mut Vec<Effect>) {
        let reference = self.owner.as_ref().map(|(uid, name)| OwnerReferenceRef {
            api_version: "apps/v1",
            kind: "ReplicaSet",
            name: text(name),
            uid: text(uid),
            controller: true,
            block_owner_deletion: true,
        });
        graph.observe(&self.seen(version, reference.as_slice()), effects);
    }

    pub fn delete(&self, graph: &mut Graph, effects: &mut Vec<Effect>) {
        graph.delete(&self.seen("1", &[]), effects);
    }

    fn seen<'a>(
        &'a self,
        version: &'a str,
        owner_references: &'a [OwnerReferenceRef<'a>],
    ) -> Observation<'a> {
        let is_owner = self.owner.is_none();
        Observation {
            source: SourceId(u16::from(is_owner)),
            api_version: if is_owner { "apps/v1" } else { "v1" },
            kind: if is_owner { "ReplicaSet" } else { "Pod" },
            namespace: text(&self.namespace),
            name: text(&self.name),
            uid: text(&self.uid),
            resource_version: version,
            being_deleted: false,
            has_foreground_finalizer: false,
            has_orphan_finalizer: false,
            owner_references,
        }
    }
}

fn bytes<const N: usize>(text: &str) -> [u8; N] {
    text.as_bytes().try_into().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
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
