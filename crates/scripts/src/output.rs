//! Output: a text that a function of ours makes, within the limits of its call.

use crate::context::Context;
use mlua::{Lua, LuaString, Result};
use std::io;

/// Work between two looks at the clock, in bytes.
const BYTES_PER_CHECK: usize = 64 << 10;

/// Work that each piece is in addition to its bytes.
const PIECE_BYTES: usize = 16;

/// A text that grows by pieces. A piece fails if a state cannot have the text with it, or if the
/// call has no time left.
pub(crate) struct Output<'c> {
    context: &'c Context,
    bytes: Vec<u8>,
    /// Work since the last look at the clock, in bytes.
    unchecked: usize,
}

impl<'c> Output<'c> {
    pub(crate) fn new(context: &'c Context) -> Self {
        Self { context, bytes: Vec::new(), unchecked: 0 }
    }

    /// Appends a piece.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<()> {
        self.context.check_bytes(self.bytes.len().saturating_add(piece.len()))?;
        self.unchecked = self.unchecked.saturating_add(piece.len() + PIECE_BYTES);
        if self.unchecked >= BYTES_PER_CHECK {
            self.unchecked = 0;
            self.context.check_progress()?;
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// Returns the text as one of Lua.
    pub(crate) fn create(&self, lua: &Lua) -> Result<LuaString> {
        lua.create_string(&self.bytes)
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
