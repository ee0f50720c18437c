//! No store: measures the harness itself, which makes keys and values.

use super::{Session, Store};
use anyhow::Result;
use std::hint::black_box;

pub(super) struct None;

impl Store for None {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Self))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Session for None {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        black_box((key, value));
        Ok(())
    }

    fn get(&mut self, key: &[u8], _visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        black_box(key);
        Ok(false)
    }

    fn scan(&mut self, _visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        Ok(())
    }
}
