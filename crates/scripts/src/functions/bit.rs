//! `_bit`: operations on the bits of numbers of 32 bits.

use super::{End, Installer, failed};
use mlua::{LuaString, Result};

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    type Arguments = (LuaString, f64, Option<f64>, End);
    installer.add_short("_bit", |_, _, (name, left, right, _): Arguments| {
        let left = bits(left);
        let right = bits(right.unwrap_or(0.0));
        Ok(match &*name.as_bytes() {
            b"and" => left & right,
            b"or" => left | right,
            b"xor" => left ^ right,
            b"not" => !left,
            // A shift by 32 is one by 0, as on x86.
            b"left" => left.wrapping_shl(right),
            b"right" => left.wrapping_shr(right),
            _ => return Err(failed("_bit: unknown operator")),
        })
    })
}

/// Returns the low 32 bits of a number, which may be negative.
fn bits(number: f64) -> u32 {
    // The first cast saturates, the second cuts.
    (number as i64) as u32
}
