//! `cargo xtask chaos`: users delete thousands of objects on a real API server while everything around the daemon
//! fails, at moments that a seed chooses.
//!
//! Each scenario (see [`scenarios`]) has a namespace, a daemon and a plan of its own (see [`plan`]): families of objects
//! whose end does not depend on when anything happens. Users (see [`users`]) carry it out while the scenario's faults
//! come. When those have ended, and the users too, everything must become as planned within [`RECOVERY`]; then these are
//! checked, and the figures printed:
//!
//! - *Nothing is lost*: what has no owner left is gone, and references to what is gone are off.
//! - *Nothing is deleted wrongly*: what must stay is there, the very same object, with the references that it must have.
//!   The API server's audit log shows that each deletion that the daemon asked for, even those that were refused, named
//!   the UID and the resourceVersion that it was decided on and was of an object that the plan lets go.
//! - *Everything is bounded*: memory (the peak of what was resident, [`PEAK_BYTES_MAX`]), processor time while a server is
//!   away ([`QUIET_CPU_MAX`]) and when all is done ([`IDLE_CPU_MAX`]), requests for each object and second.
//! - *No panic* stands in the daemon's log, and it has not ended by itself.

mod audit;
mod hostile;
mod pki;
mod plan;
mod proxy;
mod rotation;
mod scenarios;
mod stage;
mod survey;
mod users;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use gc_client::Config;

use crate::api::Api;
use crate::cargo::build_release_daemon;
use crate::chaos::pki::Pki;
use crate::chaos::plan::Kind;
use crate::chaos::scenarios::{ALL, Scenario};
use crate::chaos::stage::{Place, Stage};
use crate::dirs::RunDir;
use crate::failure::Failure;
use crate::flags;
use crate::interrupt;
use crate::kinds::{self, definition, version};
use crate::poll::{Look, eventually};
use crate::random::Random;
use crate::rig::{Extras, Rig, binaries};

const RBAC: &str = include_str!("../../../deploy/rbac.yaml");

/// Within this, after the last fault and the last request of a user, everything is as it must be.
pub const RECOVERY: Duration = Duration::from_secs(60);
/// Of the daemon, whatever happens.
pub const PEAK_BYTES_MAX: u64 = 128 << 20;
/// Of one processor, while a server is away: the share that the daemon may use.
pub const QUIET_CPU_MAX: f64 = 0.1;
/// The same when there is nothing to do.
pub const IDLE_CPU_MAX: f64 = 0.05;
/// What the daemon may ask for each object of a plan, and for each second that a scenario lasts. An object costs a
/// handful of requests when all goes well; each of some sixty watches may be begun anew every second or so while
/// connections are cut.
pub const REQUESTS_MAX: (usize, usize) = (12, 100);

/// In the short run: objects of a scenario, and how long a process stands still.
const SHORT: (usize, Duration) = (1_200, Duration::from_secs(4));
/// In the long run.
const LONG: (usize, Duration) = (4_000, Duration::from_secs(60));

/// Runs the scenarios; the exit code says whether all passed.
///
/// # Errors
///
/// When the servers cannot be built or started, or a signal comes.
pub fn run(flags: &flags::Chaos) -> Result<ExitCode, Failure> {
    let is_chosen = |scenario: &&Scenario| {
        let is_due = flags.list || flags.minutes.is_some() || !scenario.is_long;
        let is_named = flags.only.iter().any(|part| scenario.name.contains(part));
        is_named || (flags.only.is_empty() && is_due)
    };
    let chosen: Vec<&Scenario> = ALL.iter().filter(is_chosen).collect();
    if flags.list {
        for Scenario { name, sentence, is_long, .. } in chosen {
            println!(
                "{name:<22} {sentence}{}",
                if *is_long { " (only with --minutes or by name)" } else { "" }
            );
        }
        return Ok(ExitCode::SUCCESS);
    }
    if chosen.is_empty() {
        return Err(Failure::new("no scenario has such a name; see --list"));
    }
    let mut run_dir = RunDir::new("gc-chaos")?;
    let result = run_all(flags, &chosen, &run_dir);
    if flags.keep || !matches!(result, Ok((_, 0))) {
        run_dir.keep();
        eprintln!("chaos: logs are kept in {}", run_dir.path().display());
    }
    let (passed, failed) = result?;
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How many passed and how many failed.
fn run_all(flags: &flags::Chaos, chosen: &[&Scenario], run_dir: &RunDir) -> Result<(u32, u32), Failure> {
    let daemon = flags.daemon.clone().map_or_else(build_release_daemon, Ok)?;
    let mut place = Grounds::new(daemon, run_dir)?;
    let (began, mut tally) = (Instant::now(), (0, 0));
    let mut seed = flags.seed.unwrap_or_else(Random::fresh_seed);
    for round in 0.. {
        // With --minutes, the short run comes first: what it finds it finds soon.
        let (objects, pause) = if round == 0 && flags.minutes.is_none() { SHORT } else { LONG };
        let objects = flags.objects.unwrap_or(objects);
        let pause = flags.pause_seconds.map_or(pause, Duration::from_secs);
        eprintln!("chaos: --seed {seed}, {objects} objects a scenario, pauses of {} s", pause.as_secs());
        for scenario in chosen {
            let passed = place.run_one(scenario, seed, objects, pause)?;
            tally = (tally.0 + u32::from(passed), tally.1 + u32::from(!passed));
            if is_over(flags, began) {
                return Ok(tally);
            }
        }
        if flags.minutes.is_none() {
            break;
        }
        seed = seed.wrapping_add(1);
    }
    if tally.1 > 0 {
        place.rig.keep_files();
        eprintln!("chaos: servers' logs are kept in {}", place.rig.dir().display());
    }
    Ok(tally)
}

fn is_over(flags: &flags::Chaos, began: Instant) -> bool {
    flags.minutes.is_some_and(|minutes| began.elapsed() >= Duration::from_secs(60 * minutes))
}

/// What all scenarios share.
struct Grounds {
    rig: Rig,
    api: Api,
    pki: Pki,
    daemon: std::path::PathBuf,
    dir: std::path::PathBuf,
    /// How many scenarios have been run.
    count: u32,
}

impl Grounds {
    fn new(daemon: std::path::PathBuf, run_dir: &RunDir) -> Result<Grounds, Failure> {
        let pki = Pki::new(run_dir.path())?;
        let extras = Extras {
            audit_policy: Some(audit::POLICY),
            apiserver_flags: pki.apiserver_flags(),
            authority: Some(pki.both_authorities()),
        };
        let rig = Rig::start_with(binaries()?, extras)?;
        let api = Api::connect(&Config::from_kubeconfig(&rig.admin_kubeconfig(), None)?)?;
        api.create_manifests(RBAC, kinds::of_manifest)?;
        let widget = Kind::Widget.resource();
        let definitions = kinds::custom_resource_definition().path("", "");
        api.create(&definitions, &definition(&widget, &[version("v1", true)]))?;
        eventually("the custom resource is served", RECOVERY, || {
            Ok(match api.get(&widget.path("default", "")) {
                Ok(Some(_)) => Look::Done(()),
                other => Look::NotYet(format!("{other:?}")),
            })
        })?;
        Ok(Grounds { rig, api, pki, daemon, dir: run_dir.path().into(), count: 0 })
    }

    /// Whether it passed; prints its line.
    fn run_one(
        &mut self,
        scenario: &Scenario,
        seed: u64,
        objects: usize,
        pause: Duration,
    ) -> Result<bool, Failure> {
        self.count += 1;
        let dir = self.dir.join(format!("{}-{}", self.count, scenario.name));
        std::fs::create_dir(&dir).map_err(|e| Failure::new(format!("{}: {e}", dir.display())))?;
        let began = Instant::now();
        let mut place = Place {
            rig: &mut self.rig,
            api: &self.api,
            pki: &self.pki,
            daemon: &self.daemon,
            dir: &dir,
            seed,
            objects,
            pause,
        };
        let result = match scenario.run {
            scenarios::Run::OnStage(fault) => {
                Stage::play(&mut place, &format!("chaos-{}", self.count), fault)
            }
            scenarios::Run::Alone(run) => run(&mut place),
        };
        interrupt::check()?;
        let (name, took_s) = (scenario.name, began.elapsed().as_secs_f64());
        match result {
            Ok(figures) => {
                println!("ok {name} {took_s:.0}s: {figures}");
                Ok(true)
            }
            Err(failure) => {
                println!("FAILED {name} (--only {name} --seed {seed}): {failure}");
                println!("# its logs: {}", dir.display());
                Ok(false)
            }
        }
    }
}
