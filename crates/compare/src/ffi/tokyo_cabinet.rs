//! Bindings of the few functions of Tokyo Cabinet's hash database that are measured (`tchdb.h`).

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `TCHDB`, only used behind a pointer.
#[repr(C)]
struct Tchdb {
    _opaque: [u8; 0],
}

/// `TCXSTR`, only used behind a pointer.
#[repr(C)]
pub(super) struct Tcxstr {
    _opaque: [u8; 0],
}

#[link(name = "tokyocabinet")]
unsafe extern "C" {
    fn tchdbnew() -> *mut Tchdb;
    fn tchdbdel(hdb: *mut Tchdb);
    fn tchdbecode(hdb: *mut Tchdb) -> c_int;
    fn tchdberrmsg(ecode: c_int) -> *const c_char;
    fn tchdbsetmutex(hdb: *mut Tchdb) -> bool;
    fn tchdbtune(hdb: *mut Tchdb, bnum: i64, apow: i8, fpow: i8, opts: u8) -> bool;
    fn tchdbsetxmsiz(hdb: *mut Tchdb, xmsiz: i64) -> bool;
    fn tchdbopen(hdb: *mut Tchdb, path: *const c_char, omode: c_int) -> bool;
    fn tchdbclose(hdb: *mut Tchdb) -> bool;
    fn tchdbput(
        hdb: *mut Tchdb,
        kbuf: *const c_void,
        ksiz: c_int,
        vbuf: *const c_void,
        vsiz: c_int,
    ) -> bool;
    fn tchdbget3(
        hdb: *mut Tchdb,
        kbuf: *const c_void,
        ksiz: c_int,
        vbuf: *mut c_void,
        max: c_int,
    ) -> c_int;
    fn tchdbiterinit(hdb: *mut Tchdb) -> bool;
    fn tchdbiternext3(hdb: *mut Tchdb, kxstr: *mut Tcxstr, vxstr: *mut Tcxstr) -> bool;
    fn tchdbsync(hdb: *mut Tchdb) -> bool;
    fn tcxstrnew() -> *mut Tcxstr;
    fn tcxstrdel(xstr: *mut Tcxstr);
    fn tcxstrptr(xstr: *const Tcxstr) -> *const c_void;
    fn tcxstrsize(xstr: *const Tcxstr) -> c_int;
}

const HDBOWRITER: c_int = 1 << 1;
const HDBOCREAT: c_int = 1 << 2;
const HDBTLARGE: u8 = 1 << 0;
/// "No record found", the only error that is a normal result.
pub(super) const TCENOREC: c_int = 22;

/// Error with the library's message.
#[derive(Debug, thiserror::Error)]
#[error("Tokyo Cabinet: {operation}: {message}")]
pub struct Error {
    pub(super) operation: &'static str,
    pub(super) message: String,
}

impl Error {
    pub(super) fn new(operation: &'static str, message: impl Into<String>) -> Self {
        Self { operation, message: message.into() }
    }
}

/// Returns the library's message for a code.
pub(super) fn message(code: c_int) -> String {
    // SAFETY: the function returns a string constant for every code.
    let message = unsafe { CStr::from_ptr(tchdberrmsg(code)) };
    message.to_string_lossy().into_owned()
}

/// Options for opening a database; `None` is the library's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Buckets (`bnum`). If given, buckets have 64 bits, for files over 2 GB.
    pub buckets: Option<u64>,
    /// Bytes of the file to map (`xmsiz`).
    pub mapped_bytes: Option<u64>,
    /// Whether threads share the handle.
    pub threads: bool,
}

/// An open hash database. Dropping it closes it.
#[derive(Debug)]
pub struct HashDatabase {
    handle: NonNull<Tchdb>,
    tuning: Tuning,
    users: AtomicUsize,
}

/// Right of one thread to use a database.
#[derive(Debug)]
pub struct User<'a> {
    database: &'a HashDatabase,
    /// Keeps the value in its thread.
    not_send: PhantomData<*const ()>,
}

// SAFETY: the library binds a handle to no thread.
unsafe impl Send for HashDatabase {}
// SAFETY: operations go through `User` values, which stay in their threads. With `tuning.threads`
// the library locks by itself (tchdbsetmutex was called before opening). Without it, there is at
// most one user at a time.
unsafe impl Sync for HashDatabase {}

impl HashDatabase {
    /// Opens or creates a database file.
    pub fn open(path: &Path, tuning: Tuning) -> Result<Self, Error> {
        let path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Error { operation: "open", message: "the path holds a NUL".into() })?;
        // SAFETY: takes no arguments.
        let handle = NonNull::new(unsafe { tchdbnew() })
            .ok_or(Error { operation: "new", message: "out of memory".into() })?;
        let database = Self { handle, tuning, users: AtomicUsize::new(0) };
        let pointer = handle.as_ptr();
        if tuning.threads {
            // SAFETY: the handle is valid and not open yet, as the function requires.
            database.check("setmutex", unsafe { tchdbsetmutex(pointer) })?;
        }
        if let Some(buckets) = tuning.buckets {
            let buckets = i64::try_from(buckets).unwrap_or(i64::MAX);
            // SAFETY: as above; negative numbers mean the defaults.
            database.check("tune", unsafe { tchdbtune(pointer, buckets, -1, -1, HDBTLARGE) })?;
        }
        if let Some(bytes) = tuning.mapped_bytes {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            // SAFETY: as above.
            database.check("setxmsiz", unsafe { tchdbsetxmsiz(pointer, bytes) })?;
        }
        // SAFETY: the handle is valid and the path ends with a NUL.
        let opened = unsafe { tchdbopen(pointer, path.as_ptr(), HDBOWRITER | HDBOCREAT) };
        database.check("open", opened)?;
        Ok(database)
    }

    /// Returns the right of this thread to use the database. Fails if another thread has it, unless
    /// the database was opened for threads.
    pub fn user(&self) -> Result<User<'_>, Error> {
        let others = self.users.fetch_add(1, Ordering::AcqRel);
        let user = User { database: self, not_send: PhantomData };
        if others > 0 && !self.tuning.threads {
            let message = "it was opened for one thread".into();
            return Err(Error { operation: "user", message });
        }
        Ok(user)
    }

    /// Closes the file. Fails if that fails.
    pub fn close(self) -> Result<(), Error> {
        // SAFETY: the handle is open; deleting it later does not close a second time.
        self.check("close", unsafe { tchdbclose(self.handle.as_ptr()) })
    }

    fn check(&self, operation: &'static str, succeeded: bool) -> Result<(), Error> {
        if succeeded { Ok(()) } else { Err(self.error(operation)) }
    }

    fn code(&self) -> c_int {
        // SAFETY: the handle is valid.
        unsafe { tchdbecode(self.handle.as_ptr()) }
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

impl User<'_> {
    /// Stores a record.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        // SAFETY: the handle is open; each pointer has the length of its slice.
        let stored = unsafe {
            tchdbput(
                self.database.handle.as_ptr(),
                key.as_ptr().cast(),
                length(key),
                value.as_ptr().cast(),
                length(value),
            )
        };
        self.database.check("put", stored)
    }

    /// Copies a value to `buffer`. Returns its size, at most that of the buffer, or `None` if there
    /// is no such record.
    pub fn get(&self, key: &[u8], buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        // SAFETY: the handle is open; at most the buffer's length is written to it.
        let size = unsafe {
            tchdbget3(
                self.database.handle.as_ptr(),
                key.as_ptr().cast(),
                length(key),
                buffer.as_mut_ptr().cast(),
                length(buffer),
            )
        };
        match usize::try_from(size) {
            Ok(size) => Ok(Some(size)),
            Err(_) if self.database.code() == TCENOREC => Ok(None),
            Err(_) => Err(self.database.error("get")),
        }
    }

    /// Visits all records. The database has one iterator, so one caller at a time.
    pub fn for_each(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Error> {
        let (key, value) = (Buffer::new()?, Buffer::new()?);
        // SAFETY: the handle is open.
        self.database.check("iterinit", unsafe { tchdbiterinit(self.database.handle.as_ptr()) })?;
        // SAFETY: the handle is open and both buffers live.
        while unsafe {
            tchdbiternext3(self.database.handle.as_ptr(), key.0.as_ptr(), value.0.as_ptr())
        } {
            visit(key.bytes(), value.bytes());
        }
        match self.database.code() {
            TCENOREC => Ok(()),
            _ => Err(self.database.error("iternext")),
        }
    }

    /// Makes everything written durable.
    pub fn sync(&self) -> Result<(), Error> {
        // SAFETY: the handle is open.
        self.database.check("sync", unsafe { tchdbsync(self.database.handle.as_ptr()) })
    }
}

impl Drop for HashDatabase {
    fn drop(&mut self) {
        // SAFETY: the handle is valid and not used again; this closes it if it is open.
        unsafe { tchdbdel(self.handle.as_ptr()) };
    }
}

/// Lengths here are bounded by the command line, far below 2 GiB.
pub(super) fn length(bytes: &[u8]) -> c_int {
    c_int::try_from(bytes.len()).unwrap_or(c_int::MAX)
}

/// A growing buffer of the library.
pub(super) struct Buffer(pub(super) NonNull<Tcxstr>);

impl Buffer {
    pub(super) fn new() -> Result<Self, Error> {
        // SAFETY: takes no arguments.
        let buffer = NonNull::new(unsafe { tcxstrnew() });
        buffer.map(Self).ok_or(Error { operation: "xstrnew", message: "out of memory".into() })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: pointer and size belong together, and the buffer does not change while the
        // slice borrows it.
        unsafe {
            let size = usize::try_from(tcxstrsize(self.0.as_ptr())).unwrap_or(0);
            std::slice::from_raw_parts(tcxstrptr(self.0.as_ptr()).cast(), size)
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the buffer is valid and not used again.
        unsafe { tcxstrdel(self.0.as_ptr()) };
    }
}
