//! Metadata on its way from one thread to another.

use crate::meta::{MetaRef, OwnerReferenceRef};

/// The metadata of some objects, owned.
///
/// Whoever decodes a list and whoever needs its objects are two threads, and to own each text by itself is dear: this
/// takes a few pieces of memory however many objects are in it.
///
/// # Example
///
/// ```
/// use gc_client::{MetaBatch, MetaRef};
///
/// let mut batch = MetaBatch::default();
/// for name in ["web-0", "web-1"] {
///     batch.push(&MetaRef { name, namespace: "shop", ..MetaRef::default() });
/// }
/// let mut seen = Vec::new();
/// batch.for_each(|meta| seen.push(format!("{}/{}", meta.namespace, meta.name)));
/// assert_eq!(seen, ["shop/web-0", "shop/web-1"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaBatch {
    /// The texts of all objects, one behind the other in the order in which `push` takes them. What follows has their
    /// lengths.
    text: Vec<u8>,
    objects: Vec<Lengths>,
    finalizers: Vec<usize>,
    owners: Vec<OwnerLengths>,
}

/// An object without its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lengths {
    name: usize,
    namespace: usize,
    uid: usize,
    resource_version: usize,
    being_deleted: bool,
    /// How many of the batch's.
    finalizers: usize,
    owners: usize,
}

/// An owner reference without its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OwnerLengths {
    api_version: usize,
    kind: usize,
    name: usize,
    uid: usize,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

impl MetaBatch {
    /// A copy of what is borrowed, without the fields.
    pub fn push(&mut self, meta: &MetaRef<'_>) {
        let mut add = |piece: &str| {
            append(&mut self.text, piece.as_bytes());
            piece.len()
        };
        let lengths = Lengths {
            name: add(meta.name),
            namespace: add(meta.namespace),
            uid: add(meta.uid),
            resource_version: add(meta.resource_version),
            being_deleted: meta.being_deleted,
            finalizers: meta.finalizers.len(),
            owners: meta.owner_references.len(),
        };
        self.objects.push(lengths);
        self.finalizers.extend(meta.finalizers.iter().map(|finalizer| add(finalizer)));
        self.owners.extend(meta.owner_references.iter().map(|owner| OwnerLengths {
            api_version: add(owner.api_version),
            kind: add(owner.kind),
            name: add(owner.name),
            uid: add(owner.uid),
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        }));
    }

    /// Forgets the objects and keeps the memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.objects.clear();
        self.finalizers.clear();
        self.owners.clear();
    }

    /// How many objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Roughly what it holds, so that a batch of large objects can be cut short.
    pub fn bytes(&self) -> usize {
        self.text.len()
            + self.objects.len() * size_of::<Lengths>()
            + self.finalizers.len() * size_of::<usize>()
            + self.owners.len() * size_of::<OwnerLengths>()
    }

    /// Whether any of the objects is being deleted.
    pub fn any_being_deleted(&self) -> bool {
        self.objects.iter().any(|object| object.being_deleted)
    }

    /// Lends the objects in the order in which they came.
    pub fn for_each(&self, mut call: impl FnMut(MetaRef<'_>)) {
        // Only whole texts went in, so they come out whole.
        let mut rest = std::str::from_utf8(&self.text).unwrap_or_default();
        let mut take = |length: usize| {
            let (piece, behind) = rest.split_at_checked(length).unwrap_or_default();
            rest = behind;
            piece
        };
        let (mut finalizer_lengths, mut owner_lengths) = (self.finalizers.iter(), self.owners.iter());
        let (mut finalizers, mut owner_references) = (Vec::new(), Vec::new());
        for object in &self.objects {
            let (name, namespace) = (take(object.name), take(object.namespace));
            let (uid, resource_version) = (take(object.uid), take(object.resource_version));
            finalizers.clear();
            let lengths = finalizer_lengths.by_ref().take(object.finalizers);
            finalizers.extend(lengths.map(|length| take(*length)));
            owner_references.clear();
            let lengths = owner_lengths.by_ref().take(object.owners);
            owner_references.extend(lengths.map(|owner| OwnerReferenceRef {
                api_version: take(owner.api_version),
                kind: take(owner.kind),
                name: take(owner.name),
                uid: take(owner.uid),
                controller: owner.controller,
                block_owner_deletion: owner.block_owner_deletion,
            }));
            call(MetaRef {
                name,
                namespace,
                uid,
                resource_version,
                being_deleted: object.being_deleted,
                finalizers: &finalizers,
                owner_references: &owner_references,
                fields: &[],
            });
        }
    }
}

impl From<&MetaRef<'_>> for MetaBatch {
    /// A batch of one.
    fn from(meta: &MetaRef<'_>) -> MetaBatch {
        let mut batch = MetaBatch::default();
        batch.push(meta);
        batch
    }
}

/// Appends a text that is likely to be short. What musl has for copying takes 30 ns before it gets going, and ten names and
/// UIDs are copied for each object; pieces of a fixed size are copied by a machine instruction.
pub(crate) fn append(text: &mut Vec<u8>, piece: &[u8]) {
    const SHORT: usize = 128;
    if SHORT < piece.len() {
        return text.extend_from_slice(piece);
    }
    text.reserve(piece.len());
    let (sixteens, rest) = piece.as_chunks::<16>();
    for bytes in sixteens {
        text.extend_from_slice(bytes);
    }
    let (fours, rest) = rest.as_chunks::<4>();
    for bytes in fours {
        text.extend_from_slice(bytes);
    }
    for byte in rest {
        text.push(*byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::meta::ObjectMeta;
    use proptest::prelude::*;

    fn object() -> impl Strategy<Value = ObjectMeta> {
        arbitrary::object(&"\\PC{0,40}|\\PC{100,300}".boxed())
    }

    /// As a decoder would lend it.
    fn push(batch: &mut MetaBatch, object: &ObjectMeta) {
        let finalizers: Vec<&str> = object.finalizers.iter().map(String::as_str).collect();
        let owner_references: Vec<OwnerReferenceRef<'_>> =
            object.owner_references.iter().map(arbitrary::lend).collect();
        batch.push(&MetaRef {
            name: &object.name,
            namespace: &object.namespace,
            uid: &object.uid,
            resource_version: &object.resource_version,
            being_deleted: object.being_deleted,
            finalizers: &finalizers,
            owner_references: &owner_references,
            fields: &[],
        });
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out_also_when_the_memory_is_used_again(
            first in prop::collection::vec(object(), 0..4),
            second in prop::collection::vec(object(), 0..4),
        ) {
            let mut batch = MetaBatch::default();
            for objects in [first, second] {
                batch.clear();
                objects.iter().for_each(|object| push(&mut batch, object));
                let mut lent = Vec::new();
                batch.for_each(|meta| lent.push(meta.to_owned()));
                prop_assert_eq!(batch.len(), objects.len());
                prop_assert_eq!(batch.is_empty(), objects.is_empty());
                prop_assert_eq!(batch.any_being_deleted(), objects.iter().any(|object| object.being_deleted));
                prop_assert_eq!(lent, objects);
            }
        }
    }

    #[test]
    fn a_text_of_any_length_is_copied_whole() {
        let all: Vec<u8> = (0..=255).collect();
        for length in 0..=all.len() {
            let mut text = b"before".to_vec();
            append(&mut text, &all[..length]);
            assert_eq!(text, [b"before", &all[..length]].concat());
        }
    }
}
