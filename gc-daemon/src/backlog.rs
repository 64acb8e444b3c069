//! The way of the log's lines to standard error, which may take them late or never.
//!
//! A terminal that was stopped, a `tee` that hangs, a container runtime whose pipe is full: whoever writes there waits.
//! Objects must not wait with it, and neither must a signal. So a thread of its own writes, and everybody else only
//! puts lines into a bounded backlog. What does not fit is lost and counted, and the count is a line of the log.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lines that wait to be written, in bytes. That is minutes of an ordinary log and a second or two of the most talkative
/// one; a reader that is behind further than this has stopped.
const BACKLOG_BYTES_MAX: usize = 4 << 20;
/// Lines that have come meanwhile go out in one write of about so much: what a pipe holds.
const WRITE_BYTES: usize = 64 << 10;
/// So long the writer rests after a write. At a thousand deletions a second, each with its line, to be woken for each cost
/// a tenth of what the daemon used; a person does not see the difference.
const REST: Duration = Duration::from_millis(5);

/// Lines on their way to the writer. Clones share them.
#[derive(Clone)]
pub struct Backlog {
    shared: Arc<Shared>,
}

struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    pieces: VecDeque<Piece>,
    /// Of the lines in `pieces` and of those that are being written.
    bytes: usize,
    /// Lines that did not fit since the last that did.
    lost: u64,
    is_writing: bool,
    /// Whether the writer sleeps until a line comes.
    is_asleep: bool,
}

enum Piece {
    Line(Vec<u8>),
    /// So many lines were lost between the line before and the line after.
    Lost(u64),
}

impl Backlog {
    /// Starts the thread, named `log`. It ends with the process: a write that hangs cannot be interrupted.
    ///
    /// `lost` makes the line that says how many were lost.
    ///
    /// # Errors
    ///
    /// The system could not start a thread.
    pub fn start(
        out: impl Write + Send + 'static,
        lost: impl Fn(u64) -> String + Send + 'static,
    ) -> io::Result<Backlog> {
        let shared = Arc::new(Shared { waiting: Mutex::default(), changed: Condvar::new() });
        let backlog = Backlog { shared: Arc::clone(&shared) };
        std::thread::Builder::new().name("log".to_owned()).spawn(move || shared.write_all(out, lost))?;
        Ok(backlog)
    }

    /// Waits until everything has been written, but no longer than this. Says whether it was.
    pub fn drain(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        let mut waiting = self.shared.lock();
        while !waiting.is_done() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.shared.changed.wait_timeout(waiting, left);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// One call of `write` is one line. It never waits and never fails.
impl Write for Backlog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = self.shared.lock();
        waiting.push(line);
        if std::mem::take(&mut waiting.is_asleep) {
            drop(waiting);
            self.shared.changed.notify_all();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Each change is whole before anything could panic.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all(&self, mut out: impl Write, lost: impl Fn(u64) -> String) {
        loop {
            let mut text = Vec::new();
            let waiting = self.lock();
            let waiting = self.changed.wait_while(waiting, |waiting| {
                waiting.is_asleep = waiting.is_empty();
                waiting.is_asleep
            });
            let bytes = waiting.unwrap_or_else(PoisonError::into_inner).take(&mut text, &lost);
            // A reader that went away (`gc-daemon 2>&1 | head -1`) is no reason to stop collecting.
            let _ = out.write_all(&text).and_then(|()| out.flush());
            let mut waiting = self.lock();
            waiting.bytes -= bytes;
            waiting.is_writing = false;
            drop(waiting);
            self.changed.notify_all();
            std::thread::sleep(REST);
        }
    }
}

impl Waiting {
    fn push(&mut self, line: &[u8]) {
        if self.bytes + line.len() > BACKLOG_BYTES_MAX {
            self.lost += 1;
            return;
        }
        if self.lost > 0 {
            self.pieces.push_back(Piece::Lost(std::mem::take(&mut self.lost)));
        }
        self.bytes += line.len();
        self.pieces.push_back(Piece::Line(line.to_vec()));
    }

    /// Takes as much as goes out in one write; how many bytes of lines that is.
    fn take(&mut self, text: &mut Vec<u8>, lost: &impl Fn(u64) -> String) -> usize {
        let mut bytes = 0;
        while text.len() < WRITE_BYTES {
            match self.next() {
                Some(Piece::Line(line)) => {
                    bytes += line.len();
                    text.extend(line);
                }
                Some(Piece::Lost(count)) => text.extend(lost(count).into_bytes()),
                None => break,
            }
        }
        self.is_writing = true;
        bytes
    }

    fn next(&mut self) -> Option<Piece> {
        self.pieces.pop_front().or_else(|| {
            // What was lost last is told once all before it is out.
            let lost = std::mem::take(&mut self.lost);
            (lost > 0).then_some(Piece::Lost(lost))
        })
    }

    fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.lost == 0
    }

    fn is_done(&self) -> bool {
        self.is_empty() && !self.is_writing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

    /// A standard error that takes a line each time that somebody allows it.
    struct Gated {
        allowed: Receiver<()>,
        written: Sender<String>,
    }

    impl Write for Gated {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            // Nobody allows anything any more: everything goes through.
            let _ = self.allowed.recv();
            self.written.send(String::from_utf8_lossy(line).into_owned()).map_err(io::Error::other)?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn r6_a_reader_that_stopped_holds_nobody_up_and_what_is_lost_is_counted() {
        let (allow, allowed) = bounded(0);
        let (written, lines) = unbounded();
        let mut backlog =
            Backlog::start(Gated { allowed, written }, |count| format!("{count} lost\n")).unwrap();
        let long = "x".repeat(BACKLOG_BYTES_MAX - 8) + "\n";
        // The writer stands still from the first line on; none of these waits for it.
        for line in ["1\n", long.as_str(), "lost a\n", "lost b\n", "fits\n"] {
            backlog.write_all(line.as_bytes()).unwrap();
        }
        backlog.write_all(b"lost c\n").unwrap();
        assert!(!backlog.drain(Duration::from_millis(1)), "nothing was written yet");
        drop(allow);
        assert!(backlog.drain(Duration::from_secs(60)));
        let written: String = lines.try_iter().collect();
        let lines: Vec<&str> = written.lines().map(|line| &line[..line.len().min(9)]).collect();
        assert_eq!(lines, ["1", "xxxxxxxxx", "2 lost", "fits", "1 lost"]);
    }

    #[test]
    fn r6_a_reader_that_went_away_is_no_fault() {
        let (_, allowed) = bounded(0);
        let (written, _) = unbounded();
        let mut backlog =
            Backlog::start(Gated { allowed, written }, |count| format!("{count} lost")).unwrap();
        for _ in 0..3 {
            backlog.write_all(b"to nobody").unwrap();
        }
        assert!(backlog.drain(Duration::from_secs(60)));
    }
}
