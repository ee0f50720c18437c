//! Files: databases that no server has open, imports and exports, backups.

use super::Table;
use crate::process::{feed_in, succeed};
use std::fs::write;
use std::path::Path;

/// First bytes of a file of Tokyo Cabinet.
const LEGACY_MAGIC: &[u8] = b"ToKyO CaBiNeT\n1.0:911\n";

/// Makes a folder with a hash database `good.tch`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path().join("lines.tsv"), "a\tb\n").expect("a file");
    let into = ["import", "lines.tsv", "--into", "good.tch"];
    let output = feed_in(folder.path(), "tyrant", &into, "");
    assert!(output.status.success(), "{output:?}");
    folder
}

#[test]
fn a_path_at_which_there_is_nothing() {
    let folder = folder();
    write(folder.path().join("rows.CSV"), "key\na\n").expect("a file");
    Table::new(folder.path(), &[]).check(&[
        ("tyrant check no.tch", 1, &["cannot open no.tch: No such file", "; check the path"]),
        ("tyrant inspect no.tch", 1, &["cannot open no.tch: No such file", "; check the path"]),
        ("tyrant export no.tch", 1, &["cannot open no.tch: No such file", "; check the path"]),
        ("tyrant salvage no.tch --into new.tch", 1, &["cannot open no.tch: No such file"]),
        (
            "tyrant import no.xyz --into new.tch",
            1,
            &["cannot open no.xyz: No such file", "; check"],
        ),
        (
            "tyrant import no.tsv --into new.tch",
            1,
            &["cannot open no.tsv: No such file", "; check"],
        ),
        (
            "tyrant import no.tch --into new.tch",
            1,
            &["cannot open no.tch: No such file", "; check"],
        ),
        ("tyrant import lines.tsv --into no/new.tch", 1, &["there is no folder no; make it, or"]),
        (
            "tyrant import lines.tsv --into lines.tsv/new.tch",
            1,
            &["lines.tsv/new.tch: lines.tsv is a file, not a folder; check the path"],
        ),
        (
            "tyrant import rows.CSV --into new.tct",
            1,
            &["rows.CSV is CSV, which import does not", "\"tyrant put-rows rows.CSV\""],
        ),
        (
            "tyrant export good.tch /dev/full",
            1,
            &["cannot write /dev/full: No space left on device (os error 28); free space"],
        ),
        (
            "tyrant export good.tch /dev/full --format jsonl",
            1,
            &["cannot write /dev/full: No space left on device (os error 28); free space"],
        ),
        (
            "tyrant export good.tch lines.csv",
            2,
            &["the suffix .csv is that of no format", "\"tyrant search --csv\""],
        ),
        (
            "tyrant export good.tch lines.json",
            2,
            &["the suffix .json is that of no format", ".jsonl"],
        ),
        ("tyrant export good.tch no/lines.tsv", 1, &["cannot create no/lines.tsv", "; check the"]),
        ("tyrant backup list no", 1, &["there is no backup repository no: check the path"]),
        ("tyrant backup verify no", 1, &["there is no backup repository no: check the path"]),
        ("tyrant backup prune no --keep 1", 1, &["there is no backup repository no: check the"]),
        ("tyrant restore no --into new.tch", 1, &["there is no backup repository no: check the"]),
        (
            "tyrant backup create copies --database no.tch",
            1,
            &["no.tch: No such file", "check the"],
        ),
        ("tyrant cluster migrate no.tch cassandra://127.0.0.1:1/k", 1, &[]),
    ]);
    assert!(!folder.path().join("new.tch").exists());
}

#[test]
fn a_file_or_folder_that_is_something_else() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    write(path("text.tch"), "hello\n").expect("a file");
    write(path("cut.tch"), LEGACY_MAGIC).expect("a file");
    let mut header = LEGACY_MAGIC.to_vec();
    header.resize(256, 0xff);
    write(path("spoilt.tch"), header).expect("a file");
    let rename = |from: &str, to: &str| std::fs::rename(path(from), path(to)).expect("a rename");
    rename("good.tch", "wrong.tcb");
    Table::new(folder.path(), &[]).check(&[
        (
            "tyrant serve text.tch --port 0",
            1,
            &["text.tch is a file, and a database is a folder: ch"],
        ),
        (
            "ttserver -port 65535 text.tch",
            1,
            &["text.tch is a file, and a database is a folder: choose"],
        ),
        ("tyrant check text.tch", 1, &["text.tch is a file, and a database is a folder: choose"]),
        ("tyrant inspect text.tch", 1, &["text.tch is a file, and a database is a folder: choose"]),
        ("tyrant export text.tch", 1, &["text.tch is a file, and a database is a folder: choose"]),
        ("tyrant salvage text.tch --into n.tch", 1, &["text.tch is a file, and a database is a"]),
        (
            "tyrant import lines.tsv --into text.tch",
            1,
            &["text.tch is a file, and a database is a"],
        ),
        (
            "tyrant import text.tch --into n.tch",
            1,
            &["text.tch is not a Tokyo Cabinet file", "--format"],
        ),
        (
            "tyrant import cut.tch --into n.tch",
            1,
            &["cut.tch", "ends within its header", "earlier copy"],
        ),
        ("tyrant inspect cut.tch", 1, &["cut.tch", "ends within its header", "an earlier copy"]),
        (
            "tyrant serve cut.tch --port 0",
            1,
            &["cut.tch", "ends within its header", "earlier copy"],
        ),
        (
            "tyrant import spoilt.tch --into n.tch",
            1,
            &["spoilt.tch is a damaged file of Tokyo Cabinet", "an earlier copy"],
        ),
        (
            "tyrant serve wrong.tcb --port 0",
            1,
            &["is a hash database, not a B+ tree database: rename it to wrong.tch"],
        ),
        (
            "tyrant export wrong.tcb",
            1,
            &["is a hash database, not a B+ tree database: rename it to wrong.tch"],
        ),
        (
            "tyrant inspect wrong.tcb",
            1,
            &["is a hash database, not a B+ tree database: rename it to wrong.tch"],
        ),
        ("tyrant inspect .", 1, &["the folder . is not a database"]),
        ("tyrant backup list .", 1, &[". is not a backup repository: name the folder that"]),
        (
            "tyrant import lines.tsv --into nameless",
            2,
            &["the kind of database from the name \"nameless\": it ends in"],
        ),
        (
            "tyrant import lines.tsv --into a.tch#mode=z",
            2,
            &["tuning mode=z is wrong: mode takes letters"],
        ),
        (
            "tyrant import lines.tsv --into a.tch#nonsense=1",
            2,
            &["unknown tuning \"nonsense\": known are mode"],
        ),
        ("tyrant import lines.tsv --into a.tch#nonsense", 2, &["is not of the form key=value"]),
    ]);
    assert!(!path("n.tch").exists());
}

#[test]
fn lines_that_cannot_be_imported_and_files_that_exist() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    write(path("bad.tsv"), "a\t1\nb\n").expect("a file");
    write(path("bad.jsonl"), "{\"key\":\"a\",\"value\":1}\n").expect("a file");
    write(path("cut.jsonl"), "{\"key\":\"a\",\n").expect("a file");
    write(path("long.tsv"), format!("{}\tb\n", "k".repeat(70_000))).expect("a file");
    Table::new(folder.path(), &[]).check(&[
        (
            "tyrant import bad.tsv --into good.tch",
            1,
            &["bad.tsv: line 2: no TAB after the key", "the 1 record before it was imported"],
        ),
        ("tyrant import bad.jsonl --into good.tch", 1, &["bad.jsonl: line 1: 1 is not a string"]),
        (
            "tyrant import cut.jsonl --into new.tch",
            1,
            &["cut.jsonl: line 1: EOF while parsing a value at column 11;", "the 0 records before"],
        ),
        ("tyrant import long.tsv --into new.tch", 1, &["long.tsv: line 1: "]),
        (
            "tyrant import good.tch --into new.tch",
            1,
            &["good.tch is a database of this project already: \"tyrant export good.tch FILE\""],
        ),
        ("tyrant import bad.tsv --into new", 2, &["from the name \"new\": it ends in .tch, "]),
        ("tyrant salvage good.tch --into new", 2, &["from the name \"new\": it ends in .tch, "]),
        (
            "tyrant export good.tch lines.tsv",
            1,
            &["lines.tsv exists already: name another file, or use --replace"],
        ),
        (
            "tyrant salvage good.tch --into good.tch",
            1,
            &["good.tch has records: salvage into a new database"],
        ),
    ]);
    assert!(!path("new.tch").exists(), "an import that stores nothing leaves no database");
}

#[test]
fn a_repository_of_backups() {
    let folder = folder();
    let text = |path: &Path| path.display().to_string();
    let (repository, database) = (folder.path().join("copies"), folder.path().join("good.tch"));
    succeed("tyrant", &["backup", "create", &text(&repository), "--database", &text(&database)]);
    Table::new(folder.path(), &[]).check(&[
        (
            "tyrant restore copies --into good.tch",
            1,
            &["good.tch exists: name another path, or replace"],
        ),
        ("tyrant restore copies --into no/new.tch", 1, &["there is no folder no; make it, or"]),
        (
            "tyrant restore copies --into new.tcb",
            1,
            &["of a hash database, and new.tcb has another suffix: name it new.tch"],
        ),
        (
            "tyrant restore copies --into new.tch --backup x",
            1,
            &["copies has no backup x: `tyrant backup list copies` prints"],
        ),
        (
            "tyrant backup verify copies x",
            1,
            &["copies has no backup x: `tyrant backup list copies` prints"],
        ),
        (
            "tyrant restore copies --into new.tch --until 2020-01-01T00:00:00Z --update-log no",
            1,
            &["from before 2020-01-01", "choose a time after", "--update-log"],
        ),
    ]);
    assert!(!folder.path().join("new.tch").exists());
}
