//! `tyrant.get`, `tyrant.put` and the like: records with expiry and versions.

use crate::context::Context;
use crate::functions::{Copied, Installer, array, collect, copied, failed, table};
use crate::pace::Pace;
use cabinet::Version;
use mlua::{Lua, LuaString, MultiValue, Result, Table, Value};
use server::PutIf;
use std::time::Duration;

/// Records that `tyrant.range` returns if no number is given.
const RANGE_RECORDS: usize = 1000;

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    type Change = (LuaString, LuaString, Option<Table>);
    installer.add_short("get", get)?;
    installer.add_short("put", |_, context, (key, value, options): Change| {
        let expires_in = expires_in(options.as_ref())?;
        context.records.put(&key.as_bytes(), &value.as_bytes(), expires_in).map_err(failed)
    })?;
    installer.add_short("put_new", |_, context, (key, value, options): Change| {
        put_if(context, &key, &value, None, options.as_ref())
    })?;
    type Swap = (LuaString, LuaString, LuaString, Option<Table>);
    installer.add_short(
        "compare_and_swap",
        |_, context, (key, value, version, options): Swap| {
            let version = version_of(&version)?;
            put_if(context, &key, &value, Some(version), options.as_ref())
        },
    )?;
    installer.add_short("append", |_, context, (key, value): (LuaString, LuaString)| {
        context.records.append(&key.as_bytes(), &value.as_bytes()).map_err(failed)
    })?;
    installer.add_short("remove", |_, context, key: LuaString| {
        context.records.remove(&key.as_bytes()).map_err(failed)
    })?;
    installer.add_short("count", |_, context, ()| Ok(context.records.count()))?;
    installer.add("size", |_, context, ()| Ok(context.records.size_bytes()))?;
    installer.add("keys", |lua, context, (prefix, max): (LuaString, Option<usize>)| {
        let max = max.unwrap_or(usize::MAX);
        let (keys, _charge) = collect(lua, context, |charge| {
            context.records.keys_with_prefix(&prefix.as_bytes(), max, charge)
        })?;
        array(lua, context, &keys.map_err(failed)?)
    })?;
    installer.add("range", range)
}

/// Returns the value, the version, and the time of expiry in seconds since 1970, if there is one.
fn get(lua: &Lua, context: &Context, key: LuaString) -> Result<MultiValue> {
    let key = key.as_bytes();
    let mut results = MultiValue::new();
    let record = copied(lua, context, || {
        let record = context.records.get_record(&key, |record| {
            let value = Copied::new(context, record.value)?;
            Ok((value, record.version, record.expires_at_ms))
        });
        record.map_err(failed).transpose().map(|record| record.and_then(|record| record))
    });
    match record? {
        Some((value, version, expires_at_ms)) => {
            results.push_back(Value::String(context.text(lua, &value.bytes)?));
            results.push_back(Value::String(lua.create_string(text_of(version))?));
            if expires_at_ms > 0 {
                results.push_back(Value::Number(expires_at_ms as f64 / 1000.0));
            }
        }
        None => results.push_back(Value::Nil),
    }
    Ok(results)
}

/// Returns whether the record was stored, and its new version.
fn put_if(
    context: &Context,
    key: &LuaString,
    value: &LuaString,
    version: Option<Version>,
    options: Option<&Table>,
) -> Result<(bool, Option<String>)> {
    let expires_in = expires_in(options)?;
    let (key, value) = (key.as_bytes(), value.as_bytes());
    let outcome = context.records.put_if_version(&key, &value, version, expires_in);
    Ok(match outcome.map_err(failed)? {
        PutIf::Stored(version) => (true, Some(text_of(version))),
        PutIf::Changed | PutIf::Missing => (false, None),
    })
}

/// Returns a version as text: numbers of Lua have too few digits for it.
fn text_of(version: Version) -> String {
    version.to_string()
}

fn version_of(text: &LuaString) -> Result<Version> {
    let version = text.to_str().ok().and_then(|text| text.parse().ok());
    version.ok_or_else(|| failed("a version is a text that tyrant.get returned"))
}

/// Returns the option `expires_in`, in seconds.
fn expires_in(options: Option<&Table>) -> Result<Option<Duration>> {
    let Some(options) = options else { return Ok(None) };
    let Some(seconds) = options.get::<Option<f64>>("expires_in")? else { return Ok(None) };
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) => Ok(Some(duration)),
        Err(_) => Err(failed(format!("expires_in is no number of seconds: {seconds}"))),
    }
}

fn range(lua: &Lua, context: &Context, options: Table) -> Result<Table> {
    let begin: Option<LuaString> = options.get("begin")?;
    let stop: Option<LuaString> = options.get("stop")?;
    let max = options.get::<Option<usize>>("max")?.unwrap_or(RANGE_RECORDS);
    let begin = begin.as_ref().map(LuaString::as_bytes);
    let stop = stop.as_ref().map(LuaString::as_bytes);
    let (elements, _charge) = collect(lua, context, |charge| {
        context.records.range(begin.as_deref(), max, stop.as_deref(), charge)
    })?;
    let elements = elements.map_err(failed)?;
    let mut pace = Pace::new(lua, context);
    let table = table(lua, context, elements.len() / 2, 0)?;
    for record in elements.chunks_exact(2) {
        pace.element(record[0].len() + record[1].len())?;
        let pair = lua.create_table_with_capacity(0, 2)?;
        pair.raw_set("key", context.text(lua, &record[0])?)?;
        pair.raw_set("value", context.text(lua, &record[1])?)?;
        table.raw_push(pair)?;
    }
    Ok(table)
}
