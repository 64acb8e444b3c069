//! What the collector asked the API server to delete, from the rig's audit log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use jiff::Timestamp;
use serde_json::Value;

use crate::failure::{Doing, Failure};
use crate::rig::DAEMON_USER;

/// Counts the collector's deletions, those that the server refused included.
///
/// # Errors
///
/// When one of them does not name both the UID and the resourceVersion that it was decided on (spec D11), since an
/// object could then be deleted that is not the one that was looked at; when the log cannot be read.
pub fn conditional_deletes(path: &Path) -> Result<u64, Failure> {
    let log = File::open(path).doing(|| format!("cannot open {}", path.display()))?;
    count(BufReader::new(log))
}

/// The collector's deletions of the object with this UID, those that the server refused included, each as it was asked
/// for.
///
/// # Errors
///
/// When the log cannot be read.
pub fn deletes_of(path: &Path, uid: &str) -> Result<Vec<Value>, Failure> {
    let log = File::open(path).doing(|| format!("cannot open {}", path.display()))?;
    let mut deletes = Vec::new();
    for event in events(BufReader::new(log)) {
        let event = event?;
        if is_of(&event, uid) {
            deletes.push(event["requestObject"].clone());
        }
    }
    Ok(deletes)
}

/// A deletion that the API server has accepted, by its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedDelete {
    /// When the request came.
    pub received: Timestamp,
    /// When it was answered.
    pub done: Timestamp,
}

/// The collector's deletions in a namespace that the server has accepted, by name; of several of one object the first.
///
/// # Errors
///
/// When the log cannot be read.
pub fn accepted_deletes(path: &Path, namespace: &str) -> Result<BTreeMap<String, AcceptedDelete>, Failure> {
    let log = File::open(path).doing(|| format!("cannot open {}", path.display()))?;
    accepted(BufReader::new(log), namespace)
}

fn accepted(log: impl BufRead, namespace: &str) -> Result<BTreeMap<String, AcceptedDelete>, Failure> {
    let mut deletes = BTreeMap::new();
    for event in events(log) {
        let event = event?;
        let object = &event["objectRef"];
        let is_accepted = event["responseStatus"]["code"].as_u64().is_some_and(|code| code < 300);
        if event["user"]["username"] != DAEMON_USER || object["namespace"] != namespace || !is_accepted {
            continue;
        }
        let name = object["name"].as_str().unwrap_or_default().to_owned();
        let delete = AcceptedDelete {
            received: time(&event["requestReceivedTimestamp"])?,
            done: time(&event["stageTimestamp"])?,
        };
        deletes.entry(name).or_insert(delete);
    }
    Ok(deletes)
}

fn time(value: &Value) -> Result<Timestamp, Failure> {
    let text = value.as_str().unwrap_or_default();
    text.parse().doing(|| format!("{text:?} in the audit log is no time"))
}

fn is_of(event: &Value, uid: &str) -> bool {
    event["user"]["username"] == DAEMON_USER && event["requestObject"]["preconditions"]["uid"] == uid
}

/// What a log has so far: a line that is being written is none yet.
fn events(mut log: impl BufRead) -> impl Iterator<Item = Result<Value, Failure>> {
    let doing = || "cannot read the audit log".into();
    std::iter::from_fn(move || {
        let mut line = String::new();
        match log.read_line(&mut line) {
            Ok(_) if !line.ends_with('\n') => None,
            Ok(_) => Some(serde_json::from_str(&line).doing(doing)),
            Err(error) => Some(Err(error).doing(doing)),
        }
    })
}

fn count(log: impl BufRead) -> Result<u64, Failure> {
    let mut deletes = 0;
    for event in events(log) {
        let event = event?;
        // A collector that is killed may have sent the head of a request and not its body: the server then reads an
        // unexpected EOF and refuses.
        let is_cut =
            event["requestObject"].is_null() && event["responseStatus"]["code"].as_u64() >= Some(400);
        if event["user"]["username"] != DAEMON_USER || is_cut {
            continue;
        }
        deletes += 1;
        let preconditions = &event["requestObject"]["preconditions"];
        if !["uid", "resourceVersion"].iter().all(|field| preconditions[field].is_string()) {
            return Err(Failure::new(format!("a delete without both preconditions: {event}")));
        }
    }
    Ok(deletes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn log(user: &str, request: &Value, code: u32) -> String {
        let event = json!({
            "user": { "username": user },
            "requestObject": request,
            "responseStatus": { "code": code },
        });
        format!("{event}\n")
    }

    #[test]
    fn d11_a_delete_without_both_preconditions_is_found() {
        let both = json!({ "preconditions": { "uid": "u", "resourceVersion": "7" } });
        let uid_only = json!({ "preconditions": { "uid": "u" } });
        let others = log("admin", &json!({}), 200) + &log(DAEMON_USER, &Value::Null, 400);
        let good = others + &log(DAEMON_USER, &both, 200) + &log(DAEMON_USER, &both, 409);
        assert_eq!(count(good.as_bytes()).unwrap(), 2);
        assert_eq!(events(good.as_bytes()).filter(|event| is_of(event.as_ref().unwrap(), "u")).count(), 2);
        for bad in [log(DAEMON_USER, &uid_only, 409), log(DAEMON_USER, &Value::Null, 200)] {
            assert!(count((good.clone() + &bad).as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_delete_that_was_accepted_has_its_times_and_half_a_line_is_none() {
        let event = |name: &str, second: u32, code: u32| {
            json!({
                "user": { "username": DAEMON_USER },
                "objectRef": { "namespace": "ns", "name": name },
                "requestReceivedTimestamp": format!("2026-01-01T12:00:0{second}.000001Z"),
                "stageTimestamp": format!("2026-01-01T12:00:0{second}.002001Z"),
                "responseStatus": { "code": code },
            })
        };
        let lines = [event("a", 1, 409), event("a", 2, 200), event("a", 3, 200), event("b", 4, 404)];
        let whole: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let deletes = accepted((whole + "{\"user\":").as_bytes(), "ns").unwrap();
        let shown: Vec<String> = deletes
            .iter()
            .map(|(name, delete)| format!("{name} {} {}", delete.received, delete.done - delete.received))
            .collect();
        assert_eq!(shown, ["a 2026-01-01T12:00:02.000001Z PT0.002S"]);
    }
}
