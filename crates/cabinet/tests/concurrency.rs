//! Writers, readers, scans, compaction, checkpoints and snapshots at the same time, on a disk.

use cabinet::{Batch, Database, HashDatabase, Maintenance, Meta, Options};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

fn options() -> Options {
    let mut options = Options::default();
    options.segment_bytes = Some(128 << 10);
    options
}

fn open(directory: &tempfile::TempDir) -> (Arc<HashDatabase>, Database) {
    let path = directory.path().join("casket.tch");
    let engine = Arc::new(HashDatabase::open(&path, &options()).expect("the database opens"));
    (Arc::clone(&engine), Database::from_engine(engine))
}

fn stable_key(number: u32) -> Vec<u8> {
    format!("stable-{number}").into_bytes()
}

fn scanned(database: &Database) -> BTreeMap<Vec<u8>, u32> {
    let mut seen = BTreeMap::new();
    let result = database.for_each(|entry| {
        *seen.entry(entry.key.to_vec()).or_insert(0) += 1;
        ControlFlow::Continue(())
    });
    result.expect("a scan");
    seen
}

#[test]
fn additions_from_many_threads_all_count_while_segments_are_compacted() {
    const THREADS: u32 = 4;
    const ADDITIONS: u32 = 30_000;
    const COUNTERS: u32 = 50;
    let directory = tempfile::tempdir().expect("a directory");
    let (engine, database) = open(&directory);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let database = &database;
            scope.spawn(move || {
                for step in 0..ADDITIONS {
                    let counter = (step.wrapping_mul(7) + thread) % COUNTERS;
                    database.add_int(&counter.to_le_bytes(), 1).expect("an addition");
                }
            });
        }
    });
    let sum = |database: &Database| -> i32 {
        (0..COUNTERS).map(|key| database.add_int(&key.to_le_bytes(), 0).expect("a sum")).sum()
    };
    assert_eq!(sum(&database), (THREADS * ADDITIONS) as i32);
    engine.optimize(None).expect("compaction");
    let left = database.size_bytes();
    assert!(left < 256 << 10, "{left} bytes are left");
    drop((engine, database));
    let (_engine, database) = open(&directory);
    assert_eq!(sum(&database), (THREADS * ADDITIONS) as i32);
    assert_eq!(database.len(), u64::from(COUNTERS));
}

#[test]
fn a_scan_beside_writers_and_compaction_meets_every_stable_record_once() {
    const STABLE: u32 = 5_000;
    let directory = tempfile::tempdir().expect("a directory");
    let (engine, database) = open(&directory);
    for number in 0..STABLE {
        database.put(&stable_key(number), &[1; 60]).expect("a put");
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = || {
            let mut step = 0u64;
            while !done.load(Ordering::Relaxed) {
                let key = (step % 3_000).to_le_bytes();
                if step.is_multiple_of(5) {
                    database.remove(&key).expect("a removal");
                } else {
                    database.put(&key, &[step as u8; 200]).expect("a put");
                }
                step += 1;
            }
        };
        scope.spawn(writer);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                engine.optimize(None).expect("compaction");
                engine.checkpoint().expect("a checkpoint");
            }
        });
        for _ in 0..5 {
            let seen = scanned(&database);
            for number in 0..STABLE {
                assert_eq!(seen.get(&stable_key(number)), Some(&1), "{number}");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_snapshot_beside_writers_holds_whole_batches_and_opens_beside_its_source() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_engine, database) = open(&directory);
    let done = AtomicBool::new(false);
    let keys: Vec<Vec<u8>> = (0..20).map(stable_key).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0u64.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let mut batch = Batch::new();
                for key in &keys {
                    batch.put(key, &round.to_le_bytes(), Meta::NONE);
                }
                database.write(&batch).expect("a batch");
            }
        });
        for copy in 0..5 {
            let path = directory.path().join(format!("copy-{copy}.tch"));
            database.copy_to(&path).expect("a snapshot");
            let copied = Options::new().open(&path).expect("the copy opens");
            let first = copied.get(&keys[0]).expect("a read");
            for key in &keys {
                assert_eq!(copied.get(key).expect("a read"), first);
            }
            // Records written to the copy stay in the copy.
            copied.put(b"only in the copy", b"1").expect("a put");
            assert_eq!(database.get(b"only in the copy").expect("a read"), None);
            assert!(database.copy_to(&path).is_err(), "a copy is never overwritten");
        }
        done.store(true, Ordering::Relaxed);
    });
    drop((_engine, database));
    let (_engine, database) = open(&directory);
    assert_eq!(database.len(), keys.len() as u64);
}

#[test]
fn clearing_beside_writers_leaves_what_came_after_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_engine, database) = open(&directory);
    thread::scope(|scope| {
        scope.spawn(|| {
            for step in 0..20_000u64 {
                database.put(&step.to_le_bytes(), &[2; 50]).expect("a put");
            }
        });
        for _ in 0..20 {
            database.clear().expect("clearing");
        }
    });
    let left = database.len();
    database.put(b"last", b"1").expect("a put");
    drop((_engine, database));
    let (_engine, database) = open(&directory);
    assert_eq!(database.len(), left + 1);
    assert_eq!(scanned(&database).len() as u64, left + 1);
}

#[test]
fn durable_writers_share_syncs() {
    const THREADS: u64 = 16;
    const WRITES: u64 = 50;
    let directory = tempfile::tempdir().expect("a directory");
    let mut options = options();
    options.durability = cabinet::Durability::Always;
    let path = directory.path().join("casket.tch");
    let database = options.open(&path).expect("the database opens");
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let database = &database;
            scope.spawn(move || {
                for step in 0..WRITES {
                    database.put(&(thread << 32 | step).to_le_bytes(), &[0; 40]).expect("a put");
                    assert!(database.durable() > 0);
                }
            });
        }
    });
    assert_eq!(database.durable(), database.appended());
    let syncs = database.stats().into_iter().find(|(name, _)| *name == "syncs");
    let syncs: u64 = syncs.and_then(|(_, count)| count.parse().ok()).expect("a count of syncs");
    assert!(syncs < THREADS * WRITES / 2, "{syncs} syncs for {} writes", THREADS * WRITES);
}
