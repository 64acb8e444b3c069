//! JSON itself, piece by piece as it arrives: the caller says what it expects next.
//!
//! Nothing is held of what is passed over, and nothing recurses. What is passed over is checked all the same, but for
//! the encoding of its text: one flipped bit may not make a part of an object look like the next one.

use std::io::Read;

use crate::wire::WireError;
use crate::wire::source::Source;

/// The most bytes of one object, whether kept or passed over. Since nothing is held of them this bounds only how long a
/// stream may go on that never ends. etcd stores nothing above 1.5 MiB; the rest is room for aggregated servers.
pub(super) const OBJECT_BYTES_MAX: u64 = 64 << 20;
/// How deep a value may be nested that is passed over. Kubernetes' own decoder takes no more, so that nobody can store it.
const DEPTH_MAX: usize = 10_000;
/// The most bytes of a key that are looked at; one of more is none that is wanted. An annotation's has at most 317.
const KEY_BYTES_MAX: usize = 1 << 10;

/// Where a stream of JSON is.
#[derive(Debug)]
pub(in crate::wire) struct Parser<'s, R> {
    source: &'s mut Source<R>,
    /// At this offset the object at hand has become too long.
    object_ends_by: u64,
    /// The brackets that are open in the value that is passed over.
    open: Vec<u8>,
    /// The key that was read last; empty for one that is too long.
    key: String,
    copy: Option<Copy>,
}

/// An object that the caller is inside of, or a list.
#[derive(Debug)]
pub(in crate::wire) struct Inside {
    is_first: bool,
}

/// A value that is copied while it is passed over.
#[derive(Debug)]
struct Copy {
    bytes: Vec<u8>,
    bytes_max: usize,
    is_over: bool,
}

impl<'s, R: Read> Parser<'s, R> {
    pub(super) fn new(source: &'s mut Source<R>) -> Parser<'s, R> {
        let object_ends_by = source.offset().saturating_add(OBJECT_BYTES_MAX);
        Parser { source, object_ends_by, open: Vec::new(), key: String::new(), copy: None }
    }

    /// The next object of a list begins: the limit counts anew.
    pub(super) fn begin_object(&mut self) {
        self.object_ends_by = self.source.offset().saturating_add(OBJECT_BYTES_MAX);
    }

    /// How many bytes have been consumed.
    pub(super) fn offset(&self) -> u64 {
        self.source.offset()
    }

    /// The first byte of what comes next, which stays.
    pub(in crate::wire) fn next(&mut self) -> Result<u8, WireError> {
        loop {
            match self.peek()? {
                b' ' | b'\t' | b'\n' | b'\r' => self.advance(1),
                byte => return Ok(byte),
            }
        }
    }

    /// Whether null comes next; if so it is passed over.
    pub(super) fn null(&mut self) -> Result<bool, WireError> {
        let is_null = self.next()? == b'n';
        if is_null {
            self.literal("null")?;
        }
        Ok(is_null)
    }

    /// True or false, or `None` for null.
    pub(super) fn boolean(&mut self, what: &str) -> Result<Option<bool>, WireError> {
        match self.next()? {
            b't' => self.literal("true").map(|()| Some(true)),
            b'f' => self.literal("false").map(|()| Some(false)),
            b'n' => self.literal("null").map(|()| None),
            found => Err(self.unexpected(what, found)),
        }
    }

    /// Passes over a number. It is given where it is a whole one that is not negative.
    pub(super) fn number(&mut self) -> Result<Option<u64>, WireError> {
        self.next()?;
        let is_negative = self.take_if(b'-')?;
        let mut whole = Some(0_u64);
        if !self.take_if(b'0')? {
            self.digits(|digit| {
                whole = whole.and_then(|whole| whole.checked_mul(10)?.checked_add(u64::from(digit)));
            })?;
        }
        if self.take_if(b'.')? {
            whole = None;
            self.digits(|_| ())?;
        }
        if self.take_if(b'e')? || self.take_if(b'E')? {
            whole = None;
            if !self.take_if(b'+')? {
                self.take_if(b'-')?;
            }
            self.digits(|_| ())?;
        }
        Ok(whole.filter(|_| !is_negative))
    }

    /// Goes into an object.
    pub(in crate::wire) fn object(&mut self, what: &str) -> Result<Inside, WireError> {
        self.enter(b'{', what)
    }

    /// Calls before each value of a list, which the call reads; null is an empty one.
    pub(super) fn each(
        &mut self,
        what: &str,
        mut read: impl FnMut(&mut Self) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        if self.null()? {
            return Ok(());
        }
        let mut inside = self.enter(b'[', what)?;
        while self.goes_on(&mut inside, b']')? {
            read(self)?;
        }
        Ok(())
    }

    /// Goes on to the next value of an object, past its key. False at the end of the object, which is passed over.
    pub(in crate::wire) fn member(&mut self, inside: &mut Inside) -> Result<bool, WireError> {
        if !self.goes_on(inside, b'}')? {
            return Ok(false);
        }
        if self.next()? != b'"' {
            return Err(self.malformed("a key that is no string"));
        }
        let mut key = std::mem::take(&mut self.key).into_bytes();
        key.clear();
        self.string(|bytes| {
            if key.len() <= KEY_BYTES_MAX {
                key.extend_from_slice(bytes);
            }
            Ok(())
        })?;
        if key.len() > KEY_BYTES_MAX {
            key.clear();
        }
        self.key = String::from_utf8(key).map_err(|_| self.malformed("a key that is not UTF-8"))?;
        self.colon()?;
        Ok(true)
    }

    /// The key of the value that comes next; empty for one that is too long.
    pub(in crate::wire) fn key(&self) -> &str {
        &self.key
    }

    /// Reads a string, piece by piece as it is meant.
    pub(super) fn string(
        &mut self,
        mut sink: impl FnMut(&[u8]) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        self.take(b'"')?;
        while !self.plain_text(&mut sink)? {
            let meant = self.escaped()?;
            sink(meant.encode_utf8(&mut [0; 4]).as_bytes())?;
        }
        Ok(())
    }

    /// Goes on in a string: true at its end, which is passed over, and false at a backslash.
    fn plain_text(
        &mut self,
        mut sink: impl FnMut(&[u8]) -> Result<(), WireError>,
    ) -> Result<bool, WireError> {
        loop {
            let bytes = self.available()?;
            let plain = plain_length(bytes);
            let end = bytes.get(plain).copied();
            if plain > 0 {
                sink(&bytes[..plain])?;
            }
            self.advance(plain);
            match end {
                None => {}
                Some(b'"') => {
                    self.advance(1);
                    return Ok(true);
                }
                Some(b'\\') => return Ok(false),
                Some(_) => return Err(self.malformed("a string with a control character")),
            }
        }
    }

    /// Passes over a value and gives a copy of it; `None` where it has more bytes than that.
    pub(in crate::wire) fn copy(&mut self, bytes_max: usize) -> Result<Option<Vec<u8>>, WireError> {
        self.next()?;
        self.copy = Some(Copy { bytes: Vec::new(), bytes_max, is_over: false });
        let passed = self.pass();
        let copy = self.copy.take();
        passed?;
        Ok(copy.filter(|copy| !copy.is_over).map(|copy| copy.bytes))
    }

    /// Passes over a value.
    pub(in crate::wire) fn pass(&mut self) -> Result<(), WireError> {
        self.open.clear();
        loop {
            if self.pass_until_closed()? && !self.pass_to_next_value()? {
                return Ok(());
            }
        }
    }

    /// Passes over a scalar or an empty object or list, or over the beginning of one that is not empty, up to the first
    /// value in it: false.
    fn pass_until_closed(&mut self) -> Result<bool, WireError> {
        match self.next()? {
            b'"' => self.pass_string()?,
            b'{' => return self.pass_open(b'{', b'}'),
            b'[' => return self.pass_open(b'[', b']'),
            b't' => self.literal("true")?,
            b'f' => self.literal("false")?,
            b'n' => self.literal("null")?,
            b'-' | b'0'..=b'9' => {
                self.number()?;
            }
            found => return Err(self.unexpected("a value", found)),
        }
        Ok(true)
    }

    fn pass_open(&mut self, open: u8, close: u8) -> Result<bool, WireError> {
        if self.open.len() == DEPTH_MAX {
            return Err(self.malformed("a value that is nested deeper than Kubernetes decodes"));
        }
        self.advance(1);
        if self.next()? == close {
            self.advance(1);
            return Ok(true);
        }
        self.open.push(open);
        if open == b'{' {
            self.pass_key()?;
        }
        Ok(false)
    }

    /// Behind a value: passes over what ends with it. False where that is all.
    fn pass_to_next_value(&mut self) -> Result<bool, WireError> {
        while let Some(&open) = self.open.last() {
            match (open, self.next()?) {
                (b'{', b',') => {
                    self.advance(1);
                    self.pass_key()?;
                    return Ok(true);
                }
                (_, b',') => {
                    self.advance(1);
                    return Ok(true);
                }
                (b'{', b'}') | (b'[', b']') => {
                    self.advance(1);
                    self.open.pop();
                }
                (_, found) => return Err(self.unexpected("a comma or the end", found)),
            }
        }
        Ok(false)
    }

    fn pass_key(&mut self) -> Result<(), WireError> {
        if self.next()? != b'"' {
            return Err(self.malformed("a key that is no string"));
        }
        self.pass_string()?;
        self.colon()
    }

    fn pass_string(&mut self) -> Result<(), WireError> {
        self.advance(1);
        while !self.plain_text(|_| Ok(()))? {
            self.pass_escape()?;
        }
        Ok(())
    }

    /// Half a surrogate pair means nothing, and does no harm where it is not wanted.
    fn pass_escape(&mut self) -> Result<(), WireError> {
        self.take(b'\\')?;
        match self.peek()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.advance(1),
            b'u' => {
                self.advance(1);
                self.four_digits()?;
            }
            found => return Err(self.unexpected("an escape", found)),
        }
        Ok(())
    }

    fn enter(&mut self, open: u8, what: &str) -> Result<Inside, WireError> {
        let found = self.next()?;
        if found != open {
            return Err(self.unexpected(what, found));
        }
        self.advance(1);
        Ok(Inside { is_first: true })
    }

    /// Whether another value comes before the end of what we are inside of.
    fn goes_on(&mut self, inside: &mut Inside, close: u8) -> Result<bool, WireError> {
        let is_first = std::mem::replace(&mut inside.is_first, false);
        match self.next()? {
            found if found == close => {
                self.advance(1);
                return Ok(false);
            }
            b',' if !is_first => self.advance(1),
            _ if is_first => {}
            found => return Err(self.unexpected("a comma or the end", found)),
        }
        Ok(true)
    }

    fn colon(&mut self) -> Result<(), WireError> {
        self.next()?;
        self.take(b':')
    }

    /// At least one digit.
    fn digits(&mut self, mut each: impl FnMut(u8)) -> Result<(), WireError> {
        let mut is_first = true;
        loop {
            match self.peek()? {
                digit @ b'0'..=b'9' => each(digit - b'0'),
                found if is_first => return Err(self.unexpected("a digit", found)),
                _ => return Ok(()),
            }
            is_first = false;
            self.advance(1);
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), WireError> {
        for expected in word.bytes() {
            match self.peek()? {
                found if found == expected => self.advance(1),
                found => return Err(self.unexpected(word, found)),
            }
        }
        Ok(())
    }

    /// What a backslash and what follows it mean.
    fn escaped(&mut self) -> Result<char, WireError> {
        self.take(b'\\')?;
        let meant = match self.peek()? {
            byte @ (b'"' | b'\\' | b'/') => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.escaped_by_number(),
            found => return Err(self.unexpected("an escape", found)),
        };
        self.advance(1);
        Ok(meant)
    }

    /// A `u` with four digits, and its second half where it is the first half of a pair.
    fn escaped_by_number(&mut self) -> Result<char, WireError> {
        self.take(b'u')?;
        let first = self.four_digits()?;
        let code = match first {
            0xD800..=0xDBFF => {
                self.take(b'\\')?;
                self.take(b'u')?;
                let second = self.four_digits()?;
                if !(0xDC00..=0xDFFF).contains(&second) {
                    return Err(self.malformed("half a surrogate pair"));
                }
                0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00)
            }
            other => other,
        };
        char::from_u32(code).ok_or_else(|| self.malformed("half a surrogate pair"))
    }

    fn four_digits(&mut self) -> Result<u32, WireError> {
        let mut code = 0;
        for _ in 0..4 {
            let found = self.peek()?;
            let digit =
                char::from(found).to_digit(16).ok_or_else(|| self.unexpected("a hex digit", found))?;
            code = code << 4 | digit;
            self.advance(1);
        }
        Ok(code)
    }

    fn take(&mut self, expected: u8) -> Result<(), WireError> {
        match self.peek()? {
            found if found == expected => {
                self.advance(1);
                Ok(())
            }
            found => Err(self.unexpected(char::from(expected).encode_utf8(&mut [0; 4]), found)),
        }
    }

    fn take_if(&mut self, expected: u8) -> Result<bool, WireError> {
        let is_next = self.peek()? == expected;
        if is_next {
            self.advance(1);
        }
        Ok(is_next)
    }

    fn peek(&mut self) -> Result<u8, WireError> {
        match self.source.buffered().first() {
            Some(byte) => Ok(*byte),
            None => self.available().map(|bytes| bytes.first().copied().unwrap_or_default()),
        }
    }

    /// At least one byte.
    fn available(&mut self) -> Result<&[u8], WireError> {
        if self.source.buffered().is_empty() {
            if self.source.offset() >= self.object_ends_by {
                // Where it is noticed depends on how the bytes came.
                let what = "an object of more bytes than any server sends";
                return Err(WireError::malformed(self.object_ends_by, what));
            }
            self.source.fill()?;
        }
        Ok(self.source.buffered())
    }

    /// Passes over so many bytes of what is buffered.
    fn advance(&mut self, count: usize) {
        if let Some(copy) = &mut self.copy {
            copy.take(self.source.buffered().get(..count).unwrap_or_default());
        }
        self.source.consume(count);
    }

    pub(in crate::wire) fn unexpected(&self, expected: &str, found: u8) -> WireError {
        let found = match found {
            b'"' => "a string".to_owned(),
            b'{' => "an object".to_owned(),
            b'[' => "an array".to_owned(),
            b'-' | b'0'..=b'9' => "a number".to_owned(),
            b't' | b'f' => "a boolean".to_owned(),
            b'n' => "null".to_owned(),
            0x21..=0x7E => format!("'{}'", char::from(found)),
            other => format!("the byte {other:#04x}"),
        };
        self.malformed(format!("expected {expected}, found {found}"))
    }

    pub(in crate::wire) fn malformed(&self, what: impl AsRef<str>) -> WireError {
        self.source.malformed(format!("JSON: {}", what.as_ref()))
    }
}

impl Copy {
    fn take(&mut self, bytes: &[u8]) {
        if self.is_over || self.bytes.len() + bytes.len() > self.bytes_max {
            // Memory comes back at once.
            (self.is_over, self.bytes) = (true, Vec::new());
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }
}

/// How many bytes stand before the first one that ends a string or is not what it means: eight at a time.
fn plain_length(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let special = special_bytes(u64::from_le_bytes(*word));
        if special != 0 {
            return index * 8 + special.trailing_zeros() as usize / 8;
        }
    }
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    words.len() * 8 + rest.iter().position(is_special).unwrap_or(rest.len())
}

/// The highest bit of each byte that is a quote, a backslash or a control character. A byte behind such a one may be
/// marked wrongly, never one before it: a subtraction borrows upwards only.
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let zero_bytes = |word: u64| word.wrapping_sub(ONES) & !word;
    let quotes = zero_bytes(word ^ (ONES * b'"' as u64));
    let backslashes = zero_bytes(word ^ (ONES * b'\\' as u64));
    let controls = word.wrapping_sub(ONES * 0x20) & !word;
    (quotes | backslashes | controls) & (ONES << 7)
}

#[cfg(test)]
mod tests;
