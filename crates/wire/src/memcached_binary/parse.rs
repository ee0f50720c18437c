//! Parser: bytes to a request.

use super::{Arithmetic, Command, Echo, HEADER_BYTES, MAGIC, Mode, Request, opcode};
use crate::limits::MEMCACHED_KEY_BYTES_MAX;
use crate::{Invalid, Parse};

/// Expiry of increment and decrement that means: create no record.
const CREATE_NOTHING: u32 = u32::MAX;

/// Parses the request at the start of `bytes`.
///
/// A faulty request is reported as soon as its header has arrived, by [`Command::BadLengths`] or
/// [`Command::Malformed`]. `Incomplete` counts the announced body, up to 4 GiB, so that the caller
/// can refuse a request that is too long for it.
#[inline]
pub fn parse(bytes: &[u8]) -> Parse<Request<'_>> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return match bytes.first() {
            None | Some(&MAGIC) => Parse::Incomplete(HEADER_BYTES),
            Some(_) => Parse::Invalid(Invalid::UnknownCommand),
        };
    };
    let &[MAGIC, sent_opcode, _, _, extras_bytes, ..] = header else {
        return Parse::Invalid(Invalid::UnknownCommand);
    };
    let sizes = Sizes {
        extras: extras_bytes.into(),
        key: u16::from_be_bytes([header[2], header[3]]).into(),
        body: u32_at(header, 8) as usize,
    };
    let (opcode, is_quiet) = opcode::without_quiet(sent_opcode);
    let request = |command| Request {
        echo: Echo { opcode: sent_opcode, opaque: u32_at(header, 12).to_be_bytes() },
        is_quiet,
        compare: Some(u64_at(header, 16)).filter(|number| *number != 0),
        command,
    };
    if sizes.extras + sizes.key > sizes.body {
        return Parse::Complete(request(Command::BadLengths), HEADER_BYTES);
    }
    if !sizes.fit(opcode) {
        return Parse::Complete(request(Command::Malformed), HEADER_BYTES);
    }
    let length = HEADER_BYTES + sizes.body;
    let Some(body) = rest.get(..sizes.body) else { return Parse::Incomplete(length) };
    let (extras, body) = body.split_at(sizes.extras);
    let (key, value) = body.split_at(sizes.key);
    Parse::Complete(request(command(opcode, extras, key, value)), length)
}

/// Lengths of the parts of a request, in bytes.
#[derive(Clone, Copy)]
struct Sizes {
    extras: usize,
    key: usize,
    /// All parts.
    body: usize,
}

impl Sizes {
    /// Returns whether the command has parts of these lengths.
    #[inline]
    fn fit(self, opcode: u8) -> bool {
        let Self { extras, key, body } = self;
        let has_value = body > extras + key;
        if key > MEMCACHED_KEY_BYTES_MAX {
            return false;
        }
        match opcode {
            opcode::GET | opcode::GET_KEY | opcode::DELETE => key > 0 && extras == 0 && !has_value,
            opcode::SET | opcode::ADD | opcode::REPLACE => key > 0 && extras == 8,
            opcode::APPEND | opcode::PREPEND => key > 0 && extras == 0,
            opcode::SASL_AUTHENTICATE | opcode::SASL_STEP => key > 0 && extras == 0,
            opcode::INCREMENT | opcode::DECREMENT => key > 0 && extras == 20 && !has_value,
            opcode::TOUCH | opcode::GET_AND_TOUCH | opcode::GET_KEY_AND_TOUCH => {
                key > 0 && extras == 4 && !has_value
            }
            opcode::FLUSH => key == 0 && matches!(extras, 0 | 4) && !has_value,
            opcode::VERBOSITY => key == 0 && extras == 4 && !has_value,
            opcode::STAT => extras == 0 && !has_value,
            opcode::NO_OP | opcode::VERSION | opcode::QUIT | opcode::SASL_MECHANISMS => body == 0,
            _ => true,
        }
    }
}

/// Returns the command of parts whose lengths have been checked.
#[inline]
fn command<'a>(opcode: u8, extras: &[u8], key: &'a [u8], value: &'a [u8]) -> Command<'a> {
    match opcode {
        opcode::GET => Command::Get { key, wants_key: false },
        opcode::GET_KEY => Command::Get { key, wants_key: true },
        opcode::SET => store(Mode::Set, extras, key, value),
        opcode::ADD => store(Mode::Add, extras, key, value),
        opcode::REPLACE => store(Mode::Replace, extras, key, value),
        opcode::APPEND => Command::Append { key, value },
        opcode::PREPEND => Command::Prepend { key, value },
        opcode::DELETE => Command::Delete { key },
        opcode::INCREMENT => Command::Increment(arithmetic(extras, key)),
        opcode::DECREMENT => Command::Decrement(arithmetic(extras, key)),
        opcode::TOUCH => Command::Touch { key, expiry: u32_at(extras, 0) },
        opcode::GET_AND_TOUCH => {
            Command::GetAndTouch { key, expiry: u32_at(extras, 0), wants_key: false }
        }
        opcode::GET_KEY_AND_TOUCH => {
            Command::GetAndTouch { key, expiry: u32_at(extras, 0), wants_key: true }
        }
        opcode::FLUSH => Command::Flush { delay: u32_at(extras, 0) },
        opcode::NO_OP => Command::NoOp,
        opcode::VERSION => Command::Version,
        opcode::STAT => Command::Stat { argument: key },
        opcode::VERBOSITY => Command::Verbosity,
        opcode::QUIT => Command::Quit,
        opcode::SASL_MECHANISMS => Command::SaslMechanisms,
        opcode::SASL_AUTHENTICATE => Command::SaslAuthenticate { mechanism: key, data: value },
        opcode::SASL_STEP => Command::SaslStep { mechanism: key, data: value },
        _ => Command::Unknown,
    }
}

fn store<'a>(mode: Mode, extras: &[u8], key: &'a [u8], value: &'a [u8]) -> Command<'a> {
    Command::Store { mode, key, flags: u32_at(extras, 0), expiry: u32_at(extras, 4), value }
}

fn arithmetic<'a>(extras: &[u8], key: &'a [u8]) -> Arithmetic<'a> {
    let expiry = u32_at(extras, 16);
    let create = (expiry != CREATE_NOTHING).then(|| (u64_at(extras, 8), expiry));
    Arithmetic { key, amount: u64_at(extras, 0), create }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

/// Returns the number at an offset, 0 if there is none.
#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}
