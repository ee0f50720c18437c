//! `tyrant.time`, `tyrant.random`, `tyrant.log`: the clock, numbers at random, the server's log.

use crate::functions::{Installer, failed};
use mlua::{LuaString, Result};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.table.raw_set("version", env!("CARGO_PKG_VERSION"))?;
    installer.add_short("time", |_, _, ()| {
        Ok(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64())
    })?;
    // The keys of each hasher differ, from random ones on; 53 bits fill a number of Lua.
    installer.add_short("random", |_, _, ()| {
        let bits = RandomState::new().hash_one(0) >> 11;
        Ok(bits as f64 / (1u64 << 53) as f64)
    })?;
    installer.add("log", |_, _, (level, message): (LuaString, LuaString)| {
        let message = message.to_string_lossy();
        match &*level.as_bytes() {
            b"debug" => tracing::debug!("{message}"),
            b"info" => tracing::info!("{message}"),
            b"warn" => tracing::warn!("{message}"),
            b"error" => tracing::error!("{message}"),
            _ => return Err(failed("the level is one of debug, info, warn, error")),
        }
        Ok(())
    })
}
