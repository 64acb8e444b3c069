//! From a path to what is asked for, and the verbs on objects.

use serde_json::{Value, json};

use super::ApiServer;
use super::deletion::{DeleteOptions, Deleted};
use super::list;
use super::object;
use super::patch::Patch;
use super::protobuf;
use super::registry::{Actor, Part, Scope};
use super::render::{self, Form, Shape};
use super::request::{Method, Request, Response, unescape};
use super::resources::Resource;
use super::status::{self, ApiError, FieldError};
use super::watch::Watch;

/// What a path speaks of.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Health,
    Version,
    /// `/api` or `/apis`.
    Root {
        core: bool,
    },
    Group {
        group: String,
    },
    Resources {
        group: String,
        version: String,
    },
    Objects(Target),
    Unknown,
}

/// Objects of one resource; empty texts stand for what the path does not have.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub plural: String,
    pub name: String,
    pub part: String,
}

impl Route {
    pub fn parse(path: &str) -> Route {
        let parts: Vec<String> =
            path.split('/').filter(|p| !p.is_empty()).map(|p| unescape(p, false)).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match parts.as_slice() {
            ["healthz" | "livez" | "readyz", ..] => Route::Health,
            ["version"] => Route::Version,
            ["api"] => Route::Root { core: true },
            ["apis"] => Route::Root { core: false },
            ["apis", group] => Route::Group { group: (*group).into() },
            ["api", version] => Route::Resources { group: String::new(), version: (*version).into() },
            ["apis", group, version] => {
                Route::Resources { group: (*group).into(), version: (*version).into() }
            }
            ["api", version, rest @ ..] => objects("", version, rest),
            ["apis", group, version, rest @ ..] => objects(group, version, rest),
            _ => Route::Unknown,
        }
    }
}

fn objects(group: &str, version: &str, rest: &[&str]) -> Route {
    let (namespace, rest) = match rest {
        // The parts of a namespace itself are not resources inside it.
        ["namespaces", _, "status" | "finalize"] => ("", rest),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let (plural, name, part) = match rest {
        [plural] => (*plural, "", ""),
        [plural, name] => (*plural, *name, ""),
        [plural, name, part] => (*plural, *name, *part),
        _ => return Route::Unknown,
    };
    Route::Objects(Target {
        group: group.into(),
        version: version.into(),
        namespace: namespace.into(),
        plural: plural.into(),
        name: name.into(),
        part: part.into(),
    })
}

impl ApiServer {
    /// Answers a request for objects.
    pub(super) fn serve(
        &mut self,
        actor: Actor<'_>,
        request: &Request,
        target: &Target,
    ) -> Result<Response, ApiError> {
        let state = &self.registry.state;
        let Some(resource) = state.find(&target.group, &target.version, &target.plural).cloned() else {
            // A group of custom resources answers the plain 404 of an unknown path, a built-in one a Status, whatever
            // the version.
            let built_in = state.resources.iter().any(|r| !r.custom && r.group == target.group);
            return Err(if built_in { ApiError::resource_not_served() } else { ApiError::page_not_found() });
        };
        let scope_fits = if resource.namespaced {
            !target.namespace.is_empty() || target.name.is_empty()
        } else {
            target.namespace.is_empty()
        };
        if !scope_fits {
            return Err(if resource.custom {
                ApiError::page_not_found()
            } else {
                ApiError::resource_not_served()
            });
        }
        if resource.traits.read_only && (request.method != Method::Get || request.query_flag("watch")) {
            return Err(ApiError::method_not_allowed());
        }
        let part = part(&resource, target)?;
        let form = render::negotiate(&request.accept, self.switches.protobuf)?;
        let scope = Scope { resource, version: target.version.clone(), namespace: target.namespace.clone() };
        self.check_convertible(&scope, request)?;
        let dry_run = request.query("dryRun");
        check_dry_run(request.method, dry_run.as_deref())?;
        let before = dry_run.is_some().then(|| self.registry.state.clone());
        let result = match (request.method, target.name.is_empty()) {
            (Method::Get, _) => self.read(actor, request, &scope, &target.name, form),
            (Method::Post, true) if !scope.resource.namespaced || !scope.namespace.is_empty() => {
                self.create(actor, request, &scope, form)
            }
            (Method::Put, false) => self.replace(actor, request, &scope, target, part, form),
            (Method::Patch, false) => self.patch(actor, request, &scope, target, part, form),
            (Method::Delete, false) if part == Part::Main => {
                self.delete(actor, request, &scope, &target.name, form)
            }
            (Method::Delete, true) if scope.resource.verbs().contains(&"deletecollection") => {
                if scope.resource.namespaced && scope.namespace.is_empty() {
                    return Err(ApiError::method_not_allowed());
                }
                self.delete_collection(actor, request, &scope, form)
            }
            (Method::Delete, false) if part == Part::Status && scope.resource.custom => {
                Err(ApiError::not_supported(&scope.resource, "delete"))
            }
            _ => Err(ApiError::method_not_allowed()),
        };
        if let Some(before) = before {
            self.registry.state = before;
        }
        result
    }

    /// A conversion webhook that is broken spoils every read.
    fn check_convertible(&self, scope: &Scope, request: &Request) -> Result<(), ApiError> {
        if request.method != Method::Get
            || !self.switches.broken_resources.contains(&scope.resource.qualified())
        {
            return Ok(());
        }
        if request.query_flag("watch") {
            let mut error = ApiError::status(
                429,
                "TooManyRequests",
                "storage is (re)initializing",
                json!({"retryAfterSeconds": 1}),
            );
            error.retry_after_s = Some(1);
            return Err(error);
        }
        let resource = &scope.resource;
        let message = format!(
            "conversion webhook for {}, Kind={} failed: the webhook's service is not found",
            resource.stored_api_version(),
            resource.kind
        );
        Err(ApiError::status(500, "", &message, Value::Null))
    }

    fn read(
        &mut self,
        actor: Actor<'_>,
        request: &Request,
        scope: &Scope,
        name: &str,
        form: Form,
    ) -> Result<Response, ApiError> {
        // One object cannot be watched by its path: that is an ordinary read.
        if request.query_flag("watch") && name.is_empty() {
            return self.watch(actor, request, scope, form);
        }
        let state = &self.registry.state;
        let cached = match self.switches.cache_at {
            Some(version) if request.query("resourceVersion").is_some_and(|asked| asked == "0") => {
                state.at_version(&scope.resource, version).map(|objects| (version, objects))
            }
            _ => None,
        };
        if name.is_empty() {
            return list::list(state, cached, scope, request, form, actor.now);
        }
        let key = scope.key(name);
        let object = match &cached {
            Some((_, objects)) => objects.get(&key),
            None => state.get(&scope.resource, &key),
        };
        let object = object.ok_or_else(|| ApiError::not_found(&scope.resource, name))?;
        form.object(200, &scope.resource, &scope.version, object, actor.now)
    }

    fn watch(
        &mut self,
        actor: Actor<'_>,
        request: &Request,
        scope: &Scope,
        form: Form,
    ) -> Result<Response, ApiError> {
        if request.query("sendInitialEvents").is_some() && !self.switches.streaming_lists {
            let detail =
                "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
            let error = FieldError::forbidden("sendInitialEvents", detail);
            return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &[error]));
        }
        if form.shape == Shape::PartialList {
            let message = "you requested PartialObjectMetadataList, but the requested object is not a list";
            return Err(ApiError::not_acceptable(message));
        }
        let watch =
            Watch::open(&self.registry.state, scope, request, form, self.switches.bookmark_every, actor.now)?;
        self.open_watch(watch)
    }

    fn create(
        &mut self,
        actor: Actor<'_>,
        request: &Request,
        scope: &Scope,
        form: Form,
    ) -> Result<Response, ApiError> {
        let object = decode(scope, request)?;
        let created = self.registry.create(actor, scope, object)?;
        form.object(201, &scope.resource, &scope.version, &created, actor.now)
    }

    fn replace(
        &mut self,
        actor: Actor<'_>,
        request: &Request,
        scope: &Scope,
        target: &Target,
        part: Part,
        form: Form,
    ) -> Result<Response, ApiError> {
        let object = decode(scope, request)?;
        let name = target.name.as_str();
        if object::name(&object) != name {
            let given = object::name(&object);
            let message =
                format!("the name of the object ({given}) does not match the name on the URL ({name})");
            return Err(ApiError::bad_request(&message));
        }
        let absent = self.registry.state.get(&scope.resource, &scope.key(name)).is_none();
        if absent && scope.resource.traits.create_on_update && part == Part::Main {
            let created = self.registry.create(actor, scope, object)?;
            return form.object(201, &scope.resource, &scope.version, &created, actor.now);
        }
        let uid = object::uid(&object).to_string();
        let updated = self.registry.update(actor, scope, name, part, &uid, &|_| Ok(object.clone()))?;
        form.object(200, &scope.resource, &scope.version, &updated, actor.now)
    }

    fn patch(
        &mut self,
        actor: Actor<'_>,
        request: &Request,
        scope: &Scope,
        target: &Target,
        part: Part,
        form: Form,
    ) -> Result<Response, ApiError> {
        let resource = &scope.resource;
        let patch = Patch::parse(resource, &request.content_type, &request.body)?;
        let change = |old: &Value| {
            let shown = render::full(resource, &scope.version, old);
            Ok(render::to_stored(resource, patch.apply(&shown)?))
        };
        let updated = self.registry.update(actor, scope, &target.name, part, "", &change)?;
        form.object(200, resource, &scope.version, &updated, actor.now)
    }

    fn delete(
        &mut self,
        actor: Actor<'_>,
        request: &Request,
        scope: &Scope,
        name: &str,
        form: Form,
    ) -> Result<Response, ApiError> {
        let options = DeleteOptions::parse(request)?;
        let resource = &*scope.resource;
        let before = options.dry_run.then(|| self.registry.state.clone());
        let deleted = self.registry.delete(actor, scope, name, &options);
        if let Some(before) = before {
            self.registry.state = before;
        }
        match deleted? {
            Deleted::Gone(last) if resource.traits.returns_deleted => {
                form.object(200, resource, &scope.version, &last, actor.now)
            }
            Deleted::Gone(last) => Ok(form.status(200, &status::deleted(resource, name, object::uid(&last)))),
            Deleted::Waiting(object) => {
                let code = if options.orphan_dependents == Some(false) { 202 } else { 200 };
                form.object(code, resource, &scope.version, &object, actor.now)
            }
        }
    }

    fn delete_collection(
        &mut self,
        actor: Actor<'_>,
        request: &Request,
        scope: &Scope,
        form: Form,
    ) -> Result<Response, ApiError> {
        let options = DeleteOptions::parse(request)?;
        // The list is answered as it was before; it says which objects are meant.
        let mut listed = list::list(&self.registry.state, None, scope, request, form, actor.now)?;
        let full = Form { protobuf: false, shape: Shape::Full };
        let page = list::list(&self.registry.state, None, scope, request, full, actor.now)?.value();
        if form.shape == Shape::PartialList && !form.protobuf && page["items"] == json!([]) {
            // Go's empty list that was never filled.
            let mut value = listed.value();
            value["items"] = Value::Null;
            listed = Response::json(200, &value);
        }
        for item in page.get("items").and_then(Value::as_array).into_iter().flatten() {
            match self.registry.delete(actor, scope, object::name(item), &options) {
                Ok(_) => {}
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(listed)
    }
}

/// `All` is the only way not to run; the part of each kind of options that `ValidateDryRun` of apimachinery is.
pub(super) fn check_dry_run(method: Method, wanted: Option<&str>) -> Result<(), ApiError> {
    let Some(odd) = wanted.filter(|wanted| *wanted != "All") else { return Ok(()) };
    let kind = match method {
        Method::Get => return Ok(()),
        Method::Post => "CreateOptions",
        Method::Put => "UpdateOptions",
        Method::Patch => "PatchOptions",
        Method::Delete => "DeleteOptions",
    };
    let error = FieldError::not_supported_text("dryRun", &format!("[{odd:?}]"), &["All"]);
    Err(ApiError::invalid("meta.k8s.io", kind, "", &[error]))
}

fn part(resource: &Resource, target: &Target) -> Result<Part, ApiError> {
    match target.part.as_str() {
        "" => Ok(Part::Main),
        "status" if resource.traits.status => Ok(Part::Status),
        "finalize" if resource.plural == "namespaces" && !resource.custom => Ok(Part::Finalize),
        // The real server says this of a part that is not there, although the object itself may be.
        _ if resource.custom => Err(ApiError::not_found(resource, &target.name)),
        _ => Err(ApiError::resource_not_served()),
    }
}

/// Reads the object of a POST or PUT and checks that it is one of this resource.
fn decode(scope: &Scope, request: &Request) -> Result<Value, ApiError> {
    let resource = &*scope.resource;
    let unrecognized = |why: &str| {
        let message =
            format!("the object provided is unrecognized (must be of type {}): {why}", resource.kind);
        ApiError::bad_request(&message)
    };
    let media_type = request.content_type.split(';').next().unwrap_or_default().trim();
    let mut object: Value = match media_type {
        "" | "application/json" => serde_json::from_slice(&request.body)
            .map_err(|e| unrecognized(&format!("couldn't get version/kind; json parse error: {e}")))?,
        "application/vnd.kubernetes.protobuf" if !resource.custom => {
            protobuf::decode_object(&request.body)
                .ok_or_else(|| unrecognized("provided data does not appear to be a protobuf message"))?
        }
        _ => {
            let message = "the body of the request was in an unknown format - accepted media types include: \
                           application/json, application/yaml, application/vnd.kubernetes.protobuf";
            return Err(ApiError::status(415, "UnsupportedMediaType", message, Value::Null));
        }
    };
    if !object.is_object() {
        return Err(unrecognized("couldn't get version/kind; json parse error: json: cannot unmarshal"));
    }
    check_type(scope, &object).map_err(|problem| match problem {
        TypeProblem::Missing => unrecognized("Object 'Kind' is missing"),
        TypeProblem::Other(error) => error,
    })?;
    object::tidy(&mut object);
    Ok(render::to_stored(resource, object))
}

enum TypeProblem {
    Missing,
    Other(ApiError),
}

/// Built-in objects may leave `apiVersion` and `kind` out; custom ones may not.
fn check_type(scope: &Scope, object: &Value) -> Result<(), TypeProblem> {
    let resource = &*scope.resource;
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let expected = resource.api_version(&scope.version);
    if resource.custom {
        if kind.is_empty() || api_version.is_empty() {
            return Err(TypeProblem::Missing);
        }
        if api_version != expected {
            let message = format!(
                "the API version in the data ({api_version}) does not match the expected API version ({expected})"
            );
            return Err(TypeProblem::Other(ApiError::bad_request(&message)));
        }
        if kind != resource.kind {
            let detail = format!("must be {}", resource.kind);
            let error = FieldError::invalid("kind", &kind.into(), &detail);
            let name = object::name(object);
            return Err(TypeProblem::Other(ApiError::invalid(&resource.group, kind, name, &[error])));
        }
        return Ok(());
    }
    let other_kind = !kind.is_empty() && kind != resource.kind;
    let other_version = !api_version.is_empty() && api_version != expected;
    if other_kind || other_version {
        let version = if api_version.is_empty() { expected.as_str() } else { api_version };
        let message = format!("{kind} in version {version:?} cannot be handled as a {}", resource.kind);
        return Err(TypeProblem::Other(ApiError::bad_request(&message)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let objects = |path| match Route::parse(path) {
            Route::Objects(t) => {
                format!("{}|{}|{}|{}|{}|{}", t.group, t.version, t.namespace, t.plural, t.name, t.part)
            }
            other => format!("{other:?}"),
        };
        assert_eq!(objects("/api/v1/namespaces"), "|v1||namespaces||");
        assert_eq!(objects("/api/v1/namespaces/a"), "|v1||namespaces|a|");
        assert_eq!(objects("/api/v1/namespaces/a/finalize"), "|v1||namespaces|a|finalize");
        assert_eq!(objects("/api/v1/namespaces/a/pods/b/status"), "|v1|a|pods|b|status");
        assert_eq!(objects("/apis/g.io/v1/namespaces/a/things/%2E%2E%2Fx"), "g.io|v1|a|things|../x|");
        assert_eq!(objects("/apis/g.io/v1"), "Resources { group: \"g.io\", version: \"v1\" }");
        assert_eq!(objects("/what"), "Unknown");
    }
}
