//! `_put`, `_get` and the like: the records of the server.

use super::{End, Installer, failed};
use crate::context::Context;
use crate::error::is_of_memory;
use crate::memory::{Charge, UNCHARGED_BYTES};
use crate::pace::{ELEMENT_UNITS, Pace};
use crate::sorter::{Merged, Sorter};
use mlua::{Function, Lua, LuaString, Result, Table, Value, Variadic};
use parking_lot::Mutex;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of an element of a table in Lua, and of a field.
const ELEMENT_BYTES: usize = 16;
const FIELD_BYTES: usize = 40;

/// Size of a table up to which no memory is reserved for it, in bytes.
const SMALL_TABLE_BYTES: usize = 4 << 10;

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    type Key = (LuaString, End);
    type Record = (LuaString, LuaString, End);
    type Sum = (LuaString, f64, End);
    installer.add_short("_put", |_, context, (key, value, _): Record| {
        Ok(context.records.put(&key.as_bytes(), &value.as_bytes(), None).is_ok())
    })?;
    installer.add_short("_putkeep", |_, context, (key, value, _): Record| {
        Ok(context.records.put_keep(&key.as_bytes(), &value.as_bytes()).unwrap_or(false))
    })?;
    installer.add_short("_putcat", |_, context, (key, value, _): Record| {
        Ok(context.records.append(&key.as_bytes(), &value.as_bytes()).is_ok())
    })?;
    installer.add_short("_out", |_, context, (key, _): Key| {
        Ok(context.records.remove(&key.as_bytes()).unwrap_or(false))
    })?;
    installer.add_short("_get", |lua, context, (key, _): Key| {
        let key = key.as_bytes();
        made(lua, context, || {
            let value = context.records.get(&key, |value| Copied::new(context, value));
            value.ok().flatten()
        })
    })?;
    installer.add_short("_vsiz", |_, context, (key, _): Key| {
        let size = context.records.value_size(&key.as_bytes()).ok().flatten();
        Ok(size.map_or(-1, |size| size as i64))
    })?;
    installer.add("_iterinit", |_, context, _: End| Ok(context.records.iter_begin().is_ok()))?;
    installer.add("_iternext", |lua, context, _: End| {
        let key = context.records.iter_next().ok().flatten();
        key.map(|key| context.text(lua, &key)).transpose()
    })?;
    installer.add("_fwmkeys", |lua, context, (prefix, max): (LuaString, Value)| {
        // Without a limit if it is negative or not a number.
        let max = lua
            .coerce_number(max)?
            .filter(|max| *max >= 0.0)
            .map_or(usize::MAX, |max| max as usize);
        let (keys, _charge) = collect(lua, context, |charge| {
            context.records.keys_with_prefix(&prefix.as_bytes(), max, charge)
        })?;
        context.check()?;
        array(lua, context, &keys.unwrap_or_default())
    })?;
    installer.add_short("_addint", |_, context, (key, addend, _): Sum| {
        // The lowest number is the one that tells a failure in Tokyo Tyrant.
        if !(-2_147_483_647.0..2_147_483_648.0).contains(&addend) {
            return Ok(None);
        }
        let addend = addend as i32;
        Ok(context.records.add_int(&key.as_bytes(), addend).ok())
    })?;
    installer.add_short("_adddouble", |_, context, (key, addend, _): Sum| {
        Ok(context.records.add_double(&key.as_bytes(), addend).ok())
    })?;
    installer.add("_vanish", |_, context, _: End| Ok(context.records.clear().is_ok()))?;
    installer.add_short("_rnum", |_, context, _: End| Ok(context.records.count()))?;
    installer.add("_size", |_, context, _: End| Ok(context.records.size_bytes()))?;
    installer.add("_misc", misc)?;
    installer.add("_foreach", for_each)?;
    installer.add("_mapreduce", map_reduce)
}

/// Bytes that were copied while locks were held. Lua's errors jump over the functions that call it,
/// so nothing is made in Lua under a lock.
pub(crate) struct Copied {
    pub(crate) bytes: Vec<u8>,
    _charge: Option<Charge>,
}

impl Copied {
    pub(crate) fn new(context: &Context, bytes: &[u8]) -> Result<Self> {
        context.check_bytes(bytes.len())?;
        let mut charge = None;
        if bytes.len() > UNCHARGED_BYTES {
            charge.insert(context.charge()).add(bytes.len())?;
        }
        Ok(Self { bytes: bytes.to_vec(), _charge: charge })
    }
}

/// Makes a text of bytes that `copy` returns.
pub(crate) fn made(
    lua: &Lua,
    context: &Context,
    copy: impl FnMut() -> Option<Result<Copied>>,
) -> Result<Option<LuaString>> {
    copied(lua, context, copy)?.map(|copied| context.text(lua, &copied.bytes)).transpose()
}

/// Returns the result of `copy`. If there is no memory for it, the state's garbage is collected,
/// and `copy` is called once more.
pub(crate) fn copied<T>(
    lua: &Lua,
    context: &Context,
    mut copy: impl FnMut() -> Option<Result<T>>,
) -> Result<Option<T>> {
    match copy().transpose() {
        Err(error) if is_of_memory(&error) => {
            context.free_garbage(lua)?;
            copy().transpose()
        }
        copied => copied,
    }
}

/// Calls `read`, which collects texts and adds their bytes to the charge that it gets. If there is
/// no memory for them, the state's garbage is collected, and `read` is called once more. Returns
/// its result, and the charge.
pub(crate) fn collect<T>(
    lua: &Lua,
    context: &Context,
    mut read: impl FnMut(&mut dyn FnMut(usize) -> bool) -> T,
) -> Result<(T, Charge)> {
    let mut charge = context.charge();
    let mut exhausted = None;
    let mut attempt = |charge: &mut Charge| {
        exhausted = None;
        let texts = read(&mut |bytes| {
            exhausted = charge.add(bytes).err();
            exhausted.is_none()
        });
        (texts, exhausted)
    };
    let (mut texts, mut failure) = attempt(&mut charge);
    if failure.is_some() {
        drop(texts);
        charge.clear();
        context.free_garbage(lua)?;
        (texts, failure) = attempt(&mut charge);
    }
    match failure {
        Some(exhausted) => Err(exhausted.into()),
        None => Ok((texts, charge)),
    }
}

/// Makes an array of texts.
pub(crate) fn array(lua: &Lua, context: &Context, texts: &[Vec<u8>]) -> Result<Table> {
    let mut pace = Pace::new(lua, context);
    let table = table(lua, context, texts.len(), 0)?;
    for text in texts {
        pace.element(text.len())?;
        table.raw_push(context.text(lua, text)?)?;
    }
    Ok(table)
}

/// Makes a table with space for elements and fields.
pub(crate) fn table(lua: &Lua, context: &Context, elements: usize, fields: usize) -> Result<Table> {
    let bytes = elements.saturating_mul(ELEMENT_BYTES).saturating_add(
        fields.checked_next_power_of_two().unwrap_or(usize::MAX).saturating_mul(FIELD_BYTES),
    );
    if bytes > SMALL_TABLE_BYTES {
        context.check_bytes(bytes)?;
        context.memory.provide(lua, bytes)?;
    }
    lua.create_table_with_capacity(elements, fields)
}

fn misc(
    lua: &Lua,
    context: &Context,
    (name, values): (LuaString, Variadic<Value>),
) -> Result<Option<Table>> {
    let name = name.as_bytes();
    // Tokyo Tyrant's mark of a change that is not logged.
    let (name, is_logged) = match name.strip_prefix(b"$") {
        Some(name) => (name, false),
        None => (&*name, true),
    };
    // Copies: a state holds only some thousand references to its texts.
    let mut arguments: Vec<Vec<u8>> = Vec::new();
    let mut pace = Pace::new(lua, context);
    let mut add = |value: Value| -> Result<()> {
        if let Some(text) = lua.coerce_string(value)? {
            pace.element(text.as_bytes().len())?;
            context.charge_bytes(lua, text.as_bytes().len() + size_of::<Vec<u8>>())?;
            arguments.push(text.as_bytes().to_vec());
        }
        Ok(())
    };
    for value in values.iter() {
        if let Value::Table(table) = value {
            table.sequence_values::<Value>().try_for_each(|value| add(value?))?;
        } else {
            add(value.clone())?;
        }
    }
    let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
    let mut charge = context.charge();
    let mut exhausted = None;
    // A function may have changed records, so it is not called again.
    let results = context.records.misc(name, &arguments, is_logged, &mut |bytes| {
        exhausted = charge.add(bytes).err();
        exhausted.is_none()
    });
    match results {
        Ok(Some(results)) => array(lua, context, &results).map(Some),
        Ok(None) => Ok(None),
        Err(error) => {
            context.check()?;
            if let Some(exhausted) = exhausted {
                return Err(exhausted.into());
            }
            tracing::debug!("_misc {}: {error}", String::from_utf8_lossy(name));
            Ok(None)
        }
    }
}

/// Calls a function with a key and a value. Returns whether it wants more. As in Tokyo Tyrant, one
/// that fails does not; only the deadline and the limit of memory pass.
fn wants_more(context: &Context, call: impl FnOnce() -> Result<Value>) -> Result<bool> {
    match call() {
        Ok(value) => Ok(matches!(value, Value::Boolean(true))),
        Err(error) => {
            if context.clock.is_over() || is_of_memory(&error) {
                return Err(error);
            }
            tracing::error!("Lua error: {}", crate::error::message(&error));
            Ok(false)
        }
    }
}

/// Calls `visit` with each record until it returns false or fails.
pub(crate) fn visit_records(
    context: &Context,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<bool>,
) -> Result<bool> {
    let mut result = Ok(());
    let visited = context.records.for_each(|key, value| {
        match context.check().and_then(|()| visit(key, value)) {
            Ok(true) => ControlFlow::Continue(()),
            Ok(false) => ControlFlow::Break(()),
            Err(error) => {
                result = Err(error);
                ControlFlow::Break(())
            }
        }
    });
    result?;
    Ok(visited.is_ok())
}

fn for_each(lua: &Lua, context: &Context, function: Function) -> Result<bool> {
    visit_records(context, |key, value| {
        let arguments = (context.text(lua, key)?, context.text(lua, value)?);
        wants_more(context, || context.call_back::<Value>(&function, arguments))
    })
}

/// Returns the folder for temporary files: the global `_tmpdir_`, or that of the system.
pub(crate) fn temporary_folder(lua: &Lua) -> PathBuf {
    match lua.globals().raw_get::<Option<String>>("_tmpdir_") {
        Ok(Some(folder)) => folder.into(),
        _ => std::env::temp_dir(),
    }
}

fn map_reduce(
    lua: &Lua,
    context: &Context,
    (map, reduce, keys): (Function, Function, Option<Table>),
) -> Result<bool> {
    let sorter = context.shared.sorter(temporary_folder(lua)).until(context.clock.deadline());
    let sorter = Arc::new(Mutex::new(Some(sorter)));
    let emit = emit_into(lua, &sorter)?;
    let map_record = |key: &[u8], value: &[u8]| {
        let arguments = (context.text(lua, key)?, context.text(lua, value)?, &emit);
        wants_more(context, || context.call_back::<Value>(&map, arguments))
    };
    match keys {
        None => {
            visit_records(context, map_record)?;
        }
        Some(keys) => {
            for key in keys.sequence_values::<LuaString>() {
                let key = key?;
                let key = key.as_bytes();
                context.check_progress()?;
                let mut has_failed = false;
                let value = copied(lua, context, || {
                    let value = context.records.get(&key, |value| Copied::new(context, value));
                    has_failed = value.is_err();
                    value.ok().flatten()
                })?;
                if has_failed {
                    return Ok(false);
                }
                if let Some(value) = value
                    && !map_record(&key, &value.bytes)?
                {
                    break;
                }
            }
        }
    }
    let Some(sorter) = sorter.lock().take() else { return Ok(false) };
    let mut is_done = true;
    reduce_groups(lua, context, Merged::new([sorter]).map_err(failed)?, |key, values| {
        is_done &= wants_more(context, || context.call_back::<Value>(&reduce, (key, values)))?;
        Ok(())
    })?;
    Ok(is_done)
}

/// Returns the function by which a mapper emits a key and a value.
pub(crate) fn emit_into(lua: &Lua, sorter: &Arc<Mutex<Option<Sorter>>>) -> Result<Function> {
    let sorter = Arc::clone(sorter);
    lua.create_function(move |_, (key, value): (LuaString, LuaString)| {
        let mut slot = sorter.lock();
        let sorter = slot.as_mut().ok_or_else(|| failed("the mapping has ended"))?;
        if let Err(error) = sorter.add(&key.as_bytes(), &value.as_bytes()) {
            // A part of the pairs is no result.
            *slot = None;
            return Err(failed(error));
        }
        Ok(true)
    })
}

/// Calls `reduce` with each key and an array of its values.
pub(crate) fn reduce_groups(
    lua: &Lua,
    context: &Context,
    mut merged: Merged,
    mut reduce: impl FnMut(LuaString, Table) -> Result<()>,
) -> Result<()> {
    let (pairs, mut pace) = (&mut merged.pairs, Pace::new(lua, context));
    while let Some((key, value)) = pairs.next_item().map_err(failed)? {
        // With a table for the values.
        pace.element(key.len() + value.len() + 3 * ELEMENT_UNITS)?;
        let (key, values) = (key.to_vec(), lua.create_table()?);
        values.raw_push(context.text(lua, value)?)?;
        while pairs.key() == Some(&key[..])
            && let Some((_, value)) = pairs.next_item().map_err(failed)?
        {
            pace.element(value.len())?;
            values.raw_push(context.text(lua, value)?)?;
        }
        reduce(context.text(lua, &key)?, values)?;
    }
    Ok(())
}
