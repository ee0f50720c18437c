//! `_lock` and `_unlock`: locks with names that all states share.

use super::{End, Installer, failed};
use crate::limits::{LOCK_NAME_BYTES_MAX, LOCKED_NAMES_MAX, LOCKS_MAX};
use crate::locks::Locking;
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
        match context.shared.locks.lock(&name, context.owner, context.clock.remaining()) {
            Locking::Locked => {
                context.locked.lock().push(name);
                Ok(true)
            }
            Locking::Late => context.check().map(|()| false),
            Locking::TooMany => {
                Err(failed(format!("_lock: {LOCKED_NAMES_MAX} names are locked already")))
            }
        }
    })?;
    installer.add("_unlock", |_, context, (name, _): (LuaString, End)| {
        let name = name.as_bytes();
        context.locked.lock().retain(|locked| locked[..] != name[..]);
        Ok(context.shared.locks.unlock(&name))
    })
}
