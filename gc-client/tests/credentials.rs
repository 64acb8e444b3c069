//! Credentials while the client runs: what is sent, how it is renewed, and that it is never shown.

// A test that cannot set itself up fails, which is what unwrapping does.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};

use expect_test::expect;
use gc_client::{Client, Config, Error, Options, Request};
use support::{Scratch, Server, json};

fn client(scratch: &Scratch, server: &Server, user: &str) -> Client {
    let config =
        Config::from_kubeconfig(&scratch.kubeconfig(&format!("server: {}", server.url()), user), None);
    Client::new(&config.unwrap(), &Options::default()).unwrap()
}

/// A server that knows one token.
fn server(accepted: &'static str) -> Server {
    Server::plain(move |seen| {
        let is_known = seen.header("authorization") == accepted;
        json(if is_known { 200 } else { 401 }, "", r#"{"gitVersion":"v1.36.3"}"#)
    })
}

fn code(client: &Client) -> u16 {
    client.send(&Request::get("/version", "")).unwrap().code
}

#[test]
fn r1_a_token_file_that_rotates_is_read_again_after_a_401() {
    let (server, scratch) = (server("Bearer new"), Scratch::new("token-file"));
    scratch.write("token", "old\n");
    let client = client(&scratch, &server, "token: ignored\ntokenFile: token");
    scratch.write("token", "new\n");
    assert_eq!(code(&client), 200);
    let sent: Vec<String> = server.seen().iter().map(|seen| seen.header("authorization")).collect();
    assert_eq!(sent, ["Bearer old", "Bearer new"]);
}

#[test]
fn r1_a_401_for_good_is_handed_back_without_hammering() {
    let (server, scratch) = (server("Bearer new"), Scratch::new("token-401"));
    scratch.write("token", "old");
    let client = client(&scratch, &server, "tokenFile: token");
    for _ in 0..3 {
        assert_eq!(code(&client), 401);
    }
    // A rotation that goes wrong leaves the old token in use.
    scratch.write("token", "");
    assert_eq!(code(&client), 401);
    assert_eq!(server.lines().len(), 4);
    assert!(server.seen().iter().all(|seen| seen.header("authorization") == "Bearer old"));
}

#[test]
fn r1_basic_authentication_and_impersonation() {
    let (server, scratch) = (server(""), Scratch::new("impersonation"));
    let client = client(
        &scratch,
        &server,
        "username: aladdin\npassword: open sesame\nas: jane\nas-uid: u-1\nas-groups: [a, b]\nas-user-extra: {'acme.com/x': [p, q]}",
    );
    code(&client);
    expect![[r#"
        GET /version
        authorization: Basic YWxhZGRpbjpvcGVuIHNlc2FtZQ==
        impersonate-user: jane
        impersonate-uid: u-1
        impersonate-group: a, b
        impersonate-extra-acme.com%2fx: p, q
    "#]]
    .assert_eq(&server.seen()[0].text(&[
        "authorization",
        "impersonate-user",
        "impersonate-uid",
        "impersonate-group",
        "impersonate-extra-acme.com%2fx",
    ]));
}

/// A plugin that counts its runs in the file `runs` and prints an answer with this status (`$N` is the run).
fn plugin(scratch: &Scratch, status: &str) -> String {
    scratch.plugin(&format!(
        "cd \"$(dirname \"$0\")\"\necho \"$KUBERNETES_EXEC_INFO $FLAVOUR $*\" >> runs\nN=$(wc -l < runs | tr -d ' ')\n\
         cat <<END\n{{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":{status}}}\nEND"
    ))
}

fn runs(scratch: &Scratch) -> usize {
    std::fs::read_to_string(scratch.path("runs")).map_or(0, |text| text.lines().count())
}

#[test]
fn r1_an_exec_plugin_runs_once_and_again_after_a_401() {
    let (server, scratch) = (server("Bearer token-2"), Scratch::new("exec"));
    let client = client(&scratch, &server, &plugin(&scratch, r#"{"token":"token-$N"}"#));
    assert_eq!(runs(&scratch), 0);
    assert_eq!(code(&client), 200);
    assert_eq!(code(&client), 200);
    let sent: Vec<String> = server.seen().iter().map(|seen| seen.header("authorization")).collect();
    assert_eq!(sent, ["Bearer token-1", "Bearer token-2", "Bearer token-2"]);
    assert_eq!(runs(&scratch), 2);
}

#[test]
fn r1_an_exec_plugin_runs_again_when_its_answer_expires_and_not_before() {
    for (expires, runs_expected) in [("2000-01-01T00:00:00Z", 3), ("2999-01-01T00:00:00Z", 1)] {
        let (server, scratch) = (server("Bearer t"), Scratch::new(&format!("expiry-{runs_expected}")));
        let user = plugin(&scratch, &format!(r#"{{"token":"t","expirationTimestamp":"{expires}"}}"#));
        let client = client(&scratch, &server, &user);
        for _ in 0..3 {
            assert_eq!(code(&client), 200);
        }
        assert_eq!(runs(&scratch), runs_expected, "{expires}");
    }
}

#[test]
fn r1_an_exec_plugin_gets_its_arguments_its_environment_and_the_cluster() {
    let (server, scratch) = (server("Bearer t"), Scratch::new("exec-info"));
    let user = format!(
        "{}\n  - get\n  - a b\n  env: [{{name: FLAVOUR, value: mint}}]\n  provideClusterInfo: true",
        plugin(&scratch, r#"{"token":"t"}"#)
    );
    let cluster = "server: https://prod.example:6443\ntls-server-name: inside\ninsecure-skip-tls-verify: true\n\
                   proxy-url: URL\nextensions: [{name: client.authentication.k8s.io/exec, extension: {audience: x}}]";
    let kubeconfig = scratch.kubeconfig(&cluster.replace("URL", &server.url()), &user);
    let client =
        Client::new(&Config::from_kubeconfig(&kubeconfig, None).unwrap(), &Options::default()).unwrap();
    // The proxy is no proxy, so the request fails; by then the plugin has run.
    client.server_version().unwrap_err();
    let ran = std::fs::read_to_string(scratch.path("runs")).unwrap().replace(server.port(), "PORT");
    expect![[r#"
        {"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"cluster":{"config":{"audience":"x"},"insecure-skip-tls-verify":true,"proxy-url":"http://127.0.0.1:PORT","server":"https://prod.example:6443","tls-server-name":"inside"},"interactive":false}} mint get a b
    "#]].assert_eq(&ran);
    assert_eq!(server.lines(), ["CONNECT prod.example:6443"]);
}

#[test]
fn r1_an_exec_plugin_may_answer_in_yaml_kube_rs_2003() {
    let (server, scratch) = (server("Bearer yaml"), Scratch::new("exec-yaml"));
    let user = scratch.plugin(
        "printf 'apiVersion: client.authentication.k8s.io/v1\\nkind: ExecCredential\\nstatus:\\n  token: yaml\\n'",
    );
    assert_eq!(code(&client(&scratch, &server, &user)), 200);
}

#[test]
fn r7_a_plugin_that_fails_is_named_and_its_output_is_not_shown() {
    let answer = |status: &str| {
        format!(
            "cat <<'END'\n{{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":{status}}}\nEND"
        )
    };
    let scripts = [
        "exit 3".to_owned(),
        "echo s3cr3t".to_owned(),
        "echo '{\"kind\":\"ExecCredential\",\"apiVersion\":\"v9\",\"status\":{\"token\":\"s3cr3t\"}}'"
            .to_owned(),
        answer("{}"),
        answer("null"),
        answer("{\"clientCertificateData\":\"s3cr3t\"}"),
        answer("{\"token\":\"s3cr3t\",\"expirationTimestamp\":\"s3cr3t\"}"),
        answer("{\"token\":\"s3cr3t\\nX-Evil: 1\"}"),
        answer("{\"clientCertificateData\":\"s3cr3t\",\"clientKeyData\":\"s3cr3t\"}"),
        "head -c 2000000 /dev/zero".to_owned(),
    ];
    let mut errors = String::new();
    for (n, script) in scripts.iter().enumerate() {
        let (server, scratch) = (server("never"), Scratch::new(&format!("exec-fails-{n}")));
        let user = scratch.plugin(script);
        let error = client(&scratch, &server, &user).server_version().unwrap_err();
        assert!(matches!(error, Error::Credentials { .. }), "{error:?}");
        errors
            .push_str(&error.to_string().replace(&scratch.path("./plugin").display().to_string(), "PLUGIN"));
        errors.push('\n');
        assert!(server.lines().is_empty());
    }
    assert!(!errors.contains("s3cr3t"), "{errors}");
    expect![[r#"
        credentials from the exec plugin PLUGIN: it failed (exit status: 3); run it by hand to see why
        credentials from the exec plugin PLUGIN: it printed no ExecCredential in JSON or YAML; run it by hand to see what it prints
        credentials from the exec plugin PLUGIN: it does not answer in client.authentication.k8s.io/v1; make the kubeconfig's apiVersion and the plugin agree
        credentials from the exec plugin PLUGIN: it gave neither a token nor a client certificate
        credentials from the exec plugin PLUGIN: its answer has no status; is it up to date?
        credentials from the exec plugin PLUGIN: it gave only one of clientCertificateData and clientKeyData
        credentials from the exec plugin PLUGIN: its expirationTimestamp is no RFC 3339 time, such as 2026-01-31T12:00:00Z
        credentials from the exec plugin PLUGIN: status.token: the token cannot stand in an HTTP header; write the token on one line, without control characters
        credentials from the exec plugin PLUGIN: status.clientCertificateData: there is no certificate in it; give certificates in PEM, from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----
        credentials from the exec plugin PLUGIN: it printed more than 1 MiB, which is no credential
    "#]].assert_eq(&errors);
}

#[test]
fn r7_a_plugin_that_is_not_installed_is_named_with_its_hint() {
    let (server, scratch) = (server("never"), Scratch::new("exec-missing"));
    let exec = scratch.plugin("").replace("./plugin", "no-such-plugin-anywhere");
    let error = |user: &str| client(&scratch, &server, user).server_version().unwrap_err().to_string();
    expect!["credentials from the exec plugin no-such-plugin-anywhere: it cannot be started (No such file or directory (os error 2)); install it, or give its whole path as users[].user.exec.command"].assert_eq(&error(&exec));
    expect!["credentials from the exec plugin no-such-plugin-anywhere: it cannot be started (No such file or directory (os error 2)); brew install it or so"].assert_eq(&error(&format!("{exec}\n  installHint: |\n    brew install it\n    or so")));
}

#[test]
fn r1_a_plugin_that_fails_is_not_started_by_every_worker() {
    let (server, scratch) = (server("never"), Scratch::new("exec-storm"));
    let client = client(&scratch, &server, &scratch.plugin("echo x >> \"$(dirname \"$0\")/runs\"; exit 1"));
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| client.server_version().unwrap_err());
        }
    });
    assert_eq!(runs(&scratch), 1);
}

#[test]
fn r6_shut_down_ends_a_running_plugin() {
    let (server, scratch) = (server("never"), Scratch::new("exec-hangs"));
    let client = client(
        &scratch,
        &server,
        &scratch.plugin("cd \"$(dirname \"$0\")\"; echo x > runs; exec sleep 3600"),
    );
    let started = Instant::now();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| client.server_version());
        while runs(&scratch) == 0 && started.elapsed() < Duration::from_secs(30) {
            std::thread::yield_now();
        }
        client.shut_down();
        assert_eq!(waiting.join().unwrap(), Err(Error::ShutDown));
    });
    assert!(started.elapsed() < Duration::from_secs(50));
}

#[test]
fn r2_no_secret_is_in_any_debug_output() {
    let (server, scratch) = (server("never"), Scratch::new("debug"));
    scratch.write("token", "s3cr3t-file");
    let exec = format!("{}\n  env: [{{name: A, value: s3cr3t-env}}]", scratch.plugin(""));
    for user in ["token: s3cr3t", "tokenFile: token", "username: u\npassword: s3cr3t", &exec] {
        let cluster = format!("server: {}\nproxy-url: http://u:s3cr3t@proxy:1", server.url());
        let config = Config::from_kubeconfig(&scratch.kubeconfig(&cluster, user), None).unwrap();
        let client = Client::new(&config, &Options::default()).unwrap();
        let shown = format!("{config:?} {config:#?} {client:?} {:?}", client.server_version());
        assert!(!shown.contains("s3cr3t"), "{shown}");
        assert!(shown.contains("redacted"), "{shown}");
    }
}
