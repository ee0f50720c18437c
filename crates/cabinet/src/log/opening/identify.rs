//! Log identification, for when both copies of the manifest are unreadable.
//!
//! All checksums of a log start from its salt, and a CRC can be run backwards: the salt follows
//! from the checksum of a whole header or record and the bytes that it covers.

use crate::io::File;
use crate::log::DatabaseId;
use crate::log::binding::Binding;
use crate::log::record::{ALIGNMENT, PREFIX_BYTES, Record, read_u32, read_u64};
use crate::log::segments::{SEGMENT_HEADER_BYTES, SegmentHeader, read_beginning};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// The polynomial of CRC-32C, lowest term first.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Bytes at the beginning of each segment in which records are used to find the salt.
const USED_BYTES: usize = 256 << 10;

/// Maximum size of a record that is used to find the salt, in bytes.
const USED_RECORD_BYTES_MAX: usize = 4096;

/// Number of records that must agree on a salt that no header confirms.
const AGREEING_RECORDS: usize = 3;

/// Returns the value from which the checksum of these bytes must have started.
fn start_of(sum: u32, parts: &[&[u8]]) -> u32 {
    let mut state = !sum;
    for byte in parts.iter().rev().flat_map(|part| part.iter().rev()) {
        for _ in 0..8 {
            state = if state >> 31 == 1 { ((state ^ POLYNOMIAL) << 1) | 1 } else { state << 1 };
        }
        state ^= u32::from(*byte);
    }
    !state
}

/// Returns the ID of the database that these segments, each with its number, belong to, except for
/// the seed of key hashes, which is lost and not needed to salvage. `None` if neither headers nor
/// records agree on one.
pub(super) fn identify(files: &[(u64, &Arc<dyn File>)]) -> io::Result<Option<DatabaseId>> {
    let mut headers: BTreeMap<(u64, u32), usize> = BTreeMap::new();
    let mut salts: BTreeMap<u32, usize> = BTreeMap::new();
    for (number, file) in files {
        let (bytes, _) = read_beginning(&***file, USED_BYTES)?;
        if let Some(database_id) = of_header(&bytes) {
            *headers.entry((database_id.id, database_id.salt)).or_default() += 1;
        }
        for salt in salts_of_records(&bytes, *number) {
            *salts.entry(salt).or_default() += 1;
        }
    }
    // A damaged header yields a salt that nothing else confirms.
    let confirmed = headers
        .into_iter()
        .max_by_key(|((_, salt), count)| *count + salts.get(salt).copied().unwrap_or(0));
    let by_records = salts.into_iter().max_by_key(|(_, count)| *count);
    let database_id = |id, salt| Some(DatabaseId { id, hash_seed: 0, salt });
    Ok(match (confirmed, by_records) {
        (Some(((id, salt), _)), Some((other, count)))
            if salt == other || count < AGREEING_RECORDS =>
        {
            database_id(id, salt)
        }
        (Some(((id, salt), _)), None) => database_id(id, salt),
        (_, Some((salt, count))) if count >= AGREEING_RECORDS => database_id(0, salt),
        _ => None,
    })
}

/// Returns the database ID in a header; `None` unless all its other fields are valid.
fn of_header(bytes: &[u8]) -> Option<DatabaseId> {
    let header = bytes.get(..SEGMENT_HEADER_BYTES)?;
    let salt = start_of(read_u32(&header[60..]), &[&header[..60]]);
    let database_id = DatabaseId { id: read_u64(&header[24..]), hash_seed: 0, salt };
    SegmentHeader::decode(header, &database_id).is_ok().then_some(database_id)
}

/// Returns the salts from which the checksums of the first records started, if the records are
/// whole: for each the salt without masks, and with those of the segment.
fn salts_of_records(bytes: &[u8], number: u64) -> Vec<u32> {
    let bindings = [Binding::unmasked(0), Binding::of_segment(0, number)];
    let mut salts = Vec::new();
    let mut at = SEGMENT_HEADER_BYTES;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        match Record::decode_unchecked(rest) {
            Ok(record) => {
                if record.total <= USED_RECORD_BYTES_MAX {
                    let checked = &rest[PREFIX_BYTES..record.checked_end()];
                    salts.extend(bindings.map(|binding| {
                        let sum = read_u32(rest) ^ binding.mask(at);
                        start_of(sum, &[checked, &rest[4..PREFIX_BYTES]])
                    }));
                }
                // The records of a batch or an append block begin where its value does.
                let is_joint = record.is_joint() && record.value_start.is_multiple_of(ALIGNMENT);
                at += if is_joint { record.value_start } else { record.total };
            }
            Err(_) => at += ALIGNMENT,
        }
    }
    salts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_start_of_a_checksum_is_found(start: u32, one: Vec<u8>, other: Vec<u8>) {
            let sum = crc32c::crc32c_append(crc32c::crc32c_append(start, &one), &other);
            prop_assert_eq!(start_of(sum, &[&one, &other]), start);
        }
    }

    #[test]
    fn a_header_identifies_the_database() {
        let database_id = DatabaseId { id: 0x1234_5678_9abc_def0, hash_seed: 0, salt: 0xfeed_beef };
        let header = SegmentHeader {
            number: 3,
            is_bound: true,
            clears: false,
            is_behind_pages: false,
            first_sequence: 77,
            previous_bytes: 1000,
            capacity: 1 << 20,
        };
        let found = of_header(&header.encode(&database_id)).unwrap();
        assert_eq!((found.id, found.salt), (database_id.id, database_id.salt));
        assert!(of_header(&[0; SEGMENT_HEADER_BYTES]).is_none());
    }
}
