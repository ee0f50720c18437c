//! The whole database: size, durability, checks, copies.

use crate::border::{Context, run};
use crate::handle::cabinet_database;
use crate::open::{
    CABINET_DURABILITY_ALWAYS, CABINET_DURABILITY_INTERVAL, CABINET_DURABILITY_NONE, number_of,
};
use crate::record::function;
use crate::status::{
    CABINET_OK, CABINET_STOPPED, Failure, c_string, cabinet_error, cabinet_status,
};
use cabinet_rs::{Damage, Durability};
use std::ffi::{c_char, c_void};
use std::os::unix::ffi::OsStrExt;

/// Returns the number of records. Expired ones count until they are removed.
///
/// @param database The database.
/// @param count Set to the number.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_count(
    database: *mut cabinet_database,
    count: *mut u64,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let out = call.out("count", count)?;
        out.set(call.handle("database", database)?.open()?.len());
        Ok(CABINET_OK)
    })
}

/// Returns the size of a database: on the disk, or in memory for one in memory.
///
/// @param database The database.
/// @param size_bytes Set to the size, in bytes.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_size_bytes(
    database: *mut cabinet_database,
    size_bytes: *mut u64,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let out = call.out("size_bytes", size_bytes)?;
        out.set(call.handle("database", database)?.open()?.size_bytes());
        Ok(CABINET_OK)
    })
}

/// Returns the kind of a database.
///
/// @param database The database.
/// @param kind Set to a CABINET_KIND.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_kind(
    database: *mut cabinet_database,
    kind: *mut i32,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let out = call.out("kind", kind)?;
        out.set(number_of(call.handle("database", database)?.open()?.kind()));
        Ok(CABINET_OK)
    })
}

/// Returns a copy of the path of a database; "*" or "+" for one in memory.
///
/// @param database The database.
/// @param path Set to the path with a NUL after it, which `cabinet_free` frees; to NULL after an
///        error.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_path(
    database: *mut cabinet_database,
    path: *mut *mut c_char,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let out = call.out("path", path)?;
        out.set(std::ptr::null_mut());
        let path = call.handle("database", database)?.open()?.path();
        out.set(call.allocate(path.as_os_str().as_bytes())?);
        Ok(CABINET_OK)
    })
}

/// Function of the caller's that gets a statistic: the context, its name and its value, which end
/// with a NUL and are valid until it returns. It returns 0 to go on. It may call the database.
pub type cabinet_visit_statistic =
    Option<extern "C" fn(context: *mut c_void, name: *const c_char, value: *const c_char) -> i32>;

/// Calls a function with each statistic of a database. Names may be added in later versions.
///
/// @param database The database.
/// @param visit Called with each, until it returns another number than 0.
/// @param context Handed to `visit`.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_STOPPED; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_stats(
    database: *mut cabinet_database,
    visit: cabinet_visit_statistic,
    context: *mut c_void,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let visit = function(visit)?;
        let stats = call.handle("database", database)?.open()?.stats();
        let context = Context(context);
        for (name, value) in stats {
            let (name, value) = (c_string(name), c_string(&value));
            if visit(context.0, name.as_ptr(), value.as_ptr()) != 0 {
                return Ok(CABINET_STOPPED);
            }
        }
        Ok(CABINET_OK)
    })
}

/// Removes all records. Indices of a table are kept.
///
/// @param database The database.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_clear(
    database: *mut cabinet_database,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        call.handle("database", database)?.open()?.clear()?;
        Ok(CABINET_OK)
    })
}

/// Makes everything that was written durable.
///
/// @param database The database.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_sync(
    database: *mut cabinet_database,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        call.handle("database", database)?.open()?.sync()?;
        Ok(CABINET_OK)
    })
}

/// Returns the durability with which a database was opened.
///
/// @param database The database.
/// @param durability Set to a CABINET_DURABILITY.
/// @param interval_ms Set to the milliseconds of the interval, 0 without one; may be NULL.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_durability(
    database: *mut cabinet_database,
    durability: *mut i32,
    interval_ms: *mut u64,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let out = call.out("durability", durability)?;
        let (number, interval) = match call.handle("database", database)?.open()?.durability() {
            Durability::None => (CABINET_DURABILITY_NONE, 0),
            Durability::Interval(milliseconds) => (CABINET_DURABILITY_INTERVAL, milliseconds),
            Durability::Always => (CABINET_DURABILITY_ALWAYS, 0),
        };
        out.set(number);
        call.put(interval_ms, interval);
        Ok(CABINET_OK)
    })
}

/// Returns positions in the log of a database, in bytes since it was opened; 0 for one in memory.
///
/// @param database The database.
/// @param appended Set to the position after every write that has returned; may be NULL.
/// @param durable Set to the position before which everything is durable; may be NULL.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_log_position(
    database: *mut cabinet_database,
    appended: *mut u64,
    durable: *mut u64,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let database = call.handle("database", database)?.open()?;
        // In this order, the second one is never the greater.
        let position = database.durable();
        call.put(appended, database.appended());
        call.put(durable, position);
        Ok(CABINET_OK)
    })
}

/// Waits until a position of the log is durable.
///
/// @param database The database.
/// @param position A position that `cabinet_log_position` has returned after a write.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_INVALID for a position that is not reached yet; CABINET_POISONED or
///         CABINET_IO if a sync fails; or another error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_wait_durable(
    database: *mut cabinet_database,
    position: u64,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let database = call.handle("database", database)?.open()?;
        let appended = database.appended();
        if position > appended {
            return Err(Failure::invalid(format!(
                "the position {position} is after the end of the log, {appended}: \
                 pass one that cabinet_log_position has returned"
            )));
        }
        database.wait_durable(position)?;
        Ok(CABINET_OK)
    })
}

/// Gives back all dead space, and returns when that is done. Readers and writers go on.
///
/// @param database The database.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_optimize(
    database: *mut cabinet_database,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        call.handle("database", database)?.open()?.optimize()?;
        Ok(CABINET_OK)
    })
}

/// Writes a consistent copy, while others write. It is opened like the database; that of a
/// database in memory as a hash (`.tch`) or a tree (`.tcb`).
///
/// @param database The database, not a transaction.
/// @param path Path of the copy, which must not exist; it ends with a NUL.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_UNSUPPORTED; CABINET_IO; or another error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_backup(
    database: *mut cabinet_database,
    path: *const c_char,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let path = call.path("path", path)?;
        call.handle("database", database)?.open()?.copy_to(path)?;
        Ok(CABINET_OK)
    })
}

/// Function of the caller's that gets a damaged place: the context, the path of the file, the byte
/// at which the damage begins, and what it is. The texts end with a NUL and are valid until it
/// returns.
pub type cabinet_visit_damage = Option<
    extern "C" fn(
        context: *mut c_void,
        file: *const c_char,
        offset: u64,
        description: *const c_char,
    ),
>;

/// Returns the function that passes damage on.
fn passing(visit: cabinet_visit_damage, context: *mut c_void) -> impl FnMut(Damage) {
    let context = Context(context);
    move |damage: Damage| {
        if let Some(visit) = visit {
            let file = c_string(&damage.file.to_string_lossy());
            let what = c_string(&damage.what);
            visit(context.0, file.as_ptr(), damage.offset, what.as_ptr());
        }
    }
}

/// Verifies every checksum of a database that no process has open. Changes nothing.
///
/// @param path Path of the database, which ends with a NUL.
/// @param visit Called with each damaged place; NULL to count them only.
/// @param context Handed to `visit`.
/// @param damages Set to the number of damaged places; may be NULL.
/// @param records Set to the number of records that were read, dead ones included; may be NULL.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK if all files could be read, however damaged they are; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_check(
    path: *const c_char,
    visit: cabinet_visit_damage,
    context: *mut c_void,
    damages: *mut u64,
    records: *mut u64,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let path = call.path("path", path)?;
        let checked = cabinet_rs::check(path, &mut passing(visit, context))?;
        call.put(damages, checked.damages);
        call.put(records, checked.records);
        Ok(CABINET_OK)
    })
}

/// Verifies every checksum of a database while it is in use, which delays no other call.
///
/// @param database The database. One in memory has no checksums.
/// @param bytes_per_second Maximum bytes to read per second; 0 for no limit.
/// @param visit Called with each damaged place; NULL to count them only. It must not call the
///        database.
/// @param context Handed to `visit`.
/// @param damages Set to the number of damaged places; may be NULL.
/// @param records Set to the number of records that were read, dead ones included; may be NULL.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK if all files could be read, however damaged they are; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_verify(
    database: *mut cabinet_database,
    bytes_per_second: u64,
    visit: cabinet_visit_damage,
    context: *mut c_void,
    damages: *mut u64,
    records: *mut u64,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let handle = call.handle("database", database)?;
        let database = handle.open()?;
        let rate = if bytes_per_second == 0 { u64::MAX } else { bytes_per_second };
        let mut go_on = |_: &cabinet_rs::Verified| Some(rate);
        let mut report = passing(visit, context);
        let verified = handle.visiting(|| database.verify(&mut go_on, &mut report))?;
        call.put(damages, verified.checked.damages);
        call.put(records, verified.checked.records);
        Ok(CABINET_OK)
    })
}

/// Copies all records of a damaged database that can be read, which no process has open, into
/// another database. Writes nothing to the damaged one.
///
/// @param path Path of the damaged database, which ends with a NUL.
/// @param into An open database; for a table, a table.
/// @param visit Called with each damaged place; may be NULL. It must not call the database.
/// @param context Handed to `visit`.
/// @param copied Set to the number of changes, records or rows that were copied; may be NULL.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_salvage(
    path: *const c_char,
    into: *mut cabinet_database,
    visit: cabinet_visit_damage,
    context: *mut c_void,
    copied: *mut u64,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let path = call.path("path", path)?;
        let handle = call.handle("into", into)?;
        let into = handle.open()?;
        let mut report = passing(visit, context);
        let salvaged = handle.visiting(|| cabinet_rs::salvage(path, &into, &mut report))?;
        call.put(copied, salvaged.changes);
        Ok(CABINET_OK)
    })
}
