//! Sparse form: runs of registers with the same rank.
//!
//! | bytes | registers | rank |
//! |---|---|---|
//! | `00nnnnnn` | `n + 1` | 0 |
//! | `01nnnnnn nnnnnnnn` | `n + 1`, the high bits first | 0 |
//! | `1rrrrrnn` | `n + 1` | `r + 1` |
//!
//! One set of registers may have several such forms. [`raise`] makes that of Redis.

use super::{HEADER_BYTES, REGISTERS};

/// Greatest rank of a run.
const RANK_MAX: u8 = 32;

/// Most registers of a run of one byte whose rank is 0, and is not.
const SHORT_ZEROS_MAX: usize = 64;
const RANKED_MAX: usize = 4;

/// Longest value in bytes that [`raise`] makes, as by default in Redis.
pub(super) const VALUE_BYTES_MAX: usize = 3000;

/// Longest form of all registers.
pub(super) const BYTES_MAX: usize = 2 * REGISTERS;

/// Most bytes of the runs that one is split into.
const PARTS_BYTES_MAX: usize = 5;

/// Runs after a change among which equal ones are joined.
const JOINED_RUNS: usize = 5;

/// Registers with the same rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) rank: u8,
    pub(super) registers: usize,
    /// Length of its form.
    bytes: usize,
}

/// Returns the first run.
fn first_run(bytes: &[u8]) -> Option<Run> {
    let (first, rest) = bytes.split_first()?;
    let low = usize::from(first & 0x3f);
    Some(match first >> 6 {
        0 => Run { rank: 0, registers: low + 1, bytes: 1 },
        1 => Run { rank: 0, registers: (low << 8 | usize::from(*rest.first()?)) + 1, bytes: 2 },
        _ => Run { rank: (first >> 2 & 0x1f) + 1, registers: usize::from(first & 3) + 1, bytes: 1 },
    })
}

/// Returns the runs, up to one that is not whole.
pub(super) fn runs(mut bytes: &[u8]) -> impl Iterator<Item = Run> {
    std::iter::from_fn(move || {
        let run = first_run(bytes)?;
        bytes = &bytes[run.bytes..];
        Some(run)
    })
}

/// Returns whether these are runs of all registers, and nothing else.
pub(super) fn is_whole(bytes: &[u8]) -> bool {
    let (mut length, mut registers) = (0, 0);
    for run in runs(bytes) {
        (length, registers) = (length + run.bytes, registers + run.registers);
        if registers >= REGISTERS {
            break;
        }
    }
    (length, registers) == (bytes.len(), REGISTERS)
}

/// Appends registers without elements.
pub(super) fn append_empty(value: &mut Vec<u8>) {
    append(value, 0, REGISTERS);
}

/// Appends a run, unless it is empty.
fn append(bytes: &mut Vec<u8>, rank: u8, registers: usize) {
    let Some(number) = registers.checked_sub(1) else { return };
    match rank.checked_sub(1) {
        Some(rank) => bytes.push(0x80 | rank << 2 | number as u8),
        None if registers <= SHORT_ZEROS_MAX => bytes.push(number as u8),
        None => bytes.extend([0x40 | (number >> 8) as u8, number as u8]),
    }
}

/// Beginning of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Bytes before it, with the header.
    at: usize,
    /// Its first register.
    first: usize,
}

impl Default for Place {
    /// Returns the place of the first run.
    fn default() -> Self {
        Self { at: HEADER_BYTES, first: 0 }
    }
}

/// Raises a register of a value, with its header, to at least this rank. Returns whether it was
/// less, or `None` if the value has to become a dense one for it. The search begins at `place`, and
/// leaves there the one for a greater register.
pub(super) fn raise(
    value: &mut Vec<u8>,
    place: &mut Place,
    index: usize,
    rank: u8,
) -> Option<bool> {
    if rank > RANK_MAX {
        return None;
    }
    // The run before may be joined with that of the register, so that it is found again: the search
    // for the next one begins before both.
    let mut before = *place;
    let Place { mut at, mut first } = before;
    let run = loop {
        let run = first_run(&value[at..])?;
        if index < first + run.registers {
            break run;
        }
        (*place, before) = (before, Place { at, first });
        (at, first) = (at + run.bytes, first + run.registers);
    };
    if run.rank >= rank {
        return Some(false);
    }
    let mut parts = Vec::with_capacity(PARTS_BYTES_MAX);
    append(&mut parts, run.rank, index - first);
    append(&mut parts, rank, 1);
    append(&mut parts, run.rank, first + run.registers - 1 - index);
    if parts.len() > run.bytes && value.len() - run.bytes + parts.len() > VALUE_BYTES_MAX {
        return None;
    }
    value.splice(at..at + run.bytes, parts);
    join(value, before.at);
    Some(true)
}

/// Joins runs of the same rank, from a place on.
fn join(value: &mut Vec<u8>, mut at: usize) {
    for _ in 0..JOINED_RUNS {
        let Some(run) = first_run(&value[at..]) else { return };
        let next = first_run(&value[at + run.bytes..]);
        let registers = run.registers + next.map_or(0, |next| next.registers);
        let is_joined = run.rank > 0
            && next.is_some_and(|next| next.rank == run.rank)
            && registers <= RANKED_MAX;
        if is_joined {
            let mut joined = Vec::new();
            append(&mut joined, run.rank, registers);
            value.splice(at..at + 2, joined);
        } else {
            at += run.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_split_and_joined() {
        let mut value = vec![0; HEADER_BYTES];
        append_empty(&mut value);
        let mut raised = |index, rank| {
            let raised = raise(&mut value, &mut Place::default(), index, rank);
            (raised, value[HEADER_BYTES..].to_vec())
        };
        assert_eq!(raised(0, 1), (Some(true), vec![0x80, 0x7f, 0xfe]));
        assert_eq!(raised(0, 1), (Some(false), vec![0x80, 0x7f, 0xfe]));
        assert_eq!(raised(1, 1), (Some(true), vec![0x81, 0x7f, 0xfd]));
        assert_eq!(raised(3, 1), (Some(true), vec![0x81, 0x00, 0x80, 0x7f, 0xfb]));
        assert_eq!(raised(2, 1), (Some(true), vec![0x83, 0x7f, 0xfb]));
        assert_eq!(raised(4, 1), (Some(true), vec![0x83, 0x80, 0x7f, 0xfa]));
        assert_eq!(raised(1, 2), (Some(true), vec![0x80, 0x84, 0x82, 0x7f, 0xfa]));
        assert_eq!(raised(69, 32).1[3..], [0x3f, 0xfc, 0x7f, 0xb9]);
        assert_eq!(raised(16383, 9).1[5..], [0x7f, 0xb8, 0xa0]);
        assert_eq!(raised(5, 33).0, None);
    }

    #[test]
    fn a_value_ends_at_its_limit() {
        let mut value = vec![0; HEADER_BYTES];
        append_empty(&mut value);
        // Each one splits a run of zeros.
        let refused = (1..REGISTERS).step_by(2).find(|index| {
            assert!(is_whole(&value[HEADER_BYTES..]));
            raise(&mut value, &mut Place::default(), *index, 1).is_none()
        });
        assert_eq!((refused, value.len()), (Some(2983), 3000));
    }

    /// Returns a value whose runs have these registers and ranks, again and again.
    fn value_of(runs: &[(usize, u8)]) -> Vec<u8> {
        let (mut value, mut left) = (vec![0; HEADER_BYTES], REGISTERS);
        for (registers, rank) in runs.iter().cycle() {
            let registers = left.min(*registers);
            append(&mut value, *rank, registers);
            left -= registers;
            if left == 0 {
                break;
            }
        }
        value
    }

    #[test]
    fn raising_registers_in_order_goes_on_from_the_last_place() {
        for runs in [
            &[(REGISTERS, 0)][..],
            &[(1, 0)],
            &[(1, 1)],
            &[(1, 1), (1, 1), (1, 2)],
            &[(3, 1), (100, 0), (1, 1), (2, 0), (4, 3)],
        ] {
            for (step, ranks) in [(1, 1), (1, 3), (2, 2), (7, 1), (37, 5)] {
                let mut value = value_of(runs);
                let (mut slow, mut place) = (value.clone(), Place::default());
                for index in (0..REGISTERS).step_by(step) {
                    let rank = (index * index / 3 % ranks + 1) as u8;
                    let raised = raise(&mut value, &mut place, index, rank);
                    // From the first run, which is slow for one register out of many.
                    if index % 97 == 0 || index < 100 {
                        let expected = raise(&mut slow, &mut Place::default(), index, rank);
                        assert_eq!(raised, expected, "{index}");
                        assert!(value == slow, "{runs:?} {step} {ranks} {index}");
                    } else {
                        slow.clone_from(&value);
                    }
                    // The work for the next one does not depend on the number of runs.
                    let mut end = place.first;
                    let near = runs_from(&value, place).take_while(|run| {
                        end += run.registers;
                        end <= index
                    });
                    assert!(near.count() <= 3);
                    if raised.is_none() {
                        break;
                    }
                }
            }
        }
    }

    fn runs_from(value: &[u8], place: Place) -> impl Iterator<Item = Run> {
        runs(&value[place.at..])
    }
}
