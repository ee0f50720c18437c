//! Cell: the bytes of one record of a page.
//!
//! ```text
//! 0    1  flags: bit 0 an expiry is present, bit 1 client flags are present
//! 1  1-3  length of the key, LEB128
//!    1-5  length of the value, LEB128
//!      8  version: sequence number of its last change
//!     (8) expiry, milliseconds since the Unix epoch
//!     (4) client flags
//!         key
//!         value
//! ```

use crate::base::varint;
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::{Meta, RecordRef, Version};

const HAS_EXPIRY: u8 = 1;
const HAS_CLIENT_FLAGS: u8 = 2;

/// Maximum bytes of a cell beside its key and value.
pub(super) const OVERHEAD_BYTES_MAX: usize = 1 + 3 + 5 + 8 + 8 + 4;

/// Appends the cell of a record to `bytes`.
pub(super) fn encode(entry: &RecordRef<'_>, bytes: &mut Vec<u8>) {
    let RecordRef { key, value, meta, version } = *entry;
    bytes.push(flags_of(meta));
    push_length(bytes, key.len());
    push_length(bytes, value.len());
    bytes.extend_from_slice(&version.to_le_bytes());
    if meta.expires_at_ms != 0 {
        bytes.extend_from_slice(&meta.expires_at_ms.to_le_bytes());
    }
    if meta.flags != 0 {
        bytes.extend_from_slice(&meta.flags.to_le_bytes());
    }
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
}

/// Overwrites value, meta and version of the record that `bytes` begins with. Returns false and
/// changes nothing if the new cell would have another layout.
pub(super) fn overwrite(bytes: &mut [u8], value: &[u8], meta: Meta, version: Version) -> bool {
    let Some((old, total)) = decode(bytes) else { return false };
    if old.value.len() != value.len() || bytes[0] != flags_of(meta) {
        return false;
    }
    let version_at = total - value.len() - old.key.len() - optional_bytes(meta) - 8;
    let mut at = version_at;
    let mut write = |part: &[u8]| {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    };
    write(&version.to_le_bytes());
    if meta.expires_at_ms != 0 {
        write(&meta.expires_at_ms.to_le_bytes());
    }
    if meta.flags != 0 {
        write(&meta.flags.to_le_bytes());
    }
    bytes[total - value.len()..total].copy_from_slice(value);
    true
}

fn flags_of(meta: Meta) -> u8 {
    let expiry = if meta.expires_at_ms == 0 { 0 } else { HAS_EXPIRY };
    expiry | if meta.flags == 0 { 0 } else { HAS_CLIENT_FLAGS }
}

/// Returns the bytes that expiry and client flags take.
fn optional_bytes(meta: Meta) -> usize {
    let expiry = if meta.expires_at_ms == 0 { 0 } else { 8 };
    expiry + if meta.flags == 0 { 0 } else { 4 }
}

/// Returns the bytes of a record's cell.
pub(super) fn encoded_bytes(entry: &RecordRef<'_>) -> usize {
    let (key, value) = (entry.key.len(), entry.value.len());
    let optional = optional_bytes(entry.meta);
    1 + varint::len(key as u64) + varint::len(value as u64) + 8 + optional + key + value
}

/// Returns the record that `bytes` begins with, and the bytes of its cell; `None` if there is none.
#[inline]
pub(super) fn decode(bytes: &[u8]) -> Option<(RecordRef<'_>, usize)> {
    let (&flags, rest) = bytes.split_first()?;
    let (key_bytes, rest) = split_length(rest)?;
    let (value_bytes, rest) = split_length(rest)?;
    if key_bytes > KEY_BYTES_MAX || value_bytes > VALUE_BYTES_MAX || flags > 3 {
        return None;
    }
    let (version, mut rest) = rest.split_first_chunk::<8>()?;
    let mut meta = Meta::NONE;
    if flags & HAS_EXPIRY != 0 {
        let (expiry, after) = rest.split_first_chunk::<8>()?;
        meta.expires_at_ms = u64::from_le_bytes(*expiry);
        rest = after;
    }
    if flags & HAS_CLIENT_FLAGS != 0 {
        let (client_flags, after) = rest.split_first_chunk::<4>()?;
        meta.flags = u32::from_le_bytes(*client_flags);
        rest = after;
    }
    let (key, rest) = rest.split_at_checked(key_bytes)?;
    let (value, rest) = rest.split_at_checked(value_bytes)?;
    let entry = RecordRef { key, value, meta, version: u64::from_le_bytes(*version) };
    Some((entry, bytes.len() - rest.len()))
}

/// Maximum bytes of an encoded length.
const LENGTH_BYTES_MAX: usize = 5;

/// Appends a length.
pub(super) fn push_length(bytes: &mut Vec<u8>, length: usize) {
    varint::push(bytes, length as u64);
}

/// Returns the length that `bytes` begins with, and the bytes after it.
#[inline]
pub(super) fn split_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (length, rest) = varint::split::<LENGTH_BYTES_MAX>(bytes)?;
    Some((usize::try_from(length).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_decoded_record_equals_the_encoded_one(
            key in proptest::collection::vec(any::<u8>(), 0..300),
            value in proptest::collection::vec(any::<u8>(), 0..300),
            expires_at_ms in prop_oneof![Just(0), any::<u64>()],
            flags in prop_oneof![Just(0), any::<u32>()],
            version: u64,
        ) {
            let meta = Meta { flags, expires_at_ms };
            let entry = RecordRef { key: &key, value: &value, meta, version };
            let mut bytes = Vec::new();
            encode(&entry, &mut bytes);
            prop_assert_eq!(bytes.len(), encoded_bytes(&entry));
            prop_assert!(bytes.len() <= key.len() + value.len() + OVERHEAD_BYTES_MAX);
            bytes.push(1);
            let (read, length) = decode(&bytes).unwrap();
            prop_assert_eq!(length, bytes.len() - 1);
            prop_assert_eq!((read.key, read.value), (&key[..], &value[..]));
            prop_assert_eq!((read.meta, read.version), (meta, version));
            for end in 0..bytes.len() - 1 {
                prop_assert!(decode(&bytes[..end]).is_none());
            }
        }

        #[test]
        fn an_overwritten_cell_equals_a_newly_encoded_one(
            key in proptest::collection::vec(any::<u8>(), 0..300),
            lengths in prop_oneof![(0..300usize).prop_map(|n| (n, n)), (0..300usize, 0..300usize)],
            expiries in prop::array::uniform2(prop_oneof![Just(0), any::<u64>()]),
            flags in prop::array::uniform2(prop_oneof![Just(0), any::<u32>()]),
        ) {
            let values = [vec![1; lengths.0], vec![2; lengths.1]];
            let encoded = [0, 1].map(|which| {
                let meta = Meta { flags: flags[which], expires_at_ms: expiries[which] };
                let version = which as u64 + 7;
                let mut bytes = Vec::new();
                encode(&RecordRef { key: &key, value: &values[which], meta, version }, &mut bytes);
                bytes.push(9);
                bytes
            });
            let mut bytes = encoded[0].clone();
            let meta = Meta { flags: flags[1], expires_at_ms: expiries[1] };
            let is_same_shape = lengths.0 == lengths.1
                && (expiries[0] == 0) == (expiries[1] == 0)
                && (flags[0] == 0) == (flags[1] == 0);
            prop_assert_eq!(overwrite(&mut bytes, &values[1], meta, 8), is_same_shape);
            prop_assert_eq!(&bytes, &encoded[usize::from(is_same_shape)]);
        }

        #[test]
        fn hostile_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            if let Some((_, length)) = decode(&bytes) {
                prop_assert!(length <= bytes.len());
            }
        }
    }
}
