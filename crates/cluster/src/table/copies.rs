//! Steps of copies of whole tables into a cluster and out of it. Each may be repeated after a
//! failure.

use super::definitions::Definition;
use super::identifiers::RECORD_AGE;
use super::tables::Tables;
use super::{NewRow, Rows, Stop};
use crate::records::{Changed, now_ms};
use crate::session::Failure;
use crate::version;
use cabinet::table::{IndexChange, IndexDescription};
use server::LONG_REQUEST_FACTOR;
use tokio::time::{Instant, sleep};

/// Greatest identifier that a copied table may have given out. As many are left for new ones.
pub(crate) const IDENTIFIER_MAX: i64 = 1 << 62;

impl Rows {
    /// Puts a row in place of the one of its key, unless that is the same.
    pub(crate) async fn copy_row(&self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        // No client waits for the answer.
        let until = Instant::now() + self.timeout * LONG_REQUEST_FACTOR;
        let row = self.upkeep.tables.read(key).await?;
        if row.as_ref().is_some_and(|row| row.value.as_deref() == Some(value)) {
            return Ok(());
        }
        let last = row.as_ref().map_or(0, |row| row.version);
        let new = NewRow { version: version::next(last, now_ms()), value: Some(value.to_vec()) };
        match self.upkeep.change(until, key, row.as_ref(), &new).await {
            Changed::Done => Ok(()),
            Changed::Conflict | Changed::NotDone => Err(Failure::NotDone),
            Changed::Unknown => Err(Failure::Lost),
        }
    }

    /// Returns whether a key has this row.
    pub(crate) async fn has_row(&self, key: &[u8], value: &[u8]) -> Result<bool, Failure> {
        let row = self.upkeep.tables.read(key).await?;
        Ok(row.is_some_and(|row| row.value.as_deref() == Some(value)))
    }

    /// Returns the indexes: those that queries may use, and those that are not complete.
    pub(crate) async fn indexes(&self) -> Result<[Vec<IndexDescription>; 2], Failure> {
        let definitions = self.upkeep.fresh().await?;
        let (ready, incomplete): (Vec<_>, Vec<_>) =
            definitions.indexes.iter().partition(|index| index.is_ready);
        let described = |indexes: Vec<&Definition>| {
            let each = |index: &Definition| IndexDescription {
                column: index.column.clone(),
                kind: index.kind,
            };
            indexes.into_iter().map(each).collect()
        };
        Ok([ready, incomplete].map(described))
    }

    /// Begins an index, unless the column has one of this kind. Returns its number for
    /// [`Rows::finish_copied_index`], once [`Rows::fill_part`] has met all rows; or the reason why
    /// the table cannot have it.
    pub(crate) async fn begin_copied_index(
        &self,
        index: &IndexDescription,
    ) -> Result<Result<Option<i32>, String>, Failure> {
        if self.indexes().await?[0].contains(index) {
            return Ok(Ok(None));
        }
        refusal(self.begin_index(index.column.clone(), IndexChange::Set(index.kind)).await)
    }

    /// Makes an index ready. Returns the reason if that is not possible.
    pub(crate) async fn finish_copied_index(&self, id: i32) -> Result<Result<(), String>, Failure> {
        refusal(self.finish_index(id).await)
    }

    /// Returns the last identifier that may have been given out.
    pub(crate) async fn last_identifier(&self) -> Result<i64, Failure> {
        self.upkeep.tables.reserved().await
    }

    /// Lets identifiers go on after `last`, also those that servers have reserved.
    pub(crate) async fn raise_identifiers(&self, last: i64) -> Result<(), Failure> {
        let tables = &self.upkeep.tables;
        let before = tables.reserved().await?;
        if before < last && !tables.swap_reserved(before, last).await? {
            return Err(Failure::NotDone);
        }
        if last > 0 {
            // Servers reserve others then, which have to be after it.
            tables.set_copied_identifier(last).await?;
            sleep(RECORD_AGE).await;
        }
        Ok(())
    }
}

/// Returns the reason of a refusal apart from failures, which may be repeated.
fn refusal<T>(result: Result<T, Stop>) -> Result<Result<T, String>, Failure> {
    match result {
        Ok(done) => Ok(Ok(done)),
        Err(Stop::Refused(error)) => Ok(Err(error.to_string())),
        Err(Stop::Failed(_) | Stop::Full) => Err(Failure::Lost),
    }
}
