//! Folders that are not to stay when the command is interrupted.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;
use std::path::{Path, PathBuf};
use std::{fs, thread};

/// A folder that goes when this is dropped, also by a signal that ends the program.
pub(super) struct Passing {
    path: PathBuf,
    signals: Handle,
}

impl Passing {
    /// One at a path where something may be that a killed program has left; that goes first.
    pub(super) fn begin(path: PathBuf) -> Result<Self> {
        if path.exists() {
            fs::remove_dir_all(&path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
        let mut signals =
            Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot wait for signals")?;
        let handle = signals.handle();
        let removed = path.clone();
        thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                let _ = fs::remove_dir_all(&removed);
                let _ = emulate_default_handler(signal);
            }
        });
        Ok(Self { path, signals: handle })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.signals.close();
        if let Err(error) = fs::remove_dir_all(&self.path)
            && self.path.exists()
        {
            eprintln!("tyrant: cannot remove {}: {error}", self.path.display());
        }
    }
}
