//! Splitting a line.

/// Takes the first token off `line`.
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

/// The keys of a line, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a> {
    line: &'a [u8],
}

impl<'a> Keys<'a> {
    /// `None` if there is no token in the line.
    pub(super) fn new(line: &'a [u8]) -> Option<Self> {
        line.iter().any(|byte| !is_blank(*byte)).then_some(Self { line })
    }

    /// The keys in order.
    #[must_use]
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
        // Keys are longer than other tokens: here a vectored search pays.
        let end = memchr::memchr2(b' ', b'\t', rest).unwrap_or(rest.len());
        let (key, rest) = rest.split_at(end);
        self.line = rest;
        Some(key)
    }
}
