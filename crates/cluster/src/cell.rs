//! The cell of a record: one column with all that a write gives it, since Cassandra decides between
//! two writes of the same microsecond cell by cell.
//!
//! | bytes | content |
//! | --- | --- |
//! | 0 to 7 | version, a number above 0 |
//! | 8 to 15 | expiry in milliseconds since 1970, 0 for never |
//! | 16 to 19 | flags |
//! | from 20 on | the value |
//!
//! Numbers are little-endian.

use cabinet::Meta;
use server::FoundRecord;
use std::sync::Arc;

/// Time by which cells outlive their record, so that clocks may differ, in seconds.
pub(crate) const TTL_SLACK_SECONDS: u64 = 60;

/// Bytes before the value.
pub(crate) const HEAD_BYTES: usize = 20;

/// Returns the cell of a record.
pub(crate) fn encode(record: &FoundRecord) -> Vec<u8> {
    let mut cell = Vec::with_capacity(HEAD_BYTES + record.value.len());
    cell.extend(record.version.to_le_bytes());
    cell.extend(record.meta.expires_at_ms.to_le_bytes());
    cell.extend(record.meta.flags.to_le_bytes());
    cell.extend_from_slice(&record.value);
    cell
}

/// Returns the record of a cell, if it is one.
pub(crate) fn decode(mut cell: Vec<u8>) -> Option<FoundRecord> {
    let (version, rest) = cell.split_first_chunk()?;
    let (expiry, rest) = rest.split_first_chunk()?;
    let (flags, _) = rest.split_first_chunk()?;
    let version = u64::from_le_bytes(*version);
    let meta =
        Meta { flags: u32::from_le_bytes(*flags), expires_at_ms: u64::from_le_bytes(*expiry) };
    cell.drain(..HEAD_BYTES);
    (version > 0).then(|| FoundRecord { value: Arc::new(cell), meta, version })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_other_bytes_are_none() {
        for value in [&b""[..], b"v", &[0; 1000]] {
            let meta = Meta { flags: 0x0102_0304, expires_at_ms: u64::MAX - 1 };
            let value = Arc::new(value.to_vec());
            let record = FoundRecord { value, meta, version: 0x0506 };
            let cell = encode(&record);
            assert_eq!(cell[..2], [6, 5]);
            assert_eq!(cell[16..20], [4, 3, 2, 1]);
            assert_eq!(decode(cell.clone()), Some(record));
            assert_eq!(decode(cell[..HEAD_BYTES - 1].to_vec()), None);
        }
        assert_eq!(decode(vec![0; HEAD_BYTES]), None);
    }
}
