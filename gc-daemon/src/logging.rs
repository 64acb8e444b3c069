//! The log: what is said at which verbosity, and how a line looks.
//!
//! Lines go to standard error, one a line whatever the message holds. Verbosity follows klog's habit (`-v`, 0 to
//! 10); it is mapped onto levels of the `log` crate per module:
//!
//! | `-v` | said | filter |
//! |---|---|---|
//! | 0, 1 | starting, stopping, warnings, errors | `info` |
//! | 2, 3 | each write and why | and `debug` of `gc_daemon::workers` and `gc_daemon::ttl::worker` |
//! | 4 | discovery and watches | and `debug` of all our crates |
//! | 5 to 7 | each decision | and `trace` of `gc_daemon`, `gc_core`, `gc_graph` and `gc_queue` |
//! | 8 to 10 | each request | and `trace` of `gc_client` |
//!
//! Libraries below `gc-client` never get more than warnings: what they say at finer levels may hold a request's head,
//! and with it a token (spec R2: never a token in the log).
//!
//! Nobody waits for standard error: lines go through a `Backlog`, and what it cannot hold is counted. A line longer
//! than 8 KiB is cut.
//!
//! Equal warnings and errors are printed at most once a minute, equal lines of level info at most once a second; the
//! next one says how many there were (kubernetes/kubernetes#108373: a hundred thousand equal lines a day).

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use env_logger::{Target, WriteStyle};
use hashbrown::HashMap;
use jiff::Timestamp;
use log::{Level, LevelFilter, Log, Metadata, Record, error};

use crate::backlog::Backlog;
use crate::flags::LogFormat;

/// Our crates, whose finer levels are known to hold no secret.
const OUR_CRATES: [&str; 5] = ["gc_daemon", "gc_core", "gc_graph", "gc_queue", "gc_client"];
/// An equal warning or error within this time is counted, not printed: a server that is down for a night is one line
/// a minute.
const REPEAT_WINDOW: Duration = Duration::from_secs(60);
/// The same for lines of level info, which say that something happened: twice in a minute may well be news.
const INFO_REPEAT_WINDOW: Duration = Duration::from_secs(1);
/// At most so many different lines are remembered; beyond that, lines are printed as they come. A program with so many
/// different warnings in a minute has no single line that floods.
const REPEATS_MAX: usize = 256;
/// A longer message is cut: at `-v 8` an object with a thousand owner references would fill hundreds of kilobytes, and
/// readers of logs cut lines somewhere in the middle, JSON included.
const MESSAGE_BYTES_MAX: usize = 8 << 10;
/// At the end of the program lines that wait are given so long to be written. The whole stop has 5 s (spec R6).
const FLUSH_WITHIN: Duration = Duration::from_millis(300);

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
        let style = out.default_level_style(line.level);
        let line = line.laid_out(format, &style.render().to_string(), &style.render_reset().to_string());
        writeln!(out, "{line}")
    });
    // Without a thread the log is written in place, as any program's.
    let backlog = Backlog::start(io::stderr(), move |count| lost(count, format)).ok();
    if let Some(backlog) = &backlog {
        builder.target(Target::Pipe(Box::new(backlog.clone()))).write_style(style());
    }
    let inner = builder.build();
    let level = inner.filter();
    let logger = RepeatLimit { inner, repeats: Mutex::default(), backlog };
    // A second call, from a test in the same process, keeps the first log.
    if log::set_boxed_logger(Box::new(logger)).is_ok() {
        log::set_max_level(level);
    }
}

/// Panics become lines of the log, in its format and on its way. For `main`: a test has its own way to show them.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        error!("thread {:?} {panic}", thread.name().unwrap_or_default());
    }));
}

/// Colours for a person's terminal, unless that person wants none (<https://no-color.org>).
fn style() -> WriteStyle {
    let is_set =
        |name, value: fn(&std::ffi::OsStr) -> bool| std::env::var_os(name).is_some_and(|it| value(&it));
    let is_plain = is_set("NO_COLOR", |it| !it.is_empty()) || is_set("TERM", |it| it == "dumb");
    if io::stderr().is_terminal() && !is_plain { WriteStyle::Always } else { WriteStyle::Never }
}

/// The line that stands for lines that standard error did not take.
fn lost(count: u64, format: LogFormat) -> String {
    let message = format!("{count} lines of the log were lost: standard error did not take them in time");
    let line = Line {
        timestamp: Timestamp::now(),
        level: Level::Warn,
        target: "gc_daemon::logging",
        message: &message,
    };
    line.laid_out(format, "", "") + "\n"
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
        let writers = ["gc_daemon::workers", "gc_daemon::ttl::worker"];
        filters.extend(writers.map(|module| (module, LevelFilter::Debug)));
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
    fn laid_out(&self, format: LogFormat, style: &str, reset: &str) -> String {
        match format {
            LogFormat::Json => self.json(),
            LogFormat::Text => self.text(style, reset),
        }
    }

    /// `2026-11-30T03:15:00.123Z INFO gc_daemon::workers deleted …`, the level between the two style marks.
    fn text(&self, style: &str, reset: &str) -> String {
        let Line { timestamp, level, target, .. } = self;
        let message = on_one_line(&shortened(self.message));
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
            quoted(&shortened(self.message))
        )
    }
}

fn shortened(message: &str) -> Cow<'_, str> {
    if message.len() <= MESSAGE_BYTES_MAX {
        return message.into();
    }
    let mut end = MESSAGE_BYTES_MAX;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let start = message.get(..end).unwrap_or_default();
    format!("{start}… (cut, {} bytes in all)", message.len()).into()
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

/// A log that lets equal lines through now and then.
struct RepeatLimit {
    inner: env_logger::Logger,
    repeats: Mutex<Repeats>,
    backlog: Option<Backlog>,
}

impl RepeatLimit {
    /// Prints a line, and how often it was held back before.
    fn print(&self, line: &Key, held_back: u64) {
        let Key { level, target, message } = line;
        let print = |args| self.inner.log(&Record::builder().level(*level).target(target).args(args).build());
        match held_back {
            0 => print(format_args!("{message}")),
            1 => print(format_args!("{message} (repeated once)")),
            _ => print(format_args!("{message} (repeated {held_back} times)")),
        }
    }

    fn repeats(&self) -> MutexGuard<'_, Repeats> {
        // A panic while the table was locked leaves it usable: at worst a count is off by one.
        self.repeats.lock().unwrap_or_else(PoisonError::into_inner)
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
        let verdict = self.repeats().seen(&key, Instant::now());
        for (key, count) in verdict.ended {
            self.print(&key, count);
        }
        if verdict.print {
            self.print(&key, verdict.held_back);
        }
    }

    fn flush(&self) {
        for (key, count) in self.repeats().take_all() {
            self.print(&key, count);
        }
        self.inner.flush();
        if let Some(backlog) = &self.backlog {
            // What is not out by then is lost, and nobody is left to tell.
            let _ = backlog.drain(FLUSH_WITHIN);
        }
    }
}

/// The lines of late, and how often each came again. Told the time.
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

/// What becomes of a line.
struct Verdict {
    print: bool,
    /// How often this line was held back since it was printed last.
    held_back: u64,
    /// Other lines that were held back and have not come again, with the number of times.
    ended: Vec<(Key, u64)>,
}

impl Repeats {
    fn seen(&mut self, key: &Key, now: Instant) -> Verdict {
        let is_over = |key: &Key, repeat: &Repeat| {
            let window = if key.level < Level::Info { REPEAT_WINDOW } else { INFO_REPEAT_WINDOW };
            now.saturating_duration_since(repeat.printed) >= window
        };
        let ended = self.seen.extract_if(|key, repeat| is_over(key, repeat));
        let mut ended: Vec<_> =
            ended.map(|(key, repeat)| (key, repeat.held_back)).filter(|it| it.1 > 0).collect();
        if let Some(repeat) = self.seen.get_mut(key) {
            repeat.held_back += 1;
            return Verdict { print: false, held_back: 0, ended };
        }
        if self.seen.len() < REPEATS_MAX {
            self.seen.insert(key.clone(), Repeat { printed: now, held_back: 0 });
        }
        let itself = ended.iter().position(|(ended, _)| ended == key);
        let held_back = itself.map_or(0, |at| ended.swap_remove(at).1);
        Verdict { print: true, held_back, ended }
    }

    fn take_all(&mut self) -> Vec<(Key, u64)> {
        self.seen.drain().map(|(key, repeat)| (key, repeat.held_back)).filter(|it| it.1 > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

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
    fn r2_a_long_line_is_cut_and_stays_json() {
        let message = "é".repeat(MESSAGE_BYTES_MAX);
        let line = line(Level::Trace, &message);
        let value: serde_json::Value = serde_json::from_str(&line.json()).unwrap();
        assert!(value["msg"].as_str().unwrap().ends_with("é… (cut, 16384 bytes in all)"));
        assert!(line.text("", "").len() < MESSAGE_BYTES_MAX + 200);
    }

    #[test]
    fn r2_lost_lines_are_a_line_of_either_format() {
        let value: serde_json::Value = serde_json::from_str(&lost(3, LogFormat::Json)).unwrap();
        assert_eq!(value["msg"], "3 lines of the log were lost: standard error did not take them in time");
        assert!(lost(3, LogFormat::Text).ends_with("did not take them in time\n"));
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
                "gc_daemon::ttl::worker",
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
            -v 0: gc_daemon=INFO gc_daemon::workers=INFO gc_daemon::ttl::worker=INFO gc_core::delete=INFO gc_client::http=INFO ureq=WARN rustls::client=WARN
            -v 2: gc_daemon=INFO gc_daemon::workers=DEBUG gc_daemon::ttl::worker=DEBUG gc_core::delete=INFO gc_client::http=INFO ureq=WARN rustls::client=WARN
            -v 4: gc_daemon=DEBUG gc_daemon::workers=DEBUG gc_daemon::ttl::worker=DEBUG gc_core::delete=DEBUG gc_client::http=DEBUG ureq=WARN rustls::client=WARN
            -v 5: gc_daemon=TRACE gc_daemon::workers=TRACE gc_daemon::ttl::worker=TRACE gc_core::delete=TRACE gc_client::http=DEBUG ureq=WARN rustls::client=WARN
            -v 8: gc_daemon=TRACE gc_daemon::workers=TRACE gc_daemon::ttl::worker=TRACE gc_core::delete=TRACE gc_client::http=TRACE ureq=WARN rustls::client=WARN
            -v 10: gc_daemon=TRACE gc_daemon::workers=TRACE gc_daemon::ttl::worker=TRACE gc_core::delete=TRACE gc_client::http=TRACE ureq=WARN rustls::client=WARN
        "#]].assert_eq(&actual);
    }

    /// Lines at their times in milliseconds, with what became of each.
    fn check_repeats(level: Level, lines: &[(u64, &str)], expected: &Expect) {
        let mut repeats = Repeats::default();
        let start = Instant::now();
        let mut actual = String::new();
        for (ms, message) in lines {
            let verdict = repeats.seen(&key(level, message), start + Duration::from_millis(*ms));
            actual += &format!("{message} at {ms}:");
            for (key, count) in &verdict.ended {
                actual += &format!(" [{} repeated {count}]", key.message);
            }
            actual += &match verdict {
                Verdict { print: false, .. } => " held back\n".to_owned(),
                Verdict { held_back: 0, .. } => " printed\n".to_owned(),
                Verdict { held_back, .. } => format!(" printed, repeated {held_back}\n"),
            };
        }
        expected.assert_eq(&actual);
    }

    fn key(level: Level, message: &str) -> Key {
        Key { level, target: "t".into(), message: message.into() }
    }

    #[test]
    fn kubernetes_108373_equal_lines_are_printed_once_a_second_and_counted() {
        let lines = [
            (0, "a"),
            (10, "a"),
            (20, "b"),
            (30, "a"),
            (999, "a"),
            (1_000, "c"),
            (1_001, "a"),
            (1_030, "b"),
            (1_040, "b"),
            (3_000, "b"),
            (3_001, "c"),
        ];
        check_repeats(
            Level::Info,
            &lines,
            &expect![[r#"
                a at 0: printed
                a at 10: held back
                b at 20: printed
                a at 30: held back
                a at 999: held back
                c at 1000: [a repeated 3] printed
                a at 1001: printed
                b at 1030: printed
                b at 1040: held back
                b at 3000: printed, repeated 1
                c at 3001: printed
            "#]],
        );
    }

    #[test]
    fn kubernetes_108373_equal_warnings_are_printed_once_a_minute() {
        let lines = [(0, "down"), (1_000, "down"), (59_999, "down"), (60_000, "down"), (61_000, "down")];
        check_repeats(
            Level::Warn,
            &lines,
            &expect![[r#"
                down at 0: printed
                down at 1000: held back
                down at 59999: held back
                down at 60000: printed, repeated 2
                down at 61000: held back
            "#]],
        );
    }

    #[test]
    fn kubernetes_108373_the_table_of_repeats_is_bounded() {
        let mut repeats = Repeats::default();
        let now = Instant::now();
        for n in 0..10 * REPEATS_MAX {
            assert!(repeats.seen(&key(Level::Info, &n.to_string()), now).print);
        }
        assert_eq!(repeats.seen.len(), REPEATS_MAX);
    }
}
