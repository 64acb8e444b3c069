//! The size of a program, and whether it brings everything along.

use std::fs;
use std::path::Path;

use crate::failure::{Doing, Failure};

/// `PT_INTERP` of the ELF specification: the path of the dynamic loader.
const INTERPRETER: u32 = 3;

/// Bytes, and whether the program is static: it names no loader that would fetch libraries for it.
///
/// # Errors
///
/// When it cannot be read or is no 64-bit little-endian ELF file.
pub fn inspect(path: &Path) -> Result<(f64, bool), Failure> {
    let bytes = fs::read(path).doing(|| format!("cannot read {}", path.display()))?;
    let dynamic = names_a_loader(&bytes)
        .ok_or_else(|| Failure::new(format!("{} is no program that is understood here", path.display())))?;
    Ok((bytes.len() as f64, !dynamic))
}

fn names_a_loader(elf: &[u8]) -> Option<bool> {
    if !elf.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let number = |at: usize, size: usize| {
        let bytes = elf.get(at..at.checked_add(size)?)?;
        Some(bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)))
    };
    let [table, size, count] = [number(32, 8)?, number(54, 2)?, number(56, 2)?];
    let mut found = false;
    for n in 0..count {
        let at = table.checked_add(n * size)?;
        found |= number(usize::try_from(at).ok()?, 4)? == u64::from(INTERPRETER);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loader_is_found_in_the_program_headers() {
        let mut elf = vec![0; 64 + 2 * 56];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (elf[32], elf[54], elf[56]) = (64, 56, 2);
        assert_eq!(names_a_loader(&elf), Some(false));
        elf[64 + 56] = 3;
        assert_eq!(names_a_loader(&elf), Some(true));
        elf[56] = 3;
        assert_eq!(names_a_loader(&elf), None, "cut off");
        assert_eq!(names_a_loader(b"#!/bin/sh"), None);
    }
}
