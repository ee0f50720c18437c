//! `_stashput` and the like: a map in memory that all states share.

use super::records::{Copied, copied, made};
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
        let key = key.as_bytes();
        made(lua, context, || context.shared.stash.get(&key, |value| Copied::new(context, value)))
    })?;
    installer.add("_stashvanish", |_, context, _: End| {
        context.shared.stash.clear();
        Ok(())
    })?;
    installer.add("_stashforeach", |lua, context, function: Function| {
        let mut last: Option<Vec<u8>> = None;
        let copy = |key: &[u8], value: &[u8]| {
            Ok::<_, mlua::Error>((Copied::new(context, key)?, Copied::new(context, value)?))
        };
        let next =
            |last: Option<&[u8]>| copied(lua, context, || context.shared.stash.after(last, copy));
        while let Some((key, value)) = next(last.as_deref())? {
            context.check_progress()?;
            let arguments = (context.text(lua, &key.bytes)?, context.text(lua, &value.bytes)?);
            drop(value);
            if !matches!(context.call_back::<Value>(&function, arguments)?, Value::Boolean(true)) {
                break;
            }
            last = Some(key.bytes);
        }
        Ok(true)
    })
}
