//! Heap that databases use, as an allocator with mimalloc's block sizes counts it: a tree keeps to
//! its budget, and what the statistics name is all there is.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "an allocator that counts; see the SAFETY lines")]

use cabinet::testing::RealStorage;
use cabinet::{Database, Options, TreeDatabase};
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Heap that a tree may use beside its budget, in bytes: buffers and tables of its log, the page
/// that is being changed, and what belongs to the process.
const BESIDE_BYTES: usize = 192 << 10;

/// Share of the budget, as a divisor, that pages may take whatever the leaves take.
const PAGES_SHARE_MIN: usize = 4;

/// Bytes of the blocks in use.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// Held by each test, because they share the count.
static ALONE: Mutex<()> = Mutex::new(());

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Counting;

/// Bytes of the block that mimalloc gives for so many: each power of two has four sizes.
fn block_bytes(bytes: usize) -> usize {
    match bytes {
        0..=8 => bytes.next_multiple_of(8),
        9..=128 => bytes.next_multiple_of(16),
        _ => bytes.next_multiple_of((1 << (bytes - 1).ilog2()) / 4),
    }
}

// SAFETY: each call is passed on as it is; the counts allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(block_bytes(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller keeps to the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(block_bytes(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller keeps to the contract of `dealloc`, and all blocks are the system's.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        IN_USE.fetch_add(block_bytes(bytes), Ordering::Relaxed);
        IN_USE.fetch_sub(block_bytes(layout.size()), Ordering::Relaxed);
        // SAFETY: as for `dealloc`.
        unsafe { System.realloc(block, layout, bytes) }
    }
}

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn in_use() -> usize {
    IN_USE.load(Ordering::Relaxed)
}

fn stat(database: &Database, name: &str) -> usize {
    let stats = database.stats();
    stats.into_iter().find(|(other, _)| *other == name).unwrap().1.parse().unwrap()
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// A tree with a budget, and the heap that was in use before it.
struct Measured {
    database: Database,
    budget: usize,
    before: usize,
}

impl Measured {
    fn open(path: &Path, budget: usize) -> Self {
        let before = in_use();
        let options = Options::new().cache_bytes(budget as u64);
        // Without threads in the background, which would change what is compared here.
        let engine = TreeDatabase::open_on(Arc::new(RealStorage), path, &options, false).unwrap();
        Self { database: Database::from_engine(Arc::new(engine)), budget, before }
    }

    /// Returns the heap that the tree has taken. The harness may free the output of an earlier test
    /// meanwhile, which is little.
    fn heap(&self) -> usize {
        in_use().saturating_sub(self.before)
    }

    /// Checks that the tree keeps to its budget, and that it counts all of its heap.
    fn check(&self, when: &str) {
        let (pages, directory) = (self.stat("cache_bytes"), self.stat("directory_bytes"));
        let pages_max = self.stat("cache_pages_max_bytes");
        assert_eq!(self.stat("cache_budget_bytes"), self.budget);
        let left = self.budget.saturating_sub(directory);
        assert_eq!(pages_max, left.max(self.budget / PAGES_SHARE_MIN));
        let heap = self.heap();
        let what = format!("{when}: {heap} for {pages} of pages and {directory} of directory");
        println!("{what}, beside: {}", heap as i64 - (pages + directory) as i64);
        assert!(heap <= directory + pages_max + BESIDE_BYTES, "{what}");
        assert!(heap <= pages + directory + BESIDE_BYTES, "{what}");
    }

    fn stat(&self, name: &str) -> usize {
        stat(&self.database, name)
    }

    fn put(&self, numbers: std::ops::Range<u64>, value: &[u8]) {
        for number in numbers {
            self.database.put(&key(number), value).unwrap();
            if number % 5000 == 0 {
                self.check("while records are put");
            }
        }
    }

    fn get(&self, records: u64) {
        for number in (0..records).map(|number| number * 7919 % records).step_by(3) {
            assert!(self.database.get(&key(number)).unwrap().is_some());
        }
    }
}

#[test]
fn a_tree_uses_no_more_heap_than_its_budget() {
    let _alone = alone();
    const BUDGET: usize = 2 << 20;
    for (records, value_bytes) in [(50_000, 8), (25_000, 50), (2_000, 3000), (100, 100_000)] {
        println!("values of {value_bytes} bytes");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("casket.tcb");
        let tree = Measured::open(&path, BUDGET);
        tree.put(0..records, &vec![1; value_bytes]);
        tree.check("after puts");
        assert!(tree.stat("cache_evictions") > 0, "the budget was never reached");
        tree.get(records);
        tree.check("after gets");
        tree.put(0..records / 2, &vec![2; value_bytes + 1]);
        tree.check("after longer values");
        for number in (0..records).filter(|number| number % 10 != 0) {
            tree.database.remove(&key(number)).unwrap();
        }
        tree.check("after removals");
        let leaves = tree.stat("leaves");
        tree.database.optimize().unwrap();
        tree.check("after joins");
        assert!(tree.stat("leaves") < leaves, "leaves are joined");
        tree.put(0..records, &vec![3; value_bytes]);
        drop(tree);
        let tree = Measured::open(&path, BUDGET);
        tree.check("after opening");
        tree.get(records);
        tree.put(records / 2..records, &vec![4; value_bytes]);
        tree.check("after opening and puts");
        tree.database.clear().unwrap();
        tree.check("after all are removed");
        assert!(tree.heap() < BESIDE_BYTES, "{}", tree.heap());
    }
}

#[test]
fn all_pages_in_memory_are_counted() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let tree = Measured::open(&folder.path().join("casket.tcb"), 64 << 20);
    tree.put(0..30_000, &[1; 8]);
    tree.check("after puts");
    let counted = tree.stat("cache_bytes") + tree.stat("directory_bytes");
    assert!(tree.heap() + BESIDE_BYTES / 2 >= counted, "{} of {counted}", tree.heap());
    assert_eq!(tree.stat("cache_evictions"), 0);
}

#[test]
fn a_tree_whose_leaves_take_its_budget_keeps_some_pages() {
    let _alone = alone();
    const BUDGET: usize = 64 << 10;
    let folder = tempfile::tempdir().unwrap();
    let tree = Measured::open(&folder.path().join("casket.tcb"), BUDGET);
    tree.put(0..30_000, &[1; 50]);
    assert!(tree.stat("directory_bytes") > BUDGET);
    assert_eq!(tree.stat("cache_pages_max_bytes"), BUDGET / PAGES_SHARE_MIN);
    tree.check("after puts");
    tree.get(30_000);
    tree.check("after gets");
}

#[test]
#[ignore = "takes minutes; prints the numbers of docs/internals/tree.md"]
fn heap_of_a_million_records() {
    let _alone = alone();
    for value_bytes in [8, 50] {
        let folder = tempfile::tempdir().unwrap();
        let (budget, before) = (23 << 20, in_use());
        let options = Options::new().cache_bytes(budget as u64);
        let database = options.open(folder.path().join("casket.tcb")).unwrap();
        let tree = Measured { database, budget, before };
        let value = vec![1; value_bytes];
        for number in 0..1_000_000 {
            tree.database.put(&key(number), &value).unwrap();
        }
        tree.get(1_000_000);
        let (pages, directory) = (tree.stat("cache_bytes"), tree.stat("directory_bytes"));
        println!("{} heap, {pages} pages, {directory} directory", tree.heap());
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        println!("{:?}", status.lines().find(|line| line.starts_with("RssAnon")));
        println!("{} leaves", tree.stat("leaves"));
    }
}

#[test]
fn ids_far_apart_take_the_heap_that_is_counted() {
    let _alone = alone();
    const PAGES: u64 = 20_000;
    for (order, first, step) in
        [("ascending", 0, 1), ("descending", PAGES - 1, PAGES - 1), ("mixed", 0, 7919)]
    {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new().width(8).limit_bytes(1 << 50);
        let database = options.open(folder.path().join("casket.tcf")).unwrap();
        let before = (in_use(), stat(&database, "index_bytes"));
        for number in (0..PAGES).map(|number| (first + number * step) % PAGES) {
            let id = 1 + number * 256 * 977;
            database.put(id.to_string().as_bytes(), b"value").unwrap();
        }
        let heap = in_use() - before.0;
        let counted = stat(&database, "index_bytes") - before.1;
        println!("{order}: {heap} heap, {counted} counted, {} a page", heap / PAGES as usize);
        assert!(heap <= counted + counted / 8, "{order}: {heap} of {counted}");
        assert!(heap >= counted - counted / 4, "{order}: {heap} of {counted}");
    }
}
