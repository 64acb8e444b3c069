//! A collector as a process: the daemon of this repository, or the reference.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use gc_client::Config;

use crate::api::Api;
use crate::failure::Failure;
use crate::kubeconfig;
use crate::poll::{Look, eventually_to};
use crate::process::{self, Process, tied};
use crate::rig::free_ports;

/// Collection starts 30 s after a start at the latest, with what could be listed until then; the rest is for slow
/// machines.
const READY_DEADLINE: Duration = Duration::from_secs(75);
/// When it is ready is a figure of the bench.
const READY_PRECISION: Duration = Duration::from_millis(10);

/// Starts collectors.
pub struct Launcher {
    program: Program,
    kubeconfig: PathBuf,
    dir: PathBuf,
    flags: Vec<String>,
    duty: Duty,
    /// How much the daemon logs, as klog counts.
    verbosity: u8,
    started: u32,
}

/// What a collector is to do.
#[derive(Clone, Debug)]
pub enum Duty {
    /// To collect garbage, and nothing else.
    Garbage,
    /// To delete Jobs after their TTL, and nothing else.
    Ttl,
    /// Both; the daemon for Volcano's Jobs as well, and for the kinds of the profiles in a file.
    Both(Option<PathBuf>),
}

impl Duty {
    const GARBAGE: &str = "garbage-collector-controller";
    const TTL: &str = "ttl-after-finished-controller";
    const VOLCANO: &str = "volcano-gc-controller";

    /// For the flag `--controllers`.
    fn of_reference(&self) -> String {
        match self {
            Duty::Garbage => Duty::GARBAGE.into(),
            Duty::Ttl => Duty::TTL.into(),
            Duty::Both(_) => [Duty::GARBAGE, Duty::TTL].join(","),
        }
    }

    /// As flags.
    fn of_daemon(&self) -> Vec<OsString> {
        let controllers = match self {
            Duty::Garbage => Duty::GARBAGE.into(),
            Duty::Ttl => Duty::TTL.into(),
            Duty::Both(_) => [Duty::GARBAGE, Duty::TTL, Duty::VOLCANO].join(","),
        };
        let mut flags = vec!["--controllers".into(), controllers.into()];
        if let Duty::Both(Some(config)) = self {
            flags.extend(["--ttl-config".into(), config.into()]);
        }
        flags
    }

    /// Whether the reference's log says that it is at work; no endpoint does.
    fn is_begun(&self, log: &str) -> bool {
        let collects = log.contains("roceeding");
        // Whose caches these are, it does not say.
        let count = |words: &str| log.matches(words).count();
        let are_synced = count("Waiting for caches to sync") <= count("Caches are synced");
        let expires = log.contains("Starting TTL after finished controller") && are_synced;
        match self {
            Duty::Garbage => collects,
            Duty::Ttl => expires,
            Duty::Both(_) => collects && expires,
        }
    }
}

/// What is started.
pub enum Program {
    /// The binary of this repository.
    Daemon(PathBuf),
    /// kube-controller-manager with the reference's controller and no other.
    Reference(Reference),
}

/// What the reference needs from the rig: it serves HTTPS only, with the API server's certificate, which is made for
/// this address, and asks the API server who may read its metrics.
pub struct Reference {
    /// kube-controller-manager.
    pub binary: PathBuf,
    /// In PEM, with its CA.
    pub certificate: PathBuf,
    /// In PEM.
    pub private_key: PathBuf,
    /// For those questions; for its work it has the same rights as the daemon.
    pub admin_kubeconfig: PathBuf,
}

/// A running collector; dropping it kills it.
pub struct Collector {
    is_reference: bool,
    duty: Duty,
    process: Process,
    api: Api,
}

impl Launcher {
    /// Collectors that connect with `kubeconfig` and whose logs go to `dir`.
    pub fn new(program: Program, kubeconfig: PathBuf, dir: &Path) -> Launcher {
        let (flags, duty) = (Vec::new(), Duty::Garbage);
        Launcher { program, kubeconfig, dir: dir.into(), flags, duty, verbosity: 3, started: 0 }
    }

    /// The same, with another duty.
    pub fn for_duty(mut self, duty: Duty) -> Launcher {
        self.duty = duty;
        self
    }

    /// The same, with more flags, which both programs must know.
    pub fn with_flags(mut self, flags: &[&str]) -> Launcher {
        self.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    /// The same, with a daemon that logs as much as the reference does here.
    pub fn logging_like_the_reference(mut self) -> Launcher {
        self.verbosity = 2;
        self
    }

    /// Runs the daemon's program with these flags to its end; what it prints.
    ///
    /// # Errors
    ///
    /// When it does not succeed, or this starts other programs.
    pub fn ask_daemon(&self, flags: &[&str]) -> Result<String, Failure> {
        let Program::Daemon(binary) = &self.program else {
            return Err(Failure::new("the reference answers no questions"));
        };
        let mut command = tied(binary);
        command.args(flags).arg("--kubeconfig").arg(&self.kubeconfig);
        process::output("gc-daemon", command)
    }

    /// Starts one with so many workers and waits until it collects.
    ///
    /// # Errors
    ///
    /// When it ends or does not become ready; the end of its log is part of the failure.
    pub fn start(&mut self, concurrent_gc_syncs: u32) -> Result<Collector, Failure> {
        let mut collector = self.spawn(concurrent_gc_syncs)?;
        collector.wait_until_ready()?;
        Ok(collector)
    }

    /// Starts one and does not wait for it: its server may be away.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn spawn(&mut self, concurrent_gc_syncs: u32) -> Result<Collector, Failure> {
        self.started += 1;
        let [port] = free_ports::<1>()?;
        let (mut command, config) = match &self.program {
            Program::Daemon(binary) => daemon(binary, port, self.verbosity, &self.duty),
            Program::Reference(reference) => {
                let own_kubeconfig = self.dir.join(format!("collector-{}.kubeconfig", self.started));
                reference.prepare(port, &own_kubeconfig, &self.duty)?
            }
        };
        command.args(["--leader-elect=false", "--concurrent-gc-syncs", &concurrent_gc_syncs.to_string()]);
        command.args(&self.flags).arg("--kubeconfig").arg(&self.kubeconfig);
        let log = self.dir.join(format!("collector-{}.log", self.started));
        let process = Process::start("the collector", command, &log)?;
        let is_reference = matches!(self.program, Program::Reference(_));
        Ok(Collector { is_reference, duty: self.duty.clone(), process, api: Api::connect(&config)? })
    }
}

/// The command, and how its metrics are read.
fn daemon(binary: &Path, port: u16, verbosity: u8, duty: &Duty) -> (Command, Config) {
    let address = format!("127.0.0.1:{port}");
    let mut command = tied(binary);
    command.args(["--metrics-bind-address", &address, "-v", &verbosity.to_string()]).args(duty.of_daemon());
    (command, Config::plain(&format!("http://{address}")))
}

impl Reference {
    /// The command, and how its metrics are read, for which a kubeconfig is written.
    fn prepare(&self, port: u16, own_kubeconfig: &Path, duty: &Duty) -> Result<(Command, Config), Failure> {
        let mut command = tied(&self.binary);
        command.args(["--controllers", &duty.of_reference(), "-v", "2"]);
        command.args(["--bind-address", "127.0.0.1", "--secure-port", &port.to_string()]);
        command.args(["--authorization-always-allow-paths", "/healthz,/metrics"]);
        command.arg("--authentication-kubeconfig").arg(&self.admin_kubeconfig);
        command.arg("--authorization-kubeconfig").arg(&self.admin_kubeconfig);
        command.arg("--tls-cert-file").arg(&self.certificate);
        command.arg("--tls-private-key-file").arg(&self.private_key);
        let server = format!("https://127.0.0.1:{port}");
        kubeconfig::write(own_kubeconfig, &server, Some(&self.certificate), None)?;
        Ok((command, Config::from_kubeconfig(own_kubeconfig, None)?))
    }
}

impl Collector {
    fn wait_until_ready(&mut self) -> Result<(), Failure> {
        let path = if self.is_reference { "/healthz" } else { "/readyz" };
        let (process, api, is_reference, duty) =
            (&mut self.process, &self.api, self.is_reference, &self.duty);
        let ready = eventually_to(READY_PRECISION, "the collector is ready", READY_DEADLINE, || {
            process.check_alive()?;
            Ok(match api.text(path) {
                Ok(_) if !is_reference || duty.is_begun(&process.whole_log()) => Look::Done(()),
                Ok(_) => Look::NotYet("healthy, but not at work".into()),
                Err(failure) => Look::NotYet(failure.to_string()),
            })
        });
        ready.map_err(|failure| Failure::new(format!("{failure}\n{}", self.process.log_tail())))
    }

    /// Fails when it has ended on its own.
    ///
    /// # Errors
    ///
    /// With the end of its log.
    pub fn check_alive(&mut self) -> Result<(), Failure> {
        self.process.check_alive()
    }

    /// For its signals and its vital signs.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.process.kill();
    }

    /// SIGTERM; how it ended.
    ///
    /// # Errors
    ///
    /// When it still runs at the deadline.
    pub fn terminate(mut self, deadline: Duration) -> Result<ExitStatus, Failure> {
        self.process.terminate()?;
        self.process.wait(deadline)
    }

    /// The sum of the samples of one metric whose labels contain `label` (for example `name="x"`); 0 where there is
    /// none.
    ///
    /// # Errors
    ///
    /// When `/metrics` does not answer.
    pub fn metric(&self, name: &str, label: &str) -> Result<f64, Failure> {
        Ok(sum_of_samples(&self.api.text("/metrics")?, name, label))
    }

    /// A text that changes when the resources that it watches have: for the reference, how often it has taken over what
    /// discovery says; else which of them have been listed.
    ///
    /// # Errors
    ///
    /// When its metrics do not answer.
    pub fn watched(&self) -> Result<String, Failure> {
        if self.is_reference {
            return Ok(self.process.whole_log().matches("synced garbage collector").count().to_string());
        }
        let metrics = self.api.text("/metrics")?;
        let listed =
            metrics.lines().filter(|line| line.starts_with("gc_kind_synced") && line.ends_with(" 1"));
        Ok(listed.collect())
    }

    /// The path of its log and the last lines.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }
}

fn sum_of_samples(metrics: &str, name: &str, label: &str) -> f64 {
    let samples = metrics.lines().filter_map(|line| line.strip_prefix(name));
    let labelled = samples.filter(|rest| rest.starts_with(['{', ' ']) && rest.contains(label));
    labelled.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_is_ready_when_its_log_says_so_of_each_duty() {
        let collects = "Waiting for caches to sync\nCaches are synced\nProceeding to collect garbage\n";
        let begins = "Starting TTL after finished controller\nWaiting for caches to sync\n";
        let both = Duty::Both(None);
        let begun = |log: &str| [Duty::Garbage, Duty::Ttl, both.clone()].map(|duty| duty.is_begun(log));
        assert_eq!(begun(collects), [true, false, false]);
        assert_eq!(begun(&format!("{collects}{begins}")), [true, false, false]);
        assert_eq!(begun(&format!("{collects}{begins}Caches are synced\n")), [true, true, true]);
    }

    #[test]
    fn metrics_are_summed_by_name_and_label() {
        let text =
            "# HELP retries x\nretries{name=\"a\"} 2\nretries{name=\"b\"} 40\nretries_total{name=\"a\"} 9\n";
        assert_eq!(sum_of_samples(text, "retries", "name=\"a\""), 2.0);
        assert_eq!(sum_of_samples(text, "retries", ""), 42.0);
        assert_eq!(sum_of_samples(text, "absent", ""), 0.0);
    }
}
