//! A real API server on loopback: etcd and kube-apiserver, and kube-controller-manager where it is wanted.
//!
//! No collector, no scheduler, no kubelet and no namespace controller run here: nothing deletes anything but who is
//! told to, and a deleted namespace stays `Terminating` for ever.

mod audit;
mod build;

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gc_client::{Client, Config, Options, Request};

use crate::collector::Reference;
use crate::dirs::RunDir;
use crate::failure::{Doing, Failure};
use crate::kubeconfig;
use crate::poll::{Look, eventually};
use crate::process::{Process, tied};

pub use audit::{accepted_deletes, conditional_deletes, deletes_of};
pub use build::{Binaries, binaries, e2e_test, queue, version};

/// Every deletion with its body, where the preconditions are.
const AUDIT_POLICY: &str = r#"{
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{ "level": "Request", "verbs": ["delete", "deletecollection"] }, { "level": "None" }]
}"#;

/// Who the daemon is: the user name of the service account that `deploy/rbac.yaml` binds.
pub const DAEMON_USER: &str = "system:serviceaccount:kube-system:gc-daemon";

/// Ready in 3 s on two idle cores; builds on the same cores make it slower.
const READY_DEADLINE: Duration = Duration::from_secs(90);

/// What the servers are to have beside the usual.
#[derive(Default)]
pub struct Extras {
    /// Instead of every deletion with its body and nothing else; one JSON document.
    pub audit_policy: Option<&'static str>,
    /// More flags for kube-apiserver.
    pub apiserver_flags: Vec<String>,
    /// Whose certificate clients believe, where those flags give the server one of its own.
    pub authority: Option<PathBuf>,
}

/// A running API server. Dropping it kills the servers and removes their files.
///
/// The order of the fields is the order in which they are dropped: clients of a server before the server.
pub struct Rig {
    apiserver: Process,
    etcd: Process,
    binaries: Binaries,
    extras: Extras,
    ports: [u16; 3],
    server: String,
    dir: RunDir,
}

impl Rig {
    /// Starts etcd and kube-apiserver on free ports of the loopback interface and waits until `/readyz` answers.
    ///
    /// # Errors
    ///
    /// When a server ends or is not ready in time; its log's end is part of the failure, and the directory is kept.
    pub fn start(binaries: Binaries) -> Result<Rig, Failure> {
        Rig::start_with(binaries, Extras::default())
    }

    /// The same with more than the usual.
    ///
    /// # Errors
    ///
    /// As for [`Rig::start`].
    pub fn start_with(binaries: Binaries, extras: Extras) -> Result<Rig, Failure> {
        let mut dir = RunDir::new("gc-rig")?;
        let ports = free_ports::<3>()?;
        let prepared = write_files(&dir, &extras);
        keep_on_failure(&mut dir, prepared)?;
        let started = start_etcd(&binaries, &dir, ports)
            .and_then(|etcd| Ok((etcd, start_apiserver(&binaries, &extras, &dir, ports)?)));
        let (etcd, mut apiserver) = keep_on_failure(&mut dir, started)?;
        let server = format!("https://127.0.0.1:{}", ports[2]);
        let ready = write_kubeconfigs(&dir, &extras, &server)
            .and_then(|()| wait_until_ready(&dir, &extras, &mut apiserver));
        keep_on_failure(&mut dir, ready)?;
        Ok(Rig { apiserver, etcd, binaries, extras, ports, server, dir })
    }

    /// kube-apiserver's process.
    pub fn apiserver(&mut self) -> &mut Process {
        &mut self.apiserver
    }

    /// etcd's process.
    pub fn etcd(&mut self) -> &mut Process {
        &mut self.etcd
    }

    /// Starts kube-apiserver again after it was killed, where it was, and does not wait for it.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn restart_apiserver(&mut self) -> Result<(), Failure> {
        self.apiserver = start_apiserver(&self.binaries, &self.extras, &self.dir, self.ports)?;
        Ok(())
    }

    /// Starts etcd again after it was killed, with its data, and does not wait for it.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn restart_etcd(&mut self) -> Result<(), Failure> {
        self.etcd = start_etcd(&self.binaries, &self.dir, self.ports)?;
        Ok(())
    }

    /// The address that kube-apiserver listens on.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports[2]))
    }

    /// For an administrator (group `system:masters`).
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.dir.file("admin.kubeconfig")
    }

    /// For the daemon, which may do what `deploy/rbac.yaml` allows once that has been applied, and no more.
    pub fn daemon_kubeconfig(&self) -> PathBuf {
        self.dir.file("daemon.kubeconfig")
    }

    /// The server's URL.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The version of the servers.
    pub fn version(&self) -> &str {
        &self.binaries.version
    }

    /// Leaves logs and data where they are when this is dropped.
    pub fn keep_files(&mut self) {
        self.dir.keep();
    }

    /// Where logs, data and kubeconfigs are.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// What was asked to be deleted, by whom, with which body: one `audit.k8s.io/v1` Event in JSON a line.
    pub fn audit_log(&self) -> PathBuf {
        self.dir.file("audit.log")
    }

    /// Fails when the API server has ended.
    ///
    /// # Errors
    ///
    /// With the end of its log.
    pub fn check_alive(&mut self) -> Result<(), Failure> {
        self.apiserver.check_alive()
    }

    /// What it takes to run the reference's collector here.
    pub fn reference(&self) -> Reference {
        let certificates = self.dir.file("certificates");
        Reference {
            binary: self.binaries.kube_controller_manager(),
            certificate: certificates.join("apiserver.crt"),
            private_key: certificates.join("apiserver.key"),
            admin_kubeconfig: self.admin_kubeconfig(),
        }
    }

    /// The key that signs the tokens of service accounts, in PEM, for controllers that make such tokens.
    pub fn service_account_key(&self) -> PathBuf {
        self.dir.file("service-account.key")
    }
}

/// As many ports as asked for, different from each other. Another process may take one before the server does; then
/// the server's log says so.
pub fn free_ports<const N: usize>() -> Result<[u16; N], Failure> {
    let mut ports = [0; N];
    // All are held until all are known, otherwise the same one could come twice.
    let mut held = Vec::with_capacity(N);
    for port in &mut ports {
        let listener = TcpListener::bind(("127.0.0.1", 0)).doing(|| "no free port on loopback".into())?;
        *port = listener.local_addr().doing(|| "no free port on loopback".into())?.port();
        held.push(listener);
    }
    Ok(ports)
}

fn keep_on_failure<T>(dir: &mut RunDir, result: Result<T, Failure>) -> Result<T, Failure> {
    result.map_err(|failure| {
        dir.keep();
        failure.context(format!("the rig did not start (logs are kept in {})", dir.path().display()))
    })
}

fn write_files(dir: &RunDir, extras: &Extras) -> Result<(), Failure> {
    write_tokens(dir)?;
    write_service_account_key(dir)?;
    fs::write(dir.file("audit-policy.yaml"), extras.audit_policy.unwrap_or(AUDIT_POLICY))
        .doing(|| "cannot write the audit policy".into())
}

fn start_etcd(binaries: &Binaries, dir: &RunDir, ports: [u16; 3]) -> Result<Process, Failure> {
    let [client_port, peer_port, _] = ports;
    let etcd_url = format!("http://127.0.0.1:{client_port}");
    let peer_url = format!("http://127.0.0.1:{peer_port}");
    let mut etcd = tied(binaries.etcd());
    etcd.arg("--data-dir").arg(dir.file("etcd"));
    etcd.args(["--listen-client-urls", &etcd_url, "--advertise-client-urls", &etcd_url]);
    etcd.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
    etcd.args(["--initial-cluster", &format!("default={peer_url}")]);
    // The data is thrown away; waiting for the disk would be most of the time.
    etcd.args(["--unsafe-no-fsync", "--log-level", "warn"]);
    Process::start("etcd", etcd, &dir.file("etcd.log"))
}

fn start_apiserver(
    binaries: &Binaries,
    extras: &Extras,
    dir: &RunDir,
    ports: [u16; 3],
) -> Result<Process, Failure> {
    let [client_port, _, secure_port] = ports;
    let mut apiserver = tied(binaries.kube_apiserver());
    apiserver.args(["--etcd-servers", &format!("http://127.0.0.1:{client_port}")]);
    apiserver.args(["--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1"]);
    apiserver.args(["--secure-port", &secure_port.to_string(), "--service-cluster-ip-range", "10.96.0.0/16"]);
    apiserver.arg("--audit-policy-file").arg(dir.file("audit-policy.yaml"));
    // One file, however long: who reads it wants all of it.
    apiserver.arg("--audit-log-path").arg(dir.file("audit.log")).args(["--audit-log-maxsize", "10000"]);
    // Without certificates given, it makes its own here.
    apiserver.arg("--cert-dir").arg(dir.file("certificates"));
    apiserver.arg("--token-auth-file").arg(dir.file("tokens.csv")).args(["--authorization-mode", "RBAC"]);
    // No controller makes the default service accounts that this plugin insists on.
    apiserver.args(["--disable-admission-plugins", "ServiceAccount"]);
    apiserver.args(["--service-account-issuer", "https://kubernetes.default.svc"]);
    apiserver.arg("--service-account-key-file").arg(dir.file("service-account.pub"));
    apiserver.arg("--service-account-signing-key-file").arg(dir.file("service-account.key"));
    apiserver.args(&extras.apiserver_flags);
    Process::start("kube-apiserver", apiserver, &dir.file("kube-apiserver.log"))
}

/// Static tokens: fixed words, since the server listens on loopback and its data is thrown away; but not the same in
/// two runs, so that a kubeconfig left over from another run fails instead of deleting in the wrong place.
fn write_tokens(dir: &RunDir) -> Result<(), Failure> {
    let [admin, daemon] = [token(dir, "admin"), token(dir, "daemon")];
    let lines = format!(
        "{admin},admin,admin,system:masters\n\
         {daemon},{DAEMON_USER},gc-daemon,\"system:serviceaccounts,system:serviceaccounts:kube-system\"\n"
    );
    fs::write(dir.file("tokens.csv"), lines).doing(|| "cannot write the token file".into())
}

fn token(dir: &RunDir, user: &str) -> String {
    let run = dir.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{user}-of-{run}")
}

/// kube-apiserver does not start without a key to sign service accounts' tokens with.
fn write_service_account_key(dir: &RunDir) -> Result<(), Failure> {
    let key = rcgen::KeyPair::generate().doing(|| "cannot generate the service-account key".into())?;
    fs::write(dir.file("service-account.key"), key.serialize_pem())
        .and_then(|()| fs::write(dir.file("service-account.pub"), key.public_key_pem()))
        .doing(|| "cannot write the service-account key".into())
}

/// The certificate file that kube-apiserver writes holds its own CA too.
fn authority(dir: &RunDir, extras: &Extras) -> PathBuf {
    extras.authority.clone().unwrap_or_else(|| dir.file("certificates").join("apiserver.crt"))
}

fn write_kubeconfigs(dir: &RunDir, extras: &Extras, server: &str) -> Result<(), Failure> {
    let ca = authority(dir, extras);
    for user in ["admin", "daemon"] {
        let file = dir.file(&format!("{user}.kubeconfig"));
        kubeconfig::write(&file, server, Some(&ca), Some(&token(dir, user)))?;
    }
    Ok(())
}

fn wait_until_ready(dir: &RunDir, extras: &Extras, apiserver: &mut Process) -> Result<(), Failure> {
    let ca = authority(dir, extras);
    eventually("kube-apiserver writes its certificate", READY_DEADLINE, || {
        apiserver.check_alive()?;
        Ok(if ca.is_file() { Look::Done(()) } else { Look::NotYet("no certificate".into()) })
    })?;
    let config = Config::from_kubeconfig(&dir.file("admin.kubeconfig"), None)?;
    let client = Client::new(&config, &Options::default())?;
    // The namespaces of the system are made in the background, after everything that `/readyz` looks at.
    for path in ["/readyz", "/api/v1/namespaces/kube-system", "/api/v1/namespaces/default"] {
        eventually(&format!("kube-apiserver answers {path}"), READY_DEADLINE, || {
            apiserver.check_alive()?;
            Ok(match client.send(&Request::get(path, "*/*")) {
                Ok(response) if response.code == 200 => Look::Done(()),
                Ok(response) => Look::NotYet(format!("it answers {}", response.code)),
                Err(error) => Look::NotYet(error.to_string()),
            })
        })?;
    }
    Ok(())
}
