//! The iterator of a connection over a store: keys in the order of the store, read in pages.

use super::{KeysBegin, StoreAnswer};
use std::collections::VecDeque;

/// Limits of a page. The bytes are more than those of the longest key of any store.
pub(crate) const PAGE_KEYS: usize = 1000;
pub(crate) const PAGE_KEY_BYTES: usize = 256 << 10;

/// An iteration over the keys of a store. An idle one takes the memory of a page at most.
#[derive(Debug)]
pub(crate) struct KeyCursor {
    ahead: VecDeque<Vec<u8>>,
    /// Length of the keys when they were read.
    ahead_bytes: usize,
    /// Beginning of the next page; `None` after the last one.
    next: Option<KeysBegin>,
}

impl KeyCursor {
    /// Returns an iteration from the first key on.
    pub(crate) fn start() -> Self {
        Self { ahead: VecDeque::new(), ahead_bytes: 0, next: Some(KeysBegin::First) }
    }

    /// Returns the memory that the keys take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.ahead_bytes
    }

    /// Returns the next key, if it was read.
    pub(crate) fn first(&self) -> Option<&[u8]> {
        self.ahead.front().map(Vec::as_slice)
    }

    /// Takes the next key, if it was read.
    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        self.ahead.pop_front()
    }

    /// Returns the beginning of the page that has to be read before the next key is known. Without
    /// one, and without a next key, the iteration is at its end.
    pub(crate) fn missing(&self) -> Option<&KeysBegin> {
        self.next.as_ref().filter(|_| self.ahead.is_empty())
    }

    /// Adds a page, and returns whether the answer is one.
    pub(crate) fn fill(&mut self, answer: StoreAnswer) -> bool {
        let StoreAnswer::Keys { keys, is_complete } = answer else { return false };
        let is_last = is_complete && keys.len() < PAGE_KEYS;
        self.next = keys.last().filter(|_| !is_last).map(|last| KeysBegin::After(last.clone()));
        self.ahead_bytes = keys.iter().map(|key| key.len() + size_of::<Vec<u8>>()).sum();
        self.ahead = keys.into();
        // An incomplete page without a key would look like the end.
        is_complete || !self.ahead.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iteration_ends_after_a_page_that_is_not_full() {
        let page = |keys: usize, is_complete| {
            let keys = (0..keys).map(|key| key.to_string().into_bytes()).collect();
            StoreAnswer::Keys { keys, is_complete }
        };
        let mut cursor = KeyCursor::start();
        assert_eq!(cursor.missing(), Some(&KeysBegin::First));
        for (keys, is_complete, next) in [
            (PAGE_KEYS, true, Some(PAGE_KEYS - 1)),
            (PAGE_KEYS - 1, false, Some(PAGE_KEYS - 2)),
            (PAGE_KEYS - 1, true, None),
            (0, true, None),
        ] {
            assert!(cursor.fill(page(keys, is_complete)));
            assert_eq!(cursor.missing().filter(|_| keys > 0), None);
            for key in 0..keys {
                assert_eq!(cursor.first(), Some(key.to_string().as_bytes()));
                assert_eq!(cursor.pop(), Some(key.to_string().into_bytes()));
            }
            let next = next.map(|key| KeysBegin::After(key.to_string().into_bytes()));
            assert_eq!(cursor.missing(), next.as_ref());
        }
        assert!(!cursor.fill(page(0, false)));
        assert!(!cursor.fill(StoreAnswer::Done));
    }
}
