//! What is there, against what is planned.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::api::Api;
use crate::chaos::plan::{Family, KINDS, Kind, Member};
use crate::chaos::users::Users;
use crate::failure::Failure;

/// How many objects are named in a message.
const NAMED: usize = 5;

/// How a look went.
#[derive(Debug, Default)]
pub struct Survey {
    /// Planned to be gone and still there.
    pub lingering: Vec<String>,
    /// Planned to stay, and there, with references that should have been taken off by now.
    pub unreleased: Vec<String>,
    /// Planned to stay, and gone, going, replaced, or without a reference that it must have.
    pub wronged: Vec<String>,
    /// Planned to stay and as they should be.
    pub alive: usize,
}

impl Survey {
    /// Whether everything is as planned.
    pub fn is_done(&self) -> bool {
        self.lingering.is_empty() && self.unreleased.is_empty() && self.wronged.is_empty()
    }

    /// What is not as planned.
    pub fn describe(&self) -> String {
        let parts =
            [("lingering", &self.lingering), ("unreleased", &self.unreleased), ("WRONGED", &self.wronged)];
        let parts = parts.iter().filter(|(_, names)| !names.is_empty()).map(|(what, names)| {
            let first: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
            format!("{} {what}, such as {}", names.len(), first.join("; "))
        });
        parts.collect::<Vec<_>>().join("; ")
    }
}

/// Looks at every object of a namespace; what the users have not made yet is left out.
///
/// # Errors
///
/// When the server does not answer.
pub fn survey(api: &Api, namespace: &str, families: &[Family], users: &Users<'_>) -> Result<Survey, Failure> {
    let mut found: BTreeMap<(String, String), Value> = BTreeMap::new();
    for kind in KINDS {
        for item in list(api, kind, namespace)? {
            let name = item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            found.insert((kind.resource().kind, name), item);
        }
    }
    let mut survey = Survey::default();
    for (number, family) in families.iter().enumerate() {
        for (index, member) in family.iter().enumerate() {
            let Some(uid) = users.uid(number, index) else { continue };
            let item = found.get(&(member.kind.resource().kind, member.name.clone()));
            survey.take(number, member, &uid, item, users);
        }
    }
    Ok(survey)
}

/// Every object of a kind that may be of this scenario.
fn list(api: &Api, kind: Kind, namespace: &str) -> Result<Vec<Value>, Failure> {
    let list = api.get(&kind.resource().path(namespace, ""))?.unwrap_or_default();
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

impl Survey {
    fn take(&mut self, family: usize, member: &Member, uid: &str, item: Option<&Value>, users: &Users<'_>) {
        let label = format!("{:?}/{}", member.kind, member.name);
        let Some(planned) = &member.in_the_end else {
            if let Some(item) = item {
                self.lingering.push(format!("{label} ({})", stands(item)));
            }
            return;
        };
        let Some(item) = item.filter(|item| item["metadata"]["uid"] == uid) else {
            self.wronged.push(format!("{label} is gone"));
            return;
        };
        let named = |owners: &[Value]| -> BTreeSet<String> {
            owners.iter().filter_map(|owner| owner["uid"].as_str().map(str::to_owned)).collect()
        };
        let planned: Vec<Value> = planned.iter().map(|owner| users.reference(family, owner)).collect();
        let (planned, has) = (named(&planned), named(&references(item)));
        if item["metadata"]["deletionTimestamp"].is_string() || !planned.is_subset(&has) {
            self.wronged.push(format!("{label} is {}, planned owners {planned:?}", stands(item)));
        } else if planned != has {
            self.unreleased.push(format!("{label} ({})", stands(item)));
        } else {
            self.alive += 1;
        }
    }
}

fn references(item: &Value) -> Vec<Value> {
    item["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default()
}

fn stands(item: &Value) -> String {
    let metadata = &item["metadata"];
    let deleted = if metadata["deletionTimestamp"].is_string() { "going" } else { "there" };
    let owners: Vec<String> = references(item).iter().map(|owner| owner["name"].to_string()).collect();
    format!(
        "{deleted}, uid {}, finalizers {}, owners {}",
        metadata["uid"],
        metadata["finalizers"],
        owners.join(" ")
    )
}
