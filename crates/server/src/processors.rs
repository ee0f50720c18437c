//! Processors: whether any is idle, and for how long threads have waited for one. Both are
//! statistics of Linux.
//!
//! A thread that is late by the clock may only have lost its processor to another one. A further
//! thread helps only if a processor is idle.

use rustix::param::clock_ticks_per_second;
use std::fs;
use std::time::Duration;

thread_local! {
    static OWN: i32 = rustix::thread::gettid().as_raw_nonzero().get();
}

/// Returns the number of this thread in the system.
pub(crate) fn own_thread() -> i32 {
    OWN.with(|own| *own)
}

/// Returns how long a thread of this process could have run and had no processor since it began, in
/// nanoseconds. Returns `None` if there is no such thread, or the system has no such statistics.
pub(crate) fn waited_ns(thread: i32) -> Option<u64> {
    let statistics = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
    statistics.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Returns for how long the processors of the machine have been idle since it started, added up.
/// Returns `None` if the system has no such statistics.
pub(crate) fn idle() -> Option<Duration> {
    parse_idle(&fs::read_to_string("/proc/stat").ok()?, clock_ticks_per_second())
}

/// Returns the idle time in the statistics `text`, in which a second has `ticks_per_second`. A wait
/// for the disk is idle time too.
fn parse_idle(text: &str, ticks_per_second: u64) -> Option<Duration> {
    let mut times = text.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace().skip(3);
    let mut ticks = || times.next()?.parse::<u64>().ok();
    let idle = ticks()?.checked_add(ticks()?)?;
    Some(Duration::from_millis(idle.checked_mul(1000)? / ticks_per_second.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_times_of_their_own() {
        let other = std::thread::spawn(|| (own_thread(), waited_ns(own_thread())));
        let (thread, waited) = other.join().expect("a thread");
        assert_ne!(thread, own_thread());
        assert!(waited.is_some() && waited_ns(own_thread()).is_some());
        assert_eq!(waited_ns(i32::MAX), None);
    }

    #[test]
    fn idle_time_is_that_of_all_processors_with_their_waits_for_the_disk() {
        let text = "cpu  13628 0 3719 31364 267 0 42 13 0 0\ncpu0 6411 0 1748 16324 34 0 5 3 0 0\n";
        assert_eq!(parse_idle(text, 100), Some(Duration::from_millis(316_310)));
        for broken in ["", "cpu", "cpu  1 2 3 4", "cpu  1 2 3 4 x", "cpu0 1 2 3 4 5"] {
            assert_eq!(parse_idle(broken, 100), None, "{broken}");
        }
        let before = idle().expect("statistics");
        std::thread::sleep(Duration::from_millis(30));
        assert!(idle().expect("statistics") >= before);
    }
}
