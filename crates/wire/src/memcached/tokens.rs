//! Tokens of a line.

/// Removes and returns the first token of `line`.
#[inline]
pub(crate) fn next<'a>(line: &mut &'a [u8]) -> Option<&'a [u8]> {
    let start = line.iter().position(|byte| !is_blank(*byte))?;
    let rest = &line[start..];
    let end = rest.iter().position(|byte| is_blank(*byte)).unwrap_or(rest.len());
    let (token, rest) = rest.split_at(end);
    *line = rest;
    Some(token)
}

#[inline]
fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Keys of a line, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a> {
    line: &'a [u8],
}

impl<'a> Keys<'a> {
    /// Returns the keys of a line, or `None` if it has no token.
    pub(super) fn new(line: &'a [u8]) -> Option<Self> {
        line.iter().any(|byte| !is_blank(*byte)).then_some(Self { line })
    }

    /// Returns the keys in order.
    pub fn iter(&self) -> KeysIter<'a> {
        KeysIter { line: self.line }
    }
}

impl<'a> IntoIterator for Keys<'a> {
    type Item = &'a [u8];
    type IntoIter = KeysIter<'a>;

    fn into_iter(self) -> KeysIter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &Keys<'a> {
    type Item = &'a [u8];
    type IntoIter = KeysIter<'a>;

    fn into_iter(self) -> KeysIter<'a> {
        self.iter()
    }
}

/// Iterator over [`Keys`].
#[derive(Clone, Debug)]
pub struct KeysIter<'a> {
    line: &'a [u8],
}

impl<'a> Iterator for KeysIter<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.line.iter().position(|byte| !is_blank(*byte))?;
        let rest = &self.line[start..];
        // Keys are longer than other tokens, so a vectored search is faster.
        let end = memchr::memchr2(b' ', b'\t', rest).unwrap_or(rest.len());
        let (key, rest) = rest.split_at(end);
        self.line = rest;
        Some(key)
    }
}
