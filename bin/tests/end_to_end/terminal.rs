//! `tyrant` on a terminal, as a person uses it.

use crate::process::{self, wait_for};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A program on a terminal of 80 columns and 24 rows.
pub(crate) struct Terminal {
    pub(crate) program: Child,
    terminal: File,
    shown: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Terminal {
    pub(crate) fn open(arguments: &[&str]) -> Self {
        Self::open_with(arguments, &[])
    }

    /// Runs `tyrant` with variables of the environment.
    pub(crate) fn open_with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&terminal).expect("a terminal");
        unlockpt(&terminal).expect("a terminal");
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).expect("a size");
        let name = ptsname(&terminal, Vec::new()).expect("its name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let end = || rustix::fs::open(&name, flags, Mode::empty()).expect("its other end");
        let program = Command::new(process::path("tyrant"))
            .args(arguments)
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .envs(variables.iter().copied())
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("the program starts");
        let terminal = File::from(terminal);
        let mut source = terminal.try_clone().expect("a copy");
        let shown = Arc::<Mutex<Vec<u8>>>::default();
        let output = Arc::clone(&shown);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It fails when the program has ended.
            while let Ok(length @ 1..) = source.read(&mut bytes) {
                output.lock().extend_from_slice(&bytes[..length]);
            }
        });
        Self { program, terminal, shown, reader }
    }

    /// Types keys.
    pub(crate) fn send(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).expect("to type");
    }

    /// Returns what was shown, with the sequences that command the terminal.
    pub(crate) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock()).into_owned()
    }

    /// Waits until a text was shown.
    pub(crate) fn await_text(&self, text: &str) {
        self.await_shown(text, |shown| shown.contains(text));
    }

    /// Waits until what was shown meets a condition.
    pub(crate) fn await_shown(&self, what: &str, condition: impl Fn(&str) -> bool) {
        let what = format!("{what:?} on the terminal");
        wait_for(&what, || condition(&self.shown()).then_some(()));
    }

    /// Waits until the program gets each key as it is typed.
    pub(crate) fn await_raw(&self) {
        let is_raw = || (!self.shows_typing()).then_some(());
        wait_for("a terminal whose keys the program gets at once", is_raw);
    }

    /// Waits for a prompt, at which the terminal hides what is typed.
    pub(crate) fn await_hidden(&self, text: &str) {
        self.await_text(text);
        assert!(!self.shows_typing(), "{}", self.shown());
    }

    pub(crate) fn shows_typing(&self) -> bool {
        let modes = tcgetattr(&self.terminal).expect("its modes").local_modes;
        modes.contains(LocalModes::ECHO)
    }

    /// Waits for the end of the program. All that it has shown is there then.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let end =
            wait_for("the end of the program", || self.program.try_wait().expect("its state"));
        wait_for("its last output", || self.reader.is_finished().then_some(()));
        end
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A test that failed leaves it running.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
