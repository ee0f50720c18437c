//! Text form of keys, values and errors on the command line.

use super::arguments::Invocation;
use crate::bytes;
use crate::remote::{NO_PERMISSION, Unreachable};
use anyhow::{Context, Result, bail};
use client::Error;
use std::io::{ErrorKind, Write};

/// Text form of keys and values: plain or in hexadecimal (`-sx` for arguments, `-px` for output),
/// and the character that represents NUL (`-sep`).
pub(super) struct Text {
    hex_in: bool,
    hex_out: bool,
    separator: Option<u8>,
}

impl Text {
    pub(super) fn of(invocation: &Invocation) -> Result<Self> {
        let separator = match invocation.value("-sep") {
            None => None,
            Some(text) => Some(match text.as_encoded_bytes() {
                b"\\t" => b'\t',
                b"\\n" => b'\n',
                b"\\r" => b'\r',
                [byte] => *byte,
                _ => bail!("-sep takes one character, not {text:?}"),
            }),
        };
        Ok(Self { hex_in: invocation.has("-sx"), hex_out: invocation.has("-px"), separator })
    }

    /// Returns the bytes that an operand represents.
    pub(super) fn read(&self, operand: &[u8]) -> Result<Vec<u8>> {
        if self.hex_in {
            return bytes::from_hex(std::str::from_utf8(operand).context("not hexadecimal")?);
        }
        Ok(replace(operand, self.separator, Some(0)))
    }

    /// Prints bytes, without a newline.
    pub(super) fn write(&self, bytes: &[u8], output: &mut dyn Write) -> Result<()> {
        if self.hex_out {
            write!(output, "{}", bytes::to_hex(bytes))?;
        } else {
            output.write_all(&replace(bytes, Some(0), self.separator))?;
        }
        Ok(())
    }
}

/// Replaces each `from` in the bytes with `to`, if both are given.
fn replace(bytes: &[u8], from: Option<u8>, to: Option<u8>) -> Vec<u8> {
    let (Some(from), Some(to)) = (from, to) else { return bytes.to_vec() };
    bytes.iter().map(|byte| if *byte == from { to } else { *byte }).collect()
}

/// Parses a number on the command line.
pub(super) fn number<T: std::str::FromStr>(text: impl AsRef<[u8]>) -> Result<T> {
    let text = String::from_utf8_lossy(text.as_ref());
    text.trim().parse().map_err(|_| anyhow::anyhow!("{text:?} is not a number"))
}

/// Failure without a reason.
const CLOSED: &str = "the server closed the connection; its log may tell why";

/// Note on advice that names options.
const OPTIONS: &str = "these are options of the program tyrant, and tcrmgr takes variables: \
                       TYRANT_USER and TYRANT_PASSWORD, TYRANT_TLS_CA and others";

/// Returns what the server requires that this client does not have, if that is why a command has
/// failed.
fn requirement() -> Option<String> {
    let refused = super::manage::reconnect()?.err()?;
    (!refused.is::<Unreachable>()).then(|| format!("{}; {OPTIONS}", crate::describe(&refused)))
}

/// Formats an error as `CODE: message`, with Tokyo Tyrant's codes; 9999 is any other error.
pub(super) fn error(error: &anyhow::Error) -> String {
    let Some(error) = error.downcast_ref::<Error>() else {
        return format!("9999: {}", crate::describe(error));
    };
    let what = format!("{}: {error}", error.code());
    match error {
        Error::HostNotFound(cause) => {
            format!("{what}: {cause}; check the name, and give a port with -port")
        }
        Error::ConnectionRefused(cause) => {
            const ADVICE: &str = "check the host and -port, and that the server runs";
            match cause.kind() {
                ErrorKind::ConnectionRefused => format!("{what}; {ADVICE}"),
                _ => format!("{what}: {cause}; {ADVICE}"),
            }
        }
        // The server has given this reason.
        Error::Receive(reason) if reason.kind() == ErrorKind::Other => format!("{what}: {reason}"),
        Error::Send(cause) | Error::Receive(cause) => {
            let cause = requirement().unwrap_or_else(|| match cause.kind() {
                ErrorKind::UnexpectedEof => CLOSED.to_owned(),
                _ => cause.to_string(),
            });
            format!("{what}: {cause}")
        }
        Error::Handshake(_) | Error::PlainLogin => {
            requirement().map_or_else(|| what.clone(), |cause| format!("{what}: {cause}"))
        }
        // A server that requires a login replies with any failure.
        Error::Miscellaneous | Error::NoRecordFound | Error::ExistingRecord => {
            let refused = |reason| format!("{}: {reason}", Error::Miscellaneous.code());
            match (super::manage::last_failure(), error) {
                // The reason may begin with the same words.
                (Some((_, reason)), Error::Miscellaneous) => {
                    format!("{what}: {}", without_name(&reason))
                }
                (Some((code, reason)), _) if code == NO_PERMISSION => refused(reason),
                (Some(_), _) => what,
                (None, _) => requirement().map_or(what, refused),
            }
        }
        _ => what,
    }
}

/// Returns the reason of a failure without Tokyo Tyrant's name of any other error before it.
fn without_name(reason: &str) -> &str {
    let rest = reason.strip_prefix(&*Error::Miscellaneous.to_string());
    rest.and_then(|rest| rest.strip_prefix(": ")).unwrap_or(reason)
}

#[cfg(test)]
mod tests {
    use super::{Text, number};

    fn printed(text: &Text, bytes: &[u8]) -> Vec<u8> {
        let mut output = Vec::new();
        text.write(bytes, &mut output).unwrap();
        output
    }

    #[test]
    fn a_separator_represents_nul_in_both_directions() {
        let text = Text { hex_in: false, hex_out: false, separator: Some(b',') };
        assert_eq!(text.read(b"a,b,").unwrap(), b"a\0b\0");
        assert_eq!(printed(&text, b"a\0b\0"), b"a,b,");
    }

    #[test]
    fn without_a_separator_bytes_are_unchanged() {
        let text = Text { hex_in: false, hex_out: false, separator: None };
        assert_eq!(text.read(b"a\0\xff").unwrap(), b"a\0\xff");
        assert_eq!(printed(&text, b"a\0\xff"), b"a\0\xff");
    }

    #[test]
    fn hexadecimal_is_read_and_printed() {
        let text = Text { hex_in: true, hex_out: true, separator: None };
        assert_eq!(text.read(b"66 69 72").unwrap(), b"fir");
        assert_eq!(printed(&text, b"fir"), b"66 69 72");
        text.read(b"fir").unwrap_err();
        text.read(b"\xff").unwrap_err();
    }

    #[test]
    fn a_number_must_be_the_whole_argument() {
        assert_eq!(number::<i32>(b"-12").unwrap(), -12);
        assert_eq!(number::<f64>(b" 1.5 ").unwrap(), 1.5);
        for text in ["", "x", "1x", "4294967296"] {
            number::<i32>(text).unwrap_err();
        }
    }
}
