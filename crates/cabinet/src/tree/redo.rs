//! Redo: the record of a change, appended to the log before the change is made in a page.
//!
//! A put record of the log with the key, flags and expiry of the change, and as its value:
//!
//! ```text
//! 0  1  bits 0-2: 0 insert, 1 replace, 2 remove, 3 remove all, 4 set; bit 7: a number follows
//! 1 (4) number of the duplicate, little-endian; 0 if absent
//!       value to store, for insert, replace and set
//! ```
//!
//! Each record is applied to a page exactly once: the page has the sequence number of the last one.
//!
//! "Set" and "remove all" are absolute: they define the key's records whatever it had before. So
//! they can also be applied after a hole in the log. The others need all earlier changes of the
//! key.

use super::page::Page;
use crate::{KeyOrder, Meta, RecordRef, Version};
use std::ops::Range;

const HAS_INDEX: u8 = 1 << 7;

/// Maximum bytes of a redo value that is encoded without an allocation.
const SHORT_BYTES_MAX: usize = 256;

/// Change of the duplicates of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Inserts the value as the duplicate with this number. The numbers of later ones grow by 1.
    Insert(usize),
    /// Replaces the value of this duplicate.
    Replace(usize),
    /// Removes this duplicate.
    Remove(usize),
    /// Removes all duplicates.
    RemoveAll,
    /// Removes all duplicates, and stores the value as the only one.
    Set,
}

impl Operation {
    fn code(self) -> u8 {
        match self {
            Self::Insert(_) => 0,
            Self::Replace(_) => 1,
            Self::Remove(_) => 2,
            Self::RemoveAll => 3,
            Self::Set => 4,
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Insert(index) | Self::Replace(index) | Self::Remove(index) => index,
            Self::RemoveAll | Self::Set => 0,
        }
    }

    /// Returns the same operation on a key with `records` records, as an absolute one if possible.
    pub(super) fn on(self, records: usize) -> Self {
        match (self, records) {
            (Self::Insert(0), 0) | (Self::Replace(0), 1) => Self::Set,
            (Self::Remove(0), 1) => Self::RemoveAll,
            (operation, _) => operation,
        }
    }

    /// Returns the same operation on a key with at most one record.
    pub(super) fn on_single(self) -> Self {
        match self {
            Self::Insert(_) | Self::Replace(_) | Self::Set => Self::Set,
            Self::Remove(_) | Self::RemoveAll => Self::RemoveAll,
        }
    }

    /// Returns whether the operation defines the key's records, whatever it had before.
    pub(super) fn is_absolute(self) -> bool {
        matches!(self, Self::Set | Self::RemoveAll)
    }

    /// Returns whether the operation only removes records.
    pub(super) fn removes(self) -> bool {
        matches!(self, Self::Remove(_) | Self::RemoveAll)
    }

    /// Returns whether the key's duplicate with this number still exists after the operation.
    pub(super) fn keeps(self, number: usize) -> bool {
        match self {
            Self::Insert(_) => true,
            Self::Replace(index) | Self::Remove(index) => number != index,
            Self::RemoveAll | Self::Set => false,
        }
    }

    /// Calls `write` with the value of the log's record.
    pub(super) fn encode<T>(self, value: &[u8], write: impl FnOnce(&[u8]) -> T) -> T {
        let mut head = [0; 5];
        head[0] = self.code();
        let mut head_bytes = 1;
        if self.index() > 0 {
            head[0] |= HAS_INDEX;
            head[1..].copy_from_slice(&(self.index() as u32).to_le_bytes());
            head_bytes = 5;
        }
        let total = head_bytes + value.len();
        if total <= SHORT_BYTES_MAX {
            let mut bytes = [0; SHORT_BYTES_MAX];
            bytes[..head_bytes].copy_from_slice(&head[..head_bytes]);
            bytes[head_bytes..total].copy_from_slice(value);
            return write(&bytes[..total]);
        }
        write(&[&head[..head_bytes], value].concat())
    }

    /// Returns the operation and its value; `None` if the bytes are not a change.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (&code, mut rest) = bytes.split_first()?;
        let mut index = 0;
        if code & HAS_INDEX != 0 {
            let (number, after) = rest.split_first_chunk::<4>()?;
            index = u32::from_le_bytes(*number) as usize;
            rest = after;
        }
        let operation = match code & !HAS_INDEX {
            0 => Self::Insert(index),
            1 => Self::Replace(index),
            2 => Self::Remove(index),
            3 => Self::RemoveAll,
            4 => Self::Set,
            _ => return None,
        };
        Some((operation, rest))
    }

    /// Applies the change to the records with the key, whose indices are `group`. Returns the
    /// number of records by which the page has grown, and the index of the change. Only damage can
    /// cause an operation on a duplicate that does not exist. It then uses the nearest one.
    #[expect(clippy::too_many_arguments, reason = "a change and its destination")]
    pub(super) fn apply(
        self,
        page: &mut Page,
        order: KeyOrder,
        group: Range<usize>,
        key: &[u8],
        value: &[u8],
        meta: Meta,
        version: Version,
    ) -> (i64, usize) {
        let at = group.start.saturating_add(self.index()).min(group.end);
        page.applied = page.applied.max(version);
        match self {
            Self::Replace(_) if at < group.end => {
                page.replace(at, value, meta, version);
                (0, at)
            }
            Self::Insert(_) | Self::Replace(_) => {
                page.insert(order, at, &RecordRef { key, value, meta, version });
                (1, at)
            }
            Self::Remove(_) if at < group.end => {
                page.remove(at..at + 1);
                (-1, at)
            }
            Self::Remove(_) => (0, at),
            Self::Set => {
                let others = group.start + 1..group.end;
                let grown = 1 - group.len() as i64;
                if group.is_empty() {
                    page.insert(order, group.start, &RecordRef { key, value, meta, version });
                } else {
                    if !others.is_empty() {
                        page.remove(others);
                    }
                    page.replace(group.start, value, meta, version);
                }
                (grown, group.start)
            }
            Self::RemoveAll => {
                let removed = group.len() as i64;
                page.remove(group);
                (-removed, at)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoded_operations_equal_the_encoded_ones() {
        for value in [&b""[..], b"value", &[7; SHORT_BYTES_MAX - 1], &[7; SHORT_BYTES_MAX]] {
            for operation in [
                Operation::Insert(0),
                Operation::Insert(1),
                Operation::Replace(70_000),
                Operation::Remove(0),
                Operation::Remove(3),
                Operation::RemoveAll,
                Operation::Set,
            ] {
                operation.encode(value, |bytes| {
                    assert_eq!(Operation::decode(bytes), Some((operation, value)));
                });
            }
        }
        assert_eq!(Operation::decode(&[]), None);
        assert_eq!(Operation::decode(&[5]), None);
        assert_eq!(Operation::decode(&[0x80, 1, 2]), None);
    }

    #[test]
    fn an_operation_on_a_missing_duplicate_uses_the_nearest_one() {
        let mut page = Page::default();
        let order = KeyOrder::Lexical;
        let mut apply = |operation: Operation, version| {
            let group = page.view().group(order, b"key");
            operation.apply(&mut page, order, group, b"key", b"value", Meta::NONE, version).0
        };
        assert_eq!(apply(Operation::Remove(0), 1), 0);
        assert_eq!(apply(Operation::RemoveAll, 2), 0);
        assert_eq!(apply(Operation::Replace(9), 3), 1);
        assert_eq!(apply(Operation::Insert(9), 4), 1);
        assert_eq!(apply(Operation::Remove(2), 5), 0);
        assert_eq!(apply(Operation::Set, 6), -1);
        assert_eq!(apply(Operation::Set, 7), 0);
        assert_eq!(apply(Operation::RemoveAll, 8), -1);
        assert_eq!(apply(Operation::Set, 9), 1);
        assert_eq!(page.applied, 9);
    }

    #[test]
    fn an_operation_on_the_only_record_becomes_absolute() {
        for (operation, records, expected) in [
            (Operation::Insert(0), 0, Operation::Set),
            (Operation::Insert(0), 1, Operation::Insert(0)),
            (Operation::Insert(1), 1, Operation::Insert(1)),
            (Operation::Replace(0), 1, Operation::Set),
            (Operation::Replace(0), 2, Operation::Replace(0)),
            (Operation::Remove(0), 1, Operation::RemoveAll),
            (Operation::Remove(0), 2, Operation::Remove(0)),
            (Operation::RemoveAll, 2, Operation::RemoveAll),
        ] {
            assert_eq!(operation.on(records), expected);
            let is_absolute = matches!(expected, Operation::Set | Operation::RemoveAll);
            assert_eq!(expected.is_absolute(), is_absolute);
        }
    }
}
