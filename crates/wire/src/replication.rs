//! Replication messages between two servers of this project, beyond Tokyo Tyrant's protocol.
//!
//! A replica asks with the versatile function [`Function::Replication`] whether its master knows
//! this protocol. Then it sends [`Request::Follow`](crate::binary::Request::Follow) on the same
//! connection. The master sends its server id and [`FromMaster`]s, the replica reports its progress
//! with [`Acknowledgement`]s. `docs/protocols/replication.md` draws the bytes.

use crate::limits::{
    LOG_IDENTITY_BYTES_MAX, REPLICATION_BLOCK_BYTES_MAX, REPLICATION_REASON_BYTES_MAX,
};
use crate::update_log::{Message, body_size, checked_size};
use crate::{Invalid, Parse, Stop};

/// Reply of the function.
pub const VERSION: &[u8] = b"1";

/// Argument of the function that asks for the identity of the update log.
pub const IDENTITY: &[u8] = b"identity";

/// Argument of the function, before a time stamp in decimal, that asks whether a replica would get
/// the log from there. Without a time stamp it asks whether there is a log that the client may
/// have. The function fails with the reason if not. Older masters reply with [`VERSION`].
pub const ADMISSION: &[u8] = b"admission";

/// Argument of the function, before a server id in decimal, that lets the master forget a replica
/// of this id that is not connected. The reply is the address of the replica. The function fails if
/// there is none. Older masters reply with [`VERSION`].
pub const FORGET: &[u8] = b"forget";

/// Option of a replica without records: it requests a copy of all records.
pub const SEED: u32 = 1;

/// Option of a replica that requests a copy if the log no longer has the entries it needs.
pub const SEED_IF_TOO_OLD: u32 = 2;

/// Option of a replica that requests a compressed copy.
pub const COMPRESS: u32 = 4;

/// Argument of the function that asks whether the master knows the [`Root`]s of its entries. The
/// reply is the partitioning of its keys, which must be equal on both servers. Masters that do not
/// know roots reply with [`VERSION`].
pub const ROOTS: &[u8] = b"roots";

/// Option of a replica whose time stamp is of another log than the master's. It sends its progress
/// after the master's id, as [`Resume`].
pub const RESUME: u32 = 8;

/// Option of a replica that requests [`FromMaster::Rooted`] and [`FromMaster::Progress`].
pub const SEND_ROOTS: u32 = 16;

/// Number of partitions: those of operations on one key, and one more for all other operations.
pub const PARTITIONS: usize = 65;

/// Most logs of which a replica may have executed entries.
pub const ROOT_LOGS_MAX: usize = 32;

const POSITION: u8 = 0xcb;
const SEED_BEGIN: u8 = 0xcc;
const RECORD: u8 = 0xcd;
const SEED_END: u8 = 0xce;
const BLOCK: u8 = 0xcf;
const REFUSED: u8 = 0xd0;
const ACKNOWLEDGEMENT: u8 = 0xd1;
const RESUME_FROM: u8 = 0xd2;
const SWITCH: u8 = 0xd4;
const ROOTED: u8 = 0xd5;
const PROGRESS: u8 = 0xd6;
const RESUME_BY_ROOTS: u8 = 0xd7;
const REFUSED_FOR_NOW: u8 = 0xd8;

/// Message of a master, borrowed from the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromMaster<'a> {
    /// Message that Tokyo Tyrant sends too.
    Log(Message<'a>),
    /// Progress of the master and of this stream.
    Position(Position),
    /// A copy of all records begins, which replaces the records of the replica.
    SeedBegin {
        /// Number of records that the master has at present.
        records: u64,
        /// Last generated id of a table.
        last_uid: u64,
    },
    /// Operation that makes a record, as an [`Operation`](crate::update_log::Operation).
    Record {
        /// The operation, as bytes.
        body: &'a [u8],
    },
    /// The copy is complete. With the entries sent since its beginning, the replica has everything
    /// up to a time stamp.
    SeedEnd {
        /// Time stamp, in microseconds since 1970.
        timestamp_us: u64,
    },
    /// Messages, compressed with zstd.
    Block {
        /// Length of the messages before compression, in bytes.
        bytes: usize,
        /// Compressed bytes.
        compressed: &'a [u8],
    },
    /// First message: entries follow from after a time stamp of the master's log. The replica has
    /// executed everything before it, and skips later entries that it has executed.
    Switch {
        /// Time stamp, in microseconds since 1970.
        timestamp_us: u64,
    },
    /// Entry that was made first in another log than the master's.
    Rooted {
        /// Its first entry.
        root: Root,
        /// The entry.
        message: Message<'a>,
    },
    /// Logs of which the master's log has entries. Each has a time stamp up to which the replica
    /// has all of them, with the messages before this one.
    Progress {
        /// Pairs of log and time stamp, see [`progress_in`].
        pairs: &'a [u8],
    },
    /// The master refuses this replica and sends no further message.
    Refused {
        /// Whether the replica must not ask again by itself.
        is_final: bool,
        /// Text of the reason.
        reason: &'a [u8],
    },
}

/// Entry of a log in which a change was made first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// XXH3 of the identity of the log, never 0.
    pub log: u64,
    /// Time stamp of the entry in that log, in microseconds since 1970.
    pub timestamp_us: u64,
}

/// Progress of a replica in the entries that were made first in one log, as time stamps in
/// microseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogProgress {
    /// XXH3 of the identity of the log.
    pub log: u64,
    /// Time stamp up to which it has all entries.
    pub base_us: u64,
    /// Time stamp up to which it also has all entries of each partition.
    pub partitions_us: [u64; PARTITIONS],
}

impl LogProgress {
    /// Returns the progress of a replica with all entries up to `base_us` and no other.
    pub fn up_to(log: u64, base_us: u64) -> Self {
        Self { log, base_us, partitions_us: [base_us; PARTITIONS] }
    }
}

/// Progress of a replica in all logs. Empty if unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resume {
    /// Progress in each log of which it has executed entries.
    pub progress: Vec<LogProgress>,
}

impl Resume {
    /// Parses the message at the start of `bytes`. [`Invalid::UnknownCommand`] if none begins
    /// there.
    pub fn parse(bytes: &[u8]) -> Parse<Self> {
        let Some((&kind, rest)) = bytes.split_first() else { return Parse::Incomplete(1) };
        let mut reader = Reader { rest, taken: 1 };
        let parsed = match kind {
            // An earlier version sends one log and a time stamp in it.
            RESUME_FROM => reader.u64s::<1>().and_then(|_| {
                reader.sized(|size| within(size, LOG_IDENTITY_BYTES_MAX)).map(|_| Self::default())
            }),
            RESUME_BY_ROOTS => reader.size(|size| within(size, ROOT_LOGS_MAX)).and_then(|count| {
                let progress = (0..count).map(|_| {
                    let [log, base_us] = reader.u64s()?;
                    Ok(LogProgress { log, base_us, partitions_us: reader.u64s()? })
                });
                Ok(Self { progress: progress.collect::<Result<_, Stop>>()? })
            }),
            _ => return Parse::Invalid(Invalid::UnknownCommand),
        };
        match parsed {
            Ok(resume) => Parse::Complete(resume, reader.taken),
            Err(stop) => stop.into(),
        }
    }

    /// Appends the message to `out`, as [`Resume::parse`] reads it. Fails with
    /// [`Invalid::TooLarge`] and leaves `out` as it was if there are more than [`ROOT_LOGS_MAX`]
    /// logs.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Invalid> {
        if self.progress.len() > ROOT_LOGS_MAX {
            return Err(Invalid::TooLarge);
        }
        out.push(RESUME_BY_ROOTS);
        out.extend_from_slice(&(self.progress.len() as u32).to_be_bytes());
        for LogProgress { log, base_us, partitions_us } in &self.progress {
            u64s(out, [*log, *base_us]);
            u64s(out, *partitions_us);
        }
        Ok(())
    }
}

/// Returns the bytes of the pairs of [`FromMaster::Progress`].
pub fn progress_pairs(progress: &[(u64, u64)]) -> Vec<u8> {
    let mut pairs = Vec::new();
    progress.iter().for_each(|(log, base_us)| u64s(&mut pairs, [*log, *base_us]));
    pairs
}

/// Returns the logs and time stamps in the bytes of [`FromMaster::Progress`].
pub fn progress_in(pairs: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    pairs.as_chunks::<16>().0.iter().map(|pair| {
        let both = u128::from_be_bytes(*pair);
        ((both >> 64) as u64, both as u64)
    })
}

/// Progress of a master and of its stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Clock of the master, in microseconds since 1970.
    pub now_us: u64,
    /// Time stamp up to which every entry for the replica has been sent.
    pub timestamp_us: u64,
    /// Number of operations in the master's log after it.
    pub remaining: u64,
    /// Whether the replica is to make its progress durable and acknowledge it at once.
    pub is_awaited: bool,
}

/// Progress of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledgement {
    /// Time stamp up to which it has executed everything, in microseconds since 1970.
    pub executed_us: u64,
    /// Number of operations of this connection that it has executed.
    pub executed: u64,
    /// Time stamp up to which it has everything on disk, in microseconds since 1970.
    pub durable_us: u64,
    /// Number of operations of this connection that it has on disk.
    pub durable: u64,
}

impl<'a> FromMaster<'a> {
    /// Parses the message at the start of `bytes`. [`Invalid::UnknownCommand`] if none begins
    /// there.
    pub fn parse(bytes: &'a [u8]) -> Parse<Self> {
        let Some((&kind, rest)) = bytes.split_first() else { return Parse::Incomplete(1) };
        let mut reader = Reader { rest, taken: 1 };
        let message = match kind {
            POSITION => reader.position(),
            SEED_BEGIN => {
                reader.u64s().map(|[records, last_uid]| Self::SeedBegin { records, last_uid })
            }
            RECORD => reader.sized(checked_size).map(|body| Self::Record { body }),
            SEED_END => reader.u64s().map(|[timestamp_us]| Self::SeedEnd { timestamp_us }),
            ROOTED => match reader.u64s() {
                Ok([0, _]) => Err(Stop::Invalid(Invalid::BadParameters)),
                Ok([log, timestamp_us]) => {
                    return match Message::parse(reader.rest) {
                        Parse::Complete(message, taken) => {
                            let root = Root { log, timestamp_us };
                            Parse::Complete(Self::Rooted { root, message }, reader.taken + taken)
                        }
                        Parse::Incomplete(needed) => Parse::Incomplete(reader.taken + needed),
                        Parse::Invalid(invalid) => Parse::Invalid(invalid),
                    };
                }
                Err(stop) => Err(stop),
            },
            PROGRESS => reader
                .size(|size| within(size, ROOT_LOGS_MAX))
                .and_then(|count| reader.take(16 * count))
                .and_then(|pairs| match progress_in(pairs).all(|(log, _)| log != 0) {
                    true => Ok(Self::Progress { pairs }),
                    false => Err(Stop::Invalid(Invalid::BadParameters)),
                }),
            SWITCH => reader.u64s().map(|[timestamp_us]| Self::Switch { timestamp_us }),
            BLOCK => reader.block(),
            REFUSED | REFUSED_FOR_NOW => reader
                .sized(|size| within(size, REPLICATION_REASON_BYTES_MAX))
                .map(|reason| Self::Refused { is_final: kind == REFUSED, reason }),
            _ => return Message::parse(bytes).map(Self::Log),
        };
        match message {
            Ok(message) => Parse::Complete(message, reader.taken),
            Err(stop) => stop.into(),
        }
    }

    /// Appends the message to `out`, as [`FromMaster::parse`] reads it. Fails with
    /// [`Invalid::TooLarge`] and leaves `out` as it was if it is over a limit.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Invalid> {
        match *self {
            Self::Log(message) => message.encode(out)?,
            Self::Position(Position { now_us, timestamp_us, remaining, is_awaited }) => {
                out.push(POSITION);
                u64s(out, [now_us, timestamp_us, remaining]);
                out.push(u8::from(is_awaited));
            }
            Self::SeedBegin { records, last_uid } => {
                out.push(SEED_BEGIN);
                u64s(out, [records, last_uid]);
            }
            Self::Record { body } => {
                let size = body_size(body)?;
                out.push(RECORD);
                out.extend_from_slice(&size.to_be_bytes());
                out.extend_from_slice(body);
            }
            Self::SeedEnd { timestamp_us } => {
                out.push(SEED_END);
                u64s(out, [timestamp_us]);
            }
            Self::Rooted { root: Root { log, timestamp_us }, message } => {
                let start = out.len();
                out.push(ROOTED);
                u64s(out, [log, timestamp_us]);
                message.encode(out).inspect_err(|_| out.truncate(start))?;
            }
            Self::Progress { pairs } => {
                let count = pairs.len() / 16;
                if count > ROOT_LOGS_MAX || pairs.len() % 16 != 0 {
                    return Err(Invalid::TooLarge);
                }
                out.push(PROGRESS);
                out.extend_from_slice(&(count as u32).to_be_bytes());
                out.extend_from_slice(pairs);
            }
            Self::Switch { timestamp_us } => {
                out.push(SWITCH);
                u64s(out, [timestamp_us]);
            }
            Self::Block { bytes, compressed } => {
                let sizes = [bytes, compressed.len()];
                if sizes.iter().any(|size| *size > REPLICATION_BLOCK_BYTES_MAX) {
                    return Err(Invalid::TooLarge);
                }
                out.push(BLOCK);
                for size in sizes {
                    out.extend_from_slice(&(size as u32).to_be_bytes());
                }
                out.extend_from_slice(compressed);
            }
            Self::Refused { is_final, reason } => {
                if reason.len() > REPLICATION_REASON_BYTES_MAX {
                    return Err(Invalid::TooLarge);
                }
                out.push(if is_final { REFUSED } else { REFUSED_FOR_NOW });
                out.extend_from_slice(&(reason.len() as u32).to_be_bytes());
                out.extend_from_slice(reason);
            }
        }
        Ok(())
    }
}

impl Acknowledgement {
    /// Length of an acknowledgement, in bytes.
    pub const BYTES: usize = 33;

    /// Parses the message at the start of `bytes`. [`Invalid::UnknownCommand`] if none begins
    /// there.
    pub fn parse(bytes: &[u8]) -> Parse<Self> {
        match bytes.split_first() {
            None => Parse::Incomplete(Self::BYTES),
            Some((&ACKNOWLEDGEMENT, rest)) => match (Reader { rest, taken: 1 }).u64s() {
                Ok([executed_us, executed, durable_us, durable]) => {
                    let acknowledgement = Self { executed_us, executed, durable_us, durable };
                    Parse::Complete(acknowledgement, Self::BYTES)
                }
                Err(_) => Parse::Incomplete(Self::BYTES),
            },
            Some(_) => Parse::Invalid(Invalid::UnknownCommand),
        }
    }

    /// Appends the acknowledgement to `out`, as [`Acknowledgement::parse`] reads it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(ACKNOWLEDGEMENT);
        u64s(out, [self.executed_us, self.executed, self.durable_us, self.durable]);
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    taken: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Stop> {
        let needed = self.taken + count;
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Stop::Incomplete(needed))?;
        self.rest = rest;
        self.taken = needed;
        Ok(taken)
    }

    fn u64s<const N: usize>(&mut self) -> Result<[u64; N], Stop> {
        let bytes = self.take(8 * N)?;
        let mut u64s = [0; N];
        for (long, bytes) in u64s.iter_mut().zip(bytes.as_chunks().0) {
            *long = u64::from_be_bytes(*bytes);
        }
        Ok(u64s)
    }

    fn size(&mut self, check: fn(u32) -> Result<usize, Invalid>) -> Result<usize, Stop> {
        let bytes = self.take(4)?.first_chunk().copied().unwrap_or_default();
        Ok(check(u32::from_be_bytes(bytes))?)
    }

    fn sized(&mut self, check: fn(u32) -> Result<usize, Invalid>) -> Result<&'a [u8], Stop> {
        let size = self.size(check)?;
        self.take(size)
    }

    fn position(&mut self) -> Result<FromMaster<'a>, Stop> {
        let [now_us, timestamp_us, remaining] = self.u64s()?;
        let is_awaited = match self.take(1)? {
            [0] => false,
            [1] => true,
            _ => return Err(Stop::Invalid(Invalid::BadParameters)),
        };
        Ok(FromMaster::Position(Position { now_us, timestamp_us, remaining, is_awaited }))
    }

    fn block(&mut self) -> Result<FromMaster<'a>, Stop> {
        let check = |size| within(size, REPLICATION_BLOCK_BYTES_MAX);
        let bytes = self.size(check)?;
        let compressed = self.sized(check)?;
        Ok(FromMaster::Block { bytes, compressed })
    }
}

fn within(size: u32, limit: usize) -> Result<usize, Invalid> {
    match size as usize {
        size if size <= limit => Ok(size),
        _ => Err(Invalid::TooLarge),
    }
}

fn u64s<const N: usize>(out: &mut Vec<u8>, u64s: [u64; N]) {
    for long in u64s {
        out.extend_from_slice(&long.to_be_bytes());
    }
}
