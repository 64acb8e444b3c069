//! A world as text: what the graph has seen, what the server holds, and what an attempt does between them.
//!
//! One object or event a line:
//!
//! ```text
//! graph cm/child @ns uid=c rv=5 owners=[cm/owner#o!] finalizers=[x] deleting   seen by a watch
//! live  cm/child @ns uid=c rv=5 owners=[cm/owner#o!]                            held by the server
//! both  …                                                                       the two of them
//! gone  cm/child @ns uid=c                                                      its deletion seen by a watch
//! #2 conflict                   the second request is answered so, whatever the server holds
//! #2 shows cm/child @ns …       the second request is answered with this object: a webhook changed it in the same write
//! after #2 live cm/child …      the server changes after the second request
//! after #2 dead cm/child @ns    likewise, by a deletion
//! after #2 restored             the server turns out to have been restored from a backup
//! after #2 later 6              the answer to the second request takes six seconds
//! ```
//!
//! Kinds: `cm` (v1 ConfigMap), `node` (v1 Node, cluster-scoped), `w` (example.com/v1 Widget, which takes no strategic
//! merge patch), `old` (the same in example.com/v0, served no longer), `late` (late.example.com/v1 Late, which nothing
//! serves). `!` is blockOwnerDeletion, `*` controller.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use gc_core::{
    DeleteAttempt, Kinds, LiveObject, Options, OrphanAttempt, OrphanStep, Outcome, OwnerReference, PatchKind,
    Reply, Request, Resource, State, Step, Target,
};
use gc_graph::{Effect, Observation, OwnerReferenceRef, SourceId, Uid};
use serde_json::Value;

/// One object line.
#[derive(Clone, Debug)]
pub struct Object {
    pub kind: &'static KindInfo,
    pub namespace: String,
    pub name: String,
    pub live: LiveObject,
}

/// What the short name of a kind stands for.
#[derive(Debug)]
pub struct KindInfo {
    short: &'static str,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    resource: &'static str,
    namespaced: bool,
    served: bool,
}

const KINDS: [KindInfo; 5] = [
    KindInfo {
        short: "cm",
        group: "",
        version: "v1",
        kind: "ConfigMap",
        resource: "configmaps",
        namespaced: true,
        served: true,
    },
    KindInfo {
        short: "node",
        group: "",
        version: "v1",
        kind: "Node",
        resource: "nodes",
        namespaced: false,
        served: true,
    },
    KindInfo {
        short: "w",
        group: "example.com",
        version: "v1",
        kind: "Widget",
        resource: "widgets",
        namespaced: true,
        served: true,
    },
    KindInfo {
        short: "old",
        group: "example.com",
        version: "v0",
        kind: "Widget",
        resource: "widgets",
        namespaced: true,
        served: false,
    },
    KindInfo {
        short: "late",
        group: "late.example.com",
        version: "v1",
        kind: "Late",
        resource: "lates",
        namespaced: true,
        served: false,
    },
];

impl KindInfo {
    fn resource(&self) -> Resource {
        Resource {
            group: self.group.into(),
            version: self.version.into(),
            resource: self.resource.into(),
            kind: self.kind.into(),
            namespaced: self.namespaced,
        }
    }

    fn api_version(&self) -> String {
        self.resource().api_version()
    }
}

fn kind(short: &str) -> &'static KindInfo {
    KINDS.iter().find(|k| k.short == short).unwrap_or_else(|| panic!("no kind {short}"))
}

/// Splits at spaces outside brackets.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut depth) = (Vec::new(), String::new(), 0);
    for c in line.chars() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if c.is_whitespace() && depth == 0 {
            words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
        } else {
            word.push(c);
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.trim_matches(['[', ']']).split([' ', ',']).filter(|item| !item.is_empty())
}

fn reference(text: &str) -> OwnerReference {
    let block = text.contains('!').then_some(true);
    let controller = text.contains('*').then_some(true);
    let text = text.trim_end_matches(['!', '*']);
    let (kind_name, uid) = text.split_once('#').expect("kind/name#uid");
    let (short, name) = kind_name.split_once('/').expect("kind/name");
    let kind = kind(short);
    OwnerReference {
        api_version: kind.api_version(),
        kind: kind.kind.into(),
        name: name.into(),
        uid: uid.into(),
        controller,
        block_owner_deletion: block,
    }
}

fn object(line: &[String]) -> Object {
    let (short, name) = line[0].split_once('/').expect("kind/name");
    let mut object = Object {
        kind: kind(short),
        namespace: String::new(),
        name: name.into(),
        live: LiveObject { resource_version: "1".into(), ..LiveObject::default() },
    };
    for word in &line[1..] {
        match word.split_once('=') {
            None if word == "deleting" => object.live.being_deleted = true,
            None => object.namespace = word.strip_prefix('@').expect("@namespace").into(),
            Some(("uid", uid)) => object.live.uid = uid.into(),
            Some(("rv", version)) => object.live.resource_version = version.into(),
            Some(("owners", owners)) => object.live.owner_references = list(owners).map(reference).collect(),
            Some(("finalizers", f)) => object.live.finalizers = list(f).map(Into::into).collect(),
            Some(_) => panic!("what is {word}?"),
        }
    }
    object
}

/// The key under which the server holds an object.
type Key = (String, String, String);

/// The server, the collector's memory, and what is scripted to happen.
pub struct World {
    pub state: State,
    pub now: Duration,
    /// How long the answer to each read takes.
    pub slow_by: Duration,
    /// How long what a watch has heard waits until the graph is told.
    pub heard_before: Duration,
    server: BTreeMap<Key, LiveObject>,
    replies: BTreeMap<usize, String>,
    after: Vec<(usize, Vec<String>)>,
    requests: usize,
    /// The numbers of the requests that an attempt to delete called reads of an owner.
    pub reads_of_owners: Vec<usize>,
    pub effects: Vec<Effect>,
    transcript: String,
}

impl World {
    pub fn new(text: &str) -> World {
        World::with_options(text, Options::default())
    }

    /// Everything is read, as it is where the graph does not know enough (D2 to D11).
    pub fn with_options(text: &str, options: Options) -> World {
        World::build(text, Options { decides_from_graph: false, ..options })
    }

    /// What the graph proves is not asked again (D15), as the daemon has it.
    pub fn deciding_from_graph(text: &str) -> World {
        World::build(text, Options::default())
    }

    fn build(text: &str, options: Options) -> World {
        let mut world = World {
            state: State::new(options),
            now: Duration::from_secs(100),
            slow_by: Duration::ZERO,
            heard_before: Duration::ZERO,
            server: BTreeMap::new(),
            replies: BTreeMap::new(),
            after: Vec::new(),
            requests: 0,
            reads_of_owners: Vec::new(),
            effects: Vec::new(),
            transcript: String::new(),
        };
        world.look_again();
        world.state.tell_time(world.now);
        for line in text.lines() {
            world.line(&words(line));
        }
        world
    }

    /// Discovery answers as it did before.
    pub fn look_again(&mut self) {
        let served = KINDS.iter().filter(|k| k.served).map(KindInfo::resource);
        self.state.set_kinds(Kinds::new(served), &mut self.effects);
    }

    pub fn serve_everything(&mut self) {
        self.state.set_kinds(Kinds::new(KINDS.iter().map(KindInfo::resource)), &mut self.effects);
    }

    pub fn line(&mut self, line: &[String]) {
        let Some(verb) = line.first() else { return };
        match verb.as_str() {
            "graph" => self.see(&object(&line[1..]), false),
            "gone" => self.see(&object(&line[1..]), true),
            "live" => self.put(object(&line[1..])),
            "dead" => {
                let gone = object(&line[1..]);
                self.server.remove(&key(gone.kind.resource, &gone.namespace, &gone.name));
            }
            "both" => {
                self.see(&object(&line[1..]), false);
                self.put(object(&line[1..]));
            }
            "restored" => self.state.forget_proofs(&mut self.effects),
            "deaf" => self.state.watch_breaks_off(SourceId(number(&line[1]) as u16)),
            "hears" => self.state.watch_hears(SourceId(number(&line[1]) as u16)),
            "later" => self.now += Duration::from_secs(number(&line[1]) as u64),
            "after" => self.after.push((number(&line[1]), line[2..].to_vec())),
            number_sign if number_sign.starts_with('#') => {
                self.replies.insert(number(number_sign), line[1..].join(" "));
            }
            other => panic!("what is {other}?"),
        }
    }

    fn put(&mut self, object: Object) {
        self.server.insert(key(object.kind.resource, &object.namespace, &object.name), object.live);
    }

    fn see(&mut self, object: &Object, gone: bool) {
        let owners: Vec<OwnerReferenceRef<'_>> = object
            .live
            .owner_references
            .iter()
            .map(|r| OwnerReferenceRef {
                api_version: &r.api_version,
                kind: &r.kind,
                name: &r.name,
                uid: &r.uid,
                controller: r.controller == Some(true),
                block_owner_deletion: r.blocks(),
            })
            .collect();
        let api_version = object.kind.api_version();
        let seen = Observation {
            source: SourceId(0),
            api_version: &api_version,
            kind: object.kind.kind,
            namespace: &object.namespace,
            name: &object.name,
            uid: &object.live.uid,
            resource_version: &object.live.resource_version,
            being_deleted: object.live.being_deleted,
            has_foreground_finalizer: object.live.has_finalizer("foregroundDeletion"),
            has_orphan_finalizer: object.live.has_finalizer("orphan"),
            owner_references: &owners,
        };
        self.state.tell_time(self.now);
        self.state.tell_heard(self.now.saturating_sub(self.heard_before));
        match gone {
            false => self.state.observe(&seen, &mut self.effects),
            true => self.state.delete(&seen, &mut self.effects),
        }
    }

    /// Runs an attempt to delete to its end; the outcome is the last line.
    pub fn attempt(&mut self, uid: &str) -> Outcome {
        let mut attempt = DeleteAttempt::new(Uid::new(uid));
        assert_eq!(*attempt.uid(), Uid::new(uid), "an attempt says whose it is");
        self.run(&mut attempt, None)
    }

    /// Runs attempts until they all want to read the owner of this name. The first does, and is run to its end; then each
    /// of the others goes on from what that left in the state.
    pub fn attempts_that_share_the_read_of(&mut self, owner: &str, uids: &[&str]) {
        let mut attempts: Vec<_> = uids.iter().map(|uid| DeleteAttempt::new(Uid::new(uid))).collect();
        let mut reads: Vec<Request> =
            attempts.iter_mut().map(|it| self.run_until_read_of(owner, it)).collect();
        assert!(attempts.iter().all(DeleteAttempt::reads_owner), "they read no owner: {reads:?}");
        let mut reply = Some(self.call(&reads.remove(0)));
        for attempt in &mut attempts {
            self.run(attempt, reply.take());
        }
    }

    fn run_until_read_of(&mut self, owner: &str, attempt: &mut DeleteAttempt) -> Request {
        let mut reply = None;
        loop {
            match attempt.step(&mut self.state, self.now, reply.take()) {
                Step::Call(Request::Read(target)) if target.name == owner => return Request::Read(target),
                Step::Call(request) => reply = Some(self.call(&request)),
                Step::Done(outcome) => panic!("it reads no {owner}: {outcome}"),
            }
        }
    }

    fn run(&mut self, attempt: &mut DeleteAttempt, mut reply: Option<Reply>) -> Outcome {
        loop {
            match attempt.step(&mut self.state, self.now, reply.take()) {
                Step::Call(request) => {
                    let is_delete = matches!(request, Request::Delete { .. });
                    assert_eq!(!attempt.decided_by().is_empty(), is_delete, "a delete says what it rests on");
                    reply = Some(self.call(&request));
                    self.reads_of_owners.extend(attempt.reads_owner().then_some(self.requests));
                    if let Request::Read(_) = request {
                        self.now += self.slow_by;
                    }
                }
                Step::Done(outcome) => {
                    let again = attempt.step(&mut self.state, self.now, None);
                    assert_eq!(again, Step::Done(outcome.clone()), "an ended attempt stays ended");
                    writeln!(self.transcript, "= {outcome}").unwrap();
                    return outcome;
                }
            }
            assert!(self.requests < 200, "the attempt does not end:\n{}", self.transcript);
        }
    }

    /// Runs an attempt to orphan to its end.
    pub fn orphan(&mut self, uid: &str) -> Outcome {
        let mut attempt = OrphanAttempt::new(Uid::new(uid));
        assert_eq!(*attempt.uid(), Uid::new(uid), "an attempt says whose it is");
        let mut reply = None;
        loop {
            match attempt.step(&mut self.state, self.now, reply.take()) {
                OrphanStep::Call(request) => reply = Some(self.call(&request)),
                OrphanStep::Release(releases) => {
                    for mut release in releases {
                        let mut reply = None;
                        let outcome = loop {
                            match release.step(&mut self.state, self.now, reply.take()) {
                                Step::Call(request) => reply = Some(self.call(&request)),
                                Step::Done(outcome) => break outcome,
                            }
                            assert!(self.requests < 200, "no end:\n{}", self.transcript);
                        };
                        let uid = release.uid().clone();
                        writeln!(self.transcript, "- {uid}: {outcome}").unwrap();
                        attempt.released(&uid, outcome);
                    }
                }
                OrphanStep::Done(outcome) => {
                    writeln!(self.transcript, "= {outcome}").unwrap();
                    return outcome;
                }
            }
        }
    }

    /// What has happened since the last call.
    pub fn transcript(&mut self) -> String {
        std::mem::take(&mut self.transcript)
    }

    /// The effects since the last call, one a line.
    pub fn effects(&mut self) -> String {
        let lines: Vec<String> = self.effects.drain(..).map(|e| format!("{e:?}")).collect();
        lines.join("\n")
    }

    fn call(&mut self, request: &Request) -> Reply {
        self.requests += 1;
        let number = self.requests;
        let reply = match self.replies.get(&number).map(String::as_str) {
            Some("conflict") => Reply::Conflict,
            Some("plain 404") => Reply::NotFound { proof: false },
            Some("404") => Reply::NotFound { proof: true },
            Some("415") => Reply::UnsupportedMediaType,
            Some("422") => Reply::Invalid("the server answered 422 Invalid".into()),
            Some("503") => Reply::Failed("the server answered 503".into()),
            Some("429") => Reply::TooManyRequests {
                retry_after: Duration::from_secs(7),
                message: "the server answered 429".into(),
            },
            Some("403") => Reply::Failed("the server answered 403 Forbidden".into()),
            Some(text) if text.starts_with("shows ") => {
                let shown = object(&words(text)[1..]);
                self.put(shown.clone());
                Reply::Object(shown.live)
            }
            Some(other) => panic!("what is {other}?"),
            None => self.serve(request),
        };
        writeln!(self.transcript, "{} -> {}", show_request(request), show_reply(&reply)).unwrap();
        let due: Vec<Vec<String>> =
            self.after.iter().filter(|(n, _)| *n == number).map(|(_, l)| l.clone()).collect();
        for line in due {
            self.line(&line);
        }
        reply
    }

    /// As an API server would, as far as these tests need one.
    fn serve(&mut self, request: &Request) -> Reply {
        match request {
            Request::Read(target) => match self.server.get(&target_key(target)) {
                Some(live) => Reply::Object(live.clone()),
                None => Reply::NotFound { proof: true },
            },
            Request::Delete { target, uid, resource_version, .. } => {
                let Some(live) = self.server.get(&target_key(target)) else {
                    return Reply::NotFound { proof: true };
                };
                if live.uid != uid.to_string() || live.resource_version != *resource_version {
                    return Reply::Conflict;
                }
                self.server.remove(&target_key(target));
                Reply::Deleted
            }
            Request::Patch { target, kind, body, .. } => {
                if *kind == PatchKind::StrategicMerge && target.resource.group == "example.com" {
                    return Reply::UnsupportedMediaType;
                }
                let Some(live) = self.server.get_mut(&target_key(target)) else {
                    return Reply::NotFound { proof: true };
                };
                patch(live, *kind, &serde_json::from_str(body).unwrap())
            }
        }
    }
}

fn patch(live: &mut LiveObject, kind: PatchKind, body: &Value) -> Reply {
    let metadata = &body["metadata"];
    if metadata["uid"].as_str().is_some_and(|uid| uid != live.uid) {
        return Reply::Invalid("the server answered 422 Invalid: field is immutable".into());
    }
    if metadata["resourceVersion"].as_str().is_some_and(|version| version != live.resource_version) {
        return Reply::Conflict;
    }
    if let Some(finalizers) = metadata["finalizers"].as_array() {
        live.finalizers = finalizers.iter().map(|f| f.as_str().unwrap().to_owned()).collect();
    }
    if let Some(references) = metadata["ownerReferences"].as_array() {
        if kind == PatchKind::JsonMerge {
            live.owner_references = references.iter().map(reference_from).collect();
        } else {
            for change in references {
                let uid = change["uid"].as_str().unwrap();
                if change["$patch"] == "delete" {
                    live.owner_references.retain(|r| r.uid != uid);
                } else if let Some(r) = live.owner_references.iter_mut().find(|r| r.uid == uid) {
                    r.block_owner_deletion = change["blockOwnerDeletion"].as_bool();
                }
            }
        }
    }
    live.resource_version = format!("{}'", live.resource_version);
    Reply::Object(live.clone())
}

fn reference_from(value: &Value) -> OwnerReference {
    let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    OwnerReference {
        api_version: text("apiVersion"),
        kind: text("kind"),
        name: text("name"),
        uid: text("uid"),
        controller: value["controller"].as_bool(),
        block_owner_deletion: value["blockOwnerDeletion"].as_bool(),
    }
}

fn key(resource: &str, namespace: &str, name: &str) -> Key {
    (resource.into(), namespace.into(), name.into())
}

fn target_key(target: &Target) -> Key {
    key(&target.resource.resource, &target.namespace, &target.name)
}

fn number(text: &str) -> usize {
    text.trim_start_matches('#').parse().expect("#number")
}

fn show_request(request: &Request) -> String {
    match request {
        Request::Read(target) => format!("read {target}"),
        Request::Delete { target, uid, resource_version, policy } => {
            format!("delete {target} uid={uid} rv={resource_version} {policy}")
        }
        Request::Patch { target, kind, body, .. } => format!("patch {target} {kind:?} {body}"),
    }
}

fn show_reply(reply: &Reply) -> String {
    match reply {
        Reply::Object(live) => format!("uid={} rv={}", live.uid, live.resource_version),
        Reply::Deleted => "ok".into(),
        Reply::NotFound { proof: true } => "404".into(),
        Reply::NotFound { proof: false } => "plain 404".into(),
        Reply::Conflict => "409".into(),
        Reply::Invalid(_) => "422".into(),
        Reply::UnsupportedMediaType => "415".into(),
        Reply::TooManyRequests { .. } => "429".into(),
        Reply::Failed(reason) => reason.clone(),
    }
}
