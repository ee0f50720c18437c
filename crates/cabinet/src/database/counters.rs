//! Counters: records that hold a number.

use super::Database;
#[cfg(feature = "table")]
use super::check_key;
use crate::{Change, Result};

impl Database {
    /// Adds to a little-endian 32-bit integer, wrapping. Returns the sum. Creates the record if
    /// there is none. Fails with [`Error::NotANumber`] if the value is not 4 bytes long. In a
    /// table, adds to the column [`crate::table::NUMBER_COLUMN`], as text.
    pub fn add_int(&self, key: &[u8], addend: i32) -> Result<i32> {
        #[cfg(feature = "table")]
        if self.table().is_some() {
            return Ok(self.add_double(key, f64::from(addend))? as i32);
        }
        self.try_update(key, |entry| Change::add_int(entry.as_ref(), addend)).map(|(sum, _)| sum)
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
        self.try_update(key, |entry| Change::add_double(entry.as_ref(), addend)).map(|(sum, _)| sum)
    }
}
