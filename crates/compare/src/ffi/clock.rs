//! CPU time of another process.

use std::io;
use std::time::Duration;

/// Returns the CPU time (user and system) of all threads of a process, including ended ones. It is
/// the scheduler's account in nanoseconds, not the sampled clock ticks of `/proc/PID/stat`.
pub fn process_cpu_time(process_id: u32) -> io::Result<Duration> {
    let process_id = libc::pid_t::try_from(process_id)
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` outlives the call, which writes one clockid_t to it.
    let code = unsafe { libc::clock_getcpuclockid(process_id, &raw mut clock) };
    if code != 0 {
        return Err(io::Error::from_raw_os_error(code));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call, which writes one timespec to it.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    Ok(Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanoseconds))
}
