//! Saving what can be read of a damaged table.

use super::index::IndexChange;
use super::row::RowView;
use super::{Table, keys, meta};
use crate::tree::TreeDatabase;
use crate::{Damage, Result};

impl Table {
    /// Stores the rows that can be read of the table in `tree`, builds its indices anew, and goes on
    /// with its identifiers; answers the number of rows. Indices whose definition cannot be read
    /// are not built.
    pub(crate) fn salvage(
        &self,
        tree: &TreeDatabase,
        report: &mut dyn FnMut(Damage),
    ) -> Result<u64> {
        let mut rows = 0;
        tree.each_readable(
            &mut |entry| {
                if let Some((&keys::ROWS, primary)) = entry.key.split_first() {
                    self.put(primary, &RowView::new(entry.value).to_row())?;
                    rows += 1;
                }
                Ok(())
            },
            report,
        )?;
        if let Ok(uid) = meta::read_uid(tree) {
            self.set_uid_seed(uid)?;
        }
        if let Ok(definitions) = meta::read_definitions(tree) {
            for index in definitions.indices {
                self.set_index(&index.column, IndexChange::Set(index.kind))?;
            }
        }
        self.acknowledge()?;
        Ok(rows)
    }
}
