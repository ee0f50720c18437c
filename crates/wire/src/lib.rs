//! Pure codecs of the protocols tyrant speaks: bytes in, requests out; replies into a buffer.
//!
//! No I/O, no engine, no allocation for the requests of the hot path: a parsed request borrows
//! from the bytes it was parsed from. Every parser here answers a [`Parse`], holds no state
//! between calls, and is a fuzz target.

pub mod binary;
pub mod http;
pub mod limits;
pub mod memcached;

/// What a parser made of the bytes received so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parse<T> {
    /// A whole request, and how many bytes it took.
    Complete(T, usize),
    /// More bytes are needed; at least this many in all, as far as is known yet.
    Incomplete(usize),
    /// This can never become a request of the protocol.
    Invalid(Invalid),
}

/// Why bytes are not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// Not a command of the protocol.
    UnknownCommand,
    /// A command with parameters missing or out of their range.
    BadParameters,
    /// A size beyond the limit.
    TooLarge,
}
