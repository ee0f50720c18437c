//! `_hash`: MD5 and CRC-32.

use super::Installer;
use crate::pace::{Pace, UNITS_PER_CHECK};
use md5::{Digest, Md5};
use mlua::{LuaString, Result, Value};

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add_short("_hash", |lua, context, (name, text): (LuaString, LuaString)| {
        let text = text.as_bytes();
        context.check_bytes(text.len())?;
        let mut pace = Pace::new(lua, context);
        Ok(match &*name.as_bytes().to_ascii_lowercase() {
            b"md5" => {
                let digest = md5(&mut pace, &text)?;
                let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
                Value::String(lua.create_string(digits)?)
            }
            b"md5raw" => Value::String(lua.create_string(md5(&mut pace, &text)?)?),
            b"crc32" => {
                let mut hasher = crc32fast::Hasher::new();
                for part in text.chunks(UNITS_PER_CHECK) {
                    pace.work(part.len())?;
                    hasher.update(part);
                }
                Value::Integer(hasher.finalize().into())
            }
            _ => Value::Nil,
        })
    })
}

fn md5(pace: &mut Pace<'_>, text: &[u8]) -> Result<Vec<u8>> {
    let mut hasher = Md5::new();
    for part in text.chunks(UNITS_PER_CHECK) {
        pace.work(part.len())?;
        hasher.update(part);
    }
    Ok(hasher.finalize().to_vec())
}
