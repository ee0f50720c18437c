//! Files that are not as they were left: what opens serves, keeps what it takes, and comes to
//! rest. The fuzz targets `log`, `fixed`, `tree` and `table` look for more of these.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/corruptor.rs"]
mod corruptor;
#[path = "support/disk.rs"]
mod disk;

use cabinet::testing::{FaultyStorage, Open, Storage};
use cabinet::{Database, HashDatabase, Options};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn open(storage: &FaultyStorage) -> (Arc<HashDatabase>, Database) {
    let mut options = Options::default();
    options.segment_bytes = Some(64 << 10);
    let storage = Arc::new(storage.clone());
    let engine = HashDatabase::open_on(storage, Path::new("casket.tch"), &options, false);
    let engine = Arc::new(engine.unwrap());
    let database = Database::from_engine(Arc::clone(&engine) as Arc<dyn cabinet::Engine>);
    (engine, database)
}

fn path(name: &str) -> PathBuf {
    Path::new("casket.tch").join(name)
}

fn length(storage: &FaultyStorage, name: &str) -> u64 {
    storage.open(&path(name), Open::Existing).unwrap().length().unwrap()
}

#[test]
fn a_log_that_is_shorter_than_its_checkpoint_says_is_read_without_it() {
    let storage = FaultyStorage::new();
    let (_, database) = open(&storage);
    database.put(b"first", b"1").unwrap();
    database.put(b"second", b"2").unwrap();
    drop(database);
    let name = "0000000001.log";
    // Nowhere near where a record may begin.
    let cut = length(&storage, name) - 13;
    storage.open(&path(name), Open::Existing).unwrap().truncate(cut).unwrap();

    for _ in 0..2 {
        let (_, database) = open(&storage);
        database.put(b"third", b"3").unwrap();
        assert_eq!(database.get(b"first").unwrap().unwrap(), b"1");
        assert_eq!(database.get(b"second").unwrap(), None);
        assert_eq!(database.get(b"third").unwrap().unwrap(), b"3");
    }
}

#[test]
fn a_segment_under_another_name_for_its_number_is_left_alone() {
    let storage = FaultyStorage::new();
    let (_, database) = open(&storage);
    database.put(b"key", b"value").unwrap();
    drop(database);
    storage.remove(&path("checkpoint")).unwrap();
    storage.link(&path("0000000001.log"), &path("00000000001.log")).unwrap();
    let (engine, database) = open(&storage);
    let segments = engine_figure(&engine, "segments");
    assert_eq!(segments, "1");
    database.optimize().unwrap();
    database.clear().unwrap();
    assert!(storage.list(Path::new("casket.tch")).unwrap().contains(&"00000000001.log".into()));
}

fn engine_figure(engine: &HashDatabase, name: &str) -> String {
    let stats = cabinet::Maintenance::stats(engine);
    stats.into_iter().find(|(other, _)| *other == name).unwrap().1
}

#[test]
fn tombstones_that_a_damaged_segment_holds_are_not_moved_for_ever() {
    let storage = FaultyStorage::new();
    let (_, database) = open(&storage);
    let key = |number: u32| number.to_le_bytes();
    database.put(b"in the first segment", &[0; 1000]).unwrap();
    for number in 0..5000 {
        database.put(&key(number), b"").unwrap();
    }
    for number in 0..5000 {
        database.remove(&key(number)).unwrap();
    }
    drop(database);
    let storage = storage.kill();
    storage.remove(&path("checkpoint")).unwrap();
    let first = storage.open(&path("0000000001.log"), Open::Existing).unwrap();
    first.write_at(b"damage", 2000).unwrap();

    let (engine, database) = open(&storage);
    assert_eq!(engine_figure(&engine, "damaged_segments"), "1");
    database.put(b"new", b"value").unwrap();
    engine.run_maintenance().unwrap();
    assert_eq!(database.get(b"new").unwrap().unwrap(), b"value");
    assert_eq!(database.get(&key(4000)).unwrap(), None);
}
