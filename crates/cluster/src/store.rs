//! The store: requests of the server in, answers from the threads of the driver.

use crate::error::{Error, Result};
use crate::guarantees::{check_replication, warnings};
use crate::key_queues::KeyQueues;
use crate::keys::{KEY_BYTES_MAX, prefixed};
use crate::lists::Listed;
use crate::name::{Kind, Mode, Name};
use crate::order;
use crate::records::{Records, Scanned};
use crate::schema::{self, Stage};
use crate::session::{Cluster, Failure};
use crate::shared::{Shared, of_read};
use crate::table::Rows;
use crate::waiting::{Answer, Reply, Waiting};
use cabinet::ids::IdLimits;
use server::{
    Capabilities, Completion, LONG_REQUEST_FACTOR, RemoteStore, StoreAnswer, StoreFailure,
    StoreRequest, StoreStatus,
};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, timeout_at};

/// Threads of the driver.
const THREADS: usize = 2;

/// A database in a cluster.
#[derive(Debug)]
pub struct ClusterStore {
    shared: Arc<Shared>,
    /// Taken when the store is dropped.
    runtime: Option<Runtime>,
}

impl ClusterStore {
    /// Connects to a database that [`init`] has made, and into which no copy is under way.
    pub fn connect(name: &Name) -> Result<Arc<Self>> {
        let store = Self::connect_to_copy(name)?;
        let runtime = store.runtime()?;
        runtime.block_on(check_complete(&store.shared.cluster, name))?;
        if let Some(rows) = &store.shared.rows {
            runtime.spawn(rows.sweep_for_ever());
        }
        Ok(store)
    }

    /// Connects to a database that may have a part of its records.
    pub fn connect_to_copy(name: &Name) -> Result<Arc<Self>> {
        let runtime = runtime()?;
        let shared = runtime.block_on(async {
            let cluster = Arc::new(Cluster::connect(name).await?);
            check_replication(&cluster, name, None).await?;
            check(&cluster, name).await?;
            share_value_limit(&cluster, name).await?;
            let records = Arc::new(Records::prepare(&cluster, name).await?);
            let rows = match (name.kind, records.order()) {
                (Kind::Table, Some(order)) => Some(Rows::prepare(&cluster, order, name).await?),
                _ => None,
            };
            let queues = KeyQueues::default();
            let (dead_entries, conflicts, folded) = Default::default();
            let name = name.clone();
            Ok::<_, Error>(Shared {
                cluster,
                records,
                rows,
                queues,
                dead_entries,
                name,
                conflicts,
                folded,
            })
        })?;
        Ok(Arc::new(Self { shared: Arc::new(shared), runtime: Some(runtime) }))
    }

    /// Returns what the cluster does not guarantee and should, a sentence each, for its operator.
    /// Fails if the database cannot be used that way.
    pub fn warnings(&self) -> Result<Vec<String>> {
        self.runtime()?.block_on(warnings(&self.shared.cluster, &self.shared.name))
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
        cluster.check_partitioner().await?;
        check_replication(&cluster, name, Some(replication)).await?;
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

/// Checks that the database is of the kind and mode of its name, in a cluster that can have it.
async fn check(cluster: &Cluster, name: &Name) -> Result<()> {
    cluster.check_partitioner().await?;
    let keyspace = name.keyspace.clone();
    let table = format!("{}.meta", schema::quoted(name));
    let statement = format!("SELECT kind, mode, format, buckets FROM {table} WHERE id = 0");
    let row = cluster.find::<(String, String, i32, i32)>(&statement).await?;
    let Some((kind, mode, format, buckets)) = row else {
        return Err(Error::NotInitialized { keyspace });
    };
    let ids = match kind == Kind::Fixed.name() {
        true => recorded_limits(cluster, name).await?,
        false => None,
    };
    let shown = |kind: &str, mode: &str, format, buckets, ids: Option<IdLimits>| {
        let is_ordered = kind != Kind::Hash.name();
        let buckets = if is_ordered { format!("buckets={buckets}, ") } else { String::new() };
        let limits = ids.map_or(String::new(), |ids| {
            format!("width={}, limsiz={}, ", ids.width(), ids.limit_bytes())
        });
        format!("kind={kind}, mode={mode}, {buckets}{limits}format {format}")
    };
    let found = shown(&kind, &mode, format, buckets, ids);
    let (kind, mode) = (name.kind.name(), name.mode.name());
    let wanted = shown(kind, mode, schema::FORMAT, name.buckets, name.ids);
    if found == wanted { Ok(()) } else { Err(Error::Mismatch { keyspace, found, wanted }) }
}

/// Returns the recorded limits of a fixed-length database.
async fn recorded_limits(cluster: &Cluster, name: &Name) -> Result<Option<IdLimits>> {
    let table = format!("{}.id_limits", schema::quoted(name));
    let statement = format!("SELECT width, limsiz FROM {table} WHERE id = 0");
    let row = cluster.find::<(i64, i64)>(&statement).await?;
    Ok(row.and_then(|(width, limit_bytes)| {
        IdLimits::new(Some(width.cast_unsigned()), Some(limit_bytes.cast_unsigned())).ok()
    }))
}

/// Records the longest value of a name, and takes note of the longest one of all names.
async fn share_value_limit(cluster: &Cluster, name: &Name) -> Result<()> {
    let select = format!("SELECT bytes FROM {}.value_limit WHERE id = 0", schema::quoted(name));
    // Databases of earlier versions have no such table.
    let Some((recorded,)) = cluster.find::<(i64,)>(&select).await? else { return Ok(()) };
    let recorded = usize::try_from(recorded).unwrap_or(usize::MAX);
    if recorded < name.value_bytes_max {
        cluster.define(&schema::raise_value_limit(name)).await?;
    }
    cluster.note_value(recorded);
    Ok(())
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
            ids: self.shared.name.ids,
            has_rows: self.shared.rows.is_some(),
            counts: true,
            clears: true,
            changes_conditionally: self.shared.name.mode == Mode::Strict,
            key_bytes_max: KEY_BYTES_MAX,
            value_bytes_max: self.shared.name.value_bytes_max,
        }
    }

    fn name(&self) -> String {
        let Name { contact_points, keyspace, .. } = &self.shared.name;
        format!("cassandra://{}/{keyspace}", contact_points.join(","))
    }

    fn status(&self) -> StoreStatus {
        StoreStatus {
            conflicts: self.shared.conflicts.load(Ordering::Relaxed),
            folded: self.shared.folded.load(Ordering::Relaxed),
            ..self.shared.cluster.status()
        }
    }

    fn submit(&self, mut request: StoreRequest, completion: Completion) {
        let Some(runtime) = &self.runtime else { return };
        let shared = Arc::clone(&self.shared);
        if let Err(error) = shared.address(&mut request) {
            return completion.complete(Ok(StoreAnswer::Refused(error.into())));
        }
        let deadline = match request.is_long() {
            false => Instant::now() + shared.name.timeout,
            true => Instant::now() + shared.name.timeout * LONG_REQUEST_FACTOR,
        };
        match request {
            StoreRequest::Record(request) if request.needs_key() => {
                let waiting = Waiting { request, reply: Reply::Client(completion), deadline };
                runtime.spawn(async move { shared.change_new(waiting).await });
            }
            StoreRequest::Record(request) if !request.is_read() => {
                let key = request.key().to_vec();
                let waiting = Waiting { request, reply: Reply::Client(completion), deadline };
                if let Some(first) = self.shared.queues.enter(&key, waiting) {
                    runtime.spawn(async move { shared.change_all(&key, first).await });
                }
            }
            StoreRequest::Record(request) => {
                let waiting = Waiting { request, reply: Reply::Client(completion), deadline };
                runtime.spawn(async move {
                    let key = waiting.request.key().to_vec();
                    shared.change(&key, vec![waiting]).await;
                });
            }
            request => {
                let if_late = match request.is_read() {
                    true => StoreFailure::Unavailable,
                    false => StoreFailure::Unknown,
                };
                let mut completion = completion;
                runtime.spawn(async move {
                    let executed = shared.execute(request, deadline, &mut completion);
                    let answer = timeout_at(deadline, executed).await;
                    completion.complete(answer.unwrap_or(Err(if_late)));
                });
            }
        }
    }
}

impl Shared {
    /// Executes a request that changes no single record.
    async fn execute(
        self: Arc<Self>,
        request: StoreRequest,
        deadline: Instant,
        completion: &mut Completion,
    ) -> Answer {
        match request {
            StoreRequest::Record(_) => Err(StoreFailure::Unavailable),
            StoreRequest::Table(request) => match &self.rows {
                Some(rows) => rows.execute(request, completion).await,
                None => Err(StoreFailure::Unavailable),
            },
            StoreRequest::Changes(requests) => self.change_many(requests, deadline).await,
            StoreRequest::GetMany { keys, bytes_max } => {
                let wanted = keys.len();
                let keys = self.stored_keys(keys).await?;
                let records = self.read_all(keys, true, (0, bytes_max), completion).await?;
                Ok(StoreAnswer::Records { is_complete: records.len() == wanted, records })
            }
            StoreRequest::Keys { prefix, begin, max, bytes_max } => {
                let mut listed = Listed::new(max, bytes_max);
                match (self.name.ids, self.records.order()) {
                    (Some(ids), _) => {
                        self.list_ids(ids, &prefix, begin, &mut listed, completion).await?;
                    }
                    (None, None) => {
                        self.list_by_token(&prefix, begin, &mut listed, completion).await?;
                    }
                    (None, Some(order)) => {
                        let end = order::after_prefix(&prefixed(&prefix));
                        let begin = order::first(prefixed(&prefix), &begin);
                        self.walk(order, begin, end, false, &mut listed, completion).await?;
                    }
                }
                Ok(listed.keys())
            }
            StoreRequest::KeysWithin { interval, max, bytes_max } => {
                let mut listed = Listed::new(max, bytes_max);
                self.list_within(&interval, &mut listed, completion).await?;
                Ok(listed.keys())
            }
            StoreRequest::Range { begin, end, max, bytes_max } => {
                let Some(order) = self.records.order() else {
                    return Err(StoreFailure::Unavailable);
                };
                let mut listed = Listed::new(max, bytes_max);
                match self.name.ids {
                    Some(ids) => {
                        self.range_of_ids(ids, &begin, end, &mut listed, completion).await?;
                    }
                    None => {
                        let begin = Bound::Included(prefixed(&begin));
                        let all = || order::after_prefix(&prefixed(b""));
                        let end = end.map_or_else(all, |end| prefixed(&end));
                        self.walk(order, begin, end, true, &mut listed, completion).await?;
                    }
                }
                let Listed { records, is_complete, .. } = listed;
                Ok(StoreAnswer::Range { records, is_complete })
            }
            StoreRequest::Count => {
                let mut count = 0;
                let visit = |scanned: Scanned<'_>| match scanned {
                    Scanned::Key(_) => {
                        count += 1;
                        ControlFlow::Continue(())
                    }
                    Scanned::Page if completion.is_awaited() => ControlFlow::Continue(()),
                    Scanned::Page => ControlFlow::Break(()),
                };
                self.records.scan(&self.cluster, None, None, visit).await.map_err(of_read)?;
                Ok(StoreAnswer::Count(count))
            }
            StoreRequest::Clear => match self.clear().await {
                Ok(()) => Ok(StoreAnswer::Done),
                Err(Failure::NotDone) => Err(StoreFailure::Unavailable),
                Err(_) => Err(StoreFailure::Unknown),
            },
        }
    }

    /// Removes all records. Needs all nodes.
    pub(crate) async fn clear(&self) -> Result<(), Failure> {
        self.records.clear(&self.cluster).await?;
        match &self.rows {
            // Readers skip entries without rows.
            Some(rows) => rows.clear_entries().await.map_err(|_| Failure::GivenUp),
            None => Ok(()),
        }
    }
}
