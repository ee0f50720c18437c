//! `LCS`: the longest common subsequence of two values.
//!
//! The lengths of the subsequences of all beginnings are computed row by row. One bit of each is
//! kept: whether the way back leaves a byte of the first value or one of the second. Redis
//! keeps the lengths, which take 32 times as much, and has the same limit. If two lengths are
//! equal, the way leaves a byte of the second value, as in Redis.

use super::room::{SLOW_BYTES_MIN, room_for_work};
use super::{Failed, NO_INTEGER, SYNTAX, find, integer, reply};
use crate::counters::Count;
use crate::protocol::Context;
use std::ops::Range;
use wire::limits::REDIS_STRING_BYTES_MAX;
use wire::redis::reply::Version;
use wire::redis::{Arguments, ArgumentsIter};

/// Most lengths of subsequences, for which Redis takes as much memory as for the longest string.
const CELLS_MAX: usize = REDIS_STRING_BYTES_MAX / size_of::<u32>();

/// Options of the command.
#[derive(Default)]
struct Options {
    is_length: bool,
    has_matches: bool,
    has_match_lengths: bool,
    match_bytes_min: i64,
}

fn read_options(mut strings: ArgumentsIter<'_>) -> Result<Options, Failed> {
    let mut options = Options::default();
    while let Some(option) = strings.next() {
        match &*option.to_ascii_uppercase() {
            b"LEN" => options.is_length = true,
            b"IDX" => options.has_matches = true,
            b"WITHMATCHLEN" => options.has_match_lengths = true,
            b"MINMATCHLEN" if strings.len() > 0 => {
                options.match_bytes_min = strings.next().and_then(integer).ok_or(NO_INTEGER)?;
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    if options.is_length && options.has_matches {
        return Err("ERR If you want both the length and indexes, please just use IDX.".into());
    }
    Ok(options)
}

/// Executes `LCS`.
pub(super) fn compare(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let ([first, second], strings) = arguments.split().ok_or(SYNTAX)?;
    let (first, second) = (find(context, first)?, find(context, second)?);
    let options = read_options(strings)?;
    let first = first.as_ref().map_or(&b""[..], |found| &found.value);
    let second = second.as_ref().map_or(&b""[..], |found| &found.value);
    let cells = (first.len() + 1).saturating_mul(second.len() + 1);
    if cells > CELLS_MAX {
        let text = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";
        return Err(text.into());
    }
    if cells >= SLOW_BYTES_MIN {
        context.wait()?;
    }
    let row_bytes = size_of::<u32>() * first.len().min(second.len());
    let _charge = room_for_work(context, cells / 8 + row_bytes)?;
    context.tally.add(Count::Get, 2);
    let table = Table::new(first, second, !options.is_length);
    if options.is_length {
        reply::integer(output, table.length.into());
        return Ok(());
    }
    let matches = table.matches(first, second);
    if !options.has_matches {
        let common: Vec<u8> =
            matches.iter().rev().flat_map(|found| first[found.first()].iter().copied()).collect();
        context.check_length(common.len())?;
        reply::string(output, &common);
        return Ok(());
    }
    let start = output.len();
    append_matches(&matches, &options, table.length, context.session.redis.version, output);
    context.check_length(output.len() - start)?;
    Ok(())
}

fn append_matches(
    matches: &[Match],
    options: &Options,
    length: u32,
    version: Version,
    output: &mut Vec<u8>,
) {
    let min = usize::try_from(options.match_bytes_min).unwrap_or(0);
    let shown: Vec<_> = matches.iter().filter(|found| found.length >= min).collect();
    reply::map(output, version, 2);
    reply::string(output, b"matches");
    reply::array(output, shown.len());
    for found in shown {
        reply::array(output, 2 + usize::from(options.has_match_lengths));
        for range in [found.first(), found.second()] {
            reply::array(output, 2);
            reply::integer(output, range.start as i64);
            reply::integer(output, range.end as i64 - 1);
        }
        if options.has_match_lengths {
            reply::integer(output, found.length as i64);
        }
    }
    reply::string(output, b"len");
    reply::integer(output, length.into());
}

/// Bytes that two values have in common, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Match {
    /// Place in the first value.
    first: usize,
    /// Place in the second value.
    second: usize,
    length: usize,
}

impl Match {
    fn first(self) -> Range<usize> {
        self.first..self.first + self.length
    }

    fn second(self) -> Range<usize> {
        self.second..self.second + self.length
    }
}

/// Length of the longest common subsequence, and the way back to its bytes.
struct Table {
    length: u32,
    /// For the beginnings of both values, by the last place of each: whether the subsequence
    /// without the last byte of the first value is longer than that without the one of the second.
    leaves_first: Vec<u64>,
    /// Whether a row is for a byte of the second value, not of the first.
    is_transposed: bool,
    row_length: usize,
}

impl Table {
    fn new(first: &[u8], second: &[u8], has_way: bool) -> Self {
        let is_transposed = first.len() < second.len();
        let (outer, inner) = if is_transposed { (second, first) } else { (first, second) };
        let words = if has_way { (outer.len() * inner.len()).div_ceil(64) } else { 0 };
        let mut leaves_first = vec![0; words];
        // Lengths of the row before, which are replaced by those of this one.
        let mut lengths = vec![0_u32; inner.len()];
        let mut cell = 0;
        for byte in outer {
            let (mut diagonal, mut left) = (0, 0);
            for (other, length) in inner.iter().zip(&mut lengths) {
                let above = *length;
                let is_above = if is_transposed { above >= left } else { above > left };
                if byte == other {
                    *length = diagonal + 1;
                } else {
                    *length = above.max(left);
                    if has_way && is_above != is_transposed {
                        leaves_first[cell / 64] |= 1 << (cell % 64);
                    }
                }
                (diagonal, left) = (above, *length);
                cell += 1;
            }
        }
        let length = lengths.last().copied().unwrap_or(0);
        Self { length, leaves_first, is_transposed, row_length: inner.len() }
    }

    fn leaves_first(&self, first: usize, second: usize) -> bool {
        let (row, column) = if self.is_transposed { (second, first) } else { (first, second) };
        let cell = row * self.row_length + column;
        self.leaves_first[cell / 64] >> (cell % 64) & 1 == 1
    }

    /// Returns the matches, the last one first.
    fn matches(&self, first: &[u8], second: &[u8]) -> Vec<Match> {
        let mut matches: Vec<Match> = Vec::new();
        let (mut one, mut other) = (first.len(), second.len());
        let mut is_under_way = false;
        while one > 0 && other > 0 {
            if first[one - 1] != second[other - 1] {
                is_under_way = false;
                let leaves_first = self.leaves_first(one - 1, other - 1);
                if leaves_first {
                    one -= 1
                } else {
                    other -= 1
                }
                continue;
            }
            (one, other) = (one - 1, other - 1);
            match matches.last_mut() {
                Some(last) if is_under_way => {
                    *last = Match { first: one, second: other, length: last.length + 1 };
                }
                _ => matches.push(Match { first: one, second: other, length: 1 }),
            }
            is_under_way = true;
        }
        matches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(first: &[u8], second: &[u8]) -> Vec<(usize, usize, usize)> {
        let table = Table::new(first, second, true);
        let matches = table.matches(first, second);
        let length: usize = matches.iter().map(|found| found.length).sum();
        assert_eq!(length, table.length as usize);
        assert_eq!(Table::new(first, second, false).length, table.length);
        for found in &matches {
            assert_eq!(first[found.first()], second[found.second()]);
        }
        matches.iter().map(|found| (found.first, found.second, found.length)).collect()
    }

    /// As Redis 7.0.15 returns them, whichever value is the longer one.
    #[test]
    fn matches_are_those_of_redis() {
        assert_eq!(matches(b"ohmytext", b"mynewtext"), [(4, 5, 4), (2, 0, 2)]);
        assert_eq!(matches(b"mynewtext", b"ohmytext"), [(5, 4, 4), (0, 2, 2)]);
        assert_eq!(matches(b"ab", b"ba"), [(1, 0, 1)]);
        assert_eq!(matches(b"abcabc", b"cba"), [(4, 1, 1), (2, 0, 1)]);
        assert_eq!(matches(b"cba", b"abcabc"), [(2, 3, 1), (1, 1, 1)]);
        assert_eq!(matches(b"xaxbxc", b"aabbcc"), [(5, 5, 1), (3, 2, 1), (1, 0, 1)]);
        assert_eq!(matches(b"", b"a"), []);
        assert_eq!(matches(b"abc", b"abc"), [(0, 0, 3)]);
    }
}
