//! Salvaging damaged databases: every record that is whole comes back, with no other value than it
//! had. As few removed records as possible come back to a tree whose checkpoint is lost.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use cabinet::limits::CACHE_BYTES_MIN;
use cabinet::name::Kind;
use cabinet::table::{IndexChange, IndexKind, Row};
use cabinet::testing::RealStorage;
use cabinet::{
    Database, Engine, Error, KeyOrder, Maintenance, Meta, Options, Ordered, Salvaged, Side,
    TreeDatabase, Wait,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Values of each key of a tree, and the keys that were removed.
#[derive(Default)]
struct Model {
    values: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    removed: BTreeSet<Vec<u8>>,
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

/// Small leaves, segments and cache, so that pages are written and moved all the time.
fn options() -> Options {
    let mut options = Options::default();
    options.segment_bytes = Some(64 << 10);
    options.leaf_bytes = Some(512);
    options.cache_bytes = Some(8 << 10);
    options
}

fn open(path: &Path) -> cabinet::Result<TreeDatabase> {
    TreeDatabase::open_on(Arc::new(RealStorage), path, &options(), false)
}

fn change(tree: &TreeDatabase, model: &mut Model, chance: &mut Chance) {
    let key = format!("key-{:04}", chance.below(400)).into_bytes();
    let value = format!("value {} ", chance.below(1000)).repeat(1 + chance.below(6) as usize);
    let value = value.into_bytes();
    let values = model.values.entry(key.clone()).or_default();
    match chance.below(10) {
        0..6 => {
            tree.put(&key, &value, Meta::NONE, Wait::Block).unwrap();
            match values.first_mut() {
                Some(first) => *first = value,
                None => values.push(value),
            }
        }
        6 => {
            tree.add(&key, &value, Meta::NONE, Side::After, Wait::Block).unwrap();
            values.push(value);
        }
        _ => {
            tree.remove_all(&key, Wait::Block).unwrap();
            values.clear();
            model.removed.insert(key.clone());
        }
    }
    if values.is_empty() {
        model.values.remove(&key);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// A tree that was closed, or of which the process was killed, after some checkpoints; the log no
/// longer begins with its first segment.
fn make(folder: &Path, seed: u64) -> (PathBuf, Model) {
    let (path, left) = (folder.join("casket.tcb"), folder.join("left.tcb"));
    let mut chance = Chance(seed);
    let mut model = Model::default();
    let tree = open(&path).unwrap();
    for round in 0..4 {
        for _ in 0..200 + chance.below(400) {
            change(&tree, &mut model, &mut chance);
        }
        match chance.below(3) {
            _ if round == 0 => tree.optimize(None).unwrap(),
            0 => tree.optimize(None).unwrap(),
            1 => tree.checkpoint().unwrap(),
            _ => {}
        }
    }
    if seed.is_multiple_of(2) {
        drop(tree);
        copy(&path, &left);
    } else {
        copy(&path, &left);
    }
    (left, model)
}

/// Does something to the file of a checkpoint.
type Loss = fn(&Path);

/// Ways to lose a checkpoint, and whether it still says when it was begun.
const LOSSES: [(Loss, bool); 4] = [
    (|path| change_file(path, |bytes| bytes[60] ^= 1), true),
    (|path| change_file(path, |bytes| bytes.truncate(bytes.len() / 2)), true),
    (|path| change_file(path, |bytes| bytes[..100].fill(0)), false),
    (|path| fs::remove_file(path).unwrap(), false),
];

fn change_file(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// Damages a copy and salvages that.
fn salvage(path: &Path, into: &Database, loss: Loss) -> Salvaged {
    let damaged = path.with_extension("damaged");
    copy(path, &damaged);
    loss(&damaged.join("checkpoint"));
    let salvaged = salvage_untouched(&damaged, None, into).unwrap();
    fs::remove_dir_all(&damaged).unwrap();
    salvaged
}

/// Salvages, and sees that the damaged one and its surroundings stay as they are.
fn salvage_untouched(
    path: &Path,
    kind: Option<Kind>,
    into: &Database,
) -> cabinet::Result<Salvaged> {
    let before = (contents(path), names(path.parent().unwrap()));
    let salvaged = cabinet::salvage_as(path, kind, into, &mut |_| ());
    let after = (contents(path), names(path.parent().unwrap()));
    assert!(before == after, "{} has changed", path.display());
    salvaged
}

fn names(folder: &Path) -> BTreeSet<PathBuf> {
    fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect()
}

fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let read = |path: PathBuf| {
        let bytes = fs::read(&path).unwrap();
        (path, bytes)
    };
    names(folder).into_iter().map(read).collect()
}

#[test]
fn a_tree_without_its_checkpoint_says_how_to_get_its_records_back() {
    for (number, (loss, _)) in LOSSES.iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _) = make(folder.path(), 2);
        assert!(!path.join("0000000001.log").exists());
        loss(&path.join("checkpoint"));
        let mut found = 0;
        cabinet::check(&path, &mut |_| found += 1).unwrap();
        assert!(found > 0, "loss {number} is damage");
        let error = open(&path).err().unwrap();
        assert!(matches!(error, Error::Corrupted { .. }), "{error}");
        let command = format!("`tyrant salvage {} --into NEW`", path.display());
        assert!(error.to_string().contains(&command), "{error}");
    }
}

/// A tree that still has its first segment, for pages of leaves there, and no longer others, whose
/// changes are in pages.
fn make_with_gap(folder: &Path) -> (PathBuf, BTreeMap<Vec<u8>, Vec<u8>>) {
    let path = folder.join("casket.tcb");
    let mut options = options();
    options.dead_percent_max = 90;
    let tree = TreeDatabase::open_on(Arc::new(RealStorage), &path, &options, false).unwrap();
    let mut values = BTreeMap::new();
    let mut put = |number: usize, value: &[u8]| {
        let key = format!("key-{number:06}").into_bytes();
        tree.put(&key, value, Meta::NONE, Wait::Block).unwrap();
        values.insert(key, value.to_vec());
    };
    for number in 0..3000 {
        put(number, &[b'a'; 100]);
    }
    tree.checkpoint().unwrap();
    let has_gap = || {
        let is_there = |number| path.join(format!("{number:010}.log")).exists();
        let numbers: Vec<u64> = (1..1000).filter(|number| is_there(*number)).collect();
        numbers[0] == 1 && numbers.windows(2).any(|pair| pair[1] - pair[0] > 2)
    };
    for round in 0..100 {
        if has_gap() {
            break;
        }
        // The same few leaves, so that later segments have little but changes.
        for number in 0..2000 {
            put(3000 + number % 20, format!("{round} {number} ").repeat(12).as_bytes());
        }
        tree.checkpoint().unwrap();
        tree.run_maintenance().unwrap();
    }
    assert!(has_gap(), "{:?}", names(&path));
    drop(tree);
    (path, values)
}

#[test]
fn a_tree_with_its_first_segment_does_not_open_without_the_pages_of_others() {
    for (number, (loss, _)) in LOSSES.iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let (path, values) = make_with_gap(folder.path());
        let into = Options::new().open(folder.path().join("new.tcb")).unwrap();
        let salvaged = salvage(&path, &into, *loss);
        assert!(salvaged.damages > 0 && salvaged.is_rebuilt, "loss {number}");
        assert_eq!(into.len(), values.len() as u64, "loss {number}");
        for (key, value) in &values {
            assert_eq!(into.get(key).unwrap().as_ref(), Some(value), "loss {number}");
        }
        loss(&path.join("checkpoint"));
        let mut found = 0;
        cabinet::check(&path, &mut |_| found += 1).unwrap();
        assert!(found > 0, "loss {number} is damage");
        let before = contents(&path);
        let error = open(&path).err().unwrap();
        assert!(error.to_string().contains("`tyrant salvage "), "{error}");
        let logs = |files: &BTreeMap<PathBuf, Vec<u8>>| -> Vec<PathBuf> {
            files.keys().filter(|file| file.extension() == Some("log".as_ref())).cloned().collect()
        };
        assert_eq!(logs(&contents(&path)), logs(&before), "loss {number}");
    }
}

#[test]
fn a_tree_is_salvaged_without_its_checkpoint() {
    let mut back = 0;
    for seed in 1..=12 {
        let folder = tempfile::tempdir().unwrap();
        let (path, model) = make(folder.path(), seed);
        for (number, (loss, says_when)) in LOSSES.iter().enumerate() {
            let context = format!("seed {seed}, loss {number}");
            let into = folder.path().join(format!("new{number}.tcb"));
            let into = Options::new().open(&into).unwrap();
            let salvaged = salvage(&path, &into, *loss);
            assert!(salvaged.is_rebuilt && salvaged.damages > 0, "{context}");
            for (key, values) in &model.values {
                let found = into.get_all(key).unwrap();
                assert_eq!(&found, values, "{context}: {:?}", String::from_utf8_lossy(key));
            }
            for key in into.keys_with_prefix(b"", None).unwrap() {
                if !model.values.contains_key(&key) {
                    assert!(model.removed.contains(&key), "{context}: {key:?} was never there");
                    assert!(salvaged.doubtful > 0 || *says_when, "{context}: {key:?}");
                    back += 1;
                }
            }
        }
    }
    // Most of what was removed stays so.
    assert!(back < 200, "{back} removed records came back");
}

#[test]
fn a_table_is_salvaged_without_its_checkpoint() {
    const ROWS: usize = 2000;
    for (number, (loss, _)) in LOSSES.iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("casket.tct");
        let database = options().cache_bytes(CACHE_BYTES_MIN).open(&path).unwrap();
        let table = database.table().unwrap();
        table.set_index(b"number", IndexChange::Set(IndexKind::Decimal)).unwrap();
        let row =
            |number: usize| Row::new().with(b"number", number.to_string().as_bytes()).unwrap();
        for number in 0..ROWS {
            table.put(number.to_string().as_bytes(), &row(number)).unwrap();
        }
        database.optimize().unwrap();
        for number in (0..ROWS).step_by(3) {
            table.put(number.to_string().as_bytes(), &row(number + ROWS)).unwrap();
        }
        let uid = table.generate_uid().unwrap();
        drop(database);
        let into = folder.path().join(format!("new{number}.tct"));
        let into = Options::new().open(&into).unwrap();
        let salvaged = salvage(&path, &into, *loss);
        assert!(salvaged.is_rebuilt, "loss {number}");
        let table = into.table().unwrap();
        assert_eq!(table.len(), ROWS as u64, "loss {number}");
        for number in 0..ROWS {
            let expected = if number % 3 == 0 { number + ROWS } else { number };
            let found = table.get(number.to_string().as_bytes()).unwrap();
            assert_eq!(found, Some(row(expected)), "{number}");
        }
        assert_eq!(table.indices().len(), 1);
        table.check_indices().unwrap();
        assert!(table.generate_uid().unwrap() > uid);
    }
}

#[test]
fn identifiers_go_on_behind_the_keys_of_rows_where_a_table_is_damaged() {
    const LAST: u64 = 5_000_000;
    for (number, (loss, _)) in LOSSES.iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("casket.tct");
        let database = options().cache_bytes(CACHE_BYTES_MIN).open(&path).unwrap();
        let table = database.table().unwrap();
        // As if the note of those given out was an old one.
        assert_eq!(table.generate_uid().unwrap(), 1);
        for key in LAST - 500..=LAST {
            table.put(key.to_string().as_bytes(), &Row::new()).unwrap();
        }
        database.optimize().unwrap();
        table.put(b"1", &Row::new()).unwrap();
        drop(database);
        let into = folder.path().join(format!("new{number}.tct"));
        let into = Options::new().open(&into).unwrap();
        salvage(&path, &into, *loss);
        let uid = into.table().unwrap().generate_uid().unwrap();
        assert_eq!(uid, LAST + (1 << 20) + 1, "loss {number}");
    }
}

/// The segments of a database, in their order.
fn segments(path: &Path) -> Vec<PathBuf> {
    names(path).into_iter().filter(|path| path.extension().is_some_and(|e| e == "log")).collect()
}

/// Returns the offsets of some bytes in a file.
fn places_of(file: &Path, wanted: &[u8]) -> Vec<usize> {
    let bytes = fs::read(file).unwrap();
    let windows = bytes.windows(wanted.len()).enumerate();
    windows.filter(|(_, bytes)| *bytes == wanted).map(|(place, _)| place).collect()
}

const KEYS: usize = 600;

fn key(number: usize) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

fn value(number: usize, round: usize) -> Vec<u8> {
    format!("column\0{number} in round {round} {}", "-".repeat(number % 50)).into_bytes()
}

/// A database of which the process was killed: a round of puts before a checkpoint, and one behind
/// it.
fn killed(folder: &Path, extension: &str) -> PathBuf {
    let path = folder.join(format!("killed.{extension}"));
    let open = folder.join(format!("open.{extension}"));
    let fill = |round| {
        let database = Options::new().open(&open).unwrap();
        for number in 1..=KEYS {
            let key = if extension == "tcf" { number.to_string().into() } else { key(number) };
            database.put(&key, &value(number, round)).unwrap();
        }
        database
    };
    drop(fill(1));
    let database = fill(2);
    copy(&open, &path);
    drop(database);
    fs::remove_dir_all(open).unwrap();
    path
}

/// Salvages a database of that and returns how many keys have the value of each round; all others
/// have none.
fn salvaged_rounds(path: &Path, kind: Option<Kind>) -> [usize; 3] {
    let extension = path.extension().unwrap().to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join(format!("new.{extension}"));
    let into = Options::new().open(&into).unwrap();
    let salvaged = salvage_untouched(path, kind, &into).unwrap();
    assert!(salvaged.damages > 0 && salvaged.may_be_stale, "{salvaged:?}");
    let mut rounds = [0; 3];
    for number in 1..=KEYS {
        let key = if extension == "tcf" { number.to_string().into() } else { key(number) };
        match into.get(&key).unwrap() {
            None => rounds[0] += 1,
            Some(found) => {
                let round = (1..=2).find(|round| found == value(number, *round));
                rounds[round.unwrap_or_else(|| panic!("{number} has a value of another"))] += 1;
            }
        }
    }
    assert_eq!(into.len() as usize, rounds[1] + rounds[2]);
    rounds
}

#[test]
fn one_bad_record_after_an_unclean_stop_costs_that_record() {
    for extension in ["tch", "tcf", "tcb", "tct"] {
        let folder = tempfile::tempdir().unwrap();
        let path = killed(folder.path(), extension);
        let file = segments(&path).pop().unwrap();
        let place = places_of(&file, b"7 in round 2 ")[0];
        change_file(&file, |bytes| bytes[place] ^= 4);
        assert_eq!(salvaged_rounds(&path, None), [0, 1, KEYS - 1], "{extension}");
        // Without the checkpoint it is the same.
        fs::remove_file(path.join("checkpoint")).unwrap();
        assert_eq!(salvaged_rounds(&path, None), [0, 1, KEYS - 1], "{extension}");
    }
}

#[test]
fn a_database_without_manifest_is_salvaged() {
    for (extension, kind) in [("tch", None), ("tcf", None), ("tcb", None), ("tct", None)]
        .into_iter()
        .chain([("tcf", Some(Kind::Fixed)), ("tcb", Some(Kind::Tree)), ("tct", Some(Kind::Table))])
    {
        let folder = tempfile::tempdir().unwrap();
        let path = killed(folder.path(), extension);
        for name in names(&path).into_iter().filter(|name| name.to_string_lossy().contains("manif"))
        {
            fs::remove_file(name).unwrap();
        }
        assert_eq!(salvaged_rounds(&path, kind), [0, 0, KEYS], "{extension} {kind:?}");
        // Nor with a header.
        change_file(&segments(&path)[0], |bytes| bytes[20] ^= 1);
        assert_eq!(salvaged_rounds(&path, kind), [0, 0, KEYS], "{extension} {kind:?}");
    }
}

#[test]
fn another_kind_than_the_manifest_has_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = killed(folder.path(), "tcb");
    let into = Database::open("*").unwrap();
    for kind in [Kind::Hash, Kind::Table, Kind::MemoryHash] {
        let error = salvage_untouched(&path, Some(kind), &into).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    }
    assert!(into.is_empty());
    salvage_untouched(&path, Some(Kind::Tree), &into).unwrap();
    assert_eq!(into.len(), KEYS as u64);
}

#[test]
fn a_tree_in_another_order_is_told_by_its_pages() {
    for (tuning, order) in [("decimal", KeyOrder::Decimal), ("int32", KeyOrder::Int32)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("casket.tcb");
        let key = |number: u32| match order {
            KeyOrder::Decimal => number.to_string().into_bytes(),
            _ => number.to_le_bytes().to_vec(),
        };
        let database = Database::open(&format!("{}#order={tuning}", path.display())).unwrap();
        for number in 0..1000 {
            database.put(&key(number), &key(number)).unwrap();
        }
        drop(database);
        for name in names(&path).into_iter().filter(|name| name.to_string_lossy().contains("manif"))
        {
            fs::remove_file(name).unwrap();
        }
        let into = folder.path().join("new.tcb");
        let into = Database::open(&format!("{}#order={tuning}", into.display())).unwrap();
        cabinet::salvage(&path, &into, &mut |_| ()).unwrap();
        assert_eq!(into.len(), 1000, "{tuning}");
        for number in 0..1000 {
            assert_eq!(into.get(&key(number)).unwrap().unwrap(), key(number), "{tuning}");
        }
    }
}

#[test]
fn segments_under_each_others_names_are_read_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let (path, model) = make(folder.path(), 5);
    let files = segments(&path);
    assert!(files.len() >= 3, "{files:?}");
    let beside = folder.path().join("beside");
    fs::rename(&files[0], &beside).unwrap();
    fs::rename(&files[2], &files[0]).unwrap();
    fs::rename(&beside, &files[2]).unwrap();
    let into = Options::new().open(folder.path().join("new.tcb")).unwrap();
    let salvaged = salvage_untouched(&path, None, &into).unwrap();
    assert_eq!((salvaged.damages, salvaged.is_rebuilt, salvaged.doubtful), (2, false, 0));
    for (key, values) in &model.values {
        assert_eq!(&into.get_all(key).unwrap(), values);
    }
    assert_eq!(into.len(), model.values.values().map(|values| values.len() as u64).sum::<u64>());
}

#[test]
fn a_leaf_that_is_lost_is_made_of_an_older_page_and_the_changes_since() {
    for extension in ["tcb", "tct"] {
        let folder = tempfile::tempdir().unwrap();
        let path = killed(folder.path(), extension);
        // A checkpoint, which lists pages with the second round.
        drop(Options::new().open(&path).unwrap());
        let file = segments(&path).pop().unwrap();
        let places = places_of(&file, b"7 in round 2 ");
        change_file(&file, |bytes| bytes[*places.last().unwrap()] ^= 4);
        let into = folder.path().join(format!("new.{extension}"));
        let into = Options::new().open(&into).unwrap();
        let salvaged = salvage_untouched(&path, None, &into).unwrap();
        assert!(salvaged.damages == 1 && salvaged.may_be_stale, "{salvaged:?}");
        assert!((1..KEYS as u64 / 2).contains(&salvaged.doubtful), "{salvaged:?}");
        for number in 1..=KEYS {
            assert_eq!(into.get(&key(number)).unwrap().unwrap(), value(number, 2), "{number}");
        }
    }
}
