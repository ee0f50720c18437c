//! Why a line is not a request, and what is said about it.

use super::reply;

/// Why a line is not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No such verb.
    UnknownCommand,
    /// Too few tokens, to Tokyo Tyrant, which closed the connection after its answer.
    MissingArguments,
    /// Too few tokens, a token that should be a number and is none, or is out of range, or a key
    /// that is too long.
    BadLine,
    /// A key that is too long, in a line of `get` and its like. memcached ends its answer with an
    /// empty line.
    KeyTooLongToGet,
    /// A time that is no number.
    BadExptime,
    /// An amount to add or to subtract that is no number.
    BadDelta,
    /// The block of data does not end where the line said.
    BadDataChunk,
    /// A meta command with more flags than memcached takes: `mg`.
    TooManyFlagsOfGet,
    /// The same of the others.
    TooManyFlags,
    /// A flag that there is not.
    InvalidFlag,
    /// A flag for the second time.
    DuplicateFlag,
    /// Any fault of a flag, in the words of `md` and `ma`.
    InvalidOrDuplicateFlag,
    /// A flag whose token is no number.
    BadToken,
    /// A key that is no base64.
    BadBase64,
    /// A token of flag `D` that is no number.
    BadDeltaToken,
    /// A token of flag `J` that is no number.
    BadInitialToken,
    /// A token of flag `M` that is not one character.
    BadModeLength,
    /// A mode that `ms` has not.
    BadSetMode,
    /// A mode that `ma` has not.
    BadArithmeticMode,
    /// A token of flag `O` that is too long.
    OpaqueTooLong,
}

impl Error {
    /// The line that answers it.
    #[must_use]
    pub fn reply(self) -> &'static [u8] {
        match self {
            Self::UnknownCommand => reply::ERROR,
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
