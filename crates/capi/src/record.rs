//! Single records: reads, writes, and changes that depend on the record.

use crate::border::{Context, run};
use crate::handle::cabinet_database;
use crate::options::cabinet_put_options;
use crate::status::{
    CABINET_BUFFER_TOO_SMALL, CABINET_CHANGED, CABINET_EXISTS, CABINET_NOT_FOUND, CABINET_OK,
    CABINET_STOPPED, Failure, Result, cabinet_error, cabinet_status,
};
use cabinet_rs::{Change, Meta, RecordRef, Side, Swap};
use std::ffi::{c_char, c_void};

/// A record that the library lends to the caller. The caller does not free it. Later versions add
/// members at the end, so it is not copied by its size.
#[repr(C)]
pub struct cabinet_record {
    /// The key. Not NULL, no NUL after it.
    pub key: *const c_char,
    /// Bytes of the key.
    pub key_length: usize,
    /// The value, decompressed. Not NULL, no NUL after it.
    pub value: *const c_char,
    /// Bytes of the value.
    pub value_length: usize,
    /// Number of its last change: unique within the database, never 0. 0 where a function says so.
    pub version: u64,
    /// Milliseconds since the Unix epoch at which it ceases to exist; 0 is never.
    pub expires_at_ms: u64,
    /// Flags without a meaning for the database.
    pub flags: u32,
}

impl cabinet_record {
    /// Returns a record whose pointers are those of the slices.
    pub(crate) fn of(key: &[u8], value: &[u8], meta: Meta, version: u64) -> Self {
        Self {
            key: key.as_ptr().cast(),
            key_length: key.len(),
            value: value.as_ptr().cast(),
            value_length: value.len(),
            version,
            expires_at_ms: meta.expires_at_ms,
            flags: meta.flags,
        }
    }
}

impl From<RecordRef<'_>> for cabinet_record {
    fn from(entry: RecordRef<'_>) -> Self {
        Self::of(entry.key, entry.value, entry.meta, entry.version)
    }
}

/// Record of an object of C's that was lent last. It outlives the closing of the database.
#[derive(Default)]
pub(crate) struct Lent {
    key: Vec<u8>,
    value: Vec<u8>,
    /// Pointers to the vectors. It is in a box so that it stays in place.
    record: Option<Box<cabinet_record>>,
}

impl Lent {
    /// Lends a record in place of the last one.
    pub(crate) fn lend(
        &mut self,
        key: Vec<u8>,
        value: Vec<u8>,
        meta: Meta,
        version: u64,
    ) -> *const cabinet_record {
        (self.key, self.value) = (key, value);
        let record = cabinet_record::of(&self.key, &self.value, meta, version);
        std::ptr::from_ref(&**self.record.insert(Box::new(record)))
    }
}

/// Function of the caller's that gets a record, which is valid until it returns, and the context
/// that the caller has given. It returns 0 to go on, or another number to end the call. It must
/// not call the database, unless the function that takes it allows that, and must not leave by
/// `longjmp` or an exception.
pub type cabinet_visit =
    Option<extern "C" fn(context: *mut c_void, record: *const cabinet_record) -> i32>;

/// Returns a function of the caller's.
pub(crate) fn function<T>(function: Option<T>) -> Result<T> {
    function.ok_or_else(|| Failure::invalid("the function is NULL: pass one"))
}

/// Store whatever record there is.
pub const CABINET_PUT_ALWAYS: i32 = 0;
/// Store if the key has no record.
pub const CABINET_PUT_IF_ABSENT: i32 = 1;
/// Store if the key has a record.
pub const CABINET_PUT_IF_PRESENT: i32 = 2;

impl cabinet_put_options {
    pub(crate) fn meta(&self) -> Meta {
        Meta { flags: self.flags, expires_at_ms: self.expires_at_ms }
    }

    /// Returns the flags and the expiry, for a function that has no condition.
    pub(crate) fn only_meta(&self) -> Result<Meta> {
        if self.condition != CABINET_PUT_ALWAYS {
            let text = "this function takes no condition: set it to 0";
            return Err(Failure::invalid(text));
        }
        Ok(self.meta())
    }
}

/// Returns a copy of the value of a key.
///
/// @param database The database, or a transaction.
/// @param key The key, `key_length` bytes.
/// @param value Set to the value with a NUL after it, which `cabinet_free` frees; to NULL unless
///        the result is CABINET_OK.
/// @param value_length Set to the bytes of the value, without the NUL; may be NULL.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_FOUND; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_get(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    value: *mut *mut c_char,
    value_length: *mut usize,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let out = call.out("value", value)?;
        out.set(std::ptr::null_mut());
        let key = call.bytes("key", key, key_length)?;
        let database = call.handle("database", database)?.open()?;
        let copied = database.read(key, |entry| (call.allocate(entry.value), entry.value.len()))?;
        let Some((copy, length)) = copied else { return Ok(CABINET_NOT_FOUND) };
        out.set(copy?);
        call.put(value_length, length);
        Ok(CABINET_OK)
    })
}

/// Copies the value of a key into a buffer of the caller's.
///
/// @param database The database, or a transaction.
/// @param key The key, `key_length` bytes.
/// @param buffer The buffer, `capacity` bytes. No NUL is added.
/// @param value_length Set to the bytes of the value, also if the buffer is too small.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_FOUND; CABINET_BUFFER_TOO_SMALL, and nothing was copied; or an
///         error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_get_into(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    buffer: *mut c_void,
    capacity: usize,
    value_length: *mut usize,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let out = call.out("value_length", value_length)?;
        let key = call.bytes("key", key, key_length)?;
        let database = call.handle("database", database)?.open()?;
        let copied = database.read(key, |entry| {
            (call.fill("buffer", buffer, capacity, entry.value), entry.value.len())
        })?;
        let Some((is_filled, length)) = copied else { return Ok(CABINET_NOT_FOUND) };
        out.set(length);
        Ok(if is_filled? { CABINET_OK } else { CABINET_BUFFER_TOO_SMALL })
    })
}

/// Lends the record of a key to a function, without a copy of a value that is stored as it is.
///
/// @param database The database, or a transaction.
/// @param key The key, `key_length` bytes.
/// @param visit Called with the record. Its result is not used.
/// @param context Handed to `visit`.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_FOUND, and `visit` was not called; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_read(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    visit: cabinet_visit,
    context: *mut c_void,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let visit = function(visit)?;
        let key = call.bytes("key", key, key_length)?;
        let database = call.handle("database", database)?.open()?;
        let context = Context(context);
        let read = database.read(key, |entry| visit(context.0, &entry.into()))?;
        Ok(if read.is_some() { CABINET_OK } else { CABINET_NOT_FOUND })
    })
}

/// Returns the length of the value of a key.
///
/// @param database The database, or a transaction.
/// @param key The key, `key_length` bytes.
/// @param value_length Set to the bytes of the value.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_FOUND; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_value_size(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    value_length: *mut usize,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let out = call.out("value_length", value_length)?;
        let key = call.bytes("key", key, key_length)?;
        let size = call.handle("database", database)?.open()?.value_size(key)?;
        let Some(size) = size else { return Ok(CABINET_NOT_FOUND) };
        out.set(size);
        Ok(CABINET_OK)
    })
}

/// Stores a record, and replaces the one that the key has.
///
/// @param database The database, or a transaction.
/// @param key The key, `key_length` bytes, at most 65,536.
/// @param value The value, `value_length` bytes, at most 1 GiB. In a table: names and values of
///        columns in turn, joined by NUL.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_put(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let key = call.bytes("key", key, key_length)?;
        let value = call.bytes("value", value, value_length)?;
        call.handle("database", database)?.open()?.put(key, value)?;
        Ok(CABINET_OK)
    })
}

/// Stores a record with flags, an expiry and a condition.
///
/// @param database The database, or a transaction.
/// @param key The key, `key_length` bytes, at most 65,536.
/// @param value The value, `value_length` bytes, at most 1 GiB.
/// @param options Flags, expiry and condition; NULL for none.
/// @param version Set to the version of the new record; may be NULL.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_EXISTS with CABINET_PUT_IF_ABSENT; CABINET_NOT_FOUND with
///         CABINET_PUT_IF_PRESENT; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_put_with(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
    options: *const cabinet_put_options,
    version: *mut u64,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let options = call.options("options", options)?;
        let key = call.bytes("key", key, key_length)?;
        let value = call.bytes("value", value, value_length)?;
        let database = call.handle("database", database)?.open()?;
        let (wants_present, otherwise) = match options.condition {
            CABINET_PUT_ALWAYS => {
                call.put(version, database.put_with(key, value, options.meta())?);
                return Ok(CABINET_OK);
            }
            CABINET_PUT_IF_ABSENT => (false, CABINET_EXISTS),
            CABINET_PUT_IF_PRESENT => (true, CABINET_NOT_FOUND),
            other => {
                let text = format!("condition {other} is unknown: pass one of the header");
                return Err(Failure::invalid(text));
            }
        };
        let (status, stored) = database.modify_versioned(key, |entry| {
            if entry.is_some() == wants_present {
                (Change::Put(value.to_vec(), options.meta()), CABINET_OK)
            } else {
                (Change::Keep, otherwise)
            }
        })?;
        if status == CABINET_OK {
            call.put(version, stored);
        }
        Ok(status)
    })
}

/// Stores a record if the key has none: `cabinet_put_with` with CABINET_PUT_IF_ABSENT.
///
/// @param database The database, or a transaction.
/// @param key The key, `key_length` bytes.
/// @param value The value, `value_length` bytes.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_EXISTS, and nothing was stored; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_add(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let key = call.bytes("key", key, key_length)?;
        let value = call.bytes("value", value, value_length)?;
        let database = call.handle("database", database)?.open()?;
        let is_stored = database.put_keep(key, value, Meta::NONE)?;
        Ok(if is_stored { CABINET_OK } else { CABINET_EXISTS })
    })
}

/// Appends to the value of a key, which keeps its flags and expiry. Stores a record if there is
/// none. In a table, adds the columns that the row lacks.
///
/// @param database The database, or a transaction.
/// @param key The key, `key_length` bytes.
/// @param suffix The bytes to append, `suffix_length`.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_append(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    suffix: *const c_void,
    suffix_length: usize,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let key = call.bytes("key", key, key_length)?;
        let suffix = call.bytes("suffix", suffix, suffix_length)?;
        call.handle("database", database)?.open()?.put_cat(key, suffix)?;
        Ok(CABINET_OK)
    })
}

/// Removes a record, or a row. In a tree, the first of the key's values.
///
/// @param database The database, or a transaction.
/// @param key The key, `key_length` bytes.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_FOUND; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_remove(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let key = call.bytes("key", key, key_length)?;
        let is_removed = call.handle("database", database)?.open()?.remove(key)?;
        Ok(if is_removed { CABINET_OK } else { CABINET_NOT_FOUND })
    })
}

/// Adds to a little-endian 32-bit integer, which wraps. Stores the addend if there is no record.
/// In a table, adds to the column `_num`, as text.
///
/// @param database The database, or a transaction.
/// @param key The key, `key_length` bytes.
/// @param addend The number to add.
/// @param sum Set to the sum; may be NULL.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_A_NUMBER if the value is not of 4 bytes; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_add_int(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    addend: i32,
    sum: *mut i32,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let key = call.bytes("key", key, key_length)?;
        let added = call.handle("database", database)?.open()?.add_int(key, addend)?;
        call.put(sum, added);
        Ok(CABINET_OK)
    })
}

/// Adds to a little-endian IEEE 754 double. Stores the addend if there is no record. In a table,
/// adds to the column `_num`, as text.
///
/// @param database The database, or a transaction.
/// @param key The key, `key_length` bytes.
/// @param addend The number to add.
/// @param sum Set to the sum; may be NULL.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_A_NUMBER if the value is not of 8 bytes, or the sum would not be
///         a number; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_add_double(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    addend: f64,
    sum: *mut f64,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let key = call.bytes("key", key, key_length)?;
        let added = call.handle("database", database)?.open()?.add_double(key, addend)?;
        call.put(sum, added);
        Ok(CABINET_OK)
    })
}

/// Stores a record if the one that the key has is of a version, which a read has returned.
///
/// @param database The database, or a transaction.
/// @param key The key, `key_length` bytes.
/// @param version The version that the record must have.
/// @param value The new value, `value_length` bytes.
/// @param options Flags and expiry of the new record; NULL for none. No condition.
/// @param stored_version Set to the version of the new record; may be NULL.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_CHANGED if the record has another version; CABINET_NOT_FOUND; or an
///         error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_compare_and_swap(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    version: u64,
    value: *const c_void,
    value_length: usize,
    options: *const cabinet_put_options,
    stored_version: *mut u64,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let meta = call.options("options", options)?.only_meta()?;
        let key = call.bytes("key", key, key_length)?;
        let value = call.bytes("value", value, value_length)?;
        let database = call.handle("database", database)?.open()?;
        Ok(match database.compare_and_swap(key, version, value, meta)? {
            Swap::Stored(stored) => {
                call.put(stored_version, stored);
                CABINET_OK
            }
            Swap::Changed => CABINET_CHANGED,
            Swap::Missing => CABINET_NOT_FOUND,
        })
    })
}

/// Sets the expiry of a record.
///
/// @param database The database, or a transaction.
/// @param key The key, `key_length` bytes.
/// @param expires_at_ms Milliseconds since the Unix epoch at which it ceases to exist; 0 is never.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_FOUND; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_touch(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    expires_at_ms: u64,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let key = call.bytes("key", key, key_length)?;
        let is_touched = call.handle("database", database)?.open()?.touch(key, expires_at_ms)?;
        Ok(if is_touched { CABINET_OK } else { CABINET_NOT_FOUND })
    })
}

/// Leave the record as it is.
pub const CABINET_MODIFY_KEEP: i32 = 0;
/// Store the replacement.
pub const CABINET_MODIFY_PUT: i32 = 1;
/// Remove the record.
pub const CABINET_MODIFY_REMOVE: i32 = 2;

/// Record that a function for `cabinet_modify` wants to be stored. The library has set the flags
/// and the expiry to those of the record, or to 0. Later versions add members at the end.
#[repr(C)]
pub struct cabinet_replacement {
    /// The new value, which is read after the function has returned, and is not freed.
    pub value: *const c_void,
    /// Bytes of the value.
    pub value_length: usize,
    /// Milliseconds since the Unix epoch at which the record ceases to exist; 0 is never.
    pub expires_at_ms: u64,
    /// Flags without a meaning for the database.
    pub flags: u32,
}

/// Function of the caller's that decides about a record: it gets the context, the record (NULL if
/// there is none) and a replacement, which it fills for CABINET_MODIFY_PUT. It returns a
/// CABINET_MODIFY. It must not call the database, and may be called again if another writer was
/// faster.
pub type cabinet_decide = Option<
    extern "C" fn(
        context: *mut c_void,
        record: *const cabinet_record,
        replacement: *mut cabinet_replacement,
    ) -> i32,
>;

/// Changes a record atomically: no other change of the key comes between the reading and the
/// writing.
///
/// @param database The database, or a transaction.
/// @param key The key, `key_length` bytes.
/// @param decide Called with the record.
/// @param context Handed to `decide`.
/// @param version Set to the version of the stored record, 0 if none was stored; may be NULL.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_modify(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    decide: cabinet_decide,
    context: *mut c_void,
    version: *mut u64,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let decide = function(decide)?;
        let key = call.bytes("key", key, key_length)?;
        let database = call.handle("database", database)?.open()?;
        let context = Context(context);
        let change = |entry: Option<RecordRef<'_>>| {
            let meta = entry.map_or(Meta::NONE, |entry| entry.meta);
            let record = entry.map(cabinet_record::from);
            let mut replacement = cabinet_replacement {
                value: std::ptr::null(),
                value_length: 0,
                expires_at_ms: meta.expires_at_ms,
                flags: meta.flags,
            };
            let lent = record.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            match decide(context.0, lent, &raw mut replacement) {
                CABINET_MODIFY_KEEP => Ok(Change::Keep),
                CABINET_MODIFY_REMOVE => Ok(Change::Remove),
                CABINET_MODIFY_PUT => {
                    let (value, length) = (replacement.value, replacement.value_length);
                    let value = call.bytes("the value of the replacement", value, length)?;
                    let cabinet_replacement { flags, expires_at_ms, .. } = replacement;
                    Ok(Change::Put(value.to_vec(), Meta { flags, expires_at_ms }))
                }
                other => {
                    let text = format!("the function returned {other}: return a CABINET_MODIFY");
                    Err(Failure::invalid(text))
                }
            }
        };
        let (outcome, stored) = database.modify_versioned(key, |entry| match change(entry) {
            Ok(change) => (change, Ok(CABINET_OK)),
            Err(failure) => (Change::Keep, Err(failure)),
        })?;
        call.put(version, stored);
        outcome
    })
}

/// Before the values that the key has.
pub const CABINET_BEFORE: i32 = 0;
/// After the values that the key has.
pub const CABINET_AFTER: i32 = 1;

/// Stores one more value of a key. Trees (`.tcb`) only.
///
/// @param database A tree.
/// @param key The key, `key_length` bytes.
/// @param value The value, `value_length` bytes.
/// @param side CABINET_BEFORE or CABINET_AFTER.
/// @param options Flags and expiry of this value; NULL for none. No condition.
/// @param version Set to the version of the new value; may be NULL.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_UNSUPPORTED; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_put_duplicate(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
    side: i32,
    options: *const cabinet_put_options,
    version: *mut u64,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let side = match side {
            CABINET_BEFORE => Side::Before,
            CABINET_AFTER => Side::After,
            other => {
                let text = format!("side {other} is unknown: pass one of the header");
                return Err(Failure::invalid(text));
            }
        };
        let meta = call.options("options", options)?.only_meta()?;
        let key = call.bytes("key", key, key_length)?;
        let value = call.bytes("value", value, value_length)?;
        let database = call.handle("database", database)?.open()?;
        call.put(version, database.put_duplicate_with(key, value, meta, side)?);
        Ok(CABINET_OK)
    })
}

/// Lends one of the values of a key to a function. Trees only.
///
/// @param database A tree.
/// @param key The key, `key_length` bytes.
/// @param index Number of the value, from 0.
/// @param visit Called with the record. Its result is not used.
/// @param context Handed to `visit`.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_FOUND if the key has fewer values; CABINET_UNSUPPORTED; or an
///         error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_read_duplicate(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    index: usize,
    visit: cabinet_visit,
    context: *mut c_void,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let visit = function(visit)?;
        let key = call.bytes("key", key, key_length)?;
        let database = call.handle("database", database)?.open()?;
        let context = Context(context);
        let read = database.read_duplicate(key, index, |entry| visit(context.0, &entry.into()))?;
        Ok(if read.is_some() { CABINET_OK } else { CABINET_NOT_FOUND })
    })
}

/// Returns copies of all values of a key to a function, in order, with version 0. Trees only. The
/// function may call the database.
///
/// @param database A tree.
/// @param key The key, `key_length` bytes.
/// @param visit Called with each value, until it returns another number than 0.
/// @param context Handed to `visit`.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, also for no value; CABINET_STOPPED; CABINET_UNSUPPORTED; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_for_each_duplicate(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    visit: cabinet_visit,
    context: *mut c_void,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let visit = function(visit)?;
        let key = call.bytes("key", key, key_length)?;
        let handle = call.handle("database", database)?;
        let values = handle.open()?.get_all(key)?;
        let context = Context(context);
        let is_stopped = values
            .iter()
            .any(|value| visit(context.0, &cabinet_record::of(key, value, Meta::NONE, 0)) != 0);
        Ok(if is_stopped { CABINET_STOPPED } else { CABINET_OK })
    })
}

/// Returns the number of values that a key has. Trees only.
///
/// @param database A tree.
/// @param key The key, `key_length` bytes.
/// @param count Set to the number.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, also for 0; CABINET_UNSUPPORTED; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_count_duplicates(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    count: *mut usize,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let out = call.out("count", count)?;
        let key = call.bytes("key", key, key_length)?;
        out.set(call.handle("database", database)?.open()?.count(key)?);
        Ok(CABINET_OK)
    })
}

/// Removes all values of a key. Trees only.
///
/// @param database A tree.
/// @param key The key, `key_length` bytes.
/// @param removed Set to their number; may be NULL.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, also for none; CABINET_UNSUPPORTED; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_remove_duplicates(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    removed: *mut usize,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let key = call.bytes("key", key, key_length)?;
        let count = call.handle("database", database)?.open()?.remove_all(key)?;
        call.put(removed, count);
        Ok(CABINET_OK)
    })
}
