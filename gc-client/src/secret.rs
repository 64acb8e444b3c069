//! Values that must never be seen in a log, an error or a core's debug output.

use std::fmt;

/// A token, a password or a key. `Debug` shows that there is one, and nothing of it; there is no `Display`.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Secret(Vec<u8>);

impl Secret {
    pub(crate) fn new(value: impl Into<Vec<u8>>) -> Secret {
        Secret(value.into())
    }

    /// The one way to the value. Grepping for this name lists every place that handles secrets.
    pub(crate) fn reveal(&self) -> &[u8] {
        &self.0
    }

    /// The value as text; empty when it is no UTF-8 (every caller has checked that it is).
    pub(crate) fn reveal_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r2_debug_shows_nothing_of_a_secret() {
        let shown = format!("{:?} {:#?}", Secret::new("hunter2"), Some(Secret::new("hunter2")));
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("<redacted>"), "{shown}");
    }
}
