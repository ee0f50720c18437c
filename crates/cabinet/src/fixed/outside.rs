//! Parts of a fixed-length database for stores that keep the records elsewhere, such as a cluster:
//! keys, intervals, and the limits of ids and values.

pub use super::id::Key;
pub use super::interval::{End, Interval};

use super::id::{self, Text};
use super::parameters::Parameters;
use crate::{Error, Options, Result};

/// Limits of the ids and values of a fixed-length database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdLimits(Parameters);

impl IdLimits {
    /// Returns the limits of a database that is created with these options: bytes of the longest
    /// value, and bytes of Tokyo Cabinet's file. `None` means the default. Fails with
    /// [`Error::InvalidArgument`] if the width exceeds its limit.
    pub fn new(width: Option<u64>, limit_bytes: Option<u64>) -> Result<Self> {
        Parameters::new(&Options { width, limit_bytes, ..Options::default() }).map(Self)
    }

    /// Returns the length of the longest value, in bytes.
    pub fn width(&self) -> u64 {
        self.0.width
    }

    /// Returns the length of Tokyo Cabinet's file, in bytes, from which the greatest id follows.
    pub fn limit_bytes(&self) -> u64 {
        self.0.limit_bytes
    }

    /// Returns the greatest id.
    pub fn id_max(&self) -> u64 {
        self.0.id_max()
    }

    /// Returns the part of a value that is stored.
    pub fn cut<'v>(&self, value: &'v [u8]) -> &'v [u8] {
        let width = usize::try_from(self.width()).unwrap_or(usize::MAX);
        &value[..value.len().min(width)]
    }

    /// Parses a key. Fails with [`Error::NoId`] if its id is out of range.
    pub fn key(&self, text: &[u8]) -> Result<Key> {
        let key = Key::parse(text);
        if let Key::Id(id) = key {
            id::check(id, self.id_max(), text)?;
        }
        Ok(key)
    }

    /// Returns the error of a key that names no record.
    pub fn no_id(&self, text: &[u8]) -> Error {
        id::no_id(text, self.id_max())
    }
}

/// Returns an id as text: decimal, without leading zeros.
pub fn text_of(id: u64) -> Vec<u8> {
    Text::of(id).as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_have_the_limits_of_a_local_database() {
        let limits = IdLimits::new(Some(8), Some(1000)).unwrap();
        assert_eq!((limits.width(), limits.limit_bytes(), limits.id_max()), (8, 4096, 426));
        for (text, key) in [("0426", Key::Id(426)), ("a1", Key::Id(1)), ("next", Key::Next)] {
            assert_eq!(limits.key(text.as_bytes()).unwrap(), key);
        }
        for text in ["0", "", "x", "427"] {
            let error = limits.key(text.as_bytes()).unwrap_err().to_string();
            assert_eq!(error, limits.no_id(text.as_bytes()).to_string());
            assert!(error.ends_with("is no id: ids are numbers from 1 to 426"), "{error}");
        }
        for (value, kept) in
            [("1234567", "1234567"), ("12345678", "12345678"), ("123456789", "12345678")]
        {
            assert_eq!(limits.cut(value.as_bytes()), kept.as_bytes());
        }
        assert!(IdLimits::new(Some(u64::MAX), None).is_err());
        assert_eq!(text_of(50), b"50");
    }
}
