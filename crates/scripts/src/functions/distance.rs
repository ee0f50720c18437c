//! `_dist`: the edit distance of two texts.

use super::Installer;
use crate::context::Context;
use crate::functions::unicode::code_units;
use crate::pace::Pace;
use mlua::{Lua, LuaString, Result, Value};

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    type Arguments = (LuaString, LuaString, Value);
    installer.add("_dist", |lua, context, (left, right, is_utf): Arguments| {
        let (left, right) = (left.as_bytes(), right.as_bytes());
        if matches!(is_utf, Value::Nil | Value::Boolean(false)) {
            distance(lua, context, &left, &right)
        } else {
            let (left, right) =
                (code_units(lua, context, &left)?, code_units(lua, context, &right)?);
            distance(lua, context, &left, &right)
        }
    })
}

/// Returns the number of insertions, removals and changes that make one text the other.
fn distance<T: PartialEq>(lua: &Lua, context: &Context, left: &[T], right: &[T]) -> Result<usize> {
    context.charge_bytes(lua, right.len().saturating_add(1).saturating_mul(size_of::<usize>()))?;
    let mut pace = Pace::new(lua, context);
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, one) in left.iter().enumerate() {
        pace.work(right.len().saturating_mul(2))?;
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, other) in right.iter().enumerate() {
            let changed = diagonal + usize::from(one != other);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    Ok(row[right.len()])
}
