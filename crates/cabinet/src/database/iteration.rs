//! Iterations over all keys in steps, which borrow nothing between the steps.

use super::Database;
use crate::base::deadline;
use crate::{IterationState, Result, ScanCursor};

/// Iteration over all keys, see [`Database::step_iteration`]. It holds no file between steps, so it
/// may be abandoned. [`Database::iteration_from`] returns one that begins at a key.
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
    /// Returns whether the iteration has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.next, Next::Ended)
    }

    /// Returns whether the iteration begins exactly at the key that it was begun at, provided that
    /// the key has a record that does not change.
    pub fn begins_at_key(&self) -> bool {
        matches!(self.next, Next::InLog(_))
    }

    /// Returns whether the iteration is in the order of keys or ids. It then begins at the first
    /// one at or after the key that it was begun at.
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
    /// In the order of a log it visits the records that were stored after the key's record. Without
    /// such a record it visits nothing.
    pub fn iteration_from(&self, key: &[u8]) -> Result<Iteration> {
        self.enter()?;
        let logged = self.engine.as_logged();
        let next = match logged.map_or(Ok(None), |engine| engine.iteration(Some(key)))? {
            Some(state) => Next::InLog(state),
            None => Next::At(self.engine.scan_cursor_of(key)),
        };
        Ok(Iteration { next })
    }

    /// Calls `visit` with the next keys of an iteration over this database, perhaps none. Returns
    /// whether there may be more.
    ///
    /// The order is that of the keys in a tree, of the ids in a fixed-length database, and of
    /// storing or changing the records in a hash database. A key that exists throughout is visited;
    /// in a tree, once for each of its values. A hash database may visit it twice if its record was
    /// changed or compacted meanwhile. A step that failed may be tried again. It may then visit
    /// keys again, and an unreadable record fails each time.
    pub fn step_iteration(
        &self,
        iteration: &mut Iteration,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<bool> {
        self.enter()?;
        deadline::check()?;
        if matches!(iteration.next, Next::Start) {
            let logged = self.engine.as_logged();
            iteration.next = match logged.map_or(Ok(None), |engine| engine.iteration(None))? {
                Some(state) => Next::InLog(state),
                None => Next::At(ScanCursor::Start),
            };
        }
        let has_more = match &mut iteration.next {
            Next::InLog(state) => {
                let engine = self.engine.as_logged().ok_or_else(IterationState::foreign)?;
                self.call(|| engine.step_iteration(state, &mut visit))?
            }
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
