//! Rows of tables, and the indices.

use crate::border::{run, run_plain};
use crate::handle::{Opened, cabinet_database};
use crate::status::{
    CABINET_EXISTS, CABINET_NOT_FOUND, CABINET_OK, CABINET_UNSUPPORTED, Failure, Result,
    cabinet_error, cabinet_status,
};
use cabinet_rs::table::{IndexChange, IndexKind, Row, Table};
use std::ffi::{c_char, c_void};

/// A row of a table: values by the names of their columns. One thread changes it at a time.
pub struct cabinet_row(pub(crate) Row);

/// Returns the table of a database.
pub(crate) fn table(database: &Opened) -> Result<&Table> {
    database.table().ok_or_else(|| {
        let text = "rows are not for this kind of database, or for a transaction: \
                    open a table (.tct); in a transaction put columns joined by NUL";
        Failure::new(CABINET_UNSUPPORTED, text)
    })
}

/// Creates a row without columns, which `cabinet_row_free` frees.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_row_create() -> *mut cabinet_row {
    let mut row = std::ptr::null_mut();
    let place = &raw mut row;
    run_plain((), |call| {
        call.out("row", place)?.give(cabinet_row(Row::new()));
        Ok(())
    });
    row
}

/// Frees a row. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_row_free(row: *mut cabinet_row) {
    run_plain((), |call| {
        drop(call.take(row));
        Ok(())
    });
}

/// Sets the value of a column.
///
/// @param row The row.
/// @param name Name of the column, `name_length` bytes, 1 to 32,768.
/// @param value The value, `value_length` bytes.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_INVALID for a wrong name.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_row_set(
    row: *mut cabinet_row,
    name: *const c_void,
    name_length: usize,
    value: *const c_void,
    value_length: usize,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let name = call.bytes("name", name, name_length)?;
        let value = call.bytes("value", value, value_length)?;
        call.exclusive("row", row)?.0.set(name, value)?;
        Ok(CABINET_OK)
    })
}

/// Removes a column.
///
/// @param row The row.
/// @param name Name of the column, `name_length` bytes.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_FOUND; or CABINET_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_row_remove(
    row: *mut cabinet_row,
    name: *const c_void,
    name_length: usize,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let name = call.bytes("name", name, name_length)?;
        let is_removed = call.exclusive("row", row)?.0.remove(name);
        Ok(if is_removed { CABINET_OK } else { CABINET_NOT_FOUND })
    })
}

/// Lends the value of a column.
///
/// @param row The row.
/// @param name Name of the column, `name_length` bytes.
/// @param value Set to the value, which is valid until the row is changed or freed. No NUL is after
///        it.
/// @param value_length Set to the bytes of the value.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_FOUND; or CABINET_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_row_get(
    row: *const cabinet_row,
    name: *const c_void,
    name_length: usize,
    value: *mut *const c_char,
    value_length: *mut usize,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let (out, out_length) =
            (call.out("value", value)?, call.out("value_length", value_length)?);
        let name = call.bytes("name", name, name_length)?;
        let Some(value) = call.handle("row", row)?.0.get(name) else {
            return Ok(CABINET_NOT_FOUND);
        };
        out.set(value.as_ptr().cast());
        out_length.set(value.len());
        Ok(CABINET_OK)
    })
}

/// Returns the number of columns of a row; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_row_length(row: *const cabinet_row) -> usize {
    run_plain(0, |call| Ok(call.handle("row", row)?.0.len()))
}

/// Lends a column of a row by its number, in the order in which the columns were added.
///
/// @param row The row.
/// @param index Number of the column, from 0.
/// @param name Set to its name, which is valid until the row is changed or freed.
/// @param name_length Set to the bytes of the name.
/// @param value Set to its value, which is valid as long.
/// @param value_length Set to the bytes of the value.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_FOUND if the row has fewer columns; or CABINET_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_row_column(
    row: *const cabinet_row,
    index: usize,
    name: *mut *const c_char,
    name_length: *mut usize,
    value: *mut *const c_char,
    value_length: *mut usize,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let (out_name, out_value) = (call.out("name", name)?, call.out("value", value)?);
        let name_length = call.out("name_length", name_length)?;
        let value_length = call.out("value_length", value_length)?;
        let Some((name, value)) = call.handle("row", row)?.0.columns().nth(index) else {
            return Ok(CABINET_NOT_FOUND);
        };
        out_name.set(name.as_ptr().cast());
        name_length.set(name.len());
        out_value.set(value.as_ptr().cast());
        value_length.set(value.len());
        Ok(CABINET_OK)
    })
}

/// Stores a row, and replaces the one that the primary key has.
///
/// @param database A table (`.tct`).
/// @param key The primary key, `key_length` bytes, at most 32,768.
/// @param row The row, which no thread changes meanwhile.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_UNSUPPORTED; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_row_put(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    row: *const cabinet_row,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let key = call.bytes("key", key, key_length)?;
        let row = call.handle("row", row)?;
        let database = call.handle("database", database)?.open()?;
        let table = table(&database)?;
        table.put(key, &row.0)?;
        database.acknowledge()?;
        Ok(CABINET_OK)
    })
}

/// Stores a row if the primary key has none.
///
/// @param database A table.
/// @param key The primary key, `key_length` bytes.
/// @param row The row, which no thread changes meanwhile.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_EXISTS, and nothing was stored; CABINET_UNSUPPORTED; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_row_add(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    row: *const cabinet_row,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let key = call.bytes("key", key, key_length)?;
        let row = call.handle("row", row)?;
        let database = call.handle("database", database)?.open()?;
        let table = table(&database)?;
        let is_stored = table.put_keep(key, &row.0)?;
        database.acknowledge()?;
        Ok(if is_stored { CABINET_OK } else { CABINET_EXISTS })
    })
}

/// Returns a copy of the row under a primary key. `cabinet_remove` removes it.
///
/// @param database A table.
/// @param key The primary key, `key_length` bytes.
/// @param row Set to the row, which `cabinet_row_free` frees; to NULL unless the result is
///        CABINET_OK.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_NOT_FOUND; CABINET_UNSUPPORTED; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_row_read(
    database: *mut cabinet_database,
    key: *const c_void,
    key_length: usize,
    row: *mut *mut cabinet_row,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let out = call.out("row", row)?;
        out.set(std::ptr::null_mut());
        let key = call.bytes("key", key, key_length)?;
        let database = call.handle("database", database)?.open()?;
        let Some(row) = table(&database)?.get(key)? else { return Ok(CABINET_NOT_FOUND) };
        out.give(cabinet_row(row));
        Ok(CABINET_OK)
    })
}

/// Returns a new identifier for a primary key: 1 in a new table, and later always a greater one,
/// also after a crash.
///
/// @param database A table.
/// @param identifier Set to the identifier.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_UNSUPPORTED; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_generate_id(
    database: *mut cabinet_database,
    identifier: *mut u64,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let out = call.out("identifier", identifier)?;
        let database = call.handle("database", database)?.open()?;
        out.set(table(&database)?.generate_uid()?);
        Ok(CABINET_OK)
    })
}

/// Index by the bytes of the values.
pub const CABINET_INDEX_LEXICAL: i32 = 0;
/// Index by the values as numbers.
pub const CABINET_INDEX_DECIMAL: i32 = 1;
/// Index by each token of the values.
pub const CABINET_INDEX_TOKEN: i32 = 2;
/// Index of full text, by every three characters.
pub const CABINET_INDEX_GRAM: i32 = 3;
/// Build a new index even if the column has one of this kind.
pub const CABINET_INDEX_REBUILD: u32 = 1;

/// Builds the index of a column, in place of one of another kind. Other threads may write and
/// search meanwhile.
///
/// @param database A table.
/// @param column Name of the column, `column_length` bytes; none for the primary key.
/// @param kind A CABINET_INDEX.
/// @param flags CABINET_INDEX_REBUILD, or 0: an index of the same kind is kept.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_UNSUPPORTED; CABINET_REENTRANT in a callback; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_index_set(
    database: *mut cabinet_database,
    column: *const c_void,
    column_length: usize,
    kind: i32,
    flags: u32,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let kind = match kind {
            CABINET_INDEX_LEXICAL => IndexKind::Lexical,
            CABINET_INDEX_DECIMAL => IndexKind::Decimal,
            CABINET_INDEX_TOKEN => IndexKind::Token,
            CABINET_INDEX_GRAM => IndexKind::Gram,
            other => {
                let text = format!("index {other} is unknown: pass one of the header");
                return Err(Failure::invalid(text));
            }
        };
        if flags & !CABINET_INDEX_REBUILD != 0 {
            return Err(Failure::invalid("the flags are unknown: pass those of the header"));
        }
        let column = call.bytes("column", column, column_length)?;
        let database = call.handle("database", database)?.open()?;
        let table = table(&database)?;
        let is_same =
            |index: &cabinet_rs::IndexDescription| index.column == column && index.kind == kind;
        if flags & CABINET_INDEX_REBUILD != 0 || !table.indices().iter().any(is_same) {
            table.set_index(column, IndexChange::Set(kind))?;
            database.acknowledge()?;
        }
        Ok(CABINET_OK)
    })
}

/// Removes the index of a column.
///
/// @param database A table.
/// @param column Name of the column, `column_length` bytes; none for the primary key.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_INDEX if there is none; CABINET_UNSUPPORTED; CABINET_REENTRANT in a
///         callback; or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_index_remove(
    database: *mut cabinet_database,
    column: *const c_void,
    column_length: usize,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let column = call.bytes("column", column, column_length)?;
        let database = call.handle("database", database)?.open()?;
        let table = table(&database)?;
        table.set_index(column, IndexChange::Remove)?;
        database.acknowledge()?;
        Ok(CABINET_OK)
    })
}
