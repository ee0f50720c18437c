//! Encoder: a request to bytes.

use super::{MAGIC, Request, Strings, command};
use crate::Invalid;
use crate::limits::{BINARY_ARGUMENT_BYTES_MAX, FUNCTION_NAME_BYTES_LIMIT};

/// Appends a request to `out`, as [`parse`](super::parse()) reads it.
///
/// Requests that `parse` would refuse are refused here too, with `out` as it was: strings beyond
/// [`BINARY_ARGUMENT_BYTES_MAX`], function names of [`FUNCTION_NAME_BYTES_LIMIT`] or more, widths
/// beyond `i32::MAX`.
pub fn encode(request: &Request<'_>, out: &mut Vec<u8>) -> Result<(), Invalid> {
    let mut writer = Writer { out };
    match *request {
        Request::Put { key, value } => writer.strings(command::PUT, &[], [key, value]),
        Request::PutKeep { key, value } => writer.strings(command::PUT_KEEP, &[], [key, value]),
        Request::PutCat { key, value } => writer.strings(command::PUT_CAT, &[], [key, value]),
        Request::PutShift { key, value, width } => {
            if width > i32::MAX as u32 {
                return Err(Invalid::BadParameters);
            }
            writer.strings(command::PUT_SHIFT, &[width], [key, value])
        }
        Request::PutNoReply { key, value } => {
            writer.strings(command::PUT_NO_REPLY, &[], [key, value])
        }
        Request::Out { key } => writer.strings(command::OUT, &[], [key]),
        Request::Get { key } => writer.strings(command::GET, &[], [key]),
        Request::GetMany(keys) => {
            writer.command(command::GET_MANY);
            writer.words(&[keys.len() as u32]);
            writer.list(keys);
            Ok(())
        }
        Request::ValueSize { key } => writer.strings(command::VALUE_SIZE, &[], [key]),
        Request::IterInit => writer.lone(command::ITER_INIT),
        Request::IterNext => writer.lone(command::ITER_NEXT),
        Request::KeysWithPrefix { prefix, max } => {
            writer.strings(command::KEYS_WITH_PREFIX, &[max as u32], [prefix])
        }
        Request::AddInt { key, addend } => {
            writer.strings(command::ADD_INT, &[addend as u32], [key])
        }
        Request::AddDouble { key, integral, fractional } => {
            let [integral_high, integral_low] = halves(integral as u64);
            let [fractional_high, fractional_low] = halves(fractional as u64);
            let words = [integral_high, integral_low, fractional_high, fractional_low];
            writer.strings(command::ADD_DOUBLE, &words, [key])
        }
        Request::Ext { name, options, key, value } => {
            check_name(name)?;
            check_sizes(&[key, value])?;
            writer.command(command::EXT);
            writer.words(&[name.len() as u32, options, key.len() as u32, value.len() as u32]);
            writer.bytes(&[name, key, value]);
            Ok(())
        }
        Request::Sync => writer.lone(command::SYNC),
        Request::Optimize { parameters } => writer.strings(command::OPTIMIZE, &[], [parameters]),
        Request::Vanish => writer.lone(command::VANISH),
        Request::Copy { path } => writer.strings(command::COPY, &[], [path]),
        Request::Restore { path, timestamp_us, options } => {
            let [high, low] = halves(timestamp_us);
            writer.strings(command::RESTORE, &[high, low, options], [path])
        }
        Request::SetMaster { host, port, timestamp_us, options } => {
            let [high, low] = halves(timestamp_us);
            writer.strings(command::SET_MASTER, &[port, high, low, options], [host])
        }
        Request::Count => writer.lone(command::COUNT),
        Request::Size => writer.lone(command::SIZE),
        Request::Stat => writer.lone(command::STAT),
        Request::Misc { function, options, arguments } => {
            let name = function.name();
            writer.misc(name, &[name.len() as u32, options, arguments.len() as u32], arguments)
        }
        Request::Replicate { timestamp_us, server_id } => {
            let [high, low] = halves(timestamp_us);
            writer.command(command::REPLICATE);
            writer.words(&[high, low, server_id]);
            Ok(())
        }
        Request::Follow { timestamp_us, server_id, options, port } => {
            let [high, low] = halves(timestamp_us);
            writer.command(command::FOLLOW);
            writer.words(&[high, low, server_id, options, port]);
            Ok(())
        }
    }
}

/// Encodes a request for an update log, where `misc` has no options.
pub(crate) fn encode_logged(request: &Request<'_>, out: &mut Vec<u8>) -> Result<(), Invalid> {
    match *request {
        Request::Misc { function, options: _, arguments } => {
            let name = function.name();
            let mut writer = Writer { out };
            writer.misc(name, &[name.len() as u32, arguments.len() as u32], arguments)
        }
        _ => encode(request, out),
    }
}

fn halves(long: u64) -> [u32; 2] {
    [(long >> 32) as u32, long as u32]
}

fn check_name(name: &[u8]) -> Result<(), Invalid> {
    if name.len() >= FUNCTION_NAME_BYTES_LIMIT {
        return Err(Invalid::BadParameters);
    }
    Ok(())
}

fn check_sizes(strings: &[&[u8]]) -> Result<(), Invalid> {
    if strings.iter().any(|string| string.len() > BINARY_ARGUMENT_BYTES_MAX) {
        return Err(Invalid::TooLarge);
    }
    Ok(())
}

struct Writer<'o> {
    out: &'o mut Vec<u8>,
}

impl Writer<'_> {
    fn command(&mut self, command: u8) {
        self.out.extend_from_slice(&[MAGIC, command]);
    }

    fn words(&mut self, words: &[u32]) {
        for word in words {
            self.out.extend_from_slice(&word.to_be_bytes());
        }
    }

    fn bytes(&mut self, strings: &[&[u8]]) {
        for string in strings {
            self.out.extend_from_slice(string);
        }
    }

    fn list(&mut self, list: Strings<'_>) {
        self.out.extend_from_slice(list.as_bytes());
    }

    fn misc(&mut self, name: &[u8], words: &[u32], arguments: Strings<'_>) -> Result<(), Invalid> {
        check_name(name)?;
        self.command(command::MISC);
        self.words(words);
        self.bytes(&[name]);
        self.list(arguments);
        Ok(())
    }

    fn lone(&mut self, command: u8) -> Result<(), Invalid> {
        self.command(command);
        Ok(())
    }

    /// Appends the common layout: sizes of the strings, other numbers, the strings.
    fn strings<const N: usize>(
        &mut self,
        command: u8,
        words: &[u32],
        strings: [&[u8]; N],
    ) -> Result<(), Invalid> {
        check_sizes(&strings)?;
        self.command(command);
        self.words(&strings.map(|string| string.len() as u32));
        self.words(words);
        self.bytes(&strings);
        Ok(())
    }
}
