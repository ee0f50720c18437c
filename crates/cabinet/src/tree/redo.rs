//! Redo: the record of a change, appended to the log before the change is made in a page.
//!
//! A put record of the log with the key, flags and expiry of the change, and as its value:
//!
//! ```text
//! 0  1  bits 0-2: 0 insert, 1 replace, 2 remove, 3 remove all, 4 set; bit 7: a number follows
//! 1 (4) number of the duplicate, little-endian; 0 if it is not there
//!       the value to be stored, of an insertion or replacement
//! ```
//!
//! Each is applied exactly once: a page knows the last one that it has seen.
//!
//! Set and remove all say what the key has afterwards, whatever it had before. So they can be
//! applied behind a hole in the log, too; the others only where all changes of the key before are
//! known.

use super::page::Page;
use crate::{KeyOrder, Meta, RecordRef, Version};
use std::ops::Range;

const HAS_INDEX: u8 = 1 << 7;

/// Redo values up to this long are put together without an allocation.
const SHORT_BYTES_MAX: usize = 256;

/// Change of the duplicates of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// The value becomes the duplicate with this number; those from there on move up.
    Insert(usize),
    /// The value takes the place of this duplicate.
    Replace(usize),
    /// This duplicate goes.
    Remove(usize),
    /// All of them go.
    RemoveAll,
    /// The value becomes the only one of the key.
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

    /// The same operation on a key that has so many records, said without regard to them if that
    /// can be.
    pub(super) fn on(self, records: usize) -> Self {
        match (self, records) {
            (Self::Insert(0), 0) | (Self::Replace(0), 1) => Self::Set,
            (Self::Remove(0), 1) => Self::RemoveAll,
            (operation, _) => operation,
        }
    }

    /// The same operation on a key that has one record at most.
    pub(super) fn on_single(self) -> Self {
        match self {
            Self::Insert(_) | Self::Replace(_) | Self::Set => Self::Set,
            Self::Remove(_) | Self::RemoveAll => Self::RemoveAll,
        }
    }

    /// Whether it says what the key has afterwards, whatever it had before.
    pub(super) fn is_absolute(self) -> bool {
        matches!(self, Self::Set | Self::RemoveAll)
    }

    /// Whether it makes a page smaller.
    pub(super) fn removes(self) -> bool {
        matches!(self, Self::Remove(_) | Self::RemoveAll)
    }

    /// Whether a duplicate of the key, of this number, is still there after it.
    pub(super) fn keeps(self, number: usize) -> bool {
        match self {
            Self::Insert(_) => true,
            Self::Replace(index) | Self::Remove(index) => number != index,
            Self::RemoveAll | Self::Set => false,
        }
    }

    /// Lends the bytes that the log gets to `write`.
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

    /// The operation and its value, unless the bytes are something else.
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

    /// Makes the change among the records with the key, which are at `group`; answers by how many
    /// records the page has grown, and where. An operation
    /// on a duplicate that is not there, which only damage can bring about, does the nearest.
    #[expect(clippy::too_many_arguments, reason = "a change, and where it goes")]
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
    fn operations_come_back_from_their_bytes() {
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
    fn an_operation_on_what_is_not_there_does_the_nearest() {
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
    fn an_operation_on_the_only_record_is_said_without_regard_to_it() {
        for (operation, records, said) in [
            (Operation::Insert(0), 0, Operation::Set),
            (Operation::Insert(0), 1, Operation::Insert(0)),
            (Operation::Insert(1), 1, Operation::Insert(1)),
            (Operation::Replace(0), 1, Operation::Set),
            (Operation::Replace(0), 2, Operation::Replace(0)),
            (Operation::Remove(0), 1, Operation::RemoveAll),
            (Operation::Remove(0), 2, Operation::Remove(0)),
            (Operation::RemoveAll, 2, Operation::RemoveAll),
        ] {
            assert_eq!(operation.on(records), said);
            assert_eq!(said.is_absolute(), matches!(said, Operation::Set | Operation::RemoveAll));
        }
    }
}
