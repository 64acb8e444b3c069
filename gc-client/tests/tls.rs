//! TLS: whom the client believes, and as whom it shows itself.

// A test that cannot set itself up fails, which is what unwrapping does.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{BufRead, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use expect_test::expect;
use gc_client::{Client, Config, Error, Method, Options, Request};
use rustls::{ServerConnection, StreamOwned};
use support::pki::{Authority, Leaf, der};
use support::{Reply, Scratch, Server, json};

fn data(pem: &str) -> String {
    BASE64_STANDARD.encode(pem)
}

fn identity(leaf: &Leaf) -> String {
    format!("client-certificate-data: {}\nclient-key-data: {}", data(&leaf.certificate), data(&leaf.key))
}

fn client(scratch: &Scratch, cluster: &str, user: &str) -> Client {
    let config = Config::from_kubeconfig(&scratch.kubeconfig(cluster, user), None).unwrap();
    Client::new(&config, &Options::default()).unwrap()
}

/// The error of a call, with the port taken out.
fn error(client: &Client) -> String {
    without_ports(&client.server_version().unwrap_err().to_string())
}

/// Which port a test's server got is chance.
fn without_ports(text: &str) -> String {
    let words = text.split(' ').map(|word| match word.rsplit_once(':') {
        Some((_, "")) if word.matches(':').count() > 1 => "SERVER:",
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

fn version(_: &support::Seen) -> Reply {
    json(200, "", r#"{"gitVersion":"v1.36.3"}"#)
}

#[test]
fn r1_the_right_authority_is_believed_and_the_connection_reused() {
    let authority = Authority::new("right");
    let server = Server::tls(authority.server_config(&["127.0.0.1"], None), version);
    let scratch = Scratch::new("right-authority");
    let roots = data(&authority.pem());
    let client = client(
        &scratch,
        &format!("server: {}\ncertificate-authority-data: {roots}", server.url()),
        "token: t",
    );
    for _ in 0..3 {
        assert_eq!(client.server_version(), Ok("v1.36.3".into()));
    }
    let seen = server.seen();
    assert!(seen.iter().all(|seen| seen.connection == 0 && seen.header("authorization") == "Bearer t"));
}

#[test]
fn r1_another_authority_is_not_believed_and_gets_no_token() {
    let (right, wrong) = (Authority::new("right"), Authority::new("wrong"));
    let server = Server::tls(right.server_config(&["127.0.0.1"], None), version);
    let scratch = Scratch::new("wrong-authority");
    let roots = data(&wrong.pem());
    let client = client(
        &scratch,
        &format!("server: {}\ncertificate-authority-data: {roots}", server.url()),
        "token: t",
    );
    expect!["GET /version at SERVER: TLS: invalid peer certificate: UnknownIssuer; the server's certificate is signed by an authority that certificate-authority does not name"].assert_eq(&error(&client));
    assert!(server.seen().is_empty());
}

#[test]
fn r1_a_certificate_for_another_name_is_not_believed() {
    let authority = Authority::new("right");
    let server = Server::tls(authority.server_config(&["other.example"], None), version);
    let scratch = Scratch::new("wrong-name");
    let cluster = format!("server: {}\ncertificate-authority-data: {}", server.url(), data(&authority.pem()));
    let error = error(&client(&scratch, &cluster, "token: t"));
    assert!(error.contains("set tls-server-name"), "{error}");
    assert!(server.seen().is_empty());
}

#[test]
fn r1_tls_server_name_is_what_the_certificate_must_say_and_what_the_server_is_asked_for() {
    let authority = Authority::new("right");
    let server = Server::tls(authority.server_config(&["kubernetes.default"], None), version);
    let scratch = Scratch::new("server-name");
    let roots = data(&authority.pem());
    let cluster = format!(
        "server: {}\ncertificate-authority-data: {roots}\ntls-server-name: kubernetes.default",
        server.url()
    );
    assert_eq!(client(&scratch, &cluster, "token: t").server_version(), Ok("v1.36.3".into()));
    let seen = &server.seen()[0];
    assert_eq!(seen.tls.server_name.as_deref(), Some("kubernetes.default"));
    assert_eq!(seen.header("host"), format!("127.0.0.1:{}", server.port()));

    let cluster = cluster.replace("kubernetes.default", "evil.example");
    let error = error(&client(&scratch, &cluster, "token: t"));
    assert!(error.contains("set tls-server-name"), "{error}");
}

#[test]
fn r1_insecure_skip_tls_verify_believes_anyone() {
    let server = Server::tls(Authority::new("any").server_config(&["other.example"], None), version);
    let scratch = Scratch::new("insecure");
    let cluster = format!("server: {}\ninsecure-skip-tls-verify: true", server.url());
    assert_eq!(client(&scratch, &cluster, "token: t").server_version(), Ok("v1.36.3".into()));
}

#[test]
fn r1_a_client_certificate_lets_in_and_none_or_a_foreign_one_does_not() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let server = Server::tls(servers.server_config(&["127.0.0.1"], Some(&clients)), version);
    let scratch = Scratch::new("client-certificate");
    let cluster = format!("server: {}\ncertificate-authority-data: {}", server.url(), data(&servers.pem()));
    let leaf = clients.client();
    assert_eq!(client(&scratch, &cluster, &identity(&leaf)).server_version(), Ok("v1.36.3".into()));
    assert_eq!(server.seen()[0].tls.client_certificate, Some(der(&leaf.certificate).to_vec()));

    let foreign = Authority::new("foreign").client();
    for user in ["token: t", &identity(&foreign)] {
        let refused = client(&scratch, &cluster, user).server_version().unwrap_err();
        assert!(matches!(refused, Error::Transport { .. }), "{refused}");
    }
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn r1_a_client_certificate_may_come_from_a_plugin() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let server = Server::tls(servers.server_config(&["127.0.0.1"], Some(&clients)), version);
    let scratch = Scratch::new("exec-certificate");
    let leaf = clients.client();
    let status = serde_json::json!({"clientCertificateData": leaf.certificate, "clientKeyData": leaf.key});
    let answer = serde_json::json!({
        "kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": status,
    });
    let cluster = format!("server: {}\ncertificate-authority-data: {}", server.url(), data(&servers.pem()));
    let client = client(&scratch, &cluster, &scratch.plugin(&format!("cat <<'END'\n{answer}\nEND")));
    assert_eq!(client.server_version(), Ok("v1.36.3".into()));
    let seen = &server.seen()[0];
    assert_eq!(seen.tls.client_certificate, Some(der(&leaf.certificate).to_vec()));
    assert_eq!(seen.header("authorization"), "");
}

/// A server that takes every client of the authority, but answers 401 to all but the one certificate; and a client
/// whose certificate files hold another one.
fn rotating(scratch: &Scratch, clients: &Authority, accepted: &Leaf) -> (Server, Client) {
    let servers = Authority::new("servers");
    let accepted = der(&accepted.certificate).to_vec();
    let config = servers.server_config(&["127.0.0.1"], Some(clients));
    let server = Server::tls(config, move |seen| {
        match (seen.line.as_str(), seen.tls.client_certificate.as_ref() == Some(&accepted)) {
            ("GET /watch", _) => {
                Reply::Hang(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n".to_vec())
            }
            (_, true) => version(seen),
            (_, false) => json(401, "", "{}"),
        }
    });
    let old = clients.client();
    scratch.write("pki/client.crt", &old.certificate);
    scratch.write("pki/client.key", &old.key);
    scratch.write("ca.crt", &servers.pem());
    let cluster = format!("server: {}\ncertificate-authority: ca.crt", server.url());
    let client = client(scratch, &cluster, "client-certificate: pki/client.crt\nclient-key: pki/client.key");
    (server, client)
}

#[test]
fn r1_certificate_files_that_rotate_are_used_and_running_streams_go_on() {
    let (clients, scratch) = (Authority::new("clients"), Scratch::new("rotating-certificate"));
    let new = clients.client();
    let (server, client) = rotating(&scratch, &clients, &new);
    let mut stream = client.open("/watch", "", Duration::from_secs(60)).unwrap();
    scratch.write("pki/client.crt", &new.certificate);
    scratch.write("pki/client.key", &new.key);
    assert_eq!(client.server_version(), Ok("v1.36.3".into()));
    assert_eq!(server.lines(), ["GET /watch", "GET /version", "GET /version"]);
    // The stream that was opened with the old certificate still runs, and shutting down still reaches it.
    let mut bytes = [0; 2];
    stream.read_exact(&mut bytes).unwrap();
    let started = Instant::now();
    client.shut_down();
    assert_eq!(stream.read(&mut bytes).unwrap_err().kind(), std::io::ErrorKind::ConnectionAborted);
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[test]
fn r1_half_a_rotation_leaves_the_old_certificate_in_use() {
    let (clients, scratch) = (Authority::new("clients"), Scratch::new("half-rotation"));
    let new = clients.client();
    let (server, client) = rotating(&scratch, &clients, &new);
    // The new certificate beside the old key.
    scratch.write("pki/client.crt", &new.certificate);
    let refused = client.send(&Request::get("/version", "")).unwrap();
    assert_eq!((refused.code, server.lines().len()), (401, 1));
}

#[test]
fn r1_an_authority_that_rotates_is_read_again_when_the_server_is_not_believed() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let server = Server::tls(new.server_config(&["127.0.0.1"], None), version);
    let scratch = Scratch::new("rotating-authority");
    scratch.write("ca.crt", &old.pem());
    let cluster = format!("server: {}\ncertificate-authority: ca.crt", server.url());
    let client = client(&scratch, &cluster, "token: t");
    scratch.write("ca.crt", &new.pem());
    assert_eq!(client.server_version(), Ok("v1.36.3".into()));
    assert_eq!(server.lines(), ["GET /version"]);
}

#[test]
fn r1_a_client_certificate_that_rotates_is_read_again_when_the_handshake_fails() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let server = Server::tls(servers.server_config(&["127.0.0.1"], Some(&clients)), version);
    let scratch = Scratch::new("rotating-handshake");
    let write = |leaf: &Leaf| {
        scratch.write("client.crt", &leaf.certificate);
        scratch.write("client.key", &leaf.key);
    };
    write(&Authority::new("foreign").client());
    let cluster = format!("server: {}\ncertificate-authority-data: {}", server.url(), data(&servers.pem()));
    let client = client(&scratch, &cluster, "client-certificate: client.crt\nclient-key: client.key");
    write(&clients.client());
    assert_eq!(client.server_version(), Ok("v1.36.3".into()));
    assert_eq!(server.lines(), ["GET /version"]);
}

#[test]
fn s5_a_stream_inside_tls_goes_on_after_a_time_out() {
    let authority = Authority::new("right");
    let server = Server::tls(authority.server_config(&["127.0.0.1"], None), |_| {
        Reply::Hang(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nwo".to_vec())
    });
    let scratch = Scratch::new("tls-stream");
    let cluster = format!("server: {}\ncertificate-authority-data: {}", server.url(), data(&authority.pem()));
    let client = client(&scratch, &cluster, "token: t");
    let mut stream = client.open("/watch", "", Duration::from_millis(300)).unwrap();
    let mut bytes = [0; 7];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hellowo");
    for _ in 0..2 {
        assert_eq!(stream.read(&mut bytes).unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    }
    client.shut_down();
    assert_eq!(stream.read(&mut bytes).unwrap_err().kind(), std::io::ErrorKind::ConnectionAborted);
}

/// Whatever the length of the server's records: of a few bytes, as a server begins, or as long as TLS allows.
#[test]
fn s5_a_long_list_inside_tls_comes_whole_in_records_of_any_length() {
    let body: Vec<u8> = (0..1_500_000_u32).map(|n| (n % 251) as u8).collect();
    for record_bytes in [32, 333, 4_096, 5_000, 16_000, 16_389] {
        let authority = Authority::new("right");
        let mut config = authority.server_config(&["127.0.0.1"], None);
        config.max_fragment_size = Some(record_bytes);
        // The second answer lacks its last byte.
        let sent = body.clone();
        let server = Server::tls(config, move |seen| {
            let head = format!("HTTP/1.1 200 X\r\nContent-Length: {}\r\n\r\n", sent.len());
            let is_whole = seen.line == "GET /whole";
            let end = if is_whole { sent.len() } else { sent.len() - 1 };
            let bytes = [head.as_bytes(), &sent[..end]].concat();
            if is_whole { Reply::Keep(bytes) } else { Reply::Close(bytes) }
        });
        let scratch = Scratch::new(&format!("tls-records-{record_bytes}"));
        let ca = data(&authority.pem());
        let cluster = format!("server: {}\ncertificate-authority-data: {ca}", server.url());
        let client = client(&scratch, &cluster, "token: t");
        let read = |path| {
            let mut came = Vec::new();
            let mut stream = client.open(path, "", Duration::from_secs(60)).unwrap();
            stream.read_to_end(&mut came).map(|_| came)
        };
        assert!(read("/whole").unwrap() == body, "records of {record_bytes} bytes");
        let cut = read("/cut").unwrap_err();
        assert_eq!(cut.kind(), std::io::ErrorKind::UnexpectedEof, "records of {record_bytes} bytes: {cut}");
        // The connection of the whole answer served the other one too.
        assert_eq!(server.seen().iter().map(|seen| seen.connection).max(), Some(0));
    }
}

/// Every deletion is one: sent apart, head and body would be two packets, for which the server is woken twice.
#[test]
fn a_request_and_its_body_are_one_record() {
    let authority = Authority::new("right");
    let config = Arc::new(authority.server_config(&["127.0.0.1"], None));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let serve = move || {
        let (socket, _) = listener.accept().unwrap();
        let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), socket);
        let mut records = Vec::new();
        for _ in 0..3 {
            // What is buffered is what was in one record.
            let record = String::from_utf8(stream.fill_buf().unwrap().to_vec()).unwrap();
            stream.consume(record.len());
            let (first, last) = (record.lines().next().unwrap(), record.lines().last().unwrap());
            records.push(format!("{first} … {last}\n"));
            stream.write_all(b"HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\n{}").unwrap();
        }
        records.concat()
    };
    let server = std::thread::Builder::new().name("server".into()).spawn(serve).unwrap();
    let scratch = Scratch::new("one-record");
    let cluster = format!("server: {url}\ncertificate-authority-data: {}", data(&authority.pem()));
    let client = client(&scratch, &cluster, "token: t");
    for (method, body) in [(Method::Delete, "{one}"), (Method::Get, ""), (Method::Patch, "{three}")] {
        let request = Request { method, body: body.as_bytes(), ..Request::get("/x", "a/b") };
        assert_eq!(client.send(&request).unwrap().code, 200);
    }
    expect![[r#"
        DELETE /x HTTP/1.1 … {one}
        GET /x HTTP/1.1 … 
        PATCH /x HTTP/1.1 … {three}
    "#]]
    .assert_eq(&server.join().unwrap());
}

/// It would be taken for the answer to the next request, and each answer after it for another one.
#[test]
fn d16_an_answer_that_nobody_asked_for_answers_no_other_request() {
    let authority = Authority::new("right");
    let config = Arc::new(authority.server_config(&["127.0.0.1"], None));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let serve = move || {
        // They stay open.
        let mut streams = Vec::new();
        for answers in [&["first", "surplus"][..], &["second"]] {
            let (socket, _) = listener.accept().unwrap();
            let mut stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), socket);
            let asked = stream.fill_buf().unwrap().len();
            stream.consume(asked);
            for answer in answers {
                let body = format!("{{\"gitVersion\":\"{answer}\"}}");
                let head = format!("HTTP/1.1 200 X\r\nContent-Length: {}\r\n\r\n", body.len());
                // A record each, all in one packet.
                stream.conn.writer().write_all(format!("{head}{body}").as_bytes()).unwrap();
            }
            stream.flush().unwrap();
            streams.push(stream);
        }
    };
    std::thread::Builder::new().name("server".into()).spawn(serve).unwrap();
    let scratch = Scratch::new("surplus");
    let cluster = format!("server: {url}\ncertificate-authority-data: {}", data(&authority.pem()));
    let client = client(&scratch, &cluster, "token: t");
    assert_eq!([(); 2].map(|()| client.server_version().unwrap()), ["first", "second"]);
}

#[test]
fn r7_a_plain_port_that_is_taken_for_tls_is_named() {
    let server = Server::plain(version);
    let scratch = Scratch::new("plain-port");
    let cluster =
        format!("server: {}\ninsecure-skip-tls-verify: true", server.url().replace("http:", "https:"));
    expect![
        "GET /version at SERVER: TLS: received corrupt message of type InvalidContentType; is this a plain HTTP port?"
    ]
    .assert_eq(&error(&client(&scratch, &cluster, "token: t")));
}

#[test]
fn r7_a_tls_port_that_is_taken_for_plain_http_is_named() {
    let server = Server::tls(Authority::new("any").server_config(&["127.0.0.1"], None), version);
    let client =
        Client::new(&Config::plain(&server.url().replace("https:", "http:")), &Options::default()).unwrap();
    expect!["GET /version at SERVER: what answers does not speak HTTP/1.1 (http parse fail: invalid HTTP version); check the scheme and the port of the server"].assert_eq(&error(&client));
}
