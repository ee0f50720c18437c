//! Output of the commands on a server: keys, values, rows and numbers in the form that the user
//! chose.
//!
//! Lists have one record per line, and never a control character or invalid UTF-8 unless `--raw` is
//! given. A single value is printed as it is, unless the output is a terminal.

use crate::bytes::{self, Kept};
use crate::transfer::progress;
use crate::transfer::text::{self, Format};
use anyhow::{Context, Result};
use cabinet::Meta;
use client::Pair;
use serde_json::{Map, Value as Json};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

/// Text form of keys and values.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Form {
    /// Read and print keys and values in hexadecimal
    #[arg(long, conflicts_with_all = ["raw", "json"])]
    hex: bool,
    /// Print bytes as they are, instead of escaping control characters and invalid UTF-8
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// Text form of keys and values that are only read.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Reading {
    /// Read keys and values in hexadecimal
    #[arg(long)]
    hex: bool,
}

/// Whether numbers and texts are printed as JSON.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct AsJson {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Whether a command prints nothing but errors, as programs that call it periodically want.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Quiet {
    /// Print nothing but errors
    #[arg(long)]
    quiet: bool,
}

impl Quiet {
    pub(crate) fn is_set(self) -> bool {
        self.quiet
    }

    /// If the command is quiet, discards from now on what the program prints to the standard
    /// output, and hides progress bars.
    pub(crate) fn apply(self) -> Result<()> {
        if self.quiet {
            let nowhere = File::options().write(true).open("/dev/null")?;
            rustix::stdio::dup2_stdout(nowhere)?;
            progress::hide();
        }
        Ok(())
    }
}

impl Reading {
    pub(crate) fn read(self, text: &OsStr) -> Result<Vec<u8>> {
        read(text, self.hex)
    }
}

impl AsJson {
    /// Writes a number, in JSON as the only member of an object.
    pub(crate) fn write_number(
        self,
        name: &str,
        number: u64,
        output: &mut dyn Write,
    ) -> Result<()> {
        if self.json {
            return Ok(writeln!(output, r#"{{"{name}":{number}}}"#)?);
        }
        Ok(writeln!(output, "{number}")?)
    }

    /// Writes names and values: a line for each, or one object.
    pub(crate) fn write_properties(
        self,
        properties: &[(&str, String)],
        output: &mut dyn Write,
    ) -> Result<()> {
        if self.json {
            let members =
                properties.iter().map(|(name, text)| ((*name).to_owned(), value_of(text)));
            return write_json(&Json::Object(members.collect()), output);
        }
        for (name, text) in properties {
            writeln!(
                output,
                "{}\t{}",
                bytes::escaped(name.as_bytes()),
                bytes::escaped(text.as_bytes())
            )?;
        }
        Ok(())
    }
}

/// Returns a number if the text is one in its only form, or else the text.
pub(crate) fn value_of(text: &str) -> Json {
    let number = text.parse::<u64>().ok().filter(|number| number.to_string() == text);
    let decimal = || {
        let is_plain = text.starts_with(|c: char| c.is_ascii_digit()) && text.contains('.');
        text.parse::<f64>().ok().filter(|number| is_plain && number.is_finite())
    };
    match (number, decimal()) {
        (Some(number), _) => number.into(),
        (None, Some(number)) => number.into(),
        (None, None) => text.into(),
    }
}

/// Writes JSON as a line without characters that a terminal could take for a command.
pub(crate) fn write_json(value: &Json, output: &mut dyn Write) -> Result<()> {
    text::write_json_value(value, output)?;
    Ok(output.write_all(b"\n")?)
}

/// Returns an object of some members.
pub(crate) fn object<const N: usize>(members: [(&str, Json); N]) -> Json {
    let members = members.into_iter().map(|(name, value)| (name.to_owned(), value));
    Json::Object(Map::from_iter(members))
}

fn read(text: &OsStr, is_hex: bool) -> Result<Vec<u8>> {
    if is_hex {
        let digits = text.to_str().with_context(|| format!("{text:?} is not hexadecimal"))?;
        return bytes::from_hex(digits);
    }
    Ok(text.as_bytes().to_vec())
}

impl Form {
    /// Returns the bytes of an argument.
    pub(crate) fn read(self, text: &OsStr) -> Result<Vec<u8>> {
        read(text, self.hex)
    }

    /// Returns how numbers are printed beside records of this form.
    pub(crate) fn as_json(self) -> AsJson {
        AsJson { json: self.json }
    }

    fn write_field(self, bytes: &[u8], output: &mut dyn Write) -> Result<()> {
        if self.hex {
            write!(output, "{}", bytes::to_hex(bytes))?;
        } else if self.raw {
            output.write_all(bytes)?;
        } else {
            bytes::escape(bytes, Kept::Nothing, output)?;
        }
        Ok(())
    }

    /// Returns whether records are printed as JSON, with their expiry.
    pub(crate) fn shows_expiry(self) -> bool {
        self.json
    }

    /// Writes a key as a line, in JSON with the expiry of its record.
    pub(crate) fn write_key(
        self,
        key: &[u8],
        expires_at_ms: u64,
        output: &mut dyn Write,
    ) -> Result<()> {
        if !self.json {
            return self.write_line("key", key, output);
        }
        write!(output, "{{")?;
        text::write_member("key", key, output)?;
        text::write_expiry(expires_at_ms, output)?;
        Ok(output.write_all(b"}\n")?)
    }

    /// Writes one of several values or other strings as a line. `name` is its name in JSON.
    pub(crate) fn write_line(self, name: &str, bytes: &[u8], output: &mut dyn Write) -> Result<()> {
        if self.json {
            write!(output, "{{")?;
            text::write_member(name, bytes, output)?;
            write!(output, "}}")?;
        } else {
            self.write_field(bytes, output)?;
        }
        Ok(output.write_all(b"\n")?)
    }

    /// Writes a key and a value as a line.
    pub(crate) fn write_pair(self, key: &[u8], value: &[u8], output: &mut dyn Write) -> Result<()> {
        self.write_record(key, value, 0, output)
    }

    /// Writes a key and a value as a line, in JSON with the expiry of the record.
    pub(crate) fn write_record(
        self,
        key: &[u8],
        value: &[u8],
        expires_at_ms: u64,
        output: &mut dyn Write,
    ) -> Result<()> {
        if self.json {
            let meta = Meta { flags: 0, expires_at_ms };
            return text::write_record(Format::Jsonl, key, value, meta, output);
        }
        self.write_field(key, output)?;
        output.write_all(b"\t")?;
        self.write_field(value, output)?;
        Ok(output.write_all(b"\n")?)
    }

    /// Writes the value of a single key. Without another form it is written as it is, and for a
    /// terminal with its lines.
    pub(crate) fn write_value(
        self,
        key: &[u8],
        value: &[u8],
        ends_line: bool,
        output: &mut dyn Write,
    ) -> Result<()> {
        if self.json {
            return self.write_pair(key, value, output);
        }
        if self.hex {
            self.write_field(value, output)?;
        } else if !self.raw && std::io::stdout().is_terminal() {
            bytes::escape(value, Kept::Lines, output)?;
        } else {
            output.write_all(value)?;
        }
        if ends_line {
            output.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Writes a row as a line: the key, then names and values of its columns.
    pub(crate) fn write_row(
        self,
        key: &[u8],
        columns: &[Pair],
        output: &mut dyn Write,
    ) -> Result<()> {
        if self.json {
            let columns: Vec<(&[u8], &[u8])> =
                columns.iter().map(|(name, value)| (&name[..], &value[..])).collect();
            return text::write_row(Format::Jsonl, key, &columns, output);
        }
        self.write_field(key, output)?;
        for part in columns.iter().flat_map(|(name, value)| [name, value]) {
            output.write_all(b"\t")?;
            self.write_field(part, output)?;
        }
        Ok(output.write_all(b"\n")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut dyn Write) -> Result<()>) -> String {
        let mut output = Vec::new();
        write(&mut output).unwrap();
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn a_record_is_one_line_in_every_form() {
        let columns = [(b"n\x1b".to_vec(), b"\xff".to_vec())];
        let form = |hex, raw, json| Form { hex, raw, json };
        for (form, pair, row) in [
            (form(false, false, false), "a\\n\t\\x1b\n", "a\\n\tn\\x1b\t\\xff\n"),
            (form(true, false, false), "61 0A\t1B\n", "61 0A\t6E 1B\tFF\n"),
            (
                form(false, false, true),
                "{\"key\":\"a\\n\",\"value_hex\":\"1b\"}\n",
                "{\"key\":\"a\\n\",\"columns_hex\":{\"6e1b\":\"ff\"}}\n",
            ),
        ] {
            assert_eq!(written(|output| form.write_pair(b"a\n", b"\x1b", output)), pair);
            assert_eq!(written(|output| form.write_row(b"a\n", &columns, output)), row);
        }
        let raw = form(false, true, false);
        assert_eq!(written(|output| raw.write_pair(b"a", b"\x1b", output)), "a\t\x1b\n");
    }

    #[test]
    fn numbers_are_numbers_in_json_and_other_text_is_text() {
        for (text, json) in [
            ("12", "12"),
            ("0.5", "0.5"),
            ("18446744073709551615", "18446744073709551615"),
            ("012", "\"012\""),
            ("-", "\"-\""),
            ("1e400", "\"1e400\""),
            ("0.1.0", "\"0.1.0\""),
            ("nan", "\"nan\""),
            ("a\u{9b}b", "\"a\\u009bb\""),
        ] {
            assert_eq!(written(|output| write_json(&value_of(text), output)), format!("{json}\n"));
        }
    }
}
