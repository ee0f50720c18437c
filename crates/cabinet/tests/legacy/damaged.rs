//! Files that are not as they were written: what is damaged is reported, and the rest is read.

use crate::contents::{Contents, Value, expected, files, folder};
use cabinet::legacy::{File, Item, Visit};
use proptest::prelude::*;
use std::fs;
use std::ops::ControlFlow;

/// Reads bytes that may be anything.
fn read(bytes: Vec<u8>, log: Option<Vec<u8>>) -> Option<Contents> {
    let file = File::from_bytes(bytes, log).ok()?;
    let mut contents = Contents::default();
    // An error, if there is one, stands for the whole file.
    let _ = file.read(&mut contents);
    Some(contents)
}

fn fixture(name: &str) -> Vec<u8> {
    fs::read(folder().join("le").join(name)).unwrap()
}

/// Offsets of all records whose first byte and hash make one.
fn record_offsets(bytes: &[u8], first: usize, alignment: usize) -> Vec<usize> {
    (first..bytes.len()).step_by(alignment).filter(|at| bytes[*at] == 0xc8).collect()
}

#[test]
fn a_record_whose_magic_is_damaged_is_reported_by_its_offset_and_the_only_one_missing() {
    let good = fixture("hash-large.tch");
    let first = u64::from_le_bytes(good[64..72].try_into().unwrap()) as usize;
    let all = Contents::sorted(read(good.clone(), None).unwrap().records);
    let offsets = record_offsets(&good, first, 16);
    assert!(offsets.len() >= all.len());
    let mut missed = 0;
    for offset in offsets {
        let mut bytes = good.clone();
        bytes[offset] = 0;
        let contents = read(bytes, None).unwrap();
        if contents.damages.is_empty() {
            // It was in a value or a free block.
            continue;
        }
        let [damage] = &contents.damages[..] else { panic!("{:?}", contents.damages) };
        assert_eq!(damage.offset, offset as u64);
        let rest = Contents::sorted(contents.records);
        assert_eq!(rest.len(), all.len() - 1);
        assert!(rest.iter().all(|record| all.binary_search(record).is_ok()));
        missed += 1;
    }
    assert_eq!(missed, all.len());
}

#[test]
fn a_key_that_is_damaged_is_not_taken_for_another() {
    let mut bytes = fixture("hash-large.tch");
    let (key, _) = expected(&folder().join("le/hash-large.tch")).swap_remove(7);
    let at = bytes.windows(key.len()).position(|window| window == key).unwrap();
    bytes[at] ^= 1;
    let contents = read(bytes, None).unwrap();
    let [damage] = &contents.damages[..] else { panic!("{:?}", contents.damages) };
    assert!(damage.what.contains("hash"), "{damage}");
    assert!(damage.offset < at as u64 && at as u64 - damage.offset < 64, "{damage}");
    assert_eq!(contents.records.len(), 199);
}

#[test]
fn a_file_that_was_cut_gives_what_is_left_and_says_so() {
    for name in ["hash-large.tch", "btree-multilevel.tcb", "fixed-w8.tcf", "table-plain.tct"] {
        let good = fixture(name);
        let all = read(good.clone(), None).unwrap().records;
        let cut = good[..good.len() - good.len() / 8].to_vec();
        let contents = read(cut.clone(), None).unwrap();
        assert!(!contents.damages.is_empty(), "{name}");
        assert!(contents.damages.iter().any(|damage| damage.offset == cut.len() as u64), "{name}");
        assert!(contents.records.len() > all.len() / 4, "{name}: {}", contents.records.len());
        let known = Contents::sorted(all);
        let rest = Contents::sorted(contents.records);
        assert!(rest.iter().all(|record| known.binary_search(record).is_ok()), "{name}");
    }
}

#[test]
fn leaves_that_the_chain_does_not_lead_to_are_read_in_the_order_of_their_keys() {
    let good = fixture("btree-multilevel.tcb");
    let all = read(good.clone(), None).unwrap().records;
    // The identity of the first leaf: no leaf has this one.
    let mut bytes = good;
    bytes[152..160].copy_from_slice(&(u64::MAX >> 1).to_le_bytes());
    let contents = read(bytes, None).unwrap();
    assert_eq!(contents.records, all);
    assert_eq!(contents.damages.len(), 2, "{:?}", contents.damages);
}

#[test]
fn a_leaf_that_is_lost_takes_no_other_with_it() {
    let good = fixture("btree-multilevel.tcb");
    let all = read(good.clone(), None).unwrap().records;
    let first = u64::from_le_bytes(good[64..72].try_into().unwrap()) as usize;
    let mut tried = 0;
    for offset in record_offsets(&good, first, 16).into_iter().step_by(7) {
        let mut bytes = good.clone();
        bytes[offset] = 0;
        let contents = read(bytes, None).unwrap();
        // Leaves of this file hold four keys of one value at most.
        assert!(contents.records.len() + 4 >= all.len(), "{offset}");
        let mut keys = contents.records.iter().map(|(key, _)| key);
        assert!(keys.clone().is_sorted() || !contents.damages.is_empty());
        assert!(keys.all(|key| all.iter().any(|(other, _)| other == key)));
        tried += 1;
    }
    assert!(tried > 20);
}

#[test]
fn a_chain_of_leaves_that_bites_its_tail_ends() {
    // A leaf whose identities are single bytes: the one before, and the one behind, which is
    // itself now.
    let good = fixture("btree-dups.tcb");
    let all = read(good.clone(), None).unwrap().records;
    let first = u64::from_le_bytes(good[64..72].try_into().unwrap()) as usize;
    let mut rings = 0;
    for offset in record_offsets(&good, first, 256) {
        // Magic, hash, two places, padding, key of one byte, value of up to two.
        let key = offset + 2 + 8 + 2;
        if good[key] != 1 {
            continue;
        }
        let name = key + if good[key + 1] < 0x80 { 2 } else { 3 };
        let Some(id) = char::from(good[name]).to_digit(16) else { continue };
        let mut bytes = good.clone();
        bytes[name + 2] = id as u8;
        let contents = read(bytes, None).unwrap();
        assert!(!contents.damages.is_empty());
        assert_eq!(contents.records.len(), all.len());
        rings += 1;
    }
    assert!(rings >= 3, "{rings}");
}

#[test]
fn a_slot_that_says_too_much_is_reported_and_the_others_are_read() {
    let good = fixture("fixed-w8.tcf");
    let all = read(good.clone(), None).unwrap().records;
    let (key, _) = &all[3];
    let number: usize = str::from_utf8(key).unwrap().parse().unwrap();
    let offset = 256 + (number - 1) * 9;
    for (length, is_whole) in [(7, true), (8, true), (9, false), (255, false)] {
        let mut bytes = good.clone();
        bytes[offset] = length;
        let contents = read(bytes, None).unwrap();
        assert_eq!(contents.damages.is_empty(), is_whole, "{length}");
        assert_eq!(contents.records.len(), all.len() - usize::from(!is_whole), "{length}");
    }
}

#[test]
fn a_header_that_counts_wrong_is_reported() {
    for name in ["hash-chains.tch", "btree-dups.tcb", "fixed-w8.tcf", "table-plain.tct"] {
        let mut bytes = fixture(name);
        let place = if name.starts_with("btree") { 184 } else { 48 };
        bytes[place] ^= 1;
        let contents = read(bytes, None).unwrap();
        assert_eq!(contents.damages.len(), 1, "{name}");
        assert_eq!(contents.damages[0].offset, 0, "{name}");
    }
}

#[test]
fn breaking_ends_the_reading() {
    struct First(u64);
    impl Visit for First {
        fn item(&mut self, _item: &Item<'_>) -> ControlFlow<()> {
            self.0 += 1;
            ControlFlow::Break(())
        }
        fn damage(&mut self, damage: cabinet::Damage) {
            panic!("{damage}");
        }
    }
    for path in files() {
        let mut first = First(0);
        File::open(&path).unwrap().read(&mut first).unwrap();
        assert_eq!(first.0, 1, "{path:?}");
    }
}

#[test]
fn a_record_behind_a_value_that_looks_like_records_is_found() {
    // Zeros over the whole first record's header: what follows is looked for byte by byte.
    let good = fixture("hash-apow0.tch");
    let all = read(good.clone(), None).unwrap().records;
    let first = u64::from_le_bytes(good[64..72].try_into().unwrap()) as usize;
    let mut bytes = good;
    bytes[first..first + 12].fill(0xc8);
    let contents = read(bytes, None).unwrap();
    assert!(contents.records.len() + 1 >= all.len(), "{}", contents.records.len());
    assert!(!contents.damages.is_empty());
    assert!(matches!(contents.records[0].1, Value::Bytes(_)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn flipped_bytes_are_no_panic_and_no_hang(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        in_header in any::<bool>(),
    ) {
        for path in files() {
            let mut bytes = fs::read(&path).unwrap();
            let length = if in_header { 256 } else { bytes.len() };
            for (place, byte) in &edits {
                // The kind and the magic stay, so that the rest is looked at.
                let place = place.index(length).max(33);
                bytes[place] = *byte;
            }
            let log = fs::read(format!("{}.wal", path.display())).ok();
            read(bytes, log);
        }
    }

    #[test]
    fn a_damaged_log_is_no_panic(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
    ) {
        for name in ["hash-wal.tch", "btree-wal.tcb"] {
            let mut log = fixture(&format!("{name}.wal"));
            for (place, byte) in &edits {
                let place = place.index(log.len());
                log[place] = *byte;
            }
            log.truncate(cut.index(log.len() + 1));
            read(fixture(name), Some(log));
        }
    }
}
