//! `tyrant.map_reduce`: maps all records on several threads, each with a state of its own.
//!
//! The calling thread reads the records and hands them out in batches. Each thread sorts what its
//! mapper emits, through files if it is much. In the end the sorted parts are merged, and the
//! reducer runs in the calling state.

use crate::context::Context;
use crate::functions::{Installer, failed, reduce_groups, temporary_folder, visit_records};
use crate::limits::CALL_STACK_BYTES_MAX;
use crate::memory::Charge;
use crate::shared::{MapFunctions, States};
use crate::sorter::{Merged, Sorter};
use mlua::{Function, Lua, Result, Table, Value};
use parking_lot::Mutex;
use server::ScriptRecords;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

/// Bytes of records that a thread gets at once.
const BATCH_BYTES: usize = 64 << 10;

/// Bytes that a record of a batch takes in addition to its key and value.
const RECORD_BYTES: usize = 2 * size_of::<Vec<u8>>() + 32;

/// Records that a thread gets at once, and the charge for them.
type Batch = (Vec<(Vec<u8>, Vec<u8>)>, Charge);

pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add("map_reduce", map_reduce)
}

/// Returns a table from keys that were emitted to the results of the reducer, or to arrays of
/// values if there is none.
fn map_reduce(lua: &Lua, context: &Context, options: Table) -> Result<Table> {
    if !context.may_map_reduce.load(Ordering::Relaxed) {
        return Err(failed(
            "map_reduce cannot be called while the script is loaded, nor by a mapper: call it in a \
             function that clients call",
        ));
    }
    let map = MapFunctions { map: options.get("map")?, finish: options.get("finish")? };
    let threads_max = context.limits().map_threads.max(1);
    let threads = options.get::<Option<usize>>("threads")?.unwrap_or(threads_max);
    let threads = threads.clamp(1, threads_max);
    let reduce = match options.get::<Option<String>>("reduce")? {
        None => None,
        Some(name) => match lua.globals().get::<Value>(&*name)? {
            Value::Function(function) => Some(function),
            _ => return Err(failed(format!("there is no function {name}"))),
        },
    };
    let sorters = map_all(lua, context, &map, threads)?;
    let merged = Merged::new(sorters).map_err(failed)?;
    let results = lua.create_table()?;
    reduce_groups(lua, context, merged, |key, values| {
        let result = match &reduce {
            None => Value::Table(values),
            Some(reduce) => context.call_back::<Value>(reduce as &Function, (&key, values))?,
        };
        results.raw_set(key, result)
    })?;
    Ok(results)
}

/// Maps all records. Returns what was emitted, in one part for each thread.
fn map_all(
    lua: &Lua,
    context: &Context,
    map: &MapFunctions,
    threads: usize,
) -> Result<Vec<Sorter>> {
    let states = context.shared.states.get().ok_or_else(|| failed("there is no script"))?;
    let folder = temporary_folder(lua);
    let remaining = context.clock.remaining();
    let (sender, receiver) = mpsc::sync_channel(threads);
    let receiver = Mutex::new(receiver);
    thread::scope(|scope| {
        let mut running: Vec<ScopedJoinHandle<'_, _>> = Vec::new();
        let mut helpers = Vec::new();
        for _ in 0..threads {
            let records = context.records.helper();
            helpers.push(Arc::clone(&records));
            let (receiver, folder) = (&receiver, &folder);
            let work = move || map_batches(&**states, records, map, folder, remaining, receiver);
            running.push(
                thread::Builder::new()
                    .stack_size(4 * CALL_STACK_BYTES_MAX)
                    .spawn_scoped(scope, work)
                    .map_err(failed)?,
            );
        }
        let sent = send_all(lua, context, &sender);
        // The threads end as soon as all batches are taken.
        drop(sender);
        let mut sorters = Vec::new();
        let mut failure = None;
        for thread in running {
            match thread.join() {
                Ok(Ok(sorter)) => sorters.push(sorter),
                Ok(Err(message)) => failure = Some(message),
                Err(_) => failure = Some("a thread has panicked".to_string()),
            }
        }
        for helper in helpers {
            context.records.join(&helper);
        }
        context.check()?;
        match failure {
            Some(message) => Err(failed(message)),
            None => sent.map(|()| sorters),
        }
    })
}

/// Reads all records, and sends them in batches.
fn send_all(lua: &Lua, context: &Context, sender: &SyncSender<Batch>) -> Result<()> {
    let new = || (Vec::new(), context.charge());
    let mut batch: Batch = new();
    let mut bytes = 0;
    let is_whole = visit_records(context, |key, value| {
        let more = key.len() + value.len() + RECORD_BYTES;
        context.add_to(lua, &mut batch.1, more)?;
        batch.0.push((key.to_vec(), value.to_vec()));
        bytes += more;
        if bytes < BATCH_BYTES {
            return Ok(true);
        }
        bytes = 0;
        Ok(sender.send(mem::replace(&mut batch, new())).is_ok())
    })?;
    let _ = sender.send(batch);
    if is_whole { Ok(()) } else { Err(failed("the records cannot be read")) }
}

/// Maps the records of batches. After a failure or panic it takes what is still sent.
fn map_batches(
    states: &dyn States,
    records: Arc<ScriptRecords>,
    map: &MapFunctions,
    folder: &Path,
    time: Duration,
    receiver: &Mutex<Receiver<Batch>>,
) -> std::result::Result<Sorter, String> {
    let mapped = || {
        let mut mapper = states.make_mapper(&records, map, folder, time)?;
        loop {
            let batch = receiver.lock().recv();
            let Ok((records, _charge)) = batch else { return mapper.finish() };
            for (key, value) in records {
                mapper.map(&key, &value)?;
            }
        }
    };
    let result = catch_unwind(AssertUnwindSafe(mapped))
        .unwrap_or_else(|_| Err("a mapper has panicked".to_string()));
    if result.is_err() {
        // The sender would wait for ever.
        while receiver.lock().recv().is_ok() {}
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::CallClock;
    use crate::memory::TotalMemory;
    use crate::shared::Mapper;
    use cabinet::Options;
    use server::{Config, Endpoint, Server};

    struct Panics;

    impl States for Panics {
        fn evaluate_in_idle(&self, _: &ScriptRecords, _: &CallClock) {}

        fn make_mapper(
            &self,
            _: &Arc<ScriptRecords>,
            _: &MapFunctions,
            _: &Path,
            _: Duration,
        ) -> std::result::Result<Box<dyn Mapper>, String> {
            panic!("no mapper");
        }
    }

    #[test]
    fn a_mapper_that_panics_does_not_keep_the_sender_waiting() {
        let listen = vec![Endpoint::Tcp { host: Some("127.0.0.1".into()), port: 0 }];
        let database = Options::new().open("*").unwrap();
        let server = Server::bind(Config { listen, ..Config::default() }, database).unwrap();
        let records = server.script_records(0, 1);
        let map = MapFunctions { map: "map".into(), finish: None };
        let (sender, receiver) = mpsc::sync_channel(1);
        let receiver = Mutex::new(receiver);
        thread::scope(|scope| {
            let sending = scope.spawn(move || {
                let memory = Arc::new(TotalMemory::new(0));
                let batch = || (Vec::new(), Charge::new(&memory));
                (0..9).all(|_| sender.send(batch()).is_ok())
            });
            let folder = std::env::temp_dir();
            let mapped =
                map_batches(&Panics, records, &map, &folder, Duration::from_secs(600), &receiver);
            assert_eq!(mapped.err().as_deref(), Some("a mapper has panicked"));
            assert!(sending.join().unwrap());
        });
    }
}
