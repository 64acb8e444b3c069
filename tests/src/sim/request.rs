//! What goes in and what comes out: a request and a response without a socket.

use std::time::Duration;

use serde_json::Value;

/// The verbs of HTTP that an API server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// Read, list, watch.
    Get,
    /// Create.
    Post,
    /// Replace.
    Put,
    /// Change a part.
    Patch,
    /// Delete one object or a collection.
    Delete,
}

impl Method {
    /// The name on the wire, `GET` for example.
    pub fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        }
    }

    /// The method of that name; none for a name that no API server answers.
    pub fn parse(name: &str) -> Option<Method> {
        [Method::Get, Method::Post, Method::Put, Method::Patch, Method::Delete]
            .into_iter()
            .find(|m| m.name() == name)
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The verb.
    pub method: Method,
    /// Path and query, starting with `/`, escaped as on the wire.
    pub target: String,
    /// The header `Accept`; empty accepts JSON.
    pub accept: String,
    /// The header `Content-Type` of the body; empty means JSON.
    pub content_type: String,
    /// The header `User-Agent`: who did it, in the write history and in the fault rules.
    pub user_agent: String,
    /// The body; empty for none.
    pub body: Vec<u8>,
}

impl Request {
    /// A request without a body.
    pub fn new(method: Method, target: &str) -> Request {
        Request {
            method,
            target: target.into(),
            accept: String::new(),
            content_type: String::new(),
            user_agent: "gc-tests".into(),
            body: Vec::new(),
        }
    }

    /// Reads, lists or watches.
    pub fn get(target: &str) -> Request {
        Request::new(Method::Get, target)
    }

    /// Deletes, with `DeleteOptions` in the query or added with [`Request::json`].
    pub fn delete(target: &str) -> Request {
        Request::new(Method::Delete, target)
    }

    /// Creates.
    pub fn post(target: &str, body: &Value) -> Request {
        Request::new(Method::Post, target).json(body)
    }

    /// Replaces.
    pub fn put(target: &str, body: &Value) -> Request {
        Request::new(Method::Put, target).json(body)
    }

    /// A JSON merge patch.
    pub fn merge_patch(target: &str, body: &Value) -> Request {
        let mut request = Request::new(Method::Patch, target).json(body);
        request.content_type = "application/merge-patch+json".into();
        request
    }

    /// A strategic merge patch.
    pub fn strategic_patch(target: &str, body: &Value) -> Request {
        let mut request = Request::new(Method::Patch, target).json(body);
        request.content_type = "application/strategic-merge-patch+json".into();
        request
    }

    /// The same with a JSON body.
    pub fn json(mut self, body: &Value) -> Request {
        self.content_type = "application/json".into();
        self.body = body.to_string().into_bytes();
        self
    }

    /// The same with another `Accept`.
    pub fn accepting(mut self, accept: &str) -> Request {
        self.accept = accept.into();
        self
    }

    /// The same from somebody else.
    pub fn from_agent(mut self, user_agent: &str) -> Request {
        self.user_agent = user_agent.into();
        self
    }

    /// The path without the query, still escaped.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The query's value for a key, unescaped; the first when there are several.
    pub fn query(&self, key: &str) -> Option<String> {
        let (_, query) = self.target.split_once('?')?;
        query.split('&').find_map(|pair| {
            let (k, v) = pair.split_once('=').unwrap_or((pair, ""));
            (unescape(k, true) == key).then(|| unescape(v, true))
        })
    }

    /// Whether the query says yes to a key: present, and neither `false` nor `0`.
    pub fn query_flag(&self, key: &str) -> bool {
        self.query(key).is_some_and(|v| v != "false" && v != "0")
    }
}

/// Undoes percent-escapes; `+` means a space in queries only. A broken escape stays as it is.
pub(crate) fn unescape(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while let Some(&byte) = bytes.get(i) {
        let hex = bytes.get(i + 1..i + 3).and_then(|h| std::str::from_utf8(h).ok());
        match (byte, hex.and_then(|h| u8::from_str_radix(h, 16).ok())) {
            (b'%', Some(decoded)) => {
                out.push(decoded);
                i += 2;
            }
            (b'+', _) if plus_is_space => out.push(b' '),
            _ => out.push(byte),
        }
        i += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A watch that is open; give it to [`ApiServer::poll_watch`](super::ApiServer::poll_watch).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatchId(pub(crate) u64);

/// What follows the head of a response.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// A complete body.
    Bytes(Vec<u8>),
    /// An open watch.
    Watch(WatchId),
    /// No answer at all: the connection is cut. Whether the request was carried out depends on the fault rule.
    Cut,
}

/// One response.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The HTTP status code; 0 when the connection is cut.
    pub code: u16,
    /// The header `Content-Type`.
    pub content_type: String,
    /// The header `Retry-After`, in seconds.
    pub retry_after_s: Option<u32>,
    /// What follows.
    pub body: Body,
    /// How long a front should hold the response back (a fault rule asked for it).
    pub delay: Duration,
    /// After how many bytes of the body a front should cut the connection (a fault rule asked for it). The head
    /// still promises the whole body.
    pub truncate_after_bytes: Option<usize>,
}

impl Response {
    pub(crate) fn bytes(code: u16, content_type: &str, body: Vec<u8>) -> Response {
        Response {
            code,
            content_type: content_type.into(),
            retry_after_s: None,
            body: Body::Bytes(body),
            delay: Duration::ZERO,
            truncate_after_bytes: None,
        }
    }

    pub(crate) fn json(code: u16, value: &Value) -> Response {
        let mut body = value.to_string().into_bytes();
        body.push(b'\n');
        Response::bytes(code, "application/json", body)
    }

    pub(crate) fn cut() -> Response {
        Response { body: Body::Cut, ..Response::bytes(0, "", Vec::new()) }
    }

    /// The body as JSON; null when it is none.
    pub fn value(&self) -> Value {
        match &self.body {
            Body::Bytes(bytes) => serde_json::from_slice(bytes).unwrap_or_default(),
            Body::Watch(_) | Body::Cut => Value::Null,
        }
    }

    /// The body's bytes; empty when there are none.
    pub fn body_bytes(&self) -> &[u8] {
        match &self.body {
            Body::Bytes(bytes) => bytes,
            Body::Watch(_) | Body::Cut => &[],
        }
    }

    /// The watch that was opened, if one was.
    pub fn watch(&self) -> Option<WatchId> {
        match self.body {
            Body::Watch(id) => Some(id),
            Body::Bytes(_) | Body::Cut => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_unescaped_and_broken_escapes_stay() {
        let request = Request::get("/x?labelSelector=a%3Db+c&watch&limit=%zz");
        assert_eq!(request.path(), "/x");
        assert_eq!(request.query("labelSelector").as_deref(), Some("a=b c"));
        assert!(request.query_flag("watch"));
        assert!(!request.query_flag("absent"));
        assert_eq!(request.query("limit").as_deref(), Some("%zz"));
    }
}
