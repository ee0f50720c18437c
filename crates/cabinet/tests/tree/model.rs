//! Duplicates, places and orders against a sorted list, over crashes.

use crate::{open, small_options};
use cabinet::testing::FaultyStorage;
use cabinet::{Cursor, CursorPut, Database, KeyOrder, Ordered, PlaceChange, Seek, Side, Wait};
use proptest::prelude::*;
use std::ops::{Bound, ControlFlow, Range};

type Pair = (Vec<u8>, Vec<u8>);

#[derive(Clone, Debug)]
enum Operation {
    Put(Vec<u8>, Vec<u8>),
    Add(Vec<u8>, Vec<u8>, bool),
    Remove(Vec<u8>),
    RemoveAll(Vec<u8>),
    Append(Vec<u8>, Vec<u8>),
    ChangeAt(Vec<u8>, usize, Vec<u8>, u8),
    Seek(Vec<u8>, usize),
    Range(Vec<u8>, bool, Vec<u8>, bool),
    Checkpoint,
    Optimize,
    Reopen,
    Crash,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => proptest::collection::vec(b'a'..=b'b', 0..4),
        3 => "[ ]{0,1}-{0,1}[0-2]{1,2}(\\.[05]{1,2}){0,1}".prop_map(String::into_bytes),
        2 => proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xff)], 0..6),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    (any::<u8>(), prop_oneof![4 => 0usize..40, 1 => 0usize..500])
        .prop_map(|(byte, length)| vec![byte; length])
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        10 => (key(), value()).prop_map(|(key, value)| Operation::Put(key, value)),
        10 => (key(), value(), any::<bool>()).prop_map(|(k, v, back)| Operation::Add(k, v, back)),
        4 => key().prop_map(Operation::Remove),
        1 => key().prop_map(Operation::RemoveAll),
        2 => (key(), value()).prop_map(|(key, value)| Operation::Append(key, value)),
        6 => (key(), 0usize..4, value(), 0u8..4)
            .prop_map(|(key, at, value, how)| Operation::ChangeAt(key, at, value, how)),
        4 => (key(), 0usize..4).prop_map(|(key, number)| Operation::Seek(key, number)),
        2 => (key(), any::<bool>(), key(), any::<bool>())
            .prop_map(|(begin, with, end, also)| Operation::Range(begin, with, end, also)),
        1 => Just(Operation::Checkpoint),
        1 => Just(Operation::Optimize),
        1 => Just(Operation::Reopen),
        2 => Just(Operation::Crash),
    ]
}

struct Model {
    order: KeyOrder,
    pairs: Vec<Pair>,
}

impl Model {
    fn group(&self, key: &[u8]) -> Range<usize> {
        let start = self.pairs.partition_point(|(other, _)| self.order.compare(other, key).is_lt());
        let end = self.pairs.partition_point(|(other, _)| self.order.compare(other, key).is_le());
        start..end
    }

    /// The record at an index, with the number of its duplicate.
    fn at(&self, index: Option<usize>) -> Option<(Pair, usize)> {
        let pair = self.pairs.get(index?)?;
        Some((pair.clone(), index? - self.group(&pair.0).start))
    }

    fn check_all(&self, database: &Database) {
        let mut pairs = Vec::new();
        let mut take = |entry: cabinet::RecordRef<'_>| {
            pairs.push((entry.key.to_vec(), entry.value.to_vec()));
            ControlFlow::Continue(())
        };
        database.for_each(&mut take).unwrap();
        assert_eq!(pairs, self.pairs);
        assert_eq!(database.len(), self.pairs.len() as u64);
        assert_eq!(walk(database, Cursor::first, Cursor::next), self.pairs);
        let mut backwards = walk(database, Cursor::last, Cursor::prev);
        backwards.reverse();
        assert_eq!(backwards, self.pairs);
    }

    fn check_seeks(&self, engine: &dyn Ordered, key: &[u8], number: usize) {
        let group = self.group(key);
        let behind = (group.start + number + 1).min(group.end);
        let before = (group.start + number).min(group.end).checked_sub(1);
        for (seek, expected) in [
            (Seek::First, Some(0)),
            (Seek::Last, self.pairs.len().checked_sub(1)),
            (Seek::AtOrAfter(key), Some(group.start)),
            (Seek::AtOrBefore(key), group.end.checked_sub(1)),
            (Seek::After(key, number), Some(behind)),
            (Seek::Before(key, number), before),
        ] {
            let mut found = None;
            let visited = engine.seek(seek, Wait::Block, &mut |entry, number| {
                found = Some(((entry.key.to_vec(), entry.value.to_vec()), number));
            });
            assert_eq!(visited.unwrap(), found.is_some());
            assert_eq!(found, self.at(expected), "{seek:?}");
        }
    }

    fn check_range(&self, database: &Database, begin: (&[u8], bool), end: (&[u8], bool)) {
        let bound = |(key, with)| if with { Bound::Included(key) } else { Bound::Excluded(key) };
        let mut expected: Vec<Pair> = self.pairs.clone();
        expected.retain(|(key, _)| {
            let (after, before) =
                (self.order.compare(key, begin.0), self.order.compare(key, end.0));
            (after.is_gt() || begin.1 && after.is_eq())
                && (before.is_lt() || end.1 && before.is_eq())
        });
        let records = database.range::<&[u8]>((bound(begin), bound(end))).unwrap();
        let pairs = records.map(|record| record.map(|record| (record.key, record.value)));
        assert_eq!(pairs.collect::<cabinet::Result<Vec<Pair>>>().unwrap(), expected);
    }
}

/// All records, as a cursor meets them.
fn walk(
    database: &Database,
    begin: fn(&mut Cursor) -> cabinet::Result<bool>,
    step: fn(&mut Cursor) -> cabinet::Result<bool>,
) -> Vec<Pair> {
    let mut cursor = database.cursor().unwrap();
    let mut pairs = Vec::new();
    let mut stands = begin(&mut cursor).unwrap();
    while stands {
        pairs.push((cursor.key().unwrap().to_vec(), cursor.value().unwrap().to_vec()));
        stands = step(&mut cursor).unwrap();
    }
    pairs
}

fn run(order: KeyOrder, operations: Vec<Operation>) {
    let options = small_options(order);
    let mut storage = FaultyStorage::new();
    let mut opened = open(&storage, &options);
    let mut model = Model { order, pairs: Vec::new() };
    for operation in operations {
        let (engine, database) = &opened;
        match operation {
            Operation::Put(key, value) => {
                database.put(&key, &value).unwrap();
                let group = model.group(&key);
                match model.pairs[group.clone()].first_mut() {
                    Some(first) => first.1 = value,
                    None => model.pairs.insert(group.start, (key, value)),
                }
            }
            Operation::Add(key, value, back) => {
                let side = if back { Side::After } else { Side::Before };
                database.put_duplicate(&key, &value, side).unwrap();
                let group = model.group(&key);
                let at = if back { group.end } else { group.start };
                // Equal keys are one: the bytes of each duplicate are its own.
                model.pairs.insert(at, (key, value));
            }
            Operation::Remove(key) => {
                let group = model.group(&key);
                assert_eq!(database.remove(&key).unwrap(), !group.is_empty());
                if !group.is_empty() {
                    model.pairs.remove(group.start);
                }
            }
            Operation::RemoveAll(key) => {
                let group = model.group(&key);
                assert_eq!(database.remove_all(&key).unwrap(), group.len());
                model.pairs.drain(group);
            }
            Operation::Append(key, part) => {
                database.put_cat(&key, &part).unwrap();
                let group = model.group(&key);
                match model.pairs[group.clone()].first_mut() {
                    Some(first) => first.1.extend(part),
                    None => model.pairs.insert(group.start, (key, part)),
                }
            }
            Operation::ChangeAt(key, number, value, how) => {
                let group = model.group(&key);
                let change = match how {
                    0 => PlaceChange::Replace(&value),
                    1 => PlaceChange::InsertBefore(&value),
                    2 => PlaceChange::InsertAfter(&value),
                    _ => PlaceChange::Remove,
                };
                let changed = engine.change_at(&key, number, change, Wait::Block).unwrap();
                assert_eq!(changed, number < group.len());
                let at = group.start + number;
                match how {
                    _ if !changed => {}
                    0 => model.pairs[at].1 = value,
                    1 => model.pairs.insert(at, (key, value)),
                    2 => model.pairs.insert(at + 1, (key, value)),
                    _ => drop(model.pairs.remove(at)),
                }
            }
            Operation::Seek(key, number) => {
                model.check_seeks(&**engine, &key, number);
                let values: Vec<_> =
                    model.pairs[model.group(&key)].iter().map(|(_, value)| value.clone()).collect();
                assert_eq!(database.count(&key).unwrap(), values.len());
                assert_eq!(database.get(&key).unwrap().as_ref(), values.first());
                assert_eq!(database.get_all(&key).unwrap(), values);
            }
            Operation::Range(begin, with, end, also) => {
                model.check_range(database, (&begin, with), (&end, also));
            }
            Operation::Checkpoint => engine.checkpoint().unwrap(),
            Operation::Optimize => database.optimize().unwrap(),
            Operation::Reopen => {
                drop(opened);
                opened = open(&storage, &options);
                model.check_all(&opened.1);
            }
            Operation::Crash => {
                storage = storage.kill();
                opened = open(&storage, &options);
                model.check_all(&opened.1);
            }
        }
    }
    model.check_all(&opened.1);
}

proptest! {
    #[test]
    fn a_tree_is_a_sorted_list_whatever_befalls_it(
        order in proptest::sample::select(&KeyOrder::NAMES).prop_map(|(_, order)| order),
        operations in proptest::collection::vec(operation(), 1..200),
    ) {
        run(order, operations);
    }
}

#[test]
fn a_cursor_puts_and_removes_where_it_stands() {
    let storage = FaultyStorage::new();
    let (_engine, database) = open(&storage, &small_options(KeyOrder::Lexical));
    database.put(b"a", b"1").unwrap();
    database.put(b"b", b"2").unwrap();
    let mut cursor = database.cursor().unwrap();
    assert!(!cursor.put(b"nowhere", CursorPut::Current).unwrap());
    assert!(!cursor.next().unwrap());
    assert!(cursor.jump(b"a").unwrap());
    assert!(cursor.put(b"0", CursorPut::Before).unwrap());
    assert_eq!(cursor.value(), Some(&b"0"[..]));
    assert!(cursor.next().unwrap());
    assert_eq!(cursor.value(), Some(&b"1"[..]));
    assert!(cursor.put(b"1.5", CursorPut::After).unwrap());
    assert_eq!(cursor.value(), Some(&b"1.5"[..]));
    assert!(cursor.put(b"one and a half", CursorPut::Current).unwrap());
    assert_eq!(database.get_all(b"a").unwrap(), [&b"0"[..], b"1", b"one and a half"]);
    assert!(cursor.prev().unwrap());
    assert!(cursor.remove().unwrap());
    assert_eq!(cursor.value(), Some(&b"one and a half"[..]), "it goes to what follows");
    assert!(cursor.remove().unwrap());
    assert_eq!(cursor.key(), Some(&b"b"[..]));
    assert!(cursor.remove().unwrap());
    assert_eq!(cursor.key(), None, "nothing follows");
    assert!(!cursor.remove().unwrap());
    assert!(cursor.jump_back(b"zzz").unwrap());
    assert_eq!((cursor.key(), cursor.value()), (Some(&b"a"[..]), Some(&b"0"[..])));
}
