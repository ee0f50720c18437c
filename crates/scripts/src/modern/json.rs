//! `tyrant.json_encode` and `tyrant.json_decode`: tables to JSON and back.

use crate::context::Context;
use crate::functions::{Installer, failed};
use crate::limits::{JSON_LEVELS_MAX, JSON_SHARE};
use crate::output::Output;
use mlua::{LightUserData, Lua, LuaString, Result, Table, Value};
use serde_json::{Map, Number};
use std::io;

/// Field of a metatable that marks arrays, so that an empty one stays one.
const ARRAY: &str = "__json_array";

/// Largest whole number that a number of Lua is sure to hold.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

const NULL: Value = Value::LightUserData(LightUserData(std::ptr::null_mut()));

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    let metatable = installer.lua.create_table()?;
    metatable.raw_set(ARRAY, true)?;
    installer.table.raw_set("null", NULL)?;
    let arrays = metatable.clone();
    installer.add("array", move |lua, _, table: Option<Table>| {
        let table = table.map_or_else(|| lua.create_table(), Ok)?;
        table.set_metatable(Some(arrays.clone()))?;
        Ok(table)
    })?;
    installer.add("json_encode", |lua, context, value: Value| {
        let json = encode(lua, context, value, 0)?;
        let mut text = Output::new(context);
        serde_json::to_writer(&mut text, &json)
            .map_err(|error| io::Error::from(error).downcast().unwrap_or_else(failed))?;
        text.create(lua)
    })?;
    installer.add("json_decode", move |lua, context, text: LuaString| {
        context.check_bytes(text.as_bytes().len().saturating_mul(JSON_SHARE))?;
        // Its own limit of levels is 128.
        let json = serde_json::from_slice(&text.as_bytes()).map_err(failed)?;
        context.check()?;
        decode(lua, &metatable, json, 0)
    })
}

fn encode(lua: &Lua, context: &Context, value: Value, level: usize) -> Result<serde_json::Value> {
    context.charge_bytes(size_of::<serde_json::Value>())?;
    Ok(match value {
        Value::Nil => serde_json::Value::Null,
        value if value == NULL => serde_json::Value::Null,
        Value::Boolean(is_true) => is_true.into(),
        Value::Integer(number) => number.into(),
        Value::Number(number) => match Number::from_f64(number) {
            Some(_) if number.fract() == 0.0 && number.abs() < WHOLE_MAX => (number as i64).into(),
            Some(number) => number.into(),
            None => return Err(failed(format!("JSON has no number {number}"))),
        },
        Value::String(text) => {
            context.charge_bytes(text.as_bytes().len())?;
            text.to_str().map_err(|_| failed("JSON has only texts in UTF-8"))?.to_string().into()
        }
        Value::Table(table) => {
            if level == JSON_LEVELS_MAX {
                let message = format!("tables have more than {JSON_LEVELS_MAX} levels");
                return Err(failed(message));
            }
            context.check()?;
            encode_table(lua, context, &table, level + 1)?
        }
        value => return Err(failed(format!("JSON has no {}", value.type_name()))),
    })
}

fn encode_table(
    lua: &Lua,
    context: &Context,
    table: &Table,
    level: usize,
) -> Result<serde_json::Value> {
    let is_marked = match table.metatable() {
        Some(metatable) => metatable.raw_get::<Value>(ARRAY)? == Value::Boolean(true),
        None => false,
    };
    let length = table.raw_len();
    if is_marked || length > 0 {
        let mut array = Vec::new();
        for index in 1..=length {
            array.push(encode(lua, context, table.raw_get(index)?, level)?);
        }
        return Ok(array.into());
    }
    let mut object = Map::new();
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let Some(key) = lua.coerce_string(key)? else {
            return Err(failed("keys of JSON are texts or numbers"));
        };
        // Members are in a tree with nodes of several.
        context.charge_bytes(key.as_bytes().len() + 2 * size_of::<String>())?;
        let key = key.to_str().map_err(|_| failed("JSON has only texts in UTF-8"))?.to_string();
        object.insert(key, encode(lua, context, value, level)?);
    }
    Ok(object.into())
}

fn decode(lua: &Lua, arrays: &Table, json: serde_json::Value, level: usize) -> Result<Value> {
    if level > JSON_LEVELS_MAX {
        return Err(failed(format!("the JSON has more than {JSON_LEVELS_MAX} levels")));
    }
    Ok(match json {
        serde_json::Value::Null => NULL,
        serde_json::Value::Bool(is_true) => Value::Boolean(is_true),
        serde_json::Value::Number(number) => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        serde_json::Value::String(text) => Value::String(lua.create_string(text)?),
        serde_json::Value::Array(elements) => {
            let table = lua.create_table_with_capacity(elements.len(), 0)?;
            for element in elements {
                table.raw_push(decode(lua, arrays, element, level + 1)?)?;
            }
            table.set_metatable(Some(arrays.clone()))?;
            Value::Table(table)
        }
        serde_json::Value::Object(members) => {
            let table = lua.create_table_with_capacity(0, members.len())?;
            for (name, value) in members {
                let name = lua.create_string(name)?;
                table.raw_set(name, decode(lua, arrays, value, level + 1)?)?;
            }
            Value::Table(table)
        }
    })
}
