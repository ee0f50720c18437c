//! What the process does on signals: SIGTERM and SIGINT stop the server, SIGHUP opens the log
//! file by its name again.

use crate::logging::Log;
use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use std::thread::JoinHandle;

/// The thread that hears the signals; ends when dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Calls `stop` on SIGTERM and SIGINT.
    pub(crate) fn start(log: Log, stop: impl Fn() + Send + 'static) -> Result<Self> {
        let mut signals =
            Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot listen to signals")?;
        let handle = signals.handle();
        let hear = move || {
            for signal in signals.forever() {
                match signal {
                    SIGHUP => match log.reopen() {
                        Ok(()) => crate::logging::system("log reopened"),
                        Err(error) => tracing::error!("cannot reopen the log: {error}"),
                    },
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

impl Drop for Listener {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // It can only fail by a panic, which the log has shown by then.
            let _ = thread.join();
        }
    }
}
