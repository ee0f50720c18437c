//! What a table promises when the process dies or the power goes, over many histories on a
//! storage that does just that: every row is as it was, and has its entries in every index, and no
//! entry is without its row. A failure names its seed.

use cabinet::io::FaultyStorage;
use cabinet::table::{IndexChange, IndexKind, Operator, Query, Row, Table};
use cabinet::{Durability, Engine, Options, TreeDatabase};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

const KEYS: u64 = 30;
const COLUMNS: [(&[u8], IndexKind); 4] = [
    (b"name", IndexKind::Lexical),
    (b"number", IndexKind::Decimal),
    (b"tags", IndexKind::Token),
    (b"text", IndexKind::Gram),
];

struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }
}

/// Small leaves, segments and cache, so that everything happens all the time.
fn open(storage: &FaultyStorage, durability: Durability) -> (Arc<TreeDatabase>, Table) {
    let mut options = Options::default();
    options.durability = durability;
    options.segment_bytes = Some(64 << 10);
    options.leaf_bytes = Some(512);
    options.cache_bytes = Some(cabinet::limits::CACHE_BYTES_MIN);
    let storage = Arc::new(storage.clone());
    let engine = TreeDatabase::open_on(storage, Path::new("casket.tct"), &options, false);
    let engine = Arc::new(engine.expect("the tree opens"));
    let table = Table::new(Arc::clone(&engine) as Arc<dyn Engine>, &options);
    (engine, table.expect("the table opens"))
}

/// The rows that each key may have after a crash: the first is acknowledged, the last is present.
#[derive(Default)]
struct Model(BTreeMap<Vec<u8>, Vec<Option<Row>>>);

impl Model {
    fn set(&mut self, key: &[u8], row: Option<Row>) {
        self.0.entry(key.to_vec()).or_insert_with(|| vec![None]).push(row);
    }

    fn acknowledge(&mut self) {
        for rows in self.0.values_mut() {
            rows.drain(..rows.len() - 1);
        }
    }

    fn check_and_settle(&mut self, table: &Table, seed: u64) {
        let mut count = 0;
        for (key, rows) in &mut self.0 {
            let found = table.get(key).expect("a read");
            assert!(
                rows.contains(&found),
                "seed {seed}: {key:?} has {found:?}, which is none of {rows:?}"
            );
            count += u64::from(found.is_some());
            *rows = vec![found];
        }
        assert_eq!(table.len(), count, "seed {seed}: number of rows");
        table.check_indices().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

fn random_row(chance: &mut Chance) -> Row {
    let mut row = Row::new();
    let words = ["red", "green", "blue", "teal"];
    let word = |chance: &mut Chance| words[chance.below(4) as usize];
    for (column, _) in COLUMNS {
        let value = format!("{} {},{}", chance.below(50), word(chance), word(chance));
        if chance.below(5) > 0 {
            row.set(column, value.as_bytes()).expect("a column");
        }
    }
    if chance.below(20) == 0 {
        row.set(b"name", &[b'x'; 1500]).expect("a column");
    }
    row
}

fn step(table: &Table, engine: &TreeDatabase, model: &mut Model, chance: &mut Chance) {
    let key = format!("key-{}", chance.below(KEYS)).into_bytes();
    match chance.below(100) {
        0..60 => {
            let row = random_row(chance);
            table.put(&key, &row).expect("a put");
            model.set(&key, Some(row));
        }
        60..80 => {
            table.remove(&key).expect("a removal");
            model.set(&key, None);
        }
        80..90 => {
            let (column, kind) = COLUMNS[chance.below(4) as usize];
            match chance.below(4) {
                // There may be none to remove.
                0 => drop(table.set_index(column, IndexChange::Remove)),
                _ => table.set_index(column, IndexChange::Set(kind)).expect("an index"),
            }
        }
        90..94 => {
            table.sync().expect("a sync");
            model.acknowledge();
        }
        94..97 => engine.tend().expect("tending"),
        97..99 => engine.checkpoint().expect("a checkpoint"),
        _ => {
            let query = Query::new().with(b"tags", Operator::StringAnyToken, b"red");
            let mut removed = BTreeSet::new();
            table
                .search_out(&query, |key, _| {
                    removed.insert(key.to_vec());
                })
                .expect("a search");
            removed.iter().for_each(|key| model.set(key, None));
        }
    }
}

fn history(seed: u64, power: bool) {
    let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let durability = if power { Durability::Always } else { Durability::None };
    let mut storage = FaultyStorage::new();
    let mut model = Model::default();
    for _ in 0..3 {
        let (engine, table) = open(&storage, durability);
        model.check_and_settle(&table, seed);
        for _ in 0..chance.below(60) {
            step(&table, &engine, &mut model, &mut chance);
        }
        if chance.below(5) == 0 {
            drop((table, engine));
            model.acknowledge();
            continue;
        }
        let after = if power {
            storage.lose_power(|| chance.next())
        } else {
            model.acknowledge();
            storage.kill()
        };
        drop((table, engine));
        storage = after;
    }
    let (_engine, table) = open(&storage, durability);
    model.check_and_settle(&table, seed);
}

/// How many histories: more by hand, with `CRASH_SEEDS=100000`.
fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("CRASH_SEEDS").ok().and_then(|count| count.parse().ok());
    1..count.unwrap_or(300)
}

#[test]
fn no_row_is_without_its_entries_when_the_process_is_killed() {
    for seed in seeds() {
        history(seed, false);
    }
}

#[test]
fn no_row_is_without_its_entries_when_the_power_goes() {
    for seed in seeds() {
        history(seed, true);
    }
}
