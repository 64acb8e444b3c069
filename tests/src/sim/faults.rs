//! Faults on purpose: rules that answer in place of the server, cut connections, delay and truncate.

use std::time::Duration;

use serde_json::{Value, json};

use super::request::{Method, Request, Response};
use super::route::{Route, Target};
use super::status::ApiError;

/// When a rule applies, and what it does.
///
/// The first rule that matches is used. An empty `path` or `user_agent` matches everything.
#[derive(Clone, Debug)]
pub struct FaultRule {
    /// Only requests with this method.
    pub method: Option<Method>,
    /// A pattern for the path, where `*` stands for any text; when it contains `?`, for path and query.
    pub path: String,
    /// Only requests whose `User-Agent` contains this.
    pub user_agent: String,
    /// How many matching requests pass before the rule applies.
    pub skip: u32,
    /// How many requests the rule applies to after that; none for all.
    pub count: Option<u32>,
    /// What happens.
    pub effect: Effect,
}

/// What a rule does to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Answers with a `Status`; nothing is carried out.
    Status {
        /// The HTTP status code.
        code: u16,
        /// For example `TooManyRequests`.
        reason: String,
        /// The message.
        message: String,
        /// The header `Retry-After`.
        retry_after_s: Option<u32>,
    },
    /// Answers `404 page not found` in plain text, as for a path that is not served; nothing is carried out.
    PlainNotFound,
    /// Answers 404 with a `Status` that names the object, as if it did not exist (kubernetes/kubernetes#98471);
    /// nothing is carried out.
    NotFound,
    /// Cuts the connection; nothing is carried out.
    CutBefore,
    /// Carries the request out, then cuts the connection instead of answering.
    CutAfter,
    /// Holds the answer back; the request is carried out at once.
    Delay(Duration),
    /// Cuts the connection after so many bytes of the body.
    Truncate(usize),
}

impl FaultRule {
    /// A rule for every request to a path, until it is removed.
    pub fn new(path: &str, effect: Effect) -> FaultRule {
        FaultRule { method: None, path: path.into(), user_agent: String::new(), skip: 0, count: None, effect }
    }

    /// The same for one method only.
    pub fn for_method(mut self, method: Method) -> FaultRule {
        self.method = Some(method);
        self
    }

    /// The same for a number of requests only.
    pub fn times(mut self, count: u32) -> FaultRule {
        self.count = Some(count);
        self
    }

    /// Whether it applies to this request; counts it if so.
    pub(crate) fn takes(&mut self, request: &Request) -> bool {
        let subject = if self.path.contains('?') { request.target.as_str() } else { request.path() };
        let fits = self.method.is_none_or(|m| m == request.method)
            && (self.path.is_empty() || glob(self.path.as_bytes(), subject.as_bytes()))
            && request.user_agent.contains(&self.user_agent)
            && self.count != Some(0);
        if !fits {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if let Some(count) = &mut self.count {
            *count -= 1;
        }
        true
    }
}

impl Effect {
    /// The answer in place of the server's; none when the server acts.
    pub(crate) fn instead(&self, request: &Request) -> Option<Response> {
        match self {
            Effect::Status { code, reason, message, retry_after_s } => {
                let mut error = ApiError::status(*code, reason, message, Value::Null);
                error.retry_after_s = *retry_after_s;
                Some(error.into_response())
            }
            Effect::PlainNotFound => Some(ApiError::page_not_found().into_response()),
            Effect::NotFound => Some(not_found(request).into_response()),
            Effect::CutBefore => Some(Response::cut()),
            Effect::CutAfter | Effect::Delay(_) | Effect::Truncate(_) => None,
        }
    }

    /// What becomes of the server's own answer.
    pub(crate) fn afterwards(&self, mut response: Response) -> Response {
        match self {
            Effect::CutAfter => return Response::cut(),
            Effect::Delay(delay) => response.delay = *delay,
            Effect::Truncate(after_bytes) => response.truncate_after_bytes = Some(*after_bytes),
            Effect::Status { .. } | Effect::PlainNotFound | Effect::NotFound | Effect::CutBefore => {}
        }
        response
    }
}

fn not_found(request: &Request) -> ApiError {
    let Route::Objects(Target { group, plural, name, .. }) = Route::parse(request.path()) else {
        return ApiError::page_not_found();
    };
    let mut details = json!({"name": name, "kind": plural});
    let mut qualified = plural;
    if !group.is_empty() {
        qualified = format!("{qualified}.{group}");
        details["group"] = group.into();
    }
    ApiError::status(404, "NotFound", &format!("{qualified} {name:?} not found"), details)
}

/// `*` stands for any text. Goes back to the last star only, so its time is bounded by the product of the lengths.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p) == text.get(t) {
            p += 1;
            t += 1;
        } else if let Some((star_p, star_t)) = star {
            p = star_p + 1;
            t = star_t + 1;
            star = Some((star_p, star_t + 1));
        } else {
            return false;
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|b| *b == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (pattern, text) in
            [("/a/*", "/a/b/c"), ("*", ""), ("/a", "/a"), ("*/c", "/a/b/c"), ("/*/b/*", "/a/b/c")]
        {
            assert!(glob(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in [("/a", "/ab"), ("/a/*/d", "/a/b/c"), ("", "/")] {
            assert!(!glob(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }

    #[test]
    fn an_object_that_is_said_not_to_exist_is_named() {
        let details = |path| {
            let response = Effect::NotFound.instead(&Request::get(path)).unwrap();
            (response.code, response.value()["details"].to_string())
        };
        let named = r#"{"group":"apps","kind":"replicasets","name":"a"}"#;
        assert_eq!(details("/apis/apps/v1/namespaces/ns/replicasets/a"), (404, named.into()));
        assert_eq!(details("/api/v1/nodes/a"), (404, r#"{"kind":"nodes","name":"a"}"#.into()));
    }

    #[test]
    fn a_rule_skips_and_counts() {
        let mut rule = FaultRule::new("/x", Effect::CutBefore).times(2);
        rule.skip = 1;
        let request = Request::get("/x?y=z");
        let taken: Vec<bool> = (0..5).map(|_| rule.takes(&request)).collect();
        assert_eq!(taken, [false, true, true, false, false]);
    }
}
