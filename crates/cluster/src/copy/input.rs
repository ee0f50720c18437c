//! Copy of records into a database: a bounded number of puts is under way at once.

use super::bulk::BulkClock;
use super::repeat;
use crate::error::{Error, Result};
use crate::keys::KEY_BYTES_MAX;
use crate::records::{Changed, new_record, now_ms};
use crate::session::Failure;
use crate::shared::Shared;
use crate::store::ClusterStore;
use cabinet::{Meta, RecordRef};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// Most records under way.
const RECORDS_MAX: usize = 256;

/// Bytes of keys and values under way after which no further record begins.
const BYTES_MAX: usize = 16 << 20;

/// Time after which a wait for the oldest record is reported.
const LONG_WAIT: Duration = Duration::from_secs(5);

/// Records on their way into a database, or into a comparison with it. Marks between them tell how
/// far all records before them have come.
pub struct CopyIn<'s, M> {
    store: &'s ClusterStore,
    patience: Duration,
    waits: &'s dyn Fn(),
    /// Clock of plain writes, in a copy of which they are.
    bulk: Option<Arc<BulkClock>>,
    /// Oldest first.
    queue: VecDeque<Step<M>>,
    records: usize,
    bytes: usize,
    reached: Option<M>,
    differing: u64,
    first_differing: Option<Vec<u8>>,
}

enum Step<M> {
    Record(Task, usize),
    Mark(M),
}

/// Work on a record: returns its key if it differs. Ends when it is dropped.
struct Task(JoinHandle<Result<Option<Vec<u8>>>>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<'s, M> CopyIn<'s, M> {
    /// Begins a copy. A record is tried again until all attempts have failed for longer than
    /// `patience`; `waits` is called when one takes long.
    pub fn begin(store: &'s ClusterStore, patience: Duration, waits: &'s dyn Fn()) -> Self {
        Self {
            store,
            patience,
            waits,
            bulk: None,
            queue: VecDeque::new(),
            records: 0,
            bytes: 0,
            reached: None,
            differing: 0,
            first_differing: None,
        }
    }

    /// Begins or continues a copy into a database that was [emptied](ClusterStore::empty) for it,
    /// and that no other client changes. In strict mode, records are put by plain writes.
    pub fn begin_in_bulk(
        store: &'s ClusterStore,
        patience: Duration,
        waits: &'s dyn Fn(),
    ) -> Result<Self> {
        Ok(Self { bulk: store.bulk_clock()?, ..Self::begin(store, patience, waits) })
    }

    /// Puts a record, once there is room for it. The value of a row is its encoding
    /// ([`cabinet::table::Row::encode`]).
    pub fn put(&mut self, entry: RecordRef<'_>) -> Result<()> {
        let key = self.stored_key(&entry)?;
        let (value, meta) = (entry.value.to_vec(), entry.meta);
        let bulk = self.bulk.clone();
        self.start(entry, async move |shared, patience| {
            match bulk {
                Some(clock) => {
                    let put = clock.put(&shared, value, meta);
                    repeat!(patience, shared.records.put_in_bulk(&shared.cluster, &key, &put))?;
                }
                None => repeat!(patience, shared.copy(&key, &value, meta))?,
            }
            Ok(None)
        })
    }

    /// Compares a record with the one in the database, once there is room for it. One that expires
    /// meanwhile does not differ.
    pub fn compare(&mut self, entry: RecordRef<'_>) -> Result<()> {
        let key = self.stored_key(&entry)?;
        let (value, meta) = (entry.value.to_vec(), entry.meta);
        self.start(entry, async move |shared, patience| {
            // A record that has expired since it was read is there no more.
            let is_same =
                repeat!(patience, shared.has(&key, &value, meta))? || meta.is_expired(now_ms());
            Ok((!is_same).then(|| shared.shown_key(key)))
        })
    }

    /// Returns the key of a record in the cluster. Fails if a fixed-length database cannot have the
    /// record.
    fn stored_key(&self, entry: &RecordRef<'_>) -> Result<Vec<u8>> {
        let shared = self.store.shared();
        if let Some(ids) = shared.name.ids
            && ids.cut(entry.value).len() < entry.value.len()
        {
            let (what, length) = ("value", entry.value.len());
            let (key, max) = (entry.key.escape_ascii().to_string(), ids.cut(entry.value).len());
            // The database would cut it.
            return Err(Error::TooLong { what, key, length, max });
        }
        shared.stored_key(entry.key).map_err(|error| Error::Record { reason: error.to_string() })
    }

    fn start<F>(
        &mut self,
        entry: RecordRef<'_>,
        work: impl FnOnce(Arc<Shared>, Duration) -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<Option<Vec<u8>>>> + Send + 'static,
    {
        let shared = self.store.shared();
        for (what, length, max) in [
            ("key", entry.key.len(), KEY_BYTES_MAX),
            ("value", entry.value.len(), shared.name.value_bytes_max),
        ] {
            if length > max {
                let key = entry.key.escape_ascii().to_string();
                return Err(Error::TooLong { what, key, length, max });
            }
        }
        let bytes = entry.key.len() + entry.value.len();
        while self.records >= RECORDS_MAX || self.records > 0 && self.bytes + bytes > BYTES_MAX {
            self.wait_for_oldest()?;
        }
        let work = work(Arc::clone(shared), self.patience);
        let task = Task(self.store.runtime()?.spawn(work));
        self.queue.push_back(Step::Record(task, bytes));
        self.records += 1;
        self.bytes += bytes;
        Ok(())
    }

    /// Marks the place after the records so far.
    pub fn mark(&mut self, mark: M) {
        self.queue.push_back(Step::Mark(mark));
        self.take_marks();
    }

    /// Returns the last mark before which all records are copied, unless it was returned already.
    pub fn reached(&mut self) -> Option<M> {
        self.reached.take()
    }

    /// Waits for all records.
    pub fn finish(&mut self) -> Result<()> {
        while !self.queue.is_empty() {
            self.wait_for_oldest()?;
        }
        Ok(())
    }

    /// Returns the number of records that differ, and the key of the first one.
    pub fn differing(&self) -> (u64, Option<&[u8]>) {
        (self.differing, self.first_differing.as_deref())
    }

    fn wait_for_oldest(&mut self) -> Result<()> {
        if let Some(Step::Record(task, bytes)) = self.queue.front_mut() {
            let runtime = self.store.runtime()?;
            let done = runtime.block_on(async {
                if let Ok(done) = timeout(LONG_WAIT, &mut task.0).await {
                    return done;
                }
                (self.waits)();
                (&mut task.0).await
            });
            let differing = done.map_err(|_| Error::Away { seconds: 0 })??;
            self.records -= 1;
            self.bytes -= *bytes;
            self.queue.pop_front();
            if let Some(key) = differing {
                self.differing += 1;
                self.first_differing.get_or_insert(key);
            }
        }
        self.take_marks();
        Ok(())
    }

    /// Passes the marks that have no record before them any more.
    fn take_marks(&mut self) {
        while let Some(Step::Mark(_)) = self.queue.front() {
            if let Some(Step::Mark(mark)) = self.queue.pop_front() {
                self.reached = Some(mark);
            }
        }
    }
}

impl Shared {
    /// Returns whether a key has this record.
    async fn has(&self, key: &[u8], value: &[u8], meta: Meta) -> Result<bool, Failure> {
        if let Some(rows) = &self.rows {
            return rows.has_row(key, value).await;
        }
        let row = self.records.get(&self.cluster, key).await?;
        let found = row.and_then(|row| row.record);
        Ok(found.is_some_and(|found| *found.value == value && found.meta == meta))
    }

    /// Puts a record in place of the one of its key, unless that is the same.
    async fn copy(&self, key: &[u8], value: &[u8], meta: Meta) -> Result<(), Failure> {
        if let Some(rows) = &self.rows {
            return rows.copy_row(key, value).await;
        }
        let until = Instant::now() + self.name.timeout;
        let row = match self.records.order() {
            None => None,
            Some(_) => Some(self.records.get(&self.cluster, key).await?),
        };
        let read = row.as_ref().map(Option::as_ref);
        let present = read.flatten().and_then(|row| row.record.as_ref());
        if present.is_some_and(|found| *found.value == value && found.meta == meta) {
            return Ok(());
        }
        let last = read.flatten().map_or(0, |row| row.version);
        let record = new_record(Arc::new(value.to_vec()), meta, last);
        match self.records.change(&self.cluster, until, key, read, Some(&record)).await {
            Changed::Done => Ok(()),
            Changed::Conflict | Changed::NotDone => Err(Failure::NotDone),
            Changed::Unknown => Err(Failure::Lost),
        }
    }
}
