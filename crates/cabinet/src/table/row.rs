//! Rows: columns with a name and a value each, in the order in which they were added.
//!
//! A stored row is a sequence of names and values, each after its length (`docs/formats/table.md`).
//! [`Row`] owns its columns; [`RowView`] reads them in place.

use super::NUMBER_COLUMN;
use super::number::{Number, format_double};
use crate::base::varint;
use crate::limits::{COLUMN_NAME_BYTES_MAX, VALUE_BYTES_MAX};
use crate::{Error, Result};
use std::collections::{HashMap, HashSet};

/// Maximum number of columns that are searched linearly. Further columns are looked up by hash, so
/// that the time per column does not grow with their number.
const SEARCHED_COLUMNS_MAX: usize = 16;

/// A row of a table: values by the names of their columns. Names are unique and not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    columns: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Row {
    /// Returns a row without columns.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the value of a column.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.columns.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..])
    }

    /// Sets the value of a column. An existing column keeps its place. Fails with
    /// [`Error::BadColumn`] if the name is empty or longer than [`COLUMN_NAME_BYTES_MAX`].
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Result<()> {
        check_name(name)?;
        match self.columns.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value.to_vec(),
            None => self.columns.push((name.to_vec(), value.to_vec())),
        }
        Ok(())
    }

    /// Like [`Row::set`], for building a row in one expression.
    pub fn with(mut self, name: &[u8], value: &[u8]) -> Result<Self> {
        self.set(name, value)?;
        Ok(self)
    }

    /// Removes a column. Returns whether there was one.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let before = self.columns.len();
        self.columns.retain(|(known, _)| known != name);
        self.columns.len() < before
    }

    /// Adds the columns of another row that this one lacks.
    pub fn add_missing(&mut self, other: &Row) {
        let searched = self.len().min(SEARCHED_COLUMNS_MAX);
        let (first, rest) = self.columns.split_at(searched);
        let rest: HashSet<&[u8]> = rest.iter().map(|(name, _)| &name[..]).collect();
        let is_missing = |(name, _): &&(Vec<u8>, Vec<u8>)| {
            !rest.contains(&name[..]) && !first.iter().any(|(known, _)| known == name)
        };
        let missing: Vec<_> = other.columns.iter().filter(is_missing).cloned().collect();
        self.columns.extend(missing);
    }

    /// Returns names and values in the order in which the columns were added.
    pub fn columns(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.columns.iter().map(|(name, value)| (&name[..], &value[..]))
    }

    /// Returns the number of columns.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Returns whether the row has no columns.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Makes a row of alternating names and values. Fails with [`Error::BadColumn`] if a name is
    /// not allowed, or if the last name has no value, because it would be lost.
    pub fn from_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Result<Self> {
        let mut columns: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        // Indices of the columns that are looked up by hash.
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        let mut parts = parts.into_iter();
        while let Some(name) = parts.next() {
            let value = parts.next().ok_or_else(|| without_value(name))?;
            check_name(name)?;
            let mut searched = columns.iter().take(SEARCHED_COLUMNS_MAX);
            let place = searched.position(|(known, _)| known == name);
            if let Some(place) = place.or_else(|| places.get(name).copied()) {
                columns[place].1 = value.to_vec();
                continue;
            }
            if columns.len() >= SEARCHED_COLUMNS_MAX {
                places.insert(name, columns.len());
            }
            columns.push((name.to_vec(), value.to_vec()));
        }
        Ok(Self { columns })
    }

    /// Makes a row of alternating names and values, joined by NUL. Empty text is a row without
    /// columns. Fails like [`Row::from_parts`].
    pub fn from_joined(text: &[u8]) -> Result<Self> {
        Self::split(text, 0)
    }

    /// Makes a row of alternating names and values, joined by TAB. Empty text is a row without
    /// columns. Fails like [`Row::from_parts`].
    pub fn from_tab_joined(text: &[u8]) -> Result<Self> {
        Self::split(text, b'\t')
    }

    fn split(text: &[u8], separator: u8) -> Result<Self> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        Self::from_parts(text.split(|&byte| byte == separator))
    }

    /// Returns alternating names and values, joined by NUL.
    pub fn to_joined(&self) -> Vec<u8> {
        self.join(0)
    }

    /// Returns alternating names and values, joined by TAB.
    pub fn to_tab_joined(&self) -> Vec<u8> {
        self.join(b'\t')
    }

    fn join(&self, separator: u8) -> Vec<u8> {
        let parts: Vec<&[u8]> =
            self.columns.iter().flat_map(|(name, value)| [&name[..], value]).collect();
        parts.join(&separator)
    }

    /// Adds to the number in the column [`NUMBER_COLUMN`], which is 0 if there is none, and returns
    /// the sum. Fails with [`Error::NotANumber`] if the sum is not a number.
    pub fn add_number(&mut self, addend: f64) -> Result<f64> {
        let number = self.get(NUMBER_COLUMN).map_or(0.0, |text| Number::parse(text).to_double());
        let sum = number + addend;
        if sum.is_nan() {
            return Err(Error::NotANumber { width: size_of::<f64>() });
        }
        self.set(NUMBER_COLUMN, format_double(sum).as_bytes())?;
        Ok(sum)
    }

    /// Returns the stored form of the row, which a [`RowView`] reads. Fails with
    /// [`Error::ValueTooLong`] if it exceeds [`VALUE_BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>> {
        let lengths = self.columns.iter().map(|(name, value)| name.len() + value.len() + 4);
        let mut bytes = Vec::with_capacity(lengths.sum());
        for (name, value) in &self.columns {
            varint::push_bytes(&mut bytes, name);
            varint::push_bytes(&mut bytes, value);
        }
        if bytes.len() > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLong { bytes: bytes.len(), max: VALUE_BYTES_MAX });
        }
        Ok(bytes)
    }
}

/// Maximum bytes of a name that an error shows.
const SHOWN_NAME_BYTES_MAX: usize = 40;

fn without_value(name: &[u8]) -> Error {
    let shown = &name[..name.len().min(SHOWN_NAME_BYTES_MAX)];
    Error::BadColumn(format!(
        "column \"{}\" has no value: a row is given as names and values in turn",
        shown.escape_ascii()
    ))
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() {
        return Err(Error::BadColumn("a column needs a name: it is empty".into()));
    }
    if name.len() > COLUMN_NAME_BYTES_MAX {
        return Err(Error::BadColumn(format!(
            "the name of a column has {} bytes: use a shorter one, of {COLUMN_NAME_BYTES_MAX} at most",
            name.len()
        )));
    }
    Ok(())
}

/// A stored row, read in place.
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a>(&'a [u8]);

impl<'a> RowView<'a> {
    /// Reads the bytes of [`Row::encode`].
    pub fn new(stored: &'a [u8]) -> Self {
        Self(stored)
    }

    /// Returns the bytes of [`Row::encode`].
    pub fn stored(&self) -> &'a [u8] {
        self.0
    }

    /// Returns names and values in the order in which the columns were added. Ends at bytes that do
    /// not parse.
    pub fn columns(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            Some((varint::take_bytes(&mut rest)?, varint::take_bytes(&mut rest)?))
        })
    }

    /// Returns the value of a column.
    pub fn get(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.columns().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns the value of a column. The column with the empty name is the primary key.
    pub(super) fn get_or_primary(&self, name: &[u8], primary: &'a [u8]) -> Option<&'a [u8]> {
        if name.is_empty() { Some(primary) } else { self.get(name) }
    }

    /// Returns alternating names and values, joined by NUL.
    pub fn to_joined(&self) -> Vec<u8> {
        let mut joined = Vec::with_capacity(self.0.len());
        for (name, value) in self.columns() {
            if !joined.is_empty() {
                joined.push(0);
            }
            joined.extend_from_slice(name);
            joined.push(0);
            joined.extend_from_slice(value);
        }
        joined
    }

    /// Returns an owned copy of the row.
    pub fn to_row(&self) -> Row {
        let columns = self.columns();
        Row { columns: columns.map(|(name, value)| (name.to_vec(), value.to_vec())).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_unique_and_keep_their_place() {
        let mut row = Row::from_joined(b"name\0mikio\0age\x0030").unwrap();
        row.set(b"name", b"joker").unwrap();
        assert_eq!(row.to_joined(), b"name\0joker\0age\x0030");
        row.add_missing(&Row::from_tab_joined(b"age\t99\tnew\t1").unwrap());
        assert_eq!(row.to_tab_joined(), b"name\tjoker\tage\t30\tnew\t1");
        assert!(row.remove(b"name"));
        assert!(!row.remove(b"name"));
        assert_eq!(row.len(), 2);
        assert!(Row::from_joined(b"").unwrap().is_empty());
    }

    #[test]
    fn a_name_without_a_value_is_refused() {
        for text in [&b"hello"[..], b"a\0b\0hello", b"\0\0", b"a\0b\0"] {
            let error = Row::from_joined(text).unwrap_err();
            assert!(matches!(error, Error::BadColumn(_)), "{text:?}: {error}");
        }
        let error = Row::from_tab_joined(b"a\tb\thello").unwrap_err().to_string();
        assert!(error.starts_with("column \"hello\" has no value"), "{error}");
        let long = Row::from_joined(&[b'n'; 1000]).unwrap_err().to_string();
        assert!(long.len() < 200, "{long}");
    }

    #[test]
    fn names_that_are_empty_or_too_long_are_refused() {
        let named = |name: &[u8]| Row::new().with(name, b"v").is_ok();
        assert!(!named(b""));
        assert!(named(&[b'n'; COLUMN_NAME_BYTES_MAX - 1]));
        assert!(named(&[b'n'; COLUMN_NAME_BYTES_MAX]));
        assert!(!named(&[b'n'; COLUMN_NAME_BYTES_MAX + 1]));
        assert!(Row::from_parts([&b""[..], b"v"]).is_err());
    }

    #[test]
    fn the_time_to_read_a_row_grows_linearly_with_its_columns() {
        let columns = |count: usize, value: &[u8]| {
            let parts: Vec<Vec<u8>> =
                (0..count).flat_map(|n| [n.to_string().into_bytes(), value.to_vec()]).collect();
            parts.join(&0)
        };
        // The names occur twice, so each is looked up. Comparing all pairs would take minutes.
        let text = [columns(200_000, b"1"), columns(200_000, b"2")].join(&0);
        let row = Row::from_joined(&text).unwrap();
        assert_eq!(row.len(), 200_000);
        assert!(row.columns().all(|(_, value)| value == b"2"));
        let mut more = Row::from_joined(&columns(100_000, b"3")).unwrap();
        more.add_missing(&row);
        assert_eq!(more.columns().filter(|(_, value)| *value == b"3").count(), 100_000);
        assert!(more.columns().map(|(name, _)| name).eq(row.columns().map(|(name, _)| name)));
    }

    #[test]
    fn names_are_unique_below_and_above_the_limit_of_linear_search() {
        for count in SEARCHED_COLUMNS_MAX - 1..=SEARCHED_COLUMNS_MAX + 1 {
            let names: Vec<Vec<u8>> = (0..count as u8).map(|n| vec![b'a' + n]).collect();
            for again in &names {
                let once = names.iter().flat_map(|name| [&name[..], b"1"]);
                let row = Row::from_parts(once.chain([&again[..], b"2"])).unwrap();
                assert!(row.columns().map(|(name, _)| name).eq(names.iter()));
                assert_eq!(row.get(again), Some(&b"2"[..]));
                let mut other = row.clone();
                other.add_missing(&Row::new().with(again, b"3").unwrap());
                assert_eq!(other, row);
                other.add_missing(&Row::new().with(b"new", b"3").unwrap());
                assert_eq!(other.len(), count + 1);
            }
        }
    }

    proptest! {
        #[test]
        fn decoded_rows_equal_the_encoded_ones(
            columns in proptest::collection::vec(("[a-d]{1,2}", proptest::collection::vec(any::<u8>(), 0..200)), 0..6),
        ) {
            let mut row = Row::new();
            for (name, value) in &columns {
                row.set(name.as_bytes(), value).unwrap();
            }
            let stored = row.encode().unwrap();
            let view = RowView::new(&stored);
            prop_assert_eq!(view.to_joined(), row.to_joined());
            for (name, _) in &columns {
                prop_assert_eq!(view.get(name.as_bytes()), row.get(name.as_bytes()));
            }
            prop_assert_eq!(view.to_row(), row);
        }

        #[test]
        fn no_stored_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            RowView::new(&bytes).to_row();
        }
    }
}
