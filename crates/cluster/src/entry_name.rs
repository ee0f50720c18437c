//! Names of the entries in the order of the keys of a B+ tree. A name tells how long its entry
//! lives.
//!
//! An entry lives longer than its record would, so that a record whose expiry moves, as by each
//! touch, keeps its entry. A new one each time would leave an old one that lists meet until
//! Cassandra purges it.
//!
//! | bits | content |
//! | --- | --- |
//! | 0 to 4 | life: 2 to this power, in minutes; 31 is without end |
//! | 5 to 36 | random |
//! | 37 to 62 | time at which the entry was made, in units of 2^17 ms since 1970 |
//!
//! Names are read as if they had a time in milliseconds from bit 20 on, as they had before. So the
//! times of entries are up to 131 seconds wrong, which is little beside their lives.
//!
//! A change that meets another one removes the entry that it has added. If two servers put a record
//! of one key within the same 131 seconds, so that one of them meets the other, their entries have
//! the same name with a probability of 1 in 4,294,967,296. The record would lose its entry then.

use crate::cell::TTL_SLACK_SECONDS;
use crate::version;

/// Bits of the life.
const LIFE_BITS: u32 = 5;

/// First bit of the time.
const TIME_BIT: u32 = LIFE_BITS + u32::BITS;

/// The unit of the time is 2 to this power, in milliseconds.
const TIME_UNIT_BITS: u32 = 17;

/// Shortest life: 16 minutes.
const LIFE_MIN: i64 = 4;

/// Longest life that ends: 4 years. Cassandra refuses one of more than 20 years.
const LIFE_MAX: i64 = 21;

/// A life without end.
const ENDLESS: i64 = (1 << LIFE_BITS) - 1;

/// How much longer an entry may live than a new one would, as a power of 2.
const LIFE_EXCESS_MAX: i64 = 2;

/// Returns the name of a new entry, by the expiry of its record.
pub(crate) fn new(now_ms: u64, expires_at_ms: u64) -> i64 {
    with_random(now_ms, expires_at_ms, version::random())
}

fn with_random(now_ms: u64, expires_at_ms: u64, random: u32) -> i64 {
    let time = (now_ms >> TIME_UNIT_BITS << TIME_BIT).cast_signed() & i64::MAX;
    time | i64::from(random) << LIFE_BITS | life(now_ms, expires_at_ms)
}

/// Returns the time at which an entry was made, in milliseconds since 1970, within 131 seconds.
pub(crate) fn made_at_ms(name: i64) -> u64 {
    version::time_ms(name)
}

/// Returns the end of an entry in milliseconds since 1970, 0 for never.
pub(crate) fn ends_at_ms(name: i64) -> u64 {
    match name & ENDLESS {
        life @ ..=LIFE_MAX => made_at_ms(name).saturating_add(60_000 << life),
        _ => 0,
    }
}

/// Returns whether a record with this expiry may keep its entry: if that lives longer than the
/// record, and not very much longer.
pub(crate) fn may_stay(name: i64, expires_at_ms: u64, now_ms: u64) -> bool {
    let wanted = life(now_ms, expires_at_ms);
    match (wanted, ends_at_ms(name)) {
        (ENDLESS, ends_at_ms) => ends_at_ms == 0,
        (_, 0) => false,
        (_, ends_at_ms) => {
            let is_enough = ends_at_ms >= expires_at_ms.saturating_add(TTL_SLACK_SECONDS * 1000);
            is_enough && name & ENDLESS <= wanted + LIFE_EXCESS_MAX
        }
    }
}

/// Returns the life of an entry that is made now: half as long again as that of its record, or
/// more.
fn life(now_ms: u64, expires_at_ms: u64) -> i64 {
    if expires_at_ms == 0 {
        return ENDLESS;
    }
    let needed_ms = expires_at_ms.saturating_sub(now_ms).saturating_add(TTL_SLACK_SECONDS * 1000);
    let wanted_ms = needed_ms.saturating_add(needed_ms / 2);
    let is_enough = |life: &i64| 60_000_u64 << life >= wanted_ms;
    (LIFE_MIN..=LIFE_MAX).find(is_enough).unwrap_or(ENDLESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time of the year 2026.
    const NOW_MS: u64 = 1_790_000_000_000;
    const MINUTE_MS: u64 = 60_000;
    const YEAR_MS: u64 = 365 * 24 * 60 * MINUTE_MS;

    /// Returns a name whose time has no error.
    fn exact(expires_at_ms: u64) -> i64 {
        let below_unit = NOW_MS & ((1 << TIME_UNIT_BITS) - 1);
        let name = with_random(NOW_MS, expires_at_ms, (below_unit as u32) << (32 - TIME_UNIT_BITS));
        assert_eq!(made_at_ms(name), NOW_MS);
        name
    }

    #[test]
    fn an_entry_lives_longer_than_its_record_and_for_ever_with_one_that_does_not_expire() {
        for (after_ms, life_minutes) in [
            (1, 16),
            (9 * MINUTE_MS, 16),
            (10 * MINUTE_MS, 32),
            (60 * MINUTE_MS, 128),
            (2 * YEAR_MS, 1 << 21),
        ] {
            let expires_at_ms = NOW_MS + after_ms;
            let end_ms = ends_at_ms(exact(expires_at_ms));
            assert_eq!(end_ms, NOW_MS + life_minutes * MINUTE_MS, "{after_ms}");
            for random in [0, u32::MAX] {
                let end_ms = ends_at_ms(with_random(NOW_MS, expires_at_ms, random));
                assert!(end_ms >= expires_at_ms + TTL_SLACK_SECONDS * 1000, "{after_ms}");
                assert!(end_ms.abs_diff(NOW_MS + life_minutes * MINUTE_MS) <= 131_072);
            }
        }
        for expires_at_ms in [0, NOW_MS + 3 * YEAR_MS, u64::MAX] {
            assert_eq!(ends_at_ms(new(NOW_MS, expires_at_ms)), 0, "{expires_at_ms}");
        }
        // A record that was put expired has an entry for a while.
        assert!(ends_at_ms(new(NOW_MS, 1)) > NOW_MS);
        assert!(new(u64::MAX, 0) > 0);
    }

    #[test]
    fn names_of_the_same_time_have_32_random_bits() {
        let name = with_random(NOW_MS, 0, 0);
        let others: std::collections::HashSet<i64> =
            (0..u32::BITS).map(|bit| with_random(NOW_MS, 0, 1 << bit)).collect();
        assert_eq!(others.len(), 32);
        assert!(!others.contains(&name));
        for other in others {
            assert!(made_at_ms(other).abs_diff(NOW_MS) <= 131_072);
            assert_eq!(ends_at_ms(other), 0);
        }
    }

    #[test]
    fn names_with_the_bits_of_a_version_are_read() {
        let version = version::next(0, NOW_MS);
        let name = version & !ENDLESS | 6;
        assert_eq!(made_at_ms(name), NOW_MS);
        assert_eq!(ends_at_ms(name), NOW_MS + 64 * MINUTE_MS);
        assert_eq!(ends_at_ms(version | ENDLESS), 0);
    }

    #[test]
    fn a_record_that_is_touched_each_minute_keeps_its_entry_for_most_of_an_hour() {
        let name = exact(NOW_MS + 60 * MINUTE_MS);
        for (minute, stays) in [(0, true), (1, true), (60, true), (66, true), (68, false)] {
            let now_ms = NOW_MS + minute * MINUTE_MS;
            assert_eq!(may_stay(name, now_ms + 60 * MINUTE_MS, now_ms), stays, "{minute}");
        }
        // It is not kept for years by a record that expires soon, nor for ever.
        for (life_ms, later_ms, stays) in [
            (60 * MINUTE_MS, 20 * MINUTE_MS, true),
            (60 * MINUTE_MS, MINUTE_MS, false),
            (YEAR_MS, 60 * MINUTE_MS, false),
        ] {
            let name = exact(NOW_MS + life_ms);
            assert_eq!(may_stay(name, NOW_MS + later_ms, NOW_MS), stays, "{life_ms} {later_ms}");
        }
        let endless = exact(0);
        assert!(may_stay(endless, 0, NOW_MS));
        assert!(may_stay(endless, u64::MAX, NOW_MS));
        assert!(!may_stay(endless, NOW_MS + MINUTE_MS, NOW_MS));
        assert!(!may_stay(name, 0, NOW_MS));
    }
}
