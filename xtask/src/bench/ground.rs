//! Where it is measured, and who.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use gc_client::Config;

use crate::api::Api;
use crate::bench::load::Loader;
use crate::collector::{Collector, Duty, Launcher, Program};
use crate::failure::{Doing, Failure};
use crate::interrupt;
use crate::kinds;
use crate::rig::{Binaries, Extras, Rig};
use crate::vitals;

const RBAC: &str = include_str!("../../../deploy/rbac.yaml");

/// An audit log would cost the server time for each request.
const NO_AUDIT: &str =
    r#"{ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{ "level": "None" }] }"#;

/// Of either collector; the default of both.
pub const WORKERS: u32 = 20;

/// A collector is quiet when it used no more than this in each of two looks.
const QUIET: Duration = Duration::from_millis(10);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// What the reference does after its first lists takes it some seconds.
const QUIET_DEADLINE: Duration = Duration::from_secs(90);

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contender {
    /// The daemon of this repository.
    Ours,
    /// The same, linked statically.
    Static,
    /// kube-controller-manager with the collector and no other controller, without its limit of requests.
    Reference,
    /// The same with its default limit.
    Limited,
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Contender::Ours => "ours",
            Contender::Static => "static",
            Contender::Reference => "reference",
            Contender::Limited => "reference with its default limits",
        })
    }
}

impl Contender {
    /// The program, where it is the daemon.
    pub fn daemon(self, daemons: &Daemons) -> Option<&PathBuf> {
        match self {
            Contender::Ours => Some(&daemons.default),
            Contender::Static => daemons.with_static.as_ref(),
            Contender::Reference | Contender::Limited => None,
        }
    }
}

/// The daemon's binaries.
pub struct Daemons {
    /// As it is built by default.
    pub default: PathBuf,
    /// Linked statically, where that can be built.
    pub with_static: Option<PathBuf>,
}

/// A fresh API server with what is needed to fill it.
pub struct Ground<'b> {
    /// The servers.
    pub rig: Rig,
    /// An administrator's connection.
    pub api: Api,
    /// Many of them.
    pub loader: Loader,
    /// As many of the collectors' own user, for whom the server looks up roles and keeps queues.
    pub peer: Loader,
    daemons: &'b Daemons,
    dir: &'b Path,
    duty: Duty,
    count: u32,
}

/// A collector at work.
pub struct Running {
    collector: Collector,
    /// When its process was started.
    pub started: Instant,
    /// How long it took until it collected.
    pub synced: Duration,
    /// What it had used by then.
    pub cpu_at_sync: Duration,
}

impl<'b> Ground<'b> {
    /// Starts the servers.
    ///
    /// # Errors
    ///
    /// When they do not start.
    pub fn new(binaries: Binaries, daemons: &'b Daemons, dir: &'b Path) -> Result<Ground<'b>, Failure> {
        Ground::with(binaries, daemons, dir, NO_AUDIT, Duty::Garbage)
    }

    /// Starts servers with this audit policy, for programs with this duty.
    ///
    /// # Errors
    ///
    /// When they do not start.
    pub fn with(
        binaries: Binaries,
        daemons: &'b Daemons,
        dir: &'b Path,
        audit_policy: &'static str,
        duty: Duty,
    ) -> Result<Ground<'b>, Failure> {
        let extras = Extras { audit_policy: Some(audit_policy), ..Extras::default() };
        let rig = Rig::start_with(binaries, extras)?;
        let config = Config::from_kubeconfig(&rig.admin_kubeconfig(), None)?;
        let api = Api::connect(&config)?;
        api.create_manifests(RBAC, kinds::of_manifest)?;
        let loader = Loader::new(&config)?;
        let peer = Loader::new(&Config::from_kubeconfig(&rig.daemon_kubeconfig(), None)?)?;
        Ok(Ground { rig, api, loader, peer, daemons, dir, duty, count: 0 })
    }

    /// A name that was not used here before.
    pub fn fresh_name(&mut self) -> String {
        self.count += 1;
        format!("bench-{}", self.count)
    }

    /// Starts a collector and waits until it collects.
    ///
    /// # Errors
    ///
    /// When it does not.
    pub fn start(&mut self, who: Contender) -> Result<Running, Failure> {
        let dir = self.dir.join(format!("{}-{}", self.rig.address().port(), self.fresh_name()));
        fs::create_dir(&dir).doing(|| format!("cannot create {}", dir.display()))?;
        let program = match (who, who.daemon(self.daemons)) {
            (_, Some(daemon)) => Program::Daemon(daemon.clone()),
            (Contender::Reference | Contender::Limited, None) => Program::Reference(self.rig.reference()),
            (Contender::Ours | Contender::Static, None) => {
                return Err(Failure::new("there is no static binary"));
            }
        };
        let flags: &[&str] = match who {
            Contender::Reference => &["--kube-api-qps=10000", "--kube-api-burst=10000"],
            Contender::Ours | Contender::Static | Contender::Limited => &[],
        };
        let mut launcher = Launcher::new(program, self.rig.daemon_kubeconfig(), &dir)
            .with_flags(flags)
            .for_duty(self.duty.clone())
            .logging_like_the_reference();
        let started = Instant::now();
        let collector = launcher.start(WORKERS)?;
        let synced = started.elapsed();
        let cpu_at_sync = vitals::cpu(collector.process().id())?;
        Ok(Running { collector, started, synced, cpu_at_sync })
    }

    /// The same, and waits until it is quiet.
    ///
    /// # Errors
    ///
    /// When it never is.
    pub fn start_quiet(&mut self, who: Contender) -> Result<Running, Failure> {
        let mut running = self.start(who)?;
        running.wait_until_quiet()?;
        Ok(running)
    }
}

impl Running {
    /// Until it hardly uses a processor any more.
    ///
    /// # Errors
    ///
    /// When it always does, or has ended.
    pub fn wait_until_quiet(&mut self) -> Result<(), Failure> {
        let (began, mut quiet, mut before) = (Instant::now(), 0, self.cpu()?);
        while quiet < 2 {
            if began.elapsed() > QUIET_DEADLINE {
                return Err(Failure::new("the collector does not come to rest"));
            }
            self.rest(LOOK_EVERY)?;
            let now = self.cpu()?;
            quiet = if now.saturating_sub(before) <= QUIET { quiet + 1 } else { 0 };
            before = now;
        }
        Ok(())
    }

    /// Lets time pass, and makes sure that the collector still runs.
    ///
    /// # Errors
    ///
    /// When it has ended, or a signal comes.
    pub fn rest(&mut self, time: Duration) -> Result<(), Failure> {
        let until = Instant::now() + time;
        loop {
            interrupt::check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return self.collector.check_alive();
            }
            thread::sleep(left.min(LOOK_EVERY));
        }
    }

    /// Processor time until now.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn cpu(&self) -> Result<Duration, Failure> {
        vitals::cpu(self.collector.process().id())
    }

    /// Resident bytes now.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn resident(&self) -> Result<f64, Failure> {
        Ok(vitals::resident_bytes(self.collector.process().id())? as f64)
    }

    /// Resident bytes at most.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn peak(&self) -> Result<f64, Failure> {
        Ok(vitals::peak_bytes(self.collector.process().id())? as f64)
    }

    /// Threads now.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn threads(&self) -> Result<f64, Failure> {
        Ok(vitals::threads(self.collector.process().id())? as f64)
    }

    /// Where its log is, and the end of it.
    pub fn log_tail(&self) -> String {
        self.collector.log_tail()
    }
}
