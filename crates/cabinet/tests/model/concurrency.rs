//! Concurrency: promises under many threads.

use crate::for_each_engine;
use crate::subject::Subject;
use cabinet::{Clock, Iteration, ScanCursor, Wanted};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

for_each_engine!(
    additions_by_many_threads_are_all_counted,
    a_scan_beside_writers_visits_every_lasting_record_once,
    a_reader_among_writers_never_sees_part_of_a_value,
    a_batch_is_never_seen_in_part,
);

const THREADS: u32 = 4;

fn additions_by_many_threads_are_all_counted<S: Subject>() {
    const ADDITIONS: i32 = 2000;
    let subject = S::new(Clock::real());
    let database = subject.database();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for step in 0..ADDITIONS {
                    let key = [b'k', (step % 3) as u8];
                    database.add_int(&key, 1).unwrap();
                }
            });
        }
    });
    let total: i32 = (0..3).map(|key| database.add_int(&[b'k', key], 0).unwrap()).sum();
    assert_eq!(total, ADDITIONS * THREADS as i32);
}

fn a_scan_beside_writers_visits_every_lasting_record_once<S: Subject>() {
    const LASTING: u32 = 3000;
    // A scan may also read dead records, which nothing removes here.
    const WRITES: u32 = 100_000;
    let subject = S::new(Clock::real());
    let database = subject.database();
    for number in 0..LASTING {
        database.put(&[b"lasting", &number.to_be_bytes()[..]].concat(), b"value").unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // One writer makes the tables grow and shrink again. The other overwrites the lasting
        // records.
        scope.spawn(|| {
            let mut number = 0u32;
            while !done.load(Ordering::Relaxed) && number < WRITES {
                let key = [b"passing", &(number % 20_000).to_be_bytes()[..]].concat();
                if (number / 20_000).is_multiple_of(2) {
                    database.put(&key, b"value").unwrap();
                } else {
                    database.remove(&key).unwrap();
                }
                number += 1;
            }
        });
        scope.spawn(|| {
            let mut number = 0u32;
            while !done.load(Ordering::Relaxed) && number < WRITES {
                let key = [b"lasting", &(number % LASTING).to_be_bytes()[..]].concat();
                database.put(&key, &number.to_be_bytes().repeat(10)).unwrap();
                number += 1;
            }
        });
        for round in 0..6 {
            let mut met: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
            let mut note = |key: &[u8]| {
                if key.starts_with(b"lasting") {
                    *met.entry(key.to_vec()).or_default() += 1;
                }
            };
            let mut steps = 0u32;
            let mut position = Some(ScanCursor::Start);
            let mut scan = database.full_scan(Wanted::Keys).unwrap();
            let is_by_position = round % 4 == 0;
            let mut iteration = Iteration::default();
            let mut goes_on = true;
            while goes_on {
                goes_on = if is_by_position {
                    position = database.scan_keys(&position.take().unwrap(), &mut note).unwrap();
                    position.is_some()
                } else if round % 2 == 0 {
                    database.step_iteration(&mut iteration, &mut note).unwrap()
                } else if round % 3 == 0 {
                    scan.step(|entry| note(entry.key)).unwrap()
                } else {
                    scan.step_keys(&mut note).unwrap()
                };
                // A step may visit as little as one leaf.
                steps += 1;
                if steps.is_multiple_of(64) {
                    std::thread::yield_now();
                }
            }
            assert_eq!(met.len(), LASTING as usize);
            assert!(met.values().all(|&times| times == 1));
        }
        done.store(true, Ordering::Relaxed);
    });
}

fn a_reader_among_writers_never_sees_part_of_a_value<S: Subject>() {
    let subject = S::new(Clock::real());
    let database = subject.database();
    database.put(b"key", b"").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2u8 {
            let done = &done;
            scope.spawn(move || {
                let mut length = usize::from(thread);
                while !done.load(Ordering::Relaxed) {
                    length = (length * 7 + 13) % 3000;
                    database.put(b"key", &vec![length as u8; length]).unwrap();
                }
            });
        }
        for _ in 0..3000 {
            let value = database.get(b"key").unwrap().expect("it is always there");
            assert!(value.iter().all(|&byte| byte == value.len() as u8));
        }
        done.store(true, Ordering::Relaxed);
    });
}

fn a_batch_is_never_seen_in_part<S: Subject>() {
    let subject = S::new(Clock::real());
    let database = subject.database();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0u32.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let mut batch = cabinet::Batch::new();
                for key in 0..8u8 {
                    batch.put(&[key], &number.to_be_bytes(), cabinet::Meta::NONE);
                }
                database.write(&batch).unwrap();
            }
        });
        for _ in 0..500 {
            // A transaction that reads all records and commits has seen one state.
            let transaction = database.transaction();
            let values: Vec<_> = (0..8u8).map(|key| transaction.get(&[key]).unwrap()).collect();
            if transaction.commit().is_ok() {
                assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}
