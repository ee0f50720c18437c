//! Pooled reply: the reply that a thread apart from the event loop has made.

use crate::net::pending_reply::FirstAcknowledgement;
use crate::ops::acknowledgement::AcknowledgementPoint;
use crate::ops::budget::Charge;
use crate::protocol::Next;

/// A reply to be sent by the event loop of its connection.
#[derive(Debug)]
pub(crate) struct PooledReply {
    pub(crate) output: Vec<u8>,
    /// Charge for the bytes of a large reply.
    pub(crate) charge: Option<Charge>,
    pub(crate) next: Next,
    /// Point to reach before the reply is sent, if it acknowledges a change.
    pub(crate) acknowledgement: Option<(AcknowledgementPoint, FirstAcknowledgement)>,
}
