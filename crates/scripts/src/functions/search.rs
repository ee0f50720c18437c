//! `_strstr` and `_regex`: searching and replacing.

use super::{Installer, failed};
use crate::context::Context;
use cabinet::pattern;
use memchr::memmem;
use mlua::{Lua, LuaString, Result, Value};

type Arguments = (LuaString, LuaString, Option<LuaString>);

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add("_strstr", strstr)?;
    installer.add("_regex", regex)
}

fn strstr(lua: &Lua, context: &Context, (text, part, other): Arguments) -> Result<Value> {
    let (text, part) = (text.as_bytes(), part.as_bytes());
    let Some(other) = other else {
        let at = memmem::find(&text, &part).map_or(0, |at| at + 1);
        return Ok(Value::Integer(at as i64));
    };
    let other = other.as_bytes();
    let mut result = Vec::new();
    let mut end = 0;
    if !part.is_empty() {
        for at in memmem::find_iter(&text, &part) {
            result.extend_from_slice(&text[end..at]);
            result.extend_from_slice(&other);
            context.check_bytes(result.len())?;
            end = at + part.len();
        }
    }
    result.extend_from_slice(&text[end..]);
    lua.create_string(&result).map(Value::String)
}

fn regex(lua: &Lua, context: &Context, (text, pattern, other): Arguments) -> Result<Value> {
    let text = text.as_bytes();
    let pattern = pattern.as_bytes();
    let Some(other) = other else {
        let is_match = match pattern::compile_for(&pattern, text.len()) {
            Ok(regex) => regex.is_match(&text),
            Err(_) => refuse_work(&pattern, text.len()).map(|()| false)?,
        };
        return Ok(Value::Boolean(is_match));
    };
    let Ok(regex) = pattern::compile_capturing_for(&pattern, text.len()) else {
        refuse_work(&pattern, text.len())?;
        return lua.create_string(&*text).map(Value::String);
    };
    let other = other.as_bytes();
    let mut result = Vec::new();
    let mut end = 0;
    for captures in regex.captures_iter(&text) {
        let Some(whole) = captures.get(0) else { break };
        // An empty match ends the search, as in Tokyo Cabinet.
        if whole.start() == text.len() {
            break;
        }
        context.check()?;
        result.extend_from_slice(&text[end..whole.start()]);
        expand(&other, &captures, &mut result);
        context.check_bytes(result.len())?;
        end = whole.end();
        if whole.is_empty() {
            break;
        }
    }
    result.extend_from_slice(&text[end..]);
    lua.create_string(&result).map(Value::String)
}

/// Fails if a pattern that was refused is valid for shorter texts: one match must not take long.
fn refuse_work(pattern: &[u8], text_bytes: usize) -> Result<()> {
    match pattern::compile(pattern) {
        Ok(_) => Err(failed(format!(
            "_regex: the pattern is too complex for a text of {text_bytes} bytes, split the text"
        ))),
        Err(_) => Ok(()),
    }
}

/// Appends a replacement, in which `&` and `\1` to `\9` stand for what was matched.
fn expand(other: &[u8], captures: &pattern::Captures<'_>, result: &mut Vec<u8>) {
    let group = |index: usize, result: &mut Vec<u8>| {
        if let Some(group) = captures.get(index) {
            result.extend_from_slice(group.as_bytes());
        }
    };
    let mut bytes = other.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'&' => group(0, result),
            b'\\' => match bytes.next() {
                Some(digit) if digit.is_ascii_digit() => group(usize::from(digit - b'0'), result),
                Some(&escaped) => result.push(escaped),
                None => {}
            },
            byte => result.push(byte),
        }
    }
}
