//! Clients wait until so many replicas have their changes on disk.
//!
//! Their replies are held by the event loops, as those are that wait for the disk. Where replicas
//! stay away for too long it is given up, until they have caught up again: changes are then
//! refused, or acknowledged without them.

use crate::store::gate::WriteCondition;
use crate::update_log::now_us;
use parking_lot::{Condvar, Mutex};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Default of [`Settings::timeout`].
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time between two looks for whether replicas are there.
const TICK: Duration = Duration::from_millis(100);

/// How many replicas clients wait for, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of replicas that must have a change on disk before its client hears of it.
    pub replicas: usize,
    /// Longest wait for them.
    pub timeout: Duration,
    /// What to do then.
    pub on_timeout: OnTimeout,
}

/// What becomes of changes while there are too few replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnTimeout {
    /// They are refused. One that was made already is answered with an error.
    #[default]
    Error,
    /// They are acknowledged all the same.
    Fallback,
}

impl Settings {
    /// So many replicas within 10 seconds, or an error.
    pub fn new(replicas: usize) -> Self {
        Self { replicas, timeout: TIMEOUT, on_timeout: OnTimeout::default() }
    }
}

/// What is known of how far replicas are.
pub(crate) struct SemiSync {
    settings: Settings,
    /// Time stamp up to which enough replicas have everything on disk.
    confirmed_us: AtomicU64,
    has_given_up: AtomicBool,
    presence: Mutex<Presence>,
    /// Something was confirmed or given up.
    moved: Condvar,
    /// Wakes the event loops whose replies wait.
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug)]
struct Presence {
    /// Replicas that have a whole copy and say how far they have come.
    replicas: usize,
    /// Since when there are too few.
    few_since: Option<Instant>,
}

impl Presence {
    fn note(&mut self, replicas: usize, wanted: usize) {
        self.replicas = replicas;
        if replicas >= wanted {
            self.few_since = None;
        } else if self.few_since.is_none() {
            self.few_since = Some(Instant::now());
        }
    }
}

impl SemiSync {
    pub(crate) fn new(settings: Settings, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let presence = Presence { replicas: 0, few_since: Some(Instant::now()) };
        Self {
            settings,
            confirmed_us: AtomicU64::new(0),
            has_given_up: AtomicBool::new(false),
            presence: Mutex::new(presence),
            moved: Condvar::new(),
            wake: Box::new(wake),
        }
    }

    /// Whether a change may be acknowledged, by the time stamp of its entry.
    pub(crate) fn is_confirmed(&self, timestamp_us: u64) -> bool {
        self.confirmed_us.load(Ordering::SeqCst) >= timestamp_us
            || self.settings.on_timeout == OnTimeout::Fallback && self.has_given_up()
    }

    /// Waits until a change may be acknowledged; not for longer than the timeout, when it says that
    /// it may not.
    pub(crate) fn wait_for(&self, timestamp_us: u64) -> bool {
        let since = Instant::now();
        let mut presence = self.presence.lock();
        while !self.is_confirmed(timestamp_us) {
            if since.elapsed() > self.settings.timeout {
                drop(presence);
                self.give_up();
                return self.is_confirmed(timestamp_us);
            }
            // Not for long: what is confirmed is so without the lock.
            self.moved.wait_for(&mut presence, TICK);
        }
        true
    }

    fn has_given_up(&self) -> bool {
        self.has_given_up.load(Ordering::SeqCst)
    }

    /// Longest wait of a reply.
    pub(crate) fn timeout(&self) -> Duration {
        self.settings.timeout
    }

    /// What becomes of replies that have waited for too long.
    pub(crate) fn on_timeout(&self) -> OnTimeout {
        self.settings.on_timeout
    }

    /// Replicas have come so far, the highest time stamp first; the log ends with `end_us`.
    pub(super) fn confirm(&self, durable_us: &[u64], end_us: u64) {
        let Settings { replicas, timeout, .. } = self.settings;
        let confirmed_us = durable_us.get(replicas - 1).copied().unwrap_or(0);
        // What is not there yet is not confirmed, whatever they say. In a log without entries they
        // have everything up to 1.
        let confirmed_us = confirmed_us.min(end_us.max(1));
        let mut presence = self.presence.lock();
        presence.note(durable_us.len(), replicas);
        if self.has_given_up() {
            let timeout_us = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
            let is_back = confirmed_us > 0
                && (confirmed_us >= end_us || confirmed_us >= now_us().saturating_sub(timeout_us));
            if is_back {
                self.has_given_up.store(false, Ordering::SeqCst);
                tracing::warn!("semi-sync: {replicas} replicas have caught up, clients wait again");
            }
        }
        drop(presence);
        if self.confirmed_us.fetch_max(confirmed_us, Ordering::SeqCst) < confirmed_us {
            self.wake();
        }
    }

    /// So many replicas are there at present: gives up if it was too few for too long.
    fn look(&self, replicas: usize) {
        let mut presence = self.presence.lock();
        presence.note(replicas, self.settings.replicas);
        let is_over = |since: Instant| since.elapsed() > self.settings.timeout;
        if presence.few_since.is_some_and(is_over) {
            self.give_up();
        }
    }

    /// Replies, or replicas, have been waited for too long.
    pub(crate) fn give_up(&self) {
        if !self.has_given_up.swap(true, Ordering::SeqCst) {
            let Settings { replicas, timeout, on_timeout } = self.settings;
            let what = match on_timeout {
                OnTimeout::Error => "changes are refused",
                OnTimeout::Fallback => "changes are acknowledged without them",
            };
            tracing::error!(
                "semi-sync: no {replicas} replicas within {} s: {what} until they have caught up",
                timeout.as_secs_f64()
            );
            self.wake();
        }
    }

    /// Has those look that wait, and event loops at the replies that they hold.
    fn wake(&self) {
        self.moved.notify_all();
        (self.wake)();
    }

    /// The life of a thread that finds out when there are too few replicas for too long.
    pub(crate) fn look_after(&self, count: impl Fn() -> usize, is_stopping: impl Fn() -> bool) {
        while !is_stopping() {
            std::thread::sleep(TICK);
            self.look(count());
        }
    }

    /// What `stat` shows.
    pub(super) fn figures(&self) -> Vec<(String, String)> {
        let Settings { replicas, on_timeout, .. } = self.settings;
        let state = match on_timeout {
            _ if !self.has_given_up() => "waiting",
            OnTimeout::Error => "refusing",
            OnTimeout::Fallback => "asynchronous",
        };
        let figures = [
            ("semi_sync", replicas.to_string()),
            ("semi_sync_state", state.to_owned()),
            ("semi_sync_replicas", self.presence.lock().replicas.to_string()),
            ("semi_sync_confirmed_us", self.confirmed_us.load(Ordering::Relaxed).to_string()),
        ];
        figures.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

impl fmt::Debug for SemiSync {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SemiSync").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl WriteCondition for SemiSync {
    fn check(&self) -> cabinet::Result<()> {
        if self.has_given_up() && self.settings.on_timeout == OnTimeout::Error {
            let what = format!("fewer than {} replicas confirm changes", self.settings.replicas);
            return Err(cabinet::Error::ReadOnly(what));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn semi_sync(on_timeout: OnTimeout) -> SemiSync {
        let settings = Settings { replicas: 2, timeout: TIMEOUT, on_timeout };
        SemiSync::new(settings, || ())
    }

    #[test]
    fn what_enough_replicas_have_is_confirmed() {
        let semi_sync = semi_sync(OnTimeout::Error);
        semi_sync.confirm(&[9], 9);
        assert!(!semi_sync.is_confirmed(1));
        semi_sync.confirm(&[9, 7, 3], 9);
        assert!(semi_sync.is_confirmed(7) && !semi_sync.is_confirmed(8));
        // What was on their disks stays there when one of them goes.
        semi_sync.confirm(&[9], 9);
        assert!(semi_sync.is_confirmed(7));
    }

    #[test]
    fn what_is_not_logged_yet_is_not_confirmed() {
        let semi_sync = semi_sync(OnTimeout::Error);
        semi_sync.confirm(&[u64::MAX, u64::MAX], 9);
        assert!(semi_sync.is_confirmed(9) && !semi_sync.is_confirmed(10));
    }

    #[test]
    fn what_is_given_up_is_refused_until_replicas_have_caught_up() {
        let semi_sync = semi_sync(OnTimeout::Error);
        semi_sync.give_up();
        assert!(semi_sync.check().is_err() && !semi_sync.is_confirmed(1));
        semi_sync.confirm(&[8, 8], 9);
        assert!(semi_sync.check().is_err());
        semi_sync.confirm(&[9, 9], 9);
        assert!(semi_sync.check().is_ok());
    }

    #[test]
    fn what_is_given_up_is_acknowledged_until_replicas_have_caught_up() {
        let semi_sync = semi_sync(OnTimeout::Fallback);
        semi_sync.give_up();
        assert!(semi_sync.check().is_ok() && semi_sync.is_confirmed(u64::MAX));
        // Under writes they are never quite there.
        semi_sync.confirm(&[now_us(), now_us()], u64::MAX);
        assert!(!semi_sync.is_confirmed(u64::MAX));
    }

    #[test]
    fn a_wait_ends_when_it_is_confirmed_or_takes_too_long() {
        let settings = Settings {
            replicas: 1,
            timeout: Duration::from_millis(10),
            on_timeout: OnTimeout::Error,
        };
        let semi_sync = SemiSync::new(settings, || ());
        semi_sync.confirm(&[5], 5);
        assert!(semi_sync.wait_for(5));
        assert!(!semi_sync.wait_for(6));
        assert!(semi_sync.check().is_err(), "so later changes are refused at once");
    }
}
