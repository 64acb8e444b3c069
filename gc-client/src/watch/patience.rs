//! A reader that waits through time-outs, but not for ever.

use std::cell::Cell;
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
    /// May change while it is read.
    silence_max: &'s Cell<Duration>,
}

impl<'s, R: Read> Patience<'s, R> {
    pub(super) fn new(
        reader: R,
        stop: &'s Receiver<()>,
        reading_max: Duration,
        silence_max: &'s Cell<Duration>,
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
                    if self.silence >= self.silence_max.get() {
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

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Times out after a millisecond, for ever or until its bytes are due.
    struct Quiet {
        ticks: u32,
        then: &'static [u8],
    }

    impl Read for Quiet {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            thread::sleep(Duration::from_millis(1));
            if self.ticks > 0 {
                self.ticks -= 1;
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.then.read(into)
        }
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn s5_time_outs_in_between_are_waited_through() {
        let (_stop, stopped) = crossbeam_channel::bounded(0);
        let mut bytes = [0; 8];
        let count = Patience::new(Quiet { ticks: 3, then: b"ab" }, &stopped, LONG, &Cell::new(LONG))
            .read(&mut bytes)
            .unwrap();
        assert_eq!(&bytes[..count], b"ab");
    }

    #[test]
    fn kars_456_a_peer_that_is_silent_for_ever_is_given_up() {
        let (_stop, stopped) = crossbeam_channel::bounded(0);
        let short = Duration::from_millis(20);
        for (reading_max, silence_max) in [(short, LONG), (LONG, short)] {
            let quiet = Quiet { ticks: u32::MAX, then: b"" };
            let error = Patience::new(quiet, &stopped, reading_max, &Cell::new(silence_max))
                .read(&mut [0])
                .unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
    }

    #[test]
    fn kars_456_a_peer_that_trickles_for_ever_is_given_up() {
        let (_stop, stopped) = crossbeam_channel::bounded(0);
        let quiet = Quiet { ticks: 0, then: &[b'x'; 100_000] };
        let long = Cell::new(LONG);
        let mut patience = Patience::new(quiet, &stopped, Duration::from_millis(20), &long);
        let mut reads = 0;
        let error = loop {
            match patience.read(&mut [0]) {
                Ok(count) => reads += count,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(reads < 100, "{reads}");
    }

    #[test]
    fn a_sink_that_takes_its_time_is_no_dead_peer() {
        let (_stop, stopped) = crossbeam_channel::bounded(0);
        let short = Duration::from_millis(500);
        let silence_max = Cell::new(short);
        let mut patience = Patience::new(Quiet { ticks: 1, then: b"ab" }, &stopped, short, &silence_max);
        thread::sleep(short * 2);
        assert_eq!(patience.read(&mut [0]).unwrap(), 1);
    }

    #[test]
    fn a_stop_ends_the_waiting() {
        let (stop, stopped) = crossbeam_channel::bounded(0);
        drop(stop);
        let quiet = Quiet { ticks: u32::MAX, then: b"" };
        let error = Patience::new(quiet, &stopped, LONG, &Cell::new(LONG)).read(&mut [0]).unwrap_err();
        assert_eq!(error.to_string(), "stopped");
    }
}
