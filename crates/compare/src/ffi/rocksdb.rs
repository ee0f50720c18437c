//! Bindings of the few functions of RocksDB that are measured (`rocksdb/c.h`).

use std::ffi::{CStr, CString, c_char, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::{self, NonNull};

/// Declares types that are only used behind pointers.
macro_rules! opaque {
    ($($name:ident),*) => {
        $(#[repr(C)]
        struct $name {
            _opaque: [u8; 0],
        })*
    };
}

opaque!(Db, Options, ReadOptions, WriteOptions, Iter, PinnableSlice, TableOptions, Cache, Filter);

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_open(
        options: *const Options,
        name: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut Db;
    fn rocksdb_close(db: *mut Db);
    fn rocksdb_options_create() -> *mut Options;
    fn rocksdb_options_destroy(options: *mut Options);
    fn rocksdb_options_set_create_if_missing(options: *mut Options, create: c_uchar);
    fn rocksdb_options_set_block_based_table_factory(
        options: *mut Options,
        table_options: *mut TableOptions,
    );
    fn rocksdb_block_based_options_create() -> *mut TableOptions;
    fn rocksdb_block_based_options_destroy(options: *mut TableOptions);
    fn rocksdb_block_based_options_set_filter_policy(
        options: *mut TableOptions,
        filter: *mut Filter,
    );
    fn rocksdb_block_based_options_set_block_cache(options: *mut TableOptions, cache: *mut Cache);
    fn rocksdb_filterpolicy_create_bloom_full(bits_per_key: f64) -> *mut Filter;
    fn rocksdb_cache_create_lru(capacity: usize) -> *mut Cache;
    fn rocksdb_cache_destroy(cache: *mut Cache);
    fn rocksdb_readoptions_create() -> *mut ReadOptions;
    fn rocksdb_readoptions_destroy(options: *mut ReadOptions);
    fn rocksdb_writeoptions_create() -> *mut WriteOptions;
    fn rocksdb_writeoptions_destroy(options: *mut WriteOptions);
    fn rocksdb_writeoptions_set_sync(options: *mut WriteOptions, sync: c_uchar);
    fn rocksdb_put(
        db: *mut Db,
        options: *const WriteOptions,
        key: *const c_char,
        key_length: usize,
        value: *const c_char,
        value_length: usize,
        error: *mut *mut c_char,
    );
    fn rocksdb_get_pinned(
        db: *mut Db,
        options: *const ReadOptions,
        key: *const c_char,
        key_length: usize,
        error: *mut *mut c_char,
    ) -> *mut PinnableSlice;
    fn rocksdb_pinnableslice_value(
        slice: *const PinnableSlice,
        length: *mut usize,
    ) -> *const c_char;
    fn rocksdb_pinnableslice_destroy(slice: *mut PinnableSlice);
    fn rocksdb_create_iterator(db: *mut Db, options: *const ReadOptions) -> *mut Iter;
    fn rocksdb_iter_destroy(iter: *mut Iter);
    fn rocksdb_iter_seek_to_first(iter: *mut Iter);
    fn rocksdb_iter_valid(iter: *const Iter) -> c_uchar;
    fn rocksdb_iter_next(iter: *mut Iter);
    fn rocksdb_iter_key(iter: *const Iter, length: *mut usize) -> *const c_char;
    fn rocksdb_iter_value(iter: *const Iter, length: *mut usize) -> *const c_char;
    fn rocksdb_iter_get_error(iter: *const Iter, error: *mut *mut c_char);
    fn rocksdb_flush_wal(db: *mut Db, sync: c_uchar, error: *mut *mut c_char);
    fn rocksdb_free(pointer: *mut c_void);
}

/// Error with the library's message.
#[derive(Debug, thiserror::Error)]
#[error("RocksDB: {0}")]
pub struct Error(String);

/// An open database. Dropping it closes it.
#[derive(Debug)]
pub struct Database {
    database: NonNull<Db>,
    read_options: NonNull<ReadOptions>,
    write_options: NonNull<WriteOptions>,
}

// SAFETY: the library's database and its options may be used by several threads at once.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

impl Database {
    /// Opens or creates a database with the library's defaults, except for a block cache of
    /// `cache_bytes` and Bloom filters of 10 bits per key. With `synced`, each put waits for the
    /// disk.
    pub fn open(folder: &Path, cache_bytes: usize, synced: bool) -> Result<Self, Error> {
        let name = CString::new(folder.as_os_str().as_bytes())
            .map_err(|_| Error("the path holds a NUL".into()))?;
        // SAFETY: every pointer comes from its create function. The table options take over the
        // filter and a share of the cache, the options a copy of the table options, so each is
        // destroyed here exactly once or handed over.
        unsafe {
            let options = rocksdb_options_create();
            rocksdb_options_set_create_if_missing(options, 1);
            let table_options = rocksdb_block_based_options_create();
            let filter = rocksdb_filterpolicy_create_bloom_full(10.0);
            rocksdb_block_based_options_set_filter_policy(table_options, filter);
            let cache = rocksdb_cache_create_lru(cache_bytes);
            rocksdb_block_based_options_set_block_cache(table_options, cache);
            rocksdb_options_set_block_based_table_factory(options, table_options);
            let mut error = ptr::null_mut();
            let database = rocksdb_open(options, name.as_ptr(), &raw mut error);
            rocksdb_block_based_options_destroy(table_options);
            rocksdb_cache_destroy(cache);
            rocksdb_options_destroy(options);
            check(error)?;
            let out_of_memory = || Error("out of memory".into());
            let read_options = NonNull::new(rocksdb_readoptions_create());
            let write_options = NonNull::new(rocksdb_writeoptions_create());
            let database = Self {
                database: NonNull::new(database).ok_or_else(out_of_memory)?,
                read_options: read_options.ok_or_else(out_of_memory)?,
                write_options: write_options.ok_or_else(out_of_memory)?,
            };
            rocksdb_writeoptions_set_sync(database.write_options.as_ptr(), synced.into());
            Ok(database)
        }
    }

    /// Stores a record.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let mut error = ptr::null_mut();
        // SAFETY: database and options are open; the pointers go with their slices' lengths.
        unsafe {
            rocksdb_put(
                self.database.as_ptr(),
                self.write_options.as_ptr(),
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
                &raw mut error,
            );
        }
        check(error)
    }

    /// Calls `visit` with a value. Returns whether there is one.
    pub fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Error> {
        let mut error = ptr::null_mut();
        // SAFETY: as for `put`.
        let slice = unsafe {
            rocksdb_get_pinned(
                self.database.as_ptr(),
                self.read_options.as_ptr(),
                key.as_ptr().cast(),
                key.len(),
                &raw mut error,
            )
        };
        check(error)?;
        if slice.is_null() {
            return Ok(false);
        }
        let mut length = 0;
        // SAFETY: the slice is valid until it is destroyed after the visit.
        unsafe {
            let value = rocksdb_pinnableslice_value(slice, &raw mut length);
            visit(std::slice::from_raw_parts(value.cast(), length));
            rocksdb_pinnableslice_destroy(slice);
        }
        Ok(true)
    }

    /// Visits all records.
    pub fn for_each(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Error> {
        let mut error = ptr::null_mut();
        // SAFETY: database and options are open. Key and value are valid until the iterator
        // moves, which it does after the visit.
        unsafe {
            let iter = rocksdb_create_iterator(self.database.as_ptr(), self.read_options.as_ptr());
            rocksdb_iter_seek_to_first(iter);
            while rocksdb_iter_valid(iter) != 0 {
                let (mut key_length, mut value_length) = (0, 0);
                let key = rocksdb_iter_key(iter, &raw mut key_length);
                let value = rocksdb_iter_value(iter, &raw mut value_length);
                visit(
                    std::slice::from_raw_parts(key.cast(), key_length),
                    std::slice::from_raw_parts(value.cast(), value_length),
                );
                rocksdb_iter_next(iter);
            }
            rocksdb_iter_get_error(iter, &raw mut error);
            rocksdb_iter_destroy(iter);
        }
        check(error)
    }

    /// Makes everything written durable.
    pub fn sync(&self) -> Result<(), Error> {
        let mut error = ptr::null_mut();
        // SAFETY: the database is open.
        unsafe { rocksdb_flush_wal(self.database.as_ptr(), 1, &raw mut error) };
        check(error)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: none of them is used again.
        unsafe {
            rocksdb_close(self.database.as_ptr());
            rocksdb_readoptions_destroy(self.read_options.as_ptr());
            rocksdb_writeoptions_destroy(self.write_options.as_ptr());
        }
    }
}

fn check(error: *mut c_char) -> Result<(), Error> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the library returns a string that ends with a NUL, and passes its ownership.
    let message = unsafe {
        let message = CStr::from_ptr(error).to_string_lossy().into_owned();
        rocksdb_free(error.cast());
        message
    };
    Err(Error(message))
}
