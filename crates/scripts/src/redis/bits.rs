//! `bit`: operations on numbers of 32 bits, as those of Lua BitOp.

use super::errors::Arguments;
use crate::functions::Installer;
use mlua::{MultiValue, Result, Value};

/// Sum with which the low bits of a number's binary form are those of its whole part.
const SHIFT: f64 = 6_755_399_441_055_744.0;

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    one(installer, "tobit", |bits| bits)?;
    one(installer, "bnot", |bits| !bits)?;
    one(installer, "bswap", u32::swap_bytes)?;
    all(installer, "band", |one, other| one & other)?;
    all(installer, "bor", |one, other| one | other)?;
    all(installer, "bxor", |one, other| one ^ other)?;
    two(installer, "lshift", |bits, by| bits << by)?;
    two(installer, "rshift", |bits, by| bits >> by)?;
    two(installer, "arshift", |bits, by| ((bits as i32) >> by) as u32)?;
    two(installer, "rol", u32::rotate_left)?;
    two(installer, "ror", u32::rotate_right)?;
    installer.add_short("tohex", |lua, _, values: MultiValue| {
        let arguments = Arguments::new(lua, values);
        let bits = argument(&arguments, 1)?;
        let digits = if arguments.len() < 2 { 8 } else { argument(&arguments, 2)? as i32 };
        let count = (digits.unsigned_abs() as usize).min(8);
        let text = if digits < 0 { format!("{bits:08X}") } else { format!("{bits:08x}") };
        lua.create_string(&text[8 - count..])
    })
}

fn one(installer: &Installer<'_>, name: &str, apply: fn(u32) -> u32) -> Result<()> {
    installer.add_short(name, move |lua, _, values: MultiValue| {
        Ok(number(apply(argument(&Arguments::new(lua, values), 1)?)))
    })
}

fn two(installer: &Installer<'_>, name: &str, apply: fn(u32, u32) -> u32) -> Result<()> {
    installer.add_short(name, move |lua, _, values: MultiValue| {
        let arguments = Arguments::new(lua, values);
        let (bits, by) = (argument(&arguments, 1)?, argument(&arguments, 2)?);
        Ok(number(apply(bits, by & 31)))
    })
}

fn all(installer: &Installer<'_>, name: &str, apply: fn(u32, u32) -> u32) -> Result<()> {
    installer.add_short(name, move |lua, _, values: MultiValue| {
        let arguments = Arguments::new(lua, values);
        let mut bits = argument(&arguments, 1)?;
        for place in (2..=arguments.len()).rev() {
            bits = apply(bits, argument(&arguments, place)?);
        }
        Ok(number(bits))
    })
}

fn argument(arguments: &Arguments<'_>, place: usize) -> Result<u32> {
    Ok((arguments.number(place)? + SHIFT).to_bits() as u32)
}

fn number(bits: u32) -> Value {
    Value::Number(f64::from(bits as i32))
}
