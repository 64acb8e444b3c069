//! Representations: which one a client gets, and how objects, lists and watch events look in it.

use gc_client::encode::{self, EncodeMeta};
use gc_client::{MetaRef, ObjectMeta, OwnerReferenceRef, Status};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::object;
use super::request::Response;
use super::resources::Resource;
use super::status::ApiError;

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub protobuf: bool,
    pub shape: Shape,
}

/// What an answer shows of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Full,
    Partial,
    PartialList,
    Table,
}

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The real server can write YAML too; the simulator cannot, but names it as the real one does.
const ALL_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The first clause of `Accept` that can be served, in the order of preference.
pub(crate) fn negotiate(accept: &str, protobuf_allowed: bool) -> Result<Form, ApiError> {
    let mut known_type = false;
    for clause in clauses(accept) {
        let protobuf = match clause.media_type.as_str() {
            JSON | "application/*" | "*/*" => false,
            PROTOBUF if protobuf_allowed => true,
            _ => continue,
        };
        known_type = true;
        let is_meta = clause.group == "meta.k8s.io" && ["v1", "v1beta1"].contains(&clause.version.as_str());
        if clause.convert.is_some() && !is_meta {
            continue;
        }
        let shape = match (clause.convert.as_deref(), protobuf) {
            (None, false) => Shape::Full,
            (Some("PartialObjectMetadata"), _) => Shape::Partial,
            (Some("PartialObjectMetadataList"), _) => Shape::PartialList,
            (Some("Table"), false) => Shape::Table,
            // Full objects in protobuf need every kind's schema, which the simulator does not have.
            _ => continue,
        };
        return Ok(Form { protobuf, shape });
    }
    if known_type {
        let message = format!("only the following media types are accepted: {ALL_TYPES}");
        return Err(ApiError::not_acceptable(&message));
    }
    let message = format!("406: Not Acceptable\n\nAvailable representations: {ALL_TYPES}");
    Err(ApiError::status(406, "NotAcceptable", &message, json!({})))
}

/// One clause of `Accept`.
pub(crate) struct Clause {
    pub media_type: String,
    /// The parameter `as`.
    pub convert: Option<String>,
    pub group: String,
    pub version: String,
    quality: f32,
}

/// The clauses of an `Accept` header, the most wanted first; an empty header accepts JSON.
pub(crate) fn clauses(accept: &str) -> Vec<Clause> {
    let accept = if accept.trim().is_empty() { JSON } else { accept };
    let mut clauses: Vec<Clause> = accept.split(',').map(clause).collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

fn clause(text: &str) -> Clause {
    let mut parts = text.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
    let mut clause =
        Clause { media_type, convert: None, group: String::new(), version: String::new(), quality: 1.0 };
    for part in parts {
        match part.split_once('=') {
            Some(("as", v)) => clause.convert = Some(v.into()),
            Some(("g", v)) => clause.group = v.into(),
            Some(("v", v)) => clause.version = v.into(),
            Some(("q", v)) => clause.quality = v.parse().unwrap_or(1.0),
            _ => {}
        }
    }
    clause
}

impl Form {
    pub fn watch_content_type(self) -> &'static str {
        if self.protobuf { "application/vnd.kubernetes.protobuf;stream=watch" } else { JSON }
    }

    /// One object, as a GET, POST, PUT, PATCH or DELETE answers it.
    pub fn object(
        self,
        code: u16,
        resource: &Resource,
        version: &str,
        object: &Value,
        now: Timestamp,
    ) -> Result<Response, ApiError> {
        if self.shape == Shape::PartialList {
            let message = format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list (*core.{})",
                resource.kind
            );
            return Err(ApiError::not_acceptable(&message));
        }
        if self.protobuf {
            return Ok(Response::bytes(code, PROTOBUF, protobuf_object(object)));
        }
        Ok(Response::json(code, &self.json_object(resource, version, object, now, true)))
    }

    /// A `Status` as a successful answer.
    pub fn status(self, code: u16, status: &Value) -> Response {
        if self.protobuf {
            return Response::bytes(code, PROTOBUF, encode::status(&to_status(code, status)));
        }
        Response::json(code, status)
    }

    /// The objects in JSON for this form; tables may leave their columns out (after a watch's first event).
    pub fn json_object(
        self,
        resource: &Resource,
        version: &str,
        object: &Value,
        now: Timestamp,
        columns: bool,
    ) -> Value {
        match self.shape {
            Shape::Full => full(resource, version, object),
            Shape::Partial | Shape::PartialList => partial(object),
            Shape::Table => {
                let metadata = json!({"resourceVersion": object::resource_version(object)});
                table(&[object], &metadata, now, columns)
            }
        }
    }

    /// A list.
    pub fn list(self, list: &List<'_>, now: Timestamp) -> Result<Response, ApiError> {
        let resource = list.resource;
        if self.shape == Shape::Partial {
            let message = format!(
                "you requested PartialObjectMetadata, but the requested object is a list (*core.{})",
                resource.list_kind
            );
            return Err(ApiError::not_acceptable(&message));
        }
        if self.protobuf {
            return Ok(Response::bytes(200, PROTOBUF, protobuf_list(list)));
        }
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".into(), list.resource_version.to_string().into());
        if !list.continue_token.is_empty() || resource.custom && self.shape == Shape::Full {
            metadata.insert("continue".into(), list.continue_token.as_str().into());
        }
        if let Some(remaining) = list.remaining {
            metadata.insert("remainingItemCount".into(), remaining.into());
        }
        if self.shape == Shape::Table {
            return Ok(Response::json(200, &table(&list.items, &metadata.into(), now, true)));
        }
        let (api_version, kind) = match self.shape {
            Shape::PartialList => ("meta.k8s.io/v1".into(), "PartialObjectMetadataList"),
            _ => (resource.api_version(list.version), resource.list_kind.as_str()),
        };
        let items: Vec<Value> = list.items.iter().map(|o| self.list_item(list, o)).collect();
        let value = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items});
        Ok(Response::json(200, &value))
    }

    fn list_item(self, list: &List<'_>, object: &Value) -> Value {
        let mut item = match self.shape {
            Shape::PartialList => partial(object),
            _ => full(list.resource, list.version, object),
        };
        if self.shape == Shape::Full && !list.resource.custom {
            // Items of built-in lists do not repeat what the list says.
            object::set_top(&mut item, "kind", Value::Null);
            object::set_top(&mut item, "apiVersion", Value::Null);
        }
        item
    }

    /// One event of a watch, framed. `object` is a stored object.
    pub fn watch_event(
        self,
        kind: &str,
        resource: &Resource,
        version: &str,
        object: &Value,
        now: Timestamp,
        columns: bool,
    ) -> Vec<u8> {
        if self.protobuf {
            return encode::watch_frame(kind, &protobuf_object(object));
        }
        json_line(kind, &self.json_object(resource, version, object, now, columns))
    }

    /// The `ERROR` event that ends a watch.
    pub fn watch_error(self, error: &ApiError) -> Vec<u8> {
        let status = error.status_object();
        if self.protobuf {
            return encode::watch_frame("ERROR", &encode::status(&to_status(error.code, &status)));
        }
        json_line("ERROR", &status)
    }
}

/// A page of a list.
pub(crate) struct List<'a> {
    pub resource: &'a Resource,
    pub version: &'a str,
    pub items: Vec<&'a Value>,
    pub resource_version: u64,
    pub continue_token: String,
    pub remaining: Option<usize>,
}

fn json_line(kind: &str, object: &Value) -> Vec<u8> {
    let mut line = json!({"type": kind, "object": object}).to_string().into_bytes();
    line.push(b'\n');
    line
}

/// The object in the version that was asked for. Custom resources convert by changing the version only, as with
/// `strategy: None`; events of the two groups rename two fields.
pub(crate) fn full(resource: &Resource, version: &str, object: &Value) -> Value {
    let mut out = object.clone();
    object::set_top(&mut out, "apiVersion", resource.api_version(version).into());
    if resource.group == "events.k8s.io" {
        rename(&mut out, "involvedObject", "regarding");
        rename(&mut out, "message", "note");
    }
    out
}

/// The other way round: what is stored of an object that was sent in a version.
pub(crate) fn to_stored(resource: &Resource, mut object: Value) -> Value {
    if resource.group == "events.k8s.io" {
        rename(&mut object, "regarding", "involvedObject");
        rename(&mut object, "note", "message");
    }
    object
}

fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(map) = object.as_object_mut()
        && let Some(value) = map.remove(from)
    {
        map.insert(to.into(), value);
    }
}

fn partial(object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

/// Name and age of each object: what `kubectl get` prints of kinds without columns of their own.
fn table(objects: &[&Value], metadata: &Value, now: Timestamp, columns: bool) -> Value {
    let definitions = json!([
        {"name": "Name", "type": "string", "format": "name", "description": "The object's name.", "priority": 0},
        {"name": "Age", "type": "string", "format": "", "description": "Time since its creation.", "priority": 0},
    ]);
    let rows: Vec<Value> = objects
        .iter()
        .map(|o| json!({"cells": [object::name(o), age(o, now)], "object": partial(o)}))
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": if columns { definitions } else { Value::Null }, "rows": rows,
    })
}

fn age(object: &Value, now: Timestamp) -> String {
    let Ok(created) = object::meta_text(object, "creationTimestamp").parse::<Timestamp>() else {
        return "<unknown>".into();
    };
    match now.duration_since(created).as_secs().max(0) {
        s @ 0..120 => format!("{s}s"),
        s @ 120..7_200 => format!("{}m", s / 60),
        s @ 7_200..172_800 => format!("{}h", s / 3_600),
        s => format!("{}d", s / 86_400),
    }
}

fn protobuf_object(object: &Value) -> Vec<u8> {
    with_meta(object, encode::partial_object_metadata)
}

fn protobuf_list(list: &List<'_>) -> Vec<u8> {
    let parts: Vec<Parts<'_>> = list.items.iter().map(|o| Parts::of(o)).collect();
    let items: Vec<EncodeMeta<'_>> = parts.iter().map(Parts::meta).collect();
    let remaining = list.remaining.and_then(|n| i64::try_from(n).ok());
    let version = list.resource_version.to_string();
    encode::partial_object_metadata_list(&items, &version, &list.continue_token, remaining)
}

fn with_meta(object: &Value, write: impl FnOnce(&EncodeMeta<'_>) -> Vec<u8>) -> Vec<u8> {
    write(&Parts::of(object).meta())
}

/// The lists that an `EncodeMeta` borrows.
struct Parts<'a> {
    object: &'a Value,
    labels: Vec<(&'a str, &'a str)>,
    annotations: Vec<(&'a str, &'a str)>,
    owner_references: Vec<OwnerReferenceRef<'a>>,
    finalizers: Vec<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(object: &'a Value) -> Parts<'a> {
        let list = |key| object::meta(object, key).and_then(Value::as_array).into_iter().flatten();
        Parts {
            object,
            labels: pairs(object, "labels"),
            annotations: pairs(object, "annotations"),
            owner_references: list("ownerReferences").map(owner_reference).collect(),
            finalizers: list("finalizers").filter_map(Value::as_str).collect(),
        }
    }

    fn meta(&self) -> EncodeMeta<'_> {
        let object = self.object;
        EncodeMeta {
            name: object::name(object),
            namespace: object::meta_text(object, "namespace"),
            uid: object::uid(object),
            resource_version: object::resource_version(object),
            generation: object::meta_number(object, "generation").unwrap_or(0),
            creation_unix_s: unix_s(object, "creationTimestamp").unwrap_or(0),
            deletion_unix_s: unix_s(object, "deletionTimestamp"),
            deletion_grace_period_s: object::meta_number(object, "deletionGracePeriodSeconds"),
            labels: &self.labels,
            annotations: &self.annotations,
            owner_references: &self.owner_references,
            finalizers: &self.finalizers,
            ..EncodeMeta::default()
        }
    }
}

/// The metadata that a client of the simulator without sockets would have decoded.
///
/// ```
/// use gc_tests::sim::object_meta;
/// use serde_json::json;
///
/// let meta = object_meta(&json!({"metadata": {
///     "name": "a", "deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["x.y/z"],
///     "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": false}],
/// }}));
/// assert!(meta.being_deleted && meta.finalizers == ["x.y/z"]);
/// assert_eq!((meta.owner_references[0].controller, meta.owner_references[0].block_owner_deletion), (Some(false), None));
/// ```
pub fn object_meta(object: &Value) -> ObjectMeta {
    lend_meta(object, |meta| meta.to_owned())
}

/// The same, borrowed from the object for one call.
pub(crate) fn lend_meta<T>(object: &Value, call: impl FnOnce(MetaRef<'_>) -> T) -> T {
    let list = |key| object::meta(object, key).and_then(Value::as_array).into_iter().flatten();
    let finalizers: Vec<&str> = list("finalizers").filter_map(Value::as_str).collect();
    let owner_references: Vec<OwnerReferenceRef<'_>> = list("ownerReferences").map(owner_reference).collect();
    call(MetaRef {
        name: object::name(object),
        namespace: object::meta_text(object, "namespace"),
        uid: object::uid(object),
        resource_version: object::resource_version(object),
        being_deleted: object::being_deleted(object),
        finalizers: &finalizers,
        owner_references: &owner_references,
        fields: &[],
    })
}

fn pairs<'a>(object: &'a Value, key: &str) -> Vec<(&'a str, &'a str)> {
    let map = object::meta(object, key).and_then(Value::as_object);
    map.into_iter().flatten().filter_map(|(k, v)| Some((k.as_str(), v.as_str()?))).collect()
}

fn owner_reference(reference: &Value) -> OwnerReferenceRef<'_> {
    let text = |key: &str| reference.get(key).and_then(Value::as_str).unwrap_or_default();
    let flag = |key: &str| reference.get(key).and_then(Value::as_bool);
    OwnerReferenceRef {
        api_version: text("apiVersion"),
        kind: text("kind"),
        name: text("name"),
        uid: text("uid"),
        controller: flag("controller"),
        block_owner_deletion: flag("blockOwnerDeletion"),
    }
}

fn unix_s(object: &Value, key: &str) -> Option<i64> {
    object::meta_text(object, key).parse::<Timestamp>().ok().map(Timestamp::as_second)
}

fn to_status(code: u16, status: &Value) -> Status {
    let text =
        |pointer: &str| status.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_string();
    Status {
        code,
        reason: text("/reason"),
        message: text("/message"),
        name: text("/details/name"),
        kind: text("/details/kind"),
        group: text("/details/group"),
        uid: text("/details/uid"),
        is_status: true,
        retry_after: None,
    }
}
