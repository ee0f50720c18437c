//! The steps of several servers in random orders: statements are executed late, their outcomes are
//! unknown, and servers end between two of them. After each step, each row has to be in the indexes
//! that queries may use, and in the order of the keys.
//!
//! The same is done with tables that lack one part of the design each, to show that it is needed
//! and that the simulation would find its absence.

use super::definitions::{Definition, Definitions};
use super::indexes::{begun, finished};
use super::tables::{Entries, StoredRow, Tables};
use super::upkeep::{NewRow, Upkeep};
use crate::order::Part;
use crate::records::{Changed, now_ms};
use crate::session::Failure;
use crate::version;
use cabinet::table::{IndexChange, IndexKind, Row};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, timeout};

/// Orders that are tried.
const ORDERS: u64 = 1500;

/// Steps after which a task that has not ended is given up.
const STEPS_MAX: usize = 3000;

/// Part of the design that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    Nothing,
    /// Entries have no names.
    Names,
    /// Entries are added after the row is changed.
    EntriesFirst,
    /// Transactions have no condition on the number of the definitions.
    Numbers,
    /// New rows get their entry in the order of the keys afterwards.
    KeyFirst,
    /// Removed rows leave nothing behind.
    Removed,
}

/// A transaction that is executed later.
type Late = (Vec<u8>, Option<(i64, i32)>, StoredRow);

/// Content of the tables.
#[derive(Default)]
struct State {
    random: u64,
    rows: BTreeMap<Vec<u8>, StoredRow>,
    keys: BTreeSet<(Vec<u8>, i64)>,
    entries: BTreeSet<(i32, Vec<u8>, Vec<u8>, i64)>,
    definitions: Definitions,
    /// Whether reads of the definitions have no answer.
    is_silent: bool,
    late: Vec<Late>,
}

impl State {
    fn below(&mut self, bound: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) as usize % bound
    }

    fn swap(&mut self, missing: Missing, (key, old, new): &Late) -> bool {
        let of = |row: &StoredRow| match missing {
            Missing::Numbers => (row.version, 0),
            _ => (row.version, row.number),
        };
        let old = old.map(|(version, number)| match missing {
            Missing::Numbers => (version, 0),
            _ => (version, number),
        });
        let is_met = self.rows.get(key).map(of) == old;
        if is_met && missing == Missing::Removed && new.value.is_none() {
            self.rows.remove(key);
        } else if is_met {
            self.rows.insert(key.clone(), new.clone());
        }
        is_met
    }

    /// Returns a row that is not found.
    fn lost(&self, missing: Missing) -> Option<String> {
        for (key, row) in &self.rows {
            let Some(value) = &row.value else { continue };
            if !self.keys.contains(&(key.clone(), row.entry.unwrap_or(0))) {
                return Some(format!("{key:?} is not in the order of the keys"));
            }
            for index in self.definitions.indexes.iter().filter(|index| index.is_ready) {
                for value in index.values(key, value) {
                    let name = named(missing, row.name(index.id));
                    if !self.entries.contains(&(index.id, value, key.clone(), name)) {
                        return Some(format!("{key:?} is not in index {}", index.id));
                    }
                }
            }
        }
        None
    }
}

fn named(missing: Missing, name: i64) -> i64 {
    if missing == Missing::Names { 0 } else { name }
}

/// Tables in memory. Each statement is a step of its own.
struct Simulated {
    state: Arc<Mutex<State>>,
    missing: Missing,
}

/// Lets other tasks execute their steps.
fn step() -> impl Future<Output = ()> + Send {
    let mut has_waited = false;
    std::future::poll_fn(move |context| match std::mem::replace(&mut has_waited, true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
}

impl Simulated {
    /// Executes a statement. Fails now and then, before it.
    async fn write(&self, write: impl FnOnce(&mut State) + Send) -> Result<(), Failure> {
        step().await;
        let mut state = self.state.lock();
        if state.below(40) == 0 {
            return Err(Failure::Lost);
        }
        write(&mut state);
        Ok(())
    }

    async fn add(&self, key: &[u8], entries: &[Entries]) -> Result<(), Failure> {
        for Entries { index, name, values } in entries {
            for value in values {
                let name = named(self.missing, *name);
                let entry = (*index, value.clone(), key.to_vec(), name);
                self.write(|state| {
                    state.entries.insert(entry);
                })
                .await?;
            }
        }
        Ok(())
    }
}

impl Tables for Simulated {
    async fn read(&self, key: &[u8]) -> Result<Option<StoredRow>, Failure> {
        step().await;
        Ok(self.state.lock().rows.get(key).cloned())
    }

    async fn swap(
        &self,
        _: Instant,
        key: &[u8],
        read: Option<&StoredRow>,
        new: &StoredRow,
    ) -> Changed {
        step().await;
        let old = read.map(|row| (row.version, row.number));
        let swap: Late = (key.to_vec(), old, new.clone());
        let mut state = self.state.lock();
        match state.below(8) {
            0 => {
                state.late.push(swap);
                Changed::Unknown
            }
            1 => Changed::NotDone,
            2 => {
                state.swap(self.missing, &swap);
                Changed::Unknown
            }
            _ if state.swap(self.missing, &swap) => Changed::Done,
            _ => Changed::Conflict,
        }
    }

    async fn add_key(&self, _: Instant, key: &[u8], name: i64) -> Result<(), Failure> {
        match self.missing {
            Missing::KeyFirst => Ok(()),
            _ => {
                self.write(|state| {
                    state.keys.insert((key.to_vec(), name));
                })
                .await
            }
        }
    }

    async fn remove_key(&self, key: &[u8], name: i64) {
        let _ = self
            .write(|state| {
                state.keys.remove(&(key.to_vec(), name));
            })
            .await;
    }

    async fn keys(&self, after: Option<&[u8]>) -> Result<Part, Failure> {
        step().await;
        let state = self.state.lock();
        let next = state.keys.iter().map(|(key, _)| key).find(|key| Some(&key[..]) > after);
        let keys: Vec<Vec<u8>> = next.cloned().into_iter().collect();
        Ok(Part { next: keys.last().cloned(), keys })
    }

    async fn add_entries(
        &self,
        _: Instant,
        key: &[u8],
        entries: &[Entries],
    ) -> Result<(), Failure> {
        match self.missing {
            Missing::EntriesFirst => Ok(()),
            _ => self.add(key, entries).await,
        }
    }

    async fn remove_entries(&self, key: &[u8], entries: &[Entries]) {
        for Entries { index, name, values } in entries {
            for value in values {
                let entry = (*index, value.clone(), key.to_vec(), named(self.missing, *name));
                let _ = self
                    .write(|state| {
                        state.entries.remove(&entry);
                    })
                    .await;
            }
        }
    }

    async fn remove_index(&self, _: i32) {}

    async fn definitions(&self) -> Result<Definitions, Failure> {
        step().await;
        if self.state.lock().is_silent {
            std::future::pending::<()>().await;
        }
        Ok(self.state.lock().definitions.clone())
    }

    async fn swap_definitions(&self, old: i32, new: &Definitions) -> Changed {
        step().await;
        let mut state = self.state.lock();
        if state.definitions.number != old {
            return Changed::Conflict;
        }
        state.definitions = new.clone();
        Changed::Done
    }
}

type Server = Upkeep<Simulated>;

/// Returns a time that does not come: no task drives the clock.
fn later() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

/// Returns a runtime whose clock servers set their deadlines by.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// Changes rows at random.
async fn change_rows(server: Arc<Server>) {
    for _ in 0..4 {
        let (key, value) = {
            let mut state = server.tables.state.lock();
            (vec![b'a' + state.below(2) as u8], state.below(3))
        };
        for _ in 0..3 {
            let Ok(read) = server.tables.read(&key).await else { break };
            let is_there = read.as_ref().is_some_and(|row| row.value.is_some());
            let row = match value {
                0 if !is_there => break,
                0 => None,
                value => {
                    let value = if value == 1 { b"1" } else { b"2" };
                    let row = Row::new().with(b"c", value).and_then(|row| row.with(b"d", value));
                    Some(row.unwrap().encode().unwrap())
                }
            };
            let last = read.as_ref().map_or(0, |row| row.version);
            let new = NewRow { version: version::next(last, now_ms()), value: row };
            match server.change(later(), &key, read.as_ref(), &new).await {
                Changed::Done => {
                    add_late(&server, &key, read.as_ref(), &new).await;
                    break;
                }
                Changed::Unknown => break,
                Changed::Conflict | Changed::NotDone => {}
            }
        }
    }
}

/// Does what is missing before a change after it.
async fn add_late(server: &Server, key: &[u8], read: Option<&StoredRow>, new: &NewRow) {
    let is_new = read.is_none_or(|row| row.value.is_none()) && new.value.is_some();
    match (server.tables.missing, &new.value) {
        (Missing::EntriesFirst, Some(value)) => {
            for index in &server.known().indexes {
                let values = index.values(key, value);
                let entries = [Entries { index: index.id, name: new.version, values }];
                let _ = server.tables.add(key, &entries).await;
            }
        }
        (Missing::KeyFirst, _) if is_new => {
            let name = (key.to_vec(), new.version);
            let _ = server
                .tables
                .write(|state| {
                    state.keys.insert(name);
                })
                .await;
        }
        _ => {}
    }
}

/// Adds an index, as a server does.
async fn add_index(server: Arc<Server>) {
    let define = async |change: &dyn Fn(&Definitions) -> Option<Vec<Definition>>| {
        let before = server.fresh().await.ok()?;
        let after = Definitions { number: before.number + 1, indexes: change(&before)? };
        let swapped = server.tables.swap_definitions(before.number, &after).await;
        if swapped != Changed::Done {
            return None;
        }
        server.learn(after.clone());
        Some(after)
    };
    let change = IndexChange::Set(IndexKind::Lexical);
    let Some(after) = define(&|known| begun(known, b"d", change).ok()).await else { return };
    let id = after.number;
    let mut last = None;
    loop {
        let Ok(part) = server.tables.keys(last.as_deref()).await else { return };
        for key in &part.keys {
            while server.complete(later(), key).await.is_err() {}
        }
        match part.next {
            None => break,
            next => last = next,
        }
    }
    define(&|known| finished(known, id)).await;
}

/// Runs servers in one order of their steps. Returns what was lost.
fn run(missing: Missing, seed: u64) -> Option<String> {
    let ready = |id, column: &[u8]| Definition {
        id,
        column: column.to_vec(),
        kind: IndexKind::Lexical,
        is_ready: true,
    };
    let definitions = Definitions { number: 1, indexes: vec![ready(1, b"c")] };
    let state = State { random: seed, definitions: definitions.clone(), ..State::default() };
    let state = Arc::new(Mutex::new(state));
    let server = || {
        let server = Upkeep::new(Simulated { state: Arc::clone(&state), missing });
        server.learn(definitions.clone());
        Arc::new(server)
    };
    let servers = [server(), server()];
    let mut tasks: Vec<Pin<Box<dyn Future<Output = ()>>>> = vec![
        Box::pin(change_rows(Arc::clone(&servers[0]))),
        Box::pin(change_rows(Arc::clone(&servers[0]))),
        Box::pin(change_rows(Arc::clone(&servers[1]))),
        Box::pin(add_index(Arc::clone(&servers[1]))),
    ];
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..STEPS_MAX {
        let (number, ends) = {
            let mut state = state.lock();
            if state.below(12) == 0 && !state.late.is_empty() {
                let number = state.late.len();
                let number = state.below(number);
                let swap = state.late.swap_remove(number);
                state.swap(missing, &swap);
            }
            let number = state.below(tasks.len().max(1));
            (number, state.below(400) == 0)
        };
        let Some(task) = tasks.get_mut(number) else { break };
        if ends || task.as_mut().poll(&mut context).is_ready() {
            drop(tasks.swap_remove(number));
        }
        if let Some(lost) = state.lock().lost(missing) {
            return Some(lost);
        }
    }
    let mut state = state.lock();
    while let Some(swap) = state.late.pop() {
        state.swap(missing, &swap);
    }
    state.lost(missing)
}

#[test]
fn no_row_is_lost_in_any_order_of_the_steps_of_servers() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let mut finished = 0;
    for seed in 0..ORDERS {
        assert_eq!(run(Missing::Nothing, seed), None, "order {seed}");
        finished += 1;
    }
    assert_eq!(finished, ORDERS);
}

#[test]
fn rows_are_lost_if_a_part_of_the_design_is_missing() {
    let runtime = runtime();
    let _entered = runtime.enter();
    for missing in [
        Missing::Names,
        Missing::EntriesFirst,
        Missing::Numbers,
        Missing::KeyFirst,
        Missing::Removed,
    ] {
        let lost = (0..100 * ORDERS).find_map(|seed| Some((seed, run(missing, seed)?)));
        let (seed, lost) = lost.unwrap_or_else(|| panic!("{missing:?} is not needed"));
        println!("without {missing:?}: in order {seed}, {lost}");
    }
}

/// Executes all steps of a task.
fn finish<T>(mut task: Pin<Box<impl Future<Output = T>>>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(result) = task.as_mut().poll(&mut context) {
            return result;
        }
    }
}

#[test]
fn a_change_that_meets_one_of_the_same_version_leaves_its_entries() {
    let row = Row::new().with(b"c", b"1").unwrap().encode().unwrap();
    let new = NewRow { version: 7, value: Some(row) };
    let index =
        Definition { id: 1, column: b"c".to_vec(), kind: IndexKind::Lexical, is_ready: true };
    let definitions = Definitions { number: 1, indexes: vec![index] };
    let runtime = runtime();
    let _entered = runtime.enter();
    let mut met = 0;
    for random in 0..200 {
        let state = State { random, definitions: definitions.clone(), ..State::default() };
        let state = Arc::new(Mutex::new(state));
        let [first, second] = [(); 2].map(|()| {
            let missing = Missing::Nothing;
            Upkeep::new(Simulated { state: Arc::clone(&state), missing })
        });
        // Both have found no row.
        let changed = [&first, &second]
            .map(|server| finish(Box::pin(server.change(later(), b"k", None, &new))));
        met += usize::from(changed == [Changed::Done, Changed::Conflict]);
        assert_eq!(state.lock().lost(Missing::Nothing), None, "{random}");
    }
    assert!(met > 50, "{met}");
}

#[test]
fn a_change_does_not_wait_for_the_definitions_after_its_deadline() {
    let row = Row::new().with(b"c", b"1").unwrap().encode().unwrap();
    let new = NewRow { version: 7, value: Some(row) };
    let state = Arc::new(Mutex::new(State { is_silent: true, ..State::default() }));
    let server = Upkeep::new(Simulated { state, missing: Missing::Nothing });
    runtime().block_on(async {
        // The second one waits for the first one to read them.
        let until = Instant::now() + Duration::from_millis(20);
        let changes = async {
            tokio::join!(
                server.change(until, b"k", None, &new),
                server.change(until, b"l", None, &new),
            )
        };
        let changed = timeout(Duration::from_secs(60), changes).await.unwrap();
        assert_eq!(changed, (Changed::NotDone, Changed::NotDone));
    });
}
