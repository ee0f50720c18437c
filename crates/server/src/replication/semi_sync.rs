//! Semi-sync: clients wait until enough replicas have made their changes durable.
//!
//! Event loops keep pending replies, as they do for the disk. If too few replicas acknowledge
//! within the timeout, clients stop waiting until the replicas have caught up. Meanwhile changes
//! are refused, or acknowledged without replicas.

use crate::store::gate::WriteCondition;
use crate::update_log::now_us;
use parking_lot::{Condvar, Mutex};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Default of [`Settings::timeout`].
const TIMEOUT: Duration = Duration::from_secs(10);

/// Interval at which the presence of replicas is checked.
const TICK: Duration = Duration::from_millis(100);

/// Settings of semi-sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of replicas that must make a change durable before its client gets the reply.
    pub replicas: usize,
    /// Timeout of the wait.
    pub timeout: Duration,
    /// Reaction to the timeout.
    pub on_timeout: OnTimeout,
}

/// Handling of changes while there are too few replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnTimeout {
    /// Changes are refused. A change that was already made gets an error reply.
    #[default]
    Error,
    /// Changes are acknowledged without replicas.
    Fallback,
}

impl Settings {
    /// Returns settings with this number of replicas, a timeout of 10 seconds, and errors.
    pub fn new(replicas: usize) -> Self {
        Self { replicas, timeout: TIMEOUT, on_timeout: OnTimeout::default() }
    }
}

/// State of semi-sync.
pub(crate) struct SemiSync {
    settings: Settings,
    /// Time stamp up to which enough replicas have made all changes durable.
    confirmed_us: AtomicU64,
    has_given_up: AtomicBool,
    presence: Mutex<Presence>,
    /// Signals a confirmation or a timeout.
    changed: Condvar,
    /// Wakes the event loops with pending replies.
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug)]
struct Presence {
    /// Number of replicas that have a complete copy and acknowledge operations.
    replicas: usize,
    /// Time since which there are too few replicas.
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
            changed: Condvar::new(),
            wake: Box::new(wake),
        }
    }

    /// Returns whether the change with this time stamp may be acknowledged.
    pub(crate) fn is_confirmed(&self, timestamp_us: u64) -> bool {
        self.confirmed_us.load(Ordering::SeqCst) >= timestamp_us
            || self.settings.on_timeout == OnTimeout::Fallback && self.has_given_up()
    }

    /// Blocks until a change may be acknowledged, or until the timeout. Returns whether it may.
    pub(crate) fn wait_for(&self, timestamp_us: u64) -> bool {
        let since = Instant::now();
        let mut presence = self.presence.lock();
        while !self.is_confirmed(timestamp_us) {
            if since.elapsed() > self.settings.timeout {
                drop(presence);
                self.give_up();
                return self.is_confirmed(timestamp_us);
            }
            // The wait is short, since a confirmation does not take the lock.
            self.changed.wait_for(&mut presence, TICK);
        }
        true
    }

    fn has_given_up(&self) -> bool {
        self.has_given_up.load(Ordering::SeqCst)
    }

    /// Returns the longest wait of a reply.
    pub(crate) fn timeout(&self) -> Duration {
        self.settings.timeout
    }

    /// Returns how replies are handled after the timeout.
    pub(crate) fn on_timeout(&self) -> OnTimeout {
        self.settings.on_timeout
    }

    /// Evaluates the durable time stamps of replicas, the highest first. The log ends at `end_us`.
    pub(super) fn confirm(&self, durable_us: &[u64], end_us: u64) {
        let Settings { replicas, timeout, .. } = self.settings;
        let confirmed_us = durable_us.get(replicas - 1).copied().unwrap_or(0);
        // Time stamps after the end of the log are not confirmed. In a log without entries replicas
        // are durable up to 1.
        let confirmed_us = confirmed_us.min(end_us.max(1));
        let mut presence = self.presence.lock();
        presence.note(durable_us.len(), replicas);
        if self.has_given_up() {
            let timeout_us = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
            let is_back = confirmed_us > 0
                && (confirmed_us >= end_us || confirmed_us >= now_us().saturating_sub(timeout_us));
            if is_back {
                self.has_given_up.store(false, Ordering::SeqCst);
                tracing::info!(
                    "semi-sync: enough replicas ({replicas}) have caught up, clients wait again"
                );
            }
        }
        drop(presence);
        if self.confirmed_us.fetch_max(confirmed_us, Ordering::SeqCst) < confirmed_us {
            self.wake();
        }
    }

    /// Checks the number of replicas present. Gives up if it was too low until the timeout.
    fn check_presence(&self, replicas: usize) {
        let mut presence = self.presence.lock();
        presence.note(replicas, self.settings.replicas);
        let is_over = |since: Instant| since.elapsed() > self.settings.timeout;
        if presence.few_since.is_some_and(is_over) {
            self.give_up();
        }
    }

    /// Gives up, as replies or replicas have reached the timeout.
    pub(crate) fn give_up(&self) {
        if !self.has_given_up.swap(true, Ordering::SeqCst) {
            let Settings { replicas, timeout, on_timeout } = self.settings;
            let what = match on_timeout {
                OnTimeout::Error => "changes are refused",
                OnTimeout::Fallback => "changes are acknowledged without them",
            };
            let few = match replicas {
                1 => "no replica".to_owned(),
                count => format!("fewer than {count} replicas"),
            };
            tracing::error!(
                "semi-sync: {few} within {} s: {what} until enough have caught up",
                timeout.as_secs_f64()
            );
            self.wake();
        }
    }

    /// Wakes waiting threads and the event loops with pending replies.
    fn wake(&self) {
        self.changed.notify_all();
        (self.wake)();
    }

    /// Runs the thread that detects that there are too few replicas.
    pub(crate) fn watch(&self, count: impl Fn() -> usize, is_stopping: impl Fn() -> bool) {
        while !is_stopping() {
            std::thread::sleep(TICK);
            self.check_presence(count());
        }
    }

    /// Returns names and values for `stat`.
    pub(super) fn stats(&self) -> Vec<(String, String)> {
        let Settings { replicas, on_timeout, .. } = self.settings;
        let state = match on_timeout {
            _ if !self.has_given_up() => "waiting",
            OnTimeout::Error => "refusing",
            OnTimeout::Fallback => "asynchronous",
        };
        let stats = [
            ("semi_sync", replicas.to_string()),
            ("semi_sync_state", state.to_owned()),
            ("semi_sync_replicas", self.presence.lock().replicas.to_string()),
            ("semi_sync_confirmed_us", self.confirmed_us.load(Ordering::Relaxed).to_string()),
        ];
        stats.map(|(name, value)| (name.to_owned(), value)).into()
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
            let what = match self.settings.replicas {
                1 => "no replica acknowledges changes: retry once one does".to_owned(),
                count => {
                    format!("fewer than {count} replicas acknowledge changes: retry once they do")
                }
            };
            return Err(cabinet::Error::Unavailable(what));
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
    fn changes_that_enough_replicas_have_are_confirmed() {
        let semi_sync = semi_sync(OnTimeout::Error);
        semi_sync.confirm(&[9], 9);
        assert!(!semi_sync.is_confirmed(1));
        semi_sync.confirm(&[9, 7, 3], 9);
        assert!(semi_sync.is_confirmed(7) && !semi_sync.is_confirmed(8));
        // Changes stay durable on a replica that disconnects.
        semi_sync.confirm(&[9], 9);
        assert!(semi_sync.is_confirmed(7));
    }

    #[test]
    fn time_stamps_after_the_end_of_the_log_are_not_confirmed() {
        let semi_sync = semi_sync(OnTimeout::Error);
        semi_sync.confirm(&[u64::MAX, u64::MAX], 9);
        assert!(semi_sync.is_confirmed(9) && !semi_sync.is_confirmed(10));
    }

    #[test]
    fn after_the_timeout_changes_are_refused_until_replicas_have_caught_up() {
        let semi_sync = semi_sync(OnTimeout::Error);
        semi_sync.give_up();
        assert!(semi_sync.check().is_err() && !semi_sync.is_confirmed(1));
        semi_sync.confirm(&[8, 8], 9);
        assert!(semi_sync.check().is_err());
        semi_sync.confirm(&[9, 9], 9);
        assert!(semi_sync.check().is_ok());
    }

    #[test]
    fn after_the_timeout_changes_are_acknowledged_until_replicas_have_caught_up() {
        let semi_sync = semi_sync(OnTimeout::Fallback);
        semi_sync.give_up();
        assert!(semi_sync.check().is_ok() && semi_sync.is_confirmed(u64::MAX));
        // Under writes replicas are never fully caught up.
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
