//! Records: values with flags and expiry, and changes of them.

use crate::limits::VALUE_BYTES_MAX;
use crate::{Error, Result};
use std::ops::ControlFlow;

/// Number of a record's last change: unique within a database, rising with the changes of each
/// key, never 0.
pub type Version = u64;

/// Flags and expiry of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Flags without a meaning for the database, such as those of memcached's clients.
    pub flags: u32,
    /// Milliseconds since the Unix epoch at which the record ceases to exist; 0 is never.
    pub expires_at_ms: u64,
}

impl Meta {
    /// No flags, no expiry.
    pub const NONE: Self = Self { flags: 0, expires_at_ms: 0 };

    /// Returns whether the record has ceased to exist at `now_ms`.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_at_ms != 0 && self.expires_at_ms <= now_ms
    }
}

/// A record that is borrowed from the database during a callback.
#[derive(Clone, Copy, Debug)]
pub struct RecordRef<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value, decompressed.
    pub value: &'a [u8],
    /// Flags and expiry.
    pub meta: Meta,
    /// Number of its last change.
    pub version: Version,
}

/// A copy of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// Flags and expiry.
    pub meta: Meta,
    /// Number of its last change.
    pub version: Version,
}

impl From<RecordRef<'_>> for Record {
    fn from(entry: RecordRef<'_>) -> Self {
        Self {
            key: entry.key.to_vec(),
            value: entry.value.to_vec(),
            meta: entry.meta,
            version: entry.version,
        }
    }
}

/// Callback for a record.
pub type Visit<'v> = dyn FnMut(RecordRef<'_>) + 'v;

/// Callback for a key.
pub type VisitKey<'v> = dyn FnMut(&[u8]) + 'v;

/// Callback for a record and its place among those of its key.
pub type VisitPlaced<'v> = dyn FnMut(RecordRef<'_>, usize) + 'v;

/// Callback for the record of one key of several, until it breaks.
pub type VisitMany<'v> = dyn FnMut(Result<Option<RecordRef<'_>>>) -> ControlFlow<()> + 'v;

/// Callback that decides on the record of a key, or on its absence.
pub type Decide<'d> = dyn FnMut(Option<RecordRef<'_>>) -> Change + 'd;

/// Change of a record, as an update decides it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Leave the record as it is.
    Keep,
    /// Store this value.
    Put(Vec<u8>, Meta),
    /// Remove the record, if it exists.
    Remove,
}

/// Changes that depend on the value, for the callback of [`Database::modify`]. `entry` is the
/// record, without which there is a new one without flags and expiry; a present one keeps its own.
///
/// [`Database::modify`]: crate::Database::modify
impl Change {
    /// Appends to a value, or prepends with `front`. Fails if the value becomes too long.
    pub fn extend(entry: &RecordRef<'_>, part: &[u8], front: bool) -> Result<Self> {
        check_value(entry.value.len() + part.len())?;
        let (first, second) = if front { (part, entry.value) } else { (entry.value, part) };
        Ok(Self::Put([first, second].concat(), entry.meta))
    }

    /// Appends to a value and keeps the last `width` bytes of the result. A new record has the
    /// whole suffix, as in Tokyo Cabinet. Fails if the value becomes too long.
    pub fn shift(entry: Option<&RecordRef<'_>>, suffix: &[u8], width: usize) -> Result<Self> {
        let Some(entry) = entry else { return Ok(Self::Put(suffix.to_vec(), Meta::NONE)) };
        let kept = (entry.value.len() + suffix.len()).min(width);
        check_value(kept)?;
        Ok(Self::Put(concat_tail(entry.value, suffix, kept), entry.meta))
    }

    /// Adds to a little-endian 32-bit integer, wrapping. Returns the sum, too. Fails with
    /// [`Error::NotANumber`] if the value is not 4 bytes long.
    pub fn add_int(entry: Option<&RecordRef<'_>>, addend: i32) -> Result<(Self, i32)> {
        let (number, meta) = number_of(entry)?;
        let sum = i32::from_le_bytes(number).wrapping_add(addend);
        Ok((Self::Put(sum.to_le_bytes().to_vec(), meta), sum))
    }

    /// Adds to a little-endian IEEE 754 double. Returns the sum, too. Fails with
    /// [`Error::NotANumber`] if the value is not 8 bytes long, or the sum is not a number.
    pub fn add_double(entry: Option<&RecordRef<'_>>, addend: f64) -> Result<(Self, f64)> {
        let (number, meta) = number_of(entry)?;
        let sum = f64::from_le_bytes(number) + addend;
        if sum.is_nan() {
            return Err(Error::NotANumber { width: number.len() });
        }
        Ok((Self::Put(sum.to_le_bytes().to_vec(), meta), sum))
    }
}

/// Fails if a value is too long.
pub(crate) fn check_value(bytes: usize) -> Result<()> {
    if bytes > VALUE_BYTES_MAX {
        return Err(Error::ValueTooLong { bytes, max: VALUE_BYTES_MAX });
    }
    Ok(())
}

/// Returns the bytes of a number, 0 without a record, and the flags and the expiry.
fn number_of<const WIDTH: usize>(entry: Option<&RecordRef<'_>>) -> Result<([u8; WIDTH], Meta)> {
    let Some(entry) = entry else { return Ok(([0; WIDTH], Meta::NONE)) };
    let number = entry.value.try_into().map_err(|_| Error::NotANumber { width: WIDTH })?;
    Ok((number, entry.meta))
}

/// Returns the last `kept` bytes of `first` followed by `second`.
fn concat_tail(first: &[u8], second: &[u8], kept: usize) -> Vec<u8> {
    let from_second = second.len().min(kept);
    let from_first = kept - from_second;
    let mut value = Vec::with_capacity(kept);
    value.extend_from_slice(&first[first.len() - from_first..]);
    value.extend_from_slice(&second[second.len() - from_second..]);
    value
}
