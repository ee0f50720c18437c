//! The store: requests of the server in, answers from the threads of the driver.

use crate::error::{Error, Result};
use crate::key_queues::KeyQueues;
use crate::name::{Kind, Mode, Name};
use crate::order::{self, Order};
use crate::records::{Changed, KEY_BYTES_MAX, Records, entry, new_record, prefixed};
use crate::schema::{self, Stage};
use crate::session::{Cluster, Failure};
use cabinet::{Change, Meta, Version};
use server::{
    Capabilities, Completion, Decision, FoundRecord, LONG_REQUEST_FACTOR, RecordRequest,
    RemoteStore, StoreAnswer, StoreFailure, StoreRequest, StoreStatus,
};
use std::mem;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

/// Threads of the driver.
const THREADS: usize = 2;

/// Records that one request reads at the same time.
const READS_AT_ONCE: usize = 64;

/// Changes of one key that are made in one step.
const FOLD_MAX: usize = 1024;

/// First and longest pause before a change that met another one is decided again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

type Answer = Result<StoreAnswer, StoreFailure>;

/// A database in a cluster.
#[derive(Debug)]
pub struct ClusterStore {
    shared: Arc<Shared>,
    /// Taken when the store is dropped.
    runtime: Option<Runtime>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) records: Records,
    queues: KeyQueues<Waiting>,
    pub(crate) name: Name,
    conflicts: AtomicU64,
    folded: AtomicU64,
}

/// A change that waits for its turn.
#[derive(Debug)]
struct Waiting {
    request: RecordRequest,
    reply: Reply,
}

/// Taker of an answer.
#[derive(Debug)]
struct Reply {
    completion: Completion,
    deadline: Instant,
}

impl ClusterStore {
    /// Connects to a database that [`init`] has made, and into which no copy is under way.
    pub fn connect(name: &Name) -> Result<Arc<Self>> {
        let store = Self::connect_to_copy(name)?;
        let runtime = store.runtime()?;
        runtime.block_on(check_complete(&store.shared.cluster, name))?;
        Ok(store)
    }

    /// Connects to a database that may have a part of its records.
    pub fn connect_to_copy(name: &Name) -> Result<Arc<Self>> {
        let runtime = runtime()?;
        let shared = runtime.block_on(async {
            let cluster = Arc::new(Cluster::connect(name).await?);
            check(&cluster, name).await?;
            let records = Records::prepare(&cluster, name).await?;
            let queues = KeyQueues::default();
            let (conflicts, folded) = Default::default();
            let name = name.clone();
            Ok::<_, Error>(Shared { cluster, records, queues, name, conflicts, folded })
        })?;
        Ok(Arc::new(Self { shared: Arc::new(shared), runtime: Some(runtime) }))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the threads of the driver, for callers that wait.
    pub(crate) fn runtime(&self) -> Result<&Runtime> {
        self.runtime.as_ref().ok_or_else(|| Error::Threads(std::io::Error::other("ended")))
    }
}

impl Drop for ClusterStore {
    fn drop(&mut self) {
        // Requests under way are dropped, and so answered.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Makes the keyspace, the tables and the kind of a database, where they are missing.
pub fn init(name: &Name, replication: u8) -> Result<()> {
    runtime()?.block_on(async {
        let cluster = Cluster::connect(name).await?;
        for statement in schema::statements(name, replication) {
            cluster.define(&statement).await?;
        }
        check(&cluster, name).await
    })
}

fn runtime() -> Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(THREADS).thread_name("cluster").enable_all();
    builder.build().map_err(Error::Threads)
}

/// Checks that the database is of the kind and mode of its name.
async fn check(cluster: &Cluster, name: &Name) -> Result<()> {
    let keyspace = name.keyspace.clone();
    let table = format!("{}.meta", schema::quoted(name));
    let statement = format!("SELECT kind, mode, format, buckets FROM {table} WHERE id = 0");
    let row = cluster.find::<(String, String, i32, i32)>(&statement).await?;
    let Some((kind, mode, format, buckets)) = row else {
        return Err(Error::NotInitialized { keyspace });
    };
    let shown = |kind: &str, mode: &str, format, buckets| {
        let is_ordered = kind == Kind::Tree.name();
        let buckets = if is_ordered { format!("buckets={buckets}, ") } else { String::new() };
        format!("kind={kind}, mode={mode}, {buckets}format {format}")
    };
    let found = shown(&kind, &mode, format, buckets);
    let wanted = shown(name.kind.name(), name.mode.name(), schema::FORMAT, name.buckets);
    if found == wanted { Ok(()) } else { Err(Error::Mismatch { keyspace, found, wanted }) }
}

/// Checks that no copy into an empty database was begun and not ended.
async fn check_complete(cluster: &Cluster, name: &Name) -> Result<()> {
    let table = format!("{}.migration", schema::quoted(name));
    // Databases of earlier versions have no such table.
    let statement = format!("SELECT stage, source FROM {table} WHERE id = 0");
    match cluster.find::<(String, String)>(&statement).await? {
        Some((stage, source_name)) if stage == Stage::Filling.name() => {
            Err(Error::Incomplete { keyspace: name.keyspace.clone(), source_name })
        }
        _ => Ok(()),
    }
}

impl RemoteStore for ClusterStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            lists_keys: true,
            is_ordered: self.shared.records.order().is_some(),
            counts: true,
            clears: true,
            changes_conditionally: self.shared.name.mode == Mode::Strict,
            key_bytes_max: KEY_BYTES_MAX,
            value_bytes_max: self.shared.name.value_bytes_max,
        }
    }

    fn status(&self) -> StoreStatus {
        StoreStatus {
            conflicts: self.shared.conflicts.load(Ordering::Relaxed),
            folded: self.shared.folded.load(Ordering::Relaxed),
            ..self.shared.cluster.status()
        }
    }

    fn submit(&self, request: StoreRequest, completion: Completion) {
        let Some(runtime) = &self.runtime else { return };
        let shared = Arc::clone(&self.shared);
        let deadline = Instant::now() + shared.name.timeout;
        match request {
            StoreRequest::Record(request) if !request.is_read() => {
                let key = request.key().to_vec();
                let waiting = Waiting { request, reply: Reply { completion, deadline } };
                if let Some(first) = self.shared.queues.enter(&key, waiting) {
                    runtime.spawn(async move { shared.change_all(&key, first).await });
                }
            }
            StoreRequest::Record(request) => {
                let waiting = Waiting { request, reply: Reply { completion, deadline } };
                runtime.spawn(async move {
                    let key = waiting.request.key().to_vec();
                    shared.change(&key, vec![waiting]).await;
                });
            }
            request => {
                let deadline = match request.is_long() {
                    false => deadline,
                    true => Instant::now() + shared.name.timeout * LONG_REQUEST_FACTOR,
                };
                let if_late = match request.is_read() {
                    true => StoreFailure::Unavailable,
                    false => StoreFailure::Unknown,
                };
                runtime.spawn(async move {
                    let answer = timeout_at(deadline, shared.execute(request)).await;
                    completion.complete(answer.unwrap_or(Err(if_late)));
                });
            }
        }
    }
}

impl Shared {
    /// Executes a request that changes no single record.
    async fn execute(self: Arc<Self>, request: StoreRequest) -> Answer {
        match request {
            StoreRequest::Record(_) => Err(StoreFailure::Unavailable),
            StoreRequest::GetMany { keys } => {
                Ok(StoreAnswer::Records(self.read_all(keys, true).await?))
            }
            StoreRequest::Keys { prefix, after, max, bytes_max } => {
                let (keys, is_complete) = match self.records.order() {
                    None => {
                        let after = after.as_deref();
                        let listed =
                            self.records.keys(&self.cluster, &prefix, after, max, bytes_max);
                        listed.await.map_err(of_read)?
                    }
                    Some(order) => {
                        let end = order::after_prefix(&prefixed(&prefix));
                        let after = after.map(|after| prefixed(&after));
                        let begin = order::first(prefixed(&prefix), after);
                        let mut listed = Listed::new(max, bytes_max);
                        self.walk(order, begin, end, false, &mut listed).await?;
                        let keys = listed.records.into_iter().map(|(key, _)| key).collect();
                        (keys, listed.is_complete)
                    }
                };
                Ok(StoreAnswer::Keys { keys, is_complete })
            }
            StoreRequest::Range { begin, end, max, bytes_max } => {
                let Some(order) = self.records.order() else {
                    return Err(StoreFailure::Unavailable);
                };
                let end =
                    end.map_or_else(|| order::after_prefix(&prefixed(b"")), |end| prefixed(&end));
                let mut listed = Listed::new(max, bytes_max);
                self.walk(order, Bound::Included(prefixed(&begin)), end, true, &mut listed).await?;
                let Listed { records, is_complete, .. } = listed;
                Ok(StoreAnswer::Range { records, is_complete })
            }
            StoreRequest::Count => {
                let mut count = 0;
                let visit = |_: &[u8]| {
                    count += 1;
                    ControlFlow::Continue(())
                };
                self.records.scan(&self.cluster, None, visit).await.map_err(of_read)?;
                Ok(StoreAnswer::Count(count))
            }
            StoreRequest::Clear => match self.records.clear(&self.cluster).await {
                Ok(()) => Ok(StoreAnswer::Done),
                Err(Failure::NotDone) => Err(StoreFailure::Unavailable),
                Err(_) => Err(StoreFailure::Unknown),
            },
        }
    }

    /// Lists the records of an interval of keys in their order.
    async fn walk(
        self: &Arc<Self>,
        order: &Arc<Order>,
        mut begin: Bound<Vec<u8>>,
        end: Vec<u8>,
        with_values: bool,
        listed: &mut Listed,
    ) -> Result<(), StoreFailure> {
        while key_of(&begin) < &end[..] && !listed.is_full() {
            let wanted = listed.max - listed.records.len();
            let part = order.part(&self.cluster, &begin, &end, wanted).await.map_err(of_read)?;
            for keys in part.keys.chunks(READS_AT_ONCE) {
                let keys: Vec<Vec<u8>> = keys.iter().map(|key| key[1..].to_vec()).collect();
                let found = self.read_all(keys.clone(), with_values).await?;
                for (key, record) in keys.into_iter().zip(found) {
                    if let Some(record) = record {
                        listed.add(key, record);
                    }
                }
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

    /// Reads records. Without values, those are empty.
    async fn read_all(
        self: &Arc<Self>,
        keys: Vec<Vec<u8>>,
        with_values: bool,
    ) -> Result<Vec<Option<FoundRecord>>, StoreFailure> {
        let mut found = Vec::new();
        found.resize_with(keys.len(), || None);
        let mut reads = JoinSet::new();
        let mut keys = keys.into_iter().enumerate();
        loop {
            while reads.len() < READS_AT_ONCE
                && let Some((number, key)) = keys.next()
            {
                let shared = Arc::clone(self);
                reads.spawn(async move {
                    let read = match with_values {
                        true => {
                            let row = shared.records.get(&shared.cluster, &key).await;
                            row.map(|row| row.and_then(|row| row.record))
                        }
                        false => {
                            let exists = shared.records.exists(&shared.cluster, &key).await;
                            let bare = || new_record(Vec::new(), Meta::NONE, 0);
                            exists.map(|exists| exists.then(bare))
                        }
                    };
                    (number, read)
                });
            }
            let Some(read) = reads.join_next().await else { break };
            let (number, record) = read.map_err(|_| StoreFailure::Unavailable)?;
            found[number] = record.map_err(of_read)?;
        }
        Ok(found)
    }

    /// Makes a change, and all changes of its key that come meanwhile.
    async fn change_all(&self, key: &[u8], first: Waiting) {
        let mut turn = self.queues.turn(key);
        let mut waiting = vec![first];
        loop {
            while !waiting.is_empty() {
                let rest = waiting.split_off(waiting.len().min(FOLD_MAX));
                self.change(key, waiting).await;
                waiting = rest;
            }
            match turn.next() {
                Some((own, changes)) => (turn, waiting) = (own, changes),
                None => return,
            }
        }
    }

    /// Executes requests on one record one after the other, and writes the record once.
    async fn change(&self, key: &[u8], waiting: Vec<Waiting>) {
        let now = Instant::now();
        let mut requests = Vec::with_capacity(waiting.len());
        let mut replies = Vec::with_capacity(waiting.len());
        let mut latest = now;
        for Waiting { request, reply } in waiting {
            if reply.deadline <= now {
                // Nothing was done for one that has waited too long.
                reply.completion.complete(Err(StoreFailure::Unavailable));
                continue;
            }
            latest = latest.max(reply.deadline);
            requests.push(request);
            replies.push(reply.completion);
        }
        match self.decide(key, &requests, latest).await {
            Ok(decisions) => {
                for (reply, (decision, version)) in replies.into_iter().zip(decisions) {
                    reply.complete(Ok(decision.answer(version)));
                }
            }
            Err(failure) => {
                for reply in replies {
                    reply.complete(Err(failure));
                }
            }
        }
    }

    /// Tries to execute requests until no other change comes between.
    async fn decide(
        &self,
        key: &[u8],
        requests: &[RecordRequest],
        deadline: Instant,
    ) -> Result<Vec<(Decision, Version)>, StoreFailure> {
        let mut pause = PAUSES.0;
        while !requests.is_empty() {
            match self.try_to_decide(key, requests, deadline).await {
                Ok(decisions) => return Ok(decisions),
                Err(Changed::Unknown) => return Err(StoreFailure::Unknown),
                Err(Changed::Conflict) if Instant::now() + pause < deadline => {
                    self.conflicts.fetch_add(1, Ordering::Relaxed);
                    sleep(pause).await;
                    pause = PAUSES.1.min(pause * 2);
                }
                Err(_) => return Err(StoreFailure::Unavailable),
            }
        }
        Ok(Vec::new())
    }

    /// Returns the decision on each request and the version that it gave to the record, once the
    /// record is changed; or the reason why it was not.
    async fn try_to_decide(
        &self,
        key: &[u8],
        requests: &[RecordRequest],
        deadline: Instant,
    ) -> Result<Vec<(Decision, Version)>, Changed> {
        let is_put = self.records.order().is_none()
            && requests.first().is_some_and(|first| first.decide_unread().is_some());
        let row = match is_put {
            true => None,
            false => {
                let row = timeout_at(deadline, self.records.get(&self.cluster, key)).await;
                let row = row.unwrap_or(Err(Failure::NotDone));
                Some(row.map_err(|_| Changed::NotDone)?)
            }
        };
        let read = row.as_ref().map(Option::as_ref);
        let mut record = read.flatten().and_then(|row| row.record.clone());
        let was_there = record.is_some();
        let mut last = read.flatten().map_or(0, |row| row.version);
        let mut changes = false;
        let mut decisions = Vec::with_capacity(requests.len());
        for request in requests {
            let mut decision = request.decide(record.as_ref().map(|found| entry(key, found)));
            let mut version = 0;
            match mem::replace(&mut decision.change, Change::Keep) {
                Change::Keep => {}
                Change::Put(value, meta) => {
                    version = record.insert(new_record(value, meta, last)).version;
                    last = version.cast_signed();
                    changes = true;
                }
                Change::Remove => {
                    record = None;
                    changes = true;
                }
            }
            decisions.push((decision, version));
        }
        let is_absent = !is_put && !was_there && record.is_none();
        if !changes || is_absent {
            return Ok(decisions);
        }
        match self.records.change(&self.cluster, deadline, key, read, record.as_ref()).await {
            Changed::Done => {
                let others = decisions.len() as u64 - 1;
                self.folded.fetch_add(others, Ordering::Relaxed);
                Ok(decisions)
            }
            failed => Err(failed),
        }
    }
}

/// Records of a list, up to its limits.
struct Listed {
    records: Vec<(Vec<u8>, FoundRecord)>,
    bytes: usize,
    max: usize,
    bytes_max: usize,
    is_complete: bool,
}

impl Listed {
    fn new(max: usize, bytes_max: usize) -> Self {
        Self { records: Vec::new(), bytes: 0, max, bytes_max, is_complete: true }
    }

    fn is_full(&self) -> bool {
        self.records.len() >= self.max || !self.is_complete
    }

    fn add(&mut self, key: Vec<u8>, record: FoundRecord) {
        if self.is_full() {
            return;
        }
        self.bytes += key.len() + record.value.len();
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

/// Returns the failure of a request that changes nothing.
fn of_read(_: Failure) -> StoreFailure {
    StoreFailure::Unavailable
}
