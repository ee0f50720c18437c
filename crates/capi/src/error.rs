//! Errors of C: their code, text and advice.

use crate::border::run_plain;
use crate::status::{CABINET_OK, cabinet_error, cabinet_status, name_of};
use std::ffi::c_char;

/// Returns the name of a status in English, such as "not found", for messages. It is never NULL
/// and is not freed.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_status_name(status: cabinet_status) -> *const c_char {
    name_of(status).as_ptr()
}

/// Returns the status that the call with this error has returned. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_error_code(error: *const cabinet_error) -> cabinet_status {
    of_error(error, |error| error.code).unwrap_or(CABINET_OK)
}

/// Returns what failed, in English, with the names and values that it is about. The text ends with
/// a NUL and belongs to the error. It is never NULL, and empty for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_error_text(error: *const cabinet_error) -> *const c_char {
    of_error(error, |error| error.text.as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns what to do about an error, in English; empty if there is no advice. The text ends with
/// a NUL and belongs to the error. It is never NULL, and empty for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_error_advice(error: *const cabinet_error) -> *const c_char {
    of_error(error, |error| error.advice.as_ptr()).unwrap_or(c"".as_ptr())
}

/// Frees an error. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_error_free(error: *mut cabinet_error) {
    run_plain((), |call| {
        drop(call.take(error));
        Ok(())
    });
}

fn of_error<T: 'static>(
    error: *const cabinet_error,
    read: impl FnOnce(&cabinet_error) -> T,
) -> Option<T> {
    run_plain(None, |call| Ok(call.given(error).map(read)))
}

/// Returns the version of the library, such as "0.1.0". It is not freed.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
