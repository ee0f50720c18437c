//! `tyrant.json_encode` and `tyrant.json_decode`: tables to JSON and back.

use crate::functions::{Installer, failed, table};
use crate::limits::{JSON_LEVELS_MAX, JSON_SHARE};
use crate::output::Output;
use crate::pace::{ELEMENT_UNITS, Pace};
use mlua::{LightUserData, LuaString, Result, Table, Value};
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
        let json = encode(&mut Pace::new(lua, context), value, 0)?;
        let mut text = Output::new(lua, context);
        serde_json::to_writer(&mut text, &json)
            .map_err(|error| io::Error::from(error).downcast().unwrap_or_else(failed))?;
        text.create()
    })?;
    installer.add("json_decode", move |lua, context, text: LuaString| {
        let text = text.as_bytes();
        context.check_bytes(text.len().saturating_mul(JSON_SHARE))?;
        let mut charge = context.charge();
        context.add_to(lua, &mut charge, json_bytes(&text))?;
        // Its own limit of levels is 128.
        let json = serde_json::from_slice(&text).map_err(failed)?;
        context.check()?;
        decode(&mut Pace::new(lua, context), &metatable, json, 0)
    })
}

/// Returns the most memory that a JSON text takes as a tree, in bytes. Each value but the first
/// follows one of these characters, and so does each name.
fn json_bytes(text: &[u8]) -> usize {
    let values = text.iter().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count();
    text.len().saturating_add((values + 1).saturating_mul(2 * size_of::<serde_json::Value>()))
}

fn encode(pace: &mut Pace<'_>, value: Value, level: usize) -> Result<serde_json::Value> {
    let (lua, context) = pace.state();
    pace.work(ELEMENT_UNITS)?;
    context.charge_bytes(lua, 2 * size_of::<serde_json::Value>())?;
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
            pace.work(text.as_bytes().len())?;
            context.charge_bytes(lua, text.as_bytes().len())?;
            text.to_str().map_err(|_| failed("JSON has only texts in UTF-8"))?.to_string().into()
        }
        Value::Table(table) => {
            if level == JSON_LEVELS_MAX {
                let message = format!("tables have more than {JSON_LEVELS_MAX} levels");
                return Err(failed(message));
            }
            encode_table(pace, &table, level + 1)?
        }
        value => return Err(failed(format!("JSON has no {}", value.type_name()))),
    })
}

fn encode_table(pace: &mut Pace<'_>, table: &Table, level: usize) -> Result<serde_json::Value> {
    let (lua, context) = pace.state();
    let is_marked = match table.metatable() {
        Some(metatable) => metatable.raw_get::<Value>(ARRAY)? == Value::Boolean(true),
        None => false,
    };
    let length = table.raw_len();
    if is_marked || length > 0 {
        let mut array = Vec::new();
        for index in 1..=length {
            array.push(encode(pace, table.raw_get(index)?, level)?);
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
        context.charge_bytes(lua, key.as_bytes().len() + 2 * size_of::<String>())?;
        let key = key.to_str().map_err(|_| failed("JSON has only texts in UTF-8"))?.to_string();
        object.insert(key, encode(pace, value, level)?);
    }
    Ok(object.into())
}

fn decode(
    pace: &mut Pace<'_>,
    arrays: &Table,
    json: serde_json::Value,
    level: usize,
) -> Result<Value> {
    let (lua, context) = pace.state();
    pace.work(ELEMENT_UNITS)?;
    if level > JSON_LEVELS_MAX {
        return Err(failed(format!("the JSON has more than {JSON_LEVELS_MAX} levels")));
    }
    Ok(match json {
        serde_json::Value::Null => NULL,
        serde_json::Value::Bool(is_true) => Value::Boolean(is_true),
        serde_json::Value::Number(number) => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        serde_json::Value::String(text) => Value::String(context.text(lua, text.as_bytes())?),
        serde_json::Value::Array(elements) => {
            let table = table(lua, context, elements.len(), 0)?;
            for element in elements {
                table.raw_push(decode(pace, arrays, element, level + 1)?)?;
            }
            table.set_metatable(Some(arrays.clone()))?;
            Value::Table(table)
        }
        serde_json::Value::Object(members) => {
            let table = table(lua, context, 0, members.len())?;
            for (name, value) in members {
                let name = context.text(lua, name.as_bytes())?;
                table.raw_set(name, decode(pace, arrays, value, level + 1)?)?;
            }
            Value::Table(table)
        }
    })
}
