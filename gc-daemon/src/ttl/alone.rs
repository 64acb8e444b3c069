//! The program without its collector: TTL controllers only, with the discovery that tells them what is served.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded, select, tick};
use gc_client::{Client, Discovery, Error};
use log::{info, warn};

use crate::discovery;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::run::{STOP_WITHIN, WORKERS_STOP_WITHIN, join_within, spawn_discovery, wait_for};
use crate::ttl::Controllers;

/// The loop wakes at least this often, for its heartbeat and to see whether the first lists are there.
const TICK: Duration = Duration::from_secs(1);

/// Runs until `stop` gets a message or is disconnected.
pub fn run(
    client: &Client,
    metrics: &Arc<Metrics>,
    health: &Health,
    mut controllers: Controllers,
    stop: &Receiver<()>,
) {
    let (answers_in, answers) = bounded(1);
    // Nobody pokes: without the collector no watch looks at definitions, and a look comes every 30 s.
    let (pokes, poked) = bounded(0);
    let discovery = spawn_discovery(client, poked, answers_in);
    let ticks = tick(TICK);
    health.set_not_ready("waiting for discovery");
    let (mut is_failing, mut is_discovered, mut is_ready) = (false, false, false);
    loop {
        select! {
            recv(stop) -> _ => break,
            recv(ticks) -> _ => {}
            recv(answers) -> answer => match answer {
                Ok(answer) => is_discovered |= discovered(&answer, metrics, &mut controllers, &mut is_failing),
                Err(_) => break,
            },
        }
        // A loop that is no more beats no more either: /livez fails, and whoever looks at it starts this program anew.
        if controllers.are_alive() {
            health.beat(Instant::now());
        }
        if is_discovered && !is_ready {
            is_ready = controllers.are_listed();
            if is_ready {
                health.set_ready();
            } else {
                health.set_not_ready("waiting for the first lists");
            }
        }
    }
    info!("stopping");
    health.set_not_ready("stopping");
    let start = Instant::now();
    let mut stopping = controllers.stop();
    wait_for(&stopping.workers, start + WORKERS_STOP_WITHIN);
    drop((pokes, answers));
    client.shut_down();
    stopping.workers.extend(discovery);
    stopping.workers.extend(stopping.others);
    join_within(stopping.workers, start + STOP_WITHIN);
}

/// Says whether there was an answer.
fn discovered(
    answer: &Result<Discovery, Error>,
    metrics: &Metrics,
    controllers: &mut Controllers,
    is_failing: &mut bool,
) -> bool {
    match answer {
        Ok(discovery) => {
            if std::mem::take(is_failing) {
                info!("discovery works again");
            }
            controllers.discovered(discovery);
            true
        }
        Err(error) => {
            warn!("discovery failed, everything stays as it is: {error}{}", discovery::mend(error));
            metrics.resources_sync_error();
            *is_failing = true;
            false
        }
    }
}
