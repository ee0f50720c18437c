//! Batches that are longer than the segments of the log.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use cabinet::limits::BATCH_LOG_BYTES_MAX;
use cabinet::{Batch, Database, Error, Meta};

const MIB: usize = 1 << 20;

/// A value that is different for each key.
fn value(number: usize, bytes: usize) -> Vec<u8> {
    let mut value = vec![number as u8; bytes];
    value[..8].copy_from_slice(&(number as u64).to_le_bytes());
    value
}

/// Writes batches of records of these sizes, one batch after the other, and looks for every record,
/// also after the log was replayed.
fn every_record_is_found_again(batches: &[Vec<usize>]) {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("a.tch").display().to_string();
    let check = |database: &Database| {
        for (number, bytes) in batches.iter().flatten().enumerate() {
            let found = database.get(&[number as u8]).unwrap();
            assert!(found == Some(value(number, *bytes)), "record {number}");
        }
    };
    let database = Database::open(&name).unwrap();
    let mut number = 0;
    for sizes in batches {
        let mut batch = Batch::new();
        for bytes in sizes {
            batch.put(&[number as u8], &value(number, *bytes), Meta::NONE);
            number += 1;
        }
        database.write(&batch).unwrap();
    }
    check(&database);
    drop(database);
    // Without the checkpoint the log is replayed.
    std::fs::remove_file(folder.path().join("a.tch/checkpoint")).unwrap();
    check(&Database::open(&name).unwrap());
}

#[test]
fn a_batch_longer_than_a_segment_has_every_record() {
    let mut sizes = vec![5 * MIB; 10];
    sizes[3] = 90 * MIB;
    every_record_is_found_again(&[sizes.clone(), sizes]);
}

#[test]
fn a_batch_in_the_room_behind_a_long_one_has_every_record() {
    every_record_is_found_again(&[vec![31 * MIB; 2], vec![MIB * 11 / 20; 5]]);
}

#[test]
fn the_records_of_a_batch_but_the_longest_have_a_limit_in_the_log() {
    /// Header of a record with a key of one byte and a value of more than 2 MiB.
    const HEADER_BYTES: usize = 18;
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(&folder.path().join("a.tch").display().to_string()).unwrap();
    // Records are as long as a multiple of eight.
    for (above, taken) in [(-8, true), (0, true), (8, false)] {
        let mut batch = Batch::new();
        let bytes = BATCH_LOG_BYTES_MAX.checked_add_signed(above).unwrap();
        let other = bytes - HEADER_BYTES - 1;
        batch.put(b"a", &value(0, other + 8), Meta::NONE);
        batch.put(b"b", &value(1, other), Meta::NONE);
        let result = database.write(&batch);
        assert_eq!(result.is_ok(), taken, "{above}: {result:?}");
        assert!(taken || matches!(result, Err(Error::BatchTooLong { .. })), "{result:?}");
        if taken {
            assert!(database.get(b"b").unwrap() == Some(value(1, other)));
        }
    }
}
