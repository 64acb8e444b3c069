//! Where the daemon differs from the reference on purpose. Each script shows both outcomes; when one of the two
//! collectors no longer ends as written here, that is a failure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::differential::PATIENCE;
use crate::differential::evidence;
use crate::differential::model::{Snapshot, Step, text};
use crate::differential::pair::{Pair, Patience, Settled};
use crate::differential::parse;
use crate::failure::Failure;

/// Between two bursts of a script nothing is known of how it must look, so one waits a little longer.
const BETWEEN: Duration = Duration::from_secs(2);

/// A difference, as text.
struct Script {
    /// Also the history's name.
    name: &'static str,
    why: &'static str,
    steps: &'static str,
    /// One of these.
    reference: &'static [&'static str],
    ours: &'static str,
}

/// Every difference that ordinary requests can show.
const SCRIPTS: &[Script] = &[
    Script {
        name: "undecidable",
        why: "an object that could not be decided is looked at again when its references change; the reference looks \
              again when an owner is added, but not when the invalid reference goes",
        steps: "
            create gadget/owner#1
            create cm/namespaced#2 @one
            create gadget/child#3 owners=[gadget/owner#1, cm/namespaced#2]
            (wait)
            delete #1 Background
            (wait)
            own #3 owners=[gadget/owner#1]",
        reference: &["
            cm/namespaced#2 @one
            gadget/child#3 owners=[gadget/owner#1]"],
        ours: "
            cm/namespaced#2 @one",
    },
    Script {
        name: "rewritten",
        why: "a reference that becomes wrong under the same UID is checked; the reference checks new UIDs only, so \
              that what it does depends on what it saw before",
        steps: "
            create cm/owner#1 @one
            create cm/child#2 @one owners=[cm/owner#1]
            (wait)
            own #2 owners=[secret/owner#1]",
        reference: &["
            cm/owner#1 @one
            cm/child#2 @one owners=[secret/owner#1]"],
        ours: "
            cm/owner#1 @one",
    },
    Script {
        name: "late",
        why: "a dependent of an orphaned owner that shows up afterwards loses its reference and lives, as if it had \
              been there in time (kubernetes/kubernetes#131307)",
        steps: "
            create cm/owner#1 @one
            create cm/early#2 @one owners=[cm/owner#1]
            (wait)
            delete #1 Orphan
            (wait)
            create cm/late#3 @one owners=[cm/owner#1]",
        reference: &["
            cm/early#2 @one"],
        ours: "
            cm/early#2 @one
            cm/late#3 @one",
    },
    Script {
        name: "twice",
        why: "a right and a wrong reference with the same UID: only the wrong one goes; the reference removes by UID, \
              and with the wrong one the right one",
        steps: "
            create cm/owner#1 @one
            (wait)
            create cm/child#2 @one owners=[cm/owner#1, secret/owner#1]",
        reference: &["
            cm/owner#1 @one
            cm/child#2 @one"],
        ours: "
            cm/owner#1 @one
            cm/child#2 @one owners=[cm/owner#1]",
    },
    Script {
        name: "flag",
        why: "a dependent that no longer waits for its own dependents is no sign of a cycle: its owner goes on blocking; \
              the reference remembers for ever that an object was once deleted in the foreground, takes it for a cycle, \
              and lets the top go before what blocks it. Its delete then conflicts with its own patch; when the top is \
              gone before it tries again, the middle goes too",
        steps: "
            create cm/top#1 @one
            create cm/middle#2 @one owners=[cm/top#1!]
            create cm/bottom#3 @one owners=[cm/middle#2!] finalizers=[history.example/x]
            (wait)
            delete #3 Foreground
            (wait)
            delete #1 Foreground",
        reference: &[
            "
            cm/middle#2 @one owners=[cm/top#1] finalizers=[foregroundDeletion] deleting
            cm/bottom#3 @one owners=[cm/middle#2!] finalizers=[history.example/x] deleting",
            "
            cm/bottom#3 @one owners=[cm/middle#2!] finalizers=[history.example/x] deleting",
        ],
        ours: "
            cm/top#1 @one finalizers=[foregroundDeletion] deleting
            cm/middle#2 @one owners=[cm/top#1!] finalizers=[foregroundDeletion] deleting
            cm/bottom#3 @one owners=[cm/middle#2!] finalizers=[history.example/x] deleting",
    },
    Script {
        name: "level",
        why: "a dependent of an owner that waits for its dependents already is looked at when it shows up, whichever of \
              the two a watch shows first; the reference looks when it sees the owner's deletion start, and when \
              something goes that blocks the owner",
        steps: "
            create cm/owner#1 @one
            create cm/held#2 @one owners=[cm/owner#1!] finalizers=[history.example/x]
            (wait)
            delete #1 Foreground
            (wait)
            create cm/late#3 @one owners=[cm/owner#1!]",
        reference: &["
            cm/owner#1 @one finalizers=[foregroundDeletion] deleting
            cm/held#2 @one owners=[cm/owner#1!] finalizers=[history.example/x] deleting
            cm/late#3 @one owners=[cm/owner#1!]"],
        ours: "
            cm/owner#1 @one finalizers=[foregroundDeletion] deleting
            cm/held#2 @one owners=[cm/owner#1!] finalizers=[history.example/x] deleting",
    },
];

/// Runs every script; how many did not end as written.
///
/// # Errors
///
/// When a server does not answer, or a signal comes.
pub fn run(pair: &mut Pair) -> Result<u64, Failure> {
    let mut failed = run_scripts(pair)?;
    if let Some(failure) = evidence::run(pair)? {
        println!("FAILED difference evidence: {failure}");
        failed += 1;
    }
    eprintln!("differential: {} differences on purpose, {failed} not as documented", SCRIPTS.len() + 1);
    Ok(failed)
}

fn run_scripts(pair: &mut Pair) -> Result<u64, Failure> {
    let names: Vec<String> = SCRIPTS.iter().map(|script| script.name.to_owned()).collect();
    let mut left: BTreeMap<&str, std::vec::IntoIter<Vec<Step>>> = BTreeMap::new();
    for script in SCRIPTS {
        left.insert(script.name, parse::bursts(script.steps)?.into_iter());
    }
    pair.begin(&names)?;
    let mut refused = BTreeMap::new();
    loop {
        let next = |(name, bursts): (&&str, &mut std::vec::IntoIter<Vec<Step>>)| {
            bursts.next().map(|steps| ((*name).to_owned(), steps))
        };
        let bursts: Vec<(String, Vec<Step>)> = left.iter_mut().filter_map(next).collect();
        if bursts.is_empty() {
            break;
        }
        refused.extend(pair.execute(&bursts)?);
        pair.settle_when(|_| true, Patience { quiet: BETWEEN, ..PATIENCE })?;
    }
    let is_as_written = |now: &Settled| SCRIPTS.iter().all(|script| script.difference(now).is_none());
    let end = pair.settle_when(is_as_written, PATIENCE)?;
    pair.end(&names)?;
    let mut failed = 0;
    for script in SCRIPTS {
        let difference = refused.get(script.name).cloned().or_else(|| script.difference(&end));
        if let Some(difference) = difference {
            println!("FAILED difference {}: {}\n{difference}", script.name, script.why);
            failed += 1;
        }
    }
    Ok(failed)
}

impl Script {
    /// How the end differs from what is written; nothing when it does not.
    fn difference(&self, now: &Settled) -> Option<String> {
        let reference = difference("reference", self.reference, now.left(self.name));
        let ours = difference("ours", &[self.ours], now.right(self.name));
        reference.map(|words| words + ours.as_deref().unwrap_or_default()).or(ours)
    }
}

fn difference(side: &str, expected: &[&str], now: &Snapshot) -> Option<String> {
    let now = text(now);
    let lines = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
    };
    if expected.iter().any(|expected| lines(expected) == lines(&now)) {
        return None;
    }
    let expected: Vec<String> = expected.iter().map(|expected| lines(expected).join("\n")).collect();
    let expected = expected.join("\nor:\n");
    Some(format!("{side}, expected:\n{expected}\n{side}, found:\n{now}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_steps_with_two_outcomes() {
        for script in SCRIPTS {
            assert!(!parse::bursts(script.steps).unwrap().is_empty(), "{}", script.name);
            assert!(!script.reference.contains(&script.ours), "{}", script.name);
        }
    }
}
