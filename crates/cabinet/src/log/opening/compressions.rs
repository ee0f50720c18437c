//! Compression check: refuses a database whose records this build cannot decompress.
//!
//! The files do not list the compressions of their records: each record has its own. So the
//! beginning of each segment is read, besides the records that are replayed anyway. A compressed
//! record elsewhere is an error when it is read; it is not damage.

use super::Recovery;
use crate::Result;
use crate::base::compress;
use crate::log::error_at;
use crate::log::record::Record;
use crate::log::scan::ScanError;

/// Bytes at the beginning of each segment that are read.
const READ_BYTES: u64 = 256 << 10;

impl Recovery {
    /// Fails with [`crate::Error::Unsupported`] if a record near the beginning of a segment is
    /// compressed by an algorithm that this build lacks.
    pub(super) fn require_compressions(&self) -> Result<()> {
        if compress::HAS_ALL {
            return Ok(());
        }
        for segment in self.segments.iter() {
            let mut scanner = segment.scanner(0, segment.bytes());
            while scanner.offset() < READ_BYTES {
                let mut visit =
                    |_: u64, record: &Record<'_>, _: &[u8]| compress::require(record.compression);
                match scanner.next(&mut visit) {
                    Ok(Ok(true)) => {}
                    // Recovery reports the damage.
                    Ok(Ok(false) | Err(_)) => break,
                    Err(ScanError::Read(error)) => {
                        return Err(error_at("read", &segment.path, error));
                    }
                    Err(ScanError::Visit(error)) => return Err(error),
                }
            }
        }
        Ok(())
    }
}
