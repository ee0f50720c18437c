//! Files that something else has removed, renamed or changed: the database reports them again and
//! again, serves what is left, and takes nothing for gone that it cannot read.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use cabinet::{Damage, Database, Error, Options, check};
use std::fs;
use std::path::{Path, PathBuf};

const RECORDS: u32 = 3000;

/// Damages a file.
type Harm = fn(&Path);

/// Keys that hash and fixed-length databases take.
fn key(number: u32) -> Vec<u8> {
    (number + 1).to_string().into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    format!("value {number} ").repeat(1 + number as usize % 9).into_bytes()
}

fn options() -> Options {
    let mut options = Options::default();
    options.segment_bytes = Some(64 << 10);
    options
}

fn open(path: &Path) -> cabinet::Result<Database> {
    options().open(path)
}

fn fill(path: &Path) -> Database {
    let database = open(path).unwrap();
    for number in 0..RECORDS {
        database.put(&key(number), &value(number)).unwrap();
    }
    database
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// The files of a database of several segments: closed, or as a process leaves them that is killed
/// before a checkpoint.
fn make(folder: &Path, suffix: &str, is_closed: bool) -> PathBuf {
    let path = folder.join(format!("casket.{suffix}"));
    let database = fill(&path);
    if is_closed {
        drop(database);
        return path;
    }
    let killed = folder.join(format!("killed.{suffix}"));
    copy_files(&path, &killed);
    killed
}

fn segments(path: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> =
        names.filter(|path| path.extension().is_some_and(|extension| extension == "log")).collect();
    segments.sort();
    segments
}

fn damages(path: &Path) -> Vec<Damage> {
    let mut found = Vec::new();
    let checked = check(path, &mut |damage| found.push(damage)).unwrap();
    assert_eq!(checked.damages, found.len() as u64);
    found
}

/// Each way to make a database: its suffix, and whether it is closed.
fn each_way(mut test: impl FnMut(&Path, bool)) {
    for suffix in ["tch", "tcf"] {
        for is_closed in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let path = make(folder.path(), suffix, is_closed);
            assert_eq!(damages(&path), [], "{suffix}");
            test(&path, is_closed);
        }
    }
}

/// How many of the records are served; the others are errors, or, where nothing points to them,
/// nothing.
fn served(database: &Database) -> (u32, u32) {
    let (mut good, mut errors) = (0, 0);
    for number in 0..RECORDS {
        match database.get(&key(number)) {
            Ok(Some(found)) => {
                assert_eq!(found, value(number), "{number}");
                good += 1;
            }
            Ok(None) => {}
            Err(Error::Corrupted { what, .. }) => {
                assert_eq!(what, "the segment is missing");
                errors += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    (good, errors)
}

#[test]
fn a_segment_that_is_gone_is_damage_wherever_it_was() {
    each_way(|path, is_closed| {
        let all = segments(path);
        for index in [0, all.len() / 2, all.len() - 1] {
            let damaged = path.with_extension(format!("{index}.{}", suffix_of(path)));
            copy_files(path, &damaged);
            let gone = segments(&damaged)[index].clone();
            fs::remove_file(&gone).unwrap();
            let names = |found: &[Damage]| {
                found.iter().any(|damage| damage.file == gone && damage.what.contains("missing"))
            };
            assert!(names(&damages(&damaged)), "{index} of {}", path.display());
            if !is_closed {
                // Any record may have changed in it, so what is older is not served as the last.
                let refused = open(&damaged).map(drop).unwrap_err();
                let Error::Corrupted { file, what, .. } = &refused else { panic!("{refused}") };
                assert!(*file == gone && what.contains("`tyrant salvage "), "{refused}");
                let back = fs::copy(&all[index], &gone);
                assert!(back.is_ok() && served(&open(&damaged).unwrap()) == (RECORDS, 0));
                continue;
            }
            for _ in 0..2 {
                let database = open(&damaged).unwrap();
                assert!(names(&database.damages()));
                let (good, errors) = served(&database);
                assert!(good > RECORDS / 2, "{good}");
                // The last one may hold next to nothing.
                assert!(good < RECORDS || index + 1 == all.len(), "{good}");
                assert_eq!(good + errors, RECORDS, "no record is silently gone");
                drop(database);
                assert!(names(&damages(&damaged)), "it is said again");
            }
        }
    });
}

#[test]
fn where_the_only_segment_is_gone_its_records_are_errors_and_versions_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("casket.tch");
    let version = {
        let database = Options::new().open(&path).unwrap();
        database.put(b"key", b"value").unwrap();
        database.put(b"other", b"value").unwrap()
    };
    fs::remove_file(&segments(&path)[0]).unwrap();
    let database = Options::new().open(&path).unwrap();
    assert!(matches!(database.get(b"key"), Err(Error::Corrupted { .. })));
    assert!(database.put(b"new", b"value").unwrap() > version);
    assert_eq!(database.damages().len(), 1);
}

fn suffix_of(path: &Path) -> &str {
    path.extension().unwrap().to_str().unwrap()
}

fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at] ^= 1;
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_damaged_header_is_reported_and_costs_no_record() {
    each_way(|path, _| {
        for index in 0..segments(path).len() {
            let damaged = path.with_extension(format!("{index}.{}", suffix_of(path)));
            copy_files(path, &damaged);
            flip(&segments(&damaged)[index], 20);
            assert_eq!(damages(&damaged).len(), 1, "{index} of {}", path.display());
            let database = open(&damaged).unwrap();
            assert_eq!(database.damages().len(), 1);
            assert_eq!(served(&database), (RECORDS, 0));
            database.put(b"9000", b"more").unwrap();
            drop(database);
            assert_eq!(damages(&damaged).len(), 1, "it is said again");
            assert_eq!(served(&open(&damaged).unwrap()), (RECORDS, 0));
        }
    });
}

/// Bytes of the header of a segment.
const HEADER_BYTES: usize = 64;

/// As if the page that begins one segment had been written to another.
#[test]
fn a_header_of_another_segment_is_reported_and_costs_no_record() {
    each_way(|path, _| {
        let count = segments(path).len();
        for (from, to) in [(0, 1), (1, 0), (0, count - 1), (count - 1, 0)] {
            let damaged = path.with_extension(format!("{from}-{to}.{}", suffix_of(path)));
            copy_files(path, &damaged);
            let files = segments(&damaged);
            let header = fs::read(&files[from]).unwrap()[..HEADER_BYTES].to_vec();
            let mut contents = fs::read(&files[to]).unwrap();
            contents[..HEADER_BYTES].copy_from_slice(&header);
            fs::write(&files[to], contents).unwrap();
            let found = damages(&damaged);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].what.contains("another segment"), "{found:?}");
            let salvaged = damaged.with_extension(format!("salvaged.{}", suffix_of(path)));
            let into = open(&salvaged).unwrap();
            cabinet::salvage(&damaged, &into, &mut |_| {}).unwrap();
            assert_eq!(served(&into), (RECORDS, 0), "{from} {to}");
            let database = open(&damaged).unwrap();
            assert_eq!(database.damages(), found);
            assert_eq!(served(&database), (RECORDS, 0), "{from} {to}");
        }
    });
}

#[test]
fn a_damaged_header_of_a_cleared_log_brings_nothing_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("casket.tch");
    let database = fill(&path);
    database.clear().unwrap();
    database.put(b"key", b"value").unwrap();
    drop(database);
    flip(&segments(&path)[0], 12);
    let database = open(&path).unwrap();
    assert_eq!((database.len(), database.damages().len()), (1, 1));
}

#[test]
fn segments_under_each_others_names_are_told_apart_by_their_headers() {
    each_way(|path, _| {
        let all = segments(path);
        let beside = path.join("beside");
        fs::rename(&all[0], &beside).unwrap();
        fs::rename(&all[1], &all[0]).unwrap();
        fs::rename(&beside, &all[1]).unwrap();
        assert_eq!(damages(path).len(), 2);
        let database = open(path).unwrap();
        assert_eq!(database.damages().len(), 2);
        assert_eq!(served(&database), (RECORDS, 0));
        drop(database);
        // They have their names again, and nothing was lost.
        assert_eq!(damages(path), []);
        assert_eq!(served(&open(path).unwrap()), (RECORDS, 0));
    });
}

#[test]
fn one_flipped_bit_costs_one_record_and_is_reported() {
    each_way(|path, _| {
        for index in 0..segments(path).len() {
            let damaged = path.with_extension(format!("{index}.{}", suffix_of(path)));
            copy_files(path, &damaged);
            let file = &segments(&damaged)[index];
            let bytes = fs::read(file).unwrap();
            let Some(place) = bytes.windows(6).position(|bytes| bytes == b"value ") else {
                continue;
            };
            flip(file, place);
            let found = damages(&damaged);
            assert_eq!(found.len(), 1, "{index} of {}", path.display());
            let database = open(&damaged).unwrap();
            let mut lost = 0;
            for number in 0..RECORDS {
                match database.get(&key(number)) {
                    Ok(Some(found)) => assert_eq!(found, value(number)),
                    Ok(None) | Err(Error::Corrupted { .. }) => lost += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            assert_eq!(lost, 1, "{index} of {}: {found:?}", damaged.display());
            drop(database);
            assert!(!damages(&damaged).is_empty(), "it is said again");
        }
    });
}

#[test]
fn either_copy_of_the_manifest_suffices_and_a_bad_one_is_made_again() {
    let ways: [(&str, Harm); 4] = [
        ("without", |file| fs::remove_file(file).unwrap()),
        ("flipped", |file| flip(file, 20)),
        ("flipped in the list", |file| flip(file, 520)),
        ("empty", |file| fs::write(file, b"").unwrap()),
    ];
    each_way(|path, is_closed| {
        for name in ["manifest", "manifest.2"] {
            for (way, damage) in ways {
                damage(&path.join(name));
                // A list may be torn by a crash.
                let expected = usize::from(is_closed || way != "flipped in the list");
                let found = damages(path);
                assert_eq!(found.len(), expected, "{name} {way}: {found:?}");
                if !is_closed {
                    let copy = path.with_extension(format!("copy.{}", suffix_of(path)));
                    copy_files(path, &copy);
                    let database = open(&copy).unwrap();
                    assert_eq!(served(&database), (RECORDS, 0));
                    drop(database);
                    assert_eq!(damages(&copy), []);
                    fs::remove_dir_all(&copy).unwrap();
                    fs::copy(path.join(other(name)), path.join(name)).unwrap();
                    continue;
                }
                let database = open(path).unwrap();
                assert_eq!(database.damages().len(), 1, "{name} {way}");
                assert_eq!(served(&database), (RECORDS, 0));
                drop(database);
                assert_eq!(damages(path), []);
            }
        }
    });
}

fn other(name: &str) -> &str {
    if name == "manifest" { "manifest.2" } else { "manifest" }
}

#[test]
fn without_any_manifest_the_error_names_the_command_that_salvages() {
    each_way(|path, _| {
        for name in ["manifest", "manifest.2"] {
            flip(&path.join(name), 20);
        }
        for error in [open(path).err(), check(path, &mut |_| ()).err()] {
            assert!(error.unwrap().to_string().contains("tyrant salvage"));
        }
        for name in ["manifest", "manifest.2"] {
            fs::remove_file(path.join(name)).unwrap();
        }
        assert!(open(path).err().unwrap().to_string().contains("tyrant salvage"));
    });
}

#[test]
fn a_database_of_the_first_format_opens_and_is_brought_up_to_date() {
    each_way(|path, _| {
        let head = fs::read(path.join("manifest")).unwrap()[..60].to_vec();
        let mut first = head;
        first[8] = 1;
        first.extend_from_slice(&crc32c::crc32c(&first).to_le_bytes());
        fs::write(path.join("manifest"), first).unwrap();
        fs::remove_file(path.join("manifest.2")).unwrap();
        assert_eq!(damages(path), []);
        let database = open(path).unwrap();
        assert_eq!(database.damages(), []);
        assert_eq!(served(&database), (RECORDS, 0));
        drop(database);
        fs::remove_file(&segments(path)[0]).unwrap();
        assert!(!damages(path).is_empty());
    });
}

#[test]
fn removing_the_lock_file_lets_no_second_process_in() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("casket.tch");
    let _database = open(&path).unwrap();
    fs::remove_file(path.join("lock")).unwrap();
    assert!(matches!(check(&path, &mut |_| ()), Err(Error::InUse { .. })));
    assert!(matches!(open(&path), Err(Error::InUse { .. })));
}

/// A list of segments that was being written when the process was killed, which had begun to open
/// the database, is no damage; one that was whole before is.
#[test]
fn a_manifest_that_an_opening_was_writing_when_it_was_killed_is_no_damage() {
    let folder = tempfile::tempdir().unwrap();
    let opened = make(folder.path(), "tch", true);
    let closed = folder.path().join("closed.tch");
    copy_files(&opened, &closed);
    let _opened = open(&opened).unwrap();
    for name in ["manifest", "manifest.2"] {
        for (state, is_damage) in [(&opened, false), (&closed, true)] {
            let left = folder.path().join(format!("left-{name}-{is_damage}.tch"));
            copy_files(&closed, &left);
            let mut bytes = fs::read(state.join(name)).unwrap();
            let list = &mut bytes[512..];
            assert!(list.iter().any(|byte| *byte != 0));
            list.fill(0);
            fs::write(left.join(name), bytes).unwrap();
            assert_eq!(damages(&left).len(), usize::from(is_damage), "{name}");
            let database = open(&left).unwrap();
            assert_eq!(database.damages().len(), usize::from(is_damage), "{name}");
            assert_eq!(served(&database), (RECORDS, 0));
            drop(database);
            assert_eq!(damages(&left), [], "it was made again");
        }
    }
}

/// A process leaves zeros behind the last record, so a file that ends there was cut by something
/// else.
#[test]
fn a_log_that_is_cut_between_two_records_after_a_kill_is_damage() {
    for suffix in ["tch", "tcf"] {
        let folder = tempfile::tempdir().unwrap();
        let killed = make(folder.path(), suffix, false);
        let last = segments(&killed).pop().unwrap();
        let bytes = fs::read(&last).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        let before = bytes.windows(6).rposition(|bytes| bytes == b"value ").unwrap();
        for length in [64, before, end, end.next_multiple_of(8)] {
            let cut = folder.path().join(format!("cut-{length}.{suffix}"));
            copy_files(&killed, &cut);
            let path = cut.join(last.file_name().unwrap());
            fs::OpenOptions::new().write(true).open(path).unwrap().set_len(length as u64).unwrap();
            assert_ne!(damages(&cut), [], "{suffix} cut at {length} of {end}");
            for _ in 0..2 {
                let database = open(&cut).unwrap();
                assert_ne!(database.damages(), [], "{suffix} cut at {length} of {end}");
                database.put(b"7", b"new").unwrap();
                drop(database);
                assert_ne!(damages(&cut), [], "it is said again");
            }
        }
    }
}
