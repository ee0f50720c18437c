//! `_isect` and `_union`: intersection and union of arrays, as sets of texts.

use super::{Installer, array};
use crate::context::Context;
use mlua::{Lua, Result, Table, Value, Variadic};
use std::collections::HashSet;

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add("_isect", |lua, context, arguments: Variadic<Value>| {
        let mut common: Option<Vec<Vec<u8>>> = None;
        visit_arrays(context, &arguments, |array| {
            let texts = texts(lua, context, array)?;
            match &mut common {
                None => common = Some(distinct(texts)),
                Some(common) => {
                    let members: HashSet<Vec<u8>> = texts.into_iter().collect();
                    common.retain(|text| members.contains(text));
                }
            }
            Ok(())
        })?;
        array(lua, &common.unwrap_or_default())
    })?;
    installer.add("_union", |lua, context, arguments: Variadic<Value>| {
        let mut all = Vec::new();
        visit_arrays(context, &arguments, |array| {
            all.extend(texts(lua, context, array)?);
            Ok(())
        })?;
        array(lua, &distinct(all))
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
    let mut texts = Vec::new();
    for index in 1..=array.raw_len() {
        if let Some(text) = lua.coerce_string(array.raw_get(index)?)? {
            let text = text.as_bytes().to_vec();
            context.charge_bytes(size_of::<Vec<u8>>() + text.len())?;
            texts.push(text);
        }
    }
    Ok(texts)
}

fn distinct(texts: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut seen = HashSet::new();
    texts.into_iter().filter(|text| seen.insert(text.clone())).collect()
}
