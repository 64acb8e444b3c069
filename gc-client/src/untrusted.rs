//! Doors to the private parsers of bytes from outside, for fuzzing; hidden from the documentation.
//!
//! Each goes where the bytes of a file, a plugin or a header go, but takes them from memory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::auth::ExecPlugin;
use crate::config::Environment;
use crate::{Config, ConfigError, Error};

/// Where the kubeconfig of [`kubeconfig`] is said to stand; relative paths in it lead to nothing.
const NOWHERE: &str = "/nonexistent/kubeconfig";

/// A kubeconfig's bytes, resolved as [`Config::from_kubeconfig`] does, in an empty environment. Certificates and keys
/// are looked at by [`Client::new`](crate::Client::new).
///
/// # Errors
///
/// As [`Config::from_kubeconfig`].
pub fn kubeconfig(bytes: &[u8], context: Option<&str>) -> Result<Config, ConfigError> {
    let environment = Environment { get: &|_| None, service_account: PathBuf::from("/nonexistent") };
    crate::kubeconfig::load_bytes(&environment, Path::new(NOWHERE), bytes, context)
}

/// What an exec plugin printed; whether it gave a token, and whether a certificate.
///
/// # Errors
///
/// When it is no credential.
pub fn exec_credential(output: &[u8]) -> Result<(bool, bool), Error> {
    let plugin = ExecPlugin {
        command: "plugin".into(),
        args: Vec::new(),
        env: Vec::new(),
        api_version: "client.authentication.k8s.io/v1".into(),
        cluster: None,
        install_hint: String::new(),
    };
    let credential = plugin.parse(output)?;
    Ok((credential.authorization.is_some(), credential.identity.is_some()))
}

/// The header `Retry-After`.
pub fn retry_after(header: &str) -> Option<Duration> {
    crate::http::retry_after(header)
}
