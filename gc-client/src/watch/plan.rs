//! What a reflector does next, given what came of the last thing it did. No I/O and no clock: durations come in,
//! durations go out.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::ReflectorOptions;
use super::random::Random;
use crate::Error;
use crate::wire::ListEnd;

/// The longest wait after a failure: a kind that comes back is seen within this.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// The longest `Retry-After` that is believed.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// A watch that ends sooner than this without an event has failed, whatever the server says (client-go's
/// `VeryShortWatchError`).
const WATCH_MIN: Duration = Duration::from_secs(1);

/// A watch that ends this much before or after its time ended because its time was over.
const WATCH_END_TOLERANCE: Duration = Duration::from_secs(2);

/// A watch that held this long has succeeded, even if nothing happened on it.
const WATCH_STABLE: Duration = Duration::from_secs(10);

/// After this many failures in a row that are the server's doing, watching from the same version is given up for a
/// new list: it may be that very version that the server cannot serve.
const FAILURES_BEFORE_LIST: u32 = 3;

/// A list of more pages than this goes in circles. With 5,000 objects a page this is fifty million.
const PAGES_MAX: u32 = 10_000;

/// The states.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// To read a page of a list.
    List(Listing),
    /// To ask what version the server is at before the list goes on: a page has failed, and whoever answers the next one
    /// may have been restored from a backup. Half of one state and half of another are no list (spec S7).
    ProbeList(Listing),
    /// To read the list as the beginning of a watch, which then goes on.
    StreamedList,
    /// To watch from `Plan::resource_version`.
    Watch,
    /// To ask what version the server is at: a watch failed, or ended before its time or without a word. A server that
    /// was restored from a backup is silent until its versions have passed ours (spec S7).
    Probe,
}

/// How far a list has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Listing {
    /// Empty before the first page.
    continue_token: String,
    pages: u32,
    /// The version that its pages are of; empty before the first one.
    resource_version: String,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, for that long.
    Wait(Duration),
    /// Read one page of a list; the first one if the token is empty.
    ListPage { continue_token: String },
    /// Watch, the present state first.
    StreamList { timeout_s: u64 },
    /// Watch what comes after this version.
    Watch { resource_version: String, timeout_s: u64 },
    /// Read a list of at most one object, for its version only.
    Probe,
}

/// What came of it.
#[derive(Clone, Debug)]
pub enum Outcome<'e> {
    /// A page is read to its end.
    Page(ListEnd),
    /// The server is not behind what it had shown before.
    Probed,
    /// A watch has ended as a stream should.
    Ended { saw_something: bool, lasted: Duration },
    /// The server is at this version, which is older than what it had shown before.
    WentBack(String),
    /// Anything else.
    Failed { error: &'e Error, lasted: Duration },
}

/// The state of one reflector.
#[derive(Debug)]
pub struct Plan {
    phase: Phase,
    /// The newest version seen; empty before the first list is complete.
    resource_version: String,
    /// In a row, without progress between them.
    failures: u32,
    /// How often in a row, without progress between them, the version to watch from had expired.
    expiries: u32,
    wait: Option<Duration>,
    /// How long the present watch was to last.
    asked: Duration,
    stream_lists: bool,
    /// The server refused the metadata forms, or more than metadata is wanted.
    plain_accept: bool,
    watch_timeout_s: RangeInclusive<u64>,
    backoff_base: Duration,
    random: Random,
}

impl Plan {
    /// The plan of a reflector of the resource with this path, at its beginning.
    pub fn of(options: &ReflectorOptions, path: &str) -> Plan {
        Plan::new(options, Random::new(options.seed, path))
    }

    pub fn new(options: &ReflectorOptions, random: Random) -> Plan {
        let mut plan = Plan {
            phase: Phase::Watch,
            resource_version: String::new(),
            failures: 0,
            expiries: 0,
            wait: None,
            asked: Duration::ZERO,
            stream_lists: options.stream_lists,
            plain_accept: options.fields.is_some(),
            watch_timeout_s: options.watch_timeout_s.clone(),
            backoff_base: options.backoff_base,
            random,
        };
        plan.start_list();
        plan
    }

    /// Whether to ask for plain JSON only.
    pub fn plain_accept(&self) -> bool {
        self.plain_accept
    }

    pub fn next_step(&mut self) -> Step {
        if let Some(wait) = self.wait.take() {
            return Step::Wait(wait);
        }
        let timeout_s = self.random.within(&self.watch_timeout_s);
        self.asked = Duration::from_secs(timeout_s);
        match &self.phase {
            Phase::List(list) => Step::ListPage { continue_token: list.continue_token.clone() },
            Phase::StreamedList => Step::StreamList { timeout_s },
            Phase::Watch => Step::Watch { resource_version: self.resource_version.clone(), timeout_s },
            Phase::Probe | Phase::ProbeList(_) => Step::Probe,
        }
    }

    pub fn on(&mut self, outcome: Outcome<'_>) {
        match outcome {
            Outcome::Page(end) => self.on_page(end),
            Outcome::Probed => self.on_probed(),
            Outcome::Ended { saw_something, lasted } => self.on_ended(saw_something, lasted),
            Outcome::WentBack(resource_version) => {
                // Once it is told it is what counts: versions that do not count upwards are not told again and again.
                self.resource_version = resource_version;
                self.start_list();
            }
            Outcome::Failed { error, lasted } => self.on_failed(error, lasted),
        }
    }

    /// A streamed list is complete as of this version, and its watch goes on.
    pub fn listed(&mut self, resource_version: &str) {
        self.resource_version = resource_version.into();
        self.phase = Phase::Watch;
    }

    /// An event of a watch was at this version.
    pub fn saw(&mut self, resource_version: &str) {
        self.progress();
        if !resource_version.is_empty() && !is_older(resource_version, &self.resource_version) {
            resource_version.clone_into(&mut self.resource_version);
        }
    }

    /// Whether a version says that the server has gone back behind what it had shown before.
    pub fn is_behind(&self, resource_version: &str) -> bool {
        let is_behind_list = match &self.phase {
            Phase::List(list) | Phase::ProbeList(list) => is_older(resource_version, &list.resource_version),
            Phase::StreamedList | Phase::Watch | Phase::Probe => false,
        };
        is_behind_list || self.is_older_than_seen(resource_version)
    }

    /// Whether a version is older than any that was seen on a watch or at the end of a list.
    pub fn is_older_than_seen(&self, resource_version: &str) -> bool {
        is_older(resource_version, &self.resource_version)
    }

    /// Whether the page that was just read is one too many, and names another.
    pub fn goes_in_circles(&self, end: &ListEnd) -> bool {
        !end.continue_token.is_empty() && PAGES_MAX <= self.pages_with_this()
    }

    fn pages_with_this(&self) -> u32 {
        match &self.phase {
            Phase::List(list) => list.pages + 1,
            Phase::ProbeList(_) | Phase::StreamedList | Phase::Watch | Phase::Probe => 1,
        }
    }

    /// Whether it is a watch that goes on after a probe, not a list.
    pub fn is_watch_probed(&self) -> bool {
        self.phase == Phase::Probe
    }

    /// Whether the present state comes first on the next watch.
    pub fn streams_list(&self) -> bool {
        self.phase == Phase::StreamedList
    }

    fn on_probed(&mut self) {
        self.phase = match std::mem::replace(&mut self.phase, Phase::Watch) {
            Phase::ProbeList(list) => Phase::List(list),
            _ => Phase::Watch,
        };
    }

    fn on_page(&mut self, end: ListEnd) {
        let pages = self.pages_with_this();
        if end.continue_token.is_empty() {
            // A complete list is the truth, also where its version is older than what was seen: the caller is told.
            self.resource_version = end.resource_version;
            self.phase = Phase::Watch;
        } else if pages < PAGES_MAX {
            let ListEnd { continue_token, resource_version, .. } = end;
            if self.is_older_than_seen(&resource_version) {
                // The caller has been told, and once is enough.
                self.resource_version.clone_from(&resource_version);
            }
            self.phase = Phase::List(Listing { continue_token, pages, resource_version });
        } else {
            self.back_off(None);
            self.start_list();
        }
    }

    fn on_ended(&mut self, saw_something: bool, lasted: Duration) {
        if self.phase == Phase::StreamedList {
            // The watch ended before the list was complete.
            self.back_off(None);
            return self.give_up_streaming_after_failures();
        }
        if saw_something || lasted >= WATCH_STABLE {
            self.progress();
        }
        // A server that stops ends its watches in good order. Who answers next may be in another state (spec S7).
        // One that ends long after its time was not heard while it did: this process was stopped, and the server may have
        // been anything meanwhile.
        let is_on_time = lasted.abs_diff(self.asked) <= WATCH_END_TOLERANCE;
        if !saw_something || !is_on_time {
            self.phase = Phase::Probe;
        }
        if !saw_something && lasted < WATCH_MIN {
            self.back_off(None);
        }
    }

    fn on_failed(&mut self, error: &Error, lasted: Duration) {
        if self.phase == Phase::Watch && lasted >= WATCH_STABLE {
            self.progress();
        }
        let (code, retry_after) = match error {
            Error::Status(status) if status.is_expired() => (410, None),
            Error::Status(status) => (status.code, status.retry_after),
            Error::Transport { .. }
            | Error::Decode { .. }
            | Error::Credentials { .. }
            | Error::Invalid { .. }
            | Error::ShutDown => (0, None),
        };
        if code == 406 && !self.plain_accept {
            self.plain_accept = true;
            return;
        }
        let phase = self.phase.clone();
        match phase {
            Phase::List(list) | Phase::ProbeList(list) => {
                self.back_off(retry_after);
                // A page can be asked for again where the server or the way to it is at fault. Where it is the token
                // (400 or 410) or the contents, only a new list helps.
                if !is_passing(error) {
                    self.start_list();
                } else if !list.continue_token.is_empty() {
                    self.phase = Phase::ProbeList(list);
                }
            }
            Phase::StreamedList if matches!(code, 400 | 422) => {
                self.stream_lists = false;
                self.start_list();
            }
            Phase::StreamedList => {
                self.back_off(retry_after);
                self.give_up_streaming_after_failures();
            }
            // The first time at once, whatever failed before: every server that was started anew has forgotten the
            // versions before. One that cannot keep a version for as long as a list takes is not helped by more lists.
            Phase::Watch if code == 410 && self.expiries == 0 => {
                self.expiries = 1;
                self.start_list();
            }
            Phase::Watch if matches!(code, 400 | 404 | 405 | 410 | 422) => {
                self.back_off(retry_after);
                self.start_list();
            }
            Phase::Watch => {
                self.back_off(retry_after);
                // Whatever failed: while nothing is watched the server may be restored, and it may be back before the wait
                // is over (spec S7).
                self.phase = Phase::Probe;
                if !is_passing(error) && self.failures >= FAILURES_BEFORE_LIST {
                    self.start_list();
                }
            }
            // To watch on without an answer could hide for ever that the server was restored: one that has just started
            // answers 500 for a while. Where asking for one object never works, a list may, and says as much.
            Phase::Probe => {
                self.back_off(retry_after);
                if !is_passing(error) && self.failures >= FAILURES_BEFORE_LIST {
                    self.start_list();
                }
            }
        }
    }

    fn progress(&mut self) {
        self.failures = 0;
        self.expiries = 0;
    }

    fn give_up_streaming_after_failures(&mut self) {
        if self.failures >= FAILURES_BEFORE_LIST {
            self.stream_lists = false;
            self.start_list();
        }
    }

    fn start_list(&mut self) {
        self.phase = if self.stream_lists { Phase::StreamedList } else { Phase::List(Listing::default()) };
    }

    /// Waits for half to all of the doubled time, so that a hundred reflectors do not come back as one; and for as
    /// long as the server asks, within reason.
    fn back_off(&mut self, retry_after: Option<Duration>) {
        self.failures = self.failures.saturating_add(1);
        let doublings = (self.failures - 1).min(16);
        let full = self.backoff_base.saturating_mul(1 << doublings).min(BACKOFF_MAX);
        let jittered = full / 2 + self.random.below(full / 2);
        let asked = retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
        let asked = asked + self.random.below(asked / 4);
        self.wait = Some(jittered.max(asked));
    }
}

/// Whether the same request may succeed later: nothing was said about the request itself.
fn is_passing(error: &Error) -> bool {
    match error {
        Error::Transport { .. } | Error::Credentials { .. } | Error::ShutDown => true,
        Error::Status(status) => {
            !status.is_expired() && matches!(status.code, 401 | 403 | 408 | 429 | 502..=504)
        }
        Error::Decode { .. } | Error::Invalid { .. } => false,
    }
}

/// Whether a version is older than another. Only numbers can be compared; servers whose versions are something else
/// are believed.
fn is_older(resource_version: &str, than: &str) -> bool {
    match (resource_version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(this), Ok(than)) => this < than,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
