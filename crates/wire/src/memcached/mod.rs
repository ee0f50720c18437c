//! The memcached text protocol, with its meta commands.
//!
//! A request is a line of tokens, and for the storing verbs a block of data. Lines end in CRLF or
//! a bare LF; tokens are set apart by spaces and tabs. Keys are any bytes but these.

mod error;
mod meta;
mod parse;
pub mod reply;
pub(crate) mod tokens;

pub use error::Error;
pub use meta::{ArithmeticMode, Meta, MetaFlags, MetaKey, MetaMode, MetaVerb, meta_get_key};
pub(crate) use parse::is_verb;
pub use parse::parse;
pub use tokens::{Keys, KeysIter};

/// Whose rules requests follow, and whose words answer them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// memcached 1.6.
    #[default]
    Memcached,
    /// Tokyo Tyrant, which took more for a request, and counted in signed numbers.
    TokyoTyrant,
}

/// A request, borrowing from the bytes it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the protocol, by their full names")]
pub enum Request<'a> {
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
    Store(Store<'a>),
    /// `get`, and with `cas` `gets`: values of the keys.
    Get { keys: Keys<'a>, cas: bool },
    /// `gat`, and with `cas` `gats`: get and set the expiry.
    GetAndTouch { keys: Keys<'a>, exptime: i64, cas: bool },
    /// Remove a record. The time some clients send is ignored.
    Delete { key: &'a [u8], noreply: bool },
    /// Add to a decimal number: memcached any `u64`, Tokyo Tyrant any `i64`.
    Increment { key: &'a [u8], amount: i128, noreply: bool },
    /// Subtract from a decimal number, in the same range.
    Decrement { key: &'a [u8], amount: i128, noreply: bool },
    /// Set the expiry.
    Touch { key: &'a [u8], exptime: i64, noreply: bool },
    /// `mg`, `ms`, `md`, `ma`. In a box, so that the others need not be so long.
    Meta(Box<Meta<'a>>),
    /// `me`: what is known of a record, its value left out.
    MetaDebug { key: MetaKey<'a> },
    /// `mn`: an answer that tells that everything before was executed.
    MetaNoOp,
    /// Remove all records, after `delay` seconds.
    FlushAll { delay: i64, noreply: bool },
    /// Accepted and ignored.
    Verbosity { noreply: bool },
    /// Statistics: the argument, empty if there is none, and what follows it.
    Stats { argument: &'a [u8], rest: &'a [u8] },
    /// Cap the memory, in MiB.
    CacheMemoryLimit { mebibytes: u64, noreply: bool },
    /// A command to memcached's crawler of keys, and its argument, empty if there is none.
    Crawler { command: &'a [u8], argument: &'a [u8] },
    /// Stop the server; the argument is empty if there is none.
    Shutdown { argument: &'a [u8] },
    /// Version of the server.
    Version,
    /// Close the connection.
    Quit,
    /// Not a request. It has been taken out of the bytes as far as its end can be told.
    Bad { error: Error, noreply: bool },
}

/// A request with a block of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// Which verb.
    pub mode: Mode,
    /// The key.
    pub key: &'a [u8],
    /// Flags the client wants back with the value.
    pub flags: u32,
    /// Expiry as sent: 0 never, negative at once, up to 30 days in seconds from now, above that
    /// in seconds since 1970.
    pub exptime: i64,
    /// The value.
    pub value: &'a [u8],
    /// Whether the client wants no answer.
    pub noreply: bool,
}

/// When a value is stored, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In any case.
    Set,
    /// If there is no record.
    Add,
    /// If there is a record.
    Replace,
    /// Behind the value that is there.
    Append,
    /// Before the value that is there.
    Prepend,
    /// If the version of the record is still this.
    CompareAndSwap(u64),
}
