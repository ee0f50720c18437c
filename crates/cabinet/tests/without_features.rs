//! A build without the features of Cargo that a database needs. `cargo xtask library features`
//! runs it.

#![cfg(not(any(feature = "legacy", feature = "lz4", feature = "table", feature = "zstd")))]

use cabinet::{Compression, Database, Error, Kind, Options, salvage};
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the folder of databases that another version has made.
fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Copies a database into a folder. Returns its path there.
fn copied(name: &str, folder: &Path) -> PathBuf {
    let path = folder.join(name);
    fs::create_dir(&path).unwrap();
    for entry in fixtures().join("databases/de4d4ac").join(name).read_dir().unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), path.join(entry.file_name())).unwrap();
    }
    path
}

/// Returns the names and bytes of the log's files.
fn log_of(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = path.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

fn assert_names_feature<T>(result: Result<T, Error>, feature: &str, what: &str) {
    let error = result.err().unwrap_or_else(|| panic!("{what}: no refusal"));
    assert!(matches!(error, Error::Unsupported { .. }), "{what}: {error}");
    assert!(error.to_string().ends_with(&format!("its feature `{feature}`")), "{what}: {error}");
}

#[test]
fn a_compressed_database_is_refused_by_the_name_of_the_feature_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    for (name, feature) in
        [("lz4.tch", "lz4"), ("zstd.tch", "zstd"), ("lz4.tcb", "lz4"), ("zstd.tcb", "zstd")]
    {
        let path = copied(name, folder.path());
        let before = log_of(&path);
        for options in [Options::new(), Options::new().read_only(true)] {
            assert_names_feature(options.open(&path), feature, name);
        }
        assert!(log_of(&path) == before, "{name}");
        // Records that this build cannot read are no damage that a salvage may leave out.
        let into = Database::open(if name.ends_with("tch") { "*" } else { "+" }).unwrap();
        let mut report = |damage| panic!("{name}: {damage}");
        assert_names_feature(salvage(&path, &into, &mut report), feature, name);
    }
}

#[test]
fn a_database_without_compression_is_used_as_ever() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["plain.tch", "plain.tcb", "plain.tcf"] {
        let database = Options::new().open(copied(name, folder.path())).unwrap();
        let records = database.iter().unwrap().map(|record| record.unwrap()).count() as u64;
        assert!(records > 30, "{name}: {records}");
        database.put(b"1", b"new").unwrap();
        database.optimize().unwrap();
        assert_eq!(database.get(b"1").unwrap().as_deref(), Some(&b"new"[..]), "{name}");
    }
}

#[test]
fn compression_that_is_missing_cannot_be_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    for (compression, feature) in [(Compression::Lz4, "lz4"), (Compression::Zstd, "zstd")] {
        for path in [Path::new("*"), &folder.path().join("a.tch"), &folder.path().join("a.tcb")] {
            let opened = Options::new().compression(compression).open(path);
            assert_names_feature(opened, feature, &path.display().to_string());
            assert!(!path.exists());
        }
    }
    assert_names_feature(Database::open("*#compression=zstd"), "zstd", "*");
}

#[test]
fn tables_and_files_of_tokyo_cabinet_need_their_features() {
    let folder = tempfile::tempdir().unwrap();
    let path = copied("plain.tct", folder.path());
    let before = log_of(&path);
    assert_names_feature(Options::new().open(&path), "table", "a table");
    assert!(log_of(&path) == before);
    let new = folder.path().join("table");
    assert_names_feature(Options::new().kind(Kind::Table).open(&new), "table", "a table");
    assert!(!new.exists());
    let into = Database::open("*").unwrap();
    assert_names_feature(salvage(&path, &into, &mut |_| ()), "table", "a table");
    let legacy = fixtures().join("tokyocabinet/le/hash-default.tch");
    assert!(legacy.is_file());
    assert_names_feature(Options::new().open(&legacy), "legacy", "a file of Tokyo Cabinet");
}
