//! Placeholder for a missing file: it is empty, and refuses writes.

use super::{File, Map};
use std::io;

/// Placeholder for a missing file. See the module.
pub(crate) struct Missing;

fn missing() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the file is missing")
}

impl File for Missing {
    fn length(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn read_at(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<usize> {
        Ok(0)
    }

    fn read_cached_at(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<usize> {
        Ok(0)
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(missing())
    }

    fn allocate(&self, _map: &Map, _length: u64) -> io::Result<()> {
        Err(missing())
    }

    fn truncate(&self, _length: u64) -> io::Result<()> {
        Err(missing())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn will_read(&self, _offset: u64, _bytes: u64) {}

    fn map(&self, capacity: usize, _written: usize) -> io::Result<Map> {
        Map::of_memory(&[], capacity)
    }
}
