//! A damaged tree costs what is damaged, says so, and stays so until it is seen to.

use crate::{PATH, small_options};
use cabinet::testing::{FaultyStorage, Open, Storage, check_on};
use cabinet::{
    Damage, Database, Error, KeyOrder, Options, Ordered, Seek, Side, TreeDatabase, Wait,
};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

const KEYS: usize = 400;

fn key(number: usize) -> Vec<u8> {
    format!("key-{number:04}").into_bytes()
}

fn value(number: usize, round: usize) -> Vec<u8> {
    format!("value {number} of round {round}.").into_bytes()
}

fn open(storage: &FaultyStorage) -> cabinet::Result<(Arc<TreeDatabase>, Database)> {
    let options = small_options(KeyOrder::Lexical);
    let tree = TreeDatabase::open_on(Arc::new(storage.clone()), Path::new(PATH), &options, false)?;
    let tree = Arc::new(tree);
    let database = Database::from_engine(Arc::clone(&tree) as _);
    Ok((tree, database))
}

fn put_round(database: &Database, round: usize) {
    for number in 0..KEYS {
        database.put(&key(number), &value(number, round)).unwrap();
    }
}

fn damages(storage: &FaultyStorage) -> Vec<Damage> {
    let mut found = Vec::new();
    check_on(storage, Path::new(PATH), &|_| true, &mut |damage| found.push(damage)).unwrap();
    found
}

fn segments(storage: &FaultyStorage) -> Vec<String> {
    let mut names = storage.list(Path::new(PATH)).unwrap();
    names.retain(|name| name.ends_with(".log"));
    names.sort();
    names
}

fn contents(storage: &FaultyStorage, name: &str) -> Vec<u8> {
    let file = storage.open(&Path::new(PATH).join(name), Open::Existing).unwrap();
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// Flips a bit of the last place in the log that has these bytes.
fn flip(storage: &FaultyStorage, wanted: &[u8]) {
    for name in segments(storage).into_iter().rev() {
        let bytes = contents(storage, &name);
        if let Some(at) = bytes.windows(wanted.len()).rposition(|bytes| bytes == wanted) {
            let file = storage.open(&Path::new(PATH).join(name), Open::Existing).unwrap();
            return file.write_at(&[bytes[at] ^ 0x20], at as u64).unwrap();
        }
    }
    panic!("{:?} is not there", String::from_utf8_lossy(wanted));
}

fn salvage_command() -> String {
    format!("`tyrant salvage {PATH} --into NEW`")
}

/// The first and the last key that cannot be read, after a look at everything that shows them.
fn unreadable(tree: &TreeDatabase, database: &Database) -> (usize, usize) {
    let mut lost = Vec::new();
    for number in 0..KEYS {
        match database.get(&key(number)) {
            Ok(found) => assert_eq!(found.unwrap(), value(number, 1), "{number}"),
            Err(Error::Corrupted { file, offset, .. }) => {
                assert!(file.starts_with(PATH) && offset > 0);
                lost.push(number);
            }
            Err(error) => panic!("{error}"),
        }
    }
    let (first, last) = (lost[0], lost[lost.len() - 1]);
    assert_eq!(lost.len(), last - first + 1, "they lie together");
    let is_corrupted = |result: cabinet::Result<()>| matches!(result, Err(Error::Corrupted { .. }));
    // A list shows what is before, and ends in an error.
    let mut shown = 0;
    let listed = database.for_each(|_| {
        shown += 1;
        ControlFlow::Continue(())
    });
    assert!(is_corrupted(listed) && shown <= first);
    let mut cursor = database.cursor().unwrap();
    assert!(cursor.jump(&key(last + 1)).unwrap());
    assert_eq!(cursor.key(), Some(&key(last + 1)[..]));
    assert!(is_corrupted(cursor.prev().map(|_| ())));
    let seek = Seek::AtOrAfter(&key(first));
    assert!(is_corrupted(tree.seek(seek, Wait::Block, &mut |_, _| ()).map(|_| ())));
    assert!(is_corrupted(database.put(&key(first), b"new").map(|_| ())));
    assert!(is_corrupted(database.remove(&key(last)).map(|_| ())));
    (first, last)
}

#[test]
fn a_leaf_that_is_damaged_costs_its_keys_and_no_others() {
    let storage = FaultyStorage::new();
    let (tree, database) = open(&storage).unwrap();
    put_round(&database, 1);
    drop((tree, database));
    flip(&storage, &value(200, 1));
    assert_eq!(damages(&storage).len(), 1);
    for _ in 0..3 {
        let (tree, database) = open(&storage).unwrap();
        let (first, last) = unreadable(&tree, &database);
        assert!(first <= 200 && 200 <= last && last - first < 20, "{first} {last}");
        assert_eq!(database.len(), KEYS as u64);
        // Others change, also all the time.
        database.put(&key(0), &value(0, 2)).unwrap();
        tree.checkpoint().unwrap();
        database.put(&key(0), &value(0, 1)).unwrap();
        database.optimize().unwrap();
        assert_eq!(unreadable(&tree, &database), (first, last));
        drop((tree, database));
        assert!(!damages(&storage).is_empty());
    }
}

#[test]
fn leaves_in_a_segment_that_is_missing_cost_their_keys_and_no_others() {
    let storage = FaultyStorage::new();
    let (tree, database) = open(&storage).unwrap();
    put_round(&database, 1);
    database.optimize().unwrap();
    drop((tree, database));
    let name = &segments(&storage)[0];
    storage.remove(&Path::new(PATH).join(name)).unwrap();
    assert!(!damages(&storage).is_empty());
    for _ in 0..2 {
        let (tree, database) = open(&storage).unwrap();
        let mut read = 0;
        for number in 0..KEYS {
            match database.get(&key(number)) {
                Ok(found) => {
                    assert_eq!(found.unwrap(), value(number, 1));
                    read += 1;
                }
                Err(Error::Corrupted { file, offset, .. }) => {
                    assert!(file.ends_with(name) && offset > 0, "{}", file.display());
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(read < KEYS);
        tree.checkpoint().unwrap();
        drop((tree, database));
        assert!(!damages(&storage).is_empty());
    }
}

#[test]
fn the_last_page_of_a_checkpoint_is_no_torn_record_after_a_kill() {
    let storage = FaultyStorage::new();
    let (tree, database) = open(&storage).unwrap();
    put_round(&database, 1);
    tree.checkpoint().unwrap();
    let storage = storage.kill();
    drop((tree, database));
    flip(&storage, &value(KEYS - 1, 1));
    assert!(!damages(&storage).is_empty());
    for opening in 0..4 {
        let (tree, database) = open(&storage).unwrap();
        assert!(opening > 0 || !database.damages().is_empty());
        let lost = (0..KEYS).filter(|number| match database.get(&key(*number)) {
            Ok(found) => found.unwrap() != value(*number, 1),
            Err(Error::Corrupted { .. }) => true,
            Err(error) => panic!("{error}"),
        });
        let lost: Vec<usize> = lost.collect();
        assert!(lost.len() < 20 && lost.last() == Some(&(KEYS - 1)), "{lost:?}");
        assert_eq!(lost.len(), KEYS - lost[0], "{lost:?}");
        // Bytes written now must not be put at the offset of the page.
        for number in 0..lost[0] {
            database.put(&key(number), &value(number, 1)).unwrap();
        }
        tree.checkpoint().unwrap();
        drop((tree, database));
        assert!(!damages(&storage).is_empty(), "opening {opening}");
    }
}

/// A tree whose process was killed behind a checkpoint, with one change that is damaged.
fn killed_with_damage() -> FaultyStorage {
    let storage = FaultyStorage::new();
    let (tree, database) = open(&storage).unwrap();
    put_round(&database, 1);
    tree.checkpoint().unwrap();
    put_round(&database, 2);
    let killed = storage.kill();
    flip(&killed, &[&key(100)[..], &[4], &value(100, 2)].concat());
    killed
}

#[test]
fn one_bad_change_after_an_unclean_stop_costs_that_change_and_is_not_forgotten() {
    let storage = killed_with_damage();
    assert_eq!(damages(&storage).len(), 1);
    for opening in 0..3 {
        let (tree, database) = open(&storage).unwrap();
        for number in 0..KEYS {
            let round = if number == 100 { 1 } else { 2 };
            assert_eq!(database.get(&key(number)).unwrap().unwrap(), value(number, round));
        }
        assert!(!database.damages().is_empty(), "opening {opening}");
        drop((tree, database));
        assert!(!damages(&storage).is_empty(), "opening {opening}");
    }
}

#[test]
fn changes_of_duplicates_behind_damage_are_made_where_all_of_the_key_is_known() {
    for is_known in [true, false] {
        let storage = FaultyStorage::new();
        let (tree, database) = open(&storage).unwrap();
        put_round(&database, 1);
        tree.checkpoint().unwrap();
        put_round(&database, 2);
        if is_known {
            database.remove_all(&key(7)).unwrap();
            database.put(&key(7), b"first").unwrap();
        }
        database.put_duplicate(&key(7), b"second", Side::After).unwrap();
        let storage = storage.kill();
        flip(&storage, &[&key(100)[..], &[4], &value(100, 2)].concat());
        for opening in 0..2 {
            // Round 2 of key 7 is behind the damage or before it.
            expect_all_of_key_7_or_a_refusal(&storage, is_known, opening);
        }
    }
}

/// Opens a damaged tree. It has the values of key 7 where all of that key is known, else it refuses
/// to open and names the salvage.
fn expect_all_of_key_7_or_a_refusal(storage: &FaultyStorage, is_known: bool, opening: u32) {
    match open(storage) {
        Ok((_tree, database)) => {
            assert!(is_known);
            assert_eq!(database.get_all(&key(7)).unwrap(), [&b"first"[..], b"second"]);
        }
        Err(error @ Error::Corrupted { .. }) => {
            assert!(!is_known, "{error}");
            assert!(error.to_string().contains(&salvage_command()), "{error}");
        }
        Err(error) => panic!("opening {opening}: {error}"),
    }
}

#[test]
fn changes_of_duplicates_behind_a_missing_segment_are_made_where_all_of_the_key_is_known() {
    for is_known in [true, false] {
        let storage = FaultyStorage::new();
        let (tree, database) = open(&storage).unwrap();
        put_round(&database, 1);
        tree.checkpoint().unwrap();
        let before = segments(&storage).len();
        // Enough for several segments.
        (2..7).for_each(|round| put_round(&database, round));
        if is_known {
            database.remove_all(&key(7)).unwrap();
            database.put(&key(7), b"first").unwrap();
        }
        database.put_duplicate(&key(7), b"second", Side::After).unwrap();
        let storage = storage.kill();
        let names = segments(&storage);
        assert!(names.len() > before + 1);
        // Round 6 of key 7 is in it or before it.
        storage.remove(&Path::new(PATH).join(&names[names.len() - 2])).unwrap();
        for opening in 0..2 {
            assert!(!damages(&storage).is_empty());
            expect_all_of_key_7_or_a_refusal(&storage, is_known, opening);
        }
    }
}

#[test]
fn a_missing_segment_of_pages_costs_no_change_of_other_keys() {
    let storage = FaultyStorage::new();
    let (tree, database) = open(&storage).unwrap();
    let value = |number: usize| [number as u8; 1000];
    for number in 0..KEYS {
        database.put(&key(number), &value(number)).unwrap();
    }
    let last = key(KEYS);
    database.put(&last, b"first").unwrap();
    let before = segments(&storage);
    tree.checkpoint().unwrap();
    let mut begun = segments(&storage);
    begun.retain(|name| !before.contains(name));
    assert!(begun.len() > 3, "{begun:?}");
    database.put_duplicate(&last, b"second", Side::After).unwrap();
    let storage = storage.kill();
    drop((tree, database));
    storage.remove(&Path::new(PATH).join(&begun[1])).unwrap();
    for _ in 0..2 {
        assert!(!damages(&storage).is_empty());
        let (_tree, database) = open(&storage).unwrap();
        assert_eq!(database.get_all(&last).unwrap(), [&b"first"[..], b"second"]);
        let lost = (0..KEYS).filter(|number| database.get(&key(*number)).is_err()).count();
        assert!(lost > 0 && lost < KEYS / 2, "{lost}");
    }
}

/// The opening that meets the loss writes a checkpoint, so that no later change is behind it.
#[test]
fn changes_after_the_loss_of_the_last_segment_of_a_closed_tree_are_all_made() {
    let storage = FaultyStorage::new();
    let (tree, database) = open(&storage).unwrap();
    put_round(&database, 1);
    tree.checkpoint().unwrap();
    // Enough for several segments: the last one has all leaves but that of the last key.
    let (last, value) = (key(KEYS - 1), [b'v'; 1000]);
    for _ in 0..100 {
        database.put(&last, &value).unwrap();
    }
    drop((tree, database));
    let name = segments(&storage).pop().unwrap();
    storage.remove(&Path::new(PATH).join(name)).unwrap();
    let (tree, database) = open(&storage).unwrap();
    assert!(database.get(&key(0)).is_err());
    database.put_duplicate(&last, b"second", Side::After).unwrap();
    let storage = storage.kill();
    drop((tree, database));
    for _ in 0..2 {
        let (_tree, database) = open(&storage).unwrap();
        assert_eq!(database.get_all(&last).unwrap(), [&value[..], b"second"]);
        assert!(!database.damages().is_empty());
    }
}

#[test]
fn a_tree_whose_unreadable_leaf_has_changed_since_does_not_open() {
    let storage = FaultyStorage::new();
    let (tree, database) = open(&storage).unwrap();
    put_round(&database, 1);
    drop((tree, database));
    let (_tree, database) = open(&storage).unwrap();
    database.put(&key(200), &value(200, 2)).unwrap();
    let storage = storage.kill();
    flip(&storage, &value(200, 1));
    for _ in 0..2 {
        let error = open(&storage).err().unwrap();
        assert!(matches!(error, Error::Corrupted { .. }), "{error}");
        assert!(error.to_string().contains(&salvage_command()), "{error}");
        assert!(!damages(&storage).is_empty());
    }
}

/// A tree of the real disk, with threads of its own.
#[test]
fn a_tree_that_is_closed_or_killed_under_load_is_not_damaged() {
    for round in 0..6 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(PATH);
        let mut options = Options::default();
        options.segment_bytes = Some(256 << 10);
        let database = options.open(&path).unwrap();
        for number in 0..4000 + 500 * round {
            database.put(&key(number), &value(number, round).repeat(3)).unwrap();
        }
        // As a process that is killed leaves it, while its threads are at work.
        let left = folder.path().join("left.tcb");
        std::fs::create_dir(&left).unwrap();
        if round % 2 == 0 {
            drop(database);
        }
        for file in std::fs::read_dir(&path).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), left.join(file.file_name())).unwrap();
        }
        let mut found = Vec::new();
        let checked = cabinet::check(&left, &mut |damage| found.push(damage)).unwrap();
        assert_eq!((checked.damages, &found[..]), (0, &[][..]), "round {round}");
        let database = options.open(&left).unwrap();
        assert_eq!(database.len(), (4000 + 500 * round) as u64);
        drop(database);
        let checked = cabinet::check(&left, &mut |damage| panic!("{damage}")).unwrap();
        assert_eq!((checked.damages, checked.torn_bytes), (0, 0));
    }
}
