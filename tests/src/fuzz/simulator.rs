//! The simulated server: it is asked by whatever a test starts, and must not fall over.

use std::time::Duration;

use gc_client::wire::Format;
use serde_json::{Value, json};

use super::wire::{Made, list};
use super::{Dice, Memory, Target, ensure};
use crate::conversation::RECORDED;
use crate::sim::{ApiServer, Body, Method, Request, Response, Timestamp};

/// Requests of any kind, in the notation of the recorded conversations.
pub(super) const REQUESTS: Target = Target {
    name: "simulator",
    promise: "the simulator answers whatever it is asked, the same each time, and what it calls JSON is JSON",
    corpus: || RECORDED.iter().map(|(_, text)| asked(text)).collect(),
    words: &[
        b"\n> GET ",
        b"\n> POST ",
        b"\n> PUT ",
        b"\n> PATCH ",
        b"\n> DELETE ",
        b"/api/v1/namespaces/default/configmaps",
        b"/apis/",
        b"?watch=1",
        b"?limit=1",
        b"&continue=",
        b"&resourceVersion=0",
        b"&resourceVersionMatch=Exact",
        b"&labelSelector=a%20in%20(b)",
        b"&fieldSelector=metadata.name=a",
        b"&sendInitialEvents=true",
        b"&allowWatchBookmarks=1",
        b"?dryRun=All",
        b" type=json-patch",
        b" type=merge-patch",
        b" type=strategic-merge-patch",
        b" as=Table",
        b"\n> {",
        b"\n> [",
        b"{\"op\":\"remove\",\"path\":\"/metadata/finalizers/0\"}",
        b"\"$patch\":\"delete\"",
        b"\"metadata\":{",
        b"\"preconditions\":{\"uid\":\"x\"}",
        b"null",
        b"%00",
        b"%",
        b"\"finalizers\":[]",
        b"\"ownerReferences\":[{}]",
        b"(",
        b"!",
        b"/-",
        b"/~1",
    ],
    memory: Memory { fixed_bytes: 8 << 20, per_input_byte: 2_000 },
    check: |input| {
        let text = String::from_utf8_lossy(input);
        let once = talk(&text)?;
        ensure(once == talk(&text)?, || "another answer the second time".into())?;
        let mut codes: Vec<u16> = once.iter().map(|(code, _)| *code).collect();
        codes.dedup();
        Ok(format!("{codes:.60?}"))
    },
};

/// A conversation without its answers.
fn asked(conversation: &str) -> Vec<u8> {
    conversation.lines().filter(|line| line.starts_with('>')).collect::<Vec<_>>().join("\n").into_bytes()
}

fn talk(text: &str) -> Result<Vec<(u16, Vec<u8>)>, String> {
    let mut server = ApiServer::new(7);
    let mut now = Timestamp::UNIX_EPOCH;
    let mut answers = Vec::new();
    for request in requests(text) {
        now += Duration::from_secs(1);
        let response = server.handle(now, &request);
        let bytes = match response.body {
            Body::Bytes(bytes) => bytes,
            Body::Watch(id) => server.poll_watch(now, id).bytes,
            Body::Cut => return Err("a connection that is cut without a fault".into()),
        };
        ensure((200..600).contains(&response.code), || format!("{request:?}: code {}", response.code))?;
        if response.content_type == "application/json" {
            let documents = serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>();
            let broken = documents.filter_map(Result::err).next();
            ensure(broken.is_none(), || format!("{request:?}: {broken:?}"))?;
        }
        answers.push((response.code, bytes));
    }
    Ok(answers)
}

fn requests(text: &str) -> Vec<Request> {
    /// More would only take longer.
    const REQUESTS_MAX: usize = 200;
    let mut requests: Vec<Request> = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("> ")) {
        let mut words = line.split(' ');
        match (words.next().and_then(Method::parse), words.next(), requests.last_mut()) {
            (Some(method), Some(target), _) => {
                let mut request = Request::new(method, target);
                for word in words {
                    match word.split_once('=') {
                        Some(("as", value)) => {
                            request.accept = format!("application/json;as={value};g=meta.k8s.io;v=v1");
                        }
                        Some(("accept", value)) => request.accept = value.into(),
                        Some(("type", value)) => request.content_type = format!("application/{value}+json"),
                        _ => {}
                    }
                }
                requests.push(request);
            }
            (_, _, Some(request)) => request.body.extend_from_slice(line.as_bytes()),
            _ => {}
        }
    }
    requests.truncate(REQUESTS_MAX);
    requests
}

/// The simulator's encoders against the client's decoders.
pub(super) const LISTS: Target = Target {
    name: "simulator-lists",
    promise: "the simulator's objects are the same in JSON and protobuf, whole and in pages, listed and watched",
    corpus: || {
        (0..8_u8).map(|seed| (0..220_u8).map(|n| n.wrapping_mul(seed) ^ seed << 5).collect()).collect()
    },
    words: &[b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x03\x03\x03"],
    memory: Memory { fixed_bytes: 8 << 20, per_input_byte: 4_000 },
    check: check_lists,
};

const PARTIAL: &str = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

fn check_lists(input: &[u8]) -> Result<String, String> {
    let mut server = ApiServer::new(7);
    let now = Timestamp::UNIX_EPOCH;
    let path = "/api/v1/namespaces/default/configmaps";
    let mut created = 0;
    for (number, object) in Made::from(&mut Dice::new(input)).objects.iter().enumerate() {
        let owners: Vec<Value> = (object.owner_references.iter().enumerate())
            .map(|(n, o)| {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("{}x", o.name), "uid": format!("{}{n}", o.uid),
                    "blockOwnerDeletion": o.block_owner_deletion})
            })
            .collect();
        let finalizers: Vec<String> = object.finalizers.iter().map(|f| format!("example.com/x{f}")).collect();
        let body = json!({"metadata": {"name": format!("o{number}"), "ownerReferences": owners, "finalizers": finalizers,
            "labels": {"l": "v"}}, "data": {"a": object.name}});
        created += usize::from(server.handle(now, &Request::post(path, &body)).code == 201);
        if object.being_deleted {
            server.handle(now, &Request::delete(&format!("{path}/o{number}")));
        }
    }
    let whole = list(Format::Json, ask(&mut server, path, "application/json")?.body_bytes());
    let json =
        list(Format::Json, ask(&mut server, path, &format!("application/json;{PARTIAL}"))?.body_bytes());
    ensure(json == whole, || format!("metadata only {json:?}, full objects {whole:?}"))?;
    let accept = format!("application/vnd.kubernetes.protobuf;{PARTIAL}");
    let protobuf = list(Format::Protobuf, ask(&mut server, path, &accept)?.body_bytes());
    ensure(protobuf == whole, || format!("protobuf {protobuf:?}, JSON {whole:?}"))?;
    let mut paged = Vec::new();
    let mut token = String::new();
    loop {
        let target = format!("{path}?limit=2&continue={token}");
        let (objects, end) = list(Format::Protobuf, ask(&mut server, &target, &accept)?.body_bytes());
        paged.extend(objects);
        token = end?.continue_token;
        if token.is_empty() {
            break;
        }
    }
    ensure(paged == whole.0, || format!("in pages {paged:?}, as a whole {whole:?}"))?;
    Ok(format!("{created} created, {} left", whole.0.len()))
}

fn ask(server: &mut ApiServer, target: &str, accept: &str) -> Result<Response, String> {
    let response = server.handle(Timestamp::UNIX_EPOCH, &Request::get(target).accepting(accept));
    ensure(response.code == 200, || format!("{target}: {}", response.code))?;
    Ok(response)
}
