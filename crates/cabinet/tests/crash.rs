//! What databases on a disk promise when the process dies, the power goes, or the disk fails, over
//! thousands of histories on a storage that does just that. A failure names its seed.

mod on_disk;

use cabinet::io::FaultyStorage;
use cabinet::{
    Batch, Database, Durability, Error, FixedDatabase, HashDatabase, Meta, Options, TreeDatabase,
};
use on_disk::OnDisk;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const KEYS: u64 = 40;
/// Keys that are only ever written together. Where keys are ids, their digits count.
const JOINED: [&[u8]; 5] =
    [b"joined-100", b"joined-200", b"joined-300", b"joined-400", b"joined-500"];

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

fn options(durability: Durability) -> Options {
    let mut options = Options::default();
    options.durability = durability;
    options.segment_bytes = Some(64 << 10);
    options
}

/// A database whose writes are acknowledged by hand.
fn open_any<E: OnDisk>(storage: &FaultyStorage, options: &Options) -> (Arc<E>, Database) {
    let engine = Arc::new(E::open(Arc::new(storage.clone()), options).expect("the database opens"));
    let database = Database::from_engine(Arc::clone(&engine) as Arc<dyn cabinet::Engine>);
    (engine, database.deferred())
}

/// What is known of each key: the values it may have after a crash. The first is what is
/// acknowledged, the last is the present one.
#[derive(Clone, Default)]
struct Model(BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>);

impl Model {
    fn set(&mut self, key: &[u8], value: Option<Vec<u8>>) {
        self.0.entry(key.to_vec()).or_insert_with(|| vec![None]).push(value);
    }

    fn present(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.get(key).and_then(|values| values.last().cloned().flatten())
    }

    fn acknowledge(&mut self) {
        for values in self.0.values_mut() {
            values.drain(..values.len() - 1);
        }
    }

    /// The database has one of the possible values under each key, and that is the only one now.
    fn check_and_settle(&mut self, database: &Database, seed: u64) {
        let mut count = 0;
        for (key, values) in &mut self.0 {
            let found = database.get(key).expect("a read");
            assert!(
                values.contains(&found),
                "seed {seed}: key {:?} has {:?}, which is none of {} possible values",
                String::from_utf8_lossy(key),
                found.as_ref().map(Vec::len),
                values.len(),
            );
            count += u64::from(found.is_some());
            *values = vec![found];
        }
        assert_eq!(database.len(), count, "seed {seed}: number of records");
        let joined: Vec<_> = JOINED.iter().map(|key| self.present(key)).collect();
        assert!(joined.windows(2).all(|two| two[0] == two[1]), "seed {seed}: half a batch");
    }
}

/// One random change, in the database and in the model.
fn step<E: OnDisk>(database: &Database, engine: &E, model: &mut Model, chance: &mut Chance) {
    let key = format!("key-{}", 1 + chance.below(KEYS)).into_bytes();
    let value = |chance: &mut Chance| {
        let length = if chance.below(10) == 0 { 6000 } else { chance.below(600) };
        let byte = chance.next() as u8;
        let mut value = vec![byte; length as usize];
        value.extend_from_slice(&chance.next().to_le_bytes());
        value
    };
    match chance.below(100) {
        0..50 => {
            let value = value(chance);
            database.put(&key, &value).expect("a put");
            model.set(&key, Some(value));
        }
        50..65 => {
            let existed = database.remove(&key).expect("a removal");
            assert_eq!(existed, model.present(&key).is_some());
            model.set(&key, None);
        }
        65..80 => {
            let part = value(chance);
            database.put_cat(&key, &part[..20.min(part.len())]).expect("an append");
            let mut whole = model.present(&key).unwrap_or_default();
            whole.extend_from_slice(&part[..20.min(part.len())]);
            model.set(&key, Some(whole));
        }
        80..90 => {
            let value = value(chance);
            let mut batch = Batch::new();
            let remove = chance.below(4) == 0;
            for key in JOINED {
                if remove {
                    batch.remove(key);
                } else {
                    batch.put(key, &value, Meta::NONE);
                }
            }
            database.write(&batch).expect("a batch");
            for key in JOINED {
                model.set(key, (!remove).then(|| value.clone()));
            }
        }
        90..95 => {
            database.sync().expect("a sync");
            model.acknowledge();
        }
        95..98 => {
            engine.tend().expect("tending");
        }
        98 => engine.checkpoint().expect("a checkpoint"),
        _ => {
            if chance.below(4) == 0 {
                database.clear().expect("clearing");
                let keys: Vec<_> = model.0.keys().cloned().collect();
                for key in keys {
                    model.set(&key, None);
                }
            }
        }
    }
}

fn history<E: OnDisk>(seed: u64, power: bool) {
    let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let durability = if power { Durability::Always } else { Durability::None };
    let options = options(durability);
    let mut storage = FaultyStorage::new();
    let mut model = Model::default();
    for _ in 0..3 {
        let (engine, database) = open_any::<E>(&storage, &options);
        model.check_and_settle(&database, seed);
        for _ in 0..chance.below(150) {
            step(&database, &*engine, &mut model, &mut chance);
        }
        if chance.below(5) == 0 {
            // A clean close acknowledges everything.
            drop((engine, database));
            model.acknowledge();
            continue;
        }
        let after = if power {
            storage.lose_power(|| chance.next())
        } else {
            // Every operation that returned survives the process.
            model.acknowledge();
            storage.kill()
        };
        drop((engine, database));
        storage = after;
    }
    let (_engine, database) = open_any::<E>(&storage, &options);
    model.check_and_settle(&database, seed);
}

/// How many histories: more by hand, with `CRASH_SEEDS=100000`.
fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("CRASH_SEEDS").ok().and_then(|count| count.parse().ok());
    1..count.unwrap_or(2000)
}

#[test]
fn no_acknowledged_write_is_lost_when_the_power_goes_and_no_batch_is_half_there() {
    for seed in seeds() {
        history::<HashDatabase>(seed, true);
    }
}

#[test]
fn the_same_of_a_fixed_length_database() {
    for seed in seeds() {
        history::<FixedDatabase>(seed, true);
    }
}

#[test]
fn the_same_of_a_tree() {
    for seed in seeds() {
        history::<TreeDatabase>(seed, true);
    }
}

#[test]
fn the_same_of_a_tree_that_is_killed() {
    for seed in seeds() {
        history::<TreeDatabase>(seed, false);
    }
}

#[test]
fn no_write_that_returned_is_lost_when_the_process_is_killed() {
    for seed in seeds() {
        history::<HashDatabase>(seed, false);
    }
}

#[test]
fn the_same_of_a_fixed_length_database_that_is_killed() {
    for seed in seeds() {
        history::<FixedDatabase>(seed, false);
    }
}

fn open(storage: &FaultyStorage, options: &Options) -> (Arc<HashDatabase>, Database) {
    open_any(storage, options)
}

#[test]
fn after_a_failed_sync_writes_refuse_and_reads_go_on() {
    let storage = FaultyStorage::new();
    let options = options(Durability::Always);
    let (engine, deferred) = open(&storage, &options);
    let database = Database::from_engine(engine as Arc<dyn cabinet::Engine>);
    database.put(b"before", b"1").expect("a put");
    storage.faults().fail_syncs.store(true, Ordering::Relaxed);
    assert!(matches!(database.put(b"during", b"2"), Err(Error::Io { .. })));
    storage.faults().fail_syncs.store(false, Ordering::Relaxed);
    assert!(matches!(database.put(b"after", b"3"), Err(Error::Poisoned(_))));
    assert!(matches!(deferred.remove(b"before"), Err(Error::Poisoned(_))));
    assert_eq!(database.get(b"before").expect("a read"), Some(b"1".to_vec()));
}

#[test]
fn a_full_disk_refuses_loses_nothing_and_goes_on_when_space_returns() {
    let storage = FaultyStorage::new();
    let options = options(Durability::None);
    let (engine, database) = open(&storage, &options);
    storage.faults().space_bytes.store(400 << 10, Ordering::Relaxed);
    let mut stored = 0u32;
    let refused = loop {
        match database.put(&stored.to_le_bytes(), &[stored as u8; 500]) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    assert!(stored > 300, "{stored}");
    for number in 0..stored {
        let found = database.get(&number.to_le_bytes()).expect("a read");
        assert_eq!(found, Some(vec![number as u8; 500]));
    }
    // There is room left for removals, and what they leave between others can be given back.
    let removed = 60u32;
    for number in 0..removed {
        assert!(database.remove(&(number * 2).to_le_bytes()).expect("a removal"));
    }
    engine.tend().expect("tending");
    for number in 0..30u32 {
        database.put(&(number * 2).to_le_bytes(), &[1; 500]).expect("a put after space returned");
    }
    let again = storage.kill();
    drop((engine, database));
    let (_engine, database) = open(&again, &options);
    for number in 0..stored {
        let found = database.get(&number.to_le_bytes()).expect("a read");
        let expected = match number {
            number if number % 2 == 0 && number < 60 => Some(vec![1; 500]),
            number if number % 2 == 0 && number < removed * 2 => None,
            number => Some(vec![number as u8; 500]),
        };
        assert_eq!(found, expected, "{number}");
    }
}

#[test]
fn a_full_database_can_be_cleared() {
    let storage = FaultyStorage::new();
    let options = options(Durability::None);
    let (_engine, database) = open(&storage, &options);
    storage.faults().space_bytes.store(200 << 10, Ordering::Relaxed);
    let mut stored = 0u32;
    while database.put(&stored.to_le_bytes(), &[1; 500]).is_ok() {
        stored += 1;
    }
    database.clear().expect("clearing");
    assert_eq!(database.len(), 0);
    database.put(b"again", &[1; 500]).expect("a put after the clearing");
}

#[test]
fn a_read_that_fails_says_so_and_a_short_one_is_continued() {
    let storage = FaultyStorage::new();
    let options = options(Durability::None);
    {
        let (_engine, database) = open(&storage, &options);
        for number in 0..1000u32 {
            database.put(&number.to_le_bytes(), &[3; 300]).expect("a put");
        }
    }
    let short = storage.kill();
    short.faults().short_reads.store(7, Ordering::Relaxed);
    let (_engine, database) = open(&short, &options);
    assert_eq!(database.get(&5u32.to_le_bytes()).expect("a read"), Some(vec![3; 300]));
    assert_eq!(database.len(), 1000);
    let failing = storage.kill();
    failing.faults().fail_reads.store(true, Ordering::Relaxed);
    let result = <HashDatabase as OnDisk>::open(Arc::new(failing), &options);
    assert!(matches!(result.err(), Some(Error::Io { .. })));
}

#[test]
fn a_database_that_is_open_cannot_be_opened_again() {
    let storage = FaultyStorage::new();
    let options = options(Durability::None);
    let (_engine, _database) = open(&storage, &options);
    let again = <HashDatabase as OnDisk>::open(Arc::new(storage.clone()), &options);
    assert!(matches!(again.err(), Some(Error::InUse { .. })));
}
