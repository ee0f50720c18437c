//! Roots: for each received entry, the log and the time stamp of its first entry.
//!
//! A server gives its entries time stamps of its own. A replica that has executed some of the
//! entries elsewhere can resume in this log because of the roots. Each received entry has a line:
//! its time stamp here, and the log and time stamp of its root. The lines are in files
//! `roots.00000001` and so on. Each file begins with the highest time stamp of each log in all
//! earlier lines. Entries without a line count as made here first.
//!
//! The file `had` has the time stamp since which every received entry has a line, and the progress
//! in each log before that. The log of a server that was never a replica does not have this file.

use super::{Error, Result};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use wire::replication::Root;

/// Size of a file from which the next one begins, in bytes.
const PART_BYTES_MAX: u64 = 16 << 20;

/// Length of a read, in bytes.
const CHUNK_BYTES: usize = LINE_BYTES << 12;

const STATE: &str = "had";

/// Prefix of the names of the files with lines, before their number.
const PREFIX: &str = "roots.";

const LINE_BYTES: usize = 24;

/// Line of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RootLine {
    /// Time stamp of the entry in this log, in microseconds since 1970; 0 in the head of a file.
    pub(crate) own_us: u64,
    /// Log and time stamp of the first entry.
    pub(crate) root: Root,
}

impl RootLine {
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        for number in [self.own_us, self.root.log, self.root.timestamp_us] {
            out.extend_from_slice(&number.to_be_bytes());
        }
    }

    fn parse(bytes: &[u8; LINE_BYTES]) -> Self {
        let numbers = bytes.as_chunks().0;
        let [own_us, log, timestamp_us] =
            [0, 1, 2].map(|at| numbers.get(at).map_or(0, |number| u64::from_be_bytes(*number)));
        Self { own_us, root: Root { log, timestamp_us } }
    }
}

/// Contents of the file `had`: how far the roots are known, on a server that is or was a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RootState {
    /// Time stamp after which every received entry has a line; `None` if some lines are missing.
    pub(super) floor_us: Option<u64>,
    /// Time stamp of the first own entry, as far back as that matters; 0 without any.
    pub(super) own_us: u64,
    /// Time stamp of the first own entry after the floor; 0 without any.
    pub(super) since_us: u64,
    /// Each log with the highest time stamp that the entries up to the floor may have in it.
    pub(super) logs: Vec<(u64, u64)>,
}

impl RootState {
    /// Reads the state in a folder. A malformed file counts as a state of unknown roots.
    fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(STATE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::Io { operation: "read", path, source }),
        };
        let mut lines = text.lines().map(|line| {
            let numbers = line.split(' ').map(|number| number.parse::<u64>().ok());
            numbers.collect::<Option<Vec<_>>>().unwrap_or_default()
        });
        let unknown = Self { own_us: 1, ..Self::default() };
        let first: Option<[u64; 3]> = lines.next().and_then(|line| line.try_into().ok());
        let Some([own_us, after_us, since_us]) = first else {
            return Ok(Some(unknown));
        };
        let logs: Option<Vec<_>> = lines
            .map(|line| match line[..] {
                [log, highest_us] => Some((log, highest_us)),
                _ => None,
            })
            .collect();
        Ok(Some(logs.map_or(unknown, |logs| Self {
            // The file has 1 more, because the floor of a log without entries is 0.
            floor_us: after_us.checked_sub(1),
            own_us,
            since_us,
            logs,
        })))
    }

    fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(STATE);
        let new = folder.join("had.new");
        let after_us = self.floor_us.map_or(0, |floor_us| floor_us.saturating_add(1));
        let mut text = format!("{} {after_us} {}\n", self.own_us, self.since_us);
        for (log, highest_us) in &self.logs {
            text.push_str(&format!("{log} {highest_us}\n"));
        }
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &path));
        written.map_err(|source| Error::Io { operation: "write", path, source })
    }
}

/// Writer of the lines and of the state.
#[derive(Debug)]
pub(super) struct Roots {
    folder: PathBuf,
    state: Option<RootState>,
    number: u64,
    file: Option<File>,
    /// Length of the present file, in bytes.
    bytes: u64,
    /// Highest time stamp of each log in any line.
    highest_us: BTreeMap<u64, u64>,
}

impl Roots {
    /// Opens the roots in the folder of a log whose last entry has `last_us`. `is_broken` means
    /// that an entry may have no line. `has_lost` means that the log may have lost entries.
    /// `own_us` is the time stamp of the first own entry that was recovered, 0 without any.
    pub(super) fn open(
        folder: &Path,
        last_us: u64,
        (is_broken, has_lost, own_us): (bool, bool, u64),
    ) -> Result<Self> {
        let folder = folder.to_owned();
        let state = RootState::read(&folder)?;
        let highest_us = BTreeMap::new();
        let mut roots = Self { folder, state, number: 0, file: None, bytes: 0, highest_us };
        let mut end_us = roots.state.as_ref().and_then(|state| state.floor_us).unwrap_or(0);
        if let Some((number, path)) = parts(&roots.folder)?.pop() {
            let failed = |source| Error::Io { operation: "open", path: path.clone(), source };
            let file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?;
            let length = file.metadata().map_err(failed)?.len();
            roots.bytes = length - length % LINE_BYTES as u64;
            let mut lines = RootLines::of(&roots.folder, number)?;
            let floor_us = end_us;
            let mut is_empty = true;
            while let Some(line) = lines.next()? {
                end_us = end_us.max(line.own_us);
                is_empty &= line.own_us == 0 || line.own_us <= floor_us;
                roots.raise(line.root);
            }
            (roots.number, roots.file) = (number, Some(file));
            if is_empty {
                roots.begin_part();
            }
        }
        if let Some(state) = &roots.state
            && own_us > 0
            && (state.own_us == 0 || state.since_us == 0)
        {
            let first = |noted_us| if noted_us == 0 { own_us } else { noted_us };
            let (own_us, since_us) = (first(state.own_us), first(state.since_us));
            roots.assume(RootState { own_us, since_us, ..state.clone() });
        }
        // Lines are written before their entries: a line without one means that the log has lost
        // its end.
        if is_broken || end_us > last_us || has_lost && roots.state.is_some() {
            let own_us = roots.state.as_ref().map_or(u64::from(last_us > 0), |state| state.own_us);
            roots.assume(RootState { own_us, ..RootState::default() });
        }
        Ok(roots)
    }

    fn raise(&mut self, root: Root) {
        let highest_us = self.highest_us.entry(root.log).or_default();
        *highest_us = root.timestamp_us.max(*highest_us);
    }

    /// Begins a new file, without the logs of the lines so far, which are of entries up to the
    /// floor.
    fn begin_part(&mut self) {
        self.highest_us.clear();
        self.file = None;
    }

    pub(super) fn state(&self) -> Option<&RootState> {
        self.state.as_ref()
    }

    /// Returns the logs in any line.
    pub(super) fn logs(&self) -> impl Iterator<Item = u64> {
        self.highest_us.keys().copied()
    }

    /// Saves the state, if it has changed.
    pub(super) fn save(&mut self, state: RootState) -> Result<()> {
        if self.state.as_ref() != Some(&state) {
            state.write(&self.folder)?;
            let floor_us = self.state.as_ref().and_then(|state| state.floor_us);
            if state.floor_us.is_some() && state.floor_us != floor_us {
                self.begin_part();
            }
            self.state = Some(state);
        }
        Ok(())
    }

    /// Saves the state, or clears the file if that fails, as on a full disk: the next process then
    /// takes the roots as unknown.
    pub(super) fn assume(&mut self, state: RootState) {
        if let Err(error) = self.save(state.clone()) {
            tracing::warn!("update log: {error}");
            // Clearing the file needs no space.
            let _ = fs::write(self.folder.join(STATE), "");
            self.state = Some(state);
        }
    }

    /// Writes lines, before their entries are written. After an error the same bytes can be given
    /// again.
    pub(super) fn write(&mut self, lines: &[u8]) -> Result<()> {
        if lines.is_empty() {
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
            let mut head = Vec::new();
            for (&log, &timestamp_us) in &self.highest_us {
                RootLine { own_us: 0, root: Root { log, timestamp_us } }.encode(&mut head);
            }
            file.write_all_at(&head, 0).map_err(failed)?;
            (self.number, self.file, self.bytes) = (number, Some(file), head.len() as u64);
        }
        if let Some(file) = &self.file {
            file.write_all_at(lines, self.bytes).map_err(failed)?;
        }
        self.bytes += lines.len() as u64;
        for line in lines.as_chunks().0 {
            self.raise(RootLine::parse(line).root);
        }
        Ok(())
    }

    /// Removes files that only have lines of entries before `oldest_us`.
    pub(super) fn remove_before(&self, oldest_us: u64) -> Result<()> {
        let parts = parts(&self.folder)?;
        for pair in parts.windows(2) {
            let [(_, path), (next, _)] = pair else { continue };
            if first_own_us(&self.folder, *next)?.is_none_or(|own_us| own_us > oldest_us) {
                break;
            }
            let failed = |source| Error::Io { operation: "remove", path: path.clone(), source };
            fs::remove_file(path).map_err(failed)?;
        }
        Ok(())
    }
}

/// Reader of the lines, also while lines are added.
pub(crate) struct RootLines {
    folder: PathBuf,
    number: u64,
    file: Option<File>,
    offset: u64,
    chunk: Vec<u8>,
    taken: usize,
    /// Line that was read before its entry was requested.
    ahead: Option<RootLine>,
    /// Whether the last read found no further line.
    has_ended: bool,
    /// [`UpdateLog::root_writes`](super::UpdateLog::root_writes) at the last poll.
    polled: Option<u64>,
}

impl RootLines {
    /// Opens a reader at the beginning of file `number`.
    fn of(folder: &Path, number: u64) -> Result<Self> {
        let path = folder.join(format!("{PREFIX}{number:08}"));
        let file = match File::open(&path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(source) => return Err(Error::Io { operation: "open", path, source }),
        };
        let folder = folder.to_owned();
        Ok(Self {
            folder,
            number,
            file,
            offset: 0,
            chunk: Vec::new(),
            taken: 0,
            ahead: None,
            has_ended: false,
            polled: None,
        })
    }

    /// Opens a reader of the lines of entries from `from_us` on, and maybe of some earlier ones.
    pub(crate) fn from(folder: &Path, from_us: u64) -> Result<Self> {
        let mut parts = parts(folder)?;
        while parts.len() > 1
            && let Some((number, _)) = parts.last()
            && first_own_us(folder, *number)?.is_none_or(|own_us| own_us > from_us)
        {
            parts.pop();
        }
        Self::of(folder, parts.last().map_or(0, |(number, _)| *number))
    }

    /// Resumes reading, after the reader has met the end, if lines have been written since the last
    /// poll. `writes` is the number of writes so far. A read at the end lists the folder, which
    /// takes longer than sending the entries of a moment.
    pub(crate) fn poll_again(&mut self, writes: u64) {
        if self.polled != Some(writes) {
            (self.has_ended, self.polled) = (false, Some(writes));
        }
    }

    /// Returns the root of the entry with this time stamp, if its line was there at the last read.
    /// Requested time stamps must rise.
    pub(crate) fn root_of(&mut self, own_us: u64) -> Result<Option<Root>> {
        loop {
            let line = match self.ahead.take() {
                Some(line) => line,
                // Reading again for each entry without a line would take too long.
                None if self.has_ended => return Ok(None),
                None => match self.next()? {
                    Some(line) => line,
                    None => {
                        self.has_ended = true;
                        return Ok(None);
                    }
                },
            };
            if line.own_us > own_us {
                self.ahead = Some(line);
                return Ok(None);
            }
            if line.own_us == own_us {
                return Ok(Some(line.root));
            }
        }
    }

    /// Returns the next line, if there is one.
    pub(super) fn next(&mut self) -> Result<Option<RootLine>> {
        loop {
            if let Some(line) = self.chunk[self.taken..].first_chunk() {
                self.taken += LINE_BYTES;
                return Ok(Some(RootLine::parse(line)));
            }
            if self.fill()? {
                continue;
            }
            let next = parts(&self.folder)?.into_iter().find(|(number, _)| *number > self.number);
            let Some((number, _)) = next else { return Ok(None) };
            // The end of this file may have been written after the last read.
            if self.file.is_some() && self.fill()? {
                continue;
            }
            let (ahead, polled) = (self.ahead.take(), self.polled);
            *self = Self { ahead, polled, ..Self::of(&self.folder, number)? };
        }
    }

    /// Reads the next lines. Returns whether there were any.
    fn fill(&mut self) -> Result<bool> {
        let Some(file) = &self.file else { return Ok(false) };
        self.chunk.resize(CHUNK_BYTES, 0);
        let read = file.read_at(&mut self.chunk, self.offset);
        let read = read.map_err(|source| {
            let path = self.folder.join(format!("{PREFIX}{:08}", self.number));
            Error::Io { operation: "read", path, source }
        });
        // The last line may be incomplete.
        let whole = *read.as_ref().unwrap_or(&0) / LINE_BYTES * LINE_BYTES;
        self.chunk.truncate(whole);
        (self.taken, self.offset) = (0, self.offset + whole as u64);
        read.map(|_| whole > 0)
    }
}

/// Returns the time stamp of the first entry with a line in a file, if there is one.
fn first_own_us(folder: &Path, number: u64) -> Result<Option<u64>> {
    let mut lines = RootLines::of(folder, number)?;
    while let Some(line) = lines.next()?
        && lines.number == number
    {
        if line.own_us > 0 {
            return Ok(Some(line.own_us));
        }
    }
    Ok(None)
}

/// Returns the time stamp of the first entry after `floor_us` whose root is beyond `bases`, which
/// has per log the highest time stamp that is not wanted. Returns `None` if lines of such entries
/// may have been removed. Files may be removed during the search, which may take long.
pub(super) fn first_beyond(
    folder: &Path,
    floor_us: u64,
    bases: &BTreeMap<u64, u64>,
) -> Result<Option<Option<u64>>> {
    loop {
        let (start, first) = search_beyond(folder, floor_us, bases)?;
        // The oldest file is removed first: if it is present, no file of the search was removed.
        let path = start.map(|number| folder.join(format!("{PREFIX}{number:08}")));
        if path.is_none_or(|path| path.exists()) {
            return Ok(first);
        }
    }
}

/// Searches once. Returns the number of the first file that was searched, and the result.
fn search_beyond(
    folder: &Path,
    floor_us: u64,
    bases: &BTreeMap<u64, u64>,
) -> Result<(Option<u64>, Option<Option<u64>>)> {
    let is_beyond =
        |root: Root| root.timestamp_us > bases.get(&root.log).copied().unwrap_or_default();
    let mut start = None;
    for (number, _) in parts(folder)?.into_iter().rev() {
        start = Some(number);
        // No line of an earlier file is wanted.
        let mut lines = RootLines::of(folder, number)?;
        let mut is_all = true;
        while let Some(line) = lines.next()?
            && line.own_us == 0
        {
            is_all &= !is_beyond(line.root);
        }
        if is_all || first_own_us(folder, number)?.is_some_and(|own_us| own_us <= floor_us) {
            break;
        }
        if number > 1 && !folder.join(format!("{PREFIX}{:08}", number - 1)).exists() {
            return Ok((None, None));
        }
    }
    let Some(number) = start else { return Ok((None, Some(None))) };
    let mut lines = RootLines::of(folder, number)?;
    while let Some(line) = lines.next()? {
        if line.own_us > floor_us && is_beyond(line.root) {
            return Ok((start, Some(Some(line.own_us))));
        }
    }
    Ok((start, Some(None)))
}

/// Returns the files with lines in a folder, by their numbers.
fn parts(folder: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let failed = |source| Error::Io { operation: "read", path: folder.to_owned(), source };
    super::parts::parts(folder, PREFIX).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(lines: impl IntoIterator<Item = (u64, u64)>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (own_us, timestamp_us) in lines {
            RootLine { own_us, root: Root { log: 7, timestamp_us } }.encode(&mut bytes);
        }
        bytes
    }

    const STATE_AFTER_5: fn() -> RootState =
        || RootState { floor_us: Some(5), logs: vec![(7, 10)], ..RootState::default() };

    fn begun(folder: &Path) -> Roots {
        let mut roots = reopened(folder, 5, false);
        roots.save(STATE_AFTER_5()).expect("no failure");
        roots
    }

    fn reopened(folder: &Path, last_us: u64, is_broken: bool) -> Roots {
        Roots::open(folder, last_us, (is_broken, false, 0)).expect("files")
    }

    fn beyond(folder: &Path, base_us: u64) -> Option<Option<u64>> {
        first_beyond(folder, 5, &BTreeMap::from([(7, base_us)])).expect("files")
    }

    #[test]
    fn each_entry_with_a_line_has_its_root_while_lines_are_added() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut roots = begun(folder.path());
        let mut lines = RootLines::from(folder.path(), 0).expect("files");
        let root = |timestamp_us| Some(Root { log: 7, timestamp_us });
        assert_eq!(lines.root_of(6).expect("files"), None);
        roots.write(&encoded([(7, 11), (9, 13)])).expect("no failure");
        // Files are not read again for each entry without a line.
        assert_eq!(lines.root_of(7).expect("files"), None);
        lines.poll_again(1);
        assert_eq!(
            [7, 8, 9].map(|own_us| lines.root_of(own_us).expect("files")),
            [root(11), None, root(13)]
        );
        drop(roots);
        let mut roots = reopened(folder.path(), 9, false);
        assert_eq!(roots.state(), Some(&STATE_AFTER_5()));
        assert_eq!(lines.root_of(10).expect("files"), None);
        roots.write(&encoded([(10, 12)])).expect("no failure");
        // Nor are they if nothing was written since the last poll.
        lines.poll_again(1);
        assert_eq!(lines.root_of(10).expect("files"), None);
        lines.poll_again(2);
        assert_eq!(lines.root_of(10).expect("files"), root(12));
        assert_eq!(
            [10, 11, 12, 13].map(|base_us| beyond(folder.path(), base_us)),
            [Some(7), Some(9), Some(9), None].map(Some)
        );
    }

    #[test]
    fn lines_with_gaps_or_without_their_entries_make_the_roots_unknown() {
        for (last_us, is_broken) in [(8, true), (7, false)] {
            let folder = tempfile::tempdir().expect("a folder");
            begun(folder.path()).write(&encoded([(8, 12)])).expect("no failure");
            assert_eq!(
                reopened(folder.path(), last_us, is_broken).state(),
                Some(&RootState::default())
            );
        }
    }

    #[test]
    fn files_of_lines_are_removed_with_those_of_the_log_and_no_needed_line_is_lost() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut roots = begun(folder.path());
        let count = PART_BYTES_MAX / LINE_BYTES as u64 + 1;
        roots.write(&encoded((0..count).map(|at| (6 + at, 11 + at)))).expect("no failure");
        // The last line of the first file has a later time stamp than the first line of the next.
        roots.write(&encoded([(6 + count, 11 + count - 2)])).expect("no failure");
        assert_eq!(beyond(folder.path(), 10 + count), Some(None));
        assert_eq!(beyond(folder.path(), 8 + count), Some(Some(4 + count)));
        let mut lines = RootLines::from(folder.path(), 5 + count).expect("files");
        for own_us in [5 + count, 6 + count] {
            assert!(lines.root_of(own_us).expect("files").is_some());
        }
        roots.remove_before(5 + count).expect("files");
        assert_eq!(parts(folder.path()).expect("files").len(), 2);
        roots.remove_before(6 + count).expect("files");
        assert_eq!(parts(folder.path()).expect("files").len(), 1);
        assert_eq!(beyond(folder.path(), 9 + count), None);
        assert_eq!(beyond(folder.path(), 10 + count), Some(None));
    }

    #[test]
    fn a_malformed_state_makes_the_roots_unknown() {
        for text in
            ["", "1", "x 1", "1 2", "1 2 x", "1 2 3 4", "1 2 3\nx", "1 2 3\n4", "1 2 3\n4 5 6"]
        {
            let folder = tempfile::tempdir().expect("a folder");
            fs::write(folder.path().join(STATE), text).expect("no failure");
            let roots = reopened(folder.path(), 8, false);
            assert_eq!(roots.state().map(|state| state.floor_us), Some(None), "{text}");
        }
    }
}
