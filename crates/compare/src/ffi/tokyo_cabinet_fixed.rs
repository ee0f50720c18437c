//! Bindings of the few functions of Tokyo Cabinet's fixed-length database that are measured
//! (`tcfdb.h`).

use super::tokyo_cabinet::{Error, length, message};
use std::ffi::{CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `TCFDB`, only used behind a pointer.
#[repr(C)]
struct Tcfdb {
    _opaque: [u8; 0],
}

#[link(name = "tokyocabinet")]
unsafe extern "C" {
    fn tcfdbnew() -> *mut Tcfdb;
    fn tcfdbdel(fdb: *mut Tcfdb);
    fn tcfdbecode(fdb: *mut Tcfdb) -> c_int;
    fn tcfdbsetmutex(fdb: *mut Tcfdb) -> bool;
    fn tcfdbtune(fdb: *mut Tcfdb, width: i32, limsiz: i64) -> bool;
    fn tcfdbopen(fdb: *mut Tcfdb, path: *const c_char, omode: c_int) -> bool;
    fn tcfdbclose(fdb: *mut Tcfdb) -> bool;
    fn tcfdbkeytoid(kbuf: *const c_char, ksiz: c_int) -> i64;
    fn tcfdbput(fdb: *mut Tcfdb, id: i64, vbuf: *const c_void, vsiz: c_int) -> bool;
    fn tcfdbget4(fdb: *mut Tcfdb, id: i64, vbuf: *mut c_void, max: c_int) -> c_int;
    fn tcfdbiterinit(fdb: *mut Tcfdb) -> bool;
    fn tcfdbiternext(fdb: *mut Tcfdb) -> u64;
    fn tcfdbsync(fdb: *mut Tcfdb) -> bool;
}

const FDBOWRITER: c_int = 1 << 1;
const FDBOCREAT: c_int = 1 << 2;
/// "No record found", the only error that is a normal result.
const TCENOREC: c_int = 22;

/// An open fixed-length database. Dropping it closes it.
#[derive(Debug)]
pub struct FixedDatabase {
    handle: NonNull<Tcfdb>,
    threads: bool,
    users: AtomicUsize,
}

/// Right of one thread to use a database.
#[derive(Debug)]
pub struct User<'a> {
    database: &'a FixedDatabase,
    /// Keeps the value in its thread.
    not_send: PhantomData<*const ()>,
}

// SAFETY: the library binds a handle to no thread.
unsafe impl Send for FixedDatabase {}
// SAFETY: operations go through `User` values, which stay in their threads. With `threads` the
// library locks by itself (tcfdbsetmutex was called before opening). Without it, there is at most
// one user at a time.
unsafe impl Sync for FixedDatabase {}

impl FixedDatabase {
    /// Opens or creates a database file with values of `width` bytes and at most `limit_bytes`.
    pub fn open(path: &Path, width: usize, limit_bytes: u64, threads: bool) -> Result<Self, Error> {
        let path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Error::new("open", "the path holds a NUL"))?;
        // SAFETY: takes no arguments.
        let handle = NonNull::new(unsafe { tcfdbnew() })
            .ok_or_else(|| Error::new("new", "out of memory"))?;
        let database = Self { handle, threads, users: AtomicUsize::new(0) };
        let pointer = handle.as_ptr();
        if threads {
            // SAFETY: the handle is valid and not open yet, as the function requires.
            database.check("setmutex", unsafe { tcfdbsetmutex(pointer) })?;
        }
        let width = i32::try_from(width).unwrap_or(i32::MAX);
        let limit_bytes = i64::try_from(limit_bytes).unwrap_or(i64::MAX);
        // SAFETY: as above.
        database.check("tune", unsafe { tcfdbtune(pointer, width, limit_bytes) })?;
        // SAFETY: the handle is valid and the path ends with a NUL.
        let opened = unsafe { tcfdbopen(pointer, path.as_ptr(), FDBOWRITER | FDBOCREAT) };
        database.check("open", opened)?;
        Ok(database)
    }

    /// Returns the right of this thread to use the database. Fails if another thread has it, unless
    /// the database was opened for threads.
    pub fn user(&self) -> Result<User<'_>, Error> {
        let others = self.users.fetch_add(1, Ordering::AcqRel);
        let user = User { database: self, not_send: PhantomData };
        if others > 0 && !self.threads {
            return Err(Error::new("user", "it was opened for one thread"));
        }
        Ok(user)
    }

    /// Closes the file. Fails if that fails.
    pub fn close(self) -> Result<(), Error> {
        // SAFETY: the handle is open; deleting it later does not close a second time.
        self.check("close", unsafe { tcfdbclose(self.handle.as_ptr()) })
    }

    fn check(&self, operation: &'static str, succeeded: bool) -> Result<(), Error> {
        if succeeded { Ok(()) } else { Err(self.error(operation)) }
    }

    fn code(&self) -> c_int {
        // SAFETY: the handle is valid.
        unsafe { tcfdbecode(self.handle.as_ptr()) }
    }

    fn error(&self, operation: &'static str) -> Error {
        Error::new(operation, message(self.code()))
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        self.database.users.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Returns the id of a key in text form.
fn id(key: &[u8]) -> i64 {
    // SAFETY: the pointer has the length of its slice.
    unsafe { tcfdbkeytoid(key.as_ptr().cast(), length(key)) }
}

impl User<'_> {
    /// Stores a record.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let handle = self.database.handle.as_ptr();
        // SAFETY: the handle is open; the pointer has the length of its slice.
        let stored = unsafe { tcfdbput(handle, id(key), value.as_ptr().cast(), length(value)) };
        self.database.check("put", stored)
    }

    /// Copies a value to `buffer`. Returns its size, at most that of the buffer, or `None` if there
    /// is no such record.
    pub fn get(&self, key: &[u8], buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        let bytes = length(buffer);
        self.get_id(id(key), buffer, bytes)
    }

    fn get_id(&self, id: i64, buffer: &mut [u8], bytes: c_int) -> Result<Option<usize>, Error> {
        let handle = self.database.handle.as_ptr();
        // SAFETY: the handle is open; at most the buffer's length is written to it.
        let size = unsafe { tcfdbget4(handle, id, buffer.as_mut_ptr().cast(), bytes) };
        match usize::try_from(size) {
            Ok(size) => Ok(Some(size)),
            Err(_) if self.database.code() == TCENOREC => Ok(None),
            Err(_) => Err(self.database.error("get")),
        }
    }

    /// Visits all records. The database has one iterator, so one caller at a time.
    pub fn for_each(
        &self,
        buffer: &mut [u8],
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), Error> {
        let handle = self.database.handle.as_ptr();
        // SAFETY: the handle is open.
        self.database.check("iterinit", unsafe { tcfdbiterinit(handle) })?;
        loop {
            // SAFETY: the handle is open.
            let id = unsafe { tcfdbiternext(handle) };
            if id == 0 {
                return Ok(());
            }
            let bytes = length(buffer);
            let found = self.get_id(i64::try_from(id).unwrap_or(i64::MAX), buffer, bytes)?;
            if let Some(size) = found {
                visit(id.to_string().as_bytes(), &buffer[..size]);
            }
        }
    }

    /// Makes everything written durable.
    pub fn sync(&self) -> Result<(), Error> {
        // SAFETY: the handle is open.
        self.database.check("sync", unsafe { tcfdbsync(self.database.handle.as_ptr()) })
    }
}

impl Drop for FixedDatabase {
    fn drop(&mut self) {
        // SAFETY: the handle is valid and not used again; this closes it if it is open.
        unsafe { tcfdbdel(self.handle.as_ptr()) };
    }
}
