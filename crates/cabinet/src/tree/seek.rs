//! Reads of keys, and searches for records by their place in the order of keys.
//!
//! Between two leaves a search holds no lock, only a key: the bound at which it continues. So
//! leaves may be divided and joined during a search.

use super::TreeEngine;
use super::directory::{Directory, Index};
use super::leaf::Handle;
use super::page::View;
use crate::engine::ordered::Seek;
use crate::{Error, RecordRef, Result, ScanCursor, Visit, VisitPlaced, Wait};
use std::ops::Range;

/// Maximum number of leaves that a search visits if it must not wait.
const LEAVES_AT_ONCE_MAX: usize = 64;

/// A leaf, and the bound at which the search continues if the leaf has no such record.
type Located = (Handle, Option<Vec<u8>>);

fn with_upper(directory: &Directory<Handle>, index: Index) -> Located {
    (directory.leaf(index).clone(), directory.upper(index).map(<[u8]>::to_vec))
}

fn with_lower(directory: &Directory<Handle>, index: Index) -> Located {
    (directory.leaf(index).clone(), directory.lower(index).map(<[u8]>::to_vec))
}

/// Returns the leaf that a key belongs to.
fn with_key(directory: &Directory<Handle>, key: &[u8]) -> (Handle, ()) {
    (directory.leaf(directory.find(key)).clone(), ())
}

/// Callback of a search for each page. Returns the index of the record that it seeks; `None` if the
/// page does not have it.
type Choose<'c> = dyn FnMut(View<'_>) -> Option<usize> + 'c;

impl TreeEngine {
    /// Returns whether a record has not expired.
    #[inline]
    pub(super) fn is_live(&self, entry: &RecordRef<'_>) -> bool {
        entry.meta.expires_at_ms == 0 || !entry.meta.is_expired(self.clock.now_ms())
    }

    /// Returns the live records of a range, with their indices.
    pub(super) fn live<'v>(
        &self,
        view: View<'v>,
        range: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = (usize, RecordRef<'v>)> {
        range.map(move |index| (index, view.record(index))).filter(|(_, entry)| self.is_live(entry))
    }

    /// Calls `visit` with the first live duplicate of a key. Returns whether there is one.
    #[inline]
    pub(super) fn read(&self, key: &[u8], wait: Wait, visit: &mut Visit<'_>) -> Result<bool> {
        self.look(
            wait,
            |directory| with_key(directory, key),
            |view, ()| {
                let Ok((index, first)) = view.find(self.order, key) else { return false };
                if self.is_live(&first) {
                    visit(first);
                    return true;
                }
                self.expired.count_read();
                for index in index + 1..view.len() {
                    let entry = view.record(index);
                    if self.order.compare(entry.key, key).is_ne() {
                        return false;
                    }
                    if self.is_live(&entry) {
                        visit(entry);
                        return true;
                    }
                    self.expired.count_read();
                }
                false
            },
            |is_found| *is_found,
        )
    }

    /// Calls `visit` with all live duplicates of a key. Returns their number.
    pub(super) fn read_all(&self, key: &[u8], wait: Wait, visit: &mut Visit<'_>) -> Result<usize> {
        self.look(
            wait,
            |directory| with_key(directory, key),
            |view, ()| {
                let group = view.group(self.order, key);
                self.live(view, group).map(|(_, entry)| visit(entry)).count()
            },
            |found| *found > 0,
        )
    }

    /// Does one step of a scan: calls `visit` with the records of one leaf. Returns the cursor of
    /// the next step; `None` at the end.
    pub(super) fn scan(
        &self,
        from: &ScanCursor,
        visit: &mut Visit<'_>,
    ) -> Result<Option<ScanCursor>> {
        let from = match from {
            ScanCursor::Key(key) => Some(key.as_slice()),
            ScanCursor::Start => None,
            ScanCursor::Hash(_) | ScanCursor::Id(_) => return Err(from.foreign()),
        };
        let locate = |directory: &Directory<Handle>| {
            with_upper(directory, from.map_or(directory.first(), |key| directory.find(key)))
        };
        let step = |view: View<'_>, upper: &Option<Vec<u8>>| {
            let start = from.map_or(0, |key| view.lower_bound(self.order, key));
            self.live(view, start..view.len()).for_each(|(_, entry)| visit(entry));
            upper.clone().map(ScanCursor::Key)
        };
        // A scan of all records is no reason to spare any from eviction.
        self.look(Wait::Block, locate, step, |_| false)
    }

    /// Calls `visit` with the record that `seek` finds, and the number of its duplicate. Returns
    /// whether there is one.
    pub(super) fn seek(
        &self,
        seek: Seek<'_>,
        wait: Wait,
        visit: &mut VisitPlaced<'_>,
    ) -> Result<bool> {
        let order = self.order;
        match seek {
            Seek::First => self.forward(None, wait, visit, &mut |view| self.first_live(view, 0)),
            Seek::AtOrAfter(key) => self.forward(Some(key), wait, visit, &mut |view| {
                self.first_live(view, view.lower_bound(order, key))
            }),
            Seek::After(key, number) => self.forward(Some(key), wait, visit, &mut |view| {
                let group = view.group(order, key);
                let next = self.live(view, group.clone()).nth(number.saturating_add(1));
                match next {
                    Some((index, _)) => Some(index),
                    None => self.first_live(view, group.end),
                }
            }),
            Seek::Last => {
                self.backward(None, wait, visit, &mut |view| self.last_live(view, view.len()))
            }
            Seek::AtOrBefore(key) => self.seek(Seek::Before(key, usize::MAX), wait, visit),
            Seek::Before(key, number) => self.backward(Some(key), wait, visit, &mut |view| {
                let group = view.group(order, key);
                let previous = self.live(view, group.clone()).take(number).last();
                match previous {
                    Some((index, _)) => Some(index),
                    None => self.last_live(view, group.start),
                }
            }),
        }
    }

    fn first_live(&self, view: View<'_>, from: usize) -> Option<usize> {
        self.live(view, from..view.len()).next().map(|(index, _)| index)
    }

    fn last_live(&self, view: View<'_>, to: usize) -> Option<usize> {
        self.live(view, 0..to).next_back().map(|(index, _)| index)
    }

    /// Visits leaves from that of a key, or the first, until `choose` finds a record.
    fn forward(
        &self,
        from: Option<&[u8]>,
        wait: Wait,
        visit: &mut VisitPlaced<'_>,
        choose: &mut Choose<'_>,
    ) -> Result<bool> {
        self.through(wait, visit, choose, |directory, bound| {
            let first = directory.first();
            with_upper(directory, bound.or(from).map_or(first, |key| directory.find(key)))
        })
    }

    /// Visits leaves backward from that of a key, or the last, until `choose` finds a record.
    fn backward(
        &self,
        from: Option<&[u8]>,
        wait: Wait,
        visit: &mut VisitPlaced<'_>,
        choose: &mut Choose<'_>,
    ) -> Result<bool> {
        self.through(wait, visit, choose, |directory, bound| {
            let index = match (bound, from) {
                // The leaves before this bound were not visited yet.
                (Some(bound), _) => directory.find_before(bound),
                (None, Some(key)) => directory.find(key),
                (None, None) => directory.last(),
            };
            with_lower(directory, index)
        })
    }

    /// Visits one leaf after the other until `choose` finds a record. `locate` gets the bound that
    /// came with the last leaf; `None` at first. Empty leaves stay until the next checkpoint, so
    /// there may be more of them than a thread that must not wait may visit.
    fn through(
        &self,
        wait: Wait,
        visit: &mut VisitPlaced<'_>,
        choose: &mut Choose<'_>,
        locate: impl Fn(&Directory<Handle>, Option<&[u8]>) -> Located,
    ) -> Result<bool> {
        let mut bound: Option<Vec<u8>> = None;
        let mut leaves = 0;
        loop {
            leaves += 1;
            if wait == Wait::Never && leaves > LEAVES_AT_ONCE_MAX {
                return Err(Error::WouldBlock);
            }
            let located = |directory: &Directory<Handle>| locate(directory, bound.as_deref());
            let step = |view: View<'_>, beyond: &Option<Vec<u8>>| match choose(view) {
                Some(index) => {
                    self.show(view, index, visit);
                    None
                }
                None => Some(beyond.clone()),
            };
            let next = self.look(wait, located, step, |_| false)?;
            match next {
                None => return Ok(true),
                Some(None) => return Ok(false),
                Some(beyond) => bound = beyond,
            }
        }
    }

    fn show(&self, view: View<'_>, index: usize, visit: &mut VisitPlaced<'_>) {
        let entry = view.record(index);
        let start = view.lower_bound(self.order, entry.key);
        visit(entry, self.live(view, start..index).count());
    }
}
