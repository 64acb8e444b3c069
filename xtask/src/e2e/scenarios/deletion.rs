//! Foreground deletion, where it could hang.

use crate::api::Policy;
use crate::e2e::object::State;
use crate::e2e::world::{HOLD, World};
use crate::failure::Failure;

/// a waits for b, b for c, c for a.
pub fn cycle_of_three(world: &mut World<'_>) -> Result<(), Failure> {
    let a = world.config_map("a").create()?;
    let b = world.config_map("b").blocking_owner(&a).create()?;
    let c = world.config_map("c").blocking_owner(&b).create()?;
    world.set_owners(&a, &[c.reference(true)])?;
    world.all_stay(&[&a, &b, &c])?;
    world.delete(&a, Policy::Foreground)?;
    world.all_gone(&[&a, &b, &c])
}

/// The owner goes although the dependent is still held.
pub fn non_blocking_dependent(world: &mut World<'_>) -> Result<(), Failure> {
    let owner = world.config_map("owner").create()?;
    let child = world.config_map("child").owner(&owner).held().create()?;
    world.delete(&owner, Policy::Foreground)?;
    world.all_gone(&[&owner])?;
    world.becomes(&child, "is being deleted", |state| state.being_deleted && state.has(HOLD))?;
    world.release(&child)?;
    world.all_gone(&[&child])
}

/// The API server adds `foregroundDeletion` again to an object that is being deleted already
/// (kubernetes/kubernetes#77081); a dependent that came meanwhile must go, and the finalizer too.
pub fn second_foreground_delete(world: &mut World<'_>) -> Result<(), Failure> {
    let owner = world.config_map("owner").held().create()?;
    let first = world.config_map("first").blocking_owner(&owner).create()?;
    world.delete(&owner, Policy::Foreground)?;
    let held_by_the_other = |state: &State| state.being_deleted && state.finalizers == [HOLD];
    world.becomes(&owner, "is held by the other finalizer alone", held_by_the_other)?;
    world.all_gone(&[&first])?;

    // Held, so that the finalizer that is added again can be seen.
    let second = world.config_map("second").blocking_owner(&owner).held().create()?;
    world.delete(&owner, Policy::Foreground)?;
    world.becomes(&second, "is being deleted", |state| state.being_deleted)?;
    world.becomes(&owner, "waits again", |state| state.has("foregroundDeletion"))?;
    world.release(&second)?;
    world.all_gone(&[&second])?;
    world.becomes(&owner, "is held by the other finalizer alone", held_by_the_other)?;
    world.release(&owner)?;
    world.all_gone(&[&owner])
}
