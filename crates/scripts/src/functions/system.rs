//! `_log`, `_time` and `_sleep`, and what remains of Lua's `os`.

use super::{End, Installer, failed, programs};
use crate::context::Context;
use crate::limits::DATE_FORMAT_BYTES_MAX;
use jiff::{Timestamp, Zoned, tz::TimeZone};
use mlua::{Lua, LuaString, Result, Table, Value};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Functions of `os` that every script has.
const OS: &[&str] = &["clock", "difftime", "time"];

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add("_log", |_, _, (message, level): (LuaString, Option<f64>)| {
        let message = message.to_string_lossy();
        // Saturates. 0 is debug, 1 information, 2 an error, 3 a message of the system.
        match level.unwrap_or(1.0) as i64 {
            0 => tracing::debug!("{message}"),
            2 => tracing::error!("{message}"),
            _ => tracing::info!("{message}"),
        }
        Ok(())
    })?;
    installer.add_short("_time", |_, _, _: End| Ok(now()))?;
    installer.add("_sleep", |_, context, (seconds, _): (f64, End)| {
        // A number that is no duration is longer than any call.
        let duration = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
        context.sleep(duration)?;
        Ok(true)
    })?;
    let libraries: Table = installer.table.raw_get("os")?;
    let os = installer.lua.create_table()?;
    for name in OS {
        os.raw_set(*name, libraries.raw_get::<Value>(*name)?)?;
    }
    let allowed = installer.context.shared.allowed;
    if allowed.files {
        for name in ["remove", "rename", "tmpname"] {
            os.raw_set(name, libraries.raw_get::<Value>(name)?)?;
        }
    }
    if allowed.programs {
        os.raw_set("getenv", libraries.raw_get::<Value>("getenv")?)?;
        programs::install(&installer.into(os.clone()))?;
    }
    installer.into(os.clone()).add("date", date)?;
    installer.table.raw_set("os", os)
}

/// Returns the time in seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// `os.date`: Lua's own shares memory among threads.
fn date(lua: &Lua, _: &Context, (format, time): (Option<LuaString>, Option<f64>)) -> Result<Value> {
    if format.as_ref().is_some_and(|format| format.as_bytes().len() > DATE_FORMAT_BYTES_MAX) {
        let message = format!("the format is longer than {DATE_FORMAT_BYTES_MAX} bytes");
        return Err(failed(message));
    }
    let format = format.map_or_else(|| "%c".to_string(), |format| format.to_string_lossy());
    let (zone, format) = match format.strip_prefix('!') {
        Some(format) => (TimeZone::UTC, format.to_string()),
        None => (TimeZone::system(), format),
    };
    // Saturates.
    let seconds = time.unwrap_or_else(now).floor() as i64;
    let time = Timestamp::from_second(seconds).map_err(failed)?.to_zoned(zone);
    if format.starts_with("*t") {
        return fields(lua, &time).map(Value::Table);
    }
    // The parts of a date that the C library composes itself, as in the locale `C`.
    let format = format
        .replace("%c", "%a %b %e %H:%M:%S %Y")
        .replace("%x", "%m/%d/%y")
        .replace("%X", "%H:%M:%S");
    let text = jiff::fmt::strtime::format(&format, &time).map_err(failed)?;
    lua.create_string(text).map(Value::String)
}

fn fields(lua: &Lua, time: &Zoned) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("year", time.year())?;
    table.raw_set("month", time.month())?;
    table.raw_set("day", time.day())?;
    table.raw_set("hour", time.hour())?;
    table.raw_set("min", time.minute())?;
    table.raw_set("sec", time.second())?;
    table.raw_set("wday", time.weekday().to_sunday_one_offset())?;
    table.raw_set("yday", time.day_of_year())?;
    table.raw_set("isdst", time.time_zone().to_offset_info(time.timestamp()).dst().is_dst())?;
    Ok(table)
}
