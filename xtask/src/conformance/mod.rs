//! `cargo xtask conformance`: Kubernetes' own tests of garbage collection, unchanged, against the daemon.
//!
//! The rig, with every controller of kube-controller-manager but its collector (and the two that would evict from a
//! node that has no kubelet); a Node that says it is ready, since the suite wants one to schedule to; and a collector,
//! the only one. Pods stay pending: no scheduler and no kubelet run, and the specs want objects, not processes.

mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use gc_client::Config;
use serde_json::json;

use crate::api::Api;
use crate::cargo::build_release_daemon;
use crate::collector::{Collector, Launcher, Program};
use crate::conformance::report::Outcome;
use crate::dirs::RunDir;
use crate::failure::{Doing, Failure};
use crate::flags::{CollectorKind, Conformance};
use crate::kinds;
use crate::poll::{Look, eventually};
use crate::process::{Process, tied};
use crate::random::Random;
use crate::rig::{self, Rig, conditional_deletes};

const RBAC: &str = include_str!("../../../deploy/rbac.yaml");

/// What stays switched off. Without a kubelet's leases the node would soon count as lost, and its Pods as doomed.
const CONTROLLERS: &str =
    "--controllers=*,-garbage-collector-controller,-node-lifecycle-controller,-taint-eviction-controller";

/// The reference's default, which is the daemon's too.
const CONCURRENT_GC_SYNCS: u32 = 20;

/// The suite makes as many Pods as half of what its nodes take, at most 100: with this many it makes those 100.
const ALLOCATABLE_PODS: &str = "250";

/// The controllers work within seconds; the rest is for slow machines.
const CONTROLLERS_DEADLINE: Duration = Duration::from_secs(90);
/// The 11 specs take about five minutes, most of it waiting for what must not happen.
const SUITE_DEADLINE: Duration = Duration::from_secs(40 * 60);
/// How often progress is told.
const PROGRESS: Duration = Duration::from_secs(15);

/// Runs the specs; the exit code says whether all passed.
///
/// # Errors
///
/// When the servers, the collector or the suite cannot be built or started, or one of them ends on its own.
pub fn run(flags: &Conformance) -> Result<ExitCode, Failure> {
    let mut run_dir = RunDir::new("gc-conformance")?;
    let outcome = Suite::start(flags, &run_dir).and_then(|mut suite| {
        let outcome = suite.run(flags, &run_dir);
        if flags.keep || outcome.as_ref().map_or(true, |outcome| outcome.failed > 0) {
            suite.rig.keep_files();
            eprintln!("conformance: servers' logs are kept in {}", suite.rig.dir().display());
        }
        outcome
    });
    if flags.keep || outcome.as_ref().map_or(true, |outcome| outcome.failed > 0) {
        run_dir.keep();
        eprintln!("conformance: logs are kept in {}", run_dir.path().display());
    }
    let outcome = outcome?;
    for line in &outcome.lines {
        println!("{line}");
    }
    println!("{} passed, {} failed", outcome.passed, outcome.failed);
    let all_passed = outcome.failed == 0 && outcome.passed > 0;
    Ok(if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The order of the fields is the order in which they are dropped: clients of a server before the server.
struct Suite {
    collector: Collector,
    controllers: Process,
    rig: Rig,
    binary: PathBuf,
}

impl Suite {
    /// Everything that is slow and can fail without a server is done before one is started.
    fn start(flags: &Conformance, run_dir: &RunDir) -> Result<Suite, Failure> {
        let binaries = rig::binaries()?;
        let binary = rig::e2e_test(&binaries)?;
        let daemon = match flags.collector {
            CollectorKind::Daemon => Some(flags.daemon.clone().map_or_else(build_release_daemon, Ok)?),
            CollectorKind::Reference => None,
        };
        let rig = Rig::start(binaries)?;
        let api = Api::connect(&Config::from_kubeconfig(&rig.admin_kubeconfig(), None)?)?;
        api.create_manifests(RBAC, kinds::of_manifest)?;
        create_ready_node(&api)?;
        let program = daemon.map_or_else(|| Program::Reference(rig.reference()), Program::Daemon);
        let mut launcher = Launcher::new(program, rig.daemon_kubeconfig(), run_dir.path());
        let collector = launcher.start(CONCURRENT_GC_SYNCS)?;
        let controllers = start_controllers(&rig, &api, run_dir)?;
        Ok(Suite { collector, controllers, rig, binary })
    }

    fn run(&mut self, flags: &Conformance, run_dir: &RunDir) -> Result<Outcome, Failure> {
        let seed = flags.seed.map_or_else(Random::fresh_seed, u64::from);
        let [log, report] = [run_dir.file("suite.log"), run_dir.file("report.json")];
        eprintln!("conformance: --seed {seed}; logs in {}", run_dir.path().display());
        let mut suite = tied(&self.binary);
        suite.arg("--kubeconfig").arg(self.rig.admin_kubeconfig());
        suite.args(["--provider=skeleton", "--allowed-not-ready-nodes=-1", "--minStartupPods=0"]);
        suite.args(["--ginkgo.v", "--ginkgo.no-color", "--ginkgo.silence-skips", "--ginkgo.fail-on-empty"]);
        suite.args(["--ginkgo.seed", &seed.to_string(), "--ginkgo.focus", &flags.focus]);
        suite.arg("--ginkgo.json-report").arg(&report);
        // It writes files of its own below the directory that it runs in.
        suite.current_dir(run_dir.path());
        let mut suite = Process::start("the suite", suite, &log)?;
        let status = self.wait_for(&mut suite)?;
        let outcome = fs::read_to_string(&report).doing(|| "the suite wrote no report".into());
        let outcome = outcome.and_then(|report| report::read(&report));
        let outcome = outcome.map_err(|failure| failure.context(suite.log_tail()))?;
        // A status that the report does not explain must not pass for success.
        if outcome.failed == 0 && !status.success() {
            return Err(Failure::new(format!("the suite ended with {status}\n{}", suite.log_tail())));
        }
        // The suite looks at what is gone; this, at how. The reference may fall back to the UID alone.
        if flags.collector == CollectorKind::Daemon {
            let n_deletes = conditional_deletes(&self.rig.audit_log())?;
            eprintln!("conformance: {n_deletes} deletions by the daemon, each with UID and resourceVersion");
        }
        Ok(outcome)
    }

    /// Fails as soon as a server ends; the specs would only time out, one after the other.
    fn wait_for(&mut self, suite: &mut Process) -> Result<ExitStatus, Failure> {
        let start = Instant::now();
        let mut told = start;
        eventually("the suite ends", SUITE_DEADLINE, || {
            self.rig.check_alive()?;
            self.controllers.check_alive()?;
            self.collector.check_alive()?;
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                let n_ended = n_ended_specs(suite.log());
                eprintln!("conformance: {n_ended} specs have ended, {} s", start.elapsed().as_secs());
            }
            Ok(suite.ended()?.map_or_else(|| Look::NotYet("still running".into()), Look::Done))
        })
    }
}

/// A spec's end is a bullet with its time in the suite's log. For the progress line only; what counts is the report.
fn n_ended_specs(log: &Path) -> usize {
    let log = fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&log).lines().filter(|line| line.starts_with("• [")).count()
}

/// A node without a kubelet. The admission plugin that taints new nodes as not ready runs on creation only.
fn create_ready_node(api: &Api) -> Result<(), Failure> {
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "conformance" } });
    api.create("/api/v1/nodes", &node)?;
    let resources = json!({ "cpu": "64", "memory": "256Gi", "pods": ALLOCATABLE_PODS });
    let status = json!({ "status": {
        "conditions": [{ "type": "Ready", "status": "True", "reason": "SaysSo", "message": "no kubelet runs" }],
        "capacity": resources,
        "allocatable": resources,
    } });
    let patches = [("/status", status), ("", json!({ "spec": { "taints": null } }))];
    for (subresource, patch) in patches {
        let path = format!("/api/v1/nodes/conformance{subresource}");
        let patched = api.merge_patch(&path, &patch)?;
        patched.ok_or_else(|| Failure::new(format!("{path} has gone")))?;
    }
    Ok(())
}

/// Waits until one of them has done something.
fn start_controllers(rig: &Rig, api: &Api, run_dir: &RunDir) -> Result<Process, Failure> {
    let reference = rig.reference();
    let mut command = tied(&reference.binary);
    command.args([CONTROLLERS, "--leader-elect=false", "-v=2"]);
    // Nobody asks it anything, and a fixed port could be taken.
    command.args(["--bind-address=127.0.0.1", "--secure-port=0"]);
    // With the default of 20 requests a second most of a spec's time is the making of its 100 Pods.
    command.args(["--kube-api-qps=500", "--kube-api-burst=1000"]);
    command.arg("--kubeconfig").arg(rig.admin_kubeconfig());
    command.arg("--service-account-private-key-file").arg(rig.service_account_key());
    // The suite waits for the ConfigMap with this certificate in each namespace.
    command.arg("--root-ca-file").arg(&reference.certificate);
    let log = run_dir.file("kube-controller-manager.log");
    let mut process = Process::start("kube-controller-manager", command, &log)?;
    let path = kinds::service_account().path("default", "default");
    let works = eventually("kube-controller-manager makes a service account", CONTROLLERS_DEADLINE, || {
        process.check_alive()?;
        Ok(api.get(&path)?.map_or_else(|| Look::NotYet("not there".into()), |_| Look::Done(())))
    });
    works.map_err(|failure| Failure::new(format!("{failure}\n{}", process.log_tail())))?;
    Ok(process)
}
