//! Metadata of a table: records in a key space of their own (`docs/formats/table.md`).

use super::index::Index;
use super::postings::View;
use super::{cursor, keys};
use crate::base::column_index::IndexKind;
use crate::base::table_keys::{LAYOUT, suspicion};
use crate::{Batch, Engine, Error, Meta, Result, Wait};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Version of the table layout.
const VERSION: u32 = 2;

/// Kinds of records: the byte after that of the key space.
const CLEAN_ROWS: u8 = b'c';
const DROPPED: u8 = b'd';
const INDEX: u8 = b'i';
const PENDING_CHANGE: u8 = b'j';
const CUT: u8 = b'l';
const UID: u8 = b'u';

fn key(kind: u8, rest: &[u8]) -> Vec<u8> {
    [&[keys::META, kind], rest].concat()
}

fn read(engine: &dyn Engine, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut value = None;
    engine.read(key, Wait::Block, &mut |entry| value = Some(entry.value.to_vec()))?;
    Ok(value)
}

fn read_number(engine: &dyn Engine, kind: u8) -> Result<Option<u64>> {
    match read(engine, &key(kind, b""))? {
        None => Ok(None),
        Some(value) => match value.try_into() {
            Ok(bytes) => Ok(Some(u64::from_le_bytes(bytes))),
            Err(_) => Err(damaged(engine, "a number does not have 8 bytes")),
        },
    }
}

fn damaged(engine: &dyn Engine, what: &str) -> Error {
    Error::Corrupted {
        file: engine.medium().path(),
        offset: 0,
        what: format!("in the table: {what}"),
    }
}

pub(super) fn is_suspect(engine: &dyn Engine) -> Result<bool> {
    Ok(read(engine, &suspicion())?.is_some())
}

pub(super) fn remove_suspicion(engine: &dyn Engine) -> Result<()> {
    let mut batch = Batch::new();
    batch.remove(&suspicion());
    engine.write(&batch, Wait::Block)
}

/// Metadata of a damaged table, as far as it can be read.
#[derive(Default)]
pub(super) struct Notes(BTreeMap<Vec<u8>, Vec<u8>>);

impl Notes {
    /// Records the value of a metadata record, or `None` if it was removed. Ignores other records.
    pub(super) fn set(&mut self, key: &[u8], value: Option<&[u8]>) {
        // The pending-change log may be long, and is not needed.
        if !matches!(key, [keys::META, UID | INDEX, ..]) {
            return;
        }
        match value {
            Some(value) => self.0.insert(key.to_vec(), value.to_vec()),
            None => self.0.remove(key),
        };
    }

    /// Returns the greatest identifier that may have been used.
    pub(super) fn uid(&self) -> Option<u64> {
        let bytes = self.0.get(&key(UID, b""))?.as_slice().try_into().ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Returns the columns with indices, and the kinds of these.
    pub(super) fn indices(&self) -> impl Iterator<Item = (&[u8], IndexKind)> {
        self.0.iter().filter_map(|(key, value)| match (key.as_slice(), value.first()) {
            ([_, INDEX, column @ ..], Some(kind)) => Some((column, IndexKind::from_number(*kind)?)),
            _ => None,
        })
    }
}

/// Checks that the engine has a table of this layout. Makes a table of an empty engine, unless it
/// is read-only.
pub(super) fn check_layout(engine: &dyn Engine, is_read_only: bool) -> Result<()> {
    match read(engine, &key(LAYOUT, b""))? {
        Some(version) if version == VERSION.to_le_bytes() => Ok(()),
        Some(_) => Err(Error::Unsupported {
            operation: "the layout of this table",
            kind: "this version",
            advice: "open it with the version that made it",
        }),
        None if !engine.is_empty() => Err(damaged(engine, "the record of its layout is missing")),
        None if is_read_only => Ok(()),
        None => {
            let mut batch = Batch::new();
            put_layout(&mut batch);
            engine.write(&batch, Wait::Block)
        }
    }
}

/// Adds the record of the layout, which makes a table of an empty engine, to a batch.
pub(super) fn put_layout(batch: &mut Batch) {
    batch.put(&key(LAYOUT, b""), &VERSION.to_le_bytes(), Meta::NONE);
}

/// Returns the number of rows if the table was closed properly. Removes the note of it, unless
/// read-only.
pub(super) fn take_clean_rows(engine: &dyn Engine, is_read_only: bool) -> Result<Option<u64>> {
    let rows = read_number(engine, CLEAN_ROWS)?;
    if rows.is_some() && !is_read_only {
        let mut batch = Batch::new();
        batch.remove(&key(CLEAN_ROWS, b""));
        engine.write(&batch, Wait::Block)?;
    }
    Ok(rows)
}

/// Notes the number of rows and the last used identifier, when the table is closed.
pub(super) fn write_clean(engine: &dyn Engine, rows: u64, uid: u64) -> Result<()> {
    let mut batch = Batch::new();
    batch.put(&key(CLEAN_ROWS, b""), &rows.to_le_bytes(), Meta::NONE);
    batch.put(&key(UID, b""), &uid.to_le_bytes(), Meta::NONE);
    engine.write(&batch, Wait::Block)
}

/// Returns the greatest identifier that may have been used.
pub(super) fn read_uid(engine: &dyn Engine) -> Result<u64> {
    Ok(read_number(engine, UID)?.unwrap_or(0))
}

pub(super) fn write_uid(engine: &dyn Engine, uid: u64) -> Result<()> {
    engine.put(&key(UID, b""), &uid.to_le_bytes(), Meta::NONE, Wait::Block).map(|_| ())
}

#[cfg(test)]
pub(super) fn remove_uid(batch: &mut Batch) {
    batch.remove(&key(UID, b""));
}

/// Indices, and the numbers of indices whose postings must be removed.
#[derive(Default)]
pub(super) struct Definitions {
    pub(super) indices: Vec<Arc<Index>>,
    pub(super) dropped: Vec<u32>,
}

pub(super) fn read_definitions(engine: &dyn Engine) -> Result<Definitions> {
    let mut definitions = Definitions::default();
    let range = cursor::KeyRange::of_prefix(vec![keys::META]);
    let mut cursor = cursor::Cursor::new(View::raw(engine), range);
    let mut cut = Vec::new();
    while let Some((record, value)) = cursor.next()? {
        let number = |bytes: &[u8]| {
            let bytes = bytes
                .try_into()
                .map_err(|_| damaged(engine, "the number of an index does not have 4 bytes"))?;
            Ok::<u32, Error>(u32::from_be_bytes(bytes))
        };
        match record.get(1) {
            Some(&DROPPED) => definitions.dropped.push(number(&record[2..])?),
            Some(&CUT) => cut.push(number(&record[2..])?),
            Some(&INDEX) => {
                let (kind, id) = value
                    .split_first()
                    .ok_or_else(|| damaged(engine, "the definition of an index is empty"))?;
                let kind = IndexKind::from_number(*kind)
                    .ok_or_else(|| damaged(engine, "an index has an unknown kind"))?;
                let index = Index::new(number(id)?, &record[2..], kind, true);
                definitions.indices.push(Arc::new(index));
            }
            _ => {}
        }
    }
    for index in &definitions.indices {
        index.has_cut_values.store(cut.contains(&index.id), Ordering::Release);
    }
    Ok(definitions)
}

/// Returns a key of the pending-change log.
pub(super) fn pending_change(rest: &[u8]) -> Vec<u8> {
    key(PENDING_CHANGE, rest)
}

/// Adds the definition of an index to a batch.
pub(super) fn put_index(batch: &mut Batch, index: &Index) {
    let value = [&[index.kind as u8], &index.id.to_be_bytes()[..]].concat();
    batch.put(&key(INDEX, &index.column), &value, Meta::NONE);
}

pub(super) fn remove_index(batch: &mut Batch, column: &[u8]) {
    batch.remove(&key(INDEX, column));
}

/// Records that the postings of an index must be removed, so that a restart does not forget it.
pub(super) fn put_dropped(batch: &mut Batch, id: u32) {
    batch.put(&key(DROPPED, &id.to_be_bytes()), b"", Meta::NONE);
}

pub(super) fn remove_dropped(batch: &mut Batch, id: u32) {
    batch.remove(&key(DROPPED, &id.to_be_bytes()));
}

/// Marks an index that has postings of cut values.
pub(super) fn put_cut(batch: &mut Batch, id: u32) {
    batch.put(&key(CUT, &id.to_be_bytes()), b"", Meta::NONE);
}

pub(super) fn remove_cut(batch: &mut Batch, id: u32) {
    batch.remove(&key(CUT, &id.to_be_bytes()));
}
