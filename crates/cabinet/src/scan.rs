//! Scans: cursors in an iteration over records, and scans of all of them.

use crate::{Error, RecordRef, Result, Visit, VisitKey};
use std::any::Any;
use std::ops::ControlFlow;

/// Cursor of a scan: the point at which it continues. It stays valid while other threads write: a
/// record that exists throughout a scan is visited exactly once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ScanCursor {
    /// The beginning.
    #[default]
    Start,
    /// In an engine ordered by hash: the next hash to visit.
    Hash(u64),
    /// In an engine ordered by key: the first key at or after this one.
    Key(Vec<u8>),
    /// In an engine of numbered records: the first id at or after this one.
    Id(u64),
}

impl ScanCursor {
    /// Returns the error of an engine of another kind than the one that returned this cursor.
    pub(crate) fn foreign(&self) -> Error {
        let what =
            format!("{self:?} is a position of another kind of database: begin another scan");
        Error::InvalidArgument(what)
    }
}

/// Parts of the records that a scan of all of them visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Keys and values.
    Records,
    /// Keys alone.
    Keys,
}

/// Function that a step of a scan calls for each record.
pub enum Visitor<'v> {
    /// Gets whole records.
    Records(&'v mut Visit<'v>),
    /// Gets only keys, so that values need not be read.
    Keys(&'v mut VisitKey<'v>),
}

impl Visitor<'_> {
    /// Runs a scan that reads whole records in any case.
    pub fn of_records<T>(self, scan: impl FnOnce(&mut Visit<'_>) -> T) -> T {
        match self {
            Self::Records(visit) => scan(visit),
            Self::Keys(visit) => scan(&mut |entry| visit(entry.key)),
        }
    }
}

/// Scan of all records, in the order in which the engine reads them fastest. A record that exists
/// throughout is visited exactly once, whatever is written meanwhile. Visitors must not call the
/// engine. If a step fails, the scan ends, unless [`FullScan::passes_damage`].
pub trait FullScan {
    /// Calls `visit` with some records, or none if the next ones have expired or were removed.
    /// Returns whether there may be more. A record that is changed or removed during the step may
    /// be visited in its old state.
    fn step(&mut self, visit: &mut Visit<'_>) -> Result<bool>;

    /// Like [`FullScan::step`], for keys alone.
    fn step_keys(&mut self, visit: &mut VisitKey<'_>) -> Result<bool>;

    /// Returns whether the next step visits the records after the damage that the last step has met
    /// and failed with. Otherwise a failed step has ended the scan.
    fn passes_damage(&self) -> bool {
        false
    }
}

/// State of an iteration over all keys between two of its steps. Only the engine that created it
/// can continue it. It borrows nothing, and holds no file.
pub struct IterationState(Box<dyn Any + Send>);

impl IterationState {
    pub(crate) fn new(state: impl Send + 'static) -> Self {
        Self(Box::new(state))
    }

    /// Returns the state of an engine with states of this type; fails if it is of another kind.
    pub(crate) fn of<T: 'static>(&mut self) -> Result<&mut T> {
        self.0.downcast_mut().ok_or_else(Self::foreign)
    }

    /// Returns the error of an engine that cannot continue an iteration.
    pub(crate) fn foreign() -> Error {
        Error::InvalidArgument("the iteration is of another database: begin another one".into())
    }
}

/// Makes a step of a scan. Passes damage to `report` if the scan goes on after it.
pub(crate) fn step_past_damage(
    scan: &mut dyn FullScan,
    visit: &mut Visit<'_>,
    report: &mut dyn FnMut(Error),
) -> Result<bool> {
    match scan.step(visit) {
        Err(error @ Error::Corrupted { .. }) if scan.passes_damage() => {
            report(error);
            Ok(true)
        }
        done => done,
    }
}

/// Runs steps of a scan until a step returns false or `visit` breaks.
pub(crate) fn step_until_break(
    mut step: impl FnMut(&mut Visit<'_>) -> Result<bool>,
    mut visit: impl FnMut(RecordRef<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let mut flow = ControlFlow::Continue(());
    while flow.is_continue() {
        let more = step(&mut |entry| {
            if flow.is_continue() {
                flow = visit(entry);
            }
        });
        // After a break, the rest of a step does not matter.
        if flow.is_continue() && !more? {
            break;
        }
    }
    Ok(())
}
