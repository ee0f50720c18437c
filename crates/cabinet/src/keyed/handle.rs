//! Engine handle: an engine's state together with its background threads.

#[cfg(feature = "testing")]
use super::maintenance;
use super::{Index, KeyedEngine, recover};
use crate::base::sync::Mutex;
use crate::engine::Steps;
use crate::io::Storage;
use crate::log::{Background, EngineParameters, Relocate};
use crate::{Engine, FullScan, Options, Result, Wanted};
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

/// An open engine. Dropping it closes it.
pub(crate) struct EngineHandle<I: Index> {
    engine: Arc<KeyedEngine<I>>,
    background: Mutex<Option<Background>>,
    is_read_only: bool,
}

impl<I: Index> EngineHandle<I> {
    /// Opens an engine or creates it with `parameters`. `index` builds its index from the log's id
    /// and parameters. Without background threads, the caller does their work with
    /// `run_maintenance`.
    pub(crate) fn open(
        storage: Arc<dyn Storage>,
        path: &Path,
        options: &Options,
        background: bool,
        parameters: EngineParameters,
        index: impl FnOnce(&crate::log::DatabaseId, &EngineParameters) -> Result<I>,
    ) -> Result<Self> {
        let engine = Arc::new(recover::open(storage, path, options, parameters, index)?);
        if options.truncate {
            engine.clear()?;
        }
        engine.log.space().quota().note_checkpoint_bytes(engine.checkpoint_bytes());
        let background = background.then(|| Background::start(&engine)).transpose()?;
        let is_read_only = options.read_only;
        Ok(Self { engine, background: Mutex::new(background), is_read_only })
    }

    /// Does one round of the background threads' work: truncates sealed segments, sweeps expired
    /// records and compacts the segments that are due.
    #[cfg(feature = "testing")]
    pub(crate) fn run_maintenance(&self) -> Result<()> {
        maintenance::run_maintenance(&self.engine)
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Begins a scan of all records of `engine`, whose state this is.
    pub(crate) fn full_scan<'e>(
        &'e self,
        engine: &'e dyn Engine,
        wanted: Wanted,
    ) -> Box<dyn FullScan + 'e> {
        if wanted == Wanted::Keys && self.has_large_records() {
            return Box::new(Steps::new(engine));
        }
        Box::new(self.scan_in_log_order())
    }
}

impl<I: Index> Deref for EngineHandle<I> {
    type Target = KeyedEngine<I>;

    #[inline]
    fn deref(&self) -> &KeyedEngine<I> {
        &self.engine
    }
}

impl<I: Index> Drop for EngineHandle<I> {
    fn drop(&mut self) {
        if let Some(background) = self.background.lock().as_mut() {
            background.stop(&self.engine.log);
        }
        if self.is_read_only {
            return;
        }
        if let Err(error) = self.engine.close() {
            tracing::error!("closing {}: {error}", self.engine.log.directory().display());
        }
    }
}
