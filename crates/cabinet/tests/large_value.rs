//! Promises of values that are read in pieces.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

use cabinet::{Database, Error, Meta, Options};
use std::os::unix::fs::FileExt;
use std::path::Path;

const BYTES: usize = 1 << 20;

fn value() -> Vec<u8> {
    (0..BYTES).map(|place| (place % 251) as u8).collect()
}

fn open(folder: &Path) -> Database {
    Options::new().open(folder.join("a.tch")).unwrap()
}

#[test]
fn a_large_value_is_read_in_pieces_with_all_that_belongs_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    let meta = Meta { flags: 7, expires_at_ms: u64::MAX };
    let version = database.put_with(b"key", &value(), meta).unwrap();
    let large = database.large_value(b"key", BYTES).unwrap().unwrap();
    assert_eq!((large.bytes(), large.meta(), large.version()), (BYTES as u64, meta, version));
    large.verify().unwrap();
    let mut piece = vec![0; 1000];
    for offset in [0, 1, 777_777, BYTES - piece.len()] {
        large.read(offset as u64, &mut piece).unwrap();
        assert_eq!(piece, value()[offset..offset + piece.len()]);
    }
    large.read((BYTES - piece.len() + 1) as u64, &mut piece).unwrap_err();
    large.read(u64::MAX, &mut piece).unwrap_err();
    assert!(database.large_value(b"key", BYTES + 1).unwrap().is_none());
    assert!(database.large_value(b"none", 0).unwrap().is_none());
}

#[test]
fn a_value_that_is_open_stays_what_it_was_when_its_record_goes() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    database.put(b"key", &value()).unwrap();
    let large = database.large_value(b"key", 1).unwrap().unwrap();
    database.put(b"key", b"short").unwrap();
    database.remove(b"key").unwrap();
    database.optimize().unwrap();
    large.verify().unwrap();
    let mut whole = vec![0; BYTES];
    large.read(0, &mut whole).unwrap();
    assert_eq!(whole, value());
    assert!(database.large_value(b"key", 1).unwrap().is_none());
}

#[test]
fn what_has_expired_or_is_compressed_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    database.put_with(b"key", &value(), Meta { flags: 0, expires_at_ms: 1 }).unwrap();
    assert!(database.large_value(b"key", 1).unwrap().is_none());
    let path = folder.path().join("b.tch").display().to_string();
    let database = Database::open(&format!("{path}#compression=lz4")).unwrap();
    database.put(b"key", &vec![0; BYTES]).unwrap();
    assert!(database.large_value(b"key", 1).unwrap().is_none());
}

#[test]
fn damage_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    database.put(b"key", &value()).unwrap();
    let large = database.large_value(b"key", 1).unwrap().unwrap();
    large.verify().unwrap();
    let segment = std::fs::read_dir(folder.path().join("a.tch")).unwrap().map(Result::unwrap);
    let segment = segment
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|kind| kind == "log"));
    let file = std::fs::OpenOptions::new().write(true).open(segment.unwrap()).unwrap();
    file.write_all_at(b"damage", 500_000).unwrap();
    assert!(matches!(large.verify(), Err(Error::Corrupted { .. })));
}
