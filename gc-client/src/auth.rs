//! Credentials: tokens, passwords, token files, and plugins that are run to get them.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;

use crate::Error;
use crate::config::{ConfigError, Place, read_file};
use crate::gate::Gate;
use crate::secret::Secret;

/// A plugin may have to ask a cloud's servers; one that takes longer than this hangs.
const PLUGIN_WITHIN: Duration = Duration::from_secs(60);

/// How often a running plugin is looked at.
const PLUGIN_POLL: Duration = Duration::from_millis(20);

/// All that a plugin printed is in the pipe when it ends; only something that it left behind keeps the pipe open.
const OUTPUT_AFTER_END: Duration = Duration::from_secs(2);

/// A token and a certificate are some kilobytes.
const PLUGIN_OUTPUT_BYTES_MAX: u64 = 1 << 20;

/// A token that is about to expire is not used for a request that may take a while to arrive.
const EXPIRY_MARGIN_S: i64 = 10;

/// How the client says who it is, beside a client certificate.
#[derive(Clone, Debug, Default)]
pub(crate) enum Auth {
    #[default]
    None,
    Token {
        token: Secret,
        place: Place,
    },
    /// Read again every minute and after a 401, since projected tokens are replaced while they are in use.
    TokenFile {
        path: PathBuf,
        place: Place,
    },
    Basic {
        username: String,
        password: Secret,
        place: Place,
    },
    Exec(Box<ExecPlugin>),
}

/// What a request carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credential {
    /// The value of the header `Authorization`.
    pub(crate) authorization: Option<Secret>,
    /// A client certificate and its key in PEM, from a plugin.
    pub(crate) identity: Option<(Vec<u8>, Secret)>,
    /// Whether a plugin must be run before the first request or after `expires`.
    from_plugin: Option<Expiry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry {
    NotYetFetched,
    At(jiff::Timestamp),
    Never,
}

impl Credential {
    /// Whether a plugin must be run.
    pub(crate) fn is_stale(&self, now: jiff::Timestamp) -> bool {
        match self.from_plugin {
            None | Some(Expiry::Never) => false,
            Some(Expiry::NotYetFetched) => true,
            Some(Expiry::At(expires)) => {
                now.as_second().saturating_add(EXPIRY_MARGIN_S) >= expires.as_second()
            }
        }
    }

    fn bearer(token: &str) -> Credential {
        let authorization = Some(Secret::new(format!("Bearer {token}")));
        Credential { authorization, ..Credential::default() }
    }
}

impl Auth {
    /// The credential to start with. A plugin is not run before it is needed.
    pub(crate) fn first(&self) -> Result<Credential, ConfigError> {
        Ok(match self {
            Auth::None => Credential::default(),
            Auth::Token { token, .. } => Credential::bearer(token.reveal_str()),
            Auth::TokenFile { path, place } => Credential::bearer(&read_token(path, place)?),
            Auth::Basic { username, password, .. } => {
                let pair = BASE64_STANDARD.encode(format!("{username}:{}", password.reveal_str()));
                Credential {
                    authorization: Some(Secret::new(format!("Basic {pair}"))),
                    ..Credential::default()
                }
            }
            Auth::Exec(_) => Credential { from_plugin: Some(Expiry::NotYetFetched), ..Credential::default() },
        })
    }

    /// What the token file holds now; `None` for every other kind.
    pub(crate) fn reread(&self) -> Result<Option<Credential>, ConfigError> {
        match self {
            Auth::TokenFile { path, place } => Ok(Some(Credential::bearer(&read_token(path, place)?))),
            Auth::None | Auth::Token { .. } | Auth::Basic { .. } | Auth::Exec(_) => Ok(None),
        }
    }

    pub(crate) fn has_secret(&self) -> bool {
        !matches!(self, Auth::None)
    }

    /// Where the credential stands, for errors.
    pub(crate) fn place(&self) -> Place {
        match self {
            Auth::None => Place::default(),
            Auth::Token { place, .. } | Auth::TokenFile { place, .. } | Auth::Basic { place, .. } => {
                place.clone()
            }
            Auth::Exec(plugin) => plugin.place("status.token"),
        }
    }

    pub(crate) fn identity_places(&self) -> (Place, Place) {
        match self {
            Auth::Exec(plugin) => {
                (plugin.place("status.clientCertificateData"), plugin.place("status.clientKeyData"))
            }
            Auth::None | Auth::Token { .. } | Auth::TokenFile { .. } | Auth::Basic { .. } => {
                Default::default()
            }
        }
    }

    /// The file or the command, for errors.
    pub(crate) fn describe(&self) -> String {
        match self {
            Auth::Exec(plugin) => plugin.describe(),
            Auth::TokenFile { path, .. } => path.display().to_string(),
            Auth::None | Auth::Token { .. } | Auth::Basic { .. } => "the configuration".to_owned(),
        }
    }
}

fn read_token(path: &Path, place: &Place) -> Result<String, ConfigError> {
    let mend = "mount or write a token there, and let this process read it";
    let bytes =
        read_file(path).map_err(|cause| place.error(&format!("{}: {cause}", path.display()), mend))?;
    let token = String::from_utf8(bytes).map_err(|_| place.error("the token file is no text", mend))?;
    let token = token.trim();
    if token.is_empty() {
        return Err(place.error(&format!("{} is empty", path.display()), mend));
    }
    Ok(token.to_owned())
}

/// A command that prints credentials (`client.authentication.k8s.io`, the kubeconfig's `exec`).
#[derive(Clone, Debug)]
pub(crate) struct ExecPlugin {
    /// As a path when the kubeconfig gives one, else to be found in `PATH`.
    pub(crate) command: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, Secret)>,
    /// `client.authentication.k8s.io/v1` or `/v1beta1`.
    pub(crate) api_version: String,
    /// What `provideClusterInfo` lets the plugin see: the `spec.cluster` of `KUBERNETES_EXEC_INFO`.
    pub(crate) cluster: Option<serde_json::Value>,
    /// What the kubeconfig's author says about a plugin that is not installed.
    pub(crate) install_hint: String,
}

/// The plugin's answer. Never `Debug`: it is made of secrets.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: Option<String>,
    kind: Option<String>,
    status: Option<ExecStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecStatus {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<String>,
}

impl ExecPlugin {
    fn describe(&self) -> String {
        format!("the exec plugin {}", self.command.display())
    }

    fn place(&self, field: &str) -> Place {
        Place { file: self.describe(), field: field.to_owned() }
    }

    fn error(&self, cause: impl Into<String>) -> Error {
        Error::Credentials { source: self.describe(), cause: cause.into() }
    }

    /// Runs the command and reads its answer; at most 60 s, and no longer than the gate is open.
    ///
    /// Its standard error goes where ours goes, as kubectl has it, so that its own words reach the operator.
    pub(crate) fn run(&self, gate: &Gate) -> Result<Credential, Error> {
        let mut child = Command::new(&self.command)
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value.reveal_str())))
            .env("KUBERNETES_EXEC_INFO", self.exec_info())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| self.error(self.cannot_start(&error)))?;
        let outcome = self.collect(&mut child, gate);
        if outcome.is_err() {
            // It may have ended by itself meanwhile; then there is nothing to kill, and waiting only reaps it.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.parse(&outcome?)
    }

    fn cannot_start(&self, error: &std::io::Error) -> String {
        let hint = if self.install_hint.is_empty() {
            "install it, or give its whole path as users[].user.exec.command".to_owned()
        } else {
            self.install_hint.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        format!("it cannot be started ({error}); {hint}")
    }

    fn exec_info(&self) -> String {
        let mut spec = serde_json::json!({ "interactive": false });
        if let Some(cluster) = &self.cluster {
            spec["cluster"] = cluster.clone();
        }
        serde_json::json!({ "kind": "ExecCredential", "apiVersion": self.api_version, "spec": spec })
            .to_string()
    }

    fn collect(&self, child: &mut Child, gate: &Gate) -> Result<Vec<u8>, Error> {
        let stdout = child.stdout.take().ok_or_else(|| self.error("its output cannot be read"))?;
        // A thread of its own, because a grandchild may hold the pipe open for ever; then the thread is left behind.
        let (sender, receiver) = crossbeam_channel::bounded(1);
        std::thread::Builder::new()
            .name("exec-plugin".to_owned())
            .spawn(move || {
                let mut output = Vec::new();
                let mut limited = stdout.take(PLUGIN_OUTPUT_BYTES_MAX + 1);
                let result = limited.read_to_end(&mut output);
                // The pipe is closed after this, so that a plugin which that kills is known to have printed too much.
                let _ = sender.send(result.map(|_| output));
            })
            .map_err(|error| self.error(format!("no thread to read its output: {error}")))?;
        let deadline = Instant::now() + PLUGIN_WITHIN;
        let status = loop {
            match child.try_wait().map_err(|error| self.error(error.to_string()))? {
                Some(status) => break status,
                None if Instant::now() >= deadline => {
                    return Err(self.error("it did not end within 60 s; run it by hand to see why"));
                }
                None => gate.pause(PLUGIN_POLL)?,
            }
        };
        match receiver.recv_timeout(OUTPUT_AFTER_END) {
            Ok(Ok(output)) if output.len() as u64 > PLUGIN_OUTPUT_BYTES_MAX => {
                Err(self.error("it printed more than 1 MiB, which is no credential"))
            }
            _ if !status.success() => {
                Err(self.error(format!("it failed ({status}); run it by hand to see why")))
            }
            Ok(Ok(output)) => Ok(output),
            Ok(Err(error)) => Err(self.error(error.to_string())),
            Err(_) => Err(self.error("it ended, but something it started keeps its output open")),
        }
    }

    /// JSON or YAML. Parse errors are not quoted: they may hold a part of the token.
    pub(crate) fn parse(&self, output: &[u8]) -> Result<Credential, Error> {
        let not_a_credential = || {
            self.error("it printed no ExecCredential in JSON or YAML; run it by hand to see what it prints")
        };
        let text = std::str::from_utf8(output).map_err(|_| not_a_credential())?;
        let answer: ExecCredential = serde_json::from_str(text)
            .ok()
            .or_else(|| serde_saphyr::from_str(text).ok())
            .ok_or_else(not_a_credential)?;
        if answer.kind.as_deref() != Some("ExecCredential") {
            return Err(not_a_credential());
        }
        if answer.api_version.as_deref() != Some(self.api_version.as_str()) {
            let asked = &self.api_version;
            return Err(self.error(format!(
                "it does not answer in {asked}; make the kubeconfig's apiVersion and the plugin agree"
            )));
        }
        let status =
            answer.status.ok_or_else(|| self.error("its answer has no status; is it up to date?"))?;
        self.credential(status)
    }

    fn credential(&self, status: ExecStatus) -> Result<Credential, Error> {
        let filled = |field: Option<String>| field.filter(|value| !value.trim().is_empty());
        let token = filled(status.token);
        let identity = match (filled(status.client_certificate_data), filled(status.client_key_data)) {
            (Some(certificate), Some(key)) => Some((certificate.into_bytes(), Secret::new(key))),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                return Err(self.error("it gave only one of clientCertificateData and clientKeyData"));
            }
        };
        if token.is_none() && identity.is_none() {
            return Err(self.error("it gave neither a token nor a client certificate"));
        }
        let expiry = match filled(status.expiration_timestamp) {
            None => Expiry::Never,
            Some(text) => Expiry::At(text.parse().map_err(|_| {
                self.error("its expirationTimestamp is no RFC 3339 time, such as 2026-01-31T12:00:00Z")
            })?),
        };
        let authorization = token.map(|token| Secret::new(format!("Bearer {}", token.trim())));
        Ok(Credential { authorization, identity, from_plugin: Some(expiry) })
    }
}
