//! Rows of a table as CSV (RFC 4180): a header with the names of the columns, then a line per row.
//!
//! One column of the file is the key. A row without a column has an empty field, and an empty field
//! is read as no column. A zero byte is refused: rows are also sent as names and values between
//! zero bytes, and would come back with other columns.

use super::Run;
use crate::bytes::{self, Kept};
use crate::plural::counted;
use crate::remote::{Need, Server};
use crate::transfer::progress::Progress;
use anyhow::{Context, Result, anyhow, bail, ensure};
use client::{Pair, Row};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Name of the column of the key, unless the user names another.
const KEY_COLUMN: &str = "key";

/// Most bytes of a row: the longest record with two bytes for each byte, and its overhead.
const ROW_BYTES_MAX: usize = 2 * cabinet::limits::VALUE_BYTES_MAX + (1 << 20);

/// Line that is added to a file. If it is read as a part of a field, the file ends within quotes.
const END: &[u8] = b"\n\x01 end of the rows \x01\n";

/// Writes rows with these columns, or with all that any of them has, in the order of their first
/// use.
pub(super) fn write_rows(rows: &[Row], columns: &[&[u8]], output: &mut dyn Write) -> Result<()> {
    let mut names: Vec<&[u8]> = columns.to_vec();
    if names.is_empty() {
        let mut known = BTreeSet::new();
        let used = rows.iter().flat_map(|row| &row.columns).map(|(name, _)| name.as_slice());
        names.extend(used.filter(|name| known.insert(*name)));
    }
    if names.contains(&KEY_COLUMN.as_bytes()) {
        bail!("a column is named {KEY_COLUMN:?} like that of the key: --columns leaves it out");
    }
    let mut text = csv::Writer::from_writer(TerminalSafe { output });
    text.write_record([KEY_COLUMN.as_bytes()].iter().chain(&names)).map_err(of_output)?;
    for row in rows {
        text.write_field(&row.key).map_err(of_output)?;
        for name in &names {
            let found = row.columns.iter().find(|(other, _)| other == name);
            text.write_field(found.map_or(&b""[..], |(_, value)| value)).map_err(of_output)?;
        }
        text.write_record(None::<&[u8]>).map_err(of_output)?;
    }
    Ok(text.flush()?)
}

/// Returns an error that keeps its type if the output failed, so that a closed pipe is recognized.
fn of_output(error: csv::Error) -> anyhow::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error.into(),
        kind => anyhow!("{kind:?}"),
    }
}

/// Output that escapes what is unsafe if it is a terminal.
struct TerminalSafe<'o> {
    output: &'o mut dyn Write,
}

impl Write for TerminalSafe<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if io::stdout().is_terminal() {
            bytes::escape(bytes, Kept::Lines, self.output)?;
        } else {
            self.output.write_all(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Store rows, with the keys of the column key
  tyrant put-rows people.csv
  # Take the keys from another column
  tyrant put-rows people.csv --key email")]
pub(super) struct PutRows {
    /// CSV file with a header; - is the standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Take the keys from this column; a row with an empty one gets a new id
    #[arg(long, value_name = "COLUMN", default_value = KEY_COLUMN)]
    key: String,
    /// Give every row a new id as its key
    #[arg(long, conflicts_with = "key")]
    new_keys: bool,
}

impl PutRows {
    /// Returns whether the rows are read from the standard input.
    pub(super) fn reads_input(&self) -> bool {
        self.file == Path::new("-")
    }
}

impl Run for PutRows {
    fn needs(&self) -> Need {
        Need::Rows
    }

    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let input: Box<dyn Read> = if self.reads_input() {
            Box::new(io::stdin().lock())
        } else {
            let file = std::fs::File::open(&self.file);
            Box::new(file.with_context(|| format!("cannot open {}", self.file.display()))?)
        };
        let key = (!self.new_keys).then_some(self.key.as_bytes());
        let remaining = match self.new_keys {
            true => "their rows are stored; the same command would store them once more",
            false => "their rows are stored; the same command replaces them, and goes on",
        };
        let progress = Progress::of_some_records("storing").explain(remaining);
        let stored = read_rows(input, key, ROW_BYTES_MAX, |key, columns| {
            server
                .put_row(key, columns)
                .map_err(|error| server.explain("put-rows", error.into()))?;
            progress.advance(1);
            Ok(())
        });
        let stored = stored.with_context(|| match self.reads_input() {
            true => "the standard input".to_owned(),
            false => self.file.display().to_string(),
        })?;
        drop(progress);
        server.confirm("put-rows")?;
        Ok(writeln!(output, "{}", counted(stored, "row", "rows"))?)
    }
}

/// Calls `take` with each row. Returns their number. Without the name of a key column the keys are
/// empty.
fn read_rows(
    input: impl Read,
    key_column: Option<&[u8]>,
    row_bytes_max: usize,
    mut take: impl FnMut(&[u8], &[Pair]) -> Result<()>,
) -> Result<u64> {
    let left = Rc::new(Cell::new(row_bytes_max));
    let limited = Limited { input, left: Rc::clone(&left) };
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(limited.chain(END));
    let names = reader.byte_headers().map_err(invalid)?.clone();
    check_names(&names)?;
    let key_place = match key_column {
        None => None,
        Some(column) => Some(names.iter().position(|name| name == column).with_context(|| {
            let names: Vec<String> = names.iter().map(bytes::quoted).collect();
            format!(
                "the file has no column {}, only {}: name the one of the keys with --key, or give \
                 --new-keys",
                bytes::quoted(column),
                names.join(", ")
            )
        })?),
    };
    let mut stored = 0;
    let mut record = csv::ByteRecord::new();
    loop {
        left.set(row_bytes_max);
        let is_read = reader.read_byte_record(&mut record).map_err(invalid)?;
        if !is_read || record.as_slice() == END.trim_ascii() {
            return Ok(stored);
        }
        check_row(&names, &record).with_context(|| place(&record, stored))?;
        let key = key_place.and_then(|place| record.get(place)).unwrap_or_default();
        let columns: Vec<Pair> = names
            .iter()
            .zip(&record)
            .enumerate()
            .filter(|(place, (_, value))| Some(*place) != key_place && !value.is_empty())
            .map(|(_, (name, value))| (name.to_vec(), value.to_vec()))
            .collect();
        take(key, &columns).with_context(|| place(&record, stored))?;
        stored += 1;
    }
}

/// Returns where reading has ended.
fn place(record: &csv::ByteRecord, stored: u64) -> String {
    let line = record.position().map_or(0, csv::Position::line);
    let stored = counted(stored, "row that was stored", "rows that were stored");
    format!("line {line}, after {stored}")
}

/// Fails for a header that would lose values or make other columns.
fn check_names(names: &csv::ByteRecord) -> Result<()> {
    let is_empty = names.iter().all(<[u8]>::is_empty) || names.as_slice() == END.trim_ascii();
    ensure!(
        !is_empty,
        "there are no rows, and no header: the first line must name the columns, as in {KEY_COLUMN},\
         name,age"
    );
    ensure!(!names.iter().any(|name| name.ends_with(END)), "the file ends within quotes");
    let mut known = BTreeSet::new();
    for name in names {
        let shown = bytes::quoted(name);
        ensure!(!name.contains(&0), "the header has a zero byte in the name {shown}: remove it");
        ensure!(known.insert(name), "the header names {shown} twice: rename one of the columns");
    }
    Ok(())
}

/// Fails for a row that is not one of these columns, or would make other columns.
fn check_row(names: &csv::ByteRecord, row: &csv::ByteRecord) -> Result<()> {
    let is_cut = row.iter().next_back().is_some_and(|value| value.ends_with(END));
    ensure!(!is_cut, "the file ends within the quotes of a value: it is cut, or lacks a quote");
    ensure!(
        row.len() == names.len(),
        "{}, but the header has {}",
        counted(row.len() as u64, "field", "fields"),
        names.len()
    );
    let with_zero = names.iter().zip(row).find(|(_, value)| value.contains(&0));
    if let Some((name, _)) = with_zero {
        let name = bytes::quoted(name);
        bail!("column {name}: the value has a zero byte, which separates columns: remove it");
    }
    Ok(())
}

/// Returns the error of a file that is not CSV, or that cannot be read.
fn invalid(error: csv::Error) -> anyhow::Error {
    anyhow!("cannot read the rows: {error}")
}

/// Input that fails if a row takes too many bytes.
struct Limited<R> {
    input: R,
    /// Bytes that the present row may still take.
    left: Rc<Cell<usize>>,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.input.read(buffer)?;
        let left = self.left.get().checked_sub(bytes);
        let left = left.ok_or_else(|| io::Error::other("a row is too long"))?;
        self.left.set(left);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, value: &[u8]) -> Pair {
        (name.as_bytes().to_vec(), value.to_vec())
    }

    fn read(text: &[u8], key: Option<&str>) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        let key = key.map(str::as_bytes);
        let stored = read_rows(text, key, 1000, |key, columns| {
            rows.push(Row { key: key.to_vec(), columns: columns.to_vec() });
            Ok(())
        })?;
        assert_eq!(stored, rows.len() as u64);
        Ok(rows)
    }

    #[test]
    fn rows_of_any_bytes_round_trip() {
        let value: Vec<u8> = (1..=255).collect();
        let columns = vec![pair("a,\"b\"", &value), pair("c", b"x\r\ny")];
        let rows = [
            Row { key: b"1".to_vec(), columns },
            Row { key: b"\"".to_vec(), columns: vec![pair("d", b"2")] },
            Row { key: b"3".to_vec(), columns: Vec::new() },
        ];
        let mut text = Vec::new();
        write_rows(&rows, &[], &mut text).unwrap();
        assert!(text.starts_with(b"key,\"a,\"\"b\"\"\",c,d\n"), "{}", text.escape_ascii());
        assert_eq!(read(&text, Some("key")).unwrap(), rows);
    }

    #[test]
    fn chosen_columns_are_written_in_their_order() {
        let row = Row { key: b"k".to_vec(), columns: vec![pair("a", b"1"), pair("b", b"2")] };
        let mut text = Vec::new();
        write_rows(&[row], &[b"b", b"z", b"a"], &mut text).unwrap();
        assert_eq!(text, b"key,b,z,a\nk,2,,1\n");
        let row = Row { key: Vec::new(), columns: vec![pair("key", b"1")] };
        assert!(write_rows(&[row], &[], &mut Vec::new()).is_err());
    }

    #[test]
    fn the_keys_are_in_any_column_or_new() {
        let rows = read(b"name,id\nann,7\n", Some("id")).unwrap();
        assert_eq!(rows, [Row { key: b"7".to_vec(), columns: vec![pair("name", b"ann")] }]);
        assert_eq!(read(b"name,id\nann,7\n", None).unwrap()[0].key, b"");
        let error = read(b"name,id\n", Some("key")).unwrap_err().to_string();
        assert!(error.contains("no column \"key\", only \"name\", \"id\""), "{error}");
    }

    #[test]
    fn invalid_files_are_refused_with_the_line() {
        for (text, expected) in [
            (
                &b"key,a\n1,2\n3\n"[..],
                "line 3, after 1 row that was stored: 1 field, but the header has 2",
            ),
            (
                b"key,a\n1,2\n3,4,5\n",
                "line 3, after 1 row that was stored: 3 fields, but the header has 2",
            ),
            (
                b"key,a\n1,\"x\n2,y\n",
                "line 2, after 0 rows that were stored: the file ends within the quotes",
            ),
            (b"key,\"a\n1,x\n", "the file ends within quotes"),
            (b"key,a,a\n1,2,3\n", "the header names \"a\" twice"),
            (b"key,a\0b\n1,2\n", "the header has a zero byte in the name \"a\\0b\""),
            (
                b"key,a\n1,x\0role\0admin\n",
                "line 2, after 0 rows that were stored: column \"a\": the value has a zero byte",
            ),
            (b"key,a\n1\0a\0b,x\n", "column \"key\": the value has a zero byte"),
        ] {
            let error = format!("{:#}", read(text, Some("key")).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
        for text in [&b""[..], b"\n", b"\r\n\n", b"\xef\xbb\xbf"] {
            let error = read(text, Some("key")).unwrap_err().to_string();
            assert!(error.starts_with("there are no rows, and no header: "), "{error}");
            assert!(read(text, None).is_err());
        }
        for text in [&b"key,a\n1,\"x\""[..], b"key,a\r\n1,\"x\"\r\n", b"\xef\xbb\xbfkey,a\n1,x\n\n"]
        {
            let row = Row { key: b"1".to_vec(), columns: vec![pair("a", b"x")] };
            assert_eq!(read(text, Some("key")).unwrap(), [row]);
        }
        let failed = read_rows(&b"key,a\n1,2\n3,4\n"[..], Some(b"key"), 1000, |key, _| {
            if key == b"3" { Err(anyhow!("full")) } else { Ok(()) }
        });
        let error = format!("{:#}", failed.unwrap_err());
        assert_eq!(error, "line 3, after 1 row that was stored: full");
    }

    #[test]
    fn the_length_of_a_row_is_limited() {
        let text = [&b"key,a\n1,"[..], &[b'x'; 100], b"\n"].concat();
        for (max, is_taken) in [(text.len() - 1, false), (text.len(), true)] {
            let read = read_rows(&text[..], Some(b"key"), max, |_, _| Ok(()));
            assert_eq!(read.is_ok(), is_taken, "{max}");
        }
    }
}
