//! `_split`: a text in pieces between delimiters.

use super::Installer;
use crate::pace::Pace;
use mlua::{LuaString, Result, Value};

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add_short("_split", |lua, context, (text, delimiters): (LuaString, Value)| {
        let text = text.as_bytes();
        context.leave_loop_for_values(text.len());
        let mut is_delimiter = [false; 256];
        // As in Tokyo Tyrant, other values than texts are ignored.
        match lua.coerce_string(delimiters)? {
            Some(delimiters) => {
                delimiters
                    .as_bytes()
                    .iter()
                    .for_each(|byte| is_delimiter[usize::from(*byte)] = true);
            }
            None => is_delimiter[0] = true,
        }
        let table = lua.create_table()?;
        let pieces = text.split(|byte| is_delimiter[usize::from(*byte)]);
        let mut pace = Pace::new(lua, context);
        for piece in pieces {
            pace.element(piece.len())?;
            table.raw_push(context.text(lua, piece)?)?;
        }
        Ok(table)
    })
}
