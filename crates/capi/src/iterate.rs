//! Iteration: iterators over all records, a range or a prefix, forwards and backwards, and
//! functions that are called with each record.

use crate::border::{Context, run, run_plain};
use crate::handle::{Opened, OwnSlot, cabinet_database, owner};
use crate::options::cabinet_iterate_options;
use crate::record::{Lent, cabinet_record, cabinet_visit, function};
use crate::status::{
    CABINET_NOT_FOUND, CABINET_OK, CABINET_STOPPED, CABINET_UNSUPPORTED, Failure, Result,
    cabinet_error, cabinet_status,
};
use cabinet_rs::{Cursor, KeyOrder, Meta, Record, RecordRef, ScanCursor};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// From the end to the beginning. Trees (`.tcb`) only.
pub const CABINET_ITERATE_REVERSE: u32 = 1;
/// Only the keys: values are empty, and need not be read.
pub const CABINET_ITERATE_KEYS: u32 = 2;
/// Without the record that `begin` names.
pub const CABINET_ITERATE_AFTER_BEGIN: u32 = 4;
/// With the record that `end` names.
pub const CABINET_ITERATE_WITH_END: u32 = 8;

const FLAGS: u32 = CABINET_ITERATE_REVERSE
    | CABINET_ITERATE_KEYS
    | CABINET_ITERATE_AFTER_BEGIN
    | CABINET_ITERATE_WITH_END;

/// Iterator over records. It locks nothing, so writes go on: a record that exists throughout is
/// returned once, other records at most once. A call that fails leaves it where it was. One thread
/// uses it at a time.
pub struct cabinet_iterator {
    owner: Arc<cabinet_database>,
    limits: Limits,
    has_values: bool,
    source: Source,
    lent: Lent,
}

enum Source {
    /// Records read ahead, and the position after them, if there may be more.
    Forwards(VecDeque<Record>, Option<ScanCursor>),
    /// The cursor is at the record that was returned last, or is not placed yet.
    Backwards { cursor: OwnSlot<Cursor>, is_placed: bool },
}

/// Keys of an iteration.
enum Limits {
    All,
    Prefix { prefix: Vec<u8>, is_sorted: bool },
    Range { order: KeyOrder, begin: Bound<Vec<u8>>, end: Bound<Vec<u8>> },
}

impl Limits {
    /// Compares a key with the limits: before, within or after them.
    fn side(&self, key: &[u8]) -> Ordering {
        match self {
            Self::All => Ordering::Equal,
            Self::Prefix { prefix, .. } if key.starts_with(prefix) => Ordering::Equal,
            Self::Prefix { prefix, is_sorted: true } => key.cmp(prefix),
            // Keys with the prefix may still come.
            Self::Prefix { .. } => Ordering::Less,
            Self::Range { order, begin, end } => {
                let is_before = match begin {
                    Bound::Included(begin) => order.compare(key, begin).is_lt(),
                    Bound::Excluded(begin) => order.compare(key, begin).is_le(),
                    Bound::Unbounded => false,
                };
                let is_after = match end {
                    Bound::Included(end) => order.compare(key, end).is_gt(),
                    Bound::Excluded(end) => order.compare(key, end).is_ge(),
                    Bound::Unbounded => false,
                };
                match (is_before, is_after) {
                    (_, true) => Ordering::Greater,
                    (true, false) => Ordering::Less,
                    (false, false) => Ordering::Equal,
                }
            }
        }
    }

    /// Returns the position at which a scan begins.
    fn position(&self, database: &Opened) -> ScanCursor {
        match self {
            Self::Prefix { prefix, is_sorted: true } => database.scan_cursor_of(prefix),
            Self::Range { begin: Bound::Included(key) | Bound::Excluded(key), .. } => {
                database.scan_cursor_of(key)
            }
            _ => ScanCursor::Start,
        }
    }

    /// Moves a cursor to the last record that may be within the limits.
    fn place(&self, cursor: &mut Cursor) -> cabinet_rs::Result<bool> {
        match self {
            Self::Prefix { prefix, .. } => match after_prefix(prefix) {
                Some(key) => cursor.jump_back(&key),
                None => cursor.last(),
            },
            Self::Range { end: Bound::Included(key) | Bound::Excluded(key), .. } => {
                cursor.jump_back(key)
            }
            _ => cursor.last(),
        }
    }
}

/// Returns the first key after all keys with a prefix, in lexical order; `None` if there is none.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}

impl cabinet_iterator {
    fn next(&mut self) -> Result<Option<*const cabinet_record>> {
        let Self { owner, limits, has_values, source, lent } = self;
        // Also for records that were read ahead.
        let database = owner.open()?;
        match source {
            Source::Forwards(ready, position) => loop {
                if let Some(Record { key, value, meta, version }) = ready.pop_front() {
                    return Ok(Some(lent.lend(key, value, meta, version)));
                }
                let Some(from) = position else { return Ok(None) };
                let mut is_past = false;
                let next = if *has_values {
                    database.scan(from, |entry| match limits.side(entry.key) {
                        Ordering::Less => {}
                        Ordering::Equal => ready.push_back(entry.into()),
                        Ordering::Greater => is_past = true,
                    })
                } else {
                    database.scan_keys(from, |key| match limits.side(key) {
                        Ordering::Less => {}
                        Ordering::Equal => {
                            let (key, meta) = (key.to_vec(), Meta::NONE);
                            ready.push_back(Record { key, value: Vec::new(), meta, version: 0 });
                        }
                        Ordering::Greater => is_past = true,
                    })
                };
                if next.is_err() {
                    // The next call reads them again.
                    ready.clear();
                }
                *position = next?.filter(|_| !is_past);
            },
            Source::Backwards { cursor, is_placed } => {
                cursor.with("database of the iterator", |cursor| {
                    let mut is_there =
                        if *is_placed { cursor.prev()? } else { limits.place(cursor)? };
                    *is_placed = true;
                    while is_there {
                        let (Some(key), Some(value)) = (cursor.key(), cursor.value()) else {
                            break;
                        };
                        match limits.side(key) {
                            Ordering::Less => break,
                            Ordering::Equal => {
                                let value = if *has_values { value.to_vec() } else { Vec::new() };
                                return Ok(Some(lent.lend(key.to_vec(), value, Meta::NONE, 0)));
                            }
                            Ordering::Greater => is_there = cursor.prev()?,
                        }
                    }
                    Ok(None)
                })
            }
        }
    }
}

/// Creates an iterator over all records, those of a range, or those whose keys have a prefix.
/// Kinds in order (trees, tables, `+`, fixed-length) return them in the order of keys, others in
/// an order of their own, for which `cabinet_for_each` is faster.
///
/// @param database The database. A transaction's own changes are not seen.
/// @param options The range, the prefix and the direction; NULL for all records.
/// @param iterator Set to the iterator, which `cabinet_iterator_free` frees.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_UNSUPPORTED for a range without an order, or backwards in another
///         kind than a tree; CABINET_INVALID; or another error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_iterate(
    database: *mut cabinet_database,
    options: *const cabinet_iterate_options,
    iterator: *mut *mut cabinet_iterator,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let out = call.out("iterator", iterator)?;
        let options = call.options("options", options)?;
        if options.flags & !FLAGS != 0 || options.reserved != 0 {
            let text = "the flags of the iteration are unknown: pass those of the header";
            return Err(Failure::invalid(text));
        }
        let has = |flag: u32| options.flags & flag != 0;
        let bound = |name: &str, key: *const c_void, length: usize, is_open: bool| {
            let bytes = call.bytes(name, key, length)?.to_vec();
            Ok::<_, Failure>(match (key.is_null(), is_open) {
                (true, _) => Bound::Unbounded,
                (false, true) => Bound::Excluded(bytes),
                (false, false) => Bound::Included(bytes),
            })
        };
        let owner = owner(call, database)?;
        let opened = owner.open()?;
        let is_after_begin = has(CABINET_ITERATE_AFTER_BEGIN);
        let begin = bound("begin", options.begin, options.begin_length, is_after_begin)?;
        let is_before_end = !has(CABINET_ITERATE_WITH_END);
        let end = bound("end", options.end, options.end_length, is_before_end)?;
        let prefix = call.bytes("prefix", options.prefix, options.prefix_length)?;
        let limits = match (&begin, &end) {
            (Bound::Unbounded, Bound::Unbounded) if prefix.is_empty() => Limits::All,
            (Bound::Unbounded, Bound::Unbounded) => Limits::Prefix {
                prefix: prefix.to_vec(),
                is_sorted: opened.order() == Some(KeyOrder::Lexical),
            },
            _ if !prefix.is_empty() => {
                let text = "a prefix and a range exclude each other: set one of them";
                return Err(Failure::invalid(text));
            }
            _ => {
                // It fails if the keys have no order.
                drop(opened.range::<&[u8]>(..)?);
                Limits::Range { order: opened.order().unwrap_or_default(), begin, end }
            }
        };
        let source = if has(CABINET_ITERATE_REVERSE) {
            if let Limits::Prefix { is_sorted: false, .. } = limits {
                let text = "keys with a prefix are not together in this order of keys: \
                            iterate forwards";
                return Err(Failure::new(CABINET_UNSUPPORTED, text));
            }
            Source::Backwards { cursor: OwnSlot::of(&owner, opened.cursor()?), is_placed: false }
        } else {
            Source::Forwards(VecDeque::new(), Some(limits.position(&opened)))
        };
        drop(opened);
        let has_values = !has(CABINET_ITERATE_KEYS);
        out.give(cabinet_iterator { owner, limits, has_values, source, lent: Lent::default() });
        Ok(CABINET_OK)
    })
}

/// Moves an iterator to the next record, and lends it.
///
/// @param iterator The iterator.
/// @param record Set to the record, which is valid until the next call with the iterator, also if
///        the database is closed meanwhile. Backwards, and with CABINET_ITERATE_KEYS, its version,
///        flags and expiry are 0.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_FOUND at the end; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_iterator_next(
    iterator: *mut cabinet_iterator,
    record: *mut *const cabinet_record,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let out = call.out("record", record)?;
        let next = call.exclusive("iterator", iterator)?.next()?;
        let Some(record) = next else { return Ok(CABINET_NOT_FOUND) };
        out.set(record);
        Ok(CABINET_OK)
    })
}

/// Frees an iterator, before or after its database is closed. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_iterator_free(iterator: *mut cabinet_iterator) {
    run_plain((), |call| {
        drop(call.take(iterator));
        Ok(())
    });
}

/// Lends each record to a function, in the fastest order for the kind of database. In a tree that
/// is the order of keys. Writers are not delayed.
///
/// @param database The database. A transaction's own changes are not seen.
/// @param visit Called with each record, until it returns another number than 0.
/// @param context Handed to `visit`.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_STOPPED; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_for_each(
    database: *mut cabinet_database,
    visit: cabinet_visit,
    context: *mut c_void,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let visit = function(visit)?;
        let database = call.handle("database", database)?.open()?;
        let mut visitor = Visitor { visit, context: Context(context), status: CABINET_OK };
        database.for_each(|entry| visitor.call(entry))?;
        Ok(visitor.status)
    })
}

/// Lends each record whose key matches a pattern to a function. Reads all records.
///
/// @param database The database. A transaction's own changes are not seen.
/// @param pattern A POSIX extended regular expression, `pattern_length` bytes. A leading `*`
///        ignores case.
/// @param visit Called with each record, until it returns another number than 0.
/// @param context Handed to `visit`.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_STOPPED; CABINET_INVALID for a wrong pattern; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_for_each_match(
    database: *mut cabinet_database,
    pattern: *const c_void,
    pattern_length: usize,
    visit: cabinet_visit,
    context: *mut c_void,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let visit = function(visit)?;
        let pattern = call.bytes("pattern", pattern, pattern_length)?;
        let database = call.handle("database", database)?.open()?;
        let mut visitor = Visitor { visit, context: Context(context), status: CABINET_OK };
        database.for_each_match(pattern, |entry| visitor.call(entry))?;
        Ok(visitor.status)
    })
}

/// Calls a function of the caller's until it ends the iteration.
struct Visitor {
    visit: extern "C" fn(*mut c_void, *const cabinet_record) -> i32,
    context: Context,
    status: cabinet_status,
}

impl Visitor {
    fn call(&mut self, entry: RecordRef<'_>) -> ControlFlow<()> {
        if (self.visit)(self.context.0, &entry.into()) == 0 {
            return ControlFlow::Continue(());
        }
        self.status = CABINET_STOPPED;
        ControlFlow::Break(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_after_a_prefix_is_the_first_without_it() {
        assert_eq!(after_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after_prefix(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(after_prefix(b"\xff\xff"), None);
    }
}
