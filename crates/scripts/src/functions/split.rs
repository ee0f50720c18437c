//! `_split`: a text in pieces between delimiters.

use super::Installer;
use mlua::{LuaString, Result};

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add("_split", |lua, _, (text, delimiters): (LuaString, Option<LuaString>)| {
        let text = text.as_bytes();
        let delimiters = match &delimiters {
            Some(delimiters) => delimiters.as_bytes().to_vec(),
            None => vec![0],
        };
        let table = lua.create_table()?;
        let pieces = text.split(|byte| delimiters.contains(byte));
        for piece in pieces {
            table.raw_push(lua.create_string(piece)?)?;
        }
        Ok(table)
    })
}
