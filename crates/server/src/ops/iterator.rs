//! The iterator: returns all keys of the database, one per request.

use crate::store::view::View;
use cabinet::{Error, Iteration, Result};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;

/// Memory that a key which was read ahead takes beside its bytes: its place in the queue, and what
/// the allocator adds.
const AHEAD_KEY_BYTES: usize = size_of::<(Vec<u8>, usize)>() + 16;

/// The iterators that a client may use: its own, and the one shared by the clients that have
/// started none.
pub(crate) struct Iterators<'a> {
    pub(crate) own: &'a mut Option<Box<Cursor>>,
    pub(crate) shared: &'a Mutex<Cursor>,
    /// Whether this thread may wait for another that uses the shared iterator.
    pub(crate) may_wait: bool,
}

impl Iterators<'_> {
    /// Starts both iterators, at a key if one is given. Returns whether there is a record at the
    /// start.
    pub(crate) fn begin(&mut self, database: &View, from: Option<&[u8]>) -> Result<bool> {
        let start = || match from {
            None => Ok(Some(Cursor::start())),
            Some(key) => Cursor::start_at(database, key),
        };
        let (Some(shared), Some(own)) = (start()?, start()?) else { return Ok(false) };
        *self.lock_shared()? = shared;
        *self.own = Some(Box::new(own));
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

/// A key of an iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) key: Vec<u8>,
    /// Number of the value among those of the key, from 0 on.
    pub(crate) duplicate: usize,
}

/// An iteration over the keys of a database. Each key is returned once per value.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// The keys to be read next; `None` if no iteration was begun.
    iteration: Option<Iteration>,
    /// Keys that one step of the engine has read ahead, with their numbers of values.
    ahead: VecDeque<(Vec<u8>, usize)>,
    /// Failure that follows these keys.
    failed: Option<Error>,
    /// Number of values of the first key that were returned.
    duplicate: usize,
    /// Memory of the keys when they were read ahead, an upper bound of what they take now.
    ahead_bytes: usize,
}

impl Cursor {
    /// Returns an iteration from the first key on.
    pub(crate) fn start() -> Self {
        Self { iteration: Some(Iteration::default()), ..Self::default() }
    }

    /// Returns an iteration from `key` on. In a tree or among ids it begins at the first key that
    /// is not before `key`. Returns `None` if there is no such record.
    pub(crate) fn start_at(database: &View, key: &[u8]) -> Result<Option<Self>> {
        let iteration = database.iteration_from(key)?;
        let is_ordered = iteration.is_ordered();
        // Tokyo Tyrant requires the record in tables, which have no order.
        let requires_record = database.has_rows() || iteration.begins_at_key();
        if requires_record && database.value_size(key)?.is_none() {
            return Ok(None);
        }
        let begins_at_key = iteration.begins_at_key();
        let mut cursor = Self { iteration: Some(iteration), ..Self::default() };
        if begins_at_key {
            return Ok(Some(cursor));
        }
        loop {
            cursor.fill(database)?;
            match cursor.ahead.front() {
                None => return Ok(None),
                Some((found, _)) if is_ordered || found == key => return Ok(Some(cursor)),
                // Keys with the same hash may come before it.
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

    /// Returns the memory that a client can make the iteration take, in bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.ahead_bytes
    }

    /// Returns whether the next key is read without access to the database.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ahead.is_empty() || self.iteration.as_ref().is_none_or(Iteration::has_ended)
    }

    /// Returns the next key, `None` at the end.
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
        while self.ahead.is_empty() {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            let Some(iteration) = &mut self.iteration else { return Ok(()) };
            if iteration.has_ended() {
                return Ok(());
            }
            let ahead = &mut self.ahead;
            let mut bytes = 0;
            let step = database.step_iteration(iteration, |key| {
                // All values of a key come in one step.
                match ahead.back_mut() {
                    Some((before, values)) if before == key => *values += 1,
                    _ => {
                        bytes += key.len() + AHEAD_KEY_BYTES;
                        ahead.push_back((key.to_vec(), 1));
                    }
                }
            });
            self.failed = step.err();
            self.ahead_bytes = bytes;
        }
        Ok(())
    }
}
