//! Iterations over all keys that stop after each step, and borrow nothing meanwhile.

use super::Database;
use crate::{IterationState, Result, ScanCursor, deadline};

/// Iteration over all keys, see [`Database::step_iteration`]. It holds no file between steps, and
/// may be left alone for ever. [`Database::iteration_from`] returns one that begins at a key.
#[derive(Default)]
pub struct Iteration {
    next: Next,
}

#[derive(Default)]
enum Next {
    #[default]
    Start,
    At(ScanCursor),
    InLog(IterationState),
    Ended,
}

impl Iteration {
    /// Returns whether there is nothing more.
    pub fn has_ended(&self) -> bool {
        matches!(self.next, Next::Ended)
    }

    /// Returns whether its next key is the one that it was begun at, as long as that has a record
    /// that does not change.
    pub fn begins_at_key(&self) -> bool {
        matches!(self.next, Next::InLog(_))
    }

    /// Returns whether it is in the order of keys, or of ids. It then begins at the first one that
    /// is not before the key that it was begun at.
    pub fn is_ordered(&self) -> bool {
        matches!(self.next, Next::At(ScanCursor::Key(_) | ScanCursor::Id(_)))
    }
}

impl std::fmt::Debug for Iteration {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match &self.next {
            Next::Start => "Start",
            Next::At(position) => return position.fmt(formatter),
            Next::InLog(_) => "InLog",
            Next::Ended => "Ended",
        };
        formatter.write_str(what)
    }
}

impl Database {
    /// Returns an iteration over the keys from one on, in the order of an iteration over all keys.
    /// In the order of a log it comes to the records that were stored after the one of the key. If
    /// there is no such record, it has nothing to show.
    pub fn iteration_from(&self, key: &[u8]) -> Result<Iteration> {
        self.enter()?;
        let next = match self.engine.iteration(Some(key))? {
            Some(iteration) => Next::InLog(iteration),
            None => Next::At(self.engine.scan_cursor_of(key)),
        };
        Ok(Iteration { next })
    }

    /// Calls `visit` with the next keys of an iteration over this database, perhaps none. Returns
    /// whether there may be more.
    ///
    /// A tree is in the order of keys, a fixed-length database in that of ids, and a hash database
    /// in the order in which records were stored or last changed. A key that exists throughout is
    /// visited; in a tree, once for each of its values. It is visited twice at most, and only in a
    /// hash database, if its record was changed or compacted meanwhile. A step that failed may be
    /// tried again; it may then show keys again, and a record that cannot be read fails each time.
    pub fn step_iteration(
        &self,
        iteration: &mut Iteration,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<bool> {
        self.enter()?;
        deadline::check()?;
        if matches!(iteration.next, Next::Start) {
            iteration.next = match self.engine.iteration(None)? {
                Some(state) => Next::InLog(state),
                None => Next::At(ScanCursor::Start),
            };
        }
        let has_more = match &mut iteration.next {
            Next::InLog(state) => self.call(|| self.engine.step_iteration(state, &mut visit))?,
            Next::At(position) => {
                match self.call(|| self.engine.scan_keys(position, &mut visit))? {
                    Some(next) => {
                        *position = next;
                        true
                    }
                    None => false,
                }
            }
            Next::Start | Next::Ended => false,
        };
        if !has_more {
            iteration.next = Next::Ended;
        }
        Ok(has_more)
    }
}
