//! Objects, references and steps as text and as data, the same on both servers: UIDs are numbers in order of creation.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};

use gc_client::ApiResource;
use serde_json::{Value, json};

use crate::api::Policy;
use crate::kinds;

/// The group of the custom resources that histories use.
pub const GROUP: &str = "gc-differential.example";

/// The version of these that collectors do not watch, since the other one is preferred.
pub const OTHER_VERSION: &str = "v1beta1";

/// Finalizers that nobody but a history removes.
pub const HOLDS: [&str; 2] = ["history.example/x", "history.example/y"];

/// The finalizer of a foreground deletion.
pub const FOREGROUND: &str = "foregroundDeletion";

/// A name that no object can have, since it is no segment of a path.
pub const IMPOSSIBLE_NAME: &str = "im%2Fpossible";

/// A kind of object: two built-in ones, a custom one, and two that are cluster-scoped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    ConfigMap,
    Secret,
    Widget,
    ClusterRole,
    Gadget,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 5] = [Kind::ConfigMap, Kind::Secret, Kind::Widget, Kind::ClusterRole, Kind::Gadget];

    /// Where it is on a server.
    pub fn resource(self) -> ApiResource {
        match self {
            Kind::ConfigMap => kinds::config_map(),
            Kind::Secret => kinds::namespaced("", "v1", "secrets", "Secret"),
            Kind::Widget => kinds::namespaced(GROUP, "v1", "widgets", "Widget"),
            Kind::ClusterRole => kinds::cluster_role(),
            Kind::Gadget => {
                ApiResource { namespaced: false, ..kinds::namespaced(GROUP, "v1", "gadgets", "Gadget") }
            }
        }
    }

    /// Whether its objects live in namespaces.
    pub fn is_namespaced(self) -> bool {
        matches!(self, Kind::ConfigMap | Kind::Secret | Kind::Widget)
    }

    /// Whether a definition makes it.
    pub fn is_custom(self) -> bool {
        matches!(self, Kind::Widget | Kind::Gadget)
    }

    /// The kind of that short name.
    pub fn from_short(short: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.short() == short)
    }

    fn short(self) -> &'static str {
        match self {
            Kind::ConfigMap => "cm",
            Kind::Secret => "secret",
            Kind::Widget => "widget",
            Kind::ClusterRole => "role",
            Kind::Gadget => "gadget",
        }
    }
}

/// Where an object is: in one of a history's two namespaces, or in none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    One,
    Two,
    Cluster,
}

impl Place {
    /// The namespace in a history; empty for cluster-scoped objects.
    pub fn namespace(self, history: &str) -> String {
        match self {
            Place::One => format!("{history}-one"),
            Place::Two => format!("{history}-two"),
            Place::Cluster => String::new(),
        }
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::One => "@one",
            Place::Two => "@two",
            Place::Cluster => "@cluster",
        })
    }
}

/// Names of cluster-scoped objects carry their history's, so that two histories never meet.
pub fn full_name(kind_is_namespaced: bool, history: &str, name: &str) -> String {
    if kind_is_namespaced { name.into() } else { format!("{history}-{name}") }
}

/// Who is meant by a UID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Uid {
    /// The object that was created as the n-th of its history.
    Object(u32),
    /// No object ever.
    Nobody(u32),
}

impl Uid {
    /// A UID that no server makes, for nobody.
    pub fn of_nobody(number: u32) -> String {
        format!("00000000-dead-4bad-8bad-{number:012}")
    }
}

/// What an owner reference says besides the UID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub api_version: String,
    pub kind: String,
    /// Without the history's name in front.
    pub name: String,
    pub uid: Uid,
    pub block: bool,
    pub controller: bool,
}

impl Reference {
    /// A reference that names the object rightly.
    pub fn to(number: u32, identity: &Identity) -> Reference {
        let resource = identity.kind.resource();
        Reference {
            api_version: resource.api_version(),
            kind: resource.kind,
            name: identity.name.clone(),
            uid: Uid::Object(number),
            block: false,
            controller: false,
        }
    }

    /// The same reference by the other version in which the custom kinds are served.
    pub fn by_other_version(self) -> Reference {
        if self.named_kind().is_some_and(Kind::is_custom) {
            return Reference { api_version: format!("{GROUP}/{OTHER_VERSION}"), ..self };
        }
        self
    }

    /// Whether it names its kind by the version that collectors do not watch.
    pub fn is_by_other_version(&self) -> bool {
        self.named_kind().is_some_and(|kind| kind.resource().api_version() != self.api_version)
    }

    /// The kind that is named, in whichever version, where it is one of [`Kind::ALL`].
    pub fn named_kind(&self) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| {
            let resource = kind.resource();
            let is_other = kind.is_custom() && self.api_version == format!("{GROUP}/{OTHER_VERSION}");
            (is_other || resource.api_version() == self.api_version) && resource.kind == self.kind
        })
    }

    /// As the server takes it; `uid` is the owner's on that server.
    pub fn to_json(&self, history: &str, uid: &str) -> Value {
        let is_namespaced = self.named_kind().is_none_or(Kind::is_namespaced);
        let mut reference = json!({
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": full_name(is_namespaced, history, &self.name),
            "uid": uid,
        });
        if self.block {
            reference["blockOwnerDeletion"] = json!(true);
        }
        if self.controller {
            reference["controller"] = json!(true);
        }
        reference
    }

    /// As the server gives it.
    pub fn from_json(history: &str, value: &Value, uid: Uid) -> Reference {
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let flag = |field: &str| value[field].as_bool().unwrap_or_default();
        let name = text("name");
        let name = name.strip_prefix(&format!("{history}-")).unwrap_or(&name).to_owned();
        Reference {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name,
            uid,
            block: flag("blockOwnerDeletion"),
            controller: flag("controller"),
        }
    }
}

/// What an object is, as long as it exists and afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub kind: Kind,
    pub place: Place,
    /// Without the history's name in front.
    pub name: String,
}

impl Identity {
    /// Where it is on a server.
    pub fn path(&self, history: &str) -> String {
        let name = full_name(self.kind.is_namespaced(), history, &self.name);
        self.kind.resource().path(&self.place.namespace(history), &name)
    }
}

/// How an object stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub identity: Identity,
    pub owners: Vec<Reference>,
    pub finalizers: Vec<String>,
    pub deleting: bool,
}

impl Object {
    /// Whether a finalizer of a history holds it.
    pub fn is_held(&self) -> bool {
        self.finalizers.iter().any(|name| HOLDS.contains(&name.as_str()))
    }

    /// Whether it waits for its dependents.
    pub fn is_waiting(&self) -> bool {
        self.deleting && self.finalizers.iter().any(|name| name == FOREGROUND)
    }
}

/// The objects of one history, by their numbers.
pub type Snapshot = BTreeMap<u32, Object>;

/// One object a line.
pub fn text(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for (number, object) in snapshot {
        // Writing to a String does not fail.
        writeln!(text, "{}", Line(*number, object)).ok();
    }
    text
}

struct Line<'a>(u32, &'a Object);

impl Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line(number, object) = self;
        write!(f, "{}", Created(*number, &object.identity))?;
        write_list(f, "owners", &object.owners)?;
        write_list(f, "finalizers", &object.finalizers)?;
        f.write_str(if object.deleting { " deleting" } else { "" })
    }
}

struct Created<'a>(u32, &'a Identity);

impl Display for Created<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Created(number, Identity { kind, place, name }) = self;
        write!(f, "{}/{name}#{number}", kind.short())?;
        if *place == Place::Cluster { Ok(()) } else { write!(f, " {place}") }
    }
}

impl Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.named_kind() {
            Some(kind) if self.is_by_other_version() => {
                write!(f, "{}@{OTHER_VERSION}/{}", kind.short(), self.name)?;
            }
            Some(kind) => write!(f, "{}/{}", kind.short(), self.name)?,
            None => write!(f, "{}.{}/{}", self.kind, self.api_version, self.name)?,
        }
        match self.uid {
            Uid::Object(number) => write!(f, "#{number}")?,
            Uid::Nobody(number) => write!(f, "#nobody{number}")?,
        }
        f.write_str(if self.block { "!" } else { "" })?;
        f.write_str(if self.controller { "*" } else { "" })
    }
}

fn write_list<T: Display>(f: &mut fmt::Formatter<'_>, name: &str, items: &[T]) -> fmt::Result {
    if items.is_empty() {
        return Ok(());
    }
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    write!(f, " {name}=[{}]", items.join(", "))
}

/// What a user, or another controller, does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The object gets the next number.
    Create { number: u32, identity: Identity, owners: Vec<Reference>, finalizers: Vec<String> },
    /// With a policy, or leaving it to the server.
    Delete { number: u32, policy: Option<Policy> },
    /// The owners become these.
    Own { number: u32, owners: Vec<Reference> },
    /// A finalizer is added.
    Hold { number: u32, finalizer: String },
    /// A finalizer is removed.
    Release { number: u32, finalizer: String },
    /// A label changes, and with it the resourceVersion.
    Touch { number: u32 },
    /// A namespace is deleted, and what is in it as the namespace controller does: in the background, a kind at a time.
    EndNamespace { place: Place },
    /// The collector is killed. It is started again at the end of the burst.
    Kill,
    /// The definition of [`Kind::Widget`] is removed, and with it all of them; one waits until the collector knows.
    Undefine,
    /// It is there again.
    Define,
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Create { number, identity, owners, finalizers } => {
                write!(f, "create  {}", Created(*number, identity))?;
                write_list(f, "owners", owners)?;
                write_list(f, "finalizers", finalizers)
            }
            Step::Delete { number, policy: None } => write!(f, "delete  #{number}"),
            Step::Delete { number, policy: Some(policy) } => write!(f, "delete  #{number} {policy:?}"),
            Step::Own { number, owners } if owners.is_empty() => write!(f, "own     #{number} nothing"),
            Step::Own { number, owners } => {
                write!(f, "own     #{number}")?;
                write_list(f, "owners", owners)
            }
            Step::Hold { number, finalizer } => write!(f, "hold    #{number} {finalizer}"),
            Step::Release { number, finalizer } => write!(f, "release #{number} {finalizer}"),
            Step::Touch { number } => write!(f, "touch   #{number}"),
            Step::EndNamespace { place } => write!(f, "end     {place}"),
            Step::Kill => f.write_str("kill    collector"),
            Step::Undefine => f.write_str("undefine widgets"),
            Step::Define => f.write_str("define  widgets"),
        }
    }
}
