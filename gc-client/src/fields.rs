//! Fields of an object that are wanted besides its metadata, by their paths.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// The most paths of one [`Fields`].
pub const FIELDS_MAX: usize = 16;
/// The most keys of one path.
pub const FIELD_KEYS_MAX: usize = 16;
/// The most that the value of one field may be, in bytes: its text, and a fixed sum for each value and each object in
/// it.
pub const FIELD_BYTES_MAX: usize = 64 << 10;
/// The deepest that the value of one field may be nested.
pub const FIELD_DEPTH_MAX: usize = 16;

/// What a field was on one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Field {
    /// Not there or null; or the path leads through something that is no object.
    #[default]
    Absent,
    /// Never null.
    Value(Value),
    /// Over [`FIELD_BYTES_MAX`] or [`FIELD_DEPTH_MAX`]: it was passed over.
    TooLarge,
}

impl Field {
    /// The value, where there is a readable one.
    pub fn value(&self) -> Option<&Value> {
        match self {
            Field::Value(value) => Some(value),
            Field::Absent | Field::TooLarge => None,
        }
    }
}

/// The paths of the fields that a list, a watch or a read is to give besides the metadata: each a list of keys from
/// the top of the object. Everything else of the object is passed over while it arrives.
///
/// Clones are cheap.
///
/// ```
/// use gc_client::Fields;
///
/// let fields = Fields::new([["status", "conditions"], ["spec", "ttlSecondsAfterFinished"]])?;
/// assert_eq!(fields.len(), 2);
/// assert!(Fields::new([["metadata", "name"]]).is_err());
/// # Ok::<(), gc_client::FieldsError>(())
/// ```
#[derive(Clone)]
pub struct Fields(Arc<Compiled>);

struct Compiled {
    paths: Vec<Vec<String>>,
    /// The paths as a tree; the first node is the top of the object.
    nodes: Vec<Node>,
}

/// A place in an object that is wanted, or on the way to one.
#[derive(Default)]
pub(crate) struct Node {
    children: Vec<(String, usize)>,
    /// The places in `Compiled::paths` of those that lead here or through here.
    paths: Vec<usize>,
    /// How many keys lead here.
    depth: usize,
    /// Whether a path ends here, so that the whole value is wanted.
    is_wanted: bool,
}

/// Why paths cannot be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldsError {
    /// None, or more than [`FIELDS_MAX`].
    Count(usize),
    /// Without a key, with an empty one, or with more than [`FIELD_KEYS_MAX`].
    Length(Vec<String>),
    /// What every read gives anyway ([`ObjectMeta`](crate::ObjectMeta)), or what tells an object from a Status or a
    /// list.
    Reserved(Vec<String>),
}

/// At the top of every object, every list and every Status.
const RESERVED_TOP: &[&str] = &["apiVersion", "kind", "items", "reason", "message", "code", "details"];
/// In the metadata that is read anyway.
const RESERVED_METADATA: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "continue",
    "deletionTimestamp",
    "finalizers",
    "ownerReferences",
];

impl Fields {
    /// The node of the object itself.
    pub(crate) const TOP: usize = 0;

    /// Fields by their paths; what they were comes in the same order. A path may lead on from where another one ends.
    ///
    /// # Errors
    ///
    /// Each of [`FieldsError`].
    pub fn new<P, K>(paths: impl IntoIterator<Item = P>) -> Result<Fields, FieldsError>
    where
        P: IntoIterator<Item = K>,
        K: Into<String>,
    {
        let paths: Vec<Vec<String>> =
            paths.into_iter().map(|path| path.into_iter().map(Into::into).collect()).collect();
        if paths.is_empty() || paths.len() > FIELDS_MAX {
            return Err(FieldsError::Count(paths.len()));
        }
        let mut nodes = vec![Node::default()];
        for (index, path) in paths.iter().enumerate() {
            if path.is_empty() || path.len() > FIELD_KEYS_MAX || path.iter().any(String::is_empty) {
                return Err(FieldsError::Length(path.clone()));
            }
            if is_reserved(path) {
                return Err(FieldsError::Reserved(path.clone()));
            }
            plant(&mut nodes, index, path);
        }
        Ok(Fields(Arc::new(Compiled { paths, nodes })))
    }

    /// How many there are; never zero.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.0.paths.len()
    }

    /// The paths, in order.
    pub fn paths(&self) -> &[Vec<String>] {
        &self.0.paths
    }

    /// Where this key leads from that node, if towards anything that is wanted.
    pub(crate) fn child(&self, node: usize, key: &str) -> Option<usize> {
        let children = &self.0.nodes.get(node)?.children;
        children.iter().find(|(name, _)| name == key).map(|(_, child)| *child)
    }

    /// Whether all of what is there is wanted.
    pub(crate) fn is_wanted(&self, node: usize) -> bool {
        self.0.nodes.get(node).is_some_and(|node| node.is_wanted)
    }

    /// The paths that lead to that node or through it, each with the keys that are left from there on.
    pub(crate) fn paths_through(&self, node: usize) -> impl Iterator<Item = (usize, &[String])> {
        let node = self.0.nodes.get(node);
        let depth = node.map_or(0, |node| node.depth);
        node.map(|node| node.paths.as_slice()).unwrap_or_default().iter().filter_map(move |index| {
            let rest = self.0.paths.get(*index)?.get(depth..)?;
            Some((*index, rest))
        })
    }
}

fn is_reserved(path: &[String]) -> bool {
    let keys: Vec<&str> = path.iter().map(String::as_str).collect();
    match keys.as_slice() {
        ["metadata"] | ["metadata", "annotations"] => true,
        ["metadata", "annotations", "k8s.io/initial-events-end", ..] => true,
        ["metadata", key, ..] => RESERVED_METADATA.contains(key),
        [key, ..] => RESERVED_TOP.contains(key),
        [] => false,
    }
}

fn plant(nodes: &mut Vec<Node>, index: usize, path: &[String]) {
    let mut at = Fields::TOP;
    for (depth, key) in path.iter().enumerate() {
        let next = nodes.len();
        let Some(node) = nodes.get_mut(at) else { return };
        at = match node.children.iter().find(|(name, _)| name == key) {
            Some((_, child)) => *child,
            None => {
                node.children.push((key.clone(), next));
                nodes.push(Node { depth: depth + 1, ..Node::default() });
                next
            }
        };
        if let Some(node) = nodes.get_mut(at) {
            node.paths.push(index);
            node.is_wanted |= depth + 1 == path.len();
        }
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.paths.iter().map(|path| path.join("."))).finish()
    }
}

impl PartialEq for Fields {
    fn eq(&self, other: &Fields) -> bool {
        self.0.paths == other.0.paths
    }
}

impl Eq for Fields {}

impl fmt::Display for FieldsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldsError::Count(count) => {
                write!(f, "{count} fields are asked for; it has to be 1 to {FIELDS_MAX}")
            }
            FieldsError::Length(path) => {
                write!(f, "the path {path:?} must have 1 to {FIELD_KEYS_MAX} keys, none of them empty")
            }
            FieldsError::Reserved(path) => {
                write!(f, "{} is read with every object and is no field of its own", path.join("."))
            }
        }
    }
}

impl std::error::Error for FieldsError {}
