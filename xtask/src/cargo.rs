//! Builds the daemon with the cargo that runs this.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::dirs;
use crate::failure::{Doing, Failure};

/// Builds `gc-daemon` and gives the path of the binary.
///
/// The profile is `dev`: it builds in a fraction of the time, its integer overflows are checked, and no end-to-end
/// scenario is about speed.
///
/// # Errors
///
/// When it does not build; cargo has then said why on stderr.
pub fn build_daemon() -> Result<PathBuf, Failure> {
    build("dev", DAEMON, None)
}

/// Builds `gc-daemon` as it is shipped and gives the path of the binary.
///
/// # Errors
///
/// As for [`build_daemon`].
pub fn build_release_daemon() -> Result<PathBuf, Failure> {
    build("release", DAEMON, None)
}

/// Builds `gc-daemon` as it is shipped, with everything that it needs inside, and gives the path of the binary; nothing
/// where Rust's target for that is not installed.
///
/// # Errors
///
/// As for [`build_daemon`].
pub fn build_static_daemon() -> Result<Option<PathBuf>, Failure> {
    let target = static_target();
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--print", "target-libdir", "--target", &target]);
    let libraries = crate::process::output("rustc", rustc)?;
    if !Path::new(libraries.trim()).is_dir() {
        return Ok(None);
    }
    build("release", DAEMON, Some(&target)).map(Some)
}

/// Builds the program that puts our work queue to work, and gives the path of the binary.
///
/// # Errors
///
/// As for [`build_daemon`].
pub fn build_queue_example() -> Result<PathBuf, Failure> {
    build("release", QUEUE_EXAMPLE, None)
}

/// For static binaries on this machine's processor.
pub fn static_target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// A package, the kind of a target of it, and the target.
type Program = (&'static str, &'static str, &'static str);

const DAEMON: Program = ("gc-daemon", "--bin", "gc-daemon");
const QUEUE_EXAMPLE: Program = ("gc-queue", "--example", "speed");

fn build(profile: &str, program: Program, target: Option<&str>) -> Result<PathBuf, Failure> {
    let (package, kind, name) = program;
    eprintln!("building {package} ({profile}{})", target.map(|t| format!(", {t}")).unwrap_or_default());
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--package", package, kind, name, "--profile", profile]);
    command.args(["--message-format", "json-render-diagnostics"]).current_dir(dirs::workspace());
    if let Some(target) = target {
        command.args(["--target", target]);
        // The one dependency with C in it calls no C library, so any compiler of this machine will do.
        let compiler = format!("CC_{}", target.replace('-', "_"));
        if std::env::var_os(&compiler).is_none() {
            command.env(compiler, "cc");
        }
    }
    // Standard output is read to its end, so the pipe cannot fill up; the diagnostics go to the person.
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .doing(|| "cannot start cargo".into())?;
    if !output.status.success() {
        return Err(Failure::new(format!("{package} does not build ({})", output.status)));
    }
    executable(&String::from_utf8_lossy(&output.stdout), name)
        .ok_or_else(|| Failure::new(format!("cargo built {package} but named no executable")))
}

/// The executable in cargo's messages, one JSON document a line.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_stands_in_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"serde"},"executable":null}
not json
{"reason":"compiler-artifact","target":{"name":"gc-daemon"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"gc-daemon"},"executable":"/t/debug/gc-daemon"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, "gc-daemon"), Some(PathBuf::from("/t/debug/gc-daemon")));
        assert_eq!(executable("{}", "gc-daemon"), None);
    }
}
