//! Any bytes for keys over a database whose keys are ids.

use cabinet::{
    Batch, BatchChange, Change, Durability, DurableListener, Engine, Entry, FixedDatabase,
    LogPosition, Meta, Position, Result, Version, Wait,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Each key has an id that follows from it, and is stored in front of its value.
pub(crate) struct Named(pub(crate) Arc<FixedDatabase>);

/// Short keys lie close together, so that they share pages; others are alone on theirs.
fn id(key: &[u8]) -> Vec<u8> {
    let id = match key {
        [] => 1,
        [one] => 2 + u64::from(*one),
        [one, two] => 300 + (u64::from(*one) << 8 | u64::from(*two)),
        _ => {
            let hash = key.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
            });
            (1 << 20) + (hash >> 24)
        }
    };
    id.to_string().into_bytes()
}

fn joined(key: &[u8], value: &[u8]) -> Vec<u8> {
    [&(key.len() as u32).to_le_bytes(), key, value].concat()
}

fn named(entry: Entry<'_>) -> Entry<'_> {
    let (length, rest) = entry.value.split_first_chunk().expect("a key is in front");
    let (key, value) = rest.split_at(u32::from_le_bytes(*length) as usize);
    Entry { key, value, ..entry }
}

impl Engine for Named {
    fn read(&self, key: &[u8], wait: Wait, visit: &mut dyn FnMut(Entry<'_>)) -> Result<bool> {
        self.0.read(&id(key), wait, &mut |entry| visit(named(entry)))
    }

    fn put(&self, key: &[u8], value: &[u8], meta: Meta, wait: Wait) -> Result<Version> {
        self.0.put(&id(key), &joined(key, value), meta, wait)
    }

    fn update(
        &self,
        key: &[u8],
        wait: Wait,
        decide: &mut dyn FnMut(Option<Entry<'_>>) -> Change,
    ) -> Result<Version> {
        self.0.update(&id(key), wait, &mut |entry| match decide(entry.map(named)) {
            Change::Put(value, meta) => Change::Put(joined(key, &value), meta),
            change => change,
        })
    }

    fn write(&self, batch: &Batch) -> Result<()> {
        let mut numbered = Batch::new();
        for (key, version) in batch.expected() {
            numbered.expect(&id(key), version);
        }
        for (key, change) in batch.changes() {
            match change {
                BatchChange::Put(value, meta) => {
                    numbered.put(&id(key), &joined(key, value), *meta);
                }
                BatchChange::Remove => numbered.remove(&id(key)),
            }
        }
        self.0.write(&numbered)
    }

    fn scan(&self, from: &Position, visit: &mut dyn FnMut(Entry<'_>)) -> Result<Option<Position>> {
        self.0.scan(from, &mut |entry| visit(named(entry)))
    }

    fn position_of(&self, key: &[u8]) -> Position {
        self.0.position_of(&id(key))
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn path(&self) -> PathBuf {
        self.0.path()
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    fn optimize(&self) -> Result<()> {
        self.0.optimize()
    }

    fn clear(&self) -> Result<()> {
        self.0.clear()
    }

    fn copy_to(&self, path: &Path) -> Result<()> {
        self.0.copy_to(path)
    }

    fn durability(&self) -> Durability {
        self.0.durability()
    }

    fn appended(&self) -> LogPosition {
        self.0.appended()
    }

    fn durable(&self) -> LogPosition {
        self.0.durable()
    }

    fn wait_durable(&self, position: LogPosition) -> Result<()> {
        self.0.wait_durable(position)
    }

    fn on_durable(&self, listener: DurableListener) {
        self.0.on_durable(listener);
    }
}
