//! Label and field selectors.

use serde_json::Value;

use super::object;
use super::request::Request;
use super::resources::Resource;
use super::status::ApiError;

/// What a list, a watch or a collection's deletion is narrowed to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    labels: Vec<Term>,
    fields: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    key: String,
    values: Vec<String>,
    kind: TermKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TermKind {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Selector {
    pub fn parse(resource: &Resource, request: &Request) -> Result<Selector, ApiError> {
        let labels = label_terms(&request.query("labelSelector").unwrap_or_default())?;
        let fields = field_terms(&request.query("fieldSelector").unwrap_or_default())?;
        for term in &fields {
            if !known_fields(resource).any(|known| known == term.key) {
                let known: Vec<String> =
                    ["metadata.name", "metadata.namespace"].iter().map(|f| format!("{f:?}")).collect();
                let message =
                    format!("{:?} is not a known field selector: only {}", term.key, known.join(", "));
                return Err(ApiError::bad_request(&message));
            }
        }
        Ok(Selector { labels, fields })
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub fn matches(&self, object: &Value) -> bool {
        let labels = object::meta(object, "labels");
        self.labels.iter().all(|t| t.matches(labels.and_then(|l| l.get(&t.key)).and_then(Value::as_str)))
            && self.fields.iter().all(|t| t.matches(Some(field(object, &t.key))))
    }
}

impl Term {
    fn matches(&self, value: Option<&str>) -> bool {
        let is_in = value.is_some_and(|v| self.values.iter().any(|w| w == v));
        match self.kind {
            TermKind::In => is_in,
            TermKind::NotIn => !is_in,
            TermKind::Exists => value.is_some(),
            TermKind::DoesNotExist => value.is_none(),
        }
    }
}

/// The fields that can be selected by: name and namespace for all, a few more for some kinds.
fn known_fields(resource: &Resource) -> impl Iterator<Item = &'static str> {
    let more: &[&str] = match (resource.custom, resource.plural.as_str()) {
        (false, "pods") => {
            &["spec.nodeName", "status.phase", "spec.restartPolicy", "spec.serviceAccountName"]
        }
        (false, "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.fieldPath",
            "reason",
            "type",
        ],
        (false, "namespaces") => &["status.phase"],
        (false, "nodes") => &["spec.unschedulable"],
        (false, "secrets") => &["type"],
        (false, "jobs") => &["status.successful"],
        _ => &[],
    };
    ["metadata.name", "metadata.namespace"].into_iter().chain(more.iter().copied())
}

fn field<'a>(object: &'a Value, path: &str) -> &'a str {
    let found = path.split('.').try_fold(object, |value, key| value.get(key));
    found.and_then(Value::as_str).unwrap_or_default()
}

fn field_terms(text: &str) -> Result<Vec<Term>, ApiError> {
    let parts = text.split(',').filter(|p| !p.is_empty());
    parts
        .map(|part| {
            let (key, value, kind) = if let Some((k, v)) = part.split_once("!=") {
                (k, v, TermKind::NotIn)
            } else if let Some((k, v)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (k, v, TermKind::In)
            } else {
                let message = format!("invalid selector: '{text}'; can't understand '{part}'");
                return Err(ApiError::bad_request(&message));
            };
            Ok(Term { key: key.into(), values: vec![value.into()], kind })
        })
        .collect()
}

fn label_terms(text: &str) -> Result<Vec<Term>, ApiError> {
    split_outside_parentheses(text).into_iter().filter(|p| !p.is_empty()).map(label_term).collect()
}

fn label_term(part: &str) -> Result<Term, ApiError> {
    let term = |key: &str, values: Vec<String>, kind: TermKind| {
        let key = key.trim();
        let strange = key.is_empty() || key.chars().any(|c| c.is_whitespace() || "=!(),".contains(c));
        let strange_value =
            values.iter().any(|v| v.chars().any(|c| c.is_whitespace() || "=!(),".contains(c)));
        if strange || strange_value {
            let message = format!("unable to parse requirement: found '{part}', expected: identifier");
            return Err(ApiError::bad_request(&message));
        }
        Ok(Term { key: key.into(), values, kind })
    };
    let one = |v: &str| vec![v.trim().to_string()];
    if let Some((head, rest)) = part.split_once('(') {
        let values = rest.trim().trim_end_matches(')').split(',').map(|v| v.trim().to_string()).collect();
        let head = head.trim();
        if let Some(key) = head.strip_suffix(" notin") {
            return term(key, values, TermKind::NotIn);
        }
        return term(head.strip_suffix(" in").unwrap_or_default(), values, TermKind::In);
    }
    if let Some((key, value)) = part.split_once("!=") {
        return term(key, one(value), TermKind::NotIn);
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return term(key, one(value), TermKind::In);
    }
    match part.trim().strip_prefix('!') {
        Some(key) => term(key, Vec::new(), TermKind::DoesNotExist),
        None => term(part, Vec::new(), TermKind::Exists),
    }
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn selects(selector: &str, labels: &Value) -> bool {
        let selector = Selector { labels: label_terms(selector).unwrap(), fields: Vec::new() };
        selector.matches(&json!({"metadata": {"labels": labels}}))
    }

    #[test]
    fn label_selectors() {
        let web = json!({"app": "web", "tier": "front"});
        for yes in [
            "",
            "app=web",
            "app==web,tier=front",
            "app in (db, web)",
            "tier notin (back)",
            "app",
            "!old",
            "x!=y",
        ] {
            assert!(selects(yes, &web), "{yes}");
        }
        for no in ["app=db", "app in (db)", "old", "!app", "app!=web", "app notin (web,db)"] {
            assert!(!selects(no, &web), "{no}");
        }
        assert!(label_terms("a=== b").is_err());
    }
}
