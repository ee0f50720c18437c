//! Where in its master's log each entry is that came from there.
//!
//! A replica gives its entries time stamps of its own. So that another replica of the same master can go
//! on in this log when this server takes over, there is a line for each entry from the master: its time
//! stamp here, and that in the master's log. The lines are in files `places.00000001` and so on, each of which
//! begins with 0 and the highest place before it; the
//! file `followed` says of which log they are, and since when they are without a gap.
//!
//! Behind the point where they begin the log has entries with lines only, and then, once this server is a
//! master itself, entries without only. Whatever else comes ends that: the lines are removed, and begin
//! again when the master is connected to next.

use super::{Error, Result};
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of lines from which the next file begins.
const PART_BYTES_MAX: u64 = 16 << 20;

const FOLLOWED: &str = "followed";

/// Name of the files with lines, before their number.
const PREFIX: &str = "places.";

const LINE_BYTES: usize = 16;

/// A line: time stamps of an entry, in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// In this log.
    pub(crate) own_us: u64,
    /// In the master's.
    pub(crate) place_us: u64,
}

impl Line {
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.own_us.to_be_bytes());
        out.extend_from_slice(&self.place_us.to_be_bytes());
    }

    fn parse(bytes: [u8; LINE_BYTES]) -> Self {
        let both = u128::from_be_bytes(bytes);
        Self { own_us: (both >> 64) as u64, place_us: both as u64 }
    }
}

/// The master's log that lines are of, and where they begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Followed {
    /// Its identity.
    pub(crate) log: String,
    /// Everything up to here in the master's log was executed before; the rest has lines.
    pub(crate) from_us: u64,
    /// Entries of this log up to here are older than that.
    pub(crate) own_us: u64,
}

impl Followed {
    /// What is noted in a folder; `None` where that cannot be understood either.
    fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FOLLOWED);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::Io { operation: "read", path, source }),
        };
        let mut words = text.split_whitespace();
        let mut next = || words.next();
        let followed = || {
            let log = next()?.to_owned();
            let (from_us, own_us) = (next()?.parse().ok()?, next()?.parse().ok()?);
            next().is_none().then_some(Self { log, from_us, own_us })
        };
        Ok({ followed }())
    }

    fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(FOLLOWED);
        let new = folder.join("followed.new");
        let Self { log, from_us, own_us } = self;
        let written = fs::write(&new, format!("{log} {from_us} {own_us}\n"))
            .and_then(|()| fs::rename(&new, &path));
        written.map_err(|source| Error::Io { operation: "write", path, source })
    }
}

/// The lines, as they are written.
#[derive(Debug)]
pub(super) struct Places {
    folder: PathBuf,
    followed: Option<Followed>,
    number: u64,
    file: Option<File>,
    /// Bytes of the present file.
    bytes: u64,
    /// The highest place in the master's log of any line.
    highest_us: u64,
}

impl Places {
    /// Opens those in the folder of a log that ends with `last_us`, unless something that they do not
    /// tell may have come to the log since they were written, as `is_broken` says. Answers also whether
    /// entries without lines follow them.
    pub(super) fn open(folder: &Path, last_us: u64, is_broken: bool) -> Result<(Self, bool)> {
        let folder = folder.to_owned();
        let followed = Followed::read(&folder)?;
        let mut places = Self { folder, followed, number: 0, file: None, bytes: 0, highest_us: 0 };
        let Some(followed) = &places.followed else { return Ok((places, false)) };
        let mut end_us = followed.own_us;
        if let Some((number, path)) = parts(&places.folder)?.pop() {
            let failed = |source| Error::Io { operation: "open", path: path.clone(), source };
            let file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?;
            let length = file.metadata().map_err(failed)?.len();
            places.bytes = length - length % LINE_BYTES as u64;
            for line in Lines::open(&path)? {
                let Line { own_us, place_us } = line?;
                end_us = end_us.max(own_us);
                places.highest_us = places.highest_us.max(place_us);
            }
            (places.number, places.file) = (number, Some(file));
        }
        // Lines are written first: those without an entry are of a log that has lost its end.
        if is_broken || end_us > last_us.max(followed.own_us) {
            places.forget()?;
        }
        Ok((places, last_us > end_us))
    }

    pub(super) fn followed(&self) -> Option<&Followed> {
        self.followed.as_ref()
    }

    /// Lines begin.
    pub(super) fn begin(&mut self, followed: Followed) -> Result<()> {
        self.forget()?;
        followed.write(&self.folder)?;
        self.followed = Some(followed);
        Ok(())
    }

    /// Removes all of them.
    pub(super) fn forget(&mut self) -> Result<()> {
        self.followed = None;
        (self.number, self.file, self.bytes, self.highest_us) = (0, None, 0, 0);
        // First what gives them a meaning.
        let paths = parts(&self.folder)?.into_iter().map(|(_, path)| path);
        for path in [self.folder.join(FOLLOWED)].into_iter().chain(paths) {
            match fs::remove_file(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                removed => {
                    removed.map_err(|source| Error::Io { operation: "remove", path, source })?
                }
            }
        }
        Ok(())
    }

    /// Writes lines, before the entries that they are of. After an error they can be given again.
    pub(super) fn write(&mut self, lines: &[u8]) -> Result<()> {
        if lines.is_empty() || self.followed.is_none() {
            return Ok(());
        }
        let is_full = self.file.is_none() || self.bytes >= PART_BYTES_MAX;
        let number = self.number + u64::from(is_full);
        let path = self.folder.join(format!("{PREFIX}{number:08}"));
        let failed = |source| Error::Io { operation: "write to", path: path.clone(), source };
        if is_full {
            let mut options = OpenOptions::new();
            let opened = options.read(true).write(true).create(true).truncate(true).open(&path);
            let file = opened.map_err(failed)?;
            let mut head = Vec::with_capacity(LINE_BYTES);
            Line { own_us: 0, place_us: self.highest_us }.encode(&mut head);
            file.write_all_at(&head, 0).map_err(failed)?;
            (self.number, self.file, self.bytes) = (number, Some(file), LINE_BYTES as u64);
        }
        if let Some(file) = &self.file {
            file.write_all_at(lines, self.bytes).map_err(failed)?;
        }
        self.bytes += lines.len() as u64;
        let places = lines.as_chunks().0.iter().map(|line| Line::parse(*line).place_us);
        self.highest_us = places.fold(self.highest_us, u64::max);
        Ok(())
    }

    /// Removes files with lines of entries before `oldest_us` only.
    pub(super) fn keep(&self, oldest_us: u64) -> Result<()> {
        let parts = parts(&self.folder)?;
        for pair in parts.windows(2) {
            let [(_, path), (_, next)] = pair else { continue };
            let begins = Lines::open(next)?.nth(1).transpose()?;
            if begins.is_none_or(|line| line.own_us > oldest_us) {
                break;
            }
            let failed = |source| Error::Io { operation: "remove", path: path.clone(), source };
            fs::remove_file(path).map_err(failed)?;
        }
        Ok(())
    }
}

/// Lines of a file, one by one.
struct Lines {
    path: PathBuf,
    file: BufReader<File>,
}

impl Lines {
    fn open(path: &Path) -> Result<Self> {
        let failed = |source| Error::Io { operation: "open", path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        Ok(Self { path: path.to_owned(), file: BufReader::with_capacity(256 << 10, file) })
    }
}

impl Iterator for Lines {
    type Item = Result<Line>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = [0; LINE_BYTES];
        match self.file.read_exact(&mut line) {
            Ok(()) => Some(Ok(Line::parse(line))),
            // The last one may be about to be written.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => None,
            Err(source) => {
                Some(Err(Error::Io { operation: "read", path: self.path.clone(), source }))
            }
        }
    }
}

/// Lines in a folder of entries up to `end_us`, the oldest first. `None` if lines with places behind
/// `after_us` have been removed.
pub(super) fn lines(
    folder: &Path,
    after_us: u64,
    end_us: u64,
) -> Result<Option<impl Iterator<Item = Result<Line>>>> {
    let mut all = Vec::new();
    for (_, path) in parts(folder)? {
        let mut part = Lines::open(&path)?;
        match part.next().transpose()? {
            // Nothing is wanted of those before it.
            Some(head) if head.place_us <= after_us => all.clear(),
            Some(_) if all.is_empty() => return Ok(None),
            Some(_) => {}
            // It is about to be begun.
            None => break,
        }
        all.push(part);
    }
    let is_wanted = move |line: &Result<Line>| !matches!(line, Ok(line) if line.own_us > end_us);
    Ok(Some(all.into_iter().flatten().take_while(is_wanted)))
}

/// The files with lines in a folder, by their numbers.
fn parts(folder: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let failed = |source| Error::Io { operation: "read", path: folder.to_owned(), source };
    let mut parts = Vec::new();
    for item in fs::read_dir(folder).map_err(failed)? {
        let item = item.map_err(failed)?;
        let name = item.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            parts.push((number, item.path()));
        }
    }
    parts.sort_unstable();
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(lines: impl IntoIterator<Item = (u64, u64)>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (own_us, place_us) in lines {
            Line { own_us, place_us }.encode(&mut bytes);
        }
        bytes
    }

    fn begun(folder: &Path) -> Places {
        let mut places = reopened(folder, 0, false).0;
        let log = "log".to_owned();
        places.begin(Followed { log, from_us: 10, own_us: 5 }).expect("room");
        places
    }

    fn reopened(folder: &Path, last_us: u64, is_broken: bool) -> (Places, bool) {
        Places::open(folder, last_us, is_broken).expect("files")
    }

    fn found(folder: &Path, after_us: u64, end_us: u64) -> Option<Vec<(u64, u64)>> {
        let all = lines(folder, after_us, end_us).expect("files")?;
        let line = |line: Result<Line>| line.map(|line| (line.own_us, line.place_us));
        Some(all.map(line).collect::<Result<_>>().expect("files"))
    }

    #[test]
    fn lines_are_there_in_their_order_up_to_an_entry() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut places = begun(folder.path());
        assert_eq!(found(folder.path(), 10, 99), Some(vec![]));
        places.write(&encoded([(6, 11), (7, 13)])).expect("room");
        places.write(&encoded([(8, 12)])).expect("room");
        assert_eq!(found(folder.path(), 10, 7), Some(vec![(6, 11), (7, 13)]));
        let (mut places, has_own) = reopened(folder.path(), 8, false);
        assert_eq!(places.followed().map(|followed| followed.from_us), Some(10));
        assert!(!has_own);
        places.write(&encoded([(9, 14)])).expect("room");
        assert_eq!(found(folder.path(), 10, 99).map(|lines| lines.len()), Some(4));
        assert!(reopened(folder.path(), 10, false).1);
    }

    #[test]
    fn lines_that_may_have_gaps_or_lack_their_entries_are_forgotten() {
        for (last_us, is_broken) in [(8, true), (7, false)] {
            let folder = tempfile::tempdir().expect("a folder");
            begun(folder.path()).write(&encoded([(8, 12)])).expect("room");
            assert_eq!(reopened(folder.path(), last_us, is_broken).0.followed(), None);
            assert_eq!(found(folder.path(), 10, 99), Some(vec![]));
        }
    }

    #[test]
    fn files_of_lines_go_with_those_of_the_log_and_no_line_is_passed_over_because_of_that() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut places = begun(folder.path());
        let count = PART_BYTES_MAX / LINE_BYTES as u64;
        places.write(&encoded((0..count).map(|at| (6 + at, 11 + at)))).expect("room");
        // The last one of the first file has a place behind that of the first one of the next.
        places.write(&encoded([(6 + count, 11 + count - 2)])).expect("room");
        let first_of_next = Some(vec![(6 + count, 9 + count)]);
        assert_eq!(found(folder.path(), 10 + count, u64::MAX), first_of_next);
        assert_eq!(
            found(folder.path(), 9 + count, u64::MAX).map(|all| all.len() as u64),
            Some(count + 1)
        );
        places.keep(5 + count).expect("files");
        assert_eq!(parts(folder.path()).expect("files").len(), 2);
        places.keep(6 + count).expect("files");
        assert_eq!(parts(folder.path()).expect("files").len(), 1);
        assert_eq!(found(folder.path(), 9 + count, u64::MAX), None);
        assert_eq!(found(folder.path(), 10 + count, u64::MAX), first_of_next);
    }

    #[test]
    fn what_was_noted_and_cannot_be_understood_is_nothing() {
        for text in ["", "log", "log 1", "log 1 x", "log 1 2 3"] {
            let folder = tempfile::tempdir().expect("a folder");
            fs::write(folder.path().join(FOLLOWED), text).expect("room");
            assert_eq!(reopened(folder.path(), 8, false).0.followed(), None, "{text}");
        }
    }
}
