//! Model: random operations on an engine and on a `BTreeMap`. Both must return and hold the same.
//! After a crash the engine must hold one of the possible states.
//!
//! There are [`HISTORIES`] histories per engine; the environment variable `PROPTEST_CASES` sets
//! another number.

use crate::for_each_engine;
use crate::operation::{Operation, RecordOperation, TransactionOperation, operations};
use crate::possible::Possible;
use crate::subject::Subject;
use cabinet::testing::ManualClock;
use cabinet::{Batch, Clock, Database, Error, Meta, ScanCursor, Swap, Version, Wanted};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

const START_MS: u64 = 1_000_000;

/// Number of histories that are run unless the environment sets another.
const HISTORIES: u32 = 100;

for_each_engine!(
    behaves_as_a_map_through_all_operations_and_crashes,
    a_batch_survives_a_crash,
    a_batch_of_which_compaction_moved_a_part_is_whole,
);

fn behaves_as_a_map_through_all_operations_and_crashes<S: Subject>() {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = HISTORIES;
    }
    proptest!(config, |(operations in operations(200))| run::<S>(&operations));
}

// Shrunk failures that were found earlier.

fn a_batch_survives_a_crash<S: Subject>() {
    let changes = vec![(vec![], Some(vec![]))];
    run::<S>(&[Operation::Batch { changes, expected: vec![] }, Operation::Crash]);
}

fn a_batch_of_which_compaction_moved_a_part_is_whole<S: Subject>() {
    let put = |key: &[u8]| {
        let value = b"value".to_vec();
        Operation::Record(key.to_vec(), RecordOperation::Put { value, flags: 0, lifetime_ms: None })
    };
    let batch = |changes| Operation::Batch { changes, expected: vec![] };
    for chance in 0..32 {
        run::<S>(&[
            put(b"old"),
            Operation::Reopen,
            batch(vec![(b"old".to_vec(), None)]),
            put(b"removed"),
            Operation::Optimize,
            batch(vec![(b"removed".to_vec(), None), (b"put".to_vec(), Some(vec![]))]),
            Operation::Optimize,
            Operation::Rearrange(chance),
            Operation::Crash,
        ]);
    }
}

fn run<S: Subject>(operations: &[Operation]) {
    let (clock, time) = Clock::manual(START_MS);
    let mut subject = S::new(clock);
    let mut model = Model::new::<S>(time);
    for operation in operations {
        step(&mut subject, &mut model, operation);
        model.note::<S>();
    }
    subject.reopen();
    model.check_all(subject.database());
    subject.check();
}

fn step<S: Subject>(subject: &mut S, model: &mut Model, operation: &Operation) {
    let database = subject.database();
    match operation {
        Operation::Record(key, operation) => model.apply(database, key, operation),
        Operation::Batch { changes, expected } => model.write(database, changes, expected),
        Operation::Transaction(transaction) => model.transact(database, transaction),
        Operation::Scan => model.check_all(database),
        Operation::ScanBeside { operations, crashes } => {
            scan_beside(subject, model, operations, *crashes);
        }
        Operation::ScanFrom(key) => model.check_scan_from(database, key),
        Operation::Prefix(prefix, max) => model.check_prefix(database, prefix, *max),
        Operation::Find(part) => model.check_find(database, part),
        Operation::Clear => {
            database.clear().unwrap();
            model.records.clear();
            assert_eq!(database.len(), 0);
        }
        Operation::Optimize => database.optimize().unwrap(),
        Operation::Sync => {
            database.sync().unwrap();
            model.possible.acknowledge();
        }
        Operation::Acknowledge => {
            database.wait_durable(database.appended()).unwrap();
            model.possible.acknowledge();
        }
        Operation::Maintain => subject.run_maintenance(),
        Operation::Rearrange(choice) => subject.rearrange(*choice),
        Operation::Wait(ms) => model.time.advance(*ms),
        Operation::Reopen => {
            subject.reopen();
            model.possible.acknowledge();
            model.check_all(subject.database());
            subject.check();
        }
        Operation::Crash => {
            subject.crash();
            model.resolve(subject.database());
            model.check_all(subject.database());
            subject.check();
        }
    }
}

/// Scans all records, with operations between the steps. A record is visited at most once, with its
/// state at that moment, and exactly once if it existed throughout.
fn scan_beside<S: Subject>(
    subject: &mut S,
    model: &mut Model,
    operations: &[Operation],
    crashes: bool,
) {
    let database = subject.database().clone();
    let mut scan = database.full_scan(Wanted::Records).unwrap();
    let mut lasting: BTreeSet<Vec<u8>> = model.all_live().map(|(key, _)| key.clone()).collect();
    let mut visited = BTreeSet::new();
    let mut some = |model: &Model| {
        scan.step(|entry| {
            let record = model.live(entry.key).expect("a record that is not there");
            assert_eq!((entry.value, entry.meta), (&record.value[..], record.meta));
            assert!(visited.insert(entry.key.to_vec()), "{:?} was visited twice", entry.key);
        })
        .unwrap()
    };
    for operation in operations {
        some(model);
        step(subject, model, operation);
        model.note::<S>();
        lasting.retain(|key| model.live(key).is_some());
    }
    let before = model.clone();
    if crashes {
        step(subject, model, &Operation::Crash);
    }
    while some(&before) {}
    assert!(
        lasting.is_subset(&visited),
        "lasting records are {lasting:?}, visited are {visited:?}"
    );
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) value: Vec<u8>,
    pub(crate) meta: Meta,
    /// 0 until the version is known.
    pub(crate) version: Version,
}

/// Contents that a database should have.
#[derive(Clone)]
struct Model {
    records: BTreeMap<Vec<u8>, Record>,
    /// The newest version that was read.
    newest: Version,
    time: ManualClock,
    keeps_meta: bool,
    /// Possible states after a crash.
    possible: Possible,
}

impl Model {
    fn new<S: Subject>(time: ManualClock) -> Self {
        Self {
            records: BTreeMap::new(),
            newest: 0,
            time,
            keeps_meta: S::KEEPS_META,
            possible: Possible::default(),
        }
    }

    /// Records the current state as possible.
    fn note<S: Subject>(&mut self) {
        self.possible.note(&self.records);
        if !S::LOSES {
            self.possible.acknowledge();
        }
    }

    fn kept(&self, meta: Meta) -> Meta {
        if self.keeps_meta { meta } else { Meta::NONE }
    }

    fn live(&self, key: &[u8]) -> Option<&Record> {
        self.records.get(key).filter(|record| !record.meta.is_expired(self.time.now_ms()))
    }

    fn all_live(&self) -> impl Iterator<Item = (&Vec<u8>, &Record)> {
        let now_ms = self.time.now_ms();
        self.records.iter().filter(move |(_, record)| !record.meta.is_expired(now_ms))
    }

    fn expires_at_ms(&self, lifetime_ms: Option<i64>) -> u64 {
        lifetime_ms.map_or(0, |ms| self.time.now_ms().saturating_add_signed(ms))
    }

    /// Applies one operation to a record in both, and compares the results.
    fn apply(&mut self, database: &Database, key: &[u8], operation: &RecordOperation) {
        let old = self.live(key).cloned();
        let old_value = old.as_ref().map(|old| old.value.as_slice());
        let old_meta = old.as_ref().map_or(Meta::NONE, |old| old.meta);
        // New state of the record; `None` if it does not exist afterwards.
        let new: Option<(Vec<u8>, Meta)> = match operation {
            RecordOperation::Get => {
                assert_eq!(database.get(key).unwrap().as_deref(), old_value);
                let size = database.value_size(key).unwrap();
                assert_eq!(size, old_value.map(<[u8]>::len));
                None
            }
            RecordOperation::Put { value, flags, lifetime_ms } => {
                let meta = Meta { flags: *flags, expires_at_ms: self.expires_at_ms(*lifetime_ms) };
                let version = database.put_with(key, value, meta).unwrap();
                assert!(version > self.newest);
                Some((value.clone(), meta))
            }
            RecordOperation::PutKeep(value) => {
                assert_eq!(database.put_keep(key, value, Meta::NONE).unwrap(), old.is_none());
                old.is_none().then(|| (value.clone(), Meta::NONE))
            }
            RecordOperation::Replace(value) => {
                assert_eq!(database.replace(key, value, Meta::NONE).unwrap(), old.is_some());
                old.is_some().then(|| (value.clone(), Meta::NONE))
            }
            RecordOperation::PutCat(part) => {
                database.put_cat(key, part).unwrap();
                Some(([old_value.unwrap_or_default(), part].concat(), old_meta))
            }
            RecordOperation::PutShift(part, width) => {
                database.put_shift(key, part, *width).unwrap();
                let whole = [old_value.unwrap_or_default(), part].concat();
                let from = if old.is_some() { whole.len().saturating_sub(*width) } else { 0 };
                Some((whole[from..].to_vec(), old_meta))
            }
            RecordOperation::Extend { part, front } => {
                assert_eq!(database.extend(key, part, *front).unwrap(), old.is_some());
                old_value.map(|old| {
                    let parts = if *front { [part, old] } else { [old, part] };
                    (parts.concat(), old_meta)
                })
            }
            RecordOperation::Remove => {
                assert_eq!(database.remove(key).unwrap(), old.is_some());
                self.remove(key);
                None
            }
            RecordOperation::AddInt(addend) => {
                let sum = add(old_value, |old: Option<[u8; 4]>| {
                    old.map_or(0, i32::from_le_bytes).wrapping_add(*addend)
                });
                match (database.add_int(key, *addend), sum) {
                    (Ok(result), Some(sum)) => assert_eq!(result, sum),
                    (Err(Error::NotANumber { width: 4 }), None) => {}
                    (result, sum) => panic!("{result:?} in place of {sum:?}"),
                }
                sum.map(|sum| (sum.to_le_bytes().to_vec(), old_meta))
            }
            RecordOperation::AddDouble(addend) => {
                let sum = add(old_value, |old: Option<[u8; 8]>| {
                    old.map_or(0.0, f64::from_le_bytes) + *addend
                });
                // A sum that is not a number is refused, as in Tokyo Tyrant.
                let sum = sum.filter(|sum| !sum.is_nan());
                match (database.add_double(key, *addend), sum) {
                    (Ok(result), Some(sum)) => assert_eq!(result.to_bits(), sum.to_bits()),
                    (Err(Error::NotANumber { width: 8 }), None) => {}
                    (result, sum) => panic!("{result:?} in place of {sum:?}"),
                }
                sum.map(|sum| (sum.to_le_bytes().to_vec(), old_meta))
            }
            RecordOperation::CompareAndSwap { value, stale } => {
                let version = old.as_ref().map_or(1, |old| old.version) - u64::from(*stale);
                let swap = database.compare_and_swap(key, version, value, Meta::NONE).unwrap();
                match (&old, swap) {
                    (None, Swap::Missing) => None,
                    (Some(_), Swap::Changed) if *stale => None,
                    (Some(_), Swap::Stored(_)) if !stale => Some((value.clone(), Meta::NONE)),
                    (old, swap) => panic!("{swap:?} of {old:?}"),
                }
            }
            RecordOperation::Touch(lifetime_ms) => {
                let expires_at_ms = self.expires_at_ms(*lifetime_ms);
                assert_eq!(database.touch(key, expires_at_ms).unwrap(), old.is_some());
                old_value.map(|old| (old.to_vec(), Meta { expires_at_ms, ..old_meta }))
            }
        };
        if let Some((value, meta)) = new {
            let meta = self.kept(meta);
            self.records.insert(key.to_vec(), Record { value, meta, version: 0 });
        }
        self.check_record(database, key);
    }

    /// Compares one record, and learns its version if it was just stored.
    fn check_record(&mut self, database: &Database, key: &[u8]) {
        let read = database
            .read(key, |entry| {
                assert_eq!(entry.key, key);
                (entry.value.to_vec(), entry.meta, entry.version)
            })
            .unwrap();
        let Some(record) = self.live(key) else {
            assert_eq!(read, None);
            return;
        };
        let (value, meta, version) = read.expect("the record is gone");
        assert_eq!((&value, meta), (&record.value, record.meta));
        if record.version == 0 {
            assert!(version > self.newest, "{version} is not newer than {}", self.newest);
            self.newest = version;
            self.records.insert(key.to_vec(), Record { value, meta, version });
        } else {
            assert_eq!(version, record.version, "the version changed though nothing was stored");
        }
    }

    fn write(
        &mut self,
        database: &Database,
        changes: &[(Vec<u8>, Option<Vec<u8>>)],
        expected: &[(Vec<u8>, bool)],
    ) {
        let mut batch = Batch::new();
        for (key, holds) in expected {
            let version = self.live(key).map(|record| record.version);
            batch.expect(key, if *holds { version } else { Some(version.unwrap_or(0) + 1) });
        }
        for (key, value) in changes {
            match value {
                Some(value) => batch.put(key, value, Meta::NONE),
                None => batch.remove(key),
            }
        }
        let result = database.write(&batch);
        if expected.iter().all(|(_, holds)| *holds) {
            result.unwrap();
            for (key, value) in changes {
                self.set(key, value.clone());
            }
        } else {
            assert!(matches!(result, Err(Error::Conflict)), "{result:?}");
        }
        self.check_changed(database, changes.iter().map(|(key, _)| key));
    }

    fn transact(&mut self, database: &Database, operation: &TransactionOperation) {
        let transaction = database.transaction();
        // The changes belong to the transaction alone until it is committed.
        let mut within = Self { keeps_meta: true, ..self.clone() };
        let mut changed = BTreeSet::new();
        let mut expected = BTreeSet::new();
        for (key, step) in &operation.steps {
            if !changed.contains(key) && !matches!(step, RecordOperation::Put { .. }) {
                expected.insert(key);
            }
            let before = within.newest;
            within.apply(&transaction, key, step);
            let removes = matches!(step, RecordOperation::Remove);
            if removes || within.newest > before {
                changed.insert(key);
            }
        }
        let mut conflicts = false;
        if let Some(key) = &operation.meanwhile {
            self.set(key, Some(b"meanwhile".to_vec()));
            database.put(key, b"meanwhile").unwrap();
            self.check_record(database, key);
            self.possible.note(&self.records);
            conflicts = expected.contains(key);
        }
        if operation.commits {
            let result = transaction.commit();
            assert_eq!(matches!(result, Err(Error::Conflict)), conflicts, "{result:?}");
            if !conflicts {
                result.unwrap();
                for key in &changed {
                    match within.records.get(*key) {
                        Some(record) => {
                            let meta = self.kept(record.meta);
                            let record = Record { version: 0, meta, ..record.clone() };
                            self.records.insert(key.to_vec(), record);
                        }
                        None => self.remove(key),
                    }
                }
            }
        } else {
            transaction.abort();
        }
        let steps = operation.steps.iter().map(|(key, _)| key);
        self.check_changed(database, steps.chain(&operation.meanwhile));
    }

    fn set(&mut self, key: &[u8], value: Option<Vec<u8>>) {
        match value {
            Some(value) => {
                let record = Record { value, meta: Meta::NONE, version: 0 };
                self.records.insert(key.to_vec(), record);
            }
            None => self.remove(key),
        }
    }

    /// Removes a live record. An expired one may stay until it is reclaimed.
    fn remove(&mut self, key: &[u8]) {
        if self.live(key).is_some() {
            self.records.remove(key);
        }
    }

    /// Compares records that were changed together, in unknown order.
    fn check_changed<'a>(&mut self, database: &Database, keys: impl Iterator<Item = &'a Vec<u8>>) {
        let (before, mut after) = (self.newest, self.newest);
        for key in keys.collect::<BTreeSet<_>>() {
            self.newest = before;
            self.check_record(database, key);
            after = after.max(self.newest);
        }
        self.newest = after;
    }

    fn check_all(&self, database: &Database) {
        let expected: BTreeMap<_, _> =
            self.all_live().map(|(key, record)| (key.clone(), record.clone())).collect();
        assert_eq!(all(database), expected);
        // Expired keys are read, too.
        let keys: Vec<&[u8]> = self.records.keys().map(Vec::as_slice).collect();
        let mut left = keys.iter();
        let read = database.read_each(&keys, |found| {
            let key = *left.next().expect("a key is read twice");
            let found = found.expect("a record that can be read").map(|entry| {
                assert_eq!(entry.key, key);
                let (value, meta, version) = (entry.value.to_vec(), entry.meta, entry.version);
                Record { value, meta, version }
            });
            assert_eq!(found.as_ref(), expected.get(key));
            ControlFlow::Continue(())
        });
        read.unwrap();
        assert_eq!(left.len(), 0);
        // Expired records may still exist.
        let count = expected.len() as u64..=self.records.len() as u64;
        assert!(count.contains(&database.len()), "{} of {count:?}", database.len());
    }

    /// Learns the contents after a crash, which must be a possible state.
    fn resolve(&mut self, database: &Database) {
        let found = all(database);
        self.records = self.possible.resolve(&found, self.time.now_ms());
        self.newest = found.values().map(|record| record.version).max().unwrap_or(0);
    }

    /// Compares a scan from a key on with the end of a scan of all records.
    fn check_scan_from(&self, database: &Database, key: &[u8]) {
        let middle = database.scan_cursor_of(key);
        let mut rest = Vec::new();
        let mut position = Some(middle);
        while let Some(from) = position {
            position = database.scan_keys(&from, |key| rest.push(key.to_vec())).unwrap();
        }
        if self.live(key).is_some() {
            assert_eq!(
                rest.first().map(Vec::as_slice),
                Some(key),
                "the scan does not begin at the key"
            );
        }
        let mut all = Vec::new();
        let mut position = Some(ScanCursor::Start);
        while let Some(from) = position {
            position = database.scan_keys(&from, |key| all.push(key.to_vec())).unwrap();
        }
        assert!(all.ends_with(&rest), "the scan differs from the end of the scan of all");
    }

    fn check_prefix(&self, database: &Database, prefix: &[u8], max: Option<usize>) {
        let found = database.keys_with_prefix(prefix, max).unwrap();
        let expected: BTreeSet<_> =
            self.all_live().map(|(key, _)| key).filter(|key| key.starts_with(prefix)).collect();
        assert_eq!(found.len(), expected.len().min(max.unwrap_or(usize::MAX)));
        let found_once: BTreeSet<_> = found.iter().collect();
        assert_eq!(found_once.len(), found.len());
        assert!(found_once.is_subset(&expected));
    }

    fn check_find(&self, database: &Database, part: &[u8]) {
        // Letters are literal in a pattern. Other keys are not searched.
        if !part.iter().all(u8::is_ascii_alphanumeric) {
            return;
        }
        let found: BTreeSet<_> = database.find(part, None).unwrap().into_iter().collect();
        let expected: BTreeSet<_> = self
            .all_live()
            .filter(|(key, _)| {
                part.is_empty() || key.windows(part.len()).any(|window| window == part)
            })
            .map(|(key, record)| (key.clone(), record.value.clone()))
            .collect();
        assert_eq!(found, expected);
    }
}

/// Returns all live records of a database. Fails if a record is visited twice.
fn all(database: &Database) -> BTreeMap<Vec<u8>, Record> {
    let mut visited = BTreeMap::new();
    database
        .for_each(|entry| {
            let (value, meta, version) = (entry.value.to_vec(), entry.meta, entry.version);
            let record = Record { value, meta, version };
            assert!(visited.insert(entry.key.to_vec(), record).is_none(), "visited twice");
            ControlFlow::Continue(())
        })
        .unwrap();
    visited
}

/// Returns the sum, or `None` if the value does not have the width of the number.
fn add<const WIDTH: usize, T>(
    value: Option<&[u8]>,
    add: impl Fn(Option<[u8; WIDTH]>) -> T,
) -> Option<T> {
    match value {
        None => Some(add(None)),
        Some(value) => value.try_into().ok().map(|value| add(Some(value))),
    }
}
