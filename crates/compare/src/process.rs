//! Resources that a process has used, from the system's accounting.

use std::io;
use std::ops::Sub;
use std::time::Duration;

pub use crate::ffi::clock::process_cpu_time;

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Anonymous pages resident now: heap, stacks, private mappings. File mappings not counted.
    pub anonymous: u64,
    /// Pages resident now, mapped files included.
    pub resident: u64,
    /// Most pages ever resident, mapped files included.
    pub peak_resident: u64,
}

/// Waits of the threads of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Page faults that had to read from a disk.
    pub major_faults: u64,
    /// Bytes read from a disk for these threads.
    pub read_bytes: u64,
}

impl Sub for Waits {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
        }
    }
}

/// Returns the memory of a process, from `/proc/PID/status`.
pub fn memory(process_id: u32) -> io::Result<Memory> {
    let status = std::fs::read_to_string(format!("/proc/{process_id}/status"))?;
    Ok(parse_status(&status))
}

/// Returns the waits of the threads of a process whose names begin with `prefix`. Excludes threads
/// that have ended.
pub fn waits(process_id: u32, prefix: &str) -> io::Result<Waits> {
    let mut sum = Waits::default();
    for thread in std::fs::read_dir(format!("/proc/{process_id}/task"))? {
        let folder = thread?.path();
        let read = |file: &str| std::fs::read_to_string(folder.join(file));
        // A thread may end between two reads.
        let (Ok(stat), Ok(account)) = (read("stat"), read("io")) else { continue };
        let Some((name, major_faults)) = parse_thread(&stat) else { continue };
        if name.starts_with(prefix) {
            sum.major_faults += major_faults;
            sum.read_bytes += parse_read_bytes(&account);
        }
    }
    Ok(sum)
}

/// Parses the name and major faults of a thread from its `stat`.
fn parse_thread(stat: &str) -> Option<(&str, u64)> {
    // The name may contain anything, including parentheses.
    let (start, end) = (stat.find('(')?, stat.rfind(')')?);
    let major_faults = stat.get(end + 1..)?.split_whitespace().nth(9)?.parse().ok()?;
    Some((stat.get(start + 1..end)?, major_faults))
}

fn parse_read_bytes(account: &str) -> u64 {
    let bytes = account.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    bytes.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0)
}

/// Returns the CPU time (user and system) of this process.
pub fn own_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanoseconds)
}

fn parse_status(status: &str) -> Memory {
    let bytes = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(|rest| rest.split_whitespace().next())
            .and_then(|kibibytes| kibibytes.parse::<u64>().ok())
            .map_or(0, |kibibytes| kibibytes * 1024)
    };
    Memory {
        anonymous: bytes("RssAnon:"),
        resident: bytes("VmRSS:"),
        peak_resident: bytes("VmHWM:"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1024 kB\nRssAnon:\t      12 kB\n";
        assert_eq!(
            parse_status(status),
            Memory { anonymous: 12 * 1024, resident: 1024 * 1024, peak_resident: 2048 * 1024 }
        );
    }

    #[test]
    fn the_name_of_a_thread_may_contain_anything() {
        let stat = "71 (a (b) c) S 1 71 71 0 -1 4194560 500 6 7 8 9 10 0 0 20 0 1 0 5";
        assert_eq!(parse_thread(stat), Some(("a (b) c", 7)));
        assert_eq!(parse_thread("71 (a"), None);
    }

    #[test]
    fn bytes_read_from_a_disk_exclude_reads_from_the_page_cache() {
        let account = "rchar: 10\nwchar: 1\nsyscr: 2\nsyscw: 3\nread_bytes: 4096\nwrite_bytes: 0\n";
        assert_eq!(parse_read_bytes(account), 4096);
    }

    #[test]
    fn cpu_time_of_a_process_grows_while_it_works() {
        let before = process_cpu_time(std::process::id()).unwrap();
        let mut sum = 0u64;
        while process_cpu_time(std::process::id()).unwrap() < before + Duration::from_millis(5) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(own_cpu_time() >= before + Duration::from_millis(5));
    }
}
