//! `string.find`, `match`, `gmatch`, `gsub` and `rep` of Lua 5.1, within the limits of a call.

use super::{Installer, failed};
use crate::context::Context;
use crate::output::Output;
use crate::pattern::{Captured, Matcher, Steps, is_plain, split_anchor};
use memchr::memmem;
use mlua::{Function, Lua, LuaString, MultiValue, Result, Table, Value};

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add_short("find", |lua, context, arguments| find(lua, context, arguments, true))?;
    installer.add_short("match", |lua, context, (text, pattern, from)| {
        find(lua, context, (text, pattern, from, Value::Nil), false)
    })?;
    installer.add_short("gsub", gsub)?;
    installer.add_short("rep", repeat)
}

type FindArguments = (LuaString, LuaString, Option<f64>, Value);

/// Finds the first match. Returns its captures, after its beginning and end if `is_find` is set.
fn find(
    lua: &Lua,
    context: &Context,
    (text, pattern, from, plain): FindArguments,
    is_find: bool,
) -> Result<MultiValue> {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    context.check_bytes(text.len())?;
    let start = offset(from.unwrap_or(1.0), text.len());
    let mut results = MultiValue::new();
    let is_plain =
        is_find && (!matches!(plain, Value::Nil | Value::Boolean(false)) || is_plain(&pattern));
    if is_plain {
        match memmem::find(&text[start..], &pattern) {
            Some(at) => {
                results.push_back(Value::Integer((start + at + 1) as i64));
                results.push_back(Value::Integer((start + at + pattern.len()) as i64));
            }
            None => results.push_back(Value::Nil),
        }
        return Ok(results);
    }
    let mut steps = Steps::new(context);
    let (is_anchored, pattern) = split_anchor(&pattern);
    let mut matcher = Matcher::new(&text, pattern, &mut steps);
    let Some((start, end)) = matcher.search(start, is_anchored).map_err(failed)? else {
        results.push_back(Value::Nil);
        return Ok(results);
    };
    let mut count = matcher.captures_or_whole();
    if is_find {
        results.push_back(Value::Integer((start + 1) as i64));
        results.push_back(Value::Integer(end as i64));
        count = matcher.captures();
    }
    for index in 0..count {
        results.push_back(captured((lua, context), &matcher, &text, index, (start, end))?);
    }
    Ok(results)
}

fn captured(
    (lua, context): (&Lua, &Context),
    matcher: &Matcher<'_, '_, '_>,
    text: &[u8],
    index: usize,
    (start, end): (usize, usize),
) -> Result<Value> {
    Ok(match matcher.capture(index, start, end).map_err(failed)? {
        Captured::Position(position) => Value::Integer(position as i64),
        Captured::Text(start, end) => Value::String(context.text(lua, &text[start..end])?),
    })
}

/// Returns the offset of a position, which counts from 1, or from the end if it is negative.
fn offset(position: f64, length: usize) -> usize {
    // Saturates.
    let position = position as i64;
    let position = if position < 0 { position.saturating_add(length as i64 + 1) } else { position };
    (position.max(1) - 1).min(length as i64) as usize
}

/// Makes `string.gmatch` from a function of Lua that holds the position of its iterator.
///
/// The function here searches from a position on, and returns the next one before the captures.
pub(crate) fn gmatch_step(
    lua: &Lua,
    context: &Context,
    (text, pattern, from): (LuaString, LuaString, usize),
) -> Result<MultiValue> {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let mut results = MultiValue::new();
    if from > text.len() {
        return Ok(results);
    }
    let mut steps = Steps::new(context);
    let mut matcher = Matcher::new(&text, &pattern, &mut steps);
    if let Some((start, end)) = matcher.search(from, false).map_err(failed)? {
        let next = if end == start { end + 1 } else { end };
        results.push_back(Value::Integer(next as i64));
        for index in 0..matcher.captures_or_whole() {
            results.push_back(captured((lua, context), &matcher, &text, index, (start, end))?);
        }
    }
    Ok(results)
}

/// The replacement of a match by `gsub`.
enum Replacement {
    Text(LuaString),
    Table(Table),
    Function(Function),
}

fn gsub(
    lua: &Lua,
    context: &Context,
    (text, pattern, replacement, max): (LuaString, LuaString, Value, Option<f64>),
) -> Result<(LuaString, i64)> {
    let replacement = match replacement {
        Value::Table(table) => Replacement::Table(table),
        Value::Function(function) => Replacement::Function(function),
        value => match lua.coerce_string(value)? {
            Some(text) => Replacement::Text(text),
            None => {
                let message = "bad argument #3 to 'gsub' (string/function/table expected)";
                return Err(failed(message));
            }
        },
    };
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let max = max.map_or(i64::MAX, |max| max as i64);
    let (is_anchored, pattern) = split_anchor(&pattern);
    let mut steps = Steps::new(context);
    let mut result = Output::new(lua, context);
    let mut at = 0;
    let mut count = 0;
    let mut matcher = Matcher::new(&text, pattern, &mut steps);
    while count < max {
        let end = matcher.match_at(at).map_err(failed)?;
        if let Some(end) = end {
            count += 1;
            replace((lua, context), &replacement, &matcher, &text, (at, end), &mut result)?;
        }
        match end {
            Some(end) if end > at => at = end,
            _ if at < text.len() => {
                result.push(&text[at..=at])?;
                at += 1;
            }
            _ => break,
        }
        if is_anchored {
            break;
        }
    }
    result.push(&text[at..])?;
    Ok((result.create()?, count))
}

fn replace(
    (lua, context): (&Lua, &Context),
    replacement: &Replacement,
    matcher: &Matcher<'_, '_, '_>,
    text: &[u8],
    (start, end): (usize, usize),
    result: &mut Output<'_>,
) -> Result<()> {
    let whole = &text[start..end];
    let value = match replacement {
        Replacement::Text(template) => {
            return expand(&template.as_bytes(), matcher, text, (start, end), result);
        }
        Replacement::Table(table) => {
            let key = captured((lua, context), matcher, text, 0, (start, end))?;
            table.get::<Value>(key)?
        }
        Replacement::Function(function) => {
            let mut arguments = MultiValue::new();
            for index in 0..matcher.captures_or_whole() {
                arguments.push_back(captured((lua, context), matcher, text, index, (start, end))?);
            }
            context.call_back::<Value>(function, arguments)?
        }
    };
    match value {
        Value::Nil | Value::Boolean(false) => result.push(whole),
        Value::String(text) => result.push(&text.as_bytes()),
        value => match lua.coerce_string(value.clone())? {
            Some(text) => result.push(&text.as_bytes()),
            None => {
                let kind = value.type_name();
                Err(failed(format!("invalid replacement value (a {kind})")))
            }
        },
    }
}

/// Appends a template, in which `%0` to `%9` stand for captures.
fn expand(
    template: &[u8],
    matcher: &Matcher<'_, '_, '_>,
    text: &[u8],
    (start, end): (usize, usize),
    result: &mut Output<'_>,
) -> Result<()> {
    let mut rest = template;
    while let Some(at) = memchr::memchr(b'%', rest) {
        result.push(&rest[..at])?;
        // At the end of the template Lua 5.1 takes its terminating zero byte.
        match rest.get(at + 1).copied().unwrap_or(0) {
            b'0' => result.push(&text[start..end])?,
            digit if digit.is_ascii_digit() => {
                let index = usize::from(digit - b'1');
                match matcher.capture(index, start, end).map_err(failed)? {
                    Captured::Text(start, end) => result.push(&text[start..end])?,
                    Captured::Position(position) => {
                        result.push(position.to_string().as_bytes())?;
                    }
                }
            }
            other => result.push(&[other])?,
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    result.push(rest)
}

fn repeat(lua: &Lua, context: &Context, (text, times): (LuaString, f64)) -> Result<LuaString> {
    let text = text.as_bytes();
    // Saturates.
    let times = times.max(0.0) as usize;
    if text.is_empty() || times == 0 {
        return lua.create_string("");
    }
    let bytes = text.len().saturating_mul(times);
    context.check_bytes(bytes)?;
    let mut charge = context.charge();
    context.add_to(lua, &mut charge, bytes)?;
    context.text(lua, &text.repeat(times))
}

/// Joins the texts and numbers of a long array, as `table.concat`.
pub(crate) fn join(
    lua: &Lua,
    context: &Context,
    (list, separator): (Table, Option<LuaString>),
) -> Result<LuaString> {
    let separator = separator.as_ref().map(LuaString::as_bytes);
    let mut result = Output::new(lua, context);
    for index in 1..=list.raw_len() {
        if index > 1 {
            result.push(separator.as_deref().unwrap_or_default())?;
        }
        let text = match list.raw_get::<Value>(index)? {
            value @ (Value::String(_) | Value::Integer(_) | Value::Number(_)) => {
                lua.coerce_string(value)?
            }
            _ => None,
        };
        let message = "bad argument #1 to 'concat' (table contains non-strings)";
        result.push(&text.ok_or_else(|| failed(message))?.as_bytes())?;
    }
    result.create()
}
