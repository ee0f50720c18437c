//! The key spaces of a table in its one ordered engine, and keys within them
//! (`docs/formats/table.md`).

pub(super) use crate::table_keys::{META, POSTINGS, ROWS};

use crate::limits::INDEXED_VALUE_BYTES_MAX;

/// Ends an escaped value, as a second byte after a NUL: all of the value was there, or it was cut
/// at [`INDEXED_VALUE_BYTES_MAX`].
const WHOLE: u8 = 1;
const CUT: u8 = 2;
/// Byte that follows a NUL that is part of the value.
const NUL: u8 = 0xff;

/// Key of a row.
pub(super) fn row(primary: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(primary.len() + 1);
    key.push(ROWS);
    key.extend_from_slice(primary);
    key
}

/// Second byte of the keys of postings of indices whose number takes four bytes of its own.
const LONG_NUMBER: u8 = 0xff;

/// Returns the prefix of the keys of an index's postings. It is short, so that the bytes that tell
/// keys apart come early.
pub(super) fn postings(index: u32) -> Vec<u8> {
    match u8::try_from(index) {
        Ok(number) if number < LONG_NUMBER => vec![POSTINGS, number],
        _ => [&[POSTINGS, LONG_NUMBER], &index.to_be_bytes()[..]].concat(),
    }
}

/// Returns that prefix of the key of a posting. `None` if the key is not that of a posting.
pub(super) fn index_of(key: &[u8]) -> Option<&[u8]> {
    if *key.first()? != POSTINGS {
        return None;
    }
    key.get(..if *key.get(1)? == LONG_NUMBER { 6 } else { 2 })
}

/// Returns the part of a posting's key after that prefix. `None` if the key is too short.
pub(super) fn behind_postings(key: &[u8]) -> Option<&[u8]> {
    key.get(if *key.get(1)? == LONG_NUMBER { 6 } else { 2 }..)
}

/// Appends a value so that the order of bytes stays and its end can be told; says whether it was
/// cut.
pub(super) fn push_escaped(key: &mut Vec<u8>, value: &[u8]) -> bool {
    let is_cut = value.len() > INDEXED_VALUE_BYTES_MAX;
    push_prefix(key, &value[..value.len().min(INDEXED_VALUE_BYTES_MAX)]);
    key.extend_from_slice(&[0, if is_cut { CUT } else { WHOLE }]);
    is_cut
}

/// As `push_escaped`, for a value of any length.
pub(super) fn push_escaped_whole(key: &mut Vec<u8>, value: &[u8]) {
    push_prefix(key, value);
    key.extend_from_slice(&[0, WHOLE]);
}

/// Appends what the escaped form of every value with this prefix begins with.
pub(super) fn push_prefix(key: &mut Vec<u8>, prefix: &[u8]) {
    if !prefix.contains(&0) {
        return key.extend_from_slice(prefix);
    }
    for &byte in prefix {
        key.push(byte);
        if byte == 0 {
            key.push(NUL);
        }
    }
}

/// The value whose escaped form is at the front of `key`; `None` where there is none.
pub(super) fn unescape(key: &[u8]) -> Option<Vec<u8>> {
    let escaped = &key[..escaped_len(key)? - 2];
    let mut value = Vec::with_capacity(escaped.len());
    let mut is_behind_nul = false;
    for &byte in escaped {
        if !is_behind_nul {
            value.push(byte);
        }
        is_behind_nul = byte == 0 && !is_behind_nul;
    }
    Some(value)
}

/// Bytes that the escaped form of a value at the front of `key` takes.
pub(super) fn escaped_len(key: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let nul = at + key[at..].iter().position(|&byte| byte == 0)?;
        at = nul + 2;
        match *key.get(nul + 1)? {
            NUL => {}
            WHOLE | CUT => return Some(at),
            _ => return None,
        }
    }
}

/// Whether an escaped value was cut.
pub(super) fn is_cut(escaped: &[u8]) -> bool {
    escaped.last() == Some(&CUT)
}

/// The least key that is greater than every key with this prefix; empty if there is none.
pub(super) fn behind(prefix: &[u8]) -> Vec<u8> {
    let kept = prefix.iter().rposition(|&byte| byte != 0xff).map_or(0, |last| last + 1);
    let mut key = prefix[..kept].to_vec();
    if let Some(last) = key.last_mut() {
        *last += 1;
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255), any::<u8>()], 0..6)
    }

    proptest! {
        #[test]
        fn escaped_values_keep_their_order_and_come_back(one in bytes(), other in bytes(), rest in bytes()) {
            let escaped = |value: &[u8]| {
                let mut key = Vec::new();
                assert!(!push_escaped(&mut key, value));
                key.extend_from_slice(&rest);
                key
            };
            prop_assert_eq!(escaped(&one).cmp(&escaped(&other)), one.cmp(&other));
            let key = escaped(&one);
            let len = escaped_len(&key).unwrap();
            prop_assert_eq!(&key[len..], &rest[..]);
            prop_assert_eq!(unescape(&key), Some(one));
            unescape(&rest);
        }

        #[test]
        fn what_is_behind_a_prefix_is_greater_than_all_with_it(prefix in bytes(), rest in bytes()) {
            let end = behind(&prefix);
            let key = [prefix.clone(), rest].concat();
            prop_assert!(end.is_empty() || key < end);
            if end.is_empty() {
                prop_assert!(prefix.iter().all(|&byte| byte == 255));
            }
        }
    }

    #[test]
    fn postings_of_different_indices_lie_apart() {
        let numbers = [0, 1, 254, 255, 256, 65536, u32::MAX];
        for one in numbers {
            let key = [postings(one), b"rest".to_vec()].concat();
            assert_eq!(behind_postings(&key), Some(&b"rest"[..]));
            assert_eq!(index_of(&key), Some(&postings(one)[..]));
            for other in numbers {
                assert_eq!(postings(one).starts_with(&postings(other)), one == other);
            }
        }
        assert_eq!(behind_postings(b""), None);
        assert_eq!(behind_postings(b"\x02"), None);
        assert_eq!(behind_postings(b"\x02\xff\x01"), None);
    }

    #[test]
    fn long_values_are_cut_and_say_so() {
        for (len, is_cut) in [(-1, false), (0, false), (1, true)] {
            let value = vec![b'x'; INDEXED_VALUE_BYTES_MAX.saturating_add_signed(len)];
            let mut key = Vec::new();
            assert_eq!(push_escaped(&mut key, &value), is_cut);
            assert_eq!(super::is_cut(&key), is_cut);
            let kept = &value[..value.len().min(INDEXED_VALUE_BYTES_MAX)];
            assert_eq!(unescape(&key).unwrap(), kept);
        }
    }
}
