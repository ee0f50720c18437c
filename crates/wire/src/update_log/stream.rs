//! Stream from a master to a replica, after the server id of four bytes.

use super::entry::{ENTRY_MAGIC, body_size, checked_size};
use crate::{Invalid, Parse};

/// First byte of the heartbeat of a master without new entries.
pub const NO_OPERATION: u8 = 0xca;

/// Length of the header of an update: magic, time stamp, server id, size of the body; in bytes.
const UPDATE_HEADER_BYTES: usize = 17;

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
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Parse<Self> {
        match bytes.first() {
            Some(&NO_OPERATION) => return Parse::Complete(Self::NoOperation, 1),
            Some(&ENTRY_MAGIC) => {}
            Some(_) => return Parse::Invalid(Invalid::UnknownCommand),
            None => return Parse::Incomplete(1),
        }
        let Some(header) = bytes.first_chunk::<UPDATE_HEADER_BYTES>() else {
            return Parse::Incomplete(UPDATE_HEADER_BYTES);
        };
        let [_, t0, t1, t2, t3, t4, t5, t6, t7, o0, o1, o2, o3, s0, s1, s2, s3] = *header;
        let size = match checked_size(u32::from_be_bytes([s0, s1, s2, s3])) {
            Ok(size) => size,
            Err(invalid) => return Parse::Invalid(invalid),
        };
        let end = UPDATE_HEADER_BYTES + size;
        let Some(body) = bytes.get(UPDATE_HEADER_BYTES..end) else { return Parse::Incomplete(end) };
        let message = Self::Update {
            timestamp_us: u64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
            origin: u32::from_be_bytes([o0, o1, o2, o3]),
            body,
        };
        Parse::Complete(message, end)
    }

    /// Appends the message to `out`, as [`Message::parse`] reads it. Fails with
    /// [`Invalid::TooLarge`] and leaves `out` as it was if the body is over the limit.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Invalid> {
        match *self {
            Self::NoOperation => out.push(NO_OPERATION),
            Self::Update { timestamp_us, origin, body } => {
                let size = body_size(body)?;
                out.push(ENTRY_MAGIC);
                out.extend_from_slice(&timestamp_us.to_be_bytes());
                out.extend_from_slice(&origin.to_be_bytes());
                out.extend_from_slice(&size.to_be_bytes());
                out.extend_from_slice(body);
            }
        }
        Ok(())
    }
}
