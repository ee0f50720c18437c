//! What copies of a database promise that are made while it is open.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod watched;

use cabinet::io::{FaultyStorage, Storage};
use cabinet::{Cut, Database, Engine, Error, HashDatabase, Options};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use watched::{Step, Watched};

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
    let database = Database::open_with(folder.path().join("casket.tch"), &options).unwrap();
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
        let cut: &mut Cut<'_> = &mut |cut| {
            is_late.store(true, Ordering::Release);
            assert!(started.elapsed() < DEADLINE);
            if !is_copied.load(Ordering::Acquire) {
                return Ok(false);
            }
            cut().map(|()| true)
        };
        assert!(matches!(database.copy_at(&copy, cut), Err(Error::Io { .. })));
    });
    let copied = Database::open_with(&copy, &options).unwrap();
    assert_eq!(copied.get(b"key").unwrap().unwrap(), b"value");
}

#[test]
fn a_copy_to_another_file_system_holds_up_nobody_and_is_as_it_was_at_its_moment() {
    let storage = FaultyStorage::new();
    let running: Arc<OnceLock<Arc<HashDatabase>>> = Arc::default();
    let is_copying = Arc::new(AtomicBool::new(false));
    let (here, armed) = (Arc::clone(&running), Arc::clone(&is_copying));
    let watch = move |step| {
        if step != Step::Write || !armed.swap(false, Ordering::AcqRel) {
            return;
        }
        let engine = Arc::clone(here.get().unwrap());
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            // All that is being copied goes, and the checkpoint is another one.
            engine.clear().unwrap();
            engine.checkpoint().unwrap();
            done.send(()).unwrap();
        });
        is_done.recv_timeout(DEADLINE).expect("nothing waits for the copy");
    };
    let watched = Watched { storage: storage.clone(), watch: Arc::new(watch) };
    let engine = open(Arc::new(watched), "casket.tch");
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
fn a_copy_that_fails_leaves_nothing_and_may_be_made_again() {
    let storage = FaultyStorage::new();
    let database = fill(&open(Arc::new(storage.clone()), "casket.tch"));
    let copy = Path::new("copy.tch");
    let faults = storage.faults();
    faults.refuse_links.store(true, Ordering::Relaxed);
    let space = faults.space_bytes.swap(100_000, Ordering::Relaxed);
    assert!(database.copy_to(copy).is_err());
    assert_eq!(storage.list(copy).unwrap(), [""; 0]);
    faults.space_bytes.store(space, Ordering::Relaxed);
    database.copy_to(copy).unwrap();
    assert!(is_whole(&open(Arc::new(storage), "copy.tch")));
}
