//! Where the API server comes from.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gc_client::Config;

use crate::api::Api;
use crate::e2e::kind::KindCluster;
use crate::failure::Failure;
use crate::flags::{E2e, Provider};
use crate::kinds;
use crate::process::{is_installed, succeeds};
use crate::rig::{self, Rig};

const RBAC: &str = include_str!("../../../deploy/rbac.yaml");

/// A docker that hangs is a docker that does not answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// A running cluster without a collector. Dropping it removes what was made for the suite.
pub enum Cluster {
    /// See [`crate::rig`].
    Rig(Box<Rig>),
    /// See [`crate::e2e::kind`].
    Kind(KindCluster),
    /// Somebody else's, by its kubeconfig.
    Existing(PathBuf),
}

impl Cluster {
    /// Makes, or takes, the cluster that the flags ask for.
    ///
    /// # Errors
    ///
    /// One line that says what to install or to pass; what went wrong in a server.
    pub fn start(flags: &E2e) -> Result<Cluster, Failure> {
        match choose(flags)? {
            Provider::Rig => {
                let mut rig = Rig::start(rig::binaries()?)?;
                if flags.keep {
                    rig.keep_files();
                }
                Api::connect(&Config::from_kubeconfig(&rig.admin_kubeconfig(), None)?)?
                    .create_manifests(RBAC, kinds::of_manifest)?;
                Ok(Cluster::Rig(Box::new(rig)))
            }
            Provider::Kind => Ok(Cluster::Kind(KindCluster::create(flags.keep)?)),
            Provider::Kubeconfig => {
                let file = flags.kubeconfig.clone();
                file.map(Cluster::Existing)
                    .ok_or_else(|| Failure::new("--provider kubeconfig needs --kubeconfig FILE"))
            }
        }
    }

    /// For the suite itself.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        match self {
            Cluster::Rig(rig) => rig.admin_kubeconfig(),
            Cluster::Kind(kind) => kind.kubeconfig(),
            Cluster::Existing(file) => file.clone(),
        }
    }

    /// For the daemon; on the rig, with the rights of `deploy/rbac.yaml` only.
    pub fn daemon_kubeconfig(&self) -> PathBuf {
        match self {
            Cluster::Rig(rig) => rig.daemon_kubeconfig(),
            Cluster::Kind(_) | Cluster::Existing(_) => self.admin_kubeconfig(),
        }
    }

    /// The rig, where it is one.
    pub fn rig(&self) -> Option<&Rig> {
        match self {
            Cluster::Rig(rig) => Some(rig),
            Cluster::Kind(_) | Cluster::Existing(_) => None,
        }
    }

    /// Where the servers' logs are, as far as they are known.
    pub fn logs(&self) -> Option<&Path> {
        self.rig().map(Rig::dir)
    }
}

/// kind where docker and kind answer, else the rig where Go is installed; `--kubeconfig` alone means that file.
fn choose(flags: &E2e) -> Result<Provider, Failure> {
    if let Some(provider) = flags.provider {
        return Ok(provider);
    }
    if flags.kubeconfig.is_some() {
        return Ok(Provider::Kubeconfig);
    }
    let answers = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args);
        is_installed(program) && succeeds(program, command, ANSWER_DEADLINE)
    };
    if answers("kind", &["version"]) && answers("docker", &["version"]) {
        eprintln!("e2e: docker and kind answer, so the provider is kind");
        return Ok(Provider::Kind);
    }
    if is_installed("go") {
        eprintln!("e2e: docker or kind does not answer and Go is installed, so the provider is the rig");
        return Ok(Provider::Rig);
    }
    Err(Failure::new("no API server can be had: install Go, or docker and kind, or give --kubeconfig FILE"))
}
