//! Pace: the look at the limits of a call within long work of a function of ours.
//!
//! Lua calls no hook meanwhile, so the function counts its work itself.

use crate::context::Context;
use mlua::{Lua, Result};

/// Work between two looks, in units of about a nanosecond or a byte.
pub(crate) const UNITS_PER_CHECK: usize = 64 << 10;

/// Work that each element is in addition to its bytes: making a value of Lua of it takes as long.
pub(crate) const ELEMENT_UNITS: usize = 64;

/// Counter of the work of one function.
pub(crate) struct Pace<'c> {
    lua: &'c Lua,
    context: &'c Context,
    /// Work since the last look.
    unchecked: usize,
}

impl<'c> Pace<'c> {
    pub(crate) fn new(lua: &'c Lua, context: &'c Context) -> Self {
        Self { lua, context, unchecked: 0 }
    }

    /// Returns the state and its context.
    pub(crate) fn state(&self) -> (&'c Lua, &'c Context) {
        (self.lua, self.context)
    }

    /// Counts work that is done or about to be. Fails if the call has exceeded a limit.
    #[inline]
    pub(crate) fn work(&mut self, units: usize) -> Result<()> {
        self.unchecked = self.unchecked.saturating_add(units);
        if self.unchecked < UNITS_PER_CHECK { Ok(()) } else { self.look() }
    }

    /// Counts an element of so many bytes.
    #[inline]
    pub(crate) fn element(&mut self, bytes: usize) -> Result<()> {
        self.work(bytes.saturating_add(ELEMENT_UNITS))
    }

    #[cold]
    fn look(&mut self) -> Result<()> {
        self.unchecked = 0;
        self.context.check_progress()?;
        self.context.look_at_memory(self.lua)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::shared::{Allowed, Shared};
    use cabinet::Options;
    use server::{Config, Endpoint, Server};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    #[test]
    fn work_fails_at_the_first_look_after_the_deadline_and_not_before() {
        let listen = vec![Endpoint::Tcp { host: Some("127.0.0.1".into()), port: 0 }];
        let database = Options::new().open("*").unwrap();
        let server = Server::bind(Config { listen, ..Config::default() }, database).unwrap();
        let limits = Limits { call_time: Duration::ZERO, ..Limits::default() };
        let shared = Arc::new(Shared::new(limits, Allowed::default()));
        let (context, lua) = (Context::new(shared, server.script_records(0, 1)), Lua::new());
        context.start(Instant::now());
        let mut pace = Pace::new(&lua, &context);
        pace.work(UNITS_PER_CHECK - ELEMENT_UNITS - 2).unwrap();
        pace.element(1).unwrap();
        pace.work(1).unwrap_err();
        pace.work(UNITS_PER_CHECK - 1).unwrap();
    }
}
