//! Keys in the cluster. Those of a fixed-length database are ids of 8 bytes, big-endian: so the
//! order of their bytes is that of the numbers.

use cabinet::ids::text_of;
use cabinet::limits::FIXED_ID_MAX;

/// First byte of each key in the cluster.
const KEY_PREFIX: u8 = 0;

/// Longest key of a partition, in bytes.
pub(crate) const PARTITION_KEY_BYTES_MAX: usize = 65_535;

/// Length of the key of an id with the byte before it.
pub(crate) const ID_KEY_BYTES: usize = 1 + size_of::<u64>();

/// Longest key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = PARTITION_KEY_BYTES_MAX - 1;

/// Returns the key of a record in the cluster.
pub(crate) fn prefixed(key: &[u8]) -> Vec<u8> {
    [&[KEY_PREFIX], key].concat()
}

/// Returns the key of an id.
pub(crate) fn of_id(id: u64) -> Vec<u8> {
    id.to_be_bytes().to_vec()
}

/// Returns the key of an id as clients know it, and other bytes as they are.
pub(crate) fn text_of_id(key: Vec<u8>) -> Vec<u8> {
    match key.as_slice().try_into() {
        Ok(bytes) => text_of(u64::from_be_bytes(bytes)),
        Err(_) => key,
    }
}

/// Returns the intervals of ids whose text begins with a prefix: first and last ids, ascending.
pub(crate) fn with_prefix(prefix: &[u8]) -> Vec<(u64, u64)> {
    let digits = || std::str::from_utf8(prefix).ok().filter(|text| !text.starts_with(['0', '+']));
    let mut first = match digits().map(str::parse::<u64>) {
        _ if prefix.is_empty() => return vec![(1, FIXED_ID_MAX)],
        Some(Ok(number)) => number,
        _ => return Vec::new(),
    };
    let mut intervals = Vec::new();
    let mut length = 1;
    while first <= FIXED_ID_MAX {
        intervals.push((first, FIXED_ID_MAX.min(first + (length - 1))));
        let Some(longer) = first.checked_mul(10) else { break };
        first = longer;
        length *= 10;
    }
    intervals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_in_the_order_of_their_keys_and_come_back_as_text() {
        let ids = [1, 2, 10, 255, 256, 1 << 32, FIXED_ID_MAX];
        assert!(ids.map(of_id).is_sorted());
        for id in ids {
            assert_eq!(text_of_id(of_id(id)), id.to_string().into_bytes());
        }
        assert_eq!(text_of_id(b"1234567".to_vec()), b"1234567");
    }

    #[test]
    fn ids_with_a_prefix_are_those_whose_text_begins_with_it() {
        assert_eq!(with_prefix(b""), [(1, FIXED_ID_MAX)]);
        assert_eq!(with_prefix(b"12")[..3], [(12, 12), (120, 129), (1200, 1299)]);
        for prefix in [&b"0"[..], b"01", b"+1", b"-1", b"a", b" 1", b"9223372036854775808"] {
            assert_eq!(with_prefix(prefix), [], "{prefix:?}");
        }
        let max = FIXED_ID_MAX.to_string();
        for length in 1..=max.len() {
            let last = with_prefix(&max.as_bytes()[..length]).pop().unwrap();
            assert_eq!(last.1, FIXED_ID_MAX);
            assert!(last.0.to_string().starts_with(&max[..length]));
        }
        // As text, over the ids that decide about each boundary.
        for prefix in ["1", "9", "10", "99", "922", "5"] {
            let intervals = with_prefix(prefix.as_bytes());
            assert!(intervals.is_sorted());
            let edges = intervals
                .iter()
                .flat_map(|(first, last)| [first - 1, *first, *last, last.saturating_add(1)]);
            for id in edges.filter(|id| (1..=FIXED_ID_MAX).contains(id)) {
                let is_within = intervals.iter().any(|(first, last)| (first..=last).contains(&&id));
                assert_eq!(is_within, id.to_string().starts_with(prefix), "{prefix} {id}");
            }
        }
    }
}
