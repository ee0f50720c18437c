//! Current time, for expiry. Tests set it by hand.

use crate::ExpiredKeys;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Tells the time, in milliseconds since the Unix epoch.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// The time set by hand, or none to ask the system.
    manual: Option<Arc<AtomicU64>>,
    /// Whom to leave to remove what has expired, if not the engine itself.
    expired: Option<Arc<ExpiredKeys>>,
}

/// Sets the time of the [`Clock`] it was made with.
#[cfg(feature = "testing")]
#[derive(Clone, Debug)]
pub struct ManualClock {
    now_ms: Arc<AtomicU64>,
}

/// Two clocks are equal if they are both the system's or the same one set by hand, and hand over
/// to the same one.
impl PartialEq for Clock {
    fn eq(&self, other: &Self) -> bool {
        is_same(self.manual.as_ref(), other.manual.as_ref())
            && is_same(self.expired.as_ref(), other.expired.as_ref())
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
    /// The system's clock.
    pub fn real() -> Self {
        Self::default()
    }

    /// A clock that stands at `start_ms` until its [`ManualClock`] moves it.
    #[cfg(feature = "testing")]
    pub fn manual(start_ms: u64) -> (Self, ManualClock) {
        let now_ms = Arc::new(AtomicU64::new(start_ms));
        (Self { manual: Some(Arc::clone(&now_ms)), expired: None }, ManualClock { now_ms })
    }

    /// The same clock for a database that does not remove what has expired, but names its keys in
    /// [`Database::expired_keys`](crate::Database::expired_keys).
    #[cfg(feature = "internals")]
    pub fn handing_over(self) -> Self {
        Self { expired: Some(Arc::default()), ..self }
    }

    /// Returns the list in which the keys of expired records are named; `None` if they are not.
    pub(crate) fn expired_keys(&self) -> Option<&ExpiredKeys> {
        self.expired.as_deref()
    }

    /// Names the key of an expired record to the one who removes it; says whether there is one.
    pub(crate) fn hand_over(&self, key: &[u8]) -> bool {
        self.expired.as_ref().map(|expired| expired.name(key)).is_some()
    }

    /// Milliseconds since the Unix epoch; 0 if the system's clock stands before it.
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

    /// Moves the time on.
    pub fn advance(&self, by_ms: u64) {
        self.now_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    /// The time it stands at.
    pub fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed)
    }
}
