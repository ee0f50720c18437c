//! Damage after a loss of power in which the active segment was lost, because compaction had synced
//! only the sealed ones: what they have is promised still.

use cabinet::testing::{FaultyStorage, Open, Storage, check_on};
use cabinet::{Damage, Database, Durability, HashDatabase, Options};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PATH: &str = "casket.tch";

/// Number that has [`FaultyStorage::lose_power`] keep only what was synced.
const ONLY_SYNCED: u64 = 3;

const RECORDS: u32 = 1500;

/// A segment with less than this has no record, in bytes.
const RECORDS_BYTES_MIN: u64 = 1000;

fn options(durability: Durability) -> Options {
    let mut options = Options::default();
    options.segment_bytes = Some(64 << 10);
    options.durability = durability;
    options
}

fn open(storage: &FaultyStorage, durability: Durability) -> (Arc<HashDatabase>, Database) {
    let (path, options) = (Path::new(PATH), options(durability));
    let engine = HashDatabase::open_on(Arc::new(storage.clone()), path, &options, false);
    let engine = Arc::new(engine.expect("the database opens"));
    (Arc::clone(&engine), Database::from_engine(engine))
}

fn put_all(database: &Database, numbers: impl Iterator<Item = u32>) {
    for number in numbers {
        database.put(&number.to_be_bytes(), &[1; 100]).expect("a put");
    }
}

/// Returns the last segment that has records.
fn last_segment(storage: &FaultyStorage) -> PathBuf {
    let names = storage.list(Path::new(PATH)).expect("names");
    let paths = names.iter().filter(|name| name.ends_with(".log"));
    let mut paths: Vec<_> = paths.map(|name| Path::new(PATH).join(name)).collect();
    paths.sort();
    let has_records = |path: &PathBuf| {
        let file = storage.open(path, Open::Existing).expect("a segment");
        file.length().expect("a length") >= RECORDS_BYTES_MIN
    };
    paths.into_iter().rfind(has_records).expect("a segment with records")
}

fn damages(storage: &FaultyStorage) -> Vec<Damage> {
    let mut found = Vec::new();
    check_on(storage, Path::new(PATH), &|_| true, &mut |damage| found.push(damage))
        .expect("a check");
    found
}

fn lost_records(database: &Database) -> usize {
    let is_lost = |number: &u32| !matches!(database.get(&number.to_be_bytes()), Ok(Some(_)));
    (0..RECORDS).filter(is_lost).count()
}

fn remove(storage: &FaultyStorage, path: &Path) {
    storage.remove(path).expect("it is there");
    storage.sync_dir(Path::new(PATH)).expect("a sync");
}

fn overwrite(storage: &FaultyStorage, path: &Path, offset: u64) {
    let file = storage.open(path, Open::Existing).expect("it is there");
    file.write_at(&[0xff; 8], offset).expect("a write");
    file.sync().expect("a sync");
}

/// Returns the disk of a synced database after a loss of power.
fn synced() -> FaultyStorage {
    let storage = FaultyStorage::new();
    let (engine, database) = open(&storage, Durability::Interval(1000));
    put_all(&database, 0..RECORDS);
    for _ in 0..2 {
        database.sync().expect("a sync");
        // Writes the manifest with all that was synced.
        engine.run_maintenance().expect("maintenance");
    }
    storage.lose_power(|| ONLY_SYNCED)
}

#[test]
fn the_loss_of_the_last_file_after_a_loss_of_power_is_reported() {
    let storage = synced();
    remove(&storage, &last_segment(&storage));
    assert_ne!(damages(&storage), []);
    let (_engine, database) = open(&storage, Durability::Interval(1000));
    assert!(lost_records(&database) > 0);
    assert_ne!(database.damages(), []);
}

#[test]
fn a_damaged_header_of_the_last_file_after_a_loss_of_power_is_reported() {
    let storage = synced();
    overwrite(&storage, &last_segment(&storage), 20);
    assert_ne!(damages(&storage), []);
}

/// Compacts so that only sealed segments are synced, loses the power and with it the active
/// segment, continues in the last one, and loses the power again.
fn continued_after_a_loss() -> FaultyStorage {
    let storage = FaultyStorage::new();
    let (engine, database) = open(&storage, Durability::None);
    put_all(&database, 0..RECORDS);
    put_all(&database, (0..1200).filter(|number| number % 8 < 5));
    for _ in 0..2 {
        engine.run_maintenance().expect("maintenance");
    }
    let left = storage.lose_power(|| ONLY_SYNCED);
    assert_eq!(damages(&left), []);
    let (_engine, database) = open(&left, Durability::None);
    assert_eq!(database.damages(), []);
    assert_eq!(lost_records(&database), 0);
    database.put(b"one more", b"value").expect("a put");
    let again = left.lose_power(|| ONLY_SYNCED);
    assert_eq!(damages(&again), []);
    again
}

#[test]
fn damage_of_a_segment_that_compaction_has_synced_is_reported_after_two_losses_of_power() {
    let storage = continued_after_a_loss();
    overwrite(&storage, &last_segment(&storage), 400);
    assert_ne!(damages(&storage), []);
    let (_engine, database) = open(&storage, Durability::None);
    assert!((1..10).contains(&lost_records(&database)), "only what was hit is lost");
}

#[test]
fn the_loss_of_a_segment_that_compaction_has_synced_is_reported_after_two_losses_of_power() {
    let storage = continued_after_a_loss();
    remove(&storage, &last_segment(&storage));
    assert_ne!(damages(&storage), []);
}
