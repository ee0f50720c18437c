//! Queue of changes for each key. One task at a time makes the changes of a key, and all that came
//! meanwhile in one step: so additions to a hot key cost one transaction for many.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Changes under way, by key.
#[derive(Debug)]
pub(crate) struct KeyQueues<T> {
    waiting: Mutex<HashMap<Vec<u8>, Vec<T>>>,
}

impl<T> Default for KeyQueues<T> {
    fn default() -> Self {
        Self { waiting: Mutex::default() }
    }
}

impl<T> KeyQueues<T> {
    /// Returns the change if the caller is to make it, with all that follow. Otherwise the task
    /// that makes the changes of this key will.
    pub(crate) fn enter(&self, key: &[u8], change: T) -> Option<T> {
        match self.waiting.lock().entry(key.to_vec()) {
            Entry::Occupied(mut queue) => {
                queue.get_mut().push(change);
                None
            }
            Entry::Vacant(queue) => {
                queue.insert(Vec::new());
                Some(change)
            }
        }
    }

    /// Returns a guard of the turn of a key, for the task that makes its changes.
    pub(crate) fn turn<'a>(&'a self, key: &'a [u8]) -> Turn<'a, T> {
        Turn { queues: self, key }
    }

    /// Returns the changes that have come meanwhile. If there are none, the next change of the key
    /// is for its caller to make.
    fn next(&self, key: &[u8]) -> Vec<T> {
        let mut waiting = self.waiting.lock();
        let changes = waiting.get_mut(key).map(std::mem::take).unwrap_or_default();
        if changes.is_empty() {
            waiting.remove(key);
        }
        changes
    }
}

/// Turn of a key. If the task ends early, as by a panic, the changes that wait are dropped, and the
/// next one has a task of its own.
#[derive(Debug)]
pub(crate) struct Turn<'a, T> {
    queues: &'a KeyQueues<T>,
    key: &'a [u8],
}

impl<T> Turn<'_, T> {
    /// Returns the changes that have come by now. The turn goes on.
    pub(crate) fn waiting(&self) -> Vec<T> {
        self.queues.waiting.lock().get_mut(self.key).map(std::mem::take).unwrap_or_default()
    }

    /// Returns the changes that have come meanwhile. If there are none, the turn is over.
    pub(crate) fn next(self) -> Option<(Self, Vec<T>)> {
        let changes = self.queues.next(self.key);
        match changes.is_empty() {
            // The next change of the key may have begun a turn already.
            true => {
                std::mem::forget(self);
                None
            }
            false => Some((self, changes)),
        }
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        // The changes are dropped after the lock.
        let changes = self.queues.waiting.lock().remove(self.key);
        drop(changes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_ends_early_drops_the_changes_that_wait_and_frees_the_key() {
        let queues = KeyQueues::default();
        let waiting = std::sync::Arc::new(());
        let change = || std::sync::Arc::clone(&waiting);
        assert!(queues.enter(b"a", change()).is_some());
        let turn = queues.turn(b"a");
        assert!(queues.enter(b"a", change()).is_none());
        drop(turn);
        assert_eq!(std::sync::Arc::strong_count(&waiting), 1);
        assert!(queues.enter(b"a", change()).is_some());
        let turn = queues.turn(b"a");
        assert!(queues.enter(b"a", change()).is_none());
        let Some((turn, changes)) = turn.next() else { panic!("no changes") };
        assert_eq!(changes.len(), 1);
        assert!(turn.next().is_none());
        assert!(queues.waiting.lock().is_empty());
    }

    #[test]
    fn changes_that_came_before_a_turn_begins_are_made_with_the_first_one() {
        let queues = KeyQueues::default();
        assert_eq!(queues.enter(b"a", 1), Some(1));
        assert_eq!([queues.enter(b"a", 2), queues.enter(b"a", 3)], [None, None]);
        let turn = queues.turn(b"a");
        assert_eq!(turn.waiting(), [2, 3]);
        assert!(turn.waiting().is_empty());
        // The key is not free yet.
        assert_eq!(queues.enter(b"a", 4), None);
        let Some((turn, changes)) = turn.next() else { panic!("no changes") };
        assert_eq!(changes, [4]);
        assert!(turn.next().is_none());
    }

    #[test]
    fn changes_of_a_key_wait_for_the_one_before_and_those_of_others_do_not() {
        let queues = KeyQueues::default();
        assert_eq!(queues.enter(b"a", 1), Some(1));
        assert_eq!([queues.enter(b"a", 2), queues.enter(b"a", 3)], [None, None]);
        assert_eq!(queues.enter(b"b", 4), Some(4));
        assert_eq!(queues.next(b"a"), [2, 3]);
        assert_eq!(queues.enter(b"a", 5), None);
        assert_eq!(queues.next(b"a"), [5]);
        assert!(queues.next(b"a").is_empty());
        assert_eq!(queues.enter(b"a", 6), Some(6));
        assert!(queues.next(b"b").is_empty());
        assert_eq!(queues.waiting.lock().len(), 1);
    }
}
