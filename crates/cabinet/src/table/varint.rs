//! Lengths in front of what they measure: base 128, least significant group first, a set high bit
//! says that another byte follows.

/// Appends a number.
pub(super) fn push(output: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        output.push(number as u8 | 0x80);
        number >>= 7;
    }
    output.push(number as u8);
}

/// Takes a number from the front of `input`; `None` where there is none of 64 bits.
pub(super) fn take(input: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = input.split_first()?;
        *input = rest;
        let group = u64::from(byte & 0x7f);
        if shift == 63 && group > 1 {
            return None;
        }
        number |= group << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Takes as many bytes as a number in front of them says.
pub(super) fn take_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take(input)?).ok()?;
    let (bytes, rest) = input.split_at_checked(len)?;
    *input = rest;
    Some(bytes)
}

/// Appends bytes with their number in front.
pub(super) fn push_bytes(output: &mut Vec<u8>, bytes: &[u8]) {
    push(output, bytes.len() as u64);
    output.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(number: u64, rest: [u8; 2]) {
            let mut bytes = Vec::new();
            push(&mut bytes, number);
            bytes.extend_from_slice(&rest);
            let mut input = &bytes[..];
            prop_assert_eq!(take(&mut input), Some(number));
            prop_assert_eq!(input, &rest[..]);
        }
    }

    #[test]
    fn what_is_cut_or_too_long_is_refused() {
        assert_eq!(take(&mut &[0x80][..]), None);
        assert_eq!(take(&mut &[0xff; 10][..]), None);
        assert_eq!(take_bytes(&mut &[3, 1, 2][..]), None);
    }
}
