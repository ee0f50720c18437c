//! `_stashput` and the like: a map in memory that all states share.

use super::records::made;
use super::{End, Installer, failed};
use mlua::{Function, LuaString, Result, Value};

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    type Record = (LuaString, LuaString, End);
    installer.add("_stashput", |_, context, (key, value, _): Record| {
        let stash = &context.shared.stash;
        stash.put(&key.as_bytes(), &value.as_bytes()).map_err(failed)?;
        Ok(true)
    })?;
    installer.add("_stashputkeep", |_, context, (key, value, _): Record| {
        let stash = &context.shared.stash;
        stash.put_keep(&key.as_bytes(), &value.as_bytes()).map_err(failed)?;
        // Also if there is such a record, as in Tokyo Tyrant.
        Ok(true)
    })?;
    installer.add("_stashputcat", |_, context, (key, value, _): Record| {
        let stash = &context.shared.stash;
        stash.append(&key.as_bytes(), &value.as_bytes()).map_err(failed)?;
        Ok(true)
    })?;
    installer.add("_stashout", |_, context, (key, _): (LuaString, End)| {
        Ok(context.shared.stash.remove(&key.as_bytes()))
    })?;
    installer.add("_stashget", |lua, context, (key, _): (LuaString, End)| {
        made(lua, context.shared.stash.get(&key.as_bytes()).map(Ok))
    })?;
    installer.add("_stashvanish", |_, context, _: End| {
        context.shared.stash.clear();
        Ok(())
    })?;
    installer.add("_stashforeach", |lua, context, function: Function| {
        let mut last: Option<Vec<u8>> = None;
        while let Some((key, value)) = context.shared.stash.after(last.as_deref()) {
            let arguments = (lua.create_string(&key)?, lua.create_string(&value)?);
            if !matches!(context.call_back::<Value>(&function, arguments)?, Value::Boolean(true)) {
                break;
            }
            last = Some(key);
        }
        Ok(true)
    })
}
