//! Counters: records that hold a number.

use super::Database;
#[cfg(feature = "table")]
use super::check_key;
use crate::{Change, Error, Meta, Result};

impl Database {
    /// Adds to a little-endian 32-bit integer, wrapping. Returns the sum. Creates the record if
    /// there is none. Fails with [`Error::NotANumber`] if the value is not 4 bytes long. In a
    /// table, adds to the column [`crate::table::NUMBER_COLUMN`], as text.
    pub fn add_int(&self, key: &[u8], addend: i32) -> Result<i32> {
        #[cfg(feature = "table")]
        if self.table().is_some() {
            return Ok(self.add_double(key, f64::from(addend))? as i32);
        }
        self.add(key, move |number: Option<[u8; 4]>| {
            let sum = number.map_or(0, i32::from_le_bytes).wrapping_add(addend);
            Some((sum.to_le_bytes(), sum))
        })
    }

    /// Adds to a little-endian IEEE 754 double. Returns the sum. Creates the record if there is
    /// none. Fails with [`Error::NotANumber`] if the value is not 8 bytes long, or the sum is
    /// not a number. In a table, adds to the column [`crate::table::NUMBER_COLUMN`], as text.
    pub fn add_double(&self, key: &[u8], addend: f64) -> Result<f64> {
        #[cfg(feature = "table")]
        if let Some(table) = self.table() {
            self.enter_to_write()?;
            check_key(key)?;
            let sum = table.add(&table.key_to_put(key, self.wait)?, addend, self.wait)?;
            self.acknowledge()?;
            return Ok(sum);
        }
        self.add(key, move |number: Option<[u8; 8]>| {
            let sum = number.map_or(0.0, f64::from_le_bytes) + addend;
            (!sum.is_nan()).then_some((sum.to_le_bytes(), sum))
        })
    }

    fn add<const WIDTH: usize, T>(
        &self,
        key: &[u8],
        add: impl Fn(Option<[u8; WIDTH]>) -> Option<([u8; WIDTH], T)>,
    ) -> Result<T> {
        self.update(key, |entry| {
            let (number, meta) = match entry {
                None => (None, Meta::NONE),
                Some(entry) => match <[u8; WIDTH]>::try_from(entry.value) {
                    Ok(number) => (Some(number), entry.meta),
                    Err(_) => return (Change::Keep, Err(Error::NotANumber { width: WIDTH })),
                },
            };
            match add(number) {
                Some((bytes, sum)) => (Change::Put(bytes.to_vec(), meta), Ok(sum)),
                None => (Change::Keep, Err(Error::NotANumber { width: WIDTH })),
            }
        })?
    }
}
