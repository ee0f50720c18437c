//! Copies of databases: when they are taken, and what they consist of.

#[path = "support/wait.rs"]
mod wait;

use cabinet::name::Kind;
use cabinet::{Database, Error, Inventory, check_those};
use std::fs;
use std::path::Path;
use std::thread;

fn open(path: &Path) -> Database {
    Database::open(path.to_str().expect("UTF-8")).expect("a database")
}

#[test]
fn an_inventory_names_the_files_that_make_a_database() {
    let kinds =
        [("tch", Kind::Hash), ("tcb", Kind::Tree), ("tcf", Kind::Fixed), ("tct", Kind::Table)];
    for (suffix, kind) in kinds {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(format!("casket.{suffix}"));
        let database = open(&path);
        database.put(b"1", b"a\0b").expect("a put");
        assert!(matches!(Inventory::of(&path), Err(Error::InUse { .. })));
        let copies = ["one", "two"].map(|name| folder.path().join(format!("{name}.{suffix}")));
        for copy in &copies {
            database.copy_to(copy).expect("a copy");
        }
        drop(database);
        let [one, two] = copies.each_ref().map(|copy| Inventory::of(copy).expect("an inventory"));
        assert_eq!((one.kind, one.database_id), (kind, two.database_id));
        // The inventory lists all that a database is made of: other files can be removed.
        for file in fs::read_dir(&copies[0]).expect("a folder") {
            let file = file.expect("a file");
            let name = file.file_name().into_string().expect("UTF-8");
            if !one.files.contains(&name) {
                fs::remove_file(file.path()).expect("to remove it");
            }
        }
        assert_eq!(open(&copies[0]).get(b"1").expect("a read").as_deref(), Some(&b"a\0b"[..]));
        // The first segment is the same in both, and the last is each one's own.
        let segments = |of: &Inventory| {
            of.files.iter().filter(|name| Inventory::is_of_log(name)).cloned().collect::<Vec<_>>()
        };
        assert!(segments(&two).starts_with(&segments(&one)[..1]));
        assert!(one.files.iter().all(|name| Inventory::is_file_name(name)));
        assert_eq!(one.files.last().map(String::as_str), Some("manifest"));
    }
    for name in ["lock", "position", "reserve", "1.log", "../manifest", "0000000001.log.damaged"] {
        assert!(!Inventory::is_file_name(name), "{name}");
    }
    assert!(Inventory::of("there is none").is_err());
}

#[test]
fn a_copy_is_of_the_moment_that_was_chosen() {
    for suffix in ["tch", "tcb", "tcf", "tct"] {
        let folder = tempfile::tempdir().expect("a folder");
        let database = open(&folder.path().join(format!("casket.{suffix}")));
        let copy = folder.path().join(format!("copy.{suffix}"));
        let mut asked = 0;
        let mut take = |copy: &mut dyn FnMut() -> cabinet::Result<()>| {
            asked += 1;
            if asked < 3 {
                return Ok(false);
            }
            // Others write meanwhile: a callback may not.
            let put =
                |key, value| thread::scope(|scope| scope.spawn(|| database.put(key, value)).join());
            put(&b"1"[..], &b"before\0"[..]).expect("a thread")?;
            copy()?;
            put(b"2", b"after\0").expect("a thread")?;
            Ok(true)
        };
        database.copy_at(&copy, &mut take).expect("a copy");
        assert_eq!(asked, 3);
        let copied = open(&copy);
        assert!(copied.get(b"1").expect("a read").is_some(), "{suffix}");
        assert!(copied.get(b"2").expect("a read").is_none(), "{suffix}");
        // If it cannot be taken, nothing is made.
        let none = folder.path().join(format!("none.{suffix}"));
        let refused = || Error::Conflict;
        database.copy_at(&none, &mut |_| Err(refused())).expect_err("an error");
        assert!(!none.exists());
    }
}

#[test]
fn a_database_that_is_copied_again_and_again_has_not_ever_more_segments() {
    for suffix in ["tch", "tcb"] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(format!("casket.{suffix}"));
        let copy = folder.path().join(format!("copy.{suffix}"));
        let database = open(&path);
        let segments = |database: &Database| -> u64 {
            let stats = database.stats();
            let stat = stats.iter().find(|(name, _)| *name == "segments").expect("a stat");
            stat.1.parse().expect("a number")
        };
        let key = |round: u32| (round + 1).to_string().into_bytes();
        for round in 0..160_u32 {
            database.put(&key(round), &round.to_le_bytes()).expect("a put");
            database.copy_to(&copy).expect("a copy");
            fs::remove_dir_all(&copy).expect("to remove the copy");
        }
        wait::wait_until_at_most(140, || segments(&database));
        drop(database);
        let database = open(&path);
        assert!(segments(&database) <= 140);
        for round in 0..160 {
            let value = database.get(&key(round)).expect("a read");
            assert_eq!(value.as_deref(), Some(&round.to_le_bytes()[..]), "{suffix} {round}");
        }
    }
}

#[test]
fn only_those_files_are_checked_that_are_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("casket.tch");
    let database = open(&path);
    for round in 0..3_u8 {
        database.put(&[round], &[7; 1000]).expect("a put");
        let copy = folder.path().join(format!("{round}.tch"));
        database.copy_to(&copy).expect("a copy");
    }
    drop(database);
    let copy = folder.path().join("2.tch");
    let files = Inventory::of(&copy).expect("an inventory").files;
    let segment = copy.join(&files[1]);
    let mut bytes = fs::read(&segment).expect("a segment");
    bytes[500] ^= 1;
    fs::write(&segment, &bytes).expect("to damage it");
    let damages = |wanted: &dyn Fn(&str) -> bool| {
        let mut found = Vec::new();
        let checked = check_those(&copy, wanted, &mut |damage| found.push(damage.file));
        assert_eq!(checked.expect("a check").damages, found.len() as u64);
        found
    };
    assert_eq!(damages(&|name| name != files[1]), Vec::<std::path::PathBuf>::new());
    assert_eq!(damages(&|name| name == files[1]), [segment]);
}
