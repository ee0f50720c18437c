//! Bindings of the few functions of Tokyo Cabinet's table database that are measured (`tctdb.h`),
//! for one thread.

use super::tokyo_cabinet::{Error, length, message};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::NonNull;

/// `TCTDB`, only used behind a pointer.
#[repr(C)]
struct Tctdb {
    _opaque: [u8; 0],
}

/// `TDBQRY`, only used behind a pointer.
#[repr(C)]
struct Tdbqry {
    _opaque: [u8; 0],
}

/// `TCLIST`, only used behind a pointer.
#[repr(C)]
struct Tclist {
    _opaque: [u8; 0],
}

#[link(name = "tokyocabinet")]
unsafe extern "C" {
    fn tctdbnew() -> *mut Tctdb;
    fn tctdbdel(tdb: *mut Tctdb);
    fn tctdbecode(tdb: *mut Tctdb) -> c_int;
    fn tctdbtune(tdb: *mut Tctdb, bnum: i64, apow: i8, fpow: i8, opts: u8) -> bool;
    fn tctdbopen(tdb: *mut Tctdb, path: *const c_char, omode: c_int) -> bool;
    fn tctdbclose(tdb: *mut Tctdb) -> bool;
    fn tctdbsync(tdb: *mut Tctdb) -> bool;
    fn tctdbput2(
        tdb: *mut Tctdb,
        pkbuf: *const c_void,
        pksiz: c_int,
        cbuf: *const c_void,
        csiz: c_int,
    ) -> bool;
    fn tctdbsetindex(tdb: *mut Tctdb, name: *const c_char, kind: c_int) -> bool;
    fn tctdbqrynew(tdb: *mut Tctdb) -> *mut Tdbqry;
    fn tctdbqrydel(qry: *mut Tdbqry);
    fn tctdbqryaddcond(qry: *mut Tdbqry, name: *const c_char, op: c_int, expr: *const c_char);
    fn tctdbqrysetorder(qry: *mut Tdbqry, name: *const c_char, kind: c_int);
    fn tctdbqrysetlimit(qry: *mut Tdbqry, max: c_int, skip: c_int);
    fn tctdbqrysearch(qry: *mut Tdbqry) -> *mut Tclist;
    fn tctdbqryhint(qry: *mut Tdbqry) -> *const c_char;
    fn tclistnum(list: *const Tclist) -> c_int;
    fn tclistval(list: *const Tclist, index: c_int, size: *mut c_int) -> *const c_void;
    fn tclistdel(list: *mut Tclist);
}

const TDBOWRITER: c_int = 1 << 1;
const TDBOCREAT: c_int = 1 << 2;
const TDBTLARGE: u8 = 1 << 0;

/// An open table. Dropping it closes it.
#[derive(Debug)]
pub struct TableDatabase {
    handle: NonNull<Tctdb>,
}

/// A query: conditions (column, operator, operand), an order (column, kind), most results. The
/// numbers are those of the library.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Columns, operators, operands.
    pub conditions: Vec<(String, i32, String)>,
    /// Column and kind of order.
    pub order: Option<(String, i32)>,
    /// Most results.
    pub max: Option<i32>,
}

fn text(text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::new("text", "it holds a NUL"))
}

impl TableDatabase {
    /// Creates a table file for about this many rows.
    pub fn create(path: &Path, rows: u64) -> Result<Self, Error> {
        let path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Error::new("open", "the path holds a NUL"))?;
        // SAFETY: takes no arguments.
        let handle = NonNull::new(unsafe { tctdbnew() })
            .ok_or_else(|| Error::new("new", "out of memory"))?;
        let database = Self { handle };
        let buckets = i64::try_from(rows * 2).unwrap_or(i64::MAX);
        // SAFETY: the handle is valid and not open yet, as the function requires.
        let tuned = unsafe { tctdbtune(handle.as_ptr(), buckets, -1, -1, TDBTLARGE) };
        database.check("tune", tuned)?;
        // SAFETY: the handle is valid and the path ends with a NUL.
        let opened = unsafe { tctdbopen(handle.as_ptr(), path.as_ptr(), TDBOWRITER | TDBOCREAT) };
        database.check("open", opened)?;
        Ok(database)
    }

    /// Builds an index. `kind` is the library's number.
    pub fn set_index(&self, column: &str, kind: i32) -> Result<(), Error> {
        let column = text(column)?;
        // SAFETY: the handle is open and the name ends with a NUL.
        let set = unsafe { tctdbsetindex(self.handle.as_ptr(), column.as_ptr(), kind) };
        self.check("setindex", set)
    }

    /// Stores a row: names and values of columns, joined by NUL.
    pub fn put(&self, primary: &[u8], columns: &[u8]) -> Result<(), Error> {
        let (primary_len, columns_len) = (length(primary), length(columns));
        let (primary, columns) = (primary.as_ptr().cast(), columns.as_ptr().cast());
        // SAFETY: the handle is open; each pointer has the length of its slice.
        let stored =
            unsafe { tctdbput2(self.handle.as_ptr(), primary, primary_len, columns, columns_len) };
        self.check("put", stored)
    }

    /// Calls `visit` with the primary keys that a query finds. Returns the library's hint.
    pub fn search(&self, query: &Query, visit: &mut dyn FnMut(&[u8])) -> Result<String, Error> {
        // SAFETY: the handle is open.
        let handle = NonNull::new(unsafe { tctdbqrynew(self.handle.as_ptr()) })
            .ok_or_else(|| Error::new("qrynew", "out of memory"))?
            .as_ptr();
        let filled = fill(handle, query);
        if filled.is_ok() {
            // SAFETY: the query is valid; the list is ours and freed below.
            let list = unsafe { tctdbqrysearch(handle) };
            // SAFETY: the list is valid.
            let count = unsafe { tclistnum(list) };
            for index in 0..count {
                let mut size = 0;
                // SAFETY: the index is within the list; the bytes live as long as the list.
                let key = unsafe {
                    let start = tclistval(list, index, &raw mut size).cast::<u8>();
                    std::slice::from_raw_parts(start, usize::try_from(size).unwrap_or(0))
                };
                visit(key);
            }
            // SAFETY: the list is valid and not used again.
            unsafe { tclistdel(list) };
        }
        // SAFETY: the query is valid; the text lives until it is deleted.
        let hint = unsafe { CStr::from_ptr(tctdbqryhint(handle)) }.to_string_lossy().into_owned();
        // SAFETY: the query is valid and not used again.
        unsafe { tctdbqrydel(handle) };
        filled.map(|()| hint)
    }

    /// Makes everything written durable.
    pub fn sync(&self) -> Result<(), Error> {
        // SAFETY: the handle is open.
        self.check("sync", unsafe { tctdbsync(self.handle.as_ptr()) })
    }

    /// Closes the file. Fails if that fails.
    pub fn close(self) -> Result<(), Error> {
        // SAFETY: the handle is open; deleting it later does not close a second time.
        self.check("close", unsafe { tctdbclose(self.handle.as_ptr()) })
    }

    fn check(&self, operation: &'static str, succeeded: bool) -> Result<(), Error> {
        if succeeded {
            return Ok(());
        }
        // SAFETY: the handle is valid.
        Err(Error::new(operation, message(unsafe { tctdbecode(self.handle.as_ptr()) })))
    }
}

fn fill(handle: *mut Tdbqry, query: &Query) -> Result<(), Error> {
    for (column, operator, operand) in &query.conditions {
        let (column, operand) = (text(column)?, text(operand)?);
        // SAFETY: the query is valid, the texts end with a NUL, and the function copies them.
        unsafe { tctdbqryaddcond(handle, column.as_ptr(), *operator, operand.as_ptr()) };
    }
    if let Some((column, kind)) = &query.order {
        let column = text(column)?;
        // SAFETY: as above.
        unsafe { tctdbqrysetorder(handle, column.as_ptr(), *kind) };
    }
    if let Some(max) = query.max {
        // SAFETY: the query is valid.
        unsafe { tctdbqrysetlimit(handle, max, 0) };
    }
    Ok(())
}

impl Drop for TableDatabase {
    fn drop(&mut self) {
        // SAFETY: the handle is valid and not used again; this closes it if it is open.
        unsafe { tctdbdel(self.handle.as_ptr()) };
    }
}
