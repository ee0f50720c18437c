//! `_isect` and `_union`: intersection and union of arrays, as sets of texts.

use super::{Installer, array};
use crate::context::Context;
use mlua::{Lua, Result, Table, Value, Variadic};
use std::collections::HashSet;

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add("_isect", |lua, context, arrays: Variadic<Value>| {
        let mut arrays = arrays.iter().filter_map(Value::as_table);
        let mut common = match arrays.next() {
            Some(first) => distinct(texts(lua, context, first)?),
            None => Vec::new(),
        };
        for other in arrays {
            let members: HashSet<Vec<u8>> = texts(lua, context, other)?.into_iter().collect();
            common.retain(|text| members.contains(text));
        }
        array(lua, &common)
    })?;
    installer.add("_union", |lua, context, arrays: Variadic<Value>| {
        let mut all = Vec::new();
        for one in arrays.iter().filter_map(Value::as_table) {
            all.extend(texts(lua, context, one)?);
        }
        array(lua, &distinct(all))
    })
}

/// Returns the elements of an array as texts, without those that are neither texts nor numbers.
fn texts(lua: &Lua, context: &Context, array: &Table) -> Result<Vec<Vec<u8>>> {
    let mut texts = Vec::new();
    for value in array.sequence_values::<Value>() {
        if let Some(text) = lua.coerce_string(value?)? {
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
