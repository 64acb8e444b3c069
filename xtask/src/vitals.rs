//! What a process has used, from Linux' `/proc`.

use std::fs;
use std::time::Duration;

use crate::failure::{Doing, Failure};

/// A tick of `/proc/PID/stat`: `USER_HZ` is 100 on every architecture that Rust's standard library runs on.
const TICK: Duration = Duration::from_millis(10);

/// The most memory that the process ever had, in bytes (`VmHWM`: the peak of what is resident).
///
/// # Errors
///
/// When it has ended, or there is no `/proc`.
pub fn peak_bytes(pid: u32) -> Result<u64, Failure> {
    status_bytes(pid, "VmHWM:")
}

/// The memory of the process that is resident now, in bytes (`VmRSS`).
///
/// # Errors
///
/// When it has ended, or there is no `/proc`.
pub fn resident_bytes(pid: u32) -> Result<u64, Failure> {
    status_bytes(pid, "VmRSS:")
}

/// How many threads it has now.
///
/// # Errors
///
/// When it has ended, or there is no `/proc`.
pub fn threads(pid: u32) -> Result<u64, Failure> {
    status_field(pid, "Threads:", |status, field| value_of(status, field)?.parse().ok())
}

fn status_bytes(pid: u32, field: &str) -> Result<u64, Failure> {
    status_field(pid, field, bytes_of)
}

fn status_field(pid: u32, field: &str, read: fn(&str, &str) -> Option<u64>) -> Result<u64, Failure> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).doing(|| format!("cannot read {path}"))?;
    read(&status, field).ok_or_else(|| Failure::new(format!("{path} has no {field}")))
}

fn value_of<'s>(status: &'s str, field: &str) -> Option<&'s str> {
    status.lines().find_map(|line| line.strip_prefix(field)).map(str::trim)
}

/// The time that the process has had a processor, in its own code and in the kernel.
///
/// # Errors
///
/// When it has ended, or there is no `/proc`.
pub fn cpu(pid: u32) -> Result<Duration, Failure> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).doing(|| format!("cannot read {path}"))?;
    cpu_of(&stat).ok_or_else(|| Failure::new(format!("{path} is not understood")))
}

fn bytes_of(status: &str, field: &str) -> Option<u64> {
    Some(value_of(status, field)?.strip_suffix(" kB")?.trim().parse::<u64>().ok()? << 10)
}

fn cpu_of(stat: &str) -> Option<Duration> {
    // The second field is the program's name in brackets, which may hold spaces; utime and stime are the 14th and 15th.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some(TICK * (user + system))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_understood() {
        let status = "Name:\tx\nVmPeak:\t  9 kB\nVmHWM:\t   24104 kB\nVmRSS:\t    7 kB\n";
        assert_eq!(bytes_of(status, "VmHWM:"), Some(24_104 << 10));
        assert_eq!(bytes_of(status, "VmRSS:"), Some(7 << 10));
        assert_eq!(bytes_of("Name:\tzombie\n", "VmHWM:"), None);
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194560 8261 0 12 0 150 25 0 0 20 0 3 0 5 6 7";
        assert_eq!(cpu_of(stat), Some(Duration::from_millis(1_750)));
        assert_eq!(cpu_of("42 (x"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_used_something() {
        assert!(resident_bytes(std::process::id()).unwrap() > 1 << 20);
        assert!(peak_bytes(std::process::id()).unwrap() > 1 << 20);
        cpu(std::process::id()).unwrap();
    }
}
