//! Operation: the body of an entry.

use crate::binary::{Function, MISC_HEAD, Request, Strings, encode_logged, parse_logged, peek_key};
use crate::{Invalid, Parse};

/// Function of `misc` that only logs have: its arguments are the bodies of operations that are
/// executed together. Tokyo Tyrant does not know it.
const TRANSACTION: Function<'static> = Function::Unknown(b"transaction");

/// Request that changes records, and whether it succeeded.
///
/// The log also has requests that failed, as in Tokyo Tyrant: a server that executes the log finds
/// out whether they fail there too.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation<'a> {
    /// Request that was executed. The options of `misc` are not in the log, and read as 0.
    pub request: Request<'a>,
    /// Whether it succeeded.
    pub succeeded: bool,
}

impl<'a> Operation<'a> {
    /// Parses the body of an entry: a request, and a byte that is 0 if it succeeded and 1 if not.
    /// [`Invalid::UnknownCommand`] for requests that are never in a log.
    pub fn parse(body: &'a [u8]) -> Result<Self, Invalid> {
        let Some((status, bytes)) = body.split_last() else { return Err(Invalid::BadParameters) };
        let succeeded = match status {
            0 => true,
            1 => false,
            _ => return Err(Invalid::BadParameters),
        };
        match parse_logged(bytes) {
            Parse::Complete(request, length) if length == bytes.len() => {
                if !is_logged(&request) {
                    return Err(Invalid::UnknownCommand);
                }
                Ok(Self { request, succeeded })
            }
            Parse::Complete(..) | Parse::Incomplete(_) => Err(Invalid::BadParameters),
            Parse::Invalid(invalid) => Err(invalid),
        }
    }

    /// Returns the operation that executes others together, given as their bodies.
    pub fn transaction(bodies: Strings<'a>) -> Self {
        let request = Request::Misc { function: TRANSACTION, options: 0, arguments: bodies };
        Self { request, succeeded: true }
    }

    /// Returns the bodies of the operations that this one executes together, if it is a
    /// [`transaction`](Self::transaction).
    pub fn parts(&self) -> Option<Strings<'a>> {
        match self.request {
            Request::Misc { function: TRANSACTION, arguments, .. } => Some(arguments),
            _ => None,
        }
    }

    /// Returns the count of the parts of a [`transaction`](Self::transaction) and the offset of the
    /// first one in the body, by the beginning of the body. `None` for any other operation. Before
    /// each part is its length: 4 bytes, big-endian.
    pub fn peek_parts(body: &[u8]) -> Option<(u32, usize)> {
        let name = TRANSACTION.name();
        let (length, rest) = body.strip_prefix(&MISC_HEAD)?.split_first_chunk()?;
        let (count, rest) = rest.split_first_chunk()?;
        let rest = rest.strip_prefix(name)?;
        let is_transaction = u32::from_be_bytes(*length) as usize == name.len();
        is_transaction.then_some((u32::from_be_bytes(*count), body.len() - rest.len()))
    }

    /// Returns the key of a body that changes one record by a command of its own, without parsing
    /// the body. `None` for any other body, and for one whose key is not complete.
    pub fn peek_key(body: &[u8]) -> Option<&[u8]> {
        peek_key(body)
    }

    /// Appends the operation to `out`, as [`Operation::parse`] reads it. Operations that `parse`
    /// refuses are refused here too, and `out` stays as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Invalid> {
        if !is_logged(&self.request) {
            return Err(Invalid::UnknownCommand);
        }
        encode_logged(&self.request, out)?;
        out.push(u8::from(!self.succeeded));
        Ok(())
    }
}

/// Returns whether a request can be in an update log, where `putnr` is logged as `put`.
fn is_logged(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::Put { .. }
            | Request::PutKeep { .. }
            | Request::PutCat { .. }
            | Request::PutShift { .. }
            | Request::Out { .. }
            | Request::AddInt { .. }
            | Request::AddDouble { .. }
            | Request::Sync
            | Request::Optimize { .. }
            | Request::Vanish
            | Request::Misc { .. }
    )
}
