//! Who counts as an owner.

use std::thread;
use std::time::Duration;

use crate::api::Policy;
use crate::e2e::object::Object;
use crate::e2e::world::World;
use crate::failure::Failure;
use crate::kinds;

const RETRIES: &str = "workqueue_retries_total";
const ATTEMPT_TO_DELETE: &str = "name=\"garbage_collector_attempt_to_delete\"";

/// One owner goes: the reference to it goes too, the dependent stays; then the other one.
pub fn two_owners(world: &mut World<'_>) -> Result<(), Failure> {
    let going = world.config_map("going").create()?;
    let staying = world.config_map("staying").create()?;
    let child = world.config_map("child").owner(&going).owner(&staying).create()?;
    world.delete(&going, Policy::Background)?;
    world.becomes(&child, "has one owner left", |state| state.is_owned_by(&[&staying]))?;
    world.all_stay(&[&child, &staying])?;
    world.delete(&staying, Policy::Background)?;
    world.all_gone(&[&child])
}

/// The owner in foreground deletion waits for a blocking dependent that another owner keeps: the dependent must be let
/// go, so that the owner can go.
pub fn two_owners_foreground(world: &mut World<'_>) -> Result<(), Failure> {
    let going = world.config_map("going").create()?;
    let staying = world.config_map("staying").create()?;
    let child = world.config_map("child").blocking_owner(&going).blocking_owner(&staying).create()?;
    world.delete(&going, Policy::Foreground)?;
    world.all_gone(&[&going])?;
    world.becomes(&child, "has one owner left", |state| state.is_owned_by(&[&staying]))?;
    world.all_stay(&[&child, &staying])
}

/// Garbage from its first moment.
pub fn owner_never_existed(world: &mut World<'_>) -> Result<(), Failure> {
    let nobody = Object::that_never_was(&kinds::config_map(), world.namespace());
    let child = world.config_map("child").owner(&nobody).create()?;
    world.all_gone(&[&child])
}

/// A namespaced owner is looked for in the dependent's namespace only.
pub fn owner_in_another_namespace(world: &mut World<'_>) -> Result<(), Failure> {
    let second = world.second_namespace()?;
    let owner = world.config_map("owner").in_namespace(&second).create()?;
    let neighbour = world.config_map("neighbour").in_namespace(&second).owner(&owner).create()?;
    // Held, so that the event can be found by its object's UID before the object is gone.
    let stranger = world.config_map("stranger").owner(&owner).held().create()?;
    world.event(&stranger, "OwnerRefInvalidNamespace")?;
    world.becomes(&stranger, "is being deleted", |state| state.being_deleted)?;
    world.release(&stranger)?;
    world.all_gone(&[&stranger])?;
    world.all_stay(&[&owner, &neighbour])
}

/// The owner's name is taken by another object: the old one's dependents are garbage, the new one's are not.
pub fn owner_replaced(world: &mut World<'_>) -> Result<(), Failure> {
    let old = world.config_map("owner").create()?;
    // Held, so that it is still undecided when the new owner is there.
    let child_of_old = world.config_map("child-of-old").owner(&old).held().create()?;
    world.delete(&old, Policy::Background)?;
    let new = world.config_map("owner").create()?;
    let child_of_new = world.config_map("child-of-new").owner(&new).create()?;
    world.becomes(&child_of_old, "is being deleted", |state| state.being_deleted)?;
    world.release(&child_of_old)?;
    let late_child_of_old = world.config_map("late-child-of-old").owner(&old).create()?;
    world.all_gone(&[&old, &child_of_old, &late_child_of_old])?;
    world.all_stay(&[&new, &child_of_new])
}

/// Such an owner can never be resolved: not deleted, even when the owner goes, and not retried in a loop.
pub fn cluster_scoped_dependent(world: &mut World<'_>) -> Result<(), Failure> {
    let owner = world.config_map("owner").create()?;
    let child = world.object(&kinds::cluster_role(), "child").owner(&owner).create()?;
    world.event(&child, "OwnerRefInvalidNamespace")?;
    world.all_stay(&[&child])?;
    no_loop(world)?;
    world.delete(&owner, Policy::Background)?;
    world.all_gone(&[&owner])?;
    world.all_stay(&[&child])?;
    no_loop(world)
}

/// A window without any cause for work must be without retries. With back-off from 5 ms that doubles, a loop that has
/// just begun retries nine times in this window.
fn no_loop(world: &mut World<'_>) -> Result<(), Failure> {
    const WINDOW: Duration = Duration::from_millis(2_600);
    // A cluster with other inhabitants may cause some.
    const ALLOWED: f64 = 3.0;
    let before = world.metric(RETRIES, ATTEMPT_TO_DELETE)?;
    thread::sleep(WINDOW);
    let retries = world.metric(RETRIES, ATTEMPT_TO_DELETE)? - before;
    if retries <= ALLOWED {
        return Ok(());
    }
    Err(Failure::new(format!("{retries} retries within {WINDOW:?} in which nothing happened")))
}

/// The other way round it is allowed.
pub fn namespaced_dependent(world: &mut World<'_>) -> Result<(), Failure> {
    let owner = world.object(&kinds::cluster_role(), "owner").create()?;
    let child = world.config_map("child").owner(&owner).create()?;
    world.all_stay(&[&child, &owner])?;
    world.delete(&owner, Policy::Background)?;
    world.all_gone(&[&owner, &child])
}
