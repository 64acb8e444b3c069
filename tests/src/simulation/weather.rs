//! What happens to the server, the network and the collector's own process.

use std::time::Duration;

use super::collector::Collector;
use super::kinds::KINDS;
use super::random::Random;
use super::reader::Reader;
use super::truth::Violation;
use super::users;
use super::worker::lose_requests;
use super::world::{Backup, World};

/// Longer than a proof of absence is believed (gc-core's `Options::proof_age_max`).
const AWAY_MIN: Duration = Duration::from_millis(5_001);
/// One watch believes that versions go back so often; more would be versions that do not count upwards.
const RESTORES_MAX: u32 = 3;

/// One thing that goes wrong; says what.
pub(super) fn strike(world: &mut World<'_>, chance: &mut Random) -> Result<String, Violation> {
    match chance.below(26) {
        0..=2 => Ok(close_watch(world, chance)),
        3 => {
            world.link.server.close_all_watches();
            Ok("all watches end".into())
        }
        4 | 5 => Ok(compact(world, chance)),
        6 | 7 => Ok(stall(world, chance)),
        8 | 9 => Ok(toggle_group(world, chance)),
        10 => {
            let switch = &mut world.link.server.switches.empty_discovery;
            *switch = !*switch;
            Ok(format!("discovery is empty: {switch}"))
        }
        11 => Ok(toggle_broken(world, chance)),
        12 | 13 => definition(world, chance),
        16 | 17 => Ok(back_up(world)),
        18 | 19 => Ok(restore(world, chance)),
        20 => Ok(restart_server(world, chance)),
        22..=24 => Ok(pause(world, chance)),
        _ => Ok(world.kill()),
    }
}

/// Everything works from now on. What is installed stays as it is.
pub(super) fn clear(world: &mut World<'_>) {
    let switches = &mut world.link.server.switches;
    switches.empty_discovery = false;
    switches.groups_down.clear();
    switches.broken_resources.clear();
    world.link.fault_permille = 0;
    world.link.cache_is_behind_until = Duration::ZERO;
    world.link.clock_ahead_ms = 0;
    world.paused_until = Duration::ZERO;
    if let Some(collector) = &mut world.collector {
        for reader in &mut collector.readers {
            reader.stalled_until = Duration::ZERO;
        }
    }
    world.start_if_dead();
}

fn close_watch(world: &mut World<'_>, chance: &mut Random) -> String {
    let Some(collector) = &mut world.collector else { return "nothing to cut".into() };
    let at = chance.below(collector.readers.len());
    let Some(reader) = collector.readers.get_mut(at) else { return "nothing to cut".into() };
    reader.hang_up(&mut world.link);
    format!("the watch of {} is cut", reader.resource.resource)
}

/// The history is forgotten: watches that are behind answer 410.
fn compact(world: &mut World<'_>, chance: &mut Random) -> String {
    let now = world.link.server.resource_version();
    let behind = u64::from(chance.within(0, 20));
    world.link.server.compact(now.saturating_sub(behind));
    if chance.permille(700) {
        world.link.server.close_all_watches();
    }
    format!("the server forgets all but {behind} versions")
}

fn stall(world: &mut World<'_>, chance: &mut Random) -> String {
    let until = world.link.now + chance.millis(100, 60_000);
    let Some(collector) = &mut world.collector else { return "nothing to stall".into() };
    let at = chance.below(collector.readers.len());
    let Some(reader) = collector.readers.get_mut(at) else { return "nothing to stall".into() };
    reader.stalled_until = until;
    format!("{} is held up until {} ms", reader.resource.resource, until.as_millis())
}

fn toggle_group(world: &mut World<'_>, chance: &mut Random) -> String {
    let group =
        chance.pick(&["example.com/v1", "example.com/v1beta1", "apps/v1"]).copied().unwrap_or_default();
    let down = &mut world.link.server.switches.groups_down;
    if !down.remove(group) {
        down.insert(group.into());
    }
    format!("groups down: {down:?}")
}

fn toggle_broken(world: &mut World<'_>, chance: &mut Random) -> String {
    let resource = chance.pick(&["widgets.example.com", "gadgets.example.com"]).copied().unwrap_or_default();
    let broken = &mut world.link.server.switches.broken_resources;
    if !broken.remove(resource) {
        broken.insert(resource.into());
    }
    format!("broken resources: {broken:?}")
}

/// All connections end, and for a while nobody answers.
fn go_away(world: &mut World<'_>, for_so_long: Duration) {
    let link = &mut world.link;
    link.server.close_all_watches();
    link.away_until = link.now + for_so_long;
    // One outage in three, without a draw that would change every world there has been.
    link.keeps_reads = for_so_long.as_millis().is_multiple_of(3);
    link.late.clear();
    link.late_expiries.clear();
    link.server.switches.cache_at = None;
    if let Some(collector) = &mut world.collector {
        lose_requests(&mut collector.workers, link.keeps_reads);
        if let Some(expirer) = &mut collector.expirer {
            expirer.lose_requests();
        }
    }
}

fn restart_server(world: &mut World<'_>, chance: &mut Random) -> String {
    let away = chance.millis(0, 20_000);
    go_away(world, away);
    let link = &mut world.link;
    let now = link.server.resource_version();
    if chance.permille(500) {
        link.server.compact(now);
        return format!("the server is started anew, and away for {} ms", away.as_millis());
    }
    let behind = u64::from(chance.within(1, 30));
    link.server.switches.cache_at = Some(now.saturating_sub(behind));
    link.cache_is_behind_until = link.away_until + chance.millis(0, 60_000);
    format!(
        "the server is started anew, away for {} ms, and its cache {behind} versions behind until {} ms",
        away.as_millis(),
        link.cache_is_behind_until.as_millis()
    )
}

/// The collector's process is stopped and goes on later, as by SIGSTOP and SIGCONT, or on a machine that is put to sleep.
fn pause(world: &mut World<'_>, chance: &mut Random) -> String {
    if world.collector.is_none() {
        return "nothing to stop".into();
    }
    let long = chance.permille(500);
    let pause = if long { chance.millis(10_000, 120_000) } else { chance.millis(10, 10_000) };
    world.paused_until = world.link.now + pause;
    let mut said = format!("the collector is stopped for {} ms", pause.as_millis());
    // Meanwhile the server is restored: what was read before must not be believed when it goes on.
    if long && world.backup.is_some() && chance.permille(600) {
        said = format!("{said}; {}", restore(world, chance));
        world.paused_until = world.paused_until.max(world.link.away_until);
    }
    said
}

fn back_up(world: &mut World<'_>) -> String {
    let version = world.link.server.resource_version();
    let (server, truth) = (world.link.server.snapshot(), world.link.truth.clone());
    world.backup = Some(Backup { server, version, truth });
    format!("the server is backed up at version {version}")
}

/// The server is restored from its backup. It is away for longer than a proof of absence is believed. What no watch has
/// shown is not undone: see the module's documentation.
fn restore(world: &mut World<'_>, chance: &mut Random) -> String {
    if RESTORES_MAX <= world.link.restores {
        return "no more restores".into();
    }
    let Some(Backup { server, version, truth }) = &world.backup else { return "there is no backup".into() };
    let before = world.link.server.resource_version();
    let moves_forward = chance.permille(300);
    let is_noticed = |collector: &Collector| {
        let mut readers = collector.readers.iter();
        if moves_forward {
            readers.all(|reader| reader.is_quiet(&world.link))
        } else {
            readers.any(|reader| reader.is_ahead_of(*version))
        }
    };
    // A process that is stopped just between a list and the watch that is to follow, and goes on with another state of the
    // server, hears nothing of it; and an answer that waited for it counts as a slow one (SAFETY.md, "What remains").
    let is_stopped = world.link.now < world.paused_until;
    let is_between = |collector: &Collector| {
        let asks_nothing = collector.workers.iter().all(|worker| worker.job.is_none());
        is_stopped && !(asks_nothing && collector.readers.iter().all(Reader::is_watching))
    };
    if !world.collector.as_ref().is_none_or(is_noticed) || world.collector.as_ref().is_some_and(is_between) {
        return "no restore: it would undo what no watch has shown".into();
    }
    let (server, truth) = (server.clone(), truth.clone());
    let away = AWAY_MIN + chance.millis(0, 40_000);
    go_away(world, away);
    let link = &mut world.link;
    link.server.restore(&server);
    link.truth.go_back_to(&truth);
    link.restores += 1;
    // What etcd's manual advises: versions go forward, and what was before is forgotten.
    if moves_forward {
        link.server.move_forward(before + 1_000);
    }
    link.restored_to = link.server.resource_version();
    if let Some(collector) = &mut world.collector {
        collector.server_was_restored();
    }
    format!(
        "the server is restored: from version {before} to {}, and away for {} ms",
        world.link.server.resource_version(),
        away.as_millis()
    )
}

fn definition(world: &mut World<'_>, chance: &mut Random) -> Result<String, Violation> {
    let kind = if chance.permille(500) { &KINDS[4] } else { &KINDS[5] };
    if world.link.truth.is_served(kind) {
        let code = users::uninstall(&mut world.link, kind)?.code;
        Ok(format!("the definition of {} is deleted: {code}", kind.kind))
    } else {
        let code = users::install(&mut world.link, kind)?.code;
        Ok(format!("the definition of {} is installed: {code}", kind.kind))
    }
}
