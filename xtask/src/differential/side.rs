//! One of the two servers, with its collector.

use std::collections::BTreeMap;
use std::time::Duration;

use gc_client::{ApiResource, Config};
use serde_json::{Value, json};

use crate::api::{Api, Policy};
use crate::collector::{Collector, Launcher, Program};
use crate::differential::evidence;
use crate::differential::model::{
    Identity, Kind, OTHER_VERSION, Object, Place, Reference, Snapshot, Step, Uid, full_name,
};
use crate::failure::Failure;
use crate::kinds;
use crate::poll::{Look, eventually};
use crate::rig::Rig;

const RBAC: &str = include_str!("../../../deploy/rbac.yaml");

/// As the reference.
const CONCURRENT_GC_SYNCS: u32 = 20;
/// A definition is served within a second.
const SERVED_DEADLINE: Duration = Duration::from_secs(30);
/// The reference looks every 30 s, and then has to list.
const DISCOVERED_DEADLINE: Duration = Duration::from_secs(75);
/// A patch that meets the collector's own is made again; that many times in a row is a bug.
const CONFLICTS_MAX: u32 = 50;

/// A server and its collector. The order of the fields is the order in which they are dropped.
pub struct Side {
    /// What messages call it.
    pub name: &'static str,
    /// None after [`Step::Kill`].
    collector: Option<Collector>,
    launcher: Launcher,
    api: Api,
    histories: BTreeMap<String, Known>,
    /// Whether there are widgets, see [`Step::Undefine`].
    is_defined: bool,
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
        for kind in [Kind::Widget, Kind::Gadget] {
            define_kind(&api, kind)?;
        }
        for (resource, definition) in evidence::definitions() {
            define(&api, &resource, &definition)?;
        }
        // The reference would be slowed down by its own limit; what it does is compared, not how fast.
        let flags = ["--kube-api-qps=10000", "--kube-api-burst=10000"];
        let mut launcher = Launcher::new(program, rig.daemon_kubeconfig(), logs).with_flags(&flags);
        let collector = Some(launcher.start(CONCURRENT_GC_SYNCS)?);
        Ok(Side { name, collector, launcher, api, histories: BTreeMap::new(), is_defined: true, rig })
    }

    /// SIGKILL for the collector.
    pub fn kill_collector(&mut self) {
        if let Some(collector) = self.collector.take() {
            collector.kill();
        }
    }

    /// Another collector, which has to find out for itself how things stand.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn start_collector(&mut self) -> Result<(), Failure> {
        self.collector = Some(self.launcher.start(CONCURRENT_GC_SYNCS)?);
        Ok(())
    }

    fn collector(&mut self) -> Result<&mut Collector, Failure> {
        let name = self.name;
        self.collector.as_mut().ok_or_else(|| Failure::new(format!("{name}: no collector runs")))
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
        let log = self.collector.as_ref().map(Collector::log_tail).unwrap_or_default();
        format!("{}: server's logs in {}\n{log}", self.name, self.rig.dir().display())
    }

    /// Fails when the server or the collector has ended.
    ///
    /// # Errors
    ///
    /// With the end of its log.
    pub fn check_alive(&mut self) -> Result<(), Failure> {
        self.rig.check_alive()?;
        self.collector()?.check_alive()
    }

    /// Whether the collector's queues are empty.
    ///
    /// # Errors
    ///
    /// When its metrics do not answer.
    pub fn is_idle(&mut self) -> Result<bool, Failure> {
        Ok(self.collector()?.metric("workqueue_depth", "name=\"garbage_collector")? == 0.0)
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
        [Place::One, Place::Two].into_iter().try_for_each(|place| self.end_namespace(history, place))
    }

    /// A namespace that is going already answers 409.
    fn end_namespace(&self, history: &str, place: Place) -> Result<(), Failure> {
        let path = kinds::namespace().path("", &place.namespace(history));
        unless_conflict(self.api.delete(&path, Policy::Background).map(|_| ()))
    }

    /// All objects of all histories under way.
    ///
    /// # Errors
    ///
    /// When the server does not answer, or has an object that no history made.
    pub fn snapshots(&self) -> Result<BTreeMap<String, Snapshot>, Failure> {
        let mut all: BTreeMap<String, Snapshot> =
            self.histories.keys().map(|history| (history.clone(), Snapshot::new())).collect();
        for kind in Kind::ALL.into_iter().filter(|kind| self.is_defined || *kind != Kind::Widget) {
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
            Step::EndNamespace { place } => {
                self.end_namespace(history, *place)?;
                for kind in Kind::ALL.into_iter().filter(|kind| kind.is_namespaced()) {
                    // The collection's path.
                    self.api
                        .delete(&kind.resource().path(&place.namespace(history), ""), Policy::Background)?;
                }
                Ok(())
            }
            Step::Kill => {
                self.kill_collector();
                Ok(())
            }
            Step::Undefine => self.redefine(false),
            Step::Define => self.redefine(true),
        }
    }

    /// All histories share the definition: the first one that asks has it changed.
    fn redefine(&mut self, is_defined: bool) -> Result<(), Failure> {
        if std::mem::replace(&mut self.is_defined, is_defined) == is_defined {
            return Ok(());
        }
        let resource = Kind::Widget.resource();
        let before = self.collector()?.watched()?;
        if is_defined {
            define_kind(&self.api, Kind::Widget)?;
        } else {
            undefine(&self.api, &resource)?;
        }
        let collector = self.collector()?;
        eventually("the collector sees that resources have changed", DISCOVERED_DEADLINE, || {
            collector.check_alive()?;
            let has_changed = collector.watched()? != before;
            Ok(if has_changed { Look::Done(()) } else { Look::NotYet("not yet".into()) })
        })
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

/// In two versions, of which collectors watch the first one.
fn define_kind(api: &Api, kind: Kind) -> Result<(), Failure> {
    let versions = [kinds::version("v1", true), kinds::version(OTHER_VERSION, false)];
    let resource = kind.resource();
    define(api, &resource, &kinds::definition(&resource, &versions))
}

/// Removes a definition, and waits until nothing of it is left.
fn undefine(api: &Api, resource: &ApiResource) -> Result<(), Failure> {
    let name = format!("{}.{}", resource.resource, resource.group);
    let path = kinds::custom_resource_definition().path("", &name);
    api.delete(&path, Policy::Background)?;
    let served = resource.path("", "");
    eventually(&format!("{path} is gone"), SERVED_DEADLINE, || {
        let is_defined = api.get(&path)?.is_some();
        let is_served = api.get(&served).is_ok_and(|list| list.is_some());
        let state = format!("defined: {is_defined}, served: {is_served}");
        Ok(if is_defined || is_served { Look::NotYet(state) } else { Look::Done(()) })
    })
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
