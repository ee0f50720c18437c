//! `_lock` and `_unlock`: locks with names that all states share.

use super::{End, Installer, failed};
use crate::limits::{LOCK_NAME_BYTES_MAX, LOCKS_MAX};
use mlua::{LuaString, Result};

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add("_lock", |_, context, (name, _): (LuaString, End)| {
        let name = name.as_bytes().to_vec();
        if name.len() > LOCK_NAME_BYTES_MAX {
            return Err(failed(format!(
                "_lock: the name is longer than {LOCK_NAME_BYTES_MAX} bytes"
            )));
        }
        if context.locked.lock().len() == LOCKS_MAX {
            return Err(failed(format!("_lock: this call has locked {LOCKS_MAX} names already")));
        }
        if context.locked.lock().contains(&name) {
            return Err(failed("_lock: this call has locked the name already"));
        }
        if !context.shared.locks.lock(&name, context.owner, context.clock.remaining()) {
            context.check()?;
            return Ok(false);
        }
        context.locked.lock().push(name);
        Ok(true)
    })?;
    installer.add("_unlock", |_, context, (name, _): (LuaString, End)| {
        let name = name.as_bytes();
        context.locked.lock().retain(|locked| locked[..] != name[..]);
        Ok(context.shared.locks.unlock(&name))
    })
}
