//! Indexes and identifiers of a table database, for copies.

use super::repeat;
use crate::error::{Error, Result};
use crate::store::ClusterStore;
use crate::table::{IDENTIFIER_MAX, Rows};
use cabinet::table::IndexDescription;
use std::sync::Arc;
use std::time::Duration;

/// Indexes of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopiedIndexes {
    /// Those that queries use.
    pub ready: Vec<IndexDescription>,
    /// Those whose `setindex` has not ended. Queries do not use them.
    pub incomplete: Vec<IndexDescription>,
}

impl ClusterStore {
    /// Returns the indexes of a table; no other database has any.
    pub fn indexes(&self, patience: Duration) -> Result<CopiedIndexes> {
        let Some(rows) = self.rows() else { return Ok(CopiedIndexes::default()) };
        self.runtime()?.block_on(async {
            let [ready, incomplete] = repeat!(patience, rows.indexes())?;
            Ok(CopiedIndexes { ready, incomplete })
        })
    }

    /// Sets an index of a table in place of any other of its column. If the column has one of this
    /// kind, does nothing. Calls `filled` with numbers of rows that have their entries. Fails with
    /// [`Error::Index`] if the table cannot have the index.
    pub fn set_index(
        &self,
        index: &IndexDescription,
        patience: Duration,
        filled: &dyn Fn(u64),
    ) -> Result<()> {
        let refused = |reason| Error::Index {
            column: index.column.escape_ascii().to_string(),
            kind: index.kind.name(),
            reason,
        };
        let rows = self.rows().ok_or_else(|| refused("the database is no table".to_owned()))?;
        self.runtime()?.block_on(async {
            let begun = repeat!(patience, rows.begin_copied_index(index))?;
            let Some(id) = begun.map_err(refused)? else { return Ok(()) };
            let mut after = None;
            loop {
                let part = repeat!(patience, rows.fill_part(after.as_deref()))?;
                filled(part.rows as u64);
                match part.next {
                    None => break,
                    next => after = next,
                }
            }
            repeat!(patience, rows.finish_copied_index(id))?.map_err(refused)
        })
    }

    /// Returns the last identifier of rows that may have been given out, or 0.
    pub fn last_identifier(&self, patience: Duration) -> Result<u64> {
        let Some(rows) = self.rows() else { return Ok(0) };
        let last = self.runtime()?.block_on(async { repeat!(patience, rows.last_identifier()) })?;
        Ok(u64::try_from(last).unwrap_or(0))
    }

    /// Lets identifiers of rows go on after `last`, if they have not come so far. Fails with
    /// [`Error::Identifier`] if there are none left after it.
    pub fn raise_identifiers(&self, last: u64, patience: Duration) -> Result<()> {
        let Some(rows) = self.rows() else { return Ok(()) };
        let next = i64::try_from(last).ok().filter(|last| *last <= IDENTIFIER_MAX);
        let next = next.ok_or(Error::Identifier { last, max: IDENTIFIER_MAX.cast_unsigned() })?;
        self.runtime()?.block_on(async { repeat!(patience, rows.raise_identifiers(next)) })
    }

    fn rows(&self) -> Option<&Arc<Rows>> {
        self.shared().rows.as_ref()
    }
}
