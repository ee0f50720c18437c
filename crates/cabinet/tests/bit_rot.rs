//! Bytes that change in a file behind an open database: every reader fails, and nothing is
//! silently absent, left out or given back.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use cabinet::{Batch, Change, Damage, Database, Error, Meta, Options, Result, Verified};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const RECORDS: u32 = 900;

/// A database in a folder of its own.
struct Subject {
    folder: tempfile::TempDir,
    name: &'static str,
}

impl Subject {
    fn new(name: &'static str) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), name }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(self.name)
    }

    fn open(&self) -> Database {
        let mut options = Options::default();
        options.segment_bytes = Some(64 << 10);
        options.open(self.path()).unwrap()
    }

    /// One with records in several segments.
    fn filled(&self) -> Database {
        let database = self.open();
        for number in 1..=RECORDS {
            database.put(&key(number), &value(number)).unwrap();
        }
        database
    }

    /// Flips a bit of the byte at `at` in the last place where the files hold `text`.
    fn damage(&self, text: &[u8], at: usize) -> PathBuf {
        let mut files: Vec<PathBuf> =
            fs::read_dir(self.path()).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        for path in files.into_iter().rev() {
            let bytes = fs::read(&path).unwrap();
            let place = bytes.windows(text.len()).rposition(|window| window == text);
            if let Some(place) = place {
                let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
                file.write_at(&[bytes[place + at] ^ 1], (place + at) as u64).unwrap();
                return path;
            }
        }
        panic!("no file has it");
    }
}

fn key(number: u32) -> Vec<u8> {
    (10_000 + number).to_string().into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    format!("v\0value of {number:05}, {}", "and so on ".repeat(20)).into_bytes()
}

fn stat(database: &Database, name: &str) -> u64 {
    let stats = database.stats();
    stats.iter().find(|(own, _)| *own == name).unwrap().1.parse().unwrap()
}

fn check_refused<T>(what: &str, result: Result<T>, file: &Path) {
    match result {
        Err(Error::Corrupted { file: named, .. }) => assert_eq!(named, file, "{what}"),
        Err(error) => panic!("{what}: {error}"),
        Ok(_) => panic!("{what} says nothing"),
    }
}

fn list(database: &Database) -> Result<usize> {
    let mut count = 0;
    database.for_each(|_| {
        count += 1;
        ControlFlow::Continue(())
    })?;
    Ok(count)
}

/// A copy of the files as a process that is killed would leave them.
fn killed(subject: &Subject) -> Subject {
    let copy = Subject::new(subject.name);
    fs::create_dir(copy.path()).unwrap();
    for file in fs::read_dir(subject.path()).unwrap() {
        let file = file.unwrap();
        if file.file_name() != "lock" {
            fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
    }
    copy
}

/// Checks that every operation that reads the record of a key says that it is damaged.
fn check_reads_of(database: &Database, damaged: &[u8], file: &Path) {
    check_refused("get", database.get(damaged), file);
    check_refused("value_size", database.value_size(damaged), file);
    check_refused("put_keep", database.put_keep(damaged, b"a\0b", Meta::NONE), file);
    check_refused("replace", database.replace(damaged, b"a\0b", Meta::NONE), file);
    check_refused("put_cat", database.put_cat(damaged, b"a\0b"), file);
    check_refused("add_int", database.add_int(damaged, 1), file);
    check_refused("modify", database.modify(damaged, |_| (Change::Keep, ())), file);
    check_refused("swap", database.compare_and_swap(damaged, 1, b"", Meta::NONE), file);
    check_refused("transaction", database.transaction().get(damaged), file);
    let mut batch = Batch::default();
    batch.expect(damaged, Some(1));
    batch.put(&key(1), b"a\0b", Meta::NONE);
    check_refused("write", database.write(&batch), file);
    let read = database.read_each(&[damaged], |found| {
        check_refused("read_each", found.map(|_| ()), file);
        ControlFlow::Continue(())
    });
    read.expect("a visit");
}

#[test]
fn a_damaged_value_is_an_error_to_every_reader_and_never_absent() {
    for name in ["a.tch", "a.tcf", "a.tcb", "a.tct"] {
        let subject = Subject::new(name);
        drop(subject.filled());
        // Leaves of a tree that are in memory would not be read.
        let database = subject.open();
        let file = subject.damage(b"value of 00123", 10);
        let damaged = &key(123)[..];
        check_reads_of(&database, damaged, &file);
        check_refused("for_each", list(&database), &file);
        check_refused("find", database.find(b"^", None), &file);
        if database.order().is_some() {
            let all = || database.range::<&[u8]>(..)?.collect::<cabinet::Result<Vec<_>>>();
            check_refused("range", all(), &file);
        }
        if let Some(table) = database.table() {
            let query = cabinet::table::Query::new().with(
                b"v",
                cabinet::table::Operator::StringEqual,
                b"none",
            );
            check_refused("query", table.search(&query), &file);
        }
        assert!(stat(&database, "damaged_records") >= 12, "{name}");
        assert_eq!(stat(&database, "damaged_segments"), 1, "{name}");
        // The others are there.
        assert_eq!(database.get(&key(400)).unwrap().unwrap(), value(400), "{name}");
    }
}

#[test]
fn a_damaged_key_is_an_error_to_every_reader_and_never_absent() {
    let subject = Subject::new("a.tch");
    let database = subject.filled();
    let file = subject.damage(&[&key(123)[..], &value(123)].concat(), 4);
    check_refused("get", database.get(&key(123)), &file);
    check_refused("list", database.keys_with_prefix(b"", None), &file);
    check_refused("modify", database.modify(&key(123), |_| (Change::Keep, ())), &file);
    assert_eq!(database.get(&key(124)).unwrap().unwrap(), value(124));
}

/// Damage to the value, to the key, to the length of the key.
const PLACES: [isize; 3] = [20, 3, -3];

#[test]
fn a_put_takes_the_place_of_a_damaged_record_also_after_a_crash() {
    for (name, place) in
        [("a.tch", 0), ("a.tch", 1), ("a.tch", 2), ("a.tcf", 0), ("a.tcf", 1), ("a.tcf", 2)]
    {
        let subject = Subject::new(name);
        drop(subject.filled());
        let database = subject.open();
        let text = text_before(&subject, 123);
        subject.damage(&text, (PLACES[place] + 3) as usize);
        assert!(database.get(&key(123)).is_err());
        database.put(&key(123), b"new").unwrap();
        assert_eq!(database.get(&key(123)).unwrap().unwrap(), b"new");
        assert_eq!((list(&database).unwrap(), database.len()), (900, 900), "{name} {place}");
        let copy = killed(&subject);
        let recovered = copy.open();
        assert_eq!(recovered.get(&key(123)).unwrap().unwrap(), b"new");
        assert_eq!((list(&recovered).unwrap(), recovered.len()), (900, 900), "{name} {place}");
    }
}

#[test]
fn a_damaged_record_can_be_removed_and_nothing_older_comes_back() {
    for (name, place) in
        [("a.tch", 0), ("a.tch", 1), ("a.tch", 2), ("a.tcf", 0), ("a.tcf", 1), ("a.tcf", 2)]
    {
        for batched in [false, true] {
            let subject = Subject::new(name);
            drop(subject.filled());
            let database = subject.open();
            // The older record stays, in a segment before.
            database.put(&key(123), &value(999)).unwrap();
            drop(database);
            let database = subject.open();
            let text = text_before(&subject, 999);
            subject.damage(&text, (PLACES[place] + 3) as usize);
            assert!(database.get(&key(123)).is_err(), "{name} {place}");
            if batched {
                let mut batch = Batch::default();
                batch.remove(&key(123));
                database.write(&batch).unwrap();
            } else {
                assert!(database.remove(&key(123)).unwrap());
                assert!(!database.remove(&key(123)).unwrap());
            }
            let copy = killed(&subject);
            let recovered = copy.open();
            drop(database);
            for database in [recovered, subject.open()] {
                assert_eq!(database.get(&key(123)).unwrap(), None, "{name} {place}");
                assert_eq!(list(&database).unwrap(), 899, "{name} {place}");
            }
        }
    }
}

/// The three bytes before the key of the record with this value, its key, its value.
fn text_before(subject: &Subject, number: u32) -> Vec<u8> {
    let value = value(number);
    for file in fs::read_dir(subject.path()).unwrap() {
        let bytes = fs::read(file.unwrap().path()).unwrap();
        let place = bytes.windows(value.len()).rposition(|window| window == value);
        if let Some(place) = place {
            return bytes[place - 8..place + value.len()].to_vec();
        }
    }
    panic!("no file has it");
}

#[test]
fn compaction_keeps_the_file_of_a_segment_with_damage() {
    for name in ["a.tch", "a.tcf", "a.tcb"] {
        let subject = Subject::new(name);
        drop(subject.filled());
        let database = subject.open();
        let file = subject.damage(b"value of 00010", 10);
        for number in 100..=RECORDS {
            database.put(&key(number), b"v\0short").unwrap();
        }
        database.optimize().unwrap();
        assert!(file.exists(), "{name}");
        assert_eq!(stat(&database, "damaged_segments"), 1, "{name}");
        check_refused("get", database.get(&key(10)), &file);
        assert_eq!(database.get(&key(99)).unwrap().unwrap(), value(99));
        assert_eq!(database.get(&key(400)).unwrap().unwrap(), b"v\0short");
    }
}

/// Bytes per second that no disk has.
const UNBOUNDED: u64 = u64::MAX;

fn verify(database: &Database) -> (Verified, Vec<Damage>) {
    let mut damages = Vec::new();
    let verified =
        database.verify(&mut |_| Some(UNBOUNDED), &mut |damage| damages.push(damage)).unwrap();
    (verified, damages)
}

#[test]
fn an_open_database_is_verified_as_one_is_that_nobody_has_open() {
    for name in ["a.tch", "a.tcf", "a.tcb", "a.tct"] {
        let subject = Subject::new(name);
        drop(subject.filled());
        let database = subject.open();
        for number in 1..10 {
            database.put(&key(number), b"v\0in the active segment").unwrap();
        }
        let (verified, damages) = verify(&database);
        assert!(verified.is_complete && damages.is_empty(), "{name}: {damages:?}");
        assert!(verified.checked.bytes > 200_000, "{name}: {verified:?}");
        let files = [
            subject.damage(b"value of 00123", 10),
            subject.damage(b"in the active segment", 3),
            subject.damage(b"tyrantck", 0),
        ];
        let (verified, damages) = verify(&database);
        assert!(verified.is_complete && verified.checked.damages == damages.len() as u64);
        for file in &files {
            assert!(damages.iter().any(|damage| damage.file == *file), "{name}: {damages:?}");
        }
        assert_eq!(stat(&database, "damaged_segments"), 2, "{name}");
    }
}

#[test]
fn nothing_is_damaged_while_others_write_and_compact() {
    for name in ["a.tch", "a.tcf", "a.tcb"] {
        let subject = Subject::new(name);
        let database = subject.filled();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let (database, stop) = (&database, &stop);
                scope.spawn(move || {
                    let mut round = 0;
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        round += 1;
                        let number = 1 + (round * 2 + writer) % RECORDS;
                        database.put(&key(number), &value(round)).unwrap();
                        if round % 5000 == 0 {
                            database.optimize().unwrap();
                        }
                    }
                });
            }
            for _ in 0..20 {
                let (verified, damages) = verify(&database);
                assert!(verified.is_complete && damages.is_empty(), "{name}: {damages:?}");
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(stat(&database, "damaged_records"), 0, "{name}");
    }
}

#[test]
fn a_page_that_was_read_before_it_rotted_is_refused_once_that_is_known() {
    let subject = Subject::new("a.tcb");
    drop(subject.filled());
    let database = subject.open();
    assert_eq!(database.get(&key(123)).unwrap().unwrap(), value(123));
    let file = subject.damage(b"value of 00123", 10);
    let (_, damages) = verify(&database);
    assert_eq!(damages.len(), 1);
    check_refused("get", database.get(&key(123)), &file);
    assert_eq!(database.get(&key(800)).unwrap().unwrap(), value(800));
}

#[test]
fn verifying_keeps_to_its_rate_and_can_be_stopped() {
    const BYTES: u64 = 3 << 20;
    let subject = Subject::new("a.tch");
    let database = subject.open();
    for number in 0..BYTES / 10_000 {
        database.put(&number.to_le_bytes(), &[7; 10_000]).unwrap();
    }
    let started = std::time::Instant::now();
    let verified = database.verify(&mut |_| Some(6 << 20), &mut |damage| panic!("{damage}"));
    assert!(verified.unwrap().is_complete);
    let seconds = started.elapsed().as_secs_f64();
    assert!(seconds > 0.3, "{seconds}");

    let mut calls = 0;
    let mut go_on = |verified: &Verified| {
        calls += 1;
        (verified.checked.bytes < 1 << 20).then_some(UNBOUNDED)
    };
    let verified = database.verify(&mut go_on, &mut |damage| panic!("{damage}")).unwrap();
    assert!(!verified.is_complete && calls > 2);
    assert!((1 << 20..2 << 20).contains(&verified.checked.bytes), "{verified:?}");
}

#[test]
fn damage_in_a_segment_that_has_gone_meanwhile_is_none() {
    let subject = Subject::new("a.tch");
    let database = subject.open();
    for number in 0..400u32 {
        database.put(&number.to_le_bytes(), &[7; 10_000]).unwrap();
    }
    subject.damage(&[&350u32.to_le_bytes()[..], &[7; 20]].concat(), 20);
    let other = database.clone();
    let mut go_on = |_: &Verified| {
        other.clear().unwrap();
        Some(UNBOUNDED)
    };
    let verified = database.verify(&mut go_on, &mut |damage| panic!("{damage}")).unwrap();
    assert_eq!((verified.checked.damages, verified.is_complete), (0, true));
    assert_eq!(stat(&database, "damaged_segments"), 0);
}

/// Copies whole records over others of one segment, as a write to a wrong place does. Returns the
/// file, and the number of the first record that is gone and of the one after the last.
fn misdirect(subject: &Subject) -> (PathBuf, std::ops::Range<u32>) {
    let path = subject.path().join("0000000001.log");
    let bytes = fs::read(&path).unwrap();
    let start = |number: u32| {
        let value = value(number);
        let at = bytes.windows(value.len()).position(|window| window == value).unwrap();
        // Checksum, sequence number, flags and the lengths of key and value.
        let start = at - key(number).len() - (4 + 8 + 1 + 1 + 2);
        assert!(start.is_multiple_of(8));
        start
    };
    let (from, to) = (40..50, 20..30);
    let copied = &bytes[start(from.start)..start(from.end)];
    assert_eq!(copied.len(), start(to.end) - start(to.start));
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_at(copied, start(to.start) as u64).unwrap();
    (path, to)
}

#[test]
fn whole_records_in_the_place_of_others_are_damage() {
    for name in ["a.tch", "a.tcf"] {
        let subject = Subject::new(name);
        drop(subject.filled());
        let (file, gone) = misdirect(&subject);
        let mut damages = Vec::new();
        let checked = cabinet::check(subject.path(), &mut |damage| damages.push(damage)).unwrap();
        assert!(damages.iter().any(|damage| damage.file == file), "{damages:?}");
        assert_eq!(checked.damages, damages.len() as u64);
        assert_eq!(checked.records, u64::from(RECORDS) - gone.len() as u64);

        let database = subject.open();
        for number in gone.clone() {
            let key = &key(number)[..];
            check_reads_of(&database, key, &file);
        }
        for number in (1..=RECORDS).filter(|number| !gone.contains(number)) {
            assert_eq!(database.get(&key(number)).unwrap(), Some(value(number)));
        }
        assert!(stat(&database, "damaged_records") > 0);
        // A put or a removal replaces the record.
        database.put(&key(gone.start), b"new").unwrap();
        assert_eq!(database.get(&key(gone.start)).unwrap().unwrap(), b"new");
        assert!(database.remove(&key(gone.start + 1)).unwrap());
        assert_eq!(database.get(&key(gone.start + 1)).unwrap(), None);
    }
}

/// Value of a key in the test below, as long in each round.
fn round_value(round: u8, number: u32) -> Vec<u8> {
    format!("round\0{round} of {number:05}, {}", "and so on ".repeat(20)).into_bytes()
}

/// Puts each key twice, with values of one length. So pages of the first round hold the same keys,
/// at the same offsets of other segments, as pages of the second.
fn put_twice(database: &Database) {
    for round in 1..=2 {
        for number in 1..=RECORDS {
            database.put(&key(number), &round_value(round, number)).unwrap();
        }
    }
}

/// Overwrites the records of the last full segment with those of an earlier one, as writes to a
/// wrong place do, and its header too if `is_whole`. Returns the file.
fn overwrite_with_older(subject: &Subject, is_whole: bool) -> PathBuf {
    let mut segments: Vec<PathBuf> = fs::read_dir(subject.path())
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "log"))
        .collect();
    segments.sort();
    let [.., to, _] = &segments[..] else { panic!("{} segments", segments.len()) };
    let bytes = fs::read(&segments[1]).unwrap();
    let start = if is_whole { 0 } else { 64 };
    let file = fs::OpenOptions::new().write(true).open(to).unwrap();
    let end = bytes.len().min(usize::try_from(file.metadata().unwrap().len()).unwrap());
    file.write_at(&bytes[start..end], start as u64).unwrap();
    to.clone()
}

#[test]
fn older_records_in_the_place_of_newer_ones_are_damage() {
    for name in ["a.tch", "a.tcf", "a.tcb"] {
        for (is_closed, is_whole) in [(true, false), (true, true), (false, false), (false, true)] {
            let case = format!("{name}, closed {is_closed}, whole {is_whole}");
            let subject = Subject::new(name);
            let database = subject.open();
            put_twice(&database);
            let subject = if is_closed {
                drop(database);
                subject
            } else {
                killed(&subject)
            };
            overwrite_with_older(&subject, is_whole);
            let checked = cabinet::check(subject.path(), &mut |_| {}).unwrap();
            assert!(checked.damages > 0, "{case}: check says nothing");
            let Ok(database) = Options::default().open(subject.path()) else { continue };
            if !is_closed {
                // A hole in what is replayed: it is reported, and keys of it show older values.
                assert!(!database.damages().is_empty(), "{case}: opening says nothing");
                continue;
            }
            let mut errors = 0;
            for number in 1..=RECORDS {
                match database.get(&key(number)) {
                    Ok(found) => {
                        assert_eq!(found, Some(round_value(2, number)), "{case}: key {number}");
                    }
                    Err(_) => errors += 1,
                }
            }
            assert!(errors > 0, "{case}: no page had a record that counts");
        }
    }
}
