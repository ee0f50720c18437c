//! Keys in the cluster.

/// First byte of each key in the cluster.
const KEY_PREFIX: u8 = 0;

/// Longest key of a partition, in bytes.
const PARTITION_KEY_BYTES_MAX: usize = 65_535;

/// Longest key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = PARTITION_KEY_BYTES_MAX - 1;

/// Returns the key of a record in the cluster.
pub(crate) fn prefixed(key: &[u8]) -> Vec<u8> {
    [&[KEY_PREFIX], key].concat()
}
