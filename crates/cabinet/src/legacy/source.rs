//! Sources of bytes: files that may be larger than memory, and are never written to.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;

/// A source of bytes at offsets.
pub(super) trait ReadAt: Send + Sync {
    /// Returns the number of bytes.
    fn length(&self) -> io::Result<u64>;

    /// Reads some bytes at an offset, none only at the end. Returns their number.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Reads until the buffer is full or the bytes end. Returns the number of bytes read.
    fn fill(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

impl ReadAt for fs::File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }
}

impl ReadAt for Vec<u8> {
    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len());
        let count = buffer.len().min(self.len() - start);
        buffer[..count].copy_from_slice(&self[start..start + count]);
        Ok(count)
    }
}

/// Most bytes that a window keeps after it needed more.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// A part of a file in memory, which moves to the offsets that are read.
pub(super) struct Window<'a> {
    source: &'a dyn ReadAt,
    length: u64,
    /// Bytes that are read at a time, unless more are needed.
    step: usize,
    start: u64,
    buffer: Vec<u8>,
}

impl<'a> Window<'a> {
    /// Returns a window over the first `length` bytes.
    pub(super) fn new(source: &'a dyn ReadAt, length: u64, step: usize) -> Self {
        Self { source, length, step, start: 0, buffer: Vec::new() }
    }

    /// Returns the bytes at an offset; fewer than `count` only at the end of the file. Never uses
    /// more memory than the file has bytes.
    pub(super) fn bytes(&mut self, offset: u64, count: usize) -> io::Result<&[u8]> {
        let available = self.length.saturating_sub(offset);
        let count = count.min(usize::try_from(available).unwrap_or(usize::MAX));
        let is_inside =
            offset >= self.start && offset - self.start + count as u64 <= self.buffer.len() as u64;
        if !is_inside {
            let wanted = count.max(self.step).min(usize::try_from(available).unwrap_or(usize::MAX));
            if self.buffer.capacity() > KEPT_BYTES_MAX.max(wanted) {
                self.buffer = Vec::new();
            }
            self.buffer.resize(wanted, 0);
            let filled = self.source.fill(&mut self.buffer, offset);
            // After an error the window is empty.
            self.buffer.truncate(*filled.as_ref().unwrap_or(&0));
            self.start = offset;
            filled?;
        }
        let from = usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        let from = from.min(self.buffer.len());
        let to = (from + count).min(self.buffer.len());
        Ok(&self.buffer[from..to])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_the_files_bytes_wherever_it_moves() {
        let bytes: Vec<u8> = (0..200).collect();
        let mut window = Window::new(&bytes, 200, 16);
        for (offset, count) in [(0, 4), (10, 6), (14, 4), (150, 50), (3, 100), (199, 1), (0, 0)] {
            assert_eq!(window.bytes(offset as u64, count).unwrap(), &bytes[offset..offset + count]);
        }
    }

    #[test]
    fn a_window_ends_where_the_file_ends() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut window = Window::new(&bytes, 80, 16);
        assert_eq!(window.bytes(70, 20).unwrap(), &bytes[70..80], "less than there is");
        assert_eq!(window.bytes(80, 1).unwrap(), b"");
        assert_eq!(window.bytes(u64::MAX, usize::MAX).unwrap(), b"");
        let mut window = Window::new(&bytes, 120, 16);
        assert_eq!(window.bytes(90, 20).unwrap(), &bytes[90..], "the file is shorter than said");
        assert_eq!(window.bytes(110, 5).unwrap(), b"");
    }
}
