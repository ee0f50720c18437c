//! Clearing a table is one thing: whenever the process dies or the power goes meanwhile, there
//! are all rows or none, and every index in any case.

use crate::observed_storage::ObservedStorage;
use crate::row;
use cabinet::table::{IndexChange, IndexKind, Table};
use cabinet::testing::FaultyStorage;
use cabinet::{Durability, Engine, Options, TreeDatabase};
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

const SEEDS: u64 = 12;
const INDICES: [(&[u8], IndexKind); 3] =
    [(b"name", IndexKind::Lexical), (b"number", IndexKind::Decimal), (b"text", IndexKind::Gram)];

fn options() -> Options {
    let mut options = Options::default();
    options.durability = Durability::Always;
    options.segment_bytes = Some(64 << 10);
    options.leaf_bytes = Some(512);
    options.cache_bytes = Some(8 << 10);
    options
}

fn open(storage: Arc<dyn cabinet::testing::Storage>) -> (Arc<TreeDatabase>, Table) {
    let tree = TreeDatabase::open_on(storage, Path::new("casket.tct"), &options(), false);
    let tree = Arc::new(tree.unwrap());
    let table = Table::new(Arc::clone(&tree) as Arc<dyn Engine>, &options()).unwrap();
    (tree, table)
}

struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.0 >> 33
    }
}

/// Everything that a crash may leave while a table of so many rows is cleared.
fn crashes_while_clearing(seed: u64, rows: u64) -> Vec<FaultyStorage> {
    let storage = FaultyStorage::new();
    let left = Arc::new(Mutex::new(Vec::new()));
    let is_watched = Arc::new(AtomicBool::new(false));
    let watch = {
        let (storage, left, is_watched) =
            (storage.clone(), Arc::clone(&left), Arc::clone(&is_watched));
        let chance = Mutex::new(Chance(seed));
        move |_| {
            if is_watched.load(Ordering::Relaxed) {
                let mut left = left.lock().unwrap();
                left.push(storage.kill());
                let mut chance = chance.lock().unwrap();
                left.push(storage.lose_power(|| chance.next()));
            }
        }
    };
    let (tree, table) =
        open(Arc::new(ObservedStorage { storage: storage.clone(), watch: Arc::new(watch) }));
    for (column, kind) in INDICES {
        table.set_index(column, IndexChange::Set(kind)).unwrap();
    }
    let mut chance = Chance(seed);
    for number in 0..rows {
        let columns = format!("name={} number={number} text=text{number}", chance.next());
        table.put(number.to_string().as_bytes(), &row(&columns)).unwrap();
        if chance.next().is_multiple_of(40) {
            tree.checkpoint().unwrap();
        }
    }
    table.acknowledge().unwrap();
    is_watched.store(true, Ordering::Relaxed);
    table.clear_rows().unwrap();
    is_watched.store(false, Ordering::Relaxed);
    let mut left = left.lock().unwrap();
    left.push(storage.kill());
    assert_eq!(table.len(), 0);
    left.drain(..).collect()
}

#[test]
fn a_crash_while_a_table_is_cleared_leaves_all_rows_or_none_and_every_index() {
    let (mut full, mut empty) = (0, 0);
    for seed in 1..=SEEDS {
        let rows = seed * 15;
        for (number, storage) in crashes_while_clearing(seed, rows).into_iter().enumerate() {
            let (_tree, table) = open(Arc::new(storage.clone()));
            let mut columns: Vec<_> = table.indices().into_iter().map(|one| one.column).collect();
            columns.sort();
            assert_eq!(
                columns,
                INDICES.map(|(column, _)| column.to_vec()),
                "seed {seed}, crash {number}"
            );
            table.check_indices().unwrap();
            match table.len() {
                0 => empty += 1,
                count => {
                    assert_eq!(count, rows, "seed {seed}");
                    full += 1;
                }
            }
            // It goes on.
            table.put(b"new", &row("name=new number=1 text=new")).unwrap();
            table.acknowledge().unwrap();
            drop(table);
            let again = storage.kill();
            let (_tree, table) = open(Arc::new(again));
            assert!(table.get(b"new").unwrap().is_some(), "seed {seed}");
            table.check_indices().unwrap();
        }
    }
    assert!(full > SEEDS && empty > SEEDS, "{full} full, {empty} empty");
}

#[test]
fn changes_beside_a_clearing_come_before_it_or_after_it() {
    let storage = FaultyStorage::new();
    let (_tree, table) = open(Arc::new(storage.clone()));
    table.set_index(b"name", IndexChange::Set(IndexKind::Lexical)).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let table = &table;
            scope.spawn(move || {
                for number in 0..400 {
                    let columns = format!("name={number}");
                    table.put(format!("{writer}-{number}").as_bytes(), &row(&columns)).unwrap();
                }
            });
        }
        for _ in 0..10 {
            table.clear_rows().unwrap();
        }
    });
    table.check_indices().unwrap();
    table.acknowledge().unwrap();
    let count = table.len();
    let (_tree, again) = open(Arc::new(storage.kill()));
    assert_eq!(again.len(), count);
    again.check_indices().unwrap();
}
