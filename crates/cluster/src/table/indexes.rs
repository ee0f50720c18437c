//! Adding and removing indexes. See [`super::upkeep`] for the argument.

use super::definitions::{Definition, Definitions, INDEXES_MAX};
use super::tables::Tables;
use super::{PAUSES, Rows, Stop};
use crate::records::Changed;
use crate::session::Failure;
use cabinet::Error;
use cabinet::limits::COLUMN_NAME_BYTES_MAX;
use cabinet::table::{IndexChange, IndexKind};
use server::{StoreAnswer, StoreFailure};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Rows that are completed at the same time.
const COMPLETED_AT_ONCE: usize = 16;

/// Longest time for which no part of a filling succeeds, before it is given up.
const FILL_PATIENCE: Duration = Duration::from_secs(600);

/// Longest pause between two attempts of a part.
const FILL_PAUSE: Duration = Duration::from_secs(2);

/// Time before the first sweep of a server, and between two of them.
const SWEEP_PAUSES: (Duration, Duration) =
    (Duration::from_secs(60), Duration::from_secs(6 * 60 * 60));

/// Attempts to change the definitions while other servers do.
const ATTEMPTS_MAX: usize = 20;

/// Part of the filling of indexes.
#[derive(Debug)]
pub(crate) struct Filled {
    /// Number of rows that were completed.
    pub(crate) rows: usize,
    /// Key after which the next part begins, unless this was the last one.
    pub(crate) next: Option<Vec<u8>>,
}

impl Rows {
    /// Changes indexes, up to the first change that fails.
    pub(super) async fn set_indexes(
        self: &Arc<Self>,
        changes: Vec<(Vec<u8>, IndexChange)>,
    ) -> Result<StoreAnswer, Stop> {
        let mut is_changed = false;
        for (column, change) in changes {
            match self.set_index(column, change).await {
                Ok(()) => is_changed = true,
                Err(Stop::Failed(_)) if is_changed => {
                    return Err(Stop::Failed(StoreFailure::Unknown));
                }
                Err(stop) => return Err(stop),
            }
        }
        Ok(StoreAnswer::Done)
    }

    /// Adds, rebuilds or removes the index of a column. An index is filled to its end even if the
    /// client's time is over before.
    async fn set_index(self: &Arc<Self>, column: Vec<u8>, change: IndexChange) -> Result<(), Stop> {
        let rows = Arc::clone(self);
        let set = tokio::spawn(async move {
            match rows.begin_index(column, change).await? {
                None => Ok(()),
                Some(id) => {
                    rows.fill(id).await?;
                    rows.finish_index(id).await
                }
            }
        });
        set.await.unwrap_or(Err(Stop::Failed(StoreFailure::Unknown)))
    }

    /// Completes all rows. A part that fails is tried again.
    async fn fill(self: &Arc<Self>, id: i32) -> Result<(), Stop> {
        tracing::info!("index {id}: filling begins");
        let (mut after, mut rows, mut pause) = (None, 0, PAUSES.0);
        let mut since = Instant::now();
        loop {
            match self.fill_part(after.as_deref()).await {
                Ok(part) => {
                    rows += part.rows;
                    (since, pause) = (Instant::now(), PAUSES.0);
                    match part.next {
                        None => break,
                        next => after = next,
                    }
                }
                Err(_) if since.elapsed() > FILL_PATIENCE => {
                    tracing::error!("index {id}: given up after {rows} rows, set it again");
                    return Err(Stop::Failed(StoreFailure::Unknown));
                }
                Err(_) => {
                    tracing::warn!("index {id}: filling waits for the cluster after {rows} rows");
                    sleep(pause).await;
                    pause = FILL_PAUSE.min(pause * 2);
                }
            }
        }
        tracing::info!("index {id}: {rows} rows are filled");
        Ok(())
    }

    /// Begins a change of the index of a column. Returns the index to be filled, or `None` if the
    /// change is done.
    pub(super) async fn begin_index(
        &self,
        column: Vec<u8>,
        change: IndexChange,
    ) -> Result<Option<i32>, Stop> {
        if column.len() > COLUMN_NAME_BYTES_MAX {
            let reason = format!(
                "the name of the column to be indexed has {} bytes: no column has more than \
                 {COLUMN_NAME_BYTES_MAX}",
                column.len()
            );
            return Err(Error::BadColumn(reason).into());
        }
        let own = column.clone();
        let (before, after) =
            self.define(move |definitions| Ok(Some(begun(definitions, &own, change)?))).await?;
        self.remove_entries(&before, &after).await;
        let filling = after.indexes.iter().find(|index| index.column == column && !index.is_ready);
        Ok(filling.map(|index| index.id))
    }

    /// Makes an index ready whose rows are complete. May be repeated.
    pub(super) async fn finish_index(&self, id: i32) -> Result<(), Stop> {
        let finish = |definitions: &Definitions| Ok(finished(definitions, id));
        let (before, after) = self.define(finish).await.map_err(|stop| match stop {
            Stop::Failed(_) => Stop::Failed(StoreFailure::Unknown),
            other => other,
        })?;
        self.remove_entries(&before, &after).await;
        if after.is_ready(id) { Ok(()) } else { Err(replaced()) }
    }

    /// Changes the definitions. Returns those before and after the change.
    async fn define(
        &self,
        change: impl Fn(&Definitions) -> Result<Option<Vec<Definition>>, Error>,
    ) -> Result<(Arc<Definitions>, Arc<Definitions>), Stop> {
        let mut pause = PAUSES.0;
        for _ in 0..ATTEMPTS_MAX {
            let before = self.upkeep.fresh().await?;
            let Some(indexes) = change(&before)? else { return Ok((Arc::clone(&before), before)) };
            let Some(number) = before.number.checked_add(1) else {
                return Err(
                    Error::TooMany { what: "changes of indexes", max: i32::MAX as u64 }.into()
                );
            };
            let after = Definitions { number, indexes };
            match self.upkeep.tables.swap_definitions(before.number, &after).await {
                Changed::Done => {
                    self.upkeep.learn(after.clone());
                    return Ok((before, Arc::new(after)));
                }
                Changed::Conflict => {
                    sleep(pause).await;
                    pause = PAUSES.1.min(pause * 2);
                }
                Changed::NotDone => return Err(Stop::Failed(StoreFailure::Unavailable)),
                Changed::Unknown => return Err(Stop::Failed(StoreFailure::Unknown)),
            }
        }
        Err(Stop::Failed(StoreFailure::Unavailable))
    }

    /// Removes the entries of indexes that are there no more. Should that fail, they take space.
    async fn remove_entries(&self, before: &Definitions, after: &Definitions) {
        for index in before.indexes.iter().filter(|index| after.find(index.id).is_none()) {
            self.upkeep.tables.remove_index(index.id).await;
        }
    }

    /// Removes entries of indexes that are there no more, time and again. Those are left by a
    /// server that ends while it removes an index, and by changes of rows that were begun before.
    pub(crate) fn sweep_for_ever(self: &Arc<Self>) -> impl Future<Output = ()> + Send + use<> {
        let rows = Arc::downgrade(self);
        async move {
            let mut pause = SWEEP_PAUSES.0;
            loop {
                sleep(pause).await;
                pause = SWEEP_PAUSES.1;
                let Some(rows) = rows.upgrade() else { return };
                match rows.sweep().await {
                    Ok(0) => {}
                    Ok(count) => {
                        tracing::info!("removed {count} partitions of indexes that are gone");
                    }
                    Err(_) => tracing::debug!("entries of indexes that are gone may stay"),
                }
            }
        }
    }

    /// Removes the entries of indexes that are there no more. Returns the number of partitions that
    /// had some.
    pub(crate) async fn sweep(&self) -> Result<usize, Failure> {
        let definitions = self.upkeep.tables.definitions().await?;
        // They are not those that this server knew: the keyspace was made again or restored.
        if definitions.number < self.upkeep.known().number {
            tracing::warn!("the indexes are older than those known before: restart the server");
            return Ok(0);
        }
        self.upkeep.tables.sweep(&definitions).await
    }

    /// Completes some rows after a key. May be repeated.
    pub(crate) async fn fill_part(
        self: &Arc<Self>,
        after: Option<&[u8]>,
    ) -> Result<Filled, Failure> {
        let part = self.upkeep.tables.keys(after).await?;
        for keys in part.keys.chunks(COMPLETED_AT_ONCE) {
            let mut tasks = JoinSet::new();
            for key in keys {
                let (rows, key) = (Arc::clone(self), key.clone());
                let until = Instant::now() + self.timeout;
                tasks.spawn(async move { rows.upkeep.complete(until, &key).await });
            }
            while let Some(completed) = tasks.join_next().await {
                completed.map_err(|_| Failure::Lost)??;
            }
        }
        Ok(Filled { rows: part.keys.len(), next: part.next })
    }
}

fn replaced() -> Stop {
    let what =
        "another client has replaced or removed the index meanwhile: set it again if need be";
    Error::InvalidArgument(what.into()).into()
}

/// Returns the indexes once a change of that of a column has begun: with a new one, which is not
/// ready, beside the old one; or without any. An index whose filling was broken off is taken up
/// again, with another number of the definitions, so that they are recorded once more.
pub(super) fn begun(
    definitions: &Definitions,
    column: &[u8],
    change: IndexChange,
) -> Result<Vec<Definition>, Error> {
    let old = definitions.indexes.iter().find(|index| index.column == column && index.is_ready);
    let any = definitions.indexes.iter().find(|index| index.column == column);
    let kind = match (change, old.or(any)) {
        (IndexChange::SetNew(_), Some(_)) if old.is_some() => return Err(Error::IndexExists),
        (IndexChange::Optimize | IndexChange::Remove, None) => return Err(Error::NoIndex),
        (IndexChange::Optimize, Some(old)) => Some(old.kind),
        (IndexChange::Remove, Some(_)) => None,
        (IndexChange::Set(kind) | IndexChange::SetNew(kind), _) => Some(kind),
    };
    // The keys themselves are the index.
    let is_at_once = column.is_empty() && kind == Some(IndexKind::Lexical);
    let is_kept = |index: &&Definition| {
        let is_kept = kind.is_some_and(|kind| index.is_ready || index.kind == kind);
        index.column != column || is_kept && !is_at_once
    };
    let mut indexes: Vec<Definition> =
        definitions.indexes.iter().filter(is_kept).cloned().collect();
    let is_filling = indexes.iter().any(|index| index.column == column && !index.is_ready);
    if let Some(kind) = kind.filter(|_| !is_filling) {
        if indexes.iter().filter(|index| index.column != column).count() >= INDEXES_MAX {
            let what = format!("more than {INDEXES_MAX} indexes: remove one first");
            return Err(Error::InvalidArgument(what));
        }
        let (id, column) = (definitions.number.saturating_add(1), column.to_vec());
        indexes.push(Definition { id, column, kind, is_ready: is_at_once });
    }
    Ok(indexes)
}

/// Returns the indexes once one is filled: it is ready, and in the place of any other one of its
/// column. Returns `None` if there is nothing to change.
pub(super) fn finished(definitions: &Definitions, id: i32) -> Option<Vec<Definition>> {
    let filled = definitions.find(id).filter(|index| !index.is_ready)?;
    let is_kept = |index: &&Definition| index.column != filled.column || index.id == id;
    let ready = |index: &Definition| Definition {
        is_ready: index.is_ready || index.id == id,
        ..index.clone()
    };
    Some(definitions.indexes.iter().filter(is_kept).map(ready).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(id: i32, column: &[u8], kind: IndexKind, is_ready: bool) -> Definition {
        Definition { id, column: column.to_vec(), kind, is_ready }
    }

    #[test]
    fn an_index_is_filled_beside_the_old_one_and_then_takes_its_place() {
        use IndexKind::{Decimal, Lexical};
        let other = index(1, b"other", Lexical, true);
        let old = index(2, b"c", Lexical, true);
        let definitions = Definitions { number: 4, indexes: vec![other.clone(), old.clone()] };
        let new = index(5, b"c", Decimal, false);
        let indexes = begun(&definitions, b"c", IndexChange::Set(Decimal)).unwrap();
        assert_eq!(indexes, [other.clone(), old.clone(), new.clone()]);
        let definitions = Definitions { number: 5, indexes };
        // The filling is taken up again, or given up for another kind.
        let again = begun(&definitions, b"c", IndexChange::Set(Decimal)).unwrap();
        assert_eq!(again, [other.clone(), old.clone(), new.clone()]);
        let instead = begun(&definitions, b"c", IndexChange::Set(Lexical)).unwrap();
        assert_eq!(instead, [other.clone(), old.clone(), index(6, b"c", Lexical, false)]);
        let ready = Definition { is_ready: true, ..new };
        assert_eq!(finished(&definitions, 5).unwrap(), [other.clone(), ready]);
        assert_eq!(finished(&definitions, 2), None);
        assert_eq!(finished(&definitions, 7), None);
        let removed = begun(&definitions, b"c", IndexChange::Remove).unwrap();
        assert_eq!(removed, [other]);
    }

    #[test]
    fn the_index_of_the_keys_is_ready_at_once() {
        use IndexKind::{Decimal, Lexical};
        let others = [index(1, b"c", Lexical, true), index(2, b"", Decimal, true)];
        let definitions = Definitions { number: 2, indexes: others.to_vec() };
        let indexes = begun(&definitions, b"", IndexChange::Set(Lexical)).unwrap();
        assert_eq!(indexes, [others[0].clone(), index(3, b"", Lexical, true)]);
        let definitions = Definitions { number: 3, indexes };
        let again = begun(&definitions, b"", IndexChange::Optimize).unwrap();
        assert_eq!(again, [others[0].clone(), index(4, b"", Lexical, true)]);
        let indexes = begun(&definitions, b"", IndexChange::Set(Decimal)).unwrap();
        assert_eq!(indexes.last(), Some(&index(4, b"", Decimal, false)));
    }

    #[test]
    fn a_change_of_an_index_that_is_there_or_missing_is_refused() {
        use IndexKind::Decimal;
        let ready =
            |is_ready| Definitions { number: 1, indexes: vec![index(1, b"c", Decimal, is_ready)] };
        let refused = begun(&ready(true), b"c", IndexChange::SetNew(Decimal));
        assert!(matches!(refused, Err(Error::IndexExists)));
        assert_eq!(begun(&ready(false), b"c", IndexChange::SetNew(Decimal)).unwrap().len(), 1);
        for change in [IndexChange::Optimize, IndexChange::Remove] {
            assert!(matches!(begun(&ready(true), b"d", change), Err(Error::NoIndex)));
        }
        assert_eq!(begun(&ready(true), b"c", IndexChange::Optimize).unwrap().len(), 2);
    }

    #[test]
    fn the_number_of_indexes_is_limited() {
        let column = |number: usize| format!("c{number}").into_bytes();
        let mut definitions = Definitions::default();
        for number in 0..INDEXES_MAX {
            let change = IndexChange::Set(IndexKind::Lexical);
            definitions.indexes = begun(&definitions, &column(number), change).unwrap();
            definitions.number += 1;
        }
        let change = IndexChange::Set(IndexKind::Lexical);
        assert!(begun(&definitions, &column(INDEXES_MAX), change).is_err());
        assert!(begun(&definitions, &column(0), IndexChange::Remove).is_ok());
        for index in &mut definitions.indexes {
            index.is_ready = true;
        }
        // One of another kind takes the place of the one of its column.
        for change in [IndexChange::Optimize, IndexChange::Set(IndexKind::Decimal)] {
            let indexes = begun(&definitions, &column(0), change).unwrap();
            assert_eq!(indexes.len(), INDEXES_MAX + 1);
        }
        assert!(begun(&definitions, &column(INDEXES_MAX), change).is_err());
    }
}
