//! `_strstr` and `_regex`: searching and replacing.

use super::{Installer, failed};
use crate::context::Context;
use crate::output::Output;
use cabinet::pattern;
use memchr::memmem;
use mlua::{Lua, LuaString, Result, Value};
use std::time::Duration;

/// Time of the slowest match that a compiled pattern may take: see [`pattern::WORK_MAX`].
const SLOWEST_MATCH: Duration = Duration::from_secs(1);

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
    let mut result = Output::new(lua, context);
    let mut end = 0;
    if !part.is_empty() {
        for at in memmem::find_iter(&text, &part) {
            result.push(&text[end..at])?;
            result.push(&other)?;
            end = at + part.len();
        }
    }
    result.push(&text[end..])?;
    result.create().map(Value::String)
}

fn regex(lua: &Lua, context: &Context, (text, pattern, other): Arguments) -> Result<Value> {
    let text = text.as_bytes();
    let pattern = pattern.as_bytes();
    let Some(other) = other else {
        let is_match = match pattern::compile_for(&pattern, work_bytes(context, &text)) {
            Ok(regex) => regex.is_match(&text),
            Err(_) => refuse_work(&pattern, text.len()).map(|()| false)?,
        };
        return Ok(Value::Boolean(is_match));
    };
    // Without an expression nothing is replaced; `*` alone ignores the case of none.
    if matches!(&*pattern, b"" | b"*") {
        return context.text(lua, &text).map(Value::String);
    }
    let Ok(regex) = pattern::compile_capturing_for(&pattern, work_bytes(context, &text)) else {
        refuse_work(&pattern, text.len())?;
        return context.text(lua, &text).map(Value::String);
    };
    let other = other.as_bytes();
    let mut result = Output::new(lua, context);
    let mut end = 0;
    for captures in regex.captures_iter(&text) {
        let Some(whole) = captures.get(0) else { break };
        // An empty match ends the search, as in Tokyo Cabinet.
        if whole.start() == text.len() {
            break;
        }
        context.check()?;
        result.push(&text[end..whole.start()])?;
        expand(&other, &captures, &mut result)?;
        end = whole.end();
        if whole.is_empty() {
            break;
        }
    }
    result.push(&text[end..])?;
    result.create().map(Value::String)
}

/// Returns the length for which a pattern is compiled. It is longer than the text if a call may
/// take less time than the slowest match in such a text.
fn work_bytes(context: &Context, text: &[u8]) -> usize {
    let factor = SLOWEST_MATCH.as_nanos() / context.limits().call_time.as_nanos().max(1);
    usize::try_from(factor.max(1)).unwrap_or(usize::MAX).saturating_mul(text.len())
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
fn expand(other: &[u8], captures: &pattern::Captures<'_>, result: &mut Output<'_>) -> Result<()> {
    let group = |index| captures.get(index).map_or(&[][..], |group| group.as_bytes());
    let mut rest = other;
    while let Some(at) = memchr::memchr2(b'&', b'\\', rest) {
        result.push(&rest[..at])?;
        let is_group = rest[at] == b'&';
        rest = &rest[at + 1..];
        if is_group {
            result.push(group(0))?;
        } else if let Some((&escaped, after)) = rest.split_first() {
            match escaped {
                digit if digit.is_ascii_digit() => result.push(group(usize::from(digit - b'0')))?,
                escaped => result.push(&[escaped])?,
            }
            rest = after;
        }
    }
    result.push(rest)
}
