//! Building and removing indices while the table is in use.
//!
//! A new index is made known to writers first, who keep its postings from then on, and not to
//! queries. Then the rows are gone through in bounded steps; each row is kept from changing while
//! its postings are made. When all have theirs, and these are in their blocks, one
//! batch puts the new definition in the place of the old one. Until then, and while the postings of
//! an old index are being removed, a record says that the postings of that number are to
//! go: so whatever is left by a crash is removed at the next opening, and never used.

use super::Index;
use crate::column_index::{IndexChange, IndexDescription};
use crate::table::cursor::{Cursor, KeyRange};
use crate::table::postings::View;
use crate::table::{Table, keys, meta};
use crate::{Batch, Engine, Error, Result, ScanCursor, Wait, reentry};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Rows of one step of building.
const ROWS_MAX: usize = 256;

/// Blocks of postings that are removed in one batch.
const REMOVED_MAX: usize = 1024;

impl Table {
    /// The indices, in the order of their columns. A callback may ask for them.
    pub fn indices(&self) -> Vec<IndexDescription> {
        self.ready.lock().clone()
    }

    /// Notes which indices are ready.
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

    /// Builds, rebuilds or removes the index of a column, of which there is at most one; the empty
    /// name is the primary key. Others go on writing and searching meanwhile. Fails with
    /// [`Error::IndexExists`] or [`Error::NoIndex`] where the change asks for the opposite.
    pub fn set_index(&self, column: &[u8], change: IndexChange) -> Result<()> {
        // It waits for the queries that use the old one.
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
        self.engine.write(&batch)?;
        self.structure.write().push(Arc::clone(&new));
        match self.build(&new) {
            Ok(()) => self.replace_index(old.as_ref(), Some(&new)),
            Err(error) => {
                self.structure.write().retain(|index| index.id != new.id);
                // The postings go now or at the next opening; what went wrong is worth more.
                let _ = self.postings.flush().and_then(|()| remove_postings(&*self.engine, new.id));
                Err(error)
            }
        }
    }

    fn unused_id(&self) -> u32 {
        self.last_index_id.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Makes the postings of all rows.
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

    /// Puts an index in the place of another, and removes the postings of that.
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
        // So that little is left to be done while nobody can write; what is wrong shows then.
        let _ = self.postings.flush();
        {
            let mut structure = self.structure.write();
            let flushed = self.postings.flush();
            if let Err(error) = flushed.and_then(|()| self.engine.write(&batch)) {
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
            // Queries that have begun with it come to their end first.
            let _in_use = old.in_use.write();
            remove_postings(&*self.engine, old.id)?;
        }
        Ok(())
    }
}

/// Removes what there is of an index, and the record that says it is to be removed.
pub(in crate::table) fn remove_postings(engine: &dyn Engine, id: u32) -> Result<()> {
    remove_blocks(engine, keys::postings(id))?;
    let mut batch = Batch::new();
    meta::remove_cut(&mut batch, id);
    meta::remove_dropped(&mut batch, id);
    engine.write(&batch)
}

/// Removes all records of the engine with this prefix.
pub(in crate::table) fn remove_blocks(engine: &dyn Engine, prefix: Vec<u8>) -> Result<()> {
    let mut cursor = Cursor::of_keys(View::raw(engine), KeyRange::of_prefix(prefix));
    loop {
        let mut batch = Batch::new();
        while batch.changes.len() < REMOVED_MAX
            && let Some((key, _)) = cursor.next()?
        {
            batch.remove(key);
        }
        if batch.is_empty() {
            return Ok(());
        }
        engine.write(&batch)?;
    }
}
