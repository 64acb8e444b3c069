//! Parts of the API that are broken while the rest works.

use serde_json::json;

use crate::api::Policy;
use crate::e2e::object::Object;
use crate::e2e::scenarios::chains::Chain;
use crate::e2e::scenarios::custom::{create_definition, undefine};
use crate::e2e::world::{DEFAULT_CONCURRENT_GC_SYNCS, World};
use crate::failure::Failure;
use crate::kinds::{self, definition, version};
use crate::poll::Look;

/// A definition gets a second version, which the server prefers, and a webhook to convert to it that does not answer:
/// from then on its objects, stored in the first version, cannot be listed.
pub fn broken_conversion_webhook(world: &mut World<'_>) -> Result<(), Failure> {
    let gadgets = kinds::namespaced("gc-e2e-broken.example", "v1", "gadgets", "Gadget");
    world.start_collector(DEFAULT_CONCURRENT_GC_SYNCS)?;
    create_definition(world, &definition(&gadgets, &[version("v1", true)]), &gadgets)?;
    let gadget = world.object(&gadgets, "stored-in-v1").create()?;
    let child = world.config_map("child-of-gadget").owner(&gadget).create()?;
    world.all_stay(&[&child])?;

    let path = kinds::custom_resource_definition().path("", "gadgets.gc-e2e-broken.example");
    let client = json!({ "url": "https://127.0.0.1:1/convert" });
    let webhook = json!({ "clientConfig": client, "conversionReviewVersions": ["v1"] });
    let broken = json!({ "spec": {
        "versions": [version("v1", true), version("v2", false)],
        "conversion": { "strategy": "Webhook", "webhook": webhook },
    } });
    world.api().merge_patch(&path, &broken)?;
    let preferred = "/apis/gc-e2e-broken.example/v2/gadgets";
    world.eventually("lists of the preferred version fail", |api| {
        // At first it is a 404, then a 429 (the storage is initializing) or a 500, by the server's version.
        Ok(match api.get(preferred) {
            Err(failure) if failure.to_string().contains("conversion webhook") => Look::Done(()),
            other => Look::NotYet(format!("{other:?}")),
        })
    })?;

    collects(world, "while-broken")?;
    world.all_stay(&[&child])?;
    world.kill_collector();
    world.start_collector(DEFAULT_CONCURRENT_GC_SYNCS)?;
    collects(world, "started-while-broken")?;
    world.all_stay(&[&child])?;

    let mended = json!({ "spec": { "conversion": { "strategy": "None", "webhook": null } } });
    world.api().merge_patch(&path, &mended)?;
    undefine(world, &gadgets)
}

/// An APIService whose Service has no endpoints.
pub fn aggregated_api_down(world: &mut World<'_>) -> Result<(), Failure> {
    world.start_collector(DEFAULT_CONCURRENT_GC_SYNCS)?;
    let ports = json!({ "spec": { "ports": [{ "port": 443 }] } });
    let service = world.object(&kinds::service(), "down").body(ports).create()?;
    let api_services = kinds::api_service();
    let path = api_services.path("", "v1.gc-e2e-down.example");
    world.remove_at_the_end(path.clone());
    let api_service = json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": { "name": "v1.gc-e2e-down.example" },
        "spec": {
            "group": "gc-e2e-down.example",
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": true,
            "service": { "namespace": service.namespace, "name": service.name },
        },
    });
    world.api().create(&api_services.path("", ""), &api_service)?;
    world.eventually("the API is known to be down", |api| {
        let found = api.get(&path)?.unwrap_or_default();
        let condition = &found["status"]["conditions"][0];
        let is_down = condition["type"] == "Available" && condition["status"] == "False";
        Ok(if is_down { Look::Done(()) } else { Look::NotYet(condition.to_string()) })
    })?;

    let things = kinds::namespaced("gc-e2e-down.example", "v1", "things", "Thing");
    let unknown = Object::that_never_was(&things, world.namespace());
    let child = world.config_map("child-of-unknown").owner(&unknown).create()?;
    collects(world, "while-down")?;
    world.all_stay(&[&child])?;
    world.kill_collector();
    world.start_collector(DEFAULT_CONCURRENT_GC_SYNCS)?;
    collects(world, "started-while-down")?;
    world.all_stay(&[&child])
}

/// Collection works for everything else.
fn collects(world: &mut World<'_>, name: &str) -> Result<(), Failure> {
    for (policy, suffix) in [(Policy::Background, "background"), (Policy::Foreground, "foreground")] {
        let chain = Chain::create(world, &format!("{name}-{suffix}"))?;
        world.delete(&chain.deployment, policy)?;
        world.all_gone(&[&chain.deployment, &chain.replica_set, &chain.pod])?;
    }
    Ok(())
}
