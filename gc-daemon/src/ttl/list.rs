//! `--ttl-list`: every job with its phase, finish time, TTL, and when it is due. It only reads.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::time::Duration;

use gc_client::wire::{self, Format, ListEnd, WireError};
use gc_client::{ApiResource, Client, Config, Error, Fields, MetaRef, Options};
use gc_core::ttl::{Facts, Finished, Profile, Ttl, Verdict};
use jiff::Timestamp;

use crate::flags::Flags;
use crate::ttl::{config, now_ms, worker};

/// Full objects for each page, as for the controllers.
const PAGE_SIZE: u32 = 500;
/// A list of more pages goes in circles.
const PAGES_MAX: u32 = 100_000;
/// How long a page may keep us waiting for its next piece.
const WITHIN: Duration = Duration::from_secs(60);

/// Prints a line for each object of the kinds that are built in and of those that `--ttl-config` names.
///
/// # Errors
///
/// One line: the configuration, or the list that cannot be read.
pub fn list(flags: &Flags, out: &mut dyn Write) -> Result<(), String> {
    let given = flags.ttl_config.as_deref().map(config::read).transpose()?.unwrap_or_default();
    let mut profiles = vec![Profile::batch_job(), Profile::volcano_job()];
    profiles.retain(|built_in| given.iter().all(|profile| profile.name() != built_in.name()));
    profiles.extend(given);
    let config =
        Config::load(flags.kubeconfig.as_deref(), flags.context.as_deref()).map_err(|e| e.to_string())?;
    let client = Client::new(&config, &Options::default()).map_err(|e| e.to_string())?;
    let result = (|| {
        writeln!(out, "{}", HEAD.join("\t"))?;
        for profile in &profiles {
            list_one(&client, profile, out)?;
        }
        out.flush().map_err(Stop::from)
    })();
    match result {
        // A reader that went away (`--ttl-list | head`) is no error of ours.
        Err(Stop::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(Stop::Output(error)) => Err(error.to_string()),
        Err(Stop::Server(what)) => Err(what),
        Ok(()) => Ok(()),
    }
}

const HEAD: [&str; 7] = ["PROFILE", "NAMESPACE", "NAME", "PHASE", "FINISHED", "TTL", "DUE"];

enum Stop {
    Output(io::Error),
    Server(String),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Output(error)
    }
}

fn list_one(client: &Client, profile: &Profile, out: &mut dyn Write) -> Result<(), Stop> {
    let failed = |what: String| Stop::Server(format!("{}: {what}", profile.name()));
    let fields = Fields::new(profile.paths()).map_err(|e| failed(e.to_string()))?;
    let root = root(profile);
    let mut continue_token = String::new();
    for _ in 0..PAGES_MAX {
        let mut path = format!("{root}?limit={PAGE_SIZE}");
        if !continue_token.is_empty() {
            path.push_str("&continue=");
            path.push_str(&escaped(&continue_token));
        }
        let stream = match client.open(&path, "application/json", WITHIN) {
            Ok(stream) => stream,
            Err(Error::Status(status)) if status.code == 404 => return Ok(()),
            Err(error) => return Err(failed(error.to_string())),
        };
        let format = Format::from_content_type(stream.content_type()).unwrap_or(Format::Json);
        let mut written = Ok(());
        let end = wire::read_list_fields(format, stream, &fields, &mut |meta: MetaRef<'_>| {
            let facts = worker::seen(profile, &meta);
            written = writeln!(out, "{}", row(profile, &facts, now_ms()).join("\t"));
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        written?;
        match end {
            Ok(ListEnd { continue_token: token, .. }) if token.is_empty() => return Ok(()),
            Ok(ListEnd { continue_token: token, .. }) => continue_token = token,
            Err(WireError::Stopped) => return Ok(()),
            Err(error) => return Err(failed(error.to_string())),
        }
    }
    Err(failed("the list has no end".into()))
}

fn root(profile: &Profile) -> String {
    ApiResource {
        group: profile.group().into(),
        version: profile.version().into(),
        resource: profile.resource().into(),
        kind: String::new(),
        namespaced: true,
        preferred: true,
        can_delete: true,
        can_list: true,
        can_watch: true,
    }
    .path("", "")
}

/// Percent-escapes what may not stand in a query.
fn escaped(token: &str) -> String {
    let mut text = String::new();
    for byte in token.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                text.push(char::from(byte));
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// The columns of one object.
fn row(profile: &Profile, facts: &Facts, now_ms: i64) -> [String; 7] {
    let (phase, finished_ms) = match &facts.finished {
        Finished::No => ("-".to_owned(), None),
        Finished::Yes { because, at, .. } => (because.clone(), Some(at)),
        Finished::Unknown(why) => (format!("? ({why})"), None),
    };
    let finished = match finished_ms {
        Some(gc_core::ttl::FinishTime::AtMs(ms)) => time(*ms),
        Some(gc_core::ttl::FinishTime::Unknown(_)) => "?".to_owned(),
        None => "-".to_owned(),
    };
    let verdict = profile.verdict(facts);
    let ttl = match (&facts.ttl, &verdict) {
        (_, Verdict::DueAt { due_ms, finished_ms }) if *due_ms < i64::MAX => {
            format!("{}s", due_ms.saturating_sub(*finished_ms) / 1_000)
        }
        (Ttl::Seconds(seconds), _) => format!("{seconds}s"),
        (Ttl::Invalid(_), _) => "?".to_owned(),
        (Ttl::Absent, _) => "-".to_owned(),
    };
    let due = match verdict {
        Verdict::DueAt { due_ms, .. } if Timestamp::from_millisecond(due_ms).is_err() => {
            "never: later than any clock goes".to_owned()
        }
        Verdict::DueAt { due_ms, .. } => {
            let left_s = due_ms.saturating_sub(now_ms) / 1_000;
            let when = if due_ms <= now_ms { "now".to_owned() } else { format!("in {}", span(left_s)) };
            format!("{} ({when})", time(due_ms))
        }
        Verdict::BeingDeleted => "is being deleted".to_owned(),
        Verdict::NotFinished => "not finished".to_owned(),
        Verdict::NoTtl => "never: no TTL".to_owned(),
        Verdict::Protected => "never: protected".to_owned(),
        Verdict::NoFinishTime(why) | Verdict::Invalid(why) => format!("never: {why}"),
    };
    let namespace = if facts.namespace.is_empty() { "-".to_owned() } else { facts.namespace.clone() };
    [profile.name().to_owned(), namespace, facts.name.clone(), phase, finished, ttl, due].map(printable)
}

/// What objects say may hold anything; a line stays one.
fn printable(text: String) -> String {
    if text.contains(char::is_control) {
        text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
    } else {
        text
    }
}

fn time(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| "?".to_owned(), |time| format!("{time:.0}"))
}

/// The two largest units that it has.
fn span(seconds: i64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, _, _) => format!("{hours}h{minutes}m"),
        _ => format!("{days}d{hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use gc_core::ttl::{Field, Meta};
    use serde_json::{Value, json};

    #[test]
    fn t1_each_line_says_when_a_job_is_due_or_why_never() {
        let profile = Profile::batch_job();
        let now_ms = 1_767_268_800_000;
        let complete =
            json!([{"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}]);
        let timeless = json!([{"type": "Failed", "status": "True"}]);
        let line = |name: &str, conditions: &Value, ttl: &Value| {
            let meta = Meta { namespace: "ns", name, uid: "u", resource_version: "1", ..Meta::default() };
            let field = |value| match value {
                &Value::Null => Field::Absent,
                value => Field::Value(value),
            };
            let facts = profile.facts(&meta, &[field(conditions), field(ttl)]);
            row(&profile, &facts, now_ms).join(" | ") + "\n"
        };
        let none = Value::Null;
        let said = [
            line("runs", &none, &json!(5)),
            line("at-once", &complete, &json!(0)),
            line("soon", &complete, &json!(100)),
            line("later", &complete, &json!(100_000)),
            line("for-ever", &complete, &json!(i64::MAX)),
            line("no-ttl", &complete, &none),
            line("odd\u{1b}", &complete, &json!(-1)),
            line("timeless", &timeless, &json!(5)),
        ]
        .concat();
        expect![[r#"
            jobs.batch | ns | runs | - | - | 5s | not finished
            jobs.batch | ns | at-once | Complete | 2026-01-01T12:00:00Z | 0s | 2026-01-01T12:00:00Z (now)
            jobs.batch | ns | soon | Complete | 2026-01-01T12:00:00Z | 100s | 2026-01-01T12:01:40Z (in 1m40s)
            jobs.batch | ns | later | Complete | 2026-01-01T12:00:00Z | 100000s | 2026-01-02T15:46:40Z (in 1d3h)
            jobs.batch | ns | for-ever | Complete | 2026-01-01T12:00:00Z | 9223372036854775807s | never: later than any clock goes
            jobs.batch | ns | no-ttl | Complete | 2026-01-01T12:00:00Z | - | never: no TTL
            jobs.batch | ns | odd� | Complete | 2026-01-01T12:00:00Z | ? | never: spec.ttlSecondsAfterFinished is -1, and a TTL cannot be negative
            jobs.batch | ns | timeless | Failed | ? | 5s | never: lastTransitionTime of the condition Failed is missing
        "#]]
        .assert_eq(&said);
    }
}
