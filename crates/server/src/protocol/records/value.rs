//! Value reader: a value that is being read from a record.

use crate::ops::budget::Charge;
use crate::protocol::records::Result;
use cabinet::LargeValue;

/// A value that is being read. It does not change after it was opened.
pub struct Value(pub(crate) Kept);

pub(crate) enum Kept {
    Long(LargeValue),
    /// Bytes of the value, and their charge.
    Whole(Vec<u8>, #[expect(dead_code, reason = "given back when dropped")] Charge),
}

impl Value {
    /// Reads the whole value to verify its checksum.
    pub fn verify(&self) -> Result<()> {
        match &self.0 {
            // The value was verified when it was opened.
            Kept::Whole(..) => Ok(()),
            Kept::Long(long) => Ok(long.verify()?),
        }
    }

    /// Returns up to `count` bytes from `offset` on. Returns none at the end.
    pub fn read(&self, offset: u64, count: usize) -> Result<Vec<u8>> {
        match &self.0 {
            Kept::Whole(value, _) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(value.len());
                Ok(value[start..value.len().min(start.saturating_add(count))].to_vec())
            }
            Kept::Long(long) => {
                let left = usize::try_from(long.bytes().saturating_sub(offset));
                let mut piece = vec![0; count.min(left.unwrap_or(usize::MAX))];
                if !piece.is_empty() {
                    long.read(offset, &mut piece)?;
                }
                Ok(piece)
            }
        }
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Value").finish_non_exhaustive()
    }
}
