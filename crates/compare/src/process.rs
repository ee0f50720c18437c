//! What a process has used, from the system's own accounting.

use std::io;
use std::time::Duration;

pub use crate::ffi::clock::process_cpu_time;

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Anonymous pages resident now: heap, stacks, private mappings. File mappings not counted.
    pub anonymous: u64,
    /// Most pages ever resident, mapped files included.
    pub peak_resident: u64,
}

/// Memory of a process, from `/proc/PID/status`.
pub fn memory(process_id: u32) -> io::Result<Memory> {
    let status = std::fs::read_to_string(format!("/proc/{process_id}/status"))?;
    Ok(parse_status(&status))
}

/// CPU time (user and system) that this process has used.
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
    Memory { anonymous: bytes("RssAnon:"), peak_resident: bytes("VmHWM:") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nRssAnon:\t      12 kB\n";
        assert_eq!(
            parse_status(status),
            Memory { anonymous: 12 * 1024, peak_resident: 2048 * 1024 }
        );
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
