//! `cargo xtask demo`: the real daemon against a simulated API server, with nothing else installed.
//!
//! Standard output gets the experiment's six lines and nothing else; what happens between them goes to standard error,
//! on lines that begin with `#`.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use gc_client::{Client, Config, Options};
use gc_tests::http::Front;
use gc_tests::sim::{ApiServer, Write as ServerWrite};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::Api;
use crate::cargo::build_daemon;
use crate::collector::{Duty, Launcher, Program};
use crate::dirs::RunDir;
use crate::failure::{Doing, Failure};
use crate::finish::{End, Finishing};
use crate::kinds;
use crate::kubeconfig;
use crate::poll::{Look, eventually};

/// The same objects with the same UIDs in every demo.
const SEED: u64 = 1;
const NAMESPACE: &str = "demo";
/// It takes two seconds; the rest is for machines that do something else at the same time.
const DEADLINE: Duration = Duration::from_secs(30);

/// Runs it; ends in a few seconds.
///
/// # Errors
///
/// When the daemon does not build or start, or something is not as it should be.
pub fn run() -> Result<ExitCode, Failure> {
    let binary = build_daemon()?;
    let start = Instant::now();
    let front = Front::start(ApiServer::new(SEED)).doing(|| "cannot start the simulator".into())?;
    eprintln!("# A simulated API server listens on {}; nothing collects garbage there yet.", front.url());

    let dir = RunDir::new("gc-demo")?;
    let kubeconfig = dir.file("kubeconfig");
    kubeconfig::write(&kubeconfig, &front.url(), None, None)?;
    let mut launcher =
        Launcher::new(Program::Daemon(binary), kubeconfig, dir.path()).for_duty(Duty::Both(None));
    let collector = launcher.start(20)?;
    eprintln!("# gc-daemon runs and its /readyz says that it collects.");
    eprintln!(
        "# For each policy: an owner, and a child that blocks it and is held by a finalizer of its own."
    );

    let options = Options { user_agent: "demo".into(), ..Options::default() };
    let client = Client::new(&Config::plain(&front.url()), &options)?;
    let mut narrator = Narrator { front: &front, told: 0, out: io::stdout() };
    let result = gc_tests::experiment::run(&client, NAMESPACE, DEADLINE, &mut narrator);
    narrator.tell_writes();
    if let Err(error) = result {
        return Err(Failure::new(format!("{error}\n{}", collector.log_tail())));
    }
    eprintln!("# The finalizers were released: what should go has gone, and what should stay stayed.");
    eprintln!("# A Job whose TTL is a second finishes. A ConfigMap, which blocks it, belongs to it.");
    let expired = expire(&Api::from(client));
    narrator.tell_writes();
    expired.map_err(|failure| Failure::new(format!("{failure}\n{}", collector.log_tail())))?;
    eprintln!("# Its time came, and it went after what belonged to it.");
    eprintln!("# That took {:.1} s.", start.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

/// A Job that finishes, and what it has left behind: both go on their own.
fn expire(api: &Api) -> Result<(), Failure> {
    let batch = Finishing::batch();
    let (jobs, results) = (&batch.resource, kinds::config_map());
    let mut job = batch.body(Some(1));
    job["apiVersion"] = json!(jobs.api_version());
    job["kind"] = json!(jobs.kind);
    job["metadata"] = json!({ "name": "report" });
    let job = api.create(&jobs.path(NAMESPACE, ""), &job)?;
    let result = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "report-result",
        "ownerReferences": [{
            "apiVersion": jobs.api_version(), "kind": jobs.kind, "name": "report", "uid": job["metadata"]["uid"],
            "controller": true, "blockOwnerDeletion": true,
        }],
    } });
    api.create(&results.path(NAMESPACE, ""), &result)?;
    let now_s = Timestamp::now().as_second();
    let path = format!("{}/status", jobs.path(NAMESPACE, "report"));
    api.merge_patch(&path, &batch.status(End::Success, Some(now_s))?)?;
    for path in [results.path(NAMESPACE, "report-result"), jobs.path(NAMESPACE, "report")] {
        eventually(&format!("{path} is gone"), DEADLINE, || {
            Ok(api.get(&path)?.map_or(Look::Done(()), |_| Look::NotYet("it is there".into())))
        })?;
    }
    Ok(())
}

/// Prints what the experiment prints, and before it what the server has written meanwhile, and for whom.
struct Narrator<'f, W> {
    front: &'f Front,
    /// How many writes have been told.
    told: usize,
    out: W,
}

impl<W> Narrator<'_, W> {
    fn tell_writes(&mut self) {
        let lines: Vec<String> =
            self.front.with(|server| server.writes().skip(self.told).map(narrate).collect());
        self.told += lines.len();
        let of_the_demo = lines.iter().filter(|line| line.contains(NAMESPACE));
        for line in of_the_demo {
            eprintln!("#   {line}");
        }
    }
}

impl<W: Write> Write for Narrator<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tell_writes();
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// One write in one line: who did what to which object, and how its metadata changed.
fn narrate(write: &ServerWrite) -> String {
    let who = write.user_agent.split(['/', ' ']).next().unwrap_or_default();
    let object = format!("{} {}", write.resource, write.key);
    match (&write.before, &write.after) {
        (None, _) => format!("{who} creates {object}"),
        (Some(_), None) => format!("{who} makes {object} go"),
        (Some(before), Some(after)) => format!("{who} changes {object}: {}", changes(before, after)),
    }
}

fn changes(whole_before: &Value, whole_after: &Value) -> String {
    let [before, after] = [&whole_before["metadata"], &whole_after["metadata"]];
    let mut changes = Vec::new();
    if before["deletionTimestamp"].is_null() && !after["deletionTimestamp"].is_null() {
        changes.push("it is terminating".to_owned());
    }
    if before["finalizers"] != after["finalizers"] {
        changes.push(format!("finalizers {}", names(&after["finalizers"], |item| item)));
    }
    if before["ownerReferences"] != after["ownerReferences"] {
        changes.push(format!("owners {}", names(&after["ownerReferences"], |item| &item["name"])));
    }
    if whole_before["status"] != whole_after["status"] {
        changes.push("its status".to_owned());
    }
    if changes.is_empty() { "something else".into() } else { changes.join(", ") }
}

fn names(list: &Value, name: impl Fn(&Value) -> &Value) -> String {
    let names = list.as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<&str> = names.iter().filter_map(|item| name(item).as_str()).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::changes;

    #[test]
    fn a_change_is_told_in_words() {
        let before = json!({"metadata": {"finalizers": ["a"], "ownerReferences": [{"name": "o"}]}});
        let after = json!({"metadata": {"deletionTimestamp": "t", "finalizers": ["a", "b"]}});
        assert_eq!(changes(&before, &after), "it is terminating, finalizers a, b, owners none");
        assert_eq!(changes(&before, &before), "something else");
        let done = json!({"metadata": before["metadata"], "status": {"succeeded": 1}});
        assert_eq!(changes(&before, &done), "its status");
    }
}
