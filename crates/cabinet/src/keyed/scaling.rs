//! Scaling test: which locks puts and gets take, and a model of machines with many processors.

use super::KeyedEngine;
use crate::base::sync::trace;
use crate::hash::HashDatabase;
use crate::io::FaultyStorage;
use crate::log::Purpose;
use crate::log::record::Kind;
use crate::{Compression, Engine, Meta, Options, Wait};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const VALUE: [u8; 100] = [7; 100];

fn key(number: u64) -> [u8; 16] {
    let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (u128::from(hash) << 64 | u128::from(number)).to_be_bytes()
}

fn put(database: &HashDatabase, number: u64) {
    database.put(&key(number), &VALUE, Meta::NONE, Wait::Block).unwrap();
}

fn get(database: &HashDatabase, number: u64) {
    assert!(database.read(&key(number), Wait::Block, &mut |_| ()).unwrap());
}

/// Returns how often the calls took each lock, in descending order.
fn counts_of_locks(calls: u64, mut call: impl FnMut(u64)) -> Vec<u64> {
    let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
    for number in 0..calls {
        let mut taken = trace::of(|| call(number));
        assert!(!taken.is_empty(), "a call whose locks are not traced");
        taken.sort_unstable();
        taken.dedup();
        taken.into_iter().for_each(|lock| *counts.entry(lock).or_default() += 1);
    }
    let mut counts: Vec<u64> = counts.into_values().collect();
    counts.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
    counts
}

/// Threads that contend have append blocks of their own. Unit tests have two, and spread eager
/// writes over them.
#[test]
fn no_lock_is_common_to_all_puts_or_to_all_gets() {
    const CALLS: u64 = 20_000;
    const FEW: u64 = CALLS / 100;
    let open = |is_eager| {
        let options = Options { eager_append_blocks: is_eager, ..Options::default() };
        let storage = Arc::new(FaultyStorage::new());
        HashDatabase::open_on(storage, Path::new("casket.tch"), &options, false).unwrap()
    };
    let database = open(true);
    let of_puts = counts_of_locks(CALLS, |number| put(&database, number));
    let (of_blocks, others) = of_puts.split_at(2);
    assert!(of_blocks.iter().all(|count| *count <= CALLS / 2 + FEW), "{of_blocks:?}");
    assert!(others[0] <= FEW, "a lock is taken by {} of {CALLS} puts", others[0]);
    let of_gets = counts_of_locks(CALLS, |number| get(&database, number));
    assert!(of_gets[0] <= FEW, "a lock is taken by {} of {CALLS} gets", of_gets[0]);
    // A single thread appends at the tail each time, which shows that the test notices a common
    // lock.
    let database = open(false);
    assert_eq!(counts_of_locks(CALLS, |number| put(&database, number))[0], CALLS);
}

/// Measured times on this machine, in nanoseconds.
struct Times {
    /// Transfer of a cache line to another processor that wants to write to it.
    transfer: f64,
    put: f64,
    get: f64,
    /// Time that the tail is locked for a record.
    tail: f64,
}

/// Returns the average time of a call in nanoseconds.
fn time(calls: u64, mut call: impl FnMut(u64)) -> f64 {
    let began = Instant::now();
    (0..calls).for_each(&mut call);
    began.elapsed().as_nanos() as f64 / calls as f64
}

/// Measures the transfer of a cache line with two threads that write to it in turn.
fn transfer_time() -> f64 {
    const TURNS: u64 = 1_000_000;
    let line = AtomicU64::new(0);
    let take_turns = |own: u64| {
        for turn in 0..TURNS {
            while line.load(Ordering::Acquire) != 2 * turn + own {
                std::hint::spin_loop();
            }
            line.store(2 * turn + own + 1, Ordering::Release);
        }
    };
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| take_turns(0));
        take_turns(1);
    });
    began.elapsed().as_nanos() as f64 / (2 * TURNS) as f64
}

/// Measures the time that the tail is locked: an append without the work before the lock.
fn tail_time<I: super::Index>(engine: &KeyedEngine<I>) -> f64 {
    const CALLS: u64 = 500_000;
    let prepare = |number| {
        let key = key(number);
        let record = engine.log.prepare(Kind::Put, &key, &VALUE, Meta::NONE, Compression::None);
        std::hint::black_box(record.total());
    };
    let append = |number| {
        let key = key(number);
        let record = engine.log.prepare(Kind::Put, &key, &VALUE, Meta::NONE, Compression::None);
        engine.log.append(record, Purpose::Store).unwrap();
    };
    time(CALLS, append) - time(CALLS, prepare)
}

/// A lock or a cache line that several processors write to.
#[derive(Clone, Copy, Default)]
struct Shared {
    free_at: f64,
    last: Option<usize>,
}

/// Model of a machine in which each processor does one operation at a time.
struct Machine {
    transfer: f64,
    shards: Vec<Shared>,
    blocks: Vec<Shared>,
    counters: Vec<Shared>,
    tail: Shared,
    random: u64,
}

impl Machine {
    fn new(transfer: f64, blocks: usize, counters: usize) -> Self {
        let some = |count| vec![Shared::default(); count];
        Self {
            transfer,
            shards: some(<crate::hash::HashIndex as super::Index>::SHARDS),
            blocks: some(blocks),
            counters: some(counters),
            tail: Shared::default(),
            random: 1,
        }
    }

    /// Lets a processor hold a line or lock for `time`, from `now` on. Returns when it is done.
    fn hold(shared: &mut Shared, transfer: f64, processor: usize, now: f64, time: f64) -> f64 {
        let is_own = shared.last.replace(processor) == Some(processor);
        let begins = now.max(shared.free_at) + if is_own { 0.0 } else { transfer };
        shared.free_at = begins + time;
        shared.free_at
    }

    fn shard(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random as usize % self.shards.len()
    }

    /// Runs operations on some processors. Returns operations per microsecond. `run` does one
    /// operation from a time on, and returns its end.
    fn run(&mut self, processors: usize, run: &dyn Fn(&mut Self, usize, u64, f64) -> f64) -> f64 {
        const OPERATIONS: u64 = 200_000;
        let mut clocks = vec![0.0_f64; processors];
        let mut done = vec![0_u64; processors];
        for _ in 0..OPERATIONS {
            let (next, now) =
                clocks.iter().copied().enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
            done[next] += 1;
            clocks[next] = run(self, next, done[next], now);
        }
        let end = clocks.iter().copied().fold(0.0, f64::max);
        OPERATIONS as f64 / end * 1000.0
    }
}

/// Records that a thread puts into an append block of 64 KiB.
const RECORDS_PER_BLOCK: u64 = 64 * 1024 / 144;

/// Nanoseconds of an atomic change of a cache line that the processor has.
const ATOMIC: f64 = 6.0;

impl Machine {
    /// Models a put of one of `processors`, with or without append blocks.
    fn put(&mut self, times: &Times, processor: usize, number: u64, now: f64, blocks: bool) -> f64 {
        let transfer = self.transfer;
        let shard = self.shard();
        let work = (times.put - times.tail).max(0.0);
        let mut now = Self::hold(&mut self.shards[shard], transfer, processor, now, work);
        let counter = processor % self.counters.len();
        now = Self::hold(&mut self.counters[counter], transfer, processor, now, ATOMIC);
        if blocks {
            let block = processor % self.blocks.len();
            now = Self::hold(&mut self.blocks[block], transfer, processor, now, times.tail);
        }
        if !blocks || number.is_multiple_of(RECORDS_PER_BLOCK) {
            now = Self::hold(&mut self.tail, transfer, processor, now, times.tail);
        }
        // The shard's lock is released last.
        self.shards[shard].free_at = now;
        now
    }

    /// Models a get, which changes the lock of its shard twice.
    fn get(&mut self, times: &Times, processor: usize, now: f64) -> f64 {
        let transfer = self.transfer;
        let shard = self.shard();
        let locked = Self::hold(&mut self.shards[shard], transfer, processor, now, ATOMIC);
        Self::hold(&mut self.shards[shard], transfer, processor, locked, ATOMIC) + times.get
    }
}

/// Prints the numbers of docs/internals/scaling.md.
#[test]
#[ignore = "measures, and asserts nothing"]
fn print_a_model_of_many_processors() {
    const RECORDS: u64 = 1_000_000;
    // Records are read in another order than they were written.
    const STRIDE: u64 = 7919;
    let folder = tempfile::tempdir().unwrap();
    let open =
        |name: &str| HashDatabase::open(&folder.path().join(name), &Options::default()).unwrap();
    let database = open("one.tch");
    let times = Times {
        transfer: transfer_time(),
        put: time(RECORDS, |number| put(&database, number)),
        get: time(RECORDS, |number| get(&database, number * STRIDE % RECORDS)),
        tail: tail_time(database.engine()),
    };
    println!(
        "transfer {:.0} ns, put {:.0} ns, get {:.0} ns, tail {:.0} ns",
        times.transfer, times.put, times.get, times.tail
    );
    let database = open("two.tch");
    let both = |call: fn(&HashDatabase, u64)| {
        let database = &database;
        let began = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                scope.spawn(move || {
                    (0..RECORDS / 2).for_each(|number| call(database, 2 * number + thread));
                });
            }
        });
        RECORDS as f64 / began.elapsed().as_nanos() as f64 * 1000.0
    };
    let get_any: fn(&HashDatabase, u64) =
        |database, number| get(database, number * STRIDE % RECORDS);
    println!("two threads, a microsecond: {:.2} puts, {:.2} gets", both(put), both(get_any));
    println!("| processors | puts | puts without blocks | gets | puts, one counter |");
    println!("|---:|---:|---:|---:|---:|");
    let machine = |counters| Machine::new(times.transfer, 256, counters);
    for processors in [1, 2, 4, 8, 16, 32, 64] {
        let puts = |counters: usize, blocks: bool| {
            machine(counters).run(processors, &|machine, processor, number, now| {
                machine.put(&times, processor, number, now, blocks && processors > 1)
            })
        };
        let gets = machine(1)
            .run(processors, &|machine, processor, _, now| machine.get(&times, processor, now));
        let (with, without, one) = (puts(16, true), puts(16, false), puts(1, true));
        println!("| {processors} | {with:.1} | {without:.1} | {gets:.1} | {one:.1} |");
    }
}
