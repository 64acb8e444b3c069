//! The rows of the table: what each measures and how, its goal, and the floor below which a short run fails.

/// In what a figure is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, shown in millions.
    Megabytes,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Seconds, shown in thousandths.
    Milliseconds,
    /// Objects per second.
    PerSecond,
    /// Per cent.
    Percent,
    /// A number of requests.
    Requests,
    /// A number of anything else.
    Count,
    /// Requests for each object.
    RequestsEach,
    /// Nanoseconds for each item.
    Nanoseconds,
}

/// What is to be reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// So many times as good as the reference, in the same run.
    Times(f64),
    /// No more than this, in the row's unit.
    AtMost(f64),
    /// No less than this, in the row's unit.
    AtLeast(f64),
    /// Shown for comparison only.
    None,
}

/// A row.
#[derive(Debug)]
pub struct Row {
    /// As `--rows` takes it.
    pub name: &'static str,
    /// What is measured and how.
    pub what: &'static str,
    /// Of the figures.
    pub unit: Unit,
    /// Whether more is better.
    pub more_is_better: bool,
    /// What is to be reached.
    pub goal: Goal,
    /// In a short run on a noisy machine: so many times as good as the reference at least; well below the goal.
    pub floor: Option<f64>,
}

impl Row {
    /// How many times as good the daemon's figure is; nothing where one of them is zero.
    pub fn ratio(&self, ours: f64, reference: f64) -> Option<f64> {
        let (good, bad) = if self.more_is_better { (ours, reference) } else { (reference, ours) };
        (good > 0.0 && bad > 0.0).then(|| good / bad)
    }

    /// Whether the goal is met; nothing where there is none, or nothing to compare with.
    pub fn is_met(&self, ours: f64, reference: Option<f64>) -> Option<bool> {
        match self.goal {
            Goal::Times(times) => Some(self.ratio(ours, reference?)? >= times),
            Goal::AtMost(limit) => Some(ours <= limit),
            Goal::AtLeast(limit) => Some(ours >= limit),
            Goal::None => None,
        }
    }
}

/// The row of that name.
pub fn find(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name == name)
}

/// The row of that name, or else all rows of a group: those whose names go on behind it after a hyphen.
pub fn named(name: &str) -> Vec<&'static str> {
    let is_in = |row: &Row| row.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
    match find(name) {
        Some(row) => vec![row.name],
        None => ROWS.iter().filter(|row| is_in(row)).map(|row| row.name).collect(),
    }
}

const fn less(name: &'static str, unit: Unit, goal: Goal, what: &'static str) -> Row {
    Row { name, what, unit, more_is_better: false, goal, floor: None }
}

const fn more(name: &'static str, unit: Unit, goal: Goal, what: &'static str) -> Row {
    Row { more_is_better: true, ..less(name, unit, goal, what) }
}

const fn queue(name: &'static str, what: &'static str) -> Row {
    less(name, Unit::Nanoseconds, Goal::Times(2.0), what).floor(1.0)
}

impl Row {
    const fn floor(mut self, times: f64) -> Row {
        self.floor = Some(times);
        self
    }
}

/// All rows, in the order in which they are printed.
pub const ROWS: &[Row] = &[
    less(
        "memory-empty",
        Unit::Megabytes,
        Goal::AtMost(10e6),
        "Resident memory (VmRSS) 10 s after a start in an empty cluster.",
    )
    .floor(4.0),
    less(
        "memory-filled",
        Unit::Megabytes,
        Goal::Times(20.0),
        "Resident memory in the filled cluster, a minute after the start. It holds --objects ConfigMaps with six labels \
         and six annotations, 1.6 KB of metadata each, one in 21 an owner of 20 others.",
    )
    .floor(4.0),
    less(
        "memory-peak",
        Unit::Megabytes,
        Goal::None,
        "The most memory that was resident in that minute (VmHWM).",
    )
    .floor(4.0),
    less(
        "bytes-per-object",
        Unit::Bytes,
        Goal::AtMost(160.0),
        "memory-filled less memory-empty, for each object.",
    ),
    less(
        "cpu-sync",
        Unit::Seconds,
        Goal::Times(8.0),
        "Processor time, of the program and of the kernel for it, from the start in the filled cluster until it \
         collects.",
    ),
    less(
        "cpu-settled",
        Unit::Seconds,
        Goal::Times(8.0),
        "The same until a minute after the start: what it goes on to look at once it collects is in it.",
    ),
    less(
        "time-sync",
        Unit::Seconds,
        Goal::Times(2.0),
        "From the start of the process in the filled cluster until it collects: the daemon's /readyz answers 200, the \
         reference logs that it proceeds to collect garbage.",
    ),
    less(
        "idle-requests",
        Unit::Requests,
        Goal::AtMost(0.0),
        "Requests for single objects of the filled cluster in the first minute, in which nothing changes: what \
         apiserver_request_total counts for configmaps beside lists and watches.",
    ),
    less(
        "idle",
        Unit::Percent,
        Goal::AtMost(0.1),
        "Processor time over the 20 s after that minute, as a share of one core.",
    ),
    less(
        "requests-per-dependent",
        Unit::RequestsEach,
        Goal::AtMost(1.02),
        "What apiserver_request_total counts for configmaps during the row background, beside lists, watches and the \
         user's own deletions of the owners, for each dependent.",
    )
    .floor(1.5),
    more(
        "background",
        Unit::PerSecond,
        Goal::Times(3.0),
        "1000 owners with 20 dependents each. The collector is started, and has been quiet for a second; then the \
         owners are deleted over 32 connections, with the policy Background. Dependents, over the time from the first \
         of these requests until the API server has no object left.",
    )
    .floor(1.2),
    more(
        "background-limited",
        Unit::PerSecond,
        Goal::None,
        "The same with 30 owners of 20, and both programs as they come: the reference has its default limit of 20 \
         requests a second with a burst of 30, the daemon has none. One round only.",
    ),
    more(
        "plain-delete",
        Unit::Percent,
        Goal::AtLeast(85.0),
        "How close the row background comes to the server's own limit: as many objects without owners, no collector, \
         and a DELETE with UID and resourceVersion for each, by the collectors' user, over as many connections as \
         either collector has workers (20).",
    ),
    more(
        "watched-delete",
        Unit::Percent,
        Goal::None,
        "The same, where the limit is measured with the daemon running: it has nothing to delete, but the server shows \
         it each object that goes, as it must show it to any collector.",
    ),
    more(
        "foreground-one",
        Unit::PerSecond,
        Goal::Times(2.5),
        "One owner with 5000 dependents that block its deletion, deleted with the policy Foreground; as for background.",
    )
    .floor(1.2),
    more(
        "foreground-many",
        Unit::PerSecond,
        Goal::Times(2.5),
        "500 owners with 10 such dependents each; as for background.",
    )
    .floor(1.2),
    less(
        "orphan-one",
        Unit::Seconds,
        Goal::Times(4.0),
        "One owner with 5000 dependents, deleted with the policy Orphan: from that request until the API server no \
         longer has the owner. Afterwards no dependent may be missing or have a reference left.",
    ),
    less(
        "orphan-memory",
        Unit::Megabytes,
        Goal::AtMost(10e6),
        "By how much resident memory grew at most during orphan-one, looked at 50 times a second.",
    ),
    less("orphan-cpu", Unit::Seconds, Goal::None, "Processor time of the collector during orphan-one."),
    less(
        "definition",
        Unit::Seconds,
        Goal::AtMost(1.0),
        "A custom resource is defined while the collector runs. As soon as the server takes objects of it, an owner \
         and a dependent are made and the owner is deleted: from then until the dependent is gone.",
    ),
    less(
        "1m-time",
        Unit::Seconds,
        Goal::None,
        "A million ConfigMaps like those of the filled cluster, made up by a server without TLS and without a store while \
         they are listed in pages, in protobuf: from the start of the process until it watches. One round, as all rows \
         with 1m and 5m.",
    ),
    less("1m-cpu", Unit::Seconds, Goal::None, "Processor time until then."),
    less(
        "1m-bytes",
        Unit::Bytes,
        Goal::AtMost(160.0),
        "Resident memory 3 s later, for each of these objects; the empty program's is in it.",
    ),
    less("1m-json-time", Unit::Seconds, Goal::None, "As 1m-time, in JSON."),
    less("1m-json-cpu", Unit::Seconds, Goal::None, "As 1m-cpu, in JSON."),
    less("1m-json-bytes", Unit::Bytes, Goal::AtMost(160.0), "As 1m-bytes, in JSON."),
    less("5m-time", Unit::Seconds, Goal::None, "As 1m-time, with five million objects."),
    less("5m-cpu", Unit::Seconds, Goal::None, "As 1m-cpu, with five million objects."),
    less("5m-bytes", Unit::Bytes, Goal::AtMost(160.0), "As 1m-bytes, with five million objects."),
    less("5m-json-time", Unit::Seconds, Goal::None, "As 1m-time, with five million objects in JSON."),
    less("5m-json-cpu", Unit::Seconds, Goal::None, "As 1m-cpu, with five million objects in JSON."),
    less("5m-json-bytes", Unit::Bytes, Goal::AtMost(160.0), "As 1m-bytes, with five million objects in JSON."),
    less(
        "kinds-bytes",
        Unit::Bytes,
        Goal::AtMost(64e3),
        "2000 custom resources are defined on a real server: resident memory for each of them, beyond that in an empty \
         cluster, 20 s after the collector is ready. One round.",
    ),
    less("kinds-threads", Unit::Count, Goal::None, "Threads of the process then."),
    less("kinds-time", Unit::Seconds, Goal::None, "From the start of the process there until it collects."),
    less(
        "ttl-late",
        Unit::Milliseconds,
        Goal::Times(0.9),
        "2000 batch/v1 Jobs of 4 KB, of which nineteen in twenty finish while the program watches, and 1700 reach the end          of their TTL, 170 at a time on ten whole seconds; the others have none, or it is raised in between. The program          does nothing but TTLs, with five workers. From a Job's deadline until the API server has taken its deletion, by          the server's audit log; half of them took no longer. Exactly those must go, and none before its time.",
    ),
    less("ttl-late-p99", Unit::Milliseconds, Goal::Times(0.9), "The same for 99 in a hundred."),
    less("ttl-late-max", Unit::Milliseconds, Goal::None, "The same for the last."),
    less(
        "ttl-requests",
        Unit::RequestsEach,
        Goal::AtMost(2.01),
        "What apiserver_request_total counts for jobs meanwhile, beside lists, watches and our own, for each Job that went:          a look at it and a deletion.",
    ),
    less("ttl-memory", Unit::Megabytes, Goal::Times(5.0), "Resident memory at the end of that."),
    less("ttl-cpu", Unit::Seconds, Goal::Times(1.2), "Processor time for it, once the Jobs are known."),
    less("binary", Unit::Megabytes, Goal::AtMost(8e6), "The size of the program; the daemon's static one."),
    queue(
        "queue-alone",
        "The work queue without a collector, against client-go's, with 16-byte items in both; both count and measure for \
         /metrics, as they do in their collectors. One thread: add, get, done, a million times, of a hundred items.",
    ),
    queue(
        "queue-duplicates",
        "The same, when each item is added ten times before it is handed out, and once more while it is; for each of \
         these ten adds.",
    ),
    queue("queue-million", "The same, when a million items are added first, and then all are handed out."),
    queue("queue-contended", "The same, by twenty threads at once, each of which adds an item, gets one and is done."),
    queue(
        "queue-rate-limited",
        "The same, when 200000 items have failed once and wait for a millisecond each before they are handed out.",
    ),
    queue("queue-after", "The same, when 200000 items wait for one to five milliseconds."),
    queue("queue-bare-alone", "As queue-alone, when neither queue measures anything."),
    queue("queue-bare-million", "As queue-million, when neither queue measures anything."),
    queue("queue-bare-contended", "As queue-contended, when neither queue measures anything."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_floors_are_below_goals() {
        for (i, row) in ROWS.iter().enumerate() {
            assert!(ROWS[..i].iter().all(|other| other.name != row.name), "{}", row.name);
            assert!(row.what.ends_with('.'), "{}", row.name);
            if let (Some(floor), Goal::Times(times)) = (row.floor, row.goal) {
                assert!(floor * 2.0 <= times, "{}: noise would break the floor", row.name);
            }
        }
    }

    #[test]
    fn ratios_say_how_many_times_as_good() {
        let [time, rate] = ["time-sync", "background"].map(|name| find(name).unwrap());
        assert_eq!(time.ratio(1.0, 3.0), Some(3.0));
        assert_eq!(rate.ratio(300.0, 100.0), Some(3.0));
        assert_eq!(time.ratio(0.0, 3.0), None);
        assert_eq!(rate.is_met(299.0, Some(100.0)), Some(false));
        assert_eq!(rate.is_met(300.0, Some(100.0)), Some(true));
        assert_eq!(rate.is_met(300.0, None), None);
        assert_eq!(find("idle-requests").unwrap().is_met(0.0, None), Some(true));
        assert_eq!(find("background-limited").unwrap().is_met(0.0, Some(1.0)), None);
    }
}
