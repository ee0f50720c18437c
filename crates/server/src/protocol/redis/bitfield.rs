//! `BITFIELD`: numbers of up to 64 bits, at any bit of a value.

use super::bits::{BAD_PLACE, bit_place, checked_bit_place};
use super::room::Growth;
use super::{
    Decision, Failed, NO_INTEGER, SYNTAX, change, integer, read, reply, value_to_change,
    wait_if_long,
};
use crate::counters::Count;
use crate::protocol::Context;
use wire::redis::reply::Version;
use wire::redis::{Arguments, ArgumentsIter};

/// Type of a number, and the place of its first bit.
#[derive(Clone, Copy, Debug)]
struct Field {
    is_signed: bool,
    bits: u32,
    place: usize,
}

/// Handling of a number that its field cannot hold.
#[derive(Clone, Copy)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Clone, Copy)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

/// A step of the command.
struct Step {
    field: Field,
    action: Action,
    overflow: Overflow,
}

impl Field {
    fn of(kind: &[u8], place: &[u8]) -> Result<Self, Failed> {
        let (is_signed, digits) = match kind {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => return Err(BAD_TYPE.into()),
        };
        let bits = integer(digits).and_then(|bits| u32::try_from(bits).ok());
        let max = if is_signed { 64 } else { 63 };
        let bits = bits.filter(|bits| (1..=max).contains(bits)).ok_or(BAD_TYPE)?;
        let place = match place {
            [b'#', number @ ..] => {
                let number = integer(number).and_then(|number| number.checked_mul(bits.into()));
                number.and_then(checked_bit_place).ok_or(BAD_PLACE)?
            }
            place => bit_place(place)?,
        };
        Ok(Self { is_signed, bits, place })
    }

    /// Returns the length of a value that has all of the field, in bytes.
    fn value_bytes(self) -> usize {
        (self.place + self.bits as usize).div_ceil(8)
    }

    fn limits(self) -> (i128, i128) {
        match self.is_signed {
            true => (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1),
            false => (0, (1 << self.bits) - 1),
        }
    }

    /// Returns the number that the lowest bits are.
    fn wrapped(self, number: i128) -> i128 {
        let unused = i128::BITS - self.bits;
        match self.is_signed {
            true => number << unused >> unused,
            false => ((number << unused).cast_unsigned() >> unused).cast_signed(),
        }
    }

    /// Returns the number of a value, which has zero bytes after its end.
    fn get(self, value: &[u8]) -> i128 {
        // A field of 64 bits is in 9 bytes.
        let first = self.place / 8;
        let mut bytes = [0; 16];
        let held = value.get(first..).unwrap_or_default();
        let held = &held[..held.len().min(9)];
        bytes[..held.len()].copy_from_slice(held);
        let bits = u128::from_be_bytes(bytes) << (self.place % 8) >> (u128::BITS - self.bits);
        self.wrapped(bits.cast_signed())
    }

    /// Stores a number in a value that has all of the field.
    fn set(self, value: &mut [u8], number: i128) {
        let (first, end) = (self.place / 8, self.value_bytes());
        let held = &mut value[first..end];
        let mut bytes = [0; 16];
        bytes[..held.len()].copy_from_slice(held);
        let shift = u128::BITS - self.bits - (self.place % 8) as u32;
        let mask = (u128::MAX >> (u128::BITS - self.bits)) << shift;
        let bits = u128::from_be_bytes(bytes) & !mask | number.cast_unsigned() << shift & mask;
        held.copy_from_slice(&bits.to_be_bytes()[..held.len()]);
    }
}

const BAD_TYPE: &str = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is \
                        not supported but i64 is.";

/// Returns the steps of a command.
fn read_steps(mut strings: ArgumentsIter<'_>) -> Result<Vec<Step>, Failed> {
    let (mut steps, mut overflow) = (Vec::new(), Overflow::Wrap);
    while let Some(name) = strings.next() {
        let name = name.to_ascii_uppercase();
        let needed = match &*name {
            b"OVERFLOW" => 1,
            b"GET" => 2,
            b"SET" | b"INCRBY" => 3,
            _ => return Err(SYNTAX.into()),
        };
        if strings.len() < needed {
            return Err(SYNTAX.into());
        }
        let mut next = || strings.next().unwrap_or_default();
        if name == b"OVERFLOW" {
            overflow = match &*next().to_ascii_uppercase() {
                b"WRAP" => Overflow::Wrap,
                b"SAT" => Overflow::Saturate,
                b"FAIL" => Overflow::Fail,
                _ => return Err("ERR Invalid OVERFLOW type specified".into()),
            };
            continue;
        }
        let field = Field::of(next(), next())?;
        let action = match &*name {
            b"GET" => Action::Get,
            b"SET" => Action::Set(integer(next()).ok_or(NO_INTEGER)?),
            _ => Action::Add(integer(next()).ok_or(NO_INTEGER)?),
        };
        steps.push(Step { field, action, overflow });
    }
    Ok(steps)
}

impl Step {
    fn is_set(&self) -> bool {
        matches!(self.action, Action::Set(_))
    }

    /// Executes a step of `SET` or `INCRBY` in a value that has all of its field. Returns the
    /// number for the reply; `None` if the new number does not fit and is not stored.
    fn execute(&self, value: &mut [u8]) -> Option<i128> {
        let field = self.field;
        let old = field.get(value);
        let new = match self.action {
            Action::Get => return Some(old),
            // As in Redis, a negative number is one above all unsigned ones.
            Action::Set(number) if !field.is_signed => number.cast_unsigned().into(),
            Action::Set(number) => number.into(),
            Action::Add(amount) => old + i128::from(amount),
        };
        let (min, max) = field.limits();
        let new = match self.overflow {
            _ if (min..=max).contains(&new) => new,
            Overflow::Wrap => field.wrapped(new),
            // As in Redis, from where the difference to the greatest number is over 63 bits.
            Overflow::Saturate if max - new > i64::MAX.into() && self.is_set() => max,
            Overflow::Saturate => new.clamp(min, max),
            Overflow::Fail => return None,
        };
        field.set(value, new);
        Some(if let Action::Add(_) = self.action { new } else { old })
    }
}

fn append_number(out: &mut Vec<u8>, version: Version, number: Option<i128>) {
    match number {
        // All types fit into 64 bits with a sign.
        Some(number) => reply::integer(out, number as i64),
        None => reply::null(out, version),
    }
}

/// Most bytes of a number in a reply.
const NUMBER_BYTES_MAX: usize = b":-9223372036854775808\r\n".len();

/// Executes `BITFIELD`, and `BITFIELD_RO`, which changes nothing.
pub(super) fn execute(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    is_read_only: bool,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let mut strings = arguments.iter();
    let key = strings.next().ok_or(SYNTAX)?;
    wait_if_long(context, arguments)?;
    let steps = read_steps(strings)?;
    context.check_length(NUMBER_BYTES_MAX * steps.len())?;
    let version = context.session.redis.version;
    let changed = steps.iter().filter(|step| !matches!(step.action, Action::Get));
    let Some(bytes) = changed.map(|step| step.field.value_bytes()).max() else {
        context.tally.count(Count::Get);
        let mut numbers: Vec<_> = steps.iter().map(|step| step.field.get(b"")).collect();
        read(context, key, |record| {
            numbers = steps.iter().map(|step| step.field.get(record.value)).collect();
        })?;
        reply::array(output, numbers.len());
        numbers.iter().for_each(|number| append_number(output, version, Some(*number)));
        return Ok(());
    };
    if is_read_only {
        return Err("ERR BITFIELD_RO only supports the GET subcommand".into());
    }
    let mut growth = Growth::to(context, bytes)?;
    context.tally.count(Count::Put);
    let mut numbers = Vec::new();
    change(context, key, |found| {
        growth.take(found)?;
        let (mut value, meta) = value_to_change(found);
        if value.len() < bytes {
            value.resize(bytes, 0);
        }
        numbers = steps
            .iter()
            .map(|step| match step.action {
                Action::Get => Some(step.field.get(&value)),
                Action::Set(_) | Action::Add(_) => step.execute(&mut value),
            })
            .collect();
        Ok(Decision::Put(value, meta))
    })?;
    reply::array(output, numbers.len());
    numbers.iter().for_each(|number| append_number(output, version, *number));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields of each width at each bit, compared with bits that are set one by one.
    #[test]
    fn a_field_is_stored_at_any_bit_and_leaves_the_others() {
        for (bits, place) in (1..=64).flat_map(|bits| (0..20).map(move |place| (bits, place))) {
            let field = Field { is_signed: true, bits, place };
            for background in [0x00, 0xff, 0x5a] {
                let mut value = [background; 12];
                let number = field.wrapped(0x6789_abcd_ef01_2345_i128 ^ i128::from(background));
                field.set(&mut value, number);
                assert_eq!(field.get(&value), number);
                for place in 0..8 * value.len() {
                    let bit = value[place / 8] >> (7 - place % 8) & 1;
                    let expected = match place.checked_sub(field.place) {
                        Some(at) if at < bits as usize => {
                            (number >> (bits as usize - 1 - at) & 1) as u8
                        }
                        _ => background >> (7 - place % 8) & 1,
                    };
                    assert_eq!(bit, expected, "{field:?}, bit {place}");
                }
            }
        }
    }

    #[test]
    fn a_field_after_the_end_of_a_value_is_zero() {
        let field = Field::of(b"u16", b"#1").ok().unwrap();
        assert_eq!(field.get(b""), 0);
        assert_eq!(field.get(b"\x01\x02\x03"), 0x0300);
        assert_eq!(field.value_bytes(), 4);
    }

    #[test]
    fn types_and_places_have_limits() {
        let is_right =
            |kind: &str, place: &str| Field::of(kind.as_bytes(), place.as_bytes()).is_ok();
        for kind in ["i1", "i64", "u1", "u63"] {
            assert!(is_right(kind, "0"), "{kind}");
        }
        for kind in ["", "i", "i0", "i65", "u64", "x8", "8", "i-1", "i08", "u8 "] {
            assert!(!is_right(kind, "0"), "{kind}");
        }
        for place in ["4294967295", "#0", "#536870911"] {
            assert!(is_right("u8", place), "{place}");
        }
        for place in ["", "#", "-1", "#-1", "x", "4294967296", "#536870912", "#9223372036854775807"]
        {
            assert!(!is_right("u8", place), "{place}");
        }
    }
}
