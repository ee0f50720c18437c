//! Signals: SIGTERM and SIGINT stop the server, SIGHUP makes it reload.

use anyhow::{Context, Result, ensure};
use parking_lot::{Mutex, MutexGuard};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;
use std::collections::BTreeMap;
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

/// A flag that SIGINT and SIGTERM set, until it is dropped. SIGHUP ends the program as it would
/// without: the terminal is gone, so it cannot be restored, and to read from it would not end.
#[derive(Debug)]
pub(crate) struct Flag {
    is_set: Arc<AtomicBool>,
    registered: Vec<SigId>,
    _handling: Handling,
}

impl Flag {
    pub(crate) fn watch() -> Result<Self> {
        let handling = Handling::begin()?;
        let mut flag = Self { is_set: Arc::default(), registered: Vec::new(), _handling: handling };
        for signal in [SIGINT, SIGTERM] {
            let registered = signal_hook::flag::register(signal, Arc::clone(&flag.is_set));
            flag.registered.push(registered.context("cannot handle signals")?);
        }
        let ends = Arc::new(AtomicBool::new(true));
        let registered = register_conditional_default(SIGHUP, ends);
        flag.registered.push(registered.context("cannot handle signals")?);
        Ok(flag)
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }
}

impl Drop for Flag {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            signal_hook::low_level::unregister(id);
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
        hang_up: impl Fn() + Send + 'static,
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
    number: u64,
    /// Locked by the signal until the program has ended.
    ending: Arc<Mutex<()>>,
    _handling: Handling,
}

/// A registered cleanup, with the lock of its [`Cleanup`].
type Registered = (Arc<Mutex<()>>, Box<dyn FnOnce() + Send>);

/// All cleanups. One thread runs them, so that the first that is done does not end the program
/// while another runs.
struct Cleanups {
    /// By their numbers, which increase.
    registered: BTreeMap<u64, Registered>,
    next: u64,
    is_listening: bool,
    /// Whether they run, and the program ends after them.
    is_ending: bool,
}

static CLEANUPS: Mutex<Cleanups> = Mutex::new(Cleanups {
    registered: BTreeMap::new(),
    next: 0,
    is_listening: false,
    is_ending: false,
});

impl Cleanup {
    /// Calls `clean` on SIGTERM, SIGINT and SIGHUP, the latest cleanup first; then the signal ends
    /// the program. Fails once that has begun, as `clean` would not run.
    pub(crate) fn on_signals(clean: impl FnOnce() + Send + 'static) -> Result<Self> {
        let handling = Handling::begin()?;
        let mut cleanups = CLEANUPS.lock();
        ensure!(!cleanups.is_ending, "a signal ends the program");
        if !cleanups.is_listening {
            let signals = Signals::new(ENDING).context("cannot handle signals")?;
            thread::Builder::new()
                .name("cleanups".into())
                .spawn(move || run_cleanups(signals))
                .context("cannot start a thread")?;
            cleanups.is_listening = true;
        }
        let number = cleanups.next;
        cleanups.next += 1;
        let ending = Arc::new(Mutex::new(()));
        cleanups.registered.insert(number, (Arc::clone(&ending), Box::new(clean)));
        Ok(Self { number, ending, _handling: handling })
    }

    /// Blocks signals until the guard is dropped.
    pub(crate) fn hold(&self) -> MutexGuard<'_, ()> {
        self.ending.lock()
    }
}

/// Runs the cleanups at the first signal for which there are some, and ends the program.
fn run_cleanups(mut signals: Signals) {
    for signal in signals.forever() {
        let mut cleanups = CLEANUPS.lock();
        let registered = std::mem::take(&mut cleanups.registered);
        cleanups.is_ending = !registered.is_empty();
        drop(cleanups);
        if registered.is_empty() {
            continue;
        }
        let (endings, cleanups): (Vec<_>, Vec<_>) = registered.into_values().unzip();
        let _held: Vec<_> = endings.iter().map(|ending| ending.lock()).collect();
        cleanups.into_iter().rev().for_each(|clean| clean());
        // The shell sees the signal, and shows 130 after Ctrl-C.
        let _ = emulate_default_handler(signal);
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        let removed = CLEANUPS.lock().registered.remove(&self.number);
        // Values that the closure owns are dropped without the lock.
        drop(removed);
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
