//! `importtsv`: imports one record per line, key and value separated by a TAB.

use super::arguments::Invocation;
use super::manage::connect;
use super::text::Text;
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;

/// Records per dot of the progress; below, dots per line.
const RECORDS_PER_DOT: u64 = 100;
const DOTS_PER_LINE: u64 = 50;

/// Longest line, in bytes: a value at the protocol's limit and its key.
const LINE_BYTES_MAX: u64 = 257 << 20;

/// Imports a file. `-nr` sends without waiting for responses, `-sc` makes keys lower-case.
pub(super) fn tab_separated(invocation: &Invocation, output: &mut dyn Write) -> Result<()> {
    let text = Text::of(invocation)?;
    let (client, operands) = connect(invocation)?;
    let mut input: Box<dyn BufRead> = match operands.first() {
        None => Box::new(std::io::stdin().lock()),
        Some(path) => {
            let path = OsStr::from_bytes(path);
            let file =
                File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
            Box::new(BufReader::new(file))
        }
    };
    let mut count = 0;
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        let bytes = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? as u64;
        if bytes == 0 {
            break;
        }
        if bytes == LINE_BYTES_MAX {
            bail!("line {number} is too long");
        }
        let record = line.strip_suffix(b"\n").unwrap_or(&line);
        // As in Tokyo Tyrant, a carriage return ends a line.
        let record = record.strip_suffix(b"\r").unwrap_or(record);
        let Some(tab) = record.iter().position(|byte| *byte == b'\t') else {
            bail!("line {number} has no TAB");
        };
        let mut key = text.read(&record[..tab])?;
        let value = text.read(&record[tab + 1..])?;
        if invocation.has("-sc") {
            key.make_ascii_lowercase();
        }
        if invocation.has("-nr") {
            client.put_no_reply(&key, &value)?;
        } else {
            client.put(&key, &value)?;
        }
        count += 1;
        if count % RECORDS_PER_DOT == 0 {
            write!(output, ".")?;
            if count % (RECORDS_PER_DOT * DOTS_PER_LINE) == 0 {
                writeln!(output, " ({count:08})")?;
            }
            output.flush()?;
        }
    }
    if invocation.has("-nr") {
        // The only reply: a server that refuses this client refuses it too.
        client.count()?;
    }
    writeln!(output, " ({count:08})")?;
    Ok(())
}
