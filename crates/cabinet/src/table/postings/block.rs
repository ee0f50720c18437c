//! Blocks: consecutive postings of one index in one record of the engine beneath.
//!
//! ```text
//! posting: bytes that its key shares with the one before (varint)
//!        bytes of the key behind those (varint)
//!        bytes of the value (varint)
//!        rest of the key, value
//! ```
//!
//! Keys are without the number of the index, which all of a block have. The first shares nothing.

use crate::varint;

/// Bytes of a block above which it is divided, and about which its parts then have.
pub(super) const BLOCK_BYTES_MAX: usize = 1536;
const BLOCK_BYTES: usize = 1024;

/// Goes through the postings of a block.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    /// The key of the posting that it stands on, with what all have in front.
    key: Vec<u8>,
    value: &'a [u8],
    /// Bytes behind that which the key shares with the one before.
    shared: usize,
    prefix_len: usize,
    is_damaged: bool,
}

impl<'a> Reader<'a> {
    /// Keys come with `prefix` in front.
    pub(super) fn new(block: &'a [u8], prefix: &[u8]) -> Self {
        let mut key = Vec::with_capacity(64);
        key.extend_from_slice(prefix);
        let prefix_len = prefix.len();
        Self { rest: block, key, value: &[], shared: 0, prefix_len, is_damaged: false }
    }

    /// The next posting, key and value.
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

    /// The posting that it stands on: its key, less what all have in front, and its value.
    pub(super) fn posting(&self) -> (&[u8], &'a [u8]) {
        (&self.key[self.prefix_len..], self.value)
    }

    /// Bytes that this key shares with the one before.
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

    /// Whether what was read so far ended with bytes that are no posting.
    pub(super) fn is_damaged(&self) -> bool {
        self.is_damaged
    }
}

/// Puts postings into blocks.
#[derive(Default)]
pub(super) struct Writer {
    /// Postings as in a block, and where each begins and its key does; of the last key all bytes.
    bytes: Vec<u8>,
    last: Vec<u8>,
    places: Vec<Place>,
}

struct Place {
    start: usize,
    shared: usize,
}

impl Writer {
    /// Adds a posting; its key, without the number of the index, is greater than those before.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        self.push_sharing(common(&self.last, key), key, value);
    }

    /// As `push`, where it is known how many bytes the key shares with the last one.
    pub(super) fn push_sharing(&mut self, shared: usize, key: &[u8], value: &[u8]) {
        self.places.push(Place { start: self.bytes.len(), shared });
        push_posting(&mut self.bytes, shared, &key[shared..], value);
        self.last.truncate(shared);
        self.last.extend_from_slice(&key[shared..]);
    }

    /// Hands on the blocks: of each the last key and its bytes. Leaves the writer empty.
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
            // The first of a block shares nothing.
            let shared = if block.is_empty() { 0 } else { place.shared };
            push_posting(&mut block, shared, &key[shared..], value);
            key.clone_into(&mut last);
        }
        each(&last, &block);
    }
}

/// How many bytes two keys have in common.
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
        fn postings_come_back_from_blocks_of_about_the_same_length(
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
                    let mut reader = Reader::new(block, b"in front");
                    while let Some((key, value)) = reader.next() {
                        let key = key.strip_prefix(b"in front").unwrap().to_vec();
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
        fn what_keys_have_in_common_is_told(
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
