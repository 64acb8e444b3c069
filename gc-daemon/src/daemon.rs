//! Puts the daemon together and takes it apart: what `main` does once it has flags.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crossbeam_channel::Receiver;
use gc_client::{Client, Config, Options};
use gc_core::State;
use gc_core::ttl::Profile;
use gc_graph::Uid;
use gc_queue::Queue;
use hashbrown::HashSet;
use log::info;

use crate::events::Recorder;
use crate::flags::{ALWAYS_IGNORED, Controller, Flags, MetricsBindAddress};
use crate::health::Health;
use crate::metrics::{GraphNumbers, Metrics, QueueNumbers, Sources, queue_names};
use crate::run::{Applied, Inputs, Settings, inputs, run};
use crate::serve::{Pages, Server};
use crate::ttl::{self, Controllers, Tools};
use crate::workers::{Shared, lock};

/// Requests in flight for each worker: one of its own, and some for the dependents that an owner's worker orphans in
/// parallel.
const IN_FLIGHT_PER_WORKER: usize = 2;

/// Runs the controllers until `stop` gets a message or is disconnected, then stops within 5 s (R6).
///
/// # Errors
/// One line: the configuration or the address that cannot be used, and the mend. What goes wrong later (a server that
/// is down, say) is logged and tried again.
pub fn daemon(flags: &Flags, stop: &Receiver<()>) -> Result<(), String> {
    let controllers = ttl_controllers(flags)?;
    let config =
        Config::load(flags.kubeconfig.as_deref(), flags.context.as_deref()).map_err(|e| e.to_string())?;
    let client = Client::new(&config, &client_options(flags)).map_err(|e| e.to_string())?;
    let state = Arc::new(Mutex::new(State::new(gc_core::Options::default())));
    let (inputs, findings) = inputs();
    let queues = (Queue::default(), Queue::default());
    let metrics = Arc::new(Metrics::new(sources(&state, &queues, &inputs)));
    let health = Arc::new(Health::new(Instant::now()));
    let server = serve(flags, &health, &metrics, &state)?;
    let recorder = Recorder::start(&client, &metrics).map_err(|e| format!("cannot start a thread: {e}"))?;
    let recorder = Arc::new(recorder);
    let proxy = config.proxy_place().map(|place| format!(" through the proxy {place}")).unwrap_or_default();
    let names: Vec<&str> = Controller::ALL.iter().filter(|c| flags.runs(**c)).map(|c| c.name()).collect();
    info!(
        "gc-daemon {} runs {} against {}{proxy}",
        env!("CARGO_PKG_VERSION"),
        names.join(", "),
        config.server()
    );
    let tools = Tools { client: client.clone(), metrics: metrics.clone(), recorder: recorder.clone() };
    let ttl = Controllers::start(controllers, &tools)?;
    if flags.runs(Controller::GarbageCollector) {
        let shared = Arc::new(Shared::new(state, queues, client, metrics, recorder, findings));
        run(&settings(flags), &shared, &health, inputs, ttl, stop);
    } else {
        ttl::alone::run(&client, &metrics, &health, ttl, stop);
    }
    drop(server);
    Ok(())
}

/// The TTL controllers that the flags ask for. A profile of the file takes the place of the one that is built in.
fn ttl_controllers(flags: &Flags) -> Result<Vec<ttl::Settings>, String> {
    let given = flags.ttl_config.as_deref().map(ttl::config::read).transpose()?.unwrap_or_default();
    let (volcanos, others): (Vec<Profile>, Vec<Profile>) =
        given.into_iter().partition(|profile| profile.name() == Profile::volcano_job().name());
    let profiles_of = |controller: Controller, built_in: Profile, mut profiles: Vec<Profile>| {
        if !flags.runs(controller) {
            return match profiles.first() {
                None => Ok(None),
                Some(profile) => Err(format!(
                    "--ttl-config: has a profile for {}, but --controllers leaves out {}",
                    profile.name(),
                    controller.name()
                )),
            };
        }
        if profiles.iter().all(|profile| profile.name() != built_in.name()) {
            profiles.insert(0, built_in);
        }
        Ok(Some(profiles))
    };
    let jobs = profiles_of(Controller::TtlAfterFinished, Profile::batch_job(), others)?;
    let volcano = profiles_of(Controller::VolcanoGc, Profile::volcano_job(), volcanos)?;
    let settings = |controller: Controller, workers, profiles| ttl::Settings {
        name: controller.name(),
        workers,
        profiles,
    };
    let jobs = jobs.map(|profiles| {
        settings(Controller::TtlAfterFinished, flags.concurrent_ttl_after_finished_syncs, profiles)
    });
    let volcano =
        volcano.map(|profiles| settings(Controller::VolcanoGc, flags.worker_threads_for_gc, profiles));
    Ok(jobs.into_iter().chain(volcano).collect())
}

fn client_options(flags: &Flags) -> Options {
    Options {
        max_in_flight: flags
            .concurrent_gc_syncs
            .saturating_mul(IN_FLIGHT_PER_WORKER)
            .saturating_add(flags.concurrent_ttl_after_finished_syncs)
            .saturating_add(flags.worker_threads_for_gc),
        qps: flags.kube_api_qps,
        burst: flags.kube_api_burst,
        user_agent: format!("gc-daemon/{} garbage-collector", env!("CARGO_PKG_VERSION")),
        ..Options::default()
    }
}

fn settings(flags: &Flags) -> Settings {
    let named = flags.gc_ignored_resources.iter().map(|it| (it.group.clone(), it.resource.clone()));
    let always = ALWAYS_IGNORED.iter().map(|(group, resource)| ((*group).to_owned(), (*resource).to_owned()));
    let ignored: HashSet<(String, String)> = always.chain(named).collect();
    Settings { concurrent_gc_syncs: flags.concurrent_gc_syncs, ignored }
}

/// Where a scrape reads the numbers that nobody pushes.
fn sources(state: &Arc<Mutex<State>>, queues: &(Queue<Uid>, Queue<Uid>), inputs: &Inputs) -> Sources {
    let (to_delete, to_orphan) = (queues.0.clone(), queues.1.clone());
    let (handed_in, applied) = (Arc::clone(&inputs.changes_in.total), Arc::clone(&inputs.applied));
    let state = Arc::clone(state);
    Sources {
        queues: Box::new(move || {
            let Applied { total, queue_duration, work_duration } =
                applied.lock().unwrap_or_else(PoisonError::into_inner).clone();
            // Read after the total, which is never ahead of it.
            let adds_total = handed_in.load(Ordering::Relaxed);
            let graph_changes = QueueNumbers {
                depth: adds_total.saturating_sub(total) as usize,
                adds_total,
                queue_duration: Some(queue_duration),
                work_duration: Some(work_duration),
                ..QueueNumbers::default()
            };
            vec![
                (queue_names::ATTEMPT_TO_DELETE, to_delete.metrics().into()),
                (queue_names::ATTEMPT_TO_ORPHAN, to_orphan.metrics().into()),
                (queue_names::GRAPH_CHANGES, graph_changes),
            ]
        }),
        graph: Box::new(move || {
            let state = lock(&state);
            let graph = state.graph();
            GraphNumbers {
                observed_nodes: graph.len() - graph.virtual_len(),
                virtual_nodes: graph.virtual_len(),
                bytes: graph.memory_bytes(),
                absent_owner_cache_entries: state.absent_len(),
                absence_unconfirmed_total: state.absence_unconfirmed_total(),
            }
        }),
    }
}

fn serve(
    flags: &Flags,
    health: &Arc<Health>,
    metrics: &Arc<Metrics>,
    state: &Arc<Mutex<State>>,
) -> Result<Option<Server>, String> {
    let MetricsBindAddress::On(address) = flags.metrics_bind_address else {
        info!("--metrics-bind-address is off: no health, no metrics, no debug graph");
        return Ok(None);
    };
    let state = Arc::clone(state);
    let pages = Pages {
        health: Arc::clone(health),
        metrics: Arc::clone(metrics),
        graph_dot: Arc::new(move |uids| {
            let uids: Vec<Uid> = uids.iter().map(|uid| Uid::new(uid)).collect();
            lock(&state).graph().dot(&uids)
        }),
    };
    let server = Server::start(address, pages)
        .map_err(|e| format!("--metrics-bind-address {address}: {e}; name a free port, or port 0 for any"))?;
    info!("health, metrics and the debug graph are at http://{}", server.local_addr());
    Ok(Some(server))
}
