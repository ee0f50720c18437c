//! Corrupted files of Tokyo Cabinet: real files with changes.

use cabinet::Damage;
use cabinet::legacy::{File, Item, Visit};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use std::ops::ControlFlow;

/// Real files, one of which an input chooses: the file, and the log of its transaction.
pub type Bases = [(&'static [u8], Option<&'static [u8]>)];

#[derive(Arbitrary, Debug)]
pub struct Input {
    base: u8,
    edits: Vec<Edit>,
    log_edits: Vec<Edit>,
    /// Bytes appended to the file.
    behind: Vec<u8>,
}

/// Change of a file.
#[derive(Arbitrary, Debug)]
enum Edit {
    Overwrite {
        offset: u32,
        bytes: Vec<u8>,
    },
    /// Sets a number of eight bytes in the header.
    Header {
        word: u8,
        number: u64,
        big: bool,
    },
    Insert {
        offset: u32,
        bytes: Vec<u8>,
    },
    Remove {
        offset: u32,
        count: u16,
    },
    Cut {
        length: u32,
    },
}

/// Reads one of the files with the changes of the input.
pub fn read(bases: &Bases, input: &Input) {
    let (file, log) = bases[usize::from(input.base) % bases.len()];
    let mut bytes = edited(file, &input.edits);
    bytes.extend(&input.behind);
    let log = log.map(|log| edited(log, &input.log_edits));
    let length = bytes.len();
    let Ok(mut file) = File::from_bytes(bytes, log) else { return };
    file.assume_plain();
    let mut seen = Seen { items: 0, length };
    let _ = file.read(&mut seen);
}

struct Seen {
    items: usize,
    length: usize,
}

impl Visit for Seen {
    fn item(&mut self, item: &Item<'_>) -> ControlFlow<()> {
        assert!(item.records() > 0);
        self.items += 1;
        // A decompression bomb may have too many items to read them all.
        if self.items > self.length { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn damage(&mut self, damage: Damage) {
        assert!(!damage.what.is_empty());
    }
}

fn edited(bytes: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for edit in edits {
        let end = bytes.len() + 1;
        match edit {
            Edit::Overwrite { offset, bytes: new } => {
                overwrite(&mut bytes, *offset as usize % end, new);
            }
            Edit::Header { word, number, big } => {
                let number = if *big { number.to_be_bytes() } else { number.to_le_bytes() };
                overwrite(&mut bytes, 32 + 8 * (usize::from(*word) % 28), &number);
            }
            Edit::Insert { offset, bytes: new } => {
                let offset = *offset as usize % end;
                bytes.splice(offset..offset, new.iter().copied());
            }
            Edit::Remove { offset, count } => {
                let from = *offset as usize % end;
                let to = (from + usize::from(*count)).min(bytes.len());
                bytes.drain(from..to);
            }
            Edit::Cut { length } => bytes.truncate(*length as usize % end),
        }
    }
    bytes
}

fn overwrite(bytes: &mut [u8], offset: usize, new: &[u8]) {
    let Some(target) = bytes.get_mut(offset..) else { return };
    let count = target.len().min(new.len());
    target[..count].copy_from_slice(&new[..count]);
}
