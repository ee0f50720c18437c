//! Recomputes the checksums of a database's files, whatever the files contain.
//!
//! It was written from `docs/formats/log.md`, independently of the code under test.

use std::collections::BTreeMap;

const HEADER_BYTES: usize = 64;
/// Bytes of a manifest before its list, and of a line of the list.
const SECTOR_BYTES: usize = 512;
const LINE_BYTES: usize = 16;
const CHECKPOINT_HEADER_BYTES: usize = 48;
const CHECKPOINT_TRAILER_BYTES: usize = 16;
const SALT: u32 = 0x7357_7357;

/// Returns a manifest with a fixed identity, for a kind with these parameters.
pub fn manifest(kind: u8, parameters: [u64; 3]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes[..8].copy_from_slice(b"tyrantdb");
    bytes[8] = 1;
    bytes[12] = kind;
    bytes[16..24].copy_from_slice(b"identity");
    bytes[24..32].copy_from_slice(b"hashseed");
    bytes[32..36].copy_from_slice(&SALT.to_le_bytes());
    for (place, parameter) in bytes[36..60].chunks_exact_mut(8).zip(parameters) {
        place.copy_from_slice(&parameter.to_le_bytes());
    }
    sign_header(&mut bytes, 0);
    bytes
}

/// Signs every file that is long enough.
pub fn sign(files: &mut BTreeMap<String, Vec<u8>>) {
    let salt = files.get("manifest").map_or(SALT, |manifest| number(manifest, 32) as u32);
    for (name, bytes) in files {
        match name.as_str() {
            "manifest" | "manifest.2" => sign_manifest(bytes),
            "checkpoint" => sign_checkpoint(bytes, salt),
            name if name.ends_with(".log") => {
                sign_header(bytes, salt);
                let place = Place::of_first_record(bytes);
                if let Some(records) = bytes.get_mut(HEADER_BYTES..) {
                    sign_records(records, salt, place);
                }
            }
            _ => {}
        }
    }
}

/// Returns up to eight bytes as a number.
fn number(bytes: &[u8], offset: usize) -> u64 {
    let bytes = bytes.get(offset..).unwrap_or_default();
    bytes.iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn sign_header(bytes: &mut [u8], salt: u32) {
    if let Some(header) = bytes.get_mut(..HEADER_BYTES) {
        let sum = crc32c::crc32c_append(salt, &header[..60]);
        header[60..].copy_from_slice(&sum.to_le_bytes());
    }
}

/// A manifest of the first format ends where its header does.
fn sign_manifest(bytes: &mut [u8]) {
    sign_header(bytes, 0);
    let lines = number(bytes, 76) as u32 as usize * LINE_BYTES;
    let Some(list) = bytes.get(SECTOR_BYTES..).map(|rest| &rest[..lines.min(rest.len())]) else {
        return;
    };
    let sum = crc32c::crc32c(list);
    bytes[136..140].copy_from_slice(&sum.to_le_bytes());
    let sum = crc32c::crc32c(&bytes[..140]);
    bytes[140..144].copy_from_slice(&sum.to_le_bytes());
}

fn sign_checkpoint(bytes: &mut [u8], salt: u32) {
    let Some(trailer) = bytes.len().checked_sub(CHECKPOINT_TRAILER_BYTES) else { return };
    if trailer < CHECKPOINT_HEADER_BYTES {
        return;
    }
    let blocks_end = usize::try_from(number(bytes, trailer)).unwrap_or(usize::MAX).min(trailer);
    let mut place = CHECKPOINT_HEADER_BYTES;
    while place + 8 <= blocks_end {
        let count = number(bytes, place) as u32 as usize;
        let entries = place + 8;
        let Some(end) = entries.checked_add(count * 8).filter(|end| *end <= blocks_end) else {
            break;
        };
        let sum = crc32c::crc32c_append(salt, &bytes[entries..end]);
        bytes[place + 4..entries].copy_from_slice(&sum.to_le_bytes());
        place = end;
    }
    let lines = blocks_end.max(CHECKPOINT_HEADER_BYTES);
    let sum = crc32c::crc32c(&bytes[..CHECKPOINT_HEADER_BYTES]);
    let sum = crc32c::crc32c_append(sum, &bytes[lines..trailer + 12]);
    bytes[trailer + 12..].copy_from_slice(&sum.to_le_bytes());
}

/// Place of a record, from which the mask of its checksum follows.
#[derive(Clone, Copy)]
struct Place {
    /// `None` in segments of the first format.
    segment: Option<u64>,
    offset: usize,
}

impl Place {
    fn of_first_record(segment: &[u8]) -> Self {
        let number = (number(segment, 8) as u32 != 1).then(|| number(segment, 16));
        Self { segment: number, offset: HEADER_BYTES }
    }

    fn after(self, bytes: usize) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }

    fn mask(self) -> u32 {
        let Some(number) = self.segment else { return 0 };
        let folded = number as u32 ^ (number >> 32) as u32;
        let unit = (self.offset / 8) as u32;
        folded.wrapping_mul(0x9e37_79b1) ^ unit.wrapping_mul(0x85eb_ca6b)
    }
}

fn sign_records(mut bytes: &mut [u8], salt: u32, mut place: Place) {
    while let Some(total) = sign_record(bytes, salt, place) {
        bytes = &mut bytes[total..];
        place = place.after(total);
    }
}

/// Signs the record at the beginning. Returns its length with padding, `None` if there is none.
fn sign_record(bytes: &mut [u8], salt: u32, own: Place) -> Option<usize> {
    let flags = *bytes.get(12)?;
    let mut place = 13;
    let key_bytes = leb128(bytes, &mut place)?;
    let value_bytes = leb128(bytes, &mut place)?;
    place += if flags & 4 != 0 { 8 } else { 0 };
    place += if flags & 8 != 0 { 4 } else { 0 };
    let value = place.checked_add(key_bytes)?;
    let end = value.checked_add(value_bytes).filter(|end| *end <= bytes.len())?;
    let is_batch = flags & 3 == 2;
    if is_batch {
        sign_records(&mut bytes[value..end], salt, own.after(value));
    }
    let signed = if is_batch { value } else { end };
    let sum = crc32c::crc32c_append(salt, &bytes[12..signed]);
    let sum = crc32c::crc32c_append(sum, &bytes[4..12]);
    bytes[..4].copy_from_slice(&(sum ^ own.mask()).to_le_bytes());
    Some(end.next_multiple_of(8)).filter(|total| *total <= bytes.len())
}

fn leb128(bytes: &[u8], place: &mut usize) -> Option<usize> {
    let mut number = 0;
    for shift in (0..35).step_by(7) {
        let byte = *bytes.get(*place)?;
        *place += 1;
        number |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}
