//! The client: one method per command of the protocol.

use std::io;
use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;
use wire::binary::{Function, Request, StringsBuffer, double_to_parts, encode};

use crate::connection::Connection;
use crate::{Address, Error, Pipeline, Result, Settings};

/// Option of [`Client::ext`]: no other locked call on the same key runs meanwhile.
pub const LOCK_RECORD: u32 = 1;

/// Option of [`Client::ext`]: no other locked call runs meanwhile.
pub const LOCK_ALL: u32 = 2;

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// A connection to a server.
///
/// A client can be shared between threads, which then wait for each other; a [`Pool`](crate::Pool)
/// serves threads in parallel. An [`Error::Send`] or [`Error::Receive`] breaks the connection:
/// every later operation returns [`Error::InvalidOperation`] until [`Client::reconnect`]. Keys and
/// values over 256 MiB return [`Error::InvalidOperation`] and leave the connection usable.
pub struct Client {
    address: Address,
    settings: Settings,
    connection: Mutex<Connection>,
}

impl Client {
    /// Connects with the default [`Settings`].
    pub fn connect(address: impl Into<Address>) -> Result<Self> {
        Self::connect_with(address, Settings::default())
    }

    /// Connects to a Unix socket with the default [`Settings`].
    pub fn connect_unix(path: &Path) -> Result<Self> {
        Self::connect(path)
    }

    /// Connects with the given [`Settings`].
    pub fn connect_with(address: impl Into<Address>, settings: Settings) -> Result<Self> {
        let address = address.into();
        let connection = Mutex::new(Connection::open(&address, &settings)?);
        Ok(Self { address, settings, connection })
    }

    /// Replaces the connection with a new one.
    pub fn reconnect(&self) -> Result<()> {
        *self.connection.lock() = Connection::open(&self.address, &self.settings)?;
        Ok(())
    }

    /// Sets the longest wait for the next bytes of a response, also for connections that replace
    /// this one; `None` waits until the connection ends.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) -> Result<()> {
        self.settings.read_timeout = timeout;
        self.connection.get_mut().set_read_timeout(timeout)
    }

    /// Returns whether an interrupted operation has left the connection unusable.
    pub fn is_broken(&self) -> bool {
        self.connection.lock().is_broken()
    }

    /// Returns whether an idle connection is still open.
    pub(crate) fn is_alive(&self) -> bool {
        self.connection.lock().is_alive()
    }

    /// Returns a pipeline of requests to send together. It locks the connection until it is
    /// dropped.
    pub fn pipeline(&self) -> Pipeline<'_> {
        Pipeline::new(self.connection.lock())
    }

    fn call<T>(
        &self,
        request: &Request<'_>,
        read: impl FnOnce(&mut Connection) -> io::Result<T>,
    ) -> Result<T> {
        let mut bytes = Vec::new();
        encode(request, &mut bytes).map_err(|_| Error::InvalidOperation)?;
        let mut connection = self.connection.lock();
        connection.begin_exchange();
        connection.exchange(&bytes, read)
    }

    /// Sends a request whose failure is an error.
    fn run(&self, request: &Request<'_>) -> Result<()> {
        match self.call(request, Connection::read_status)? {
            true => Ok(()),
            false => Err(Error::Miscellaneous),
        }
    }

    /// Stores a record.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.run(&Request::Put { key, value })
    }

    /// Stores a record if the key is new. Returns whether it was stored.
    pub fn put_keep(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.call(&Request::PutKeep { key, value }, Connection::read_status)
    }

    /// Appends to a record, or creates it.
    pub fn put_cat(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.run(&Request::PutCat { key, value })
    }

    /// Appends to a record, then keeps only its last `width` bytes.
    pub fn put_shift(&self, key: &[u8], value: &[u8], width: u32) -> Result<()> {
        self.run(&Request::PutShift { key, value, width })
    }

    /// Stores a record without waiting. The server sends no response, not even on failure.
    pub fn put_no_reply(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.call(&Request::PutNoReply { key, value }, |_| Ok(()))
    }

    /// Removes a record. Returns whether it existed.
    pub fn out(&self, key: &[u8]) -> Result<bool> {
        self.call(&Request::Out { key }, Connection::read_status)
    }

    /// Returns the value of a record.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.call(&Request::Get { key }, |connection| {
            connection.read_if_ok(Connection::read_string)
        })
    }

    /// Returns the records that exist among these keys, in the order of the keys.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Pair>> {
        let keys = strings(keys)?;
        let request = Request::GetMany(keys.strings());
        self.call(&request, |connection| connection.read_if_ok(Connection::read_pairs))?
            .ok_or(Error::Miscellaneous)
    }

    /// Returns the size of a value, in bytes.
    pub fn value_size(&self, key: &[u8]) -> Result<Option<u32>> {
        self.call(&Request::ValueSize { key }, |connection| {
            connection.read_if_ok(Connection::read_u32)
        })
    }

    /// Starts the iterator. A database has a single one, which all clients share.
    pub fn iter_init(&self) -> Result<()> {
        self.run(&Request::IterInit)
    }

    /// Returns the iterator's next key, `None` at the end.
    pub fn iter_next(&self) -> Result<Option<Vec<u8>>> {
        self.call(&Request::IterNext, |connection| connection.read_if_ok(Connection::read_string))
    }

    /// Returns at most `max` keys that begin with `prefix`.
    pub fn keys_with_prefix(&self, prefix: &[u8], max: Option<usize>) -> Result<Vec<Vec<u8>>> {
        let max = max.map_or(-1, |max| i32::try_from(max).unwrap_or(i32::MAX));
        let request = Request::KeysWithPrefix { prefix, max };
        self.call(&request, |connection| connection.read_if_ok(Connection::read_list))?
            .ok_or(Error::Miscellaneous)
    }

    /// Adds to an integer and returns the sum. A missing record counts as 0. Returns
    /// [`Error::ExistingRecord`] if the record is not an integer.
    pub fn add_int(&self, key: &[u8], addend: i32) -> Result<i32> {
        let request = Request::AddInt { key, addend };
        self.call(&request, |connection| connection.read_if_ok(Connection::read_i32))?
            .ok_or(Error::ExistingRecord)
    }

    /// Adds to a double and returns the sum. A missing record counts as 0. The protocol carries 12
    /// decimals of the addend and of the sum. Returns [`Error::ExistingRecord`] if the record is
    /// not a double.
    pub fn add_double(&self, key: &[u8], addend: f64) -> Result<f64> {
        let (integral, fractional) = double_to_parts(addend);
        let request = Request::AddDouble { key, integral, fractional };
        self.call(&request, |connection| connection.read_if_ok(Connection::read_f64))?
            .ok_or(Error::ExistingRecord)
    }

    /// Calls a function of the server's script. `options` is 0, [`LOCK_RECORD`] or [`LOCK_ALL`].
    /// Fails with [`Error::Miscellaneous`] if the function has no result.
    pub fn ext(&self, name: &[u8], options: u32, key: &[u8], value: &[u8]) -> Result<Vec<u8>> {
        let request = Request::Ext { name, options, key, value };
        self.call(&request, |connection| connection.read_if_ok(Connection::read_string))?
            .ok_or(Error::Miscellaneous)
    }

    /// Calls a versatile function. `options`: 1 keeps the call out of the update log.
    pub fn misc<A: AsRef<[u8]>>(
        &self,
        name: &[u8],
        options: u32,
        arguments: &[A],
    ) -> Result<Vec<Vec<u8>>> {
        let arguments = strings(arguments)?;
        let request = Request::Misc {
            function: Function::from_name(name),
            options,
            arguments: arguments.strings(),
        };
        // A failure carries an (empty) list too.
        let (ok, elements) = self.call(&request, |connection| {
            Ok((connection.read_status()?, connection.read_list()?))
        })?;
        if ok { Ok(elements) } else { Err(Error::Miscellaneous) }
    }

    /// Makes every record durable.
    pub fn sync(&self) -> Result<()> {
        self.run(&Request::Sync)
    }

    /// Optimizes the database. `parameters` are tuning parameters like `#bnum=1000`, or empty.
    pub fn optimize(&self, parameters: &[u8]) -> Result<()> {
        self.run(&Request::Optimize { parameters })
    }

    /// Removes all records.
    pub fn vanish(&self) -> Result<()> {
        self.run(&Request::Vanish)
    }

    /// Copies the database to a path on the server.
    pub fn copy(&self, path: &[u8]) -> Result<()> {
        self.run(&Request::Copy { path })
    }

    /// Restores the database from the update logs in a folder on the server, starting at
    /// `timestamp_us`, in microseconds since 1970. `options`: 1 checks consistency.
    pub fn restore(&self, path: &[u8], timestamp_us: u64, options: u32) -> Result<()> {
        self.run(&Request::Restore { path, timestamp_us, options })
    }

    /// Makes the server follow a master, starting at `timestamp_us`, in microseconds since 1970.
    /// With 0 it resumes from its last entry. An empty host ends replication. `options`: 1 checks
    /// consistency.
    pub fn set_master(
        &self,
        host: &[u8],
        port: u16,
        timestamp_us: u64,
        options: u32,
    ) -> Result<()> {
        self.run(&Request::SetMaster { host, port: port.into(), timestamp_us, options })
    }

    /// Returns the number of records.
    pub fn count(&self) -> Result<u64> {
        self.total(&Request::Count)
    }

    /// Returns the size of the database, in bytes.
    pub fn size(&self) -> Result<u64> {
        self.total(&Request::Size)
    }

    fn total(&self, request: &Request<'_>) -> Result<u64> {
        self.call(request, |connection| connection.read_if_ok(Connection::read_u64))?
            .ok_or(Error::Miscellaneous)
    }

    /// Returns the status of the server: lines of a name, a TAB and a value.
    pub fn stat(&self) -> Result<Vec<u8>> {
        self.call(&Request::Stat, |connection| connection.read_if_ok(Connection::read_string))?
            .ok_or(Error::Miscellaneous)
    }
}

fn strings<S: AsRef<[u8]>>(all: &[S]) -> Result<StringsBuffer> {
    let mut strings = StringsBuffer::default();
    for string in all {
        strings.push(string.as_ref()).map_err(|_| Error::InvalidOperation)?;
    }
    Ok(strings)
}
