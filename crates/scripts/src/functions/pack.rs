//! `_pack` and `_unpack`: numbers as bytes.

use super::{Installer, failed, number_or_zero};
use crate::context::Context;
use crate::output::Output;
use crate::pace::{ELEMENT_UNITS, Pace};
use mlua::{FromLua, Lua, LuaString, MultiValue, Result, Table, Value, Variadic};

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add_short("_pack", pack)?;
    installer.add_short("_unpack", unpack)
}

/// First number beyond 64 bits.
const U64_END: f64 = 18_446_744_073_709_551_616.0;

/// A kind of number: its letter in the format.
#[derive(Clone, Copy)]
struct Kind(u8);

impl Kind {
    /// Returns the number of bytes, 0 if it varies, or `None` if there is no such kind.
    fn size(self) -> Option<usize> {
        Some(match self.0 {
            b'c' | b'C' => 1,
            b's' | b'S' | b'n' => 2,
            b'i' | b'I' | b'f' | b'N' => 4,
            b'l' | b'L' | b'd' | b'M' => 8,
            b'w' => 0,
            _ => return None,
        })
    }

    fn append(self, number: f64, bytes: &mut Vec<u8>) {
        // Negative ones saturate. Above the range of i64 are those of u64, and above that 0.
        let integer = match number {
            ..0.0 => number as i64 as u64,
            U64_END.. => 0,
            _ => number as u64,
        };
        match self.0 {
            b'c' | b'C' => bytes.push(integer as u8),
            b's' | b'S' => bytes.extend((integer as u16).to_ne_bytes()),
            b'i' | b'I' => bytes.extend((integer as u32).to_ne_bytes()),
            b'l' | b'L' => bytes.extend(integer.to_ne_bytes()),
            b'f' => bytes.extend((number as f32).to_ne_bytes()),
            b'd' => bytes.extend(number.to_ne_bytes()),
            b'n' => bytes.extend((integer as u16).to_be_bytes()),
            b'N' => bytes.extend((integer as u32).to_be_bytes()),
            b'M' => bytes.extend(integer.to_be_bytes()),
            // Tokyo Tyrant keeps so many bits of a negative number.
            _ if number < 0.0 => append_ber(integer & ((1 << 57) - 1), bytes),
            _ => append_ber(integer, bytes),
        }
    }

    /// Reads a number. Returns it and the rest.
    fn read(self, bytes: &[u8]) -> Option<(f64, &[u8])> {
        let size = self.size()?;
        if size == 0 {
            return read_ber(bytes);
        }
        let (number, rest) = bytes.split_at_checked(size)?;
        let mut wide = [0; 8];
        let number = match self.0 {
            b'n' | b'N' | b'M' => {
                wide[8 - size..].copy_from_slice(number);
                u64::from_be_bytes(wide) as f64
            }
            kind => {
                let two = || number.try_into().map(i16::from_ne_bytes);
                let four = || number.try_into().map(i32::from_ne_bytes);
                let eight = || number.try_into().map(i64::from_ne_bytes);
                match kind {
                    b'c' => f64::from(number[0] as i8),
                    b'C' => f64::from(number[0]),
                    b's' => f64::from(two().ok()?),
                    b'S' => f64::from(two().ok()? as u16),
                    b'i' => f64::from(four().ok()?),
                    b'I' => f64::from(four().ok()? as u32),
                    b'l' => eight().ok()? as f64,
                    b'L' => eight().ok()? as u64 as f64,
                    b'f' => f64::from(f32::from_bits(four().ok()? as u32)),
                    _ => f64::from_bits(eight().ok()? as u64),
                }
            }
        };
        Some((number, rest))
    }
}

/// A number in groups of seven bits, the highest first; all but the last have the bit 128.
fn append_ber(number: u64, bytes: &mut Vec<u8>) {
    let groups = (64 - number.leading_zeros()).div_ceil(7).max(1);
    for group in (0..groups).rev() {
        let bits = (number >> (7 * group)) as u8 & 0x7f;
        bytes.push(if group == 0 { bits } else { bits | 0x80 });
    }
}

fn read_ber(bytes: &[u8]) -> Option<(f64, &[u8])> {
    if bytes.is_empty() {
        return None;
    }
    let end = bytes.iter().position(|byte| byte & 0x80 == 0).map_or(bytes.len(), |at| at + 1);
    let (number, rest) = bytes.split_at(end);
    let number = number.iter().fold(0u64, |number, byte| number << 7 | u64::from(byte & 0x7f));
    Some((number as f64, rest))
}

/// Splits a format into kinds, and how often each comes. An unknown letter has no size.
fn parts(format: &[u8]) -> impl Iterator<Item = (Kind, usize)> {
    let mut rest = format;
    std::iter::from_fn(move || {
        let (&letter, after) = rest.split_first()?;
        let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (count, after) = if after.first() == Some(&b'*') {
            (usize::MAX, &after[1..])
        } else {
            let number = std::str::from_utf8(&after[..digits]).ok()?;
            (if digits == 0 { 1 } else { number.parse().unwrap_or(usize::MAX) }, &after[digits..])
        };
        rest = after;
        Some((Kind(letter), count))
    })
}

fn pack(
    lua: &Lua,
    context: &Context,
    (format, values): (LuaString, Variadic<Value>),
) -> Result<LuaString> {
    context.leave_loop_for_values(format.as_bytes().len());
    let mut numbers = Vec::new();
    for value in values.iter() {
        append_numbers(lua, context, value, &mut numbers)?;
    }
    let mut numbers = numbers.into_iter();
    let mut output = Output::new(lua, context);
    let mut bytes = Vec::new();
    let mut pace = Pace::new(lua, context);
    for (kind, count) in parts(&format.as_bytes()) {
        pace.work(ELEMENT_UNITS)?;
        // As in Tokyo Tyrant, an unknown letter takes its numbers.
        for number in numbers.by_ref().take(count) {
            pace.work(1)?;
            if kind.size().is_some() {
                bytes.clear();
                kind.append(number, &mut bytes);
                output.push(&bytes)?;
            }
        }
    }
    output.create()
}

/// Appends a number, or the numbers of an array.
fn append_numbers(
    lua: &Lua,
    context: &Context,
    value: &Value,
    numbers: &mut Vec<f64>,
) -> Result<()> {
    if let Value::Table(table) = value {
        let mut pace = Pace::new(lua, context);
        for value in table.sequence_values::<Value>() {
            pace.work(ELEMENT_UNITS)?;
            context.charge_bytes(lua, 2 * size_of::<f64>())?;
            numbers.push(number_or_zero(lua, value?)?);
        }
    } else {
        numbers.push(number_or_zero(lua, value.clone())?);
    }
    Ok(())
}

fn unpack(
    lua: &Lua,
    context: &Context,
    (format, mut arguments): (LuaString, MultiValue),
) -> Result<Table> {
    let text = arguments.pop_front().ok_or_else(|| failed("_unpack: there is no text"))?;
    // Scripts count by the text of a record, which may be nil.
    let Some(text) = Option::<LuaString>::from_lua(text, lua)? else {
        return lua.create_table();
    };
    let text = text.as_bytes();
    context.leave_loop_for_values(format.as_bytes().len().max(text.len()));
    let mut rest = &*text;
    let table = lua.create_table()?;
    let mut pace = Pace::new(lua, context);
    for (kind, count) in parts(&format.as_bytes()) {
        pace.work(ELEMENT_UNITS)?;
        for _ in 0..count {
            let Some((number, after)) = kind.read(rest) else { break };
            pace.element(rest.len() - after.len())?;
            table.raw_push(number)?;
            rest = after;
        }
    }
    Ok(table)
}
