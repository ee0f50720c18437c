//! Errors of a line, and their replies.

use super::reply;

/// Reason why a line is not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Unknown verb.
    UnknownCommand,
    /// A header of HTTP, or the beginning of a binary protocol: what follows it may be anything,
    /// and is not executed. A browser can be made to send either.
    OtherProtocol,
    /// Too few tokens in the dialect of Tokyo Tyrant, which closes the connection after its reply.
    MissingArguments,
    /// Too few tokens, a token that is not a number or out of range, or a key that is too long.
    BadLine,
    /// A key that is too long, in `get` and similar commands. memcached ends its reply with an
    /// empty line.
    KeyTooLongToGet,
    /// A time that is not a number.
    BadExptime,
    /// An amount to add or to subtract that is not a number.
    BadDelta,
    /// A block of data of another length than announced.
    BadDataChunk,
    /// An `mg` with more flags than memcached accepts.
    TooManyFlagsOfGet,
    /// Another meta command with more flags than memcached accepts.
    TooManyFlags,
    /// An unknown flag.
    InvalidFlag,
    /// A repeated flag.
    DuplicateFlag,
    /// Any error of a flag, in the text of `md` and `ma`.
    InvalidOrDuplicateFlag,
    /// A flag whose token is not a number.
    BadToken,
    /// A key that is not base64.
    BadBase64,
    /// A token of flag `D` that is not a number.
    BadDeltaToken,
    /// A token of flag `J` that is not a number.
    BadInitialToken,
    /// A token of flag `M` that is not one character.
    BadModeLength,
    /// An unknown mode of `ms`.
    BadSetMode,
    /// An unknown mode of `ma`.
    BadArithmeticMode,
    /// A token of flag `O` that is too long.
    OpaqueTooLong,
}

impl Error {
    /// Returns the line of the reply.
    pub fn reply(self) -> &'static [u8] {
        match self {
            Self::UnknownCommand | Self::OtherProtocol => reply::ERROR,
            Self::MissingArguments => b"CLIENT_ERROR error\r\n",
            Self::BadLine => b"CLIENT_ERROR bad command line format\r\n",
            Self::KeyTooLongToGet => b"CLIENT_ERROR bad command line format\r\n\r\n",
            Self::BadExptime => b"CLIENT_ERROR invalid exptime argument\r\n",
            Self::BadDelta => b"CLIENT_ERROR invalid numeric delta argument\r\n",
            Self::BadDataChunk => b"CLIENT_ERROR bad data chunk\r\n",
            Self::TooManyFlagsOfGet => b"CLIENT_ERROR options flags are too long\r\n",
            Self::TooManyFlags => b"CLIENT_ERROR options flags too long\r\n",
            Self::InvalidFlag => b"CLIENT_ERROR invalid flag\r\n",
            Self::DuplicateFlag => b"CLIENT_ERROR duplicate flag\r\n",
            Self::InvalidOrDuplicateFlag => b"CLIENT_ERROR invalid or duplicate flag\r\n",
            Self::BadToken => b"CLIENT_ERROR bad token in command line format\r\n",
            Self::BadBase64 => b"CLIENT_ERROR error decoding key\r\n",
            Self::BadDeltaToken => b"CLIENT_ERROR invalid numeric delta value\r\n",
            Self::BadInitialToken => b"CLIENT_ERROR invalid numeric initial value\r\n",
            Self::BadModeLength => b"CLIENT_ERROR incorrect length for M token\r\n",
            Self::BadSetMode => b"CLIENT_ERROR invalid mode for ms M token\r\n",
            Self::BadArithmeticMode => b"CLIENT_ERROR invalid mode for ma M token\r\n",
            Self::OpaqueTooLong => b"CLIENT_ERROR opaque token too long\r\n",
        }
    }
}
