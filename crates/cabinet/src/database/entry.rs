//! Entry API: read-modify-write of one record, like the entry of a map.

use super::Database;
use crate::{Change, Meta, Result};

type Modify<'e> = dyn FnMut(&mut Vec<u8>) + 'e;

/// A key whose record is changed atomically, see [`Database::entry`]. Nothing happens before the
/// last step: [`or_insert`](Self::or_insert), [`or_insert_with`](Self::or_insert_with) or
/// [`or_nothing`](Self::or_nothing).
#[must_use = "nothing is changed before the last step"]
pub struct RecordEntry<'e> {
    database: &'e Database,
    key: &'e [u8],
    modify: Vec<Box<Modify<'e>>>,
}

impl Database {
    /// Returns an entry: the record of a key, to be changed or created in one atomic step.
    ///
    /// ```
    /// # fn main() -> cabinet::Result<()> {
    /// let database = cabinet::Database::open("*")?;
    /// for _ in 0..3 {
    ///     database.entry(b"tally").and_modify(|value| value.push(b'|')).or_insert(b"|")?;
    /// }
    /// assert_eq!(database.get(b"tally")?.as_deref(), Some(&b"|||"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn entry<'e>(&'e self, key: &'e [u8]) -> RecordEntry<'e> {
        RecordEntry { database: self, key, modify: Vec::new() }
    }
}

impl<'e> RecordEntry<'e> {
    /// Changes the value of an existing record, which keeps its flags and expiry. `modify` may run
    /// again if the step is repeated, and must not call the database.
    pub fn and_modify(mut self, modify: impl FnMut(&mut Vec<u8>) + 'e) -> Self {
        self.modify.push(Box::new(modify));
        self
    }

    /// Stores `value` if there is no record. Returns the current value.
    pub fn or_insert(self, value: &[u8]) -> Result<Vec<u8>> {
        self.or_insert_with(|| value.to_vec())
    }

    /// Stores the result of `make` if there is no record. Returns the current value. `make` must
    /// not call the database.
    pub fn or_insert_with(self, mut make: impl FnMut() -> Vec<u8>) -> Result<Vec<u8>> {
        Ok(self.apply(|| Some(make()))?.unwrap_or_default())
    }

    /// Creates no record. Returns the current value; `None` if there is none.
    pub fn or_nothing(self) -> Result<Option<Vec<u8>>> {
        self.apply(|| None)
    }

    fn apply(mut self, mut make: impl FnMut() -> Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        self.database.modify(self.key, |entry| {
            let (value, meta) = match entry {
                Some(entry) => {
                    let mut value = entry.value.to_vec();
                    for modify in &mut self.modify {
                        modify(&mut value);
                    }
                    if value == entry.value {
                        return (Change::Keep, Some(value));
                    }
                    (value, entry.meta)
                }
                None => match make() {
                    Some(value) => (value, Meta::NONE),
                    None => return (Change::Keep, None),
                },
            };
            (Change::Put(value.clone(), meta), Some(value))
        })
    }
}
