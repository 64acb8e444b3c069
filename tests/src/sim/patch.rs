//! The three patches: JSON merge (RFC 7386), strategic merge as far as lists in Kubernetes objects need it, and JSON
//! patch (RFC 6902).

use serde_json::{Map, Value, json};

use super::resources::Resource;
use super::status::ApiError;

/// JSON patches with more operations are refused, as in the real server.
const MAX_OPERATIONS: usize = 10_000;

/// Lists that a strategic merge patch merges by a key, by the name of the field. Those that matter to garbage
/// collection are complete; of the others the common ones are here.
const MERGE_KEYS: &[(&str, &str)] = &[
    ("ownerReferences", "uid"),
    ("conditions", "type"),
    ("containers", "name"),
    ("initContainers", "name"),
    ("env", "name"),
    ("volumes", "name"),
    ("volumeMounts", "mountPath"),
    ("imagePullSecrets", "name"),
    ("secrets", "name"),
];

/// Lists of texts that a strategic merge patch treats as sets.
const SETS: &[&str] = &["finalizers"];

/// A patch that has been read and can be applied.
pub(crate) enum Patch {
    Merge(Value),
    Strategic(Value),
    Json(Vec<Value>),
}

impl Patch {
    /// Reads a patch of the given content type for a resource, or says why not.
    pub fn parse(resource: &Resource, content_type: &str, body: &[u8]) -> Result<Patch, ApiError> {
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        match media_type {
            "application/merge-patch+json" => Ok(Patch::Merge(object(body)?)),
            "application/strategic-merge-patch+json" if !resource.custom => {
                Ok(Patch::Strategic(object(body)?))
            }
            "application/json-patch+json" => {
                let value: Value = parse(body)?;
                let Value::Array(operations) = value else {
                    return Err(ApiError::bad_request("error decoding patch: json: cannot unmarshal object"));
                };
                if operations.len() > MAX_OPERATIONS {
                    let message = format!(
                        "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                        operations.len()
                    );
                    return Err(ApiError::status(413, "RequestEntityTooLarge", &message, Value::Null));
                }
                Ok(Patch::Json(operations))
            }
            other => Err(unsupported(resource, other)),
        }
    }

    /// The patched object.
    pub fn apply(&self, object: &Value) -> Result<Value, ApiError> {
        let mut new = object.clone();
        match self {
            Patch::Merge(patch) => merge(&mut new, patch),
            Patch::Strategic(patch) => strategic(&mut new, patch)?,
            Patch::Json(operations) => {
                for operation in operations {
                    if apply_operation(&mut new, operation).is_none() {
                        let message = "the server rejected our request due to an error in our request";
                        return Err(ApiError::status(422, "Invalid", message, json!({})));
                    }
                }
            }
        }
        if !new.is_object() {
            return Err(ApiError::bad_request("the patch makes something that is no object"));
        }
        Ok(new)
    }
}

/// Custom resources list what they take; built-in ones are refused one layer further out, in other words.
fn unsupported(resource: &Resource, media_type: &str) -> ApiError {
    const KNOWN: [&str; 2] = ["application/strategic-merge-patch+json", "application/apply-patch+yaml"];
    if resource.custom && KNOWN.contains(&media_type) {
        let message = "the body of the request was in an unknown format - accepted media types include: \
                       application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
        return ApiError::status(415, "UnsupportedMediaType", message, Value::Null);
    }
    ApiError::status(415, "UnsupportedMediaType", "415: Unsupported Media Type", json!({}))
}

fn parse(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body).map_err(|e| ApiError::bad_request(&format!("error decoding patch: {e}")))
}

fn object(body: &[u8]) -> Result<Value, ApiError> {
    let value = parse(body)?;
    if value.is_object() {
        return Ok(value);
    }
    let what = if value.is_array() { "array" } else { "value" };
    let message = format!(
        "error decoding patch: json: cannot unmarshal {what} into Go value of type map[string]interface {{}}"
    );
    Err(ApiError::bad_request(&message))
}

/// RFC 7386. serde_json bounds the depth when it parses, so this recursion is bounded as well.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

fn strategic(target: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return Ok(());
    };
    if patch.get("$patch").is_some_and(|p| p == "replace") {
        let rest = patch.iter().filter(|(k, _)| *k != "$patch");
        *target = Value::Object(rest.map(|(k, v)| (k.clone(), v.clone())).collect());
        return Ok(());
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else { return Ok(()) };
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            delete_from_list(map, list, value);
        } else if key.starts_with('$') {
            // $setElementOrder and $retainKeys: order and unions decide nothing here.
        } else if value.is_null() {
            map.remove(key);
        } else {
            strategic_field(map, key, value)?;
        }
    }
    Ok(())
}

fn strategic_field(map: &mut Map<String, Value>, key: &str, value: &Value) -> Result<(), ApiError> {
    let Some(patch) = value.as_array() else {
        return strategic(map.entry(key.to_string()).or_insert(Value::Null), value);
    };
    let merge_key = MERGE_KEYS.iter().find(|(field, _)| *field == key).map(|(_, merge_key)| *merge_key);
    let Some(present) = map.get(key).and_then(Value::as_array).cloned() else {
        // A list that is new is taken as it comes, without its directives.
        let plain: Vec<Value> = patch.iter().filter(|item| item.get("$patch").is_none()).cloned().collect();
        map.insert(key.into(), plain.into());
        return Ok(());
    };
    let merged = match merge_key {
        Some(merge_key) => merge_list(&present, patch, merge_key)?,
        None if SETS.contains(&key) => merge_set(&present, patch),
        None => patch.clone(),
    };
    map.insert(key.into(), merged.into());
    Ok(())
}

fn delete_from_list(map: &mut Map<String, Value>, key: &str, gone: &Value) {
    let gone = gone.as_array().cloned().unwrap_or_default();
    if let Some(list) = map.get_mut(key).and_then(Value::as_array_mut) {
        list.retain(|v| !gone.contains(v));
    }
}

fn merge_set(present: &[Value], patch: &[Value]) -> Vec<Value> {
    let mut merged = present.to_vec();
    for value in patch {
        if !merged.contains(value) {
            merged.push(value.clone());
        }
    }
    in_order(merged, patch, present, |v| Some(v))
}

/// The order of a merged list: what the patch names stands in the patch's order and before what only the server
/// knows, unless the server had them the other way round (`normalizeElementOrder` in apimachinery).
fn in_order(
    merged: Vec<Value>,
    patch: &[Value],
    server: &[Value],
    identity: impl Fn(&Value) -> Option<&Value>,
) -> Vec<Value> {
    let place = |list: &[Value], item: &Value| list.iter().position(|v| identity(v) == identity(item));
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| place(patch, item).is_some());
    named.sort_by_key(|item| place(patch, item));
    others.sort_by_key(|item| place(server, item));
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    let mut out = Vec::new();
    while let (Some(right), Some(left)) = (named.peek(), others.peek()) {
        let left_first = match (place(server, left), place(server, right)) {
            (Some(left), Some(right)) => left < right,
            _ => false,
        };
        out.extend(if left_first { others.next() } else { named.next() });
    }
    out.extend(named);
    out.extend(others);
    out
}

/// A map of plain values in Go's own notation.
fn as_go_prints(map: &Value) -> String {
    let shown = |(key, value): (&String, &Value)| match value.as_str() {
        Some(text) => format!("{key}:{text}"),
        None => format!("{key}:{value}"),
    };
    let entries: Vec<String> = map.as_object().into_iter().flatten().map(shown).collect();
    format!("map[{}]", entries.join(" "))
}

fn merge_list(present: &[Value], patch: &[Value], merge_key: &str) -> Result<Vec<Value>, ApiError> {
    if patch.iter().any(|item| item.get("$patch").is_some_and(|p| p == "replace")) {
        return Ok(patch.iter().filter(|item| item.get("$patch").is_none()).cloned().collect());
    }
    let mut merged = present.to_vec();
    for item in patch {
        let Some(wanted) = item.get(merge_key) else {
            let message =
                format!("map: {} does not contain declared merge key: {merge_key}", as_go_prints(item));
            return Err(ApiError::status(500, "", &message, Value::Null));
        };
        let found = merged.iter().position(|p| p.get(merge_key) == Some(wanted));
        let is_delete = item.get("$patch").is_some_and(|p| p == "delete");
        match (found, is_delete) {
            (_, true) => merged.retain(|p| p.get(merge_key) != Some(wanted)),
            (Some(index), false) => {
                if let Some(target) = merged.get_mut(index) {
                    strategic(target, item)?;
                }
            }
            (None, false) => {
                let mut added = Value::Object(Map::new());
                strategic(&mut added, item)?;
                merged.push(added);
            }
        }
    }
    Ok(in_order(merged, patch, present, |v| v.get(merge_key)))
}

/// One operation of RFC 6902; none when it cannot be applied.
fn apply_operation(target: &mut Value, operation: &Value) -> Option<()> {
    let path = operation.get("path")?.as_str()?;
    let value = || operation.get("value").cloned();
    let from = || operation.get("from")?.as_str();
    match operation.get("op")?.as_str()? {
        "add" => add(target, path, value()?),
        "remove" => remove(target, path).map(|_| ()),
        "replace" => {
            *target.pointer_mut(path)? = value()?;
            Some(())
        }
        "test" => (target.pointer(path).unwrap_or(&Value::Null) == &value()?).then_some(()),
        "move" => {
            let moved = remove(target, from()?)?;
            add(target, path, moved)
        }
        "copy" => {
            let copied = target.pointer(from()?)?.clone();
            add(target, path, copied)
        }
        _ => None,
    }
}

fn add(target: &mut Value, path: &str, value: Value) -> Option<()> {
    let (parent, last) = path.rsplit_once('/')?;
    let last = last.replace("~1", "/").replace("~0", "~");
    match target.pointer_mut(parent)? {
        Value::Object(map) => {
            map.insert(last, value);
            Some(())
        }
        Value::Array(list) => {
            let index = if last == "-" { list.len() } else { last.parse().ok()? };
            (index <= list.len()).then(|| list.insert(index, value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn remove(target: &mut Value, path: &str) -> Option<Value> {
    let (parent, last) = path.rsplit_once('/')?;
    let last = last.replace("~1", "/").replace("~0", "~");
    match target.pointer_mut(parent)? {
        Value::Object(map) => map.remove(&last),
        Value::Array(list) => {
            let index: usize = last.parse().ok()?;
            (index < list.len()).then(|| list.remove(index))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}
