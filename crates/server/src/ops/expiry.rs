//! Expiry in the units of clients, and the marks that memcached's meta commands leave on a record.
//!
//! Clients' times are whole seconds, the database's milliseconds. The milliseconds of an expiry
//! carry the sum of the record's marks, from 1 to 7. A record is marked if it is stale, if a client
//! has won the right to renew it, or if its key was sent in base64. Marks are as durable as the
//! record, change in one step with it, and cost nothing otherwise. Unmarked expiries avoid these
//! milliseconds. A marked record that never expires does so at the end of time.

use cabinet::Meta;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest relative expiry, in seconds. Greater numbers are absolute times.
pub const RELATIVE_SECONDS_MAX: i64 = 60 * 60 * 24 * 30;

/// The last whole second, which is the expiry of records that are marked and never expire.
const NEVER_MS: u64 = u64::MAX - u64::MAX % 1000;

const STALE: u64 = 1;
const WON: u64 = 2;
const BASE64: u64 = 4;
const MARKS_MAX: u64 = STALE | WON | BASE64;

/// Marks that meta commands leave on a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// It was invalidated, and stays until a client renews it.
    pub(crate) is_stale: bool,
    /// A client was told to renew it.
    pub(crate) is_won: bool,
    /// Its key was sent in base64, and is shown in base64.
    pub(crate) is_base64: bool,
}

/// Returns the time now, in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// Returns the time that a client's expiry stands for, in the unit of [`cabinet::Meta`].
pub(crate) fn expires_at_ms(exptime: i64) -> u64 {
    match exptime {
        0 => 0,
        // The record has expired long ago.
        i64::MIN..0 => 1000,
        _ => {
            let begin_ms = if exptime <= RELATIVE_SECONDS_MAX { now_ms() } else { 0 };
            without_marks(begin_ms.saturating_add(exptime.unsigned_abs().saturating_mul(1000)))
        }
    }
}

/// Returns the time after a period from now, in the unit of [`cabinet::Meta`].
pub(crate) fn expires_after(time: Duration) -> u64 {
    let period_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    without_marks(now_ms().saturating_add(period_ms))
}

/// Returns the expiry of a record that is to expire at this time, in milliseconds since 1970.
pub fn stored(at_ms: u64) -> u64 {
    without_marks(at_ms).max(1000)
}

/// Returns an expiry a few milliseconds earlier if it would be taken for one with marks.
fn without_marks(at_ms: u64) -> u64 {
    let thousandths = at_ms % 1000;
    if thousandths <= MARKS_MAX { at_ms - thousandths } else { at_ms }
}

/// Returns flags and expiry of a client's value, as the server stores them.
#[inline]
pub(crate) fn meta(ignores_expiry: bool, flags: u32, exptime: i64) -> Meta {
    match ignores_expiry {
        true => Meta::NONE,
        false => Meta { flags, expires_at_ms: expires_at_ms(exptime) },
    }
}

/// Returns the seconds until an expiry, rounded up, or `None` if there is none. The clock is read
/// here: an expiry that was just set must not seem further off than it was set.
pub(crate) fn seconds_left(expires_at_ms: u64) -> Option<u64> {
    seconds_left_at(expires_at_ms, now_ms())
}

fn seconds_left_at(expires_at_ms: u64, now_ms: u64) -> Option<u64> {
    (!is_never(expires_at_ms)).then(|| expires_at_ms.saturating_sub(now_ms).div_ceil(1000))
}

/// Returns an expiry in seconds since 1970, or `None` if there is none.
pub(crate) fn unix_seconds(expires_at_ms: u64) -> Option<u64> {
    (!is_never(expires_at_ms)).then_some(expires_at_ms / 1000)
}

fn is_never(expires_at_ms: u64) -> bool {
    expires_at_ms == 0 || expires_at_ms >= NEVER_MS
}

/// Returns the marks in an expiry.
pub(crate) fn marks(expires_at_ms: u64) -> Marks {
    let bits = expires_at_ms % 1000;
    if bits > MARKS_MAX {
        return Marks::default();
    }
    Marks { is_stale: bits & STALE != 0, is_won: bits & WON != 0, is_base64: bits & BASE64 != 0 }
}

/// Returns the same expiry with these marks in place of those it has.
pub(crate) fn marked(expires_at_ms: u64, marks: Marks) -> u64 {
    let bits = u64::from(marks.is_stale) * STALE
        + u64::from(marks.is_won) * WON
        + u64::from(marks.is_base64) * BASE64;
    match (bits, is_never(expires_at_ms)) {
        (0, true) => 0,
        (0, false) if self::marks(expires_at_ms) == Marks::default() => expires_at_ms,
        (_, true) => NEVER_MS + bits,
        (_, false) => expires_at_ms - expires_at_ms % 1000 + bits,
    }
}

/// Returns the same expiry without marks.
pub fn unmarked(expires_at_ms: u64) -> u64 {
    marked(expires_at_ms, Marks::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_counts_from_now_up_to_thirty_days_and_from_1970_above() {
        assert_eq!(expires_at_ms(0), 0);
        assert_eq!(expires_at_ms(-1), 1000);
        assert!(expires_at_ms(RELATIVE_SECONDS_MAX) > 1_700_000_000_000);
        assert_eq!(expires_at_ms(RELATIVE_SECONDS_MAX + 1), 2_592_001_000);
        assert_eq!(expires_at_ms(i64::MAX), u64::MAX);
    }

    #[test]
    fn marks_come_back_and_leave_the_expiry_in_its_second() {
        for at_ms in [0, 1_700_000_000_000, 1_700_000_000_999, u64::MAX, NEVER_MS - 1] {
            assert_eq!(marks(at_ms), Marks::default());
            let (unmarked_s, now_ms) = (unix_seconds(at_ms), 1_600_000_000_000);
            for bits in 0..8 {
                let marks = Marks {
                    is_stale: bits & 1 != 0,
                    is_won: bits & 2 != 0,
                    is_base64: bits & 4 != 0,
                };
                let marked = marked(at_ms, marks);
                assert_eq!(self::marks(marked), marks);
                assert_eq!(unix_seconds(marked), unmarked_s);
                assert_eq!(unix_seconds(unmarked(marked)), unmarked_s);
                assert_eq!(self::marks(unmarked(marked)), Marks::default());
                assert_eq!(seconds_left_at(marked, now_ms).is_none(), unmarked_s.is_none());
            }
        }
    }

    #[test]
    fn no_expiry_that_a_client_sends_looks_marked() {
        for exptime in (1..1000).chain([RELATIVE_SECONDS_MAX, 2_000_000_000, i64::MAX]) {
            assert_eq!(marks(expires_at_ms(exptime)), Marks::default());
        }
    }

    #[test]
    fn seconds_left_are_those_that_were_asked_for() {
        let now_ms = now_ms();
        assert_eq!(seconds_left_at(expires_at_ms(0), now_ms), None);
        assert_eq!(seconds_left_at(now_ms + 100_000, now_ms), Some(100));
        assert_eq!(seconds_left_at(now_ms + 100_000, now_ms + 5), Some(100));
        assert_eq!(seconds_left_at(now_ms, now_ms + 5), Some(0));
    }
}
