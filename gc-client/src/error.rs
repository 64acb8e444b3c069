//! What can go wrong between a request and its answer.

use std::fmt;
use std::time::Duration;

/// A request that did not give what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The server answered with an error status.
    Status(Box<Status>),
    /// No complete answer: connection refused, reset, timed out, TLS. The server may or may not have acted.
    Transport {
        /// Method and path, without the query.
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

impl Status {
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
