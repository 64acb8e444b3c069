//! Lists: pages, continue tokens, and lists of the past.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::registry::Scope;
use super::render::{Form, List};
use super::request::{Request, Response};
use super::select::Selector;
use super::status::{ApiError, ErrorBody, FieldError};
use super::store::{State, in_namespace};

/// What a list asks for, apart from the selectors.
struct ListOptions {
    limit: usize,
    continue_token: Option<Token>,
    /// The state of exactly this resourceVersion; none for the present one.
    exactly: Option<u64>,
}

/// Where a paged list goes on.
struct Token {
    /// The state that all pages show; none goes on with the present state, which is no longer consistent.
    resource_version: Option<u64>,
    /// The first key of the next page is above this one.
    after: String,
}

/// Answers a list; from `cached`, a version and what there was then, where the watch cache is behind and may answer.
pub(crate) fn list(
    state: &State,
    cached: Option<(u64, BTreeMap<String, Arc<Value>>)>,
    scope: &Scope,
    request: &Request,
    form: Form,
    now: Timestamp,
) -> Result<Response, ApiError> {
    let resource = &*scope.resource;
    let selector = Selector::parse(resource, request)?;
    let options = ListOptions::parse(request, state.resource_version)?;
    let exactly = options.continue_token.as_ref().map_or(options.exactly, |t| t.resource_version);
    let past = match (exactly, cached) {
        (Some(version), _) => Some((version, past(state, scope, version, options.continue_token.as_ref())?)),
        (None, cached) => cached,
    };
    let empty = BTreeMap::new();
    let present = state.stores.get(&resource.store).map_or(&empty, |s| &s.objects);
    let objects = past.as_ref().map_or(present, |(_, objects)| objects);
    let after = options.continue_token.as_ref().map_or("", |t| t.after.as_str());
    let wanted: Vec<(&String, &Arc<Value>)> = objects
        .iter()
        .filter(|(key, object)| {
            key.as_str() > after && in_namespace(key, &scope.namespace) && selector.matches(object)
        })
        .collect();
    let resource_version = past.as_ref().map_or(state.resource_version, |(version, _)| *version);
    let take = if options.limit == 0 { wanted.len() } else { options.limit.min(wanted.len()) };
    let more = wanted.len() - take;
    let page = wanted.get(..take).unwrap_or_default();
    let continue_token = match page.last() {
        Some((last, _)) if more > 0 => token(resource_version, last),
        _ => String::new(),
    };
    let page = List {
        resource,
        version: &scope.version,
        items: page.iter().map(|(_, object)| &***object).collect(),
        resource_version,
        continue_token,
        remaining: (more > 0 && selector.is_empty()).then_some(more),
    };
    form.list(&page, now)
}

/// The state of an earlier resourceVersion, or why it cannot be had any more.
fn past(
    state: &State,
    scope: &Scope,
    version: u64,
    continue_token: Option<&Token>,
) -> Result<BTreeMap<String, Arc<Value>>, ApiError> {
    if version > state.resource_version {
        return Err(ApiError::too_large_resource_version(version, state.resource_version));
    }
    if let Some(objects) = state.at_version(&scope.resource, version) {
        return Ok(objects);
    }
    let Some(token) = continue_token else {
        return Err(ApiError::expired("The resourceVersion for the provided list is too old."));
    };
    let mut error = ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    if let ErrorBody::Status(status) = &mut error.body {
        status["metadata"] = json!({"continue": inconsistent_token(&token.after)});
    }
    Err(error)
}

impl ListOptions {
    fn parse(request: &Request, current: u64) -> Result<ListOptions, ApiError> {
        let version_text = request.query("resourceVersion").unwrap_or_default();
        let version_match = request.query("resourceVersionMatch").unwrap_or_default();
        let continue_text = request.query("continue").unwrap_or_default();
        check_match(&version_text, &version_match, &continue_text, request)?;
        let version = parse_version(&version_text)
            .map_err(|why| ApiError::bad_request(&format!("invalid resource version: {why}")))?;
        let mut limit = parse_limit(&request.query("limit").unwrap_or_default())?;
        // The watch cache answers resourceVersion=0 and takes no notice of a limit.
        if version_text == "0" {
            limit = 0;
        }
        if continue_text.is_empty() {
            let exact = version_match == "Exact" || version_match.is_empty() && limit > 0;
            if version > current {
                return Err(ApiError::too_large_resource_version(version, current));
            }
            let exactly = (version > 0 && exact).then_some(version);
            return Ok(ListOptions { limit, continue_token: None, exactly });
        }
        if version > 0 {
            let message = "specifying resource version is not allowed when using continue";
            return Err(ApiError::bad_request(message));
        }
        let token = parse_token(&continue_text).map_err(|why| {
            ApiError::bad_request(&format!("invalid continue token: continue key is not valid: {why}"))
        })?;
        Ok(ListOptions { limit, continue_token: Some(token), exactly: None })
    }
}

/// `ValidateListOptions` of apimachinery.
fn check_match(version: &str, version_match: &str, token: &str, request: &Request) -> Result<(), ApiError> {
    let field = "resourceVersionMatch";
    let mut errors = Vec::new();
    if !version_match.is_empty() {
        if version.is_empty() {
            let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(FieldError::forbidden(field, detail));
        }
        if !token.is_empty() {
            let detail = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden(field, detail));
        }
        if version_match != "Exact" && version_match != "NotOlderThan" {
            errors.push(FieldError::not_supported(field, version_match, &["Exact", "NotOlderThan", ""]));
        }
        if version_match == "Exact" && version == "0" {
            let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(FieldError::forbidden(field, detail));
        }
    }
    if request.query("sendInitialEvents").is_some() {
        errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors))
}

/// A resourceVersion; 0 when empty.
pub(crate) fn parse_version(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        )
    })
}

/// A limit; 0 when empty, and nothing below 0 is a limit.
fn parse_limit(text: &str) -> Result<usize, ApiError> {
    if text.is_empty() {
        return Ok(0);
    }
    let limit = text
        .parse::<i64>()
        .map_err(|_| ApiError::bad_request(&format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))?;
    Ok(usize::try_from(limit).unwrap_or(0))
}

/// As Go's `RawURLEncoding`, which takes no notice of what the last letter says too much.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::RequireNone),
);

/// The tokens of apiserver's `pkg/storage/continue.go`.
fn token(resource_version: u64, after: &str) -> String {
    encoded(&json!(resource_version), after)
}

fn inconsistent_token(after: &str) -> String {
    encoded(&json!(-1), after)
}

fn encoded(version: &Value, after: &str) -> String {
    let token = json!({"v": "meta.k8s.io/v1", "rv": version, "start": format!("{after}\0")});
    BASE64.encode(token.to_string())
}

fn parse_token(text: &str) -> Result<Token, String> {
    let bytes = BASE64.decode(text).map_err(|_| "illegal base64 data".to_string())?;
    let token: Value = serde_json::from_slice(&bytes).map_err(|_| match bytes.first() {
        Some(first) => format!("invalid character '{}' looking for beginning of value", char::from(*first)),
        None => "unexpected end of JSON input".into(),
    })?;
    let version = token["v"].as_str().unwrap_or_default();
    if version != "meta.k8s.io/v1" {
        return Err(format!("server does not recognize this encoded version {version}"));
    }
    let start = token["start"].as_str().unwrap_or_default();
    let after = start.strip_suffix('\0').ok_or("encoded start key is empty, which is not valid")?;
    Ok(Token { resource_version: token["rv"].as_u64(), after: after.into() })
}
