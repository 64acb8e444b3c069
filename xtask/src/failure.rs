//! The one error of this package: a sentence for a person.

use std::fmt;

/// Why a command or a scenario failed, in words; nothing here is ever matched on.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    /// A failure in the given words, without a full stop at the end.
    pub fn new(words: impl Into<String>) -> Failure {
        Failure(words.into())
    }

    /// The same failure with what was being done in front.
    pub fn context(self, doing: impl fmt::Display) -> Failure {
        Failure(format!("{doing}: {}", self.0))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<gc_client::Error> for Failure {
    fn from(error: gc_client::Error) -> Failure {
        Failure(error.to_string())
    }
}

impl From<gc_client::ConfigError> for Failure {
    fn from(error: gc_client::ConfigError) -> Failure {
        Failure(error.to_string())
    }
}

/// Says what was being done when something of the standard library failed.
pub trait Doing<T> {
    /// Turns any error into a [`Failure`] that begins with the words given.
    fn doing(self, words: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> Doing<T> for Result<T, E> {
    fn doing(self, words: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| Failure(format!("{}: {error}", words())))
    }
}
