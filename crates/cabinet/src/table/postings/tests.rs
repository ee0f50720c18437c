use super::{Changes, Flusher, PostingStore, RowPostings, View};
use crate::table::cursor::{BackCursor, Cursor, KeyRange, count_up_to};
use crate::table::keys;
use crate::{Batch, Engine, MemoryTree, Options, TreeDatabase, io::FaultyStorage};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns a tree with small leaves and little memory, so that changes are often merged into
/// blocks.
fn tree(storage: &FaultyStorage) -> Arc<dyn Engine> {
    let options = Options { leaf_bytes: Some(512), ..options() };
    let storage = Arc::new(storage.clone());
    Arc::new(TreeDatabase::open_on(storage, Path::new("tree"), &options, false).unwrap())
}

fn options() -> Options {
    Options { cache_bytes: Some(crate::limits::CACHE_BYTES_MIN), ..Options::default() }
}

#[derive(Clone, Debug)]
enum Step {
    /// Index, first number, count, length of the values: puts these postings, or removes them if
    /// there is no length.
    Change(u32, u16, u16, Option<u8>),
    Flush,
    Look(u32, u16, u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = proptest::sample::select(vec![1u32, 2, 254, 255, 70_000]);
    let value = proptest::option::weighted(0.7, 0u8..60);
    let step = prop_oneof![
        4 => (index.clone(), 0u16..600, 1u16..200, value)
            .prop_map(|(index, from, count, value)| Step::Change(index, from, count, value)),
        1 => Just(Step::Flush),
        2 => (index, 0u16..600, 0u16..600).prop_map(|(index, from, to)| Step::Look(index, from, to)),
    ];
    proptest::collection::vec(step, 1..25)
}

fn key(index: u32, number: u16) -> Vec<u8> {
    let mut key = keys::postings(index);
    // Some keys share many bytes with the next one, others few.
    key.extend_from_slice(&[(number >> 8) as u8; 20][..(number % 20) as usize + 1]);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

fn check(postings: &PostingStore, engine: &dyn Engine, model: &Model, range: &KeyRange) {
    let changes = postings.changes();
    let view = View::new(engine, &changes);
    let expected: Vec<_> = model
        .iter()
        .filter(|(key, _)| range.contains(key))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let mut cursor = Cursor::new(view, range.clone());
    let mut met = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        met.push((key.to_vec(), value.to_vec()));
    }
    assert_eq!(met, expected);
    assert_eq!(count_up_to(view, range, u64::MAX).unwrap(), expected.len() as u64);
    for (key, value) in expected.iter().step_by(37) {
        assert_eq!(view.get(key).unwrap().as_ref(), Some(value));
        let mut cursor = Cursor::of_keys(view, range.clone());
        let found = cursor.seek(key).unwrap().map(|(key, _)| key.to_vec());
        assert_eq!(found.as_ref(), Some(key));
    }
    if engine.as_ordered().is_some() {
        let mut cursor = BackCursor::new(view, range.clone());
        let mut met = Vec::new();
        while let Some(key) = cursor.next().unwrap() {
            met.push(key.to_vec());
        }
        met.reverse();
        assert!(met.iter().eq(expected.iter().map(|(key, _)| key)));
    }
}

fn play(engine: Arc<dyn Engine>, steps: &[Step]) -> Model {
    let postings = PostingStore::new(Arc::clone(&engine), &options());
    let mut model = Model::new();
    for step in steps {
        match step {
            Step::Change(index, from, count, value) => {
                let mut changes = Changes::default();
                for number in *from..from + count {
                    let key = key(*index, number);
                    let value = value.map(|len| vec![number as u8; usize::from(len)]);
                    let mut one = Changes::default();
                    one.put(
                        |bytes| bytes.extend_from_slice(&key),
                        |bytes| bytes.extend_from_slice(value.as_deref().unwrap_or_default()),
                    );
                    match value {
                        Some(value) => {
                            changes.append(&one);
                            model.insert(key, value);
                        }
                        None => {
                            changes.append(&one.into_removals());
                            model.remove(&key);
                        }
                    }
                }
                let row = RowPostings { primary: b"row", before: None, changes };
                postings.flush_over_budget().unwrap();
                postings.write(Batch::new(), &[row]).unwrap();
            }
            Step::Flush => postings.flush().unwrap(),
            Step::Look(index, from, to) => {
                let (start, end) = (key(*index, *from), key(*index, *to));
                if start < end {
                    check(&postings, &*engine, &model, &KeyRange { start, end });
                }
            }
        }
    }
    for index in [1, 2, 254, 255, 70_000] {
        let range = KeyRange::of_prefix(keys::postings(index));
        check(&postings, &*engine, &model, &range);
    }
    postings.flush().unwrap();
    model
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn postings_in_memory_and_in_blocks_form_one_map(steps in steps()) {
        play(Arc::new(MemoryTree::new(&Options::default())), &steps);
        let storage = FaultyStorage::new();
        let engine = tree(&storage);
        let model = play(Arc::clone(&engine), &steps);
        // All postings are in blocks now, and the pending-change log is empty.
        let postings = PostingStore::new(Arc::clone(&engine), &options());
        postings.recover(|_, _| panic!("the pending-change log has a record")).unwrap();
        for index in [1, 255] {
            check(&postings, &*engine, &model, &KeyRange::of_prefix(keys::postings(index)));
        }
    }
}

/// Replaces the last block of an index by bytes that are not a block.
fn damage(engine: &dyn Engine, index: u32) {
    let name = super::physical::last_of(&keys::postings(index));
    engine.put(&name, b"\x09\x01", crate::Meta::NONE, crate::Wait::Block).unwrap();
}

fn is_damaged(error: crate::Error) -> bool {
    matches!(error, crate::Error::Corrupted { .. })
}

/// Writes rows with one posting each until their changes have taken `budgets` times the memory
/// budget. Returns the number of rows.
fn write_rows(postings: &PostingStore, index: u32, budgets: usize) -> crate::Result<u32> {
    let mut written = 0;
    let mut bytes = 0;
    while bytes < budgets * postings.budget_bytes() {
        let mut changes = Changes::default();
        let number = u32::to_be_bytes(written);
        changes.put(|key| key.extend([&keys::postings(index)[..], &number].concat()), |_| {});
        bytes += changes.memory_bytes();
        postings.flush_over_budget()?;
        postings.write(Batch::new(), &[RowPostings { primary: b"row", before: None, changes }])?;
        written += 1;
    }
    Ok(written)
}

#[test]
fn writers_with_a_flusher_stay_within_twice_the_budget_and_lose_nothing() {
    let engine = tree(&FaultyStorage::new());
    let postings = Arc::new(PostingStore::new(Arc::clone(&engine), &options()));
    let flusher = Flusher::start(&postings).unwrap();
    let bound = 2 * postings.budget_bytes() + postings.budget_bytes() / 4;
    std::thread::scope(|scope| {
        let postings = &postings;
        let write = |index| scope.spawn(move || write_rows(postings, index, 20).unwrap());
        let writers: Vec<_> = (1..=3).map(write).collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            let bytes = postings.bytes.load(Ordering::Relaxed);
            assert!(bytes <= bound, "{bytes} bytes of changes in memory");
            std::thread::yield_now();
        }
        for (index, writer) in (1..=3).zip(writers) {
            let range = KeyRange::of_prefix(keys::postings(index));
            let changes = postings.changes();
            let count = count_up_to(View::new(&*engine, &changes), &range, u64::MAX).unwrap();
            assert_eq!(count, u64::from(writer.join().unwrap()));
        }
    });
    drop(flusher);
}

#[test]
fn if_the_flusher_fails_writers_get_the_error_and_memory_stays_bounded() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryTree::new(&Options::default()));
    damage(&*engine, 7);
    let postings = Arc::new(PostingStore::new(engine, &options()));
    let flusher = Flusher::start(&postings).unwrap();
    assert!(is_damaged(write_rows(&postings, 7, 20).unwrap_err()));
    let bytes = postings.bytes.load(Ordering::Relaxed);
    assert!(
        bytes <= 2 * postings.budget_bytes() + postings.budget_bytes() / 4,
        "{bytes} bytes in memory"
    );
    drop(flusher);
}

#[test]
fn a_block_can_get_more_changes_than_one_batch_holds() {
    let engine = tree(&FaultyStorage::new());
    let postings = PostingStore::new(Arc::clone(&engine), &options());
    let count = crate::limits::BATCH_LOG_BYTES_MAX / crate::limits::PRIMARY_KEY_BYTES_MAX + 1;
    let primary = vec![b'p'; crate::limits::PRIMARY_KEY_BYTES_MAX];
    let range = KeyRange::of_prefix(keys::postings(7));
    for odd in [0u32, 1] {
        let mut changes = Changes::default();
        for number in 0..count as u32 {
            let number = (2 * number + odd).to_be_bytes();
            let key = [&keys::postings(7)[..], &number, &primary].concat();
            changes.put(|bytes| bytes.extend_from_slice(&key), |_| {});
        }
        postings
            .write(Batch::new(), &[RowPostings { primary: b"row", before: None, changes }])
            .unwrap();
        postings.flush().unwrap();
        assert!(postings.changes().is_empty());
        let found = count_up_to(View::new(&*engine, &[]), &range, u64::MAX).unwrap();
        assert_eq!(found, u64::from(odd + 1) * count as u64);
    }
}

#[test]
fn removing_all_postings_removes_all_blocks() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryTree::new(&Options::default()));
    let change = |value| Step::Change(7, 0, 500, value);
    play(Arc::clone(&engine), &[change(Some(40)), Step::Flush, change(None)]);
    assert_eq!(engine.len(), 0);
}

#[test]
fn blocks_that_do_not_parse_are_an_error() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryTree::new(&Options::default()));
    play(Arc::clone(&engine), &[Step::Change(7, 0, 10, Some(1))]);
    damage(&*engine, 7);
    let postings = PostingStore::new(Arc::clone(&engine), &options());
    let range = KeyRange::of_prefix(keys::postings(7));
    assert!(is_damaged(Cursor::new(View::new(&*engine, &[]), range).next().unwrap_err()));
    let mut changes = Changes::default();
    changes.put(|bytes| bytes.extend_from_slice(&key(7, 5)), |_| {});
    postings.add(&changes);
    assert!(is_damaged(postings.flush().unwrap_err()));
    assert_eq!(postings.changes().len(), 1, "changes stay until they are in their blocks");
}
