//! Unreadable bytes: distinguished from other failures, and read around.

use super::File;
use rustix::io::Errno;
use std::io;
use std::ops::Range;

/// Bytes that a disk loses together: a page of the page cache.
const PAGE_BYTES: u64 = 4096;

/// Returns whether a read failed because of the medium, or because of the file system's own
/// checksum. That is damage, and other bytes of the file may be readable.
pub(crate) fn is_unreadable(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::IO | Errno::NODATA | Errno::BADMSG | Errno::UCLEAN | Errno::ILSEQ)
    )
}

/// Reads until the buffer is full or the file ends. Pages that the disk cannot read are zeros, and
/// their offsets in the file are added to `unreadable`, in order. Returns the number of bytes
/// filled.
pub(crate) fn read_around(
    file: &dyn File,
    buffer: &mut [u8],
    offset: u64,
    unreadable: &mut Vec<Range<u64>>,
) -> io::Result<usize> {
    let mut filled = 0;
    let mut is_by_page = false;
    while filled < buffer.len() {
        let at = offset + filled as u64;
        let left = buffer.len() - filled;
        let page = usize::try_from(PAGE_BYTES - at % PAGE_BYTES).unwrap_or(left);
        let wanted = if is_by_page { page.min(left) } else { left };
        let piece = &mut buffer[filled..filled + wanted];
        match file.read_at(piece, at) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if !is_unreadable(&error) => return Err(error),
            Err(_) if !is_by_page => is_by_page = true,
            Err(_) => {
                piece.fill(0);
                filled += wanted;
                let end = offset + filled as u64;
                match unreadable.last_mut() {
                    Some(last) if last.end == at => last.end = end,
                    _ => unreadable.push(at..end),
                }
            }
        }
    }
    Ok(filled)
}

/// Returns whether the disk can read these bytes and the rest of their pages: a page is read before
/// a part of it is written.
pub(crate) fn can_write_part(file: &dyn File, bytes: Range<u64>) -> io::Result<bool> {
    let start = bytes.start / PAGE_BYTES * PAGE_BYTES;
    let length = bytes.end.next_multiple_of(PAGE_BYTES) - start;
    let mut buffer = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    let mut unreadable = Vec::new();
    read_around(file, &mut buffer, start, &mut unreadable)?;
    Ok(unreadable.is_empty())
}
