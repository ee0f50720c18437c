//! Errors that functions for Redis's scripts raise, with Redis's texts.

use crate::context::Context;
use crate::error;
use crate::functions::settle as settle_plain;
use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value};

/// Frames that are looked through for the place of an error.
const FRAMES_MAX: usize = 100;

/// Name of the code of scripts, in places of errors.
pub(super) const SCRIPT_NAME: &str = "@user_script";

/// An error as Redis raises it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Raised {
    /// A table with the field `err`, which scripts catch as its text.
    #[error("{0}")]
    Table(String),
    /// A text, which has the place already.
    #[error("{0}")]
    Text(String),
}

/// Returns an error of `redis.*`, which becomes a table.
pub(super) fn table_error(text: impl Into<String>) -> Error {
    Error::external(Raised::Table(text.into()))
}

/// Returns an error of a library, with the place of the function that has called it.
pub(super) fn library_error(lua: &Lua, text: impl AsRef<str>) -> Error {
    let place = lua.inspect_stack(1, |caller| {
        let line = caller.current_line()?;
        Some(format!("{}:{line}: ", caller.source().short_src?))
    });
    let place = place.flatten().unwrap_or_default();
    Error::external(Raised::Text(format!("{place}{}", text.as_ref())))
}

/// Returns an error about an argument, as Lua's own functions raise it.
pub(super) fn argument_error(lua: &Lua, number: usize, text: &str) -> Error {
    let name = lua.inspect_stack(0, |function| function.names().name.map(|name| name.into_owned()));
    let name = name.flatten();
    let name = name.as_deref().unwrap_or("?");
    library_error(lua, format!("bad argument #{number} to '{name}' ({text})"))
}

/// Arguments of a function, as Lua's own functions take them.
pub(super) struct Arguments<'l> {
    lua: &'l Lua,
    values: Vec<Value>,
}

impl<'l> Arguments<'l> {
    pub(super) fn new(lua: &'l Lua, values: MultiValue) -> Self {
        Self { lua, values: values.into_iter().collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns the argument of a number, which counts from 1.
    pub(super) fn get(&self, number: usize) -> Option<&Value> {
        self.values.get(number - 1)
    }

    fn mismatch(&self, number: usize, expected: &str) -> Error {
        let given = match self.get(number) {
            None => "no value",
            Some(Value::LightUserData(_)) => "userdata",
            Some(Value::Integer(_)) => "number",
            Some(value) => value.type_name(),
        };
        argument_error(self.lua, number, &format!("{expected} expected, got {given}"))
    }

    /// Returns a text, or a number as one.
    pub(super) fn text(&self, number: usize) -> Result<LuaString> {
        match self.get(number) {
            Some(value @ (Value::String(_) | Value::Integer(_) | Value::Number(_))) => {
                let text = self.lua.coerce_string(value.clone())?;
                text.ok_or_else(|| self.mismatch(number, "string"))
            }
            _ => Err(self.mismatch(number, "string")),
        }
    }

    /// Returns a number, or a text that is one.
    pub(super) fn number(&self, number: usize) -> Result<f64> {
        let found = match self.get(number) {
            Some(value) => self.lua.coerce_number(value.clone())?,
            None => None,
        };
        found.ok_or_else(|| self.mismatch(number, "number"))
    }

    /// Returns a whole number, cut as C does; `absent` without the argument.
    pub(super) fn integer_or(&self, number: usize, absent: i64) -> Result<i64> {
        match self.get(number) {
            None | Some(Value::Nil) => Ok(absent),
            Some(_) => Ok(truncated(self.number(number)?)),
        }
    }
}

/// Returns the whole part of a number, as the processor converts it.
pub(super) fn truncated(number: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&number) { number as i64 } else { i64::MIN }
}

fn raised(error: &Value) -> Option<&Raised> {
    match error {
        Value::Error(error) => error.downcast_ref::<Raised>(),
        _ => None,
    }
}

fn table_of(lua: &Lua, text: &str) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", text)?;
    Ok(table)
}

/// Returns an error that was caught, as a script sees it. After a limit of the call it is raised
/// again.
pub(super) fn settle(lua: &Lua, context: &Context, error: Value) -> Result<Value> {
    match raised(&error) {
        Some(Raised::Table(text)) if !context.clock.is_over() => {
            table_of(lua, text).map(Value::Table)
        }
        _ => settle_plain(lua, context, error),
    }
}

/// Returns an error for the handler of `xpcall`, and whether a limit of the call is exceeded.
pub(super) fn inspect(lua: &Lua, context: &Context, error: Value) -> Result<(bool, Value)> {
    match raised(&error) {
        Some(Raised::Table(text)) => {
            Ok((context.clock.is_over(), Value::Table(table_of(lua, text)?)))
        }
        _ => crate::functions::inspect(lua, context, error),
    }
}

/// Returns the source and the line of the script's function that runs.
fn place(lua: &Lua) -> Option<(String, usize)> {
    for level in 1..FRAMES_MAX {
        let frame = lua.inspect_stack(level, |frame| {
            let source = frame.source().source.map(|source| source.into_owned());
            source.filter(|source| !source.starts_with('=')).zip(frame.current_line())
        })?;
        if frame.is_some() {
            return frame;
        }
    }
    None
}

/// Beginnings of the places in our own code in Lua, which are not those of a script.
const OWN_PLACES: [&str; 2] = ["bootstrap:", "redis:"];

/// Returns a message without its place, if that is in our own code in Lua.
fn without_own_place(message: &str) -> Option<&str> {
    let after = OWN_PLACES.iter().find_map(|place| message.strip_prefix(place))?;
    let (line, message) = after.split_once(": ")?;
    line.bytes().all(|byte| byte.is_ascii_digit()).then_some(message)
}

/// Returns the message of a function of ours in place of one of Lua's, which names itself.
fn with_name(lua: &Lua, message: String) -> String {
    let Some((argument, reason)) =
        message.strip_prefix("bad argument #").and_then(|rest| rest.split_once(" ("))
    else {
        return message;
    };
    let names = lua.inspect_stack(1, |function| {
        let names = function.names();
        Some((names.name?.into_owned(), names.name_what == Some("method")))
    });
    let Some((name, is_method)) = names.flatten() else { return message };
    // It may have its name.
    let Ok(number) = argument.parse::<usize>() else { return message };
    let number = if is_method { number.saturating_sub(1) } else { number };
    format!("bad argument #{number} to '{name}' ({reason}")
}

/// Returns the text of an error of this message, with the place of the script if it has none.
fn placed(place: Option<&(String, usize)>, message: &str) -> String {
    match place.filter(|(source, _)| source == SCRIPT_NAME) {
        Some((source, line)) => format!("ERR {}:{line}: {message}", &source[1..]),
        None => format!("ERR {message}"),
    }
}

/// Returns the table that stands for an error that a script has not caught, with its place, as
/// Redis's handler of errors makes it.
pub(super) fn handle(lua: &Lua, error: Value) -> Result<Table> {
    let place = place(lua);
    let table = match &error {
        Value::Table(table) => table.clone(),
        Value::Error(found) => match found.downcast_ref::<Raised>() {
            Some(Raised::Table(text)) => table_of(lua, text)?,
            Some(Raised::Text(text)) => table_of(lua, &format!("ERR {text}"))?,
            None => {
                let message = with_name(lua, error::message(found));
                table_of(lua, &placed(place.as_ref(), &message))?
            }
        },
        error => table_of_value(lua, place.as_ref(), error)?,
    };
    if let Some((source, line)) = place {
        table.raw_set("source", source)?;
        table.raw_set("line", line)?;
    }
    Ok(table)
}

/// Returns the table of an error that is neither a table nor of a function of ours.
fn table_of_value(lua: &Lua, place: Option<&(String, usize)>, error: &Value) -> Result<Table> {
    let text = match lua.coerce_string(error.clone())? {
        Some(text) => text.as_bytes().to_vec(),
        None => error.to_string()?.into_bytes(),
    };
    if let Some(message) = str::from_utf8(&text).ok().and_then(without_own_place) {
        return table_of(lua, &placed(place, message));
    }
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string([b"ERR ", &text[..]].concat())?)?;
    Ok(table)
}
