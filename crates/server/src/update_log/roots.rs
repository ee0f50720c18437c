//! Where each entry was made first that came from another server.
//!
//! A server gives its entries time stamps of its own. So that a replica can go on in this log that
//! has executed some of its entries elsewhere, there is a line for each entry that came with its
//! root: its time stamp here, and the log and time stamp where it was made first. The lines are in
//! files `roots.00000001` and so on, each of which begins with the highest time stamp of each log
//! in the lines before it. Entries without a line count as made first here.
//!
//! The file `had` says since when every entry that came from another server has a line, and what
//! was executed of each log before. It is not there in the log of a server that was never a
//! replica.

use super::{Error, Result};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use wire::replication::Root;

/// Bytes of lines from which the next file begins.
const PART_BYTES_MAX: u64 = 16 << 20;

/// Bytes of lines that are read at once.
const CHUNK_BYTES: usize = LINE_BYTES << 12;

const STATE: &str = "had";

/// Name of the files with lines, before their number.
const PREFIX: &str = "roots.";

const LINE_BYTES: usize = 24;

/// A line about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RootLine {
    /// Its time stamp in this log, in microseconds since 1970; 0 at the beginning of a file.
    pub(crate) own_us: u64,
    /// Where it was made first.
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

/// What is known of the entries of a server that is, or was, a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RootState {
    /// Entries behind here have lines if they came from another server; `None` if that is not so.
    pub(super) floor_us: Option<u64>,
    /// The first entry that clients have made, as far back as that matters; 0 without any.
    pub(super) own_us: u64,
    /// The first one behind the floor; 0 without any.
    pub(super) since_us: u64,
    /// Up to where the entries up to the floor may have what was made first in each log.
    pub(super) logs: Vec<(u64, u64)>,
}

impl RootState {
    /// What is noted in a folder; nothing where that cannot be understood.
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
            // One more, as the floor of a log without entries is 0.
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

/// The lines, as they are written.
#[derive(Debug)]
pub(super) struct Roots {
    folder: PathBuf,
    had: Option<RootState>,
    number: u64,
    file: Option<File>,
    /// Bytes of the present file.
    bytes: u64,
    /// The highest time stamp of each log in any line.
    highest_us: BTreeMap<u64, u64>,
}

impl Roots {
    /// Opens those in the folder of a log that ends with `last_us`. An entry that a line may be
    /// missing of has come since they were written if `is_broken`, or the log may have lost
    /// entries, as `has_lost` says; `own_us` is the first one of a client that has come, if it is
    /// not 0.
    pub(super) fn open(
        folder: &Path,
        last_us: u64,
        (is_broken, has_lost, own_us): (bool, bool, u64),
    ) -> Result<Self> {
        let folder = folder.to_owned();
        let had = RootState::read(&folder)?;
        let highest_us = BTreeMap::new();
        let mut roots = Self { folder, had, number: 0, file: None, bytes: 0, highest_us };
        let mut end_us = roots.had.as_ref().and_then(|had| had.floor_us).unwrap_or(0);
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
        if let Some(had) = &roots.had
            && own_us > 0
            && (had.own_us == 0 || had.since_us == 0)
        {
            let first = |noted_us| if noted_us == 0 { own_us } else { noted_us };
            let (own_us, since_us) = (first(had.own_us), first(had.since_us));
            roots.assume(RootState { own_us, since_us, ..had.clone() });
        }
        // RootLines are written first: those without an entry are of a log that has lost its end.
        if is_broken || end_us > last_us || has_lost && roots.had.is_some() {
            let own_us = roots.had.as_ref().map_or(u64::from(last_us > 0), |had| had.own_us);
            roots.assume(RootState { own_us, ..RootState::default() });
        }
        Ok(roots)
    }

    fn raise(&mut self, root: Root) {
        let highest_us = self.highest_us.entry(root.log).or_default();
        *highest_us = root.timestamp_us.max(*highest_us);
    }

    /// RootLines so far are of entries up to the floor: what follows says nothing of their logs.
    fn begin_part(&mut self) {
        self.highest_us.clear();
        self.file = None;
    }

    pub(super) fn had(&self) -> Option<&RootState> {
        self.had.as_ref()
    }

    /// Logs that there are lines of, whatever is known of them.
    pub(super) fn logs(&self) -> impl Iterator<Item = u64> {
        self.highest_us.keys().copied()
    }

    /// Notes what is known from now on.
    pub(super) fn save(&mut self, had: RootState) -> Result<()> {
        if self.had.as_ref() != Some(&had) {
            had.write(&self.folder)?;
            let floor_us = self.had.as_ref().and_then(|had| had.floor_us);
            if had.floor_us.is_some() && had.floor_us != floor_us {
                self.begin_part();
            }
            self.had = Some(had);
        }
        Ok(())
    }

    /// The same where that may fail, as on a full disk: then the next process knows nothing.
    pub(super) fn assume(&mut self, had: RootState) {
        if let Err(error) = self.save(had.clone()) {
            tracing::warn!("update log: {error}");
            // That needs no space.
            let _ = fs::write(self.folder.join(STATE), "");
            self.had = Some(had);
        }
    }

    /// Writes lines, before the entries that they are of. After an error they can be given again.
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

    /// Removes files with lines of entries before `oldest_us` only.
    pub(super) fn keep(&self, oldest_us: u64) -> Result<()> {
        let parts = parts(&self.folder)?;
        for pair in parts.windows(2) {
            let [(_, path), (next, _)] = pair else { continue };
            if begins(&self.folder, *next)?.is_none_or(|own_us| own_us > oldest_us) {
                break;
            }
            let failed = |source| Error::Io { operation: "remove", path: path.clone(), source };
            fs::remove_file(path).map_err(failed)?;
        }
        Ok(())
    }
}

/// RootLines of a log, one by one, also while there come more.
pub(crate) struct RootLines {
    folder: PathBuf,
    number: u64,
    file: Option<File>,
    offset: u64,
    chunk: Vec<u8>,
    taken: usize,
    /// It was read, and belongs to an entry that has not been asked for.
    ahead: Option<RootLine>,
    /// There were no more.
    has_ended: bool,
}

impl RootLines {
    /// Those of a file, and of what follows.
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
        })
    }

    /// Those of the entries in a folder from `from_us` on, and maybe of some before.
    pub(crate) fn from(folder: &Path, from_us: u64) -> Result<Self> {
        let mut parts = parts(folder)?;
        while parts.len() > 1
            && let Some((number, _)) = parts.last()
            && begins(folder, *number)?.is_none_or(|own_us| own_us > from_us)
        {
            parts.pop();
        }
        Self::of(folder, parts.last().map_or(0, |(number, _)| *number))
    }

    /// Looks for more lines from now on, after those of all entries so far were read.
    pub(crate) fn poll_again(&mut self) {
        self.has_ended = false;
    }

    /// Where the entry with this time stamp was made first, if it has a line that was there when it
    /// was looked for them. Time stamps rise.
    pub(crate) fn root_of(&mut self, own_us: u64) -> Result<Option<Root>> {
        loop {
            let line = match self.ahead.take() {
                Some(line) => line,
                // For each of many entries without a line that would take longer than all else.
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

    /// The next line, if it was written.
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
            // More may have come to this file before the next began.
            if self.file.is_some() && self.fill()? {
                continue;
            }
            let ahead = self.ahead.take();
            *self = Self { ahead, ..Self::of(&self.folder, number)? };
        }
    }

    /// Reads on; returns whether there was more.
    fn fill(&mut self) -> Result<bool> {
        let Some(file) = &self.file else { return Ok(false) };
        self.chunk.resize(CHUNK_BYTES, 0);
        let read = file.read_at(&mut self.chunk, self.offset);
        let read = read.map_err(|source| {
            let path = self.folder.join(format!("{PREFIX}{:08}", self.number));
            Error::Io { operation: "read", path, source }
        });
        // The last one may be about to be written.
        let whole = *read.as_ref().unwrap_or(&0) / LINE_BYTES * LINE_BYTES;
        self.chunk.truncate(whole);
        (self.taken, self.offset) = (0, self.offset + whole as u64);
        read.map(|_| whole > 0)
    }
}

/// Time stamp of the first entry with a line in a file, if there is one.
fn begins(folder: &Path, number: u64) -> Result<Option<u64>> {
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

/// Time stamp of the first entry behind `floor_us` with a line that is not within `bases`, which
/// are the time stamps up to which those of each log are wanted by nobody. `None` if lines were
/// removed that may have been of such entries. It may take long, so files may be removed meanwhile.
pub(super) fn first_beyond(
    folder: &Path,
    floor_us: u64,
    bases: &BTreeMap<u64, u64>,
) -> Result<Option<Option<u64>>> {
    loop {
        let (start, first) = search_beyond(folder, floor_us, bases)?;
        // The oldest file is removed first: if that is there, all of them were.
        let path = start.map(|number| folder.join(format!("{PREFIX}{number:08}")));
        if path.is_none_or(|path| path.exists()) {
            return Ok(first);
        }
    }
}

/// Returns the same, and the number of the first file of which that depends.
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
        // Nothing is wanted of those before it.
        let mut lines = RootLines::of(folder, number)?;
        let mut is_all = true;
        while let Some(line) = lines.next()?
            && line.own_us == 0
        {
            is_all &= !is_beyond(line.root);
        }
        if is_all || begins(folder, number)?.is_some_and(|own_us| own_us <= floor_us) {
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
        for (own_us, timestamp_us) in lines {
            RootLine { own_us, root: Root { log: 7, timestamp_us } }.encode(&mut bytes);
        }
        bytes
    }

    const HAD: fn() -> RootState =
        || RootState { floor_us: Some(5), logs: vec![(7, 10)], ..RootState::default() };

    fn begun(folder: &Path) -> Roots {
        let mut roots = reopened(folder, 5, false);
        roots.save(HAD()).expect("room");
        roots
    }

    fn reopened(folder: &Path, last_us: u64, is_broken: bool) -> Roots {
        Roots::open(folder, last_us, (is_broken, false, 0)).expect("files")
    }

    fn beyond(folder: &Path, base_us: u64) -> Option<Option<u64>> {
        first_beyond(folder, 5, &BTreeMap::from([(7, base_us)])).expect("files")
    }

    #[test]
    fn each_entry_with_a_line_has_its_root_also_while_they_are_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut roots = begun(folder.path());
        let mut lines = RootLines::from(folder.path(), 0).expect("files");
        let root = |timestamp_us| Some(Root { log: 7, timestamp_us });
        assert_eq!(lines.root_of(6).expect("files"), None);
        roots.write(&encoded([(7, 11), (9, 13)])).expect("room");
        // Files are not read again for each entry without a line.
        assert_eq!(lines.root_of(7).expect("files"), None);
        lines.poll_again();
        assert_eq!(
            [7, 8, 9].map(|own_us| lines.root_of(own_us).expect("files")),
            [root(11), None, root(13)]
        );
        drop(roots);
        let mut roots = reopened(folder.path(), 9, false);
        assert_eq!(roots.had(), Some(&HAD()));
        roots.write(&encoded([(10, 12)])).expect("room");
        lines.poll_again();
        assert_eq!(lines.root_of(10).expect("files"), root(12));
        assert_eq!(
            [10, 11, 12, 13].map(|base_us| beyond(folder.path(), base_us)),
            [Some(7), Some(9), Some(9), None].map(Some)
        );
    }

    #[test]
    fn lines_that_may_have_gaps_or_lack_their_entries_say_so() {
        for (last_us, is_broken) in [(8, true), (7, false)] {
            let folder = tempfile::tempdir().expect("a folder");
            begun(folder.path()).write(&encoded([(8, 12)])).expect("room");
            assert_eq!(
                reopened(folder.path(), last_us, is_broken).had(),
                Some(&RootState::default())
            );
        }
    }

    #[test]
    fn files_of_lines_go_with_those_of_the_log_and_no_line_is_passed_over_because_of_that() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut roots = begun(folder.path());
        let count = PART_BYTES_MAX / LINE_BYTES as u64 + 1;
        roots.write(&encoded((0..count).map(|at| (6 + at, 11 + at)))).expect("room");
        // The last one of the first file has a time stamp behind that of the first one of the next.
        roots.write(&encoded([(6 + count, 11 + count - 2)])).expect("room");
        assert_eq!(beyond(folder.path(), 10 + count), Some(None));
        assert_eq!(beyond(folder.path(), 8 + count), Some(Some(4 + count)));
        let mut lines = RootLines::from(folder.path(), 5 + count).expect("files");
        for own_us in [5 + count, 6 + count] {
            assert!(lines.root_of(own_us).expect("files").is_some());
        }
        roots.keep(5 + count).expect("files");
        assert_eq!(parts(folder.path()).expect("files").len(), 2);
        roots.keep(6 + count).expect("files");
        assert_eq!(parts(folder.path()).expect("files").len(), 1);
        assert_eq!(beyond(folder.path(), 9 + count), None);
        assert_eq!(beyond(folder.path(), 10 + count), Some(None));
    }

    #[test]
    fn what_was_noted_and_cannot_be_understood_is_nothing() {
        for text in
            ["", "1", "x 1", "1 2", "1 2 x", "1 2 3 4", "1 2 3\nx", "1 2 3\n4", "1 2 3\n4 5 6"]
        {
            let folder = tempfile::tempdir().expect("a folder");
            fs::write(folder.path().join(STATE), text).expect("room");
            let roots = reopened(folder.path(), 8, false);
            assert_eq!(roots.had().map(|had| had.floor_us), Some(None), "{text}");
        }
    }
}
