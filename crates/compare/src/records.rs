//! Records that all stores and servers store.
//!
//! Key and value of record n follow from n, so all reads can be checked without remembering the
//! records. Keys look random and values do not compress.

use crate::random::{Random, mix};
use std::io::Write as _;

const POOL_BYTES: usize = 1 << 20;

/// Longest possible value, in bytes.
pub const VALUE_BYTES_MAX: usize = POOL_BYTES / 2;

/// Shortest possible key, in bytes: it must hold the number.
pub const KEY_BYTES_MIN: usize = 8;

/// Keys and values by number.
#[derive(Debug)]
pub struct Records {
    pool: Vec<u8>,
}

impl Default for Records {
    fn default() -> Self {
        Self::new()
    }
}

impl Records {
    /// Returns the records.
    #[must_use]
    pub fn new() -> Self {
        let mut random = Random::new(0);
        let pool = (0..POOL_BYTES / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect();
        Self { pool }
    }

    /// Returns the value of a record: `bytes` (at most [`VALUE_BYTES_MAX`]) of noise, different for
    /// each number and each `edition`.
    #[must_use]
    pub fn value(&self, number: u64, edition: u64, bytes: usize) -> &[u8] {
        let places = (POOL_BYTES - bytes.min(VALUE_BYTES_MAX)) as u64;
        let start = (mix(number ^ edition.rotate_left(32)) % places) as usize;
        &self.pool[start..start + bytes.min(VALUE_BYTES_MAX)]
    }
}

/// Returns the key of a record for text protocols: 16 hexadecimal digits.
#[must_use]
pub fn text_key(number: u64) -> [u8; 16] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let scattered = mix(number);
    std::array::from_fn(|place| DIGITS[(scattered >> (60 - 4 * place) & 15) as usize])
}

/// Fills `key` (at least [`KEY_BYTES_MIN`] bytes) with the key of a record for embedded stores:
/// binary, scattered, and distinct for distinct numbers.
pub fn fill_key(number: u64, mut key: &mut [u8]) {
    let mut word = mix(number);
    while !key.is_empty() {
        // Writing to a slice fails only when it is full, which ends the loop.
        let _ = key.write(&word.to_be_bytes());
        word = mix(word);
    }
}

/// Sets `key` to the id of a record, from 1 to `records`. Ids of distinct numbers below `records`
/// are distinct, provided that `records` is no multiple of the multiplier.
pub fn fill_id(number: u64, records: u64, key: &mut Vec<u8>) {
    // A prime, so that ids of consecutive numbers are far apart.
    const MULTIPLIER: u64 = 2_654_435_761;
    key.clear();
    let id = number.wrapping_mul(MULTIPLIER) % records.max(1) + 1;
    // Writing to a vector does not fail.
    let _ = write!(key, "{id}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_are_distinct_and_fill_their_length() {
        let keys: HashSet<_> = (0..10_000).map(text_key).collect();
        assert_eq!(keys.len(), 10_000);
        let mut key = [0; 19];
        fill_key(5, &mut key);
        assert!(key[16..].iter().any(|byte| *byte != 0));
    }

    #[test]
    fn values_follow_from_number_and_edition() {
        let records = Records::new();
        assert_eq!(records.value(3, 0, 100), records.value(3, 0, 100));
        assert_ne!(records.value(3, 0, 100), records.value(4, 0, 100));
        assert_ne!(records.value(3, 0, 100), records.value(3, 1, 100));
        assert_eq!(records.value(3, 0, VALUE_BYTES_MAX).len(), VALUE_BYTES_MAX);
    }
}
