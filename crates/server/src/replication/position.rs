//! How far a replica has come, in the file of `-rts`.
//!
//! The file holds the time stamp of the last operation that was executed, in decimal, and a line
//! end, as the original's. It is written after each operation, so that a process that is killed
//! leaves one in doubt at most: the next one may have been executed or not. Where executing it again
//! would show, the state of its records before it is noted first, in a file beside (`.doubt`), and
//! compared when it comes again.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Digits of a time stamp in the file beside.
const DIGITS: usize = 20;

/// An operation that may have been executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Doubt {
    /// Its time stamp.
    pub(super) timestamp_us: u64,
    /// Of its records before it.
    pub(super) state: u64,
}

/// The file, and the one beside.
#[derive(Debug)]
pub(super) struct Position {
    file: File,
    beside: File,
    timestamp_us: u64,
    doubt: Option<Doubt>,
    /// Bytes of the file.
    length: usize,
}

impl Position {
    /// Opens the file; without one nothing was executed yet.
    pub(super) fn open(path: &Path) -> std::io::Result<Self> {
        let (file, text) = open(path)?;
        let (beside, note) = open(&beside(path))?;
        let digits = text.trim_start().bytes().take_while(u8::is_ascii_digit).count();
        let timestamp_us = match &text.trim_start()[..digits] {
            "" if text.trim().is_empty() => 0,
            number => number.parse().map_err(|_| {
                std::io::Error::new(std::io::ErrorKind::InvalidData, "it holds no time stamp")
            })?,
        };
        let doubt = note.trim_end().split_once(' ').and_then(|(timestamp, state)| {
            let timestamp_us = timestamp.parse().ok()?;
            Some(Doubt { timestamp_us, state: u64::from_str_radix(state, 16).ok()? })
        });
        let doubt = doubt.filter(|doubt| doubt.timestamp_us > timestamp_us);
        Ok(Self { file, beside, timestamp_us, doubt, length: text.len() })
    }

    /// Time stamp of the last operation that was executed, 0 for none.
    pub(super) fn timestamp_us(&self) -> u64 {
        self.timestamp_us
    }

    /// The operation in doubt, if executing it again would show.
    pub(super) fn doubt(&self) -> Option<Doubt> {
        self.doubt
    }

    /// Notes that an operation is about to be executed.
    pub(super) fn doubt_next(&mut self, doubt: Doubt) -> std::io::Result<()> {
        let Doubt { timestamp_us, state } = doubt;
        // Of one length, so that nothing is left of the note before.
        let note = format!("{timestamp_us:0DIGITS$} {state:016x}\n");
        self.beside.write_all_at(note.as_bytes(), 0)?;
        self.doubt = Some(doubt);
        Ok(())
    }

    /// Everything up to `timestamp_us` has been executed.
    pub(super) fn advance(&mut self, timestamp_us: u64) -> std::io::Result<()> {
        let text = format!("{timestamp_us}\n");
        self.file.write_all_at(text.as_bytes(), 0)?;
        if text.len() < self.length {
            self.file.set_len(text.len() as u64)?;
        }
        self.length = text.len();
        self.timestamp_us = timestamp_us;
        self.doubt = None;
        Ok(())
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".doubt");
    name.into()
}

fn open(path: &Path) -> std::io::Result<(File, String)> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    let mut text = String::new();
    // Either file is a line of few digits.
    file.take(256).read_to_string(&mut text)?;
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    Ok((file, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reopened(path: &Path) -> Position {
        Position::open(path).expect("a position")
    }

    #[test]
    fn a_position_is_a_decimal_number_and_a_line_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ttserver.rts");
        let mut position = reopened(&path);
        assert_eq!(position.timestamp_us(), 0);
        position.advance(1_795_224_532_475_177).expect("room");
        assert_eq!(std::fs::read(&path).expect("a file"), b"1795224532475177\n");
        assert_eq!(reopened(&path).timestamp_us(), 1_795_224_532_475_177);
        position.advance(7).expect("room");
        assert_eq!(std::fs::read(&path).expect("a file"), b"7\n");
    }

    #[test]
    fn an_operation_is_in_doubt_until_the_position_has_passed_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rts");
        let mut position = reopened(&path);
        position.advance(10).expect("room");
        let doubt = Doubt { timestamp_us: 11, state: 0xfeed };
        position.doubt_next(doubt).expect("room");
        assert_eq!(reopened(&path).doubt(), Some(doubt));
        position.advance(11).expect("room");
        assert_eq!(reopened(&path).doubt(), None);
    }

    #[test]
    fn what_is_no_time_stamp_is_an_error_and_not_the_beginning() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rts");
        for text in ["x", "-1", "99999999999999999999999\n"] {
            std::fs::write(&path, text).expect("room");
            assert!(Position::open(&path).is_err(), "{text}");
        }
        for text in ["", "\n"] {
            std::fs::write(&path, text).expect("room");
            assert_eq!(reopened(&path).timestamp_us(), 0, "{text:?}");
        }
    }
}
