//! `struct`: numbers and texts as bytes, by a format, as of Lua's library `struct`.
//!
//! | letter | value |
//! |---|---|
//! | `b`, `B`, `h`, `H`, `l`, `L`, `T` | whole number of 1, 2 or 8 bytes, with a sign or without |
//! | `iN`, `IN` | whole number of N bytes, 4 without N |
//! | `f`, `d` | float of 4 or 8 bytes |
//! | `cN`, `s` | N bytes; bytes and a zero |
//! | `x`, `<`, `>`, `!N` | a zero byte; the order of bytes; the alignment |

use super::errors::{Arguments, argument_error, library_error, truncated};
use crate::context::Context;
use crate::functions::Installer;
use crate::output::Output;
use crate::pace::{ELEMENT_UNITS, Pace};
use mlua::{Lua, LuaString, MultiValue, Result, Value};

/// Largest whole number, in bytes.
const INTEGER_BYTES_MAX: usize = 32;

/// Largest size or alignment in a format.
const SIZE_MAX: usize = i32::MAX as usize;

/// Alignment of `!` without a number.
const ALIGNMENT: usize = 8;

/// Zeros of an alignment are written in pieces of at most so many.
const ZEROS: [u8; 64] = [0; 64];

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add_short("pack", pack)?;
    installer.add_short("unpack", unpack)?;
    installer.add_short("size", size)
}

/// A format that is read from its beginning on.
struct Format<'l> {
    lua: &'l Lua,
    letters: Vec<u8>,
    at: usize,
    is_big: bool,
    alignment: usize,
}

/// A letter of a format, with the size of its value, and the zeros before it.
struct Part {
    letter: u8,
    size: usize,
    padding: usize,
}

impl<'l> Format<'l> {
    fn new(lua: &'l Lua, letters: &[u8]) -> Self {
        let end = letters.iter().position(|byte| *byte == 0).unwrap_or(letters.len());
        let is_big = cfg!(target_endian = "big");
        Self { lua, letters: letters[..end].to_vec(), at: 0, is_big, alignment: 1 }
    }

    fn number_or(&mut self, absent: usize) -> Result<usize> {
        let digits = self.letters[self.at..].iter().take_while(|byte| byte.is_ascii_digit());
        let digits = digits.count();
        if digits == 0 {
            return Ok(absent);
        }
        let text = std::str::from_utf8(&self.letters[self.at..self.at + digits]);
        self.at += digits;
        let number = text.ok().and_then(|text| text.parse().ok());
        let number = number.filter(|number| *number < SIZE_MAX);
        number.ok_or_else(|| library_error(self.lua, "integral size overflow"))
    }

    /// Returns the size of a letter's value; 0 for one that is unknown, too.
    fn size_of(&mut self, letter: u8) -> Result<usize> {
        Ok(match letter {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.number_or(1)?,
            b'i' | b'I' => {
                let size = self.number_or(4)?;
                if size > INTEGER_BYTES_MAX {
                    let text =
                        format!("integral size {size} is larger than limit of {INTEGER_BYTES_MAX}");
                    return Err(library_error(self.lua, text));
                }
                size
            }
            _ => 0,
        })
    }

    /// Returns the next part after so many bytes; `None` at the end. [`Self::apply`] follows one
    /// that has no value.
    fn next(&mut self, bytes: usize) -> Result<Option<Part>> {
        let Some(letter) = self.letters.get(self.at).copied() else { return Ok(None) };
        self.at += 1;
        let size = self.size_of(letter)?;
        let padding = match size {
            0 => 0,
            _ if letter == b'c' => 0,
            size => {
                let size = size.min(self.alignment);
                size.wrapping_sub(bytes & size.wrapping_sub(1)) & size.wrapping_sub(1)
            }
        };
        Ok(Some(Part { letter, size, padding }))
    }

    /// Changes the format as a letter says that is about the parts after it. Fails if there is no
    /// such letter.
    fn apply(&mut self, letter: u8) -> Result<()> {
        match letter {
            b'<' => self.is_big = false,
            b'>' => self.is_big = true,
            b'!' => {
                let alignment = self.number_or(ALIGNMENT)?;
                if !alignment.is_power_of_two() {
                    let text = format!("alignment {alignment} is not a power of 2");
                    return Err(library_error(self.lua, text));
                }
                self.alignment = alignment;
            }
            b' ' => {}
            letter => {
                let text = format!("invalid format option '{}'", char::from(letter));
                return Err(argument_error(self.lua, 1, &text));
            }
        }
        Ok(())
    }

    /// Returns bytes in the order of the format, from the lowest one.
    fn ordered<const N: usize>(&self, mut bytes: [u8; N]) -> [u8; N] {
        if self.is_big {
            bytes.reverse();
        }
        bytes
    }
}

fn pack(lua: &Lua, context: &Context, values: MultiValue) -> Result<LuaString> {
    let arguments = Arguments::new(lua, values);
    let mut format = Format::new(lua, &arguments.text(1)?.as_bytes());
    let mut output = Output::new(lua, context);
    let (mut place, mut bytes) = (2, 0_usize);
    while let Some(Part { letter, mut size, padding }) = format.next(bytes)? {
        let mut zeros = padding;
        while zeros > 0 {
            output.push(&ZEROS[..zeros.min(ZEROS.len())])?;
            zeros -= zeros.min(ZEROS.len());
        }
        match letter {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                output.push(&integer_bytes(arguments.number(place)?, size, format.is_big))?;
                place += 1;
            }
            b'x' => output.push(b"\0")?,
            b'f' => {
                output.push(&format.ordered((arguments.number(place)? as f32).to_le_bytes()))?;
                place += 1;
            }
            b'd' => {
                output.push(&format.ordered(arguments.number(place)?.to_le_bytes()))?;
                place += 1;
            }
            b'c' | b's' => {
                let text = arguments.text(place)?;
                let text = text.as_bytes();
                place += 1;
                if size == 0 {
                    size = text.len();
                }
                let Some(part) = text.get(..size) else {
                    return Err(argument_error(lua, place, "string too short"));
                };
                output.push(part)?;
                if letter == b's' {
                    output.push(b"\0")?;
                    size += 1;
                }
            }
            _ => format.apply(letter)?,
        }
        bytes += padding + size;
    }
    output.create()
}

/// Returns the lowest bytes of a whole number. Those beyond 64 bits are zeros.
fn integer_bytes(number: f64, size: usize, is_big: bool) -> Vec<u8> {
    const I64_END: f64 = 9_223_372_036_854_775_808.0;
    let value = if number < I64_END { truncated(number) as u64 } else { number as u64 };
    let value = if number >= 2.0 * I64_END { 0 } else { value };
    let mut bytes = vec![0; size];
    for (byte, given) in bytes.iter_mut().zip(value.to_le_bytes()) {
        *byte = given;
    }
    if is_big {
        bytes.reverse();
    }
    bytes
}

/// Returns the whole number of bytes, of which those beyond 64 bits count for nothing.
fn integer_of(bytes: &[u8], is_signed: bool, is_big: bool) -> f64 {
    let mut value = 0_u64;
    let add = |value: &mut u64, (place, byte): (usize, &u8)| {
        if place < 8 {
            *value |= u64::from(*byte) << (8 * place);
        }
    };
    match is_big {
        true => bytes.iter().rev().enumerate().for_each(|part| add(&mut value, part)),
        false => bytes.iter().enumerate().for_each(|part| add(&mut value, part)),
    }
    if !is_signed {
        return value as f64;
    }
    let unused = 64_usize.saturating_sub(8 * bytes.len());
    (((value << unused.min(63)) as i64) >> unused.min(63)) as f64
}

fn unpack(lua: &Lua, context: &Context, values: MultiValue) -> Result<MultiValue> {
    let arguments = Arguments::new(lua, values);
    let mut format = Format::new(lua, &arguments.text(1)?.as_bytes());
    let data = arguments.text(2)?;
    let data = data.as_bytes();
    let from = arguments.integer_or(3, 1)?;
    if from == 0 {
        return Err(argument_error(lua, 3, "offset must be 1 or greater"));
    }
    // A negative one is beyond all data.
    let mut at = usize::try_from(from).map_or(usize::MAX, |from| from - 1);
    let mut pace = Pace::new(lua, context);
    let mut results: Vec<Value> = Vec::new();
    let too_short = || argument_error(lua, 2, "data string too short");
    while let Some(Part { letter, mut size, padding }) = format.next(at)? {
        pace.work(ELEMENT_UNITS)?;
        at = at.checked_add(padding).ok_or_else(too_short)?;
        let rest = data.get(at..).ok_or_else(too_short)?;
        let bytes = rest.get(..size).ok_or_else(too_short)?;
        match letter {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let is_signed = letter.is_ascii_lowercase();
                results.push(Value::Number(integer_of(bytes, is_signed, format.is_big)));
            }
            b'f' => {
                let bytes = format.ordered(bytes.try_into().map_err(|_| too_short())?);
                results.push(Value::Number(f32::from_le_bytes(bytes).into()));
            }
            b'd' => {
                let bytes = format.ordered(bytes.try_into().map_err(|_| too_short())?);
                results.push(Value::Number(f64::from_le_bytes(bytes)));
            }
            b'c' => {
                if size == 0 {
                    let before = match results.pop() {
                        Some(Value::Number(number)) => number,
                        _ => return Err(library_error(lua, "format 'c0' needs a previous size")),
                    };
                    size = usize::try_from(truncated(before)).map_err(|_| too_short())?;
                }
                let text = rest.get(..size).ok_or_else(too_short)?;
                results.push(Value::String(context.text(lua, text)?));
            }
            b's' => {
                let Some(end) = memchr::memchr(0, rest) else {
                    return Err(library_error(lua, "unfinished string in data"));
                };
                size = end + 1;
                results.push(Value::String(context.text(lua, &rest[..end])?));
            }
            b'x' => {}
            // As in Redis, there must be data for a letter before it counts.
            _ => format.apply(letter)?,
        }
        at += size;
        super::check_results(lua, results.len())?;
    }
    results.push(Value::Number(at.saturating_add(1) as f64));
    Ok(results.into_iter().collect())
}

fn size(lua: &Lua, _: &Context, values: MultiValue) -> Result<f64> {
    let arguments = Arguments::new(lua, values);
    let mut format = Format::new(lua, &arguments.text(1)?.as_bytes());
    let mut bytes = 0_usize;
    while let Some(Part { letter, size, padding }) = format.next(bytes)? {
        match (letter, size) {
            (b's', _) => return Err(argument_error(lua, 1, "option 's' has no fixed size")),
            (b'c', 0) => return Err(argument_error(lua, 1, "option 'c0' has no fixed size")),
            _ if !letter.is_ascii_alphanumeric() => format.apply(letter)?,
            _ => {}
        }
        bytes = bytes.saturating_add(padding + size);
    }
    Ok(bytes as f64)
}
