//! Structure from bytes: whatever is to be made up is read from the input, so that inputs of structured targets are
//! kept, damaged and made smaller like any others.

/// Gives what the bytes say, and zeros when they have run out.
#[derive(Debug)]
pub struct Dice<'b>(&'b [u8]);

impl<'b> Dice<'b> {
    /// Dice that show these bytes.
    pub fn new(bytes: &'b [u8]) -> Dice<'b> {
        Dice(bytes)
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    /// From 0 up to and without the limit; 0 for a limit of 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let number = if limit <= 256 {
            usize::from(self.byte())
        } else {
            usize::from(self.byte()) << 16 | usize::from(self.byte()) << 8 | usize::from(self.byte())
        };
        number.checked_rem(limit).unwrap_or_default()
    }

    /// Yes or no.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// One of these; nothing when there is none.
    pub fn pick<'t, T: ?Sized>(&mut self, of: &[&'t T]) -> Option<&'t T> {
        of.get(self.below(of.len())).copied()
    }

    /// A short text: mostly an ordinary name, sometimes anything that a string may hold.
    pub fn text(&mut self) -> String {
        let length = self.below(12);
        if self.below(4) > 0 {
            return (0..length).map(|_| char::from(b'a' + self.byte() % 26)).collect();
        }
        (0..length)
            .map(|_| match self.byte() {
                ordinary @ 0..0x80 => char::from(ordinary),
                high => char::from_u32(u32::from(high) << 9 | u32::from(self.byte())).unwrap_or('\u{fffd}'),
            })
            .collect()
    }

    /// What is left.
    pub fn rest(&mut self) -> &'b [u8] {
        std::mem::take(&mut self.0)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
