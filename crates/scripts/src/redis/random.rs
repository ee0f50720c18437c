//! `math.random` and `math.randomseed`, with Redis's sequence of numbers.

use super::errors::{Arguments, argument_error, library_error};
use crate::functions::Installer;
use mlua::{MultiValue, Result};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of the generator, and its step, as of `lrand48`.
const MASK: u64 = (1 << 48) - 1;
const FACTOR: u64 = 0x5_deec_e66d;
const ADDEND: u64 = 0xb;

/// Lowest bits of a seed.
const SEED_LOW: u64 = 0x330e;

/// Largest number of the generator.
const MAX: u64 = i32::MAX as u64;

/// Replaces the functions of a table.
pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    let generator = Arc::new(AtomicU64::new(RandomState::new().hash_one(0) & MASK));
    let seeded = Arc::clone(&generator);
    installer.add_short("randomseed", move |lua, _, values: MultiValue| {
        let seed = Arguments::new(lua, values).number(1)? as i64 as u32;
        seeded.store(u64::from(seed) << 16 | SEED_LOW, Ordering::Relaxed);
        Ok(())
    })?;
    installer.add_short("random", move |lua, _, values: MultiValue| {
        let arguments = Arguments::new(lua, values);
        let step = |state: u64| (state.wrapping_mul(FACTOR).wrapping_add(ADDEND)) & MASK;
        let state = step(generator.load(Ordering::Relaxed));
        generator.store(state, Ordering::Relaxed);
        let share = ((state >> 17) % MAX) as f64 / MAX as f64;
        let bound = |place| Ok::<_, mlua::Error>(f64::from(arguments.number(place)? as i32));
        match arguments.len() {
            0 => Ok(share),
            1 => {
                let high = bound(1)?;
                if high < 1.0 {
                    return Err(argument_error(lua, 1, "interval is empty"));
                }
                Ok((share * high).floor() + 1.0)
            }
            2 => {
                let (low, high) = (bound(1)?, bound(2)?);
                if low > high {
                    return Err(argument_error(lua, 2, "interval is empty"));
                }
                Ok((share * (high - low + 1.0)).floor() + low)
            }
            _ => Err(library_error(lua, "wrong number of arguments")),
        }
    })
}
