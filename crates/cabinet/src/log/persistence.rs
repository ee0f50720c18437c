//! [`Persistence`] of a log: stores the records of a disk engine.

use super::Log;
use crate::{
    Damage, Durability, DurableListener, GoOn, LogPosition, Medium, Persistence, Result,
    SnapshotBarrier, Verified,
};
use std::path::{Path, PathBuf};

impl Medium for Log {
    fn path(&self) -> PathBuf {
        self.directory().to_owned()
    }

    fn size_bytes(&self) -> u64 {
        self.segments().bytes()
    }

    fn copy_at(&self, path: &Path, barrier: &mut SnapshotBarrier<'_>) -> Result<()> {
        self.snapshot(path, barrier)
    }

    fn sync(&self) -> Result<()> {
        Self::sync(self).map(|_| ())
    }
}

impl Persistence for Log {
    fn damages(&self) -> Vec<Damage> {
        self.damages.clone()
    }

    fn verify<'r>(
        &self,
        go_on: &'r mut GoOn<'r>,
        report: &'r mut dyn FnMut(Damage),
    ) -> Result<Verified> {
        Self::verify(self, go_on, report)
    }

    fn durability(&self) -> Durability {
        self.settings.durability
    }

    fn appended(&self) -> LogPosition {
        Self::appended(self)
    }

    fn durable(&self) -> LogPosition {
        self.commit.durable()
    }

    fn wait_durable(&self, position: LogPosition) -> Result<()> {
        Self::wait_durable(self, position)
    }

    fn on_durable(&self, listener: DurableListener) {
        self.commit.listen(listener);
    }
}
