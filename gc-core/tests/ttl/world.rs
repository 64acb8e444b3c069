//! A world as text: what watches show, what the server holds, what becomes due when, and what attempts do.
//!
//! One object or event a line, carried out in order; the transcript has a line for each request, outcome and report:
//!
//! ```text
//! 12:00:10                      the clock is set to this time of 1 January 2026, and nothing else happens
//! until 13:00:00                time passes up to then; whatever becomes due is attempted at its moment
//! seen job/pi @ns uid=u rv=1 Complete=12:00:00 ttl=10         shown by a watch or a list
//! live job/pi …                 held by the server
//! both job/pi …                 the two of them
//! gone job/pi @ns uid=u         its deletion is shown by a watch
//! dead job/pi @ns               the server does not hold it any more
//! watch                         the watches show everything that the server holds, and what it does not any more
//! list …, end                   a list of the jobs begins, a complete list of the jobs ends
//! stop                          jobs are not served any more
//! show                          what waits
//! #2 conflict                   the second request is answered so, whatever the server holds
//! after #2 both job/pi …        happens after the second request, before its answer arrives
//! server -30                    from now on the server's answers have a date, so many seconds from our clock
//! take 5                        from now on so many are taken at once
//! ```
//!
//! Kinds: `job` (batch/v1), `vcjob` (Volcano), `build` (an invented kind, by a profile that a test gives). An object has
//! `@namespace`, `uid=`, `rv=`, a condition as `Complete=12:00:00` (`!Complete` with status False, `?Complete` Unknown),
//! `phase=` with `since=`, `ttl=` (JSON), `annotation=value`, and the words `deleting`, `controlled`, `held` (by a
//! finalizer). A time is of that day, or any other text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use gc_core::ttl::{
    Attempt, Due, Engine, Facts, Field, Limits, Meta, Profile, ProfileId, Reply, Report, Request, Stage, Step,
};
use gc_core::{Refusal, Resource, Target};
use gc_graph::Uid;
use serde_json::{Map, Value, json};

/// 1 January 2026, in Unix milliseconds.
pub const DAY_MS: i64 = 1_767_225_600_000;

/// A time of that day, perhaps with milliseconds, or of a later one (`1d 12:00:00`).
pub fn time_ms(text: &str) -> Option<i64> {
    let (days, clock) = match text.split_once("d ") {
        Some((days, clock)) => (days.parse().ok()?, clock),
        None => (0, text),
    };
    let mut parts = clock.split(':');
    let hours: i64 = parts.next()?.parse().ok()?;
    let minutes: i64 = parts.next()?.parse().ok()?;
    let seconds: f64 = parts.next().map_or(Some(0.0), |s| s.parse().ok())?;
    let ms = ((days * 24 + hours) * 60 + minutes) * 60_000 + (seconds * 1_000.0).round() as i64;
    parts.next().is_none().then_some(DAY_MS + ms)
}

pub fn clock(ms: i64) -> String {
    let of_day = ms.saturating_sub(DAY_MS);
    let (days, s, ms) = (
        of_day.div_euclid(86_400_000),
        of_day.div_euclid(1_000).rem_euclid(86_400),
        of_day.rem_euclid(1_000),
    );
    let mut text = if days == 0 { String::new() } else { format!("{days}d ") };
    let _ = write!(text, "{:02}:{:02}:{:02}", s / 3_600, s / 60 % 60, s % 60);
    if ms != 0 {
        let _ = write!(text, ".{ms:03}");
    }
    text
}

/// An object as the server holds it.
#[derive(Clone, Debug)]
pub struct Object {
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub body: Value,
}

impl Object {
    pub fn parse(line: &str) -> Object {
        let mut words = line.split_whitespace();
        let (kind, name) = words.next().and_then(|word| word.split_once('/')).expect("kind/name");
        let (mut metadata, mut spec, mut state, mut conditions) =
            (Map::new(), Map::new(), Map::new(), Vec::new());
        metadata.insert("resourceVersion".into(), "1".into());
        let mut annotations = Map::new();
        let mut namespace = "";
        for word in words {
            match word.split_once('=').unwrap_or((word, "")) {
                ("uid", uid) => drop(metadata.insert("uid".into(), uid.into())),
                ("rv", version) => drop(metadata.insert("resourceVersion".into(), version.into())),
                ("ttl", ttl) => {
                    let ttl = serde_json::from_str(ttl).unwrap_or_else(|_| Value::from(ttl));
                    spec.insert("ttlSecondsAfterFinished".into(), ttl);
                }
                ("phase", phase) => drop(state.insert("phase".into(), phase.into())),
                ("since", since) => drop(state.insert("lastTransitionTime".into(), rfc3339(since))),
                ("deleting", _) => drop(metadata.insert("deletionTimestamp".into(), "x".into())),
                ("controlled", _) => {
                    metadata
                        .insert("ownerReferences".into(), json!([{"kind": "CronJob", "controller": true}]));
                }
                ("held", _) => drop(metadata.insert("finalizers".into(), json!(["example.com/hold"]))),
                (at, _) if at.starts_with('@') => namespace = &at[1..],
                (key, value) if key.contains('/') => drop(annotations.insert(key.into(), value.into())),
                (kind, since) => conditions.push(condition(kind, since)),
            }
        }
        metadata.insert("annotations".into(), annotations.into());
        let body = json!({
            "metadata": metadata, "spec": spec, "status": {"conditions": conditions, "state": state},
        });
        Object { kind: kind.into(), namespace: namespace.into(), name: name.into(), body }
    }

    fn at(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(&self.body, |value, key| value.get(key)).filter(|value| !value.is_null())
    }

    fn text(&self, path: &[&str]) -> &str {
        self.at(path).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.text(&["metadata", "uid"])
    }

    pub fn version(&self) -> &str {
        self.text(&["metadata", "resourceVersion"])
    }

    fn key(&self) -> (String, String, String) {
        (self.kind.clone(), self.namespace.clone(), self.name.clone())
    }

    pub fn facts(&self, profile: &Profile) -> Facts {
        let controlled = self.at(&["metadata", "ownerReferences"]).is_some();
        let meta = Meta {
            namespace: &self.namespace,
            name: &self.name,
            uid: self.uid(),
            resource_version: self.version(),
            being_deleted: self.at(&["metadata", "deletionTimestamp"]).is_some(),
            is_controlled: controlled,
        };
        let field = |path: &Vec<String>| {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            self.at(&path).map_or(Field::Absent, Field::Value)
        };
        let fields: Vec<Field<'_>> = profile.paths().iter().map(field).collect();
        profile.facts(&meta, &fields)
    }
}

fn condition(kind: &str, since: &str) -> Value {
    let (status, kind) = match kind.split_at(1) {
        ("!", kind) => ("False", kind),
        ("?", kind) => ("Unknown", kind),
        _ => ("True", kind),
    };
    json!({"type": kind, "status": status, "lastTransitionTime": rfc3339(since)})
}

fn rfc3339(text: &str) -> Value {
    match time_ms(text) {
        Some(ms) => jiff::Timestamp::from_millisecond(ms).unwrap().to_string().into(),
        None if text.is_empty() => Value::Null,
        None => text.into(),
    }
}

struct Kind {
    short: &'static str,
    id: ProfileId,
    profile: Arc<Profile>,
    resource: Arc<Resource>,
}

pub struct World {
    pub engine: Engine,
    kinds: Vec<Kind>,
    now_ms: i64,
    live: BTreeMap<(String, String, String), Object>,
    /// What the watches have shown.
    shown: BTreeMap<(String, String, String), Object>,
    requests: usize,
    answers: BTreeMap<usize, String>,
    after: BTreeMap<usize, Vec<String>>,
    server_ahead_ms: Option<i64>,
    take: usize,
    transcript: String,
}

impl World {
    pub fn new(profiles: [(&'static str, Profile); 3], limits: Limits) -> World {
        let mut engine = Engine::new(limits);
        let kinds = profiles.map(|(short, profile)| {
            let profile = Arc::new(profile);
            let resource = Arc::new(Resource {
                group: profile.group().into(),
                version: profile.version().into(),
                resource: profile.resource().into(),
                kind: "Job".into(),
                namespaced: true,
            });
            let id = engine.add_profile(profile.clone()).unwrap();
            Kind { short, id, profile, resource }
        });
        World {
            engine,
            kinds: kinds.into(),
            now_ms: time_ms("12:00:00").unwrap(),
            live: BTreeMap::new(),
            shown: BTreeMap::new(),
            requests: 0,
            answers: BTreeMap::new(),
            after: BTreeMap::new(),
            server_ahead_ms: None,
            take: 5,
            transcript: String::new(),
        }
    }

    pub fn run(&mut self, text: &str) -> String {
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        // What is to happen at a request has to be known before the lines are carried out.
        for line in &lines {
            if let Some((number, answer)) = line.strip_prefix('#').and_then(|rest| rest.split_once(' ')) {
                self.answers.insert(number.parse().unwrap(), answer.into());
            } else if let Some((number, event)) =
                line.strip_prefix("after #").and_then(|rest| rest.split_once(' '))
            {
                self.after.entry(number.parse().unwrap()).or_default().push(event.into());
            }
        }
        for line in lines.into_iter().filter(|line| !line.starts_with('#') && !line.starts_with("after #")) {
            self.line(line);
        }
        std::mem::take(&mut self.transcript)
    }

    fn line(&mut self, line: &str) {
        if let Some(ms) = time_ms(line) {
            self.now_ms = ms;
            return;
        }
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "until" => self.until(time_ms(rest).expect(rest)),
            "seen" => self.show(Object::parse(rest)),
            "live" => self.hold(Object::parse(rest)),
            "both" => {
                self.hold(Object::parse(rest));
                self.show(Object::parse(rest));
            }
            "gone" => self.unshow(&Object::parse(rest)),
            "dead" => drop(self.live.remove(&Object::parse(rest).key())),
            "watch" => self.watch(),
            "list" => self.engine.begin_list(self.kinds[0].id),
            "end" => self.engine.end_list(self.kinds[0].id),
            "stop" => self.engine.stop(self.kinds[0].id),
            "server" => self.server_ahead_ms = Some((rest.parse::<f64>().unwrap() * 1_000.0) as i64),
            "take" => self.take = rest.parse().unwrap(),
            "show" => self.show_jobs(),
            _ => panic!("what is {line:?}?"),
        }
    }

    fn kind(&self, short: &str) -> &Kind {
        self.kinds.iter().find(|kind| kind.short == short).unwrap_or_else(|| panic!("no kind {short}"))
    }

    fn hold(&mut self, object: Object) {
        self.live.insert(object.key(), object);
    }

    fn show(&mut self, object: Object) {
        let kind = self.kind(&object.kind);
        let (id, facts) = (kind.id, object.facts(&kind.profile));
        self.shown.insert(object.key(), object);
        let mut reports = Vec::new();
        self.engine.observe(self.now_ms, id, &facts, &mut reports);
        self.note_reports(&reports);
    }

    fn unshow(&mut self, object: &Object) {
        let id = self.kind(&object.kind).id;
        self.shown.remove(&object.key());
        self.engine.delete(self.now_ms, id, &object.namespace, &object.name, &Uid::new(object.uid()));
    }

    fn watch(&mut self) {
        let gone: Vec<Object> = self
            .shown
            .iter()
            .filter(|(key, shown)| self.live.get(*key).is_none_or(|live| live.uid() != shown.uid()))
            .map(|(_, shown)| shown.clone())
            .collect();
        gone.iter().for_each(|object| self.unshow(object));
        let live: Vec<Object> = self.live.values().cloned().collect();
        live.into_iter().for_each(|object| self.show(object));
    }

    /// Time passes; the timer is all that wakes the world.
    fn until(&mut self, end_ms: i64) {
        for _ in 0..2_000 {
            match self.engine.next_due_ms() {
                Some(due_ms) if due_ms <= end_ms => self.now_ms = self.now_ms.max(due_ms),
                _ => {
                    self.now_ms = end_ms;
                    return;
                }
            }
            let mut due = Vec::new();
            self.engine.take_due(self.now_ms, self.take, &mut due);
            assert!(!due.is_empty(), "the timer rang for nothing");
            due.into_iter().for_each(|due| self.attempt(due));
        }
        panic!("time does not pass:\n{}", self.transcript);
    }

    pub fn attempt(&mut self, due: Due) {
        let kind = self.kinds.iter().find(|kind| kind.id == due.profile).unwrap();
        let mut attempt = Attempt::new(kind.profile.clone(), kind.resource.clone(), due);
        let mut step = attempt.step(self.now_ms, None);
        let outcome = loop {
            match step {
                Step::Done(outcome) => break outcome,
                Step::Call(request) => {
                    let reply = self.answer(&request);
                    step = attempt.step(self.now_ms, Some(reply));
                }
            }
        };
        let (now, text) = (clock(self.now_ms), format!("{outcome:?}"));
        let Due { namespace, name, .. } = attempt.due();
        let _ = writeln!(self.transcript, "{now} {namespace}/{name} = {}", with_clocks(&text));
        assert_eq!(
            attempt.step(self.now_ms, None),
            Step::Done(outcome.clone()),
            "a second step says the same"
        );
        let mut reports = Vec::new();
        self.engine.finish(self.now_ms, attempt.due(), &outcome, &mut reports);
        self.note_reports(&reports);
    }

    fn answer(&mut self, request: &Request) -> Reply {
        self.requests += 1;
        let number = self.requests;
        let reply = match self.answers.get(&number).cloned() {
            Some(answer) => self.told_to_answer(&answer, request),
            None => self.carry_out(request),
        };
        let asked = match request {
            Request::Read(target) => format!("read {target}"),
            Request::Delete { target, uid, resource_version, policy } => {
                format!("delete {target} uid={uid} rv={resource_version} {policy}")
            }
        };
        let answered = match &reply {
            Reply::Object { facts, .. } => format!("uid={} rv={}", facts.uid, facts.resource_version),
            other => format!("{other:?}"),
        };
        let _ = writeln!(self.transcript, "{} {asked} -> {answered}", clock(self.now_ms));
        for line in self.after.remove(&number).unwrap_or_default() {
            self.line(&line);
        }
        reply
    }

    fn carry_out(&mut self, request: &Request) -> Reply {
        let (Request::Read(target) | Request::Delete { target, .. }) = request;
        let kind = self.kinds.iter().find(|kind| kind.resource == target.resource).unwrap();
        let profile = kind.profile.clone();
        let key = (kind.short.to_owned(), target.namespace.clone(), target.name.clone());
        let Some(live) = self.live.get_mut(&key) else { return refused(target, 404, "not found") };
        match request {
            Request::Read(_) => Reply::Object {
                facts: Box::new(live.facts(&profile)),
                // The header has whole seconds.
                server_ms: self
                    .server_ahead_ms
                    .map(|ahead_ms| (self.now_ms + ahead_ms).div_euclid(1_000) * 1_000),
            },
            Request::Delete { uid, resource_version, .. } => {
                if *uid != Uid::new(live.uid()) || resource_version != live.version() {
                    return Reply::Conflict;
                }
                if live.at(&["metadata", "finalizers"]).is_some() {
                    live.body["metadata"]["deletionTimestamp"] = "x".into();
                    live.body["metadata"]["resourceVersion"] = format!("{resource_version}d").into();
                } else {
                    self.live.remove(&key);
                }
                Reply::Deleted
            }
        }
    }

    fn told_to_answer(&mut self, answer: &str, request: &Request) -> Reply {
        let (Request::Read(target) | Request::Delete { target, .. }) = request;
        let (word, rest) = answer.split_once(' ').unwrap_or((answer, ""));
        match word {
            "conflict" => Reply::Conflict,
            "unserved" => Reply::refused(target, &Refusal { code: 404, ..Refusal::default() }),
            "timeout" => Reply::Failed("timed out".into()),
            // The deletion is carried out, and the answer is lost.
            "lost" => {
                self.carry_out(request);
                Reply::Failed("connection reset".into())
            }
            "shows" => {
                let object = Object::parse(rest);
                let facts = object.facts(&self.kind(&object.kind).profile);
                Reply::Object { facts: Box::new(facts), server_ms: None }
            }
            "429" => {
                let retry_after = rest.parse().ok().map(Duration::from_secs);
                let busy =
                    Refusal { code: 429, message: "too many requests", retry_after, ..Refusal::default() };
                Reply::refused(target, &busy)
            }
            code => refused(target, code.parse().expect(answer), rest),
        }
    }

    fn note_reports(&mut self, reports: &[Report]) {
        for Report { namespace, name, reason, message, .. } in reports {
            let now = clock(self.now_ms);
            let _ = writeln!(self.transcript, "{now} ! {} {namespace}/{name}: {message}", reason.as_str());
        }
    }

    fn show_jobs(&mut self) {
        let mut lines: Vec<String> = self
            .engine
            .jobs()
            .map(|job| {
                let due = job.due_ms.map_or("at an unknown time".into(), clock);
                let at = if job.stage == Stage::Waiting || job.stage == Stage::InFlight {
                    String::new()
                } else {
                    format!(", looked at {}", clock(job.at_ms))
                };
                format!("{}/{} {:?}, due {due}{at}\n", job.namespace, job.name, job.stage)
            })
            .collect();
        lines.sort();
        let shown = if lines.is_empty() { "nothing waits\n".into() } else { lines.concat() };
        let _ = write!(self.transcript, "{} {shown}", clock(self.now_ms));
    }
}

/// The Status that an API server answers with.
fn refused(target: &Target, code: u16, message: &str) -> Reply {
    let status = Refusal {
        code,
        is_status: true,
        reason: if code == 404 { "NotFound" } else { "" },
        name: &target.name,
        kind: &target.resource.resource,
        message,
        retry_after: None,
    };
    Reply::refused(target, &status)
}

/// Milliseconds of that time as clocks, in what `Debug` prints.
fn with_clocks(text: &str) -> String {
    let mut shown = String::new();
    for word in text.split_inclusive([' ', ',']) {
        let digits = word.trim_end_matches([' ', ',']);
        match digits.parse::<i64>() {
            Ok(ms) if DAY_MS / 2 < ms => {
                let _ = write!(shown, "{}{}", clock(ms), &word[digits.len()..]);
            }
            _ => shown.push_str(word),
        }
    }
    shown
}

/// The two built-in profiles, and one for an invented kind.
pub fn profiles() -> [(&'static str, Profile); 3] {
    [("job", Profile::batch_job()), ("vcjob", Profile::volcano_job()), ("build", build())]
}

/// Builds of an invented kind go an hour after they ended, failed ones after a day.
fn build() -> Profile {
    use gc_core::ttl::{FinishedSpec, ProfileSpec, SecondsSpec, TtlSpec};
    let spec = ProfileSpec {
        group: "example.com".into(),
        version: "v1".into(),
        resource: "builds".into(),
        finished: FinishedSpec {
            phase: Some("status.state.phase".into()),
            success: vec!["Done".into()],
            failure: vec!["Broken".into()],
            time: Some("status.state.lastTransitionTime".into()),
            ..FinishedSpec::default()
        },
        ttl: TtlSpec {
            seconds: Some(SecondsSpec { success: Some(3_600), failure: Some(86_400) }),
            path: None,
        },
        propagation: Some("Background".into()),
        ..ProfileSpec::default()
    };
    Profile::new(&spec).unwrap()
}

/// Carries the lines out and compares the transcript.
#[track_caller]
pub fn check(text: &str, expected: expect_test::Expect) {
    expected.assert_eq(&World::new(profiles(), Limits::default()).run(text));
}

/// The same with the profile of batch/v1 Jobs changed.
#[track_caller]
pub fn check_with(
    change: impl FnOnce(&mut gc_core::ttl::ProfileSpec),
    text: &str,
    expected: expect_test::Expect,
) {
    let mut spec = gc_core::ttl::ProfileSpec::batch_job();
    change(&mut spec);
    let [_, volcano, build] = profiles();
    let profiles = [("job", Profile::new(&spec).unwrap()), volcano, build];
    expected.assert_eq(&World::new(profiles, Limits::default()).run(text));
}
