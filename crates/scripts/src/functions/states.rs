//! `_eval`: executes code in all states.

use super::base::compile_short;
use super::{Installer, failed};
use crate::context::Context;
use crate::error;
use mlua::{Lua, LuaString, Result};
use std::sync::atomic::Ordering;

/// Name of the code in messages.
const NAME: &str = "=_eval";

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add("_eval", |lua, context, code: LuaString| {
        let code = code.as_bytes();
        let evaluations = &context.shared.evaluations;
        let add = || evaluations.add(context.records.thread(), &code, context.records.rights());
        if !(add() || evaluate_in_idle_states(context)? && add()) {
            let message =
                "_eval: another state has much code left to execute, call _eval less often";
            return Err(failed(message));
        }
        evaluate(lua, context, &code)?;
        Ok(true)
    })
}

/// Executes the code that states without a call have left. Returns whether it did. Code that is
/// executed so does not do the same for further states.
fn evaluate_in_idle_states(context: &Context) -> Result<bool> {
    let states = context.shared.states.get().filter(|_| !context.is_lent.load(Ordering::Relaxed));
    let Some(states) = states else { return Ok(false) };
    states.evaluate_in_idle(&context.records, &context.clock);
    context.check()?;
    Ok(true)
}

/// Executes code that has come by `_eval`. An error is logged, as in Tokyo Tyrant; only the
/// deadline fails.
pub(crate) fn evaluate(lua: &Lua, context: &Context, code: &[u8]) -> Result<()> {
    if let Err(error) =
        compile_short(lua, code, NAME).and_then(|function| context.call_back::<()>(&function, ()))
    {
        context.check()?;
        tracing::error!("_eval: {}", error::message(&error));
    }
    Ok(())
}
