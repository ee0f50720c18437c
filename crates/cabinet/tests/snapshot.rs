//! Promises of copies of a database that are made while it is open.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/observed_storage.rs"]
mod observed_storage;

use cabinet::testing::{FaultyStorage, Open, Storage};
use cabinet::{
    Batch, Damage, Database, Engine, Error, HashDatabase, Maintenance, Options, SnapshotBarrier,
};
use observed_storage::{ObservedStorage, StorageOperation};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Only a guard against hangs.
const DEADLINE: Duration = Duration::from_secs(120);

const RECORDS: u32 = 500;

fn open(storage: Arc<dyn Storage>, path: &str) -> Arc<HashDatabase> {
    let mut options = Options::default();
    options.segment_bytes = Some(64 << 10);
    Arc::new(HashDatabase::open_on(storage, Path::new(path), &options, false).unwrap())
}

fn fill(engine: &Arc<HashDatabase>) -> Database {
    let database = Database::from_engine(Arc::clone(engine) as Arc<dyn Engine>);
    for number in 0..RECORDS {
        database.put(&number.to_le_bytes(), &[7; 1000]).unwrap();
    }
    database
}

fn is_whole(engine: &Arc<HashDatabase>) -> bool {
    let copy = Database::from_engine(Arc::clone(engine) as Arc<dyn Engine>);
    copy.len() == u64::from(RECORDS)
        && (0..RECORDS).all(|number| copy.get(&number.to_le_bytes()).unwrap().unwrap() == [7; 1000])
}

#[test]
fn of_two_copies_to_one_place_one_stays_and_the_other_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::default();
    let database = options.open(folder.path().join("casket.tch")).unwrap();
    database.put(b"key", b"value").unwrap();
    let copy = folder.path().join("copy.tch");
    let (is_late, is_copied) = (AtomicBool::new(false), AtomicBool::new(false));
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_late.load(Ordering::Acquire) {
                thread::yield_now();
            }
            let copied = database.copy_to(&copy);
            is_copied.store(true, Ordering::Release);
            copied.unwrap();
        });
        // It has found the place free, and lets the other one go ahead.
        let barrier: &mut SnapshotBarrier<'_> = &mut |copy| {
            is_late.store(true, Ordering::Release);
            assert!(started.elapsed() < DEADLINE);
            if !is_copied.load(Ordering::Acquire) {
                return Ok(false);
            }
            copy().map(|()| true)
        };
        assert!(matches!(database.copy_at(&copy, barrier), Err(Error::Io { .. })));
    });
    let copied = options.open(&copy).unwrap();
    assert_eq!(copied.get(b"key").unwrap().unwrap(), b"value");
}

#[test]
fn a_copy_to_another_file_system_holds_up_nobody_and_is_as_it_was_at_its_moment() {
    let storage = FaultyStorage::new();
    let running: Arc<OnceLock<Arc<HashDatabase>>> = Arc::default();
    let is_copying = Arc::new(AtomicBool::new(false));
    let (here, armed) = (Arc::clone(&running), Arc::clone(&is_copying));
    let watch = move |step| {
        if step != StorageOperation::Write || !armed.swap(false, Ordering::AcqRel) {
            return;
        }
        let engine = Arc::clone(here.get().unwrap());
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            // All that is being copied goes, and the checkpoint is another one.
            engine.replace_all(&Batch::new()).unwrap();
            engine.checkpoint().unwrap();
            done.send(()).unwrap();
        });
        is_done.recv_timeout(DEADLINE).expect("nothing waits for the copy");
    };
    let observed = ObservedStorage { storage: storage.clone(), watch: Arc::new(watch) };
    let engine = open(Arc::new(observed), "casket.tch");
    assert!(running.set(Arc::clone(&engine)).is_ok());
    let database = fill(&engine);
    engine.checkpoint().unwrap();
    storage.faults().refuse_links.store(true, Ordering::Relaxed);
    is_copying.store(true, Ordering::Release);
    database.copy_to(Path::new("copy.tch")).unwrap();
    assert!(!is_copying.load(Ordering::Acquire));
    assert_eq!(database.len(), 0);
    assert!(is_whole(&open(Arc::new(storage), "copy.tch")));
}

#[test]
fn a_copy_that_fails_names_the_file_leaves_nothing_and_may_be_made_again() {
    let storage = FaultyStorage::new();
    let database = fill(&open(Arc::new(storage.clone()), "casket.tch"));
    let copy = Path::new("copy.tch");
    let faults = storage.faults();
    faults.refuse_links.store(true, Ordering::Relaxed);
    let space = faults.space_bytes.swap(100_000, Ordering::Relaxed);
    let error = database.copy_to(copy).unwrap_err().to_string();
    let end = ".log: no storage space; free space on its file system";
    assert!(error.starts_with("write copy.tch/") && error.ends_with(end), "{error}");
    assert_eq!(storage.list(copy).unwrap(), [""; 0]);
    faults.space_bytes.store(space, Ordering::Relaxed);
    faults.fail_reads.store(true, Ordering::Relaxed);
    let error = database.copy_to(copy).unwrap_err().to_string();
    assert!(error.starts_with("read casket.tch/"), "{error}");
    faults.fail_reads.store(false, Ordering::Relaxed);
    database.copy_to(copy).unwrap();
    assert!(is_whole(&open(Arc::new(storage), "copy.tch")));
}

/// The files as they are when the process is killed, or loses power with all unsynced sectors.
fn crashed(storage: &FaultyStorage, loses_power: bool) -> FaultyStorage {
    if loses_power { storage.lose_power(|| 1) } else { storage.kill() }
}

#[test]
fn a_copy_of_a_cleared_database_keeps_what_is_written_to_it() {
    for loses_power in [false, true] {
        let storage = FaultyStorage::new();
        let engine = open(Arc::new(storage.clone()), "casket.tch");
        fill(&engine);
        drop(engine);
        let engine = open(Arc::new(storage.clone()), "casket.tch");
        let database = Database::from_engine(Arc::clone(&engine) as Arc<dyn Engine>);
        database.clear().unwrap();
        database.copy_to(Path::new("copy.tch")).unwrap();
        let copy = open(Arc::new(storage.clone()), "copy.tch");
        assert_eq!(copy.len(), 0);
        let filled = fill(&copy);
        if loses_power {
            filled.sync().unwrap();
        }
        // More than once, and with more segments each time.
        let mut left = crashed(&storage, loses_power);
        for _ in 0..3 {
            let report = &mut |damage| panic!("{damage}");
            cabinet::testing::check_on(&left, Path::new("copy.tch"), &|_| true, report).unwrap();
            let again = open(Arc::new(left.clone()), "copy.tch");
            assert!(is_whole(&again), "loses power: {loses_power}");
            let more = Database::from_engine(Arc::clone(&again) as Arc<dyn Engine>);
            for number in 0..200_u32 {
                more.put(&[b"more".as_slice(), &number.to_le_bytes()].concat(), &[1; 1000])
                    .unwrap();
                more.remove(&[b"more".as_slice(), &number.to_le_bytes()].concat()).unwrap();
            }
            more.sync().unwrap();
            left = crashed(&left, loses_power);
        }
    }
}

#[test]
fn a_copy_that_loses_power_before_its_first_sync_is_not_damaged() {
    let storage = FaultyStorage::new();
    let engine = open(Arc::new(storage.clone()), "casket.tch");
    fill(&engine).copy_to(Path::new("copy.tch")).unwrap();
    let copy = open(Arc::new(storage.clone()), "copy.tch");
    let database = Database::from_engine(Arc::clone(&copy) as Arc<dyn Engine>);
    for number in 0..100_u32 {
        database.put(&[b"more".as_slice(), &number.to_le_bytes()].concat(), &[1; 500]).unwrap();
    }
    let mut chance = 1_u64;
    for _ in 0..20 {
        let left = storage.lose_power(|| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            chance >> 33
        });
        let report = &mut |damage| panic!("{damage}");
        cabinet::testing::check_on(&left, Path::new("copy.tch"), &|_| true, report).unwrap();
        let again = open(Arc::new(left), "copy.tch");
        assert_eq!(again.persistence().unwrap().damages(), []);
        let found = Database::from_engine(Arc::clone(&again) as Arc<dyn Engine>);
        let kept = (0..RECORDS).all(|number| found.get(&number.to_le_bytes()).unwrap().is_some());
        assert!(kept, "what the copy was made with is there");
    }
}

#[test]
fn a_copy_of_a_database_that_has_lost_records_is_not_taken_for_whole() {
    let storage = FaultyStorage::new();
    let (path, copy) = (Path::new("casket.tch"), Path::new("copy.tch"));
    drop(fill(&open(Arc::new(storage.clone()), "casket.tch")));
    let engine = open(Arc::new(storage.clone()), "casket.tch");
    let database = Database::from_engine(Arc::clone(&engine) as Arc<dyn Engine>);
    database.put(b"damaged", b"a value of its own").unwrap();
    database.put(b"behind", b"another one").unwrap();
    let storage = storage.kill();
    let names = storage.list(path).unwrap();
    let last = names.iter().filter(|name| name.ends_with(".log")).max().unwrap();
    let file = storage.open(&path.join(last), Open::Existing).unwrap();
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    let at = bytes.windows(7).rposition(|window| window == b"damaged").unwrap();
    file.write_at(b"D", at as u64).unwrap();
    let engine = open(Arc::new(storage.clone()), "casket.tch");
    let database = Database::from_engine(engine as Arc<dyn Engine>);
    assert_eq!(database.damages().len(), 1);
    database.copy_to(copy).unwrap();
    drop(database);
    let damages = |path: &Path| -> Vec<Damage> {
        let mut found = Vec::new();
        cabinet::testing::check_on(&storage, path, &|_| true, &mut |damage| found.push(damage))
            .unwrap();
        found
    };
    let (own, copied) = (damages(path), damages(copy));
    assert_eq!((own.len(), copied.len()), (1, 1));
    assert_eq!(own[0].file.file_name(), copied[0].file.file_name());
    storage.remove(&copied[0].file).unwrap();
    assert_eq!(damages(copy), []);
}
