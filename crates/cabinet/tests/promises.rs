//! Damage after a loss of power. Bytes that were synced are promised, also if the active segment
//! was lost because compaction had synced only the sealed ones. Other bytes are dropped, and no
//! later opening reports them.

use cabinet::testing::{FaultyStorage, Open, Storage, check_on};
use cabinet::{Damage, Database, Durability, HashDatabase, Options};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PATH: &str = "casket.tch";

/// Number that has [`FaultyStorage::lose_power`] keep only what was synced.
const ONLY_SYNCED: u64 = 3;

/// Number that has [`FaultyStorage::lose_power`] keep everything.
const EVERYTHING: u64 = 16;

const RECORDS: u32 = 1500;

/// Number of records of a log of which several segments are compacted.
const MANY: u32 = 4 * RECORDS;

/// Size of a record that [`put_all`] puts, in bytes.
const RECORD_BYTES: u64 = 120;

/// Offset of the first record of a segment, in bytes.
const HEADER_BYTES: u64 = 64;

/// Number of records that each segment but the last one has at least.
const RECORDS_PER_SEGMENT_MIN: usize = 500;

/// A segment with less than this has no record, in bytes.
const RECORDS_BYTES_MIN: u64 = 1000;

fn options(durability: Durability) -> Options {
    let mut options = Options::default();
    options.segment_bytes = Some(64 << 10);
    options.durability = durability;
    options
}

fn open(storage: &FaultyStorage, durability: Durability) -> (Arc<HashDatabase>, Database) {
    let (path, options) = (Path::new(PATH), options(durability));
    let engine = HashDatabase::open_on(Arc::new(storage.clone()), path, &options, false);
    let engine = Arc::new(engine.expect("the database opens"));
    (Arc::clone(&engine), Database::from_engine(engine))
}

fn put_all(database: &Database, numbers: impl Iterator<Item = u32>) {
    for number in numbers {
        database.put(&number.to_be_bytes(), &[1; 100]).expect("a put");
    }
}

/// Returns the last segment that has records.
fn last_segment(storage: &FaultyStorage) -> PathBuf {
    let names = storage.list(Path::new(PATH)).expect("names");
    let paths = names.iter().filter(|name| name.ends_with(".log"));
    let mut paths: Vec<_> = paths.map(|name| Path::new(PATH).join(name)).collect();
    paths.sort();
    let has_records = |path: &PathBuf| {
        let file = storage.open(path, Open::Existing).expect("a segment");
        file.length().expect("a length") >= RECORDS_BYTES_MIN
    };
    paths.into_iter().rfind(has_records).expect("a segment with records")
}

fn damages(storage: &FaultyStorage) -> Vec<Damage> {
    let mut found = Vec::new();
    check_on(storage, Path::new(PATH), &|_| true, &mut |damage| found.push(damage))
        .expect("a check");
    found
}

fn lost_records(database: &Database) -> usize {
    lost_of(database, RECORDS)
}

fn lost_of(database: &Database, records: u32) -> usize {
    let is_lost = |number: &u32| !matches!(database.get(&number.to_be_bytes()), Ok(Some(_)));
    (0..records).filter(is_lost).count()
}

fn remove(storage: &FaultyStorage, path: &Path) {
    storage.remove(path).expect("it is there");
    storage.sync_dir(Path::new(PATH)).expect("a sync");
}

fn overwrite(storage: &FaultyStorage, path: &Path, offset: u64) {
    let file = storage.open(path, Open::Existing).expect("it is there");
    file.write_at(&[0xff; 8], offset).expect("a write");
    file.sync().expect("a sync");
}

/// Returns the disk of a synced database after a loss of power.
fn synced() -> FaultyStorage {
    let storage = FaultyStorage::new();
    let (engine, database) = open(&storage, Durability::Interval(1000));
    put_all(&database, 0..RECORDS);
    for _ in 0..2 {
        database.sync().expect("a sync");
        // Writes the manifest with all that was synced.
        engine.run_maintenance().expect("maintenance");
    }
    storage.lose_power(|| ONLY_SYNCED)
}

#[test]
fn the_loss_of_the_last_file_after_a_loss_of_power_is_reported() {
    let storage = synced();
    remove(&storage, &last_segment(&storage));
    assert_ne!(damages(&storage), []);
    let (_engine, database) = open(&storage, Durability::Interval(1000));
    assert!(lost_records(&database) > 0);
    assert_ne!(database.damages(), []);
}

#[test]
fn a_damaged_header_of_the_last_file_after_a_loss_of_power_is_reported() {
    let storage = synced();
    overwrite(&storage, &last_segment(&storage), 20);
    assert_ne!(damages(&storage), []);
}

/// Compacts so that only sealed segments are synced, loses the power and with it the active
/// segment, continues in the last one, and loses the power again.
fn continued_after_a_loss() -> FaultyStorage {
    let storage = FaultyStorage::new();
    let (engine, database) = open(&storage, Durability::None);
    put_all(&database, 0..MANY);
    put_all(&database, (0..MANY - 300).filter(|number| number % 8 < 5));
    for _ in 0..2 {
        engine.run_maintenance().expect("maintenance");
    }
    let left = storage.lose_power(|| ONLY_SYNCED);
    assert_eq!(damages(&left), []);
    let (_engine, database) = open(&left, Durability::None);
    assert_eq!(database.damages(), []);
    assert_eq!(lost_of(&database, MANY), 0);
    database.put(b"one more", b"value").expect("a put");
    let again = left.lose_power(|| ONLY_SYNCED);
    assert_eq!(damages(&again), []);
    again
}

#[test]
fn damage_of_a_segment_that_compaction_has_synced_is_reported_after_two_losses_of_power() {
    let storage = continued_after_a_loss();
    overwrite(&storage, &last_segment(&storage), 400);
    assert_ne!(damages(&storage), []);
    let (_engine, database) = open(&storage, Durability::None);
    assert!((1..10).contains(&lost_of(&database, MANY)), "only what was hit is lost");
}

#[test]
fn the_loss_of_a_segment_that_compaction_has_synced_is_reported_after_two_losses_of_power() {
    let storage = continued_after_a_loss();
    remove(&storage, &last_segment(&storage));
    assert_ne!(damages(&storage), []);
}

/// Returns the disk of a database of four segments after a loss of power. Nothing was synced since
/// it was opened, so nothing is promised.
fn unsynced(is_manifest_kept: bool) -> FaultyStorage {
    let storage = FaultyStorage::new();
    let (_engine, database) = open(&storage, Durability::None);
    let synced = storage.lose_power(|| ONLY_SYNCED);
    put_all(&database, 0..4 * RECORDS / 3);
    let left = storage.lose_power(|| EVERYTHING);
    if !is_manifest_kept {
        for name in ["manifest", "manifest.2"] {
            let path = Path::new(PATH).join(name);
            let [from, to] = [&synced, &left].map(|one| one.open(&path, Open::Existing));
            let (from, to) = (from.expect("it is there"), to.expect("it is there"));
            let mut bytes = vec![0; from.length().expect("a length") as usize];
            from.read_at(&mut bytes, 0).expect("a read");
            to.truncate(0).expect("a cut");
            to.write_at(&bytes, 0).expect("a write");
            to.sync().expect("a sync");
        }
    }
    left
}

fn segment(number: u32) -> PathBuf {
    Path::new(PATH).join(format!("{number:010}.log"))
}

fn cut(storage: &FaultyStorage, path: &Path, bytes: u64) {
    let file = storage.open(path, Open::Existing).expect("it is there");
    assert!(file.length().expect("a length") > bytes);
    file.truncate(bytes).expect("a cut");
    file.sync().expect("a sync");
}

/// Checks that neither the next opening nor later ones report damage, and that all of them serve
/// the same records: at least those of the first segment.
fn assert_dropped_for_ever(mut storage: FaultyStorage, case: &str) {
    let lost_max = RECORDS as usize - RECORDS_PER_SEGMENT_MIN;
    let mut lost = None;
    for opening in 1..=3 {
        assert_eq!(damages(&storage), [], "{case}, before opening {opening}");
        let (_engine, database) = open(&storage, Durability::None);
        assert_eq!(database.damages(), [], "{case}, opening {opening}");
        let now = lost_records(&database);
        assert!((1..=lost_max).contains(&now), "{case}, {now} of {RECORDS} are lost");
        assert_eq!(*lost.get_or_insert(now), now, "{case}, opening {opening}");
        storage = storage.kill();
    }
}

/// Lengths to which a segment is cut: within a record, and less than the shortest record after the
/// end of one.
fn lengths() -> impl Iterator<Item = u64> {
    let end_of_a_record = HEADER_BYTES + 249 * RECORD_BYTES;
    [1, 8, 11, 16, 59, 64].into_iter().map(move |more| end_of_a_record + more)
}

/// Cuts a segment that is not the last one, whose length the manifest has, or the next segment, or
/// neither.
fn assert_dropped_when_cut(has_hole: bool) {
    for bytes in lengths() {
        for (is_manifest_kept, is_next_there) in
            [(true, true), (true, false), (false, true), (false, false)]
        {
            let storage = unsynced(is_manifest_kept);
            if has_hole {
                overwrite(&storage, &segment(2), HEADER_BYTES + 9 * RECORD_BYTES);
            }
            cut(&storage, &segment(2), bytes);
            if !is_next_there {
                remove(&storage, &segment(3));
            }
            let case = format!("{bytes} bytes, {is_manifest_kept}, {is_next_there}");
            assert_dropped_for_ever(storage, &case);
        }
    }
}

#[test]
fn a_segment_that_a_loss_of_power_has_cut_at_any_byte_is_no_damage_later() {
    assert_dropped_when_cut(false);
}

#[test]
fn a_segment_that_a_loss_of_power_has_cut_after_a_hole_is_no_damage_later() {
    assert_dropped_when_cut(true);
}

/// Returns the numbers of damages and of lost records that checks and openings find in a synced
/// database after a segment was cut, and the next one, which is the last, was removed or not.
fn damages_of_a_promised_segment(bytes: u64, is_next_there: bool) -> Vec<usize> {
    let mut storage = synced();
    cut(&storage, &segment(2), bytes);
    if !is_next_there {
        remove(&storage, &segment(3));
    }
    let mut counts = Vec::new();
    for _ in 0..3 {
        counts.push(damages(&storage).len());
        let (_engine, database) = open(&storage, Durability::None);
        counts.push(database.damages().len());
        counts.push(lost_records(&database));
        storage = storage.kill();
    }
    counts
}

#[test]
fn a_promised_segment_that_is_cut_is_as_damaged_where_no_record_may_begin() {
    for is_next_there in [true, false] {
        let expected = damages_of_a_promised_segment(30_000, is_next_there);
        assert!(expected.iter().all(|count| *count > 0));
        assert_eq!(damages_of_a_promised_segment(30_003, is_next_there), expected);
    }
}
