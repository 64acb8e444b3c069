//! Owners, their dependents, and theirs.

use serde_json::{Value, json};

use crate::api::Policy;
use crate::e2e::object::Object;
use crate::e2e::world::{DEADLINE, HOLD, World};
use crate::failure::{Doing, Failure};
use crate::kinds;

/// The experiment that the demo runs too; it prints its six lines.
pub fn experiment(world: &mut World<'_>) -> Result<(), Failure> {
    let (client, namespace) = (world.api().client(), world.namespace());
    gc_tests::experiment::run(client, namespace, DEADLINE, &mut std::io::stdout())
        .doing(|| "the experiment".into())
}

/// From the top: the Deployment at once, then the ReplicaSet, then the Pod.
pub fn background(world: &mut World<'_>) -> Result<(), Failure> {
    let bystander = Chain::create(world, "bystander")?;
    let chain = Chain::create(world, "chain")?;
    world.delete(&chain.deployment, Policy::Background)?;
    world.all_gone(&[&chain.deployment, &chain.replica_set, &chain.pod])?;
    world.all_stay(&[&bystander.deployment, &bystander.replica_set, &bystander.pod])
}

/// From the bottom: while the Pod is held, the two above it stay, in foreground deletion themselves.
pub fn foreground(world: &mut World<'_>) -> Result<(), Failure> {
    let chain = Chain::create_held(world, "chain")?;
    world.delete(&chain.deployment, Policy::Foreground)?;
    world.becomes(&chain.pod, "is being deleted", |state| state.being_deleted && state.has(HOLD))?;
    world.settle()?;
    for above in [&chain.deployment, &chain.replica_set] {
        world.becomes(above, "waits for its dependents", |state| {
            state.being_deleted && state.has("foregroundDeletion")
        })?;
    }
    world.release(&chain.pod)?;
    world.all_gone(&[&chain.pod, &chain.replica_set, &chain.deployment])
}

/// The Deployment goes, the ReplicaSet loses its owner, and the Pod notices nothing.
pub fn orphan(world: &mut World<'_>) -> Result<(), Failure> {
    let chain = Chain::create(world, "chain")?;
    world.delete(&chain.deployment, Policy::Orphan)?;
    world.all_gone(&[&chain.deployment])?;
    world.becomes(&chain.replica_set, "has no owner", |state| state.owners.is_empty())?;
    world.all_stay(&[&chain.replica_set, &chain.pod])?;
    world.becomes(&chain.pod, "keeps its owner", |state| state.is_owned_by(&[&chain.replica_set]))
}

/// Three objects, each the owner of the next, in the shape that a Deployment's controllers would give them.
pub struct Chain {
    /// The top.
    pub deployment: Object,
    /// The middle.
    pub replica_set: Object,
    /// The bottom.
    pub pod: Object,
}

impl Chain {
    /// A chain whose Pod goes as soon as it is deleted.
    pub fn create(world: &mut World<'_>, name: &str) -> Result<Chain, Failure> {
        Chain::create_with(world, name, false)
    }

    fn create_held(world: &mut World<'_>, name: &str) -> Result<Chain, Failure> {
        Chain::create_with(world, name, true)
    }

    /// Where the controllers of Deployments and ReplicaSets run, they find nothing to do: the Deployment is paused, and
    /// the Pod that the ReplicaSet wants is there before it, to be adopted if need be. Where a scheduler runs, it finds
    /// no node, so that the Pod is deleted without a kubelet's help.
    fn create_with(world: &mut World<'_>, name: &str, held: bool) -> Result<Chain, Failure> {
        let labels = json!({ "app": name });
        let pod_spec = json!({
            "nodeSelector": { "article.example/no-such-node": "x" },
            "containers": [{ "name": "c", "image": "example.invalid/none" }],
        });
        let template = json!({ "metadata": { "labels": labels }, "spec": pod_spec });
        let spec = |extra: Value| {
            let mut spec =
                json!({ "replicas": 1, "selector": { "matchLabels": labels }, "template": template });
            if let (Some(spec), Some(extra)) = (spec.as_object_mut(), extra.as_object()) {
                spec.extend(extra.clone());
            }
            json!({ "spec": spec })
        };
        let paused = spec(json!({ "paused": true }));
        let deployment = world.object(&kinds::deployment(), name).body(paused).create()?;
        let pod = world.object(&kinds::pod(), name).body(json!({ "spec": pod_spec })).labels(labels.clone());
        let pod = if held { pod.held() } else { pod }.create()?;
        let replica_set = world
            .object(&kinds::replica_set(), name)
            .body(spec(json!({})))
            .labels(labels)
            .controller(&deployment)
            .create()?;
        world.set_owners(&pod, &[replica_set.controller_reference()])?;
        is_seen(world, name, &pod_spec)?;
        Ok(Chain { deployment, replica_set, pod })
    }
}

/// Each kind has a watch of its own, and what a collector knows of a chain when its top is deleted depends on each of
/// them: it has seen the chain once it has collected what was made after it.
fn is_seen(world: &mut World<'_>, name: &str, pod_spec: &Value) -> Result<(), Failure> {
    let nobody = Object::that_never_was(&kinds::config_map(), world.namespace());
    let name = format!("{name}-later");
    let labels = json!({ "app": name });
    let of_set = json!({ "spec": {
        "replicas": 0,
        "selector": { "matchLabels": labels },
        "template": { "metadata": { "labels": labels }, "spec": pod_spec },
    } });
    let set = world.object(&kinds::replica_set(), &name).body(of_set).owner(&nobody).create()?;
    let pod = world.object(&kinds::pod(), &name).body(json!({ "spec": pod_spec })).owner(&nobody).create()?;
    world.all_gone(&[&set, &pod])
}
