//! Commands on the bits of values: bit 0 is the highest of the first byte.

use super::remove::remove_unmasked;
use super::room::{Growth, SLOW_BYTES_MIN};
use super::transaction::{atomically, check_keys};
use super::{
    COPIES, Decision, Failed, NO_INTEGER, NO_ROOM, SYNTAX, change, integer, parts, read, reply,
    value_to_change, wait_if_long,
};
use crate::counters::Count;
use crate::ops::budget::Charge;
use crate::ops::conditional::Presence;
use crate::ops::execute::NoReply;
use crate::ops::long::LONG_BYTES_MIN;
use crate::ops::operation::Operation;
use crate::protocol::{Context, Halt};
use wire::limits::REDIS_STRING_BYTES_MAX;
use wire::redis::{Arguments, ArgumentsIter};

/// Returns the place of a bit, which is in the longest value or before.
pub(super) fn bit_place(text: &[u8]) -> Result<usize, Failed> {
    integer(text).and_then(checked_bit_place).ok_or_else(|| BAD_PLACE.into())
}

/// Returns the place of a bit that is in the longest value or before.
pub(super) fn checked_bit_place(place: i64) -> Option<usize> {
    usize::try_from(place).ok().filter(|place| place / 8 < REDIS_STRING_BYTES_MAX)
}

pub(super) const BAD_PLACE: &str = "ERR bit offset is not an integer or out of range";

/// Passes a value to `examine`, on a thread that may wait if it is a long one. Returns `None` if
/// there is no record.
pub(super) fn examine<T>(
    context: &mut Context<'_>,
    key: &[u8],
    mut examine: impl FnMut(&[u8]) -> T,
) -> Result<Option<T>, Failed> {
    let may_block = context.may_block;
    let mut result = Ok(None);
    read(context, key, |record| {
        result = match record.value.len() >= SLOW_BYTES_MIN && !may_block {
            true => Err(Halt::Blocked),
            false => Ok(Some(examine(record.value))),
        };
    })?;
    Ok(result?)
}

/// Executes `SETBIT`.
pub(super) fn set(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let [key, place, bit] = parts(arguments)?;
    let place = bit_place(place)?;
    let bit = match integer(bit) {
        Some(0) => 0,
        Some(1) => 1,
        _ => return Err("ERR bit is not an integer or out of range".into()),
    };
    let (byte, shift) = (place / 8, 7 - place % 8);
    let mut growth = Growth::to(context, byte + 1)?;
    context.tally.count(Count::Put);
    let mut old = 0;
    change(context, key, |found| {
        growth.take(found)?;
        let (mut value, meta) = value_to_change(found);
        if value.len() <= byte {
            value.resize(byte + 1, 0);
        }
        old = value[byte] >> shift & 1;
        value[byte] = value[byte] & !(1 << shift) | bit << shift;
        Ok(Decision::Put(value, meta))
    })?;
    reply::integer(output, old.into());
    Ok(())
}

/// Executes `GETBIT`.
pub(super) fn get(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let [key, place] = parts(arguments)?;
    let place = bit_place(place)?;
    context.tally.count(Count::Get);
    let mut bit = 0;
    read(context, key, |record| {
        bit = record.value.get(place / 8).map_or(0, |byte| byte >> (7 - place % 8) & 1);
    })?;
    reply::integer(output, bit.into());
    Ok(())
}

/// A part of a value, from its first bit to its last.
struct Range {
    first: usize,
    last: usize,
}

impl Range {
    /// Returns the part of `bytes` bytes from one place to another, in units of bits or of bytes.
    /// Places count from the end if they are negative. Returns `None` for an empty part.
    fn of(bytes: usize, first: i64, last: i64, is_in_bits: bool) -> Option<Self> {
        let length = if is_in_bits { 8 * bytes as i64 } else { bytes as i64 };
        let place = |at: i64| if at < 0 { (at + length).max(0) } else { at };
        let (first, last) = (place(first), place(last).min(length - 1));
        if first > last {
            return None;
        }
        let (first, last) = (first as usize, last as usize);
        Some(match is_in_bits {
            true => Self { first, last },
            false => Self { first: 8 * first, last: 8 * last + 7 },
        })
    }

    /// Returns the bytes of a value that are in the part, of which the first and the last may be
    /// in other parts too, and the masks of these two.
    fn bytes<'v>(&self, value: &'v [u8]) -> (&'v [u8], u8, u8) {
        let bytes = &value[self.first / 8..=self.last / 8];
        (bytes, 0xff >> (self.first % 8), 0xff << (7 - self.last % 8))
    }

    fn count_ones(&self, value: &[u8]) -> u64 {
        let (bytes, first, last) = self.bytes(value);
        let (chunks, rest) = bytes.as_chunks();
        let of_chunk = |chunk: &[u8; 8]| u64::from(u64::from_ne_bytes(*chunk).count_ones());
        let of_byte = |byte: u8| u64::from(byte.count_ones());
        let all = chunks.iter().map(of_chunk).sum::<u64>()
            + rest.iter().copied().map(of_byte).sum::<u64>();
        all - of_byte(bytes[0] & !first) - of_byte(bytes[bytes.len() - 1] & !last)
    }

    /// Returns the place of the first bit that is set, or not set.
    fn position(&self, value: &[u8], is_set: bool) -> Option<usize> {
        let (bytes, first, last) = self.bytes(value);
        let flipped = if is_set { 0 } else { 0xff };
        let wanted = |place: usize| {
            let mut byte = bytes[place] ^ flipped;
            byte &= if place == 0 { first } else { 0xff };
            byte & if place == bytes.len() - 1 { last } else { 0xff }
        };
        let at = match wanted(0) {
            0 => bytes.iter().skip(1).position(|byte| byte ^ flipped != 0)? + 1,
            _ => 0,
        };
        let byte = wanted(at);
        (byte != 0).then(|| 8 * (self.first / 8 + at) + byte.leading_zeros() as usize)
    }
}

/// Returns whether a unit is bits, not bytes.
fn is_in_bits(unit: Option<&[u8]>) -> Result<bool, Failed> {
    match unit {
        Some(unit) if unit.eq_ignore_ascii_case(b"BIT") => Ok(true),
        Some(unit) if !unit.eq_ignore_ascii_case(b"BYTE") => Err(SYNTAX.into()),
        _ => Ok(false),
    }
}

/// Executes `BITCOUNT`.
pub(super) fn count(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let mut strings = arguments.iter();
    let key = strings.next().ok_or(SYNTAX)?;
    context.tally.count(Count::Get);
    // As in Redis, only for a record the other arguments are checked.
    let ones = examine(context, key, |value| {
        let (first, last, is_in_bits) = match arguments.len() {
            1 => (0, -1, false),
            3 | 4 => {
                let mut strings = strings.clone();
                let mut next = || strings.next().and_then(integer).ok_or(NO_INTEGER);
                let (first, last) = (next()?, next()?);
                if first < 0 && last < 0 && first > last {
                    return Ok(0);
                }
                (first, last, is_in_bits(strings.next())?)
            }
            _ => return Err(SYNTAX.into()),
        };
        let range = Range::of(value.len(), first, last, is_in_bits);
        Ok::<_, Failed>(range.map_or(0, |range| range.count_ones(value)))
    })?;
    reply::integer(output, ones.transpose()?.unwrap_or(0) as i64);
    Ok(())
}

/// Executes `BITPOS`.
pub(super) fn position(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let ([key, bit], strings) = arguments.split().ok_or(SYNTAX)?;
    let is_set = match integer(bit).ok_or(NO_INTEGER)? {
        0 => false,
        1 => true,
        _ => return Err("ERR The bit argument must be 1 or 0.".into()),
    };
    context.tally.count(Count::Get);
    let place = examine(context, key, |value| {
        let mut strings = strings.clone();
        if strings.len() > 3 {
            return Err(SYNTAX.into());
        }
        let first = strings.next().map_or(Some(0), integer).ok_or(NO_INTEGER)?;
        let last = strings.next();
        let is_in_bits = is_in_bits(strings.next())?;
        let has_end = last.is_some();
        let last = last.map_or(Some(-1), integer).ok_or(NO_INTEGER)?;
        let Some(range) = Range::of(value.len(), first, last, is_in_bits) else { return Ok(-1) };
        let place = range.position(value, is_set).map(|place| place as i64);
        // Without an end, bits that are not set come after the value.
        let after = if is_set || has_end { -1 } else { 8 * value.len() as i64 };
        Ok::<_, Failed>(place.unwrap_or(after))
    })?;
    let absent = if is_set { -1 } else { 0 };
    reply::integer(output, place.transpose()?.unwrap_or(absent));
    Ok(())
}

#[derive(Clone, Copy)]
enum BitOperation {
    And,
    Or,
    Xor,
    Not,
}

impl BitOperation {
    fn of_name(name: &[u8]) -> Option<Self> {
        Some(match &*name.to_ascii_uppercase() {
            b"AND" => Self::And,
            b"OR" => Self::Or,
            b"XOR" => Self::Xor,
            b"NOT" => Self::Not,
            _ => return None,
        })
    }

    /// Combines a value with another one. The shorter one has zero bytes after its end.
    fn combine(self, value: &mut Vec<u8>, other: &[u8]) {
        if value.len() < other.len() {
            value.resize(other.len(), 0);
        }
        let (common, rest) = value.split_at_mut(other.len());
        let pairs = common.iter_mut().zip(other);
        match self {
            Self::And => {
                pairs.for_each(|(byte, other)| *byte &= other);
                rest.fill(0);
            }
            Self::Or => pairs.for_each(|(byte, other)| *byte |= other),
            Self::Xor => pairs.for_each(|(byte, other)| *byte ^= other),
            Self::Not => pairs.for_each(|(byte, other)| *byte = !other),
        }
    }
}

/// Executes `BITOP`.
pub(super) fn combine(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let ([name, key], strings) = arguments.split().ok_or(SYNTAX)?;
    let operation = BitOperation::of_name(name).ok_or(SYNTAX)?;
    if matches!(operation, BitOperation::Not) && strings.len() > 1 {
        return Err("ERR BITOP NOT must be called with a single source key.".into());
    }
    check_keys(context, strings.clone().chain([key]))?;
    wait_if_long(context, arguments)?;
    let bytes = atomically(context, |context| {
        let value = combined(context, strings.clone(), operation)?;
        if value.is_empty() {
            remove_unmasked(context, key)?;
        } else {
            context.tally.count(Count::Put);
            let put = Operation::put(key, &value, Presence::Any);
            context.execute(&put, &mut NoReply)??;
        }
        Ok(value.len())
    })?;
    reply::integer(output, bytes as i64);
    Ok(())
}

/// Returns the values of keys, combined bit by bit.
fn combined(
    context: &mut Context<'_>,
    keys: ArgumentsIter<'_>,
    operation: BitOperation,
) -> Result<Vec<u8>, Failed> {
    let (mut value, mut charge) = (Vec::new(), Charge::none(&context.shared.served.budget));
    for (number, source) in keys.enumerate() {
        context.tally.count(Count::Get);
        // The first one stays as it is, and one that is absent is empty.
        let operation = match (number, operation) {
            (0, BitOperation::And) => BitOperation::Or,
            (_, operation) => operation,
        };
        let has_room = examine(context, source, |other| {
            let bytes = value.len().max(other.len());
            let has_room = bytes < LONG_BYTES_MIN || charge.set(COPIES * bytes);
            if has_room {
                operation.combine(&mut value, other);
            }
            has_room
        })?;
        match has_room {
            Some(true) => {}
            Some(false) => return Err(NO_ROOM.into()),
            None => operation.combine(&mut value, b""),
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares counts and positions in all parts of a value with those bit by bit.
    #[test]
    fn parts_of_a_value_begin_and_end_at_any_bit() {
        for value in [&b"\x00\xff\x10"[..], b"\xff\xff\xff", b"\x00\x00\x00", b"\x35\x00\x81"] {
            let bit = |place: usize| value[place / 8] >> (7 - place % 8) & 1;
            let bits = 8 * value.len();
            for (first, last) in
                (0..bits).flat_map(|first| (first..bits).map(move |last| (first, last)))
            {
                let range = Range::of(value.len(), first as i64, last as i64, true).unwrap();
                let ones = (first..=last).filter(|place| bit(*place) == 1).count();
                assert_eq!(range.count_ones(value), ones as u64);
                for wanted in [0, 1] {
                    let place = (first..=last).find(|place| bit(*place) == wanted);
                    assert_eq!(range.position(value, wanted == 1), place, "{first} {last}");
                }
            }
        }
    }

    #[test]
    fn places_count_from_the_end_if_they_are_negative() {
        let part = |first, last, is_in_bits| {
            Range::of(3, first, last, is_in_bits).map(|range| (range.first, range.last))
        };
        assert_eq!(part(0, -1, false), Some((0, 23)));
        assert_eq!(part(-2, -2, false), Some((8, 15)));
        assert_eq!(part(-3, -2, true), Some((21, 22)));
        assert_eq!(part(i64::MIN, i64::MAX, true), Some((0, 23)));
        assert_eq!(part(2, 1, false), None);
        assert_eq!(part(3, 5, false), None);
        assert_eq!(Range::of(0, 0, -1, false).map(|range| range.last), None);
    }
}
