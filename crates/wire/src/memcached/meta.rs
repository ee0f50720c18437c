//! Meta commands: two letters, a key, and flags of one letter with or without a token.

use super::tokens::next;
use super::{Error, MetaVerb as Verb};
use crate::limits::{
    MEMCACHED_KEY_BYTES_MAX, MEMCACHED_VALUE_BYTES_MAX, META_FLAGS_MAX, META_OPAQUE_BYTES_MAX,
};
use crate::{base64, decimal};

/// Verb of a meta command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVerb {
    /// `mg`.
    Get,
    /// `ms`.
    Set,
    /// `md`.
    Delete,
    /// `ma`.
    Arithmetic,
}

/// Mode of `ms`: condition and operation of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetaMode {
    /// Store unconditionally.
    #[default]
    Set,
    /// Store if the record is missing.
    Add,
    /// Store if the record is present.
    Replace,
    /// Append to the present value.
    Append,
    /// Prepend to the present value.
    Prepend,
}

/// Mode of `ma`: operation on the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArithmeticMode {
    /// Add, modulo 2^64.
    #[default]
    Increment,
    /// Subtract, down to 0.
    Decrement,
}

/// Key as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaKey<'a> {
    /// The token.
    pub token: &'a [u8],
    /// Whether the token is the key in base64, which has been validated.
    pub is_base64: bool,
}

/// Meta command. A field is `None` if its flag was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// Verb of the command.
    pub verb: MetaVerb,
    /// The key.
    pub key: MetaKey<'a>,
    /// The flags in order, for the reply.
    pub flags: MetaFlags<'a>,
    /// `q`: suppress the most expected reply.
    pub is_quiet: bool,
    /// `v`: return the value.
    pub wants_value: bool,
    /// `C`: cas number that the record must have.
    pub compare: Option<u64>,
    /// `E`: cas number that the record gets.
    pub assign: Option<u64>,
    /// `F`: flags of the client.
    pub client_flags: u32,
    /// `I`: mark the record as stale, or accept an older cas number.
    pub invalidate: bool,
    /// `x`: remove only the value.
    pub removes_value: bool,
    /// `u`: do not record the access.
    pub leaves_no_trace: bool,
    /// `T`: expiry, as in the classic commands.
    pub exptime: Option<i64>,
    /// `N`: create a missing record, with this expiry.
    pub vivify: Option<i64>,
    /// `R`: remaining seconds below which the client should refresh the record.
    pub recache: Option<i64>,
    /// `D`: amount that `ma` adds or subtracts.
    pub delta: u64,
    /// `J`: initial value of `ma`.
    pub initial: u64,
    /// `M` of `ms`.
    pub mode: MetaMode,
    /// `M` of `ma`.
    pub arithmetic: ArithmeticMode,
    /// The data of `ms`.
    pub value: &'a [u8],
}

/// Iterator over the flags of a command, each with its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaFlags<'a> {
    line: &'a [u8],
}

impl<'a> Iterator for MetaFlags<'a> {
    type Item = (u8, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        next(&mut self.line).and_then(|token| token.split_first()).map(|(flag, rest)| (*flag, rest))
    }
}

impl<'a> MetaKey<'a> {
    /// Returns the decoded key, in `buffer` if it was sent in base64.
    pub fn bytes<'b>(&self, buffer: &'b mut [u8; MEMCACHED_KEY_BYTES_MAX]) -> &'b [u8]
    where
        'a: 'b,
    {
        if self.is_base64 {
            // The parser has validated it.
            base64::decode(self.token, buffer).unwrap_or_default()
        } else {
            self.token
        }
    }

    fn check(self) -> Result<Self, Error> {
        if self.token.len() > MEMCACHED_KEY_BYTES_MAX {
            return Err(Error::BadLine);
        }
        if self.is_base64 && base64::decode(self.token, &mut [0; MEMCACHED_KEY_BYTES_MAX]).is_none()
        {
            return Err(Error::BadBase64);
        }
        Ok(self)
    }
}

/// Parses the line of `ms` after the verb. Returns it with its length of data. An error before that
/// length is reported at once, a later one after the data have been consumed.
pub(super) struct SetLine<'a> {
    pub(super) size: usize,
    pub(super) meta: Result<Meta<'a>, Error>,
}

pub(super) fn set(mut line: &[u8]) -> Result<SetLine<'_>, Error> {
    let token = next(&mut line).ok_or(Error::BadLine)?;
    let key = MetaKey { token, is_base64: false }.check()?;
    let size = next(&mut line).ok_or(Error::BadLine)?;
    let (count, meta) = meta(Verb::Set, key, line);
    // The length counts as one of the tokens.
    if count >= META_FLAGS_MAX {
        return Err(Error::TooManyFlags);
    }
    let size = decimal::signed(size).and_then(|size| usize::try_from(size).ok());
    let size = size.filter(|size| *size <= MEMCACHED_VALUE_BYTES_MAX).ok_or(Error::BadLine)?;
    Ok(SetLine { size, meta })
}

/// Parses the other commands, after the verb.
pub(super) fn parse(verb: MetaVerb, mut line: &[u8]) -> Result<Meta<'_>, Error> {
    let token = next(&mut line).ok_or(Error::BadLine)?;
    let key = MetaKey { token, is_base64: false }.check()?;
    let (count, meta) = meta(verb, key, line);
    if count > META_FLAGS_MAX {
        return Err(match verb {
            Verb::Get => Error::TooManyFlagsOfGet,
            _ => Error::TooManyFlags,
        });
    }
    meta
}

/// Parses `me`, after the verb.
pub(super) fn debug(mut line: &[u8]) -> Result<MetaKey<'_>, Error> {
    let token = next(&mut line).ok_or(Error::BadLine)?;
    MetaKey { token, is_base64: next(&mut line) == Some(b"b") }.check().map_err(|_| Error::BadLine)
}

/// Returns the number of flags, and the command unless one of them is wrong.
fn meta<'a>(verb: MetaVerb, key: MetaKey<'a>, line: &'a [u8]) -> (usize, Result<Meta<'a>, Error>) {
    let mut meta = Meta {
        verb,
        key,
        flags: MetaFlags { line },
        is_quiet: false,
        wants_value: false,
        compare: None,
        assign: None,
        client_flags: 0,
        invalidate: false,
        removes_value: false,
        leaves_no_trace: false,
        exptime: None,
        vivify: None,
        recache: None,
        delta: 1,
        initial: 0,
        mode: MetaMode::Set,
        arithmetic: ArithmeticMode::Increment,
        value: &[],
    };
    let (mut count, mut seen) = (0, 0u128);
    // An unknown or repeated flag takes precedence over any token, and the first one of them. Among
    // wrong tokens the last takes precedence, one of `F` only if there is no other.
    let (mut unknown, mut fault) = (None, None);
    let (mut opaque, mut mode): (&[u8], _) = (&[], None);
    for (flag, token) in meta.flags {
        count += 1;
        let bit = 1 << (flag & 0x7f);
        if !FLAG_RANGE.contains(&flag) {
            return (count, Err(Error::BadLine));
        }
        if !is_known(verb, flag) {
            unknown = unknown.or(Some(Error::InvalidFlag));
        } else if seen & bit != 0 {
            unknown = unknown.or(Some(Error::DuplicateFlag));
        }
        seen |= bit;
        match flag {
            b'O' => opaque = token,
            b'M' => mode = token.first(),
            _ => {}
        }
        match take(&mut meta, flag, token) {
            Ok(()) => {}
            Err(error @ Error::BadLine) => fault = fault.or(Some(error)),
            Err(error) => fault = Some(error),
        }
    }
    let result = match unknown.or(fault) {
        None => take_mode(&mut meta, mode),
        Some(error) if matches!(verb, Verb::Get | Verb::Set) => Err(error),
        Some(_) => Err(Error::InvalidOrDuplicateFlag),
    };
    let is_short = opaque.len() <= META_OPAQUE_BYTES_MAX;
    let result = result.and(if is_short { Ok(meta) } else { Err(Error::OpaqueTooLong) });
    (count, result)
}

/// Bytes that memcached accepts as the letter of a flag.
const FLAG_RANGE: std::ops::RangeInclusive<u8> = b'A'..=b'z';

/// Returns whether a command accepts a flag. All commands accept the flags of all, except `E` and
/// `x` of later versions, which are accepted only if they have a meaning.
fn is_known(verb: MetaVerb, flag: u8) -> bool {
    match flag {
        b'x' => verb == Verb::Delete,
        flag => b"bcfhklqstuvCDEFIJLMNOPRT".contains(&flag),
    }
}

/// Sets the mode. memcached checks it after all flags.
fn take_mode(meta: &mut Meta<'_>, mode: Option<&u8>) -> Result<(), Error> {
    match (meta.verb, mode) {
        (Verb::Set, Some(mode)) => {
            meta.mode = match mode {
                b'S' => MetaMode::Set,
                b'E' => MetaMode::Add,
                b'R' => MetaMode::Replace,
                b'A' => MetaMode::Append,
                b'P' => MetaMode::Prepend,
                _ => return Err(Error::BadSetMode),
            };
        }
        (Verb::Arithmetic, Some(mode)) => {
            meta.arithmetic = match mode {
                b'I' | b'+' => ArithmeticMode::Increment,
                b'D' | b'-' => ArithmeticMode::Decrement,
                _ => return Err(Error::BadArithmeticMode),
            };
        }
        _ => {}
    }
    Ok(())
}

fn take(meta: &mut Meta<'_>, flag: u8, token: &[u8]) -> Result<(), Error> {
    let seconds = || decimal::low_32_bits_signed(token).ok_or(Error::BadToken);
    let number = || decimal::unsigned_with_plus(token);
    match flag {
        b'b' => {
            meta.key.is_base64 = true;
            meta.key = meta.key.check()?;
        }
        b'q' => meta.is_quiet = true,
        b'v' => meta.wants_value = true,
        b'u' => meta.leaves_no_trace = true,
        b'I' => meta.invalidate = true,
        b'x' => meta.removes_value = true,
        b'C' => meta.compare = Some(number().ok_or(Error::BadToken)?),
        b'E' => meta.assign = Some(number().ok_or(Error::BadToken)?),
        b'T' => meta.exptime = Some(seconds()?),
        b'N' => meta.vivify = Some(seconds()?),
        b'R' => meta.recache = Some(seconds()?),
        b'F' => meta.client_flags = decimal::low_32_bits(token).ok_or(Error::BadLine)?,
        b'D' => meta.delta = number().ok_or(Error::BadDeltaToken)?,
        b'J' => meta.initial = number().ok_or(Error::BadInitialToken)?,
        b'M' if token.len() != 1 => return Err(Error::BadModeLength),
        _ => {}
    }
    Ok(())
}
