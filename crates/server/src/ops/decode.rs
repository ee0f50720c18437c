//! Decoder of Tokyo Tyrant's requests into operations: requests of clients, and those in update
//! logs.
//!
//! The functions of `misc` depend on the kind of database. Operations do not.

use super::conditional::{Action, Counting, Presence, Write};
use super::expiry::expires_at_ms;
use super::number::{Arithmetic, leading_number};
use super::operation::{Columns, KeyList, Model, Operation};
use super::touch::Touch;
use crate::store::{RowMode, meta_in};
use cabinet::name::Kind;
use cabinet::table::SearchRequest;
use cabinet::{Meta, Side};
use wire::binary::{Function, Request, Strings, double_from_parts};

/// The sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    Client,
    /// Another server has executed and logged it. Everything that Tokyo Tyrant accepts is accepted,
    /// even if a client would be refused.
    Log,
}

/// Reason why a request is no operation on records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoOperation {
    /// The request is about the server.
    OfServer,
    /// The database has no such function, or arguments are missing.
    Invalid,
    /// The database has no such function, which would change nothing.
    InvalidRead,
    /// The request would store a row in a database without rows.
    RowOutsideTable,
}

/// Returns the operation that a request asks for.
#[inline]
pub(crate) fn decode<'a>(
    request: &Request<'a>,
    model: Model,
    sender: Sender,
) -> Result<Operation<'a>, NoOperation> {
    let stored = |value| if model.has_rows { row_to_store(value, sender) } else { value };
    Ok(match *request {
        Request::Get { key } => Operation::Get { key },
        Request::Put { key, value } | Request::PutNoReply { key, value } => {
            Operation::put(key, stored(value), Presence::Any)
        }
        Request::PutKeep { key, value } => Operation::put(key, stored(value), Presence::Absent),
        Request::PutCat { key, value } => Operation::append(key, stored(value)),
        Request::PutShift { key, value, width } => {
            let is_logged_row = model.has_rows && sender == Sender::Log;
            let width = width as usize;
            Operation::write(key, Action::Shift { part: value, width, is_logged_row })
        }
        Request::Out { key } => Operation::remove(key),
        Request::GetMany(keys) => Operation::GetMany { keys: KeyList::Strings(keys) },
        Request::ValueSize { key } => Operation::ValueSize { key },
        Request::IterInit => Operation::IterBegin { from: None },
        Request::IterNext => Operation::IterKey,
        Request::KeysWithPrefix { prefix, max } => {
            let max = usize::try_from(max).unwrap_or(usize::MAX);
            Operation::KeysWithPrefix { prefix, max }
        }
        Request::AddInt { key, addend } => Operation::write(key, Action::AddInt(addend)),
        Request::AddDouble { key, integral, fractional } => {
            let addend = double_from_parts(integral, fractional);
            Operation::write(key, Action::AddDouble(addend))
        }
        Request::Count => Operation::Count,
        Request::Sync => Operation::Sync,
        Request::Optimize { parameters } => Operation::Retune { tuning: parameters },
        Request::Vanish => Operation::Clear,
        Request::Misc { function, arguments, .. } => {
            return decode_function(function, arguments, model, sender);
        }
        Request::Size
        | Request::Stat
        | Request::Copy { .. }
        | Request::Restore { .. }
        | Request::SetMaster { .. }
        | Request::Replicate { .. }
        | Request::Follow { .. }
        | Request::Ext { .. } => return Err(NoOperation::OfServer),
    })
}

/// Returns the operation that a call of `misc` asks for.
pub(crate) fn decode_function<'a>(
    function: Function<'a>,
    arguments: Strings<'a>,
    model: Model,
    sender: Sender,
) -> Result<Operation<'a>, NoOperation> {
    let decoded = decode_anywhere(function, arguments, model, sender);
    if exists(function, model.kind) {
        return decoded;
    }
    Err(match decoded {
        Ok(operation) if operation.is_read() => NoOperation::InvalidRead,
        Err(NoOperation::OfServer) => NoOperation::InvalidRead,
        _ => NoOperation::Invalid,
    })
}

/// Does the same, whether the kind of database has the function or not.
fn decode_anywhere<'a>(
    function: Function<'a>,
    arguments: Strings<'a>,
    model: Model,
    sender: Sender,
) -> Result<Operation<'a>, NoOperation> {
    let mut words = arguments.iter();
    let mut next = || words.next();
    let every_value = model.has_duplicates;
    let key = || arguments.iter().next().ok_or(NoOperation::Invalid);
    Ok(match function {
        Function::Put | Function::PutKeep | Function::PutCat => {
            return decode_put(function, arguments, model, sender);
        }
        Function::PutDuplicate | Function::PutDuplicateBack => {
            let (Some(key), Some(value)) = (next(), next()) else {
                return Err(NoOperation::Invalid);
            };
            let is_last = function == Function::PutDuplicate;
            let side = if is_last { Side::After } else { Side::Before };
            if !model.has_duplicates {
                return Err(NoOperation::Invalid);
            }
            Operation::PutDuplicate { key, value, side }
        }
        Function::PutList => {
            let rows = model.has_rows.then_some(sender);
            Operation::PutList { pairs: arguments, adds: every_value, rows }
        }
        Function::Out => Operation::remove(key()?),
        Function::OutList => Operation::RemoveList { keys: arguments, every_value },
        Function::Get if model.has_rows => Operation::GetRow { key: key()? },
        Function::Get if model.has_duplicates => Operation::GetAll { key: key()? },
        Function::Get => Operation::Get { key: key()? },
        Function::GetList => Operation::GetList { keys: arguments, every_value },
        Function::GetPart => {
            let key = key()?;
            next();
            let start = next().map_or(0, leading_number);
            let length = next().map_or(-1, leading_number);
            Operation::GetPart {
                key,
                start: usize::try_from(start).unwrap_or(0),
                length: usize::try_from(length).unwrap_or(usize::MAX),
            }
        }
        Function::IterInit => Operation::IterBegin { from: next() },
        Function::IterNext => Operation::IterRecord,
        Function::Regex => Operation::Match { pattern: key()?, max: maximum(arguments) },
        Function::Range => {
            let (begin, _, end) = (next(), next(), next());
            Operation::Range { begin, max: maximum(arguments), end }
        }
        Function::SetIndex => {
            let is_whole = arguments.len().is_multiple_of(2) || sender == Sender::Log;
            if !model.has_rows || arguments.len() < 2 || !is_whole {
                return Err(NoOperation::Invalid);
            }
            Operation::SetIndices { pairs: arguments }
        }
        Function::Search | Function::MetaSearch => {
            let mut request = SearchRequest::parse(arguments.iter());
            if sender == Sender::Log {
                // Parts that mean nothing are passed over.
                request.flaw = None;
            }
            Operation::Search(Box::new(request))
        }
        Function::GenerateUid => Operation::GenerateUid,
        Function::PutExpiring => {
            let (key, value) = (key()?, words.nth(1).ok_or(NoOperation::Invalid)?);
            let meta = Meta { flags: 0, expires_at_ms: seconds(words.next())? };
            Operation::Write(Write::new(key, Action::put(Presence::Any, value, meta)))
        }
        Function::Touch => {
            let expires_at_ms = Some(seconds(words.nth(1))?);
            Operation::Touch { key: key()?, touch: Touch { expires_at_ms, ..Touch::default() } }
        }
        Function::Expiry => Operation::GetMany { keys: KeyList::Strings(arguments) },
        Function::Increment => {
            let addend = words.nth(1).and_then(whole_number).ok_or(NoOperation::Invalid)?;
            let create = match words.next() {
                None => None,
                Some(initial) => {
                    let initial = whole_number(initial).and_then(|number| number.try_into().ok());
                    let expires_at_ms = words.next().map_or(Ok(0), |text| seconds(Some(text)))?;
                    Some((initial.ok_or(NoOperation::Invalid)?, expires_at_ms))
                }
            };
            let amount = u64::try_from(addend.unsigned_abs()).map_err(|_| NoOperation::Invalid)?;
            let arithmetic = match addend {
                0.. => Arithmetic::Add(amount),
                _ => Arithmetic::Subtract(amount),
            };
            let counting = Counting { arithmetic, create, expires_at_ms: None };
            Operation::Write(Write::new(key()?, Action::Count(counting)))
        }
        Function::Sync => Operation::Sync,
        Function::Optimize => Operation::Retune { tuning: next().unwrap_or_default() },
        Function::Vanish => Operation::Clear,
        Function::Defragment => Operation::Defragment,
        Function::ClearCache => Operation::ClearCache,
        Function::Error
        | Function::Promote
        | Function::Check
        | Function::Reload
        | Function::Login
        | Function::Slow
        | Function::Metrics
        | Function::Replication => return Err(NoOperation::OfServer),
        Function::Unknown(_) => return Err(NoOperation::Invalid),
    })
}

/// Returns the operation of `put`, `putkeep` and `putcat`: a record, or a row.
fn decode_put<'a>(
    function: Function<'a>,
    arguments: Strings<'a>,
    model: Model,
    sender: Sender,
) -> Result<Operation<'a>, NoOperation> {
    let mut words = arguments.iter();
    let key = words.next().ok_or(NoOperation::Invalid)?;
    if model.has_rows {
        let mode = match function {
            Function::PutKeep => RowMode::Keep,
            Function::PutCat => RowMode::Merge,
            _ => RowMode::Replace,
        };
        // Tokyo Tyrant drops a last name without a value. A client gets an error.
        let count = match sender {
            Sender::Log => words.len() / 2 * 2,
            Sender::Client => words.len(),
        };
        return Ok(Operation::PutRow { key, columns: Columns::from(words.take(count)), mode });
    }
    let value = words.next().ok_or(NoOperation::Invalid)?;
    if let Some(third) = words.next() {
        match (sender, function, meta_in(third)) {
            // Clients do not send this, though nothing would be lost.
            (Sender::Log, Function::Put, Some(meta)) if words.next().is_none() => {
                return Ok(Operation::Write(Write::new(
                    key,
                    Action::put(Presence::Any, value, meta),
                )));
            }
            (Sender::Log, ..) => {}
            // The columns of a row, of which all but the first name would be lost.
            (Sender::Client, ..) => return Err(NoOperation::RowOutsideTable),
        }
    }
    Ok(match function {
        Function::PutKeep => Operation::put(key, value, Presence::Absent),
        Function::PutCat => Operation::append(key, value),
        _ => Operation::put(key, value, Presence::Any),
    })
}

/// Returns the row that a put of a value stores.
///
/// Tokyo Tyrant drops a name without a value after the last column, and so does this server. Tokyo
/// Tyrant also drops a name that is all there is, so that nothing is stored; here that is a
/// failure, unless another server has logged it.
pub(crate) fn row_to_store(value: &[u8], sender: Sender) -> &[u8] {
    let is_even = value.iter().filter(|byte| **byte == 0).count() % 2 == 1;
    match value.iter().rposition(|byte| *byte == 0) {
        Some(end) if !is_even => &value[..end],
        None if sender == Sender::Log => b"",
        _ => value,
    }
}

/// Returns the greatest number of records in the second argument, as Tokyo Tyrant reads it: below
/// 1 is all.
fn maximum(arguments: Strings<'_>) -> usize {
    match arguments.iter().nth(1).map_or(0, leading_number) {
        max if max < 1 => usize::MAX,
        max => usize::try_from(max).unwrap_or(usize::MAX),
    }
}

/// Returns whether a kind of database has a function.
fn exists(function: Function<'_>, kind: Kind) -> bool {
    use Kind::{Fixed, Hash, MemoryTree, Table, Tree};
    match function {
        Function::Put
        | Function::PutKeep
        | Function::PutCat
        | Function::PutList
        | Function::Out
        | Function::OutList
        | Function::Get
        | Function::GetList
        | Function::GetPart
        | Function::IterInit
        | Function::IterNext
        | Function::Regex
        | Function::Sync
        | Function::Optimize
        | Function::Vanish
        | Function::Promote
        | Function::Error
        | Function::Check
        | Function::Reload
        | Function::Login
        | Function::Slow
        | Function::Metrics
        | Function::Replication => true,
        Function::Defragment | Function::ClearCache => matches!(kind, Hash | Tree | Table),
        Function::Range => matches!(kind, Tree | MemoryTree | Fixed),
        Function::PutDuplicate | Function::PutDuplicateBack => kind == Tree,
        Function::SetIndex | Function::Search | Function::MetaSearch | Function::GenerateUid => {
            kind == Table
        }
        Function::PutExpiring | Function::Touch | Function::Expiry | Function::Increment => {
            kind != Table
        }
        Function::Unknown(_) => false,
    }
}

/// Returns the expiry that a number of seconds stands for, see [`expires_at_ms`].
fn seconds(text: Option<&[u8]>) -> Result<u64, NoOperation> {
    let seconds = text.and_then(whole_number).ok_or(NoOperation::Invalid)?;
    Ok(expires_at_ms(i64::try_from(seconds).map_err(|_| NoOperation::Invalid)?))
}

/// Returns the number that the whole text is.
fn whole_number(text: &[u8]) -> Option<i128> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
