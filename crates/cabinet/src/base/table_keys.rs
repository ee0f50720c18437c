//! Keys by which a tree is recognised as a table (`docs/formats/table.md`). The table's own modules
//! define the others.

/// First bytes of the key spaces.
pub(crate) const META: u8 = 0;
pub(crate) const ROWS: u8 = 1;
pub(crate) const POSTINGS: u8 = 2;

/// Kind of the record with the version of the layout, as the byte after that of the key space.
pub(crate) const LAYOUT: u8 = b'v';

const SUSPICION: u8 = b's';

/// Returns whether a table may have a record with this key.
pub(crate) fn is_key(key: &[u8]) -> bool {
    matches!(key, [META | ROWS | POSTINGS, ..])
}

/// Returns whether this is the key of the record that only a table has.
pub(crate) fn is_own_key(key: &[u8]) -> bool {
    key == [META, LAYOUT]
}

/// Returns the key of the record which states that postings of indices may not agree with the rows.
pub(crate) fn suspicion() -> Vec<u8> {
    vec![META, SUSPICION]
}
