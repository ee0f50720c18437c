//! Cursors of trees.

use crate::border::{Call, run, run_plain};
use crate::handle::{OwnSlot, cabinet_database, owner};
use crate::record::{CABINET_AFTER, CABINET_BEFORE, Lent, cabinet_record};
use crate::status::{
    CABINET_NOT_FOUND, CABINET_OK, Failure, Result, cabinet_error, cabinet_status,
};
use cabinet_rs::{Cursor, CursorPut};
use std::ffi::c_void;
use std::sync::Arc;

/// Cursor over the records of a tree, each duplicate by itself. It is at a record or, at first and
/// after it has passed an end, at none. It remembers a place, so that writes of others do not
/// invalidate it. A call that fails leaves it where it was. One thread uses it at a time.
pub struct cabinet_cursor {
    owner: Arc<cabinet_database>,
    cursor: OwnSlot<Cursor>,
    lent: Lent,
}

impl cabinet_cursor {
    fn with<T>(&self, work: impl FnOnce(&mut Cursor) -> cabinet_rs::Result<T>) -> Result<T> {
        self.owner.check_process()?;
        self.cursor.with("database of the cursor", |cursor| Ok(work(cursor)?))
    }
}

/// Moves a cursor. A movement returns whether it is at a record then.
fn movement(
    call: &Call,
    cursor: *mut cabinet_cursor,
    work: impl FnOnce(&mut Cursor) -> cabinet_rs::Result<bool>,
) -> Result<cabinet_status> {
    let is_at_record = call.exclusive("cursor", cursor)?.with(work)?;
    Ok(if is_at_record { CABINET_OK } else { CABINET_NOT_FOUND })
}

/// Creates a cursor that is at no record yet.
///
/// @param database A tree (`.tcb`).
/// @param cursor Set to the cursor, which `cabinet_cursor_free` frees.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_UNSUPPORTED; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_cursor_create(
    database: *mut cabinet_database,
    cursor: *mut *mut cabinet_cursor,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let out = call.out("cursor", cursor)?;
        let owner = owner(call, database)?;
        let opened = owner.open()?;
        let cursor = OwnSlot::of(&owner, opened.cursor()?);
        drop(opened);
        out.give(cabinet_cursor { owner, cursor, lent: Lent::default() });
        Ok(CABINET_OK)
    })
}

/// Frees a cursor, before or after its database is closed. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_cursor_free(cursor: *mut cabinet_cursor) {
    run_plain((), |call| {
        drop(call.take(cursor));
        Ok(())
    });
}

/// Moves to the first record.
///
/// @param cursor The cursor.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_FOUND if it is at no record then; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_cursor_first(
    cursor: *mut cabinet_cursor,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| movement(call, cursor, Cursor::first))
}

/// Moves to the last record.
///
/// @param cursor The cursor.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_FOUND if it is at no record then; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_cursor_last(
    cursor: *mut cabinet_cursor,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| movement(call, cursor, Cursor::last))
}

/// Moves to the next record.
///
/// @param cursor The cursor.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_FOUND if it is at no record then; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_cursor_next(
    cursor: *mut cabinet_cursor,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| movement(call, cursor, Cursor::next))
}

/// Moves to the previous record.
///
/// @param cursor The cursor.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_FOUND if it is at no record then; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_cursor_previous(
    cursor: *mut cabinet_cursor,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| movement(call, cursor, Cursor::prev))
}

/// Moves to the first record whose key is at or after a key.
///
/// @param cursor The cursor.
/// @param key The key, `key_length` bytes.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_FOUND if it is at no record then; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_cursor_jump(
    cursor: *mut cabinet_cursor,
    key: *const c_void,
    key_length: usize,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let key = call.bytes("key", key, key_length)?;
        movement(call, cursor, |cursor| cursor.jump(key))
    })
}

/// Moves to the last record whose key is at or before a key.
///
/// @param cursor The cursor.
/// @param key The key, `key_length` bytes.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_FOUND if it is at no record then; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_cursor_jump_back(
    cursor: *mut cabinet_cursor,
    key: *const c_void,
    key_length: usize,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let key = call.bytes("key", key, key_length)?;
        movement(call, cursor, |cursor| cursor.jump_back(key))
    })
}

/// Lends the record at a cursor, as it was when the cursor moved there. Its version, flags and
/// expiry are 0: `cabinet_read_duplicate` has them.
///
/// @param cursor The cursor.
/// @param record Set to the record, which is valid until the next call with the cursor, also if the
///        database is closed meanwhile.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_FOUND if it is at no record; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_cursor_record(
    cursor: *mut cabinet_cursor,
    record: *mut *const cabinet_record,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let out = call.out("record", record)?;
        let cursor = call.exclusive("cursor", cursor)?;
        let copied = cursor.with(|cursor| {
            Ok(cursor.key().zip(cursor.value()).map(|(key, value)| (key.to_vec(), value.to_vec())))
        })?;
        let Some((key, value)) = copied else { return Ok(CABINET_NOT_FOUND) };
        out.set(cursor.lent.lend(key, value, Default::default(), 0));
        Ok(CABINET_OK)
    })
}

/// Replace the value of the record at the cursor.
pub const CABINET_CURRENT: i32 = 2;

/// Stores a value at a cursor.
///
/// @param cursor The cursor.
/// @param value The value, `value_length` bytes.
/// @param place CABINET_CURRENT to replace the value; CABINET_BEFORE or CABINET_AFTER to insert a
///        value of the same key, to which the cursor moves.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_FOUND if it is at no record, or that was removed; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_cursor_put(
    cursor: *mut cabinet_cursor,
    value: *const c_void,
    value_length: usize,
    place: i32,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let place = match place {
            CABINET_CURRENT => CursorPut::Current,
            CABINET_BEFORE => CursorPut::Before,
            CABINET_AFTER => CursorPut::After,
            other => {
                let text = format!("place {other} is unknown: pass one of the header");
                return Err(Failure::invalid(text));
            }
        };
        let value = call.bytes("value", value, value_length)?;
        movement(call, cursor, |cursor| cursor.put(value, place))
    })
}

/// Removes the record at a cursor, which moves to the one after it.
///
/// @param cursor The cursor.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_FOUND if it was at no record; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_cursor_remove(
    cursor: *mut cabinet_cursor,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| movement(call, cursor, Cursor::remove))
}
