//! Errors of connecting to a cluster and of its schema.

use crate::name::NameError;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why a database in a cluster cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name of the database is wrong.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A file with a password or a certificate cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// Path of the file.
        path: String,
        /// Error of the system.
        source: std::io::Error,
    },
    /// Certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::Error),
    /// The threads of the driver cannot be started.
    #[error("cannot start the threads of the driver: {0}")]
    Threads(std::io::Error),
    /// No contact point leads to the cluster.
    #[error("cannot connect to {contact_points}: {reason}")]
    Connect {
        /// Contact points of the name.
        contact_points: String,
        /// Reason that the driver gives.
        reason: String,
        /// No node has answered, which may be over soon.
        is_away: bool,
    },
    /// No node is in the data centre of the name.
    #[error("no node is in data centre {wanted}: the nodes are in {known}")]
    DataCentre {
        /// Data centre of the name.
        wanted: String,
        /// Data centres of the nodes.
        known: String,
    },
    /// The cluster spreads keys over its nodes in a way in which they cannot be listed.
    #[error(
        "the partitioner of the cluster is {found}: databases need {wanted}, since they are listed \
         and copied in the order of its tokens"
    )]
    Partitioner {
        /// Partitioner of the cluster.
        found: String,
        /// The one that is needed.
        wanted: &'static str,
    },
    /// The nodes cannot have enough replicas of a record for any statement.
    #[error(
        "the replication factor of keyspace {keyspace} is {wanted}, and the number of nodes that can \
         have a replica is {possible}: a majority, {majority}, has to answer; {advice}"
    )]
    Replication {
        /// The keyspace.
        keyspace: String,
        /// Number of replicas of each record.
        wanted: usize,
        /// Number that the present nodes can have.
        possible: usize,
        /// Number that a statement needs.
        majority: usize,
        /// Advice for the operator.
        advice: String,
    },
    /// The nodes execute transactions in a way in which strict mode cannot rely on serial reads.
    #[error(
        "paxos_variant of {nodes} is one without linearizable reads, and in strict mode one `incr` \
         may count twice: set paxos_variant: v2 in cassandra.yaml, or use mode=plain"
    )]
    PaxosVariant {
        /// The nodes.
        nodes: String,
    },
    /// A statement of the schema has failed.
    #[error("the cluster has not executed {statement:?}: {reason}")]
    Statement {
        /// The statement.
        statement: String,
        /// Reason that the driver gives.
        reason: String,
    },
    /// The keyspace has no database.
    #[error("keyspace {keyspace} has no database: make it with `tyrant cluster init`")]
    NotInitialized {
        /// The keyspace.
        keyspace: String,
    },
    /// The database is of another kind, mode or format.
    #[error("keyspace {keyspace} has a database with {found}, and not with {wanted}")]
    Mismatch {
        /// The keyspace.
        keyspace: String,
        /// Kind, mode and format of the database.
        found: String,
        /// Kind, mode and format of the name.
        wanted: String,
    },
    /// A copy into the database has not ended.
    #[error(
        "keyspace {keyspace} has a part of the records of {source_name}: let `tyrant cluster \
         migrate` go on first"
    )]
    Incomplete {
        /// The keyspace.
        keyspace: String,
        /// Name of the database that is copied.
        source_name: String,
    },
    /// The cluster has executed no attempt of a copy for so long.
    #[error("the cluster is away: no attempt was successful for {seconds} s")]
    Away {
        /// The time, in seconds.
        seconds: u64,
    },
    /// A record cannot be in the cluster.
    #[error("the {what} of record {key:?} has {length} bytes, and may have {max}")]
    TooLong {
        /// `key` or `value`.
        what: &'static str,
        /// The key.
        key: String,
        /// Length, in bytes.
        length: usize,
        /// Longest length, in bytes.
        max: usize,
    },
    /// An index cannot be in the cluster.
    #[error("the {kind} index of column {column:?} cannot be in the cluster: {reason}")]
    Index {
        /// The column.
        column: String,
        /// Kind of the index.
        kind: &'static str,
        /// Reason.
        reason: String,
    },
    /// The cluster would run out of identifiers for rows.
    #[error("identifier {last} was given out, and in a cluster the last one may be {max}")]
    Identifier {
        /// The identifier.
        last: u64,
        /// Greatest one that a copied table may have given out.
        max: u64,
    },
    /// A record cannot be in a database of this kind.
    #[error("a record cannot be copied: {reason}")]
    Record {
        /// The reason.
        reason: String,
    },
    /// A newer version has recorded the state of a copy.
    #[error("the state of the last copy is {stage:?}, which this version does not know")]
    UnknownStage {
        /// The state.
        stage: String,
    },
}
