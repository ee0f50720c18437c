//! Update log entries as lines of text, in Tokyo Tyrant's format and in others.

use crate::bytes::{from_hex, to_hex};
use std::io::{self, Write};
use wire::binary::Request;
use wire::update_log::{Entry, Operation};

/// Writes a log entry as Tokyo Tyrant's `ttulmgr export` does: time stamp, `origin:master`, name of
/// the command and body in hexadecimal, separated by TABs.
pub(crate) fn write_line(entry: &Entry<'_>, output: &mut dyn Write) -> io::Result<()> {
    let Entry { timestamp_us, origin, master, body } = entry;
    let name = Operation::parse(body).map_or("misc", |operation| name(&operation.request));
    writeln!(output, "{timestamp_us}\t{origin}:{master}\t{name}\t{}", to_hex(body))
}

/// Returns Tokyo Tyrant's name of a command.
pub(crate) fn name(request: &Request<'_>) -> &'static str {
    match request {
        Request::Put { .. } => "put",
        Request::PutKeep { .. } => "putkeep",
        Request::PutCat { .. } => "putcat",
        Request::PutShift { .. } => "putshl",
        Request::Out { .. } => "out",
        Request::AddInt { .. } => "addint",
        Request::AddDouble { .. } => "adddouble",
        Request::Sync => "sync",
        Request::Optimize { .. } => "optimize",
        Request::Vanish => "vanish",
        // A log has no other commands.
        _ => "misc",
    }
}

/// A parsed line of a log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    timestamp_us: u64,
    origin: u16,
    master: u16,
    body: Vec<u8>,
}

impl Line {
    /// Parses a line of [`write_line`], ignoring the name. Returns `None` if it is invalid.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut fields = text.trim_end_matches(['\r', '\n']).split('\t');
        let timestamp_us = fields.next()?.parse().ok()?;
        let (origin, master) = fields.next()?.split_once(':')?;
        let (_name, body) = (fields.next()?, fields.next()?);
        let body = from_hex(body).ok()?;
        Operation::parse(&body).ok()?;
        let (origin, master) = (origin.parse().ok()?, master.parse().ok()?);
        fields.next().is_none().then_some(Self { timestamp_us, origin, master, body })
    }

    pub(crate) fn entry(&self) -> Entry<'_> {
        let &Self { timestamp_us, origin, master, ref body } = self;
        Entry { timestamp_us, origin, master, body }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_matches_tokyo_tyrants_and_is_parsed_again() {
        let text = "1795224529459142\t3:0\tout\tC8 20 00 00 00 02 7A 7A 01\n";
        let line = Line::parse(text).unwrap();
        let mut written = Vec::new();
        write_line(&line.entry(), &mut written).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), text);
    }

    #[test]
    fn invalid_lines_are_none() {
        for text in [
            "",
            "x\t3:0\tout\tC8 20 00 00 00 02 7A 7A 01",
            "1\t3\tout\tC8 20 00 00 00 02 7A 7A 01",
            "1\t3:70000\tout\tC8 20 00 00 00 02 7A 7A 01",
            "1\t3:0\tout\tC8 20 00 00 00 02 7A 7A",
            "1\t3:0\tout",
            "1\t3:0\tout\tC8 20 00 00 00 02 7A 7A 01\tmore",
        ] {
            assert_eq!(Line::parse(text), None, "{text}");
        }
    }
}
