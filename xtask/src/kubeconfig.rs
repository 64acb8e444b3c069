//! Writes kubeconfig files. JSON is YAML, so serde_json is enough.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::failure::{Doing, Failure};

/// Writes a kubeconfig with one cluster, one user and one context.
///
/// # Errors
///
/// When the file cannot be written.
pub fn write(
    path: &Path,
    server: &str,
    certificate_authority: Option<&Path>,
    token: Option<&str>,
) -> Result<(), Failure> {
    let mut cluster = json!({ "server": server });
    if let Some(file) = certificate_authority {
        cluster["certificate-authority"] = json!(file);
    }
    let user = token.map_or_else(|| json!({}), |token| json!({ "token": token }));
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "it", "cluster": cluster }],
        "users": [{ "name": "it", "user": user }],
        "contexts": [{ "name": "it", "context": { "cluster": "it", "user": "it" } }],
        "current-context": "it",
    });
    fs::write(path, config.to_string()).doing(|| format!("cannot write {}", path.display()))
}
