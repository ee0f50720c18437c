//! One record of a page, as bytes.
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

use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::{Entry, Meta};

const HAS_EXPIRY: u8 = 1;
const HAS_CLIENT_FLAGS: u8 = 2;

/// Most bytes that a cell takes beside its key and value.
pub(super) const OVERHEAD_BYTES_MAX: usize = 1 + 3 + 5 + 8 + 8 + 4;

/// Appends a record to the bytes.
pub(super) fn encode(entry: &Entry<'_>, bytes: &mut Vec<u8>) {
    let Entry { key, value, meta, version } = *entry;
    let mut flags = 0;
    if meta.expires_at_ms != 0 {
        flags |= HAS_EXPIRY;
    }
    if meta.flags != 0 {
        flags |= HAS_CLIENT_FLAGS;
    }
    bytes.push(flags);
    push_varint(bytes, key.len());
    push_varint(bytes, value.len());
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

/// Bytes that a record takes.
pub(super) fn encoded_bytes(entry: &Entry<'_>) -> usize {
    let optional = if entry.meta.expires_at_ms == 0 { 0 } else { 8 }
        + if entry.meta.flags == 0 { 0 } else { 4 };
    let (key, value) = (entry.key.len(), entry.value.len());
    1 + varint_bytes(key) + varint_bytes(value) + 8 + optional + key + value
}

/// The record that the bytes begin with, and how many it takes. `None` if there is none.
#[inline]
pub(super) fn decode(bytes: &[u8]) -> Option<(Entry<'_>, usize)> {
    let (&flags, rest) = bytes.split_first()?;
    let (key_bytes, rest) = read_varint(rest)?;
    let (value_bytes, rest) = read_varint(rest)?;
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
    let entry = Entry { key, value, meta, version: u64::from_le_bytes(*version) };
    Some((entry, bytes.len() - rest.len()))
}

pub(super) fn push_varint(bytes: &mut Vec<u8>, number: usize) {
    let mut rest = number;
    while rest >= 0x80 {
        bytes.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

fn varint_bytes(number: usize) -> usize {
    (usize::BITS - (number | 1).leading_zeros()).div_ceil(7) as usize
}

/// A number of at most five bytes, and what follows it.
#[inline]
pub(super) fn read_varint(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        return Some((first.into(), rest));
    }
    let mut number = usize::from(first & 0x7f);
    for (index, &byte) in rest.iter().enumerate().take(4) {
        number |= usize::from(byte & 0x7f) << (7 * (index + 1));
        if byte < 0x80 {
            return Some((number, &rest[index + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_comes_back(
            key in proptest::collection::vec(any::<u8>(), 0..300),
            value in proptest::collection::vec(any::<u8>(), 0..300),
            expires_at_ms in prop_oneof![Just(0), any::<u64>()],
            flags in prop_oneof![Just(0), any::<u32>()],
            version: u64,
        ) {
            let meta = Meta { flags, expires_at_ms };
            let entry = Entry { key: &key, value: &value, meta, version };
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
        fn hostile_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            if let Some((_, length)) = decode(&bytes) {
                prop_assert!(length <= bytes.len());
            }
        }
    }
}
