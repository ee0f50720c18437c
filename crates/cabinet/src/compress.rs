//! Compression of single values.
//!
//! A compressed value is the uncompressed length, in bytes, as a LEB128 number, followed by an
//! LZ4 block or a Zstandard frame. Which of the two it is stands elsewhere in the record.

use crate::limits::VALUE_BYTES_MAX;
use std::cell::RefCell;
use zstd::bulk::{Compressor, Decompressor};

/// How values are stored. A value that does not shrink is stored as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// LZ4 block format: fast.
    Lz4,
    /// Zstandard: small.
    Zstd,
}

/// Shorter values are stored as they are: there is next to nothing to gain.
const COMPRESS_BYTES_MIN: usize = 64;

/// Zstandard's own default.
const ZSTD_LEVEL: i32 = 3;

/// Most bytes that one byte of an LZ4 block can stand for: a length byte adds at most 255.
const LZ4_RATIO_MAX: usize = 255;

/// Bytes of the shortest Zstandard block: a header of 3 and the byte that it repeats.
const ZSTD_BLOCK_BYTES_MIN: usize = 4;

/// Most bytes that one Zstandard block can stand for.
const ZSTD_BLOCK_CONTENT_BYTES_MAX: usize = 128 * 1024;

thread_local! {
    // Making a context costs more than compressing a small value with it.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = RefCell::new(Compressor::new(ZSTD_LEVEL).ok());
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = RefCell::new(Decompressor::new().ok());
}

/// Why bytes are not a compressed value.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecompressError {
    /// The length is missing, or is no number.
    #[error("the length before the compressed bytes is damaged")]
    Length,
    /// The length is over the limit of values, or more than so few bytes can stand for.
    #[error("the compressed bytes claim to stand for {0}")]
    TooLong(u64),
    /// The bytes are not what the algorithm makes, or stand for another number of bytes.
    #[error("the compressed bytes are damaged")]
    Damaged,
}

/// The compressed form of `value`, if it is shorter.
pub(crate) fn compress(value: &[u8], compression: Compression) -> Option<Vec<u8>> {
    if compression == Compression::None || value.len() < COMPRESS_BYTES_MIN {
        return None;
    }
    let mut output = Vec::new();
    push_length(&mut output, value.len());
    let prefix = output.len();
    match compression {
        Compression::None => return None,
        Compression::Lz4 => {
            output.resize(prefix + lz4_flex::block::get_maximum_output_size(value.len()), 0);
            let written = lz4_flex::block::compress_into(value, &mut output[prefix..]).ok()?;
            output.truncate(prefix + written);
        }
        Compression::Zstd => {
            output.resize(prefix + zstd::zstd_safe::compress_bound(value.len()), 0);
            let written = COMPRESSOR.with_borrow_mut(|compressor| {
                compressor.as_mut()?.compress_to_buffer(value, &mut output[prefix..]).ok()
            })?;
            output.truncate(prefix + written);
        }
    }
    (output.len() < value.len()).then_some(output)
}

/// The value whose compressed form is `bytes`. Allocates no more than `bytes` can stand for, and
/// never more than the longest value takes.
pub(crate) fn decompress(
    bytes: &[u8],
    compression: Compression,
) -> Result<Vec<u8>, DecompressError> {
    let (length, compressed) = split_length(bytes).ok_or(DecompressError::Length)?;
    let possible = match compression {
        Compression::None => compressed.len(),
        Compression::Lz4 => compressed.len().saturating_mul(LZ4_RATIO_MAX),
        Compression::Zstd => {
            (compressed.len() / ZSTD_BLOCK_BYTES_MIN).saturating_mul(ZSTD_BLOCK_CONTENT_BYTES_MAX)
        }
    };
    let length = usize::try_from(length)
        .ok()
        .filter(|&length| length <= VALUE_BYTES_MAX.min(possible))
        .ok_or(DecompressError::TooLong(length))?;
    let value = match compression {
        Compression::None => compressed.to_vec(),
        Compression::Lz4 => {
            lz4_flex::block::decompress(compressed, length).map_err(|_| DecompressError::Damaged)?
        }
        Compression::Zstd => DECOMPRESSOR.with_borrow_mut(|decompressor| {
            let decompressor = decompressor.as_mut().ok_or(DecompressError::Damaged)?;
            decompressor.decompress(compressed, length).map_err(|_| DecompressError::Damaged)
        })?,
    };
    if value.len() == length { Ok(value) } else { Err(DecompressError::Damaged) }
}

fn push_length(output: &mut Vec<u8>, length: usize) {
    let mut rest = length;
    while rest >= 0x80 {
        output.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    output.push(rest as u8);
}

/// The number that `bytes` begins with, and what follows it.
fn split_length(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut length = 0u64;
    for (index, &byte) in bytes.iter().enumerate().take(9) {
        length |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Some((length, &bytes[index + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALGORITHMS: [Compression; 2] = [Compression::Lz4, Compression::Zstd];

    fn with_length(length: usize, compressed: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_length(&mut bytes, length);
        bytes.extend_from_slice(compressed);
        bytes
    }

    #[test]
    fn what_shrinks_comes_back_whole() {
        for algorithm in ALGORITHMS {
            for length in [64, 65, 1000, 100_000, 3_000_000] {
                let value: Vec<u8> = (0..length).map(|at| (at / 50 % 7) as u8).collect();
                let compressed = compress(&value, algorithm).unwrap();
                assert!(compressed.len() < value.len());
                assert_eq!(decompress(&compressed, algorithm).unwrap(), value);
            }
        }
    }

    #[test]
    fn values_that_would_not_shrink_are_left_alone() {
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(1000)
        .collect();
        for algorithm in ALGORITHMS {
            assert_eq!(compress(&noise, algorithm), None);
            assert_eq!(compress(&[0; COMPRESS_BYTES_MIN - 1], algorithm), None);
            assert!(compress(&[0; COMPRESS_BYTES_MIN], algorithm).is_some());
        }
        assert_eq!(compress(&[0; 1000], Compression::None), None);
    }

    #[test]
    fn a_claimed_length_is_bounded_by_the_bytes_and_by_the_limit_of_values() {
        for algorithm in ALGORITHMS {
            // A handful of bytes cannot stand for a gigabyte.
            let claim = with_length(VALUE_BYTES_MAX, &[0; 16]);
            assert_eq!(
                decompress(&claim, algorithm),
                Err(DecompressError::TooLong(VALUE_BYTES_MAX as u64))
            );
            // Nor can any number of them stand for more than the longest value.
            let claim = with_length(VALUE_BYTES_MAX + 1, &vec![0; VALUE_BYTES_MAX / 200]);
            assert_eq!(
                decompress(&claim, algorithm),
                Err(DecompressError::TooLong(VALUE_BYTES_MAX as u64 + 1))
            );
            assert_eq!(
                decompress(&[0xff; 32], algorithm),
                Err(DecompressError::Length),
                "a length without end"
            );
            assert_eq!(decompress(&[], algorithm), Err(DecompressError::Length));
        }
    }

    #[test]
    fn a_wrong_length_is_noticed() {
        for algorithm in ALGORITHMS {
            let compressed = compress(&[7; 1000], algorithm).unwrap();
            let (_, body) = split_length(&compressed).unwrap();
            for wrong in [999, 1001] {
                assert_eq!(
                    decompress(&with_length(wrong, body), algorithm),
                    Err(DecompressError::Damaged)
                );
            }
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_refused_or_read_but_never_crash(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            length in 0usize..100_000,
        ) {
            for algorithm in ALGORITHMS {
                let _ = decompress(&bytes, algorithm);
                if let Ok(value) = decompress(&with_length(length, &bytes), algorithm) {
                    prop_assert_eq!(value.len(), length);
                }
            }
        }

        #[test]
        fn a_flipped_bit_never_changes_the_length(
            value in proptest::collection::vec(0u8..4, 64..2000),
            at in any::<prop::sample::Index>(),
            bit in 0u8..8,
        ) {
            for algorithm in ALGORITHMS {
                let Some(mut compressed) = compress(&value, algorithm) else { continue };
                let prefix = compressed.len() - split_length(&compressed).unwrap().1.len();
                let at = prefix + at.index(compressed.len() - prefix);
                compressed[at] ^= 1 << bit;
                if let Ok(read) = decompress(&compressed, algorithm) {
                    prop_assert_eq!(read.len(), value.len());
                }
            }
        }
    }
}
