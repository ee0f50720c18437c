//! `tyrant import`, `export`, `inspect` and `serve --import`.

use crate::process::{Server, fail, feed, feed_in, misuse, path, run, succeed};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Returns the folder of Tokyo Cabinet files in one byte order.
fn fixtures(order: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../crates/cabinet/tests/fixtures/tokyocabinet")
        .join(order)
}

fn fixture(order: &str, name: &str) -> String {
    fixtures(order).join(name).display().to_string()
}

/// A temporary folder.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Makes a file with this text. Returns its path.
    fn text(&self, name: &str, text: &str) -> String {
        let file = self.path(name);
        fs::write(&file, text).expect("a file");
        file
    }

    /// Copies a Tokyo Cabinet file into the folder.
    fn copy(&self, order: &str, name: &str) -> String {
        let copy = self.path(name);
        fs::copy(fixtures(order).join(name), &copy).expect("a copy");
        copy
    }
}

/// Returns the output of an export, in its order.
fn exported_text(name: &str) -> Vec<u8> {
    let folder = Folder::new();
    // A file, because a pipe would not be read while the program runs.
    let text = folder.path("text.jsonl");
    succeed("tyrant", &["export", name, &text]);
    fs::read(text).expect("the lines")
}

/// Returns the lines of an export, sorted.
fn exported(name: &str) -> Vec<String> {
    let text = String::from_utf8(exported_text(name)).expect("UTF-8");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// Imports all files of a kind, and compares the exports of the files with those of the databases.
fn import_all(suffix: &str, is_same: impl Fn(&str, &str) -> bool) {
    let folder = Folder::new();
    let mut files = 0;
    for order in ["le", "be"] {
        for entry in fs::read_dir(fixtures(order)).expect("the files") {
            let name = entry.expect("a file").file_name().display().to_string();
            if !name.ends_with(suffix) {
                continue;
            }
            let into = folder.path(&format!("{order}-{name}"));
            let file = fixture(order, &name);
            let output = succeed("tyrant", &["import", &file, "--into", &into]);
            assert!(is_same(&file, &into), "{order} {name}");
            let records = match exported(&into).len() {
                1 => "1 record".to_owned(),
                records => format!("{records} records"),
            };
            assert!(output.ends_with(&format!("\n{records} in {into}\n")), "{output}");
            files += 1;
        }
    }
    assert!(files > 5);
}

#[test]
fn every_hash_file_is_imported_completely() {
    import_all(".tch", |file, into| exported(into) == exported(file));
}

#[test]
fn every_tree_is_imported_with_its_order_and_its_duplicates() {
    // The order must match exactly.
    import_all(".tcb", |file, into| exported_text(into) == exported_text(file));
}

#[test]
fn every_fixed_length_file_is_imported_with_its_width() {
    import_all(".tcf", |file, into| {
        let width = |name: &str| {
            let lines = succeed("tyrant", &["inspect", name]);
            let width = lines.lines().find(|line| line.starts_with("width\t"));
            width.map(str::to_owned).unwrap()
        };
        exported(into) == exported(file) && width(into) == width(file)
    });
}

#[test]
fn every_table_is_imported_with_its_indices() {
    import_all(".tct", |file, into| {
        let indices = |name: &str| {
            let lines = succeed("tyrant", &["inspect", name]);
            let kept =
                |line: &&str| line.starts_with("index\t") || line.starts_with("last unique id\t");
            lines.lines().filter(kept).map(str::to_owned).collect::<Vec<_>>()
        };
        exported(into) == exported(file) && indices(into) == indices(file)
    });
}

#[test]
fn the_rows_of_a_table_go_through_text() {
    let folder = Folder::new();
    let file = fixture("le", "table-indexed.tct");
    for suffix in ["tsv", "jsonl"] {
        let text = folder.path(&format!("rows.{suffix}"));
        succeed("tyrant", &["export", &file, &text]);
        let into = folder.path(&format!("{suffix}.tct"));
        succeed("tyrant", &["import", &text, "--into", &into]);
        assert!(exported(&into) == exported(&file), "{suffix}");
    }
}

#[test]
fn the_duplicates_of_a_tree_go_through_text() {
    let folder = Folder::new();
    let file = fixture("le", "btree-dups.tcb");
    for suffix in ["tsv", "jsonl"] {
        let text = folder.path(&format!("records.{suffix}"));
        succeed("tyrant", &["export", &file, &text]);
        let into = folder.path(&format!("{suffix}.tcb"));
        succeed("tyrant", &["import", &text, "--into", &into]);
        assert!(exported_text(&into) == exported_text(&file), "{suffix}");
    }
}

#[test]
fn the_duplicates_of_a_tree_go_through_json_lines_with_their_flags_and_expiry() {
    let folder = Folder::new();
    let (text, into) = (folder.path("records.jsonl"), folder.path("casket.tcb"));
    let lines = concat!(
        r#"{"key":"k","value":"1"}"#,
        "\n",
        r#"{"key":"k","value":"2","flags":7}"#,
        "\n",
        r#"{"key":"k","value":"3","expires_at_ms":4102444800000}"#,
        "\n",
        r#"{"key":"k","value":"4"}"#,
        "\n",
    );
    fs::write(&text, lines).unwrap();
    succeed("tyrant", &["import", &text, "--into", &into]);
    assert_eq!(succeed("tyrant", &["export", &into, "--format", "jsonl"]), lines);
}

#[test]
fn importing_a_file_again_changes_nothing() {
    let folder = Folder::new();
    for name in ["btree-dups.tcb", "table-indexed.tct", "hash-wal.tch", "fixed-w8.tcf"] {
        let file = fixture("le", name);
        let into = folder.path(name);
        for _ in 0..2 {
            succeed("tyrant", &["import", &file, "--into", &into]);
            assert!(exported_text(&into).len() == exported_text(&file).len(), "{name}");
            assert!(exported(&into) == exported(&file), "{name}");
        }
    }
}

#[test]
fn a_fixed_length_file_is_imported_into_a_tree_by_its_numbers() {
    let folder = Folder::new();
    let into = folder.path("casket.tcb");
    let file = fixture("be", "fixed-sparse.tcf");
    succeed("tyrant", &["import", &file, "--into", &format!("{into}#order=decimal")]);
    assert!(exported_text(&into) == exported_text(&file));
}

#[test]
fn only_a_tree_without_duplicates_is_imported_into_a_hash_database() {
    let folder = Folder::new();
    let file = fixture("be", "btree-decimal.tcb");
    let into = folder.path("casket.tch");
    succeed("tyrant", &["import", &file, "--into", &into]);
    assert!(exported(&into) == exported(&file));
    let into = folder.path("other.tch");
    let error = fail("tyrant", &["import", &fixture("be", "btree-dups.tcb"), "--into", &into]);
    assert!(error.contains("B+ tree"), "{error}");
}

#[test]
fn later_files_override_records_of_earlier_ones() {
    let folder = Folder::new();
    let into = folder.path("casket.tch");
    let (first, second) = (folder.path("a.tsv"), folder.path("b.jsonl"));
    fs::write(&first, "one\t1\ntwo\\t\t\\\\2\n").unwrap();
    fs::write(&second, "{\"key\":\"one\",\"value\":\"uno\",\"flags\":7}\n").unwrap();
    let output = succeed("tyrant", &["import", &first, &second, "--into", &into]);
    assert!(output.ends_with(&format!("2 records in {into}\n")), "{output}");
    assert!(output.contains("1 record has replaced an earlier one of its key"), "{output}");
    let expected = [r#"{"key":"one","value":"uno","flags":7}"#, r#"{"key":"two\t","value":"\\2"}"#];
    assert_eq!(exported(&into), expected);
}

#[test]
fn a_folder_of_a_partitioned_database_is_imported_as_one() {
    let folder = Folder::new();
    let parts = folder.path("parts");
    fs::create_dir(&parts).unwrap();
    for (part, name) in [("adbmul-001.tch", "hash-wal.tch"), ("adbmul-002.tch", "hash-apow8.tch")] {
        fs::copy(fixtures("le").join(name), Path::new(&parts).join(part)).unwrap();
    }
    let log = Path::new(&parts).join("adbmul-001.tch.wal");
    fs::copy(fixtures("le").join("hash-wal.tch.wal"), log).unwrap();
    let into = folder.path("casket.tch");
    let output = succeed("tyrant", &["import", &parts, "--into", &into]);
    assert!(output.ends_with(&format!("260 records in {into}\n")), "{output}");

    let empty = folder.path("empty");
    fs::create_dir(&empty).unwrap();
    let error = fail("tyrant", &["import", &empty, "--into", &into]);
    assert!(error.contains("no Tokyo Cabinet file"), "{error}");
}

#[test]
fn damage_is_reported_by_its_offset_and_the_rest_is_imported() {
    let folder = Folder::new();
    let file = folder.copy("le", "hash-large.tch");
    let mut bytes = fs::read(&file).unwrap();
    let first = u64::from_le_bytes(bytes[64..72].try_into().unwrap());
    bytes[first as usize] = 0;
    fs::write(&file, bytes).unwrap();
    let into = folder.path("casket.tch");
    let error = fail("tyrant", &["import", &file, "--into", &into]);
    assert!(error.contains(&format!("at byte {first}")), "{error}");
    assert!(error.contains("1 damaged place"), "{error}");
    assert_eq!(exported(&into).len(), 199);
}

#[test]
fn the_intact_records_of_any_damaged_file_are_imported() {
    let folder = Folder::new();
    for (name, least) in [
        ("hash-chains.tch", 900),
        ("btree-multilevel.tcb", 1300),
        ("btree-dups.tcb", 250),
        ("table-plain.tct", 100),
    ] {
        let file = folder.copy("le", name);
        let mut bytes = fs::read(&file).unwrap();
        let first = u64::from_le_bytes(bytes[64..72].try_into().unwrap()) as usize;
        let end = bytes.len();
        // The first byte of some blocks.
        for offset in (first..end).filter(|at| bytes[*at] == 0xc8).step_by(23).collect::<Vec<_>>() {
            bytes[offset] = 1;
        }
        fs::write(&file, bytes).unwrap();
        let into = folder.path(&format!("new-{name}"));
        let error = fail("tyrant", &["import", &file, "--into", &into]);
        assert!(error.contains("everything else was imported"), "{error}");
        let records = exported(&into).len();
        assert!(records > least, "{name}: {records}");
    }
}

#[test]
fn impossible_imports_are_errors() {
    let folder = Folder::new();
    let hash = fixture("le", "hash-apow8.tch");
    let into = folder.path("casket.tch");
    fs::write(folder.path("text.xyz"), "a\tb\n").unwrap();
    fs::write(folder.path("bad.tsv"), "a\tb\nc\n").unwrap();
    for (file, into, reason) in [
        (hash.as_str(), "*", "in memory"),
        (&hash, &hash, "--into"),
        (&fixture("le", "table-plain.tct"), &into, "table database"),
        (&hash, &folder.path("casket.tct"), "rows"),
        (&folder.path("missing.tch"), &into, "missing.tch"),
        (&folder.path("text.xyz"), &into, "--format"),
        (&folder.path("bad.tsv"), &into, "line 2"),
    ] {
        let error = fail("tyrant", &["import", file, "--into", into]);
        assert!(error.contains(reason), "{file} into {into}: {error}");
    }
    let error = misuse(&["import", &hash, "--into", "casket"]);
    assert!(error.contains("kind of database"), "{error}");
}

#[test]
fn a_bad_line_is_reported_and_the_valid_ones_before_it_are_kept() {
    let folder = Folder::new();
    let long = "k".repeat(cabinet::limits::KEY_BYTES_MAX + 1);
    for (number, (into, good, bad, reason)) in [
        ("casket.tch", "\tvalue", "no value".to_owned(), "no TAB after the key"),
        ("casket.tch", "\tvalue", format!("{long}\tvalue"), "over the limit"),
        ("casket.tcb", "\tvalue", format!("{long}\tvalue"), "over the limit"),
        ("casket.tcf", "\tvalue", "none value".to_owned(), "no TAB after the key"),
        ("casket.tct", "\tname\tvalue", "key\tname".to_owned(), "a column without a value"),
        ("casket.tct", "\tname\tvalue", "key\t\tvalue".to_owned(), "a column needs a name"),
    ]
    .into_iter()
    .enumerate()
    {
        // Batches end at 1000 records.
        for line in [1, 2, 1000, 1001, 1500] {
            let into = folder.path(&format!("{number}-{line}-{into}"));
            let file = folder.path("lines.tsv");
            let mut text: Vec<String> = (1..=2500).map(|key| format!("{key}{good}")).collect();
            text[line - 1] = bad.clone();
            fs::write(&file, text.join("\n")).unwrap();
            let error = fail("tyrant", &["import", &file, "--into", &into]);
            let expected = format!("cannot import {file}: line {line}: ");
            assert!(error.contains(&expected) && error.contains(reason), "{into}: {error}");
            let kept = line - 1;
            let expected = match kept {
                1 => "the 1 record before it was imported".to_owned(),
                kept => format!("the {kept} records before it were imported"),
            };
            assert!(error.contains(&expected), "{into}: {error}");
            match kept {
                0 => assert!(!Path::new(&into).exists(), "{into}"),
                kept => assert_eq!(exported(&into).len(), kept, "{into}"),
            }
        }
    }
}

#[test]
fn an_index_of_a_table_is_not_imported() {
    let folder = Folder::new();
    let index = fixture("le", "table-indexed.tct.idx.name.lex");
    let into = folder.path("casket.tcb");
    let error = fail("tyrant", &["import", &index, "--into", &into]);
    assert!(error.contains("is an index of the table"), "{error}");
    assert!(!Path::new(&into).exists());
}

#[test]
fn a_tree_is_exported_in_order_unless_any_order_will_do() {
    let folder = Folder::new();
    let (text, database) = (folder.path("text.tsv"), folder.path("casket.tcb"));
    let line = |key: u32| format!("{:05}\t{}\n", key * 7919 % 20_000, "v".repeat(100));
    fs::write(&text, (0..20_000).map(line).collect::<String>()).unwrap();
    succeed("tyrant", &["import", &text, "--into", &database]);
    let [in_order, in_any_order] =
        [&["--replace"][..], &["--replace", "--any-order"]].map(|options| {
            let file = folder.path("new.tsv");
            succeed("tyrant", &[&["export", &database, &file], options].concat());
            fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
        });
    assert!(in_order.is_sorted() && in_order.len() == 20_000);
    let sorted: std::collections::BTreeSet<_> = in_any_order.iter().collect();
    assert!(in_any_order.len() == 20_000 && sorted.into_iter().eq(&in_order));
}

#[test]
fn an_interrupted_export_leaves_the_previous_file() {
    let folder = Folder::new();
    let (text, file) = (folder.path("text.tsv"), folder.path("new.tsv"));
    let database = folder.path("casket.tch");
    let lines: String = (0..40_000).map(|key| format!("{key}\t{}\n", "v".repeat(100))).collect();
    fs::write(&text, &lines).unwrap();
    succeed("tyrant", &["import", &text, "--into", &database]);
    let mut is_ended = false;
    for delay_ms in 0..20 {
        for before in [None, Some("before")] {
            let _ = fs::remove_file(&file);
            if let Some(before) = before {
                fs::write(&file, before).unwrap();
            }
            let mut export = Command::new(path("tyrant"))
                .args(["export", &database, &file, "--replace"])
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(5 * delay_ms));
            kill_process(Pid::from_child(&export), Signal::TERM).unwrap();
            let is_done = export.wait().unwrap().success();
            is_ended |= !is_done;
            let found = fs::read_to_string(&file).ok();
            match found {
                Some(found) if found.len() == lines.len() => {}
                found => assert_eq!(found.as_deref(), before, "whole, or as it was"),
            }
            let names = fs::read_dir(folder.path("")).unwrap();
            let left = names.filter(|name| {
                name.as_ref().unwrap().file_name().to_string_lossy().contains("partial")
            });
            assert_eq!(left.count(), 0);
        }
    }
    assert!(is_ended, "an export took no time at all");
}

#[test]
fn an_export_writes_to_links_devices_and_open_files() {
    let folder = Folder::new();
    let database = folder.path("casket.tch");
    succeed("tyrant", &["import", &fixture("le", "hash-apow8.tch"), "--into", &database]);
    let whole = succeed("tyrant", &["export", &database]);
    for place in ["/dev/stdout", "-"] {
        assert_eq!(succeed("tyrant", &["export", &database, place]), whole);
        // A file as standard output is appended to.
        let file = folder.path("out");
        fs::write(&file, "before\n").unwrap();
        let output = fs::OpenOptions::new().append(true).open(&file).unwrap();
        let mut export = Command::new(path("tyrant"));
        let done = export.args(["export", &database, place]).stdout(output).status().unwrap();
        assert!(done.success());
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("before\n{whole}"));
    }
    let file = folder.path("file");
    fs::write(&file, "before").unwrap();
    let error = fail("tyrant", &["export", &database, &file]);
    assert!(error.contains("--replace"), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "before");
    succeed("tyrant", &["export", &database, &file, "--replace"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), whole);
}

#[test]
fn an_export_of_a_damaged_database_fails() {
    let folder = Folder::new();
    let name = folder.path("casket.tch");
    let database = cabinet::Database::open(&name).unwrap();
    for key in 0..100 {
        database.put(format!("first-{key}").as_bytes(), b"value").unwrap();
    }
    // After a copy, writes go to a new segment.
    database.copy_to(Path::new(&folder.path("copy.tch"))).unwrap();
    database.put(b"second", b"value").unwrap();
    drop(database);
    let mut segments: Vec<_> = fs::read_dir(&name)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "log"))
        .collect();
    segments.sort();
    assert!(segments.len() > 1, "{segments:?}");
    let mut bytes = fs::read(&segments[0]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&segments[0], bytes).unwrap();
    // Without it, opening reads the log.
    fs::remove_file(folder.path("casket.tch/checkpoint")).unwrap();
    let error = fail("tyrant", &["export", &name, &folder.path("text.tsv")]);
    assert!(error.contains("damaged"), "{error}");
}

/// Runs a program as a user without write permission, if this user may change its id.
fn as_a_reader(arguments: &[&str]) -> std::process::Output {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(path("tyrant"));
    command.args(arguments);
    if rustix::process::geteuid().is_root() {
        // The id of `nobody` on every Linux.
        command.uid(65534).gid(65534);
    }
    command.output().expect("the program starts")
}

#[test]
fn read_only_commands_work_without_write_permission_and_change_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let to_all = |path: &str, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for (name, line) in [
        ("casket.tch", "put key value"),
        ("casket.tcb", "put key value"),
        ("casket.tcf", "put 7 value"),
        ("casket.tct", "put-row key name=value"),
    ] {
        let mut server = Server::tyrant(name, &[]);
        let address = server.address();
        let mut words: Vec<&str> = line.split(' ').collect();
        words.splice(1..1, ["--server", &address]);
        succeed("tyrant", &words);
        server.end(Signal::KILL);
        let folder = server.folder.path();
        let database = folder.join(name).display().to_string();
        let files = || -> Vec<_> {
            let mut names: Vec<_> =
                fs::read_dir(&database).unwrap().map(|file| file.unwrap().path()).collect();
            names.sort();
            names.into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect()
        };
        fs::remove_file(Path::new(&database).join("lock")).unwrap();
        let before = files();
        before.iter().for_each(|(_, path)| to_all(&path.display().to_string(), 0o444));
        to_all(&database, 0o555);
        to_all(&folder.display().to_string(), 0o755);
        let new = tempfile::tempdir().unwrap();
        to_all(&new.path().display().to_string(), 0o777);
        let into = new.path().join(format!("new{}", &name[6..])).display().to_string();
        for arguments in [
            &["inspect", &database][..],
            &["export", &database],
            &["check", &database],
            &["salvage", &database, "--into", &into],
        ] {
            let output = as_a_reader(arguments);
            assert!(output.status.success(), "{arguments:?}: {output:?}");
            assert!(files() == before, "{arguments:?} has changed the files");
            if arguments[0] == "export" {
                assert!(String::from_utf8_lossy(&output.stdout).contains("value"), "{output:?}");
            }
        }
        to_all(&database, 0o755);
    }
}

#[test]
fn an_import_without_records_makes_no_database() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("empty.tsv"), "").unwrap();
    fs::write(folder.path().join("one.tsv"), "a\tb\n").unwrap();
    let server = Server::tyrant("*", &[]);
    let url = format!("redis://{}", server.address());
    let import = |words: &[&str]| {
        let output = feed_in(folder.path(), "tyrant", &[&["import"], words].concat(), "");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let nothing = "no records were imported, so a.tch is not made\n";
    for from in [&["empty.tsv"][..], &["-", "--format", "jsonl"], &[&url]] {
        let printed = import(&[from, &["--into", "a.tch"]].concat());
        assert!(printed.ends_with(nothing), "{printed}");
        assert!(!folder.path().join("a.tch").exists());
    }
    import(&["one.tsv", "--into", "a.tch"]);
    let printed = import(&["empty.tsv", "--into", "a.tch"]);
    assert!(printed.ends_with("\n1 record in a.tch\n"), "{printed}");
}

#[test]
fn text_is_read_from_the_standard_input() {
    let folder = Folder::new();
    let into = folder.path("casket.tch");
    let mut import = Command::new(path("tyrant"))
        .args(["import", "-", "--format", "tsv", "--into", &into])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    import.stdin.take().unwrap().write_all(b"key\tvalue\n").unwrap();
    assert!(import.wait().unwrap().success());
    assert_eq!(succeed("tyrant", &["export", &into]), "key\tvalue\n");
}

#[test]
fn a_stream_of_tsv_that_ends_within_a_line_is_refused_after_the_lines_before() {
    let folder = Folder::new();
    let into = folder.path("casket.tch");
    succeed("tyrant", &["import", &folder.text("before.tsv", "b\t1\n"), "--into", &into]);
    let arguments = ["import", "-", "--format", "tsv", "--into", &into];
    let output = feed("tyrant", &arguments, "a\t1\nb\tx");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("line 2: it ends without a line feed"), "{error}");
    assert!(error.contains("the 1 record before it was imported"), "{error}");
    let lines = |keys: &[&str]| -> Vec<String> {
        keys.iter().map(|key| format!("{{\"key\":\"{key}\",\"value\":\"1\"}}")).collect()
    };
    assert_eq!(exported(&into), lines(&["a", "b"]));
    // Editors leave the last line feed out of a file, which may be the standard input.
    let file = folder.text("cut.tsv", "c\t1\nd\t1");
    let input = fs::File::open(&file).unwrap();
    let imported = Command::new(path("tyrant")).args(arguments).stdin(input).output().unwrap();
    assert!(imported.status.success(), "{imported:?}");
    succeed("tyrant", &["import", &file, "--into", &into]);
    assert_eq!(exported(&into), lines(&["a", "b", "c", "d"]));
}

#[test]
fn exported_records_of_any_bytes_are_imported_again() {
    let folder = Folder::new();
    let first = folder.path("first.tch");
    succeed("tyrant", &["import", &fixture("le", "hash-binary.tch"), "--into", &first]);
    for suffix in ["tsv", "jsonl"] {
        let text = folder.path(&format!("text.{suffix}"));
        assert_eq!(succeed("tyrant", &["export", &first, &text]), "");
        let second = folder.path(&format!("{suffix}.tch"));
        succeed("tyrant", &["import", &text, "--into", &second]);
        assert!(exported(&second) == exported(&first), "{suffix}");
        // An existing file remains unchanged.
        fail("tyrant", &["export", &first, &text]);
    }
    let error = fail("tyrant", &["export", &folder.path("missing.tch")]);
    assert!(error.contains("missing.tch"), "{error}");
    assert!(!Path::new(&folder.path("missing.tch")).exists());
}

#[test]
fn a_closed_pipe_is_not_reported() {
    for format in ["tsv", "jsonl"] {
        let file = fixture("le", "hash-chains.tch");
        let mut export = Command::new(path("tyrant"))
            .args(["export", &file, "--format", format])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(export.stdout.take());
        let output = export.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}

#[test]
fn inspect_prints_the_properties_of_a_file() {
    let lines = |file: &str| succeed("tyrant", &["inspect", file]);
    for (order, name, expected) in [
        ("le", "hash-large-deflate.tch", &["kind\thash", "values\tdeflate", "records\t100"][..]),
        ("be", "hash-large.tch", &["numbers\tbig-endian", "record offsets\t64 bits"]),
        ("be", "hash-wal.tch", &["state\tnot closed", "transaction log\t351 changes are undone"]),
        ("le", "btree-int32.tcb", &["kind\tB+ tree", "order of keys\tint32", "records\t600"]),
        ("le", "fixed-w300.tcf", &["kind\tfixed-length", "width\t300", "greatest number\t40"]),
        (
            "be",
            "table-indexed.tct",
            &["kind\ttable", "last unique id\t200", "index\t\"odd col/%\" lexical"],
        ),
    ] {
        let lines = lines(&fixture(order, name));
        for expected in expected {
            assert!(lines.lines().any(|line| line == *expected), "{name}: {expected}\n{lines}");
        }
    }
}

#[test]
fn inspect_prints_the_properties_of_a_database() {
    let folder = Folder::new();
    let into = folder.path("casket.tch");
    succeed("tyrant", &["import", &fixture("le", "hash-apow8.tch"), "--into", &into]);
    let lines = succeed("tyrant", &["inspect", &into]);
    for expected in ["made by\ttyrant, format 2", "kind\thash", "records\t60", "segments\t1"] {
        assert!(lines.lines().any(|line| line == expected), "{expected}\n{lines}");
    }
    fail("tyrant", &["inspect", &folder.path("missing.tch")]);
    fail("tyrant", &["inspect", &folder.path("")]);
    assert!(!Path::new(&folder.path("missing.tch")).exists());
}

#[test]
fn serving_a_tokyo_cabinet_file_fails_with_advice() {
    let file = fixture("le", "hash-apow8.tch");
    let error = fail("tyrant", &["serve", &file]);
    assert!(error.contains("a file of Tokyo Cabinet: "), "{error}");
    assert!(error.contains(&format!("tyrant import {file} --into")), "{error}");
}

#[test]
fn serve_import_imports_once_and_leaves_the_file_unchanged() {
    let folder = Folder::new();
    let file = folder.copy("be", "hash-wal.tch");
    let log = folder.copy("be", "hash-wal.tch.wal");
    let before = (fs::read(&file).unwrap(), fs::read(&log).unwrap());
    let imported = folder.path("hash-wal.imported.tch");

    let mut server = Server::tyrant(&file, &["--import"]);
    assert_eq!(succeed("tyrant", &["count", "--server", &server.address()]), "200\n");
    assert!(server.log().contains(&format!("into {imported}")), "{}", server.log());
    server.exchange("set new 0 0 1\r\nx\r\n", "STORED\r\n");
    server.end(Signal::TERM);
    server.restart();
    assert_eq!(succeed("tyrant", &["count", "--server", &server.address()]), "201\n");
    assert!(server.log().contains("was already imported"), "{}", server.log());
    server.end(Signal::TERM);

    assert!((fs::read(&file).unwrap(), fs::read(&log).unwrap()) == before);
    let mut names: Vec<_> =
        fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["hash-wal.imported.tch", "hash-wal.tch", "hash-wal.tch.wal"]);
}

#[test]
fn serve_import_into_a_named_database_restarts_after_a_kill() {
    let folder = Folder::new();
    let into = folder.path("new.tch");
    let text = folder.path("left.tsv");
    fs::write(&text, "left\tbehind\n").unwrap();
    // The leftover of a killed import, and a database of the user.
    let (left, mine) = (folder.path(LEFT), folder.path("new.importing.tch"));
    succeed("tyrant", &["import", &text, "--into", &left]);
    succeed("tyrant", &["import", &text, "--into", &mine]);
    let file = fixture("le", "hash-apow8.tch");
    let server = Server::tyrant(&file, &["--import", "--into", &into]);
    assert_eq!(succeed("tyrant", &["count", "--server", &server.address()]), "60\n");
    assert!(Path::new(&into).exists());
    assert!(!Path::new(&left).exists());
    assert!(succeed("tyrant", &["inspect", &mine]).contains("1"));
}

/// Name of a database that is imported into `new.tch`.
const LEFT: &str = "new.importing-03c5389e984be841.tch";

#[test]
fn serve_import_leaves_the_database_alone_that_another_process_imports() {
    let folder = Folder::new();
    let under_way = folder.path(LEFT);
    fs::create_dir(&under_way).unwrap();
    let lock = fs::File::create(format!("{under_way}.lock")).unwrap();
    lock.lock().unwrap();
    let file = folder.copy("le", "hash-apow8.tch");
    let error = fail("tyrant", &["serve", &file, "--import", "--into", &folder.path("new.tch")]);
    assert!(error.contains("another process is importing into"), "{error}");
    assert!(Path::new(&under_way).exists() && !Path::new(&folder.path("new.tch")).exists());
}

#[test]
fn serve_import_detects_files_by_content() {
    let folder = Folder::new();
    let file = folder.path("tree.tch");
    fs::copy(fixtures("be").join("btree-dups.tcb"), &file).unwrap();
    let server = Server::tyrant(&file, &["--import"]);
    assert_eq!(succeed("tyrant", &["count", "--server", &server.address()]), "379\n");
    assert!(Path::new(&folder.path("tree.imported.tcb")).exists());
}

#[test]
fn serve_import_refuses_a_damaged_file() {
    let folder = Folder::new();
    let file = folder.copy("le", "hash-large.tch");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    for _ in 0..2 {
        let output = run("tyrant", &["serve", &file, "--import"]);
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("damaged places"), "{error}");
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    }
}

#[test]
fn a_fixed_length_database_takes_ids_alone_and_names_the_other_keys() {
    let folder = Folder::new();
    let (text, into) = (folder.path("k.tsv"), folder.path("n.tcf#width=8"));
    let lines = [
        "7\tseven",
        "k1\tone",
        "007\tother",
        "user10\ta",
        "cart10\tb",
        "10\tten",
        "min\tm",
        "next\tn",
        "0\tzero",
        "99999999999999999999\tg",
        "8\tlonger than 8",
    ];
    fs::write(&text, lines.join("\n")).unwrap();
    let error = fail("tyrant", &["import", &text, "--into", &into]);
    for named in [
        "line 2: the key \"k1\" is not an id\n",
        "line 3: the key \"007\" would become the id 7\n",
        "line 4: the key \"user10\"",
        "line 5: the key \"cart10\"",
        "line 7: the key \"min\"",
        "line 8: the key \"next\"",
        "line 9: the key \"0\"",
        "line 10: the key",
        "line 11: the value of the key \"8\" has 13 bytes, and the width is 8",
        "9 records were not imported; everything else was",
        ".tch",
    ] {
        assert!(error.contains(named), "{named} is not in {error}");
    }
    let expected = ["{\"key\":\"10\",\"value\":\"ten\"}", "{\"key\":\"7\",\"value\":\"seven\"}"];
    let name = folder.path("n.tcf");
    assert_eq!(exported(&name), expected);
    // Its own export is imported completely.
    let (copied, again) = (folder.path("c.jsonl"), folder.path("c.tcf"));
    succeed("tyrant", &["export", &name, &copied]);
    succeed("tyrant", &["import", &copied, "--into", &again]);
    assert_eq!(exported(&again), expected);
    // A line that cannot be read is still named by its number.
    fs::write(&text, "x\ta\n1\ta\nbroken\n").unwrap();
    let error = fail("tyrant", &["import", &text, "--into", &again]);
    assert!(error.contains("line 3: no TAB after the key; the 1 record before it was"), "{error}");
}

#[test]
fn a_tree_imported_into_a_fixed_length_database_merges_no_keys() {
    let folder = Folder::new();
    let (name, into) = (folder.path("n.tcf"), folder.path("n.tcf#width=255"));
    let tree = fixture("le", "btree-decimal.tcb");
    let error = fail("tyrant", &["import", &tree, "--into", &into]);
    assert!(error.contains("the key \"-300\" is not an id"), "{error}");
    let listed = fs::read_to_string(fixtures("expected").join("btree-decimal.tcb.tsv")).unwrap();
    let id = |line: &&str| {
        line.split('\t').next().is_some_and(|key| key.parse().is_ok_and(|id: i64| id > 0))
    };
    let (ids, others): (Vec<&str>, Vec<&str>) = listed.lines().partition(id);
    assert!(error.contains(&format!("{} records were not imported", others.len())), "{error}");
    let lines = ids.iter().map(|line| {
        let (key, value) = line.split_once('\t').expect("two columns");
        format!("{{\"key\":\"{key}\",\"value\":\"{value}\"}}")
    });
    let mut lines: Vec<String> = lines.collect();
    let mut found = exported(&name);
    lines.sort();
    found.sort();
    assert_eq!(found, lines);
}

#[test]
fn media_types_go_through_lines_without_a_record_of_the_server() {
    let folder = Folder::new();
    let mut server = Server::tyrant("a.tch", &[]);
    for (path, media_type) in [("a", "image/x-own"), ("b", "text/html"), ("c", "image/x-other")] {
        let mut stream = server.connect();
        write!(
            stream,
            "PUT /{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media_type}\r\nContent-Length: 1\r\n\
             Connection: close\r\n\r\nx"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    }
    let tyrant = |command: &str| succeed("tyrant", &[command, "--server", &server.address()]);
    assert_eq!(tyrant("count"), "3\n");
    assert!(!tyrant("list").contains("tyrant"));
    let source = server.folder.path().join("a.tch").display().to_string();
    assert!(server.end(Signal::TERM).success());
    let lines = exported(&source);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(lines[0], "{\"key\":\"a\",\"value\":\"x\",\"media_type\":\"image/x-own\"}");
    let (text, into) = (folder.path("a.jsonl"), folder.path("b.tch"));
    succeed("tyrant", &["export", &source, &text]);
    let output = succeed("tyrant", &["import", &text, "--into", &into]);
    assert!(output.ends_with(&format!("3 records in {into}\n")), "{output}");
    assert_eq!(exported(&into), lines);
    let tsv = folder.path("a.tsv");
    succeed("tyrant", &["export", &source, &tsv]);
    assert_eq!(fs::read_to_string(tsv).unwrap().lines().count(), 3);
}

#[test]
fn an_import_that_a_signal_ends_says_what_is_stored() {
    let folder = Folder::new();
    let (into, later) = (folder.path("n.tch"), folder.path("next one.tsv"));
    fs::write(&later, "later\tvalue\n").unwrap();
    let mut child = Command::new(path("tyrant"))
        .args(["import", "-", &later, "--format", "tsv", "--into", &into])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // More than a pipe holds: once it is written, the program reads lines.
    for number in 0..100_000 {
        writeln!(input, "{number:09}\tvalue").unwrap();
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    drop(input);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended.status), Some(2));
    let said = String::from_utf8(ended.stderr).unwrap();
    let lines = said.strip_prefix("tyrant: interrupted after ").expect(&said);
    assert!(lines.contains(" lines; they are stored"), "{said}");
    let next = format!("; then the same command from the file '{later}' on\n");
    assert!(said.ends_with(&next), "{said}");
    let lines = lines.split(' ').next().unwrap().replace(',', "");
    assert_eq!(exported(&into).len().to_string(), lines, "{said}");
}
