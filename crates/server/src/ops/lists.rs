//! Operations on the records under several keys.

use super::decode::{Sender, row_to_store};
use super::execute::{Executor, INLINE_REPLY_BYTES_MAX, Outcome, Reply, Stop};
use crate::store::view::{KEYS_AHEAD_MAX, View};
use cabinet::{Error, Meta, RecordRef, Ring, Side};
use std::ops::ControlFlow;
use wire::binary::Strings;

/// Appends each value of a key.
pub(super) fn get_all(
    executor: &mut Executor<'_>,
    key: &[u8],
    reply: &mut impl Reply,
) -> Result<Outcome, Stop> {
    let values = executor.store.get_all(key)?;
    for value in &values {
        executor.limit.append(reply, value.len(), |reply| reply.element(value))?;
    }
    Ok(if values.is_empty() { Outcome::NoRecord } else { Outcome::Done })
}

/// Appends the records under those of the keys that have one. Keys that are invalid in the database
/// are skipped.
#[inline]
pub(super) fn get_many<'k>(
    executor: &mut Executor<'_>,
    mut keys: impl Iterator<Item = &'k [u8]>,
    reply: &mut impl Reply,
) -> Result<(), Stop> {
    let mut group = [&[][..]; KEYS_AHEAD_MAX];
    let mut done = 0;
    loop {
        let mut count = 0;
        while count < KEYS_AHEAD_MAX
            && let Some(key) = keys.next()
        {
            group[count] = key;
            count += 1;
        }
        let group = &group[..count];
        let got = match group {
            [] => return Ok(()),
            [key] => executor
                .check_inline(done, reply.len())
                .and_then(|()| take_any(get(executor, key, reply), reply)),
            group => get_group(executor, group, done, reply),
        };
        if matches!(got, Err(Stop::Blocked)) && Ring::missed() > 0 {
            begin_reads(executor.store, group.iter().copied().chain(keys));
            return got;
        }
        got?;
        done += count;
    }
}

/// Most keys of a request whose records are read from the disk at once.
const KEYS_READ_MAX: usize = 64;

/// Begins to read the records of keys that are not in memory, and waits for none: a request that
/// misses one is executed again, and is to miss no other then. Those that are in memory are read in
/// vain, so this ends when they have [`INLINE_REPLY_BYTES_MAX`].
#[cold]
pub(crate) fn begin_reads<'k>(store: &View, keys: impl Iterator<Item = &'k [u8]>) {
    let keys: Vec<&[u8]> = keys.take(KEYS_READ_MAX).collect();
    let mut bytes = 0;
    for group in keys.chunks(KEYS_AHEAD_MAX) {
        // The failures are those of the request.
        let _ = store.read_each(group, |found| {
            bytes += found.ok().flatten().map_or(0, |entry| entry.value.len());
            match bytes <= INLINE_REPLY_BYTES_MAX {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        if bytes > INLINE_REPLY_BYTES_MAX {
            return;
        }
    }
}

/// Appends the records under a group of keys, after `done` other keys.
#[inline]
fn get_group(
    executor: &mut Executor<'_>,
    group: &[&[u8]],
    done: usize,
    reply: &mut impl Reply,
) -> Result<(), Stop> {
    let store = executor.store;
    let mut keys = (done..).zip(group);
    let mut stopped = Ok(());
    store.read_each(group, |found| {
        let Some((done, key)) = keys.next() else { return ControlFlow::Break(()) };
        stopped = executor.check_inline(done, reply.len()).and_then(|()| {
            let taken = found.map_err(Stop::from).and_then(|found| match found {
                Some(entry) => {
                    let limit = &mut executor.limit;
                    let append = |reply: &mut _| Reply::record(reply, key, &entry);
                    Ok(limit.append(reply, entry.value.len(), append)?)
                }
                None => {
                    reply.absent();
                    Ok(())
                }
            });
            take_any(taken, reply)
        });
        if stopped.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    stopped
}

/// Takes a key that is invalid in the database for one without a record.
#[inline]
fn take_any(taken: Result<(), Stop>, reply: &mut impl Reply) -> Result<(), Stop> {
    match taken {
        Err(Stop::Failed(Error::NoId { .. } | Error::KeyTooLong { .. })) => {
            reply.absent();
            Ok(())
        }
        taken => taken,
    }
}

/// Appends the records under those of the keys that have one.
pub(super) fn get_list(
    executor: &mut Executor<'_>,
    keys: Strings<'_>,
    every_value: bool,
    reply: &mut impl Reply,
) -> Result<(), Stop> {
    for (done, key) in keys.iter().enumerate() {
        executor.check_inline(done, reply.len())?;
        if !every_value {
            get(executor, key, reply)?;
            continue;
        }
        for value in &executor.store.get_all(key)? {
            let record = RecordRef { key, value, meta: Meta::NONE, version: 0 };
            executor.limit.append(reply, value.len(), |reply| reply.record(key, &record))?;
        }
    }
    Ok(())
}

/// Appends the record under a key, if there is one.
#[inline]
fn get(executor: &mut Executor<'_>, key: &[u8], reply: &mut impl Reply) -> Result<(), Stop> {
    let limit = &mut executor.limit;
    let found = executor.store.read(key, |entry| {
        limit.append(reply, entry.value.len(), |reply| reply.record(key, &entry))
    })?;
    match found {
        Some(appended) => appended?,
        None => reply.absent(),
    }
    Ok(())
}

/// Stores records, up to the first that fails.
pub(super) fn put_list(
    executor: &mut Executor<'_>,
    pairs: Strings<'_>,
    adds: bool,
    rows: Option<Sender>,
) -> Result<(), Stop> {
    let store = executor.store;
    let mut parts = pairs.iter();
    while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
        if adds {
            store.put_duplicate(key, value, Side::After)?;
        } else {
            store.put(key, rows.map_or(value, |sender| row_to_store(value, sender)))?;
        }
        executor.has_changed = true;
    }
    Ok(())
}

/// Removes records, up to the first that fails.
pub(super) fn remove_list(
    executor: &mut Executor<'_>,
    keys: Strings<'_>,
    every_value: bool,
) -> Result<(), Stop> {
    let store = executor.store;
    for key in keys.iter() {
        if every_value {
            store.remove_all(key)?;
        } else {
            store.remove(key)?;
        }
        executor.has_changed = true;
    }
    Ok(())
}
