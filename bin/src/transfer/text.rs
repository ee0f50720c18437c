//! Records as lines of text: TSV and JSON lines, for arbitrary bytes.
//!
//! A line of TSV is a key and a value separated by a TAB. For a row it is the key, then name and
//! value of each column. In all of them backslash, TAB, line feed, carriage return and NUL are
//! written `\\`, `\t`, `\n`, `\r` and `\0`; all other bytes are written unchanged. A byte is also
//! read as `\xHH`, two hexadecimal digits, as the lists of a server's records have it.
//!
//! A line of JSON is an object with these members:
//!
//! | member | contents |
//! |---|---|
//! | `key` or `key_hex` | the key, as text or in hexadecimal |
//! | `value` or `value_hex` | the value |
//! | `columns` or `columns_hex` | instead of a value: an object with the columns of a row |
//! | `flags` | flags, if they are not 0 |
//! | `media_type` | instead of flags: a media type that has a number in its own database only |
//! | `expires_at_ms` | milliseconds since the Unix epoch, if the record expires |
//!
//! A line with a member `reserved` in place of a key is a record that the server stores for one of
//! its front ends, as WebDAV's properties of a file.
//!
//! Bytes are written as text if they are UTF-8 and the text is not longer than hexadecimal.

pub(crate) use super::json::write_json_value;

use crate::bytes::{self, is_unsafe, unescaped};
use anyhow::{Context, Result, anyhow, bail, ensure};
use cabinet::Meta;
use cabinet::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use serde_json::{Map, Value as Json};
use std::io::{BufRead, Read, Write};
use std::path::Path;

/// Longest line, in bytes: the longest record with two bytes for each byte, and its overhead.
const LINE_BYTES_MAX: u64 = 2 * (KEY_BYTES_MAX as u64 + VALUE_BYTES_MAX as u64) + 4096;

/// Bytes that are looked through at once for those to escape.
const PIECE_BYTES: usize = 256;

/// Byte order mark that some programs write at the beginning of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Length of an escape in JSON by a character's number, in bytes.
const UNICODE_ESCAPE_BYTES: usize = 6;

/// Text formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Key, TAB, value; without flags and expiry
    Tsv,
    /// One JSON object per line
    Jsonl,
}

impl Format {
    /// Returns the format for the suffix of a path.
    pub(crate) fn of_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "tsv" => Some(Self::Tsv),
            "jsonl" | "ndjson" => Some(Self::Jsonl),
            _ => None,
        }
    }
}

/// A parsed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A record with its flags and expiry.
    Record { key: Vec<u8>, value: Vec<u8>, meta: Meta },
    /// A record whose flags stand for a media type that the database has yet to give a number.
    Typed { key: Vec<u8>, value: Vec<u8>, media_type: String, expires_at_ms: u64 },
    /// A record that is reserved for a front end, by its name.
    Reserved { name: Vec<u8>, value: Vec<u8> },
    /// A row of a table.
    Row { key: Vec<u8>, columns: Vec<(Vec<u8>, Vec<u8>)> },
}

/// Contents of a TSV file: records or rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Records,
    Rows,
}

/// Form of the lines of an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) format: Format,
    pub(crate) shape: Shape,
    /// Whether the input is not a regular file. It ends where its writer does, perhaps within a
    /// line: half a line of TSV may look whole, of JSON it does not.
    pub(crate) is_stream: bool,
}

/// Writes a record as a line.
pub(crate) fn write_record(
    format: Format,
    key: &[u8],
    value: &[u8],
    meta: Meta,
    output: &mut dyn Write,
) -> Result<()> {
    match format {
        Format::Tsv => {
            escape_key(key, output)?;
            output.write_all(b"\t")?;
            escape(value, output)?;
        }
        Format::Jsonl => {
            write!(output, "{{")?;
            write_member("key", key, output)?;
            write!(output, ",")?;
            write_member("value", value, output)?;
            if meta.flags != 0 {
                write!(output, r#","flags":{}"#, meta.flags)?;
            }
            write_expiry(meta.expires_at_ms, output)?;
            write!(output, "}}")?;
        }
    }
    Ok(output.write_all(b"\n")?)
}

/// Writes the member for the expiry of a record, if there is one.
pub(crate) fn write_expiry(expires_at_ms: u64, output: &mut dyn Write) -> Result<()> {
    if expires_at_ms != 0 {
        write!(output, r#","expires_at_ms":{expires_at_ms}"#)?;
    }
    Ok(())
}

/// Writes a record whose flags stand for a media type as a line of JSON.
pub(crate) fn write_typed(
    key: &[u8],
    value: &[u8],
    media_type: &str,
    expires_at_ms: u64,
    output: &mut dyn Write,
) -> Result<()> {
    write!(output, "{{")?;
    write_member("key", key, output)?;
    write!(output, ",")?;
    write_member("value", value, output)?;
    write!(output, r#","media_type":"#)?;
    write_json_value(media_type, output)?;
    write_expiry(expires_at_ms, output)?;
    Ok(output.write_all(b"}\n")?)
}

/// Writes a reserved record as a line of JSON.
pub(crate) fn write_reserved(name: &[u8], value: &[u8], output: &mut dyn Write) -> Result<()> {
    write!(output, "{{")?;
    write_member("reserved", name, output)?;
    write!(output, ",")?;
    write_member("value", value, output)?;
    Ok(output.write_all(b"}\n")?)
}

/// Writes a row of a table as a line.
pub(crate) fn write_row(
    format: Format,
    key: &[u8],
    columns: &[(&[u8], &[u8])],
    output: &mut dyn Write,
) -> Result<()> {
    match format {
        Format::Tsv => {
            escape_key(key, output)?;
            for (name, value) in columns {
                output.write_all(b"\t")?;
                escape(name, output)?;
                output.write_all(b"\t")?;
                escape(value, output)?;
            }
        }
        Format::Jsonl => {
            write!(output, "{{")?;
            write_member("key", key, output)?;
            let parts = columns.iter().flat_map(|(name, value)| [*name, *value]);
            let is_text = parts.into_iter().all(|part| as_text(part).is_some());
            write!(output, ",{}:{{", if is_text { r#""columns""# } else { r#""columns_hex""# })?;
            for (index, (name, value)) in columns.iter().enumerate() {
                if index > 0 {
                    write!(output, ",")?;
                }
                write_string(name, is_text, output)?;
                write!(output, ":")?;
                write_string(value, is_text, output)?;
            }
            write!(output, "}}}}")?;
        }
    }
    Ok(output.write_all(b"\n")?)
}

/// Reason why reading stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The line with this number, counted from 1, is invalid or cannot be read.
    Reading(u64, anyhow::Error),
    /// The consumer of a line failed.
    Taking(anyhow::Error),
}

/// Reads all lines.
pub(crate) fn read_lines(
    form: Form,
    input: impl BufRead,
    take: &mut dyn FnMut(Line) -> Result<()>,
) -> Result<(), Failure> {
    read_lines_up_to(LINE_BYTES_MAX, form, input, take)
}

/// Like `read_lines`, with lines of at most `bytes_max` bytes, including the line feed.
fn read_lines_up_to(
    bytes_max: u64,
    form: Form,
    mut input: impl BufRead,
    take: &mut dyn FnMut(Line) -> Result<()>,
) -> Result<(), Failure> {
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        let is_first = number == 1;
        let read = read_line(bytes_max, form, is_first, &mut input, &mut line);
        match read.map_err(|error| Failure::Reading(number, error))? {
            Some(line) => take(line).map_err(Failure::Taking)?,
            None => break,
        }
    }
    Ok(())
}

/// Reads the next line into `line`. Returns `None` at the end.
fn read_line(
    bytes_max: u64,
    form: Form,
    is_first: bool,
    input: &mut impl BufRead,
    line: &mut Vec<u8>,
) -> Result<Option<Line>> {
    let count = input.by_ref().take(bytes_max + 1).read_until(b'\n', line)?;
    if count == 0 {
        return Ok(None);
    }
    ensure!(count as u64 <= bytes_max, "longer than {bytes_max} bytes");
    let mark: &[u8] = if is_first { BYTE_ORDER_MARK } else { b"" };
    let text = line.strip_prefix(mark).unwrap_or(line);
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    // A carriage return of a key or a value is escaped.
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    if text.is_empty() && !mark.is_empty() && count == mark.len() {
        return Ok(None);
    }
    ensure!(
        !form.is_stream || form.format != Format::Tsv || line.ends_with(b"\n"),
        "it ends without a line feed, so a part of it may be missing: if it is complete, end it with \
         one"
    );
    match form.format {
        Format::Tsv => read_tsv(text, form.shape),
        Format::Jsonl => read_json(text),
    }
    .map(Some)
}

/// Writes bytes, escaping those that would end a field.
pub(crate) fn escape(bytes: &[u8], output: &mut dyn Write) -> std::io::Result<()> {
    let is_special = |byte: &u8| matches!(byte, b'\\' | b'\t' | b'\n' | b'\r' | 0);
    // Without an exit the loop takes many bytes at a time, and most pieces have none of these.
    let has_special = |piece: &[u8]| piece.iter().fold(false, |any, byte| any | is_special(byte));
    let (mut written, mut looked_at) = (0, 0);
    for piece in bytes.chunks(PIECE_BYTES) {
        if has_special(piece) {
            for place in (looked_at..looked_at + piece.len()).filter(|at| is_special(&bytes[*at])) {
                output.write_all(&bytes[written..place])?;
                output.write_all(match bytes[place] {
                    b'\\' => br"\\",
                    b'\t' => br"\t",
                    b'\n' => br"\n",
                    b'\r' => br"\r",
                    _ => br"\0",
                })?;
                written = place + 1;
            }
        }
        looked_at += piece.len();
    }
    output.write_all(&bytes[written..])
}

/// Writes a key at the beginning of a line, where a byte order mark would be taken for that of the
/// file.
fn escape_key(key: &[u8], output: &mut dyn Write) -> std::io::Result<()> {
    match key.strip_prefix(BYTE_ORDER_MARK) {
        None => escape(key, output),
        Some(rest) => {
            output.write_all(br"\xef\xbb\xbf")?;
            escape(rest, output)
        }
    }
}

fn unescape(text: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let kind = rest.next();
        match kind.and_then(|kind| unescaped(kind, &mut rest)) {
            Some(byte) => bytes.push(byte),
            None if kind == Some(b'x') => {
                bail!(r"invalid escape: two hexadecimal digits must follow \x");
            }
            None => bail!(r"invalid escape: valid are \\ \t \n \r \0 \xHH"),
        }
    }
    Ok(bytes)
}

fn read_tsv(text: &[u8], shape: Shape) -> Result<Line> {
    let mut fields = text.split(|byte| *byte == b'\t').map(unescape);
    let key = fields.next().context("no key")??;
    match shape {
        Shape::Records => {
            let value = fields.next().context("no TAB after the key")??;
            ensure!(fields.next().is_none(), "more than one TAB");
            Ok(Line::Record { key, value, meta: Meta::NONE })
        }
        Shape::Rows => {
            let mut columns = Vec::new();
            while let Some(name) = fields.next() {
                columns.push((name?, fields.next().context("a column without a value")??));
            }
            Ok(Line::Row { key, columns })
        }
    }
}

/// Returns an error of JSON without its number of the line: it was given one, of a file.
fn of_one_line(error: serde_json::Error) -> anyhow::Error {
    anyhow!(error.to_string().replace(" at line 1 column ", " at column "))
}

fn read_json(text: &[u8]) -> Result<Line> {
    let Json::Object(mut members) = serde_json::from_slice(text).map_err(of_one_line)? else {
        bail!("not a JSON object")
    };
    let Some(key) = read_member(&mut members, "key")? else { return read_reserved(members) };
    let columns = members.remove("columns").map(|columns| (columns, true));
    let columns = columns.or_else(|| Some((members.remove("columns_hex")?, false)));
    let line = match columns {
        Some((Json::Object(columns), is_text)) => {
            let columns = columns
                .into_iter()
                .map(|(name, value)| {
                    Ok((read_string(name.into(), is_text)?, read_string(value, is_text)?))
                })
                .collect::<Result<_>>()?;
            Line::Row { key, columns }
        }
        Some(_) => bail!("the columns are not a JSON object"),
        None => {
            let value = read_member(&mut members, "value")?.context("no value")?;
            let mut number = |name: &str| match members.remove(name) {
                None => Ok(0),
                Some(number) => number.as_u64().with_context(|| format!("{name} is not a number")),
            };
            let flags = u32::try_from(number("flags")?).context("the flags exceed 32 bits")?;
            let expires_at_ms = number("expires_at_ms")?;
            match members.remove("media_type") {
                None => Line::Record { key, value, meta: Meta { flags, expires_at_ms } },
                Some(Json::String(media_type)) if flags == 0 => {
                    Line::Typed { key, value, media_type, expires_at_ms }
                }
                Some(Json::String(_)) => bail!("both flags and a media type"),
                Some(_) => bail!("the media type is not a string"),
            }
        }
    };
    expect_no_more(&members)?;
    Ok(line)
}

/// Reads a line without a key.
fn read_reserved(mut members: Map<String, Json>) -> Result<Line> {
    let name = read_member(&mut members, "reserved")?.context("no key")?;
    let value = read_member(&mut members, "value")?.context("no value")?;
    expect_no_more(&members)?;
    Ok(Line::Reserved { name, value })
}

fn expect_no_more(members: &Map<String, Json>) -> Result<()> {
    match members.keys().next() {
        Some(name) => bail!("unknown member {name:?}"),
        None => Ok(()),
    }
}

/// Returns the bytes as text, unless hexadecimal is shorter or required.
fn as_text(bytes: &[u8]) -> Option<&str> {
    let text = str::from_utf8(bytes).ok()?;
    let further = |c: char| match c {
        '"' | '\\' | '\t' | '\n' | '\r' => 1,
        c if is_unsafe(c) => UNICODE_ESCAPE_BYTES - c.len_utf8(),
        _ => 0,
    };
    let further: usize = text.chars().map(further).sum();
    (further <= bytes.len()).then_some(text)
}

/// Writes a member of a JSON object, as text or, with the suffix `_hex`, in hexadecimal.
pub(crate) fn write_member(name: &str, bytes: &[u8], output: &mut dyn Write) -> Result<()> {
    let is_text = as_text(bytes).is_some();
    write!(output, r#""{name}{}":"#, if is_text { "" } else { "_hex" })?;
    write_string(bytes, is_text, output)
}

fn write_string(bytes: &[u8], is_text: bool, output: &mut dyn Write) -> Result<()> {
    if is_text && let Ok(text) = str::from_utf8(bytes) {
        return write_json_value(text, output);
    }
    write!(output, "\"")?;
    for byte in bytes {
        write!(output, "{byte:02x}")?;
    }
    Ok(write!(output, "\"")?)
}

fn read_member(members: &mut Map<String, Json>, name: &str) -> Result<Option<Vec<u8>>> {
    if let Some(text) = members.remove(name) {
        return read_string(text, true).map(Some);
    }
    members.remove(&format!("{name}_hex")).map(|text| read_string(text, false)).transpose()
}

fn read_string(text: Json, is_text: bool) -> Result<Vec<u8>> {
    let Json::String(text) = text else { bail!("{text} is not a string") };
    if is_text { Ok(text.into_bytes()) } else { bytes::from_hex(&text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(format: Format, shape: Shape, text: &[u8]) -> Result<Vec<Line>, Failure> {
        let mut lines = Vec::new();
        read_lines(Form { format, shape, is_stream: false }, text, &mut |line| {
            lines.push(line);
            Ok(())
        })?;
        Ok(lines)
    }

    fn samples() -> Vec<Vec<u8>> {
        vec![
            b"".to_vec(),
            b"text".to_vec(),
            (0..=255).collect(),
            b"\\t\\0\t\n\r\0\\".to_vec(),
            "東京 \u{7f} \"quoted\" \u{202e}".into(),
            "\u{9b}31m".into(),
            b"\x01\x02\x03".to_vec(),
        ]
    }

    #[test]
    fn records_of_any_bytes_round_trip() {
        for format in [Format::Tsv, Format::Jsonl] {
            let mut text = Vec::new();
            let mut expected = Vec::new();
            for key in samples() {
                for value in samples() {
                    write_record(format, &key, &value, Meta::NONE, &mut text).unwrap();
                    expected.push(Line::Record { key: key.clone(), value, meta: Meta::NONE });
                }
            }
            assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), expected.len());
            assert_eq!(read(format, Shape::Records, &text).unwrap(), expected);
        }
    }

    #[test]
    fn media_types_and_reserved_records_round_trip() {
        let mut text = Vec::new();
        write_typed(b"k", b"\xff", "image/x-own; a=\"b\"", 5, &mut text).unwrap();
        write_reserved(b"webdav properties k", b"[]", &mut text).unwrap();
        let (key, value) = (b"k".to_vec(), b"\xff".to_vec());
        let media_type = "image/x-own; a=\"b\"".to_owned();
        let typed = Line::Typed { key, value, media_type, expires_at_ms: 5 };
        let (name, value) = (b"webdav properties k".to_vec(), b"[]".to_vec());
        let expected = [typed, Line::Reserved { name, value }];
        assert_eq!(read(Format::Jsonl, Shape::Records, &text).unwrap(), expected);
        for wrong in [
            r#"{"key":"k","value":"","flags":1,"media_type":"a/b"}"#,
            r#"{"key":"k","value":"","media_type":1}"#,
            r#"{"reserved":"k"}"#,
            r#"{"reserved":"k","value":"","flags":1}"#,
        ] {
            read(Format::Jsonl, Shape::Records, wrong.as_bytes()).unwrap_err();
        }
    }

    #[test]
    fn lines_as_lists_print_them_are_read_back() {
        let all: Vec<u8> = (0..=255).collect();
        let line = format!("{}\t{}", bytes::escaped(&all), bytes::escaped(b"\x1b[2J"));
        let record = Line::Record { key: all, value: b"\x1b[2J".to_vec(), meta: Meta::NONE };
        assert_eq!(read(Format::Tsv, Shape::Records, line.as_bytes()).unwrap(), [record]);
    }

    #[test]
    fn marks_and_line_ends_of_other_programs_are_no_part_of_a_record() {
        let record =
            |key: &[u8]| Line::Record { key: key.to_vec(), value: b"v".to_vec(), meta: Meta::NONE };
        let tsv = b"\xef\xbb\xbfa\tv\r\nb\tv\r\n\xef\xbb\xbfc\tv";
        let expected = [record(b"a"), record(b"b"), record(b"\xef\xbb\xbfc")];
        assert_eq!(read(Format::Tsv, Shape::Records, tsv).unwrap(), expected);
        let json = b"\xef\xbb\xbf{\"key\":\"a\",\"value\":\"v\"}\r\n";
        assert_eq!(read(Format::Jsonl, Shape::Records, json).unwrap(), expected[..1]);
        assert_eq!(read(Format::Tsv, Shape::Records, b"\xef\xbb\xbf").unwrap(), []);
        let mut written = Vec::new();
        write_record(Format::Tsv, b"\xef\xbb\xbfc", b"v", Meta::NONE, &mut written).unwrap();
        assert_eq!(read(Format::Tsv, Shape::Records, &written).unwrap(), expected[2..]);
    }

    #[test]
    fn rows_of_any_bytes_round_trip() {
        for format in [Format::Tsv, Format::Jsonl] {
            let columns: Vec<_> = samples().into_iter().zip(samples().into_iter().rev()).collect();
            let mut text = Vec::new();
            let mut expected = Vec::new();
            for columns in [&columns[..], &columns[3..5], &[]] {
                let lent: Vec<(&[u8], &[u8])> =
                    columns.iter().map(|(name, value)| (&name[..], &value[..])).collect();
                write_row(format, b"key", &lent, &mut text).unwrap();
                expected.push(Line::Row { key: b"key".to_vec(), columns: columns.to_vec() });
            }
            assert_eq!(read(format, Shape::Rows, &text).unwrap(), expected);
        }
    }

    #[test]
    fn the_length_of_a_line_is_limited() {
        let text = "k\tvalue\n";
        for (max, is_taken) in [(7, false), (8, true), (9, true)] {
            let form = Form { format: Format::Tsv, shape: Shape::Records, is_stream: true };
            let read = read_lines_up_to(max, form, text.as_bytes(), &mut |_| Ok(()));
            assert_eq!(read.is_ok(), is_taken, "{max}");
        }
    }

    #[test]
    fn json_lines_keep_flags_and_expiry() {
        let meta = Meta { flags: u32::MAX, expires_at_ms: 1_800_000_000_000 };
        let mut text = Vec::new();
        write_record(Format::Jsonl, b"k", b"v", meta, &mut text).unwrap();
        let expected =
            r#"{"key":"k","value":"v","flags":4294967295,"expires_at_ms":1800000000000}"#;
        assert_eq!(String::from_utf8(text.clone()).unwrap(), format!("{expected}\n"));
        let record = Line::Record { key: b"k".to_vec(), value: b"v".to_vec(), meta };
        assert_eq!(read(Format::Jsonl, Shape::Records, &text).unwrap(), [record]);
    }

    #[test]
    fn a_line_is_never_longer_than_in_hexadecimal() {
        for value in samples() {
            for format in [Format::Tsv, Format::Jsonl] {
                let mut text = Vec::new();
                write_record(format, b"", &value, Meta::NONE, &mut text).unwrap();
                assert!(text.len() <= 2 * value.len() + 32, "{value:?}");
            }
        }
    }

    #[test]
    fn invalid_lines_are_refused_with_their_number() {
        let refused = |format, text: &str| {
            let error = read(format, Shape::Records, text.as_bytes()).unwrap_err();
            assert!(matches!(error, Failure::Reading(2, _)), "{text}: {error:?}");
        };
        for bad in ["key", "a\tb\tc", "a\\\tb", "a\\x\tb", "a\\x4\tb", "a\\x4g\tb", "a\\y\tb", ""] {
            refused(Format::Tsv, &format!("a\tb\n{bad}\n"));
        }
        for bad in [
            "",
            "[]",
            "{}",
            r#"{"key":"a"}"#,
            r#"{"value":"a"}"#,
            r#"{"key":1,"value":"a"}"#,
            r#"{"key_hex":"0","value":"a"}"#,
            r#"{"key":"a","value":"a","other":1}"#,
            r#"{"key":"a","value":"a","flags":4294967296}"#,
            r#"{"key":"a","value":"a","flags":-1}"#,
            r#"{"key":"a","columns":[]}"#,
            r#"{"key":"a","value":"a"} {}"#,
        ] {
            refused(Format::Jsonl, &format!("{{\"key\":\"a\",\"value\":\"b\"}}\n{bad}\n"));
        }
    }
}
