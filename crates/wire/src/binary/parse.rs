//! Parser: bytes to a request.

use super::{Function, MAGIC, Request, Strings, command};
use crate::limits::{BINARY_ARGUMENT_BYTES_MAX, BINARY_COUNT_MAX, FUNCTION_NAME_BYTES_LIMIT};
use crate::{Invalid, Parse, Stop};

/// Position in the list of a request that is not complete yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Number of complete strings of the list.
    strings: usize,
    /// Length of these strings and their sizes, in bytes.
    bytes: usize,
}

/// Parses the request at the start of `bytes`.
///
/// A size over a limit is refused as soon as it is known, before its string has arrived.
/// `Incomplete` counts every announced byte, so that the caller can refuse a request that is too
/// long for it.
pub fn parse(bytes: &[u8]) -> Parse<Request<'_>> {
    parse_resuming(bytes, &mut Progress::default())
}

/// Parses a request that arrives in pieces. Strings of a list that were parsed before are skipped,
/// so that the work for many strings does not depend on the number of pieces.
///
/// `progress` is a new value for each request, and `bytes` begins with the same bytes each time.
pub fn parse_resuming<'a>(bytes: &'a [u8], progress: &mut Progress) -> Parse<Request<'a>> {
    finish(Reader { bytes, position: 0, progress, is_logged: false })
}

/// Returns whether the request at the start of `bytes` is one of `misc`, as far as it has arrived.
pub fn may_be_misc(bytes: &[u8]) -> bool {
    matches!(bytes, [] | [MAGIC] | [MAGIC, command::MISC, ..])
}

/// Parses a request from an update log, where `misc` has no options.
pub(crate) fn parse_logged(bytes: &[u8]) -> Parse<Request<'_>> {
    finish(Reader { bytes, position: 0, progress: &mut Progress::default(), is_logged: true })
}

fn finish<'a>(mut reader: Reader<'a, '_>) -> Parse<Request<'a>> {
    match request(&mut reader) {
        Ok(request) => Parse::Complete(request, reader.position),
        Err(stop) => stop.into(),
    }
}

fn request<'a>(reader: &mut Reader<'a, '_>) -> Result<Request<'a>, Stop> {
    match reader.bytes.first() {
        None => return Err(Stop::Incomplete(super::COMMAND_BYTES)),
        Some(&MAGIC) => {}
        Some(_) => return Err(Stop::Invalid(Invalid::UnknownCommand)),
    }
    let [_, command] = reader.array()?;
    let request = match command {
        command::PUT => {
            let [key, value] = reader.key_and_value()?;
            Request::Put { key, value }
        }
        command::PUT_KEEP => {
            let [key, value] = reader.key_and_value()?;
            Request::PutKeep { key, value }
        }
        command::PUT_CAT => {
            let [key, value] = reader.key_and_value()?;
            Request::PutCat { key, value }
        }
        command::PUT_SHIFT => {
            let [key, value, width] = reader.read_u32s()?;
            // Widths are signed on the wire, and negative ones are invalid.
            if width > i32::MAX as u32 {
                return Err(Stop::Invalid(Invalid::BadParameters));
            }
            let [key, value] = reader.strings([key, value])?;
            Request::PutShift { key, value, width }
        }
        command::PUT_NO_REPLY => {
            let [key, value] = reader.key_and_value()?;
            Request::PutNoReply { key, value }
        }
        command::OUT => Request::Out { key: reader.lone_string()? },
        command::GET => Request::Get { key: reader.lone_string()? },
        command::GET_MANY => {
            let [count] = reader.read_u32s()?;
            Request::GetMany(reader.list(count, 0)?.1)
        }
        command::VALUE_SIZE => Request::ValueSize { key: reader.lone_string()? },
        command::ITER_INIT => Request::IterInit,
        command::ITER_NEXT => Request::IterNext,
        command::KEYS_WITH_PREFIX => {
            let [prefix, max] = reader.read_u32s()?;
            let [prefix] = reader.strings([prefix])?;
            Request::KeysWithPrefix { prefix, max: max as i32 }
        }
        command::ADD_INT => {
            let [key, addend] = reader.read_u32s()?;
            let [key] = reader.strings([key])?;
            Request::AddInt { key, addend: addend as i32 }
        }
        command::ADD_DOUBLE => {
            let [key, integral_high, integral_low, fractional_high, fractional_low] =
                reader.read_u32s()?;
            let [key] = reader.strings([key])?;
            Request::AddDouble {
                key,
                integral: long(integral_high, integral_low) as i64,
                fractional: long(fractional_high, fractional_low) as i64,
            }
        }
        command::EXT => {
            let [name, options, key, value] = reader.read_u32s()?;
            check_name(name)?;
            let [name, key, value] = reader.strings([name, key, value])?;
            Request::Ext { name, options, key, value }
        }
        command::SYNC => Request::Sync,
        command::OPTIMIZE => Request::Optimize { parameters: reader.lone_string()? },
        command::VANISH => Request::Vanish,
        command::COPY => Request::Copy { path: reader.lone_string()? },
        command::RESTORE => {
            let [path, timestamp_high, timestamp_low, options] = reader.read_u32s()?;
            let [path] = reader.strings([path])?;
            Request::Restore { path, timestamp_us: long(timestamp_high, timestamp_low), options }
        }
        command::SET_MASTER => {
            let [host, port, timestamp_high, timestamp_low, options] = reader.read_u32s()?;
            let [host] = reader.strings([host])?;
            let timestamp_us = long(timestamp_high, timestamp_low);
            Request::SetMaster { host, port, timestamp_us, options }
        }
        command::COUNT => Request::Count,
        command::SIZE => Request::Size,
        command::STAT => Request::Stat,
        command::MISC => {
            let [name, options, count] = if reader.is_logged {
                let [name, count] = reader.read_u32s()?;
                [name, 0, count]
            } else {
                reader.read_u32s()?
            };
            check_name(name)?;
            let (name, arguments) = reader.list(count, name as usize)?;
            Request::Misc { function: Function::from_name(name), options, arguments }
        }
        command::REPLICATE => {
            let [timestamp_high, timestamp_low, server_id] = reader.read_u32s()?;
            Request::Replicate { timestamp_us: long(timestamp_high, timestamp_low), server_id }
        }
        command::FOLLOW => {
            let [timestamp_high, timestamp_low, server_id, options, port] = reader.read_u32s()?;
            let timestamp_us = long(timestamp_high, timestamp_low);
            Request::Follow { timestamp_us, server_id, options, port }
        }
        _ => return Err(Stop::Invalid(Invalid::UnknownCommand)),
    };
    Ok(request)
}

fn long(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn check_name(size: u32) -> Result<(), Stop> {
    if size as usize >= FUNCTION_NAME_BYTES_LIMIT {
        return Err(Stop::Invalid(Invalid::BadParameters));
    }
    Ok(())
}

fn check_size(size: u32) -> Result<usize, Stop> {
    match size as usize {
        size if size <= BINARY_ARGUMENT_BYTES_MAX => Ok(size),
        _ => Err(Stop::Invalid(Invalid::TooLarge)),
    }
}

struct Reader<'a, 'p> {
    bytes: &'a [u8],
    position: usize,
    progress: &'p mut Progress,
    /// Whether the request is in an update log.
    is_logged: bool,
}

impl<'a> Reader<'a, '_> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Stop> {
        // Sizes are at most a few times 2^28, so this cannot overflow.
        let end = self.position + count;
        let taken = self.bytes.get(self.position..end).ok_or(Stop::Incomplete(end))?;
        self.position = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let end = self.position + N;
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let array = rest.first_chunk().ok_or(Stop::Incomplete(end))?;
        self.position = end;
        Ok(*array)
    }

    /// Reads the fixed numbers of a request at once: none is usable before all have arrived.
    fn read_u32s<const N: usize>(&mut self) -> Result<[u32; N], Stop> {
        let bytes = self.take(N * 4)?;
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u32::from_be_bytes(*bytes);
        }
        Ok(words)
    }

    fn strings<const N: usize>(&mut self, sizes: [u32; N]) -> Result<[&'a [u8]; N], Stop> {
        let mut total = 0;
        for size in sizes {
            total += check_size(size)?;
        }
        let mut bytes = self.take(total)?;
        Ok(sizes.map(|size| {
            let (string, rest) = bytes.split_at(size as usize);
            bytes = rest;
            string
        }))
    }

    fn lone_string(&mut self) -> Result<&'a [u8], Stop> {
        let [size] = self.read_u32s()?;
        let [string] = self.strings([size])?;
        Ok(string)
    }

    fn key_and_value(&mut self) -> Result<[&'a [u8]; 2], Stop> {
        let [key, value] = self.read_u32s()?;
        self.strings([key, value])
    }

    /// Reads a name of `name_bytes`, then `count` strings, each after its size. Missing strings
    /// count as empty.
    fn list(&mut self, count: u32, name_bytes: usize) -> Result<(&'a [u8], Strings<'a>), Stop> {
        let count = count as usize;
        if count > BINARY_COUNT_MAX {
            return Err(Stop::Invalid(Invalid::TooLarge));
        }
        if self.bytes.len() < self.position + name_bytes + 4 * count {
            // Sizes that are out of range may have arrived already. The next call reports them.
            return Err(Stop::Incomplete(self.position + name_bytes + 4 * count));
        }
        let name = self.take(name_bytes)?;
        let start = self.position;
        self.take(self.progress.bytes)?;
        for left in (0..count.saturating_sub(self.progress.strings)).rev() {
            let step = self.array().and_then(|size| {
                let size = check_size(u32::from_be_bytes(size))?;
                self.take(size)
            });
            if let Err(Stop::Incomplete(needed)) = step {
                return Err(Stop::Incomplete(needed + 4 * left));
            }
            step?;
            self.progress.strings += 1;
            self.progress.bytes = self.position - start;
        }
        Ok((name, Strings::checked(count, &self.bytes[start..self.position])))
    }
}
