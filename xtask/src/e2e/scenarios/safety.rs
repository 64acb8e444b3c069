//! What must hold over the whole run, whatever else happened in it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::api::Policy;
use crate::e2e::scenarios::chains::Chain;
use crate::e2e::scenarios::ttl;
use crate::e2e::world::{DEFAULT_CONCURRENT_GC_SYNCS, World};
use crate::failure::{Doing, Failure};
use crate::finish::Finishing;
use crate::poll::Look;
use crate::rig::conditional_deletes;

/// With the time of a request, about a hundred writes a second.
const BETWEEN_WRITES: Duration = Duration::from_millis(7);

/// Spec D11: each write makes the collector's decision stale, which must not starve it.
pub fn busy_dependent(world: &mut World<'_>) -> Result<(), Failure> {
    let owner = world.config_map("owner").create()?;
    let child = world.config_map("child").owner(&owner).create()?;
    let (api, path) = (world.api().clone(), child.path.clone());
    let (writes, stop) = (&AtomicU32::new(0), &AtomicBool::new(false));
    thread::scope(|scope| {
        let write = move || {
            while !stop.load(Ordering::Relaxed) {
                let number = writes.fetch_add(1, Ordering::Relaxed);
                let patch = json!({ "metadata": { "annotations": { "write": number.to_string() } } });
                // It ends when the object is gone; a failure shows as too few writes.
                if !api.merge_patch(&path, &patch).is_ok_and(|found| found.is_some()) {
                    break;
                }
                thread::sleep(BETWEEN_WRITES);
            }
        };
        let writer = thread::Builder::new().name("writer".into());
        writer.spawn_scoped(scope, write).doing(|| "cannot start a thread".into())?;
        let result = world
            .eventually("the dependent is being written to", |_| {
                let so_far = writes.load(Ordering::Relaxed);
                Ok(if so_far > 20 { Look::Done(()) } else { Look::NotYet(format!("{so_far} writes")) })
            })
            .and_then(|()| world.delete(&owner, Policy::Background))
            .and_then(|()| world.all_gone(&[&owner, &child]));
        stop.store(true, Ordering::Relaxed);
        result
    })
}

/// Spec D11: without both preconditions an object could be deleted that is not the one that was looked at. The API
/// server's audit log has every deletion that was asked for, those that it refused included.
pub fn every_delete_is_conditional(world: &mut World<'_>) -> Result<(), Failure> {
    // So that there is something to look at when this scenario runs alone.
    world.start_collector(DEFAULT_CONCURRENT_GC_SYNCS)?;
    for (policy, name) in [(Policy::Background, "background"), (Policy::Foreground, "foreground")] {
        let chain = Chain::create(world, name)?;
        world.delete(&chain.deployment, policy)?;
        world.all_gone(&[&chain.deployment, &chain.replica_set, &chain.pod])?;
    }
    // A deletion that no owner causes.
    ttl::expires(world, &Finishing::batch(), "job")?;
    let path =
        world.audit_log().ok_or_else(|| Failure::new("this cluster has no audit log that can be read"))?;
    let deletes = conditional_deletes(&path)?;
    // Each chain costs two deletions at least; the canaries of other scenarios come on top.
    if deletes >= 5 {
        Ok(())
    } else {
        Err(Failure::new(format!("only {deletes} deletions in the audit log")))
    }
}
