//! Opening a table of which a part is lost: what can be told is set right, and what cannot is said.
//!
//! Rows say everything. Where changes of the tree beneath were lost to damage, rows that are left may
//! have other entries than the blocks of the indices, so all blocks go and are made anew. The tree leaves a
//! note for that, which stays until it is done.

use super::cursor::KeyRange;
use super::index::build::remove_blocks;
use super::{Table, keys, meta};
use crate::{Engine, Error, Position, Result};
use std::path::Path;

/// Identifiers that are left out where the record of those given out may be an old one.
pub(super) const UIDS_LEFT_OUT: u64 = 1 << 20;

/// The error of a table that does not open, with what to do.
pub(super) fn with_way_out(path: &Path, error: Error) -> Error {
    match error {
        Error::Corrupted { file, offset, what } if !what.contains("tyrant salvage") => {
            let path = path.display();
            let what = format!(
                "{what}; without it the table does not open, but `tyrant salvage {path} --into NEW` copies \
                 what can be read"
            );
            Error::Corrupted { file, offset, what }
        }
        error => error,
    }
}

/// Counts the rows. Those that cannot be read are left out, and the log says so.
pub(super) fn count_rows(engine: &dyn Engine) -> Result<u64> {
    let rows = KeyRange::of_prefix(vec![keys::ROWS]);
    let mut count = 0;
    let mut next = Some(Position::Key(rows.start.clone()));
    while let Some(position) = next {
        let counted =
            engine.scan_keys(&position, &mut |key| count += u64::from(rows.contains(key)));
        let beyond = match (counted, &position) {
            (Err(error @ Error::Corrupted { .. }), Position::Key(key)) => {
                tracing::error!("rows are left out of the number of rows: {error}");
                engine.as_ordered().and_then(|ordered| ordered.beyond(key)).map(Position::Key)
            }
            (beyond, _) => beyond?,
        };
        next = beyond.filter(|next| match next {
            Position::Key(key) => rows.is_before_end(key),
            _ => false,
        });
    }
    Ok(count)
}

/// Removes the entries of all indices, and what would have them brought up to date: it may be from before a
/// loss that is later than the rows.
pub(super) fn forget_entries(engine: &dyn Engine, is_read_only: bool) -> Result<()> {
    if is_read_only {
        return Err(Error::NotSupported(format!(
            "opening {} for reading only: its indices have to be made anew after damage, for which it \
             has to be opened for writing once",
            engine.path().display()
        )));
    }
    remove_blocks(engine, vec![keys::ENTRIES])?;
    remove_blocks(engine, meta::journal(b""))
}

impl Table {
    /// Makes the entries of all indices again, of which there are none.
    pub(super) fn make_entries_anew(&self) -> Result<()> {
        let structure = self.structure.read().clone();
        for index in structure {
            let column = String::from_utf8_lossy(&index.column).into_owned();
            tracing::warn!(
                "{}: the index of column {column:?} is made anew after damage",
                self.engine.path().display()
            );
            self.build(&index)?;
        }
        self.entries.flush()?;
        let last = self.uid.lock().last;
        self.set_uid_seed(last.saturating_add(UIDS_LEFT_OUT))?;
        meta::remove_suspicion(&*self.engine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{IndexChange, IndexKind, Operator, Query, Row};
    use crate::{Batch, MemoryTree, Meta, Options, Wait};
    use std::sync::Arc;

    #[test]
    fn a_suspect_table_gets_entries_that_agree_with_its_rows() {
        let options = Options::default();
        let engine = Arc::new(MemoryTree::new(&options));
        let table = Table::new(Arc::clone(&engine) as _, &options).unwrap();
        table.set_index(b"text", IndexChange::Set(IndexKind::Lexical)).unwrap();
        let row = |text: &str| Row::new().with(b"text", text.as_bytes()).unwrap();
        for number in 0..500 {
            table.put(format!("{number}").as_bytes(), &row(&format!("old {number}"))).unwrap();
        }
        let uid = table.generate_uid().unwrap();
        drop(table);
        // Rows change, and their entries do not.
        for number in (0..500).step_by(3) {
            let key = keys::row(format!("{number}").as_bytes());
            let value = row(&format!("new {number}")).encode().unwrap();
            engine.put(&key, &value, Meta::NONE, Wait::Block).unwrap();
        }
        let mut batch = Batch::new();
        batch.remove(&keys::row(b"7"));
        engine.write(&batch).unwrap();
        engine.put(&meta::suspicion(), b"", Meta::NONE, Wait::Block).unwrap();

        let read_only = Options { read_only: true, ..Options::default() };
        let refused = Table::new(Arc::clone(&engine) as _, &read_only);
        assert!(matches!(refused, Err(Error::NotSupported(_))));
        for _ in 0..2 {
            let table = Table::new(Arc::clone(&engine) as _, &options).unwrap();
            assert_eq!(table.len(), 499);
            table.check_indices().unwrap();
            let query = Query::new().with(b"text", Operator::StringEqual, b"new 9");
            assert_eq!(table.search(&query).unwrap().0, [b"9"]);
            assert!(table.generate_uid().unwrap() > uid + UIDS_LEFT_OUT);
            assert!(!meta::is_suspect(&*engine).unwrap());
        }
    }
}
