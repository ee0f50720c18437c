//! Stream from a master to a replica, after the server id of four bytes.

use super::entry::{join, split};
use crate::{Invalid, Parse};

/// First byte of the heartbeat of a master without new entries.
pub const NO_OPERATION: u8 = 0xca;

/// Message of a master, borrowed from the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Heartbeat: no entry for about a second.
    NoOperation,
    /// An entry of the master's update log.
    Update {
        /// Time at which the master wrote it to its log, in microseconds since 1970.
        timestamp_us: u64,
        /// Id of the server that executed the operation first.
        origin: u32,
        /// The [`Operation`](super::Operation), as bytes.
        body: &'a [u8],
    },
}

impl<'a> Message<'a> {
    /// Parses the message at the start of `bytes`. [`Invalid::UnknownCommand`] if none begins
    /// there.
    pub fn parse(bytes: &'a [u8]) -> Parse<Self> {
        match bytes {
            [] => Parse::Incomplete(1),
            [NO_OPERATION, ..] => Parse::Complete(Self::NoOperation, 1),
            _ => split(bytes).map(|(timestamp_us, origin, body)| Self::Update {
                timestamp_us,
                origin: u32::from_be_bytes(origin),
                body,
            }),
        }
    }

    /// Appends the message to `out`, as [`Message::parse`] reads it. Fails with
    /// [`Invalid::TooLarge`] and leaves `out` as it was if the body is over the limit.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Invalid> {
        match *self {
            Self::NoOperation => {
                out.push(NO_OPERATION);
                Ok(())
            }
            Self::Update { timestamp_us, origin, body } => {
                join(out, timestamp_us, origin.to_be_bytes(), body)
            }
        }
    }
}
