//! Hash and fixed-length databases: one damage a seed, after a close, a kill or a loss of power.

use cabinet::testing::{FaultyStorage, File, Open, Storage, check_on};
use cabinet::{Damage, Database, Durability, Engine, Error, FixedDatabase, HashDatabase, Options};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const KEYS: u64 = 200;

struct Chance(u64);

impl Chance {
    fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

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

/// A database without threads, and what it holds: the value of each key that has one.
type Values = BTreeMap<Vec<u8>, Vec<u8>>;

struct Kind {
    path: &'static str,
    open: fn(FaultyStorage, &Options) -> cabinet::Result<Opened>,
}

struct Opened {
    database: Database,
    checkpoint: Box<dyn Fn()>,
    run_maintenance: Box<dyn Fn()>,
}

fn hash(storage: FaultyStorage, options: &Options) -> cabinet::Result<Opened> {
    let path = Path::new("casket.tch");
    let engine = Arc::new(HashDatabase::open_on(Arc::new(storage), path, options, false)?);
    let (one, other) = (Arc::clone(&engine), Arc::clone(&engine));
    Ok(Opened {
        checkpoint: Box::new(move || one.checkpoint().expect("a checkpoint")),
        run_maintenance: Box::new(move || other.run_maintenance().expect("maintenance")),
        database: Database::from_engine(engine as Arc<dyn Engine>),
    })
}

fn fixed(storage: FaultyStorage, options: &Options) -> cabinet::Result<Opened> {
    let path = Path::new("casket.tcf");
    let engine = Arc::new(FixedDatabase::open_on(Arc::new(storage), path, options, false)?);
    let (one, other) = (Arc::clone(&engine), Arc::clone(&engine));
    Ok(Opened {
        checkpoint: Box::new(move || one.checkpoint().expect("a checkpoint")),
        run_maintenance: Box::new(move || other.run_maintenance().expect("maintenance")),
        database: Database::from_engine(engine as Arc<dyn Engine>),
    })
}

const KINDS: [Kind; 2] =
    [Kind { path: "casket.tch", open: hash }, Kind { path: "casket.tcf", open: fixed }];

/// All values that each key had. The offset of its record when the files were damaged cannot be
/// told from outside.
struct History {
    present: Values,
    past: BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>,
}

/// Lengths of values with which records with keys of 1 to 3 bytes take a power of two, so that they
/// begin where pages begin.
const ALIGNED_VALUE_BYTES: [usize; 5] = [36, 100, 228, 484, 996];

/// Stores and removes records, of `value_bytes` bytes each or of any length.
fn fill(opened: &Opened, chance: &mut Chance, value_bytes: Option<usize>) -> History {
    let (mut present, mut past) = (Values::new(), BTreeMap::new());
    for number in 0..chance.below(1500) {
        let key = (chance.below(KEYS) + 1).to_string().into_bytes();
        let values: &mut Vec<Option<Vec<u8>>> = past.entry(key.clone()).or_default();
        if chance.below(5) == 0 {
            opened.database.remove(&key).expect("a removal");
            present.remove(&key);
            values.push(None);
        } else {
            let mut value = format!("{number} ").into_bytes();
            let length = value_bytes.unwrap_or_else(|| 8 + chance.below(240) as usize);
            value.resize(length, chance.next() as u8);
            opened.database.put(&key, &value).expect("a put");
            present.insert(key, value.clone());
            values.push(Some(value));
        }
        match chance.below(400) {
            0 => (opened.checkpoint)(),
            1 => (opened.run_maintenance)(),
            2 => opened.database.sync().expect("a sync"),
            _ => {}
        }
    }
    History { present, past }
}

/// Harms one file, and says how.
fn damage(storage: &FaultyStorage, folder: &Path, chance: &mut Chance) -> String {
    let mut names = storage.list(folder).expect("a listing");
    names.retain(|name| name.ends_with(".log") || name.starts_with("manifest"));
    names.sort();
    let name = names[chance.below(names.len() as u64) as usize].clone();
    let path = folder.join(&name);
    let file = storage.open(&path, Open::Existing).expect("a file");
    let length = file.length().expect("a length");
    let at = chance.below(length.max(1));
    match chance.below(8) {
        4 | 5 => {
            let start = at / 4096 * 4096;
            storage.lose_sectors(&path, start..start + 4096).expect("a file");
            return format!("{name} of {length} cannot be read at {start}");
        }
        0 => {
            storage.remove(&path).expect("to remove it");
            return format!("{name} is removed");
        }
        1 if name.ends_with(".log") => {
            let segments: Vec<_> = names.iter().filter(|name| name.ends_with(".log")).collect();
            let other = folder.join(segments[chance.below(segments.len() as u64) as usize]);
            let beside = folder.join("beside");
            if other != path {
                storage.rename(&path, &beside).expect("to rename it");
                storage.rename(&other, &path).expect("to rename it");
                storage.rename(&beside, &other).expect("to rename it");
            }
            return format!("{name} and {} have each other's names", other.display());
        }
        2 => {
            file.truncate(at).expect("to cut it");
            return format!("{name} is cut at {at} of {length}");
        }
        3 => {
            let bytes = chance.below(2000).min(length - at);
            file.write_at(&vec![0; bytes as usize], at).expect("to write");
            return format!("{bytes} bytes of {name} from {at} of {length} on are zeros");
        }
        _ => {}
    }
    let mut byte = [0];
    file.read_at(&mut byte, at).expect("a read");
    file.write_at(&[byte[0] ^ 1 << chance.below(8)], at).expect("to write");
    format!("a bit of {name} at {at} of {length} is another")
}

/// Writes a page of a segment to a wrong place, of the same segment or another, or swaps two pages.
/// Returns a description.
fn misdirect(storage: &FaultyStorage, folder: &Path, chance: &mut Chance) -> String {
    const PAGE: u64 = 4096;
    let mut names = storage.list(folder).expect("a listing");
    names.retain(|name| name.ends_with(".log"));
    names.sort();
    let mut place = || {
        let name = names[chance.below(names.len() as u64) as usize].clone();
        let file = storage.open(&folder.join(&name), Open::Existing).expect("a file");
        let length = file.length().expect("a length");
        let mut contents = vec![0; length as usize];
        file.read_at(&mut contents, 0).expect("a read");
        let written = contents.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
        let start = chance.below((written as u64).div_ceil(PAGE)) * PAGE;
        let page = contents[start as usize..(start + PAGE).min(length) as usize].to_vec();
        let is_at_end = Some(&name) == names.last() && start + 2 * PAGE > written as u64;
        (name, file, start, page, is_at_end)
    };
    let (from, to) = (place(), place());
    let write = |file: &Arc<dyn File>, page: &[u8], start: u64| {
        let length = file.length().expect("a length").min(start + PAGE) - start;
        let bytes = &page[..page.len().min(length as usize)];
        file.write_at(bytes, start).expect("to write");
    };
    write(&to.1, &from.3, to.2);
    let is_swapped = chance.below(2) == 0;
    if is_swapped {
        write(&from.1, &to.3, from.2);
    }
    let how = if is_swapped { "is swapped with" } else { "is written to" };
    let end = if to.4 || is_swapped && from.4 { ", at the end of the log" } else { "" };
    format!("the page at {} of {} {how} that at {} of {}{end}", from.2, from.0, to.2, to.0)
}

fn damages(storage: &FaultyStorage, path: &str) -> cabinet::Result<Vec<Damage>> {
    let mut found = Vec::new();
    check_on(storage, Path::new(path), &|_| true, &mut |damage| found.push(damage))?;
    Ok(found)
}

/// A way to damage a file in a folder, which returns a description.
type Way = fn(&FaultyStorage, &Path, &mut Chance) -> String;

fn one(kind: &Kind, seed: u64, way: Way, value_bytes: Option<usize>) {
    let mut chance = Chance::of(seed);
    let mut options = Options::default();
    options.segment_bytes = Some(64 << 10);
    options.durability = if seed.is_multiple_of(2) { Durability::None } else { Durability::Always };
    options.dead_percent_max = 90;
    if value_bytes.is_some() {
        options.width = Some(ALIGNED_VALUE_BYTES.into_iter().max().unwrap() as u64);
    }
    let storage = FaultyStorage::new();
    let opened = (kind.open)(storage.clone(), &options).expect("a new database");
    let history = fill(&opened, &mut chance, value_bytes);
    let is_killed = chance.below(2) == 0;
    let storage = if is_killed {
        let left = storage.kill();
        drop(opened);
        left
    } else {
        drop(opened);
        storage.kill()
    };
    let context = way(&storage, Path::new(kind.path), &mut chance);
    let context = format!("seed {seed}, {}, killed: {is_killed}, {context}", kind.path);
    let found = damages(&storage, kind.path).unwrap_or_else(|error| panic!("{context}: {error}"));
    let is_removed = context.contains("is removed");
    let opened = match (kind.open)(storage.clone(), &options) {
        Ok(opened) => opened,
        // Any record may have changed in the segment since the last checkpoint.
        Err(Error::Corrupted { file, what, .. }) if is_removed && what.contains("salvage") => {
            assert!(is_killed && found.iter().any(|one| one.file == file), "{context}: {what}");
            return;
        }
        Err(error) => panic!("{context}: {error}"),
    };
    // Opening reads no more than it has to, so checking may find more, but not less.
    let at_opening = opened.database.damages();
    for damage in &at_opening {
        // A checkpoint may be of a place on the page that is lost, of which checking finds the
        // beginning.
        let is_on_lost_page = |other: &&Damage| {
            other.file == damage.file && other.what == damage.what && other.offset < damage.offset
        };
        // The same of a page that holds another: bytes within its records may look otherwise.
        let is_on_other_page = |other: &Damage| {
            let before = damage.offset.checked_sub(other.offset);
            other.file == damage.file && before.is_some_and(|bytes| bytes < 2 * 4096)
        };
        let has_it = found.contains(damage)
            || context.contains("cannot be read") && found.iter().any(|one| is_on_lost_page(&one))
            || context.contains("the page at") && found.iter().any(is_on_other_page);
        assert!(has_it, "{context}: only opening found {damage}, of {found:?}");
    }
    let (mut wrong, mut errors) = (0, 0);
    for number in 1..=KEYS {
        let key = number.to_string().into_bytes();
        let expected = history.present.get(&key);
        match opened.database.get(&key) {
            Ok(value) if value.as_ref() == expected => {}
            Ok(value) => {
                let past = history.past.get(&key).expect("a key that was put");
                assert!(value.is_none() || past.contains(&value), "{context}: {key:?}");
                wrong += 1;
            }
            Err(Error::Corrupted { .. }) => errors += 1,
            Err(error) => panic!("{context}: {error}"),
        }
    }
    // The last record that a killed process was appending may be torn, and nothing is written
    // after it: damage that looks so cannot be told from it.
    let is_at_end = ["zeros", "end of the log"].iter().any(|place| context.contains(place));
    let looks_unwritten = is_killed && is_at_end;
    let tolerated = match looks_unwritten {
        true => KEYS,
        // A process leaves nothing that cannot be read, and no file without a margin.
        false => {
            let is_told = ["cannot be read", "is cut"].iter().any(|how| context.contains(how));
            u64::from(is_killed && !is_told)
        }
    };
    assert!(wrong == 0 || !is_removed, "{context}: {wrong} records are older or gone");
    assert!(
        wrong <= tolerated || !at_opening.is_empty(),
        "{context}: {wrong} records are older or gone, and opening says nothing"
    );
    assert!(errors == 0 || !found.is_empty(), "{context}: checking finds nothing");
    drop(opened);
    if !at_opening.is_empty() && wrong > 0 {
        let again = damages(&storage, kind.path).expect("a check");
        assert!(!again.is_empty(), "{context}: what was lost is forgotten: {at_opening:?}");
    }
}

#[test]
fn what_is_whole_is_served_and_what_is_not_is_reported() {
    // They are quick, so that there are more.
    let seeds = crate::seeds_or(300);
    for seed in seeds {
        KINDS.iter().for_each(|kind| one(kind, seed + 1, damage, None));
    }
}

#[test]
fn records_in_the_place_of_others_are_reported_whatever_their_length() {
    for seed in crate::seeds_or(300) {
        // One more is any length.
        let lengths = ALIGNED_VALUE_BYTES.len() as u64 + 1;
        let value_bytes = ALIGNED_VALUE_BYTES.get((seed % lengths) as usize).copied();
        KINDS.iter().for_each(|kind| one(kind, seed + 1, misdirect, value_bytes));
    }
}
