//! Copy of a local database into a cluster. Its state is a row of the keyspace.

use super::{
    GO_ON, Migration, SAVE_INTERVAL, check_indexes, check_number, differing, going_on, place, shown,
};
use crate::plural::counted;
use crate::say::say;
use crate::transfer::progress::Progress;
use crate::transfer::to_read;
use ::cluster::{ClusterStore, CopyIn, CopyState, Name, Stage};
use anyhow::{Context, Result, bail, ensure};
use cabinet::{Database, KeyOrder, Meta, Record, RecordRef, ScanCursor};
use std::fs;
use std::time::{Duration, Instant};

/// Longest wait for all nodes, before a copy into an empty database.
const EMPTY_WAIT: Duration = Duration::from_secs(60);

/// Copies a local database into a cluster.
pub(super) fn run(from: &str, to: &Name, options: Migration) -> Result<()> {
    let specification = to_read(from)?;
    let database = Database::open_specification(&specification)
        .with_context(|| format!("cannot open the database {from}"))?;
    check_source(&database, from)?;
    let path = fs::canonicalize(&specification.path)
        .with_context(|| format!("cannot find {}", specification.path.display()))?;
    let store = ClusterStore::connect_to_copy(to).context("cannot use the cluster")?;
    let mut copy = Copy { database, store: &store, source: path.display().to_string(), options };
    let state = copy.begin()?;
    copy.copy_indexes()?;
    let state = copy.copy(state)?;
    copy.finish(state)
}

/// Checks that the cluster can have the records of a database.
fn check_source(database: &Database, name: &str) -> Result<()> {
    let Some(order) = database.order() else { return Ok(()) };
    ensure!(
        order == KeyOrder::Lexical,
        "{name} has its keys in the order {}, and a cluster has that of bytes alone",
        order.name()
    );
    Ok(())
}

struct Copy<'s> {
    database: Database,
    store: &'s ClusterStore,
    source: String,
    options: Migration,
}

/// Place in the source, and the numbers of the records before it.
struct Reached {
    position: ScanCursor,
    copied: u64,
    expiring: u64,
}

impl Copy<'_> {
    /// Returns the state from which the copy begins or goes on.
    fn begin(&mut self) -> Result<CopyState> {
        let Migration { into_existing, wait, .. } = self.options;
        let advice = "tyrant cluster init makes what is missing in databases of earlier versions";
        let present = self.store.copy_state(wait).context(advice)?;
        if let Some(present) = present.filter(|present| present.stage != Stage::Done) {
            if present.source == self.source {
                let place = place::decode(&self.database, &present.place);
                if let Some(position) = place {
                    if position != ScanCursor::Start {
                        going_on(present.copied);
                    }
                    let stage = if into_existing { Stage::Adding } else { present.stage };
                    return Ok(CopyState { stage, ..present });
                }
            } else if !into_existing {
                bail!(
                    "a copy of {} into this database has not ended: let it go on, or copy into \
                     what is there with --into-existing",
                    present.source
                );
            }
            let stage = if into_existing { Stage::Adding } else { present.stage };
            return self.begin_anew(stage);
        }
        if into_existing {
            return self.begin_anew(Stage::Adding);
        }
        ensure!(
            self.store.is_empty(wait)?,
            "the database in the cluster has records: --into-existing copies beside them"
        );
        self.begin_anew(Stage::Filling)
    }

    fn begin_anew(&self, stage: Stage) -> Result<CopyState> {
        if stage == Stage::Filling {
            let wait = self.options.wait.min(EMPTY_WAIT);
            self.store.empty(wait).context(
                "a copy into an empty database begins with all nodes; --into-existing, which is \
                 slower, does with a majority",
            )?;
        }
        let place = place::encode(&self.database, &ScanCursor::Start);
        let source = self.source.clone();
        let state = CopyState { stage, source, place, copied: 0, expiring: 0 };
        self.store.set_copy_state(&state, self.options.wait)?;
        Ok(state)
    }

    /// Sets the indexes of a table, and lets its identifiers go on after those of the source. The
    /// indexes come before the rows: so each row is put in one transaction with its entries before
    /// it, and an index that is set later takes one transaction more for each row.
    fn copy_indexes(&self) -> Result<()> {
        let Some(table) = self.database.table() else { return Ok(()) };
        let indexes = table.indices();
        let present = self.store.indexes(self.options.wait)?.ready;
        for index in indexes.iter().filter(|index| !present.contains(index)) {
            let progress = Progress::of_records(&format!("indexing {}", shown(&index.column)), 0);
            self.store
                .set_index(index, self.options.wait, &|rows| progress.advance(rows))
                .context(GO_ON)?;
        }
        self.store.raise_identifiers(table.last_uid(), self.options.wait).context(GO_ON)
    }

    /// Reads some records of the source from a position on. The value of a row is its encoding.
    /// Returns the position after them.
    fn read(&self, from: &ScanCursor, records: &mut Vec<Record>) -> Result<Option<ScanCursor>> {
        Ok(match self.database.table() {
            None => self.database.scan(from, |entry| records.push(Record::from(entry)))?,
            Some(table) => table.scan(from, |key, row| {
                let (key, value) = (key.to_vec(), row.stored().to_vec());
                records.push(Record { key, value, meta: Meta::NONE, version: 0 });
            })?,
        })
    }

    /// Copies the records from the place of a state on. Returns the state at the end.
    fn copy(&self, mut state: CopyState) -> Result<CopyState> {
        let progress = self.progress("copying", state.copied);
        let waits = || progress.print("waiting for the cluster");
        let mut copy = match state.stage {
            Stage::Filling => CopyIn::begin_in_bulk(self.store, self.options.wait, &waits)?,
            _ => CopyIn::begin(self.store, self.options.wait, &waits),
        };
        let copied = self.copy_records(&mut copy, &mut state, &progress);
        if let Err(error) = copied {
            // A record of an earlier place does no harm.
            let _ = self.save(&mut copy, &mut state, Duration::ZERO);
            let copied = counted(state.copied, "record is copied", "records are copied");
            return Err(error.context(format!("{copied}; {GO_ON}")));
        }
        Ok(state)
    }

    fn copy_records(
        &self,
        copy: &mut CopyIn<'_, Reached>,
        state: &mut CopyState,
        progress: &Progress,
    ) -> Result<()> {
        let position = place::decode(&self.database, &state.place);
        let mut next = Some(position.unwrap_or_default());
        let (mut copied, mut expiring) = (state.copied, state.expiring);
        let mut saved = Instant::now();
        let mut last: Option<Vec<u8>> = None;
        while let Some(position) = next {
            let mut records = Vec::new();
            next = self.read(&position, &mut records)?;
            for record in &records {
                // The values of a key follow each other.
                ensure!(
                    last.as_ref() != Some(&record.key),
                    "key {} has several values, and in a cluster each key has one",
                    record.key.escape_ascii()
                );
                last = Some(record.key.clone());
                copy.put(entry(record))?;
                copied += 1;
                expiring += u64::from(record.meta.expires_at_ms != 0);
            }
            progress.advance(records.len() as u64);
            // The last stretch is scanned again after an interruption.
            let position = next.clone().unwrap_or(position);
            if next.is_some() {
                copy.mark(Reached { position, copied, expiring });
            }
            if saved.elapsed() > SAVE_INTERVAL {
                self.save(copy, state, self.options.wait)?;
                saved = Instant::now();
            }
        }
        copy.finish()?;
        (state.copied, state.expiring) = (copied, expiring);
        Ok(())
    }

    /// Records the place before which all records are copied.
    fn save(
        &self,
        copy: &mut CopyIn<'_, Reached>,
        state: &mut CopyState,
        wait: Duration,
    ) -> Result<()> {
        if let Some(Reached { position, copied, expiring }) = copy.reached() {
            state.place = place::encode(&self.database, &position);
            (state.copied, state.expiring) = (copied, expiring);
            self.store.set_copy_state(state, wait)?;
        }
        Ok(())
    }

    /// Checks the copy, and records that it is complete.
    fn finish(&self, state: CopyState) -> Result<()> {
        let wait = self.options.wait;
        let checked = self.check(&state);
        if checked.is_err() {
            self.begin_anew(state.stage)?;
            return checked.context("the copy is not complete: the same command begins it again");
        }
        let done = CopyState { stage: Stage::Done, ..state };
        self.store.set_copy_state(&done, wait)?;
        say!("{} copied", counted(done.copied, "record", "records"));
        Ok(())
    }

    fn check(&self, state: &CopyState) -> Result<()> {
        let found = self.store.count(self.options.wait)?;
        let may_have_more = state.stage == Stage::Adding;
        // Rows do not expire, so all of them must have been met.
        let is_table = self.database.table().is_some();
        let copied = if is_table { self.database.len() } else { state.copied };
        check_number(found, copied, state.expiring, may_have_more)?;
        if let Some(table) = self.database.table() {
            let found = self.store.indexes(self.options.wait)?.ready;
            check_indexes(&found, &table.indices(), may_have_more)?;
        }
        if !self.options.verify {
            return Ok(());
        }
        let progress = self.progress("comparing", 0);
        let waits = || progress.print("waiting for the cluster");
        let mut comparison = CopyIn::<()>::begin(self.store, self.options.wait, &waits);
        let mut next = Some(ScanCursor::Start);
        while let Some(position) = next {
            let mut records = Vec::new();
            next = self.read(&position, &mut records)?;
            for record in &records {
                comparison.compare(entry(record))?;
            }
            progress.advance(records.len() as u64);
        }
        comparison.finish()?;
        match comparison.differing() {
            (0, _) => Ok(()),
            (number, first) => Err(differing(number, first.unwrap_or_default())),
        }
    }

    fn progress(&self, what: &str, from: u64) -> Progress {
        let progress = Progress::of_records(what, self.database.len());
        progress.reach(from);
        progress.measure_from_here();
        progress
    }
}

fn entry(record: &Record) -> RecordRef<'_> {
    let Record { key, value, meta, version } = record;
    RecordRef { key, value, meta: *meta, version: *version }
}
