//! The loader: makes and deletes thousands of objects a second.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gc_client::{
    ApiResource, Client, Config, DeleteOptions, Method, Options, Propagation, Reflector, ReflectorOptions,
    Request, Response, WatchEvent,
};
use serde_json::{Value, json};

use crate::api::{Api, Policy};
use crate::failure::{Doing, Failure};
use crate::interrupt;
use crate::kinds;

/// As many connections as a loader has. More make the server no faster on the machines that this runs on.
pub const CONNECTIONS: usize = 32;
/// Objects in a page of a list, so that a page stays below what the client takes.
const PAGE: usize = 1_000;

const JSON: &str = "application/json";
/// The answer to a creation is read for UID and version only.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Connections of one user.
pub struct Loader {
    client: Client,
}

/// An object that was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// Its name.
    pub name: String,
    uid: String,
    resource_version: String,
}

/// Owners with their dependents.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How many owners.
    pub owners: usize,
    /// How many dependents each of them has.
    pub each: usize,
    /// Whether dependents block a deletion in the foreground.
    pub blocking: bool,
}

impl Shape {
    /// All of them but the owners.
    pub fn dependents(self) -> usize {
        self.owners * self.each
    }
}

impl Loader {
    /// Connects.
    ///
    /// # Errors
    ///
    /// When the configuration is unusable.
    pub fn new(config: &Config) -> Result<Loader, Failure> {
        let options = Options { max_in_flight: CONNECTIONS, ..Options::default() };
        Ok(Loader { client: Client::new(config, &options)? })
    }

    /// Makes a namespace and fills it; gives the owners.
    ///
    /// # Errors
    ///
    /// When the server refuses.
    pub fn fill(&self, namespace: &str, shape: Shape) -> Result<Vec<Made>, Failure> {
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        self.create(&kinds::namespace().path("", ""), &body.to_string())?;
        let collection = kinds::config_map().path(namespace, "");
        let owners = in_parallel(CONNECTIONS, shape.owners, |n| {
            self.create(&collection, &object(&format!("owner-{n}"), None, shape.blocking))
        })?;
        in_parallel(CONNECTIONS, shape.dependents(), |n| {
            let (owner, name) = (&owners[n / shape.each], format!("dependent-{n}"));
            self.create(&collection, &object(&name, Some(owner), shape.blocking)).map(drop)
        })?;
        Ok(owners)
    }

    /// Installs so many custom resource definitions.
    ///
    /// # Errors
    ///
    /// When the server refuses.
    pub fn define(&self, count: usize, definition: impl Fn(usize) -> String + Sync) -> Result<(), Failure> {
        let collection = kinds::custom_resource_definition().path("", "");
        in_parallel(CONNECTIONS, count, |n| self.create(&collection, &definition(n)).map(drop)).map(drop)
    }

    /// Creates one object.
    ///
    /// # Errors
    ///
    /// When the server refuses.
    pub fn create(&self, collection: &str, body: &str) -> Result<Made, Failure> {
        let response = self.send(Method::Post, collection, METADATA, body)?;
        let created: Value = serde_json::from_slice(&response.body).doing(|| format!("POST {collection}"))?;
        let text = |field: &str| created["metadata"][field].as_str().unwrap_or_default().to_owned();
        Ok(Made { name: text("name"), uid: text("uid"), resource_version: text("resourceVersion") })
    }

    /// Deletes objects as a user does.
    ///
    /// # Errors
    ///
    /// When the server refuses.
    pub fn delete(&self, namespace: &str, objects: &[Made], policy: Policy) -> Result<(), Failure> {
        self.delete_at(objects.len(), policy, |n| kinds::config_map().path(namespace, &objects[n].name))
    }

    /// Deletes so many objects as a user does.
    ///
    /// # Errors
    ///
    /// When the server refuses.
    pub fn delete_at(
        &self,
        count: usize,
        policy: Policy,
        path: impl Fn(usize) -> String + Sync,
    ) -> Result<(), Failure> {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": format!("{policy:?}"),
        });
        let options = options.to_string();
        in_parallel(CONNECTIONS, count, |n| self.send(Method::Delete, &path(n), METADATA, &options).map(drop))
            .map(drop)
    }

    /// Changes one object by a JSON merge patch.
    ///
    /// # Errors
    ///
    /// When the server refuses.
    pub fn patch(&self, path: &str, patch: &str) -> Result<(), Failure> {
        let content_type = "application/merge-patch+json";
        let request =
            Request { method: Method::Patch, path, accept: METADATA, content_type, body: patch.as_bytes() };
        self.client.send_ok(&request)?;
        Ok(())
    }

    /// Reads the list of a resource as a collector does, keeps nothing of it, and says how long that took.
    ///
    /// # Errors
    ///
    /// When the list fails.
    pub fn list(&self, resource: ApiResource) -> Result<Duration, Failure> {
        let (_go_on, stop) = crossbeam_channel::bounded(0);
        let reflector = Reflector::new(self.client.clone(), resource, ReflectorOptions::default());
        let mut outcome = Ok(());
        let began = Instant::now();
        reflector.run(&stop, &mut |event| match event {
            WatchEvent::ListDone { .. } => ControlFlow::Break(()),
            WatchEvent::Failed(error) => {
                outcome = Err(Failure::new(error.to_string()));
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        });
        outcome.map(|()| began.elapsed())
    }

    /// Deletes objects as the daemon does, over so many connections.
    ///
    /// # Errors
    ///
    /// When the server refuses.
    pub fn delete_plainly(
        &self,
        namespace: &str,
        objects: &[Made],
        connections: usize,
    ) -> Result<(), Failure> {
        let resource = kinds::config_map();
        in_parallel(connections, objects.len(), |n| {
            let Made { name, uid, resource_version } = &objects[n];
            let options =
                DeleteOptions { uid, resource_version, propagation_policy: Propagation::Background };
            self.client.delete(&resource, namespace, name, &options).map_err(Failure::from)
        })
        .map(drop)
    }

    /// Deletes what is left in a namespace.
    ///
    /// # Errors
    ///
    /// When the server refuses.
    pub fn sweep(&self, api: &Api, namespace: &str) -> Result<(), Failure> {
        let mut left = Vec::new();
        each_page(api, &kinds::config_map(), namespace, |item| {
            let name = item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            left.push(Made { name, uid: String::new(), resource_version: String::new() });
        })?;
        self.delete(namespace, &left, Policy::Background)
    }

    fn send(&self, method: Method, path: &str, accept: &str, body: &str) -> Result<Response, Failure> {
        let request = Request { method, path, accept, content_type: JSON, body: body.as_bytes() };
        Ok(self.client.send_ok(&request)?)
    }
}

/// How many objects of a namespace the API server still has, from the head of a list.
///
/// # Errors
///
/// When it does not answer.
pub fn remaining(api: &Api, namespace: &str) -> Result<usize, Failure> {
    let path = format!("{}?limit=1", kinds::config_map().path(namespace, ""));
    let list = api.get(&path)?.unwrap_or_default();
    let head = list["items"].as_array().map_or(0, Vec::len);
    let more = list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
    Ok(head + usize::try_from(more).unwrap_or(usize::MAX))
}

/// Goes through all objects of a namespace.
///
/// # Errors
///
/// When the server does not answer.
pub fn each_page(
    api: &Api,
    resource: &ApiResource,
    namespace: &str,
    mut each: impl FnMut(&Value),
) -> Result<(), Failure> {
    let mut next = String::new();
    loop {
        let path = format!("{}?limit={PAGE}&continue={next}", resource.path(namespace, ""));
        let page = api.get(&path)?.unwrap_or_default();
        page["items"].as_array().into_iter().flatten().for_each(&mut each);
        match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => token.clone_into(&mut next),
            _ => return Ok(()),
        }
    }
}

/// Runs `work` for 0 to `count` on so many threads, and gives what came of each, in order.
///
/// # Errors
///
/// The first failure of the work.
pub fn in_parallel<T: Send>(
    threads: usize,
    count: usize,
    work: impl Fn(usize) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let run = || -> Result<Vec<(usize, T)>, Failure> {
        let mut done = Vec::new();
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= count || failed.load(Ordering::Relaxed) {
                return Ok(done);
            }
            interrupt::check()?;
            match work(n) {
                Ok(outcome) => done.push((n, outcome)),
                Err(failure) => {
                    failed.store(true, Ordering::Relaxed);
                    return Err(failure);
                }
            }
        }
    };
    let outcomes = thread::scope(|scope| -> Result<Vec<(usize, T)>, Failure> {
        let mut handles = Vec::new();
        for number in 0..threads.min(count) {
            let builder = thread::Builder::new().name(format!("loader-{number}"));
            handles.push(builder.spawn_scoped(scope, run).doing(|| "cannot start a thread".into())?);
        }
        let mut all = Vec::with_capacity(count);
        for handle in handles {
            all.extend(handle.join().unwrap_or_else(|_| Err(Failure::new("a loader has panicked")))?);
        }
        Ok(all)
    });
    let mut outcomes = outcomes?;
    outcomes.sort_unstable_by_key(|(n, _)| *n);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

const LABELS: [(&str, &str); 6] = [
    ("app.kubernetes.io/name", "checkout"),
    ("app.kubernetes.io/instance", "checkout-production"),
    ("app.kubernetes.io/version", "2.14.3"),
    ("app.kubernetes.io/component", "frontend"),
    ("app.kubernetes.io/part-of", "shop"),
    ("app.kubernetes.io/managed-by", "helm"),
];
const ANNOTATIONS: [(&str, &str); 6] = [
    ("meta.helm.sh/release-name", "checkout"),
    ("meta.helm.sh/release-namespace", "production"),
    ("checksum/config", "4f8a1cfa5ad2a6e2b7a4d0f8d2c11d3f6a0b9b7a2c6fbb1c"),
    ("example.com/owner", "team-checkout@example.com"),
    ("example.com/runbook", "https://runbooks.example.com/checkout/frontend"),
    ("example.com/last-change", "2026-01-01T00:00:00Z by the pipeline"),
];
/// What the server notes of such an object: who manages which field.
pub const MANAGED_FIELDS: &str = r#"{"f:data":{".":{},"f:key":{}},"f:metadata":{"f:annotations":{".":{},"f:checksum/config":{},"f:example.com/last-change":{},"f:example.com/owner":{},"f:example.com/runbook":{},"f:meta.helm.sh/release-name":{},"f:meta.helm.sh/release-namespace":{}},"f:labels":{".":{},"f:app.kubernetes.io/component":{},"f:app.kubernetes.io/instance":{},"f:app.kubernetes.io/managed-by":{},"f:app.kubernetes.io/name":{},"f:app.kubernetes.io/part-of":{},"f:app.kubernetes.io/version":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"00000000-0000-4000-8000-000000000000\"}":{}}}}"#;

/// What every object of the bench carries, sorted as a server sorts it.
pub fn labels() -> Vec<(String, String)> {
    sorted(&LABELS)
}

/// What every object of the bench carries, sorted as a server sorts it.
pub fn annotations() -> Vec<(String, String)> {
    sorted(&ANNOTATIONS)
}

fn sorted(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut pairs: Vec<_> = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    pairs.sort();
    pairs
}

fn object_of(pairs: &[(&str, &str)]) -> Value {
    Value::Object(pairs.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect())
}

/// A ConfigMap with 1.6 KB of metadata in JSON as the server stores it, the record of managed fields included, and next
/// to no data.
fn object(name: &str, owner: Option<&Made>, blocking: bool) -> String {
    let owners: Vec<Value> = owner
        .iter()
        .map(|owner| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "name": owner.name, "uid": owner.uid,
                "controller": true, "blockOwnerDeletion": blocking,
            })
        })
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "labels": object_of(&LABELS),
            "annotations": object_of(&ANNOTATIONS),
            "ownerReferences": owners,
        },
        "data": { "key": "value" },
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_once_and_in_order() {
        let squares = in_parallel(8, 100, |n| Ok(n * n)).unwrap();
        assert_eq!(squares, (0..100).map(|n| n * n).collect::<Vec<_>>());
        let failed = in_parallel(8, 100, |n| if n == 50 { Err(Failure::new("no")) } else { Ok(n) });
        assert_eq!(failed.unwrap_err().to_string(), "no");
    }
}
