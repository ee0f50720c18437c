//! Requests on a fixed-length database: keys of clients as ids, and the records that `min`, `max`,
//! `prev` and `next` mean.
//!
//! The first and the last record are those at the ends of the order of the keys, in which entries
//! without a record are skipped. A record at `prev` or `next` is put beyond all entries, by a
//! transaction under the condition that there is none. So no two clients get one id, through
//! whichever servers they ask.

use crate::changes::PAUSES;
use crate::keys::{of_id, prefixed, text_of_id, with_prefix};
use crate::lists::Listed;
use crate::order::{Part, after_prefix};
use crate::records::{Changed, Present};
use crate::session::Failure;
use crate::shared::{Shared, of_read};
use crate::waiting::{Answer, Reply, Waiting};
use cabinet::ids::{IdLimits, Interval, Key};
use cabinet::limits::FIXED_ID_MAX;
use cabinet::{Error, Version};
use server::{
    Completion, Decision, KeysBegin, RecordRequest, StoreAnswer, StoreFailure, StoreRequest,
};
use std::ops::{Bound, RangeInclusive};
use std::slice;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// First and greatest number of entries that are read from each bucket at once, and of records that
/// are read at the same time, to find the first or the last record.
const EDGE_STEP: (usize, usize) = (2, 64);

/// End of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    First,
    Last,
}

/// Findings of requests for ids beyond an end, in their order.
#[derive(Debug, Default)]
struct Beyond {
    /// Id after the one that was given out last.
    free: Option<u64>,
    /// Record that was met where the order had no entry, and the name of its entry.
    met: Option<(u64, Option<i64>)>,
}

/// Memory for the reply to a request.
struct Room<'r> {
    reply: &'r mut Reply,
    is_lacking: bool,
}

impl Room<'_> {
    /// Takes memory. Fails if there is none.
    fn take(&mut self, bytes: usize) -> Result<(), Changed> {
        self.is_lacking = !self.reply.reserve(bytes);
        if self.is_lacking { Err(Changed::NotDone) } else { Ok(()) }
    }
}

impl Shared {
    /// Puts ids in place of the keys of a request that changes records. Fails if a key means none.
    pub(crate) fn address(&self, request: &mut StoreRequest) -> Result<(), Error> {
        let Some(ids) = self.name.ids else { return Ok(()) };
        let address = |request: &mut RecordRequest| {
            if let Key::Id(id) = ids.key(request.key())? {
                request.set_key(of_id(id));
            }
            Ok(())
        };
        match request {
            StoreRequest::Record(request) => address(request),
            StoreRequest::Changes(requests) => requests.iter_mut().try_for_each(address),
            _ => Ok(()),
        }
    }

    /// Returns what the key of an addressed request means, unless that is an id.
    pub(crate) fn relative(&self, key: &[u8]) -> Option<(IdLimits, Key)> {
        let ids = self.name.ids.filter(|_| key.len() != size_of::<u64>())?;
        Some((ids, Key::parse(key)))
    }

    /// Returns the key of a record in the cluster. Fails if there cannot be a record of that key.
    pub(crate) fn stored_key(&self, key: &[u8]) -> Result<Vec<u8>, Error> {
        let Some(ids) = self.name.ids else { return Ok(key.to_vec()) };
        match ids.key(key)? {
            Key::Id(id) => Ok(of_id(id)),
            _ => Err(ids.no_id(key)),
        }
    }

    /// Returns a key in the cluster as clients know it.
    pub(crate) fn shown_key(&self, key: Vec<u8>) -> Vec<u8> {
        if self.name.ids.is_some() { text_of_id(key) } else { key }
    }

    /// Executes requests on the record that a key means by the ids that are there, one after the
    /// other. Those beyond the ids get ids that follow each other, after one look at the edge.
    /// After a failure, no further part of its list is begun.
    pub(crate) async fn change_relative(&self, ids: IdLimits, key: Key, waiting: Vec<Waiting>) {
        let mut beyond = Beyond::default();
        for Waiting { request, mut reply, deadline } in waiting {
            if deadline <= Instant::now() || reply.is_after_failure() {
                // Nothing was done for it.
                reply.complete(Err(StoreFailure::Unavailable));
                continue;
            }
            let mut room = Room { reply: &mut reply, is_lacking: false };
            let decided =
                self.decide_relative(ids, key, &request, deadline, &mut beyond, &mut room).await;
            let is_lacking = room.is_lacking;
            reply.complete(match decided {
                Err(_) if is_lacking => Err(StoreFailure::NoMemory),
                decided => decided,
            });
        }
    }

    async fn decide_relative(
        &self,
        ids: IdLimits,
        key: Key,
        request: &RecordRequest,
        deadline: Instant,
        beyond: &mut Beyond,
        room: &mut Room<'_>,
    ) -> Answer {
        let mut pause = PAUSES.0;
        loop {
            let tried = match key {
                Key::Id(_) => Ok(StoreAnswer::Refused(ids.no_id(request.key()).into())),
                Key::Min => self.try_at(Edge::First, ids, request, deadline, room).await,
                Key::Max => self.try_at(Edge::Last, ids, request, deadline, room).await,
                Key::Prev => self.try_beyond(Edge::First, ids, request, deadline, beyond).await,
                Key::Next => self.try_beyond(Edge::Last, ids, request, deadline, beyond).await,
            };
            match tried {
                Ok(answer) => return Ok(answer),
                Err(failed) => self.pause_after(failed, &mut pause, deadline).await?,
            }
        }
    }

    /// Executes a request on the first or the last record.
    async fn try_at(
        &self,
        edge: Edge,
        ids: IdLimits,
        request: &RecordRequest,
        deadline: Instant,
        room: &mut Room<'_>,
    ) -> Result<StoreAnswer, Changed> {
        match self.edge_until(edge, deadline).await? {
            Some((id, row)) => {
                // The old value, and the cell of the new one.
                room.take(2 * row.record.as_ref().map_or(0, |record| record.value.len()))?;
                let decided = self.decide_one(&of_id(id), request, Some(&row), deadline).await;
                decided.map(|(decision, version)| decision.answer(version))
            }
            None if request.is_read() => Ok(request.decide(None).answer(0)),
            None => Ok(StoreAnswer::Refused(ids.no_id(request.key()).into())),
        }
    }

    /// Executes a request on a new record before the first one or after the last one.
    async fn try_beyond(
        &self,
        edge: Edge,
        ids: IdLimits,
        request: &RecordRequest,
        deadline: Instant,
        beyond: &mut Beyond,
    ) -> Result<StoreAnswer, Changed> {
        let id = match beyond.free.take() {
            Some(id) => id,
            None => self.free_id(edge, ids, deadline, beyond.met).await?,
        };
        if !(1..=ids.id_max()).contains(&id) {
            return Ok(StoreAnswer::Refused(ids.no_id(request.key()).into()));
        }
        let key = of_id(id);
        let row = self.read_until(&key, deadline).await?;
        if let Some(row) = row.as_ref().filter(|row| row.record.is_some()) {
            // Another server was faster and the edge is elsewhere, or the record has no entry.
            beyond.met = Some((id, row.entry));
            return Err(Changed::Conflict);
        }
        let (decision, version) = self.decide_one(&key, request, row.as_ref(), deadline).await?;
        beyond.free = Some(if version == 0 { id } else { edge.beyond(Some(id)) });
        Ok(decision.answer(version))
    }

    /// Returns the id beyond all entries, and beyond the record that was met before this look.
    ///
    /// A record has its entry before it is there. So if the entries do not reach the one that was
    /// met, its entry is lost, and would keep each further request from passing the record. The
    /// entry is added again. If the record was removed meanwhile, readers skip its entry.
    async fn free_id(
        &self,
        edge: Edge,
        ids: IdLimits,
        deadline: Instant,
        met: Option<(u64, Option<i64>)>,
    ) -> Result<u64, Changed> {
        let id = match self.free_by_entries(edge, ids, deadline).await? {
            Some(id) => id,
            // The entry at the limit may be without a record.
            None => edge.beyond(self.edge_until(edge, deadline).await?.map(|(id, _)| id)),
        };
        let Some((met, entry)) = met.filter(|(met, _)| !edge.is_beyond(id, *met)) else {
            return Ok(id);
        };
        tracing::warn!("record {met} has no entry in the order of the ids: it is added again");
        if let Some(entry) = entry {
            let key = of_id(met);
            let added = self.records.add_entry(&self.cluster, &key, entry);
            let added = timeout_at(deadline, added).await;
            added.unwrap_or(Err(Failure::NotDone)).map_err(|_| Changed::NotDone)?;
        }
        Ok(edge.beyond(Some(met)))
    }

    async fn decide_one(
        &self,
        key: &[u8],
        request: &RecordRequest,
        row: Option<&Present>,
        deadline: Instant,
    ) -> Result<(Decision, Version), Changed> {
        let requests = slice::from_ref(request);
        let mut decisions = self.decide_on(key, requests, Some(row), deadline).await?;
        decisions.pop().ok_or(Changed::NotDone)
    }

    async fn edge_until(
        &self,
        edge: Edge,
        deadline: Instant,
    ) -> Result<Option<(u64, Present)>, Changed> {
        let found = timeout_at(deadline, self.edge(edge)).await;
        found.unwrap_or(Err(Failure::NotDone)).map_err(|_| Changed::NotDone)
    }

    /// Returns the first or the last record.
    async fn edge(&self, edge: Edge) -> Result<Option<(u64, Present)>, Failure> {
        let Some(order) = self.records.order() else { return Ok(None) };
        let (mut step, mut from) = (EDGE_STEP.0, None);
        loop {
            let Part { keys, next } = match edge {
                Edge::First => {
                    let begin = from.take().map_or(Bound::Unbounded, Bound::Excluded);
                    order.first_part(&self.cluster, &begin, &end_of_all(), step).await?
                }
                Edge::Last => {
                    let end = from.take().unwrap_or_else(end_of_all);
                    order.last_part(&self.cluster, &end, step).await?
                }
            };
            let mut keys = keys.as_slice();
            let mut at_once = 1;
            while !keys.is_empty() {
                let (some, rest) = keys.split_at(keys.len().min(at_once));
                let found = self.first_record(some).await?;
                let first = found.as_ref().map(|(id, _)| of_id(*id));
                let dead = some.iter().filter_map(|key| id_in(key)).map(of_id);
                self.note_dead(dead.take_while(|key| Some(key) != first.as_ref()));
                if found.is_some() {
                    return Ok(found);
                }
                keys = rest;
                at_once = EDGE_STEP.1.min(at_once * 2);
            }
            match next {
                Some(next) => from = Some(next),
                None => return Ok(None),
            }
            step = EDGE_STEP.1.min(step * 2);
        }
    }

    /// Reads the records under keys of the order. Returns the first one that is there.
    async fn first_record(&self, keys: &[Vec<u8>]) -> Result<Option<(u64, Present)>, Failure> {
        let mut reads = JoinSet::new();
        for (number, id) in keys.iter().filter_map(|key| id_in(key)).enumerate() {
            let (records, cluster) = (Arc::clone(&self.records), Arc::clone(&self.cluster));
            reads.spawn(async move {
                let row = records.get(&cluster, &of_id(id)).await;
                row.map(|row| (number, row.map(|row| (id, row))))
            });
        }
        let mut first: Option<(usize, (u64, Present))> = None;
        while let Some(read) = reads.join_next().await {
            let (number, row) = read.map_err(|_| Failure::Lost)??;
            let is_before = first.as_ref().is_none_or(|(first, _)| number < *first);
            if let Some(row) = row.filter(|(_, row)| is_before && row.record.is_some()) {
                first = Some((number, row));
            }
        }
        Ok(first.map(|(_, found)| found))
    }

    /// Returns the id before the first entry or after the last one, unless it is over the limits.
    /// Entries of changes under way are passed over, so these do not meet this one.
    async fn free_by_entries(
        &self,
        edge: Edge,
        ids: IdLimits,
        deadline: Instant,
    ) -> Result<Option<u64>, Changed> {
        let Some(order) = self.records.order() else { return Ok(None) };
        let part = async {
            match edge {
                Edge::First => {
                    let begin = Bound::Unbounded;
                    order.first_part(&self.cluster, &begin, &end_of_all(), 1).await
                }
                Edge::Last => order.last_part(&self.cluster, &end_of_all(), 1).await,
            }
        };
        let part = timeout_at(deadline, part).await.unwrap_or(Err(Failure::NotDone));
        let keys = part.map_err(|_| Changed::NotDone)?.keys;
        let id = edge.beyond(keys.first().and_then(|key| id_in(key)));
        Ok(Some(id).filter(|id| (1..=ids.id_max()).contains(id)))
    }

    /// Returns the id that a key means now, if there can be a record under it.
    async fn id_of(&self, ids: IdLimits, key: &[u8]) -> Result<Option<u64>, StoreFailure> {
        let edge = match ids.key(key) {
            Ok(Key::Id(id)) => return Ok(Some(id)),
            Ok(Key::Min) => Edge::First,
            Ok(Key::Max) => Edge::Last,
            Ok(Key::Prev | Key::Next) | Err(_) => return Ok(None),
        };
        Ok(self.edge(edge).await.map_err(of_read)?.map(|(id, _)| id))
    }

    /// Returns the keys in the cluster of records to read.
    pub(crate) async fn stored_keys(
        &self,
        mut keys: Vec<Vec<u8>>,
    ) -> Result<Vec<Vec<u8>>, StoreFailure> {
        if let Some(ids) = self.name.ids {
            for key in &mut keys {
                // There is no record of id 0.
                *key = of_id(self.id_of(ids, key).await?.unwrap_or(0));
            }
        }
        Ok(keys)
    }

    /// Lists the keys with a prefix of their text, in the order of the ids.
    pub(crate) async fn list_ids(
        self: &Arc<Self>,
        ids: IdLimits,
        prefix: &[u8],
        begin: KeysBegin,
        listed: &mut Listed,
        completion: &mut Completion,
    ) -> Result<(), StoreFailure> {
        let begin = match begin {
            KeysBegin::First => Some(1),
            KeysBegin::At(key) => self.id_of(ids, &key).await?,
            KeysBegin::After(key) => self.id_of(ids, &key).await?.map(|id| id + 1),
        };
        let Some(begin) = begin else { return Ok(()) };
        for (first, last) in with_prefix(prefix) {
            self.walk_ids(first.max(begin)..=last, false, listed, completion).await?;
        }
        Ok(())
    }

    /// Lists the keys within an interval, in the order of the ids.
    pub(crate) async fn list_within(
        self: &Arc<Self>,
        interval: &[u8],
        listed: &mut Listed,
        completion: &mut Completion,
    ) -> Result<(), StoreFailure> {
        let (Some(ids), Some(interval)) = (self.name.ids, Interval::parse(interval)) else {
            return Ok(());
        };
        let from = match interval.from.key {
            // Nothing is before the first record, nor after the last one.
            Key::Min if interval.from.inclusive => 1,
            key => self.end(key).await?,
        };
        let to = match interval.to.key {
            Key::Max if interval.to.inclusive => ids.id_max(),
            key => self.end(key).await?,
        };
        self.walk_ids(interval.ids(from, to), false, listed, completion).await
    }

    /// Returns the id that an end of an interval means; 0 if there is none.
    async fn end(&self, key: Key) -> Result<u64, StoreFailure> {
        let (edge, is_beyond) = match key {
            Key::Id(id) => return Ok(id),
            Key::Min => (Edge::First, false),
            Key::Max => (Edge::Last, false),
            Key::Prev => (Edge::First, true),
            Key::Next => (Edge::Last, true),
        };
        let id = self.edge(edge).await.map_err(of_read)?.map(|(id, _)| id);
        Ok(if is_beyond { edge.beyond(id) } else { id.unwrap_or(0) })
    }

    /// Lists the records from the id of one key on until that of another.
    pub(crate) async fn range_of_ids(
        self: &Arc<Self>,
        ids: IdLimits,
        begin: &[u8],
        end: Option<Vec<u8>>,
        listed: &mut Listed,
        completion: &mut Completion,
    ) -> Result<(), StoreFailure> {
        let Some(first) = self.id_of(ids, begin).await? else { return Ok(()) };
        let last = match end.map(|end| ids.key(&end)) {
            Some(Ok(Key::Id(end))) => end - 1,
            _ => ids.id_max(),
        };
        self.walk_ids(first..=last, true, listed, completion).await
    }

    async fn walk_ids(
        self: &Arc<Self>,
        ids: RangeInclusive<u64>,
        with_values: bool,
        listed: &mut Listed,
        completion: &mut Completion,
    ) -> Result<(), StoreFailure> {
        let Some(order) = self.records.order() else { return Ok(()) };
        let begin = Bound::Included(prefixed(&of_id(*ids.start())));
        let end = prefixed(&of_id(FIXED_ID_MAX.min(*ids.end()) + 1));
        self.walk(order, begin, end, with_values, listed, completion).await
    }
}

impl Edge {
    /// Returns the id beyond this edge, given that of the record there; 0 if there is none.
    fn beyond(self, id: Option<u64>) -> u64 {
        match self {
            Self::First => id.unwrap_or(0).saturating_sub(1),
            Self::Last => id.unwrap_or(0).saturating_add(1),
        }
    }

    /// Returns whether an id is further out than another one.
    fn is_beyond(self, id: u64, other: u64) -> bool {
        match self {
            Self::First => id < other,
            Self::Last => id > other,
        }
    }
}

/// Returns the id in a key of the order.
fn id_in(key: &[u8]) -> Option<u64> {
    key.get(1..)?.try_into().ok().map(u64::from_be_bytes)
}

/// Returns a key after those of all records.
fn end_of_all() -> Vec<u8> {
    after_prefix(&prefixed(b""))
}
