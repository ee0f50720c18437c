//! Sectors that the disk cannot read: each costs what was on it, is reported, and stops nothing
//! else.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/disk.rs"]
mod disk;

use cabinet::testing::{FaultyStorage, Open, Storage, check_on, salvage_on};
use cabinet::{
    Batch, Clock, Damage, Database, Durability, Error, FixedDatabase, HashDatabase, Meta, Options,
    TreeDatabase,
};
use disk::{DiskEngine, TableDatabase};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Hash = Arc<HashDatabase>;
type Fixed = Arc<FixedDatabase>;
type Tree = Arc<TreeDatabase>;

/// Bytes that the system reads, or cannot read, together.
const PAGE_BYTES: u64 = 4096;

const RECORDS: u32 = 900;

fn options() -> Options {
    let mut options = Options::default();
    options.segment_bytes = Some(64 << 10);
    options
}

fn open<E: DiskEngine>(storage: &FaultyStorage) -> (E, Database) {
    open_with(storage, &options())
}

fn open_with<E: DiskEngine>(storage: &FaultyStorage, options: &Options) -> (E, Database) {
    let engine = E::open(Arc::new(storage.clone()), options).unwrap();
    let database = engine.database();
    (engine, database)
}

/// Keys that every kind takes.
fn key(number: u32) -> Vec<u8> {
    (10_000 + number).to_string().into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    format!("column\0value {number:05} {}", "and so on ".repeat(20)).into_bytes()
}

/// The text of a value that no other has.
fn mark(number: u32) -> Vec<u8> {
    format!("value {number:05} ").into_bytes()
}

fn put(database: &Database, numbers: Range<u32>) {
    for number in numbers {
        database.put(&key(number), &value(number)).unwrap();
    }
}

fn paths<E: DiskEngine>(storage: &FaultyStorage) -> Vec<PathBuf> {
    let mut names = storage.list(Path::new(E::PATH)).unwrap();
    names.sort();
    names.iter().map(|name| Path::new(E::PATH).join(name)).collect()
}

fn segments<E: DiskEngine>(storage: &FaultyStorage) -> Vec<PathBuf> {
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
    paths::<E>(storage).into_iter().filter(is_segment).collect()
}

fn contents(storage: &FaultyStorage, path: &Path) -> Vec<u8> {
    let file = storage.open(path, Open::Existing).unwrap();
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// The page in which the last segment that has it has this text.
fn page_of<E: DiskEngine>(storage: &FaultyStorage, text: &[u8]) -> (PathBuf, Range<u64>) {
    for path in segments::<E>(storage).into_iter().rev() {
        let bytes = contents(storage, &path);
        if let Some(at) = bytes.windows(text.len()).rposition(|window| window == text) {
            let start = at as u64 / PAGE_BYTES * PAGE_BYTES;
            return (path, start..start + PAGE_BYTES);
        }
    }
    panic!("{:?} is not there", String::from_utf8_lossy(text));
}

/// Loses that page; tells where it is.
fn lose_page_of<E: DiskEngine>(storage: &FaultyStorage, text: &[u8]) -> (PathBuf, Range<u64>) {
    let (path, page) = page_of::<E>(storage, text);
    storage.lose_sectors(&path, page.clone()).unwrap();
    (path, page)
}

fn damages<E: DiskEngine>(storage: &FaultyStorage) -> Vec<Damage> {
    let mut found = Vec::new();
    check_on(storage, Path::new(E::PATH), &|_| true, &mut |damage| found.push(damage)).unwrap();
    found
}

/// A database of several segments, closed or killed.
fn filled<E: DiskEngine>(is_closed: bool) -> FaultyStorage {
    let storage = FaultyStorage::new();
    let (engine, database) = open::<E>(&storage);
    put(&database, 0..RECORDS);
    let killed = storage.kill();
    drop((engine, database));
    let storage = if is_closed { storage.kill() } else { killed };
    assert_eq!(damages::<E>(&storage), []);
    assert!(segments::<E>(&storage).len() > 2);
    storage
}

/// Outcome of reading each record: those that are served are as they were put.
struct Served {
    good: u32,
    /// Numbers of those that are errors.
    errors: Vec<u32>,
    /// Numbers of those of which there is nothing.
    missing: Vec<u32>,
}

fn served(database: &Database) -> Served {
    let mut served = Served { good: 0, errors: Vec::new(), missing: Vec::new() };
    for number in 0..RECORDS {
        match database.get(&key(number)) {
            Ok(Some(found)) => {
                assert_eq!(found, value(number), "{number}");
                served.good += 1;
            }
            Ok(None) => served.missing.push(number),
            Err(Error::Corrupted { .. }) => served.errors.push(number),
            Err(error) => panic!("{number}: {error}"),
        }
    }
    served
}

/// Records that may lie on one page, and those that are cut by its ends.
const RECORDS_OF_PAGE: usize = PAGE_BYTES as usize / 200 + 2;

fn either_copy_of_the_manifest_suffices<E: DiskEngine>() {
    for is_closed in [true, false] {
        for name in ["manifest", "manifest.2"] {
            for sector in [0..512, 512..1024, 0..PAGE_BYTES] {
                let storage = filled::<E>(is_closed);
                let path = Path::new(E::PATH).join(name);
                storage.lose_sectors(&path, sector.clone()).unwrap();
                let is_named = |damages: &[Damage]| damages.len() == 1 && damages[0].file == path;
                assert!(is_named(&damages::<E>(&storage)), "{name} {sector:?}");
                let (engine, database) = open::<E>(&storage);
                assert!(is_named(&database.damages()), "{name} {sector:?}");
                assert_eq!(served(&database).good, RECORDS);
                drop((engine, database));
                assert_eq!(damages::<E>(&storage), [], "it was made again");
            }
        }
    }
}

#[test]
fn either_copy_of_the_manifest_suffices_if_the_other_cannot_be_read() {
    either_copy_of_the_manifest_suffices::<Hash>();
    either_copy_of_the_manifest_suffices::<Tree>();
}

#[test]
fn a_checkpoint_that_cannot_be_read_is_replaced_by_the_log() {
    fn test<E: DiskEngine>() {
        for halves in 0..=2 {
            let storage = filled::<E>(true);
            let path = Path::new(E::PATH).join("checkpoint");
            // Lengths differ a little from one filling to the next.
            let last = contents(&storage, &path).len() as u64 - 1;
            let start = last * halves / 2 / PAGE_BYTES * PAGE_BYTES;
            storage.lose_sectors(&path, start..start + PAGE_BYTES).unwrap();
            assert!(damages::<E>(&storage).iter().any(|damage| damage.file == path));
            let (engine, database) = open::<E>(&storage);
            assert_eq!(served(&database).good, RECORDS);
            engine.checkpoint().unwrap();
            drop((engine, database));
            assert_eq!(damages::<E>(&storage), []);
        }
    }
    test::<Hash>();
    test::<Fixed>();
}

#[test]
fn a_file_that_cannot_be_opened_costs_what_is_in_it() {
    fn test<E: DiskEngine>() {
        for is_closed in [true, false] {
            let names = paths::<E>(&filled::<E>(is_closed));
            for path in names.iter().filter(|path| !path.ends_with("lock")) {
                let storage = filled::<E>(is_closed);
                // The number of segments differs a little from one filling to the next.
                if !paths::<E>(&storage).contains(path) {
                    continue;
                }
                storage.lose_file(path).unwrap();
                let is_segment = path.extension().is_some_and(|extension| extension == "log");
                let is_named = |damages: &[Damage]| damages.iter().any(|one| one.file == *path);
                // The reserve holds nothing.
                let is_told = !path.ends_with("reserve");
                assert!(is_told == is_named(&damages::<E>(&storage)), "{}", path.display());
                if is_segment && !is_closed {
                    // There is no checkpoint, so any record may have changed in it.
                    let refused = E::open(Arc::new(storage), &options()).map(drop).unwrap_err();
                    let Error::Corrupted { file, what, .. } = refused else { panic!("{refused}") };
                    assert!(file == *path && what.contains("`tyrant salvage "), "{what}");
                    continue;
                }
                let (mut first, mut storage) = (None, storage);
                for opening in 0..3 {
                    let (engine, database) = open::<E>(&storage);
                    // A checkpoint is replaced by the log.
                    let is_told = is_told && opening == 0 && !path.ends_with("checkpoint");
                    assert!(!is_told || is_named(&database.damages()), "{}", path.display());
                    let served = served(&database);
                    assert!(served.good > RECORDS / 2, "{} of {}", served.good, path.display());
                    assert!(served.good == RECORDS || is_segment, "{}", path.display());
                    // The index of one that was closed knows what is lost.
                    assert!(!is_closed || served.missing.is_empty(), "{}", path.display());
                    assert_eq!(*first.get_or_insert(served.good), served.good);
                    database.put(&key(RECORDS + opening), &value(opening)).unwrap();
                    drop((engine, database));
                    storage = storage.kill();
                }
                let (_engine, database) = open::<E>(&storage);
                for opening in 0..3 {
                    let found = database.get(&key(RECORDS + opening)).unwrap();
                    assert_eq!(found, Some(value(opening)), "{}", path.display());
                }
            }
        }
    }
    test::<Hash>();
    test::<Fixed>();
}

#[test]
fn what_is_in_other_files_is_salvaged_if_one_cannot_be_opened() {
    let storage = filled::<Hash>(true);
    let lost = segments::<Hash>(&storage)[1].clone();
    storage.lose_file(&lost).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let into = options().open(folder.path().join("into.tch")).unwrap();
    let mut found = Vec::new();
    salvage_on(&storage, Path::new(Hash::PATH), None, &into, &mut |damage| found.push(damage))
        .unwrap();
    assert!(found.iter().any(|damage| damage.file == lost), "{found:?}");
    assert!(served(&into).good > RECORDS / 2);
}

/// As one without permission, which root has always.
#[test]
fn a_file_that_is_there_and_may_not_be_opened_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("casket.tch");
    drop(options().open(&path).unwrap());
    let segment = path.join("0000000001.log");
    std::fs::remove_file(&segment).unwrap();
    std::fs::create_dir(&segment).unwrap();
    let error = options().open(&path).err().unwrap().to_string();
    assert!(error.starts_with(&format!("open {}: ", segment.display())), "{error}");
}

#[test]
fn the_header_of_a_segment_that_cannot_be_read_costs_no_record() {
    fn test<E: DiskEngine>() {
        for is_closed in [true, false] {
            for halves in 0..=2 {
                let storage = filled::<E>(is_closed);
                let count = segments::<E>(&storage).len();
                let index = (count - 1) * halves / 2;
                let path = segments::<E>(&storage)[index].clone();
                // Not the whole page, in which there are records.
                storage.lose_sectors(&path, 0..64).unwrap();
                let is_named = |damages: &[Damage]| {
                    damages.iter().any(|damage| damage.file == path && damage.offset == 0)
                };
                assert!(is_named(&damages::<E>(&storage)), "{index} of {count}");
                let (_engine, database) = open::<E>(&storage);
                assert!(is_named(&database.damages()), "{index} of {count}");
                let served = served(&database);
                let lost = served.errors.len() + served.missing.len();
                // The rest of the page is read by the page.
                assert!(lost <= RECORDS_OF_PAGE, "{lost} lost at {index} of {count}");
            }
        }
    }
    test::<Hash>();
    test::<Fixed>();
}

/// A page that is lost where the log is replayed costs the records on it, is reported at each
/// opening and each check, and what is put then is there.
#[test]
fn what_is_behind_a_page_that_cannot_be_read_is_replayed() {
    fn test<E: DiskEngine>() {
        for number in (5..RECORDS).step_by(83).chain([RECORDS - 40, RECORDS - 1]) {
            let storage = filled::<E>(false);
            let (path, page) = lose_page_of::<E>(&storage, &mark(number));
            let is_named = |damages: &[Damage]| {
                damages.iter().any(|damage| {
                    let is_near = damage.offset + 400 > page.start && damage.offset < page.end;
                    damage.file == path && is_near
                })
            };
            assert!(is_named(&damages::<E>(&storage)), "{number}");
            for opening in 0..3 {
                let storage = storage.kill();
                let (engine, database) = open::<E>(&storage);
                assert!(is_named(&database.damages()), "{number}, opening {opening}");
                let served = served(&database);
                let lost = served.missing.len() + served.errors.len();
                assert!(lost > 0 && lost <= RECORDS_OF_PAGE, "{number}: {lost} lost");
                assert!(served.good + lost as u32 == RECORDS);
                database.put(&key(RECORDS + opening), &value(RECORDS + opening)).unwrap();
                engine.run_maintenance().unwrap();
                let killed = storage.kill();
                assert!(is_named(&damages::<E>(&killed)), "{number}, opening {opening}");
                let (engine, database) = open::<E>(&killed);
                let found = database.get(&key(RECORDS + opening)).unwrap();
                assert_eq!(found, Some(value(RECORDS + opening)));
                drop((engine, database));
                assert!(is_named(&damages::<E>(&killed)), "{number}, opening {opening}");
            }
        }
    }
    test::<Hash>();
    test::<Fixed>();
}

/// The end of the log may be torn by a kill, but what the disk cannot read there was written.
#[test]
fn the_last_records_before_a_kill_are_damage_if_the_disk_cannot_read_them() {
    let storage = FaultyStorage::new();
    let (_engine, database) = open::<Hash>(&storage);
    put(&database, 0..3);
    let mut batch = Batch::new();
    for number in 3..60 {
        batch.put(&key(number), &value(number), Meta::NONE);
    }
    database.write(&batch).unwrap();
    for number in [1, 3, 30, 59] {
        let killed = storage.kill();
        let (path, _) = lose_page_of::<Hash>(&killed, &mark(number));
        assert!(damages::<Hash>(&killed).iter().any(|damage| damage.file == path), "{number}");
        let mut lost_before = None;
        for opening in 0..3 {
            let killed = killed.kill();
            let (_engine, database) = open::<Hash>(&killed);
            assert!(!database.damages().is_empty());
            let lost: Vec<u32> =
                (0..60).filter(|n| database.get(&key(*n)).unwrap().is_none()).collect();
            assert!(lost.contains(&number) && lost.len() <= RECORDS_OF_PAGE, "{number}: {lost:?}");
            assert_eq!(*lost_before.get_or_insert(lost.clone()), lost, "opening {opening}");
            put(&database, 100..120);
        }
    }
}

/// A disk may leave sectors that it cannot read where it was writing when the power went.
#[test]
fn what_cannot_be_read_after_a_power_loss_costs_what_was_not_synced_at_most() {
    const SYNCED: u32 = 300;
    fn test<E: DiskEngine>(durability: Durability, eager_append_blocks: bool) {
        let mut options = options();
        options.durability = durability;
        options.set_eager_append_blocks(eager_append_blocks);
        for lost in (0..RECORDS).step_by(37).chain([RECORDS - 1]) {
            let storage = FaultyStorage::new();
            let (_engine, database) = open_with::<E>(&storage, &options);
            put(&database, 0..SYNCED);
            database.sync().unwrap();
            // A sync begins with the note that the one before has come to its end.
            put(&database, SYNCED..SYNCED + 40);
            database.sync().unwrap();
            let deferred = database.deferred();
            for number in SYNCED + 40..RECORDS {
                deferred.put(&key(number), &value(number)).unwrap();
            }
            // All of it has come to the disk, but for a page.
            let storage = storage.lose_power(|| 16);
            lose_page_of::<E>(&storage, &mark(lost));
            let mut before = None;
            for opening in 0..3 {
                let storage = storage.kill();
                let (_engine, database) = open_with::<E>(&storage, &options);
                let found = |number: u32| database.get(&key(number)).unwrap();
                let missing: Vec<u32> = (0..RECORDS).filter(|n| found(*n).is_none()).collect();
                let synced = missing.iter().filter(|number| **number < SYNCED).count();
                assert!(synced <= RECORDS_OF_PAGE, "{lost}, opening {opening}: {missing:?}");
                assert!(synced == 0 || !database.damages().is_empty(), "{lost}");
                assert_eq!(*before.get_or_insert(missing.clone()), missing, "{lost}");
                put(&database, RECORDS..RECORDS + 20);
                assert_eq!(found(RECORDS), Some(value(RECORDS)));
            }
        }
    }
    for (durability, eager_append_blocks) in
        [(Durability::None, false), (Durability::None, true), (Durability::Always, false)]
    {
        test::<Hash>(durability, eager_append_blocks);
        test::<Fixed>(durability, eager_append_blocks);
    }
}

#[test]
fn a_record_that_cannot_be_read_is_an_error_until_it_is_replaced() {
    fn test<E: DiskEngine>() {
        let storage = filled::<E>(true);
        let (path, _) = lose_page_of::<E>(&storage, &mark(200));
        let (engine, database) = open::<E>(&storage);
        let served_before = served(&database);
        let errors = &served_before.errors;
        assert!(errors.contains(&200) && errors.len() <= RECORDS_OF_PAGE, "{errors:?}");
        assert_eq!(served_before.missing, []);
        let error = database.get(&key(200)).unwrap_err();
        assert!(matches!(&error, Error::Corrupted { file, .. } if *file == path), "{error}");
        let failed = |database: &Database| {
            let stats = database.stats();
            let (_, count) =
                stats.into_iter().find(|(name, _)| *name == "damaged_records").unwrap();
            count.parse::<u64>().unwrap()
        };
        assert!(failed(&database) >= errors.len() as u64);
        // A put and a removal take their places.
        database.put(&key(errors[0]), b"new").unwrap();
        assert_eq!(database.get(&key(errors[0])).unwrap().unwrap(), b"new");
        let _ = database.remove(&key(errors[1]));
        engine.run_maintenance().unwrap();
        let killed = storage.kill();
        let (_engine, database) = open::<E>(&killed);
        assert_eq!(database.get(&key(errors[0])).unwrap().unwrap(), b"new");
        let after = served_but(&database, errors[0]);
        assert_eq!(after.errors[..], errors[2..]);
        assert_eq!(after.missing, [errors[1]]);
    }
    test::<Hash>();
    test::<Fixed>();
}

/// As `served`, without the record that was put again.
fn served_but(database: &Database, number: u32) -> Served {
    let new = database.get(&key(number)).unwrap().unwrap();
    database.put(&key(number), &value(number)).unwrap();
    let served = served(database);
    database.put(&key(number), &new).unwrap();
    served
}

#[test]
fn compaction_goes_on_with_other_segments_and_keeps_what_it_cannot_read() {
    fn test<E: DiskEngine>() {
        let storage = filled::<E>(true);
        let before = segments::<E>(&storage).len();
        let (path, _) = lose_page_of::<E>(&storage, &mark(100));
        let (engine, database) = open::<E>(&storage);
        let lost = served(&database).errors;
        // Most of each segment is dead.
        for number in (0..RECORDS).filter(|number| number % 10 != 0 && !lost.contains(number)) {
            assert!(database.remove(&key(number)).unwrap());
        }
        engine.run_maintenance().unwrap();
        database.optimize().unwrap();
        let left = segments::<E>(&storage);
        assert!(left.contains(&path), "the segment is kept");
        assert!(left.len() <= before / 2 + 2, "{} of {before} are left", left.len());
        let (engine, database) = {
            drop((engine, database));
            open::<E>(&storage)
        };
        for number in 0..RECORDS {
            let found = database.get(&key(number));
            if lost.contains(&number) {
                assert!(matches!(found, Err(Error::Corrupted { .. })), "{number}");
            } else {
                let expected = (number % 10 == 0).then(|| value(number));
                assert_eq!(found.unwrap(), expected, "{number}");
            }
        }
        drop((engine, database));
    }
    test::<Hash>();
    test::<Fixed>();
}

#[test]
fn expired_records_go_also_behind_a_page_that_cannot_be_read() {
    fn test<E: DiskEngine>() {
        let (clock, hand) = Clock::manual(1000);
        let mut options = options();
        options.clock = clock;
        let storage = FaultyStorage::new();
        {
            let (_engine, database) = open_with::<E>(&storage, &options);
            let meta = Meta { expires_at_ms: 5000, ..Meta::NONE };
            for number in 0..RECORDS {
                database.put_with(&key(number), &value(number), meta).unwrap();
            }
        }
        lose_page_of::<E>(&storage, &mark(100));
        let (engine, database) = open_with::<E>(&storage, &options);
        assert_eq!(database.len(), u64::from(RECORDS));
        hand.set(6000);
        engine.run_maintenance().unwrap();
        let left = database.len();
        assert!(left > 0 && left <= RECORDS_OF_PAGE as u64, "{left} are left");
    }
    test::<Hash>();
    test::<Fixed>();
}

#[test]
fn checkpoints_of_a_tree_go_on_beside_a_page_that_cannot_be_read() {
    fn test<E: DiskEngine>() {
        let storage = filled::<E>(true);
        let (path, _) = lose_page_of::<E>(&storage, &mark(300));
        let mut lost = None;
        for round in 0..3 {
            let (engine, database) = open::<E>(&storage);
            let served = served(&database);
            assert!(served.errors.contains(&300) && served.errors.len() < 100);
            assert_eq!(served.missing, [], "never nothing");
            assert_eq!(*lost.get_or_insert(served.errors.clone()), served.errors);
            for _ in 0..4 {
                for number in (0..RECORDS).filter(|number| !served.errors.contains(number)) {
                    database.put(&key(number), &value(number)).unwrap();
                }
                engine.checkpoint().unwrap();
            }
            database.optimize().unwrap();
            let left = segments::<E>(&storage);
            assert!(left.contains(&path), "round {round}: the segment is kept");
            let length =
                |path: &PathBuf| storage.open(path, Open::Existing).unwrap().length().unwrap();
            let bytes: u64 = left.iter().map(length).sum();
            assert!(
                bytes < 8 * u64::from(RECORDS) * 250,
                "round {round}: the log has {bytes} bytes"
            );
        }
        assert!(damages::<E>(&storage).iter().any(|damage| damage.file == path));
    }
    test::<Tree>();
    test::<TableDatabase>();
}

#[test]
fn a_verification_finds_every_page_that_cannot_be_read() {
    let storage = filled::<Hash>(true);
    let pages = [20, 150].map(|number| page_of::<Hash>(&storage, &mark(number)));
    assert_eq!(pages[0].0, pages[1].0);
    for (path, page) in pages {
        storage.lose_sectors(&path, page).unwrap();
    }
    let (_engine, database) = open::<Hash>(&storage);
    let mut found = Vec::new();
    let verified =
        database.verify(&mut |_| Some(u64::MAX), &mut |damage| found.push(damage)).unwrap();
    assert!(verified.is_complete && found.len() == 2, "{found:?}");
    assert!(verified.checked.records + 2 * RECORDS_OF_PAGE as u64 >= u64::from(RECORDS));
}

#[test]
fn a_salvage_takes_what_is_around_a_page_that_cannot_be_read() {
    fn test<E: DiskEngine>(into_suffix: &str) {
        let storage = filled::<E>(true);
        lose_page_of::<E>(&storage, &mark(200));
        for name in ["manifest", "manifest.2"] {
            storage.lose_sectors(&Path::new(E::PATH).join(name), 0..512).unwrap();
        }
        storage.lose_sectors(&segments::<E>(&storage)[1], 0..64).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().join(format!("into.{into_suffix}"));
        let into = Options::new().open(&into).unwrap();
        let mut found = Vec::new();
        let path = Path::new(E::PATH);
        salvage_on(&storage, path, None, &into, &mut |damage| found.push(damage)).unwrap();
        assert!(found.len() >= 3, "{found:?}");
        let served = served(&into);
        assert!(served.good + 3 * RECORDS_OF_PAGE as u32 >= RECORDS, "{} are there", served.good);
    }
    test::<Hash>("tch");
    test::<Tree>("tcb");
}
