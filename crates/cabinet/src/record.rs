//! Records: values with flags and expiry, and changes of them.

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
