//! What the daemon asked for during a scenario, from the API server's audit log.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

use serde_json::Value;

use crate::failure::{Doing, Failure};
use crate::rig::DAEMON_USER;

/// Every deletion with its body, and everything else that the daemon asks for.
pub const POLICY: &str = r#"{
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        { "level": "Request", "verbs": ["delete", "deletecollection"] },
        { "level": "Metadata", "users": ["system:serviceaccount:kube-system:gc-daemon"] },
        { "level": "None" }
    ]
}"#;

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Requests of the daemon, each counted once; watches too.
    pub requests: usize,
    /// Deletions among them, those that the server refused included.
    pub deletes: usize,
}

/// Reads what was written from `from` on, an offset in bytes.
///
/// # Errors
///
/// When a deletion of the daemon's names no UID or no resourceVersion (spec D11), or is of an object that `may_go` does
/// not know, by resource and name; when the log cannot be read.
pub fn audit(path: &Path, from: u64, may_go: &BTreeSet<(String, String)>) -> Result<Audit, Failure> {
    let mut log = File::open(path).doing(|| format!("cannot open {}", path.display()))?;
    log.seek(SeekFrom::Start(from)).doing(|| "cannot read the audit log".into())?;
    read(BufReader::new(log), may_go)
}

fn read(log: impl BufRead, may_go: &BTreeSet<(String, String)>) -> Result<Audit, Failure> {
    let mut seen = BTreeSet::new();
    let mut audit = Audit::default();
    for line in log.lines() {
        let line = line.doing(|| "cannot read the audit log".into())?;
        // A server that is killed may have written half a line, and the next one goes on in it.
        let Ok(event) = serde_json::from_str::<Value>(&line) else { continue };
        if event["user"]["username"] != DAEMON_USER {
            continue;
        }
        // A watch is logged when it begins and when it ends.
        let is_new = seen.insert(event["auditID"].as_str().unwrap_or_default().to_owned());
        audit.requests += usize::from(is_new);
        if event["verb"] == "delete" || event["verb"] == "deletecollection" {
            audit.deletes += usize::from(is_new);
            check_delete(&event, may_go)
                .map_err(|why| Failure::new(format!("WRONG DELETE: {why}: {line}")))?;
        }
    }
    Ok(audit)
}

fn check_delete(event: &Value, may_go: &BTreeSet<(String, String)>) -> Result<(), &'static str> {
    // A daemon that is killed, or whose connection is cut, may have sent the head of a request and not its body.
    let is_cut = event["requestObject"].is_null() && event["responseStatus"]["code"].as_u64() >= Some(400);
    if is_cut {
        return Ok(());
    }
    let preconditions = &event["requestObject"]["preconditions"];
    if !["uid", "resourceVersion"].iter().all(|field| preconditions[field].is_string()) {
        return Err("a delete without both preconditions");
    }
    let object = &event["objectRef"];
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    if may_go.contains(&(text("resource"), text("name"))) {
        Ok(())
    } else {
        Err("a delete of an object that must stay")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(id: &str, verb: &str, name: &str, preconditions: &Value) -> String {
        let event = json!({
            "auditID": id, "verb": verb, "user": { "username": DAEMON_USER },
            "objectRef": { "resource": "secrets", "name": name },
            "requestObject": { "preconditions": preconditions },
            "responseStatus": { "code": 200 },
        });
        format!("{event}\n")
    }

    #[test]
    fn d11_deletes_are_of_what_may_go_and_name_uid_and_version() {
        let may_go = BTreeSet::from([("secrets".to_owned(), "goes".to_owned())]);
        let both = json!({ "uid": "u", "resourceVersion": "7" });
        let good = line("1", "watch", "", &Value::Null)
            + &line("1", "watch", "", &Value::Null)
            + "{ half a li"
            + "\n"
            + &line("2", "delete", "goes", &both);
        assert_eq!(read(good.as_bytes(), &may_go).unwrap(), Audit { requests: 2, deletes: 1 });
        let bad = [line("3", "delete", "stays", &both), line("3", "delete", "goes", &json!({ "uid": "u" }))];
        for bad in bad {
            assert!(read((good.clone() + &bad).as_bytes(), &may_go).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_policy_names_the_daemon() {
        let policy: Value = serde_json::from_str(POLICY).unwrap();
        assert_eq!(policy["rules"][1]["users"][0], DAEMON_USER);
    }
}
