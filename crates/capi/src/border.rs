//! The border to C: all unsafe code of this crate.
//!
//! A [`Call`] exists only while a function of the header is being executed. The header states for
//! all of them:
//!
//! - a pointer is NULL, or is valid until the call returns for its bytes, its structure, or the
//!   result that is written to it;
//! - a handle is NULL, or is one that the library returned and that was not freed since;
//! - nobody writes to memory that a call reads, and nobody touches a place that it writes to.
//!
//! So the blocks below rely on the contract of the call, and references that they return end with
//! the call. NULL and lengths that no memory has are errors.

use crate::options::{cabinet_iterate_options, cabinet_open_options, cabinet_put_options};
use crate::status::cabinet_status;
use crate::status::{CABINET_INTERNAL, CABINET_NO_MEMORY, Failure, Result, cabinet_error};
use std::ffi::{CStr, c_char, c_void};
use std::mem::size_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// A call from C, which lasts until its function returns.
pub(crate) struct Call(());

/// A place of the caller's that takes a result.
pub(crate) struct Out<T>(*mut T);

/// Context of a callback: a pointer of the caller's, which the library only hands back.
#[derive(Clone, Copy)]
pub(crate) struct Context(pub(crate) *mut c_void);

/// Structure of the caller's whose first member is its size in bytes, so that it may grow.
///
/// # Safety
///
/// It is `repr(C)`, begins with a `usize`, and any bytes are a value of it.
pub(crate) unsafe trait Sizeable: Default {}

// SAFETY: numbers and pointers, the first of them a `usize`, in the order of C.
unsafe impl Sizeable for cabinet_open_options {}
// SAFETY: as above.
unsafe impl Sizeable for cabinet_put_options {}
// SAFETY: as above.
unsafe impl Sizeable for cabinet_iterate_options {}

/// Executes a call. Its failure, or its panic, is written to `error` unless that is NULL. Returns
/// its status.
pub(crate) fn run(
    error: *mut *mut cabinet_error,
    operation: impl FnOnce(&Call) -> Result<cabinet_status>,
) -> cabinet_status {
    let call = Call(());
    let (status, written) = match caught(&call, operation) {
        Ok(status) => (status, std::ptr::null_mut()),
        Err(failure) if error.is_null() => return failure.code(),
        Err(failure) => (failure.code(), Box::into_raw(Box::new(failure.into_error()))),
    };
    if !error.is_null() {
        Out(error).set(written);
    }
    status
}

/// Executes a call without an error of C, which returns `otherwise` if it fails.
pub(crate) fn run_plain<T>(otherwise: T, operation: impl FnOnce(&Call) -> Result<T>) -> T {
    caught(&Call(()), operation).unwrap_or(otherwise)
}

fn caught<T>(call: &Call, operation: impl FnOnce(&Call) -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(|| operation(call))).unwrap_or_else(|panic| {
        let texts =
            [panic.downcast_ref::<&str>().copied(), panic.downcast_ref().map(String::as_str)];
        let text = texts.into_iter().flatten().next().unwrap_or("a panic");
        let text = format!("a defect of this library ({text}): please report it");
        Err(Failure::new(CABINET_INTERNAL, text))
    })
}

/// Returns the failure of a pointer that is NULL.
fn null(name: &str) -> Failure {
    Failure::invalid(format!("{name} is NULL: pass a pointer"))
}

impl Call {
    /// Returns bytes of the caller's. NULL is allowed for no bytes.
    pub(crate) fn bytes<'c>(
        &'c self,
        name: &str,
        pointer: *const c_void,
        length: usize,
    ) -> Result<&'c [u8]> {
        if length == 0 {
            return Ok(&[]);
        }
        if pointer.is_null() {
            return Err(Failure::invalid(format!(
                "{name} is NULL and its length is {length}: pass a pointer, or the length 0"
            )));
        }
        if isize::try_from(length).is_err() {
            return Err(Failure::invalid(format!(
                "the length {length} of {name} is longer than any memory: pass the right one"
            )));
        }
        // SAFETY: the caller's pointer is valid for this many bytes during the call, and no slice
        // is longer than `isize::MAX`.
        Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), length) })
    }

    /// Returns a text of the caller's that ends with a NUL.
    pub(crate) fn text<'c>(&'c self, name: &str, pointer: *const c_char) -> Result<&'c str> {
        self.c_str(name, pointer)?.to_str().map_err(|_| {
            Failure::invalid(format!("{name} is not UTF-8: pass text in this encoding"))
        })
    }

    /// Returns a path of the caller's, in any encoding.
    pub(crate) fn path<'c>(&'c self, name: &str, pointer: *const c_char) -> Result<&'c Path> {
        use std::os::unix::ffi::OsStrExt;
        let bytes = self.c_str(name, pointer)?.to_bytes();
        Ok(Path::new(std::ffi::OsStr::from_bytes(bytes)))
    }

    fn c_str<'c>(&'c self, name: &str, pointer: *const c_char) -> Result<&'c CStr> {
        if pointer.is_null() {
            return Err(null(name));
        }
        // SAFETY: the caller's pointer is valid up to a NUL during the call.
        Ok(unsafe { CStr::from_ptr(pointer) })
    }

    /// Returns the object of a handle; `None` for NULL.
    pub(crate) fn given<T>(&self, handle: *const T) -> Option<&T> {
        // SAFETY: a handle that is not NULL is one of the library's that was not freed. Only
        // exclusive handles are ever borrowed by `exclusive`.
        unsafe { handle.as_ref() }
    }

    /// Returns the object of a handle. NULL is an error.
    pub(crate) fn handle<'c, T>(&'c self, name: &str, handle: *const T) -> Result<&'c T> {
        self.given(handle).ok_or_else(|| null(name))
    }

    /// Returns the object of a handle that one thread uses at a time.
    #[expect(clippy::mut_from_ref, reason = "the object is not the call's, which is its lifetime")]
    pub(crate) fn exclusive<'c, T>(&'c self, name: &str, handle: *mut T) -> Result<&'c mut T> {
        // SAFETY: as in `given`; the header states that no other call uses it meanwhile.
        unsafe { handle.as_mut() }.ok_or_else(|| null(name))
    }

    /// Takes the object of a handle back; `None` for NULL.
    pub(crate) fn take<T>(&self, handle: *mut T) -> Option<Box<T>> {
        // SAFETY: a handle that is not NULL came from `Out::give` and was not freed. It is not
        // used after the call that frees it.
        (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
    }

    /// Takes the object of a shared handle back; `None` for NULL.
    pub(crate) fn take_shared<T>(&self, handle: *mut T) -> Option<Arc<T>> {
        // SAFETY: as in `take`, for a handle from `Out::share`.
        (!handle.is_null()).then(|| unsafe { Arc::from_raw(handle.cast_const()) })
    }

    /// Returns another owner of the object of a shared handle.
    pub(crate) fn shared<T>(&self, name: &str, handle: *const T) -> Result<Arc<T>> {
        if handle.is_null() {
            return Err(null(name));
        }
        // SAFETY: as in `given`, for a handle from `Out::share`, whose own count stays as it is.
        unsafe {
            Arc::increment_strong_count(handle);
            Ok(Arc::from_raw(handle))
        }
    }

    /// Returns the options of the caller's; the defaults for NULL. Members that its version of the
    /// structure lacks have their defaults. Members that this library does not know must be 0.
    pub(crate) fn options<T: Sizeable>(&self, name: &str, options: *const T) -> Result<T> {
        let mut known = T::default();
        if options.is_null() {
            return Ok(known);
        }
        // SAFETY: the structure begins with its size, and is valid for that many bytes.
        let size = unsafe { options.cast::<usize>().read_unaligned() };
        let fewest = size_of::<usize>();
        if size < fewest || size > SIZE_MAX {
            return Err(Failure::invalid(format!(
                "the size of {name} is {size}: set it to sizeof, and all other members to 0 first"
            )));
        }
        let all = self.bytes(name, options.cast(), size)?;
        let (read, further) = all.split_at(size.min(size_of::<T>()));
        if further.iter().any(|byte| *byte != 0) {
            return Err(Failure::invalid(format!(
                "{name} has a setting that this version of the library does not know: update it"
            )));
        }
        // SAFETY: `read` is no longer than the structure, of which any bytes are a value.
        unsafe {
            let into = std::ptr::from_mut(&mut known).cast::<u8>();
            into.copy_from_nonoverlapping(read.as_ptr(), read.len());
        }
        Ok(known)
    }

    /// Returns a place for a result. NULL is an error.
    pub(crate) fn out<T>(&self, name: &str, pointer: *mut T) -> Result<Out<T>> {
        if pointer.is_null() { Err(null(name)) } else { Ok(Out(pointer)) }
    }

    /// Writes a result, unless the pointer is NULL.
    pub(crate) fn put<T>(&self, pointer: *mut T, value: T) {
        if !pointer.is_null() {
            Out(pointer).set(value);
        }
    }

    /// Copies bytes into a buffer of the caller's, if it has room for them. Returns whether it
    /// had.
    pub(crate) fn fill(
        &self,
        name: &str,
        buffer: *mut c_void,
        capacity: usize,
        bytes: &[u8],
    ) -> Result<bool> {
        if bytes.len() > capacity {
            return Ok(false);
        }
        if !bytes.is_empty() {
            if buffer.is_null() {
                return Err(null(name));
            }
            // SAFETY: the buffer is valid for `capacity` bytes, and no memory of the library's.
            unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        Ok(true)
    }

    /// Returns a copy of bytes that `cabinet_free` frees, with a NUL after them.
    pub(crate) fn allocate(&self, bytes: &[u8]) -> Result<*mut c_char> {
        // SAFETY: `malloc` takes any size, and its result is checked.
        let memory = unsafe { libc::malloc(bytes.len() + 1) }.cast::<u8>();
        if memory.is_null() {
            let text = format!("no memory for a value of {} bytes: free some", bytes.len());
            return Err(Failure::new(CABINET_NO_MEMORY, text));
        }
        // SAFETY: the new memory has room for the bytes and the NUL.
        unsafe {
            memory.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            memory.add(bytes.len()).write(0);
        }
        Ok(memory.cast())
    }
}

/// Largest size of a structure of options that is believed.
const SIZE_MAX: usize = 4096;

impl<T> Out<T> {
    /// Writes the result.
    pub(crate) fn set(&self, value: T) {
        // SAFETY: the place is not NULL, and the caller's for the duration of the call. Its
        // earlier content is of C, so nothing is dropped.
        unsafe { self.0.write(value) };
    }
}

impl<T> Out<*mut T> {
    /// Gives an object to the caller, whose handle `Call::take` takes back.
    pub(crate) fn give(&self, object: T) {
        self.set(Box::into_raw(Box::new(object)));
    }

    /// Gives a shared object to the caller, whose handle `Call::take_shared` takes back.
    pub(crate) fn share(&self, object: Arc<T>) {
        self.set(Arc::into_raw(object).cast_mut());
    }
}

/// Frees memory that a function of this library has returned as a buffer. NULL is allowed.
#[expect(clippy::not_unsafe_ptr_arg_deref, reason = "only C calls it, like all functions")]
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_free(buffer: *mut c_void) {
    // SAFETY: the buffer is from `Call::allocate`, or NULL, which `free` ignores.
    unsafe { libc::free(buffer) };
}

type AtFork = Option<extern "C" fn()>;

unsafe extern "C" {
    /// The C library's, which the crate libc lacks on Linux.
    fn pthread_atfork(prepare: AtFork, parent: AtFork, child: AtFork) -> i32;
}

/// Registers a function that each forked child calls first. It may only do what a handler of a
/// signal may.
pub(crate) fn at_fork(in_child: extern "C" fn()) {
    // SAFETY: the functions are of this library, and are forgotten when it is unloaded. If they
    // cannot be registered, forks are not noticed.
    unsafe { pthread_atfork(None, None, Some(in_child)) };
}
