//! `_isect` and `_union`: intersection and union of arrays, as sets of texts.

use super::{Installer, array};
use crate::context::Context;
use crate::pace::Pace;
use mlua::{Lua, Result, Table, Value, Variadic};
use std::collections::HashSet;

/// Bytes that a text in a set takes beside the text itself, while the set grows.
const MEMBER_BYTES: usize = 3 * size_of::<&[u8]>();

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add("_isect", |lua, context, arguments: Variadic<Value>| {
        let mut common: Option<Vec<Vec<u8>>> = None;
        visit_arrays(context, &arguments, |array| {
            let texts = texts(lua, context, array)?;
            let Some(before) = common.take() else {
                common = Some(distinct(lua, context, texts)?);
                return Ok(());
            };
            let members = set(lua, context, &texts)?;
            let mut pace = Pace::new(lua, context);
            let mut both = Vec::new();
            for text in before {
                pace.element(text.len())?;
                if members.contains(&text[..]) {
                    both.push(text);
                }
            }
            common = Some(both);
            Ok(())
        })?;
        array(lua, context, &common.unwrap_or_default())
    })?;
    installer.add("_union", |lua, context, arguments: Variadic<Value>| {
        let mut all = Vec::new();
        visit_arrays(context, &arguments, |array| {
            all.extend(texts(lua, context, array)?);
            Ok(())
        })?;
        array(lua, context, &distinct(lua, context, all)?)
    })
}

/// Visits the arrays of the arguments. If there is one only, and it begins with an array, those in
/// it are visited.
fn visit_arrays(
    context: &Context,
    arguments: &[Value],
    mut visit: impl FnMut(&Table) -> Result<()>,
) -> Result<()> {
    for array in arguments.iter().filter_map(Value::as_table) {
        if arguments.len() > 1 || !array.raw_get::<Value>(1)?.is_table() {
            visit(array)?;
            continue;
        }
        for index in 1..=array.raw_len() {
            context.check()?;
            if let Value::Table(array) = array.raw_get(index)? {
                visit(&array)?;
            }
        }
    }
    Ok(())
}

/// Returns the elements of an array as texts, without those that are neither texts nor numbers.
fn texts(lua: &Lua, context: &Context, array: &Table) -> Result<Vec<Vec<u8>>> {
    let mut pace = Pace::new(lua, context);
    let mut texts = Vec::new();
    for index in 1..=array.raw_len() {
        if let Some(text) = lua.coerce_string(array.raw_get(index)?)? {
            let text = text.as_bytes();
            pace.element(text.len())?;
            context.charge_bytes(lua, size_of::<Vec<u8>>() + text.len())?;
            texts.push(text.to_vec());
        }
    }
    Ok(texts)
}

/// Returns the set of texts.
fn set<'t>(lua: &Lua, context: &Context, texts: &'t [Vec<u8>]) -> Result<HashSet<&'t [u8]>> {
    let mut pace = Pace::new(lua, context);
    let mut members = HashSet::new();
    for text in texts {
        pace.element(text.len())?;
        if members.insert(&text[..]) {
            context.charge_bytes(lua, MEMBER_BYTES)?;
        }
    }
    Ok(members)
}

/// Returns each of the texts once.
fn distinct(lua: &Lua, context: &Context, mut texts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
    let mut pace = Pace::new(lua, context);
    let mut seen = HashSet::new();
    let mut are_first = Vec::with_capacity(texts.len());
    for text in &texts {
        pace.element(text.len())?;
        let is_first = seen.insert(&text[..]);
        if is_first {
            context.charge_bytes(lua, MEMBER_BYTES)?;
        }
        are_first.push(is_first);
    }
    drop(seen);
    let mut are_first = are_first.into_iter();
    texts.retain(|_| are_first.next().unwrap_or(true));
    Ok(texts)
}
