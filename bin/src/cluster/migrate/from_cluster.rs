//! Copy of a database in a cluster into a local one. Its state is a file beside the local one.

use super::{
    GO_ON, Migration, SAVE_INTERVAL, check_indexes, check_number, differing, going_on, row_of,
    shown,
};
use crate::plural::counted;
use crate::say::say;
use crate::time::now_ms;
use crate::transfer::progress::Progress;
use ::cluster::{ClusterStore, CopiedIndexes, CopiedRecord, CopyOut, Name};
use anyhow::{Context, Result, bail, ensure};
use cabinet::files::{folder_of, sync_folder};
use cabinet::name::Specification;
use cabinet::table::{IndexChange, IndexDescription};
use cabinet::{Batch, Database};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Steps of the progress bar.
const STEPS: u64 = 1 << 16;

/// State of a copy, in the file `DATABASE.migration`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    /// The keyspace and its cluster.
    source: String,
    /// Token of the last record that is durable in the local database.
    token: Option<i64>,
    /// Number of records that expire.
    expiring: u64,
    /// The local database had records.
    has_others: bool,
}

/// Copies a database in a cluster into a local one.
pub(super) fn run(from: &Name, to: &str, options: Migration) -> Result<()> {
    let mut specification = Specification::parse(to)?;
    if let Some(ids) = from.ids {
        let options = &mut specification.options;
        options.width.get_or_insert(ids.width());
        options.limit_bytes.get_or_insert(ids.limit_bytes());
    }
    let store = ClusterStore::connect(from).context("cannot use the cluster")?;
    let source = store.source_name()?;
    let file = state_file(&specification.path);
    let present = read_state(&file)?;
    let database = Database::open_specification(&specification)
        .with_context(|| format!("cannot open the database {to}"))?;
    let state = begin(present, source, database.is_empty(), options.into_existing)
        .with_context(|| format!("cannot copy into {to}"))?;
    let copy = Copy { store: &store, database, file, options };
    copy.save(&state)?;
    copy.copy_indexes()?;
    let state = copy.copy(state).with_context(|| GO_ON)?;
    copy.check(&state).context("the copy is not complete: the same command begins it again")?;
    fs::remove_file(&copy.file)
        .with_context(|| format!("cannot remove {}", copy.file.display()))?;
    let records = counted(copy.database.len(), "record", "records");
    say!("{records} in {}", specification.path.display());
    Ok(())
}

fn state_file(database: &Path) -> PathBuf {
    let mut file = OsString::from(database);
    file.push(".migration");
    PathBuf::from(file)
}

fn read_state(file: &Path) -> Result<Option<State>> {
    let unreadable = || format!("cannot read {}", file.display());
    match fs::read(file) {
        Ok(bytes) => serde_json::from_slice(&bytes).with_context(unreadable).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(unreadable),
    }
}

/// Returns the state from which a copy begins or goes on.
fn begin(
    present: Option<State>,
    source: String,
    is_empty: bool,
    into_existing: bool,
) -> Result<State> {
    match present {
        Some(state) if state.source == source && (!is_empty || state.token.is_none()) => {
            let has_others = state.has_others || into_existing;
            return Ok(State { has_others, ..state });
        }
        Some(state) if state.source != source && !into_existing => bail!(
            "a copy of {} has not ended there: let it go on, or copy into what is there with \
             --into-existing",
            state.source
        ),
        _ => {}
    }
    ensure!(
        is_empty || into_existing,
        "the local database has records: --into-existing copies beside them"
    );
    Ok(State { source, token: None, expiring: 0, has_others: !is_empty })
}

struct Copy<'s> {
    store: &'s ClusterStore,
    database: Database,
    file: PathBuf,
    options: Migration,
}

impl Copy<'_> {
    /// Copies the records from the token of a state on. Returns the state at the end.
    fn copy(&self, mut state: State) -> Result<State> {
        if state.token.is_some() {
            going_on(self.database.len());
        }
        let progress = Progress::of_share("copying", STEPS);
        progress.reach(share(state.token));
        progress.measure_from_here();
        let mut pages = CopyOut::begin(self.store, state.token, self.options.wait)?;
        let mut saved = Instant::now();
        while let Some(page) = pages.page()? {
            self.write(&page.records)?;
            let expiring = page.records.iter().filter(|record| record.meta.expires_at_ms != 0);
            state.expiring += expiring.count() as u64;
            state.token = Some(page.token);
            progress.reach(share(state.token));
            if saved.elapsed() > SAVE_INTERVAL {
                self.database.sync()?;
                self.save(&state)?;
                saved = Instant::now();
            }
        }
        if let Some(table) = self.database.table() {
            let last = self.store.last_identifier(self.options.wait)?;
            if last > table.last_uid() {
                table.set_uid_seed(last)?;
            }
        }
        self.database.sync()?;
        Ok(state)
    }

    /// Sets the indexes of a table. They come before the rows, whose puts write the entries.
    fn copy_indexes(&self) -> Result<()> {
        let Some(table) = self.database.table() else { return Ok(()) };
        let CopiedIndexes { ready, incomplete } = self.store.indexes(self.options.wait)?;
        let lacks = |index: &&IndexDescription| ready.iter().all(|one| one.column != index.column);
        for index in incomplete.iter().filter(lacks) {
            let column = shown(&index.column);
            eprintln!("the index of column {column} is not copied: its setindex has not ended");
        }
        let present = table.indices();
        for index in ready.iter().filter(|index| !present.contains(index)) {
            table.set_index(&index.column, IndexChange::Set(index.kind)).with_context(|| {
                format!("cannot set the index of column {}", shown(&index.column))
            })?;
        }
        Ok(())
    }

    /// Puts records or rows.
    fn write(&self, records: &[CopiedRecord]) -> Result<()> {
        let Some(table) = self.database.table() else {
            let mut batch = Batch::new();
            for record in records {
                self.check_width(record)?;
                batch.put(&record.key, &record.value, record.meta);
            }
            return Ok(self.database.write(&batch)?);
        };
        for CopiedRecord { key, value, .. } in records {
            let row = row_of(key, value)?;
            table.put(key, &row).with_context(|| format!("cannot put row {}", shown(key)))?;
        }
        Ok(())
    }

    /// Returns whether the local database has a record.
    fn has(&self, record: &CopiedRecord) -> cabinet::Result<bool> {
        let CopiedRecord { key, value, meta } = record;
        let found = match self.database.table() {
            Some(table) => table.read(key, |row| row.stored() == value)?,
            None => self.database.read(key, |entry| entry.value == value && entry.meta == *meta)?,
        };
        Ok(found == Some(true))
    }

    /// Checks that the local database does not cut a value.
    fn check_width(&self, record: &CopiedRecord) -> Result<()> {
        let width = self.database.as_numbered().map_or(u64::MAX, |numbered| numbered.width());
        ensure!(
            record.value.len() as u64 <= width,
            "the value of record {} has {} bytes, and {} has width={width}",
            record.key.escape_ascii(),
            record.value.len(),
            self.database.path().display()
        );
        Ok(())
    }

    /// Replaces the file of the state. The records before its token must be durable.
    fn save(&self, state: &State) -> Result<()> {
        let failed = || format!("cannot write {}", self.file.display());
        let mut temporary = OsString::from(&self.file);
        temporary.push(".new");
        let mut file = File::create(&temporary).with_context(failed)?;
        file.write_all(&serde_json::to_vec(state)?).with_context(failed)?;
        file.sync_all().with_context(failed)?;
        fs::rename(&temporary, &self.file).with_context(failed)?;
        sync_folder(folder_of(&self.file)).with_context(failed)
    }

    fn check(&self, state: &State) -> Result<()> {
        let checked = self.compare(state);
        if checked.is_err() {
            self.save(&State { token: None, expiring: 0, source: state.source.clone(), ..*state })?;
        }
        checked
    }

    /// Compares the databases: the numbers of records, and all records if that is wanted.
    fn compare(&self, state: &State) -> Result<()> {
        let in_cluster = self.store.count(self.options.wait)?;
        check_number(self.database.len(), in_cluster, state.expiring, state.has_others)?;
        if let Some(table) = self.database.table() {
            let copied = self.store.indexes(self.options.wait)?.ready;
            check_indexes(&table.indices(), &copied, state.has_others)?;
        }
        if !self.options.verify {
            return Ok(());
        }
        let progress = Progress::of_share("comparing", STEPS);
        let mut pages = CopyOut::begin(self.store, None, self.options.wait)?;
        let (mut number, mut first) = (0, Vec::new());
        while let Some(page) = pages.page()? {
            for record in page.records {
                // One that has expired since it was read is there no more.
                if !self.has(&record)? && !record.meta.is_expired(now_ms()) {
                    number += 1;
                    if number == 1 {
                        first = record.key;
                    }
                }
            }
            progress.reach(share(Some(page.token)));
        }
        if number == 0 { Ok(()) } else { Err(differing(number, &first)) }
    }
}

/// Returns the share of the tokens up to this one, in steps of the progress bar.
fn share(token: Option<i64>) -> u64 {
    let before = token.map_or(0, |token| token.abs_diff(i64::MIN));
    before / (u64::MAX / STEPS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(source: &str, token: Option<i64>) -> State {
        State { source: source.to_owned(), token, expiring: 0, has_others: false }
    }

    #[test]
    fn a_copy_goes_on_only_from_its_own_source_and_into_its_own_records() {
        let begin = |present, is_empty, into_existing| {
            begin(present, "a".to_owned(), is_empty, into_existing)
        };
        assert_eq!(begin(None, true, false).unwrap(), state("a", None));
        assert!(begin(None, false, false).unwrap_err().to_string().contains("--into-existing"));
        let beside = State { has_others: true, ..state("a", None) };
        assert_eq!(begin(None, false, true).unwrap(), beside);
        assert_eq!(begin(Some(state("a", Some(5))), false, false).unwrap(), state("a", Some(5)));
        let going_on = begin(Some(state("a", Some(5))), false, true).unwrap();
        assert_eq!(going_on, State { has_others: true, ..state("a", Some(5)) });
        // The database was removed meanwhile.
        assert_eq!(begin(Some(state("a", Some(5))), true, false).unwrap(), state("a", None));
        let other = begin(Some(state("b", Some(5))), false, false).unwrap_err().to_string();
        assert!(other.contains("a copy of b has not ended"), "{other}");
        assert_eq!(begin(Some(state("b", Some(5))), false, true).unwrap(), beside);
    }

    #[test]
    fn the_share_of_the_tokens_grows_to_the_whole() {
        let shares = [None, Some(i64::MIN), Some(0), Some(i64::MAX)].map(share);
        assert_eq!(shares[..2], [0, 0]);
        assert_eq!(shares[2], STEPS / 2);
        assert!((STEPS - 1..=STEPS).contains(&shares[3]));
    }
}
