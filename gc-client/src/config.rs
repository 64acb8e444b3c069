//! Where the API server is and how to be let in.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustls::pki_types::ServerName;
use ureq::http::{HeaderName, HeaderValue, Uri};

use crate::auth::Auth;
use crate::kubeconfig;
use crate::proxy;
use crate::secret::Secret;
use crate::tls::{Material, Places};

/// Where a pod finds its service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The largest configuration, token or certificate file; real ones are some kilobytes, and a wrong path (a device, a
/// log) must not fill the memory.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A configuration that cannot be used. `Display` is one line: the file, the field, what is wrong, the mend; never a
/// secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// There is no configuration at all.
    Missing {
        /// Where it was looked for, and what to do.
        tried: String,
    },
    /// A file cannot be read, or is no kubeconfig.
    File {
        /// The file.
        file: String,
        /// What is wrong, and what to do.
        cause: String,
    },
    /// One field is wrong.
    Field {
        /// The file, or what else the field comes from.
        file: String,
        /// The field, for example `users[dev].user.client-key-data`.
        field: String,
        /// What is wrong with it.
        cause: String,
        /// What to do.
        mend: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            ConfigError::Missing { tried } => tried.clone(),
            ConfigError::File { file, cause } => format!("{file}: {cause}"),
            ConfigError::Field { file, field, cause, mend } => format!("{file}: {field}: {cause}; {mend}"),
        };
        // Names of files, contexts and users may hold anything, a line break too.
        text.chars().try_for_each(|c| {
            if c.is_control() { write!(f, "{}", c.escape_default()) } else { fmt::Write::write_char(f, c) }
        })
    }
}

impl std::error::Error for ConfigError {}

/// A field of a file, to name it in an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: String,
    pub(crate) field: String,
}

impl Place {
    pub(crate) fn new(file: impl Into<String>, field: impl Into<String>) -> Place {
        Place { file: file.into(), field: field.into() }
    }

    pub(crate) fn error(&self, cause: &str, mend: &str) -> ConfigError {
        ConfigError::Field {
            file: self.file.clone(),
            field: self.field.clone(),
            cause: cause.to_owned(),
            mend: mend.to_owned(),
        }
    }
}

/// A certificate or key: in the configuration itself, or in a file that may be replaced while it is in use.
#[derive(Clone, Debug)]
pub(crate) enum Pem {
    Inline { bytes: Secret, place: Place },
    File { path: PathBuf, place: Place },
}

impl Pem {
    fn read(&self) -> Result<Vec<u8>, ConfigError> {
        match self {
            Pem::Inline { bytes, .. } => Ok(bytes.reveal().to_vec()),
            Pem::File { path, place } => read_file(path).map_err(|cause| {
                place.error(
                    &format!("{}: {cause}", path.display()),
                    "put the PEM file there, and let this process read it",
                )
            }),
        }
    }

    fn place(&self) -> Place {
        match self {
            Pem::Inline { place, .. } | Pem::File { place, .. } => place.clone(),
        }
    }
}

/// What the configuration says about TLS.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsSettings {
    /// `http`: no TLS, so no roots are needed.
    pub(crate) is_plain: bool,
    /// `None`: the roots that the system trusts.
    pub(crate) roots: Option<Pem>,
    pub(crate) identity: Option<(Pem, Pem)>,
    pub(crate) server_name: Option<ServerName<'static>>,
    pub(crate) insecure: bool,
    /// The cluster's entry, to name it when no roots are given.
    pub(crate) cluster_place: Place,
}

impl TlsSettings {
    pub(crate) fn read(&self) -> Result<Material, ConfigError> {
        let roots = self.read_roots()?;
        let identity = match &self.identity {
            Some((certificate, key)) => Some((certificate.read()?, Secret::new(key.read()?))),
            None => None,
        };
        Ok(Material { roots, identity })
    }

    pub(crate) fn read_roots(&self) -> Result<Option<Vec<u8>>, ConfigError> {
        self.roots.as_ref().map(Pem::read).transpose()
    }

    pub(crate) fn places(&self) -> Places {
        let roots = self.roots.as_ref().map_or_else(|| self.cluster_place.clone(), Pem::place);
        let (certificate, key) =
            self.identity.as_ref().map(|(c, k)| (c.place(), k.place())).unwrap_or_default();
        Places { roots, certificate, key }
    }
}

/// Where the API server is and how to be let in: what a kubeconfig's context, or a pod's service account, says.
///
/// Files that it names (token, certificates) are read when a [`Client`](crate::Client) is made and again while it
/// runs. `Debug` shows no secret.
#[derive(Clone, Debug)]
pub struct Config {
    /// Scheme, host, port and perhaps a path; no slash at the end.
    server: String,
    pub(crate) server_host: String,
    namespace: String,
    pub(crate) tls: TlsSettings,
    pub(crate) auth: Auth,
    /// The headers of impersonation.
    pub(crate) impersonate: Vec<(HeaderName, HeaderValue)>,
    /// The proxy's URL, which may hold a password, and the field or variable that it comes from.
    proxy: Option<(Secret, Place)>,
}

impl Config {
    /// Finds the configuration as client-go's programs do: the explicit file; else the files of `$KUBECONFIG`,
    /// merged; else the pod's service account, when `$KUBERNETES_SERVICE_HOST` is set and the token is mounted; else
    /// `~/.kube/config`.
    ///
    /// `context` chooses another context than the current one.
    ///
    /// # Errors
    ///
    /// When there is no configuration or it cannot be used. Keys and certificates are checked here already, so that a
    /// broken one is named before anything runs.
    pub fn load(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Config, ConfigError> {
        Config::load_from(&Environment::of_this_process(), kubeconfig, context)
    }

    /// Exactly this kubeconfig.
    ///
    /// # Errors
    ///
    /// As [`Config::load`].
    pub fn from_kubeconfig(path: &Path, context: Option<&str>) -> Result<Config, ConfigError> {
        Config::load_from(&Environment::of_this_process(), Some(path), context)
    }

    /// The service account of the pod that this runs in.
    ///
    /// # Errors
    ///
    /// When this does not run in a pod, or its service account is not mounted.
    pub fn in_cluster() -> Result<Config, ConfigError> {
        Config::in_cluster_from(&Environment::of_this_process())
    }

    /// For tests and simulators: a server without TLS or credentials, for example `http://127.0.0.1:8001`.
    pub fn plain(server: &str) -> Config {
        let server = server.trim_end_matches('/').to_owned();
        let server_host =
            server.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_default();
        let tls = TlsSettings {
            is_plain: !server.starts_with("https://"),
            cluster_place: Place::new(server.as_str(), "server"),
            ..TlsSettings::default()
        };
        Config {
            server,
            server_host,
            namespace: String::new(),
            tls,
            auth: Auth::None,
            impersonate: Vec::new(),
            proxy: None,
        }
    }

    /// The same with a bearer token.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Config {
        let place = Place::new(self.server.as_str(), "token");
        self.auth = Auth::Token { token: Secret::new(token), place };
        self
    }

    /// Scheme, host, port and perhaps a path; no slash at the end.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Where the proxy stands (`HOST:PORT`, never its password) and what names it, when one is used.
    pub fn proxy_place(&self) -> Option<String> {
        let proxy = self.proxy().ok()??;
        let (_, Place { file, field }) = self.proxy.as_ref()?;
        Some(format!("{}:{} ({file}: {field})", proxy.host(), proxy.port()))
    }

    /// The context's namespace, or the pod's; empty when none is set.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }
}

impl Config {
    /// The parts that a kubeconfig's resolver has worked out.
    pub(crate) fn new(
        server: &str,
        place: &Place,
        tls: TlsSettings,
        auth: Auth,
        environment: &Environment<'_>,
    ) -> Result<Config, ConfigError> {
        let uri = checked_server(server, place)?;
        let server_host = uri.host().unwrap_or_default().to_owned();
        let server = server.trim_end_matches('/').to_owned();
        let proxy = proxy::from_environment(environment, &uri);
        let tls = TlsSettings { is_plain: uri.scheme_str() == Some("http"), ..tls };
        Ok(Config {
            server,
            server_host,
            namespace: String::new(),
            tls,
            auth,
            impersonate: Vec::new(),
            proxy,
        })
    }

    pub(crate) fn with_namespace(mut self, namespace: String) -> Config {
        self.namespace = namespace;
        self
    }

    pub(crate) fn with_impersonation(mut self, headers: Vec<(HeaderName, HeaderValue)>) -> Config {
        self.impersonate = headers;
        self
    }

    pub(crate) fn with_proxy(mut self, url: Secret, place: Place) -> Config {
        self.proxy = Some((url, place));
        self
    }

    pub(crate) fn proxy(&self) -> Result<Option<ureq::Proxy>, ConfigError> {
        let Some((url, place)) = &self.proxy else { return Ok(None) };
        // The parser's error is not shown: the URL may hold a password.
        let error = || {
            place.error(
                "this is no proxy's URL",
                "write scheme://host:port with http, https or socks5 as the scheme",
            )
        };
        let text = url.reveal_str();
        // A bare host is one of HTTP, for ureq as for curl.
        let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = with_scheme.parse().map_err(|_| error())?;
        if !has_possible_port(&uri) {
            return Err(error());
        }
        ureq::Proxy::new(text).map(Some).map_err(|_| error())
    }

    pub(crate) fn is_loopback(&self) -> bool {
        proxy::is_loopback(&self.server_host)
    }

    /// Reads and checks all that can be checked without talking to anybody, so that `load` fails early.
    fn checked(self) -> Result<Config, ConfigError> {
        crate::session::Session::new(&self, &crate::http::Options::default())?;
        Ok(self)
    }

    fn load_from(
        environment: &Environment<'_>,
        kubeconfig: Option<&Path>,
        context: Option<&str>,
    ) -> Result<Config, ConfigError> {
        if let Some(path) = kubeconfig {
            return kubeconfig::load(environment, &[path.to_owned()], context)?.checked();
        }
        let named: Vec<PathBuf> = environment
            .get("KUBECONFIG")
            .map(|list| std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect())
            .unwrap_or_default();
        if !named.is_empty() {
            return kubeconfig::load(environment, &named, context)?.checked();
        }
        if environment.get("KUBERNETES_SERVICE_HOST").is_some()
            && environment.service_account.join("token").exists()
        {
            return Config::in_cluster_from(environment);
        }
        let home = environment.get("HOME").map(|home| Path::new(&home).join(".kube/config"));
        match home {
            Some(path) if path.exists() => kubeconfig::load(environment, &[path], context)?.checked(),
            _ => Err(ConfigError::Missing {
                tried: "no configuration: $KUBECONFIG is not set, this is no pod with a service account, and there is no \
                        ~/.kube/config; give --kubeconfig FILE"
                    .to_owned(),
            }),
        }
    }

    fn in_cluster_from(environment: &Environment<'_>) -> Result<Config, ConfigError> {
        let variable = |name: &str| {
            environment.get(name).ok_or_else(|| {
                let mend = "it is set in every pod; outside of a cluster give --kubeconfig FILE";
                Place::new("in-cluster configuration", format!("${name}")).error("it is not set", mend)
            })
        };
        let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
        let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
        let account = |name: &str| {
            let path = environment.service_account.join(name);
            let place = Place::new("the pod's service account", name);
            (path, place)
        };
        let (path, place) = account("token");
        let auth = Auth::TokenFile { path, place };
        let (path, place) = account("ca.crt");
        let tls = TlsSettings {
            roots: Some(Pem::File { path, place: place.clone() }),
            cluster_place: place,
            ..TlsSettings::default()
        };
        let namespace = read_file(&environment.service_account.join("namespace")).ok();
        let namespace = namespace.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
        let place = Place::new("in-cluster configuration", "$KUBERNETES_SERVICE_HOST");
        // The API server's cluster address is never behind a proxy, whatever the pod's environment says.
        let direct = Environment { get: &|_| None, service_account: environment.service_account.clone() };
        let config = Config::new(&format!("https://{host}:{port}"), &place, tls, auth, &direct)?;
        config.with_namespace(namespace.trim().to_owned()).checked()
    }
}

/// The part of the process's surroundings that decides the configuration; a parameter, so that tests need not change
/// the process.
pub(crate) struct Environment<'a> {
    pub(crate) get: &'a dyn Fn(&str) -> Option<String>,
    pub(crate) service_account: PathBuf,
}

impl Environment<'_> {
    pub(crate) fn of_this_process() -> Environment<'static> {
        Environment { get: &|name| std::env::var(name).ok(), service_account: SERVICE_ACCOUNT.into() }
    }

    /// The variable, if it is set to something.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        (self.get)(name).filter(|value| !value.is_empty())
    }
}

/// The server's URL: `http` or `https`, a host, no user and no query.
fn checked_server(server: &str, place: &Place) -> Result<Uri, ConfigError> {
    let mend = "write https://HOST:PORT";
    let uri: Uri = server.parse().map_err(|_| place.error("this is no URL", mend))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(place.error("the URL has neither https:// nor http://", mend));
    }
    if uri.host().is_none_or(str::is_empty) || uri.query().is_some() {
        return Err(place.error("the URL has no host, or a query", mend));
    }
    if server.contains('#') {
        return Err(place.error("the URL has a fragment, which no server sees", mend));
    }
    if !has_possible_port(&uri) {
        return Err(place.error("the port is no number from 1 to 65535", mend));
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(place
            .error("the URL holds a user", "put username and password, or a token, into the user's entry"));
    }
    Ok(uri)
}

/// Whether there is no port, or one that can be connected to. Without this check an impossible one is taken for none, and
/// the scheme's default port is called: another server, with our credentials.
fn has_possible_port(uri: &Uri) -> bool {
    let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
    let host_and_port = authority.rsplit('@').next().unwrap_or_default();
    // The colons of an IPv6 address stand inside the brackets.
    let behind_host = host_and_port.rsplit(']').next().unwrap_or_default();
    behind_host.split_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_ok_and(|port| port != 0))
}

/// Reads a file of bounded size. The error is the cause alone.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it is larger than {} MiB", FILE_BYTES_MAX >> 20));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use hashbrown::HashMap;

    use super::*;

    /// A directory of files and an environment, both of the test's own.
    struct World {
        root: PathBuf,
        variables: HashMap<&'static str, String>,
    }

    impl World {
        fn new(name: &str) -> World {
            let root = std::env::temp_dir().join(format!("gc-client-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&root).unwrap();
            World { root, variables: HashMap::new() }
        }

        fn write(&self, name: &str, text: &str) -> PathBuf {
            let path = self.root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        }

        fn set(&mut self, name: &'static str, value: &str) {
            self.variables.insert(name, value.replace("ROOT", &self.root.display().to_string()));
        }

        fn load(&self, kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Config, ConfigError> {
            let get = |name: &str| self.variables.get(name).cloned();
            let environment = Environment { get: &get, service_account: self.root.join("account") };
            Config::load_from(&environment, kubeconfig, context)
        }

        /// Server, namespace and credential of what is found, or the error.
        fn found(&self, kubeconfig: Option<&Path>, context: Option<&str>) -> String {
            let found = match self.load(kubeconfig, context) {
                Ok(config) => {
                    let credential = config.auth.first().unwrap().authorization.unwrap_or_default();
                    format!("{} {:?} {}", config.server(), config.namespace(), credential.reveal_str())
                }
                Err(error) => error.to_string(),
            };
            found.replace(&self.root.display().to_string(), "ROOT")
        }
    }

    impl Drop for World {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.root);
        }
    }

    /// A kubeconfig of one context, whose three entries have this name.
    fn kubeconfig(name: &str, host: &str, token: &str) -> String {
        format!(
            "current-context: {name}\ncontexts: [{{name: {name}, context: {{cluster: {name}, user: {name}, namespace: {name}}}}}]\n\
             clusters: [{{name: {name}, cluster: {{server: 'http://{host}'}}}}]\nusers: [{{name: {name}, user: {token}}}]\n"
        )
    }

    fn authority() -> String {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn r1_the_explicit_file_then_kubeconfig_then_the_pod_then_home() {
        let mut world = World::new("order");
        expect!["no configuration: $KUBECONFIG is not set, this is no pod with a service account, and there is no ~/.kube/config; give --kubeconfig FILE"]
            .assert_eq(&world.found(None, None));

        world.write("home/.kube/config", &kubeconfig("home", "home", "{token: t1}"));
        world.set("HOME", "ROOT/home");
        assert_eq!(world.found(None, None), r#"http://home "home" Bearer t1"#);

        world.write("account/token", "t2\n");
        world.write("account/ca.crt", &authority());
        world.write("account/namespace", "kube-system");
        world.set("KUBERNETES_SERVICE_PORT", "443");
        assert_eq!(world.found(None, None), r#"http://home "home" Bearer t1"#);
        world.set("KUBERNETES_SERVICE_HOST", "fd00::1");
        assert_eq!(world.found(None, None), r#"https://[fd00::1]:443 "kube-system" Bearer t2"#);

        world.write("named", &kubeconfig("named", "named", "{token: t3}"));
        world.set("KUBECONFIG", "ROOT/named");
        assert_eq!(world.found(None, None), r#"http://named "named" Bearer t3"#);

        let explicit = world.write("explicit", &kubeconfig("explicit", "explicit", "{token: t4}"));
        assert_eq!(world.found(Some(&explicit), None), r#"http://explicit "explicit" Bearer t4"#);
    }

    #[test]
    fn r1_several_files_are_merged_and_the_first_wins() {
        let mut world = World::new("merge");
        world.write("one/config", &kubeconfig("a", "one", "{tokenFile: token}"));
        world.write("one/token", "of one");
        world.write("two", &format!("{}{}", kubeconfig("b", "two", "{token: t2}"), ""));
        world.write("three", &kubeconfig("a", "three", "{token: t3}"));
        world.set("KUBECONFIG", "ROOT/missing:ROOT/one/config::ROOT/two:ROOT/three");
        assert_eq!(world.found(None, None), r#"http://one "a" Bearer of one"#);
        assert_eq!(world.found(None, Some("b")), r#"http://two "b" Bearer t2"#);
        expect![[r#"ROOT/missing, ROOT/one/config, ROOT/two, ROOT/three: --context: there is no context "c"; the file defines the contexts a, b"#]]
            .assert_eq(&world.found(None, Some("c")));
    }

    #[test]
    fn r7_a_broken_pod_is_named() {
        let mut world = World::new("pod");
        world.set("KUBERNETES_SERVICE_HOST", "10.0.0.1");
        world.write("account/token", "t");
        expect!["in-cluster configuration: $KUBERNETES_SERVICE_PORT: it is not set; it is set in every pod; outside of a cluster give --kubeconfig FILE"]
            .assert_eq(&world.found(None, None));
        world.set("KUBERNETES_SERVICE_PORT", "443");
        expect!["the pod's service account: ca.crt: ROOT/account/ca.crt: No such file or directory (os error 2); put the PEM file there, and let this process read it"].assert_eq(&world.found(None, None));
        world.write("account/ca.crt", "nonsense");
        expect!["the pod's service account: ca.crt: there is no certificate in it; give certificates in PEM, from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----"].assert_eq(&world.found(None, None));
        world.write("account/ca.crt", &authority());
        world.write("account/token", "");
        expect!["the pod's service account: token: ROOT/account/token is empty; mount or write a token there, and let this process read it"].assert_eq(&world.found(None, None));
    }

    #[test]
    fn r1_the_environments_proxy_holds_for_a_kubeconfig_and_never_for_a_pod() {
        let mut world = World::new("proxy");
        world.set("HTTPS_PROXY", "http://proxy:3128");
        world.set("HTTP_PROXY", "http://proxy:3128");
        let file = world.write("config", &kubeconfig("a", "prod.example", "{}"));
        let proxy = |config: Config| config.proxy().unwrap().map(|proxy| proxy.host().to_owned());
        assert_eq!(proxy(world.load(Some(&file), None).unwrap()), Some("proxy".into()));
        let place = world.load(Some(&file), None).unwrap().proxy_place();
        assert_eq!(place.as_deref(), Some("proxy:3128 (the environment: $HTTP_PROXY)"));
        world.set("NO_PROXY", "example");
        assert_eq!(proxy(world.load(Some(&file), None).unwrap()), None);
        world.write("account/token", "t");
        world.write("account/ca.crt", &authority());
        world.set("KUBERNETES_SERVICE_HOST", "10.0.0.1");
        world.set("KUBERNETES_SERVICE_PORT", "443");
        world.set("NO_PROXY", "");
        assert_eq!(proxy(world.load(None, None).unwrap()), None);
    }
}
