//! Tokyo Tyrant's binary protocol.
//!
//! A request is [`MAGIC`], a command byte, big-endian sizes and numbers, then the strings of these
//! sizes. A response is a status byte, 0 or 1, and the result of the command.

mod command;
mod double;
mod encode;
mod function;
mod kind;
mod parse;
mod peek;
pub mod reply;
mod strings;

pub use double::{double_from_parts, double_to_parts};
pub use encode::encode;
pub(crate) use encode::encode_logged;
pub use function::Function;
pub use kind::Kind;
pub(crate) use parse::parse_logged;
pub use parse::{Progress, may_be_misc, parse, parse_resuming};
pub(crate) use peek::peek_key;
pub use strings::{Strings, StringsBuffer, StringsIter};

/// First byte of every request.
pub const MAGIC: u8 = 0xc8;

/// Reason that `misc error` gives for a `login` on a server without users.
pub const NO_USERS: &str = "the server has no users";

/// Length of the magic and the command, in bytes. A reader that continues after
/// [`Invalid::UnknownCommand`](crate::Invalid::UnknownCommand), as Tokyo Tyrant does with requests
/// that have already arrived, skips these.
pub const COMMAND_BYTES: usize = 2;

/// Beginning of every request for `misc`.
pub const MISC_HEAD: [u8; COMMAND_BYTES] = [MAGIC, command::MISC];

/// Bit of the options of `misc` that keeps a call out of the update log.
pub const NOT_LOGGED: u32 = 1;

/// Request, borrowed from the received bytes.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of the protocol, by their full names")]
pub enum Request<'a> {
    /// Store a record.
    Put { key: &'a [u8], value: &'a [u8] },
    /// Store a record if there is none.
    PutKeep { key: &'a [u8], value: &'a [u8] },
    /// Append to a record.
    PutCat { key: &'a [u8], value: &'a [u8] },
    /// Append to a record and keep the last `width` bytes.
    PutShift { key: &'a [u8], value: &'a [u8], width: u32 },
    /// Store a record; no response.
    PutNoReply { key: &'a [u8], value: &'a [u8] },
    /// Remove a record.
    Out { key: &'a [u8] },
    /// Get a value.
    Get { key: &'a [u8] },
    /// Get many values.
    GetMany(Strings<'a>),
    /// Size of a value.
    ValueSize { key: &'a [u8] },
    /// Start the iterator.
    IterInit,
    /// Next key of the iterator.
    IterNext,
    /// Keys with a prefix; `max` is negative for all.
    KeysWithPrefix { prefix: &'a [u8], max: i32 },
    /// Add to an integer.
    AddInt { key: &'a [u8], addend: i32 },
    /// Add to a double: an integral part, and a fractional one in units of 1e-12.
    AddDouble { key: &'a [u8], integral: i64, fractional: i64 },
    /// Call a script function. `options`: 1 locks the record, 2 everything.
    Ext { name: &'a [u8], options: u32, key: &'a [u8], value: &'a [u8] },
    /// Make everything durable.
    Sync,
    /// Optimize with `#`-separated tuning.
    Optimize { parameters: &'a [u8] },
    /// Remove all records.
    Vanish,
    /// Copy the database to a path on the server.
    Copy { path: &'a [u8] },
    /// Restore from an update log folder.
    Restore { path: &'a [u8], timestamp_us: u64, options: u32 },
    /// Set the replication master.
    SetMaster { host: &'a [u8], port: u32, timestamp_us: u64, options: u32 },
    /// Number of records.
    Count,
    /// Size of the database.
    Size,
    /// Status text.
    Stat,
    /// Call a function. `options`: 1 leaves the update log out.
    Misc { function: Function<'a>, options: u32, arguments: Strings<'a> },
    /// Subscribe as a replica from a time stamp on.
    Replicate { timestamp_us: u64, server_id: u32 },
    /// Subscribe as a replica of this project, which Tokyo Tyrant does not know; see
    /// [`crate::replication`].
    Follow { timestamp_us: u64, server_id: u32, options: u32, port: u32 },
}
