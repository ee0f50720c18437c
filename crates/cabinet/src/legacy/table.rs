//! Reader of a table file: a hash file whose values are rows.

use super::number::Rest;
use super::{Item, Output};
use crate::limits::{COLUMN_NAME_BYTES_MAX, PRIMARY_KEY_BYTES_MAX};
use std::ops::ControlFlow;

/// Most columns of a row.
const COLUMNS_MAX: usize = 1 << 16;

/// Name and value of a column.
type Column<'a> = (&'a [u8], &'a [u8]);

/// Returns the columns of a row: name and value, each after its length. If a name occurs several
/// times, the first column counts.
pub(super) fn columns(row: &[u8]) -> Result<Vec<Column<'_>>, &'static str> {
    let mut columns = Vec::new();
    let mut names = std::collections::HashSet::new();
    let mut rest = Rest(row);
    while !rest.is_empty() {
        let name = rest.counted().ok_or("a row whose columns do not fit it")?;
        let value = rest.counted().ok_or("a row whose columns do not fit it")?;
        if name.is_empty() || name.len() > COLUMN_NAME_BYTES_MAX {
            return Err("an invalid name of a column");
        }
        if names.insert(name) {
            if columns.len() == COLUMNS_MAX {
                return Err("a row with too many columns");
            }
            columns.push((name, value));
        }
    }
    Ok(columns)
}

/// Passes on a key and its row.
pub(super) fn show(
    key: &[u8],
    row: &[u8],
    output: &mut Output<'_>,
) -> Result<ControlFlow<()>, &'static str> {
    if key.len() > PRIMARY_KEY_BYTES_MAX {
        return Err("a key over the limit");
    }
    let columns = columns(row)?;
    Ok(output.item(&Item::Row { key, columns: &columns }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_its_columns_in_their_order() {
        assert_eq!(columns(b""), Ok(vec![]));
        let row = b"\x01b\x02xy\x01a\x00";
        assert_eq!(columns(row), Ok(vec![(&b"b"[..], &b"xy"[..]), (&b"a"[..], &b""[..])]));
    }

    #[test]
    fn the_first_of_several_columns_of_one_name_counts() {
        let row = b"\x01a\x011\x01b\x012\x01a\x013";
        assert_eq!(columns(row), Ok(vec![(&b"a"[..], &b"1"[..]), (&b"b"[..], &b"2"[..])]));
    }

    #[test]
    fn the_number_of_columns_of_a_row_is_limited() {
        for (count, is_taken) in
            [(COLUMNS_MAX - 1, true), (COLUMNS_MAX, true), (COLUMNS_MAX + 1, false)]
        {
            let row: Vec<u8> = (0..count as u32)
                .flat_map(|number| [&[4][..], &number.to_le_bytes(), &[0]].concat())
                .collect();
            assert_eq!(columns(&row).is_ok(), is_taken, "{count}");
        }
    }

    #[test]
    fn a_truncated_row_is_refused_unless_it_ends_between_columns() {
        let row = b"\x01b\x02xy\x01a\x01z";
        for cut in 0..=row.len() {
            assert_eq!(columns(&row[..cut]).is_ok(), [0, 5, 9].contains(&cut), "{cut}");
        }
    }
}
