//! Check of indices against rows.

use crate::base::reentry;
use crate::table::cursor::{Cursor, KeyRange, count_up_to};
use crate::table::postings::{Changes, View};
use crate::table::row::RowView;
use crate::table::{Table, keys};
use crate::{Error, Result};

impl Table {
    /// Checks that the indices have all postings of all rows, and no others. Writers wait
    /// meanwhile. Fails with [`Error::Corrupted`] at the first difference.
    pub fn check_indices(&self) -> Result<()> {
        reentry::check_all(reentry::engine_id_of(self))?;
        let structure = self.structure.write();
        let indices: Vec<_> = structure.iter().filter(|index| index.is_ready()).collect();
        let mut counts = vec![0u64; indices.len()];
        let changes = self.postings.changes();
        let view = View::new(&*self.engine, &changes);
        let mut cursor = Cursor::new(view, KeyRange::of_prefix(vec![keys::ROWS]));
        while let Some((key, row)) = cursor.next()? {
            let (primary, row) = (&key[1..], RowView::new(row));
            for (index, count) in indices.iter().zip(&mut counts) {
                let Some(value) = row.get_or_primary(&index.column, primary) else { continue };
                let mut postings = Changes::default();
                index.put_postings(primary, value, &mut postings);
                *count += postings.len() as u64;
                for (key, value) in postings.iter() {
                    if view.get(key)?.as_deref() != value {
                        return Err(self.differs(&index.column, "lacks a posting of a row"));
                    }
                }
            }
        }
        for (index, count) in indices.iter().zip(counts) {
            let range = KeyRange::of_prefix(keys::postings(index.id));
            if count_up_to(view, &range, u64::MAX)? != count {
                return Err(self.differs(&index.column, "has a posting without its row"));
            }
        }
        Ok(())
    }

    fn differs(&self, column: &[u8], how: &str) -> Error {
        let what = format!("the index of column {:?} {how}", String::from_utf8_lossy(column));
        Error::Corrupted { file: self.engine.medium().path(), offset: 0, what }
    }
}
