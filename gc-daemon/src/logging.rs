//! The log: what is said at which verbosity, and how a line looks.
//!
//! Lines go to standard error, one a line whatever the message holds. Verbosity follows klog's habit (`-v`, 0 to
//! 10); it is mapped onto levels of the `log` crate per module:
//!
//! | `-v` | said | filter |
//! |---|---|---|
//! | 0, 1 | starting, stopping, warnings, errors | `info` |
//! | 2, 3 | each write and why | and `debug` of `gc_daemon::workers` |
//! | 4 | discovery and watches | and `debug` of all our crates |
//! | 5 to 7 | each decision | and `trace` of `gc_daemon`, `gc_core`, `gc_graph` and `gc_queue` |
//! | 8 to 10 | each request | and `trace` of `gc_client` |
//!
//! Libraries below `gc-client` never get more than warnings: what they say at finer levels may hold a request's head,
//! and with it a token (spec R2: never a token in the log).
//!
//! Equal lines of level info and above are printed at most once a second; then one more says how many there were
//! (kubernetes/kubernetes#108373: a hundred thousand equal lines a day).

use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use jiff::Timestamp;
use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::flags::LogFormat;

/// Our crates, whose finer levels are known to hold no secret.
const OUR_CRATES: [&str; 5] = ["gc_daemon", "gc_core", "gc_graph", "gc_queue", "gc_client"];
/// An equal line within this time is counted, not printed.
const REPEAT_WINDOW: Duration = Duration::from_secs(1);
/// At most so many different lines are remembered; beyond that, lines are printed as they come. A program that says
/// more than this in a second has no single line that floods.
const REPEATS_MAX: usize = 256;

/// Sets up the log for the whole process. Does nothing when a log has been set up before.
pub fn init(verbosity: u8, format: LogFormat) {
    let mut builder = env_logger::Builder::new();
    for (module, level) in filters(verbosity) {
        match module {
            "" => builder.filter_level(level),
            _ => builder.filter_module(module, level),
        };
    }
    builder.format(move |out, record| {
        let message = record.args().to_string();
        let line = Line {
            timestamp: Timestamp::now(),
            level: record.level(),
            target: record.target(),
            message: &message,
        };
        match format {
            LogFormat::Json => writeln!(out, "{}", line.json()),
            LogFormat::Text => {
                let style = out.default_level_style(line.level);
                writeln!(out, "{}", line.text(&style.render().to_string(), &style.render_reset().to_string()))
            }
        }
    });
    let inner = builder.build();
    let level = inner.filter();
    let logger = RepeatLimit { inner, repeats: Mutex::default() };
    // A second call, from a test in the same process, keeps the first log.
    if log::set_boxed_logger(Box::new(logger)).is_ok() {
        log::set_max_level(level);
    }
}

/// Which module says how much at a verbosity; the empty name stands for every module without a line of its own.
fn filters(verbosity: u8) -> Vec<(&'static str, LevelFilter)> {
    let (ours, client) = match verbosity {
        0..=3 => (LevelFilter::Info, LevelFilter::Info),
        4 => (LevelFilter::Debug, LevelFilter::Debug),
        5..=7 => (LevelFilter::Trace, LevelFilter::Debug),
        _ => (LevelFilter::Trace, LevelFilter::Trace),
    };
    let mut filters = vec![("", LevelFilter::Warn)];
    filters.extend(OUR_CRATES.map(|name| (name, if name == "gc_client" { client } else { ours })));
    if matches!(verbosity, 2..=3) {
        filters.push(("gc_daemon::workers", LevelFilter::Debug));
    }
    filters
}

/// One line of the log, before it is laid out.
struct Line<'a> {
    timestamp: Timestamp,
    level: Level,
    target: &'a str,
    message: &'a str,
}

impl Line<'_> {
    /// `2026-11-30T03:15:00.123Z INFO gc_daemon::workers deleted …`, the level between the two style marks.
    fn text(&self, style: &str, reset: &str) -> String {
        let Line { timestamp, level, target, .. } = self;
        let message = on_one_line(self.message);
        format!("{timestamp:.3} {style}{level}{reset} {target} {message}")
    }

    fn json(&self) -> String {
        // By hand, since the order of the fields is for the eye: time, level, place, words.
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        format!(
            r#"{{"ts":"{:.3}","level":"{}","target":{},"msg":{}}}"#,
            self.timestamp,
            self.level.as_str().to_ascii_lowercase(),
            quoted(self.target),
            quoted(self.message)
        )
    }
}

/// Control characters become visible escapes: nobody forges a line of the log with a name or an error message, and no
/// terminal obeys one.
fn on_one_line(message: &str) -> String {
    if !message.chars().any(char::is_control) {
        return message.to_owned();
    }
    message
        .chars()
        .flat_map(|c| {
            let (escaped, plain) =
                if c.is_control() { (Some(c.escape_default()), None) } else { (None, Some(c)) };
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

/// A log that lets equal lines through once a second.
struct RepeatLimit {
    inner: env_logger::Logger,
    repeats: Mutex<Repeats>,
}

impl RepeatLimit {
    fn print(&self, level: Level, target: &str, message: &str) {
        let args = format_args!("{message}");
        self.inner.log(&Record::builder().level(level).target(target).args(args).build());
    }
}

impl Log for RepeatLimit {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.inner.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.inner.matches(record) {
            return;
        }
        // The finer levels are asked for by somebody who wants to see everything, in order.
        if record.level() > Level::Info {
            return self.inner.log(record);
        }
        let key = Key {
            level: record.level(),
            target: record.target().to_owned(),
            message: record.args().to_string(),
        };
        // A panic while the table was locked leaves it usable: at worst a count is off by one.
        let (print, ended) =
            self.repeats.lock().unwrap_or_else(PoisonError::into_inner).seen(key, Instant::now());
        for (key, count) in ended {
            let message = format!("{} (repeated {count} times)", key.message);
            self.print(key.level, &key.target, &message);
        }
        if print {
            self.inner.log(record);
        }
    }

    fn flush(&self) {
        let held_back = self.repeats.lock().unwrap_or_else(PoisonError::into_inner).take_all();
        for (key, count) in held_back {
            let message = format!("{} (repeated {count} times)", key.message);
            self.print(key.level, &key.target, &message);
        }
        self.inner.flush();
    }
}

/// The lines of the last second, and how often each came again. Told the time.
#[derive(Default)]
struct Repeats {
    seen: HashMap<Key, Repeat>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    level: Level,
    target: String,
    message: String,
}

struct Repeat {
    printed: Instant,
    held_back: u64,
}

impl Repeats {
    /// Whether to print this line, and the lines whose second has passed with how often each was held back.
    fn seen(&mut self, key: Key, now: Instant) -> (bool, Vec<(Key, u64)>) {
        let is_over = |repeat: &Repeat| now.saturating_duration_since(repeat.printed) >= REPEAT_WINDOW;
        let ended = self.seen.extract_if(|_, repeat| is_over(repeat));
        let ended: Vec<_> =
            ended.map(|(key, repeat)| (key, repeat.held_back)).filter(|it| it.1 > 0).collect();
        if let Some(repeat) = self.seen.get_mut(&key) {
            repeat.held_back += 1;
            return (false, ended);
        }
        if self.seen.len() < REPEATS_MAX {
            self.seen.insert(key, Repeat { printed: now, held_back: 0 });
        }
        (true, ended)
    }

    fn take_all(&mut self) -> Vec<(Key, u64)> {
        self.seen.drain().map(|(key, repeat)| (key, repeat.held_back)).filter(|it| it.1 > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn line<'a>(level: Level, message: &'a str) -> Line<'a> {
        let timestamp = "2026-11-30T03:15:00.123456Z".parse().unwrap();
        Line { timestamp, level, target: "gc_daemon::workers", message }
    }

    #[test]
    fn r2_lines_as_text_and_as_json() {
        let mut actual = String::new();
        for line in [
            line(Level::Info, "deleted configmap ns/x (uid c): owner uid o is absent"),
            line(Level::Error, "a \"name\"\nwith\r\u{1b}[31m tricks, 日本 and \\"),
        ] {
            actual += &format!("{}\n{}\n", line.text("", ""), line.json());
        }
        expect![[r#"
            2026-11-30T03:15:00.123Z INFO gc_daemon::workers deleted configmap ns/x (uid c): owner uid o is absent
            {"ts":"2026-11-30T03:15:00.123Z","level":"info","target":"gc_daemon::workers","msg":"deleted configmap ns/x (uid c): owner uid o is absent"}
            2026-11-30T03:15:00.123Z ERROR gc_daemon::workers a "name"\nwith\r\u{1b}[31m tricks, 日本 and \
            {"ts":"2026-11-30T03:15:00.123Z","level":"error","target":"gc_daemon::workers","msg":"a \"name\"\nwith\r\u001b[31m tricks, 日本 and \\"}
        "#]].assert_eq(&actual);
        let marked = line(Level::Warn, "x").text("<", ">");
        assert_eq!(marked, "2026-11-30T03:15:00.123Z <WARN> gc_daemon::workers x");
    }

    #[test]
    fn r2_json_lines_are_json_on_one_line() {
        let message: String = (0..0x300).filter_map(char::from_u32).collect();
        let json = line(Level::Info, &message).json();
        assert_eq!(json.lines().count(), 1);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["msg"], message.as_str());
        assert_eq!(line(Level::Info, &message).text("", "").lines().count(), 1);
    }

    #[test]
    fn r2_verbosity_opens_modules_step_by_step_and_never_the_libraries_below() {
        let mut actual = String::new();
        for verbosity in [0, 2, 4, 5, 8, 10] {
            let mut builder = env_logger::Builder::new();
            for (module, level) in filters(verbosity) {
                builder.filter((!module.is_empty()).then_some(module), level);
            }
            let log = builder.build();
            let level_of = |target: &str| {
                Level::iter()
                    .filter(|level| log.enabled(&Metadata::builder().level(*level).target(target).build()))
                    .last()
            };
            actual += &format!("-v {verbosity}:");
            for target in [
                "gc_daemon",
                "gc_daemon::workers",
                "gc_core::delete",
                "gc_client::http",
                "ureq",
                "rustls::client",
            ] {
                actual += &format!(" {target}={}", level_of(target).map_or("off", |level| level.as_str()));
            }
            actual.push('\n');
        }
        expect![[r#"
            -v 0: gc_daemon=INFO gc_daemon::workers=INFO gc_core::delete=INFO gc_client::http=INFO ureq=WARN rustls::client=WARN
            -v 2: gc_daemon=INFO gc_daemon::workers=DEBUG gc_core::delete=INFO gc_client::http=INFO ureq=WARN rustls::client=WARN
            -v 4: gc_daemon=DEBUG gc_daemon::workers=DEBUG gc_core::delete=DEBUG gc_client::http=DEBUG ureq=WARN rustls::client=WARN
            -v 5: gc_daemon=TRACE gc_daemon::workers=TRACE gc_core::delete=TRACE gc_client::http=DEBUG ureq=WARN rustls::client=WARN
            -v 8: gc_daemon=TRACE gc_daemon::workers=TRACE gc_core::delete=TRACE gc_client::http=TRACE ureq=WARN rustls::client=WARN
            -v 10: gc_daemon=TRACE gc_daemon::workers=TRACE gc_core::delete=TRACE gc_client::http=TRACE ureq=WARN rustls::client=WARN
        "#]].assert_eq(&actual);
    }

    #[test]
    fn kubernetes_108373_equal_lines_are_printed_once_a_second_and_counted() {
        let mut repeats = Repeats::default();
        let start = Instant::now();
        let mut actual = String::new();
        for (ms, message) in
            [(0, "a"), (10, "a"), (20, "b"), (30, "a"), (999, "a"), (1000, "c"), (1001, "a"), (3000, "b")]
        {
            let key = Key { level: Level::Info, target: "t".into(), message: message.into() };
            let (print, ended) = repeats.seen(key, start + Duration::from_millis(ms));
            let ended: Vec<_> =
                ended.iter().map(|(key, count)| format!("{} x{count}", key.message)).collect();
            let verdict = if print { "printed" } else { "held back" };
            actual += format!("{ms:4} {message} {verdict} {}", ended.join(",")).trim_end();
            actual.push('\n');
        }
        expect![[r#"
               0 a printed
              10 a held back
              20 b printed
              30 a held back
             999 a held back
            1000 c printed a x3
            1001 a printed
            3000 b printed
        "#]]
        .assert_eq(&actual);
    }

    #[test]
    fn kubernetes_108373_the_table_of_repeats_is_bounded() {
        let mut repeats = Repeats::default();
        let now = Instant::now();
        for n in 0..10 * REPEATS_MAX {
            let key = Key { level: Level::Info, target: "t".into(), message: n.to_string() };
            assert!(repeats.seen(key, now).0);
        }
        assert_eq!(repeats.seen.len(), REPEATS_MAX);
    }
}
