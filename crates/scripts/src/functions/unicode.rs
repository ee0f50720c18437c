//! `_ucs`: UTF-8 to an array of UTF-16 code units, and back.

use super::{Installer, failed, table};
use crate::context::Context;
use crate::pace::{ELEMENT_UNITS, Pace};
use mlua::{Lua, LuaString, Result, Value};

/// Bytes that a code unit of a table takes, with its part of the text.
const UNIT_BYTES: usize = 2 * size_of::<u16>() + 3;

/// Code units for which memory is taken at first.
const UNITS_MIN: usize = 1 << 10;

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add("_ucs", |lua, context, value: Value| match value {
        Value::Table(table) => {
            let mut pace = Pace::new(lua, context);
            let mut units = Vec::new();
            for unit in table.sequence_values::<f64>() {
                pace.work(ELEMENT_UNITS)?;
                // With the text that is made of it.
                context.charge_bytes(lua, UNIT_BYTES)?;
                // The first cast saturates, the second cuts.
                units.push((unit? as i64) as u16);
            }
            let text = String::from_utf16_lossy(&units);
            Ok(Value::String(context.text(lua, text.as_bytes())?))
        }
        Value::Nil => Err(failed("_ucs: invalid arguments")),
        value => {
            let text = lua.unpack::<LuaString>(value)?;
            let units = code_units(lua, context, &text.as_bytes())?;
            let table = table(lua, context, units.len(), 0)?;
            let mut pace = Pace::new(lua, context);
            for unit in units {
                pace.work(ELEMENT_UNITS)?;
                table.raw_push(unit)?;
            }
            Ok(Value::Table(table))
        }
    })
}

/// Returns the UTF-16 code units of a text. Bytes that are not UTF-8 are left out.
pub(super) fn code_units(lua: &Lua, context: &Context, text: &[u8]) -> Result<Vec<u16>> {
    let mut pace = Pace::new(lua, context);
    let mut units = Vec::new();
    for unit in text.utf8_chunks().flat_map(|chunk| chunk.valid().encode_utf16()) {
        pace.work(1)?;
        if units.len() == units.capacity() {
            let more = units.len().max(UNITS_MIN);
            context.charge_bytes(lua, more * size_of::<u16>())?;
            units.reserve_exact(more);
        }
        units.push(unit);
    }
    Ok(units)
}
