//! Kubeconfigs that are right, and what is said about those that are not.

// A test that cannot set itself up fails, which is what unwrapping does.
#![allow(clippy::unwrap_used)]

mod support;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use expect_test::expect;
use gc_client::Config;
use support::Scratch;
use support::pki::Authority;

/// The errors of these users (or clusters), one a line, with the directory taken out.
fn errors(name: &str, cases: &[(&str, &str)]) -> String {
    let mut errors = String::new();
    for (n, (cluster, user)) in cases.iter().enumerate() {
        let scratch = Scratch::new(&format!("{name}-{n}"));
        let error =
            Config::from_kubeconfig(&scratch.kubeconfig(cluster, user), None).unwrap_err().to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        errors.push_str(&error.replace(&scratch.path("").display().to_string(), ""));
        errors.push('\n');
    }
    assert!(!errors.contains("s3cr3t"), "{errors}");
    errors
}

fn data(pem: &str) -> String {
    BASE64_STANDARD.encode(pem)
}

#[test]
fn r7_a_name_with_a_line_break_leaves_the_error_on_one_line() {
    let kubeconfig = br#"{"contexts":[{"name":"a\n0","":{}}]}"#;
    let error = gc_client::untrusted::kubeconfig(kubeconfig, None).unwrap_err().to_string();
    assert!(error.ends_with(r"the file defines the contexts a\n0"), "{error}");
}

const SERVER: &str = "server: https://prod.example:6443\ninsecure-skip-tls-verify: true";

#[test]
fn r7_a_bad_cluster_is_named_with_its_field_and_the_mend() {
    let authority = Authority::new("a");
    let roots = format!("certificate-authority-data: {}", data(&authority.pem()));
    let broken = data("-----BEGIN CERTIFICATE-----\ns3cr3t\n-----END CERTIFICATE-----\n");
    let no_certificate = data("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let with = |field: &str| format!("server: https://a\n{field}");
    let cases = [
        "insecure-skip-tls-verify: true".to_owned(),
        "server: 'https://a b'".to_owned(),
        "server: ftp://a".to_owned(),
        "server: https://u:s3cr3t@a".to_owned(),
        "server: https://a?x=1".to_owned(),
        "server: https://a#x".to_owned(),
        "server: https://a:999999".to_owned(),
        "server: https://a:0".to_owned(),
        "server: 'https://[::1]:'".to_owned(),
        with("certificate-authority-data: '!!!'"),
        with("certificate-authority-data: aGVsbG8="),
        with(&format!("certificate-authority-data: {broken}")),
        with(&format!("certificate-authority-data: {no_certificate}")),
        with("certificate-authority: missing.crt"),
        with("certificate-authority: ."),
        with("certificate-authority: /dev/zero"),
        with(&format!("{roots}\ninsecure-skip-tls-verify: true")),
        with(&format!("{roots}\ntls-server-name: 'a b'")),
        with(&format!("{roots}\nproxy-url: 'gopher://u:s3cr3t@a'")),
        with(&format!("{roots}\nproxy-url: 'http://u:s3cr3t@a:99999'")),
        with(&format!("{roots}\nproxy-url: 'a:b'")),
    ];
    let cases: Vec<(&str, &str)> = cases.iter().map(|cluster| (cluster.as_str(), "token: t")).collect();
    expect![[r#"
        config: clusters[prod].cluster.server: it is not set; write the API server's URL, https://HOST:PORT
        config: clusters[prod].cluster.server: this is no URL; write https://HOST:PORT
        config: clusters[prod].cluster.server: the URL has neither https:// nor http://; write https://HOST:PORT
        config: clusters[prod].cluster.server: the URL holds a user; put username and password, or a token, into the user's entry
        config: clusters[prod].cluster.server: the URL has no host, or a query; write https://HOST:PORT
        config: clusters[prod].cluster.server: the URL has a fragment, which no server sees; write https://HOST:PORT
        config: clusters[prod].cluster.server: the port is no number from 1 to 65535; write https://HOST:PORT
        config: clusters[prod].cluster.server: the port is no number from 1 to 65535; write https://HOST:PORT
        config: clusters[prod].cluster.server: the port is no number from 1 to 65535; write https://HOST:PORT
        config: clusters[prod].cluster.certificate-authority-data: it is no base64; encode the PEM file with `base64 -w0`
        config: clusters[prod].cluster.certificate-authority-data: there is no certificate in it; give certificates in PEM, from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----
        config: clusters[prod].cluster.certificate-authority-data: a certificate cannot be used as an authority: invalid peer certificate: BadEncoding; give the certificate of the authority that signed the server's certificate, as X.509 v3 in PEM
        config: clusters[prod].cluster.certificate-authority-data: a certificate cannot be used as an authority: invalid peer certificate: BadEncoding; give the certificate of the authority that signed the server's certificate, as X.509 v3 in PEM
        config: clusters[prod].cluster.certificate-authority: missing.crt: No such file or directory (os error 2); put the PEM file there, and let this process read it
        config: clusters[prod].cluster.certificate-authority: .: Is a directory (os error 21); put the PEM file there, and let this process read it
        config: clusters[prod].cluster.certificate-authority: /dev/zero: it is larger than 4 MiB; put the PEM file there, and let this process read it
        config: clusters[prod].cluster.insecure-skip-tls-verify: it is set beside a certificate authority; remove insecure-skip-tls-verify, and the certificate authority is used
        config: clusters[prod].cluster.tls-server-name: it is no host name; write a name that stands in the server's certificate
        config: clusters[prod].cluster.proxy-url: this is no proxy's URL; write scheme://host:port with http, https or socks5 as the scheme
        config: clusters[prod].cluster.proxy-url: this is no proxy's URL; write scheme://host:port with http, https or socks5 as the scheme
        config: clusters[prod].cluster.proxy-url: this is no proxy's URL; write scheme://host:port with http, https or socks5 as the scheme
    "#]].assert_eq(&errors("bad-cluster", &cases));
}

#[test]
fn r7_a_bad_user_is_named_with_its_field_and_the_mend_and_never_panics_ureq_1077() {
    let authority = Authority::new("a");
    let (one, other) = (authority.client(), authority.client());
    let pair = |certificate: &str, key: &str| {
        format!("client-certificate-data: {}\nclient-key-data: {}", data(certificate), data(key))
    };
    let cases = [
        format!("client-certificate-data: {}", data(&one.certificate)),
        format!("client-key-data: {}", data(&one.key)),
        pair(&one.certificate, &other.key),
        pair(&one.certificate, "s3cr3t"),
        pair(&one.certificate, "-----BEGIN PRIVATE KEY-----\ns3cr3t\n-----END PRIVATE KEY-----\n"),
        pair(&one.certificate, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
        pair(
            &one.certificate,
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        ),
        pair("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &one.key),
        format!("client-certificate-data: {}\nclient-key-data: 's3cr3t!'", data(&one.certificate)),
        format!("client-certificate-data: {}\nclient-key: missing.key", data(&one.certificate)),
        "tokenFile: missing".to_owned(),
        "token: \"s3cr3t\\nX: y\"".to_owned(),
        "auth-provider: {name: gcp, config: {access-token: s3cr3t}}".to_owned(),
        "exec: {apiVersion: client.authentication.k8s.io/v1}".to_owned(),
        "exec: {command: x, apiVersion: client.authentication.k8s.io/v1alpha1}".to_owned(),
        "exec: {command: x, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Always}".to_owned(),
        "as-groups: [a]".to_owned(),
        "as: \"a\\nb\"".to_owned(),
    ];
    let cases: Vec<(&str, &str)> = cases.iter().map(|user| (SERVER, user.as_str())).collect();
    expect![[r#"
        config: users[dev].user.client-key: it is not set, but there is a client certificate; set client-key or client-key-data
        config: users[dev].user.client-certificate: it is not set, but there is a client key; set client-certificate or client-certificate-data
        config: users[dev].user.client-key-data: the key does not belong to the client certificate; give the key that the certificate was made for
        config: users[dev].user.client-key-data: there is no private key in it; give an unencrypted key in PEM (PKCS#8, PKCS#1 or SEC1); `openssl pkey` turns other forms into one
        config: users[dev].user.client-key-data: the key cannot be used: failed to parse private key as RSA, ECDSA, or EdDSA; use an RSA (2048 bits or more), ECDSA P-256, P-384 or Ed25519 key
        config: users[dev].user.client-key-data: the key cannot be used: failed to parse private key as RSA, ECDSA, or EdDSA; use an RSA (2048 bits or more), ECDSA P-256, P-384 or Ed25519 key
        config: users[dev].user.client-key-data: there is no private key in it; give an unencrypted key in PEM (PKCS#8, PKCS#1 or SEC1); `openssl pkey` turns other forms into one
        config: users[dev].user.client-certificate-data: the certificate cannot be used: invalid peer certificate: BadEncoding; give the client's certificate first and those that signed it after it, as X.509 v3 in PEM
        config: users[dev].user.client-key-data: it is no base64; encode the PEM file with `base64 -w0`
        config: users[dev].user.client-key: missing.key: No such file or directory (os error 2); put the PEM file there, and let this process read it
        config: users[dev].user.tokenFile: missing: No such file or directory (os error 2); mount or write a token there, and let this process read it
        config: users[dev].user.token: the token cannot stand in an HTTP header; write the token on one line, without control characters
        config: users[dev].user.auth-provider: the auth provider "gcp" is not supported; use the provider's exec plugin instead
        config: users[dev].user.exec.command: it is not set; write the command that prints the credentials
        config: users[dev].user.exec.apiVersion: "client.authentication.k8s.io/v1alpha1" is not supported; write client.authentication.k8s.io/v1, and update the plugin if it does not know that
        config: users[dev].user.exec.interactiveMode: the plugin wants a terminal, and this program gives none; log in once by hand, or use a plugin that needs no terminal
        config: users[dev].user.as: it is not set, but other fields of impersonation are; set as to a user's name
        config: users[dev].user.as: it cannot stand in an HTTP header; write it without control characters
    "#]].assert_eq(&errors("bad-user", &cases));
}

#[test]
fn r7_yaml_that_is_none_is_located_without_quoting_it() {
    let cases = [
        "token: [s3cr3t]",
        "token: {s3cr3t: s3cr3t}",
        "exec: s3cr3t",
        "exec: {command: x, args: s3cr3t}",
        "exec: {env: [{value: s3cr3t}]}",
        "token: 's3cr3t",
        "token: *s3cr3t",
        "token: a: s3cr3t",
        "token: !!int s3cr3t",
        "token: a\ntoken: s3cr3t",
        "s3cr3t: a\ns3cr3t: b",
    ];
    let cases: Vec<(&str, &str)> = cases.iter().map(|user| (SERVER, *user)).collect();
    expect![[r#"
        config: line 15, column 12: expected string scalar; mend the YAML there
        config: line 15, column 12: expected string scalar; mend the YAML there
        config: line 15, column 11: expected mapping start; mend the YAML there
        config: line 15, column 30: expected sequence start; mend the YAML there
        config: line 15, column 19: missing field name; mend the YAML there
        config: line 15, column 12: unclosed quote; mend the YAML there
        config: line 15, column 12: alias references unknown anchor; mend the YAML there
        config: line 15, column 13: mapping values are not allowed in this context; mend the YAML there
        config: line 15, column 18: cannot deserialize tagged scalar into string; mend the YAML there
        config: line 16, column 5: duplicate mapping key; mend the YAML there
        config: line 16, column 5: duplicate mapping key; mend the YAML there
    "#]]
    .assert_eq(&errors("bad-yaml", &cases));
}

#[test]
fn r7_files_that_are_no_kubeconfig() {
    let scratch = Scratch::new("no-kubeconfig");
    let mut said = String::new();
    let cases: [(&str, &[u8]); 5] = [
        ("empty", b""),
        ("binary", b"\xff\xfe\0"),
        ("list", b"- a"),
        ("text", b"hello"),
        ("other", b"kind: Pod"),
    ];
    for (name, bytes) in cases {
        std::fs::write(scratch.path(name), bytes).unwrap();
        said += &format!("{}\n", Config::from_kubeconfig(&scratch.path(name), None).unwrap_err());
    }
    said += &format!("{}\n", Config::from_kubeconfig(&scratch.path("missing"), None).unwrap_err());
    expect![[r#"
        empty: it defines no context, no cluster and no user; give a kubeconfig
        binary: it is no text; give a kubeconfig in YAML
        list: line 1, column 1: expected mapping start; mend the YAML there
        text: line 1, column 1: expected mapping start; mend the YAML there
        other: it defines no context, no cluster and no user; give a kubeconfig
        missing: No such file or directory (os error 2); give a kubeconfig that this process may read
    "#]]
    .assert_eq(&said.replace(&scratch.path("").display().to_string(), ""));
}

#[test]
fn r1_unknown_keys_nulls_and_odd_scalars_are_taken_as_kubectl_takes_them() {
    let scratch = Scratch::new("odd");
    let kubeconfig = scratch.write(
        "config",
        "apiVersion: v1\nkind: Config\npreferences: {}\nnew-key: {a: [1]}\ncurrent-context: 7\n\
         contexts:\n- name: 7\n  context: {cluster: 1.0, user: null, namespace: 0x10, extensions: [{name: m}]}\n\
         clusters:\n- name: 1.0\n  cluster: {server: 'http://127.0.0.1:1/k8s/clusters/c-1/', certificate-authority-data: null, x: y}\n\
         users: null\n",
    );
    let config = Config::from_kubeconfig(&kubeconfig, None).unwrap();
    assert_eq!((config.server(), config.namespace()), ("http://127.0.0.1:1/k8s/clusters/c-1", "0x10"));
}

#[test]
fn r1_a_server_without_scheme_is_completed_as_client_go_does() {
    let scratch = Scratch::new("no-scheme");
    let server = |cluster: &str| {
        Config::from_kubeconfig(&scratch.kubeconfig(cluster, "token: t"), None).unwrap().server().to_owned()
    };
    assert_eq!(server("server: localhost:8080"), "http://localhost:8080");
    assert_eq!(server("server: prod:6443\ninsecure-skip-tls-verify: true"), "https://prod:6443");
}

#[test]
fn r1_json_is_yaml_too() {
    let scratch = Scratch::new("json");
    let kubeconfig = scratch.write(
        "config",
        r#"{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"p","user":"u"}}],
            "clusters":[{"name":"p","cluster":{"server":"http://127.0.0.1:1"}}],"users":[{"name":"u","user":{"token":"t"}}]}"#,
    );
    assert_eq!(Config::from_kubeconfig(&kubeconfig, None).unwrap().server(), "http://127.0.0.1:1");
}
