//! Flush: merges changes of postings into their blocks.

use super::block::{Reader, Writer, common};
use super::changes::{Change, Changes, Merged};
use super::physical;
use super::view::{damaged, first_at_or_after};
use crate::table::keys;
use crate::{Batch, Engine, Meta, Result, Wait};
use std::sync::Arc;

/// Approximate bytes of blocks that are written in one batch, and of changes that are merged into
/// one block at a time.
const BATCH_BYTES: usize = 128 << 10;

/// Merges sorted runs of changes, oldest first, into the blocks. Meanwhile readers see some of the
/// changes in blocks and others not. Merging a change twice is harmless. Calls `advance` now and
/// then with the number of remaining changes. With `removes`, uses the space that a full disk
/// reserves for removals.
pub(super) fn flush(
    engine: &dyn Engine,
    runs: &[Arc<Changes>],
    removes: bool,
    advance: impl Fn(usize),
) -> Result<()> {
    let mut changes = Merged::new(runs.iter().map(|run| (&**run, 0..run.len())));
    let mut change = changes.next();
    let mut writer = Writer::default();
    let new_batch = || {
        let mut batch = Batch::new();
        batch.removes = removes;
        batch
    };
    let mut batch = new_batch();
    let mut bytes = 0;
    while let Some((first, _)) = change {
        let Some(index) = keys::index_of(first) else {
            change = changes.next();
            continue;
        };
        let mut name = physical::last_of(index);
        let mut block = Vec::new();
        let mut last = None;
        first_at_or_after(engine, &physical::name(index, first), &mut |found, value| {
            if let Some(key) = physical::last(index, found) {
                last = key;
                found.clone_into(&mut name);
                value.clone_into(&mut block);
            }
        })?;
        let mut reader = Reader::new(&block, index);
        let is_here = |key: &[u8]| match &last {
            Some(last) => key <= last.as_slice(),
            None => key.starts_with(index),
        };
        change = weave(&mut reader, &mut writer, change, &mut changes, is_here);
        // The remaining changes are looked up again, in the new blocks.
        let has_more = change.is_some_and(|(key, _)| is_here(key));
        if reader.is_damaged() {
            return Err(damaged(engine));
        }
        bytes += put_blocks(&mut batch, &mut writer, index, name);
        if bytes > BATCH_BYTES || has_more {
            engine.write(&batch, Wait::Block)?;
            batch = new_batch();
            bytes = 0;
            advance(changes.len());
        }
    }
    if batch.is_empty() { Ok(()) } else { engine.write(&batch, Wait::Block) }
}

/// Writes the postings of a block, merged with the changes that belong to it, up to about the bytes
/// of one batch. Returns the first change that was not merged.
///
/// Few keys are compared. Each posting of a block has the number of bytes that it shares with the
/// previous one. If the change shares another number of bytes with the previous one, the two
/// numbers decide the order.
fn weave<'c>(
    block: &mut Reader<'_>,
    writer: &mut Writer,
    mut change: Option<Change<'c>>,
    changes: &mut Merged<'c>,
    is_here: impl Fn(&[u8]) -> bool,
) -> Option<Change<'c>> {
    let mut is_old = block.advance();
    // Whether the last written posting is the previous one of the block.
    let mut follows = false;
    let mut taken = 0;
    while taken < BATCH_BYTES
        && let Some((key, value)) = change.filter(|(key, _)| is_here(key))
    {
        taken += key.len() + value.map_or(0, <[u8]>::len);
        let key = &key[keys::index_of(key).map_or(0, <[u8]>::len)..];
        // Number of bytes that the change shares with the previous posting of the block.
        let mut shared: Option<usize> = None;
        let mut is_same = false;
        while is_old {
            let (old, _) = block.posting();
            let is_before = match shared {
                Some(shared) if block.shared() > shared => true,
                Some(shared) if block.shared() < shared => false,
                _ => {
                    let start = shared.unwrap_or(0);
                    let both = start + common(&old[start..], &key[start..]);
                    is_same = both == old.len() && both == key.len();
                    shared = Some(both);
                    !is_same && old[both..] < key[both..]
                }
            };
            if !is_before {
                break;
            }
            is_old = keep(block, writer, &mut follows);
        }
        if is_same {
            is_old = block.advance();
        }
        if let Some(value) = value {
            writer.push(key, value);
        }
        follows = false;
        change = changes.next();
    }
    while is_old {
        is_old = keep(block, writer, &mut follows);
    }
    change
}

/// Writes the current posting of the block, and moves to the next. Returns whether there is one.
/// `follows` is true if the last written posting is the previous one of the block.
fn keep(block: &mut Reader<'_>, writer: &mut Writer, follows: &mut bool) -> bool {
    let (key, value) = block.posting();
    if *follows {
        writer.push_sharing(block.shared(), key, value);
    } else {
        writer.push(key, value);
    }
    *follows = true;
    block.advance()
}

/// Adds the writer's blocks to the batch in place of one block. Returns their bytes.
fn put_blocks(batch: &mut Batch, writer: &mut Writer, index: &[u8], name: Vec<u8>) -> usize {
    let mut bytes = 0;
    let mut before: Option<(Vec<u8>, Vec<u8>)> = None;
    writer.finish(|last, block| {
        bytes += block.len();
        let posting = [index, last].concat();
        if let Some((posting, block)) = before.replace((posting, block.to_vec())) {
            batch.put(&physical::name(index, &posting), &block, Meta::NONE);
        }
    });
    match before {
        // The last block keeps the name.
        Some((_, block)) => batch.put(&name, &block, Meta::NONE),
        None => batch.remove(&name),
    }
    bytes
}
