//! Signals: SIGTERM and SIGINT stop the server, SIGHUP reopens its log and reads its
//! settings again.

use anyhow::{Context, Result};
use parking_lot::{Mutex, MutexGuard};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// The thread that waits for signals, ended when dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Calls `stop` on SIGTERM and SIGINT, and `hang_up` on SIGHUP.
    pub(crate) fn start(
        mut hang_up: impl FnMut() + Send + 'static,
        stop: impl Fn() + Send + 'static,
    ) -> Result<Self> {
        let mut signals =
            Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot handle signals")?;
        let handle = signals.handle();
        let hear = move || {
            for signal in signals.forever() {
                match signal {
                    SIGHUP => hang_up(),
                    _ => stop(),
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("signals".into())
            .spawn(hear)
            .context("cannot start a thread")?;
        Ok(Self { handle, thread: Some(thread) })
    }
}

/// A cleanup that runs before a signal ends the program, until it is dropped.
#[derive(Debug)]
pub(crate) struct Cleanup {
    /// Locked by the signal until the program has ended.
    ending: Arc<Mutex<()>>,
    signals: Handle,
}

impl Cleanup {
    /// Calls `clean` on SIGTERM, SIGINT and SIGHUP; then the signal ends the program.
    pub(crate) fn on_signals(clean: impl FnOnce() + Send + 'static) -> Result<Self> {
        let mut signals =
            Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot handle signals")?;
        let handle = signals.handle();
        let ending = Arc::new(Mutex::new(()));
        let held = Arc::clone(&ending);
        thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                let _ending = held.lock();
                clean();
                let _ = emulate_default_handler(signal);
            }
        });
        Ok(Self { ending, signals: handle })
    }

    /// Blocks signals until the guard is dropped.
    pub(crate) fn hold(&self) -> MutexGuard<'_, ()> {
        self.ending.lock()
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        self.signals.close();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // It can only fail by a panic, which has already been logged.
            let _ = thread.join();
        }
    }
}
