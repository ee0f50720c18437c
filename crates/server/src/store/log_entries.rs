//! Log entries: changes of records as requests of the binary protocol.

use cabinet::{Change, Error, Meta, RecordRef, Result};
use wire::binary::{Function, Request, Strings, StringsBuffer};

/// Beginning of the third argument of `misc put` that carries flags (4 bytes) and expiry (8 bytes),
/// both big-endian.
const META_MARK: &[u8] = b"\0tyrant meta\0";

/// Length in bytes from which a longer value is logged as an append.
const APPENDED_TO_BYTES_MIN: usize = 128;

/// Returns where the appended part begins, if the change only appends to a long value. Without
/// this, a list that grows would be logged as a whole each time.
pub(super) fn appended(entry: &RecordRef<'_>, change: &Change) -> Option<usize> {
    match change {
        Change::Put(value, meta)
            if entry.value.len() >= APPENDED_TO_BYTES_MIN
                && meta.expires_at_ms == 0
                && *meta == entry.meta
                && value.len() > entry.value.len()
                && value.starts_with(entry.value) =>
        {
            Some(entry.value.len())
        }
        _ => None,
    }
}

/// Entry of the log for a change of one record.
pub(super) enum LogEntry {
    Nothing,
    /// The client's request, with its success.
    Request(bool),
    /// An append of this to the value.
    Append(Vec<u8>),
    /// The resulting record.
    Put(Vec<u8>, Meta),
    Removal,
}

/// Returns whether a request makes the same change wherever it is replayed. One that adds to a
/// record that will expire does not: a later replay finds no record, and would store the addition
/// for ever. One that stores flags or an expiry cannot be expressed.
pub(super) fn is_exact(
    request: &Request<'_>,
    entry: Option<&RecordRef<'_>>,
    change: &Change,
) -> bool {
    if entry.is_some_and(|entry| entry.meta.expires_at_ms != 0) {
        return false;
    }
    match (change, request) {
        (Change::Put(_, meta), Request::PutKeep { .. }) => *meta == Meta::NONE,
        _ => true,
    }
}

/// Returns the length of the value that a request has, in bytes.
pub(super) fn value_bytes(request: &Request<'_>) -> usize {
    match request {
        Request::PutKeep { value, .. }
        | Request::PutCat { value, .. }
        | Request::PutShift { value, .. } => value.len(),
        _ => 0,
    }
}

/// Returns the same operation on the record under another key.
pub(super) fn with_key<'a>(mut request: Request<'a>, new_key: &'a [u8]) -> Request<'a> {
    match &mut request {
        Request::PutKeep { key, .. }
        | Request::PutCat { key, .. }
        | Request::PutShift { key, .. }
        | Request::AddInt { key, .. }
        | Request::AddDouble { key, .. } => *key = new_key,
        _ => {}
    }
    request
}

/// Calls `take` with the request that stores a record.
pub(crate) fn put_request(key: &[u8], value: &[u8], meta: Meta, take: impl FnOnce(Request<'_>)) {
    if meta == Meta::NONE {
        return take(Request::Put { key, value });
    }
    let mark = [META_MARK, &meta.flags.to_be_bytes(), &meta.expires_at_ms.to_be_bytes()].concat();
    // A record whose arguments are too long would not have been stored.
    let strings = strings(&[key, value, &mark]);
    let arguments = strings.as_ref().map_or(Strings::EMPTY, StringsBuffer::strings);
    take(Request::Misc { function: Function::Put, options: 0, arguments });
}

/// Returns the flags and the expiry that the third argument of a logged `misc put` carries.
pub(crate) fn meta_in(mark: &[u8]) -> Option<Meta> {
    let (flags, expiry) = mark.strip_prefix(META_MARK)?.split_first_chunk::<4>()?;
    let expires_at_ms = u64::from_be_bytes(expiry.try_into().ok()?);
    Some(Meta { flags: u32::from_be_bytes(*flags), expires_at_ms })
}

/// Returns the arguments of a call that is logged. Fails if they do not fit the log.
pub(crate) fn strings(arguments: &[&[u8]]) -> Result<StringsBuffer> {
    let mut strings = StringsBuffer::default();
    for argument in arguments {
        strings.push(argument).map_err(|_| Error::Unsupported {
            operation: "arguments as long or as many as these",
            kind: "the update log",
            advice: "divide them among several calls",
        })?;
    }
    Ok(strings)
}
