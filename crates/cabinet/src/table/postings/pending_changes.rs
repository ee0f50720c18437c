//! Pending-change log: the rows whose changed postings are only in memory.
//!
//! Each change of a row comes with a record of the row before the change, in the same batch or
//! before it. The record is removed when the changed postings are in blocks. After a crash, the
//! postings of a row are restored from these records and the current row: all postings that it may
//! have had are removed, and those that it has now are put.

use crate::table::cursor::{Cursor, KeyRange, remove_range};
use crate::table::meta;
use crate::table::postings::view::View;
use crate::{Batch, Engine, Error, Meta, Result};

/// Maximum bytes of an old row that is recorded in the batch of its change.
const SHORT_BYTES_MAX: usize = 1 << 20;

const WAS_NONE: u8 = 0;
const WAS_ROW: u8 = 1;

/// A record of the pending-change log.
pub(super) struct Record {
    pub(super) sequence: u64,
    pub(super) primary: Vec<u8>,
    /// The encoded row before the change; `None` if there was none.
    pub(super) before: Option<Vec<u8>>,
}

/// Records a row before its change.
pub(super) fn note(
    engine: &dyn Engine,
    batch: &mut Batch,
    sequence: u64,
    primary: &[u8],
    before: Option<&[u8]>,
) -> Result<()> {
    let was = if before.is_some() { WAS_ROW } else { WAS_NONE };
    let key = meta::pending_change(&[&sequence.to_be_bytes(), &[was][..], primary].concat());
    let before = before.unwrap_or_default();
    if before.len() > SHORT_BYTES_MAX {
        // A batch cannot hold two long rows. A record without its change is harmless.
        return engine.put(&key, before, Meta::NONE, crate::Wait::Block).map(|_| ());
    }
    batch.put(&key, before, Meta::NONE);
    Ok(())
}

/// Calls `visit` with all records, in the order in which they were written.
pub(super) fn for_each(
    engine: &dyn Engine,
    mut visit: impl FnMut(Record) -> Result<()>,
) -> Result<()> {
    let prefix = meta::pending_change(b"");
    let mut cursor = Cursor::new(View::raw(engine), KeyRange::of_prefix(prefix.clone()));
    while let Some((key, value)) = cursor.next()? {
        let parts = key[prefix.len()..].split_first_chunk::<8>();
        let parts = parts.and_then(|(sequence, rest)| Some((sequence, rest.split_first()?)));
        let Some((sequence, (was, primary))) = parts else {
            let what = "in the table: the record of a changed row does not parse".into();
            return Err(Error::Corrupted { file: engine.medium().path(), offset: 0, what });
        };
        visit(Record {
            sequence: u64::from_be_bytes(*sequence),
            primary: primary.to_vec(),
            before: (*was == WAS_ROW).then(|| value.to_vec()),
        })?;
    }
    Ok(())
}

/// Removes the records before a sequence number.
pub(super) fn forget(engine: &dyn Engine, before: u64) -> Result<()> {
    let start = meta::pending_change(b"");
    let end = meta::pending_change(&before.to_be_bytes());
    remove_range(engine, KeyRange { start, end })
}
