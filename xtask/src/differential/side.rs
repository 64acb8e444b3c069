//! One of the two servers, with its collector.

use std::collections::BTreeMap;
use std::time::Duration;

use gc_client::{ApiResource, Config};
use serde_json::{Value, json};

use crate::api::{Api, Policy};
use crate::collector::{Collector, Launcher, Program};
use crate::differential::evidence;
use crate::differential::model::{Identity, Kind, Object, Place, Reference, Snapshot, Step, Uid, full_name};
use crate::failure::Failure;
use crate::kinds;
use crate::poll::{Look, eventually};
use crate::rig::Rig;

const RBAC: &str = include_str!("../../../deploy/rbac.yaml");

/// As the reference.
const CONCURRENT_GC_SYNCS: u32 = 20;
/// A definition is served within a second.
const SERVED_DEADLINE: Duration = Duration::from_secs(30);
/// A patch that meets the collector's own is made again; that many times in a row is a bug.
const CONFLICTS_MAX: u32 = 50;

/// A server and its collector. The order of the fields is the order in which they are dropped.
pub struct Side {
    /// What messages call it.
    pub name: &'static str,
    collector: Collector,
    api: Api,
    histories: BTreeMap<String, Known>,
    rig: Rig,
}

/// The UIDs of one history on this server.
#[derive(Default)]
struct Known {
    uids: BTreeMap<u32, String>,
    numbers: BTreeMap<String, u32>,
    identities: BTreeMap<u32, Identity>,
}

impl Side {
    /// Prepares the server and starts its collector, which then knows every definition from its start.
    ///
    /// # Errors
    ///
    /// When the server refuses something or the collector does not start.
    pub fn start(
        name: &'static str,
        rig: Rig,
        program: Program,
        logs: &std::path::Path,
    ) -> Result<Side, Failure> {
        let api = Api::connect(&Config::from_kubeconfig(&rig.admin_kubeconfig(), None)?)?;
        api.create_manifests(RBAC, kinds::of_manifest)?;
        for resource in [Kind::Widget.resource(), Kind::Gadget.resource()] {
            define(&api, &resource, &kinds::definition(&resource, &[kinds::version("v1", true)]))?;
        }
        for (resource, definition) in evidence::definitions() {
            define(&api, &resource, &definition)?;
        }
        // The reference would be slowed down by its own limit; what it does is compared, not how fast.
        let flags = ["--kube-api-qps=10000", "--kube-api-burst=10000"];
        let mut launcher = Launcher::new(program, rig.daemon_kubeconfig(), logs).with_flags(&flags);
        let collector = launcher.start(CONCURRENT_GC_SYNCS)?;
        Ok(Side { name, collector, api, histories: BTreeMap::new(), rig })
    }

    /// The administrator's connection.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Leaves the server's logs where they are.
    pub fn keep_files(&mut self) {
        self.rig.keep_files();
    }

    /// Where the server's logs are, and the end of the collector's.
    pub fn logs(&self) -> String {
        format!("{}: server's logs in {}\n{}", self.name, self.rig.dir().display(), self.collector.log_tail())
    }

    /// Fails when the server or the collector has ended.
    ///
    /// # Errors
    ///
    /// With the end of its log.
    pub fn check_alive(&mut self) -> Result<(), Failure> {
        self.rig.check_alive()?;
        self.collector.check_alive()
    }

    /// Whether the collector's queues are empty.
    ///
    /// # Errors
    ///
    /// When its metrics do not answer.
    pub fn is_idle(&self) -> Result<bool, Failure> {
        Ok(self.collector.metric("workqueue_depth", "name=\"garbage_collector")? == 0.0)
    }
}

/// Histories.
impl Side {
    /// Makes a history's namespaces.
    ///
    /// # Errors
    ///
    /// When the server refuses.
    pub fn begin(&mut self, history: &str) -> Result<(), Failure> {
        for place in [Place::One, Place::Two] {
            let name = place.namespace(history);
            let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            self.api.create(&kinds::namespace().path("", ""), &namespace)?;
        }
        self.histories.insert(history.into(), Known::default());
        Ok(())
    }

    /// Removes what is left of a history, and its namespaces as far as a server without their controller can.
    ///
    /// # Errors
    ///
    /// When the server does not answer.
    pub fn end(&mut self, history: &str, left: &Snapshot) -> Result<(), Failure> {
        for object in left.values() {
            let path = object.identity.path(history);
            // Either may find that the collector was faster.
            let nothing = json!({ "metadata": { "finalizers": null, "ownerReferences": null } });
            self.api.merge_patch(&path, &nothing).ok();
            self.api.delete(&path, Policy::Background).ok();
        }
        self.histories.remove(history);
        for place in [Place::One, Place::Two] {
            self.api.delete(&kinds::namespace().path("", &place.namespace(history)), Policy::Background)?;
        }
        Ok(())
    }

    /// All objects of all histories under way.
    ///
    /// # Errors
    ///
    /// When the server does not answer, or has an object that no history made.
    pub fn snapshots(&self) -> Result<BTreeMap<String, Snapshot>, Failure> {
        let mut all: BTreeMap<String, Snapshot> =
            self.histories.keys().map(|history| (history.clone(), Snapshot::new())).collect();
        for kind in Kind::ALL {
            let list = self.api.get(&kind.resource().path("", ""))?.unwrap_or_default();
            for item in list["items"].as_array().into_iter().flatten() {
                let Some(history) = history_of(kind, item) else { continue };
                let Some((known, snapshot)) = self.histories.get(&history).zip(all.get_mut(&history)) else {
                    continue;
                };
                let (number, object) = known.object(&history, item)?;
                snapshot.insert(number, object);
            }
        }
        Ok(all)
    }

    /// Does one step. Objects that are gone, or going, are left alone.
    ///
    /// # Errors
    ///
    /// When the server refuses what it should not.
    pub fn execute(&mut self, history: &str, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Create { number, identity, owners, finalizers } => {
                self.create(history, *number, identity, owners, finalizers)
            }
            Step::Delete { number, policy } => {
                let Some((path, uid)) = self.find(history, *number) else { return Ok(()) };
                let mut options = json!({
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "preconditions": { "uid": uid },
                });
                if let Some(policy) = policy {
                    options["propagationPolicy"] = json!(format!("{policy:?}"));
                }
                unless_conflict(self.api.delete_with(&path, &options).map(|_| ()))
            }
            Step::Own { number, owners } => {
                let owners = self.owners(history, owners)?;
                self.patch(history, *number, json!({ "ownerReferences": owners }))
            }
            Step::Touch { number } => self.patch(history, *number, json!({ "labels": { "touched": "yes" } })),
            Step::Hold { number, finalizer } => self.change_finalizers(history, *number, |names| {
                names.push(finalizer.clone());
            }),
            Step::Release { number, finalizer } => self.change_finalizers(history, *number, |names| {
                names.retain(|name| name != finalizer);
            }),
        }
    }

    fn create(
        &mut self,
        history: &str,
        number: u32,
        identity: &Identity,
        owners: &[Reference],
        finalizers: &[String],
    ) -> Result<(), Failure> {
        let resource = identity.kind.resource();
        let object = json!({
            "apiVersion": resource.api_version(),
            "kind": resource.kind,
            "metadata": {
                "name": full_name(resource.namespaced, history, &identity.name),
                "ownerReferences": self.owners(history, owners)?,
                "finalizers": finalizers,
            },
        });
        let path = resource.path(&identity.place.namespace(history), "");
        let created = self.api.create(&path, &object)?;
        let uid = created["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let known = self.known(history)?;
        known.uids.insert(number, uid.clone());
        known.numbers.insert(uid, number);
        known.identities.insert(number, identity.clone());
        Ok(())
    }

    fn known(&mut self, history: &str) -> Result<&mut Known, Failure> {
        let unknown = || Failure::new(format!("no history {history} is under way"));
        self.histories.get_mut(history).ok_or_else(unknown)
    }

    fn find(&self, history: &str, number: u32) -> Option<(String, String)> {
        let known = self.histories.get(history)?;
        Some((known.identities.get(&number)?.path(history), known.uids.get(&number)?.clone()))
    }

    fn owners(&mut self, history: &str, owners: &[Reference]) -> Result<Vec<Value>, Failure> {
        let known = self.known(history)?;
        let to_json = |reference: &Reference| {
            let uid = match reference.uid {
                Uid::Object(number) => known.uids.get(&number).cloned().unwrap_or_default(),
                Uid::Nobody(number) => Uid::of_nobody(number),
            };
            reference.to_json(history, &uid)
        };
        Ok(owners.iter().map(to_json).collect())
    }

    fn patch(&self, history: &str, number: u32, mut metadata: Value) -> Result<(), Failure> {
        let Some((path, uid)) = self.find(history, number) else { return Ok(()) };
        // With another object under that name the server answers 409.
        metadata["uid"] = json!(uid);
        unless_conflict(self.api.merge_patch(&path, &json!({ "metadata": metadata })).map(|_| ()))
    }

    fn change_finalizers(
        &self,
        history: &str,
        number: u32,
        change: impl Fn(&mut Vec<String>),
    ) -> Result<(), Failure> {
        let Some((path, uid)) = self.find(history, number) else { return Ok(()) };
        for _ in 0..CONFLICTS_MAX {
            let object = self.api.get(&path)?.unwrap_or_default();
            let metadata = &object["metadata"];
            if metadata["uid"] != json!(uid) {
                return Ok(());
            }
            let mut names = texts(&metadata["finalizers"]);
            change(&mut names);
            let patch = json!({ "resourceVersion": metadata["resourceVersion"], "finalizers": names });
            match self.api.merge_patch(&path, &json!({ "metadata": patch })) {
                Err(failure) if is_conflict(&failure) => {}
                other => return other.map(|_| ()),
            }
        }
        Err(Failure::new(format!("{path} changed {CONFLICTS_MAX} times in a row")))
    }
}

impl Known {
    fn object(&self, history: &str, item: &Value) -> Result<(u32, Object), Failure> {
        let metadata = &item["metadata"];
        let uid = metadata["uid"].as_str().unwrap_or_default();
        let unknown = || Failure::new(format!("an object that no history made: {item}"));
        let number = *self.numbers.get(uid).ok_or_else(unknown)?;
        let reference = |value: &Value| {
            Reference::from_json(history, value, self.uid(value["uid"].as_str().unwrap_or_default()))
        };
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten().map(reference).collect();
        let object = Object {
            identity: self.identities.get(&number).cloned().ok_or_else(unknown)?,
            owners,
            finalizers: texts(&metadata["finalizers"]),
            deleting: metadata["deletionTimestamp"].is_string(),
        };
        Ok((number, object))
    }

    fn uid(&self, uid: &str) -> Uid {
        match self.numbers.get(uid) {
            Some(number) => Uid::Object(*number),
            None => Uid::Nobody(uid.rsplit('-').next().and_then(|n| n.parse().ok()).unwrap_or_default()),
        }
    }
}

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// The history that an object belongs to: its namespace's name, or its own, says so.
fn history_of(kind: Kind, item: &Value) -> Option<String> {
    let field = if kind.is_namespaced() { "namespace" } else { "name" };
    let (history, _) = item["metadata"][field].as_str()?.rsplit_once('-')?;
    Some(history.to_owned())
}

fn is_conflict(failure: &Failure) -> bool {
    failure.to_string().contains(": 409: ")
}

/// The object under that name is another one by now.
fn unless_conflict(result: Result<(), Failure>) -> Result<(), Failure> {
    match result {
        Err(failure) if is_conflict(&failure) => Ok(()),
        other => other,
    }
}

fn define(api: &Api, resource: &ApiResource, definition: &Value) -> Result<(), Failure> {
    api.create(&kinds::custom_resource_definition().path("", ""), definition)?;
    let path = resource.path("", "");
    eventually(&format!("{path} is served"), SERVED_DEADLINE, || {
        Ok(match api.get(&path) {
            Ok(Some(_)) => Look::Done(()),
            Ok(None) => Look::NotYet("not found".into()),
            Err(failure) => Look::NotYet(failure.to_string()),
        })
    })
}
