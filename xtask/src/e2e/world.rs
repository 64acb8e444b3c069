//! What a scenario sees: a namespace of its own, objects in it, and the collector.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use gc_client::ApiResource;
use serde_json::{Value, json};

use crate::api::{Api, Policy};
use crate::collector::{Collector, Launcher};
use crate::e2e::object::{Draft, Object, State};
use crate::failure::Failure;
use crate::kinds;
use crate::poll::{self, Look};
use crate::random::Random;

/// A finalizer that nobody but the suite removes.
pub const HOLD: &str = "article.example/hold";

/// Collection of a handful of objects takes milliseconds; a minute is for slow machines and back-off.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// As the reference.
pub const DEFAULT_CONCURRENT_GC_SYNCS: u32 = 20;

/// The world of one scenario.
pub struct World<'s> {
    api: &'s Api,
    launcher: &'s mut Launcher,
    collector: &'s mut Option<Collector>,
    random: &'s mut Random,
    namespace: String,
    /// Cluster-scoped objects and objects with finalizers, which would outlive the namespace or hold it.
    leftovers: Vec<String>,
    other_namespaces: Vec<String>,
    audit_log: Option<PathBuf>,
    volcano_definition: Option<&'s Value>,
}

impl<'s> World<'s> {
    /// Creates the scenario's namespace.
    ///
    /// # Errors
    ///
    /// When the server does not allow it.
    pub fn new(
        api: &'s Api,
        launcher: &'s mut Launcher,
        collector: &'s mut Option<Collector>,
        random: &'s mut Random,
        namespace: &str,
        audit_log: Option<PathBuf>,
        volcano_definition: Option<&'s Value>,
    ) -> Result<World<'s>, Failure> {
        let world = World {
            api,
            launcher,
            collector,
            random,
            namespace: namespace.into(),
            leftovers: Vec::new(),
            other_namespaces: Vec::new(),
            audit_log,
            volcano_definition,
        };
        world.create_namespace(namespace)?;
        Ok(world)
    }

    fn create_namespace(&self, name: &str) -> Result<(), Failure> {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        self.api.create(&kinds::namespace().path("", ""), &namespace)?;
        Ok(())
    }

    /// Where the API server admits no Pod without one, a controller makes it soon after the namespace.
    ///
    /// # Errors
    ///
    /// When it is not made in time.
    pub fn wait_for_service_account(&mut self) -> Result<(), Failure> {
        let path = kinds::service_account().path(&self.namespace, "default");
        self.eventually("the default service account is made", |api| {
            Ok(api.get(&path)?.map_or_else(|| Look::NotYet("not there".into()), |_| Look::Done(())))
        })
    }

    /// A second namespace, for references that cross the border.
    ///
    /// # Errors
    ///
    /// When the server does not allow it.
    pub fn second_namespace(&mut self) -> Result<String, Failure> {
        let name = format!("{}-second", self.namespace);
        self.create_namespace(&name)?;
        self.other_namespaces.push(name.clone());
        Ok(name)
    }

    /// The administrator's connection.
    pub fn api(&self) -> &'s Api {
        self.api
    }

    /// The API server's audit log, on the rig.
    pub fn audit_log(&self) -> Option<PathBuf> {
        self.audit_log.clone()
    }

    /// Volcano's own definition of its Job, where one was given.
    pub fn volcano_definition(&self) -> Option<&'s Value> {
        self.volcano_definition
    }

    /// The scenario's namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A random number below a limit; the same for the same `--seed`.
    pub fn random_below(&mut self, limit: u64) -> u64 {
        self.random.below(limit)
    }
}

/// Objects.
impl World<'_> {
    /// Begins a ConfigMap.
    pub fn config_map(&mut self, name: &str) -> Draft<'_> {
        self.object(&kinds::config_map(), name)
    }

    /// Begins any object. The names of cluster-scoped ones get the namespace in front, so that two scenarios never
    /// meet.
    pub fn object(&mut self, resource: &ApiResource, name: &str) -> Draft<'_> {
        let (namespace, name) = if resource.namespaced {
            (self.namespace.clone(), name.to_owned())
        } else {
            (String::new(), format!("{}-{name}", self.namespace))
        };
        Draft::new(self.api, &mut self.leftovers, resource, namespace, name)
    }

    /// Has a cluster-scoped object that was made without [`World::object`] removed at the end.
    pub fn remove_at_the_end(&mut self, path: String) {
        self.leftovers.push(path);
    }

    /// How the object stands; nothing when it is gone, or another one has its name.
    ///
    /// # Errors
    ///
    /// Any answer but success and `NotFound`.
    pub fn state(&self, object: &Object) -> Result<Option<State>, Failure> {
        let found = self.api.get(&object.path)?.map(|value| State::of(&value));
        Ok(found.filter(|state| state.uid == object.uid))
    }

    /// Asks for an object's deletion.
    ///
    /// # Errors
    ///
    /// When the server refuses, or the object does not exist.
    pub fn delete(&self, object: &Object, policy: Policy) -> Result<(), Failure> {
        if self.api.delete(&object.path, policy)? {
            return Ok(());
        }
        Err(Failure::new(format!("{object} was gone before it was deleted")))
    }

    /// Takes [`HOLD`] off an object, whatever else it carries.
    ///
    /// # Errors
    ///
    /// When the object is gone, or the server refuses.
    pub fn release(&self, object: &Object) -> Result<(), Failure> {
        // A collector may remove its own finalizer between the read and the write; then the server says 409.
        poll::eventually(&format!("{object} is released"), DEADLINE, || {
            let Some(state) = self.state(object)? else {
                return Err(Failure::new(format!("{object} was gone before its finalizer was removed")));
            };
            let finalizers: Vec<&String> = state.finalizers.iter().filter(|name| *name != HOLD).collect();
            let metadata = json!({ "resourceVersion": state.resource_version, "finalizers": finalizers });
            Ok(match self.api.merge_patch(&object.path, &json!({ "metadata": metadata })) {
                Ok(_) => Look::Done(()),
                Err(failure) if failure.to_string().contains(": 409: ") => Look::NotYet(failure.to_string()),
                Err(failure) => return Err(failure),
            })
        })
    }

    /// Gives an existing object other owners.
    ///
    /// # Errors
    ///
    /// When the object is gone, or the server refuses.
    pub fn set_owners(&self, object: &Object, references: &[Value]) -> Result<(), Failure> {
        let patch = json!({ "metadata": { "uid": object.uid, "ownerReferences": references } });
        match self.api.merge_patch(&object.path, &patch)? {
            Some(_) => Ok(()),
            None => Err(Failure::new(format!("{object} was gone before it got its owners"))),
        }
    }
}

/// Expectations.
impl World<'_> {
    /// Looks until it is true, at most [`DEADLINE`], and as long as the collector lives.
    ///
    /// # Errors
    ///
    /// See [`poll::eventually`]; the collector's end.
    pub fn eventually<T>(
        &mut self,
        what: &str,
        mut look: impl FnMut(&Api) -> Result<Look<T>, Failure>,
    ) -> Result<T, Failure> {
        let (api, collector) = (self.api, &mut *self.collector);
        poll::eventually(what, DEADLINE, || {
            if let Some(collector) = collector {
                collector.check_alive()?;
            }
            look(api)
        })
    }

    /// Waits until the object is there and stands as `is` says.
    ///
    /// # Errors
    ///
    /// When it is gone, or does not come to stand so in time.
    pub fn becomes(
        &mut self,
        object: &Object,
        what: &str,
        is: impl Fn(&State) -> bool,
    ) -> Result<(), Failure> {
        self.eventually(&format!("{object} {what}"), |api| {
            let found = api.get(&object.path)?.map(|value| State::of(&value));
            match found.filter(|state| state.uid == object.uid) {
                None => Err(Failure::new(format!("{object} is gone; expected: {what}"))),
                Some(state) if is(&state) => Ok(Look::Done(())),
                Some(state) => Ok(Look::NotYet(state.to_string())),
            }
        })
    }

    /// Waits until all are gone.
    ///
    /// # Errors
    ///
    /// When one is still there at the deadline.
    pub fn all_gone(&mut self, objects: &[&Object]) -> Result<(), Failure> {
        for object in objects {
            self.eventually(&format!("{object} is gone"), |api| {
                let found = api.get(&object.path)?.map(|value| State::of(&value));
                let there = found.filter(|state| state.uid == object.uid);
                Ok(there.map_or(Look::Done(()), |state| Look::NotYet(state.to_string())))
            })?;
        }
        Ok(())
    }

    /// Checks that all are there and none is being deleted, once the collector has settled.
    ///
    /// # Errors
    ///
    /// When one is gone or going.
    pub fn all_stay(&mut self, objects: &[&Object]) -> Result<(), Failure> {
        self.settle()?;
        for object in objects {
            match self.state(object)? {
                None => return Err(Failure::new(format!("WRONG DELETE: {object} is gone"))),
                Some(state) if state.being_deleted => {
                    return Err(Failure::new(format!("WRONG DELETE: {object} is {state}")));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Waits until the collector has certainly seen what happened before: garbage that is made now, and is handled
    /// after it, has gone. Twice, so that whatever the first round found in the queues has been worked off; ConfigMaps
    /// and ClusterRoles, since each kind has its own watch.
    ///
    /// # Errors
    ///
    /// When the garbage stays.
    pub fn settle(&mut self) -> Result<(), Failure> {
        for round in 1..=2 {
            for resource in [kinds::config_map(), kinds::cluster_role()] {
                let nobody = Object::that_never_was(&resource, &self.namespace);
                let name = format!("canary-{round}-{}", self.random.below(u64::MAX));
                let canary = self.object(&resource, &name).owner(&nobody).create()?;
                self.all_gone(&[&canary])?;
            }
        }
        Ok(())
    }

    /// Waits for an event with this reason about the object, and gives its message.
    ///
    /// # Errors
    ///
    /// When there is none in time.
    pub fn event(&mut self, object: &Object, reason: &str) -> Result<String, Failure> {
        // Events about cluster-scoped objects live in the namespace "default".
        let namespace = if object.namespace.is_empty() { "default" } else { &object.namespace };
        let selector = format!("involvedObject.uid%3D{}%2Creason%3D{reason}", object.uid);
        let path = format!("{}?fieldSelector={selector}", kinds::event().path(namespace, ""));
        self.eventually(&format!("an event {reason} about {object}"), |api| {
            let events = api.get(&path)?.unwrap_or_default();
            let message = events["items"][0]["message"].as_str().map(str::to_owned);
            Ok(message.map_or_else(|| Look::NotYet("no such event".into()), Look::Done))
        })
    }
}

/// The collector.
impl World<'_> {
    /// Starts one with so many workers and waits until it collects; for scenarios that have it to themselves.
    ///
    /// # Errors
    ///
    /// When one runs already, or it does not become ready.
    pub fn start_collector(&mut self, concurrent_gc_syncs: u32) -> Result<(), Failure> {
        if self.collector.is_some() {
            return Err(Failure::new("a collector runs already"));
        }
        *self.collector = Some(self.launcher.start(concurrent_gc_syncs)?);
        Ok(())
    }

    /// SIGKILL.
    pub fn kill_collector(&mut self) {
        if let Some(collector) = self.collector.take() {
            collector.kill();
        }
    }

    /// SIGTERM; how it ended.
    ///
    /// # Errors
    ///
    /// When none runs, or it still runs at the deadline.
    pub fn terminate_collector(&mut self, deadline: Duration) -> Result<ExitStatus, Failure> {
        let collector = self.collector.take().ok_or_else(|| Failure::new("no collector runs"))?;
        collector.terminate(deadline)
    }

    /// Runs the daemon's program with these flags to its end; what it prints.
    ///
    /// # Errors
    ///
    /// When it does not succeed, or the collector is another program.
    pub fn ask_daemon(&self, flags: &[&str]) -> Result<String, Failure> {
        self.launcher.ask_daemon(flags)
    }

    /// The sum of the samples of a metric whose labels contain `label`.
    ///
    /// # Errors
    ///
    /// When no collector runs, or it does not answer.
    pub fn metric(&self, name: &str, label: &str) -> Result<f64, Failure> {
        let collector = self.collector.as_ref().ok_or_else(|| Failure::new("no collector runs"))?;
        collector.metric(name, label)
    }
}

impl Drop for World<'_> {
    /// Removes what the scenario left, as well as it can: on the rig nothing finishes the namespace's deletion, and a
    /// failed scenario may have left anything.
    fn drop(&mut self) {
        for path in &self.leftovers {
            self.api.merge_patch(path, &json!({ "metadata": { "finalizers": null } })).ok();
            self.api.delete(path, Policy::Background).ok();
        }
        for namespace in self.other_namespaces.iter().chain([&self.namespace]) {
            self.api.delete(&kinds::namespace().path("", namespace), Policy::Background).ok();
        }
    }
}
