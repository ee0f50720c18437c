//! Building and removal of indices while the table is in use.
//!
//! A new index is first visible only to writers, which maintain its postings from then on. Then the
//! rows are read in bounded steps, and each row is locked while its postings are added. When all
//! postings are in blocks, one batch replaces the old definition by the new one. Until then, and
//! while the postings of an old index are removed, a record marks the postings of that index number
//! for removal. So the next opening after a crash removes them, and they are never used.

use super::Index;
use crate::base::column_index::{IndexChange, IndexDescription};
use crate::base::reentry;
use crate::table::cursor::{KeyRange, remove_range};
use crate::table::{Table, keys, meta};
use crate::{Batch, Engine, Error, Result, ScanCursor, Wait};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum number of rows in one step of building.
const ROWS_MAX: usize = 256;

impl Table {
    /// Returns the indices, in the order of their columns. Callbacks may call this.
    pub fn indices(&self) -> Vec<IndexDescription> {
        self.ready.lock().clone()
    }

    /// Updates the list of indices that are ready.
    pub(in crate::table) fn note_ready(&self, structure: &[Arc<Index>]) {
        let ready = structure.iter().filter(|index| index.is_ready());
        let describe = |index: &Arc<Index>| IndexDescription {
            column: index.column.clone(),
            kind: index.kind,
        };
        let mut indices: Vec<_> = ready.map(describe).collect();
        indices.sort_by(|one, other| one.column.cmp(&other.column));
        *self.ready.lock() = indices;
    }

    /// Builds, rebuilds or removes the index of a column. A column has at most one index; the empty
    /// name is the primary key. Other threads can write and search meanwhile. Fails with
    /// [`Error::IndexExists`] if the change requires that there is no index, with
    /// [`Error::NoIndex`] if it requires one, and with [`Error::BadColumn`] if the name is too
    /// long.
    pub fn set_index(&self, column: &[u8], change: IndexChange) -> Result<()> {
        // This waits for the queries that use the old index, so it must not run in their callbacks.
        reentry::check_all(reentry::engine_id_of(self))?;
        self.check_writable()?;
        if column.len() > crate::limits::COLUMN_NAME_BYTES_MAX {
            return Err(Error::BadColumn(format!(
                "the name of the column to be indexed has {} bytes: no column has more than {}",
                column.len(),
                crate::limits::COLUMN_NAME_BYTES_MAX
            )));
        }
        let _building = self.building.lock();
        let old = {
            let structure = self.structure.read();
            structure.iter().find(|index| index.column == column).map(Arc::clone)
        };
        let kind = match (change, &old) {
            (IndexChange::SetNew(_), Some(_)) => return Err(Error::IndexExists),
            (IndexChange::Optimize | IndexChange::Remove, None) => return Err(Error::NoIndex),
            (IndexChange::Remove, Some(old)) => return self.replace_index(Some(old), None),
            (IndexChange::Optimize, Some(old)) => old.kind,
            (IndexChange::Set(kind) | IndexChange::SetNew(kind), _) => kind,
        };
        let new = Arc::new(Index::new(self.unused_id(), column, kind, false));
        let mut batch = Batch::new();
        meta::put_dropped(&mut batch, new.id);
        self.engine.write(&batch, Wait::Block)?;
        self.structure.write().push(Arc::clone(&new));
        match self.build(&new) {
            Ok(()) => self.replace_index(old.as_ref(), Some(&new)),
            Err(error) => {
                self.structure.write().retain(|index| index.id != new.id);
                // The postings are removed now or at the next opening. The first error matters
                // more.
                let _ = self.postings.flush().and_then(|()| remove_postings(&*self.engine, new.id));
                Err(error)
            }
        }
    }

    fn unused_id(&self) -> u32 {
        self.last_index_id.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Adds the postings of all rows.
    pub(in crate::table) fn build(&self, index: &Arc<Index>) -> Result<()> {
        if index.is_rows() {
            return Ok(());
        }
        let range = KeyRange::of_prefix(vec![keys::ROWS]);
        let mut next = Some(ScanCursor::Key(range.start.clone()));
        while let Some(position) = next {
            let mut rows: Vec<Vec<u8>> = Vec::new();
            let mut is_past = false;
            let mut left_out = None;
            let after = self.engine.scan_keys(&position, &mut |key| {
                is_past = is_past || left_out.is_some() || !range.is_before_end(key);
                if is_past {
                    return;
                }
                if rows.len() == ROWS_MAX {
                    left_out = Some(key.to_vec());
                    return;
                }
                rows.push(key[1..].to_vec());
            })?;
            self.evict_for_writer(Wait::Block)?;
            self.add_postings(index, &rows)?;
            next = match left_out {
                Some(key) => Some(ScanCursor::Key(key)),
                None => after.filter(|_| !is_past),
            };
        }
        Ok(())
    }

    /// Replaces an index by another, and removes the postings of the old one.
    fn replace_index(&self, old: Option<&Arc<Index>>, new: Option<&Arc<Index>>) -> Result<()> {
        let mut batch = Batch::new();
        if let Some(old) = old {
            meta::remove_index(&mut batch, &old.column);
            meta::put_dropped(&mut batch, old.id);
        }
        if let Some(new) = new {
            meta::put_index(&mut batch, new);
            meta::remove_dropped(&mut batch, new.id);
        }
        // Little is left to flush while writers wait. If this fails, the next flush fails, too.
        let _ = self.postings.flush();
        {
            let mut structure = self.structure.write();
            let flushed = self.postings.flush();
            if let Err(error) = flushed.and_then(|()| self.engine.write(&batch, Wait::Block)) {
                structure.retain(|index| index.is_ready());
                return Err(error);
            }
            if let Some(old) = old {
                structure.retain(|index| index.id != old.id);
            }
            if let Some(new) = new {
                new.is_ready.store(true, Ordering::Release);
            }
            self.note_ready(&structure);
        }
        if let Some(old) = old {
            // Waits for the queries that use the old index.
            let _in_use = old.in_use.write();
            remove_postings(&*self.engine, old.id)?;
        }
        Ok(())
    }
}

/// Removes the postings of an index, and the record that marks them for removal.
pub(in crate::table) fn remove_postings(engine: &dyn Engine, id: u32) -> Result<()> {
    remove_range(engine, KeyRange::of_prefix(keys::postings(id)))?;
    let mut batch = Batch::new();
    meta::remove_cut(&mut batch, id);
    meta::remove_dropped(&mut batch, id);
    engine.write(&batch, Wait::Block)
}
