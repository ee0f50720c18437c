//! Reader of a hash file: all its blocks, in file order.
//!
//! The hash table itself is not needed, so it may be damaged. After a damaged block, the reader
//! looks for the next one at every possible offset. A block counts if another block follows, and if
//! its key matches the hash stored with it.

use super::block::{Block, Layout, Record, key_hash};
use super::source::{ReadAt, Window};
use super::{Item, Output, codec::Codec, number::ByteOrder};
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use std::io;
use std::ops::ControlFlow;

/// Bytes that are read at a time.
const WINDOW_BYTES: usize = 256 << 10;

/// Longest key of a record found after damage, in bytes. Checking the hash of longer ones at every
/// possible offset would take too long.
const FOUND_KEY_BYTES_MAX: usize = 4096;

/// Next record or damage in a file.
pub(super) enum Found {
    /// A record whose key matches its hash.
    Record(Record),
    /// Anything else, with its offset.
    Damage(u64, String),
}

/// Scan of the records of a hash file.
pub(super) struct Scan<'a> {
    layout: Layout,
    /// Moves from block to block.
    window: Window<'a>,
    /// Reads the data after a block without moving the other window.
    ahead: Window<'a>,
    offset: u64,
}

impl<'a> Scan<'a> {
    pub(super) fn new(source: &'a dyn ReadAt, layout: Layout) -> Self {
        let window = |step| Window::new(source, layout.end, step);
        Self { layout, window: window(WINDOW_BYTES), ahead: window(4096), offset: layout.first }
    }

    /// Returns the next record or damage; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Found>> {
        while self.offset < self.layout.end {
            let offset = self.offset;
            match self.layout.block(&mut self.window, offset)? {
                Ok(Block::Free { end }) => self.offset = end,
                Ok(Block::Record(record)) => {
                    self.offset = record.end;
                    let what = if record.key_bytes > KEY_BYTES_MAX {
                        "a key over the limit"
                    } else if record.value_bytes > VALUE_BYTES_MAX {
                        "a value over the limit"
                    } else if !has_its_hash(&mut self.window, &record)? {
                        "a record whose key does not match its stored hash"
                    } else {
                        return Ok(Some(Found::Record(record)));
                    };
                    return Ok(Some(Found::Damage(offset, what.into())));
                }
                Err(what) => {
                    self.find_next_block()?;
                    let skipped = self.offset - offset;
                    let what = format!("{what}; {skipped} bytes skipped");
                    return Ok(Some(Found::Damage(offset, what)));
                }
            }
        }
        Ok(None)
    }

    /// Returns the next record. Reports damage before it to `output`.
    pub(super) fn next_record(&mut self, output: &mut Output<'_>) -> io::Result<Option<Record>> {
        while let Some(found) = self.next()? {
            match found {
                Found::Record(record) => return Ok(Some(record)),
                Found::Damage(offset, what) => output.damage(offset, what),
            }
        }
        Ok(None)
    }

    /// Returns the stored key and value of a record.
    pub(super) fn contents(&mut self, record: &Record) -> io::Result<(&[u8], &[u8])> {
        contents(&mut self.window, record)
    }

    /// Moves to the next offset where a block begins, or to the end.
    fn find_next_block(&mut self) -> io::Result<()> {
        let alignment = self.layout.alignment;
        loop {
            self.offset = (self.offset + 1).next_multiple_of(alignment);
            if self.offset >= self.layout.end {
                self.offset = self.layout.end;
                return Ok(());
            }
            let Ok(block) = self.layout.block(&mut self.window, self.offset)? else { continue };
            if let Block::Record(record) = block
                && (record.key_bytes > FOUND_KEY_BYTES_MAX
                    || !has_its_hash(&mut self.ahead, &record)?)
            {
                continue;
            }
            let end = block.end();
            if end == self.layout.end || self.layout.block(&mut self.ahead, end)?.is_ok() {
                return Ok(());
            }
        }
    }
}

fn has_its_hash(window: &mut Window<'_>, record: &Record) -> io::Result<bool> {
    let key = window.bytes(record.key_offset, record.key_bytes)?;
    Ok(key.len() == record.key_bytes && key_hash(key) == record.hash)
}

/// Returns the stored key and value of a record. Fails if the file has become shorter meanwhile.
pub(super) fn contents<'w>(
    window: &'w mut Window<'_>,
    record: &Record,
) -> io::Result<(&'w [u8], &'w [u8])> {
    let bytes = window.bytes(record.key_offset, record.key_bytes + record.value_bytes)?;
    if bytes.len() < record.key_bytes + record.value_bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes.split_at(record.key_bytes))
}

/// Reads a hash file. `show` converts a key and a value to an item.
pub(super) fn read(
    source: &dyn ReadAt,
    layout: Layout,
    (codec, order): (Codec, ByteOrder),
    output: &mut Output<'_>,
    show: Show,
) -> io::Result<ControlFlow<()>> {
    let mut scan = Scan::new(source, layout);
    while let Some(record) = scan.next_record(output)? {
        let (key, stored) = scan.contents(&record)?;
        let shown = codec.decode(stored, order).and_then(|value| show(key, &value, output));
        match shown {
            Ok(ControlFlow::Continue(())) => {}
            Ok(flow) => return Ok(flow),
            Err(what) => {
                let what = format!("the record of the key {:?}: {what}", Shortened(key));
                output.damage(record.offset, what);
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Converts a key and a value to an item for `output`, or returns why they are invalid.
type Show = fn(&[u8], &[u8], &mut Output<'_>) -> Result<ControlFlow<()>, &'static str>;

/// Passes a key and its value on as a record.
pub(super) fn show_record(
    key: &[u8],
    value: &[u8],
    output: &mut Output<'_>,
) -> Result<ControlFlow<()>, &'static str> {
    Ok(output.item(&Item::Record { key, value }))
}

/// A key as text, shortened to fit a line.
pub(super) struct Shortened<'a>(pub(super) &'a [u8]);

impl std::fmt::Debug for Shortened<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = &self.0[..self.0.len().min(40)];
        write!(formatter, "\"{}\"", shown.escape_ascii())?;
        if shown.len() < self.0.len() { write!(formatter, "...") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::number::push_varint;
    use super::super::{File, Visit};
    use super::*;
    use crate::Damage;

    /// Returns a file with these records, the first at byte 324.
    fn file(records: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = vec![0; 324];
        bytes[..13].copy_from_slice(b"ToKyO CaBiNeT");
        bytes[34] = 2;
        for (key, value) in records {
            bytes.extend([0xc8, key_hash(key)]);
            bytes.extend([0; 8]);
            let mut sizes = Vec::new();
            push_varint(&mut sizes, key.len() as u64);
            push_varint(&mut sizes, value.len() as u64);
            let padding =
                (bytes.len() + 2 + sizes.len() + key.len() + value.len()).wrapping_neg() % 4;
            bytes.extend((padding as u16).to_le_bytes());
            bytes.extend(sizes.iter().chain(key).chain(value));
            bytes.extend(vec![0; padding]);
        }
        let numbers = [(40, 1), (48, records.len()), (56, bytes.len()), (64, 324)];
        for (offset, number) in numbers {
            bytes[offset..offset + 8].copy_from_slice(&(number as u64).to_le_bytes());
        }
        bytes
    }

    #[derive(Default)]
    struct Seen(Vec<Vec<u8>>, Vec<Damage>);

    impl Visit for Seen {
        fn item(&mut self, item: &Item<'_>) -> ControlFlow<()> {
            self.0.push(item.key().to_vec());
            ControlFlow::Continue(())
        }

        fn damage(&mut self, damage: Damage) {
            self.1.push(damage);
        }
    }

    fn read(bytes: Vec<u8>) -> Seen {
        let mut seen = Seen::default();
        File::from_bytes(bytes, None).unwrap().read(&mut seen).unwrap();
        seen
    }

    #[test]
    fn a_key_is_as_long_as_in_any_database() {
        for (length, is_taken) in
            [(KEY_BYTES_MAX - 1, true), (KEY_BYTES_MAX, true), (KEY_BYTES_MAX + 1, false)]
        {
            let seen = read(file(&[(vec![7; length], vec![1]), (b"next".to_vec(), vec![])]));
            assert_eq!(seen.1.is_empty(), is_taken, "{length}");
            assert_eq!(seen.0.len(), 1 + usize::from(is_taken), "{length}");
        }
    }

    #[test]
    fn keys_up_to_a_length_are_found_after_damage() {
        for (length, is_found) in [
            (FOUND_KEY_BYTES_MAX - 1, true),
            (FOUND_KEY_BYTES_MAX, true),
            (FOUND_KEY_BYTES_MAX + 1, false),
        ] {
            let first = (b"first".to_vec(), vec![1; 50]);
            let mut bytes = file(&[first, (vec![7; length], vec![2]), (b"last".to_vec(), vec![])]);
            bytes[324] = 0;
            let seen = read(bytes);
            assert_eq!(seen.1.len(), 1, "{length}");
            assert_eq!(seen.0.len(), 1 + usize::from(is_found), "{length}");
        }
    }
}
