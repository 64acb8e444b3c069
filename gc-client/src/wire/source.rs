//! A buffered reader that knows where it is.

use std::io::{self, Read};

use super::WireError;
use crate::batch::append;

/// For a list: few are read at once, and there may be much in them. A whole record of TLS comes with one call.
const LIST_BYTES: usize = 16 << 10;
/// For a watch: there is one for each resource, and nothing comes for minutes.
const WATCH_BYTES: usize = 1 << 10;

/// Bytes of one body.
#[derive(Debug)]
pub(super) struct Source<R> {
    reader: R,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Everything before `buffer[start]`.
    offset: u64,
}

impl<R: Read> Source<R> {
    pub(super) fn of_list(reader: R) -> Source<R> {
        Source::new(reader, LIST_BYTES)
    }

    pub(super) fn of_watch(reader: R) -> Source<R> {
        Source::new(reader, WATCH_BYTES)
    }

    fn new(reader: R, buffer_bytes: usize) -> Source<R> {
        Source { reader, buffer: vec![0; buffer_bytes].into_boxed_slice(), start: 0, end: 0, offset: 0 }
    }

    /// How many bytes have been consumed.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the stream has ended. Waits for the next byte.
    pub(super) fn at_end(&mut self) -> io::Result<bool> {
        Ok(self.peek()?.is_none())
    }

    /// The next byte, which stays; `None` at the end of the stream.
    pub(super) fn peek(&mut self) -> io::Result<Option<u8>> {
        Ok(self.available()?.first().copied())
    }

    /// The next byte, or an error where there is none.
    pub(super) fn byte(&mut self) -> Result<u8, WireError> {
        match self.peek()? {
            Some(byte) => {
                self.consume(1);
                Ok(byte)
            }
            None => Err(self.cut()),
        }
    }

    /// Passes over that many bytes.
    #[inline]
    pub(super) fn skip(&mut self, count: u64) -> Result<(), WireError> {
        if count <= (self.end - self.start) as u64 {
            self.consume(count as usize);
            return Ok(());
        }
        self.skip_far(count)
    }

    fn skip_far(&mut self, mut count: u64) -> Result<(), WireError> {
        while count > 0 {
            let step = self.available()?.len().min(usize::try_from(count).unwrap_or(usize::MAX));
            if step == 0 {
                return Err(self.cut());
            }
            self.consume(step);
            count -= step as u64;
        }
        Ok(())
    }

    /// Appends that many bytes to the vector. The caller has checked the count against its limit.
    pub(super) fn take(&mut self, mut count: usize, into: &mut Vec<u8>) -> Result<(), WireError> {
        while count > 0 {
            let bytes = self.available()?;
            let bytes = &bytes[..bytes.len().min(count)];
            append(into, bytes);
            let step = bytes.len();
            if step == 0 {
                return Err(self.cut());
            }
            self.consume(step);
            count -= step;
        }
        Ok(())
    }

    /// An error at this place.
    pub(super) fn malformed(&self, what: impl Into<String>) -> WireError {
        WireError::malformed(self.offset, what)
    }

    fn cut(&self) -> WireError {
        self.malformed("the body ends in the middle of something")
    }

    /// What is buffered, which may be nothing.
    #[inline]
    pub(super) fn buffered(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Waits until at least one byte is buffered, or fails.
    pub(super) fn fill(&mut self) -> Result<(), WireError> {
        if self.available()?.is_empty() { Err(self.cut()) } else { Ok(()) }
    }

    /// What is buffered, at least one byte of it unless the stream has ended.
    fn available(&mut self) -> io::Result<&[u8]> {
        while self.start == self.end {
            match self.reader.read(&mut self.buffer) {
                Ok(count) => {
                    // A reader that claims more than it was given room for would be broken; it must not make us panic.
                    (self.start, self.end) = (0, count.min(self.buffer.len()));
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// Passes over so many bytes of what is buffered.
    #[inline]
    pub(super) fn consume(&mut self, count: usize) {
        let count = count.min(self.end - self.start);
        self.start += count;
        self.offset += count as u64;
    }
}
