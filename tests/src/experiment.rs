//! The experiment: what the three ways of deleting an owner do to a dependent that is held by a finalizer of its own.
//!
//! For each way there are two ConfigMaps, an owner and a child; the child has the finalizer `article.example/hold`
//! and blocks its owner. It runs against any API server beside which a garbage collector runs, the simulator and the
//! real one alike, and prints six lines when all is well:
//!
//! ```text
//! foreground: child terminating
//! foreground: owner retained by blocking child
//! background: owner absent
//! background: child terminating with finalizer
//! orphan: owner absent
//! orphan: child ownerReferences removed
//! ```
//!
//! Then it releases the finalizers and checks that what should go has gone and what should stay stays.

use std::fmt;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use gc_client::{
    ApiResource, Client, DeleteOptions, Error, Method, ObjectMeta, PatchType, Propagation, Request,
};
use serde_json::{Value, json};

/// The finalizer that holds each child until the experiment releases it.
pub const HOLD: &str = "article.example/hold";

/// Between two looks at the API.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often a state that must last is looked at.
const LOOKS_AT_LASTING: u32 = 10;

/// Why the experiment did not come to its end.
#[derive(Debug)]
pub enum ExperimentError {
    /// A request failed.
    Request {
        /// What the request was for.
        doing: String,
        /// Its error.
        error: Box<Error>,
    },
    /// The expected state did not come in time.
    NotInTime {
        /// The state that was waited for.
        expected: String,
        /// What was there at the end.
        found: String,
    },
    /// A state that must last did not.
    NotLasting {
        /// The state that was to last.
        expected: String,
        /// What was there instead.
        found: String,
    },
    /// The lines could not be printed.
    Output(io::Error),
}

impl fmt::Display for ExperimentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExperimentError::Request { doing, error } => write!(f, "{doing}: {error}"),
            ExperimentError::NotInTime { expected, found } => {
                write!(f, "waited in vain for: {expected}; found: {found}")
            }
            ExperimentError::NotLasting { expected, found } => {
                write!(f, "did not last: {expected}; found: {found}")
            }
            ExperimentError::Output(error) => write!(f, "cannot print: {error}"),
        }
    }
}

impl std::error::Error for ExperimentError {}

impl From<io::Error> for ExperimentError {
    fn from(error: io::Error) -> ExperimentError {
        ExperimentError::Output(error)
    }
}

/// Runs the experiment in a namespace, which is created when it does not exist. The six ConfigMaps must not exist;
/// they are gone afterwards.
///
/// `deadline` is for the whole. `out` gets exactly the six lines, each as soon as it is true.
///
/// # Errors
///
/// The first thing that is not as it should be; the objects then stay, to be looked at.
pub fn run(
    client: &Client,
    namespace: &str,
    deadline: Duration,
    out: &mut dyn Write,
) -> Result<(), ExperimentError> {
    let world = World { client, namespace, config_maps: config_maps(), deadline: Instant::now() + deadline };
    world.create_namespace()?;
    for policy in ["foreground", "background", "orphan"] {
        world.create_pair(policy)?;
    }
    foreground(&world, out)?;
    background(&world, out)?;
    orphan(&world, out)?;
    release(&world)
}

fn foreground(world: &World<'_>, out: &mut dyn Write) -> Result<(), ExperimentError> {
    world.delete("foreground-owner", Propagation::Foreground)?;
    world.wait_for("foreground-child", "it is terminating, with its finalizer", is_held)?;
    writeln!(out, "foreground: child terminating")?;
    world.check_lasting("foreground-owner", "it waits for its child", |owner| {
        owner.is_some_and(|o| o.being_deleted && o.finalizers.iter().any(|f| f == "foregroundDeletion"))
    })?;
    writeln!(out, "foreground: owner retained by blocking child")?;
    Ok(())
}

fn background(world: &World<'_>, out: &mut dyn Write) -> Result<(), ExperimentError> {
    world.delete("background-owner", Propagation::Background)?;
    world.wait_for("background-owner", "it is absent", |owner| owner.is_none())?;
    writeln!(out, "background: owner absent")?;
    world.wait_for("background-child", "it is terminating, with its finalizer", is_held)?;
    writeln!(out, "background: child terminating with finalizer")?;
    Ok(())
}

fn orphan(world: &World<'_>, out: &mut dyn Write) -> Result<(), ExperimentError> {
    world.delete("orphan-owner", Propagation::Orphan)?;
    world.wait_for("orphan-owner", "it is absent", |owner| owner.is_none())?;
    writeln!(out, "orphan: owner absent")?;
    // The owner's finalizer goes last, so the reference must be gone by now.
    world.check_lasting("orphan-child", "it has no ownerReferences and is not terminating", is_orphan)?;
    writeln!(out, "orphan: child ownerReferences removed")?;
    Ok(())
}

/// Takes the finalizers away; the orphan stays, everything else goes.
fn release(world: &World<'_>) -> Result<(), ExperimentError> {
    for policy in ["foreground", "background", "orphan"] {
        world.release(&format!("{policy}-child"))?;
    }
    for gone in ["foreground-child", "foreground-owner", "background-child"] {
        world.wait_for(gone, "it is absent", |object| object.is_none())?;
    }
    world.check_lasting("orphan-child", "it stays without its owner", is_orphan)?;
    world.delete("orphan-child", Propagation::Background)?;
    world.wait_for("orphan-child", "it is absent", |object| object.is_none())
}

fn is_held(child: Option<&ObjectMeta>) -> bool {
    child.is_some_and(|c| c.being_deleted && c.finalizers == [HOLD])
}

fn is_orphan(child: Option<&ObjectMeta>) -> bool {
    child.is_some_and(|c| !c.being_deleted && c.owner_references.is_empty())
}

struct World<'a> {
    client: &'a Client,
    namespace: &'a str,
    config_maps: ApiResource,
    deadline: Instant,
}

impl World<'_> {
    fn create_namespace(&self) -> Result<(), ExperimentError> {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}});
        match self.post("/api/v1/namespaces", &body) {
            Ok(_) => Ok(()),
            Err(Error::Status(status)) if status.reason == "AlreadyExists" => Ok(()),
            Err(error) => Err(failed(&format!("create namespace {}", self.namespace), error)),
        }
    }

    fn create_pair(&self, policy: &str) -> Result<(), ExperimentError> {
        let owner = format!("{policy}-owner");
        self.create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": owner}}))?;
        let uid = self.read(&owner)?.map(|o| o.uid).unwrap_or_default();
        self.create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": format!("{policy}-child"),
            "finalizers": [HOLD],
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": true},
            ],
        }}))
    }

    fn create(&self, object: &Value) -> Result<(), ExperimentError> {
        let path = self.config_maps.path(self.namespace, "");
        self.post(&path, object)
            .map_err(|error| failed(&format!("create {}", object["metadata"]["name"]), error))
    }

    fn post(&self, path: &str, body: &Value) -> Result<(), Error> {
        let body = body.to_string();
        let (accept, content_type) = ("application/json", "application/json");
        let request = Request { method: Method::Post, path, accept, content_type, body: body.as_bytes() };
        self.client.send_ok(&request).map(|_| ())
    }

    /// Deletes the object as it is now; when it changes in between, as it is then.
    fn delete(&self, name: &str, propagation_policy: Propagation) -> Result<(), ExperimentError> {
        loop {
            let Some(object) = self.read(name)? else { return Ok(()) };
            let options = DeleteOptions {
                uid: &object.uid,
                resource_version: &object.resource_version,
                propagation_policy,
            };
            match self.client.delete(&self.config_maps, self.namespace, name, &options) {
                Ok(()) => return Ok(()),
                Err(Error::Status(status)) if status.code == 409 && Instant::now() < self.deadline => {}
                Err(error) => return Err(failed(&format!("delete {name}"), error)),
            }
        }
    }

    fn release(&self, name: &str) -> Result<(), ExperimentError> {
        let body = br#"{"metadata":{"finalizers":null}}"#;
        let patched = self.client.patch(&self.config_maps, self.namespace, name, PatchType::JsonMerge, body);
        patched.map(|_| ()).map_err(|error| failed(&format!("release {name}"), error))
    }

    /// The object's metadata; none when the server says that it does not exist.
    fn read(&self, name: &str) -> Result<Option<ObjectMeta>, ExperimentError> {
        match self.client.read(&self.config_maps, self.namespace, name) {
            Ok(object) => Ok(Some(object)),
            Err(Error::Status(status)) if status.proves_absent(name) => Ok(None),
            Err(error) => Err(failed(&format!("read {name}"), error)),
        }
    }

    fn wait_for(
        &self,
        name: &str,
        expected: &str,
        holds: impl Fn(Option<&ObjectMeta>) -> bool,
    ) -> Result<(), ExperimentError> {
        loop {
            let object = self.read(name)?;
            if holds(object.as_ref()) {
                return Ok(());
            }
            if Instant::now() >= self.deadline {
                let expected = format!("{name}: {expected}");
                return Err(ExperimentError::NotInTime { expected, found: describe(object.as_ref()) });
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// The state is there now, and at every look of the next half second: what a collector does wrong, it does at
    /// once.
    fn check_lasting(
        &self,
        name: &str,
        expected: &str,
        holds: impl Fn(Option<&ObjectMeta>) -> bool,
    ) -> Result<(), ExperimentError> {
        for _ in 0..LOOKS_AT_LASTING {
            let object = self.read(name)?;
            if !holds(object.as_ref()) {
                let expected = format!("{name}: {expected}");
                return Err(ExperimentError::NotLasting { expected, found: describe(object.as_ref()) });
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

fn failed(doing: &str, error: Error) -> ExperimentError {
    ExperimentError::Request { doing: doing.into(), error: Box::new(error) }
}

/// What was found, in one line.
fn describe(object: Option<&ObjectMeta>) -> String {
    let Some(object) = object else { return "no such object".into() };
    let owners: Vec<String> =
        object.owner_references.iter().map(|o| format!("{}/{}", o.kind, o.name)).collect();
    let state = if object.being_deleted { "terminating" } else { "alive" };
    format!(
        "{state}, finalizers [{}], owners [{}], resourceVersion {}",
        object.finalizers.join(", "),
        owners.join(", "),
        object.resource_version
    )
}

/// ConfigMaps, as discovery gives them.
pub fn config_maps() -> ApiResource {
    ApiResource {
        group: String::new(),
        version: "v1".into(),
        resource: "configmaps".into(),
        kind: "ConfigMap".into(),
        namespaced: true,
        preferred: true,
        can_delete: true,
        can_list: true,
        can_watch: true,
    }
}
