//! `_bit`: operations on the bits of numbers of 32 bits.

use super::{End, Installer, failed, number_or_zero};
use mlua::{LuaString, Result, Value};

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    type Arguments = (LuaString, Value, Value, End);
    installer.add_short("_bit", |lua, _, (name, left, right, _): Arguments| {
        let left = bits(number_or_zero(lua, left)?);
        let right = bits(number_or_zero(lua, right)?);
        Ok(match &*name.as_bytes().to_ascii_lowercase() {
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

/// Returns the low 32 bits of a number, which may be negative; 0 of one beyond 64 bits, as on x86.
fn bits(number: f64) -> u32 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    let integer = if (-END..END).contains(&number) { number as i64 } else { 0 };
    // Cuts.
    integer as u32
}
