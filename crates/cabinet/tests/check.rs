//! Checking and salvaging: damage is found where it is, and costs no more than what it hit.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use cabinet::{Damage, Database, Meta, Options, Ordered, check, salvage};
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

        let into = Options::new().open(folder.path().join("new.tch")).unwrap();
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
    let killed = folder.path().join("killed.tch");
    let database = Database::open(path.to_str().unwrap()).unwrap();
    let last = b"the last of all keys";
    database.put(last, &[1; 100]).unwrap();
    // As it is at this moment, unlike what a clean close leaves.
    copy_files(&path, &killed);
    let file = segments(&killed).pop().unwrap();
    let place = position(&file, last);
    let segment = fs::OpenOptions::new().write(true).open(&file).unwrap();
    segment.write_all_at(&[0; 60], place + 50).unwrap();
    let checked = check(&killed, &mut |damage| panic!("{damage}")).unwrap();
    assert!(checked.torn_bytes > 0);
    let reopened = Database::open(killed.to_str().unwrap()).unwrap();
    assert!(!reopened.is_empty() && reopened.get(last).unwrap().is_none());
    assert_eq!(reopened.damages(), []);
}

#[test]
fn a_log_that_was_closed_and_has_become_shorter_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = make(folder.path(), "");
    let file = segments(&path).pop().unwrap();
    cut(&file, fs::metadata(&file).unwrap().len() - 12);
    assert_eq!(damages(&path).len(), 1);
    for _ in 0..2 {
        let reopened = Database::open(path.to_str().unwrap()).unwrap();
        assert!(!reopened.damages().is_empty());
        drop(reopened);
        // It stays so: what was lost has not come back.
        assert!(!damages(&path).is_empty());
    }
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

fn position(file: &Path, bytes: &[u8]) -> u64 {
    let contents = fs::read(file).unwrap();
    contents.windows(bytes.len()).position(|window| window == bytes).unwrap() as u64
}

fn cut(file: &Path, length: u64) {
    fs::OpenOptions::new().write(true).open(file).unwrap().set_len(length).unwrap();
}

#[test]
fn what_is_no_database_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert!(check(folder.path(), &mut |_| ()).is_err());
    assert!(check(folder.path().join("missing"), &mut |_| ()).is_err());
}

/// Flips a byte in the longest record, which is a page, of the last segment but one.
fn damage_a_page(path: &Path) {
    let file = &segments(path)[0];
    let place = fs::metadata(file).unwrap().len() / 2;
    let segment = fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut bytes = [0; 8];
    segment.read_exact_at(&mut bytes, place).unwrap();
    segment.write_all_at(&bytes.map(|byte| byte ^ 0x55), place).unwrap();
}

#[test]
fn a_tree_loses_no_more_than_the_leaf_that_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("casket.tcb");
    let database = Database::open(path.to_str().unwrap()).unwrap();
    for number in 0..RECORDS {
        database.put(&key(number), &value(number)).unwrap();
        database.put_duplicate(&key(number), b"second", cabinet::Side::After).unwrap();
    }
    database.optimize().unwrap();
    drop(database);
    assert_eq!(damages(&path), []);
    damage_a_page(&path);
    assert_eq!(damages(&path).len(), 1);

    let into = Database::open(folder.path().join("new.tcb").to_str().unwrap()).unwrap();
    let salvaged = salvage(&path, &into, &mut |_| ()).unwrap();
    assert_eq!(salvaged.damages, 1);
    assert!(!folder.path().join("casket.tcb.salvage").exists());
    let mut missing = 0;
    for number in 0..RECORDS {
        let values = into.get_all(&key(number)).unwrap();
        if values.is_empty() {
            missing += 1;
        } else {
            assert_eq!(values, [value(number), b"second".to_vec()], "{number}");
        }
    }
    assert!((1..RECORDS / 4).contains(&missing), "{missing}");
}

#[test]
fn a_table_gets_its_readable_rows_its_indices_and_its_identifiers_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("casket.tct");
    let database = Database::open(&format!("{}#idx=number:dec", path.display())).unwrap();
    let table = database.table().unwrap();
    for number in 0..RECORDS {
        let row =
            cabinet::table::Row::new().with(b"number", number.to_string().as_bytes()).unwrap();
        table.put(&key(number), &row).unwrap();
    }
    let uid = table.generate_uid().unwrap();
    database.optimize().unwrap();
    drop(database);
    damage_a_page(&path);
    assert_eq!(damages(&path).len(), 1);

    let into = Database::open(folder.path().join("new.tct").to_str().unwrap()).unwrap();
    assert_eq!(salvage(&path, &into, &mut |_| ()).unwrap().damages, 1);
    let table = into.table().unwrap();
    assert_eq!(table.indices().len(), 1);
    assert!(table.generate_uid().unwrap() > uid);
    table.check_indices().unwrap();
    assert!(into.len() > RECORDS as u64 / 2, "{}", into.len());
    let hash = Database::open("*").unwrap();
    assert!(matches!(salvage(&path, &hash, &mut |_| ()), Err(cabinet::Error::InvalidArgument(_))));
}

#[test]
fn a_fixed_length_database_is_salvaged_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("casket.tcf");
    let database = Database::open(path.to_str().unwrap()).unwrap();
    for number in 1..=RECORDS {
        database.put(number.to_string().as_bytes(), &value(number)).unwrap();
    }
    drop(database);
    let into = Database::open(folder.path().join("new.tcf").to_str().unwrap()).unwrap();
    assert_eq!(salvage(&path, &into, &mut |_| ()).unwrap().damages, 0);
    for number in 1..=RECORDS {
        assert_eq!(into.get(number.to_string().as_bytes()).unwrap(), Some(value(number)));
    }
}

#[test]
fn salvaged_duplicates_keep_their_flags() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("casket.tcb");
    let tree = cabinet::TreeDatabase::open(&path, &cabinet::Options::default()).unwrap();
    for flags in 1..=3 {
        let meta = Meta { flags, expires_at_ms: 0 };
        tree.add(b"key", b"value", meta, cabinet::Side::After, cabinet::Wait::Block).unwrap();
    }
    drop(tree);
    let into = folder.path().join("new.tcb");
    let database = Database::open(into.to_str().unwrap()).unwrap();
    salvage(&path, &database, &mut |_| ()).unwrap();
    drop(database);
    let tree = cabinet::TreeDatabase::open(&into, &cabinet::Options::default()).unwrap();
    let mut flags = Vec::new();
    tree.read_all(b"key", cabinet::Wait::Block, &mut |entry| flags.push(entry.meta.flags)).unwrap();
    assert_eq!(flags, [1, 2, 3]);
}
