//! memcached's binary protocol.
//!
//! A request is a header of [`HEADER_BYTES`] bytes, which begins with [`MAGIC`], and a body: extras
//! of a length that the command fixes, a key and a value. Numbers are big-endian.
//!
//! | byte | request | response |
//! |---|---|---|
//! | 0 | `80` | `81` |
//! | 1 | opcode | the same |
//! | 2 | bytes of the key, u16 | the same |
//! | 4 | bytes of the extras, u8 | the same |
//! | 5 | data type, ignored | 0 |
//! | 6 | partition, ignored, u16 | [`Status`] |
//! | 8 | bytes of the body, u32 | the same |
//! | 12 | opaque, anything | the request's |
//! | 16 | the number the record must have, or 0, u64 | the number it has, or 0 |

mod kind;
mod opcode;
mod parse;
pub mod reply;
mod sasl;

pub use kind::Kind;
pub use parse::parse;
pub use reply::Status;
pub use sasl::plain_credentials;

/// First byte of every request.
pub const MAGIC: u8 = 0x80;

/// Bytes before the body, of requests and responses.
pub const HEADER_BYTES: usize = 24;

/// Request, borrowed from the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Fields that its responses repeat.
    pub echo: Echo,
    /// Whether the most expected response is suppressed: a miss of a get, the success of any other
    /// command.
    pub is_quiet: bool,
    /// The cas number that the record must have; `None` if any.
    pub compare: Option<u64>,
    /// Command of the request.
    pub command: Command<'a>,
}

/// Fields of a request that its responses repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The opcode, quiet or not.
    pub opcode: u8,
    /// Bytes chosen by the client.
    pub opaque: [u8; 4],
}

impl Echo {
    /// Returns the fields of the header at the start of `bytes`, if it is there.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<HEADER_BYTES>()?;
        let [_, opcode, _, _, _, _, _, _, _, _, _, _, opaque @ .., _, _, _, _, _, _, _, _] =
            *header;
        Some(Self { opcode, opaque })
    }
}

/// Command of a request. Expiries are in seconds, in memcached's form, but never negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the protocol, by their full names")]
pub enum Command<'a> {
    /// `get`, `getk`: the value of a record, and with `wants_key` its key.
    Get { key: &'a [u8], wants_key: bool },
    /// `gat`, `gatk`: the value as by `get`, and set the expiry.
    GetAndTouch { key: &'a [u8], expiry: u32, wants_key: bool },
    /// Set the expiry.
    Touch { key: &'a [u8], expiry: u32 },
    /// `set`, `add`, `replace`.
    Store { mode: Mode, key: &'a [u8], flags: u32, expiry: u32, value: &'a [u8] },
    /// Append to the present value.
    Append { key: &'a [u8], value: &'a [u8] },
    /// Prepend to the present value.
    Prepend { key: &'a [u8], value: &'a [u8] },
    /// Remove a record.
    Delete { key: &'a [u8] },
    /// Add to a decimal number.
    Increment(Arithmetic<'a>),
    /// Subtract from a decimal number.
    Decrement(Arithmetic<'a>),
    /// Remove all records, after `delay` seconds.
    Flush { delay: u32 },
    /// Respond, which proves that all earlier requests were executed.
    NoOp,
    /// Version of the server.
    Version,
    /// Statistics: the argument, empty if there is none.
    Stat { argument: &'a [u8] },
    /// Accepted and ignored.
    Verbosity,
    /// Close the connection.
    Quit,
    /// List the mechanisms of authentication.
    SaslMechanisms,
    /// Begin authentication.
    SaslAuthenticate { mechanism: &'a [u8], data: &'a [u8] },
    /// Continue authentication.
    SaslStep { mechanism: &'a [u8], data: &'a [u8] },
    /// Unknown opcode.
    Unknown,
    /// Command whose key, extras or value have wrong lengths. Only the header has been parsed, and
    /// the connection is unusable afterwards.
    Malformed,
    /// Header whose key and extras are longer than the body. The connection is unusable afterwards.
    BadLengths,
}

/// Condition of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// None.
    Set,
    /// The record is missing.
    Add,
    /// The record is present.
    Replace,
}

/// Addition to a number, or subtraction from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Number that is added or subtracted.
    pub amount: u64,
    /// Initial value and expiry of a new record; `None` creates no record.
    pub create: Option<(u64, u32)>,
}
