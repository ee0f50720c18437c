//! Replies of commands as values of Lua, and values of Lua as replies.

use super::number::append_general;
use crate::context::Context;
use crate::functions::{failed, table};
use crate::pace::{ELEMENT_UNITS, Pace};
use mlua::{Lua, Result, Table, Value};
use wire::redis::reply::{self, Version};

/// Levels of tables in the result of a script, and of arrays in a reply.
const LEVELS_MAX: usize = 100;

/// Digits of a float.
const DIGITS: usize = 17;

/// Returns the value of a reply.
pub(super) fn read(lua: &Lua, context: &Context, bytes: &[u8]) -> Result<Value> {
    Reader { lua, context, pace: Pace::new(lua, context), rest: bytes }.value(0)
}

struct Reader<'c> {
    lua: &'c Lua,
    context: &'c Context,
    pace: Pace<'c>,
    rest: &'c [u8],
}

impl<'c> Reader<'c> {
    fn malformed() -> mlua::Error {
        failed("a reply of the server is malformed")
    }

    /// Takes the next line, without its end.
    fn line(&mut self) -> Result<&'c [u8]> {
        let end = memchr::memchr(b'\n', self.rest).ok_or_else(Self::malformed)?;
        let line = self.rest[..end].strip_suffix(b"\r").unwrap_or(&self.rest[..end]);
        self.rest = &self.rest[end + 1..];
        Ok(line)
    }

    /// Takes the bytes of a string, and the end of its line.
    fn bytes(&mut self, length: usize) -> Result<&'c [u8]> {
        let bytes = self.rest.get(..length).ok_or_else(Self::malformed)?;
        self.rest = self.rest.get(length + 2..).ok_or_else(Self::malformed)?;
        Ok(bytes)
    }

    fn text(&self, bytes: &[u8]) -> Result<Value> {
        Ok(Value::String(self.context.text(self.lua, bytes)?))
    }

    /// Returns a table with one field.
    fn field(&self, name: &str, value: Value) -> Result<Table> {
        let table = self.lua.create_table()?;
        table.raw_set(name, value)?;
        Ok(table)
    }

    fn value(&mut self, level: usize) -> Result<Value> {
        self.pace.work(ELEMENT_UNITS)?;
        if level > LEVELS_MAX {
            return Err(Self::malformed());
        }
        let line = self.line()?;
        let (kind, text) = line.split_first().ok_or_else(Self::malformed)?;
        let number = || std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
        let count = usize::try_from(number().unwrap_or(-1)).ok();
        Ok(match (kind, count) {
            (b':', _) => Value::Number(number().ok_or_else(Self::malformed)? as f64),
            (b'$', Some(length)) => {
                let bytes = self.bytes(length)?;
                self.text(bytes)?
            }
            (b'$' | b'*', None) => Value::Boolean(false),
            (b'_', _) => Value::Nil,
            (b'#', _) => Value::Boolean(text == b"t"),
            (b'+', _) => Value::Table(self.field("ok", self.text(text)?)?),
            (b'-', _) => Value::Table(self.error(text)?),
            (b',', _) => {
                let number = super::number::read(text).map_or(f64::NAN, |(number, _)| number);
                Value::Table(self.field("double", Value::Number(number))?)
            }
            (b'(', _) => Value::Table(self.field("big_number", self.text(text)?)?),
            (b'=', Some(length)) => {
                let bytes = self.bytes(length)?;
                Value::Table(self.verbatim(bytes)?)
            }
            (b'*' | b'>', Some(count)) => Value::Table(self.array(count, level)?),
            (b'~', Some(count)) => Value::Table(self.set(count, level)?),
            (b'%', Some(count)) => Value::Table(self.map(count, level)?),
            _ => return Err(Self::malformed()),
        })
    }

    fn error(&self, text: &[u8]) -> Result<Table> {
        let error = self.field("err", self.text(text)?)?;
        error.raw_set("ignore_error_stats_update", true)?;
        Ok(error)
    }

    fn verbatim(&self, bytes: &[u8]) -> Result<Table> {
        let (format, text) = bytes.split_at_checked(4).ok_or_else(Self::malformed)?;
        let fields = self.field("format", self.text(&format[..3])?)?;
        fields.raw_set("string", self.text(text)?)?;
        self.field("verbatim_string", Value::Table(fields))
    }

    fn array(&mut self, count: usize, level: usize) -> Result<Table> {
        let elements = table(self.lua, self.context, count.min(self.rest.len()), 0)?;
        for index in 1..=count {
            let element = self.value(level + 1)?;
            elements.raw_set(index, element)?;
        }
        Ok(elements)
    }

    fn set(&mut self, count: usize, level: usize) -> Result<Table> {
        let members = self.lua.create_table()?;
        for _ in 0..count {
            members.raw_set(self.value(level + 1)?, true)?;
        }
        self.field("set", Value::Table(members))
    }

    fn map(&mut self, count: usize, level: usize) -> Result<Table> {
        let pairs = self.lua.create_table()?;
        for _ in 0..count {
            let (key, value) = (self.value(level + 1)?, self.value(level + 1)?);
            pairs.raw_set(key, value)?;
        }
        self.field("map", Value::Table(pairs))
    }
}

/// Versions of the protocol: that which the client has chosen, and that of the script's commands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Versions {
    pub(super) client: Version,
    pub(super) script: Version,
}

/// Appends a value as a reply.
pub(super) fn write(
    lua: &Lua,
    context: &Context,
    versions: Versions,
    value: &Value,
    output: &mut Vec<u8>,
) -> Result<()> {
    Writer { lua, context, pace: Pace::new(lua, context), versions, output }.value(value, 0)
}

struct Writer<'c> {
    lua: &'c Lua,
    context: &'c Context,
    pace: Pace<'c>,
    versions: Versions,
    output: &'c mut Vec<u8>,
}

impl Writer<'_> {
    /// Counts an element of so many bytes.
    fn element(&mut self, bytes: usize) -> Result<()> {
        self.pace.element(bytes)?;
        self.context.charge_bytes(self.lua, bytes + ELEMENT_UNITS / 4)
    }

    fn value(&mut self, value: &Value, level: usize) -> Result<()> {
        self.element(0)?;
        let client = self.versions.client;
        match value {
            Value::String(text) => {
                let text = text.as_bytes();
                self.element(text.len())?;
                reply::string(self.output, &text);
            }
            Value::Boolean(is_true) => match (self.versions.script, is_true) {
                (Version::Two, true) => reply::integer(self.output, 1),
                (Version::Two, false) => reply::null(self.output, client),
                (Version::Three, is_true) => reply::boolean(self.output, client, *is_true),
            },
            Value::Integer(number) => reply::integer(self.output, *number),
            Value::Number(number) => {
                reply::integer(self.output, super::errors::truncated(*number));
            }
            Value::Table(_) if level == LEVELS_MAX => {
                return Err(failed(format!("the result has more than {LEVELS_MAX} levels")));
            }
            Value::Table(table) => self.table(table, level + 1)?,
            _ => reply::null(self.output, client),
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, level: usize) -> Result<()> {
        let client = self.versions.client;
        if let Value::String(text) = table.raw_get("err")? {
            return self.line(b'-', &text.as_bytes());
        }
        if let Value::String(text) = table.raw_get("ok")? {
            return self.line(b'+', &text.as_bytes());
        }
        if let Some(number) = number_of(&table.raw_get("double")?) {
            let mut text = Vec::new();
            append_general(&mut text, number, DIGITS);
            reply::double(self.output, client, &text);
            return Ok(());
        }
        if let Value::String(text) = table.raw_get("big_number")? {
            let text: Vec<u8> =
                text.as_bytes().iter().map(|byte| without_line_end(*byte)).collect();
            self.element(text.len())?;
            reply::big_number(self.output, client, &text);
            return Ok(());
        }
        if let Value::Table(fields) = table.raw_get("verbatim_string")?
            && let Value::String(format) = fields.raw_get("format")?
            && let Value::String(text) = fields.raw_get("string")?
        {
            let text = text.as_bytes();
            self.element(text.len())?;
            let mut kind = [b' '; 3];
            kind.iter_mut().zip(format.as_bytes().iter()).for_each(|(one, byte)| *one = *byte);
            reply::verbatim_of(self.output, client, kind, &text);
            return Ok(());
        }
        if let Value::Table(map) = table.raw_get("map")? {
            return self.pairs(&map, true, level);
        }
        if let Value::Table(set) = table.raw_get("set")? {
            return self.pairs(&set, false, level);
        }
        self.array(table, level)
    }

    /// Appends a line of a text, without the ends of lines in it.
    fn line(&mut self, kind: u8, text: &[u8]) -> Result<()> {
        self.element(text.len())?;
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let text = if kind == b'-' { trimmed(text) } else { text };
        self.output.push(kind);
        self.output.extend(text.iter().map(|byte| without_line_end(*byte)));
        self.output.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn pairs(&mut self, table: &Table, is_map: bool, level: usize) -> Result<()> {
        let mut count = 0;
        for pair in table.pairs::<Value, Value>() {
            pair?;
            self.pace.work(ELEMENT_UNITS)?;
            count += 1;
        }
        match is_map {
            true => reply::map(self.output, self.versions.client, count),
            false => reply::set(self.output, self.versions.client, count),
        }
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            self.value(&key, level)?;
            if is_map {
                self.value(&value, level)?;
            }
        }
        Ok(())
    }

    /// Appends the elements up to the first nil.
    fn array(&mut self, table: &Table, level: usize) -> Result<()> {
        let start = self.output.len();
        let mut count = 0;
        loop {
            let element: Value = table.raw_get(count + 1)?;
            if element.is_nil() {
                break;
            }
            self.value(&element, level)?;
            count += 1;
        }
        let mut head = Vec::new();
        reply::array(&mut head, count);
        self.output.splice(start..start, head);
        Ok(())
    }
}

fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

fn without_line_end(byte: u8) -> u8 {
    if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }
}

/// Returns a text without ends of lines around it.
pub(super) fn trimmed(text: &[u8]) -> &[u8] {
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let begin = text.iter().position(|byte| !is_end(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !is_end(byte)).map_or(begin, |at| at + 1);
    &text[begin..end]
}
