//! `cmsgpack`: MessagePack, with the choices and the errors of lua-cmsgpack 0.4.0.

use super::errors::{Arguments, argument_error, library_error};
use crate::context::Context;
use crate::functions::{Installer, failed};
use crate::output::Output;
use crate::pace::{ELEMENT_UNITS, Pace};
use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value};

/// Levels of tables that are packed. A deeper one becomes nil.
const PACKED_LEVELS_MAX: usize = 16;

/// Levels of arrays and maps that are unpacked.
const UNPACKED_LEVELS_MAX: usize = 1000;

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add_short("pack", pack)?;
    installer.add_short("unpack", |lua, context, values| {
        let arguments = Arguments::new(lua, values);
        unpack(lua, context, &arguments, (0, 0))
    })?;
    installer.add_short("unpack_one", |lua, context, values| {
        let arguments = Arguments::new(lua, values);
        let offset = arguments.integer_or(2, 0)?;
        unpack(lua, context, &arguments, (1, offset))
    })?;
    installer.add_short("unpack_limit", |lua, context, values| {
        let arguments = Arguments::new(lua, values);
        let limit = super::errors::truncated(arguments.number(2)?);
        let offset = arguments.integer_or(3, 0)?;
        unpack(lua, context, &arguments, (limit, offset))
    })?;
    installer.table.raw_set("_NAME", "cmsgpack")?;
    installer.table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    installer.table.raw_set("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo")?;
    installer.table.raw_set("_DESCRIPTION", "MessagePack C implementation for Lua")
}

fn pack(lua: &Lua, context: &Context, values: MultiValue) -> Result<LuaString> {
    if values.is_empty() {
        return Err(argument_error(lua, 0, "MessagePack pack needs input."));
    }
    let mut packer = Packer { output: Output::new(lua, context), pace: Pace::new(lua, context) };
    values.iter().try_for_each(|value| packer.value(value, 0))?;
    packer.output.create()
}

struct Packer<'c> {
    output: Output<'c>,
    pace: Pace<'c>,
}

impl Packer<'_> {
    fn value(&mut self, value: &Value, level: usize) -> Result<()> {
        self.pace.work(ELEMENT_UNITS)?;
        match value {
            Value::String(text) => self.text(&text.as_bytes()),
            Value::Boolean(is_true) => self.output.push(&[0xc2 | u8::from(*is_true)]),
            Value::Integer(number) => self.integer(*number),
            Value::Number(number) => self.number(*number),
            Value::Table(table) if level < PACKED_LEVELS_MAX => self.table(table, level + 1),
            _ => self.output.push(&[0xc0]),
        }
    }

    /// Appends a length: within the first byte up to `short_max`, or after it.
    fn length(&mut self, length: usize, short: u8, short_max: usize, long: [u8; 2]) -> Result<()> {
        if length <= short_max {
            return self.output.push(&[short | length as u8]);
        }
        match u16::try_from(length) {
            Ok(length) => {
                self.output.push(&long[..1])?;
                self.output.push(&length.to_be_bytes())
            }
            Err(_) => {
                self.output.push(&long[1..])?;
                self.output.push(&(length as u32).to_be_bytes())
            }
        }
    }

    fn text(&mut self, text: &[u8]) -> Result<()> {
        match text.len() {
            32..=0xff => self.output.push(&[0xd9, text.len() as u8])?,
            length => self.length(length, 0xa0, 31, [0xda, 0xdb])?,
        }
        self.output.push(text)
    }

    fn number(&mut self, number: f64) -> Result<()> {
        const END: f64 = 9_223_372_036_854_775_808.0;
        if number.fract() == 0.0 && (-END..END).contains(&number) {
            return self.integer(number as i64);
        }
        let single = number as f32;
        if f64::from(single) == number {
            self.output.push(&[0xca])?;
            self.output.push(&single.to_be_bytes())
        } else {
            self.output.push(&[0xcb])?;
            self.output.push(&number.to_be_bytes())
        }
    }

    fn integer(&mut self, number: i64) -> Result<()> {
        let bytes = number.to_be_bytes();
        let (kind, size) = match number {
            -32..=127 => return self.output.push(&bytes[7..]),
            128..=0xff => (0xcc, 1),
            0x100..=0xffff => (0xcd, 2),
            0x1_0000..=0xffff_ffff => (0xce, 4),
            0x1_0000_0000.. => (0xcf, 8),
            -0x80..-32 => (0xd0, 1),
            -0x8000..-0x80 => (0xd1, 2),
            -0x8000_0000..-0x8000 => (0xd2, 4),
            ..-0x8000_0000 => (0xd3, 8),
        };
        self.output.push(&[kind])?;
        self.output.push(&bytes[8 - size..])
    }

    fn table(&mut self, table: &Table, level: usize) -> Result<()> {
        let (mut count, mut max, mut is_array) = (0_usize, 0.0_f64, true);
        for pair in table.pairs::<Value, Value>() {
            self.pace.work(ELEMENT_UNITS)?;
            let index = match pair?.0 {
                Value::Integer(index) => index as f64,
                Value::Number(index) => index,
                _ => 0.0,
            };
            is_array &= index >= 1.0 && index.fract() == 0.0;
            count += 1;
            max = max.max(index);
        }
        if is_array && max == count as f64 {
            self.length(count, 0x90, 15, [0xdc, 0xdd])?;
            return (1..=count).try_for_each(|index| self.value(&table.raw_get(index)?, level));
        }
        self.length(count, 0x80, 15, [0xde, 0xdf])?;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            self.value(&key, level)?;
            self.value(&value, level)?;
        }
        Ok(())
    }
}

/// Returns the values of a text from an offset on, `limit` of them at most; 0 for all. With a limit
/// the offset of the rest comes first, or -1.
fn unpack(
    lua: &Lua,
    context: &Context,
    arguments: &Arguments<'_>,
    (limit, offset): (i64, i64),
) -> Result<MultiValue> {
    let text = arguments.text(1)?;
    let text = text.as_bytes();
    if offset < 0 || limit < 0 {
        return Err(library_error(
            lua,
            format!(
                "Invalid request to unpack with offset of {offset} and limit of {}.",
                text.len()
            ),
        ));
    }
    let begin = usize::try_from(offset).unwrap_or(usize::MAX);
    if begin > text.len() {
        return Err(library_error(
            lua,
            format!("Start offset {offset} greater than input length {}.", text.len()),
        ));
    }
    let is_limited = limit > 0;
    let mut unpacker =
        Unpacker { lua, context, text: &text, at: begin, pace: Pace::new(lua, context) };
    let mut results = Vec::new();
    while unpacker.at < text.len() && (!is_limited || (results.len() as i64) < limit) {
        results.push(unpacker.value(0)?);
        super::check_results(lua, results.len())?;
    }
    if is_limited {
        let rest = if unpacker.at < text.len() { unpacker.at as f64 } else { -1.0 };
        results.insert(0, Value::Number(rest));
    }
    Ok(results.into_iter().collect())
}

struct Unpacker<'c> {
    lua: &'c Lua,
    context: &'c Context,
    text: &'c [u8],
    at: usize,
    pace: Pace<'c>,
}

impl<'c> Unpacker<'c> {
    fn take(&mut self, bytes: usize) -> Result<&'c [u8]> {
        let end = self.at.saturating_add(bytes);
        let missing = || library_error(self.lua, "Missing bytes in input.");
        let taken = self.text.get(self.at..end).ok_or_else(missing)?;
        self.at = end;
        Ok(taken)
    }

    fn unsigned(&mut self, bytes: usize) -> Result<u64> {
        Ok(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn signed(&mut self, bytes: usize) -> Result<f64> {
        let unused = 64 - 8 * bytes as u32;
        Ok((((self.unsigned(bytes)? << unused) as i64) >> unused) as f64)
    }

    fn bad(&self) -> Error {
        library_error(self.lua, "Bad data format in input.")
    }

    fn value(&mut self, level: usize) -> Result<Value> {
        self.pace.work(ELEMENT_UNITS)?;
        let kind = self.take(1)?[0];
        Ok(match kind {
            0..=0x7f => Value::Number(kind.into()),
            0xe0..=0xff => Value::Number((kind as i8).into()),
            0xcc..=0xcf => Value::Number(self.unsigned(1 << (kind - 0xcc))? as f64),
            0xd0..=0xd3 => Value::Number(self.signed(1 << (kind - 0xd0))?),
            0xc0 => Value::Nil,
            0xc2 | 0xc3 => Value::Boolean(kind == 0xc3),
            0xca => Value::Number(f32::from_bits(self.unsigned(4)? as u32).into()),
            0xcb => Value::Number(f64::from_bits(self.unsigned(8)?)),
            0xa0..=0xbf => self.string((kind & 31).into())?,
            0xd9..=0xdb => {
                let length = self.unsigned(1 << (kind - 0xd9))?;
                self.string(length)?
            }
            0x90..=0x9f => self.array((kind & 15).into(), level)?,
            0xdc | 0xdd => {
                let length = self.unsigned(2 << (kind - 0xdc))?;
                self.array(length, level)?
            }
            0x80..=0x8f => self.map((kind & 15).into(), level)?,
            0xde | 0xdf => {
                let length = self.unsigned(2 << (kind - 0xde))?;
                self.map(length, level)?
            }
            _ => return Err(self.bad()),
        })
    }

    fn string(&mut self, length: u64) -> Result<Value> {
        let text = self.take(usize::try_from(length).unwrap_or(usize::MAX))?;
        Ok(Value::String(self.context.text(self.lua, text)?))
    }

    fn check_level(&self, level: usize) -> Result<()> {
        match level < UNPACKED_LEVELS_MAX {
            true => Ok(()),
            false => Err(failed(format!("more than {UNPACKED_LEVELS_MAX} levels in input"))),
        }
    }

    fn array(&mut self, length: u64, level: usize) -> Result<Value> {
        self.check_level(level)?;
        let table = self.lua.create_table()?;
        for index in 1..=length {
            table.raw_set(index, self.value(level + 1)?)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, length: u64, level: usize) -> Result<Value> {
        self.check_level(level)?;
        let table = self.lua.create_table()?;
        for _ in 0..length {
            let (key, value) = (self.value(level + 1)?, self.value(level + 1)?);
            match key {
                Value::Nil => return Err(failed("table index is nil")),
                Value::Number(number) if number.is_nan() => {
                    return Err(failed("table index is NaN"));
                }
                key => table.raw_set(key, value)?,
            }
        }
        Ok(Value::Table(table))
    }
}
