//! Signals: SIGTERM and SIGINT stop the server, SIGHUP reopens its log and reads its
//! settings again.

use anyhow::{Context, Result};
use parking_lot::{Mutex, MutexGuard};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Signals that end a program which does not handle them.
const ENDING: [i32; 3] = [SIGHUP, SIGINT, SIGTERM];

/// Handling of the signals in [`ENDING`] by a part of the program, until it is dropped.
///
/// The system's own handling does not come back after a signal was handled once. So while no part
/// of the program handles them, a handler ends the program as the system does.
#[derive(Debug)]
pub(crate) struct Handling(());

/// Number of [`Handling`]s, and whether there are none.
static HANDLINGS: Mutex<(usize, Option<Arc<AtomicBool>>)> = Mutex::new((0, None));

impl Handling {
    pub(crate) fn begin() -> Result<Self> {
        let mut handlings = HANDLINGS.lock();
        let (count, are_none) = &mut *handlings;
        match are_none {
            Some(are_none) => are_none.store(false, Ordering::SeqCst),
            None => {
                let flag = are_none.insert(Arc::default());
                for signal in ENDING {
                    register_conditional_default(signal, Arc::clone(flag))
                        .context("cannot handle signals")?;
                }
            }
        }
        *count += 1;
        Ok(Self(()))
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        let mut handlings = HANDLINGS.lock();
        handlings.0 -= 1;
        if let (0, Some(are_none)) = &*handlings {
            are_none.store(true, Ordering::SeqCst);
        }
    }
}

/// The thread that waits for signals, ended when dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
    _handling: Handling,
}

impl Listener {
    /// Calls `stop` on SIGTERM and SIGINT, and `hang_up` on SIGHUP.
    pub(crate) fn start(
        mut hang_up: impl FnMut() + Send + 'static,
        stop: impl Fn() + Send + 'static,
    ) -> Result<Self> {
        let handling = Handling::begin()?;
        let mut signals = Signals::new(ENDING).context("cannot handle signals")?;
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
        Ok(Self { handle, thread: Some(thread), _handling: handling })
    }
}

/// A cleanup that runs before a signal ends the program, until it is dropped.
#[derive(Debug)]
pub(crate) struct Cleanup {
    /// Locked by the signal until the program has ended.
    ending: Arc<Mutex<()>>,
    signals: Handle,
    _handling: Handling,
}

impl Cleanup {
    /// Calls `clean` on SIGTERM, SIGINT and SIGHUP; then the signal ends the program.
    pub(crate) fn on_signals(clean: impl FnOnce() + Send + 'static) -> Result<Self> {
        let handling = Handling::begin()?;
        let mut signals = Signals::new(ENDING).context("cannot handle signals")?;
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
        Ok(Self { ending, signals: handle, _handling: handling })
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
