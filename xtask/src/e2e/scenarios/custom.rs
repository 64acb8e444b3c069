//! Custom resources, whose definitions come and go while the collector runs.

use gc_client::ApiResource;
use serde_json::Value;

use crate::api::Policy;
use crate::e2e::world::World;
use crate::failure::Failure;
use crate::kinds::{self, definition, version};
use crate::poll::Look;

const GROUP: &str = "gc-e2e.example";

/// Twice, since a definition that comes back is not the one that went.
pub fn comes_and_goes(world: &mut World<'_>) -> Result<(), Failure> {
    let widgets = kinds::namespaced(GROUP, "v1", "widgets", "Widget");
    for _ in 0..2 {
        define(world, &widgets)?;
        owner_and_dependent(world, &widgets)?;
        references_are_patched(world, &widgets)?;
        undefine(world, &widgets)?;
    }
    Ok(())
}

fn owner_and_dependent(world: &mut World<'_>, widgets: &ApiResource) -> Result<(), Failure> {
    let owner = world.object(widgets, "owner").create()?;
    let child = world.config_map("child").blocking_owner(&owner).create()?;
    world.all_stay(&[&owner, &child])?;
    world.delete(&owner, Policy::Foreground)?;
    world.all_gone(&[&owner, &child])?;

    let owner = world.config_map("owner").create()?;
    let child = world.object(widgets, "child").owner(&owner).create()?;
    let grandchild = world.object(widgets, "grandchild").owner(&child).create()?;
    world.delete(&owner, Policy::Background)?;
    world.all_gone(&[&owner, &child, &grandchild])
}

/// Custom resources refuse strategic merge patches (415), so this goes another way than with built-in kinds.
fn references_are_patched(world: &mut World<'_>, widgets: &ApiResource) -> Result<(), Failure> {
    let going = world.config_map("going").create()?;
    let orphaning = world.object(widgets, "orphaning").create()?;
    let staying = world.object(widgets, "staying").create()?;
    let child = world
        .object(widgets, "child-of-three")
        .owner(&going)
        .blocking_owner(&orphaning)
        .owner(&staying)
        .create()?;
    world.delete(&going, Policy::Background)?;
    world.becomes(&child, "has two owners left", |state| state.is_owned_by(&[&orphaning, &staying]))?;
    world.delete(&orphaning, Policy::Orphan)?;
    world.all_gone(&[&going, &orphaning])?;
    world.becomes(&child, "has one owner left", |state| state.is_owned_by(&[&staying]))?;
    world.delete(&staying, Policy::Background)?;
    world.all_gone(&[&staying, &child])
}

fn define(world: &mut World<'_>, resource: &ApiResource) -> Result<(), Failure> {
    create_definition(world, &definition(resource, &[version("v1", true)]), resource)
}

/// Creates a definition and waits until its first version is served.
pub fn create_definition(
    world: &mut World<'_>,
    definition: &Value,
    resource: &ApiResource,
) -> Result<(), Failure> {
    let definitions = kinds::custom_resource_definition();
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    world.remove_at_the_end(definitions.path("", name));
    world.api().create(&definitions.path("", ""), definition)?;
    let path = resource.path("", "");
    world.eventually(&format!("{path} is served"), |api| {
        // Until then it is a plain 404, which is no Status and comes as a failure.
        Ok(match api.get(&path) {
            Ok(Some(_)) => Look::Done(()),
            Ok(None) => Look::NotYet("not found".into()),
            Err(failure) => Look::NotYet(failure.to_string()),
        })
    })
}

/// Deletes a definition, with all its objects, and waits until it is gone and no longer served.
pub fn undefine(world: &mut World<'_>, resource: &ApiResource) -> Result<(), Failure> {
    let definitions = kinds::custom_resource_definition();
    let path = definitions.path("", &format!("{}.{}", resource.resource, resource.group));
    world.api().delete(&path, Policy::Background)?;
    let served = resource.path("", "");
    world.eventually(&format!("{path} is gone"), |api| {
        let is_defined = api.get(&path)?.is_some();
        let is_served = api.get(&served).is_ok_and(|list| list.is_some());
        let state = format!("defined: {is_defined}, served: {is_served}");
        Ok(if is_defined || is_served { Look::NotYet(state) } else { Look::Done(()) })
    })
}
