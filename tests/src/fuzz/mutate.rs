//! Damage to a valid input.

use crate::simulation::random::Random;

/// Inputs do not grow beyond this: a reader's limits show with claims of a length, not with the length itself.
const INPUT_BYTES_MAX: usize = 48 << 10;
/// So many times a piece is repeated, or a bracket is opened, at the most.
const REPEATED_MAX: u32 = 3_000;
/// What ends numbers, strings and buffers.
const ODD_BYTES: &[u8] =
    &[0, 1, 9, 10, 13, 32, 34, 39, 44, 58, 91, 92, 93, 123, 125, 0x7f, 0x80, 0xc0, 0xed, 0xff];
const NESTS: &[&[u8]] = &[b"[", b"{\"a\":", b"{a: ", b"- ", b"\x0a\x7f", b"&a [*a, ", b"("];
const NUMBERS: &[&[u8]] = &[
    b"0",
    b"-1",
    b"65536",
    b"4294967296",
    b"9223372036854775808",
    b"18446744073709551616",
    b"1e999",
    b"0x10",
    b"9999999999999999999999999999999999999999",
];

/// The input with one to six kinds of damage.
pub(super) fn mutate(random: &mut Random, input: &[u8], corpus: &[Vec<u8>], words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..random.within(1, 6) {
        damage(random, &mut bytes, corpus, words);
        bytes.truncate(INPUT_BYTES_MAX);
    }
    bytes
}

fn damage(random: &mut Random, bytes: &mut Vec<u8>, corpus: &[Vec<u8>], words: &[&[u8]]) {
    let at = random.below(bytes.len() + 1);
    match random.below(14) {
        0 | 1 => {
            let bit = random.below(8);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << bit;
            }
        }
        2 => {
            let odd = random.pick(ODD_BYTES).copied().unwrap_or_default();
            if let Some(byte) = bytes.get_mut(at) {
                *byte = odd;
            }
        }
        3 => {
            let new = random.next().to_le_bytes()[0];
            if let Some(byte) = bytes.get_mut(at) {
                *byte = new;
            }
        }
        4 => drop(bytes.drain(piece(random, bytes.len()))),
        5 => bytes.truncate(at),
        6 => {
            let repeated = bytes.get(piece(random, bytes.len())).unwrap_or_default().to_vec();
            let most = if random.permille(100) { REPEATED_MAX } else { 3 };
            let times = random.within(1, most).min(room(bytes, repeated.len()));
            insert(bytes, at, &repeated.repeat(times as usize));
        }
        7 | 8 => insert(bytes, at, random.pick(words).copied().unwrap_or(b"\0")),
        9 => {
            let other = random.pick(corpus).map(Vec::as_slice).unwrap_or_default();
            let stolen = other.get(piece(random, other.len())).unwrap_or_default();
            insert(bytes, at, stolen);
        }
        10 => {
            let other = random.pick(corpus).map(Vec::as_slice).unwrap_or_default();
            bytes.truncate(at);
            bytes.extend_from_slice(other.get(random.below(other.len() + 1)..).unwrap_or_default());
        }
        11 => number(random, bytes, at),
        12 => {
            let length = random.within(1, 10) as usize;
            let mut varint = vec![0xff; length];
            varint.push(random.next().to_le_bytes()[0] & 0x7f);
            replace_some(random, bytes, at, &varint);
        }
        _ => {
            let nest = random.pick(NESTS).copied().unwrap_or(b"[");
            let most = if random.permille(100) { REPEATED_MAX } else { 8 };
            let times = random.within(1, most).min(room(bytes, nest.len()));
            insert(bytes, at, &nest.repeat(times as usize));
        }
    }
}

/// How often a piece still fits in.
fn room(bytes: &[u8], piece: usize) -> u32 {
    let left = INPUT_BYTES_MAX.saturating_sub(bytes.len());
    u32::try_from(left.checked_div(piece).unwrap_or_default()).unwrap_or_default()
}

/// Mostly a short piece.
fn piece(random: &mut Random, length: usize) -> std::ops::Range<usize> {
    let start = random.below(length);
    let most = if random.permille(700) { 16 } else { length };
    let end = (start + random.below(most + 1)).min(length);
    start..end
}

fn insert(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    let at = at.min(bytes.len());
    bytes.splice(at..at, new.iter().copied());
}

fn replace_some(random: &mut Random, bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    let end = (at + random.below(3)).min(bytes.len());
    bytes.splice(at.min(end)..end, new.iter().copied());
}

/// Another number in the place of the next one.
fn number(random: &mut Random, bytes: &mut Vec<u8>, from: usize) {
    let rest = bytes.get(from..).unwrap_or_default();
    let start = from + rest.iter().position(u8::is_ascii_digit).unwrap_or(rest.len());
    let digits = bytes.get(start..).unwrap_or_default().iter().take_while(|b| b.is_ascii_digit()).count();
    let new = random.pick(NUMBERS).copied().unwrap_or(b"0");
    bytes.splice(start..start + digits, new.iter().copied());
}

/// Makes the input smaller, and plainer, as long as it fails.
pub(super) fn shrink(input: &[u8], mut fails: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    /// A check takes microseconds to milliseconds.
    const TRIES_MAX: u32 = 4_000;
    let mut best = input.to_vec();
    let mut tries = 0;
    let mut size = best.len() / 2;
    while size > 0 && tries < TRIES_MAX {
        let mut at = 0;
        while at < best.len() && tries < TRIES_MAX {
            let mut candidate = best.clone();
            candidate.drain(at..(at + size).min(best.len()));
            tries += 1;
            if fails(&candidate) {
                best = candidate;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    for at in 0..best.len() {
        for plain in [0, b'0', b'a'] {
            let Some(byte) = best.get(at).filter(|byte| **byte != plain).copied() else { continue };
            if tries >= TRIES_MAX || [0, b'0'].contains(&byte) {
                break;
            }
            let mut candidate = best.clone();
            if let Some(byte) = candidate.get_mut(at) {
                *byte = plain;
            }
            tries += 1;
            if fails(&candidate) {
                best = candidate;
                break;
            }
        }
    }
    best
}
