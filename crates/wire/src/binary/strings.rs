//! Lists of length-prefixed strings.

use crate::Invalid;
use crate::limits::{BINARY_ARGUMENT_BYTES_MAX, BINARY_COUNT_MAX};

/// Length-prefixed strings of a request, all within its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strings<'a> {
    count: usize,
    bytes: &'a [u8],
}

impl<'a> Strings<'a> {
    /// No strings.
    pub const EMPTY: Strings<'static> = Strings { count: 0, bytes: &[] };

    /// Makes a list from `bytes`, which the caller has checked to have exactly `count` strings,
    /// each after its length.
    pub(super) fn checked(count: usize, bytes: &'a [u8]) -> Self {
        Self { count, bytes }
    }

    /// Returns the number of strings.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there is no string.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the strings in order.
    pub fn iter(&self) -> StringsIter<'a> {
        StringsIter { left: self.count, bytes: self.bytes }
    }

    /// Returns the bytes on the wire: each string after its length, without the count.
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
        // `left` is 0 at the end of `bytes`, so checking the bytes is enough.
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

/// Builder of the strings of a request.
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
    /// Appends a string. Fails with [`Invalid::TooLarge`] over a limit of the protocol.
    pub fn push(&mut self, string: &[u8]) -> Result<(), Invalid> {
        if string.len() > BINARY_ARGUMENT_BYTES_MAX || self.count == BINARY_COUNT_MAX {
            return Err(Invalid::TooLarge);
        }
        self.bytes.extend_from_slice(&(string.len() as u32).to_be_bytes());
        self.bytes.extend_from_slice(string);
        self.count += 1;
        Ok(())
    }

    /// Returns the bytes of the strings on the wire.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the strings for a request.
    pub fn strings(&self) -> Strings<'_> {
        Strings::checked(self.count, &self.bytes)
    }
}
