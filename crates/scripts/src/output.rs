//! Output: a text that a function of ours makes, within the limits of its call.

use crate::context::Context;
use crate::memory::{Charge, UNCHARGED_BYTES};
use crate::pace::Pace;
use mlua::{Lua, LuaString, Result};
use std::io;

/// Work that each piece is in addition to its bytes.
const PIECE_BYTES: usize = 16;

/// A text that grows by pieces. A piece fails if a state cannot have the text with it, if there is
/// no memory for it, or if the call has no time left.
pub(crate) struct Output<'c> {
    lua: &'c Lua,
    context: &'c Context,
    bytes: Vec<u8>,
    pace: Pace<'c>,
    /// Charge for the bytes, if they are many.
    charge: Option<Charge>,
}

impl<'c> Output<'c> {
    pub(crate) fn new(lua: &'c Lua, context: &'c Context) -> Self {
        Self { lua, context, bytes: Vec::new(), pace: Pace::new(lua, context), charge: None }
    }

    /// Appends a piece.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<()> {
        self.context.check_bytes(self.bytes.len().saturating_add(piece.len()))?;
        self.pace.work(piece.len() + PIECE_BYTES)?;
        if piece.len() > self.bytes.capacity() - self.bytes.len() {
            self.grow(piece.len())?;
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// Makes room for a piece.
    fn grow(&mut self, piece: usize) -> Result<()> {
        let before = self.bytes.capacity();
        let capacity = (self.bytes.len() + piece).max(before.saturating_mul(2));
        if capacity > UNCHARGED_BYTES {
            let is_first = self.charge.is_none();
            let more = if is_first { capacity } else { capacity - before };
            let charge = self.charge.get_or_insert_with(|| self.context.charge());
            self.context.add_to(self.lua, charge, more)?;
        }
        self.bytes.reserve_exact(capacity - self.bytes.len());
        Ok(())
    }

    /// Returns the text as one of Lua.
    pub(crate) fn create(&self) -> Result<LuaString> {
        self.context.text(self.lua, &self.bytes)
    }
}

/// A text that is read in pieces. A piece fails if the call has no time left.
pub(crate) struct Input<'c> {
    context: &'c Context,
    rest: &'c [u8],
}

impl<'c> Input<'c> {
    pub(crate) fn new(context: &'c Context, text: &'c [u8]) -> Self {
        Self { context, rest: text }
    }
}

impl io::Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.context.check_progress().map_err(io::Error::other)?;
        self.rest.read(buffer)
    }
}

impl io::Write for Output<'_> {
    /// Appends a piece. An error has that of [`Output::push`] within it.
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.push(piece).map_err(io::Error::other)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
