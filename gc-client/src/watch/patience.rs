//! A reader that waits through time-outs, but not for ever.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, TryRecvError};

/// Whether the caller has asked to stop, by a message or by letting go of the other end.
pub(super) fn is_stopped(stop: &Receiver<()>) -> bool {
    !matches!(stop.try_recv(), Err(TryRecvError::Empty))
}

/// Reads on after each time-out of the stream underneath (a tick), until one of its limits is reached or the caller
/// asks to stop.
///
/// What counts is the time spent reading. The time that the sink takes with what was read is not the server's fault:
/// a full channel must not look like a dead peer.
#[derive(Debug)]
pub(super) struct Patience<'s, R> {
    reader: R,
    stop: &'s Receiver<()>,
    /// Of reading altogether.
    left: Duration,
    /// Of reading without a byte.
    silence: Duration,
    silence_max: Duration,
}

impl<'s, R: Read> Patience<'s, R> {
    pub(super) fn new(
        reader: R,
        stop: &'s Receiver<()>,
        reading_max: Duration,
        silence_max: Duration,
    ) -> Self {
        Patience { reader, stop, left: reading_max, silence: Duration::ZERO, silence_max }
    }
}

impl<R: Read> Read for Patience<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the answer should have ended by now"));
            }
            let began = Instant::now();
            let result = self.reader.read(into);
            let spent = began.elapsed();
            self.left = self.left.saturating_sub(spent);
            match result {
                Err(error) if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => {
                    self.silence += spent;
                    if is_stopped(self.stop) {
                        return Err(io::Error::other("stopped"));
                    }
                    if self.silence >= self.silence_max {
                        let cause = format!("nothing came for {} s", self.silence.as_secs());
                        return Err(io::Error::new(io::ErrorKind::TimedOut, cause));
                    }
                }
                Ok(count) => {
                    self.silence = Duration::ZERO;
                    return Ok(count);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
