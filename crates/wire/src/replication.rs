//! What two servers of this project say to each other beyond the original's replication.
//!
//! A replica asks with the versatile function [`FUNCTION`] whether its master knows this, and then
//! sends [`Request::Follow`](crate::binary::Request::Follow) on the same connection. The master
//! answers its server id and [`FromMaster`]s, and the replica says with [`Acknowledgement`]s how
//! far it has come. `docs/protocols/replication.md` draws the bytes.

use crate::limits::{
    LOG_IDENTITY_BYTES_MAX, REPLICATION_BLOCK_BYTES_MAX, REPLICATION_REASON_BYTES_MAX,
};
use crate::update_log::{Message, body_size, checked_size};
use crate::{Invalid, Parse};

/// The versatile function that answers [`VERSION`], which the original has not.
pub const FUNCTION: &[u8] = b"replication";

/// What the function answers.
pub const VERSION: &[u8] = b"1";

/// Argument of the function that asks for the identity of the update log.
pub const IDENTITY: &[u8] = b"identity";

/// Option of a replica that has nothing: it wants a copy of all records.
pub const SEED: u32 = 1;

/// Option of a replica that wants a copy if what it asks for is no longer in the log.
pub const SEED_IF_TOO_OLD: u32 = 2;

/// Option of a replica that wants the copy compressed.
pub const COMPRESS: u32 = 4;

/// Option of a replica whose time stamp is of another log than the master's: behind the master's id it
/// says of which one, as [`Resume`].
pub const RESUME: u32 = 8;

const POSITION: u8 = 0xcb;
const SEED_BEGIN: u8 = 0xcc;
const RECORD: u8 = 0xcd;
const SEED_END: u8 = 0xce;
const BLOCK: u8 = 0xcf;
const REFUSED: u8 = 0xd0;
const ACKNOWLEDGEMENT: u8 = 0xd1;
const RESUME_FROM: u8 = 0xd2;
const RESUMES: u8 = 0xd3;
const SWITCH: u8 = 0xd4;

/// A message of a master, borrowing from the bytes it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromMaster<'a> {
    /// What the original sends too.
    Log(Message<'a>),
    /// How far the master has come, and this stream.
    Position(Position),
    /// A copy of all records begins: whatever the replica has goes.
    SeedBegin {
        /// Records that the master has at present.
        records: u64,
        /// The last number that a table gave out.
        last_uid: u64,
    },
    /// What makes a record as it is, as an [`Operation`](crate::update_log::Operation).
    Record {
        /// The operation, as bytes.
        body: &'a [u8],
    },
    /// The copy is whole: with what came between its beginning and this, the replica has
    /// everything up to a time stamp.
    SeedEnd {
        /// In microseconds since 1970.
        timestamp_us: u64,
    },
    /// Messages, compressed with zstd.
    Block {
        /// Bytes they take when they are not.
        bytes: usize,
        /// The compressed bytes.
        compressed: &'a [u8],
    },
    /// The entries up to [`FromMaster::Switch`] have the time stamps of the log that the replica has
    /// named, and may come in another order than there if they are about different records.
    Resumes,
    /// With these entries the replica has everything up to a time stamp of the master's own log, from
    /// which time stamps are from now on.
    Switch {
        /// In microseconds since 1970.
        timestamp_us: u64,
    },
    /// The master does not serve this replica, and nothing more comes.
    Refused {
        /// Why, in words.
        reason: &'a [u8],
    },
}

/// Of which log a replica has come to a time stamp.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resume {
    /// Identity of the log.
    pub log: String,
    /// Highest time stamp in it of an operation that was executed, or may have been.
    pub executed_us: u64,
}

impl Resume {
    /// Parses one. [`Invalid::UnknownCommand`] if none begins there.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Parse<Self> {
        let Some((&kind, rest)) = bytes.split_first() else { return Parse::Incomplete(1) };
        if kind != RESUME_FROM {
            return Parse::Invalid(Invalid::UnknownCommand);
        }
        let mut reader = Reader { rest, taken: 1 };
        let check = |size| within(size, LOG_IDENTITY_BYTES_MAX);
        let parsed = reader.longs().and_then(|[executed_us]| {
            let log = str::from_utf8(reader.sized(check)?);
            let log = log.map_err(|_| Stop::Invalid(Invalid::BadParameters))?.to_owned();
            Ok(Self { log, executed_us })
        });
        match parsed {
            Ok(resume) => Parse::Complete(resume, reader.taken),
            Err(Stop::Incomplete(needed)) => Parse::Incomplete(needed),
            Err(Stop::Invalid(invalid)) => Parse::Invalid(invalid),
        }
    }

    /// Appends it to `out`, as [`Resume::parse`] reads it; [`Invalid::TooLarge`] with `out` as it was
    /// if the identity is over its limit.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Invalid> {
        if self.log.len() > LOG_IDENTITY_BYTES_MAX {
            return Err(Invalid::TooLarge);
        }
        out.push(RESUME_FROM);
        longs(out, [self.executed_us]);
        out.extend_from_slice(&(self.log.len() as u32).to_be_bytes());
        out.extend_from_slice(self.log.as_bytes());
        Ok(())
    }
}

/// How far a master has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The master's clock, in microseconds since 1970.
    pub now_us: u64,
    /// Everything up to here has been sent that the replica is to get.
    pub timestamp_us: u64,
    /// Operations in the master's log behind that.
    pub remaining: u64,
    /// The replica is asked to make durable what it acknowledges, and not to wait with it.
    pub is_awaited: bool,
}

/// How far a replica has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledgement {
    /// Time stamp up to which it has executed everything, in microseconds since 1970.
    pub executed_us: u64,
    /// Operations that it has executed of this connection.
    pub executed: u64,
    /// The same of what it has on disk.
    pub durable_us: u64,
    /// The same of what it has on disk.
    pub durable: u64,
}

impl<'a> FromMaster<'a> {
    /// Parses the message at the start of `bytes`. [`Invalid::UnknownCommand`] if none begins
    /// there.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Parse<Self> {
        let Some((&kind, rest)) = bytes.split_first() else { return Parse::Incomplete(1) };
        let mut reader = Reader { rest, taken: 1 };
        let message = match kind {
            POSITION => reader.position(),
            SEED_BEGIN => {
                reader.longs().map(|[records, last_uid]| Self::SeedBegin { records, last_uid })
            }
            RECORD => reader.sized(checked_size).map(|body| Self::Record { body }),
            SEED_END => reader.longs().map(|[timestamp_us]| Self::SeedEnd { timestamp_us }),
            RESUMES => Ok(Self::Resumes),
            SWITCH => reader.longs().map(|[timestamp_us]| Self::Switch { timestamp_us }),
            BLOCK => reader.block(),
            REFUSED => reader
                .sized(|size| within(size, REPLICATION_REASON_BYTES_MAX))
                .map(|reason| Self::Refused { reason }),
            _ => return Message::parse(bytes).map(Self::Log),
        };
        match message {
            Ok(message) => Parse::Complete(message, reader.taken),
            Err(Stop::Incomplete(needed)) => Parse::Incomplete(needed),
            Err(Stop::Invalid(invalid)) => Parse::Invalid(invalid),
        }
    }

    /// Appends it to `out`, as [`FromMaster::parse`] reads it; [`Invalid::TooLarge`] with `out` as
    /// it was if it is over a limit.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Invalid> {
        match *self {
            Self::Log(message) => message.encode(out)?,
            Self::Position(Position { now_us, timestamp_us, remaining, is_awaited }) => {
                out.push(POSITION);
                longs(out, [now_us, timestamp_us, remaining]);
                out.push(u8::from(is_awaited));
            }
            Self::SeedBegin { records, last_uid } => {
                out.push(SEED_BEGIN);
                longs(out, [records, last_uid]);
            }
            Self::Record { body } => {
                let size = body_size(body)?;
                out.push(RECORD);
                out.extend_from_slice(&size.to_be_bytes());
                out.extend_from_slice(body);
            }
            Self::SeedEnd { timestamp_us } => {
                out.push(SEED_END);
                longs(out, [timestamp_us]);
            }
            Self::Resumes => out.push(RESUMES),
            Self::Switch { timestamp_us } => {
                out.push(SWITCH);
                longs(out, [timestamp_us]);
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
            Self::Refused { reason } => {
                if reason.len() > REPLICATION_REASON_BYTES_MAX {
                    return Err(Invalid::TooLarge);
                }
                out.push(REFUSED);
                out.extend_from_slice(&(reason.len() as u32).to_be_bytes());
                out.extend_from_slice(reason);
            }
        }
        Ok(())
    }
}

impl Acknowledgement {
    /// Bytes that one takes.
    pub const BYTES: usize = 33;

    /// Parses one. [`Invalid::UnknownCommand`] if none begins there.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Parse<Self> {
        match bytes.split_first() {
            None => Parse::Incomplete(Self::BYTES),
            Some((&ACKNOWLEDGEMENT, rest)) => match (Reader { rest, taken: 1 }).longs() {
                Ok([executed_us, executed, durable_us, durable]) => {
                    let acknowledgement = Self { executed_us, executed, durable_us, durable };
                    Parse::Complete(acknowledgement, Self::BYTES)
                }
                Err(_) => Parse::Incomplete(Self::BYTES),
            },
            Some(_) => Parse::Invalid(Invalid::UnknownCommand),
        }
    }

    /// Appends it to `out`, as [`Acknowledgement::parse`] reads it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(ACKNOWLEDGEMENT);
        longs(out, [self.executed_us, self.executed, self.durable_us, self.durable]);
    }
}

/// Why parsing ends before the end of a message.
enum Stop {
    Incomplete(usize),
    Invalid(Invalid),
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

    fn longs<const N: usize>(&mut self) -> Result<[u64; N], Stop> {
        let bytes = self.take(8 * N)?;
        let mut longs = [0; N];
        for (long, bytes) in longs.iter_mut().zip(bytes.as_chunks().0) {
            *long = u64::from_be_bytes(*bytes);
        }
        Ok(longs)
    }

    fn size(&mut self, check: fn(u32) -> Result<usize, Invalid>) -> Result<usize, Stop> {
        let bytes = self.take(4)?.first_chunk().copied().unwrap_or_default();
        check(u32::from_be_bytes(bytes)).map_err(Stop::Invalid)
    }

    fn sized(&mut self, check: fn(u32) -> Result<usize, Invalid>) -> Result<&'a [u8], Stop> {
        let size = self.size(check)?;
        self.take(size)
    }

    fn position(&mut self) -> Result<FromMaster<'a>, Stop> {
        let [now_us, timestamp_us, remaining] = self.longs()?;
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

fn longs<const N: usize>(out: &mut Vec<u8>, longs: [u64; N]) {
    for long in longs {
        out.extend_from_slice(&long.to_be_bytes());
    }
}
