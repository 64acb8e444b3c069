//! Conversations with a real kube-apiserver 1.36.3, replayed to the simulator, which must answer the same.
//!
//! Each file in `wire/` is a conversation: lines with `>` are requests, lines with `<` what the real server answered.
//! UIDs, resourceVersions and times are numbered in the order in which they appear (`uid-1`, `rv-1`), so that only
//! what matters is compared; a request may use those names. Left out: `managedFields`, and repeated causes.
//!
//! To record anew, serve a fresh API server without credentials on a local port (`kubectl proxy` does) and run
//! `GC_TESTS_RECORD=127.0.0.1:PORT cargo test -p gc-tests --test wire`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test may stop where it stands.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gc_tests::sim::{ApiServer, Body, Method, Request, Timestamp};
use serde_json::{Value, json};

#[test]
fn the_simulator_answers_as_the_real_server_did() {
    if let Ok(address) = std::env::var("GC_TESTS_RECORD") {
        record(&address);
    }
    let mut files = 0;
    let mut wrong = String::new();
    for path in conversations() {
        files += 1;
        let recorded = std::fs::read_to_string(&path).unwrap();
        let mut server =
            Server::Simulator(Box::new(ApiServer::new(7)), "2026-01-02T03:04:05Z".parse().unwrap());
        let answered = converse(&recorded, &mut server);
        for (recorded, answered) in recorded.lines().zip(answered.lines()).filter(|(r, a)| r != a) {
            let _ = writeln!(wrong, "{}\n  real {recorded}\n  sim  {answered}", path.display());
        }
        if recorded.lines().count() != answered.lines().count() {
            let _ = writeln!(wrong, "{}: another number of lines:\n{answered}", path.display());
        }
    }
    assert!(files > 0, "no conversation was found");
    assert!(wrong.is_empty(), "the simulator answers differently:\n{wrong}");
}

/// Writes the answers of a real server into the conversations.
fn record(address: &str) {
    for path in conversations() {
        let script = std::fs::read_to_string(&path).unwrap();
        let answered = converse(&script, &mut Server::Real(address.into()));
        std::fs::write(&path, answered).unwrap();
    }
}

fn conversations() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths
}

enum Server {
    Simulator(Box<ApiServer>, Timestamp),
    /// Host and port.
    Real(String),
}

struct Answer {
    code: u16,
    content_type: String,
    body: Vec<u8>,
}

/// Goes through a conversation and gives it back with the answers of this server.
fn converse(script: &str, server: &mut Server) -> String {
    let mut names = Names::default();
    let mut out = String::new();
    let mut lines = script.lines().filter(|l| !l.starts_with('<')).peekable();
    while let Some(line) = lines.next() {
        let _ = writeln!(out, "{line}");
        let Some(head) = line.strip_prefix("> ") else { continue };
        let mut body = String::new();
        while let Some(more) = lines.next_if(|l| l.starts_with("> {") || l.starts_with("> [")) {
            let _ = writeln!(out, "{more}");
            body.push_str(&more[2..]);
        }
        let step = Step::parse(&names.fill_in(head), &names.fill_in(&body));
        let answer = step.ask(server);
        let _ = writeln!(out, "< {} {}", answer.code, answer.content_type);
        let body = String::from_utf8(answer.body).unwrap();
        // Some answers are printed over several lines; a watch is one document a line.
        let whole = serde_json::from_str::<Value>(&body).map(|v| v.to_string()).unwrap_or(body);
        for line in whole.lines().filter(|l| !l.is_empty()) {
            let shown = match serde_json::from_str::<Value>(line) {
                Ok(mut value) if value["type"] == "BOOKMARK" => {
                    // How far a real server has come with other resources is chance.
                    value["object"]["metadata"]["resourceVersion"] = "".into();
                    names.normalize(&value)
                }
                Ok(value) => names.normalize(&step.pick(value)),
                Err(_) => line.into(),
            };
            let _ = writeln!(out, "< {shown}");
        }
    }
    out
}

/// `METHOD TARGET [as=…] [type=…] [only=…] [until=CODE]`.
struct Step {
    request: Request,
    only: Vec<String>,
    until: Option<u16>,
}

impl Step {
    fn parse(head: &str, body: &str) -> Step {
        let mut words = head.split(' ');
        let method = Method::parse(words.next().unwrap()).unwrap();
        let mut request = Request::new(method, words.next().unwrap());
        request.body = body.as_bytes().to_vec();
        request.content_type = "application/json".into();
        request.accept = "application/json".into();
        let mut step = Step { request, only: Vec::new(), until: None };
        for word in words {
            let (key, value) = word.split_once('=').unwrap();
            match key {
                "as" => step.request.accept = format!("application/json;as={value};g=meta.k8s.io;v=v1"),
                "accept" => step.request.accept = value.into(),
                "type" => step.request.content_type = format!("application/{value}+json"),
                "only" => step.only = value.split(',').map(Into::into).collect(),
                "until" => step.until = Some(value.parse().unwrap()),
                other => panic!("unknown word {other}"),
            }
        }
        step
    }

    fn ask(&self, server: &mut Server) -> Answer {
        for _ in 0..100 {
            let answer = match server {
                Server::Simulator(server, now) => {
                    *now += Duration::from_secs(1);
                    ask_simulator(server, *now, &self.request)
                }
                Server::Real(address) => ask_real(address, &self.request),
            };
            if self.until.is_none_or(|code| code == answer.code) {
                return answer;
            }
            if let Server::Real(_) = server {
                // A real server needs time to establish definitions; nothing tells when it has.
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        panic!("{} never came to {:?}", self.request.target, self.until);
    }

    /// Only the wanted fields of the metadata, where not all are wanted.
    fn pick(&self, value: Value) -> Value {
        if self.only.is_empty() || value["kind"] == "Status" {
            return value;
        }
        let picked = self.only.iter().map(|key| (key.clone(), value["metadata"][key].clone()));
        Value::Object(picked.collect())
    }
}

fn ask_simulator(server: &mut ApiServer, now: Timestamp, request: &Request) -> Answer {
    let response = server.handle(now, request);
    let body = match response.body {
        Body::Bytes(bytes) => bytes,
        Body::Watch(id) => {
            let mut bytes = server.poll_watch(now, id).bytes;
            bytes.extend(server.poll_watch(now + Duration::from_secs(1), id).bytes);
            bytes
        }
        Body::Cut => panic!("no fault was asked for"),
    };
    Answer { code: response.code, content_type: response.content_type, body }
}

fn ask_real(address: &str, request: &Request) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "{} {} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: gc-tests\r\nConnection: close\r\nAccept: {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n",
        request.method.name(),
        request.target,
        request.accept,
        request.content_type,
        request.body.len()
    );
    stream.write_all(&[head.as_bytes(), &request.body].concat()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let field = |name: &str| {
        let line = head.lines().find(|l| l.to_lowercase().starts_with(name));
        line.and_then(|l| l.split_once(": ")).map(|(_, v)| v.to_string()).unwrap_or_default()
    };
    let raw = &bytes[end + 4..];
    let body = if field("transfer-encoding") == "chunked" { unchunk(raw) } else { raw.to_vec() };
    Answer {
        code: head.split(' ').nth(1).unwrap().parse().unwrap(),
        content_type: field("content-type"),
        body,
    }
}

fn unchunk(mut raw: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = raw.windows(2).position(|w| w == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&raw[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            break;
        }
        body.extend_from_slice(&raw[end + 2..end + 2 + size]);
        raw = &raw[end + 4 + size..];
    }
    body
}

/// Names for what differs from run to run.
#[derive(Default)]
struct Names {
    uids: Vec<String>,
    versions: Vec<String>,
}

impl Names {
    /// Puts the present run's values in place of their names, the longest first.
    fn fill_in(&self, text: &str) -> String {
        let mut text = text.to_string();
        for (prefix, list) in [("$uid-", &self.uids), ("$rv-", &self.versions)] {
            for (i, value) in list.iter().enumerate().rev() {
                text = text.replace(&format!("{prefix}{}", i + 1), value);
            }
        }
        assert!(
            !text.contains('$') || text.contains("$patch") || text.contains("$delete"),
            "unknown name in {text}"
        );
        text
    }

    fn normalize(&mut self, value: &Value) -> String {
        self.collect(value);
        self.replace(value).to_string()
    }

    fn collect(&mut self, value: &Value) {
        if let Value::String(text) = value {
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            for word in words.filter(|w| is_uid(w)) {
                if !self.uids.iter().any(|known| known == word) {
                    self.uids.push(word.into());
                }
            }
        }
        if let Some(metadata) = value.get("metadata") {
            let text = metadata["resourceVersion"].as_str().unwrap_or_default();
            if !text.is_empty() && !self.versions.iter().any(|known| known == text) {
                self.versions.push(text.into());
            }
        }
        match value {
            Value::Object(map) => map.values().for_each(|v| self.collect(v)),
            Value::Array(list) => list.iter().for_each(|v| self.collect(v)),
            _ => {}
        }
    }

    fn replace(&self, value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let kept = map.iter().filter(|(key, _)| *key != "managedFields");
                kept.map(|(key, v)| (key.clone(), self.replace_field(key, v)))
                    .collect::<serde_json::Map<_, _>>()
                    .into()
            }
            Value::Array(list) => list.iter().map(|v| self.replace(v)).collect(),
            Value::String(text) => self.replace_text(text).into(),
            other => other.clone(),
        }
    }

    fn replace_field(&self, key: &str, value: &Value) -> Value {
        match (key, value) {
            (_, Value::String(_)) if key.ends_with("Timestamp") || key == "lastTransitionTime" => {
                "TIME".into()
            }
            ("continue", Value::String(token)) if !token.is_empty() => "TOKEN".into(),
            ("causes", Value::Array(causes)) => {
                let mut unique: Vec<Value> = Vec::new();
                for cause in causes {
                    if !unique.contains(cause) {
                        unique.push(cause.clone());
                    }
                }
                self.replace(&json!(unique))
            }
            _ => self.replace(value),
        }
    }

    /// Whole words only, so that a version is not found inside another number.
    fn replace_text(&self, text: &str) -> String {
        let mut out = String::new();
        for word in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '-') {
            let core = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            let name = self.uids.iter().position(|u| u == core).map(|i| format!("uid-{}", i + 1));
            let name = name
                .or_else(|| self.versions.iter().position(|v| v == core).map(|i| format!("rv-{}", i + 1)));
            match name {
                Some(name) => out.push_str(&word.replacen(core, &name, 1)),
                None => out.push_str(word),
            }
        }
        out
    }
}

/// Eight, four, four, four and twelve hexadecimal digits.
fn is_uid(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && text.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
}
