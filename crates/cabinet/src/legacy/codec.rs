//! Codecs: the encoding of values, plain or compressed one by one.

use super::number::ByteOrder;
use super::tcbs;
use crate::limits::VALUE_BYTES_MAX;
use bzip2::read::BzDecoder;
use flate2::read::DeflateDecoder;
use std::borrow::Cow;
use std::io::Read;

/// Most bytes per compressed byte beyond [`EXPANDED_BYTES_FREE`]: the most that DEFLATE reaches. A
/// value with more was made to exhaust the reader's memory.
const EXPANSION_MAX: usize = 1032;

/// Bytes that any number of compressed bytes may decompress to.
const EXPANDED_BYTES_FREE: usize = 16 << 20;

/// Encoding of the values of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Uncompressed.
    Plain,
    /// DEFLATE streams without header or checksum.
    Deflate,
    /// Bzip2 streams.
    Bzip,
    /// The library's own block-sorting compression, see [`tcbs`].
    Tcbs,
    /// Functions of the application.
    External,
}

impl Codec {
    /// Returns the codec for the options of a header. If there are several, the first applies.
    pub(super) fn of_options(options: u8) -> Self {
        [(2, Self::Deflate), (4, Self::Bzip), (8, Self::Tcbs), (16, Self::External)]
            .into_iter()
            .find_map(|(bit, codec)| (options & bit != 0).then_some(codec))
            .unwrap_or(Self::Plain)
    }

    /// Returns the name: `plain`, `deflate`, `bzip`, `tcbs` or `external`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Deflate => "deflate",
            Self::Bzip => "bzip",
            Self::Tcbs => "tcbs",
            Self::External => "external",
        }
    }

    /// Decodes a stored value, up to the longest value of a database.
    pub(super) fn decode(
        self,
        stored: &[u8],
        order: ByteOrder,
    ) -> Result<Cow<'_, [u8]>, &'static str> {
        let max = expanded_bytes_max(stored.len());
        match self {
            Self::Plain if stored.len() > VALUE_BYTES_MAX => Err("a value over the limit"),
            Self::Plain => Ok(Cow::Borrowed(stored)),
            Self::Deflate => inflate(DeflateDecoder::new(stored), max),
            Self::Bzip => inflate(BzDecoder::new(stored), max),
            Self::Tcbs => tcbs::decode(stored, order, max).map(Cow::Owned),
            Self::External => Err("encoded by functions of the application"),
        }
    }
}

fn expanded_bytes_max(stored: usize) -> usize {
    stored.saturating_mul(EXPANSION_MAX).clamp(EXPANDED_BYTES_FREE, VALUE_BYTES_MAX)
}

fn inflate(decoder: impl Read, max: usize) -> Result<Cow<'static, [u8]>, &'static str> {
    let mut value = Vec::new();
    let read = decoder.take(max as u64 + 1).read_to_end(&mut value);
    read.map_err(|_| "the compressed bytes are damaged")?;
    if value.len() > max {
        return Err("the decompressed value is over the limit");
    }
    Ok(Cow::Owned(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn deflate(value: &[u8]) -> Vec<u8> {
        let mut encoder =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::new(5));
        encoder.write_all(value).unwrap();
        encoder.finish().unwrap()
    }

    fn bzip(value: &[u8]) -> Vec<u8> {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::new(9));
        encoder.write_all(value).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn the_first_of_several_options_applies() {
        assert_eq!(Codec::of_options(0), Codec::Plain);
        assert_eq!(Codec::of_options(1), Codec::Plain);
        assert_eq!(Codec::of_options(2 | 4 | 8 | 16), Codec::Deflate);
        assert_eq!(Codec::of_options(1 | 4 | 8), Codec::Bzip);
        assert_eq!(Codec::of_options(8 | 16), Codec::Tcbs);
        assert_eq!(Codec::of_options(16), Codec::External);
    }

    #[test]
    fn compressed_bytes_decompress_up_to_the_limit_and_not_beyond() {
        // No DEFLATE stream expands this far, so only bzip2 needs the limit.
        let zeros = vec![0; EXPANDED_BYTES_FREE + 1];
        for (count, is_taken) in [
            (EXPANDED_BYTES_FREE - 1, true),
            (EXPANDED_BYTES_FREE, true),
            (EXPANDED_BYTES_FREE + 1, false),
        ] {
            let stored = bzip(&zeros[..count]);
            assert_eq!(expanded_bytes_max(stored.len()), EXPANDED_BYTES_FREE);
            let value = Codec::Bzip.decode(&stored, ByteOrder::Little);
            assert_eq!(value.is_ok(), is_taken, "{count}");
        }
    }

    #[test]
    fn a_plain_value_is_at_most_as_long_as_a_database_allows() {
        let zeros = vec![0; VALUE_BYTES_MAX + 1];
        for (count, is_taken) in
            [(VALUE_BYTES_MAX - 1, true), (VALUE_BYTES_MAX, true), (VALUE_BYTES_MAX + 1, false)]
        {
            let value = Codec::Plain.decode(&zeros[..count], ByteOrder::Little);
            assert_eq!(value.is_ok(), is_taken, "{count}");
        }
    }

    proptest! {
        #[test]
        fn values_come_back(value: Vec<u8>) {
            for (codec, stored) in
                [(Codec::Deflate, deflate(&value)), (Codec::Bzip, bzip(&value))]
            {
                let read = codec.decode(&stored, ByteOrder::Little).unwrap();
                prop_assert_eq!(&*read, &value[..]);
            }
        }

        #[test]
        fn damaged_bytes_are_refused_or_read_but_never_a_panic(bytes: Vec<u8>) {
            for codec in [Codec::Deflate, Codec::Bzip, Codec::Tcbs, Codec::External] {
                let _ = codec.decode(&bytes, ByteOrder::Big);
            }
        }
    }
}
