//! `cargo xtask rig`: builds the servers; with `--run`, starts them for a person.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use gc_client::Config;

use crate::api::Api;
use crate::failure::Failure;
use crate::flags;
use crate::interrupt;
use crate::kinds;
use crate::rig::{Rig, binaries};

const RBAC: &str = include_str!("../../deploy/rbac.yaml");

/// Builds, and runs until a signal comes when asked to.
///
/// # Errors
///
/// When the build fails, or a server does not start or ends on its own.
pub fn run(flags: &flags::Rig) -> Result<ExitCode, Failure> {
    let binaries = binaries()?;
    if !flags.run {
        println!("{}", binaries.dir().display());
        return Ok(ExitCode::SUCCESS);
    }
    let mut rig = Rig::start(binaries)?;
    let api = Api::connect(&Config::from_kubeconfig(&rig.admin_kubeconfig(), None)?)?;
    api.create_manifests(RBAC, kinds::of_manifest)?;
    eprintln!("kube-apiserver {} at {}, no collector runs; Ctrl-C ends it", rig.version(), rig.server());
    eprintln!("logs:       {}", rig.dir().display());
    eprintln!("for admin:  export KUBECONFIG={}", rig.admin_kubeconfig().display());
    eprintln!("for daemon: --kubeconfig {}", rig.daemon_kubeconfig().display());
    println!("{}", rig.admin_kubeconfig().display());
    while !interrupt::is_set() {
        rig.check_alive()?;
        thread::sleep(Duration::from_millis(100));
    }
    Ok(ExitCode::SUCCESS)
}
