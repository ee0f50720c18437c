//! Versions of records: random numbers, so that servers need not agree on them.

use rustix::rand::{GetRandomFlags, getrandom};

/// Returns a version that no other change has: 63 random bits, above 0. Two changes of one record
/// among 1,000,000 have the same one with a probability of 1 in 10,000,000.
pub(crate) fn fresh() -> i64 {
    let mut bytes = [0; 8];
    loop {
        let filled = getrandom(&mut bytes[..], GetRandomFlags::empty());
        let version = (u64::from_le_bytes(bytes) >> 1).cast_signed();
        // The system's generator is ready once the machine has started, and fills 8 bytes at once.
        if filled == Ok(bytes.len()) && version > 0 {
            return version;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_positive_and_differ() {
        let versions: std::collections::HashSet<i64> = (0..10_000).map(|_| fresh()).collect();
        assert_eq!(versions.len(), 10_000);
        assert!(versions.iter().all(|version| *version > 0));
    }
}
