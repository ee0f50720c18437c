//! The memcached text protocol.
//!
//! A request is a line of tokens, and for the storing verbs a block of data. Lines end in CRLF or
//! a bare LF; tokens are set apart by spaces and tabs. Keys are any bytes but these.

mod parse;
pub mod reply;
pub(crate) mod tokens;

pub(crate) use parse::is_verb;
pub use parse::parse;
pub use tokens::{Keys, KeysIter};

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
    /// Add to a decimal number; the original allows negative amounts.
    Increment { key: &'a [u8], amount: i64, noreply: bool },
    /// Subtract from a decimal number.
    Decrement { key: &'a [u8], amount: i64, noreply: bool },
    /// Set the expiry.
    Touch { key: &'a [u8], exptime: i64, noreply: bool },
    /// Remove all records, after `delay` seconds.
    FlushAll { delay: i64, noreply: bool },
    /// Accepted and ignored.
    Verbosity { noreply: bool },
    /// Statistics; the argument is empty if there is none.
    Stats { argument: &'a [u8] },
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

/// Why a line is not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No such verb, or an empty line.
    UnknownCommand,
    /// Too few tokens. The original closed the connection after its answer.
    MissingArguments,
    /// A token that should be a number and is none, or is out of range.
    BadNumber,
    /// The block of data does not end where the line said.
    BadDataChunk,
}

impl Error {
    /// The line that answers it.
    #[must_use]
    pub fn reply(self) -> &'static [u8] {
        match self {
            Error::UnknownCommand => reply::ERROR,
            Error::MissingArguments => b"CLIENT_ERROR error\r\n",
            Error::BadNumber => b"CLIENT_ERROR bad command line format\r\n",
            Error::BadDataChunk => b"CLIENT_ERROR bad data chunk\r\n",
        }
    }
}
