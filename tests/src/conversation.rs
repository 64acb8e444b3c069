//! Conversations with a real kube-apiserver 1.36.3, which the simulator must answer alike.
//!
//! Each file in `tests/wire/` is a conversation: lines with `>` are requests, lines with `<` what the real server
//! answered. UIDs, resourceVersions and times are numbered in the order in which they appear (`uid-1`, `rv-1`), so that
//! only what matters is compared; a request may use those names (`$uid-1`), and `$uid`, `$rv` and `$token` for those of
//! the last object or list that was answered. Left out: `managedFields`, and repeated causes.
//!
//! The same conversations are held with the simulator in `cargo test`, and with a real server in the end-to-end suite,
//! so that neither the recording nor the simulator can drift away from what Kubernetes does.
//!
//! ```
//! use gc_tests::conversation::{Simulator, converse};
//!
//! let script = "> GET /api/v1/namespaces/default only=name\n";
//! let answered = converse(script, &mut Simulator::new())?;
//! assert_eq!(answered, format!("{script}< 200 application/json\n< {{\"name\":\"default\"}}\n"));
//! # Ok::<(), String>(())
//! ```

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::time::Duration;

use gc_client::wire::{self, Format, WatchReader, WireEvent};
use gc_client::{Client, MetaRef, ObjectMeta, OwnerReference};
use serde_json::{Value, json};

use crate::sim::{ApiServer, Body, Method, Request, Timestamp};

/// Each file of `tests/wire/`, with its name. The order is the order in which they are held: those that take something
/// away from the whole server come last.
pub const RECORDED: &[(&str, &str)] = &[
    ("cluster-custom", include_str!("../tests/wire/cluster-custom.txt")),
    ("create", include_str!("../tests/wire/create.txt")),
    ("custom", include_str!("../tests/wire/custom.txt")),
    ("delete", include_str!("../tests/wire/delete.txt")),
    ("discovery", include_str!("../tests/wire/discovery.txt")),
    ("list", include_str!("../tests/wire/list.txt")),
    ("namespace", include_str!("../tests/wire/namespace.txt")),
    ("owners", include_str!("../tests/wire/owners.txt")),
    ("update", include_str!("../tests/wire/update.txt")),
    ("policies", include_str!("../tests/wire/policies.txt")),
    ("twice", include_str!("../tests/wire/twice.txt")),
    ("writes", include_str!("../tests/wire/writes.txt")),
    ("pods", include_str!("../tests/wire/pods.txt")),
    ("pages", include_str!("../tests/wire/pages.txt")),
    ("collection", include_str!("../tests/wire/collection.txt")),
    ("dry-run", include_str!("../tests/wire/dry-run.txt")),
    ("shapes", include_str!("../tests/wire/shapes.txt")),
    ("status", include_str!("../tests/wire/status.txt")),
];

/// A real server needs time to establish definitions; this is asked again so often for an `until=CODE`.
const ASKED_AGAIN_MAX: u32 = 100;

/// Somebody who answers.
pub trait Server {
    /// One answer, read to its end; a watch ends by its `timeoutSeconds`.
    ///
    /// # Errors
    ///
    /// Why there is none.
    fn ask(&mut self, request: &Request) -> Result<Answer, String>;

    /// Before a request is repeated.
    fn wait(&mut self);

    /// For the line `! compact`: what happened before cannot be watched from any more. A real server
    /// cannot be told to, but remembers nothing of a definition from before it was made.
    fn forget_history(&mut self) {}
}

/// What was answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status code.
    pub code: u16,
    /// The header `Content-Type`.
    pub content_type: String,
    /// All of it.
    pub body: Vec<u8>,
}

/// A fresh simulator; every request takes a second.
pub struct Simulator {
    server: ApiServer,
    now: Timestamp,
}

impl Simulator {
    /// One on which nothing has happened.
    #[expect(clippy::new_without_default, reason = "a server is no plain value")]
    pub fn new() -> Simulator {
        Simulator {
            server: ApiServer::new(7),
            now: Timestamp::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        }
    }
}

impl Server for Simulator {
    fn ask(&mut self, request: &Request) -> Result<Answer, String> {
        self.now += Duration::from_secs(1);
        let response = self.server.handle(self.now, request);
        let body = match response.body {
            Body::Bytes(bytes) => bytes,
            Body::Watch(id) => {
                let mut bytes = self.server.poll_watch(self.now, id).bytes;
                bytes.extend(self.server.poll_watch(self.now + Duration::from_secs(1), id).bytes);
                bytes
            }
            Body::Cut => return Err("the connection was cut, though no fault was asked for".into()),
        };
        Ok(Answer { code: response.code, content_type: response.content_type, body })
    }

    fn wait(&mut self) {}

    fn forget_history(&mut self) {
        let version = self.server.resource_version();
        self.server.compact(version);
    }
}

/// A real server, or whatever a client talks to.
pub struct Real<'c> {
    client: &'c Client,
}

impl Real<'_> {
    /// Asks through this client.
    pub fn new(client: &Client) -> Real<'_> {
        Real { client }
    }
}

impl Server for Real<'_> {
    fn ask(&mut self, request: &Request) -> Result<Answer, String> {
        let method = match request.method {
            Method::Get => gc_client::Method::Get,
            Method::Post => gc_client::Method::Post,
            Method::Put => gc_client::Method::Put,
            Method::Patch => gc_client::Method::Patch,
            Method::Delete => gc_client::Method::Delete,
        };
        let Request { target, accept, content_type, body, .. } = request;
        let request = gc_client::Request { method, path: target, accept, content_type, body };
        let answer = self.client.send(&request).map_err(|error| error.to_string())?;
        Ok(Answer { code: answer.code, content_type: answer.content_type, body: answer.body })
    }

    fn wait(&mut self) {
        // Nothing tells when a real server has established a definition.
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// How many requests a conversation has.
pub fn requests(script: &str) -> usize {
    script.lines().filter(|line| is_head(line)).count()
}

fn is_head(line: &str) -> bool {
    line.strip_prefix("> ").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
}

/// Where two conversations differ, a few lines each.
pub fn difference(who: [&str; 2], conversations: [&str; 2]) -> String {
    let [mut left, mut right] = conversations.map(str::lines);
    let (mut head, mut text) = (String::new(), String::new());
    loop {
        match (left.next(), right.next()) {
            (None, None) => return text,
            (l, r) => {
                if let Some(l) = l.filter(|l| is_head(l)) {
                    l.clone_into(&mut head);
                }
                if l != r {
                    let [l, r] = [l, r].map(Option::unwrap_or_default);
                    let _ = writeln!(text, "  {head}\n    {:<9} {l}\n    {:<9} {r}", who[0], who[1]);
                }
            }
        }
    }
}

/// Goes through a conversation and gives it back with the answers of this server.
///
/// # Errors
///
/// A line that is not understood, or a request that got no answer.
pub fn converse(script: &str, server: &mut dyn Server) -> Result<String, String> {
    let mut names = Names::default();
    let mut out = String::new();
    let mut lines = script.lines().filter(|l| !l.starts_with('<')).peekable();
    while let Some(line) = lines.next() {
        let _ = writeln!(out, "{line}");
        if line == "! compact" {
            server.forget_history();
        }
        let Some(head) = line.strip_prefix("> ") else { continue };
        let mut body = String::new();
        while let Some(more) = lines.next_if(|l| l.starts_with("> {") || l.starts_with("> [")) {
            let _ = writeln!(out, "{more}");
            body.push_str(more.get(2..).unwrap_or_default());
        }
        let step = Step::parse(&names.fill_in(head)?, &names.fill_in(&body)?)?;
        let answer = step.ask(server).map_err(|why| format!("{head}: {why}"))?;
        let _ = writeln!(out, "< {} {}", answer.code, answer.content_type);
        let body = if answer.content_type.starts_with("application/vnd.kubernetes.protobuf") {
            decoded(&step.request, &answer.body)
        } else {
            String::from_utf8_lossy(&answer.body).into_owned()
        };
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
    Ok(out)
}

/// A protobuf body in words, so that it can be compared: what our decoder reads.
fn decoded(request: &Request, body: &[u8]) -> String {
    let mut lines = Vec::new();
    let meta = |meta: MetaRef<'_>| object_meta(&meta.to_owned());
    if request.query_flag("watch") {
        let mut watch = WatchReader::new(Format::Protobuf, body);
        loop {
            let event = watch.next(|event| match event {
                WireEvent::Added(object) => json!({"type": "ADDED", "object": meta(object)}),
                WireEvent::Modified(object) => json!({"type": "MODIFIED", "object": meta(object)}),
                WireEvent::Deleted(object) => json!({"type": "DELETED", "object": meta(object)}),
                WireEvent::Bookmark { initial_events_end, .. } => {
                    json!({"type": "BOOKMARK", "object": {"metadata": {"initialEventsEnd": initial_events_end}}})
                }
                WireEvent::Error(status) => json!({"type": "ERROR", "reason": status.reason, "code": status.code}),
            });
            match event {
                Ok(Some(event)) => lines.push(event),
                Ok(None) => break,
                Err(error) => {
                    lines.push(error.to_string().into());
                    break;
                }
            }
        }
    } else if let Ok(object) = wire::read_object(Format::Protobuf, body).map(|object| object_meta(&object))
        && object["metadata"]["name"] != ""
    {
        lines.push(object);
    } else {
        let end = wire::read_list(Format::Protobuf, body, &mut |object| {
            lines.push(meta(object));
            ControlFlow::Continue(())
        });
        lines.push(match end {
            Ok(end) => {
                json!({"metadata": {"resourceVersion": end.resource_version, "continue": end.continue_token}})
            }
            Err(error) => error.to_string().into(),
        });
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn object_meta(meta: &ObjectMeta) -> Value {
    let ObjectMeta { name, namespace, uid, resource_version, being_deleted, finalizers, owner_references } =
        meta;
    json!({"metadata": {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": resource_version,
        "beingDeleted": being_deleted, "finalizers": finalizers,
        "ownerReferences": written(owner_references)}})
}

/// Owner references as the API writes them.
pub(crate) fn written(references: &[OwnerReference]) -> Value {
    let one = |o: &OwnerReference| {
        json!({"apiVersion": o.api_version, "kind": o.kind, "name": o.name, "uid": o.uid, "controller": o.controller,
            "blockOwnerDeletion": o.block_owner_deletion})
    };
    references.iter().map(one).collect()
}

/// `METHOD TARGET [as=…] [type=…] [only=…] [until=CODE]`.
struct Step {
    request: Request,
    only: Vec<String>,
    until: Option<u16>,
}

impl Step {
    fn parse(head: &str, body: &str) -> Result<Step, String> {
        let mut words = head.split(' ');
        let not_understood = |word: &str| format!("{word:?} is not understood in: {head}");
        let method = words.next().and_then(Method::parse).ok_or_else(|| not_understood("the method"))?;
        let mut request = Request::new(method, words.next().ok_or_else(|| not_understood("no target"))?);
        request.body = body.as_bytes().to_vec();
        request.content_type = "application/json".into();
        request.accept = "application/json".into();
        let mut step = Step { request, only: Vec::new(), until: None };
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| not_understood(word))?;
            match key {
                "as" => step.request.accept = format!("application/json;as={value};g=meta.k8s.io;v=v1"),
                "accept" => step.request.accept = value.into(),
                "type" => step.request.content_type = format!("application/{value}+json"),
                "only" => step.only = value.split(',').map(Into::into).collect(),
                "until" => step.until = Some(value.parse().map_err(|_| not_understood(word))?),
                _ => return Err(not_understood(word)),
            }
        }
        Ok(step)
    }

    fn ask(&self, server: &mut dyn Server) -> Result<Answer, String> {
        for _ in 0..ASKED_AGAIN_MAX {
            let answer = server.ask(&self.request)?;
            if self.until.is_none_or(|code| code == answer.code) {
                return Ok(answer);
            }
            server.wait();
        }
        Err(format!("it never came to {:?}", self.until))
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

/// Names for what differs from run to run.
#[derive(Default)]
struct Names {
    uids: Vec<String>,
    versions: Vec<String>,
    /// UID, version and token of the last answer that had one: `$uid`, `$rv`, `$token`.
    last: [String; 3],
}

impl Names {
    /// Puts the present run's values in place of their names, the longest first.
    fn fill_in(&self, text: &str) -> Result<String, String> {
        let mut text = text.to_string();
        for (prefix, list) in [("$uid-", &self.uids), ("$rv-", &self.versions)] {
            for (i, value) in list.iter().enumerate().rev() {
                text = text.replace(&format!("{prefix}{}", i + 1), value);
            }
        }
        for (name, value) in ["$uid", "$rv", "$token"].into_iter().zip(&self.last) {
            // A name with a number that is not known yet is none of these.
            if !text.contains(&format!("{name}-")) {
                text = text.replace(name, value);
            }
        }
        if text.contains("$uid-") || text.contains("$rv-") {
            return Err(format!("a name that no answer has given yet: {text}"));
        }
        Ok(text)
    }

    fn normalize(&mut self, value: &Value) -> String {
        let metadata = &value["metadata"];
        for (last, key) in self.last.iter_mut().zip(["uid", "resourceVersion", "continue"]) {
            if let Some(text) = metadata[key].as_str().filter(|text| !text.is_empty()) {
                text.clone_into(last);
            }
        }
        let mut value = value.clone();
        if is_list(&value) {
            self.settle_version(&mut value["metadata"]["resourceVersion"]);
        }
        self.collect(&value);
        self.replace(&value).to_string()
    }

    /// A list's version may be newer than all its objects: the server writes things of its own. How much newer is
    /// chance, so it is taken for that of the newest write which was seen.
    fn settle_version(&self, version: &mut Value) {
        let number = |text: &str| text.parse::<u64>().unwrap_or(0);
        let Some(listed) = version.as_str().map(number) else { return };
        let seen = self.versions.iter().filter(|seen| number(seen) <= listed).max_by_key(|seen| number(seen));
        *version = seen.map_or("", String::as_str).into();
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
            // The version in parentheses is the oldest that the server still has.
            ("message", Value::String(text)) if text.starts_with("too old resource version: ") => {
                text.split(" (").next().into()
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

/// Of objects, or a table of them.
fn is_list(value: &Value) -> bool {
    value.get("items").is_some() || value.get("rows").is_some()
}

/// Eight, four, four, four and twelve hexadecimal digits.
fn is_uid(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && text.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
}
