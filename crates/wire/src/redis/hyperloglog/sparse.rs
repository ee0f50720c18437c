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

/// Longest value in bytes, as by default in Redis.
const VALUE_BYTES_MAX: usize = 3000;

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

/// Raises a register of a value, with its header, to at least this rank. Returns whether it was
/// less, or `None` if the value has to become a dense one for it.
pub(super) fn raise(value: &mut Vec<u8>, index: usize, rank: u8) -> Option<bool> {
    if rank > RANK_MAX {
        return None;
    }
    let (mut before, mut at, mut first) = (HEADER_BYTES, HEADER_BYTES, 0);
    let run = loop {
        let run = first_run(&value[at..])?;
        if index < first + run.registers {
            break run;
        }
        (before, at, first) = (at, at + run.bytes, first + run.registers);
    };
    if run.rank >= rank {
        return Some(false);
    }
    let mut parts = Vec::new();
    append(&mut parts, run.rank, index - first);
    append(&mut parts, rank, 1);
    append(&mut parts, run.rank, first + run.registers - 1 - index);
    if parts.len() > run.bytes && value.len() - run.bytes + parts.len() > VALUE_BYTES_MAX {
        return None;
    }
    value.splice(at..at + run.bytes, parts);
    join(value, before);
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
            let raised = raise(&mut value, index, rank);
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
            raise(&mut value, *index, 1).is_none()
        });
        assert_eq!((refused, value.len()), (Some(2983), 3000));
    }
}
