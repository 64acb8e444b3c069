//! The requests that attempts make and the replies they take, as plain data.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gc_graph::Uid;

/// One served resource: what a kind resolves to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    /// Empty for the core group.
    pub group: String,
    /// For example `v1`.
    pub version: String,
    /// The plural, for example `replicasets`.
    pub resource: String,
    /// For example `ReplicaSet`.
    pub kind: String,
    /// Whether its objects live in a namespace.
    pub namespaced: bool,
}

impl Resource {
    /// `v1` for the core group, `group/version` for the others.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// The object that a request is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Where it is served.
    pub resource: Arc<Resource>,
    /// Empty exactly when the resource is cluster-scoped.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Resource { group, resource, .. } = &*self.resource;
        f.write_str(resource)?;
        if !group.is_empty() {
            write!(f, ".{group}")?;
        }
        if self.namespace.is_empty() {
            write!(f, " {}", self.name)
        } else {
            write!(f, " {}/{}", self.namespace, self.name)
        }
    }
}

/// Kubernetes' deletion propagation policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// The object goes at once, its dependents after it.
    Background,
    /// The object stays until its blocking dependents are gone.
    Foreground,
    /// The dependents stay and lose their references.
    Orphan,
}

impl Propagation {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
        }
    }
}

impl fmt::Display for Propagation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a patch changes, for logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchedField {
    /// References go, or become non-blocking (D8, D9, O1).
    OwnerReferences,
    /// One of our two finalizers goes (D13).
    Finalizers,
}

impl PatchedField {
    /// In the form of a metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            PatchedField::OwnerReferences => "owner_references",
            PatchedField::Finalizers => "finalizers",
        }
    }
}

/// The two patch formats that are used (D12, D13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/strategic-merge-patch+json`; custom resources answer it with 415.
    StrategicMerge,
    /// `application/merge-patch+json`; every kind takes it.
    JsonMerge,
}

/// One request to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read the object's metadata, with a quorum (no `resourceVersion` parameter).
    Read(Target),
    /// Delete the object if it still has this UID and this resourceVersion (D11). Both are always sent.
    Delete {
        /// What to delete.
        target: Target,
        /// Precondition.
        uid: Uid,
        /// Precondition: the version on which the decision was made.
        resource_version: String,
        /// Always explicit (kubernetes/kubernetes#44058).
        policy: Propagation,
    },
    /// Patch the object's metadata. The body carries its own preconditions.
    Patch {
        /// What to patch.
        target: Target,
        /// What it changes.
        change: PatchedField,
        /// The format of the body.
        kind: PatchKind,
        /// JSON.
        body: String,
    },
}

/// The API server's answer, reduced to what decisions depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The object as read, or as it is after the patch.
    Object(LiveObject),
    /// The deletion was accepted; the object is gone or is being deleted.
    Deleted,
    /// 404.
    NotFound {
        /// Whether the answer proves that the object does not exist: a Status that names it (D16). A plain 404 of a
        /// path that is not served is no proof.
        proof: bool,
    },
    /// 409: a precondition failed, or somebody else wrote at the same time.
    Conflict,
    /// 422: a patch that names another UID than the object's is refused in this way, and so is one that leaves an
    /// object that today's validation would not accept.
    Invalid(String),
    /// 415: the kind does not take this patch format.
    UnsupportedMediaType,
    /// 429: the server has too much to do and has not acted.
    TooManyRequests {
        /// For how long it is not to be asked again; at most [`RETRY_AFTER_MAX`].
        retry_after: Duration,
        /// The server's words.
        message: String,
    },
    /// Anything else: a 5xx, a 403, a time-out, a broken connection. Proves nothing.
    Failed(String),
}

/// What decisions depend on in an answer that is an error: the parts of a `Status`, empty where it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// The HTTP status code.
    pub code: u16,
    /// Whether the body was a `v1` Status at all.
    pub is_status: bool,
    /// For example `NotFound`.
    pub reason: &'a str,
    /// `details.name`.
    pub name: &'a str,
    /// `details.kind`: the plural of the resource, in some servers the kind itself.
    pub kind: &'a str,
    /// The server's words, for logs.
    pub message: &'a str,
    /// The header `Retry-After`.
    pub retry_after: Option<Duration>,
}

/// The longest `Retry-After` that is believed: API servers ask for 1 to 32 s (apiserver's `droppedRequestsTracker`). What
/// asks for more is not busy but broken, and must not keep workers from what others own.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(32);
/// What a 429 without the header asks for: the least that API servers do.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

impl Reply {
    /// The reply that an error answer to a request about `target` is. The place where spec D16 is decided: a 404
    /// proves an object absent only if it is a Status that names this object and its kind.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use gc_core::{Refusal, Reply, Resource, Target};
    ///
    /// let pods = Resource {
    ///     group: "".into(), version: "v1".into(), resource: "pods".into(), kind: "Pod".into(), namespaced: true,
    /// };
    /// let target = Target { resource: Arc::new(pods), namespace: "ns".into(), name: "a".into() };
    /// let named = Refusal {
    ///     code: 404, is_status: true, reason: "NotFound", name: "a", kind: "pods", ..Refusal::default()
    /// };
    /// assert_eq!(Reply::refused(&target, &named), Reply::NotFound { proof: true });
    /// let not_served = Refusal { code: 404, ..Refusal::default() };
    /// assert_eq!(Reply::refused(&target, &not_served), Reply::NotFound { proof: false });
    /// ```
    pub fn refused(target: &Target, refusal: &Refusal<'_>) -> Reply {
        match refusal.code {
            404 => Reply::NotFound { proof: refusal.names(target) },
            409 => Reply::Conflict,
            415 => Reply::UnsupportedMediaType,
            422 => Reply::Invalid(refusal.message.to_owned()),
            429 => Reply::TooManyRequests {
                retry_after: refusal.retry_after.unwrap_or(RETRY_AFTER_DEFAULT).min(RETRY_AFTER_MAX),
                message: refusal.message.to_owned(),
            },
            _ => Reply::Failed(refusal.message.to_owned()),
        }
    }
}

impl Refusal<'_> {
    pub(crate) fn names(&self, target: &Target) -> bool {
        let Resource { resource, kind, .. } = &*target.resource;
        self.is_status
            && self.reason == "NotFound"
            && !target.name.is_empty()
            && self.name == target.name
            && (self.kind.eq_ignore_ascii_case(resource) || self.kind.eq_ignore_ascii_case(kind))
    }
}

/// A live object's metadata, as the API server just gave it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveObject {
    /// Its UID, in the server's spelling.
    pub uid: String,
    /// Its version, opaque.
    pub resource_version: String,
    /// Whether `metadata.deletionTimestamp` is set.
    pub being_deleted: bool,
    /// In order.
    pub finalizers: Vec<String>,
    /// In order, exactly as they stand on the object.
    pub owner_references: Vec<OwnerReference>,
}

impl LiveObject {
    /// Whether the object carries this finalizer.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|f| f == finalizer)
    }
}

/// An owner reference as it stands on a live object: absent flags stay absent when it is written back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerReference {
    /// For example `apps/v1`.
    pub api_version: String,
    /// For example `ReplicaSet`.
    pub kind: String,
    /// The owner's name.
    pub name: String,
    /// The owner's UID, as written.
    pub uid: String,
    /// Whether the owner is the managing controller.
    pub controller: Option<bool>,
    /// Whether the owner, deleted in the foreground, waits for this dependent.
    pub block_owner_deletion: Option<bool>,
}

impl OwnerReference {
    /// Whether `blockOwnerDeletion` is set to true.
    pub fn blocks(&self) -> bool {
        self.block_owner_deletion == Some(true)
    }
}
