//! Operations on the rows of a table.

use super::conditional::{Presence, Write};
use super::execute::{Executor, Outcome, Reply, Stop, if_found};
use super::operation::Columns;
use crate::store::RowMode;
use cabinet::Error;
use cabinet::table::{IndexChange, Row, SearchRequest};
use wire::binary::Strings;

/// Longest part of an invalid kind of index that an error shows, in bytes.
const SHOWN_KIND_BYTES_MAX: usize = 40;

/// Appends names and values of a row in turn.
pub(super) fn get_row(
    executor: &mut Executor<'_>,
    key: &[u8],
    reply: &mut impl Reply,
) -> Result<Outcome, Stop> {
    let found = executor.store.read_row(key, |row| {
        for (name, value) in row.columns() {
            reply.element(name);
            reply.element(value);
        }
    })?;
    if_found(found.map(|()| executor.limit.check(reply.len())))
}

/// Stores a row: as an ordinary record if its columns can be joined, which avoids waiting,
/// otherwise as a row. Returns whether it was stored.
pub(super) fn put_row(
    executor: &Executor<'_>,
    key: &[u8],
    columns: &Columns<'_>,
    mode: RowMode,
) -> Result<bool, Stop> {
    let parts: Vec<&[u8]> = columns.clone().collect();
    // A row without columns and a row of one empty column would be joined to the same bytes.
    let is_plain = parts.len() != 1 && parts.iter().all(|part| !part.contains(&0));
    if is_plain {
        let value = parts.join(&0);
        let write = match mode {
            RowMode::Replace => Write::put(key, &value, Presence::Any),
            RowMode::Keep => Write::put(key, &value, Presence::Absent),
            RowMode::Merge => Write::append(key, &value),
        };
        return Ok(executor.writer().write(&write, None)? == Outcome::Done);
    }
    executor.wait()?;
    let row = Row::from_parts(parts.iter().copied())?;
    Ok(executor.store.put_row(key, &parts, &row, mode)?)
}

/// Sets or removes indexes, up to the first that fails. Does nothing if any kind is invalid.
pub(super) fn set_indices(executor: &mut Executor<'_>, pairs: Strings<'_>) -> Result<(), Stop> {
    for (column, kind, change) in changes_of(pairs)? {
        executor.store.set_index(column, kind, change)?;
        executor.has_changed = true;
    }
    Ok(())
}

/// Column, text of the change of its index, and the change.
type NamedChange<'a> = (&'a [u8], &'a [u8], IndexChange);

/// Returns columns, the text of the changes of their indexes, and the changes. Fails if any kind is
/// invalid.
pub(super) fn changes_of(pairs: Strings<'_>) -> Result<Vec<NamedChange<'_>>, Error> {
    let parts: Vec<&[u8]> = pairs.iter().collect();
    let mut changes = Vec::new();
    for [column, kind] in parts.as_chunks::<2>().0 {
        let change = IndexChange::parse(kind).ok_or_else(|| {
            let shown = &kind[..kind.len().min(SHOWN_KIND_BYTES_MAX)];
            Error::InvalidArgument(format!(
                "there is no index \"{}\": choose lex, dec, tok, qgr, opt or void",
                shown.escape_ascii()
            ))
        })?;
        changes.push((*column, *kind, change));
    }
    Ok(changes)
}

/// Appends the results of a search, or removes them.
pub(super) fn search(
    executor: &mut Executor<'_>,
    request: &SearchRequest,
    reply: &mut impl Reply,
) -> Result<(), Stop> {
    // One that removes may fail after it has removed some.
    executor.has_changed = request.out;
    let answer = executor.store.search(request)?;
    for element in &answer.elements {
        executor.limit.append(reply, element.len(), |reply| reply.element(element))?;
    }
    Ok(())
}
