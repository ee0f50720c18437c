//! memcached's text protocol, with its meta commands.
//!
//! A request is a line of tokens, and for stores a block of data. Lines end in CRLF or a bare LF;
//! tokens are separated by spaces and tabs. Keys are any other bytes.

mod error;
mod kind;
mod meta;
mod parse;
pub mod reply;
pub(crate) mod tokens;

pub use error::Error;
pub use kind::Kind;
pub use meta::{ArithmeticMode, Meta, MetaFlags, MetaKey, MetaMode, MetaVerb};
pub(crate) use parse::is_verb;
pub use parse::parse;
pub use tokens::{Keys, KeysIter};

/// Rules of requests and replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// memcached 1.6.
    #[default]
    Memcached,
    /// Tokyo Tyrant, which accepts more requests and counts in signed numbers.
    TokyoTyrant,
}

/// Request, borrowed from the received bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the protocol, by their full names")]
pub enum Request<'a> {
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
    Store(Store<'a>),
    /// `get`, and with `cas` `gets`: values of the keys.
    Get { keys: Keys<'a>, cas: bool },
    /// `gat`, and with `cas` `gats`: get and set the expiry.
    GetAndTouch { keys: Keys<'a>, exptime: i64, cas: bool },
    /// Remove a record. The time that some clients send is ignored.
    Delete { key: &'a [u8], noreply: bool },
    /// Add to a decimal number: memcached any `u64`, Tokyo Tyrant any `i64`.
    Increment { key: &'a [u8], amount: i128, noreply: bool },
    /// Subtract from a decimal number, in the same range.
    Decrement { key: &'a [u8], amount: i128, noreply: bool },
    /// Set the expiry.
    Touch { key: &'a [u8], exptime: i64, noreply: bool },
    /// `mg`, `ms`, `md`, `ma`. Boxed, so that the other variants are smaller.
    Meta(Box<Meta<'a>>),
    /// `me`: the properties of a record, without its value.
    MetaDebug { key: MetaKey<'a> },
    /// `mn`: a reply, which proves that all earlier requests were executed.
    MetaNoOp,
    /// Remove all records, after `delay` seconds.
    FlushAll { delay: i64, noreply: bool },
    /// Accepted and ignored.
    Verbosity { noreply: bool },
    /// Stats: the argument, empty if there is none, and the rest of the line.
    Stats { argument: &'a [u8], rest: &'a [u8] },
    /// Cap the memory, in MiB.
    CacheMemoryLimit { mebibytes: u64, noreply: bool },
    /// Command to memcached's LRU crawler, and its argument, empty if there is none.
    Crawler { command: &'a [u8], argument: &'a [u8] },
    /// Stop the server; the argument is empty if there is none.
    Shutdown { argument: &'a [u8] },
    /// Version of the server.
    Version,
    /// Close the connection.
    Quit,
    /// Malformed request. It has been consumed up to its end, as far as that is known.
    Bad { error: Error, noreply: bool },
}

/// Request with a block of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// Verb of the request.
    pub mode: Mode,
    /// The key.
    pub key: &'a [u8],
    /// Flags of the client, which are returned with the value.
    pub flags: u32,
    /// Expiry as sent: 0 never, negative at once, up to 30 days in seconds from now, above that in
    /// seconds since 1970.
    pub exptime: i64,
    /// The value.
    pub value: &'a [u8],
    /// Whether the reply is suppressed.
    pub noreply: bool,
}

/// Condition and operation of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Store unconditionally.
    Set,
    /// Store if the record is missing.
    Add,
    /// Store if the record is present.
    Replace,
    /// Append to the present value.
    Append,
    /// Prepend to the present value.
    Prepend,
    /// Store if the record still has this version.
    CompareAndSwap(u64),
}
