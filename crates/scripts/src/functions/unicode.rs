//! `_ucs`: UTF-8 to an array of UTF-16 code units, and back.

use super::{Installer, failed};
use mlua::{LuaString, Result, Value};

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add("_ucs", |lua, _, value: Value| match value {
        Value::Table(table) => {
            let mut units = Vec::new();
            for unit in table.sequence_values::<f64>() {
                // The first cast saturates, the second cuts.
                units.push((unit? as i64) as u16);
            }
            Ok(Value::String(lua.create_string(String::from_utf16_lossy(&units))?))
        }
        Value::Nil => Err(failed("_ucs: invalid arguments")),
        value => {
            let text = lua.unpack::<LuaString>(value)?;
            Ok(Value::Table(lua.create_sequence_from(code_units(&text.as_bytes()))?))
        }
    })
}

/// Returns the UTF-16 code units of a text. Bytes that are not UTF-8 are left out.
pub(super) fn code_units(text: &[u8]) -> Vec<u16> {
    text.utf8_chunks().flat_map(|chunk| chunk.valid().encode_utf16()).collect()
}
