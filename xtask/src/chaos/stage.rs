//! The frame of a scenario: a daemon, users at work, faults, recovery, and what is checked afterwards.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::{Api, Policy};
use crate::chaos::audit::audit;
use crate::chaos::pki::Pki;
use crate::chaos::plan::{Family, KINDS, Kind, families};
use crate::chaos::proxy::Proxy;
use crate::chaos::survey::survey;
use crate::chaos::users::Users;
use crate::chaos::{IDLE_CPU_MAX, PEAK_BYTES_MAX, QUIET_CPU_MAX, RECOVERY, REQUESTS_MAX};
use crate::collector::{Collector, Launcher, Program};
use crate::failure::{Doing, Failure};
use crate::kinds;
use crate::poll::{Look, eventually};
use crate::process::Process;
use crate::random::Random;
use crate::rig::Rig;
use crate::vitals;

/// As the daemon's default.
const CONCURRENT_GC_SYNCS: u32 = 20;
/// A server that was killed is ready again within this, on a machine that is busy.
const READY_DEADLINE: Duration = Duration::from_secs(90);
/// Objects that the users create in a second, so that their work lasts as long as the faults of the short run.
const OBJECTS_PER_SECOND: f64 = 200.0;
/// After a fault has begun, this passes before the daemon is expected to be quiet.
const UNTIL_QUIET: Duration = Duration::from_millis(1_500);
/// Over which an idle daemon is measured.
const IDLE: Duration = Duration::from_secs(2);

/// Where a scenario takes place.
pub struct Place<'g> {
    /// The servers.
    pub rig: &'g mut Rig,
    /// An administrator's connection.
    pub api: &'g Api,
    /// Certificates.
    pub pki: &'g Pki,
    /// The binary.
    pub daemon: &'g Path,
    /// For logs and files of this scenario.
    pub dir: &'g Path,
    /// Of every random choice.
    pub seed: u64,
    /// How many objects there are to be.
    pub objects: usize,
    /// How long a process stands still.
    pub pause: Duration,
}

/// A scenario under way, as its faults see it.
pub struct Stage<'s, 'g> {
    /// Where it takes place.
    pub place: &'s mut Place<'g>,
    /// Chooses moments.
    pub random: Random,
    /// Between daemon and API server, where a scenario wants it.
    pub proxy: Proxy,
    launcher: Launcher,
    collector: Option<Collector>,
    recovery: Duration,
    figures: Figures,
}

/// What is printed of a scenario.
#[derive(Default)]
pub struct Figures {
    /// What was done, in words.
    pub faults: Vec<String>,
    /// How many objects were planned to go, and to stay.
    pub objects: (usize, usize),
    /// From the last fault and the last request of a user until everything was as planned, and the limit.
    pub recovered: (Duration, Duration),
    /// The most memory that any daemon of the scenario had.
    pub peak_bytes: u64,
    /// The largest share of a processor while a server was away.
    pub quiet_cpu: Option<f64>,
    /// The share of a processor when all was done.
    pub idle_cpu: Option<f64>,
    /// Of the daemon, and deletions among them.
    pub requests: Option<(usize, usize)>,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.faults.join(", "))?;
        if self.objects != (0, 0) {
            write!(f, "; {} objects gone, {} alive", self.objects.0, self.objects.1)?;
        }
        let (recovered, limit) = self.recovered;
        write!(f, "; recovered in {:.1} s (limit {})", recovered.as_secs_f64(), limit.as_secs())?;
        write!(f, "; peak {} MiB (limit {})", self.peak_bytes >> 20, PEAK_BYTES_MAX >> 20)?;
        if let Some(share) = self.quiet_cpu {
            write!(f, "; CPU in quiet {:.1} % (limit {:.0})", share * 100.0, QUIET_CPU_MAX * 100.0)?;
        }
        if let Some(share) = self.idle_cpu {
            write!(f, "; idle {:.1} % (limit {:.0})", share * 100.0, IDLE_CPU_MAX * 100.0)?;
        }
        if let Some((requests, deletes)) = self.requests {
            write!(f, "; {requests} requests, {deletes} deletes")?;
        }
        Ok(())
    }
}

/// What a scenario does to the daemon and its servers.
pub type Fault = fn(&mut Stage<'_, '_>) -> Result<(), Failure>;

/// Which process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// gc-daemon.
    Daemon,
    /// Behind the API server.
    Etcd,
    /// kube-apiserver.
    ApiServer,
}

impl Stage<'_, '_> {
    /// Plays a scenario from its beginning to its checks.
    ///
    /// # Errors
    ///
    /// When something is not as it must be.
    pub fn play(place: &mut Place<'_>, namespace: &str, fault: Fault) -> Result<Figures, Failure> {
        let mut random = Random::new(place.seed);
        let plan = families(&mut random, place.objects, namespace);
        let api = place.api.clone();
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        api.create(&kinds::namespace().path("", ""), &body)?;
        let began = Instant::now();
        let audited = fs::metadata(place.rig.audit_log()).map_or(0, |metadata| metadata.len());
        let proxy = Proxy::start(place.rig.address(), random.below(u64::MAX))?;
        let launcher = launcher(place, place.rig.daemon_kubeconfig());
        let figures = Figures::default();
        let mut stage =
            Stage { place, random, proxy, launcher, collector: None, recovery: RECOVERY, figures };
        let over = Duration::from_secs_f64(stage.place.objects as f64 / OBJECTS_PER_SECOND);
        let users = Users::new(&api, namespace, &plan, over);
        stage.with_users(&users, fault)?;
        stage.recover(namespace, &plan, &users)?;
        stage.rest(namespace, &plan, &users)?;
        stage.check(&plan, audited, began.elapsed())?;
        clean_up(&api, namespace, &plan)?;
        Ok(stage.figures)
    }

    /// Processes are started on this thread (see [`crate::process`]), so the faults are here and the users elsewhere.
    fn with_users(&mut self, users: &Users<'_>, fault: Fault) -> Result<(), Failure> {
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("users".into());
            let thread = thread.spawn_scoped(scope, || users.run());
            let thread = thread.doing(|| "cannot start a thread".into())?;
            let outcome = fault(self);
            // What a failed scenario has left standing still would hold the users up.
            if outcome.is_err() {
                self.place.rig.apiserver().signal("CONT").ok();
                self.place.rig.etcd().signal("CONT").ok();
            }
            let users = thread.join().unwrap_or_else(|_| Err(Failure::new("the users' thread has panicked")));
            outcome.and(users)
        })
    }

    fn recover(&mut self, namespace: &str, plan: &[Family], users: &Users<'_>) -> Result<(), Failure> {
        let (api, start) = (self.place.api.clone(), Instant::now());
        let collector = &mut self.collector;
        let recovered = eventually("everything is as planned", self.recovery, || {
            if let Some(collector) = collector {
                collector.check_alive()?;
            }
            let survey = survey(&api, namespace, plan, users)?;
            match survey.is_done() {
                true => Ok(Look::Done(survey.alive)),
                false if !survey.wronged.is_empty() => Err(Failure::new(survey.describe())),
                false => Ok(Look::NotYet(survey.describe())),
            }
        });
        let alive = recovered.map_err(|failure| self.with_log(&failure))?;
        let planned: usize = plan.iter().map(Vec::len).sum();
        self.figures.recovered = (start.elapsed(), self.recovery);
        self.figures.objects = (planned - alive, alive);
        Ok(())
    }

    /// What has come right stays so, and costs nothing.
    fn rest(&mut self, namespace: &str, plan: &[Family], users: &Users<'_>) -> Result<(), Failure> {
        let api = self.place.api.clone();
        // Garbage that is made now is handled after everything before it.
        for kind in KINDS {
            self.collects(namespace, kind, RECOVERY)?;
        }
        let share = self.cpu_share(IDLE)?;
        self.figures.idle_cpu = Some(share);
        if share > IDLE_CPU_MAX {
            return Err(Failure::new(format!("an idle daemon uses {:.1} % of a processor", share * 100.0)));
        }
        let survey = survey(&api, namespace, plan, users)?;
        if survey.is_done() { Ok(()) } else { Err(Failure::new(survey.describe())) }
    }

    fn check(&mut self, plan: &[Family], audited: u64, lasted: Duration) -> Result<(), Failure> {
        self.note_peak()?;
        self.collector.take();
        for log in logs(self.place.dir)? {
            let text = fs::read_to_string(&log).unwrap_or_default();
            if let Some(line) = text.lines().find(|line| line.contains("panicked")) {
                return Err(Failure::new(format!("{}: {line}", log.display())));
            }
        }
        let may_go = plan.iter().flatten().filter(|member| member.in_the_end.is_none());
        let mut may_go: BTreeSet<(String, String)> =
            may_go.map(|member| (member.kind.resource().resource, member.name.clone())).collect();
        may_go.extend(KINDS.map(|kind| (kind.resource().resource, CANARY.to_owned())));
        let audit = audit(&self.place.rig.audit_log(), audited, &may_go)?;
        self.figures.requests = Some((audit.requests, audit.deletes));
        let objects: usize = plan.iter().map(Vec::len).sum();
        let lasted_s = usize::try_from(lasted.as_secs()).unwrap_or(usize::MAX);
        let requests_max = REQUESTS_MAX.0 * objects + REQUESTS_MAX.1 * lasted_s;
        if audit.requests > requests_max {
            return Err(Failure::new(format!("{} requests, more than {requests_max}", audit.requests)));
        }
        if self.figures.peak_bytes > PEAK_BYTES_MAX {
            return Err(Failure::new(format!("a peak of {} MiB", self.figures.peak_bytes >> 20)));
        }
        Ok(())
    }

    fn with_log(&self, failure: &Failure) -> Failure {
        let tail = self.collector.as_ref().map(Collector::log_tail).unwrap_or_default();
        Failure::new(format!("{failure}\n{tail}"))
    }
}

/// The daemon.
impl Stage<'_, '_> {
    /// Says what was done.
    pub fn note(&mut self, what: impl Into<String>) {
        self.figures.faults.push(what.into());
    }

    /// Allows another time than usual.
    pub fn recovers_within(&mut self, limit: Duration) {
        self.recovery = limit;
    }

    /// Connects daemons that are started from now on with another kubeconfig.
    pub fn use_kubeconfig(&mut self, kubeconfig: PathBuf) {
        self.launcher = launcher(self.place, kubeconfig);
    }

    /// Connects them through the proxy.
    ///
    /// # Errors
    ///
    /// When no kubeconfig can be written for it.
    pub fn use_proxy(&mut self) -> Result<(), Failure> {
        let path = self.place.rig.daemon_kubeconfig();
        let direct = fs::read_to_string(&path).doing(|| format!("cannot read {}", path.display()))?;
        let mut kubeconfig: Value = serde_json::from_str(&direct).doing(|| "a kubeconfig of ours".into())?;
        kubeconfig["clusters"][0]["cluster"]["server"] = json!(format!("https://{}", self.proxy.address()));
        let path = self.place.dir.join("proxied.kubeconfig");
        fs::write(&path, kubeconfig.to_string()).doing(|| format!("cannot write {}", path.display()))?;
        self.use_kubeconfig(path);
        Ok(())
    }

    /// Starts the daemon and waits until it collects.
    ///
    /// # Errors
    ///
    /// When it does not.
    pub fn start_daemon(&mut self) -> Result<(), Failure> {
        self.collector = Some(self.launcher.start(CONCURRENT_GC_SYNCS)?);
        Ok(())
    }

    /// Waits until garbage that is made now has gone.
    ///
    /// # Errors
    ///
    /// When it is still there at the deadline, or the daemon has ended.
    pub fn collects(&mut self, namespace: &str, kind: Kind, deadline: Duration) -> Result<(), Failure> {
        let path = self.canary(namespace, kind)?;
        self.canary_goes(&path, deadline).map(drop)
    }

    /// Makes garbage, and gives its path.
    ///
    /// # Errors
    ///
    /// When the server refuses.
    pub fn canary(&mut self, namespace: &str, kind: Kind) -> Result<String, Failure> {
        let resource = kind.resource();
        let nobody = json!({
            "apiVersion": resource.api_version(), "kind": resource.kind, "name": "nobody",
            "uid": "00000000-dead-4bad-8bad-000000000002",
        });
        let canary = json!({
            "apiVersion": resource.api_version(), "kind": resource.kind,
            "metadata": { "name": CANARY, "ownerReferences": [nobody] },
        });
        self.place.api.create(&resource.path(namespace, ""), &canary)?;
        Ok(resource.path(namespace, CANARY))
    }

    /// Waits until it has gone; how long that took.
    ///
    /// # Errors
    ///
    /// When it is still there at the deadline, or the daemon has ended.
    pub fn canary_goes(&mut self, path: &str, deadline: Duration) -> Result<Duration, Failure> {
        let (api, start) = (self.place.api, Instant::now());
        let collector = &mut self.collector;
        let outcome = eventually(&format!("{path}, which nobody owns, is gone"), deadline, || {
            if let Some(collector) = collector {
                collector.check_alive()?;
            }
            Ok(api.get(path)?.map_or(Look::Done(()), |_| Look::NotYet("there".into())))
        });
        outcome.map_err(|failure| self.with_log(&failure))?;
        Ok(start.elapsed())
    }

    fn daemon(&self) -> Result<&Process, Failure> {
        self.collector.as_ref().map(Collector::process).ok_or_else(|| Failure::new("no daemon runs"))
    }

    fn note_peak(&mut self) -> Result<(), Failure> {
        let peak = vitals::peak_bytes(self.daemon()?.id())?;
        self.figures.peak_bytes = self.figures.peak_bytes.max(peak);
        Ok(())
    }

    /// The share of a processor that the daemon uses while this waits.
    fn cpu_share(&self, over: Duration) -> Result<f64, Failure> {
        let pid = self.daemon()?.id();
        let (start, before) = (Instant::now(), vitals::cpu(pid)?);
        sleep(over)?;
        let used = vitals::cpu(pid)?.saturating_sub(before);
        Ok(used.as_secs_f64() / start.elapsed().as_secs_f64())
    }

    /// Lets a fault last, and sees to it that the daemon does not go round in circles meanwhile.
    ///
    /// # Errors
    ///
    /// When it does, or has ended.
    pub fn quiet(&mut self, lasts: Duration) -> Result<(), Failure> {
        let settling = UNTIL_QUIET.min(lasts / 2);
        sleep(settling)?;
        let share = self.cpu_share(lasts.saturating_sub(settling))?;
        let most = self.figures.quiet_cpu.unwrap_or_default().max(share);
        self.figures.quiet_cpu = Some(most);
        if share > QUIET_CPU_MAX {
            let percent = share * 100.0;
            return Err(Failure::new(format!("the daemon uses {percent:.1} % of a processor in vain")));
        }
        Ok(())
    }

    /// Waits up to so long.
    ///
    /// # Errors
    ///
    /// When a signal comes.
    pub fn wait_a_moment(&mut self, at_most: Duration) -> Result<(), Failure> {
        let ms = u64::try_from(at_most.as_millis()).unwrap_or(u64::MAX);
        sleep(Duration::from_millis(50 + self.random.below(ms)))
    }
}

/// Faults.
impl Stage<'_, '_> {
    /// SIGKILL; after so long, a new process.
    ///
    /// # Errors
    ///
    /// When it does not come up again.
    pub fn kill(&mut self, victim: Victim, away: Duration) -> Result<(), Failure> {
        match victim {
            Victim::Daemon => {
                self.note_peak()?;
                if let Some(collector) = self.collector.take() {
                    collector.kill();
                }
                sleep(away)?;
                self.collector = Some(self.launcher.spawn(CONCURRENT_GC_SYNCS)?);
                return Ok(());
            }
            Victim::Etcd => {
                self.place.rig.etcd().kill();
                self.quiet(away)?;
                self.place.rig.restart_etcd()?;
            }
            Victim::ApiServer => {
                self.place.rig.apiserver().kill();
                self.quiet(away)?;
                self.place.rig.restart_apiserver()?;
            }
        }
        self.server_is_ready()
    }

    /// SIGSTOP, and SIGCONT after so long.
    ///
    /// # Errors
    ///
    /// When the process has ended.
    pub fn pause(&mut self, victim: Victim, lasts: Duration) -> Result<(), Failure> {
        self.signal(victim, "STOP")?;
        let outcome = if victim == Victim::Daemon { sleep(lasts) } else { self.quiet(lasts) };
        self.signal(victim, "CONT")?;
        outcome
    }

    fn signal(&mut self, victim: Victim, name: &str) -> Result<(), Failure> {
        match victim {
            Victim::Daemon => self.daemon()?.signal(name),
            Victim::Etcd => self.place.rig.etcd().signal(name),
            Victim::ApiServer => self.place.rig.apiserver().signal(name),
        }
    }

    /// Waits until the API server answers again.
    ///
    /// # Errors
    ///
    /// When it does not.
    pub fn server_is_ready(&mut self) -> Result<(), Failure> {
        let (rig, api) = (&mut *self.place.rig, self.place.api);
        eventually("the API server is ready again", READY_DEADLINE, || {
            rig.check_alive()?;
            Ok(match api.text("/readyz") {
                Ok(_) => Look::Done(()),
                Err(failure) => Look::NotYet(failure.to_string()),
            })
        })
    }
}

/// An object of nobody's that shows that the daemon collects.
const CANARY: &str = "canary";

fn launcher(place: &Place<'_>, kubeconfig: PathBuf) -> Launcher {
    Launcher::new(Program::Daemon(place.daemon.into()), kubeconfig, place.dir)
}

/// Sleeps, and notices a signal meanwhile.
pub fn sleep(lasts: Duration) -> Result<(), Failure> {
    let start = Instant::now();
    while start.elapsed() < lasts {
        crate::interrupt::check()?;
        thread::sleep(lasts.saturating_sub(start.elapsed()).min(Duration::from_millis(100)));
    }
    Ok(())
}

/// The logs of all daemons of a scenario.
fn logs(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(dir).doing(|| format!("cannot read {}", dir.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(paths.filter(|path| path.extension().is_some_and(|extension| extension == "log")).collect())
}

/// What was planned to stay would be in every later daemon's graph.
fn clean_up(api: &Api, namespace: &str, plan: &[Family]) -> Result<(), Failure> {
    for kind in KINDS.into_iter().filter(|kind| kind.resource().namespaced) {
        api.delete(&kind.resource().path(namespace, ""), Policy::Background)?;
    }
    let cluster_scoped = plan.iter().flatten().filter(|member| !member.kind.resource().namespaced);
    for member in cluster_scoped.filter(|member| member.in_the_end.is_some()) {
        api.delete(&member.kind.resource().path("", &member.name), Policy::Background)?;
    }
    Ok(())
}
