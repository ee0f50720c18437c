//! Pure codecs of the protocols of tyrant: bytes in, requests out; replies into a buffer.
//!
//! There is no I/O, no engine, and no allocation for the requests of the hot path: a parsed request
//! borrows from the bytes it was parsed from. Every parser here returns a [`Parse`] and is a fuzz
//! target.
//!
//! ```
//! use wire::memcached::{self, Dialect};
//! use wire::{Parse, Protocol, sniff};
//!
//! let received = b"get color\r\nget si";
//! assert_eq!(sniff(received), Some(Protocol::Memcached));
//! let parsed = memcached::parse(Dialect::Memcached, received);
//! let Parse::Complete(request, length) = parsed else { panic!() };
//! let memcached::Request::Get { keys, cas: false } = request else { panic!() };
//! assert_eq!(keys.iter().collect::<Vec<_>>(), [b"color"]);
//! assert_eq!(&received[length..], b"get si");
//! let rest = memcached::parse(Dialect::Memcached, &received[length..]);
//! assert!(matches!(rest, Parse::Incomplete(_)));
//! ```

pub mod base64;
pub mod binary;
mod decimal;
pub mod http;
mod kind;
mod kinds;
pub mod limits;
pub mod memcached;
pub mod memcached_binary;
pub mod redis;
pub mod replication;
mod sniff;
pub mod update_log;

pub use kind::{Class, Commands, Described, Effect, RequestKind};
pub use kinds::PROTOCOLS;
pub use sniff::{Protocol, sniff, sniff_after_array};

/// Result of parsing the bytes received so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parse<T> {
    /// Complete request and its length, in bytes.
    Complete(T, usize),
    /// The request needs at least this many bytes in all.
    Incomplete(usize),
    /// The bytes can never become a request of the protocol.
    Invalid(Invalid),
}

impl<T> Parse<T> {
    /// Converts a complete request.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Parse<U> {
        match self {
            Parse::Complete(request, length) => Parse::Complete(convert(request), length),
            Parse::Incomplete(needed) => Parse::Incomplete(needed),
            Parse::Invalid(invalid) => Parse::Invalid(invalid),
        }
    }
}

/// Reason why a part of a request cannot be parsed.
enum Stop {
    /// The request needs at least this many bytes in all.
    Incomplete(usize),
    Invalid(Invalid),
}

impl From<Invalid> for Stop {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl<T> From<Stop> for Parse<T> {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Incomplete(needed) => Self::Incomplete(needed),
            Stop::Invalid(invalid) => Self::Invalid(invalid),
        }
    }
}

/// Reason why bytes are not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// Not a command of the protocol.
    UnknownCommand,
    /// Missing parameters, or parameters out of their range.
    BadParameters,
    /// A size beyond the limit.
    TooLarge,
}
