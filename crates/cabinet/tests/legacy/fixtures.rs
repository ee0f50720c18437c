//! Every real file is read record for record.

use crate::contents::{Contents, expected, files, folder};
use cabinet::legacy::{ByteOrder, Codec, File, Shape, is_legacy};
use cabinet::name::Kind;
use cabinet::table::IndexKind;
use cabinet::{Database, Error, KeyOrder};
use std::fs;
use std::path::Path;

#[test]
fn every_file_is_read_record_for_record() {
    let files = files();
    assert_eq!(files.len(), 39 + 18, "files of both byte orders");
    for path in files {
        let file = File::open(&path).unwrap();
        let contents = Contents::of(&file);
        assert_eq!(contents.damages, [], "{path:?}");
        let expected = expected(&path);
        assert_eq!(contents.records.len(), expected.len(), "{path:?}");
        let is_same = match file.header().kind {
            // In this very order.
            Kind::Tree | Kind::Fixed => contents.records == expected,
            _ => Contents::sorted(contents.records) == Contents::sorted(expected),
        };
        assert!(is_same, "{path:?}");
    }
}

#[test]
fn the_header_says_what_a_file_is() {
    let suffixes =
        [("tch", Kind::Hash), ("tcb", Kind::Tree), ("tcf", Kind::Fixed), ("tct", Kind::Table)];
    for path in files() {
        let file = File::open(&path).unwrap();
        let header = file.header();
        let order = match path.parent().unwrap().ends_with("le") {
            true => ByteOrder::Little,
            false => ByteOrder::Big,
        };
        assert_eq!(header.byte_order, order, "{path:?}");
        let suffix = path.extension().unwrap().to_str().unwrap();
        assert!(suffixes.contains(&(suffix, header.kind)), "{path:?}");
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert_eq!(header.is_large, name.contains("large"), "{path:?}");
        let codec = [("deflate", Codec::Deflate), ("bzip", Codec::Bzip), ("tcbs", Codec::Tcbs)]
            .into_iter()
            .find_map(|(word, codec)| name.contains(word).then_some(codec));
        assert_eq!(header.codec, codec.unwrap_or(Codec::Plain), "{path:?}");
        let is_unclean = name.contains("wal") || name.contains("unclean");
        assert_eq!(file.was_open(), is_unclean, "{path:?}");
        assert_eq!(file.undone_changes().is_some(), name.contains("wal"), "{path:?}");
        assert_eq!(header.version, "1.0:911", "{path:?}");
        assert_eq!(header.records, expected(&path).len() as u64, "{path:?}");
    }
}

#[test]
fn the_order_of_a_trees_keys_is_known() {
    for (name, expected) in [
        ("default", KeyOrder::Lexical),
        ("decimal", KeyOrder::Decimal),
        ("int32", KeyOrder::Int32),
        ("int64", KeyOrder::Int64),
    ] {
        let file = File::open(&folder().join(format!("le/btree-{name}.tcb"))).unwrap();
        let Shape::Tree { order, .. } = file.header().shape else { panic!("{name}") };
        assert_eq!(order, Some(expected));
    }
}

#[test]
fn the_indices_of_a_table_are_found_by_their_names() {
    let file = File::open(&folder().join("be/table-indexed.tct")).unwrap();
    let indices = file.indices().unwrap();
    let indices: Vec<_> =
        indices.iter().map(|index| (str::from_utf8(&index.column).unwrap(), index.kind)).collect();
    let expected = [
        ("", IndexKind::Lexical),
        ("age", IndexKind::Decimal),
        ("bio", IndexKind::Gram),
        ("name", IndexKind::Lexical),
        ("odd col/%", IndexKind::Lexical),
        ("tags", IndexKind::Token),
    ];
    assert_eq!(indices, expected);
    let Shape::Table { last_unique_id } = file.header().shape else { panic!("no table") };
    assert_eq!(last_unique_id, 200);
}

#[test]
fn reading_changes_nothing_and_needs_no_permission_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hash-wal.tch");
    let log = folder.path().join("hash-wal.tch.wal");
    for (name, copy) in [("le/hash-wal.tch", &path), ("le/hash-wal.tch.wal", &log)] {
        fs::copy(crate::contents::folder().join(name), copy).unwrap();
        let mut permissions = fs::metadata(copy).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(copy, permissions).unwrap();
    }
    let state =
        |path: &Path| (fs::read(path).unwrap(), fs::metadata(path).unwrap().modified().unwrap());
    let before = (state(&path), state(&log));
    assert_eq!(Contents::of(&File::open(&path).unwrap()).records.len(), 200);
    assert!((state(&path), state(&log)) == before);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
}

#[test]
fn what_is_none_of_these_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("casket.tch");
    for bytes in [&b""[..], b"ToKyO CaBiNeT", &[b'x'; 300]] {
        fs::write(&path, bytes).unwrap();
        assert!(!is_legacy(&path));
        assert!(matches!(File::open(&path), Err(Error::WrongKind { .. })));
    }
    assert!(!is_legacy(folder.path()));
    assert!(matches!(File::open(folder.path()), Err(Error::WrongKind { .. })));
    let missing = folder.path().join("missing");
    assert!(!is_legacy(&missing));
    assert!(matches!(File::open(&missing), Err(Error::Io { .. })));
    assert!(is_legacy(&crate::contents::folder().join("be/hash-large.tch")));
}

#[test]
fn opening_such_a_file_as_a_database_says_what_to_do() {
    for path in files() {
        let name = path.display().to_string();
        let Err(error) = Database::open(&name) else { panic!("{name} was opened") };
        assert!(matches!(error, Error::LegacyFile { .. }), "{error}");
        let error = error.to_string();
        assert!(error.contains("Tokyo Cabinet"), "{error}");
        assert!(error.contains(&format!("tyrant import {name} --into ")), "{error}");
    }
}

#[test]
fn values_in_a_codec_of_the_applications_are_read_only_if_they_are_said_to_be_plain() {
    const OPTIONS: usize = 36;
    const EXTERNAL: u8 = 16;
    for name in ["hash-chains.tch", "btree-dups.tcb", "table-plain.tct"] {
        let path = folder().join("le").join(name);
        let mut bytes = fs::read(&path).unwrap();
        bytes[OPTIONS] |= EXTERNAL;
        let mut file = File::from_bytes(bytes, None).unwrap();
        assert_eq!(file.header().codec, Codec::External);
        let refused = file.read(&mut Contents::default());
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
        file.assume_plain();
        assert_eq!(Contents::of(&file).records.len(), expected(&path).len());
    }
}
