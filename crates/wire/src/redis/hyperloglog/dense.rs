//! Dense form: 6 bits for each register, the lowest bits of the bytes first.

use super::REGISTERS;

const BITS: usize = 6;
const MASK: u16 = (1 << BITS) - 1;

/// Bytes of all registers.
pub(super) const BYTES: usize = REGISTERS * BITS / 8;

/// Returns the bytes in which a register is, as a number, with the place of the first one and of
/// the lowest bit.
fn word(registers: &[u8], index: usize) -> (u16, usize, usize) {
    let (byte, shift) = (index * BITS / 8, index * BITS % 8);
    let high = registers.get(byte + 1).copied().unwrap_or(0);
    (u16::from_le_bytes([registers[byte], high]), byte, shift)
}

/// Returns the rank of a register.
pub(super) fn get(registers: &[u8], index: usize) -> u8 {
    let (word, _, shift) = word(registers, index);
    (word >> shift & MASK) as u8
}

/// Raises a register to at least this rank. Returns whether it was less.
pub(super) fn raise(registers: &mut [u8], index: usize, rank: u8) -> bool {
    let (word, byte, shift) = word(registers, index);
    let rank = u16::from(rank);
    if word >> shift & MASK >= rank {
        return false;
    }
    let [low, high] = (word & !(MASK << shift) | rank << shift).to_le_bytes();
    registers[byte] = low;
    if let Some(byte) = registers.get_mut(byte + 1) {
        *byte = high;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_share_bytes_and_keep_their_ranks() {
        let mut registers = vec![0; BYTES];
        let rank = |index: usize| (index * 7 % 52) as u8;
        for index in (0..REGISTERS).rev() {
            assert_eq!(raise(&mut registers, index, rank(index)), rank(index) > 0);
        }
        for index in 0..REGISTERS {
            assert_eq!(get(&registers, index), rank(index));
            assert!(!raise(&mut registers, index, rank(index)));
        }
        assert_eq!(registers[..3], [0b1100_0000, 0b1110_0001, 0b0101_0100]);
    }
}
