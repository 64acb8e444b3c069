//! A small language for tests: objects and changes as text, one a line, and effects and graphs back as text.
//!
//! An object is its kind and name, then attributes in any order:
//!
//! ```text
//! cm/child @ns uid=c rv=12 owners=[cm/owner!, deploy/d*#d-uid] finalizers=[x, foreground] deleting source=3
//! ```
//!
//! - The kind is a short name (`cm`, `pod`, `deploy`...; [`Fixture::run`] names an unknown one in its error) or is
//!   spelled out with group and version: `deployment.extensions/v1beta1/d`, `secret/v1/s`.
//! - `@ns` is the namespace; without it the object is cluster-scoped, or so its observer believes.
//! - `uid=` defaults to the name, `rv=` to 1, `source=` to a number for each kind.
//! - After an owner, `!` is blockOwnerDeletion, `*` is controller, `#` gives the UID (last; `#` alone is an empty
//!   one). Without `#` it is that of the object of that kind and name that the fixture has seen so far or sees in
//!   the same text, one in the same namespace before others; else it is the name.
//! - `foreground` stands for `foregroundDeletion`.
//!
//! A change is a verb and what it is about; without a verb an object is observed:
//!
//! ```text
//! observe cm/child @ns      an object was added or updated
//! delete cm/child @ns       a watch saw it deleted
//! vdelete cm/child @ns      a worker found it absent
//! impossible cm/child       a worker found that no object can be there
//! relist cm                 a new list begins
//! listed cm                 it is complete
//! unserve cm                the resource is no longer served
//! forget                    all absence is forgotten
//! ```
//!
//! Empty lines and lines that begin with `#` are skipped.
//!
//! ```
//! let mut fixture = gc_graph::fixture::Fixture::new();
//! let effects = fixture.run("cm/child @ns owners=[cm/owner!]")?;
//! assert_eq!(effects, "cm/child @ns owners=[cm/owner!]\n    attempt-to-delete owner\n");
//! assert_eq!(
//!     gc_graph::fixture::print(&fixture.graph),
//!     "ConfigMap.v1 ns/child (child) rv=1 owners=[owner!]\nConfigMap.v1 ns/owner (owner) virtual\n",
//! );
//! # Ok::<(), gc_graph::fixture::FixtureError>(())
//! ```

use std::fmt::{self, Write};

use crate::{
    Coordinate, Effect, Graph, Node, Observation, OwnerReference, OwnerReferenceRef, OwnerState, SourceId,
    Uid,
};

/// Short names of kinds, with apiVersion and kind.
const KINDS: &[(&str, &str, &str)] = &[
    ("cm", "v1", "ConfigMap"),
    ("configmap", "v1", "ConfigMap"),
    ("namespace", "v1", "Namespace"),
    ("node", "v1", "Node"),
    ("ns", "v1", "Namespace"),
    ("pod", "v1", "Pod"),
    ("pvc", "v1", "PersistentVolumeClaim"),
    ("rc", "v1", "ReplicationController"),
    ("sa", "v1", "ServiceAccount"),
    ("secret", "v1", "Secret"),
    ("svc", "v1", "Service"),
    ("deploy", "apps/v1", "Deployment"),
    ("deployment", "apps/v1", "Deployment"),
    ("ds", "apps/v1", "DaemonSet"),
    ("rs", "apps/v1", "ReplicaSet"),
    ("sts", "apps/v1", "StatefulSet"),
    ("cronjob", "batch/v1", "CronJob"),
    ("job", "batch/v1", "Job"),
    ("clusterrole", "rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("role", "rbac.authorization.k8s.io/v1", "Role"),
    ("crd", "apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("widget", "example.com/v1", "Widget"),
];

/// A graph with what the language remembers between texts: the numbers of sources and the UIDs of objects.
#[derive(Debug, Default)]
pub struct Fixture {
    /// The graph that the changes go to.
    pub graph: Graph,
    sources: Vec<(String, String)>,
    uids: Vec<Coordinate>,
}

/// One line of a script.
#[derive(Clone, Debug)]
pub struct Step {
    /// The line as written.
    pub line: String,
    /// What it means.
    pub change: Change,
}

/// One change to the graph.
#[derive(Clone, Debug)]
pub enum Change {
    /// See [`Graph::observe`].
    Observe(Object),
    /// See [`Graph::delete`].
    Delete(Object),
    /// See [`Graph::virtual_delete`].
    VirtualDelete(Coordinate),
    /// See [`Graph::reconsider`].
    Reconsider(Coordinate),
    /// See [`Graph::begin_list`].
    BeginList(SourceId),
    /// See [`Graph::end_list`].
    EndList(SourceId),
    /// See [`Graph::unserve`].
    Unserve(SourceId),
    /// See [`Graph::forget_absent`].
    ForgetAbsent,
}

/// An object of the fixture language, all its own.
#[derive(Clone, Debug)]
pub struct Object {
    /// Where it is.
    pub coordinate: Coordinate,
    /// The watch that shows it.
    pub source: SourceId,
    /// Its resourceVersion.
    pub resource_version: String,
    /// Whether it has a deletion timestamp.
    pub being_deleted: bool,
    /// All its finalizers.
    pub finalizers: Vec<String>,
    /// Its owner references.
    pub owner_references: Vec<OwnerReference>,
}

/// A line that is not in the language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixtureError {
    line: String,
    problem: String,
}

impl fmt::Display for FixtureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in the fixture line {:?}", self.problem, self.line)
    }
}

impl std::error::Error for FixtureError {}

impl Fixture {
    /// An empty graph, nothing remembered.
    pub fn new() -> Fixture {
        Fixture::default()
    }

    /// Applies each change of a text. Gives back its lines, each followed by its effects, indented.
    pub fn run(&mut self, text: &str) -> Result<String, FixtureError> {
        let mut printed = String::new();
        for step in self.parse(text)? {
            let mut effects = Vec::new();
            step.change.apply(&mut self.graph, &mut effects);
            // Writing to a String does not fail.
            let _ = writeln!(printed, "{}", step.line);
            for effect in effects {
                let _ = writeln!(printed, "    {effect}");
            }
        }
        Ok(printed)
    }

    /// The changes of a text, not applied.
    pub fn parse(&mut self, text: &str) -> Result<Vec<Step>, FixtureError> {
        let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines() {
            self.remember_uid(line).map_err(|problem| FixtureError { line: line.to_owned(), problem })?;
        }
        let parse = |line: &str| {
            let change =
                self.change(line).map_err(|problem| FixtureError { line: line.to_owned(), problem })?;
            Ok(Step { line: line.to_owned(), change })
        };
        lines().map(parse).collect()
    }

    /// The objects of a text in which each line is one, not applied.
    pub fn objects(&mut self, text: &str) -> Result<Vec<Object>, FixtureError> {
        let object = |step: Step| match step.change {
            Change::Observe(object) => Ok(object),
            Change::Delete(_)
            | Change::VirtualDelete(_)
            | Change::Reconsider(_)
            | Change::BeginList(_)
            | Change::EndList(_)
            | Change::Unserve(_)
            | Change::ForgetAbsent => Err(FixtureError {
                line: step.line,
                problem: "a change where an object was expected".to_owned(),
            }),
        };
        self.parse(text)?.into_iter().map(object).collect()
    }

    fn remember_uid(&mut self, line: &str) -> Result<(), String> {
        let (verb, rest) = split_verb(line);
        if matches!(verb, "observe" | "delete") && rest.contains(" uid=") {
            let object = self.object(rest)?;
            self.uids.push(object.coordinate);
        }
        Ok(())
    }

    fn change(&mut self, line: &str) -> Result<Change, String> {
        let (verb, rest) = split_verb(line);
        Ok(match verb {
            "observe" => Change::Observe(self.object(rest)?),
            "delete" => Change::Delete(self.object(rest)?),
            "vdelete" => Change::VirtualDelete(self.object(rest)?.coordinate),
            "impossible" => Change::Reconsider(self.object(rest)?.coordinate),
            "relist" => Change::BeginList(self.source_of(rest)?),
            "listed" => Change::EndList(self.source_of(rest)?),
            "unserve" => Change::Unserve(self.source_of(rest)?),
            _ => Change::ForgetAbsent,
        })
    }

    fn source_of(&mut self, kind: &str) -> Result<SourceId, String> {
        let (api_version, kind) = parse_kind(kind)?;
        Ok(self.source(&api_version, &kind))
    }

    fn source(&mut self, api_version: &str, kind: &str) -> SourceId {
        let is = |(a, k): &(String, String)| a == api_version && k == kind;
        let at = self.sources.iter().position(is).unwrap_or_else(|| {
            self.sources.push((api_version.to_owned(), kind.to_owned()));
            self.sources.len() - 1
        });
        SourceId(u16::try_from(at).unwrap_or(u16::MAX))
    }

    fn object(&mut self, text: &str) -> Result<Object, String> {
        let mut words = split_words(text)?.into_iter();
        let (api_version, kind, name) = parse_named(words.next().unwrap_or_default())?;
        let source = self.source(&api_version, &kind);
        let mut object = Object {
            coordinate: Coordinate { kind, api_version, name, ..Coordinate::default() },
            source,
            resource_version: "1".to_owned(),
            being_deleted: false,
            finalizers: Vec::new(),
            owner_references: Vec::new(),
        };
        let (mut uid, mut owners) = (None, "");
        for word in words {
            if let Some(namespace) = word.strip_prefix('@') {
                object.coordinate.namespace = namespace.to_owned();
            } else if let Some(text) = word.strip_prefix("uid=") {
                uid = Some(text);
            } else if let Some(version) = word.strip_prefix("rv=") {
                object.resource_version = version.to_owned();
            } else if let Some(number) = word.strip_prefix("source=") {
                object.source = SourceId(number.parse().map_err(|_| format!("bad source {number:?}"))?);
            } else if let Some(list) = word.strip_prefix("owners=") {
                owners = list;
            } else if let Some(list) = word.strip_prefix("finalizers=") {
                object.finalizers = items(list).map(finalizer).collect();
            } else if word == "deleting" {
                object.being_deleted = true;
            } else {
                return Err(format!("unknown attribute {word:?}"));
            }
        }
        object.coordinate.uid = match uid {
            Some(text) => Uid::new(text),
            None => self.uid_of(&object.coordinate),
        };
        let namespace = object.coordinate.namespace.clone();
        object.owner_references =
            items(owners).map(|owner| self.owner(owner, &namespace)).collect::<Result<_, _>>()?;
        Ok(object)
    }

    fn owner(&self, text: &str, namespace: &str) -> Result<OwnerReference, String> {
        let (text, uid) = match text.split_once('#') {
            Some((text, uid)) => (text, Some(Uid::new(uid))),
            None => (text, None),
        };
        let bare = text.trim_end_matches(['!', '*']);
        let marks = &text[bare.len()..];
        let (api_version, kind, name) = parse_named(bare)?;
        let named =
            Coordinate { kind, api_version, namespace: namespace.to_owned(), name, uid: Uid::default() };
        Ok(OwnerReference {
            uid: uid.unwrap_or_else(|| self.uid_of(&named)),
            controller: marks.contains('*'),
            block_owner_deletion: marks.contains('!'),
            api_version: named.api_version,
            kind: named.kind,
            name: named.name,
        })
    }

    fn uid_of(&self, named: &Coordinate) -> Uid {
        let same = |held: &&Coordinate| held.kind == named.kind && held.name == named.name;
        let mut fitting = self.uids.iter().filter(same);
        let near = fitting.clone().find(|held| held.namespace == named.namespace);
        near.or_else(|| fitting.next()).map_or_else(|| Uid::new(&named.name), |held| held.uid.clone())
    }
}

impl Change {
    /// Makes the change.
    pub fn apply(&self, graph: &mut Graph, effects: &mut Vec<Effect>) {
        match self {
            Change::Observe(object) => object.observed(|seen| graph.observe(seen, effects)),
            Change::Delete(object) => object.observed(|seen| graph.delete(seen, effects)),
            Change::VirtualDelete(absent) => graph.virtual_delete(absent, effects),
            Change::Reconsider(impossible) => graph.reconsider(impossible, effects),
            Change::BeginList(source) => graph.begin_list(*source),
            Change::EndList(source) => graph.end_list(*source, effects),
            Change::Unserve(source) => graph.unserve(*source, effects),
            Change::ForgetAbsent => graph.forget_absent(effects),
        }
    }
}

impl Object {
    /// Lends the object as an observation.
    pub fn observed<T>(&self, use_it: impl FnOnce(&Observation<'_>) -> T) -> T {
        let uids: Vec<String> = self.owner_references.iter().map(|owner| owner.uid.to_string()).collect();
        let owners: Vec<OwnerReferenceRef<'_>> =
            self.owner_references.iter().zip(&uids).map(|(owner, uid)| borrow(owner, uid)).collect();
        let Coordinate { kind, api_version, namespace, name, uid } = &self.coordinate;
        let has = |finalizer: &str| self.finalizers.iter().any(|held| held == finalizer);
        use_it(&Observation {
            source: self.source,
            api_version,
            kind,
            namespace,
            name,
            uid: &uid.to_string(),
            resource_version: &self.resource_version,
            being_deleted: self.being_deleted,
            has_foreground_finalizer: has("foregroundDeletion"),
            has_orphan_finalizer: has("orphan"),
            owner_references: &owners,
        })
    }
}

fn borrow<'a>(owner: &'a OwnerReference, uid: &'a str) -> OwnerReferenceRef<'a> {
    OwnerReferenceRef {
        api_version: &owner.api_version,
        kind: &owner.kind,
        name: &owner.name,
        uid,
        controller: owner.controller,
        block_owner_deletion: owner.block_owner_deletion,
    }
}

/// The graph as text: one node a line, by UID, with its references as written where that is not the owner's own
/// coordinate.
pub fn print(graph: &Graph) -> String {
    let mut nodes: Vec<Node<'_>> = graph.nodes().collect();
    nodes.sort_by_cached_key(|node| node.uid());
    nodes.into_iter().map(|node| print_node(node) + "\n").collect()
}

fn print_node(node: Node<'_>) -> String {
    let mut line = node.coordinate().to_string();
    let flags = [
        ("virtual", node.is_virtual()),
        ("being-deleted", node.is_being_deleted()),
        ("deleting-dependents", node.is_deleting_dependents()),
        ("orphaning", node.is_orphaning()),
        ("names-policy", node.names_policy()),
    ];
    if !node.is_virtual() {
        line += &format!(" rv={}", node.resource_version());
    }
    for (flag, _) in flags.iter().filter(|(_, is)| *is) {
        line += " ";
        line += flag;
    }
    let owners: Vec<String> = node.owner_states().map(print_owner).collect();
    if !owners.is_empty() {
        line += &format!(" owners=[{}]", owners.join(", "));
    }
    line
}

fn print_owner((reference, state): (OwnerReference, OwnerState<'_>)) -> String {
    let mut text = format!("{}", reference.uid);
    text += if reference.controller { "*" } else { "" };
    text += if reference.block_owner_deletion { "!" } else { "" };
    let as_written = |owner: Node<'_>| {
        let same = owner.kind() == reference.kind
            && owner.api_version() == reference.api_version
            && owner.name() == reference.name;
        if same {
            String::new()
        } else {
            format!(" as {}.{} {}", reference.kind, reference.api_version, reference.name)
        }
    };
    text + &match state {
        OwnerState::Observed(owner) | OwnerState::Virtual(owner) => as_written(owner),
        OwnerState::Absent => " absent".to_owned(),
        OwnerState::Unknown => " unknown".to_owned(),
    }
}

fn split_verb(line: &str) -> (&str, &str) {
    let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
    if ["observe", "delete", "vdelete", "impossible", "relist", "listed", "unserve", "forget"]
        .contains(&first)
    {
        (first, rest.trim())
    } else {
        ("observe", line)
    }
}

/// Words between spaces; a list in brackets is part of its word.
fn split_words(text: &str) -> Result<Vec<&str>, String> {
    let mut words = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let space = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let end = match rest.find('[') {
            Some(open) if open < space => rest.find(']').ok_or("a list without its end")? + 1,
            _ => space,
        };
        words.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    Ok(words)
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    let inner = list.trim_start_matches('[').trim_end_matches(']');
    inner.split([',', ' ']).filter(|item| !item.is_empty())
}

fn finalizer(text: &str) -> String {
    if text == "foreground" { "foregroundDeletion".to_owned() } else { text.to_owned() }
}

/// `cm/name`, `deployment.extensions/v1beta1/name`, `secret/v1/name`.
fn parse_named(text: &str) -> Result<(String, String, String), String> {
    let (kind, name) = text.rsplit_once('/').ok_or_else(|| format!("no name in {text:?}"))?;
    let (api_version, kind) = parse_kind(kind)?;
    Ok((api_version, kind, name.to_owned()))
}

fn parse_kind(text: &str) -> Result<(String, String), String> {
    let known = |short: &str| KINDS.iter().find(|(alias, _, _)| *alias == short);
    let Some((dotted, version)) = text.split_once('/') else {
        let (_, api_version, kind) = known(text).ok_or_else(|| format!("unknown kind {text:?}"))?;
        return Ok(((*api_version).to_owned(), (*kind).to_owned()));
    };
    let (kind, api_version) = match dotted.split_once('.') {
        Some((kind, group)) => (kind, format!("{group}/{version}")),
        None => (dotted, version.to_owned()),
    };
    Ok((api_version, known(kind).map_or(kind, |(_, _, kind)| kind).to_owned()))
}

/// Every order of `len` things, by their places: the numbers that small worlds are tried under.
pub fn permutations(len: usize) -> Vec<Vec<usize>> {
    if len == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in permutations(len - 1) {
        for at in 0..len {
            let mut order = shorter.clone();
            order.insert(at, len - 1);
            all.push(order);
        }
    }
    all
}
