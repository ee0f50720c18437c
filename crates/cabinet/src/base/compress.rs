//! Compression of single values, by LZ4 or Zstandard.
//!
//! A compressed value is the uncompressed length, in bytes, as a LEB128 number, followed by an LZ4
//! block or a Zstandard frame. The flags of the record tell which.

use crate::base::varint;
use crate::limits::VALUE_BYTES_MAX;
use crate::{Error, Result};

/// How values are stored. A value that does not shrink is stored as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Uncompressed.
    #[default]
    None,
    /// LZ4 block format: fast. Needs the feature `lz4`.
    Lz4,
    /// Zstandard: small. Needs the feature `zstd`.
    Zstd,
}

/// Whether this build has all algorithms.
pub(crate) const HAS_ALL: bool = cfg!(all(feature = "lz4", feature = "zstd"));

/// Fails if this build lacks an algorithm.
#[inline]
pub(crate) fn require(compression: Compression) -> Result<()> {
    match compression {
        Compression::Lz4 if !cfg!(feature = "lz4") => Err(Error::without_feature(
            "values compressed with LZ4",
            "build the crate tyrant-cabinet with its feature `lz4`",
        )),
        Compression::Zstd if !cfg!(feature = "zstd") => Err(Error::without_feature(
            "values compressed with Zstandard",
            "build the crate tyrant-cabinet with its feature `zstd`",
        )),
        Compression::None | Compression::Lz4 | Compression::Zstd => Ok(()),
    }
}

/// Minimum size of a value that is compressed, in bytes: shorter ones would gain almost nothing.
const COMPRESS_BYTES_MIN: usize = 64;

/// Maximum size of the encoded uncompressed length, in bytes.
const LENGTH_BYTES_MAX: usize = 9;

/// Maximum number of bytes that one byte of an LZ4 block can expand to: a length byte adds at most
/// 255.
const LZ4_RATIO_MAX: usize = 255;

/// Size of the shortest Zstandard block, in bytes: a header of 3 and the byte that it repeats.
const ZSTD_BLOCK_BYTES_MIN: usize = 4;

/// Maximum number of bytes that one Zstandard block can expand to.
const ZSTD_BLOCK_CONTENT_BYTES_MAX: usize = 128 * 1024;

/// Reason why bytes are not a compressed value.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecompressError {
    /// The length is missing or invalid.
    #[error("the length before the compressed bytes is damaged")]
    Length,
    /// The length is over the limit of values, or more than the compressed bytes can expand to.
    #[error("the compressed bytes claim to stand for {0}")]
    TooLong(u64),
    /// The bytes are not output of the algorithm, or expand to another number of bytes.
    #[error("the compressed bytes are damaged")]
    Damaged,
    /// This build lacks the algorithm.
    #[error("this build lacks the compression")]
    Missing(Compression),
}

impl DecompressError {
    /// Returns the error of a read: damage, unless this build lacks the algorithm.
    pub(crate) fn or_damage(self, damage: impl FnOnce(String) -> Error) -> Error {
        match self {
            Self::Missing(compression) => {
                require(compression).err().unwrap_or_else(|| damage(self.to_string()))
            }
            error => damage(error.to_string()),
        }
    }
}

/// Returns the compressed form of `value`, if it is shorter.
pub(crate) fn compress(value: &[u8], compression: Compression) -> Option<Vec<u8>> {
    if compression == Compression::None || value.len() < COMPRESS_BYTES_MIN {
        return None;
    }
    let mut output = Vec::new();
    varint::push(&mut output, value.len() as u64);
    match compression {
        Compression::None => return None,
        Compression::Lz4 => lz4::compress(value, &mut output)?,
        Compression::Zstd => zstandard::compress(value, &mut output)?,
    }
    (output.len() < value.len()).then_some(output)
}

/// Returns the value whose compressed form is `bytes`. Allocates no more than `bytes` can expand
/// to, and never more than the longest value takes.
pub(crate) fn decompress(
    bytes: &[u8],
    compression: Compression,
) -> Result<Vec<u8>, DecompressError> {
    if !HAS_ALL && require(compression).is_err() {
        return Err(DecompressError::Missing(compression));
    }
    let (length, compressed) =
        varint::split::<LENGTH_BYTES_MAX>(bytes).ok_or(DecompressError::Length)?;
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
        Compression::Lz4 => lz4::decompress(compressed, length).ok_or(DecompressError::Damaged)?,
        Compression::Zstd => {
            zstandard::decompress(compressed, length).ok_or(DecompressError::Damaged)?
        }
    };
    if value.len() == length { Ok(value) } else { Err(DecompressError::Damaged) }
}

/// LZ4. Each function returns `None` if it fails.
#[cfg(feature = "lz4")]
mod lz4 {
    use lz4_flex::block;

    /// Appends the compressed form.
    pub(super) fn compress(value: &[u8], output: &mut Vec<u8>) -> Option<()> {
        let prefix = output.len();
        output.resize(prefix + block::get_maximum_output_size(value.len()), 0);
        let written = block::compress_into(value, &mut output[prefix..]).ok()?;
        output.truncate(prefix + written);
        Some(())
    }

    pub(super) fn decompress(compressed: &[u8], length: usize) -> Option<Vec<u8>> {
        block::decompress(compressed, length).ok()
    }
}

/// Zstandard. Each function returns `None` if it fails.
#[cfg(feature = "zstd")]
mod zstandard {
    use std::cell::RefCell;
    use zstd::bulk::{Compressor, Decompressor};

    /// Zstandard's own default.
    const LEVEL: i32 = 3;

    thread_local! {
        // Creating a context costs more than compressing a small value with it.
        static COMPRESSOR: RefCell<Option<Compressor<'static>>> =
            RefCell::new(Compressor::new(LEVEL).ok());
        static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> =
            RefCell::new(Decompressor::new().ok());
    }

    /// Appends the compressed form.
    pub(super) fn compress(value: &[u8], output: &mut Vec<u8>) -> Option<()> {
        let prefix = output.len();
        output.resize(prefix + zstd::zstd_safe::compress_bound(value.len()), 0);
        let written = COMPRESSOR.with_borrow_mut(|compressor| {
            compressor.as_mut()?.compress_to_buffer(value, &mut output[prefix..]).ok()
        })?;
        output.truncate(prefix + written);
        Some(())
    }

    pub(super) fn decompress(compressed: &[u8], length: usize) -> Option<Vec<u8>> {
        DECOMPRESSOR.with_borrow_mut(|decompressor| {
            decompressor.as_mut()?.decompress(compressed, length).ok()
        })
    }
}

/// Placeholder for an algorithm that this build lacks.
#[cfg(not(all(feature = "lz4", feature = "zstd")))]
mod absent {
    pub(super) fn compress(_: &[u8], _: &mut Vec<u8>) -> Option<()> {
        None
    }

    pub(super) fn decompress(_: &[u8], _: usize) -> Option<Vec<u8>> {
        None
    }
}
#[cfg(not(feature = "lz4"))]
use absent as lz4;
#[cfg(not(feature = "zstd"))]
use absent as zstandard;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALGORITHMS: [Compression; 2] = [Compression::Lz4, Compression::Zstd];

    fn with_length(length: usize, compressed: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        varint::push(&mut bytes, length as u64);
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
            // A few bytes cannot expand to a gigabyte.
            let claim = with_length(VALUE_BYTES_MAX, &[0; 16]);
            assert_eq!(
                decompress(&claim, algorithm),
                Err(DecompressError::TooLong(VALUE_BYTES_MAX as u64))
            );
            // No number of bytes can expand to more than the longest value.
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
            let (_, body) = varint::split::<LENGTH_BYTES_MAX>(&compressed).unwrap();
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
                let prefix = compressed.len() - varint::split::<LENGTH_BYTES_MAX>(&compressed).unwrap().1.len();
                let at = prefix + at.index(compressed.len() - prefix);
                compressed[at] ^= 1 << bit;
                if let Ok(read) = decompress(&compressed, algorithm) {
                    prop_assert_eq!(read.len(), value.len());
                }
            }
        }
    }
}
