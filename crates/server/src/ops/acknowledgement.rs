//! Acknowledgement: the point that a reply waits for, and the reasons of a refusal.

use cabinet::LogPosition;

/// Progress of database and replicas that a reply waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AcknowledgementPoint {
    /// Log position up to which the database must be durable, or 0 if clients do not wait for that.
    pub(crate) durable: LogPosition,
    /// Time stamp up to which replicas must have every change, in microseconds since 1970, or 0 if
    /// clients do not wait for that.
    pub(crate) confirmed_us: u64,
}

/// Reason why a request that was carried out, or may have been, gets an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalReason {
    /// Too few replicas have confirmed it in time.
    Unconfirmed,
    /// The disk of the update log is full.
    LogFull,
    /// The update log cannot be written for another reason, which the server's own log gives.
    LogFailed,
    /// The store outside of this process has carried out nothing.
    Unavailable,
    /// The store outside of this process may have carried out the request.
    Unknown,
    /// Too many requests, or too many bytes of requests, wait for that store.
    TooMany,
}
