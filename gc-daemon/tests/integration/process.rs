//! The daemon's binary as a child process with its log, and the pages that it serves.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;

/// What a healthy daemon and simulator do within milliseconds may take so long on a machine that is busy with a build.
pub const DEADLINE: Duration = Duration::from_secs(20);
/// Between two looks at a condition.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// So much of the log is shown when a test fails.
const LINES_SHOWN: usize = 60;

/// Looks until there is something, and fails with `what` after the deadline.
pub fn eventually<T>(what: &str, deadline: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < deadline, "not within {} s: {what}", deadline.as_secs());
        std::thread::sleep(LOOK_EVERY);
    }
}

/// A running daemon. Dropping it kills it, and fails the test if any of its threads has panicked.
pub struct Daemon {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
    kubeconfig: PathBuf,
}

impl Daemon {
    /// Starts it for the server at a URL, with health and metrics on a port of its own choice.
    pub fn start(url: &str, flags: &[&str]) -> Daemon {
        let kubeconfig = write_kubeconfig(&kubeconfig(url));
        let mut command = command();
        command.arg("--kubeconfig").arg(&kubeconfig).args(["--metrics-bind-address", "127.0.0.1:0"]);
        let mut child = command.args(flags).stderr(Stdio::piped()).spawn().unwrap();
        let (log, stderr) = (Arc::new(Mutex::new(Vec::new())), child.stderr.take().unwrap());
        let lines = log.clone();
        let read = move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                lines.lock().unwrap().push(line);
            }
        };
        let reader = std::thread::Builder::new().name("log".into()).spawn(read).unwrap();
        Daemon { child, log, reader: Some(reader), kubeconfig }
    }

    /// Waits until it collects.
    pub fn wait_until_ready(&mut self) {
        eventually("it is ready", Duration::from_secs(45), || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("it has ended: {status}");
            }
            let address = self.address_if_known()?;
            (get(address, "/readyz")?.0 == 200).then_some(())
        });
    }

    /// The status code and the body of one of its pages.
    pub fn page(&self, path: &str) -> (u16, String) {
        let address = eventually("it serves its pages", DEADLINE, || self.address_if_known());
        eventually(path, DEADLINE, || get(address, path))
    }

    /// The value of a metric, labels included; none while it has none.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let (_, page) = self.page("/metrics");
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.filter(|value: &f64| value.is_finite())
    }

    /// How many lines of the log contain a text.
    pub fn said(&self, text: &str) -> usize {
        self.log.lock().unwrap().iter().filter(|line| line.contains(text)).count()
    }

    /// The message of the first line that contains a text, without time and place.
    pub fn first_line_with(&self, text: &str) -> String {
        let log = self.log.lock().unwrap();
        let line = log.iter().find(|line| line.contains(text)).expect("it was said");
        line[line.find(text).unwrap()..].to_owned()
    }

    /// SIGTERM, by the shell's own `kill`: the standard library has none.
    pub fn terminate(&mut self) {
        let kill = format!("kill -TERM {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Waits for its end.
    pub fn wait(&mut self, deadline: Duration) -> ExitStatus {
        eventually("it ends", deadline, || self.child.try_wait().unwrap())
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn address_if_known(&self) -> Option<SocketAddr> {
        let log = self.log.lock().unwrap();
        log.iter().find_map(|line| line.rsplit_once("the debug graph are at http://")?.1.trim().parse().ok())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.reader.take().map(JoinHandle::join);
        let _ = std::fs::remove_file(&self.kubeconfig);
        let log = self.log.lock().unwrap();
        if std::thread::panicking() {
            let shown = &log[log.len().saturating_sub(LINES_SHOWN)..];
            println!("the end of the daemon's log:\n{}", shown.join("\n"));
        } else {
            assert!(!log.iter().any(|line| line.contains("panicked")), "{}", log.join("\n"));
        }
    }
}

/// The binary, without any configuration from the environment.
pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gc-daemon"));
    command.env_clear().stdin(Stdio::null());
    command
}

/// A kubeconfig for a server.
pub fn kubeconfig(url: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": url}}],
        "users": [{"name": "it", "user": {}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    })
    .to_string()
}

/// Writes a file of its own for each caller.
pub fn write_kubeconfig(text: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("kubeconfig-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// GET over HTTP/1.1; none when there is no answer.
fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.into()))
}
