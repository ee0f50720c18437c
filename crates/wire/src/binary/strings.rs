//! Lists of length-prefixed strings.

use crate::Invalid;
use crate::limits::{BINARY_ARGUMENT_BYTES_MAX, BINARY_COUNT_MAX};

/// Length-prefixed strings inside a request, all known to be within its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strings<'a> {
    count: usize,
    bytes: &'a [u8],
}

impl<'a> Strings<'a> {
    /// No strings.
    pub const EMPTY: Strings<'static> = Strings { count: 0, bytes: &[] };

    /// `bytes` holds exactly `count` strings, each behind its length: the caller has checked.
    pub(super) fn checked(count: usize, bytes: &'a [u8]) -> Self {
        Self { count, bytes }
    }

    /// Number of strings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The strings in order.
    #[must_use]
    pub fn iter(&self) -> StringsIter<'a> {
        StringsIter { left: self.count, bytes: self.bytes }
    }

    /// The strings with their lengths before them, as they travel, without the count.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> IntoIterator for Strings<'a> {
    type Item = &'a [u8];
    type IntoIter = StringsIter<'a>;

    fn into_iter(self) -> StringsIter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &Strings<'a> {
    type Item = &'a [u8];
    type IntoIter = StringsIter<'a>;

    fn into_iter(self) -> StringsIter<'a> {
        self.iter()
    }
}

/// Iterator over [`Strings`].
#[derive(Clone, Debug)]
pub struct StringsIter<'a> {
    left: usize,
    bytes: &'a [u8],
}

impl<'a> Iterator for StringsIter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        // `left` ends with `bytes`, so looking at the bytes alone is enough.
        let (size, rest) = self.bytes.split_first_chunk::<4>()?;
        let (string, rest) = rest.split_at_checked(u32::from_be_bytes(*size) as usize)?;
        self.bytes = rest;
        self.left -= 1;
        Some(string)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for StringsIter<'_> {}

/// Strings to put into a request that is to be encoded.
///
/// ```
/// use wire::binary::{Request, StringsBuffer, encode};
///
/// let mut keys = StringsBuffer::default();
/// keys.push(b"two")?;
/// keys.push(b"three")?;
/// let mut bytes = Vec::new();
/// encode(&Request::GetMany(keys.strings()), &mut bytes)?;
/// assert_eq!(bytes, b"\xc8\x31\0\0\0\x02\0\0\0\x03two\0\0\0\x05three");
/// # Ok::<(), wire::Invalid>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct StringsBuffer {
    count: usize,
    bytes: Vec<u8>,
}

impl StringsBuffer {
    /// Adds a string at the end; [`Invalid::TooLarge`] where the protocol has no room for it.
    pub fn push(&mut self, string: &[u8]) -> Result<(), Invalid> {
        if string.len() > BINARY_ARGUMENT_BYTES_MAX || self.count == BINARY_COUNT_MAX {
            return Err(Invalid::TooLarge);
        }
        self.bytes.extend_from_slice(&(string.len() as u32).to_be_bytes());
        self.bytes.extend_from_slice(string);
        self.count += 1;
        Ok(())
    }

    /// The strings, as a request holds them.
    #[must_use]
    pub fn strings(&self) -> Strings<'_> {
        Strings::checked(self.count, &self.bytes)
    }
}
