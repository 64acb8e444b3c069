//! `cargo xtask e2e`: the end-to-end suite against a real API server.
//!
//! A cluster (see [`cluster`]), a collector (see [`crate::collector`]), and the scenarios, one after the other, each in
//! a namespace of its own.

mod cluster;
mod kind;
mod object;
mod scenarios;
mod world;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use gc_client::Config;
use serde_json::Value;

use crate::api::Api;
use crate::cargo::build_daemon;
use crate::collector::{Collector, Duty, Launcher, Program};
use crate::dirs::RunDir;
use crate::e2e::cluster::Cluster;
use crate::e2e::object::Object;
use crate::e2e::scenarios::{ALL, Needs, Scenario};
use crate::e2e::world::{DEFAULT_CONCURRENT_GC_SYNCS, World};
use crate::failure::{Doing, Failure};
use crate::finish::TTL_CONFIG;
use crate::flags::{CollectorKind, E2e, Provider};
use crate::interrupt;
use crate::kinds;
use crate::random::Random;
use crate::rig::Rig;

/// Runs the suite; the exit code says whether every scenario passed.
///
/// # Errors
///
/// When no cluster or no collector can be had, or a signal comes.
pub fn run(flags: &E2e) -> Result<ExitCode, Failure> {
    let mut chosen: Vec<&Scenario> = ALL.iter().filter(|scenario| is_chosen(flags, scenario)).collect();
    if flags.list {
        list(&chosen);
        return Ok(ExitCode::SUCCESS);
    }
    if flags.dry_run {
        if flags.provider != Some(Provider::Kind) {
            return Err(Failure::new("--dry-run goes with --provider kind only"));
        }
        return kind::dry_run().map(|()| ExitCode::SUCCESS);
    }
    if chosen.is_empty() {
        return Err(Failure::new("no scenario has such a name; see --list"));
    }
    let cluster = Cluster::start(flags)?;
    chosen.retain(|scenario| !scenario.needs_the_rig || cluster.rig().is_some());
    let mut suite = Suite::new(flags, cluster)?;
    let passed = suite.run_all(&chosen)?;
    println!("{} passed, {} failed", passed, chosen.len() - passed);
    Ok(if passed == chosen.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the reference cannot pass is left out, unless it is asked for by its whole name.
fn is_chosen(flags: &E2e, scenario: &Scenario) -> bool {
    let can_pass = flags.collector == CollectorKind::Daemon || scenario.reference_cannot.is_empty();
    let is_named =
        |part: &String| if can_pass { scenario.name.contains(part.as_str()) } else { scenario.name == part };
    if flags.only.is_empty() { can_pass } else { flags.only.iter().any(is_named) }
}

fn list(scenarios: &[&Scenario]) {
    for scenario in scenarios {
        println!("{:<46} {}", scenario.name, scenario.sentence);
        if !scenario.reference_cannot.is_empty() {
            println!("{:<46} (not the reference: {})", "", scenario.reference_cannot);
        }
    }
}

/// The order of the fields is the order in which they are dropped: the collector before its logs and its server.
struct Suite {
    collector: Option<Collector>,
    launcher: Launcher,
    api: Api,
    random: Random,
    volcano_definition: Option<Value>,
    run_dir: RunDir,
    cluster: Cluster,
}

impl Suite {
    fn new(flags: &E2e, cluster: Cluster) -> Result<Suite, Failure> {
        let mut run_dir = RunDir::new("gc-e2e")?;
        if flags.keep {
            run_dir.keep();
        }
        let seed = flags.seed.unwrap_or_else(Random::fresh_seed);
        eprintln!("e2e: --seed {seed}; logs in {}", run_dir.path().display());
        if let Some(logs) = cluster.logs() {
            eprintln!("e2e: servers' logs in {}", logs.display());
        }
        let api = Api::connect(&Config::from_kubeconfig(&cluster.admin_kubeconfig(), None)?)?;
        if cluster.rig().is_none() {
            no_other_collector(&api)?;
        }
        let launcher = launcher(flags, &cluster, &run_dir)?;
        let random = Random::new(seed);
        let volcano_definition = flags.volcano_definition.as_deref().map(read_definition).transpose()?;
        Ok(Suite { collector: None, launcher, api, random, volcano_definition, run_dir, cluster })
    }

    fn run_all(&mut self, scenarios: &[&Scenario]) -> Result<usize, Failure> {
        let mut passed = 0;
        for scenario in scenarios {
            let start = Instant::now();
            let result = self.run_one(scenario);
            interrupt::check()?;
            let (name, took_s) = (scenario.name, start.elapsed().as_secs_f64());
            match result {
                Ok(()) => {
                    passed += 1;
                    println!("ok {name} {took_s:.1}s");
                }
                Err(failure) => {
                    println!("FAILED {name}: {failure}");
                    self.show_log();
                }
            }
        }
        Ok(passed)
    }

    fn run_one(&mut self, scenario: &Scenario) -> Result<(), Failure> {
        match scenario.collector {
            Needs::ItsOwnCollector => self.collector = None,
            Needs::SharedCollector => {
                // One that has died is reported by the scenario during which it died; the others go on with a new one.
                if self.collector.as_mut().is_some_and(|collector| collector.check_alive().is_err()) {
                    self.collector = None;
                }
                if self.collector.is_none() {
                    self.collector = Some(self.launcher.start(DEFAULT_CONCURRENT_GC_SYNCS)?);
                }
            }
        }
        let namespace = format!("e2e-{}", scenario.name.replace('_', "-"));
        let namespace = self.unused(namespace);
        let mut world = World::new(
            &self.api,
            &mut self.launcher,
            &mut self.collector,
            &mut self.random,
            &namespace,
            self.cluster.rig().map(Rig::audit_log),
            self.volcano_definition.as_ref(),
        )?;
        if self.cluster.rig().is_none() {
            world.wait_for_service_account()?;
        }
        let result = (scenario.run)(&mut world);
        drop(world);
        if scenario.collector == Needs::ItsOwnCollector && result.is_ok() {
            self.collector = None;
        }
        result
    }

    /// A cluster that is used again may still hold the last run's namespace.
    fn unused(&mut self, namespace: String) -> String {
        if self.cluster.rig().is_some() {
            namespace
        } else {
            format!("{namespace}-{}", self.random.below(10_000))
        }
    }

    fn show_log(&mut self) {
        self.run_dir.keep();
        if let Some(collector) = &self.collector {
            println!("{}", collector.log_tail());
        }
    }
}

impl Drop for Suite {
    fn drop(&mut self) {
        if self.run_dir.is_kept() {
            eprintln!("e2e: logs are kept in {}", self.run_dir.path().display());
        }
    }
}

fn launcher(flags: &E2e, cluster: &Cluster, run_dir: &RunDir) -> Result<Launcher, Failure> {
    let program = match (flags.collector, cluster.rig()) {
        (CollectorKind::Daemon, _) => Program::Daemon(flags.daemon.clone().map_or_else(build_daemon, Ok)?),
        (CollectorKind::Reference, Some(rig)) => Program::Reference(rig.reference()),
        (CollectorKind::Reference, None) => {
            return Err(Failure::new("--collector reference runs on the rig only"));
        }
    };
    let ttl_config = run_dir.file("ttl.yaml");
    std::fs::write(&ttl_config, TTL_CONFIG).doing(|| "cannot write the TTL's configuration".into())?;
    Ok(Launcher::new(program, cluster.daemon_kubeconfig(), run_dir.path())
        .for_duty(Duty::Both(Some(ttl_config))))
}

fn read_definition(path: &Path) -> Result<Value, Failure> {
    let doing = || format!("cannot read the definition in {}", path.display());
    serde_saphyr::from_str(&std::fs::read_to_string(path).doing(doing)?).doing(doing)
}

/// With a second collector in the cluster every result would be worthless: garbage that goes while ours does not run
/// yet gives it away.
fn no_other_collector(api: &Api) -> Result<(), Failure> {
    use std::time::Duration;
    const PATIENCE: Duration = Duration::from_secs(3);
    let nobody = Object::that_never_was(&kinds::config_map(), "default");
    let name = format!("gc-e2e-canary-{}", std::process::id());
    let canary = serde_json::json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "ownerReferences": [nobody.reference(false)] },
    });
    let configs = kinds::config_map();
    let path = configs.path("default", &name);
    api.create(&configs.path("default", ""), &canary)?;
    std::thread::sleep(PATIENCE);
    if api.delete(&path, crate::api::Policy::Background)? {
        return Ok(());
    }
    Err(Failure::new(
        "another garbage collector runs in this cluster: start its kube-controller-manager with \
         --controllers=*,-garbage-collector-controller",
    ))
}
