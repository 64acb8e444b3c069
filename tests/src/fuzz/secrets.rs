//! Kubeconfigs, what exec plugins print, certificates and keys.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gc_client::{Client, Options, untrusted};

use super::{Memory, Target, ensure, ensure_one_line, outline};

/// A certificate that signs itself, and its key; made for these tests, and nobody trusts it.
const IDENTITY: &str = include_str!("identity.pem");
/// Stands for every secret.
const SECRET: &str = "s3cr3ts3cr3t";

const YAML_WORDS: &[&[u8]] = &[
    b"\n",
    b"\n  ",
    b"- ",
    b": ",
    b"'",
    b"\"",
    b"{",
    b"}",
    b"[",
    b"]",
    b", ",
    b"&a ",
    b"*a",
    b"<<: *a",
    b"!!binary ",
    b"!!float ",
    b"|\n",
    b">-\n",
    b"# ",
    b"---\n",
    b"...\n",
    b"%YAML 1.2\n",
    b"? ",
    b"~",
    b"null",
    b"true",
    b".inf",
    b"\\n",
    b"\\x00",
    b"\"a\\nb\"",
    b"\t",
    b"\r",
    b"\xef\xbb\xbf",
    b"token: ",
    b"name: dev",
    b"server: https://a",
    b"user: ",
    b"exec: ",
    b"insecure-skip-tls-verify: true",
    b"current-context: ",
    b"proxy-url: socks5://u:p@h:1",
    b"tls-server-name: ",
    b"as: ",
    b"as-groups: [a]",
    b"username: ",
];

/// A kubeconfig.
pub(super) const KUBECONFIG: Target = Target {
    name: "kubeconfig",
    promise: "a kubeconfig is usable, or said not to be in one line that shows no secret",
    corpus: kubeconfigs,
    words: YAML_WORDS,
    memory: Memory { fixed_bytes: 4 << 20, per_input_byte: 2_000 },
    check: check_kubeconfig,
};

fn check_kubeconfig(input: &[u8]) -> Result<String, String> {
    for context in [None, Some("dev")] {
        let config = match untrusted::kubeconfig(input, context) {
            Ok(config) => config,
            Err(error) => {
                let error = error.to_string();
                ensure_one_line(&error)?;
                ensure(!is_about_yaml(&error) || !error.contains(SECRET), || {
                    format!("a secret is shown: {error}")
                })?;
                return Ok(outline(&error));
            }
        };
        let shown = format!("{config:?}");
        ensure(!shown.contains(&format!("token: {SECRET}")), || format!("a secret is shown: {shown}"))?;
        // The system's own roots take milliseconds to read.
        if config.server().starts_with("http://")
            && let Err(error) = Client::new(&config, &Options::default())
        {
            ensure_one_line(&error.to_string())?;
            return Ok(outline(&error.to_string()));
        }
    }
    Ok("usable".into())
}

/// Damage can make a name of what was a secret, and names are shown; words about YAML show nothing of it.
fn is_about_yaml(error: &str) -> bool {
    error.contains("mend the YAML")
}

fn kubeconfigs() -> Vec<Vec<u8>> {
    let of = |cluster: &str, user: &str| {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: dev\nclusters:\n- name: prod\n  cluster: {cluster}\n\
             contexts:\n- name: dev\n  context: {{cluster: prod, user: me, namespace: n}}\nusers:\n- name: me\n  user: {user}\n"
        )
        .into_bytes()
    };
    let data = BASE64_STANDARD.encode(IDENTITY);
    let exec = "{exec: {apiVersion: client.authentication.k8s.io/v1, command: get-token, args: [a, b], env: [{name: A, value: s3cr3ts3cr3t}], \
                provideClusterInfo: true, interactiveMode: Never}}";
    let impersonated =
        "{as: a, as-uid: b, as-groups: [c], as-user-extra: {d: [e, f]}, username: u, password: s3cr3ts3cr3t}";
    vec![
        of("{server: 'http://127.0.0.1:6443'}", "{token: s3cr3ts3cr3t}"),
        of("\n    server: http://127.0.0.1:6443\n    proxy-url: http://p:8080", "\n    token: s3cr3ts3cr3t"),
        of(&format!("{{server: 'https://a', certificate-authority-data: {data}}}"), exec),
        of("{server: 'http://a', tls-server-name: b}", &format!("{{client-certificate-data: {data}, client-key-data: {data}}}")),
        of("{server: 'a:1', insecure-skip-tls-verify: true}", impersonated),
        of("{server: 'http://a', extensions: [{name: client.authentication.k8s.io/exec, extension: {x: [1, {y: z}]}}]}", exec),
        br#"{"current-context":"dev","clusters":[{"name":"c","cluster":{"server":"http://a"}}],"contexts":[{"name":"dev","context":{"cluster":"c"}}]}"#
            .to_vec(),
    ]
}

/// What an exec plugin prints.
pub(super) const EXEC_CREDENTIAL: Target = Target {
    name: "exec-credential",
    promise: "what a plugin prints is a credential, or said to be none in one line that shows no secret",
    corpus: || {
        let json = format!(
            r#"{{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{{"token":"{SECRET}","expirationTimestamp":"2026-01-31T12:00:00Z"}}}}"#
        );
        let certificates = format!(
            "kind: ExecCredential\napiVersion: client.authentication.k8s.io/v1\nstatus:\n  clientCertificateData: {SECRET}\n  \
             clientKeyData: {SECRET}\n  expirationTimestamp: 2026-01-31T12:00:00.5+01:00\n"
        );
        vec![json.into_bytes(), certificates.into_bytes()]
    },
    words: YAML_WORDS,
    memory: Memory { fixed_bytes: 4 << 20, per_input_byte: 2_000 },
    check: |input| match untrusted::exec_credential(input) {
        Ok(found) => {
            ensure(found.0 || found.1, || "a credential with nothing in it".into())?;
            Ok(format!("{found:?}"))
        }
        Err(error) => {
            let error = error.to_string();
            ensure_one_line(&error)?;
            ensure(!error.contains(SECRET), || format!("a secret is shown: {error}"))?;
            Ok(outline(&error))
        }
    },
};

/// Certificates and keys.
pub(super) const PEM: Target = Target {
    name: "pem",
    promise: "certificates and keys are usable, or said not to be in one line that shows nothing of them",
    corpus: || vec![IDENTITY.as_bytes().to_vec(), IDENTITY.replace('\n', "\r\n").into_bytes()],
    words: &[
        b"-----BEGIN CERTIFICATE-----\n",
        b"-----END CERTIFICATE-----\n",
        b"-----BEGIN PRIVATE KEY-----\n",
        b"-----END PRIVATE KEY-----\n",
        b"-----BEGIN RSA PRIVATE KEY-----\n",
        b"-----BEGIN EC PRIVATE KEY-----\n",
        b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n",
        b"-----",
        b"=",
        b"\n",
        b"MII",
    ],
    memory: Memory { fixed_bytes: 4 << 20, per_input_byte: 500 },
    check: |input| {
        let data = BASE64_STANDARD.encode(input);
        let kubeconfig = format!(
            "{{current-context: d, contexts: [{{name: d, context: {{cluster: c, user: u}}}}], clusters: [{{name: c, cluster: {{\
             server: 'https://a', certificate-authority-data: '{data}'}}}}], users: [{{name: u, user: {{client-certificate-data: \
             '{data}', client-key-data: '{data}'}}}}]}}"
        );
        let client = untrusted::kubeconfig(kubeconfig.as_bytes(), None)
            .and_then(|config| Client::new(&config, &Options::default()));
        let Err(error) = client else { return Ok("usable".into()) };
        let error = error.to_string();
        ensure_one_line(&error)?;
        let shown = IDENTITY.lines().filter(|line| !line.starts_with('-')).find(|line| error.contains(line));
        ensure(shown.is_none(), || format!("a part of it is shown: {error}"))?;
        Ok(outline(&error))
    },
};
