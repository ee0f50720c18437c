//! Tests of threads that must not wait for a leaf, for the disk or for long work.

use super::*;
use crate::RecordRef;
use crate::base::locks::at_once;
use crate::io::FaultyStorage;
use leaf::Content;

/// A value. A leaf has a few of this length.
const VALUE: [u8; 500] = [b'v'; 500];

fn open(storage: &FaultyStorage, options: &Options) -> Arc<TreeDatabase> {
    let storage = Arc::new(storage.clone());
    let path = Path::new("casket.tcb");
    Arc::new(TreeDatabase::open_on(storage, path, options, false).unwrap())
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Returns a tree with `records` records, whose pages are all on the disk only.
fn cold_tree(storage: &FaultyStorage, records: u32, options: &Options) -> Arc<TreeDatabase> {
    let tree = open(storage, &Options::default());
    for number in 0..records {
        tree.put(&key(number), &VALUE, Meta::NONE, Wait::Block).unwrap();
    }
    drop(tree);
    let tree = open(storage, options);
    for segment in tree.engine.log.segments().iter() {
        segment.resident.store(false, Ordering::Relaxed);
    }
    tree
}

fn is_loaded(tree: &TreeDatabase, number: u32) -> bool {
    let state = tree.engine.handle_of(&key(number)).leaf;
    matches!(state.read().content, Content::Loaded(_))
}

#[test]
fn eviction_that_failed_is_tried_again_when_the_excess_has_changed() {
    let tree = open(&FaultyStorage::new(), &Options::default());
    for number in 0..1000_u32 {
        tree.put(&number.to_be_bytes(), &[1; 100], Meta::NONE, Wait::Block).unwrap();
    }
    let asked_at = |excess_bytes: u64| {
        let mut asked = 0;
        let mut remove = |_: &[u8], _| {
            asked += 1;
            Ok(false)
        };
        let keys = &[][..]..&[u8::MAX][..];
        let excess_bytes = &|| excess_bytes;
        let eviction = Eviction { keys, excess_bytes, remove: &mut remove };
        tree.engine.evict_for_owner(eviction).unwrap();
        asked
    };
    let many = 8 << 20;
    assert!(asked_at(many) >= 1000);
    for excess_bytes in [many, many + 1000, many - 1000] {
        assert_eq!(asked_at(excess_bytes), 0, "{excess_bytes}");
    }
    assert!(asked_at(many + (1 << 20)) >= 1000);
    assert!(asked_at(many) >= 1000);
}

#[test]
fn a_thread_that_must_not_wait_does_not_wait_for_a_locked_leaf() {
    let (clock, time) = Clock::manual(1000);
    let options = Options { clock, ..Options::default() };
    let tree = open(&FaultyStorage::new(), &options);
    let meta = Meta { flags: 0, expires_at_ms: 2000 };
    tree.put(b"key", b"value", meta, Wait::Never).unwrap();
    time.set(3000);
    let leaf = tree.engine.handle_of(b"key").leaf;
    let held = leaf.write();
    type Act = fn(&TreeDatabase) -> Result<bool>;
    let acts: [(&str, Act); 8] = [
        ("read", |it| it.read(b"key", Wait::Never, &mut |_| ())),
        ("read_all", |it| it.read_all(b"key", Wait::Never, &mut |_| ()).map(|_| true)),
        ("seek", |it| it.seek(Seek::First, Wait::Never, &mut |_, _| ())),
        ("put", |it| it.put(b"key", b"other", Meta::NONE, Wait::Never).map(|_| true)),
        ("update", |it| it.update(b"key", Wait::Never, &mut |_| Change::Keep).map(|_| true)),
        ("remove_all", |it| it.remove_all(b"key", Wait::Never).map(|_| true)),
        ("write", |it| {
            let mut batch = Batch::new();
            batch.put(b"key", b"other", Meta::NONE);
            it.write(&batch, Wait::Never).map(|()| true)
        }),
        ("remove_expired", |it| it.remove_expired(b"key", Wait::Never)),
    ];
    for (name, act) in acts {
        let engine = Arc::clone(&tree);
        let result = at_once(move || act(&engine));
        assert!(matches!(result, Err(Error::WouldBlock)), "{name}: {result:?}");
    }
    drop(held);
    assert!(tree.remove_expired(b"key", Wait::Never).unwrap());
}

#[test]
fn a_batch_holds_no_leaf_while_it_reads_from_the_disk() {
    let storage = FaultyStorage::new();
    let tree = cold_tree(&storage, 100, &Options::default());
    assert!(!is_loaded(&tree, 0) && !is_loaded(&tree, 99));
    let mut batch = Batch::new();
    for number in [0, 99] {
        batch.put(&key(number), b"other", Meta::NONE);
    }
    let faults = storage.faults();
    faults.stall_all();
    let writer = Arc::clone(&tree);
    let writer = std::thread::spawn(move || writer.write(&batch, Wait::Block));
    faults.await_stalled();
    let leaves = [0, 99].map(|number| tree.engine.handle_of(&key(number)).leaf);
    let are_free = leaves.each_ref().map(|leaf| leaf.try_write().is_some());
    faults.go_on();
    writer.join().expect("the writer panicked").unwrap();
    assert_eq!(are_free, [true; 2]);
    let mut values = Vec::new();
    for number in [0, 99] {
        let mut visit = |entry: RecordRef<'_>| values.push(entry.value.to_vec());
        tree.read(&key(number), Wait::Never, &mut visit).unwrap();
    }
    assert_eq!(values, [b"other", b"other"]);
}

#[test]
fn a_cap_on_records_is_enforced_by_a_writer_that_may_wait() {
    const CAP: u32 = 200;
    let storage = FaultyStorage::new();
    let options = Options { capacity_records: u64::from(CAP), ..Options::default() };
    let tree = cold_tree(&storage, CAP, &options);
    // Brings the leaf of the next puts into memory.
    tree.put(&key(CAP), &VALUE, Meta::NONE, Wait::Block).unwrap();
    let faults = storage.faults();
    faults.stall_all();
    let writer = Arc::clone(&tree);
    let refused = at_once(move || {
        let mut numbers = CAP + 1..;
        numbers.find(|number| match writer.put(&key(*number), &VALUE, Meta::NONE, Wait::Never) {
            Ok(_) => *number > 2 * CAP,
            Err(error) => {
                assert!(matches!(error, Error::WouldBlock), "{error}");
                true
            }
        })
    });
    faults.go_on();
    let refused = refused.unwrap();
    // The excess is at most one leaf.
    assert!(refused < CAP + 40, "{refused}");
    assert!(tree.len() > u64::from(CAP) && !is_loaded(&tree, 0));
    tree.put(&key(refused), &VALUE, Meta::NONE, Wait::Block).unwrap();
    assert!(tree.len() <= u64::from(CAP) + 1, "{}", tree.len());
    tree.put(&key(refused + 1), &VALUE, Meta::NONE, Wait::Never).unwrap();
    assert!(!tree.read(&key(0), Wait::Block, &mut |_| ()).unwrap());
}

#[test]
fn a_long_page_is_not_written_by_a_thread_that_must_not_wait() {
    let options = Options { cache_bytes: Some(1 << 20), ..Options::default() };
    let tree = open(&FaultyStorage::new(), &options);
    let large = vec![b'v'; crate::log::LARGE_CHANGE_BYTES];
    tree.put(b"key", &large, Meta::NONE, Wait::Never).unwrap();
    let leaf = tree.engine.handle_of(b"key").leaf;
    let is_there = || matches!(leaf.read().content, Content::Loaded(_));
    assert!(is_there());
    tree.engine.evict();
    assert!(!is_there());
}

#[test]
fn a_search_through_very_many_empty_leaves_is_left_to_a_thread_that_may_wait() {
    const RECORDS: u32 = 2000;
    let tree = open(&FaultyStorage::new(), &Options::default());
    for number in 0..RECORDS {
        tree.put(&key(number), &VALUE, Meta::NONE, Wait::Never).unwrap();
    }
    let found = |seek: Seek<'_>, wait| {
        let mut found = None;
        tree.seek(seek, wait, &mut |entry, _| found = Some(entry.key.to_vec())).map(|_| found)
    };
    let last = key(RECORDS - 1);
    for number in 0..RECORDS - 1 {
        assert_eq!(tree.remove_all(&key(number), Wait::Never).unwrap(), 1);
        // A few leaves are searched without waiting.
        if number == RECORDS / 10 {
            let next = Some(key(number + 1).to_vec());
            assert_eq!(found(Seek::First, Wait::Never).unwrap(), next);
        }
    }
    let refused = [found(Seek::First, Wait::Never), found(Seek::Before(&last, 0), Wait::Never)];
    assert!(refused.iter().all(|one| matches!(one, Err(Error::WouldBlock))), "{refused:?}");
    assert_eq!(found(Seek::First, Wait::Block).unwrap(), Some(last.to_vec()));
    assert_eq!(found(Seek::Before(&last, 0), Wait::Block).unwrap(), None);
    assert_eq!(found(Seek::Last, Wait::Never).unwrap(), Some(last.to_vec()));
}
