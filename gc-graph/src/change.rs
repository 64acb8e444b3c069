//! What goes into the graph and what comes out of it: plain data, in Kubernetes' words.

use std::fmt;

use crate::Uid;

/// Which watch saw an object; the caller hands the numbers out, one for each resource that it watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub u16);

/// All that tells one object from another (spec G1).
///
/// The order of the fields is the order in which alternative coordinates of a virtual node are tried (spec G9).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Coordinate {
    /// The kind, as in `ConfigMap`.
    pub kind: String,
    /// The group and version, as in `apps/v1`; the core group has a version only.
    pub api_version: String,
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: Uid,
}

impl fmt::Display for Coordinate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} ", self.kind, self.api_version)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        write!(f, "{} ({})", self.name, self.uid)
    }
}

/// An owner reference as it stands in a dependent's `metadata.ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerReference {
    /// The group and version that the dependent names.
    pub api_version: String,
    /// The kind that the dependent names.
    pub kind: String,
    /// The name that the dependent names.
    pub name: String,
    /// The UID that the dependent names.
    pub uid: Uid,
    /// Whether this owner is the managing controller; absent counts as false.
    pub controller: bool,
    /// Whether the dependent holds back the foreground deletion of its owner; absent counts as false.
    pub block_owner_deletion: bool,
}

impl OwnerReference {
    /// The coordinate of the owner, were it in this namespace (empty: cluster-scoped).
    pub fn coordinate_in(&self, namespace: &str) -> Coordinate {
        Coordinate {
            kind: self.kind.clone(),
            api_version: self.api_version.clone(),
            namespace: namespace.to_owned(),
            name: self.name.clone(),
            uid: self.uid.clone(),
        }
    }
}

/// [`OwnerReference`], borrowed, for the way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerReferenceRef<'a> {
    /// See [`OwnerReference::api_version`].
    pub api_version: &'a str,
    /// See [`OwnerReference::kind`].
    pub kind: &'a str,
    /// See [`OwnerReference::name`].
    pub name: &'a str,
    /// See [`OwnerReference::uid`].
    pub uid: &'a str,
    /// See [`OwnerReference::controller`].
    pub controller: bool,
    /// See [`OwnerReference::block_owner_deletion`].
    pub block_owner_deletion: bool,
}

/// An object as a list or a watch showed it. Borrowed, so that a list needs no allocation on its way in.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// The watch that saw it.
    pub source: SourceId,
    /// The group and version under which it was seen.
    pub api_version: &'a str,
    /// The kind under which it was seen.
    pub kind: &'a str,
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
    /// The UID. An object without one is refused.
    pub uid: &'a str,
    /// The resourceVersion, opaque; kept to the letter.
    pub resource_version: &'a str,
    /// Whether `metadata.deletionTimestamp` is set.
    pub being_deleted: bool,
    /// Whether the finalizer `foregroundDeletion` is present.
    pub has_foreground_finalizer: bool,
    /// Whether the finalizer `orphan` is present.
    pub has_orphan_finalizer: bool,
    /// The owner references in their order.
    pub owner_references: &'a [OwnerReferenceRef<'a>],
}

/// What a change asks the caller to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Put the object on the attempt-to-delete queue.
    AttemptToDelete(Uid),
    /// The same after a rate-limited delay: a virtual node whose coordinate was just replaced (spec G9).
    AttemptToDeleteRateLimited(Uid),
    /// Put the object on the attempt-to-orphan queue.
    AttemptToOrphan(Uid),
    /// Remember that no such object exists (spec G8, G9, G10).
    Absent(Box<Coordinate>),
    /// Tell the dependent's owner that a reference can never hold (spec G4, G5).
    InvalidOwnerReference(Box<InvalidOwnerReference>),
}

/// A reference to a namespaced owner that was observed in another namespace than the dependent's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidOwnerReference {
    /// The object whose reference is invalid.
    pub dependent: Coordinate,
    /// The reference, as written.
    pub reference: OwnerReference,
    /// The namespace in which the owner was observed.
    pub owner_namespace: String,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::AttemptToDelete(uid) => write!(f, "attempt-to-delete {uid}"),
            Effect::AttemptToDeleteRateLimited(uid) => write!(f, "attempt-to-delete-rate-limited {uid}"),
            Effect::AttemptToOrphan(uid) => write!(f, "attempt-to-orphan {uid}"),
            Effect::Absent(coordinate) => write!(f, "absent {coordinate}"),
            Effect::InvalidOwnerReference(invalid) => {
                let owner = invalid.reference.coordinate_in("");
                let (dependent, namespace) = (&invalid.dependent, &invalid.owner_namespace);
                write!(f, "invalid-owner-reference {dependent} -> {owner}, which is in {namespace:?}")
            }
        }
    }
}
