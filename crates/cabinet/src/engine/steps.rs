//! Stepped scan of all records, built on [`Engine::scan`].

use super::Engine;
use crate::{FullScan, Result, ScanCursor, Visit, VisitKey, Visitor};

/// Scan of an engine whose fastest order is that of its positions.
pub(crate) struct Steps<'e, E: ?Sized> {
    engine: &'e E,
    next: Option<ScanCursor>,
}

impl<'e, E: Engine + ?Sized> Steps<'e, E> {
    pub(crate) fn new(engine: &'e E) -> Self {
        Self { engine, next: Some(ScanCursor::Start) }
    }

    fn step_with(&mut self, visitor: Visitor<'_>) -> Result<bool> {
        let Some(from) = self.next.take() else { return Ok(false) };
        self.next = self.engine.scan(&from, visitor)?;
        Ok(self.next.is_some())
    }
}

impl<E: Engine + ?Sized> FullScan for Steps<'_, E> {
    fn step(&mut self, visit: &mut Visit<'_>) -> Result<bool> {
        self.step_with(Visitor::Records(visit))
    }

    fn step_keys(&mut self, visit: &mut VisitKey<'_>) -> Result<bool> {
        self.step_with(Visitor::Keys(visit))
    }
}
