//! `_hash`: MD5 and CRC-32.

use super::Installer;
use md5::{Digest, Md5};
use mlua::{LuaString, Result, Value};

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add_short("_hash", |lua, context, (name, text): (LuaString, LuaString)| {
        let text = text.as_bytes();
        context.check_bytes(text.len())?;
        Ok(match &*name.as_bytes().to_ascii_lowercase() {
            b"md5" => {
                let digest = Md5::digest(&*text);
                let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
                Value::String(lua.create_string(digits)?)
            }
            b"md5raw" => Value::String(lua.create_string(Md5::digest(&*text))?),
            b"crc32" => Value::Integer(crc32fast::hash(&text).into()),
            _ => Value::Nil,
        })
    })
}
