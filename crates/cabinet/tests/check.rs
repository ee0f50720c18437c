//! Checking and salvaging: damage is found where it is, and costs no more than what it hit.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use cabinet::{Damage, Database, Meta, check, salvage};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const RECORDS: usize = 3000;

fn key(number: usize) -> Vec<u8> {
    format!("key-{number:06}").into_bytes()
}

fn value(number: usize) -> Vec<u8> {
    format!("value {number} ").repeat(1 + number % 9).into_bytes()
}

/// A database of some segments, closed.
fn make(folder: &Path, tuning: &str) -> PathBuf {
    let path = folder.join("casket.tch");
    let database = Database::open(&format!("{}{tuning}", path.display())).unwrap();
    for number in 0..RECORDS {
        database
            .put_with(&key(number), &value(number), Meta { flags: 9, expires_at_ms: 0 })
            .unwrap();
    }
    for number in (0..RECORDS).step_by(10) {
        database.remove(&key(number)).unwrap();
    }
    path
}

fn damages(path: &Path) -> Vec<Damage> {
    let mut found = Vec::new();
    let checked = check(path, &mut |damage| found.push(damage)).unwrap();
    assert_eq!(checked.damages, found.len() as u64);
    found
}

fn segments(path: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> =
        names.filter(|path| path.extension().is_some_and(|extension| extension == "log")).collect();
    segments.sort();
    segments
}

#[test]
fn a_good_database_has_no_damage_and_all_its_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = make(folder.path(), "");
    let checked = check(&path, &mut |damage| panic!("{damage}")).unwrap();
    assert_eq!(checked.records, (RECORDS + RECORDS / 10) as u64);
    assert_eq!((checked.damages, checked.torn_bytes), (0, 0));
}

#[test]
fn one_that_is_open_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = make(folder.path(), "");
    let open = Database::open(path.to_str().unwrap()).unwrap();
    assert!(matches!(check(&path, &mut |_| ()), Err(cabinet::Error::InUse { .. })));
    drop(open);
    check(&path, &mut |_| ()).unwrap();
}

#[test]
fn each_flipped_byte_is_found_at_its_record_and_costs_that_one() {
    for tuning in ["", "#compression=zstd"] {
        let folder = tempfile::tempdir().unwrap();
        let path = make(folder.path(), tuning);
        let file = &segments(&path)[0];
        let bytes = fs::read(file).unwrap();
        let segment = fs::OpenOptions::new().write(true).open(file).unwrap();
        let hit: Vec<usize> = (0..8).map(|part| 5 + part * RECORDS / 20).collect();
        let mut places = Vec::new();
        for number in &hit {
            let key = key(*number);
            let place = bytes.windows(key.len()).position(|bytes| bytes == key).unwrap() as u64;
            segment.write_all_at(b"K", place).unwrap();
            places.push(place);
        }
        let found = damages(&path);
        assert_eq!(found.len(), places.len(), "{found:?}");
        for (damage, place) in found.iter().zip(&places) {
            assert_eq!(&damage.file, file);
            assert!(damage.offset < *place && place - damage.offset < 32, "{damage:?} {place}");
        }

        let into = Database::open_with(folder.path().join("new.tch"), &Default::default()).unwrap();
        let salvaged = salvage(&path, &into, &mut |_| ()).unwrap();
        assert_eq!(salvaged.damages, places.len() as u64);
        for number in 0..RECORDS {
            let expected = (number % 10 != 0 && !hit.contains(&number)).then(|| value(number));
            assert_eq!(into.get(&key(number)).unwrap(), expected, "{number}");
        }
    }
}

#[test]
fn a_damaged_checkpoint_is_found_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = make(folder.path(), "");
    let file = path.join("checkpoint");
    let mut bytes = fs::read(&file).unwrap();
    bytes[200] ^= 1;
    fs::write(&file, bytes).unwrap();
    let found = damages(&path);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].file, file);
}

#[test]
fn a_tail_that_a_crash_left_is_no_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = make(folder.path(), "");
    let file = segments(&path).pop().unwrap();
    let length = fs::metadata(&file).unwrap().len();
    fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(length - 12).unwrap();
    let checked = check(&path, &mut |damage| panic!("{damage}")).unwrap();
    assert!(checked.torn_bytes > 0);
    let reopened = Database::open(path.to_str().unwrap()).unwrap();
    assert!(!reopened.is_empty());
}

#[test]
fn what_is_no_database_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert!(check(folder.path(), &mut |_| ()).is_err());
    assert!(check(folder.path().join("missing"), &mut |_| ()).is_err());
}
