//! Lists of keys and records, within the limits of an answer and of the memory of the server.

use crate::order::Order;
use crate::records::{Scanned, new_record};
use crate::session::Failure;
use crate::shared::{Shared, of_read};
use crate::table::Tables;
use cabinet::Meta;
use server::{Completion, FoundRecord, KeysBegin, StoreAnswer, StoreFailure};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Most records that one request reads at the same time.
const READS_AT_ONCE: usize = 64;

/// Records that one request reads at the same time before it knows how long they are.
const READS_AT_FIRST: usize = 8;

/// Bytes of values that one request reads at the same time, about.
const READ_BYTES: usize = 8 << 20;

impl Shared {
    /// Lists keys with a prefix, in the order of the cluster.
    pub(crate) async fn list_by_token(
        &self,
        prefix: &[u8],
        begin: KeysBegin,
        listed: &mut Listed,
        completion: &mut Completion,
    ) -> Result<(), StoreFailure> {
        let begin = match begin {
            KeysBegin::First => None,
            KeysBegin::At(key) => {
                if !self.records.exists(&self.cluster, &key).await.map_err(of_read)? {
                    return Ok(());
                }
                Some(Bound::Included(key))
            }
            KeysBegin::After(key) => Some(Bound::Excluded(key)),
        };
        // Keys without the prefix are read in vain.
        let page = prefix.is_empty().then_some(listed.max);
        let mut failure = None;
        let visit = |scanned: Scanned<'_>| {
            match scanned {
                Scanned::Page if !completion.is_awaited() => {
                    failure = Some(StoreFailure::Unavailable);
                }
                Scanned::Key(key) if key.starts_with(prefix) => {
                    listed.add(key.to_vec(), new_record(Arc::default(), Meta::NONE, 0));
                    if !completion.reserve(listed.memory_bytes) {
                        failure = Some(StoreFailure::NoMemory);
                    }
                }
                Scanned::Page | Scanned::Key(_) => {}
            }
            match listed.is_full() || failure.is_some() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        self.records.scan(&self.cluster, begin, page, visit).await.map_err(of_read)?;
        failure.map_or(Ok(()), Err)
    }

    /// Lists the records of an interval of keys in their order.
    pub(crate) async fn walk(
        self: &Arc<Self>,
        order: &Arc<Order>,
        mut begin: Bound<Vec<u8>>,
        end: Vec<u8>,
        with_values: bool,
        listed: &mut Listed,
        completion: &mut Completion,
    ) -> Result<(), StoreFailure> {
        while key_of(&begin) < &end[..] && !listed.is_full() {
            if !completion.is_awaited() {
                return Err(StoreFailure::Unavailable);
            }
            let wanted = listed.max - listed.records.len();
            let part = order.part(&self.cluster, &begin, &end, wanted).await.map_err(of_read)?;
            let keys_bytes: usize =
                part.keys.iter().map(|key| size_of::<Vec<u8>>() + key.len()).sum();
            if !completion.reserve(listed.memory_bytes + keys_bytes) {
                return Err(StoreFailure::NoMemory);
            }
            let mut keys = part.keys.into_iter().map(|key| key[1..].to_vec());
            loop {
                let keys: Vec<Vec<u8>> = keys.by_ref().take(READS_AT_ONCE).collect();
                if keys.is_empty() {
                    break;
                }
                let held_bytes = listed.memory_bytes + keys_bytes;
                let limits = (held_bytes, listed.bytes_max.saturating_sub(listed.bytes));
                let found = self.read_all(keys.clone(), with_values, limits, completion).await?;
                // The rest of the keys is over the limit.
                let is_whole = found.len() == keys.len();
                let mut dead = Vec::new();
                for (key, record) in keys.into_iter().zip(found) {
                    match record {
                        Some(record) => listed.add(self.shown_key(key), record),
                        None => dead.push(key),
                    }
                }
                self.note_dead(dead);
                listed.is_complete &= is_whole || listed.records.len() >= listed.max;
                if listed.is_full() {
                    return Ok(());
                }
            }
            match part.next {
                Some(next) => begin = Bound::Excluded(next),
                None => break,
            }
        }
        Ok(())
    }

    /// Reads a row of a table as a record.
    async fn read_row(&self, key: &[u8]) -> Result<Option<FoundRecord>, Failure> {
        let Some(rows) = &self.rows else { return Ok(None) };
        let row = rows.upkeep.tables.read(key).await?;
        Ok(row.and_then(|row| row.record()).map(|row| row.joined()))
    }

    /// Reads records: those under the first keys, until their values have more bytes than the
    /// second limit. The first one is the memory that the answer takes already. Without values,
    /// those are empty.
    pub(crate) async fn read_all(
        self: &Arc<Self>,
        keys: Vec<Vec<u8>>,
        with_values: bool,
        (held_bytes, bytes_max): (usize, usize),
        completion: &mut Completion,
    ) -> Result<Vec<Option<FoundRecord>>, StoreFailure> {
        let mut found = Vec::new();
        found.resize_with(keys.len(), || None);
        let mut reads = JoinSet::new();
        let mut keys = keys.into_iter().enumerate();
        let (mut bytes, mut memory_bytes) = (0, held_bytes);
        let (mut longest, mut at_once) = (1, READS_AT_FIRST);
        let mut is_full = false;
        loop {
            while !is_full
                && reads.len() < at_once
                && let Some((number, key)) = keys.next()
            {
                let shared = Arc::clone(self);
                reads.spawn(async move {
                    let read = match with_values {
                        true if shared.rows.is_some() => shared.read_row(&key).await,
                        true => {
                            let row = shared.records.get(&shared.cluster, &key).await;
                            row.map(|row| row.and_then(|row| row.record))
                        }
                        false => {
                            let exists = shared.records.exists(&shared.cluster, &key).await;
                            let bare = || new_record(Arc::default(), Meta::NONE, 0);
                            exists.map(|exists| exists.then(bare))
                        }
                    };
                    (number, read)
                });
            }
            let Some(read) = reads.join_next().await else { break };
            if !completion.is_awaited() {
                return Err(StoreFailure::Unavailable);
            }
            let (number, record) = read.map_err(|_| StoreFailure::Unavailable)?;
            let record = record.map_err(of_read)?;
            let length = record.as_ref().map_or(0, |record| record.value.len());
            bytes += length;
            memory_bytes += length + size_of::<FoundRecord>();
            longest = longest.max(length);
            // Long values may follow short ones.
            at_once = (READ_BYTES / longest).min(2 * at_once).clamp(1, READS_AT_ONCE);
            is_full |= bytes > bytes_max;
            if !completion.reserve(memory_bytes) {
                return Err(StoreFailure::NoMemory);
            }
            found[number] = record;
        }
        // Keys are begun in their order, so those that were not are the last ones.
        found.truncate(found.len() - keys.len());
        Ok(found)
    }
}

/// Records of a list, up to its limits.
pub(crate) struct Listed {
    pub(crate) records: Vec<(Vec<u8>, FoundRecord)>,
    bytes: usize,
    /// Memory of the records.
    memory_bytes: usize,
    max: usize,
    bytes_max: usize,
    pub(crate) is_complete: bool,
}

impl Listed {
    pub(crate) fn new(max: usize, bytes_max: usize) -> Self {
        Self { records: Vec::new(), bytes: 0, memory_bytes: 0, max, bytes_max, is_complete: true }
    }

    /// Returns the keys as an answer.
    pub(crate) fn keys(self) -> StoreAnswer {
        let keys = self.records.into_iter().map(|(key, _)| key).collect();
        StoreAnswer::Keys { keys, is_complete: self.is_complete }
    }

    fn is_full(&self) -> bool {
        self.records.len() >= self.max || !self.is_complete
    }

    fn add(&mut self, key: Vec<u8>, record: FoundRecord) {
        if self.is_full() {
            return;
        }
        let bytes = key.len() + record.value.len();
        self.bytes += bytes;
        self.memory_bytes += bytes + size_of::<(Vec<u8>, FoundRecord)>();
        match self.bytes <= self.bytes_max {
            true => self.records.push((key, record)),
            false => self.is_complete = false,
        }
    }
}

fn key_of(bound: &Bound<Vec<u8>>) -> &[u8] {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => &[],
    }
}
