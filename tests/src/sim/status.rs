//! Errors as the real server writes them: `Status` objects, and the plain 404 of a path that is not served.
//!
//! The wording follows what kube-apiserver 1.36 was seen to answer.

use serde_json::{Map, Value, json};

use super::request::Response;
use super::resources::Resource;

/// An answer that is no success.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    pub code: u16,
    pub retry_after_s: Option<u32>,
    pub body: ErrorBody,
}

#[derive(Clone, Debug)]
pub(crate) enum ErrorBody {
    Status(Value),
    Plain(&'static str),
}

/// One complaint about one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldError {
    /// For example `FieldValueInvalid`.
    pub reason: &'static str,
    pub field: String,
    pub message: String,
}

impl FieldError {
    /// `value` is shown as JSON, as the real server shows it.
    pub fn invalid(field: &str, value: &Value, detail: &str) -> FieldError {
        FieldError::invalid_text(field, &value.to_string(), detail)
    }

    pub fn invalid_text(field: &str, shown: &str, detail: &str) -> FieldError {
        let message = format!("Invalid value: {shown}: {detail}");
        FieldError { reason: "FieldValueInvalid", field: field.into(), message }
    }

    pub fn forbidden(field: &str, detail: &str) -> FieldError {
        FieldError {
            reason: "FieldValueForbidden",
            field: field.into(),
            message: format!("Forbidden: {detail}"),
        }
    }

    pub fn required(field: &str, detail: &str) -> FieldError {
        FieldError {
            reason: "FieldValueRequired",
            field: field.into(),
            message: format!("Required value: {detail}"),
        }
    }

    pub fn not_supported(field: &str, value: &str, supported: &[&str]) -> FieldError {
        FieldError::not_supported_text(field, &format!("{value:?}"), supported)
    }

    pub fn not_supported_text(field: &str, shown: &str, supported: &[&str]) -> FieldError {
        let supported: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        let message = format!("Unsupported value: {shown}: supported values: {}", supported.join(", "));
        FieldError { reason: "FieldValueNotSupported", field: field.into(), message }
    }
}

pub(crate) const OPTIMISTIC_LOCK: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

impl ApiError {
    /// Any `Status`; `details` is left out when null, an empty `reason` as well.
    pub fn status(code: u16, reason: &str, message: &str, details: Value) -> ApiError {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": code,
        });
        if let Some(map) = body.as_object_mut() {
            if !reason.is_empty() {
                map.insert("reason".into(), reason.into());
            }
            if !details.is_null() {
                map.insert("details".into(), details);
            }
        }
        ApiError { code, retry_after_s: None, body: ErrorBody::Status(body) }
    }

    pub fn page_not_found() -> ApiError {
        ApiError { code: 404, retry_after_s: None, body: ErrorBody::Plain("404 page not found\n") }
    }

    /// What the aggregator answers for an API service whose server is down.
    pub fn service_down() -> ApiError {
        ApiError { code: 503, retry_after_s: None, body: ErrorBody::Plain("service unavailable\n") }
    }

    pub fn resource_not_served() -> ApiError {
        ApiError::status(404, "NotFound", "the server could not find the requested resource", json!({}))
    }

    /// What the status of a custom resource says to other verbs than it has.
    pub fn not_supported(resource: &Resource, verb: &str) -> ApiError {
        let message = format!("{verb} is not supported on resources of kind \"{}\"", resource.qualified());
        let details = json!({"group": resource.group, "kind": resource.plural});
        ApiError::status(405, "MethodNotAllowed", &message, details)
    }

    pub fn method_not_allowed() -> ApiError {
        let message = "the server does not allow this method on the requested resource";
        ApiError::status(405, "MethodNotAllowed", message, json!({}))
    }

    pub fn not_found(resource: &Resource, name: &str) -> ApiError {
        let message = format!("{} {name:?} not found", resource.qualified());
        ApiError::status(404, "NotFound", &message, details(resource, name))
    }

    pub fn already_exists(resource: &Resource, name: &str) -> ApiError {
        let message = format!("{} {name:?} already exists", resource.qualified());
        ApiError::status(409, "AlreadyExists", &message, details(resource, name))
    }

    /// `kind` is what the details name: the resource in most places, the kind in a few.
    pub fn conflict(resource: &Resource, named: Named, name: &str, why: &str) -> ApiError {
        let mut details = details(resource, name);
        let shown = match named {
            Named::Resource => resource.qualified(),
            Named::Kind => {
                details["kind"] = resource.kind.as_str().into();
                resource.qualified_kind()
            }
        };
        let message = format!("Operation cannot be fulfilled on {shown} {name:?}: {why}");
        ApiError::status(409, "Conflict", &message, details)
    }

    pub fn forbidden(resource: &Resource, name: &str, why: &str, causes: &Value) -> ApiError {
        let mut details = details(resource, name);
        if !causes.is_null() {
            details["causes"] = causes.clone();
        }
        let message = format!("{} {name:?} is forbidden: {why}", resource.qualified());
        ApiError::status(403, "Forbidden", &message, details)
    }

    /// `group` and `kind` of the object that is wrong.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> ApiError {
        let shown = if group.is_empty() { kind.to_string() } else { format!("{kind}.{group}") };
        let mut lines: Vec<String> = Vec::new();
        let mut causes: Vec<Value> = Vec::new();
        for error in errors {
            let line = format!("{}: {}", error.field, error.message);
            causes.push(json!({"reason": error.reason, "message": error.message, "field": error.field}));
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let list = match lines.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut details = Map::new();
        insert_unless_empty(&mut details, "name", name);
        insert_unless_empty(&mut details, "group", group);
        details.insert("kind".into(), kind.into());
        details.insert("causes".into(), causes.into());
        ApiError::status(422, "Invalid", &format!("{shown} {name:?} is invalid: {list}"), details.into())
    }

    pub fn bad_request(message: &str) -> ApiError {
        ApiError::status(400, "BadRequest", message, Value::Null)
    }

    pub fn not_acceptable(message: &str) -> ApiError {
        ApiError::status(406, "NotAcceptable", message, Value::Null)
    }

    pub fn expired(message: &str) -> ApiError {
        ApiError::status(410, "Expired", message, Value::Null)
    }

    /// A resourceVersion from the future (or from before a restore).
    pub fn too_large_resource_version(asked: u64, current: u64) -> ApiError {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let causes = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
        let mut error =
            ApiError::status(504, "Timeout", &message, json!({"causes": causes, "retryAfterSeconds": 1}));
        error.retry_after_s = Some(1);
        error
    }

    /// The `Status` object; a plain error has none and gives null.
    pub fn status_object(&self) -> Value {
        match &self.body {
            ErrorBody::Status(value) => value.clone(),
            ErrorBody::Plain(_) => Value::Null,
        }
    }

    pub fn into_response(self) -> Response {
        let mut response = match self.body {
            ErrorBody::Status(value) => Response::json(self.code, &value),
            ErrorBody::Plain(text) => {
                Response::bytes(self.code, "text/plain; charset=utf-8", text.as_bytes().to_vec())
            }
        };
        response.retry_after_s = self.retry_after_s;
        response
    }
}

/// Which name of the resource an error shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    Resource,
    Kind,
}

/// The `Status` of a deletion that is done.
pub(crate) fn deleted(resource: &Resource, name: &str, uid: &str) -> Value {
    let mut details = details(resource, name);
    details["uid"] = uid.into();
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

fn details(resource: &Resource, name: &str) -> Value {
    let mut map = Map::new();
    insert_unless_empty(&mut map, "name", name);
    insert_unless_empty(&mut map, "group", &resource.group);
    map.insert("kind".into(), resource.plural.as_str().into());
    map.into()
}

fn insert_unless_empty(map: &mut Map<String, Value>, key: &str, value: &str) {
    if !value.is_empty() {
        map.insert(key.into(), value.into());
    }
}
