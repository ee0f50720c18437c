//! Keys of a table's records in its ordered engine: rows, postings and metadata
//! (`docs/formats/table.md`).

pub(super) use crate::base::table_keys::{META, POSTINGS, ROWS};

use crate::limits::INDEXED_VALUE_BYTES_MAX;

/// Second byte of the end of an escaped value, after a NUL: the value is whole, or was cut at
/// [`INDEXED_VALUE_BYTES_MAX`].
const WHOLE: u8 = 1;
const CUT: u8 = 2;
/// Byte that follows a NUL that is part of the value.
const NUL: u8 = 0xff;

/// Returns the key of a row.
pub(super) fn row(primary: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(primary.len() + 1);
    key.push(ROWS);
    key.extend_from_slice(primary);
    key
}

/// Second byte of the keys of postings of an index whose number is in the next four bytes.
const LONG_NUMBER: u8 = 0xff;

/// Returns the prefix of the keys of an index's postings. It is short, so that the bytes in which
/// keys differ come early.
pub(super) fn postings(index: u32) -> Vec<u8> {
    match u8::try_from(index) {
        Ok(number) if number < LONG_NUMBER => vec![POSTINGS, number],
        _ => [&[POSTINGS, LONG_NUMBER], &index.to_be_bytes()[..]].concat(),
    }
}

/// Returns the index's prefix in the key of a posting; `None` if the key is not that of a posting.
pub(super) fn index_of(key: &[u8]) -> Option<&[u8]> {
    if *key.first()? != POSTINGS {
        return None;
    }
    key.get(..if *key.get(1)? == LONG_NUMBER { 6 } else { 2 })
}

/// Returns the part of a posting's key after the index's prefix; `None` if the key is too short.
pub(super) fn after_prefix(key: &[u8]) -> Option<&[u8]> {
    key.get(if *key.get(1)? == LONG_NUMBER { 6 } else { 2 }..)
}

/// Appends a value in a form that keeps the order of bytes and marks the end. Returns whether the
/// value was cut.
pub(super) fn push_escaped(key: &mut Vec<u8>, value: &[u8]) -> bool {
    let is_cut = value.len() > INDEXED_VALUE_BYTES_MAX;
    push_prefix(key, &value[..value.len().min(INDEXED_VALUE_BYTES_MAX)]);
    key.extend_from_slice(&[0, if is_cut { CUT } else { WHOLE }]);
    is_cut
}

/// Like `push_escaped`, without a limit on the length.
pub(super) fn push_escaped_whole(key: &mut Vec<u8>, value: &[u8]) {
    push_prefix(key, value);
    key.extend_from_slice(&[0, WHOLE]);
}

/// Appends the bytes with which the escaped form of every value with this prefix begins.
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

/// Returns the value whose escaped form is at the front of `key`; `None` if there is none.
pub(super) fn unescape(key: &[u8]) -> Option<Vec<u8>> {
    let escaped = &key[..escaped_len(key)? - 2];
    let mut value = Vec::with_capacity(escaped.len());
    let mut is_after_nul = false;
    for &byte in escaped {
        if !is_after_nul {
            value.push(byte);
        }
        is_after_nul = byte == 0 && !is_after_nul;
    }
    Some(value)
}

/// Returns the bytes of the escaped value at the front of `key`; `None` if there is none.
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

/// Returns whether an escaped value was cut.
pub(super) fn is_cut(escaped: &[u8]) -> bool {
    escaped.last() == Some(&CUT)
}

/// Returns the least key that is greater than every key with this prefix; empty if there is none.
pub(super) fn end_of_prefix(prefix: &[u8]) -> Vec<u8> {
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
        fn escaped_values_keep_their_order_and_can_be_unescaped(
            one in bytes(), other in bytes(), rest in bytes(),
        ) {
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
        fn the_end_of_a_prefix_is_greater_than_all_keys_with_it(
            prefix in bytes(), rest in bytes(),
        ) {
            let end = end_of_prefix(&prefix);
            let key = [prefix.clone(), rest].concat();
            prop_assert!(end.is_empty() || key < end);
            if end.is_empty() {
                prop_assert!(prefix.iter().all(|&byte| byte == 255));
            }
        }
    }

    #[test]
    fn postings_of_different_indices_have_different_prefixes() {
        let numbers = [0, 1, 254, 255, 256, 65536, u32::MAX];
        for one in numbers {
            let key = [postings(one), b"rest".to_vec()].concat();
            assert_eq!(after_prefix(&key), Some(&b"rest"[..]));
            assert_eq!(index_of(&key), Some(&postings(one)[..]));
            for other in numbers {
                assert_eq!(postings(one).starts_with(&postings(other)), one == other);
            }
        }
        assert_eq!(after_prefix(b""), None);
        assert_eq!(after_prefix(b"\x02"), None);
        assert_eq!(after_prefix(b"\x02\xff\x01"), None);
    }

    #[test]
    fn long_values_are_cut_and_marked() {
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
