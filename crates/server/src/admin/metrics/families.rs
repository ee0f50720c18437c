//! Metric families: names, types, labels and meanings of all metrics, each defined once.

/// Type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    /// Returns the name of the type in the exposition formats.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A family of samples that differ in their labels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) labels: &'static [&'static str],
    help: &'static str,
}

impl Family {
    /// Returns the meaning, one sentence without a line end.
    pub(super) fn help(&self) -> &'static str {
        self.help.trim()
    }
}

macro_rules! families {
    ($(
        $(#[doc = $help:literal])+
        $id:ident: $kind:ident $name:literal [$($label:literal),*];
    )+) => {
        /// A metric, by its family.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Metric {
            $( $(#[doc = $help])+ $id, )+
        }

        impl Metric {
            /// All families, in the order in which they are shown.
            pub(super) const ALL: &[Family] = &[$( Family {
                name: $name,
                kind: Kind::$kind,
                labels: &[$($label),*],
                help: concat!($($help),+),
            }, )+];

            /// Returns the family.
            pub(super) fn family(self) -> &'static Family {
                &Self::ALL[self as usize]
            }
        }
    };
}

families! {
    /// Version of the server; the value is 1.
    BuildInfo: Gauge "tyrant_build_info" ["version"];
    /// Time at which the process started, in seconds since 1970.
    ProcessStart: Gauge "process_start_time_seconds" [];
    /// CPU time of the process.
    ProcessCpu: Counter "process_cpu_seconds_total" [];
    /// Resident memory of the process, with the mapped parts of databases.
    ProcessResident: Gauge "process_resident_memory_bytes" [];
    /// Virtual memory of the process.
    ProcessVirtual: Gauge "process_virtual_memory_bytes" [];
    /// Open files of the process.
    ProcessFiles: Gauge "process_open_fds" [];
    /// Limit of the open files.
    ProcessFilesMax: Gauge "process_max_fds" [];

    /// Whether the server is ready for clients, as `/ready` answers.
    Ready: Gauge "tyrant_ready" [];
    /// Whether clients may write: no replica, no refusal by the disk or by missing replicas.
    Writable: Gauge "tyrant_writable" ["database"];

    /// Requests answered, those that were denied included, by protocol and its own name of the
    /// command.
    Requests: Counter "tyrant_requests_total" ["database", "protocol", "command"];
    /// Time from the arrival of a request to its reply, without a wait for its acknowledgement.
    RequestDuration: Histogram "tyrant_request_duration_seconds" ["database", "protocol", "class"];
    /// Entries of the slow log; requests that were executed together are one.
    SlowRequests: Counter "tyrant_slow_requests_total" ["database"];
    /// Slow requests that are not in the log, because it was not written fast enough.
    SlowRequestsLost: Counter "tyrant_slow_lost_total" ["database"];
    /// Gets of one key, by whether there was a record; one that failed counts as a hit.
    Lookups: Counter "tyrant_lookups_total" ["database", "result"];
    /// Requests refused over a limit or without a login, and HTTP that was not understood.
    RequestsRefused: Counter "tyrant_requests_refused_total" ["database"];
    /// Requests that were understood and denied: by the mask, for lack of a right, on a read-only
    /// replica, while replicas or a store are missing, or without space on disk or in memory.
    RequestsDenied: Counter "tyrant_requests_denied_total" ["database", "reason"];
    /// Steps of requests that waited for reads of the disk that their event loop had under way.
    RequestsAwaitingReads: Counter "tyrant_requests_reading_total" ["database"];
    /// Steps of requests that the worker pool executed; a long value takes several.
    RequestsPooled: Counter "tyrant_requests_pooled_total" ["database"];
    /// Time for which replies waited until their changes were durable or replicated.
    AcknowledgementWait: Histogram "tyrant_acknowledgement_wait_seconds" ["database"];
    /// Bytes received from clients.
    ReceivedBytes: Counter "tyrant_received_bytes_total" ["database"];
    /// Bytes sent to clients.
    SentBytes: Counter "tyrant_sent_bytes_total" ["database"];

    /// Open connections of clients.
    Connections: Gauge "tyrant_connections" ["database"];
    /// Limit of the open connections.
    ConnectionsMax: Gauge "tyrant_connections_max" ["database"];
    /// Connections accepted.
    ConnectionsAccepted: Counter "tyrant_connections_accepted_total" ["database"];
    /// Connections closed at once, because the limit was reached.
    ConnectionsRejected: Counter "tyrant_connections_rejected_total" ["database"];
    /// Connections closed because a time limit was over.
    ConnectionsTimedOut: Counter "tyrant_connection_timeouts_total" ["database"];
    /// Share of its time that an event loop was awake, 0 to 1.
    LoopBusy: Gauge "tyrant_loop_busy_ratio" ["database", "loop"];
    /// Handshakes of TLS, by their end.
    TlsHandshakes: Counter "tyrant_tls_handshakes_total" ["database", "result"];
    /// Attempts to log in, one for each HTTP request; refused is one too soon after failures.
    Logins: Counter "tyrant_logins_total" ["database", "result"];

    /// Records. Expired ones count until they are removed.
    Records: Gauge "tyrant_records" ["database"];
    /// Size of the database, on disk or in memory.
    DatabaseBytes: Gauge "tyrant_database_bytes" ["database"];
    /// Limit of the size from which records are evicted; 0 is none.
    DatabaseBytesMax: Gauge "tyrant_database_max_bytes" ["database"];
    /// Records evicted to keep to the limit of the size.
    Evictions: Counter "tyrant_evictions_total" ["database"];
    /// Expired records, by how they were found: by a read, or by the search for them.
    Expirations: Counter "tyrant_expirations_total" ["database", "found_by"];
    /// Records read from the file after a wait for the disk.
    ColdReads: Counter "tyrant_cold_reads_total" ["database"];
    /// Memory in use, by its owner.
    MemoryBytes: Gauge "tyrant_memory_bytes" ["database", "owner"];
    /// Limit of the memory, by its owner.
    MemoryBytesMax: Gauge "tyrant_memory_max_bytes" ["database", "owner"];
    /// Values that are being received into files.
    SpoolBytes: Gauge "tyrant_spool_bytes" ["database"];

    /// Size of the segments of the log.
    LogBytes: Gauge "tyrant_log_bytes" ["database"];
    /// Part of them that compaction can give back.
    LogDeadBytes: Gauge "tyrant_log_dead_bytes" ["database"];
    /// Segments of the log.
    LogSegments: Gauge "tyrant_log_segments" ["database"];
    /// Syncs that made the log durable.
    Syncs: Counter "tyrant_syncs_total" ["database"];
    /// Time of these syncs.
    SyncSeconds: Counter "tyrant_sync_seconds_total" ["database"];
    /// Checkpoints of the index written.
    Checkpoints: Counter "tyrant_checkpoints_total" ["database"];
    /// Time of these checkpoints.
    CheckpointSeconds: Counter "tyrant_checkpoint_seconds_total" ["database"];
    /// Segments compacted.
    Compactions: Counter "tyrant_compactions_total" ["database"];
    /// Time of these compactions.
    CompactionSeconds: Counter "tyrant_compaction_seconds_total" ["database"];
    /// Size of the compacted segments.
    CompactedBytes: Counter "tyrant_compacted_bytes_total" ["database"];
    /// Bytes of records that compaction has moved.
    MovedBytes: Counter "tyrant_moved_bytes_total" ["database"];

    /// Warnings, as `/ready` lists them.
    Warnings: Gauge "tyrant_warnings" ["database"];
    /// Free space of the disk of these files: database or update_log.
    DiskFreeBytes: Gauge "tyrant_disk_free_bytes" ["database", "files"];
    /// Size of that disk, without space that is reserved for root.
    DiskBytes: Gauge "tyrant_disk_bytes" ["database", "files"];
    /// End of the first certificate that ends, in seconds since 1970.
    CertificateEnd: Gauge "tyrant_certificate_end_seconds" ["database"];

    /// Damaged places that the last opening found, or an earlier one has set aside.
    Damages: Gauge "tyrant_damages" ["database"];
    /// Segments with damage.
    DamagedSegments: Gauge "tyrant_damaged_segments" ["database"];
    /// Reads that met a damaged record.
    DamagedReads: Counter "tyrant_damaged_reads_total" ["database"];
    /// Damaged pages of an index on the disk that were not made again yet.
    IndexDamagedPages: Gauge "tyrant_index_damaged_pages" ["database"];
    /// Damaged pages of an index on the disk that were made again from the log.
    IndexMendedPages: Counter "tyrant_mended_pages_total" ["database"];
    /// Records of such pages that are lost because the log is damaged, too.
    IndexLostRecords: Counter "tyrant_lost_records_total" ["database"];
    /// Verifications of all checksums begun.
    Scrubs: Counter "tyrant_scrubs_total" ["database"];
    /// Damaged places that the present or the last verification found.
    ScrubDamages: Gauge "tyrant_scrub_damages" ["database"];

    /// Connected replicas.
    Replicas: Gauge "tyrant_replicas" ["database"];
    /// Replicas that were connected since the start and are not.
    ReplicasDisconnected: Gauge "tyrant_replicas_disconnected" ["database"];
    /// Operations that a connected replica has not acknowledged.
    ReplicaLagOperations: Gauge "tyrant_replica_lag_operations" ["database", "replica"];
    /// Length of the log entries that a connected replica has not acknowledged.
    ReplicaLagBytes: Gauge "tyrant_replica_lag_bytes" ["database", "replica"];
    /// Time since a connected replica had everything.
    ReplicaLagSeconds: Gauge "tyrant_replica_lag_seconds" ["database", "replica"];
    /// Whether the server follows its master (1), or is connecting to it or seeding itself (0).
    Following: Gauge "tyrant_replication_following" ["database", "master"];
    /// Operations of its master that the server has not executed.
    LagOperations: Gauge "tyrant_replication_lag_operations" ["database", "master"];
    /// Time since the server had everything from its master.
    LagSeconds: Gauge "tyrant_replication_lag_seconds" ["database", "master"];

    /// Requests that wait for an answer of a store outside of this process.
    StoreRequests: Gauge "tyrant_store_requests" ["database"];
    /// Nodes of that store, by whether there is a connection.
    StoreNodes: Gauge "tyrant_store_nodes" ["database", "state"];
    /// Statements for that store: executed, failed and refused, or failed with an unknown outcome.
    StoreStatements: Counter "tyrant_store_statements_total" ["database", "result"];
    /// Changes in that store that another change came before, so that they were decided again.
    StoreConflicts: Counter "tyrant_store_conflicts_total" ["database"];
    /// Changes in that store that were made in one step with another change of the record.
    StoreFolded: Counter "tyrant_store_folded_total" ["database"];

    /// Threads that call functions of the script.
    ScriptThreads: Gauge "tyrant_script_threads" ["database"];
    /// Threads that are calling one, and calls that have left an event loop.
    ScriptThreadsBusy: Gauge "tyrant_script_threads_busy" ["database"];
    /// Calls that wait for a thread.
    ScriptQueue: Gauge "tyrant_script_queue" ["database"];
    /// Memory that the states of the script and the stash share, in use or reserved.
    ScriptMemory: Gauge "tyrant_script_memory_bytes" ["database"];
    /// Most of that memory: `script-memory-total`.
    ScriptMemoryTotal: Gauge "tyrant_script_limit_bytes" ["database"];
    /// Calls of a function of the script.
    ScriptCalls: Counter "tyrant_script_calls_total" ["database", "function"];
    /// Calls that failed.
    ScriptFailures: Counter "tyrant_script_failures_total" ["database", "function"];
    /// Time of the calls.
    ScriptSeconds: Counter "tyrant_script_seconds_total" ["database", "function"];
}
