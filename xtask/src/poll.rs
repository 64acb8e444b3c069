//! Waiting for something to become true, with a deadline and never by sleeping and hoping.

use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::interrupt;

/// Between two looks: short at first, since most things are true within milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// Long enough to leave the two cores to the servers, short enough not to be felt.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// One look at the world.
pub enum Look<T> {
    /// It has become true.
    Done(T),
    /// Not yet; how it stands now, for the message when the deadline passes.
    NotYet(String),
}

/// Looks until it is true.
///
/// # Errors
///
/// The look's own failure at once; `what`, and how it stood last, when `deadline` has passed; `interrupted`.
pub fn eventually<T>(
    what: &str,
    deadline: Duration,
    look: impl FnMut() -> Result<Look<T>, Failure>,
) -> Result<T, Failure> {
    eventually_to(LONGEST_PAUSE, what, deadline, look)
}

/// The same, for whoever wants to know when it became true, to this precision.
///
/// # Errors
///
/// As [`eventually`].
pub fn eventually_to<T>(
    longest_pause: Duration,
    what: &str,
    deadline: Duration,
    mut look: impl FnMut() -> Result<Look<T>, Failure>,
) -> Result<T, Failure> {
    let start = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        interrupt::check()?;
        match look()? {
            Look::Done(value) => return Ok(value),
            Look::NotYet(state) if start.elapsed() >= deadline => {
                let waited_s = deadline.as_secs();
                return Err(Failure::new(format!("not within {waited_s} s: {what}; last seen: {state}")));
            }
            Look::NotYet(_) => thread::sleep(pause),
        }
        pause = (pause * 2).min(longest_pause);
    }
}
