//! Ctrl-C and SIGTERM: noticed between two polls, so that servers and clusters are cleaned up by their guards.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::failure::{Doing, Failure};

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Makes the first signal set a flag and the second one end the process at once.
///
/// # Errors
///
/// When the operating system refuses the handlers.
pub fn install() -> Result<(), Failure> {
    let flag = INTERRUPTED.get_or_init(Arc::default);
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The order matters: the conditional exit must see the flag as it was before this signal.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(flag))
            .doing(|| "cannot install a signal handler".into())?;
        signal_hook::flag::register(signal, Arc::clone(flag))
            .doing(|| "cannot install a signal handler".into())?;
    }
    Ok(())
}

/// Fails once a signal has come; every loop that waits calls it.
///
/// # Errors
///
/// The failure `interrupted`.
pub fn check() -> Result<(), Failure> {
    if is_set() { Err(Failure::new("interrupted")) } else { Ok(()) }
}

/// Whether a signal has come.
pub fn is_set() -> bool {
    INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}
