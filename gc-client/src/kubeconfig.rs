//! The kubeconfig: read, merged and resolved to one [`Config`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use ureq::http::{HeaderName, HeaderValue};

use crate::auth::{Auth, ExecPlugin};
use crate::config::{Config, ConfigError, Environment, Pem, Place, TlsSettings, read_file};
use crate::secret::Secret;
use crate::tls;

/// `clientcmd/api/v1.Config`, as far as it matters to a client. Unknown keys are ignored. Nothing here is `Debug`: it
/// is full of secrets.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    current_context: Option<String>,
    clusters: Option<Vec<NamedCluster>>,
    contexts: Option<Vec<NamedContext>>,
    users: Option<Vec<NamedUser>>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Option<Cluster>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: Option<String>,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
    insecure_skip_tls_verify: Option<bool>,
    tls_server_name: Option<String>,
    proxy_url: Option<String>,
    extensions: Option<Vec<Extension>>,
}

#[derive(Clone, Deserialize)]
struct Extension {
    name: Option<String>,
    extension: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Option<Context>,
}

#[derive(Clone, Default, Deserialize)]
struct Context {
    cluster: Option<String>,
    user: Option<String>,
    namespace: Option<String>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: Option<User>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    username: Option<String>,
    password: Option<String>,
    #[serde(rename = "as")]
    impersonate: Option<String>,
    as_uid: Option<String>,
    as_groups: Option<Vec<String>>,
    as_user_extra: Option<BTreeMap<String, Vec<String>>>,
    exec: Option<Exec>,
    auth_provider: Option<AuthProvider>,
}

#[derive(Clone, Deserialize)]
struct AuthProvider {
    name: Option<String>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Exec {
    command: Option<String>,
    args: Option<Vec<String>>,
    env: Option<Vec<ExecEnv>>,
    api_version: Option<String>,
    install_hint: Option<String>,
    provide_cluster_info: Option<bool>,
    interactive_mode: Option<String>,
}

#[derive(Clone, Deserialize)]
struct ExecEnv {
    name: String,
    value: Option<String>,
}

/// An entry with the file that it comes from: relative paths in it are relative to that file.
struct Entry<T> {
    name: String,
    value: T,
    file: PathBuf,
}

/// All files together. The first to name an entry, or a current context, wins.
#[derive(Default)]
struct Merged {
    files: String,
    current_context: Option<String>,
    clusters: Vec<Entry<Cluster>>,
    contexts: Vec<Entry<Context>>,
    users: Vec<Entry<User>>,
}

/// Reads the files and resolves one context. A file of a list of several may be missing, as for kubectl.
pub(crate) fn load(
    environment: &Environment<'_>,
    files: &[PathBuf],
    context: Option<&str>,
) -> Result<Config, ConfigError> {
    let mut merged = Merged::default();
    for file in files {
        if files.len() > 1 && !file.exists() {
            log::debug!("{}: no such kubeconfig", file.display());
            continue;
        }
        merged.add(parse(file)?, file);
    }
    merged.files = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
    resolve(environment, &merged, context)
}

/// The same for one file whose bytes are there already.
pub(crate) fn load_bytes(
    environment: &Environment<'_>,
    file: &Path,
    bytes: &[u8],
    context: Option<&str>,
) -> Result<Config, ConfigError> {
    let mut merged = Merged { files: file.display().to_string(), ..Merged::default() };
    merged.add(parse_bytes(file, bytes)?, file);
    resolve(environment, &merged, context)
}

fn parse(file: &Path) -> Result<Kubeconfig, ConfigError> {
    let bytes = read_file(file).map_err(|cause| ConfigError::File {
        file: file.display().to_string(),
        cause: format!("{cause}; give a kubeconfig that this process may read"),
    })?;
    parse_bytes(file, &bytes)
}

fn parse_bytes(file: &Path, bytes: &[u8]) -> Result<Kubeconfig, ConfigError> {
    let error = |cause: String| ConfigError::File { file: file.display().to_string(), cause };
    let text = std::str::from_utf8(bytes)
        .map_err(|_| error("it is no text; give a kubeconfig in YAML".to_owned()))?;
    if text.trim().is_empty() {
        return Ok(Kubeconfig::default());
    }
    serde_saphyr::from_str(text).map_err(|yaml| {
        // The parser's words name the line and the column.
        error(format!("{}; mend the YAML there", without_values(&yaml.without_snippet().to_string())))
    })
}

/// The parser's words without anything quoted and without the key of a duplicate, since those may be a token.
fn without_values(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let (words, place) = line.rsplit_once(" at line ").unwrap_or((line, "?"));
    // Some messages have their place in parentheses.
    let place = place.trim_end_matches(')');
    let words = words.split(": ").next().unwrap_or_default();
    let mut shown = String::new();
    let mut quote = None;
    for c in words.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            // The names of missing fields are our own.
            Some('`') if words.starts_with("missing field") => shown.push(c),
            Some(_) => {}
            None if matches!(c, '"' | '`' | '\'') => quote = Some(c),
            None => shown.push(c),
        }
    }
    format!("line {place}: {}", shown.trim())
}

impl Merged {
    fn add(&mut self, config: Kubeconfig, file: &Path) {
        self.current_context = self.current_context.take().or_else(|| filled(config.current_context));
        for named in config.clusters.unwrap_or_default() {
            add_entry(&mut self.clusters, named.name, named.cluster, file);
        }
        for named in config.contexts.unwrap_or_default() {
            add_entry(&mut self.contexts, named.name, named.context, file);
        }
        for named in config.users.unwrap_or_default() {
            add_entry(&mut self.users, named.name, named.user, file);
        }
    }
}

fn add_entry<T: Default>(entries: &mut Vec<Entry<T>>, name: String, value: Option<T>, file: &Path) {
    if entries.iter().all(|entry| entry.name != name) {
        entries.push(Entry { name, value: value.unwrap_or_default(), file: file.to_owned() });
    }
}

/// An empty string means the same as an absent one, as everywhere in client-go.
fn filled(value: Option<String>) -> Option<String> {
    value.filter(|value| !value.is_empty())
}

fn resolve(
    environment: &Environment<'_>,
    merged: &Merged,
    context: Option<&str>,
) -> Result<Config, ConfigError> {
    let named_by = if context.is_some() { "--context" } else { "current-context" };
    let place = Place::new(merged.files.as_str(), named_by);
    if merged.contexts.is_empty() && merged.clusters.is_empty() && merged.users.is_empty() {
        let cause = "it defines no context, no cluster and no user; give a kubeconfig".to_owned();
        return Err(ConfigError::File { file: merged.files.clone(), cause });
    }
    let wanted = context.or(merged.current_context.as_deref()).ok_or_else(|| {
        place.error(
            "it is not set",
            &format!("choose a context with --context; {}", known("context", &merged.contexts)),
        )
    })?;
    let context = find(&merged.contexts, wanted, "context", &place)?;
    let place = |field: &str| place_of(context, "contexts", &format!("context.{field}"));
    let cluster_name = filled(context.value.cluster.clone())
        .ok_or_else(|| place("cluster").error("it is not set", &known("cluster", &merged.clusters)))?;
    let cluster = find(&merged.clusters, &cluster_name, "cluster", &place("cluster"))?;
    // A context without a user is an anonymous one.
    let user = match filled(context.value.user.clone()) {
        Some(name) => Some(find(&merged.users, &name, "user", &place("user"))?),
        None => None,
    };
    let namespace = filled(context.value.namespace.clone()).unwrap_or_default();
    Ok(build(environment, cluster, user)?.with_namespace(namespace))
}

fn known<T>(kind: &str, entries: &[Entry<T>]) -> String {
    if entries.is_empty() {
        return format!("the file defines no {kind}");
    }
    let names: Vec<&str> = entries.iter().take(20).map(|entry| entry.name.as_str()).collect();
    format!("the file defines the {kind}s {}", names.join(", "))
}

fn find<'a, T>(
    entries: &'a [Entry<T>],
    name: &str,
    kind: &str,
    place: &Place,
) -> Result<&'a Entry<T>, ConfigError> {
    entries
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| place.error(&format!("there is no {kind} {name:?}"), &known(kind, entries)))
}

fn place_of<T>(entry: &Entry<T>, list: &str, field: &str) -> Place {
    Place::new(entry.file.display().to_string(), format!("{list}[{}].{field}", entry.name))
}

fn build(
    environment: &Environment<'_>,
    cluster: &Entry<Cluster>,
    user: Option<&Entry<User>>,
) -> Result<Config, ConfigError> {
    let place = |field: &str| place_of(cluster, "clusters", &format!("cluster.{field}"));
    let server = filled(cluster.value.server.clone()).ok_or_else(|| {
        place("server").error("it is not set", "write the API server's URL, https://HOST:PORT")
    })?;
    let mut tls = tls_of_cluster(cluster)?;
    let (mut auth, mut impersonate) = (Auth::None, Vec::new());
    if let Some(user) = user {
        tls.identity = identity(user)?;
        auth = auth_of(user, cluster)?;
        impersonate = impersonation(user)?;
    }
    let mut config = Config::new(&with_scheme(server, &tls), &place("server"), tls, auth, environment)?;
    if let Some(url) = filled(cluster.value.proxy_url.clone()) {
        config = config.with_proxy(Secret::new(url), place("proxy-url"));
    }
    Ok(config.with_impersonation(impersonate))
}

/// client-go takes `host:port` too: with TLS when something about TLS is configured.
fn with_scheme(server: String, tls: &TlsSettings) -> String {
    if server.contains("://") {
        return server;
    }
    let is_tls = tls.roots.is_some() || tls.identity.is_some() || tls.insecure || tls.server_name.is_some();
    format!("{}://{server}", if is_tls { "https" } else { "http" })
}

fn tls_of_cluster(cluster: &Entry<Cluster>) -> Result<TlsSettings, ConfigError> {
    let value = &cluster.value;
    let place = |field: &str| place_of(cluster, "clusters", &format!("cluster.{field}"));
    let roots = pem(
        &cluster.file,
        (value.certificate_authority_data.as_deref(), place("certificate-authority-data")),
        (value.certificate_authority.as_deref(), place("certificate-authority")),
    )?;
    let insecure = value.insecure_skip_tls_verify.unwrap_or(false);
    if insecure && roots.is_some() {
        let mend = "remove insecure-skip-tls-verify, and the certificate authority is used";
        return Err(place("insecure-skip-tls-verify").error("it is set beside a certificate authority", mend));
    }
    let server_name = match filled(value.tls_server_name.clone()) {
        Some(name) => Some(tls::server_name(&name).ok_or_else(|| {
            place("tls-server-name")
                .error("it is no host name", "write a name that stands in the server's certificate")
        })?),
        None => None,
    };
    let cluster_place = place("certificate-authority");
    Ok(TlsSettings { is_plain: false, roots, identity: None, server_name, insecure, cluster_place })
}

/// Data wins over a file, as in client-go.
fn pem(
    base: &Path,
    data: (Option<&str>, Place),
    file: (Option<&str>, Place),
) -> Result<Option<Pem>, ConfigError> {
    if let (Some(text), place) = (data.0.filter(|text| !text.is_empty()), data.1) {
        let compact: String = text.split_whitespace().collect();
        let bytes = BASE64_STANDARD
            .decode(compact)
            .map_err(|_| place.error("it is no base64", "encode the PEM file with `base64 -w0`"))?;
        return Ok(Some(Pem::Inline { bytes: Secret::new(bytes), place }));
    }
    let (path, place) = file;
    Ok(path.filter(|path| !path.is_empty()).map(|path| Pem::File { path: beside(base, path), place }))
}

/// A relative path is relative to the directory of the kubeconfig.
fn beside(kubeconfig: &Path, path: &str) -> PathBuf {
    kubeconfig.parent().unwrap_or(Path::new("")).join(path)
}

fn identity(user: &Entry<User>) -> Result<Option<(Pem, Pem)>, ConfigError> {
    let value = &user.value;
    let place = |field: &str| place_of(user, "users", &format!("user.{field}"));
    let certificate = pem(
        &user.file,
        (value.client_certificate_data.as_deref(), place("client-certificate-data")),
        (value.client_certificate.as_deref(), place("client-certificate")),
    )?;
    let key = pem(
        &user.file,
        (value.client_key_data.as_deref(), place("client-key-data")),
        (value.client_key.as_deref(), place("client-key")),
    )?;
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(place("client-key")
            .error("it is not set, but there is a client certificate", "set client-key or client-key-data")),
        (None, Some(_)) => Err(place("client-certificate").error(
            "it is not set, but there is a client key",
            "set client-certificate or client-certificate-data",
        )),
    }
}

/// A token (the file's before the one written down) wins over a password, and both over a plugin, as in client-go.
fn auth_of(user: &Entry<User>, cluster: &Entry<Cluster>) -> Result<Auth, ConfigError> {
    let value = &user.value;
    let place = |field: &str| place_of(user, "users", &format!("user.{field}"));
    if let Some(path) = filled(value.token_file.clone()) {
        return Ok(Auth::TokenFile { path: beside(&user.file, &path), place: place("tokenFile") });
    }
    if let Some(token) = filled(value.token.clone()) {
        return Ok(Auth::Token { token: Secret::new(token.trim()), place: place("token") });
    }
    if let Some(username) = filled(value.username.clone()) {
        let password = Secret::new(value.password.clone().unwrap_or_default());
        return Ok(Auth::Basic { username, password, place: place("username") });
    }
    if let Some(exec) = &value.exec {
        return Ok(Auth::Exec(Box::new(plugin(exec, user, cluster)?)));
    }
    if let Some(provider) = &value.auth_provider {
        let name = provider.name.as_deref().unwrap_or_default();
        return Err(place("auth-provider").error(
            &format!("the auth provider {name:?} is not supported"),
            "use the provider's exec plugin instead",
        ));
    }
    Ok(Auth::None)
}

fn plugin(exec: &Exec, user: &Entry<User>, cluster: &Entry<Cluster>) -> Result<ExecPlugin, ConfigError> {
    let place = |field: &str| place_of(user, "users", &format!("user.exec.{field}"));
    let command = filled(exec.command.clone()).ok_or_else(|| {
        place("command").error("it is not set", "write the command that prints the credentials")
    })?;
    let api_version = filled(exec.api_version.clone()).unwrap_or_default();
    if !matches!(
        api_version.as_str(),
        "client.authentication.k8s.io/v1" | "client.authentication.k8s.io/v1beta1"
    ) {
        let mend = "write client.authentication.k8s.io/v1, and update the plugin if it does not know that";
        return Err(place("apiVersion").error(&format!("{api_version:?} is not supported"), mend));
    }
    if exec.interactive_mode.as_deref() == Some("Always") {
        let mend = "log in once by hand, or use a plugin that needs no terminal";
        return Err(
            place("interactiveMode").error("the plugin wants a terminal, and this program gives none", mend)
        );
    }
    // A command with a slash is a path beside the kubeconfig; a bare one is found in PATH.
    let command = if command.contains('/') { beside(&user.file, &command) } else { command.into() };
    let env = exec.env.iter().flatten();
    Ok(ExecPlugin {
        command,
        args: exec.args.clone().unwrap_or_default(),
        env: env.map(|e| (e.name.clone(), Secret::new(e.value.clone().unwrap_or_default()))).collect(),
        api_version,
        cluster: exec.provide_cluster_info.unwrap_or(false).then(|| cluster_info(cluster)).transpose()?,
        install_hint: exec.install_hint.clone().unwrap_or_default(),
    })
}

/// `client.authentication.k8s.io` `Cluster`: what a plugin may know of the cluster.
fn cluster_info(cluster: &Entry<Cluster>) -> Result<serde_json::Value, ConfigError> {
    let value = &cluster.value;
    let mut info = serde_json::json!({ "server": value.server });
    for (name, field) in [("tls-server-name", &value.tls_server_name), ("proxy-url", &value.proxy_url)] {
        if let Some(text) = filled(field.clone()) {
            info[name] = text.into();
        }
    }
    if value.insecure_skip_tls_verify == Some(true) {
        info["insecure-skip-tls-verify"] = true.into();
    }
    let roots = tls_of_cluster(cluster)?.read_roots()?;
    if let Some(roots) = roots {
        info["certificate-authority-data"] = BASE64_STANDARD.encode(roots).into();
    }
    let extensions = value.extensions.iter().flatten();
    let mut ours = extensions.filter(|e| e.name.as_deref() == Some("client.authentication.k8s.io/exec"));
    if let Some(config) = ours.next().and_then(|e| e.extension.clone()) {
        info["config"] = config;
    }
    Ok(info)
}

fn impersonation(user: &Entry<User>) -> Result<Vec<(HeaderName, HeaderValue)>, ConfigError> {
    let value = &user.value;
    let mut headers = Vec::new();
    let mut add = |field: &str, name: &str, text: &str| {
        let place = place_of(user, "users", &format!("user.{field}"));
        let error =
            |_| place.error("it cannot stand in an HTTP header", "write it without control characters");
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|e| error(e.to_string()))?;
        headers.push((name, HeaderValue::from_str(text).map_err(|e| error(e.to_string()))?));
        Ok(())
    };
    let Some(name) = filled(value.impersonate.clone()) else {
        if value.as_uid.is_some() || value.as_groups.is_some() || value.as_user_extra.is_some() {
            let place = place_of(user, "users", "user.as");
            return Err(place
                .error("it is not set, but other fields of impersonation are", "set as to a user's name"));
        }
        return Ok(headers);
    };
    add("as", "Impersonate-User", &name)?;
    if let Some(uid) = filled(value.as_uid.clone()) {
        add("as-uid", "Impersonate-Uid", &uid)?;
    }
    for group in value.as_groups.iter().flatten() {
        add("as-groups", "Impersonate-Group", group)?;
    }
    for (key, values) in value.as_user_extra.iter().flatten() {
        let mut name = String::from("Impersonate-Extra-");
        crate::meta::escape_into(&mut name, key);
        for text in values {
            add("as-user-extra", &name, text)?;
        }
    }
    Ok(headers)
}
