//! `tyrant.transaction`: changes that are made together, or not at all.

use crate::context::Context;
use crate::functions::{Installer, failed};
use mlua::{Function, Lua, MultiValue, Result};
use server::ScriptError;

/// Conflicts after which a transaction fails.
const CONFLICTS_MAX: usize = 100;

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add("transaction", transaction)
}

/// Calls a function within a transaction, again after a conflict. Returns its results.
fn transaction(_: &Lua, context: &Context, function: Function) -> Result<MultiValue> {
    for _ in 0..CONFLICTS_MAX {
        context.check()?;
        context.records.begin_transaction().map_err(failed)?;
        let results = match context.call_back::<MultiValue>(&function, ()) {
            Ok(results) => results,
            Err(error) => {
                context.records.abort().map_err(failed)?;
                return Err(error);
            }
        };
        match context.records.commit() {
            Ok(()) => return Ok(results),
            Err(ScriptError::Database(cabinet::Error::Conflict)) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(failed(format!("the transaction met {CONFLICTS_MAX} conflicts with other clients")))
}
