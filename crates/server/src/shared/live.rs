//! Live settings: those of the configuration that change while the server runs.
//!
//! Every thread reads them at each use, without a lock. Each is an atomic of its own: a request may
//! see one setting from before a reload and another one from after it.

use crate::{CommandMask, Config};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Value of a time that is not limited, in milliseconds.
const UNLIMITED_MS: u64 = u64::MAX;

/// The settings of [`Config`] with the same names.
pub(crate) struct Live {
    connections_max: AtomicUsize,
    timeout_ms: AtomicU64,
    idle_timeout_ms: AtomicU64,
    stop_wait_ms: AtomicU64,
    mask: AtomicU64,
    scrub_interval_ms: AtomicU64,
    scrub_bytes_per_second: AtomicU64,
    disk_free_warning_percent: AtomicU8,
}

impl Live {
    pub(crate) fn new(config: &Config) -> Self {
        let live = Self {
            connections_max: AtomicUsize::default(),
            timeout_ms: AtomicU64::default(),
            idle_timeout_ms: AtomicU64::default(),
            stop_wait_ms: AtomicU64::default(),
            mask: AtomicU64::default(),
            scrub_interval_ms: AtomicU64::default(),
            scrub_bytes_per_second: AtomicU64::default(),
            disk_free_warning_percent: AtomicU8::default(),
        };
        live.set(config);
        live
    }

    pub(crate) fn set(&self, config: &Config) {
        self.connections_max.store(config.connections_max, Relaxed);
        self.timeout_ms.store(milliseconds(config.timeout), Relaxed);
        self.idle_timeout_ms.store(milliseconds(config.idle_timeout), Relaxed);
        self.stop_wait_ms.store(milliseconds(Some(config.stop_wait)), Relaxed);
        self.mask.store(config.mask.bits(), Relaxed);
        self.scrub_interval_ms.store(milliseconds(config.scrub_interval), Relaxed);
        self.scrub_bytes_per_second.store(config.scrub_bytes_per_second, Relaxed);
        self.disk_free_warning_percent.store(config.disk_free_warning_percent, Relaxed);
    }

    pub(crate) fn connections_max(&self) -> usize {
        self.connections_max.load(Relaxed)
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        duration(&self.timeout_ms)
    }

    pub(crate) fn idle_timeout(&self) -> Option<Duration> {
        duration(&self.idle_timeout_ms)
    }

    pub(crate) fn stop_wait(&self) -> Duration {
        Duration::from_millis(self.stop_wait_ms.load(Relaxed))
    }

    #[inline]
    pub(crate) fn mask(&self) -> CommandMask {
        CommandMask::from_bits(self.mask.load(Relaxed))
    }

    pub(crate) fn scrub_interval(&self) -> Option<Duration> {
        duration(&self.scrub_interval_ms)
    }

    pub(crate) fn scrub_bytes_per_second(&self) -> u64 {
        self.scrub_bytes_per_second.load(Relaxed)
    }

    pub(crate) fn disk_free_warning_percent(&self) -> u8 {
        self.disk_free_warning_percent.load(Relaxed)
    }
}

fn milliseconds(time: Option<Duration>) -> u64 {
    // A time below a millisecond is not 0, which would be over at once.
    time.map_or(UNLIMITED_MS, |time| {
        u64::try_from(time.as_millis())
            .unwrap_or(UNLIMITED_MS)
            .clamp(u64::from(!time.is_zero()), UNLIMITED_MS - 1)
    })
}

fn duration(milliseconds: &AtomicU64) -> Option<Duration> {
    match milliseconds.load(Relaxed) {
        UNLIMITED_MS => None,
        milliseconds => Some(Duration::from_millis(milliseconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_replaces_every_live_setting() {
        let first = Config { mask: "put".parse().expect("a mask"), ..Config::default() };
        let live = Live::new(&first);
        assert_eq!(live.connections_max(), first.connections_max);
        assert_eq!((live.timeout(), live.idle_timeout()), (None, None));
        assert_eq!((live.mask(), live.stop_wait()), (first.mask, first.stop_wait));
        assert_eq!(live.scrub_interval(), first.scrub_interval);

        let second = Config {
            connections_max: 7,
            timeout: Some(Duration::from_millis(1500)),
            idle_timeout: Some(Duration::from_micros(1)),
            stop_wait: Duration::from_secs(9),
            mask: CommandMask::NONE,
            scrub_interval: None,
            scrub_bytes_per_second: 5,
            disk_free_warning_percent: 6,
            ..first
        };
        live.set(&second);
        assert_eq!((live.connections_max(), live.mask()), (7, CommandMask::NONE));
        assert_eq!(live.timeout(), second.timeout);
        assert_eq!(live.idle_timeout(), Some(Duration::from_millis(1)));
        assert_eq!((live.stop_wait(), live.scrub_interval()), (second.stop_wait, None));
        assert_eq!((live.scrub_bytes_per_second(), live.disk_free_warning_percent()), (5, 6));
    }
}
