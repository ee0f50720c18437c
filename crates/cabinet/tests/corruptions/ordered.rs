//! Trees, with and without duplicates, and tables.

use crate::damage::{Chance, Damaged, Files, damage, misdirect, read, segments, storage_of};
use crate::disk::{DiskEngine, TableDatabase};
use cabinet::table::{IndexChange, IndexKind};
use cabinet::testing::FaultyStorage;
use cabinet::{Batch, Damage, Database, Error, Meta, Options, Side, TreeDatabase};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

const KEYS: u64 = 150;

/// Byte of a redo record before the value that becomes the only one of its key.
const SET: u8 = 4;

type Places = BTreeMap<Vec<u8>, (String, Range<usize>)>;
type Values = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

/// A kind of database, as the test needs it.
trait Subject: DiskEngine {
    const HAS_DUPLICATES: bool;

    fn prepare(&self) {}

    /// Whether the database agrees with itself, as far as it can be read.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// An empty database to salvage into.
    fn target() -> Database;
}

struct Plain(Arc<TreeDatabase>);
struct WithDuplicates(Arc<TreeDatabase>);

macro_rules! tree_subject {
    ($name:ident, $has_duplicates:expr) => {
        impl DiskEngine for $name {
            const PATH: &str = <Arc<TreeDatabase>>::PATH;

            fn open(
                storage: Arc<dyn cabinet::testing::Storage>,
                options: &Options,
            ) -> cabinet::Result<Self> {
                DiskEngine::open(storage, options).map(Self)
            }

            fn engine(&self) -> Arc<dyn cabinet::Engine> {
                DiskEngine::engine(&self.0)
            }

            fn run_maintenance(&self) -> cabinet::Result<()> {
                DiskEngine::run_maintenance(&self.0)
            }

            fn checkpoint(&self) -> cabinet::Result<()> {
                DiskEngine::checkpoint(&self.0)
            }
        }

        impl Subject for $name {
            const HAS_DUPLICATES: bool = $has_duplicates;

            fn target() -> Database {
                open::<Self>(&FaultyStorage::new()).unwrap().1
            }
        }
    };
}

tree_subject!(Plain, false);
tree_subject!(WithDuplicates, true);

impl Subject for TableDatabase {
    const HAS_DUPLICATES: bool = false;

    fn prepare(&self) {
        self.table.set_index(b"n", IndexChange::Set(IndexKind::Decimal)).unwrap();
        self.table.set_index(b"text", IndexChange::Set(IndexKind::Token)).unwrap();
    }

    fn check(&self) -> Result<(), Error> {
        self.table.check_indices()
    }

    fn target() -> Database {
        let options = Options::default();
        let tree = Arc::new(cabinet::MemoryTree::new(&options));
        let table = cabinet::table::Table::new(tree, &options).unwrap();
        Database::from(Arc::new(table))
    }
}

/// Values that a database was given.
#[derive(Default)]
struct History {
    now: Values,
    /// All values that each key had.
    ever: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
}

impl History {
    fn note(&mut self, key: &[u8], value: &[u8]) {
        self.ever.entry(key.to_vec()).or_default().insert(value.to_vec());
    }

    fn set(&mut self, key: &[u8], value: &[u8]) {
        self.note(key, value);
        let values = self.now.entry(key.to_vec()).or_default();
        match values.first_mut() {
            Some(first) => value.clone_into(first),
            None => values.push(value.to_vec()),
        }
    }

    fn remove_first(&mut self, key: &[u8]) {
        if let Some(values) = self.now.get_mut(key) {
            values.remove(0);
        }
        self.now.retain(|_, values| !values.is_empty());
    }
}

fn options() -> Options {
    let mut options = Options::default();
    options.segment_bytes = Some(64 << 10);
    options
}

fn open<S: Subject>(storage: &FaultyStorage) -> cabinet::Result<(S, Database)> {
    let subject = S::open(Arc::new(storage.clone()), &options())?;
    let database = subject.database();
    Ok((subject, database))
}

/// The files of a database with a history, and whether its process was killed.
fn make<S: Subject>(chance: &mut Chance) -> (Files, History, bool) {
    let storage = FaultyStorage::new();
    let mut history = History::default();
    let (mut subject, mut database) = open::<S>(&storage).unwrap();
    subject.prepare();
    let mut number = 0;
    for _ in 0..1 + chance.below(3) {
        for _ in 0..50 + chance.below(400) {
            number += 1;
            change::<S>(&database, &mut history, chance, number);
        }
        match chance.below(6) {
            0 => database.optimize().unwrap(),
            1 => subject.checkpoint().unwrap(),
            3 => subject.run_maintenance().unwrap(),
            2 => {
                drop((subject, database));
                (subject, database) = open::<S>(&storage).unwrap();
            }
            _ => {}
        }
    }
    if chance.below(3) == 0 {
        drop((subject, database));
        return (read(&storage, S::PATH), history, false);
    }
    let killed = read(&storage.kill(), S::PATH);
    drop((subject, database));
    (killed, history, true)
}

fn change<S: Subject>(
    database: &Database,
    history: &mut History,
    chance: &mut Chance,
    number: u64,
) {
    let mut record = || {
        let key = format!("key-{:04}", chance.below(KEYS)).into_bytes();
        let text = "some words ".repeat(chance.below(12) as usize);
        (key, format!("n\0{number}\0text\0{text}{number}.").into_bytes())
    };
    let (key, value) = record();
    let other = record();
    match chance.below(12) {
        0..2 => {
            database.remove(&key).unwrap();
            history.remove_first(&key);
        }
        2 => {
            let mut batch = Batch::new();
            for (key, value) in [&(key, value), &other] {
                batch.put(key, value, Meta::NONE);
                history.set(key, value);
            }
            database.write(&batch).unwrap();
        }
        3..6 if S::HAS_DUPLICATES => {
            let side = if chance.below(2) == 0 { Side::After } else { Side::Before };
            database.put_duplicate(&key, &value, side).unwrap();
            history.note(&key, &value);
            let values = history.now.entry(key).or_default();
            let at = if side == Side::After { values.len() } else { 0 };
            values.insert(at, value);
        }
        _ => {
            database.put(&key, &value).unwrap();
            history.set(&key, &value);
        }
    }
}

/// Keys that a database does not return as it should.
#[derive(Debug, Default)]
struct Answers {
    /// Keys that have other values than they should have.
    differ: Vec<String>,
    /// Keys that have an error for an answer.
    errors: usize,
}

fn ask<S: Subject>(database: &Database, history: &History, context: &str) -> Answers {
    let mut answers = Answers::default();
    for (key, ever) in &history.ever {
        let found = if S::HAS_DUPLICATES {
            database.get_all(key)
        } else {
            database.get(key).map(|value| value.into_iter().collect())
        };
        match found {
            Ok(values) => {
                for value in &values {
                    assert!(ever.contains(value), "{context}: {key:?} never was {value:?}");
                }
                if values != *history.now.get(key).unwrap_or(&Vec::new()) {
                    answers.differ.push(String::from_utf8_lossy(key).into_owned());
                }
            }
            Err(Error::Corrupted { .. }) => answers.errors += 1,
            Err(error) => panic!("{context}: {error}"),
        }
    }
    let mut shown = 0;
    let listed = database.for_each(|entry| {
        let values = history.ever.get(entry.key);
        assert!(values.is_some_and(|values| values.contains(entry.value)), "{context}");
        shown += 1;
        std::ops::ControlFlow::Continue(())
    });
    match listed {
        Ok(()) => {
            assert_eq!(answers.errors, 0, "{context}: a list leaves out what cannot be read");
            assert_eq!(shown, database.len(), "{context}");
        }
        Err(Error::Corrupted { .. }) => {
            assert!(answers.errors > 0, "{context}: only a list cannot be read");
        }
        Err(error) => panic!("{context}: {error}"),
    }
    answers
}

fn check_files<S: Subject>(storage: &FaultyStorage) -> cabinet::Result<Vec<Damage>> {
    let mut found = Vec::new();
    let path = Path::new(S::PATH);
    cabinet::testing::check_on(storage, path, &|_| true, &mut |damage| found.push(damage))?;
    Ok(found)
}

/// Returns the file name and the range of bytes of the record of each key's last change, as far as
/// they are known.
fn last_changes<S: Subject>(files: &Files, history: &History) -> Places {
    const HEADER_BYTES: usize = 24;
    let mut places = Places::new();
    if S::HAS_DUPLICATES || S::PATH == TableDatabase::PATH {
        // There a later change may leave the value, and rows are not stored as they are given.
        return places;
    }
    for (key, values) in &history.now {
        let wanted = [key, &[SET][..], &values[0]].concat();
        for name in segments(files) {
            let found = files[&name].windows(wanted.len()).rposition(|bytes| bytes == wanted);
            if let Some(at) = found {
                let end = (at + wanted.len()).next_multiple_of(8);
                places.insert(key.clone(), (name, at.saturating_sub(HEADER_BYTES)..end));
            }
        }
    }
    places
}

/// Tries all seeds with a way to damage files. `refuses`: some databases do not open then.
fn run<S: Subject>(way: fn(&mut Files, &mut Chance) -> Damaged, refuses: bool) {
    let (mut opened, mut refused, mut differing, mut whole) = (0, 0, 0, 0);
    for seed in crate::seeds() {
        let mut chance = Chance(seed * 7919 + S::PATH.len() as u64);
        let (mut files, history, is_killed) = make::<S>(&mut chance);
        let sound = storage_of(&files, &[], S::PATH);
        let context = format!("{} of seed {seed}, not damaged", S::PATH);
        assert_eq!(check_files::<S>(&sound).unwrap(), [], "{context}");
        let (subject, database) = open::<S>(&sound).unwrap();
        let answers = ask::<S>(&database, &history, &context);
        assert!(answers.differ.is_empty() && answers.errors == 0, "{context}: {answers:?}");
        drop((subject, database));
        let places = last_changes::<S>(&files, &history);
        let mut damaged = way(&mut files, &mut chance);
        damaged.is_like_a_torn_tail &= is_killed;
        let context = format!("{} of seed {seed}: {:?}", S::PATH, damaged.description);
        let storage = storage_of(&files, &damaged.unreadable, S::PATH);
        let reported = check_files::<S>(&storage);
        whole += salvage::<S>(&storage, &history, &places, &damaged, &context);
        match open::<S>(&storage) {
            Ok((subject, database)) => {
                opened += 1;
                let reported = reported.unwrap_or_else(|error| panic!("{context}: check: {error}"));
                let answers = ask::<S>(&database, &history, &context);
                let is_wrong = !answers.differ.is_empty() || answers.errors > 0;
                differing += usize::from(is_wrong);
                if is_wrong && !damaged.is_like_a_torn_tail || !database.damages().is_empty() {
                    assert!(!reported.is_empty(), "{context}: {answers:?} and nothing is reported");
                }
                if !answers.differ.is_empty() && !damaged.is_like_a_torn_tail {
                    assert!(!database.damages().is_empty(), "{context}: {answers:?} unknown");
                }
                match subject.check() {
                    Ok(()) => {}
                    Err(Error::Corrupted { what, .. }) => {
                        // A block of an index that cannot be read is one thing, another entry is
                        // another.
                        let differs = what.contains("the index of column");
                        assert!(
                            !reported.is_empty() && !differs,
                            "{context}: {what}: {reported:?} {answers:?} {:?}",
                            database.damages()
                        );
                    }
                    Err(error) => panic!("{context}: {error}"),
                }
                if answers.errors == 0 {
                    database.put(b"new", b"n\x001").unwrap();
                    assert_eq!(database.get(b"new").unwrap().unwrap(), b"n\x001", "{context}");
                }
                drop((subject, database));
                if is_wrong && !damaged.is_like_a_torn_tail {
                    let later = check_files::<S>(&storage).unwrap();
                    assert!(!later.is_empty(), "{context}: forgotten by the first opening");
                }
                let again = open::<S>(&storage);
                let (_subject, database) =
                    again.unwrap_or_else(|error| panic!("{context}: not again: {error}"));
                let later = database.get(b"new");
                assert!(answers.errors > 0 || later.unwrap().is_some(), "{context}");
            }
            Err(error @ Error::Corrupted { .. }) => {
                refused += 1;
                assert!(error.to_string().contains("tyrant salvage"), "{context}: {error}");
                let is_reported = reported.as_ref().map_or(true, |found| !found.is_empty());
                assert!(is_reported, "{context}: {error}");
                assert!(
                    open::<S>(&storage).is_err(),
                    "{context}: it opens later, but first: {error}"
                );
            }
            Err(error) => panic!("{context}: {error}"),
        }
    }
    eprintln!(
        "{}: {opened} opened, {differing} of them with less, {refused} refused; {whole} whole records",
        S::PATH
    );
    if crate::seeds().len() >= 30 {
        assert!(opened > 0 && (refused > 0 || !refuses) && differing > 0);
        assert!(whole > 0 || S::HAS_DUPLICATES || S::PATH == TableDatabase::PATH);
    }
}

/// Salvages, and returns how many records were known to be whole.
fn salvage<S: Subject>(
    storage: &FaultyStorage,
    history: &History,
    places: &Places,
    damaged: &Damaged,
    context: &str,
) -> usize {
    let context = format!("{context}, salvaged");
    let into = S::target();
    let before = read(storage, S::PATH);
    let mut report = Vec::new();
    let mut each = |damage| report.push(damage);
    let path = Path::new(S::PATH);
    let salvaged = cabinet::testing::salvage_on(storage, path, None, &into, &mut each);
    let salvaged = salvaged.unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(before == read(storage, S::PATH), "{context}: files have changed");
    let answers = ask::<S>(&into, history, &context);
    assert_eq!(answers.errors, 0, "{context}");
    if !answers.differ.is_empty() && !damaged.is_like_a_torn_tail {
        assert!(salvaged.may_be_stale && !report.is_empty(), "{context}: {answers:?}");
    }
    let mut whole = 0;
    for (key, (name, part)) in places {
        if damaged.spares(name, part) {
            whole += 1;
            let found = into.get(key).unwrap();
            let expected = &history.now[key][0];
            assert_eq!(found.as_ref(), Some(expected), "{context}: {key:?} {name} {part:?}");
        }
    }
    whole
}

#[test]
fn a_damaged_tree_serves_salvages_and_reports() {
    run::<Plain>(damage, true);
}

#[test]
fn a_damaged_tree_with_duplicates_serves_salvages_and_reports() {
    run::<WithDuplicates>(damage, true);
}

#[test]
fn a_damaged_table_serves_salvages_and_reports() {
    run::<TableDatabase>(damage, true);
}

#[test]
fn a_tree_with_misdirected_pages_serves_salvages_and_reports() {
    run::<Plain>(misdirect, false);
}

#[test]
fn a_tree_with_duplicates_and_misdirected_pages_serves_salvages_and_reports() {
    run::<WithDuplicates>(misdirect, false);
}

#[test]
fn a_table_with_misdirected_pages_serves_salvages_and_reports() {
    run::<TableDatabase>(misdirect, false);
}
