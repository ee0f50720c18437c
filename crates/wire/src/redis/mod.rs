//! Redis's protocol (RESP), of versions 2 and 3.
//!
//! A request is an array of strings, the name of a command and its arguments: `*N`, and N times
//! `$B` and B bytes. Each line and each string ends in CRLF. Some requests may be a line of words.
//!
//! ```text
//! *2 CRLF $3 CRLF GET CRLF $5 CRLF color CRLF
//! ```

mod command;
mod dump;
pub mod hyperloglog;
mod kind;
mod parse;
mod quotes;
mod refused;
pub mod reply;
mod reply_parser;

pub use command::{Command, NoSubcommand, Shape, Subcommand};
pub use dump::{DumpError, Dumped, dump, read_dump};
pub(crate) use parse::is_request;
pub use parse::{Arguments, ArgumentsIter, Progress, append_request, parse, parse_resuming};
pub use quotes::unquote;
pub use refused::{refusal, refusal_of_part};
pub use reply_parser::{Replies, Reply, parse_reply};

/// Request, borrowed from the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'i> {
    /// The command, or why there is none.
    pub content: Content,
    /// Name of the command as sent. Empty for a malformed request.
    pub name: &'i [u8],
    /// The strings after the name.
    pub arguments: Arguments<'i>,
}

/// Content of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A command, with any number of arguments.
    Command(Command),
    /// A name that is not one of these commands.
    Unknown,
    /// A line with quotes, which is the name of the request. [`unquote`] reads it.
    Quoted,
    /// An empty line or array, which has no reply.
    Nothing,
    /// Not a request. The start of the next one is unknown.
    Malformed(Malformed),
}

/// Reason why bytes are not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The number of strings is not a number, or over
    /// [`REDIS_STRINGS_MAX`](crate::limits::REDIS_STRINGS_MAX).
    ArrayLength,
    /// The length of a string is not a number, or over
    /// [`REDIS_STRING_BYTES_MAX`](crate::limits::REDIS_STRING_BYTES_MAX).
    StringLength,
    /// A string begins with this byte in place of `$`.
    NoString(u8),
    /// Quotes in a line are not closed, or another word follows them at once.
    Quotes,
    /// A line of words is over [`REDIS_LINE_BYTES_MAX`](crate::limits::REDIS_LINE_BYTES_MAX).
    LineLength,
}
