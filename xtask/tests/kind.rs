//! `--provider kind` with a `kind` and a `docker` that only write down how they are called.

#![allow(clippy::unwrap_used, reason = "helpers of tests; a panic is how a test fails")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use expect_test::expect;

/// Writes its arguments down, and for `create` the kubeconfig of a server that does not answer.
const FAKE_KIND: &str = r#"#!/bin/sh
echo "kind $*" | sed -E 's#/[^ ]*/gc-kind-[^/ ]*#DIR#g; s#gc-e2e-[0-9]+#NAME#g' >>"$CALLS"
[ "$1" = create ] || exit 0
while [ $# -gt 1 ]; do
    [ "$1" = --kubeconfig ] && kubeconfig=$2
    [ "$1" = --config ] && config=$2
    shift
done
grep -q -- '-garbage-collector-controller' "$config" || exit 3
cat >"$kubeconfig" <<END
apiVersion: v1
kind: Config
clusters: [{name: k, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: k, user: {}}]
contexts: [{name: k, context: {cluster: k, user: k}}]
current-context: k
END
exit "${KIND_CREATE_STATUS:-0}"
"#;

struct Fakes {
    dir: PathBuf,
}

impl Fakes {
    fn new(name: &str) -> Fakes {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::remove_dir_all(&dir).ok();
        fs::create_dir_all(&dir).unwrap();
        for (program, script) in [("kind", FAKE_KIND), ("docker", "#!/bin/sh\nexit 0\n")] {
            let file = dir.join(program);
            fs::write(&file, script).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Fakes { dir }
    }

    fn e2e(&self, args: &[&str], create_status: &str) -> Output {
        let path = format!("{}:{}", self.dir.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command
            .arg("e2e")
            .args(args)
            .env("PATH", path)
            .env("TMPDIR", &self.dir)
            .env("CALLS", self.dir.join("calls"));
        command.env("KIND_CREATE_STATUS", create_status).output().unwrap()
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.dir.join("calls")).unwrap_or_default()
    }
}

#[test]
fn the_cluster_is_deleted_when_the_suite_cannot_run() {
    let fakes = Fakes::new("suite");
    let output = fakes.e2e(&["--provider", "kind"], "0");
    assert!(!output.status.success());
    expect![[r#"
        kind create cluster --name NAME --wait 180s --config DIR/kind.yaml --kubeconfig DIR/kubeconfig
        kind delete cluster --name NAME --kubeconfig DIR/kubeconfig
    "#]]
    .assert_eq(&fakes.calls());
}

#[test]
fn a_cluster_that_is_half_made_is_deleted() {
    let fakes = Fakes::new("half");
    let output = fakes.e2e(&["--provider", "kind"], "1");
    assert!(!output.status.success());
    assert!(fakes.calls().contains("kind delete cluster"), "{}", fakes.calls());
}

#[test]
fn a_cluster_that_is_to_be_kept_is_kept() {
    let fakes = Fakes::new("keep");
    fakes.e2e(&["--provider", "kind", "--keep"], "0");
    assert!(!fakes.calls().contains("delete"), "{}", fakes.calls());
}

#[test]
fn kind_is_taken_where_docker_and_kind_answer() {
    let fakes = Fakes::new("choice");
    let output = fakes.e2e(&[], "0");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("the provider is kind"), "{said}");
    assert!(fakes.calls().starts_with("kind version\nkind create cluster"), "{}", fakes.calls());
}

#[test]
fn a_dry_run_calls_nothing() {
    let fakes = Fakes::new("dry");
    let output = fakes.e2e(&["--provider", "kind", "--dry-run"], "0");
    assert!(output.status.success());
    assert_eq!(fakes.calls(), "");
    expect![[r##"
        # DIR/kind.yaml:
        kind: Cluster
        apiVersion: kind.x-k8s.io/v1alpha4
        nodes:
        - role: control-plane
        kubeadmConfigPatches:
        - |
          apiVersion: kubeadm.k8s.io/v1beta3
          kind: ClusterConfiguration
          controllerManager:
            extraArgs:
              controllers: "*,bootstrapsigner,tokencleaner,-garbage-collector-controller"
        - |
          apiVersion: kubeadm.k8s.io/v1beta4
          kind: ClusterConfiguration
          controllerManager:
            extraArgs:
            - name: controllers
              value: "*,bootstrapsigner,tokencleaner,-garbage-collector-controller"

        kind create cluster --name gc-e2e-PID --wait 180s --config DIR/kind.yaml --kubeconfig DIR/kubeconfig
        # the suite, with --kubeconfig DIR/kubeconfig
        kind delete cluster --name gc-e2e-PID --kubeconfig DIR/kubeconfig
    "##]]
    .assert_eq(&String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_missing_program_is_named_in_one_line() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let output = command.args(["e2e", "--provider", "kind"]).env("PATH", "/nowhere").output().unwrap();
    expect![[r#"
        error: --provider kind needs docker, which is not installed: install docker and kind
    "#]]
    .assert_eq(&String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_dry_run_is_for_kind_only() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let output = command.args(["e2e", "--provider", "rig", "--dry-run"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "error: --dry-run goes with --provider kind only\n");
}
