//! Documents that are read as a whole: Status, discovery, headers.

use std::time::Duration;

use gc_client::wire::Format;
use gc_client::{Discovery, Error, Response, Status, discover_with, untrusted};
use serde_json::{Value, json};

use super::{Dice, Memory, Target, ensure, ensure_one_line, outline};
use crate::fuzz::wire::{WORDS, recorded};

/// An error answer.
pub(super) const STATUS: Target = Target {
    name: "status",
    promise: "an error answer becomes one short line, and proves an absence only if it says so itself",
    corpus: || recorded(|value| value["kind"] == "Status").into_iter().map(String::into_bytes).collect(),
    words: WORDS,
    memory: Memory { fixed_bytes: 64 << 10, per_input_byte: 60 },
    check: check_status,
};

fn check_status(body: &[u8]) -> Result<String, String> {
    let status = Status::from_body(404, Some(Duration::from_secs(1)), body);
    let line = status.to_string();
    ensure_one_line(&line)?;
    ensure(line.len() <= 4 << 10, || format!("a line of {} bytes", line.len()))?;
    let kept = [&status.reason, &status.message, &status.name, &status.kind, &status.group, &status.uid];
    ensure(kept.iter().all(|text| text.len() <= 4 << 10), || "a field of more than 4 KiB is kept".into())?;
    // Read once more by other means.
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let name = value["details"]["name"].as_str().unwrap_or_default();
    let says_so = value["kind"] == "Status" && value["apiVersion"] == "v1" && value["reason"] == "NotFound";
    for asked in ["a", name, &status.name] {
        ensure(!status.proves_absent(asked) || (says_so && asked == name && !name.is_empty()), || {
            format!("this proves the absence of {asked:?}: {status:?}")
        })?;
    }
    Ok(format!("{} {}", status.is_status, status.reason.len()))
}

/// The answers to whatever discovery asks for. The input's lines: `PATH CONTENT-TYPE-NUMBER CODE BODY`.
pub(super) const DISCOVERY: Target = Target {
    name: "discovery",
    promise: "discovery gives the same for the same answers, an error in one line, and never more than it was told",
    corpus: discovery_corpus,
    words: &[
        b"\"kind\":\"APIGroupDiscoveryList\",", b"\"kind\":\"APIVersions\",", b"\"kind\":\"APIGroupList\",", b"\"items\":[", b"\"versions\":[",
        b"\"resources\":[", b"{\"resource\":\"a\",\"responseKind\":{\"kind\":\"A\"},\"scope\":\"Namespaced\",\"verbs\":[\"delete\"]},",
        b"\"freshness\":\"Stale\",", b"null", b"\"metadata\":{\"name\":\"g\"},", b"{\"version\":\"v1\"}", b"\n/apis/g/v1 0 200 ", b"\n/api 1 200 ",
        b"404 ", b"406 ", b"503 ", b"\\n", b"..", b"?", b"#", b"%2f",
    ],
    memory: Memory { fixed_bytes: 512 << 10, per_input_byte: 400 },
    check: check_discovery,
};

const CONTENT_TYPES: &[&str] = &[
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "application/json",
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList;charset=utf-8",
    "text/plain",
];

fn answers(input: &[u8], path: &str) -> Response {
    let lines = input.split(|b| *b == b'\n');
    for line in lines {
        let mut words = line.splitn(4, |b| *b == b' ');
        let mut word = || String::from_utf8_lossy(words.next().unwrap_or_default()).into_owned();
        if word() == path {
            let content_type = word().parse::<usize>().unwrap_or_default() % CONTENT_TYPES.len();
            return Response {
                code: word().parse().unwrap_or(200),
                content_type: CONTENT_TYPES.get(content_type).copied().unwrap_or_default().into(),
                body: words.next().unwrap_or_default().to_vec(),
                ..Response::default()
            };
        }
    }
    Response { code: 404, body: b"404 page not found".to_vec(), ..Response::default() }
}

fn check_discovery(input: &[u8]) -> Result<String, String> {
    let ask = || discover_with(&|path, _| Ok(answers(input, path)));
    let found = ask();
    ensure(found == ask(), || "another answer the second time".into())?;
    match found {
        Err(error) => {
            ensure_one_line(&error.to_string())?;
            Ok(outline(&error.to_string()))
        }
        Ok(Discovery { resources, failed }) => {
            ensure(resources.len() <= input.len(), || "more resources than bytes".into())?;
            for (version, why) in &failed {
                ensure_one_line(version)?;
                ensure_one_line(why)?;
            }
            for resource in &resources {
                ensure(!resource.kind.is_empty() || !resource.preferred, || {
                    format!("no kind: {resource:?}")
                })?;
                let twice = resources.iter().filter(|other| {
                    other.preferred
                        && resource.preferred
                        && (&other.group, &other.resource) == (&resource.group, &resource.resource)
                });
                ensure(twice.count() <= 1, || format!("preferred in two versions: {resource:?}"))?;
                let path = resource.path("n", "a");
                ensure(is_plain_path(&path), || format!("{path:?} would be another path"))?;
            }
            Ok(format!("{} {}", resources.len().min(9), failed.len().min(9)))
        }
    }
}

/// A path with nothing in it that a server would take for something else than names.
fn is_plain_path(path: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~%/".contains(c);
    path.chars().all(plain)
        && path.split('/').skip(1).all(|part| !part.is_empty() && part != "." && part != "..")
}

fn discovery_corpus() -> Vec<Vec<u8>> {
    let made =
        (0..8_u8).map(|seed| (0..200_u8).map(|n| n.wrapping_mul(seed) ^ seed << 4).collect::<Vec<u8>>());
    made.map(|bytes| Served::from(&mut Dice::new(&bytes)))
        .flat_map(|served| [served.aggregated(), served.plain()])
        .collect()
}

/// The two forms of discovery.
pub(super) const DISCOVERY_FORMS: Target = Target {
    name: "discovery-forms",
    promise: "what a server serves is understood alike in the aggregated and in the plain form",
    corpus: || {
        (0..8_u8).map(|seed| (0..200_u8).map(|n| n.wrapping_mul(seed) ^ seed << 5).collect()).collect()
    },
    words: &[b"\0\0\0\0", b"\x02\x02\x02", b"\xff\xff"],
    memory: Memory { fixed_bytes: 1 << 20, per_input_byte: 2_000 },
    check: |input| {
        let served = Served::from(&mut Dice::new(input));
        let (aggregated, plain) = (served.aggregated(), served.plain());
        let ask =
            |input: &[u8]| -> Result<Discovery, Error> { discover_with(&|path, _| Ok(answers(input, path))) };
        let (aggregated, plain) = (ask(&aggregated), ask(&plain));
        ensure(aggregated == plain, || format!("aggregated {aggregated:?}, plain {plain:?}"))?;
        Ok(aggregated.map_or_else(|e| outline(&e.to_string()), |d| d.resources.len().to_string()))
    },
};

/// Groups with versions with resources: name, kind, namespaced, verbs.
struct Served(Vec<(String, Vec<Version>)>);

/// A version's name, and its resources.
type Version = (String, Vec<Resource>);

struct Resource {
    name: String,
    kind: String,
    namespaced: bool,
    verbs: Vec<&'static str>,
}

impl Served {
    fn from(dice: &mut Dice<'_>) -> Served {
        let mut groups = Vec::new();
        for number in 0..dice.below(4) + 1 {
            let group = if number == 0 { String::new() } else { format!("g{number}.example") };
            let versions = ["v1", "v2", "v1beta1"].iter().take(dice.below(3) + 1);
            let versions = versions.map(|version| {
                let names = ["pods", "things", "a", "x-y"].iter().take(dice.below(5));
                let resources = names.filter_map(|name| {
                    let verbs =
                        ["get", "delete", "list", "watch"].into_iter().filter(|_| dice.flag()).collect();
                    let resource = Resource {
                        name: (*name).into(),
                        kind: name.to_uppercase(),
                        namespaced: dice.flag(),
                        verbs,
                    };
                    dice.below(4).checked_sub(1).map(|_| resource)
                });
                ((*version).to_owned(), resources.collect())
            });
            groups.push((group, versions.collect()));
        }
        Served(groups)
    }

    fn aggregated(&self) -> Vec<u8> {
        let list = |is_core: bool| {
            let groups = self.0.iter().filter(|(name, _)| name.is_empty() == is_core);
            let items: Vec<Value> = groups
                .map(|(name, versions)| {
                    let versions: Vec<Value> = versions
                        .iter()
                        .map(|(version, resources)| {
                            let resources: Vec<Value> = resources
                                .iter()
                                .map(|r| {
                                    json!({"resource": r.name, "responseKind": {"group": "", "version": "", "kind": r.kind},
                                        "scope": if r.namespaced { "Namespaced" } else { "Cluster" }, "verbs": r.verbs,
                                        "subresources": [{"subresource": "status"}]})
                                })
                                .collect();
                            json!({"version": version, "resources": resources, "freshness": "Current"})
                        })
                        .collect();
                    json!({"metadata": if is_core { json!({}) } else { json!({"name": name}) }, "versions": versions})
                })
                .collect();
            json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items})
        };
        format!("/api 0 200 {}\n/apis 0 200 {}", list(true), list(false)).into_bytes()
    }

    fn plain(&self) -> Vec<u8> {
        let mut text = String::new();
        let mut listed = Vec::new();
        for (group, versions) in &self.0 {
            for (version, resources) in versions {
                let path = if group.is_empty() {
                    format!("/api/{version}")
                } else {
                    format!("/apis/{group}/{version}")
                };
                let mut entries = Vec::new();
                for r in resources {
                    entries.push(
                        json!({"name": r.name, "kind": r.kind, "namespaced": r.namespaced, "verbs": r.verbs}),
                    );
                    entries.push(
                        json!({"name": format!("{}/status", r.name), "kind": r.kind, "verbs": ["get"]}),
                    );
                }
                let list = json!({"kind": "APIResourceList", "resources": entries});
                text += &format!("{path} 1 200 {list}\n");
            }
            let versions: Vec<&String> = versions.iter().map(|(version, _)| version).collect();
            if group.is_empty() {
                let document = json!({"kind": "APIVersions", "versions": versions});
                text += &format!("/api 1 200 {document}\n");
            } else {
                let named: Vec<Value> = versions.iter().map(|v| json!({"version": v})).collect();
                listed.push(json!({"name": group, "versions": named, "preferredVersion": named.first()}));
            }
        }
        let document = json!({"kind": "APIGroupList", "groups": listed});
        (text + &format!("/apis 1 200 {document}")).into_bytes()
    }
}

/// Headers of an answer.
pub(super) const HEADERS: Target = Target {
    name: "headers",
    promise: "a time to wait is a number of seconds below 2³², and a content type one of two or nothing",
    corpus: || {
        [
            "5",
            " 7 ",
            "Wed, 21 Oct 2015 07:28:00 GMT",
            "application/json",
            "application/vnd.kubernetes.protobuf;stream=watch",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
    },
    words: &[b"application/", b"json", b";", b"-", b"+", b"1e3"],
    memory: Memory { fixed_bytes: 16 << 10, per_input_byte: 16 },
    check: |input| {
        let text = String::from_utf8_lossy(input);
        let wait = untrusted::retry_after(&text);
        ensure(wait.is_none_or(|wait| wait <= Duration::from_secs(u64::from(u32::MAX))), || {
            format!("{wait:?}")
        })?;
        let digits = text.trim().trim_start_matches('+');
        ensure(wait.is_none() || digits.bytes().all(|b| b.is_ascii_digit()), || {
            format!("{text:?} is {wait:?}")
        })?;
        let format = Format::from_content_type(&text);
        let names = |name: &str| text.to_ascii_lowercase().trim_start().starts_with(name);
        ensure(format != Some(Format::Json) || names("application/json"), || {
            format!("{text:?} is {format:?}")
        })?;
        Ok(format!("{} {format:?}", wait.is_some()))
    },
};
