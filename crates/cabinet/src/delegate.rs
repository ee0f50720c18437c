//! Operations of an engine that are those of its log, or of an engine below it.

/// Implements operations of [`crate::Engine`] by the log in a field of `self`.
macro_rules! delegate_to_log {
    ($($log:ident).+) => {
        fn size_bytes(&self) -> u64 {
            self.$($log).+.disk_bytes()
        }

        fn path(&self) -> std::path::PathBuf {
            self.$($log).+.directory().to_owned()
        }

        fn sync(&self) -> crate::Result<()> {
            self.$($log).+.sync().map(|_| ())
        }

        fn damages(&self) -> Vec<crate::Damage> {
            self.$($log).+.damages().to_vec()
        }

        fn copy_to(&self, path: &std::path::Path) -> crate::Result<()> {
            self.$($log).+.snapshot(path, &mut crate::barrier::at_once)
        }

        fn copy_at(&self, path: &std::path::Path, cut: &mut crate::SnapshotBarrier<'_>) -> crate::Result<()> {
            self.$($log).+.snapshot(path, cut)
        }

        fn verify<'r>(
            &self,
            go_on: &'r mut crate::GoOn<'r>,
            report: &'r mut dyn FnMut(crate::Damage),
        ) -> crate::Result<crate::Verified> {
            self.$($log).+.verify(go_on, report)
        }

        fn durability(&self) -> crate::Durability {
            self.$($log).+.settings().durability
        }

        fn appended(&self) -> crate::LogPosition {
            self.$($log).+.appended()
        }

        fn durable(&self) -> crate::LogPosition {
            self.$($log).+.commit().durable()
        }

        fn wait_durable(&self, position: crate::LogPosition) -> crate::Result<()> {
            self.$($log).+.wait_durable(position)
        }

        fn on_durable(&self, listener: crate::DurableListener) {
            self.$($log).+.commit().listen(listener);
        }
    };
}

/// Implements operations on files and durability by the engine in a field of `self`.
macro_rules! delegate_storage {
    ($engine:ident) => {
        fn size_bytes(&self) -> u64 {
            self.$engine.size_bytes()
        }

        fn path(&self) -> std::path::PathBuf {
            self.$engine.path()
        }

        fn sync(&self) -> crate::Result<()> {
            self.$engine.sync()
        }

        fn damages(&self) -> Vec<crate::Damage> {
            self.$engine.damages()
        }

        fn copy_to(&self, path: &std::path::Path) -> crate::Result<()> {
            self.$engine.copy_to(path)
        }

        fn copy_at(
            &self,
            path: &std::path::Path,
            cut: &mut crate::SnapshotBarrier<'_>,
        ) -> crate::Result<()> {
            self.$engine.copy_at(path, cut)
        }

        fn verify<'r>(
            &self,
            go_on: &'r mut crate::GoOn<'r>,
            report: &'r mut dyn FnMut(crate::Damage),
        ) -> crate::Result<crate::Verified> {
            self.$engine.verify(go_on, report)
        }

        fn durability(&self) -> crate::Durability {
            self.$engine.durability()
        }

        fn appended(&self) -> crate::LogPosition {
            self.$engine.appended()
        }

        fn durable(&self) -> crate::LogPosition {
            self.$engine.durable()
        }

        fn wait_durable(&self, position: crate::LogPosition) -> crate::Result<()> {
            self.$engine.wait_durable(position)
        }

        fn on_durable(&self, listener: crate::DurableListener) {
            self.$engine.on_durable(listener);
        }
    };
}

pub(crate) use {delegate_storage, delegate_to_log};
