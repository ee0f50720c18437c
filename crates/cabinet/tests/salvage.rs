//! Salvaging trees and tables whose checkpoint is lost: everything that was there comes back, with
//! no other value than it had; of what was removed, as little as can be told.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use cabinet::io::RealStorage;
use cabinet::table::{IndexChange, IndexKind, Row};
use cabinet::{
    Database, Engine, Error, Meta, Options, Ordered, Salvaged, Side, TreeDatabase, Wait,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a tree holds, and what it held once.
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
            _ if round == 0 => tree.optimize().unwrap(),
            0 => tree.optimize().unwrap(),
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
    let before: Vec<_> = fs::read_dir(&damaged).unwrap().map(|f| f.unwrap().path()).collect();
    let salvaged = cabinet::salvage(&damaged, into, &mut |_| ()).unwrap();
    let after: Vec<_> = fs::read_dir(&damaged).unwrap().map(|f| f.unwrap().path()).collect();
    assert_eq!(before, after, "the damaged one stays as it is");
    fs::remove_dir_all(&damaged).unwrap();
    salvaged
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
        assert!(error.to_string().contains("`tyrant salvage`"), "{error}");
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
            let into = Database::open_with(&into, &Options::default()).unwrap();
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
        let database = Database::open_with(&path, &options()).unwrap();
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
        let into = Database::open_with(&into, &Options::default()).unwrap();
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
