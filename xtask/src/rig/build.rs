//! Builds etcd, kube-apiserver and kube-controller-manager from Go modules and keeps them by version; and Kubernetes'
//! own end-to-end tests, where they are wanted.
//!
//! The recipe is the Go module in `xtask/rig`: its `go.mod` is the one place where versions stand. Which module proxy
//! is asked, and every other setting of Go, comes from the caller's environment.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::dirs;
use crate::failure::{Doing, Failure};
use crate::poll::{Look, eventually};
use crate::process::{is_installed, output, tied};

const GO_MOD: &str = include_str!("../../rig/go.mod");
const GO_SUM: &str = include_str!("../../rig/go.sum");
const QUEUE_GO: &str = include_str!("../../rig/queue/main.go");

const ETCD: &str = "go.etcd.io/etcd/server/v3";
const KUBE_APISERVER: &str = "k8s.io/kubernetes/cmd/kube-apiserver";
const KUBE_CONTROLLER_MANAGER: &str = "k8s.io/kubernetes/cmd/kube-controller-manager";
const SERVERS: [&str; 3] = [ETCD, KUBE_APISERVER, KUBE_CONTROLLER_MANAGER];
/// A package of tests, built by `go test -c`.
const E2E: &str = "k8s.io/kubernetes/test/e2e";

/// From nothing it takes about four minutes on two fast cores; ten times that is a hang.
const BUILD_DEADLINE: Duration = Duration::from_secs(40 * 60);
/// How often progress is told.
const PROGRESS: Duration = Duration::from_secs(15);
/// How many lines of the compiler are kept for the message of a failure.
const KEPT_LINES: usize = 30;

/// The three servers of one version.
#[derive(Clone, Debug)]
pub struct Binaries {
    /// For example `v1.36.3`.
    pub version: String,
    dir: PathBuf,
}

impl Binaries {
    /// The directory of this version.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of etcd.
    pub fn etcd(&self) -> PathBuf {
        self.dir.join("etcd")
    }

    /// The path of kube-apiserver.
    pub fn kube_apiserver(&self) -> PathBuf {
        self.dir.join("kube-apiserver")
    }

    /// The path of kube-controller-manager.
    pub fn kube_controller_manager(&self) -> PathBuf {
        self.dir.join("kube-controller-manager")
    }

    /// Whether all three are there, built by this very recipe.
    fn are_current(&self) -> bool {
        let all = [self.etcd(), self.kube_apiserver(), self.kube_controller_manager()];
        all.iter().all(|path| path.is_file())
            && fs::read_to_string(self.dir.join("go.mod")).is_ok_and(|recipe| recipe == GO_MOD)
    }
}

/// Gives the three servers, built first when they are not there yet.
///
/// # Errors
///
/// One line that says what to install when Go is missing; otherwise what Go said.
pub fn binaries() -> Result<Binaries, Failure> {
    let version = kubernetes_version(GO_MOD)?;
    let rig_dir = dirs::workspace().join("target/rig");
    let binaries = Binaries { dir: rig_dir.join(&version), version };
    if binaries.are_current() {
        return Ok(binaries);
    }
    let _lock = lock(&rig_dir)?;
    // A second build waits for the first one and then finds its result.
    if !binaries.are_current() {
        build(&rig_dir, &binaries)?;
    }
    Ok(binaries)
}

/// Gives Kubernetes' own end-to-end tests as one binary, built first when it is not there yet; it lies beside the
/// servers of its version and is built anew with them.
///
/// # Errors
///
/// As for [`binaries`].
pub fn e2e_test(binaries: &Binaries) -> Result<PathBuf, Failure> {
    let rig_dir = dirs::workspace().join("target/rig");
    let path = binaries.dir.join("e2e.test");
    if path.is_file() {
        return Ok(path);
    }
    let _lock = lock(&rig_dir)?;
    if path.is_file() {
        return Ok(path);
    }
    eprintln!("rig: building the end-to-end tests of Kubernetes {} (minutes, once)", binaries.version);
    let source = write_source(&rig_dir)?;
    refresh_if_stale(&source, &["-test"], &[E2E])?;
    let unfinished = rig_dir.join("unfinished-e2e.test");
    let flags = format!("-s -w {}", version_stamp(&binaries.version)?);
    // Vetting every package that they use would take longer than building them.
    let mut command =
        go(&source, &["test", "-c", "-vet=off", "-trimpath", "-mod=readonly", "-ldflags", &flags, "-o"]);
    command.arg(&unfinished).arg(E2E);
    run_go_build("e2e.test", command)?;
    fs::rename(&unfinished, &path).doing(|| format!("cannot move the build to {}", path.display()))?;
    Ok(path)
}

/// Gives the program that puts client-go's work queue to work, of the version that Kubernetes has; it takes seconds.
///
/// # Errors
///
/// As for [`binaries`].
pub fn queue() -> Result<PathBuf, Failure> {
    let rig_dir = dirs::workspace().join("target/rig");
    let _lock = lock(&rig_dir)?;
    let source = write_source(&rig_dir)?;
    let package = source.join("queue");
    fs::create_dir_all(&package).doing(|| format!("cannot create {}", package.display()))?;
    write(&package.join("main.go"), QUEUE_GO)?;
    let path = rig_dir.join("queue");
    let mut command = go(&source, &["build", "-v", "-trimpath", "-mod=readonly", "-o"]);
    command.arg(&path).arg("./queue");
    run_go_build("client-go's work queue", command)?;
    Ok(path)
}

/// The version of Kubernetes that is built.
///
/// # Errors
///
/// When go.mod names none.
pub fn version() -> Result<String, Failure> {
    kubernetes_version(GO_MOD)
}

/// Fails where Go is missing; otherwise no other build runs while the lock is held.
fn lock(rig_dir: &Path) -> Result<File, Failure> {
    if !is_installed("go") {
        return Err(Failure::new(
            "the rig is built with Go, which is not installed: install Go 1.21 or later (it fetches the version \
             that the rig's go.mod names)",
        ));
    }
    fs::create_dir_all(rig_dir).doing(|| format!("cannot create {}", rig_dir.display()))?;
    let lock = File::create(rig_dir.join(".lock")).doing(|| "cannot create the rig's lock file".into())?;
    lock.lock().doing(|| "cannot lock the rig's directory".into())?;
    Ok(lock)
}

/// A copy of the Go module, where Go may write.
fn write_source(rig_dir: &Path) -> Result<PathBuf, Failure> {
    let source = rig_dir.join("src");
    fs::create_dir_all(&source).doing(|| format!("cannot create {}", source.display()))?;
    write(&source.join("go.mod"), GO_MOD)?;
    write(&source.join("go.sum"), GO_SUM)?;
    Ok(source)
}

/// Builds into a directory beside the final one and renames it at the end, so that a build that is killed leaves
/// nothing that looks finished.
fn build(rig_dir: &Path, binaries: &Binaries) -> Result<(), Failure> {
    let source = write_source(rig_dir)?;
    let unfinished = rig_dir.join("unfinished");
    fs::remove_dir_all(&unfinished).ok();
    fs::create_dir_all(&unfinished).doing(|| format!("cannot create {}", unfinished.display()))?;

    let version = &binaries.version;
    eprintln!("rig: building etcd, kube-apiserver and kube-controller-manager {version} (minutes, once)");
    let start = Instant::now();
    refresh_if_stale(&source, &[], &SERVERS)?;
    let flags = format!("-s -w {}", version_stamp(version)?);
    let mut kubernetes =
        go(&source, &["build", "-v", "-trimpath", "-mod=readonly", "-ldflags", &flags, "-o"]);
    kubernetes.arg(&unfinished).args([KUBE_APISERVER, KUBE_CONTROLLER_MANAGER]);
    run_go_build("kube-apiserver and kube-controller-manager", kubernetes)?;
    let mut etcd = go(&source, &["build", "-v", "-trimpath", "-mod=readonly", "-ldflags", "-s -w", "-o"]);
    etcd.arg(unfinished.join("etcd")).arg(ETCD);
    run_go_build("etcd", etcd)?;
    write(&unfinished.join("go.mod"), GO_MOD)?;

    fs::remove_dir_all(&binaries.dir).ok();
    fs::rename(&unfinished, &binaries.dir)
        .doing(|| format!("cannot move the build to {}", binaries.dir.display()))?;
    eprintln!("rig: built in {} s, kept in {}", start.elapsed().as_secs(), binaries.dir.display());
    Ok(())
}

/// The committed `go.sum` is enough as long as somebody ran `go mod tidy -e` after the last change of versions;
/// otherwise it is done here, in the copy. `-e`: some packages that only tests of Kubernetes import do not exist as
/// modules.
fn refresh_if_stale(source: &Path, flags: &[&str], packages: &[&str]) -> Result<(), Failure> {
    let mut list = go(source, &["list", "-deps", "-mod=readonly", "-f", "{{.ImportPath}}"]);
    list.args(flags).args(packages);
    eprintln!("rig: fetching modules");
    let Err(stale) = output("go list", list) else { return Ok(()) };
    eprintln!("rig: go.mod and go.sum do not fit, refreshing them ({stale})");
    output("go mod tidy", go(source, &["mod", "tidy", "-e"]))?;
    eprintln!("rig: refreshed; copy go.mod and go.sum from {} to xtask/rig", source.display());
    Ok(())
}

/// Pure Go, so that no C compiler is needed.
fn go(source: &Path, args: &[&str]) -> Command {
    let mut command = tied("go");
    command.current_dir(source).env("CGO_ENABLED", "0").args(args);
    command
}

/// Runs `go build -v`, whose standard error names each package as it is compiled, or `go test -c`, which names none, and
/// tells the progress.
fn run_go_build(what: &str, mut command: Command) -> Result<(), Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().doing(|| "cannot start go".into())?;
    let progress = Arc::new(Mutex::new(Progress::default()));
    let reader = child.stderr.take().map(|stderr| follow(stderr, Arc::clone(&progress))).transpose()?;

    let start = Instant::now();
    let mut told = Instant::now();
    let ended = eventually(&format!("go builds {what}"), BUILD_DEADLINE, || {
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            let packages = progress.lock().unwrap_or_else(PoisonError::into_inner).packages;
            let compiled =
                if packages > 0 { format!("{packages} packages compiled, ") } else { String::new() };
            eprintln!("rig: {what}: {compiled}{} s", start.elapsed().as_secs());
        }
        let status = child.try_wait().doing(|| "cannot wait for go".into())?;
        Ok(status.map_or_else(|| Look::NotYet("still building".into()), Look::Done))
    });
    if ended.is_err() {
        child.kill().ok();
        child.wait().ok();
    }
    if let Some(reader) = reader {
        // It only reads lines; a panic there would lose nothing but the message.
        reader.join().ok();
    }
    let status = ended?;
    if status.success() {
        return Ok(());
    }
    let progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
    let said: Vec<&str> = progress.last_lines.iter().map(String::as_str).collect();
    Err(Failure::new(format!("go build of {what} ended with {status}:\n{}", said.join("\n"))))
}

#[derive(Default)]
struct Progress {
    packages: usize,
    last_lines: VecDeque<String>,
}

fn follow(stderr: ChildStderr, progress: Arc<Mutex<Progress>>) -> Result<thread::JoinHandle<()>, Failure> {
    let read = move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
            progress.packages += 1;
            progress.last_lines.push_back(line);
            if progress.last_lines.len() > KEPT_LINES {
                progress.last_lines.pop_front();
            }
        }
    };
    thread::Builder::new().name("go-build-log".into()).spawn(read).doing(|| "cannot start a thread".into())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).doing(|| format!("cannot write {}", path.display()))
}

/// The version of `k8s.io/kubernetes` in a `go.mod`.
fn kubernetes_version(go_mod: &str) -> Result<String, Failure> {
    let mut words = go_mod.lines().map(str::split_whitespace);
    let version = words.find_map(|mut line| {
        let is_kubernetes = line.next() == Some("k8s.io/kubernetes");
        is_kubernetes.then(|| line.next()).flatten().filter(|version| version.starts_with('v'))
    });
    version
        .map(str::to_owned)
        .ok_or_else(|| Failure::new("the rig's go.mod does not require k8s.io/kubernetes"))
}

/// Linker flags that stamp the version; without them a server says `v0.0.0-master+$Format:%H$`, which kubectl cannot
/// parse.
fn version_stamp(version: &str) -> Result<String, Failure> {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        return Err(Failure::new(format!("{version} in the rig's go.mod is no version")));
    };
    let set = |name: &str, value: &str| format!("-X k8s.io/component-base/version.{name}={value}");
    let stamps = [
        set("gitVersion", version),
        set("gitMajor", major),
        set("gitMinor", minor),
        set("gitCommit", "0"),
        set("gitTreeState", "clean"),
    ];
    Ok(stamps.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_stands_in_go_mod_only() {
        let go_mod = "module x\n\nrequire (\n\tk8s.io/kubernetes v1.36.3 // indirect\n)\n";
        assert_eq!(kubernetes_version(go_mod).unwrap(), "v1.36.3");
        assert!(kubernetes_version("module x\n").is_err());
        assert!(kubernetes_version(GO_MOD).unwrap().starts_with("v1."));
    }

    #[test]
    fn the_version_is_stamped_as_kubectl_wants_it() {
        let stamp = version_stamp("v1.36.3").unwrap();
        for part in ["gitVersion=v1.36.3", "gitMajor=1 ", "gitMinor=36 "] {
            assert!(stamp.contains(part), "{stamp}");
        }
        assert!(version_stamp("v1").is_err());
    }
}
