//! Block: consecutive postings of one index in one record of the engine.
//!
//! ```text
//! posting: number of bytes that its key shares with the previous one (varint)
//!        number of the other bytes of the key (varint)
//!        number of bytes of the value (varint)
//!        other bytes of the key, value
//! ```
//!
//! Keys are stored without the prefix of the index, which is the same for all. The first posting
//! shares no bytes.

use crate::base::varint;

/// Bytes of a block above which it is divided.
pub(super) const BLOCK_BYTES_MAX: usize = 1536;
/// Approximate bytes of each part of a divided block.
const BLOCK_BYTES: usize = 1024;

/// Reads the postings of a block.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    /// Key of the current posting, with the prefix.
    key: Vec<u8>,
    value: &'a [u8],
    /// Number of bytes after the prefix that the key shares with the previous one.
    shared: usize,
    prefix_len: usize,
    is_damaged: bool,
}

impl<'a> Reader<'a> {
    /// Returns a reader before the first posting. It adds `prefix` to all keys.
    pub(super) fn new(block: &'a [u8], prefix: &[u8]) -> Self {
        let mut key = Vec::with_capacity(64);
        key.extend_from_slice(prefix);
        let prefix_len = prefix.len();
        Self { rest: block, key, value: &[], shared: 0, prefix_len, is_damaged: false }
    }

    /// Returns the key, with the prefix, and the value of the next posting.
    pub(super) fn next(&mut self) -> Option<(&[u8], &'a [u8])> {
        if self.advance() { Some((&self.key, self.value)) } else { None }
    }

    /// Moves to the next posting. Returns whether there is one.
    pub(super) fn advance(&mut self) -> bool {
        if self.rest.is_empty() {
            return false;
        }
        let is_there = self.take().is_some();
        if !is_there {
            self.is_damaged = true;
            self.rest = &[];
        }
        is_there
    }

    /// Returns the key, without the prefix, and the value of the current posting.
    pub(super) fn posting(&self) -> (&[u8], &'a [u8]) {
        (&self.key[self.prefix_len..], self.value)
    }

    /// Returns the number of bytes after the prefix that the current key shares with the previous
    /// one.
    pub(super) fn shared(&self) -> usize {
        self.shared
    }

    fn take(&mut self) -> Option<()> {
        let (shared, key_bytes, value_bytes) = self.take_lengths()?;
        if shared > self.key.len() - self.prefix_len {
            return None;
        }
        let (key, rest) = self.rest.split_at_checked(key_bytes)?;
        let (value, rest) = rest.split_at_checked(value_bytes)?;
        self.key.truncate(self.prefix_len + shared);
        self.key.extend_from_slice(key);
        (self.shared, self.value, self.rest) = (shared, value, rest);
        Some(())
    }

    #[inline]
    fn take_lengths(&mut self) -> Option<(usize, usize, usize)> {
        if let [shared, key, value, rest @ ..] = self.rest
            && (shared | key | value) < 0x80
        {
            self.rest = rest;
            return Some((usize::from(*shared), usize::from(*key), usize::from(*value)));
        }
        let mut number = || usize::try_from(varint::take(&mut self.rest)?).ok();
        Some((number()?, number()?, number()?))
    }

    /// Returns whether reading has ended at bytes that are not a posting.
    pub(super) fn is_damaged(&self) -> bool {
        self.is_damaged
    }
}

/// Writes postings into blocks.
#[derive(Default)]
pub(super) struct Writer {
    /// Postings, encoded as in one block.
    bytes: Vec<u8>,
    /// Last key.
    last: Vec<u8>,
    places: Vec<Place>,
}

/// Position of a posting in the writer's bytes, and number of bytes that its key shares with the
/// previous one.
struct Place {
    start: usize,
    shared: usize,
}

impl Writer {
    /// Adds a posting. Its key, without the prefix of the index, must be greater than the last one.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        self.push_sharing(common(&self.last, key), key, value);
    }

    /// Like `push`, for a key that shares `shared` bytes with the last one.
    pub(super) fn push_sharing(&mut self, shared: usize, key: &[u8], value: &[u8]) {
        self.places.push(Place { start: self.bytes.len(), shared });
        push_posting(&mut self.bytes, shared, &key[shared..], value);
        self.last.truncate(shared);
        self.last.extend_from_slice(&key[shared..]);
    }

    /// Calls `each` with the last key and the bytes of each block. Leaves the writer empty.
    pub(super) fn finish(&mut self, mut each: impl FnMut(&[u8], &[u8])) {
        if self.bytes.len() <= BLOCK_BYTES_MAX {
            if !self.bytes.is_empty() {
                each(&self.last, &self.bytes);
            }
        } else {
            self.divide(&mut each);
        }
        self.bytes.clear();
        self.last.clear();
        self.places.clear();
    }

    fn divide(&self, each: &mut impl FnMut(&[u8], &[u8])) {
        let parts = self.bytes.len().div_ceil(BLOCK_BYTES);
        let part_bytes = self.bytes.len().div_ceil(parts);
        let mut reader = Reader::new(&self.bytes, &[]);
        let mut block = Vec::with_capacity(part_bytes + BLOCK_BYTES);
        let mut last = Vec::new();
        let mut due = part_bytes;
        for place in &self.places {
            if place.start >= due {
                each(&last, &block);
                block.clear();
                due = place.start + part_bytes;
            }
            let Some((key, value)) = reader.next() else { break };
            // The first posting of a block shares no bytes.
            let shared = if block.is_empty() { 0 } else { place.shared };
            push_posting(&mut block, shared, &key[shared..], value);
            key.clone_into(&mut last);
        }
        each(&last, &block);
    }
}

/// Returns the number of bytes that two keys have in common.
pub(super) fn common(one: &[u8], other: &[u8]) -> usize {
    const WORD: usize = size_of::<u64>();
    let mut at = 0;
    let words = one.as_chunks::<WORD>().0.iter().zip(other.as_chunks::<WORD>().0);
    for (one, other) in words {
        let differing = u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other);
        if differing != 0 {
            return at + (differing.trailing_zeros() / 8) as usize;
        }
        at += WORD;
    }
    let rest = one[at..].iter().zip(&other[at..]);
    at + rest.take_while(|(one, other)| one == other).count()
}

fn push_posting(bytes: &mut Vec<u8>, shared: usize, key: &[u8], value: &[u8]) {
    if shared | key.len() | value.len() < 0x80 {
        bytes.extend_from_slice(&[shared as u8, key.len() as u8, value.len() as u8]);
    } else {
        varint::push(bytes, shared as u64);
        varint::push(bytes, key.len() as u64);
        varint::push(bytes, value.len() as u64);
    }
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn blocks_are_of_about_equal_length_and_have_all_postings(
            postings in proptest::collection::btree_map(
                proptest::collection::vec(0u8..4, 0..9),
                proptest::collection::vec(any::<u8>(), 0..200),
                0..100,
            ),
        ) {
            let mut writer = Writer::default();
            for _ in 0..2 {
                postings.iter().for_each(|(key, value)| writer.push(key, value));
                let mut found = BTreeMap::new();
                let mut before = None;
                writer.finish(|last, block| {
                    assert!(block.len() <= BLOCK_BYTES_MAX + 300);
                    let mut reader = Reader::new(block, b"prefix");
                    while let Some((key, value)) = reader.next() {
                        let key = key.strip_prefix(b"prefix").unwrap().to_vec();
                        assert!(before.as_ref().is_none_or(|before| *before < key));
                        assert!(&key[..] <= last);
                        found.insert(key, value.to_vec());
                    }
                    assert!(!reader.is_damaged());
                    assert!(found.contains_key(last));
                    before = Some(last.to_vec());
                });
                prop_assert_eq!(&found, &postings);
            }
        }

        #[test]
        fn common_counts_the_bytes_before_the_first_difference(
            start in proptest::collection::vec(any::<u8>(), 0..40),
            one in proptest::collection::vec(0u8..2, 0..20),
            other in proptest::collection::vec(2u8..4, 0..20),
        ) {
            let keys = ([&start[..], &one].concat(), [&start[..], &other].concat());
            prop_assert_eq!(common(&keys.0, &keys.1), start.len());
        }

        #[test]
        fn hostile_bytes_end_the_postings(bytes in proptest::collection::vec(0u8..20, 0..60)) {
            let mut reader = Reader::new(&bytes, b"p");
            while let Some((key, _)) = reader.next() {
                prop_assert!(key.len() <= bytes.len() + 1);
            }
        }
    }
}
