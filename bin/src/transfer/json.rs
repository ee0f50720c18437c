//! JSON that a terminal cannot take for commands.

use crate::bytes::is_unsafe;
use anyhow::Result;
use std::io::Write;

/// Writes JSON, with escapes for characters that a terminal could take for a command.
pub(crate) fn write_json_value(
    value: &(impl serde::Serialize + ?Sized),
    output: &mut dyn Write,
) -> Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(output, TerminalSafe);
    // An error of the output keeps its type, so that a closed pipe is recognized.
    value.serialize(&mut serializer).map_err(std::io::Error::from)?;
    Ok(())
}

/// Formatter of JSON that escapes unsafe characters.
struct TerminalSafe;

impl serde_json::ser::Formatter for TerminalSafe {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> std::io::Result<()> {
        let mut rest = fragment;
        while let Some(place) = rest.find(is_unsafe) {
            let (safe, after) = rest.split_at(place);
            writer.write_all(safe.as_bytes())?;
            let mut characters = after.chars();
            if let Some(special) = characters.next() {
                // All of them are in the basic plane, so one escape is enough.
                write!(writer, "\\u{:04x}", u32::from(special))?;
            }
            rest = characters.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}
