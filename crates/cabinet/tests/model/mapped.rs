//! Adapter that accepts any bytes as keys and values, over a database that accepts only some.

use cabinet::{
    Batch, BatchChange, Change, Decide, Engine, Family, FullScan, KeyOrder, Maintenance, Medium,
    Meta, Options, Persistence, RecordRef, Result, ScanCursor, Version, Visit, VisitKey, Visitor,
    Wait, Wanted,
};
use std::marker::PhantomData;
use std::sync::Arc;

/// Conversion of keys and values to those that the database accepts, and back.
pub(crate) trait Mapping: Send + Sync {
    /// Whether the conversion preserves the order of keys.
    const IN_ORDER: bool;

    fn key(key: &[u8]) -> Vec<u8>;

    fn value(key: &[u8], value: &[u8]) -> Vec<u8>;

    /// Calls `visit` with a record of the database, converted back.
    fn visit(entry: RecordRef<'_>, visit: &mut Visit<'_>);
}

/// The id follows from the key, which is stored in front of the value.
pub(crate) struct Numbers;

impl Mapping for Numbers {
    const IN_ORDER: bool = false;

    /// Returns the id of a key. Short keys are close together, so that they share pages. Others are
    /// alone on their pages.
    fn key(key: &[u8]) -> Vec<u8> {
        let id = match key {
            [] => 1,
            [one] => 2 + u64::from(*one),
            [one, two] => 300 + (u64::from(*one) << 8 | u64::from(*two)),
            _ => {
                let hash = key.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                    (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
                });
                (1 << 20) + (hash >> 24)
            }
        };
        id.to_string().into_bytes()
    }

    fn value(key: &[u8], value: &[u8]) -> Vec<u8> {
        [&(key.len() as u32).to_le_bytes(), key, value].concat()
    }

    fn visit(entry: RecordRef<'_>, visit: &mut Visit<'_>) {
        let (length, rest) = entry.value.split_first_chunk().expect("a key is in front");
        let (key, value) = rest.split_at(u32::from_le_bytes(*length) as usize);
        visit(RecordRef { key, value, ..entry });
    }
}

/// Values become columns: a short one is stored in all of [`COLUMNS`], a long one only in the
/// first.
pub(crate) struct Rows;

pub(crate) const COLUMNS: [&[u8]; 4] = [b"lexical", b"decimal", b"token", b"qgram"];

/// Maximum size of a value that is stored in all columns, in bytes.
const SHORT_BYTES_MAX: usize = 64;

/// Byte that follows each value, so that it is never empty.
const END: u8 = b'.';

impl Mapping for Rows {
    const IN_ORDER: bool = true;

    /// Returns the key of the row. An empty key would be replaced by an identifier.
    fn key(key: &[u8]) -> Vec<u8> {
        [b"k", key].concat()
    }

    fn value(_key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut escaped = Vec::with_capacity(value.len() + 1);
        for &byte in value {
            match byte {
                0 => escaped.extend([1, 1]),
                1 => escaped.extend([1, 2]),
                byte => escaped.push(byte),
            }
        }
        escaped.push(END);
        let columns = if value.len() > SHORT_BYTES_MAX { &COLUMNS[..1] } else { &COLUMNS };
        let parts: Vec<&[u8]> = columns.iter().flat_map(|column| [column, &escaped[..]]).collect();
        parts.join(&0)
    }

    fn visit(entry: RecordRef<'_>, visit: &mut Visit<'_>) {
        let escaped = entry.value.split(|&byte| byte == 0).nth(1).expect("a column");
        let mut bytes = escaped.strip_suffix(&[END]).expect("an end").iter();
        let mut value = Vec::with_capacity(bytes.len());
        while let Some(&byte) = bytes.next() {
            value.push(match byte {
                1 => bytes.next().expect("an escaped byte") - 1,
                byte => byte,
            });
        }
        visit(RecordRef { key: &entry.key[1..], value: &value, ..entry });
    }
}

/// A database behind the adapter. See the module.
pub(crate) struct Mapped<M>(Arc<dyn Engine>, PhantomData<M>);

impl<M: Mapping> Mapped<M> {
    pub(crate) fn new(engine: Arc<dyn Engine>) -> Self {
        Self(engine, PhantomData)
    }
}

impl<M: Mapping> Engine for Mapped<M> {
    fn read(&self, key: &[u8], wait: Wait, visit: &mut Visit<'_>) -> Result<bool> {
        self.0.read(&M::key(key), wait, &mut |entry| M::visit(entry, visit))
    }

    fn put(&self, key: &[u8], value: &[u8], meta: Meta, wait: Wait) -> Result<Version> {
        self.0.put(&M::key(key), &M::value(key, value), meta, wait)
    }

    fn update(&self, key: &[u8], wait: Wait, decide: &mut Decide<'_>) -> Result<Version> {
        self.0.update(&M::key(key), wait, &mut |entry| {
            let mut change = Change::Keep;
            match entry {
                Some(entry) => M::visit(entry, &mut |entry| change = decide(Some(entry))),
                None => change = decide(None),
            }
            match change {
                Change::Put(value, meta) => Change::Put(M::value(key, &value), meta),
                change => change,
            }
        })
    }

    fn write(&self, batch: &Batch, wait: Wait) -> Result<()> {
        let mut mapped = Batch::new();
        for (key, version) in batch.expected() {
            mapped.expect(&M::key(key), version);
        }
        for (key, change) in batch.changes() {
            match change {
                BatchChange::Put(value, meta) => {
                    mapped.put(&M::key(key), &M::value(key, value), meta);
                }
                BatchChange::Remove => mapped.remove(&M::key(key)),
            }
        }
        self.0.write(&mapped, wait)
    }

    /// Scans whole records, because the key is in the value.
    fn scan(&self, from: &ScanCursor, visitor: Visitor<'_>) -> Result<Option<ScanCursor>> {
        visitor.of_records(|visit| {
            self.0.scan(from, Visitor::Records(&mut |entry| M::visit(entry, visit)))
        })
    }

    fn full_scan(&self, wanted: Wanted, is_in_order: bool) -> Result<Box<dyn FullScan + '_>> {
        Ok(Box::new(MappedScan(self.0.full_scan(wanted, is_in_order)?, PhantomData::<M>)))
    }

    fn scan_cursor_of(&self, key: &[u8]) -> ScanCursor {
        self.0.scan_cursor_of(&M::key(key))
    }

    fn family(&self) -> Family<'_> {
        if M::IN_ORDER { Family::Sorted(KeyOrder::Lexical) } else { Family::Unordered }
    }
}

impl<M: Mapping> Maintenance for Mapped<M> {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }

    fn evicts(&self) -> bool {
        self.0.evicts()
    }

    fn stats(&self) -> Vec<(&'static str, String)> {
        self.0.stats()
    }

    fn optimize(&self, options: Option<&Options>) -> Result<()> {
        self.0.optimize(options)
    }

    fn replace_all(&self, batch: &Batch) -> Result<()> {
        self.0.replace_all(batch)
    }

    fn medium(&self) -> &dyn Medium {
        self.0.medium()
    }

    fn persistence(&self) -> Option<&dyn Persistence> {
        self.0.persistence()
    }
}

/// A scan behind the adapter.
struct MappedScan<'e, M>(Box<dyn FullScan + 'e>, PhantomData<M>);

impl<M: Mapping> FullScan for MappedScan<'_, M> {
    fn step(&mut self, visit: &mut Visit<'_>) -> Result<bool> {
        self.0.step(&mut |entry| M::visit(entry, visit))
    }

    /// Steps over whole records, because the key is in the value.
    fn step_keys(&mut self, visit: &mut VisitKey<'_>) -> Result<bool> {
        self.step(&mut |entry| visit(entry.key))
    }
}
