//! What can go wrong between a request and its answer.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

/// A request that did not give what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The server answered with an error status.
    Status(Box<Status>),
    /// No complete answer: connection refused, reset, timed out, TLS. The server may or may not have acted.
    Transport {
        /// Method and path, without the query, and the server's host and port.
        request: String,
        /// The cause, never with a secret.
        cause: String,
    },
    /// An answer that cannot be read.
    Decode {
        /// Method and path, without the query.
        request: String,
        /// What was expected and what came.
        cause: String,
    },
    /// Credentials could not be had (a token file that is gone, an exec plugin that fails).
    Credentials {
        /// The file or the command.
        source: String,
        /// The cause, never with a secret.
        cause: String,
    },
    /// The request was not sent, because it cannot mean what the caller wants: a name that is empty (its path would be
    /// the whole collection's) or that would become another path.
    Invalid {
        /// Method and path, without the query.
        request: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The client has been shut down.
    ShutDown,
}

/// An error answer of an API server, or of something in front of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The HTTP status code.
    pub code: u16,
    /// For example `NotFound`; empty when the body was no Status.
    pub reason: String,
    /// The server's words, shortened to at most 1,024 bytes.
    pub message: String,
    /// `details.name`; empty when absent.
    pub name: String,
    /// `details.kind` (which holds the plural resource in practice); empty when absent.
    pub kind: String,
    /// `details.group`; empty when absent.
    pub group: String,
    /// `details.uid`; empty when absent.
    pub uid: String,
    /// Whether the body was a `v1` Status at all. A plain-text 404 comes from a path that is not served and proves
    /// nothing about any object.
    pub is_status: bool,
    /// From the header `Retry-After` or from `details.retryAfterSeconds`.
    pub retry_after: Option<Duration>,
}

/// A server's words longer than this are cut: they go to logs and events, and a proxy's error page may be megabytes.
const MESSAGE_BYTES_MAX: usize = 1024;

impl Status {
    /// Reads the body of an error answer, or the object of an ERROR event inside a watch.
    ///
    /// A `code` of 0 (a watch event has none of its own) takes the code of the body. A body that is no `v1` Status in
    /// JSON becomes the message, shortened, and `is_status` stays false.
    ///
    /// ```
    /// let body = br#"{"kind":"Status","apiVersion":"v1","reason":"NotFound","details":{"name":"a","kind":"pods"},"code":404}"#;
    /// let status = gc_client::Status::from_body(404, None, body);
    /// assert!(status.proves_absent("a"));
    /// assert!(!gc_client::Status::from_body(404, None, b"404 page not found").proves_absent("a"));
    /// ```
    pub fn from_body(code: u16, retry_after: Option<Duration>, body: &[u8]) -> Status {
        // The parser skips what nobody wants without looking into it; a body that is broken there is no proof either.
        let text = std::str::from_utf8(body).ok().filter(|text| serde_json::from_str::<Sound>(text).is_ok());
        let parsed = text.and_then(|text| serde_json::from_str::<StatusBody>(text).ok());
        let Some(body_status) = parsed.filter(|s| s.kind == "Status" && s.api_version == "v1") else {
            let message = shorten(&String::from_utf8_lossy(body));
            return Status { code, message, retry_after, ..Status::default() };
        };
        let details = body_status.details.unwrap_or_default();
        let asked_to_wait = details.retry_after_seconds.filter(|seconds| *seconds > 0);
        Status {
            code: if code == 0 { body_status.code.unwrap_or(0) } else { code },
            reason: body_status.reason.unwrap_or_default(),
            message: body_status.message.unwrap_or_default(),
            name: details.name.unwrap_or_default(),
            kind: details.kind.unwrap_or_default(),
            group: details.group.unwrap_or_default(),
            uid: details.uid.unwrap_or_default(),
            is_status: true,
            retry_after: retry_after.or_else(|| asked_to_wait.map(|s| Duration::from_secs(u64::from(s)))),
        }
        .fit_to_show()
    }

    /// Whatever the server wrote, as it may stand in a line of a log: words become one short line, and what is to name
    /// something (a reason, an object) but cannot is dropped, since cut to fit it would name something else.
    pub(crate) fn fit_to_show(mut self) -> Status {
        self.message = shorten(&self.message);
        for name in [&mut self.reason, &mut self.name, &mut self.kind, &mut self.group, &mut self.uid] {
            if name.len() > MESSAGE_BYTES_MAX || name.chars().any(char::is_control) {
                name.clear();
            }
        }
        self
    }

    /// Whether this proves that an object of exactly this name does not exist under the path that was asked
    /// (spec D16): a Status with code 404, reason NotFound and `details.name` equal to the name.
    pub fn proves_absent(&self, name: &str) -> bool {
        self.is_status
            && self.code == 404
            && self.reason == "NotFound"
            && !name.is_empty()
            && self.name == name
    }

    /// Whether a list or watch must start anew: 410, reason `Expired` or `Gone` (kubernetes/kubernetes#83520).
    pub fn is_expired(&self) -> bool {
        self.code == 410 || self.reason == "Expired" || self.reason == "Gone"
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Status(status) => status.fmt(f),
            Error::Transport { request, cause } => write!(f, "{request}: {cause}"),
            Error::Decode { request, cause } => write!(f, "{request}: cannot read the answer: {cause}"),
            Error::Credentials { source, cause } => write!(f, "credentials from {source}: {cause}"),
            Error::Invalid { request, cause } => write!(f, "{request}: not sent: {cause}"),
            Error::ShutDown => f.write_str("the client has been shut down"),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server answered {}", self.code)?;
        if !self.reason.is_empty() {
            write!(f, " {}", self.reason)?;
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// `metav1.Status`, as far as it matters here. Unknown fields are ignored, absent and null ones are empty.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusBody {
    kind: String,
    api_version: String,
    reason: Option<String>,
    message: Option<String>,
    code: Option<u16>,
    details: Option<StatusDetails>,
}

/// `metav1.StatusDetails`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusDetails {
    name: Option<String>,
    kind: Option<String>,
    group: Option<String>,
    uid: Option<String>,
    retry_after_seconds: Option<u32>,
}

/// Any JSON value, read to its last string and number, of which nothing is kept.
struct Sound;

impl<'de> Deserialize<'de> for Sound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sound, D::Error> {
        deserializer.deserialize_any(Sound)
    }
}

impl<'de> Visitor<'de> for Sound {
    type Value = Sound;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_str<E>(self, _: &str) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Sound, A::Error> {
        while sequence.next_element::<Sound>()?.is_some() {}
        Ok(Sound)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Sound, A::Error> {
        while map.next_entry::<Sound, Sound>()?.is_some() {}
        Ok(Sound)
    }
}

/// One line of at most `MESSAGE_BYTES_MAX` bytes, without control characters that would garble a log.
pub(crate) fn shorten(text: &str) -> String {
    let mut line = String::new();
    for c in text.trim().chars() {
        let c = if c.is_control() { ' ' } else { c };
        if line.len() + c.len_utf8() > MESSAGE_BYTES_MAX {
            break;
        }
        line.push(c);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d16_only_a_status_that_names_the_object_proves_absence() {
        let body = |reason: &str, name: &str| {
            format!(
                r#"{{"kind":"Status","apiVersion":"v1","reason":"{reason}","code":404,"details":{{"name":"{name}"}}}}"#
            )
        };
        assert!(Status::from_body(404, None, body("NotFound", "a").as_bytes()).proves_absent("a"));
        assert!(!Status::from_body(404, None, body("NotFound", "b").as_bytes()).proves_absent("a"));
        assert!(!Status::from_body(404, None, body("Gone", "a").as_bytes()).proves_absent("a"));
        assert!(!Status::from_body(503, None, body("NotFound", "a").as_bytes()).proves_absent("a"));
        assert!(!Status::from_body(404, None, body("NotFound", "").as_bytes()).proves_absent(""));
        // An unknown resource in a known version: a Status with empty details.
        let unknown = br#"{"kind":"Status","apiVersion":"v1","reason":"NotFound","code":404,"details":{}}"#;
        assert!(!Status::from_body(404, None, unknown).proves_absent("a"));
    }

    #[test]
    fn a_status_keeps_what_matters_and_tolerates_nulls() {
        let body =
            br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":null,"new":1,
            "reason":"TooManyRequests","details":{"retryAfterSeconds":7,"causes":[]},"code":429}"#;
        let status = Status::from_body(0, None, body);
        assert_eq!((status.code, status.retry_after), (429, Some(Duration::from_secs(7))));
        // The header wins over the body.
        let header = Some(Duration::from_secs(1));
        assert_eq!(Status::from_body(429, header, body).retry_after, header);
    }

    #[test]
    fn d16_a_status_that_is_broken_where_nobody_looks_proves_nothing() {
        let with = |unknown: &[u8]| {
            let whole =
                br#"{"kind":"Status","apiVersion":"v1","reason":"NotFound","details":{"name":"a"},"x":"#;
            Status::from_body(404, None, &[whole, unknown, b"}"].concat()).proves_absent("a")
        };
        assert!(with(br#"[{"y": "\u00e9"}, null, true, -1, 1, 1.5]"#));
        let broken: [&[u8]; 6] =
            [b"\"\x80\"", br#""\uda00""#, br#"{"\uda00":0}"#, br#"["\x"]"#, b"1e999", b"\"\x01\""];
        let believed: Vec<_> =
            broken.iter().filter(|x| with(x)).map(|x| x.escape_ascii().to_string()).collect();
        assert_eq!(believed, [""; 0]);
    }

    #[test]
    fn r7_a_reason_or_a_name_that_no_log_can_show_is_dropped() {
        let body = br#"{"kind":"Status","apiVersion":"v1","reason":"Not\nFound","details":{"name":"a\u0000"},"code":404}"#;
        let status = Status::from_body(404, None, body);
        assert_eq!(status.to_string(), "the server answered 404");
        assert!(!status.proves_absent("a\0") && !status.proves_absent("a"));
    }

    #[test]
    fn r7_a_foreign_body_becomes_one_short_line() {
        let page = format!("<html>\n\u{1b}[31m{}", "é".repeat(5000));
        let status = Status::from_body(502, None, page.as_bytes());
        assert!(!status.is_status);
        assert!(status.message.len() <= MESSAGE_BYTES_MAX);
        assert!(status.message.starts_with("<html>  [31m"), "{}", status.message);
        assert_eq!(Status::from_body(500, None, b"\xff\xfe").message, "\u{fffd}\u{fffd}");
    }
}
