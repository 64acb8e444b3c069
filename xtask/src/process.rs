//! Child processes that do not outlive this one.
//!
//! Each is killed when its guard is dropped, which also happens after Ctrl-C and SIGTERM (see [`crate::interrupt`]).
//! For the case that this process is itself killed with SIGKILL, children are started through util-linux's
//! `setpriv --pdeathsig`, where it is installed: the kernel then kills them. That signal is bound to the *thread*
//! that started the child, so servers are started on the main thread.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crate::failure::{Doing, Failure};
use crate::poll::{Look, eventually};

/// How much of a log is shown when a process has failed: enough for the reason, little enough to read.
const TAIL_LINES: usize = 15;

/// A running child process with its output in a file.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

/// A command that dies with this process, see the module's documentation.
pub fn tied(program: impl AsRef<OsStr>) -> Command {
    static SETPRIV: OnceLock<bool> = OnceLock::new();
    let works = SETPRIV.get_or_init(|| {
        let probe =
            Command::new("setpriv").args(["--pdeathsig", "KILL", "true"]).stderr(Stdio::null()).status();
        probe.is_ok_and(|status| status.success())
    });
    if !works {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args([OsString::from("--pdeathsig"), OsString::from("KILL"), program.as_ref().into()]);
    command
}

/// Whether a program of that name is on the `PATH`.
pub fn is_installed(program: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else { return false };
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

impl Process {
    /// Starts a command (made by [`tied`]) whose output is appended to the file `log`.
    ///
    /// # Errors
    ///
    /// When the log cannot be opened or the program cannot be started.
    pub fn start(name: &str, mut command: Command, log: &Path) -> Result<Process, Failure> {
        let open = || File::options().create(true).append(true).open(log);
        let cannot_log = || format!("cannot write {}", log.display());
        let out = open().doing(cannot_log)?;
        let err = open().doing(cannot_log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .doing(|| format!("cannot start {name}"))?;
        Ok(Process { name: name.into(), child, log: log.into() })
    }

    /// Fails when the process has ended on its own, with the end of its log.
    ///
    /// # Errors
    ///
    /// When it has ended, or its state cannot be had.
    pub fn check_alive(&mut self) -> Result<(), Failure> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => {
                Err(Failure::new(format!("{} ended with {status}\n{}", self.name, self.log_tail())))
            }
        }
    }

    /// How it ended, once it has.
    ///
    /// # Errors
    ///
    /// When its state cannot be had.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        self.child.try_wait().doing(|| format!("cannot wait for {}", self.name))
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) {
        // Both fail only when the process has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// Its number, for `/proc`.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGTERM.
    ///
    /// # Errors
    ///
    /// As for [`Process::signal`].
    pub fn terminate(&mut self) -> Result<(), Failure> {
        self.signal("TERM")
    }

    /// A signal by its name, for example `STOP`; by the shell's own `kill`, since the standard library has none and this
    /// package has no unsafe code.
    ///
    /// # Errors
    ///
    /// When the shell cannot be started or the process has gone.
    pub fn signal(&self, name: &str) -> Result<(), Failure> {
        let kill = format!("kill -{name} {}", self.child.id());
        let status = Command::new("sh").args(["-c", &kill]).status().doing(|| "cannot run sh".into())?;
        if status.success() { Ok(()) } else { Err(Failure::new(format!("{kill}: {status}"))) }
    }

    /// Waits for the process to end on its own.
    ///
    /// # Errors
    ///
    /// When it still runs at the deadline.
    pub fn wait(&mut self, deadline: Duration) -> Result<ExitStatus, Failure> {
        eventually(&format!("{} ends", self.name), deadline, || {
            Ok(self.ended()?.map_or_else(|| Look::NotYet("still running".into()), Look::Done))
        })
    }

    /// The file with everything that the process has written.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Everything that the process has written so far; empty where it cannot be read.
    pub fn whole_log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The path of the log and its last lines, for a failure's message.
    pub fn log_tail(&self) -> String {
        format!("# {}:\n{}", self.log.display(), tail(&self.log, TAIL_LINES))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a command to its end, in step with [`crate::interrupt`], with its output on this process' own stderr.
///
/// # Errors
///
/// When it cannot be started, does not succeed, or a signal comes meanwhile.
pub fn run(name: &str, mut command: Command) -> Result<(), Failure> {
    // Standard output stays clean for what a command of ours is asked to print there.
    command.stdin(Stdio::null()).stdout(std::io::stderr());
    let child = command.spawn().doing(|| format!("cannot start {name}"))?;
    let mut process = Process { name: name.into(), child, log: PathBuf::new() };
    // A build from nothing takes minutes; an hour is a hang.
    let status = process.wait(Duration::from_secs(3600))?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("{name} ended with {status}"))) }
}

/// Whether a command succeeds within the deadline; its output is thrown away.
pub fn succeeds(name: &str, mut command: Command, deadline: Duration) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(child) = command.spawn() else { return false };
    let mut process = Process { name: name.into(), child, log: PathBuf::new() };
    process.wait(deadline).is_ok_and(|status| status.success())
}

/// Runs a short command and gives its standard output.
///
/// # Errors
///
/// When it cannot be started or does not succeed; its standard error is then part of the failure.
pub fn output(name: &str, mut command: Command) -> Result<String, Failure> {
    let output = command.stdin(Stdio::null()).output().doing(|| format!("cannot start {name}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("{name} ended with {}: {}", output.status, said.trim())))
}

/// The last lines of a file; of its last 64 KiB only, since logs have no limit of their own.
pub fn tail(path: &Path, lines: usize) -> String {
    use std::io::{Seek, SeekFrom};
    const LIMIT_BYTES: u64 = 64 << 10;
    let mut bytes = Vec::new();
    if let Ok(mut file) = File::open(path) {
        let length = file.metadata().map_or(0, |meta| meta.len());
        file.seek(SeekFrom::Start(length.saturating_sub(LIMIT_BYTES))).ok();
        file.take(LIMIT_BYTES).read_to_end(&mut bytes).ok();
    }
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
