//! Values of Lua to JSON.

use super::super::errors::{Arguments, library_error};
use super::super::number::append_general;
use super::{InvalidNumbers, NULL, Settings, array_length, only};
use crate::context::Context;
use crate::output::Output;
use crate::pace::{ELEMENT_UNITS, Pace};
use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value};
use parking_lot::Mutex;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

pub(super) fn encode(
    lua: &Lua,
    context: &Context,
    settings: &Mutex<Settings>,
    values: MultiValue,
) -> Result<LuaString> {
    let arguments = Arguments::new(lua, values);
    let value = only(&arguments, lua)?;
    let settings = *settings.lock();
    let (output, pace) = (Output::new(lua, context), Pace::new(lua, context));
    let mut encoder = Encoder { lua, settings, output, pace };
    encoder.value(value, 0)?;
    encoder.output.create()
}

struct Encoder<'c> {
    lua: &'c Lua,
    settings: Settings,
    output: Output<'c>,
    pace: Pace<'c>,
}

impl Encoder<'_> {
    fn fail(&self, value: &Value, reason: &str) -> Error {
        let kind = match value {
            Value::Integer(_) => "number",
            Value::LightUserData(_) => "userdata",
            value => value.type_name(),
        };
        library_error(self.lua, format!("Cannot serialise {kind}: {reason}"))
    }

    fn value(&mut self, value: &Value, level: usize) -> Result<()> {
        self.pace.work(ELEMENT_UNITS)?;
        match value {
            Value::Nil => self.output.push(b"null"),
            value if *value == NULL => self.output.push(b"null"),
            Value::Boolean(true) => self.output.push(b"true"),
            Value::Boolean(false) => self.output.push(b"false"),
            Value::Integer(number) => self.number(value, *number as f64),
            Value::Number(number) => self.number(value, *number),
            Value::String(text) => self.text(&text.as_bytes()),
            Value::Table(table) => self.table(value, table, level + 1),
            value => Err(self.fail(value, "type not supported")),
        }
    }

    fn number(&mut self, value: &Value, number: f64) -> Result<()> {
        let mut text = Vec::new();
        if !number.is_finite() {
            match self.settings.encode_invalid {
                InvalidNumbers::Refused => {
                    return Err(self.fail(value, "must not be NaN or Inf"));
                }
                InvalidNumbers::Null => return self.output.push(b"null"),
                // NaN has no sign here.
                InvalidNumbers::Accepted if number.is_nan() => return self.output.push(b"nan"),
                InvalidNumbers::Accepted => {}
            }
        }
        append_general(&mut text, number, self.settings.digits);
        self.output.push(&text)
    }

    fn text(&mut self, text: &[u8]) -> Result<()> {
        self.output.push(b"\"")?;
        let mut plain = 0;
        for (at, byte) in text.iter().enumerate() {
            let mut escape = *b"\\u0000";
            let escaped: &[u8] = match byte {
                b'"' => b"\\\"",
                b'\\' => b"\\\\",
                b'/' => b"\\/",
                8 => b"\\b",
                b'\t' => b"\\t",
                b'\n' => b"\\n",
                12 => b"\\f",
                b'\r' => b"\\r",
                0..32 | 127 => {
                    escape[4] = DIGITS[usize::from(byte >> 4)];
                    escape[5] = DIGITS[usize::from(byte & 15)];
                    &escape
                }
                _ => continue,
            };
            self.output.push(&text[plain..at])?;
            self.output.push(escaped)?;
            plain = at + 1;
        }
        self.output.push(&text[plain..])?;
        self.output.push(b"\"")
    }

    fn table(&mut self, value: &Value, table: &Table, level: usize) -> Result<()> {
        if level > self.settings.encode_levels_max {
            let text = format!("Cannot serialise, excessive nesting ({level})");
            return Err(library_error(self.lua, text));
        }
        let pace = &mut self.pace;
        match array_length(table, &self.settings, || pace.work(ELEMENT_UNITS))? {
            Err(()) => Err(self.fail(value, "excessively sparse array")),
            Ok(Some(length)) => self.array(table, length, level),
            Ok(None) => self.object(table, level),
        }
    }

    fn array(&mut self, table: &Table, length: usize, level: usize) -> Result<()> {
        self.output.push(b"[")?;
        for index in 1..=length {
            if index > 1 {
                self.output.push(b",")?;
            }
            self.value(&table.raw_get(index)?, level)?;
        }
        self.output.push(b"]")
    }

    fn object(&mut self, table: &Table, level: usize) -> Result<()> {
        self.output.push(b"{")?;
        let mut is_first = true;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            if !is_first {
                self.output.push(b",")?;
            }
            is_first = false;
            match &key {
                Value::String(text) => self.text(&text.as_bytes())?,
                Value::Integer(_) | Value::Number(_) => {
                    self.output.push(b"\"")?;
                    self.value(&key, level)?;
                    self.output.push(b"\"")?;
                }
                key => return Err(self.fail(key, "table key must be a number or string")),
            }
            self.output.push(b":")?;
            self.value(&value, level)?;
        }
        self.output.push(b"}")
    }
}
