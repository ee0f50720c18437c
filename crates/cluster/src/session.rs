//! Session of the driver: its settings, the bound of statements in flight, and what a failure says.

use crate::error::{Error, Result};
use crate::name::{Mode, Name};
use parking_lot::Mutex;
use scylla::client::execution_profile::{ExecutionProfile, ExecutionProfileHandle};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::deserialize::row::DeserializeRow;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::policies::load_balancing::{
    DefaultPolicy, NodeIdentifier, SingleTargetLoadBalancingPolicy,
};
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::policies::speculative_execution::SimpleSpeculativeExecutionPolicy;
use scylla::policies::timestamp_generator::MonotonicTimestampGenerator;
use scylla::response::query_result::QueryResult;
use scylla::response::{PagingState, PagingStateResponse};
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::unprepared::Statement;
use scylla::statement::{Consistency, SerialConsistency};
use server::{LONG_REQUEST_FACTOR, StoreStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

/// Partitioner whose tokens are those of [`crate::token_ranges`].
const PARTITIONER: &str = "Murmur3Partitioner";

/// Rows of a page of a scan, unless its statement says otherwise.
const PAGE_ROWS: i32 = 1000;

/// Pages of scans that are read at once. They wait for each other, and not for places among the
/// other statements, which would wait for them.
const SCANS_AT_ONCE: usize = 16;

/// Bytes that statements under way may return together, in KiB. Each takes as many as its longest
/// answer has, since lengths are known once the answer is there. The driver has it twice for a
/// moment.
const READS_KIB: u32 = 256 << 10;

/// The same for parts of lists, in KiB. Lists wait for each other only, and reads of records do not
/// wait for them.
const PARTS_KIB: u32 = 128 << 10;

/// Shortest time between two warnings of reads that nodes have ended.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Failure of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It was not executed, and will not be.
    NotDone,
    /// The last attempt was refused; nothing is known of those before.
    Refused,
    /// A node has executed it in part, and has given up.
    GivenUp,
    /// A node may be executing it still.
    Lost,
}

/// Failure of a page of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageFailure {
    pub(crate) failure: Failure,
    /// A node has ended the read, mostly since it met too many removed or expired cells.
    pub(crate) is_ended_read: bool,
}

/// Session with a cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    session: Session,
    in_flight: Semaphore,
    /// Memory for answers, [`READS_KIB`].
    reads: Semaphore,
    /// Memory for parts of lists, [`PARTS_KIB`].
    parts: Semaphore,
    scans: Semaphore,
    /// Profile of scans: a page takes long, so that another node would mostly be asked for it too.
    without_speculation: ExecutionProfileHandle,
    warned: Mutex<Option<Instant>>,
    /// Longest value that any server may have put, in bytes, as far as this one knows.
    value_bytes_max: AtomicUsize,
    /// Longest time of a statement, and longest wait for a place among those in flight.
    statement_timeout: Duration,
    /// Longest time of a statement on a whole table.
    long_timeout: Duration,
    executed: AtomicU64,
    refused: AtomicU64,
    unknown: AtomicU64,
}

impl Cluster {
    /// Connects to a cluster.
    pub(crate) async fn connect(name: &Name) -> Result<Self> {
        let statement_timeout = name.timeout / 2;
        // Nodes of other data centres are asked if none of the preferred one answers.
        let nodes = DefaultPolicy::builder().permit_dc_failover(true).build();
        let mut profile = ExecutionProfile::builder()
            .load_balancing_policy(nodes)
            .consistency(Consistency::Quorum)
            .serial_consistency(Some(SerialConsistency::Serial))
            // Half of the time of a request is left to find out what a lost write has done.
            .request_timeout(Some(statement_timeout));
        let without_speculation = profile.clone().build().into_handle();
        if let Some(after) = name.speculative_after {
            let policy =
                SimpleSpeculativeExecutionPolicy { max_retry_count: 1, retry_interval: after };
            profile = profile.speculative_execution_policy(Some(Arc::new(policy)));
        }
        let mut builder = SessionBuilder::new()
            .known_nodes(&name.contact_points)
            .connection_timeout(name.timeout)
            // The driver needs the replication of the keyspace to send statements to replicas.
            .keyspaces_to_fetch([&name.keyspace])
            .fetch_full_schema_metadata(false)
            .default_execution_profile_handle(profile.build().into_handle());
        if let Some(data_centre) = &name.data_centre {
            builder = builder.prefer_datacenter(data_centre.clone());
        }
        if let Some((user, file)) = &name.login {
            if name.tls.is_none() {
                tracing::warn!(
                    "the password of user {user} is sent to the nodes without TLS: give ca in the name"
                );
            }
            let password = std::fs::read_to_string(file)
                .map_err(|source| Error::File { path: file.display().to_string(), source })?;
            builder = builder.user(user, password.trim_end_matches(['\r', '\n']));
        }
        if let Some(tls) = &name.tls {
            builder = builder.tls_context(Some(tls.read()?.shared()));
        }
        if name.mode == Mode::Plain {
            // Clocks of nodes differ: with theirs, an older write could win.
            builder = builder.timestamp_generator(Arc::new(MonotonicTimestampGenerator::new()));
        }
        let session = builder.build().await.map_err(|error| {
            let (reason, is_away) = with_advice(name, &error.to_string());
            Error::Connect { contact_points: name.contact_points.join(", "), reason, is_away }
        })?;
        if let Some(wanted) = &name.data_centre {
            check_data_centre(&session, wanted)?;
        }
        let in_flight = Semaphore::new(name.in_flight_max);
        let (executed, refused, unknown) = <(AtomicU64, AtomicU64, AtomicU64)>::default();
        let long_timeout = name.timeout * LONG_REQUEST_FACTOR;
        Ok(Self {
            session,
            in_flight,
            reads: Semaphore::new(READS_KIB as usize),
            parts: Semaphore::new(PARTS_KIB as usize),
            scans: Semaphore::new(SCANS_AT_ONCE),
            without_speculation,
            warned: Mutex::default(),
            value_bytes_max: AtomicUsize::new(name.value_bytes_max),
            statement_timeout,
            long_timeout,
            executed,
            refused,
            unknown,
        })
    }

    /// Returns the state of the connections, and the counts of statements.
    pub(crate) fn status(&self) -> StoreStatus {
        let state = self.session.get_cluster_state();
        let all = state.get_nodes_info();
        let nodes = all.len();
        let nodes_connected = all.iter().filter(|node| node.is_connected()).count();
        let is_ready = nodes_connected * 2 > nodes;
        let unready = || format!("of {nodes} nodes of the cluster {nodes_connected} are connected");
        StoreStatus {
            unready: (!is_ready).then(unready),
            nodes,
            nodes_connected,
            statements: self.executed.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            unknown: self.unknown.load(Ordering::Relaxed),
            ..StoreStatus::default()
        }
    }

    /// Counts a statement.
    fn count<T>(&self, may_repeat: bool, result: Result<T, ExecutionError>) -> Result<T, Failure> {
        let result = result.map_err(|error| {
            if is_ended_read(&error) {
                self.warn(&error);
            }
            failure(&error, may_repeat)
        });
        let counter = match result {
            Ok(_) => &self.executed,
            Err(Failure::NotDone | Failure::Refused) => &self.refused,
            Err(Failure::GivenUp | Failure::Lost) => &self.unknown,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        result
    }

    /// Logs a read that nodes have ended, which is a matter for the administrator of the cluster.
    fn warn(&self, error: &ExecutionError) {
        let mut warned = self.warned.lock();
        if warned.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
            *warned = Some(Instant::now());
            tracing::warn!("the nodes have ended a read, see \"Operating Cassandra\": {error}");
        }
    }

    /// Returns the only row of a statement, or `None` if there is no row or no such table.
    pub(crate) async fn find<R>(&self, statement: &str) -> Result<Option<R>>
    where
        R: for<'frame> DeserializeRow<'frame, 'frame>,
    {
        let rows = match self.session.query_unpaged(statement, ()).await {
            Ok(result) => result.into_rows_result().ok(),
            Err(ExecutionError::LastAttemptError(RequestAttemptError::DbError(
                DbError::Invalid,
                _,
            ))) => None,
            Err(error) => return Err(failed(statement, &error)),
        };
        Ok(rows.and_then(|rows| rows.maybe_first_row().ok().flatten()))
    }

    /// Returns the rows of a statement as each node gives them that is connected, with its address,
    /// or why it gives none.
    pub(crate) async fn ask_each_node<R>(
        &self,
        statement: &str,
    ) -> Vec<(String, Result<Vec<R>, String>)>
    where
        R: for<'frame> DeserializeRow<'frame, 'frame>,
    {
        let state = self.session.get_cluster_state();
        let mut answers = Vec::new();
        for node in state.get_nodes_info().iter().filter(|node| node.is_connected()) {
            let mut statement = Statement::new(statement);
            statement.set_consistency(Consistency::One);
            let target = NodeIdentifier::Node(Arc::clone(node));
            let only = SingleTargetLoadBalancingPolicy::new(target, None);
            statement.set_load_balancing_policy(Some(only));
            let answer = self.session.query_unpaged(statement, ()).await;
            answers.push((node.address.ip().to_string(), rows(answer)));
        }
        answers
    }

    /// Returns the number of nodes in each data centre.
    pub(crate) fn nodes_of_data_centres(&self) -> BTreeMap<String, usize> {
        let state = self.session.get_cluster_state();
        let mut numbers = BTreeMap::new();
        for centre in state.get_nodes_info().iter().filter_map(|node| node.datacenter.clone()) {
            *numbers.entry(centre).or_default() += 1;
        }
        numbers
    }

    /// Checks that tokens are those by which databases are listed.
    pub(crate) async fn check_partitioner(&self) -> Result<()> {
        let found = self.find::<(String,)>("SELECT partitioner FROM system.local").await?;
        check_partitioner(found.map_or_else(String::new, |(partitioner,)| partitioner))
    }

    /// Executes a statement of the schema, which all nodes have to agree on.
    pub(crate) async fn define(&self, statement: &str) -> Result<()> {
        let mut change = Statement::new(statement);
        change.set_request_timeout(Some(self.long_timeout));
        let result = self.session.query_unpaged(change, ()).await;
        result.map(drop).map_err(|error| failed(statement, &error))
    }

    /// Prepares a statement that may be executed twice.
    pub(crate) async fn prepare(&self, statement: &str) -> Result<PreparedStatement> {
        let prepared = self.session.prepare(statement).await;
        let mut prepared = prepared.map_err(|error| failed(statement, &error))?;
        prepared.set_is_idempotent(true);
        prepared.set_page_size(PAGE_ROWS);
        Ok(prepared)
    }

    /// Prepares a statement that is sent once, since a second execution could do harm.
    pub(crate) async fn prepare_once(&self, statement: &str) -> Result<PreparedStatement> {
        let mut prepared = self.prepare(statement).await?;
        prepared.set_is_idempotent(false);
        prepared.set_retry_policy(Some(Arc::new(FallthroughRetryPolicy::new())));
        Ok(prepared)
    }

    /// Prepares a statement that reads all rows of a table, in pages.
    pub(crate) async fn prepare_scan(&self, statement: &str) -> Result<PreparedStatement> {
        let mut prepared = self.prepare(statement).await?;
        prepared.set_request_timeout(Some(self.long_timeout));
        prepared.set_execution_profile_handle(Some(self.without_speculation.clone()));
        Ok(prepared)
    }

    /// Prepares a statement that removes all rows of a table, which is sent once.
    pub(crate) async fn prepare_truncate(&self, table: &str) -> Result<PreparedStatement> {
        let mut prepared = self.prepare_once(&format!("TRUNCATE {table}")).await?;
        prepared.set_request_timeout(Some(self.long_timeout));
        Ok(prepared)
    }

    /// Executes a statement once there is room for it.
    pub(crate) async fn execute(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<QueryResult, Failure> {
        let until = Instant::now() + self.statement_timeout;
        self.execute_until(until, statement, values).await
    }

    /// Executes a statement once there is room for it. It is not begun later than `until`.
    pub(crate) async fn execute_until(
        &self,
        until: Instant,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<QueryResult, Failure> {
        let _place = self.place(&self.in_flight, 1, until).await?;
        self.count(
            statement.get_is_idempotent(),
            self.session.execute_unpaged(statement, values).await,
        )
    }

    /// Takes note of the length of a value in bytes. Other servers may put longer ones than this.
    pub(crate) fn note_value(&self, bytes: usize) {
        if bytes > self.value_bytes_max.load(Ordering::Relaxed) {
            self.value_bytes_max.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// Executes a statement that returns a value, once there is room for it, for the longest value
    /// and for this many bytes beside that.
    pub(crate) async fn read(
        &self,
        bytes_beside: usize,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<QueryResult, Failure> {
        let until = Instant::now() + self.statement_timeout;
        let value_bytes = self.value_bytes_max.load(Ordering::Relaxed);
        let kib = kib(value_bytes.saturating_add(bytes_beside), READS_KIB);
        let _room = self.place(&self.reads, kib, until).await?;
        self.execute_until(until, statement, values).await
    }

    /// The same for a part of a list, whose request has a longer time. It waits for room so long.
    pub(crate) async fn read_part(
        &self,
        bytes_max: usize,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<QueryResult, Failure> {
        let until = Instant::now() + self.long_timeout;
        let _room = self.place(&self.parts, kib(bytes_max, PARTS_KIB), until).await?;
        self.execute(statement, values).await
    }

    /// Waits for places of a kind, and counts a statement that gets none.
    async fn place<'s>(
        &self,
        places: &'s Semaphore,
        count: u32,
        until: Instant,
    ) -> Result<SemaphorePermit<'s>, Failure> {
        place(places, count, until).await.inspect_err(|_| {
            self.refused.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// Executes a statement that may be executed twice with each of some values, all of which are
    /// in one partition.
    pub(crate) async fn execute_together(
        &self,
        statement: &PreparedStatement,
        values: &[impl SerializeRow],
    ) -> Result<(), Failure> {
        let until = Instant::now() + self.statement_timeout;
        let _place = self.place(&self.in_flight, 1, until).await?;
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.set_is_idempotent(true);
        for _ in values {
            batch.append_statement(statement.clone());
        }
        self.count(true, self.session.batch(&batch, values).await).map(drop)
    }

    /// Reads one page of a scan.
    pub(crate) async fn try_page(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
        from: PagingState,
    ) -> Result<(QueryResult, PagingStateResponse), PageFailure> {
        let _place = self.scans.acquire().await;
        let page = self.session.execute_single_page(statement, values, from).await;
        let is_ended_read = page.as_ref().is_err_and(is_ended_read);
        self.count(statement.get_is_idempotent(), page)
            .map_err(|failure| PageFailure { failure, is_ended_read })
    }
}

#[cfg(test)]
impl Cluster {
    /// Takes all memory for answers that are no parts of lists.
    pub(crate) async fn hold_reads(&self) -> SemaphorePermit<'_> {
        self.reads.acquire_many(READS_KIB).await.unwrap()
    }

    /// Returns the longest value that is known of, in bytes.
    pub(crate) fn value_bytes_max(&self) -> usize {
        self.value_bytes_max.load(Ordering::Relaxed)
    }

    /// Takes all memory for parts of lists.
    pub(crate) async fn hold_parts(&self) -> SemaphorePermit<'_> {
        self.parts.acquire_many(PARTS_KIB).await.unwrap()
    }

    /// Executes a statement whose work is traced, and returns those of the steps of the nodes in
    /// which a word is. There is one at least.
    pub(crate) async fn trace(&self, statement: &PreparedStatement, word: &str) -> Vec<String> {
        let result = self.session.execute_unpaged(statement, ()).await.unwrap();
        let id = result.tracing_id().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        // The nodes write the steps after the answer.
        loop {
            let trace = self.session.get_tracing_info(&id).await;
            let events = trace.map(|trace| trace.events).unwrap_or_default();
            let steps = events.into_iter().filter_map(|event| event.activity);
            let found: Vec<String> = steps.filter(|step| step.contains(word)).collect();
            if !found.is_empty() {
                return found;
            }
            assert!(Instant::now() < until, "no step with {word}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Words of the driver before the cause of a connection that failed.
const LAST_CAUSE: &str = "Last connection failed with: ";

/// Words of the driver before advice to those who program with it.
const ADVICE_TO_PROGRAMMERS: &str = ". You can use SessionBuilder";

/// Adds advice to the reason why there is no connection, and tells whether no node has answered. A
/// node that requires TLS, or another certificate, mostly ends the connection without a reason.
fn with_advice(name: &Name, reason: &str) -> (String, bool) {
    let identity = name.tls.as_ref().map(|tls| tls.identity.is_some());
    let has = |text: &str| reason.to_lowercase().contains(text);
    let (advice, is_away) = match identity {
        _ if has("authentication is required") => ("give user and password in the name", false),
        _ if has("connection refused") => (
            "no node listens there: check that Cassandra runs, and that the name has its hosts and \
             the port of native_transport_port",
            true,
        ),
        _ if has("failed to lookup") || has("resolve") => ("check the names of the hosts", true),
        Some(_) if has("corrupt message") => (
            "the nodes do not speak TLS at this port: leave ca out, or let them have \
             client_encryption_options",
            false,
        ),
        _ if has("timeout") || has("timed out") || has("unreachable") => {
            ("no node answers: check the hosts, the port and the firewalls between", true)
        }
        _ if !has("connection broken") => {
            ("check the hosts and the options in the name, and the logs of the nodes", false)
        }
        None => ("nodes that require TLS need ca in the name", false),
        Some(false) => (
            "nodes that require a certificate of their clients need cert and key in the name",
            false,
        ),
        Some(true) => ("the nodes may not accept the certificate of cert", false),
    };
    // The driver puts what it was doing before the cause.
    let cause = reason.rsplit_once(LAST_CAUSE).map_or(reason, |(_, cause)| cause);
    let cause = cause.split_once(ADVICE_TO_PROGRAMMERS).map_or(cause, |(cause, _)| cause);
    (format!("{cause}; {advice}"), is_away)
}

/// Checks that a data centre has nodes. Without, all would be used as if none was preferred.
fn check_data_centre(session: &Session, wanted: &str) -> Result<()> {
    let state = session.get_cluster_state();
    let nodes = state.get_nodes_info().iter();
    let known: BTreeSet<&str> = nodes.filter_map(|node| node.datacenter.as_deref()).collect();
    if known.contains(wanted) {
        return Ok(());
    }
    let known = known.into_iter().collect::<Vec<_>>().join(", ");
    Err(Error::DataCentre { wanted: wanted.to_owned(), known })
}

/// Checks that keys have 64-bit tokens of the Murmur3 hash.
fn check_partitioner(found: String) -> Result<()> {
    // Nodes give the whole name of the class.
    match found.rsplit('.').next() == Some(PARTITIONER) {
        true => Ok(()),
        false => Err(Error::Partitioner { found, wanted: PARTITIONER }),
    }
}

/// Waits for places among the statements in flight.
async fn place(
    in_flight: &Semaphore,
    count: u32,
    until: Instant,
) -> Result<SemaphorePermit<'_>, Failure> {
    match timeout_at(until, in_flight.acquire_many(count)).await {
        Ok(Ok(place)) if Instant::now() < until => Ok(place),
        _ => Err(Failure::NotDone),
    }
}

/// Returns the number of KiB that an answer takes, at most all of them.
fn kib(bytes: usize, max: u32) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(max).min(max)
}

fn failed(statement: &str, error: &dyn std::fmt::Display) -> Error {
    Error::Statement { statement: statement.to_owned(), reason: error.to_string() }
}

/// Returns all rows of an answer, or the reason why there are none.
fn rows<R>(answer: Result<QueryResult, ExecutionError>) -> Result<Vec<R>, String>
where
    R: for<'frame> DeserializeRow<'frame, 'frame>,
{
    let result = answer.map_err(|error| error.to_string())?;
    let rows = result.into_rows_result().map_err(|error| error.to_string())?;
    let rows = rows.rows::<R>().map_err(|error| error.to_string())?;
    rows.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// Returns whether nodes have ended a read.
fn is_ended_read(error: &ExecutionError) -> bool {
    matches!(
        error,
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(
            DbError::ReadFailure { .. },
            _
        ))
    )
}

/// Returns what is known of a statement that has failed. One that may repeat is sent again after
/// some failures, and to a second node while the first one is slow; its error is that of the last
/// attempt.
fn failure(error: &ExecutionError, may_repeat: bool) -> Failure {
    tracing::debug!("the cluster has not executed a statement: {error}");
    let refused = if may_repeat { Failure::Refused } else { Failure::NotDone };
    match error {
        // No node was asked.
        ExecutionError::BadQuery(_) | ExecutionError::EmptyPlan => Failure::NotDone,
        ExecutionError::PrepareError(_) | ExecutionError::ConnectionPoolError(_) => refused,
        ExecutionError::LastAttemptError(error) => match error {
            RequestAttemptError::SerializationError(_)
            | RequestAttemptError::CqlRequestSerialization(_)
            | RequestAttemptError::UnableToAllocStreamId => refused,
            RequestAttemptError::DbError(error, _) => match error {
                // A transaction begins at `SERIAL` and commits at `QUORUM`: its change may have
                // been accepted before.
                DbError::Unavailable { consistency: Consistency::Quorum, .. } if !may_repeat => {
                    Failure::GivenUp
                }
                DbError::SyntaxError
                | DbError::Invalid
                | DbError::Unauthorized
                | DbError::AuthenticationError
                | DbError::ConfigError
                | DbError::Unavailable { .. }
                | DbError::IsBootstrapping
                | DbError::ProtocolError
                | DbError::Unprepared { .. } => refused,
                // `Other` are the codes for transactions of later versions of the protocol.
                _ => Failure::GivenUp,
            },
            _ => Failure::Lost,
        },
        _ => Failure::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_a_node_ends_has_advice_by_what_the_name_lacks() {
        for (options, reason, advice, expected) in [
            ("", "Connection broken", "need ca", false),
            ("#ca=/a", "Connection broken", "need cert and key", false),
            ("#ca=/a#cert=/c#key=/k", "Connection broken", "may not accept the certificate", false),
            ("#ca=/a", "received corrupt message", "do not speak TLS", false),
            ("", "Authentication is required", "give user and password", false),
            ("", "Connection refused (os error 111)", "no node listens there", true),
            ("", "failed to lookup address information", "check the names", true),
            ("", "Connect timeout elapsed", "no node answers", true),
            ("", "Network is unreachable", "no node answers", true),
            ("", "refused", "check the hosts", false),
        ] {
            let name = Name::parse(&format!("cassandra://a/k{options}")).unwrap();
            for before in ["", "Control connection pool error: Last connection failed with: "] {
                let (text, is_away) = with_advice(&name, &format!("{before}{reason}"));
                assert!(text.contains(advice) && text.starts_with(reason), "{text}");
                assert_eq!(is_away, expected, "{text}");
            }
        }
        let name = Name::parse("cassandra://a/k").unwrap();
        let (text, _) = with_advice(
            &name,
            "reason: Authentication is required. You can use SessionBuilder::user(\"user\")",
        );
        assert_eq!(text, "reason: Authentication is required; give user and password in the name");
    }

    #[test]
    fn a_cluster_with_other_tokens_is_refused() {
        assert!(check_partitioner("org.apache.cassandra.dht.Murmur3Partitioner".into()).is_ok());
        for other in ["org.apache.cassandra.dht.RandomPartitioner", "NotMurmur3Partitioner", ""] {
            let error = check_partitioner(other.into()).unwrap_err().to_string();
            let expected = format!("is {other}: databases need Murmur3Partitioner");
            assert!(error.contains(&expected), "{error}");
        }
    }

    #[test]
    fn a_statement_that_waits_too_long_for_its_place_is_not_begun() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let in_flight = Semaphore::new(1);
            let later = Instant::now() + Duration::from_secs(3600);
            let held = place(&in_flight, 1, later).await.unwrap();
            assert_eq!(place(&in_flight, 1, Instant::now()).await.unwrap_err(), Failure::NotDone);
            drop(held);
            assert_eq!(place(&in_flight, 1, Instant::now()).await.unwrap_err(), Failure::NotDone);
            assert!(place(&in_flight, 1, later).await.is_ok());
        });
    }

    #[test]
    fn nothing_was_done_only_if_no_attempt_can_have_been_executed() {
        let attempt = |error| ExecutionError::LastAttemptError(error);
        let answer = |error| attempt(RequestAttemptError::DbError(error, String::new()));
        let unavailable =
            |consistency| answer(DbError::Unavailable { consistency, required: 2, alive: 1 });
        for (error, once, repeated) in [
            (ExecutionError::EmptyPlan, Failure::NotDone, Failure::NotDone),
            (answer(DbError::Invalid), Failure::NotDone, Failure::Refused),
            (unavailable(Consistency::Serial), Failure::NotDone, Failure::Refused),
            (unavailable(Consistency::All), Failure::NotDone, Failure::Refused),
            (unavailable(Consistency::Quorum), Failure::GivenUp, Failure::Refused),
            (answer(DbError::TruncateError), Failure::GivenUp, Failure::GivenUp),
            (answer(DbError::ServerError), Failure::GivenUp, Failure::GivenUp),
            (
                attempt(RequestAttemptError::UnableToAllocStreamId),
                Failure::NotDone,
                Failure::Refused,
            ),
            (ExecutionError::RequestTimeout(Duration::from_secs(1)), Failure::Lost, Failure::Lost),
        ] {
            assert_eq!(failure(&error, false), once, "{error}");
            assert_eq!(failure(&error, true), repeated, "{error}");
        }
    }
}
