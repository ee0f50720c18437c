//! Versions of records: the time and random bits, so that servers need not agree on them.

use rustix::rand::{GetRandomFlags, getrandom};

/// Random bits at the end of a version. The milliseconds before them fit until the year 2248.
const RANDOM_BITS: u32 = 20;

/// Returns a version that no other change has, above 0 and above `last`: the version of the record
/// before the change, or 0. So the versions of a record grow, but for changes that have not read
/// it, which follow the clocks of the servers. Two changes of one record in the same millisecond
/// have the same version with a probability of 1 in 1,000,000.
pub(crate) fn next(last: i64, now_ms: u64) -> i64 {
    let random = i64::from(random() >> (u32::BITS - RANDOM_BITS));
    let of_time = (now_ms << RANDOM_BITS).cast_signed() & i64::MAX | random;
    match last.checked_add(1 + random) {
        Some(after_last) if last >= of_time => after_last,
        _ => of_time.max(1),
    }
}

/// Returns the time of a version, in milliseconds since 1970. The clock of its server may be wrong.
pub(crate) fn time_ms(version: i64) -> u64 {
    version.cast_unsigned() >> RANDOM_BITS
}

/// Returns random bits.
pub(crate) fn random() -> u32 {
    let mut bytes = [0; 4];
    // The system's generator is ready once the machine has started, and fills 4 bytes at once.
    while getrandom(&mut bytes[..], GetRandomFlags::empty()) != Ok(bytes.len()) {}
    u32::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time of the year 2026.
    const NOW_MS: u64 = 1_790_000_000_000;

    #[test]
    fn versions_differ_and_grow_with_the_time() {
        let versions: std::collections::HashSet<i64> =
            (0..1000).map(|ms| next(0, NOW_MS + ms)).collect();
        assert_eq!(versions.len(), 1000);
        assert!(versions.iter().all(|version| *version > 0));
        assert!(next(0, NOW_MS) < next(0, NOW_MS + 1));
        assert_eq!(time_ms(next(0, NOW_MS)), NOW_MS);
    }

    #[test]
    fn a_version_is_above_the_one_before_even_if_the_clock_is_behind() {
        let last = next(0, NOW_MS + 1000);
        for now_ms in [0, NOW_MS, NOW_MS + 1000] {
            assert!(next(last, now_ms) > last);
        }
        assert!(next(i64::MAX, NOW_MS) > 0);
        assert!(next(0, u64::MAX) > 0);
    }
}
