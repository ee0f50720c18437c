//! The iterator: goes through all keys of the database, as often as it is asked for the next one.

use crate::store::view::View;
use cabinet::{Error, Position, Result};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;

/// The iterators that a client may use: its own, and the one of the clients that have started none.
pub(crate) struct Iterators<'a> {
    pub(crate) own: &'a mut Option<Box<Cursor>>,
    pub(crate) shared: &'a Mutex<Cursor>,
    /// Whether this thread may wait for another that has the shared one.
    pub(crate) may_wait: bool,
}

impl Iterators<'_> {
    /// Starts both iterators, at a key if one is given. Returns whether there is a record there.
    pub(crate) fn begin(&mut self, database: &View, from: Option<&[u8]>) -> Result<bool> {
        let cursor = match from {
            None => Cursor::start(),
            Some(key) => match Cursor::start_at(database, key)? {
                Some(cursor) => cursor,
                None => return Ok(false),
            },
        };
        *self.lock_shared()? = cursor.clone();
        *self.own = Some(Box::new(cursor));
        Ok(true)
    }

    /// Returns the next key, and the number of the value among those of the key; `None` at the end.
    pub(crate) fn next(&mut self, database: &View) -> Result<Option<Place>> {
        let may_wait = self.may_wait;
        let step = |cursor: &mut Cursor| match may_wait || cursor.is_ready() {
            true => cursor.next(database),
            false => Err(Error::WouldBlock),
        };
        match self.own {
            Some(cursor) => step(cursor),
            None => step(&mut *self.lock_shared()?),
        }
    }

    fn lock_shared(&self) -> Result<MutexGuard<'_, Cursor>> {
        match self.may_wait {
            true => Ok(self.shared.lock()),
            false => self.shared.try_lock().ok_or(Error::WouldBlock),
        }
    }
}

/// What an iteration comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) key: Vec<u8>,
    /// Number of the value among those of the key, from 0 on.
    pub(crate) duplicate: usize,
}

/// An iteration over the keys of a database, each as often as it has values. It costs nothing while
/// nobody asks for the next key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cursor {
    /// Where to go on; `None` at the end.
    position: Option<Position>,
    /// Keys read ahead, those of one step of the engine, and how many values each has.
    ahead: VecDeque<(Vec<u8>, usize)>,
    /// How many of the first key's values were gone through.
    duplicate: usize,
    /// Bytes of them when they were read, which is no less than there are now.
    ahead_bytes: usize,
}

impl Cursor {
    /// At the first key.
    pub(crate) fn start() -> Self {
        Self { position: Some(Position::Start), ..Self::default() }
    }

    /// At `key`, or in a tree or among ids at the first one not before it. `None` if nothing is
    /// there.
    pub(crate) fn start_at(database: &View, key: &[u8]) -> Result<Option<Self>> {
        let position = database.position_of(key);
        let ordered = matches!(position, Position::Key(_) | Position::Id(_));
        // As Tokyo Tyrant, whose tables are in no order.
        if database.has_rows() && database.value_size(key)?.is_none() {
            return Ok(None);
        }
        let mut cursor = Self { position: Some(position), ..Self::default() };
        loop {
            cursor.fill(database)?;
            match cursor.ahead.front() {
                None => return Ok(None),
                Some((found, _)) if ordered || found == key => return Ok(Some(cursor)),
                // Keys whose hash is the same may come before it.
                Some(_) => match cursor.ahead.iter().position(|(found, _)| found == key) {
                    Some(before) => {
                        cursor.ahead.drain(..before);
                        return Ok(Some(cursor));
                    }
                    None if database.value_size(key)?.is_none() => return Ok(None),
                    None => cursor.ahead.clear(),
                },
            }
        }
    }

    /// Returns the memory that it takes, in bytes, as far as a client can make it grow.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.ahead_bytes
    }

    /// Whether the next key takes no look at the database.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ahead.is_empty() || self.position.is_none()
    }

    /// The next key, `None` at the end.
    pub(crate) fn next(&mut self, database: &View) -> Result<Option<Place>> {
        self.fill(database)?;
        let duplicate = self.duplicate;
        match self.ahead.front() {
            Some((key, values)) if duplicate + 1 < *values => {
                self.duplicate += 1;
                Ok(Some(Place { key: key.clone(), duplicate }))
            }
            _ => {
                self.duplicate = 0;
                Ok(self.ahead.pop_front().map(|(key, _)| Place { key, duplicate }))
            }
        }
    }

    fn fill(&mut self, database: &View) -> Result<()> {
        while self.ahead.is_empty()
            && let Some(position) = &self.position
        {
            let ahead = &mut self.ahead;
            let mut bytes = 0;
            self.position = database.scan_keys(position, |key| {
                // All values of a key come in one step.
                match ahead.back_mut() {
                    Some((before, values)) if before == key => *values += 1,
                    _ => {
                        bytes += key.len();
                        ahead.push_back((key.to_vec(), 1));
                    }
                }
            })?;
            self.ahead_bytes = bytes;
        }
        Ok(())
    }
}
