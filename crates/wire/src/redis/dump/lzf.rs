//! LZF, the compression of long strings in Redis's dumps.
//!
//! | bytes | meaning |
//! |---|---|
//! | `000LLLLL`, then L + 1 bytes | these bytes as they are |
//! | `LLLDDDDD DDDDDDDD`, L from 1 to 6 | L + 2 bytes that begin D + 1 bytes before |
//! | `111DDDDD LLLLLLLL DDDDDDDD` | L + 9 bytes that begin D + 1 bytes before |
//!
//! The compressor chooses the same matches as LibLZF 3.6 in its default form, so that dumps are
//! those of Redis. LibLZF does not clear its table of places, so that it rarely finds another match
//! by a place of an earlier string.

/// Most bytes that one compressed byte stands for: 264 in 3 bytes.
pub(super) const EXPANSION_MAX: usize = 264 / 3;

/// Most bytes between two control bytes.
const LITERALS_MAX: usize = 1 << 5;

/// Least distance of a match that cannot be written, in bytes.
const DISTANCE_LIMIT: usize = 1 << 13;

/// Longest match, in bytes.
const MATCH_BYTES_MAX: usize = (1 << 8) + (1 << 3);

/// Binary logarithm of the number of places that the compressor remembers.
const PLACES_LOG: u32 = 16;

/// Returns the compressed bytes, unless they would be more than `max`.
pub(super) fn compress(input: &[u8], max: usize) -> Option<Vec<u8>> {
    let mut places = vec![0_u32; 1 << PLACES_LOG];
    let mut output = Output { bytes: vec![0], literals: 0 };
    let last = input.len().checked_sub(2)?;
    let mut at = 0;
    while at < last {
        let place = std::mem::replace(&mut places[slot(input, at)], at as u32) as usize;
        // Place 0 means none.
        let is_match = place > 0
            && at - place <= DISTANCE_LIMIT
            && input[place..place + 3] == input[at..at + 3];
        if !is_match {
            if output.bytes.len() >= max {
                return None;
            }
            output.push_literal(input[at]);
            at += 1;
            continue;
        }
        if output.bytes.len() + 4 >= max + usize::from(output.literals == 0) {
            return None;
        }
        let longest = match last - at {
            // LibLZF compares 16 bytes at once, and one more, before it looks for the end.
            17 | 18 => 19,
            length => length.min(MATCH_BYTES_MAX),
        };
        let mut length = 3;
        while length < longest && input[place + length] == input[at + length] {
            length += 1;
        }
        output.push_match(at - place - 1, length);
        at += length;
        if at >= last {
            break;
        }
        for at in [at - 2, at - 1] {
            places[slot(input, at)] = at as u32;
        }
    }
    if output.bytes.len() + 3 > max {
        return None;
    }
    input[at..].iter().for_each(|byte| output.push_literal(*byte));
    output.end_literals();
    Some(output.bytes)
}

/// Returns the slot of the three bytes at a place.
fn slot(input: &[u8], at: usize) -> usize {
    let bytes = u32::from_be_bytes([0, input[at], input[at + 1], input[at + 2]]);
    let hash = (bytes >> (24 - PLACES_LOG)).wrapping_sub(bytes.wrapping_mul(5));
    hash as usize & ((1 << PLACES_LOG) - 1)
}

/// Compressed bytes. Before the last literals is a byte for their number.
struct Output {
    bytes: Vec<u8>,
    literals: usize,
}

impl Output {
    fn push_literal(&mut self, byte: u8) {
        self.bytes.push(byte);
        self.literals += 1;
        if self.literals == LITERALS_MAX {
            self.end_literals();
            self.begin_literals();
        }
    }

    fn begin_literals(&mut self) {
        self.bytes.push(0);
        self.literals = 0;
    }

    fn end_literals(&mut self) {
        let place = self.bytes.len() - self.literals - 1;
        match self.literals.checked_sub(1) {
            Some(number) => self.bytes[place] = number as u8,
            None => self.bytes.truncate(place),
        }
    }

    /// Appends a match of `length` bytes, and one more than `distance` before them.
    fn push_match(&mut self, distance: usize, length: usize) {
        self.end_literals();
        let high = (distance >> 8) as u8;
        match length - 2 {
            length @ ..7 => self.bytes.push((length as u8) << 5 | high),
            length => self.bytes.extend([7 << 5 | high, (length - 7) as u8]),
        }
        self.bytes.push(distance as u8);
        self.begin_literals();
    }
}

/// Returns the bytes that were compressed, which are to be exactly `length`; `None` otherwise.
pub(super) fn decompress(mut input: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut output = Vec::with_capacity(length);
    while let Some((control, rest)) = input.split_first() {
        let (control, rest) = (usize::from(*control), rest);
        if control < LITERALS_MAX {
            let (literals, rest) = rest.split_at_checked(control + 1)?;
            if output.len() + literals.len() > length {
                return None;
            }
            output.extend_from_slice(literals);
            input = rest;
            continue;
        }
        let (more, rest) = match control >> 5 {
            7 => rest.split_first().map(|(more, rest)| (usize::from(*more), rest))?,
            _ => (0, rest),
        };
        let (low, rest) = rest.split_first()?;
        let distance = ((control & 0x1f) << 8 | usize::from(*low)) + 1;
        let start = output.len().checked_sub(distance)?;
        let end = start + (control >> 5) + more + 2;
        if end + distance > length {
            return None;
        }
        // The match may reach into the bytes that it makes.
        for place in start..end {
            output.push(output[place]);
        }
        input = rest;
    }
    (output.len() == length).then_some(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_returns(input: &[u8]) {
        if let Some(compressed) = compress(input, input.len() + input.len() / 16 + 8) {
            assert!(input.len() <= compressed.len() * EXPANSION_MAX);
            assert_eq!(decompress(&compressed, input.len()).as_deref(), Some(input));
            assert_eq!(decompress(&compressed, input.len() + 1), None);
            assert_eq!(decompress(&compressed, input.len() - 1), None);
        }
    }

    #[test]
    fn compressed_bytes_come_back() {
        let mut state = 1_u32;
        for length in 3..400 {
            for letters in [1, 2, 3, 200] {
                let random = (0..length).map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 16) as u8 % letters
                });
                assert_returns(&random.collect::<Vec<_>>());
            }
        }
        let far: Vec<u8> = (0..40_000_u32).flat_map(|at| (at / 3).to_le_bytes()).collect();
        assert_returns(&far);
        assert_returns(&[b'a'; 100_000]);
    }

    #[test]
    fn what_does_not_become_shorter_is_not_compressed() {
        assert_eq!(compress(b"abcdefghijklmnopqrstuvwxyz", 22), None);
        assert_eq!(compress(b"aa", 2), None);
        assert_eq!(compress(b"", 0), None);
    }

    #[test]
    fn malformed_bytes_are_refused() {
        for (input, length) in [
            (&b""[..], 1),
            (b"\x02ab", 3),
            (b"\x00", 1),
            (b"\x00a\x20", 4),
            (b"\x00a\xe0", 10),
            (b"\x00a\xe0\x00", 10),
            // A match before the first byte.
            (b"\x20\x00", 3),
            (b"\x00a\x20\x01", 4),
            (b"\x00a\x20\x00", 3),
            (b"\x00a\xe0\xff\x00", 264),
            (b"\x05abcdef", 5),
        ] {
            assert_eq!(decompress(input, length), None, "{}", input.escape_ascii());
        }
        assert_eq!(decompress(b"\x00a\xe0\xff\x00", 265).as_deref(), Some(&[b'a'; 265][..]));
        assert_eq!(decompress(b"", 0).as_deref(), Some(&b""[..]));
    }
}
