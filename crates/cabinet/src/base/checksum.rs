//! CRC-32C checksum, fast for short records as well as for pages.
//!
//! The `crc32c` crate computes long inputs with three streams at once. For short inputs most of its
//! time is spent on the bytes before the first aligned word. Here a short input takes one SSE 4.2
//! instruction per eight bytes, aligned or not.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "instructions that not all processors have; see the SAFETY line")
)]

/// Maximum size of an input that is computed in one stream, in bytes. Above that, three streams are
/// faster.
#[cfg(target_arch = "x86_64")]
const ONE_STREAM_BYTES_MAX: usize = 384;

/// Returns the checksum `sum` of earlier bytes, continued with `bytes`. The first `sum` is 0, or a
/// salt.
#[inline]
pub(crate) fn append(sum: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= ONE_STREAM_BYTES_MAX && std::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions.
        return unsafe { append_in_one_stream(sum, bytes) };
    }
    crc32c::crc32c_append(sum, bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn append_in_one_stream(sum: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};

    let (words, mut rest) = bytes.as_chunks::<8>();
    let sum = words
        .iter()
        .fold(u64::from(!sum), |sum, word| _mm_crc32_u64(sum, u64::from_le_bytes(*word)));
    // The instruction leaves the upper half zero.
    let mut sum = sum as u32;
    if let Some((half, after)) = rest.split_first_chunk::<4>() {
        sum = _mm_crc32_u32(sum, u32::from_le_bytes(*half));
        rest = after;
    }
    !rest.iter().fold(sum, |sum, byte| _mm_crc32_u8(sum, *byte))
}

#[cfg(test)]
mod tests {
    use super::append;

    #[test]
    fn the_check_value_of_crc_32c_is_computed() {
        assert_eq!(append(0, b"123456789"), 0xe306_9283);
        assert_eq!(append(append(0, b"1234"), b"56789"), 0xe306_9283);
    }

    #[test]
    fn all_lengths_alignments_and_beginnings_are_as_in_the_crate() {
        let bytes: Vec<u8> = (0..1000_u32).map(|number| ((number * 167) >> 3) as u8).collect();
        for start in 0..9 {
            for len in (0..420).chain([900, 991]) {
                let part = &bytes[start..start + len];
                for sum in [0, 1, 0xdead_beef, u32::MAX] {
                    let expected = crc32c::crc32c_append(sum, part);
                    assert_eq!(append(sum, part), expected, "{start} {len} {sum}");
                }
            }
        }
    }
}
