//! Bindings of the few functions of Tokyo Cabinet's B+ tree that are measured (`tcbdb.h`).

use super::tokyo_cabinet::{Buffer, Error, TCENOREC, Tcxstr, length};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `TCBDB`, only used behind a pointer.
#[repr(C)]
struct Tcbdb {
    _opaque: [u8; 0],
}

/// `BDBCUR`, only used behind a pointer.
#[repr(C)]
struct Bdbcur {
    _opaque: [u8; 0],
}

#[link(name = "tokyocabinet")]
unsafe extern "C" {
    fn tcbdbnew() -> *mut Tcbdb;
    fn tcbdbdel(bdb: *mut Tcbdb);
    fn tcbdbecode(bdb: *mut Tcbdb) -> c_int;
    fn tcbdberrmsg(ecode: c_int) -> *const c_char;
    fn tcbdbsetmutex(bdb: *mut Tcbdb) -> bool;
    fn tcbdbsetcache(bdb: *mut Tcbdb, lcnum: i32, ncnum: i32) -> bool;
    fn tcbdbsetxmsiz(bdb: *mut Tcbdb, xmsiz: i64) -> bool;
    fn tcbdbopen(bdb: *mut Tcbdb, path: *const c_char, omode: c_int) -> bool;
    fn tcbdbclose(bdb: *mut Tcbdb) -> bool;
    fn tcbdbput(
        bdb: *mut Tcbdb,
        kbuf: *const c_void,
        ksiz: c_int,
        vbuf: *const c_void,
        vsiz: c_int,
    ) -> bool;
    fn tcbdbget(bdb: *mut Tcbdb, kbuf: *const c_void, ksiz: c_int, sp: *mut c_int) -> *mut c_void;
    fn tcbdbsync(bdb: *mut Tcbdb) -> bool;
    fn tcbdbcurnew(bdb: *mut Tcbdb) -> *mut Bdbcur;
    fn tcbdbcurdel(cur: *mut Bdbcur);
    fn tcbdbcurfirst(cur: *mut Bdbcur) -> bool;
    fn tcbdbcurnext(cur: *mut Bdbcur) -> bool;
    fn tcbdbcurrec(cur: *mut Bdbcur, kxstr: *mut Tcxstr, vxstr: *mut Tcxstr) -> bool;
    fn tcfree(ptr: *mut c_void);
}

const BDBOWRITER: c_int = 1 << 1;
const BDBOCREAT: c_int = 1 << 2;

/// An open B+ tree. Dropping it closes it.
#[derive(Debug)]
pub struct TreeDatabase {
    handle: NonNull<Tcbdb>,
    threads: bool,
    users: AtomicUsize,
}

/// Right of one thread to use a database.
#[derive(Debug)]
pub struct User<'a> {
    database: &'a TreeDatabase,
    /// Keeps the value in its thread.
    not_send: PhantomData<*const ()>,
}

// SAFETY: the library ties a handle to no thread.
unsafe impl Send for TreeDatabase {}
// SAFETY: operations go through `users`, who stay in their threads. With `threads` the library
// locks by itself (tcbdbsetmutex was called before opening); without, there is at most one user
// at a time.
unsafe impl Sync for TreeDatabase {}

impl TreeDatabase {
    /// Opens or creates a database file. With `threads`, several threads may share it. It has the
    /// library's defaults, or caches this many leaves and maps nothing.
    pub fn open(path: &Path, threads: bool, cached_leaves: Option<i32>) -> Result<Self, Error> {
        let path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Error { operation: "open", message: "the path holds a NUL".into() })?;
        // SAFETY: takes no arguments.
        let handle = NonNull::new(unsafe { tcbdbnew() })
            .ok_or(Error { operation: "new", message: "out of memory".into() })?;
        let database = Self { handle, threads, users: AtomicUsize::new(0) };
        let pointer = handle.as_ptr();
        if threads {
            // SAFETY: the handle is valid and not open yet, as the function requires.
            database.check("setmutex", unsafe { tcbdbsetmutex(pointer) })?;
        }
        if let Some(leaves) = cached_leaves {
            // SAFETY: the handle is valid and not open yet; 0 means the default number.
            database.check("setcache", unsafe { tcbdbsetcache(pointer, leaves, 0) })?;
            // SAFETY: as above; 0 maps nothing but the header.
            database.check("setxmsiz", unsafe { tcbdbsetxmsiz(pointer, 0) })?;
        }
        // SAFETY: the handle is valid and the path ends with a NUL.
        let opened = unsafe { tcbdbopen(pointer, path.as_ptr(), BDBOWRITER | BDBOCREAT) };
        database.check("open", opened)?;
        Ok(database)
    }

    /// Returns the right of this thread to use the database. Fails if another thread has it, unless
    /// the database was opened for threads.
    pub fn user(&self) -> Result<User<'_>, Error> {
        let others = self.users.fetch_add(1, Ordering::AcqRel);
        let user = User { database: self, not_send: PhantomData };
        if others > 0 && !self.threads {
            let message = "it was opened for one thread".into();
            return Err(Error { operation: "user", message });
        }
        Ok(user)
    }

    /// Closes the file. Fails if that fails.
    pub fn close(self) -> Result<(), Error> {
        // SAFETY: the handle is open; deleting it later does not close a second time.
        self.check("close", unsafe { tcbdbclose(self.handle.as_ptr()) })
    }

    fn check(&self, operation: &'static str, succeeded: bool) -> Result<(), Error> {
        if succeeded { Ok(()) } else { Err(self.error(operation)) }
    }

    fn code(&self) -> c_int {
        // SAFETY: the handle is valid.
        unsafe { tcbdbecode(self.handle.as_ptr()) }
    }

    fn error(&self, operation: &'static str) -> Error {
        // SAFETY: the function returns a string constant for every code.
        let message = unsafe { CStr::from_ptr(tcbdberrmsg(self.code())) };
        Error { operation, message: message.to_string_lossy().into_owned() }
    }
}

impl Drop for TreeDatabase {
    fn drop(&mut self) {
        // SAFETY: the handle is valid and not used again; this closes it if it is open.
        unsafe { tcbdbdel(self.handle.as_ptr()) };
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        self.database.users.fetch_sub(1, Ordering::AcqRel);
    }
}

impl User<'_> {
    /// Stores a record.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        // SAFETY: the handle is open; the pointers go with the lengths of their slices.
        let stored = unsafe {
            tcbdbput(
                self.database.handle.as_ptr(),
                key.as_ptr().cast(),
                length(key),
                value.as_ptr().cast(),
                length(value),
            )
        };
        self.database.check("put", stored)
    }

    /// Calls `visit` with a value. Returns whether there is one.
    pub fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Error> {
        let mut size = 0;
        // SAFETY: the handle is open; the size is written to an integer of ours.
        let value = unsafe {
            tcbdbget(self.database.handle.as_ptr(), key.as_ptr().cast(), length(key), &raw mut size)
        };
        if value.is_null() {
            return match self.database.code() {
                TCENOREC => Ok(false),
                _ => Err(self.database.error("get")),
            };
        }
        let size = usize::try_from(size).unwrap_or(0);
        // SAFETY: the library returns a region of that size, which is ours until it is freed.
        visit(unsafe { std::slice::from_raw_parts(value.cast(), size) });
        // SAFETY: it is not used again.
        unsafe { tcfree(value) };
        Ok(true)
    }

    /// Visits all records, in order.
    pub fn for_each(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Error> {
        let (key, value) = (Buffer::new()?, Buffer::new()?);
        // SAFETY: the handle is open, and stays so for as long as the cursor lives.
        let cursor = NonNull::new(unsafe { tcbdbcurnew(self.database.handle.as_ptr()) })
            .ok_or(Error { operation: "curnew", message: "out of memory".into() })?;
        // SAFETY: the cursor is valid.
        let mut stands = unsafe { tcbdbcurfirst(cursor.as_ptr()) };
        // SAFETY: the cursor is valid, and both buffers live.
        while stands && unsafe { tcbdbcurrec(cursor.as_ptr(), key.0.as_ptr(), value.0.as_ptr()) } {
            visit(key.bytes(), value.bytes());
            // SAFETY: as above.
            stands = unsafe { tcbdbcurnext(cursor.as_ptr()) };
        }
        // SAFETY: the cursor is not used again.
        unsafe { tcbdbcurdel(cursor.as_ptr()) };
        match self.database.code() {
            TCENOREC => Ok(()),
            _ => Err(self.database.error("curnext")),
        }
    }

    /// Makes everything written durable.
    pub fn sync(&self) -> Result<(), Error> {
        // SAFETY: the handle is open.
        self.database.check("sync", unsafe { tcbdbsync(self.database.handle.as_ptr()) })
    }
}
