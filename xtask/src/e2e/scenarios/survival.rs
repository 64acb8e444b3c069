//! The collector dies in the middle of its work, and another one goes on.

use std::time::Duration;

use serde_json::Value;

use crate::api::{Api, Policy};
use crate::e2e::object::{Object, State};
use crate::e2e::world::{DEFAULT_CONCURRENT_GC_SYNCS, World};
use crate::failure::Failure;
use crate::kinds;
use crate::poll::Look;

/// Spec R6.
const SIGTERM_DEADLINE: Duration = Duration::from_secs(5);

/// None of a thousand dependents may be deleted, though the collector that takes their references off is killed when
/// it has taken off some.
pub fn orphan_thousand(world: &mut World<'_>) -> Result<(), Failure> {
    const DEPENDENTS: usize = 1_000;
    let owner = world.config_map("owner").create()?;
    for number in 0..DEPENDENTS {
        world.config_map(&format!("child-{number}")).blocking_owner(&owner).create()?;
    }
    // Few workers, so that there is a half-way.
    world.start_collector(2)?;
    world.delete(&owner, Policy::Orphan)?;
    world.eventually("some dependents have lost their owner", |api| {
        let owned = owned_by(api, &owner)?;
        Ok(if owned < DEPENDENTS - 50 { Look::Done(()) } else { Look::NotYet(format!("{owned} owned")) })
    })?;
    world.kill_collector();
    let owned = owned_by(world.api(), &owner)?;
    if owned == 0 {
        return Err(Failure::new("all dependents had lost their owner before the collector was killed"));
    }
    if world.state(&owner)?.is_none() {
        return Err(Failure::new(format!("the owner is gone while {owned} dependents still name it")));
    }

    world.start_collector(DEFAULT_CONCURRENT_GC_SYNCS)?;
    world.all_gone(&[&owner])?;
    world.settle()?;
    let children = children(world.api(), world.namespace())?;
    let going = children.iter().filter(|state| state.being_deleted).count();
    let owned = children.iter().filter(|state| !state.owners.is_empty()).count();
    if (children.len(), going, owned) == (DEPENDENTS, 0, 0) {
        return Ok(());
    }
    let there = children.len();
    Err(Failure::new(format!("of {DEPENDENTS} dependents {there} are there, {going} going, {owned} owned")))
}

/// Ten cascades, each under a collector that is killed when a random part of it has gone, and finished by the next.
pub fn killed_ten_times(world: &mut World<'_>) -> Result<(), Failure> {
    let live_owner = world.config_map("live-owner").create()?;
    let kept = world.config_map("kept").blocking_owner(&live_owner).create()?;
    let unowned = world.config_map("unowned").create()?;
    for round in 0..10 {
        let policy = if round % 2 == 0 { Policy::Background } else { Policy::Foreground };
        let tree = tree(world, round)?;
        let gone_before_kill = usize::try_from(world.random_below(tree.len() as u64)).unwrap_or_default();
        // Few workers, so that the cascade has many moments.
        world.start_collector(2)?;
        world.delete(&tree[0], policy)?;
        let namespace = world.namespace().to_owned();
        world.eventually("a part of the cascade has gone", |api| {
            let there = tree_size(api, &namespace, round)?;
            let gone = tree.len().saturating_sub(there);
            Ok(if gone >= gone_before_kill { Look::Done(()) } else { Look::NotYet(format!("{gone} gone")) })
        })?;
        world.kill_collector();

        world.start_collector(DEFAULT_CONCURRENT_GC_SYNCS)?;
        world.all_gone(&tree.iter().collect::<Vec<_>>())?;
        world.all_stay(&[&live_owner, &kept, &unowned])?;
        world.kill_collector();
    }
    Ok(())
}

/// A collector with work in hand ends in time, and loses none of it.
pub fn sigterm(world: &mut World<'_>) -> Result<(), Failure> {
    let tree = tree(world, 0)?;
    world.start_collector(1)?;
    world.delete(&tree[0], Policy::Foreground)?;
    let status = world.terminate_collector(SIGTERM_DEADLINE)?;
    if !status.success() {
        return Err(Failure::new(format!("after SIGTERM the collector ended with {status}")));
    }
    world.start_collector(DEFAULT_CONCURRENT_GC_SYNCS)?;
    world.all_gone(&tree.iter().collect::<Vec<_>>())
}

/// One root, six below it, six below each of these; the root comes first.
fn tree(world: &mut World<'_>, round: usize) -> Result<Vec<Object>, Failure> {
    const FAN_OUT: usize = 6;
    let mut objects = vec![world.config_map(&format!("tree-{round}")).create()?];
    for branch in 0..FAN_OUT {
        let name = format!("tree-{round}-{branch}");
        let middle = world.config_map(&name).blocking_owner(&objects[0]).create()?;
        for leaf in 0..FAN_OUT {
            objects.push(world.config_map(&format!("{name}-{leaf}")).blocking_owner(&middle).create()?);
        }
        objects.push(middle);
    }
    Ok(objects)
}

fn tree_size(api: &Api, namespace: &str, round: usize) -> Result<usize, Failure> {
    let prefix = format!("tree-{round}");
    let is_of_tree = |item: &&Value| {
        let name = item["metadata"]["name"].as_str().unwrap_or_default();
        name.strip_prefix(&prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    Ok(config_maps(api, namespace)?.iter().filter(is_of_tree).count())
}

fn children(api: &Api, namespace: &str) -> Result<Vec<State>, Failure> {
    let is_child =
        |item: &&Value| item["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("child-"));
    Ok(config_maps(api, namespace)?.iter().filter(is_child).map(State::of).collect())
}

fn owned_by(api: &Api, owner: &Object) -> Result<usize, Failure> {
    let children = children(api, &owner.namespace)?;
    Ok(children.iter().filter(|state| state.owners.contains(&owner.uid)).count())
}

fn config_maps(api: &Api, namespace: &str) -> Result<Vec<Value>, Failure> {
    let list = api.get(&kinds::config_map().path(namespace, ""))?.unwrap_or_default();
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}
