//! Messages between two servers of this project, beyond Tokyo Tyrant's replication.
//!
//! A replica asks with the versatile function [`Function::Replication`] whether its master knows
//! this, and then sends [`Request::Follow`](crate::binary::Request::Follow) on the same connection.
//! The master answers its server id and [`FromMaster`]s, and the replica says with
//! [`Acknowledgement`]s how far it has come. `docs/protocols/replication.md` draws the bytes.

use crate::limits::{
    LOG_IDENTITY_BYTES_MAX, REPLICATION_BLOCK_BYTES_MAX, REPLICATION_REASON_BYTES_MAX,
};
use crate::update_log::{Message, body_size, checked_size};
use crate::{Invalid, Parse};

/// Answer of the function.
pub const VERSION: &[u8] = b"1";

/// Argument of the function that asks for the identity of the update log.
pub const IDENTITY: &[u8] = b"identity";

/// Option of a replica that has nothing: it wants a copy of all records.
pub const SEED: u32 = 1;

/// Option of a replica that wants a copy if what it asks for is no longer in the log.
pub const SEED_IF_TOO_OLD: u32 = 2;

/// Option of a replica that wants the copy compressed.
pub const COMPRESS: u32 = 4;

/// Argument of the function that asks whether the master knows the [`Root`]s of its entries. The
/// answer is how it tells keys apart, which has to be the same for both servers. Masters that do
/// not know roots answer [`VERSION`].
pub const ROOTS: &[u8] = b"roots";

/// Option of a replica whose time stamp is of another log than the master's: after the master's id
/// it sends what it has executed, as [`Resume`].
pub const RESUME: u32 = 8;

/// Option of a replica that is to be sent [`FromMaster::Rooted`] and [`FromMaster::Had`].
pub const NAME_ROOTS: u32 = 16;

/// Number of partitions that the operations on one key are spread over, and one more for the
/// others.
pub const LANES: usize = 65;

/// Most logs that a replica has executed entries of.
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
const HAD: u8 = 0xd6;
const RESUME_BY_ROOTS: u8 = 0xd7;

/// A message of a master, borrowing from the bytes it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromMaster<'a> {
    /// Message that Tokyo Tyrant sends too.
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
    /// Operation that makes a record as it is, as an [`Operation`](crate::update_log::Operation).
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
    /// Only as the first message: entries come from after a time stamp of the master's log. The
    /// replica has executed everything before, and leaves out what it has executed of those.
    Switch {
        /// In microseconds since 1970.
        timestamp_us: u64,
    },
    /// An entry that was made first in another log than the master's.
    Rooted {
        /// Entry in which it was made first.
        root: Root,
        /// The entry.
        message: Message<'a>,
    },
    /// The logs of which there are entries in the master's, each with a time stamp up to which the
    /// replica has all of them with what came before this.
    Had {
        /// Pairs of numbers, as bytes.
        pairs: &'a [u8],
    },
    /// The master does not serve this replica, and nothing more comes.
    Refused {
        /// Why, in words.
        reason: &'a [u8],
    },
}

/// Entry of a log in which a change was made first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// XXH3 of the identity of the log, never 0.
    pub log: u64,
    /// Its time stamp there.
    pub timestamp_us: u64,
}

/// Progress of a replica in the entries that were made first in one log: time stamps in
/// microseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Had {
    /// XXH3 of the identity of the log.
    pub log: u64,
    /// All entries up to here.
    pub base_us: u64,
    /// Time stamp up to which all entries of each partition are there too.
    pub lanes_us: [u64; LANES],
}

impl Had {
    /// Everything up to a time stamp, and nothing else.
    #[must_use]
    pub fn up_to(log: u64, base_us: u64) -> Self {
        Self { log, base_us, lanes_us: [base_us; LANES] }
    }
}

/// Progress of a replica in all logs, whichever its time stamp is of. Empty if that is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resume {
    /// Logs of which it has executed entries.
    pub had: Vec<Had>,
}

impl Resume {
    /// Parses one. [`Invalid::UnknownCommand`] if none begins there.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Parse<Self> {
        let Some((&kind, rest)) = bytes.split_first() else { return Parse::Incomplete(1) };
        let mut reader = Reader { rest, taken: 1 };
        let parsed = match kind {
            // An earlier version names one log, and a time stamp in it.
            RESUME_FROM => reader.longs::<1>().and_then(|_| {
                reader.sized(|size| within(size, LOG_IDENTITY_BYTES_MAX)).map(|_| Self::default())
            }),
            RESUME_BY_ROOTS => reader.size(|size| within(size, ROOT_LOGS_MAX)).and_then(|count| {
                let had = (0..count).map(|_| {
                    let [log, base_us] = reader.longs()?;
                    Ok(Had { log, base_us, lanes_us: reader.longs()? })
                });
                Ok(Self { had: had.collect::<Result<_, Stop>>()? })
            }),
            _ => return Parse::Invalid(Invalid::UnknownCommand),
        };
        match parsed {
            Ok(resume) => Parse::Complete(resume, reader.taken),
            Err(Stop::Incomplete(needed)) => Parse::Incomplete(needed),
            Err(Stop::Invalid(invalid)) => Parse::Invalid(invalid),
        }
    }

    /// Appends it to `out`, as [`Resume::parse`] reads it; [`Invalid::TooLarge`] with `out` as it
    /// was if there are more logs than [`ROOT_LOGS_MAX`].
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Invalid> {
        if self.had.len() > ROOT_LOGS_MAX {
            return Err(Invalid::TooLarge);
        }
        out.push(RESUME_BY_ROOTS);
        out.extend_from_slice(&(self.had.len() as u32).to_be_bytes());
        for Had { log, base_us, lanes_us } in &self.had {
            longs(out, [*log, *base_us]);
            longs(out, *lanes_us);
        }
        Ok(())
    }
}

/// Bytes of the pairs of [`FromMaster::Had`].
#[must_use]
pub fn pairs_of(had: &[(u64, u64)]) -> Vec<u8> {
    let mut pairs = Vec::new();
    had.iter().for_each(|(log, base_us)| longs(&mut pairs, [*log, *base_us]));
    pairs
}

/// Logs and time stamps in the bytes of [`FromMaster::Had`].
pub fn pairs_in(pairs: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    pairs.as_chunks::<16>().0.iter().map(|pair| {
        let both = u128::from_be_bytes(*pair);
        ((both >> 64) as u64, both as u64)
    })
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
            ROOTED => match reader.longs() {
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
            HAD => reader
                .size(|size| within(size, ROOT_LOGS_MAX))
                .and_then(|count| reader.take(16 * count))
                .and_then(|pairs| match pairs_in(pairs).all(|(log, _)| log != 0) {
                    true => Ok(Self::Had { pairs }),
                    false => Err(Stop::Invalid(Invalid::BadParameters)),
                }),
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
            Self::Rooted { root: Root { log, timestamp_us }, message } => {
                let start = out.len();
                out.push(ROOTED);
                longs(out, [log, timestamp_us]);
                message.encode(out).inspect_err(|_| out.truncate(start))?;
            }
            Self::Had { pairs } => {
                let count = pairs.len() / 16;
                if count > ROOT_LOGS_MAX || pairs.len() % 16 != 0 {
                    return Err(Invalid::TooLarge);
                }
                out.push(HAD);
                out.extend_from_slice(&(count as u32).to_be_bytes());
                out.extend_from_slice(pairs);
            }
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
