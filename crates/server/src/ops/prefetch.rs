//! Prefetch of groups of keys: the database gets all keys of a group before the first lookup, so
//! that their cache misses overlap.

use crate::store::view::View;

/// Most keys of a group.
pub(crate) const KEYS_AHEAD_MAX: usize = 16;

/// The keys of one request, each group of them prefetched before the lookup of its first key.
pub(crate) struct Grouped<'d, 'k, I> {
    database: &'d View,
    keys: I,
    group: [&'k [u8]; KEYS_AHEAD_MAX],
    next: usize,
    count: usize,
}

impl<'d, 'k, I: Iterator<Item = &'k [u8]>> Grouped<'d, 'k, I> {
    pub(crate) fn new(database: &'d View, keys: I) -> Self {
        Self { database, keys, group: [&[]; KEYS_AHEAD_MAX], next: 0, count: 0 }
    }
}

impl<'k, I: Iterator<Item = &'k [u8]>> Iterator for Grouped<'_, 'k, I> {
    type Item = &'k [u8];

    #[inline]
    fn next(&mut self) -> Option<&'k [u8]> {
        if self.next == self.count {
            self.next = 0;
            self.count = 0;
            while self.count < KEYS_AHEAD_MAX
                && let Some(key) = self.keys.next()
            {
                self.group[self.count] = key;
                self.count += 1;
            }
            if self.count > 1 {
                self.database.prefetch(&self.group[..self.count]);
            }
        }
        let key = *self.group[..self.count].get(self.next)?;
        self.next += 1;
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cabinet::Database;

    #[test]
    fn grouping_keeps_every_key_in_its_order() {
        let database = View::from(Database::open("*").expect("a database in memory"));
        for count in [0, 1, KEYS_AHEAD_MAX - 1, KEYS_AHEAD_MAX, KEYS_AHEAD_MAX + 1, 100] {
            let keys: Vec<Vec<u8>> = (0..count).map(|key| vec![key as u8]).collect();
            let grouped: Vec<_> = Grouped::new(&database, keys.iter().map(Vec::as_slice)).collect();
            assert_eq!(grouped, keys);
        }
    }
}
