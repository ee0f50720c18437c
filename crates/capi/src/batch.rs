//! Batches.

use crate::border::{run, run_plain};
use crate::handle::cabinet_database;
use crate::options::cabinet_put_options;
use crate::status::{CABINET_OK, cabinet_error, cabinet_status};
use cabinet_rs::Batch;
use std::ffi::c_void;

/// Changes that are written together or not at all, and versions that records must have first. One
/// thread uses it at a time.
pub struct cabinet_batch(Batch);

/// Creates an empty batch, which `cabinet_batch_free` frees.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_batch_create() -> *mut cabinet_batch {
    let mut batch = std::ptr::null_mut();
    let place = &raw mut batch;
    run_plain((), |call| {
        call.out("batch", place)?.give(cabinet_batch(Batch::new()));
        Ok(())
    });
    batch
}

/// Frees a batch. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_batch_free(batch: *mut cabinet_batch) {
    run_plain((), |call| {
        drop(call.take(batch));
        Ok(())
    });
}

/// Removes all changes and conditions from a batch, so that it can be used again. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_batch_clear(batch: *mut cabinet_batch) {
    run_plain((), |call| {
        call.exclusive("batch", batch)?.0 = Batch::new();
        Ok(())
    });
}

/// Returns the number of changes in a batch; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_batch_length(batch: *const cabinet_batch) -> usize {
    run_plain(0, |call| Ok(call.handle("batch", batch)?.0.changes().len()))
}

/// Adds a record to store. A later change of the same key wins. Lengths are checked by
/// `cabinet_write`.
///
/// @param batch The batch.
/// @param key The key, `key_length` bytes, which is copied.
/// @param value The value, `value_length` bytes, which is copied.
/// @param options Flags and expiry; NULL for none. No condition.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_batch_put(
    batch: *mut cabinet_batch,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
    options: *const cabinet_put_options,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let meta = call.options("options", options)?.only_meta()?;
        let key = call.bytes("key", key, key_length)?;
        let value = call.bytes("value", value, value_length)?;
        call.exclusive("batch", batch)?.0.put(key, value, meta);
        Ok(CABINET_OK)
    })
}

/// Adds a record to remove, if it exists.
///
/// @param batch The batch.
/// @param key The key, `key_length` bytes, which is copied.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_batch_remove(
    batch: *mut cabinet_batch,
    key: *const c_void,
    key_length: usize,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let key = call.bytes("key", key, key_length)?;
        call.exclusive("batch", batch)?.0.remove(key);
        Ok(CABINET_OK)
    })
}

/// Adds a condition: the batch is written only if a record has this version.
///
/// @param batch The batch.
/// @param key The key, `key_length` bytes, which is copied.
/// @param version The version; 0 if there must be no record.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_batch_expect(
    batch: *mut cabinet_batch,
    key: *const c_void,
    key_length: usize,
    version: u64,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let key = call.bytes("key", key, key_length)?;
        let version = Some(version).filter(|version| *version != 0);
        call.exclusive("batch", batch)?.0.expect(key, version);
        Ok(CABINET_OK)
    })
}

/// Writes all changes of a batch, or none. The batch stays as it is.
///
/// @param database The database, or a transaction.
/// @param batch The batch, which no thread changes meanwhile.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_CONFLICT if a condition does not hold; CABINET_TOO_LONG; or another
///         error. After an error nothing was written.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_write(
    database: *mut cabinet_database,
    batch: *const cabinet_batch,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let batch = call.handle("batch", batch)?;
        call.handle("database", database)?.open()?.write(&batch.0)?;
        Ok(CABINET_OK)
    })
}
