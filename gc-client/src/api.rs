//! The few calls on objects that garbage collection makes.

use serde_json::json;

use crate::http::{Client, Method, Request, Response};
use crate::meta::escape_into;
use crate::wire::{self, Format};
use crate::{ApiResource, Error, Field, Fields, ObjectMeta};

/// Metadata in protobuf, then in JSON, then whatever object there is: the server picks the first that it can write.
const ACCEPT_METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                               application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

const ACCEPT_JSON: &str = "application/json";

/// What happens to the dependents of an object that is deleted (`metav1.DeletionPropagation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Propagation {
    /// The object goes at once, its dependents after it.
    Background,
    /// The dependents that block go first.
    Foreground,
    /// The dependents stay and lose their reference.
    Orphan,
}

impl Propagation {
    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
        }
    }
}

/// How an object is deleted. Both preconditions are always sent (spec D11): the server then refuses with 409 when the
/// object is another one or has changed since the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeleteOptions<'a> {
    /// The UID of the object that the decision was about.
    pub uid: &'a str,
    /// The version of the object that the decision was made on.
    pub resource_version: &'a str,
    /// What happens to its dependents.
    pub propagation_policy: Propagation,
}

/// How the body of a patch is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// `application/strategic-merge-patch+json`; custom resources answer it with 415.
    StrategicMerge,
    /// `application/merge-patch+json` (RFC 7386).
    JsonMerge,
}

impl PatchType {
    fn content_type(self) -> &'static str {
        match self {
            PatchType::StrategicMerge => "application/strategic-merge-patch+json",
            PatchType::JsonMerge => "application/merge-patch+json",
        }
    }
}

/// What [`Client::read_fields`] gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectFields {
    /// The object's metadata.
    pub meta: ObjectMeta,
    /// The fields, in the order of their paths.
    pub values: Vec<Field>,
    /// The server's own time when it answered, in Unix milliseconds and to the second, where the answer has it.
    pub server_time_ms: Option<i64>,
}

impl Client {
    /// Reads one object's metadata.
    ///
    /// # Errors
    ///
    /// As [`Client::send_ok`]; [`Error::Decode`] for an answer that is no object, or another one than was asked for;
    /// [`Error::Invalid`] for a name that cannot be in a path (empty, `.`, `..`, or with `/` or `%`), as client-go
    /// refuses it.
    pub fn read(&self, resource: &ApiResource, namespace: &str, name: &str) -> Result<ObjectMeta, Error> {
        let path = object_path(Method::Get, resource, namespace, name)?;
        let request = Request::get(&path, ACCEPT_METADATA);
        decode(&request, &self.send_ok(&request)?, namespace, name)
    }

    /// Reads one object's metadata and some of its fields, which come in the order of their paths.
    ///
    /// # Errors
    ///
    /// As [`Client::read`]; an answer that is metadata only, or not in JSON, is [`Error::Decode`].
    pub fn read_fields(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
        fields: &Fields,
    ) -> Result<ObjectFields, Error> {
        let path = object_path(Method::Get, resource, namespace, name)?;
        let request = Request::get(&path, ACCEPT_JSON);
        let response = self.send_ok(&request)?;
        let format = format_of(&request, &response)?;
        let (meta, values) = wire::read_object_fields(format, response.body.as_slice(), fields)
            .map_err(|cause| undecodable(&request, cause.to_string()))?;
        let server_time_ms = jiff::fmt::rfc2822::parse(&response.date).ok();
        let server_time_ms = server_time_ms.map(|time| time.timestamp().as_millisecond());
        Ok(ObjectFields { meta: expected(&request, meta, namespace, name)?, values, server_time_ms })
    }

    /// Changes a part of one object, and gives its metadata as it is then.
    ///
    /// # Errors
    ///
    /// As [`Client::read`].
    pub fn patch(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
        patch_type: PatchType,
        body: &[u8],
    ) -> Result<ObjectMeta, Error> {
        let mut path = object_path(Method::Patch, resource, namespace, name)?;
        if !self.options().field_manager.is_empty() {
            path.push_str("?fieldManager=");
            escape_into(&mut path, &self.options().field_manager);
        }
        let request = Request {
            method: Method::Patch,
            path: &path,
            accept: ACCEPT_METADATA,
            content_type: patch_type.content_type(),
            body,
        };
        decode(&request, &self.send_ok(&request)?, namespace, name)
    }

    /// Deletes one object, if it is still the one and the version that the options name.
    ///
    /// # Errors
    ///
    /// As [`Client::read`]; a precondition that fails is [`Error::Status`] with code 409. Without a UID or a version
    /// the request is not sent: [`Error::Invalid`].
    pub fn delete(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions<'_>,
    ) -> Result<(), Error> {
        let path = object_path(Method::Delete, resource, namespace, name)?;
        if options.uid.is_empty() || options.resource_version.is_empty() {
            let cause = "a delete needs the UID and the resourceVersion of what was decided upon".to_owned();
            return Err(Error::Invalid { request: format!("{} {path}", Method::Delete), cause });
        }
        let body = json!({
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": options.propagation_policy.as_str(),
            "preconditions": { "uid": options.uid, "resourceVersion": options.resource_version },
        })
        .to_string();
        // The answer (a Status, or the object when it stays for a while) is asked for as metadata, since it is thrown
        // away.
        self.send_ok(&Request {
            method: Method::Delete,
            path: &path,
            accept: ACCEPT_METADATA,
            content_type: ACCEPT_JSON,
            body: body.as_bytes(),
        })?;
        Ok(())
    }

    /// Creates an event, of `v1` or (by its `apiVersion`) of `events.k8s.io/v1`.
    ///
    /// # Errors
    ///
    /// As [`Client::send_ok`].
    pub fn create_event(&self, namespace: &str, event: &serde_json::Value) -> Result<(), Error> {
        let prefix = match event.get("apiVersion").and_then(serde_json::Value::as_str) {
            Some("events.k8s.io/v1") => "/apis/events.k8s.io/v1/namespaces/",
            _ => "/api/v1/namespaces/",
        };
        let mut path = prefix.to_owned();
        check_segment(Method::Post, prefix, namespace)?;
        escape_into(&mut path, namespace);
        path.push_str("/events");
        let body = event.to_string();
        self.send_ok(&Request {
            method: Method::Post,
            path: &path,
            accept: ACCEPT_METADATA,
            content_type: ACCEPT_JSON,
            body: body.as_bytes(),
        })?;
        Ok(())
    }

    /// The server's version, for example `v1.36.3`.
    ///
    /// # Errors
    ///
    /// As [`Client::send_ok`]; [`Error::Decode`] when the answer has no `gitVersion`.
    pub fn server_version(&self) -> Result<String, Error> {
        let request = Request::get("/version", ACCEPT_JSON);
        let response = self.send_ok(&request)?;
        let parsed = serde_json::from_slice::<serde_json::Value>(&response.body).ok();
        let version = parsed.as_ref().and_then(|v| v.get("gitVersion")).and_then(serde_json::Value::as_str);
        version.map(str::to_owned).ok_or_else(|| Error::Decode {
            request: request.label(),
            cause: format!(
                "expected JSON with gitVersion, got {} bytes of {:?}",
                response.body.len(),
                response.content_type
            ),
        })
    }
}

fn object_path(method: Method, resource: &ApiResource, namespace: &str, name: &str) -> Result<String, Error> {
    let collection = resource.path(namespace, "");
    check_segment(method, &collection, name)?;
    if resource.namespaced {
        check_segment(method, &collection, namespace)?;
    }
    Ok(resource.path(namespace, name))
}

/// A segment that is empty would name the whole collection (a DELETE of which deletes everything in it); one with a
/// slash, even escaped, another object or a sub-resource, since servers split paths after they unescape them.
/// The same rule as apimachinery's `IsValidPathSegmentName`.
fn check_segment(method: Method, collection: &str, segment: &str) -> Result<(), Error> {
    if matches!(segment, "" | "." | "..") || segment.contains(['/', '%']) {
        let cause = format!("{segment:?} cannot be the name of an object or a namespace");
        return Err(Error::Invalid { request: format!("{method} {collection}"), cause });
    }
    Ok(())
}

fn decode(
    request: &Request<'_>,
    response: &Response,
    namespace: &str,
    name: &str,
) -> Result<ObjectMeta, Error> {
    let format = format_of(request, response)?;
    let meta = wire::read_object(format, response.body.as_slice())
        .map_err(|cause| undecodable(request, cause.to_string()))?;
    expected(request, meta, namespace, name)
}

fn undecodable(request: &Request<'_>, cause: String) -> Error {
    Error::Decode { request: request.label(), cause }
}

fn format_of(request: &Request<'_>, response: &Response) -> Result<Format, Error> {
    Format::from_content_type(&response.content_type).ok_or_else(|| {
        let found = &response.content_type;
        undecodable(
            request,
            format!("expected an object in protobuf or JSON, got the content type {found:?}"),
        )
    })
}

/// What was asked for, or an error: any JSON document reads as an object without a name and without a UID (a proxy's
/// login page, say), and to the caller another UID means that the object is gone.
fn expected(
    request: &Request<'_>,
    meta: ObjectMeta,
    namespace: &str,
    name: &str,
) -> Result<ObjectMeta, Error> {
    let is_elsewhere = !meta.namespace.is_empty() && meta.namespace != namespace;
    if meta.name != name || meta.uid.is_empty() || is_elsewhere {
        let ObjectMeta { name, namespace, uid, .. } = meta;
        let cause = format!(
            "the answer is not the object that was asked for, but one with name {name:.100?}, namespace \
             {namespace:.100?} and UID {uid:.100?}"
        );
        return Err(undecodable(request, cause));
    }
    Ok(meta)
}
