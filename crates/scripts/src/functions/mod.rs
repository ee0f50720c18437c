//! Functions that scripts call: those of Tokyo Tyrant, and Lua's own that needed limits.

mod base;
mod bit;
mod codec;
mod collections;
mod distance;
mod files;
mod hash;
mod named_locks;
mod pack;
mod programs;
mod records;
mod search;
mod split;
mod stash;
mod states;
mod strings;
mod system;
mod unicode;

use crate::context::Context;
use mlua::{Error, FromLuaMulti, IntoLuaMulti, Lua, MultiValue, Result, Table, Value};
use std::fmt::Display;
use std::sync::Arc;

pub(crate) use base::{compile, inspect, settle};
pub(crate) use files::without_first_line;
pub(crate) use records::{
    Copied, array, collect, copied, emit_into, reduce_groups, table, temporary_folder,
    visit_records,
};
pub(crate) use states::evaluate;
pub(crate) use strings::{gmatch_step, join};

/// Adds functions to a table of a state.
pub(crate) struct Installer<'l> {
    pub(crate) lua: &'l Lua,
    pub(crate) table: Table,
    pub(crate) context: Arc<Context>,
}

impl Installer<'_> {
    /// Adds a function that may take long or wait, so not on an event loop. It fails if the call
    /// has no time left.
    pub(crate) fn add<A, R>(
        &self,
        name: &str,
        function: impl Fn(&Lua, &Context, A) -> Result<R> + Send + 'static,
    ) -> Result<()>
    where
        A: FromLuaMulti,
        R: IntoLuaMulti,
    {
        self.add_short(name, move |lua, context, arguments| {
            context.records.leave_loop();
            function(lua, context, arguments)
        })
    }

    /// Adds a function that takes some microseconds, or leaves the event loop itself. It fails if
    /// the call has no time left.
    pub(crate) fn add_short<A, R>(
        &self,
        name: &str,
        function: impl Fn(&Lua, &Context, A) -> Result<R> + Send + 'static,
    ) -> Result<()>
    where
        A: FromLuaMulti,
        R: IntoLuaMulti,
    {
        self.add_unchecked(name, move |lua, context, arguments| {
            context.begin_function(lua)?;
            let result = function(lua, context, arguments);
            context.end_function();
            result.or_else(|error| {
                // An operation that the deadline has ended has an error of its own.
                if !matches!(error, Error::MemoryError(_)) {
                    context.check()?;
                }
                Err(error)
            })
        })
    }

    /// Adds a function that also works when the call has no time left.
    pub(crate) fn add_unchecked<A, R>(
        &self,
        name: &str,
        function: impl Fn(&Lua, &Context, A) -> Result<R> + Send + 'static,
    ) -> Result<()>
    where
        A: FromLuaMulti,
        R: IntoLuaMulti,
    {
        let context = Arc::clone(&self.context);
        let function = self.lua.create_function(move |lua, arguments| {
            context.check_stack()?;
            function(lua, &context, arguments)
        })?;
        self.table.raw_set(name, function)
    }

    /// Returns an installer for another table.
    pub(crate) fn into(&self, table: Table) -> Installer<'_> {
        Installer { lua: self.lua, table, context: Arc::clone(&self.context) }
    }
}

/// Adds all functions to the globals of a state.
pub(crate) fn install(installer: &Installer<'_>) -> Result<()> {
    install_base(installer)?;
    bit::install(installer)?;
    codec::install(installer)?;
    collections::install(installer)?;
    distance::install(installer)?;
    hash::install(installer)?;
    named_locks::install(installer)?;
    pack::install(installer)?;
    records::install(installer)?;
    search::install(installer)?;
    split::install(installer)?;
    stash::install(installer)?;
    states::install(installer)?;
    system::install(installer)?;
    unicode::install(installer)?;
    if installer.context.shared.allowed.files {
        files::install(installer)?;
    }
    Ok(())
}

/// Adds those of Lua's own functions that needed limits to the globals of a state.
pub(crate) fn install_base(installer: &Installer<'_>) -> Result<()> {
    strings::install(&installer.into(installer.table.raw_get("string")?))?;
    base::install(installer)
}

/// Returns the number of a value, or 0 if it has none, as Tokyo Tyrant takes it.
pub(crate) fn number_or_zero(lua: &Lua, value: Value) -> Result<f64> {
    Ok(lua.coerce_number(value)?.unwrap_or(0.0))
}

/// Returns an error with a message, which a script can catch.
pub(crate) fn failed(message: impl Display) -> Error {
    Error::RuntimeError(message.to_string())
}

/// The end of the arguments: a further one is an error.
pub(crate) struct End;

impl FromLuaMulti for End {
    fn from_lua_multi(values: MultiValue, _: &Lua) -> Result<Self> {
        if values.is_empty() { Ok(Self) } else { Err(failed("too many arguments")) }
    }
}
