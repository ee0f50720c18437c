//! Undo log of a transaction during which a process ended: `X.wal`.
//!
//! ```text
//!  0   8  length of the database when the transaction began
//!  then, for each change, the bytes before it:
//!      8  offset in the database
//!      4  how many bytes
//!         the bytes
//! ```
//!
//! Undoing a transaction means writing these bytes back, latest change first, and truncating the
//! file. Here the file is unchanged: readers get the bytes of the log instead. If a byte was
//! changed several times, the earliest change has its original value.

use super::number::ByteOrder;
use super::source::{ReadAt, Window};
use std::collections::BTreeMap;
use std::io;

/// Bytes of the shortest valid log, which begins with the database's header.
pub(super) const LOG_BYTES_MIN: u64 = 264;

/// Most changes in a log that is undone. Each takes about 100 bytes of memory.
pub(super) const CHANGES_MAX: usize = 1 << 24;

const PREFIX_BYTES: u64 = 8;
const CHANGE_HEADER_BYTES: usize = 12;

const WINDOW_BYTES: usize = 64 << 10;

/// Bytes that replace those of a database.
pub(super) struct Undo {
    log: Box<dyn ReadAt>,
    /// By their start in the database, without overlaps.
    pieces: BTreeMap<u64, Piece>,
    /// Length of the database when the transaction began.
    pub(super) length: u64,
    /// Complete changes in the log.
    pub(super) changes: usize,
}

/// A range of the database whose bytes are in the log.
#[derive(Clone, Copy)]
struct Piece {
    /// Offset of the end in the database, in bytes.
    end: u64,
    /// Offset of the start in the log, in bytes.
    log_offset: u64,
}

impl Undo {
    /// Reads a log, up to the first incomplete change. Returns `None` if it is too short to be
    /// valid.
    pub(super) fn read(log: Box<dyn ReadAt>, order: ByteOrder) -> io::Result<Option<Self>> {
        Self::read_up_to(CHANGES_MAX, log, order)
    }

    fn read_up_to(
        changes_max: usize,
        log: Box<dyn ReadAt>,
        order: ByteOrder,
    ) -> io::Result<Option<Self>> {
        let log_length = log.length()?;
        if log_length < LOG_BYTES_MIN {
            return Ok(None);
        }
        let mut window = Window::new(&*log, log_length, WINDOW_BYTES);
        let length = order.number(window.bytes(0, PREFIX_BYTES as usize)?);
        let mut pieces = BTreeMap::new();
        let mut changes = 0;
        let mut at = PREFIX_BYTES;
        loop {
            let header = window.bytes(at, CHANGE_HEADER_BYTES)?;
            if header.len() < CHANGE_HEADER_BYTES {
                break;
            }
            let (offset, count) = (order.number(&header[..8]), order.number(&header[8..]));
            let start = at + CHANGE_HEADER_BYTES as u64;
            let (Some(end), true) = (offset.checked_add(count), count <= log_length - start) else {
                break;
            };
            if changes == changes_max {
                return Err(io::Error::new(
                    io::ErrorKind::FileTooLarge,
                    format!("more than {changes_max} changes in the log of a transaction"),
                ));
            }
            cover(&mut pieces, offset, end, start);
            changes += 1;
            at = start + count;
        }
        Ok(Some(Self { log, pieces, length, changes }))
    }

    /// Replaces bytes that were read from the database at `offset` with those of the log.
    pub(super) fn apply(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        let before = self.pieces.range(..offset).next_back();
        for (&start, piece) in before.into_iter().chain(self.pieces.range(offset..end)) {
            let (from, to) = (start.max(offset), piece.end.min(end));
            if from < to {
                // Both are within `bytes`.
                let target = &mut bytes[(from - offset) as usize..(to - offset) as usize];
                let count = self.log.fill(target, piece.log_offset + (from - start))?;
                if count < target.len() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        Ok(())
    }
}

/// Adds the parts of a change that no earlier change covers.
fn cover(pieces: &mut BTreeMap<u64, Piece>, offset: u64, end: u64, log_offset: u64) {
    let mut at =
        pieces.range(..=offset).next_back().map_or(offset, |(_, piece)| piece.end.max(offset));
    if at >= end {
        return;
    }
    let mut gaps = Vec::new();
    for (&start, piece) in pieces.range(at..end) {
        if at < start {
            gaps.push((at, start));
        }
        at = piece.end;
    }
    if at < end {
        gaps.push((at, end));
    }
    for (start, end) in gaps {
        pieces.insert(start, Piece { end, log_offset: log_offset + (start - offset) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn log(length: u64, changes: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let mut log = length.to_le_bytes().to_vec();
        for (offset, bytes) in changes {
            log.extend(offset.to_le_bytes());
            log.extend((bytes.len() as u32).to_le_bytes());
            log.extend(bytes);
        }
        log
    }

    fn undo(log: Vec<u8>) -> Option<Undo> {
        Undo::read(Box::new(log), ByteOrder::Little).unwrap()
    }

    #[test]
    fn a_log_too_short_for_the_header_is_ignored() {
        let mut bytes = log(300, &[(0, vec![0; 256])]);
        assert_eq!(bytes.len() as u64, LOG_BYTES_MIN + 12);
        assert!(undo(bytes.clone()).is_some());
        bytes.truncate(LOG_BYTES_MIN as usize);
        assert!(undo(bytes.clone()).is_some());
        bytes.truncate(LOG_BYTES_MIN as usize - 1);
        assert!(undo(bytes).is_none());
    }

    #[test]
    fn the_number_of_changes_of_a_log_is_limited() {
        let changes = vec![(0, vec![1; 256]); 3];
        for (max, is_taken) in [(2, false), (3, true), (4, true)] {
            let log = Box::new(log(400, &changes));
            assert_eq!(Undo::read_up_to(max, log, ByteOrder::Little).is_ok(), is_taken, "{max}");
        }
    }

    #[test]
    fn later_changes_of_the_same_bytes_are_ignored() {
        let changes = [(0, vec![1; 300]), (5, vec![2; 9]), (7, vec![]), (290, vec![3; 10])];
        let undo = undo(log(400, &changes)).unwrap();
        let mut shown = vec![0; 400];
        undo.apply(&mut shown, 0).unwrap();
        assert_eq!(shown, [vec![1; 300], vec![0; 100]].concat());
    }

    #[test]
    fn an_incomplete_change_is_ignored() {
        let mut bytes = log(1000, &[(0, vec![1; 256]), (300, vec![2; 100])]);
        bytes.pop();
        let undo = undo(bytes).unwrap();
        assert_eq!((undo.changes, undo.length), (1, 1000));
        let mut shown = vec![0; 1000];
        undo.apply(&mut shown, 0).unwrap();
        assert_eq!(shown, [vec![1; 256], vec![0; 744]].concat());
    }

    proptest! {
        #[test]
        fn what_is_shown_is_what_writing_back_in_reverse_gives(
            changes in proptest::collection::vec(
                (0u64..250, proptest::collection::vec(any::<u8>(), 0..60)), 0..20),
            (from, count) in (0usize..320, 0usize..320),
        ) {
            let mut changes = changes;
            // Longer than the shortest valid log, and the latest, so that it hides no other change.
            changes.push((0, vec![9; 300]));
            let mut expected = vec![0; 400];
            for (offset, bytes) in changes.iter().rev() {
                let offset = *offset as usize;
                expected[offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            let undo = undo(log(400, &changes)).unwrap();
            prop_assert_eq!(undo.changes, changes.len());
            let to = (from + count).min(400);
            let mut shown = vec![0; to - from];
            undo.apply(&mut shown, from as u64).unwrap();
            prop_assert_eq!(&shown, &expected[from..to]);
        }
    }
}
