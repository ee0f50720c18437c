//! Clock: the current time, for expiry. Tests set it by hand.

use crate::{KeyReports, ReportedKeys};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Source of the time, in milliseconds since the Unix epoch.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// The time set by hand; `None` for the system's time.
    manual: Option<Arc<AtomicU64>>,
    /// Lists for the keys of expired and evicted records, if a server reports them.
    reports: Option<Arc<KeyReports>>,
}

/// Handle that sets the time of its [`Clock`].
#[cfg(feature = "testing")]
#[derive(Clone, Debug)]
pub struct ManualClock {
    now_ms: Arc<AtomicU64>,
}

/// Two clocks are equal if both use the system's time or the same time set by hand, and both use
/// the same lists of keys.
impl PartialEq for Clock {
    fn eq(&self, other: &Self) -> bool {
        is_same(self.manual.as_ref(), other.manual.as_ref())
            && is_same(self.reports.as_ref(), other.reports.as_ref())
    }
}

fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        _ => false,
    }
}

impl Eq for Clock {}

impl Clock {
    /// Returns the system's clock.
    pub fn real() -> Self {
        Self::default()
    }

    /// Returns a clock that stays at `start_ms` until its [`ManualClock`] moves it.
    #[cfg(feature = "testing")]
    pub fn manual(start_ms: u64) -> (Self, ManualClock) {
        let now_ms = Arc::new(AtomicU64::new(start_ms));
        (Self { manual: Some(Arc::clone(&now_ms)), reports: None }, ManualClock { now_ms })
    }

    /// Returns the same clock for a database that does not remove expired records, but lists their
    /// keys in [`Database::expired_keys`](crate::Database::expired_keys): at once, or once
    /// [`Database::hand_over_expired`](crate::Database::hand_over_expired) is called. It lists the
    /// keys of evicted ones, too, once
    /// [`Database::report_evicted`](crate::Database::report_evicted) is called.
    #[cfg(feature = "internals")]
    pub fn handing_over(self, at_once: bool) -> Self {
        let reports = KeyReports::default();
        if at_once {
            reports.expired.begin();
        }
        Self { reports: Some(Arc::new(reports)), ..self }
    }

    /// Returns the lists of keys, if a server may want them.
    pub(crate) fn reports(&self) -> Option<&KeyReports> {
        self.reports.as_deref()
    }

    /// Returns the list of the keys of expired records; `None` if the engine removes them itself.
    pub(crate) fn expired_keys(&self) -> Option<&ReportedKeys> {
        self.reports().map(|reports| &reports.expired).filter(|expired| expired.has_begun())
    }

    /// Adds the key of an evicted record to the list, if there is one.
    pub(crate) fn report_evicted(&self, key: &[u8]) {
        if let Some(reports) = self.reports() {
            reports.evicted.report(key);
        }
    }

    /// Adds the key of an expired record to the list. Returns whether there is a list.
    pub(crate) fn hand_over(&self, key: &[u8]) -> bool {
        self.expired_keys().map(|expired| expired.name(key)).is_some()
    }

    /// Returns the milliseconds since the Unix epoch; 0 if the system's clock is before it.
    pub fn now_ms(&self) -> u64 {
        match &self.manual {
            Some(now_ms) => now_ms.load(Ordering::Relaxed),
            None => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

#[cfg(feature = "testing")]
impl ManualClock {
    /// Sets the time, in milliseconds since the Unix epoch.
    pub fn set(&self, now_ms: u64) {
        self.now_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Advances the time by `by_ms` milliseconds.
    pub fn advance(&self, by_ms: u64) {
        self.now_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    /// Returns the current time, in milliseconds since the Unix epoch.
    pub fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed)
    }
}
