//! Parameters: limits of the length of values and of ids.

use crate::limits::{FIXED_ID_MAX, FIXED_WIDTH_BYTES_MAX};
use crate::{Error, Options, Result};

/// Bytes of the longest value by default.
const WIDTH_DEFAULT: u64 = 255;

/// Bytes of Tokyo Cabinet's file by default.
const LIMIT_BYTES_DEFAULT: u64 = 256 << 20;

/// Tokyo Cabinet rounds the size of its file up to this.
const PAGE_BYTES: u64 = 4096;

/// Bytes of Tokyo Cabinet's file before its first record.
const HEADER_BYTES: u64 = 256;

/// Parameters that a database was created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parameters {
    /// Longest value, in bytes.
    pub(super) width: u64,
    /// Greatest length of Tokyo Cabinet's file, in bytes.
    pub(super) limit_bytes: u64,
}

impl Parameters {
    /// Returns the parameters of a new database.
    pub(super) fn new(options: &Options) -> Result<Self> {
        Self { width: WIDTH_DEFAULT, limit_bytes: LIMIT_BYTES_DEFAULT }.changed(options)
    }

    /// Returns the parameters with those of the options replaced.
    pub(super) fn changed(self, options: &Options) -> Result<Self> {
        let width = options.width.filter(|width| *width > 0).unwrap_or(self.width);
        if width > FIXED_WIDTH_BYTES_MAX {
            let what =
                format!("a width of {width} bytes: choose from 1 to {FIXED_WIDTH_BYTES_MAX}");
            return Err(Error::InvalidArgument(what));
        }
        let limit_bytes = match options.limit_bytes.filter(|bytes| *bytes > 0) {
            Some(bytes) => bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(bytes),
            None => self.limit_bytes,
        };
        Ok(Self { width, limit_bytes })
    }

    /// Returns the greatest id: the records that fit into Tokyo Cabinet's file, at least one.
    pub(super) fn id_max(self) -> u64 {
        let length_bytes = match self.width {
            ..=0xff => 1,
            0x100..=0xffff => 2,
            _ => 4,
        };
        let records = self.limit_bytes.saturating_sub(HEADER_BYTES) / (self.width + length_bytes);
        records.clamp(1, FIXED_ID_MAX)
    }

    /// Encodes the parameters for the manifest: width and bytes of the file, 8 bytes each, then
    /// zeros.
    pub(super) fn encode(self) -> [u8; 24] {
        let mut parameters = [0; 24];
        parameters[..8].copy_from_slice(&self.width.to_le_bytes());
        parameters[8..16].copy_from_slice(&self.limit_bytes.to_le_bytes());
        parameters
    }

    /// Decodes the parameters of the manifest. The width is clamped to its limits.
    pub(super) fn decode(parameters: &[u8; 24]) -> Self {
        let [width, limit_bytes, _] = *parameters.as_chunks::<8>().0 else {
            return Self { width: WIDTH_DEFAULT, limit_bytes: LIMIT_BYTES_DEFAULT };
        };
        Self {
            width: u64::from_le_bytes(width).clamp(1, FIXED_WIDTH_BYTES_MAX),
            limit_bytes: u64::from_le_bytes(limit_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(width: Option<u64>, limit_bytes: Option<u64>) -> Result<Parameters> {
        let mut options = Options::default();
        (options.width, options.limit_bytes) = (width, limit_bytes);
        Parameters::new(&options)
    }

    #[test]
    fn the_greatest_id_is_that_of_tokyo_cabinets_file() {
        // Measured with Tokyo Cabinet.
        for (width, limit_bytes, id_max) in [
            (None, None, 1_048_575),
            (Some(8), Some(1000), 426),
            (Some(8), Some(10), 426),
            (Some(8), Some(100_000), 11_349),
            (Some(3), Some(1 << 10), 960),
            (None, Some(100_000), 399),
        ] {
            assert_eq!(parameters(width, limit_bytes).unwrap().id_max(), id_max);
        }
    }

    #[test]
    fn the_size_of_a_length_depends_on_the_width() {
        let limit_bytes = 1 << 30;
        for (width, length_bytes) in [(255, 1), (256, 2), (65_535, 2), (65_536, 4)] {
            let id_max = parameters(Some(width), Some(limit_bytes)).unwrap().id_max();
            assert_eq!(id_max, (limit_bytes - 256) / (width + length_bytes), "{width}");
        }
    }

    #[test]
    fn parameters_have_limits() {
        let max = FIXED_WIDTH_BYTES_MAX;
        assert!(parameters(Some(max - 1), None).is_ok());
        assert!(parameters(Some(max), None).is_ok());
        assert!(parameters(Some(max + 1), None).is_err());
        let most = parameters(Some(1), Some(u64::MAX)).unwrap().id_max();
        assert!((FIXED_ID_MAX - 128..=FIXED_ID_MAX).contains(&most), "{most}");
        assert_eq!(parameters(Some(max), Some(1)).unwrap().id_max(), 1);
    }

    #[test]
    fn parameters_are_read_as_they_were_written_and_others_are_clamped() {
        let parameters = parameters(Some(70_000), Some(12_345)).unwrap();
        assert_eq!(Parameters::decode(&parameters.encode()), parameters);
        assert!(Parameters::decode(&[0xff; 24]).width <= FIXED_WIDTH_BYTES_MAX);
        assert!(Parameters::decode(&[0; 24]).id_max() >= 1);
    }
}
