//! Functions of Lua's base library that needed limits: loading code, collecting garbage, printing.

use super::{Installer, failed};
use crate::context::Context;
use crate::error::{self, NO_MEMORY};
use crate::limits::{CODE_BYTES_MAX, RUN_TIME_CODE_BYTES_MAX};
use crate::memory::TotalExhausted;
use mlua::chunk::ChunkMode;
use mlua::{Error, Function, Lua, LuaString, Result, Value};

/// First byte of compiled code.
const COMPILED: u8 = 0x1b;

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add("loadstring", loadstring)?;
    installer.add("collectgarbage", collect)?;
    installer.add("print", |lua, context, values: mlua::Variadic<Value>| {
        let texts = values.iter().map(|value| {
            let text = text(lua, value)?;
            context.charge_bytes(lua, text.as_bytes().len())?;
            Ok(text.to_string_lossy())
        });
        let line = texts.collect::<Result<Vec<_>>>()?.join("\t");
        tracing::info!("{line}");
        Ok(())
    })?;
    let debug = installer.lua.create_table()?;
    installer.into(debug.clone()).add("traceback", traceback)?;
    installer.table.raw_set("debug", debug)
}

/// Compiles code. Compiled code is refused, since Lua 5.1 trusts it.
pub(crate) fn compile(lua: &Lua, code: &[u8], name: &str) -> Result<Function> {
    if code.first() == Some(&COMPILED) {
        return Err(failed("compiled code is not allowed, load its source"));
    }
    if code.len() > CODE_BYTES_MAX {
        return Err(failed(format!("the code is longer than {CODE_BYTES_MAX} bytes")));
    }
    let name = name.split('\0').next().unwrap_or_default();
    lua.load(code).set_name(name).set_mode(ChunkMode::Text).into_function()
}

/// Compiles code that a script has made, which is much shorter than a script may be.
pub(crate) fn compile_short(lua: &Lua, code: &[u8], name: &str) -> Result<Function> {
    if code.len() > RUN_TIME_CODE_BYTES_MAX {
        return Err(failed(format!("the code is longer than {RUN_TIME_CODE_BYTES_MAX} bytes")));
    }
    compile(lua, code, name)
}

fn loadstring(
    lua: &Lua,
    _: &Context,
    (code, name): (LuaString, Option<LuaString>),
) -> Result<(Option<Function>, Option<LuaString>)> {
    let name = name.as_ref().unwrap_or(&code).to_string_lossy();
    match compile_short(lua, &code.as_bytes(), &name) {
        Ok(function) => Ok((Some(function), None)),
        Err(error @ Error::MemoryError(_)) => Err(error),
        Err(error) => Ok((None, Some(lua.create_string(error::message(&error))?))),
    }
}

/// Collects garbage. The collector cannot be stopped or slowed down.
fn collect(lua: &Lua, _: &Context, (option, _): (Option<LuaString>, Value)) -> Result<Value> {
    let option = option.map(|option| option.to_string_lossy());
    Ok(match option.as_deref() {
        None | Some("collect") => {
            lua.gc_collect()?;
            Value::Integer(0)
        }
        Some("step") => {
            lua.gc_collect()?;
            Value::Boolean(true)
        }
        Some("count") => Value::Number(lua.used_memory() as f64 / 1024.0),
        Some("stop" | "restart") => Value::Integer(0),
        Some("setpause" | "setstepmul") => Value::Integer(200),
        Some(option) => {
            let message =
                format!("bad argument #1 to 'collectgarbage' (invalid option '{option}')");
            return Err(failed(message));
        }
    })
}

/// Returns the text of a value as `tostring` does, without its metamethod.
fn text(lua: &Lua, value: &Value) -> Result<LuaString> {
    match lua.coerce_string(value.clone())? {
        Some(text) => Ok(text),
        None => lua.create_string(match value {
            Value::Nil => "nil".to_string(),
            Value::Boolean(is_true) => is_true.to_string(),
            Value::Error(error) => error::message(error),
            value => format!("{}: {:p}", value.type_name(), value.to_pointer()),
        }),
    }
}

fn traceback(lua: &Lua, _: &Context, (message, level): (Value, Option<usize>)) -> Result<Value> {
    let text = match &message {
        Value::Nil => None,
        value => match lua.coerce_string(value.clone())? {
            Some(text) => Some(text.to_string_lossy()),
            None => return Ok(message),
        },
    };
    lua.traceback(text.as_deref(), level.unwrap_or(1)).map(Value::String)
}

/// Returns an error that `pcall` has caught, as a script sees it. After a limit of the call it is
/// raised again, so that no `pcall` can hold it.
pub(crate) fn settle(lua: &Lua, context: &Context, error: Value) -> Result<Value> {
    if context.clock.is_over() {
        context.check()?;
    }
    let is_of_memory = match &error {
        Value::Error(error) => error::is_of_memory(error),
        Value::String(text) => *text.as_bytes() == *NO_MEMORY.as_bytes(),
        _ => false,
    };
    let missing = context.memory.missing();
    if is_of_memory {
        // The values of the function that has failed are garbage now.
        context.free_garbage(lua)?;
        context.begin_memory(lua)?;
    } else {
        // It may have filled the memory too. If nothing can be freed, a later look fails.
        let _ = context.memory.provide(lua, 0);
    }
    plain(lua, error, missing)
}

/// Returns whether a limit of the call is exceeded, and an error as a script sees it.
pub(crate) fn inspect(lua: &Lua, context: &Context, error: Value) -> Result<(bool, Value)> {
    Ok((context.clock.is_over(), plain(lua, error, context.memory.missing())?))
}

/// Turns an error of a function of ours into its message, as Lua's own functions raise it.
/// That of Lua's allocator names the limit.
fn plain(lua: &Lua, error: Value, missing: Option<TotalExhausted>) -> Result<Value> {
    let message = match &error {
        Value::Error(error) => error::message(error),
        Value::String(text) if *text.as_bytes() == *NO_MEMORY.as_bytes() => NO_MEMORY.to_string(),
        _ => return Ok(error),
    };
    let message = match missing {
        Some(exhausted) if message == NO_MEMORY => exhausted.to_string(),
        _ => message,
    };
    lua.create_string(message).map(Value::String)
}
