//! Pending replies: replies that wait until the changes they acknowledge are durable or replicated.

use crate::ops::acknowledgement::AcknowledgementPoint;
use crate::protocol::refusal::Refusal;
use std::time::Instant;

/// State of a connection whose replies wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingReply {
    pub(crate) point: AcknowledgementPoint,
    /// Time at which the first of them began to wait.
    pub(crate) since: Instant,
    pub(crate) acknowledgement: FirstAcknowledgement,
}

/// The first pending reply that acknowledges a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstAcknowledgement {
    /// Offset at which it begins in the output, in bytes.
    pub(crate) at: usize,
    /// Reply that replaces it, and all after it, if the change is not acknowledged.
    pub(crate) refusal: Refusal,
}
