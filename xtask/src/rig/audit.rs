//! What the collector asked the API server to delete, from the rig's audit log.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

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

fn count(log: impl BufRead) -> Result<u64, Failure> {
    let mut deletes = 0;
    for line in log.lines() {
        let line = line.doing(|| "cannot read the audit log".into())?;
        let event: Value = serde_json::from_str(&line).doing(|| "cannot read the audit log".into())?;
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
            return Err(Failure::new(format!("a delete without both preconditions: {line}")));
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
        for bad in [log(DAEMON_USER, &uid_only, 409), log(DAEMON_USER, &Value::Null, 200)] {
            assert!(count((good.clone() + &bad).as_bytes()).is_err(), "{bad}");
        }
    }
}
