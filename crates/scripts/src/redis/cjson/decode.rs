//! JSON to values of Lua.

use super::super::errors::{Arguments, library_error};
use super::super::number::read;
use super::{InvalidNumbers, NULL, Settings, only};
use crate::context::Context;
use crate::pace::{ELEMENT_UNITS, Pace};
use mlua::{Error, Lua, MultiValue, Result, Value};
use parking_lot::Mutex;

pub(super) fn decode(
    lua: &Lua,
    context: &Context,
    settings: &Mutex<Settings>,
    values: MultiValue,
) -> Result<Value> {
    let arguments = Arguments::new(lua, values);
    only(&arguments, lua)?;
    let text = arguments.text(1)?;
    let text = text.as_bytes();
    if let [0, _, ..] | [_, 0, ..] = *text {
        let reason = "JSON parser does not support UTF-16 or UTF-32";
        return Err(library_error(lua, reason));
    }
    let (settings, pace) = (*settings.lock(), Pace::new(lua, context));
    let mut decoder = Decoder { lua, context, settings, text: &text, at: 0, pace };
    let token = decoder.next()?;
    let value = decoder.value(token, 0)?;
    match decoder.next()? {
        Token { kind: Kind::End, .. } => Ok(value),
        token => Err(decoder.unexpected("the end", &token)),
    }
}

/// Kind of a token, with its value.
enum Kind {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    /// No token, for this reason.
    Error(&'static str),
}

struct Token {
    kind: Kind,
    /// Place of its first byte, from 0 on.
    at: usize,
}

impl Token {
    /// Returns what lua-cjson calls it.
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::ObjectBegin => "T_OBJ_BEGIN",
            Kind::ObjectEnd => "T_OBJ_END",
            Kind::ArrayBegin => "T_ARR_BEGIN",
            Kind::ArrayEnd => "T_ARR_END",
            Kind::Text(_) => "T_STRING",
            Kind::Number(_) => "T_NUMBER",
            Kind::Boolean(_) => "T_BOOLEAN",
            Kind::Null => "T_NULL",
            Kind::Colon => "T_COLON",
            Kind::Comma => "T_COMMA",
            Kind::End => "T_END",
            Kind::Error(reason) => reason,
        }
    }
}

struct Decoder<'c> {
    lua: &'c Lua,
    context: &'c Context,
    settings: Settings,
    text: &'c [u8],
    at: usize,
    pace: Pace<'c>,
}

impl Decoder<'_> {
    fn unexpected(&self, expected: &str, token: &Token) -> Error {
        let (name, place) = (token.name(), token.at + 1);
        let text = format!("Expected {expected} but found {name} at character {place}");
        library_error(self.lua, text)
    }

    /// Returns the byte at a place. As in lua-cjson, a zero ends the text.
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    fn next(&mut self) -> Result<Token> {
        while matches!(self.byte(self.at), b' ' | b'\t' | b'\n' | b'\r') {
            self.pace.work(1)?;
            self.at += 1;
        }
        self.pace.work(ELEMENT_UNITS)?;
        let at = self.at;
        let kind = match self.byte(at) {
            0 => return Ok(Token { kind: Kind::End, at }),
            b'{' => Kind::ObjectBegin,
            b'}' => Kind::ObjectEnd,
            b'[' => Kind::ArrayBegin,
            b']' => Kind::ArrayEnd,
            b':' => Kind::Colon,
            b',' => Kind::Comma,
            b'"' => return self.string(),
            _ => return Ok(self.word()),
        };
        self.at += 1;
        Ok(Token { kind, at })
    }

    /// Reads a number or a name.
    fn word(&mut self) -> Token {
        let (at, rest) = (self.at, &self.text[self.at..]);
        let accepts = self.settings.decode_invalid != InvalidNumbers::Refused;
        let (kind, bytes) = match rest {
            [b'-' | b'0'..=b'9', ..] => match read(rest) {
                _ if !accepts && is_invalid(rest) => (Kind::Error("invalid number"), 0),
                Some((number, bytes)) => (Kind::Number(number), bytes),
                None => (Kind::Error("invalid number"), 0),
            },
            [b't', b'r', b'u', b'e', ..] => (Kind::Boolean(true), 4),
            [b'f', b'a', b'l', b's', b'e', ..] => (Kind::Boolean(false), 5),
            [b'n', b'u', b'l', b'l', ..] => (Kind::Null, 4),
            [b'+' | b'i' | b'I' | b'n' | b'N', ..] if accepts && is_invalid(rest) => {
                match read(rest) {
                    Some((number, bytes)) => (Kind::Number(number), bytes),
                    None => (Kind::Error("invalid number"), 0),
                }
            }
            _ => (Kind::Error("invalid token"), 0),
        };
        self.at += bytes;
        Token { kind, at }
    }

    fn string(&mut self) -> Result<Token> {
        let begin = self.at;
        self.at += 1;
        let mut text = Vec::new();
        let mut charge = self.context.charge();
        loop {
            self.pace.work(1)?;
            let at = self.at;
            match self.byte(at) {
                b'"' => break,
                0 => return Ok(Token { kind: Kind::Error("unexpected end of string"), at }),
                b'\\' if self.byte(at + 1) == b'u' => match self.code_point() {
                    Some(character) => {
                        let mut bytes = [0; 4];
                        text.extend_from_slice(character.encode_utf8(&mut bytes).as_bytes());
                    }
                    None => {
                        return Ok(Token { kind: Kind::Error("invalid unicode escape code"), at });
                    }
                },
                b'\\' => {
                    text.push(match self.byte(at + 1) {
                        byte @ (b'"' | b'\\' | b'/') => byte,
                        b'b' => 8,
                        b'f' => 12,
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        _ => return Ok(Token { kind: Kind::Error("invalid escape code"), at }),
                    });
                    self.at += 2;
                }
                byte => {
                    text.push(byte);
                    self.at += 1;
                }
            }
            if text.len() == text.capacity() {
                self.context.add_to(self.lua, &mut charge, text.len())?;
            }
        }
        self.at += 1;
        Ok(Token { kind: Kind::Text(text), at: begin })
    }

    /// Reads `\uXXXX`, or two of them for one character. Stays where it is if that is none.
    fn code_point(&mut self) -> Option<char> {
        let unit = |at: usize| {
            let digits = self.text.get(at..at + 6)?.strip_prefix(b"\\u")?;
            let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
            let digits = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
            u32::from_str_radix(digits, 16).ok()
        };
        let first = unit(self.at)?;
        let (code, bytes) = match first {
            0xd800..0xdc00 => {
                let second = unit(self.at + 6).filter(|unit| (0xdc00..0xe000).contains(unit))?;
                (0x10000 + ((first & 0x3ff) << 10) + (second & 0x3ff), 12)
            }
            _ => (first, 6),
        };
        let character = char::from_u32(code)?;
        self.at += bytes;
        Some(character)
    }

    fn value(&mut self, token: Token, level: usize) -> Result<Value> {
        Ok(match token.kind {
            Kind::Text(text) => Value::String(self.context.text(self.lua, &text)?),
            Kind::Number(number) => Value::Number(number),
            Kind::Boolean(is_true) => Value::Boolean(is_true),
            Kind::Null => NULL,
            Kind::ObjectBegin => self.object(level + 1)?,
            Kind::ArrayBegin => self.array(level + 1)?,
            _ => return Err(self.unexpected("value", &token)),
        })
    }

    fn check_level(&self, level: usize) -> Result<()> {
        if level <= self.settings.decode_levels_max {
            return Ok(());
        }
        let text =
            format!("Found too many nested data structures ({level}) at character {}", self.at);
        Err(library_error(self.lua, text))
    }

    fn object(&mut self, level: usize) -> Result<Value> {
        self.check_level(level)?;
        let table = self.lua.create_table()?;
        let mut token = self.next()?;
        if matches!(token.kind, Kind::ObjectEnd) {
            return Ok(Value::Table(table));
        }
        loop {
            let Kind::Text(key) = token.kind else {
                return Err(self.unexpected("object key string", &token));
            };
            let colon = self.next()?;
            if !matches!(colon.kind, Kind::Colon) {
                return Err(self.unexpected("colon", &colon));
            }
            let first = self.next()?;
            let value = self.value(first, level)?;
            table.raw_set(self.context.text(self.lua, &key)?, value)?;
            let end = self.next()?;
            match end.kind {
                Kind::ObjectEnd => return Ok(Value::Table(table)),
                Kind::Comma => token = self.next()?,
                _ => return Err(self.unexpected("comma or object end", &end)),
            }
        }
    }

    fn array(&mut self, level: usize) -> Result<Value> {
        self.check_level(level)?;
        let table = self.lua.create_table()?;
        let mut token = self.next()?;
        if matches!(token.kind, Kind::ArrayEnd) {
            return Ok(Value::Table(table));
        }
        for index in 1_i64.. {
            let value = self.value(token, level)?;
            table.raw_set(index, value)?;
            let end = self.next()?;
            match end.kind {
                Kind::ArrayEnd => break,
                Kind::Comma => token = self.next()?,
                _ => return Err(self.unexpected("comma or array end", &end)),
            }
        }
        Ok(Value::Table(table))
    }
}

/// Returns whether a number is one that JSON does not have, such as one in hexadecimal.
fn is_invalid(text: &[u8]) -> bool {
    let begins_with = |text: &[u8], word: &[u8]| {
        text.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word))
    };
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    match unsigned {
        _ if text.first() == Some(&b'+') => true,
        [b'0', b'x' | b'X' | b'0'..=b'9', ..] => true,
        [first, ..] if *first <= b'9' => false,
        rest => begins_with(rest, b"inf") || begins_with(rest, b"nan"),
    }
}
