//! Promises of databases that many threads write to at the same time also hold if each thread has
//! a stretch of the log of its own, over histories that end in the death of the process or of the
//! power. A failure names its seed.

use cabinet::testing::{FaultyStorage, ManualClock};
use cabinet::{
    Batch, Clock, Database, Durability, Engine, HashDatabase, Maintenance, Meta, Options,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::thread;

const KEYS: u64 = 60;
const PATH: &str = "casket.tch";

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

fn options(clock: &Clock) -> Options {
    let mut options = Options::default();
    options.segment_bytes = Some(256 << 10);
    options.set_eager_append_blocks(true);
    options.clock = clock.clone();
    options
}

fn open(storage: &FaultyStorage, options: &Options) -> (Arc<HashDatabase>, Database) {
    let storage = Arc::new(storage.clone());
    let engine = HashDatabase::open_on(storage, Path::new(PATH), options, false);
    let engine = Arc::new(engine.expect("the database opens"));
    (Arc::clone(&engine), Database::from_engine(engine))
}

/// Checks that a crash has lost nothing that was promised: checking agrees with opening.
fn check_files(storage: &FaultyStorage, seed: u64) {
    let report = &mut |damage| panic!("seed {seed}: {damage}");
    cabinet::testing::check_on(storage, Path::new(PATH), &|_| true, report).expect("a check");
}

fn stat(engine: &dyn Engine, name: &str) -> u64 {
    let stats = engine.stats();
    let (_, stat) = stats.iter().find(|(known, _)| *known == name).expect("a stat");
    stat.parse().expect("a number")
}

/// The values that each key may have; the last is the present one.
type Model = BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>;

fn set(model: &mut Model, key: &[u8], value: Option<Vec<u8>>) {
    model.entry(key.to_vec()).or_insert_with(|| vec![None]).push(value);
}

fn resolve(model: &mut Model) {
    for values in model.values_mut() {
        values.drain(..values.len() - 1);
    }
}

fn check(model: &mut Model, database: &Database, seed: u64) {
    for (key, values) in model {
        let found = database.get(key).expect("a read");
        let name = String::from_utf8_lossy(key);
        assert!(values.contains(&found), "seed {seed}: {name} has none of its values");
        *values = vec![found];
    }
}

fn step(
    (engine, database): &(Arc<HashDatabase>, Database),
    model: &mut Model,
    chance: &mut Chance,
    time: &ManualClock,
) {
    let key = format!("key-{}", chance.below(KEYS)).into_bytes();
    let mut value = vec![chance.next() as u8; chance.below(400) as usize];
    value.extend_from_slice(&chance.next().to_le_bytes());
    match chance.below(200) {
        0..120 => {
            database.put(&key, &value).expect("a put");
            set(model, &key, Some(value));
        }
        120..160 => {
            database.remove(&key).expect("a removal");
            set(model, &key, None);
        }
        160..170 => {
            // Gone at once, yet it holds down what the key had before.
            let meta = Meta { expires_at_ms: time.now_ms() + 1, ..Meta::NONE };
            database.put_with(&key, &value, meta).expect("a put");
            time.advance(5);
            set(model, &key, None);
        }
        170..180 => {
            let value = vec![7; 9000];
            database.put(&key, &value).expect("a put");
            set(model, &key, Some(value));
        }
        180..188 => {
            let mut batch = Batch::new();
            for number in 0..4 {
                let key = format!("key-{}", number * KEYS / 4).into_bytes();
                batch.put(&key, &value, Meta::NONE);
                set(model, &key, Some(value.clone()));
            }
            database.write(&batch).expect("a batch");
        }
        188..191 => {
            database.sync().expect("a sync");
            resolve(model);
        }
        191..196 => engine.run_maintenance().expect("maintenance"),
        196..198 => engine.checkpoint().expect("a checkpoint"),
        198 => engine.optimize(None).expect("compaction"),
        _ => {
            database.clear().expect("clearing");
            for values in model.values_mut() {
                values.push(None);
            }
        }
    }
}

fn history(seed: u64, power: bool, durability: Durability) -> u64 {
    let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (clock, time) = Clock::manual(1_000_000);
    let mut options = options(&clock);
    options.durability = durability;
    let mut storage = FaultyStorage::new();
    let mut model = Model::new();
    let mut blocks = 0;
    for _ in 0..3 {
        let opened = open(&storage, &options);
        assert_eq!(opened.1.damages(), [], "seed {seed}");
        check(&mut model, &opened.1, seed);
        for _ in 0..chance.below(400) {
            step(&opened, &mut model, &mut chance, &time);
        }
        blocks += stat(&*opened.0, "blocks");
        let after = if power {
            storage.lose_power(|| chance.next())
        } else {
            resolve(&mut model);
            storage.kill()
        };
        drop(opened);
        storage = after;
        check_files(&storage, seed);
    }
    check_files(&storage, seed);
    check(&mut model, &open(&storage, &options).1, seed);
    blocks
}

/// Returns the seeds of the histories: 100 of them, 4000 in `cargo xtask nightly`, more by hand,
/// with `CRASH_SEEDS=100000` or `CRASH_SEEDS=400..800`.
fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("CRASH_SEEDS") else { return 1..101 };
    let number = |text: &str| text.parse().expect("CRASH_SEEDS is N or FROM..TO");
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => 1..number(&text),
    }
}

#[test]
fn the_death_of_the_process_loses_nothing_and_keeps_the_order_of_each_keys_changes() {
    let blocks: u64 = seeds().map(|seed| history(seed, false, Durability::None)).sum();
    assert!(blocks > 10 * seeds().count() as u64, "{blocks} blocks");
}

#[test]
fn the_end_of_the_power_loses_nothing_that_was_synced() {
    let blocks: u64 = seeds().map(|seed| history(seed, true, Durability::None)).sum();
    assert!(blocks > 10 * seeds().count() as u64, "{blocks} blocks");
}

#[test]
fn no_end_of_the_power_is_taken_for_damage_whatever_the_durability() {
    for durability in [Durability::Interval(5), Durability::Always] {
        seeds().step_by(8).for_each(|seed| {
            history(seed, true, durability);
        });
    }
}

/// As recovery leaves them, blocks that were not filled are no damage.
#[test]
fn what_recovery_has_filled_is_read_again_and_found_good() {
    let (clock, _) = Clock::manual(1_000_000);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(PATH);
    let killed = folder.path().join("killed.tch");
    {
        let database = options(&clock).open(&path).expect("the database opens");
        for number in 0..500u32 {
            database.put(&number.to_le_bytes(), &[1; 50]).expect("a put");
        }
        // As it is at this moment, unlike what a clean close leaves.
        std::fs::create_dir(&killed).expect("a folder");
        for file in std::fs::read_dir(&path).expect("files") {
            let file = file.expect("a file");
            std::fs::copy(file.path(), killed.join(file.file_name())).expect("a copy");
        }
    }
    for _ in 0..2 {
        let mut damages = 0;
        let report = cabinet::check(&killed, &mut |_| damages += 1).expect("a check");
        assert_eq!((damages, report.torn_bytes), (0, 0));
        let database = options(&clock).open(&killed).expect("the copy opens");
        for number in 0..500u32 {
            let found = database.get(&number.to_le_bytes()).expect("a read");
            assert_eq!(found, Some(vec![1; 50]), "{number}");
        }
    }
}

#[test]
fn threads_in_each_others_way_get_blocks_and_lose_nothing() {
    const THREADS: u64 = 4;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(PATH);
    let options = Options::default();
    let engine = Arc::new(HashDatabase::open(&path, &options).expect("the database opens"));
    let database = Database::from_engine(Arc::clone(&engine) as Arc<dyn Engine>);
    let mut rounds = 0;
    // Each round, threads put the same keys, so that their order decides.
    while stat(&*engine, "blocks") < 50 {
        rounds += 1;
        assert!(rounds < 1000, "they never met");
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let database = &database;
                scope.spawn(move || {
                    for number in 0..5000u64 {
                        let key = (number * 7919 % 1000).to_le_bytes();
                        if (number + thread) % 5 == 0 {
                            database.remove(&key).expect("a removal");
                        } else {
                            let value = (number * THREADS + thread).to_le_bytes();
                            database.put(&key, &value).expect("a put");
                        }
                    }
                });
            }
        });
    }
    let live: Vec<_> =
        (0..1000u64).map(|key| database.get(&key.to_le_bytes()).expect("a read")).collect();
    // The files as a process that is killed now would leave them.
    let killed = folder.path().join("killed.tch");
    std::fs::create_dir(&killed).expect("a folder");
    for file in std::fs::read_dir(&path).expect("files") {
        let file = file.expect("a file");
        std::fs::copy(file.path(), killed.join(file.file_name())).expect("a copy");
    }
    let recovered = options.open(&killed).expect("the copy opens");
    for (key, value) in live.into_iter().enumerate() {
        assert_eq!(recovered.get(&(key as u64).to_le_bytes()).expect("a read"), value, "{key}");
    }
}
