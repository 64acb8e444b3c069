//! What is logged, at the most talkative level, by everything below the client. A process has one logger, so this is a
//! test binary of its own.

// A test that cannot set itself up fails, which is what unwrapping does.
#![allow(clippy::unwrap_used)]

mod support;

use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gc_client::{Client, Config, Options, Request};
use support::pki::Authority;
use support::{Scratch, Server, json};

struct Capture(Mutex<String>);

static CAPTURE: Capture = Capture(Mutex::new(String::new()));

impl log::Log for Capture {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let _ = writeln!(self.0.lock().unwrap(), "{} {}", record.target(), record.args());
    }

    fn flush(&self) {}
}

#[test]
fn r2_no_token_password_or_key_is_logged_at_any_level() {
    log::set_logger(&CAPTURE).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    let scratch = Scratch::new("logs");
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let leaf = clients.client();
    let tls = Server::tls(servers.server_config(&["127.0.0.1"], Some(&clients)), |_| json(401, "", "{}"));
    let plain = Server::plain(|_| json(401, "", "{}"));
    scratch.write("token", "s3cr3t");
    let basic = "username: u\npassword: s3cr3t";
    let plugin = scratch.plugin(
        "echo '{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":{\"token\":\"s3cr3t\"}}'",
    );
    let data = |pem: &str| BASE64_STANDARD.encode(pem);
    let over_tls = format!("server: {}\ncertificate-authority-data: {}", tls.url(), data(&servers.pem()));
    let certificate = format!(
        "token: s3cr3t\nclient-certificate-data: {}\nclient-key-data: {}",
        data(&leaf.certificate),
        data(&leaf.key)
    );
    let over_plain = format!("server: {}", plain.url());
    let through_proxy = format!(
        "server: https://prod.example\ninsecure-skip-tls-verify: true\nproxy-url: http://u:s3cr3t@127.0.0.1:{}",
        plain.port()
    );
    let cases = [
        (&over_plain, "token: s3cr3t"),
        (&over_plain, "tokenFile: token"),
        (&over_plain, basic),
        (&over_plain, &plugin),
        (&over_tls, &certificate),
        (&through_proxy, "token: s3cr3t"),
    ];
    for (cluster, user) in cases {
        let config = Config::from_kubeconfig(&scratch.kubeconfig(cluster, user), None).unwrap();
        let client = Client::new(&config, &Options::default()).unwrap();
        // Refused or failed: both are logged most.
        let _ = client.send(&Request::get("/version", ""));
        let _ = client.open("/watch", "", Duration::from_secs(5));
    }
    let logged = CAPTURE.0.lock().unwrap().clone();
    assert!(plain.seen().iter().any(|seen| seen.header("authorization") == "Bearer s3cr3t"));
    assert!(plain.seen().iter().any(|seen| seen.line.starts_with("CONNECT ")), "{:?}", plain.lines());
    assert!(tls.seen().iter().any(|seen| seen.tls.client_certificate.is_some()));
    assert!(logged.contains("ureq"), "nothing of ureq was captured");
    assert!(logged.contains("insecure-skip-tls-verify is set"), "{logged}");
    assert!(logged.contains("gc_client::http GET /version: 401 after "), "-v 8 shows each request: {logged}");
    let encoded = BASE64_STANDARD.encode("u:s3cr3t");
    let key_line = leaf.key.lines().nth(1).unwrap();
    for secret in ["s3cr3t", &encoded, key_line] {
        let line = logged.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "a secret is in the log");
    }
}
