//! Files of a database, and seeded damage to them.

use cabinet::testing::{FaultyStorage, Open, Storage};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// Contents by name.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Bytes that the disk cannot read together.
const PAGE_BYTES: usize = 4096;

/// Most bytes that one damage turns to zeros.
const ZEROED_BYTES_MAX: u64 = 6000;

/// More bytes than a record takes in these tests.
const RECORD_BYTES_MAX: usize = 2000;

pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % limit.max(1)
    }

    fn index(&mut self, limit: usize) -> usize {
        self.below(limit as u64) as usize
    }
}

/// All files that a storage has in a folder.
pub(crate) fn read(storage: &FaultyStorage, folder: &str) -> Files {
    let mut files = Files::new();
    for name in storage.list(Path::new(folder)).unwrap() {
        let file = storage.open(&Path::new(folder).join(&name), Open::Existing).unwrap();
        let mut contents = vec![0; file.length().unwrap() as usize];
        for (index, page) in contents.chunks_mut(PAGE_BYTES).enumerate() {
            // One that cannot be read stays zeros.
            let _ = file.read_at(page, (index * PAGE_BYTES) as u64);
        }
        files.insert(name, contents);
    }
    files
}

/// A storage with these files, of which it cannot read some parts.
pub(crate) fn storage_of(
    files: &Files,
    unreadable: &[(String, Range<usize>)],
    folder: &str,
) -> FaultyStorage {
    let storage = FaultyStorage::new();
    for (name, contents) in files {
        let file = storage.open(&Path::new(folder).join(name), Open::New).unwrap();
        file.write_at(contents, 0).unwrap();
        file.sync().unwrap();
    }
    for (name, part) in unreadable {
        // It may have been removed since.
        let part = part.start as u64..part.end as u64;
        let _ = storage.lose_sectors(&Path::new(folder).join(name), part);
    }
    storage
}

/// Names of the segments.
pub(crate) fn segments(files: &Files) -> Vec<String> {
    files.keys().filter(|name| name.ends_with(".log")).cloned().collect()
}

/// Damage that was done to files.
#[derive(Debug, Default)]
pub(crate) struct Damaged {
    /// For those who look into a failure.
    pub(crate) description: Vec<String>,
    /// Parts of files that are not what they were, by the names that the files had.
    pub(crate) parts: Vec<(String, Range<usize>)>,
    /// Parts of files that the disk cannot read, by the names that the files have.
    pub(crate) unreadable: Vec<(String, Range<usize>)>,
    /// The names that files had, by those that they have.
    renamed: BTreeMap<String, String>,
    /// It is at the end of the log, where a process that is killed leaves the like: of that no
    /// program can tell that it was whole once.
    pub(crate) is_like_a_torn_tail: bool,
}

impl Damaged {
    /// Whether a part of a file is as it was.
    pub(crate) fn spares(&self, name: &str, part: &Range<usize>) -> bool {
        let meets = |damaged: &Range<usize>| damaged.start < part.end && part.start < damaged.end;
        !self.parts.iter().any(|(file, damaged)| file == name && meets(damaged))
    }

    fn note(&mut self, name: &str, part: Range<usize>, how: &str) {
        self.description.push(format!("{name} {part:?} {how}"));
        let name = self.renamed.get(name).map_or(name, String::as_str).to_owned();
        self.parts.push((name, part));
    }
}

/// Damages files in one way or, now and then, two.
pub(crate) fn damage(files: &mut Files, chance: &mut Chance) -> Damaged {
    let mut damaged = Damaged::default();
    for _ in 0..1 + chance.below(5) / 4 {
        damage_once(files, chance, &mut damaged);
    }
    damaged
}

/// Writes a page of a segment to a wrong place, of the same segment or another, or swaps two pages,
/// as a disk does that confuses addresses.
pub(crate) fn misdirect(files: &mut Files, chance: &mut Chance) -> Damaged {
    let mut damaged = Damaged::default();
    let logs = segments(files);
    let mut place = || {
        let name = pick(logs.clone(), chance).unwrap();
        let written = files[&name].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let start = chance.index(written.div_ceil(PAGE_BYTES)) * PAGE_BYTES;
        (name, start, written)
    };
    let (from, to) = (place(), place());
    let is_swapped = chance.below(2) == 0;
    let page = |files: &Files, (name, start, _): &(String, usize, usize)| {
        let contents = &files[name];
        contents[*start..contents.len().min(start + PAGE_BYTES)].to_vec()
    };
    let (source, target) = (page(files, &from), page(files, &to));
    let mut put = |place: &(String, usize, usize), bytes: Vec<u8>, how: &str| {
        let (name, start, written) = place;
        let contents = files.get_mut(name).unwrap();
        let end = contents.len().min(start + bytes.len());
        // Bytes that are as they were are not damaged.
        let differ = |(one, other): (&u8, &u8)| one != other;
        let old = &contents[*start..end];
        let Some(first) = old.iter().zip(&bytes).position(&differ) else { return };
        let last = old.iter().zip(&bytes).rposition(differ).unwrap_or(first);
        let part = start + first..start + last + 1;
        contents[*start..end].copy_from_slice(&bytes[..end - start]);
        damaged.is_like_a_torn_tail |=
            Some(name) == logs.last() && start + PAGE_BYTES + RECORD_BYTES_MAX > *written;
        damaged.note(name, part, how);
    };
    put(&to, source, "has a page of another place");
    if is_swapped && from != to {
        put(&from, target, "has the page of that place");
    }
    damaged
}

fn damage_once(files: &mut Files, chance: &mut Chance, damaged: &mut Damaged) {
    let logs = segments(files);
    let way = chance.below(14);
    let name = match way {
        // A lock file says nothing.
        0 | 12 => pick(files.keys().filter(|name| *name != "lock").cloned().collect(), chance),
        1 => pick(
            files.keys().filter(|name| name.starts_with("manifest")).cloned().collect(),
            chance,
        ),
        2 => pick(files.keys().filter(|name| *name == "checkpoint").cloned().collect(), chance),
        _ => pick(logs.clone(), chance),
    };
    let Some(name) = name else { return };
    if way == 11 && logs.len() > 1 {
        let other =
            pick(logs.into_iter().filter(|other| *other != name).collect(), chance).unwrap();
        let (one, two) = (files.remove(&name).unwrap(), files.remove(&other).unwrap());
        // They are read, whatever they are called.
        damaged.description.push(format!("{name} and {other} change names"));
        for (file, _) in &mut damaged.unreadable {
            let goes_to = if *file == name {
                Some(&other)
            } else if *file == other {
                Some(&name)
            } else {
                None
            };
            if let Some(to) = goes_to {
                file.clone_from(to);
            }
        }
        let had = [&name, &other].map(|name| damaged.renamed.get(name).unwrap_or(name).clone());
        let [name_had, other_had] = had;
        damaged.renamed.insert(name.clone(), other_had);
        damaged.renamed.insert(other.clone(), name_had);
        files.insert(name, two);
        files.insert(other, one);
        return;
    }
    let contents = files.get_mut(&name).unwrap();
    // Behind the last byte nothing was said.
    let end = contents.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    if end == 0 {
        return;
    }
    let at = chance.index(end);
    // Under another name, it may be the last segment.
    let is_last =
        Some(&name) == logs.last() || damaged.parts.is_empty() != damaged.description.is_empty();
    let is_at_end = is_last && name.ends_with(".log");
    match way {
        12.. => {
            let start = at / PAGE_BYTES * PAGE_BYTES;
            let page = start..start + PAGE_BYTES;
            damaged.note(&name, page.clone(), "cannot be read");
            damaged.unreadable.push((name, page));
        }
        10 => {
            damaged.note(&name, 0..usize::MAX, "is removed");
            files.remove(&name);
        }
        8 | 9 => {
            damaged.note(&name, at..usize::MAX, "is cut off");
            contents.truncate(at);
        }
        5..8 => {
            let zeroed = at..(at + 1 + chance.below(ZEROED_BYTES_MAX) as usize).min(end);
            damaged.is_like_a_torn_tail |= is_at_end && zeroed.end + RECORD_BYTES_MAX > end;
            contents[zeroed.clone()].fill(0);
            damaged.note(&name, zeroed, "is zeros");
        }
        _ => {
            damaged.is_like_a_torn_tail |= is_at_end && at + RECORD_BYTES_MAX > end;
            contents[at] ^= 1 << chance.below(8);
            damaged.note(&name, at..at + 1, "has a flipped bit");
        }
    }
}

fn pick(names: Vec<String>, chance: &mut Chance) -> Option<String> {
    let index = chance.index(names.len());
    names.into_iter().nth(index)
}
