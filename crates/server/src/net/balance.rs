//! Load balancing: assigns connections to event loops and moves them between loops.
//!
//! As few loops as possible work, each below about 70% of its time. One loop that finds several
//! requests at each wake-up costs less per request than two loops that find one.
//!
//! A loop that is busy nearly all the time hands connections to the least busy loop, unless the
//! machine has no idle processor for that one: a second loop would only take the first one's
//! processor, or that of clients on the same machine. A loop that is
//! nearly idle hands all of its connections to a loop before it. Either happens only after several
//! windows in a row with the same verdict, and then not again for some windows: connections must
//! not move back and forth.

use crate::net::mailbox::Mailbox;
use std::time::{Duration, Instant};

/// A loop below this load takes new connections, in percent of its time.
const ACCEPT_BELOW_PERCENT: u32 = 70;
/// A loop above this load hands connections over, in percent of its time.
const SPREAD_ABOVE_PERCENT: u32 = 85;
/// Idle time of the machine's processors below which no loop hands connections over, in percent of
/// one processor's time.
const SPREAD_IDLE_PERCENT: u32 = 25;
/// Two loops whose loads add up to less are merged, in percent of the time of one.
const MERGE_BELOW_PERCENT: u32 = 50;
/// Span over which the load of a loop is measured.
const WINDOW: Duration = Duration::from_millis(100);
/// Windows in a row above [`SPREAD_ABOVE_PERCENT`] before connections are handed over.
const SPREAD_WINDOWS: u32 = 3;
/// Windows in a row below [`MERGE_BELOW_PERCENT`] before loops are merged.
const MERGE_WINDOWS: u32 = 20;
/// Windows without a move after a move.
const REST_WINDOWS: u32 = 10;

/// Measures the share of its time that a loop is awake.
#[derive(Debug)]
pub(crate) struct Meter {
    window_began: Instant,
    woke: Instant,
    busy: Duration,
}

impl Meter {
    pub(crate) fn new(now: Instant) -> Self {
        Self { window_began: now, woke: now, busy: Duration::ZERO }
    }

    /// Records that the loop has just woken up.
    #[inline]
    pub(crate) fn wakes(&mut self, now: Instant) {
        self.woke = now;
    }

    /// Records that the loop is about to sleep. Returns its load in percent if a window is over.
    #[inline]
    pub(crate) fn sleeps(&mut self, now: Instant) -> Option<u32> {
        self.busy += now - self.woke;
        let window = now - self.window_began;
        if window < WINDOW {
            return None;
        }
        let percent = self.busy.as_nanos() * 100 / window.as_nanos().max(1);
        self.window_began = now;
        self.busy = Duration::ZERO;
        Some(u32::try_from(percent).unwrap_or(100).min(100))
    }
}

/// Returns the mailbox of the loop that gets a new connection.
pub(crate) fn for_new_connection(mailboxes: &[Mailbox], now_ms: u64) -> &Mailbox {
    mailboxes
        .iter()
        .find(|mailbox| mailbox.load.busy_percent(now_ms) < ACCEPT_BELOW_PERCENT)
        .or_else(|| mailboxes.iter().min_by_key(|mailbox| mailbox.load.busy_percent(now_ms)))
        .unwrap_or(&mailboxes[0])
}

/// Order to hand connections over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handover {
    /// Number of the loop that receives them.
    pub(crate) to: usize,
    /// Their share of the requests, in percent.
    pub(crate) share_percent: u32,
}

/// Judge of a loop's load, window after window.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    busy_windows: u32,
    idle_windows: u32,
    rest_windows: u32,
    /// Idle time of the processors at the first of the busy windows.
    idle_before: Option<Duration>,
}

/// Verdict on a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No connection moves.
    Stay,
    /// The loop is busy: count which connections are active.
    Observe,
    /// Hand over some connections.
    Move(Handover),
}

impl Balance {
    /// Judges a window of loop number `own`. `busy` holds the percentages of all loops, and `idle`
    /// returns the idle time of all processors until now, if it is known.
    pub(crate) fn judge(
        &mut self,
        own: usize,
        busy: &[u32],
        idle: impl Fn() -> Option<Duration>,
    ) -> Verdict {
        if self.rest_windows > 0 {
            self.rest_windows -= 1;
            return Verdict::Stay;
        }
        let least = (0..busy.len()).filter(|&other| other != own).min_by_key(|&other| busy[other]);
        let Some(least) = least else { return Verdict::Stay };

        let spread = busy[own] >= SPREAD_ABOVE_PERCENT && busy[least] < ACCEPT_BELOW_PERCENT;
        self.busy_windows = if spread { self.busy_windows + 1 } else { 0 };
        if self.busy_windows == 1 {
            self.idle_before = idle();
        }
        if spread && self.busy_windows >= SPREAD_WINDOWS {
            if !self.has_idle_processor(idle()) {
                self.busy_windows = 0;
                return Verdict::Stay;
            }
            let share_percent = (busy[own] - busy[least]) * 100 / 2 / busy[own];
            return self.hand_over(least, share_percent);
        }

        let before = (0..own).find(|&other| busy[other] + busy[own] < MERGE_BELOW_PERCENT);
        self.idle_windows = if before.is_some() { self.idle_windows + 1 } else { 0 };
        match before {
            Some(to) if self.idle_windows >= MERGE_WINDOWS => self.hand_over(to, 100),
            _ if self.busy_windows == 1 => Verdict::Observe,
            _ => Verdict::Stay,
        }
    }

    /// Returns whether processors were idle since the first of the busy windows, if their idle time
    /// is this now.
    fn has_idle_processor(&self, idle: Option<Duration>) -> bool {
        let (Some(before), Some(now)) = (self.idle_before, idle) else { return true };
        let busy = WINDOW * (SPREAD_WINDOWS - 1);
        now.saturating_sub(before) * 100 >= busy * SPREAD_IDLE_PERCENT
    }

    fn hand_over(&mut self, to: usize, share_percent: u32) -> Verdict {
        *self = Self { rest_windows: REST_WINDOWS, ..Self::default() };
        Verdict::Move(Handover { to, share_percent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(balance: &mut Balance, own: usize, busy: &[u32], windows: u32) -> Vec<Verdict> {
        verdicts_beside(balance, own, busy, windows, || None)
    }

    fn verdicts_beside(
        balance: &mut Balance,
        own: usize,
        busy: &[u32],
        windows: u32,
        idle: impl Fn() -> Option<Duration>,
    ) -> Vec<Verdict> {
        (0..windows).map(|_| balance.judge(own, busy, &idle)).collect()
    }

    #[test]
    fn a_saturated_loop_hands_half_of_its_connections_to_an_idle_one_and_then_rests() {
        let mut balance = Balance::default();
        let moved = Verdict::Move(Handover { to: 1, share_percent: 50 });
        let seen = verdicts(&mut balance, 0, &[100, 0], 3);
        assert_eq!(seen, [Verdict::Observe, Verdict::Stay, moved]);
        let rest = verdicts(&mut balance, 0, &[100, 0], REST_WINDOWS);
        assert!(rest.iter().all(|verdict| *verdict == Verdict::Stay));
    }

    #[test]
    fn a_saturated_loop_keeps_its_connections_while_no_processor_is_idle() {
        let idle_ms = std::cell::Cell::new(5000);
        let idle_by = |by_ms: u64| {
            let idle_ms = &idle_ms;
            move || {
                idle_ms.set(idle_ms.get() + by_ms);
                Some(Duration::from_millis(idle_ms.get()))
            }
        };
        let mut balance = Balance::default();
        let seen = verdicts_beside(&mut balance, 0, &[100, 0], 50, idle_by(40));
        assert!(!seen.iter().any(|verdict| matches!(verdict, Verdict::Move(_))), "{seen:?}");
        assert_eq!(seen[3], Verdict::Observe, "it is judged again");
        let seen = verdicts_beside(&mut balance, 0, &[100, 0], 4, idle_by(60));
        assert!(seen.iter().any(|verdict| matches!(verdict, Verdict::Move(_))), "{seen:?}");
    }

    #[test]
    fn busy_loops_keep_their_connections_if_no_other_loop_is_idle() {
        let seen = verdicts(&mut Balance::default(), 0, &[100, 90], 50);
        assert!(seen.iter().all(|verdict| *verdict == Verdict::Stay));
    }

    #[test]
    fn a_nearly_idle_loop_merges_into_one_before_it() {
        let merged = Verdict::Move(Handover { to: 0, share_percent: 100 });
        let seen = verdicts(&mut Balance::default(), 1, &[20, 10], MERGE_WINDOWS);
        assert_eq!(seen.last(), Some(&merged));
        let seen = verdicts(&mut Balance::default(), 0, &[20, 10], 100);
        assert!(seen.iter().all(|verdict| *verdict == Verdict::Stay), "the first never merges");
    }

    #[test]
    fn after_a_spread_the_loops_do_not_merge_at_the_same_load() {
        // 100% spread over two loops is 50% each, far above the limit for a merge.
        let seen = verdicts(&mut Balance::default(), 1, &[50, 50], 100);
        assert!(seen.iter().all(|verdict| *verdict == Verdict::Stay));
    }

    #[test]
    fn the_meter_returns_the_share_of_a_window_awake() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut meter = Meter::new(start);
        meter.wakes(at(10));
        assert_eq!(meter.sleeps(at(40)), None);
        meter.wakes(at(80));
        assert_eq!(meter.sleeps(at(100)), Some(50));
        meter.wakes(at(190));
        assert_eq!(meter.sleeps(at(200)), Some(10));
    }
}
