//! Taking changes of postings into the blocks that they belong to.

use super::block::{Reader, Writer, common};
use super::changes::{Change, Changes, Merged};
use super::physical;
use super::view::{damaged, first_at_or_after};
use crate::table::keys;
use crate::{Batch, Engine, Meta, Result};
use std::sync::Arc;

/// Bytes of blocks that are written at once, and of changes that are taken into one block at once,
/// about.
const BATCH_BYTES: usize = 128 << 10;

/// Takes sorted changes into the blocks, later ones standing behind earlier ones. Readers see some
/// of them taken in and others not meanwhile. Each may be taken in a second time. `advance` hears
/// now and then how many are left. With `removes` it takes the space that a full disk has for
/// removals.
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
        // The others are looked up again, in the blocks that there are then.
        let has_more = change.is_some_and(|(key, _)| is_here(key));
        if reader.is_damaged() {
            return Err(damaged(engine));
        }
        bytes += put_blocks(&mut batch, &mut writer, index, name);
        if bytes > BATCH_BYTES || has_more {
            engine.write(&batch)?;
            batch = new_batch();
            bytes = 0;
            advance(changes.len());
        }
    }
    if batch.is_empty() { Ok(()) } else { engine.write(&batch) }
}

/// Writes the postings of a block with the changes that belong there, about as many as one batch is
/// to hold; answers the first change that does not belong there, or comes later.
///
/// Few keys are compared: those of a block say themselves what they share with the one before,
/// and if that is more or less than what the change shares with it, that tells the order.
fn weave<'c>(
    block: &mut Reader<'_>,
    writer: &mut Writer,
    mut change: Option<Change<'c>>,
    changes: &mut Merged<'c>,
    is_here: impl Fn(&[u8]) -> bool,
) -> Option<Change<'c>> {
    let mut is_old = block.advance();
    // Whether the last posting that was written is the one before in the block.
    let mut follows = false;
    let mut taken = 0;
    while taken < BATCH_BYTES
        && let Some((key, value)) = change.filter(|(key, _)| is_here(key))
    {
        taken += key.len() + value.map_or(0, <[u8]>::len);
        let key = &key[keys::index_of(key).map_or(0, <[u8]>::len)..];
        // Bytes that the change shares with the last posting of the block, which is before it.
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
/// `follows` tells whether the last one written is the one before in the block.
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

/// Puts what is in the writer in the place of a block; answers how many bytes that takes.
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
        // The last one keeps the name.
        Some((_, block)) => batch.put(&name, &block, Meta::NONE),
        None => batch.remove(&name),
    }
    bytes
}
