//! A cluster in docker, made by [kind](https://kind.sigs.k8s.io) without a garbage collector.
//!
//! Untried with a real docker: this was written where none could run. What is tested is the configuration, the
//! commands, and that the cluster is deleted whatever happens.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::dirs::RunDir;
use crate::failure::{Doing, Failure};
use crate::process::{is_installed, run};

/// Every controller that runs by default in a kubeadm cluster, but the one that is replaced.
const CONTROLLERS: &str = "*,bootstrapsigner,tokencleaner,-garbage-collector-controller";

/// kubeadm's extraArgs are a map up to v1beta3 and a list from v1beta4 on. kind applies a patch only to the version
/// that the patch names, so both are given.
const CONFIG: &str = include_str!("kind.yaml");

/// A cluster made by kind; dropping it deletes it, unless it is to be kept.
pub struct KindCluster {
    name: String,
    dir: RunDir,
    keep: bool,
}

impl KindCluster {
    /// Creates a cluster and waits until it is ready.
    ///
    /// # Errors
    ///
    /// One line that says what to install; what kind said.
    pub fn create(keep: bool) -> Result<KindCluster, Failure> {
        for program in ["docker", "kind"] {
            if !is_installed(program) {
                let missing = format!(
                    "--provider kind needs {program}, which is not installed: install docker and kind"
                );
                return Err(Failure::new(missing));
            }
        }
        let dir = RunDir::new("gc-kind")?;
        let name = format!("gc-e2e-{}", std::process::id());
        let config = dir.file("kind.yaml");
        fs::write(&config, CONFIG).doing(|| format!("cannot write {}", config.display()))?;
        // Made before the cluster, so that a cluster that was half made is deleted too.
        let cluster = KindCluster { name, dir, keep };
        run("kind", create_command(&cluster.name, &config, &cluster.kubeconfig()))?;
        Ok(cluster)
    }

    /// For the cluster's administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.file("kubeconfig")
    }
}

impl Drop for KindCluster {
    fn drop(&mut self) {
        if self.keep {
            self.dir.keep();
            eprintln!("e2e: kept the cluster; delete it with: kind delete cluster --name {}", self.name);
            return;
        }
        // Not through `process::run`, which stops at once after Ctrl-C: this is what must happen then.
        let status = delete_command(&self.name, &self.kubeconfig()).stdout(std::io::stderr()).status();
        if !status.is_ok_and(|status| status.success()) {
            eprintln!("e2e: cannot delete the cluster; try: kind delete cluster --name {}", self.name);
        }
    }
}

/// Prints what would be done, and checks the configuration.
///
/// # Errors
///
/// When the configuration is not what kind wants.
pub fn dry_run() -> Result<(), Failure> {
    check_config(CONFIG)?;
    let (config, kubeconfig) = (Path::new("DIR/kind.yaml"), Path::new("DIR/kubeconfig"));
    println!("# DIR/kind.yaml:\n{CONFIG}");
    println!("{}", shown(&create_command("gc-e2e-PID", config, kubeconfig)));
    println!("# the suite, with --kubeconfig DIR/kubeconfig");
    println!("{}", shown(&delete_command("gc-e2e-PID", kubeconfig)));
    Ok(())
}

fn create_command(name: &str, config: &Path, kubeconfig: &Path) -> Command {
    let mut command = Command::new("kind");
    command.args(["create", "cluster", "--name", name, "--wait", "180s"]);
    command.arg("--config").arg(config).arg("--kubeconfig").arg(kubeconfig);
    command
}

fn delete_command(name: &str, kubeconfig: &Path) -> Command {
    let mut command = Command::new("kind");
    command.args(["delete", "cluster", "--name", name]).arg("--kubeconfig").arg(kubeconfig);
    command
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Both patches must be YAML inside YAML and name the controllers in the form that their version wants.
fn check_config(config: &str) -> Result<(), Failure> {
    let wrong = |what: &str| Failure::new(format!("the configuration for kind is wrong: {what}"));
    let config: Value =
        serde_saphyr::from_str(config).doing(|| "the configuration for kind is no YAML".into())?;
    if config["kind"] != "Cluster" || config["apiVersion"] != "kind.x-k8s.io/v1alpha4" {
        return Err(wrong("kind or apiVersion"));
    }
    let patches = config["kubeadmConfigPatches"].as_array().cloned().unwrap_or_default();
    let mut versions = Vec::new();
    for patch in &patches {
        let patch: Value = serde_saphyr::from_str(patch.as_str().unwrap_or_default())
            .doing(|| "a patch for kubeadm is no YAML".into())?;
        let version = patch["apiVersion"].as_str().unwrap_or_default().to_owned();
        let args = &patch["controllerManager"]["extraArgs"];
        let controllers = match version.as_str() {
            "kubeadm.k8s.io/v1beta3" => &args["controllers"],
            "kubeadm.k8s.io/v1beta4" if args[0]["name"] == "controllers" => &args[0]["value"],
            _ => return Err(wrong("a patch has another version of kubeadm, or another argument")),
        };
        if patch["kind"] != "ClusterConfiguration" || *controllers != CONTROLLERS {
            return Err(wrong(&format!("the patch for {version}")));
        }
        versions.push(version);
    }
    if versions == ["kubeadm.k8s.io/v1beta3", "kubeadm.k8s.io/v1beta4"] {
        return Ok(());
    }
    Err(wrong("there must be one patch for each version of kubeadm"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_takes_the_collector_out_and_nothing_else() {
        check_config(CONFIG).unwrap();
        for broken in [
            CONFIG.replace("-garbage-collector-controller", "-garbage-collector"),
            CONFIG.replace("v1beta4", "v1beta5"),
            CONFIG.replace("v1alpha4", "v1alpha3"),
            CONFIG.replace("- name: controllers", "- name: controller"),
            String::new(),
        ] {
            check_config(&broken).unwrap_err();
        }
    }
}
